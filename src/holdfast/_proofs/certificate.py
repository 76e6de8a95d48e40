"""The proof of how near a fit is to optimal, recomputed from the data and sharing no code with a solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.arithmetic import MISSED, norm, ratio, solve_scaled
from holdfast._core.loss import Array, Loss
from holdfast._core.row_sets import RowSets
from holdfast._core.solution import DualGuess
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.consistency import consistent

FAINT = 0.01
"""Support, in units of the margin, up to which w = 0 may be what is to be proved."""
CHEAP = 1.0
"""Price of what the sets leave, as a share of what is missing anyway, up to which no better split of it is sought."""
KINK = 1e-12
"""Smoothing at which the best intercept of w = 0 is sought: none to speak of."""
UNGUESSED = 1e-6
"""Smoothing whose slopes are taken for dual weights where nobody has a better guess."""
ROOMS = 0.5 * 10.0 ** -np.arange(3.0, 10.0)
"""Shares of the sets that are tried to be kept free for what guessed points leave."""
INEXACT = 2e-11
"""What a loss that is an integral without a closed form may be off by."""
AT_REST = (0.0, 1e-9, 1e-6, 1e-3)
"""Shares of the largest dual weight below which one is tried as 0."""
UNMOVED = 1e-6
"""Share of what dual weights are worth that may go into making them feasible before other ways are tried."""
ROUNDS = 12
"""Rounds in which dual weights are made to meet what they must: two, unless bounds are in their way."""
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
    dual: Array | None = None
    """The dual weights, times the rows' own, that prove the bound, shape (n_samples,) or (n_samples, n_classes)."""


@singledispatch
def certificate(problem: LinearProblem, w: Array, b: Any, dual: DualGuess | None = None) -> Certificate:
    """Return the objective at (w, b), a lower bound on the optimum, and their relative distance.

    `dual` is a guess of the dual weights that replaces the slopes at (w, b); it is checked like them.
    """
    raise NotImplementedError(f"No certificate is known for {type(problem).__name__}.")


@certificate.register
def binary_certificate(problem: MarginScaleProblem, w: Array, b: float, dual: DualGuess | None = None) -> Certificate:
    r"""Return what is proved at (w, b) about two classes.

    Two passes over the rows in float64, a third where the loss has an intercept but no dual. Where it has a dual, the
    slopes :math:`a_i = \ell_u` at the best multiple of w and the best intercept are made dual feasible: class sums are
    balanced by shrinking the larger, then with :math:`V = \sum c a y x`

    * without a ridge, a is scaled by the largest factor at which the noise's budgets :math:`\sum c\, p(a)` cover V;
    * with one, the part of V that they do not cover costs its square over :math:`2\alpha`.

    Otherwise strong convexity is used: with a ridge, tangents of the losses give a quadratic minorant of the objective, whose
    minimum lies :math:`|\nabla_w P|^2 / (2\alpha)` below it where the sets are smooth; to be deducted is what the
    remaining slope in b can earn over the range that the optimal intercept must lie in.
    """
    if dual is not None:
        # sets bear no more along a direction than their support there, whatever a guess says
        dual = dual._replace(scale=np.maximum(dual.scale, problem.sets.support(dual.direction)))
    if problem.has_kinks:
        return worst_case_certificate(problem, w, b, dual)
    scores, t = problem.rows.dot(w), problem.sets.support(w)
    objective, rounding = objective_at(problem, w, b, scores, t), partial(rounding_at, problem, w, b)
    if problem.loss.has_dual:
        if dual is None:
            dual = DualGuess(slopes_at_best_scale(_BinaryRay(problem, scores, t, w, b)), w, t)
        bound, pull, proof = _dual_bound(problem, dual)
        return certified(objective, bound, problem.floor, rounding, problem.norm_bound(pull), proof)
    guess = DualGuess(t, w, t) if dual is None else dual
    bound, pull = _strong_convexity_bound(problem, scores, guess, w, b, objective)
    return certified(objective, bound, problem.floor, rounding, problem.norm_bound(pull))


def objective_at(problem: MarginScaleProblem, w: Array, b: float, scores: Array, t: Array) -> float:
    """Return the objective at (w, b) from the scores w'x of the rows and the supports t of their sets, by definition."""
    c, pushed = problem.weights, problem.push_of(w)
    deficits = problem.target - problem.signs * (scores + b) + problem.kappa * pushed
    losses = float(c @ problem.loss.value(deficits, t)) + (1 - problem.kappa) * float(np.sum(c * pushed))
    return losses + 0.5 * problem.alpha * float(w @ w) + _penalty_at(problem, w)


