"""The hinge loss rounded by a parabola, at the worst point of a set."""

from __future__ import annotations

import numpy as np

from holdfast._core.allowed import Number
from holdfast._core.loss import Array, Loss
from holdfast._core.programs import Epigraph
from holdfast.losses.expected_squared_hinge import ExpectedHuberizedHinge
from holdfast.losses.worst_case import WorstCaseLoss

LOGISTIC_SCALE = float(4 * np.log(2))


class HuberizedHinge(WorstCaseLoss):
    r"""The worst-case Huberised hinge :math:`\phi_c(u + t - \text{threshold})`.

    .. math:: \phi_c(x) = 0 \ (x \le -c), \quad (x + c)^2 / 4c \ (|x| < c), \quad x \ (x \ge c)

    With the default scale :math:`c = 4 \ln 2` and threshold 1 it is the QP approximation of the robust logistic loss in
    the report of El Ghaoui, Lanckriet and Natsoulis, equation (29) corrected: it lies below :math:`\log(1 + e^x)`,
    meets it at x = 0, and nowhere differs by more than 0.0756. (The report prints a minimum for its dual, which must be
    a maximum, and leaves out the scale, without which the weights come out wrong.)

    Parameters
    ----------
    scale : float, default=4 ln 2
        c > 0, half the width of the parabola.
    threshold : float, default=1.0
        The deficit at the middle of the parabola: 1 is the decision boundary, 0 the margin.

    Examples
    --------
    >>> HuberizedHinge().value(np.array([1.0, -5.0, 5.0]), np.zeros(3)).round(4)
    array([0.6931, 0.    , 4.    ])
    """

    reaches_zero = True
    parameter_table = {"scale": Number(strictly=True), "threshold": Number(-np.inf)}

    def __init__(self, scale: float = LOGISTIC_SCALE, threshold: float = 1.0):
        self.scale = scale
        self.threshold = threshold

    def psi(self, x: Array) -> tuple[Array, Array]:
        x = x - self.threshold
        inside = np.clip(x, -self.scale, self.scale) + self.scale
        slope = inside / (2 * self.scale)
        return 0.5 * slope * inside + np.maximum(x - self.scale, 0.0), slope

    def value(self, u: Array, t: Array) -> Array:
        x, c = u + t - self.threshold, self.scale
        return np.where(x >= c, x, np.where(x <= -c, 0.0, (np.clip(x, -c, c) + c) ** 2 / (4 * c)))

    def bend(self, x: Array) -> Array:
        return np.where(np.abs(x - self.threshold) < self.scale, 0.5 / self.scale, 0.0)

    def averaged(self) -> Loss:
        return ExpectedHuberizedHinge(self.scale, self.threshold)

    def dual_value(self, a: Array) -> Array:
        return a * (1.0 - self.threshold) + self.scale * a * (1.0 - a)

    def dual_slope(self, a: Array) -> Array:
        return 1.0 - self.threshold + self.scale * (1.0 - 2.0 * a)

    def dual_bend(self, a: Array) -> Array:
        return np.full_like(a, -2.0 * self.scale)

    def epigraph(self) -> Epigraph:
        # e + r with g + e >= x + c, e >= 0, g^2 <= 4 c r; extra variables e, g, r
        c = self.scale
        return Epigraph(
            cost=(0, 0, 1, 0, 1),
            cones=[
                ("nonnegative", [[0, 0, 1, 0, 0]]),
                ("nonnegative", [[-1, -1, 1, 1, 0]]),
                ("second_order", [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, c**-0.5, 0]]),
            ],
            constants=[[0], [self.threshold - c], [1, -1, 0]],
        )
