"""Newton's method with a factorised Hessian: few steps, accurate to rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs  # as cho_factor and cho_solve, whose checks cost more than small factors

from holdfast._core.problem import Curved, Problem
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import LOOSE, POLISHED, ROUNDING, VANISHING

CHORD = 0.1
"""The next Hessian is skipped if the last one promises a gain within this share of a loose tolerance."""

NEAR = 1e-6
"""The next decrement is predicted only if the present one is within this share of the objective."""
SETTLING, QUADRATIC = 10, 1e-6
"""Most steps after the objective has settled, and the share of a decrement that quadratic convergence leaves."""
EXACT = 1e-26
"""After a decrement of this share of the objective, slopes have ten digits, even those of kinks rounded by 1e-10."""


class Newton(Solver):
    """Damped Newton steps, the Hessian scaled to unit diagonal and factorised by Cholesky.

    A ridge is added to the scaled Hessian until the step is a descent direction that stays clear of a kink
    (``problem.longest_step``); then Armijo backtracking. A step costs O(n_samples * n_features**2).
    """

    name = "newton"
    needs = (Curved,)

    def preference(self, work: dict[str, Any]) -> float:
        return 2.0 if work["is_cheap_to_factorise"] else 0.5

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(Curved)
        assert view is not None
        theta = np.array(start, dtype=np.float64)
        value, gradient, hessian = view.second_order(theta)
        flat = VANISHING * view.typical_curvature()
        status, n_iter, before = Status.ITERATION_LIMIT, 0, np.inf
        for n_iter in range(1, max_iter + 1):
            if value <= view.enough:
                status = Status.SOLVED
                break
            step, decrement, chord = _step_and_chord(hessian(), gradient, flat, partial(view.longest_step, theta))
            report(f"newton {n_iter}: objective {value:.10g}, decrement {decrement:.2e}")
            if decrement <= max(tol, POLISHED) * abs(value) or _foretold(decrement, before, abs(value)) <= EXACT:
                # one last full step costs nothing and squares the error
                before_it = theta
                theta, value = _polished(view, theta, value, step)
                if not (tol > 0 or rough or theta is before_it):
                    theta, value = _settled(view, theta, value, decrement, chord)
                status = Status.SOLVED
                break
            found = _backtrack(view, theta, value, gradient, step)
            if found is None:
                status = Status.SOLVED if decrement <= 1e-9 * abs(value) else Status.STALLED
                break
            # steps that neither halve the decrement nor lower the value are moves within rounding
            stuck = found[1] >= value - 1e-14 * abs(value) and decrement >= 0.5 * before
            theta, value, gradient, hessian = found
            if stuck:
                status = Status.SOLVED if decrement <= 1e-9 * abs(value) else Status.STALLED
                break
            before = decrement
            if tol > LOOSE and not rough:
                # near the optimum the last Hessian is good enough for a final step without a new one
                step = chord(gradient)
                if (
                    0 <= -0.5 * float(gradient @ step) <= CHORD * tol * abs(value)
                    and view.longest_step(theta, step) >= 1
                ):
                    theta, value = _polished(view, theta, value, step)
                    status = Status.SOLVED
                    break
        return Solution(theta, status, value, n_iter, self.name)


def _foretold(decrement: float, before: float, value: float) -> float:
    """Return the predicted decrement of the next step as a share of the objective, inf if it cannot be predicted."""
    is_near = decrement <= NEAR * value and before < np.inf
    return decrement / value * (decrement / before) ** 2 if is_near and value > 0 else np.inf


def newton_step(
    H: Array, gradient: Array, flat: Array, longest: Callable[[Array], float] = lambda step: np.inf
) -> tuple[Array, float]:
    """Return a descent step and its decrement -g'p / 2, the improvement that the quadratic model promises.

    The curvature counts as no less than `flat`. No step exceeds the factor `longest(step)` of itself.
    """
    return _step_and_chord(H, gradient, flat, longest)[:2]


def _step_and_chord(
    H: Array, gradient: Array, flat: Array, longest: Callable[[Array], float]
) -> tuple[Array, float, Callable[[Array], Array]]:
    """Return step and decrement like `newton_step`, and a function from other gradients to steps with this Hessian."""
    diagonal = np.maximum(H.diagonal(), flat)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = H / (scale[:, None] * scale)
    unit = scaled.diagonal()
    # with unit diagonal 1e-15 is rounding; a ridge of 1e30 leaves steepest descent
    ridge, largest = 1e-15, 1e30
    while ridge < largest:
        ridged = scaled.copy()
        ridged.flat[:: len(scale) + 1] = unit + ridge
        factor, failed = dpotrf(ridged, lower=True, overwrite_a=True)
        if failed:
            # the matrix is singular to rounding: the smallest ridge that helps changes the step least
            ridge = max(10 * ridge, 1e-14)
            continue
        chord = partial(_solved, factor, scale)
        step = chord(gradient)
        if np.all(np.isfinite(step)) and longest(step) >= 1:
            return step, float(-0.5 * gradient @ step), chord
        # the step would cross a kink or overflow: it has to become shorter soon
        ridge = max(6 * ridge, 1e-6)
    with np.errstate(over="ignore"):
        step, pull = np.clip(-gradient / np.square(scale), -1e100, 1e100), gradient / scale
    return step * min(1.0, longest(step)), float(0.5 * pull @ pull), lambda other: -other / np.square(scale)


@np.errstate(over="ignore", invalid="ignore")
def _solved(factor: Array, scale: Array, gradient: Array) -> Array:
    return cast(Array, -dpotrs(factor, gradient / scale, lower=True)[0] / scale)


def _polished(view: Curved, theta: Array, value: float, step: Array) -> tuple[Array, float]:
    """Return the point after a full step and its value, or the old ones if the value rises."""
    polished, gradient = view.value_and_gradient(theta + step)
    is_good = polished <= value + ROUNDING * abs(value) and np.all(np.isfinite(gradient))
    return (theta + step, polished) if is_good else (theta, value)


def _settled(
    view: Curved, theta: Array, value: float, decrement: float, chord: Callable[[Array], Array]
) -> tuple[Array, float]:
    """Return point and value after more full steps, while decrements still fall, but more slowly than quadratically.

    The objective is the same at these points, but the slopes of rounded kinks, and so the proofs, differ.
    """
    for _ in range(SETTLING):
        _, gradient, hessian = view.second_order(theta)
        left = -0.5 * float(gradient @ chord(gradient))
        if not QUADRATIC * decrement < left < 0.25 * decrement:
            break
        step, decrement, chord = _step_and_chord(hessian(), gradient, np.zeros_like(theta), lambda step: np.inf)
        before, (theta, value) = theta, _polished(view, theta, value, step)
        if theta is before:
            break
    return theta, value


def _backtrack(
    view: Curved, theta: Array, value: float, gradient: Array, step: Array
) -> tuple[Array, float, Array, Callable[[], Array]] | None:
    """Return a point along the step that improves enough, within a factor 4 of the longest, and its derivatives."""
    slope = float(gradient @ step)
    length = too_long = 1.0
    found, enough = None, 0.0
    for _ in range(60):
        candidate = theta + length * step
        new_value, new_gradient, hessian = view.second_order(candidate)
        if new_value <= value + 1e-4 * length * slope and np.all(np.isfinite(new_gradient)):
            found, enough = (candidate, new_value, new_gradient, hessian), length
        else:
            too_long = length
        if found is not None:
            if enough >= 0.25 * too_long:
                return found
            length = float(np.sqrt(enough * too_long))  # the step was shortened too much
            continue
        # rounding hides the improvement: go by the slope, which must have shrunk
        at_rounding = new_value <= value + 1e-14 * abs(value)
        if at_rounding and abs(new_gradient @ step) < 0.5 * abs(slope):
            return candidate, new_value, new_gradient, hessian
        length = _shorter(length, new_value - value, abs(value))
    return found


def _shorter(length: float, rise: float, scale: float) -> float:
    """Return a shorter step: half of it, or far less where a vanishing Hessian has made it absurdly long."""
    if not np.isfinite(rise):
        return 1e-30 * length
    # far out the function is nearly linear: scale the step in proportion to the rise
    return length * min(0.5, 1e3 * scale / rise) if rise > 1e20 * scale else 0.5 * length
