"""An interior point for linear classifiers under interval noise, built on the structure of their linear programs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.problem import Problem
from holdfast._core.programs import IntervalProgram
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess, Solution
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import AFFORDABLE, GAP_FLOOR, ROUNDING, SMALL_WORK
from holdfast.solvers.interval_steps import Curves, Direction, Widths, widths_of
from holdfast.solvers.mehrotra import Best, PrimalDual

LARGEST_SYSTEM = 4000
"""Most unknowns for which one dense factorisation per step is cheap."""
FEASIBLE = 1e-10
"""An excess up to this share of the terms of its sum is attributed to rounding."""
HINDERED = 0.3
"""A corrected step shorter than this share of the predictor's is compared with a centred step."""
SMALLEST = 1e-60
"""Slacks and multipliers are kept above this, so that squares of their quotients do not overflow."""


class InteriorPoint(Solver):
    r"""Mehrotra's predictor-corrector method on the saddle form of an `IntervalProgram`.

    With :math:`p = v + w` and :math:`q = v - w`, v standing for \|w\|, the dual weights :math:`\alpha = c a` and
    multipliers :math:`\zeta, \xi`, each step solves the optimality conditions

    .. math::
        ridge\, w + tilt - X^\top (y \alpha) = \zeta_p - \zeta_q, \quad S^\top \alpha + cost + \zeta_l = \zeta_p + \zeta_q,

        y^\top \alpha = 0, \quad S v - y (X w + b) + v'(a) + \xi_0 - \xi_1 = 0

    with the products of slacks and multipliers, :math:`p \zeta_p, q \zeta_q, (limit - v) \zeta_l, \alpha \xi_0` and
    :math:`(c\,cap - \alpha) \xi_1`, driven to 0 together, by one Cholesky factorisation of the smaller of two matrices:
    that of the features, or that of the rows. The start is not used. Entries of w that complementarity shows to be 0
    are set to exactly 0 if that costs no more than a tenth of `tol`.
    """

    name = "interior_point"
    needs = (IntervalProgram,)
    takes = "It is for intervals around the features, or an l1 penalty. "

    def preference(self, work: dict[str, Any]) -> float:
        few, many = sorted((work["n_samples"], work["n_features"]))
        is_small = min(work["n_samples"], 2 * work["n_features"]) <= LARGEST_SYSTEM
        if work.get("is_exact", False) and few < work["n_samples"] and many * few**2 > SMALL_WORK:
            return 2.0  # many exact rows: solvers that gather the rows near kinks take fewer steps
        return 5.0 if is_small and many * few**2 <= AFFORDABLE else 0.2

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        program = problem.view(IntervalProgram)
        assert program is not None
        point = IntervalPoint(ScaledProgram.of(program))
        status, n_iter = point.solve(tol=tol, max_iter=max_iter, report=report)
        w, b, value = point.tidied(0.1 * tol)
        parameters = np.append(w, b) if program.fit_intercept else w
        slopes = np.zeros(len(program.signs))
        slopes[point.scaled.kept] = point.best.dual.slopes
        return Solution(parameters, status, value, n_iter, self.name, dual=DualGuess(slopes, w, np.zeros(len(slopes))))


@dataclass
class ScaledProgram:
    """The program on rows of positive weight, features in units of `scale`, weights of mean 1; X is not copied."""

    program: IntervalProgram
    kept: Any
    rows: Rows
    signs: Array
    weights: Array
    unit: float
    scale: Array
    widths: Widths
    cost: Array
    tilt: Array
    ridge: Array
    limit: Array
    target: Array

    @classmethod
    def of(cls, program: IntervalProgram) -> ScaledProgram:
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
            widths_of(common, own, scale, len(weights)),
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
        """Whether the program is linear, so that primal and dual may take steps of different lengths."""
        middle = np.full(1, 0.5 * min(self.program.cap, 1.0))
        return self.program.ridge == 0 and not np.any(self.program.dual_bend(middle))

    def slopes(self, alpha: Array) -> Array:
        """Return a = alpha / c, below the cap despite rounding: v may be infinitely steep at the cap."""
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


class _Step(NamedTuple):
    """Changes of a point."""

    slacks: Array
    multipliers: Array
    b: float


