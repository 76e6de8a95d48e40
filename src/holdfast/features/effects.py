"""What a step of a pipeline does to errors of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense
from holdfast._core.operations import Operation
from holdfast._core.row_forms import Array
from holdfast.features.gaps import Gaps
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap

FILLED_TWICE = (
    "the same missing entries are filled in several times, and noise would take their errors for independent ones. Fill them "
    "in once, before: make_uncertain_pipeline(SpreadImputer(), FeatureUnion(...), ...)."
)


UNLIKELY = (
    "a category is missing, or was never seen in training, and OneHotEncoder puts zeros there, as no training row had, or "
    "takes it for a rare one or the one that it dropped. How likely each category is it does not say: use CategoryEncoder, "
    "which puts the shares of the categories there."
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


class Lost(NamedTuple):
    """Missing entries whose place is taken by what a step fills in: what other steps made of their number has to go."""

    mask: NDArray[np.bool_]
    """Where, (n_samples, n_given)."""
    columns: NDArray[np.intp]
    """The input that each number takes the place of, (n_given,)."""
    gains: Array
    """What that input was multiplied by before, (n_given,)."""


class Corners(NamedTuple):
    """One-hot columns of a category that is missing or in doubt: the truth is one of their corners, whichever it is."""

    columns: NDArray[np.intp]
    """The columns, of those that a step gives."""
    is_open: NDArray[np.bool_]
    """Which categories may be the true one, (n_samples, n_columns); none in rows where nothing is in doubt."""
    given: Array
    """What is put there, (n_samples, n_columns): probabilities, or 0 where none are known."""
    are_likely: bool = True
    """Whether what is put there are probabilities, or 0."""
    may_be_none: bool = False
    """Whether the truth may be zeros in all columns too, which stand for a category that has none."""

    @property
    def unlikely(self) -> NDArray[np.bool_]:
        """The rows that are in doubt, and of which it is not said how likely the categories are."""
        return self.rows & ~(self.are_likely & np.any(self.given, axis=1))

    @property
    def rows(self) -> NDArray[np.bool_]:
        """The rows that are in doubt."""
        return np.any(self.is_open, axis=1)

    def take(self, which: Any) -> Corners:
        """Return the same of some rows."""
        return self._replace(is_open=self.is_open[which], given=self.given[which])

    def shifted(self, start: int) -> Corners:
        """Return the same where `start` other columns come before."""
        return self._replace(columns=self.columns + start)

    def falls(self, v: Array) -> Array:
        """Return by how much a score with weights v of the columns can fall, (n_samples,), >= 0."""
        # the score is linear in the columns, so it is least at one of the corners, a single category
        least = np.where(self.is_open, v, np.inf).min(axis=1, initial=0.0 if self.may_be_none else np.inf)
        return np.where(self.rows, np.maximum(self.given @ v - np.where(self.rows, least, 0.0), 0.0), 0.0)

    def variances(self, v: Array) -> Array:
        r"""Return :math:`v^\top (D(p) - p p^\top) v`, the variance of such a score by the probabilities given, (n_samples,)."""
        self.refuse_unknown()
        square = self.given @ np.square(v) - np.square(self.given @ v)
        return np.where(self.rows, np.maximum(square, 0.0), 0.0)

    def noise(self, n_features: int) -> RowNoise:
        """Return the same as noise of all columns of rows, of which these are some."""
        self.refuse_unknown()
        # with r = sqrt(p), of length 1, D(r) (I - r r') D(r) = D(p) - p p' is the covariance of one draw, and I - r r' is its
        # own square
        root = np.sqrt(np.where(self.is_open, self.given, 0.0))
        factor = np.zeros((len(root), n_features, root.shape[1]))
        factor[:, self.columns] = root[:, :, None] * (np.eye(root.shape[1]) - root[:, :, None] * root[:, None, :])
        return RowNoise.mixed(factor)

    def refuse_unknown(self) -> None:
        """Raise where it is not said how likely the categories are."""
        if np.any(self.unlikely):
            raise ValueError(UNLIKELY)


class AffineForm(NamedTuple):
    """A step, at certain rows, as an affine map of their numbers and of others that it puts beside these by itself."""

    map: AffineMap
    """Of `n_features` + `n_given` numbers."""
    given: Any = None
    """The others, (n_samples, n_given): what encoders make of categories, what imputers fill in. None where there are none."""
    below: Any = None
    """How far below these the true ones may lie, >= 0, (n_samples, n_given); None where they are exact."""
    above: Any = None
    std: Any = None
    """Their standard deviations where errors are averaged over; None where they are exact."""
    lost: Lost | None = None
    """Which of them stand for entries that are missing."""
    corners: tuple[Corners, ...] = ()
    """Which of them are those of a category that is in doubt: their errors are these, not `below`, `above` and `std`."""


class Effect(ABC):
    """What a fitted step does to rows and to their errors.

    A step that is no affine map says what becomes of intervals and of noise: to first order, and by `moments` if it knows
    better. A step of your own has a method ``uncertainty_effect(n_features)`` that returns an effect, or is taught by
    :func:`teach_step`.
    """

    map: AffineMap | None = None
    """The affine map that the step is of numbers that are not missing; None for others."""
    exact: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    """Features that must have no error, such as categories."""
    knows_spread = True
    """Whether it says how uncertain what it fills in is."""
    adds_errors = False
    """Whether its outputs have errors even where its inputs have none, besides those that `map` makes of the inputs'."""

    def at_rows(self, rows: Callable[[], Any]) -> Effect:
        """Return what the step does to these rows, which may be simpler than what it does to others."""
        return self

    def corners(self, X: Any) -> Sequence[Corners]:
        """Return which outputs are one-hot columns of categories that are missing or in doubt; `bounds` hold these too."""
        return ()

    def gaps(self, given: Gaps) -> Gaps:
        """Return what is known of the outputs' missing categories; raise where they are filled in as what they are not."""
        return given.through(self.map, self.width(len(given.sources)))

    @property
    def looks_at_rows(self) -> bool:
        """Whether its `affine_form` depends on the rows."""
        return self.adds_errors or len(self.exact) > 0

    def width(self, n_features: int) -> int:
        """Return how many outputs there are for so many inputs."""
        return n_features if self.map is None else self.map.shape[0]

    def affine_form(self, X: Any) -> AffineForm | None:
        """Return the step as an affine map of the numbers of rows X and of what it puts there by itself; None if it is none."""
        return None if self.map is None else AffineForm(self.map)

    @abstractmethod
    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return intervals that the step's outputs lie in when its inputs, whose values are X, lie in [lower, upper]."""

    @abstractmethod
    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs, to first order, when the inputs, whose values are X, have `noise`.

        Causes of the inputs' errors stay the first ones, in their order: other steps may have them too.
        """

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs, with the mean squares that its errors have, as far as known; else as `linearised`.

        Mean squares are around what the step makes of X; :meth:`expected` may move rows elsewhere.
        """
        return self.linearised(X, noise)

    def expected(self, X: Any, Z: Any, noise: RowNoise) -> tuple[Any, RowNoise]:
        """Return the rows that outputs are taken to be around, Z by default, and their noise around these.

        Z is what the step makes of X. A step that knows where noise moves the mean of its outputs returns that in its place.
        """
        return Z, self.moments(X, noise)


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

    @classmethod
    def computed(cls, n_features: int, *operations: Operation) -> Affine:
        """Return the step that is computed by these operations, which certificates follow rounding by rounding."""
        found = cls.__new__(cls)
        found.map = AffineMap.computed(n_features, *operations)
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        # the image of a box reaches sum_j |A_kj| h_j to either side of its middle, for each output exactly
        middle, reach = self.map(0.5 * (lower + upper)), AffineMap(abs(self.map.matrix)).moved(0.5 * (upper - lower))
        return middle - reach, middle + reach

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.map)


