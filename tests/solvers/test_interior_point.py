"""The interior point for intervals: the optimum, a dual that proves it, exact zeros, and an honest end."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.special import entr

from holdfast._core.problem import Offer, Problem
from holdfast._core.programs import IntervalProgram
from holdfast._core.solution import Status
from holdfast._core.unit_cholesky import UnitCholesky
from holdfast._data import rows_of
from holdfast.solvers import InteriorPoint
from holdfast.solvers.interior_point import IntervalPoint, ScaledProgram
from holdfast.solvers.interval_steps import Curves, Direction
from holdfast.solvers.selection import solve

BEND = 4 * np.log(2)


def _huberised(z):
    a = np.clip((z + BEND) / (2 * BEND), 0, 1)
    return a * z + BEND * a * (1 - a)


LOSSES = {
    "hinge": {
        "cap": 1.0,
        "value": lambda x: np.maximum(x, 0),
        "dual_value": lambda a: a,
        "dual_slope": lambda a: np.ones_like(a),
        "dual_bend": lambda a: np.zeros_like(a),
    },
    "squared hinge": {
        "cap": np.inf,
        "value": lambda x: np.maximum(x, 0) ** 2,
        "dual_value": lambda a: a - a**2 / 4,
        "dual_slope": lambda a: 1 - a / 2,
        "dual_bend": lambda a: np.full_like(a, -0.5),
    },
    "logistic": {
        "cap": 1.0,
        "value": lambda x: np.logaddexp(0, x - 1),
        "dual_value": lambda a: entr(a) + entr(1 - a),
        "dual_slope": lambda a: np.log1p(-a) - np.log(a),
        "dual_bend": lambda a: -1 / (a * (1 - a)),
    },
    "huberised hinge": {
        "cap": 1.0,
        "value": lambda x: _huberised(x - 1),
        "dual_value": lambda a: BEND * a * (1 - a),
        "dual_slope": lambda a: BEND * (1 - 2 * a),
        "dual_bend": lambda a: np.full_like(a, -2 * BEND),
    },
}
CONVEX = {
    "hinge": cp.pos,
    "squared hinge": lambda u: cp.square(cp.pos(u)),
    "logistic": lambda u: cp.logistic(u - 1),
    "huberised hinge": lambda u: cp.huber(cp.pos(u - 1 + BEND), 2 * BEND) / (4 * BEND),
}
WIDTHS = ["common", "by row", "by row, CSR", "regular"]
PENALTIES = ["ridge", "cost", "limit", "tilt", "nothing else"]
SHAPES = {"tall": (50, 6), "wide": (12, 30)}


class OnlyIntervals(Problem):
    """A problem that offers one view."""

    views = {IntervalProgram: Offer(lambda problem: problem.program)}

    def __init__(self, program):
        self.program = program
        self.n_parameters = program.rows.n_features + program.fit_intercept

    def work(self):
        n, d = self.program.rows.n_samples, self.program.rows.n_features
        return {"n_samples": n, "n_features": d, "n_entries": n * d, "is_cheap_to_factorise": True}


def _program(
    X, y, loss="hinge", *, widths, weights=None, cost=0.0, tilt=0.0, ridge=0.0, limit=np.inf, intercept=True, target=1.0
):
    N, n = X.shape
    weights = np.ones(N) if weights is None else weights
    cost, tilt = np.full(n, cost, dtype=float), tilt + np.zeros(n)
    parts = LOSSES[loss] | {"target": target}
    common, own = widths if isinstance(widths, tuple) else (widths, None) if widths.ndim == 1 else (np.zeros(n), widths)
    return IntervalProgram(rows_of(X), y, weights, common, own, cost, tilt, ridge, limit, intercept, **parts)


def _stated(kind, common, by_row):
    """Return half-widths of one row for all, or of each row: as they are, or as deviations of both signs from another row."""
    if kind == "regular":
        middle = by_row.mean(axis=0)
        return middle, sparse.csr_array(by_row - middle)
    return {"common": common, "by row": by_row, "by row, CSR": sparse.csr_array(by_row)}[kind]


def _solve(program, tol=0.0, **options):
    return solve(OnlyIntervals(program), tol=tol, **options)


def _dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix, dtype=float)


def _objective(program, parameters):
    X, S = _dense(program.rows.X), program.common + (0.0 if program.widths is None else _dense(program.widths))
    w, b = parameters[: X.shape[1]], parameters[-1] if program.fit_intercept else 0.0
    losses = program.value(program.target - program.signs * (X @ w + b) + S @ abs(w))
    return program.weights @ losses + program.cost @ abs(w) + program.tilt @ w + program.ridge / 2 * w @ w


def _excess_and_bound(program, a):
    """Return by how much the budgets are exceeded, as a share of the sums' terms, and the dual value."""
    X, S = _dense(program.rows.X), program.common + (0.0 if program.widths is None else _dense(program.widths))
    alpha = program.weights * a
    pull = X.T @ (program.signs * alpha) - program.tilt
    budget = (S * alpha.sum() if S.ndim == 1 else S.T @ alpha) + program.cost
    over = np.maximum(abs(pull) - budget, 0)
    bound = program.weights @ (program.dual_value(a) + a * (program.target - 1))
    if program.ridge == 0 and program.limit == np.inf:
        return np.max(over / (abs(X).T @ alpha + budget + 1e-300)), bound
    longest = np.minimum(over / program.ridge if program.ridge else np.inf, program.limit)
    return 0.0, bound - np.sum(longest * over - program.ridge / 2 * longest**2)


