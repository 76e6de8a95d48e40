"""Newton's method for functions whose slopes have kinks: factorised steps, each searched exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from holdfast._core.problem import Composite, Curved, LocalModel, Problem
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED, ROUNDING, VANISHING
from holdfast.solvers.newton import Newton, newton_step
from holdfast.solvers.plane_search import best_along

AS_PROMISED = 0.8
"""A full step that gains this share of its promise is taken without a search, which could gain little more."""
FRUITLESS = 0.01
"""A step that gains less than this share of its promise came from a wrong model."""

CRAWLING, PATIENCE = 0.1, 8
"""Share of its promise below which a step crawls, and the crawling steps in a row that end exact searches."""


class Semismooth(Solver):
    """Newton steps with one of the Hessians at a kink, each followed by the best scale, step length and intercept.

    Where slopes have kinks the quadratic model is right on one side only. The exact search along the step makes up for
    this, and only improvements are accepted. Rows whose loss has no curvature cost nothing in the Hessian.
    """

    name = "semismooth"
    needs = (Composite, Curved)

    def preference(self, work: dict[str, Any]) -> float:
        return 3.0 if work.get("has_kinks", False) and work["is_cheap_to_factorise"] else 0.4

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view, curved = problem.view(Composite), problem.view(Curved)
        assert view is not None
        assert curved is not None
        here = view.at(np.array(start, dtype=np.float64))
        flat = VANISHING * curved.typical_curvature()
        status, n_iter, whole, crawled = Status.ITERATION_LIMIT, 0, False, 0
        for n_iter in range(1, max_iter + 1):
            if here.value <= view.enough or (not rough and here.gap(here.gradient) <= tol):
                status = Status.SOLVED
                break
            step, decrement = newton_step(here.hessian(whole=whole), here.gradient, flat)
            scale = max(abs(here.value), abs(view.enough))
            promise = decrement / scale
            report(f"semismooth {n_iter}: objective {here.value:.10g}, next step {promise:.2e}")
            if promise <= POLISHED:
                here = _polished(view, here, step)
                status = Status.SOLVED
                break
            found = best_along(here, step, 1e-2 * min(promise, 1.0), AS_PROMISED * decrement)
            if not found.value < here.value:
                status = Status.SOLVED if promise <= 1e-9 else Status.STALLED
                here = _polished(view, here, step)
                break
            # after a step that led nowhere, use the whole Hessian: its smallest parts may be all the curvature there is
            whole = whole or here.value - found.value < FRUITLESS * decrement
            crawled = crawled + 1 if here.value - found.value < CRAWLING * decrement else 0
            here = found
            if crawled >= PATIENCE and n_iter < max_iter:
                # exact searches stop where the next row meets a kink; damped steps pass many kinks
                goal = tol if rough else 0.0
                rest = Newton().minimise(problem, here.parameters, tol=goal, max_iter=max_iter - n_iter, report=report)
                return replace(rest, n_iter=n_iter + rest.n_iter, solver=self.name)
            if rough and promise <= tol:
                status = Status.SOLVED
                if tol < POLISHED:
                    here = _polished(view, here, newton_step(here.hessian(), here.gradient, flat)[0])
                break
        return Solution(here.parameters, status, here.value, n_iter, self.name)


def _polished(view: Composite, here: LocalModel, step: Array) -> LocalModel:
    """Return the point after one full step if its gradient is shorter: values here differ by rounding only."""
    there = view.at(here.parameters + step)
    is_as_low = there.value <= here.value * (1 + ROUNDING)
    return there if is_as_low and np.linalg.norm(there.gradient) < np.linalg.norm(here.gradient) else here
