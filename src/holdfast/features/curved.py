"""Steps that are not affine: functions of single features, products, and kernel features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import dense
from holdfast._core.row_forms import Array
from holdfast.features.averaged import Wave
from holdfast.features.effects import Effect, OutOfDomainError
from holdfast.features.gram import rbf_values
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import in_form_of, known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap

FAR = 4.5
"""Integrals over noise extend to this many standard deviations."""
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(24)
"""Gauss-Legendre nodes, between the lowest and the highest value of the noise in the domain of a step."""
EDGES = 12
"""The number of bisections for the end of a domain."""
HALVINGS = 60
"""Limit on the halvings of an error until the step is finite on both sides."""
DERIVATIVE_STEP = 2.0**-8
"""The step of a numerical derivative, as a share of the largest error that stays in the domain."""


class Monotone(Effect):
    """A step that applies a monotone function to each feature.

    Intervals are exact: ends are mapped to ends. Noise is linearised by the slope of the secant over one standard
    deviation to each side. Its moments are integrals of the function over the part of the noise in its domain; if one
    standard deviation leaves the domain, the derivative is used instead. Correlations are kept.

    Parameters
    ----------
    function : callable
        Maps rows, in the same form as X, to values of the same features.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def _found(self, rows: Array, X: Any) -> Array:
        """Return the values of the function at rows; they may be infinite or NaN."""
        # the function is given NaN for missing entries, and its output counts as 0 there, as the input does
        missing = np.zeros(rows.shape, dtype=bool) if sparse.issparse(X) else np.isnan(numbers_of(X))
        with np.errstate(all="ignore"):
            found = numbers_of(self.function(in_form_of(X, np.where(missing, np.nan, rows))))
        return np.where(missing, 0.0, dense(found))

    def _at(self, rows: Array, X: Any, where: str, cure: str) -> Array:
        found = self._found(rows, X)
        wrong = np.argwhere(~np.isfinite(found))
        if len(wrong):
            i, j = (int(index) for index in wrong[0])
            raise OutOfDomainError(f"{where}, {dense(rows)[i, j]:g}", cure, i, j)
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        cure = (
            "Narrow the interval there, so that it ends where the function does, or use a function that goes on, such as "
            "log1p for log."
        )
        ends = [self._at(end, X, "at an end of an interval", cure) for end in (lower, upper)]
        return np.minimum(*ends), np.maximum(*ends)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        values, reach = known_numbers(X), noise.deviations
        where = "one standard deviation off"
        cure = "Use UncertainPipeline(nonlinear='auto'), which takes the derivative there, or a function that goes on."
        above, below = (self._at(values + sign * reach, X, where, cure) for sign in (1.0, -1.0))
        return noise.times(_quotient(above - below, 2 * reach))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        values, reach = dense(known_numbers(X)).astype(np.float64), noise.deviations
        cure = "Leave such rows out, or use a function that goes on, such as log1p for log."
        here = self._at(values, X, "at its value", cure)
        is_inside = np.all([np.isfinite(self._found(values + sign * reach, X)) for sign in (1.0, -1.0)], axis=0)
        low, high = (sign * self._farthest(values, sign * reach, X) for sign in (-1.0, 1.0))
        square, along, weight = (np.zeros(values.shape) for _ in range(3))
        for node, share in zip(NODES, NODE_WEIGHTS, strict=True):
            # quadrature over the part of the normal density that stays in the domain, divided by its total weight
            z = 0.5 * (low + high + node * (high - low))
            density = share * np.exp(-0.5 * z**2)
            rise = self._found(values + z * reach, X) - here
            with np.errstate(all="ignore"):  # invalid where one deviation is outside the domain; replaced below
                square, along, weight = square + density * rise**2, along + density * z * rise, weight + density
        # the slope of a linear step with the same mean square; its sign is that of the covariance of error and output
        slopes = np.sign(along) * _quotient(np.sqrt(square / weight), reach)
        return noise.times(slopes if np.all(is_inside) else np.where(is_inside, slopes, self._slopes(values, reach, X)))

    def _farthest(self, values: Array, reach: Array, X: Any) -> Array:
        """Return the largest multiple of `reach`, from 1 to `FAR`, that stays in the domain."""
        outer = np.full(values.shape, FAR)
        inner = np.where(np.isfinite(self._found(values + FAR * reach, X)), FAR, 1.0)
        for _ in range(0 if np.all(inner == FAR) else EDGES):
            middle = 0.5 * (inner + outer)
            is_known = np.isfinite(self._found(values + middle * reach, X))
            inner, outer = np.where(is_known, middle, inner), np.where(is_known, outer, middle)
        return inner

    def _slopes(self, values: Array, reach: Array, X: Any) -> Array:
        """Return derivatives, by steps much smaller than the largest error up to `reach` that stays in the domain."""
        for _ in range(HALVINGS):
            is_known = np.all([np.isfinite(self._found(values + sign * reach, X)) for sign in (1.0, -1.0)], axis=0)
            if np.all(is_known):
                break
            reach = np.where(is_known, reach, reach / 2)
        above, below = (
            self._at(values + sign * DERIVATIVE_STEP * reach, X, "close to it", "Leave such rows out.")
            for sign in (1.0, -1.0)
        )
        return _quotient(above - below, 2 * DERIVATIVE_STEP * reach)


