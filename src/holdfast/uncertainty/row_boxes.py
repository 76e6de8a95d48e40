"""A box for each row; its centre need not be the row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import MISSED, box_stretch, dense, norm, ratio, rescaled
from holdfast._core.row_forms import Array, IntervalForm, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.smoothed_set import SmoothedSet
from holdfast.uncertainty.polytopes import KINK_WIDTHS


@dataclass(frozen=True)
class RowMatrix:
    """The matrix diag(rows) M diag(columns). M is an array, a CSR array (never made dense), or one shared row."""

    matrix: Any
    rows: Array
    columns: Array

    @property
    def is_shared(self) -> bool:
        """Whether M is one row shared by all."""
        return not sparse.issparse(self.matrix) and self.matrix.shape[0] == 1

    def dot(self, v: Array) -> Array:
        """Return the product with a vector, shape (n_samples,)."""
        return self.rows * (self.matrix @ (self.columns * v))

    def transpose_dot(self, r: Array) -> Array:
        """Return the transpose's product with a vector, shape (n_features,)."""
        return self.columns * self._pull(self.rows * r)

    def _pull(self, r: Array) -> Array:
        return np.asarray(self.matrix.T @ (r.sum(keepdims=True) if self.is_shared else r))

    def whole(self) -> Any:
        """Return the matrix as an array or a CSR array."""
        matrix = np.repeat(self.matrix, len(self.rows), axis=0) if self.is_shared else self.matrix
        return rescaled(matrix, self.rows, self.columns)

    def of(self, rows: slice) -> Array:
        """Return some rows as an array."""
        return self.rows[rows, None] * dense(self.matrix if self.is_shared else self.matrix[rows]) * self.columns

    def product(self, other: RowMatrix, r: Array) -> Array:
        """Return sum_i r_i a_i b_i', shape (n_features, n_features); a_i are rows of this matrix, b_i of `other`."""
        weights = r * self.rows * other.rows
        if self.is_shared:
            out = np.outer(self.matrix[0], other._pull(weights))
        elif other.is_shared:
            out = np.outer(self._pull(weights), other.matrix[0])
        else:
            out = dense(rescaled(self.matrix, weights).T @ other.matrix)
        return out * np.outer(self.columns, other.columns)

    def cross(self, rows: Any, r: Array) -> Array:
        """Return sum_i r_i x_i a_i', shape (n_features, n_features); x_i are the `rows`, a_i this matrix's rows."""
        weights = r * self.rows
        if self.is_shared:
            return np.outer(rows.transpose_dot(weights), self.matrix[0] * self.columns)
        scaled = rescaled(self.matrix, weights)
        return dense(sum(block.T @ scaled[part] for part, block in rows.blocks())) * self.columns


class RowPoints(RowSets):
    """Sets whose maximizers, as a matrix, are a sum of `RowMatrix` terms."""

    @abstractmethod
    def _terms(self, w: Array) -> list[RowMatrix]:
        """Return the matrices whose sum is the matrix of maximizers."""

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return np.asarray(sum(term.of(rows) for term in self._terms(w)))

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.asarray(sum(term.transpose_dot(r) for term in self._terms(w)))

    def directional(self, w: Array, v: Array) -> Array:
        return np.asarray(sum(term.dot(v) for term in self._terms(w)))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return np.asarray(sum(term.cross(rows, r) for term in self._terms(w)))

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        return RowSets.cross_with(self, other, w, r)

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        terms = self._terms(w)
        out = np.asarray(sum(one.product(other, second) for one in terms for other in terms))
        out[np.diag_indices_from(out)] += self._diagonal(w, first)
        return out

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return self._diagonal(w, first) * v

    def _diagonal(self, w: Array, first: Array) -> Array:
        """Return the diagonal of the sum of first_i times the (diagonal) Hessian of t_i; 0 for polytopes."""
        return np.zeros(len(w))