def _penalty_at(problem: MarginScaleProblem, w: Array) -> float:
    """Return the part of the objective that is a multiple of the l1 norm, inf where some weight exceeds its limit."""
    if problem.penalty is None:
        return 0.0
    # a weight at its limit may be beyond it by rounding
    is_beyond = bool(np.any(np.abs(w) > problem.penalty.limit * (1 + 4 * np.finfo(float).eps)))
    return np.inf if is_beyond else problem.penalty.absolute * float(np.sum(np.abs(w)))


def rounding_at(problem: LinearProblem, w: Array, b: Any) -> float:
    """Return what rounding of scores and pulls may add to a lower bound, or take from the objective, at (w, b)."""
    c = problem.weights
    weight, largest = float(np.sum(c)), np.max(np.abs(np.atleast_2d(w)), axis=0)
    scores = weight * float(1.0 + np.max(np.abs(b))) + float(sizes_of_sums(problem, c) @ largest)
    steepest = 1.0 if problem.loss.dual_limit < np.inf else 1.0 + scores / weight
    return INEXACT * weight + MISSED * scores * steepest


class Proof(NamedTuple):
    """Lines under the rows' losses: a (u - 1) + v + p t, summed with the rows' weights."""

    a: Array
    v: Array
    p: Array

    def shrunk(self, loss: Loss, factors: Array) -> Proof:
        """Return lines with a multiplied by factors in [0, 1]; a loss that is at least `outside` * t lies above those too."""
        if loss.has_dual:
            return dual_lines(loss, self.a * factors)
        return Proof(self.a * factors, self.v * factors, self.p * factors + loss.outside * (1 - factors))


def dual_lines(loss: Loss, a: Array) -> Proof:
    """Return the highest lines of slope a."""
    return Proof(a, loss.dual_value(a), loss.dual_scale(a))


def _has_exact_directions(problem: LinearProblem) -> bool:
    """Return whether no row's set moves along some feature or direction."""
    d = problem.rows.n_features
    return bool(np.any(problem.sets.exact_features(d))) or problem.sets.exact_directions(d).shape[1] > 0


def tangents(loss: Loss, u: Array, t: Array) -> Proof:
    """Return the lines that touch the losses at (u, t)."""
    value, slope, scale_slope = loss.tangent(u, t)
    return Proof(slope, value + slope * (1.0 - u) - scale_slope * t, scale_slope)


def worst_case_certificate(problem: MarginScaleProblem, w: Array, b: float, guess: DualGuess | None) -> Certificate:
    r"""Return what is proved at (w, b) about losses at worst points, any penalty, two classes.

    Each loss lies above lines :math:`a_i (u_i - 1) + v_i + p_i t_i`: those of its dual form with slopes a, or tangents. With
    :math:`\sum c\,a\,y = 0` and :math:`V = \sum c\,a\,y\,x = q + r`, q in :math:`\sum c_i p_i S_i`, the sum of the lines and of
    the penalty is at least :math:`\sum c\,v - \text{penalty}^*(r)` for all weights. An r that has no finite price is scaled
    down with all lines, or covered by what lines of slope 0 leave of the sets (:math:`p(0) = 1 - \kappa`).
    """
    y, loss = problem.signs, problem.loss
    scores, t = problem.rows.dot(w), problem.sets.support(w)
    objective, rounding = objective_at(problem, w, b, scores, t), partial(rounding_at, problem, w, b)
    if guess is None:
        near = problem.smoothed(UNGUESSED)
        if problem.fit_intercept:
            b = best_intercept(near, w, scores, near.sets.support(w), b)
        guess = near.dual_guess(problem.join(w, b))
    if loss.has_dual:
        lines = dual_lines(loss, np.clip(guess.slopes, 0.0, loss.dual_limit))
    else:
        v, near = guess.direction, problem if guess.push is None else problem.having(push=guess.push)
        scores = scores if v is w else problem.rows.dot(v)
        if problem.fit_intercept:
            b = best_intercept(near, v, scores, guess.scale, b)
        u = problem.target - y * (scores + b) + problem.kappa * near.push_of(v)
        lines = tangents(loss, u, guess.scale)
    is_covered = problem.push is None and (loss.has_dual or not _has_exact_directions(problem))
    if not (is_covered or problem.is_penalised):
        # nothing is known that covers to the last digit what rows pull
        return certified(objective, -np.inf, problem.floor, rounding)
    bound, pull, dual = _bound_by_points(problem, lines, guess) or _bound_of_lines(problem, lines, guess, objective)
    return certified(objective, bound, problem.floor, rounding, problem.norm_bound(pull), dual)


