"""The critical size of the sets, at and above which w = 0 is optimal, for any loss and penalty."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from holdfast._core.arithmetic import ratio, rescaled
from holdfast._core.loss import Array
from holdfast._core.rows import Rows
from holdfast._data import rows_of
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.penalty import Penalty
from holdfast._proofs.intercepts import best_constant
from holdfast._proofs.pulls import beyond_penalty, least_multiple, sizes_of_sums
from holdfast._training.collapse import critical_factor, majority
from holdfast._training.training import train
from holdfast.losses import Hinge

ACCURACY = 1e-6
"""Relative distance between the proved lower and upper limits at which the search ends."""
PROOF = 1e-9
"""Gap of the deciding fits: the objective falls in proportion to the distance from the critical size."""
ROUNDED_PULL = 1e-12
"""A pull that is at most this share of its terms' sizes counts as rounding."""
NEVER = 1e9
"""Multiple of the features' size up to which a collapse is sought if none is proved in advance."""
NEGLIGIBLE = 1e-9
"""Sizes up to this share of the first proved size, or of the features' size, count as 0."""
SHARES = (0.1, 0.5, 0.9)
"""Where to fit next between the proved limits: near the lower limit gains the most, the others follow if it fails."""
MAX_ITER = 2000


class Enclosure(NamedTuple):
    """A size below which w = 0 is not optimal, and a size at and above which it is."""

    low: float
    high: float


def critical_size(problem: MarginScaleProblem) -> Enclosure:
    r"""Enclose the smallest factor k of the sets at which w = 0 is optimal, inf if there is none.

    It is optimal if and only if the losses have slopes a at w = 0 and its best intercept with :math:`\sum c\,a\,y = 0`
    and

    .. math:: V = \sum_i c_i a_i y_i x_i \in k \sum_i c_i\, p(a_i) S_i + \partial\,\text{penalty}(0),

    :math:`p(a) = \kappa a + 1 - \kappa` for worst cases, 0 for smooth losses averaged over noise. A ridge and limits on
    the weights have slope 0 at w = 0; an l1 norm has the slopes in :math:`\alpha [-1, 1]^d`. For smooth losses a is
    unique and the same for all rows of a class, and so it is for the hinge if the classes have equal weight. Otherwise
    a is 1 on the lighter class and any value in [0, 1] on the heavier class, and k is the smallest over all such a.
    """
    if problem.middles is not None:
        return _halved(problem)
    problem = _bare(problem)
    if _is_settled(problem):
        return _settled_size(problem)
    if not problem.loss.is_worst_case and problem.penalty is None:
        return Enclosure(*[critical_factor(problem)] * 2)
    return _unsettled(problem).run()


@singledispatch
def collapse_bound(problem: LinearProblem) -> float:
    """Return a factor of the sets at and above which w = 0 is known to be optimal; inf if none is known."""
    return np.inf


@collapse_bound.register
def collapse_bound_of_two(problem: MarginScaleProblem) -> float:
    """Return a factor of the sets at and above which w = 0 is optimal, in one pass over the rows; inf if none is known.

    It is the smallest such factor if the slopes at w = 0 are known and the set has a gauge.
    """
    if problem.middles is not None:
        return np.inf
    problem = _bare(problem)
    if not _is_settled(problem):
        return _unsettled(problem).provable(np.ones(len(problem.signs)), None, 0.0)
    slopes, scale_slopes = _settled_slopes(problem)
    budgets = problem.weights * scale_slopes
    if not np.any(budgets > 0):
        return np.inf
    target = beyond_penalty(problem, problem.rows.transpose_dot(problem.weights * slopes * problem.signs))
    scale = problem.sets.support(target)
    return least_multiple(problem.sets, target, budgets, scale, sizes_of_sums(problem, problem.weights * slopes))


def _halved(problem: MarginScaleProblem) -> Enclosure:
    """Enclose the factor by bisection with certified fits, for rows that move with the size of their sets."""
    problem, typical = problem.having(alpha=0.0, penalty=_sloping(problem)), typical_size(problem)
    b = best_constant(problem, 0.0) if problem.fit_intercept else 0.0
    worth = problem.value_and_gradient(problem.join(np.zeros(problem.rows.n_features), b))[0]

    def collapses(k: float) -> bool:
        proof = train(problem.sized(k), tol=PROOF, max_iter=MAX_ITER)[1]
        return worth - proof.lower_bound <= PROOF * worth

    low, high = 0.0, typical
    while not collapses(high):
        low, high = high, 4 * high
        if high > NEVER * typical:
            return Enclosure(np.inf, np.inf)
    while high > low * (1 + ACCURACY):
        if high <= NEGLIGIBLE * typical:
            return Enclosure(0.0, 0.0)
        middle = 0.5 * (low + high)
        low, high = (low, middle) if collapses(middle) else (middle, high)
    return Enclosure(low, high)


