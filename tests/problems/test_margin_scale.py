"""The problem of losses, set and rows: derivatives, behaviour at w = 0, invariances, and its cone program."""

from itertools import islice, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core.programs import ConeProgram
from holdfast.losses import GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge
from holdfast.solvers.selection import solve

STEP = 1e-6


def _differences(problem, theta):
    """Return gradient and Hessian by central differences of value and gradient."""
    there = [[problem.value_and_gradient(theta + sign * e) for sign in (1, -1)] for e in STEP * np.eye(len(theta))]
    gradient = [(up[0] - down[0]) / (2 * STEP) for up, down in there]
    hessian = [(up[1] - down[1]) / (2 * STEP) for up, down in there]
    return np.array(gradient), np.array(hessian)


@pytest.fixture(params=[13, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def every_problem(request, losses, smooth_bounds, make_problem, rng):
    """Every loss with every noise, with and without intercept and ridge, as it is and in the form of the collapse test."""

    def problems():
        X, y = rng.normal(size=(5, 3)), np.array([1.0, -1, 1, 1, -1])
        options = list(product(losses, (False, True), (0.0, 0.8), (False, True)))
        combinations = ((bound, *chosen) for bound in smooth_bounds for chosen in options)
        for bound, loss, is_tilted, alpha, intercept in islice(combinations, 0, None, request.param):
            print(loss, is_tilted, alpha, intercept)  # a failure shows whose it is
            weights = rng.uniform(0.2, 2, 5)
            problem = make_problem(X, y, loss, bound, weights=weights, alpha=alpha, fit_intercept=intercept)
            if is_tilted:
                problem.target, problem.tilt = 0.0, rng.normal(size=problem.n_parameters)
            yield problem

    return problems()


def test_gradient_is_the_derivative_of_the_value(every_problem, rng):
    for problem in every_problem:
        theta = rng.normal(size=problem.n_parameters)
        gradient = problem.value_and_gradient(theta)[1]
        assert_allclose(gradient, _differences(problem, theta)[0], rtol=1e-6, atol=1e-8)


def test_hessian_is_the_derivative_of_the_gradient_symmetric_and_semidefinite(every_problem, rng):
    for problem in every_problem:
        theta = rng.normal(size=problem.n_parameters)
        H = problem.hessian(theta)
        assert_allclose(H, H.T, rtol=1e-12, atol=1e-13)
        assert np.linalg.eigvalsh(H)[0] >= -1e-10 * np.abs(H).max()
        if _is_smooth_near(problem, theta):
            assert_allclose(H, _differences(problem, theta)[1], rtol=1e-5, atol=1e-6)


def _is_smooth_near(problem, theta):
    """Return whether all rows are clear of the quadratic hinge's breaks."""
    w, b = problem.split(theta)
    t = np.broadcast_to(problem.sets.support(w), len(problem.signs))
    z = np.full(len(t), np.inf)
    np.divide(problem.target - problem.signs * (problem.rows.dot(w) + b), t, out=z, where=t > 0)
    return np.abs(np.abs(z) - 4).min() > 1e-3


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_derivatives_hold_eight_deviations_out(loss, fit_intercept, make_problem, rng):
    """Rows whose deficits are -8, -5, -2, 1, 4, 7 deviations."""
    w, sigma, y = rng.normal(size=3), 0.7, np.array([1.0, -1, 1, -1, 1, -1])
    z = np.array([-8.0, -5.1, -2.0, 1.0, 4.3, 7.0])
    X = rng.normal(size=(6, 3))
    X += np.outer(y * (1 - z * sigma * np.linalg.norm(w)) - X @ w, w) / (w @ w)
    theta = np.append(w, 0.0) if fit_intercept else w
    problem = make_problem(X, y, loss, sigma, fit_intercept=fit_intercept)
    gradient, hessian = _differences(problem, theta)
    assert_allclose(problem.value_and_gradient(theta)[1], gradient, rtol=1e-6, atol=1e-8)
    assert_allclose(problem.hessian(theta), hessian, rtol=1e-5, atol=1e-6)


def test_value_is_the_sum_of_losses_and_ridge(loss, make_problem, two_classes, rng):
    X, y = two_classes(20, 3)
    weights, theta = rng.uniform(0, 2, 20), rng.normal(size=4)
    problem = make_problem(X, y, loss, 0.6, weights=weights, alpha=0.9)
    t = 0.6 * np.linalg.norm(theta[:3])
    total = sum(
        c * float(loss.value(np.array([1 - sign * (x @ theta[:3] + theta[3])]), np.array([t]))[0])
        for x, sign, c in zip(X, y, weights, strict=True)
    )
    assert problem.value_and_gradient(theta)[0] == pytest.approx(total + 0.45 * theta[:3] @ theta[:3], rel=1e-10)


@pytest.mark.thin(6)
def test_objective_is_convex(every_problem, rng):
    for problem in every_problem:
        for _ in range(10):
            one, other = rng.normal(size=(2, problem.n_parameters)) * 10 ** rng.uniform(-1, 1, size=(2, 1))
            values = [problem.value_and_gradient(x)[0] for x in (one, other, 0.5 * (one + other))]
            assert values[2] <= 0.5 * (values[0] + values[1]) + 1e-10 * (abs(values[0]) + abs(values[1]))


@pytest.mark.thin(2)
def test_near_zero_weights_everything_is_finite_and_silent(every_problem, rng):
    for problem in every_problem:
        direction = rng.normal(size=problem.rows.n_features)
        for scale, b in product((0.0, 1e-300, 1e-200, 1e-20), (0.0, 1.0, -1.0) if problem.fit_intercept else (0.0,)):
            value, gradient = problem.value_and_gradient(problem.join(scale * direction, b))
            assert np.isfinite(value)
            assert np.all(np.isfinite(gradient))
        assert np.all(np.isfinite(problem.hessian(problem.join(0 * direction, 0.3))))


def test_without_intercept_a_perspective_loss_is_linear_to_all_orders_at_zero(
    perspective, make_problem, two_classes, rng
):
    X, y = two_classes(15, 4)
    weights = rng.uniform(0.5, 2, 15)
    problem = make_problem(X, y, perspective, 0.7, weights=weights, fit_intercept=False)
    value, gradient = problem.value_and_gradient(np.zeros(4))
    assert value == pytest.approx(weights.sum())
    assert_allclose(gradient, -X.T @ (weights * y), rtol=1e-12)
    if isinstance(perspective, TwoPointHinge):  # its slopes are algebraic, so only the limit is linear
        return
    direction = rng.normal(size=4) / 2
    for r in (1e-3, 1e-5, 1e-300):
        near, near_gradient = problem.value_and_gradient(r * direction)
        assert near == pytest.approx(value + r * direction @ gradient, rel=1e-15)
        assert_allclose(near_gradient, gradient, rtol=1e-13)
        assert np.abs(problem.hessian(r * direction)).max() < 1e-80


def test_hessian_vanishes_towards_zero_weights_so_the_loss_is_not_strongly_convex_there(make_problem, two_classes, rng):
    X, y = two_classes(15, 4)
    problem = make_problem(X, y, GaussianHinge(), 0.7, fit_intercept=False)
    direction = rng.normal(size=4)
    direction /= np.linalg.norm(direction)
    assert np.abs(problem.hessian(0.05 * direction)).max() < 1e-60
    assert_array_equal(problem.hessian(np.zeros(4)), 0)


def test_second_derivative_along_the_ray_is_the_sum_of_bends(make_problem, two_classes, rng):
    """As a_m.(w, b) = -1 for every row, theta'H theta = sum_m f''(z) / s."""
    X, y = two_classes(15, 4)
    theta, sigma = rng.normal(size=5), 0.7
    H = make_problem(X, y, GaussianHinge(), sigma).hessian(theta)
    s = sigma * np.linalg.norm(theta[:4])
    z = (1 - y * (X @ theta[:4] + theta[4])) / s
    assert theta @ H @ theta == pytest.approx(norm.pdf(z).sum() / s, rel=1e-10)


def test_single_row_has_a_positive_definite_hessian_without_intercept(make_problem, two_classes, rng):
    X, y = two_classes(15, 4)
    for i in range(15):
        problem = make_problem(X[[i]], y[[i]], GaussianHinge(), 0.7, fit_intercept=False)
        assert np.linalg.eigvalsh(problem.hessian(0.7 * rng.normal(size=4)))[0] > 0


def test_with_intercept_one_row_is_singular_along_a_ray_and_two_classes_are_not(make_problem, two_classes, rng):
    X, y = two_classes(15, 4)
    theta = 0.7 * rng.normal(size=5)
    for i in range(15):
        H = make_problem(X[[i]], y[[i]], GaussianHinge(), 0.7).hessian(theta)
        assert_allclose(H @ (theta - np.append(np.zeros(4), y[i])), 0, atol=1e-12 * np.abs(H).max())
    pair = [np.flatnonzero(y > 0)[0], np.flatnonzero(y < 0)[0]]
    assert np.linalg.eigvalsh(make_problem(X[pair], y[pair], GaussianHinge(), 0.7).hessian(theta))[0] > 0


def test_directional_derivatives_at_the_kink_are_the_support_of_the_subdifferential(perspective, make_problem, rng):
    """At (0, y) the subdifferential is {(-a y x + q, -a y): 0 <= a <= 1, |q| <= sigma f*(a)}."""
    x, sigma, a = rng.normal(size=(1, 4)), 0.7, np.sin(np.linspace(0, np.pi / 2, 20001)) ** 2
    for sign in (-1.0, 1.0):
        problem = make_problem(x, np.array([sign]), perspective, sigma)
        for _ in range(20):
            v, c = rng.normal(size=4), rng.normal()
            step = 1e-7
            slope = problem.value_and_gradient(np.append(step * v, sign + step * c))[0] / step
            support = np.max(-a * sign * (x[0] @ v + c) + sigma * np.linalg.norm(v) * perspective.conjugate(a))
            assert slope == pytest.approx(support, abs=1e-6)


def test_gradient_at_the_kink_is_a_subgradient(perspective, make_problem, two_classes, rng):
    X, y = two_classes(12, 3, positives=8)
    problem = make_problem(X, y, perspective, 0.7)
    for b in (-1.0, 1.0):
        value, gradient = problem.value_and_gradient(np.append(np.zeros(3), b))
        for _ in range(50):
            theta = rng.normal(size=4) * 10 ** rng.uniform(-3, 1)
            there = problem.value_and_gradient(theta)[0]
            assert there >= value + gradient @ (theta - np.append(np.zeros(3), b)) - 1e-11


def test_gradient_norm_of_a_row_obeys_the_global_bound(make_problem, two_classes, rng):
    X, y = two_classes(10, 3)
    sigma = 0.6
    for i in range(10):
        problem = make_problem(X[[i]], y[[i]], GaussianHinge(), sigma, fit_intercept=False)
        R = np.linalg.norm(X[i])
        z = np.linspace(-12, 12, 2001)
        reach = R + np.abs(z) * sigma
        bend = np.max(norm.pdf(z) * reach * (reach**2 + sigma**2) / sigma)
        for _ in range(40):
            w = rng.normal(size=3) * 10 ** rng.uniform(-2, 1)
            assert np.linalg.norm(problem.value_and_gradient(w)[1]) <= R + sigma / np.sqrt(2 * np.pi)
            assert np.linalg.norm(problem.hessian(w), 2) <= bend


def test_each_rows_covariance_enters_its_own_loss(make_problem, two_classes, rng):
    """Monte Carlo over noise drawn from every row's covariance."""
    X, y = two_classes(12, 3)
    factors, theta = rng.normal(size=(12, 3, 3)), rng.normal(size=4)
    problem = make_problem(X, y, GaussianHinge(), GaussianNoise(), metadata={"X_factor": factors})
    noisy = X[:, None] + np.einsum("nij,nkj->nki", factors, rng.normal(size=(12, 40_000, 3)))
    hinge = np.maximum(0, 1 - y[:, None] * (noisy @ theta[:3] + theta[3]))
    error = np.sqrt(np.sum(hinge.var(axis=1) / hinge.shape[1]))
    assert abs(problem.value_and_gradient(theta)[0] - hinge.mean(axis=1).sum()) < 4 * error


def test_ways_of_stating_the_same_noise_give_the_same_problem(loss, make_problem, two_classes, rng):
    X, y = two_classes(12, 3)
    std, theta = np.array([0.3, 1.2, 0.7]), rng.normal(size=4)
    same = [
        (GaussianNoise(std=std), {}),
        (GaussianNoise(cov=np.diag(std**2)), {}),
        (GaussianNoise(factor=np.diag(std)), {}),
        (GaussianNoise(), {"X_std": np.tile(std, (12, 1))}),
        (GaussianNoise(std=2.0), {"X_std": np.tile(std / 2, (12, 1))}),
        (GaussianNoise(), {"X_cov": np.tile(np.diag(std**2), (12, 1, 1))}),
        (GaussianNoise(), {"X_factor": np.tile(np.diag(std), (12, 1, 1))}),
    ]
    problems = [make_problem(X, y, loss, noise, metadata=metadata) for noise, metadata in same]
    value, gradient = problems[0].value_and_gradient(theta)
    for problem in problems[1:]:
        assert problem.value_and_gradient(theta)[0] == pytest.approx(value, rel=1e-11)
        assert_allclose(problem.value_and_gradient(theta)[1], gradient, rtol=1e-9, atol=1e-10)
        assert_allclose(problem.hessian(theta), problems[0].hessian(theta), rtol=1e-6, atol=1e-7)


def test_common_covariance_is_unit_noise_in_whitened_features(perspective, make_problem, two_classes, rng):
    X, y = two_classes(12, 3)
    L, theta = rng.normal(size=(3, 3)), rng.normal(size=4)
    known = make_problem(X, y, perspective, GaussianNoise(cov=L @ L.T))
    white = make_problem(X @ np.linalg.inv(L).T, y, perspective, 1.0)
    whitened = np.append(L.T @ theta[:3], theta[3])
    assert known.value_and_gradient(theta)[0] == pytest.approx(white.value_and_gradient(whitened)[0], rel=1e-10)


def test_scaling_features_and_noise_together_rescales_the_weights(perspective, two_classes):
    X, y = two_classes(40, 3, positives=18)
    plain = GaussianRobustClassifier(0.5, loss=perspective, tol=1e-8).fit(X, y)
    for k in (37.0, 1e-3):
        scaled = GaussianRobustClassifier(k * 0.5, loss=perspective, tol=1e-8).fit(k * X, y)
        assert scaled.objective_ == pytest.approx(plain.objective_, rel=1e-9)
        assert_allclose(k * scaled.coef_, plain.coef_, rtol=1e-4, atol=1e-6)
        assert_allclose(scaled.intercept_, plain.intercept_, atol=1e-4)


@pytest.mark.thin(7)
@pytest.mark.parametrize("loss", [TwoPointHinge(), QuadraticHinge(), Log2Hinge()], ids=repr)
def test_optimum_of_the_cone_program_is_the_optimum_of_the_problem(loss, uncertainty, make_problem, rng):
    noise, metadata = uncertainty
    X, y, bound = rng.normal(size=(5, 3)), np.array([1.0, -1, 1, 1, -1]), noise.at(np.zeros((5, 3)), metadata)
    if bound.support_program(3) is None:
        with pytest.raises(ValueError, match="ConeProgram"):
            solve(make_problem(X, y, loss, bound), "clarabel")
        return
    for alpha in (0.0, 0.8):
        for fit_intercept in (False, True):
            problem = make_problem(
                X,
                y,
                loss,
                bound,
                weights=rng.uniform(0.5, 2, 5),
                alpha=alpha,
                fit_intercept=fit_intercept,
            )
            found = solve(problem, "clarabel", tol=1e-8)
            assert problem.value_and_gradient(found.parameters)[0] == pytest.approx(found.objective, abs=1e-5)
            for _ in range(20):
                other = found.parameters + 0.1 * rng.normal(size=problem.n_parameters)
                assert problem.value_and_gradient(other)[0] >= found.objective - 1e-5


def test_cone_program_exists_exactly_where_the_loss_has_an_epigraph(loss, make_problem, two_classes):
    problem = make_problem(*two_classes(10, 2), loss)
    assert (problem.view(ConeProgram) is None) == (loss.epigraph() is None)


def test_thinned_problem_keeps_the_total_weight(loss, make_problem, two_classes, rng):
    X, y = two_classes(200, 3)
    problem = make_problem(X, y, loss, weights=rng.uniform(0.5, 2, 200))
    few = problem.thinned(20)
    assert few.rows.n_samples < 60
    assert few.weights.sum() == pytest.approx(problem.weights.sum())


def test_longest_step_stays_on_this_side_of_zero_weights(perspective, make_problem, two_classes, rng):
    problem = make_problem(*two_classes(10, 3), perspective)
    theta = rng.normal(size=4)
    through = -3 * theta
    assert problem.longest_step(theta, through) * 3 < 1
    assert problem.longest_step(theta, np.append(np.zeros(3), 1.0)) == np.inf