def _bound_by_points(problem: MarginScaleProblem, lines: Proof, guess: DualGuess) -> tuple[float, Array, Array] | None:
    """Return what lines near these prove whose pull the maximizers of smoothed sets bear to the last digit.

    That is for problems without a penalty, where no pull has a price; None where there is one, or no such lines are found.
    The rows strictly between the bounds make up for what is missed, each by its room to move. Where no weights have room,
    as all rows pull one way and each set just bears its own, points belong on the faces that smoothing keeps them from.
    """
    rows, loss, c, y = problem.rows, problem.loss, problem.weights, problem.signs
    if guess.sets is None or problem.is_penalised or not (loss.has_affine_scale and has_points(problem)):
        return None
    limit = min(loss.dual_limit, 1.0 + float(np.max(lines.a, initial=0.0)))
    outside, shares = loss.outside, lines.a / limit
    signed = np.concatenate([y[part, None] * block for part, block in rows.dense_blocks()])

    def worth(a: Array) -> float:
        return float(np.sum(c * (loss.dual_value(a) + a * (problem.target - 1.0))))

    best = None
    for find, least in ((guess.sets.maximizer, 0.0), *((guess.sets.maximizer_on_faces, least) for least in AT_REST)):
        points = find(guess.direction)
        A = signed - (1 - outside) * points
        fixed = outside * (np.sum(c) * points[0] if len(points) == 1 else points.T @ c)
        if problem.fit_intercept:
            A, fixed = np.column_stack([A, y]), np.append(fixed, 0.0)
        a = limit * drawn_to(np.where(shares < least, 0.0, shares), c, A, fixed / limit)
        missed, sizes = np.abs(A.T @ (c * a) - fixed), np.append(sizes_of_sums(problem, c * a), c @ a)
        if np.all(missed <= MISSED * sizes[: len(missed)]) and (best is None or worth(a) > worth(best)):
            best = a
            if worth(a) >= (1 - UNMOVED) * worth(lines.a):
                break
    return None if best is None else (worth(best), rows.transpose_dot(problem.pull_per_class()), c * best)


def has_points(problem: LinearProblem) -> bool:
    """Return whether what rows pull can be shared out among points of their sets, to the last digit."""
    return problem.sets.is_sublinear and problem.rows.n_samples * problem.rows.n_features <= LARGEST_EXACT


