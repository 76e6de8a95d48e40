"""Passes over few dense rows under one set for all of them, in as few steps of NumPy as possible: calls are what these cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.rows import MarginPass

if TYPE_CHECKING:
    from holdfast._problems.margin_scale import MarginScaleProblem

ONE = np.ones(1)


class GatheredRows:
    """A margin-scale problem whose rows times their labels, and these labels, are the columns of one array."""

    def __init__(self, problem: MarginScaleProblem, signed: Array):
        self.problem = problem
        self.signed = signed if problem.fit_intercept else signed[:-1]

    def deficits(self, parameters: Array) -> Array:
        """Return by how much each row falls short of its margin."""
        return self.problem.target - parameters @ self.signed

    def margin_pass(self, parameters: Array, w: Array) -> MarginPass:
        """Return what a pass over the rows brings back."""
        losses, slopes, scale_slopes = self.problem.loss.evaluate(
            self.deficits(parameters), self.problem.sets.support(w)
        )
        return self._summed(losses, slopes, scale_slopes)

    def _summed(self, losses: Array, slopes: Array, scale_slopes: Array) -> MarginPass:
        c, d = self.problem.weights, self.problem.rows.n_features
        pull = self.signed @ (c * slopes)
        balance = float(pull[d]) if self.problem.fit_intercept else 0.0
        return MarginPass(float(c @ losses), pull[:d], balance, np.array(c @ scale_slopes))

    def second_order(self, parameters: Array, w: Array) -> tuple[MarginPass, Callable[[], Array]]:
        """Return the same with a function that makes the Hessian."""
        u, t = self.deficits(parameters), self.problem.sets.support(w)
        losses, slopes, scale_slopes, *bends = self.problem.loss.derivatives(u, t)
        found = self._summed(losses, slopes, scale_slopes)

        def hessian() -> Array:
            H = self._hessian(w, float(found.scale_slopes), *bends)
            couplings = self.problem.loss.couplings(u, t)
            return H - self.problem.coupled(w, couplings) if couplings else H

        return found, hessian

    def _hessian(self, w: Array, slope_t: float, uu: Array, ut: Array, tt: Array) -> Array:
        problem, c, d = self.problem, self.problem.weights, len(w)
        roots = self.signed * np.sqrt(c * uu)
        H: Array = roots @ roots.T
        cross = np.outer(self.signed @ (c * ut), problem.join(problem.sets.adjoint(w, ONE), 0.0))
        H -= cross
        H -= cross.T
        inner = H[:d, :d]
        inner += problem.sets.curvature(w, slope_t * ONE, float(c @ tt) * ONE)
        ridge = problem.alpha if problem.penalty is None else problem.alpha + problem.penalty.bends(w)
        H.reshape(-1)[: d * len(H) : len(H) + 1] += ridge
        return H
