"""The minimiser: existence, its limits for small and large noise, extreme scales, and bounds on its norm."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from holdfast import GaussianRobustClassifier
from holdfast.exceptions import CollapseWarning
from holdfast.losses import GaussianHinge, QuadraticHinge, TwoPointHinge
from holdfast.solvers.selection import solve


def _fit(X, y, sigma, loss="hinge", **options):
    return GaussianRobustClassifier(sigma, loss=loss, **options).fit(X, y)


def _hard_margin(X, y):
    """Return the weights of the hard-margin SVM without intercept and its margin."""
    w = cp.Variable(X.shape[1])
    cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.multiply(y, X @ w) >= 1]).solve(solver=cp.CLARABEL)
    return w.value, 1 / np.linalg.norm(w.value)


def test_objective_grows_along_every_ray_even_on_separable_data(make_problem, two_classes, rng):
    X, y = two_classes(30, 3, separation=4)
    problem = make_problem(X, y, GaussianHinge(), 0.8, fit_intercept=False)
    for _ in range(20):
        d = rng.normal(size=3)
        s = 0.8 * np.linalg.norm(d)
        slope = np.sum(s * GaussianHinge().f(-y * (X @ d) / s))
        assert slope > 0
        assert problem.value_and_gradient(1e7 * d)[0] / 1e7 == pytest.approx(slope, rel=1e-5)


def test_minimiser_does_not_depend_on_the_start(make_problem, two_classes, rng):
    X, y = two_classes(30, 3, separation=0.8)
    problem = make_problem(X, y, GaussianHinge(), 0.8)
    best = _fit(X, y, 0.8, tol=1e-9)
    for _ in range(6):
        start = rng.normal(size=4) * 10 ** rng.uniform(-0.5, 1)
        found = solve(problem, "newton", start=start, tol=0.0)
        assert found.objective == pytest.approx(best.objective_, rel=1e-9)
        assert_allclose(found.parameters, [*best.coef_[0], *best.intercept_], rtol=1e-5, atol=1e-6)


def test_without_intercept_weights_vanish_exactly_where_the_pull_does(perspective, two_classes):
    X, y = two_classes(30, 3)
    for sigma in (0.1, 0.8, 1e4):
        assert np.any(_fit(X, y, sigma, perspective, fit_intercept=False, tol=1e-10).coef_ != 0)
    with pytest.warns(CollapseWarning):
        model = _fit(np.vstack([X, X]), np.repeat([1.0, -1.0], 30), 0.8, perspective, fit_intercept=False)
    assert_array_equal(model.coef_, 0)
    assert model.objective_ == pytest.approx(60)
    assert model.gap_ <= 1e-6


def test_pull_that_vanishes_up_to_rounding_is_certified_too(perspective, two_classes):
    X, y = two_classes(30, 3)
    centred = X - np.outer(y, (y[:, None] * X).mean(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model = _fit(centred, y, 0.8, perspective, fit_intercept=False)
    assert model.objective_ == pytest.approx(30, rel=1e-12)
    assert model.gap_ <= 1e-6


def test_large_noise_turns_the_weights_to_the_pull_at_the_known_rate(two_classes):
    X, y = two_classes(40, 3, separation=0.7)
    pull = X.T @ y
    length = np.linalg.norm(pull)
    ratios = []
    for sigma in (1e2, 1e4, 1e8):
        w = _fit(X, y, sigma, fit_intercept=False, tol=1e-12).coef_[0]
        rate = 1 / (sigma * np.sqrt(2 * np.log(40 * sigma / (np.sqrt(2 * np.pi) * length))))
        ratios.append(np.linalg.norm(w) / rate)
        assert w @ pull / (np.linalg.norm(w) * length) >= 1 - 1e-3 / sigma
    assert_allclose(ratios, 1, atol=0.02)
    assert abs(ratios[1] - 1) < 1e-3
    assert abs(ratios[2] - 1) < 1e-6


def test_small_noise_turns_separable_data_to_the_hard_margin_at_the_known_rate(make_problem, two_classes):
    """Deep in the tail (the objective is 1e-56 at the end) plain Newton steps on the problem's own derivatives."""
    X, y = two_classes(30, 2, separation=4)
    svm, margin = _hard_margin(X, y)
    ratios, turns = [], []
    for q in (4, 8, 16):
        sigma = margin / q
        problem = make_problem(X, y, GaussianHinge(), sigma, fit_intercept=False)
        w = svm * (margin / sigma) ** 2
        for _ in range(50):
            step = -np.linalg.solve(problem.hessian(w), problem.value_and_gradient(w)[1])
            w = w + step
        assert np.linalg.norm(step) <= 1e-8 * np.linalg.norm(w)
        ratios.append(np.linalg.norm(w) * sigma**2 / margin)
        turns.append(1 - w @ svm * margin / np.linalg.norm(w))
    assert abs(ratios[2] - 1) < 0.01
    assert abs(ratios[2] - 1) < abs(ratios[1] - 1) < abs(ratios[0] - 1)
    assert turns[2] < 1e-4


