"""The protocol of a loss: a convex function of the margin deficit and of the scale of the noise."""

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
    r"""What a number that all rows share takes from the Hessian: :math:`-vv^\top/` total, v the sum of what the rows have to do
    with it, :math:`\sum_i` u_i :math:`\nabla u_i` + t_i :math:`\nabla t_i`, weights included.
    """

    u: Array
    t: Array
    total: float


class Loss(Parameters, ABC):
    r"""A loss :math:`\ell(u, t)`, jointly convex and nondecreasing in both arguments.

    :math:`u = 1 - y f(x)` is the margin deficit and :math:`t \ge 0` says how far the uncertainty of the row can push its
    score: the support function of a set (worst case) or the standard deviation of a cloud (expectation).
    It lies above max(u - 1, 0), as the logistic loss and everything above the hinge does: certificates rely on that.
    All methods are elementwise in float64 and accept any finite `u` and any `t` >= 0, zero included.

    Attributes
    ----------
    is_homogeneous : bool
        Whether :math:`\ell(ku, kt) = k\,\ell(u, t)` for k > 0. Such a loss has a kink at t = 0.
    has_dual : bool
        Whether `dual_value` and `dual_scale` are known, from which a certificate is made.
    is_rowwise : bool
        Whether a row costs the same alone as among others, so that a pass may go block by block.
    is_proper : bool
        Whether the slope in u at u = 1 + f is the probability of the positive class at score f.
    is_worst_case : bool
        Whether it is a loss at the worst point of a set, a function of u + t: it then rises with t even at t = 0.
    has_affine_scale : bool
        Whether p(a) is affine, that is, whether it is a function of u and a multiple of t together, plus a multiple of t.
    is_smooth : bool
        Whether its slopes are continuous for t > 0.
    reaches_zero : bool
        Whether it is 0 far enough on the right side.
    dual_limit : float
        The largest slope in u.
    outside : float
        A slope in t that it has everywhere: it lies above `outside` times t.
    straight : float
        A row whose loss bends by no more than this share of what the most bent one does may be left out of a Hessian.
    is_hyperbolic : bool
        Whether it is a hinge rounded by a hyperbola, of which solvers may keep the slopes; see `HyperbolicHinge`.
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
        """Return the results of `evaluate` and `curvature` together, where possible at little more than the cost of one."""
        return *self.evaluate(u, t), *self.curvature(u, t)

    def couplings(self, u: Array, t: Array) -> Sequence[Coupling]:
        """Return the terms that a loss of several rows together subtracts from the Hessian; none if `is_rowwise`."""
        return ()

    @abstractmethod
    def value(self, u: Array, t: Array) -> Array:
        r"""Return :math:`\ell(u, t)` by the formula that defines it.

        Proofs recompute the objective with it, so it shares no code with `evaluate`, which solvers use.
        """

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        """Return the same as `evaluate` by code that is independent of it, as `value` is; proofs need it without a dual.

        With a dual every slope has a line below the loss, so that of `evaluate` will do.
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
        r"""Return a smooth loss above this one, by :math:`\delta/2` at most; itself where it is smooth.

        The slopes of a smoothed loss are slopes of the loss itself at points nearby, and so fit for its dual.
        """
        return self

    def averaged(self) -> Loss:
        """Return the expectation of this loss, of the plain deficit, under Gaussian noise of deviation t on the score."""
        raise NotImplementedError(
            f"loss={type(self).__name__}(): its expectation under Gaussian noise is not known. Use a set, such as Ellipsoid(), "
            "or another loss; a loss of your own states it by `averaged`."
        )

    def jointly(self) -> JointLoss | ExpectedJointLoss | None:
        """Return the loss of several classes at once that is this one for two classes, or None where none is known.

        That of a loss averaged over noise is an :class:`ExpectedJointLoss`.
        """
        return None

    def largest_scale_slope(self) -> float:
        """Return a bound on the slope in t: p is concave and symmetric, so p(1/2); 1 where no p is known."""
        return float(self.dual_scale(np.array(0.5))) if self.has_dual else 1.0

    def largest_norm(self, pull: float, sigma: float, imbalance: float | None) -> float:
        """Return a bound on the optimal weights' l2 norm, or inf where none is known.

        `pull` is the norm of the weighted mean of y x (without intercept) or half the distance of the class means (with
        one), `sigma` the noise, `imbalance` the share of the larger class times two, None without intercept.
        """
        return np.inf

    def epigraph(self) -> Epigraph | None:
        """Return how a conic solver sees the loss, or None where no cone is known."""
        return None

    def compiled(self) -> Any | None:
        """Return a compiled ``kernel(u, t, l, l_u, l_t)`` equal to `evaluate`, or None without numba."""
        return None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Return instances that every test of a loss is run on."""
        return [cls()]
