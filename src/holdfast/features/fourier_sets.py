"""What random Fourier features make of sets: radii for all rows alike, and arcs around each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from holdfast._core.arithmetic import norm, ratio
from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast.features.feature_sets import FeatureSets

TANGENT_LIMIT = 1.5
"""The largest change of an angle up to which the tangent is the better start for an arc."""
ROUNDED = 4 * float(np.finfo(np.float64).eps)
"""Roundings of a term of an angle, of the row and of the moved row."""


def angles(inputs: RowSets, frequencies: Array) -> Array:
    r"""Return the largest :math:`|\omega_j^\top d|` over each row's set, shape (n_samples or 1, n_frequencies)."""
    found = [
        inputs.support(v) if inputs.is_symmetric else np.maximum(inputs.support(v), inputs.support(-v))
        for v in frequencies
    ]
    return np.atleast_2d(np.stack(found, axis=-1))


def rounding(X: Array, frequencies: Array, reach: Array) -> Array:
    r"""Return how far, in l2, computed features are off from those of exact numbers, shape (n_samples,).

    Angles of rows far from 0 keep few digits: :math:`n \epsilon |\omega_j|^\top |x|`. Rows without errors are themselves.
    """
    k, n = frequencies.shape
    each = ROUNDED * (n + 1) * (1 + np.abs(X) @ np.abs(frequencies).T + reach)
    return np.where(np.any(reach > 0, axis=1), norm(each, axis=1) / np.sqrt(k), 0.0)


def chord(t: Array) -> Array:
    r"""Return :math:`2 - 2 \cos t = 4 \sin^2(t/2)`, the square of the chord of an arc of up to pi, without cancellation."""
    return 4 * np.square(np.sin(0.5 * np.minimum(t, np.pi)))


def filled(t: Array, total: Array) -> Array:
    r"""Return squares :math:`v_j = \min(t_j^2, c)` that add up to `total`, or all of :math:`t_j^2` where these do not reach it.

    Of all squares below :math:`t_j^2` with that sum they have the largest sum of a concave function: water-filling.
    t has shape (n, k), `total` (n,).
    """
    squares = np.sort(np.square(t), axis=1)
    k = squares.shape[1]
    # with the j smallest at their bounds, the others share the rest
    before = np.cumsum(squares, axis=1) - squares
    levels = (total[:, None] - before) / (k - np.arange(k))
    is_below = levels <= squares
    first = np.where(np.any(is_below, axis=1), np.argmax(is_below, axis=1), k - 1)
    level = np.where(np.any(is_below, axis=1), np.take_along_axis(levels, first[:, None], axis=1)[:, 0], np.inf)
    return np.minimum(np.square(t), np.maximum(level, 0.0)[:, None])


def _lengths(t: Array) -> Array:
    """Return the lengths of chords, which point anywhere: an entry is as large at most, and two add up to root 2 times that."""
    return np.sqrt(chord(t))


Radius = Callable[[Array, Array], Array]
"""From t, shape (n, k), and a bound on the sum of squares of all angles, shape (n,), to radii before they are scaled."""

RADII: dict[tuple[str, float], Radius] = {
    ("published", 2): lambda t, M: np.sqrt(2 * np.sum(np.minimum(2, 0.5 * t**2), axis=1)),
    ("tight", 1): lambda t, M: np.sqrt(2) * np.sum(_lengths(t), axis=1),
    ("tight", 2): lambda t, M: np.sqrt(np.sum(chord(t), axis=1)),
    ("tight", np.inf): lambda t, M: np.max(_lengths(t), axis=1),
    ("spectral", 2): lambda t, M: np.sqrt(t.shape[1] * chord(np.sqrt(M / t.shape[1]))),
    ("water", 1): lambda t, M: np.sqrt(2) * np.sum(_lengths(np.sqrt(filled(t, M))), axis=1),
    ("water", 2): lambda t, M: np.sqrt(np.sum(chord(np.sqrt(filled(t, M))), axis=1)),
}
r"""Radii of changes of :math:`(\cos, \sin)` pairs in a norm of all of them, by bound and norm."""


class _Arcs(NamedTuple):
    """The worst of every arc of every row, each entry of shape (n_samples, k)."""

    value: Array
    """Its support."""
    radial: Array
    """The point that attains it, along the radius and along the tangent."""
    tangential: Array
    h: Array
    """Its Hessian is h (a, b)(a, b)' plus `bend` for the tangent's direction."""
    a: Array
    b: Array
    bend: Array


