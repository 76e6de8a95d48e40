"""An interior point for linear classifiers under interval noise, built on the structure of their linear programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError
from scipy.optimize import minimize_scalar

from holdfast._core.problem import IntervalProgram, Problem
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import AFFORDABLE, GAP_FLOOR, ROUNDING, SMALL_WORK
from holdfast._core.unit_cholesky import UnitCholesky

LARGEST_SYSTEM = 4000
"""Unknowns up to which a dense factorisation a step is cheap."""
SPARE = 0.3
"""Share of the tolerated gap at which to stop: the certificate must not fail for a trifle."""
FEASIBLE = 1e-10
"""Share of a sum's terms up to which its excess is put down to rounding."""
JITTERS = 100.0 ** np.arange(-7, 0)
"""Added to the unit diagonal of a matrix before its factorisation, the first that is enough."""
PATIENCE = 10
"""Steps without a better gap after which there is no progress."""
CONTENT = 1e-9
"""Relative gap that counts as solved where all that floating point allows is asked for."""
HINDERED = 0.3
"""A corrected step so much shorter than the predictor's yields to one that is centred instead."""
SMALLEST = 1e-60
"""Slacks and multipliers stay above it: quotients of them, squared, do not overflow."""


class InteriorPoint(Solver):
    r"""Mehrotra's predictor-corrector method on the saddle form of an `IntervalProgram`.

    With :math:`p = v + w` and :math:`q = v - w`, v standing for \|w\|, the dual weights :math:`\alpha = c a` and multipliers
    :math:`\zeta, \xi`, each step solves the optimality conditions

    .. math::
        ridge\, w + tilt - X^\top (y \alpha) = \zeta_p - \zeta_q, \quad S^\top \alpha + cost + \zeta_l = \zeta_p + \zeta_q,

        y^\top \alpha = 0, \quad S v - y (X w + b) + v'(a) + \xi_0 - \xi_1 = 0

    with the products of slacks and multipliers, :math:`p \zeta_p, q \zeta_q, (limit - v) \zeta_l, \alpha \xi_0` and
    :math:`(c\,cap - \alpha) \xi_1`, driven to 0 together, by one Cholesky factorisation of the smaller of two matrices: that of
    the features, or that of the rows. The start is not used. An entry of w whose complement says that it is 0 becomes exactly 0
    where that costs no more than a tenth of `tol`.
    """

    name = "interior_point"
    needs = (IntervalProgram,)
    takes = "It is for intervals around the features, or an l1 penalty. "

    def preference(self, work: dict[str, Any]) -> float:
        few, many = sorted((work["n_samples"], work["n_features"]))
        is_small = min(work["n_samples"], 2 * work["n_features"]) <= LARGEST_SYSTEM
        if work.get("is_exact", False) and few < work["n_samples"] and many * few**2 > SMALL_WORK:
            return 2.0  # many rows that are known exactly: steps that gather the rows near their kinks are fewer
        return 5.0 if is_small and many * few**2 <= AFFORDABLE else 0.2

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        program = problem.view(IntervalProgram)
        assert program is not None
        scaled = _Scaled.of(program)
        point = _Point.first(scaled)
        best = _Best(scaled)
        status, n_iter = Status.ITERATION_LIMIT, 0
        for n_iter in range(1, max_iter + 1):
            state = _State.of(scaled, point)
            best.see(state)
            report(f"interior point {n_iter}: objective {best.value:.10g}, estimated gap {best.gap:.2e}")
            if best.gap <= max(SPARE * tol, ROUNDING) or best.is_at_rounding:
                status = Status.SOLVED
                break
            moved = None if best.age >= PATIENCE else _step(scaled, point, state)
            if moved is None:
                status = Status.STALLED
                break
            point = moved
        else:
            best.see(_State.of(scaled, point))
        if best.gap <= max(tol, CONTENT):
            status = Status.SOLVED
        w, b, value = best.tidied(0.1 * tol)
        parameters = np.append(w, b) if program.fit_intercept else w
        slopes = np.zeros(len(program.signs))
        slopes[scaled.kept] = best.slopes
        dual = DualGuess(slopes, w, np.zeros(len(slopes)))
        return Solution(parameters, status, value, n_iter, self.name, dual=dual)


class _Widths(ABC):
    """Half-widths S of the intervals, seen as a linear map, on features in units of `scale`."""

    @abstractmethod
    def dot(self, v: Array) -> Array:
        """Return S v, shape (n_samples,)."""

    @abstractmethod
    def transpose_dot(self, r: Array) -> Array:
        """Return S'r, shape (n_features,)."""

    @abstractmethod
    def system(self, scaled: _Scaled, curves: _Curves) -> _System:
        """Return the reduced system to solve: the smaller one."""

    @abstractmethod
    def add_outer(self, K: Array, scaled: _Scaled, curves: _Curves) -> None:
        """Add to K what the widths contribute to J Q^-1 J'."""


