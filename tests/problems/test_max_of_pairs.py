"""Several classes at once at the worst points of their rows: objective, derivatives, and the proof."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from holdfast import Ball, Box, Ellipsoid, IntervalBox
from holdfast._core.problem import Composite, Curved, Smooth
from holdfast._core.programs import ConeProgram
from holdfast._core.solution import DualGuess
from holdfast._data import rows_of
from holdfast._problems.max_of_pairs import MaxOfPairsProblem
from holdfast._problems.pairwise import PairwiseProblem
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import CrossEntropy, Hinge, MaxHinge
from holdfast.solvers import Newton
from holdfast.solvers.selection import solve

SETS = ("ball", "cube", "diamond", "norm_3", "norm_1.3", "X_radius", "X_std_box", "X_std", "intervals", "sum")


@pytest.fixture
def make(several_classes, rng):
    """A function that draws a problem of three or four classes with weights."""

    def make(name="ball", *, loss=None, alpha=0.7, fit_intercept=True, sizes=(9, 7, 8), separation=1.5):
        X, y = several_classes(sizes, 3, separation=separation)
        s, radii = rng.uniform(0, 0.5, size=X.shape), rng.uniform(0, 1, size=len(X))
        ends = {"X_lower": X - s, "X_upper": X + 0.3 * s[::-1]}
        sets, metadata = {
            "ball": (Ball(0.3), {}),
            "cube": (Ball(0.2, np.inf), {}),
            "diamond": (Ball(0.4, 1), {}),
            "norm_3": (Ball(0.3, 3), {}),
            "norm_1.3": (Ball(0.3, 1.3), {}),
            "X_radius": (Ball(0.5), {"X_radius": radii}),
            "X_std_box": (Box(0.7), {"X_std": s}),
            "X_std": (Ellipsoid(0.9), {"X_std": s}),
            "intervals": (IntervalBox(), ends),
            "sum": (Ball(0.1) + IntervalBox(), ends),
        }[name]
        weights = rng.uniform(0.3, 2.0, size=len(y))
        bound = sets.at(X, metadata)
        return MaxOfPairsProblem(rows_of(X), y, weights, loss or MaxHinge(), bound, alpha, fit_intercept), X

    return make


def _point(problem, rng, size=0.5):
    return size * rng.normal(size=problem.n_parameters)


@pytest.mark.parametrize("name", ["ball", "norm_3", "X_std"])
def test_metric_is_made_of_the_diagonal_blocks_of_the_hessian(make, name, rng, monkeypatch):
    problem = make(name)[0].smoothed(0.3)
    theta, C, p = _point(problem, rng), problem.n_classes, problem.n_parameters_per_class
    H = problem.hessian(theta).reshape(C, p, C, p)
    blocks = [H[k, :, k] for k in range(C)]
    assert_allclose(problem.metric(theta), blocks, rtol=1e-9, atol=1e-10)
    # sets that look different from both sides are asked for both
    monkeypatch.setattr(type(problem.own_sets[0]), "is_symmetric", False)
    assert_allclose(problem.metric(theta), blocks, rtol=1e-9, atol=1e-10)


def _plain_loss(problem, W, b, points):
    """Return the multiclass hinge of every row at the given points, from its definition."""
    scores = points @ W.T + b
    own = np.take_along_axis(scores, problem.labels[:, None], axis=1)
    return np.max(1.0 * (problem.labels[:, None] != np.arange(len(W))) + scores - own, axis=1)


@pytest.mark.parametrize("name", SETS)
def test_no_admissible_point_costs_more_and_one_costs_as_much(make, rng, name):
    problem, X = make(name, alpha=0.0)
    W, b = problem.split(theta := _point(problem, rng))
    unit = [problem.restricted(np.array([i]), np.ones(1)).value_and_gradient(theta)[0] for i in range(len(X))]
    for points in problem.sets.sample(rng, 300, 3):
        assert np.all(_plain_loss(problem, W, b, X + points) <= np.array(unit) + 1e-12)
    worst = np.zeros(len(X))
    for c in range(len(W)):
        for k in range(len(W)):
            point = np.broadcast_to(problem.sets.maximizer(W[c] - W[k]), X.shape)
            reached = _plain_loss(problem, W, b, X + point)
            worst = np.where(problem.labels == k, np.maximum(worst, reached), worst)
    assert_allclose(worst, unit, rtol=1e-12)
    assert_allclose(problem.value_and_gradient(theta)[0], problem.weights @ worst, rtol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", [MaxHinge(), CrossEntropy()], ids=repr)
@pytest.mark.parametrize("name", SETS)
def test_gradient_and_hessian_are_derivatives(make, rng, name, loss, fit_intercept):
    problem = make(name, loss=loss, fit_intercept=fit_intercept, sizes=(7, 6, 5, 6))[0].smoothed(0.4)
    theta, step = _point(problem, rng), 1e-6
    _, gradient = problem.value_and_gradient(theta)
    H = problem.hessian(theta)
    assert_allclose(H, H.T, atol=1e-12 * np.abs(H).max())
    for j, move in enumerate(step * np.eye(len(theta))):
        (up, up_slope), (down, down_slope) = (problem.value_and_gradient(theta + s * move) for s in (1, -1))
        assert_allclose(gradient[j], (up - down) / (2 * step), atol=1e-6)
        assert_allclose(H[j], (up_slope - down_slope) / (2 * step), atol=1e-5)


def test_one_vector_added_to_all_classes_changes_nothing(make, rng):
    problem, _ = make(sizes=(7, 6, 5, 6))
    W, b = problem.split(theta := _point(problem, rng))
    moved = problem.join(W + rng.normal(size=3), b + 1.7)
    assert_allclose(problem.value_and_gradient(moved)[0], problem.value_and_gradient(theta)[0], rtol=1e-13)


def test_views_are_those_of_a_smooth_function(make):
    problem, _ = make()
    assert [problem.offers(kind) for kind in (Smooth, Curved, Composite, ConeProgram)] == [True, True, False, False]


@pytest.mark.thin(12)
@pytest.mark.parametrize("loss", [MaxHinge(), CrossEntropy()], ids=repr)
@pytest.mark.parametrize("name", SETS)
def test_optimum_is_proved(make, name, loss):
    for fit_intercept in (True, False):
        problem, _ = make(name, loss=loss, fit_intercept=fit_intercept)
        found, proof = train(problem, tol=1e-7, max_iter=500)
        assert proof.gap <= 1e-7
        W, _ = problem.split(found.parameters)
        assert np.linalg.norm(W - W.mean(axis=0)) <= proof.norm_bound


@pytest.mark.parametrize("loss", [MaxHinge(), CrossEntropy()], ids=repr)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("trials", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_nonsense_proves_nothing_false(make, rng, name, loss, trials):
    for fit_intercept in (True, False):
        problem, _ = make(name, loss=loss, fit_intercept=fit_intercept, alpha=rng.choice([0.01, 1.0]))
        found, proof = train(problem, tol=1e-7, max_iter=500)
        near = problem.smoothed(0.1).dual_guess(found.parameters)
        for trial in range(trials):
            slopes = rng.uniform(-0.5, 3.0, size=near.slopes.shape) if trial % 2 else near.slopes * rng.uniform(0, 3)
            scale = near.scale * 10 ** rng.uniform(-3, 3, size=near.scale.shape)
            direction = rng.normal(size=near.direction.shape) * 10 ** rng.uniform(-3, 3)
            guess = DualGuess(slopes, direction, scale, near.sets if trial % 3 else None)
            theta = _point(problem, rng, 10 ** rng.uniform(-2, 1))
            claimed = certificate(problem, *problem.split(theta), guess)
            assert claimed.lower_bound <= proof.objective * (1 + 1e-12)
            assert_allclose(claimed.objective, problem.value_and_gradient(theta)[0], rtol=1e-11)


def test_dual_weights_of_the_sum_over_pairs_prove_no_more_than_the_maximum_costs(make):
    problem, _ = make(alpha=0.5, separation=0.2)
    pairs = PairwiseProblem(problem.rows, problem.labels, problem.weights, Hinge(), problem.sets, 0.5)
    near = pairs.having(loss=pairs.loss.smoothed(1e-3), sets=pairs.sets.smoothed(1e-3))
    found = solve(near, Newton(), tol=1e-9)
    guess = near.dual_guess(found.parameters)
    assert np.max(guess.slopes.sum(axis=1)) > 1.5
    optimum = train(problem, tol=1e-7, max_iter=500)[1].objective
    assert found.objective > 1.2 * optimum
    assert certificate(problem, *problem.split(found.parameters), guess).lower_bound <= optimum


def test_point_without_a_guess_has_a_proof_too(make, rng):
    problem, _ = make(fit_intercept=False)
    found, _ = train(problem, tol=1e-9, max_iter=500)
    W, b = problem.split(found.parameters)
    assert certificate(problem, W, b).gap < 0.5
    assert certificate(problem, 0 * W, b).lower_bound <= problem.value_and_gradient(found.parameters)[0]


def test_dual_weights_are_admissible_and_bound_the_lagrangian(make):
    """The bound is not above the least that the lines with these slopes, ridge included, come to."""
    problem, X = make(sizes=(6, 7, 5))
    _, proof = train(problem, tol=1e-8, max_iter=500)
    a = np.where(problem.labels[:, None] == np.arange(3), 0.0, -proof.dual)
    assert np.all(a >= 0)
    assert np.all(a.sum(axis=1) <= problem.weights * (1 + 1e-12))
    assert_allclose(proof.dual.sum(axis=0), 0, atol=1e-12 * problem.weights.sum())
    assert_allclose(proof.dual.sum(axis=1), 0, atol=1e-14)

    def lagrangian(theta):
        W, b = problem.split(theta)
        apart = W[problem.labels][:, None] - W
        leads = np.einsum("ncj,nj->nc", apart, X) + (b[problem.labels][:, None] - b)
        return np.sum(a * (1 - leads + 0.3 * np.linalg.norm(apart, axis=2))) + problem.ridge(W)

    starts = np.random.default_rng(3).normal(size=(5, problem.n_parameters))
    least = min(minimize(lagrangian, start, options={"gtol": 1e-9}).fun for start in starts)
    assert proof.lower_bound <= least + 1e-7
    assert_allclose(proof.lower_bound, least, rtol=1e-5)


def test_more_shares_than_there_are_are_not_admitted(make, rng):
    problem, _ = make()
    a = problem.admissible(rng.uniform(-1, 3, size=(24, 3)))
    assert np.all(a >= 0)
    assert a.sum(axis=1).max() <= 1 + 1e-15
    assert np.all(a[np.arange(24), problem.labels] == 0)
    kept = rng.dirichlet(np.ones(3), size=24) * (problem.labels[:, None] != np.arange(3))
    assert np.array_equal(problem.admissible(kept), kept)
