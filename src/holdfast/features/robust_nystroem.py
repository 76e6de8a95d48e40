"""Nystroem features of an RBF kernel that map sets of inputs to sets of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from holdfast._core.allowed import NOTHING, SEED, Choice, Count, Number
from holdfast._core.arithmetic import norm
from holdfast._core.operations import Product
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast.features.composed import InSequence
from holdfast.features.curved import RbfValues
from holdfast.features.effects import Affine, Effect
from holdfast.features.feature_sets import FeatureSum
from holdfast.features.gram import CANDIDATES, PivotedCholesky, bandwidth, rbf_values
from holdfast.features.nystroem_sets import Landmarks, TangentBalls, ball_radius
from holdfast.features.robust_features import RobustFeatures
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.images import image_of
from holdfast.uncertainty.row_boxes import RowBoxes
from holdfast.uncertainty.row_scaled import RowScaledSets

NAME = "RobustNystroem"
LARGEST_GRAM = 10_000
"""The largest number of rows for which all rows may be landmarks."""
LEFT = 1e-9
"""A landmark with at most this squared residual given the others counts as dependent; keeping it costs accuracy."""
LEADING = 0.25
"""A landmark is leading if its squared residual, given the previous pivots, is at least this."""


class RobustNystroem(RobustFeatures):
    r"""Nystroem features of the kernel :math:`e^{-\gamma |x - z|^2}`, with bounds on their changes under input errors.

    :math:`\phi(x) = T^{-1} k(x)`, :math:`k_j(x) = e^{-\gamma |x - l_j|^2}`, with T the Cholesky factor of the kernel
    matrix of the landmarks :math:`l_j`. This is the projection of x, in the feature space of the kernel, onto the span
    of the landmarks. Landmarks whose squared residual given the others is below 1e-9 are left out. With all rows as
    landmarks, a linear model of the features is a kernel machine.

    `push` returns sets that contain all :math:`\phi(x + d) - \phi(x)`; g is the l2 length of the longest error:

    ===============  =======================================================================================================
    ``"tangent"``    around each row: derivatives times d, plus a ball of radius :math:`\sqrt{2 - 2e + r - 2re}`,
                     :math:`r = 2 \gamma g^2`, :math:`e = e^{-r/2}`; exact for small sets, the ball below where r > 0.5
    ``"ball"``       one radius, :math:`\sqrt{2 - 2 e^{-\gamma g^2}}`: with many landmarks no radius is smaller
    ``"intervals"``  around each row: each :math:`k_j` takes any value between its extremes over the set; for
                     narrow kernels and few landmarks
    ``"split"``      around each row: intervals for the features of the leading landmarks, the ball for the others
    ``"landmarks"``  around each row: the l2 ball of changes of k that contains the intervals
    ``"published"``  around each row: the ball of Couellan & Jan (2020), corrected: :math:`R^{-\top}`, not its transpose
    ===============  =======================================================================================================

    Each set allows for rounding in :math:`T^{-1}`, by a ball of radius about :math:`\epsilon m \|T^{-1}\|`.

    Parameters
    ----------
    n_components : int or None, default=100
        The largest number of landmarks, which are the leading pivots of a random subset of the rows. None for all rows.
    gamma : float or "scale", default="scale"
        "scale" is 1 / (n_features * X.var()).
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    landmarks_ : ndarray of shape (n_landmarks, n_features_in_)
    normalization_ : ndarray of shape (n_landmarks, n_landmarks)
        :math:`T^{-1}`.
    gamma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from holdfast import Ball, RobustNystroem
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> map = RobustNystroem(20, random_state=0).fit(X)
    >>> sets, w = map.push(X, Ball(0.1)), np.linspace(-1, 1, 20)
    >>> moved = map.transform(X + [0.06, 0.0, -0.08, 0.0]) - map.transform(X)
    >>> bool(np.all(moved @ w <= sets.support(w)))
    True
    """

    bounds = ("tangent", "ball", "intervals", "split", "landmarks", "published")
    common_bounds = ("ball",)
    best_bounds = ("tangent", "intervals")

    parameter_table = {
        "n_components": Count() | NOTHING,
        "gamma": Choice("scale") | Number(strictly=True),
        "random_state": SEED,
    }

    def __init__(self, n_components: int | None = 100, *, gamma: float | str = "scale", random_state: Any = None):
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state

    def _fit(self, X: Array, weights: Array) -> None:
        rows, most = X[weights > 0], self.n_components
        self.gamma_ = bandwidth(self.gamma, X, weights)
        if most is not None:
            rng = check_random_state(self.random_state)
            rows = rows[np.sort(rng.choice(len(rows), size=min(len(rows), CANDIDATES * int(most)), replace=False))]
        elif len(rows) > LARGEST_GRAM:
            raise ValueError(
                f"{NAME}(n_components=None).fit: the kernel of {len(rows)} rows with each other would take "
                f"{8 * len(rows) ** 2:.2g} bytes. State how many landmarks to take, n_components=500 say."
            )
        # sorted and without duplicates, so that neither the order of rows nor copies of a row matter
        rows = np.unique(rows, axis=0)
        K = rbf_values(rows, rows, self.gamma_)
        factor = PivotedCholesky.of(K, tol=LEFT, most=most, call=f"{NAME}.fit")
        self.landmarks_ = rows[factor.pivots]
        self.normalization_ = solve_triangular(factor.triangle, np.eye(len(factor.pivots)), lower=True)

    @property
    def _n_features_out(self) -> int:
        return len(self.landmarks_)

    def _features(self, X: Array) -> Array:
        return np.asarray(self._map().values(X) @ self.normalization_.T)

    def _map(self) -> Landmarks:
        return Landmarks(self.landmarks_, self.gamma_, self.normalization_)

    def _radius(self, X: Array, inputs: RowSets, bound: str, norm: float) -> Array:
        if norm != 2:
            raise ValueError(f"{NAME}.radius(norm={norm:g}): of these features norm=2 alone is known.")
        reach, known = inputs.stretch(np.eye(X.shape[1])), self._map()
        rounded = known.rounding(X)
        found = ball_radius(reach, self.gamma_) * known.gain() + (np.max(rounded) if inputs.is_common else rounded)
        return np.where(reach > 0, found, 0.0)

    def _push(self, X: Array, inputs: RowSets, bound: str) -> RowSets:
        unit, known, n = CommonEllipsoid(np.ones(())), self._map(), len(X)
        if bound == "ball":
            radius = self._radius(X, inputs, bound, 2)
            return CommonEllipsoid(radius) if inputs.is_common else RowScaledSets(unit, radius)
        values, reach = known.values(X), np.broadcast_to(inputs.stretch(np.eye(X.shape[1])), n)
        if bound == "tangent":
            return TangentBalls.around(known, X, values, inputs, reach)
        rounded, map = RowScaledSets(unit, np.where(reach > 0, known.rounding(X), 0.0)), AffineMap(self.normalization_)
        if bound == "published":
            squares = known.published_squares(X, inputs, values, reach)
            return FeatureSum([image_of(RowScaledSets(unit, np.sqrt(len(self.landmarks_) * squares)), map), rounded])
        low, high = known.around(X, inputs).ranges(reach, np.ones(n))
        below, above = np.maximum(values - low, 0.0), np.maximum(high - values, 0.0)
        if bound == "landmarks":
            return FeatureSum([image_of(RowScaledSets(unit, norm(np.maximum(below, above), axis=1)), map), rounded])
        boxes = RowBoxes(0.5 * (below + above), 0.5 * (above - below))
        if bound == "intervals":
            return FeatureSum([image_of(boxes, map), rounded])
        # T_jj^2 is the squared residual of landmark j given the previous pivots
        leads = (1 / np.diag(self.normalization_)) ** 2 >= LEADING
        ball = RowScaledSets(unit, np.broadcast_to(self._radius(X, inputs, bound, 2), n))
        rest = image_of(ball, AffineMap.diagonal(np.where(leads, 0.0, 1.0)))
        return FeatureSum([rest, image_of(boxes, AffineMap(leads[:, None] * self.normalization_)), rounded])

    def uncertainty_effect(self, n_features: int) -> Effect:
        """Return the effect of this map on rows and their errors, for pipelines: sets become intervals of features.

        :class:`holdfast.estimators.RobustKernelClassifier` trains with the tighter sets of `push` instead.
        """
        values = RbfValues(self.landmarks_, self.gamma_, is_direct=True)
        mixed = Affine.computed(len(self.landmarks_), Product(self.normalization_))
        return InSequence([(values, values.transform), (mixed, lambda rows: rows)], n_features)
