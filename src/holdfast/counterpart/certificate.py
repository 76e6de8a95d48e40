"""The proof of how near a fit is to optimal, recomputed from the data and sharing no code with a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from holdfast._core.loss import Array, Loss
from holdfast._core.solution import DualGuess
from holdfast.uncertainty.clouds import ratio, solve_scaled

if TYPE_CHECKING:
    from holdfast.counterpart.margin_scale import MarginScaleProblem

LARGEST_EXACT = 5e7
"""Entries of the features without noise up to which a pull on them is corrected (400 MB)."""


class Certificate(NamedTuple):
    """What is proved about a point."""

    objective: float
    """The objective there."""
    lower_bound: float
    """A number that no parameters can go below, up to rounding; -inf where none is known."""
    gap: float
    """(objective - lower_bound) / max(objective, floor), never negative."""
    norm_bound: float = np.inf
    """A number that the optimal weights' l2 norm cannot exceed; inf where none is known."""


def certificate(problem: MarginScaleProblem, w: Array, b: float, dual: DualGuess | None = None) -> Certificate:
    r"""Return the objective at (w, b), a lower bound on the optimum, and their relative distance.

    Two passes over the rows in float64, a third where the loss has an intercept but no dual. Where it has a dual, the
    slopes :math:`a_i = \ell_u` at the best multiple of w and the best intercept are made dual feasible: class sums are
    balanced by shrinking the larger, then with :math:`V = \sum c a y x`

    * without a ridge, a is scaled by the largest factor at which the noise's budgets :math:`\sum c\, p(a)` cover V;
    * with one, the part of V that they do not cover costs its square over :math:`2\alpha`.

    Otherwise strong convexity is used: with a ridge, :math:`P - P^* \le |\nabla_w P|^2 / (2\alpha)` plus what the
    remaining slope in b can earn over the range that the optimal intercept must lie in. `dual` is a guess of a that
    replaces the slopes; it is checked like them.
    """
    scores, t = problem.rows.dot(w), problem.bound.support(w)
    if problem.loss.has_dual:
        objective, slopes = _slopes_at_best_scale(problem, scores, t, w, b)
        bound, pull = _dual_bound(problem, DualGuess(slopes, w, t) if dual is None else dual)
    else:
        objective, bound, pull = _strong_convexity_bound(problem, scores, t, w, b)
    scale = max(abs(objective), problem.floor)
    # every loss here is nonnegative
    bound = max(bound, 0.0) if bound > -np.inf else bound
    gap = max(objective - bound, 0.0) / scale
    return Certificate(objective, float(min(bound, objective)), float(gap), problem.norm_bound(pull))


def _slopes_at_best_scale(
    problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float
) -> tuple[float, Array]:
    """Return the objective at (w, b), and the slopes in u at (r w, b') for the best r > 0 and b'.

    A problem in two numbers, O(n_samples) a step. It makes w'gradient = 0 and the slope in b vanish, whereby the gap is
    of second order in the error of w.
    """
    line = _Ray(problem, scores, t, w)
    x, free = np.array([1.0, b]), slice(0, 2 if problem.fit_intercept else 1)
    here = line.evaluate(x)
    objective = here.value
    for _ in range(100):
        bends = line.curvature(x)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            move = _solve_two(line.hessian(*bends)[free, free], here.gradient[free])
        usable = np.all(np.isfinite(move)) and float(here.gradient[free] @ move) < 0
        step = np.zeros(2)
        # where curvature vanishes, as far from any row's margin, only the signs of the slopes are of use
        step[free] = move if usable else -0.5 * np.sign(here.gradient[free]) * np.array([x[0], 1.0])[free]
        step *= min(1.0, 0.9 * x[0] / max(abs(step[0]), 1e-300), 3.0 / max(abs(step[1]), 1e-300))
        promised = -float(here.gradient @ step)
        if usable and promised <= 1e-8 * abs(here.value):
            # so short a step that the slopes follow it linearly; any slopes will do for a proof, good ones for a tight one
            return objective, line.moved_slopes(here.slopes, step, *bends[:2])
        there = line.improved(x, here, step) if promised > 0 else None
        if there is None:
            break
        x, here = there
    return objective, here.slopes


class _Point(NamedTuple):
    value: float
    gradient: Array
    slopes: Array


