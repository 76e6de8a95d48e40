"""L-BFGS in the metric of a rough Hessian: one pass over the data per step."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from holdfast._core.arithmetic import inverse, norm
from holdfast._core.problem import Evaluation, Problem, Smooth
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED, VANISHING


class QuasiNewton(Solver):
    """Limited-memory BFGS, started from ``problem.metric``: the Hessian of a sample of the rows, or a diagonal.

    Parameters
    ----------
    memory : int, default=20
        Number of past steps that it remembers.
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
        here = view.evaluate(np.array(start, dtype=np.float64))
        # where no loss has curvature, as far out, the metric has no scale
        least = VANISHING * view.typical_curvature()
        metric = inverse(_floored(view.metric(here.parameters), least))
        pairs: deque[tuple[Array, Array]] = deque(maxlen=self.memory)
        status, n_iter, age = Status.ITERATION_LIMIT, 0, 0
        for n_iter in range(1, max_iter + 1):
            step = -_two_loops(here.gradient, pairs, metric)
            promise = -0.5 * float(here.gradient @ step) / max(abs(here.value), view.enough)
            left = promise if rough else view.suboptimality(here)
            report(
                f"quasi-newton {n_iter}: objective {here.value:.10g}, estimated gap {left:.2e}, next step {promise:.2e}"
            )
            if here.value <= view.enough or left <= tol:
                status = Status.SOLVED
                break
            found = None
            if promise > POLISHED and np.all(np.isfinite(step)):
                step *= min(1.0, view.longest_step(here.parameters, step))
                found = _search(view, here, step)
            age += 1
            # not even the fresh metric gives a descent step
            if found is None and age == 1:
                status = Status.STALLED
                break
            if found is not None:
                change, bend = found.parameters - here.parameters, found.gradient - here.gradient
                # a pair without positive curvature would make the estimate indefinite
                if change @ bend > 1e-14 * float(norm(change)) * float(norm(bend)):
                    pairs.append((change, bend))
                here = found
            if found is None or age >= view.metric_age:
                metric, age = inverse(_floored(view.metric(here.parameters), least)), 0
                # pairs describe the Hessian relative to the old metric
                pairs.clear()
        return Solution(here.parameters, status, here.value, n_iter, self.name)


def _floored(metric: Array, lowest: Array) -> Array:
    """Return the metric with its diagonal raised to at least `lowest`."""
    if metric.ndim == 1:
        return np.maximum(metric, lowest)
    lacking = np.maximum(lowest - np.diagonal(metric, axis1=-2, axis2=-1).reshape(-1), 0.0)
    if not np.any(lacking):
        return metric
    return metric + lacking.reshape(metric.shape[:-1])[..., None] * np.eye(metric.shape[-1])


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


def _search(view: Smooth, here: Evaluation, step: Array) -> Evaluation | None:
    """Return the evaluation of a point along `step` that satisfies the weak Wolfe conditions, None if none is found."""
    slope = float(here.gradient @ step)
    low, high, length = 0.0, np.inf, 1.0
    limit = view.longest_step(here.parameters, step)
    for _ in range(30):
        there = view.evaluate(here.parameters + length * step)
        if not there.value <= here.value + 1e-4 * length * slope + 1e-15 * abs(here.value):
            high = length
        elif float(there.gradient @ step) < 0.9 * slope and 2 * length <= limit:
            low = length
        else:
            return there
        if high == np.inf:
            length *= 2
        else:
            # minimiser of the parabola through value, slope and the rejected value, kept inside the bracket
            rise = there.value - here.value - slope * length
            guess = -0.5 * slope * length**2 / rise if rise > 0 and low == 0 else 0.5 * (low + high)
            length = min(max(guess, low + 0.1 * (high - low)), high - 0.1 * (high - low))
    return None
