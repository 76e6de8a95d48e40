"""What certificates see of a fitted classifier: its scores, how far off these may be, and how fast they can change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from holdfast._certificates.decisions import Decision
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.rounding import Array, gamma
from holdfast._core.uncertainty import BoundSet
from holdfast.features.carrying import extents
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense, ratio
from holdfast.uncertainty.clouds import norm as euclidean

LAST_BITS = 1e-14
"""Share by which a quotient or a root is made smaller, more than its last roundings."""
TINY = float(np.finfo(np.float64).tiny)
"""The smallest number that is rounded by a share of itself."""


SUPPORT_ROUNDINGS = 24
"""Roundings of a support beyond those of its sum over the features."""


def scaled(sizes: Array, weights: Array) -> Array:
    """Return sizes >= 0 times weights >= 0, no smaller than without rounding: a product that underflows counts as `TINY`."""
    return np.where((sizes > 0) & (weights > 0), np.maximum(sizes * weights, TINY), 0.0)


def dual_norms(V: Array, norm: float) -> Array:
    r"""Return the dual norm of each row v: the largest :math:`v^\top \delta` with :math:`\|\delta\| \le 1`."""
    return {
        1: lambda: np.abs(V).max(axis=1, initial=0.0),
        2: lambda: _lengths(V),
        np.inf: lambda: np.abs(V).sum(axis=1),
    }[norm]()


def _lengths(V: Array) -> Array:
    """Return the l2 norm of each row, whatever its scale."""
    largest = np.abs(V).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return unit * np.sqrt(np.sum(np.square(V / unit[:, None]), axis=1))


class Model(ABC):
    """A classifier by scores whose changes are bounded.

    Parameters
    ----------
    decision : Decision
        What makes classes of the scores.
    """

    method: str
    """How its certificates come about."""
    decision: Decision
    n_features: int

    @property
    def n_columns(self) -> int:
        """Numbers that are made of a row on the way to its leads."""
        return max(self.n_features, self.decision.n_scores)

    def n_entries(self, X: Any) -> int:
        """Return how many numbers are held for one of the rows X, on average."""
        return self.n_columns

    @abstractmethod
    def scores(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of rows, and bounds on what rounding makes of them here or in the model, (n_samples, n_scores)."""

    @abstractmethod
    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        r"""Return what `radii` needs to know about perturbations :math:`\|\delta / weights\| \le r`, by `Decision.table`."""

    @abstractmethod
    def radii(self, leads: Array, reach: Array) -> Array:
        """Return up to which r no perturbation makes a lead <= 0, given the rows' leads > 0 and their `reach`."""

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        """Return the r beyond which scores may overflow, of rows whose scores do not."""
        return np.inf

    @abstractmethod
    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        """Return by how much combinations C f can fall where entries go down by up to `below` and up by `above`, >= 0."""

    def falls_in(self, sets: BoundSet, n_samples: int, weights: Array, C: Array, dtype: Any) -> Array:
        """Return by how much combinations C f can fall, (n_samples, n_combinations), where the first features move in sets.

        `weights` are 1 for those that do, and 0 for those that stay. Rounding included. By default in the smallest boxes around
        the sets.
        """
        ends = extents(sets, (n_samples, len(weights)))
        rest = np.zeros((n_samples, self.n_features - len(weights)))
        below, above = (np.hstack([weights * end, rest]) for end in ends)
        return self.falls(below, above, C, dtype)

    @abstractmethod
    def gradients(self, X: Any, C: Array) -> Array:
        """Return the gradient of the combination c_i'f of scores at each row x_i, shape (n_samples, n_features).

        C has shape (n_samples, n_scores).
        """

    def as_linear(self) -> LinearModel | None:
        """Return the same as a linear model, None where it is none."""
        return None

    @abstractmethod
    def after(self, steps: AffineMap) -> Model:
        """Return the same model of rows that go through these steps first."""


