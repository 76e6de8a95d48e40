"""What an adversary with a budget deletes: knapsacks, one for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Knapsack(ABC):
    r"""Which entries of a row are deleted: :math:`\max_d \sum_j d_j G_j` with :math:`\sum_j d_j v_j \le capacity`.

    Attributes
    ----------
    values : ndarray of shape (n_features,)
        v >= 0, inf for features that are never deleted.
    capacity : float
    """

    values: Array
    capacity: float

    @abstractmethod
    def deletions(self, G: Array) -> Array:
        """Return a best d for each row of gains, shape (n_rows, n_features)."""


class FractionalKnapsack(Knapsack):
    """Shares of entries may be deleted: by gain for the value, the last one in part."""

    def deletions(self, G: Array) -> Array:
        order, gains, values = by_ratio(G, self.values)
        before = np.cumsum(values, axis=1) - values
        room = np.maximum(self.capacity - before, 0.0)
        shares = np.where(values > room, room / np.where(values > 0, values, 1.0), 1.0) * (gains > 0)
        d = np.empty_like(G)
        np.put_along_axis(d, order, shares, axis=1)
        return d


class IntegerKnapsack(Knapsack):
    """Entries are deleted or not, and values are integers: by dynamic programming, O(n_features * capacity) a row."""

    def deletions(self, G: Array) -> Array:
        n_rows, n_features = G.shape
        capacity = int(self.capacity)
        best = np.zeros((n_rows, capacity + 1))
        takes = np.zeros((n_features, n_rows, capacity + 1), dtype=bool)
        for j in np.flatnonzero(self.values <= capacity):
            v = int(self.values[j])
            tried = best[:, : capacity + 1 - v] + G[:, j, None]
            takes[j][:, v:] = tried > best[:, v:]
            best[:, v:] = np.maximum(best[:, v:], tried)
        d, left, each = np.zeros_like(G), np.full(n_rows, capacity), np.arange(n_rows)
        for j in np.flatnonzero(self.values <= capacity)[::-1]:
            taken = takes[j][each, left]
            d[taken, j] = 1.0
            left[taken] -= int(self.values[j])
        return d


def by_ratio(G: Array, values: Array) -> tuple[NDArray[np.intp], Array, Array]:
    """Return the order of each row's entries by gain for the value, best first, and gains (0 for none) and values in it."""
    useful = np.where(np.isfinite(values), np.maximum(G, 0.0), 0.0)
    ratios = np.where(useful > 0, useful / np.where(values > 0, values, np.finfo(float).tiny), 0.0)
    order = np.argsort(-ratios, axis=1, kind="stable")
    gains = np.take_along_axis(useful, order, axis=1)
    return order, gains, np.where(gains > 0, values[order], 0.0)


def survived_value(G: Array, margins: Array, values: Array) -> Array:
    """Return what deletions of each row may be worth while their gains stay below its margin; inf where all deletions do.

    Where all values but those that are 0 are the same, the largest worth that no set of entries uses in vain. Else the least
    worth, shares of entries included, with which gains reach the margin: every set that is worth less stays below.
    """
    _, gains, worth = by_ratio(G, values)
    reached = np.cumsum(gains, axis=1)
    is_short = reached < margins[:, None]
    n_whole = is_short.sum(axis=1)
    is_safe = n_whole == G.shape[1]
    spent = np.where(is_short, worth, 0.0).sum(axis=1)
    each = values[np.isfinite(values) & (values > 0)]
    if not np.all(each == each[:1]):
        last = np.minimum(n_whole, G.shape[1] - 1)[:, None]
        gain, v, level = (np.take_along_axis(part, last, axis=1)[:, 0] for part in (gains, worth, reached))
        share = (margins - (level - gain)) / np.where(gain > 0, gain, 1.0)
        spent = spent + v * np.clip(share, 0.0, 1.0)
    return np.where(is_safe, np.inf, spent)
