"""What a step of a pipeline does to errors of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from holdfast._core.uncertainty import Array
from holdfast.pipeline.row_noise import RowNoise, side_by_side
from holdfast.pipeline.rows import in_form_of, known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense

State = TypeVar("State")

FAR = 4.5
"""How many standard deviations off noise is followed."""
NODES, SHARES = np.polynomial.legendre.leggauss(24)
"""Where, on the way from the lowest to the highest value that noise leaves in the domain of a step, the step is asked."""
EDGES = 12
"""How often an interval that holds the end of a domain is halved."""
HALVINGS = 60
"""How often an error is halved until a step is finite on both sides."""
NEAR = 2.0**-8
"""How far off a derivative is taken, as a share of the error that stays in the domain."""


FILLED_TWICE = (
    "the same missing entries are filled in several times, and noise would take their errors for independent ones. Fill them "
    "in once, before: make_uncertain_pipeline(SpreadImputer(), FeatureUnion(...), ...)."
)


class OutOfDomainError(ValueError):
    """A step that is not finite where the error of an entry takes it.

    Parameters
    ----------
    where : str
        Where it is not.
    cure : str
    row : int
    column : int or str
        Of what is given, a number or a name; of what the step takes, in words, where that is made of several.
    """

    def __init__(self, where: str, cure: str, row: int, column: Any):
        self.where, self.cure, self.row, self.column = where, cure, row, column
        entry = f"row {row}, column {column!r}" if isinstance(column, int) else f"row {row}, column {column}"
        super().__init__(f"is not finite {where}, for the entry in {entry}. {cure}")

    def before(self, maps: Sequence[AffineMap | None]) -> OutOfDomainError:
        """Return the same of the column, before these maps, that the step's one was made of."""
        column = self.column
        for map in reversed(maps):
            if not isinstance(column, int):
                break
            is_one = map is not None and map.is_monomial
            column = (
                int(map.sources[column]) if map is not None and is_one else f"{column} of those that the step takes"
            )
        return OutOfDomainError(self.where, self.cure, self.row, column)

    def named(self, X: Any) -> OutOfDomainError:
        """Return the same with the column's name, if the rows X have names."""
        if not isinstance(self.column, int) or not hasattr(X, "columns"):
            return self
        return OutOfDomainError(self.where, self.cure, self.row, repr(list(X.columns)[self.column]))


@contextmanager
def traced(maps: Sequence[AffineMap | None]) -> Iterator[None]:
    """Say of errors in which column, before these maps, they arose."""
    try:
        yield
    except OutOfDomainError as error:
        raise error.before(maps) from None


class Effect(ABC):
    """What a fitted step does to errors.

    A step that is no affine map says what becomes of intervals and of noise: to first order, and by `moments` if it knows
    better. A step of your own has a method
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

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs, with the mean squares that its errors have, as far as known; else as `linearised`.

        Mean squares are around what the step makes of X, where rows stay: what the mean of the outputs moves by counts as
        error.
        """
        return self.linearised(X, noise)


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

    Intervals are exact: their ends go to the ends. Noise is linearised by the slope of the secant over one standard deviation
    to each side. Its moments are integrals of the function itself, over what the noise leaves in its domain; where one
    standard deviation leaves it, by the derivative. Correlations stay.

    Parameters
    ----------
    function : callable
        From rows, in the form that X has, to as many values of the same features.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def _found(self, rows: Array, X: Any) -> Array:
        """Return the values of the function, some of which may not be finite."""
        # what is missing stays so, and counts as 0 afterwards as it does before
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
        for node, share in zip(NODES, SHARES, strict=True):
            z = 0.5 * (low + high + node * (high - low))
            density = share * np.exp(-0.5 * z**2)
            rise = self._found(values + z * reach, X) - here
            with np.errstate(all="ignore"):  # where one deviation is outside
                square, along, weight = square + density * rise**2, along + density * z * rise, weight + density
        slopes = np.sign(along) * _quotient(np.sqrt(square / weight), reach)
        return noise.times(slopes if np.all(is_inside) else np.where(is_inside, slopes, self._slopes(values, reach, X)))

    def _farthest(self, values: Array, reach: Array, X: Any) -> Array:
        """Return how many times `reach`, from 1 to `FAR`, stay in the domain."""
        outer = np.full(values.shape, FAR)
        inner = np.where(np.isfinite(self._found(values + FAR * reach, X)), FAR, 1.0)
        for _ in range(0 if np.all(inner == FAR) else EDGES):
            middle = 0.5 * (inner + outer)
            is_known = np.isfinite(self._found(values + middle * reach, X))
            inner, outer = np.where(is_known, middle, inner), np.where(is_known, outer, middle)
        return inner

    def _slopes(self, values: Array, reach: Array, X: Any) -> Array:
        """Return derivatives, from steps that are small beside those up to `reach` that stay in the domain."""
        for _ in range(HALVINGS):
            is_known = np.all([np.isfinite(self._found(values + sign * reach, X)) for sign in (1.0, -1.0)], axis=0)
            if np.all(is_known):
                break
            reach = np.where(is_known, reach, reach / 2)
        above, below = (
            self._at(values + sign * NEAR * reach, X, "close to it", "Leave such rows out.") for sign in (1.0, -1.0)
        )
        return _quotient(above - below, 2 * NEAR * reach)


