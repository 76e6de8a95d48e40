"""Forms in which sets of rows hand themselves over: as boxes, as Hessians of supports, as deletions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class IntervalForm(NamedTuple):
    r"""The supports of boxes, :math:`t_i(w) = (common + own_i)^\top |w| + centre_i^\top w`."""

    common: Array
    """What all rows have, one number or one a feature."""
    own: Any | None
    """What each row has besides, of any sign but for the sum: an array or a CSR array (n_samples, n_features)."""
    centre: Any | None
    """Where the boxes are, such a matrix; None for around 0."""
    fixed: IntervalForm | None = None
    """The part of `common` and `own` that a change of the sets' size leaves as it is; None for nothing."""

    def plus(self, other: IntervalForm) -> IntervalForm:
        """Return the form of the sums of the boxes."""
        own, centre = _total(self.own, other.own), _total(self.centre, other.centre)
        fixed = self.fixed.plus(other.fixed) if self.fixed and other.fixed else self.fixed or other.fixed
        return IntervalForm(self.common + other.common, own, centre, fixed)

    def each(self, change: Callable[[Any], Any]) -> IntervalForm:
        """Return the form with every part changed."""
        own, centre = (None if part is None else change(part) for part in (self.own, self.centre))
        return IntervalForm(change(self.common), own, centre)


class RowHessians(NamedTuple):
    r"""Hessians of supports, one a row.

    .. math:: H_i = \sum_k c_{ki} G_k + \sum_k c_{ki} q_{ki} q_{ki}^\top + \sum_j c_{ij} a_j a_j^\top.
    """

    metrics: list[tuple[Array, Array]] = []
    """Weights c, shape (n_samples,), with a matrix G that all rows share, (n_features, n_features)."""
    vectors: list[tuple[Array, Array]] = []
    """Weights c with a vector q of each row, shape (n_samples, n_features)."""
    axes: list[tuple[Array, Array]] = []
    """Weights c, shape (n_samples, n_axes), with vectors a that all rows share, (n_axes, n_features)."""

    @classmethod
    def diagonal(cls, bends: Array) -> RowHessians:
        """Return Hessians that are diagonal, from these, shape (n_samples, n_features)."""
        return cls(axes=[(bends, np.eye(bends.shape[1]))])

    def plus(self, other: RowHessians) -> RowHessians:
        """Return the sums."""
        return RowHessians(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, factors: Array) -> RowHessians:
        """Return them multiplied by a number a row."""
        return RowHessians(*([((weights.T * factors).T, part) for weights, part in kind] for kind in self))

    def dot(self, V: Array) -> Array:
        """Return H_i v_i, one vector a row."""
        found = np.zeros(V.shape)
        for weights, G in self.metrics:
            found += weights[:, None] * (V @ G)
        for weights, q in self.vectors:
            found += (weights * np.sum(q * V, axis=1))[:, None] * q
        for weights, axes in self.axes:
            found += (weights * (V @ axes.T)) @ axes
        return found


class DeletionForm(NamedTuple):
    """Sets, as they face the labels, of rows whose features are deleted within a budget, shares of a feature too."""

    values: Array
    """What each feature costs, shape (n_features,), > 0; inf for what is never deleted."""
    capacity: float
    is_spent: bool
    """Whether all of the capacity has to be spent."""
    points: Callable[[Any], Any]
    """What makes points of the sets of the shares that are deleted, both of shape (n_samples, n_features)."""


def _total(one: Any | None, other: Any | None) -> Any | None:
    return other if one is None else one if other is None else one + other
