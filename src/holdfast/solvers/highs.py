"""The linear-programming solver HiGHS, for problems with a linear program."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from holdfast._core.problem import Problem
from holdfast._core.programs import LinearProgram
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent

METHODS = ("highs", "highs-ds", "highs-ipm")
FEASIBILITY = 1e-10
"""Tolerance on constraints and reduced costs, the smallest that HiGHS accepts."""


class Highs(Solver):
    """HiGHS on the problem's linear program: it ends in a vertex, exact to rounding, with many weights exactly 0.

    Parameters
    ----------
    method : {"highs", "highs-ds", "highs-ipm"}, default="highs"
        HiGHS's own choice, its dual simplex or its interior-point method. One step of `max_iter` is as many HiGHS
        iterations as there are constraints.

    Examples
    --------
    >>> from holdfast import Box, RobustLinearClassifier
    >>> model = RobustLinearClassifier(Box(0.1), penalty="l1", solver=Highs())
    >>> model.fit([[0.0, 1.0], [2.0, 1.0]], [0, 1]).coef_.round(2) + 0.0
    array([[1.11, 0.  ]])
    """

    name = "highs"
    needs = (LinearProgram,)
    takes = "It takes the hinge loss with boxes or l1 balls, and l1, box or no penalty. "

    def __init__(self, method: str = "highs"):
        self.method = method

    def preference(self, work: dict[str, Any]) -> float:
        return 0.0

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        if self.method not in METHODS:
            raise ValueError(f"{self!r}: no such method. Choose one of {', '.join(map(repr, METHODS))}.")
        program = problem.view(LinearProgram)
        assert program is not None
        is_equal = np.repeat([kind == "zero" for kind, _ in program.cones], [size for _, size in program.cones])
        A, b = program.A.tocsr(), program.b
        found = linprog(
            program.q,
            A_ub=A[~is_equal],
            b_ub=b[~is_equal],
            A_eq=A[is_equal],
            b_eq=b[is_equal],
            bounds=(None, None),
            method=self.method,
            options={
                # a vertex method takes about as many pivots as there are constraints: that many count as one step
                "maxiter": min(max_iter * len(b), np.iinfo(np.int32).max),
                "primal_feasibility_tolerance": FEASIBILITY,
                "dual_feasibility_tolerance": FEASIBILITY,
            },
        )
        report(f"highs: {found.message} {found.nit} iterations")
        status = {0: Status.SOLVED, 1: Status.ITERATION_LIMIT}.get(found.status, Status.STALLED)
        steps = min(max_iter, max(1, -(-found.nit // len(b))))
        if found.x is None:
            zero = np.zeros(program.n_parameters)
            return Solution(zero, status, np.inf, steps, self.name)
        multipliers = np.empty(len(b))
        # SciPy returns the derivatives of the optimum, whose signs are opposite
        multipliers[~is_equal], multipliers[is_equal] = -found.ineqlin.marginals, -found.eqlin.marginals
        parameters, dual = program.parameters_and_dual(found.x, multipliers)
        return Solution(parameters, status, found.fun + program.constant, steps, self.name, dual=dual)
