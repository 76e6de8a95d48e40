"""Bounds on the rounding errors of sums of products, by which certificates are rounded outward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def coarsest(dtypes: Iterable[Any]) -> np.finfo:
    """Return the finfo of the coarsest type among float64 and `dtypes`; types that are not floats are ignored."""
    floats = [np.dtype(dtype) for dtype in dtypes if np.dtype(dtype).kind == "f"]
    return max((np.finfo(dtype) for dtype in [np.dtype(np.float64), *floats]), key=lambda info: float(info.eps))


def gamma(n_roundings: int, kind: np.finfo | None = None) -> float:
    r"""Return :math:`\gamma_m = m u / (1 - m u)`, with u the unit roundoff; inf if m is too large for the bound.

    If each term of a sum of products has at most m roundings, in any order, the error of the sum is at most
    :math:`\gamma_m` times the sum of the absolute values of the terms (Higham), apart from underflow.
    """
    u = float((np.finfo(np.float64) if kind is None else kind).eps) / 2
    # two more, for the rounding of this number and of its product with the sum
    m = n_roundings + 2
    # the bound holds for m u < 1, but near 1 it is useless
    return m * u / (1 - m * u) if m * u < 0.5 else np.inf


def product_error(X: Any, sizes: Array, offsets: Array, n_roundings: int, kind: np.finfo | None = None) -> Array:
    r"""Return a bound on the error of computed scores :math:`W x + b`, shape (n_samples, n_scores).

    It is :math:`\gamma_m (|W|\,|x| + |b|)`, plus a bound on underflow.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
    sizes : ndarray of shape (n_scores, n_features)
        \|W\|, or larger if W was itself computed.
    offsets : ndarray of shape (n_scores,)
    n_roundings : int
        The number of roundings of each term, n_features for a plain product.
    kind : finfo, default=None
        The arithmetic; None for float64.
    """
    tiny = float((np.finfo(np.float64) if kind is None else kind).tiny)
    return np.asarray(gamma(n_roundings, kind) * (abs(X) @ sizes.T + offsets) + n_roundings * tiny)
