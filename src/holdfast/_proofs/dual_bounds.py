"""The dual lower bound for two classes: slopes at the best scale, balanced and shrunk to feasible dual weights."""

from __future__ import annotations

import numpy as np

from holdfast._core.arithmetic import ratio
from holdfast._core.chunks import stretches
from holdfast._core.loss import SHORT_CUT, Array
from holdfast._core.solution import DualGuess
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.best_scale import Point, best_scale
from holdfast._proofs.pair_constraints import PairConstraint, dual_objective
from holdfast._proofs.pulls import balanced, sizes_of_sums, without_exact_pull

Bound = tuple[float, Array]
"""A lower bound, and the dual weights, times the row weights, that prove it."""


class BinaryRay:
    """The objective at (r w, b); rows are processed in stretches, and nothing is stored per row."""

    def __init__(self, problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float):
        self.problem, self.scores, self.t = problem, scores, t
        self.ridge, self.enough = problem.alpha * float(w @ w), problem.enough
        self.start = np.array([1.0, b] if problem.fit_intercept else [1.0])

    def arguments(self, part: slice, x: Array) -> tuple[Array, Array]:
        """Return the margin deficits and the scales of some rows."""
        moved = x[0] * self.scores[part]
        moved += x[1] if len(x) > 1 else 0.0
        moved *= self.problem.signs[part]
        np.subtract(1.0, moved, out=moved)
        return moved, x[0] * (self.t[part] if self.t.ndim else self.t)

    def evaluate(self, x: Array) -> Point:
        """Return the value, the gradient and the sums that form the Hessian, but no slopes."""
        sums = np.zeros(6)
        for part in stretches(len(self.scores)):
            sums += self._sums(part, x)
        value, along, balance, rr, rb, bb = sums
        value += 0.5 * self.ridge * x[0] ** 2
        gradient = np.array([along + self.ridge * x[0], -balance])[: len(x)]
        return Point(float(value), gradient, np.empty(0), (rr + self.ridge, rb, bb))

    def _sums(self, part: slice, x: Array) -> Array:
        loss, c, y = self.problem.loss, self.problem.weights[part], self.problem.signs[part]
        u, t = self.arguments(part, x)
        values, slopes, scale_slopes = loss.tangent(u, t)
        uu, ut, tt = loss.curvature(u, t)
        own, signed = (self.t[part] if self.t.ndim else self.t), y * self.scores[part]
        weighted, cross = c * slopes, c * (uu * signed - ut * own)
        along = float(c @ np.broadcast_to(own * scale_slopes, c.shape)) - float(signed @ weighted)
        rr = float(signed @ cross) - float(c @ ((ut * signed - tt * own) * own))
        return np.array([c @ values, along, y @ weighted, rr, y @ cross, c @ uu])

    def hessian(self, rr: float, rb: float, bb: float) -> Array:
        return np.array([[rr, rb], [rb, bb]])[: len(self.start), : len(self.start)]

    def slopes_at(self, x: Array) -> Array:
        """Return the losses' slopes in u at x."""
        slopes = np.empty(len(self.scores))
        for part in stretches(len(slopes)):
            slopes[part] = self.problem.loss.tangent(*self.arguments(part, x))[1]
        return slopes


def is_plain(problem: MarginScaleProblem) -> bool:
    """Return whether rows share one scale and the target margin 1, and the loss lets budgets be summed in advance."""
    shares = problem.sets.is_common and problem.sets.is_symmetric and problem.sets.is_sublinear
    wants_one = problem.push is None and np.ndim(problem.target) == 0 and float(problem.target) == 1.0
    return bool(shares and wants_one and problem.loss.is_homogeneous)


def bound_at_best_scale(
    problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float
) -> tuple[float | None, float, Array]:
    """Return the objective at (w, b) (None if not computed), a lower bound on the optimum, and its dual weights."""
    ray = BinaryRay(problem, scores, t, w, b)
    here = ray.evaluate(ray.start)
    x, _, step = best_scale(ray, here)
    if is_plain(problem) and (problem.alpha > 0 or not _has_exact_directions(problem)):
        return here.value, *_bound_by_sums(problem, ray, x + step, w)
    return None, *bound_of_guess(problem, DualGuess(ray.slopes_at(x + step), w, t))


