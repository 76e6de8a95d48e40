"""What features of an RBF kernel make of sets: balls for all rows alike, tangents, and intervals of kernel values."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.spatial.distance import cdist

from holdfast._core.arithmetic import norm, spectral_norm
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast.features.carrying import extents
from holdfast.features.feature_sets import FeatureSets
from holdfast.features.gram import rbf_values

TANGENT_LIMIT = 0.5
"""The largest :math:`2 \\gamma g^2` up to which tangents are better than the ball."""
EPS = float(np.finfo(np.float64).eps)


def ball_radius(reach: Array, gamma: float) -> Array:
    r"""Return :math:`\sqrt{2 - 2 e^{-\gamma g^2}}`: how far the feature of a point goes while the point goes g, in l2."""
    return np.sqrt(-2 * np.expm1(-gamma * np.square(reach)))


def beyond_tangent(reach: Array, gamma: float) -> Array:
    r"""Return :math:`\sqrt{2 - 2e + r - 2re}`, :math:`r = 2\gamma g^2, e = e^{-r/2}`: what the tangent misses within g."""
    r = 2 * gamma * np.square(reach)
    # of order r^2 while its terms are of order r: with e - 1 in place of e the 2 - 2e is exact, and eps r is added for the
    # rest
    fall = np.expm1(-0.5 * r)
    return np.sqrt(np.maximum(-2 * fall - r - 2 * r * fall, 0.0) + 8 * EPS * r)


class Distances(NamedTuple):
    """Distances of landmarks from rows that move in multiples of sets."""

    rows: Array
    points: Array
    gamma: float
    squares: Array
    """Of the rows as they are, shape (n_samples, m)."""
    toward: Array
    """How far errors go towards the landmarks, times the distance, (n_samples, m); inf, (n_samples, 1), if not asked."""
    back: Array
    """How far they go away from them."""
    below: Array
    """How far they go down and up, (n_samples, n_inputs)."""
    above: Array
    is_box: bool
    """Whether the sets are boxes."""

    def take(self, rows: Any) -> Distances:
        """Return those of some rows."""
        own = ("rows", "squares", "toward", "back", "below", "above")
        return self._replace(**{name: getattr(self, name)[rows] for name in own})

    def ranges(self, reach: Array, factors: Array) -> tuple[Array, Array]:
        r"""Return the lowest and highest values of k_j over `factors` times the sets, or bounds on these, shape (n_samples, m).

        From the squared distance by coordinates, exact for boxes; by `reach`, the l2 length of errors, exact for balls; and by
        :math:`|x - l|^2 + 2 (x - l)^\top d + |d|^2`, with the support of the set.
        """
        g, factors, distances = reach[:, None], factors[:, None], np.sqrt(self.squares)
        # |d|^2 >= 0 is dropped on the near side, and at most g^2 on the far one
        nearest = np.maximum(np.square(np.maximum(distances - g, 0.0)), self.squares - 2 * factors * self.toward)
        farthest = np.minimum(np.square(distances + g), self.squares + 2 * factors * self.back + np.square(g))
        if self.is_box:
            least, most = np.zeros((2, *self.squares.shape))
            for x, point, down, up in zip(self.rows.T, self.points.T, self.below.T, self.above.T, strict=True):
                away, down, up = x[:, None] - point, factors * down[:, None], factors * up[:, None]
                least += np.square(np.maximum(np.maximum(away - down, -away - up), 0.0))
                most += np.square(np.maximum(np.abs(away - down), np.abs(away + up)))
            nearest, farthest = np.maximum(nearest, least), np.minimum(farthest, most)
        # differences of what is about the same size round by more than they are
        nearest = np.maximum(nearest - 8 * (self.rows.shape[1] + 2) * EPS * self.squares, 0.0)
        return np.exp(-self.gamma * farthest), np.exp(-self.gamma * nearest)


class Landmarks(NamedTuple):
    r"""Features :math:`\phi(x) = T^{-1} k(x)` of :math:`k_j(x) = e^{-\gamma |x - l_j|^2}`, T T' the kernel of landmarks l."""

    points: Array
    """l, shape (m, n_inputs)."""
    gamma: float
    normalization: Array
    """T^-1, shape (m, m)."""

    def values(self, X: Array) -> Array:
        """Return k_j(x), shape (n_samples, m)."""
        return rbf_values(X, self.points, self.gamma)

    def gain(self) -> float:
        r"""Return :math:`\|T^{-1} K T^{-\top}\|^{1/2}`, 1 but for rounding, rounded up.

        Changes of k in the kernel's space by r are at most that times r in the features as they are computed.
        """
        # T^-1 K T^-T should be the identity; its largest eigenvalue is by how much the computed features overshoot, squared
        m, d = self.points.shape
        found = self.normalization @ rbf_values(self.points, self.points, self.gamma) @ self.normalization.T
        rounded = m * (d + 3) * EPS * spectral_norm(self.normalization) ** 2
        return float(np.sqrt(np.linalg.eigvalsh(found)[-1] + rounded)) * (1 + 1e-12)

    def rounding(self, X: Array) -> Array:
        """Return how far, in l2, computed features are off from those of exact numbers, shape (n_samples,).

        Kernel values are rounded, and sums of them by T^-1; moved rows far from 0 are too.
        """
        # each value of the kernel is off by a few eps, and T^-1 adds up m of them; rounding of a moved row by eps |x| moves a
        # feature by at most sqrt(2 gamma) eps |x|
        m, d = self.points.shape
        back = np.sqrt(m) * (m + d + 4) * float(np.linalg.norm(self.normalization))
        return 2 * EPS * (back + np.sqrt(8 * self.gamma) * norm(X, axis=1))

    def around(self, X: Array, inputs: RowSets) -> Distances:
        """Return what is known of distances of the landmarks from rows that move in sets."""
        below, above = extents(inputs, X.shape)
        corner = np.broadcast_to(inputs.support(np.ones(X.shape[1])), len(X))
        # a box reaches its upper corner, where the support along (1, ..., 1) is the sum of all ends; for other sets that
        # reach it the box is a bound all the same
        is_box = bool(np.all(corner >= (1 - 1e-9) * above.sum(axis=1)))
        squares = cdist(X, self.points, "sqeuclidean")
        none = np.full((len(X), 1), np.inf)
        # exact by coordinates, or by the length of errors alone
        toward, back = (none, none) if is_box or inputs.is_isotropic else self._pulls(X, inputs)
        return Distances(X, self.points, self.gamma, squares, toward, back, below, above, is_box)

    def _pulls(self, X: Array, inputs: RowSets) -> tuple[Array, Array]:
        """Return how far errors go towards landmarks and away from them, times the distance, each of shape (n_samples, m)."""
        back = np.column_stack([inputs.supports_at(X - point) for point in self.points])
        if inputs.is_symmetric:
            return back, back
        return np.column_stack([inputs.supports_at(point - X) for point in self.points]), back

    def published_squares(self, X: Array, inputs: RowSets, values: Array, reach: Array) -> Array:
        r"""Return :math:`\sum_j k_j^2 (\tau_j^{-2} + 1 - 2 \rho \tau_j)`, which published squares of changes of k exceed.

        :math:`\tau_j = e^{-2\gamma \max_d (x - l_j)^\top d}`, :math:`\rho = e^{-\gamma g^2}`; times the number of landmarks as
        published. The factor is not needed. No more than 1 of each, as values of k are between 0 and 1.
        """
        pulls = np.maximum(*self._pulls(X, inputs))
        tau, rho = np.exp(-2 * self.gamma * pulls), np.exp(-self.gamma * np.square(reach))[:, None]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.sum(np.fmin(np.square(values) * (tau**-2.0 + 1 - 2 * rho * tau), 1.0), axis=1)