def test_fit_reaches_the_small_noise_limit_while_it_can_be_seen(two_classes):
    X, y = two_classes(30, 2, separation=4)
    svm, margin = _hard_margin(X, y)
    model = _fit(X, y, margin / 4, fit_intercept=False, tol=1e-9)
    assert np.linalg.norm(model.coef_) * (margin / 4) ** 2 / margin == pytest.approx(1, abs=0.15)
    assert model.coef_[0] @ svm * margin / np.linalg.norm(model.coef_) > 0.99


@pytest.mark.thin(3)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("ratio", [10, 30, 38, 60, 100])
def test_margin_of_many_deviations_is_fitted_to_machine_precision(perspective, ratio, fit_intercept, two_classes):
    X, y = two_classes(30, 2, separation=4)
    _, margin = _hard_margin(X, y)
    model = _fit(X, y, margin / ratio, perspective, fit_intercept=fit_intercept)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(model.predict(X) == y)
    assert model.gap_ <= 1e-6
    if isinstance(perspective, GaussianHinge | QuadraticHinge):  # the others' tails fall more slowly
        assert model.objective_ < 1e-8


def test_objective_and_gradient_underflow_to_zero_silently(make_problem):
    X, y = np.array([[1.0, 0.0], [2.0, 0.1]]), np.ones(2)
    problem = make_problem(X, y, GaussianHinge(), 0.02, fit_intercept=False)
    value, gradient = problem.value_and_gradient(np.array([1e3, 0.0]))
    assert value == 0
    assert_array_equal(gradient, 0)


def test_small_noise_gives_the_hinge_where_classes_overlap(perspective, two_classes):
    X, y = two_classes(60, 2, separation=0.5)
    w, b = cp.Variable(2), cp.Variable()
    hinge = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b))))).solve(solver=cp.CLARABEL)
    objectives = [_fit(X, y, sigma, perspective).objective_ for sigma in (1e-2, 1e-3)]
    assert hinge < objectives[1] < objectives[0]
    assert objectives[1] == pytest.approx(hinge, rel=1e-2)


@pytest.mark.slow
def test_norm_and_scale_are_not_monotone_in_the_noise(draw_classes):
    """Counterexamples exist to both, so no code may rely on it."""
    norm_rises = scale_rises = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(5, 30)), int(rng.integers(1, 4))
        X, y = draw_classes(rng, n, d, separation=rng.choice([0.3, 1, 3]))
        sigmas = np.geomspace(0.1, 30, 10)
        norms = np.array([np.linalg.norm(_fit(X, y, s, fit_intercept=False).coef_) for s in sigmas])
        norm_rises += np.any(np.diff(norms) > 1e-2 * norms[1:])
        scale_rises += np.any(np.diff(norms * sigmas) > 1e-2 * (norms * sigmas)[1:])
    assert norm_rises > 0
    assert scale_rises > 0


