"""The least multiple of the sets of all rows, added up, that contains a target: a dual norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from holdfast._core.arithmetic import MISSED, norm, solve_scaled
from holdfast._core.row_forms import Array
from holdfast._core.tolerances import ROUNDING

if TYPE_CHECKING:
    from holdfast._core.row_sets import RowSets

SMOOTHINGS = 10.0 ** -np.arange(1.0, 13.0)
"""Amounts of smoothing, as shares of the support, from the first to the last of a search."""
NEWTON_STEPS, SHORTEST, FARTHEST = 30, 1e-8, 1e4
"""Steps at one smoothing; the shortest one tried; the longest, in lengths of w, as flat sets leave Newton without a scale."""


CORNERS = 10
"""Points tried for each feature. One for each is enough (Caratheodory), but a search meets some that it drops again."""


RIDGE = 1e-8
"""What is added to second derivatives, as a share of them: the gradient may not vanish where they do."""
HARDLY, NEAR = 1e-10, 1e-9
"""An excess over the least share that is not worth a search; a distance, as a share of the target, that may be rounding."""


class Approach(NamedTuple):
    """Points of the sets whose sum, each times `multiple` of its budget, is nearly the target."""

    w: Array
    """The direction whose maximizers these points are."""
    sets: Any
    """The sets, smoothed."""
    multiple: float
    least: float
    """A lower bound on the multiple, whatever the points."""


def approaches(sets: RowSets, target: Array, budgets: Array) -> Iterator[Approach]:
    r"""Yield ever better approaches to a target; none where the sets do not reach out to it at all.

    The smallest k with the target in :math:`k \sum_i \beta_i S_i` is the dual norm of the support
    :math:`t(w) = \sum_i \beta_i t_i(w)`. At the minimum of :math:`t(w)^2/2 - target^\top w` the target is
    :math:`t \nabla t`. Newton's method, with ever less smoothing.
    """
    beta = np.asarray(budgets / (float(np.sum(budgets)) or 1.0))
    size = float(norm(target)) or 1.0
    w = target / size
    reach = float(np.sum(beta * sets.support(w)))
    if reach == 0 or not np.any(budgets):
        return
    # start at the minimum along the target itself
    w = w / reach**2
    last = SMOOTHINGS[0]
    for smoothing in SMOOTHINGS:
        smoothed = sets.smoothed(smoothing / reach)
        starts = [w, sets.snapped_to_kinks(w, last / reach, smoothing / last)]
        w = _newton(_Pooled(smoothed, target / size, beta), starts)
        last = smoothing
        t = float(np.sum(beta * smoothed.support(w)))
        # weak duality: where k of the sets reach the target, target'w is at most k times the support along any w
        least = size * float(target / size @ w) / float(np.sum(budgets * sets.support(w)))
        yield Approach(w, smoothed, size * t / float(np.sum(budgets)), least)


def least_share(sets: RowSets, target: Array, budgets: Array, sizes: Array) -> float:
    r"""Return the least k, but for rounding, with the target in :math:`k \sum_i \beta_i S_i`; inf where there is none.

    Entries of the target may be missed by rounding of their `sizes`. Sets that lack the origin grow by no multiple.
    """
    best, proved = _share_of_corners(sets, target, budgets, sizes), 0.0
    if not 0 < best < np.inf:
        return best
    # corners are few and exact where there are kinks; where there are none, Newton's method needs fewer steps
    if not sets.is_smooth:
        found, proved = _share_of_hull(sets, target, budgets, sizes)
        best = min(best, found)
        if best <= proved * (1 + HARDLY):
            return best
    for approach in approaches(sets, target, budgets):
        missed = target - approach.multiple * approach.sets.adjoint(approach.w, budgets)
        best = min(best, approach.multiple + _share_of_corners(sets, missed, budgets, sizes))
        if best <= max(approach.least, proved) * (1 + ROUNDING):
            break
    return max(best, proved)


def _share_of_hull(sets: RowSets, target: Array, budgets: Array, sizes: Array) -> tuple[float, float]:
    r"""Return bounds from above and below on the least share; where the sets are polytopes they differ by rounding.

    The distance between the target and the sets times a multiple is convex in the multiple and 0 from the least one on.
    Newton's method on it, in which the hull of the origin and of a few corners stands for the sets. A corner that is
    farther towards the target than the hull enlarges it; where there is none, the direction proves that it takes more.
    """
    corners, multiple, rest = np.zeros((1, len(target))), 0.0, target
    nothing_but_one = np.append(np.zeros(len(target)), 1.0)
    for _ in range(CORNERS * len(target)):
        corner = sets.adjoint(rest, budgets)
        reach = float(corner @ rest)
        if not reach > ROUNDING * norm(corner) * norm(rest):
            break
        # weak duality, as in `approaches`
        multiple = max(multiple, float(target @ rest) / reach)
        corners = np.vstack([corners, corner])
        # the nearest point of a hull: lengths >= 0 for which the sum of the corners, seen from the target, is least while the
        # lengths themselves are kept near a sum of 1; the sum does not turn the best direction
        seen = (multiple * corners - target) / norm(target)
        shares = nnls(np.column_stack([seen, np.ones(len(seen))]).T, nothing_but_one)[0]
        is_used = shares > 0
        is_used[0] = True
        corners, shares = corners[is_used], shares[is_used] / np.sum(shares)
        before, rest = norm(rest), target - multiple * (shares @ corners)
        if np.all(np.abs(rest) <= MISSED * sizes):
            return multiple, multiple
        # what is left may be rounding that is above that of the sizes
        if norm(rest) <= NEAR * norm(target) and norm(rest) > 0.5 * before:
            break
    return multiple + _share_of_corners(sets, rest, budgets, sizes), multiple


def _share_of_corners(sets: RowSets, target: Array, budgets: Array, sizes: Array) -> float:
    """Return the sum of weights >= 0 with which some maximizers add up to the target: an upper bound on the least share."""
    corners: list[Array] = []
    weights, rest = np.zeros(0), target
    for _ in range(CORNERS * len(target)):
        if np.all(np.abs(rest) <= MISSED * sizes):
            return float(np.sum(weights))
        corner = sets.adjoint(rest, budgets)
        # none of the points found so far is ahead of the rest, so a point that is ahead brings the sum nearer
        if not sets.has_origin or corner @ rest <= ROUNDING * norm(corner) * norm(rest):
            break
        corners.append(corner)
        # all weights anew, not only that of the new point: a polytope is then done with in finitely many steps
        weights = nnls(np.transpose(corners), target)[0]
        rest = target - weights @ np.array(corners)
    return np.inf


class _Pooled(NamedTuple):
    """The function t(w)^2 / 2 - target'w, t being the mean support."""

    sets: RowSets
    target: Array
    beta: Array

    def at(self, w: Array) -> tuple[float, float, Array, Array]:
        """Return its value, t, the gradient of t, and its own gradient."""
        t, point = float(np.sum(self.beta * self.sets.support(w))), self.sets.adjoint(w, self.beta)
        return 0.5 * t**2 - float(self.target @ w), t, point, t * point - self.target

    def hessian(self, w: Array, t: float, point: Array) -> Array:
        """Return its Hessian, bent a little more, as it is flat along features from which smoothed kinks keep the point."""
        found = self.sets.curvature(w, t * self.beta, np.zeros_like(self.beta)) + np.outer(point, point)
        bends = np.diag(found)
        return found + RIDGE * np.diag(np.where(bends > 0, bends, np.max(bends, initial=0.0)))


def _newton(pooled: _Pooled, starts: Sequence[Array]) -> Array:
    """Return w near the minimum, from the best of some starts."""
    w = min(starts, key=lambda start: pooled.at(start)[0])
    value, t, point, gradient = pooled.at(w)
    for _ in range(NEWTON_STEPS):
        if norm(gradient) <= ROUNDING * norm(pooled.target):
            break
        step = -solve_scaled(pooled.hessian(w, t, point), gradient)
        step *= min(1.0, FARTHEST * float(norm(w)) / (float(norm(step)) or 1.0))
        slope, length = float(gradient @ step), 1.0
        there = pooled.at(w + step)
        while not there[0] <= value + 1e-4 * length * slope:
            # a decrease below rounding cannot be seen in the value, but still in the gradient
            if -slope <= ROUNDING * abs(value) or length < SHORTEST:
                break
            length *= 0.5
            there = pooled.at(w + length * step)
        # neither the value nor the gradient says that this is nearer to the minimum
        if norm(there[3]) > 0.5 * norm(gradient) and not there[0] < value - ROUNDING * abs(value):
            return w
        w = w + length * step
        value, t, point, gradient = there
    return w
