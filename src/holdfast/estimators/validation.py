"""Training and validation rows of a classifier that learns lengths, and its report on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import Number, short
from holdfast._core.loss import Array
from holdfast._core.summary import SHOWN, Summary, counted, digits


class Rows(NamedTuple):
    """Checked training rows."""

    inputs: Array
    features: Array
    codes: NDArray[np.intp]
    weights: Array
    factors: Array
    """The factor of `class_weight` for each class."""
    spreads: Array
    """The standard deviation of each column."""
    slopes: Array | None
    """The derivatives of the mapped features at each row; None without a feature map."""


class Validation(NamedTuple):
    """Validation rows: one copy of all units, then the next copy, and so on. Units are independent, copies are not."""

    inputs: Array
    codes: NDArray[np.intp]
    weights: Array
    n_units: int

    def halves(self) -> list[NDArray[np.bool_]]:
        """Return, as masks of rows, two halves of the units: every other unit of each class, and the rest."""
        own = self.codes[: self.n_units]
        order = np.argsort(own, kind="stable")
        side = np.empty(self.n_units, dtype=bool)
        side[order] = np.arange(self.n_units) % 2 == 0
        first = np.tile(side, len(self.codes) // self.n_units)
        return [first, ~first]

    def mean(self, values: Array) -> tuple[float, float]:
        """Return the weighted mean of values of rows, and its standard error; only units count as independent."""
        own, weights = (part.reshape(-1, self.n_units).mean(axis=0) for part in (values, self.weights))
        weights = weights / weights.sum()
        mean, n = float(weights @ own), np.count_nonzero(weights)
        return mean, float(np.sqrt(np.square(weights) @ np.square(own - mean) * n / (n - 1)))


@dataclass
class Distrust(Summary):
    """The lengths that a classifier was trained for, sorted by `shares`, the largest first.

    Attributes
    ----------
    names : list of str
    lengths : ndarray of shape (n_features,)
        In the units of the features.
    shares : ndarray of shape (n_features,)
        The lengths in standard deviations of the columns.
    gain, gain_error : float
        As `gain_` and `gain_error_` of :class:`SafeClassifier`.
    is_learned : bool
    """

    names: list[str]
    lengths: Array
    shares: Array
    gain: float
    gain_error: float
    is_learned: bool

    def _title(self) -> str:
        return "Lengths that were learned" if self.is_learned else "Lengths as stated: the least ones"

    def _columns(self) -> list[str]:
        return ["feature", "length", "in standard deviations"]

    def _lines(self) -> list[list[str]]:
        found = list(zip(self.names, self.lengths, self.shares, strict=True))[:SHOWN]
        return [[name, digits(length), digits(share)] for name, length, share in found]

    def _notes(self) -> list[str]:
        rest = len(self.names) - SHOWN
        more = f"{counted(rest, 'feature')} more, less distrusted." if rest > 0 else ""
        if np.isnan(self.gain):
            return [more, "There was nothing to learn from."]
        return [more, f"Validation loss: {digits(self.gain)} lower, standard error {digits(self.gain_error)}."]


def stated_lengths(value: Any, call: str, n_features: int) -> Array:
    """Return the stated lengths, checked, one for each feature."""
    if np.ndim(value) == 0:
        return np.full(n_features, Number().checked(value, call))
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.full(1, np.nan)
    if found.shape != (n_features,) or not np.all(np.isfinite(found) & (found >= 0)):
        raise ValueError(f"{call}={short(value):.80}): give a number >= 0, or one for each of {n_features} features.")
    return found