@dataclass
class _CommonWidths(_Widths):
    """The same half-widths s for all rows."""

    s: Array
    n_samples: int

    def dot(self, v: Array) -> Array:
        return np.full(self.n_samples, self.s @ v)

    def transpose_dot(self, r: Array) -> Array:
        return self.s * r.sum()

    def system(self, scaled: _Scaled, curves: _Curves) -> _System:
        by_feature = len(self.s) + 2 <= self.n_samples
        return _CommonSystem(scaled, curves, self.s) if by_feature else _RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: _Scaled, curves: _Curves) -> None:
        cross = -scaled.signs * scaled.dot(curves.inverse_wv * self.s)
        K += cross[:, None] + cross + self.s @ (curves.inverse_vv * self.s)


@dataclass
class _RowWidths(_Widths):
    """Half-widths of every entry, an array or a CSR array of shape (n_samples, n_features)."""

    S: Any
    scale: Array

    def dot(self, v: Array) -> Array:
        return np.asarray(self.S @ (v / self.scale))

    def transpose_dot(self, r: Array) -> Array:
        return np.asarray(self.S.T @ r) / self.scale

    def system(self, scaled: _Scaled, curves: _Curves) -> _System:
        n_samples, n_features = self.S.shape
        return _PairSystem(scaled, curves, self) if 2 * n_features + 1 <= n_samples else _RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: _Scaled, curves: _Curves) -> None:
        wv, vv = curves.inverse_wv / self.scale**2, curves.inverse_vv / self.scale**2
        right = (self.S @ sparse.diags_array(wv)).T
        for rows, block in scaled.rows.blocks():
            cross = scaled.signs[rows, None] * _dense(_exact(block) @ right)
            K[rows] -= cross
            K[:, rows] -= cross.T
        K += _dense(self.S @ sparse.diags_array(vv) @ self.S.T)

    def grams(self, scaled: _Scaled, weights: Array) -> tuple[Array, Array]:
        """Return X'(y weights)S and S'(weights)S, each (n_features, n_features)."""
        left, signed = (self.S.T @ sparse.diags_array(each) for each in (weights, weights * scaled.signs))
        cross = np.zeros((len(self.scale), len(self.scale)))
        for rows, block in scaled.rows.blocks():
            cross += _dense(signed[:, rows] @ _exact(block)).T
        scales = np.outer(self.scale, self.scale)
        return cross / scales, _dense(left @ self.S) / scales


@dataclass
class _RegularWidths(_Widths):
    """Half-widths that are the same for all rows but for deviations of any sign."""

    common: _CommonWidths
    own: _RowWidths

    def dot(self, v: Array) -> Array:
        return self.common.dot(v) + self.own.dot(v)

    def transpose_dot(self, r: Array) -> Array:
        return self.common.transpose_dot(r) + self.own.transpose_dot(r)

    def system(self, scaled: _Scaled, curves: _Curves) -> _System:
        n_samples, n_features = self.own.S.shape
        return _PairSystem(scaled, curves, self) if 2 * n_features + 1 <= n_samples else _RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: _Scaled, curves: _Curves) -> None:
        self.common.add_outer(K, scaled, curves)
        self.own.add_outer(K, scaled, curves)
        cross = self.own.dot(curves.inverse_vv * self.common.s)
        K += cross[:, None] + cross

    def grams(self, scaled: _Scaled, weights: Array) -> tuple[Array, Array]:
        cross, spread = self.own.grams(scaled, weights)
        s, pull = self.common.s, self.own.transpose_dot(weights)
        cross += np.outer(scaled.transpose_dot(weights * scaled.signs), s)
        spread += np.outer(s, pull + weights.sum() * s) + np.outer(pull, s)
        return cross, spread


def _widths(common: Array, own: Any | None, scale: Array, n_samples: int) -> _Widths:
    """Return the half-widths of a program, features in units of `scale`."""
    if own is None:
        return _CommonWidths(common / scale, n_samples)
    if not np.any(common):
        return _RowWidths(own, scale)
    return _RegularWidths(_CommonWidths(common / scale, n_samples), _RowWidths(own, scale))


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def _exact(block: Any) -> Any:
    return block.astype(np.float64, copy=False)


