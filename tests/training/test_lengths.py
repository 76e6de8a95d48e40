"""The validation loss as a function of lengths, against finite differences and formulas written again."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._training.lengths import ValidatedLengths
from holdfast._training.stochastic_lengths import stochastic_lengths
from holdfast.losses import Hinge
from holdfast.solvers.in_box import minimised_in_box
from holdfast.uncertainty.ellipsoids import CommonEllipsoid

ROUNDINGS = (1.0, 0.2, 0.06)


class Drawn:
    """A problem of random rows, with slopes of features by row or without, far from the origin or not."""

    def __init__(self, seed, *, sloped=False, offset=0.0, n_classes=1, fit_intercept=True):
        rng = np.random.default_rng(seed)
        n, d, self.alpha = int(rng.integers(20, 50)), int(rng.integers(2, 5)), 10 ** rng.uniform(-1.5, 0.3)
        self.X, self.X_val = rng.normal(size=(n, d)), rng.normal(size=(30, d))
        slant = rng.normal(size=(n_classes, d))
        self.y = [np.where(self.X @ w + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0) for w in slant]
        self.y_val = [np.where(self.X_val @ w + 0.5 * rng.normal(size=30) > 0, 1.0, -1.0) for w in slant]
        self.weights, self.weights_val = rng.uniform(0.2, 2.0, n), rng.uniform(0, 1 / 30, 30)
        self.G = rng.normal(size=(n, d, 3)) if sloped else None
        none = CommonEllipsoid(np.zeros(()))
        rows, others = rows_of(self.X + offset), rows_of(self.X_val + offset)
        self.lengths = ValidatedLengths(
            [MarginScaleProblem(rows, y, self.weights, Hinge(), none, self.alpha, fit_intercept) for y in self.y],
            [MarginScaleProblem(others, y, self.weights_val, Hinge(), none, 0.0, fit_intercept) for y in self.y_val],
            self.G,
        )
        self.squares = (10 ** rng.uniform(-2, -0.2, 3 if sloped else d)) ** 2

    def value(self, squares, scale):
        return self.lengths.value_and_gradient(squares, scale)[0]

    def differences(self, squares, scale, share=1e-4):
        steps = share * squares * np.eye(len(squares))
        return np.array(
            [(self.value(squares + e, scale) - self.value(squares - e, scale)) / (2 * e.sum()) for e in steps]
        )


CASES = [{}, {"sloped": True}, {"offset": 300.0}, {"n_classes": 3}, {"fit_intercept": False}]


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("scale", ROUNDINGS)
@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_central_differences(options, scale, seed):
    drawn = Drawn(seed, **options)
    gradient = drawn.lengths.value_and_gradient(drawn.squares, scale)[1]
    assert np.abs(gradient).max() > 1e-6
    found = drawn.differences(drawn.squares, scale)
    assert np.abs(found - gradient).max() <= 1e-4 * np.abs(gradient).max()


@pytest.mark.parametrize("sloped", [False, True])
def test_the_value_is_the_validation_loss_of_what_a_general_optimiser_trains(sloped):
    drawn = Drawn(3, sloped=sloped)
    X, y, scale = drawn.X, drawn.y[0], 0.2
    rounded = lambda x: 0.5 * (x + np.sqrt(x**2 + scale**2))

    def push(w):
        roots = w if drawn.G is None else np.einsum("ijk,j->ik", drawn.G, w)
        return np.sqrt(np.square(roots) @ drawn.squares + 1e-12)

    def trained(theta):
        w, b = theta[:-1], theta[-1]
        return drawn.weights @ rounded(1 - y * (X @ w + b) + push(w)) + 0.5 * drawn.alpha * w @ w

    theta = minimize(trained, np.full(X.shape[1] + 1, 0.01), method="BFGS", options={"gtol": 1e-9}).x
    found = drawn.weights_val @ rounded(1 - drawn.y_val[0] * (drawn.X_val @ theta[:-1] + theta[-1]))
    assert_allclose(drawn.value(drawn.squares, scale), found, rtol=1e-5)


def test_values_and_gradients_do_not_depend_on_where_training_started():
    drawn, fresh = Drawn(1), Drawn(1)
    for scale in ROUNDINGS:
        drawn.lengths.value_and_gradient(np.full_like(drawn.squares, 0.3), scale)
    for one, other in zip(
        drawn.lengths.value_and_gradient(drawn.squares, 0.06),
        fresh.lengths.value_and_gradient(fresh.squares, 0.06),
        strict=True,
    ):
        assert_allclose(one, other, rtol=1e-6)


def test_at_a_length_of_zero_the_loss_has_no_slope_in_it_but_one_in_its_square():
    drawn = Drawn(0)
    squares, tiny = np.array([0.0, *drawn.squares[1:]]), 1e-5
    gradient = drawn.lengths.value_and_gradient(squares, 0.2)[1]
    assert abs(gradient[0]) > 1e-4
    moved = squares + np.eye(len(squares))[0] * tiny**2
    assert abs(drawn.value(moved, 0.2) - drawn.value(squares, 0.2)) / tiny < 1e-3 * abs(gradient[0])
    assert_allclose(
        (drawn.value(squares + 1e-6 * np.eye(len(squares))[0], 0.2) - drawn.value(squares, 0.2)) / 1e-6,
        gradient[0],
        rtol=1e-2,
    )


def test_the_training_optimum_grows_with_every_length():
    drawn = Drawn(2)

    def optimum(squares):
        drawn.lengths.value_and_gradient(squares, 0.06)
        own, theta = drawn.lengths.trained[0], drawn.lengths._last[0]
        return own.having(sets=drawn.lengths.sets(squares)).value_and_gradient(theta)[0]

    found = [optimum(size * drawn.squares) for size in (0.01, 0.1, 1.0, 10.0)]
    assert np.all(np.diff(found) > -1e-3)


@pytest.mark.thin(4)
@pytest.mark.parametrize("seed", range(4))
def test_descent_ends_where_the_loss_is_flat_and_not_above_random_lengths(seed):
    drawn, rng = Drawn(seed), np.random.default_rng(seed)
    low, high = np.full_like(drawn.squares, 0.01), np.ones_like(drawn.squares)
    loss = lambda squares: drawn.lengths.value_and_gradient(squares, 0.2)
    starts = [
        minimised_in_box(loss, start * high, low, high, tol=1e-6, gain=1e-9, max_iter=100) for start in (0.03, 0.3)
    ]
    at, value = min(starts, key=lambda found: found[1])
    slope = loss(at)[1]
    assert np.abs(np.clip(at - slope, low, high) - at).max() < 1e-3
    assert value <= min(drawn.value(rng.uniform(low, high), 0.2) for _ in range(30)) + 1e-3


def test_a_part_of_the_rows_is_the_problem_of_these_rows():
    drawn = Drawn(5, sloped=True)
    some, others = np.arange(0, len(drawn.X), 2), np.arange(0, 30, 3)
    none = CommonEllipsoid(np.zeros(()))
    own = MarginScaleProblem(rows_of(drawn.X[some]), drawn.y[0][some], drawn.weights[some], Hinge(), none, drawn.alpha)
    asked = MarginScaleProblem(
        rows_of(drawn.X_val[others]), drawn.y_val[0][others], drawn.weights_val[others], Hinge(), none
    )
    written = ValidatedLengths([own], [asked], drawn.G[some])
    for one, other in zip(
        drawn.lengths.part(some, others).value_and_gradient(drawn.squares, 0.2),
        written.value_and_gradient(drawn.squares, 0.2),
        strict=True,
    ):
        assert_allclose(one, other, rtol=1e-7)


def test_stochastic_steps_stay_within_bounds_and_lower_the_validation_loss():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(200, 4)), rng.normal(size=(400, 4))
    y, y_val = np.where(X.sum(axis=1) > 0, 1.0, -1.0), np.where(X_val.sum(axis=1) > 0, 1.0, -1.0)
    X_val = X_val + [0, 0, 2, 2] * rng.normal(size=X_val.shape)
    none = CommonEllipsoid(np.zeros(()))
    problem = ValidatedLengths(
        [MarginScaleProblem(rows_of(X), y, np.ones(200), Hinge(), none, 0.5)],
        [MarginScaleProblem(rows_of(X_val), y_val, np.full(400, 1 / 400), Hinge(), none)],
    )
    low, high = np.full(4, 1e-4), np.ones(4)
    found = [stochastic_lengths(problem, np.full(4, 0.01), low, high, rng=np.random.default_rng(s)) for s in (0, 0, 1)]
    assert np.array_equal(found[0], found[1])
    for squares in found[1:]:
        assert np.all((low <= squares) & (squares <= high))
        assert squares[2:].min() > 4 * squares[:2].max()
        assert problem.value_and_gradient(squares, 0.06)[0] < 0.8 * problem.value_and_gradient(low, 0.06)[0]
