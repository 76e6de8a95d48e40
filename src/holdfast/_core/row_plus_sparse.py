"""Matrices stored as one common row plus sparse deviations from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
WORTHWHILE = 1e5
"""Arrays with fewer entries than this are not converted."""
GLANCE, SAMPLE = 64, 256
"""The number of rows and of columns in a first test, and the number of rows that the common row is estimated from."""
BLOCK_BYTES = 1 << 20


class Regular(NamedTuple):
    """The matrix with rows ``row + rest[i]``."""

    row: Array
    """Shape (n_features,)."""
    rest: sparse.csr_array
    """Deviations of any sign, shape (n_samples, n_features)."""


def columnwise_mode(matrix: Any) -> Array:
    """Return the most frequent value of each column (the smallest one of ties): the row with the fewest deviations."""
    ordered = np.sort(np.asarray(matrix, dtype=np.float64), axis=0)
    number = np.arange(len(ordered))[:, None]
    # in a sorted column, the length of a run so far is the index minus the index of the run's first entry
    is_new = np.vstack([np.ones_like(ordered[:1], dtype=bool), ordered[1:] != ordered[:-1]])
    lengths = number - np.maximum.accumulate(np.where(is_new, number, 0), axis=0)
    return np.take_along_axis(ordered, lengths.argmax(axis=0)[None], axis=0)[0]


def regular(matrix: NDArray[Any], most: float) -> Regular | None:
    """Return an array as one row plus sparse deviations; None if more than a share `most` of its entries deviate.

    A few rows and columns are tested first, to save a pass over all entries.
    """
    n, d = matrix.shape
    glance = matrix[:: max(1, n // GLANCE), :: max(1, d // GLANCE)]
    if matrix.size < WORTHWHILE or _deviating(glance, columnwise_mode(glance)) > most:
        return None
    some = matrix[:: max(1, n // SAMPLE)]
    row = columnwise_mode(some)
    if _deviating(some, row) > most:
        return None
    blocks, nnz, size = [], 0, max(64, BLOCK_BYTES // (8 * d))
    for start in range(0, n, size):
        # a float64 difference is 0 only for equal numbers, and at least -row for numbers >= 0
        blocks.append(sparse.csr_array(matrix[start : start + size].astype(np.float64) - row))
        nnz += blocks[-1].nnz
        if nnz > most * matrix.size:
            return None
    return Regular(row, sparse.csr_array(sparse.vstack(blocks, format="csr")))


def _deviating(matrix: NDArray[Any], row: Array) -> float:
    return float(np.mean(matrix != row))
