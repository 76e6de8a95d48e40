"""The choice of storage for the rows of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.rows import Rows
from holdfast._data.dense import DenseRows
from holdfast._data.sparse import SparseRows


def rows_of(X: Any) -> Rows:
    """Return `X` as `Rows`, which refer to it and do not copy it."""
    return SparseRows(sparse.csr_array(X)) if sparse.issparse(X) else DenseRows(np.asarray(X))