class LinearModel(Model):
    """Scores that are an affine map of the rows. Certificates are exact, but for rounding.

    Parameters
    ----------
    map : RoundedMap
    decision : Decision
    """

    method = "linear: margin over the dual norm of differences of weights"

    def __init__(self, map: RoundedMap, decision: Decision):
        self.map, self.decision, self.n_features = map, decision, map.n_features

    @property
    def coef(self) -> Array:
        """The weights of the scores in the units of X, shape (n_scores, n_features)."""
        return self.map.coef

    @property
    def intercept(self) -> Array:
        """Their intercepts, shape (n_scores,)."""
        return self.map.intercept

    def scores(self, X: Any) -> tuple[Array, Array]:
        return self.map(X)

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        blur, digits = self.map.gamma(dtype), 1 + gamma(self.n_features + 4)

        def of(C: Array) -> Array:
            rounding = blur * dual_norms(scaled(np.abs(C) @ self.map.sizes, weights), norm)
            return (dual_norms(scaled(np.abs(C @ self.coef), weights), norm) + 2 * rounding) * digits

        return self.decision.table(of)

    def radii(self, leads: Array, reach: Array) -> Array:
        return _quotients(leads, reach)

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        return _limit(self.map, norm, weights, dtype)

    def n_entries(self, X: Any) -> int:
        return max(-(-X.nnz // X.shape[0]), self.decision.n_scores) if sparse.issparse(X) else self.n_columns

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        share = 2 * self.map.gamma(dtype)
        V, sizes = C @ self.coef, share * (np.abs(C) @ self.map.sizes)
        blur = (below + above) @ sizes.T
        fall = below @ np.maximum(V, 0.0).T + above @ np.maximum(-V, 0.0).T + blur
        return np.where(blur < share * self.map.largest(dtype), fall * (1 + gamma(self.n_features + 4)), np.inf)

    def pushed(self, sets: BoundSet, n_samples: int, weights: Array, C: Array, dtype: Any) -> tuple[Array, Array]:
        r"""Return by how much combinations C f fall at the worst points of sets of the first features, and the doubt about it.

        `weights` are 1 for features that move, 0 for those that stay. Moves may cancel in a score that is computed term by
        term, as a common drift of all features does, so rounding counts by :math:`\max_{d \in S} |d|_1`. Shapes
        (n_samples, n_combinations), or (1, n_combinations) of the doubts.
        """
        n_features = len(weights)
        V = weights * (C @ self.coef)[:, :n_features]
        sizes = np.abs(C) @ self.map.sizes[:, :n_features].max(axis=1, initial=0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            falls = np.column_stack([np.broadcast_to(sets.support(-v), n_samples) for v in V])
            moved = np.outer(np.atleast_1d(sets.absolute_reach(n_features)), sizes)
        share = 2 * self.map.gamma(dtype) + gamma(2 * n_features + SUPPORT_ROUNDINGS)
        return falls, np.where(moved < self.map.largest(dtype), share * moved, np.inf)

    def falls_in(self, sets: BoundSet, n_samples: int, weights: Array, C: Array, dtype: Any) -> Array:
        falls, doubts = self.pushed(sets, n_samples, weights, C, dtype)
        return falls + doubts

    def gradients(self, X: Any, C: Array) -> Array:
        return C @ self.coef

    def as_linear(self) -> LinearModel:
        return self

    def after(self, steps: AffineMap) -> LinearModel:
        return LinearModel(self.map.after(steps), self.decision)


class KernelModel(Model):
    r"""Scores :math:`f(x) = \sum_i a_i k(x_i, z) + b` with :math:`k(z, z') = e^{-\gamma \|z - z'\|^2}`, z an affine map of x.

    By the reproducing property :math:`|f(z) - f(z')| \le \|f\|_H \sqrt{2 - 2 e^{-\gamma \|z - z'\|^2}}`, with
    :math:`\|f\|_H^2 = a^\top K a`: sound, not tight.

    Parameters
    ----------
    centres : ndarray of shape (n_centres, n_inputs)
    width : float
        gamma.
    output : RoundedMap
        From values of the kernel to scores: a and b.
    decision : Decision
    map : RoundedMap, default=None
        From x to z, none where they are the same.
    """

    method = "RBF kernel: RKHS norm"

    def __init__(
        self, centres: Array, width: float, output: RoundedMap, decision: Decision, map: RoundedMap | None = None
    ):
        self.centres, self.width, self.output, self.decision, self.map = centres, float(width), output, decision, map
        self.n_features = centres.shape[1] if map is None else map.n_features

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.centres))

    def after(self, steps: AffineMap) -> KernelModel:
        n = self.centres.shape[1]
        same = RoundedMap(np.eye(n), np.zeros(n)) if self.map is None else self.map
        return KernelModel(self.centres, self.width, self.output, self.decision, same.after(steps))

    def _error(self, dtype: Any) -> Array:
        r"""Return a bound on the rounding of any score, wherever the row is, shape (n_scores,).

        Squared distances as :math:`\|z\|^2 + \|x\|^2 - 2 z^\top x` are off by no more than a share of
        :math:`\|z\|^2 + \|x\|^2`; far from all centres that is little beside the distance itself, and the kernel is 0.
        """
        eta = gamma(self.centres.shape[1] + 8, self.output.kind(dtype))
        spread = self.width * float(np.max(np.sum(np.square(self.centres), axis=1), initial=0.0))
        each = eta * (20 * spread + 32) if eta * 20 * spread < 1 else np.inf
        total = self.output.sizes.sum(axis=1)
        return each * total + self.output.gamma(dtype) * (2 * total + self.output.offset_sizes)

    @cached_property
    def _gram(self) -> Array:
        """Inner products of the scores in the kernel's space, shape (n_scores, n_scores)."""
        size, a = max(1, int(1e7 / len(self.centres))), self.output.coef
        parts = (slice(i, i + size) for i in range(0, len(self.centres), size))
        blocks = (a[:, part] @ (rbf_kernel(self.centres[part], self.centres, gamma=self.width) @ a.T) for part in parts)
        return np.asarray(sum(blocks))

    def norms(self, C: Array) -> Array:
        """Return upper bounds on the norms of combinations C f of scores in the kernel's space, shape (n_combinations,)."""
        sizes = self.output.sizes.sum(axis=1)
        share = float(np.max(ratio(self._error(np.float64), sizes))) + gamma(2 * len(self.centres) + 2 * len(sizes))
        squares = np.maximum(np.einsum("ri,ij,rj->r", C, self._gram, C), 0.0)
        largest = np.abs(C) @ sizes
        found = np.sqrt(squares + 2 * share * np.square(largest)) * (1 + LAST_BITS)
        # squares underflow
        return np.where(largest < np.sqrt(TINY) / gamma(2), largest, found)

    def scores(self, X: Any) -> tuple[Array, Array]:
        Z, blur = (X, None) if self.map is None else self.map(X)
        kernel = rbf_kernel(Z.astype(np.float64, copy=False), self.centres, gamma=self.width)
        values = kernel @ self.output.coef.T + self.output.intercept
        errors = np.broadcast_to(self._error(X.dtype), values.shape)
        if blur is not None:
            steepness = np.sqrt(2 * self.width) * self.norms(np.eye(values.shape[1]))
            errors = errors + np.outer(_lengths(blur), steepness) * (1 + 1e-9)
        return values, errors

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        stretch = _stretch(self.map, weights, self.n_features, norm, dtype)
        table = self.decision.table(self.norms)
        return np.stack([table, np.full_like(table, stretch)], axis=-1)

    def radii(self, leads: Array, reach: Array) -> Array:
        shares = 0.5 * np.square(_quotients(leads, reach[..., 0])) * (1 - LAST_BITS)
        with np.errstate(divide="ignore"):
            distances = np.sqrt(-np.log1p(-np.minimum(shares, 1.0)) / self.width)
        return _quotients(distances, reach[..., 1])

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(dense(below), dense(above))
        if self.map is not None:
            farthest = farthest @ (np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes).T
        distances = _lengths(farthest) * (1 + gamma(self.n_features + farthest.shape[1] + 4))
        shares = np.sqrt(-2 * np.expm1(-self.width * np.square(distances))) * (1 + LAST_BITS)
        return np.outer(shares, self.norms(C))

    def gradients(self, X: Any, C: Array) -> Array:
        Z = dense(X).astype(np.float64) if self.map is None else self.map(X)[0]
        pull = (C @ self.output.coef) * rbf_kernel(Z, self.centres, gamma=self.width)
        slopes = 2 * self.width * (pull @ self.centres - pull.sum(axis=1, keepdims=True) * Z)
        return slopes if self.map is None else slopes @ self.map.coef


class FourierModel(Model):
    r"""Scores :math:`\sum_d a_d \cos(\omega_d^\top x + c_d) + b`: linear ones of random Fourier features.

    With :math:`|\sin| \le 1` they change no faster than by :math:`\| |a| |\Omega| \|_*`, nor, for the l2 norm, by
    :math:`\|a\|_2 \|\Omega\|_2`: sound, not tight.

    Parameters
    ----------
    map : RoundedMap
        From x to the angles.
    output : RoundedMap
        From cosines to scores: a and b.
    decision : Decision
    """

    method = "random Fourier features: Lipschitz constant"

    def __init__(self, map: RoundedMap, output: RoundedMap, decision: Decision):
        self.map, self.output, self.decision, self.n_features = map, output, decision, map.n_features

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.map.coef))

    def after(self, steps: AffineMap) -> FourierModel:
        return FourierModel(self.map.after(steps), self.output, self.decision)

    def scores(self, X: Any) -> tuple[Array, Array]:
        angles, blur = self.map(X)
        sizes = self.output.sizes
        # a cosine is at most 1 and rounded to within a few last bits
        blur = blur + gamma(8, self.map.kind(X.dtype))
        errors = self.output.gamma(X.dtype) * (2 * sizes.sum(axis=1) + self.output.offset_sizes)
        values = np.cos(angles) @ self.output.coef.T + self.output.intercept
        return values, errors + (blur @ sizes.T) * (1 + 1e-9)

    def _slopes(self, C: Array, weights: Array, dtype: Any) -> Array:
        """Return bounds on the partial derivatives of combinations C f, shape (n_combinations, n_features)."""
        sizes = np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes
        outer, inner = np.abs(C @ self.output.coef), scaled(sizes, weights)
        underflow = TINY * ((outer > 0).astype(np.float64) @ (inner > 0))
        return outer @ inner * (1 + gamma(sum(sizes.shape))) + underflow

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        n = self.n_features
        spectral = _stretch(self.map, weights, n, 2, dtype) * (np.sqrt(n) if norm == np.inf else 1.0)

        def of(C: Array) -> Array:
            together = _lengths(C @ self.output.coef) * (1 + gamma(len(self.map.coef)))
            return np.minimum(dual_norms(self._slopes(C, weights, dtype), norm), scaled(together, np.asarray(spectral)))

        return self.decision.table(of) * (1 + LAST_BITS)

    def radii(self, leads: Array, reach: Array) -> Array:
        return _quotients(leads, reach)

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        return _limit(self.map, norm, weights, dtype)

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(dense(below), dense(above))
        slopes = self._slopes(C, np.ones(self.n_features), dtype)
        return np.asarray(farthest @ slopes.T * (1 + gamma(self.n_features + 4)))

    def gradients(self, X: Any, C: Array) -> Array:
        return -((C @ self.output.coef) * np.sin(self.map(X)[0])) @ self.map.coef


