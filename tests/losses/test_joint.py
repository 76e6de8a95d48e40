"""Losses of several classes at once: slopes, bends, dual form, smoothing, limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast.losses import CrossEntropy, Hinge, Logistic, MaxHinge, SquaredHinge
from holdfast.losses.joint import EasedMaxHinge

SMOOTH = [EasedMaxHinge(0.3), EasedMaxHinge(2.0), CrossEntropy()]
ALL = [MaxHinge(), EasedMaxHinge(1e-6), *SMOOTH]
STEP = 1e-6


@pytest.fixture
def tables(rng):
    return rng.normal(size=(40, 4)) * 10 ** rng.uniform(-1.5, 0.7, size=(40, 1))


@pytest.fixture(params=ALL, ids=repr)
def loss(request):
    return request.param


@pytest.fixture(params=SMOOTH, ids=repr)
def smooth(request):
    return request.param


def test_shares_are_slopes_and_add_up_to_one(smooth, tables):
    _, shares = smooth.evaluate(tables)
    assert np.all(shares >= 0)
    assert_allclose(shares.sum(axis=1), 1, rtol=1e-13)
    for k, move in enumerate(STEP * np.eye(4)):
        change = smooth.evaluate(tables + move)[0] - smooth.evaluate(tables - move)[0]
        assert_allclose(shares[:, k], change / (2 * STEP), atol=1e-8)


def test_bends_are_slopes_of_the_shares(smooth, tables):
    s = smooth.bends(smooth.evaluate(tables)[1])
    for k, move in enumerate(STEP * np.eye(4)):
        change = (smooth.evaluate(tables + move)[1] - smooth.evaluate(tables - move)[1]) / (2 * STEP)
        wanted = s * np.eye(4)[k] - s * s[:, [k]] / s.sum(axis=1, keepdims=True)
        assert_allclose(change, wanted, atol=1e-6 * np.abs(s).max())


def test_no_shares_beat_the_loss_and_its_own_attain_it(loss, tables, rng):
    value, shares = loss.evaluate(tables)
    assert_allclose(np.sum(shares * tables, axis=1) + loss.dual_value(shares), value, rtol=1e-12, atol=1e-12)
    for _ in range(50):
        a = rng.dirichlet(np.full(4, rng.choice([0.1, 1.0, 20.0])), size=len(tables))
        assert np.all(np.sum(a * tables, axis=1) + loss.dual_value(a) <= value + 1e-12)


def test_smoothed_maximum_lies_above_by_no_more_than_it_says(tables):
    for delta in (1e-9, 0.1, 3.0):
        excess = MaxHinge().smoothed(delta).evaluate(tables)[0] - tables.max(axis=1)
        assert np.all(excess >= -1e-15 * np.abs(tables).max())
        assert np.all(excess <= delta + 1e-12)


def test_far_entries_are_silent_and_finite(loss):
    z = np.array([[0.0, 1e9, -1e9], [0.0, -1e9, -1e9], [0.0, 0.0, 0.0]])
    value, shares = loss.evaluate(z)
    assert_allclose(value[:2], [1e9, 0.0], atol=3)
    assert_allclose(shares, [[0, 1, 0], [1, 0, 0], [1 / 3] * 3], atol=1e-12)
    assert np.all(np.isfinite(loss.bends(shares)))


@pytest.mark.parametrize(("two", "loss"), [(Hinge(), MaxHinge()), (Logistic(), CrossEntropy())], ids=repr)
def test_two_classes_have_the_loss_they_had(two, loss, rng):
    assert type(two.jointly()) is type(loss)
    deficits = rng.normal(size=30)
    table = np.column_stack([np.zeros(30), deficits - 1 + loss.margin])
    assert_allclose(loss.evaluate(table)[0], two.value(deficits, np.zeros(())), rtol=1e-13)
    a = rng.uniform(size=30)
    mine = loss.margin * a + loss.dual_value(np.column_stack([1 - a, a]))
    assert_allclose(mine, two.dual_value(a), rtol=1e-13)


def test_losses_without_a_joint_form_say_so():
    assert SquaredHinge().jointly() is None


@pytest.mark.parametrize("loss", [MaxHinge(), CrossEntropy()], ids=repr)
@pytest.mark.parametrize("weights", [[5.0, 3.0, 4.0], [9.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
def test_no_constant_beats_the_best(loss, weights, rng):
    weights = np.array(weights)

    def cost(b):
        z = loss.margin + b - b[:, None]
        np.fill_diagonal(z, 0.0)
        return float(weights @ loss.evaluate(z)[0])

    best = loss.best_constant(weights)
    others = [best + scale * rng.normal(size=3) for scale in (1e-3, 0.1, 1.0, 3.0) for _ in range(100)]
    assert all(cost(best) <= cost(b) + 1e-12 for b in [*others, np.zeros(3), *np.eye(3)])
