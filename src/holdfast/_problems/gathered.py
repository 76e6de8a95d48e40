"""Passes over few dense rows with a common set, in as few NumPy calls as possible: calls dominate their cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.problem import Evaluation

if TYPE_CHECKING:
    from holdfast._problems.margin_scale import MarginScaleProblem

ONE = np.ones(1)


class GatheredRows:
    """A margin-scale problem without a tilt and without a penalty other than a ridge, with a set common to all rows.

    The columns of `signed` are the rows times their labels; the labels are its last line, used if there is an
    intercept.
    """

    def __init__(self, problem: MarginScaleProblem, signed: Array):
        self.problem, self.n_features = problem, problem.rows.n_features
        self.signed = signed if problem.fit_intercept else signed[:-1]

    def evaluate(self, parameters: Array) -> Evaluation:
        """Return what the problem's method does."""
        problem, w = self.problem, parameters[: self.n_features]
        parts = problem.loss.evaluate(problem.target - parameters @ self.signed, problem.sets.support(w))
        return self._summed(parameters, problem.sets.adjoint(w, ONE), *parts)

    def second_order(self, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        """Return what the problem's method does."""
        problem, w = self.problem, parameters[: self.n_features]
        u, t = problem.target - parameters @ self.signed, problem.sets.support(w)
        losses, slopes, scale_slopes, *bends = problem.loss.derivatives(u, t)
        point = problem.sets.adjoint(w, ONE)
        here = self._summed(parameters, point, losses, slopes, scale_slopes)

        def hessian() -> Array:
            H = self.hessian_of(w, point, scale_slopes, *bends)
            couplings = problem.loss.couplings(u, t)
            return H - problem.coupled(w, couplings) if couplings else H

        return here.value, here.gradient, hessian

    def _summed(self, parameters: Array, point: Array, losses: Array, slopes: Array, scale_slopes: Array) -> Evaluation:
        """Return the objective and its gradient; `point` is the worst point of the set."""
        problem, d = self.problem, self.n_features
        c, alpha, w = problem.weights, problem.alpha, parameters[:d]
        outward = float(c @ scale_slopes) * point
        gradient: Array = self.signed @ (c * -slopes)
        gradient[:d] += outward
        gradient[:d] += alpha * w
        value = float(c @ losses) + 0.5 * alpha * float(w @ w)
        return Evaluation(parameters, value, gradient, problem.stiffness(w, outward))

    def hessian_of(self, w: Array, point: Array, scale_slopes: Array, uu: Array, ut: Array, tt: Array) -> Array:
        problem, c, d = self.problem, self.problem.weights, self.n_features
        roots = self.signed * np.sqrt(c * uu)
        H: Array = roots @ roots.T
        cross = (self.signed @ (c * ut))[:, None] * point
        H[:, :d] -= cross
        H[:d] -= cross.T
        H[:d, :d] += problem.sets.curvature(w, float(c @ scale_slopes) * ONE, float(c @ tt) * ONE)
        H.reshape(-1)[: d * len(H) : len(H) + 1] += problem.alpha
        return H
