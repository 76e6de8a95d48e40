"""Fits against referees that share no code with the library: a conic solver, and a general optimiser on plain formulas."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.exceptions import CollapseWarning

AGREEMENT = 1e-6
NOISES = ("number", "std", "cov", "X_std", "X_cov")


def _random_case(draw, seed):
    """Return X, y, weights, noise, metadata, one factor a row, alpha and fit_intercept."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 40)), int(rng.integers(1, 5))
    positives = int(rng.integers(n // 3, 2 * n // 3 + 1))
    X, y = draw(rng, n, d, separation=rng.choice([0.3, 0.8]), positives=positives, offset=rng.normal())
    weights = rng.uniform(0.2, 3, n) if seed % 2 else np.ones(n)
    scale = 10 ** rng.uniform(-1, 0.3)
    loose = scale * rng.normal(size=(n, d, d)) / np.sqrt(d)
    std = scale * rng.uniform(0.1, 1.5, size=(n, d))
    noise, metadata, factors = {
        "number": (scale, {}, scale * np.tile(np.eye(d), (n, 1, 1))),
        "std": (GaussianNoise(std=std[0]), {}, np.tile(np.diag(std[0]), (n, 1, 1))),
        "cov": (GaussianNoise(cov=loose[0] @ loose[0].T), {}, np.tile(loose[0], (n, 1, 1))),
        "X_std": (1.0, {"X_std": std}, std[:, :, None] * np.eye(d)),
        "X_cov": (0.5, {"X_cov": loose @ loose.transpose(0, 2, 1)}, 0.5 * loose),
    }[NOISES[seed % 5]]
    alpha = float(rng.choice([0.0, 0.01, 1.0]))
    return X, y, weights, noise, metadata, factors, alpha, bool(rng.integers(2))


def _conic_optimum(name, X, y, weights, factors, alpha, fit_intercept):
    """Return the optimum as modelled in cvxpy and solved by Clarabel."""
    n, d = X.shape
    w, b, t, value = cp.Variable(d), cp.Variable(), cp.Variable(n), cp.Variable(n)
    u = 1 - cp.multiply(y, X @ w + (b if fit_intercept else 0))
    constraints = [cp.norm(F.T @ w) <= t[i] for i, F in enumerate(factors)]
    if name == "two_point":
        root = 2 * value - u
        constraints.append(cp.SOC(root, cp.vstack([u, t]), axis=0))
    elif name == "quadratic":
        beyond, bent, rest = cp.Variable(n, nonneg=True), cp.Variable(n), cp.Variable(n)
        constraints += [
            bent >= u + 4 * t - beyond,
            value == beyond + rest,
            cp.SOC(rest + 4 * t, cp.vstack([bent, rest - 4 * t]), axis=0),
            bent >= 0,
        ]
    else:
        p, q = cp.Variable(n), cp.Variable(n)
        ln2 = np.log(2)
        constraints += [
            cp.ExpCone(ln2 * (u - value), t, p),
            cp.ExpCone(-ln2 * value, t, q),
            p + q <= t,
        ]
    problem = cp.Problem(cp.Minimize(weights @ value + alpha / 2 * cp.sum_squares(w)), constraints)
    with warnings.catch_warnings():
        # it may miss the 1e-9 asked for; the comparison shows whether it was accurate enough
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)


NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(400)
NODES, NODE_WEIGHTS = 10 * NODES, 10 * NODE_WEIGHTS * norm.pdf(10 * NODES)


def _plain_loss(name, u, t):
    """Return the loss and its two slopes, by textbook formulas that know nothing of extremes."""
    if name == "hinge":
        z = u / t
        return u * norm.cdf(z) + t * norm.pdf(z), norm.cdf(z), norm.pdf(z)
    v = (u - 1)[:, None] + t[:, None] * NODES
    slope = expit(v)
    return np.logaddexp(0, v) @ NODE_WEIGHTS, slope @ NODE_WEIGHTS, slope @ (NODES * NODE_WEIGHTS)


def _general_optimum(name, X, y, weights, factors, alpha, fit_intercept):
    """Return the best of several runs of L-BFGS-B, and of the constant prediction."""
    d = X.shape[1]

    def objective(theta):
        w, b = theta[:d], theta[d] * fit_intercept
        root = np.einsum("nij,i->nj", factors, w)
        t = np.linalg.norm(root, axis=1)
        loss, slope_u, slope_t = _plain_loss(name, 1 - y * (X @ w + b), t)
        outward = np.einsum("nij,nj,n->i", factors, root, weights * slope_t / t)
        gradient = outward - X.T @ (weights * y * slope_u) + alpha * w
        return weights @ loss + alpha / 2 * w @ w, np.append(gradient, -weights @ (y * slope_u) * fit_intercept)

    direction = (X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0)) / 2
    middle = (X[y > 0].mean(axis=0) + X[y < 0].mean(axis=0)) / 2
    rng = np.random.default_rng(0)
    starts = [np.append(r * direction, -r * direction @ middle) for r in (0.3, 1.0)]
    starts += [rng.normal(size=d + 1) for _ in range(3)]
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    runs = [minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun for start in starts]
    if name == "hinge":
        sums = weights[y > 0].sum(), weights[y < 0].sum()
        runs.append(2 * min(sums) if fit_intercept else sum(sums))
    return min(runs)


def _check(draw, seed, name, referee):
    X, y, weights, noise, metadata, factors, alpha, fit_intercept = _random_case(draw, seed)
    model = GaussianRobustClassifier(noise, loss=name, alpha=alpha, fit_intercept=fit_intercept, tol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        if name == "logistic" and alpha == 0:  # for which no bound is known, and fit says so
            warnings.filterwarnings("ignore", message=".*No lower bound is known")
        model.fit(X, y, sample_weight=weights, **metadata)
    optimum = referee(name, X, y, weights, factors, alpha, fit_intercept)
    assert model.objective_ == pytest.approx(optimum, rel=AGREEMENT), f"seed {seed}"
    assert model.lower_bound_ <= optimum * (1 + AGREEMENT)


conic = pytest.mark.parametrize("name", ["two_point", "quadratic", "log2"])
general = pytest.mark.parametrize("name", ["hinge", "logistic"])


@pytest.mark.thin(4)
@conic
@pytest.mark.parametrize("seed", range(20))
def test_fit_agrees_with_a_conic_solver(name, seed, draw_classes):
    _check(draw_classes, seed, name, _conic_optimum)


@pytest.mark.thin(3)
@general
@pytest.mark.parametrize("seed", range(20))
def test_fit_agrees_with_a_general_optimiser(name, seed, draw_classes):
    _check(draw_classes, seed, name, _general_optimum)


@pytest.mark.slow
@conic
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_fit_agrees_with_a_conic_solver_on_many_problems(name, first, draw_classes):
    for seed in range(first, first + 20):
        _check(draw_classes, seed, name, _conic_optimum)


@pytest.mark.slow
@general
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_fit_agrees_with_a_general_optimiser_on_many_problems(name, first, draw_classes):
    for seed in range(first, first + 20):
        _check(draw_classes, seed, name, _general_optimum)