@dataclass
class _Scaled:
    """The program on rows of positive weight, features in units of `scale`, weights of mean 1; X is not copied for it."""

    program: IntervalProgram
    kept: Any
    rows: Rows
    signs: Array
    weights: Array
    unit: float
    scale: Array
    widths: _Widths
    cost: Array
    tilt: Array
    ridge: Array
    limit: Array
    target: Array

    @classmethod
    def of(cls, program: IntervalProgram) -> _Scaled:
        kept: Any = np.flatnonzero(program.weights > 0)
        common, own = program.common, program.widths
        rows, signs, weights = program.rows, program.signs, program.weights
        if len(kept) < len(weights):
            rows, signs, weights = rows.take(kept), signs[kept], weights[kept]
            own = None if own is None else own[kept]
        else:
            kept = slice(None)
        unit = float(weights.mean())
        spread = common if own is None else common + np.asarray(own.mean(axis=0)).ravel()
        scale = np.maximum(np.sqrt(rows.column_squares), spread)
        scale = np.where(scale > 0, scale, 1.0)
        return cls(
            program,
            kept,
            rows,
            signs.astype(np.float64),
            weights / unit,
            unit,
            scale,
            _widths(common, own, scale, len(weights)),
            program.cost / (unit * scale),
            program.tilt / (unit * scale),
            program.ridge / (unit * scale**2),
            program.limit * scale,
            np.broadcast_to(program.target, len(program.weights))[kept],
        )

    def dot(self, w: Array) -> Array:
        return self.rows.dot(w / self.scale)

    def transpose_dot(self, r: Array) -> Array:
        return self.rows.transpose_dot(r) / self.scale

    @property
    def bias(self) -> float:
        """1 with an intercept, else 0."""
        return float(self.program.fit_intercept)

    @cached_property
    def is_linear(self) -> bool:
        """Whether it is a linear program, where primal and dual may take steps of different lengths."""
        middle = np.full(1, 0.5 * min(self.program.cap, 1.0))
        return self.program.ridge == 0 and not np.any(self.program.dual_bend(middle))

    def slopes(self, alpha: Array) -> Array:
        """Return a = alpha / c, below the cap whatever rounding does: v may be infinitely steep there."""
        return np.minimum(alpha / self.weights, np.nextafter(self.program.cap, 0.0))

    def forward(self, w: Array, v: Array, b: float) -> Array:
        """Return J (w, v, b) = S v - y (X w + b)."""
        return self.widths.dot(v) - self.signs * (self.dot(w) + self.bias * b)

    def adjoint(self, alpha: Array) -> tuple[Array, Array, float]:
        """Return J'alpha: its parts for w, v and b."""
        pull = self.signs * alpha
        return -self.transpose_dot(pull), self.widths.transpose_dot(alpha), -self.bias * float(pull.sum())

    def value(self, w: Array, b: float) -> float:
        """Return the objective in units of the mean weight."""
        losses = self.program.value(self.target + self.forward(w, np.abs(w), b))
        return float(self.weights @ losses + self.cost @ np.abs(w) + self.tilt @ w + 0.5 * self.ridge @ w**2)


