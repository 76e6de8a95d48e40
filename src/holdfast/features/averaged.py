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
"""Deviations beyond which a normal density is 0."""
NO_DEVIATION = 1e-14
"""Deviations that are taken for none, to divide by."""
FARTHEST = 1e7
"""Deviations, in distances to the farthest kink, beyond which means of ramps no longer change but for rounding."""


class Average(NamedTuple):
    """What Gaussian noise makes of a feature."""

    mean: Array
    slope: Array
    """The mean of its derivative: what it follows of the noise is that times the noise."""
    rest: Array
    """The standard deviation of what it does not follow, which is uncorrelated with the noise."""


class Curve(ABC):
    r"""A function f of one number a, known by its averages over Gaussian noise.

    `averages` is about :math:`\psi(a + tZ)`, where :math:`\psi(a) = \mathbb E f(a + bZ')` is f averaged over noise of
    deviation b already, or f itself where b is None: what becomes of an averaged feature when its row is measured again.
    """

    @abstractmethod
    def value(self, a: Array) -> Array:
        """Return f(a)."""

    @abstractmethod
    def slope(self, a: Array) -> Array:
        """Return f'(a)."""

    @abstractmethod
    def mean(self, a: Array, t: Array) -> Array:
        """Return the mean of f(a + tZ), f(a) to the last digit where t = 0."""

    @abstractmethod
    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        """Return mean, slope and rest of psi(a + tZ)."""

    @abstractmethod
    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the least and the largest f(a) over low <= a <= high."""


class Ramp(Curve):
    r"""Ramps :math:`\min(\max(a, 0), w)`, hinges less hinges at w: the pieces of piecewise linear splines.

    With :math:`h(a) = a\,\Phi(a/t) + t\,\varphi(a/t)`, the mean of a hinge, the mean of a ramp is :math:`h(a) - h(a - w)` and
    its slope :math:`\Phi(a/t) - \Phi((a - w)/t)`.

    Parameters
    ----------
    widths : ndarray of shape (n_out,)
        w > 0.
    is_last : ndarray of bool of shape (n_out,)
        Whether the ramp after it begins elsewhere than where it ends.
    """

    def __init__(self, widths: Array, is_last: NDArray[np.bool_]):
        self.widths, self.is_last = widths, is_last

    def value(self, a: Array) -> Array:
        return np.clip(a, 0.0, self.widths)

    def slope(self, a: Array) -> Array:
        return np.where((a > 0) & (a < self.widths), 1.0, 0.0)

    def mean(self, a: Array, t: Array) -> Array:
        # t times a difference of order 1 / t is off by eps t, which for very large t would be anything
        t = np.minimum(t, FARTHEST * (np.abs(a) + self.widths).max(axis=1, keepdims=True, initial=0.0))
        # the mean is the ramp itself plus what noise adds at its kinks, both small numbers away from them: exact where t = 0
        return self.value(a) + t * self._differences(_above_kink, a, t)

    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        total = t if b is None else np.hypot(t, b)
        # two draws with the same error, and errors of their own
        apart = None if b is None else np.square(np.divide(b, total, out=np.ones_like(total), where=total > 0))
        first, second = _in_deviations(a, total), _in_deviations(a - self.widths, total)
        slope = np.where(total > 0, self._differences(ndtr, a, total), self.slope(a))
        square = _rests(first, first, apart) + _rests(second, second, apart) - 2 * _rests(first, second, apart)
        # beyond noise a million times as wide as the ramp the squares are rounding; no rest is above half of the width
        rest = np.where(t > 0, np.minimum(total * np.sqrt(np.maximum(square, 0.0)), 0.5 * self.widths), 0.0)
        return Average(self.mean(a, total), slope, rest)

    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        return self.value(low), self.value(high)

    def _differences(self, function: Callable[[Array], Array], a: Array, t: Array) -> Array:
        """Return a function of how many deviations the first kink is below a, less that of the second one."""
        # a ramp ends where the next one of its column begins, so each kink is evaluated once
        found, last = function(_in_deviations(a, t)), self.is_last
        ends = np.empty_like(found)
        ends[:, :-1] = found[:, 1:]
        ends[:, last] = function(_in_deviations(a[:, last] - self.widths[last], t[:, last]))
        return found - ends


class Wave(Curve):
    r"""The cosine, mean :math:`e^{-t^2/2} \cos a`, slope :math:`-e^{-t^2/2} \sin a`."""

    def value(self, a: Array) -> Array:
        return np.cos(a)

    def slope(self, a: Array) -> Array:
        return -np.sin(a)

    def mean(self, a: Array, t: Array) -> Array:
        return np.exp(-0.5 * np.square(np.minimum(t, FAR))) * np.cos(a)

    def averages(self, a: Array, t: Array, b: Array | None) -> Average:
        q = np.square(np.minimum(t, FAR))  # beyond that nothing is left of a wave
        # with q = t^2: the variance of the cosine is lost^2 / 2 + left lost sin^2, and the line of slope -e^(-q/2) sin(a)
        # takes left q sin^2 of it
        left, lost, sine = np.exp(-q), -np.expm1(-q), np.sin(a)
        before = 1.0 if b is None else np.exp(-0.5 * np.square(np.minimum(b, FAR)))
        damped = before * np.sqrt(left)
        rest = 0.5 * np.square(lost) + left * np.square(sine) * (lost - q)
        return Average(damped * np.cos(a), -damped * sine, before * np.sqrt(np.maximum(rest, 0.0)))

    def bounds(self, low: Array, high: Array) -> tuple[Array, Array]:
        ends = np.cos(low), np.cos(high)
        # whether the number of the last crest, or of the last trough, is another at the upper end
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
        """Return the standard deviation of each form, (n_samples, n_out), without forming factors of them."""
        if sparse.issparse(self.forms.matrix):  # of one input each
            return AffineMap(abs(self.forms.matrix)).moved(noise.deviations)
        squares = AffineMap(self.forms.matrix * self.forms.matrix).moved(np.square(noise.std))
        for cause in np.moveaxis(noise.factor, 2, 0):
            squares += np.square(self.forms.moved(cause))
        return np.sqrt(squares)


class Averaged(Effect):
    r"""Features :math:`z_k = g_k f_k(v_k^\top x + p_k)`, averaged over Gaussian noise of x in closed form.

    `expected` moves rows to the means, and returns what the features follow of the noise as a factor, and what they do not
    follow as independent deviations: their variances are exact, their covariances those of the lines alone.
    Intervals are exact for each feature.

    Parameters
    ----------
    parts : list of Features
    centre : ndarray of shape (n_features,)
        What is taken off rows first.
    """

    def __init__(self, parts: Sequence[Features], centre: Array):
        self.parts, self.centre = parts, centre

    def width(self, n_features: int) -> int:
        return sum(part.forms.shape[0] for part in self.parts)

    def transform(self, X: Any) -> Array:
        """Return the features of exact rows."""
        rows = self._rows(X)
        return np.hstack([part.gain * part.curve.value(part.forms(rows)) for part in self.parts])

    def means(self, lots: Sequence[Any], noise: RowNoise) -> list[Array]:
        """Return the means of the features, (n_samples, n_out), for each of several lots of rows that have the same noise."""
        pairs = [(part, part.deviations(noise)) for part in self.parts]
        return [
            np.hstack([part.gain * part.curve.mean(part.forms(rows), t) for part, t in pairs])
            for rows in map(self._rows, lots)
        ]

    def averages(self, X: Any, noise: RowNoise, before: RowNoise | None = None) -> tuple[Array, SlopedNoise]:
        """Return means of the features and what noise makes of them; of those averaged over the noise `before` already."""
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
    """Noise of features that follow forms of the inputs, kept as slopes and forms; as a factor where that is asked for."""

    parts: SlopedFactor

    def __init__(self, parts: SlopedFactor):
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "std", parts.rest)

    @classmethod
    def along(cls, forms: Sequence[AffineMap], slopes: Array, noise: RowNoise, rest: Array) -> SlopedNoise:
        """Return the noise of features with these slopes along forms of inputs that have `noise`."""
        return cls(SlopedFactor(slopes, [map.matrix for map in forms], noise.std, noise.factor, rest))

    @property
    def factor(self) -> Array:
        """What the causes of the inputs' noise do, common ones first, then each input's own."""
        return self.parts.followed()

    @property
    def metadata(self) -> dict[str, Any]:
        """The noise as X_factor, kept in parts."""
        return {"X_factor": self.parts}


def _in_deviations(a: Array, t: Array) -> Array:
    """Return a / t, no farther off than where a normal density is 0."""
    with np.errstate(over="ignore"):
        return np.clip(np.divide(a, t, out=np.copysign(FAR, a), where=t > 0), -FAR, FAR)


def _density(r: Array) -> Array:
    return np.exp(-0.5 * np.square(r)) / np.sqrt(2 * np.pi)


def _above_kink(r: Array) -> Array:
    """Return how much higher the mean of a hinge is than the hinge, r deviations away from its kink, for deviation 1."""
    return _density(r) - np.abs(r) * ndtr(-np.abs(r))


def _rests(first: Array, second: Array, apart: Array | None) -> Array:
    r"""Return the covariance of what two hinges, kinks at these places below 0, do not follow of noise of deviation 1.

    That of :math:`[p + A]_+` and :math:`[q + B]_+`, A and B standard normal with correlation 1 - `apart`, less what the lines
    of their mean slopes have, (1 - apart) * Phi(p) Phi(q); p = first >= q = second. None is 0: A = B.
    """
    # beyond both kinks the mirror image has the same rests, in small numbers
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
    """Return the probability that p + A and q + B are positive, A and B standard normal with correlation 1 - `apart`."""
    # Owen (1956): the bivariate normal probability by his function T of h and of a slope, which divides by h; with 1 - rho in
    # place of rho nothing cancels for correlations near 1
    p, q = (np.where(np.abs(one) < NO_DEVIATION, NO_DEVIATION, one) for one in (p, q))
    turned = owens_t(p, ((q - p) / p + apart) / across) + owens_t(q, ((p - q) / q + apart) / across)
    return np.asarray(0.5 * (ndtr(p) + ndtr(q)) - turned - 0.5 * (p * q < 0))
