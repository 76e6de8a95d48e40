"""The protocol of a loss of several classes at once: a convex function of the excess of every class over a row's own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.parameters import Parameters


class JointLoss(Parameters, ABC):
    r"""A loss :math:`F(z) = \max_{a \in \Delta} a^\top z + v(a)` of a row's table z, one entry a class, 0 for its own.

    For another class :math:`z_c = \text{margin} - \text{lead}_c + t_c`: the lead that the row's own class should have over
    it, less the one it has, plus how far the row's set can push that. :math:`\Delta` is the simplex, so a are shares of the
    classes that add up to 1, the slopes of F. Where F bends, its Hessian is :math:`\mathrm{diag}(s) - ss^\top/\sum_c s_c`.
    All methods take and give tables of shape (n_rows, n_classes).

    Attributes
    ----------
    margin : float
        The lead that is asked for.
    is_smooth : bool
        Whether its slopes are continuous.
    """

    margin = 1.0
    is_smooth = True
    has_dual = True
    dual_limit = 1.0

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Return F by the formula that defines it, for proofs: it shares no code with `evaluate`."""

    @abstractmethod
    def evaluate(self, z: Array) -> tuple[Array, Array]:
        """Return F, shape (n_rows,), and the shares a."""

    @abstractmethod
    def bends(self, shares: Array) -> Array:
        """Return s where the slopes are these shares."""

    @abstractmethod
    def dual_value(self, shares: Array) -> Array:
        """Return v(a), shape (n_rows,)."""

    @abstractmethod
    def best_constant(self, weights: Array) -> Array:
        """Return the best intercepts where all weights are 0, given the total weight of each class."""

    def smoothed(self, delta: float) -> JointLoss:
        """Return a smooth loss near this one, by a multiple of `delta` at most; itself where it is smooth."""
        return self

    def dual_scale(self, shares: Array) -> Array:
        """Return what the shares weigh the sets' supports by: themselves, every set being maximised over."""
        return np.asarray(shares)


class ExpectedJointLoss(Parameters, ABC):
    r"""A loss F(u, t) of a row's deficits and scales against its rivals, the other classes: convex and nondecreasing.

    It is itself a maximum, over shares of the rivals that add up to 1, of convex functions: what any shares give is a minorant.
    All methods take tables of shape (n_rows, n_rivals), :math:`t \ge 0` being the standard deviation of each lead.
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
        """Return F, shape (n_rows,), and its slopes in u and in t."""

    @abstractmethod
    def derivatives(self, u: Array, t: Array) -> tuple[Array, ...]:
        r"""Return the results of `evaluate`, then uu, ut, tt, p and q.

        The Hessian of a row is that of :math:`\sum_k` (uu :math:`du_k^2` + 2 ut :math:`du_k dt_k` + tt :math:`dt_k^2`) less
        :math:`(\sum_k p_k du_k + q_k dt_k)^2`, each sum halved.
        """

    @abstractmethod
    def tangent(self, u: Array, t: Array, log_shares: Array) -> tuple[Array, Array, Array, Array]:
        """Return what these shares give, its slopes in u and in t, and a bound on what better shares would add to it.

        Proofs recompute the objective with it, so it shares no code with `evaluate`.
        """