@dataclass
class _Point:
    """An interior point: slacks (p, q, limit - v, alpha, c cap - alpha), their multipliers, and b.

    Pairs that are not `held` belong to bounds that do not exist.
    """

    slacks: Array
    multipliers: Array
    held: Any
    b: float
    n_features: int

    @classmethod
    def first(cls, scaled: _Scaled) -> _Point:
        program, n = scaled.program, len(scaled.scale)
        middle = 0.5 * program.cap if program.cap < np.inf else 1.0
        alpha = middle * scaled.weights
        balanced = _balanced(scaled.signs, alpha)
        alpha = balanced if program.fit_intercept and np.any(balanced) else alpha
        pull_w, pull_v, _ = scaled.adjoint(alpha)
        pull, budget = pull_w + scaled.tilt, pull_v + scaled.cost
        is_bounded = scaled.limit < np.inf
        level = np.maximum(budget, np.abs(pull))
        level = np.maximum(level, max(float(np.median(level)), 1e-3 * float(alpha.sum())))
        v = np.minimum(5 * middle / level, 0.5 * scaled.limit)
        room = np.where(is_bounded, scaled.limit - v, 1.0)
        zl = np.where(is_bounded, 0.5 * middle / room, 0.0)
        zp = np.maximum(0.5 * (budget + zl + pull), 0.1 * level)
        zq = np.maximum(0.5 * (budget + zl - pull), 0.1 * level)
        rest = scaled.target - 1 + scaled.widths.dot(v) + program.dual_slope(scaled.slopes(alpha))
        ease = 1 / scaled.weights
        xi0 = np.maximum(-rest, 0.0) + ease
        is_capped = np.full(len(alpha), program.cap < np.inf)
        xi1 = np.where(is_capped, np.maximum(rest, 0.0) + ease, 0.0)
        beta = program.cap * scaled.weights - alpha if program.cap < np.inf else np.ones_like(alpha)
        exists = np.ones(2 * n + len(alpha), dtype=bool)
        held = np.concatenate([exists[: 2 * n], is_bounded, exists[2 * n :], is_capped])
        return cls(np.concatenate([v, v, room, alpha, beta]), np.concatenate([zp, zq, zl, xi0, xi1]), held, 0.0, n)

    def parts(self, stacked: Array) -> list[Array]:
        """Return the five parts of what is stacked like the slacks."""
        n, N = self.n_features, (len(self.slacks) - 3 * self.n_features) // 2
        return np.split(stacked, [n, 2 * n, 3 * n, 3 * n + N])

    @property
    def mu(self) -> float:
        """The mean product of slack and multiplier."""
        return float(self.slacks @ self.multipliers) / max(1, int(np.count_nonzero(self.held)))

    def by_slack(self, x: Array) -> Array:
        """Return x over the slacks, 0 where there is no bound."""
        return np.divide(x, self.slacks, out=np.zeros(len(x)), where=self.held)

    def moved(self, step: _Step, primal: float, dual: float) -> _Point:
        """Return the point so far along the step."""
        n = 3 * self.n_features
        slacks, multipliers = self.slacks.copy(), self.multipliers.copy()
        slacks[:n] += primal * step.slacks[:n]
        slacks[n:] += dual * step.slacks[n:]
        multipliers[:n] += dual * step.multipliers[:n]
        multipliers[n:] += primal * step.multipliers[n:]
        slacks = np.where(self.held, np.maximum(slacks, SMALLEST), slacks)
        multipliers = np.where(self.held, np.maximum(multipliers, SMALLEST), 0.0)
        return _Point(slacks, multipliers, self.held, self.b + primal * step.b, self.n_features)

    def lengths(self, step: _Step) -> tuple[float, float]:
        """Return the longest primal and dual step, 1 at most, that stays inside."""
        n = 3 * self.n_features
        slack = _ratios(self.slacks, step.slacks, self.held)
        multiplier = _ratios(self.multipliers, step.multipliers, self.held)
        primal = min(np.min(slack[:n], initial=np.inf), np.min(multiplier[n:], initial=np.inf))
        dual = min(np.min(slack[n:], initial=np.inf), np.min(multiplier[:n], initial=np.inf))
        return float(primal), float(dual)


def _ratios(x: Array, step: Array, held: Any) -> Array:
    """Return how many steps each entry can take before it is 0, inf where more than two."""
    return np.divide(-x, step, out=np.full(len(x), np.inf), where=held & (step < -0.5 * x))


class _Step(NamedTuple):
    """Changes of a point."""

    slacks: Array
    multipliers: Array
    b: float


@dataclass
class _State:
    """What the optimality conditions say at a point."""

    w: Array
    b: float
    slopes: Array
    residuals: tuple[Array, Array, float]
    """What the conditions of p, q and b lack."""
    deficits: Array
    """What those of alpha lack."""
    value: float
    bound: float
    mu: float
    room: Array
    """v - |w|, which goes to 0 faster than w where w is not 0; -1 where |w| has no price."""

    @property
    def lack(self) -> float:
        """The largest residual of the weights' conditions, as a share of the rows' weight."""
        rp, rq, rb = self.residuals
        return float(np.max(np.abs(np.concatenate([rp, rq, [rb]])))) / len(self.deficits)

    @classmethod
    def of(cls, scaled: _Scaled, point: _Point) -> _State:
        program = scaled.program
        p, q, _, alpha, _ = point.parts(point.slacks)
        zp, zq, zl, xi0, xi1 = point.parts(point.multipliers)
        w, v, a = 0.5 * (p - q), 0.5 * (p + q), scaled.slopes(alpha)
        size = np.abs(w)
        scores = scaled.dot(w) + scaled.bias * point.b
        spread = scaled.widths.dot(v)
        lacking = -(scaled.target - 1 + spread - scaled.signs * scores + program.dual_slope(a) + xi0 - xi1)
        losses = program.value(scaled.target - scaled.signs * scores + scaled.widths.dot(size))
        linear = scaled.cost @ size + scaled.tilt @ w + 0.5 * scaled.ridge @ w**2
        value = float(scaled.weights @ losses + linear)
        pull, budget, balance = scaled.adjoint(alpha)
        along_w, along_v = pull + scaled.tilt + scaled.ridge * w, budget + scaled.cost + zl
        residuals = (zp - 0.5 * (along_v + along_w), zq - 0.5 * (along_v - along_w), -balance)
        # only a price can hold a weight at 0
        room = np.where(budget + scaled.cost > FEASIBLE * alpha.sum(), v - size, -1.0)
        share, penalty = _dual_penalty(scaled, pull, budget, float(alpha.sum()), size)
        losses = program.dual_value(share * a) + share * a * (scaled.target - 1)
        bound = float(scaled.weights @ losses) - penalty - share * abs(balance * point.b)
        return cls(w, point.b, share * a, residuals, lacking, value, bound, point.mu, room)


