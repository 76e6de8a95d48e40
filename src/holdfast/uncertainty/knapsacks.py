"""Knapsacks: the largest gain within a budget, from shares of items, from whole items, or smoothed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import ratio
from holdfast._core.row_forms import Array
from holdfast._core.tolerances import ROUNDING

Where = slice | NDArray[Any]
EVERYWHERE = slice(None)

ROOT_STEPS = 100
"""Limit on the Newton steps to the prices, far more than are needed."""
BUDGET_ACCURACY = 1e-13
"""The budget is used up to this relative accuracy."""
DECISIONS = 5e7
"""The number of decisions of a dynamic program in memory at a time."""
LAST_STEP = 1e-3
"""A Newton step below this share of the width is certain to improve the price, so it is taken as the last one."""
FEW_ITEMS = 8
"""The number of best items added up first in each row; often they gain enough."""


class Filled(NamedTuple):
    """The shares of items taken in each row."""

    shares: Array
    """The share of each item, in [0, 1]."""
    prices: Array
    """The gain of each row per additional unit of budget."""


class _Ranked(NamedTuple):
    shares: Array
    prices: Array
    margin: NDArray[np.intp]
    """The item of each row that is taken in part, or the next one to be; meaningful only if the price is not 0."""
    part: Array
    """The share of that item."""
    above: Array
    """The gain per cost of the item before it."""
    below: Array
    """The gain per cost of the item after it."""


class SmoothlyFilled(NamedTuple):
    """The shares of items taken if the positive part of the gains is smoothed."""

    values: Array
    """The smooth gain of each row."""
    shares: Array
    bends: Array
    """Second derivatives of the smooth positive part at each item."""
    prices: Array
    is_tight: NDArray[np.bool_]
    """Whether the budget of each row is used up."""


class Knapsacks:
    r"""One knapsack per row, with gain :math:`K_i(g) = \max\{\sum_j d_j g_j : 0 \le d \le 1, \sum_j d_j v_j \le N\}`.

    By duality :math:`K_i(g) = \min_{\lambda \ge 0} N\lambda + \sum_j (g_j - \lambda v_j)_+`: items are taken in order
    of gain per cost until the budget is used up, the last one in part. If :math:`(z)_+` is replaced by
    :math:`(z + \sqrt{z^2 + c^2})/2`, the minimum is a smooth function of g, and the slopes of the summands are shares
    within the budget.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,)
        Row i has the items ``indptr[i]`` to ``indptr[i + 1] - 1``.
    costs : ndarray of shape (n_items,)
        v >= 0, finite.
    budget : float
        N >= 0; > 0 unless all costs are 0.
    is_spent : bool
        Whether the budget must be used up, :math:`\sum_j d_j v_j = N`, so that prices may be negative. N must then be
        less than the sum of the costs of every row.
    """

    def __init__(self, indptr: NDArray[Any], costs: Array, budget: float, *, is_spent: bool = False):
        self.indptr, self.costs, self.budget, self.is_spent = indptr, costs, budget, is_spent
        self.counts = np.diff(indptr)

    @cached_property
    def _groups(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Groups of rows of similar length, each with the indices of its items, padded (at most half) by n_items."""
        groups, n_items = [], len(self.costs)
        # each group is sorted as one array: a single group would pad all rows to the longest, single rows would need a
        # loop
        for doublings in np.unique(_doublings(self.counts)[self.counts > 0]):
            rows = np.flatnonzero((self.counts > 0) & (_doublings(self.counts) == doublings))
            columns = np.arange(self.counts[rows].max())
            slots = np.where(columns < self.counts[rows, None], self.indptr[rows, None] + columns, n_items)
            groups.append((rows, slots))
        return groups

    def by_item(self, per_row: Array) -> Array:
        """Return the value of each row, repeated for all of its items."""
        return np.repeat(per_row, self.counts)

    def row_sums(self, per_item: Array) -> Array:
        """Return the sum over the items of each row."""
        out, filled = np.zeros(len(self.counts)), self.counts > 0
        if len(per_item):
            out[filled] = np.add.reduceat(per_item, self.indptr[:-1][filled])
        return out

    def largest(self, per_item: Array) -> Array:
        """Return the largest value over the items of each row, at least 0."""
        out, filled = np.zeros(len(self.counts)), self.counts > 0
        if len(per_item):
            out[filled] = np.maximum(np.maximum.reduceat(per_item, self.indptr[:-1][filled]), 0.0)
        return out

    def filled(self, gains: Array) -> Filled:
        """Return the best shares. Items without a gain are not taken, unless the budget must be used up."""
        lift = self._lift(gains)
        found = self._ranked(gains + self.by_item(lift) * self.costs)
        return Filled(found.shares, found.prices - lift)

    def _lift(self, gains: Array, width: Array | float = 0.0) -> Array:
        """Return the amount to add to all gains per cost of each row so that a budget that must be used up is used up.

        All choices then cost the same, so raising gains in proportion to costs does not change which choice is best.
        """
        if not self.is_spent:
            return np.zeros(len(self.counts))
        is_paid = self.costs > 0
        inverse = np.divide(1.0, self.costs, out=np.zeros(len(gains)), where=is_paid)
        steepest = self.largest(np.abs(gains) * inverse)
        # the smooth share of a gain z > 0 is at least 1 - (c / 2z)^2
        room = np.maximum(1 - ratio(np.full(len(self.counts), self.budget), self.row_sums(self.costs)), ROUNDING)
        return 2 * steepest + np.where(steepest > 0, 0.0, 1.0) + width * self.largest(inverse) / np.sqrt(room)

    def cost_to_gain(self, gains: Array, wanted: Array) -> tuple[Array, Array]:
        """Return the results of the function `cost_to_gain` for each row."""
        whole, parts = np.where(wanted > 0, np.full((2, len(wanted)), np.inf), 0.0)
        padded, costs = np.append(gains, 0.0), np.append(self.costs, 1.0)
        for rows, slots in self._groups:
            whole[rows], parts[rows] = cost_to_gain(padded[slots], costs[slots], wanted[rows])
        return whole, parts

    def in_order(self, worth: Array) -> NDArray[np.bool_]:
        """Return whether a greedy choice takes each item: by descending `worth` > 0, each item if it still fits."""
        taken = np.zeros(len(worth) + 1, dtype=bool)
        for rows, slots, keys, v in self._sorted(worth):
            left = np.full(len(rows), self.budget)
            for k in range(slots.shape[1]):
                fits = (keys[:, k] > 0) & (v[:, k] <= left)
                left = left - np.where(fits, v[:, k], 0.0)
                taken[slots[fits, k]] = True
        return taken[:-1]

    def worth(self, gains: Array) -> Array:
        """Return the gain per cost of each item: 0 if the gain is not > 0, inf for a gain at no cost."""
        with np.errstate(over="ignore"):
            out = np.where(gains > 0, np.inf, 0.0)
            return np.divide(gains, self.costs, out=out, where=(self.costs > 0) & (gains > 0))

    def _sorted(self, worth: Array) -> Iterator[tuple[Any, Any, Array, Array]]:
        """Yield (rows, indices of their items, worth, costs) for each group of rows, with the best items first."""
        padded, padded_costs = np.append(worth, 0.0), np.append(self.costs, 0.0)
        for rows, slots in self._groups:
            # padding is worth 0, so it comes after all items with a gain
            order = np.argsort(-padded[slots], axis=1)
            ranked = np.take_along_axis(slots, order, axis=1)
            yield rows, ranked, padded[ranked], padded_costs[ranked]

    def _ranked(self, gains: Array) -> _Ranked:
        shares = np.zeros(len(gains) + 1)
        price, part, above, below = np.zeros((4, len(self.counts)))
        margins = np.zeros(len(self.counts), dtype=np.intp)
        for rows, slots, worth, v in self._sorted(self.worth(gains)):
            spent = np.cumsum(v, axis=1) - v
            bought = np.divide(self.budget - spent, v, out=np.ones(v.shape), where=v > 0)
            taken = np.where(worth > 0, np.clip(bought, 0.0, 1.0), 0.0)
            shares[slots] = taken
            is_short = (worth > 0) & (taken < 1)
            each, margin = np.arange(len(rows)), np.argmax(is_short, axis=1)
            beside = np.pad(worth, ((0, 0), (1, 1)), constant_values=((0, 0), (np.inf, 0.0)))
            price[rows] = np.where(is_short[each, margin], worth[each, margin], 0.0)
            margins[rows], part[rows] = slots[each, margin], taken[each, margin]
            above[rows], below[rows] = beside[each, margin], beside[each, margin + 2]
        return _Ranked(shares[:-1], price, margins, part, above, below)

    def smoothed(self, gains: Array, widths: Array) -> SmoothlyFilled:
        """Return the smooth gains and shares; `widths` are c > 0, one for each row."""
        lift = self._lift(gains, widths)
        gains = gains + self.by_item(lift) * self.costs
        prices, beyond = np.zeros(len(self.counts)), np.array(gains)
        rows = np.flatnonzero(self._excess(gains, widths, prices)[0] > 0)
        if len(rows):
            few, items = self.take(rows)
            prices[rows], beyond[items] = few._priced(gains[items], widths[rows])
        value, shares, bends = hyperbola(beyond, self.by_item(widths))
        is_tight, prices = prices > 0, prices - lift
        return SmoothlyFilled(self.budget * prices + self.row_sums(value), shares, bends, prices, is_tight)

    def _priced(self, gains: Array, widths: Array) -> tuple[Array, Array]:
        """Return the prices > 0 at which the smooth shares use up the budget, and the gains less price times cost.

        Bracketed Newton steps. If a price is large compared with the width, its rounding would swamp the shares. So the
        unknown is its distance from the price without smoothing (`anchor`), at which the gain of the item at the
        margin, less price times cost, is 0.
        """
        _, anchor, margin, part, above, below = self._ranked(gains)
        base = gains - self.by_item(anchor) * self.costs
        with np.errstate(divide="ignore", invalid="ignore"):
            # this move gives the item at the margin the same smooth share as without smoothing, (1 + z / sqrt(z^2 +
            # c^2)) / 2 = part. It goes at most half way to the neighbouring items, whose shares would change too
            first = widths * (0.5 - part) / (np.sqrt(part * (1 - part)) * self.costs[margin])
            first = np.clip(first, 0.5 * (below - anchor), 0.5 * (above - anchor))
        # the price is >= 0, and at the highest price the budget is not used up
        low, high = -anchor, self._highest(base, widths)
        move = np.where(anchor > 0, first, 0.0)
        moves, rows, few, own, c = move.copy(), np.arange(len(anchor)), self, base, widths
        for _ in range(ROOT_STEPS):
            over, bend = few._excess(own, c, move)
            low, high = np.where(over > 0, move, low), np.where(over > 0, high, move)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = over / bend
            new = np.where((low < move + step) & (move + step < high), move + step, 0.5 * (low + high))
            is_open = (np.abs(over) > BUDGET_ACCURACY * self.budget) & (new != move)
            # near the root a Newton step squares the error, so the last step is taken without a test
            moves[rows] = np.where(np.abs(step) <= LAST_STEP * c, move + step, move)
            if not np.any(is_open):
                break
            move = np.where(is_open, new, move)
            # finished rows are dropped once they are more than half, so that all copies together cost little
            if 2 * np.count_nonzero(is_open) < len(rows):
                few, items = few.take(np.flatnonzero(is_open))
                own, rows = own[items], rows[is_open]
                low, high, move, c = (numbers[is_open] for numbers in (low, high, move, c))
        return anchor + moves, base - self.by_item(moves) * self.costs

    def _excess(self, gains: Array, widths: Array, prices: Array) -> tuple[Array, Array]:
        """Return the excess of the smooth shares' cost over the budget, and minus its derivative by the price."""
        _, share, bend = hyperbola(gains - self.by_item(prices) * self.costs, self.by_item(widths))
        return self.row_sums(self.costs * share) - self.budget, self.row_sums(np.square(self.costs) * bend)

    def _highest(self, gains: Array, widths: Array) -> Array:
        r"""Return prices at which the smooth shares fit the budget: z < 0, so shares are at most :math:`c^2/4z^2`."""
        is_paid = self.costs > 0
        worth = np.divide(gains, self.costs, out=np.zeros(len(gains)), where=is_paid)
        inverse = np.divide(1.0, self.costs, out=np.zeros(len(gains)), where=is_paid)
        return self.largest(worth) + widths * np.sqrt(self.row_sums(inverse) / self.budget)

    def take(self, rows: NDArray[np.intp]) -> tuple[Knapsacks, NDArray[np.intp]]:
        """Return the knapsacks of some rows, and the indices of their items."""
        counts = self.counts[rows]
        indptr = np.append(0, np.cumsum(counts))
        items = np.repeat(self.indptr[:-1][rows] - indptr[:-1], counts) + np.arange(indptr[-1])
        return Knapsacks(indptr, self.costs[items], self.budget, is_spent=self.is_spent), items


