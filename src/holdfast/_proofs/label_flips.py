"""The proof for rows whose labels may be wrong."""

from __future__ import annotations

from functools import partial

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.label_flips import LabelFlipProblem, plain_fields
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import UNGUESSED, Certificate, certificate, certified, rounding_at
from holdfast._proofs.intercepts import best_intercept
from holdfast._proofs.objectives import objective_at
from holdfast._proofs.pulls import Columns, drawn_to, exact_columns

NEGLIGIBLE = 1e-10
"""Shares of a flip up to this count as 0, and shares within this of 1 count as 1."""


@certificate.register
def flipped_certificate(problem: LabelFlipProblem, w: Array, b: float, dual: DualGuess | None = None) -> Certificate:
    r"""Return the certificate at (w, b) for rows whose labels may flip.

    For any shares :math:`\delta` within the budgets, the objective is at least that of a problem without flips in which
    row i has weight :math:`c_i (1 - \delta_i)` with its own label and :math:`c_i \delta_i` with the other label. A
    lower bound for the latter problem is therefore a lower bound here. At the best shares the two optima are equal.
    """
    c, y, loss = problem.weights, problem.signs, problem.flipping
    scores, t = problem.rows.dot(w), problem.sets.support(w)
    without_flips = MarginScaleProblem(**(plain_fields(problem) | {"loss": loss.base}))
    own, other = (loss.base.value(problem.target - sign * y * (scores + b), t) for sign in (1.0, -1.0))
    objective = objective_at(without_flips, w, b, scores, t)
    for rows, budget in zip(loss.groups, loss.budgets, strict=True):
        objective += dearest_flips((loss.factors * (other - own))[rows], loss.counts[rows], budget)
    rounding = partial(rounding_at, without_flips, w, b)
    if dual is None:
        near = problem.smoothed(UNGUESSED)
        if problem.fit_intercept:
            b = best_intercept(near, w, scores, near.sets.support(w), b)
        dual = near.dual_guess(problem.join(w, b))
    share, *slopes = dual.slopes
    share = np.clip(share, 0.0, 1.0)
    if not problem.is_penalised:
        share = _borne_by_flips(problem, share, *slopes)
    share = np.where(share <= NEGLIGIBLE, 0.0, np.where(share >= 1 - NEGLIGIBLE, 1.0, share))
    for rows, budget in zip(loss.groups, loss.budgets, strict=True):
        used = float(np.sum(loss.counts[rows] * share[rows]))
        share[rows] *= min(1.0, budget / used) if used > 0 else 1.0
    kept, turned = np.flatnonzero(share < 1), np.flatnonzero(share > 0)
    both = np.concatenate([kept, turned])
    plain = without_flips.restricted(both, np.concatenate([(c * (1 - share))[kept], (c * share)[turned]]))
    plain = plain.having(signs=np.concatenate([y[kept], -y[turned]]))
    guess = DualGuess(
        np.concatenate([slopes[0][kept], slopes[1][turned]]),
        dual.direction,
        dual.scale[both] if np.ndim(dual.scale) else dual.scale,
        None if dual.sets is None else dual.sets.take(both),
    )
    if problem.fit_intercept and min(plain.class_weights()) == 0:
        # only one class is left
        return certified(objective, 0.0, problem.floor, rounding, problem.norm_bound(w))
    proof = certificate(plain, w, b, guess)
    weights = None
    if proof.dual is not None:
        weights = np.zeros(len(c))
        weights[kept] = proof.dual[: len(kept)]
        weights[turned] -= proof.dual[len(kept) :]
    return certified(objective, proof.lower_bound, problem.floor, rounding, problem.norm_bound(w), weights)


def dearest_flips(worth: Array, counts: Array, budget: float) -> float:
    r"""Return :math:`\min_{\lambda \ge 0} K\lambda + \sum_i n_i (g_i - \lambda)_+`, the largest cost of flips for K.

    Any price :math:`\lambda \ge 0` gives an upper bound; the best price is 0 or the cost g of flipping some row.
    """
    falling = np.argsort(-worth)[: np.count_nonzero(worth > 0)]
    prices, n = worth[falling], counts[falling]
    beyond = np.cumsum(n * prices) - prices * np.cumsum(n)
    return float(np.min(np.append(budget * prices + beyond, n @ prices)))


def _borne_by_flips(problem: LabelFlipProblem, share: Array, own: Array, other: Array) -> Array:
    """Return shares near `share`, within the budgets, whose pulls on exact directions and the intercept cancel.

    No set can bear a pull along them. Labels that flip in part are adjusted, each in proportion to its room to move.
    """
    Z = exact_columns(problem)
    if Z is None:
        return share
    pull, loss = problem.weights * problem.signs, problem.flipping
    spent = np.zeros((len(pull), len(loss.budgets)))
    for k, rows in enumerate(loss.groups):
        spent[rows, k] = loss.counts[rows]
    directions = Columns(np.column_stack([(pull * (own + other))[:, None] * Z, spent]), np.ones(len(pull)))
    is_limit = np.arange(Z.shape[1] + len(loss.budgets)) >= Z.shape[1]
    return drawn_to(share, directions, np.append(Z.T @ (pull * own), loss.budgets), is_limit)
