"""The proof for two classes under noise, where losses are averaged; `worst_case` has the proof for worst points."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from holdfast._core.arithmetic import norm, ratio
from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate, certificate, certified, rounding_at
from holdfast._proofs.dual_bounds import bound_at_best_scale, bound_of_guess
from holdfast._proofs.intercepts import best_intercept
from holdfast._proofs.objectives import objective_at
from holdfast._proofs.worst_case import worst_case_certificate

UNSEEN, TRIFLE = 1e-11, 0.01
"""How much a suboptimal intercept may lower a bound: a share of the objective, or of the gap that remains anyway."""


@certificate.register
def binary_certificate(problem: MarginScaleProblem, w: Array, b: float, dual: DualGuess | None = None) -> Certificate:
    r"""Return the certificate at (w, b) for two classes.

    It takes two passes over the rows in float64, a third with an intercept and a loss without a dual. Where the loss
    has a dual, the slopes :math:`a_i = \ell_u` at the best multiple of w and the best intercept are made dual feasible:
    the class sums are balanced by shrinking the larger, then with :math:`V = \sum c a y x`

    * without a ridge, a is scaled by the largest factor at which the noise's budgets :math:`\sum c\, p(a)` cover V;
    * with a ridge, the part of V that the budgets do not cover costs its square over :math:`2\alpha`.

    Otherwise strong convexity is used: with a ridge, tangents of the losses give a quadratic minorant of the objective,
    whose minimum lies :math:`|\nabla_w P|^2 / (2\alpha)` below it where the sets are smooth. The most that the
    remaining slope in b could gain, over the range where the optimal intercept must lie, is deducted.
    """
    if dual is not None:
        # a scale below the support would claim that the sets bear more than they can, so it is raised to the support
        dual = dual._replace(scale=np.maximum(dual.scale, problem.sets.support(dual.direction)))
    if problem.has_kinks:
        return worst_case_certificate(problem, w, b, dual)
    t, (scores, pull) = problem.sets.support(w), _scores_and_pull(problem, w)
    rounding = partial(rounding_at, problem, w, b)
    if problem.loss.has_dual:
        objective = None
        if dual is None:
            objective, bound, proof = bound_at_best_scale(problem, scores, t, w, b)
        else:
            bound, proof = bound_of_guess(problem, dual)
        objective = objective_at(problem, w, b, scores, t) if objective is None else objective
        return certified(objective, bound, problem.floor, rounding, problem.norm_bound(pull), proof)
    best = _Minorant(problem, scores, DualGuess(t, w, t), b)
    objective = best.objective
    if problem.alpha == 0:
        return certified(objective, -np.inf, problem.floor, rounding, problem.norm_bound(pull))
    farthest = _farthest_intercept(problem, objective)
    if dual is not None:
        best = _Minorant(problem, scores, dual, b)
    for is_last in (False, True):
        # one step is nearly always enough, and it is cheaper than the pass over the rows that computes the gap
        if not best.is_balanced(objective, farthest, nearly=is_last):
            b, guess = (
                best.next_intercept if not is_last else best_intercept(problem, w, scores, best.guess.scale, b),
                best.guess,
            )
            del best  # frees its memory for the next one
            best = _Minorant(problem, scores, guess, b)
    return certified(objective, best.bound(farthest), problem.floor, rounding, problem.norm_bound(pull))


def _scores_and_pull(problem: MarginScaleProblem, w: Array) -> tuple[Array, Array | None]:
    """Return the scores w'x and, where the norm bound needs it, the pull of `pull_per_class`, in one pass over X."""
    rows = problem.rows
    if not problem.noise_bounds_norm:
        return rows.dot(w), None
    scores, shares = np.empty(rows.n_samples), problem.pull_per_class()

    def react(part: slice, found: Array) -> Array:
        scores[part] = found
        return shares[part]

    return scores, rows.pull(w, react)


