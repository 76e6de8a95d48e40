"""Errors of each row, known by standard deviations or by what causes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.uncertainty import Array
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense


@dataclass(frozen=True)
class RowNoise:
    """Errors :math:`F_i v` of row i, v of covariance I: independent ones with F diagonal, or any.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features) or (n_samples, n_features, r)
        Standard deviations of independent errors, or F.
    """

    values: Array

    @classmethod
    def of(cls, metadata: dict[str, Any]) -> RowNoise:
        """Return the noise that X_std or X_factor states."""
        [value] = metadata.values()
        return cls(np.asarray(value, dtype=np.float64))

    @property
    def metadata(self) -> dict[str, Any]:
        """The noise as X_std or X_factor."""
        return {"X_std" if self.values.ndim == 2 else "X_factor": self.values}

    @property
    def factors(self) -> Array:
        """F, as matrices."""
        return self.values if self.values.ndim == 3 else self.values[:, :, None] * np.eye(self.values.shape[1])

    @property
    def deviations(self) -> Array:
        """The standard deviation of each entry."""
        return np.abs(self.values) if self.values.ndim == 2 else np.sqrt(np.square(self.values).sum(axis=2))

    def columns(self, chosen: NDArray[np.intp]) -> RowNoise:
        """Return the noise of some features, by the same causes."""
        return RowNoise(self.factors[:, chosen] if self.values.ndim == 3 else self.values[:, chosen])

    def times(self, slopes: Array) -> RowNoise:
        """Return the noise with each entry multiplied by its slope."""
        return RowNoise(slopes[..., None] * self.values if self.values.ndim == 3 else np.abs(slopes) * self.values)

    def through(self, map: AffineMap) -> RowNoise:
        """Return the noise of the images of rows."""
        if self.values.ndim == 2 and map.is_monomial:
            return RowNoise(map.columns(self.values, np.abs(map.scales)))
        return RowNoise(dense(map.matrix) @ self.factors)

    def plus(self, other: RowNoise) -> RowNoise:
        """Return the noise with other, independent errors added."""
        if self.values.ndim == other.values.ndim == 2:
            return RowNoise(np.hypot(self.values, other.values))
        return RowNoise(np.concatenate([self.factors, other.factors], axis=2))


def side_by_side(noises: Sequence[RowNoise], *, common: int | None) -> RowNoise:
    """Return the noise of several groups of features.

    The first `common` causes of each are the same ones, those beyond are its own; None: the groups have no cause in common.
    """
    if common is None and all(noise.values.ndim == 2 for noise in noises):
        return RowNoise(np.concatenate([noise.values for noise in noises], axis=1))
    factors, shared = [noise.factors for noise in noises], common or 0
    own = [one.shape[2] - shared for one in factors]
    total, parts = shared + sum(own), []
    for number, one in enumerate(factors):
        part = np.zeros((*one.shape[:2], total))
        start = shared + sum(own[:number])
        part[:, :, :shared], part[:, :, start : start + own[number]] = one[:, :, :shared], one[:, :, shared:]
        parts.append(part)
    return RowNoise(np.concatenate(parts, axis=1))
