"""The diagonal blocks of the Hessian of several classes, one for each class, for noise that all rows share."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.rows import Rows

if TYPE_CHECKING:
    from holdfast._problems.pairwise import PairBends, PairwiseProblem

MANY_ENTRIES = 50_000
"""From this number of entries on, products of the rows are in single precision."""
ALIKE = 0.9
"""Class means replace the weights if their squares make up at least this share of the squares of the weights."""
SINGLE = 1e-6
"""Share of a block's diagonal that is added to it in single precision, more than rounding can take away."""


def class_blocks(problem: PairwiseProblem, W: Array, bends: PairBends) -> Array:
    """Return one block for each class, shape (n_classes, p, p), from the second derivatives of the rows' losses.

    All rows have one set, so a few matrix products replace the sums over pairs. To the block of a rival class a row
    contributes its loss against that class only; to the block of its own class, all its losses. A block consists of the
    rows' products with these second derivatives as weights, and a few vectors for each pair of classes.
    """
    C, d = problem.n_classes, problem.rows.n_features
    points = problem.own_sets[0].maximizers_at((W[:, None] - W).reshape(C * C, d)).reshape(C, C, d)
    uu, ut, tt = bends.uu, bends.ut, bends.tt
    p, q = (np.zeros((2, *uu.shape))) if bends.shared is None else bends.shared
    # the coupling of a row's losses is subtracted as a square, of p and q alone for rival classes
    weights, mixed, squares = uu - p * p, ut - p * q, tt - q * q
    pulled, sums = np.zeros((C, 2 * C, d)), np.zeros((C, 2 * C))
    spreads = np.zeros((C, 2 * C, 2 * C))
    for k, own in enumerate(problem.members):
        together = p[own].sum(axis=1)
        weights[own, k] = uu[own].sum(axis=1) - together**2
        by_own = ut[own] - together[:, None] * q[own]
        by_own[:, k] = 0.0
        both = np.hstack([by_own, mixed[own]])
        pulled[k], sums[k] = problem.rows_by_class[k].transpose_dot(both).T, both.sum(axis=0)
        spreads[k, :C, :C] = np.diag(tt[own].sum(axis=0)) - q[own].T @ q[own]
        spreads[:, C + k, C + k] = squares[own].sum(axis=0)
    out = _of_sets_and_ridge(problem, W, bends)
    rows, weights = quick(problem.rows), np.maximum(weights, 0.0)
    heights = problem.rows.transpose_dot(weights).T
    grams = _grams(problem, rows, weights)
    for k in range(C):
        # the row's own class first, then the others' rows
        directions = np.vstack([points[k], points[:, k]])
        crosses = np.vstack([pulled[k, :C], pulled[:, C + k]])
        half = (0.5 * spreads[k] @ directions - crosses).T @ directions
        block = out[k, :d, :d]
        block += half + half.T
        block += grams[k]
        if rows is not problem.rows:
            block[np.diag_indices(d)] *= 1 + SINGLE
        border = heights[k] - sums[k, :C] @ points[k] - sums[:, C + k] @ points[:, k]
        out[k, d:, :d] = out[k, :d, d:].T[:] = border
        out[k, d:, d:] = weights[:, k].sum()
    return out


def quick(rows: Rows) -> Rows:
    """Return the rows in their cheapest form: a metric need not be exact."""
    return rows.quick if rows.n_entries >= MANY_ENTRIES else rows


def _of_sets_and_ridge(problem: PairwiseProblem, W: Array, bends: PairBends) -> Array:
    """Return blocks with the contributions of the set's curvature and of the ridge."""
    C, d, p = problem.n_classes, problem.rows.n_features, problem.n_parameters_per_class
    sets, pairs = problem.own_sets[0], list(permutations(range(C), 2))
    slopes = np.array([bends.scale_slopes[own].sum(axis=0) for own in problem.members])
    if sets.is_symmetric:
        slopes, pairs = slopes + slopes.T, [pair for pair in pairs if pair[0] < pair[1]]
    firsts = np.zeros((C, len(pairs)))
    for i, (k, other) in enumerate(pairs):
        firsts[k, i] = firsts[other, i] = slopes[k, other]
    out = np.zeros((C, p, p))
    out[:, :d, :d] = sets.bends_at(np.array([W[k] - W[other] for k, other in pairs]), firsts)
    out[:, np.arange(d), np.arange(d)] += 2 * problem.alpha * (C - 1) / C
    return out


def _grams(problem: PairwiseProblem, rows: Rows, weights: Array) -> Array:
    """Return the products of the rows with these weights, class by class, shape (n_classes, n_features, n_features).

    Where the rows of a class have about equal weights, the class's products are used with the mean weight.
    """
    means = np.array([weights[own].mean(axis=0) if len(own) else weights[:1].sum(axis=0) for own in problem.members])
    together = float(np.square(means).sum(axis=1) @ [len(own) for own in problem.members])
    alike = ALIKE if rows is not problem.rows else 1 - np.finfo(float).eps
    if together >= alike * float(np.vdot(weights, weights)):
        return np.tensordot(means.T, problem.class_grams, 1)
    return np.array([rows.gram(column) for column in weights.T])
