"""What is proved of a fit: its objective recomputed from the data, and a number that no other fit can go below."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from holdfast._core.arithmetic import MISSED
from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.certified_gap import certified_gap
from holdfast._problems.linear import LinearProblem
from holdfast._proofs.consistency import consistent
from holdfast._proofs.pulls import sizes_of_sums

UNGUESSED = 1e-6
"""Smoothing whose slopes are taken for dual weights where nobody has a better guess."""
INEXACT = 2e-11
"""What a loss that is an integral without a closed form may be off by."""


class Certificate(NamedTuple):
    """What is proved about a point."""

    objective: float
    """The objective there."""
    lower_bound: float
    """A number that no parameters can go below, up to rounding; -inf where none is known."""
    gap: float
    """(objective - lower_bound) / max(objective, floor), never negative."""
    norm_bound: float = np.inf
    """A number that the optimal weights' l2 norm cannot exceed; inf where none is known."""
    dual: Array | None = None
    """The dual weights, times the rows' own, that prove the bound, shape (n_samples,) or (n_samples, n_classes)."""


@singledispatch
def certificate(problem: LinearProblem, w: Array, b: Any, dual: DualGuess | None = None) -> Certificate:
    """Return the objective at (w, b), a lower bound on the optimum, and their relative distance.

    `dual` is a guess of the dual weights that replaces the slopes at (w, b); it is checked like them.
    """
    raise NotImplementedError(f"No certificate is known for {type(problem).__name__}.")


@certified_gap.register
def gap_of(problem: LinearProblem, parameters: Array) -> tuple[float, float]:
    """Return objective and gap for solvers that report them as they go."""
    proof = certificate(problem, *problem.split(parameters))
    return proof.objective, proof.gap


def certified(
    objective: float,
    bound: float,
    floor: float,
    rounding: Callable[[], float],
    norm_bound: float = np.inf,
    dual: Array | None = None,
) -> Certificate:
    """Return what an objective and a lower bound prove, every loss being nonnegative.

    A bound above the objective by more than `rounding()` says proves a fault in this library, and raises.
    """
    bound = max(bound, 0.0) if bound > -np.inf else bound
    bound = consistent(objective, bound, rounding)
    gap = (objective - bound) / max(abs(objective), floor) if np.isfinite(objective) else np.inf
    return Certificate(objective, float(bound), float(gap), norm_bound, dual)


def rounding_at(problem: LinearProblem, w: Array, b: Any) -> float:
    """Return what rounding of scores and pulls may add to a lower bound, or take from the objective, at (w, b)."""
    c = problem.weights
    weight, largest = float(np.sum(c)), np.max(np.abs(np.atleast_2d(w)), axis=0)
    scores = weight * float(1.0 + np.max(np.abs(b))) + float(sizes_of_sums(problem, c) @ largest)
    steepest = 1.0 if problem.loss.dual_limit < np.inf else 1.0 + scores / weight
    return INEXACT * weight + MISSED * scores * steepest
