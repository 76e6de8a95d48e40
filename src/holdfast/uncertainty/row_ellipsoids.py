"""An ellipsoid for each row, with a diagonal or a full matrix as its factor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import MISSED, ROUNDED, dense, norm, orthogonal_to, ratio, rescaled, spectral_norm
from holdfast._core.memory import remembered
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, RowHessians
from holdfast.uncertainty.ellipsoids import CommonEllipsoid, EllipsoidSets, coordinates_in, norm_program, points_of_ball

MANY_AXES = 64
"""Above this number of columns, the Frobenius norm bounds a factor's largest singular value, to save decompositions."""


class RowEllipsoids(EllipsoidSets):
    """An ellipsoid for each row."""

    @abstractmethod
    def factor_matrices(self) -> Iterable[Array]:
        """Return the matrix F_i of each row."""

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        pairs = zip(self.factor_matrices(), points, strict=True)
        return np.array([CommonEllipsoid(factor).gauge(point) <= 1 + slack for factor, point in pairs])


class DiagonalEllipsoids(RowEllipsoids):
    r"""An ellipsoid :math:`\{S_i v : |v|_2 \le 1\}` with diagonal S_i for each row.

    The support is :math:`t_i = \sqrt{\sum_j S_{ij}^2 w_j^2}`. The squares are stored as an array, or as a CSR array
    that is never made dense. Each column is divided by about its largest deviation first, so that squares neither over-
    nor underflow.

    Parameters
    ----------
    squares : {ndarray, csr_array} of shape (n_samples, n_features)
        S_ij**2 / units_j**2.
    units : ndarray of shape (n_features,)
        Powers of two, so that multiplying by them is exact; 0 for features without noise.
    """

    def __init__(self, squares: Any, units: Array):
        self.squares, self.units = squares, units
        self.is_full = not sparse.issparse(squares) and bool(np.all(squares * units > 0))

    @classmethod
    def of(cls, stds: Any) -> DiagonalEllipsoids:
        """Return the ellipsoids with standard deviations `stds`, an array or CSR array, (n_samples, n_features)."""
        largest = np.ravel(dense(stds.max(axis=0)))
        units = np.where(largest > 0, np.maximum(np.ldexp(0.5, np.frexp(largest)[1]), np.finfo(float).tiny), 0.0)
        shares = rescaled(stds, np.ones(stds.shape[0]), ratio(1.0, units))
        return cls(shares * shares, units)

    @remembered
    def _levels(self, w: Array) -> tuple[float, Array, Array]:
        """Return a unit for scores, and the weights w_j * units_j and the supports, both divided by that unit."""
        weights = self.units * w
        unit = float(np.abs(weights).max(initial=0.0)) or 1.0
        weights = weights / unit
        return unit, weights, np.sqrt(self.squares @ np.square(weights))

    def _points(self, w: Array) -> Any:
        """Return the maximizers divided by `units`, as a matrix of the same format as `squares`."""
        _, weights, levels = self._levels(w)
        return rescaled(self.squares, ratio(1.0, levels), weights)

    def support(self, w: Array) -> Array:
        unit, _, levels = self._levels(w)
        return unit * levels

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return dense(self.take(rows)._points(w)) * self.units

    def supports_at(self, W: Array) -> Array:
        return norm(dense(self.deviations()) * W, axis=1)

    def maximizers_at(self, W: Array) -> Array:
        stds = dense(self.deviations())
        return stds * ratio(stds * W, norm(stds * W, axis=1)[:, None])

    def hessians_at(self, W: Array) -> RowHessians:
        bend, squares = ratio(1.0, self.supports_at(W)), np.square(dense(self.deviations()))
        return RowHessians.diagonal(bend[:, None] * squares).plus(RowHessians([], [(-bend, self.maximizers_at(W))]))

    def stretch(self, A: Array) -> Array:
        stds = dense(self.deviations())
        # two bounds on the largest singular value of A S: its Frobenius norm, and |A| times the longest axis. Either
        # may be the smaller one
        whole = norm(stds * norm(A.T, axis=1), axis=1)
        return np.minimum(whole, spectral_norm(A) * stds.max(axis=1, initial=0.0))

    def adjoint(self, w: Array, r: Array) -> Array:
        _, weights, levels = self._levels(w)
        return self.units * weights * (self.squares.T @ ratio(r, levels))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        unit, _, levels = self._levels(w)
        bend = ratio(first, levels) / unit
        points = self._points(w)
        out = dense(rescaled(points, second - bend).T @ points)
        out[np.diag_indices_from(out)] += self.squares.T @ bend
        return out * np.outer(self.units, self.units)

    def directional(self, w: Array, v: Array) -> Array:
        _, weights, levels = self._levels(w)
        return ratio(self.squares @ (weights * (self.units * v)), levels)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        unit, weights, levels = self._levels(w)
        bend = ratio(first, levels) / unit
        along = bend * ratio(self.directional(w, v), levels)
        return self.units * ((self.squares.T @ bend) * (self.units * v) - (self.squares.T @ along) * weights)

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        points = rescaled(self._points(w), r)
        return dense(sum(block.T @ points[part] for part, block in rows.blocks())) * self.units

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        # points q_i = shares_i C_i v, with v such that they add up to the target
        shares = ratio(budgets, scale)
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        pooled = self.squares.T @ shares
        if np.any((np.abs(target) > MISSED * sizes)[self.units * pooled == 0]):
            return np.full(len(shares), np.inf)
        v = ratio(ratio(target, self.units), pooled)
        return shares * DiagonalEllipsoids(self.squares, np.ones(len(v))).support(v)

    def deviations(self) -> Any:
        return rescaled(np.sqrt(self.squares), np.ones(self.squares.shape[0]), self.units)

    def factor_matrices(self) -> Iterable[Array]:
        return (np.diag(self.units * np.sqrt(dense(self.squares[[i]])[0])) for i in range(self.squares.shape[0]))

    def support_program(self, n_features: int) -> SupportProgram:
        stds = sparse.csr_array(self.deviations())
        stds.eliminate_zeros()
        lines = sparse.csr_array((stds.data, stds.indices, np.arange(stds.nnz + 1)), shape=(stds.nnz, n_features))
        return norm_program(lines, np.diff(stds.indptr))

    def absolute_reach(self, n_features: int) -> Array:
        return np.asarray(np.sqrt(self.squares) @ self.units)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return np.asarray(self.units * (self.squares.T @ np.ones(self.squares.shape[0])) == 0)

    def image(self, map: Any) -> RowEllipsoids:
        if map.is_monomial:
            squares = map.columns(self.squares, np.ones(map.shape[0]))
            return DiagonalEllipsoids(squares, self.units[map.sources] * np.abs(map.scales))
        return FactorEllipsoids(dense(map.matrix) * dense(self.deviations())[:, None, :])

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any]:
        return {"X_std": dense(self.deviations())}

    def scaled(self, factor: float) -> DiagonalEllipsoids:
        return DiagonalEllipsoids(self.squares, factor * self.units)

    def take(self, rows: Any) -> DiagonalEllipsoids:
        return DiagonalEllipsoids(self.squares[rows], self.units)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        stds = self.units * np.sqrt(dense(self.squares))
        return stds * points_of_ball(rng, (n_draws, *stds.shape))

    def _normal(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, Array]:
        stds = self.deviations()
        if not sparse.issparse(stds):
            v = np.where(stds > 0, rng.standard_normal(shape), 0.0)
            return stds * v, np.square(v).sum(axis=1)
        v = sparse.csr_array((rng.standard_normal(stds.nnz), stds.indices, stds.indptr), shape=shape)
        return sparse.csr_array((stds.data * v.data, v.indices, v.indptr), shape=shape), np.asarray((v * v).sum(axis=1))


