"""Noise of features that are functions of linear forms of noisy inputs. It is stored in parts to save memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense, orthogonal_to
from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array
from holdfast.uncertainty.row_ellipsoids import FactorEllipsoids

BLOCK_ENTRIES = 1 << 22
"""The number of entries of factors in memory at a time."""


@dataclass(frozen=True, eq=False)
class SlopedFactor:
    r"""Factors :math:`F_i = [\mathrm{diag}(g_i) V N_i,\ \mathrm{diag}(r_i)]` of covariances, one for each row.

    Only the parts g, V, N and r are stored. The array of shape (n_samples, n_out, n_causes) is formed on request only.

    Parameters
    ----------
    slopes : ndarray of shape (n_samples, n_out)
        g, the slopes of the features in their linear forms.
    forms : list of {ndarray, csr_array}, each of shape (some of n_out, n_in)
        V, the linear forms of the inputs, in groups of rows.
    std : ndarray of shape (n_samples, n_in)
        Standard deviations of the independent errors of the inputs, the last columns of :math:`N_i`.
    factor : ndarray of shape (n_samples, n_in, r)
        The effects of common causes on the inputs, the first columns of :math:`N_i`.
    rest : ndarray of shape (n_samples, n_out)
        r, the standard deviations of the features' remaining, independent errors.
    """

    slopes: Array
    forms: Sequence[Any]
    std: Array
    factor: Array
    rest: Array
    ndim = 3
    dtype = np.dtype(np.float64)

    @classmethod
    def stacked(cls, parts: Sequence[SlopedFactor]) -> SlopedFactor:
        """Return the factors of several groups of rows, stacked; all must have the same forms."""
        names = ("slopes", "std", "factor", "rest")
        stacked: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
        return replace(parts[0], **stacked)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n_samples, n_out, n_causes)."""
        return (*self.slopes.shape, self.n_followed + self.slopes.shape[1])

    @property
    def n_followed(self) -> int:
        """The number of causes of the inputs' errors, which features share."""
        return int(self.factor.shape[2] + len(self.own))

    @cached_property
    def own(self) -> NDArray[np.intp]:
        """The indices of inputs with independent errors."""
        return np.flatnonzero(np.any(self.std > 0, axis=0))

    def __len__(self) -> int:
        return len(self.slopes)

    def __getitem__(self, rows: Any) -> SlopedFactor:
        parts = {name: getattr(self, name)[rows] for name in ("slopes", "std", "factor", "rest")}
        return replace(self, **parts)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        own = self.rest[:, :, None] * np.eye(self.rest.shape[1])
        return np.concatenate([self.followed(), own], axis=2).astype(dtype or np.float64, copy=False)

    def times(self, factor: float) -> SlopedFactor:
        """Return the factors multiplied by a number."""
        return replace(self, std=factor * self.std, factor=factor * self.factor, rest=factor * self.rest)

    def followed(self, rows: slice = slice(None)) -> Array:
        """Return the columns of F_i for the causes of the inputs' errors, shape (n_samples, n_out, n_followed)."""
        inner = np.concatenate([self.factor[rows], self.std[rows, :, None] * np.eye(self.std.shape[1])[:, self.own]], 2)
        return self.slopes[rows, :, None] * np.concatenate([dense(V) @ inner for V in self.forms], axis=1)

    def pulled(self, w: Array) -> Array:
        """Return V'(g_i w), the slopes of the score in the inputs, shape (n_samples, n_in)."""
        weighted, ends = self.slopes * w, np.cumsum([0, *(V.shape[0] for V in self.forms)])
        parts = (weighted[:, start:end] @ V for V, start, end in zip(self.forms, ends, ends[1:], strict=False))
        return np.asarray(sum(parts))

    def root(self, w: Array) -> Array:
        """Return F_i'w for each row."""
        inputs = self.pulled(w)
        common = np.einsum("nij,ni->nj", self.factor, inputs)
        return np.concatenate([common, (self.std * inputs)[:, self.own], self.rest * w], axis=1)

    def spread(self, v: Array) -> Array:
        """Return F_i v_i for each row."""
        causes, rank = self.n_followed, self.factor.shape[2]
        inputs = np.einsum("nij,nj->ni", self.factor, v[:, :rank])
        inputs[:, self.own] += self.std[:, self.own] * v[:, rank:causes]
        moved = np.concatenate([dense((V @ inputs.T).T) for V in self.forms], axis=1)
        return self.slopes * moved + self.rest * v[:, causes:]


