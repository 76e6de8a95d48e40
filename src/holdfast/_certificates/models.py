"""Certificate models of fitted classifiers: scores, their rounding errors, and bounds on their changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse

from holdfast._certificates.decisions import Decision, Leads
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.arithmetic import norm as euclidean
from holdfast._core.rounding import Array, gamma
from holdfast._core.row_sets import RowSets
from holdfast.uncertainty.affine_map import AffineMap

LAST_BITS = 1e-14
"""A quotient or a root is lowered by this share, which exceeds its last few rounding errors."""
TINY = float(np.finfo(np.float64).tiny)
"""The smallest normal number. Rounding errors of smaller numbers are not relative to their size."""


SUPPORT_ROUNDINGS = 24
"""The number of roundings of a support besides its sum over the features: scales, roots and the final product."""


def scaled(sizes: Array, weights: Array) -> Array:
    """Return the products of sizes and weights (both >= 0), rounded up: a product that underflows becomes `TINY`."""
    return np.where((sizes > 0) & (weights > 0), np.maximum(sizes * weights, TINY), 0.0)


def dual_norms(V: Array, norm: float) -> Array:
    r"""Return the dual norm of each row v, the largest :math:`v^\top \delta` over :math:`\|\delta\| \le 1`."""
    return {
        1: lambda: np.abs(V).max(axis=1, initial=0.0),
        2: lambda: lengths(V),
        np.inf: lambda: np.abs(V).sum(axis=1),
    }[norm]()


def lengths(V: Array) -> Array:
    """Return the l2 norm of each row, without under- or overflow of squares."""
    largest = np.abs(V).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return unit * np.sqrt(np.sum(np.square(V / unit[:, None]), axis=1))


class Model(ABC):
    """A classifier with bounds on the changes of its scores.

    Parameters
    ----------
    decision : Decision
        The rule from scores to classes.
    """

    method: str
    """The method of its certificates, in words."""
    decision: Decision
    n_features: int

    @property
    def n_columns(self) -> int:
        """The largest number of columns in the computation of a row's leads."""
        return max(self.n_features, self.decision.n_scores)

    def n_entries(self, X: Any) -> int:
        """Return the average number of entries in memory for each of the rows X."""
        return self.n_columns

    @abstractmethod
    def scores(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of rows, and bounds on their rounding here or in the model, (n_samples, n_scores)."""

    @abstractmethod
    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        r"""Return the `Decision.table` that `radii` needs for perturbations :math:`\|\delta / weights\| \le r`."""

    @abstractmethod
    def radii(self, leads: Array, reach: Array) -> Array:
        """Return the r up to which no perturbation makes a lead <= 0, given leads > 0 and the `reach` of each row."""

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        """Return the r beyond which scores of perturbed rows may overflow."""
        return np.inf

    @abstractmethod
    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        """Return the largest falls of C f if entries move down by at most `below` and up by at most `above`."""

    @abstractmethod
    def falls_in(self, rows: Any, sets: RowSets, weights: Array, C: Array, signs: Array) -> Array:
        """Return the largest falls of `signs` times C f, (n_samples, n_combinations), if rows move in their sets.

        Sets concern the first features; `weights` are 1 for those that move, and 0 for those that stay. The result
        includes the rounding of the sets and of the bound, but not that of the scores, at the rows or at moved rows.
        """

    def refined(self, rows: Any, found: Leads, radii: Array, norm: float, weights: Array) -> Array:
        """Return radii at least as large as the proved `radii`, from bounds around these rows."""
        return radii

    @abstractmethod
    def gradients(self, X: Any, C: Array) -> Array:
        """Return the gradient of c_i'f at each row x_i, shape (n_samples, n_features).

        c_i is row i of C, which has the shape (n_samples, n_scores).
        """

    def as_linear(self) -> LinearModel | None:
        """Return the model as a LinearModel; None if it is not linear."""
        return None

    @abstractmethod
    def after(self, steps: AffineMap) -> Model:
        """Return the model of rows to which `steps` are applied first."""


class LinearModel(Model):
    """Scores that are an affine function of the rows. Certificates are exact up to rounding.

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
        """The intercepts of the scores, shape (n_scores,)."""
        return self.map.intercept

    def scores(self, X: Any) -> tuple[Array, Array]:
        return self.map(X)

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        # weights are rounded here and in the model, so their error counts twice; `digits` covers the sum over features
        blur, digits = self.map.gamma(dtype), 1 + gamma(self.n_features + 4)

        def of(C: Array) -> Array:
            rounding = blur * dual_norms(scaled(np.abs(C) @ self.map.sizes, weights), norm)
            return (dual_norms(scaled(np.abs(C @ self.coef), weights), norm) + 2 * rounding) * digits

        return self.decision.table(of)

    def radii(self, leads: Array, reach: Array) -> Array:
        return quotients(leads, reach)

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        return overflow_limit(self.map, norm, weights, dtype)

    def n_entries(self, X: Any) -> int:
        return max(-(-X.nnz // X.shape[0]), self.decision.n_scores) if sparse.issparse(X) else self.n_columns

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        # rounding counts twice: for the weights here, and for the model's scores at the moved row
        share = 2 * self.map.gamma(dtype)
        V, sizes = C @ self.coef, share * (np.abs(C) @ self.map.sizes)
        blur = (below + above) @ sizes.T
        fall = below @ np.maximum(V, 0.0).T + above @ np.maximum(-V, 0.0).T + blur
        # beyond a quarter of the largest number scores may overflow, and the bound on rounding does not hold
        return np.where(blur < share * self.map.largest(dtype), fall * (1 + gamma(self.n_features + 4)), np.inf)

    def pushed(self, sets: RowSets, weights: Array, C: Array, signs: Array, dtype: Any) -> tuple[Array, Array]:
        r"""Return the falls of `signs` times C f at the worst points of the sets, and bounds on their rounding.

        Sets concern the first features; `weights` are 1 for those that move, 0 for those that stay. Moves may cancel in
        a score (a drift common to all features, for example), but not in its rounding errors, which grow with
        :math:`\max_{d \in S} |d|_1`. The shapes are (n_samples, n_combinations), or (1, n_combinations) for bounds of
        common sets.
        """
        n_features = len(weights)
        V = weights * (C @ self.coef)[:, :n_features]
        # Hoelder's inequality: the terms |W_j d_j| add up to at most the largest |W_j| times |d|_1
        sizes = np.abs(C) @ self.map.sizes[:, :n_features].max(axis=1, initial=0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            falls = np.column_stack(
                [np.broadcast_to(_support(sets, v, s), len(s)) for v, s in zip(V, signs.T, strict=True)]
            )
            moved = np.outer(np.atleast_1d(sets.absolute_reach(n_features)), sizes)
        share = 2 * self.map.gamma(dtype) + gamma(2 * n_features + SUPPORT_ROUNDINGS)
        return falls, np.where(moved < self.map.largest(dtype), share * moved, np.inf)

    def falls_in(self, rows: Any, sets: RowSets, weights: Array, C: Array, signs: Array) -> Array:
        falls, doubts = self.pushed(sets, weights, C, signs, rows.dtype)
        return falls + doubts

    def gradients(self, X: Any, C: Array) -> Array:
        return C @ self.coef

    def as_linear(self) -> LinearModel:
        return self

    def after(self, steps: AffineMap) -> LinearModel:
        return LinearModel(self.map.after(steps), self.decision)


def _support(sets: RowSets, v: Array, signs: Array) -> Array:
    """Return the support of each row's set in the direction -v if its sign is 1, and v if it is -1."""
    # if all signs agree, one support serves all rows; otherwise the set must take the signs into account
    if np.all(signs == signs[0]):
        return sets.support(-signs[0] * v)
    return sets.against_labels(signs).support(v)


def quotients(leads: Array, reach: Array) -> Array:
    """Return leads / reach, rounded down: inf where reach is 0, and 0 where the quotient is not a normal number."""
    leads, reach = np.broadcast_arrays(leads, reach)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.where(reach == 0, np.inf, leads / reach * (1 - LAST_BITS))
    return np.where(found >= TINY, found, 0.0)


def overflow_limit(map: RoundedMap, norm: float, weights: Array, dtype: Any) -> float:
    r"""Return the r such that :math:`\|\delta / weights\| \le r` changes scores by less than `map.largest`."""
    farthest = float(np.max(dual_norms(scaled(map.sizes, weights), norm), initial=0.0))
    return map.largest(dtype) / farthest if farthest > 0 else np.inf


def stretch(map: RoundedMap | None, weights: Array, n_features: int, norm: float, dtype: Any) -> float:
    r"""Return a bound on the l2 norm of A delta over :math:`\|\delta / weights\| \le 1`, including rounding."""
    if map is None:
        each = np.broadcast_to(weights, n_features)
        return float(euclidean(each) if norm == np.inf else np.max(np.abs(each))) * (1 + gamma(n_features + 4))
    A, sizes = map.coef * weights, scaled(map.sizes, weights)
    blur = 2 * map.gamma(dtype) * euclidean(sizes.sum(axis=1) if norm == np.inf else sizes)
    if norm == 1:
        # a convex function has its maximum at a corner of the diamond, where one feature moves: the longest column
        found = float(np.max(lengths(A.T), initial=0.0))
    else:
        # LAPACK's singular values have an error of a small multiple of eps |A|, which the second term covers
        spectral = float(np.linalg.norm(A, 2)) * (1 + 1e-10) + gamma(sum(A.shape)) * float(euclidean(A))
        # two bounds: the box with half-widths 1 lies in the ball of radius sqrt(n); and each |(A d)_i| is at most the
        # sum of row i of |A|
        boxed = float(euclidean(np.abs(A).sum(axis=1)))
        found = min(spectral * np.sqrt(n_features), boxed) if norm == np.inf else spectral
    return (found + float(blur)) * (1 + gamma(sum(A.shape))) + np.count_nonzero(sizes) * TINY
