"""Rows displaced by a known vector: a set of one point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import MISSED, norm
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import CommonSet


class CommonPoint(CommonSet):
    r"""The set :math:`\{p\}` with the linear support :math:`p^\top w`, which may be negative.

    With it a margin problem is that of rows displaced by :math:`-y_i p`, which need never be formed. As 0 is not in the set,
    none of it may be left unused.
    """

    is_symmetric = False
    has_gauge = False
    has_origin = False

    def __init__(self, point: Array):
        self.point = point

    def support(self, w: Array) -> Array:
        return np.asarray(self.point @ w)

    def _point(self, w: Array) -> Array:
        return self.point

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        return float(np.sum(second)) * np.outer(self.point, self.point)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return np.zeros(len(w))

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        square = float(self.point @ self.point)
        multiple = float(self.point @ target) / square if square > 0 else 0.0
        missed = np.any(np.abs(target - multiple * self.point) > MISSED * sizes)
        return np.inf if missed or multiple < 0 else multiple

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        apart = norm(np.atleast_2d(points) - self.point, axis=1)
        return np.asarray(apart <= slack * norm(self.point))

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return target - np.sum(budgets) * self.point

    def scaled(self, factor: float) -> CommonPoint:
        return CommonPoint(factor * self.point)

    def smoothed(self, delta: float) -> CommonPoint:
        return self

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return np.broadcast_to(self.point, (n_draws, 1, n_features))
