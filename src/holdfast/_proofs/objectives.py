"""The objective of two classes by its definition, apart from what solvers see."""

from __future__ import annotations

import numpy as np

from holdfast._core.loss import Array
from holdfast._problems.margin_scale import MarginScaleProblem


def objective_at(problem: MarginScaleProblem, w: Array, b: float, scores: Array, t: Array) -> float:
    """Return the objective at (w, b) from the scores w'x of the rows and the supports t of their sets, by definition."""
    c, pushed = problem.weights, problem.push_of(w)
    deficits = problem.target - problem.signs * (scores + b) + problem.kappa * pushed
    losses = float(c @ problem.loss.value(deficits, t)) + (1 - problem.kappa) * float(np.sum(c * pushed))
    return losses + 0.5 * problem.alpha * float(w @ w) + _penalty_at(problem, w)


def _penalty_at(problem: MarginScaleProblem, w: Array) -> float:
    """Return the part of the objective that is a multiple of the l1 norm, inf where some weight exceeds its limit."""
    if problem.penalty is None:
        return 0.0
    # a weight at its limit may be beyond it by rounding
    is_beyond = bool(np.any(np.abs(w) > problem.penalty.limit * (1 + 4 * np.finfo(float).eps)))
    return np.inf if is_beyond else problem.penalty.absolute * float(np.sum(np.abs(w)))
