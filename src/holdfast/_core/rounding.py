"""How far sums of products in floating point can be from the true ones: what certificates are rounded outward by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def coarsest(dtypes: Iterable[Any]) -> np.finfo:
    """Return what is known of the coarsest of float64 and these types; those that are no floats are exact in float64."""
    floats = [np.dtype(dtype) for dtype in dtypes if np.dtype(dtype).kind == "f"]
    return max((np.finfo(dtype) for dtype in [np.dtype(np.float64), *floats]), key=lambda info: float(info.eps))


def gamma(n_roundings: int, kind: np.finfo | None = None) -> float:
    r"""Return :math:`\gamma_m = m u / (1 - m u)`, u being the unit roundoff; inf where m is too large for that.

    A sum of products in which every term meets at most m roundings, in whatever order, is off by at most :math:`\gamma_m` times
    the sum of the terms' sizes (Higham), underflow apart.
    """
    u = float((np.finfo(np.float64) if kind is None else kind).eps) / 2
    # one more, for the rounding of this number and of the product that it goes into
    m = n_roundings + 2
    # the bound holds for m u < 1; near that it says nothing worth having
    return m * u / (1 - m * u) if m * u < 0.5 else np.inf


def product_error(X: Any, sizes: Array, offsets: Array, n_roundings: int, kind: np.finfo | None = None) -> Array:
    r"""Return a bound on the error of computed scores :math:`W x + b`, shape (n_samples, n_scores).

    :math:`\gamma_m (|W|\,|x| + |b|)`, and what underflow may add.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
    sizes : ndarray of shape (n_scores, n_features)
        \|W\|, or larger where W was itself computed.
    offsets : ndarray of shape (n_scores,)
    n_roundings : int
        What a term meets on its way, n_features for a plain product.
    kind : finfo, default=None
        Of the arithmetic; None: float64.
    """
    tiny = float((np.finfo(np.float64) if kind is None else kind).tiny)
    return np.asarray(gamma(n_roundings, kind) * (abs(X) @ sizes.T + offsets) + n_roundings * tiny)
