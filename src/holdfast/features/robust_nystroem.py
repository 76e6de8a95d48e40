"""Nystroem features of an RBF kernel that push sets forward."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from holdfast._core.allowed import NOTHING, SEED, Choice, Count, Number
from holdfast._core.operations import Product
from holdfast._core.uncertainty import Array, BoundSet
from holdfast.features.composed import InSequence
from holdfast.features.curved import RbfValues
from holdfast.features.effects import Affine, Effect
from holdfast.features.gram import Kernel, KernelSpace, bandwidth
from holdfast.features.nystroem_sets import Landmarks, TangentBalls, ball_radius
from holdfast.features.robust_features import RobustFeatures
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import CommonCloud, norm, spectral_norm
from holdfast.uncertainty.images import image_of
from holdfast.uncertainty.minkowski import BoundSum
from holdfast.uncertainty.multiples import Multiples
from holdfast.uncertainty.row_boxes import RowBoxes

NAME = "RobustNystroem"
LARGEST_GRAM = 10_000
"""Rows up to which all of them may be landmarks."""
OUTWARD = 1 + 1e-12
"""What radii are multiplied by, more than their own rounding."""
ROUNDED = 32 * float(np.finfo(np.float64).eps)
LEADING = 0.25
"""What pivots before leave of a landmark, from which on it is one that narrow features are made of."""


class RobustNystroem(RobustFeatures):
    r"""Nystroem features of the kernel :math:`e^{-\gamma |x - z|^2}` that know how far errors of the inputs move them.

    :math:`\phi(x) = T^{-1} k(x)`, :math:`k_j(x) = e^{-\gamma |x - l_j|^2}`, T the Cholesky factor of the kernel between the
    landmarks :math:`l_j`: the projection of the kernel's own feature of x on their span. Landmarks that depend on others are
    left out. With all rows as landmarks a linear model of the features is a kernel machine, exactly.

    Sets for all :math:`\phi(x + d) - \phi(x)`, by `push`, with the l2 length g of the longest error:

    ===============  =======================================================================================================
    ``"tangent"``    around each row: derivatives times d, plus a ball of radius :math:`\sqrt{2 - 2e + r - 2re}`,
                     :math:`r = 2 \gamma g^2`, :math:`e = e^{-r/2}`; exact for small sets, the ball below where r > 0.5
    ``"ball"``       one radius, :math:`\sqrt{2 - 2 e^{-\gamma g^2}}`: no set of radii is smaller where landmarks are many
    ``"intervals"``  around each row: each :math:`k_j` takes any value between its least and its largest over the set; for
                     narrow kernels and few landmarks
    ``"split"``      around each row: intervals for what the leading landmarks make, the ball for the rest
    ``"landmarks"``  around each row: the l2 ball of changes of k that holds these intervals
    ``"published"``  around each row: that of Couellan & Jan (2020), corrected: :math:`R^{-\top}` and not its transpose
    ===============  =======================================================================================================

    Rounding through :math:`T^{-1}` is allowed for, by :math:`\epsilon \|T^{-1}\|`.

    Parameters
    ----------
    n_components : int or None, default=100
        Landmarks, at most: the leading pivots of a random part of the rows. None for all rows.
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
    best_bounds = ("tangent", "ball", "intervals", "split")

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
        rows = X[weights > 0]
        self.gamma_ = bandwidth(self.gamma, X, weights)
        kernel = Kernel("rbf", self.gamma_, name=NAME)
        if self.n_components is None:
            if len(rows) > LARGEST_GRAM:
                raise ValueError(
                    f"{NAME}(n_components=None).fit: the kernel of {len(rows)} rows with each other would take "
                    f"{8 * len(rows) ** 2:.2g} bytes. State how many landmarks to take, n_components=500 say."
                )
            space = KernelSpace.of_products(kernel(rows, rows), f"{NAME}.fit")
        else:
            rng = check_random_state(self.random_state)
            space = KernelSpace.of_landmarks(kernel, rows, np.arange(len(rows)), int(self.n_components), rng)
        self.landmarks_, triangle = rows[space.support], space.factor.triangle
        self.normalization_ = solve_triangular(triangle, np.eye(len(triangle)), lower=True)

    @property
    def _n_features_out(self) -> int:
        return len(self.landmarks_)

    def _features(self, X: Array) -> Array:
        return np.asarray(self._map().values(X) @ self.normalization_.T)

    def _map(self) -> Landmarks:
        return Landmarks(self.landmarks_, self.gamma_, self.normalization_)

    def _allowance(self) -> float:
        """Return what rounding of kernel values may do to features, in l2."""
        return ROUNDED * float(np.sqrt(len(self.landmarks_))) * spectral_norm(self.normalization_)

    def _radius(self, X: Array, inputs: BoundSet, bound: str, norm: float) -> Array:
        if norm != 2:
            raise ValueError(f"{NAME}.radius(norm={norm:g}): of these features norm=2 alone is known.")
        reach = inputs.stretch(np.eye(X.shape[1]))
        return np.where(reach > 0, ball_radius(reach, self.gamma_) * OUTWARD + self._allowance(), 0.0)

    def _push(self, X: Array, inputs: BoundSet, bound: str) -> BoundSet:
        radius, map = self._radius(X, inputs, bound, 2), AffineMap(self.normalization_)
        unit = CommonCloud(np.ones(()))
        ball = CommonCloud(radius) if inputs.is_common else Multiples(unit, radius)
        if bound == "ball":
            return ball
        known, n = self._map(), len(X)
        values = known.values(X)
        reach = np.broadcast_to(inputs.stretch(np.eye(X.shape[1])), n)
        if bound == "tangent":
            return TangentBalls(inputs, np.ones(n), known, X, values, reach, self._allowance())
        if bound == "published":
            squares = known.published_squares(X, inputs, values, reach)
            return image_of(Multiples(unit, np.sqrt(len(self.landmarks_) * squares)), map)
        low, high = known.ranges(X, inputs)
        below, above = np.maximum(values - low, 0.0) + ROUNDED, np.maximum(high - values, 0.0) + ROUNDED
        if bound == "landmarks":
            return image_of(Multiples(unit, norm(np.maximum(below, above), axis=1)), map)
        boxes = RowBoxes(0.5 * (below + above), 0.5 * (above - below))
        if bound == "intervals":
            return image_of(boxes, map)
        leads = (1 / np.diag(self.normalization_)) ** 2 >= LEADING
        rest = image_of(ball, AffineMap.diagonal(np.where(leads, 0.0, 1.0)))
        return BoundSum([rest, image_of(boxes, AffineMap(leads[:, None] * self.normalization_))])

    def uncertainty_effect(self, n_features: int) -> Effect:
        """Return what the features do to rows and their errors, for pipelines."""
        values = RbfValues(self.landmarks_, self.gamma_)
        mixed = Affine.computed(len(self.landmarks_), Product(self.normalization_))
        return InSequence([(values, values.transform), (mixed, lambda rows: rows)], n_features)
