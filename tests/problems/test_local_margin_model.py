"""A problem seen from a place: the same function as the problem itself, and the exact minimum over a plane."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize

from holdfast import GaussianNoise
from holdfast._core import chunks, compiled
from holdfast._problems import local_margin_model, margin_scale
from holdfast._proofs.certificate import certificate
from holdfast.losses import ExpectedLogistic, GaussianHinge
from holdfast.losses.hyperbolic_hinge import HyperbolicHinge
from holdfast.solvers.plane_search import best_along
from holdfast.solvers.selection import solve


@pytest.fixture(params=["number", "std", "cov", "X_std", "smoothed", "tilted", "no intercept", "sparse"])
def problem(request, loss, make_problem, two_classes, rng):
    X, y = two_classes(30, 4, separation=0.6)
    factor = rng.normal(size=(4, 4)) / 2
    noise, metadata, options = 0.6, {}, {"alpha": 0.3, "weights": rng.uniform(0.2, 2, size=30)}
    if request.param == "std":
        noise = GaussianNoise(std=[0.3, 1.0, 0.5, 0.1])
    elif request.param == "cov":
        noise = GaussianNoise(cov=factor @ factor.T + 0.1 * np.eye(4))
    elif request.param == "X_std":
        noise, metadata = GaussianNoise(), {"X_std": rng.uniform(0.2, 1.0, size=(30, 4))}
    elif request.param == "tilted":
        options |= {"tilt": rng.normal(size=5), "target": 0.0}  # as in the test for a collapse, which is smoothed
    elif request.param == "no intercept":
        options |= {"fit_intercept": False}
    elif request.param == "sparse":
        X = sparse.csr_array(np.where(rng.uniform(size=X.shape) < 0.6, X, 0.0))
    made = make_problem(X, y, loss, noise, metadata=metadata, **options)
    return made.smoothed(0.4) if request.param in ("smoothed", "tilted") else made


@pytest.fixture
def theta(problem, rng):
    return 0.7 * rng.normal(size=problem.n_parameters)


def test_place_has_the_value_and_gradient_of_the_problem(problem, theta):
    place = problem.at(theta)
    value, gradient = problem.value_and_gradient(theta)
    assert place.value == pytest.approx(value, rel=1e-12)
    assert_allclose(place.gradient, gradient, rtol=1e-10, atol=1e-10)
    assert place.gap(gradient) == pytest.approx(problem.suboptimality(problem.evaluate(theta)), rel=1e-9)


def test_estimate_of_the_gap_is_of_the_point_that_was_evaluated_whatever_was_since(problem, theta):
    here = problem.evaluate(theta)
    estimate = problem.suboptimality(here)
    problem.evaluate(3 * theta + 1.0)
    assert problem.suboptimality(here) == estimate


def test_product_is_the_hessian_times_a_vector(problem, theta, rng):
    v = rng.normal(size=problem.n_parameters)
    H = problem.hessian(theta)
    assert_allclose(problem.at(theta).product(v)[0], H @ v, rtol=1e-9, atol=1e-9 * np.abs(H).max())


def test_product_tells_how_the_scores_move(problem, theta, rng):
    v = rng.normal(size=problem.n_parameters)
    moves = problem.at(theta).product(v)[1]
    assert_allclose(moves, problem.rows.dot(problem.split(v)[0]), rtol=1e-12, atol=1e-12)


def test_quick_product_is_the_exact_one_in_single_precision(problem, theta, rng):
    v, place = rng.normal(size=problem.n_parameters), problem.at(theta)
    for quick, exact in zip(place.product(v, exact=False), place.product(v), strict=True):
        assert_allclose(quick, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_plane_takes_the_moves_of_the_scores_as_told(problem, theta, rng):
    step, x = rng.normal(size=problem.n_parameters), rng.normal(size=2)
    told = problem.at(theta).plane(step, problem.rows.dot(problem.split(step)[0]))
    found = problem.at(theta).plane(step)
    x = np.append(x, found.start[2:])
    assert told.value_and_gradient(x)[0] == pytest.approx(found.value_and_gradient(x)[0], rel=1e-12)
    doubled = problem.at(theta).plane(step, 2 * problem.rows.dot(problem.split(step)[0]))
    assert doubled.value_and_gradient(x)[0] != pytest.approx(found.value_and_gradient(x)[0], rel=1e-6)


@pytest.mark.thin(2)
def test_preconditioner_is_symmetric_and_positive_definite(problem, theta):
    precondition = problem.at(theta).preconditioner()
    M = np.array([precondition(e) for e in np.eye(problem.n_parameters)])
    assert_allclose(M, M.T, rtol=1e-9, atol=1e-12 * np.abs(M).max())
    assert np.linalg.eigvalsh(0.5 * (M + M.T))[0] > 0


def test_preconditioner_of_noise_and_rows_is_near_the_hessian(make_problem, two_classes):
    """All columns are heavy here, and only the mixed curvature of scores and scale is left out."""
    problem = make_problem(*two_classes(400, 6, separation=0.6), GaussianHinge(), 0.3)
    theta = problem.join(problem.rows.transpose_dot(problem.signs) / 400, 0.1)
    precondition = problem.at(theta).preconditioner()
    values = np.linalg.eigvals(np.array([precondition(column) for column in problem.hessian(theta).T])).real
    assert values.min() > 0.3
    assert values.max() < 3


def _best_by_a_general_optimiser(problem, theta, step):
    """Return the least value over r w + t step and the intercept."""
    w, b = problem.split(theta)
    move, _ = problem.split(step)

    def along(x):
        return problem.value_and_gradient(problem.join(x[0] * w + x[1] * move, x[2]))[0]

    starts = ([1.0, 0.0, b], [0.1, 0.1, 0.0])
    options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000}
    return min(minimize(along, start, method="Nelder-Mead", options=options).fun for start in starts)


@pytest.mark.thin(10)
def test_best_place_along_a_step_is_the_minimum_over_scale_step_and_intercept(problem, theta, rng):
    step = rng.normal(size=problem.n_parameters)
    place = best_along(problem.at(theta), step, 0.0)
    least = _best_by_a_general_optimiser(problem, theta, step)
    assert place.value <= least + 1e-8 * abs(least)
    value, gradient = problem.value_and_gradient(place.parameters)
    assert place.value == pytest.approx(value, rel=1e-10)
    assert_allclose(place.gradient, gradient, rtol=1e-7, atol=1e-8)
    # it lies in the plane
    basis = np.column_stack([problem.split(theta)[0], problem.split(step)[0]])
    w = problem.split(place.parameters)[0]
    assert_allclose(basis @ np.linalg.lstsq(basis, w, rcond=None)[0], w, atol=1e-9)


@pytest.mark.thin(2)
def test_at_the_best_place_weights_step_and_intercept_have_no_slope(problem, theta, rng):
    """What the certificate needs: w'g = 0 and balanced classes."""
    step = rng.normal(size=problem.n_parameters)
    place = best_along(problem.at(theta), step, 0.0)
    w, _ = problem.split(place.parameters)
    slope, slope_b = problem.split(place.gradient)
    move, _ = problem.split(step)
    scale = max(abs(place.value), 1.0)
    assert abs(w @ slope) <= 1e-6 * scale
    assert abs(move @ slope) <= 1e-6 * scale
    assert abs(slope_b) <= 1e-6 * scale


