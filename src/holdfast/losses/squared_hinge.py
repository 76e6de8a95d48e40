"""The squared hinge loss at the worst point of a set."""

from __future__ import annotations

import numpy as np

from holdfast._core.loss import Array, Loss
from holdfast._core.programs import Epigraph
from holdfast.losses.expected_squared_hinge import ExpectedSquaredHinge
from holdfast.losses.worst_case import WorstCaseLoss


class SquaredHinge(WorstCaseLoss):
    r"""The worst-case squared hinge loss :math:`(u + t)_+^2`.

    Its dual weights are not bounded: :math:`v(a) = a - a^2/4` for all :math:`a \ge 0`.

    Examples
    --------
    >>> SquaredHinge().value(np.array([-1.0, 0.5]), np.array([0.5, 1.5]))
    array([0., 4.])
    """

    dual_limit = np.inf
    reaches_zero = True

    def psi(self, x: Array) -> tuple[Array, Array]:
        x = np.maximum(x, 0.0)
        return np.square(x), 2.0 * x

    def value(self, u: Array, t: Array) -> Array:
        return np.where(u + t > 0, (u + t) ** 2, 0.0)

    def bend(self, x: Array) -> Array:
        return np.where(x > 0, 2.0, 0.0)

    def averaged(self) -> Loss:
        return ExpectedSquaredHinge()

    def dual_value(self, a: Array) -> Array:
        return a - 0.25 * np.square(a)

    def dual_slope(self, a: Array) -> Array:
        return 1.0 - 0.5 * a

    def dual_bend(self, a: Array) -> Array:
        return np.full_like(a, -0.5)

    def epigraph(self) -> Epigraph:
        # r with g >= 0, g >= u + t, g^2 <= r; extra variables g, r
        return Epigraph(
            cost=(0, 0, 0, 1),
            cones=[
                ("nonnegative", [[0, 0, 1, 0]]),
                ("nonnegative", [[-1, -1, 1, 0]]),
                ("second_order", [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 2, 0]]),
            ],
            constants=[[0], [0], [1, -1, 0]],
        )
