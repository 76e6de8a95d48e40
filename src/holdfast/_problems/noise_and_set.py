"""Losses averaged over noise and maximised over a set around each value of the noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array
from holdfast._core.problem import WITHHELD, Composite, Evaluation, Problem
from holdfast._core.programs import FiniteSum
from holdfast._core.row_sets import RowSets
from holdfast._core.solution import DualGuess
from holdfast._problems.margin_scale import MarginScaleProblem


@dataclass
class NoiseAndSetProblem(MarginScaleProblem):
    r"""Minimise :math:`\sum_i c_i\,[\ell(u_i + \kappa h_i(w), t_i(w)) + (1-\kappa) h_i(w)]` plus ridge and penalty.

    Here t is the scale of the noise that the loss is averaged over, as in :class:`MarginScaleProblem`, and h is the
    support of `push`, the sets over which the loss is maximised.
    """

    has_kinks = True
    views = {Composite: WITHHELD, FiniteSum: WITHHELD}

    @property
    def pushing(self) -> RowSets:
        """The sets over which the loss is maximised."""
        return cast(RowSets, self.push)

    def generators(self) -> Array | None:
        return super().generators() if self.sets.is_isotropic and self.pushing.is_isotropic else None

    def _deficit(self, w: Array, b: float) -> Array:
        return self.target - self.signs * (self.rows.dot(w) + b) + self.kappa * self.pushing.support(w)

    @np.errstate(over="ignore", invalid="ignore")
    def evaluate(self, parameters: Array) -> Evaluation:
        (w, b), c = self.split(parameters), self.weights
        value, slope, scale_slope = self.loss.evaluate(self._deficit(w, b), self.sets.support(w))
        r = c * self.signs * slope
        outward = self.sets.adjoint(w, c * scale_slope) + self.pushing.adjoint(w, self.push_budgets(slope))
        total = float(c @ value) + (1 - self.kappa) * float(np.sum(c * self.pushing.support(w)))
        gradient = self.join(outward - self.rows.transpose_dot(r) + self.alpha * w, -float(r.sum()))
        total += 0.5 * self.alpha * float(w @ w)
        if self.penalty is not None:
            total, gradient = total + self.penalty.value(w), gradient + self.join(self.penalty.slopes(w), 0.0)
        return Evaluation(parameters, total, gradient)

    second_order = Problem.second_order

    def hessian(self, parameters: Array) -> Array:
        (w, b), c, y, push, k = self.split(parameters), self.weights, self.signs, self.pushing, self.kappa
        parts = self.loss.derivatives(self._deficit(w, b), self.sets.support(w))
        uu, ut = c * parts[3], c * parts[4]
        H = self.hessian_of(w, *(c * part for part in parts[2:]))
        n = self.rows.n_features
        cross = push.cross(w, self.rows, k * y * uu) - push.cross_with(self.sets, w, k * ut)
        H[:n, :n] += push.curvature(w, self.push_budgets(parts[1]), k * k * uu) - cross - cross.T
        if self.fit_intercept:
            along = push.adjoint(w, k * y * uu)
            H[n, :n] -= along
            H[:n, n] -= along
        return H

    def sized(self, factor: float) -> Self:
        return super().sized(factor).having(push=self.pushing.resized(factor))

    def smoothed(self, delta: float) -> NoiseAndSetProblem:
        if not delta > 0:
            return self
        return replace(cast(NoiseAndSetProblem, super().smoothed(delta)), push=self.pushing.smoothed(delta))

    def dual_guess(self, parameters: Array) -> DualGuess:
        w, b = self.split(parameters)
        t = self.sets.support(w)
        return DualGuess(self.loss.evaluate(self._deficit(w, b), t)[1], w, t, self.sets, self.pushing)

    def snapped_to_kinks(self, parameters: Array, delta: float, factor: float) -> Array:
        w, b = self.split(super().snapped_to_kinks(parameters, delta, factor))
        return self.join(self.pushing.snapped_to_kinks(w, delta, factor), b)

    def row_fields(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return super().row_fields(rows) | {"push": self.pushing.take(rows)}