@dataclass(frozen=True)
class Knapsack:
    """A knapsack whose items are the same in every row; only the gains differ.

    Parameters
    ----------
    prices : ndarray of shape (n_items,)
        The cost of each item, >= 0: 0 is free, inf is never taken.
    capacity : float
        The budget: the largest total cost of the items taken.
    is_whole : bool
        Whether items are taken as a whole only, never in part. Prices and capacity must then be integers (or inf).

    Examples
    --------
    >>> gains = np.array([[3.0, 10.0]])
    >>> Knapsack(np.array([1.0, 4.0]), 4.0).best(gains)
    array([[1.  , 0.75]])
    >>> Knapsack(np.array([1.0, 4.0]), 4.0, is_whole=True).best(gains)
    array([[0., 1.]])
    """

    prices: Array
    capacity: float
    is_whole: bool = False

    def best(self, gains: Array, where: Where = EVERYWHERE) -> Array:
        """Return the shares to take of the items `where`, given their gains in each row, shape (n_rows, n_given)."""
        prices = self.prices[where]
        if self.is_whole:
            return _whole(gains, prices.astype(np.int64), int(self.capacity))
        (n_rows, n_items), is_taken = gains.shape, np.isfinite(prices)
        costs = np.tile(np.where(is_taken, prices, 0.0), n_rows)
        rows = Knapsacks(n_items * np.arange(n_rows + 1), costs, self.capacity)
        return rows.filled(np.where(is_taken, gains, 0.0).ravel()).shares.reshape(gains.shape)

    def best_stored(self, gains: sparse.csr_array) -> sparse.csr_array:
        """Return the shares to take of the stored items of each row of `gains`; all other items gain nothing."""
        prices = self.prices[gains.indices]
        if self.is_whole:
            # this fills a dense table for every row and item, so it suits data of moderate size only
            taken = _whole(gains.toarray(), self.prices.astype(np.int64), int(self.capacity))
            shares = taken[np.repeat(np.arange(len(taken)), np.diff(gains.indptr)), gains.indices]
        else:
            is_taken = np.isfinite(prices)
            rows = Knapsacks(gains.indptr, np.where(is_taken, prices, 0.0), self.capacity)
            shares = rows.filled(np.where(is_taken, gains.data, 0.0)).shares
        return sparse.csr_array((shares, gains.indices, gains.indptr), shape=gains.shape)


