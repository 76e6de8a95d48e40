"""A set of rows, smoothed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array, RowHessians
from holdfast._core.row_sets import RowSets


class SmoothedSet(RowSets):
    r"""Sets with support :math:`T_i(w) = \sqrt{\delta^2 + t_i(w)^2}`, :math:`\delta > 0`.

    This is as if independent noise of standard deviation :math:`\delta` were added to the score.

    T is smooth wherever t is smooth, and at w = 0; :math:`\nabla T = (t/T) \nabla t` is a point of the original set.
    """

    is_sublinear = False

    def __init__(self, base: RowSets, delta: float):
        self.base, self.delta = base, delta
        self.is_common, self.is_symmetric, self.is_smooth = base.is_common, base.is_symmetric, base.is_smooth
        self.has_origin = base.has_origin

    @remembered
    def _parts(self, w: Array) -> tuple[Array, Array]:
        """Return T and t / T."""
        t = self.base.support(w)
        T = np.hypot(t, self.delta)
        return T, t / T

    def support(self, w: Array) -> Array:
        return self._parts(w)[0]

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        share = self._parts(w)[1]
        return self.base.maximizer(w, rows) * (share if self.is_common else share[rows, None])

    def adjoint(self, w: Array, r: Array) -> Array:
        return self.base.adjoint(w, r * self._parts(w)[1])

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        T, share = self._parts(w)
        if not np.any(share):
            # at w = 0, t has a kink, but T^2 = delta^2 + t^2 has none
            return self.base.square_curvature(len(w), np.broadcast_to(first / T, np.shape(first)))
        return self.base.curvature(w, first * share, first * self.delta**2 / T**3 + second * share**2)

    def supports_at(self, W: Array) -> Array:
        return np.hypot(self.base.supports_at(W), self.delta)

    def maximizers_at(self, W: Array) -> Array:
        t = self.base.supports_at(W)
        return (t / np.hypot(t, self.delta))[:, None] * self.base.maximizers_at(W)

    def hessians_at(self, W: Array) -> RowHessians:
        t = self.base.supports_at(W)
        T = np.hypot(t, self.delta)
        points = RowHessians([], [(np.square(self.delta / T) / T, self.base.maximizers_at(W))])
        return self.base.hessians_at(W).times(t / T).plus(points)

    def bends_at(self, W: Array, firsts: Array) -> Array:
        t = self.base.supports_at(W)
        T, points = np.hypot(t, self.delta), self.base.maximizers_at(W)
        out = self.base.bends_at(W, firsts * (t / T))
        if not np.all(t):
            # at w = 0 t has a kink, and T^2 = delta^2 + t^2 has none
            flat = self.base.square_curvature(W.shape[1], np.ones(()))
            out += (firsts @ ((t == 0) / T))[:, None, None] * flat
        for one, weights in zip(out, firsts * np.square(self.delta / T) / T, strict=True):
            one += (points.T * weights) @ points
        return out

    def directional(self, w: Array, v: Array) -> Array:
        return self.base.directional(w, v) * self._parts(w)[1]

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        T, share = self._parts(w)
        along = self.base.adjoint(w, first * self.delta**2 / T**3 * self.base.directional(w, v))
        out = self.base.curvature_product(w, first * share, v) + along
        if np.all(share > 0):
            return out
        # where t = 0, the Hessian of T is that of t^2 / 2 divided by T; applied to v it gives t(v) times the gradient
        # of t at v
        return out + self.base.adjoint(v, np.where(share > 0, 0.0, first / T * self.base.support(v)))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return self.base.cross(w, rows, r * self._parts(w)[1])

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        return self.base.cross_with(other, w, r * self._parts(w)[1])

    def generators(self, n_features: int) -> Array | None:
        return self.base.generators(n_features)

    def with_generators(self, coordinates: Array) -> RowSets:
        return self.base.with_generators(coordinates).smoothed(self.delta)

    def against_labels(self, signs: Array) -> RowSets:
        return self.base.against_labels(signs).smoothed(self.delta)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return self.base.contains(points, slack=slack)

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return self.base.required_share(target, budgets, scale, sizes)

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return self.base.residual(target, budgets, scale, direction)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return self.base.exact_features(n_features)

    def exact_directions(self, n_features: int) -> Array:
        return self.base.exact_directions(n_features)

    def scaled(self, factor: float) -> RowSets:
        return self.base.scaled(factor).smoothed(factor * self.delta)

    def take(self, rows: Any) -> RowSets:
        return self.base.take(rows).smoothed(self.delta)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return self.base.sample(rng, n_draws, n_features)
