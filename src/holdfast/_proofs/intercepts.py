"""The best intercept for given scores."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from holdfast._core.loss import Array
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem

KINK = 1e-12
"""Smoothing at which the best intercept of w = 0 is sought: negligible."""
MOST_STEPS = 60
"""Number of steps after which a bracket that is halved each time has the width of a rounding error."""


@singledispatch
def best_constant(problem: LinearProblem, b: Any) -> Any:
    """Return the best intercept at w = 0; the search starts at b."""
    raise NotImplementedError(f"No best constant is known for {type(problem).__name__}.")


@best_constant.register
def best_constant_of_two(problem: MarginScaleProblem, b: float) -> float:
    """Return the best intercept of two classes at w = 0."""
    w = np.zeros(problem.rows.n_features)
    near = problem.having(loss=problem.loss.smoothed(KINK), push=None)
    if np.ndim(problem.target) == 0:
        # at w = 0 all rows of a class are alike
        near = near.of_classes(problem.rows, np.array(problem.class_weights()))
        return best_intercept(near, w, np.zeros(2), np.zeros(()), b)
    return best_intercept(near, w, np.zeros(len(near.signs)), near.sets.support(w), b)


def best_intercept(
    problem: MarginScaleProblem, w: Array, scores: Array, t: Array, b: float, n_steps: int = MOST_STEPS
) -> float:
    """Return the b at which the slope in b is 0 up to rounding, or the b reached after `n_steps` steps.

    Newton's method inside a bracket. If a step leaves the bracket, the next b is, in turn, the crossing of the tangents
    at its ends or its midpoint.
    """
    y, c = problem.signs, problem.weights
    pushed = problem.kappa * problem.push_of(w)

    def tangent(b: float) -> tuple[float, float, float]:
        losses, slopes, _, bends, *_ = problem.loss.derivatives(problem.target - y * (scores + b) + pushed, t)
        return float(np.sum(c * losses)), -float(np.sum(c * y * slopes)), float(np.sum(c * bends))

    low, high, is_kinked = (-np.inf, 0.0, 0.0), (np.inf, 0.0, 0.0), False
    for _ in range(n_steps):
        value, g, h = tangent(b)
        low, high = ((b, value, g), high) if g < 0 else (low, (b, value, g))
        move = -g / h if h > 0 else -np.sign(g)
        new = b + float(np.clip(move, -10.0, 10.0))
        if not low[0] < new < high[0] and np.isfinite(high[0] - low[0]):
            is_kinked = not is_kinked
            new = _crossing(low, high) if is_kinked else 0.5 * (low[0] + high[0])
        if new == b or abs(g) <= 1e-15 * float(c.sum()):
            break
        b = new
    return b


def _crossing(low: tuple[float, float, float], high: tuple[float, float, float]) -> float:
    """Return where two tangents (place, value, slope) cross: at the kink, if there is just one between them."""
    (a, f, g), (b, p, q) = low, high
    there = a + (p - f - q * (b - a)) / (g - q)
    return there if a < there < b else 0.5 * (a + b)
