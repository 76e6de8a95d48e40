"""Images of sets under linear maps: the errors of rows that are scaled, mixed or projected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from holdfast._core.allowed import short
from holdfast._core.arithmetic import FLAT, MISSED, dense, norm, orthogonal_to, ratio
from holdfast._core.dual_norm import approaches
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.tolerances import ROUNDING
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.ball import Ball
from holdfast.uncertainty.box import Box
from holdfast.uncertainty.checks import numbers
from holdfast.uncertainty.ellipsoid import Ellipsoid
from holdfast.uncertainty.gaussian import GaussianNoise
from holdfast.uncertainty.interval_box import IntervalBox

SPLIT = 1e-6
"""Relative accuracy of the test whether a point is in an image."""


def image_of(bound: RowSets, map: AffineMap) -> RowSets:
    """Return the images of sets, as sets of a special form if the image has one, otherwise as `Images`."""
    found = bound.image(map)
    return Images(bound, map) if found is None else found


class Images(RowSets):
    r"""The sets :math:`A S_i` with supports :math:`t_i(w) = t_{S_i}(A^\top w)`; for boxes, these are zonotopes.

    Parameters
    ----------
    base : RowSets
        S.
    map : AffineMap
        A.
    """

    def __init__(self, base: RowSets, map: AffineMap):
        self.base, self.map = base, map
        self.is_common, self.is_symmetric, self.is_sublinear = base.is_common, base.is_symmetric, base.is_sublinear
        self.is_smooth = base.is_smooth

    @cached_property
    def is_full(self) -> bool:  # type: ignore[override]
        """Whether the support is 0 at w = 0 only; computed on request, as it takes a decomposition of the map."""
        # t(w) = t_S(A'w) is 0 if A'w = 0, which implies w = 0 only if the rows of A are independent
        return self.base.is_full and self.map.rank == self.map.shape[0]

    @cached_property
    def is_injective(self) -> bool:
        """Whether no two points have the same image, so that each target is the image of at most one point."""
        return self.map.rank == self.map.shape[1]

    def support(self, w: Array) -> Array:
        return self.base.support(self.map.back(w))

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return self.map.moved(self.base.maximizer(self.map.back(w), rows))

    def adjoint(self, w: Array, r: Array) -> Array:
        return self.map.moved(self.base.adjoint(self.map.back(w), r))

    def supports_at(self, W: Array) -> Array:
        return self.base.supports_at(W @ dense(self.map.matrix))

    def maximizers_at(self, W: Array) -> Array:
        return self.map.moved(self.base.maximizers_at(W @ dense(self.map.matrix)))

    def hessians_at(self, W: Array) -> RowHessians:
        found = self.base.hessians_at(W @ dense(self.map.matrix))
        metrics = [(weights, self._both(G)) for weights, G in found.metrics]
        return RowHessians(
            metrics, *([(c, self.map.moved(q)) for c, q in kind] for kind in (found.vectors, found.axes))
        )

    def stretch(self, A: Array) -> Array:
        return self.base.stretch(A @ dense(self.map.matrix))

    def directional(self, w: Array, v: Array) -> Array:
        return self.base.directional(self.map.back(w), self.map.back(v))

    def _both(self, matrix: Array) -> Array:
        """Return A M A'."""
        return self.map.moved(self.map.moved(matrix).T).T

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        found = self._both(self.base.curvature(self.map.back(w), first, second))
        # products from the left and the right round differently, and a factorisation reads one triangle only
        return 0.5 * (found + found.T)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return self.map.moved(self.base.curvature_product(self.map.back(w), first, self.map.back(v)))

    def square_curvature(self, n_features: int, first: Array) -> Array:
        return self._both(self.base.square_curvature(self.map.shape[1], first))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return self.map.moved(self.base.cross(self.map.back(w), rows, r))

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        at = self.map.back(w)
        move = self.base.snapped_to_kinks(at, delta, factor) - at
        # solve A'(w + dw) = A'w + move for dw, at entries with a move. If the rows of A' are dependent, the other
        # entries are left free, as otherwise nothing could move
        near = (move != 0) | self.is_injective
        return w + linalg.pinv(dense(self.map.matrix)[:, near].T, rtol=FLAT) @ move[near] if np.any(move) else w

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        rows = [self if self.is_common else self.take(slice(i, i + 1)) for i in range(len(points))]
        return np.array([row._reaches(point, 1 + slack) for row, point in zip(rows, points, strict=True)])

    def _reaches(self, target: Array, size: float) -> bool:
        """Return whether `size` times the set of a single row contains the target; stops once yes or no is proved."""
        limit = size * (1 + SPLIT)
        return any(level <= limit for _, level in self._shares(target, np.ones(1), enough=limit))

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        found = list(self._shares(target, budgets, sizes))
        return min(found, key=lambda pair: pair[1])[0] if found else np.full(np.shape(self.support(target)), np.inf)

    def _shares(
        self, target: Array, budgets: Array, sizes: Array | None = None, enough: float = 0.0
    ) -> Iterator[tuple[Array, float]]:
        """Yield shares of the original sets whose images reach the target, each with its largest ratio to the budgets.

        Yields nothing if the target is not an image. Stops once hardly less is possible, or once more than `enough` is
        proved to be needed.
        """
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        back = linalg.pinv(dense(self.map.matrix), rtol=FLAT)
        nearest = back @ target
        if np.any(np.abs(target - self.map.moved(nearest)) > MISSED * (sizes + norm(sizes))):
            return
        # the shortest point is cheap and often good enough; if the map is injective, it is the only point
        first = (nearest, target, 1.0 if self.is_injective else 0.0)
        others = (
            (found.multiple * found.sets.base.adjoint(self.map.back(found.w), budgets), found.w, found.least)
            for found in approaches(self, target, budgets)
        )
        for point, w, least in chain([first], others):
            # adding the shortest point whose image is the remainder makes the image exact
            there = point + back @ (target - self.map.moved(point))
            needed = self.base.required_share(there, budgets, self.base.support(self.map.back(w)))
            level = float(np.max(ratio(needed, np.sum(budgets) if self.is_common else budgets)))
            yield needed, level
            if self.is_injective or level <= least * (1 + ROUNDING) or least > enough > 0:
                return

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return not shrunk and self.base.shares_are_least() and self.is_injective

    def against_labels(self, signs: Array) -> RowSets:
        return Images(self.base.against_labels(signs), self.map)

    def centred(self, X: Any) -> tuple[Any, RowSets]:
        if self.is_symmetric:
            return X, self
        moved, around = self.base.centred(np.zeros((X.shape[0], self.map.shape[1])))
        return dense(X) + self.map.moved(moved), Images(around, self.map)

    def exact_directions(self, n_features: int) -> Array:
        n_in = self.map.shape[1]
        exact = np.hstack([np.eye(n_in)[:, self.base.exact_features(n_in)], self.base.exact_directions(n_in)])
        # an image is exact along w if A'w is an exact direction of the original set, that is, if A'w without its
        # projection onto these directions is 0
        basis = linalg.orth(exact)
        A = dense(self.map.matrix)
        return orthogonal_to(A - (A @ basis) @ basis.T)

    def support_program(self, n_features: int) -> SupportProgram | None:
        n_in = self.map.shape[1]
        one = self.base.support_program(n_in)
        if one is None:
            return None

        def through(matrix: Any) -> sparse.csr_array:
            """Return the matrix, stated for (A'w, extra variables), as one for (w, extra variables)."""
            return sparse.csr_array(
                sparse.hstack([matrix[:, :n_in] @ sparse.csr_array(self.map.matrix.T), matrix[:, n_in:]])
            )

        return SupportProgram(through(one.T), [(kind, sizes, through(G)) for kind, sizes, G in one.cones], one.points)

    def sum_of_points(self, points: Any, budgets: Array, size: float = 1.0) -> Array:
        # `points` lie in the original sets, see `support_program`
        return self.map.moved(self.base.sum_of_points(points, budgets, size))

    def image(self, map: AffineMap) -> RowSets:
        return image_of(self.base, map.after(self.map))

    def scaled(self, factor: float) -> RowSets:
        return Images(self.base.scaled(factor), self.map)

    def resized(self, factor: float) -> RowSets:
        return Images(self.base.resized(factor), self.map)

    def smoothed(self, delta: float) -> RowSets:
        return SmoothedImages(self, delta)

    def take(self, rows: Any) -> Images:
        return Images(self.base.take(rows), self.map)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return self.map.moved(self.base.sample(rng, n_draws, self.map.shape[1]))