class Exact(Effect):
    """A step whose inputs must be exact, such as categories; its outputs then are.

    Parameters
    ----------
    n_in, n_out : int
        How many features it takes and gives.
    transform : callable
        The step's.
    open_groups : sequence of ndarray of int, default=()
        One-hot columns of each input that are NaN where it is missing.
    """

    map: AffineMap

    def __init__(
        self, n_in: int, n_out: int, transform: Callable[[Any], Any], open_groups: Sequence[NDArray[np.intp]] = ()
    ):
        self.map, self.exact, self.transform = AffineMap(sparse.csr_array((n_out, n_in))), np.arange(n_in), transform
        self.open_groups = open_groups

    def gaps(self, given: Gaps) -> Gaps:
        return given.encoded(self.open_groups, self.map.shape[0])

    def affine_form(self, X: Any) -> AffineForm:
        n_out, n_in = self.map.shape
        return AffineForm(AffineMap.selection(n_in + np.arange(n_out), n_in + n_out), known_numbers(self.transform(X)))

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
    groups : sequence of ndarray of int, default=()
        Outputs that are one-hot columns of a category, and are filled in with the shares of the categories.
    states_spread : bool, default=True
        Whether what it fills in is said to be uncertain, rather than to count as exact.
    """

    map: AffineMap
    adds_errors = True

    def __init__(
        self,
        map: AffineMap,
        transform: Callable[[Any], Any],
        lower: Array,
        upper: Array,
        std: Array,
        groups: Sequence[NDArray[np.intp]] = (),
        *,
        states_spread: bool = True,
    ):
        self.map, self.transform, self.lower, self.upper, self.std = map, transform, lower, upper, std
        self.groups, self.states_spread = groups, states_spread
        self.knows_spread = not np.any(np.isnan(std))

    def gaps(self, given: Gaps) -> Gaps:
        if self.states_spread:
            return given.filled(self.map, self.groups)
        return given.through(self.map, self.map.shape[0])._replace(one_hot=())

    def affine_form(self, X: Any) -> AffineForm:
        is_filled, n_out = self._is_filled(X), self.map.shape[0]
        is_flag = np.diff(sparse.csr_array(self.map.matrix).indptr) == 0
        if not np.any(is_filled) and not np.any(is_flag):
            return AffineForm(self.map)
        found = dense(known_numbers(self.transform(X)))
        given = np.where(is_filled | is_flag, found, 0.0)
        # where a fill has no spread that is known, it stays what it is
        below, above, std = (
            np.where(is_filled & ~np.isnan(spread), np.maximum(spread, 0.0), 0.0)
            for spread in (found - self.lower, self.upper - found, np.broadcast_to(self.std, found.shape))
        )
        corners = self.corners(X)
        for one in corners:
            for errors in (below, above, std):
                errors[:, one.columns] = np.where(one.rows[:, None], 0.0, errors[:, one.columns])
        map = AffineMap(sparse.hstack([sparse.csr_array(self.map.matrix), sparse.eye_array(n_out)]))
        lost = Lost(is_filled, self.map.sources, np.ones(n_out))
        return AffineForm(map, given, below, above, std, lost, tuple(corners))

    def corners(self, X: Any) -> Sequence[Corners]:
        if not self.groups:
            return ()
        is_filled, found = self._is_filled(X), dense(known_numbers(self.transform(X)))
        gone = [(group, np.all(is_filled[:, group], axis=1)) for group in self.groups]
        return [
            Corners(group, np.broadcast_to(rows[:, None], (len(rows), len(group))), found[:, group])
            for group, rows in gone
            if np.any(rows)
        ]

    def _is_filled(self, X: Any) -> NDArray[np.bool_]:
        return np.asarray(self.map.moved(1.0 * np.isnan(dense(numbers_of(X)))) > 0)

    def missing(self, X: Any) -> NDArray[np.bool_]:
        """Return which outputs are filled in, whose spread must be known."""
        found = self._is_filled(X)
        if np.any(found & np.isnan(self.std)):
            raise ValueError(
                "does not say how uncertain the entries are that it fills in. Use SpreadImputer, which gives them the spread "
                "of their column, or ConditionalImputer, which asks the other columns."
            )
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        missing, found = self.missing(X), numbers_of(self.transform(X))
        values = known_numbers(X)
        below, above = found + self.map.moved(lower - values), found + self.map.moved(upper - values)
        low = np.where(missing, np.minimum(self.lower, below), below)
        high = np.where(missing, np.maximum(self.upper, above), above)
        for one in self.corners(X):
            low[:, one.columns] = np.where(one.is_open, 0.0, low[:, one.columns])
            high[:, one.columns] = np.where(one.is_open, 1.0, high[:, one.columns])
        return low, high

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        own = np.where(self.missing(X), self.std, 0.0)
        noise = noise.through(self.map)
        for one in self.corners(X):
            own[:, one.columns] = np.where(one.rows[:, None], 0.0, own[:, one.columns])
            noise = noise.plus(one.noise(own.shape[1]))
        return noise.plus(RowNoise(own))
