"""The certificate of a fit: its objective, recomputed from the data, and a lower bound on the objective of any fit."""

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
"""Smoothing of the losses whose slopes serve as dual weights when no better guess is given."""
INEXACT = 2e-11
"""Largest error of a loss that is an integral without a closed form."""


class Certificate(NamedTuple):
    """The objective at a point and the lower bound that was proved."""

    objective: float
    """The objective at the point."""
    lower_bound: float
    """A lower bound on the objective at any parameters, up to rounding; -inf where none is known."""
    gap: float
    """(objective - lower_bound) / max(objective, floor), never negative."""
    norm_bound: float = np.inf
    """An upper bound on the optimal weights' l2 norm; inf where none is known."""
    dual: Array | None = None
    """The dual weights that prove the bound, times the row weights; shape (n_samples,) or (n_samples, n_classes)."""


@singledispatch
def certificate(problem: LinearProblem, w: Array, b: Any, dual: DualGuess | None = None) -> Certificate:
    """Return the objective at (w, b), a lower bound on the optimum, and their relative distance.

    `dual` is a guess of the dual weights that replaces the slopes at (w, b); it is checked in the same way.
    """
    raise NotImplementedError(f"No certificate is known for {type(problem).__name__}.")


@certified_gap.register
def gap_of(problem: LinearProblem, parameters: Array) -> tuple[float, float]:
    """Return the objective and the gap, for solvers that report their progress."""
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
    """Return the certificate of an objective and a lower bound, for nonnegative losses.

    A bound that exceeds the objective by more than rounding allows reveals a fault in this library, and raises.
    """
    bound = max(bound, 0.0) if bound > -np.inf else bound
    bound = consistent(objective, bound, rounding)
    gap = (objective - bound) / max(abs(objective), floor) if np.isfinite(objective) else np.inf
    return Certificate(objective, float(bound), float(gap), norm_bound, dual)


def rounding_at(problem: LinearProblem, w: Array, b: Any) -> float:
    """Return how much rounding of scores and pulls may raise a lower bound, or lower the objective, at (w, b)."""
    c = problem.weights
    weight, largest = float(np.sum(c)), np.max(np.abs(np.atleast_2d(w)), axis=0)
    scores = weight * float(1.0 + np.max(np.abs(b))) + float(sizes_of_sums(problem, c) @ largest)
    steepest = 1.0 if problem.loss.dual_limit < np.inf else 1.0 + scores / weight
    return INEXACT * weight + MISSED * scores * steepest
