"""The Hessian of several classes for noise that all rows share, computed for all rivals of a class at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array

if TYPE_CHECKING:
    from holdfast._problems.pairwise import PairBends, PairwiseProblem

BLOCK_ENTRIES = 1 << 20
"""Largest number of entries (of rows times classes) processed at once."""


def pair_hessian(problem: PairwiseProblem, W: Array, bends: PairBends) -> Array:
    """Return the Hessian at W from the losses' second derivatives, if all rows share one set."""
    C, d, p = problem.n_classes, problem.rows.n_features, problem.n_parameters_per_class
    points = np.zeros((C, C, p))
    points[:, :, :d] = problem.own_sets[0].maximizers_at((W[:, None] - W).reshape(C * C, d)).reshape(C, C, d)
    between = _of_sets_and_ridge(problem, W, bends)
    kept: list[Array] = []
    shared = np.zeros((C * p, C * p))
    for k, own in enumerate(problem.members):
        for rows, X in _bent_rows(problem, k, own, bends):
            uu, ut, tt = (part[rows] for part in bends[1:4])
            scaled = np.sqrt(np.maximum(uu, 0.0)).T[:, :, None] * X
            between[k] += scaled.transpose(0, 2, 1) @ scaled
            # (x - point)(x - point)' without the term in x alone
            across = (0.5 * tt.sum(axis=0)[:, None] * points[k] - ut.T @ X)[:, :, None] * points[k][:, None, :]
            between[k] += across + across.transpose(0, 2, 1)
            if bends.shared is not None:
                kept.append(_moves(k, X, points[k], bends.shared[0][rows], bends.shared[1][rows]))
            # products of a few rows cost as much as products of as many rows as there are parameters
            if sum(map(len, kept)) >= C * p:
                shared += _squared(kept)
    if kept:
        shared += _squared(kept)
    between += between.transpose(1, 0, 2, 3)
    between[np.arange(C), np.arange(C)] = 0.0
    # only differences of two classes' parameters matter
    whole = -between
    whole[np.arange(C), np.arange(C)] = between.sum(axis=1)
    return np.asarray(whole.transpose(0, 2, 1, 3).reshape(C * p, C * p) - shared)


def _bent_rows(
    problem: PairwiseProblem, k: int, own: NDArray[np.intp], bends: PairBends
) -> Iterator[tuple[NDArray[np.intp], Array]]:
    """Yield the rows of a class with curvature, many at a time, with a last column of ones for the intercept."""
    parts = [bends.uu, bends.ut, *(bends.shared or ())]
    some = np.flatnonzero(np.any([np.any(part[own] != 0, axis=1) for part in parts], axis=0))
    rows = problem.rows_by_class[k].take(some)
    size = max(64, BLOCK_ENTRIES // problem.n_parameters)
    for block, dense in rows.dense_blocks():
        X = np.column_stack([dense, np.ones(len(dense))]) if problem.fit_intercept else dense
        these = own[some[block]]
        for start in range(0, len(X), size):
            yield these[start : start + size], X[start : start + size]


def _moves(k: int, X: Array, points: Array, p: Array, q: Array) -> Array:
    """Return the vectors of rows X of class k whose squares are subtracted, shape (n_rows, n_classes * p)."""
    moves = q[:, :, None] * points - p[:, :, None] * X[:, None, :]
    moves[:, k] = 0.0
    moves[:, k] = -moves.sum(axis=1)
    return moves.reshape(len(X), -1)


def _squared(kept: list[Array]) -> Array:
    """Return the sum of the vectors' squares, and clear the list."""
    moves = np.concatenate(kept)
    kept.clear()
    return np.asarray(moves.T @ moves)


def _of_sets_and_ridge(problem: PairwiseProblem, W: Array, bends: PairBends) -> Array:
    """Return the set's and the ridge's part for each ordered pair, shape (n_classes, n_classes, p, p)."""
    C, d, p = problem.n_classes, problem.rows.n_features, problem.n_parameters_per_class
    sets, pairs = problem.own_sets[0], np.array(list(permutations(range(C), 2)))
    slopes = np.array([bends.scale_slopes[own].sum(axis=0) for own in problem.members])
    if sets.is_symmetric:
        slopes, pairs = slopes + slopes.T, pairs[pairs[:, 0] < pairs[:, 1]]
    k, other = pairs.T
    out = np.zeros((C, C, p, p))
    out[k, other, :d, :d] = sets.bends_at(W[k] - W[other], np.diag(slopes[k, other]))
    out[:, :, np.arange(d), np.arange(d)] += problem.alpha / C
    return out
