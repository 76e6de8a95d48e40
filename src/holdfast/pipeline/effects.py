"""What a step of a pipeline does to errors of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from holdfast._core.uncertainty import Array
from holdfast.pipeline.row_noise import RowNoise, side_by_side
from holdfast.pipeline.rows import in_form_of, known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense


class Effect(ABC):
    """What a fitted step does to errors.

    A step that is no affine map says what becomes of intervals and, to first order, of noise. A step of your own has a method
    ``uncertainty_effect(n_features)`` that returns an effect, or is taught by :func:`teach_step`.
    """

    map: AffineMap | None = None
    """The affine map that the step is; None for others."""
    exact: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    """Features that must have no error, such as categories."""
    adds_errors = False
    """Whether its outputs have errors even where its inputs have none, besides those that `map` makes of the inputs'."""

    def width(self, n_features: int) -> int:
        """Return how many outputs there are for so many inputs."""
        return n_features if self.map is None else self.map.shape[0]

    @abstractmethod
    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return intervals that the step's outputs lie in when its inputs, whose values are X, lie in [lower, upper]."""

    @abstractmethod
    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs, to first order, when the inputs, whose values are X, have `noise`."""


class Affine(Effect):
    r"""A step :math:`z = A x + c`: exact for every set and noise.

    Parameters
    ----------
    matrix : {array-like, sparse array} of shape (n_out, n_in), or of shape (n_features,) for its diagonal
        A.
    offset : array-like of shape (n_out,), default=None
        c, 0 by default.
    """

    map: AffineMap

    def __init__(self, matrix: Any, offset: Any = None):
        self.map = AffineMap.diagonal(matrix, offset) if np.ndim(matrix) == 1 else AffineMap(matrix, offset)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        middle, reach = self.map(0.5 * (lower + upper)), AffineMap(abs(self.map.matrix)).moved(0.5 * (upper - lower))
        return middle - reach, middle + reach

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.map)


class Monotone(Effect):
    """A step that changes each feature by a function that never falls, or never rises.

    Intervals are exact: their ends go to the ends. Noise is multiplied by the slope of the secant over one standard deviation
    to each side.

    Parameters
    ----------
    function : callable
        From rows, in the form that X has, to as many values of the same features.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def _at(self, rows: Array, X: Any, what: str) -> Array:
        # what is missing stays so, and counts as 0 afterwards as it does before
        missing = np.zeros(rows.shape, dtype=bool) if sparse.issparse(X) else np.isnan(numbers_of(X))
        with np.errstate(all="ignore"):
            found = numbers_of(self.function(in_form_of(X, np.where(missing, np.nan, rows))))
        found = np.where(missing, 0.0, dense(found))
        if not np.all(np.isfinite(found)):
            raise ValueError(
                f"is not finite {what}. Narrow the uncertainty there (an interval that ends where the function does), or use "
                "a function that goes on, such as log1p for log."
            )
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        ends = [self._at(end, X, "at an end of an interval") for end in (lower, upper)]
        return np.minimum(*ends), np.maximum(*ends)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        values, reach = known_numbers(X), noise.deviations
        above, below = (self._at(values + sign * reach, X, "one standard deviation off") for sign in (1.0, -1.0))
        rise = above - below
        return noise.times(np.divide(rise, 2 * reach, out=np.zeros_like(rise), where=reach > 0))


