"""The proof of how near a fit is to optimal, recomputed from the data and sharing no code with a solver."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.loss import Array, Loss
from holdfast.counterpart.margin_scale import MarginScaleProblem


class Certificate(NamedTuple):
    """What is proved about a point."""

    objective: float
    """The objective there."""
    lower_bound: float
    """A number that no parameters can go below, up to rounding; -inf where none is known."""
    gap: float
    """(objective - lower_bound) / max(objective, floor), never negative."""


def certificate(problem: MarginScaleProblem, w: Array, b: float, dual: Array | None = None) -> Certificate:
    r"""Return the objective at (w, b), a lower bound on the optimum, and their relative distance.

    Two passes over the rows in float64. Where the loss has a dual, the slopes :math:`a_i = \ell_u` at the best multiple of w
    and the best intercept are made dual feasible: class sums are balanced by shrinking the larger, then
    with :math:`V = \sum c a y x`

    * without a ridge, a is scaled by the largest factor at which the noise's budgets :math:`\sum c\, p(a)` cover V;
    * with one, the part of V that they do not cover costs its square over :math:`2\alpha`.

    Otherwise strong convexity is used: with a ridge, :math:`P - P^* \le |\nabla_w P|^2 / (2\alpha)` plus what the
    remaining slope in b can earn over the range that the optimal intercept must lie in. `dual` is a guess of a that
    replaces the slopes; it is checked like them.
    """
    scores, t = problem.rows.dot(w), problem.bound.support(w)
    objective = _objective(problem, scores, t, w, b)
    if problem.loss.has_dual:
        if dual is None:
            r, b_best = _best_scale_and_intercept(problem, scores, t, w, b)
            dual = problem.loss.evaluate(1.0 - problem.signs * (r * scores + b_best), r * t)[1]
        bound = _dual_bound(problem, w, dual)
    elif problem.alpha > 0:
        bound = _strong_convexity_bound(problem, scores, t, w, b)
    else:
        bound = -np.inf
    scale = max(abs(objective), problem.floor)
    # every loss here is nonnegative
    bound = max(bound, 0.0) if bound > -np.inf else bound
    return Certificate(objective, min(bound, objective), max(objective - bound, 0.0) / scale)


def _objective(problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float) -> float:
    losses = problem.loss.value(1.0 - problem.signs * (scores + b), t)
    return float(problem.weights @ losses + 0.5 * problem.alpha * w @ w)


def _best_scale_and_intercept(
    problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float
) -> tuple[float, float]:
    """Return the r > 0 and b that minimise the objective at (r w, b): a problem in two numbers, O(n_samples) a step.

    It makes w'gradient = 0 and the slope in b vanish, whereby the gap is of second order in the error of w.
    """
    y, c, loss, square = problem.signs, problem.weights, problem.loss, problem.alpha * float(w @ w)
    x = np.array([1.0, b])

    def evaluate(x: Array) -> tuple[float, Array, Array]:
        u, s = 1.0 - y * (x[0] * scores + x[1]), x[0] * t
        value, slope, scale_slope = loss.evaluate(u, s)
        uu, ut, tt = (c * part for part in loss.curvature(u, s))
        along = np.sum(c * (t * scale_slope - y * scores * slope)) + square * x[0]
        gradient = np.array([along, -np.sum(c * y * slope)])
        rr = np.sum(uu * scores**2 - 2 * ut * y * scores * t + tt * t * t) + square
        rb = np.sum(uu * scores - ut * y * t)
        return c @ value + 0.5 * square * x[0] ** 2, gradient, np.array([[rr, rb], [rb, np.sum(uu)]])

    value, gradient, H = evaluate(x)
    free = slice(0, 2 if problem.fit_intercept else 1)
    for _ in range(50):
        move = (
            -np.linalg.pinv(H[free, free], hermitian=True) @ gradient[free]
            if np.all(np.isfinite(H))
            else np.full(1, np.nan)
        )
        if not np.all(np.isfinite(move)):
            break
        step = np.zeros(2)
        step[free] = move * (0.9 * x[0] / abs(move[0]) if abs(move[0]) > 0.9 * x[0] else 1.0)
        promised = gradient @ step
        if not promised < 0:
            break
        for _ in range(30):
            new = evaluate(x + step)
            if new[0] <= value + 1e-4 * (gradient @ step) or (
                new[0] <= value * (1 + 1e-15) and abs(new[1] @ step) < abs(promised)
            ):
                break
            step = 0.5 * step
        else:
            break
        x = x + step
        value, gradient, H = new
        if abs(promised) <= 1e-18 * abs(value):
            break
    return float(x[0]), float(x[1])


def _dual_bound(problem: MarginScaleProblem, w: Array, a: Array) -> float:
    """Return the dual objective of `a` made feasible."""
    loss, c, y = problem.loss, problem.weights, problem.signs
    a = np.clip(a, 0.0, 1.0)
    if problem.fit_intercept:
        positive = float(np.sum((c * a)[y > 0]))
        negative = float(np.sum((c * a)[y < 0]))
        if min(positive, negative) <= 0:
            return 0.0
        a = a * np.where(y > 0, min(1.0, negative / positive), min(1.0, positive / negative))
    V = problem.rows.transpose_dot(c * a * y)
    if problem.alpha > 0:
        return _penalised(problem, loss, a, V, w)
    return float(np.sum(c * loss.dual_value(_shrunk_to_fit(problem, loss, a, V, w) * a)))


def _shrunk_to_fit(problem: MarginScaleProblem, loss: Loss, a: Array, V: Array, w: Array) -> float:
    """Return the largest k in [0, 1] found at which the budgets of k a cover k V; it exists as p is concave, p(0) = 0."""
    c = problem.weights
    demand = problem.bound.demand(V, c * loss.dual_scale(a), w)
    if not np.all(np.isfinite(demand)):
        return 0.0

    def covered(k: float) -> bool:
        budgets = c * loss.dual_scale(k * a)
        return bool(np.all(k * demand <= (np.sum(budgets) if problem.bound.is_common else budgets)))

    if covered(1.0):
        return 1.0
    excess = 1e-14
    while excess < 1 and not covered(1 - excess):
        excess *= 2
    if excess >= 1:
        low, high = 0.0, 0.5
        for k in 0.5 ** np.arange(1, 900):
            if covered(k):
                low, high = k, 2 * k
                break
    else:
        low, high = 1 - excess, 1 - excess / 2
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if covered(middle) else (low, middle)
    return low


def _penalised(problem: MarginScaleProblem, loss: Loss, a: Array, V: Array, w: Array) -> float:
    """Return the best dual objective over multiples of `a`, what the budgets do not cover being penalised."""
    c = problem.weights

    def dual(k: float) -> float:
        missed = problem.bound.shortfall(k * V, c * loss.dual_scale(k * a), w)
        return float(np.sum(c * loss.dual_value(k * a)) - missed**2 / (2 * problem.alpha))

    whole = dual(1.0)
    if whole > 0.5 * float(np.sum(c * loss.dual_value(a))):
        return whole
    found = minimize_scalar(lambda k: -dual(k), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return max(whole, -float(found.fun))


def _strong_convexity_bound(problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float) -> float:
    """Return the minimum of the objective's quadratic minorant at (w, b), b having been improved along its own axis."""
    c, y, alpha = problem.weights, problem.signs, problem.alpha
    if problem.fit_intercept:
        b = _best_intercept(problem, scores, t, b)
    value, slope, scale_slope = problem.loss.evaluate(1.0 - y * (scores + b), t)
    gradient = problem.bound.adjoint(w, c * scale_slope) - problem.rows.transpose_dot(c * y * slope) + alpha * w
    objective = float(c @ value + 0.5 * alpha * w @ w)
    leftover = 0.0
    if problem.fit_intercept:
        # The optimum's losses add up to at most the objective here, and each is at least u - 1 = -y(w'x + b).
        reach = np.sqrt(2 * objective / alpha)
        rows_norm = np.sqrt(float(np.sum(problem.rows.square_sums(c))) * float(c.sum()))
        farthest = max((objective + reach * rows_norm) / weight for weight in problem.class_weights())
        leftover = abs(float(np.sum(c * y * slope))) * (abs(b) + farthest)
    return objective - float(gradient @ gradient) / (2 * alpha) - leftover


def _best_intercept(problem: MarginScaleProblem, scores: Array, t: Array, b: float) -> float:
    """Return the b at which the slope in b vanishes to rounding: Newton inside a bracket."""
    y, c = problem.signs, problem.weights

    def slope(b: float) -> tuple[float, float]:
        u = 1.0 - y * (scores + b)
        return -float(np.sum(c * y * problem.loss.evaluate(u, t)[1])), float(
            np.sum(c * problem.loss.curvature(u, t)[0])
        )

    low, high = -np.inf, np.inf
    for _ in range(60):
        g, h = slope(b)
        low, high = (b, high) if g < 0 else (low, b)
        move = -g / h if h > 0 else -np.sign(g)
        new = b + float(np.clip(move, -10.0, 10.0))
        if not low < new < high:
            new = 0.5 * (low + high) if np.isfinite(low) and np.isfinite(high) else new
        if new == b or abs(g) <= 1e-15 * float(c.sum()):
            break
        b = new
    return b
