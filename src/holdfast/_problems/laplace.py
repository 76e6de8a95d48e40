"""The means and scales of a vote whose weights have Laplace distributions: objective, derivatives and dual bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array
from holdfast._core.problem import Evaluation, Problem
from holdfast._core.tolerances import AFFORDABLE, GAP_FLOOR
from holdfast._data.outputs import Outputs, Spread
from holdfast._problems.laplace_coordinates import LaplaceCoordinates
from holdfast.losses.votes import VoteLoss

WIDEST = 2000
"""Largest number of learners for which the Hessian of means and scales is formed."""
INSIDE = 0.95
"""A step may take a scale this share of the way to the end of its range."""
NEAR = 500.0
"""A step may change a mean by this many scales, plus the size of the largest mean in scales."""
SHY = 0.5
"""A scale's own Newton step goes at most this share of the way to the end, so that it delays no other parameter."""
BEYOND = 1e300
"""Objectives from here on count as infinite, as their derivatives overflow."""
HAIR = 1e-12
"""Scales stop this share before the end of their range, where D overflows, at a negligible cost; see `slack`."""
FEW = 20
"""Largest number of learners for which a Hessian of all rows takes about two evaluations or less."""
THINNED, ENOUGH, EACH = 10, 500, 30
"""The first guess and the metric use every tenth row, if these are at least 500, and 30 for each learner."""


class _Seen(NamedTuple):
    """The problem evaluated at some parameters."""

    parameters: Array
    means: Array
    scales: Array
    spread: Spread
    logs: Array
    """v = ln D - margin of each row."""
    value: float
    slopes: Array
    """Weights times slopes of the loss."""
    pulls: Array
    """A'slopes."""


