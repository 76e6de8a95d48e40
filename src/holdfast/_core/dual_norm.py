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
    best = _share_of_corners(sets, target, budgets, sizes)
    if not 0 < best < np.inf:
        return best
    for found in approaches(sets, target, budgets):
        missed = target - found.multiple * found.sets.adjoint(found.w, budgets)
        best = min(best, found.multiple + _share_of_corners(sets, missed, budgets, sizes))
        if best <= found.least * (1 + ROUNDING):
            break
    return best


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
        """Return the Hessian of the function."""
        return self.sets.curvature(w, t * self.beta, np.zeros_like(self.beta)) + np.outer(point, point)


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