def _assert_proved(program, found, gap):
    assert found.status is Status.SOLVED
    a = found.dual.slopes
    assert np.all((a >= 0) & (a <= program.cap))
    if program.fit_intercept:
        assert abs(np.sum(program.weights * program.signs * a)) <= 1e-12 * np.sum(program.weights * (a + 1))
    excess, bound = _excess_and_bound(program, a)
    assert excess <= 1e-10
    value = _objective(program, found.parameters)
    assert found.objective == pytest.approx(value, rel=1e-12, abs=1e-12 * program.weights.sum())
    assert -1e-9 * abs(value) <= value - bound <= gap * max(abs(value), 1e-9 * program.weights.sum())
    assert np.all(abs(found.parameters[: program.rows.n_features]) <= program.limit * (1 + 1e-12))


def _cvxpy_optimum(program, loss):
    X, S = _dense(program.rows.X), program.common + (0.0 if program.widths is None else _dense(program.widths))
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    size = cp.abs(w)
    u = program.target - cp.multiply(program.signs, X @ w + (b if program.fit_intercept else 0)) + S @ size
    value = program.weights @ CONVEX[loss](u) + program.cost @ size + program.tilt @ w
    value += program.ridge / 2 * cp.sum_squares(w)
    limits = [size <= program.limit] if program.limit < np.inf else []
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
    return cp.Problem(cp.Minimize(value), limits).solve(solver=cp.CLARABEL, **tight)


def _random_program(rng, loss, kind, penalty, shape, *, intercept, weighted):
    N, n = SHAPES[shape]
    y = np.where(np.arange(N) % 3 > 0, 1.0, -1.0)
    X = rng.normal(size=(N, n)) + 0.8 * y[:, None] * rng.normal(size=n) / np.sqrt(n) + 0.3
    wide = rng.uniform(0, 0.3, size=(N, n)) * (rng.uniform(size=(N, n)) > 0.3)
    widths = _stated(kind, wide[0], wide)
    options = {
        "ridge": {"ridge": 0.7},
        "cost": {"cost": 1.5},
        "limit": {"limit": 0.15},
        "tilt": {"tilt": rng.uniform(-1, 1, n), "cost": 1.2, "ridge": 0.1, "limit": 0.4},
        "nothing else": {"cost": 1e-3},
    }[penalty]
    weights = rng.uniform(0.1, 3, N) if weighted else None
    stored = sparse.csr_array(X * (rng.uniform(size=X.shape) > 0.4)) if kind == "by row, CSR" else X
    target = rng.uniform(0.5, 3, N) if weighted else 1.0
    return _program(stored, y, loss, widths=widths, weights=weights, intercept=intercept, target=target, **options)


