"""Cone and linear programs: every loss with an epigraph, every set with a support program, every penalty, every kappa."""

import warnings
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import Ball, Box, Ellipsoid, IntervalBox, RobustLinearClassifier
from holdfast._core.programs import ConeProgram, LinearProgram
from holdfast._core.solution import Status
from holdfast._problems.penalty import Lasso, Limits
from holdfast._training.training import train
from holdfast.estimators.worst_case import LOSSES as NAMED
from holdfast.exceptions import CollapseWarning
from holdfast.losses import Hinge, HuberizedHinge, Logistic, Mixture, SquaredHinge
from holdfast.solvers import Clarabel, Highs
from holdfast.solvers.selection import pick, solve
from holdfast.uncertainty.images import Images

PENALTIES = {"l2": {"alpha": 0.8}, "l1": {"penalty": Lasso(0.8)}, "box": {"penalty": Limits(0.7)}, None: {}}
LOSSES = [loss() for loss in NAMED.values()]
KAPPAS = (0.0, 0.4, 1.0)
COMBINATIONS = list(product(LOSSES, PENALTIES, KAPPAS))


def _mixed(loss, kappa):
    return loss if kappa == 1 else Mixture(loss, kappa)


@pytest.fixture
def worst_cases(bound, draw_classes, make_problem):
    """A function that makes the problem of 25 rows, two of weight 0, each with one of the sets, against_labels its label."""
    X, y = draw_classes(np.random.default_rng(5), 25, 3)
    weights = np.random.default_rng(6).uniform(0.5, 2, size=25)
    weights[[3, 11]] = 0.0
    target = np.random.default_rng(7).uniform(0.5, 2, size=25)
    sets = bound.take(np.arange(25) % 5).against_labels(y)
    return lambda loss, penalty, kappa: make_problem(
        X, y, _mixed(loss, kappa), sets, weights=weights, target=target, **PENALTIES[penalty]
    )


def _kinds(loss):
    """Return the kinds of cones in which a conic solver sees the loss; None where it does not."""
    epigraph = loss.epigraph()
    return epigraph and {kind for kind, _ in epigraph.cones}


def _check_conic_solvers(problem):
    """Assert that conic solvers find our own optimum, or are refused for want of a view."""
    if not problem.offers(ConeProgram):
        with pytest.raises(ValueError, match="needs the view ConeProgram"):
            pick(problem, "clarabel")
        return
    _, ours = train(problem, None, tol=1e-7, max_iter=2000)
    solvers = ["clarabel", "highs"] if problem.offers(LinearProgram) else ["clarabel"]
    for name in solvers:
        found = solve(problem, name, tol=1e-6)
        # among exponential cones Clarabel may stop short of what is asked, and says so
        assert found.status is Status.SOLVED or "exponential" in _kinds(problem.loss)
        assert found.objective == pytest.approx(ours.objective, rel=1e-6)
        assert found.objective >= ours.lower_bound * (1 - 1e-6)


@pytest.fixture
def turn(uncertainty):
    """A number of the set, to try other combinations with each."""
    return sum(map(ord, repr(uncertainty[0])))


@pytest.mark.thin(2)
def test_conic_solvers_find_our_optimum(worst_cases, turn):
    _check_conic_solvers(worst_cases(*COMBINATIONS[turn % len(COMBINATIONS)]))


@pytest.mark.slow
def test_conic_solvers_find_our_optimum_in_every_combination(worst_cases):
    for combination in COMBINATIONS:
        print(*combination)
        _check_conic_solvers(worst_cases(*combination))


def _check_multipliers(solver, problem):
    if problem.offers(ConeProgram if solver == "clarabel" else LinearProgram):
        found, proof = train(problem, solver, tol=1e-6, max_iter=1000)
        assert proof.gap <= 1e-6
        assert found.status is Status.SOLVED


@pytest.mark.parametrize("solver", ["clarabel", "highs"])
def test_multipliers_prove_the_hinge_to_a_small_gap(solver, worst_cases, turn):
    for kappa in (0.4, 1.0):
        _check_multipliers(solver, worst_cases(Hinge(), list(PENALTIES)[turn % len(PENALTIES)], kappa))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["clarabel", "highs"])
def test_multipliers_prove_the_hinge_with_every_penalty(solver, worst_cases):
    for penalty, kappa in product(PENALTIES, (0.4, 1.0)):
        print(penalty, kappa)
        _check_multipliers(solver, worst_cases(Hinge(), penalty, kappa))


