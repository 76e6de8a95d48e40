"""Entries that are small beside their own uncertainty, set to 0 at a price."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.uncertainty import BoundSet, IntervalForm
from holdfast.uncertainty.minkowski import sum_of
from holdfast.uncertainty.row_boxes import RowBoxes


def filtered(X: Any, form: IntervalForm, threshold: float) -> tuple[sparse.csr_array, sparse.csr_array]:
    r"""Return X with its entries :math:`|x_{ij}| \le \epsilon s_{ij}` set to 0, and the sizes :math:`|x_{ij}|` of these.

    The boxes of `form` reach from their rows to either side by :math:`s_{ij}` at least: their half-widths less the distance of
    their centres.
    """
    X = sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    entries = sparse.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)
    reach = entries.multiply(np.broadcast_to(form.common, (1, X.shape[1])))
    if form.own is not None:
        reach = reach + entries.multiply(form.own)
    if form.centre is not None:
        reach = reach - entries.multiply(abs(form.centre))
    kept = sparse.csr_array(X.multiply(abs(X) > threshold * sparse.csr_array(reach)))
    kept.eliminate_zeros()
    gone = abs(sparse.csr_array(X.astype(np.float64) - kept))
    gone.eliminate_zeros()
    return kept, gone


def enlarged(bound: BoundSet, sizes: sparse.csr_array) -> BoundSet:
    """Return the sums of the sets and of boxes with these half-widths, which no radius multiplies."""
    return sum_of([bound, RowBoxes(sizes, fixed=sizes)])
