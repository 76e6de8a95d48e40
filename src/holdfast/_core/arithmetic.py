"""Arithmetic of dense and sparse arrays that is robust to the scales of their entries."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.linalg.lapack import dpotrf, dpotrs

Array = NDArray[np.float64]
FLAT, ROUNDED = 1e-10, 1e-14
"""An extent of a set below the first share of the largest extent counts as 0; squared extents use the second."""
USUAL = 1e-250, 1e250
"""The range in which a sum of squares has lost nothing that counts to under- or overflow."""
MISSED = 1e-13
"""Largest remainder of a target that counts as rounding, relative to the sizes of its terms."""


def norm(v: Any, axis: int | None = None) -> Array:
    """Return the l2 norm of a vector, or of each row of a matrix (axis=1), even where squares would under- or overflow."""
    if axis is None and USUAL[0] < (square := np.vdot(v, v)) < USUAL[1]:
        return np.sqrt(square)
    largest = float(np.abs(v).max(initial=0.0))
    # squares of numbers in this range, and sums of 1e20 of them, do not overflow, so the usual case needs no division
    scale = 1.0 if 1e-140 < largest < 1e140 or largest == 0 else largest
    v = v if scale == 1.0 else v / scale
    return scale * np.sqrt(np.einsum("ij,ij->i", v, v) if axis == 1 else np.vdot(v, v))


def ratio(numerator: Any, t: Any) -> Array:
    """Return numerator / t, and 0 where t = 0."""
    t = np.asarray(t)
    return np.divide(numerator, t, out=np.zeros(np.broadcast_shapes(np.shape(numerator), t.shape)), where=t > 0)


def solve_scaled(matrix: Array, target: Array) -> Array:
    """Return the least-squares solution for a positive semidefinite matrix, robust to the scales of its variables."""
    # scaled to a unit diagonal, so that the cutoff for flat directions does not depend on the units of the variables
    scale = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    scaled, sides = matrix / np.outer(scale, scale), (target.T / scale).T
    try:
        found = np.linalg.lstsq(scaled, sides, rcond=None)[0]
    except np.linalg.LinAlgError:
        # LAPACK's divide and conquer fails for some finite matrices of low rank; a pivoted QR does not iterate
        found = linalg.lstsq(scaled, sides, cond=len(scaled) * np.finfo(float).eps, lapack_driver="gelsy")[0]
    return np.asarray((found.T / scale).T)


def inverse(metric: Array, ridge: float = 1e-12) -> Any:
    """Return the function v -> metric^-1 v; the metric is a matrix, a diagonal, or a stack of diagonal blocks.

    A matrix is scaled to a unit diagonal; then `ridge` is added to the diagonal, and more if rounding makes the matrix
    indefinite.
    """
    if metric.ndim == 3:
        blocks = [inverse(block, ridge) for block in metric]
        return lambda v: np.concatenate(
            [solve(part) for solve, part in zip(blocks, np.split(v, len(blocks)), strict=True)]
        )
    if metric.ndim == 2:
        scale = np.sqrt(np.maximum(np.diag(metric), np.finfo(float).tiny))
        scaled = metric / scale[:, None] / scale
        while ridge < 1e3 and np.isfinite(scaled.sum()):
            ridged = scaled.copy()
            ridged.flat[:: len(scaled) + 1] += ridge
            factor, failed = dpotrf(ridged.T, overwrite_a=True)
            if failed:
                ridge *= 10
                continue
            return partial(_scaled_solve, factor, scale)
        metric = np.diag(metric)
    # where the curvature is 0 a long step would be a guess, so use the largest curvature, which gives a short step
    positive = np.where(metric > 0, metric, np.max(metric, initial=1.0))
    return lambda v: v / positive


@np.errstate(over="ignore", invalid="ignore")  # if the metric is nearly 0; the line search then finds no descent
def _scaled_solve(factor: Array, scale: Array, v: Array) -> Array:
    return np.asarray(dpotrs(factor, v / scale)[0] / scale)


def rescaled(matrix: Any, rows: Array, columns: Array | None = None) -> Any:
    """Return diag(rows) matrix diag(columns), as an array or a CSR array like `matrix`."""
    if not sparse.issparse(matrix):
        if columns is None:
            return matrix * rows[:, None]
        out = matrix * columns
        out *= rows[:, None]
        return out
    factors = np.repeat(rows, np.diff(matrix.indptr)) * (1.0 if columns is None else columns[matrix.indices])
    return sparse.csr_array((matrix.data * factors, matrix.indices, matrix.indptr), shape=matrix.shape)


def without_duplicates(matrix: Any) -> Any:
    """Return the array unchanged, or a CSR array that stores each entry once."""
    if not sparse.issparse(matrix) or matrix.has_canonical_format:
        return matrix
    merged = sparse.csr_array(matrix, copy=True)
    merged.sum_duplicates()
    return merged


def spectral_norm(A: Array) -> float:
    r"""Return :math:`\max_{|v|_2 \le 1} |A v|_2`, rounded up."""
    return float(np.linalg.norm(A, 2)) * (1 + 1e-12) if A.size else 0.0


def box_stretch(A: Array, halves: Array) -> Array:
    r"""Return, for each row s of `halves`, a bound on :math:`|A \delta|_2` over :math:`|\delta_j| \le s_j`.

    It is the smaller of :math:`\sqrt{s^\top |A^\top A| s}` and :math:`\|A\|_2 |s|_2`.
    """
    # an upper bound on |A d|^2 = d'A'A d if |d_j| <= s_j for all j
    squares = np.einsum("ij,ij->i", halves @ np.abs(A.T @ A), halves)
    return np.minimum(np.sqrt(squares), spectral_norm(A) * norm(halves, axis=1)) * (1 + 1e-12)


def has_nan(values: Array) -> bool:
    """Return whether an entry is NaN. The minimum is NaN then, so no mask of the size of the array is needed."""
    return bool(np.isnan(values.min(initial=np.inf)))


def dense(matrix: Any) -> Array:
    """Return an array, or a (small) sparse array, as a NumPy array."""
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def orthogonal_to(factor: Array) -> Array:
    """Return directions v with factor'v = 0, shape (n_features, k), robust to the scales of the features."""
    scale = norm(factor, axis=1)
    moved = np.flatnonzero(scale)
    found = linalg.null_space((factor[moved] / scale[moved, None]).T, rcond=FLAT)
    out = np.zeros((len(factor), found.shape[1]))
    out[moved] = found / scale[moved, None]
    return out