def _whole(gains: Array, prices: NDArray[np.int64], capacity: int) -> Array:
    r"""Return the d in {0, 1} that maximises :math:`\sum_j d_j G_j` over :math:`\sum_j d_j u_j \le K` for each row.

    Dynamic programming over the capacities 0..K, O(n_items K) for each row.
    """
    within = np.flatnonzero(prices <= capacity)
    size = max(1, int(DECISIONS / ((len(within) + 1) * (capacity + 1))))
    found = np.zeros_like(gains)
    for start in range(0, len(gains), size):
        block = gains[start : start + size]
        best = np.zeros((len(block), capacity + 1))
        taken = np.zeros((len(within), *best.shape), dtype=bool)
        for k, j in enumerate(within):
            # best[c] is the largest gain of the items so far within capacity c. Both sides of the comparison must hold
            # values from before item j, so `tried` is computed before `rest`, a view of `best`, is overwritten
            rest = best[:, prices[j] :]
            tried = best[:, : capacity + 1 - prices[j]] + block[:, j, None]
            taken[k, :, prices[j] :] = tried > rest
            np.maximum(rest, tried, out=rest)
        rows, room = np.arange(len(block)), np.full(len(block), capacity)
        # trace back from the full capacity: each item taken leaves less capacity, by its price, to the items before it
        for k in range(len(within))[::-1]:
            chosen = taken[k, rows, room]
            found[start + rows, within[k]] = chosen
            room -= prices[within[k]] * chosen
    return found


