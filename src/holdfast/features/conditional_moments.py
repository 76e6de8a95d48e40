"""Joint Gaussian moments of columns, learned from rows with missing entries by EM, and their conditional moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.row_forms import Array

BLOCK_ENTRIES = 1 << 22
"""The number of entries of matrices by row formed at a time."""
LEAST = 1e-6
"""The least unique variance of a column in a factor model, as a share of the column's variance."""
MOST_FACTORS = 20
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
"""The ridges to try, as shares of the number of rows."""
TRIAL_STEPS = 20
"""EM steps for each ridge tried."""
HELD_OUT = 5
"""One row in this many is held out to choose the ridge."""


class Lacking(NamedTuple):
    """Rows with equally many missing entries, and the conditional covariances of these given the known ones."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    """The columns of each row's missing entries, shape (n_rows, n_missing)."""
    covariance: Array
    """The conditional covariance of the missing entries, shape (n_rows, n_missing, n_missing)."""


@dataclass(frozen=True)
class GaussianMoments:
    r"""Rows distributed as :math:`N(m, \Sigma)`, and conditional moments of missing entries given the known ones.

    With the precision :math:`K = \Sigma^{-1}`, known entries o and missing entries m, the conditional mean is
    :math:`m_m - K_{mm}^{-1} K_{mo} (x_o - m_o)` and the conditional covariance :math:`K_{mm}^{-1}`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features)
        Positive definite.
    """

    mean: Array
    covariance: Array

    @cached_property
    def precision(self) -> Array:
        """K, the inverse of the covariance."""
        # with the precision, conditioning inverts a block of the size of the missing entries, not of the known ones
        found = np.linalg.inv(self.covariance)
        return 0.5 * (found + found.T)

    def lacking(self, missing: NDArray[np.bool_]) -> Iterator[Lacking]:
        """Yield the rows with missing entries, grouped by the number missing; rows with one pattern share the work."""
        counts = missing.sum(axis=1)
        for count in np.unique(counts[counts > 0]):
            rows = np.flatnonzero(counts == count)
            patterns, inverse = np.unique(missing[rows], axis=0, return_inverse=True)
            columns = np.nonzero(patterns)[1].reshape(len(patterns), count)
            owners = inverse.ravel()
            size = max(1, BLOCK_ENTRIES // int(count) ** 2)
            for start in range(0, len(patterns), size):
                chosen = columns[start : start + size]
                found: Array = np.asarray(
                    np.linalg.inv(self.precision[chosen[:, :, None], chosen[:, None, :]]), dtype=np.float64
                )
                own = np.flatnonzero((owners >= start) & (owners < start + size))
                which = owners[own] - start
                for some in range(0, len(own), size):
                    part = slice(some, some + size)
                    yield Lacking(rows[own[part]], chosen[which[part]], found[which[part]])

    def filled(self, X: Array) -> Array:
        """Return rows with NaN replaced by conditional means."""
        missing = np.isnan(X)
        away = np.where(missing, 0.0, X - self.mean)
        pull, out = away @ self.precision, np.where(missing, 0.0, X)
        for rows, columns, covariance in self.lacking(missing):
            here = rows[:, None]
            out[here, columns] = self.mean[columns] - np.einsum("nij,nj->ni", covariance, pull[here, columns])
        return out

    def answers(self, errors: Array, missing: NDArray[np.bool_]) -> Array:
        """Return the errors of filled entries due to errors of known ones, (n_samples, n_features, r); 0 elsewhere."""
        known = np.where(missing[:, :, None], 0.0, errors)
        out = np.zeros_like(errors)
        for rows, columns, covariance in self.lacking(missing):
            pull = np.take_along_axis(self.precision @ known[rows], columns[:, :, None], axis=1)
            out[rows[:, None], columns] = -covariance @ pull
        return out

    def factor(self, missing: NDArray[np.bool_], apart: NDArray[np.bool_]) -> Array:
        """Return a factor of the conditional covariance of each row's missing entries.

        Its shape is (n_samples, n_features, largest number missing in a row). Features that are `apart`, a mask of
        shape (n_features,), are left at 0, and so are their columns.
        """
        most = int(missing.sum(axis=1).max(initial=0))
        out = np.zeros((*missing.shape, most))
        for rows, columns, covariance in self.lacking(missing):
            own = ~apart[columns]
            both = own[:, :, None] & own[:, None, :]
            # the identity replaces the entries that are apart, so that the matrix stays positive definite
            root = np.linalg.cholesky(np.where(both, covariance, np.eye(columns.shape[1])))
            out[rows[:, None, None], columns[:, :, None], np.arange(columns.shape[1])] = np.where(both, root, 0.0)
        return out

    def reach(self, halves: Array, missing: NDArray[np.bool_]) -> Array:
        """Return the largest change of each filled entry if known entries change by up to `halves`; 0 elsewhere."""
        known, out = np.where(missing, 0.0, halves), np.zeros_like(halves)
        for rows, columns, covariance in self.lacking(missing):
            size = max(1, BLOCK_ENTRIES // (columns.shape[1] * missing.shape[1]))
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                weights = np.abs(covariance[part] @ self.precision[columns[part]])
                out[rows[part, None], columns[part]] = np.einsum("nij,nj->ni", weights, known[rows[part]])
        return out

    def log_likelihood(self, X: Array) -> float:
        """Return the mean log-likelihood of the known entries of a row."""
        missing = np.isnan(X)
        away = np.where(missing, 0.0, X - self.mean)
        pull = away @ self.precision
        # the density of the known entries is that of all entries (0 at missing ones) over that of the missing ones
        # given the known ones: by the Schur complement, x_o' S_oo^-1 x_o = x'Kx - (Kx)_m' K_mm^-1 (Kx)_m and |S_oo| =
        # |S| |K_mm|
        total = -0.5 * np.sum(pull * away) - 0.5 * len(X) * np.linalg.slogdet(self.covariance)[1]
        for rows, columns, covariance in self.lacking(missing):
            here = pull[rows[:, None], columns]
            total += 0.5 * np.einsum("ni,nij,nj->", here, covariance, here) + 0.5 * np.sum(
                np.linalg.slogdet(covariance)[1]
            )
        constant = 0.5 * np.log(2 * np.pi) * np.sum(~missing)
        return float(total - constant) / len(X)

    def _expected(self, X: Array) -> tuple[Array, Array]:
        """Return rows with NaN replaced by conditional means, and the sum of the rows' conditional covariances."""
        missing, d = np.isnan(X), X.shape[1]
        away = np.where(missing, 0.0, X - self.mean)
        pull, out, total = away @ self.precision, np.where(missing, 0.0, X), np.zeros(d * d)
        for rows, columns, covariance in self.lacking(missing):
            here = rows[:, None]
            out[here, columns] = self.mean[columns] - np.einsum("nij,nj->ni", covariance, pull[here, columns])
            places = columns[:, :, None] * d + columns[:, None, :]
            total += np.bincount(places.ravel(), covariance.ravel(), d * d)
        return out, total.reshape(d, d)


class Learned(NamedTuple):
    """Moments, and how they were found."""

    moments: GaussianMoments
    n_iter: int
    has_settled: bool
    ridge: float
    """The ridge, as a number of rows."""


def learned(
    Z: Array,
    n_factors: int | None,
    ridge: float | None,
    tol: float,
    max_iter: int,
    report: Callable[[str], None],
) -> Learned:
    """Return the moments of standardised rows with NaN: by a factor model, or unrestricted if `n_factors` is None.

    If `ridge` is None, the one of `RIDGES` with the largest likelihood of held-out rows is used.
    """
    if ridge is None:
        ridge = _best_ridge(Z, n_factors, tol, report)
    return _fitted(Z, n_factors, ridge, tol, max_iter, report)


def _best_ridge(Z: Array, n_factors: int | None, tol: float, report: Callable[[str], None]) -> float:
    n = len(Z)
    # a fixed shuffle: deterministic, and independent of any period in the order of the rows
    order = np.random.default_rng(0).permutation(n)
    held, own = np.sort(order[: -(-n // HELD_OUT)]), np.sort(order[-(-n // HELD_OUT) :])
    if len(own) < 2:
        return RIDGES[-1] * n
    scores = []
    for share in RIDGES:
        found = _fitted(Z[own], n_factors, share * len(own), tol, TRIAL_STEPS, lambda text: None)
        scores.append(found.moments.log_likelihood(Z[held]))
        report(f"ridge of {share:g} of the rows: log-likelihood {scores[-1]:.4g} a row held out")
    return RIDGES[int(np.argmax(scores))] * n


def _fitted(
    Z: Array, n_factors: int | None, ridge: float, tol: float, max_iter: int, report: Callable[[str], None]
) -> Learned:
    d = Z.shape[1]
    start = GaussianMoments(np.zeros(d), np.eye(d))
    if not np.any(np.isnan(Z)) and n_factors is None:
        return Learned(_maximised(Z, np.zeros((d, d)), ridge), 1, True, ridge)
    if n_factors is not None:
        return _factors(Z, n_factors, ridge, tol, max_iter, report)
    moments, has_settled, step = start, False, 0
    for step in range(1, max_iter + 1):
        found = _maximised(*moments._expected(Z), ridge)
        change = max(np.max(np.abs(found.covariance - moments.covariance)), np.max(np.abs(found.mean - moments.mean)))
        moments = found
        report(f"EM step {step}: moments changed by {change:.2g} deviations")
        if has_settled := bool(change <= tol):
            break
    return Learned(moments, step, has_settled, ridge)


def _maximised(filled: Array, spread: Array, ridge: float) -> GaussianMoments:
    """Return the moments of rows as filled in (the M step), with `ridge` rows of uncorrelated columns added."""
    n, d = filled.shape
    mean = filled.mean(axis=0)
    away = filled - mean
    # columns have variance 1, so the ridge acts like that many rows of uncorrelated columns; it keeps the sum definite
    total = away.T @ away + spread + ridge * np.eye(d)
    return GaussianMoments(mean, 0.5 * (total + total.T) / (n + ridge))


def _factors(
    Z: Array, n_factors: int, ridge: float, tol: float, max_iter: int, report: Callable[[str], None]
) -> Learned:
    r"""Return the moments of :math:`x = m + L z + e`, e independent, by EM over z; missing entries need no filling."""
    n, d = Z.shape
    known = 1.0 * ~np.isnan(Z)
    X, counts = np.where(known > 0, Z, 0.0), known.sum(axis=0)
    # start from the leading directions, with 0 for missing entries; L = 0 is a stationary point that EM would not leave
    L = np.linalg.svd(X, full_matrices=False)[2][:n_factors].T
    L = L * np.linalg.norm(X @ L, axis=0) / np.sqrt(n + ridge)
    mean, unique = np.zeros(d), np.maximum(1.0 - np.square(L).sum(axis=1), 0.1)
    rank, has_settled, step = L.shape[1], False, 0
    for step in range(1, max_iter + 1):
        before = np.column_stack([L, mean])
        weighted = L / unique[:, None]
        # for each row, the precision of z is I + sum over known j of l_j l_j' / psi_j
        pairs = (weighted[:, :, None] * L[:, None, :]).reshape(d, -1)
        spread = np.linalg.inv(np.eye(rank) + (known @ pairs).reshape(n, rank, rank))
        z = np.einsum("nij,nj->ni", spread, (known * (X - mean)) @ weighted)
        both = np.column_stack([z, np.ones(n)])
        squares = both[:, :, None] * both[:, None, :]
        squares[:, :rank, :rank] += spread
        gram = (known.T @ squares.reshape(n, -1)).reshape(d, rank + 1, rank + 1)
        along = X.T @ both
        held = gram + ridge * np.diag(np.append(np.ones(rank), 0.0))
        found = np.linalg.solve(held, along[:, :, None])[:, :, 0]
        # the squared residuals at the maximum, including those of the ridge's rows
        rest = np.square(X).sum(axis=0) - np.sum(found * along, axis=1)
        L, mean = found[:, :rank], found[:, rank]
        unique = np.maximum((rest + ridge) / (counts + ridge), LEAST)
        change = np.max(np.abs(np.column_stack([L, mean]) - before))
        report(f"EM step {step}: factors changed by {change:.2g}")
        if has_settled := bool(change <= tol):
            break
    return Learned(GaussianMoments(mean, L @ L.T + np.diag(unique)), step, has_settled, ridge)
