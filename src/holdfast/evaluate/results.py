"""What certificates say: small records that are arrays where an array is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.rounding import Array


@dataclass(frozen=True, kw_only=True)
class Certified:
    """What is said of predictions. ``numpy.asarray`` makes the array of it that was asked for."""

    predicted: NDArray[Any]
    """The classes of the rows, shape (n_samples,)."""
    method: str
    """How it came about."""
    assumption: str
    """What is said, of what, and under which conditions."""
    asked = "predicted"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(getattr(self, self.asked), dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True, kw_only=True)
class CertifiedRadius(Certified):
    """Radii within which predictions cannot change."""

    radius: Array
    """Shape (n_samples,): 0 where nothing is certain, inf where nothing changes the class."""
    columns: tuple[Any, ...] | None = None
    """The columns of X that may move, by name or number: those of a weight above 0. Categories stay as they are."""
    asked = "radius"


@dataclass(frozen=True, kw_only=True)
class SmoothedRadius(CertifiedRadius):
    """The same for the classifier that noise makes of a model, each with confidence 1 - alpha."""

    abstained: NDArray[np.bool_]
    """Rows of which nothing is said, shape (n_samples,); their class is the one that was drawn most often."""
    probability: Array
    """Lower confidence bounds on how often the noise leaves the class as it is, shape (n_samples,)."""


@dataclass(frozen=True, kw_only=True)
class CertifiedInterval(Certified):
    """Whether predictions can change within intervals."""

    certified: NDArray[np.bool_]
    """Shape (n_samples,)."""
    margin: Array
    """What is certainly left of the smallest lead anywhere in the intervals; <= 0 where the class may change."""
    asked = "certified"


@dataclass(frozen=True, kw_only=True)
class CertifiedDeletions(Certified):
    """How much of rows may be deleted."""

    survived: Array
    """Shape (n_samples,), in units of the values; inf where no deletion changes the class."""
    asked = "survived"


@dataclass(frozen=True, kw_only=True)
class FlipProbability(Certified):
    """How likely noise is to change predictions."""

    probability: Array
    """Shape (n_samples,)."""
    standard_error: Array
    """Of an estimate by draws, shape (n_samples,); 0 for a formula."""
    asked = "probability"


@dataclass(frozen=True, kw_only=True)
class SafeBits(Certified):
    """In how few bits weights may be stored."""

    bits: Array
    """For each row, shape (n_samples,); inf where no number of bits is enough, as for a tie."""
    asked = "bits"

    @property
    def all_rows(self) -> float:
        """The number of bits that is enough for all rows."""
        return float(np.max(self.bits, initial=2.0))
