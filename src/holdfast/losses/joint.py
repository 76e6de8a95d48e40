"""Losses of all classes at once: the hinge of the most dangerous class, and the cross-entropy."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, logsumexp

from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array

MOST_STEPS = 60
"""Most Newton steps for the level of a smoothed maximum; far fewer are needed."""


class MaxHinge(JointLoss):
    r"""The hinge of the most dangerous class, :math:`F(z) = \max_c z_c` (Crammer and Singer; multiclass ASVC).

    Examples
    --------
    >>> MaxHinge().evaluate(np.array([[0.0, 0.4, -1.0], [0.0, -0.1, -0.2]]))[0]
    array([0.4, 0. ])
    """

    is_smooth = False

    def value(self, z: Array) -> Array:
        return np.asarray(np.max(z, axis=1))

    def evaluate(self, z: Array) -> tuple[Array, Array]:
        top = z.max(axis=1)
        ties = z == top[:, None]
        return top, ties / ties.sum(axis=1, keepdims=True)

    def bends(self, shares: Array) -> Array:
        return np.zeros_like(shares)

    def dual_value(self, shares: Array) -> Array:
        return np.zeros(len(shares))

    def best_constant(self, weights: Array) -> Array:
        # a lead of g in [0, 1] saves g on each row of its class and costs g on each of the others
        lead = np.zeros(len(weights))
        heaviest = int(np.argmax(weights))
        lead[heaviest] = float(2 * weights[heaviest] > weights.sum())
        return lead

    def smoothed(self, delta: float) -> JointLoss:
        return EasedMaxHinge(delta)


class EasedMaxHinge(MaxHinge):
    r"""The smooth maximum :math:`\max_{a \in \Delta} a^\top z + c (\sum_k \sqrt{a_k} - 1)` of K entries.

    It lies above the maximum, by :math:`c(\sqrt K - 1)` at most. Its shares are :math:`a_k = (c/2)^2 / (\lambda -
    z_k)^2` with the level :math:`\lambda` at which they sum to 1. Like the slopes of the hyperbolic hinge, the shares
    fall with the square of the distance :math:`\lambda - z_k`, so a path of decreasing c can take long steps.

    Parameters
    ----------
    scale : float, default=1.0
        c > 0.

    Examples
    --------
    >>> EasedMaxHinge(0.1).evaluate(np.array([[0.0, 0.4, -1.0]]))[0].round(4)
    array([0.4073])
    """

    is_smooth = True

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    def value(self, z: Array) -> Array:
        return self.evaluate(z)[0]  # only solvers use this loss

    def evaluate(self, z: Array) -> tuple[Array, Array]:
        top = z.max(axis=1)
        below = (top[:, None] - z) / (0.5 * self.scale)
        level = np.ones(len(z))
        for _ in range(MOST_STEPS):
            # (sum of inverse squares)^(-1/2) is concave in the level and nearly linear: steps never pass the root
            inverse = 1 / (level[:, None] + below)
            squares, cubes = np.sum(inverse**2, axis=1), np.sum(inverse**3, axis=1)
            step = (np.sqrt(squares) - 1) * squares / cubes
            level = level + np.maximum(step, 0.0)
            if np.all(step <= 1e-15 * level):
                break
        roots = 1 / (level[:, None] + below)
        shares = np.square(roots)
        value = top + self.scale * (roots.sum(axis=1) - 1 - 0.5 * np.sum(shares * below, axis=1))
        return value, shares

    def bends(self, shares: Array) -> Array:
        return 4 / self.scale * shares**1.5

    def dual_value(self, shares: Array) -> Array:
        return np.asarray(self.scale * (np.sqrt(shares).sum(axis=1) - 1))


class CrossEntropy(JointLoss):
    r"""The softmax cross-entropy :math:`F(z) = \log \sum_c e^{z_c}`; its dual value is the entropy of the shares.

    Examples
    --------
    >>> CrossEntropy().evaluate(np.zeros((1, 3)))[0].round(4)
    array([1.0986])
    """

    margin = 0.0

    def value(self, z: Array) -> Array:
        top = np.max(z, axis=1)
        return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))

    def evaluate(self, z: Array) -> tuple[Array, Array]:
        value = logsumexp(z, axis=1)
        return value, np.exp(z - value[:, None])

    def bends(self, shares: Array) -> Array:
        return shares

    def dual_value(self, shares: Array) -> Array:
        return np.asarray(entr(shares).sum(axis=1))

    def best_constant(self, weights: Array) -> Array:
        return np.log(weights / weights.sum())
