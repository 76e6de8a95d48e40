"""Errors of which only the covariance is known, and margins that hold with a given probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from holdfast._core.exceptions import UnstatedError
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import at_most_one, matrix_root, numbers, row_clouds, stated
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.sized import SizedSet


class _Rule(NamedTuple):
    gamma: Callable[[float], float]
    largest: float
    """The largest epsilon for which the rule holds. Epsilon = 1 is never allowed."""
    text: str


RULES = {
    # Cantelli: P(z >= k s) <= 1 / (1 + k^2)
    "none": _Rule(lambda eps: float(np.sqrt((1 - eps) / eps)), 1.0, "0 < epsilon < 1"),
    # Chebyshev: 1 / k^2 for both tails, half of it for one tail by symmetry; it says nothing for k < 1
    "symmetric": _Rule(lambda eps: float(1 / np.sqrt(2 * eps)), 1 / 2, "0 < epsilon <= 1/2"),
    # Gauss: 4 / (9 k^2) for both tails if k >= 2 / sqrt(3), that is epsilon <= 1/6; half of it for one tail
    "unimodal": _Rule(lambda eps: float(np.sqrt(2 / (9 * eps))), 1 / 6, "0 < epsilon <= 1/6"),
    # -ndtri(eps) equals ndtri(1 - eps), without the cancellation in 1 - eps; above 1/2 it is negative, so not a radius
    "gaussian": _Rule(lambda eps: float(-ndtri(eps)), 1 / 2, "0 < epsilon <= 1/2"),
    # Hoeffding: P(z >= t) <= exp(-2 t^2 / sum (2 s_j w_j)^2)
    "bounded": _Rule(lambda eps: float(np.sqrt(-2 * np.log(eps))), 1.0, "0 < epsilon < 1"),
}


class ChanceConstraint(SizedSet):
    r"""Margins that hold with probability :math:`1 - \epsilon` under random errors of known covariance C.

    This is the worst case over the ellipsoid :math:`\delta^\top C^{-1} \delta \le \gamma(\epsilon)^2`, which changes a
    score by at most :math:`\gamma \sqrt{w^\top C_i w}`. The errors have mean 0; :math:`\gamma` depends on what else is
    assumed:

    ============  =============================================  ==================================  =============
    assumption    on the errors, besides C                       :math:`\gamma(\epsilon)`            epsilon
    ============  =============================================  ==================================  =============
    "none"        nothing (Cantelli's inequality)                :math:`\sqrt{(1-\epsilon)/\epsilon}`  below 1
    "symmetric"   symmetric scores                               :math:`1/\sqrt{2\epsilon}`          at most 1/2
    "unimodal"    symmetric scores with one mode                 :math:`\sqrt{2/(9\epsilon)}`        at most 1/6
    "gaussian"    Gaussian; exact                                :math:`\Phi^{-1}(1-\epsilon)`       at most 1/2
    "bounded"     independent entries, :math:`|\delta_j| \le     :math:`\sqrt{2\ln(1/\epsilon)}`     below 1
                  s_j`, C stands for diag(s^2) (Hoeffding)
    ============  =============================================  ==================================  =============

    All but "bounded" are the best possible under their assumption. The probability is that of one score, a linear
    function of the row, not that of the row leaving the ellipsoid. So :class:`UncertainPipeline` carries it through
    affine steps exactly, and through other steps to first order with ``nonlinear="linearise"``, but not by intervals.

    Parameters
    ----------
    epsilon : float
        The probability with which a margin may fail, > 0.
    assumption : {"none", "symmetric", "unimodal", "gaussian", "bounded"}, default="none"
    cov : float or array-like of shape (n_features,) or (n_features, n_features), default=None
        C, its diagonal, or one variance for every feature, in squared units of the features. None if ``fit`` is given
        ``X_std``, ``X_cov`` or ``X_factor``, as for :class:`GaussianNoise`. "bounded" takes ``X_std`` only: the bounds
        s.
    radius : float, default=1.0
        Multiplies the size of the errors; 1.0 leaves it as stated.

    Examples
    --------
    >>> X, w = np.zeros((4, 2)), np.array([1.0, 0.0])
    >>> [round(float(ChanceConstraint(0.05, rule, cov=1.0).at(X, {}).support(w)), 2) for rule in ("none", "gaussian")]
    [4.36, 1.64]
    """

    size_parameters = ("cov",)
    metadata = ("X_std", "X_cov", "X_factor")
    is_of_scores = True

    def __init__(self, epsilon: Any, assumption: str = "none", *, cov: Any = None, radius: Any = 1.0):
        self.epsilon = epsilon
        self.assumption = assumption
        self.cov = cov
        self.radius = radius

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        n_samples, n_features = X.shape
        own = stated(self, metadata)
        at_most_one(own if self.cov is None else ["cov", *own])
        size = self.gamma() * self._radius()
        if not own and self.cov is None:
            raise UnstatedError(f"{self!r}: states no covariance. Give cov, or pass X_std, X_cov or X_factor.")
        if self.assumption == "bounded" and (others := [name for name in own if name != "X_std"]):
            raise ValueError(f"{self!r} together with {others[0]}: bounds of independent entries are passed as X_std.")
        if own:
            return row_clouds(size, n_samples, n_features, own, "ChanceConstraint(epsilon, cov=...)")
        return CommonEllipsoid(size * self._factor(n_features))

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        raise ValueError(
            f"{self!r}: says how likely a margin is to fail, not which errors to draw from. GaussianNoise draws errors of a "
            "covariance, Box errors within bounds."
        )

    def gamma(self) -> float:
        """Return the radius of the ellipsoid, in standard deviations (for "bounded", in multiples of the bounds)."""
        if not isinstance(self.assumption, str) or self.assumption not in RULES:
            raise ValueError(f"{self!r}: no such assumption. Choose one of {', '.join(map(repr, RULES))}.")
        rule = RULES[self.assumption]
        epsilon = numbers(self.epsilon, "ChanceConstraint(epsilon=...)", "epsilon")
        if epsilon.ndim > 0 or not 0 < epsilon <= rule.largest or epsilon == 1:
            raise ValueError(f"{self!r}: with assumption={self.assumption!r} epsilon is one number, {rule.text}.")
        return rule.gamma(float(epsilon))

    def _factor(self, n_features: int) -> Array:
        call = "ChanceConstraint(cov=...)"
        cov = numbers(self.cov, call, "cov")
        if self.assumption == "bounded" and cov.ndim == 2 and np.any(cov - np.diag(np.diagonal(cov))):
            raise ValueError(
                f"{self!r}: with assumption='bounded' cov is diagonal, the squares of the entries' bounds."
            )
        return matrix_root(cov, n_features, call, "cov")

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return (
            (self, map.cloud(metadata))
            if metadata and (map.is_monomial or self.assumption != "bounded")
            else super().image(map, metadata)
        )

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        return [
            (cls(0.2, cov=0.3), {}),
            (cls(0.1, "gaussian", cov=np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]])), {}),
            (cls(0.1, "unimodal", radius=0.5), {"X_factor": rng.normal(size=(5, 3, 2))}),
            (cls(0.3, "bounded"), {"X_std": rng.uniform(0.1, 2.0, size=(5, 3))}),
        ]
