"""Boxes around rows when the weights have errors too: functions like supports, with kinks away from 0."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array
from holdfast._core.smoothed_set import SmoothedSet
from holdfast.uncertainty.polytopes import KINK_WIDTHS
from holdfast.uncertainty.row_boxes import RowMatrix, RowPoints


def entries_of(half: Any, matrix: Any) -> Array:
    """Return the entries of a matrix that `half` stores: all as an array, or like the `data` of a sparse `half`."""
    if not sparse.issparse(half):
        return np.asarray(matrix)
    rows = np.repeat(np.arange(half.shape[0]), np.diff(half.indptr))
    return np.asarray(sparse.csr_matrix(matrix)[rows, half.indices]).ravel()


class _Column(NamedTuple):
    """The entries of a feature with half-widths > 0, sorted by their kinks."""

    rows: NDArray[np.intp]
    half: Array
    kinks: Array


class OffsetBoxes(RowPoints):
    r"""The convex functions :math:`t_i(w) = \sum_j h_{ij} |w_j - k_{ij}| + c_i^\top w`, used in place of supports.

    This is not the support of a set: for every q with :math:`|q_j| \le 1` the lower bound
    :math:`t_i(w) \ge \sum_j (h_{ij} q_j + c_{ij}) w_j - \sum_j h_{ij} q_j k_{ij}` is linear with a constant, the offset
    of q.

    Parameters
    ----------
    half : {ndarray, csr_array} of shape (n_samples, n_features)
        h >= 0.
    kinks : ndarray
        k, of the shape of `half`, or of its `data` if `half` is sparse.
    centre : as `half`, or None
        c; None for 0.
    """

    is_smooth = False
    is_symmetric = False
    is_sublinear = False

    def __init__(self, half: Any, kinks: Array, centre: Any | None = None):
        self.half, self.kinks, self.centre = half, kinks, centre

    def distances(self, w: Array) -> Array:
        """Return :math:`w_j - k_{ij}`, of the shape of `kinks`."""
        return (w[self.half.indices] if sparse.issparse(self.half) else w) - self.kinks

    def pulled(self, shares: Array) -> RowMatrix:
        """Return the matrix :math:`h_{ij} q_{ij}`, q of the shape of `kinks`."""
        half, (n, d) = self.half, self.half.shape
        if sparse.issparse(half):
            matrix = sparse.csr_array((half.data * shares, half.indices, half.indptr), shape=half.shape)
        else:
            matrix = half * shares
        return RowMatrix(matrix, np.ones(n), np.ones(d))

    def centres(self) -> list[RowMatrix]:
        """Return a list with the matrix of the centres, empty if they are all 0."""
        n, d = self.half.shape
        return [] if self.centre is None else [RowMatrix(self.centre, np.ones(n), np.ones(d))]

    @remembered
    def _terms(self, w: Array) -> list[RowMatrix]:
        return [self.pulled(np.sign(self.distances(w))), *self.centres()]

    @remembered
    def support(self, w: Array) -> Array:
        one = np.ones(len(w))
        return np.asarray(self.pulled(np.abs(self.distances(w))).dot(one) + sum(term.dot(w) for term in self.centres()))

    def recession(self, w: Array) -> Array:
        one = np.ones(self.kinks.shape)
        return np.asarray(self.pulled(one).dot(np.abs(w)) + sum(term.dot(w) for term in self.centres()))

    @cached_property
    def _columns(self) -> list[_Column]:
        n, d = self.half.shape
        if sparse.issparse(self.half):
            rows, columns, half = np.repeat(np.arange(n), np.diff(self.half.indptr)), self.half.indices, self.half.data
        else:
            (rows, columns), half = np.indices((n, d)).reshape(2, -1), self.half.ravel()
        kinks = self.kinks.ravel()
        order = np.lexsort((kinks, columns))
        order = order[half[order] > 0]
        parts = np.split(order, np.searchsorted(columns[order], np.arange(1, d)))
        return [_Column(rows[part], half[part], kinks[part]) for part in parts]

    def lines_below(
        self, target: Array, budgets: Array, absolute: float = 0.0, limit: float = np.inf
    ) -> tuple[Array, float]:
        r"""Return (rest, offset): the part of the target that no lower bound reaches, and the least offset.

        They satisfy

        .. math:: \sum_i \beta_i t_i(w) + \text{absolute}\, |w|_1 \ge (\text{target} - \text{rest})^\top w - \text{offset}

        for all w with :math:`|w_j| \le` limit; :math:`\beta` are the `budgets`. For each feature this is a knapsack: q
        = 1 for kinks on the left, q = -1 for kinks on the right. No linear lower bound has a smaller offset.
        """
        reached = target - sum(term.transpose_dot(budgets) for term in self.centres())
        rest, offset = np.zeros(len(target)), 0.0
        for j, (rows, half, kinks) in enumerate(self._columns):
            weights = budgets[rows] * half
            # for |w| <= limit and a kink k outside of it, |w - k| = |w - clip(k)| + |k - clip(k)|: a kink at the limit
            # plus a constant
            inside = np.clip(kinks, -limit, limit)
            outside = float(weights @ np.abs(kinks - inside))
            # `absolute` |w| adds a kink at 0
            zero = np.searchsorted(inside, 0.0)
            weights, inside = np.insert(weights, zero, absolute), np.insert(inside, zero, 0.0)
            totals, costs = (np.append(0.0, np.cumsum(part)) for part in (weights, weights * inside))
            # minimise sum weights q k subject to sum weights q = target. With q = 2 d - 1, d in [0, 1]: fill d from the
            # left up to the total weight (target + all weights) / 2; the cost is linear between kinks
            ahead = float(np.clip(0.5 * (reached[j] + totals[-1]), 0.0, totals[-1]))
            rest[j] = np.sign(reached[j]) * max(abs(reached[j]) - totals[-1], 0.0)
            offset += float(2 * np.interp(ahead, totals, costs) - costs[-1]) - outside
        return rest, offset

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return np.full(len(budgets), np.inf)

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return self.lines_below(target, budgets)[0]

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return np.zeros(len(points), dtype=bool)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        parts = [self.half] if self.centre is None else [self.half, self.centre]
        return np.asarray(sum(abs(part).T @ np.ones(part.shape[0]) for part in parts) == 0)

    def scaled(self, factor: float) -> OffsetBoxes:
        return OffsetBoxes(factor * self.half, self.kinks, None if self.centre is None else factor * self.centre)

    def smoothed(self, delta: float) -> SmoothedOffsetBoxes:
        return SmoothedOffsetBoxes(self, delta)

    @cached_property
    def widest(self) -> Array:
        """The largest half-width of each feature."""
        return np.array([np.max(column.half, initial=0.0) for column in self._columns])

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        out = w.copy()
        for j, (_, half, kinks) in enumerate(self._columns):
            if len(kinks):
                after = int(np.clip(np.searchsorted(kinks, w[j]), 1, max(len(kinks) - 1, 1)))
                near = min(kinks[after - 1 : after + 1], key=lambda kink: abs(w[j] - kink))
                if half.max() * abs(w[j] - near) <= KINK_WIDTHS * delta / len(w):
                    out[j] = near + factor * (w[j] - near)
        return out

    def take(self, rows: Any) -> OffsetBoxes:
        if sparse.issparse(self.half):
            kinks = sparse.csr_array((self.kinks, self.half.indices, self.half.indptr), shape=self.half.shape)[
                rows
            ].data
        else:
            kinks = self.kinks[rows]
        return OffsetBoxes(self.half[rows], kinks, None if self.centre is None else self.centre[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        raise NotImplementedError("OffsetBoxes are not sets, and have no points.")


class SmoothedOffsetBoxes(RowPoints, SmoothedSet):
    r"""The functions :math:`T_i = \sum_j h_{ij} (\sqrt{(w_j - k_{ij})^2 + e_j^2} - e_j) + c_i^\top w + \delta`.

    :math:`e_j` as in :class:`SmoothedRowBoxes`.
    """

    base: OffsetBoxes

    def __init__(self, base: OffsetBoxes, delta: float, widths: Array | None = None):
        super().__init__(base, delta)
        self.is_smooth = True
        if widths is None:
            widest, n = base.widest, base.half.shape[1]
            widths = np.divide(delta / n, widest, out=np.full(n, delta), where=widest > 0)
        self.widths = widths

    @remembered
    def _rooted(self, w: Array) -> tuple[Array, Array, Array]:
        """Return the distances v from the kinks, the widths e and sqrt(v^2 + e^2), each of the shape of the kinks."""
        base = self.base
        v, e = base.distances(w), self.widths[base.half.indices] if sparse.issparse(base.half) else self.widths
        return v, e, np.hypot(v, e)

    @remembered
    def _terms(self, w: Array) -> list[RowMatrix]:
        v, _, roots = self._rooted(w)
        return [self.base.pulled(v / roots), *self.base.centres()]

    @remembered
    def support(self, w: Array) -> Array:
        v, e, roots = self._rooted(w)
        # this is sqrt(v^2 + e^2) - e without the cancellation near the kink
        rises = self.base.pulled(v * (v / (roots + e))).dot(np.ones(len(w)))
        return np.asarray(rises + sum(term.dot(w) for term in self.base.centres()) + self.delta)

    def take(self, rows: Any) -> SmoothedOffsetBoxes:
        return SmoothedOffsetBoxes(self.base.take(rows), self.delta, self.widths)

    @remembered
    def _bends(self, w: Array) -> RowMatrix:
        _, e, roots = self._rooted(w)
        return self.base.pulled(np.square(e / roots) / roots)

    def _diagonal(self, w: Array, first: Array) -> Array:
        return self._bends(w).transpose_dot(first)
