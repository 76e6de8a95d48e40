"""Losses of rows whose labels may be wrong, within a shared budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array, Coupling, Loss
from holdfast._core.problem import WITHHELD
from holdfast._core.programs import FiniteSum, ProximalSum
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.uncertainty.knapsacks import hyperbola

ROOT_STEPS = 100
"""Largest number of steps to find the price of a flip, far more than needed."""
BUDGET_ACCURACY = 1e-13
"""Relative accuracy to which the budget is met."""


class _State:
    """The quantities at (u, t): the losses with either label, and the share of each label that flips."""

    def __init__(self, loss: FlippedLoss, u: Array, t: Array):
        self.u, self.t = u, t
        base, n, g = loss.base, loss.counts, loss.factors
        self.own = base.evaluate(u, t)
        self.other = base.evaluate(2 * loss.target - u, t)
        gain = self.other[0] - self.own[0]
        self.gain_u, self.gain_t = -self.other[1] - self.own[1], self.other[2] - self.own[2]
        self.share, self.prices = np.zeros(len(u)), np.zeros(len(loss.budgets))
        flipped, self.bends = np.zeros(len(u)), np.zeros(len(u))
        for k, (rows, budget) in enumerate(zip(loss.groups, loss.budgets, strict=True)):
            worth, counts = g[rows] * gain[rows], n[rows]
            if budget == 0:
                continue
            if loss.smoothing == 0:
                price, self.share[rows] = most_valuable(worth, counts, budget)
                flipped[rows] = np.maximum(worth - price, 0.0)
            else:
                price = eased_price(worth, counts, budget, loss.smoothing)
                flipped[rows], self.share[rows], self.bends[rows] = hyperbola(worth - price, loss.smoothing)
            self.prices[k] = price
        self.value = self.own[0] + flipped / g + float(loss.budgets @ self.prices) / loss.total


class FlippedLoss(Loss):
    r"""The losses of rows when the labels that raise the losses most flip, within a budget.

    With :math:`l_i = \ell(u_i, t_i)` and :math:`l_i' = \ell(2\,\text{target} - u_i, t_i)` the weighted sum of the losses is

    .. math:: \sum_i c_i l_i + \max_\delta \sum_i c_i \delta_i (l_i' - l_i)
              = \min_{\lambda \ge 0} K\lambda + \sum_i c_i l_i + n_i (g_i (l_i' - l_i) - \lambda)_+,
              \qquad 0 \le \delta_i \le 1, \; \sum_i n_i \delta_i \le K,

    where c = n g, for each group of rows. Smoothed by e, :math:`(z)_+` becomes :math:`(z + \sqrt{z^2 + e^2})/2`, whose
    slopes are the shares :math:`\delta`. Rows are coupled through :math:`\lambda`; see `couplings`.

    Parameters
    ----------
    base : Loss
    counts, factors : ndarray of shape (n_samples,)
        n >= 0 and g > 0.
    groups : sequence of index arrays
        Which rows share a budget; all rows are in one group.
    budgets : ndarray of shape (n_groups,)
    target : float or ndarray of shape (n_samples,)
    smoothing : float
    """

    is_rowwise = False

    def __init__(
        self,
        base: Loss,
        counts: Array,
        factors: Array,
        groups: Sequence[Any],
        budgets: Array,
        target: Any = 1.0,
        smoothing: float = 0.0,
    ):
        self.base, self.counts, self.factors = base, counts, factors
        self.groups, self.budgets, self.target, self.smoothing = groups, budgets, target, smoothing
        self.total = float(counts @ factors)
        self._known: _State | None = None

    @property
    def is_proper(self) -> bool:  # type: ignore[override]
        return self.base.is_proper

    @property
    def is_worst_case(self) -> bool:  # type: ignore[override]
        return self.base.is_worst_case

    @property
    def is_smooth(self) -> bool:  # type: ignore[override]
        return self.smoothing > 0 and self.base.is_smooth

    @property
    def straight(self) -> float:  # type: ignore[override]
        # labels about to flip have curvature 1 / smoothing, the others that of the base loss
        return min(1.0, self.smoothing) * self.base.straight

    def at(self, u: Array, t: Array) -> _State:
        """Return the state at (u, t); the last state is remembered."""
        known = self._known
        if known is None or not (np.array_equal(known.u, u) and np.array_equal(known.t, t)):
            known = self._known = _State(self, u, t)
        return known

    def value(self, u: Array, t: Array) -> Array:
        return self.at(u, t).value  # for solvers only: proofs sum `dearest_flips`

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        here = self.at(u, t)
        return here.value, here.own[1] + here.share * here.gain_u, here.own[2] + here.share * here.gain_t

    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        here = self.at(u, t)
        s, bends = here.share, self.factors * here.bends
        own, other = self.base.curvature(u, t), self.base.curvature(2 * self.target - u, t)
        return (
            (1 - s) * own[0] + s * other[0] + bends * here.gain_u**2,
            (1 - s) * own[1] - s * other[1] + bends * here.gain_u * here.gain_t,
            (1 - s) * own[2] + s * other[2] + bends * here.gain_t**2,
        )

    def couplings(self, u: Array, t: Array) -> list[Coupling]:
        here, found = self.at(u, t), []
        for rows, price in zip(self.groups, here.prices, strict=True):
            total = float(np.sum((self.counts * here.bends)[rows]))
            if price > 0 and total > 0:
                bends = np.zeros(len(u))
                bends[rows] = (self.counts * self.factors * here.bends)[rows]
                found.append(Coupling(bends * here.gain_u, bends * here.gain_t, total))
        return found

    def smoothed(self, delta: float) -> FlippedLoss:
        return self.of(base=self.base.smoothed(delta), smoothing=delta)

    @classmethod
    def examples(cls) -> Sequence[FlippedLoss]:
        # tests of losses take one row at a time, but these rows are coupled
        return []

    def of(self, **changes: Any) -> FlippedLoss:
        """Return the same loss with some arguments changed."""
        return FlippedLoss(**(self.get_params(deep=False) | changes))


def most_valuable(worth: Array, counts: Array, budget: float) -> tuple[float, Array]:
    """Return the price at which the entries worth more fit the budget, and the share of each entry that is bought."""
    order = np.argsort(-worth, kind="stable")
    order = order[worth[order] > 0]
    share = np.zeros(len(worth))
    bought = np.clip(budget - (np.cumsum(counts[order]) - counts[order]), 0.0, counts[order])
    share[order] = np.divide(bought, counts[order], out=np.zeros(len(order)), where=counts[order] > 0)
    partly = np.flatnonzero(bought < counts[order])
    return (float(worth[order[partly[0]]]) if len(partly) else 0.0), share


def eased_price(worth: Array, counts: Array, budget: float, smoothing: float) -> float:
    """Return the price at which smoothed shares use up the budget, 0 if none does, by Newton steps in a bracket."""

    def excess(price: float) -> tuple[float, float]:
        _, share, bend = hyperbola(worth - price, smoothing)
        return float(counts @ share) - budget, float(counts @ bend)

    if excess(0.0)[0] <= 0:
        return 0.0
    low, high = 0.0, float(np.max(worth)) + smoothing * float(np.sqrt(counts.sum() / budget))
    price = most_valuable(worth, counts, budget)[0]
    for _ in range(ROOT_STEPS):
        over, bend = excess(price)
        low, high = (price, high) if over > 0 else (low, price)
        if abs(over) <= BUDGET_ACCURACY * budget:
            break
        new = price + over / bend if bend > 0 else high
        if not low < new < high:
            new = 0.5 * (low + high)
        if new == price:
            break
        price = new
    return price


@dataclass
class LabelFlipProblem(MarginScaleProblem):
    r"""A margin-scale problem in which labels worth `budgets` flip: :class:`FlippedLoss` of its loss. Sets are symmetric.

    Attributes
    ----------
    budgets : ndarray of shape (n_pools,)
    pools : ndarray of shape (n_samples,)
        Which budget a row's label draws on.
    factors : ndarray of shape (n_samples,)
        A row's weight in the loss over its count in the budget, > 0.
    """

    budgets: Array = field(default_factory=lambda: np.zeros(1))
    pools: NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, dtype=np.intp))
    factors: Array = field(default_factory=lambda: np.ones(1))
    # a row's loss depends on all others: no sum over rows
    views = {FiniteSum: WITHHELD, ProximalSum: WITHHELD}
    has_kinks = True
    is_held = True
    may_be_bounded = False

    def __post_init__(self) -> None:
        flipped = self.loss if isinstance(self.loss, FlippedLoss) else None
        base, smoothing = (self.loss, 0.0) if flipped is None else (flipped.base, flipped.smoothing)
        k, counts = len(self.budgets), self.weights / self.factors
        groups = [slice(None)] if k == 1 else [np.flatnonzero(self.pools == pool) for pool in range(k)]
        self.loss: Loss = FlippedLoss(base, counts, self.factors, groups, self.budgets, self.target, smoothing)

    @property
    def flipped_share(self) -> float:
        return float(self.budgets.sum() / self.flipping.counts.sum())

    @property
    def flipping(self) -> FlippedLoss:
        """The loss, typed as `FlippedLoss`."""
        return cast(FlippedLoss, self.loss)

    def row_fields(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return super().row_fields(rows) | {"factors": self.factors[rows], "pools": self.pools[rows]}

    def of_classes(self, rows: Rows, weights: Array) -> LabelFlipProblem:
        counts = np.array([np.sum(self.flipping.counts[own]) for own in self.members])
        factors, pools, budgets = np.array(self.class_weights()) / counts, np.zeros(2, dtype=np.intp), self.budgets
        if len(budgets) > 1:
            pools, budgets = np.arange(2), np.array([budgets[np.unique(self.pools[own])].sum() for own in self.members])
        own = {"signs": np.array([-1.0, 1.0]), "factors": factors, "pools": pools, "budgets": budgets}
        return replace(self, rows=rows, weights=weights, **own)

    def norm_bound(self, pull: Array | None) -> float:
        # flips add nothing at w = 0, from which the penalty's bound comes
        return self.ridge_bound(self.flipping.base)

    def dual_guess(self, parameters: Array) -> DualGuess:
        """Return the shares that flip and the losses' slopes with the own and the other label, shape (3, n_samples)."""
        w, b = self.split(parameters)
        t = self.sets.support(w)
        here = self.flipping.at(self.target - self.signs * (self.rows.dot(w) + b), t)
        return DualGuess(np.stack([here.share, here.own[1], here.other[1]]), w, t, self.sets)


def flipped(
    problem: MarginScaleProblem,
    budgets: Array,
    pools: NDArray[np.intp],
    counts: Array,
) -> LabelFlipProblem:
    """Return the problem in which labels flip; each flip takes its entry of `counts` from its pool's budget."""
    if problem.push is not None:
        raise ValueError(
            "LabelFlips together with GaussianNoise and a set: the loss is averaged, maximised and flipped at once, and no "
            "certified fit is known. State one of them; ChanceConstraint turns noise into a set."
        )
    if not problem.sets.is_symmetric:
        raise ValueError(
            "LabelFlips together with a WeightError of uncertain rows: what both do depends on the label, and is known "
            "for right labels only. Use WeightError(..., joint='bound'), or state one of them."
        )
    c = problem.weights
    weights = np.where(counts > 0, c, 0.0)
    factors = np.divide(c, counts, out=np.ones(len(c)), where=(counts > 0) & (c > 0))
    own = plain_fields(problem) | {"weights": weights, "budgets": budgets, "pools": pools, "factors": factors}
    return LabelFlipProblem(**own)


def plain_fields(problem: MarginScaleProblem) -> dict[str, Any]:
    """Return the fields of the problem without flips."""
    return {each.name: getattr(problem, each.name) for each in fields(MarginScaleProblem) if each.init}
