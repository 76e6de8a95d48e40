"""Sums of sets: supports add, metadata finds its summand, splits are proved, and noise is kept apart."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone

from holdfast._training.training import train
from holdfast.losses import TwoPointHinge
from holdfast.uncertainty import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, SetSum

X = np.zeros((5, 3))


def test_supports_of_summands_add_up(rng):
    stds, w = rng.uniform(0.1, 1, size=(5, 3)), rng.normal(size=3)
    both = Ball(0.2) + Box(0.5) + IntervalBox(-0.1, 0.4)
    expected = 0.2 * np.linalg.norm(w) + 0.5 * stds @ np.abs(w) + np.sum(np.maximum(-0.1 * w, 0.4 * w))
    assert_allclose(both.at(X, {"X_std": stds}).support(w), expected, rtol=1e-13)


def test_sum_of_boxes_is_a_box(rng):
    stds, w = rng.uniform(0.1, 1, size=(5, 3)), rng.normal(size=3)
    bound = (Ball(0.2, np.inf) + Box(0.5) + IntervalBox(-0.1, 0.4)).at(X, {"X_std": stds})
    common, own, centre, _ = bound.interval_form()
    half = common + own
    assert_allclose(half, 0.2 + 0.5 * stds + 0.25, rtol=1e-13)
    assert_allclose(half @ np.abs(w) + centre @ w, bound.support(w), rtol=1e-13)
    y = np.array([1.0, -1, -1, 1, 1])
    assert_allclose(bound.against_labels(y).interval_form().centre, -y[:, None] * np.full((5, 3), 0.15), rtol=1e-13)
    assert (Ball(0.2) + Box(0.5)).at(X, {}).interval_form() is None


def test_sum_is_searched_cloned_and_printed_like_its_summands():
    both = Ball(0.1) + Box(0.2)
    assert isinstance(both, SetSum)
    assert repr(both) == "Ball(radius=0.1) + Box(radius=0.2)"
    assert {"first__radius", "first__norm", "second__radius"} <= both.get_params().keys()
    again = clone(both).set_params(second__radius=0.7)
    assert again.second.radius == 0.7
    assert both.second.radius == 0.2
    assert again != both
    assert both.metadata == ("X_radius", "X_std")


def test_sum_with_something_else_is_a_type_error():
    with pytest.raises(TypeError):
        Ball(0.1) + 0.2


def test_metadata_that_two_summands_take_is_refused():
    with pytest.raises(ValueError, match="both summands take X_std"):
        (Box(0.1) + Ellipsoid(0.2)).at(X, {"X_std": np.ones((5, 3))})
    with pytest.raises(ValueError, match=r"does not take X_lower. It takes X_radius, X_std"):
        (Ball(0.1) + Box(0.2)).at(X, {"X_lower": X})


def test_noise_among_the_summands_is_kept_apart(rng):
    stds, w = rng.uniform(0.1, 1, size=(5, 3)), rng.normal(size=3)
    mixed = Ball(0.2) + GaussianNoise() + IntervalBox(-0.1, 0.4)
    worst, cloud = mixed.split(X, {"X_std": stds})
    assert_allclose(worst.support(w), 0.2 * np.linalg.norm(w) + np.sum(np.maximum(-0.1 * w, 0.4 * w)), rtol=1e-13)
    assert_allclose(cloud.support(w), np.linalg.norm(stds * w, axis=1), rtol=1e-13)
    with pytest.raises(ValueError, match="maximised over one summand and averaged over the other"):
        mixed.at(X, {"X_std": stds})
    with pytest.raises(ValueError, match="two noises"):
        (GaussianNoise(0.1) + GaussianNoise(0.2)).split(X, {})


def test_demand_of_a_common_sum_is_the_dual_norm_of_its_support(rng):
    E = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]])
    sums = [
        Ball(0.2) + Box(0.3, half_widths=[1.0, 0.1, 3.0]),
        Ball(0.2, 1) + Ellipsoid(0.3, shape=E),
        Ball(0.2, 3.0) + Ball(0.1, 1.5),
        Ball(0.2, 1) + Ball(0.1, np.inf) + Ball(0.3),
    ]
    for uncertainty in sums:
        bound = uncertainty.at(X, {})
        target, w = rng.normal(size=3), cp.Variable(3)
        supports = {
            0: 0.2 * cp.norm(w) + 0.3 * cp.norm1(cp.multiply([1.0, 0.1, 3.0], w)),
            1: 0.2 * cp.norm_inf(w) + 0.3 * cp.norm(np.linalg.cholesky(E).T @ w),
            2: 0.2 * cp.pnorm(w, 1.5) + 0.1 * cp.pnorm(w, 3),
            3: 0.2 * cp.norm_inf(w) + 0.1 * cp.norm1(w) + 0.3 * cp.norm(w),
        }
        problem = cp.Problem(cp.Maximize(target @ w), [supports[sums.index(uncertainty)] <= 1])
        gauge = problem.solve(solver=cp.CLARABEL)
        demand = float(bound.required_share(target, np.ones(1), np.ones(())))
        assert demand == pytest.approx(gauge, rel=1e-6)


def test_sum_reaches_exactly_what_its_parts_together_span():
    flat = Ellipsoid(0.3, shape=[1.0, 0.0, 0.0]) + Box(0.2, half_widths=[0.0, 1.0, 0.0])
    bound = flat.at(X, {})
    assert np.isfinite(bound.required_share(np.array([1.0, 2.0, 0.0]), np.ones(5), np.ones(())))
    assert bound.required_share(np.array([1.0, 2.0, 0.1]), np.ones(5), np.ones(())) == np.inf
    assert bound.required_share(np.zeros(3), np.ones(5), np.ones(())) == 0
    assert list(bound.exact_features(3)) == [False, False, True]


def test_remainder_of_a_sum_of_projectable_sets_is_its_distance(rng):
    bound = (Ball(0.4) + Ball(0.3, 1) + Box(0.2)).at(X, {"X_std": rng.uniform(0.1, 1, size=(5, 3))})
    for size in (0.3, 1.0, 3.0):
        target, budgets, w = size * rng.normal(size=3), rng.uniform(0.1, 1, size=5), rng.normal(size=3)
        missed = np.linalg.norm(bound.residual(target, budgets, bound.support(w), w))
        # the distance is the largest excess of target'v over the support, over unit v
        far = [minimize(_excess, v, args=(bound, target, budgets)).fun for v in rng.normal(size=(5, 3))]
        assert missed >= -min(far) - 1e-6
        assert missed <= max(-min(far) * 1.05, 0.02)


def _excess(v, bound, target, budgets):
    unit = v / max(np.linalg.norm(v), 1e-12)
    return float(np.sum(budgets * bound.support(unit)) - target @ unit)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_flat_ellipsoid_keeps_its_kink_in_a_sum_and_the_fit_its_certificate(alpha, two_classes, make_problem):
    X, y = two_classes(60, 4)
    bound = (Ball(0.05) + Ellipsoid(20.0, shape=[1.0, 0, 0, 0])).at(X, {})
    assert not bound.is_smooth
    found, proof = train(make_problem(X, y, TwoPointHinge(), bound, alpha=alpha), tol=1e-6, max_iter=1000)
    assert proof.gap <= 1e-6
    assert abs(found.parameters[0]) < 1e-6 < np.linalg.norm(found.parameters[1:4])