@pytest.mark.thin(2)
def test_linear_program_exists_exactly_where_everything_is_linear(worst_cases, bound):
    supports = bound.support_program(3)
    is_polyhedral = supports is not None and all(kind == "nonnegative" for kind, _, _ in supports.cones)
    for loss, penalty in product(LOSSES, PENALTIES):
        problem = worst_cases(loss, penalty, 0.4)
        is_linear = is_polyhedral and _kinds(loss) == {"nonnegative"} and penalty != "l2"
        assert problem.offers(LinearProgram) == is_linear
        if is_linear:
            program = problem.view(LinearProgram)
            assert program.P.nnz == 0 or not np.any(program.P.data)
            assert {kind for kind, _ in program.cones} <= {"zero", "nonnegative"}


@pytest.mark.parametrize("loss", [SquaredHinge(), Logistic(), HuberizedHinge()], ids=repr)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_multipliers_amount_to_the_slopes_of_smooth_losses(loss, kappa, make_problem, two_classes, rng):
    X, y = two_classes(25, 3)
    problem = make_problem(X, y, _mixed(loss, kappa), Box(0.2), weights=rng.uniform(0.5, 2, 25), alpha=0.5)
    found = Clarabel().minimise(problem, np.zeros(4), tol=1e-9, max_iter=100)
    expected = problem.dual_guess(found.parameters)
    assert_allclose(found.dual.slopes, expected.slopes, atol=1e-4)
    assert_allclose(found.dual.scale, expected.scale)


def test_multipliers_balance_the_pull_of_the_rows(worst_cases, bound):
    problem = worst_cases(Hinge(), None, 1.0)
    if not problem.offers(ConeProgram):
        return
    dual = solve(problem, "clarabel", tol=1e-8).dual
    c, y = problem.weights, problem.signs
    assert np.all((dual.slopes >= -1e-7) & (dual.slopes <= 1 + 1e-7))
    assert float(c @ (y * dual.slopes)) == pytest.approx(0.0, abs=1e-6)
    pull, budgets = problem.rows.transpose_dot(c * y * dual.slopes), c * dual.slopes
    if bound.interval_form() is not None:  # where nearest points are known, and cost no matrix
        assert dual.points is None
        assert_allclose(problem.sets.residual(pull, budgets, dual.scale, dual.direction), 0.0, atol=1e-5)
    else:
        assert_allclose(problem.sets.sum_of_points(dual.points, budgets), pull, atol=1e-5)


def test_what_points_bear_is_in_the_sets_whatever_they_are(bound, rng):
    w, budgets = rng.normal(size=3), rng.uniform(0.1, 1, size=5)

    def scaled(part, factor, w=w):
        if isinstance(part, Images):  # the points are those that it is the image of
            return scaled(part.base, factor, part.map.back(w))
        parts = part.summands()
        return [scaled(one, factor, w) for one in parts] if len(parts) > 1 else factor * part.maximizer(w)

    assert_allclose(
        bound.sum_of_points(scaled(bound, 1 - 1e-9), budgets), bound.adjoint(w, budgets), rtol=1e-6, atol=1e-9
    )
    for factor, size in ((1 + 1e-6, 1.0), (1.0, 1 - 1e-6), (3.0, 0.5)):
        borne = bound.sum_of_points(scaled(bound, factor), budgets, size)
        for v in (w, -w, *rng.normal(size=(20, 3))):
            assert v @ borne <= size * np.sum(budgets * bound.support(v)) * (1 + 1e-12) + 1e-15


def test_program_of_sparse_rows_is_that_of_dense_ones(make_problem, two_classes):
    X, y = two_classes(25, 4)
    X[np.abs(X) < 0.6] = 0.0
    programs = [
        make_problem(kind(X), y, Hinge(), Box(relative=0.2), penalty=Lasso(0.3)).view(ConeProgram)
        for kind in (np.asarray, sparse.csr_array)
    ]
    for name in ("A", "P"):
        assert_allclose(*(getattr(program, name).toarray() for program in programs))
    assert_allclose(programs[0].q, programs[1].q)


def _supports(name, X, signs, w, sets):
    """Return, from the sets' definitions, the constructor's arguments and each row's worst push against its label."""
    faced = [-sign * w for sign in signs]
    if name == "radii":
        return [radius * cp.norm(v, 1) for radius, v in zip(sets, faced, strict=True)]
    if name == "factors":
        return [0.5 * cp.norm(F.T @ v) for F, v in zip(sets, faced, strict=True)]
    if name == "interval":
        return [0.25 * cp.norm(v, 1) for v in faced]
    return [0.3 * cp.norm(v, "inf") + 0.2 * cp.norm(v) for v in faced]


