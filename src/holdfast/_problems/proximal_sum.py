"""A problem of two classes as a sum over rows, for solvers that step on batches of rows."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array
from holdfast._core.programs import ProximalSum
from holdfast._problems.certified_gap import certified_gap
from holdfast._problems.margin_scale import MarginScaleProblem


@MarginScaleProblem.seen_as(ProximalSum, lambda problem: problem.is_plain)
def proximal_sum(problem: MarginScaleProblem) -> ProximalSum:
    r"""Return the losses of rows at their worst points as f, ridge and penalty as g.

    The proximal step of both together is that of the penalty alone, for the shrunk weights and a shrunk step:
    :math:`\mathrm{prox}_{sp/(1 + s\alpha)}(w / (1 + s\alpha))`. The intercept stays as it is.
    """
    bare = problem.having(alpha=0.0, penalty=None)

    def gradient(rows: NDArray[np.intp], gains: Array, parameters: Array) -> Array:
        return bare.restricted(rows, gains).value_and_gradient(parameters)[1]

    def proximal(parameters: Array, step: float) -> Array:
        w, b = problem.split(parameters)
        shrink = 1 + step * problem.alpha
        w = w / shrink
        return problem.join(w if problem.penalty is None else problem.penalty.proximal(w, step / shrink), b)

    def entry_sums() -> Array:
        rows = problem.rows.arrays()
        return np.array([problem.weights @ rows.square_norms(), problem.weights @ rows.counts()])

    is_intercept = np.arange(problem.n_parameters) >= problem.rows.n_features
    return ProximalSum(
        problem.weights, gradient, proximal, problem.alpha, is_intercept, entry_sums, partial(certified_gap, problem)
    )
