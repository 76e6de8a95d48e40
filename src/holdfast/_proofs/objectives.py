"""The objective of two classes by its definition, computed independently of the solvers."""

from __future__ import annotations

import numpy as np

from holdfast._core.chunks import stretches
from holdfast._core.loss import Array
from holdfast._problems.margin_scale import MarginScaleProblem


def objective_at(problem: MarginScaleProblem, w: Array, b: float, scores: Array, t: Array) -> float:
    """Return the objective at (w, b) from the scores w'x of the rows and the supports t of their sets, by definition."""
    c, pushed, losses = problem.weights, problem.push_of(w), 0.0
    n = len(scores)
    # losses that are cheaper for all rows at once are not computed in stretches
    for part in stretches(n) if problem.loss.is_rowwise else (slice(0, n),):
        target, push, own = (np.asarray(each)[part] if np.ndim(each) else each for each in (problem.target, pushed, t))
        deficits = target - problem.signs[part] * (scores[part] + b) + problem.kappa * push
        losses += float(c[part] @ problem.loss.value(deficits, np.asarray(own)))
    if problem.kappa != 1:
        losses += (1 - problem.kappa) * float(np.sum(c * pushed))
    return losses + 0.5 * problem.alpha * float(w @ w) + _penalty_at(problem, w)


def _penalty_at(problem: MarginScaleProblem, w: Array) -> float:
    """Return the part of the objective that is a multiple of the l1 norm, inf where some weight exceeds its limit."""
    if problem.penalty is None:
        return 0.0
    # a weight at its limit may exceed it by a rounding error
    is_beyond = bool(np.any(np.abs(w) > problem.penalty.limit * (1 + 4 * np.finfo(float).eps)))
    return np.inf if is_beyond else problem.penalty.absolute * float(np.sum(np.abs(w)))
