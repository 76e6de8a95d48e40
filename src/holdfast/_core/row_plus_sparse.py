"""Matrices that are one row, the same for all, plus sparse deviations from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
WORTHWHILE = 1e5
"""Arrays with fewer entries are used as they are."""
GLANCE, SAMPLE = 64, 256
"""The rows and columns of a first trial, and the rows from which the common row is estimated."""
BLOCK_BYTES = 1 << 20


class Regular(NamedTuple):
    """The matrix with rows ``row + rest[i]``."""

    row: Array
    """Shape (n_features,)."""
    rest: sparse.csr_array
    """Deviations of any sign, shape (n_samples, n_features)."""


def columnwise_mode(matrix: Any) -> Array:
    """Return the most frequent number of each column, the row that leaves the fewest deviations; the least among equals."""
    ordered = np.sort(np.asarray(matrix, dtype=np.float64), axis=0)
    number = np.arange(len(ordered))[:, None]
    # in a sorted column the length of the run so far is the place less that of the run's first entry
    is_new = np.vstack([np.ones_like(ordered[:1], dtype=bool), ordered[1:] != ordered[:-1]])
    lengths = number - np.maximum.accumulate(np.where(is_new, number, 0), axis=0)
    return np.take_along_axis(ordered, lengths.argmax(axis=0)[None], axis=0)[0]


def regular(matrix: NDArray[Any], most: float) -> Regular | None:
    """Return an array as one row plus sparse deviations, None where more than a share `most` of its entries deviate.

    A few rows and columns tell whether that is worth a pass over all of them.
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
        # a difference of float64 numbers is 0 only where they are equal, and never less than -row where they are >= 0
        blocks.append(sparse.csr_array(matrix[start : start + size].astype(np.float64) - row))
        nnz += blocks[-1].nnz
        if nnz > most * matrix.size:
            return None
    return Regular(row, sparse.csr_array(sparse.vstack(blocks, format="csr")))


def _deviating(matrix: NDArray[Any], row: Array) -> float:
    return float(np.mean(matrix != row))
