"""Ellipsoids around each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import at_most_one, matrix_root, row_clouds, stated
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.sized import SizedSet


class Ellipsoid(SizedSet):
    r"""The ellipsoid :math:`\delta_i^\top E_i^{-1} \delta_i \le r^2`: correlated errors, larger in some directions.

    It changes a score by at most :math:`r \sqrt{w^\top E_i w}`. E may be singular: directions outside its range are
    exact.

    Parameters
    ----------
    radius : float, default=None
        r, which multiplies the axes. None means r = 1, and is an error if neither `shape` nor metadata states the axes.
    shape : array-like of shape (n_features, n_features) or (n_features,), default=None
        E, or its diagonal, common to all rows, in squared units of the features. None for a ball, or if ``fit`` is
        given the ellipsoids.

    Notes
    -----
    Ellipsoids that differ by row go to ``fit`` as ``X_std`` (semi-axes along the features), ``X_cov`` (E_i) or
    ``X_factor`` (:math:`F_i`, :math:`E_i = F_i F_i^\top`).

    Examples
    --------
    >>> X, w = np.zeros((2, 2)), np.array([3.0, -1.0])
    >>> float(Ellipsoid(0.5, shape=[4.0, 0.0]).at(X, {}).support(w))
    3.0
    >>> Ellipsoid(0.5).at(X, {"X_std": [[2.0, 0.0], [0.0, 2.0]]}).support(w)
    array([3., 1.])
    """

    size_parameters = ("radius", "shape")
    metadata = ("X_std", "X_cov", "X_factor")
    size_name = "ellipsoids"

    def __init__(self, radius: Any = None, *, shape: Any = None):
        self.radius = radius
        self.shape = shape

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        (n_samples, n_features), size, own = X.shape, self._radius(), stated(self, metadata)
        at_most_one(own if self.shape is None else ["shape", *own])
        if own:
            return row_clouds(size, n_samples, n_features, own, "Ellipsoid(shape=...)")
        if self.shape is None:
            return CommonEllipsoid(np.asarray(self._radius_alone()))
        return CommonEllipsoid(size * matrix_root(self.shape, n_features, "Ellipsoid(shape=...)", "shape"))

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return (self, map.cloud(metadata)) if metadata else super().image(map, metadata)

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        factors = rng.normal(size=(5, 3, 2))
        return [
            (cls(0.7), {}),
            (cls(0.7, shape=[0.5, 0.1, 2.0]), {}),
            (cls(0.5, shape=np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]])), {}),
            (cls(0.4), {"X_std": rng.uniform(0.1, 2.0, size=(5, 3))}),
            (cls(0.5), {"X_cov": factors @ factors.transpose(0, 2, 1)}),
        ]
