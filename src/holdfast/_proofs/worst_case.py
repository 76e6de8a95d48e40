"""The proof for two classes with losses at worst points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.arithmetic import MISSED
from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import UNGUESSED, Certificate, certified, rounding_at
from holdfast._proofs.intercepts import best_intercept
from holdfast._proofs.lines import Proof, dual_lines, tangents
from holdfast._proofs.objectives import objective_at
from holdfast._proofs.pulls import (
    Columns,
    balanced,
    beyond_penalty,
    drawn_to,
    has_points,
    least_multiple,
    sizes_of_sums,
    without_exact_pull,
)

SMALL_SUPPORT = 0.01
"""Largest support, in units of the margin, at which the fit may really be w = 0."""
CHEAP = 1.0
"""If the part that the sets leave costs at most this share of the rest of the gap, no better split is sought."""
ROOMS = 0.5 * 10.0 ** -np.arange(3.0, 10.0)
"""Shares of the sets, tried in turn, that are kept free to bear the pull that guessed points leave."""
AT_REST = (0.0, 1e-9, 1e-6, 1e-3)
"""Shares of the largest dual weight, tried in turn: smaller dual weights are set to 0."""
Sizes = Callable[[], Array]
"""Returns the sizes relative to which rounding of a pull is measured."""
UNMOVED = 1e-6
"""Share of the dual value that may be lost in making dual weights feasible before other ways are tried."""


def worst_case_certificate(problem: MarginScaleProblem, w: Array, b: float, guess: DualGuess | None) -> Certificate:
    r"""Return the certificate at (w, b) for two classes, losses at worst points and any penalty.

    Each loss lies above lines :math:`a_i (u_i - 1) + v_i + p_i t_i`, from its dual form with slopes a or tangents. With
    :math:`\sum c\,a\,y = 0` and :math:`V = \sum c\,a\,y\,x = q + r`, q in :math:`\sum c_i p_i S_i`, the sum of the lines and of
    the penalty is at least :math:`\sum c\,v - \text{penalty}^*(r)` for all weights. If r has no finite price, it is
    scaled down with all lines, or covered by the budget that lines of slope 0 have (:math:`p(0) = 1 - \kappa`).
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
        # no known way covers the rows' pull to full precision
        return certified(objective, -np.inf, problem.floor, rounding)
    bound, dual = _bound_by_points(problem, lines, guess) or _bound_of_lines(problem, lines, guess, objective)
    pull = rows_pull(problem) if problem.noise_bounds_norm else None
    return certified(objective, bound, problem.floor, rounding, problem.norm_bound(pull), dual)


def rows_pull(problem: MarginScaleProblem) -> Array:
    """Return the pull that the norm bound needs."""
    return problem.rows.transpose_dot(problem.pull_per_class())


def _has_exact_directions(problem: LinearProblem) -> bool:
    """Return whether no row's set moves along some feature or direction."""
    d = problem.rows.n_features
    return bool(np.any(problem.sets.exact_features(d))) or problem.sets.exact_directions(d).shape[1] > 0


