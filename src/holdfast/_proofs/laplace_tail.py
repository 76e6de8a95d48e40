"""Proofs for the loss "tail": bounds for all means, and for all scales."""

from __future__ import annotations

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.laplace_tail import TailProblem, TailRows
from holdfast._proofs.consistency import agreed, consistent
from holdfast._proofs.laplace import LaplaceProof
from holdfast._proofs.pulls import Columns, drawn_to
from holdfast.losses.laplace_law import LaplaceSum

INVERSIONS = 40
"""Largest number of Newton steps to the margins at which the losses have the given slopes."""
FAR = 40.0
"""Margins are capped at this many deviations; there, slopes count as 0."""
BALANCED = 1e-10
"""A pull counts as 0 up to this share of the sum of its terms' absolute values."""


def ground(rows: TailRows, u: Array) -> float:
    """Return a lower bound on the losses alone, over all means.

    It comes from slopes, near those at u, whose pulls cancel in every direction up to rounding. If no nearby slopes do,
    the bound from them is 0.
    """
    z = np.maximum(rows.A @ u, 0.0)
    budgets, reach = rows.weights * rows.peaks, FAR * rows.law.deviations
    share = drawn_to(rows.law.density(z) / rows.peaks, Columns(rows.A, budgets), np.zeros(rows.n_learners))
    for _ in range(INVERSIONS):
        _, density, slope = rows.law.derivatives(z)
        missed = density - share * rows.peaks
        z = np.clip(z - missed / np.where(slope < 0, slope, -np.inf), 0.0, reach)
        if np.all(np.abs(missed) <= ROUNDING * rows.peaks):
            break
    tail, density, _ = rows.law.derivatives(z)
    slopes = rows.weights * density
    if np.any(np.abs(slopes @ rows.A) > BALANCED * (slopes @ np.abs(rows.A))):
        return 0.0
    return max(0.0, (1 - BALANCED) * float(rows.weights @ tail + slopes @ z)) + rows.lost


def tail_objective(rows: TailRows, u: Array, sigma: float) -> float:
    """Return the divergence plus the losses, by their defining formulas."""
    z = rows.A @ u
    law = LaplaceSum(np.abs(rows.A))
    losses = np.where(z >= 0, law.tail(z), 0.5 - law.density(np.zeros(len(z))) * z)
    divergence = float(np.sum(sigma * (np.abs(u) + np.exp(-np.abs(u))) - np.log(sigma) - 1))
    return divergence + float(rows.weights @ losses) + rows.lost


def tail_proof(rows: TailRows, u: Array, sigma: float, seen: float, bound: float) -> LaplaceProof:
    """Return the proof that a lower bound gives for means and a scale; `seen` is the solver's objective there."""
    objective = tail_objective(rows, u, sigma)

    def rounding() -> float:
        return ROUNDING * float(np.sum(np.abs(u)) + len(u) + np.sum(rows.weights))

    agreed(seen, objective, rounding)
    bound = consistent(objective, bound, rounding)
    return LaplaceProof(objective, bound, (objective - bound) / max(objective, TailProblem(rows, sigma).floor))