@pytest.mark.parametrize(
    ("name", "loss", "penalty", "kappa"),
    [
        ("radii", "hinge", "l1", 1.0),
        ("radii", "hinge", None, 0.4),
        ("factors", "hinge", "l2", 0.4),
        ("factors", "squared_hinge", "box", 1.0),
        ("interval", "logistic", "l2", 1.0),
        ("interval", "hinge", "box", 0.4),
        ("sum", "huberized_hinge", "l1", 0.4),
        ("sum", "hinge", None, 1.0),
    ],
)
def test_fit_agrees_with_the_formula_in_cvxpy(name, loss, penalty, kappa, two_classes, rng):
    X, y = two_classes(25, 3)
    radii, factors = rng.uniform(0.1, 0.5, size=25), rng.normal(size=(25, 3, 2))
    sets, given, metadata = {
        "radii": (radii, Ball(1.0, norm=np.inf), {"X_radius": radii}),
        "factors": (factors, Ellipsoid(0.5), {"X_factor": factors}),
        "interval": (None, IntervalBox(-0.1, 0.4), {}),
        "sum": (None, Ball(0.3, norm=1) + Ellipsoid(0.2), {}),
    }[name]
    c = rng.uniform(0.5, 2, size=25)
    w, b = cp.Variable(3), cp.Variable()
    h = cp.hstack(_supports(name, X, y, w, sets))
    middle = X + (0.15 if name == "interval" else 0.0)  # a mix is one of what is around it
    x = 1 - cp.multiply(y, middle @ w + b) + kappa * h
    scale = 4 * np.log(2)
    psi = {
        "hinge": lambda: cp.pos(x),
        "squared_hinge": lambda: cp.square(cp.pos(x)),
        "logistic": lambda: cp.logistic(x - 1),
        # a parabola up to the slope 1, then a line: half of Huber's function of the positive part
        "huberized_hinge": lambda: cp.huber(cp.pos(x - 1 + scale), 2 * scale) / (4 * scale),
    }[loss]()
    alpha = 0.7
    price = {"l2": alpha / 2 * cp.sum_squares(w), "l1": alpha * cp.norm(w, 1)}.get(penalty, 0.0)
    limits = [cp.abs(w) <= 1 / alpha] if penalty == "box" else []
    referee = cp.Problem(cp.Minimize(c @ psi + (1 - kappa) * c @ h + price), limits)
    referee.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    model = RobustLinearClassifier(given, loss=loss, penalty=penalty, alpha=alpha, kappa=kappa, solver="clarabel")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model.fit(X, y, sample_weight=c, **metadata)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(referee.value, rel=1e-6)


@pytest.mark.parametrize("method", ["highs", "highs-ds", "highs-ipm"])
def test_methods_of_highs_agree(method, two_classes, rng):
    X, y = two_classes(60, 5)
    stds = rng.uniform(0, 0.3, size=(60, 5))
    own = RobustLinearClassifier(Box(), penalty="l1", tol=1e-8).fit(X, y, X_std=stds)
    model = RobustLinearClassifier(Box(), penalty="l1", solver=Highs(method)).fit(X, y, X_std=stds)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(own.objective_, rel=1e-7)


def test_unknown_method_of_highs_is_refused(two_classes):
    with pytest.raises(ValueError, match=r"Highs\(method='simplex'\): no such method.*'highs-ipm'"):
        RobustLinearClassifier(Box(0.1), penalty="l1", solver=Highs("simplex")).fit(*two_classes(20, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "l2"}, "LinearProgram"),
        ({"penalty": "l1", "loss": "logistic"}, "LinearProgram"),
        ({"penalty": "l1", "uncertainty": Ball(0.1)}, "LinearProgram"),
        ({"uncertainty": Ball(0.1, norm=3), "solver": "clarabel"}, "ConeProgram"),
    ],
)
def test_misfit_names_the_view_and_the_solvers_that_fit(options, message, two_classes):
    model = RobustLinearClassifier(Box(0.1), solver="highs").set_params(**options)
    with pytest.raises(ValueError, match=rf"needs the view {message}, which.*Solvers that fit: '"):
        model.fit(*two_classes(20, 2))
