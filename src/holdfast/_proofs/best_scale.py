"""Dual weights from parameters: the losses' slopes at the best multiple of the weights and the best intercepts."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast._core.loss import Array


class Point(NamedTuple):
    """The objective somewhere on a ray."""

    value: float
    gradient: Array
    slopes: Array
    bends: tuple[Any, Any, Any]
    """The losses' second derivatives uu, ut and tt, or the sums of them that form the Hessian."""


class Scale(Protocol):
    """The objective at (r w, b) as a function of x = (r, b), or of x = (r,) without an intercept."""

    start: Array
    enough: float
    """At an objective up to this value any slopes will do: 0 is a good enough lower bound."""

    def evaluate(self, x: Array) -> Point:
        """Return the value, the gradient, and the losses' slopes in u and second derivatives."""
        ...

    def hessian(self, uu: Any, ut: Any, tt: Any) -> Array:
        """Return the Hessian in x formed from the second derivatives."""
        ...


class Ray(Scale, Protocol):
    """A scale problem whose points keep the losses' slopes."""

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        """Return the slopes after a short step, to first order."""
        ...


def slopes_at_best_scale(ray: Ray) -> Array:
    """Return the slopes in u at the best scale and intercepts."""
    _, here, step = best_scale(ray, ray.evaluate(ray.start))
    # over so short a step the slopes are nearly linear; any slopes give a valid bound, good slopes a tight one
    return ray.moved_slopes(here.slopes, step, *here.bends[:2]) if np.any(step) else here.slopes


def best_scale(ray: Scale, here: Point) -> tuple[Array, Point, Array]:
    """Return an x near the best one, the point there, and the remaining step to the best x (0 if not worth taking).

    `here` is the point at the start. The problem has few unknowns and costs O(n_samples) a step. At its solution
    w'gradient and the slope in b are 0, so the gap is of second order in the error of w.
    """
    x = ray.start
    for _ in range(100):
        if here.value <= ray.enough:
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            move = _solved(ray.hessian(*here.bends), here.gradient)
            usable = bool(np.all(np.isfinite(move))) and float(here.gradient @ move) < 0
        # where the curvature vanishes, as it does far from every row's margin, only the signs of the slopes are useful
        reach = np.append(x[0], np.ones(len(x) - 1))
        step = move if usable else -0.5 * np.sign(here.gradient) * reach
        step *= min(1.0, float(np.min(np.append(0.9 * x[0], np.full(len(x) - 1, 3.0)) / np.maximum(abs(step), 1e-300))))
        promised = -float(here.gradient @ step)
        if usable and promised <= 1e-8 * abs(here.value):
            return x, here, step
        there = _improved(ray, x, here, step) if promised > 0 else None
        if there is None:
            break
        x, here = there
    return x, here, np.zeros_like(x)


def _improved(ray: Scale, x: Array, here: Point, step: Array) -> tuple[Array, Point] | None:
    """Halve the step until the objective is lower; return x + step and the point there, or None if it never is."""
    for _ in range(30):
        there = ray.evaluate(x + step)
        at_rounding = there.value <= here.value * (1 + 1e-15)
        shrunk = abs(there.gradient @ step) < abs(here.gradient @ step)
        if there.value <= here.value + 1e-4 * float(here.gradient @ step) or (at_rounding and shrunk):
            return x + step, there
        step = 0.5 * step
    return None


def _solved(H: Array, g: Array) -> Array:
    """Return -H^-1 g, not finite where H is singular."""
    try:
        return np.asarray(-np.linalg.solve(H, g))
    except np.linalg.LinAlgError:
        return np.full(len(g), np.nan)
