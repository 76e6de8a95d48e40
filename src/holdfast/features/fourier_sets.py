"""Sets of random Fourier features of uncertain rows: balls with radii common to all rows, or arcs around each row."""

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
"""Up to this change of an angle, an arc is bounded better by its tangent."""
ROUNDED = 4 * float(np.finfo(np.float64).eps)
"""Relative rounding error of a term of an angle, for the row and the moved row together."""


def angles(inputs: RowSets, frequencies: Array) -> Array:
    r"""Return the largest :math:`|\omega_j^\top d|` over the set of each row, shape (n_samples or 1, n_frequencies)."""
    found = [
        inputs.support(v) if inputs.is_symmetric else np.maximum(inputs.support(v), inputs.support(-v))
        for v in frequencies
    ]
    return np.atleast_2d(np.stack(found, axis=-1))


def rounding(X: Array, frequencies: Array, reach: Array) -> Array:
    r"""Return a bound on the l2 norm of the rounding error of the features, shape (n_samples,).

    The angles of rows far from 0 are inaccurate, by :math:`n \epsilon |\omega_j|^\top |x|`. Rows without uncertainty
    get 0.
    """
    k, n = frequencies.shape
    each = ROUNDED * (n + 1) * (1 + np.abs(X) @ np.abs(frequencies).T + reach)
    return np.where(np.any(reach > 0, axis=1), norm(each, axis=1) / np.sqrt(k), 0.0)


def chord(t: Array) -> Array:
    r"""Return :math:`2 - 2 \cos t = 4 \sin^2(t/2)`, the squared chord of an arc t <= pi, without cancellation."""
    return 4 * np.square(np.sin(0.5 * np.minimum(t, np.pi)))


def filled(t: Array, total: Array) -> Array:
    r"""Return :math:`v_j = \min(t_j^2, c)`, with c such that they add up to `total`, or inf if that is not possible.

    Water-filling: among all :math:`v_j \le t_j^2` with this sum, they maximise the sum of any concave function of
    :math:`v_j`. t has shape (n, k), and `total` (n,).
    """
    squares = np.sort(np.square(t), axis=1)
    k = squares.shape[1]
    # if the j smallest are at their bounds, the remainder is split equally among the others
    before = np.cumsum(squares, axis=1) - squares
    levels = (total[:, None] - before) / (k - np.arange(k))
    is_below = levels <= squares
    first = np.where(np.any(is_below, axis=1), np.argmax(is_below, axis=1), k - 1)
    level = np.where(np.any(is_below, axis=1), np.take_along_axis(levels, first[:, None], axis=1)[:, 0], np.inf)
    return np.minimum(np.square(t), np.maximum(level, 0.0)[:, None])


def _lengths(t: Array) -> Array:
    """Return the lengths of chords, which bound each entry of a pair; both add up to at most sqrt(2) times that."""
    return np.sqrt(chord(t))


Radius = Callable[[Array, Array], Array]
"""Maps t, shape (n, k), and a bound on the sum of all squared angles, shape (n,), to radii before scaling."""

RADII: dict[tuple[str, float], Radius] = {
    ("published", 2): lambda t, M: np.sqrt(2 * np.sum(np.minimum(2, 0.5 * t**2), axis=1)),
    ("tight", 1): lambda t, M: np.sqrt(2) * np.sum(_lengths(t), axis=1),
    ("tight", 2): lambda t, M: np.sqrt(np.sum(chord(t), axis=1)),
    ("tight", np.inf): lambda t, M: np.max(_lengths(t), axis=1),
    ("spectral", 2): lambda t, M: np.sqrt(t.shape[1] * chord(np.sqrt(M / t.shape[1]))),
    ("water", 1): lambda t, M: np.sqrt(2) * np.sum(_lengths(np.sqrt(filled(t, M))), axis=1),
    ("water", 2): lambda t, M: np.sqrt(np.sum(chord(np.sqrt(filled(t, M))), axis=1)),
}
r"""Functions for the radius of the changes of all :math:`(\cos, \sin)` pairs, by the kind of bound and the norm."""