class Products(Effect):
    r"""A step whose outputs are products of powers, :math:`z_k = \prod_j x_j^{p_{kj}}`.

    Intervals are exact for each product. Noise is linearised by the derivatives at X. Moments take the errors of each
    cause alone, which is exact for powers up to 2, and leave out products of errors of different causes.

    Parameters
    ----------
    powers : array-like of int of shape (n_out, n_in)
        p >= 0.
    """

    def __init__(self, powers: Any):
        self.powers = np.asarray(powers, dtype=np.int64)

    def width(self, n_features: int) -> int:
        return len(self.powers)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        low, high = (np.ones((len(lower), len(self.powers))) for _ in range(2))
        for j, powers in enumerate(self.powers.T):
            ends = np.stack([end[:, [j]] ** powers for end in (lower, upper)])
            below, above = ends.min(axis=0), ends.max(axis=0)
            # an even power of an interval around 0 has the lower end 0
            has_zero = ((lower[:, [j]] < 0) & (upper[:, [j]] > 0)) & (powers % 2 == 0) & (powers > 0)
            below = np.where(has_zero, 0.0, below)
            # the factors depend on different features, so all four pairs of ends occur; the extremes of the product are
            # among them
            corners = np.stack([low * below, low * above, high * below, high * above])
            low, high = corners.min(axis=0), corners.max(axis=0)
        return low, high

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        values = known_numbers(X).astype(np.float64, copy=False)
        slopes = np.zeros((len(values), *self.powers.shape))
        for j in range(self.powers.shape[1]):
            less = self.powers.copy()
            less[:, j] = np.maximum(less[:, j] - 1, 0)
            slopes[:, :, j] = self.powers[:, j] * np.prod(values[:, None, :] ** less, axis=2)
        return RowNoise.mixed(slopes @ noise.causes)

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        values, factors = known_numbers(X).astype(np.float64, copy=False), noise.causes
        here, odd, even = self._at(values), [], []
        # three nodes for each cause; the odd parts come first, so that they stay in the column of their cause
        for step in np.moveaxis(np.sqrt(3) * factors, 2, 0):
            above, below = self._at(values + step) - here, self._at(values - step) - here
            # Gauss-Hermite gives the outer nodes the weight 1/6 each: the squares of both columns add up to (above^2 +
            # below^2) / 6
            odd.append((above - below) / np.sqrt(12))
            even.append((above + below) / np.sqrt(12))
        return RowNoise.mixed(np.stack(odd + even, axis=2))

    def _at(self, values: Array) -> Array:
        return np.asarray(np.prod(values[:, None, :] ** self.powers, axis=2))


class Waves(Effect):
    r"""Features :math:`z_k = \cos(\omega_k^\top x + c_k)`: random Fourier features, before scaling.

    Intervals are exact for each feature. Noise is linearised by the derivatives at X; its moments are exact for
    Gaussian noise.

    Parameters
    ----------
    weights : ndarray of shape (n_out, n_features)
        :math:`\omega`.
    offset : ndarray of shape (n_out,)
        c.
    """

    def __init__(self, weights: Array, offset: Array):
        self.weights, self.offset = weights, offset
        self.angles = AffineMap(weights, offset)

    def width(self, n_features: int) -> int:
        return self.angles.shape[0]

    def transform(self, X: Any) -> Array:
        """Return the features of rows."""
        return np.cos(self.angles(dense(known_numbers(X))))

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        middle = self.angles(0.5 * (lower + upper))
        reach = AffineMap(abs(self.angles.matrix)).moved(0.5 * (upper - lower))
        return Wave().bounds(middle - reach, middle + reach)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.angles).times(-np.sin(self.angles(dense(known_numbers(X)))))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        a, inner = self.angles(dense(known_numbers(X))), noise.through(self.angles)
        t = inner.deviations
        # E (cos(a + tZ) - cos a)^2, whose terms of size 1 cancel for small t; 1 minus each of the two means stays
        # accurate
        twice, once = -np.expm1(-2 * t**2), -np.expm1(-0.5 * t**2)
        square = 0.5 * twice + np.cos(a) ** 2 * (2 * once - twice)
        return inner.times(-np.sign(np.sin(a)) * _quotient(np.sqrt(np.maximum(square, 0.0)), t))


class RbfValues(Effect):
    r"""Features :math:`z_k = e^{-\gamma |x - c_k|^2}`: an RBF kernel with fixed centres.

    Intervals are exact for each feature. Noise is linearised by the derivatives at X.

    Parameters
    ----------
    centres : ndarray of shape (n_centres, n_features)
        c.
    width : float
        gamma.
    is_direct : bool, default=False
        Whether the step computes squared distances from differences, which stay accurate for rows far from 0.
    """

    def __init__(self, centres: Array, width: float, *, is_direct: bool = False):
        self.centres, self.width_of_kernel, self.is_direct = centres, float(width), is_direct

    def width(self, n_features: int) -> int:
        return len(self.centres)

    def transform(self, X: Any) -> Array:
        """Return the features of rows."""
        return rbf_values(dense(known_numbers(X)), self.centres, self.width_of_kernel)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        nearest, farthest = np.zeros((2, len(lower), len(self.centres)))
        for low, high, c in zip(lower.T[:, :, None], upper.T[:, :, None], self.centres.T, strict=True):
            # the squared distance is a sum over features, whose extremes can all be reached at once
            nearest += np.square(np.maximum(np.maximum(low - c, c - high), 0.0))
            farthest += np.square(np.maximum(np.abs(low - c), np.abs(high - c)))
        return np.exp(-self.width_of_kernel * farthest), np.exp(-self.width_of_kernel * nearest)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        values = dense(known_numbers(X)).astype(np.float64)
        away = values[:, None, :] - self.centres
        return RowNoise.mixed(-2 * self.width_of_kernel * (self.transform(X)[:, :, None] * away) @ noise.causes)


def _quotient(rise: Array, run: Array) -> Array:
    """Return rise / run, 0 where run is 0."""
    return np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)