def test_search_can_leave_zero_weights(make_problem, two_classes, rng):
    problem = make_problem(*two_classes(30, 4), GaussianHinge(), 0.3).smoothed(1.0)
    start = problem.at(np.zeros(5))
    place = best_along(start, -start.gradient, 1e-9)
    assert np.any(problem.split(place.parameters)[0])
    assert place.value < 0.9 * start.value


def test_scores_are_computed_anew_before_rounding_adds_up(make_problem, two_classes, rng):
    problem = make_problem(*two_classes(30, 4), GaussianHinge(), 0.3)
    place = problem.at(rng.normal(size=5))
    for _ in range(20):
        place = best_along(place, rng.normal(size=5), 1e-3)
        assert place.age < 8
        assert_allclose(place.scores, problem.rows.dot(place.w), rtol=1e-12, atol=1e-12)


def test_compiled_losses_are_the_plain_ones(make_problem, two_classes, monkeypatch, rng):
    pytest.importorskip("numba")
    problem = make_problem(*two_classes(30, 4), GaussianHinge(), 0.3)
    theta = rng.normal(size=5)
    plain = problem.at(theta)
    asked = []
    kernel = compiled.kernel
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    monkeypatch.setattr(compiled, "kernel", lambda name: asked.append(name) or kernel(name))
    place = problem.at(theta)
    assert "gaussian_hinge" in asked
    assert place.value == pytest.approx(plain.value, rel=1e-13)
    assert_allclose(place.gradient, plain.gradient, rtol=1e-12, atol=1e-12)


