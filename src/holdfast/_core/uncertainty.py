"""What an uncertainty is: a set stated in the units of the features, before it is bound to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from holdfast._core.parameters import Parameters
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets


class UncertaintySet(Parameters, ABC):
    """What may be wrong with a row, stated in the units of the features and not yet tied to data."""

    metadata: tuple[str, ...] = ()
    """Names of the per-row arguments of ``fit`` that this set understands."""
    size_name = "sets"
    """What a multiple of it is a multiple of."""
    is_expectation = False
    """Whether the loss is averaged over it rather than maximised."""
    sum_of: ClassVar[Callable[[UncertaintySet, UncertaintySet], UncertaintySet]]
    """What ``+`` makes; the class of sums puts itself here."""
    is_size = False
    """Whether it says no more than one size."""
    is_of_rows = False
    """Whether its errors depend on the values of the rows by more than metadata can say."""
    has_size = True
    """Whether it says how far rows may be off, or would be a size that nobody stated."""
    is_of_scores = False
    """Whether it bounds each linear score with a probability, but no points: what is not linear in the row may leave it."""
    is_of_training = False
    """Whether it says what training is to be ready for, not what is wrong with rows that are asked about."""
    image_by_wrapping: ClassVar[Callable[..., tuple[UncertaintySet, dict[str, Any]]]]
    """The image of a set that has no other form; the class of images puts itself here."""

    def __add__(self, other: UncertaintySet) -> UncertaintySet:
        if not isinstance(other, UncertaintySet):
            return NotImplemented
        return UncertaintySet.sum_of(self, other)

    @property
    def open_metadata(self) -> tuple[str, ...]:
        """Those of `metadata` that the constructor has not settled already."""
        return self.metadata

    @property
    def row_factor(self) -> float:
        """The number that multiplies what `metadata` state of the rows."""
        return 1.0

    def as_stated(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        """Return the set for rows whose `metadata` is taken as it is, without the number that multiplies it at training."""
        return self

    def at_prediction(self) -> UncertaintySet:
        """Return what it says of rows that are asked about, of which nothing else is stated."""
        return self

    def learned(self, X: Any) -> UncertaintySet:
        """Return the set with numbers in the place of what it takes from the rows X, which may lack entries (NaN)."""
        return self

    def refuse_parts(self, call: str) -> None:
        """Raise where it takes numbers from all training rows at once, and `call` sees a part of them."""
        return

    def before(self, map: Any) -> UncertaintySet:
        """Return the set with what it says of images of rows under an affine map said in the units of the rows."""
        return self

    def middle(self, X: Any) -> Any:
        """Return where rows are on average; what `at` says of them is around there."""
        return X

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return a set and metadata that say of rows of zeros what these say of the rows X; deletions know of X only."""
        return self, dict(metadata)

    def at_rows(self, X: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return metadata that say of the rows X what these, as `as_errors` and `image` make them, say of rows of zeros."""
        return dict(metadata)

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return the set of errors A d of images A x + c of rows, with its metadata; `metadata` come from `as_errors`."""
        return UncertaintySet.image_by_wrapping(self, map, metadata)

    def as_shape(self) -> UncertaintySet:
        """Return the set for those who size it themselves: of size 1 where neither it nor the rows say how large it is."""
        return self

    @abstractmethod
    def times(self, factor: float) -> UncertaintySet:
        """Return the set of `factor` times the size."""

    def split(self, X: Any, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the part over which the loss is maximised and the part over which it is averaged, bound to the rows of X.

        One of them is None but for a sum of both kinds.
        """
        bound = self.at(X, metadata)
        return (None, bound) if self.is_expectation else (bound, None)

    @abstractmethod
    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        """Return the set bound to the rows of X, an array or a sparse matrix, after checking that its numbers make sense."""

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        """Return, one after the other, random errors of the rows of X, each of shape (n_samples, n_features).

        Noise is drawn from its own law. A set says what may happen, not how often: its points are drawn uniformly. A CSR array
        where the errors are those of few entries, else an array.
        """
        bound = self.at(X, metadata)
        return (bound.draw(rng, X.shape) for _ in range(n_draws))

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        """Return (set, metadata) pairs for 5 rows of 3 features, for tests that run on every set."""

    @classmethod
    def example_rows(cls) -> Array:
        """Return the rows that the examples speak of."""
        return np.zeros((5, 3))
