"""Which features to delete: knapsacks of gains, one for each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.uncertainty.checks import nonnegative, numbers, one_number

Array = NDArray[np.float64]
Where = slice | NDArray[Any]
EVERYWHERE = slice(None)
ROUNDED = 1e-9
"""What a budget may fall short of a multiple of the values and still pay for it: 0.3 buys three features of 0.1."""


def relaxed_deletions(gains: Array, values: Array, budget: float) -> Array:
    r"""Return the d that maximises :math:`\sum_j d_j G_j` over :math:`0 \le d \le 1, \sum_j d_j v_j \le N`, row by row.

    Gains per value in falling order until the budget is spent; at most one d a row is a fraction. What costs nothing is free.

    Parameters
    ----------
    gains : ndarray of shape (n_rows, n_features)
        G, what deleting each feature gains; those of 0 or less are kept.
    values : ndarray of shape (n_features,)
        v >= 0.
    budget : float
        N >= 0.

    Examples
    --------
    >>> relaxed_deletions(np.array([[3.0, 10.0, -1.0]]), np.array([1.0, 4.0, 1.0]), 4.0)
    array([[1.  , 0.75, 0.  ]])
    """
    worth = gains > 0
    found = np.zeros_like(gains)
    if not worth.any():
        return found
    price = worth * values
    rank = np.divide(gains, price, out=np.where(worth, np.inf, -np.inf), where=price > 0)
    order = (np.arange(len(gains))[:, None], np.argsort(-rank, axis=1))
    price = price[order]
    left = budget - (price.cumsum(axis=1) - price)
    share = np.divide(left, price, out=np.ones_like(price), where=price > 0)
    found[order] = np.minimum(np.maximum(share, 0.0), 1.0)
    return worth * found


def whole_deletions(gains: Array, units: NDArray[np.int64], capacity: int) -> Array:
    r"""Return the d in {0, 1} that maximises :math:`\sum_j d_j G_j` over :math:`\sum_j d_j u_j \le K`, row by row.

    Dynamic programming over the capacities 0..K, O(n_features K) a row.

    Parameters
    ----------
    gains : ndarray of shape (n_rows, n_features)
    units : ndarray of int of shape (n_features,)
        u >= 0, what each feature is worth.
    capacity : int
        K >= 0.

    Examples
    --------
    >>> whole_deletions(np.array([[3.0, 10.0]]), np.array([1, 4]), 4)
    array([[0., 1.]])
    """
    n_rows, n_features = gains.shape
    best = np.zeros((n_rows, capacity + 1))
    taken = np.zeros((n_features, n_rows, capacity + 1), dtype=bool)
    for j in np.flatnonzero(units <= capacity):
        rest = best[:, units[j] :]
        tried = best[:, : capacity + 1 - units[j]] + gains[:, j, None]
        taken[j, :, units[j] :] = tried > rest
        np.maximum(rest, tried, out=rest)
    found, room, rows = np.zeros_like(gains), np.full(n_rows, capacity), np.arange(n_rows)
    for j in np.arange(n_features)[::-1]:
        chosen = taken[j, rows, room]
        found[:, j] = chosen
        room -= units[j] * chosen
    return found


def in_units(values: Array, budget: float, call: str) -> tuple[NDArray[np.int64], int]:
    """Return values as multiples of a common unit, and how many units the budget pays for.

    The unit is the greatest common divisor of integers, otherwise the smallest value above 0.

    Examples
    --------
    >>> in_units(np.array([10.0, 20.0, 0.0]), 25.0, "f()")
    (array([1, 2, 0]), 2)
    """
    positive = values[values > 0]
    whole = np.all(values == np.rint(values)) and np.all(values < 2.0**53)
    unit = float(np.gcd.reduce(positive.astype(np.int64))) if whole else float(positive.min())
    multiples = np.rint(values / unit)
    if not np.allclose(multiples * unit, values, rtol=ROUNDED, atol=0.0):
        raise ValueError(
            f"{call}: values are not multiples of the smallest of them, for which no exact adversary is fast. "
            "Give integers, or adversary='relaxed', whose loss is never below the exact one."
        )
    return multiples.astype(np.int64), int(min(np.floor(budget / unit + ROUNDED), multiples.sum()))


@dataclass(frozen=True)
class Knapsack:
    """What may be deleted together.

    Parameters
    ----------
    prices : ndarray of shape (n_features,)
    capacity : float
        What all of them may cost.
    is_whole : bool
        Whether fractions of features would be deleted otherwise; prices and capacity are integers then.
    """

    prices: Array
    capacity: float
    is_whole: bool = False

    def best(self, gains: Array, where: Where) -> Array:
        """Return what to delete of the features `where`, whose gains these are; shape (n_rows, n_given)."""
        if self.is_whole:
            return whole_deletions(gains, self.prices[where].astype(np.int64), int(self.capacity))
        return relaxed_deletions(gains, self.prices[where], self.capacity)


def _relaxed(values: Array, budget: float, call: str) -> Knapsack:
    return Knapsack(values, budget)


def _exact(values: Array, budget: float, call: str) -> Knapsack:
    units, capacity = in_units(values, budget, call)
    # the fractional knapsack of equal values and a whole budget has no fraction
    return Knapsack(units.astype(np.float64), float(capacity), is_whole=bool(np.any(units > 1)))


ADVERSARIES = {"relaxed": _relaxed, "exact": _exact}
"""Who deletes: fractions of features, or whole ones."""


@dataclass(frozen=True)
class DeletionLoss:
    r"""The hinge against the deletion of features worth up to N, where more margin is asked of what is left.

    With values v of the features, V their sum, P = V - N, and :math:`a_j = y w_j x_j`, the deficit is

    .. math:: \max_d \Bigl[\frac{\gamma}{P} \sum_j (1 - d_j) v_j - y b - \sum_j (1 - d_j) a_j\Bigr]
       = \frac{\gamma V}{P} - y b - \sum_j a_j + \max_d \sum_j d_j \Bigl(a_j - \frac{\gamma v_j}{P}\Bigr)

    over :math:`\sum_j d_j v_j \le N`, d in {0, 1} (exact) or in [0, 1] (relaxed, never smaller); the loss is its positive
    part, and at least :math:`\gamma` wherever some deletion makes :math:`y f(x) \le 0` (Dekel & Shamir 2008).

    Parameters
    ----------
    values : ndarray of shape (n_features,)
        v.
    budget : float
        N, in the unit of the values.
    margin : float
        :math:`\gamma`.
    knapsack : Knapsack
        Who deletes.
    """

    values: Array
    budget: float
    margin: float
    knapsack: Knapsack

    @classmethod
    def of(cls, values: Any, budget: Any, margin: Any, adversary: str, n_features: int, call: str) -> DeletionLoss:
        """Return the loss of checked numbers; `values` None means that each of `n_features` is worth 1."""
        v, N = deletable(values, budget, n_features, call)
        gamma = one_number(margin, f"{call}(margin=...)", "margin")
        if gamma == 0:
            raise ValueError(f"{call}(margin={margin!r}): margin must be > 0.")
        if adversary not in ADVERSARIES:
            raise ValueError(f"{call}(adversary={adversary!r}): give 'relaxed' or 'exact'.")
        return cls(v, N, gamma, ADVERSARIES[adversary](v, N, f"{call}(adversary={adversary!r})"))

    @cached_property
    def rate(self) -> float:
        """The margin asked for each unit of value that is left, gamma / P."""
        return self.margin / (float(self.values.sum()) - self.budget)

    @cached_property
    def largest_margin(self) -> float:
        r"""The margin asked where nothing is deleted, :math:`\psi = \gamma V / P`."""
        return self.rate * float(self.values.sum())

    def deficits(self, margins: Array, bias: Array, where: Where = EVERYWHERE) -> tuple[Array, Array]:
        """Return the deficit of each row, and which share of each feature is left there.

        Parameters
        ----------
        margins : ndarray of shape (n_rows, n_given)
            a.
        bias : ndarray of shape (n_rows,)
            y b.
        where : slice or ndarray of int
            The features that `margins` are of; all others have a = 0 and are never worth deleting.
        """
        gains = margins - self.rate * self.values[where]
        deleted = self.knapsack.best(gains, where)
        return self.largest_margin - bias - margins.sum(axis=1) + (deleted * gains).sum(axis=1), 1.0 - deleted


def deletable(values: Any, budget: Any, n_features: int, call: str) -> tuple[Array, float]:
    """Return the value of each feature, 1 for None, and a budget below their sum."""
    given = np.ones(n_features) if values is None else numbers(values, f"{call}(values=...)", "values")
    if given.shape != (n_features,):
        raise ValueError(
            f"{call}(values=...): has shape {given.shape}; give one value for each feature, ({n_features},)."
        )
    v = np.asarray(nonnegative(given, f"{call}(values=...)", "values"))
    N = one_number(budget, f"{call}(budget=...)", "budget")
    if v.sum() <= N:
        raise ValueError(
            f"{call}(budget={budget!r}): must be below the value of all features together, which is {v.sum():g} "
            f"(n_features={n_features}); nothing would be left."
        )
    return v, N
