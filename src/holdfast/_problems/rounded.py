"""Worst-case problems with a hinge rounded by a hyperbola, in a form that lets a solver keep the hyperbolas' slopes."""

from __future__ import annotations

from typing import cast

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.problem import Rounded
from holdfast._core.rows import MarginPass
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.losses.hyperbolic_hinge import HyperbolicHinge

STEEPEST = 1 - 1e-6
"""Kept slopes are clipped to this size, because rows with slopes nearer to 1 could not come back."""


class RoundedMargins:
    """A margin-scale problem in the form of `Rounded`."""

    def __init__(self, problem: MarginScaleProblem):
        self.problem = problem

    @property
    def enough(self) -> float:
        return self.problem.enough

    def typical_curvature(self) -> Array:
        return self.problem.typical_curvature()

    def rounded_at(self, parameters: Array) -> RoundedMarginModel:
        return RoundedMarginModel(self.problem, parameters)


class RoundedMarginModel:
    """A rounded margin-scale problem at a point."""

    @np.errstate(over="ignore", invalid="ignore")  # a step too long is told from its infinite value
    def __init__(self, problem: MarginScaleProblem, parameters: Array):
        self.problem, self.parameters, self.loss = problem, parameters, cast(HyperbolicHinge, problem.loss)
        self.w, b = problem.split(parameters)
        u = problem.target - problem.signs * (problem.rows.dot(self.w) + b)
        self.x = u + problem.sets.support(self.w)
        losses, slopes = self.loss.psi(self.x)
        self.weighted = problem.weights * slopes
        r = problem.signs * self.weighted
        found = MarginPass(
            float(problem.weights @ losses), problem.rows.transpose_dot(r), float(r.sum()), self.weighted
        )
        here = problem.summed(parameters, self.w, found)
        self.value, self.gradient = here.value, here.gradient

    @property
    def slopes(self) -> Array:
        """The slopes of the rows, followed by those of the sets."""
        return self.kept(np.append(self.loss.slope_of_root(self.x), self.problem.sets.root_slopes(self.w)))

    @staticmethod
    def kept(slopes: Array) -> Array:
        return np.clip(slopes, -STEEPEST, STEEPEST)

    def hessian(self, slopes: Array) -> Array:
        n = len(self.x)
        problem = self.problem.having(sets=self.problem.sets.bent_by(slopes[n:]))
        bends = problem.weights * self.loss.bend_by(self.x, slopes[:n])
        # rows with hardly any curvature would cost as much as others, so they are left out
        bends = np.where(bends <= self.loss.straight * np.max(bends, initial=0.0), 0.0, bends)
        return problem.hessian_of(self.w, self.weighted, bends, bends, bends)

    def slopes_after(self, slopes: Array, step: Array) -> Array:
        problem, n = self.problem, len(self.x)
        move, shift = problem.split(step)
        along = problem.sets.directional(self.w, move) - problem.signs * (problem.rows.dot(move) + shift)
        of_rows = self.loss.slope_after(self.x, slopes[:n], along)
        return self.kept(np.append(of_rows, problem.sets.root_slopes_after(self.w, slopes[n:], move)))


def _is_rounded(problem: MarginScaleProblem) -> bool:
    return problem.loss.is_hyperbolic and problem.push is None and problem.sets.is_smooth


@MarginScaleProblem.seen_as(Rounded, _is_rounded)
def rounded_margins(problem: MarginScaleProblem) -> Rounded:
    return RoundedMargins(problem)
