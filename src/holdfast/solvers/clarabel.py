"""The conic interior-point solver Clarabel, for problems with a cone program, and as a check on other solvers."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.problem import Problem
from holdfast._core.programs import ConeProgram
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent


class Clarabel(Solver):
    """Clarabel on the problem's cone program. Accurate on small problems, slow on large ones."""

    name = "clarabel"
    needs = (ConeProgram,)

    def preference(self, work: dict[str, Any]) -> float:
        return 0.0

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        import clarabel

        program = problem.view(ConeProgram)
        assert program is not None
        kinds = {
            "zero": clarabel.ZeroConeT,
            "nonnegative": clarabel.NonnegativeConeT,
            "second_order": clarabel.SecondOrderConeT,
            "exponential": lambda size: clarabel.ExponentialConeT(),
        }
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        # Clarabel takes some 30 steps where it succeeds; after 500 it never will
        settings.max_iter = min(max_iter, 500)
        # a tenth of `tol`, as the proof is made from rounded points; below 1e-9 Clarabel itself seldom succeeds
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = min(max(0.1 * tol, 1e-9), 1e-8)
        cones = [kinds[kind](size) for kind, size in program.cones]
        found = clarabel.DefaultSolver(program.P, program.q, program.A, program.b, cones, settings).solve()
        report(f"clarabel: {found.status} after {found.iterations} iterations")
        # "AlmostSolved" is not solved: Clarabel says it when it could not reach the accuracy asked for
        status = {"Solved": Status.SOLVED, "MaxIterations": Status.ITERATION_LIMIT}.get(
            str(found.status), Status.STALLED
        )
        parameters, dual = program.parameters_and_dual(np.array(found.x), np.array(found.z))
        value = found.obj_val + program.constant
        return Solution(parameters, status, value, max(1, found.iterations), self.name, dual=dual)
