"""The proof of how near a vote with Laplace laws is to the best one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.laplace import LaplaceProblem, conjugate
from holdfast._proofs.consistency import agreed, consistent

REFINEMENTS = 60
"""Steps in which the scales of a dual bound are sought."""
SETTLED = 1e-10
"""Share of a dual bound that is lost because scales are not the best for it."""


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

    The q are the loss's slopes at the parameters, made smaller where g is too large.
    """
    delta, s = problem.split(parameters)
    logs = problem.outputs.stated_log_means(s) - problem.offsets - problem.signs * problem.outputs.dot(delta)
    losses, size = problem.loss.value(logs), np.abs(delta) / problem.prior_scales
    objective = problem.divergence(delta, s) + float(problem.weights @ losses)

    def rounding() -> float:
        return ROUNDING * float(
            np.sum(size + np.abs(np.log(s))) + problem.weights @ (losses + problem.loss.slope(logs) * np.abs(logs))
        )

    agreed(problem.value_and_gradient(parameters)[0], objective, rounding)
    bound = max(0.0, dual_bound(problem, problem.loss.slope(logs), s))
    bound = consistent(objective, bound, rounding)
    return LaplaceProof(objective, bound, (objective - bound) / max(objective, problem.floor))


def dual_bound(problem: LaplaceProblem, q: Array, s: Array) -> float:
    """Return a number that F never goes below, made of slopes q of the loss; s are scales to begin with."""
    slopes = problem.weights * q
    pulls = problem.outputs.transpose_dot(problem.signs * slopes)
    steep = problem.prior_scales * np.abs(pulls)
    share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
    slopes, steep = share * slopes, np.minimum(share * steep, 1.0)
    best, low, high = -np.inf, np.zeros_like(s), problem.limits
    for _ in range(REFINEMENTS):
        pull, bends = problem.outputs.stated_slopes(slopes, s)
        rise = s * (conjugate(steep) / problem.prior_scales + pull) - 1
        worth = problem.worth(share * q, slopes, problem.outputs.stated_log_means(s))
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
    return best
