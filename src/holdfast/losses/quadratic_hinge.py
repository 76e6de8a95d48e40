"""The quadratically rounded hinge as a perspective: a light lower bound of the Gaussian hinge."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core import compiled
from holdfast._core.loss import Array
from holdfast._core.programs import Epigraph
from holdfast.losses.perspective import PerspectiveLoss, safe_ratio


class QuadraticHinge(PerspectiveLoss):
    r"""The loss t f(u/t) with f = 0, :math:`(z+4)^2/16`, z below, between and above the breaks -4 and 4.

    Its dual scale is :math:`4a(1-a)`. The loss is differentiable only once. If some direction separates the data by
    more than :math:`4\sigma`, the minimum is 0 and not unique.

    Examples
    --------
    >>> QuadraticHinge().value(np.array([-4.0, 0.0, 4.0]), np.array(1.0))
    array([0., 1., 4.])
    """

    def value(self, u: Array, t: Array) -> Array:
        z = safe_ratio(u, t)
        return np.where(z >= 4, u, np.where(z <= -4, 0.0, t * (np.clip(z, -4.0, 4.0) + 4) ** 2 / 16))

    def tail(self, x: Array) -> Array:
        return np.square(np.clip(4.0 - x, 0.0, 4.0)) / 16

    def slope(self, z: Array) -> Array:
        return np.clip((z + 4) / 8, 0.0, 1.0)

    def second(self, z: Array) -> Array:
        return np.where(np.abs(z) < 4, 0.125, 0.0)

    def psi(self, z: Array) -> Array:
        return np.clip(4.0 + z, 0.0, 8.0) * np.clip(4.0 - z, 0.0, 8.0) / 16

    def conjugate(self, a: Array) -> Array:
        return 4 * a * (1 - a)

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        q = pull / sigma
        if q >= 4:
            return np.inf
        if imbalance is not None:
            # f' / f at -q, with q < 4
            return float(imbalance * 2 / (4 - q) / sigma)
        return float(1 / (sigma * (4 - q)))  # = 1 / (pull + sigma z0) with z0 = 4 - 2 q

    def epigraph(self) -> Epigraph:
        # e + v with q + e >= u + 4 t, e >= 0, q^2 <= 16 t v; extra variables e, q, v
        return Epigraph(
            cost=[0, 0, 1, 0, 1],
            cones=[
                ("nonnegative", [[-1, -4, 1, 1, 0], [0, 0, 1, 0, 0]]),
                ("second_order", [[0, 4, 0, 0, 4], [0, 0, 0, 2, 0], [0, 4, 0, 0, -4]]),
            ],
        )

    def compiled(self) -> Any | None:
        return compiled.kernel("quadratic_hinge")