def _dual_penalty(scaled: _Scaled, pull: Array, budget: Array, total: float, size: Array) -> tuple[float, float]:
    """Return the largest share of alpha, 1 at most, that is dual feasible, and what |pull| > budget costs it.

    An excess is borne by the ridge up to the limit. With neither there must be none but for rounding, which is charged with
    weights of this `size`; inf where no share will do.
    """
    is_unbounded = (scaled.ridge == 0) & (scaled.limit == np.inf)
    rounding = FEASIBLE * (np.abs(pull) + budget + 1e-3 * total)
    share = 1.0
    for sign in (-1.0, 1.0):
        over, allowed = sign * pull - budget, scaled.cost - sign * scaled.tilt
        is_over = is_unbounded & (over > np.maximum(allowed + rounding, 0.0))
        share = min(share, float(np.min(np.maximum(allowed[is_over], 0.0) / over[is_over], initial=1.0)))
    excess = np.maximum(np.abs(share * pull + scaled.tilt) - share * budget - scaled.cost, 0.0)
    if np.any(is_unbounded & (excess > rounding)):
        return share, np.inf
    held = np.divide(excess, scaled.ridge, out=np.full(len(pull), np.inf), where=scaled.ridge > 0)
    longest = np.where(is_unbounded, size, np.minimum(held, scaled.limit))
    return share, float(np.sum(longest * (excess - 0.5 * scaled.ridge * longest)))


class _Best:
    """The best primal and the best dual point seen so far."""

    def __init__(self, scaled: _Scaled):
        self.scaled, self.age, self.lowest, self.bound = scaled, 0, np.inf, -np.inf
        self.mu = self.lack = np.inf
        self.floor = GAP_FLOOR * len(scaled.signs)

    def see(self, state: _State) -> None:
        """Take note of a point."""
        lowest, gap = self.lowest, self.gap
        if state.value < self.lowest:
            self.lowest, self.primal = state.value, state
        if state.bound > self.bound or self.bound == -np.inf:
            self.bound, self.dual = state.bound, state
        is_on_the_way = ROUNDING * self.scale < state.mu < 0.9 * self.mu or 1e-12 < state.lack < 0.9 * self.lack
        is_better = self.gap < 0.9 * gap or (self.bound <= 0 and self.lowest < 0.99 * lowest)
        self.mu, self.lack = min(self.mu, state.mu), min(self.lack, state.lack)
        self.age = 0 if is_better or is_on_the_way else self.age + 1

    @property
    def gap(self) -> float:
        """The relative gap."""
        return (self.lowest - self.bound) / self.scale

    @property
    def scale(self) -> float:
        """What the gap is measured against."""
        return max(abs(self.lowest), self.floor)

    @property
    def is_at_rounding(self) -> bool:
        """Whether the gap is 1e-15 of the weight."""
        return self.lowest - self.bound <= 1e-6 * self.floor

    @property
    def value(self) -> float:
        """The lowest objective, in the problem's units."""
        return self.lowest * self.scaled.unit

    @property
    def slopes(self) -> Array:
        """Dual weights of the kept rows, each from 0 to cap; those of the two classes weigh the same."""
        return self.dual.slopes

    def tidied(self, allowed: float) -> tuple[Array, float, float]:
        """Return w, b and the objective, with as many entries of w made 0 as a share `allowed` of it permits."""
        scaled, w, b, value = self.scaled, self.primal.w, self.primal.b, self.lowest
        most = value + max(allowed, ROUNDING) * max(abs(value), self.floor)
        for share in (1e-3, 1.0, 1e3):
            tidy = np.where(np.abs(w) <= self.primal.room / share, 0.0, w)
            moved_b = _best_intercept(scaled, tidy, b)
            found = scaled.value(tidy, moved_b)
            if found <= most:
                w, b, value = tidy, moved_b, found
                break
        return w / scaled.scale, b, value * scaled.unit


