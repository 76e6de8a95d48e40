"""Sets of one common shape, with a size for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import ratio
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, IntervalForm, RowHessians
from holdfast._core.row_sets import RowSets


class RowScaledSets(RowSets):
    r"""The sets :math:`f_i U` with supports :math:`t_i(w) = f_i\, t_U(w)`, U common to all rows and :math:`f_i \ge 0`.

    Their sum is a multiple of U: :math:`\sum_i \beta_i f_i U = (\sum_i \beta_i f_i)\, U`. To smooth them by
    :math:`\delta`, U is smoothed by :math:`\delta / \max f`, and the constant `slack` raises the support of each row to
    :math:`\delta` at w = 0.
    """

    def __init__(self, base: RowSets, factors: Array, slack: Array | float = 0.0):
        self.base, self.factors = base, factors
        self.slack = np.broadcast_to(np.asarray(slack, dtype=np.float64), factors.shape)
        self.is_isotropic, self.is_smooth = base.is_isotropic, base.is_smooth
        self.is_symmetric, self.is_sublinear = base.is_symmetric, base.is_sublinear
        # rows of size 0 do not matter here: they add nothing to a sum, so no kinks either
        self.is_full = base.is_full

    @property
    def _largest(self) -> float:
        return float(np.max(self.factors, initial=0.0)) or 1.0

    def support(self, w: Array) -> Array:
        return self.factors * self.base.support(w) + self.slack

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return self.factors[rows, None] * self.base.maximizer(w)

    def adjoint(self, w: Array, r: Array) -> Array:
        return self.base.adjoint(w, self.factors * r)

    def supports_at(self, W: Array) -> Array:
        return self.factors * self.base.supports_at(W) + self.slack

    def maximizers_at(self, W: Array) -> Array:
        return self.factors[:, None] * self.base.maximizers_at(W)

    def hessians_at(self, W: Array) -> RowHessians:
        return self.base.hessians_at(W).times(self.factors)

    def stretch(self, A: Array) -> Array:
        return self.factors * self.base.stretch(A)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        one = np.ones(())
        gauges = np.array([float(self.base.required_share(point, one, one)) for point in points])
        return np.asarray(gauges <= self.factors * (1 + slack))

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        return self.base.curvature(w, self.factors * first, self.factors**2 * second)

    def directional(self, w: Array, v: Array) -> Array:
        return self.factors * self.base.directional(w, v)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return self.base.curvature_product(w, self.factors * first, v)

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return self.base.cross(w, rows, self.factors * r)

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        return self.base.cross_with(other, w, self.factors * r)

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        # sum_i beta_i f_i U is a multiple of U; the needed share of it is split over the rows in proportion to their
        # terms
        pooled = self.factors * budgets
        needed, offered = float(self.base.required_share(target, pooled, scale, sizes)), float(np.sum(pooled))
        share = float(ratio(needed, offered)) if offered > 0 or needed == 0 else np.inf
        return budgets * share if np.isfinite(share) else np.full(len(pooled), np.inf)

    def shares_are_least(self, *, shrunk: bool = False) -> bool:
        return self.base.shares_are_least(shrunk=shrunk)

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        # this scale makes the used share of U, t_U / scale_U, equal to that of the row's set, t_i / scale_i
        scale = ratio(scale * self.base.support(direction), self.support(direction))
        return self.base.residual(target, self.factors * budgets, scale, direction)

    def interval_form(self) -> IntervalForm | None:
        form = self.base.interval_form()
        if form is None or not np.any(form.common):
            return form  # multiples of the set {0} are {0}
        return IntervalForm(np.zeros(()), self.factors[:, None] * form.common, None)

    def image(self, map: Any) -> RowScaledSets | None:
        base = self.base.image(map)
        return None if base is None else RowScaledSets(base, self.factors)

    def as_metadata(self, n_samples: int, n_features: int) -> dict[str, Any] | None:
        found = self.base.as_metadata(n_samples, n_features)
        if found is None:
            return None
        return {name: value * self.factors.reshape(-1, *[1] * (value.ndim - 1)) for name, value in found.items()}

    def absolute_reach(self, n_features: int) -> Array:
        return self.factors * self.base.absolute_reach(n_features)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return self.base.exact_features(n_features) | (not np.any(self.factors))

    def exact_directions(self, n_features: int) -> Array:
        return self.base.exact_directions(n_features)

    def scaled(self, factor: float) -> RowScaledSets:
        return RowScaledSets(self.base.scaled(factor), self.factors, factor * self.slack)

    def smoothed(self, delta: float) -> RowScaledSets:
        slack = delta * (1 - self.factors / self._largest)
        return RowScaledSets(self.base.smoothed(delta / self._largest), self.factors, slack)

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        return self.base.snapped_to_kinks(w, delta / self._largest, factor)

    def deviations(self) -> Any | None:
        s = self.base.deviations()
        return None if s is None or np.ndim(s) == 0 else np.outer(self.factors, s)

    def support_program(self, n_features: int) -> SupportProgram | None:
        one = self.base.support_program(n_features)
        if one is None:
            return None

        def points(budgets: Array, multipliers: Array) -> Array:
            return self.factors[:, None] * one.points(np.array([self.factors @ budgets]), multipliers)

        return SupportProgram(sparse.csr_array(self.factors[:, None]) @ one.T, one.cones, points)

    def take(self, rows: Any) -> RowScaledSets:
        return RowScaledSets(self.base, self.factors[rows], self.slack[rows])

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        return self.factors[:, None] * self.base.sample(rng, n_draws * len(self.factors), n_features).reshape(
            n_draws, -1, n_features
        )

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        return self.factors[:, None] * self.base.draw(rng, shape)