def _bound_of_lines(
    problem: MarginScaleProblem, lines: Proof, guess: DualGuess, objective: float
) -> tuple[float, Array, Array]:
    """Return the lower bound that the lines prove, the pull that the norm bound needs, and the dual weights.

    What is dear to find out is left alone where it would not bring the bound much nearer to the objective.
    """
    c, y, loss, bound = problem.weights, problem.signs, problem.loss, problem.sets
    is_hard = not problem.is_penalised
    if is_hard and loss.has_dual:
        limit = min(loss.dual_limit, 1.0 + float(np.max(lines.a, initial=0.0)))
        lines = dual_lines(loss, limit * _without_exact_pull(problem, lines.a / limit))
    if problem.fit_intercept:
        weighted = c * lines.a
        positive, negative = float(weighted @ (y > 0)), float(weighted @ (y < 0))
        smaller = min(positive, negative)
        lines = lines.shrunk(loss, np.where(y > 0, _share(smaller, positive), _share(smaller, negative)))
    V, pull = problem.rows.transpose_dot(np.column_stack([c * lines.a * y, problem.pull_per_class()])).T
    sizes = sizes_of_sums(problem, c * lines.a)
    budgets = c * lines.p

    def value(share: float) -> float:
        shrunk = lines.shrunk(loss, np.full(len(c), share))
        return float(np.sum(c * (shrunk.v + shrunk.a * (problem.target - 1.0))))

    if not bound.is_sublinear:
        best, share = _bound_less_tolls(problem, lines, V, sizes, guess.direction)
        return best, pull, share * c * lines.a
    left = bound.residual(V, budgets, guess.scale, guess.direction)
    if is_hard:
        if guess.points is not None:
            left = min(left, V - bound.sum_of_points(guess.points, budgets), key=lambda rest: float(rest @ rest))
        left = np.where(np.abs(left) <= MISSED * sizes, 0.0, left)
        share = _covered_share(problem, V, left, budgets, guess, sizes)
        return value(share), pull, share * c * lines.a

    penalty = problem.penalty
    # the nearest point of the sets need not be the one that leaves the cheapest pull
    lefts = [left, bound.residual_along(V, budgets, guess.scale, guess.direction)]
    if problem.push is not None:
        own = problem.push_budgets(lines.a), problem.push.support(guess.direction), guess.direction
        lefts = [problem.push.residual(lefts[0], *own), problem.push.residual_along(lefts[1], *own)]
    if guess.sets is not None:
        smoothed = V - guess.sets.adjoint(guess.direction, budgets)
        pushed = 0.0 if guess.push is None else guess.push.adjoint(guess.direction, problem.push_budgets(lines.a))
        lefts.append(smoothed - pushed)
    if guess.points is not None and problem.push is None:
        lefts.append(V - bound.sum_of_points(guess.points, budgets))

    def priced(share: float, left: Array) -> float:
        ridge = float(left @ left) * share**2 / (2 * problem.alpha) if problem.alpha > 0 else 0.0
        return value(share) - ridge - (0.0 if penalty is None else penalty.price(share * left))

    def best_of(lefts: Sequence[Array]) -> tuple[float, float, Array]:
        mosts = [1.0 if penalty is None else penalty.largest_share(left) for left in lefts]
        found = [(priced(most, left), most, left) for most, left in zip(mosts, lefts, strict=True)]
        return max(found, key=lambda entry: entry[0])

    best, share, left = best_of(lefts)
    whole = value(1.0)
    is_near = problem.push is None and bound.has_origin and np.max(bound.support(guess.direction)) <= FAINT
    if is_near and whole - best > CHEAP * max(objective - whole, 0.0):
        # near w = 0 directions say little, and how much of the sets it takes tells more
        beyond = beyond_penalty(problem, V)
        multiple = least_multiple(bound, beyond, budgets, guess.scale, sizes)
        best, share, left = best_of([left, V - beyond / max(multiple, 1.0)])
    if best < 0.5 * value(share):
        shorter = minimize_scalar(
            lambda k: -priced(k, left), bounds=(0.0, share), method="bounded", options={"xatol": 1e-10}
        )
        best, share = max((best, share), (-float(shorter.fun), float(shorter.x)))
    return best, pull, share * c * lines.a


def _bound_less_tolls(
    problem: MarginScaleProblem, lines: Proof, V: Array, sizes: Array, direction: Array
) -> tuple[float, float]:
    r"""Return the lower bound that lines prove whose supports are not sublinear, and the share of them that proves it.

    The ridge lies above :math:`r^\top v - |r|^2 / 2\alpha`, r being its slope along the direction, an l1 norm and limits on the
    weights join the supports; the rest of V is for tolls.
    """
    c, loss, penalty = problem.weights, problem.loss, problem.penalty
    absolute, limit = (0.0, np.inf) if penalty is None else (penalty.absolute, penalty.limit)
    ridge = problem.alpha * direction

    def proved(share: float) -> float:
        shrunk = lines.shrunk(loss, np.full(len(c), share))
        rest, toll = problem.sets.lines_below(share * V - ridge, c * shrunk.p, absolute, limit)
        rest = np.where(np.abs(rest) <= MISSED * sizes, 0.0, rest)
        if problem.alpha > 0:
            price = float(np.sum(np.square(ridge + rest))) / (2 * problem.alpha)
        else:
            price = limit * float(np.sum(np.abs(rest))) if np.any(rest) else 0.0
        return float(np.sum(c * (shrunk.v + shrunk.a * (problem.target - 1.0)))) - toll - price

    whole = proved(1.0)
    if whole > 0:
        return whole, 1.0
    # less of the lines leaves more of the supports to cover them where part of these is outside of the loss
    return max((proved(share), share) for share in (*(1 - 10.0 ** -np.arange(12.0, 0.0, -1.0)), 0.0))


