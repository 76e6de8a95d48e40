"""Properties that planted faults once broke unnoticed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize
from scipy.stats import norm

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._core.solution import DualGuess, Status
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import certificate
from holdfast.losses import GaussianHinge
from holdfast.solvers.selection import solve

ROUNDING = 1e-10


def _fit(X, y, noise, loss="hinge", **options):
    return GaussianRobustClassifier(noise, loss=loss, **options).fit(X, y)


# rows


@pytest.mark.parametrize("n", [1, 2, 3, 5, 63, 65, 130, 191])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_sweep_counts_every_row_whatever_their_number(n, dtype, monkeypatch, rng):
    """It takes rows 64 and 4 at a time; those that are left over count too."""
    pytest.importorskip("numba")
    X = rng.normal(size=(n, 3)).astype(dtype)
    signs, weights = rng.choice([-1.0, 1.0], n), rng.uniform(0.5, 2, n)
    arguments = (GaussianHinge(), signs, weights, rng.normal(size=3), 0.3, np.array(0.8), 1.0)
    plain = rows_of(X).margin_pass(*arguments)
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    swept = rows_of(X).margin_pass(*arguments)
    for one, other in zip(swept, plain, strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("worthwhile", [0, np.inf], ids=["compiled", "numpy"])
@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_pass_over_float32_rows_is_computed_in_float64(make, worthwhile, monkeypatch, rng):
    """A line search near the optimum would otherwise see only noise."""
    monkeypatch.setattr(compiled, "WORTHWHILE", worthwhile)
    X = rng.normal(size=(500, 40)).astype(np.float32)
    y, c, w = rng.choice([-1.0, 1.0], 500), rng.uniform(0.5, 2, 500), 0.1 * rng.normal(size=40)
    found = rows_of(make(X)).margin_pass(GaussianHinge(), y, c, w, 0.3, np.array(0.8), 1.0)
    value, slope, scale_slope = GaussianHinge().evaluate(1 - y * (X.astype(np.float64) @ w + 0.3), np.array(0.8))
    assert found.value == pytest.approx(c @ value, rel=1e-12)
    assert_allclose(found.pull, X.astype(np.float64).T @ (c * y * slope), rtol=0, atol=1e-11)
    assert found.balance == pytest.approx(c @ (y * slope), rel=1e-11)
    assert found.scale_slopes == pytest.approx(c @ scale_slope, rel=1e-12)


# the proof


def test_imbalance_of_the_classes_does_not_fool_the_bound(dual_loss, make_problem, two_classes, rng):
    """Under much noise w = 0 costs twice the lighter class; dual weights of unequal class sums promise more."""
    for positives in (4, 36):
        X, y = two_classes(40, 3, positives=positives)
        problem = make_problem(X, y, dual_loss, 20.0)
        for level in (0.1, 0.5, 0.9):
            w = rng.normal(size=3)
            slopes = np.clip(level + 0.05 * rng.normal(size=40), 0, 1)
            proof = certificate(problem, w, 0.0, DualGuess(slopes, w, problem.sets.support(w)))
            assert proof.lower_bound <= 2 * 4 * (1 + ROUNDING)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_dual_weights_of_a_noisier_problem_do_not_fool_the_bound(dual_loss, fit_intercept, make_problem, two_classes):
    """They promise the optimum of the noisier problem, and the budgets of this one do not cover that."""
    X, y = two_classes(40, 3, separation=3)
    for sigma in (0.3, 0.6, 1.0):
        problem = make_problem(X, y, dual_loss, sigma, fit_intercept=fit_intercept)
        best = _fit(X, y, sigma, dual_loss, fit_intercept=fit_intercept).objective_
        for factor in (1.01, 1.3, 2.0, 4.0):
            noisier = _fit(X, y, factor * sigma, dual_loss, fit_intercept=fit_intercept)
            w, t = noisier.coef_[0], factor * problem.sets.support(noisier.coef_[0])
            u = 1 - y * (X @ w + noisier.intercept_[0])
            guess = DualGuess(dual_loss.evaluate(u, t)[1], w, t)
            assert certificate(problem, w, 0.0, guess).lower_bound <= best * (1 + ROUNDING)


def test_bound_from_another_scale_and_intercept_is_that_of_the_best_ones(dual_loss, make_problem, two_classes):
    X, y = two_classes(50, 4, separation=0.8)
    problem = make_problem(X, y, dual_loss, 0.7)
    model = _fit(X, y, 0.7, dual_loss, tol=1e-12)
    bounds = [
        certificate(problem, r * model.coef_[0], model.intercept_[0] + shift).lower_bound
        for r in (0.3, 0.8, 0.97, 1.03, 1.5, 4.0)
        for shift in (-0.7, -0.05, 0.05, 0.7)
    ]
    assert_allclose(bounds, model.objective_, rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_norm_bound_is_the_published_formula_of_weighted_rows(fit_intercept, make_problem, two_classes, rng):
    X, y = two_classes(30, 3, positives=11, separation=0.6)
    c, sigma = rng.uniform(0.2, 3, 30), 0.7
    problem = make_problem(X, y, GaussianHinge(), sigma, weights=c, fit_intercept=fit_intercept)
    found = certificate(problem, np.ones(3), 0.0).norm_bound
    if fit_intercept:
        heavier = max(c[y > 0].sum(), c[y < 0].sum())
        means = [np.average(X[y == sign], axis=0, weights=c[y == sign]) for sign in (1, -1)]
        q = np.linalg.norm(means[0] - means[1]) / (2 * sigma)
        bound = 2 * heavier / c.sum() * norm.cdf(-q) / (sigma * (norm.pdf(q) - q * norm.cdf(-q)))
        assert found == pytest.approx(bound, rel=1e-9)
    else:
        pull = np.linalg.norm(X.T @ (c * y)) / c.sum()
        z0 = (1 / found - pull) / sigma
        assert norm.pdf(z0) / norm.cdf(z0) == pytest.approx(pull / sigma, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weight", [1.0, 30.0])
def test_norm_bound_of_the_ridge_holds_where_it_is_nearly_attained(perspective, weight, fit_intercept):
    """Rows at +-0.1 with almost no noise: the hinge's optimum is min(10, total * 0.1 / alpha)."""
    X = np.repeat([[0.1], [-0.1]], 20, axis=0)
    y = np.sign(X[:, 0])
    total = 40 * weight
    model = GaussianRobustClassifier(
        GaussianNoise(std=[1e-4]), loss=perspective, alpha=total * 0.01, fit_intercept=fit_intercept
    ).fit(X, y, sample_weight=np.full(40, weight))
    assert model.coef_[0, 0] == pytest.approx(10, rel=0.02)
    assert 10 <= model.norm_bound_ * (1 + 1e-9) <= 15