class TangentBalls(FeatureSets):
    r"""Changes of :class:`Landmarks` features around each row: slopes times the error, and a ball.

    .. math:: t_i(w) = \max_{d \in D_i} (J_i^\top w)^\top d + \rho_i |w|_2, \qquad \rho = \sqrt{2 - 2e + r - 2re},
              \quad r = 2 \gamma g_i^2, \quad e = e^{-r/2},

    :math:`g_i` the l2 length of the longest error. That is what the features of points at a distance of g have besides the
    derivatives, in the kernel's own space, onto whose span of the landmarks :math:`\phi` projects. Rows with r above `straight`
    have the ball :math:`\sqrt{2 - 2e}` instead.

    Parameters
    ----------
    inputs, signs, radii
        As for :class:`FeatureSets`.
    landmarks : Landmarks
    rows : ndarray of shape (n_samples, n_inputs)
    values : ndarray of shape (n_samples, m)
        Of the kernel.
    follows : ndarray of shape (n_samples,)
        1 for rows with tangents, 0 for those with the ball alone.
    """

    def __init__(
        self,
        inputs: RowSets,
        signs: Array,
        radii: Array,
        landmarks: Landmarks,
        rows: Array,
        values: Array,
        follows: Array,
        smoothing: float = 0.0,
    ):
        super().__init__(inputs, signs, radii, smoothing)
        self.landmarks, self.rows, self.values, self.follows = landmarks, rows, values, follows
        self.n_inputs, self.n_features = rows.shape[1], len(landmarks.points)

    @classmethod
    def around(cls, landmarks: Landmarks, rows: Array, values: Array, inputs: RowSets, reach: Array) -> Self:
        """Return the sets of rows whose features have these kernel `values`, `reach` being g."""
        gamma = landmarks.gamma
        follows = (2 * gamma * np.square(reach) <= TANGENT_LIMIT).astype(np.float64)
        radii = np.where(follows > 0, beyond_tangent(reach, gamma), ball_radius(reach, gamma)) * landmarks.gain()
        radii = np.where(reach > 0, radii + landmarks.rounding(rows), 0.0)
        # differences of landmarks and rows keep their digits where both are around 0
        middle = landmarks.points.mean(axis=0)
        landmarks, rows = landmarks._replace(points=landmarks.points - middle), rows - middle
        return cls(inputs, np.ones(len(rows)), radii, landmarks, rows, values, follows)

    def _of(self, rows: Any, inputs: RowSets, signs: Array, smoothing: float) -> Self:
        own = self.rows[rows], self.values[rows], self.follows[rows]
        return type(self)(inputs, signs, self.radii[rows], self.landmarks, *own, smoothing)

    def _slopes(self, w: Array) -> Array:
        points, gamma, back = self.landmarks
        pull = self.values * (back.T @ w)
        return 2 * gamma * self.follows[:, None] * (pull @ points - pull.sum(axis=1, keepdims=True) * self.rows)

    def _lifted(self, moves: Array) -> Array:
        points, gamma, back = self.landmarks
        along = moves @ points.T - np.einsum("ij,ij->i", moves, self.rows)[:, None]
        return 2 * gamma * self.follows[:, None] * (self.values * along) @ back.T

    def _along(self, axes: Array, rows: slice) -> Array:
        # before T^-1, which comes once for all of them
        across = (axes @ self.landmarks.points.T) - (self.rows[rows] @ axes.T)[:, :, None]
        return (self.values * self.follows[:, None])[rows, None] * across

    def _axes_gram(self, weights: Array, axes: Array) -> Array:
        _, gamma, back = self.landmarks
        return 4 * gamma**2 * (back @ super()._axes_gram(weights, axes) @ back.T)

    def _slope_gram(self, weights: Array, G: Array) -> Array:
        points, gamma, back = self.landmarks
        heavy = 4 * gamma**2 * np.broadcast_to(weights, len(self.rows)) * self.follows
        mixed = self.values * (self.rows @ G @ points.T)
        K, scaled = self.values, heavy[:, None] * self.values
        between = (K.T @ scaled) * (points @ G @ points.T) - mixed.T @ scaled - scaled.T @ mixed
        between += K.T @ (np.einsum("ij,ij->i", self.rows @ G, self.rows)[:, None] * scaled)
        return back @ between @ back.T

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        moves, back = self.inputs.sample(rng, n_draws, self.n_inputs), self.landmarks.normalization
        found = [(self.landmarks.values(self.rows + move) - self.values) @ back.T for move in moves]
        return self.signs[:, None] * np.array(found)
