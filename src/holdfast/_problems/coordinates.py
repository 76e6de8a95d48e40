"""Coordinates of rows for means and covariances, and the map of weights back to the features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from holdfast._core.loss import Array
from holdfast._core.rows import Rows
from holdfast._core.tolerances import ROUNDING
from holdfast._data import rows_of
from holdfast._problems.dispersions import from_middle

SAME = 1e-12
"""Differences of two means or entries up to this share of their sizes count as rounding."""
DEPENDENT, INDEFINITE = 1e-12, -1e-8
"""Shares of a kernel's largest eigenvalue: smaller eigenvalues are dropped, and more negative ones are an error."""
INDEPENDENT = 1e-5
"""Products of rows are as good as the rows if their smallest eigenvalue is at least this share of the largest."""


class Span(NamedTuple):
    """Rows in coordinates, and the map back from the weights of the coordinates."""

    rows: Rows
    lift: Callable[[Array, float], tuple[Array, float]]
    """Maps weights and intercept of the coordinates to those that are kept."""
    ridge: Array
    """The ridge, added to the diagonals of the covariances."""
    stated_ridge: Any
    """The ridge in terms of the features."""


def kernel_span(K: Array, weights: Array, share: float, call: str) -> Span:
    """Return rows whose inner products are K; the ridge is `share` times the sum of their variances."""
    coordinates, back = _from_products(K, call)
    rows = rows_of(coordinates)

    def to_rows(w: Array, b: float) -> tuple[Array, float]:
        parts = back(w)
        return parts, b - float(np.mean(K @ parts))

    ridge = share * float(np.sum(variances_of(rows, weights)))
    return Span(rows, to_rows, np.asarray(ridge), ridge)


def feature_span(X: Any, weights: Array, share: float, *, is_exact: bool) -> Span:
    """Return the centred rows; if they are exact and have more features than rows, in fewer coordinates."""
    varies = ~_is_constant(X)
    rows = rows_of(X if np.all(varies) else X @ sparse.diags_array(varies.astype(X.dtype)))
    start = rows.offset()
    rows, offset = from_middle(rows if start is None else rows.shifted(start), weights / np.sum(weights))
    offset = offset if start is None else start + offset
    variances = variances_of(rows, weights)
    if not (is_exact and rows.n_features > rows.n_samples):
        return Span(rows, lambda w, b: (w * varies, b - float(w @ offset)), share * variances, share * variances)
    scale = np.divide(1.0, np.sqrt(variances), out=np.zeros_like(variances), where=variances > 0)
    coordinates, back = _of_standardised(rows, scale)
    offset = offset + rows.transpose_dot(np.full(rows.n_samples, 1 / rows.n_samples))

    def lift(w: Array, b: float) -> tuple[Array, float]:
        w = scale * back(w)
        return w, b - float(w @ offset)

    return Span(rows_of(coordinates), lift, np.asarray(share), share * variances)


def variances_of(rows: Rows, weights: Array) -> Array:
    """Return the variance of each feature over all rows by weight, 0 for constant features, shape (n_features,)."""
    shares = weights / np.sum(weights)
    squares = rows.square_sums(shares)
    variances = squares - np.square(rows.transpose_dot(shares))
    return np.where(variances > SAME * squares, variances, 0.0)


def _is_constant(X: Any) -> NDArray[np.bool_]:
    """Return which features are constant up to rounding, shape (n_features,)."""
    ends = X.min(axis=0), X.max(axis=0)
    low, high = (np.ravel(end.toarray() if sparse.issparse(end) else end).astype(np.float64) for end in ends)
    with np.errstate(over="ignore"):
        return np.asarray(high - low <= SAME * np.maximum(np.abs(low), np.abs(high)))


def _from_products(K: Array, call: str) -> tuple[Array, Callable[[Array], Array]]:
    """Return coordinates of centred rows with inner products K, and the map to weights of the rows, which sum to 0."""
    centred = K - np.mean(K, axis=0)
    centred -= np.mean(centred, axis=1, keepdims=True)
    values, vectors = linalg.eigh(centred)
    rounding = ROUNDING * np.max(np.abs(K))
    if values[0] < INDEFINITE * values[-1] - rounding:
        raise ValueError(
            f"{call}.fit: the kernel's values on the training rows are not positive semidefinite "
            f"(an eigenvalue of {values[0]:.2g} beside one of {values[-1]:.2g}). Use another kernel."
        )
    kept = values > max(DEPENDENT * values[-1], rounding)
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
    vectors = vectors - np.mean(vectors, axis=0)
    return vectors * root, lambda w: np.asarray(vectors @ (w / root))


def _of_standardised(rows: Rows, scale: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return coordinates of centred rows, in units of 1 / scale, and the map to weights of these features.

    They come from inner products if the rows are nearly independent; otherwise products would lose small components.
    """
    n = rows.n_samples
    K = rows.outer(np.square(scale))
    coordinates, back = _from_products(K, "rows")
    sizes = np.sum(np.square(coordinates), axis=0)
    if len(sizes) == n - 1 and np.min(sizes) > INDEPENDENT * max(np.max(sizes), np.max(np.abs(K))):
        return coordinates, lambda w: scale * rows.transpose_dot(back(w))
    columns = np.concatenate([block for _, block in rows.dense_blocks()])
    columns = (columns - columns.mean(axis=0)) * scale
    basis, triangle = linalg.qr(columns.T, mode="economic", overwrite_a=True)
    return np.ascontiguousarray(triangle.T), lambda w: np.asarray(basis @ w)
