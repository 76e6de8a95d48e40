"""The hinge loss averaged over Gaussian noise: GURU's loss."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfc, erfcx, log_ndtr, ndtr, ndtri

from holdfast._core import compiled
from holdfast._core.chunks import by_stretches
from holdfast._core.loss import SHORT_CUT, Array
from holdfast.losses.perspective import PerspectiveLoss, safe_ratio

ROOT_2PI, ROOT_HALF = np.sqrt(2 * np.pi), np.sqrt(0.5)
SHRUNK = 4.5
"""Above this z the slope a is so near 1 that p(a) is too curved to be replaced by its tangent."""
FAR = 5.0
"""From this x on, 1 - x Q(x) / density(x) is computed by a fitted polynomial: the formula cancels."""


def density(z: Array) -> Array:
    """Return the standard normal density."""
    return np.exp(-0.5 * np.square(z)) / ROOT_2PI


LEFT_BY_CUT = float(density(ndtri(SHORT_CUT)))
"""The dual scale of 1 - SHORT_CUT."""
MOST_BENT = float(0.5 / (1 - SHORT_CUT) * ndtr(SHRUNK) / density(np.array(SHRUNK)))
"""Upper bound on -p'' a / 2 up to SHRUNK, attained there: a / p(a) rises with a."""


@cache
def _far_polynomial() -> Array:
    """Return x^2 (1 - x Q(x) / density(x)), x >= 5, as a polynomial in 50 / x^2 - 1, fitted to a continued fraction."""
    s = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    x = FAR / np.sqrt(0.5 * (1 + s))
    r = np.zeros_like(x)
    for n in range(400, 1, -1):
        r = 1 / (x + n * r)
    excess = r / (x + r)
    fit = np.polynomial.Chebyshev.fit(s, excess * x**2, 16, domain=[-1, 1])
    return np.asarray(fit.convert(kind=np.polynomial.Polynomial).coef)


def mills_ratios(x: Array) -> tuple[Array, Array]:
    """Return Q(x) / density(x) and h(x) / density(x) for x >= 0, Q the upper tail and h = density - x Q.

    Relative error below 2e-15 for all x.
    """
    x = np.asarray(x, dtype=float)
    ratio = np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
    excess = np.asarray(1.0 - x * ratio)
    far = x >= FAR
    if np.any(far):
        square = np.square(x[far])
        s = 2 * FAR**2 / square - 1
        value = np.full_like(s, _far_polynomial()[-1])
        for coefficient in _far_polynomial()[-2::-1]:
            value *= s
            value += coefficient
        excess[far] = value / square
    return ratio, excess


class GaussianHinge(PerspectiveLoss):
    r"""The expected hinge loss :math:`\mathbb E\,[u + tZ]_+ = u\,\Phi(u/t) + t\,\varphi(u/t)`, Z standard normal.

    Published as the loss of GURU (Ginodi & Globerson). With f = z Phi + phi: f' = Phi, f'' = phi, psi = phi and
    f*(a) = phi(Phi^-1(a)). For the hinge, the worst noise of a given power is not Gaussian but two-point: see
    :class:`TwoPointHinge`.

    Examples
    --------
    >>> loss = GaussianHinge()
    >>> loss.value(np.array([0.0, -1.0, 2.0]), np.array(1.0)).round(4)
    array([0.3989, 0.0833, 2.0085])
    """

    def value(self, u: Array, t: Array) -> Array:
        return self.tangent(u, t)[0]

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        z = np.asarray(safe_ratio(u, t))
        x = np.abs(z)
        height, beyond = density(x), ndtr(-x)
        slope = np.where(z > 0, 1.0 - beyond, beyond)
        # p(Phi(z)) = phi(z), with no quantile
        return np.asarray(np.maximum(u, 0.0) + t * (height - x * beyond)), slope, height

    def shrunk_scale(self, u: Array, t: Array, a: Array) -> tuple[Array, Array]:
        # p' = -z and p'' = -1 / p; p is concave and 0 at 0, so between (1 - e) a and a it is at least 1 - e of p(a).
        # Beyond SHRUNK, where p falls steeply towards a = 1, take a chord from p(a) to p(1 - SHORT_CUT): it lies below
        # p((1 - e) a)
        z = safe_ratio(u, t)
        return np.where(z < SHRUNK, z * a, (LEFT_BY_CUT - density(z)) / SHORT_CUT), MOST_BENT * a

    def tail(self, x: Array) -> Array:
        return density(np.minimum(x, 1e3)) * mills_ratios(x)[1]

    def slope(self, z: Array) -> Array:
        return ndtr(z)

    def second(self, z: Array) -> Array:
        return density(z)

    def psi(self, z: Array) -> Array:
        return density(z)

    @by_stretches
    def conjugate(self, a: Array) -> Array:
        return density(ndtri(a))

    @by_stretches
    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        return self._evaluate(safe_ratio(u, t), u, t)

    def _evaluate(self, z: Array, u: Array, t: Array) -> tuple[Array, Array, Array]:
        # the inherited form, but one exponential and one tail serve all three results. Where the difference cancels it
        # loses x^2 roundings, 1e-12 of a loss near zero
        x = np.abs(z)
        height = density(x)
        tail = 0.5 * erfc(ROOT_HALF * x)
        rise = np.maximum(height - x * tail, 0.0)
        return np.maximum(u, 0.0) + t * rise, np.where(z > 0, 1.0 - tail, tail), height

    @by_stretches
    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        z = safe_ratio(u, t)
        loss, slope, height = self._evaluate(z, u, t)
        if np.ndim(t) == 0 and t > 0:
            bend = height / t
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                bend = np.where(np.asarray(t) > 0, height / t, 0.0)
        return loss, slope, height, bend, -z * bend, z * z * bend

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        if imbalance is not None:
            ratio, excess = mills_ratios(np.array(pull / sigma))
            return float(imbalance * ratio / (sigma * excess))
        if pull == 0:
            return 0.0
        goal = np.log(pull) - np.log(sigma)

        def residual(z: float) -> float:
            """Return log(psi / f') - log(pull / sigma)."""
            if z < 0:
                return float(-np.log(mills_ratios(np.array(-z))[0]) - goal)
            return float(-0.5 * z * z - np.log(ROOT_2PI) - log_ndtr(z) - goal)

        z0 = brentq(residual, -2 * np.exp(min(goal, 300.0)) - 5, 10 + np.sqrt(max(0.0, -2 * goal)), xtol=1e-14)
        if z0 >= 0:
            return float(1 / (pull + sigma * z0))
        # pull + sigma z0 = sigma f / f', which does not cancel
        ratio, excess = mills_ratios(np.array(-z0))
        return float(ratio / (sigma * excess))

    def compiled(self) -> Any | None:
        return compiled.kernel("gaussian_hinge")