class _Ray:
    """The objective at (r w, b) as a function of x = (r, b)."""

    def __init__(self, problem: MarginScaleProblem, scores: Array, t: Array, w: Array):
        self.problem, self.scores, self.t = problem, scores, t
        self.signed = problem.signs * scores
        self.ridge = problem.alpha * float(w @ w)

    def _deficit(self, x: Array) -> Array:
        return 1.0 - x[0] * self.signed - x[1] * self.problem.signs

    def evaluate(self, x: Array) -> _Point:
        c, y = self.problem.weights, self.problem.signs
        losses, slopes, scale_slopes = self.problem.loss.evaluate(self._deficit(x), x[0] * self.t)
        weighted = c * slopes
        along = float(np.sum(c * (self.t * scale_slopes)) - self.signed @ weighted) + self.ridge * x[0]
        return _Point(float(c @ losses) + 0.5 * self.ridge * x[0] ** 2, np.array([along, -float(y @ weighted)]), slopes)

    def curvature(self, x: Array) -> tuple[Array, Array, Array]:
        return self.problem.loss.curvature(self._deficit(x), x[0] * self.t)

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        """Return the slopes after a short step, to first order."""
        return slopes + ut * (step[0] * self.t) - uu * (step[0] * self.signed + step[1] * self.problem.signs)

    def hessian(self, uu: Array, ut: Array, tt: Array) -> Array:
        c, y, t = self.problem.weights, self.problem.signs, self.t
        uu, ut, tt = c * uu, c * ut, c * tt
        rr = np.sum(uu * self.scores**2 - 2 * ut * self.signed * t + tt * t * t) + self.ridge
        rb = np.sum(uu * self.scores - ut * y * t)
        return np.array([[rr, rb], [rb, np.sum(uu)]])

    def improved(self, x: Array, here: _Point, step: Array) -> tuple[Array, _Point] | None:
        """Return x + step, or with half, a quarter ... of the step, where that is lower; None where nothing is."""
        for _ in range(30):
            there = self.evaluate(x + step)
            at_rounding = there.value <= here.value * (1 + 1e-15)
            shrunk = abs(there.gradient @ step) < abs(here.gradient @ step)
            if there.value <= here.value + 1e-4 * float(here.gradient @ step) or (at_rounding and shrunk):
                return x + step, there
            step = 0.5 * step
        return None


def _solve_two(H: Array, g: Array) -> Array:
    """Return -H^-1 g for a symmetric matrix of size 1 or 2, not finite where H is singular."""
    if len(g) == 1:
        return -g / H[0]
    determinant = H[0, 0] * H[1, 1] - H[0, 1] * H[1, 0]
    return -np.array([H[1, 1] * g[0] - H[0, 1] * g[1], H[0, 0] * g[1] - H[1, 0] * g[0]]) / determinant


def _dual_bound(problem: MarginScaleProblem, guess: DualGuess) -> tuple[float, Array]:
    """Return the dual objective of the guess made feasible, and the pull that the norm bound needs."""
    loss, c, y = problem.loss, problem.weights, problem.signs
    a = np.clip(guess.slopes, 0.0, 1.0)
    exact = problem.bound.exact_features(problem.rows.n_features)
    if problem.alpha == 0 and np.any(exact):
        a = _without_pull_on_exact_features(problem, a, exact)
    if problem.fit_intercept:
        weighted = c * a
        positive, negative = float(weighted @ (y > 0)), float(weighted @ (y < 0))
        smaller = min(positive, negative)
        a = a * np.where(y > 0, _share(smaller, positive), _share(smaller, negative))
    V, pull = problem.rows.transpose_dot(np.column_stack([c * a * y, problem.pull_per_class()])).T
    if problem.alpha > 0:
        return _penalised(problem, loss, a, V, guess), pull
    k = _shrunk_to_fit(problem, loss, a, V, guess)
    return float(np.sum(c * loss.dual_value(k * a))), pull


