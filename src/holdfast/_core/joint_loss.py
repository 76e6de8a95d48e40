"""The protocol of joint losses of several classes: convex functions of the excess of each class over the row's own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.parameters import Parameters


class JointLoss(Parameters, ABC):
    r"""A loss :math:`F(z) = \max_{a \in \Delta} a^\top z + v(a)` of a row, z having one entry per class, 0 for its own.

    For another class c, :math:`z_c = \text{margin} - \text{lead}_c + t_c`: the lead over c asked of the row's own
    class, less its actual lead, plus the largest fall of this lead over the row's set. :math:`\Delta` is the simplex.
    The maximizing a are shares of the classes that add up to 1; they are the slopes of F. The Hessian of F is
    :math:`\mathrm{diag}(s) - ss^\top/\sum_c s_c`. All methods take and give tables of shape (n_rows, n_classes).

    Attributes
    ----------
    margin : float
        The lead asked for.
    is_smooth : bool
        Whether the slopes of F are continuous.
    """

    margin = 1.0
    is_smooth = True
    has_dual = True
    dual_limit = 1.0

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Return F by its definition, for proofs; it shares no code with `evaluate`."""

    @abstractmethod
    def evaluate(self, z: Array) -> tuple[Array, Array]:
        """Return F, shape (n_rows,), and the shares a."""

    @abstractmethod
    def bends(self, shares: Array) -> Array:
        """Return s of the Hessian at the given shares."""

    @abstractmethod
    def dual_value(self, shares: Array) -> Array:
        """Return v(a), shape (n_rows,)."""

    @abstractmethod
    def best_constant(self, weights: Array) -> Array:
        """Return the best intercepts if W = 0; `weights` is the total weight of each class."""

    def smoothed(self, delta: float) -> JointLoss:
        """Return a smooth loss that differs from this one by at most a multiple of `delta`; itself if it is smooth."""
        return self

    def dual_scale(self, shares: Array) -> Array:
        """Return the weights of the supports of the sets: the shares themselves, as every set is maximised over."""
        return np.asarray(shares)


class ExpectedJointLoss(Parameters, ABC):
    r"""A convex, nondecreasing loss F(u, t) of a row's deficits u and scales t against its rivals, the other classes.

    It is a maximum of convex functions over shares of the rivals that add up to 1, so any shares give a lower bound.
    All methods take tables of shape (n_rows, n_rivals); :math:`t \ge 0` is the standard deviation of each lead.
    """

    is_homogeneous = False
    is_smooth = True
    has_dual = False
    dual_limit = 1.0

    @abstractmethod
    def log_shares(self, u: Array, t: Array, start: Array | None = None) -> Array:
        """Return the logarithms of the best shares, sought from `start` on where some near them are known."""

    @abstractmethod
    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        """Return F, shape (n_rows,), and its partial derivatives by u and t."""

    @abstractmethod
    def derivatives(self, u: Array, t: Array) -> tuple[Array, ...]:
        r"""Return the results of `evaluate`, then uu, ut, tt, p and q.

        The quadratic form of a row's Hessian is :math:`\sum_k` (uu :math:`du_k^2` + 2 ut :math:`du_k dt_k` + tt
        :math:`dt_k^2`) minus :math:`(\sum_k p_k du_k + q_k dt_k)^2`.
        """

    @abstractmethod
    def tangent(self, u: Array, t: Array, log_shares: Array) -> tuple[Array, Array, Array, Array]:
        """Return the lower bound of these shares, its slopes in u and t, and a bound on the increase by better shares.

        Proofs recompute the objective with this method, so it shares no code with `evaluate`.
        """
