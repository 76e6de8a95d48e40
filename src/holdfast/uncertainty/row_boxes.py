"""A box for each row, with any point of it as the centre."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.uncertainty import Array, BoundSet, EasedSet
from holdfast.uncertainty.clouds import MISSED, dense, norm, ratio, rescaled
from holdfast.uncertainty.polytopes import FAINT


@dataclass(frozen=True)
class RowMatrix:
    """The matrix diag(rows) M diag(columns); M an array, a CSR array that is never made dense, or one row that all share."""

    matrix: Any
    rows: Array
    columns: Array

    @property
    def is_shared(self) -> bool:
        """Whether M is one row for all."""
        return not sparse.issparse(self.matrix) and self.matrix.shape[0] == 1

    def dot(self, v: Array) -> Array:
        """Return the product with a vector, shape (n_samples,)."""
        return self.rows * (self.matrix @ (self.columns * v))

    def transpose_dot(self, r: Array) -> Array:
        """Return the transpose's product with a vector, shape (n_features,)."""
        return self.columns * self._pull(self.rows * r)

    def _pull(self, r: Array) -> Array:
        return np.asarray(self.matrix.T @ (r.sum(keepdims=True) if self.is_shared else r))

    def of(self, rows: slice) -> Array:
        """Return some rows as an array."""
        return self.rows[rows, None] * dense(self.matrix if self.is_shared else self.matrix[rows]) * self.columns

    def product(self, other: RowMatrix, r: Array) -> Array:
        """Return sum_i r_i a_i b_i', a_i and b_i being the rows of both matrices, (n, n)."""
        weights = r * self.rows * other.rows
        if self.is_shared:
            out = np.outer(self.matrix[0], other._pull(weights))
        elif other.is_shared:
            out = np.outer(self._pull(weights), other.matrix[0])
        else:
            out = dense(rescaled(self.matrix, weights).T @ other.matrix)
        return out * np.outer(self.columns, other.columns)

    def cross(self, rows: Any, r: Array) -> Array:
        """Return sum_i r_i x_i a_i', x_i being `rows`, (n, n)."""
        weights = r * self.rows
        if self.is_shared:
            return np.outer(rows.transpose_dot(weights), self.matrix[0] * self.columns)
        scaled = rescaled(self.matrix, weights)
        return dense(sum(block.T @ scaled[part] for part, block in rows.blocks())) * self.columns


class RowPoints(BoundSet):
    """Sets whose maximizers are a sum of matrices."""

    @abstractmethod
    def _terms(self, w: Array) -> list[RowMatrix]:
        """Return matrices that add up to the maximizers."""

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return np.asarray(sum(term.of(rows) for term in self._terms(w)))

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.asarray(sum(term.transpose_dot(r) for term in self._terms(w)))

    def directional(self, w: Array, v: Array) -> Array:
        return np.asarray(sum(term.dot(v) for term in self._terms(w)))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return np.asarray(sum(term.cross(rows, r) for term in self._terms(w)))

    def cross_with(self, other: BoundSet, w: Array, r: Array) -> Array:
        return BoundSet.cross_with(self, other, w, r)

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        terms = self._terms(w)
        return np.asarray(sum(one.product(other, second) for one in terms for other in terms))

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return np.zeros(len(w))


