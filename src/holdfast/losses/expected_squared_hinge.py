"""The squared hinge, and the Huberised hinge built from it, averaged over Gaussian noise."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.special import ndtr

from holdfast._core.allowed import Number
from holdfast._core.chunks import by_stretches
from holdfast._core.loss import Array, Loss
from holdfast.losses.gaussian_hinge import GaussianHinge, density
from holdfast.losses.perspective import safe_ratio

HINGE = GaussianHinge()


def _mean_square(u: Array, t: Array) -> Array:
    r"""Return :math:`\mathbb E\,[u + tZ]_+^2` by its formula."""
    z = safe_ratio(u, t)
    return np.maximum((np.square(u) + np.square(t)) * ndtr(z) + u * t * density(z), 0.0)


class _AveragedLoss(Loss):
    """A loss that computes its value, slopes and curvature together."""

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        return self.derivatives(u, t)[:3]

    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        return self.derivatives(u, t)[3:]

    @abstractmethod
    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]: ...


class ExpectedSquaredHinge(_AveragedLoss):
    r"""The expected squared hinge :math:`\mathbb E\,[u + tZ]_+^2 = (u^2 + t^2)\,\Phi(u/t) + u t\,\varphi(u/t)`.

    Its slopes are :math:`2\,\mathbb E[u + tZ]_+` and :math:`2 t\,\Phi(u/t)`. The conjugate has no closed form: with a
    ridge the certificate uses strong convexity, otherwise tangents.

    Examples
    --------
    >>> ExpectedSquaredHinge().value(np.array([0.0, 2.0]), np.array([1.0, 0.0]))
    array([0.5, 4. ])
    """

    dual_limit = np.inf

    def value(self, u: Array, t: Array) -> Array:
        return _mean_square(u, t)

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        return self.value(u, t), 2.0 * HINGE.value(u, t), 2.0 * t * ndtr(safe_ratio(u, t))

    @by_stretches
    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        z = safe_ratio(u, t)
        hinge, inside, height = HINGE.evaluate(u, t)
        # u E[.]_+ + t^2 Phi does not cancel for u > 0; for u < 0 both are small
        value = np.maximum(u * hinge + np.square(t) * inside, 0.0)
        inside = np.where(np.asarray(t) > 0, inside, np.heaviside(u, 0.5))
        return value, 2.0 * hinge, 2.0 * t * inside, 2.0 * inside, 2.0 * height, 2.0 * (inside - z * height)

    def largest_scale_slope(self) -> float:
        return np.inf


class ExpectedHuberizedHinge(_AveragedLoss):
    r"""The expected Huberised hinge :math:`\mathbb E\,\phi_c(u - \text{threshold} + tZ)`.

    It is the difference of the expected squared hinges at :math:`\pm c`, over 4c.

    Examples
    --------
    >>> ExpectedHuberizedHinge().value(np.array([1.0, 1.0]), np.array([0.0, 1.0])).round(4)
    array([0.6931, 0.7832])
    """

    parameter_table = {"scale": Number(strictly=True), "threshold": Number(-np.inf)}

    def __init__(self, scale: float = float(4 * np.log(2)), threshold: float = 1.0):
        self.scale = scale
        self.threshold = threshold

    def value(self, u: Array, t: Array) -> Array:
        c, x = self.scale, u - self.threshold
        far = np.maximum(x - 40.0 * (c + t), 0.0)
        return far + (_mean_square(x - far + c, t) - _mean_square(x - far - c, t)) / (4 * c)

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        c, x = self.scale, u - self.threshold
        x = np.minimum(x, 40.0 * (c + t))
        above, below = HINGE.value(x + c, t), HINGE.value(x - c, t)
        inside = ndtr(safe_ratio(x + c, t)) - ndtr(safe_ratio(x - c, t))
        slope, scale_slope = np.clip((above - below) / (2 * c), 0.0, 1.0), t * np.maximum(inside, 0.0) / (2 * c)
        return self.value(u, t), slope, scale_slope

    @by_stretches
    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        c, x = self.scale, u - self.threshold
        far = np.maximum(x - 40.0 * (c + t), 0.0)
        x = x - far  # beyond this the loss is x itself, and squares would cancel
        square = ExpectedSquaredHinge()
        parts = zip(square.derivatives(x + c, t), square.derivatives(x - c, t), strict=True)
        value, *rest = ((above - below) / (4 * c) for above, below in parts)
        value, slope, scale_slope, uu, ut, tt = value + far, *rest
        return (
            value,
            np.clip(slope, 0.0, 1.0),
            np.maximum(scale_slope, 0.0),
            np.maximum(uu, 0.0),
            ut,
            np.maximum(tt, 0.0),
        )

    def largest_scale_slope(self) -> float:
        return float(density(np.array(0.0)))
