"""Spreads of scores: convex, positively homogeneous functions of the weights, and smooth approximations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows

FAR = 1e4
"""A feature is centred if its squared mean exceeds this many times its variance."""


class Spread(Protocol):
    """The support function T of a convex set Z, or a smooth function above it whose gradients are points of Z."""

    def value(self, w: Array) -> float:
        """Return T(w)."""
        ...

    def gradient(self, w: Array) -> Array:
        """Return the gradient, or a subgradient."""
        ...

    def hessian(self, w: Array) -> Array:
        """Return the Hessian, for smooth functions only."""
        ...

    def smoothed(self, delta: float) -> Spread:
        """Return a smooth function above T, by an amount of the order of `delta` in units of the scores."""
        ...

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w nearer to kinks of T, as `RowSets.snapped_to_kinks` does."""
        ...


class Squares(Protocol):
    """A sum of squares of positively homogeneous functions of w."""

    def value(self, w: Array) -> float:
        """Return the sum."""
        ...

    def slope(self, w: Array) -> Array:
        """Return half its gradient."""
        ...

    def bend(self, w: Array) -> Array:
        """Return half its Hessian."""
        ...

    def smoothed(self, delta: float) -> Squares:
        """Return a smooth sum above this one."""
        ...

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w nearer to kinks, as `RowSets.snapped_to_kinks` does."""
        ...


@dataclass(frozen=True)
class Quadratic:
    """w'M w, smoothed by the square of `smoothing`."""

    matrix: Array
    smoothing: float = 0.0

    def value(self, w: Array) -> float:
        return max(float(w @ self.matrix @ w), 0.0) + self.smoothing**2

    def slope(self, w: Array) -> Array:
        return self.matrix @ w

    def bend(self, w: Array) -> Array:
        return self.matrix

    def smoothed(self, delta: float) -> Quadratic:
        return Quadratic(self.matrix, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return w


@dataclass(frozen=True)
class CentredRows:
    r"""The sum :math:`\sum_i p_i (w^\top (x_i - \mu))^2`, from scores: more exact near 0 than from a covariance."""

    rows: Rows
    mean: Array
    shares: Array
    covariance: Array

    def _scores(self, w: Array) -> Array:
        return self.rows.dot(w) - self.mean @ w

    def value(self, w: Array) -> float:
        return float(self.shares @ np.square(self._scores(w)))

    def slope(self, w: Array) -> Array:
        return centred_pull(self.rows, self.mean, self.shares * self._scores(w))

    def bend(self, w: Array) -> Array:
        return self.covariance

    def smoothed(self, delta: float) -> CentredRows:
        return self

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return w


class _Pushes(NamedTuple):
    """The quantities of `PushedRows` at some weights, one entry for each row."""

    u: Array
    s: Array
    shares: list[Array]
    """Each side's part of the gradient of u."""
    leanings: list[float]
    """Each side's part of the gradient of d, the argument of the root in u."""
    bends: Array


@dataclass(frozen=True)
class PushedRows:
    r"""The sum :math:`\sum_i p_i u_i^2` of squared distances of scores from a mean's score, at worst points of sets:

    .. math:: u_i = \max_{\delta \in S_i} |w^\top (x_i - \mu + \delta)| = \max(a_i + h_i(w), -a_i + h_i(-w)),
              \qquad a_i = w^\top (x_i - \mu),

    smoothed, with :math:`d = a + (h(w) - h(-w))/2`, to :math:`(h(w) + h(-w))/2 + \sqrt{d^2 + \epsilon^2}`. Its
    gradient is a mean of the gradients of both sides, at points of the sets.

    Parameters
    ----------
    rows : Rows
    mean : ndarray of shape (n_features,)
    shares : ndarray of shape (n_samples,)
        p >= 0.
    sides : tuple of RowSets
        S and -S, or S alone where it is symmetric.
    smoothing : float
    """

    rows: Rows
    mean: Array
    shares: Array
    sides: tuple[RowSets, ...]
    smoothing: float = 0.0

    @classmethod
    def of(cls, rows: Rows, mean: Array, shares: Array, sets: RowSets) -> PushedRows:
        """Return the sum for these sets."""
        one = np.ones(rows.n_samples)
        return cls(
            rows,
            mean,
            shares,
            (sets,) if sets.is_symmetric else (sets.against_labels(-one), sets.against_labels(one)),
        )

    @remembered
    def _pushes(self, w: Array) -> _Pushes:
        up, down = self.sides[0].support(w), self.sides[-1].support(w)
        d = self.rows.dot(w) - self.mean @ w + 0.5 * (up - down)
        root = np.hypot(d, self.smoothing)
        u = 0.5 * (up + down) + root
        inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        s = d * inverse
        is_single = len(self.sides) == 1
        shares = [np.ones_like(s)] if is_single else [0.5 * (1 + s), 0.5 * (1 - s)]
        bends = self.shares * u * np.square(self.smoothing * inverse) * inverse
        return _Pushes(u, s, shares, [0.0] if is_single else [0.5, -0.5], bends)

    def value(self, w: Array) -> float:
        return float(self.shares @ np.square(self._pushes(w).u))

    def slope(self, w: Array) -> Array:
        now = self._pushes(w)
        r = self.shares * now.u
        parts = zip(self.sides, now.shares, strict=True)
        pull = centred_pull(self.rows, self.mean, r * now.s)
        return pull + np.sum([side.adjoint(w, r * share) for side, share in parts], axis=0)

    def bend(self, w: Array) -> Array:
        p, now = self.shares, self._pushes(w)
        r, s, e = p * now.u, now.s, now.bends
        out = centred_gram(self.rows, self.mean, p * np.square(s) + e)
        parts = list(zip(self.sides, now.shares, now.leanings, strict=True))
        for side, share, leaning in parts:
            weights = p * s * share + e * leaning
            cross = side.cross(w, self.rows, weights) - np.outer(self.mean, side.adjoint(w, weights))
            out += cross + cross.T
            out += side.curvature(w, r * share, p * np.square(share) + e * leaning**2)
        for (one, share, leaning), (other, its_share, its_leaning) in combinations(parts, 2):
            cross = one.cross_with(other, w, p * share * its_share + e * leaning * its_leaning)
            out += cross + cross.T
        return out

    def smoothed(self, delta: float) -> PushedRows:
        return PushedRows(self.rows, self.mean, self.shares, tuple(side.smoothed(delta) for side in self.sides), delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return self.sides[0].snapped_to_kinks(w, delta, factor)


def from_middle(rows: Rows, shares: Array) -> tuple[Rows, Array]:
    """Centre the features whose mean is large relative to their spread; return the rows and the offset subtracted.

    For the other features the squared mean can be subtracted from the mean square later without loss of precision.
    """
    mean = rows.transpose_dot(shares)
    variances = np.maximum(rows.square_sums(shares) - np.square(mean), 0.0)
    offset = np.where(np.square(mean) > FAR * variances, mean, 0.0)
    return (rows.shifted(offset), offset) if np.any(offset) else (rows, offset)


def centred_pull(rows: Rows, mean: Array, r: Array) -> Array:
    """Return sum_i r_i (x_i - mean), shape (n_features,)."""
    return rows.transpose_dot(r) - float(np.sum(r)) * mean


def centred_gram(rows: Rows, mean: Array, weights: Array) -> Array:
    """Return sum_i weights_i (x_i - mean)(x_i - mean)', shape (n_features, n_features)."""
    off = np.outer(mean, rows.transpose_dot(weights) - 0.5 * float(np.sum(weights)) * mean)
    return rows.gram(weights) - off - off.T


@dataclass(frozen=True)
class RootOfSquares:
    """The root of a sum of squares."""

    parts: Sequence[Squares]

    def value(self, w: Array) -> float:
        return float(np.sqrt(sum(part.value(w) for part in self.parts)))

    def slope(self, w: Array) -> Array:
        """Return half the gradient of the sum."""
        return np.asarray(np.sum([part.slope(w) for part in self.parts], axis=0))

    def gradient(self, w: Array) -> Array:
        size, slope = self.value(w), self.slope(w)
        return slope / size if size > 0 else np.zeros_like(slope)

    def hessian(self, w: Array) -> Array:
        gradient = self.gradient(w)
        bend = np.sum([part.bend(w) for part in self.parts], axis=0)
        return np.asarray(bend - np.outer(gradient, gradient)) / self.value(w)

    def smoothed(self, delta: float) -> RootOfSquares:
        return RootOfSquares([part.smoothed(delta) for part in self.parts])

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return _drawn_in(self.parts, w, delta, factor)


@dataclass(frozen=True)
class SumOfSupports:
    """sum_i r_i h_i(w) for budgets r >= 0."""

    sets: RowSets
    budgets: Array

    def value(self, w: Array) -> float:
        return float(np.sum(self.budgets * self.sets.support(w)))

    def gradient(self, w: Array) -> Array:
        return self.sets.adjoint(w, self.budgets)

    def hessian(self, w: Array) -> Array:
        return self.sets.curvature(w, self.budgets, np.zeros_like(self.budgets))

    def smoothed(self, delta: float) -> SumOfSupports:
        return SumOfSupports(self.sets.smoothed(delta), self.budgets)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return self.sets.snapped_to_kinks(w, delta, factor)


@dataclass(frozen=True)
class Total:
    """A sum of spreads; an empty sum is 0."""

    parts: Sequence[Spread]

    def value(self, w: Array) -> float:
        return float(sum(part.value(w) for part in self.parts))

    def gradient(self, w: Array) -> Array:
        return np.asarray(sum((part.gradient(w) for part in self.parts), np.zeros(len(w))))

    def hessian(self, w: Array) -> Array:
        return np.asarray(sum((part.hessian(w) for part in self.parts), np.zeros((len(w), len(w)))))

    def smoothed(self, delta: float) -> Total:
        return Total([part.smoothed(delta) for part in self.parts])

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return _drawn_in(self.parts, w, delta, factor)


def _drawn_in(parts: Sequence[Any], w: Array, delta: float, factor: float) -> Array:
    """Return w with each entry moved to the kinks as far as the part that moves it most."""
    drawn = np.array([w, *(part.snapped_to_kinks(w, delta, factor) for part in parts)])
    return np.take_along_axis(drawn, np.argmax(np.abs(drawn - w), axis=0)[None], axis=0)[0]
