"""Ellipsoids: uncertainty sets, or the one-standard-deviation ellipsoids of Gaussian noise."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import (
    FLAT,
    MISSED,
    dense,
    norm,
    orthogonal_to,
    ratio,
    rescaled,
    spectral_norm,
)
from holdfast._core.common_sets import CommonSet
from holdfast._core.memory import remembered
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, IntervalForm, RowHessians
from holdfast._core.row_sets import RowSets


class EllipsoidSets(RowSets):
    r"""Ellipsoids :math:`\{F_i v : |v|_2 \le 1\}`, one for all rows or one for each."""

    @abstractmethod
    def _normal(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, Array]:
        """Return F_i v_i with v_i standard normal, and the squared lengths of v_i."""

    def gaussian(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        return self._normal(rng, shape)[0]

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        points, squares = self._normal(rng, shape)
        # k coordinates of a point on the sphere in k + 2 dimensions are uniform in the ball
        return rescaled(points, 1.0 / np.sqrt(squares + rng.chisquare(2, size=shape[0])))


class CommonEllipsoid(EllipsoidSets, CommonSet):
    r"""One ellipsoid :math:`\{F v : |v|_2 \le 1\}` for all rows; F a number, a diagonal or a matrix."""

    def __init__(self, factor: Array):
        self.factor = np.asarray(factor, dtype=np.float64)
        self.is_isotropic = self.factor.ndim == 0

    @cached_property
    def is_full(self) -> bool:  # type: ignore[override]
        """Whether the support is 0 at w = 0 only; computed on request, as it takes a decomposition of a matrix."""
        return bool(np.all(self.factor > 0)) if self.factor.ndim < 2 else _has_full_rank(self.factor)

    def root(self, w: Array) -> Array:
        """Return F'w, whose norm is the support."""
        return self.factor.T @ w if self.factor.ndim == 2 else self.factor * w

    def spread(self, v: Array) -> Array:
        """Return F v."""
        return self.factor @ v if self.factor.ndim == 2 else self.factor * v

    def matrix(self, n_features: int) -> Array:
        """Return F as a matrix."""
        return self.factor if self.factor.ndim == 2 else np.diag(np.broadcast_to(self.factor, n_features))

    def support(self, w: Array) -> Array:
        return norm(self.root(w))

    def interval_form(self) -> IntervalForm | None:
        # the set {0} is a box too
        return None if np.any(self.factor) else IntervalForm(np.zeros(()), None, None)

    @remembered
    def point(self, w: Array) -> Array:
        root = self.root(w)
        size = norm(root)
        return self.spread(root / size if size > 0 else np.zeros(len(root)))

    def _roots(self, W: Array) -> Array:
        return W @ self.factor if self.factor.ndim == 2 else self.factor * W

    def supports_at(self, W: Array) -> Array:
        return norm(self._roots(W), axis=1)

    def maximizers_at(self, W: Array) -> Array:
        roots = self._roots(W)
        units = ratio(roots, norm(roots, axis=1)[:, None])
        return units @ self.factor.T if self.factor.ndim == 2 else self.factor * units

    def hessians_at(self, W: Array) -> RowHessians:
        bend, F = ratio(1.0, self.supports_at(W)), self.matrix(W.shape[1])
        return RowHessians([(bend, F @ F.T)], [(-bend, self.maximizers_at(W))])

    def bends_at(self, W: Array, firsts: Array) -> Array:
        firsts, points = firsts * ratio(1.0, self.supports_at(W)), self.maximizers_at(W)
        out = firsts.sum(axis=1)[:, None, None] * self.square_curvature(W.shape[1], np.ones(()))
        for one, weights in zip(out, firsts, strict=True):
            one -= (points.T * weights) @ points
        return out

    def stretch(self, A: Array) -> Array:
        return np.asarray(spectral_norm(A @ self.factor if self.factor.ndim == 2 else A * self.factor))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        point, t = self.point(w), self.support(w)
        bend = float(first.sum()) / float(t) if t > 0 else 0.0
        out = (float(second.sum()) - bend) * (point[:, None] * point)
        if self.factor.ndim == 2:
            out += bend * self.factor @ self.factor.T
        else:
            out.reshape(-1)[:: len(w) + 1] += bend * np.square(self.factor)
        return out

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        point, bend = self.point(w), float(ratio(np.sum(first), self.support(w)))
        return bend * (self.spread(self.root(v)) - point * (point @ v))

    def square_curvature(self, n_features: int, first: Array) -> Array:
        if self.factor.ndim < 2:
            return np.diag(np.broadcast_to(float(np.sum(first)) * np.square(self.factor), n_features))
        return float(np.sum(first)) * self.factor @ self.factor.T

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        if self.factor.ndim == 2:
            # the scales of the features may differ widely: dividing by `sizes` lets one cutoff and one rounding
            # tolerance serve all features
            unit = np.where(sizes > 0, sizes, 1.0)
            basis, extents, back = np.linalg.svd(self.factor / unit[:, None], full_matrices=False)
            kept = extents > FLAT * np.max(extents, initial=0.0)
            along = coordinates_in(basis[:, kept], target / unit, sizes / unit)
            return np.inf if along is None else float(norm(back[kept].T @ (along / extents[kept])))
        # a diagonal factor is inverted feature by feature, without a decomposition or a cutoff
        v = ratio(target, np.broadcast_to(self.factor, target.shape))
        return np.inf if np.any(np.abs(target - self.spread(v)) > MISSED * sizes) else float(norm(v))

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return self.factor.ndim < 2 or not shrunk

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        if self.factor.ndim == 0:
            size = norm(target)
            return target * float(ratio(max(size - self.factor * np.sum(budgets), 0.0), size))
        return self.residual_along(target, budgets, scale, direction)

    def deviations(self) -> Array | None:
        return self.factor if self.factor.ndim < 2 else None

    def generators(self, n_features: int) -> Array | None:
        return self.factor.T if self.factor.ndim == 2 else super().generators(n_features)

    def with_generators(self, coordinates: Array) -> CommonEllipsoid:
        return CommonEllipsoid(coordinates.T) if self.factor.ndim == 2 else self

    def image(self, map: Any) -> CommonEllipsoid:
        # an isometry maps a ball to a ball, whose support needs no matrix
        if self.factor.ndim == 0 and map.isometry is not None:
            return CommonEllipsoid(map.isometry * self.factor)
        if self.factor.ndim < 2 and map.is_monomial:
            factor = np.broadcast_to(self.factor, map.shape[1])
            return CommonEllipsoid(factor[map.sources] * np.abs(map.scales))
        return CommonEllipsoid(map.matrix @ self.matrix(map.shape[1]))

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any]:
        if self.factor.ndim < 2:
            return {"X_std": np.broadcast_to(self.factor, (n_samples, n_features))}
        return {"X_factor": np.broadcast_to(self.factor, (n_samples, *self.factor.shape))}

    def support_program(self, n_features: int) -> SupportProgram:
        lines = self.matrix(n_features).T
        return norm_program(sparse.csr_array(lines), np.array([len(lines)]))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        if self.factor.ndim == 2:
            return ~np.any(self.factor, axis=1)
        return np.broadcast_to(self.factor == 0, n_features)

    def exact_directions(self, n_features: int) -> Array:
        return orthogonal_to(self.factor) if self.factor.ndim == 2 else super().exact_directions(n_features)

    def scaled(self, factor: float) -> CommonEllipsoid:
        return CommonEllipsoid(factor * self.factor)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        F = self.matrix(n_features)
        return points_of_ball(rng, (n_draws, 1, F.shape[1])) @ F.T

    def _normal(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
        v = rng.standard_normal((shape[0], self.factor.shape[1] if self.factor.ndim == 2 else shape[1]))
        return self.spread(v.T).T if self.factor.ndim == 2 else self.factor * v, np.square(v).sum(axis=1)


def coordinates_in(basis: Array, target: Array, sizes: Array) -> Array | None:
    """Return the coordinates of a target in an orthonormal basis; None if it is outside the span by more than rounding.

    Each entry of the target is a sum whose terms add up to `sizes` in absolute value, which sets its rounding error.
    The projection spreads these errors over all entries.
    """
    along = basis.T @ target
    # bounds on the rounding errors after the projection, which adds those of each entry to all others
    rounded = sizes + np.abs(basis) @ (np.abs(basis).T @ sizes)
    return None if np.any(np.abs(target - basis @ along) > MISSED * rounded) else along


def _has_full_rank(factor: Array) -> bool:
    return factor.shape[1] >= len(factor) and int(np.linalg.matrix_rank(factor)) == len(factor)


def norm_program(lines: sparse.csr_array, counts: NDArray[np.intp]) -> SupportProgram:
    """Return the program of the supports :math:`t_i(w) = |L_i w|_2`; L_i is the next `counts[i]` rows of `lines`."""
    n_sets, (n_lines, n_features) = len(counts), lines.shape
    G = sparse.csr_array(sparse.block_diag([lines, sparse.eye_array(n_sets)]))
    # a second-order cone lists the bound on the norm first, then the lines
    order = np.insert(np.arange(n_lines), np.cumsum(counts) - counts, n_lines + np.arange(n_sets))
    T = sparse.hstack([sparse.csr_array((n_sets, n_features)), sparse.eye_array(n_sets)])
    owner = sparse.csr_array(
        (np.ones(n_lines), (np.repeat(np.arange(n_sets), counts), np.arange(n_lines))), (n_sets, n_lines)
    )

    def points(budgets: Array, multipliers: Array) -> Array:
        tails = multipliers[order < n_lines]
        # a multiplier divided by its budget is a point of the unit ball; divided by its own length if the solver leaves
        # it outside
        lengths = np.sqrt(owner @ np.square(tails))
        pulls = rescaled(owner, ratio(-1.0, np.maximum(budgets, lengths)), tails) @ lines
        return dense(pulls)

    return SupportProgram(sparse.csr_array(T), [("second_order", (counts + 1).tolist(), G[order])], points)


def points_of_ball(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return points of the unit ball along the last axis, half of them on its surface."""
    v = rng.normal(size=shape)
    radius = np.minimum(rng.uniform(0, 2, size=shape[:-1]), 1.0)
    return v / np.linalg.norm(v, axis=-1, keepdims=True) * radius[..., None]
