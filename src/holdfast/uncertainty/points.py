"""The set of a single point: rows displaced by a known vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import MISSED, norm
from holdfast._core.common_sets import CommonPolytope
from holdfast._core.row_forms import Array


class CommonPoint(CommonPolytope):
    r"""The set :math:`\{p\}` with the linear support :math:`p^\top w`, which may be negative.

    A margin problem with this set is the plain problem with rows displaced by :math:`-y_i p`, which need not be formed.
    As 0 is not in the set, the full budget is always used.
    """

    is_smooth = True
    is_symmetric = False
    has_origin = False

    def __init__(self, move: Array):
        self.move = move

    def support(self, w: Array) -> Array:
        return np.asarray(w @ self.move)

    def point(self, w: Array) -> Array:
        return np.broadcast_to(self.move, w.shape)

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return False

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        # the target must be a multiple >= 0 of the point: the projection gives the multiple, and the remainder must be
        # rounding
        square = float(self.move @ self.move)
        multiple = float(self.move @ target) / square if square > 0 else 0.0
        missed = np.any(np.abs(target - multiple * self.move) > MISSED * sizes)
        return np.inf if missed or multiple < 0 else multiple

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        apart = norm(np.atleast_2d(points) - self.move, axis=1)
        return np.asarray(apart <= slack * norm(self.move))

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return target - np.sum(budgets) * self.move

    def scaled(self, factor: float) -> CommonPoint:
        return CommonPoint(factor * self.move)

    def smoothed(self, delta: float) -> CommonPoint:
        return self

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return np.broadcast_to(self.move, (n_draws, 1, n_features))