class IntervalPoint(PrimalDual):
    """Slacks (p, q, limit - v, alpha, c cap - alpha), their multipliers, and b.

    Pairs that are not `held` belong to bounds that do not exist.
    """

    title, patience, finest = "interior point", 10, ROUNDING
    taken: _Step

    def __init__(self, scaled: ScaledProgram):
        self.scaled, self.unit, self.has_one_length = scaled, scaled.unit, not scaled.is_linear
        self.n_features, self.b = len(scaled.scale), 0.0
        floor = GAP_FLOOR * len(scaled.signs)
        self.best = Best(floor, rounding=1e-6 * floor)
        self.least_mu = self.least_lack = np.inf
        self._start()

    def _start(self) -> None:
        scaled = self.scaled
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
        self.slacks = np.concatenate([v, v, room, alpha, beta])
        self.multipliers = np.concatenate([zp, zq, zl, xi0, xi1])
        self.held = np.concatenate([exists[: 2 * n], is_bounded, exists[2 * n :], is_capped])

    def parts(self, stacked: Array) -> list[Array]:
        """Return the five parts of an array that is stacked like the slacks."""
        n, N = self.n_features, (len(self.slacks) - 3 * self.n_features) // 2
        return np.split(stacked, [n, 2 * n, 3 * n, 3 * n + N])

    @property
    def mu(self) -> float:
        return float(self.slacks @ self.multipliers) / max(1, int(np.count_nonzero(self.held)))

    def by_slack(self, x: Array) -> Array:
        """Return x / slacks, and 0 where there is no bound."""
        return np.divide(x, self.slacks, out=np.zeros(len(x)), where=self.held)

    def look(self, goal: float) -> None:
        state = self.state = _State.of(self.scaled, self)
        before, lowest = self.best.value, min(self.best.value, state.value)
        tiny = ROUNDING * max(abs(lowest), self.best.floor)
        is_falling = tiny < self.mu < 0.9 * self.least_mu or 1e-12 < state.lack < 0.9 * self.least_lack
        is_lower = max(self.best.bound, state.bound) <= 0 and lowest < 0.99 * before
        self.least_mu, self.least_lack = min(self.least_mu, self.mu), min(self.least_lack, state.lack)
        self.best.see(state.value, state, state.bound, state, is_on_the_way=is_falling or is_lower)

    def factorise(self) -> None:
        self.curves = Curves(self.scaled, self)
        self.system = self.scaled.widths.system(self.scaled, self.curves)

    def turn(self, aim: float, most: float) -> tuple[float, float]:
        correction = np.clip(self.taken.slacks * self.taken.multipliers, -most, most) if most > 0 else 0.0
        change = self.by_slack(aim - self.slacks * self.multipliers - correction)
        kp, kq, kl, k0, k1 = self.parts(change)
        rp, rq, rb = self.state.residuals
        d = self.system.solve(Direction(rp + kp - 0.5 * kl, rq + kq - 0.5 * kl, rb, self.state.deficits - k0 + k1))
        slacks = np.concatenate([d.p, d.q, -0.5 * (d.p + d.q), d.alpha, -d.alpha])
        self.taken = _Step(slacks, change - self.curves.ratios * slacks, d.b)
        return self._fits()

    def correct(self, mu: float, centring: float, predicted: tuple[float, float]) -> tuple[float, float]:
        fits, corrected = super().correct(mu, centring, predicted), self.taken
        if not min(self.lengths(fits)) < HINDERED * min(predicted):
            return fits
        # the correction has gone wrong: a centred step without it may go further
        plain = self.turn(max(centring, HINDERED) * mu, 0.0)
        if min(self.lengths(plain)) > min(self.lengths(fits)):
            return plain
        self.taken = corrected
        return fits

    def share(self, mu: float) -> float:
        # near the end only rounding limits the step
        return 0.99 if mu > 1e-6 else 0.9995

    def _fits(self) -> tuple[float, float]:
        n = 3 * self.n_features
        slack = _ratios(self.slacks, self.taken.slacks, self.held)
        multiplier = _ratios(self.multipliers, self.taken.multipliers, self.held)
        primal = min(np.min(slack[:n], initial=np.inf), np.min(multiplier[n:], initial=np.inf))
        dual = min(np.min(slack[n:], initial=np.inf), np.min(multiplier[:n], initial=np.inf))
        return float(primal), float(dual)

    def _moved(self, primal: float, dual: float) -> tuple[Array, Array]:
        """Return slacks and multipliers after a step."""
        n = 3 * self.n_features
        slacks, multipliers = self.slacks.copy(), self.multipliers.copy()
        slacks[:n] += primal * self.taken.slacks[:n]
        slacks[n:] += dual * self.taken.slacks[n:]
        multipliers[:n] += dual * self.taken.multipliers[:n]
        multipliers[n:] += primal * self.taken.multipliers[n:]
        slacks = np.where(self.held, np.maximum(slacks, SMALLEST), slacks)
        return slacks, np.where(self.held, np.maximum(multipliers, SMALLEST), 0.0)

    def product(self, primal: float, dual: float) -> float:
        slacks, multipliers = self._moved(*self.lengths((primal, dual)))
        return float(slacks @ multipliers) / max(1, int(np.count_nonzero(self.held)))

    def move(self, primal: float, dual: float) -> bool:
        if not (np.all(np.isfinite(self.taken.slacks)) and np.all(np.isfinite(self.taken.multipliers))):
            return False
        self.slacks, self.multipliers = self._moved(primal, dual)
        self.b += primal * self.taken.b
        del self.curves, self.system, self.taken  # as large as all rows together, and useless at the next point
        return True

    def tidied(self, allowed: float) -> tuple[Array, float, float]:
        """Return w, b and the objective; small entries of w are 0 if that raises it by its share `allowed` at most."""
        scaled, w, b, value = self.scaled, self.best.primal.w, self.best.primal.b, self.best.value
        most = value + max(allowed, ROUNDING) * self.best.scale
        for share in (1e-3, 1.0, 1e3):
            tidy = np.where(np.abs(w) <= self.best.primal.room / share, 0.0, w)
            moved_b = _best_intercept(scaled, tidy, b)
            found = scaled.value(tidy, moved_b)
            if found <= most:
                w, b, value = tidy, moved_b, found
                break
        return w / scaled.scale, b, value * scaled.unit


