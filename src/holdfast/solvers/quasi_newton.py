"""L-BFGS in the metric of a rough Hessian: one pass over the data a step."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from holdfast._core.problem import Problem, Smooth
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED


class QuasiNewton(Solver):
    """Limited-memory BFGS, started from ``problem.metric``: the Hessian of a sample of the rows, or a diagonal.

    Parameters
    ----------
    memory : int, default=20
        How many steps it remembers.
    """

    name = "quasi_newton"
    needs = (Smooth,)

    def __init__(self, memory: int = 20):
        self.memory = memory

    def preference(self, work: dict[str, Any]) -> float:
        return 1.0

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(Smooth)
        assert view is not None
        theta = np.array(start, dtype=np.float64)
        value, gradient = view.value_and_gradient(theta)
        metric = inverse(view.metric(theta))
        pairs: deque[tuple[Array, Array]] = deque(maxlen=self.memory)
        status, n_iter, age = Status.ITERATION_LIMIT, 0, 0
        for n_iter in range(1, max_iter + 1):
            gap = view.suboptimality(theta, value, gradient)
            step = -_two_loops(gradient, pairs, metric)
            promise = -0.5 * float(gradient @ step) / max(abs(value), view.enough)
            report(f"quasi-newton {n_iter}: objective {value:.10g}, estimated gap {gap:.2e}, next step {promise:.2e}")
            if value <= view.enough or (promise if rough else gap) <= tol:
                status = Status.SOLVED
                break
            found = None
            if promise > POLISHED and np.all(np.isfinite(step)):
                step *= min(1.0, view.longest_step(theta, step))
                found = _search(view, theta, value, gradient, step)
            age += 1
            if found is None and age == 1:
                status = Status.STALLED
                break
            if found is not None:
                new_theta, value, new_gradient = found
                change, bend = new_theta - theta, new_gradient - gradient
                if change @ bend > 1e-14 * np.linalg.norm(change) * np.linalg.norm(bend):
                    pairs.append((change, bend))
                theta, gradient = new_theta, new_gradient
            if found is None or age >= view.metric_age:
                metric, age = inverse(view.metric(theta)), 0
                pairs.clear()
        return Solution(theta, status, value, n_iter, self.name)


def inverse(metric: Array) -> Any:
    """Return the function v -> metric^-1 v of a matrix, of a diagonal, or of a stack of diagonal blocks."""
    if metric.ndim == 3:
        blocks = [inverse(block) for block in metric]
        return lambda v: np.concatenate(
            [solve(part) for solve, part in zip(blocks, np.split(v, len(blocks)), strict=True)]
        )
    if metric.ndim == 2:
        scale = np.sqrt(np.maximum(np.diag(metric), np.finfo(float).tiny))
        ridge = 1e-12
        while ridge < 1e3:
            try:
                factor = cho_factor(metric / np.outer(scale, scale) + ridge * np.eye(len(metric)))
            except (LinAlgError, ValueError):
                ridge *= 10
                continue
            return lambda v: _scaled_solve(factor, scale, v)
        metric = np.diag(metric)
    positive = np.where(metric > 0, metric, np.max(metric, initial=1.0))
    return lambda v: v / positive


@np.errstate(over="ignore", invalid="ignore")  # where the metric all but vanishes; the search then finds no descent
def _scaled_solve(factor: Any, scale: Array, v: Array) -> Array:
    return cho_solve(factor, v / scale, check_finite=False) / scale


def _two_loops(gradient: Array, pairs: deque[tuple[Array, Array]], metric: Any) -> Array:
    """Return the inverse Hessian estimate times the gradient (Nocedal's two-loop recursion)."""
    q = gradient.copy()
    amounts = []
    for change, bend in reversed(pairs):
        amount = (change @ q) / (change @ bend)
        q -= amount * bend
        amounts.append(amount)
    r = metric(q)
    if pairs:
        # the metric's size from the newest step, its shape from the metric
        change, bend = pairs[-1]
        size = float(bend @ metric(bend))
        r *= (change @ bend) / size if 0 < size < np.inf else 1.0
    for (change, bend), amount in zip(pairs, reversed(amounts), strict=True):
        r += (amount - (bend @ r) / (change @ bend)) * change
    return r


def _search(
    view: Smooth, theta: Array, value: float, gradient: Array, step: Array
) -> tuple[Array, float, Array] | None:
    """Return a point along `step` that satisfies the weak Wolfe conditions, with its value and gradient."""
    slope = float(gradient @ step)
    low, high, length = 0.0, np.inf, 1.0
    limit = view.longest_step(theta, step)
    for _ in range(30):
        candidate = theta + length * step
        new_value, new_gradient = view.value_and_gradient(candidate)
        new_slope = float(new_gradient @ step)
        if not new_value <= value + 1e-4 * length * slope + 1e-15 * abs(value):
            high = length
        elif new_slope < 0.9 * slope and 2 * length <= limit:
            low = length
        else:
            return candidate, new_value, new_gradient
        if high == np.inf:
            length *= 2
        else:
            # minimiser of the parabola through value, slope and the rejected value, kept inside the bracket
            rise = new_value - value - slope * length
            guess = -0.5 * slope * length**2 / rise if rise > 0 and low == 0 else 0.5 * (low + high)
            length = min(max(guess, low + 0.1 * (high - low)), high - 0.1 * (high - low))
    return None
