"""The hinge loss at the worst point of a set."""

from __future__ import annotations

import numpy as np

from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array, Loss
from holdfast._core.programs import Epigraph
from holdfast.losses.gaussian_hinge import GaussianHinge
from holdfast.losses.hyperbolic_hinge import HyperbolicHinge
from holdfast.losses.joint import MaxHinge
from holdfast.losses.worst_case import WorstCaseLoss


class Hinge(WorstCaseLoss):
    r"""The worst-case hinge loss :math:`(u + t)_+`: the robust SVM, and ROBLP for intervals (El Ghaoui et al.).

    Examples
    --------
    >>> Hinge().value(np.array([-1.0, 0.5]), np.array([0.3, 0.3]))
    array([0. , 0.8])
    """

    is_homogeneous = True
    is_smooth = False
    reaches_zero = True

    def psi(self, x: Array) -> tuple[Array, Array]:
        return np.maximum(x, 0.0), np.heaviside(x, 0.5)

    def value(self, u: Array, t: Array) -> Array:
        return np.where(u + t > 0, u + t, 0.0)

    def bend(self, x: Array) -> Array:
        return np.zeros_like(x)

    def smoothed(self, delta: float) -> Loss:
        return HyperbolicHinge(delta)

    def averaged(self) -> Loss:
        return GaussianHinge()

    def jointly(self) -> JointLoss:
        return MaxHinge()

    def dual_value(self, a: Array) -> Array:
        return np.asarray(a)

    def dual_slope(self, a: Array) -> Array:
        return np.ones_like(a)

    def dual_bend(self, a: Array) -> Array:
        return np.zeros_like(a)

    def epigraph(self) -> Epigraph:
        # e >= 0 and e >= u + t
        return Epigraph(cost=(0, 0, 1), cones=[("nonnegative", [[0, 0, 1]]), ("nonnegative", [[-1, -1, 1]])])
