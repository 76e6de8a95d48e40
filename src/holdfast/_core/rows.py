"""What the data look like to everything else: passes over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

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


class Span(NamedTuple):
    """Rows in coordinates of the space they span."""

    coordinates: Array
    """One row of at most n_samples numbers for each row."""
    lift: Callable[[Array], Array]
    """From weights of the coordinates to the shortest weights of the features that give the same scores."""


class Rows(ABC):
    """Rows of features that can be passed over; where they live and in what format is their own affair."""

    n_samples: int
    n_features: int

    @abstractmethod
    def dot(self, w: Array) -> Array:
        """Return X w in float64, shape (n_samples,)."""

    @abstractmethod
    def transpose_dot(self, r: Array) -> Array:
        """Return X' r in float64, shape (n_features,)."""

    @abstractmethod
    def gram(self, weights: Array) -> Array:
        """Return sum_i weights_i x_i x_i', shape (n_features, n_features), for weights >= 0."""

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
    @abstractmethod
    def n_entries(self) -> int:
        """How many numbers a pass reads."""

    @abstractmethod
    def entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        """Return some columns of some rows as a float64 array of shape (len(rows), len(columns))."""

    @abstractmethod
    def take(self, rows: NDArray[np.intp] | slice) -> Rows:
        """Return some of the rows."""

    def offset(self) -> Array | None:
        """Return a point near the middle of the rows if they lie so far from 0 that it costs accuracy, else None."""
        return None

    def shifted(self, offset: Array) -> Rows:
        """Return the rows less `offset`, which is subtracted block by block and never from all of them at once."""
        raise NotImplementedError(f"{type(self).__name__} cannot be shifted.")

    def span(self) -> Span | None:
        """Return the rows in coordinates of the space they span, None where that would cost too much."""
        return None

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield (which rows, those rows) from first to last, each block small enough to stay in cache."""

    @abstractmethod
    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield (which rows, those rows as a float64 array) from first to last."""

    @abstractmethod
    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float
    ) -> MarginPass:
        """Return value and slopes of sum_i weights_i * loss(target - signs_i (x_i'w + b), t_i), X being read once."""
