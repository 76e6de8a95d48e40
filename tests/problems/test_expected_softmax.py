"""Several classes at once under noise: objective, derivatives, solvers, and the proof by the ridge."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from holdfast import GaussianNoise
from holdfast._core.problem import Composite, Curved, Smooth
from holdfast._core.programs import FiniteSum
from holdfast._data import rows_of
from holdfast._problems.expected_softmax import ExpectedSoftmaxProblem
from holdfast._proofs import expected_softmax
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import ExpectedCrossEntropy
from holdfast.solvers.plane_search import best_along
from holdfast.solvers.selection import solve

NOISES = ("none", "common", "covariance", "X_std", "X_factor", "some rows")
STEP = 1e-6


@pytest.fixture
def make(several_classes, rng):
    """A function that draws a problem of three or four classes with weights, and its rows."""

    def make(name="X_std", *, alpha=0.6, fit_intercept=True, sizes=(9, 7, 8)):
        X, y = several_classes(sizes, 3)
        n, root = len(y), rng.normal(size=(3, 3))
        some = rng.uniform(0, 1, size=X.shape) * (rng.uniform(size=(n, 1)) < 0.5)
        noise, metadata = {
            "none": (GaussianNoise(0.0), {}),
            "common": (GaussianNoise(0.6), {}),
            "covariance": (GaussianNoise(cov=0.2 * root @ root.T), {}),
            "X_std": (GaussianNoise(), {"X_std": rng.uniform(0.1, 1, size=X.shape)}),
            "X_factor": (GaussianNoise(0.5), {"X_factor": rng.normal(size=(n, 3, 2))}),
            "some rows": (GaussianNoise(), {"X_std": some}),
        }[name]
        weights = rng.uniform(0.3, 2.0, size=n)
        loss, sets = ExpectedCrossEntropy(), noise.at(X, metadata)
        return ExpectedSoftmaxProblem(rows_of(X), y, weights, loss, sets, alpha, fit_intercept), X

    return make


@pytest.fixture(params=NOISES)
def made(request, make):
    return make(request.param)


def _plainly(problem, X, theta):
    """Return the objective from its definition, row by row."""
    W, b = problem.split(theta)
    total = 0.0
    for i, (x, k, c) in enumerate(zip(X, problem.labels, problem.weights, strict=True)):
        rivals = [j for j in range(len(W)) if j != k]
        sets = problem.sets.take(np.array([i]))
        t = np.array([[float(np.ravel(sets.support(W[j] - W[k]))[0]) for j in rivals]])
        u = np.array([[1.0 + (W[j] - W[k]) @ x + b[j] - b[k] for j in rivals]])
        total += c * problem.loss.evaluate(u, t)[0][0]
    return total + problem.alpha * np.sum(np.square(W - W.mean(axis=0)))


def test_objective_is_the_sum_it_says(made, rng):
    problem, X = made
    theta = 0.5 * rng.normal(size=problem.n_parameters)
    assert_allclose(problem.value_and_gradient(theta)[0], _plainly(problem, X, theta), rtol=1e-12)
    W, b = problem.split(theta)
    assert_allclose(certificate(problem, W, b).objective, _plainly(problem, X, theta), rtol=1e-12)


def test_gradient_and_hessian_are_derivatives(made, rng):
    problem, _ = made
    theta = 0.5 * rng.normal(size=problem.n_parameters)
    ahead, back = (
        [problem.value_and_gradient(theta + sign * move) for move in STEP * np.eye(len(theta))] for sign in (1, -1)
    )
    slopes = [(a[0] - b[0]) / (2 * STEP) for a, b in zip(ahead, back, strict=True)]
    bends = [(a[1] - b[1]) / (2 * STEP) for a, b in zip(ahead, back, strict=True)]
    assert_allclose(problem.value_and_gradient(theta)[1], slopes, atol=1e-7)
    assert_allclose(problem.hessian(theta), bends, atol=1e-6)


def test_metric_is_made_of_the_diagonal_blocks_of_the_hessian(made, rng):
    problem, _ = made
    theta, C, p = 0.5 * rng.normal(size=problem.n_parameters), problem.n_classes, problem.n_parameters_per_class
    H = problem.hessian(theta).reshape(C, p, C, p)
    assert_allclose(problem.metric(theta), [H[k, :, k] for k in range(C)], rtol=1e-10, atol=1e-12)


def test_problem_without_noise_costs_next_to_nothing_and_is_a_start(make):
    problem, _ = make("common", sizes=(40, 30, 35))
    easier = problem.without_noise()
    assert not np.any(easier.scales(np.arange(1.0, easier.n_parameters + 1) ** 2))
    assert easier.alpha > problem.alpha
    start = solve(easier, "newton").parameters
    at_start, at_zero = (problem.value_and_gradient(theta)[0] for theta in (start, 0 * start))
    best = solve(problem, "newton").objective
    assert at_start - best < 0.2 * (at_zero - best)
    for name in ("none", "X_std"):
        assert make(name)[0].without_noise() is None


def test_place_knows_products_and_the_best_along_a_step(made, rng):
    problem, _ = made
    place = problem.at(0.5 * rng.normal(size=problem.n_parameters))
    value, gradient = problem.value_and_gradient(place.parameters)
    assert_allclose(place.value, value, rtol=1e-13)
    assert_allclose(place.gradient, gradient, atol=1e-12)
    v = rng.normal(size=problem.n_parameters)
    assert_allclose(place.product(v)[0], problem.hessian(place.parameters) @ v, atol=1e-10)
    step = -place.preconditioner()(place.gradient)
    plane, x = place.plane(step), np.array([1.1, 0.2])
    moves = STEP * np.eye(2)
    slopes = [(plane.value_and_gradient(x + e)[1] - plane.value_and_gradient(x - e)[1]) / (2 * STEP) for e in moves]
    assert_allclose(plane.hessian(x), slopes, rtol=1e-5, atol=1e-5)
    assert best_along(place, step, 1e-12).value < place.value


def test_views_are_those_of_a_smooth_problem_without_steps_row_by_row(make):
    problem, _ = make()
    assert all(problem.offers(view) for view in (Smooth, Curved, Composite))
    assert not problem.offers(FiniteSum)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", NOISES)
def test_optimum_is_that_of_a_referee(make, name, fit_intercept):
    problem, X = make(name, fit_intercept=fit_intercept)
    found, proof = train(problem, tol=1e-9, max_iter=100)
    start = np.zeros(problem.n_parameters)
    referee = minimize(
        problem.value_and_gradient, start, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9}
    )
    assert proof.gap <= 1e-9
    assert proof.lower_bound <= _plainly(problem, X, referee.x) * (1 + 1e-13)
    assert_allclose(proof.objective, referee.fun, rtol=1e-10)
    W, b = (part - part.mean(axis=0) for part in problem.split(found.parameters))
    V, a = (part - part.mean(axis=0) for part in problem.split(referee.x))
    assert_allclose(W, V, atol=1e-4)
    assert_allclose(b, a, atol=1e-4)
    assert np.linalg.norm(V) <= proof.norm_bound


@pytest.mark.parametrize("solver", ["newton", "quasi_newton", "newton_cg"])
def test_every_solver_is_certified(make, solver):
    for name in NOISES:
        problem, _ = make(name, sizes=(9, 7, 8, 6))
        _, proof = train(problem, solver, tol=1e-6, max_iter=300)
        assert proof.gap <= 1e-6


def test_no_point_has_a_bound_above_the_optimum(made, rng):
    problem, _ = made
    found, proof = train(problem, tol=1e-10, max_iter=100)
    for size in (1e-4, 1e-2, 0.3, 3.0):
        near = found.parameters + size * rng.normal(size=len(found.parameters))
        there = certificate(problem, *problem.split(near))
        assert there.lower_bound <= proof.objective * (1 + 1e-12)
        assert there.objective >= proof.lower_bound * (1 - 1e-12)


def test_gap_is_of_second_order_also_in_the_intercepts(make, rng):
    problem, _ = make()
    found, _ = train(problem, tol=1e-10, max_iter=100)
    W, b = problem.split(found.parameters)
    moves = rng.normal(size=W.shape), rng.normal(size=b.shape)
    gaps = [certificate(problem, W + size * moves[0], b + size * moves[1]).gap for size in (1e-2, 1e-3, 1e-4)]
    assert gaps[1] < 0.02 * gaps[0]
    assert gaps[2] < 0.02 * gaps[1]
    # intercepts alone are found again
    assert certificate(problem, W, b + 0.1 * moves[1]).lower_bound >= found.objective * (1 - 1e-9)


def test_a_bound_pays_for_intercepts_that_are_not_the_best(make, monkeypatch):
    """Steps for the intercepts are for a better bound; without them it is a bound as well."""
    monkeypatch.setattr(expected_softmax, "MOST_STEPS", 0)
    problem, _ = make()
    found, proof = train(problem, tol=1e-6, max_iter=100)
    W, b = problem.split(found.parameters)
    for move in (0.01, 0.1, 0.5):
        for way in (*np.eye(3), *-np.eye(3)):
            assert certificate(problem, W, b + move * way).lower_bound < proof.objective


def test_estimate_of_the_gap_is_near_the_proved_one(made, rng):
    problem, _ = made
    found, _ = train(problem, tol=1e-10, max_iter=100)
    W, b = problem.split(found.parameters)
    near = problem.join(W + 1e-3 * rng.normal(size=W.shape), b)
    gap = certificate(problem, *problem.split(near)).gap
    assert gap / 2 < problem.suboptimality(problem.evaluate(near)) < 2 * gap


def test_without_a_ridge_nothing_is_promised(make):
    problem, _ = make(alpha=0.0)
    _, proof = train(problem, tol=1e-6, max_iter=200)
    assert proof.lower_bound == -np.inf
    assert proof.gap == np.inf


def test_what_all_classes_share_changes_nothing(made, rng):
    problem, _ = made
    W, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    there = problem.value_and_gradient(problem.join(W + rng.normal(size=3), b + 2.0))[0]
    assert_allclose(there, problem.value_and_gradient(problem.join(W, b))[0], rtol=1e-12)


def test_covariances_known_in_part_are_certified(several_classes, rng):
    X, y = several_classes((12, 9, 10), 3)
    for std, unknown in (([0.5, 0.2, 0.4], "correlations"), (0.6, "variances")):
        sets = GaussianNoise(std=std, unknown=unknown).at(X, {})
        problem = ExpectedSoftmaxProblem(rows_of(X), y, np.ones(31), ExpectedCrossEntropy(), sets, 0.5)
        assert train(problem, tol=1e-6, max_iter=1000)[1].gap <= 1e-6