def _best_intercept(scaled: _Scaled, w: Array, b: float) -> float:
    """Return the best intercept near b: a minimum, or the kink of a row next to it."""
    if not scaled.program.fit_intercept:
        return b
    deficits = scaled.target + scaled.forward(w, np.abs(w), 0.0)

    def cost(x: float) -> float:
        return float(scaled.weights @ scaled.program.value(deficits - scaled.signs * x))

    reach = 1e-3 * (1 + abs(b))
    low = float(minimize_scalar(cost, bounds=(b - reach, b + reach), options={"xatol": 1e-6 * reach}).x)
    kinks = scaled.signs * deficits
    return min((b, low, float(kinks[np.argmin(np.abs(kinks - low))])), key=cost)


def _balanced(signs: Array, alpha: Array) -> Array:
    """Return alpha with the larger of the two class sums shrunk to the smaller."""
    of_plus, of_minus = float(alpha[signs > 0].sum()), float(alpha[signs < 0].sum())
    least = min(of_plus, of_minus)
    return alpha * np.where(signs > 0, least / (of_plus or 1.0), least / (of_minus or 1.0))


class _Curves:
    r"""The diagonal parts of a Newton step: Q over (p, q) of each feature, and 1/D of each row.

    With ratios t of multipliers to slacks :math:`1/D = t_0 + t_1 - v''(a)/c` and

    .. math::
        Q = \begin{pmatrix} t_p & 0 \\ 0 & t_q \end{pmatrix}
        + \tfrac14 ridge \begin{pmatrix} 1 & -1 \\ -1 & 1 \end{pmatrix}
        + \tfrac14 t_l \begin{pmatrix} 1 & 1 \\ 1 & 1 \end{pmatrix}.

    What is wanted of its inverse is written without cancellation.
    """

    def __init__(self, scaled: _Scaled, point: _Point):
        self.ratios = point.by_slack(point.multipliers)
        self.tp, self.tq, self.tl, t0, t1 = point.parts(self.ratios)
        self.ridge = scaled.ridge
        alpha = point.parts(point.slacks)[3]
        bend = -scaled.program.dual_bend(scaled.slopes(alpha)) / scaled.weights
        self.by_row = bend + t0 + t1
        self.of_v = self.tp + self.tq + self.tl
        self.det = 4 * self.tp * self.tq + self.ridge * self.of_v + self.tl * (self.tp + self.tq)

    @property
    def of_w(self) -> Array:
        """The curvature of w once v is eliminated."""
        return self.ridge + (4 * self.tp * self.tq + self.tl * (self.tp + self.tq)) / self.of_v

    @property
    def inverse_ww(self) -> Array:
        return self.of_v / self.det

    @property
    def inverse_wv(self) -> Array:
        return (self.tq - self.tp) / self.det

    @property
    def inverse_vv(self) -> Array:
        return (self.ridge + self.tp + self.tq) / self.det

    def solve(self, rp: Array, rq: Array) -> tuple[Array, Array]:
        """Return Q^-1 (rp, rq) over (p, q)."""
        bent, held = self.ridge * (rp + rq), self.tl * (rp - rq)
        return (4 * self.tq * rp + held + bent) / self.det, (4 * self.tp * rq - held + bent) / self.det

    def dot(self, dp: Array, dq: Array) -> tuple[Array, Array]:
        """Return Q (dp, dq)."""
        bent, held = 0.25 * self.ridge * (dp - dq), 0.25 * self.tl * (dp + dq)
        return self.tp * dp + bent + held, self.tq * dq - bent + held


class _Direction(NamedTuple):
    """Changes of p, q, b and alpha, or what their equations lack."""

    p: Array
    q: Array
    b: float
    alpha: Array

    def plus(self, other: _Direction) -> _Direction:
        return _Direction(self.p + other.p, self.q + other.q, self.b + other.b, self.alpha + other.alpha)


class _System(ABC):
    """The equations Q d + J'alpha = r, J d - alpha / D = g of a step, factorised."""

    def __init__(self, scaled: _Scaled, curves: _Curves):
        self.scaled, self.curves = scaled, curves

    @abstractmethod
    def once(self, r: _Direction) -> _Direction:
        """Return a solution up to rounding."""

    def solve(self, r: _Direction) -> _Direction:
        """Return a solution, refined while that helps."""
        found = self.once(r)
        rest = self._rest(r, found)
        size = self._size(rest, r)
        for _ in range(3):
            if size <= 1e-12:
                break
            again = found.plus(self.once(rest))
            new_rest = self._rest(r, again)
            new_size = self._size(new_rest, r)
            if not new_size < 0.5 * size:
                break
            found, rest, size = again, new_rest, new_size
        return found

    def _rest(self, r: _Direction, found: _Direction) -> _Direction:
        scaled = self.scaled
        pull, budget, balance = scaled.adjoint(found.alpha)
        Qp, Qq = self.curves.dot(found.p, found.q)
        image = scaled.forward(0.5 * (found.p - found.q), 0.5 * (found.p + found.q), found.b)
        return _Direction(
            r.p - Qp - 0.5 * (budget + pull),
            r.q - Qq - 0.5 * (budget - pull),
            r.b - balance,
            r.alpha - image + found.alpha * self.curves.by_row,
        )

    def _size(self, rest: _Direction, r: _Direction) -> float:
        """Return the largest residual, of either equation as a share of its own right-hand side."""
        of_features = [np.max(np.abs(np.concatenate([each.p, each.q, [each.b]]))) for each in (rest, r)]
        of_rows = [np.max(np.abs(each.alpha)) for each in (rest, r)]
        return float(max(part / max(whole, SMALLEST) for part, whole in (of_features, of_rows)))


