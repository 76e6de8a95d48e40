"""Both solvers for deleted features: general solvers on the same programs, limits, scales, and an honest end."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from holdfast._core.problem import Offer, Problem
from holdfast._core.programs import DeletionProgram
from holdfast._core.solution import Status
from holdfast._data import rows_of
from holdfast.solvers import DeletionInteriorPoint, DeletionPrimalDual


class Stated(Problem):
    """A problem that is nothing but its program."""

    views = {DeletionProgram: Offer(lambda problem: problem.program)}

    def __init__(self, program):
        self.program = program


def program(
    X, y, *, c=None, values=None, capacity=2.0, gains=None, base=0.0, ridge=0.0, limit=1.0, unit=0.1, **options
):
    m, n = X.shape
    c = np.full(m, 1 / m) if c is None else c
    values = np.ones(n) if values is None else values
    gains = np.full(n, 0.3) if gains is None else gains
    return DeletionProgram(rows_of(X), y, c, values, capacity, gains, base, ridge, limit, unit * c.sum(), **options)


SOLVERS = {"interior point": (DeletionInteriorPoint(), 1e-8), "primal dual": (DeletionPrimalDual(), 1e-5)}
"""Each with the gap that small problems are solved to within a hundred steps."""


@pytest.fixture(params=SOLVERS.values(), ids=SOLVERS)
def way(request):
    return request.param


def solved(stated, tol=1e-8, max_iter=100, solver=SOLVERS["interior point"][0]):
    n = stated.rows.n_features + stated.fit_intercept
    return solver.minimise(Stated(stated), np.zeros(n), tol=tol, max_iter=max_iter)


def referee(stated):
    """Return the optimum by a conic solver on the program written out, zeros like all other entries."""
    X = stated.rows.X.toarray() if sparse.issparse(stated.rows.X) else stated.rows.X
    (m, n), y, N = X.shape, stated.signs, stated.capacity
    deletable = np.isfinite(stated.values)
    v = np.where(deletable, stated.values, 1.0)
    w, b = cp.Variable(n), cp.Variable(1) if stated.fit_intercept else np.zeros(1)
    price = cp.Variable((m, 1), nonneg=not stated.is_spent)
    rest, xi = cp.Variable((m, n), nonneg=True), cp.Variable(m, nonneg=True)
    gain = cp.multiply(y[:, None] * X, np.ones((m, 1)) @ cp.reshape(w, (1, n), order="C")) - np.tile(
        stated.gains, (m, 1)
    )
    constraints = [
        cp.multiply(np.tile(deletable, (m, 1)), gain - price @ v[None] - rest) <= 0,
        xi >= np.full(m, stated.base) - y[:, None] @ b - cp.sum(gain, axis=1) + N * price[:, 0] + cp.sum(rest, axis=1),
    ]
    if np.isfinite(stated.limit):
        constraints.append(cp.abs(w) <= stated.limit)
    cost = stated.weights @ xi + 0.5 * stated.ridge * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL)


def rows(rng, m=25, n=6, zeros=0.0):
    y = rng.choice([-1.0, 1.0], size=m)
    y[:2] = 1, -1
    return (rng.normal(size=(m, n)) + 0.7 * y[:, None]) * (rng.random((m, n)) >= zeros), y


PROGRAMS = {
    "equal values": {},
    "unequal values": {"values": np.array([0.5, 1.0, 2.0, 1.3, 0.7, 3.0])},
    "a part of a feature": {"capacity": 1.4},
    "almost all of it": {"capacity": 5.9},
    "nothing": {"capacity": 0.0},
    "some undeletable": {"values": np.array([1.0, np.inf, 2.0, np.inf, 0.5, 1.0]), "capacity": 1.5},
    "none deletable": {"values": np.full(6, np.inf)},
    "without intercept": {"fit_intercept": False},
    "FDROP": {"base": 1.0, "gains": np.zeros(6), "ridge": 0.1, "limit": np.inf},
    "FDROP, the whole capacity": {"base": 1.0, "gains": np.zeros(6), "ridge": 0.1, "limit": np.inf, "is_spent": True},
    "FDROP, no capacity": {
        "base": 1.0,
        "gains": np.zeros(6),
        "ridge": 0.1,
        "limit": np.inf,
        "is_spent": True,
        "capacity": 0.0,
    },
    "ridge and limit": {"ridge": 0.05, "limit": 0.5},
    "linear, the whole capacity": {"is_spent": True, "values": np.array([0.5, 1.0, 2.0, 1.3, 0.7, 3.0])},
}


@pytest.mark.parametrize("layout", ["dense", "dense with zeros", "sparse"])
@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
def test_it_agrees_with_a_conic_solver(options, layout, way, rng):
    X, y = rows(rng, zeros=0.0 if layout == "dense" else 0.8)
    c = rng.uniform(0, 0.1, size=len(y)) * (rng.random(len(y)) > 0.2)
    stated = program(sparse.csr_array(X) if layout == "sparse" else X, y, c=c, **options)
    solver, tol = way
    found, optimum = solved(stated, tol, 200, solver), referee(stated)
    scale = max(optimum, stated.floor)
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(optimum, abs=(1e-6 + tol) * scale)
    assert found.lower_bound <= optimum + 1e-7 * scale
    assert found.objective - found.lower_bound <= tol * scale


def test_rows_in_several_groups_are_the_same_problem(rng, monkeypatch):
    X, y = rows(rng, m=60, zeros=0.4)
    stated = program(X, y)
    whole = solved(stated)
    monkeypatch.setattr("holdfast.solvers.deletion_interior_point.GROUP_ENTRIES", 1)
    monkeypatch.setattr("holdfast.solvers.deletion_interior_point.GROUP_ROWS", 7)
    parts = solved(stated)
    assert parts.objective == pytest.approx(whole.objective, rel=1e-8)
    assert parts.dual.points.shape == X.shape


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_do_not_matter(factor, way, rng):
    X, y = rows(rng, m=40)
    changed = [
        {"gains": np.full(6, 0.3 * factor), "limit": factor, "unit": 0.1 * factor},
        {"values": np.full(6, factor), "capacity": 2 * factor},
        {"c": np.full(40, factor / 40)},
    ]
    solver, tol = way
    found, of_scores, of_values, of_weights = (
        solved(program(X, y, **options), tol, 200, solver) for options in ({}, *changed)
    )
    assert of_scores.objective == pytest.approx(factor * found.objective, rel=1e-9)
    assert of_values.objective == pytest.approx(found.objective, rel=1e-9)
    assert of_weights.objective == pytest.approx(factor * found.objective, rel=1e-9)
    assert found.n_iter == of_scores.n_iter == of_values.n_iter == of_weights.n_iter


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rows_of_one_class_lose_nothing(sign, way, rng):
    X, _ = rows(rng)
    found = solved(program(X, np.full(len(X), sign)), solver=way[0])
    assert found.status is Status.SOLVED
    assert (found.objective, found.lower_bound) == (0.0, 0.0)
    assert sign * found.parameters[-1] >= 6 * 0.3
    assert not np.any(found.parameters[:-1])


def test_rows_of_weight_0_do_not_count(rng):
    X, y = rows(rng, m=30)
    c = np.where(np.arange(30) < 20, 1.0, 0.0)
    assert solved(program(X, y, c=c)).objective == pytest.approx(
        solved(program(X[:20], y[:20], c=c[:20])).objective, rel=1e-9
    )


def test_limit_of_steps_is_said(way, rng):
    X, y = rows(rng, m=40)
    found = solved(program(X, y), max_iter=3, solver=way[0])
    assert found.status in (Status.ITERATION_LIMIT, Status.SLOW)
    assert found.n_iter == 3
    assert found.lower_bound <= solved(program(X, y)).objective <= found.objective


def test_all_that_floating_point_allows_ends(rng):
    X, y = rows(rng, m=40)
    found = solved(program(X, y), tol=0.0)
    assert found.status is Status.SOLVED
    assert found.objective - found.lower_bound <= 1e-9


def test_start_is_not_changed(way, rng):
    X, y = rows(rng)
    start = np.ones(7)
    way[0].minimise(Stated(program(X, y)), start, tol=1e-6, max_iter=50)
    assert np.all(start == 1)


def test_few_steps_suffice(rng):
    X, y = rows(rng, m=200, n=20)
    assert solved(program(X, y, gains=np.full(20, 0.1), capacity=4.0), tol=1e-6).n_iter <= 33


@pytest.mark.parametrize("ridge", [0.1, 0.01])
def test_products_that_grow_at_first_do_not_end_it(ridge, rng):
    """With positive features in groups that are alike the start is far off, and the first steps lead further away."""
    y = rng.choice([-1.0, 1.0], size=50)
    X = np.repeat(rng.random((50, 10)), 6, axis=1) * (rng.random((50, 60)) < 0.9)
    fdrop = {"base": 1.0, "gains": np.zeros(60), "limit": np.inf, "capacity": 1.0}
    found = solved(program(X, y, c=np.ones(50), ridge=ridge, **fdrop), tol=1e-6)
    assert found.status is Status.SOLVED
    assert found.objective - found.lower_bound <= 1e-6 * found.objective
