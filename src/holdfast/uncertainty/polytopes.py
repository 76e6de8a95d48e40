"""Boxes and diamonds common to all rows: uncertainty sets, or worst cases of noise with unknown covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import MISSED, box_stretch, norm, ratio
from holdfast._core.common_sets import CommonPolytope, ExplicitSet, SmoothedCommonSet
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, IntervalForm
from holdfast._core.row_sets import RowSets

KINK_WIDTHS = 30.0
"""A distance from a kink of up to this many widths of the smoothing counts as an effect of the smoothing."""


class CommonBox(CommonPolytope):
    r"""The box :math:`|\delta_j| \le s_j` with support :math:`\sum_j s_j |w_j|`; s one number, or one for each feature.

    The support is the largest :math:`\sqrt{w^\top C w}` over all covariances C with :math:`C_{jj} \le s_j^2`.
    """

    def __init__(self, widths: Array):
        self.widths = np.asarray(widths, dtype=np.float64)

    def support(self, w: Array) -> Array:
        return np.asarray(np.sum(self.widths * np.abs(w), axis=-1))

    def point(self, w: Array) -> Array:
        return self.widths * np.sign(w)

    def stretch(self, A: Array) -> Array:
        return box_stretch(A, np.broadcast_to(self.widths, (1, A.shape[1])))[0]

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return True

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        widths = np.broadcast_to(self.widths, target.shape)
        if np.any(np.abs(target[widths == 0]) > MISSED * sizes[widths == 0]):
            return np.inf
        return float(np.max(ratio(np.abs(target), widths), initial=0.0))

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        # each feature's interval covers as much of its entry as it can, independently of the others
        return np.copysign(np.maximum(np.abs(target) - np.sum(budgets) * self.widths, 0.0), target)

    def interval_form(self) -> IntervalForm:
        return IntervalForm(self.widths, None, None)

    def absolute_reach(self, n_features: int) -> Array:
        return self.support(np.ones(n_features))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return np.broadcast_to(self.widths == 0, n_features)

    def image(self, map: Any) -> CommonBox | None:
        widths = np.broadcast_to(self.widths, map.shape[1])
        # the image is a box only if each output depends on an input of its own; two outputs of one input move together
        return CommonBox(widths[map.sources] * np.abs(map.scales)) if map.is_monomial else None

    def scaled(self, factor: float) -> CommonBox:
        return CommonBox(factor * self.widths)

    def smoothed(self, delta: float) -> RowSets:
        return SmoothedBox(self, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        near = (self.widths > 0) & (self.widths * np.abs(w) <= KINK_WIDTHS * delta / len(w))
        return np.where(near, factor * w, w)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        corners = rng.choice([-1.0, 1.0], size=(n_draws, 1, n_features))
        return self.widths * np.where(rng.uniform(size=corners.shape) < 0.7, corners, rng.uniform(-1, 1, corners.shape))


class CommonDiamond(CommonPolytope):
    r"""The diamond :math:`\sum_j |\delta_j| \le \sigma` with support :math:`\sigma \max_j |w_j|`.

    The support is the largest :math:`\sqrt{w^\top C w}` over all diagonal covariances C of trace at most
    :math:`\sigma^2`.
    """

    def __init__(self, radius: Array):
        self.radius = float(radius)

    def support(self, w: Array) -> Array:
        return np.asarray(self.radius * np.max(np.abs(w), axis=-1, initial=0.0))

    def point(self, w: Array) -> Array:
        # if several entries are largest, argmax takes one, so that the point is a corner
        is_worst = np.arange(w.shape[-1]) == np.argmax(np.abs(w), axis=-1)[..., None]
        return np.where(is_worst, self.radius * np.sign(w), 0.0)

    def stretch(self, A: Array) -> Array:
        # a convex function takes its maximum at a corner
        return np.asarray(self.radius * np.max(norm(A.T, axis=1), initial=0.0))

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return True

    def gauge(self, target: Array, sizes: Array | None = None) -> float:
        if self.radius == 0:
            sizes = np.full(len(target), norm(target)) if sizes is None else sizes
            return np.inf if np.any(np.abs(target) > MISSED * sizes) else 0.0
        return float(np.sum(np.abs(target)) / self.radius)

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        # the projection onto an l1 ball lowers all entries by one amount: the largest of (sum of the k largest - size)
        # / k
        size, falling = self.radius * float(np.sum(budgets)), np.sort(np.abs(target))[::-1]
        cut = np.max((np.cumsum(falling) - size) / np.arange(1, len(target) + 1))
        return np.clip(target, -max(cut, 0.0), max(cut, 0.0))

    def support_program(self, n_features: int) -> SupportProgram:
        # T(w, z) = z with -z <= radius w_j <= z
        reach, one = self.radius * sparse.eye_array(n_features), np.ones((n_features, 1))
        above = sparse.csr_array(sparse.block_array([[-reach, one], [reach, one]]))
        T = sparse.csr_array(np.eye(1, n_features + 1, n_features))

        def points(budgets: Array, multipliers: Array) -> Array:
            up, down = multipliers.reshape(2, 1, n_features)
            # divided by their own sum instead of the budget, so that the point is in the diamond even for rough
            # multipliers
            return self.radius * ratio(up - down, np.sum(np.abs(multipliers)))

        return SupportProgram(T, [("nonnegative", [2 * n_features], above)], points)

    def absolute_reach(self, n_features: int) -> Array:
        return self.support(np.ones(n_features))

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return np.full(n_features, self.radius == 0)

    def scaled(self, factor: float) -> CommonDiamond:
        return CommonDiamond(np.asarray(factor * self.radius))

    def smoothed(self, delta: float) -> RowSets:
        return SmoothedDiamond(self, delta)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        top = np.max(np.abs(w), initial=0.0)
        # the kinks are where entries tie for the largest size
        below = top - np.abs(w)
        near = self.radius * below <= KINK_WIDTHS * delta / np.log(2 * len(w))
        return np.where(near, np.copysign(top - factor * below, w), w)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        shares = rng.dirichlet(np.full(n_features, 0.3), size=(n_draws, 1))
        return self.radius * shares * rng.choice([-1.0, 1.0], size=shares.shape) * rng.uniform(0.5, 1, (n_draws, 1, 1))

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self.radius * uniform_in_ball(rng, shape, 1.0)


def uniform_in_ball(rng: np.random.Generator, shape: tuple[int, int], p: float) -> Array:
    r"""Return rows drawn uniformly from the unit ball of the p-norm.

    These are :math:`g / (\|g\|_p^p + e)^{1/p}`, with independent :math:`g_j` of density proportional to
    :math:`\exp(-|g_j|^p)` and e exponential (Barthe, Guedon, Mendelson & Naor, 2005).
    """
    powers = rng.gamma(1 / p, size=shape)
    lengths = powers.sum(axis=1) + rng.exponential(size=shape[0])
    return rng.choice([-1.0, 1.0], size=shape) * (powers / lengths[:, None]) ** (1 / p)


class SmoothedBox(ExplicitSet, SmoothedCommonSet):
    r"""A box with support :math:`T = \sum_j \sqrt{s_j^2 w_j^2 + (\delta/d)^2}`, d the number of features."""

    base: CommonBox

    def _roots(self, w: Array) -> tuple[Array, Array]:
        """Return s w and the square roots whose sum is T."""
        reach = self.base.widths * w
        return reach, np.hypot(reach, self.delta / w.shape[-1])

    def support(self, w: Array) -> Array:
        return np.asarray(np.sum(self._roots(w)[1], axis=-1))

    def point(self, w: Array) -> Array:
        reach, roots = self._roots(w)
        return self.base.widths * (reach / roots)

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        roots = self._roots(w)[1]
        return np.square(self.base.widths * (self.delta / w.shape[-1]) / roots) / roots, np.zeros(w.shape[:-1])

    def root_slopes(self, w: Array) -> Array:
        reach, roots = self._roots(w)
        return reach / roots

    def root_slopes_after(self, w: Array, slopes: Array, move: Array) -> Array:
        reach, roots = self._roots(w)
        return reach / roots + (1.0 - slopes * (reach / roots)) * (self.base.widths * move) / roots

    def bent_by(self, slopes: Array) -> RowSets:
        return BentBox(self.base, self.delta, slopes)


class BentBox(SmoothedBox):
    """The same with bends by slopes that were kept for the roots."""

    def __init__(self, base: CommonBox, delta: float, slopes: Array):
        super().__init__(base, delta)
        self.slopes = slopes

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        reach, roots = self._roots(w)
        bends = np.square(self.base.widths) * (1.0 - self.slopes * (reach / roots)) / roots
        return bends, np.zeros(w.shape[:-1])


class SmoothedDiamond(ExplicitSet, SmoothedCommonSet):
    r"""A diamond with support :math:`T = \epsilon \log \sum_j 2\cosh(\sigma w_j/\epsilon)`,
    :math:`\epsilon = \delta / \log 2d`, d the number of features.
    """

    base: CommonDiamond

    def _softened(self, w: Array) -> tuple[float, Array, Array]:
        """Return the width epsilon, T / epsilon, and the shares of the features."""
        width = self.delta / float(np.log(2 * w.shape[-1]))
        z = np.abs(w) * (self.base.radius / width)
        # 2 cosh(z) = e^z (1 + e^-2z). The largest exponent is factored out, so that nothing overflows and the sum is >=
        # 1
        top = z.max(axis=-1, keepdims=True)
        terms = np.exp(z - top) * (1 + np.exp(-2 * z))
        total = terms.sum(axis=-1, keepdims=True)
        return width, (top + np.log(total))[..., 0], terms / total

    def support(self, w: Array) -> Array:
        width, value, _ = self._softened(w)
        return np.asarray(width * value)

    def point(self, w: Array) -> Array:
        width, _, shares = self._softened(w)
        return self.base.radius * shares * np.tanh(w * (self.base.radius / width))

    def hessian_parts(self, w: Array) -> tuple[Array, Array]:
        width, _, shares = self._softened(w)
        return self.base.radius**2 / width * shares, np.full(w.shape[:-1], 1 / width)