def cost_to_gain(gains: Array, costs: Array, wanted: Array) -> tuple[Array, Array]:
    """Return the costs at which the best items of each row reach the gain `wanted`, for whole and partial items.

    The first result is the total cost of the best whole items that gain less than wanted, such that one more item would
    gain enough. The second is the least budget with which shares of items gain just enough. Both are inf if all items
    together do not gain enough, and 0 if free items do.

    Parameters
    ----------
    gains : ndarray of shape (n_rows, n_items)
        Items that gain 0 or less are not taken.
    costs : ndarray of shape (n_items,) or (n_rows, n_items)
        >= 0, finite.
    wanted : ndarray of shape (n_rows,)

    Examples
    --------
    >>> cost_to_gain(np.array([[3.0, 1.0, 5.0]]), np.ones(3), np.array([6.0]))
    (array([1.]), array([1.33333333]))
    """
    gained, is_free = np.zeros(len(wanted)), costs == 0
    if np.any(is_free):
        gained = np.sum(np.maximum(gains, 0.0), axis=1, where=is_free)
        # free items are already counted. A cost > 0 avoids division by 0 below, and the largest cost keeps equal costs
        # equal
        gains, costs = np.where(is_free, 0.0, gains), np.where(is_free, max(costs.max(), 1.0), costs)
    whole, parts = np.full((2, len(wanted)), np.inf)
    if np.all(costs == costs.flat[:1]):
        ranked = -gains
        ranked.sort(axis=1)  # many times faster than argsort; with equal costs the order of the items is not needed
        counts, shares = _items_to_gain(lambda rows, some: -ranked[rows, some], gains.shape[1], wanted, gained)
        found = np.flatnonzero(counts >= 0)
        whole[found] = costs.flat[0] * counts[found]
        parts[found] = costs.flat[0] * (counts[found] + shares[found])
        return whole, parts
    worth = np.minimum(-gains, 0.0)
    worth /= costs
    order = np.argsort(worth, axis=1)
    counts, shares = _items_to_gain(
        lambda rows, some: gains[rows[:, None], order[rows, some]], len(order.T), wanted, gained
    )
    found = np.flatnonzero(counts >= 0)
    items = order[found, : counts.max(initial=0) + 1]
    paid = np.take_along_axis(np.broadcast_to(costs, gains.shape)[found], items, axis=1)
    taken = np.arange(items.shape[1]) < counts[found, None]
    whole[found] = np.sum(paid, axis=1, where=taken)
    parts[found] = whole[found] + shares[found] * paid[np.arange(len(found)), counts[found]]
    return whole, parts


