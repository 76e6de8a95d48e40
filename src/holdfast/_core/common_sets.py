"""Sets common to all rows: smooth sets, polytopes, and sets with a projection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import MISSED, norm
from holdfast._core.dual_norm import least_share
from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.smoothed_set import SmoothedSet

MOST_STEPS = 200
"""Limit on the Newton steps to the least multiple of a set that reaches a target; a few are usually enough."""
DIFFERENCE = 1e-6
"""The step of central differences of nearest points, relative to the size of the set."""


class CommonSet(RowSets):
    """One set for all rows. A subclass states `support`, `point` and `scaled`; its support has a kink only at w = 0.

    Everything else is derived, and may be overridden by faster formulas. See :class:`ProjectableSet` for sets with
    other kinks.
    """

    is_common = True

    @abstractmethod
    def point(self, w: Array) -> Array:
        """Return a point of the set that attains the support; 0 if the support is 0."""

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        """Return the smallest multiple of the set that contains `target`, inf if there is none."""
        return least_share(self, target, np.ones(1), np.full(len(target), norm(target)) if sizes is None else sizes)

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return np.array(self.point(w))[None]  # a copy, as the point may be cached

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.add.reduce(r, axis=None) * self.point(w)  # np.sum without its detours, which cost as much

    def directional(self, w: Array, v: Array) -> Array:
        return np.asarray(self.point(w) @ v)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return np.array([self.gauge(point) <= 1 + slack for point in np.atleast_2d(points)])

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return np.array(self.gauge(target, sizes))

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return not shrunk

    def take(self, rows: Any) -> Self:
        return self

    def against_labels(self, signs: Array) -> RowSets:
        return self if self.is_symmetric else SignedSets(self, -signs)


class SignedSets(RowSets):
    """A common set that is not symmetric, mirrored at the origin in rows whose sign is -1."""

    is_symmetric = False

    def __init__(self, base: RowSets, signs: Array):
        self.base, self.signs = base, signs
        self.is_smooth, self.is_full, self.has_origin = base.is_smooth, base.is_full, base.has_origin
        self.is_sublinear = base.is_sublinear

    def _sides(self, w: Array, *weights: Array) -> Iterator[tuple[Any, ...]]:
        """Yield (sign, sign * w, weights of the rows with this sign, 0 for others)."""
        for sign in (-1.0, 1.0):
            yield sign, sign * w, *(np.where(self.signs == sign, each, 0.0) for each in weights)

    def support(self, w: Array) -> Array:
        return np.where(self.signs > 0, self.base.support(w), self.base.support(-w))

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return np.where(self.signs[rows, None] > 0, self.base.maximizer(w), -self.base.maximizer(-w))

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.asarray(sum(sign * self.base.adjoint(turned, own) for sign, turned, own in self._sides(w, r)))

    def directional(self, w: Array, v: Array) -> Array:
        return np.where(self.signs > 0, self.base.directional(w, v), self.base.directional(-w, -v))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        return np.asarray(sum(self.base.curvature(turned, *own) for _, turned, *own in self._sides(w, first, second)))

    def take(self, rows: Any) -> RowSets:
        return SignedSets(self.base, self.signs[rows])

    def scaled(self, factor: float) -> RowSets:
        return SignedSets(self.base.scaled(factor), self.signs)

    def against_labels(self, signs: Array) -> RowSets:
        return SignedSets(self.base, -signs * self.signs)

    def smoothed(self, delta: float) -> RowSets:
        return SignedSets(self.base.smoothed(delta), self.signs)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        # snap to the kinks of both sides in turn; if the second move undoes the first, the proof accounts for the cost
        return -self.base.snapped_to_kinks(-self.base.snapped_to_kinks(w, delta, factor), delta, factor)


class ExplicitSet(CommonSet):
    """A common set whose `support`, `point` and `hessian_parts` also take arrays of directions along the last axis."""

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        """Return (b, f) of the Hessian diag(b) - f p p' of the support, p being the `point`; both 0 for polytopes."""
        return np.zeros(w.shape), np.zeros(w.shape[:-1])

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        point, (diagonal, fall), total = self.point(w), self.hessian_parts(w), float(np.sum(first))
        out = (float(np.sum(second)) - total * fall) * np.outer(point, point)
        out[np.diag_indices_from(out)] += total * diagonal
        return out

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        point, (diagonal, fall) = self.point(w), self.hessian_parts(w)
        return float(np.sum(first)) * (diagonal * v - fall * float(point @ v) * point)

    def supports_at(self, W: Array) -> Array:
        return self.support(W)

    def maximizers_at(self, W: Array) -> Array:
        return self.point(W)

    def hessians_at(self, W: Array) -> RowHessians:
        diagonal, fall = self.hessian_parts(W)
        return RowHessians.diagonal(diagonal).plus(RowHessians([], [(-fall, self.point(W))]))


