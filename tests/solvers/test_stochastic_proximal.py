"""Stochastic proximal steps: unbiased, exact in the penalty, close to the certified optimum, and honest about it."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, RobustLinearClassifier
from holdfast._core.programs import ProximalSum
from holdfast._core.solution import Status
from holdfast._data import rows_of
from holdfast._problems.noise_and_set import NoiseAndSetProblem
from holdfast._problems.penalty import Lasso, Limits
from holdfast._proofs.certificate import certificate
from holdfast.losses import GaussianHinge, Hinge
from holdfast.solvers import StochasticProximal
from holdfast.solvers.selection import pick, solve
from holdfast.solvers.stochastic_proximal import ProximalIterate

rough_is_fine = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
PENALTIES = {
    "none": {},
    "l2": {"alpha": 3.0},
    "l1": {"penalty": Lasso(2.0)},
    "box": {"penalty": Limits(0.4)},
    "both": {"alpha": 3.0, "penalty": Lasso(2.0)},
    "clipped": {"alpha": 3.0, "penalty": Limits(0.4)},
}


@pytest.fixture(params=["ball", "box", "ellipsoids"])
def robust(request, rng):
    """A set common to all rows or one a row, and its metadata for 60 rows of 3 features."""
    return {
        "ball": (Ball(0.2), {}),
        "box": (Box(0.1), {}),
        "ellipsoids": (Ellipsoid(), {"X_std": rng.uniform(0, 0.3, size=(60, 3))}),
    }[request.param]


@pytest.fixture(params=PENALTIES)
def options(request):
    return PENALTIES[request.param]


# Steps


def test_mean_over_single_rows_is_the_gradient_of_the_averaged_objective(
    robust, worst_case, make_problem, two_classes, rng
):
    """A row's step, less that of the penalty: seen from one row the whole objective is 1/C of the sum, not the row's term."""
    X, y = two_classes(60, 3)
    weights = rng.uniform(0.2, 3.0, size=60)
    problem = make_problem(X, y, worst_case, robust[0], metadata=robust[1], weights=weights, alpha=2.0)
    view, theta, eta = problem.view(ProximalSum), rng.normal(size=4), 1e-7
    solver = StochasticProximal(eta0=eta)
    moves = []
    for row in range(60):
        iterate = ProximalIterate.at(theta)
        iterate.step(view, solver, np.array([row]), weights.sum(), 60, solver.pace(view, view.entry_sums()))
        moves.append((theta - iterate.point) / eta)
    gradient = problem.value_and_gradient(theta)[1] / weights.sum()
    assert_allclose(np.mean(moves, axis=0), gradient, rtol=0, atol=1e-6 * np.abs(gradient).max())


def test_batches_are_means_of_their_rows(robust, make_problem, two_classes, rng):
    X, y = two_classes(60, 3)
    problem = make_problem(X, y, Hinge(), robust[0], metadata=robust[1], weights=rng.uniform(0.2, 3.0, size=60))
    view, theta, rows = problem.view(ProximalSum), rng.normal(size=4), np.array([3, 1, 40, 17])
    one_by_one = [view.gradient(rows[k : k + 1], view.weights[rows[k : k + 1]], theta) for k in range(4)]
    assert_allclose(view.gradient(rows, view.weights[rows], theta), np.sum(one_by_one, axis=0), atol=1e-12)


@pytest.mark.parametrize("step", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_proximal_steps_are_minima_by_brute_force(step, fit_intercept, options, make_problem, two_classes, rng):
    problem = make_problem(*two_classes(20, 5), Hinge(), 0.1, fit_intercept=fit_intercept, **options)
    theta = rng.normal(size=problem.n_parameters)
    w, b = problem.split(problem.view(ProximalSum).proximal(theta, step))
    assert b == problem.split(theta)[1]
    edge = problem.penalty.limit if problem.penalty is not None and np.isfinite(problem.penalty.limit) else 9.0
    absolute = 0.0 if problem.penalty is None else problem.penalty.absolute
    for start, end in zip(problem.split(theta)[0], w, strict=True):

        def cost(v, start=start):
            return 0.5 * (v - start) ** 2 + step * (0.5 * problem.alpha * v * v + absolute * abs(v))

        sought = minimize_scalar(cost, bounds=(-edge, edge), method="bounded", options={"xatol": 1e-11})
        assert abs(end) <= edge
        assert cost(end) <= sought.fun + 1e-12
        assert end == pytest.approx(sought.x, abs=1e-5)


def test_lengths_are_the_shorter_of_the_two_bounds():
    solver = StochasticProximal()
    assert solver.length(4, 16.0, 0.0, 3.0) == 3.0 / 4.0
    assert solver.length(4, 16.0, 10.0, 3.0) == 1 / 40.0
    assert solver.length(4, 16.0, 1e-9, 3.0) == 3.0 / 4.0
    assert StochasticProximal(eta0=0.5).length(4, 16.0, 0.0, 3.0) == 0.25
    assert solver.length(1, 0.0, 0.0, 3.0) == 0.0


def test_steps_are_those_of_a_plain_loop(make_problem, two_classes, rng):
    X, y = two_classes(30, 3)
    c, alpha, eta0, rho = rng.uniform(0.5, 2, size=30), 0.9, 0.4, 0.3
    problem = make_problem(X, y, Hinge(), Ball(rho), weights=c, alpha=alpha)
    solver = StochasticProximal(epochs=2, batch_size=7, eta0=eta0, shuffle=False)
    found = solve(problem, solver, tol=0.0)
    w, b, total, t, mean, values = np.zeros(3), 0.0, c.sum(), 0, np.zeros(4), []
    for _ in range(2):
        for first in range(0, 30, 7):
            part = slice(first, min(first + 7, 30))
            t += 1
            hit = c[part] * (1 - y[part] * (X[part] @ w + b) + rho * np.linalg.norm(w) > 0) * 30 / total
            outward = rho * hit.sum() * w / np.linalg.norm(w) if np.any(w) else 0.0
            eta = min(eta0 / np.sqrt(t), total / (alpha * t))
            m = len(y[part])
            w, b = w - eta * (outward - X[part].T @ (hit * y[part])) / m, b + eta * (hit @ y[part]) / m
            w = w / (1 + eta * alpha / total)
            mean = mean + 2 / (t + 1) * (np.append(w, b) - mean)
        values.append((problem.value_and_gradient(mean)[0], mean))
    assert_allclose(found.parameters, min(values, key=lambda pair: pair[0])[1], rtol=0, atol=1e-11)


# Solutions


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_hinge_comes_within_a_percent_of_the_certified_optimum(penalty, robust, two_classes):
    X, y = two_classes(60, 3, separation=0.7)
    model = RobustLinearClassifier(robust[0], penalty=penalty, alpha=0.5)
    best = model.fit(X, y, **robust[1])
    assert best.gap_ <= 1e-6
    solver = StochasticProximal(epochs=150, batch_size=4)
    rough = RobustLinearClassifier(robust[0], penalty=penalty, alpha=0.5, solver=solver, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stochastic"):
        rough.fit(X, y, **robust[1])
    assert best.lower_bound_ <= rough.objective_ <= 1.01 * best.objective_
    assert rough.lower_bound_ <= best.objective_
    assert rough.gap_ >= (rough.objective_ - best.objective_) / rough.objective_
    assert rough.solution_["status"] == "rough"


@pytest.mark.thin(4)
@pytest.mark.parametrize("options", [{"alpha": 5.0}, {"alpha": 1e-4}, {"penalty": Limits(0.5)}], ids=repr)
def test_every_worst_case_loss_comes_close(options, worst_case, make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3, separation=0.7), worst_case, Ball(0.2), **options)
    best = solve(problem.smoothed(1e-4), "newton", tol=1e-9, start=np.full(4, 0.1))
    found = solve(problem, StochasticProximal(epochs=100, batch_size=8, random_state=0), tol=0.0)
    assert found.objective <= 1.01 * best.objective
    assert found.objective == pytest.approx(problem.value_and_gradient(found.parameters)[0])


def test_sets_and_noise_together(two_classes, rng):
    X, y = two_classes(60, 3, separation=0.7)
    rows, push = rows_of(X), Ball(0.2).at(X, {})
    noise = GaussianNoise().at(X, {"X_std": rng.uniform(0.1, 0.5, size=X.shape)})
    problem = NoiseAndSetProblem(rows, y, np.ones(60), GaussianHinge(), noise, alpha=0.5, push=push, kappa=0.6)
    found = solve(problem, StochasticProximal(epochs=60, random_state=0), tol=0.0)
    best = solve(problem, "newton", start=np.full(4, 0.1), tol=1e-9)
    assert found.objective <= 1.01 * best.objective


@rough_is_fine
def test_last_points_under_l1_have_zeros_where_averages_do_not(two_classes):
    X, y = two_classes(60, 3, separation=0.7)
    X = np.column_stack([X, np.random.default_rng(1).normal(size=(60, 5))])
    for average in (True, False):
        solver = StochasticProximal(average=average, random_state=0)
        model = RobustLinearClassifier(Ball(0.1), penalty="l1", alpha=4.0, solver=solver).fit(X, y)
        assert np.any(model.coef_ == 0) == (not average)


@rough_is_fine
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_give_what_dense_ones_give(dtype, robust, two_classes):
    X, y = two_classes(60, 3)
    X = np.where(np.abs(X) > 0.5, X, 0).astype(dtype)
    fits = [
        RobustLinearClassifier(robust[0], solver=StochasticProximal(5), random_state=3).fit(rows, y, **robust[1])
        for rows in (X, sparse.csr_array(X), X.astype(np.float64))
    ]
    for other in fits[1:]:
        assert_allclose(other.coef_, fits[0].coef_, rtol=0, atol=1e-11)
        assert_allclose(other.intercept_, fits[0].intercept_, rtol=0, atol=1e-11)


@rough_is_fine
def test_order_follows_the_seed(two_classes):
    X, y = two_classes(60, 3)

    def coef(seed, own=None):
        solver = StochasticProximal(2, random_state=own)
        return RobustLinearClassifier(Ball(0.1), solver=solver, random_state=seed).fit(X, y).coef_

    assert np.array_equal(coef(1), coef(1))
    assert not np.array_equal(coef(1), coef(2))
    assert np.array_equal(coef(1, own=7), coef(2, own=7))


@rough_is_fine
def test_unit_of_features_and_weights_does_not_matter(two_classes):
    """Without a penalty: weights scale with 1 / unit of X, and not at all with that of c."""
    X, y = two_classes(60, 3)
    solver = StochasticProximal(3, random_state=0)
    options = {"penalty": None, "solver": solver}
    one = RobustLinearClassifier(Ball(0.1), **options).fit(X, y)
    far = RobustLinearClassifier(Ball(1e5), **options).fit(1e6 * X, y, sample_weight=np.full(60, 1e3))
    assert_allclose(1e6 * far.coef_, one.coef_, rtol=1e-9)
    assert_allclose(far.intercept_, one.intercept_, rtol=1e-9)


@pytest.mark.parametrize("scales", [[1e-9, 1.0, 1e9], [1e80, 1e-80, 1.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_result_is_finite_on_badly_scaled_features(scales, loss, make_problem, two_classes):
    X, y = two_classes(60, 3)
    loss = RobustLinearClassifier(loss=loss)._loss()
    problem = make_problem(X * scales, y, loss, Ball(0.1), alpha=1e-3)
    found = solve(problem, StochasticProximal(5, random_state=0), tol=0.0)
    assert np.all(np.isfinite(found.parameters))
    assert found.objective <= problem.value_and_gradient(np.zeros(4))[0] * 1.5


def test_rows_of_weight_zero_change_nothing(make_problem, two_classes, rng):
    X, y = two_classes(60, 3)
    kept = rng.uniform(size=60) < 0.6
    solver = StochasticProximal(2, batch_size=5, shuffle=False)
    whole = solve(make_problem(X, y, Hinge(), Ball(0.1), weights=kept.astype(float), alpha=1.0), solver)
    part = solve(make_problem(X[kept], y[kept], Hinge(), Ball(0.1), alpha=1.0), solver)
    assert_allclose(whole.parameters, part.parameters, rtol=0, atol=1e-12)


def test_epoch_with_the_lowest_objective_is_returned_and_reported(make_problem, two_classes):
    problem, lines = make_problem(*two_classes(60, 3), Hinge(), Box(0.2), alpha=1.0), []
    found = solve(problem, StochasticProximal(8, eta0=3.0, average=False, random_state=0), tol=0.0, report=lines.append)
    objectives = [float(line.split("objective ")[1].split(",")[0]) for line in lines]
    assert len(lines) == 8
    assert any(later > earlier for earlier, later in pairwise(objectives))
    assert found.objective == pytest.approx(min(objectives), rel=1e-9)
    assert certificate(problem, *problem.split(found.parameters)).objective == pytest.approx(found.objective)


def test_status_says_why_it_stopped(make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3), Hinge(), Ball(0.2), alpha=20.0)
    solver = StochasticProximal(30, random_state=0)
    assert solve(problem, solver, tol=0.5).status is Status.SOLVED
    assert solve(problem, solver, tol=1e-12).status is Status.ROUGH
    assert solve(problem, solver, tol=1e-12, max_iter=3).status is Status.ITERATION_LIMIT


def test_it_is_used_only_where_it_is_asked_for(make_problem, make_pairwise, two_classes, several_classes):
    problem = make_problem(*two_classes(60, 3), Hinge(), Box(0.2), alpha=1.0)
    assert pick(problem).name != StochasticProximal.name
    assert pick(problem, "stochastic_proximal").name == StochasticProximal.name
    with pytest.raises(ValueError, match=r"ProximalSum.*one class against the rest"):
        pick(make_pairwise(*several_classes(), GaussianHinge()), "stochastic_proximal")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, r"epochs=0\): must be an integer >= 1"),
        ({"batch_size": 2.5}, r"batch_size=2.5\): must be an integer >= 1"),
        ({"eta0": -1.0}, r"eta0=-1.0\): must be a finite number > 0"),
        ({"eta0": np.inf}, r"eta0=inf\)"),
    ],
)
def test_settings_without_sense_are_refused(settings, message, two_classes):
    with pytest.raises(ValueError, match=message):
        RobustLinearClassifier(solver=StochasticProximal(**settings)).fit(*two_classes(20, 3))