def _extreme_problem(draw, seed):
    """Return X, y, sigma with sigma / scale from 3e-4 to 30 and scales from 1e-3 to 1e3."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 60)), int(rng.integers(1, 6))
    separation, positives = rng.choice([0.2, 1, 3]), int(rng.integers(2, n - 1))
    X, y = draw(rng, n, d, separation=separation, positives=positives, offset=rng.normal())
    scale = 10 ** rng.uniform(-3, 3)
    return scale * X, y, scale * 10 ** rng.uniform(np.log10(3e-4), np.log10(30))


def _assert_certified(X, y, sigma, loss, fit_intercept):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model = _fit(X, y, sigma, loss, fit_intercept=fit_intercept)
    assert model.gap_ <= 1e-6
    assert np.all(np.isfinite(model.coef_))
    if model.objective_ > 1e-6:  # below that the weights are not determined
        assert np.linalg.norm(model.coef_) <= model.norm_bound_ * (1 + 1e-3)


@pytest.mark.thin(3)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_extreme_noise_and_scales_end_certified(perspective, seed, fit_intercept, draw_classes):
    _assert_certified(*_extreme_problem(draw_classes, seed), perspective, fit_intercept)


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("batch", range(5))
def test_a_thousand_problems_at_extreme_noise_and_scales_end_certified(perspective, batch, fit_intercept, draw_classes):
    failed = []
    for seed in range(1000 + 25 * batch, 1025 + 25 * batch):
        try:
            _assert_certified(*_extreme_problem(draw_classes, seed), perspective, fit_intercept)
        except (AssertionError, Warning) as failure:
            failed.append((seed, str(failure)[:100]))
    assert not failed


@pytest.mark.thin(6)
@pytest.mark.parametrize("seed", range(25))
def test_norm_bound_without_intercept_holds(perspective, seed, draw_classes):
    rng = np.random.default_rng(seed)
    X, y = draw_classes(rng, int(rng.integers(3, 40)), int(rng.integers(1, 5)), separation=rng.choice([0.2, 1, 4]))
    model = _fit(X, y, 10 ** rng.uniform(-1, 2), perspective, fit_intercept=False)
    if model.objective_ > 1e-6:  # below that the weights are not determined
        assert np.linalg.norm(model.coef_) <= model.norm_bound_ * (1 + 1e-4)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 30.0])
def test_norm_bound_without_intercept_is_tight_on_repeated_points(perspective, sigma, rng):
    x = rng.normal(size=3)
    x /= np.linalg.norm(x)
    X, y = np.array([x, x, -x]), np.array([1.0, 1, -1])
    model = _fit(X, y, sigma, perspective, fit_intercept=False)
    if model.norm_bound_ == np.inf:  # a loss for which no bound is known
        return
    ratio = np.linalg.norm(model.coef_) / model.norm_bound_
    if isinstance(perspective, TwoPointHinge):  # for which only 1 / sigma is known
        assert model.norm_bound_ == pytest.approx(1 / sigma)
        assert ratio <= 1
    else:
        assert ratio == pytest.approx(1, abs=1e-5)


def test_quadratic_hinge_bounds_no_norm_where_four_deviations_separate():
    assert QuadraticHinge().largest_norm(4.0, 1.0, None) == np.inf
    assert QuadraticHinge().largest_norm(5.0, 1.0, 1.2) == np.inf
    assert QuadraticHinge().largest_norm(3.9, 1.0, None) < np.inf


def test_norm_bound_survives_any_pull(perspective):
    for pull in (0.0, 1e-300, 1e-16, 1e-3, 1.0, 1e3, 1e8):
        for imbalance in (None, 1.0, 1.7):
            found = perspective.largest_norm(pull, 1.0, imbalance)
            assert found >= 0
            assert not np.isnan(found)


def test_norm_bound_becomes_tight_as_the_noise_grows(two_classes):
    X, y = two_classes(30, 3)
    ratios = []
    for sigma in (1.0, 10.0, 1e3):
        model = _fit(X, y, sigma, fit_intercept=False, tol=1e-12)
        ratios.append(np.linalg.norm(model.coef_) / model.norm_bound_)
    assert ratios[0] < ratios[1] < ratios[2] <= 1 + 1e-6
    assert ratios[2] > 0.999


def test_looser_closed_form_of_the_norm_bound_lies_above(rng):
    for q in (0.01, 0.5, 2.0, 10.0, 25.0):
        sigma = 0.8
        loose = norm.cdf(-q) / (sigma * GaussianHinge().f(np.array(-q)))
        assert GaussianHinge().largest_norm(q * sigma, sigma, None) <= loose * (1 + 1e-9)


@pytest.mark.thin(6)
@pytest.mark.parametrize("seed", range(25))
def test_norm_bound_with_intercept_holds(perspective, seed, draw_classes):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 50))
    positives, separation = int(rng.integers(2, n - 1)), rng.choice([0.2, 1, 3])
    X, y = draw_classes(
        rng, n, int(rng.integers(1, 5)), separation=separation, positives=positives, offset=rng.normal()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model = _fit(X, y, 10 ** rng.uniform(-0.7, 1), perspective)
    if model.objective_ > 1e-6:
        assert np.linalg.norm(model.coef_) <= model.norm_bound_ * (1 + 1e-4)


def test_norm_bound_holds_with_weights_and_ridge(loss, two_classes, rng):
    X, y = two_classes(40, 3)
    for alpha in (0.01, 1.0):
        for fit_intercept in (False, True):
            model = GaussianRobustClassifier(0.5, loss=loss, alpha=alpha, fit_intercept=fit_intercept)
            model.fit(X, y, sample_weight=rng.uniform(0.2, 3, 40))
            assert np.linalg.norm(model.coef_) <= model.norm_bound_ < np.inf
