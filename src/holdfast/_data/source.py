"""Finding the rows that fit an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.rows import Rows
from holdfast._data.dense import DenseRows
from holdfast._data.sparse import SparseRows

MOST_COPIED = 1e6
"""Most numbers that are copied in float64 (8 MB)."""


def rows_of(X: Any) -> Rows:
    """Return `X` as rows that can be passed over; it is referred to, and copied only where it is small and float32."""
    if sparse.issparse(X):
        return SparseRows(sparse.csr_array(X))
    X = np.asarray(X)
    # passes turn float32 into float64 block by block, over and over: of few rows a copy costs less
    return DenseRows(X.astype(np.float64) if X.dtype == np.float32 and X.size <= MOST_COPIED else X)
