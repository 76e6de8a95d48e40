"""Sets of RBF kernel features of uncertain rows: balls common to all rows, tangents, and intervals of kernel values."""

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
"""Up to this value of :math:`2 \\gamma g^2` tangents are better than the ball."""
EPS = float(np.finfo(np.float64).eps)


def ball_radius(reach: Array, gamma: float) -> Array:
    r"""Return :math:`\sqrt{2 - 2 e^{-\gamma g^2}}`, the l2 change of a feature if its point moves by `reach` = g."""
    return np.sqrt(-2 * np.expm1(-gamma * np.square(reach)))


def beyond_tangent(reach: Array, gamma: float) -> Array:
    r"""Return the largest error of the tangent within distance `reach` = g.

    It is :math:`\sqrt{2 - 2e + r - 2re}` with :math:`r = 2\gamma g^2` and :math:`e = e^{-r/2}`.
    """
    r = 2 * gamma * np.square(reach)
    # the sum is of order r^2, its terms of order r. In terms of e - 1, 2 - 2e is accurate; eps r covers the remaining
    # rounding
    fall = np.expm1(-0.5 * r)
    return np.sqrt(np.maximum(-2 * fall - r - 2 * r * fall, 0.0) + 8 * EPS * r)


class Distances(NamedTuple):
    """Distances between landmarks and rows that move within multiples of sets."""

    rows: Array
    points: Array
    gamma: float
    squares: Array
    """Squared distances of the unmoved rows from the landmarks, shape (n_samples, m)."""
    toward: Array
    """The reach of errors towards each landmark times its distance, (n_samples, m); inf, (n_samples, 1), if unused."""
    back: Array
    """The same away from each landmark."""
    below: Array
    """The largest errors down and up (`above`) of each input, shape (n_samples, n_inputs)."""
    above: Array
    is_box: bool
    """Whether the sets are boxes."""

    def take(self, rows: Any) -> Distances:
        """Return the distances of some rows."""
        own = ("rows", "squares", "toward", "back", "below", "above")
        return self._replace(**{name: getattr(self, name)[rows] for name in own})

    def ranges(self, reach: Array, factors: Array) -> tuple[Array, Array]:
        r"""Return lower and upper bounds on k_j over `factors` times the sets, each of shape (n_samples, m).

        They are the best of three: from squared distances by coordinates, exact for boxes; from `reach`, the l2 length
        of the longest error, exact for balls; and from :math:`|x - l|^2 + 2 (x - l)^\top d + |d|^2`, with the support
        of the set.
        """
        g, factors, distances = reach[:, None], factors[:, None], np.sqrt(self.squares)
        # |d|^2 is at least 0 for the nearest point, and at most g^2 for the farthest one
        nearest = np.maximum(np.square(np.maximum(distances - g, 0.0)), self.squares - 2 * factors * self.toward)
        farthest = np.minimum(np.square(distances + g), self.squares + 2 * factors * self.back + np.square(g))
        if self.is_box:
            least, most = np.zeros((2, *self.squares.shape))
            for x, point, down, up in zip(self.rows.T, self.points.T, self.below.T, self.above.T, strict=True):
                away, down, up = x[:, None] - point, factors * down[:, None], factors * up[:, None]
                least += np.square(np.maximum(np.maximum(away - down, -away - up), 0.0))
                most += np.square(np.maximum(np.abs(away - down), np.abs(away + up)))
            nearest, farthest = np.maximum(nearest, least), np.minimum(farthest, most)
        # differences of nearly equal numbers have a rounding error larger than themselves
        nearest = np.maximum(nearest - 8 * (self.rows.shape[1] + 2) * EPS * self.squares, 0.0)
        return np.exp(-self.gamma * farthest), np.exp(-self.gamma * nearest)


