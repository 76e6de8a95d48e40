"""Rows in a SciPy CSR matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from holdfast._core import compiled
from holdfast._core.rows import Array, RowArrays, Span
from holdfast._data.block_rows import BlockRows

MOST_ROWS_FACTORISED = 500
"""Most rows for which the matrix of their inner products is factorised."""

CROWDED = 0.1
"""Above this share of nonzeros, dense blocks multiply faster."""


class SparseRows(BlockRows):
    """Rows of a CSR array; every pass costs O(nonzeros), and X is never made dense as a whole."""

    X: sparse.csr_array

    def blocks(self) -> Iterator[tuple[slice, sparse.csr_array]]:
        # one block: slicing CSR copies it, and cutting it up gained nothing
        yield slice(0, self.n_samples), self.X

    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        size = max(1, (1 << 17) // max(1, self.n_features))
        for start in range(0, self.n_samples, size):
            rows = slice(start, min(start + size, self.n_samples))
            yield rows, self.X[rows].toarray().astype(np.float64, copy=False)

    def shifted(self, offset: Array) -> SparseRows:
        n, columns = self.n_samples, np.flatnonzero(offset)
        parts = np.tile(offset[columns], n), np.tile(columns, n), len(columns) * np.arange(n + 1)
        return SparseRows(sparse.csr_array(self.X - sparse.csr_array(parts, shape=self.X.shape)))

    def joined(self, others: Array) -> SparseRows:
        return SparseRows(sparse.csr_array(sparse.vstack([self.X, sparse.csr_array(others)])))

    @cached_property
    def span(self) -> Span | None:
        if self.n_samples > MOST_ROWS_FACTORISED:
            return None
        X = self.X.astype(np.float64)
        values, vectors = linalg.eigh((X @ X.T).toarray())
        # eigenvalues are squared singular values: those between rounding and 1e-10 would be lost or amplified
        kept = values > 1e-10 * values[-1]
        if not np.any(kept) or np.any(values[~kept] > 1e-14 * self.n_samples * values[-1]):
            return None
        root, vectors = np.sqrt(values[kept]), vectors[:, kept]
        shares = vectors / root  # X' shares is an orthonormal basis
        return Span(np.ascontiguousarray(vectors * root), lambda v: X.T @ (shares @ v), lambda w: shares.T @ (X @ w))

    def arrays(self) -> RowArrays:
        return RowArrays.of(self.X)

    def entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        return np.asarray(self.X[rows][:, columns].toarray().astype(np.float64, copy=False))

    def normal_pass(self, weights: Array, v: Array, shift: float, extra: Array) -> tuple[Array, Array]:
        sweep = compiled.kernel("normal_sweep") if compiled.repays(self.n_entries * self.n_fits) else None
        if sweep is None or self.X.indices.dtype != np.int32:
            return super().normal_pass(weights, v, shift, extra)
        # unsigned indices spare a test for negative ones
        indptr, indices = self.X.indptr.view(np.uint32), self.X.indices.view(np.uint32)
        return cast(tuple[Array, Array], sweep(self.X.data, indices, indptr, weights, v, shift, extra))

    def gram(self, weights: Array) -> Array:
        if self.X.nnz > CROWDED * self.n_samples * self.n_features:
            roots = np.sqrt(weights)
            parts = (block * roots[rows, None] for rows, block in self.dense_blocks())
            return np.asarray(sum((part.T @ part for part in parts), np.zeros((self.n_features, self.n_features))))
        scaled = self.X.astype(np.float64).copy()
        # a matrix times its own transpose, so that the result is symmetric to the last digit
        scaled.data *= np.repeat(np.sqrt(weights), np.diff(scaled.indptr))
        return np.asarray((scaled.T @ scaled).toarray())

    def outer(self, columns: Array) -> Array:
        scaled = self.X.astype(np.float64).copy()
        scaled.data *= np.sqrt(columns)[scaled.indices]
        if self.X.nnz <= CROWDED * self.n_samples * self.n_features:
            return np.asarray((scaled @ scaled.T).toarray())
        # CSC slices columns cheaply, and crowded blocks multiply faster as arrays
        by_column, out = scaled.tocsc(), np.zeros((self.n_samples, self.n_samples))
        size = max(256, (1 << 20) // max(1, self.n_samples))
        for start in range(0, self.n_features, size):
            part = by_column[:, start : start + size].toarray()
            out += part @ part.T
        return out
