"""What the data look like to everything else: passes over rows."""

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
    """What a pass needs to know of a loss."""

    is_rowwise: bool

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]: ...

    def compiled(self) -> Any | None: ...


class MarginPass(NamedTuple):
    """What one pass over the rows brings back."""

    value: float
    """Weighted sum of the losses."""
    pull: Array
    """sum_i r_i x_i with r = weight * sign * slope in u, shape (n_features,)."""
    balance: float
    """sum_i r_i."""
    scale_slopes: Array
    """weight * slope in t, shape (n_samples,), or their sum, shape (), where t is common."""


class RowArrays(NamedTuple):
    """Rows as the arrays of a CSR matrix without duplicates; where every entry is stored, `indices` is empty."""

    values: NDArray[np.floating]
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]

    @classmethod
    def of(cls, X: Any) -> RowArrays:
        """Return a matrix, dense or CSR, as arrays; they are views of it unless its order or its duplicates forbid."""
        if not sparse.issparse(X):
            n, d = X.shape
            return cls(np.ascontiguousarray(X).reshape(-1), np.empty(0, dtype=np.uint32), d * np.arange(n + 1))
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        # one type each, so that kernels are compiled once; without a sign indices are read faster
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
    """Rows in coordinates of the space they span."""

    coordinates: Array
    """One row of at most n_samples numbers for each row."""
    lift: Callable[[Array], Array]
    """From weights of the coordinates to the shortest weights of the features that give the same scores."""
    project: Callable[[Array], Array]
    """From weights of the features to those of the coordinates that give the same scores."""


Reaction = Callable[[slice, Array], Array]
"""From (which rows, their scores) to how strongly each of these rows is to pull."""


class Rows(ABC):
    """Rows of features that can be passed over; where they live and in what format is their own affair."""

    n_samples: int
    n_features: int
    n_fits: int = 1
    """How many fits these rows are to serve: what is compiled once repays the sooner."""

    @abstractmethod
    def dot(self, w: Array) -> Array:
        """Return X w in float64, shape (n_samples,), or one column for each column of a matrix w."""

    @abstractmethod
    def transpose_dot(self, r: Array) -> Array:
        """Return X' r in float64, shape (n_features,), or one column for each column of a matrix r."""

    @abstractmethod
    def pull(self, W: Array, react: Reaction) -> Array:
        """Return X'R, where R = react(rows, X[rows] W) is asked for block by block, so that X is read once."""

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
        """Return m = X v + shift and X'(weights * m + extra), X being read once."""

    @property
    def quick(self) -> Rows:
        """The rows for products that may be off by a share of 1e-6, in single precision where that is faster."""
        return self

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """How many numbers a pass reads."""

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
        """Return the rows as arrays, for those who visit them one by one."""
        raise NotImplementedError(f"{type(self).__name__} cannot be visited row by row.")

    def offset(self) -> Array | None:
        """Return a point that rows are better counted from, else None.

        Near their middle, if they lie so far from 0 that it costs accuracy; or one row from which most entries of all rows do
        not deviate.
        """
        return None

    def joined(self, others: Array) -> Rows:
        """Return these rows followed by others, shape (n_others, n_features)."""
        raise NotImplementedError(f"{type(self).__name__} cannot be joined.")

    def shifted(self, offset: Array) -> Rows:
        """Return the rows less `offset`: without a copy, unless they are sparse or what is left is.

        Of sparse rows all entries are stored where the offset is not 0.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be shifted.")

    @cached_property
    def span(self) -> Span | None:
        """The rows in coordinates of the space they span, None where that would cost too much."""
        return None

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield (which rows, those rows) from first to last, each block small enough to stay in cache."""

    @abstractmethod
    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield (which rows, those rows as a float64 array) from first to last."""

    @abstractmethod
    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float | Array
    ) -> MarginPass:
        """Return value and slopes of sum_i weights_i * loss(target_i - signs_i (x_i'w + b), t_i), X being read once."""
