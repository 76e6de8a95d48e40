"""The perspective family: losses t f(u / t) of the margin deficit and the noise's scale."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from holdfast._core.chunks import by_stretches
from holdfast._core.loss import Array, Loss
from holdfast._core.tolerances import LARGE_Z


def safe_ratio(u: Array, t: Array) -> Array:
    """Return u / t clipped to +-1e8; at t = 0 return the limit: +-1e8 by the sign of u, and 0 at u = 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.minimum(np.maximum(np.divide(u, t), -LARGE_Z), LARGE_Z)
    if t > 0 if np.ndim(t) == 0 else np.all(np.asarray(t) > 0):
        return z
    return np.where(np.asarray(t) > 0, z, LARGE_Z * np.sign(u))


class PerspectiveLoss(Loss):
    r"""A member :math:`\ell(u, t) = t f(u/t)` of the perspective family, :math:`\max(u, 0)` at t = 0.

    f is convex with :math:`f(z) - f(-z) = z` and :math:`f \ge \max(z, 0)`, so every member lies above the hinge and
    tends to it as t -> 0. Its conjugate :math:`f^*(a) = \min_z f(z) - a z \ge 0` on [0, 1] makes the perspective convex
    and gives the dual; :math:`\psi = f - z f' = f^*(f'(z))` is the slope in t.
    """

    is_homogeneous = True
    has_dual = True

    @abstractmethod
    def tail(self, x: Array) -> Array:
        """Return f(-x) for x >= 0, without cancellation."""

    @abstractmethod
    def slope(self, z: Array) -> Array:
        """Return f'(z), between 0 and 1."""

    @abstractmethod
    def second(self, z: Array) -> Array:
        """Return f''(z)."""

    @abstractmethod
    def psi(self, z: Array) -> Array:
        """Return f(z) - z f'(z), the slope of the loss in t."""

    @abstractmethod
    def conjugate(self, a: Array) -> Array:
        """Return the concave conjugate f*(a) on [0, 1]."""

    def f(self, z: Array) -> Array:
        """Return the value of f, max(z, 0) + tail(|z|)."""
        return np.maximum(z, 0.0) + self.tail(np.abs(z))

    @by_stretches
    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        z = safe_ratio(u, t)
        return np.maximum(u, 0.0) + t * self.tail(np.abs(z)), self.slope(z), self.psi(z)

    @by_stretches
    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        z = safe_ratio(u, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            c = np.where(np.asarray(t) > 0, self.second(z) / t, 0.0)
        return c, -z * c, z * z * c

    def dual_value(self, a: Array) -> Array:
        return a

    def dual_scale(self, a: Array) -> Array:
        return self.conjugate(a)