def sizes_of_sums(problem: LinearProblem, weights: Array) -> Array:
    """Return what, by Cauchy's inequality, sum_i weights_i |x_ij| does not exceed: rounding of the pull is measured by it."""
    return np.asarray(np.sqrt(float(np.sum(weights)) * problem.rows.square_sums(weights)))


def beyond_penalty(problem: MarginScaleProblem, V: Array) -> Array:
    """Return V less the nearest point that the penalty's slopes at w = 0 cover."""
    covered = 0.0 if problem.penalty is None else problem.penalty.absolute
    return np.asarray(np.copysign(np.maximum(np.abs(V) - covered, 0.0), V))


def least_multiple(bound: RowSets, target: Array, budgets: Array, scale: Array, sizes: Array) -> float:
    r"""Return a factor k with target in :math:`k \sum_i` budgets_i :math:`S_i`, the least where the set `has_gauge`."""
    demand = np.asarray(bound.required_share(target, budgets, scale, sizes))
    offered = np.asarray(np.sum(budgets) if bound.is_common else budgets)
    if np.any(demand[offered == 0] > 0):
        return np.inf
    return float(np.max(ratio(demand, offered), initial=0.0))


def _covered_share(
    problem: MarginScaleProblem, V: Array, left: Array, budgets: Array, guess: DualGuess, sizes: Array
) -> float:
    """Return a share of the lines at which the sets cover all that is pulled."""
    if not np.any(left):
        return 1.0
    bound, c = problem.sets, problem.weights
    demand = bound.required_share(V, budgets, guess.scale, sizes)
    if np.all(demand <= (np.sum(budgets) if bound.is_common else budgets)):
        return 1.0
    for room in ROOMS if guess.points is not None else ():
        rest = V - bound.sum_of_points(guess.points, budgets, 1 - room)
        demand = bound.required_share(rest, room * budgets, guess.scale, sizes)
        if np.all(demand <= room * (np.sum(budgets) if bound.is_common else budgets)):
            return 1.0
    spare = problem.loss.outside
    if spare == 0:
        return 0.0
    # lines shrunk by k leave (1 - k) spare c_i of each set, to cover k times what is left
    demand = bound.required_share(left, c, guess.scale, sizes)
    excess = float(demand / np.sum(c) if bound.is_common else np.max(demand[c > 0] / c[c > 0], initial=0.0))
    return spare / (spare + excess)


def certified(
    objective: float,
    bound: float,
    floor: float,
    rounding: Callable[[], float],
    norm_bound: float = np.inf,
    dual: Array | None = None,
) -> Certificate:
    """Return what an objective and a lower bound prove, every loss being nonnegative.

    A bound above the objective by more than `rounding()` says proves a fault in this library, and raises.
    """
    bound = max(bound, 0.0) if bound > -np.inf else bound
    bound = consistent(objective, bound, rounding)
    gap = (objective - bound) / max(abs(objective), floor) if np.isfinite(objective) else np.inf
    return Certificate(objective, float(bound), float(gap), norm_bound, dual)


class Point(NamedTuple):
    """The objective somewhere on a ray."""

    value: float
    gradient: Array
    slopes: Array
    bends: tuple[Array, Array, Array]
    """The losses' second derivatives uu, ut and tt."""


class Ray(Protocol):
    """The objective at (r w, b) as a function of x = (r, b), b being left out where there is no intercept."""

    start: Array

    def evaluate(self, x: Array) -> Point:
        """Return value, gradient and the losses' slopes in u and second derivatives."""
        ...

    def hessian(self, uu: Array, ut: Array, tt: Array) -> Array:
        """Return the Hessian in x that these give."""
        ...

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        """Return the slopes after a short step, to first order."""
        ...


