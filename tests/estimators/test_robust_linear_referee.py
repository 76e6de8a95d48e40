"""Fits of RobustLinearClassifier against a conic solver that is told the supremum of every row, term by term."""

import warnings

import cvxpy as cp
import numpy as np
import pytest

from holdfast import Ball, Box, ChanceConstraint, Ellipsoid, IntervalBox, RobustLinearClassifier
from holdfast.exceptions import CollapseWarning

AGREEMENT = 1e-6
LOSSES = ("hinge", "squared_hinge", "logistic", "huberized_hinge")
PENALTIES = ("l2", "l1", "box", None)
SETS = (
    "ball", "X_radius", "diamond", "cube", "norm_3", "box", "X_std_box", "intervals", "ellipsoid", "X_std", "X_cov",
    "chance", "sum",
)  # fmt: skip


def _sets(name, rng, X):
    """Return a set, its metadata, and a function of w that returns a cvxpy vector of h_i(-y_i w), around the middle."""
    n, d = X.shape
    size, s, radii = rng.choice([0.1, 0.4]), rng.uniform(0, 0.8, size=(n, d)), rng.uniform(0, 1, size=n)
    low, high = -rng.uniform(0, 0.3, size=(n, d)), rng.uniform(0, 0.8, size=(n, d))
    F = rng.normal(size=(n, d, d)) / np.sqrt(d)
    one = np.ones(n)
    ends = {"X_lower": X + low, "X_upper": X + high}

    def by_row(terms):
        return cp.hstack([terms(i) for i in range(n)])

    def pushed(w):
        return 0.5 * (high - low) @ cp.abs(w)

    return {
        "ball": (Ball(size), {}, lambda w: size * cp.norm(w) * one),
        "X_radius": (Ball(size), {"X_radius": radii}, lambda w: size * cp.norm(w) * radii),
        "diamond": (Ball(size, 1), {}, lambda w: size * cp.norm(w, "inf") * one),
        "cube": (Ball(size, np.inf), {}, lambda w: size * cp.norm1(w) * one),
        "norm_3": (Ball(size, 3), {}, lambda w: size * cp.pnorm(w, 1.5) * one),
        "box": (Box(size, half_widths=s[0]), {}, lambda w: size * (s[0] @ cp.abs(w)) * one),
        "X_std_box": (Box(size), {"X_std": s}, lambda w: size * (s @ cp.abs(w))),
        "intervals": (IntervalBox(), ends, pushed),
        "ellipsoid": (Ellipsoid(size, shape=F[0] @ F[0].T), {}, lambda w: size * cp.norm(F[0].T @ w) * one),
        "X_std": (Ellipsoid(size), {"X_std": s}, lambda w: size * by_row(lambda i: cp.norm(cp.multiply(s[i], w)))),
        "X_cov": (
            Ellipsoid(size),
            {"X_cov": F @ F.transpose(0, 2, 1)},
            lambda w: size * by_row(lambda i: cp.norm(F[i].T @ w)),
        ),
        "chance": (
            ChanceConstraint(0.2),
            {"X_std": 0.2 * s},
            lambda w: 2.0 * by_row(lambda i: cp.norm(cp.multiply(0.2 * s[i], w))),
        ),
        "sum": (Ball(0.1) + IntervalBox(), ends, lambda w: 0.1 * cp.norm(w) * one + pushed(w)),
    }[name]


def _loss(name, x):
    """Return the plain loss of every deficit x, summed up later."""
    if name == "hinge":
        return cp.pos(x)
    if name == "squared_hinge":
        return cp.square(cp.pos(x))
    if name == "logistic":
        return cp.logistic(x - 1)
    c = 4 * np.log(2)
    # phi_c(z) = min over 0 <= e of e + (z + c - e)_+^2 / 4c
    e = cp.Variable(x.shape, nonneg=True)
    return e + cp.square(cp.pos(x - 1 + c - e)) / (4 * c)


def _optimum(X, y, weights, loss, support, kappa, penalty, alpha, fit_intercept):
    """Return the optimum that Clarabel finds."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    h, conditions = support(w), []
    x = 1 - cp.multiply(y, X @ w + (b if fit_intercept else 0)) + kappa * h
    total = weights @ (_loss(loss, x) + (1 - kappa) * h)
    if penalty == "l2":
        total += 0.5 * alpha * cp.sum_squares(w)
    elif penalty == "l1":
        total += alpha * cp.norm1(w)
    elif penalty == "box":
        conditions.append(cp.abs(w) <= 1 / alpha)
    problem = cp.Problem(cp.Minimize(total), conditions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cvxpy remarks on its own power cones
        for accuracy in (1e-9, 1e-8, 1e-7):  # the best that it can do
            try:
                return problem.solve(solver=cp.CLARABEL, tol_gap_abs=accuracy, tol_gap_rel=accuracy, tol_feas=accuracy)
            except cp.SolverError:
                continue
    raise AssertionError("The conic solver fails at every accuracy.")


def _check(draw, name, seed):
    rng = np.random.default_rng([SETS.index(name), seed])
    n, d = int(rng.integers(10, 18)), int(rng.integers(2, 5))
    X, y = draw(rng, n, d, separation=rng.choice([0.3, 0.8]), positives=n // 2, offset=rng.normal())
    X[:2], y[:2] = X[0], (1.0, -1.0)  # nothing separates these
    weights = rng.uniform(0.3, 2, n)
    loss, penalty = LOSSES[seed % 4], PENALTIES[(seed // 4) % 4]
    kappa, alpha, fit_intercept = float(rng.choice([0.0, 0.4, 1.0])), 10 ** rng.uniform(-1, 0.5), bool(rng.integers(2))
    chosen, metadata, support = _sets(name, rng, X)
    model = RobustLinearClassifier(
        chosen, loss=loss, penalty=penalty, alpha=alpha, kappa=kappa, fit_intercept=fit_intercept
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model.fit(X, y, sample_weight=weights, **metadata)
    middle = 0.5 * (metadata["X_lower"] + metadata["X_upper"]) if "X_lower" in metadata else X
    best = _optimum(middle, y, weights, loss, support, kappa, penalty, alpha, fit_intercept)
    call = (name, seed, loss, penalty, kappa, alpha, fit_intercept)
    assert model.gap_ <= 1e-6, call
    assert model.objective_ <= best * (1 + AGREEMENT) + 1e-8, call
    assert model.lower_bound_ <= best * (1 + AGREEMENT) + 1e-8, call
    assert model.objective_ >= best * (1 - AGREEMENT) - 1e-8, call


@pytest.mark.parametrize("name", SETS)
def test_optimum_is_that_of_a_conic_solver(name, draw_classes):
    for seed in range(0, 20, 3):
        _check(draw_classes, name, 3 * seed + SETS.index(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_optimum_is_that_of_a_conic_solver_on_hundreds_of_problems(name, draw_classes):
    for seed in (*(3 * seed + SETS.index(name) for seed in range(20)), *range(1000, 1200)):
        _check(draw_classes, name, seed)