def _bound_by_points(problem: MarginScaleProblem, lines: Proof, guess: DualGuess) -> tuple[float, Array] | None:
    """Return the bound of lines near `lines` whose pull the maximizers of smoothed sets bear to full precision.

    This is for problems without a penalty, where an uncovered pull has no finite price. None if there is a penalty or
    if no suitable lines are found. The rows strictly between the bounds supply the missing pull, each in proportion to
    its room to move. Where no weights have room (all rows pull one way and each set just bears its own row's pull),
    points are moved to the faces of their sets, which smoothing keeps them from.
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
        a = limit * drawn_to(np.where(shares < least, 0.0, shares), Columns(A, c), fixed / limit)
        missed, sizes = np.abs(A.T @ (c * a) - fixed), np.append(sizes_of_sums(problem, c * a), c @ a)
        if np.all(missed <= MISSED * sizes[: len(missed)]) and (best is None or worth(a) > worth(best)):
            best = a
            if worth(a) >= (1 - UNMOVED) * worth(lines.a):
                break
    return None if best is None else (worth(best), c * best)


def _bound_of_lines(
    problem: MarginScaleProblem, lines: Proof, guess: DualGuess, objective: float
) -> tuple[float, Array]:
    """Return the lower bound that the lines prove, and the dual weights."""
    c, loss = problem.weights, problem.loss
    if not problem.is_penalised and loss.has_dual:
        limit = min(loss.dual_limit, 1.0 + float(np.max(lines.a, initial=0.0)))
        lines = dual_lines(loss, limit * without_exact_pull(problem, lines.a / limit))
    if problem.fit_intercept:
        lines = lines.shrunk(loss, balanced(problem, lines.a))
    r = c * lines.a
    r *= problem.signs
    V = problem.rows.transpose_dot(r)
    del r
    # computed only if needed, as it takes a pass over the rows
    sizes = cache(lambda: sizes_of_sums(problem, c * lines.a))
    if not problem.sets.is_sublinear:
        bound, share = _bound_less_offsets(problem, lines, V, sizes, guess.direction)
    elif problem.is_penalised:
        bound, share = _priced_bound(problem, lines, V, sizes, guess, objective)
    else:
        share = _covered_share(problem, lines, V, sizes, guess)
        bound = _worth(problem, lines, share)
    dual = c * lines.a
    dual *= share
    return bound, dual


def _worth(problem: MarginScaleProblem, lines: Proof, share: float) -> float:
    """Return the dual value of a share of the lines when the sets and the penalty cover their whole pull."""
    shrunk = lines.shrunk(problem.loss, np.full(len(lines.a), share))
    return float(np.sum(problem.weights * (shrunk.v + shrunk.a * (problem.target - 1.0))))


def _priced_bound(
    problem: MarginScaleProblem, lines: Proof, V: Array, sizes: Sizes, guess: DualGuess, objective: float
) -> tuple[float, float]:
    """Return the lines' lower bound and their share, when the penalty prices the pull that the sets do not cover.

    Expensive computations are skipped where they could not bring the bound much nearer to the objective.
    """
    penalty, sets, budgets = problem.penalty, problem.sets, problem.weights * lines.p

    def priced(share: float, left: Array) -> float:
        ridge = float(left @ left) * share**2 / (2 * problem.alpha) if problem.alpha > 0 else 0.0
        return _worth(problem, lines, share) - ridge - (0.0 if penalty is None else penalty.price(share * left))

    def best_of(lefts: Sequence[Array]) -> tuple[float, float, Array]:
        mosts = [1.0 if penalty is None else penalty.largest_share(left) for left in lefts]
        found = [(priced(most, left), most, left) for most, left in zip(mosts, lefts, strict=True)]
        return max(found, key=lambda entry: entry[0])

    best, share, left = best_of(_left_over(problem, lines, V, guess))
    whole = _worth(problem, lines, 1.0)
    is_near = problem.push is None and sets.has_origin and np.max(sets.support(guess.direction)) <= SMALL_SUPPORT
    if is_near and whole - best > CHEAP * max(objective - whole, 0.0):
        # near w = 0 the direction is uninformative; the multiple of the sets needed gives a better bound
        beyond = beyond_penalty(problem, V)
        multiple = least_multiple(sets, beyond, budgets, guess.scale, sizes())
        best, share, left = best_of([left, V - beyond / max(multiple, 1.0)])
    if best < 0.5 * _worth(problem, lines, share):
        # the price grows with the square of the share, so a smaller share may give a better bound
        shorter = minimize_scalar(
            lambda k: -priced(k, left), bounds=(0.0, share), method="bounded", options={"xatol": 1e-10}
        )
        best, share = max((best, share), (-float(shorter.fun), float(shorter.x)))
    return best, share


def _left_over(problem: MarginScaleProblem, lines: Proof, V: Array, guess: DualGuess) -> list[Array]:
    """Return V less several points of the sets: the nearest point need not leave the cheapest remainder."""
    sets, push, w, budgets = problem.sets, problem.push, guess.direction, problem.weights * lines.p
    lefts = [sets.residual(V, budgets, guess.scale, w), sets.residual_along(V, budgets, guess.scale, w)]
    if push is not None:
        own = problem.push_budgets(lines.a), push.support(w), w
        lefts = [push.residual(lefts[0], *own), push.residual_along(lefts[1], *own)]
    if guess.sets is not None:
        smoothed = V - guess.sets.adjoint(w, budgets)
        lefts.append(smoothed - (0.0 if guess.push is None else guess.push.adjoint(w, problem.push_budgets(lines.a))))
    if guess.points is not None and push is None:
        lefts.append(V - sets.sum_of_points(guess.points, budgets))
    return lefts


def _bound_less_offsets(
    problem: MarginScaleProblem, lines: Proof, V: Array, sizes: Sizes, direction: Array
) -> tuple[float, float]:
    r"""Return the lower bound of the lines, and their share, for sets whose supports are not sublinear.

    The ridge lies above :math:`r^\top v - |r|^2 / 2\alpha`, where r is its slope at the direction. An l1 norm and
    limits on the weights join the supports. Lines below the supports cover the rest of V, at the price of their
    offsets.
    """
    c, loss, penalty = problem.weights, problem.loss, problem.penalty
    absolute, limit = (0.0, np.inf) if penalty is None else (penalty.absolute, penalty.limit)
    ridge = problem.alpha * direction

    def proved(share: float) -> float:
        shrunk = lines.shrunk(loss, np.full(len(c), share))
        rest, offset = problem.sets.lines_below(share * V - ridge, c * shrunk.p, absolute, limit)
        rest = np.where(np.abs(rest) <= MISSED * sizes(), 0.0, rest)
        if problem.alpha > 0:
            price = float(np.sum(np.square(ridge + rest))) / (2 * problem.alpha)
        else:
            price = limit * float(np.sum(np.abs(rest))) if np.any(rest) else 0.0
        return _worth(problem, lines, share) - offset - price

    whole = proved(1.0)
    if whole > 0:
        return whole, 1.0
    # if part of the supports is outside of the loss, shrunk lines leave more of the supports to cover the pull
    return max((proved(share), share) for share in (*(1 - 10.0 ** -np.arange(12.0, 0.0, -1.0)), 0.0))


def _covered_share(problem: MarginScaleProblem, lines: Proof, V: Array, sizes: Sizes, guess: DualGuess) -> float:
    """Return a share of the lines whose pull the sets cover fully: without a penalty no remainder may be left."""
    sets, c = problem.sets, problem.weights
    budgets = c * lines.p
    left = sets.residual(V, budgets, guess.scale, guess.direction)
    if guess.points is not None:
        left = min(left, V - sets.sum_of_points(guess.points, budgets), key=lambda rest: float(rest @ rest))
    left = np.where(np.abs(left) <= MISSED * sizes(), 0.0, left)
    if not np.any(left):
        return 1.0
    required = sets.required_share(V, budgets, guess.scale, sizes())
    if np.all(required <= (np.sum(budgets) if sets.is_common else budgets)):
        return 1.0
    for room in ROOMS if guess.points is not None else ():
        rest = V - sets.sum_of_points(guess.points, budgets, 1 - room)
        required = sets.required_share(rest, room * budgets, guess.scale, sizes())
        if np.all(required <= room * (np.sum(budgets) if sets.is_common else budgets)):
            return 1.0
    spare = problem.loss.outside
    if spare == 0:
        return 0.0
    # lines shrunk by k leave (1 - k) spare c_i of each set to cover the remaining pull, k times `left`
    required = sets.required_share(left, c, guess.scale, sizes())
    excess = float(required / np.sum(c) if sets.is_common else np.max(required[c > 0] / c[c > 0], initial=0.0))
    return spare / (spare + excess)
