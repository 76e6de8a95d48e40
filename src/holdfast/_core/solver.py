"""The protocol of solvers: a solver states the views it needs, and minimises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._core.parameters import Parameters
from holdfast._core.problem import Problem
from holdfast._core.solution import Solution

Array = NDArray[np.float64]
Report = Callable[[str], None]


def silent(message: str) -> None:
    """Report nothing."""


class Solver(Parameters, ABC):
    """A minimisation algorithm with its settings."""

    name: ClassVar[str]
    """The string that names the solver in the `solver` parameter of an estimator."""
    needs: ClassVar[tuple[type, ...]]
    """The views it needs of a problem."""
    takes: ClassVar[str] = ""
    """The problems that offer these views, for error messages, if this is not obvious."""
    accuracy: ClassVar[float] = 1e-6
    """The expected excess over the optimum, relative to it, on problems of moderate scale."""

    passes_a_step: ClassVar[int] = 1
    """Passes over the rows that a usual step takes; one that takes many times as many counts as several steps of `max_iter`."""

    @abstractmethod
    def preference(self, work: dict[str, Any]) -> float:
        """Return how well the solver suits a problem of these sizes; of suitable solvers the highest number wins."""

    @abstractmethod
    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        """Return the best parameters found from `start`.

        The solver may stop if its own estimate of the relative gap is below `tol`; 0 asks for the best that floating
        point allows. A `rough` solution, used only as a start for another solver, may stop if the next step promises
        less than `tol`.
        """

    def stand_in(self, work: dict[str, Any]) -> Solver | None:
        """Return the solver to continue with if this one was not chosen by the user and ends above `tol`, or None."""
        return None

    def seeded(self, random_state: Any) -> Solver:
        """Return the solver with this source of randomness; itself if it needs none or has its own."""
        return self

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Return instances on which all tests of solvers run."""
        return [cls()]