def _sloping(problem: MarginScaleProblem) -> Penalty | None:
    """Return the penalty if it has a nonzero slope at w = 0, else None."""
    return problem.penalty if problem.penalty is not None and problem.penalty.absolute > 0 else None


def _bare(problem: MarginScaleProblem) -> MarginScaleProblem:
    """Return the problem without the terms that have no effect at w = 0, and with rows moved near the origin."""
    offset = problem.rows.offset() if problem.fit_intercept else None
    rows = problem.rows if offset is None else problem.rows.shifted(offset)
    return problem.having(rows=rows, alpha=0.0, penalty=_sloping(problem))


def _is_settled(problem: MarginScaleProblem) -> bool:
    """Return whether the losses' slopes at w = 0 are unique, hence known."""
    return not (problem.loss.is_homogeneous and problem.fit_intercept and majority(problem) != 0)


def _unsettled(problem: MarginScaleProblem) -> _Search:
    heavier = majority(problem)
    return _Search(problem, free=problem.signs == heavier, intercept=float(heavier))


def _settled_slopes(problem: MarginScaleProblem) -> tuple[Array, Array]:
    """Return the losses' slopes in u and t at w = 0 and its best intercept."""
    y, zero, b = problem.signs, np.zeros(()), 0.0
    if problem.fit_intercept and not problem.loss.is_homogeneous:
        b = best_constant(problem, 0.0)
    _, slopes, scale_slopes = problem.loss.evaluate(1.0 - y * b, zero)
    return slopes, scale_slopes


def _settled_size(problem: MarginScaleProblem) -> Enclosure:
    """Enclose the factor if the losses' slopes at w = 0 are known."""
    c, y = problem.weights, problem.signs
    slopes, scale_slopes = _settled_slopes(problem)
    V, budgets, sizes = (
        problem.rows.transpose_dot(c * slopes * y),
        c * scale_slopes,
        sizes_of_sums(problem, problem.weights * slopes),
    )
    target = beyond_penalty(problem, V)
    if np.all(np.abs(target) <= ROUNDED_PULL * sizes):
        return Enclosure(0.0, 0.0)
    if not np.any(budgets > 0):
        return Enclosure(np.inf, np.inf)
    if problem.sets.shares_are_least(shrunk=problem.penalty is not None):
        return Enclosure(*[least_multiple(problem.sets, target, budgets, np.ones(()), sizes)] * 2)
    # a hinge with slopes of 1 gives the same pull and the same budgets
    changed = problem.having(weights=budgets, loss=Hinge(), fit_intercept=False)
    if not np.allclose(slopes, scale_slopes, rtol=1e-15, atol=0.0):
        changed = changed.having(rows=_rescaled_rows(problem.rows, ratio(slopes, scale_slopes)))
    return _Search(changed, free=np.zeros(len(y), dtype=bool), intercept=0.0).run()


def _rescaled_rows(rows: Rows, factors: Array) -> Rows:
    blocks = [rescaled(block, factors[part]) for part, block in rows.blocks()]
    return rows_of(blocks[0] if len(blocks) == 1 else np.concatenate(blocks))


