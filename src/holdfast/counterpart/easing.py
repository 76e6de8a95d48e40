"""Easing a problem: a little noise on the score itself, which smooths the kink at w = 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.uncertainty import Array, BoundSet


class EasedSet(BoundSet):
    r"""Another set with support :math:`T_i(w) = \sqrt{\delta^2 + t_i(w)^2}`: independent noise of deviation
    :math:`\delta > 0` on the score.

    T is smooth everywhere, w = 0 included. Because :math:`\nabla T = (t/T) \nabla t` is a point of the original set,
    slopes at an optimum of the eased problem are dual feasible for the original one: that is how a collapse is proved.
    """

    is_sublinear = False

    def __init__(self, base: BoundSet, delta: float):
        self.base, self.delta = base, delta
        self.is_common = base.is_common

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
        return self.base.curvature(w, first * share, first * self.delta**2 / T**3 + second * share**2)

    def directional(self, w: Array, v: Array) -> Array:
        return self.base.directional(w, v) * self._parts(w)[1]

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        T, share = self._parts(w)
        along = self.base.adjoint(w, first * self.delta**2 / T**3 * self.base.directional(w, v))
        out = self.base.curvature_product(w, first * share, v) + along
        if np.all(share > 0):
            return out
        # where t = 0 only t's square bends, along v by t(v) times the slope of t there
        return out + self.base.adjoint(v, np.where(share > 0, 0.0, first / T * self.base.support(v)))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return self.base.cross(w, rows, r * self._parts(w)[1])

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return self.base.contains(points, slack=slack)

    def demand(self, target: Array, shares: Array, sizes: Array | None = None) -> Array:
        return self.base.demand(target, shares, sizes)

    def shortfall(self, target: Array, budgets: Array, shares: Array, direction: Array) -> float:
        return self.base.shortfall(target, budgets, shares, direction)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return self.base.exact_features(n_features)

    def scaled(self, factor: float) -> EasedSet:
        return EasedSet(self.base.scaled(factor), factor * self.delta)

    def take(self, rows: Any) -> EasedSet:
        return EasedSet(self.base.take(rows), self.delta)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return self.base.sample(rng, n_draws, n_features)
