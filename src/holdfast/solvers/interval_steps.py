"""The equations of an interior point's step under interval noise, reduced to the features or to the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError

from holdfast._core.solver import Array
from holdfast._core.unit_cholesky import UnitCholesky

if TYPE_CHECKING:
    from holdfast.solvers.interior_point import IntervalPoint, ScaledProgram

JITTERS = 100.0 ** np.arange(-7, 0)
"""Added to the unit diagonal of a matrix in turn, until its factorisation succeeds."""
SMALLEST = 1e-60
"""A residual is divided by its right-hand side, or by this if that is smaller."""


class Widths(ABC):
    """Half-widths S of the intervals, seen as a linear map, on features in units of `scale`."""

    @abstractmethod
    def dot(self, v: Array) -> Array:
        """Return S v, shape (n_samples,)."""

    @abstractmethod
    def transpose_dot(self, r: Array) -> Array:
        """Return S'r, shape (n_features,)."""

    @abstractmethod
    def system(self, scaled: ScaledProgram, curves: Curves) -> System:
        """Return the smaller reduced system, over the features or over the rows."""

    @abstractmethod
    def add_outer(self, K: Array, scaled: ScaledProgram, curves: Curves) -> None:
        """Add to K the terms of J Q^-1 J' that involve the widths."""


@dataclass
class CommonWidths(Widths):
    """The same half-widths s for all rows."""

    s: Array
    n_samples: int

    def dot(self, v: Array) -> Array:
        return np.full(self.n_samples, self.s @ v)

    def transpose_dot(self, r: Array) -> Array:
        return self.s * r.sum()

    def system(self, scaled: ScaledProgram, curves: Curves) -> System:
        by_feature = len(self.s) + 2 <= self.n_samples
        return CommonSystem(scaled, curves, self.s) if by_feature else RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: ScaledProgram, curves: Curves) -> None:
        cross = -scaled.signs * scaled.dot(curves.inverse_wv * self.s)
        K += cross[:, None] + cross + self.s @ (curves.inverse_vv * self.s)


@dataclass
class RowWidths(Widths):
    """Half-widths of every entry, an array or a CSR array of shape (n_samples, n_features)."""

    S: Any
    scale: Array

    def dot(self, v: Array) -> Array:
        return np.asarray(self.S @ (v / self.scale))

    def transpose_dot(self, r: Array) -> Array:
        return np.asarray(self.S.T @ r) / self.scale

    def system(self, scaled: ScaledProgram, curves: Curves) -> System:
        n_samples, n_features = self.S.shape
        return PairSystem(scaled, curves, self) if 2 * n_features + 1 <= n_samples else RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: ScaledProgram, curves: Curves) -> None:
        wv, vv = curves.inverse_wv / self.scale**2, curves.inverse_vv / self.scale**2
        right = (self.S @ sparse.diags_array(wv)).T
        for rows, block in scaled.rows.blocks():
            cross = scaled.signs[rows, None] * _dense(_exact(block) @ right)
            K[rows] -= cross
            K[:, rows] -= cross.T
        K += _dense(self.S @ sparse.diags_array(vv) @ self.S.T)

    def grams(self, scaled: ScaledProgram, weights: Array) -> tuple[Array, Array]:
        """Return X'(y weights)S and S'(weights)S, each (n_features, n_features)."""
        left, signed = (self.S.T @ sparse.diags_array(each) for each in (weights, weights * scaled.signs))
        cross = np.zeros((len(self.scale), len(self.scale)))
        for rows, block in scaled.rows.blocks():
            cross += _dense(signed[:, rows] @ _exact(block)).T
        scales = np.outer(self.scale, self.scale)
        return cross / scales, _dense(left @ self.S) / scales


@dataclass
class RegularWidths(Widths):
    """Half-widths common to all rows plus deviations of either sign for each row."""

    common: CommonWidths
    own: RowWidths

    def dot(self, v: Array) -> Array:
        return self.common.dot(v) + self.own.dot(v)

    def transpose_dot(self, r: Array) -> Array:
        return self.common.transpose_dot(r) + self.own.transpose_dot(r)

    def system(self, scaled: ScaledProgram, curves: Curves) -> System:
        n_samples, n_features = self.own.S.shape
        return PairSystem(scaled, curves, self) if 2 * n_features + 1 <= n_samples else RowSystem(scaled, curves)

    def add_outer(self, K: Array, scaled: ScaledProgram, curves: Curves) -> None:
        self.common.add_outer(K, scaled, curves)
        self.own.add_outer(K, scaled, curves)
        cross = self.own.dot(curves.inverse_vv * self.common.s)
        K += cross[:, None] + cross

    def grams(self, scaled: ScaledProgram, weights: Array) -> tuple[Array, Array]:
        cross, spread = self.own.grams(scaled, weights)
        s, pull = self.common.s, self.own.transpose_dot(weights)
        cross += np.outer(scaled.transpose_dot(weights * scaled.signs), s)
        spread += np.outer(s, pull + weights.sum() * s) + np.outer(pull, s)
        return cross, spread


