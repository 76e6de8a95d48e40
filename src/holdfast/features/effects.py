"""The effects of pipeline steps on rows and their errors."""

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
    "a category is missing, or was never seen in training. OneHotEncoder encodes it as zeros, which no training row "
    "had, or like a rare or the dropped category, and does not state how likely each category is: use CategoryEncoder, "
    "which encodes it by the shares of the categories."
)


class OutOfDomainError(ValueError):
    """Raised if the output of a step is not finite at a value that the error of an entry allows.

    Parameters
    ----------
    where : str
        The place where the output is not finite, in words.
    cure : str
    row : int
    column : int or str
        The column of the given rows, by index or name; or, in words, the column that the step takes if it is made of
        several.
    """

    def __init__(self, where: str, cure: str, row: int, column: Any):
        self.where, self.cure, self.row, self.column = where, cure, row, column
        entry = f"row {row}, column {column!r}" if isinstance(column, int) else f"row {row}, column {column}"
        super().__init__(f"is not finite {where}, for the entry in {entry}. {cure}")

    def before(self, maps: Sequence[AffineMap | None]) -> OutOfDomainError:
        """Return the error with its column traced back through `maps`, which are applied before the step."""
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
        """Return the error with the name of the column, if the rows X have names."""
        if not isinstance(self.column, int) or not hasattr(X, "columns"):
            return self
        return OutOfDomainError(self.where, self.cure, self.row, repr(list(X.columns)[self.column]))


@contextmanager
def traced(maps: Sequence[AffineMap | None]) -> Iterator[None]:
    """Trace the columns of OutOfDomainErrors back through `maps`, which are applied before the step."""
    try:
        yield
    except OutOfDomainError as error:
        raise error.before(maps) from None


class Lost(NamedTuple):
    """Missing entries that a step fills in; the numbers that stood for them in earlier steps must be removed."""

    mask: NDArray[np.bool_]
    """True at missing entries, shape (n_samples, n_given)."""
    columns: NDArray[np.intp]
    """The input that each extra number replaces, shape (n_given,)."""
    gains: Array
    """The factor that input has in the output, shape (n_given,)."""


class Corners(NamedTuple):
    """One-hot columns of a category missing or in doubt: the true value is one of the corners, a unit vector."""

    columns: NDArray[np.intp]
    """The indices of the columns among the outputs of the step."""
    is_open: NDArray[np.bool_]
    """Which categories may be the true one, shape (n_samples, n_columns); none in rows without doubt."""
    given: Array
    """The values put there, shape (n_samples, n_columns): probabilities, or 0 if they are not known."""
    are_likely: bool = True
    """Whether `given` holds probabilities, or 0; otherwise it is some other code, such as that of a rare category."""
    may_be_none: bool = False
    """Whether the true value may also be 0 in all columns, for a category without a column."""

    @property
    def unlikely(self) -> NDArray[np.bool_]:
        """The rows in doubt for which the probabilities of the categories are not known."""
        return self.rows & ~(self.are_likely & np.any(self.given, axis=1))

    @property
    def rows(self) -> NDArray[np.bool_]:
        """The rows in doubt."""
        return np.any(self.is_open, axis=1)

    def take(self, which: Any) -> Corners:
        """Return the corners of some rows."""
        return self._replace(is_open=self.is_open[which], given=self.given[which])

    def shifted(self, start: int) -> Corners:
        """Return the corners with `start` added to the column indices."""
        return self._replace(columns=self.columns + start)

    def falls(self, v: Array) -> Array:
        """Return the largest fall (>= 0) of a score with weights v of the columns, shape (n_samples,)."""
        # the score is linear in the columns, so it is least at a corner
        least = np.where(self.is_open, v, np.inf).min(axis=1, initial=0.0 if self.may_be_none else np.inf)
        return np.where(self.rows, np.maximum(self.given @ v - np.where(self.rows, least, 0.0), 0.0), 0.0)

    def variances(self, v: Array) -> Array:
        r"""Return :math:`v^\top (D(p) - p p^\top) v`, the variance of the score under the given probabilities p."""
        self.refuse_unknown()
        square = self.given @ np.square(v) - np.square(self.given @ v)
        return np.where(self.rows, np.maximum(square, 0.0), 0.0)

    def noise(self, n_features: int) -> RowNoise:
        """Return the uncertainty of the category as noise of rows with `n_features` columns."""
        self.refuse_unknown()
        # with the unit vector r = sqrt(p), the covariance of a draw is D(p) - p p' = D(r) (I - r r') D(r), and I - r r'
        # is a projection, its own square
        root = np.sqrt(np.where(self.is_open, self.given, 0.0))
        factor = np.zeros((len(root), n_features, root.shape[1]))
        factor[:, self.columns] = root[:, :, None] * (np.eye(root.shape[1]) - root[:, :, None] * root[:, None, :])
        return RowNoise.mixed(factor)

    def refuse_unknown(self) -> None:
        """Raise ValueError if the probabilities of the categories are not known for some row in doubt."""
        if np.any(self.unlikely):
            raise ValueError(UNLIKELY)