# training


@pytest.mark.parametrize("form", ["number", "std", "cov", "X_std"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_more_features_than_rows_are_fitted_to_the_optimum(form, fit_intercept, make_problem, two_classes, rng):
    n, d = 12, 20
    X, y = two_classes(n, d, separation=0.5)
    F = rng.normal(size=(d, d)) / np.sqrt(d)
    noise, metadata = {
        "number": (0.9, {}),
        "std": (GaussianNoise(std=rng.uniform(0.3, 1.5, d)), {}),
        "cov": (GaussianNoise(cov=F @ F.T + 0.2 * np.eye(d)), {}),
        "X_std": (1.0, {"X_std": rng.uniform(0.3, 1.5, (n, d))}),
    }[form]
    model = GaussianRobustClassifier(noise, loss="hinge", fit_intercept=fit_intercept).fit(X, y, **metadata)
    problem = make_problem(X, y, GaussianHinge(), model._noise(), metadata=metadata, fit_intercept=fit_intercept)
    start = problem.join(0.1 * X.T @ y / n, 0.0)
    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    best = minimize(problem.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun
    assert model.coef_.shape == (1, d)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(best, rel=1e-6)


def test_newton_takes_few_steps_in_any_units_of_the_features(loss, make_problem, two_classes):
    X, y = two_classes(60, 3, separation=0.6)
    units = np.array([1e-3, 1.0, 1e3])
    problem = make_problem(X * units, y, loss, GaussianNoise(std=0.6 * units), alpha=0.0)
    start = problem.join(X.T @ y / 60 / units, 0.0)
    found = solve(problem, "newton", start=start, tol=1e-9)
    assert found.status is Status.SOLVED
    assert found.n_iter <= 20


def test_quasi_newton_learns_what_a_diagonal_metric_does_not_know(loss, make_problem, two_classes, monkeypatch):
    """Features that are nearly the same: steepest descent would zigzag for hundreds of steps."""
    monkeypatch.setattr("holdfast._problems.margin_scale.WIDEST_METRIC", 0)
    monkeypatch.setattr(MarginScaleProblem, "metric_age", 1000)
    X, y = two_classes(60, 4, separation=0.6)
    X = X @ (np.ones((4, 4)) + 0.1 * np.eye(4))
    problem = make_problem(X, y, loss, GaussianNoise(std=np.full(4, 0.05)), alpha=0.01)
    start = problem.join(0.1 * X.T @ y / 60, 0.0)
    found = solve(problem, "quasi_newton", start=start, tol=1e-9)
    assert found.status is Status.SOLVED
    assert found.n_iter <= 60
    assert found.objective == pytest.approx(solve(problem, "newton", start=start, tol=1e-9).objective, rel=1e-8)


# weights


def test_class_weight_is_a_factor_on_the_rows_of_that_class(two_classes):
    X, y = two_classes(40, 3, separation=0.6, positives=15)
    stated = GaussianRobustClassifier(0.5, class_weight={1.0: 3.0, -1.0: 0.5}).fit(X, y)
    by_row = GaussianRobustClassifier(0.5).fit(X, y, sample_weight=np.where(y > 0, 3.0, 0.5))
    assert stated.objective_ == pytest.approx(by_row.objective_, rel=1e-9)
    assert_allclose(stated.coef_, by_row.coef_, rtol=1e-6)