def _quotients(leads: Array, reach: Array) -> Array:
    """Return leads / reach rounded down: inf where nothing is reached, 0 where that is not finite or too small to round."""
    leads, reach = np.broadcast_arrays(leads, reach)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.where(reach == 0, np.inf, leads / reach * (1 - LAST_BITS))
    return np.where(found >= TINY, found, 0.0)


def _limit(map: RoundedMap, norm: float, weights: Array, dtype: Any) -> float:
    r"""Return the r up to which :math:`\|\delta / weights\| \le r` moves no score by as much as half of an overflow."""
    farthest = float(np.max(dual_norms(scaled(map.sizes, weights), norm), initial=0.0))
    return map.largest(dtype) / farthest if farthest > 0 else np.inf


def _stretch(map: RoundedMap | None, weights: Array, n_features: int, norm: float, dtype: Any) -> float:
    r"""Return a bound on the l2 length of A delta over :math:`\|\delta / weights\| \le 1`, and of what rounding adds to it."""
    if map is None:
        each = np.broadcast_to(weights, n_features)
        return float(euclidean(each) if norm == np.inf else np.max(np.abs(each))) * (1 + gamma(n_features + 4))
    A, sizes = map.coef * weights, scaled(map.sizes, weights)
    blur = 2 * map.gamma(dtype) * euclidean(sizes.sum(axis=1) if norm == np.inf else sizes)
    if norm == 1:
        found = float(np.max(_lengths(A.T), initial=0.0))
    else:
        spectral = float(np.linalg.norm(A, 2)) * (1 + 1e-10) + gamma(sum(A.shape)) * float(euclidean(A))
        boxed = float(euclidean(np.abs(A).sum(axis=1)))
        found = min(spectral * np.sqrt(n_features), boxed) if norm == np.inf else spectral
    return (found + float(blur)) * (1 + gamma(sum(A.shape))) + np.count_nonzero(sizes) * TINY
