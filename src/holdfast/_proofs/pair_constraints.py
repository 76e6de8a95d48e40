"""Constraints on dual weights: the sets of two classes must absorb their pull, or the largest share of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.arithmetic import norm
from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets

SAMPLE, MARGIN = 1000, 1.1
"""Number of rows sampled for a first search, and the factor by which the cut found there is widened for all rows."""


class DualScale(Protocol):
    """The part of a loss that constraints use."""

    def dual_scale(self, a: Array) -> Array:
        """Return the budget of each row's set: how much of it the dual weights may use."""
        ...


class PairConstraint(NamedTuple):
    """A pull on the difference of two classes' weights, which the sets of their rows must absorb."""

    sets: Callable[[], RowSets]
    """The sets of these rows."""
    weights: Array
    slopes: Array
    """Dual weights a, one for each row."""
    target: Array
    """The pull, shape (n_features,)."""
    scale: Array
    """As in DualGuess."""
    direction: Array
    alpha: float
    sizes: Array | None = None
    """Sizes of the sums that the target's entries came from."""
    absorbed: Array | None = None
    """A sum of points of the sets, each times its budget, near the target."""


def largest_share(loss: DualScale, constraints: Sequence[PairConstraint]) -> float:
    """Return the largest k in [0, 1] found at which the budgets of k a cover k times every target.

    Such a k exists because p is concave with p(0) = 0.
    """
    full = [constraint.weights * loss.dual_scale(constraint.slopes) for constraint in constraints]
    shares, commons = [], []
    for constraint, budgets in zip(constraints, full, strict=True):
        sets = constraint.sets()
        shares.append(sets.required_share(constraint.target, budgets, constraint.scale, constraint.sizes))
        commons.append(sets.is_common)
    required = np.concatenate([np.atleast_1d(d) for d in shares])
    if not np.all(np.isfinite(required)):
        return 0.0

    def offered(budgets: Sequence[Array]) -> Array:
        return np.concatenate(
            [np.atleast_1d(np.sum(b)) if common else b for b, common in zip(budgets, commons, strict=True)]
        )

    def slack(k: float) -> Array:
        return offered([one.weights * loss.dual_scale(k * one.slopes) for one in constraints]) - k * required

    whole = offered(full) - required
    if np.all(whole >= 0):
        return 1.0
    cut = max(float(np.max(-whole / np.where(whole < 0, required, 1.0))), 1e-15)
    # if much is missing a linear estimate may be wrong: budgets can rise steeply, so begin with a tiny cut
    first = (cut, 2.0) if cut <= 1e-3 else (1e-15, 8.0)
    some = [slice(None, None, 1 + len(b) // SAMPLE) for b in full]
    parts = np.array([np.sum(b[part]) / np.sum(b) for b, part in zip(full, some, strict=True) if np.any(b)])
    if all(commons) and len(parts) == len(full) and 0 < np.min(parts) <= np.max(parts) < 0.5:
        # a cut that suffices for a sample of the rows is a good start

        def sampled(k: float) -> Array:
            budgets = [
                one.weights[part] * loss.dual_scale(k * one.slopes[part])
                for one, part in zip(constraints, some, strict=True)
            ]
            return offered(budgets) / parts - k * required

        cut = MARGIN * (1 - _covered_share(sampled, whole, *first))
        first = (max(cut, 1e-15), 2.0) if cut < 0.5 else first
    return _covered_share(slack, whole, *first)


def _covered_share(slack: Callable[[float], Array], whole: Array, cut: float, growth: float) -> float:
    """Return a k in [0, 1], near the largest, at which no slack is negative; each trial has `growth` times the cut."""
    while cut < 0.5:
        rest = slack(1 - cut)
        if np.all(rest >= 0):
            # slack is concave in k and lies above its chord, so it is nonnegative at the chord's root
            short = whole < 0
            return float(1 - cut * np.max(-whole[short] / (rest - whole)[short]))
        cut *= growth
    # a tight bound is out of reach: take any k that is found fast
    for k in 0.5 ** np.array([1, 2, 3, 5, 8, 13, 21, 34]):
        if np.all(slack(k) >= 0):
            return float(k)
    return 0.0


def dual_objective(
    loss: DualScale, constraints: Sequence[PairConstraint], value: Callable[[float], float]
) -> tuple[float, float]:
    """Return the best dual objective over multiples in [0, 1] of the dual weights, and the best multiple.

    `value` gives the dual value of a multiple. Without a ridge the budgets must cover the whole pull; with a ridge, the
    part of the pull that they do not cover costs its square / 2 alpha.
    """

    def penalised(k: float) -> float:
        penalty = 0.0
        for constraint in constraints:
            budgets = constraint.weights * loss.dual_scale(k * constraint.slopes)
            missed = constraint.sets().residual(k * constraint.target, budgets, constraint.scale, constraint.direction)
            if constraint.absorbed is not None:
                # budgets of k a are at least k times those of a
                missed = min(missed, k * (constraint.target - constraint.absorbed), key=norm)
            penalty += float(missed @ missed) / (2 * constraint.alpha)
        return value(k) - penalty

    if constraints[0].alpha == 0:
        share = largest_share(loss, constraints)
        return value(share), share
    whole = penalised(1.0)
    if whole > 0.5 * value(1.0):
        return whole, 1.0
    found = minimize_scalar(lambda k: -penalised(k), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return max((whole, 1.0), (-float(found.fun), float(found.x)))
