"""The proof for the means and scales of a vote: how near their objective is to the optimum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast._core.arithmetic import inverse
from holdfast._core.loss import Array
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.laplace import LaplaceProblem, conjugate
from holdfast._proofs.consistency import agreed, consistent

SEARCH_STEPS = 60
"""Largest number of steps in the search for the scales of a dual bound."""
POLISHINGS = 6
"""Largest number of Newton steps towards the best means for given scales."""
PULL_ACCURACY = 1e-8
"""The Newton steps end when the pulls, relative to their limits, have at most this error."""
SETTLED = 1e-10
"""The search ends when better scales could raise the dual bound by no more than this share of it."""
MINOR = 0.01
"""It also ends when better scales could close no more than this share of the gap."""


class LaplaceProof(NamedTuple):
    """The objective of means and scales, and the lower bound that was proved."""

    objective: float
    lower_bound: float
    """No means and scales have a smaller objective."""
    gap: float
    """(objective - lower_bound) / objective."""


def laplace_certificate(problem: LaplaceProblem, parameters: Array) -> LaplaceProof:
    r"""Return a proof for these parameters, recomputed from the outputs by the defining formulas.

    With :math:`\ell(v) \ge \ell_*(q) + q v` for slopes q >= 0 of the loss, and g = A'(c q) with :math:`|g_k| \tau_k \le 1`,

    .. math:: F \ge \sum_i c_i \ell_*(q_i) - q_i c_i o_i + \sum_k \min_s \Bigl[ \frac{s}{\tau_k} \eta(\tau_k g_k)
              - \ln \frac{s}{\tau_k} - 1 - \sum_i c_i q_i \ln(1 - x_{ik}^2 s^2) \Bigr], \quad \eta(a) = (1-|a|)(1 - \ln(1-|a|)).

    The q are the loss's slopes near the parameters, shrunk if g is too large.
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
    bound = max(0.0, dual_bound(problem, polished_slopes(problem, delta, s, logs), s, log_means, objective))
    bound = consistent(objective, bound, rounding)
    return LaplaceProof(objective, bound, (objective - bound) / max(objective, problem.floor))


def polished_slopes(problem: LaplaceProblem, delta: Array, s: Array, logs: Array) -> Array:
    r"""Return slopes of the loss at means that are closer to the best ones for these scales.

    At the solver's last point the pulls g of large means exceed their limits by the error of the gradient. Shrinking
    all q to meet the limits would lower the bound by as much. After Newton steps in the means, shrinking lowers it only
    by the square of that error, for at the best means :math:`|g_k| \tau_k = 1 - e^{-|\delta_k| / s_k}`.
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
        if worst <= PULL_ACCURACY or not problem.is_factorisable:
            break
        if solve is None:
            gram = problem.outputs.gram(problem.weights * problem.loss.bend(logs))
            solve = inverse(gram * np.outer(tau, tau) + np.diag(tau * rest / s))
        step = tau * solve(missed)
        delta, logs = delta + step, logs - problem.signs * problem.outputs.dot(step)
        q = problem.loss.slope(logs)
    return best


def dual_bound(
    problem: LaplaceProblem, q: Array, s: Array, log_means: Array | None = None, objective: float = -np.inf
) -> float:
    """Return a lower bound on F from slopes q of the loss.

    The search for scales starts at s, where `log_means` is ln D. It ends when better scales could close only a small
    share of the gap to `objective`.
    """
    slopes = problem.weights * q
    pulls = problem.outputs.transpose_dot(problem.signs * slopes)
    steep = problem.prior_scales * np.abs(pulls)
    share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
    slopes, steep = share * slopes, np.minimum(share * steep, 1.0)
    best, low, high = -np.inf, np.zeros_like(s), problem.limits
    log_means = problem.outputs.stated_log_means(s) if log_means is None else log_means
    for _ in range(SEARCH_STEPS):
        pull, bends = problem.outputs.stated_slopes(slopes, s)
        rise = s * (conjugate(steep) / problem.prior_scales + pull) - 1
        worth = problem.worth(share * q, slopes, log_means)
        best = max(best, worth + problem.least(s, steep, rise))
        if float(np.sum(problem.slack(s, rise))) <= max(SETTLED * abs(best), MINOR * (objective - best)):
            break
        low, high = np.where(rise < 0, s, low), np.where(rise > 0, s, high)
        new = s - rise / s / (s**-2.0 + bends)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(high), 0.5 * (low + high), 2 * s)
        s = np.where((new > low) & (new < high), new, middle)
        log_means = problem.outputs.stated_log_means(s)
    return best
