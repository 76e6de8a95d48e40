"""The problem of several classes seen from a point: what Newton's method with conjugate gradients asks of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._problems.local_pairwise_model import _ScaleAndStep
from holdfast.losses import GaussianHinge
from holdfast.solvers.plane_search import best_along

STEP = 1e-6


@pytest.fixture(params=["common", "by_row", "covariance"])
def noise(request, rng):
    factors = rng.normal(size=(30, 3, 2))
    return {
        "common": (GaussianNoise(0.5), {}),
        "by_row": (GaussianNoise(), {"X_std": rng.uniform(0.1, 1, size=(30, 3))}),
        "covariance": (GaussianNoise(0.5), {"X_factor": factors}),
    }[request.param]


@pytest.fixture(params=[0.0, 0.3], ids=["plain", "smoothed"])
def place(request, noise, several_classes, make_pairwise, rng):
    X, y = several_classes((10, 5, 8, 7))
    problem = make_pairwise(
        X, y, GaussianHinge(), noise[0], metadata=noise[1], weights=rng.uniform(0.5, 2, 30), alpha=0.4
    )
    problem = problem.smoothed(request.param)
    return problem.at(rng.normal(size=problem.n_parameters))


def test_place_knows_value_and_gradient_of_the_problem(place):
    value, gradient = place.problem.value_and_gradient(place.parameters)
    assert_allclose(place.value, value, rtol=1e-13)
    assert_allclose(place.gradient, gradient, rtol=1e-12, atol=1e-12)


def test_product_is_the_hessian_times_a_vector(place, rng):
    v = rng.normal(size=place.problem.n_parameters)
    assert_allclose(place.product(v)[0], place.problem.hessian(place.parameters) @ v, rtol=1e-10, atol=1e-10)


def test_search_along_a_step_takes_the_moves_that_products_tell(place, rng):
    step, x = rng.normal(size=place.problem.n_parameters), np.array([1.1, 0.2])
    told = place.plane(step, place.product(step)[1])
    assert_allclose(told.moves, place.plane(step).moves, rtol=1e-10, atol=1e-12)
    assert_allclose(told.value_and_gradient(x)[0], place.plane(step).value_and_gradient(x)[0], rtol=1e-12)


def test_preconditioner_is_positive_definite_and_close_to_the_diagonal_blocks(place, rng):
    precondition, n = place.preconditioner(), place.problem.n_parameters
    M = np.column_stack([precondition(unit) for unit in np.eye(n)])
    assert_allclose(M, M.T, rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(M)[0] > 0
    H, size = place.problem.hessian(place.parameters), place.problem.n_parameters_per_class
    for k in range(place.problem.n_classes):
        block = slice(k * size, (k + 1) * size)
        ratios = np.linalg.eigvals(M[block, block] @ H[block, block]).real
        assert ratios.min() > 0.05
        assert ratios.max() < 5


def test_estimate_of_the_gap_is_of_the_point_that_was_evaluated_whatever_was_since(place):
    problem, here = place.problem, place.problem.evaluate(place.parameters)
    estimate = problem.suboptimality(here)
    problem.evaluate(3 * place.parameters + 1.0)
    assert problem.suboptimality(here) == estimate


def test_search_over_scale_and_step_has_the_derivatives_it_claims(place, rng):
    step = rng.normal(size=place.problem.n_parameters)
    plane = _ScaleAndStep(place, step)
    x = np.array([1.1, 0.2])
    value, gradient = plane.value_and_gradient(x)
    assert_allclose(value, place.problem.value_and_gradient(plane.point(*x))[0], rtol=1e-12)
    changes = [
        [a - b for a, b in zip(plane.value_and_gradient(x + e), plane.value_and_gradient(x - e), strict=True)]
        for e in STEP * np.eye(2)
    ]
    assert_allclose(gradient, [value / (2 * STEP) for value, _ in changes], rtol=1e-6, atol=1e-6)
    assert_allclose(plane.hessian(x), [slope / (2 * STEP) for _, slope in changes], rtol=1e-5, atol=1e-5)


@pytest.mark.thin(2)
def test_best_place_along_a_step_is_the_best_and_keeps_its_scores(place):
    step = -place.preconditioner()(place.gradient)
    best = best_along(place, step, 1e-14)
    problem = place.problem
    assert best.value < place.value
    assert_allclose(best.value, problem.value_and_gradient(best.parameters)[0], rtol=1e-12)
    W, _ = problem.split(best.parameters)
    assert_allclose(best.scores, problem.rows.dot(np.ascontiguousarray(W.T)), rtol=1e-10, atol=1e-12)
    for change in (problem.join(place.W, np.zeros(4)), step):
        assert abs(best.gradient @ change) <= 1e-5 * abs(place.gradient @ change) + 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "two_point"])
def test_wide_sparse_rows_of_several_classes_are_certified(loss, rng):
    n, d, classes = 700, 3000, 4
    words = rng.zipf(1.3, size=(n, 30)) % d
    X = sparse.csr_array((np.ones(n * 30), (np.repeat(np.arange(n), 30), words.ravel())), shape=(n, d))
    X.sum_duplicates()
    W = rng.normal(size=(d, classes)) * (rng.uniform(size=(d, 1)) < 0.3)
    y = np.argmax(X @ W + rng.gumbel(size=(n, classes)), axis=1)
    model = GaussianRobustClassifier(0.3, loss=loss).fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.solution_["solver"] == "newton_cg"
    dense = GaussianRobustClassifier(0.3, loss=loss, tol=1e-9).fit(X.toarray(), y)
    assert_allclose(model.objective_, dense.objective_, rtol=1e-6)
