"""Every solver: agreement with the others and with scipy, an honest status, and a misfit that is explained."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from holdfast import Ball, GaussianNoise, GaussianRobustClassifier, RobustLinearClassifier
from holdfast._core.problem import Smooth
from holdfast._core.solution import Status
from holdfast._proofs.certificate import certificate
from holdfast.losses import GaussianHinge, HuberizedHinge
from holdfast.solvers.selection import BUILT_IN, missing, pick, solve

AGREEMENT = 1e-6


@pytest.fixture(params=["number", "cov", "X_std"])
def problem(request, loss, make_problem, two_classes, rng):
    """Problems without a collapse: classes that weigh the same."""
    X, y = two_classes(40, 3, separation=0.6)
    factor = rng.normal(size=(3, 3)) / 2
    noise, metadata = {
        "number": (0.6, {}),
        "cov": (GaussianNoise(cov=factor @ factor.T + 0.1 * np.eye(3)), {}),
        "X_std": (GaussianNoise(), {"X_std": rng.uniform(0.2, 1.0, size=(40, 3))}),
    }[request.param]
    return make_problem(X, y, loss, noise, metadata=metadata, alpha=0.1)


def _start(problem):
    """Return a point on the good side of w = 0, where perspective losses have curvature."""
    w = problem.rows.transpose_dot(problem.signs) / problem.rows.n_samples
    return problem.join(w, 0.0)


def _general_optimum(problem):
    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    found = minimize(problem.value_and_gradient, _start(problem), jac=True, method="L-BFGS-B", options=options)
    return found.fun


def test_solver_agrees_with_a_general_optimiser_or_says_what_it_misses(solver, problem):
    if missing(problem, solver):
        with pytest.raises(ValueError, match=missing(problem, solver)[0]):
            pick(problem, solver)
        return
    found = solve(problem, solver, start=_start(problem), tol=1e-9)
    optimum = _general_optimum(problem)
    assert (found.status is Status.SOLVED) == (solver.accuracy <= AGREEMENT)
    assert found.solver == solver.name
    assert problem.value_and_gradient(found.parameters)[0] == pytest.approx(optimum, rel=solver.accuracy)
    assert found.objective == pytest.approx(optimum, rel=solver.accuracy)


def test_solver_ends_no_higher_than_it_started(solver, problem):
    if missing(problem, solver):
        return
    for start in (_start(problem), 5 * _start(problem) + 1):
        for rough in (False, True):
            found = solver.minimise(problem, start, tol=1e-3, max_iter=200, rough=rough)
            value = problem.value_and_gradient(found.parameters)[0]
            # steps of random samples are no descent
            assert value <= problem.value_and_gradient(start)[0] * (1 + 1e-12) or solver.accuracy > AGREEMENT
            if rough and found.status is Status.SOLVED:
                assert value == pytest.approx(_general_optimum(problem), rel=max(solver.accuracy, 3e-2))


def test_no_step_goes_beyond_the_kink_at_zero(solver, problem, monkeypatch):
    """Points at which a solver asks for a value are no farther than `longest_step` from where it is."""
    if missing(problem, solver) or Smooth not in solver.needs:
        return
    asked = []

    def longest_step(self, parameters, step):
        asked.append((parameters.copy(), step.copy()))
        return 1e-3

    monkeypatch.setattr(type(problem), "longest_step", longest_step)
    start = _start(problem)
    found = solver.minimise(problem, start, tol=1e-9, max_iter=1)
    assert asked
    longest = max(np.linalg.norm(step) for _, step in asked)
    assert np.linalg.norm(found.parameters - start) <= 1e-3 * longest * (1 + 1e-9)


def test_start_where_no_loss_bends_is_left(solver, make_problem, two_classes):
    loss, noise = HuberizedHinge(0.5, 0.0), Ball(0.1)
    X, y = two_classes(60, 4, separation=0.6)
    problem = make_problem(X, y, loss, noise, alpha=0.01)
    assert loss.bend(np.ones(1)) == 0  # the deficit at w = 0
    if missing(problem.smoothed(1e-3), solver):
        return
    best, found = (RobustLinearClassifier(noise, loss=loss, alpha=0.01, solver=each) for each in (None, solver))
    assert best.fit(X, y).gap_ <= 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found.fit(X, y)
    assert found.objective_ == pytest.approx(best.objective_, rel=max(solver.accuracy, 1e-6))


@pytest.mark.parametrize("solver", [None, "quasi_newton", "newton_cg"])
def test_fit_is_certified_where_most_rows_do_not_bend(solver):
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], 600)
    X = rng.normal(size=(600, 80)) + 0.3 * y[:, None] * rng.normal(size=80)
    model = RobustLinearClassifier(Ball(0.1), alpha=0.01, loss=HuberizedHinge(0.5, 0.0), solver=solver)
    assert model.fit(X, y).gap_ <= 1e-6


def test_some_solver_fits_every_problem(problem):
    chosen = pick(problem)
    assert not missing(problem, chosen)
    found = solve(problem, start=_start(problem), tol=1e-9)
    assert found.objective == pytest.approx(_general_optimum(problem), rel=AGREEMENT)


def test_solver_does_not_change_its_start(solver, make_problem, two_classes):
    for loss in (GaussianHinge(), "two_point"):
        X, y = two_classes(20, 2)
        model = GaussianRobustClassifier(0.5, loss=loss)
        problem = make_problem(X, y, model._loss(), 0.5)
        if not missing(problem, solver):
            start = _start(problem)
            before = start.copy()
            solve(problem, solver, start=start, max_iter=5)
            assert np.array_equal(start, before)


def test_status_is_honest_after_one_step(solver, problem):
    if missing(problem, solver):
        return
    far = 5 * _start(problem) + 1
    found = solve(problem, solver, start=far, tol=1e-9, max_iter=1)
    value = problem.value_and_gradient(found.parameters)[0]
    if found.status is Status.SOLVED:
        assert value == pytest.approx(_general_optimum(problem), rel=1e-6)
    else:
        assert found.status in (Status.ITERATION_LIMIT, Status.STALLED)
        assert found.advice == found.status.value
    assert found.n_iter == 1
    assert np.all(np.isfinite(found.parameters))


@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_fit_claims_success_exactly_with_a_certified_gap(solver, loss, max_iter, make_problem, two_classes):
    X, y = two_classes(40, 3, separation=0.6)
    if missing(make_problem(X, y, loss), solver):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = GaussianRobustClassifier(0.6, loss=loss, solver=solver, max_iter=max_iter).fit(X, y)
    assert (model.solution_["status"] == "solved") == (model.gap_ <= 1e-6)
    warned = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert bool(warned) == (model.gap_ > 1e-6)
    assert all("max_iter" in message or "tol" in message for message in warned)
    problem = make_problem(X, y, loss, 0.6, alpha=0.0 if loss.is_homogeneous else 1.0)
    proof = certificate(problem, model.coef_[0], model.intercept_[0])
    assert model.objective_ == pytest.approx(proof.objective, rel=1e-12)


def test_misfit_names_the_missing_view_and_the_solvers_that_fit(make_problem, two_classes):
    problem = make_problem(*two_classes(20, 2), GaussianHinge())
    with pytest.raises(ValueError, match="ConeProgram") as caught:
        pick(problem, "clarabel")
    message = str(caught.value)
    assert "'clarabel'" in message
    for name, cls in BUILT_IN.items():
        assert (repr(name) in message.split("fit:")[1]) == (not missing(problem, cls()))


def test_misfit_surfaces_in_fit(two_classes):
    with pytest.raises(ValueError, match="ConeProgram"):
        GaussianRobustClassifier(0.5, loss="hinge", solver="clarabel").fit(*two_classes(20, 2))


@pytest.mark.parametrize("name", ["nonsense", 3])
def test_unknown_solver_is_refused_with_the_known_ones(name, make_problem, two_classes):
    problem = make_problem(*two_classes(20, 2), GaussianHinge())
    with pytest.raises(ValueError, match="'newton'"):
        pick(problem, name)


def test_every_solver_can_be_asked_for_by_name(solver, make_problem, two_classes):
    problem = make_problem(*two_classes(20, 2), GaussianRobustClassifier(loss="two_point")._loss())
    assert BUILT_IN[solver.name] is type(solver)
    if missing(problem, solver):
        with pytest.raises(ValueError, match=f"solver='{solver.name}' needs the view"):
            pick(problem, solver.name)
    else:
        assert type(pick(problem, solver.name)) is type(solver)