class _Search:
    """The search for the critical size: directions downhill bound it from below, dual weights from above."""

    def __init__(self, problem: MarginScaleProblem, free: NDArray[np.bool_], intercept: float):
        self.problem, self.free, self.intercept = problem, free, intercept

    def run(self) -> Enclosure:
        """Return the proved lower and upper limits."""
        problem, typical = self.problem, typical_size(self.problem)
        flat = problem.join(np.zeros(problem.rows.n_features), self.intercept)
        worth = problem.value_and_gradient(flat)[0]
        low, high = 0.0, self.provable(np.ones(len(self.free)), None, 0.0)
        negligible = NEGLIGIBLE * min(high, typical)
        k, share = 0.3 * high if np.isfinite(high) else typical, SHARES[0]
        while high > low * (1 + ACCURACY):
            if high <= negligible:
                return Enclosure(0.0, 0.0)
            if k > NEVER * typical:
                return Enclosure(np.inf, np.inf)
            before = low, high
            here = problem.sized(k)
            found, proof = train(here, tol=PROOF, max_iter=MAX_ITER)
            w, b = problem.split(found.parameters)
            if worth - proof.lower_bound <= PROOF * worth:
                high = min(high, k)
            elif np.any(w):
                low = max(low, self.rising(w, b - self.intercept, high))
            if proof.dual is not None:
                direction = w if np.any(w) or found.dual is None else found.dual.direction
                high = max(low, min(high, self.provable(ratio(proof.dual, problem.weights), direction, k)))
            if (low, high) == before and np.isfinite(high):
                if share == SHARES[-1]:
                    break
                share = SHARES[SHARES.index(share) + 1]
            k = 10 * max(k, low) if not np.isfinite(high) else low + share * (high - low) if low > 0 else 0.1 * high
        return Enclosure(low, high)

    def rising(self, w: Array, b: float, most: float) -> float:
        """Return the largest factor at which the objective does not rise from w = 0 in direction (w, b)."""
        problem, y, c, free = self.problem, self.problem.signs, self.problem.weights, self.free
        deficits, t = -y * (problem.rows.dot(w) + b), np.broadcast_to(problem.sets.support(w), len(y))
        _, slope, scale_slope = problem.loss.evaluate(1.0 - y * self.intercept, np.zeros(()))
        fixed = float(np.sum((c * slope * deficits)[~free]))
        spread = float(np.sum((c * scale_slope * t)[~free]))
        fixed += 0.0 if problem.penalty is None else problem.penalty.value(w)

        def along(k: float) -> float:
            return fixed + k * spread + float(np.sum((c * problem.loss.value(deficits, k * t))[free]))

        if along(0.0) >= 0:
            return 0.0
        top = most if np.isfinite(most) else 1.0
        while along(top) < 0:
            if np.isfinite(most) or top > 1e300:
                return top
            top *= 10
        return float(brentq(along, 0.0, top, xtol=1e-300, rtol=1e-14))

    def provable(self, dual: Array, direction: Array | None, near: float) -> float:
        """Return a factor at which these dual weights, adjusted to be slopes at w = 0, prove w = 0 optimal."""
        problem, c, y = self.problem, self.problem.weights, self.problem.signs
        a = np.ones(len(y))
        if np.any(self.free):
            a[self.free] = filled(c[self.free], dual[self.free], min(problem.class_weights()))
        V, sizes = problem.rows.transpose_dot(c * a * y), sizes_of_sums(problem, c * a)
        budgets = c * problem.loss.dual_scale(a)
        targets = [beyond_penalty(problem, V)]
        if problem.penalty is not None and direction is not None:
            left, most = V - near * problem.sets.adjoint(direction, budgets), problem.penalty.absolute
            targets.append(V - np.clip(left, -most, most))
        scale = problem.sets.support(targets[0] if direction is None else direction)
        return min(least_multiple(problem.sets, target, budgets, scale, sizes) for target in targets)


def filled(weights: Array, a: Array, wanted: float) -> Array:
    """Return min(f a, 1) with the factor f at which its weighted sum is `wanted`; equal shares if there is none."""
    order = np.argsort(-a)
    a, weights = a[order], weights[order]
    ahead = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    behind = np.cumsum((weights * a)[::-1])[::-1]
    # with the first entries at 1, the others need this factor
    factors = np.maximum(wanted - ahead, 0.0) / np.where(behind > 0, behind, np.nan)
    usable = np.flatnonzero(factors * a <= 1)
    out = np.full(len(a), wanted / np.sum(weights))
    if len(usable):
        out = np.minimum(factors[usable[0]] * a, 1.0)
        out[: usable[0]] = 1.0
    back = np.empty(len(a))
    back[order] = out
    return back


def typical_size(problem: MarginScaleProblem) -> float:
    """Return the factor at which the sets are about as large as the spread of the rows."""
    n = problem.rows.n_features
    reach = float(np.mean([np.mean(problem.sets.support(unit)) for unit in np.eye(min(n, 100), n)]))
    return float(np.sqrt(np.mean(problem.rows.column_squares))) / reach if reach > 0 else 1.0
