"""A loss with part of the uncertainty inside it, and the rest added as a penalty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from holdfast._core.loss import Array, Loss
from holdfast._core.programs import Epigraph
from holdfast.losses.hinge import Hinge
from holdfast.losses.logistic import Logistic


class Mixture(Loss):
    r"""The loss :math:`\ell(u, \kappa t) + (1 - \kappa)\,t`, built from another loss :math:`\ell`.

    :math:`\kappa = 1` gives :math:`\ell` itself. At :math:`\kappa = 0` the support becomes a penalty: SPLP for the
    hinge and SPLR for the logistic loss (El Ghaoui et al.). For intervals this penalty is the l1 norm weighted by the
    half-widths of all rows. If the slope of :math:`\ell` is at most 1, the mixture decreases in kappa, so every
    :math:`\kappa < 1` bounds the worst case from above.

    Parameters
    ----------
    loss : Loss
    kappa : float
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> Mixture(Hinge(), 0.5).value(np.array([-1.0, 0.5]), np.array([0.4, 0.4]))
    array([0.2, 0.9])
    """

    is_worst_case = True

    def __init__(self, loss: Loss, kappa: float):
        self.loss = loss
        self.kappa = kappa

    @property
    def is_homogeneous(self) -> bool:  # type: ignore[override]
        return self.loss.is_homogeneous

    @property
    def has_dual(self) -> bool:  # type: ignore[override]
        return self.loss.has_dual

    @property
    def has_affine_scale(self) -> bool:  # type: ignore[override]
        return self.loss.has_affine_scale

    @property
    def is_rowwise(self) -> bool:  # type: ignore[override]
        return self.loss.is_rowwise

    @property
    def is_proper(self) -> bool:  # type: ignore[override]
        return self.loss.is_proper

    @property
    def is_smooth(self) -> bool:  # type: ignore[override]
        return self.loss.is_smooth

    @property
    def dual_limit(self) -> float:  # type: ignore[override]
        return self.loss.dual_limit

    @property
    def outside(self) -> float:  # type: ignore[override]
        return 1 - self.kappa

    def value(self, u: Array, t: Array) -> Array:
        return self.loss.value(u, self.kappa * t) + (1 - self.kappa) * t

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        value, slope, scale_slope = self.loss.tangent(u, self.kappa * t)
        return value + (1 - self.kappa) * t, slope, self.kappa * scale_slope + (1 - self.kappa)

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        k = self.kappa
        value, slope, scale_slope = self.loss.evaluate(u, k * t)
        return value + (1 - k) * t, slope, k * scale_slope + (1 - k)

    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        k = self.kappa
        uu, ut, tt = self.loss.curvature(u, k * t)
        return uu, k * ut, k * k * tt

    def smoothed(self, delta: float) -> Loss:
        return Mixture(self.loss.smoothed(delta), self.kappa)

    def dual_value(self, a: Array) -> Array:
        return self.loss.dual_value(a)

    def dual_scale(self, a: Array) -> Array:
        return self.kappa * self.loss.dual_scale(a) + (1 - self.kappa)

    def dual_slope(self, a: Array) -> Array:
        return self.loss.dual_slope(a)

    def dual_bend(self, a: Array) -> Array:
        return self.loss.dual_bend(a)

    def largest_scale_slope(self) -> float:
        return self.kappa * self.loss.largest_scale_slope() + (1 - self.kappa)

    def epigraph(self) -> Epigraph | None:
        inner, k = self.loss.epigraph(), self.kappa
        if inner is None:
            return None
        cost = [inner.cost[0], k * inner.cost[1] + (1 - k), *inner.cost[2:]]
        cones = [(kind, [[line[0], k * line[1], *line[2:]] for line in G]) for kind, G in inner.cones]
        return Epigraph(cost, cones, inner.constants)

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls(Hinge(), 0.4), cls(Logistic(), 0.0)]
