"""Losses of the worst point of a set: the plain loss with the deficit enlarged by the support."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from holdfast._core.loss import Array, Loss


class WorstCaseLoss(Loss):
    r"""A loss :math:`\ell(u, t) = \psi(u + t)`: the cost of a row at the worst point of a set with support t.

    :math:`\psi` is convex and nondecreasing, so the worst point is the one that enlarges the deficit u the most, and
    :math:`\psi(x) = \max_{0 \le a \le \text{limit}} a(x - 1) + v(a)` gives the dual form with p(a) = a.
    """

    is_worst_case = True
    has_dual = True
    has_affine_scale = True

    @abstractmethod
    def psi(self, x: Array) -> tuple[Array, Array]:
        """Return the plain loss at the deficit x, and its slope."""

    @abstractmethod
    def bend(self, x: Array) -> Array:
        """Return the second derivative of the plain loss; where it jumps, one of its two values."""

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        value, slope = self.psi(u + t)
        return value, slope, slope

    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        bend = self.bend(u + t)
        return bend, bend, bend

    def dual_scale(self, a: Array) -> Array:
        return np.asarray(a)

    def largest_scale_slope(self) -> float:
        return self.dual_limit