def _without_pull_on_exact_features(problem: MarginScaleProblem, a: Array, exact: NDArray[np.bool_]) -> Array:
    """Return dual weights near `a` that pull neither on features without noise nor on the intercept; `a` where that fails.

    No budget can bear such a pull. The rows strictly between the bounds make up for it, each by its room to move.
    """
    if problem.rows.n_samples * np.count_nonzero(exact) > LARGEST_EXACT:
        return a
    c, y = problem.weights, problem.signs
    Z = np.concatenate([block[:, exact] for _, block in problem.rows.dense_blocks()])
    if problem.fit_intercept:
        Z = np.column_stack([Z, np.ones(len(Z))])
    room = np.minimum(a, 1 - a)
    H = (Z * (c * room)[:, None]).T @ Z
    for _ in range(2):  # the second round removes the first one's rounding
        a = a - room * y * (Z @ solve_scaled(H, Z.T @ (c * a * y)))
    return np.clip(a, 0.0, 1.0)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _shrunk_to_fit(problem: MarginScaleProblem, loss: Loss, a: Array, V: Array, guess: DualGuess) -> float:
    """Return the largest k in [0, 1] found at which the budgets of k a cover k V; it exists as p is concave, p(0) = 0."""
    c = problem.weights
    budgets = c * loss.dual_scale(a)
    # by Cauchy's inequality no less than sum c a |x_j|, from which V_j came; where all features alike have noise, not needed
    sizes = None if problem.bound.is_isotropic else float(np.sum(c * a)) * np.sqrt(problem.rows.column_squares)
    demand = problem.bound.demand(V, ratio(budgets, guess.scale), sizes)
    if not np.all(np.isfinite(demand)):
        return 0.0

    def slack(k: float, budgets: Array) -> Array:
        return np.atleast_1d((np.sum(budgets) if problem.bound.is_common else budgets) - k * demand)

    whole = slack(1.0, budgets)
    if np.all(whole >= 0):
        return 1.0
    cut, growth = max(float(np.max(-whole / np.where(whole < 0, demand, 1.0))), 1e-15), 2.0
    if cut > 1e-3:
        # too much is missing for a linear guess: budgets can rise steeply, so begin with a hair
        cut, growth = 1e-15, 8.0
    while cut < 0.5:
        rest = slack(1 - cut, c * loss.dual_scale((1 - cut) * a))
        if np.all(rest >= 0):
            # slack is concave in k, so it lies above its chord, whose root is therefore a proof
            short = whole < 0
            return float(1 - cut * np.max(-whole[short] / (rest - whole)[short]))
        cut *= growth
    for k in 0.5 ** np.arange(1, 1000):
        if np.all(slack(k, c * loss.dual_scale(k * a)) >= 0):
            return float(k)
    return 0.0


def _penalised(problem: MarginScaleProblem, loss: Loss, a: Array, V: Array, guess: DualGuess) -> float:
    """Return the best dual objective over multiples of `a`, what the budgets do not cover being penalised."""
    c = problem.weights

    def dual(k: float) -> float:
        budgets = c * loss.dual_scale(k * a)
        missed = problem.bound.shortfall(k * V, budgets, ratio(budgets, guess.scale), guess.direction)
        return float(np.sum(c * loss.dual_value(k * a)) - missed**2 / (2 * problem.alpha))

    whole = dual(1.0)
    if whole > 0.5 * float(np.sum(c * loss.dual_value(a))):
        return whole
    found = minimize_scalar(lambda k: -dual(k), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return max(whole, -float(found.fun))


def _strong_convexity_bound(
    problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float
) -> tuple[float, float, Array]:
    """Return the objective, the minimum of its quadratic minorant at (w, b') for the best b', and the pull."""
    c, y, alpha = problem.weights, problem.signs, problem.alpha
    ridge = 0.5 * alpha * float(w @ w)
    objective = float(c @ problem.loss.value(1.0 - y * (scores + b), t)) + ridge
    if problem.fit_intercept:
        b = _best_intercept(problem, scores, t, b)
    value, slope, scale_slope = problem.loss.evaluate(1.0 - y * (scores + b), t)
    best = float(c @ value) + ridge
    V, pull = problem.rows.transpose_dot(np.column_stack([c * y * slope, problem.pull_per_class()])).T
    if alpha == 0:
        return objective, -np.inf, pull
    gradient = problem.bound.adjoint(w, c * scale_slope) - V + alpha * w
    leftover = 0.0
    if problem.fit_intercept:
        # The optimum's losses add up to at most `best`, and each is at least u - 1 = -y(w'x + b).
        reach = np.sqrt(2 * best / alpha)
        rows_norm = np.sqrt(float(np.sum(problem.rows.square_sums(c))) * float(c.sum()))
        farthest = max((best + reach * rows_norm) / weight for weight in problem.class_weights())
        leftover = abs(float(np.sum(c * y * slope))) * (abs(b) + farthest)
    return objective, best - float(gradient @ gradient) / (2 * alpha) - leftover, pull


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
