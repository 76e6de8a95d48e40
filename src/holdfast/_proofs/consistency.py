"""Checks of proofs: a proof that contradicts itself is a fault in this library, and never passes for a small gap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from holdfast._core.exceptions import ProofError
from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets

SUMS = 1e-9
"""Relative error of an objective that is a long sum."""
CHECKED_ROWS = 50
"""Number of rows whose supports are checked against their worst points."""


def consistent(objective: float, bound: float, rounding: Callable[[], float]) -> float:
    """Return the lower bound, or the objective if rounding alone put the bound above it; raise otherwise."""
    if not bound > objective:
        return bound
    if bound - objective > SUMS * abs(objective) + rounding():
        raise _contradiction(f"no parameters can go below {bound!r}, yet these have the objective {objective!r}")
    return objective


def agreed(seen: float, objective: float, rounding: Callable[[], float]) -> None:
    """Raise if the solver's objective is not the objective that the proof is about."""
    off = abs(seen - objective)
    if off > SUMS * abs(objective) and off > SUMS * abs(objective) + rounding():
        raise _contradiction(f"the solver saw the objective {seen!r} where it is {objective!r}")


def attained(sets: RowSets, w: Array, n_samples: int) -> None:
    """Raise if the points said to attain the supports at w do not; rows are sampled at a regular stride."""
    if not sets.is_sublinear:
        return
    if not sets.is_common:
        sets = sets.take(np.arange(0, n_samples, max(1, n_samples // CHECKED_ROWS)))
    support, points = sets.support(w), sets.maximizer(w)
    off = np.abs(points @ w - support)
    # relative to the whole extent: the short side of an interval carries the rounding errors of the long side
    if np.any(off > SUMS * (np.abs(points) @ np.abs(w) + np.abs(support) + np.abs(sets.support(-w)))):
        raise _contradiction(f"a set's worst point moves a score by {off.max():.3g} more or less than its support says")


def _contradiction(what: str) -> ProofError:
    return ProofError(
        f"The proof of this fit contradicts itself: {what}. This is a fault in holdfast, or in a set, loss or solver of your "
        "own, and not in your data; nothing was fitted. Please report it with the call and, if you can, the data."
    )
