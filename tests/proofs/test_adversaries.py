"""Adversaries with kinks: certified fits, independent referees, limits, collapse."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core.solution import DualGuess
from holdfast._proofs.certificate import certificate
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning
from holdfast.losses import ExpectedLogistic, GaussianHinge

KINKS = ["variances", "correlations"]
PERSPECTIVES = ["hinge", "log2", "quadratic", "two_point"]


def _noise(name, rng, d, size):
    many = name == "correlations" and rng.uniform() < 0.5
    return GaussianNoise(size * (rng.uniform(0.3, 2, size=d) if many else 1.0), unknown=name)


def _fitted_at_random(draw_classes, rng, name, loss):
    n, d = int(rng.integers(5, 150)), int(rng.integers(1, 20))
    X, y = draw_classes(rng, n, d, separation=rng.choice([0.1, 0.5, 2.0]), positives=int(rng.integers(1, n)))
    scale = 10 ** rng.uniform(-3, 3)
    model = GaussianRobustClassifier(
        _noise(name, rng, d, scale * 10 ** rng.uniform(-3, 1)),
        loss=loss,
        alpha=scale**2 * n * rng.choice([0.0, 1e-3, 1.0]),
        fit_intercept=bool(rng.integers(2)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return model.fit(scale * X, y)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("loss", PERSPECTIVES)
def test_random_fits_are_certified(name, loss, draw_classes, rng):
    for _ in range(6):
        assert _fitted_at_random(draw_classes, rng, name, loss).gap_ <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("loss", PERSPECTIVES)
def test_many_random_fits_are_certified(name, loss, draw_classes, rng):
    for _ in range(150):
        assert _fitted_at_random(draw_classes, rng, name, loss).gap_ <= 1e-6


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
def test_real_data_are_certified(name, noise):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for loss in ("hinge", "two_point"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            assert GaussianRobustClassifier(GaussianNoise(noise, unknown=name), loss=loss).fit(X, y).gap_ <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("data", ["ionosphere", "pima", "spambase"])
@pytest.mark.parametrize("name", KINKS)
def test_more_real_data_are_certified(data, name, load_data):
    found = load_data(data)
    X = (found["X"] - found["X"].mean(axis=0)) / np.maximum(found["X"].std(axis=0), 1e-12)
    for noise, loss in itertools.product([0.01, 0.1, 1.0], PERSPECTIVES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            model = GaussianRobustClassifier(GaussianNoise(noise, unknown=name), loss=loss).fit(X, found["y"])
        assert model.gap_ <= 1e-6


def _bounded_minimum(objective, start, bounds):
    """Return the minimum that L-BFGS-B finds, started afresh until that helps no more."""
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 50}
    x, before = start, np.inf
    for _ in range(20):
        found = minimize(objective, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not found.fun < before * (1 - 1e-14):
            break
        x, before = found.x, found.fun
    return min(found.fun, before)


def _split_optimum(X, y, loss, std, alpha):
    """Minimise over w = p - q, p, q >= 0, where the l1 norm is linear, by L-BFGS-B."""
    d = X.shape[1]

    def objective(v):
        w, t = v[:d] - v[d:], float(np.sum(std * (v[:d] + v[d:])))
        value, slope, scale_slope = loss.evaluate(1 - y * (X @ w), np.array(t))
        g = -X.T @ (y * slope) + alpha * w
        outward = std * scale_slope.sum()
        return value.sum() + 0.5 * alpha * w @ w, np.concatenate([g + outward, outward - g])

    return _bounded_minimum(objective, np.full(2 * d, 0.1), [(0, None)] * (2 * d))


def _bounded_optimum(X, y, loss, sigma, alpha):
    """Minimise over w = r v, r > 0 and v in [-1, 1]^d, where the largest weight is r, by L-BFGS-B."""
    d = X.shape[1]

    def objective(p):
        r, v = p[0], p[1:]
        w = r * v
        value, slope, scale_slope = loss.evaluate(1 - y * (X @ w), np.array(sigma * r))
        g = -X.T @ (y * slope) + alpha * w
        return value.sum() + 0.5 * alpha * w @ w, np.append(v @ g + sigma * scale_slope.sum(), r * g)

    return _bounded_minimum(objective, np.append(0.1, np.sign(X.T @ y)), [(1e-12, None)] + [(-1, 1)] * d)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_optimum_is_that_of_smooth_problems_with_bounds(alpha, draw_classes, rng):
    for loss, sigma in itertools.product((GaussianHinge(), ExpectedLogistic()), (0.05, 0.6)):
        X, y = draw_classes(rng, 60, 6, separation=0.5)
        std = sigma * rng.uniform(0.3, 2, size=6)
        options = {"loss": loss, "alpha": alpha, "fit_intercept": False, "tol": 1e-6 if alpha or loss.has_dual else 1e9}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            box = GaussianRobustClassifier(GaussianNoise(std, unknown="correlations"), **options).fit(X, y)
            diamond = GaussianRobustClassifier(GaussianNoise(sigma, unknown="variances"), **options).fit(X, y)
        for model, referee in (
            (box, _split_optimum(X, y, loss, std, alpha)),
            (diamond, _bounded_optimum(X, y, loss, sigma, alpha)),
        ):
            assert model.objective_ <= referee * (1 + 1e-9)
            assert model.objective_ >= referee * (1 - 1e-8)
            assert model.lower_bound_ <= referee * (1 + 1e-12)


@pytest.mark.thin(3)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_optimum_is_that_of_a_conic_solver(fit_intercept, alpha, two_classes):
    X, y = two_classes(40, 5, separation=0.4, positives=18)
    w, b = cp.Variable(5), cp.Variable() if fit_intercept else 0.0
    u = 1 - cp.multiply(y, X @ w + b)
    for name, size in (("variances", cp.norm_inf(w)), ("correlations", cp.norm1(w))):
        t = cp.Variable()
        roots = [cp.norm(cp.hstack([u[i], t])) for i in range(40)]
        objective = 0.5 * (cp.sum(u) + sum(roots)) + 0.5 * alpha * cp.sum_squares(w)
        referee = cp.Problem(cp.Minimize(objective), [t >= 0.4 * size]).solve(solver=cp.CLARABEL)
        noise = GaussianNoise(0.4, unknown=name)
        model = GaussianRobustClassifier(noise, loss="two_point", alpha=alpha, fit_intercept=fit_intercept).fit(X, y)
        assert model.objective_ == pytest.approx(referee, rel=1e-7)
        assert model.gap_ <= 1e-6


def test_logistic_fit_is_certified_with_a_ridge_and_says_so_without(two_classes):
    X, y = two_classes(80, 6, separation=0.5, positives=30)
    for name, noise, fit_intercept in itertools.product(KINKS, (0.05, 0.5, 3.0), (False, True)):
        kinks = GaussianNoise(noise, unknown=name)
        assert GaussianRobustClassifier(kinks, alpha=0.3, fit_intercept=fit_intercept).fit(X, y).gap_ <= 1e-9
    with pytest.warns(UserWarning, match="No lower bound is known"):
        assert GaussianRobustClassifier(kinks, alpha=0.0).fit(X, y).lower_bound_ == -np.inf


@pytest.mark.parametrize("name", [None, *KINKS])
def test_any_scale_and_slopes_give_the_logistic_loss_a_valid_bound(name, make_problem, two_classes, rng):
    X, y = two_classes(40, 4, separation=0.5)
    problem = make_problem(X, y, ExpectedLogistic(), GaussianNoise(0.5, unknown=name), alpha=0.5)
    model = GaussianRobustClassifier(GaussianNoise(0.5, unknown=name), alpha=0.5).fit(X, y)
    for _ in range(50):
        w, b = model.coef_[0] + rng.normal(size=4) * 10 ** rng.uniform(-4, 0), model.intercept_[0] + rng.normal()
        scale = problem.sets.support(w) * rng.uniform(1, 2)
        proof = certificate(problem, w, b, DualGuess(rng.uniform(size=40), w, scale))
        assert proof.lower_bound <= model.objective_ * (1 + 1e-12)
        assert proof.objective >= model.objective_ * (1 - 1e-12)


def test_overwhelming_noise_leaves_the_signs_of_the_pull_or_its_largest_entry(two_classes):
    X, y = two_classes(60, 5, separation=0.8)
    pull = X.T @ y
    for loss in ("hinge", "log2"):
        options = {"loss": loss, "fit_intercept": False}
        w = GaussianRobustClassifier(GaussianNoise(1e4, unknown="variances"), **options).fit(X, y).coef_[0]
        assert_allclose(w / np.abs(w).max(), np.sign(pull), rtol=1e-9)
        w = GaussianRobustClassifier(GaussianNoise(1e4, unknown="correlations"), **options).fit(X, y).coef_[0]
        assert np.flatnonzero(w).tolist() == [np.argmax(np.abs(pull))]
        assert w @ pull > 0


def test_unknown_correlations_leave_fewer_features_the_more_noise_there_is(two_classes):
    X, y = two_classes(100, 12, separation=0.8)
    counts = [
        np.count_nonzero(
            GaussianRobustClassifier(GaussianNoise(s, unknown="correlations"), loss="hinge").fit(X, y).coef_
        )
        for s in (0.001, 0.1, 0.3, 1.0)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 12
    assert counts[-1] < 6


def test_adversaries_agree_on_a_single_feature(two_classes):
    X, y = two_classes(50, 1, separation=0.7, positives=20)
    for loss in ("hinge", "two_point", "logistic"):
        models = [
            GaussianRobustClassifier(GaussianNoise(0.4, unknown=name), loss=loss).fit(X, y) for name in (None, *KINKS)
        ]
        for model in models[1:]:
            assert_allclose(model.coef_, models[0].coef_, rtol=1e-6)
            assert model.objective_ == pytest.approx(models[0].objective_, rel=1e-9)


def test_features_without_noise_are_fine_among_the_marginals(two_classes):
    X, y = two_classes(80, 4, separation=0.4, positives=35)
    for loss, alpha in itertools.product(PERSPECTIVES, (0.0, 1.0)):
        noise = GaussianNoise([0.5, 0.0, 1.0, 0.3], unknown="correlations")
        assert GaussianRobustClassifier(noise, loss=loss, alpha=alpha).fit(X, y).gap_ <= 1e-6


def test_units_of_the_features_change_nothing_but_the_units(two_classes):
    X, y = two_classes(60, 4, separation=0.5)
    units = np.array([1e-3, 1.0, 1e3, 10.0])
    std = np.array([0.5, 0.2, 1.0, 0.3])
    plain, other = (
        GaussianRobustClassifier(GaussianNoise(std * k, unknown="correlations"), loss="hinge").fit(X * k, y)
        for k in (1.0, units)
    )
    assert_allclose(other.coef_ * units, plain.coef_, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINKS)
def test_collapse_is_certified_just_above_the_critical_noise_and_not_below(name, two_classes):
    X, y = two_classes(60, 4, separation=0.7, positives=15)
    for loss in ("hinge", "two_point"):
        critical = critical_noise(X, y, noise=GaussianNoise(1.0, unknown=name), loss=loss)
        with pytest.warns(CollapseWarning):
            above = GaussianRobustClassifier(GaussianNoise(1.01 * critical, unknown=name), loss=loss).fit(X, y)
        assert above.collapsed_
        assert not np.any(above.coef_)
        assert above.gap_ <= 1e-9
        below = GaussianRobustClassifier(GaussianNoise(0.99 * critical, unknown=name), loss=loss).fit(X, y)
        assert not below.collapsed_
        assert np.any(below.coef_)
        assert below.gap_ <= 1e-6


@pytest.mark.parametrize("name", KINKS)
def test_conic_solver_finds_the_same_optimum(name, two_classes):
    X, y = two_classes(30, 3)
    model = GaussianRobustClassifier(GaussianNoise(0.5, unknown=name), loss="two_point", alpha=0.1)
    own, conic = clone(model).fit(X, y), clone(model).set_params(solver="clarabel", tol=1e-2).fit(X, y)
    assert conic.objective_ == pytest.approx(own.objective_, rel=1e-7)


@pytest.mark.parametrize("name", KINKS)
def test_warm_start_ends_where_a_cold_one_does(name, two_classes):
    X, y = two_classes(60, 5, separation=0.5)
    model = GaussianRobustClassifier(GaussianNoise(0.1, unknown=name), loss="hinge", warm_start=True).fit(X, y)
    warm = model.set_params(noise__std=0.5).fit(X, y)
    cold = GaussianRobustClassifier(GaussianNoise(0.5, unknown=name), loss="hinge").fit(X, y)
    assert warm.gap_ <= 1e-6
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-9)
