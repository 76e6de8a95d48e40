"""The cross-entropy under noise: between what, when exact, its slopes and bends, and what its shares are worth."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from holdfast.losses import ExpectedCrossEntropy, ExpectedLogistic
from holdfast.losses.expected_cross_entropy import NODES, WEIGHTS

LOSS = ExpectedCrossEntropy()
STEP = 1e-6


@pytest.fixture
def tables(rng):
    """Deficits and scales of 40 rows against three rivals, of all sizes."""
    return rng.normal(size=(40, 3)) * 10 ** rng.uniform(-1, 0.7, size=(40, 1)), rng.uniform(0, 2.5, size=(40, 3))


def _without_noise(u):
    return logsumexp(np.column_stack([np.zeros(len(u)), u - 1.0]), axis=1)


def test_shares_are_the_best_there_are(tables):
    for u, t in zip(*tables, strict=True):

        def cost(a, u=u, t=t):
            shares = softmax(np.append(a, 0.0))
            return -sum(
                w * weight * np.logaddexp(0.0, one - 1.0 - np.log(w) + node * scale)
                for w, one, scale in zip(shares, u, t, strict=True)
                for node, weight in zip(NODES, WEIGHTS, strict=True)
            )

        assert_allclose(LOSS.evaluate(u[None], t[None])[0], -minimize(cost, np.zeros(2), tol=1e-12).fun, rtol=1e-9)


def test_it_lies_between_the_loss_without_noise_and_the_expected_one(rng):
    W, X, S = rng.normal(size=(4, 5)), rng.normal(size=(30, 5)), rng.uniform(0, 1.2, size=(30, 5))
    Z = rng.normal(size=(5_000, 1, 5))
    leads = W[:3] - W[3]
    u, t = 1.0 + X @ leads.T, np.sqrt(S**2 @ (leads**2).T)
    drawn = _without_noise((1.0 + (X + S * np.concatenate([Z, -Z])) @ leads.T).reshape(-1, 3)).reshape(-1, 30)
    expected, error = drawn.mean(axis=0), drawn.std(axis=0) / np.sqrt(len(drawn))
    value = LOSS.evaluate(u, t)[0]
    assert np.all(value >= _without_noise(u))
    assert np.all(value <= expected + 4 * error)
    assert np.all(value >= _without_noise(u) + 0.02 * np.square(t).max(axis=1) * np.exp(-np.abs(u).max(axis=1)))


def test_rivals_far_behind_cost_the_mean_of_their_exponentials(rng):
    u, t = -14.0 + rng.normal(size=(20, 3)), rng.uniform(0, 1, size=(20, 3))
    assert_allclose(LOSS.evaluate(u, t)[0], np.exp(u - 1.0 + t**2 / 2).sum(axis=1), rtol=1e-4)


def test_without_noise_it_is_the_cross_entropy(tables):
    u, t = tables[0], 0 * tables[1]
    value, slopes, scale_slopes = LOSS.evaluate(u, t)
    assert_allclose(value, _without_noise(u), rtol=1e-13)
    assert_allclose(slopes, np.exp(log_softmax(np.column_stack([0 * u[:, 0], u - 1.0]), axis=1))[:, 1:], rtol=1e-10)
    assert np.all(scale_slopes == 0)


def test_a_single_rival_costs_the_expected_logistic_loss(tables):
    u, t = (part[:, :1] for part in tables)
    value, slopes, scale_slopes = LOSS.evaluate(u, 0.5 * t)
    exact = ExpectedLogistic().evaluate(u[:, 0], 0.5 * t[:, 0])
    for mine, theirs in zip((value, slopes[:, 0], scale_slopes[:, 0]), exact, strict=True):
        assert_allclose(mine, theirs, atol=4e-6)  # of 11 points at a deviation of 1.25
    # rivals so far away that they do not count change nothing
    far = np.column_stack([u, np.full((len(u), 2), -60.0)])
    assert_allclose(LOSS.evaluate(far, 0.5 * np.column_stack([t, t, t]))[0], value, rtol=1e-8, atol=1e-12)


def test_rivals_alike_are_one_rival_with_their_sum(tables):
    u, t = (part[:, :1] for part in tables)
    three = LOSS.evaluate(np.repeat(u, 3, axis=1), np.repeat(t, 3, axis=1))[0]
    assert_allclose(three, LOSS.evaluate(u + np.log(3), t)[0], rtol=1e-12)


def test_slopes_and_bends_are_derivatives(tables):
    u, t = tables
    value, by_u, by_t, uu, ut, tt, p, q = LOSS.derivatives(u, t)
    assert_allclose((value, *(part.sum(axis=1) for part in (by_u, by_t))), _sums(LOSS.evaluate(u, t)), rtol=1e-12)
    for k, move in enumerate(STEP * np.eye(3)):
        unit = np.eye(3)[k]
        along_u, along_t = _change(u, t, move, 0 * move), _change(u, t, 0 * move, move)
        assert_allclose(along_u[0], by_u[:, k], atol=1e-8)
        assert_allclose(along_t[0], by_t[:, k], atol=1e-8)
        assert_allclose(along_u[1], unit * uu - p * p[:, [k]], atol=1e-8)
        assert_allclose(along_t[1], unit * ut - p * q[:, [k]], atol=1e-8)
        assert_allclose(along_t[2], unit * tt - q * q[:, [k]], atol=1e-8)


def _sums(parts):
    value, *tables = parts
    return value, *(table.sum(axis=1) for table in tables)


def _change(u, t, du, dt):
    ahead, back = LOSS.evaluate(u + du, t + dt), LOSS.evaluate(u - du, t - dt)
    return [(a - b) / (2 * STEP) for a, b in zip(ahead, back, strict=True)]


def test_it_is_convex_and_nondecreasing(tables, rng):
    u, t = tables
    v, s = u + 3 * rng.normal(size=u.shape), rng.uniform(0, 4, size=t.shape)
    middle = LOSS.evaluate(0.5 * (u + v), 0.5 * (t + s))[0]
    assert np.all(middle <= 0.5 * (LOSS.evaluate(u, t)[0] + LOSS.evaluate(v, s)[0]) + 1e-13)
    _, by_u, by_t = LOSS.evaluate(u, t)
    assert np.all(by_u >= 0)
    assert np.all(by_t >= -1e-16)
    assert np.all(by_u.sum(axis=1) <= 1 + 1e-13)


def test_tangent_says_what_any_shares_give_and_what_better_ones_can_add(tables, rng):
    u, t = tables
    value, by_u, by_t = LOSS.evaluate(u, t)
    plain, slopes, scale_slopes, excess = LOSS.tangent(u, t, LOSS.log_shares(u, t))
    assert_allclose(plain, value, rtol=1e-13)
    assert_allclose(slopes, by_u, atol=1e-14)
    assert_allclose(scale_slopes, by_t, atol=1e-14)
    assert np.all((excess >= 0) & (excess <= 1e-13 * (1 + value)))
    shares = np.log(rng.dirichlet(np.ones(3), size=len(u)))
    worse, slopes, scale_slopes, excess = LOSS.tangent(u, t, shares)
    assert np.all(worse <= value + 1e-13)
    assert np.all(worse + excess >= value - 1e-13)
    v, s = u + rng.normal(size=u.shape), np.abs(t + rng.normal(size=t.shape))
    line = worse + np.sum(slopes * (v - u) + scale_slopes * (s - t), axis=1)
    assert np.all(line <= LOSS.evaluate(v, s)[0] + 1e-12)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0, 1e4, 1e9])
@pytest.mark.parametrize("noise", [1e-6, 1.0, 30.0, 1e4])
def test_shares_settle_at_any_scale(rng, spread, noise):
    shape = (200, 6)
    u = spread * rng.normal(size=shape) * 10 ** rng.uniform(-3, 0, size=(200, 1))
    t = noise * np.abs(rng.normal(size=shape)) * 10 ** rng.uniform(-3, 0, size=shape) * (rng.uniform(size=shape) < 0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, _, _, excess = LOSS.tangent(u, t, LOSS.log_shares(u, t))
        parts = LOSS.derivatives(u, t)
    assert np.all(excess <= 1e-12 * (1 + value))
    assert all(np.all(np.isfinite(part)) for part in parts)


def test_a_rival_far_behind_counts_where_its_noise_can_make_up_for_it():
    u, t = np.full((1, 4), -400.0), np.array([[150.0, 1.0, 0.0, 0.0]])
    _, _, _, excess = LOSS.tangent(u, t, LOSS.log_shares(u, t))
    assert excess[0] <= 1e-12
    assert_allclose(LOSS.evaluate(u, t)[0], LOSS.evaluate(u[:, :1], t[:, :1])[0], rtol=1e-9)
