"""Training by turns, and the exact methods that it is measured against."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import brentq, minimize
from sklearn.exceptions import ConvergenceWarning

from holdfast import Ball, RobustLinearClassifier
from holdfast._training.training import train
from holdfast.exceptions import CollapseWarning
from holdfast.experiments import AlternatingSVC
from holdfast.experiments.alternating import displaced
from holdfast.losses import Hinge

CASES = [(1.0, 1.0, 0.1), (1.0, 1.0, 0.4), (2.0, 5.0, 0.9), (0.7, 0.2, 0.2)]
"""Separation, alpha, radius."""


def _objective(X, y, w, b, alpha, radius, weights=1.0, side=1.0):
    deficit = 1 - y * (X @ w + b) + side * radius * np.linalg.norm(w)
    return float(np.sum(weights * np.maximum(deficit, 0))) + 0.5 * alpha * float(w @ w)


def _exact(X, y, alpha, radius, fit_intercept, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return RobustLinearClassifier(Ball(radius), alpha=alpha, fit_intercept=fit_intercept, **options).fit(X, y)


def _quiet(*args, **options):
    model = AlternatingSVC(*args, **options)

    def fit(*data):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(*data)

    return fit


@pytest.fixture
def four_rows():
    """Rows that all have a positive loss, so that rounds follow a formula: the sum of y x is g."""
    X = 0.2 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.2], [-1.2, -0.3]])
    y = np.array([1.0, 1, -1, -1])
    return X, y, y @ X


@pytest.mark.thin(2)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("separation", "alpha", "radius"), CASES[:3])
def test_ball_is_a_rescaled_ordinary_svm(draw_classes, separation, alpha, radius, fit_intercept):
    """Method 1: a root over the strength of the ridge of a plain SVM."""
    X, y = draw_classes(np.random.default_rng(5), 30, 2, separation=separation, positives=14)

    def plain(log_alpha):
        model = RobustLinearClassifier(alpha=np.exp(log_alpha), fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
        return model.coef_[0], model.intercept_[0], np.abs(model.proof_weights_).sum()

    def excess(log_alpha):
        w, _, dual = plain(log_alpha)
        size = np.linalg.norm(w)
        if radius * size >= 1:
            return -1e6
        return np.exp(log_alpha) * size - radius * dual - alpha * size / (1 - radius * size)

    high = np.log(alpha) + 1
    while excess(high) < 0:
        high += 1
    w, b, _ = plain(brentq(excess, np.log(alpha), high, xtol=1e-6))
    shrink = 1 - radius * np.linalg.norm(w)
    ours = _exact(X, y, alpha, radius, fit_intercept)
    assert_allclose(_objective(X, y, w / shrink, b / shrink, alpha, radius), ours.objective_, rtol=2e-6)
    assert_allclose(w / shrink, ours.coef_[0], atol=1e-3)


@pytest.mark.parametrize(("separation", "alpha", "radius"), [*CASES, (1.0, 20.0, 3.0)])
def test_ball_has_the_optimum_of_its_dual(draw_classes, separation, alpha, radius):
    """Method 2: L-BFGS-B on the dual, without an intercept."""
    X, y = draw_classes(np.random.default_rng(6), 30, 2, separation=separation)
    Z = y[:, None] * X

    def dual(a):
        v = Z.T @ a
        size = np.linalg.norm(v)
        rest = max(size - radius * a.sum(), 0.0)
        return rest**2 / (2 * alpha) - a.sum(), rest / alpha * (Z @ v / max(size, 1e-300) - radius) - 1

    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-10}
    found = minimize(dual, np.full(30, 0.5), jac=True, method="L-BFGS-B", bounds=[(0, 1)] * 30, options=options)
    assert_allclose(_exact(X, y, alpha, radius, False).objective_, -found.fun, rtol=2e-6)


@pytest.mark.thin(6)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("separation", "alpha", "radius"), CASES)
def test_ball_is_a_cone_program(draw_classes, separation, alpha, radius, fit_intercept):
    """Method 3: Clarabel. And whatever the rounds come to, what they prove is not above it."""
    X, y = draw_classes(np.random.default_rng(7), 30, 2, separation=separation, positives=12)
    weights = np.random.default_rng(8).uniform(0.3, 2, size=30)
    w, b = cp.Variable(2), cp.Variable()
    deficit = 1 - cp.multiply(y, X @ w + (b if fit_intercept else 0)) + radius * cp.norm(w)
    problem = cp.Problem(cp.Minimize(weights @ cp.pos(deficit) + 0.5 * alpha * cp.sum_squares(w)))
    optimum = problem.solve(solver=cp.CLARABEL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        ours = RobustLinearClassifier(Ball(radius), alpha=alpha, fit_intercept=fit_intercept).fit(X, y, weights)
    assert_allclose(ours.objective_, optimum, rtol=2e-6)
    turns = _quiet(radius, alpha=alpha, fit_intercept=fit_intercept)(X, y, weights)
    own = _objective(X, y, turns.coef_[0], turns.intercept_[0], alpha, radius, weights)
    assert_allclose(turns.objective_, own, rtol=1e-12)
    assert turns.lower_bound_ <= optimum * (1 + 1e-7) <= turns.objective_ * (1 + 2e-7)
    assert_allclose(turns.gap_, 1 - turns.lower_bound_ / turns.objective_, atol=1e-12)
    if turns.converged_:
        assert_allclose(turns.objective_, optimum, rtol=2e-6)


def test_weights_are_0_from_the_stated_radius_on(draw_classes, rng):
    X, y = draw_classes(rng, 30, 3)
    weights = rng.uniform(0.3, 2, size=30)
    critical = np.linalg.norm((weights * y) @ X) / weights.sum()
    for share, is_zero in ((0.999, False), (1.001, True)):
        model = RobustLinearClassifier(Ball(share * critical), fit_intercept=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            model.fit(X, y, weights)
        assert np.any(model.coef_) != is_zero
        assert model.collapsed_ == is_zero


def test_no_displacement_in_the_ball_hurts_or_helps_more(rng):
    w, b, x, radius = rng.normal(size=3), 0.3, rng.normal(size=3), 0.4
    moves = rng.normal(size=(20000, 3))
    moves *= radius * rng.uniform(size=(20000, 1)) ** 0.1 / np.linalg.norm(moves, axis=1, keepdims=True)
    for y in (1.0, -1.0):
        reached = np.maximum(1 - y * ((x + moves) @ w + b), 0)
        for side, best in ((1.0, reached.max()), (-1.0, reached.min())):
            stated = _objective(x[None], y, w, b, 0.0, radius, side=side)
            there = x - side * y * radius * w / np.linalg.norm(w)
            assert_allclose(max(1 - y * (there @ w + b), 0), stated, atol=1e-12)
            assert side * (stated - best) >= -1e-12
            assert abs(stated - best) < 0.02


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("attitude", ["pessimistic", "optimistic"])
def test_rounds_are_plain_fits_on_displaced_rows(two_classes, rng, attitude, fit_intercept):
    X, y = two_classes(30, 3)
    weights, side = rng.uniform(0.3, 2, size=30), 1.0 if attitude == "pessimistic" else -1.0
    model = _quiet(0.3, attitude, alpha=0.7, fit_intercept=fit_intercept, max_iter=5, tol=1e-9)(X, y, weights)
    w, objectives = np.zeros(3), []
    for _ in range(len(model.objectives_[0])):
        size = np.linalg.norm(w)
        moved = X - side * 0.3 * np.outer(y, w / size if size > 0 else w)
        plain = RobustLinearClassifier(alpha=0.7, fit_intercept=fit_intercept, tol=1e-10).fit(moved, y, weights)
        w, b = plain.coef_[0], plain.intercept_[0]
        objectives.append(_objective(X, y, w, b, 0.7, 0.3, weights, side))
    assert_allclose(model.objectives_[0], objectives, rtol=1e-4)
    assert_allclose(model.objective_, model.objectives_[0].min(), rtol=1e-13)
    found = _objective(X, y, model.coef_[0], model.intercept_[0], 0.7, 0.3, weights, side)
    assert_allclose(model.objective_, found, rtol=1e-12)


def test_optimists_never_lose_and_prove_nothing(draw_classes):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = draw_classes(rng, 30, 3, separation=rng.uniform(0.3, 1.5))
        model = _quiet(rng.uniform(0.1, 1.0), "optimistic", alpha=10 ** rng.uniform(-1, 1))(X, y)
        fall = -np.diff(model.objectives_[0])
        assert np.all(fall >= -1e-6 * model.objectives_[0][0])
        assert model.gap_ == np.inf
        assert model.lower_bound_ == -np.inf
        assert not hasattr(model, "proof_weights_")


def test_rounds_settle_at_the_optimum_or_say_that_they_have_not(draw_classes):
    seen = set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = draw_classes(rng, 30, 2, separation=rng.uniform(0.5, 2.5), offset=0.0)
        radius, alpha = rng.uniform(0.02, 1.0), 10 ** rng.uniform(-1, 1.5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = AlternatingSVC(radius, alpha=alpha, fit_intercept=False, max_iter=15).fit(X, y)
        exact = _exact(X, y, alpha, radius, False)
        seen.add(model.converged_)
        if model.converged_:
            assert not caught
            assert model.gap_ <= 1e-6
            assert_allclose(model.objective_, exact.objective_, rtol=2e-6)
        else:
            assert [warning.category for warning in caught] == [ConvergenceWarning]
            assert f"RobustLinearClassifier(Ball({radius!r})" in str(caught[0].message)
            assert caught[0].filename == __file__
            assert model.gap_ > 1e-6
            assert model.n_iter_ == 15
    assert seen == {True, False}


@pytest.mark.parametrize(("share", "settles"), [(0.3, True), (0.7, False)])
def test_rounds_contract_below_half_the_pull_and_take_turns_above(four_rows, make_problem, share, settles):
    X, y, g = four_rows
    radius = share * np.linalg.norm(g) / 4
    problem = make_problem(X, y, Hinge(), Ball(radius), alpha=1.0, fit_intercept=False)
    weights = [np.array([np.cos(1.0), np.sin(1.0)])]
    for _ in range(40):
        weights.append(train(displaced(problem, weights[-1], 1.0), tol=1e-10, max_iter=200)[0].parameters)
        direction = weights[-2] / np.linalg.norm(weights[-2])
        assert_allclose(weights[-1], g - 4 * radius * direction, atol=1e-4)
    assert_allclose(weights[-1], weights[-3], atol=1e-4)
    assert (np.linalg.norm(weights[-1] - weights[-2]) < 1e-3) == settles
    assert (np.linalg.norm(weights[-1] - (1 - share) * g) < 1e-3) == settles


def test_radius_0_is_the_ordinary_svm_in_one_round(two_classes):
    X, y = two_classes(30, 3)
    plain = RobustLinearClassifier(alpha=0.3).fit(X, y)
    for attitude in ("pessimistic", "optimistic"):
        model = AlternatingSVC(0.0, attitude, alpha=0.3).fit(X, y)
        assert model.n_iter_ == 1
        assert_allclose(model.objective_, plain.objective_, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("attitude", ["pessimistic", "optimistic"])
def test_sparse_rows_weights_and_several_classes(several_classes, rng, attitude):
    X, y = several_classes()
    X = X * (rng.uniform(size=X.shape) < 0.7)
    times = rng.integers(1, 4, size=len(y))
    model = _quiet(0.05, attitude, max_iter=2)(X, y, times)
    assert len(model.objectives_) == 3
    assert_allclose(model.objective_, sum(part.min() for part in model.objectives_), rtol=1e-12)
    thin = _quiet(0.05, attitude, max_iter=2)(sparse.csr_array(X), y, times)
    assert_allclose(thin.coef_, model.coef_, atol=1e-6)
    repeated = _quiet(0.05, attitude, max_iter=2)(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(repeated.objective_, model.objective_, rtol=1e-5)
    for k in range(3):
        one = _quiet(0.05, attitude, max_iter=2)(X, y == k, times)
        assert_allclose(one.coef_[0], model.coef_[k], atol=1e-12)


def test_classes_can_be_weighted(two_classes):
    X, y = two_classes(30, 3)
    by_class = _quiet(0.1, class_weight={1.0: 3.0})(X, y)
    by_row = _quiet(0.1)(X, y, np.where(y > 0, 3.0, 1.0))
    assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{"attitude": "neutral"}, {"radius": -1.0}, {"radius": "0.1"}, {"alpha": 0.0}, {"tol": 0.0}, {"max_iter": 0}],
    ids=str,
)
def test_senseless_settings_are_refused_by_name(two_classes, settings):
    name, value = next(iter(settings.items()))
    with pytest.raises(ValueError, match="AlternatingSVC") as caught:
        AlternatingSVC(**settings).fit(*two_classes(10, 2))
    assert f"{name}={value!r}" in str(caught.value)
