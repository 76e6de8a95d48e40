"""The base-2 softplus as a perspective: a light upper bound of the Gaussian hinge."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, xlogy

from holdfast._core import compiled
from holdfast._core.loss import Array
from holdfast._core.programs import Epigraph
from holdfast.losses.perspective import PerspectiveLoss, safe_ratio

LN2 = np.log(2.0)


class Log2Hinge(PerspectiveLoss):
    r"""The loss :math:`t \log_2(1 + 2^{u/t})`; its dual scale is the binary entropy in bits.

    At the noise :math:`\sigma/\sqrt{2\pi}` it lies above the Gaussian hinge at :math:`\sigma`, by at most 0.0118 t
    in the family's units.

    Examples
    --------
    >>> Log2Hinge().value(np.array([0.0]), np.array(1.0))
    array([1.])
    """

    def value(self, u: Array, t: Array) -> Array:
        return np.asarray(np.maximum(u, 0.0) + t * np.logaddexp2(0.0, -np.abs(safe_ratio(u, t))))

    def tail(self, x: Array) -> Array:
        return np.log1p(np.exp(-LN2 * x)) / LN2

    def slope(self, z: Array) -> Array:
        return expit(LN2 * z)

    def second(self, z: Array) -> Array:
        return LN2 * expit(LN2 * z) * expit(-LN2 * z)

    def psi(self, z: Array) -> Array:
        x = LN2 * np.abs(z)
        return (np.log1p(np.exp(-x)) + x * expit(-x)) / LN2

    def conjugate(self, a: Array) -> Array:
        return -(xlogy(a, a) + xlogy(1 - a, 1 - a)) / LN2

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        if imbalance is not None:
            r = -pull / sigma
            return float(imbalance * self._slope_over_f(r) / sigma)
        if pull == 0:
            return 0.0
        goal = np.log(pull) - np.log(sigma)
        low, high = -2 * np.exp(min(goal, 300.0)) - 5, 10 + 3 * max(0.0, -goal)
        z0 = brentq(lambda z: _log_psi_over_slope(z) - goal, low, high, xtol=1e-14)
        return self._slope_over_f(z0) / sigma  # = 1 / (pull + sigma z0), which would cancel

    def _slope_over_f(self, z: float) -> float:
        if z < -500:
            return LN2
        return float(self.slope(np.array(z)) / self.f(np.array(z)))

    def epigraph(self) -> Epigraph:
        # v with t 2^((u - v) / t) <= p, t 2^(-v / t) <= q, p + q <= t; extra variables v, p, q
        return Epigraph(
            cost=[0, 0, 1, 0, 0],
            cones=[
                ("exponential", [[LN2, 0, -LN2, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]),
                ("exponential", [[0, 0, -LN2, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]),
                ("nonnegative", [[0, 1, 0, -1, -1]]),
            ],
        )

    def compiled(self) -> Any | None:
        return compiled.kernel("log2_hinge")


def _log_psi_over_slope(z: float) -> float:
    """Return log(psi / f'), a decreasing function of z, without cancellation or underflow."""
    x = LN2 * z
    if x < -30:
        return float(np.log((1 - x) / LN2))
    if x > 30:
        return float(-x + np.log1p(x) - np.log(LN2))
    return float(np.log(np.log1p(np.exp(-abs(x))) + abs(x) * expit(-abs(x))) - np.log(LN2) - np.log(expit(x)))
