"""The protocol of uncertainty sets, stated in the units of the features, before they are bound to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from holdfast._core.parameters import Parameters
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets


class UncertaintySet(Parameters, ABC):
    """The possible errors of a row, stated in the units of the features and not yet bound to data."""

    metadata: tuple[str, ...] = ()
    """The names of the arguments by row of ``fit`` that this set takes."""
    size_name = "sets"
    """The name, in messages, of the size that `times` multiplies."""
    is_expectation = False
    """Whether the loss is averaged over this set (a noise) rather than maximised."""
    sum_of: ClassVar[Callable[[UncertaintySet, UncertaintySet], UncertaintySet]]
    """The function behind ``+``; the class of sums registers itself here."""
    is_size = False
    """Whether the set states a single size and nothing else."""
    is_of_rows = False
    """Whether the errors depend on the values of the rows in a way that metadata cannot express."""
    has_size = True
    """Whether the arguments of the set state its size; if not, the size must be stated by row."""
    is_of_scores = False
    """Whether the set bounds linear scores with a probability, instead of rows, so that scores must be linear."""
    is_of_training = False
    """Whether the set describes errors that training prepares for, not errors of rows at prediction."""
    image_by_wrapping: ClassVar[Callable[..., tuple[UncertaintySet, dict[str, Any]]]]
    """Returns the image of a set without a special form; the class of images registers itself here."""

    def __add__(self, other: UncertaintySet) -> UncertaintySet:
        if not isinstance(other, UncertaintySet):
            return NotImplemented
        return UncertaintySet.sum_of(self, other)

    @property
    def open_metadata(self) -> tuple[str, ...]:
        """The names in `metadata` that the arguments of the constructor leave open."""
        return self.metadata

    @property
    def row_factor(self) -> float:
        """The factor that multiplies values given by row."""
        return 1.0

    def as_stated(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        """Return the set that takes `metadata` as given, without the factor that multiplies them in training."""
        return self

    def at_prediction(self) -> UncertaintySet:
        """Return the set for rows at prediction without metadata."""
        return self

    def learned_from(self, X: Any) -> UncertaintySet:
        """Return the set with all numbers that it estimates from the rows X, which may have missing entries (NaN)."""
        return self

    def refuse_parts(self, call: str) -> None:
        """Raise ValueError if the set needs all training rows at once; `call`, which sees only some, is quoted."""
        return

    def in_units_before(self, map: Any) -> UncertaintySet:
        """Return the set for rows before an affine map, given this one for rows after it."""
        return self

    def mean_rows(self, X: Any) -> Any:
        """Return the means of the noisy rows; the sets returned by `at` are around these means."""
        return X

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return a set and metadata that describe the same errors independently of X, as errors of rows of zeros.

        Sets that depend on the rows, such as deletions, return themselves.
        """
        return self, dict(metadata)

    def at_rows(self, X: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata, for the rows X, of errors described independently of them; this undoes `as_errors`."""
        return dict(metadata)

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return the set of the errors A d of rows A x + c, and its metadata; `metadata` are those of `as_errors`."""
        return UncertaintySet.image_by_wrapping(self, map, metadata)

    def as_shape(self) -> UncertaintySet:
        """Return the set for a caller that sets its size: it has size 1 if neither arguments nor rows state a size."""
        return self

    @abstractmethod
    def times(self, factor: float) -> UncertaintySet:
        """Return the set with its size multiplied by `factor`."""

    def split(self, X: Any, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the set to maximise the loss over and the one to average it over, bound to the rows of X.

        One of them is None, except for a sum of both kinds.
        """
        sets = self.at(X, metadata)
        return (None, sets) if self.is_expectation else (sets, None)

    @abstractmethod
    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        """Return the set bound to the rows of X, an array or a sparse matrix, after checking its numbers."""

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        """Yield random errors of the rows of X, `n_draws` arrays of shape (n_samples, n_features).

        Noise is drawn from its distribution. A set states which errors are possible, not how often, so its points are
        drawn uniformly. The result is a CSR array if few entries have errors, else an array.
        """
        sets = self.at(X, metadata)
        return (sets.draw(rng, X.shape) for _ in range(n_draws))

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        """Return (set, metadata) pairs for 5 rows of 3 features, for tests that run on all sets."""

    @classmethod
    def example_rows(cls) -> Array:
        """Return the rows of the examples."""
        return np.zeros((5, 3))
