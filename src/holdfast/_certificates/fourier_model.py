"""Certificate models that are linear in random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._certificates.curved_models import OUTWARD, Around, CurvedModel, longest, moved_by, units_of
from holdfast._certificates.decisions import Decision
from holdfast._certificates.models import (
    LAST_BITS,
    TINY,
    dual_norms,
    lengths,
    overflow_limit,
    quotients,
    scaled,
    stretch,
)
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.arithmetic import dense
from holdfast._core.rounding import Array, gamma
from holdfast._core.row_sets import RowSets
from holdfast.features.fourier_sets import ArcSets, angles
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.row_scaled import RowScaledSets

THRESHOLDS = (0.0, 0.75, 1.5, 3.0)
"""Values of `straight`, at most pi, to try: up to this change an angle follows its tangent. Each row keeps the best."""


class _Pairs(NamedTuple):
    """Weighted (cos, sin) pairs; all cosines whose angles differ only by constants are merged into one pair."""

    chosen: NDArray[np.intp]
    """The index of the first angle of each pair, shape (n_pairs,)."""
    weights: Array
    """The weights of all cosines, then of all sines, shape (n_scores, 2 n_pairs)."""


@dataclass(frozen=True)
class FourierAround(Around):
    """Bounds on combinations of scores of Fourier features around rows, by the sets that training uses too."""

    units: Array
    """Powers of 2 by which all numbers of the combinations below are divided, (n_combinations,)."""
    sets: RowSets
    """The sets of the rows."""
    frequencies: Array
    """The frequencies of the pairs, shape (n_pairs, n_moving)."""
    cosines: Array
    """The cosines of the angles, shape (n_samples, n_pairs), like `sines`."""
    sines: Array
    weights: Array
    """The weights of pairs in the combinations, shape (n_combinations, 2 n_pairs)."""
    amplitudes: Array
    """The amplitudes |v| of pairs in the combinations, rounded up, shape (n_combinations, n_pairs)."""
    turns: Array
    """The largest changes of angles, shape (n_samples, n_pairs)."""
    pushes: Array
    """How far the linearised combinations can fall and rise, shape (2, n_samples, n_combinations)."""
    spans: Array
    """Square roots of the largest sums of amplitudes times squared changes of angles, (n_samples, n_combinations)."""
    growth: Array
    """Bounds on the effect of rounding of moved angles on a change, shape (n_samples, n_combinations)."""
    doubts: Array
    """Bounds on the effect of rounding of the angles at the rows, of the same shape."""
    most: Array
    """The largest possible fall, as cosines stay within -1 and 1, shape (n_combinations,)."""

    n_bounds = 2

    def take(self, rows: Any) -> Self:
        own = ("cosines", "sines", "turns", "spans", "growth", "doubts")
        some = {name: getattr(self, name)[rows] for name in own}
        return replace(self, sets=self.sets.take(rows), pushes=self.pushes[:, rows], **some)

    def falls(self, number: int, signs: Array, factors: Array) -> Array:
        found = (self._by_arcs if number else self._together)(signs, factors)
        return self.units * (np.minimum(found + factors[:, None] * self.growth, self.most) + self.doubts)

    def _together(self, signs: Array, factors: Array) -> Array:
        r"""Return bounds from the largest :math:`S = \sum_j |v_j| \theta_j^2` over all changes of angles.

        The first is the fall along the tangent plus S/2 (Taylor). The second is the sum of chords
        :math:`2 |v_j| \sin(\theta_j / 2)`. A chord is concave in :math:`\theta_j^2`, so by Jensen's inequality their
        weighted mean is at most the chord at the weighted mean of all squares.
        """
        squares, total = np.square(factors[:, None] * self.spans), self.amplitudes.sum(axis=1)
        chords = 2 * total * np.sin(0.5 * np.minimum(np.sqrt(squares / total), np.pi))
        along = factors[:, None] * np.where(signs > 0, *self.pushes) + 0.5 * squares
        # without waves both S and the sum of amplitudes are 0, and their quotient is nan
        return np.fmin(along, np.where(total > 0, chords, 0.0)) * OUTWARD

    def _by_arcs(self, signs: Array, factors: Array) -> Array:
        """Return supports of arcs: each angle moves independently, or along its tangent together with others."""
        sets = RowScaledSets(self.sets, factors) if self.sets.is_common else self.sets
        t, (n, k) = factors[:, None] * self.turns, self.cosines.shape
        none, found = np.zeros(n), np.empty(signs.shape)
        rounded = gamma(4 * k + 2 * self.frequencies.shape[1] + 60)
        for rival, w in enumerate(self.weights):
            arcs = ArcSets(sets, -signs[:, rival], none, self.cosines, self.sines, self.frequencies, t, THRESHOLDS[-1])
            found[:, rival] = arcs.least(w, THRESHOLDS) / arcs.scale
        return found + rounded * (np.minimum(t, 4.0) + 4.0) @ self.amplitudes.T


class FourierModel(CurvedModel):
    r"""Scores :math:`\sum_d a_d \cos(\omega_d^\top x + c_d) + b`, linear in random Fourier features.

    As :math:`|\sin| \le 1`, the Lipschitz constant of a score is at most :math:`\| |a| |\Omega| \|_*`, and for the l2
    norm also at most :math:`\|a\|_2 \|\Omega\|_2`. Around a row, :class:`FourierAround` is tighter. All bounds are
    valid, none is exact.

    Parameters
    ----------
    map : RoundedMap
        Maps x to the angles.
    output : RoundedMap
        Maps cosines to scores: a and b.
    decision : Decision
    """

    method = "random Fourier features: tangents and arcs around each row, Lipschitz constant"

    def __init__(self, map: RoundedMap, output: RoundedMap, decision: Decision):
        self.map, self.output, self.decision, self.n_features = map, output, decision, map.n_features

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.map.coef))

    def after(self, steps: AffineMap) -> FourierModel:
        return FourierModel(self.map.after(steps), self.output, self.decision)

    def scores(self, X: Any) -> tuple[Array, Array]:
        # cos is Lipschitz with constant 1, so the error of a cosine is at most that of its angle
        angles, blur = self.map(X)
        sizes = self.output.sizes
        # cosines and their slopes are at most 1, and libraries round them to a few units in the last place
        blur = blur + gamma(8, self.map.kind(X.dtype))
        errors = self.output.gamma(X.dtype) * (2 * sizes.sum(axis=1) + self.output.offset_sizes)
        values = np.cos(angles) @ self.output.coef.T + self.output.intercept
        return values, errors + (blur @ sizes.T) * (1 + 1e-9)

    def _bounds_of_slopes(self, C: Array, weights: Array, dtype: Any) -> Array:
        """Return bounds on the absolute partial derivatives of combinations C f, shape (n_combinations, n_features)."""
        sizes = np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes
        outer, inner = np.abs(C @ self.output.coef), scaled(sizes, weights)
        underflow = TINY * ((outer > 0).astype(np.float64) @ (inner > 0))
        return outer @ inner * (1 + gamma(sum(sizes.shape))) + underflow

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        n = self.n_features
        spectral = stretch(self.map, weights, n, 2, dtype) * (np.sqrt(n) if norm == np.inf else 1.0)

        def of(C: Array) -> Array:
            together = lengths(C @ self.output.coef) * (1 + gamma(len(self.map.coef)))
            slopes = self._bounds_of_slopes(C, weights, dtype)
            return np.minimum(dual_norms(slopes, norm), scaled(together, np.asarray(spectral)))

        return self.decision.table(of) * (1 + LAST_BITS)

    def radii(self, leads: Array, reach: Array) -> Array:
        return quotients(leads, reach)

    def limit(self, norm: float, weights: Array, dtype: Any) -> float:
        return overflow_limit(self.map, norm, weights, dtype)

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(dense(below), dense(above))
        slopes = self._bounds_of_slopes(C, np.ones(self.n_features), dtype)
        return np.asarray(farthest @ slopes.T * (1 + gamma(self.n_features + 4)))

    @cached_property
    def _pairs(self) -> _Pairs:
        # maps with both cosines and sines have each frequency twice; merged into one wave, their changes may cancel
        _, chosen, pair = np.unique(dense(self.map.last), axis=0, return_index=True, return_inverse=True)
        pair = pair.ravel()
        ahead = self.map.intercept - self.map.intercept[chosen[pair]]
        which = np.zeros((len(pair), len(chosen)))
        which[np.arange(len(pair)), pair] = 1.0
        a = self.output.coef
        return _Pairs(chosen, np.hstack([(a * np.cos(ahead)) @ which, -(a * np.sin(ahead)) @ which]))

    def around(self, X: Any, sets: RowSets, weights: Array, C: Array) -> FourierAround:
        chosen, pairs = self._pairs
        at, blur = self.map(X)
        A, growth = moved_by(self.map, sets, X.shape[0], weights, X.dtype)
        sizes = np.abs(C) @ self.output.sizes
        # without units, squares of extreme weights would under- or overflow below
        units = units_of(sizes.sum(axis=1))[:, None]
        W, sizes, frequencies = C @ pairs / units, sizes / units, A[chosen]
        # angles merged into one pair were rounded separately; here, a score has two more roundings of an angle, its
        # pair three
        doubts = (6 * blur + gamma(40) * (2 + np.abs(self.map.intercept))) @ sizes.T
        total = sizes.sum(axis=1)
        (n, k), first, second = (X.shape[0], len(chosen)), *np.split(W, 2, axis=1)
        cosines, sines = np.cos(at[:, chosen]), np.sin(at[:, chosen])
        slopes = np.array([(cosines * b - sines * a) @ frequencies for a, b in zip(first, second, strict=True)])
        amplitudes = np.hypot(first, second) * OUTWARD
        turns = np.broadcast_to(angles(sets, frequencies), (n, k))
        # sum_j v_j theta_j^2 is the squared length of the moves times the frequencies, each weighted by sqrt(v_j)
        spans = [longest(sets, np.sqrt(v)[:, None] * frequencies, np.sqrt(v) * turns) for v in amplitudes]
        pushes = np.array([[sets.supports_at(sign * each) for each in slopes] for sign in (-1.0, 1.0)])
        # rounding of the sums in the slopes
        rounded = gamma(2 * k + 2 * len(weights) + 60) * (turns @ amplitudes.T)
        return FourierAround(
            units=units[:, 0],
            sets=sets,
            frequencies=frequencies,
            cosines=cosines,
            sines=sines,
            weights=W,
            amplitudes=amplitudes,
            turns=turns * (1 + LAST_BITS),
            pushes=pushes.transpose(0, 2, 1),
            spans=np.column_stack(spans),
            growth=growth @ sizes.T + rounded,
            doubts=doubts + (gamma(4 * sizes.shape[1] + 40) + 2 * self.output.gamma(X.dtype)) * total,
            most=2 * total,
        )

    def gradients(self, X: Any, C: Array) -> Array:
        return -((C @ self.output.coef) * np.sin(self.map(X)[0])) @ self.map.coef