@dataclass(eq=False)
class LaplaceProblem(Problem):
    r"""The divergence from the prior plus the loss of the vote, to be minimised.

    The posterior has means :math:`\mu = \mu_P + \delta` and scales :math:`\sigma`, the prior has scales :math:`\tau`. With the
    outputs x of the learners, the objective is

    .. math:: F(\delta, \sigma) = \mathrm{KL}(\delta, \sigma)
              + \sum_i c_i\, \ell\bigl(\ln D_i - o_i - y_i x_i^\top \delta\bigr), \qquad
              D_i = \prod_k \frac{1}{1 - x_{ik}^2 \sigma_k^2},

    where :math:`|x_{ik}| \sigma_k < 1`. It is jointly convex in both: KL is a perspective function, ln D is convex, and the
    loss is convex and increasing. The parameters are delta, followed by sigma unless `scales` are fixed.

    Parameters
    ----------
    outputs : Outputs
    signs : ndarray of shape (n_samples,)
        y, each -1 or 1.
    weights : ndarray of shape (n_samples,)
        c >= 0.
    loss : VoteLoss
    prior_scales : ndarray of shape (n_learners,)
        tau > 0.
    offsets : ndarray of shape (n_samples,)
        o, the margins of the prior's means.
    scales : ndarray of shape (n_learners,), default=None
        sigma, if they are fixed.
    """

    outputs: Outputs
    signs: Array
    weights: Array
    loss: VoteLoss
    prior_scales: Array
    offsets: Array
    scales: Array | None = None
    trace: list[float] = field(default_factory=list)
    """Values of F at the points where a solver found a new lowest value."""
    _seen: _Seen | None = field(default=None, repr=False)

    metric_age = 20

    @property
    def n_learners(self) -> int:
        """D."""
        return self.outputs.n_learners

    @property
    def n_parameters(self) -> int:
        """Number of means and scales to be found."""
        return self.n_learners * (1 if self.scales is not None else 2)

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop, because a smaller one would not matter."""
        return GAP_FLOOR * self.floor

    @property
    def floor(self) -> float:
        """Gaps are measured relative to the objective, or to this number if it is larger."""
        return GAP_FLOOR * (self.n_learners + float(self.weights.sum()))

    @cached_property
    def ends(self) -> Array:
        """Upper ends of the scales' ranges, where some D is infinite."""
        with np.errstate(divide="ignore"):
            return 1.0 / self.outputs.largest

    @property
    def limits(self) -> Array:
        """Limits of the scales for solvers: with a distant, well-classified row, the best scale is next to the end."""
        return (1 - HAIR) * self.ends

    def start(self, means: Array | None = None, scales: Array | None = None) -> Array:
        """Return a start: the given parameters if feasible, else means of 0 with roughly the best scales for them."""
        d = self.n_learners
        delta = np.zeros(d) if means is None else means
        if self.scales is not None:
            return self._finite(delta)
        if scales is None or not np.all((scales > 0) & (scales < self.limits)):
            q = self.weights * np.minimum(self.loss.slope(-self.offsets), self.loss.slope(np.zeros(1)))
            steep = 1 / self.prior_scales
            scales = 2 / (steep + np.sqrt(steep**2 + 8 * self.outputs.square_dot(q)))
            scales = np.minimum(scales, 0.5 * self.limits)
        return self._finite(np.concatenate([delta, scales]))

    def _finite(self, start: Array) -> Array:
        """Return the start, with means of 0 and smaller scales where its objective is infinite."""
        if np.isfinite(self.value_and_gradient(start)[0]):
            return start
        start = np.concatenate([np.zeros(self.n_learners), start[self.n_learners :]])
        while not np.isfinite(self.value_and_gradient(start)[0]):
            if np.all(start[self.n_learners :] < 1e-150):
                raise ValueError(self._overflow())
            start[self.n_learners :] *= 0.5
        return start

    def _overflow(self) -> str:
        """Return the message that the loss of the prior's means overflows, with advice."""
        logs = -self.offsets if self.scales is None else self.outputs.at(self.scales).log_means - self.offsets
        ways = ["a smaller scale or scale='joint'"] * (self.scales is not None)
        ways += ["prior_mean nearer to 0"] * bool(np.any(self.offsets < 0)) + ["loss='log'"]
        return (
            f"{self.loss!r}: the loss of the prior's means overflows, as ln E exp(-margin) is {np.max(logs):.3g} on row "
            f"{np.argmax(logs)} of those with a weight. Use {', or '.join(ways)}."
        )

    @property
    def is_long(self) -> bool:
        """Whether there are enough rows for a sample to approximate the optimum and the Hessian there."""
        return self.outputs.n_samples / THINNED >= max(ENOUGH, EACH * self.n_learners)

    @property
    def is_factorisable(self) -> bool:
        """Whether the Hessian is small enough to be formed and factorised."""
        return self.n_learners <= WIDEST and self.outputs.gram_work <= AFFORDABLE

    @cached_property
    def sample(self) -> LaplaceProblem:
        """The same problem on every tenth row, each with ten times its weight."""
        return self.thinned(THINNED)

    def thinned(self, stride: int) -> LaplaceProblem:
        """Return the same problem on every n-th row, n being the stride, with the same total weight."""
        rows = np.arange(0, self.outputs.n_samples, stride)
        return replace(
            self,
            outputs=self.outputs.take(rows),
            signs=self.signs[rows],
            weights=self.weights[rows] * (self.weights.sum() / max(float(self.weights[rows].sum()), 1e-300)),
            offsets=self.offsets[rows],
            trace=[],
            _seen=None,
        )

    def split(self, parameters: Array) -> tuple[Array, Array]:
        """Return means and scales."""
        d = self.n_learners
        return parameters[:d], parameters[d:] if self.scales is None else self.scales

    def divergence(self, delta: Array, s: Array) -> float:
        """Return KL."""
        t, ratio = np.abs(delta) / s, s / self.prior_scales
        return float(np.sum(ratio * (t + np.expm1(-t)) + (ratio - 1 - np.log(ratio))))

    def _at(self, parameters: Array) -> _Seen | None:
        """Return the evaluation there, or None outside the domain."""
        if self._seen is not None and np.array_equal(self._seen.parameters, parameters):
            return self._seen
        delta, s = self.split(parameters)
        if not np.all((s > 0) & (s < self.limits)) or not np.all(np.isfinite(parameters)):
            return None
        self._seen = None  # frees arrays as large as the outputs, whose memory the new arrays reuse
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            spread = self.outputs.at(s)
            logs = spread.log_means - self.offsets - self.signs * self.outputs.dot(delta)
            value = self.divergence(delta, s) + float(self.weights @ self.loss.value(logs))
            slopes = self.weights * self.loss.slope(logs)
            if not (value < BEYOND and np.all(np.isfinite(slopes))):
                return None
            pulls = self.outputs.transpose_dot(self.signs * slopes)
        if not self.trace or value < self.trace[-1]:
            self.trace.append(value)
        self._seen = _Seen(parameters.copy(), delta.copy(), s.copy(), spread, logs, value, slopes, pulls)
        return self._seen

    def logs(self, parameters: Array) -> Array:
        """Return ln D - margin of each row at a point of the domain."""
        seen = self._at(parameters)
        assert seen is not None
        return seen.logs.copy()

    def coordinates(self, parameters: Array) -> LaplaceCoordinates:
        """Return the point in a form that coordinate steps can move."""
        return LaplaceCoordinates(self, parameters)

    def evaluate(self, parameters: Array) -> Evaluation:
        """Return objective and gradient."""
        return Evaluation(parameters, *self.value_and_gradient(parameters))

    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Return F and its gradient; F is inf outside the domain."""
        seen = self._at(parameters)
        if seen is None:
            return np.inf, np.full(len(parameters), np.nan)
        along = -np.sign(seen.means) * np.expm1(-np.abs(seen.means) / seen.scales) / self.prior_scales - seen.pulls
        if self.scales is not None:
            return seen.value, along
        return seen.value, np.concatenate([along, np.where(self._held(seen), 0.0, self._across(seen))])

    def _across(self, seen: _Seen) -> Array:
        """Return the derivative of F in the scales."""
        t = np.abs(seen.means) / seen.scales
        return (1 + t) * np.exp(-t) / self.prior_scales - 1 / seen.scales + seen.spread.pull(seen.slopes)

    def _held(self, seen: _Seen) -> NDArray[np.bool_]:
        """Return which scales are at their limits with F still falling: they stay, and must not delay the others."""
        held = seen.scales >= (1 - HAIR) * self.limits
        return held & (self._across(seen) < 0) if np.any(held) else held

    def hessian(self, parameters: Array) -> Array:
        """Return the Hessian of F."""
        seen = self._at(parameters)
        assert seen is not None
        t = np.abs(seen.means) / seen.scales
        left, tau, s = np.exp(-t), self.prior_scales, seen.scales
        own, mixed, spreads = seen.spread.grams(self.weights * self.loss.bend(seen.logs), self.signs)
        own = own + np.diag(left / (s * tau))
        if self.scales is not None:
            return own
        mixed = -mixed - np.diag(np.sign(seen.means) * t * left / (s * tau))
        spreads = spreads + np.diag(t * t * left / (s * tau) + s**-2.0 + seen.spread.bends(seen.slopes))
        spreads.flat[:: self.n_learners + 1] = np.maximum(spreads.diagonal(), self._crowding(seen))
        return self._without_held(np.block([[own, mixed], [mixed.T, spreads]]), seen)

    def _crowding(self, seen: _Seen) -> Array:
        """Return the least curvature with which a scale's own step stays clear of the end of its range.

        D grows without limit at the end, but if a row is almost certain the curvature does not show it: the best scale
        may then be nearer to the end than the spacing of floating-point numbers.
        """
        return np.maximum(-self._across(seen), 0.0) / (SHY * (self.limits - seen.scales))

    def _without_held(self, hessian: Array, seen: _Seen) -> Array:
        """Return the Hessian with held scales decoupled from all other parameters."""
        held = self.n_learners + np.flatnonzero(self._held(seen))
        own = hessian[held, held]
        hessian[held] = hessian[:, held] = 0.0
        hessian[held, held] = own
        return hessian

    def typical_curvature(self) -> Array:
        """Return the curvature of the prior's divergence."""
        flat = 1 / np.square(self.prior_scales)
        return flat if self.scales is not None else np.concatenate([flat, flat])

    def metric(self, parameters: Array) -> Array:
        """Return the sample's Hessian if there are many rows, else roughly the diagonal of the Hessian."""
        seen = self._at(parameters)
        assert seen is not None
        if self.is_long and np.isfinite(self.sample.value_and_gradient(parameters)[0]):
            near = self.sample.hessian(parameters)
            return near if self.scales is not None else self._without_held(near, seen)
        left = np.exp(-np.abs(seen.means) / seen.scales) / (seen.scales * self.prior_scales)
        own = left + self.outputs.square_dot(self.weights * self.loss.bend(seen.logs))
        if self.scales is not None:
            return own
        across = seen.scales**-2.0 + seen.spread.bends(seen.slopes)
        return np.concatenate([own, np.maximum(across, self._crowding(seen))])

    def suboptimality(self, here: Evaluation) -> float:
        """Return the certified gap at an evaluation."""
        seen = self._at(here.parameters)
        assert seen is not None
        q = self.loss.slope(seen.logs)
        steep = self.prior_scales * np.abs(seen.pulls)
        share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
        steep, slopes = np.minimum(share * steep, 1.0), share * seen.slopes
        rise = seen.scales * (conjugate(steep) / self.prior_scales + share * seen.spread.pull(seen.slopes)) - 1
        bound = self.worth(share * q, slopes, seen.spread.log_means) + self.least(seen.scales, steep, rise)
        return (here.value - bound) / max(here.value, self.floor)

    def longest_step(self, parameters: Array, step: Array) -> float:
        """Return the largest multiple of the step that keeps scales well inside their range and means near, see `stride`."""
        delta, s = self.split(parameters)
        move, widen = self.split(step) if self.scales is None else (step, np.zeros(1))
        near = stride(delta / s, move / s)
        if self.scales is not None:
            return near
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = np.where(widen > 0, (self.limits - s) / widen, np.where(widen < 0, -s / widen, np.inf))
        return min(near, float(INSIDE * np.min(room, initial=np.inf)))

    def work(self) -> dict[str, Any]:
        """Return the sizes from which solvers judge whether they suit."""
        n, d = self.outputs.n_samples, self.n_learners
        # with many rows, a few more steps with the sample's Hessian cost less than Hessians of all rows
        is_cheap = self.is_factorisable and not (self.is_long and d > FEW)
        return {"n_samples": n, "n_features": self.n_parameters, "n_entries": n * d, "is_cheap_to_factorise": is_cheap}

    def worth(self, q: Array, slopes: Array, log_means: Array) -> float:
        """Return the rows' part of a dual bound: `slopes` are q times the weights, `log_means` ln D at the scales."""
        return float(self.weights @ self.loss.dual_value(q)) + float(slopes @ (log_means - self.offsets))

    def least(self, s: Array, steep: Array, rise: Array) -> float:
        """Return a lower bound, over all scales, of the divergences' part of a dual bound, computed at scales s."""
        ratio = s / self.prior_scales
        return float(np.sum(ratio * conjugate(steep) - np.log(ratio) - 1) - np.sum(self.slack(s, rise)))

    def slack(self, s: Array, rise: Array) -> Array:
        r"""Bound how much lower each :math:`\psi(s) = s \eta / \tau - \ln s + \ldots` is at its minimum than at s.

        :math:`\psi` is :math:`-\ln s` plus an increasing convex function. If p is its derivative with respect to ln s
        (`rise`), it is therefore nowhere below :math:`\psi(s) - p + \ln(1 + p)`. If p < 0, its minimum lies between s
        and the end of the range, so the difference is at most :math:`\ln(end / s)`. Fixed scales have no slack.
        """
        if self.scales is not None:
            return np.zeros_like(s)
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(rise > -1, rise - np.log1p(rise), np.inf)
            return np.where(rise < 0, np.minimum(near, np.log(self.ends / s)), near)


def stride(u: Array, step: Array, near: float = NEAR) -> float:
    """Return the largest multiple of a step of the means, in scales, over which their curvature is still informative.

    The divergence's curvature falls by a factor of e with each scale. At the start, rows may have almost no curvature;
    Newton's step then leads to a region without any curvature, from which no step leads back.
    """
    farthest = near + float(np.max(np.abs(u), initial=0.0))
    return farthest / max(float(np.max(np.abs(step), initial=0.0)), np.finfo(float).tiny)


def conjugate(steep: Array) -> Array:
    r"""Return :math:`\min_t |t| + e^{-|t|} - a t = (1 - |a|)(1 - \ln(1 - |a|))` for slopes :math:`|a| \le 1`."""
    rest = np.maximum(1 - np.abs(steep), 0.0)
    return rest * (1 - np.log(np.maximum(rest, np.finfo(float).tiny)))
