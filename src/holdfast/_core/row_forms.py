"""Forms of row sets that solvers know: boxes, deletions, and the Hessians of supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense, ratio
from holdfast._core.programs import SupportProgram

Array = NDArray[np.float64]


class IntervalForm(NamedTuple):
    r"""The supports of boxes, :math:`t_i(w) = (common + own_i)^\top |w| + centre_i^\top w`."""

    common: Array
    """The half-widths that all rows share: one number, or one for each feature."""
    own: Any | None
    """The addition for each row, an array or CSR array (n_samples, n_features). May be < 0, but the sums are >= 0."""
    centre: Any | None
    """The centres of the boxes, an array or CSR array (n_samples, n_features); None if they are 0."""
    fixed: IntervalForm | None = None
    """The part of `common` and `own` that does not grow with the radius; None if there is none."""

    def plus(self, other: IntervalForm) -> IntervalForm:
        """Return the form of the sums of the boxes."""
        own, centre = _total(self.own, other.own), _total(self.centre, other.centre)
        fixed = self.fixed.plus(other.fixed) if self.fixed and other.fixed else self.fixed or other.fixed
        return IntervalForm(self.common + other.common, own, centre, fixed)

    def each(self, change: Callable[[Any], Any]) -> IntervalForm:
        """Return the form with `change` applied to all parts."""
        own, centre = (None if part is None else change(part) for part in (self.own, self.centre))
        return IntervalForm(change(self.common), own, centre)

    def as_metadata(self, shape: tuple[int, int]) -> dict[str, Any]:
        """Return X_lower and X_upper of the boxes around rows of zeros; `shape` is (n_samples, n_features)."""
        own, centre = (0.0 if part is None else dense(part) for part in (self.own, self.centre))
        half = np.broadcast_to(self.common + own, shape)
        return {"X_lower": np.minimum(centre - half, 0.0), "X_upper": np.maximum(centre + half, 0.0)}

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        """Return uniform points of the boxes, one for each row, as a CSR array if the half-widths are sparse."""
        own: Any = np.zeros(()) if self.own is None else self.own
        if sparse.issparse(own) and not np.any(self.common):
            drawn = sparse.csr_array(own, copy=True)
            drawn.data *= rng.uniform(-1.0, 1.0, size=drawn.nnz)
        else:
            drawn = (self.common + dense(own)) * rng.uniform(-1.0, 1.0, size=shape)
        return drawn if self.centre is None else drawn + self.centre

    def support_program(self, n_features: int) -> SupportProgram:
        """Return the supports as centre_i'w + own_i'z + u, z >= |w|, with one u >= common'z if `common` is not 0."""
        n, is_shared = n_features, bool(np.any(self.common))
        n_sets = next((part.shape[0] for part in (self.own, self.centre) if part is not None), 1)
        centre, own = (sparse.csr_array((n_sets, n) if part is None else part) for part in (self.centre, self.own))
        common = np.broadcast_to(self.common, (1, n))

        def points(budgets: Array, multipliers: Array) -> Array:
            up, down = multipliers[: 2 * n].reshape(2, n)
            # if w_j is not 0, one of z_j >= w_j and z_j >= -w_j has a multiplier, which gives the end of the interval.
            # At a kink both have multipliers, and the point lies between the ends
            sides = np.clip(ratio(up - down, up + down), -1.0, 1.0)
            return np.asarray(centre.toarray() + (common + own.toarray()) * sides)

        T, above = sparse.hstack([centre, own]), above_absolute(n)
        if is_shared:
            T = sparse.hstack([T, np.ones((n_sets, 1))])
            beyond = sparse.hstack([sparse.csr_array((1, n)), -common, np.ones((1, 1))])
            above = sparse.vstack([sparse.hstack([above, sparse.csr_array((2 * n, 1))]), beyond])
        cones = [("nonnegative", [2 * n + int(is_shared)], sparse.csr_array(above))]
        return SupportProgram(sparse.csr_array(T), cones, points)


def above_absolute(n_features: int) -> sparse.csr_array:
    """Return G such that G (w, z) >= 0 if and only if z >= |w|."""
    one = sparse.eye_array(n_features)
    return sparse.csr_array(sparse.block_array([[-one, one], [one, one]]))


class RowHessians(NamedTuple):
    r"""Hessians of supports, one for each row.

    .. math:: H_i = \sum_k c_{ki} G_k + \sum_k c_{ki} q_{ki} q_{ki}^\top + \sum_j c_{ij} a_j a_j^\top.
    """

    metrics: list[tuple[Array, Array]] = []
    """Pairs of weights c, shape (n_samples,), and a matrix G common to all rows, (n_features, n_features)."""
    vectors: list[tuple[Array, Array]] = []
    """Pairs of weights c, shape (n_samples,), and a vector q for each row, shape (n_samples, n_features)."""
    axes: list[tuple[Array, Array]] = []
    """Pairs of weights c, shape (n_samples, n_axes), and vectors a common to all rows, (n_axes, n_features)."""

    @classmethod
    def of(cls, matrices: Sequence[Array]) -> RowHessians:
        """Return the Hessians given as matrices, one for each row."""
        levels, axes = np.linalg.eigh(np.stack(matrices))
        return cls([], list(zip(levels.T, np.moveaxis(axes, 2, 0), strict=True)), [])

    @classmethod
    def diagonal(cls, bends: Array) -> RowHessians:
        """Return Hessians with these diagonals, shape (n_samples, n_features)."""
        return cls(axes=[(bends, np.eye(bends.shape[1]))])

    def plus(self, other: RowHessians) -> RowHessians:
        """Return the sums of these Hessians and others."""
        return RowHessians(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, factors: Array) -> RowHessians:
        """Return the Hessians multiplied by a number for each row."""
        return RowHessians(*([((weights.T * factors).T, part) for weights, part in kind] for kind in self))

    def dot(self, V: Array) -> Array:
        """Return H_i v_i, one vector for each row."""
        found = np.zeros(V.shape)
        for weights, G in self.metrics:
            found += weights[:, None] * (V @ G)
        for weights, q in self.vectors:
            found += (weights * np.sum(q * V, axis=1))[:, None] * q
        for weights, axes in self.axes:
            found += (weights * (V @ axes.T)) @ axes
        return found


class DeletionForm(NamedTuple):
    """Deletions of features, whole or in part, within a budget for each row, for sets taken `against_labels`."""

    values: Array
    """The deletion cost of each feature, shape (n_features,), > 0; inf if it is never deleted."""
    capacity: float
    is_spent: bool
    """Whether the capacity must be used up."""
    points: Callable[[Any], Any]
    """Maps deleted shares to points of the sets, both of shape (n_samples, n_features)."""


def _total(one: Any | None, other: Any | None) -> Any | None:
    return other if one is None else one if other is None else one + other