class AffineForm(NamedTuple):
    """A step, at given rows, as an affine map of their numbers and of extra numbers that the step appends to them."""

    map: AffineMap
    """The map, of `n_features` + `n_given` numbers."""
    given: Any = None
    """The extra numbers, (n_samples, n_given), such as encoded categories or filled entries; None without any."""
    below: Any = None
    """How far the true numbers may lie below `given` (and `above` it), >= 0, (n_samples, n_given); None if exact."""
    above: Any = None
    std: Any = None
    """The standard deviations of `given`, used if losses are averaged over errors; None if exact."""
    lost: Lost | None = None
    """The extra numbers that stand for missing entries."""
    corners: tuple[Corners, ...] = ()
    """The extra numbers of categories in doubt; corners replace `below`, `above` and `std` for these."""


class Effect(ABC):
    """The effect of a fitted step on rows and their errors.

    For a step that is not affine, `bounds` carries intervals and `linearised` carries noise to first order; `moments`
    may be more accurate. A step of your own has a method ``uncertainty_effect(n_features)`` that returns an effect, or
    is registered by :func:`teach_step`.
    """

    map: AffineMap | None = None
    """The step as an affine map of rows without missing entries; None if it is not affine."""
    exact: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    """The inputs that must have no error, such as categories."""
    knows_spread = True
    """Whether the step states how uncertain the entries are that it fills in."""
    adds_errors = False
    """Whether the step adds errors of its own, so that outputs may have errors even if the inputs have none."""

    def at_rows(self, rows: Callable[[], Any]) -> Effect:
        """Return the effect of the step on these rows, which may be simpler than on others."""
        return self

    def corners(self, X: Any) -> Sequence[Corners]:
        """Return the one-hot columns among the outputs of categories missing or in doubt; `bounds` must cover them."""
        return ()

    def gaps(self, given: Gaps) -> Gaps:
        """Return the gaps of the outputs. Raises ValueError if a missing category is filled in as something else."""
        return given.through(self.map, self.width(len(given.sources)))

    @property
    def looks_at_rows(self) -> bool:
        """Whether `affine_form` depends on the rows."""
        return self.adds_errors or len(self.exact) > 0

    def width(self, n_features: int) -> int:
        """Return the number of outputs for `n_features` inputs."""
        return n_features if self.map is None else self.map.shape[0]

    def affine_form(self, X: Any) -> AffineForm | None:
        """Return the step at rows X as an affine map of their numbers and of extra ones; None if it is not affine."""
        return None if self.map is None else AffineForm(self.map)

    @abstractmethod
    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return intervals that contain the outputs for all inputs in [lower, upper], around the values X."""

    @abstractmethod
    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs, to first order, if the inputs are X with `noise`.

        The causes of the inputs' errors must come first in the result, in the same order, as other steps may share
        them.
        """

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        """Return the noise of the outputs with the mean squares of their errors, if known; by default as `linearised`.

        Mean squares are around the step's outputs at X; :meth:`expected` may move the rows elsewhere.
        """
        return self.linearised(X, noise)

    def expected(self, X: Any, Z: Any, noise: RowNoise) -> tuple[Any, RowNoise]:
        """Return the rows that the outputs are centred at, Z by default, and their noise around these rows.

        Z is the output of the step at X. A step that knows the mean of its outputs under the noise returns that mean
        instead.
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
        """Return the step that applies the operations in turn; certificates account for the rounding of each."""
        found = cls.__new__(cls)
        found.map = AffineMap.computed(n_features, *operations)
        return found

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        # each output of a box with half-widths h reaches exactly sum_j |A_kj| h_j to either side of its midpoint
        middle, reach = self.map(0.5 * (lower + upper)), AffineMap(abs(self.map.matrix)).moved(0.5 * (upper - lower))
        return middle - reach, middle + reach

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return noise.through(self.map)


class Exact(Effect):
    """A step whose inputs must be exact, such as categories; its outputs are then exact too.

    Parameters
    ----------
    n_in, n_out : int
        The numbers of inputs and outputs.
    transform : callable
        The step's `transform`.
    open_groups : sequence of ndarray of int, default=()
        The one-hot columns of each input that are NaN if the input is missing.
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
    """A step that keeps features and fills in missing entries, whose values have errors of their own.

    Parameters
    ----------
    map : AffineMap
        The selection of the features it keeps; 0 for outputs that indicate missing entries.
    transform : callable
        The step's `transform`.
    lower, upper, std : ndarray of shape (n_out,)
        The interval of a filled entry, and its standard deviation; nan if unknown.
    groups : sequence of ndarray of int, default=()
        The outputs that are one-hot columns of a category, filled in with the shares of the categories.
    states_spread : bool, default=True
        Whether filled entries count as uncertain, rather than as exact.
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
        # a fill without a known spread counts as exact
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
        """Return which outputs are filled in. Raises ValueError if the spread of one is unknown."""
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
