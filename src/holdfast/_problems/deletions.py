"""A problem as one of deleted features, if its sets are deletions and its loss is the hinge."""

from __future__ import annotations

import numpy as np

from holdfast._core.programs import DeletionProgram
from holdfast._problems.margin_scale import MarginScaleProblem


def is_deletion(problem: MarginScaleProblem) -> bool:
    """Return whether sets are deletions of features, the loss is the hinge, and a ridge or limit holds the weights."""
    loss, penalty = problem.loss, problem.penalty
    is_hinge = loss.has_affine_scale and loss.is_homogeneous and loss.dual_limit == 1.0 and loss.outside == 0
    is_plain = is_hinge and problem.tilt is None and problem.push is None and bool(np.all(problem.target == 1.0))
    is_held = problem.alpha > 0 if penalty is None else not np.any(penalty.absolute)
    return is_plain and is_held and problem.sets.deletion_form() is not None


@MarginScaleProblem.seen_as(DeletionProgram, is_deletion)
def deletion_program(problem: MarginScaleProblem) -> DeletionProgram:
    """Return the problem for the structured interior point: the margin is 1 whatever is deleted."""
    form, n = problem.sets.deletion_form(), problem.rows.n_features
    assert form is not None
    return DeletionProgram(
        problem.rows,
        problem.signs,
        problem.weights,
        form.values,
        form.capacity,
        np.zeros(n),
        base=1.0,
        ridge=problem.alpha,
        limit=np.inf if problem.penalty is None else problem.penalty.limit,
        floor=problem.floor,
        fit_intercept=problem.fit_intercept,
        is_spent=form.is_spent,
        points=form.points,
    )
