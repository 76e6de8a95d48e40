"""The hinge loss rounded by a hyperbola, at the worst point of a set."""

from __future__ import annotations

import numpy as np

from holdfast._core.allowed import Number
from holdfast._core.loss import Array
from holdfast.losses.worst_case import WorstCaseLoss


class HyperbolicHinge(WorstCaseLoss):
    r"""The worst-case loss :math:`(x + \sqrt{x^2 + c^2})/2`, x = u + t: the hinge, rounded so that it bends everywhere.

    Parameters
    ----------
    scale : float, default=1.0
        c > 0. The loss lies above the hinge, by c/2 at most.

    Examples
    --------
    >>> HyperbolicHinge(2.0).value(np.array([0.0, 1.5]), np.zeros(2))
    array([1., 2.])
    """

    parameter_table = {"scale": Number(strictly=True)}

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    is_hyperbolic = True

    def psi(self, x: Array) -> tuple[Array, Array]:
        root = self._root(x)
        reach = root + np.abs(x)
        # where x < 0 the sum cancels, its conjugate does not
        value = np.where(x > 0, 0.5 * reach, 0.5 * self.scale**2 / reach)
        return value, value / root

    def value(self, u: Array, t: Array) -> Array:
        x = u + t
        root = np.hypot(x, self.scale)
        return np.where(x > 0, 0.5 * (x + root), 0.5 * self.scale * (self.scale / (root - np.minimum(x, 0.0))))

    def _root(self, x: Array) -> Array:
        # four times as fast as hypot, and no deficit is so large that its square overflows
        return np.asarray(np.sqrt(np.square(x) + self.scale**2))

    def bend(self, x: Array) -> Array:
        root = self._root(x)
        return 0.5 * np.square(self.scale / root) / root

    def slope_of_root(self, x: Array) -> Array:
        """Return the slope s of the root at x = u + t, between -1 and 1; the loss has the slope (1 + s) / 2."""
        return x / self._root(x)

    def bend_by(self, x: Array, slopes: Array) -> Array:
        """Return the curvature of the loss from given slopes of the roots; the exact slopes give `bend`."""
        root = self._root(x)
        return 0.5 * (1.0 - slopes * (x / root)) / root

    def slope_after(self, x: Array, slopes: Array, move: Array) -> Array:
        """Return the slopes of the roots after x moves by `move`, by the linearised equation for them."""
        return self.slope_of_root(x) + 2.0 * self.bend_by(x, slopes) * move

    def dual_value(self, a: Array) -> Array:
        return a + self.scale * np.sqrt(np.maximum(a * (1.0 - a), 0.0))

    def dual_slope(self, a: Array) -> Array:
        return 1.0 + self.scale * (0.5 - a) / np.sqrt(a * (1.0 - a))

    def dual_bend(self, a: Array) -> Array:
        return -0.25 * self.scale * (a * (1.0 - a)) ** -1.5
