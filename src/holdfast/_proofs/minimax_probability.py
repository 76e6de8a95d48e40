"""The proof for the weights of a minimax probability machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError

from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.tolerances import ROUNDING
from holdfast._core.unit_cholesky import UnitCholesky
from holdfast._problems.certified_gap import certified_gap
from holdfast._problems.minimax_probability import MinimaxProbabilityProblem, SmoothedMinimax, StatedClass
from holdfast._proofs.consistency import agreed, consistent
from holdfast._proofs.pulls import least_multiple

SLIGHT = 0.01
"""Where a class has to bear a residual, its spread counts as at least this share of the sum of both spreads."""
JITTERS = 10.0 ** np.arange(-15, -3)
"""Jitters for the unit diagonal of the pooled covariance; the first that makes it positive definite is used."""
REFINEMENTS = 5
"""Largest number of solves with the covariance to refine its share of the target."""


def spread_of(stated: StatedClass, w: Array) -> float:
    """Return the largest standard deviation of the score."""
    p, scores = stated.moments.shares, stated.moments.rows.dot(w)
    distances = scores - p @ scores
    if stated.worst is not None:
        up, down = stated.kappa * stated.worst.support(w), stated.kappa * stated.worst.support(-w)
        distances = np.maximum(distances + up, down - distances)
    squares = float(p @ np.square(distances)) + float(np.sum(stated.ridge * np.square(w)))
    if stated.cloud is not None:
        squares += float(np.sum(p * np.square(stated.cloud.support(w))))
    outside = [] if stated.worst is None or stated.kappa == 1 else stated.worst.summands()
    return float(np.sqrt(squares)) + (1 - stated.kappa) * sum(_pooled(stated, part, w) for part in outside)


def _pooled(stated: StatedClass, part: RowSets, w: Array) -> float:
    p, form = stated.moments.shares, part.interval_form()
    if form is None:
        ends = [part.support(w)] if part.is_symmetric else [part.support(w), part.support(-w)]
        if stated.pooling == "rms":
            return float(np.sqrt(np.sum(p * np.square(np.max(ends, axis=0)))))
        return float(np.sum(p * np.sum(ends, axis=0))) / float(np.sqrt(np.min(p)))
    reach = np.broadcast_to(form.common, (len(p), len(w)))
    for own in (form.own, form.centre):
        if own is not None:
            reach = reach + np.abs(own.toarray() if sparse.issparse(own) else own)
    widths = np.sqrt(p @ np.square(reach)) if stated.pooling == "rms" else p @ reach / np.sqrt(np.min(p))
    return float(np.abs(w) @ widths)


def drift_of(stated: StatedClass, w: Array) -> float:
    """Return how far the score of the mean may drift."""
    return 0.0 if stated.drifting is None else float(np.sum(stated.moments.shares * stated.drifting.support(w)))


class MinimaxProof(NamedTuple):
    """The objective of weights, and the lower bound that was proved."""

    objective: float
    """phi at the weights."""
    lower_bound: float
    """A lower bound on the objective of any weights."""
    gap: float
    """(objective - lower_bound) / objective."""

    @classmethod
    def at(cls, problem: MinimaxProbabilityProblem, w: Array, bound: float) -> MinimaxProof:
        """Return the proof for weights with a lower bound; the objective is recomputed from the stated classes."""
        laws = (problem.negative, problem.positive)
        lead = float(problem.difference @ w) - sum(drift_of(law.stated, w) for law in laws)
        if not lead > 0:
            return cls(np.inf, bound, 1.0)
        spread = sum(spread_of(law.stated, w) for law in laws)

        def rounding() -> float:
            covered = sum(float(np.abs(w) @ np.abs(law.inner) @ np.abs(w)) for law in laws)
            return ROUNDING * (covered / spread if spread > 0 else np.sqrt(covered)) / lead

        objective = spread / lead
        agreed(problem.objective(w), objective, rounding)
        bound = consistent(objective, bound, rounding)
        return cls(objective, bound, 1 - bound / objective if objective > 0 else 0.0)


def certificate_of(problem: MinimaxProbabilityProblem, w: Array, smoothed: SmoothedMinimax) -> MinimaxProof:
    r"""Return the proof at w.

    :math:`\phi(w) = \max_{z \in Z} z^\top w` and :math:`r(w) = \max_{q \in R} q^\top w`. Any point with
    :math:`\lambda (D - q) \in Z` proves :math:`\phi \ge \lambda (D - q)^\top w \ge \lambda`. The gradients of the
    smoothed functions serve as z and q, up to a residual :math:`e = \lambda (D - q) - z`; with e in :math:`\gamma Z`
    the bound is :math:`\lambda / (1 + \gamma)`. The bound holds for any w, but it is poor where w is far from optimal.
    """
    z, aim = smoothed.spread.gradient(w), problem.difference - smoothed.drift.gradient(w)
    lead = float(aim @ w)
    bound = 0.0
    if not (lead > 0 and np.all(np.isfinite(z)) and problem.lead(w) > 0):
        return MinimaxProof.at(problem, w, bound)
    factor = float(z @ w) / lead
    if factor > 0:
        sizes = np.abs(z) + factor * np.abs(aim)
        bound = factor / (1 + _reach(problem, w, factor * aim - z, sizes))
    return MinimaxProof.at(problem, w, bound)


@certified_gap.register
def gap_of(smoothed: SmoothedMinimax, w: Array) -> tuple[float, float]:
    """Return the objective and the gap of the problem before smoothing."""
    proof = certificate_of(smoothed.problem, w, smoothed)
    return proof.objective, proof.gap


def _reach(problem: MinimaxProbabilityProblem, w: Array, target: Array, sizes: Array) -> float:
    """Return a multiple of Z that contains the target, inf where none is known; Z holds the classes' ellipsoids and sets.

    The ellipsoids bear as much as they can. `sizes` are the magnitudes of the terms that the target was computed from.
    """
    laws = (problem.negative, problem.positive)
    scales = np.array([law.core.value(w) for law in laws])
    scales = np.maximum(scales, SLIGHT * float(np.sum(scales)) or 1.0)
    pooled = laws[0].inner / scales[0] + laws[1].inner / scales[1]
    units = np.where(sizes > 0, sizes, 1.0)
    v, missed, share = np.zeros(len(w)), target, np.inf
    try:
        factor = UnitCholesky(pooled, JITTERS)
    except LinAlgError:
        return np.inf
    for _ in range(REFINEMENTS):
        nearer = v + factor.solve(missed)
        left = target - sum(law.core.slope(nearer) / scale for law, scale in zip(laws, scales, strict=True))
        if np.isfinite(share) and np.max(np.abs(left) / units) > 0.5 * np.max(np.abs(missed) / units):
            break
        v, missed = nearer, left
        share = max(law.core.value(v) / scale for law, scale in zip(laws, scales, strict=True))
        if np.all(np.abs(missed) <= ROUNDING * sizes):
            return share
    if problem.sets is None or problem.budgets is None:
        return np.inf
    t = problem.sets.support(w)
    whole, rest = (least_multiple(problem.sets, part, problem.budgets, t, sizes) for part in (target, missed))
    return min(whole, share + rest)


def may_coincide(problem: MinimaxProbabilityProblem) -> bool:
    """Return whether the means provably may coincide within the sets, so that no weights have a positive lead."""
    if problem.sets is None or problem.budgets is None:
        return False
    if problem.sets.interval_form() is not None:
        return problem.lead(problem.leading()) <= 0
    D = problem.difference
    scale = problem.sets.support(D)
    return problem.sets.is_symmetric and least_multiple(problem.sets, D, problem.budgets, scale, np.abs(D)) <= 1
