"""Minimisation within bounds, for few variables whose function is costly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from holdfast._core.loss import Array
from holdfast._core.solver import Report, silent


def minimised_in_box(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    lower: Array,
    upper: Array,
    *,
    tol: float,
    gain: float,
    max_iter: int,
    report: Report = silent,
) -> tuple[Array, float]:
    """Return the lowest point found near `start` within bounds, and its value; `function` returns value and gradient.

    L-BFGS-B runs until no entry of the projected gradient exceeds `tol`, or a step gains less than `gain` of the value.
    The function need not be convex: the result is a stationary point, or the last of `max_iter` steps, and never worse
    than the start.
    """
    steps = 0

    def told(intermediate_result: object) -> None:
        nonlocal steps
        steps += 1
        report(f"step {steps}: {getattr(intermediate_result, 'fun', np.nan):.6g}")

    bounds = np.column_stack([lower, upper])
    options = {"maxiter": max_iter, "gtol": tol, "ftol": gain}
    found = minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=told, options=options)
    return np.clip(found.x, lower, upper), float(found.fun)
