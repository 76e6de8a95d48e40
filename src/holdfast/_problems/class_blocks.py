"""The diagonal blocks of the Hessian of several classes, one a class, for noise that all rows share."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.loss import Array

if TYPE_CHECKING:
    from holdfast._problems.pairwise import PairBends, PairwiseProblem


def class_blocks(problem: PairwiseProblem, W: Array, bends: PairBends) -> Array:
    """Return one block a class, shape (n_classes, p, p), where the rows' losses bend so.

    All rows have one set, so a few products of matrices stand for the sums over pairs: a row bends the block of a class that
    is not its own by its loss against that class alone, that of its own by all its losses.
    """
    C, d = problem.n_classes, problem.rows.n_features
    points = problem.own_sets[0].maximizers_at((W[:, None] - W).reshape(C * C, d)).reshape(C, C, d)
    uu, ut, tt = bends.uu, bends.ut, bends.tt
    p, q = (np.zeros((2, *uu.shape))) if bends.shared is None else bends.shared
    # what the losses of a row share is taken off by a square, of p and q alone for classes that are not its own
    weights, mixed, squares = uu - p * p, ut - p * q, tt - q * q
    crosses, borders, blocks = np.zeros((C, d, d)), np.zeros((C, d)), np.zeros((C, d, d))
    for k, own in enumerate(problem.members):
        rows, together = problem.rows_by_class[k], p[own].sum(axis=1)
        weights[own, k] = uu[own].sum(axis=1) - together**2
        by_own = ut[own] - together[:, None] * q[own]
        by_own[:, k] = 0.0
        pulled = rows.transpose_dot(np.hstack([by_own, mixed[own]])).T
        crosses[k] += pulled[:C].T @ points[k]
        crosses += pulled[C:, :, None] * points[k][:, None, :]
        borders[k] += by_own.sum(axis=0) @ points[k]
        borders += mixed[own].sum(axis=0)[:, None] * points[k]
        spread = np.diag(tt[own].sum(axis=0)) - q[own].T @ q[own]
        blocks[k] += points[k].T @ spread @ points[k]
        blocks += (squares[own].sum(axis=0)[:, None] * points[k])[:, :, None] * points[k][:, None, :]
    return _joined(problem, W, bends, np.maximum(weights, 0.0), blocks - crosses - crosses.transpose(0, 2, 1), borders)


def _joined(
    problem: PairwiseProblem, W: Array, bends: PairBends, weights: Array, blocks: Array, borders: Array
) -> Array:
    """Return the blocks with what rows, the bends of the set, the ridge and the intercepts contribute."""
    C, d, p = problem.n_classes, problem.rows.n_features, problem.n_parameters_per_class
    out = np.zeros((C, p, p))
    out[:, :d, :d] = blocks
    pulled, none = problem.rows.transpose_dot(weights).T, np.zeros(())
    slopes = np.array([bends.scale_slopes[own].sum(axis=0) for own in problem.members])
    for k, other in combinations(range(C), 2):
        w, sets = W[k] - W[other], problem.own_sets[0]
        if sets.is_symmetric:
            bend = sets.curvature(w, slopes[k, other] + slopes[other, k], none)
        else:
            bend = sets.curvature(w, slopes[k, other], none) + sets.curvature(-w, slopes[other, k], none)
        out[k, :d, :d] += bend
        out[other, :d, :d] += bend
    for k in range(C):
        out[k, :d, :d] += problem.rows.gram(weights[:, k])
        out[k, np.arange(d), np.arange(d)] += 2 * problem.alpha * (C - 1) / C
        out[k, d:, :d] = out[k, :d, d:].T[:] = pulled[k] - borders[k]
        out[k, d:, d:] = weights[:, k].sum()
    return out
