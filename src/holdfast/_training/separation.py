"""The largest size of the sets at which the classes can be separated, wherever the rows lie in their sets."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from holdfast._core.arithmetic import ratio
from holdfast._core.loss import Array
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.pulls import least_multiple, sizes_of_sums
from holdfast._training.critical import ACCURACY, MAX_ITER, NEVER, PROOF, Enclosure, typical_size
from holdfast._training.training import train
from holdfast.losses import Hinge, Mixture

INSEPARABLE = 2.0
"""The objective is at least this if a row misses its margin: its dual weight is 1, and the other class balances it."""
FAINTEST = 1e-9
"""Classes that cannot be separated with sets of this share of the features' size count as inseparable without sets."""
SHARES = (1e-1, 1e-2, 1e-3)
"""The next fits are made at sizes below the proved size by these shares."""


def separable_size(problem: MarginScaleProblem) -> Enclosure:
    r"""Enclose the largest factor k of the sets with :math:`y_i(w^\top x_i + b) > k h_i(-y_i w)` for all rows and some w, b.

    Below the largest k, the w of least :math:`\sum_i h_i` with :math:`y_i(w^\top x_i + b) \ge 1 + k h_i` minimises

    .. math:: \sum_i (1 - y_i(w^\top x_i + b) + k h_i)_+ + \mu \sum_i h_i

    for small :math:`\mu > 0`, exactly: a training problem with :math:`\kappa = k/(k + \mu)` and sets k + mu times as
    large. If all rows share one set, this w is the best, with k = 1 / h(w). Otherwise it leads to a larger k, where the
    next fit is made. Dual weights a give an upper limit: no w separates at or above
    :math:`\min\{k : \sum_i a_i y_i x_i \in k \sum_i a_i S_i\}`. A positive robust hinge loss gives an upper limit too,
    which serves to bisect the interval that remains.
    """
    offset = problem.rows.offset() if problem.fit_intercept else None
    rows = problem.rows if offset is None else problem.rows.shifted(offset)
    problem = problem.having(rows=rows, weights=np.ones(len(problem.signs)), loss=Hinge(), alpha=0.0, penalty=None)
    typical = typical_size(problem)
    if typical == 0:
        return Enclosure(0.0, 0.0)  # all rows are alike
    low, high, k, mu = 0.0, np.inf, 0.0, 0.1 * typical / rows.n_samples
    shares = iter(SHARES)
    while high > low * (1 + ACCURACY):
        here = problem.having(loss=Mixture(Hinge(), k / (k + mu)), sets=problem.sets.scaled(k + mu))
        found, proof = train(here, tol=PROOF, max_iter=MAX_ITER)
        if proof.objective >= INSEPARABLE * (1 - 1e-6):
            mu *= 1e-2
            if mu < FAINTEST * (k + typical / rows.n_samples):
                return Enclosure(low, low if k == 0 else high)
            continue
        w = problem.split(found.parameters)[0]
        low = max(low, _reach(problem, w, NEVER * typical))
        if not np.isfinite(low):
            return Enclosure(np.inf, np.inf)
        if proof.dual is not None:
            high = max(low, min(high, _provable(problem, proof.dual, w)))
        if proof.objective < 1e-2 * INSEPARABLE:
            # the price mu of the sets is too small for full precision
            mu /= max(proof.objective, 1e-6)
            continue
        share = next(shares, None)
        if share is None:
            break
        k, mu = low * (1 - share), share * low / rows.n_samples
    while high > low * (1 + ACCURACY):
        before, middle = (low, high), 0.5 * (low + high)
        found, proof = train(problem.sized(middle), tol=PROOF, max_iter=MAX_ITER)
        if proof.lower_bound > 0.5 * INSEPARABLE:
            high = middle
        else:
            low = max(low, _reach(problem, problem.split(found.parameters)[0], NEVER * typical))
        if (low, high) == before:
            break
    return Enclosure(low, high)


def _reach(problem: MarginScaleProblem, w: Array, most: float) -> float:
    """Return the largest factor at which w separates, with the best intercept; inf beyond `most`."""
    y, scores = problem.signs, problem.rows.dot(w)
    t = np.broadcast_to(problem.sets.support(w), len(y))

    def gap(k: float) -> float:
        worst = y * scores - k * t
        if not problem.fit_intercept:
            return float(np.min(worst))
        return float(np.min(worst[y > 0]) + np.min(worst[y < 0]))

    if gap(0.0) <= 0:
        return 0.0
    return np.inf if gap(most) > 0 else float(brentq(gap, 0.0, most, xtol=1e-300, rtol=1e-14))


def _provable(problem: MarginScaleProblem, dual: Array, w: Array) -> float:
    """Return a factor at and above which these dual weights prove that no weights separate the classes."""
    y = problem.signs
    positive, negative = float(np.sum(dual[y > 0])), float(np.sum(dual[y < 0]))
    if problem.fit_intercept:
        dual = np.where(y > 0, dual * float(ratio(negative, positive)), dual)
    V, sizes = problem.rows.transpose_dot(dual * y), sizes_of_sums(problem, dual)
    if not np.any(dual > 0):
        return np.inf
    return least_multiple(problem.sets, V, dual, problem.sets.support(w), sizes)