class ArcSets(FeatureSets):
    r"""Changes of pairs :math:`c\,(\cos \omega_j^\top x, \sin \omega_j^\top x)` around each row.

    Turned by the row's own angles, a pair moves along :math:`c\,(\cos\theta - 1, \sin\theta)`, :math:`|\theta| \le t_{ij}`.
    Where :math:`t_{ij}` is at most `straight`, :math:`o_{ij} = 1`, the tangent :math:`\theta = \omega_j^\top d` is followed
    exactly by all pairs together and the rest by each alone; elsewhere, o = 0, each arc is taken by itself:

    .. math:: t_i(w) = \max_{d \in D_i} \Big(c \sum_j o_{ij} v_{2} \omega_j\Big)^\top d
              + c \sum_j \max_{|\theta| \le t_{ij}} v_1 (\cos\theta - 1) + v_2 (\sin\theta - o_{ij} \theta),

    v being the pair of w turned back by the angle.

    Parameters
    ----------
    inputs, signs, radii
        As for :class:`FeatureSets`; the balls are for rounding.
    cosines, sines : ndarray of shape (n_samples, k)
        Of the angles of the rows.
    frequencies : ndarray of shape (k, n_inputs)
    reach : ndarray of shape (n_samples or 1, k)
        t.
    straight : float
    """

    def __init__(
        self,
        inputs: RowSets,
        signs: Array,
        radii: Array,
        cosines: Array,
        sines: Array,
        frequencies: Array,
        reach: Array,
        straight: float = TANGENT_LIMIT,
        smoothing: float = 0.0,
    ):
        super().__init__(inputs, signs, radii, smoothing)
        self.cosines, self.sines, self.frequencies = cosines, sines, frequencies
        self.reach, self.straight, self.n_inputs = reach, straight, frequencies.shape[1]
        self.n_features = 2 * len(frequencies)
        self.scale = 1 / np.sqrt(len(frequencies))
        self.follows = (reach <= straight).astype(np.float64)
        # of an arc of that length: how far it falls below its tangent, and back along it
        self.dip, self.missed = 0.5 * chord(reach), np.where(reach <= straight, reach - np.sin(reach), 0.0)

    def _of(self, rows: Any, inputs: RowSets, signs: Array, smoothing: float) -> Self:
        reach = self.reach if len(self.reach) == 1 else self.reach[rows]
        own = self.radii[rows], self.cosines[rows], self.sines[rows]
        return type(self)(inputs, signs, *own, self.frequencies, reach, self.straight, smoothing)

    def _turned(self, w: Array) -> tuple[Array, Array]:
        """Return the pairs of w turned back by each row's angles: along the radius and along the tangent."""
        first, second = np.split(w, 2)
        return self.cosines * first + self.sines * second, self.cosines * second - self.sines * first

    def _back(self, radial: Array, tangential: Array) -> Array:
        """Return pairs of each row, given by radius and tangent, as features."""
        pairs = radial * self.cosines - tangential * self.sines, radial * self.sines + tangential * self.cosines
        return self.scale * np.concatenate(pairs, axis=-1)

    def _slopes(self, w: Array) -> Array:
        return self.scale * (self.follows * self._turned(w)[1]) @ self.frequencies

    def _lifted(self, moves: Array) -> Array:
        return self._back(np.zeros(1), self.follows * (moves @ self.frequencies.T))

    @remembered
    def _arcs(self, w: Array) -> _Arcs:
        """Return the worst of every arc, smoothed so that a row's add up to 0.4 of `smoothing` more at most."""
        radial, tangential = (self.signs[:, None] * part for part in self._turned(w))
        smoothing, follows = 0.25 * self.smoothing / (self.scale * len(self.frequencies)), self.follows > 0
        if np.all(follows):
            return self._triangles(radial, tangential, smoothing)
        if not np.any(follows):
            return self._whole_arcs(radial, tangential, smoothing)
        both = zip(
            self._triangles(radial, tangential, smoothing), self._whole_arcs(radial, tangential, smoothing), strict=True
        )
        return _Arcs(*(np.where(follows, one, other) for one, other in both))

    def _triangles(self, radial: Array, tangential: Array, smoothing: float) -> _Arcs:
        """Return the worst of 0 and both ends, where the tangent is followed: in their triangle the rest of the arc lies."""
        # (theta - sin theta) / (1 - cos theta) rises up to pi, so the curve beside the tangent stays in the triangle of 0 and
        # its ends; their maximum is 0 or `height`, smoothed as (h + sqrt(h^2 + s^2)) / 2
        side = np.hypot(tangential, smoothing)
        height = side * self.missed - radial * self.dip
        root = np.hypot(height, 2 * smoothing)
        share, turn = 0.5 * (1 + ratio(height, root)), ratio(tangential, side)
        return _Arcs(
            value=0.5 * (height + root),
            radial=-share * self.dip,
            tangential=share * self.missed * turn,
            h=2 * ratio(np.square(ratio(smoothing, root)), root),
            a=-self.dip,
            b=self.missed * turn,
            bend=share * self.missed * ratio(np.square(ratio(smoothing, side)), side),
        )

    def _whole_arcs(self, radial: Array, tangential: Array, smoothing: float) -> _Arcs:
        """Return the worst of arcs that are taken by themselves."""
        side, end = np.hypot(tangential, smoothing), np.minimum(self.reach, np.pi)
        # |v| cos(theta - angle of v) is largest at the angle of v, or at the end of the arc next to it; the sign of the
        # tangential part only mirrors the arc
        theta = np.minimum(np.arctan2(side, radial), end)
        is_inside = (theta < end) & (theta > 0)
        sine, cosine, turn = np.sin(theta), np.cos(theta), ratio(tangential, side)
        slack = 0.5 * chord(theta)
        return _Arcs(
            value=side * sine - radial * slack,
            radial=-slack,
            tangential=sine * turn,
            h=ratio(is_inside, radial * cosine + side * sine),
            a=-sine,
            b=cosine * turn,
            bend=sine * ratio(np.square(ratio(smoothing, side)), side),
        )

    def least(self, w: Array, thresholds: Sequence[float]) -> Array:
        """Return the least support of sets with each of these for `straight`, which are no larger than its own."""
        radial, tangential = (self.signs[:, None] * part for part in self._turned(w))
        followed, alone = (arcs(radial, tangential, 0.0).value for arcs in (self._triangles, self._whole_arcs))
        found = []
        for straight in thresholds:
            follows = self.reach <= straight
            slopes = self.scale * (follows * tangential) @ self.frequencies
            arcs = self.scale * np.where(follows, followed, alone).sum(axis=1)
            found.append(arcs + (self.inputs.supports_at(slopes) if np.any(follows) else 0.0))
        return np.minimum.reduce(found) + self.radii * norm(w)

    def _rest(self, w: Array) -> tuple[Array, Array]:
        arcs = self._arcs(w)
        return self.scale * arcs.value.sum(axis=1), self._back(arcs.radial, arcs.tangential)

    def _arc_bends(self, w: Array, first: Array) -> tuple[Array, Array, Array]:
        """Return sum_i first_i times the Hessians of the arcs, the entries of 2 x 2 blocks, one for each pair."""
        arcs, f = self._arcs(w), self.scale * np.broadcast_to(first, len(self.signs))[:, None]
        C, S = self.cosines, self.sines
        one, other = arcs.a * C - arcs.b * S, arcs.a * S + arcs.b * C
        h, bend = f * arcs.h, f * arcs.bend
        return (
            np.sum(h * one * one + bend * S * S, axis=0),
            np.sum(h * one * other - bend * S * C, axis=0),
            np.sum(h * other * other + bend * C * C, axis=0),
        )

    def _rest_bends(self, w: Array, first: Array) -> Array:
        blocks = [np.diag(block) for block in self._arc_bends(w, first)]
        return np.block([[blocks[0], blocks[1]], [blocks[1], blocks[2]]])

    def _rest_product(self, w: Array, first: Array, v: Array) -> Array:
        a, b, c = self._arc_bends(w, first)
        one, other = np.split(v, 2)
        return np.concatenate([a * one + b * other, b * one + c * other])

    @cached_property
    def _tangents(self) -> Array:
        """What features gain while their angles do, where these are followed, shape (n_samples, n_features)."""
        return self.scale * np.hstack([-self.follows * self.sines, self.follows * self.cosines])

    def _along(self, axes: Array, rows: slice) -> Array:
        return self._tangents[rows, None] * np.tile(axes @ self.frequencies.T, 2)

    def _slope_gram(self, weights: Array, G: Array) -> Array:
        tangents = self._tangents
        between = self.frequencies @ G @ self.frequencies.T
        return (tangents.T @ (weights[:, None] * tangents)) * np.tile(between, (2, 2))

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        moves = self.inputs.sample(rng, n_draws, self.n_inputs)
        theta = moves @ self.frequencies.T
        return self.signs[:, None] * self._back(np.cos(theta) - 1, np.sin(theta))
