"""Records that certificates return; where an array is needed, they convert to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, counted, digits, percent, share, spread


@dataclass(frozen=True, kw_only=True)
class Certified(Summary):
    """A statement about predictions. ``numpy.asarray`` returns its main array, such as `radius`."""

    predicted: NDArray[Any]
    """The predicted classes, shape (n_samples,)."""
    method: str
    """How the statement was derived."""
    assumption: str
    """What is stated, about which model, and under which conditions."""
    asked = "predicted"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(getattr(self, self.asked), dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.predicted)

    def _title(self) -> str:
        return f"{type(self).__name__} of {counted(len(self), 'row')}"

    def _found(self) -> list[tuple[str, str]]:
        """Return the lines about the main array."""
        raise NotImplementedError

    def _lines(self) -> list[tuple[str, str]]:
        return [*self._found(), ("method", self.method)]

    def _notes(self) -> list[str]:
        return [f"That is: {self.assumption}."]


@dataclass(frozen=True, kw_only=True)
class CertifiedRadius(Certified):
    """Radii within which predictions cannot change."""

    radius: Array
    """The radius of each row, shape (n_samples,): 0 where nothing is certain, inf where no move changes the class."""
    columns: tuple[Any, ...] | None = None
    """The columns of X that may change, by name or number: those with a weight above 0. Categories do not change."""
    asked = "radius"

    def _found(self) -> list[tuple[str, str]]:
        return [("certified", share(self.radius > 0)), ("radius", spread(self.radius))]


@dataclass(frozen=True, kw_only=True)
class SmoothedRadius(CertifiedRadius):
    """Radii for the smoothed classifier, not the model itself; each row's holds with confidence 1 - alpha."""

    abstained: NDArray[np.bool_]
    """Rows without a certificate, shape (n_samples,); their predicted class is the one that was drawn most often."""
    probability: Array
    """Lower confidence bounds on the probability of the predicted class under noise, shape (n_samples,)."""

    def _found(self) -> list[tuple[str, str]]:
        return [*super()._found(), ("abstained", share(self.abstained))]


@dataclass(frozen=True, kw_only=True)
class CertifiedInterval(Certified):
    """Whether predictions can change within intervals."""

    certified: NDArray[np.bool_]
    """Whether the class cannot change, shape (n_samples,)."""
    margin: Array
    """A lower bound on the lead anywhere in the intervals, shape (n_samples,); <= 0 where the class may change."""
    asked = "certified"

    def _found(self) -> list[tuple[str, str]]:
        return [("certified", share(self.certified)), ("lead that is left", spread(self.margin))]


@dataclass(frozen=True, kw_only=True)
class CertifiedDeletions(Certified):
    """How much of each row may be deleted."""

    survived: Array
    """How much may be deleted, in units of the values, shape (n_samples,); inf where no deletion changes the class."""
    columns: tuple[Any, ...] | None = None
    """The columns of X that may be deleted, by name or number; categories may not."""
    asked = "survived"

    def _found(self) -> list[tuple[str, str]]:
        return [("certified", share(self.survived > 0)), ("deletions survived", spread(self.survived))]


@dataclass(frozen=True, kw_only=True)
class FlipProbability(Certified):
    """How likely noise is to change predictions."""

    probability: Array
    """The probability that noise changes the class, shape (n_samples,)."""
    standard_error: Array
    """The standard error of an estimate by draws, shape (n_samples,); 0 for a formula."""
    asked = "probability"

    def _found(self) -> list[tuple[str, str]]:
        if not len(self):
            return [("predictions that change", "no rows")]
        error = float(np.sqrt(np.sum(np.square(self.standard_error))) / len(self))
        mean = percent(np.mean(self.probability)) + (f", standard error {percent(error)}" if error > 0 else "")
        return [("predictions that change", mean), ("probability", spread(self.probability))]


@dataclass(frozen=True, kw_only=True)
class SafeBits(Certified):
    """The number of bits in which weights can be stored without changing predictions."""

    bits: Array
    """The number for each row, shape (n_samples,); inf where no number of bits is enough, as for a tie."""
    asked = "bits"

    def _found(self) -> list[tuple[str, str]]:
        return [("enough for all rows", digits(self.all_rows)), ("bits", spread(self.bits))]

    @property
    def all_rows(self) -> float:
        """The number of bits that is enough for all rows."""
        return float(np.max(self.bits, initial=2.0))
