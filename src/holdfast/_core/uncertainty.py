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
    """What `times` multiplies, in the words of a message."""
    is_expectation = False
    """Whether the loss is averaged over it rather than maximised."""
    sum_of: ClassVar[Callable[[UncertaintySet, UncertaintySet], UncertaintySet]]
    """What ``+`` makes; the class of sums registers itself here."""
    is_size = False
    """Whether it states one size and nothing else."""
    is_of_rows = False
    """Whether its errors depend on the values of the rows in a way that metadata cannot express."""
    has_size = True
    """Whether its own arguments say how large it is; if not, the size has to be stated by row."""
    is_of_scores = False
    """Whether it bounds each linear score with a probability, but no rows: it says nothing of scores that are not linear."""
    is_of_training = False
    """Whether it describes what training prepares for, not what is wrong with rows at prediction."""
    image_by_wrapping: ClassVar[Callable[..., tuple[UncertaintySet, dict[str, Any]]]]
    """The image of a set that has no other form; the class of images registers itself here."""

    def __add__(self, other: UncertaintySet) -> UncertaintySet:
        if not isinstance(other, UncertaintySet):
            return NotImplemented
        return UncertaintySet.sum_of(self, other)

    @property
    def open_metadata(self) -> tuple[str, ...]:
        """Those of `metadata` that the arguments of the constructor leave open."""
        return self.metadata

    @property
    def row_factor(self) -> float:
        """The number by which values given by row are multiplied."""
        return 1.0

    def as_stated(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        """Return the set that takes `metadata` as given, without the number that multiplies it in training."""
        return self

    def at_prediction(self) -> UncertaintySet:
        """Return the set for rows at prediction for which nothing is stated."""
        return self

    def learned_from(self, X: Any) -> UncertaintySet:
        """Return the set with the numbers that it estimates from the rows X, which may have missing entries (NaN)."""
        return self

    def refuse_parts(self, call: str) -> None:
        """Raise an error if the set needs all training rows at once; `call`, which is quoted, has some of them only."""
        return

    def in_units_before(self, map: Any) -> UncertaintySet:
        """Return the set for rows before an affine map, given that this one is stated for rows behind it."""
        return self

    def mean_rows(self, X: Any) -> Any:
        """Return the means of the noisy rows; the sets that `at` returns are around them."""
        return X

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return a set and metadata that describe the same errors without the rows X, as errors of rows of zeros.

        Sets that cannot do without the rows, such as deletions, return themselves.
        """
        return self, dict(metadata)

    def at_rows(self, X: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata for the rows X of errors that are described without them; undoes `as_errors`."""
        return dict(metadata)

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return the set of the errors A d of rows A x + c, and its metadata; `metadata` come from `as_errors`."""
        return UncertaintySet.image_by_wrapping(self, map, metadata)

    def as_shape(self) -> UncertaintySet:
        """Return the set for a caller that sets the size: of size 1 where neither its arguments nor the rows state one."""
        return self

    @abstractmethod
    def times(self, factor: float) -> UncertaintySet:
        """Return the set of `factor` times the size."""

    def split(self, X: Any, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the part over which the loss is maximised and the part over which it is averaged, bound to the rows of X.

        One of them is None but for a sum of both kinds.
        """
        sets = self.at(X, metadata)
        return (None, sets) if self.is_expectation else (sets, None)

    @abstractmethod
    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        """Return the set bound to the rows of X, an array or a sparse matrix, after checking that its numbers make sense."""

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        """Yield random errors of the rows of X, `n_draws` arrays of shape (n_samples, n_features).

        Noise is drawn from its own law. A set says what may happen, not how often: its points are drawn uniformly. A CSR array
        where the errors are those of few entries, else an array.
        """
        sets = self.at(X, metadata)
        return (sets.draw(rng, X.shape) for _ in range(n_draws))

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        """Return (set, metadata) pairs for 5 rows of 3 features, for tests that run on every set."""

    @classmethod
    def example_rows(cls) -> Array:
        """Return the rows of the examples."""
        return np.zeros((5, 3))
