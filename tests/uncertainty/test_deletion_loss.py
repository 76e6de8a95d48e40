"""Knapsacks of deletions, against enumeration and linear programming."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog

from holdfast._core.deletion_steps import fraction_left, whole_left
from holdfast.uncertainty.deletion_loss import ADVERSARIES, DeletionLoss, in_units
from holdfast.uncertainty.knapsacks import Knapsack

CASES = {
    "ones": (np.ones(6), 2.0),
    "ones, half a feature over": (np.ones(6), 2.5),
    "some free": (np.array([0.0, 1.0, 2.0, 0.0, 1.0, 1.0]), 2.0),
    "integers": (np.array([3.0, 1.0, 4.0, 1.0, 5.0, 2.0]), 6.0),
    "integers, fractional budget": (np.array([2.0, 4.0, 4.0, 2.0, 6.0, 2.0]), 7.5),
    "nothing": (np.ones(6), 0.0),
    "some for ever": (np.array([1.0, np.inf, 1.0, 2.0, np.inf, 1.0]), 2.0),
}
each_case = pytest.mark.parametrize(("values", "budget"), CASES.values(), ids=CASES)


def subsets(values, budget):
    """All d in {0, 1} that the budget pays for."""
    d = np.array(list(product((0.0, 1.0), repeat=len(values))))
    return d[np.where(d > 0, values, 0.0).sum(axis=1) <= budget + 1e-12]


def by_definition(margins, bias, values, budget, margin):
    """The exact deficit, by enumeration of what is left."""
    left, values = 1.0 - subsets(values, budget), np.where(np.isfinite(values), values, 0.0)
    return np.max(margin * (left @ values) / (values.sum() - budget) - bias[:, None] - margins @ left.T, axis=1)


@each_case
def test_relaxed_deletions_solve_the_linear_program(values, budget):
    gains = np.random.default_rng(0).normal(size=(20, 6))
    found = Knapsack(values, budget).best(gains)
    assert np.all((found >= 0) & (found <= 1))
    finite, most = np.where(np.isfinite(values), values, 0.0), 1.0 * np.isfinite(values)
    assert np.all(found @ finite <= budget + 1e-12)
    assert not np.any(found[:, np.isinf(values)])
    assert np.all(np.sum((found > 0) & (found < 1), axis=1) <= 1)
    best = [-linprog(-g, A_ub=finite[None], b_ub=[budget], bounds=np.c_[0 * most, most]).fun for g in gains]
    assert_allclose(np.sum(found * gains, axis=1), best, atol=1e-9)


@each_case
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_sparse_rows_lose_what_they_lose_as_arrays(values, budget, adversary, rng):
    loss = DeletionLoss.of(values, budget, 0.7, adversary, 6, "test")
    margins, bias = rng.normal(size=(20, 6)) * (rng.random((20, 6)) < 0.5), rng.normal(size=20)
    margins[0] = 0.0
    (deficits, deleted), (expected, shares) = (
        loss.worst_of(rows, bias) for rows in (sparse.csr_array(margins), margins)
    )
    assert_allclose(deficits, expected, atol=1e-12)
    is_paid = (values > 0) & (margins != 0)  # what is free may be deleted or not where it is 0
    assert_allclose(deleted.toarray()[is_paid], shares[is_paid], atol=1e-12)


def test_relaxed_deletions_solve_the_linear_program_of_real_values():
    rng = np.random.default_rng(1)
    values = rng.uniform(0.1, 3, size=9)
    gains = rng.normal(size=(30, 9))
    best = [-linprog(-g, A_ub=values[None], b_ub=[4.2], bounds=(0, 1)).fun for g in gains]
    assert_allclose(np.sum(Knapsack(values, 4.2).best(gains) * gains, axis=1), best, atol=1e-9)


@each_case
def test_exact_deletions_are_the_best_of_all(values, budget):
    gains = np.random.default_rng(2).normal(size=(20, 6))
    found = ADVERSARIES["exact"](values, budget, "f()").best(gains)
    assert set(np.unique(found)) <= {0.0, 1.0}
    assert np.all(np.where(found > 0, values, 0.0).sum(axis=1) <= budget)
    assert_allclose(np.sum(found * gains, axis=1), np.max(gains @ subsets(values, budget).T, axis=1), atol=1e-12)


def test_whole_deletions_are_the_best_of_all():
    units, gains = np.array([3, 1, 0, 4, 2]), np.random.default_rng(3).normal(size=(40, 5))
    for capacity in range(11):
        found = Knapsack(units, capacity, is_whole=True).best(gains)
        assert np.all(found @ units <= capacity)
        assert_allclose(np.sum(found * gains, axis=1), np.max(gains @ subsets(units, capacity).T, axis=1), atol=1e-12)


def test_greed_is_not_exact():
    gains, values = np.array([[3.0, 10.0]]), np.array([1.0, 4.0])
    assert_array_equal(ADVERSARIES["exact"](values, 4.0, "f()").best(gains), [[0.0, 1.0]])


@each_case
def test_exact_deficit_is_that_of_the_definition_and_relaxed_is_no_smaller(values, budget):
    rng = np.random.default_rng(4)
    margins, bias, margin = rng.normal(size=(50, 6)), rng.normal(size=50), 0.7
    truth = by_definition(margins, bias, values, budget, margin)
    exact, left = DeletionLoss.of(values, budget, margin, "exact", 6, "f").deficits(margins, bias)
    relaxed, _ = DeletionLoss.of(values, budget, margin, "relaxed", 6, "f").deficits(margins, bias)
    assert_allclose(exact, truth, atol=1e-12)
    assert np.all(relaxed >= truth - 1e-12)
    assert np.all(relaxed - truth <= np.max(np.maximum(np.abs(margins), 0), axis=1) + 1e-12)
    worth = np.where(np.isfinite(values), values, 0.0)
    attained = margin * (left @ worth) / (worth.sum() - budget) - bias - np.sum(margins * left, axis=1)
    assert_allclose(attained, exact, atol=1e-12)


@each_case
def test_shares_cost_no_more_than_the_largest_gain_of_one_feature(values, budget):
    rng = np.random.default_rng(9)
    margins, bias = rng.normal(size=(200, 6)), np.zeros(200)
    relaxed, exact = (DeletionLoss.of(values, budget, 0.7, name, 6, "f") for name in ("relaxed", "exact"))
    excess = relaxed.deficits(margins, bias)[0] - exact.deficits(margins, bias)[0]
    assert np.all(excess <= np.max(np.maximum(np.abs(margins) - relaxed.asked, 0.0), axis=1) + 1e-12)


@each_case
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_what_is_left_is_a_slope_of_the_loss(adversary, values, budget):
    """The slopes -y x tau and -y: tangents lie below the loss everywhere, and small steps go along them."""
    rng = np.random.default_rng(10)
    X, y, theta = rng.normal(size=(40, 6)), rng.choice([-1.0, 1.0], size=40), rng.normal(size=7)
    loss = DeletionLoss.of(values, budget, 0.3, adversary, 6, "f")

    def losses(theta):
        deficits, left = loss.deficits(y[:, None] * X * theta[:6], y * theta[6])
        return np.maximum(deficits, 0.0), -(y * (deficits > 0))[:, None] * np.column_stack([left * X, np.ones(40)])

    value, slopes = losses(theta)
    assert 0 < np.mean(value > 0) < 1
    for size in (1e-3, 0.3, 10.0):
        for step in size * rng.normal(size=(20, 7)):
            assert np.all(losses(theta + step)[0] >= value + slopes @ step - 1e-12 * (1 + size))
    step = 1e-7 * rng.normal(size=7)
    assert_allclose(losses(theta + step)[0] - losses(theta - step)[0], 2 * slopes @ step, atol=1e-13)


def test_relaxed_is_exact_for_equal_values_and_a_whole_budget():
    rng = np.random.default_rng(5)
    margins, bias, values = rng.normal(size=(50, 6)), np.zeros(50), np.array([0.0, 0.1, 0.1, 0.1, 0.1, 0.0])
    both = [DeletionLoss.of(values, 0.3, 1.0, name, 6, "f").deficits(margins, bias)[0] for name in ("relaxed", "exact")]
    assert_allclose(*both, atol=1e-12)


def test_tightened_is_between_the_others_also_where_a_budget_is_a_hair_short():
    rng = np.random.default_rng(9)
    margins, bias = rng.normal(size=(50, 6)), np.zeros(50)
    for values, budget in (
        (np.ones(6), 3 * (1 - 1e-12)),
        (np.arange(1.0, 7.0), 0.29 * 100 / 4),
        (np.full(6, 0.1), 0.3),
    ):
        of = [DeletionLoss.of(values, budget, 1.0, name, 6, "f").deficits(margins, bias)[0] for name in ADVERSARIES]
        assert np.all(of[2] <= of[1] + 1e-9)
        assert np.all(of[1] <= of[0] + 1e-9)


def test_loss_is_at_least_the_margin_where_a_deletion_flips_the_sign():
    rng = np.random.default_rng(6)
    margins, bias, values = rng.normal(size=(300, 6)), rng.normal(size=300), CASES["integers"][0]
    flips = by_definition(margins, bias, values, 6.0, 0.0) >= 0
    deficit, _ = DeletionLoss.of(values, 6.0, 0.4, "exact", 6, "f").deficits(margins, bias)
    assert 0 < np.mean(flips) < 1
    assert np.all(deficit[flips] >= 0.4 - 1e-12)


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_features_left_out_count_as_zeros(adversary):
    rng = np.random.default_rng(7)
    margins, where = rng.normal(size=(10, 6)), np.array([1, 4, 5])
    margins[:, [0, 2, 3]] = 0.0
    loss = DeletionLoss.of(CASES["integers"][0], 6.0, 0.3, adversary, 6, "f")
    full, kept = loss.deficits(margins, np.zeros(10))
    part, kept_part = loss.deficits(margins[:, where], np.zeros(10), where)
    assert_allclose(part, full, atol=1e-12)
    assert_array_equal(kept_part, kept[:, where])


def test_units_are_the_largest_common_ones():
    assert_array_equal(in_units(np.array([0.5, 1.5, 0.0]), 1.2, "f()")[0], [1, 3, 0])
    assert in_units(np.full(5, 0.1), 0.3, "f()")[1] == 3
    with pytest.raises(ValueError, match=r"f\(\): values are not multiples .* Give integers"):
        in_units(np.array([1.0, 1.3]), 1.0, "f()")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((None, 3.0, 1.0, "exact"), r"f\(budget=3.0\): must be below .* 3 \(n_features=3\)"),
        ((None, -1.0, 1.0, "exact"), r"budget=.*must be a finite number >= 0"),
        (([1.0, 2.0], 1.0, 1.0, "exact"), r"f\(values=...\): values have shape \(2,\)"),
        (([1.0, -2.0, 3.0], 1.0, 1.0, "exact"), "values must be >= 0"),
        ((None, 1.0, 0.0, "exact"), r"f\(margin=0.0\): margin must be > 0"),
        ((None, 1.0, 1.0, "greedy"), r"f\(adversary='greedy'\): choose one of 'relaxed', 'tightened', 'exact'"),
    ],
)
def test_numbers_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DeletionLoss.of(*settings, 3, "f")


@each_case
def test_rows_of_the_perceptron_are_those_of_the_knapsack(values, budget):
    for gains in np.random.default_rng(8).normal(size=(50, 6)):
        found = fraction_left(gains, values, budget)
        assert_allclose(found, 1.0 - Knapsack(values, budget).best(gains[None])[0], atol=1e-12)
        units, capacity = in_units(values, budget, "f()")
        found = whole_left(gains, units, capacity)
        assert_allclose(found, 1.0 - Knapsack(units, capacity, is_whole=True).best(gains[None])[0])
