"""The multiclass hinge averaged over Gaussian noise along one direction."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array

from holdfast._core.allowed import arguments, as_numbers, short
from holdfast._core.loss import Array
from holdfast._core.tolerances import LARGE_Z
from holdfast.losses.gaussian_hinge import GaussianHinge


def expected_max(levels: Any, slopes: Any) -> Array:
    r"""Return :math:`\mathbb E \max_c (a_c + k_c Z)` with Z standard normal.

    The maximum of lines in Z is convex and piecewise linear. Let line c be the highest for Z between :math:`l_c` and
    :math:`r_c`, and line 0 the highest at Z = 0. Then

    .. math:: \mathbb E \max_c (a_c + k_c Z) = a_0 + \sum_c (k_c - k_0) \bigl(h(|l_c|) - h(|r_c|)\bigr),
              \qquad h(x) = \mathbb E\,[Z - x]_+,

    where all terms of the sum are >= 0, so nothing cancels. The cost is O(n_classes**2) per row.

    Parameters
    ----------
    levels, slopes : array-like of shape (n_samples, n_classes)
        a and k, finite; they are broadcast to a common shape.

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> expected_max([[0.0, 0.0], [1.0, 0.0]], [[1.0, -1.0], [2.0, 2.0]]).round(4)
    array([0.7979, 1.    ])
    """
    a, k = _numbers("expected_max", "levels", levels), _numbers("expected_max", "slopes", slopes)
    try:
        shape = np.broadcast_shapes(a.shape, k.shape)
    except ValueError:
        shape = ()
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(
            f"expected_max(levels, slopes): got shapes {a.shape} and {k.shape}. Give both of shape (n_samples, n_classes)."
        )
    a, k = np.broadcast_to(a, shape), np.broadcast_to(k, shape)
    highest = np.argmax(a, axis=1)[:, None]
    out, base = np.take_along_axis(a, highest, axis=1)[:, 0], np.take_along_axis(k, highest, axis=1)[:, 0]
    tail = GaussianHinge().tail
    for c in range(a.shape[1]):
        own_a, own_k = a[:, c, None], k[:, c, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            crossing = (a - own_a) / (own_k - k)
        left = np.where(k < own_k, crossing, -np.inf).max(axis=1)
        right = np.where(k > own_k, crossing, np.inf).min(axis=1)
        earlier = np.arange(a.shape[1]) < c
        beaten = np.any((k == own_k) & ((a > own_a) | ((a == own_a) & earlier)), axis=1)
        share = tail(np.minimum(np.abs(left), LARGE_Z)) - tail(np.minimum(np.abs(right), LARGE_Z))
        out += np.where((left < right) & ~beaten, (k[:, c] - base) * share, 0.0)
    return out


@arguments()
def unidirectional_multi_hinge(X: Any, y: Any, coef: Any, intercept: Any, direction: Any) -> Array:
    r"""Return the multiclass hinge loss of each row, averaged over Gaussian noise along one direction:

    .. math:: \mathbb E \max_c \bigl[ 1\{c \ne y\} + (w_c - w_y)^\top (x + v Z) + b_c - b_y \bigr], \quad Z \sim N(0, 1).

    It has a closed form for given v, by :func:`expected_max` (appendix C of "Gaussian Robust Classification"). The
    problem stated there, to find the worst v of a given length, remains open, as the loss is not concave in v. No model
    is trained with this loss.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of int of shape (n_samples,)
        The indices of the classes, 0 ... n_classes - 1.
    coef : array-like of shape (n_classes, n_features)
        w, with one row for each class, like `coef_` of a fit with several classes.
    intercept : array-like of shape (n_classes,)
    direction : array-like of shape (n_features,)
        v, whose length is the noise's standard deviation, in the units of the features.

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> unidirectional_multi_hinge([[2.0, 0.0]], [0], [[1, 0], [0, 1], [0, 0]], [0, 0, 0], [0.0, 0.0])
    array([0.])
    >>> unidirectional_multi_hinge([[2.0, 0.0]], [0], [[1, 0], [0, 1], [0, 0]], [0, 0, 0], [1.0, 0.0]).round(4)
    array([0.0833])
    """
    given = {"coef": coef, "intercept": intercept, "direction": direction}
    coef, intercept, v = (_numbers("unidirectional_multi_hinge", name, part) for name, part in given.items())
    X, y = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32]), np.asarray(y)
    if coef.ndim != 2 or intercept.shape != coef.shape[:1] or v.shape != coef.shape[1:]:
        raise ValueError(
            f"unidirectional_multi_hinge(...): coef has shape {coef.shape}, intercept {intercept.shape}, direction {v.shape}. "
            "Give (n_classes, n_features), (n_classes,) and (n_features,)."
        )
    if X.shape[1] != coef.shape[1] or y.shape != X.shape[:1]:
        raise ValueError(
            f"unidirectional_multi_hinge(X, y, coef, ...): X has shape {X.shape}, y {y.shape}, coef {coef.shape}. Give "
            "one label a row, and rows with the features of coef."
        )
    if y.dtype.kind not in "iu" or np.any((y < 0) | (y >= len(coef))):
        raise ValueError(f"unidirectional_multi_hinge(..., y, ...): y must be class numbers, 0 ... {len(coef) - 1}.")
    scores, slopes, each = np.asarray(X @ coef.T) + intercept, coef @ v, np.arange(len(y))
    levels = 1.0 + scores - scores[each, y, None]
    levels[each, y] = 0.0
    return expected_max(levels, slopes - slopes[y, None])


def _numbers(call: str, name: str, value: Any) -> Array:
    """Return an argument as an array of finite numbers."""
    try:
        numbers = as_numbers(value)
    except TypeError:
        numbers = np.array(np.nan)
    if not np.all(np.isfinite(numbers)):
        raise ValueError(f"{call}(..., {name}={short(value):.80}): give finite numbers.")
    return numbers