class _RowSystem(_System):
    """One unknown a row: K alpha = J Q^-1 r - g with K = 1/D + J Q^-1 J', bordered by y for the intercept."""

    def __init__(self, scaled: _Scaled, curves: _Curves):
        super().__init__(scaled, curves)
        K = scaled.rows.outer(curves.inverse_ww / scaled.scale**2)
        K *= scaled.signs
        K *= scaled.signs[:, None]
        scaled.widths.add_outer(K, scaled, curves)
        K.flat[:: len(K) + 1] += curves.by_row
        self.factor = UnitCholesky(K, JITTERS)
        self.border = self.factor.solve(scaled.signs)
        self.corner = scaled.bias * float(scaled.signs @ self.border) + (1 - scaled.bias)
        if not self.corner > 0:
            raise LinAlgError("The intercept is not determined in floating point.")

    def once(self, r: _Direction) -> _Direction:
        scaled, curves = self.scaled, self.curves
        p, q = curves.solve(r.p, r.q)
        alpha = self.factor.solve(scaled.forward(0.5 * (p - q), 0.5 * (p + q), 0.0) - r.alpha)
        b = scaled.bias * (float(scaled.signs @ alpha) + r.b) / self.corner
        alpha = alpha - b * self.border
        pull, budget, _ = scaled.adjoint(alpha)
        p, q = curves.solve(r.p - 0.5 * (budget + pull), r.q - 0.5 * (budget - pull))
        return _Direction(p, q, b, alpha)


class _FeatureSystem(_System):
    """Unknowns of the features: (J'DJ + Q) d = r + J'D g, then alpha = D (J d - g)."""

    @cached_property
    def by_row(self) -> Array:
        return 1 / self.curves.by_row

    def once(self, r: _Direction) -> _Direction:
        scaled = self.scaled
        pull, budget, balance = scaled.adjoint(self.by_row * r.alpha)
        p, q, b = self.reduced(r.p + 0.5 * (budget + pull), r.q + 0.5 * (budget - pull), r.b + balance)
        image = scaled.forward(0.5 * (p - q), 0.5 * (p + q), b)
        return _Direction(p, q, b, self.by_row * (image - r.alpha))

    @abstractmethod
    def reduced(self, rp: Array, rq: Array, rb: float) -> tuple[Array, Array, float]:
        """Return p, q and b that solve the system over the features."""


class _CommonSystem(_FeatureSystem):
    r"""For common widths: v is eliminated, up to :math:`s^\top v`, which joins w and b.

    It is measured in units of `root`, the square root of :math:`s^\top Q_{vv}^{-1} s`.
    """

    def __init__(self, scaled: _Scaled, curves: _Curves, s: Array):
        super().__init__(scaled, curves)
        n, D, y, bias = len(s), self.by_row, scaled.signs, scaled.bias
        self.s, self.root = s, float(np.sqrt(np.sum(s**2 / curves.of_v)))
        self.unit = s / (self.root or 1.0)
        self.lean = (curves.tp - curves.tq) / curves.of_v * self.unit
        self.cross, self.total, self.skew = scaled.transpose_dot(y * D), float(D.sum()), bias * float(y @ D)
        M = np.empty((n + 2, n + 2))
        M[:n, :n] = scaled.rows.gram(D) / scaled.scale / scaled.scale[:, None] + np.outer(self.lean, self.lean)
        M.flat[: n * (n + 2) : n + 3] += curves.of_w
        M[n, :n] = M[:n, n] = bias * scaled.transpose_dot(D)
        M[n + 1, :n] = M[:n, n + 1] = self.lean - self.root * self.cross
        M[n, n], M[n + 1, n + 1] = bias * self.total + (1 - bias), 1 + self.root**2 * self.total
        M[n + 1, n] = M[n, n + 1] = -self.root * self.skew
        self.factor = UnitCholesky(M, JITTERS)

    def reduced(self, rp: Array, rq: Array, rb: float) -> tuple[Array, Array, float]:
        tp, tq, tl, of_v = self.curves.tp, self.curves.tq, self.curves.tl, self.curves.of_v
        rv = rp + rq
        share = float(self.unit @ (rv / of_v))
        rw = (rp * (2 * tq + tl) - rq * (2 * tp + tl)) / of_v + self.lean * share
        found = self.factor.solve(np.concatenate([rw, [rb, share]]))
        w, b, level = found[:-2], float(found[-2]), found[-1]
        rv = rv - self.s * (self.total * self.root * level - self.cross @ w - self.skew * b)
        return (rv + (2 * tq + tl) * w) / of_v, (rv - (2 * tp + tl) * w) / of_v, b


