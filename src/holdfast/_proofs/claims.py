"""What pairs of classes have to bear: the largest share of dual weights that their sets cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.arithmetic import norm
from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets


class DualScale(Protocol):
    """What a claim needs to know of a loss."""

    def dual_scale(self, a: Array) -> Array:
        """Return how much of each set dual weights may use."""
        ...


class Claim(NamedTuple):
    """What the rows of two classes have to bear: a pull on the difference of the classes' weights."""

    sets: Callable[[], RowSets]
    """The sets of these rows."""
    weights: Array
    slopes: Array
    """Dual weights a, one a row."""
    target: Array
    """The pull, shape (n_features,)."""
    scale: Array
    """As in DualGuess."""
    direction: Array
    alpha: float
    sizes: Array | None = None
    """Sizes of the sums that the target's entries came from."""
    borne: Array | None = None
    """A sum of points of the sets, each times its budget, that comes near the target."""


def largest_share(loss: DualScale, claims: Sequence[Claim]) -> float:
    """Return the largest k in [0, 1] found at which the budgets of k a cover k times every target.

    It exists as p is concave with p(0) = 0.
    """
    full = [claim.weights * loss.dual_scale(claim.slopes) for claim in claims]
    demands, commons = [], []
    for claim, budgets in zip(claims, full, strict=True):
        bound = claim.sets()
        demands.append(bound.required_share(claim.target, budgets, claim.scale, claim.sizes))
        commons.append(bound.is_common)
    demand = np.concatenate([np.atleast_1d(d) for d in demands])
    if not np.all(np.isfinite(demand)):
        return 0.0

    def offered(budgets: Sequence[Array]) -> Array:
        return np.concatenate(
            [np.atleast_1d(np.sum(b)) if common else b for b, common in zip(budgets, commons, strict=True)]
        )

    def slack(k: float) -> Array:
        return offered([claim.weights * loss.dual_scale(k * claim.slopes) for claim in claims]) - k * demand

    whole = offered(full) - demand
    if np.all(whole >= 0):
        return 1.0
    cut, growth = max(float(np.max(-whole / np.where(whole < 0, demand, 1.0))), 1e-15), 2.0
    if cut > 1e-3:
        # too much is missing for a linear guess: budgets can rise steeply, so begin with a hair
        cut, growth = 1e-15, 8.0
    while cut < 0.5:
        rest = slack(1 - cut)
        if np.all(rest >= 0):
            # slack is concave in k, so it lies above its chord, whose root is therefore a proof
            short = whole < 0
            return float(1 - cut * np.max(-whole[short] / (rest - whole)[short]))
        cut *= growth
    # no tight bound any more: any will do, and soon
    for k in 0.5 ** np.array([1, 2, 3, 5, 8, 13, 21, 34]):
        if np.all(slack(k) >= 0):
            return float(k)
    return 0.0


def dual_objective(loss: DualScale, claims: Sequence[Claim], value: Callable[[float], float]) -> tuple[float, float]:
    """Return the best dual objective over multiples in [0, 1] of the dual weights, and that multiple.

    `value` says what a multiple is worth. Without a ridge the budgets must cover what is pulled; with one, what they do not
    cover costs its square / 2 alpha.
    """

    def penalised(k: float) -> float:
        penalty = 0.0
        for claim in claims:
            budgets = claim.weights * loss.dual_scale(k * claim.slopes)
            missed = claim.sets().residual(k * claim.target, budgets, claim.scale, claim.direction)
            if claim.borne is not None:
                # budgets fall no faster than k
                missed = min(missed, k * (claim.target - claim.borne), key=norm)
            penalty += float(missed @ missed) / (2 * claim.alpha)
        return value(k) - penalty

    if claims[0].alpha == 0:
        share = largest_share(loss, claims)
        return value(share), share
    whole = penalised(1.0)
    if whole > 0.5 * value(1.0):
        return whole, 1.0
    found = minimize_scalar(lambda k: -penalised(k), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return max((whole, 1.0), (-float(found.fun), float(found.x)))
