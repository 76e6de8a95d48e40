"""A linear problem as a sum over rows, for solvers that visit rows one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from holdfast._core.programs import FiniteSum
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import RowArrays
from holdfast._problems.certified_gap import certified_gap
from holdfast._problems.linear import LinearProblem


@LinearProblem.seen_as(FiniteSum, lambda problem: problem.offers_steps)
def finite_sum(problem: LinearProblem) -> FiniteSum:
    """Return the problem with one weight vector, that of the positive class, or with one for each class."""
    return FiniteSum(
        rows=problem.rows.arrays(),
        n_features=problem.rows.n_features,
        labels=problem.codes.astype(np.int64),
        weights=problem.weights,
        loss=problem.loss,
        **steps_for(problem.sets, problem.rows.n_features),
        largest_scale_slope=problem.loss.largest_scale_slope(),
        ridge=problem.ridge_per_vector,
        n_vectors=problem.n_vectors,
        fit_intercept=problem.fit_intercept,
        norm_bound=problem.known_norm_bound,
        certify=partial(certified_gap, problem),
    )


def steps_for(sets: RowSets, n_features: int) -> dict[str, Any]:
    """Return the kernel for the noise, the noise's deviations in its format, and the largest deviation."""
    s = sets.deviations()
    assert s is not None
    if s.ndim == 0:
        return {"kernel": "lazy_steps", "noise": (float(s),), "largest_deviation": float(s)}
    noise = RowArrays.of(s if s.ndim == 2 else s.reshape(1, n_features))
    return {"kernel": "plain_steps", "noise": tuple(noise), "largest_deviation": float(noise.values.max(initial=0.0))}
