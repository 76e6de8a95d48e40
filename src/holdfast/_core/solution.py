"""The result of a solver: parameters, status and advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.row_sets import RowSets


class Status(Enum):
    """The reason why a solver stopped. The value is advice for the user."""

    SOLVED = "Solved: nothing to do."
    ITERATION_LIMIT = "Stopped at max_iter. Raise max_iter, or raise tol if this accuracy is enough."
    SLOW = (
        "Stopped at max_iter; steps that are cheap gain their last digits slowly. Raise tol if this accuracy is enough. "
        "With a few thousand features solver='deletion_interior_point' gets there in minutes."
    )
    STALLED = (
        "No further progress is possible in floating point at this point. Put the features on similar scales "
        "(StandardScaler), or raise tol if this accuracy is enough."
    )
    ROUGH = (
        "All epochs of stochastic steps are done: a rough solution, and on features that are neither centred nor scaled a poor "
        "one. For a certified one use solver=None ('newton', 'quasi_newton', ...); or raise epochs, or raise tol if this "
        "accuracy is enough."
    )
    STREAMED = (
        "Trained by partial_fit, which sees no row twice and proves nothing. For a certified gap use fit on all rows."
    )
    AVERAGED = "The mean of the models of all folds, which is the optimum of none. For a certified gap use refit=True."
    CHUNKED = (
        "The mean of the models of n_chunks parts of the rows, which need not be the optimum of all. For a certified one use "
        "n_chunks=1, or raise tol if this accuracy is enough."
    )
    UNCERTIFIED = (
        "The solver is content but the certified gap is above tol. Put the features on similar scales "
        "(StandardScaler), add a small ridge (alpha > 0), or raise tol."
    )
    NO_BOUND = "No lower bound is known for this problem, so its gap is infinite. Add a ridge (alpha > 0) to have one."


class DualGuess(NamedTuple):
    """A guess of the dual weights, and of the points of the sets that balance their pull.

    By default these points are maximizers along `direction`, each row's in inverse proportion to its `scale`.
    """

    slopes: NDArray[np.float64]
    """One number in [0, 1] for each row."""
    direction: NDArray[np.float64]
    scale: NDArray[np.float64]
    sets: RowSets | None = None
    """The sets whose maximizers along the direction balance the pull; None for those of the problem. Smoothed sets are
    allowed, as their maximizers are points of the original sets."""
    push: RowSets | None = None
    """The same for sets that change deficits, besides a noise that losses are averaged over."""
    points: Any = None
    """Points of the sets that balance the pull, as `RowSets.sum_of_points` takes them, if better than maximizers."""
    smoothing: float = 0.0
    """The smoothing of the problem whose slopes the dual weights are; 0 if they come from elsewhere."""


@dataclass
class Solution:
    """The result of a solver.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        Weights, then the intercept if the problem has one.
    status : Status
    objective : float
        The value at `parameters`, as computed by the solver.
    lower_bound : float
        A lower bound on the objective for any parameters, -inf if none is known.
    n_iter : int
        The number of steps in all stages.
    solver : str
        The name of the solver that finished.
    dual : DualGuess or None
        A guess of the dual weights, if there is a better one than the slopes at `parameters`.
    """

    parameters: NDArray[np.float64]
    status: Status
    objective: float
    n_iter: int
    solver: str
    lower_bound: float = -np.inf
    dual: DualGuess | None = field(default=None, repr=False)

    @property
    def advice(self) -> str:
        """Advice for the user on this status, in words."""
        return self.status.value

    def summary(self) -> dict[str, str | int | float]:
        """Return a summary of the solution as plain values, to store with a model."""
        return {
            "status": self.status.name.lower(),
            "advice": self.advice,
            "solver": self.solver,
            "n_iter": self.n_iter,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
        }
