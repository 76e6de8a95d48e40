"""What curved features make of sets of rows: slopes times errors, and a bound on the rest."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._core.memory import remembered
from holdfast._core.uncertainty import Array, BoundSet, EasedSet
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import ratio
from holdfast.uncertainty.images import Images


class FeatureSets(BoundSet):
    r"""Sets that hold all changes of features :math:`\phi(x_i + d) - \phi(x_i)`, d in the set :math:`D_i` of row i.

    With the derivatives :math:`J_i` of the features at the row, or of some of them, a weight vector w is pushed by no more than

    .. math:: t_i(w) = \max_{d \in D_i} (J_i^\top w)^\top d + \rho_i(w),

    :math:`\rho_i` the support of a set that holds what these derivatives miss. The classes of maps say which. Convex in w, and
    exact for small sets. With a ridge only: how much of the sets reaches a target is not known.

    Parameters
    ----------
    inputs : BoundSet
        D, of the rows as they are.
    faces : ndarray of shape (n_samples,)
        -1 for sets that are turned around.
    ease : float, default=0.0
        How much larger supports may be made to be smooth; their points are those of the sets themselves.
    """

    is_symmetric = False
    n_inputs: int
    n_features: int

    def __init__(self, inputs: BoundSet, faces: Array, ease: float = 0.0):
        self.inputs, self.faces, self.ease = inputs, faces, ease
        # kinks of the inputs' supports, and of what derivatives miss, are eased each by half
        self.is_smooth = ease > 0
        self._moved = inputs if ease == 0 or inputs.is_smooth else inputs.eased(0.25 * ease)

    @abstractmethod
    def _slopes(self, w: Array) -> Array:
        """Return J_i'w, shape (n_samples, n_inputs)."""

    @abstractmethod
    def _lifted(self, moves: Array) -> Array:
        """Return J_i d_i for one d a row, shape (n_samples, n_features)."""

    @abstractmethod
    def _rest(self, w: Array) -> tuple[Array, Array]:
        """Return rho_i(f_i w), f being `faces`, and points that attain it, not yet turned, shape (n_samples, n_features)."""

    @abstractmethod
    def _rest_bends(self, w: Array, first: Array) -> Array:
        """Return sum_i first_i times the Hessian of rho_i, shape (n_features, n_features)."""

    @abstractmethod
    def _rest_product(self, w: Array, first: Array, v: Array) -> Array:
        """Return the product of `_rest_bends` with v."""

    @abstractmethod
    def _slope_gram(self, weights: Array, G: Array) -> Array:
        """Return sum_i weights_i J_i G J_i', shape (n_features, n_features)."""

    @abstractmethod
    def _of(self, rows: Any, inputs: BoundSet, faces: Array, ease: float) -> Self:
        """Return the sets of some rows, around which errors are `inputs`."""

    @remembered
    def _found(self, w: Array) -> tuple[Array, Array, Array, Array]:
        """Return supports, their points, and of these the part by slopes: its supports, and the errors d."""
        slopes = self.faces[:, None] * self._slopes(w)
        moves, along, (values, points) = (
            self._moved.maximizers_at(slopes),
            self._moved.supports_at(slopes),
            self._rest(w),
        )
        return along + values, self.faces[:, None] * (self._lifted(moves) + points), along, moves

    def support(self, w: Array) -> Array:
        return self._found(w)[0]

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return self._found(w)[1][rows]

    def adjoint(self, w: Array, r: Array) -> Array:
        return self._found(w)[1].T @ np.broadcast_to(r, len(self.faces))

    def directional(self, w: Array, v: Array) -> Array:
        return self._found(w)[1] @ v

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        points = self._found(w)[1]
        return np.asarray(sum(block.T @ (r[part, None] * points[part]) for part, block in rows.dense_blocks()))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        _, points, along, moves = self._found(w)
        found = self._rest_bends(w, first) + points.T @ (np.broadcast_to(second, len(points))[:, None] * points)
        diagonals = self._moved.bends_at(self.faces[:, None] * self._slopes(w))
        if diagonals is not None:
            units = np.eye(self.n_inputs)
            return found + np.sum(
                [self._slope_gram(first * d, np.outer(e, e)) for e, d in zip(units, diagonals.T, strict=True)], axis=0
            )
        bend, (G, squares) = ratio(first, along), self._input_metric
        lifted = self._lifted(moves)
        return found + self._slope_gram(bend * squares, G) - lifted.T @ (bend[:, None] * lifted)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        _, _, along, moves = self._found(w)
        slopes = self._slopes(v)
        diagonals = self._moved.bends_at(self.faces[:, None] * self._slopes(w))
        if diagonals is not None:
            across, bend = diagonals * slopes, np.broadcast_to(first, len(slopes))
        else:
            (G, squares), bend = self._input_metric, ratio(first, along)
            across = squares[:, None] * (slopes @ G) - np.einsum("ij,ij->i", moves, slopes)[:, None] * moves
        return self._rest_product(w, first, v) + self._lifted(across).T @ bend

    def square_curvature(self, n_features: int, first: Array) -> Array:
        G, squares = self._input_metric
        return self._slope_gram(np.broadcast_to(first, len(squares)) * squares, G)

    @cached_property
    def _input_metric(self) -> tuple[Array, Array]:
        """G and squares with squares_i v'G v the square of the inputs' support, or about it."""
        n, d = len(self.faces), self.n_inputs
        squares = np.broadcast_to(np.square(self.inputs.stretch(np.eye(d))), n)
        total = float(squares.sum())
        if total == 0:
            return np.zeros((d, d)), np.zeros(n)
        return self.inputs.square_curvature(d, np.ones(n)) / total, squares

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        raise NotImplementedError(f"{type(self).__name__} is known by its support alone.")

    def demand(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return np.full(len(self.faces), np.inf)

    def remainder(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return self.left_along(target, budgets, scale, direction)

    def scaled(self, factor: float) -> BoundSet:
        return Images(self, AffineMap.diagonal(np.full(self.n_features, factor)))

    def eased(self, delta: float) -> BoundSet:
        return EasedSet(self._of(slice(None), self.inputs, self.faces, delta), 0.5 * delta)

    def facing(self, signs: Array) -> Self:
        return self._of(slice(None), self.inputs, -signs * self.faces, self.ease)

    def take(self, rows: Any) -> Self:
        return self._of(rows, self.inputs.take(rows), self.faces[rows], self.ease)