def _ratios(x: Array, step: Array, held: Any) -> Array:
    """Return how many steps each entry can take before it is 0; inf if two or more."""
    return np.divide(-x, step, out=np.full(len(x), np.inf), where=held & (step < -0.5 * x))


@dataclass
class _State:
    """A point's value, bound and residuals of the optimality conditions."""

    w: Array
    b: float
    slopes: Array
    residuals: tuple[Array, Array, float]
    """Residuals of the conditions for p, q and b."""
    deficits: Array
    """Residuals of the conditions for alpha."""
    value: float
    bound: float
    room: Array
    """v - |w|, which tends to 0 faster than w if w is not 0 at the optimum; -1 where |w| costs nothing."""

    @property
    def lack(self) -> float:
        """The largest residual of the conditions for p, q and b, divided by the number of rows."""
        rp, rq, rb = self.residuals
        return float(np.max(np.abs(np.concatenate([rp, rq, [rb]])))) / len(self.deficits)

    @classmethod
    def of(cls, scaled: ScaledProgram, point: IntervalPoint) -> _State:
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
        return cls(w, point.b, share * a, residuals, lacking, value, bound, room)


def _dual_penalty(scaled: ScaledProgram, pull: Array, budget: Array, total: float, size: Array) -> tuple[float, float]:
    """Return the largest dual feasible share of alpha, 1 at most, and its penalty for |pull| > budget.

    The ridge and the limit allow an excess, at a cost. Without both, no excess is allowed except rounding, charged at
    weights of this `size`. The penalty is inf if no share is feasible.
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


def _best_intercept(scaled: ScaledProgram, w: Array, b: float) -> float:
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
    """Return alpha with the larger class sum scaled down to the smaller."""
    of_plus, of_minus = float(alpha[signs > 0].sum()), float(alpha[signs < 0].sum())
    least = min(of_plus, of_minus)
    return alpha * np.where(signs > 0, least / (of_plus or 1.0), least / (of_minus or 1.0))
