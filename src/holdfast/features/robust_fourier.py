"""Random Fourier features that map sets of inputs to sets of features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from holdfast._core.allowed import SEED, Choice, Count, Having, Number, Switch
from holdfast._core.operations import Multiply
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast.features.composed import InSequence
from holdfast.features.curved import Waves
from holdfast.features.effects import Affine, Effect
from holdfast.features.fourier_sets import RADII, TANGENT_LIMIT, ArcSets, angles, rounding
from holdfast.features.gram import bandwidth
from holdfast.features.robust_features import RobustFeatures
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.images import Images
from holdfast.uncertainty.row_scaled import RowScaledSets

NAME = "RobustFourierFeatures"
OUTWARD = 1 + 1e-12
"""Factor of radii, which exceeds their rounding errors."""

SAMPLERS: dict[str, Callable[[np.random.RandomState, tuple[int, int], float], Array]] = {
    "rbf": lambda rng, shape, gamma: np.sqrt(2 * gamma) * rng.standard_normal(shape),
    "laplacian": lambda rng, shape, gamma: gamma * rng.standard_cauchy(shape),
    "cauchy": lambda rng, shape, gamma: rng.laplace(scale=gamma, size=shape),
}
"""Functions that draw the frequencies of each kernel, from a random state, a shape and gamma."""


class RobustFourierFeatures(RobustFeatures):
    r"""Random Fourier features of a shift-invariant kernel, with bounds on their changes under errors of the inputs.

    Pairs :math:`\sqrt{2/D}\,(\cos \omega_j^\top x, \sin \omega_j^\top x)`, j = 1, ..., D/2, all cosines first. The
    expectation of their scalar products is the kernel:

    ===============  ========================================================  =============================================
    ``"rbf"``        :math:`e^{-\gamma |x - z|_2^2}`                             :math:`\omega \sim N(0, 2 \gamma I)`
    ``"laplacian"``  :math:`e^{-\gamma |x - z|_1}`                               :math:`\omega_j` Cauchy of scale gamma
    ``"cauchy"``     :math:`\prod_j 1 / (1 + \gamma^2 (x_j - z_j)^2)`            :math:`\omega_j` Laplace of scale gamma
    a function       of (random state, shape, gamma)                           the frequencies, an array of that shape
    ===============  ========================================================  =============================================

    An error d turns pair j by :math:`\theta_j = \omega_j^\top d`; let :math:`t_j` be the largest :math:`|\theta_j|`
    over the set. `push` returns sets that contain all :math:`\phi(x + d) - \phi(x)`:

    ===============  =======================================================================================================
    ``"tangent"``    around each row, exact for small sets: where :math:`t_j \le 1.5`, the tangents of all pairs
                     share one d, and the remainder is bounded for each pair; other pairs have their whole arc
    ``"arc"``        around each row: the whole arc of each pair, independently of the others
    ``"water"``      one radius: the largest sum of squared chords :math:`4 \sin^2(\theta_j/2)`, given each :math:`t_j`
                     and the largest :math:`\sum_j \theta_j^2`, found by water-filling
    ``"spectral"``   one radius, from :math:`\sum_j \theta_j^2` alone
    ``"tight"``      one radius, from the :math:`t_j` alone
    ``"published"``  one radius, :math:`\sqrt{(4/D) \sum_j \min(2, t_j^2/2)}` (Couellan & Jan, 2020, corrected: the root is of
                     the whole sum)
    ===============  =======================================================================================================

    The radii do not depend on the row. With n inputs, the published one is too large by about :math:`\sqrt n` for small
    errors. Its l1 and linf forms are not available in `radius`, as they hold for features rotated back by the angles of
    each row.

    Parameters
    ----------
    n_components : int, default=200
        D, the number of features; without `phases` an odd D is rounded up to an even number.
    kernel : {"rbf", "laplacian", "cauchy"} or callable, default="rbf"
    gamma : float or "scale", default="scale"
        "scale" is 1 / (n_features * X.var()) for the kernel "rbf", and its square root for the others, whose gamma is
        one over a length.
    phases : bool, default=False
        Single features :math:`\sqrt{2/D} \cos(\omega_j^\top x + \nu_j)` with D frequencies and random phases instead of
        pairs. Errors change them by up to :math:`\sqrt 2` times as much, so prefer pairs.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    frequencies_ : ndarray of shape (D/2, n_features_in_), or (D, n_features_in_) with phases
    phases_ : ndarray of shape (D,)
        With phases only.
    gamma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from holdfast import Ball, RobustFourierFeatures
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> map = RobustFourierFeatures(50, random_state=0).fit(X)
    >>> sets, w = map.push(X, Ball(0.1)), np.linspace(-1, 1, 50)
    >>> moved = map.transform(X + [0.06, 0.0, -0.08, 0.0]) - map.transform(X)
    >>> bool(np.all(moved @ w <= sets.support(w)))
    True
    """

    bounds = ("tangent", "arc", "water", "spectral", "tight", "published")
    common_bounds = bounds[2:]
    best_bounds = ("tangent", "arc")

    parameter_table = {
        "n_components": Count(),
        "kernel": Choice(*SAMPLERS) | Having(("__call__",), "a function (random_state, shape, gamma)"),
        "gamma": Choice("scale") | Number(strictly=True),
        "phases": Switch(),
        "random_state": SEED,
    }

    def __init__(
        self,
        n_components: int = 200,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        phases: bool = False,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.phases = phases
        self.random_state = random_state

    def _fit(self, X: Array, weights: Array) -> None:
        D, rng = int(self.n_components), check_random_state(self.random_state)
        gamma = bandwidth(self.gamma, X, weights)
        self.gamma_ = gamma if self.kernel == "rbf" or not isinstance(self.gamma, str) else float(np.sqrt(gamma))
        shape = (D if self.phases else (D + 1) // 2, X.shape[1])
        sampler = self.kernel if callable(self.kernel) else SAMPLERS[self.kernel]
        found = np.asarray(sampler(rng, shape, self.gamma_), dtype=np.float64)
        if found.shape != shape or not np.all(np.isfinite(found)):
            raise ValueError(
                f"{NAME}(kernel={self.kernel!r:.40}): returned frequencies of shape {found.shape}, or some that are not "
                f"finite, when asked for {shape}."
            )
        self.frequencies_ = found
        if self.phases:
            self.phases_ = rng.uniform(0, 2 * np.pi, size=D)

    @property
    def _n_features_out(self) -> int:
        return len(self.frequencies_) * (1 if self.phases else 2)

    def _features(self, X: Array) -> Array:
        at = X @ self.frequencies_.T
        scale = np.sqrt(2.0 / self._n_features_out)
        return scale * (np.cos(at + self.phases_) if self.phases else np.hstack([np.cos(at), np.sin(at)]))

    def _push(self, X: Array, inputs: RowSets, bound: str) -> RowSets:
        if bound in self.common_bounds:
            radius = self._radius(X, inputs, bound, 2)
            return CommonEllipsoid(radius) if inputs.is_common else RowScaledSets(CommonEllipsoid(np.ones(())), radius)
        at, reach = X @ self.frequencies_.T, angles(inputs, self.frequencies_)
        straight = TANGENT_LIMIT if bound == "tangent" else 0.0
        radii = rounding(X, self.frequencies_, reach)
        arcs = ArcSets(inputs, np.ones(len(X)), radii, np.cos(at), np.sin(at), self.frequencies_, reach, straight)
        return Images(arcs, self._of_pairs()) if self.phases else arcs

    def _of_pairs(self) -> AffineMap:
        """Return the linear map from pairs to features with phases."""
        # cos(a + v) = cos v cos a - sin v sin a; pairs are scaled by sqrt(2 / 2D), single features by sqrt(2 / D)
        both = [sparse.diags_array(np.cos(self.phases_)), sparse.diags_array(-np.sin(self.phases_))]
        return AffineMap(np.sqrt(2.0) * sparse.hstack(both))

    def _radius(self, X: Array, inputs: RowSets, bound: str, norm: float) -> Array:
        if (bound, norm) not in RADII or (self.phases and norm != 2):
            known = sorted({p for b, p in RADII if b == bound and (p == 2 or not self.phases)})
            raise ValueError(
                f"{NAME}.radius(bound={bound!r}, norm={norm:g}): of this bound the norms {known} are known."
            )
        reach, total = angles(inputs, self.frequencies_), np.square(np.atleast_1d(inputs.stretch(self.frequencies_)))
        found = RADII[bound, norm](reach, total) / np.sqrt(len(self.frequencies_)) * OUTWARD
        # the l1 norm of a vector is at most sqrt(number of features) times its l2 norm
        rounded = rounding(X, self.frequencies_, reach) * (np.sqrt(self._n_features_out) if norm == 1 else 1.0)
        found = (found + (np.max(rounded) if inputs.is_common else rounded)) * (np.sqrt(2.0) if self.phases else 1.0)
        return np.asarray(found[0] if inputs.is_common else found)

    def uncertainty_effect(self, n_features: int) -> Effect:
        """Return the effect of this map on rows and their errors, for pipelines: sets become intervals of features.

        :class:`holdfast.estimators.RobustKernelClassifier` trains with the tighter sets of `push` instead.
        """
        omega, D = self.frequencies_, self._n_features_out
        if self.phases:
            waves = Waves(omega, self.phases_)
        else:
            # sin(a) = cos(a - pi / 2)
            waves = Waves(np.vstack([omega, omega]), np.repeat([0.0, -0.5 * np.pi], len(omega)))
        scaled = Affine.computed(D, Multiply(np.full(D, np.sqrt(2.0 / D))))
        return InSequence([(waves, waves.transform), (scaled, lambda rows: rows)], n_features)