class FactorEllipsoids(RowEllipsoids):
    r"""An ellipsoid :math:`\{F_i v : |v|_2 \le 1\}` for each row, F_i a matrix; `factors` has shape (N, n, r)."""

    def __init__(self, factors: Array):
        self.factors = factors

    def factor_matrices(self) -> Iterable[Array]:
        return self.factors

    def generators(self, n_features: int) -> Array:
        return self.factors.transpose(0, 2, 1).reshape(-1, n_features)

    def with_generators(self, coordinates: Array) -> FactorEllipsoids:
        n_samples, _, rank = self.factors.shape
        return FactorEllipsoids(coordinates.reshape(n_samples, rank, -1).transpose(0, 2, 1))

    @remembered
    def root(self, w: Array) -> Array:
        """Return F_i'w for each row."""
        return np.einsum("nij,i->nj", self.factors, w)

    def support(self, w: Array) -> Array:
        return norm(self.root(w), axis=1)

    def spread(self, v: Array) -> Array:
        """Return F_i v_i for each row."""
        return np.einsum("nij,nj->ni", self.factors, v)

    def pooled(self, v: Array) -> Array:
        """Return sum_i F_i v_i."""
        return np.einsum("nij,nj->i", self.factors, v)

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        some = self.take(rows)
        root = some.root(w)
        return some.spread(ratio(root, norm(root, axis=1)[:, None]))

    def adjoint(self, w: Array, r: Array) -> Array:
        root = self.root(w)
        return self.pooled(root * ratio(np.broadcast_to(r, len(root)), norm(root, axis=1))[:, None])

    def supports_at(self, W: Array) -> Array:
        return norm(np.einsum("nij,ni->nj", self.factors, W), axis=1)

    def maximizers_at(self, W: Array) -> Array:
        roots = np.einsum("nij,ni->nj", self.factors, W)
        return self.spread(ratio(roots, norm(roots, axis=1)[:, None]))

    def hessians_at(self, W: Array) -> RowHessians:
        bend = ratio(1.0, self.supports_at(W))
        axes = [(bend, q) for q in np.moveaxis(self.factors, 2, 0)]
        return RowHessians([], [*axes, (-bend, self.maximizers_at(W))])

    def stretch(self, A: Array) -> Array:
        if self.factors.shape[2] > MANY_AXES:
            return np.asarray(spectral_norm(A) * np.linalg.norm(self.factors, axis=(1, 2)))
        # the lengths of A d depend on A'A alone, so a tall A can be replaced by its triangular QR factor
        moved = (A if len(A) <= A.shape[1] else np.linalg.qr(A)[1]) @ self.factors
        squares = np.linalg.eigvalsh(moved.transpose(0, 2, 1) @ moved)[:, -1]
        return np.sqrt(np.maximum(squares, 0.0)) * (1 + 1e-12)

    def covariance(self, weights: Array) -> Array:
        """Return sum_i weights_i F_i F_i', shape (n, n), for weights >= 0."""
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
        # the Hessian of |r| times v is the part of v orthogonal to r, divided by |r|. Project before multiplying by F,
        # as C v - (p'v) p cancels for v along w
        across = move - unit * np.einsum("nj,nj->n", unit, move)[:, None]
        return self.pooled(across * ratio(first, t)[:, None])

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        # points q_i = shares_i C_i v, with v such that they add up to the target
        shares = ratio(budgets, scale)
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        pooled = self.covariance(shares)
        scale = np.sqrt(np.diag(pooled))
        moved = np.flatnonzero(scale)
        if np.any((np.abs(target) > MISSED * sizes)[scale == 0]):
            return np.full(len(shares), np.inf)
        # correlations instead of covariances, so that one cutoff serves features of any scale
        unit = scale[moved]
        extents, basis = np.linalg.eigh(pooled[np.ix_(moved, moved)] / np.outer(unit, unit))
        kept = extents > ROUNDED * np.max(extents, initial=0.0)
        along = coordinates_in(basis[:, kept], target[moved] / unit, sizes[moved] / unit)
        if along is None:
            return np.full(len(shares), np.inf)
        v = np.zeros(len(target))
        v[moved] = basis[:, kept] @ (along / extents[kept]) / unit
        return shares * norm(self.root(v), axis=1)

    def support_program(self, n_features: int) -> SupportProgram:
        n_samples, _, rank = self.factors.shape
        lines = sparse.csr_array(self.factors.transpose(0, 2, 1).reshape(-1, n_features))
        return norm_program(lines, np.full(n_samples, rank))

    def absolute_reach(self, n_features: int) -> Array:
        return np.asarray(np.linalg.norm(self.factors, axis=2).sum(axis=1))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return ~np.any(self.factors, axis=(0, 2))

    def exact_directions(self, n_features: int) -> Array:
        return orthogonal_to(self.covariance(np.ones(len(self.factors))))

    def image(self, map: Any) -> FactorEllipsoids:
        return FactorEllipsoids(dense(map.matrix) @ self.factors)

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any]:
        return {"X_factor": self.factors}

    def scaled(self, factor: float) -> FactorEllipsoids:
        return FactorEllipsoids(factor * self.factors)

    def take(self, rows: Any) -> FactorEllipsoids:
        return FactorEllipsoids(self.factors[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        v = points_of_ball(rng, (n_draws, len(self.factors), self.factors.shape[-1]))
        return np.einsum("nij,dnj->dni", self.factors, v)

    def _normal(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
        v = rng.standard_normal((shape[0], self.factors.shape[-1]))
        return self.spread(v), np.square(v).sum(axis=1)