class _PairSystem(_FeatureSystem):
    """For widths of every entry: unknowns p, q and b."""

    def __init__(self, scaled: _Scaled, curves: _Curves, widths: _RowWidths | _RegularWidths):
        super().__init__(scaled, curves)
        n, D, y, bias = len(scaled.scale), self.by_row, scaled.signs, scaled.bias
        own = scaled.rows.gram(D) / scaled.scale / scaled.scale[:, None]
        cross, spread = widths.grams(scaled, D)
        M = np.empty((2 * n + 1, 2 * n + 1))
        even, odd = 0.25 * (own + spread), 0.25 * (cross + cross.T)
        M[:n, :n], M[n : 2 * n, n : 2 * n] = even - odd, even + odd
        M[:n, n : 2 * n] = 0.25 * (spread - own + cross.T - cross)
        M[n : 2 * n, :n] = M[:n, n : 2 * n].T
        both = 0.25 * (curves.ridge + curves.tl)
        M.flat[: 2 * n * (2 * n + 1) : 2 * n + 2] += np.concatenate([curves.tp + both, curves.tq + both])
        index = np.arange(n)
        M[index, n + index] += 0.25 * (curves.tl - curves.ridge)
        M[n + index, index] += 0.25 * (curves.tl - curves.ridge)
        pull, budget = bias * scaled.transpose_dot(D), -bias * widths.transpose_dot(y * D)
        M[2 * n, :n] = M[:n, 2 * n] = 0.5 * (budget + pull)
        M[2 * n, n : 2 * n] = M[n : 2 * n, 2 * n] = 0.5 * (budget - pull)
        M[2 * n, 2 * n] = bias * float(D.sum()) + (1 - bias)
        self.factor = UnitCholesky(M, JITTERS)

    def reduced(self, rp: Array, rq: Array, rb: float) -> tuple[Array, Array, float]:
        found = self.factor.solve(np.concatenate([rp, rq, [rb]]))
        n = len(rp)
        return found[:n], found[n : 2 * n], float(found[-1])


def _step(scaled: _Scaled, point: _Point, state: _State) -> _Point | None:
    """Return the next point: Mehrotra's predictor and corrector; None where floating point has no more to give."""
    curves = _Curves(scaled, point)
    try:
        system = scaled.widths.system(scaled, curves)
    except LinAlgError:
        return None
    mu = point.mu

    def direction(target: float, correction: Array | float) -> _Step:
        change = point.by_slack(target - point.slacks * point.multipliers - correction)
        kp, kq, kl, k0, k1 = point.parts(change)
        rp, rq, rb = state.residuals
        d = system.solve(_Direction(rp + kp - 0.5 * kl, rq + kq - 0.5 * kl, rb, state.deficits - k0 + k1))
        slacks = np.concatenate([d.p, d.q, -0.5 * (d.p + d.q), d.alpha, -d.alpha])
        return _Step(slacks, change - curves.ratios * slacks, d.b)

    def lengths(step: _Step, share: float) -> tuple[float, float]:
        primal, dual = point.lengths(step)
        if not scaled.is_linear:
            primal = dual = min(primal, dual)
        return min(1.0, share * primal), min(1.0, share * dual)

    predictor = direction(0.0, 0.0)
    reached = point.moved(predictor, *lengths(predictor, 1.0)).mu
    centring = (reached / mu) ** 3
    step = direction(centring * mu, predictor.slacks * predictor.multipliers)
    share = 0.99 if mu > 1e-6 else 0.9995
    if min(lengths(step, 1.0)) < HINDERED * min(lengths(predictor, 1.0)):
        plain = direction(max(centring, HINDERED) * mu, 0.0)
        step = max(step, plain, key=lambda tried: min(lengths(tried, 1.0)))
    if not (np.all(np.isfinite(step.slacks)) and np.all(np.isfinite(step.multipliers))):
        return None
    return point.moved(step, *lengths(step, share))
