"""Penalties on the weights: their slopes, their prices, and how they are smoothed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast._problems.penalty import Lasso, Limits

STEP = 1e-6


@pytest.fixture(params=[Lasso(0.7), Limits(0.8)], ids=["Lasso", "Limits"])
def penalty(request):
    return request.param


@pytest.fixture
def inside(rng):
    """Weights well inside every domain."""
    return rng.uniform(-0.7, 0.7, size=(20, 4))


def test_values_are_the_formulas(rng):
    w = np.array([0.5, -0.3, 0.0])
    assert Lasso(2.0).value(w) == pytest.approx(1.6)
    assert Lasso(2.0).absolute == 2.0
    assert Limits(0.5).value(w) == 0
    assert Limits(0.49).value(w) == np.inf
    assert Limits(0.5, 0.6).value(w * 0.8) == pytest.approx(-0.1 * np.sum(np.log(1 - (w * 0.8 / 0.5) ** 2)))


@pytest.mark.parametrize("delta", [1.0, 0.1])
def test_slopes_and_bends_of_smoothed_penalties_are_finite_differences(penalty, delta, inside):
    smoothed = penalty.smoothed(delta)
    for w in inside:
        for j, unit in enumerate(STEP * np.eye(len(w))):
            rise = (smoothed.value(w + unit) - smoothed.value(w - unit)) / (2 * STEP)
            bend = (smoothed.slopes(w + unit) - smoothed.slopes(w - unit)) / (2 * STEP)
            assert smoothed.slopes(w)[j] == pytest.approx(rise, rel=1e-6, abs=1e-8)
            assert_allclose(np.eye(len(w))[j] * smoothed.bends(w), bend, rtol=1e-5, atol=1e-7)


def test_smoothed_lasso_lies_above_by_the_smoothing_at_most_with_slopes_that_are_its_own(rng):
    lasso = Lasso(0.7)
    for delta in (1.0, 1e-2, 1e-6):
        for w in rng.normal(size=(50, 4)) * 10 ** rng.uniform(-8, 1, size=(50, 1)):
            assert -1e-15 <= lasso.smoothed(delta).value(w) - lasso.value(w) <= delta * (1 + 1e-9)
            assert np.all(np.abs(lasso.smoothed(delta).slopes(w)) <= 0.7)


def test_smoothed_limits_vanish_with_the_smoothing_and_bar_the_edge(inside):
    limits = Limits(0.8)
    for delta in (1.0, 1e-3, 1e-9):
        for w in inside:
            assert 0 <= limits.smoothed(delta).value(w) <= 2 * delta
    edge = np.array([0.8, 0.0, 0.0, 0.0])
    assert limits.value(edge) == 0
    assert limits.smoothed(1e-3).value(edge) == np.inf
    assert np.isfinite(limits.smoothed(1e-3).value(limits.smoothed(1e-3).admitted(edge)))


def test_price_is_the_largest_pull_less_the_penalty_by_brute_force(penalty, rng):
    grid = np.linspace(-0.8, 0.8, 17)
    points = np.array(np.meshgrid(grid, grid, grid)).reshape(3, -1).T
    values = np.array([penalty.value(w) for w in points])
    for pull in rng.normal(size=(50, 3)):
        best = np.max(points @ pull - values)
        price = penalty.price(pull)
        assert best <= price + 1e-12
        if np.isfinite(price):
            assert best == pytest.approx(price, abs=1e-12)  # the grid holds 0 and the corners
        else:
            assert best > 0  # and a multiple of that point gains as many times as much
            assert penalty.value(1e6 * points[np.argmax(points @ pull - values)]) < np.inf


def test_largest_share_of_a_pull_has_a_finite_price_and_no_larger_one_has(penalty, rng):
    for pull in rng.normal(size=(500, 3)) * 10 ** rng.uniform(-3, 3, size=(500, 1)):
        share = penalty.largest_share(pull)
        assert 0 <= share <= 1
        assert np.isfinite(penalty.price(share * pull))
        assert share == 1 or penalty.price(share * (1 + 1e-9) * pull) == np.inf
    assert penalty.largest_share(np.zeros(3)) == 1


def test_longest_step_stays_strictly_inside_and_all_but_reaches_the_edge(inside, rng):
    smoothed = Limits(0.8).smoothed(1e-3)
    for w in inside:
        move = rng.normal(size=4) * 10 ** rng.uniform(-3, 3)
        longest = smoothed.longest_step(w, move)
        assert np.isfinite(smoothed.value(w + longest * move))
        assert smoothed.value(w + 1.01 * longest * move) == np.inf
    assert smoothed.longest_step(w, np.zeros(4)) == np.inf
    assert Lasso(1.0).smoothed(0.1).longest_step(w, np.ones(4)) == np.inf


def test_admitted_is_the_nearest_point_of_the_domain(penalty, rng):
    for w in 2 * rng.normal(size=(50, 3)):
        near = penalty.admitted(w)
        assert np.isfinite(penalty.value(near))
        for other in rng.uniform(-0.8, 0.8, size=(20, 3)):
            assert np.linalg.norm(near - w) <= np.linalg.norm(other - w) + 1e-12


def test_weights_drawn_in_meet_the_slopes_of_the_smaller_smoothing(penalty, rng):
    """Near a kink the slope of the smoothing by k delta is, at the weight drawn in, what it was at the weight itself."""
    delta, k = 1e-3, 0.1
    near = delta * rng.uniform(-2, 2, size=4) / 4
    w = near if isinstance(penalty, Lasso) else 0.8 * np.sign(near) - 0.2 * near
    drawn = penalty.snapped_to_kinks(w, delta, k)
    assert_allclose(penalty.smoothed(k * delta).slopes(drawn), penalty.smoothed(delta).slopes(w), rtol=2e-3)
    far = np.array([0.3, -0.4, 0.5, 0.2])
    assert_allclose(penalty.snapped_to_kinks(far, delta, k), far)
    assert_allclose(
        np.abs(penalty.snapped_to_kinks(w, delta, 0.0)), 0 if isinstance(penalty, Lasso) else 0.8, rtol=1e-15
    )


def test_norm_bound_holds_for_all_weights_that_cost_no_more(penalty, rng):
    for w in rng.normal(size=(500, 3)):
        cost = penalty.value(w)
        if np.isfinite(cost):
            assert np.linalg.norm(w) <= penalty.norm_bound(cost, 3) * (1 + 1e-12)