def slopes_at_best_scale(ray: Ray) -> Array:
    """Return the slopes in u at (r w, b') for the best r > 0 and b'.

    A problem in few numbers, O(n_samples) a step. It makes w'gradient = 0 and the slope in b vanish, whereby the gap is
    of second order in the error of w.
    """
    x = ray.start
    here = ray.evaluate(x)
    for _ in range(100):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            move = _solved(ray.hessian(*here.bends), here.gradient)
            usable = bool(np.all(np.isfinite(move))) and float(here.gradient @ move) < 0
        # where curvature vanishes, as far from any row's margin, only the signs of the slopes are of use
        reach = np.append(x[0], np.ones(len(x) - 1))
        step = move if usable else -0.5 * np.sign(here.gradient) * reach
        step *= min(1.0, float(np.min(np.append(0.9 * x[0], np.full(len(x) - 1, 3.0)) / np.maximum(abs(step), 1e-300))))
        promised = -float(here.gradient @ step)
        if usable and promised <= 1e-8 * abs(here.value):
            # so short a step that the slopes follow it linearly; any slopes will do for a proof, good ones for a tight one
            return ray.moved_slopes(here.slopes, step, *here.bends[:2])
        there = _improved(ray, x, here, step) if promised > 0 else None
        if there is None:
            break
        x, here = there
    return here.slopes


def _improved(ray: Ray, x: Array, here: Point, step: Array) -> tuple[Array, Point] | None:
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


class _BinaryRay:
    def __init__(self, problem: MarginScaleProblem, scores: Array, t: Array, w: Array, b: float):
        self.problem, self.scores, self.t = problem, scores, t
        self.signed = problem.signs * scores
        self.ridge = problem.alpha * float(w @ w)
        self.start = np.array([1.0, b] if problem.fit_intercept else [1.0])
        self.free = slice(0, len(self.start))

    def _deficit(self, x: Array) -> Array:
        return 1.0 - x[0] * self.signed - (x[1] * self.problem.signs if len(x) > 1 else 0.0)

    def evaluate(self, x: Array) -> Point:
        c, y = self.problem.weights, self.problem.signs
        losses, slopes, scale_slopes, *bends = self.problem.loss.derivatives(self._deficit(x), x[0] * self.t)
        weighted = c * slopes
        along = float(np.sum(c * (self.t * scale_slopes)) - self.signed @ weighted) + self.ridge * x[0]
        gradient = np.array([along, -float(y @ weighted)])[self.free]
        value = float(c @ losses) + 0.5 * self.ridge * x[0] ** 2
        return Point(value, gradient, slopes, (bends[0], bends[1], bends[2]))

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        shift = step[1] * self.problem.signs if len(step) > 1 else 0.0
        return slopes + ut * (step[0] * self.t) - uu * (step[0] * self.signed + shift)

    def hessian(self, uu: Array, ut: Array, tt: Array) -> Array:
        c, y, t = self.problem.weights, self.problem.signs, self.t
        uu, ut, tt = c * uu, c * ut, c * tt
        rr = np.sum(uu * self.scores**2 - 2 * ut * self.signed * t + tt * t * t) + self.ridge
        rb = np.sum(uu * self.scores - ut * y * t)
        return np.array([[rr, rb], [rb, np.sum(uu)]])[self.free, self.free]


def _dual_bound(problem: MarginScaleProblem, guess: DualGuess) -> tuple[float, Array, Array]:
    """Return the dual objective of the guess made feasible, the pull that the norm bound needs, and the dual weights."""
    c, y = problem.weights, problem.signs
    a = np.clip(guess.slopes, 0.0, 1.0)
    if problem.alpha == 0:
        a = _without_exact_pull(problem, a)
    if problem.fit_intercept:
        weighted = c * a
        positive, negative = float(weighted @ (y > 0)), float(weighted @ (y < 0))
        smaller = min(positive, negative)
        a = a * np.where(y > 0, _share(smaller, positive), _share(smaller, negative))
    V, pull = problem.rows.transpose_dot(np.column_stack([c * a * y, problem.pull_per_class()])).T
    sizes = None if problem.sets.is_isotropic else sizes_of_sums(problem, c * a)
    borne = None if guess.sets is None else guess.sets.adjoint(guess.direction, c * problem.loss.dual_scale(a))
    claim = Claim(lambda: problem.sets, c, a, V, guess.scale, guess.direction, problem.alpha, sizes, borne)
    bound, share = dual_objective(problem.loss, [claim], lambda k: float(np.sum(c * problem.loss.dual_value(k * a))))
    return bound, pull, share * c * a


def _without_exact_pull(problem: MarginScaleProblem, a: Array) -> Array:
    """Return dual weights near `a` that pull in no exact direction, nor on the intercept; `a` where that fails.

    No budget can bear such a pull. The rows strictly between the bounds make up for it, each by its room to move.
    """
    Z = exact_columns(problem)
    return a if Z is None else drawn_to(a, problem.weights, problem.signs[:, None] * Z, np.zeros(Z.shape[1]))