def test_search_over_the_plane_knows_its_own_bends(problem, theta, rng):
    place, step = problem.at(theta), rng.normal(size=problem.n_parameters)
    plane = place.plane(step)
    here = plane.start
    explicit = np.array(
        [
            (plane.value_and_gradient(here + e)[1] - plane.value_and_gradient(here - e)[1]) / 2e-6
            for e in 1e-6 * np.eye(plane.n_parameters)
        ]
    )
    assert_allclose(plane.hessian(here), explicit, rtol=0, atol=1e-5 * np.abs(explicit).max())


def test_heavy_columns_are_those_with_the_largest_squares(make_problem, two_classes, rng):
    X, y = two_classes(50, 300)
    X[:, ::3] *= 10
    columns, rows, Z = make_problem(X, y, GaussianHinge()).heavy_block
    assert len(columns) == 64
    assert np.all(columns % 3 == 0)
    assert_allclose(Z, np.column_stack([X[np.ix_(rows, columns)], np.ones(len(rows))]), rtol=1e-15)


@pytest.mark.parametrize("noise", [0.2, GaussianNoise(std=[0.1, 0.2, 0.3, 0.2])], ids=["ball", "ellipsoid"])
def test_gap_of_a_loss_without_a_dual_counts_the_noise_as_its_proof_does(noise, make_problem, two_classes, rng):
    X, y = two_classes(200, 4, separation=0.6)
    problem = make_problem(X, y, ExpectedLogistic(), noise, alpha=0.1, fit_intercept=False)
    best = solve(problem, "newton", tol=0.0).parameters
    near = best + 1e-4 * rng.normal(size=4)
    gap, estimate = certificate(problem, *problem.split(near)).gap, problem.suboptimality(problem.evaluate(near))
    assert gap <= 1.05 * estimate
    if noise == 0.2:
        assert gap >= 0.9 * estimate


def test_hessian_of_a_place_is_that_of_the_problem(problem, theta):
    H, h = problem.at(theta).hessian(whole=True), 1e-5
    slopes = [
        problem.value_and_gradient(theta + step)[1] - problem.value_and_gradient(theta - step)[1]
        for step in h * np.eye(len(theta))
    ]
    assert_allclose(H, np.array(slopes) / (2 * h), rtol=1e-5, atol=1e-5 * np.abs(H).max())


def test_costs_in_stretches_and_gathered_rows_are_those_of_all_rows_at_once(
    make_problem, two_classes, rng, monkeypatch
):
    X, y = two_classes(60, 4, separation=0.6)
    for loss, noise in (
        (GaussianHinge(), 0.6),
        (HyperbolicHinge(0.01), 0.3),
        (GaussianHinge(), GaussianNoise([0.1] * 4)),
    ):
        problem = make_problem(X, y, loss, noise, weights=rng.uniform(0.2, 2, size=60), alpha=0.3).smoothed(0.1)
        theta, step = rng.normal(size=5), rng.normal(size=5)

        def seen(problem=problem, theta=theta, step=step):
            place = problem.at(theta)
            plane = place.plane(step)
            x = plane.ahead + 0.1
            found = [place.value, place.gradient, place.hessian(), *plane.value_and_gradient(x), plane.hessian(x)]
            return [*found, plane.model(x).value, plane.model(x).gradient]

        expected = seen()
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "STRETCH", 7)
            patch.setattr(local_margin_model, "STRETCH", 7)
            patch.setattr(margin_scale, "MOST_GATHERED", 8)
            for found, other in zip(seen(), expected, strict=True):
                assert_allclose(found, other, rtol=1e-10, atol=1e-10)
