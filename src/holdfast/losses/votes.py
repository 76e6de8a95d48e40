"""Losses of a row under a vote with random weights: functions of v, the logarithm of a mean over the voters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.special import entr, expit

from holdfast._core.loss import Array
from holdfast._core.parameters import Parameters

LN2 = np.log(2)


class VoteLoss(Parameters, ABC):
    r"""A convex, increasing function :math:`\ell(v) \ge [v \ge 0]` of :math:`v = \ln \mathbb E_Q\, e^{-y\, w^\top x}`.

    :math:`\ell(\ln a)` must be concave in a. Then, by Jensen's inequality, :math:`\ell(v)` is at least the mean loss of
    the voters, and so at least the share of them that err. Concavity also puts the exponentials that coordinate descent
    minimises above the loss.
    """

    largest_slope: float = np.inf
    """Supremum of the slopes."""

    @abstractmethod
    def value(self, v: Array) -> Array:
        """Return the loss."""

    @abstractmethod
    def slope(self, v: Array) -> Array:
        """Return the slope of the loss, >= 0."""

    @abstractmethod
    def bend(self, v: Array) -> Array:
        """Return the second derivative of the loss."""

    @abstractmethod
    def dual_value(self, a: Array) -> Array:
        """Return the minimum of loss(v) - a v over v, for slopes a from 0 to `largest_slope`."""

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Return the instances on which every test of this loss runs."""
        return [cls()]


class LogVote(VoteLoss):
    r"""The loss :math:`\log_2(1 + e^v)` of BaLaBoost: linear where most voters err, which limits the pull of any label.

    Examples
    --------
    >>> LogVote().value(np.array([0.0, 10.0])).round(4)
    array([ 1.   , 14.427])
    """

    largest_slope = 1.0 / LN2

    def value(self, v: Array) -> Array:
        # as np.logaddexp(0, v), of which NumPy has no vector instructions
        return (np.maximum(v, 0.0) + np.log1p(np.exp(-np.abs(v)))) / LN2

    def slope(self, v: Array) -> Array:
        return expit(v) / LN2

    def bend(self, v: Array) -> Array:
        return expit(v) * expit(-v) / LN2

    def dual_value(self, a: Array) -> Array:
        share = np.minimum(a * LN2, 1.0)
        return (entr(share) + entr(1 - share)) / LN2


class ExpVote(VoteLoss):
    """The loss exp(v) of AdaBoost, and of Huber-Reg AdaBoost.

    Examples
    --------
    >>> ExpVote().value(np.array([0.0, -1.0])).round(4)
    array([1.    , 0.3679])
    """

    def value(self, v: Array) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(v)

    def slope(self, v: Array) -> Array:
        return self.value(v)

    def bend(self, v: Array) -> Array:
        return self.value(v)

    def dual_value(self, a: Array) -> Array:
        return a + entr(a)