class SlopedEllipsoids(FactorEllipsoids):
    """An ellipsoid for each row, with its factor stored as the parts of a `SlopedFactor`."""

    def __init__(self, parts: SlopedFactor):
        self.parts = parts

    @cached_property
    def factors(self) -> Array:  # type: ignore[override]
        """The factors as an array."""
        return np.asarray(self.parts)

    @remembered
    def root(self, w: Array) -> Array:
        return self.parts.root(w)

    def spread(self, v: Array) -> Array:
        return self.parts.spread(v)

    def pooled(self, v: Array) -> Array:
        return self.parts.spread(v).sum(axis=0)

    def covariance(self, weights: Array) -> Array:
        parts = self.parts
        out = np.diag(np.square(parts.rest).T @ weights)
        # each input affects few features, such as the ramps of its own column, so each term of the sum is a small block
        if parts.factor.shape[2] == 0 and all(sparse.issparse(V) for V in parts.forms):
            return out + self._of_columns(weights)
        n_samples, n_out, _ = parts.shape
        size = max(1, BLOCK_ENTRIES // (n_out * parts.n_followed or 1))
        for start in range(0, n_samples, size):
            rows = slice(start, start + size)
            scaled = parts.followed(rows) * np.sqrt(weights[rows])[:, None, None]
            out += np.tensordot(scaled, scaled, axes=([0, 2], [0, 2]))
        return out

    def _of_columns(self, weights: Array) -> Array:
        """Return the covariance from independent errors of the inputs, if each feature depends on few inputs."""
        V = sparse.csc_array(sparse.vstack(self.parts.forms))
        out = np.zeros((V.shape[0], V.shape[0]))
        for j in range(V.shape[1]):
            own = slice(V.indptr[j], V.indptr[j + 1])
            chosen = V.indices[own]
            moved = self.parts.slopes[:, chosen] * V.data[own] * self.parts.std[:, [j]] * np.sqrt(weights)[:, None]
            out[np.ix_(chosen, chosen)] += moved.T @ moved
        return out

    def generators(self, n_features: int) -> None:  # type: ignore[override]
        return None

    def absolute_reach(self, n_features: int) -> Array:
        return self._deviations().sum(axis=1)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return ~np.any(self._deviations(), axis=0)

    def exact_directions(self, n_features: int) -> Array:
        return orthogonal_to(self.covariance(np.ones(len(self.parts))))

    def _deviations(self) -> Array:
        parts = self.parts
        squares = [np.square(parts.std) @ dense(V * V).T for V in parts.forms]
        for cause in np.moveaxis(parts.factor, 2, 0):
            for square, V in zip(squares, parts.forms, strict=True):
                square += np.square(dense((V @ cause.T).T))
        return np.hypot(np.abs(parts.slopes) * np.sqrt(np.concatenate(squares, axis=1)), parts.rest)

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any]:
        return {"X_factor": self.parts}

    def scaled(self, factor: float) -> SlopedEllipsoids:
        return SlopedEllipsoids(self.parts.times(factor))

    def take(self, rows: Any) -> SlopedEllipsoids:
        return SlopedEllipsoids(self.parts[rows])

    def _normal(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
        v = rng.standard_normal((len(self.parts), self.parts.shape[2]))
        return self.spread(v), np.square(v).sum(axis=1)
