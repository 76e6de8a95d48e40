"""Boxes and diamonds: the worst covariances they stand for, their projections, and what is refused."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.uncertainty.polytopes import CommonBox, CommonDiamond


def _random_covariance(rng, d):
    F = rng.normal(size=(d, rng.integers(1, d + 1)))
    return F @ F.T


def test_no_covariance_with_the_given_marginals_beats_the_box_and_full_correlation_attains_it(rng):
    std, w = np.array([0.5, 0.1, 2.0, 1.0]), rng.normal(size=4)
    t = GaussianNoise(std, unknown="correlations").at(np.zeros((6, 4)), {}).support(w)
    for _ in range(500):
        S = _random_covariance(rng, 4)
        S *= np.outer(std, std) / np.sqrt(np.outer(np.diag(S), np.diag(S)))
        assert w @ S @ w <= t**2 * (1 + 1e-12)
    signed = std * np.sign(w)
    assert w @ np.outer(signed, signed) @ w == pytest.approx(t**2)


def test_no_diagonal_covariance_of_given_trace_beats_the_diamond_and_one_feature_attains_it(rng):
    sigma, w = 0.7, rng.normal(size=4)
    t = GaussianNoise(sigma, unknown="variances").at(np.zeros((6, 4)), {}).support(w)
    for _ in range(500):
        assert w @ np.diag(sigma**2 * rng.dirichlet(np.ones(4))) @ w <= t**2 * (1 + 1e-12)
    worst = np.zeros((4, 4))
    worst[np.argmax(np.abs(w)), np.argmax(np.abs(w))] = sigma**2
    assert w @ worst @ w == pytest.approx(t**2)


def test_adversaries_are_ordered_by_what_they_may_choose(rng):
    for _ in range(20):
        w = rng.normal(size=5)
        variances, plain, correlations = (
            GaussianNoise(0.3, unknown=name).at(np.zeros((4, 5)), {}).support(w)
            for name in ("variances", None, "correlations")
        )
        assert variances <= plain <= correlations <= np.sqrt(5) * plain * (1 + 1e-12)


@pytest.mark.parametrize("budgets", [np.array([0.01, 0.02]), np.array([0.3, 0.5]), np.array([10.0, 20.0])])
def test_remainder_is_the_exact_distance(budgets, rng):
    target = rng.normal(size=6)
    v = cp.Variable(6)
    widths = rng.uniform(0, 2, size=6)
    cases = [
        (CommonBox(widths), cp.abs(v) <= budgets.sum() * widths),
        (CommonDiamond(0.7), cp.norm1(v) <= 0.7 * budgets.sum()),
    ]
    for bound, limit in cases:
        problem = cp.Problem(cp.Minimize(cp.norm(v - target)), [limit])
        distance = problem.solve(solver=cp.CLARABEL)
        missed = bound.residual(target, budgets, np.ones(2), target)
        assert np.linalg.norm(missed) == pytest.approx(distance, abs=1e-7)


def test_gauge_is_the_dual_norm_and_infinite_where_a_feature_without_noise_is_pulled():
    target = np.array([1.0, -3.0, 0.0])
    assert CommonBox(np.array([0.5, 1.0, 0.0])).gauge(target) == 3.0
    assert CommonBox(np.array([0.5, 0.0, 1.0])).gauge(target) == np.inf
    assert CommonDiamond(2.0).gauge(target) == 2.0
    assert CommonDiamond(0.0).gauge(target) == np.inf


def test_weights_drawn_in_entirely_meet_the_kinks():
    w = np.array([1.0, 2e-9, -1 + 1e-9, 0.3])
    assert_allclose(CommonBox(0.5).snapped_to_kinks(w, 1e-8, 0.0), [1.0, 0.0, -1 + 1e-9, 0.3], rtol=0, atol=0)
    assert_allclose(CommonBox(np.array([0.5, 0, 1, 1])).snapped_to_kinks(w, 1e-8, 0.0), w, rtol=0, atol=0)
    assert_allclose(CommonDiamond(0.5).snapped_to_kinks(w, 1e-8, 0.0), [1.0, 2e-9, -1.0, 0.3], rtol=0, atol=0)


@pytest.mark.parametrize("bound", [CommonBox(0.7), CommonBox(np.array([0.5, 0.0, 2.0])), CommonDiamond(0.7)])
def test_smoothed_polytopes_are_silent_and_finite_whatever_the_scales(bound):
    for scale in (1e-200, 1.0, 1e12, 1e150):
        w = scale * np.array([1.0, -2.0, 2.0])
        for delta in (1e-10, 1.0):
            smoothed = bound.smoothed(delta)
            assert np.all(np.isfinite(smoothed.support(w)))
            assert np.all(bound.contains(smoothed.maximizer(w)))
            assert np.all(np.isfinite(smoothed.curvature(w, np.ones(2), np.ones(2))))


def test_what_may_be_unknown_is_one_of_few_things():
    for name in ("worst", 3, "marginals"):
        with pytest.raises(ValueError, match=r"GaussianNoise\(..., unknown=.*give None, 'variances' or 'correlations'"):
            GaussianNoise(0.5, unknown=name).at(np.zeros((4, 2)), {})


@pytest.mark.parametrize("name", ["variances", "correlations"])
def test_what_is_unknown_leaves_no_place_for_a_known_covariance(name):
    for known in ({"cov": np.eye(2)}, {"factor": np.eye(2)}):
        with pytest.raises(ValueError, match=f"unknown='{name}'.*together with {next(iter(known))}.*Give std alone"):
            GaussianNoise(unknown=name, **known).at(np.zeros((4, 2)), {})
    for key, own in (
        ("X_std", np.ones((4, 2))),
        ("X_std", sparse.csr_array(np.ones((4, 2)))),
        ("X_cov", np.ones((4, 2, 2))),
    ):
        with pytest.raises(ValueError, match=f"together with {key}"):
            GaussianNoise(1.0, unknown=name).at(np.zeros((4, 2)), {key: own})
    with pytest.raises(ValueError, match="states no noise"):
        GaussianNoise(unknown=name).at(np.zeros((4, 2)), {})


def test_unknown_variances_take_one_number_and_say_where_more_belong():
    with pytest.raises(ValueError, match=r"std=\[0.5, 1.0\].*unknown='correlations'"):
        GaussianNoise([0.5, 1.0], unknown="variances").at(np.zeros((4, 2)), {})


@pytest.mark.parametrize("name", ["variances", "correlations"])
def test_std_is_checked_whatever_is_unknown(name):
    for wrong in (-1.0, np.nan):
        with pytest.raises(ValueError, match="std"):
            GaussianNoise(wrong, unknown=name).at(np.zeros((4, 2)), {})
    with pytest.raises(ValueError, match="shape"):
        GaussianNoise([1.0, 2, 3], unknown="correlations").at(np.zeros((4, 2)), {})


def test_nothing_unknown_is_the_default(rng):
    w = rng.normal(size=3)
    for options in ({"std": 0.4}, {"std": [1.0, 2, 3]}, {"cov": np.eye(3)}):
        plain, named = (GaussianNoise(**options, **more).at(np.zeros((5, 3)), {}) for more in ({}, {"unknown": None}))
        assert plain.support(w) == named.support(w)


def test_score_noise_and_flips_are_those_of_the_worst_covariance(two_classes):
    X, y = two_classes(60, 4)
    std = np.array([0.1, 0.3, 0.5, 0.2])
    model = GaussianRobustClassifier(GaussianNoise(std, unknown="correlations")).fit(X, y)
    signed = std * np.sign(model.coef_[0])
    worst = model.score_std(X, X_factor=np.broadcast_to(signed[:, None], (60, 4, 1)))
    assert_allclose(model.score_std(X), worst, rtol=1e-12)
    assert_allclose(model.flip_probability(X), model.flip_probability(X, X_factor=np.tile(signed[:, None], (60, 1, 1))))
    assert np.all(model.flip_probability(X) >= model.flip_probability(X, X_std=np.tile(std, (60, 1))))
