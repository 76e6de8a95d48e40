"""Errors of several kinds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.ball import Ball
from holdfast.uncertainty.box import Box
from holdfast.uncertainty.checks import stated
from holdfast.uncertainty.ellipsoid import Ellipsoid
from holdfast.uncertainty.interval_box import IntervalBox
from holdfast.uncertainty.minkowski import sum_of


class SetSum(UncertaintySet):
    """The sum of two sets, ``first + second``: errors of both kinds at once. Their supports add up.

    Parameters
    ----------
    first, second : UncertaintySet
        Sets, or sums of sets. Metadata of ``fit`` goes to the summand that takes it; a `Box` with its own half-widths
        takes none. So ``Box(half_widths=s) + Box()`` with a sparse ``X_std`` states dense uncertainty without a dense
        array. At most one summand may be a noise over which the loss is averaged (`GaussianNoise`); the others are then
        a worst case around each value of the noise.

    Examples
    --------
    >>> both = Ball(0.5) + Box(0.1)
    >>> both
    Ball(radius=0.5) + Box(radius=0.1)
    >>> round(float(both.at(np.zeros((4, 2)), {}).support(np.array([3.0, -4.0]))), 6)
    3.2
    >>> wider = Box(half_widths=[0.1, 0.2]) + Box()  # common half-widths, plus those in X_std
    >>> wider.at(np.zeros((2, 2)), {"X_std": sparse.csr_array([[0.0, 0.0], [0.5, 0.0]])}).support(np.array([3.0, -4.0]))
    array([1.1, 2.6])
    >>> both.set_params(first__radius=0.7)
    Ball(radius=0.7) + Box(radius=0.1)
    """

    def __init__(self, first: UncertaintySet, second: UncertaintySet):
        self.first = first
        self.second = second

    @property
    def metadata(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the metadata that the summands take."""
        return tuple(dict.fromkeys((*self.first.open_metadata, *self.second.open_metadata)))

    @property
    def is_of_rows(self) -> bool:  # type: ignore[override]
        """Whether `is_of_rows` holds for a summand."""
        return self.first.is_of_rows or self.second.is_of_rows

    @property
    def is_of_training(self) -> bool:  # type: ignore[override]
        """Whether `is_of_training` holds for a summand."""
        return self.first.is_of_training or self.second.is_of_training

    @property
    def has_size(self) -> bool:  # type: ignore[override]
        """Whether both summands state their size."""
        return self.first.has_size and self.second.has_size

    @property
    def is_of_scores(self) -> bool:  # type: ignore[override]
        """Whether `is_of_scores` holds for a summand."""
        return self.first.is_of_scores or self.second.is_of_scores

    @property
    def row_factor(self) -> float:
        return max((part.row_factor for part in (self.first, self.second) if part.open_metadata), default=1.0)

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        worst, cloud = self.split(X, metadata)
        if worst is None or cloud is not None:
            raise ValueError(
                f"{self!r}: the loss is maximised over one summand and averaged over the other; no one set does both. "
                "Use a classifier that takes such a sum."
            )
        return worst

    def split(self, X: Any, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        pairs = [summand.split(X, own) for summand, own in self._summands(metadata)]
        worst = [sets for sets, _ in pairs if sets is not None]
        clouds = [sets for _, sets in pairs if sets is not None]
        if len(clouds) > 1:
            raise ValueError(f"{self!r}: two noises. State them as one, whose covariance is the sum of theirs.")
        # in a sum each part may use any share of its budget, also none; but a part without the origin must use all of
        # it
        if len(worst) > 1 and not all(sets.has_origin for sets in worst):
            raise ValueError(
                f"{self!r}: rows that have to change, as with FeatureDeletion(exactly=True), are not known in sums. Use "
                "exactly=False, or that set alone."
            )
        return (sum_of(worst) if worst else None), next(iter(clouds), None)

    def learned_from(self, X: Any) -> SetSum:
        return SetSum(self.first.learned_from(X), self.second.learned_from(X))

    def at_prediction(self) -> UncertaintySet:
        return SetSum(self.first.at_prediction(), self.second.at_prediction())

    def mean_rows(self, X: Any) -> Any:
        if self.is_of_training and self.first.is_of_rows and self.second.is_of_rows:
            raise ValueError(
                f"{self!r}: one summand moves the rows, and the other one depends on where they are. State one."
            )
        return self.second.mean_rows(self.first.mean_rows(X))

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        parts = (summand.draws(X, own, rng, n_draws) for summand, own in self._summands(metadata))
        return map(sum, zip(*parts, strict=True))

    def _summands(self, metadata: Mapping[str, Any]) -> list[tuple[UncertaintySet, dict[str, Any]]]:
        """Return the summands, each with the metadata that it takes."""
        own, summands = stated(self, metadata), (self.first, self.second)
        for name in own:
            if all(name in summand.open_metadata for summand in summands):
                raise ValueError(
                    f"{self!r}: both summands take {name}. Let one of them be stated by its constructor's arguments alone, as "
                    "Box(half_widths=...) or a set that does not take it."
                )
        return [
            (summand, {name: value for name, value in own.items() if name in summand.open_metadata})
            for summand in summands
        ]

    def as_stated(self, metadata: Mapping[str, Any]) -> SetSum:
        return SetSum(
            *(
                part.as_stated(metadata) if any(name in part.open_metadata for name in metadata) else part
                for part in (self.first, self.second)
            )
        )

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return self._each(metadata, lambda part, own: part.as_errors(X, own))

    def at_rows(self, X: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return self._each(metadata, lambda part, own: (part, part.at_rows(X, own)))[1]

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return self._each(metadata, lambda part, own: part.image(map, own))

    def _each(
        self,
        metadata: Mapping[str, Any],
        change: Callable[[UncertaintySet, dict[str, Any]], tuple[UncertaintySet, dict[str, Any]]],
    ) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return the sum of the changed summands, and their metadata; each summand is given the metadata it takes."""
        found = [
            change(part, {name: value for name, value in metadata.items() if name in part.open_metadata})
            for part in (self.first, self.second)
        ]
        (first, ours), (second, others) = found
        if both := set(ours) & set(others):
            raise ValueError(
                f"{self!r}: both summands would be stated by {min(both)}, but only one of them may take it."
            )
        return SetSum(first, second), ours | others

    def as_shape(self) -> SetSum:
        return SetSum(self.first.as_shape(), self.second.as_shape())

    def times(self, factor: float) -> SetSum:
        return SetSum(self.first.times(factor), self.second.times(factor))

    def __repr__(self) -> str:
        return f"{self.first!r} + {self.second!r}"

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        return [
            (cls(Ball(0.4), Box(0.2)), {}),
            (cls(Ball(0.3, 1), Box(0.2)), {"X_std": rng.uniform(0.1, 1.0, size=(5, 3))}),
            (cls(Box(0.5, half_widths=[0.3, 0.6, 0.1]), Box(0.4)), {"X_std": sparse.csr_array(np.eye(5, 3, -1))}),
            (
                cls(cls(Ball(0.1), IntervalBox(-0.1, 0.3)), Ellipsoid(0.2)),
                {"X_std": rng.uniform(0.1, 1.0, size=(5, 3))},
            ),
        ]


UncertaintySet.sum_of = SetSum