class RowBoxes(RowPoints):
    r"""The boxes :math:`|\delta_j - c_{ij}| \le s_j + h_{ij}`, with supports
    :math:`t_i(w) = \sum_j (s_j + h_{ij}) |w_j| + c_i^\top w`.

    As s is kept apart, the cost of supports and their derivatives is that of the stored entries of h and c, which are
    never made dense.

    Parameters
    ----------
    half : {ndarray, csr_array} of shape (n_samples, n_features) or ndarray of shape (1, n_features)
        h: half-widths, or deviations from `common` of any sign with s + h >= 0. A single row is shared by all.
    centre : as `half`, or None
        c, the centres of the boxes; None for 0. Every box must contain 0.
    signs : ndarray of shape (n_samples,), default=None
        -1 for boxes that are mirrored, so that their centre is -c; all 1 by default.
    common : ndarray of shape (n_features,), default=None
        s, 0 by default.
    fixed : IntervalForm, default=None
        The part of `half` and `common` that does not change with the size of the sets.
    """

    is_smooth = False

    def __init__(
        self,
        half: Any,
        centre: Any | None = None,
        signs: Array | None = None,
        common: Array | None = None,
        fixed: IntervalForm | None = None,
    ):
        self.half, self.centre, self.common, self.fixed = half, centre, common, fixed
        self.signs = np.ones(half.shape[0]) if signs is None else signs
        self.is_symmetric = centre is None

    @classmethod
    def of(cls, form: IntervalForm) -> RowBoxes:
        """Return the boxes of a form that differs by row; common half-widths stay apart only if its own are sparse."""
        own = form.own
        if own is None:
            assert form.centre is not None
            half = np.broadcast_to(form.common, form.centre.shape[1:])[None]
            return cls(half, form.centre, np.ones(form.centre.shape[0]))
        if not sparse.issparse(own):
            return cls(form.common + own, form.centre, fixed=form.fixed)
        common = np.broadcast_to(form.common, own.shape[1:]) if np.any(form.common) else None
        return cls(own, form.centre, common=common, fixed=form.fixed)

    def halves(self, signs: Array) -> list[RowMatrix]:
        """Return matrices whose sum is the half-widths, with columns multiplied by `signs`."""
        parts = [self.half] if self.common is None else [self.common[None], self.half]
        return [RowMatrix(part, np.ones(len(self.signs)), signs) for part in parts]

    def centres(self, moved: Array) -> list[RowMatrix]:
        """Return a list with the centres, columns multiplied by `moved`; empty if all centres are 0."""
        return [] if self.centre is None else [RowMatrix(self.centre, self.signs, moved)]

    def _terms(self, w: Array) -> list[RowMatrix]:
        return [*self.halves(np.sign(w)), *self.centres(np.abs(np.sign(w)))]

    def support(self, w: Array) -> Array:
        # 0 is in every box, so a negative sum is rounding
        return np.maximum(self.directional(w, w), 0.0)

    def supports_at(self, W: Array) -> Array:
        half, centre = self._dense()
        return np.maximum(np.sum(half * np.abs(W) + centre * W, axis=1), 0.0)

    def maximizers_at(self, W: Array) -> Array:
        half, centre = self._dense()
        return np.where(W == 0, 0.0, half * np.sign(W) + centre)

    def stretch(self, A: Array) -> Array:
        half, centre = self._dense()
        return np.broadcast_to(box_stretch(A, half + np.abs(centre)), len(self.signs))

    @cached_property
    def widest(self) -> Array:
        """The largest half-width of each feature."""
        own = np.ravel(dense(self.half.max(axis=0))) if self.half.shape[0] else np.zeros(self.half.shape[1])
        return own if self.common is None else self.common + own

    def _pooled(self, budgets: Array) -> tuple[Array, Array]:
        """Return the half-widths and the centre of the sum of all boxes, each multiplied by its budget."""
        one = np.ones(self.half.shape[1])
        parts = [matrix.transpose_dot(budgets) for matrix in self.halves(one)]
        half = sum(parts[1:], parts[0])
        # where deviations of -s cancel s, the remainder is rounding
        half = np.where(half > MISSED * parts[0], half, 0.0)
        return half, sum((matrix.transpose_dot(budgets) for matrix in self.centres(one)), np.zeros(len(half)))

    def _dense(self) -> tuple[Array, Array]:
        """Return half-widths and centres as arrays, with one row for each box or one shared row."""
        one = np.ones(self.half.shape[1])
        half = sum(matrix.of(slice(None)) for matrix in self.halves(one))
        centre = sum((matrix.of(slice(None)) for matrix in self.centres(one)), np.zeros((1, len(one))))
        return np.maximum(half, 0.0), centre

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        half, centre = self._pooled(budgets)
        # the reach of the sum of the boxes towards the target, feature by feature; a reach of the size of rounding is 0
        reach = half + np.sign(target) * centre
        reach = np.where(reach > MISSED * half, reach, 0.0)
        if np.any((np.abs(target) > MISSED * sizes)[reach == 0]):
            return np.full(len(self.signs), np.inf)
        return budgets * np.max(ratio(np.abs(target), reach), initial=0.0)

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return True

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        half, centre = self._pooled(budgets)
        rest = target - centre
        return np.copysign(np.maximum(np.abs(rest) - half, 0.0), rest)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        half, centre = self._dense()
        allowed = half + slack * (half + np.abs(centre))
        return np.asarray(np.all(np.abs(points - centre) <= allowed, axis=1))

    def interval_form(self) -> IntervalForm:
        common = np.zeros(()) if self.common is None else self.common
        form = IntervalForm(common, self.half, None, self.fixed)
        if self.half.shape[0] < len(self.signs):
            form = IntervalForm(common + self.half[0], None, None)
        if self.centre is None:
            return form
        is_shared = self.centre.shape[0] < len(self.signs)
        return form._replace(
            centre=np.outer(self.signs, self.centre) if is_shared else rescaled(self.centre, self.signs)
        )

    def _with(self, change: Callable[[Any], Any], signs: Array) -> RowBoxes:
        """Return the boxes with `change` applied to all matrices."""
        centre, common = (None if part is None else change(part) for part in (self.centre, self.common))
        fixed = None if self.fixed is None else self.fixed.each(change)
        return RowBoxes(change(self.half), centre, signs, common, fixed)

    def absolute_reach(self, n_features: int) -> Array:
        one = np.ones(n_features)
        sizes = sum(term.dot(one) for term in self.halves(one))
        return np.broadcast_to(sizes if self.centre is None else sizes + abs(self.centre) @ one, len(self.signs))

    def against_labels(self, signs: Array) -> RowBoxes:
        return self._with(lambda part: part, -signs * self.signs)

    def centred(self, X: Any) -> tuple[Any, RowSets]:
        centre = self.interval_form().centre
        if centre is None:
            return X, self
        is_sparse = sparse.issparse(X) and sparse.issparse(centre)
        moved = X + centre if is_sparse else dense(X) + dense(centre)
        around = RowBoxes(self.half, None, np.ones(len(self.signs)), self.common, self.fixed)
        return (sparse.csr_array(moved) if is_sparse else moved), around

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        # a box without width contains only 0
        return np.asarray(self.widest == 0)

    def image(self, map: Any) -> RowBoxes | None:
        if not map.is_monomial:
            return None
        half, size = map.columns(self.half, np.abs(map.scales)), np.abs(map.scales)
        centre = None if self.centre is None else map.columns(self.centre, map.scales)
        return RowBoxes(half, centre, self.signs, None if self.common is None else self.common[map.sources] * size)

    def scaled(self, factor: float) -> RowBoxes:
        return self._with(lambda part: factor * part, self.signs)

    def resized(self, factor: float) -> RowBoxes:
        larger = self.scaled(factor)
        if self.fixed is None:
            return larger
        # scaling has enlarged the fixed part too, so the excess is subtracted
        rest = self.fixed.each(lambda part: (1 - factor) * part)
        common = rest.common if larger.common is None else larger.common + rest.common
        return RowBoxes(larger.half + rest.own, larger.centre, self.signs, common, self.fixed)

    def smoothed(self, delta: float) -> RowSets:
        return SmoothedRowBoxes(self, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        # if s |w| is within some widths of the smoothing, only the smoothing is assumed to keep the weight away from 0
        near = (self.widest > 0) & (self.widest * np.abs(w) <= KINK_WIDTHS * delta / len(w))
        return np.where(near, factor * w, w)

    def take(self, rows: Any) -> RowBoxes:
        def some(part: Any) -> Any:
            return part[rows] if part.ndim == 2 and part.shape[0] == len(self.signs) else part

        return self._with(some, self.signs[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        corners = rng.choice([-1.0, 1.0], size=(n_draws, len(self.signs), n_features))
        where = np.where(rng.uniform(size=corners.shape) < 0.7, corners, rng.uniform(-1, 1, corners.shape))
        half, centre = self._dense()
        return half * where + centre


class SmoothedRowBoxes(RowPoints, SmoothedSet):
    r"""Boxes with supports :math:`T_i = \sum_j h_{ij} (\sqrt{w_j^2 + e_j^2} - e_j) + c_i^\top w + \delta`.

    Here h includes the common half-widths s. The widths :math:`e_j = \delta / (d \max_i h_{ij})`, with d the number of
    features, make :math:`\sum_j h_{ij} e_j \le \delta`.
    """

    base: RowBoxes

    def __init__(self, base: RowBoxes, delta: float, widths: Array | None = None):
        super().__init__(base, delta)
        self.is_smooth = True
        if widths is None:
            widest, n = base.widest, base.half.shape[1]
            widths = np.divide(delta / n, widest, out=np.full(n, delta), where=widest > 0)
        self.widths = widths

    def _terms(self, w: Array) -> list[RowMatrix]:
        return [*self.base.halves(w / np.hypot(w, self.widths)), *self.base.centres(np.ones(len(w)))]

    def support(self, w: Array) -> Array:
        # w times this is sqrt(w^2 + e^2) - e, without its cancellation near the kink
        rises = self.base.halves(w / (np.hypot(w, self.widths) + self.widths))
        rises += self.base.centres(np.ones(len(w)))
        return np.asarray(sum(term.dot(w) for term in rises)) + self.delta

    def supports_at(self, W: Array) -> Array:
        half, centre = self.base._dense()
        rises = np.hypot(W, self.widths) - self.widths
        return np.asarray(np.sum(half * rises + centre * W, axis=1) + self.delta)

    def maximizers_at(self, W: Array) -> Array:
        half, centre = self.base._dense()
        return half * (W / np.hypot(W, self.widths)) + centre

    def hessians_at(self, W: Array) -> RowHessians:
        roots = np.hypot(W, self.widths)
        return RowHessians.diagonal(self.base._dense()[0] * np.square(self.widths / roots) / roots)

    def take(self, rows: Any) -> SmoothedRowBoxes:
        return SmoothedRowBoxes(self.base.take(rows), self.delta, self.widths)

    def _diagonal(self, w: Array, first: Array) -> Array:
        roots = np.hypot(w, self.widths)
        halves = self.base.halves(np.square(self.widths / roots) / roots)
        return np.asarray(sum(matrix.transpose_dot(first) for matrix in halves))
