"""Coordinate descent: steps in one parameter, without a line search; boosting, if parameters weight weak learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.allowed import Choice
from holdfast._core.problem import Coordinates, Coordinatewise, Problem
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import ROUNDING


class CoordinateDescent(Solver):
    """Steps that minimise a majoriser: in each parameter in turn, in the most promising one, or in all at once.

    The objective falls at every step. This is how boosting proceeds. "newton" gets exact results much sooner, above all
    for large weights of the losses, which make steps here short.

    Parameters
    ----------
    rule : {"cyclic", "greedy", "parallel"}, default="cyclic"
        An iteration is a step in each parameter in turn; in the parameter with the largest guaranteed decrease of the
        objective, a round of boosting; or in all at once.
    """

    name = "coordinate_descent"
    needs = (Coordinatewise,)
    takes = "LaplaceBoostClassifier with loss='log' or 'exp' offers it. "
    parameter_table = {"rule": Choice("cyclic", "greedy", "parallel")}

    def __init__(self, rule: str = "cyclic"):
        self.rule = rule

    def preference(self, work: dict[str, Any]) -> float:
        return 0.0

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        self.check_parameters()
        view = problem.view(Coordinatewise)
        assert view is not None
        place = view.coordinates(start)
        status, n_iter, before = Status.ITERATION_LIMIT, 0, np.inf
        for n_iter in range(1, max_iter + 1):
            getattr(self, f"_{self.rule}")(place, n_iter)
            gap, value = place.gap(), place.value
            report(f"coordinate descent {n_iter}: objective {value:.10g}, estimated gap {gap:.2e}")
            if gap <= tol or value <= view.enough:
                status = Status.SOLVED
                break
            if n_iter % place.n_blocks == 0 or self.rule != "greedy":
                if before - value <= ROUNDING * abs(value):
                    status = Status.STALLED
                    break
                before = value
        return Solution(place.parameters, status, place.value, n_iter, self.name)

    def _cyclic(self, place: Coordinates, n_iter: int) -> None:
        for block in range(place.n_blocks):
            place.move(block)

    def _greedy(self, place: Coordinates, n_iter: int) -> None:
        place.move(int(np.argmax(place.gains())))
        if n_iter % place.n_blocks == 0:
            place.settle()

    def _parallel(self, place: Coordinates, n_iter: int) -> None:
        place.move_all()
        place.settle()

    @classmethod
    def examples(cls) -> list[CoordinateDescent]:
        return [cls(), cls("greedy"), cls("parallel")]
