"""The probability that noise changes a linear classifier's prediction: exact for up to three classes, else by draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, owens_t

from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets
from holdfast.estimators.linear import predicted_codes
from holdfast.estimators.scores import in_deviations, score_deviations

EXACT_RIVALS = 2
"""The most rival classes for which there is a formula."""
SURE = 1e-9
"""Draws are not needed for rows where all rivals but one contribute less than this share of the sum."""
BLOCK_ENTRIES = 1 << 22
"""How many numbers of draws are in memory at once."""

Deviation = Callable[[int, int], Array]


def flip_probabilities(
    scores: Array, coef: Array, noise: RowSets, *, method: str = "auto", n_draws: int = 1000, seed: int = 0
) -> Array:
    """Return the probability that noise changes each prediction; with several classes and ``method="bound"``, a bound.

    The bound is also used if the covariance of the noise is only partly known, as the worst covariance differs by
    rival.
    """
    deviations = score_deviations(scores, coef, noise)
    if scores.ndim == 1:
        return ndtr(-in_deviations(np.abs(scores), deviations))
    codes = predicted_codes(scores)
    leads = np.take_along_axis(scores, codes[:, None], axis=1) - scores
    if method == "bound" or not noise.is_smooth:
        return loses_to_some(leads, deviations)
    found = np.zeros(len(scores))
    for k in np.unique(codes):
        rows, others = np.flatnonzero(codes == k), np.delete(np.arange(len(coef)), k)
        table, own, W = np.ix_(rows, others), noise.take(rows), coef[others]

        def between(one: int, other: int, own: RowSets = own, W: Array = W) -> Array:
            return own.support(W[one] - W[other])

        found[rows] = loses_to_any(leads[table], deviations[table], between, n_draws=n_draws, seed=seed)[0]
    return found


def loses_to_some(leads: Array, deviations: Array) -> Array:
    """Return a bound on the probability that noise makes one of a row's leads negative: the sum over leads, or 1."""
    return np.minimum(ndtr(-in_deviations(leads, deviations)).sum(axis=1), 1.0)


