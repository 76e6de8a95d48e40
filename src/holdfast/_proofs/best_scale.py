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
    """The losses' second derivatives uu, ut and tt, or the sums of them that make the Hessian."""


class Scale(Protocol):
    """The objective at (r w, b) as a function of x = (r, b), b being left out where there is no intercept."""

    start: Array
    enough: float
    """An objective up to which any slopes will do, as 0 is bound enough."""

    def evaluate(self, x: Array) -> Point:
        """Return value, gradient and the losses' slopes in u and second derivatives."""
        ...

    def hessian(self, uu: Any, ut: Any, tt: Any) -> Array:
        """Return the Hessian in x that these give."""
        ...


class Ray(Scale, Protocol):
    """One that keeps the slopes of its points."""

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        """Return the slopes after a short step, to first order."""
        ...


def slopes_at_best_scale(ray: Ray) -> Array:
    """Return the slopes in u at the best scale and intercepts."""
    _, here, step = best_scale(ray, ray.evaluate(ray.start))
    # the slopes follow so short a step linearly; any slopes will do for a proof, good ones for a tight one
    return ray.moved_slopes(here.slopes, step, *here.bends[:2]) if np.any(step) else here.slopes


def best_scale(ray: Scale, here: Point) -> tuple[Array, Point, Array]:
    """Return an x near the best one, what is known there, and the step that is left to it, 0 where none is worth taking.

    `here` is what is known at the start. A problem in few numbers, O(n_samples) a step. It makes w'gradient = 0 and the slope
    in b vanish, whereby the gap is of second order in the error of w.
    """
    x = ray.start
    for _ in range(100):
        if here.value <= ray.enough:
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            move = _solved(ray.hessian(*here.bends), here.gradient)
            usable = bool(np.all(np.isfinite(move))) and float(here.gradient @ move) < 0
        # where curvature vanishes, as far from any row's margin, only the signs of the slopes are of use
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
    """Return x + step, or with half, a quarter ... of the step, where that is lower; None where nothing is."""
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