class Products(Effect):
    r"""A step whose outputs are products of powers, :math:`z_k = \prod_j x_j^{p_{kj}}`.

    Intervals are exact for each product, noise is multiplied by the derivatives at X.

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
            # even powers of an interval around 0 begin there
            has_zero = ((lower[:, [j]] < 0) & (upper[:, [j]] > 0)) & (powers % 2 == 0) & (powers > 0)
            below = np.where(has_zero, 0.0, below)
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
        return RowNoise(slopes @ noise.factors)


class Exact(Effect):
    """A step whose inputs must be exact, such as categories; its outputs then are.

    Parameters
    ----------
    n_in, n_out : int
        How many features it takes and gives.
    transform : callable
        The step's.
    """

    map: AffineMap

    def __init__(self, n_in: int, n_out: int, transform: Callable[[Any], Any]):
        self.map, self.exact, self.transform = AffineMap(np.zeros((n_out, n_in))), np.arange(n_in), transform

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        found = dense(self.transform(X))
        return found, found

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.map)


class Imputed(Effect):
    """A step that fills in missing entries: it keeps features, and what it fills in has errors of its own.

    Parameters
    ----------
    map : AffineMap
        Which features it keeps; 0 for outputs that say what is missing.
    transform : callable
        The step's.
    lower, upper, std : ndarray of shape (n_out,)
        Where a filled entry may be, and its standard deviation; nan where that is not known.
    """

    map: AffineMap
    adds_errors = True

    def __init__(self, map: AffineMap, transform: Callable[[Any], Any], lower: Array, upper: Array, std: Array):
        self.map, self.transform, self.lower, self.upper, self.std = map, transform, lower, upper, std

    def missing(self, X: Any) -> NDArray[np.bool_]:
        """Return which outputs are filled in."""
        found = self.map.moved(1.0 * np.isnan(dense(numbers_of(X)))) > 0
        if np.any(found & np.isnan(self.std)):
            raise ValueError(
                "does not say how uncertain the entries are that it fills in. Use SpreadImputer, which gives them the spread "
                "of their column."
            )
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        missing, found = self.missing(X), numbers_of(self.transform(X))
        values = known_numbers(X)
        below, above = found + self.map.moved(lower - values), found + self.map.moved(upper - values)
        return (
            np.where(missing, np.minimum(self.lower, below), below),
            np.where(missing, np.maximum(self.upper, above), above),
        )

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.map).plus(RowNoise(np.where(self.missing(X), self.std, 0.0)))


class InSequence(Effect):
    """Steps one after the other.

    Parameters
    ----------
    parts : list of (Effect, callable)
        Effects, and the steps' `transform`.
    n_features : int
        How many inputs the first one takes.
    """

    def __init__(self, parts: Sequence[tuple[Effect, Callable[[Any], Any]]], n_features: int):
        self.parts = parts
        self.map = _all_or_none(
            [part.map for part, _ in parts], lambda maps: reduce(lambda one, two: two.after(one), maps)
        )
        self.exact, self.adds_errors = self._exact(n_features), any(part.adds_errors for part, _ in parts)

    def _exact(self, n_features: int) -> NDArray[np.intp]:
        """Return the inputs that reach features which must be exact."""
        reached, total = np.zeros(n_features, dtype=bool), AffineMap.diagonal(np.ones(n_features))
        for part, _ in self.parts:
            reached |= np.any(dense(total.matrix)[part.exact] != 0, axis=0)
            # where features may be mixed in any way, all of them reach on
            total = (
                AffineMap(np.ones((part.width(total.shape[0]), total.shape[0]))) if part.map is None else part.map
            ).after(total)
        return np.flatnonzero(reached)

    def width(self, n_features: int) -> int:
        return reduce(lambda width, part: part[0].width(width), self.parts, n_features)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        for part, transform in self.parts:
            lower, upper = part.bounds(X, lower, upper)
            X = transform(X)
        return lower, upper

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        for part, transform in self.parts:
            noise = part.linearised(X, noise)
            X = transform(X)
        return noise


class SideBySide(Effect):
    """Steps for groups of features, their outputs one beside the other.

    Parameters
    ----------
    parts : list of (Effect, ndarray of int)
        Effects, and the inputs of each.
    n_features : int
        How many inputs there are.
    """

    def __init__(self, parts: Sequence[tuple[Effect, NDArray[np.intp]]], n_features: int):
        self.parts = parts
        inputs = [AffineMap.selection(chosen, n_features) for _, chosen in parts]
        self.map = _all_or_none(
            [part.map for part, _ in parts],
            lambda maps: AffineMap.stacked([map.after(chosen) for map, chosen in zip(maps, inputs, strict=True)]),
        )
        self.exact = np.unique(np.concatenate([chosen[part.exact] for part, chosen in parts]))
        self.adds_errors = any(part.adds_errors for part, _ in parts)

    def width(self, n_features: int) -> int:
        return sum(part.width(len(chosen)) for part, chosen in self.parts)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        found = [
            part.bounds(_safe_indexing(X, chosen, axis=1), lower[:, chosen], upper[:, chosen])
            for part, chosen in self.parts
        ]
        low, high = zip(*found, strict=True)
        return np.hstack(low), np.hstack(high)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        used = np.concatenate([chosen for _, chosen in self.parts])
        is_apart = noise.values.ndim == 2 and len(np.unique(used)) == len(used)
        noise = noise if is_apart else RowNoise(noise.factors)
        found = [
            part.linearised(_safe_indexing(X, chosen, axis=1), noise.columns(chosen)) for part, chosen in self.parts
        ]
        return side_by_side(found, common=None if is_apart else noise.values.shape[2])


def _all_or_none(maps: list[AffineMap | None], make: Callable[[list[AffineMap]], AffineMap]) -> AffineMap | None:
    """Return what is made of maps, None where one is not known."""
    known = [map for map in maps if map is not None]
    return make(known) if len(known) == len(maps) else None
