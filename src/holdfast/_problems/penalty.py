"""Penalties on the weights other than the ridge: separable, and smooth once smoothed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from holdfast._core.loss import Array
from holdfast.uncertainty.polytopes import CommonBox

EDGE = 0.995
"""Share of the way to a bound that a step may take."""
KINK_WIDTHS = 30.0
"""A weight within this multiple of the smoothing's share of a bound would be at the bound without smoothing."""


class Penalty(ABC):
    """A convex function of the weights that is a sum over features."""

    absolute = 0.0
    """The factor of the l1 norm in the penalty."""
    limit = np.inf
    """The largest size of a weight."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.absolute or self.limit:g})"

    @abstractmethod
    def value(self, w: Array) -> float:
        """Return the penalty, inf outside its domain."""

    @abstractmethod
    def slopes(self, w: Array) -> Array:
        """Return the gradient."""

    @abstractmethod
    def bends(self, w: Array) -> Array:
        """Return the diagonal of the Hessian."""

    @abstractmethod
    def price(self, pull: Array) -> float:
        """Return the conjugate, the largest pull'w - value(w) over all w."""

    @abstractmethod
    def largest_share(self, pull: Array) -> float:
        """Return the largest share in [0, 1] of a pull that has a finite price."""

    @abstractmethod
    def smoothed(self, delta: float) -> Penalty:
        """Return a smooth penalty that differs from this one by at most `delta` at relevant weights."""

    @abstractmethod
    def admitted(self, w: Array) -> Array:
        """Return the point of its domain nearest to w."""

    @abstractmethod
    def proximal(self, w: Array, step: float) -> Array:
        """Return the v that minimises |v - w|^2 / 2 + step * value(v), smoothing left aside."""

    def longest_step(self, w: Array, move: Array) -> float:
        """Return the largest factor of `move` that stays inside its domain."""
        return np.inf

    @abstractmethod
    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w with distances from kinks reduced, as :meth:`holdfast._core.row_sets.RowSets.snapped_to_kinks` says."""

    @abstractmethod
    def norm_bound(self, objective: float, n_features: int) -> float:
        """Return a bound on the l2 norm of weights whose penalty is at most `objective`."""


class Lasso(Penalty):
    r"""The penalty :math:`\alpha |w|_1`: the support function of a box, and smoothed like one."""

    def __init__(self, alpha: float, delta: float = 0.0):
        self.absolute = alpha
        self.box = CommonBox(np.asarray(alpha))
        self.sets = self.box.smoothed(delta) if delta > 0 else self.box

    def value(self, w: Array) -> float:
        return float(self.sets.support(w))

    def slopes(self, w: Array) -> Array:
        return self.sets.adjoint(w, np.ones(1))

    def bends(self, w: Array) -> Array:
        return self.sets.curvature_product(w, np.ones(1), np.ones(len(w)))

    def price(self, pull: Array) -> float:
        return 0.0 if self.largest_share(pull) == 1.0 else np.inf

    def largest_share(self, pull: Array) -> float:
        largest = float(np.max(np.abs(pull), initial=0.0))
        # a few bits less, so that rounding cannot take the product beyond the edge
        return 1.0 if largest <= self.absolute else self.absolute / largest * (1 - 4 * np.finfo(float).eps)

    def smoothed(self, delta: float) -> Penalty:
        return Lasso(self.absolute, delta)

    def admitted(self, w: Array) -> Array:
        return w

    def proximal(self, w: Array, step: float) -> Array:
        return np.copysign(np.maximum(np.abs(w) - step * self.absolute, 0.0), w)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return self.box.snapped_to_kinks(w, delta, factor)

    def norm_bound(self, objective: float, n_features: int) -> float:
        return objective / self.absolute


class Limits(Penalty):
    r"""The constraint :math:`|w_j| \le` limit; smoothed, the barrier :math:`-\mu \sum_j \log(1 - w_j^2/\text{limit}^2)`,
    :math:`\mu = \delta / 2d`, d the number of features.
    """

    def __init__(self, limit: float, delta: float = 0.0):
        self.limit, self.delta = limit, delta

    def _room(self, w: Array) -> tuple[Array, float]:
        """Return 1 - (w / limit)^2, and the barrier's weight."""
        z = w / self.limit
        return (1 - z) * (1 + z), self.delta / (2 * len(w))

    def value(self, w: Array) -> float:
        room, weight = self._room(w)
        if np.any(room < 0):
            return np.inf
        with np.errstate(divide="ignore"):
            return -weight * float(np.sum(np.log(room))) if weight > 0 else 0.0

    def slopes(self, w: Array) -> Array:
        room, weight = self._room(w)
        with np.errstate(divide="ignore"):
            return 2 * weight * w / (np.square(self.limit) * room) if weight > 0 else np.zeros_like(w)

    def bends(self, w: Array) -> Array:
        room, weight = self._room(w)
        with np.errstate(divide="ignore"):
            return 2 * weight * (2 - room) / np.square(self.limit * room) if weight > 0 else np.zeros_like(w)

    def price(self, pull: Array) -> float:
        return self.limit * float(np.sum(np.abs(pull)))

    def largest_share(self, pull: Array) -> float:
        return 1.0

    def smoothed(self, delta: float) -> Penalty:
        return Limits(self.limit, delta)

    def admitted(self, w: Array) -> Array:
        # strictly inside if there is a barrier
        edge = self.limit * (1 - 1e-9 if self.delta > 0 else 1.0)
        return np.clip(w, -edge, edge)

    def proximal(self, w: Array, step: float) -> Array:
        return np.clip(w, -self.limit, self.limit)

    def longest_step(self, w: Array, move: Array) -> float:
        if self.delta == 0:
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(move != 0, (self.limit - np.copysign(1.0, move) * w) / np.abs(move), np.inf)
        return EDGE * float(np.min(room, initial=np.inf))

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        inside = self.limit - np.abs(w)
        near = inside <= KINK_WIDTHS * self.limit * delta / len(w)
        return np.where(near, np.copysign(self.limit - factor * inside, w), w)

    def norm_bound(self, objective: float, n_features: int) -> float:
        return self.limit * float(np.sqrt(n_features))
