"""The logistic loss at the worst point of a set."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, expit

from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array, Loss
from holdfast._core.programs import Epigraph
from holdfast.losses.expected_logistic import ExpectedLogistic
from holdfast.losses.joint import CrossEntropy
from holdfast.losses.worst_case import WorstCaseLoss


class Logistic(WorstCaseLoss):
    r"""The worst-case logistic loss :math:`\log(1 + e^{u + t - 1})`: ROBLR for intervals (El Ghaoui et al.).

    Its dual value is the entropy :math:`v(a) = -a \log a - (1-a) \log(1-a)`.

    Examples
    --------
    >>> Logistic().value(np.array([1.0, 0.5]), np.array([0.0, 0.5])).round(4)
    array([0.6931, 0.6931])
    """

    is_proper = True

    def psi(self, x: Array) -> tuple[Array, Array]:
        return np.logaddexp(0.0, x - 1.0), expit(x - 1.0)

    def value(self, u: Array, t: Array) -> Array:
        score = 1.0 - u - t
        return np.asarray(np.maximum(-score, 0.0) + np.log1p(np.exp(-np.abs(score))))

    def bend(self, x: Array) -> Array:
        return expit(x - 1.0) * expit(1.0 - x)

    def averaged(self) -> Loss:
        return ExpectedLogistic()

    def jointly(self) -> JointLoss:
        return CrossEntropy()

    def dual_value(self, a: Array) -> Array:
        return np.asarray(entr(a) + entr(1.0 - a))

    def dual_slope(self, a: Array) -> Array:
        return np.log1p(-a) - np.log(a)

    def dual_bend(self, a: Array) -> Array:
        return -1.0 / (a * (1.0 - a))

    def epigraph(self) -> Epigraph:
        # e with p + q <= 1, exp(u + t - 1 - e) <= p, exp(-e) <= q; extra variables e, p, q
        return Epigraph(
            cost=(0, 0, 1, 0, 0),
            cones=[
                ("nonnegative", [[0, 0, 0, -1, -1]]),
                ("exponential", [[1, 1, -1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]),
                ("exponential", [[0, 0, -1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]),
            ],
            constants=[[1], [-1, 1, 0], [0, 1, 0]],
        )
