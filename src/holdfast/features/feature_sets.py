"""The sets of changes of curved features: slopes times errors, plus a bound on the remainder."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from holdfast._core.arithmetic import norm, ratio
from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.smoothed_set import SmoothedSet
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.images import Images
from holdfast.uncertainty.minkowski import BoundSum

BLOCK_ENTRIES = 1 << 20
"""The number of entries in memory at a time."""
FAINT = 1e-16
"""Rows with a weight below this share of the largest add only rounding to a sum."""


class FeatureSets(RowSets):
    r"""Sets that contain all changes :math:`\phi(x_i + d) - \phi(x_i)` of features, with d in the set :math:`D_i`.

    With the derivatives :math:`J_i` of the features (or of some of them) at the row, a score with weights w changes by
    at most

    .. math:: t_i(w) = \max_{d \in D_i} (J_i^\top w)^\top d + \rho_i(w) + b_i |w|_2,

    where :math:`\rho_i` is the support of a set that contains the errors of the linearisation, and :math:`b_i` is the
    radius of a ball that contains the remainder, at least rounding. Subclasses state both. The bound is convex in w,
    and exact for small sets. It needs a ridge, as the share of the sets that reaches a target is not known.

    Parameters
    ----------
    inputs : RowSets
        D, the set of each row, in the units of the inputs.
    signs : ndarray of shape (n_samples,)
        -1 for mirrored sets.
    radii : ndarray of shape (n_samples,)
        b.
    smoothing : float, default=0.0
        The amount by which supports may be enlarged to make them smooth; maximizers stay in the original sets.
    """

    is_symmetric = False
    n_inputs: int
    n_features: int
    follows: Array
    """1 for features whose derivatives are used, 0 for others."""

    def __init__(self, inputs: RowSets, signs: Array, radii: Array, smoothing: float = 0.0):
        self.inputs, self.signs, self.radii, self.smoothing = inputs, signs, radii, smoothing
        self.is_smooth = smoothing > 0
        # of the half that SmoothedSet leaves, kinks of the inputs' supports get half, arcs and balls a quarter each. No
        # kink may remain at w = 0, where the path of smoothings starts
        self._moved = inputs.smoothed(0.25 * smoothing) if smoothing > 0 else inputs
        self._blunt = float(ratio(0.125 * smoothing, np.max(radii, initial=0.0)))

    @abstractmethod
    def _slopes(self, w: Array) -> Array:
        """Return J_i'w, shape (n_samples, n_inputs)."""

    @abstractmethod
    def _lifted(self, moves: Array) -> Array:
        """Return J_i d_i for one d_i per row, shape (n_samples, n_features)."""

    def _rest(self, w: Array) -> tuple[Array, Array]:
        """Return rho_i(f_i w), f being `signs`, and its maximizers before mirroring, shape (n_samples, n_features)."""
        return np.zeros(1), np.zeros((1, 1))

    def _rest_bends(self, w: Array, first: Array) -> Array:
        """Return sum_i first_i times the Hessian of rho_i, shape (n_features, n_features)."""
        return np.zeros((1, 1))

    def _rest_product(self, w: Array, first: Array, v: Array) -> Array:
        """Return the product of `_rest_bends` with v."""
        return np.zeros(1)

    @abstractmethod
    def _slope_gram(self, weights: Array, G: Array) -> Array:
        """Return sum_i weights_i J_i G J_i', shape (n_features, n_features)."""

    @abstractmethod
    def _along(self, axes: Array, rows: slice) -> Array:
        """Return J_i a_j for some rows and all `axes` a, shape (n_rows, n_axes, n_features)."""

    @abstractmethod
    def _of(self, rows: Any, inputs: RowSets, signs: Array, smoothing: float) -> Self:
        """Return the sets of some rows, whose input sets are `inputs`."""

    @remembered
    def _found(self, w: Array) -> tuple[Array, Array]:
        """Return the supports and the points that attain them."""
        slopes, (values, points), size = self._faced(w), self._rest(w), self._size(w)
        turned = self.signs[:, None] * (self._lifted(self._moved.maximizers_at(slopes)) + points)
        supports = self._moved.supports_at(slopes) + values + self.radii * size
        return supports, turned + np.outer(self.radii, ratio(w, size))

    def _size(self, w: Array) -> Array:
        """Return |w|, with its kink at 0 smoothed if the sets are smoothed."""
        return np.hypot(norm(w), self._blunt)

    def _faced(self, w: Array) -> Array:
        """Return the slopes f_i J_i'w of the sets, mirrored by `signs`."""
        return self.signs[:, None] * self._slopes(w)

    @remembered
    def _bends(self, w: Array) -> RowHessians:
        """Return the Hessians of the supports of the inputs."""
        return self._moved.hessians_at(self._faced(w)) if np.any(self.follows) else RowHessians()

    def support(self, w: Array) -> Array:
        return self._found(w)[0]

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return self._found(w)[1][rows]

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        points, first = self._found(w)[1], np.broadcast_to(first, len(self.signs))
        found = self._rest_bends(w, first) + self._ball_bends(w, first, np.eye(len(w)))
        found = found + _gram(points, np.broadcast_to(second, len(points)))
        metrics, vectors, axes = self._bends(w)
        for weights, G in metrics:
            found += self._slope_gram(first * weights, G)
        for weights, q in vectors:
            found += _gram(self._lifted(q), first * weights)
        for weights, q in axes:
            found += self._axes_gram(first[:, None] * weights, q)
        return found

    def _axes_gram(self, weights: Array, axes: Array) -> Array:
        """Return sum_ij weights_ij (J_i a_j)(J_i a_j)', shape (n_features, n_features), for the vectors a = `axes`."""
        found = np.zeros((self.n_features, self.n_features))
        for rows in gen_batches(len(weights), max(1, BLOCK_ENTRIES // max(len(axes) * self.n_features, 1))):
            found += _gram(self._along(axes, rows).reshape(-1, self.n_features), weights[rows].ravel())
        return found

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        first, across = np.broadcast_to(first, len(self.signs)), self._bends(w).dot(self._slopes(v))
        return self._rest_product(w, first, v) + self._ball_bends(w, first, v) + self._lifted(across).T @ first

    def _ball_bends(self, w: Array, first: Array, v: Array) -> Array:
        """Return the Hessian of sum_i first_i b_i |w| times v, a vector or a symmetric matrix."""
        size = self._size(w)
        unit = ratio(w, size)
        return float(ratio(np.sum(first * self.radii), size)) * (v - np.multiply.outer(unit, unit @ v))

    def square_curvature(self, n_features: int, first: Array) -> Array:
        n, d = len(self.signs), self.n_inputs
        # the inputs' square curvature is known for all rows together only: split it in proportion to squared longest
        # errors
        squares = np.broadcast_to(np.square(self.inputs.stretch(np.eye(d))), n)
        if not (total := float(squares.sum())) > 0:
            return np.zeros((n_features, n_features))
        return self._slope_gram(first * squares, self.inputs.square_curvature(d, np.ones(n)) / total)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        raise NotImplementedError(f"{type(self).__name__} is known by its support alone.")

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return np.full(len(self.signs), np.inf)

    def scaled(self, factor: float) -> RowSets:
        return Images(self, AffineMap.diagonal(np.full(self.n_features, factor)))

    def smoothed(self, delta: float) -> RowSets:
        if self.is_smooth:
            return SmoothedSet(self, delta)
        return SmoothedSet(self._of(slice(None), self.inputs, self.signs, delta), 0.5 * delta)

    def against_labels(self, signs: Array) -> Self:
        return self._of(slice(None), self.inputs, -signs * self.signs, self.smoothing)

    def take(self, rows: Any) -> Self:
        found = self._of(rows, self.inputs.take(rows), self.signs[rows], self.smoothing)
        # keep the smoothing of all rows, which would differ for a part of them
        found._moved, found._blunt = self._moved.take(rows), self._blunt
        return found


class FeatureSum(BoundSum):
    """A sum of sets of features. It needs a ridge, as the share of it that reaches a target would be hard to find."""

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return np.full(np.shape(self.support(target)), np.inf)


def _gram(rows: Array, weights: Array) -> Array:
    """Return sum_i weights_i r_i r_i' over the rows r_i with a weight that is not negligible."""
    # most rows may be far out, where the curvature of the loss is (nearly) 0; dropping them saves time
    used = np.abs(weights) > FAINT * np.max(np.abs(weights), initial=0.0)
    rows, weights = (rows, weights) if np.all(used) else (rows[used], weights[used])
    return np.asarray(rows.T @ (weights[:, None] * rows))
