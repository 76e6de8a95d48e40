"""Coordinate steps of a vote: each mean moves to the minimum of a majoriser, and each scale to its best value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.loss import Array

if TYPE_CHECKING:
    from holdfast._problems.laplace import LaplaceProblem

MOST_STEPS = 200
"""Largest number of steps of a safeguarded Newton iteration."""
SETTLED = 1e-13
"""The iteration ends with a step of this relative length."""


def best_steps(u: Array, plus: Array, minus: Array, reach: float = 1.0) -> Array:
    r"""Return the t that minimise :math:`|u + t| + e^{-|u + t|} + (\gamma_+ e^{-S t} + \gamma_- e^{S t}) / S`, S = `reach`.

    For S = 1 they have a closed form, in which :math:`u + t` has the sign of :math:`\gamma_+ e^{2u} - \gamma_-`. If that is
    positive, :math:`t = \ln \frac{2B}{1 + \sqrt{1 + 4 \gamma_- B}}` with :math:`B = e^{-u} + \gamma_+`; if not, t is its mirror
    image.
    """
    with np.errstate(divide="ignore"):
        side = np.where(np.log(plus) + 2 * u >= np.log(minus), 1.0, -1.0)
    toward, against = np.where(side > 0, plus, minus), np.where(side > 0, minus, plus)
    with np.errstate(over="ignore"):
        B = np.minimum(np.exp(-side * u) + toward, 1e306)
        step = np.log(2 * B) - np.log1p(np.hypot(1.0, 2 * np.sqrt(against) * np.sqrt(B)))
    return side * (step if reach <= 1 else _stretched(side * u, toward, against, step, reach))


def _stretched(u: Array, plus: Array, minus: Array, far: Array, S: float) -> Array:
    """Return the best steps for S > 1, which lie between 0 and the steps for S = 1."""

    def slope(t: Array) -> tuple[Array, Array]:
        rest = np.abs(u + t)
        push, pull = plus * np.exp(-S * t), minus * np.exp(S * t)
        return -np.sign(u + t) * np.expm1(-rest) - push + pull, np.exp(-rest) + S * (push + pull)

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low, high = np.minimum(far, 0.0), np.maximum(far, 0.0)
        t = 0.5 * (low + high)
        for _ in range(MOST_STEPS):
            g, h = slope(t)
            low, high = np.where(g < 0, t, low), np.where(g >= 0, t, high)
            new = t - g / h
            new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
            is_done = np.all(np.abs(new - t) <= SETTLED * (1 + np.abs(t)))
            t = new
            if is_done:
                break
    return t


class LaplaceCoordinates:
    """Means and scales of a vote, moved in place, with ln D - margin of each row kept up to date."""

    def __init__(self, problem: LaplaceProblem, parameters: Array):
        self.problem, self.n_blocks = problem, problem.n_learners
        means, scales = problem.split(parameters)
        self.means, self.scales = means.copy(), scales.copy()
        self.logs = problem.logs(self.parameters)

    @property
    def parameters(self) -> Array:
        """The means, followed by the scales unless these are fixed."""
        return self.means.copy() if self.problem.scales is not None else np.concatenate([self.means, self.scales])

    @property
    def value(self) -> float:
        """The objective."""
        losses = self.problem.weights @ self.problem.loss.value(self.logs)
        return self.problem.divergence(self.means, self.scales) + float(losses)

    def gap(self) -> float:
        """Return the certified gap, computed afresh so that rounding does not build up."""
        theta = self.parameters
        self.logs = self.problem.logs(theta)
        return self.problem.suboptimality(self.problem.evaluate(theta))

    def gains(self) -> Array:
        """Return a lower bound on the decrease of the objective by the best step of each mean."""
        plus, minus = self._pulls()
        u = self.means / self.scales
        t = best_steps(u, plus, minus)
        with np.errstate(under="ignore"):
            rest = _size(u) - _size(u + t) - plus * np.expm1(-t) - minus * np.expm1(t)
        return self.scales / self.problem.prior_scales * rest

    def move(self, block: int) -> None:
        """Take the best step of one mean, then of its scale."""
        problem, x = self.problem, self.problem.outputs.column(block)
        pull = problem.weights * problem.loss.slope(self.logs) * problem.signs * x
        tau, s = problem.prior_scales[block], self.scales[block]
        u, plus = self.means[block] / s, tau * float(pull[pull > 0].sum())
        minus = tau * float(-pull[pull < 0].sum())
        step = s * float(best_steps(np.array(u), np.array(plus), np.array(minus)))
        self.means[block] += step
        self.logs = self.logs - problem.signs * x * step
        self._move_scale(block, x)

    def move_all(self) -> None:
        """Move all means at once, with steps made shorter by the largest sum of s |x| over a row."""
        plus, minus = self._pulls()
        reach = max(1.0, self.problem.outputs.reach(self.scales))
        step = self.scales * best_steps(self.means / self.scales, plus, minus, reach)
        self.means = self.means + step
        self.logs = self.logs - self.problem.signs * self.problem.outputs.dot(step)

    def settle(self) -> None:
        """Move each scale to its best value, one after the other."""
        if self.problem.scales is None:
            for block in range(self.n_blocks):
                self._move_scale(block, self.problem.outputs.column(block))

    def _pulls(self) -> tuple[Array, Array]:
        """Return tau times the sums of the slopes that pull each mean up, and of the slopes that pull it down."""
        problem = self.problem
        slopes = problem.weights * problem.loss.slope(self.logs)
        both, net = problem.outputs.sizes_dot(slopes), problem.outputs.transpose_dot(problem.signs * slopes)
        return 0.5 * problem.prior_scales * np.maximum(both + net, 0.0), 0.5 * problem.prior_scales * np.maximum(
            both - net, 0.0
        )

    def _move_scale(self, block: int, x: Array) -> None:
        """Move a scale to its best value."""
        problem = self.problem
        if problem.scales is not None:
            return
        squares, tau, size = np.square(x), problem.prior_scales[block], abs(self.means[block])
        others = self.logs + np.log1p(-squares * self.scales[block] ** 2)
        low, high, s = 0.0, float(problem.limits[block]), float(self.scales[block])
        for _ in range(MOST_STEPS):
            left = 1 - squares * s * s
            steep = 2 * squares * s / left
            v = others - np.log(left)
            q, t = problem.weights * problem.loss.slope(v), size / s
            g = (1 + t) * np.exp(-t) / tau - 1 / s + float(q @ steep)
            h = t * t * np.exp(-t) / (s * tau) + 1 / s**2 + float(q @ (2 * squares * (2 - left) / np.square(left)))
            h += float((problem.weights * problem.loss.bend(v)) @ np.square(steep))
            low, high = (s, high) if g < 0 else (low, s)
            new = s - g / h
            if not low < new < high:
                new = 0.5 * (low + high) if np.isfinite(high) else 2 * s
            if abs(new - s) <= SETTLED * s:
                break
            s = new
        logs = others - np.log1p(-squares * s * s)
        if np.all(np.isfinite(logs)):
            self.scales[block], self.logs = s, logs


def _size(u: Array) -> Array:
    """Return |u| + exp(-|u|) - 1."""
    return np.abs(u) + np.expm1(-np.abs(u))
