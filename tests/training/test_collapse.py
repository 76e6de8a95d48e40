"""Collapse: with a free intercept and unequal classes, w = 0 is optimal from a finite noise on, and never below it."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning
from holdfast.losses import GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge

UNEVEN = [(35, 1.0), (28, 1.0), (12, 0.8)]


def _collapsing(draw, loss, positives, separation, **options):
    """Return data on which this loss collapses at a positive noise, and that noise."""
    for seed in range(50):
        X, y = draw(np.random.default_rng(seed), 50, 3, separation=separation, positives=positives)
        critical = critical_noise(X, y, loss=loss, **options)
        if critical > 0.05:
            return X, y, critical
    raise AssertionError("no data set with a positive critical noise was drawn")


def _lighter_class(y, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    return min(weights[y > 0].sum(), weights[y < 0].sum())


def _assert_collapsed(X, y, noise, loss, sample_weight=None, **options):
    with pytest.warns(CollapseWarning, match="certified"):
        model = GaussianRobustClassifier(noise, loss=loss, **options).fit(X, y, sample_weight=sample_weight)
    assert model.collapsed_
    assert_array_equal(model.coef_, 0)
    heavier = 1.0 if np.sum(y * (1 if sample_weight is None else sample_weight)) > 0 else -1.0
    assert model.intercept_[0] == heavier
    assert np.all(model.predict(X) == heavier)
    assert model.objective_ == pytest.approx(2 * _lighter_class(y, sample_weight))
    assert model.gap_ <= 1e-6


def _assert_standing(X, y, noise, loss, sample_weight=None, **options):
    model = GaussianRobustClassifier(noise, loss=loss, **options).fit(X, y, sample_weight=sample_weight)
    assert not model.collapsed_
    assert np.any(model.coef_ != 0)
    assert model.gap_ <= 1e-6
    assert model.objective_ < 2 * _lighter_class(y, sample_weight)


@pytest.mark.parametrize(("positives", "separation"), UNEVEN)
def test_collapse_begins_at_the_critical_noise(perspective, positives, separation, draw_classes):
    X, y, critical = _collapsing(draw_classes, perspective, positives, separation)
    _assert_standing(X, y, 0.99 * critical, perspective)
    _assert_standing(X, y, 0.9999 * critical, perspective, tol=1e-10)
    _assert_collapsed(X, y, 1.01 * critical, perspective)
    _assert_collapsed(X, y, 100 * critical, perspective)


@pytest.mark.parametrize("loss", [TwoPointHinge(), QuadraticHinge(), Log2Hinge()], ids=repr)
def test_critical_noise_is_where_the_dual_condition_begins_to_hold(loss, draw_classes):
    """A conic solver maximises sigma sum_maj f*(a) - |sum_min x - sum_maj a x|: nonnegative exactly from there on."""
    X, y, critical = _collapsing(draw_classes, loss, 36, 1.0)
    minority, majority = X[y < 0], X[y > 0]
    a, root = cp.Variable(36), cp.Variable(36)
    constraints = [a >= 0, a <= 1, cp.sum(a) == 14]
    if isinstance(loss, TwoPointHinge):
        budget = cp.sum(root)
        constraints.append(cp.SOC(np.full(36, 0.5), cp.vstack([root, a - 0.5]), axis=0))
    elif isinstance(loss, QuadraticHinge):
        budget = cp.sum(1 - cp.square(2 * a - 1))
    else:
        budget = cp.sum(cp.entr(a) + cp.entr(1 - a)) / np.log(2)
    missed = cp.norm(minority.sum(axis=0) - majority.T @ a)
    slack = [
        cp.Problem(cp.Maximize(sigma * budget - missed), constraints).solve(solver=cp.CLARABEL)
        for sigma in (0.999 * critical, 1.001 * critical)
    ]
    assert slack[0] < -1e-5
    assert slack[1] > 1e-5


@pytest.mark.thin(2)
def test_critical_noise_is_at_most_the_one_that_constant_dual_weights_prove(perspective, draw_classes):
    for positives, separation in UNEVEN:
        X, y, critical = _collapsing(draw_classes, perspective, positives, separation)
        light, heavy = sorted([positives, 50 - positives])
        apart = np.linalg.norm(X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0))
        assert critical <= light * apart / (heavy * perspective.conjugate(light / heavy)) * (1 + 1e-9)


@pytest.mark.thin(2)
def test_critical_noise_of_known_shape_is_a_factor(perspective, draw_classes, rng):
    factor = rng.normal(size=(3, 3))
    noise = GaussianNoise(cov=factor @ factor.T)
    X, y, critical = _collapsing(draw_classes, perspective, 35, 1.5, noise=noise)
    _assert_standing(X, y, GaussianNoise(cov=(0.99 * critical) ** 2 * factor @ factor.T), perspective)
    _assert_collapsed(X, y, GaussianNoise(cov=(1.01 * critical) ** 2 * factor @ factor.T), perspective)


def test_critical_noise_depends_on_the_weights_of_the_rows(perspective, draw_classes, rng):
    X, y = draw_classes(rng, 50, 3, separation=1.5)
    weights = np.where(y > 0, 2.0, 0.8) * rng.uniform(0.5, 1.5, 50)
    critical = critical_noise(X, y, loss=perspective, sample_weight=weights)
    assert 0 < critical < np.inf
    _assert_standing(X, y, 0.99 * critical, perspective, sample_weight=weights)
    _assert_collapsed(X, y, 1.01 * critical, perspective, sample_weight=weights)


def test_critical_noise_scales_with_the_features_and_ignores_the_labels_names(draw_classes):
    X, y, critical = _collapsing(draw_classes, GaussianHinge(), 35, 1.0)
    assert critical_noise(1e3 * X, y) == pytest.approx(1e3 * critical, rel=1e-6)
    assert critical_noise(X + 5, np.where(y > 0, "b", "a")) == pytest.approx(critical, rel=1e-5)
    assert critical_noise(X, -y) == pytest.approx(critical, rel=1e-6)


def test_minority_inside_the_majority_collapses_at_every_noise(perspective, draw_classes, rng):
    """sum_min x = sum_maj a x with 0 <= a <= 1, sum a = n_min."""
    for uniform in (True, False):
        X, y = draw_classes(rng, 50, 3, positives=40)
        a = np.full(40, 0.25) if uniform else rng.uniform(0.05, 0.95, 40)
        a *= 10 / a.sum()
        assert a.max() < 1
        X[y < 0] += a @ X[y > 0] / 10 - X[y < 0].mean(axis=0)
        assert critical_noise(X, y, loss=perspective) <= 1e-6
        for sigma in (0.02, 0.3, 5.0):
            _assert_collapsed(X, y, sigma, perspective)


def test_classes_of_equal_weight_never_collapse(perspective, two_classes):
    X, y = two_classes(50, 3, separation=0.5)
    assert critical_noise(X, y, loss=perspective) == np.inf
    uneven, labels = two_classes(50, 3, separation=0.5, positives=38)
    assert critical_noise(uneven, labels, loss=perspective, class_weight="balanced") == np.inf
    for sigma in (1.0, 20.0, 1e3):
        _assert_standing(X, y, sigma, perspective)
        balanced = np.where(labels > 0, 25 / 38, 25 / 12)
        _assert_standing(uneven, labels, sigma, perspective, sample_weight=balanced)


def test_equal_classes_with_equal_means_collapse_always(perspective, two_classes):
    X, y = two_classes(40, 3)
    X[y > 0] += X[y < 0].mean(axis=0) - X[y > 0].mean(axis=0)
    assert critical_noise(X, y, loss=perspective) == 0
    with pytest.warns(CollapseWarning):
        model = GaussianRobustClassifier(0.7, loss=perspective).fit(X, y)
    assert_array_equal(model.coef_, 0)
    assert model.gap_ <= 1e-6


def test_constant_column_in_place_of_the_intercept_does_not_collapse(perspective, draw_classes):
    X, y, critical = _collapsing(draw_classes, perspective, 35, 1.0)
    sigma = 20 * critical
    _assert_collapsed(X, y, sigma, perspective)
    model = GaussianRobustClassifier(sigma, loss=perspective, fit_intercept=False)
    model.fit(np.column_stack([X, np.ones(50)]), y)
    assert not model.collapsed_
    assert np.linalg.norm(model.coef_[0, :3]) > 1e-6
    assert model.objective_ < 50
    assert model.gap_ <= 1e-6


@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(12))
def test_fit_is_not_trapped_at_the_kink_just_below_the_critical_noise(seed, draw_classes):
    rng = np.random.default_rng(seed)
    critical = 0.0
    while critical < 0.05:
        X, y = draw_classes(rng, 50, 3, separation=0.5, positives=12)
        critical = critical_noise(X, y)
    for solver in (None, "newton", "quasi_newton"):
        _assert_standing(X, y, 0.97 * critical, "hinge", solver=solver)


@pytest.mark.thin(2)
def test_collapse_does_not_depend_on_the_ridge(perspective, draw_classes):
    X, y, critical = _collapsing(draw_classes, perspective, 35, 1.0)
    for alpha in (1e-3, 0.1, 10.0):
        _assert_collapsed(X, y, 1.01 * critical, perspective, alpha=alpha)
        _assert_standing(X, y, 0.9 * critical, perspective, alpha=alpha, tol=1e-9)


@pytest.mark.thin(5)
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("form", ["std", "cov", "X_std", "X_cov"])
def test_collapse_is_certified_under_large_noise_of_every_form(perspective, form, alpha, two_classes, rng):
    X, y = two_classes(50, 3, positives=38)
    factors = 20 * (np.eye(3) + 0.2 * rng.normal(size=(50, 3, 3)))
    covariances = factors @ factors.transpose(0, 2, 1)
    noise, metadata = {
        "std": (GaussianNoise(std=[20.0, 40.0, 20.0]), {}),
        "cov": (GaussianNoise(cov=covariances[0]), {}),
        "X_std": (20.0, {"X_std": rng.uniform(1, 2, size=(50, 3))}),
        "X_cov": (20.0, {"X_cov": covariances / 20**2}),
    }[form]
    with pytest.warns(CollapseWarning):
        model = GaussianRobustClassifier(noise, loss=perspective, alpha=alpha).fit(X, y, **metadata)
    assert model.collapsed_
    assert_array_equal(model.coef_, 0)
    assert model.gap_ <= 1e-6


def test_loose_tolerance_does_not_make_a_collapse(perspective, draw_classes):
    """Far from optimal is not optimal, even where it is near enough to stop."""
    X, y, critical = _collapsing(draw_classes, perspective, 35, 1.0)
    model = GaussianRobustClassifier(0.9 * critical, loss=perspective, tol=0.1).fit(X, y)
    assert not model.collapsed_


def test_logistic_loss_does_not_collapse(two_classes):
    X, y = two_classes(50, 3, positives=38)
    assert critical_noise(X, y, loss="logistic") == np.inf
    model = GaussianRobustClassifier(50.0, loss="logistic").fit(X, y)
    assert not model.collapsed_
    assert np.linalg.norm(model.coef_) > 1e-6


@pytest.mark.thin(9)
@pytest.mark.parametrize("seed", range(20))
def test_random_ambiguous_problems_end_certified(perspective, seed, draw_classes):
    """Poor separation and unequal classes: collapsed or not, the proof decides."""
    rng = np.random.default_rng(1000 + seed)
    n, d = int(rng.integers(6, 60)), int(rng.integers(1, 6))
    X, y = draw_classes(
        rng,
        n,
        d,
        separation=rng.choice([0.1, 0.5, 1.5]),
        positives=int(rng.integers(2, n - 1)),
        offset=rng.normal(),
    )
    sigma = 10 ** rng.uniform(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model = GaussianRobustClassifier(sigma, loss=perspective).fit(X, y)
    assert model.gap_ <= 1e-6
    critical = critical_noise(X, y, loss=perspective)
    if not 0.999 < sigma / max(critical, 1e-12) < 1.001:
        assert model.collapsed_ == (sigma > critical)
    assert model.collapsed_ == np.all(model.coef_ == 0)
