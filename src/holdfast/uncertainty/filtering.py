"""Filtering: entries that are small compared with their uncertainty are set to 0, and their boxes enlarged."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.row_forms import IntervalForm
from holdfast._core.row_sets import RowSets
from holdfast.uncertainty.minkowski import sum_of
from holdfast.uncertainty.row_boxes import RowBoxes

BLOCK_ROWS = 4096
"""The number of rows filtered at a time."""
FEW = 0.1
"""Up to this share of the entries, they are kept as a sparse matrix."""


def filtered(X: Any, form: IntervalForm, threshold: float) -> tuple[sparse.csr_array, sparse.csr_array]:
    r"""Return X with entries :math:`|x_{ij}| \le \epsilon s_{ij}` set to 0, and the sizes :math:`|x_{ij}|` of these.

    Here :math:`s_{ij}` is the half-width of the boxes of `form` less the distance of their centre from the row: the
    boxes reach at least this far to either side of the row. :math:`\epsilon` is the `threshold`.
    """
    blocks = (slice(start, start + BLOCK_ROWS) for start in range(0, X.shape[0], BLOCK_ROWS))
    kept, gone = zip(*(_filtered_rows(X, form, threshold, rows) for rows in blocks), strict=True)
    return sparse.vstack(kept, format="csr"), sparse.vstack(gone, format="csr")


def _filtered_rows(X: Any, form: IntervalForm, threshold: float, rows: slice) -> tuple[Any, Any]:
    """Return the results of `filtered` for some rows."""
    block = sparse.csr_array(X[rows])
    block.sum_duplicates()
    # the reach is computed at stored entries only, so that no dense array of the size of the block is formed
    entries = sparse.csr_array((np.ones(block.nnz), block.indices, block.indptr), shape=block.shape)
    reach = entries.multiply(np.broadcast_to(form.common, (1, block.shape[1])))
    if form.own is not None:
        reach = reach + entries.multiply(form.own[rows])
    if form.centre is not None:
        reach = reach - entries.multiply(abs(form.centre[rows]))
    kept = sparse.csr_array(block.multiply(abs(block) > threshold * sparse.csr_array(reach)))
    kept.eliminate_zeros()
    gone = abs(sparse.csr_array(block.astype(np.float64) - kept))
    gone.eliminate_zeros()
    return kept, gone


def enlarged(bound: RowSets, form: IntervalForm, threshold: float, sizes: sparse.csr_array) -> RowSets:
    r"""Return the sets with the half-widths of filtered entries enlarged by `sizes`, which no radius multiplies.

    If nearly all entries are filtered and the half-widths are sparse apart from a common row, they are enlarged by
    :math:`\epsilon s_{ij} \ge |x_{ij}|` instead. Then only the unfiltered entries deviate from the common row, and the
    half-widths stay as sparse as the rows.
    """
    n_samples, n_features = sizes.shape
    share = sizes.nnz / (n_samples * n_features)
    is_thin = form.centre is None and (form.own is None or sparse.issparse(form.own))
    if not is_thin or share < 1 - FEW:
        extra = IntervalForm(np.zeros(n_features), sizes if share <= FEW else sizes.toarray(), None)
    else:
        left = sparse.csr_array(sizes.toarray() == 0, dtype=np.float64)
        unit = form.each(lambda part: threshold * part)
        common = np.broadcast_to(unit.common, n_features)
        own = -left.multiply(common[None])
        own = own if unit.own is None else own + unit.own - left.multiply(unit.own)
        extra = IntervalForm(common, sparse.csr_array(own), None)
    return sum_of([bound, RowBoxes.of(extra._replace(fixed=extra))])
