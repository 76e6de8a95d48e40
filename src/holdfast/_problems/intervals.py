"""A problem as an interval program, if its sets are boxes and its loss is a worst case."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import rescaled
from holdfast._core.programs import IntervalProgram
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem


def is_interval(problem: MarginScaleProblem) -> bool:
    """Return whether the sets are boxes and the loss is known through its dual."""
    loss = problem.loss
    is_plain = problem.tilt is None and problem.push is None and loss.has_affine_scale
    return is_plain and problem.sets.interval_form() is not None


@MarginScaleProblem.seen_as(IntervalProgram, is_interval)
def interval_program(problem: MarginScaleProblem) -> IntervalProgram:
    """Return the problem with rows at the centres of their boxes; the part outside of the loss becomes a price."""
    form = problem.sets.interval_form()
    assert form is not None
    loss, c, n = problem.loss, problem.weights, problem.rows.n_features
    common, own, centre = np.broadcast_to(form.common, n), form.own, form.centre
    outside = loss.outside
    inside, rows, tilt = 1 - outside, problem.rows, np.zeros(n)
    total = float(c.sum()) * common + (0.0 if own is None else np.asarray(own.T @ c))
    if centre is not None:
        tilt = outside * np.asarray(centre.T @ c)
        offsets = rescaled(centre, inside * problem.signs)
        blocks = [block.astype(np.float64) - offsets[part] for part, block in problem.rows.blocks()]
        rows = rows_of(sparse.vstack(blocks) if sparse.issparse(blocks[0]) else np.concatenate(blocks))
    penalty = problem.penalty
    return IntervalProgram(
        rows,
        problem.signs,
        c,
        inside * common,
        None if own is None else inside * own,
        outside * total + (0.0 if penalty is None else penalty.absolute),
        tilt,
        problem.alpha,
        np.inf if penalty is None else penalty.limit,
        problem.fit_intercept,
        loss.dual_limit,
        lambda x: loss.evaluate(x, np.zeros(()))[0],
        loss.dual_value,
        loss.dual_slope,
        loss.dual_bend,
        problem.target,
    )
