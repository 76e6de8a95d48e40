"""Fitted classifiers as certificates see them: scores, their rounding errors, and how fast they can change."""

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
"""Share by which a quotient or a root is lowered, which is more than its last few roundings."""
TINY = float(np.finfo(np.float64).tiny)
"""The smallest normal number: below it, rounding errors are no longer a share of a number."""


SUPPORT_ROUNDINGS = 24
"""Roundings of a support function besides those of its sum over the features: scales, roots and the final product."""


def scaled(sizes: Array, weights: Array) -> Array:
    """Return products of sizes and weights, both >= 0, rounded up: a product that underflows counts as `TINY`."""
    return np.where((sizes > 0) & (weights > 0), np.maximum(sizes * weights, TINY), 0.0)


def dual_norms(V: Array, norm: float) -> Array:
    r"""Return the dual norm of each row v, the largest :math:`v^\top \delta` over :math:`\|\delta\| \le 1`."""
    return {
        1: lambda: np.abs(V).max(axis=1, initial=0.0),
        2: lambda: lengths(V),
        np.inf: lambda: np.abs(V).sum(axis=1),
    }[norm]()


def lengths(V: Array) -> Array:
    """Return the l2 norm of each row; squares neither under- nor overflow."""
    largest = np.abs(V).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return unit * np.sqrt(np.sum(np.square(V / unit[:, None]), axis=1))


class Model(ABC):
    """A classifier whose scores have bounded changes.

    Parameters
    ----------
    decision : Decision
        The rule from scores to classes.
    """

    method: str
    """How its certificates are found, in words."""
    decision: Decision
    n_features: int

    @property
    def n_columns(self) -> int:
        """How many numbers a row turns into on the way to its leads."""
        return max(self.n_features, self.decision.n_scores)

    def n_entries(self, X: Any) -> int:
        """Return how many numbers are held for each of the rows X, on average."""
        return self.n_columns

    @abstractmethod
    def scores(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of rows, and bounds on their rounding errors here or in the model, (n_samples, n_scores)."""

    @abstractmethod
    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        r"""Return what `radii` needs for perturbations :math:`\|\delta / weights\| \le r`, in the form of `Decision.table`."""

    @abstractmethod
    def radii(self, leads: Array, reach: Array) -> Array:
        """Return the r up to which no perturbation makes a lead <= 0, from the rows' leads > 0 and their `reach`."""

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        """Return the r beyond which scores may overflow, though they do not at the rows themselves."""
        return np.inf

    @abstractmethod
    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        """Return by how much combinations C f can fall where entries go down by at most `below` and up by at most `above`."""

    @abstractmethod
    def falls_in(self, rows: Any, sets: RowSets, weights: Array, C: Array, signs: Array) -> Array:
        """Return by how much `signs` times C f can fall, (n_samples, n_combinations), where rows move in sets.

        `weights` are 1 for those of the first features that move, and 0 for those that stay. The result includes rounding of
        the sets and of the bound, but not that of the scores, at the rows or at moved rows.
        """

    def refined(self, rows: Any, found: Leads, radii: Array, norm: float, weights: Array) -> Array:
        """Return radii no smaller than those given, from bounds around these rows; `radii` are proved already."""
        return radii

    @abstractmethod
    def gradients(self, X: Any, C: Array) -> Array:
        """Return the gradient of the combination c_i'f of scores at each row x_i, shape (n_samples, n_features).

        C has shape (n_samples, n_scores).
        """

    def as_linear(self) -> LinearModel | None:
        """Return the model as a linear one, None for others."""
        return None

    @abstractmethod
    def after(self, steps: AffineMap) -> Model:
        """Return the model of rows that pass these steps first."""


class LinearModel(Model):
    """Scores that are an affine map of the rows. Certificates are exact up to rounding.

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
        # weights are rounded here and in the model, hence twice the blur; the sum over features adds digits of its own
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
        # two roundings: of the weights here, and of the scores that the model computes at the moved row
        share = 2 * self.map.gamma(dtype)
        V, sizes = C @ self.coef, share * (np.abs(C) @ self.map.sizes)
        blur = (below + above) @ sizes.T
        fall = below @ np.maximum(V, 0.0).T + above @ np.maximum(-V, 0.0).T + blur
        # beyond a quarter of the largest number scores may overflow, where the bound on rounding says nothing
        return np.where(blur < share * self.map.largest(dtype), fall * (1 + gamma(self.n_features + 4)), np.inf)

    def pushed(self, sets: RowSets, weights: Array, C: Array, signs: Array, dtype: Any) -> tuple[Array, Array]:
        r"""Return by how much `signs` times C f falls at the worst points of the first features' sets, and bounds on rounding.

        `weights` are 1 for features that move, 0 for those that stay. Moves may cancel in a score but not in its rounding
        errors, as a drift common to all features does, so these grow with :math:`\max_{d \in S} |d|_1`. Shapes
        (n_samples, n_combinations), or (1, n_combinations) for the bounds.
        """
        n_features = len(weights)
        V = weights * (C @ self.coef)[:, :n_features]
        # Hoelder: the terms |W_j d_j| add up to at most the largest size times |d|_1
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
    """Return how far each row's set reaches against v where its sign is 1, and along v where it is -1."""
    # one support for all rows; only rows that are turned both ways need a set that knows their signs
    if np.all(signs == signs[0]):
        return sets.support(-signs[0] * v)
    return sets.against_labels(signs).support(v)


def quotients(leads: Array, reach: Array) -> Array:
    """Return leads / reach, rounded down: inf where nothing is reached, 0 where the quotient is not a normal number."""
    leads, reach = np.broadcast_arrays(leads, reach)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.where(reach == 0, np.inf, leads / reach * (1 - LAST_BITS))
    return np.where(found >= TINY, found, 0.0)


def overflow_limit(map: RoundedMap, norm: float, weights: Array, dtype: Any) -> float:
    r"""Return the r up to which :math:`\|\delta / weights\| \le r` moves no score as far as a quarter of the largest number."""
    farthest = float(np.max(dual_norms(scaled(map.sizes, weights), norm), initial=0.0))
    return map.largest(dtype) / farthest if farthest > 0 else np.inf


def stretch(map: RoundedMap | None, weights: Array, n_features: int, norm: float, dtype: Any) -> float:
    r"""Return a bound on the l2 norm of A delta over :math:`\|\delta / weights\| \le 1`, with what rounding adds to it."""
    if map is None:
        each = np.broadcast_to(weights, n_features)
        return float(euclidean(each) if norm == np.inf else np.max(np.abs(each))) * (1 + gamma(n_features + 4))
    A, sizes = map.coef * weights, scaled(map.sizes, weights)
    blur = 2 * map.gamma(dtype) * euclidean(sizes.sum(axis=1) if norm == np.inf else sizes)
    if norm == 1:
        # a convex function is largest at a corner of the diamond, which is one feature moved alone: the longest column
        found = float(np.max(lengths(A.T), initial=0.0))
    else:
        # LAPACK computes singular values to within a small multiple of eps |A|, which the second term covers
        spectral = float(np.linalg.norm(A, 2)) * (1 + 1e-10) + gamma(sum(A.shape)) * float(euclidean(A))
        # a box of half-widths 1 lies in the ball of radius sqrt(n); entry by entry |A d| is at most the row sum of |A|
        boxed = float(euclidean(np.abs(A).sum(axis=1)))
        found = min(spectral * np.sqrt(n_features), boxed) if norm == np.inf else spectral
    return (found + float(blur)) * (1 + gamma(sum(A.shape))) + np.count_nonzero(sizes) * TINY
