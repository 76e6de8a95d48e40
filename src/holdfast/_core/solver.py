"""What a solver is: it states which views it needs, and minimises."""

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
    """An algorithm with its settings."""

    name: ClassVar[str]
    """The string that stands for it at an estimator's door."""
    needs: ClassVar[tuple[type, ...]]
    """Views it asks of a problem."""
    takes: ClassVar[str] = ""
    """For an error message: which problems offer those views, where that is not obvious."""
    accuracy: ClassVar[float] = 1e-6
    """Excess over the optimum, as a share of it, that can be expected on problems of moderate scale."""

    passes_a_step: ClassVar[int] = 1
    """Passes over the rows that a usual step takes; one that takes many times as many counts as several steps of `max_iter`."""

    @abstractmethod
    def preference(self, work: dict[str, Any]) -> float:
        """Return how well it suits a problem of these sizes; the fitting solver with the highest number is picked."""

    @abstractmethod
    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        """Return the best parameters found from `start`.

        It may stop when its own estimate of the relative gap is below `tol`; 0 asks for all that floating point allows. A
        `rough` solution, a mere start for something else, is done when the next step promises less than `tol`.
        """

    def stand_in(self, work: dict[str, Any]) -> Solver | None:
        """Return the solver that takes over where nobody chose this one and it ends above `tol`, None where none should."""
        return None

    def seeded(self, random_state: Any) -> Solver:
        """Return the solver with this source of randomness, itself where it needs none or has its own."""
        return self

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Return instances that every test of a solver is run on."""
        return [cls()]