class Products(Effect):
    r"""A step whose outputs are products of powers, :math:`z_k = \prod_j x_j^{p_{kj}}`.

    Intervals are exact for each product. Noise is linearised by the derivatives at X; its moments are those of the errors of
    each cause alone, exact for powers up to 2: products of errors are left out.

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

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        values, factors = known_numbers(X).astype(np.float64, copy=False), noise.factors
        here, odd, even = self._at(values), [], []
        # three nodes for each cause; what it does in both directions first, so that it stays the cause that it is
        for step in np.moveaxis(np.sqrt(3) * factors, 2, 0):
            above, below = self._at(values + step) - here, self._at(values - step) - here
            odd.append((above - below) / np.sqrt(12))
            even.append((above + below) / np.sqrt(12))
        return RowNoise(np.stack(odd + even, axis=2))

    def _at(self, values: Array) -> Array:
        return np.asarray(np.prod(values[:, None, :] ** self.powers, axis=2))


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
        return self._through(X, (lower, upper), lambda part, rows, ends: part.bounds(rows, *ends))

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._through(X, noise, lambda part, rows, noise: part.linearised(rows, noise))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._through(X, noise, lambda part, rows, noise: part.moments(rows, noise))

    def _through(self, X: Any, state: State, change: Callable[[Effect, Any, State], State]) -> State:
        for number, (part, transform) in enumerate(self.parts):
            with traced([one.map for one, _ in self.parts[:number]]):
                state = change(part, X, state)
            X = transform(X)
        return state


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
        self.inputs = [AffineMap.selection(chosen, n_features) for _, chosen in parts]
        self.map = _all_or_none(
            [part.map for part, _ in parts],
            lambda maps: AffineMap.stacked([map.after(chosen) for map, chosen in zip(maps, self.inputs, strict=True)]),
        )
        self.exact = np.unique(np.concatenate([chosen[part.exact] for part, chosen in parts]))
        self.adds_errors = any(part.adds_errors for part, _ in parts)

    def width(self, n_features: int) -> int:
        return sum(part.width(len(chosen)) for part, chosen in self.parts)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        found = self._each(X, lambda part, rows, chosen: part.bounds(rows, lower[:, chosen], upper[:, chosen]))
        low, high = zip(*found, strict=True)
        return np.hstack(low), np.hstack(high)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._noise(X, noise, lambda part, rows, own: part.linearised(rows, own))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._noise(X, noise, lambda part, rows, own: part.moments(rows, own))

    def _noise(self, X: Any, noise: RowNoise, change: Callable[[Effect, Any, RowNoise], RowNoise]) -> RowNoise:
        self._refuse_filled_twice(X)
        used = np.concatenate([chosen for _, chosen in self.parts])
        is_apart = noise.values.ndim == 2 and len(np.unique(used)) == len(used)
        noise = noise if is_apart else RowNoise(noise.factors)
        found = self._each(X, lambda part, rows, chosen: change(part, rows, noise.columns(chosen)))
        return side_by_side(found, common=None if is_apart else noise.values.shape[2])

    def _refuse_filled_twice(self, X: Any) -> None:
        """Raise where several steps add errors to one missing entry: they are one error, and would be taken for several."""
        filling = [chosen for part, chosen in self.parts if part.adds_errors]
        columns, times = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *filling]), return_counts=True)
        if np.any(np.isnan(dense(numbers_of(_safe_indexing(X, columns[times > 1], axis=1))))):
            raise ValueError(FILLED_TWICE)

    def _each(self, X: Any, change: Callable[[Effect, Any, NDArray[np.intp]], State]) -> list[State]:
        found = []
        for (part, chosen), map in zip(self.parts, self.inputs, strict=True):
            with traced([map]):
                found.append(change(part, _safe_indexing(X, chosen, axis=1), chosen))
        return found


def _quotient(rise: Array, run: Array) -> Array:
    """Return slopes, 0 where there is no run."""
    return np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)


def _all_or_none(maps: list[AffineMap | None], make: Callable[[list[AffineMap]], AffineMap]) -> AffineMap | None:
    """Return what is made of maps, None where one is not known."""
    known = [map for map in maps if map is not None]
    return make(known) if len(known) == len(maps) else None