class Landmarks(NamedTuple):
    r"""Features :math:`\phi(x) = T^{-1} k(x)` with :math:`k_j(x) = e^{-\gamma |x - l_j|^2}`; T T' = k(l, l)."""

    points: Array
    """The landmarks l, shape (m, n_inputs)."""
    gamma: float
    normalization: Array
    """T^-1, shape (m, m)."""

    def values(self, X: Array) -> Array:
        """Return k_j(x), shape (n_samples, m)."""
        return rbf_values(X, self.points, self.gamma)

    def gain(self) -> float:
        r"""Return :math:`\|T^{-1} K T^{-\top}\|^{1/2}`, which is 1 up to rounding, rounded up.

        A change by r in the feature space of the kernel changes the computed features by at most this times r.
        """
        # T^-1 K T^-T should be the identity; the root of its largest eigenvalue is the overshoot of the computed
        # features
        m, d = self.points.shape
        found = self.normalization @ rbf_values(self.points, self.points, self.gamma) @ self.normalization.T
        rounded = m * (d + 3) * EPS * spectral_norm(self.normalization) ** 2
        return float(np.sqrt(np.linalg.eigvalsh(found)[-1] + rounded)) * (1 + 1e-12)

    def rounding(self, X: Array) -> Array:
        """Return a bound on the l2 norm of the rounding error of the features, shape (n_samples,).

        It covers rounding of kernel values, of their sums by T^-1, and of moved rows far from 0.
        """
        # each kernel value has an error of a few eps, and T^-1 adds up m of them; rounding of a moved row by eps |x|
        # changes a feature by at most sqrt(2 gamma) eps |x|
        m, d = self.points.shape
        back = np.sqrt(m) * (m + d + 4) * float(np.linalg.norm(self.normalization))
        return 2 * EPS * (back + np.sqrt(8 * self.gamma) * norm(X, axis=1))

    def around(self, X: Array, inputs: RowSets) -> Distances:
        """Return the distances between landmarks and rows that move within the sets `inputs`."""
        below, above = extents(inputs, X.shape)
        corner = np.broadcast_to(inputs.support(np.ones(X.shape[1])), len(X))
        # a box contains its upper corner, so its support along (1, ..., 1) is the sum of all upper ends. For any other
        # set that passes this test, the box is still a valid bound
        is_box = bool(np.all(corner >= (1 - 1e-9) * above.sum(axis=1)))
        squares = cdist(X, self.points, "sqeuclidean")
        none = np.full((len(X), 1), np.inf)
        # boxes are exact by coordinates, balls by the length of errors, so neither needs the supports
        toward, back = (none, none) if is_box or inputs.is_isotropic else self._pulls(X, inputs)
        return Distances(X, self.points, self.gamma, squares, toward, back, below, above, is_box)

    def _pulls(self, X: Array, inputs: RowSets) -> tuple[Array, Array]:
        """Return the reach of errors towards and away from landmarks, times the distance, both (n_samples, m)."""
        back = np.column_stack([inputs.supports_at(X - point) for point in self.points])
        if inputs.is_symmetric:
            return back, back
        return np.column_stack([inputs.supports_at(point - X) for point in self.points]), back

    def published_squares(self, X: Array, inputs: RowSets, values: Array, reach: Array) -> Array:
        r"""Return :math:`\sum_j k_j^2 (\tau_j^{-2} + 1 - 2 \rho \tau_j)`, a bound on the squared change of k.

        Here :math:`\tau_j = e^{-2\gamma \max_d (x - l_j)^\top d}` and :math:`\rho = e^{-\gamma g^2}`. The published
        bound is larger by a factor, the number of landmarks, which is not needed. Each term is cut at 1, as k is
        between 0 and 1.
        """
        pulls = np.maximum(*self._pulls(X, inputs))
        tau, rho = np.exp(-2 * self.gamma * pulls), np.exp(-self.gamma * np.square(reach))[:, None]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.sum(np.fmin(np.square(values) * (tau**-2.0 + 1 - 2 * rho * tau), 1.0), axis=1)


class TangentBalls(FeatureSets):
    r"""Changes of :class:`Landmarks` features around each row: slopes times the error, plus a ball.

    .. math:: t_i(w) = \max_{d \in D_i} (J_i^\top w)^\top d + \rho_i |w|_2, \qquad \rho = \sqrt{2 - 2e + r - 2re},
              \quad r = 2 \gamma g_i^2, \quad e = e^{-r/2},

    where :math:`g_i` is the l2 length of the longest error. :math:`\rho` is the largest error of the linearisation
    within distance g in the feature space of the kernel; :math:`\phi` projects onto the span of the landmarks there,
    which does not increase it. Rows with r above `TANGENT_LIMIT` have a ball of radius :math:`\sqrt{2 - 2e}` instead.

    Parameters
    ----------
    inputs, signs, radii
        As for :class:`FeatureSets`.
    landmarks : Landmarks
    rows : ndarray of shape (n_samples, n_inputs)
    values : ndarray of shape (n_samples, m)
        The values of the kernel.
    follows : ndarray of shape (n_samples,)
        1 for rows with tangents, 0 for rows with the ball alone.
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
        """Return the sets of rows with these kernel `values`; `reach` is g."""
        gamma = landmarks.gamma
        follows = (2 * gamma * np.square(reach) <= TANGENT_LIMIT).astype(np.float64)
        radii = np.where(follows > 0, beyond_tangent(reach, gamma), ball_radius(reach, gamma)) * landmarks.gain()
        radii = np.where(reach > 0, radii + landmarks.rounding(rows), 0.0)
        # centred, as differences of landmarks and rows are most accurate if both are near 0
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
        # without the factor T^-1, which `_axes_gram` applies once to the sum
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
