"""Errors of each row: independent ones, by their standard deviations, and correlated ones, by their common causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import dense
from holdfast._core.row_forms import Array
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.affine_map import AffineMap


@dataclass(frozen=True)
class RowNoise:
    r"""Errors :math:`s_i \circ u + F_i v` of row i, with u and v independent and of covariance I.

    Parameters
    ----------
    std : ndarray of shape (n_samples, n_features)
        s, the standard deviations of the independent errors of the features.
    factor : ndarray of shape (n_samples, n_features, r), default=None
        F, the effects of r common causes; none by default.
    """

    std: Array
    factor: Any = None

    def __post_init__(self) -> None:
        if self.factor is None:
            object.__setattr__(self, "factor", np.zeros((*self.std.shape, 0)))

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> RowNoise:
        """Return the noise that X_std or X_factor states."""
        [(name, value)] = metadata.items()
        value = np.asarray(value, dtype=np.float64)
        return cls(value) if name == "X_std" else cls(np.zeros(value.shape[:2]), value)

    @classmethod
    def stated(cls, X: Array, metadata: Mapping[str, Any]) -> RowNoise:
        """Return the noise of rows X that X_std, X_cov or X_factor states; equal noise gives equal numbers."""
        found = GaussianNoise().at(X, metadata).as_metadata(*X.shape)
        assert found is not None  # Gaussian noise of rows always has standard deviations or factors
        noise = cls.of(found)
        # so that a diagonal covariance gives exactly the same numbers as its standard deviations
        is_independent = np.all(np.count_nonzero(noise.factor, axis=1) <= 1)
        return cls(noise.deviations) if is_independent else noise

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> RowNoise:
        """Return no noise."""
        return cls(np.zeros(shape))

    @property
    def metadata(self) -> dict[str, Any]:
        """The noise as X_std, or as X_factor if there are common causes."""
        return {"X_factor": self.causes} if self.factor.shape[2] else {"X_std": self.std}

    @property
    def causes(self) -> Array:
        """All errors as factors: the common causes first, then one cause for each feature with independent errors."""
        own = np.flatnonzero(np.any(self.std > 0, axis=0))
        return np.concatenate([self.factor, self.std[:, :, None] * np.eye(self.std.shape[1])[:, own]], axis=2)

    @property
    def deviations(self) -> Array:
        """The standard deviation of each entry."""
        return np.hypot(self.std, np.sqrt(np.square(self.factor).sum(axis=2)))

    @property
    def by_causes(self) -> RowNoise:
        """The same noise, with independent errors turned into causes."""
        return RowNoise(np.zeros_like(self.std), self.causes)

    def columns(self, chosen: NDArray[np.intp]) -> RowNoise:
        """Return the noise of some features, with the same causes."""
        return RowNoise(self.std[:, chosen], self.factor[:, chosen])

    def times(self, slopes: Array | float) -> RowNoise:
        """Return the noise with each entry multiplied by its slope, or all by one number."""
        return RowNoise(np.abs(slopes) * self.std, np.asarray(slopes)[..., None] * self.factor)

    def take(self, rows: NDArray[np.intp]) -> RowNoise:
        """Return the noise of some rows."""
        return RowNoise(self.std[rows], self.factor[rows])

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return a Gaussian draw of the errors of each row, shape (n_samples, n_features)."""
        own = self.std * rng.standard_normal(self.std.shape)
        common = rng.standard_normal((len(self.std), self.factor.shape[2], 1))
        return np.asarray(own + (self.factor @ common)[:, :, 0])

    def through(self, map: AffineMap) -> RowNoise:
        """Return the noise of the rows after an affine map."""
        if map.is_monomial:
            kept = self.factor[:, map.sources] * map.scales[:, None]
            return RowNoise(map.columns(self.std, np.abs(map.scales)), kept)
        return RowNoise.mixed(dense(map.matrix) @ self.causes)

    @classmethod
    def mixed(cls, factor: Array) -> RowNoise:
        """Return noise with common causes only."""
        return cls(np.zeros(factor.shape[:2]), factor)

    def plus(self, other: RowNoise) -> RowNoise:
        """Return the noise with other, independent errors added."""
        return RowNoise(np.hypot(self.std, other.std), np.concatenate([self.factor, other.factor], axis=2))


def side_by_side(noises: Sequence[RowNoise], *, common: int) -> RowNoise:
    """Return the noise of several groups of features, which share their first `common` causes and no others."""
    own = [noise.factor.shape[2] - common for noise in noises]
    if min(own, default=0) < 0:
        raise ValueError(
            "an effect lost causes of errors that several steps have in common. Let it keep those that it is given, first: "
            "noise.times(slopes).plus(RowNoise(std))."
        )
    parts = []
    for number, noise in enumerate(noises):
        n_samples, n_features, _ = noise.factor.shape
        before, after = sum(own[:number]), sum(own[number + 1 :])
        none = [np.zeros((n_samples, n_features, count)) for count in (before, after)]
        # the other groups' own causes have no effect here, so groups are correlated through the common causes only
        parts.append(
            np.concatenate([noise.factor[:, :, :common], none[0], noise.factor[:, :, common:], none[1]], axis=2)
        )
    return RowNoise(np.concatenate([noise.std for noise in noises], axis=1), np.concatenate(parts, axis=1))
