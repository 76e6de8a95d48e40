"""Features that are functions of linear forms of the row, averaged over its Gaussian noise in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr, owens_t

from holdfast._core.arithmetic import dense
from holdfast._core.row_forms import Array
from holdfast.features.effects import Effect
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import known_numbers
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.sloped import SlopedFactor

FAR = 40.0
"""Beyond this many standard deviations a normal density is taken as 0."""
NO_DEVIATION = 1e-14
"""Stands in for a deviation of 0, to avoid division by 0."""
FARTHEST = 1e7
"""Largest standard deviation, relative to the distance of the farthest kink; beyond it means of ramps are constant."""


class Average(NamedTuple):
    """Moments of a feature of a row with Gaussian noise."""

    mean: Array
    slope: Array
    """The mean of the feature's derivative; slope times noise is the linear part of the feature's error."""
    rest: Array
    """The standard deviation of the remaining error, which is uncorrelated with the noise."""


class Curve(ABC):
    r"""A function f of one number a whose averages over Gaussian noise have a closed form.

    `averages` describes :math:`\psi(a + tZ)`, where :math:`\psi(a) = \mathbb E f(a + bZ')` is f already averaged over
    noise of standard deviation b, or f itself if b is None. This gives the error of an averaged feature when its row is
    measured again.
    """

    @abstractmethod
    def value(self, a: Array) -> Array:
        """Return f(a)."""

    @abstractmethod
    def slope(self, a: Array) -> Array:
        """Return f'(a)."""

    @abstractmethod
    def mean(self, a: Array, t: Array) -> Array:
        """Return the mean of f(a + tZ); it must equal f(a) exactly where t = 0."""

    @abstractmethod
    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        """Return the mean, slope and rest of psi(a + tZ), with Z standard normal."""

    @abstractmethod
    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the least and the largest f(a) over low <= a <= high."""


class Ramp(Curve):
    r"""Ramps :math:`\min(\max(a, 0), w)`, each the difference of hinges at 0 and w: pieces of piecewise linear splines.

    With :math:`h(a) = a\,\Phi(a/t) + t\,\varphi(a/t)`, the mean of a hinge, the mean of a ramp is :math:`h(a) - h(a - w)` and
    its slope :math:`\Phi(a/t) - \Phi((a - w)/t)`.

    Parameters
    ----------
    widths : ndarray of shape (n_out,)
        w > 0.
    is_last : ndarray of bool of shape (n_out,)
        True where the next ramp does not begin at the end of this one.
    """

    def __init__(self, widths: Array, is_last: NDArray[np.bool_]):
        self.widths, self.is_last = widths, is_last

    def value(self, a: Array) -> Array:
        return np.clip(a, 0.0, self.widths)

    def slope(self, a: Array) -> Array:
        return np.where((a > 0) & (a < self.widths), 1.0, 0.0)

    def mean(self, a: Array, t: Array) -> Array:
        # t times a difference of order 1 / t has a rounding error of eps t, which grows without bound, so t is limited
        t = np.minimum(t, FARTHEST * (np.abs(a) + self.widths).max(axis=1, keepdims=True, initial=0.0))
        # the mean is the ramp plus a term for the noise at each kink, which vanishes away from the kinks and for t = 0
        return self.value(a) + t * self._differences(_above_kink, a, t)

    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        total = t if b is None else np.hypot(t, b)
        # one minus the correlation of two averaged draws: they share the noise t, and each has its own noise b
        apart = None if b is None else np.square(np.divide(b, total, out=np.ones_like(total), where=total > 0))
        first, second = _in_deviations(a, total), _in_deviations(a - self.widths, total)
        slope = np.where(total > 0, self._differences(ndtr, a, total), self.slope(a))
        square = _rests(first, first, apart) + _rests(second, second, apart) - 2 * _rests(first, second, apart)
        # for noise a million times as wide as the ramp the squares are rounding; the rest is never above half the width
        rest = np.where(t > 0, np.minimum(total * np.sqrt(np.maximum(square, 0.0)), 0.5 * self.widths), 0.0)
        return Average(self.mean(a, total), slope, rest)

    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        return self.value(low), self.value(high)

    def _differences(self, function: Callable[[Array], Array], a: Array, t: Array) -> Array:
        """Return function((a - first kink) / t) - function((a - second kink) / t)."""
        # within a column a ramp ends where the next one begins, so each kink is evaluated once
        found, last = function(_in_deviations(a, t)), self.is_last
        ends = np.empty_like(found)
        ends[:, :-1] = found[:, 1:]
        ends[:, last] = function(_in_deviations(a[:, last] - self.widths[last], t[:, last]))
        return found - ends


class Wave(Curve):
    r"""The cosine: over noise, its mean is :math:`e^{-t^2/2} \cos a` and its slope :math:`-e^{-t^2/2} \sin a`."""

    def value(self, a: Array) -> Array:
        return np.cos(a)

    def slope(self, a: Array) -> Array:
        return -np.sin(a)

    def mean(self, a: Array, t: Array) -> Array:
        return np.exp(-0.5 * np.square(np.minimum(t, FAR))) * np.cos(a)

    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        q = np.square(np.minimum(t, FAR))  # beyond FAR the mean of a wave is 0
        # with q = t^2, the variance of the cosine is lost^2 / 2 + left lost sin^2; the linear part, of slope -e^(-q/2)
        # sin(a), accounts for left q sin^2 of it
        left, lost, sine = np.exp(-q), -np.expm1(-q), np.sin(a)
        before = 1.0 if b is None else np.exp(-0.5 * np.square(np.minimum(b, FAR)))
        damped = before * np.sqrt(left)
        rest = 0.5 * np.square(lost) + left * np.square(sine) * (lost - q)
        return Average(damped * np.cos(a), -damped * sine, before * np.sqrt(np.maximum(rest, 0.0)))

    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        ends = np.cos(low), np.cos(high)
        # a crest (or trough) lies in the interval if the count of crests (or troughs) differs between its ends
        crests, troughs = (
            np.floor(high / (2 * np.pi) + part) > np.floor(low / (2 * np.pi) + part) for part in (0.0, 0.5)
        )
        return np.where(troughs, -1.0, np.minimum(*ends)), np.where(crests, 1.0, np.maximum(*ends))


@dataclass(frozen=True)
class Features:
    """Features of one kind: gain * curve(forms of the row)."""

    forms: AffineMap
    curve: Curve
    gain: Array | float = 1.0

    def deviations(self, noise: RowNoise) -> Array:
        """Return the standard deviation of each form, shape (n_samples, n_out), without forming factors."""
        if sparse.issparse(self.forms.matrix):  # each form has one input
            return AffineMap(abs(self.forms.matrix)).moved(noise.deviations)
        squares = AffineMap(self.forms.matrix * self.forms.matrix).moved(np.square(noise.std))
        for cause in np.moveaxis(noise.factor, 2, 0):
            squares += np.square(self.forms.moved(cause))
        return np.sqrt(squares)


class Averaged(Effect):
    r"""Features :math:`z_k = g_k f_k(v_k^\top x + p_k)`, averaged over Gaussian noise of x in closed form.

    `expected` moves the rows to the means of the features. It returns the linear part of the features' errors as a
    factor, and the remaining errors as independent standard deviations. So variances are exact, and covariances are
    those of the linear parts alone. Intervals are exact for each feature.

    Parameters
    ----------
    parts : list of Features
    centre : ndarray of shape (n_features,)
        Subtracted from rows first.
    """

    def __init__(self, parts: Sequence[Features], centre: Array):
        self.parts, self.centre = parts, centre

    def width(self, n_features: int) -> int:
        return sum(part.forms.shape[0] for part in self.parts)

    def transform(self, X: Any) -> Array:
        """Return the features of rows without noise."""
        rows = self._rows(X)
        return np.hstack([part.gain * part.curve.value(part.forms(rows)) for part in self.parts])

    def means(self, lots: Sequence[Any], noise: RowNoise) -> list[Array]:
        """Return the means of the features, shape (n_samples, n_out), for each of several arrays of rows."""
        pairs = [(part, part.deviations(noise)) for part in self.parts]
        return [
            np.hstack([part.gain * part.curve.mean(part.forms(rows), t) for part, t in pairs])
            for rows in map(self._rows, lots)
        ]

    def averages(self, X: Any, noise: RowNoise, before: RowNoise | None = None) -> tuple[Array, SlopedNoise]:
        """Return the means and the noise of the features, which may be averaged over the noise `before` already."""
        rows, found = self._rows(X), []
        for part in self.parts:
            b = None if before is None else part.deviations(before)
            found.append(part.curve.averages(part.forms(rows), part.deviations(noise), b))
        means, slopes, rests = (
            np.hstack([part.gain * one for part, one in zip(self.parts, each, strict=True)])
            for each in zip(*found, strict=True)
        )
        return means, SlopedNoise.along([part.forms for part in self.parts], slopes, noise, rests)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        ends = []
        for part in self.parts:
            middle = part.forms(0.5 * (lower + upper) - self.centre)
            reach = AffineMap(abs(part.forms.matrix)).moved(0.5 * (upper - lower))
            ends.append([part.gain * end for end in part.curve.bounds(middle - reach, middle + reach)])
        low, high = zip(*ends, strict=True)
        return np.hstack(low), np.hstack(high)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        rows = self._rows(X)
        slopes = np.hstack([part.gain * part.curve.slope(part.forms(rows)) for part in self.parts])
        return SlopedNoise.along([part.forms for part in self.parts], slopes, noise, np.zeros_like(slopes))

    def expected(self, X: Any, Z: Any, noise: RowNoise) -> tuple[Any, RowNoise]:
        return self.averages(X, noise)

    def _rows(self, X: Any) -> Array:
        return np.asarray(dense(known_numbers(X)), dtype=np.float64) - self.centre


class SlopedNoise(RowNoise):
    """Noise of features that depend on linear forms of the inputs, stored in parts; its factor is formed on request."""

    parts: SlopedFactor

    def __init__(self, parts: SlopedFactor):
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "std", parts.rest)

    @classmethod
    def along(cls, forms: Sequence[AffineMap], slopes: Array, noise: RowNoise, rest: Array) -> SlopedNoise:
        """Return the noise of features with `slopes` in the forms of inputs with `noise`, and `rest` as own errors."""
        return cls(SlopedFactor(slopes, [map.matrix for map in forms], noise.std, noise.factor, rest))

    @property
    def factor(self) -> Array:
        """The effects on the features of the causes of the inputs' noise: common causes first, then each input's."""
        return self.parts.followed()

    @property
    def metadata(self) -> dict[str, Any]:
        """The noise as X_factor, still stored in parts."""
        return {"X_factor": self.parts}


def _in_deviations(a: Array, t: Array) -> Array:
    """Return a / t, clipped to +-FAR, where a normal density is 0."""
    with np.errstate(over="ignore"):
        return np.clip(np.divide(a, t, out=np.copysign(FAR, a), where=t > 0), -FAR, FAR)


def _density(r: Array) -> Array:
    return np.exp(-0.5 * np.square(r)) / np.sqrt(2 * np.pi)


def _above_kink(r: Array) -> Array:
    """Return the mean of a hinge minus the hinge itself, at r standard deviations from its kink, for deviation 1."""
    return _density(r) - np.abs(r) * ndtr(-np.abs(r))


def _rests(first: Array, second: Array, apart: Array | None) -> Array:
    r"""Return the covariance of the nonlinear parts of the errors of two hinges, for noise of standard deviation 1.

    It is the covariance of :math:`[p + A]_+` and :math:`[q + B]_+`, with A and B standard normal of correlation 1 -
    `apart`, less that of their linear parts, (1 - apart) * Phi(p) Phi(q). Here p = first >= q = second. If `apart` is
    None, A = B.
    """
    # beyond both kinks, use the mirror image, which has the same covariance but smaller terms
    is_beyond = second > 0
    p, q = np.where(is_beyond, -second, first), np.where(is_beyond, -first, second)
    means = [one * ndtr(one) + _density(one) for one in (p, q)]
    if apart is None:
        product = (p * q + 1) * ndtr(q) + p * _density(q)
        return np.asarray(product - means[0] * means[1] - ndtr(p) * ndtr(q))
    apart = np.maximum(apart, NO_DEVIATION**2)
    share, across = 1 - apart, np.sqrt(apart * (2 - apart))
    corner = np.exp(-0.5 * np.square((p - q) / across) - p * q / (2 - apart)) * across / (2 * np.pi)
    product = (p * q + share) * _both_positive(p, q, apart, across) + corner
    product += p * _density(q) * ndtr((p - q + apart * q) / across)
    product += q * _density(p) * ndtr((q - p + apart * p) / across)
    return np.asarray(product - means[0] * means[1] - share * ndtr(p) * ndtr(q))


def _both_positive(p: Array, q: Array, apart: Array, across: Array) -> Array:
    """Return the probability that p + A > 0 and q + B > 0, with A, B standard normal of correlation 1 - `apart`."""
    # Owen (1956): the bivariate normal probability in terms of Owen's T, whose slope argument divides by p or q. In
    # terms of 1 - rho instead of rho nothing cancels for correlations near 1
    p, q = (np.where(np.abs(one) < NO_DEVIATION, NO_DEVIATION, one) for one in (p, q))
    turned = owens_t(p, ((q - p) / p + apart) / across) + owens_t(q, ((p - q) / q + apart) / across)
    return np.asarray(0.5 * (ndtr(p) + ndtr(q)) - turned - 0.5 * (p * q < 0))
