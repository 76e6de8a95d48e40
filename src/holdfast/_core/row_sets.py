"""Uncertainty sets bound to rows, described by their support functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import norm
from holdfast._core.dual_norm import least_share
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, DeletionForm, IntervalForm, RowHessians

MEMBERSHIP_SLACK = 1e-12
"""A point may lie outside a set by this share; it is then moved towards 0 by the same share."""
BLOCK_ROWS = 1024
"""The number of rows whose maximizers are in memory at a time."""
DIFFERENCE = 1e-5
"""The step of central differences, relative to the largest weight; their error is about its square."""
WALK, TRIES = 30, 60
"""The steps of a random walk after which its end is nearly independent of its start; the most points tried per step."""


class RowSets(ABC):
    r"""An uncertainty set :math:`S_i` for each row i, described by its support function.

    :math:`t_i(w) = \max_{\delta \in S_i} w^\top \delta` is the largest rise of the score of row i. A set of a new shape
    states `support`, `maximizer`, `take` and `scaled`, and `against_labels` if it is not symmetric. Everything else is
    derived from these, and may be overridden by faster formulas. Sets with kinks also state `smoothed` and
    `snapped_to_kinks`; if they are common to all rows, they can derive from
    :class:`holdfast._core.common_sets.ProjectableSet`, which has both.

    Attributes
    ----------
    is_common : bool
        Whether all rows have the same set. `support` is then a 0-d array, and methods that take or return one number
        for each row may take or return a single one.
    is_isotropic : bool
        Whether the support depends only on the l2 norm of w.
    is_symmetric : bool
        Whether t(-w) = t(w).
    is_sublinear : bool
        Whether t is the support of a set; a smoothed support is not, as t(0) > 0.
    is_smooth : bool
        Whether t has a gradient wherever t > 0.
    is_full : bool
        Whether t is known to be 0 at w = 0 only.
    has_origin : bool
        Whether the set contains 0, and with each point all its multiples by factors from 0 to 1.
    """

    is_common = False
    is_isotropic = False
    is_symmetric = True
    is_sublinear = True
    is_smooth = True
    is_full = False
    has_origin = True

    @abstractmethod
    def support(self, w: Array) -> Array:
        """Return t_i(w), shape (n_samples,), or () where `is_common`."""

    @abstractmethod
    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        """Return a point of each row's set that attains its support, (n_rows, n_features), or one row if common.

        It is the gradient of the support where it exists, and 0 where the support is 0, which is a subgradient there.
        """

    @abstractmethod
    def take(self, rows: NDArray[np.intp] | slice) -> RowSets:
        """Return the sets of some rows."""

    @abstractmethod
    def scaled(self, factor: float) -> RowSets:
        """Return the sets multiplied by a factor."""

    def against_labels(self, signs: Array) -> RowSets:
        """Return the sets -y_i S_i, with y = `signs` in {-1, +1}.

        Their support at w is the largest change of row i's score towards its wrong side. Symmetric sets do not change.
        """
        if not self.is_symmetric:
            raise NotImplementedError(f"{type(self).__name__} is not symmetric; it has to state `against_labels`.")
        return self

    def _blocks(self, w: Array, *weights: Array) -> Iterator[tuple[Any, ...]]:
        """Yield (maximizers, weights) for blocks of rows, so that few points are in memory at a time."""
        n_sets = self.support(w).size
        each = [np.full(1, np.sum(r)) if self.is_common else np.broadcast_to(r, n_sets) for r in weights]
        for start in range(0, n_sets, BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            yield self.maximizer(w, rows), *(r[rows] for r in each)

    def adjoint(self, w: Array, r: Array) -> Array:
        """Return sum_i r_i * maximizer_i(w), shape (n_features,)."""
        return np.asarray(sum(r @ points for points, r in self._blocks(w, r)))

    def directional(self, w: Array, v: Array) -> Array:
        """Return maximizer_i(w)'v, the slope of t_i along v, shape (n_samples,), or () where `is_common`."""
        slopes = np.concatenate([points @ v for (points,) in self._blocks(w)])
        return slopes.reshape(np.shape(self.support(w)))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        """Return sum_i r_i x_i maximizer_i(w)', shape (n_features, n_features)."""
        if self.is_common:
            return np.outer(rows.transpose_dot(r), self.maximizer(w)[0])
        blocks = rows.dense_blocks()
        return np.asarray(sum(block.T @ (r[part, None] * self.maximizer(w, part)) for part, block in blocks))

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        """Return sum_i r_i maximizer_i(w) p_i', p_i the maximizers of another set, shape (n_features, n_features)."""
        if self.is_common:
            return np.outer(self.maximizer(w)[0], other.adjoint(w, r))
        starts = range(0, len(r), BLOCK_ROWS)
        parts = [slice(start, start + BLOCK_ROWS) for start in starts]
        return np.asarray(sum(self.maximizer(w, part).T @ (r[part, None] * other.maximizer(w, part)) for part in parts))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        r"""Return :math:`\sum_i` first_i * Hessian of t_i + second_i * (gradient of t_i)(gradient of t_i)'.

        The shape is (n_features, n_features). By default Hessians are differences of `adjoint`, by 2 n_features
        evaluations.
        """
        squares = np.asarray(sum(points.T @ (r[:, None] * points) for points, r in self._blocks(w, second)))
        size = DIFFERENCE * float(np.max(np.abs(w), initial=0.0))
        if size == 0:
            return squares
        moves = size * np.eye(len(w))
        slopes = np.stack([self.adjoint(w + move, first) - self.adjoint(w - move, first) for move in moves])
        # central differences divide by 2 size; the mean with the transpose is symmetric, as the Hessian is
        return squares + (slopes + slopes.T) / (4 * size)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        r"""Return :math:`\sum_i` first_i * (Hessian of t_i) v, shape (n_features,); by default from `curvature`."""
        return self.curvature(w, first, np.zeros_like(first)) @ v

    def square_curvature(self, n_features: int, first: Array) -> Array:
        r"""Return :math:`\sum_i` first_i * Hessian of :math:`t_i^2/2` at 0, a square matrix; exact for ellipsoids."""
        units = np.eye(n_features)
        # t^2/2 is homogeneous of degree 2. If its Hessian is constant, column j is the gradient at e_j, t(e_j) grad
        # t(e_j)
        return np.column_stack([self.adjoint(unit, first * self.support(unit)) for unit in units])

    def supports_at(self, W: Array) -> Array:
        """Return t_i(w_i), where w_i is row i of W: each row has its own direction."""
        return np.array([float(np.ravel(self.take(slice(i, i + 1)).support(w))[0]) for i, w in enumerate(W)])

    def maximizers_at(self, W: Array) -> Array:
        """Return points that attain `supports_at`, of the shape of W."""
        return np.array([self.take(slice(i, i + 1)).maximizer(w)[0] for i, w in enumerate(W)]).reshape(W.shape)

    def hessians_at(self, W: Array) -> RowHessians:
        """Return the Hessians of `supports_at`; 0 for sets with kinks, which are smoothed before they need Hessians."""
        if not self.is_smooth:
            return RowHessians()
        one, none = np.ones(1), np.zeros(1)
        return RowHessians.of([self.take(slice(i, i + 1)).curvature(w, one, none) for i, w in enumerate(W)])

    def bends_at(self, W: Array, firsts: Array) -> Array:
        """Return sums of the Hessians of a common set's support at the rows of W, each row of `firsts` holding the weights of
        one sum: shape (len(firsts), n_features, n_features).
        """
        out, one, none = np.zeros((len(firsts), W.shape[1], W.shape[1])), np.ones(()), np.zeros(())
        for w, weights in zip(W, firsts.T, strict=True):
            bend = self.curvature(w, one, none)
            for k in np.flatnonzero(weights):
                out[k] += weights[k] * bend
        return out

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        """Return, for each row i, whether its set contains ``points[i]``, up to a relative `slack`."""
        one = np.ones(1)
        sets = (self if self.is_common else self.take(slice(i, i + 1)) for i in range(len(points)))
        needed = [each.required_share(point, one, one) for each, point in zip(sets, points, strict=True)]
        return np.array([float(np.ravel(share)[0]) <= 1 + slack for share in needed])

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        r"""Return multiples :math:`\rho_i` of the sets with `target` in :math:`\sum_i \rho_i S_i`.

        Any split of the target over the rows is valid; the aim is one that needs no more than `budgets`, where the
        supports are about `scale`. Common sets pool the rows and return one number. The result is inf if there is no
        split. A remainder counts as rounding relative to `sizes`, the sums of absolute terms that the entries of the
        target came from. By default the share of the budget is the same for all rows.
        """
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        share = least_share(self, target, budgets, sizes)
        if self.is_common:
            return np.array(share * np.sum(budgets))
        return share * budgets if np.isfinite(share) else np.full(len(budgets), np.inf)

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        """Return whether `required_share` finds the least share that reaches a target.

        With `shrunk`, also whether a target whose entries are moved towards 0 never needs a larger share.
        """
        return False

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        r"""Return `target` minus a close point of :math:`\sum_i` budgets_i :math:`S_i`; by default `residual_along`."""
        return self.residual_along(target, budgets, scale, direction)

    def residual_along(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        r"""Return `target` minus :math:`\sum_i` budgets_i * t_i(direction) / scale_i * maximizer_i(direction).

        The factor t_i(direction) / scale_i is cut at 1, and is 1 for sets without the origin.
        """
        if not self.has_origin:
            return target - self.adjoint(direction, budgets)
        t, scale = self.support(direction), np.asarray(scale)
        used = np.divide(t, scale, out=np.zeros(np.broadcast_shapes(t.shape, scale.shape)), where=scale > 0)
        return target - self.adjoint(direction, budgets * np.minimum(used, 1.0))

    def lines_below(
        self, target: Array, budgets: Array, absolute: float = 0.0, limit: float = np.inf
    ) -> tuple[Array, float]:
        r"""Return (rest, offset): (target - rest)'w - offset is a lower bound on the sum of the supports, for all w.

        Only if not `is_sublinear`; see :class:`holdfast.uncertainty.offset_boxes.OffsetBoxes`.
        """
        raise NotImplementedError(f"{type(self).__name__} has supports that start at 0, so no line needs an offset.")

    def recession(self, w: Array) -> Array:
        """Return the limit of t_i(k w) / k for large k, which is the support itself if it is sublinear."""
        return self.support(w)

    def absolute_reach(self, n_features: int) -> Array:
        r"""Return a bound on the largest :math:`|\delta|_1` of each row's set, shape (n_samples,), or () where `is_common`.

        By default it is the sum of the largest errors of each feature, which is exact for boxes, and if `is_isotropic`.
        """
        if self.is_isotropic:
            return self.support(np.ones(n_features))
        return np.asarray(sum(np.maximum(self.support(e), self.support(-e)) for e in np.eye(n_features)))

    def stretch(self, A: Array) -> Array:
        r"""Return a bound on the largest :math:`|A \delta|_2` of each row's set, shape (n_samples,), or () where `is_common`.

        By default each entry of A d is bounded separately: :math:`\sqrt{\sum_k \max_\pm t(\pm a_k)^2}`.
        """
        return np.sqrt(sum(np.square(np.maximum(self.support(a), self.support(-a))) for a in A))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        """Return which features are exact in the sets of all rows, shape (n_features,)."""
        return np.array([not np.any(self.support(e)) and not np.any(self.support(-e)) for e in np.eye(n_features)])

    def exact_directions(self, n_features: int) -> Array:
        """Return directions without extent in all rows' sets, (n_features, k), besides those of exact features."""
        return np.zeros((n_features, 0))

    def resized(self, factor: float) -> RowSets:
        """Return the sets with the radius multiplied by a factor; parts independent of the radius do not change."""
        return self.scaled(factor)

    def smoothed(self, delta: float) -> RowSets:
        r"""Return sets with a smooth support :math:`T`, :math:`t \le T \le t + \delta`, :math:`T(0) = \delta > 0`.

        The gradients of T are points of the original set, so the slopes at an optimum of the smoothed problem are dual
        feasible in the original one. This is used to prove a collapse, and to train with sets that have kinks.
        """
        if not self.is_smooth:
            raise NotImplementedError(f"{type(self).__name__} has kinks; it has to state `smoothed`.")
        from holdfast._core.smoothed_set import SmoothedSet  # which derives from this class

        return SmoothedSet(self, delta)

    def root_slopes(self, w: Array) -> Array:
        """Return the slopes of the roots that the support is a sum of, as `RoundedModel` says; none but of smoothed boxes."""
        return np.zeros(0)

    def root_slopes_after(self, w: Array, slopes: Array, move: Array) -> Array:
        """Return the slopes to keep after weights w have moved."""
        return slopes

    def bent_by(self, slopes: Array) -> RowSets:
        """Return sets that differ in their curvature alone: that of roots with these slopes."""
        return self

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w with its distances from kinks multiplied by `factor`, if the smoothing by `delta` explains them.

        At the new w, the support smoothed by factor * delta has the same gradient as the support smoothed by `delta` at
        w. With factor 0, w is moved exactly onto the kinks. Smooth sets have no kinks, so w does not change.
        """
        return w

    def maximizer_on_faces(self, w: Array) -> Array:
        """Return `maximizer`; for smoothed sets, moved to a face of the original set if only smoothing prevents it."""
        return self.maximizer(w)

    def image(self, map: Any) -> RowSets | None:
        """Return the sets A S_i, with A the matrix of an affine map, if they have a special form; None otherwise."""
        return None

    def summands(self) -> list[RowSets]:
        """Return the parts of a sum, or a list with the set itself."""
        return [self]

    def centred(self, X: Any) -> tuple[Any, RowSets]:
        """Return moved rows and symmetric sets around them that contain the same points as these sets around X."""
        if not self.is_symmetric:
            raise NotImplementedError(f"{type(self).__name__} is not symmetric; it has to state `centred`.")
        return X, self

    def generators(self, n_features: int) -> Array | None:
        """Return vectors, shape (k, n_features), such that supports depend only on their products with w, and on |w|.

        None if none are known; no vectors, shape (0, n_features), if `is_isotropic`.
        """
        return np.zeros((0, n_features)) if self.is_isotropic else None

    def with_generators(self, coordinates: Array) -> RowSets:
        """Return the sets whose `generators` have these coordinates, shape (k, n_coordinates), in some orthonormal basis."""
        return self

    def interval_form(self) -> IntervalForm | None:
        """Return the sets as boxes; None if they are not boxes."""
        return None

    def deletion_form(self) -> DeletionForm | None:
        """Return the sets as deletions of features; None if they are not, or do not set features to 0."""
        return None

    def deviations(self) -> Any | None:
        """Return s with t_i(w)^2 = sum_j (s_ij w_j)^2, of shape (), (n_features,) or (n_samples, n_features).

        None if the support does not have this form.
        """
        return None

    def support_program(self, n_features: int) -> SupportProgram | None:
        """Return the supports as a conic program, or None if none is known."""
        form = self.interval_form()
        return None if form is None else form.support_program(n_features)

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any] | None:
        """Return metadata that state these sets: X_lower and X_upper around 0, or X_std or X_factor for ellipsoids.

        None if they are neither boxes nor ellipsoids.
        """
        form = self.interval_form()
        return None if form is None else form.as_metadata((n_samples, n_features))

    def sum_of_points(self, points: Any, budgets: Array, size: float = 1.0) -> Array:
        r"""Return :math:`\sum_i` budgets_i q_i over the `points` q_i in `size` times their sets, shape (n_features,).

        Other points are replaced by 0, or by points of the sets near them.

        `points` have the shape (n_samples, n_features), or (1, n_features) if the set is common. For sums they are a
        list with one entry for each part; for images they are points of the original sets.
        """
        # points come from a solver, so they are tested: a proof is valid only if they are in the sets
        inside = self.contains(points / size, slack=MEMBERSHIP_SLACK)
        kept = np.where(inside[:, None], points, 0.0) / (1 + MEMBERSHIP_SLACK)
        return np.asarray(kept.T @ (np.sum(budgets, keepdims=True) if self.is_common else budgets))

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        """Return random points of each row's set, for tests, shape (n_draws, n_samples or 1, n_features).

        Many of them lie on the boundary, where faults show; points of `draw` are uniform.
        """
        points = np.array([self.maximizer(w) for w in rng.normal(size=(n_draws, n_features))])
        # half of the points are moved towards 0, which a set without the origin does not allow
        sizes = np.minimum(rng.uniform(0, 2, size=(*points.shape[:2], 1)), 1.0)
        return points * sizes if self.has_origin else points

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        """Return a uniform point of each row's set, as an array or a CSR array of shape (n_samples, n_features).

        For sets that are not boxes, the default is the end of a random walk, whose distribution tends to the uniform
        one; it takes some hundred calls of `contains`.
        """
        form = self.interval_form()
        return self._walked(rng, shape) if form is None else form.draw(rng, shape)

    def _walked(self, rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Return the end of a hit-and-run walk: steps go to uniform points of random chords through the last point."""
        corners = self.sample(rng, shape[1] + 1, shape[1])
        at = np.array(np.broadcast_to(corners.mean(axis=0), shape))
        for _ in range(WALK):
            w = rng.normal(size=shape[1])
            # no chord in this direction is longer than this one, which spans the width along w, so steps are at most
            # one chord
            chord = self.maximizer(w) - self.maximizer(-w)
            back, ahead, share = -np.ones(shape[0]), np.ones(shape[0]), np.zeros(shape[0])
            is_open = np.ones(shape[0], dtype=bool)
            for _ in range(TRIES):
                tried = rng.uniform(back, ahead)
                is_in = is_open & self.contains(at + tried[:, None] * chord)
                share, is_open = np.where(is_in, tried, share), is_open & ~is_in
                if not np.any(is_open):
                    break
                # the set is convex, so everything beyond a point outside is outside too
                back, ahead = np.where(tried < 0, tried, back), np.where(tried < 0, ahead, tried)
            at = at + share[:, None] * chord
        return at

    def gaussian(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        """Return, for each row, a draw from the Gaussian whose one-standard-deviation ellipsoid is the set."""
        raise NotImplementedError(f"{type(self).__name__} is no ellipsoid, so it is not the spread of a Gaussian.")