def _items_to_gain(
    best: Callable[[NDArray[np.intp], slice], Array], n_items: int, wanted: Array, gained: Array
) -> tuple[NDArray[np.intp], Array]:
    """Return the number of whole items of each row to take, the best first, and the share of the next one to take.

    Together they gain what is wanted. A count of -1 means that all items together gain too little. `best` returns the
    gains of the items of some rows by rank.
    """
    counts, shares = np.where(gained < wanted, -1, 0), np.zeros(len(wanted))
    rows = np.flatnonzero(gained < wanted)
    totals, start, stop = gained[None, rows], 0, FEW_ITEMS
    while len(rows) and start < n_items:
        g = np.maximum(best(rows, slice(start, stop)).T, 0.0)
        # each sum continues from the previous items' total: the bound on rounding assumes sums over all items in turn
        totals = np.cumsum(np.vstack([totals[-1:], g]), axis=0)
        is_reached = totals[-1] >= wanted[rows]
        done = np.flatnonzero(is_reached)
        found = rows[done]
        last = np.sum(totals[:, done] < wanted[found], axis=0) - 1
        counts[found] = start + last
        shares[found] = (wanted[found] - totals[last, done]) / g[last, done]
        is_open = ~is_reached & (g[-1] > 0)
        rows, totals = rows[is_open], totals[:, is_open]
        start, stop = stop, 4 * stop
    return counts, shares


def _doublings(counts: NDArray[Any]) -> NDArray[Any]:
    return np.frexp(np.maximum(counts - 1, 0).astype(np.float64))[1]


def hyperbola(z: Array, c: Array | float) -> tuple[Array, Array, Array]:
    r"""Return :math:`(z + \sqrt{z^2 + c^2})/2` and its first and second derivatives by z."""
    root = np.sqrt(np.square(z) + np.square(c))
    reach = root + np.abs(z)
    # for z < 0 the sum cancels; c^2 / (sqrt(z^2 + c^2) - z) is the same number without cancellation
    value = np.where(z > 0, 0.5 * reach, 0.5 * np.square(c) / reach)
    return value, value / root, 0.5 * np.square(c / root) / root
