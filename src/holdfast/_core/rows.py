"""The protocol of data: passes over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


class Elementwise(Protocol):
    """The part of a loss that a pass needs."""

    is_rowwise: bool

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]: ...

    def compiled(self) -> Any | None: ...


class MarginPass(NamedTuple):
    """The results of one pass over the rows."""

    value: float
    """The weighted sum of the losses."""
    pull: Array
    """sum_i r_i x_i with r_i = weight * sign * slope in u, shape (n_features,)."""
    balance: float
    """sum_i r_i."""
    scale_slopes: Array
    """weight * slope in t, shape (n_samples,), or their sum, shape (), if t is common to all rows."""


class RowArrays(NamedTuple):
    """Rows as the arrays of a CSR matrix without duplicates; `indices` is empty if all entries are stored."""

    values: NDArray[np.floating]
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]

    @classmethod
    def of(cls, X: Any) -> RowArrays:
        """Return a dense or CSR matrix as arrays; views of it, unless its memory order or duplicates require a copy."""
        if not sparse.issparse(X):
            n, d = X.shape
            return cls(np.ascontiguousarray(X).reshape(-1), np.empty(0, dtype=np.uint32), d * np.arange(n + 1))
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        # a single type for each array, so that kernels are compiled once; unsigned indices are read faster
        indices = X.indices.view(np.uint32) if X.indices.dtype == np.int32 else X.indices.astype(np.uint32)
        return cls(X.data, indices, X.indptr.astype(np.int64))

    def square_norms(self) -> Array:
        """Return |x_i|^2 of each row."""
        n = len(self.indptr) - 1
        if self.indices.size == 0:
            X = self.values.reshape(n, -1)
            return np.einsum("ij,ij->i", X, X, dtype=np.float64)
        squares: Array = np.square(self.values, dtype=np.float64)
        return np.asarray(np.bincount(self._owners(), weights=squares, minlength=n), dtype=np.float64)

    def counts(self) -> NDArray[np.intp]:
        """Return the number of nonzeros of each row."""
        n = len(self.indptr) - 1
        if self.indices.size == 0:
            return np.count_nonzero(self.values.reshape(n, -1), axis=1)
        return np.bincount(self._owners()[self.values != 0], minlength=n)

    def _owners(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


class Span(NamedTuple):
    """Rows in coordinates of their span."""

    coordinates: Array
    """One row of at most n_samples numbers for each row."""
    lift: Callable[[Array], Array]
    """Maps weights of the coordinates to the shortest weights of the features with the same scores."""
    project: Callable[[Array], Array]
    """Maps weights of the features to weights of the coordinates with the same scores."""


Reaction = Callable[[slice, Array], Array]
"""Maps (slice of rows, their scores) to the factor of each of these rows in a sum."""


class Rows(ABC):
    """Rows of features that support passes, independently of where and in which format they are stored."""

    n_samples: int
    n_features: int
    n_fits: int = 1
    """The number of fits that these rows serve; with more fits, compiling pays off sooner."""

    @abstractmethod
    def dot(self, w: Array) -> Array:
        """Return X w in float64, shape (n_samples,), or one column for each column of a matrix w."""

    @abstractmethod
    def transpose_dot(self, r: Array) -> Array:
        """Return X' r in float64, shape (n_features,), or one column for each column of a matrix r."""

    @abstractmethod
    def pull(self, W: Array, react: Reaction) -> Array:
        """Return X'R, where R = react(rows, X[rows] W) is computed block by block, so that X is read once."""

    @abstractmethod
    def gram(self, weights: Array) -> Array:
        """Return sum_i weights_i x_i x_i', shape (n_features, n_features), for weights >= 0."""

    @abstractmethod
    def outer(self, columns: Array) -> Array:
        """Return X diag(columns) X', shape (n_samples, n_samples), for columns >= 0."""

    @abstractmethod
    def square_sums(self, weights: Array) -> Array:
        """Return sum_i weights_i x_ij**2, shape (n_features,)."""

    @cached_property
    def column_squares(self) -> Array:
        """The mean of x_ij**2 over the rows, shape (n_features,)."""
        return self.square_sums(np.full(self.n_samples, 1.0 / self.n_samples))

    @abstractmethod
    def normal_pass(self, weights: Array, v: Array, shift: float, extra: Array) -> tuple[Array, Array]:
        """Return m = X v + shift and X'(weights * m + extra), reading X once."""

    @property
    def quick(self) -> Rows:
        """The rows for products with relative errors up to 1e-6, in single precision if that is faster."""
        return self

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """The number of entries that a pass reads."""

    @abstractmethod
    def entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        """Return some columns of some rows as a float64 array of shape (len(rows), len(columns))."""

    def signed(self, signs: Array) -> Array | None:
        """Return rows times their labels, and these labels, as columns of one array of shape (n_features + 1, n_samples).

        None but for dense rows that are few.
        """
        return None

    @abstractmethod
    def take(self, rows: NDArray[np.intp] | slice) -> Rows:
        """Return some of the rows."""

    def arrays(self) -> RowArrays:
        """Return the rows as arrays, for solvers that visit them one by one."""
        raise NotImplementedError(f"{type(self).__name__} cannot be visited row by row.")

    def offset(self) -> Array | None:
        """Return a point to subtract from the rows, or None.

        It is near their mean, if they are so far from 0 that accuracy suffers; or it is a row that most entries of all
        rows are equal to.
        """
        return None

    def joined(self, others: Array) -> Rows:
        """Return these rows followed by `others`, shape (n_others, n_features)."""
        raise NotImplementedError(f"{type(self).__name__} cannot be joined.")

    def shifted(self, offset: Array) -> Rows:
        """Return the rows minus `offset`, without a copy unless the rows or the differences are sparse.

        For sparse rows, all entries of the columns with an offset other than 0 are stored.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be shifted.")

    @cached_property
    def span(self) -> Span | None:
        """The rows in coordinates of their span, None if that would cost too much."""
        return None

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield (slice, rows) from first to last, in blocks small enough to stay in cache."""

    @abstractmethod
    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield (slice, rows as a float64 array) from first to last."""

    @abstractmethod
    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float | Array
    ) -> MarginPass:
        """Return value and slopes of sum_i weights_i * loss(target_i - signs_i (x_i'w + b), t_i), reading X once."""