class RowBoxes(RowPoints):
    r"""The boxes :math:`|\delta_j - c_{ij}| \le h_{ij}` with supports :math:`t_i(w) = \sum_j h_{ij} |w_j| + c_i^\top w`.

    Parameters
    ----------
    half : {ndarray, csr_array} of shape (n_samples, n_features) or ndarray of shape (1, n_features)
        Half-widths >= 0; one row is shared by all.
    centre : as `half`, or None
        Where the boxes are, None for around 0; 0 is in every box.
    faces : ndarray of shape (n_samples,), default=None
        -1 for boxes that are turned around, to lie around -centre; all 1 by default.
    """

    is_smooth = False
    has_gauge = True
    is_aligned = True

    def __init__(self, half: Any, centre: Any | None = None, faces: Array | None = None):
        self.half, self.centre = half, centre
        self.faces = np.ones(half.shape[0]) if faces is None else faces
        self.is_symmetric = centre is None

    def matrices(self, signs: Array, moved: Array) -> list[RowMatrix]:
        """Return half-widths and centres, with their columns multiplied by `signs` and `moved`."""
        half = RowMatrix(self.half, np.ones(len(self.faces)), signs)
        return [half] if self.centre is None else [half, RowMatrix(self.centre, self.faces, moved)]

    def _terms(self, w: Array) -> list[RowMatrix]:
        return self.matrices(np.sign(w), np.abs(np.sign(w)))

    def support(self, w: Array) -> Array:
        return self.directional(w, w)

    @cached_property
    def widest(self) -> Array:
        """The largest half-width of each feature."""
        return np.ravel(dense(self.half.max(axis=0)))

    def _pooled(self, budgets: Array) -> tuple[Array, Array]:
        """Return half-widths and centre of the sum of the boxes, each as large as its budget says."""
        one = np.ones(self.half.shape[1])
        half, *centre = (matrix.transpose_dot(budgets) for matrix in self.matrices(one, one))
        return half, centre[0] if centre else np.zeros(len(half))

    def demand(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        half, centre = self._pooled(budgets)
        reach = half + np.sign(target) * centre
        reach = np.where(reach > MISSED * half, reach, 0.0)
        if np.any((np.abs(target) > MISSED * sizes)[reach == 0]):
            return np.full(len(self.faces), np.inf)
        return budgets * np.max(ratio(np.abs(target), reach), initial=0.0)

    def remainder(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        half, centre = self._pooled(budgets)
        rest = target - centre
        return np.copysign(np.maximum(np.abs(rest) - half, 0.0), rest)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        one = np.ones(self.half.shape[1])
        half, *others = (matrix.of(slice(None)) for matrix in self.matrices(one, one))
        centre = others[0] if others else np.zeros((1, len(one)))
        allowed = half + slack * (half + np.abs(centre))
        return np.asarray(np.all(np.abs(points - centre) <= allowed, axis=1))

    def interval_form(self) -> tuple[Any, Any | None]:
        half = self.half if self.half.shape[0] == len(self.faces) else self.half[0]
        if self.centre is None:
            return half, None
        is_shared = self.centre.shape[0] < len(self.faces)
        return half, np.outer(self.faces, self.centre) if is_shared else rescaled(self.centre, self.faces)

    def absolute_reach(self, n_features: int) -> Array:
        one = np.ones(n_features)
        sizes = sum(abs(term.matrix) @ one for term in self.matrices(one, one))
        return np.broadcast_to(sizes, len(self.faces))

    def facing(self, signs: Array) -> RowBoxes:
        return RowBoxes(self.half, self.centre, -signs * self.faces)

    def centred(self, X: Any) -> tuple[Any, BoundSet]:
        centre = self.interval_form()[1]
        if centre is None:
            return X, self
        is_sparse = sparse.issparse(X) and sparse.issparse(centre)
        moved = X + centre if is_sparse else dense(X) + dense(centre)
        return (sparse.csr_array(moved) if is_sparse else moved), RowBoxes(self.half, None, np.ones(len(self.faces)))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        parts = [self.half] if self.centre is None else [self.half, self.centre]
        return np.asarray(sum(abs(part).T @ np.ones(part.shape[0]) for part in parts) == 0)

    def scaled(self, factor: float) -> RowBoxes:
        return RowBoxes(factor * self.half, None if self.centre is None else factor * self.centre, self.faces)

    def eased(self, delta: float) -> BoundSet:
        return EasedRowBoxes(self, delta)

    def drawn_in(self, w: Array, delta: float, factor: float) -> Array:
        near = (self.widest > 0) & (self.widest * np.abs(w) <= FAINT * delta / len(w))
        return np.where(near, factor * w, w)

    def take(self, rows: Any) -> RowBoxes:
        def some(matrix: Any | None) -> Any | None:
            return matrix if matrix is None or matrix.shape[0] < len(self.faces) else matrix[rows]

        return RowBoxes(some(self.half), some(self.centre), self.faces[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        corners = rng.choice([-1.0, 1.0], size=(n_draws, len(self.faces), n_features))
        where = np.where(rng.uniform(size=corners.shape) < 0.7, corners, rng.uniform(-1, 1, corners.shape))
        one = np.ones(n_features)
        half, *centre = (matrix.of(slice(None)) for matrix in self.matrices(one, one))
        return half * where + (centre[0] if centre else 0.0)


class EasedRowBoxes(RowPoints, EasedSet):
    r"""Boxes with supports :math:`T_i = \sum_j h_{ij} (\sqrt{w_j^2 + e_j^2} - e_j) + c_i^\top w + \delta`.

    :math:`e_j = \delta / (d \max_i h_{ij})` (`widths`), d the number of features, so that
    :math:`\sum_j h_{ij} e_j \le \delta`.
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
        return self.base.matrices(w / np.hypot(w, self.widths), np.ones(len(w)))

    def support(self, w: Array) -> Array:
        rises = self.base.matrices(w / (np.hypot(w, self.widths) + self.widths), np.ones(len(w)))
        return np.asarray(sum(term.dot(w) for term in rises)) + self.delta

    def take(self, rows: Any) -> EasedRowBoxes:
        return EasedRowBoxes(self.base.take(rows), self.delta, self.widths)

    def _bends(self, w: Array, first: Array) -> Array:
        roots = np.hypot(w, self.widths)
        return self.base.matrices(np.square(self.widths / roots) / roots, w)[0].transpose_dot(first)

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        out = super().curvature(w, first, second)
        out[np.diag_indices_from(out)] += self._bends(w, first)
        return out

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return self._bends(w, first) * v