def widths_of(common: Array, own: Any | None, scale: Array, n_samples: int) -> Widths:
    """Return the half-widths of a program, features in units of `scale`."""
    if own is None:
        return CommonWidths(common / scale, n_samples)
    if not np.any(common):
        return RowWidths(own, scale)
    return RegularWidths(CommonWidths(common / scale, n_samples), RowWidths(own, scale))


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def _exact(block: Any) -> Any:
    return block.astype(np.float64, copy=False)


class Curves:
    r"""The diagonal parts of a Newton step: Q over (p, q) of each feature, and 1/D of each row.

    With ratios t of multipliers to slacks :math:`1/D = t_0 + t_1 - v''(a)/c` and

    .. math::
        Q = \begin{pmatrix} t_p & 0 \\ 0 & t_q \end{pmatrix}
        + \tfrac14 ridge \begin{pmatrix} 1 & -1 \\ -1 & 1 \end{pmatrix}
        + \tfrac14 t_l \begin{pmatrix} 1 & 1 \\ 1 & 1 \end{pmatrix}.

    The required parts of its inverse are computed without cancellation.
    """

    def __init__(self, scaled: ScaledProgram, point: IntervalPoint):
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


class Direction(NamedTuple):
    """Changes of p, q, b and alpha, or residuals of their equations."""

    p: Array
    q: Array
    b: float
    alpha: Array

    def plus(self, other: Direction) -> Direction:
        return Direction(self.p + other.p, self.q + other.q, self.b + other.b, self.alpha + other.alpha)


class System(ABC):
    """The equations Q d + J'alpha = r, J d - alpha / D = g of a step, factorised."""

    def __init__(self, scaled: ScaledProgram, curves: Curves):
        self.scaled, self.curves = scaled, curves

    @abstractmethod
    def once(self, r: Direction) -> Direction:
        """Return a solution up to rounding."""

    def solve(self, r: Direction) -> Direction:
        """Return a solution, refined iteratively while the residual falls."""
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

    def _rest(self, r: Direction, found: Direction) -> Direction:
        scaled = self.scaled
        pull, budget, balance = scaled.adjoint(found.alpha)
        Qp, Qq = self.curves.dot(found.p, found.q)
        image = scaled.forward(0.5 * (found.p - found.q), 0.5 * (found.p + found.q), found.b)
        return Direction(
            r.p - Qp - 0.5 * (budget + pull),
            r.q - Qq - 0.5 * (budget - pull),
            r.b - balance,
            r.alpha - image + found.alpha * self.curves.by_row,
        )

    def _size(self, rest: Direction, r: Direction) -> float:
        """Return the larger residual of the two equations, each relative to its right-hand side."""
        of_features = [np.max(np.abs(np.concatenate([each.p, each.q, [each.b]]))) for each in (rest, r)]
        of_rows = [np.max(np.abs(each.alpha)) for each in (rest, r)]
        return float(max(part / max(whole, SMALLEST) for part, whole in (of_features, of_rows)))


class RowSystem(System):
    """One unknown per row: K alpha = J Q^-1 r - g with K = 1/D + J Q^-1 J', bordered by y for the intercept."""

    def __init__(self, scaled: ScaledProgram, curves: Curves):
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

    def once(self, r: Direction) -> Direction:
        scaled, curves = self.scaled, self.curves
        p, q = curves.solve(r.p, r.q)
        alpha = self.factor.solve(scaled.forward(0.5 * (p - q), 0.5 * (p + q), 0.0) - r.alpha)
        b = scaled.bias * (float(scaled.signs @ alpha) + r.b) / self.corner
        alpha = alpha - b * self.border
        pull, budget, _ = scaled.adjoint(alpha)
        p, q = curves.solve(r.p - 0.5 * (budget + pull), r.q - 0.5 * (budget - pull))
        return Direction(p, q, b, alpha)


class FeatureSystem(System):
    """Unknowns for the features: (J'DJ + Q) d = r + J'D g, then alpha = D (J d - g)."""

    @cached_property
    def by_row(self) -> Array:
        return 1 / self.curves.by_row

    def once(self, r: Direction) -> Direction:
        scaled = self.scaled
        pull, budget, balance = scaled.adjoint(self.by_row * r.alpha)
        p, q, b = self.reduced(r.p + 0.5 * (budget + pull), r.q + 0.5 * (budget - pull), r.b + balance)
        image = scaled.forward(0.5 * (p - q), 0.5 * (p + q), b)
        return Direction(p, q, b, self.by_row * (image - r.alpha))

    @abstractmethod
    def reduced(self, rp: Array, rq: Array, rb: float) -> tuple[Array, Array, float]:
        """Return p, q and b that solve the system over the features."""


class CommonSystem(FeatureSystem):
    r"""For common widths: v is eliminated except for :math:`s^\top v`, which joins the unknowns w and b.

    The unit of :math:`s^\top v` is `root`, the square root of :math:`s^\top Q_{vv}^{-1} s`.
    """

    def __init__(self, scaled: ScaledProgram, curves: Curves, s: Array):
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


class PairSystem(FeatureSystem):
    """For widths by entry: the unknowns are p, q and b."""

    def __init__(self, scaled: ScaledProgram, curves: Curves, widths: RowWidths | RegularWidths):
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
