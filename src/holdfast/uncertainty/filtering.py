"""Entries that are small beside their own uncertainty, set to 0 at a price."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.row_forms import IntervalForm
from holdfast._core.row_sets import RowSets
from holdfast.uncertainty.minkowski import sum_of
from holdfast.uncertainty.row_boxes import RowBoxes

BLOCK_ROWS = 4096
"""Rows that are filtered at a time."""
FEW = 0.1
"""Share of entries up to which they are kept as a sparse matrix."""


def filtered(X: Any, form: IntervalForm, threshold: float) -> tuple[sparse.csr_array, sparse.csr_array]:
    r"""Return X with its entries :math:`|x_{ij}| \le \epsilon s_{ij}` set to 0, and the sizes :math:`|x_{ij}|` of these.

    The boxes of `form` reach from their rows to either side by :math:`s_{ij}` at least: their half-widths less the distance of
    their centres.
    """
    blocks = (slice(start, start + BLOCK_ROWS) for start in range(0, X.shape[0], BLOCK_ROWS))
    kept, gone = zip(*(_filtered_rows(X, form, threshold, rows) for rows in blocks), strict=True)
    return sparse.vstack(kept, format="csr"), sparse.vstack(gone, format="csr")


def _filtered_rows(X: Any, form: IntervalForm, threshold: float, rows: slice) -> tuple[Any, Any]:
    """Return the same for some rows."""
    block = sparse.csr_array(X[rows])
    block.sum_duplicates()
    # reach is asked for at the stored entries alone, so that nothing of the size of the block is formed
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
    r"""Return the sets with the half-widths of filtered entries enlarged by their `sizes`, which no radius multiplies.

    Where nearly all entries are filtered and half-widths are sparse but for a common row, they are enlarged by
    :math:`\epsilon s_{ij} \ge |x_{ij}|` instead: then only those that are left differ, and half-widths stay as sparse as rows.
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
