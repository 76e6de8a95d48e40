"""The best intercept for given scores."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from holdfast._core.loss import Array
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem

KINK = 1e-12
"""Smoothing at which the best intercept of w = 0 is sought: none to speak of."""


@singledispatch
def best_constant(problem: LinearProblem, b: Any) -> Any:
    """Return the best intercept at w = 0, sought from b on."""
    raise NotImplementedError(f"No best constant is known for {type(problem).__name__}.")


@best_constant.register
def best_constant_of_two(problem: MarginScaleProblem, b: float) -> float:
    """Return the one of two classes."""
    w = np.zeros(problem.rows.n_features)
    near = problem.having(loss=problem.loss.smoothed(KINK), push=None)
    if np.ndim(problem.target) == 0:
        # rows of a class are all alike there
        near = near.of_classes(problem.rows, np.array(problem.class_weights()))
        return best_intercept(near, w, np.zeros(2), np.zeros(()), b)
    return best_intercept(near, w, np.zeros(len(near.signs)), near.sets.support(w), b)


def best_intercept(problem: MarginScaleProblem, w: Array, scores: Array, t: Array, b: float) -> float:
    """Return the b at which the slope in b vanishes to rounding: Newton inside a bracket."""
    y, c = problem.signs, problem.weights
    pushed = problem.kappa * problem.push_of(w)

    def slope(b: float) -> tuple[float, float]:
        _, slopes, _, bends, *_ = problem.loss.derivatives(problem.target - y * (scores + b) + pushed, t)
        return -float(np.sum(c * y * slopes)), float(np.sum(c * bends))

    low, high = -np.inf, np.inf
    for _ in range(60):
        g, h = slope(b)
        low, high = (b, high) if g < 0 else (low, b)
        move = -g / h if h > 0 else -np.sign(g)
        new = b + float(np.clip(move, -10.0, 10.0))
        if not low < new < high:
            new = 0.5 * (low + high) if np.isfinite(low) and np.isfinite(high) else new
        if new == b or abs(g) <= 1e-15 * float(c.sum()):
            break
        b = new
    return b
