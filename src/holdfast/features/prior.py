"""A Gaussian prior of rows, and the posterior of rows measured with noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast._core.row_forms import Array
from holdfast.features.row_noise import RowNoise

RANK = 20
"""The largest number of factors that model correlations between columns."""
LEAST = 1e-6
"""The least unique variance of a column, as a share of the column's variance."""
BLOCK_ENTRIES = 1 << 22
"""The number of entries of matrices by row formed at a time."""


class _Solved(NamedTuple):
    """The posterior of some standardised rows, measured as x': x = x' - F z - (1 - kept) (x' - m - L a - F z)."""

    factor: Array
    """F, the effects of common causes of errors."""
    causes: Array
    """[L, F]."""
    weighted: Array
    """[L, F] divided by the variances that remain besides these causes."""
    kept: Array
    """The share kept of the part of a value that the causes do not explain."""
    covariance: Array
    """The covariance of the causes, given the row."""


@dataclass(frozen=True)
class GaussianPrior:
    r"""Rows distributed as :math:`N(m, D(LL^\top + \mathrm{diag}(\psi))D)`: a factor model.

    It is fitted to the covariance of the training rows, shrunk towards uncorrelated columns by the share of Ledoit and
    Wolf.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_features,)
        m, and D, the standard deviations.
    loadings : ndarray of shape (n_features, r)
        L.
    unique : ndarray of shape (n_features,)
        :math:`\psi > 0`.
    """

    mean: Array
    scale: Array
    loadings: Array
    unique: Array

    @classmethod
    def of(cls, X: Array, weights: Array, mean: Array, scale: Array) -> GaussianPrior:
        """Return the prior of rows with these weights; a weight counts as a number of rows."""
        Z, total = (X - mean) / scale, float(weights.sum())
        cov = (Z * weights[:, None]).T @ Z / total
        # Ledoit & Wolf (2004): the share is the mean squared error of the sample covariance divided by its squared
        # distance from the multiple of I it is shrunk to
        size = np.trace(cov) / len(cov)
        off = np.sum(np.square(cov - size * np.eye(len(cov))))
        error = (weights @ np.square(np.square(Z).sum(axis=1)) / total - np.sum(np.square(cov))) / total
        share = float(np.clip(error / off, 0.0, 1.0)) if off > 0 else 1.0
        cov = (1 - share) * cov + share * size * np.eye(len(cov))
        extents, basis = np.linalg.eigh(cov)
        rank = min(RANK, len(cov) - 1)
        # probabilistic PCA (Tipping & Bishop): the likeliest variance is the mean of the other eigenvalues, and the
        # excess of the leading ones gives the loadings. Then unique variances are set so that each column keeps its
        # variance
        rest = extents[: len(cov) - rank].mean()
        loadings = basis[:, len(cov) - rank :] * np.sqrt(np.maximum(extents[len(cov) - rank :] - rest, 0.0))
        unique = np.maximum(np.diag(cov) - np.square(loadings).sum(axis=1), LEAST)
        return cls(mean, scale, loadings, unique)

    def posterior(self, lots: Sequence[Array], noise: RowNoise) -> tuple[list[Array], RowNoise]:
        """Return the posterior means of rows measured with `noise`, for each array in `lots`, and the posterior noise.

        Exact rows stay unchanged. For independent errors only standard deviations are returned. For errors with common
        causes the covariance is returned too, as such errors may leave some differences of features known exactly.
        """
        means, std = [np.empty_like(X) for X in lots], np.empty_like(lots[0])
        rank, is_common = self.loadings.shape[1], noise.factor.shape[2] > 0
        factors: list[Array] = []
        for rows, some in self._solved(noise):
            lost, kept = 1 - some.kept, some.kept[:, :, None]
            for X, mean in zip(lots, means, strict=True):
                away = ((X[rows] - self.mean) / self.scale)[:, :, None]
                found = some.covariance @ (some.weighted.transpose(0, 2, 1) @ away)
                left = (away - some.causes @ found)[:, :, 0]
                # written as a correction of the measured row, so that entries without noise, where the correction is 0,
                # stay exact
                mean[rows] = X[rows] - self.scale * ((some.factor @ found[:, rank:])[:, :, 0] + lost * left)
            # given the causes, a column is m + L a + kept (x' - m - L a - F z) with variance kept s^2; `pull` has its
            # slopes in a and z
            pull = np.concatenate([(1 - kept) * self.loadings, -kept * some.factor], axis=2)
            own = some.kept * np.square(noise.std[rows] / self.scale)
            if is_common:
                factors.append((pull @ np.linalg.cholesky(some.covariance)) * self.scale[:, None])
            else:
                own = own + np.maximum(((pull @ some.covariance) * pull).sum(axis=2), 0.0)
            std[rows] = self.scale * np.sqrt(own)
        return means, RowNoise(std, np.concatenate(factors) if factors else None)

    def followed(self, noise: RowNoise) -> RowNoise:
        """Return the noise of the posterior means if the rows are measured again with `noise`."""
        moves = noise.causes / self.scale[:, None]
        out, rank = np.empty_like(moves), self.loadings.shape[1]
        for rows, some in self._solved(noise):
            own = moves[rows]
            found = some.covariance @ (some.weighted.transpose(0, 2, 1) @ own)
            left = own - some.causes @ found
            out[rows] = own - some.factor @ found[:, rank:] - (1 - some.kept)[:, :, None] * left
        return RowNoise.mixed(out * self.scale[:, None])

    def _solved(self, noise: RowNoise) -> Iterator[tuple[slice, _Solved]]:
        n_samples, n_features, n_causes = noise.factor.shape
        n_causes += self.loadings.shape[1]
        size = max(1, BLOCK_ENTRIES // (n_causes * max(n_features, n_causes) or 1))
        for start in range(0, n_samples, size):
            rows = slice(start, start + size)
            factor = noise.factor[rows] / self.scale[:, None]
            loadings = np.broadcast_to(self.loadings, (len(factor), *self.loadings.shape))
            causes = np.concatenate([loadings, factor], axis=2)
            variances = self.unique + np.square(noise.std[rows] / self.scale)
            weighted = causes / variances[:, :, None]
            # Woodbury: given the row, the causes have the precision I + C' V^-1 C, a small matrix with eigenvalues >= 1
            precision = np.eye(n_causes) + causes.transpose(0, 2, 1) @ weighted
            covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
            yield rows, _Solved(factor, causes, weighted, self.unique / variances, covariance)