class SmoothedImages(Images):
    """Images of smoothed sets."""

    def __init__(self, original: Images, delta: float):
        super().__init__(original.base.smoothed(delta), original.map)
        self.original, self.delta = original, delta

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return self.original.contains(points, slack=slack)

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return self.original.required_share(target, budgets, scale, sizes)

    def against_labels(self, signs: Array) -> RowSets:
        return self.original.against_labels(signs).smoothed(self.delta)

    def scaled(self, factor: float) -> RowSets:
        return self.original.scaled(factor).smoothed(factor * self.delta)

    def take(self, rows: Any) -> Images:
        return self._of(self.base.take(rows), self.original.take(rows))

    def _of(self, base: RowSets, original: Any) -> SmoothedImages:
        made = SmoothedImages(original, self.delta)
        # the smoothing depends on all rows, so a selection of rows keeps it
        made.base = base
        return made


class LinearImage(UncertaintySet):
    r"""The errors A d of rows A x + c if the original rows x have errors d, as after a scaler or a projection.

    It changes a score by at most :math:`h(A^\top w)`, where h is the support of the original set. This is exact for
    every set and every A. Draws are images of draws from the original set, so they are uniform in the original set, not
    in the image.

    Parameters
    ----------
    original : UncertaintySet
        In the units of x. The metadata are those of the original set, by row and in the units of x; X_lower and X_upper
        are distances from x.
    matrix : {array-like, sparse array} of shape (n_out, n_in)
        A.

    Examples
    --------
    >>> total = LinearImage(Box(0.5), [[1.0, 1.0]])
    >>> float(total.at(np.zeros((4, 1)), {}).support(np.array([2.0])))
    2.0
    """

    def __init__(self, original: UncertaintySet, matrix: Any):
        self.original = original
        self.matrix = matrix

    def stated_by_feature(self) -> dict[str, Any]:
        """Return nothing, as the numbers of the original set refer to the features of the original rows."""
        return {}

    @property
    def metadata(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the metadata that the original set takes."""
        return self.original.metadata

    @property
    def open_metadata(self) -> tuple[str, ...]:
        return self.original.open_metadata

    @property
    def row_factor(self) -> float:
        return self.original.row_factor

    @property
    def is_expectation(self) -> bool:  # type: ignore[override]
        """Whether `is_expectation` holds for the original set."""
        return self.original.is_expectation

    @property
    def is_of_scores(self) -> bool:  # type: ignore[override]
        """Whether `is_of_scores` holds for the original set."""
        return self.original.is_of_scores

    @property
    def has_size(self) -> bool:  # type: ignore[override]
        """Whether the original set states its size."""
        return self.original.has_size

    @property
    def is_size(self) -> bool:  # type: ignore[override]
        """Whether `is_size` holds for the original set."""
        return self.original.is_size

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        map, originals = self._map_to(X)
        return image_of(self.original.at(originals, metadata), map)

    def _map_to(self, X: Any) -> tuple[AffineMap, Array]:
        """Return the map, and rows of zeros that stand for the original rows of X."""
        if not isinstance(self.original, UncertaintySet):
            raise ValueError(f"LinearImage(original={short(self.original):.80}): give a set, such as Box(0.1).")
        matrix = numbers(self.matrix, "LinearImage(matrix=...)", "matrix")
        if matrix.ndim != 2:
            raise ValueError(f"LinearImage(matrix=...): has shape {matrix.shape}; give (n_out, n_in).")
        map = AffineMap(matrix)
        if X.shape[1] != map.shape[0]:
            raise ValueError(f"LinearImage(matrix=...): has shape {map.shape}; X has {X.shape[1]} features.")
        return map, np.broadcast_to(0.0, (X.shape[0], map.shape[1]))

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        map, originals = self._map_to(X)
        return (map.moved(dense(errors)) for errors in self.original.draws(originals, metadata, rng, n_draws))

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return self.original.image(map.after(AffineMap(self.matrix)), metadata)

    def as_stated(self, metadata: Mapping[str, Any]) -> LinearImage:
        return LinearImage(self.original.as_stated(metadata), self.matrix)

    def as_shape(self) -> LinearImage:
        return LinearImage(self.original.as_shape(), self.matrix)

    def times(self, factor: float) -> LinearImage:
        return LinearImage(self.original.times(factor), self.matrix)

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        square = np.array([[1.0, 0.5, 0.3], [-1.0, -2.0, 0.0], [0.0, 0.0, 1.0]])
        wide = np.column_stack([square, [0.2, -1.5, 0.3]])
        stds = rng.uniform(0.1, 1.0, size=(5, 4))
        return [
            (cls(Box(0.4), square), {}),
            (cls(Box(0.4), [[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]), {}),
            (cls(IntervalBox(), wide), {"X_lower": -stds, "X_upper": 0.5 * stds}),
            (cls(Ball(0.4, 1), np.diag([2.0, 2.0, -1.0])), {}),
            (cls(Ball(0.4, 3.0), wide), {}),
            (cls(Ball(0.5), np.diag([2.0, 0.5, -1.0])), {"X_radius": np.array([0.3, 1.0, 0.5, 0.8, 0.7])}),
            (cls(Ellipsoid(0.4), square), {"X_std": stds[:, :3]}),
            (cls(GaussianNoise(0.4), wide), {}),
        ]


def _image_by_wrapping(
    uncertainty: UncertaintySet, map: AffineMap, metadata: Mapping[str, Any]
) -> tuple[UncertaintySet, dict[str, Any]]:
    return LinearImage(uncertainty, map.matrix), dict(metadata)


UncertaintySet.image_by_wrapping = _image_by_wrapping