CASES = [case for kinds in (WIDTHS[:3], WIDTHS[3:]) for case in itertools.product(LOSSES, kinds, PENALTIES, SHAPES)]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("loss", "kind", "penalty", "shape"), CASES, ids=map(" - ".join, CASES))
def test_optimum_is_that_of_a_conic_solver_and_is_proved(loss, kind, penalty, shape):
    turn = CASES.index((loss, kind, penalty, shape))
    rng = np.random.default_rng(turn)
    intercept, weighted = turn // 2 % 3 > 0, turn // 3 % 2 > 0
    program = _random_program(rng, loss, kind, penalty, shape, intercept=intercept, weighted=weighted)
    found = _solve(program)
    assert len(found.parameters) == program.rows.n_features + intercept
    _assert_proved(program, found, 1e-8)
    assert found.objective == pytest.approx(_cvxpy_optimum(program, loss), rel=1e-7, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", LOSSES)
def test_every_combination_is_proved(loss, seed):
    choices = itertools.product(WIDTHS, PENALTIES, SHAPES, (True, False), (True, False))
    for turn, (kind, penalty, shape, intercept, weighted) in enumerate(choices):
        rng = np.random.default_rng([seed, turn])
        program = _random_program(rng, loss, kind, penalty, shape, intercept=intercept, weighted=weighted)
        _assert_proved(program, _solve(program), 1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", WIDTHS)
def test_equal_rows_of_widths_are_common_widths_however_the_step_is_solved(kind, shape, rng):
    N, n = SHAPES[shape]
    X, y, s = rng.normal(size=(N, n)), np.where(np.arange(N) % 2, 1.0, -1.0), rng.uniform(0.1, 0.4, n)
    by_row = np.tile(s, (N, 1))
    widths = _stated(kind, s, by_row)
    found = _solve(_program(X, y, widths=widths, cost=0.2))
    as_rows_of_themselves = _solve(_program(np.vstack([X] * 9), np.tile(y, 9), widths=s, cost=1.8))
    assert found.objective == pytest.approx(as_rows_of_themselves.objective / 9, rel=1e-9)


def test_the_smaller_of_two_systems_is_factorised(rng, monkeypatch):
    sizes = []
    whole = UnitCholesky.__init__
    monkeypatch.setattr(
        "holdfast._core.unit_cholesky.UnitCholesky.__init__",
        lambda self, matrix, jitters: (sizes.append(len(matrix)), whole(self, matrix, jitters))[1],
    )
    for (N, n), widths, most in (
        ((40, 5), np.full(5, 0.1), 7),
        ((8, 30), np.full(30, 0.1), 8),
        ((40, 5), np.full((40, 5), 0.1), 11),
        ((8, 5), np.full((8, 5), 0.1), 8),
    ):
        sizes.clear()
        _solve(_program(rng.normal(size=(N, n)), np.where(np.arange(N) % 2, 1.0, -1.0), widths=widths, cost=0.1))
        assert set(sizes) == {most}


@pytest.mark.parametrize("intercept", [True, False], ids=["b", "no b"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", WIDTHS)
def test_steps_solve_their_equations_without_refinement(kind, shape, intercept, rng):
    """Refinement would hide a wrong entry of a matrix behind more work."""
    program = _random_program(rng, "logistic", kind, "tilt", shape, intercept=intercept, weighted=True)
    scaled = ScaledProgram.of(program)
    point = IntervalPoint(scaled)
    point.slacks *= rng.uniform(0.2, 2, len(point.slacks))
    point.multipliers *= rng.uniform(0.2, 2, len(point.slacks))
    system = scaled.widths.system(scaled, Curves(scaled, point))
    N, n = SHAPES[shape]
    right = Direction(rng.normal(size=n), rng.normal(size=n), float(intercept), rng.normal(size=N))
    assert system._size(system._rest(right, system.once(right)), right) <= 1e-9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_units_of_features_do_not_matter(loss, shape, rng):
    N, n = SHAPES[shape]
    X, y = rng.normal(size=(N, n)), np.where(np.arange(N) % 2, 1.0, -1.0)
    unit = 10.0 ** rng.uniform(-6, 6, n)
    plain = _program(X, y, loss, widths=np.full(n, 0.2), cost=0.3)
    other = _program(X * unit, y, loss, widths=0.2 * unit)
    other.cost = 0.3 * unit
    found = _solve(other)
    _assert_proved(other, found, 1e-8)
    assert found.objective == pytest.approx(_solve(plain).objective, rel=1e-8)


@pytest.mark.parametrize("widths", [np.full(4, 0.1), np.full((30, 4), 0.1)], ids=["common", "by row"])
def test_rows_of_weight_0_do_not_count(widths, rng):
    X, y, weights = rng.normal(size=(30, 4)), np.where(np.arange(30) % 2, 1.0, -1.0), rng.uniform(0.5, 2, 30)
    weights[::4] = 0
    kept, target = weights > 0, rng.uniform(0.5, 2, 30)
    far = np.where(kept[:, None], X, 1e9)
    found = _solve(_program(far, y, widths=widths, weights=weights, target=target))
    own = {"widths": widths if widths.ndim == 1 else widths[kept], "weights": weights[kept], "target": target[kept]}
    alone = _solve(_program(X[kept], y[kept], **own))
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    np.testing.assert_array_equal(found.dual.slopes[kept], alone.dual.slopes)
    assert len(found.dual.slopes) == 30


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_scales_with_weights_and_penalties(loss, rng):
    X, y = rng.normal(size=(40, 5)), np.where(np.arange(40) % 2, 1.0, -1.0)
    small = _program(X, y, loss, widths=np.full(5, 0.1), weights=np.full(40, 1e-7), ridge=2e-7, cost=1e-7)
    large = _program(X, y, loss, widths=np.full(5, 0.1), ridge=2.0, cost=1.0)
    assert 1e7 * _solve(small).objective == pytest.approx(_solve(large).objective, rel=1e-9)


@pytest.mark.parametrize("scale", [0.0, 0.05], ids=["exact", "with widths"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_separable_rows_without_a_penalty_cost_nothing(loss, shape, scale, rng):
    N, n = SHAPES[shape]
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    X = 0.1 * rng.normal(size=(N, n)) + y[:, None]
    found = _solve(_program(X, y, loss, widths=np.full(n, scale)), tol=1e-6)
    assert found.status is Status.SOLVED
    assert np.all(np.isfinite(found.parameters))
    assert found.objective <= 1e-14 * N


@pytest.mark.parametrize("limit", [np.inf, 3.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_features_without_a_price_are_fitted_freely_and_the_others_can_be_0(loss, limit, rng):
    """Where neither widths nor cost hold it the stand-in for \\|w\\| can be anything."""
    for N, n, priced in ((60, 6, 3), (15, 40, 38)):
        X, y = rng.normal(size=(N, n)), np.where(np.arange(N) % 2, 1.0, -1.0)
        is_priced = np.arange(n) < priced
        program = _program(X, y, loss, widths=np.where(is_priced, 0.6, 0.0), limit=limit)
        program.cost = np.where(is_priced, 1.0, 0.0)
        found = _solve(program, tol=1e-7)
        _assert_proved(program, found, 1e-7)
        assert np.all(found.parameters[:n][~is_priced])
        assert np.count_nonzero(found.parameters[:n][is_priced]) < priced


@pytest.mark.parametrize("widths", [np.full(6, 9.0), np.full((50, 6), 9.0)], ids=["common", "by row"])
@pytest.mark.parametrize("loss", LOSSES)
def test_where_w_is_0_it_is_exactly_0(loss, widths, rng):
    y = np.where(np.arange(50) % 3 > 0, 1.0, -1.0)
    found = _solve(_program(rng.normal(size=(50, 6)), y, loss, widths=widths), tol=1e-6)
    assert not np.any(found.parameters[:-1])
    b = np.linspace(-3, 3, 601)
    constant = min(LOSSES[loss]["value"](1 - y * x).sum() for x in b)
    assert found.objective <= constant * (1 + 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_zeros_are_those_of_a_vertex(shape, rng):
    """A linear program in general position has an optimum with no more nonzeros than kinks that are met."""
    N, n = SHAPES[shape]
    X, y = rng.normal(size=(N, n)), np.where(np.arange(N) % 2, 1.0, -1.0)
    program = _program(X, y, widths=np.full(n, 0.05), cost=1.0)
    for tol in (1e-6, 0.0):
        found = _solve(program, tol=tol)
        w, b = found.parameters[:-1], found.parameters[-1]
        u = 1 - y * (X @ w + b) + 0.05 * abs(w).sum()
        assert 0 < np.count_nonzero(w) < n
        assert np.count_nonzero(w) + 1 <= np.count_nonzero(abs(u) <= 1e-4)


def test_float32_rows_are_computed_with_in_float64(rng):
    X, y = rng.normal(size=(80, 5)).astype(np.float32), np.where(np.arange(80) % 2, 1.0, -1.0)
    single, double = (_program(Z, y, widths=np.full(5, 0.1)) for Z in (X, X.astype(float)))
    assert _solve(single).objective == pytest.approx(_solve(double).objective, rel=1e-12)


def test_a_loose_tolerance_is_kept_and_saves_steps(rng):
    X, y = rng.normal(size=(200, 10)), np.where(np.arange(200) % 2, 1.0, -1.0)
    program = _program(X, y, "logistic", widths=np.full(10, 0.02), cost=0.1)
    loose, tight = _solve(program, tol=1e-2), _solve(program)
    assert loose.n_iter < tight.n_iter
    _assert_proved(program, loose, 1e-2)
    assert tight.objective <= loose.objective


def test_max_iter_is_obeyed_and_owned_up_to(rng):
    X, y = rng.normal(size=(60, 5)), np.where(np.arange(60) % 2, 1.0, -1.0)
    program = _program(X, y, widths=np.full(5, 0.1))
    found = _solve(program, tol=1e-9, max_iter=3)
    assert (found.status, found.n_iter) == (Status.ITERATION_LIMIT, 3)
    assert found.objective == pytest.approx(_objective(program, found.parameters), rel=1e-12)


def test_preference_is_high_where_a_system_is_affordable():
    prefer = InteriorPoint().preference
    sizes = {(10_000, 100): True, (500, 5000): True, (100_000, 2000): False, (5000, 50_000): False}
    for (N, n), affordable in sizes.items():
        assert (prefer({"n_samples": N, "n_features": n}) > 2.0) == affordable