def _has_exact_directions(problem: MarginScaleProblem) -> bool:
    d = problem.rows.n_features
    return bool(np.any(problem.sets.exact_features(d))) or problem.sets.exact_directions(d).shape[1] > 0


class SharedBudgets:
    """The sum of all rows' budgets of one common set, at multiples of dual weights whose class sums are balanced."""

    def __init__(self, ray: BinaryRay, x: Array):
        self.problem = problem = ray.problem
        self.slopes, sums, self.is_known = np.empty(len(ray.scores)), np.zeros((5, 2)), True
        for part in stretches(len(self.slopes)):
            u, t = ray.arguments(part, x)
            _, a, p = problem.loss.tangent(u, t)
            self.slopes[part] = a = np.clip(a, 0.0, 1.0)
            known = problem.loss.shrunk_scale(u, t, a)
            self.is_known = self.is_known and known is not None
            sums += by_class(problem, part, a, p, *(known or (a, a)), problem.loss.dual_value(a))
        self.sums = sums
        self.factors = np.ones(2)
        if problem.fit_intercept:
            self.factors = ratio(np.min(sums[0]), sums[0])

    def dual_scale(self, multiples: Array) -> Array:
        """Return a lower bound on the sum of budgets at one multiple of the dual weights (a vector of length 1)."""
        k = self.factors * multiples[0]
        cut = 1.0 - k
        if np.all(cut <= (SHORT_CUT if self.is_known else 0.0)):
            _, p, rise, bend, _ = self.sums
            return np.atleast_1d(np.sum(p + cut * rise - np.square(cut) * bend))
        total = 0.0
        for part in stretches(len(self.slopes)):
            shrunk = self.slopes[part] * np.where(self.problem.signs[part] > 0, k[1], k[0])
            total += float(self.problem.weights[part] @ self.problem.loss.dual_scale(shrunk))
        return np.atleast_1d(total)


def by_class(problem: MarginScaleProblem, part: slice, *numbers: Array) -> Array:
    """Return weighted sums over the negative and over the positive rows of a part, one line for each of `numbers`."""
    c, is_positive = problem.weights[part], problem.signs[part] > 0
    sides = np.stack([np.where(is_positive, 0.0, c), np.where(is_positive, c, 0.0)])
    return np.stack([sides @ one for one in numbers])


def _bound_by_sums(problem: MarginScaleProblem, ray: BinaryRay, x: Array, w: Array) -> Bound:
    """Return the bound from the slopes at x when only the sum of budgets matters, storing few vectors."""
    budgets = SharedBudgets(ray, x)
    negative, positive = budgets.factors
    share_of = np.where(problem.signs > 0, positive, negative) * problem.weights
    r = share_of * budgets.slopes
    r *= problem.signs
    V = problem.rows.transpose_dot(r)
    del r
    one = np.ones(1)
    sizes = None if problem.sets.is_isotropic else sizes_of_sums(problem, share_of * budgets.slopes)
    constraint = PairConstraint(lambda: problem.sets, one, one, V, problem.sets.support(w), w, problem.alpha, sizes)
    # the loss is homogeneous, so its dual value is too
    worth = float(budgets.factors @ budgets.sums[-1])
    bound, share = dual_objective(budgets, [constraint], lambda k: k * worth)
    share_of *= budgets.slopes
    share_of *= share
    return bound, share_of


def bound_of_guess(problem: MarginScaleProblem, guess: DualGuess) -> Bound:
    """Make the guess feasible; return its dual objective and its dual weights times the row weights."""
    c, y = problem.weights, problem.signs
    a = np.clip(guess.slopes, 0.0, 1.0)
    if problem.alpha == 0:
        a = without_exact_pull(problem, a)
    if problem.fit_intercept:
        a = a * balanced(problem, a)
    V = problem.rows.transpose_dot(c * a * y)
    sizes = None if problem.sets.is_isotropic else sizes_of_sums(problem, c * a)
    absorbed = None if guess.sets is None else guess.sets.adjoint(guess.direction, c * problem.loss.dual_scale(a))
    constraint = PairConstraint(
        lambda: problem.sets, c, a, V, guess.scale, guess.direction, problem.alpha, sizes, absorbed
    )
    bound, share = dual_objective(
        problem.loss, [constraint], lambda k: float(np.sum(c * problem.loss.dual_value(k * a)))
    )
    return bound, share * c * a
