"""Rows in a NumPy array, C- or F-ordered, float32 or float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast._core import compiled
from holdfast._core.rows import Array, Elementwise, MarginPass
from holdfast.data.block_rows import BlockRows

BLOCK_BYTES = 1 << 20
"""A block fills the second-level cache of one core, so that its second use does not reach memory."""


class DenseRows(BlockRows):
    """Rows of a NumPy array, never copied or up-cast as a whole."""

    X: NDArray[np.floating]

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        size = max(64, BLOCK_BYTES // max(1, self.X.itemsize * self.n_features))
        for start in range(0, self.n_samples, size):
            rows = slice(start, min(start + size, self.n_samples))
            yield rows, self.X[rows]

    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        return ((rows, self.exact(block)) for rows, block in self.blocks())

    def take(self, rows: NDArray[np.intp] | slice) -> DenseRows:
        # rows taken by a stride are passed over many times: let them lie together
        return DenseRows(np.ascontiguousarray(self.X[rows]))

    def gram(self, weights: Array) -> Array:
        out = np.zeros((self.n_features, self.n_features))
        root = np.sqrt(weights)
        # wide blocks: the rank-k update is bound by arithmetic, not by memory
        size = max(256, 8 * BLOCK_BYTES // max(1, 8 * self.n_features))
        for start in range(0, self.n_samples, size):
            rows = slice(start, start + size)
            scaled = self.X[rows] * root[rows, None]
            out += scaled.T @ scaled
        return out

    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float
    ) -> MarginPass:
        if compiled.repays(self.X.size) and self.X.flags.c_contiguous and np.all(t > 0):
            sweep, kernel = compiled.kernel("margin_sweep"), loss.compiled()
            if sweep is not None and kernel is not None:
                slopes = np.empty(self.n_samples if t.ndim else 0)
                levels = np.atleast_1d(t)
                value, pull, balance, total = sweep(self.X, signs, weights, w, b, levels, target, kernel, slopes)
                return MarginPass(value, pull, balance, slopes if t.ndim else np.array(total))
        return super().margin_pass(loss, signs, weights, w, b, t, target)
