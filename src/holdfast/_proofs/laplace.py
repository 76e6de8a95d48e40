"""The proof of how near a vote with Laplace laws is to the best one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast._core.arithmetic import inverse
from holdfast._core.loss import Array
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.laplace import LaplaceProblem, conjugate
from holdfast._proofs.consistency import agreed, consistent

REFINEMENTS = 60
"""Steps in which the scales of a dual bound are sought."""
POLISHINGS = 6
"""Steps towards the best means for the scales of a bound."""
EXACT = 1e-8
"""Error of a pull, beside the largest that the prior admits, that costs the bound no more than rounding does."""
SETTLED = 1e-10
"""Share of a dual bound that may be lost because scales are not the best for it."""


class LaplaceProof(NamedTuple):
    """What is proved about means and scales."""

    objective: float
    lower_bound: float
    """A number that no means and scales can go below."""
    gap: float
    """(objective - lower_bound) / objective."""


def laplace_certificate(problem: LaplaceProblem, parameters: Array) -> LaplaceProof:
    r"""Return what is proved at these parameters, recomputed from the outputs by the formulas that define it.

    With :math:`\ell(v) \ge \ell_*(q) + q v` for slopes q >= 0 of the loss, and g = A'(c q) with :math:`|g_k| \tau_k \le 1`,

    .. math:: F \ge \sum_i c_i \ell_*(q_i) - q_i c_i o_i + \sum_k \min_s \Bigl[ \frac{s}{\tau_k} \eta(\tau_k g_k)
              - \ln \frac{s}{\tau_k} - 1 - \sum_i c_i q_i \ln(1 - x_{ik}^2 s^2) \Bigr], \quad \eta(a) = (1-|a|)(1 - \ln(1-|a|)).

    The q are the loss's slopes near the parameters, made smaller where g is too large.
    """
    delta, s = problem.split(parameters)
    log_means = problem.outputs.stated_log_means(s)
    logs = log_means - problem.offsets - problem.signs * problem.outputs.dot(delta)
    losses, size = problem.loss.value(logs), np.abs(delta) / problem.prior_scales
    objective = problem.divergence(delta, s) + float(problem.weights @ losses)

    def rounding() -> float:
        return ROUNDING * float(
            np.sum(size + np.abs(np.log(s))) + problem.weights @ (losses + problem.loss.slope(logs) * np.abs(logs))
        )

    agreed(problem.value_and_gradient(parameters)[0], objective, rounding)
    bound = max(0.0, dual_bound(problem, polished_slopes(problem, delta, s, logs), s, log_means))
    bound = consistent(objective, bound, rounding)
    return LaplaceProof(objective, bound, (objective - bound) / max(objective, problem.floor))


def polished_slopes(problem: LaplaceProblem, delta: Array, s: Array, logs: Array) -> Array:
    r"""Return slopes of the loss at means that are nearer to the best ones for these scales.

    At a solver's last point the pulls g of large means exceed their limits by as much as its gradient is off, and to shrink
    all q until they fit costs the bound that much. After Newton steps in the means it costs the square: a pull that is exact
    has :math:`|g_k| \tau_k = 1 - e^{-|\delta_k| / s_k}`.
    """
    best, least, solve, tau = problem.loss.slope(logs), np.inf, None, problem.prior_scales
    q = best
    for _ in range(POLISHINGS):
        rest = np.exp(-np.abs(delta) / s)
        missed = tau * problem.outputs.transpose_dot(problem.signs * problem.weights * q) - np.sign(delta) * (1 - rest)
        worst = float(np.max(np.abs(missed), initial=0.0))
        if not worst < least:
            break
        best, least = q, worst
        if worst <= EXACT or not problem.is_factorisable:
            break
        if solve is None:
            gram = problem.outputs.gram(problem.weights * problem.loss.bend(logs))
            solve = inverse(gram * np.outer(tau, tau) + np.diag(tau * rest / s))
        step = tau * solve(missed)
        delta, logs = delta + step, logs - problem.signs * problem.outputs.dot(step)
        q = problem.loss.slope(logs)
    return best


def dual_bound(problem: LaplaceProblem, q: Array, s: Array, log_means: Array | None = None) -> float:
    """Return a number that F never goes below, made of slopes q of the loss; s are scales to begin with, and their ln D."""
    slopes = problem.weights * q
    pulls = problem.outputs.transpose_dot(problem.signs * slopes)
    steep = problem.prior_scales * np.abs(pulls)
    share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
    slopes, steep = share * slopes, np.minimum(share * steep, 1.0)
    best, low, high = -np.inf, np.zeros_like(s), problem.limits
    log_means = problem.outputs.stated_log_means(s) if log_means is None else log_means
    for _ in range(REFINEMENTS):
        pull, bends = problem.outputs.stated_slopes(slopes, s)
        rise = s * (conjugate(steep) / problem.prior_scales + pull) - 1
        worth = problem.worth(share * q, slopes, log_means)
        best = max(best, worth + problem.least(s, steep, rise))
        with np.errstate(invalid="ignore"):
            lost = float(np.sum(rise - np.log1p(np.maximum(rise, -1.0))))
        if problem.scales is not None or lost <= SETTLED * abs(best):
            break
        low, high = np.where(rise < 0, s, low), np.where(rise > 0, s, high)
        new = s - rise / s / (s**-2.0 + bends)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(high), 0.5 * (low + high), 2 * s)
        s = np.where((new > low) & (new < high), new, middle)
        log_means = problem.outputs.stated_log_means(s)
    return best