class CommonPolytope(ExplicitSet):
    """A set with only corners and flat faces."""

    is_smooth = False

    def hessians_at(self, W: Array) -> RowHessians:
        return RowHessians()


class SmoothedCommonSet(CommonSet, SmoothedSet):
    """A common set whose support, which has kinks, is smoothed by a formula of its own."""

    base: CommonSet

    def __init__(self, base: CommonSet, delta: float):
        super().__init__(base, delta)
        self.is_smooth = True

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        return self.base.gauge(target, sizes)

    def bends_at(self, W: Array, firsts: Array) -> Array:
        return RowSets.bends_at(self, W, firsts)

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return RowSets.cross(self, w, rows, r)

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        return RowSets.cross_with(self, other, w, r)


class ProjectableSet(CommonSet):
    """A set with kinks and a projection. A subclass states `support`, `point`, `scaled` and `nearest`."""

    is_smooth = False

    @abstractmethod
    def nearest(self, points: Array) -> Array:
        """Return the points of the set nearest, in l2, to the given points, shape (n_points, n_features)."""

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        multiple, rest = 0.0, target
        for _ in range(MOST_STEPS):
            reach = float(self.support(rest))
            if np.all(np.abs(rest) <= MISSED * sizes):
                return multiple
            if not reach > 0:
                return np.inf
            # a Newton step on the distance, which is convex in the multiple; no smaller multiple reaches the target
            least = float(target @ rest) / reach
            if least <= multiple:
                return multiple
            multiple = least
            rest = target - multiple * self.nearest(target[None] / multiple)[0]
        return np.inf

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        inner = np.atleast_2d(points) / (1 + slack)
        return np.asarray(norm(inner - self.nearest(inner), axis=1) <= MISSED * norm(inner, axis=1))

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        total = float(np.sum(budgets))
        return target - total * self.nearest(target[None] / total)[0] if total > 0 else target

    def smoothed(self, delta: float) -> RowSets:
        return ProximalSet(self, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        # w / mu minus its nearest point p is normal to the set at p, so p is also the point nearest to p + c * normal,
        # c >= 0
        mu = ProximalSet(self, delta).share(len(w))
        at = w / mu
        point = self.nearest(at[None])[0]
        return mu * ((at - point) + factor * point)


class ProximalSet(SmoothedCommonSet):
    r"""A set with support :math:`T = \max_{d \in S} w^\top d - \frac{\mu}{2} |d|_2^2 + \delta`, :math:`\mu = 2 \delta / R^2`.

    R is a bound on the lengths of points of S, so that :math:`t \le T \le t + \delta`. The maximum is attained at the
    point of S nearest to :math:`w / \mu`, which is the gradient of T.
    """

    base: ProjectableSet

    @remembered
    def share(self, n_features: int) -> float:
        r"""Return :math:`\mu`."""
        # mu |d|^2 / 2 lowers the support by at most mu R^2 / 2 = delta, and delta is added to make up for it
        square = float(np.square(self.base.stretch(np.eye(n_features))))
        return 2 * self.delta / square if square > 0 else 1.0

    @remembered
    def point(self, w: Array) -> Array:
        return self.maximizers_at(w[None])[0]

    def support(self, w: Array) -> Array:
        point = self.point(w)
        return np.asarray(w @ point - 0.5 * self.share(len(w)) * (point @ point) + self.delta)

    def maximizers_at(self, W: Array) -> Array:
        # far from the set rounding is that of the distance; what is nearest to a point next to the set is in it
        return self.base.nearest(self.base.nearest(W / self.share(W.shape[1])))

    def supports_at(self, W: Array) -> Array:
        points = self.maximizers_at(W)
        return np.sum(W * points, axis=1) - 0.5 * self.share(W.shape[1]) * np.sum(points**2, axis=1) + self.delta

    @remembered
    def _hessian(self, w: Array) -> Array:
        r"""Return the derivative of the nearest point by w, from central differences at :math:`w / \mu`."""
        mu = self.share(len(w))
        at, reach = w / mu, float(self.base.stretch(np.eye(len(w))))
        # a step much smaller than an entry would be lost in the entry's rounding
        sizes = DIFFERENCE * np.maximum(reach, np.abs(at))
        moves = np.diag(sizes)
        slopes = (self.base.nearest(at + moves) - self.base.nearest(at - moves)) / sizes[:, None]
        return (slopes + slopes.T) / (4 * mu)

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        point = self.point(w)
        return float(np.sum(first)) * self._hessian(w) + float(np.sum(second)) * np.outer(point, point)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return float(np.sum(first)) * (self._hessian(w) @ v)

    def hessians_at(self, W: Array) -> RowHessians:
        return RowHessians.of([self._hessian(w) for w in W])
