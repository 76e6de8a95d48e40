"""The protocol of losses: convex functions of the margin deficit and of the scale of the uncertainty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._core.parameters import Parameters
from holdfast._core.programs import Epigraph

if TYPE_CHECKING:
    from holdfast._core.joint_loss import ExpectedJointLoss, JointLoss

Array = NDArray[np.float64]
SHORT_CUT = 1e-5
"""Share of dual weights up to which a loss may say without computing it anew what less of them leaves of its dual scale."""


class Coupling(NamedTuple):
    r"""The term :math:`-vv^\top/` total that a number shared by all rows adds to the Hessian.

    Here :math:`v = \sum_i` u_i :math:`\nabla u_i` + t_i :math:`\nabla t_i`, where u_i and t_i include the weights.
    """

    u: Array
    t: Array
    total: float


class Loss(Parameters, ABC):
    r"""A loss :math:`\ell(u, t)`, jointly convex and nondecreasing in both arguments.

    :math:`u = 1 - y f(x)` is the margin deficit. :math:`t \ge 0` is the effect of the row's uncertainty on its score:
    the support function of a set (worst case) or the standard deviation of a noise (expectation). A loss must be at
    least max(u - 1, 0), as the logistic loss and all losses above the hinge are. Certificates rely on this. All methods
    are elementwise in float64 and accept any finite `u` and any `t` >= 0, zero included.

    Attributes
    ----------
    is_homogeneous : bool
        Whether :math:`\ell(ku, kt) = k\,\ell(u, t)` for k > 0. Such a loss has a kink at t = 0.
    has_dual : bool
        Whether `dual_value` and `dual_scale` are known, from which certificates are made.
    is_rowwise : bool
        Whether the loss of a row does not depend on the other rows, so that passes may go block by block.
    is_proper : bool
        Whether the slope in u at u = 1 + f is the probability of the positive class at score f.
    is_worst_case : bool
        Whether it is the loss at the worst point of a set, a function of u + t, which rises with t even at t = 0.
    has_affine_scale : bool
        Whether p(a) is affine, that is, whether the loss is a function of u plus a multiple of t, plus a multiple of t.
    is_smooth : bool
        Whether the slopes are continuous for t > 0.
    reaches_zero : bool
        Whether the loss is 0 for rows far enough on the right side.
    dual_limit : float
        The largest slope in u.
    outside : float
        A lower bound on the slope in t, so that the loss is at least `outside` times t.
    straight : float
        A row may be left out of a Hessian if the curvature of its loss is at most this share of the largest one.
    is_hyperbolic : bool
        Whether it is a hinge rounded by a hyperbola, whose slopes a solver may keep from fit to fit; see `HyperbolicHinge`.
    """

    is_homogeneous = False
    has_dual = False
    is_rowwise = True
    is_proper = False
    is_worst_case = False
    has_affine_scale = False
    is_smooth = True
    reaches_zero = False
    dual_limit = 1.0
    outside = 0.0
    straight = 1e-5
    is_hyperbolic = False

    @abstractmethod
    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        r"""Return :math:`\ell`, :math:`\partial\ell/\partial u` and :math:`\partial\ell/\partial t`."""

    @abstractmethod
    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        r"""Return :math:`\ell_{uu}`, :math:`\ell_{ut}` and :math:`\ell_{tt}`."""

    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Return the results of `evaluate` and `curvature`, if possible at little more than the cost of one of them."""
        return *self.evaluate(u, t), *self.curvature(u, t)

    def couplings(self, u: Array, t: Array) -> Sequence[Coupling]:
        """Return the terms that a loss of several rows at once subtracts from the Hessian; none if `is_rowwise`."""
        return ()

    @abstractmethod
    def value(self, u: Array, t: Array) -> Array:
        r"""Return :math:`\ell(u, t)` by its definition.

        Proofs recompute the objective with this method, so it shares no code with `evaluate`, which solvers use.
        """

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        """Return the results of `evaluate` by independent code, as in `value`; proofs need it if there is no dual.

        If there is a dual, any slope gives a line below the loss, so the slope of `evaluate` is good enough.
        """
        if not self.has_dual:
            raise NotImplementedError(f"{type(self).__name__} has no dual form: its proofs need a method `tangent`.")
        slope = np.clip(self.evaluate(u, t)[1], 0.0, self.dual_limit)
        return self.value(u, t), slope, self.dual_scale(slope)

    def dual_value(self, a: Array) -> Array:
        r"""Return the part :math:`v(a)` of the conjugate form :math:`\ell(u,t) = \max_a\, a(u-1) + v(a) + p(a)\,t`."""
        raise NotImplementedError(f"{type(self).__name__} has no known dual form.")

    def dual_scale(self, a: Array) -> Array:
        r"""Return the part :math:`p(a)` of the conjugate form :math:`\ell(u,t) = \max_a\, a(u-1) + v(a) + p(a)\,t`."""
        raise NotImplementedError(f"{type(self).__name__} has no known dual form.")

    def shrunk_scale(self, u: Array, t: Array, a: Array) -> tuple[Array, Array] | None:
        r"""Return r and q with :math:`p((1-e)\,a) \ge p(a) + e\,r - e^2 q` for e up to SHORT_CUT, a being the slope at (u, t).

        None where no such numbers are known; p is then computed anew.
        """
        return None

    def dual_slope(self, a: Array) -> Array:
        """Return v'(a) for 0 < a < `dual_limit`; only with `has_affine_scale`."""
        raise NotImplementedError(f"{type(self).__name__} has no known dual form.")

    def dual_bend(self, a: Array) -> Array:
        """Return v''(a) for 0 < a < `dual_limit`; only with `has_affine_scale`."""
        raise NotImplementedError(f"{type(self).__name__} has no known dual form.")

    def smoothed(self, delta: float) -> Loss:
        r"""Return a smooth loss above this one by at most :math:`\delta/2`; itself if it is smooth.

        The slopes of a smoothed loss are slopes of the loss itself at points nearby, so they are feasible in its dual.
        """
        return self

    def averaged(self) -> Loss:
        """Return the expectation of this loss of the plain deficit under Gaussian noise of deviation t on the score."""
        raise NotImplementedError(
            f"loss={type(self).__name__}(): its expectation under Gaussian noise is not known. Use a set, such as Ellipsoid(), "
            "or another loss; a loss of your own states it by `averaged`."
        )

    def jointly(self) -> JointLoss | ExpectedJointLoss | None:
        """Return the joint loss of several classes that equals this one for two classes, or None if none is known.

        For a loss averaged over noise it is an :class:`ExpectedJointLoss`.
        """
        return None

    def largest_scale_slope(self) -> float:
        """Return a bound on the slope in t: p(1/2), as p is concave and symmetric; 1 if p is not known."""
        return float(self.dual_scale(np.array(0.5))) if self.has_dual else 1.0

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        """Return a bound on the l2 norm of the optimal weights, or inf if none is known.

        `pull` is the norm of the weighted mean of y x (without intercept) or half the distance of the class means (with
        intercept). `sigma` is the noise. `imbalance` is twice the share of the larger class, None without intercept.
        """
        return np.inf

    def epigraph(self) -> Epigraph | None:
        """Return the loss as a conic program for solvers, or None if none is known."""
        return None

    def compiled(self) -> Any | None:
        """Return a compiled ``kernel(u, t, l, l_u, l_t)`` equal to `evaluate`, or None without numba."""
        return None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Return instances on which all tests of losses run."""
        return [cls()]
