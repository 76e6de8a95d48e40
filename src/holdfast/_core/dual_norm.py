"""The least multiple of the sum of all rows' sets that contains a target, which is a dual norm."""

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
"""The amounts of smoothing in a search, from first to last, relative to the support."""
NEWTON_STEPS, SHORTEST, FARTHEST = 30, 1e-8, 1e4
"""The most steps at one smoothing; the shortest step tried, as a share of the Newton step; and the longest,
relative to |w|, which is needed as flat sets give Newton's method no scale."""


CORNERS = 10
"""The number of points tried per feature. One is enough (Caratheodory), but a search tries some that it drops again."""


RIDGE = 1e-8
"""What is added to second derivatives, as a share of them: the gradient may not vanish where they do."""
HARDLY, NEAR = 1e-10, 1e-9
"""An excess over the least share that is not worth a search; a distance, as a share of the target, that may be rounding."""


class Approach(NamedTuple):
    """Points of the sets whose sum, weighted by `multiple` times the budgets, is nearly the target."""

    w: Array
    """The direction whose maximizers are these points."""
    sets: Any
    """The smoothed sets."""
    multiple: float
    least: float
    """A lower bound on the multiple for any choice of points."""


def approaches(sets: RowSets, target: Array, budgets: Array) -> Iterator[Approach]:
    r"""Yield ever better approaches to a target; none if the sets have no extent towards it.

    The smallest k with the target in :math:`k \sum_i \beta_i S_i` is the dual norm of the support
    :math:`t(w) = \sum_i \beta_i t_i(w)`. At the minimum of :math:`t(w)^2/2 - target^\top w` the target equals
    :math:`t \nabla t`. The minimum is found by Newton's method with ever less smoothing.
    """
    beta = np.asarray(budgets / (float(np.sum(budgets)) or 1.0))
    size = float(norm(target)) or 1.0
    w = target / size
    reach = float(np.sum(beta * sets.support(w)))
    if reach == 0 or not np.any(budgets):
        return
    # start at the minimum along the direction of the target
    w = w / reach**2
    last = SMOOTHINGS[0]
    for smoothing in SMOOTHINGS:
        smoothed = sets.smoothed(smoothing / reach)
        starts = [w, sets.snapped_to_kinks(w, last / reach, smoothing / last)]
        w = _newton(_Pooled(smoothed, target / size, beta), starts)
        last = smoothing
        t = float(np.sum(beta * smoothed.support(w)))
        # weak duality: if k times the sets contain the target, target'w is at most k times the support for any w
        least = size * float(target / size @ w) / float(np.sum(budgets * sets.support(w)))
        yield Approach(w, smoothed, size * t / float(np.sum(budgets)), least)


def least_share(sets: RowSets, target: Array, budgets: Array, sizes: Array) -> float:
    r"""Return the least k, up to rounding, with the target in :math:`k \sum_i \beta_i S_i`; inf if there is none.

    Entries of the target may be missed by rounding errors relative to `sizes`. For sets without the origin it is inf
    unless the target is 0, as their multiples do not contain one another.
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
    """Return the sum of weights >= 0 with which maximizers add up to the target, an upper bound on the least share."""
    corners: list[Array] = []
    weights, rest = np.zeros(0), target
    for _ in range(CORNERS * len(target)):
        if np.all(np.abs(rest) <= MISSED * sizes):
            return float(np.sum(weights))
        corner = sets.adjoint(rest, budgets)
        # no point found so far has a positive product with the rest, so a point that has one brings the sum nearer
        if not sets.has_origin or corner @ rest <= ROUNDING * norm(corner) * norm(rest):
            break
        corners.append(corner)
        # refit all weights, not only that of the new point, so that a polytope takes finitely many steps
        weights = nnls(np.transpose(corners), target)[0]
        rest = target - weights @ np.array(corners)
    return np.inf


class _Pooled(NamedTuple):
    """The function t(w)^2 / 2 - target'w, with t the mean of the supports weighted by beta."""

    sets: RowSets
    target: Array
    beta: Array

    def at(self, w: Array) -> tuple[float, float, Array, Array]:
        """Return the value of the function, t, the gradient of t, and the gradient of the function."""
        t, point = float(np.sum(self.beta * self.sets.support(w))), self.sets.adjoint(w, self.beta)
        return 0.5 * t**2 - float(self.target @ w), t, point, t * point - self.target

    def hessian(self, w: Array, t: float, point: Array) -> Array:
        """Return the Hessian of the function plus a small ridge: it is flat along features that kinks keep at 0."""
        found = self.sets.curvature(w, t * self.beta, np.zeros_like(self.beta)) + np.outer(point, point)
        bends = np.diag(found)
        return found + RIDGE * np.diag(np.where(bends > 0, bends, np.max(bends, initial=0.0)))


def _newton(pooled: _Pooled, starts: Sequence[Array]) -> Array:
    """Return a w near the minimum, starting from the best of `starts`."""
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
            # a decrease below rounding is not visible in the value, but may be in the gradient
            if -slope <= ROUNDING * abs(value) or length < SHORTEST:
                break
            length *= 0.5
            there = pooled.at(w + length * step)
        # neither the value nor the gradient shows progress
        if norm(there[3]) > 0.5 * norm(gradient) and not there[0] < value - ROUNDING * abs(value):
            return w
        w = w + length * step
        value, t, point, gradient = there
    return w
