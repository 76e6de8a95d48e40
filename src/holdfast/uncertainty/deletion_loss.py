"""The hinge loss under deletion of features, where the margin asked for depends on the features that remain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.row_forms import Array
from holdfast.uncertainty.checks import feature_costs, stated_number
from holdfast.uncertainty.knapsacks import DECISIONS, EVERYWHERE, Knapsack, Where

ROUNDED = 1e-9
"""A relative shortfall of the budget up to this counts as rounding: 0.3 pays for three features of 0.1."""


def in_units(values: Array, budget: float, call: str) -> tuple[NDArray[np.int64], int]:
    """Return the values as multiples of a common unit, and the number of units the budget pays for.

    For integers the unit is their greatest common divisor, otherwise the smallest value above 0. A value of inf becomes
    one unit more than the budget.

    Examples
    --------
    >>> in_units(np.array([10.0, 20.0, 0.0, np.inf]), 25.0, "f()")
    (array([1, 2, 0, 3]), 2)
    """
    is_finite = np.isfinite(values)
    finite = np.where(is_finite, values, 0.0)
    positive = finite[finite > 0]
    # not every integer beyond 2^53 is a float, so divisors of rounded ones are meaningless
    whole = np.all(finite == np.rint(finite)) and np.all(finite < 2.0**53)
    unit = float(np.gcd.reduce(positive.astype(np.int64), initial=0) or 1) if whole else float(positive.min())
    multiples = np.rint(finite / unit)
    if not np.allclose(multiples * unit, finite, rtol=ROUNDED, atol=0.0):
        raise ValueError(
            f"{call}: values are not multiples of the smallest of them, for which no exact adversary is fast. "
            "Give integers, or let fractions be deleted too (adversary='relaxed')."
        )
    capacity = int(min(np.floor(budget / unit + ROUNDED), multiples.sum()))
    return np.where(is_finite, multiples, capacity + 1).astype(np.int64), capacity


def _relaxed(values: Array, budget: float, call: str) -> Knapsack:
    return Knapsack(values, budget)


def _tightened(values: Array, budget: float, call: str) -> Knapsack:
    finite = values[np.isfinite(values)]
    capacity = float(np.floor(budget + ROUNDED)) if np.all(finite == np.rint(finite)) else budget
    # features that cost more than the budget are never deleted as a whole, and integer values never use up its fraction
    return Knapsack(np.where(values > capacity, np.inf, values), capacity)


def _exact(values: Array, budget: float, call: str) -> Knapsack:
    units, capacity = in_units(values, budget, call)
    if not np.any(units[np.isfinite(values)] > 1):
        # with equal values and an integer budget, the best deletions in parts are whole
        return Knapsack(np.where(np.isfinite(values), units, np.inf), float(capacity))
    if capacity * len(units) > DECISIONS:
        raise ValueError(
            f"{call}: the values are so fine that whole deletions take a table of {capacity:.2g} x {len(units)} entries for "
            "every row. Round values and budget to a coarser unit, or let fractions be deleted too (adversary='relaxed')."
        )
    return Knapsack(units.astype(np.float64), float(capacity), is_whole=True)


ADVERSARIES = {"relaxed": _relaxed, "tightened": _tightened, "exact": _exact}
"""What may be deleted: parts of any feature; parts of features whose whole fits the budget; or whole features."""


@dataclass(frozen=True)
class DeletionLoss:
    r"""The hinge loss under deletion of features worth up to N, with a margin that depends on the features that remain.

    Let v be the values of the features, V their sum, P = V - N, and :math:`a_j = y w_j x_j`. The deficit is

    .. math:: \max_d \Bigl[\frac{\gamma}{P} \sum_j (1 - d_j) v_j - y b - \sum_j (1 - d_j) a_j\Bigr]
       = \frac{\gamma V}{P} - y b - \sum_j a_j + \max_d \sum_j d_j \Bigl(a_j - \frac{\gamma v_j}{P}\Bigr)

    over :math:`\sum_j d_j v_j \le N`, with d in {0, 1} (exact) or in [0, 1] (relaxed, never smaller). The loss is the
    positive part of the deficit. It is at least :math:`\gamma` if some deletion makes :math:`y f(x) \le 0` (Dekel &
    Shamir 2008). Features whose value is inf are never deleted, ask for no margin and are not part of V.

    Parameters
    ----------
    values : ndarray of shape (n_features,)
        v.
    budget : float
        N, in the unit of the values.
    margin : float
        :math:`\gamma`.
    knapsack : Knapsack
        The problem that the adversary solves.
    """

    values: Array
    budget: float
    margin: float
    knapsack: Knapsack

    @classmethod
    def of(cls, values: Any, budget: Any, margin: Any, adversary: Any, n_features: int, call: str) -> DeletionLoss:
        """Return the loss after checking the arguments. If `values` is None, each of `n_features` is worth 1."""
        v, N = deletable(values, budget, n_features, call)
        gamma = stated_number(margin, call, "margin")
        if gamma == 0:
            raise ValueError(f"{call}(margin={margin!r}): margin must be > 0.")
        if not isinstance(adversary, str) or adversary not in ADVERSARIES:
            raise ValueError(f"{call}(adversary={adversary!r}): choose one of {', '.join(map(repr, ADVERSARIES))}.")
        return cls(v, N, gamma, ADVERSARIES[adversary](v, N, f"{call}(adversary={adversary!r})"))

    @cached_property
    def worth(self) -> Array:
        """The values, 0 for features that are never deleted."""
        return np.where(np.isfinite(self.values), self.values, 0.0)

    @cached_property
    def rate(self) -> float:
        """The margin asked for each remaining unit of value, gamma / P."""
        return self.margin / (float(self.worth.sum()) - self.budget)

    @cached_property
    def asked(self) -> Array:
        """The margin asked for each feature if it remains, shape (n_features,)."""
        return self.rate * self.worth

    @cached_property
    def largest_margin(self) -> float:
        r"""The margin asked if nothing is deleted, :math:`\psi = \gamma V / P`."""
        return float(self.asked.sum())

    def deficits(self, margins: Array, bias: Array, where: Where = EVERYWHERE) -> tuple[Array, Array]:
        """Return the deficit of each row, and the share of each feature that remains.

        Parameters
        ----------
        margins : ndarray of shape (n_rows, n_given)
            a, for the features `where`.
        bias : ndarray of shape (n_rows,)
            y b.
        where : slice or ndarray of int
            The features of the columns of `margins`. All others have a = 0 and are never worth deleting.
        """
        gains = margins - self.asked[where]
        deleted = self.knapsack.best(gains, where)
        return self.largest_margin - bias - margins.sum(axis=1) + (deleted * gains).sum(axis=1), 1.0 - deleted

    def worst_of(self, margins: Any, bias: Array) -> tuple[Array, Any]:
        """Return the deficit of each row, and the share of each entry that is deleted.

        Parameters
        ----------
        margins : {ndarray, csr_array} of shape (n_rows, n_features)
            a; only the stored entries of a sparse array are read.
        bias : ndarray of shape (n_rows,)
            y b.
        """
        if not sparse.issparse(margins):
            deficits, left = self.deficits(margins, bias)
            return deficits, 1.0 - left
        gains = margins.copy()
        gains.data = margins.data - self.asked[margins.indices]
        deleted = self.knapsack.best_stored(gains)
        gains.data *= deleted.data
        return self.largest_margin - bias - margins.sum(axis=1) + gains.sum(axis=1), deleted

    def take(self, where: Where) -> DeletionLoss:
        """Return the loss of the features `where`, as if all other features had the value 0."""
        return replace(
            self, values=self.values[where], knapsack=replace(self.knapsack, prices=self.knapsack.prices[where])
        )


def deletable(values: Any, budget: Any, n_features: int, call: str) -> tuple[Array, float]:
    """Return the value of each feature (1 if None) and the budget, which must be below the sum of the finite values."""
    v = feature_costs(values, n_features, f"{call}(values=...)")
    N = stated_number(budget, call, "budget")
    total = float(v[np.isfinite(v)].sum())
    if total == 0:
        raise ValueError(
            f"{call}(values={values!r:.80}): no feature has a finite value above 0, so that there is nothing to guard against."
        )
    if total <= N:
        raise ValueError(
            f"{call}(budget={budget!r}): must be below what the features are worth together, {total:g} "
            f"(n_features={n_features}); the adversary could delete every one."
        )
    return v, N