def drawn_to(a: Array, c: Array, A: Array, target: Array) -> Array:
    """Return weights in [0, 1] near `a` with A'(c a) = target, or nearly so, each moved by its room."""
    room = np.minimum(a, 1 - a)
    for k in range(ROUNDS):
        missed = A.T @ (c * a) - target
        if k > 1 and np.all(np.abs(missed) <= 0.1 * MISSED * (np.abs(A).T @ (c * a))):
            break
        move = -A @ solve_scaled((A * (c * room)[:, None]).T @ A, missed)
        a = np.clip(a + room * move, 0.0, 1.0)
        if k > 0:
            # what is at a bound may still leave it
            room = np.where(move < 0, a, 1 - a)
    return a


def exact_columns(problem: LinearProblem) -> Array | None:
    """Return the rows in directions without noise, and the intercept's ones where there is one.

    None where there are no such directions, or too many.
    """
    rows = problem.rows
    exact, skew = problem.sets.exact_features(rows.n_features), problem.sets.exact_directions(rows.n_features)
    n_exact = np.count_nonzero(exact) + skew.shape[1]
    if n_exact == 0 or rows.n_samples * n_exact > LARGEST_EXACT:
        return None
    Z = np.concatenate([np.column_stack([block[:, exact], block @ skew]) for _, block in rows.dense_blocks()])
    return np.column_stack([Z, np.ones(len(Z))]) if problem.fit_intercept else Z


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


class DualScale(Protocol):
    """What a claim needs to know of a loss."""

    def dual_scale(self, a: Array) -> Array:
        """Return how much of each set dual weights may use."""
        ...


class Claim(NamedTuple):
    """What the rows of two classes have to bear: a pull on the difference of the classes' weights."""

    sets: Callable[[], RowSets]
    """The sets of these rows."""
    weights: Array
    slopes: Array
    """Dual weights a, one a row."""
    target: Array
    """The pull, shape (n_features,)."""
    scale: Array
    """As in DualGuess."""
    direction: Array
    alpha: float
    sizes: Array | None = None
    """Sizes of the sums that the target's entries came from."""
    borne: Array | None = None
    """A sum of points of the sets, each times its budget, that comes near the target."""


def largest_share(loss: DualScale, claims: Sequence[Claim]) -> float:
    """Return the largest k in [0, 1] found at which the budgets of k a cover k times every target.

    It exists as p is concave with p(0) = 0.
    """
    full = [claim.weights * loss.dual_scale(claim.slopes) for claim in claims]
    demands, commons = [], []
    for claim, budgets in zip(claims, full, strict=True):
        bound = claim.sets()
        demands.append(bound.required_share(claim.target, budgets, claim.scale, claim.sizes))
        commons.append(bound.is_common)
    demand = np.concatenate([np.atleast_1d(d) for d in demands])
    if not np.all(np.isfinite(demand)):
        return 0.0

    def offered(budgets: Sequence[Array]) -> Array:
        return np.concatenate(
            [np.atleast_1d(np.sum(b)) if common else b for b, common in zip(budgets, commons, strict=True)]
        )

    def slack(k: float) -> Array:
        return offered([claim.weights * loss.dual_scale(k * claim.slopes) for claim in claims]) - k * demand

    whole = offered(full) - demand
    if np.all(whole >= 0):
        return 1.0
    cut, growth = max(float(np.max(-whole / np.where(whole < 0, demand, 1.0))), 1e-15), 2.0
    if cut > 1e-3:
        # too much is missing for a linear guess: budgets can rise steeply, so begin with a hair
        cut, growth = 1e-15, 8.0
    while cut < 0.5:
        rest = slack(1 - cut)
        if np.all(rest >= 0):
            # slack is concave in k, so it lies above its chord, whose root is therefore a proof
            short = whole < 0
            return float(1 - cut * np.max(-whole[short] / (rest - whole)[short]))
        cut *= growth
    # no tight bound any more: any will do, and soon
    for k in 0.5 ** np.array([1, 2, 3, 5, 8, 13, 21, 34]):
        if np.all(slack(k) >= 0):
            return float(k)
    return 0.0