class _Minorant:
    r"""A quadratic minorant of the objective that touches the losses at (w, b), for losses without a dual.

    Tangents of the losses at (u, T), T the guess's scales, and :math:`t(v) \ge q^\top v` for any q in the sets bound P(v, b)
    from below by

    .. math:: \sum c\,(\ell + \ell_u (1 - u) - \ell_t T) - (V - \sum c\,\ell_t q)^\top v + \tfrac\alpha2 |v|^2,
              \qquad V = \sum c\,\ell_u y x;

    q is chosen so that :math:`\sum c\,\ell_t q` is nearest to V.
    """

    def __init__(self, problem: MarginScaleProblem, scores: Array, guess: DualGuess, b: float):
        self.problem, self.scores, self.guess, self.b = problem, scores, guess, b
        c, w = problem.weights, guess.direction
        u = scores + b
        u *= problem.signs
        np.subtract(problem.target, u, out=u)
        values, slopes, scale_slopes = problem.loss.tangent(u, guess.scale)
        self.objective = float(c @ values) + 0.5 * problem.alpha * float(w @ w)
        """The objective at the guess's direction and b, where the guess's scales are those of the sets."""
        self.r = c * slopes
        # `lines` uses slopes times u - 1, but the target margin may differ from 1: this is
        # the value of the lines at w = 0
        np.subtract(problem.target, u, out=u)
        self.at_zero = float(c @ values) + float(self.r @ u)
        # if all rows share one set, the sum of their budgets suffices
        is_one = problem.sets.is_common and np.ndim(guess.scale) == 0
        self.budgets = np.atleast_1d(c @ scale_slopes) if is_one else c * scale_slopes
        self.at_zero -= float(np.sum(self.budgets * guess.scale))
        self.curvature = float(np.sum(ratio(self.budgets, guess.scale))) if np.all(guess.scale > 0) else None
        """Averages over Gaussian noise solve the heat equation: the slope in t is t times the curvature in u."""
        self.r *= problem.signs
        self.imbalance = abs(float(np.sum(self.r))) if problem.fit_intercept else 0.0

    @property
    def next_intercept(self) -> float:
        """The intercept after one Newton step."""
        if self.curvature is None:
            return best_intercept(self.problem, self.guess.direction, self.scores, self.guess.scale, self.b, n_steps=1)
        return self.b + float(np.sum(self.r)) / self.curvature if self.curvature > 0 else self.b

    @cached_property
    def lowest(self) -> float:
        """The minimum over v, with b fixed."""
        problem, guess, V = self.problem, self.guess, self.problem.rows.transpose_dot(self.r)
        missed = problem.sets.residual(V, self.budgets, guess.scale, guess.direction)
        if guess.sets is not None:
            missed = min(missed, V - guess.sets.adjoint(guess.direction, self.budgets), key=norm)
        return self.at_zero - float(missed @ missed) / (2 * problem.alpha)

    def bound(self, farthest: float) -> float:
        """Return a lower bound over v and over all intercepts that may be optimal."""
        return self.lowest - self.imbalance * (abs(self.b) + farthest)

    def is_balanced(self, objective: float, farthest: float, *, nearly: bool) -> bool:
        """Return whether a better b would gain too little to matter (`nearly`: too little beside the gap)."""
        cost = self.imbalance * (abs(self.b) + farthest)
        return cost <= UNSEEN * objective or (nearly and cost <= TRIFLE * (objective - self.lowest))


def _farthest_intercept(problem: MarginScaleProblem, objective: float) -> float:
    """Bound the best |b|: the losses sum to at most the objective, and each loss is at least u - 1."""
    if not problem.fit_intercept:
        return 0.0
    c, reach = problem.weights, np.sqrt(2 * objective / problem.alpha)
    # sums of squares are already known unless rows have different weights
    is_even = bool(np.all(c == c[0]))
    squares = float(c.sum()) * problem.rows.column_squares if is_even else problem.rows.square_sums(c)
    rows_norm = np.sqrt(float(np.sum(squares)) * float(c.sum()))
    return float(max((objective + reach * rows_norm) / weight for weight in problem.class_weights()))
