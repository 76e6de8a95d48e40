"""Gaussian clouds bound to rows, known through their one-standard-deviation ellipsoids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.uncertainty import Array, BoundSet

MISSED = 1e-11
"""Share of a target that a least-squares split may miss by rounding."""


def norm(v: Any, axis: int | None = None) -> Array:
    """Return the l2 norm of a vector, or of the rows of a matrix (axis=1), where squares would under- or overflow too."""
    largest = float(np.abs(v).max(initial=0.0))
    scale = 1.0 if 1e-140 < largest < 1e140 or largest == 0 else largest
    v = v if scale == 1.0 else v / scale
    return scale * np.sqrt(np.einsum("ij,ij->i", v, v) if axis == 1 else np.vdot(v, v))


def ratio(numerator: Any, t: Any) -> Array:
    """Return numerator / t, and 0 where t = 0."""
    t = np.asarray(t)
    return np.divide(numerator, t, out=np.zeros(np.broadcast_shapes(np.shape(numerator), t.shape)), where=t > 0)


def solve_scaled(matrix: Array, target: Array) -> Array:
    """Return the least-squares solution for a positive semidefinite matrix, whatever the scales of its variables."""
    scale = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    return np.asarray(np.linalg.lstsq(matrix / np.outer(scale, scale), target / scale, rcond=None)[0] / scale)


class CommonCloud(BoundSet):
    r"""One ellipsoid :math:`\{F v : |v|_2 \le 1\}` for all rows; F a number, a diagonal or a matrix."""

    is_common = True
    is_conic = True

    def __init__(self, factor: Array):
        self.factor = np.asarray(factor, dtype=np.float64)
        self.is_isotropic = self.factor.ndim == 0

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

    def _point(self, w: Array) -> Array:
        root = self.root(w)
        return self.spread(ratio(root, norm(root)))

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return self._point(w)[None]

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.sum(r) * self._point(w)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return np.array([self.gauge(point) <= 1 + slack for point in np.atleast_2d(points)])

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        point, t = self._point(w), self.support(w)
        bend = float(ratio(np.sum(first), t))
        out = (float(np.sum(second)) - bend) * np.outer(point, point)
        if self.factor.ndim == 2:
            out += bend * self.factor @ self.factor.T
        else:
            out[np.diag_indices_from(out)] += bend * np.square(self.factor)
        return out

    def directional(self, w: Array, v: Array) -> Array:
        return np.asarray(self._point(w) @ v)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        point, bend = self._point(w), float(ratio(np.sum(first), self.support(w)))
        return bend * (self.spread(self.root(v)) - point * (point @ v))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return np.outer(rows.transpose_dot(r), self._point(w))

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        """Return the smallest multiple of the set that reaches `target`, inf where none does."""
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        if self.factor.ndim == 2:
            unit = np.where(sizes > 0, sizes, 1.0)
            v = np.asarray(np.linalg.lstsq(self.factor / unit[:, None], target / unit, rcond=None)[0])
        else:
            v = ratio(target, np.broadcast_to(self.factor, target.shape))
        return np.inf if np.any(np.abs(target - self.spread(v)) > MISSED * sizes) else float(norm(v))

    def demand(self, target: Array, shares: Array, sizes: Array | None = None) -> Array:
        return np.array(self.gauge(target, sizes))

    def shortfall(self, target: Array, budgets: Array, shares: Array, direction: Array) -> float:
        if self.factor.ndim == 0:
            return max(float(norm(target) - self.factor * np.sum(budgets)), 0.0)
        return float(norm(target - self.adjoint(direction, shares * self.support(direction))))

    def factors_of_support(self, n_features: int) -> list[Array]:
        return [self.matrix(n_features)]

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        if self.factor.ndim == 2:
            return ~np.any(self.factor, axis=1)
        return np.broadcast_to(self.factor == 0, n_features)

    def scaled(self, factor: float) -> CommonCloud:
        return CommonCloud(factor * self.factor)

    def take(self, rows: Any) -> CommonCloud:
        return self

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        F = self.matrix(n_features)
        return _ball(rng, (n_draws, 1, F.shape[1])) @ F.T


class RowClouds(BoundSet):
    r"""An ellipsoid :math:`\{F_i v : |v|_2 \le 1\}` for each row; F_i a diagonal (N, n) or a matrix (N, n, r)."""

    is_conic = True

    def __init__(self, factors: Array):
        self.factors = factors

    def root(self, w: Array) -> Array:
        """Return F_i'w for each row."""
        return self.factors * w if self.factors.ndim == 2 else np.einsum("nij,i->nj", self.factors, w)

    def spread(self, v: Array, rows: Any = slice(None)) -> Array:
        """Return F_i v_i for some rows."""
        return self.factors[rows] * v if self.factors.ndim == 2 else np.einsum("nij,nj->ni", self.factors[rows], v)

    def support(self, w: Array) -> Array:
        return norm(self.root(w), axis=1)

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        root = self.take(rows).root(w)
        return self.spread(ratio(root, norm(root, axis=1)[:, None]), rows)

    def adjoint(self, w: Array, r: Array) -> Array:
        root = self.root(w)
        scaled = root * ratio(np.broadcast_to(r, len(root)), norm(root, axis=1))[:, None]
        if self.factors.ndim == 2:
            return np.einsum("ni,ni->i", self.factors, scaled)
        return np.einsum("nij,nj->i", self.factors, scaled)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return np.array(
            [
                CommonCloud(np.asarray(factor)).gauge(point) <= 1 + slack
                for factor, point in zip(self.factors, points, strict=True)
            ]
        )

    def covariance(self, weights: Array) -> Array:
        """Return sum_i weights_i F_i F_i', shape (n, n), for weights >= 0."""
        if self.factors.ndim == 2:
            return np.diag(np.einsum("ni,ni,n->i", self.factors, self.factors, weights))
        scaled = self.factors * np.sqrt(weights)[:, None, None]
        return np.tensordot(scaled, scaled, axes=([0, 2], [0, 2]))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        bend = ratio(first, self.support(w))
        points = self.maximizer(w)
        return self.covariance(bend) + (points * (second - bend)[:, None]).T @ points

    def directional(self, w: Array, v: Array) -> Array:
        root = self.root(w)
        return ratio(np.einsum("nj,nj->n", root, self.root(v)), norm(root, axis=1))

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        root = self.root(w)
        t = norm(root, axis=1)
        unit, move = ratio(root, t[:, None]), self.root(v)
        across = move - unit * np.einsum("nj,nj->n", unit, move)[:, None]
        return self.spread(across * ratio(first, t)[:, None]).sum(axis=0)

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return np.sum(
            [block.T @ (r[part, None] * self.maximizer(w, part)) for part, block in rows.dense_blocks()], axis=0
        )

    def demand(self, target: Array, shares: Array, sizes: Array | None = None) -> Array:
        # q_i = shares_i C_i v with the v that makes them add up to the target
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        pooled = self.covariance(shares)
        v = solve_scaled(pooled, target)
        if np.any(np.abs(pooled @ v - target) > MISSED * sizes):
            return np.full(len(shares), np.inf)
        return shares * norm(self.root(v), axis=1)

    def shortfall(self, target: Array, budgets: Array, shares: Array, direction: Array) -> float:
        return float(norm(target - self.adjoint(direction, shares * self.support(direction))))

    def factors_of_support(self, n_features: int) -> list[Array]:
        return [np.diag(factor) if factor.ndim == 1 else factor for factor in self.factors]

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return ~np.any(self.factors, axis=(0, *range(2, self.factors.ndim)))

    def scaled(self, factor: float) -> RowClouds:
        return RowClouds(factor * self.factors)

    def take(self, rows: Any) -> RowClouds:
        return RowClouds(self.factors[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        v = _ball(rng, (n_draws, len(self.factors), self.factors.shape[-1]))
        return self.factors * v if self.factors.ndim == 2 else np.einsum("nij,dnj->dni", self.factors, v)


def _ball(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return points of the unit ball along the last axis, half of them on its surface."""
    v = rng.normal(size=shape)
    radius = np.minimum(rng.uniform(0, 2, size=shape[:-1]), 1.0)
    return v / np.linalg.norm(v, axis=-1, keepdims=True) * radius[..., None]