def dual_objective(loss: DualScale, claims: Sequence[Claim], value: Callable[[float], float]) -> tuple[float, float]:
    """Return the best dual objective over multiples in [0, 1] of the dual weights, and that multiple.

    `value` says what a multiple is worth. Without a ridge the budgets must cover what is pulled; with one, what they do not
    cover costs its square / 2 alpha.
    """

    def penalised(k: float) -> float:
        penalty = 0.0
        for claim in claims:
            budgets = claim.weights * loss.dual_scale(k * claim.slopes)
            missed = claim.sets().residual(k * claim.target, budgets, claim.scale, claim.direction)
            if claim.borne is not None:
                # budgets fall no faster than k
                missed = min(missed, k * (claim.target - claim.borne), key=norm)
            penalty += float(missed @ missed) / (2 * claim.alpha)
        return value(k) - penalty

    if claims[0].alpha == 0:
        share = largest_share(loss, claims)
        return value(share), share
    whole = penalised(1.0)
    if whole > 0.5 * value(1.0):
        return whole, 1.0
    found = minimize_scalar(lambda k: -penalised(k), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return max((whole, 1.0), (-float(found.fun), float(found.x)))


def _strong_convexity_bound(
    problem: MarginScaleProblem, scores: Array, guess: DualGuess, w: Array, b: float, objective: float
) -> tuple[float, Array]:
    r"""Return the minimum of a quadratic minorant that touches the losses at (w, b'), and the pull.

    Tangents of the losses at (u, T), T the guess's scales and b' the best intercept for them, and
    :math:`t(v) \ge q^\top v` for any q in the sets bound P(v, b') from below by

    .. math:: \sum c\,(\ell + \ell_u (1 - u) - \ell_t T) - (V - \sum c\,\ell_t q)^\top v + \tfrac\alpha2 |v|^2,
              \qquad V = \sum c\,\ell_u y x;

    the q that come nearest to V are taken.
    """
    c, y, alpha, t = problem.weights, problem.signs, problem.alpha, guess.scale
    if problem.fit_intercept:
        b = best_intercept(problem, w, scores, t, b)
    lines = tangents(problem.loss, 1.0 - y * (scores + b), t)
    V, pull = problem.rows.transpose_dot(np.column_stack([c * y * lines.a, problem.pull_per_class()])).T
    if alpha == 0:
        return -np.inf, pull
    budgets = c * lines.p
    missed = problem.sets.residual(V, budgets, t, guess.direction)
    if guess.sets is not None:
        missed = min(missed, V - guess.sets.adjoint(guess.direction, budgets), key=norm)
    leftover = 0.0
    if problem.fit_intercept:
        # The optimum's losses add up to at most the objective, and each is at least u - 1 = -y(w'x + b).
        reach = np.sqrt(2 * objective / alpha)
        rows_norm = np.sqrt(float(np.sum(problem.rows.square_sums(c))) * float(c.sum()))
        farthest = max((objective + reach * rows_norm) / weight for weight in problem.class_weights())
        leftover = abs(float(np.sum(c * y * lines.a))) * (abs(b) + farthest)
    return float(c @ lines.v) - float(missed @ missed) / (2 * alpha) - leftover, pull


@singledispatch
def best_constant(problem: LinearProblem, b: Any) -> Any:
    """Return the best intercept at w = 0, sought from b on."""
    raise NotImplementedError(f"No best constant is known for {type(problem).__name__}.")


@best_constant.register
def best_constant_of_two(problem: MarginScaleProblem, b: float) -> float:
    """Return the one of two classes."""
    w = np.zeros(problem.rows.n_features)
    near = problem.having(loss=problem.loss.smoothed(KINK), push=None)
    if np.ndim(problem.target) == 0:
        # rows of a class are all alike there
        near = near.of_classes(problem.rows, np.array(problem.class_weights()))
        return best_intercept(near, w, np.zeros(2), np.zeros(()), b)
    return best_intercept(near, w, np.zeros(len(near.signs)), near.sets.support(w), b)


def best_intercept(problem: MarginScaleProblem, w: Array, scores: Array, t: Array, b: float) -> float:
    """Return the b at which the slope in b vanishes to rounding: Newton inside a bracket."""
    y, c = problem.signs, problem.weights
    pushed = problem.kappa * problem.push_of(w)

    def slope(b: float) -> tuple[float, float]:
        _, slopes, _, bends, *_ = problem.loss.derivatives(problem.target - y * (scores + b) + pushed, t)
        return -float(np.sum(c * y * slopes)), float(np.sum(c * bends))

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
