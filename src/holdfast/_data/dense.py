"""Rows in a NumPy array, C- or F-ordered, float32 or float64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from holdfast._core import compiled
from holdfast._core.memory import keep_freed
from holdfast._core.row_plus_sparse import Regular, regular
from holdfast._core.rows import Array, Elementwise, MarginPass, RowArrays, Span
from holdfast._data.block_rows import BlockRows
from holdfast._data.sparse import CROWDED, SparseRows

BLOCK_BYTES = 1 << 20
"""A block fills the second-level cache of one core, so that its second use does not reach memory."""

LARGE_WORK, LARGE_BLOCK = 1 << 14, 1 << 23
"""Where there are several columns: scores worth computing at once, and the most bytes of a block enlarged for this."""
SMALL_COPY = 1 << 21
"""Most entries of X for which shifted rows are stored; larger X are shifted anew in every pass."""

LARGEST_SPAN = 5e7
"""Most entries of X for which its rows are expressed in a basis of their own (400 MB)."""
DEPENDENT = 1e-12
"""A row counts as a combination of others if its pivot is at most this share of the largest."""
LARGEST_COPY = 2.5e8
"""Most entries of X that are copied in float32 for products that need not be exact (1 GB)."""
SINGLE_RANGE = 1e-30, 1e30
"""Features with mean squares between these have products in the range of float32."""
FAINT = 0.03
"""Rows of less than this share of the mean weight are left out of products that need not be exact."""
MOST_GATHERED = 1e5
"""Most entries of X for which X times the labels is stored (800 kB), so that a pass takes few calls."""
FAR = 100.0
"""Means more than this many standard deviations from 0 make rows almost parallel and their Hessian almost singular."""


class DenseRows(BlockRows):
    """Rows of a NumPy array, less a common `shift` if one is given; only small arrays are copied or up-cast whole."""

    X: NDArray[np.floating]

    def __init__(self, X: NDArray[np.floating], shift: Array | None = None):
        super().__init__(X)
        self.shift = shift
        self._signed: tuple[Array, Array] | None = None
        # every pass makes and drops arrays as large as a block, or with a few numbers per row
        keep_freed(BLOCK_BYTES // 4)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        return self._blocks(max(64, BLOCK_BYTES // max(1, self.X.itemsize * self.n_features)))

    def blocks_for(self, n_columns: int) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        if n_columns == 1:
            return self.blocks()
        row_bytes = self.X.itemsize * max(1, self.n_features)
        return self._blocks(max(64, BLOCK_BYTES // row_bytes, min(LARGE_WORK // n_columns, LARGE_BLOCK // row_bytes)))

    def _blocks(self, size: int) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        for start in range(0, self.n_samples, size):
            rows = slice(start, min(start + size, self.n_samples))
            yield rows, self.X[rows] if self.shift is None else self.X[rows] - self.shift

    @cached_property
    def regular(self) -> Regular | None:
        """The rows as one common row plus sparse deviations, if passes over these cost less; otherwise None.

        For wide rows `span` saves more.
        """
        is_tall = self.n_samples >= self.n_features
        return regular(self.X, CROWDED) if is_tall and self.shift is None else None

    def offset(self) -> Array | None:
        return self._offset

    @cached_property
    def _offset(self) -> Array | None:
        # every fit of a path asks for it
        if self.regular is not None:
            return self.regular.row
        # some 256 rows tell well enough whether means are far from 0; any point near them will do
        some = self.X[:: max(1, self.n_samples // 256)].astype(np.float64)
        middle = some.sum(axis=0) / len(some)
        some -= middle
        spread = np.sqrt(np.einsum("ij,ij->j", some, some) / len(some))
        return middle if (np.abs(middle) > FAR * np.maximum(spread, np.finfo(float).tiny)).any() else None

    def shifted(self, offset: Array) -> BlockRows:
        if self.regular is not None and np.array_equal(offset, self.regular.row):
            return SparseRows(self.regular.rest)
        shift = offset if self.shift is None else self.shift + offset
        return DenseRows(self.X - shift) if self.X.size <= SMALL_COPY else DenseRows(self.X, shift)

    def signed(self, signs: Array) -> Array | None:
        if self.X.size > MOST_GATHERED or compiled.repays(self.X.size * self.n_fits):
            return None
        if self._signed is None or self._signed[0] is not signs:
            columns = np.empty((self.n_features + 1, self.n_samples))
            columns[:-1], columns[-1] = self.X.T if self.shift is None else (self.X - self.shift).T, 1.0
            columns *= signs
            self._signed = signs, columns
        return self._signed[1]

    def joined(self, others: Array) -> DenseRows:
        return DenseRows(np.concatenate([*(block for _, block in self.dense_blocks()), others]))

    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        return ((rows, self.exact(block)) for rows, block in self.blocks())

    @cached_property
    def span(self) -> Span | None:
        if self.X.size > LARGEST_SPAN:
            return None
        # X' = Q T: rows of T' are coordinates of the rows in an orthonormal basis, found without squares of X
        columns = np.concatenate([block for _, block in self.dense_blocks()]).T
        basis, triangle = linalg.qr(columns, mode="economic")
        sizes = np.abs(np.diag(triangle))
        if np.any(sizes <= DEPENDENT * np.max(sizes, initial=0.0)):
            # directions that no row has are left out
            basis, triangle, order = linalg.qr(columns, mode="economic", pivoting=True)
            sizes = np.abs(np.diag(triangle))
            kept = sizes > DEPENDENT * np.max(sizes, initial=0.0)
            kept[0] = True
            basis, triangle = basis[:, kept], triangle[kept][:, np.argsort(order)]
        return Span(np.ascontiguousarray(triangle.T), lambda v: basis @ v, lambda w: basis.T @ w)

    def take(self, rows: NDArray[np.intp] | slice) -> DenseRows:
        # rows taken by a stride are read in many passes: make them contiguous
        return DenseRows(np.ascontiguousarray(self.X[rows]), self.shift)

    def arrays(self) -> RowArrays:
        return RowArrays.of(self.X if self.shift is None else self.X - self.shift)

    def entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        found = self.X[np.ix_(rows, columns)].astype(np.float64)
        return found if self.shift is None else found - self.shift[columns]

    def gram(self, weights: Array) -> Array:
        out = np.zeros((self.n_features, self.n_features))
        root = np.sqrt(weights)
        # wide blocks: the rank-k update is bound by arithmetic, not by memory
        for rows, block in self._blocks(max(256, BLOCK_BYTES // max(1, 8 * self.n_features))):
            scaled = block * root[rows, None]
            out += scaled.T @ scaled
        return out

    def outer(self, columns: Array) -> Array:
        out = np.zeros((self.n_samples, self.n_samples))
        root = np.sqrt(columns)
        size = max(256, BLOCK_BYTES // max(1, self.n_samples))
        for start in range(0, self.n_features, size):
            part = slice(start, start + size)
            scaled = self.X[:, part] if self.shift is None else self.X[:, part] - self.shift[part]
            scaled = scaled * root[part]
            out += scaled @ scaled.T
        return out

    def dot(self, w: Array) -> Array:
        sweep = self._kernel("dot_sweep") if w.ndim == 1 and self.X.dtype == np.float32 else None
        return super().dot(w) if sweep is None else cast(Array, sweep(self.X, w))

    def transpose_dot(self, r: Array) -> Array:
        sweep = self._kernel("pull_sweep") if r.ndim == 1 and self.X.dtype == np.float32 else None
        return super().transpose_dot(r) if sweep is None else cast(Array, sweep(self.X, r))

    def square_sums(self, weights: Array) -> Array:
        sweep = self._kernel("square_sweep")
        return super().square_sums(weights) if sweep is None else cast(Array, sweep(self.X, weights))

    def _kernel(self, name: str) -> Any | None:
        """Return a kernel where compiling it pays; kernels take contiguous rows without a shift only."""
        plain = self.shift is None and self.X.flags.c_contiguous
        return compiled.kernel(name) if plain and compiled.repays(self.X.size * self.n_fits) else None

    @cached_property
    def quick(self) -> DenseRows:
        sizes = self.column_squares[self.column_squares > 0]
        is_same = self.X.dtype == np.float32 and self.shift is None
        if not np.all((sizes > SINGLE_RANGE[0]) & (sizes < SINGLE_RANGE[1])):
            return self
        if is_same:
            return SingleRows(self.X)
        if self.X.size > LARGEST_COPY:
            return self
        single = np.empty(self.X.shape, dtype=np.float32)
        for rows, block in self.blocks():
            single[rows] = block
        return SingleRows(single)

    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float | Array
    ) -> MarginPass:
        sweep = self._kernel("margin_sweep") if loss.is_rowwise else None
        kernel = None if sweep is None else loss.compiled()
        if sweep is None or kernel is None:
            return super().margin_pass(loss, signs, weights, w, b, t, target)
        slopes = np.empty(self.n_samples if t.ndim else 0)
        levels, asked = np.atleast_1d(t), np.atleast_1d(np.asarray(target, dtype=np.float64))
        value, pull, balance, total = sweep(self.X, signs, weights, w, b, levels, asked, kernel, slopes)
        return MarginPass(value, pull, balance, slopes if t.ndim else np.array(total))


class SingleRows(DenseRows):
    """Rows in float32 for products that need not be exact: sums are in float32 too, block by block."""

    def gram(self, weights: Array) -> Array:
        # rows of negligible weight are left out
        some = np.flatnonzero(weights > FAINT * weights.mean())
        out = np.zeros((self.n_features, self.n_features))
        if not len(some):
            return out
        root, longest = _unit(np.sqrt(weights[some]))
        size = max(256, 2 * BLOCK_BYTES // max(1, self.n_features))
        for start in range(0, len(some), size):
            part = slice(start, start + size)
            scaled = self.X[some[part]]
            scaled *= root[part, None]
            out += scaled.T @ scaled
        return longest**2 * out

    def normal_pass(self, weights: Array, v: Array, shift: float, extra: Array) -> tuple[Array, Array]:
        sweep = self._kernel("single_sweep")
        if sweep is not None:
            return cast(tuple[Array, Array], sweep(self.X, weights, v, shift, extra))
        m, out = np.empty(self.n_samples), np.zeros(self.n_features)
        # v may have any size, so scale it to keep sums in float32 range
        direction, longest = _unit(v)
        for rows, block in self.blocks():
            m[rows] = block @ direction
            m[rows] = longest * m[rows] + shift
            r, largest = _unit(weights[rows] * m[rows] + extra[rows])
            out += largest * (block.T @ r).astype(np.float64)
        return m, out


def _unit(v: Array) -> tuple[NDArray[np.float32], float]:
    """Return v in float32, divided by its largest absolute value, and this value."""
    largest = float(np.abs(v).max(initial=0.0)) or 1.0
    return (v / largest).astype(np.float32), largest
