"""Knapsacks row by row: against enumeration, linear programs, and their own definition."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from holdfast.uncertainty.knapsacks import BUDGET_ACCURACY, FEW_ITEMS, Knapsacks, cost_to_gain, hyperbola


@pytest.fixture(params=[0.6, 1.0, 1.7])
def sacks(request, rng):
    """Rows of 0 to 7 items, some of them free."""
    counts = np.array([3, 0, 7, 1, 5, 4, 0])
    costs = rng.uniform(0.2, 2, size=counts.sum())
    costs[[1, 9]] = 0.0
    return Knapsacks(np.append(0, np.cumsum(counts)), costs, request.param)


def _rows(sacks, *per_item):
    for start, end in zip(sacks.indptr[:-1], sacks.indptr[1:], strict=True):
        yield [part[start:end] for part in per_item]


def test_filled_knapsacks_gain_what_the_linear_program_does(sacks, rng):
    for scale in (1e-3, 1.0, 1e3):
        gains = scale * rng.normal(size=len(sacks.costs))
        found = sacks.filled(gains)
        for (g, v, d), price in zip(_rows(sacks, gains, sacks.costs, found.shares), found.prices, strict=True):
            assert np.all((d >= 0) & (d <= 1))
            assert v @ d <= sacks.budget * (1 + 1e-12)
            assert np.sum((d > 0) & (d < 1)) <= 1
            assert_allclose(g @ d, sacks.budget * price + np.maximum(g - price * v, 0).sum(), rtol=1e-12, atol=1e-15)
            if len(g):
                assert_allclose(g @ d, -linprog(-g, v[None], [sacks.budget], bounds=(0, 1)).fun, rtol=1e-9, atol=1e-12)


def test_knapsacks_of_unit_costs_take_whole_items(rng):
    gains = rng.normal(size=(6, 8))
    for budget in range(9):
        d = Knapsacks(8 * np.arange(7), np.ones(48), float(max(budget, 1))).filled(gains.ravel()).shares.reshape(6, 8)
        subsets = np.array([s for s in product([0, 1], repeat=8) if sum(s) <= max(budget, 1)])
        assert_allclose(np.sum(d * gains, axis=1), (gains @ subsets.T).max(axis=1), rtol=1e-12)
        assert np.all((d == 0) | (d == 1))


@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.1, 3.0, 1e3])
def test_smooth_shares_meet_the_budget_and_their_gain_is_the_minimum_over_prices(sacks, width, rng):
    gains, widths = 10 * rng.normal(size=len(sacks.costs)), width * rng.uniform(0.5, 2, size=len(sacks.counts))
    found = sacks.smoothed(gains, widths)
    spent = sacks.row_sums(sacks.costs * found.shares)
    is_short = found.prices > 0
    assert np.any(is_short)
    assert_allclose(spent[is_short], sacks.budget, rtol=3 * BUDGET_ACCURACY)
    assert np.all(spent[~is_short] <= sacks.budget)
    exact = sacks.filled(gains)
    gained = sacks.row_sums(exact.shares * gains)
    assert np.all(found.values >= gained * (1 - 1e-14))
    assert np.all(found.values <= gained + 0.5 * widths * sacks.counts + 1e-12)
    for shift in (-0.1 * width, 0.1 * width):
        other = np.maximum(found.prices + shift, 0)
        z = gains - sacks.by_item(other) * sacks.costs
        higher = sacks.budget * other + sacks.row_sums(hyperbola(z, sacks.by_item(widths))[0])
        assert np.all(higher >= found.values * (1 - 1e-14))


def test_smooth_knapsacks_of_some_rows_are_those_of_all(sacks, rng):
    gains, widths = rng.normal(size=len(sacks.costs)), np.full(len(sacks.counts), 0.01)
    rows = np.array([5, 1, 2])
    few, items = sacks.take(rows)
    assert_allclose(
        few.smoothed(gains[items], widths[rows]).values, sacks.smoothed(gains, widths).values[rows], rtol=1e-13
    )


def test_budget_that_breaks_a_row_is_the_least_that_gains_what_is_wanted(sacks, rng):
    gains, wanted = rng.normal(size=len(sacks.costs)), rng.uniform(0.1, 2, size=len(sacks.counts))
    costs, budgets = sacks.cost_to_gain(gains, wanted)
    for (g, v), cost, needed, least in zip(_rows(sacks, gains, sacks.costs), costs, wanted, budgets, strict=True):
        if not np.isfinite(least):
            assert np.maximum(g, 0).sum() < needed
            continue

        def gained(budget, g=g, v=v):
            d = Knapsacks(np.array([0, len(g)]), v, budget).filled(g).shares
            return g @ d

        if least > 0:
            assert_allclose(gained(least), needed, rtol=1e-12)
            assert gained(0.99 * least) < needed
        else:
            assert g[(v == 0) & (g > 0)].sum() >= needed
        best = sorted(np.flatnonzero(g > 0), key=lambda j, g=g, v=v: -np.inf if v[j] == 0 else -g[j] / v[j])
        k = int(np.argmax(np.cumsum(g[best]) >= needed))
        assert_allclose(cost, v[best[:k]].sum(), atol=1e-12)


@pytest.mark.parametrize("costs", ["equal", "several", "free"])
def test_cost_of_many_items_is_that_of_the_best_ones_in_order(costs, rng):
    n_rows, n_items = 30, 6 * FEW_ITEMS
    v = np.full(n_items, 0.5) if costs == "equal" else rng.uniform(0.2, 2, size=n_items)
    v[:4] = 0.0 if costs == "free" else v[:4]
    gains = rng.normal(size=(n_rows, n_items))
    # from what is free of charge to what no items gain
    wanted = np.linspace(-0.1, 1.1, n_rows) * np.maximum(gains, 0).sum(axis=1)
    whole, parts = cost_to_gain(gains, v, wanted)
    for g, want, cost, budget in zip(gains, wanted, whole, parts, strict=True):
        best = sorted(np.flatnonzero(g > 0), key=lambda j, g=g: -np.inf if v[j] == 0 else -g[j] / v[j])
        paid, gained = np.append(0, np.cumsum(v[best])), np.append(0, np.cumsum(g[best]))
        if want > gained[-1]:
            assert cost == budget == np.inf
        else:
            assert_allclose(budget, np.interp(want, gained, paid) if want > g[best][v[best] == 0].sum() else 0.0)
            assert_allclose(cost, paid[max(int(np.argmax(gained >= want)) - 1, 0)])
    as_rows = Knapsacks(n_items * np.arange(n_rows + 1), np.tile(v, n_rows), 1.0).cost_to_gain(gains.ravel(), wanted)
    assert_allclose(as_rows, [whole, parts])


def test_items_that_just_gain_what_is_wanted_are_not_yet_paid_for():
    whole, parts = cost_to_gain(np.array([[1.0, 4.0, 2.0]] * 4), np.ones(3), np.array([4.0, 6.0, 7.0, 7.5]))
    assert whole.tolist() == [0, 1, 2, np.inf]
    assert parts.tolist() == [1, 2, 3, np.inf]
