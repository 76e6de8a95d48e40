"""Newton's method with the slopes of rounded kinks as variables, for starts near a solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.problem import Problem, Rounded, RoundedModel
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED, ROUNDING, VANISHING
from holdfast.solvers.newton import newton_step

SHORTEST = 1e-8
"""A search gives up below this share of the step."""


class LaggedNewton(Solver):
    """Newton steps in the parameters and in the slopes of all rounded terms, which follow their linearised equation.

    This is the primal-dual method of Chan, Golub and Mulet, for starts near a solution but outside the rounding. From a
    neighbour's solution it takes half as many steps as Newton's method, and hardly any of them must be shortened.

    Parameters
    ----------
    slopes : ndarray, default=None
        Initial slopes of the first terms, such as a neighbour's. All other terms begin with their slopes at the start,
        and so do the first terms if None.
    """

    name = "lagged_newton"
    needs = (Rounded,)

    def __init__(self, slopes: Array | None = None):
        self.slopes = slopes

    def preference(self, work: dict[str, Any]) -> float:
        return -1.0  # only paths supply suitable starts

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(Rounded)
        assert view is not None
        here = view.rounded_at(np.array(start, dtype=np.float64))
        slopes = here.slopes
        if self.slopes is not None:
            slopes[: len(self.slopes)] = self.slopes
        flat = VANISHING * view.typical_curvature()
        status, n_iter = Status.ITERATION_LIMIT, 0
        for n_iter in range(1, max_iter + 1):
            if here.value <= view.enough:
                status = Status.SOLVED
                break
            step, decrement = newton_step(here.hessian(slopes), here.gradient, flat)
            report(f"lagged newton {n_iter}: objective {here.value:.10g}, decrement {decrement:.2e}")
            is_last = decrement <= max(tol, POLISHED) * abs(here.value)
            there = _lower(view, here, step, decrement)
            if there is not None:
                slopes, here = here.slopes_after(slopes, step), there
            if is_last or there is None:
                status = Status.SOLVED if is_last else Status.STALLED
                break
        return Solution(here.parameters, status, here.value, n_iter, self.name)


def _lower(view: Rounded, here: RoundedModel, step: Array, decrement: float) -> RoundedModel | None:
    """Return a point along the step, halved if necessary, that improves enough; None if there is no such point."""
    length = 1.0
    while length > SHORTEST:
        there = view.rounded_at(here.parameters + length * step)
        if there.value <= here.value - 2e-4 * length * decrement + ROUNDING * abs(here.value):
            return there
        length *= 0.5
    return None
