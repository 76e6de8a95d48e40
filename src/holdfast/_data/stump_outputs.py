"""Outputs +-1 of decision stumps, stored as bins of the features and summed through histograms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.rows import Array
from holdfast._data.outputs import Outputs, Spread

STUMP, PRODUCT, HISTOGRAM, COUNT = 2.0, 0.03, 1e4, 2.0
"""Rough costs in nanoseconds: one output of a stump, a product of two, an empty histogram, each row counted in it."""


class StumpOutputs(Outputs):
    r"""Stumps :math:`x_{ik} = \pm 1`: 1 if feature j of row i is above threshold t, with k = (j, t), else -1.

    All squares are 1, so ln D is the same for all rows, and the scales' part of the Hessian has rank one. Sums over
    stumps come from histograms of one feature. Sums over pairs of stumps come from histograms of two features,
    O(n_samples) for each pair of features whatever their number of thresholds, or from products of the outputs where
    these are less work.

    Parameters
    ----------
    codes : ndarray of int of shape (n_features, n_samples)
        For each feature and row, the number of thresholds below the row's value.
    counts : sequence of int
        The number of thresholds of each feature.
    has_constant : bool
        Whether a last learner is 1 for all rows.
    """

    def __init__(self, codes: NDArray[np.intp], counts: Sequence[int], has_constant: bool):
        self.codes, self.counts, self.has_constant = codes, list(counts), has_constant
        self.ends = np.concatenate([[0], np.cumsum(self.counts)]).astype(int)
        self.n_samples = codes.shape[1]
        self.n_learners = int(self.ends[-1]) + int(has_constant)

    @cached_property
    def largest(self) -> Array:
        return np.ones(self.n_learners)

    def dot(self, w: Array) -> Array:
        out = np.full(self.n_samples, w[-1] if self.has_constant else 0.0)
        for code, start, stop in zip(self.codes, self.ends[:-1], self.ends[1:], strict=True):
            own = w[start:stop]
            # a row with `code` thresholds below it has +1 for these and -1 for the others: the sum depends on the bin
            # only
            out += (2 * np.concatenate([[0.0], np.cumsum(own)]) - own.sum())[code]
        return out

    def transpose_dot(self, q: Array) -> Array:
        total = q.sum()
        parts = [
            2 * _above(np.bincount(code, q, count + 1)) - total
            for code, count in zip(self.codes, self.counts, strict=True)
        ]
        return np.concatenate([*parts, [total] * self.has_constant])

    def sizes_dot(self, q: Array) -> Array:
        return np.full(self.n_learners, q.sum())

    def square_dot(self, q: Array) -> Array:
        return np.full(self.n_learners, q.sum())

    def reach(self, s: Array) -> float:
        return float(s.sum())

    def reaches(self, s: Array) -> Array:
        return s[None]

    def reaches_any(self) -> NDArray[np.bool_]:
        return np.ones(self.n_samples, dtype=bool)

    def column(self, k: int) -> Array:
        if k >= self.ends[-1]:
            return np.ones(self.n_samples)
        j = int(np.searchsorted(self.ends, k, side="right")) - 1
        return np.where(self.codes[j] > k - self.ends[j], 1.0, -1.0)

    def at(self, s: Array) -> Spread:
        return _StumpSpread(self, s)

    def take(self, rows: NDArray[np.intp]) -> Outputs:
        return StumpOutputs(self.codes[:, rows], self.counts, self.has_constant)

    def dense(self, rows: slice | NDArray[np.intp]) -> Array:
        columns = [
            np.where(code[rows, None] > np.arange(count), 1.0, -1.0)
            for code, count in zip(self.codes, self.counts, strict=True)
        ]
        n = len(self.codes[0][rows]) if len(self.codes) else self.n_samples
        return np.hstack([*columns, *[np.ones((n, 1))] * self.has_constant])

    def stated_log_means(self, s: Array) -> Array:
        return np.full(self.n_samples, -np.log1p(-np.square(s)).sum())

    def stated_slopes(self, q: Array, s: Array) -> tuple[Array, Array]:
        left = 1 - np.square(s)
        return q.sum() * 2 * s / left, q.sum() * 2 * (2 - left) / np.square(left)

    def gram(self, h: Array) -> Array:
        return super().gram(h) if self.has_cheap_products else self._gram_by_histograms(h)

    def _gram_by_histograms(self, h: Array) -> Array:
        total, one_way = h.sum(), self.transpose_dot(h)
        out = np.empty((self.n_learners, self.n_learners))
        above = 0.5 * (one_way + total)
        for j, (code, count) in enumerate(zip(self.codes, self.counts, strict=True)):
            own = slice(self.ends[j], self.ends[j + 1])
            for i in range(j + 1):
                width, other = self.counts[i] + 1, slice(self.ends[i], self.ends[i + 1])
                table = np.bincount(code * width + self.codes[i], h, (count + 1) * width).reshape(count + 1, width)
                both = _above(_above(table).T).T
                # with indicators a, b of being above: (2a - 1)(2b - 1) = 4ab - 2a - 2b + 1, summed over the rows
                block = 4 * both - 2 * above[own, None] - 2 * above[other] + total
                out[own, other], out[other, own] = block, block.T
        if self.has_constant:
            out[-1], out[:, -1] = one_way, one_way
        return out

    @cached_property
    def has_cheap_products(self) -> bool:
        """Whether products of stumps take less time than histograms of their features.

        This is so for few rows, or few stumps for each feature: a histogram takes the same time for any number of bins,
        and needs some Python calls.
        """
        pairs = 0.5 * len(self.codes) ** 2
        products = self.n_samples * self.n_learners * (STUMP + PRODUCT * self.n_learners)
        return bool(products <= pairs * (HISTOGRAM + COUNT * self.n_samples))

    @cached_property
    def gram_work(self) -> float:
        if self.has_cheap_products:
            return super().gram_work
        return 40.0 * self.n_samples * len(self.codes) ** 2


class _StumpSpread(Spread):
    def __init__(self, outputs: StumpOutputs, s: Array):
        self.outputs, self.s = outputs, s
        # 1 - s^2, to all digits for s near 1
        left = (1.0 - s) * (1.0 + s)
        self.log_means = np.broadcast_to(-np.log(left).sum(), outputs.n_samples)
        self.row = 2 * s / left
        """The row of J, the same for all rows of the data."""

    def pull(self, q: Array) -> Array:
        return self.row * q.sum()

    def bends(self, q: Array) -> Array:
        left = (1.0 - self.s) * (1.0 + self.s)
        return 2 * (1 + np.square(self.s)) / np.square(left) * q.sum()

    def grams(self, h: Array, signs: Array) -> tuple[Array, Array, Array]:
        mixed = np.outer(self.outputs.transpose_dot(signs * h), self.row)
        return self.outputs.gram(h), mixed, h.sum() * np.outer(self.row, self.row)


def _above(histogram: Any) -> Array:
    """Return the sums above each threshold from the sums in each bin, along the first axis."""
    return np.cumsum(histogram[:0:-1], axis=0)[::-1]