class _Arcs(NamedTuple):
    """The worst point of each arc of each row; all arrays have shape (n_samples, k)."""

    value: Array
    """The support of the arc."""
    radial: Array
    """The components of the point that attains the support, along the radius and the tangent."""
    tangential: Array
    h: Array
    """The Hessian of the support is h (a, b)(a, b)', plus `bend` in the direction of the tangent."""
    a: Array
    b: Array
    bend: Array


class ArcSets(FeatureSets):
    r"""Changes of pairs :math:`c\,(\cos \omega_j^\top x, \sin \omega_j^\top x)` around each row.

    Rotated by the row's own angles, a pair moves along :math:`c\,(\cos\theta - 1, \sin\theta)`,
    :math:`|\theta| \le t_{ij}`. If :math:`t_{ij}` is at most `straight` (:math:`o_{ij} = 1`), the tangents
    :math:`\theta = \omega_j^\top d` of all pairs share one d, and only the remainder is bounded for each pair alone.
    Otherwise (:math:`o_{ij} = 0`) the whole arc is bounded for each pair alone:

    .. math:: t_i(w) = \max_{d \in D_i} \Big(c \sum_j o_{ij} v_{2} \omega_j\Big)^\top d
              + c \sum_j \max_{|\theta| \le t_{ij}} v_1 (\cos\theta - 1) + v_2 (\sin\theta - o_{ij} \theta),

    where v is the pair of w rotated back by the angle.

    Parameters
    ----------
    inputs, signs, radii
        As for :class:`FeatureSets`; the balls cover rounding only.
    cosines, sines : ndarray of shape (n_samples, k)
        The cosines and sines of the angles of the rows.
    frequencies : ndarray of shape (k, n_inputs)
    reach : ndarray of shape (n_samples or 1, k)
        t, the largest changes of the angles.
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
        # for an arc of length t: 1 - cos t, its fall along the radius, and t - sin t, its lag behind the tangent
        self.dip, self.missed = 0.5 * chord(reach), np.where(reach <= straight, reach - np.sin(reach), 0.0)

    def _of(self, rows: Any, inputs: RowSets, signs: Array, smoothing: float) -> Self:
        reach = self.reach if len(self.reach) == 1 else self.reach[rows]
        own = self.radii[rows], self.cosines[rows], self.sines[rows]
        return type(self)(inputs, signs, *own, self.frequencies, reach, self.straight, smoothing)

    def _turned(self, w: Array) -> tuple[Array, Array]:
        """Return the pairs of w rotated back by each row's angles: the components along the radius and the tangent."""
        first, second = np.split(w, 2)
        return self.cosines * first + self.sines * second, self.cosines * second - self.sines * first

    def _back(self, radial: Array, tangential: Array) -> Array:
        """Return the features of pairs given by their components along the radius and the tangent, for each row."""
        pairs = radial * self.cosines - tangential * self.sines, radial * self.sines + tangential * self.cosines
        return self.scale * np.concatenate(pairs, axis=-1)

    def _slopes(self, w: Array) -> Array:
        return self.scale * (self.follows * self._turned(w)[1]) @ self.frequencies

    def _lifted(self, moves: Array) -> Array:
        return self._back(np.zeros(1), self.follows * (moves @ self.frequencies.T))

    @remembered
    def _arcs(self, w: Array) -> _Arcs:
        """Return the worst point of each arc, smoothed such that all arcs of a row add at most 0.4 of `smoothing`."""
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
        """Return the worst of 0 and the two ends of the arc less its tangent; their triangle contains that curve."""
        # (theta - sin theta) / (1 - cos theta) rises up to pi, so the arc less its tangent stays in the triangle of 0
        # and the two ends. The maximum is 0 or `height`, smoothed as (h + sqrt(h^2 + s^2)) / 2
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
        """Return the worst points of the arcs that are bounded as a whole."""
        side, end = np.hypot(tangential, smoothing), np.minimum(self.reach, np.pi)
        # |v| cos(theta - angle of v) is largest at the angle of v, or at the end of the arc nearest to it; the sign of
        # the tangential part only mirrors the arc
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
        """Return the least support over several values of `straight`, none larger than `self.straight`."""
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
        """Return sum_i first_i times the Hessians of the arcs, as three entries of a symmetric 2 x 2 block per pair."""
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
        """The derivatives of the features by their angles, 0 where o = 0, shape (n_samples, n_features)."""
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
