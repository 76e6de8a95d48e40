"""The hinge under the worst noise of given power."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core import compiled
from holdfast._core.loss import Array
from holdfast._core.programs import Epigraph
from holdfast.losses.perspective import PerspectiveLoss


class TwoPointHinge(PerspectiveLoss):
    r"""The loss :math:`\tfrac12\left(u + \sqrt{u^2 + t^2}\right)`: the largest expected hinge at noise variance t^2.

    It is the maximum over all zero-mean distributions of that variance (Scarf's bound), attained by a two-point
    distribution. It exceeds the Gaussian hinge by at most t / 8.

    Examples
    --------
    >>> TwoPointHinge().value(np.array([0.75]), np.array(1.0))
    array([1.])
    """

    def value(self, u: Array, t: Array) -> Array:
        root = np.hypot(u, t)
        # for u < 0 the sum cancels, and t^2 / (root - u) is the same; 0 at u = t = 0
        below = np.divide(t, root - u, out=np.zeros(np.shape(root)), where=root > u)
        return np.where(u > 0, 0.5 * (u + root), 0.5 * t * below)

    def tail(self, x: Array) -> Array:
        return 0.5 / (np.hypot(1.0, x) + x)

    def slope(self, z: Array) -> Array:
        root = np.hypot(1.0, z)
        small = 0.5 / (root * (root + np.abs(z)))
        return np.where(z > 0, 1.0 - small, small)

    def second(self, z: Array) -> Array:
        return 0.5 * np.hypot(1.0, z) ** -3.0

    def psi(self, z: Array) -> Array:
        return 0.5 / np.hypot(1.0, z)

    def conjugate(self, a: Array) -> Array:
        return np.sqrt(np.maximum(a * (1 - a), 0.0))

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        return 1 / sigma

    def epigraph(self) -> Epigraph:
        # (u + r) / 2 with r >= |(u, t)|; extra variable r
        return Epigraph(cost=[0.5, 0, 0.5], cones=[("second_order", [[0, 0, 1], [1, 0, 0], [0, 1, 0]])])

    def compiled(self) -> Any | None:
        return compiled.kernel("two_point_hinge")
