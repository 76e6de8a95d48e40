"""Balls around each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from holdfast._core.allowed import Order
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import nonnegative, numbers, stated
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.norm_balls import CommonNormBall
from holdfast.uncertainty.polytopes import CommonBox, CommonDiamond
from holdfast.uncertainty.row_scaled import RowScaledSets
from holdfast.uncertainty.sized import SizedSet

BALLS: dict[float, Callable[[Any], RowSets]] = {1.0: CommonDiamond, 2.0: CommonEllipsoid, np.inf: CommonBox}


class Ball(SizedSet):
    r"""The ball :math:`\|\delta_i\|_p \le r_i`: errors in any direction, of limited length.

    It changes a score by at most :math:`r_i \|w\|_q`, where :math:`1/p + 1/q = 1`.

    Parameters
    ----------
    radius : float, default=None
        In the units of the features, which should be the same for all. If ``fit`` is given ``X_radius``, one number >=
        0 for each row, `radius` multiplies it. None takes ``X_radius`` as stated, and is an error without it.
    norm : float or "inf", default=2
        p >= 1: 2 for the Euclidean length, ``"inf"`` (or ``numpy.inf``) if each feature may move by up to the radius, 1
        if the features share the radius as a budget.

    Examples
    --------
    >>> X, w = np.zeros((2, 2)), np.array([3.0, -4.0])
    >>> [round(float(Ball(0.5, norm=p).at(X, {}).support(w)), 6) for p in (1, 2, "inf")]
    [2.0, 2.5, 3.5]
    >>> Ball(0.5).at(X, {"X_radius": [1.0, 0.0]}).support(w)
    array([2.5, 0. ])
    """

    metadata = ("X_radius",)
    size_name = "radius"

    def __init__(self, radius: Any = None, norm: Any = 2):
        self.radius = radius
        self.norm = norm

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        n_samples, n_features = X.shape
        own, p = stated(self, metadata), self._norm()
        size: Any = self._radius() if own else self._radius_alone()
        base = BALLS.get(p, partial(CommonNormBall, p=p))(np.full(n_features, size) if p == np.inf else size)
        return RowScaledSets(base, _radii(own["X_radius"], n_samples)) if own else base

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if self._norm() == 2 and map.isometry is not None:
            if not metadata:
                return self.times(map.isometry), {}
            return self, {"X_radius": map.isometry * np.asarray(metadata["X_radius"], dtype=np.float64)}
        return super().image(map, metadata)

    def _norm(self) -> float:
        return Order().checked(self.norm, "Ball(norm")

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        radii = np.array([0.3, 1.0, 0.5, 0.8, 0.7])
        return [
            *((cls(0.4, p), {}) for p in (1, 1.5, 2, 3.0, "inf")),
            *((cls(0.5, p), {"X_radius": radii}) for p in (1, 2, 3.0, np.inf)),
        ]


def _radii(value: Any, n_samples: int) -> Array:
    radii = numbers(value, "X_radius=...", "X_radius")
    if radii.shape != (n_samples,):
        raise ValueError(
            f"X_radius has shape {radii.shape}; it is one number for each row, here ({n_samples},). "
            "A radius common to all rows belongs in the constructor: Ball(radius=...)."
        )
    return np.asarray(nonnegative(radii, "X_radius=...", "X_radius"))
