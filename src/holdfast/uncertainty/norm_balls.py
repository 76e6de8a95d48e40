"""Balls of any p-norm, 1 < p < inf."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import MISSED, box_stretch, norm, ratio, spectral_norm
from holdfast._core.common_sets import ExplicitSet, SmoothedCommonSet
from holdfast._core.memory import remembered
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast.uncertainty.polytopes import uniform_in_ball

HALVINGS = 60
"""The number of bisections, enough for full float64 precision."""


class CommonNormBall(ExplicitSet):
    r"""The ball :math:`\|\delta\|_p \le r` with support :math:`r \|w\|_q`, q = p / (p - 1), 1 < p < inf.

    For q < 2 the Hessian is unbounded near :math:`w_j = 0`, so the set does not count as smooth.
    """

    def __init__(self, radius: float, p: float):
        self.radius, self.p, self.q = float(radius), p, p / (p - 1)
        self.is_smooth = self.q >= 2
        self.is_full = self.radius > 0

    @remembered
    def _found(self, w: Array) -> _Derivatives:
        return _derivatives(w, self.radius, self.q)

    def support(self, w: Array) -> Array:
        return np.asarray(self._found(w).value)

    def point(self, w: Array) -> Array:
        return self._found(w).gradient

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        return self._found(w).bends, self._found(w).fall

    def stretch(self, A: Array) -> Array:
        # for p > 2 the longest vector of the unit ball has n equal entries n^(-1/p), so its length is n^(1/2 - 1/p);
        # for p <= 2 it is a unit vector. The ball also lies in the box with half-widths r
        longest = max(1.0, A.shape[1] ** (0.5 - 1 / self.p))
        return np.asarray(
            self.radius * min(longest * spectral_norm(A), float(box_stretch(A, np.ones((1, A.shape[1])))[0]))
        )

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        if self.radius == 0:
            sizes = np.full(len(target), norm(target)) if sizes is None else sizes
            return np.inf if np.any(np.abs(target) > MISSED * sizes) else 0.0
        return float(_p_norm(np.abs(target), self.p)) / self.radius

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return True

    def absolute_reach(self, n_features: int) -> Array:
        # over a set that is symmetric in each feature, the largest |d|_1 is the support at the vector of ones
        return self.support(np.ones(n_features))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return np.full(n_features, self.radius == 0)

    def scaled(self, factor: float) -> CommonNormBall:
        return CommonNormBall(factor * self.radius, self.p)

    def smoothed(self, delta: float) -> RowSets:
        return SmoothedNormBall(self, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        if self.is_smooth or self.radius == 0:
            return w
        # the gradient is proportional to x (x^2 + e^2)^(q/2 - 1), which rises with x: find the x that keeps the
        # gradient unchanged at the smaller e
        wide = delta * len(w) ** (-1 / self.q) / self.radius

        def pull(x: Array, e: float) -> Array:
            return x * np.power(np.hypot(x, e), self.q - 2, out=np.zeros(len(w)), where=x > 0)

        size = np.abs(w)
        wanted, low, high = pull(size, wide), np.zeros(len(w)), size
        # `pull` rises with x and falls with e, so at the smaller e it is too small at x = 0 and too large at x = |w|
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            is_low = pull(middle, factor * wide) < wanted
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return np.copysign(high, w)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        v = rng.normal(size=(n_draws, 1, n_features))
        sizes = np.minimum(rng.uniform(0, 2, size=(n_draws, 1, 1)), 1.0)
        return self.radius * sizes * v / np.sum(np.abs(v) ** self.p, axis=-1, keepdims=True) ** (1 / self.p)

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self.radius * uniform_in_ball(rng, shape, self.p)


class SmoothedNormBall(ExplicitSet, SmoothedCommonSet):
    r"""A ball with support :math:`T = \left(\sum_j (r^2 w_j^2 + e^2)^{q/2}\right)^{1/q}`, :math:`e = \delta\, d^{-1/q}`, d the
    number of features.

    With :math:`h_j = \sqrt{r^2 w_j^2 + e^2}` the gradient of T is :math:`r (h_j/T)^{q-1} (r w_j/h_j)`, a point of the
    ball since :math:`\|(h/T)^{q-1}\|_p = 1`; and :math:`T \le \|r|w| + e\|_q \le t + \delta`.
    """

    base: CommonNormBall

    @remembered
    def _found(self, w: Array) -> _Derivatives:
        smoothing = self.delta * w.shape[-1] ** (-1 / self.base.q)
        return _derivatives(w, self.base.radius, self.base.q, smoothing)

    def support(self, w: Array) -> Array:
        return np.asarray(self._found(w).value)

    def point(self, w: Array) -> Array:
        return self._found(w).gradient

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        return self._found(w).bends, self._found(w).fall

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        return self.residual_along(target, budgets, scale, direction)


class _Derivatives(NamedTuple):
    """T, its gradient, and its Hessian diag(bends) - fall * gradient gradient', for one w or for each of several."""

    value: Array
    gradient: Array
    bends: Array
    fall: Array


def _derivatives(w: Array, radius: float, q: float, smoothing: float = 0.0) -> _Derivatives:
    reach = radius * w
    roots = np.hypot(reach, smoothing)
    value = _p_norm(roots, q)
    each = value[..., None]
    # powers of quotients <= 1, as powers of the roots themselves over- or underflow for large q
    shares, slopes = ratio(roots, each), ratio(reach, roots)
    powers = np.power(shares, q - 2, out=np.zeros(w.shape), where=shares > 0)
    bends = radius**2 * ratio(1.0, each) * powers * (1 + (q - 2) * slopes**2)
    return _Derivatives(value, radius * powers * shares * slopes, bends, (q - 1) * ratio(1.0, value))


def _p_norm(sizes: Array, p: float) -> Array:
    """Return the p-norm of a vector, or of each row."""
    # dividing by the largest entry: no power overflows, and that of the largest entry does not underflow
    top = np.max(sizes, axis=-1, initial=0.0)
    return top * np.sum(ratio(sizes, top[..., None]) ** p, axis=-1) ** (1 / p)