def loses_to_any(
    leads: Array, deviations: Array, between: Deviation, *, n_draws: int, seed: int
) -> tuple[Array, Array]:
    r"""Return the probability that Gaussian noise makes one of the leads of a row negative, and its standard error.

    With two rivals it is exact, by Owen's T function, and the error is 0. With more it is the unbiased estimate

    .. math:: \sum_l p_l\; \mathbb E\, \frac{1}{\#\{\text{rivals that win}\}},

    where for each draw a rival l is chosen in proportion to :math:`p_l = \Phi(-\text{lead}_l / t_l)`, and the noise is
    drawn given that l wins. Its standard error is at most half of :math:`\sum_l p_l` over the square root of `n_draws`,
    however rare a change is (Owen, Maximov & Chertkov, "Importance sampling the union of rare events", 2019). All rows
    share the same random numbers.

    Parameters
    ----------
    leads : ndarray of shape (n_samples, n_rivals)
        The leads over each rival; inf where there is no rival.
    deviations : ndarray of shape (n_samples, n_rivals)
        Their standard deviations.
    between : callable
        ``between(k, l)`` returns the standard deviations of lead k minus lead l, shape (n_samples,) or ().
    n_draws, seed : int
    """
    n_samples, n_rivals = leads.shape
    heights = in_deviations(leads, deviations)
    each = ndtr(-heights)
    total, largest = each.sum(axis=1), each.max(axis=1)
    error = np.zeros(n_samples)
    if n_rivals <= 1:
        return total, error
    squares = np.square(deviations)
    if n_rivals == EXACT_RIVALS:
        covariance = 0.5 * (squares.sum(axis=1) - np.square(between(0, 1)))
        both = _both_below(-heights[:, 0], -heights[:, 1], covariance, deviations)
        return np.clip(total - both, largest, np.minimum(total, 1.0)), error
    found = np.minimum(total, 1.0)
    open_rows = np.flatnonzero(total - largest > SURE * total)
    covariances = _covariances(squares, between, open_rows)
    rng = np.random.default_rng(seed)
    shared = rng.random(n_draws), rng.random(n_draws), rng.standard_normal((n_draws, n_rivals))
    size = max(1, BLOCK_ENTRIES // (n_draws * n_rivals))
    for start in range(0, len(open_rows), size):
        part = slice(start, start + size)
        rows = open_rows[part]
        mean, spread = _share_of_draws(heights[rows], each[rows], covariances[part], *shared)
        found[rows] = np.clip(total[rows] * mean, largest[rows], np.minimum(total[rows], 1.0))
        error[rows] = total[rows] * spread / np.sqrt(n_draws)
    return found, error


def _both_below(h: Array, k: Array, covariance: Array, deviations: Array) -> Array:
    """Return P(X <= h, Y <= k) for standard normal X and Y; their correlation is `covariance` over both deviations."""
    product = deviations[:, 0] * deviations[:, 1]
    is_moved = (product > 0) & np.isfinite(h) & np.isfinite(k)
    out = np.zeros(len(h))
    h, k = h[is_moved], k[is_moved]
    r = np.clip(covariance[is_moved] / product[is_moved], -1.0, 1.0)
    # 1 - r^2 is kept above the rounding error of r: closer to 1 or -1, r cannot be told from them
    rest = np.sqrt(np.maximum((1 - r) * (1 + r), np.finfo(float).eps ** 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = [np.where(x == 0, np.sign(y) * np.inf, (y / x - r) / rest) for x, y in ((h, k), (k, h))]
        at_zero = np.arctan2(1 + r, rest) / np.pi
        halves = 0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, slopes[0]) - owens_t(k, slopes[1])
    apart = (h * k < 0) | ((h * k == 0) & (h + k < 0))
    out[is_moved] = np.where((h == 0) & (k == 0), at_zero, halves - 0.5 * apart)
    return out


def _covariances(squares: Array, between: Deviation, rows: NDArray[np.intp]) -> Array:
    """Return the correlations of the leads of some rows; the rows and columns of leads without deviation are 0."""
    n_rivals = squares.shape[1]
    own = squares[rows]
    out = np.zeros((len(rows), n_rivals, n_rivals))
    out[:, np.arange(n_rivals), np.arange(n_rivals)] = own
    for k in range(n_rivals):
        for other in range(k):
            apart = np.broadcast_to(np.square(between(k, other)), len(squares))[rows]
            out[:, k, other] = out[:, other, k] = 0.5 * (own[:, k] + own[:, other] - apart)
    scale = np.sqrt(np.where(own > 0, own, 1.0))
    return out / (scale[:, :, None] * scale[:, None, :])


def _share_of_draws(
    heights: Array, each: Array, correlations: Array, pick: Array, tail: Array, normals: Array
) -> tuple[Array, Array]:
    """Return mean and standard deviation of 1 / (number of rivals that win), over draws in which some rival wins."""
    extents, basis = np.linalg.eigh(correlations)
    factors = basis * np.sqrt(np.maximum(extents, 0.0))[:, None, :]
    moves = normals @ factors.transpose(0, 2, 1)
    shares = np.cumsum(each, axis=1)
    shares = shares / shares[:, -1:]
    winner = np.minimum((pick[:, None] >= shares[:, None, :-1]).sum(axis=2), heights.shape[1] - 1)
    rows = np.arange(len(heights))[:, None]
    own = np.take_along_axis(moves, winner[:, :, None], axis=2)[:, :, 0]
    # the chosen rival wins: in units of its deviation, the lead falls by more than its height
    fallen = ndtri(tail * each[rows, winner])
    moves += (fallen - own)[:, :, None] * correlations[rows, winner]
    wins = moves < -heights[:, None, :]
    np.put_along_axis(wins, winner[:, :, None], True, axis=2)
    inverse = 1.0 / wins.sum(axis=2)
    return inverse.mean(axis=1), inverse.std(axis=1)
