"""Newton's method that keeps the slopes of rounded kinks, for starts that are near but not within the rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.problem import Problem, Rounded, RoundedModel
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED, ROUNDING, VANISHING
from holdfast.solvers.newton import newton_step

SHORTEST = 1e-8
"""Share of a step below which a search gives up."""


class LaggedNewton(Solver):
    """Newton steps on the parameters and on the slopes of all rounded terms, which follow their linearised law.

    Those of Chan, Golub and Mulet, primal and dual: half as many steps as plain ones from a neighbour's solution, and hardly
    any of them has to be shortened.

    Parameters
    ----------
    slopes : ndarray, default=None
        Those of the first terms to begin with, such as a neighbour's; None: those at the start, as for all other terms.
    """

    name = "lagged_newton"
    needs = (Rounded,)

    def __init__(self, slopes: Array | None = None):
        self.slopes = slopes

    def preference(self, work: dict[str, Any]) -> float:
        return -1.0  # only paths have the starts that it is for

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
    """Return a point along the step that improves enough, halving it where need be; None where there is none."""
    length = 1.0
    while length > SHORTEST:
        there = view.rounded_at(here.parameters + length * step)
        if there.value <= here.value - 2e-4 * length * decrement + ROUNDING * abs(here.value):
            return there
        length *= 0.5
    return None
