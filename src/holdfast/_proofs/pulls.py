"""The pull of rows on the weights, and how much of it their sets can bear."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast._core.arithmetic import MISSED, norm, ratio, solve_scaled
from holdfast._core.chunks import stretches
from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem

ROUNDS = 12
"""Largest number of rounds to make dual weights meet their constraints; two suffice unless weights reach a bound."""
LARGEST_EXACT = 5e7
"""Largest number of entries of the noise-free features for which a pull along them is corrected (400 MB)."""


def sizes_of_sums(problem: LinearProblem, weights: Array) -> Array:
    """Bound sum_i weights_i |x_ij| by Cauchy's inequality; rounding of the pull is measured relative to this bound."""
    return np.asarray(np.sqrt(float(np.sum(weights)) * problem.rows.square_sums(weights)))


def least_multiple(sets: RowSets, target: Array, budgets: Array, scale: Array, sizes: Array) -> float:
    r"""Return a k with target in :math:`k \sum_i` budgets_i :math:`S_i`; it is the least if `shares_are_least`."""
    required = np.asarray(sets.required_share(target, budgets, scale, sizes))
    offered = np.asarray(np.sum(budgets) if sets.is_common else budgets)
    if np.any(required[offered == 0] > 0):
        return np.inf
    return float(np.max(ratio(required, offered), initial=0.0))


def beyond_penalty(problem: MarginScaleProblem, V: Array) -> Array:
    """Return V less the nearest slope of the penalty at w = 0."""
    covered = 0.0 if problem.penalty is None else problem.penalty.absolute
    return np.asarray(np.copysign(np.maximum(np.abs(V) - covered, 0.0), V))


def has_points(problem: LinearProblem) -> bool:
    """Return whether the rows' pull can be divided among points of their sets to full precision."""
    return problem.sets.is_sublinear and problem.rows.n_samples * problem.rows.n_features <= LARGEST_EXACT


class Directions(Protocol):
    r"""Directions along which the rows' pull is constrained, as a linear map :math:`a \mapsto A^\top (c \circ a)`."""

    def sums(self, a: Array) -> Array:
        r"""Return :math:`A^\top (c \circ a)`."""
        ...

    def sizes(self, a: Array) -> Array:
        r"""Return :math:`|A|^\top (c \circ a)`, relative to which rounding of the sums is measured."""
        ...

    def moves(self, potential: Array) -> Array:
        """Return A times a vector, in the shape of a."""
        ...

    def potential(self, room: Array, missed: Array) -> Array:
        r"""Return the least-squares solution v of :math:`A^\top \mathrm{diag}(c \circ room) A v = \text{missed}`."""
        ...


class Columns(NamedTuple):
    """Directions given as the columns of a matrix."""

    A: Array
    c: Array

    def sums(self, a: Array) -> Array:
        return self.A.T @ (self.c * a)

    def sizes(self, a: Array) -> Array:
        return np.abs(self.A).T @ (self.c * a)

    def moves(self, potential: Array) -> Array:
        return self.A @ potential

    def potential(self, room: Array, missed: Array) -> Array:
        weights, (n, d) = self.c * room, self.A.shape
        if n >= d:
            return solve_scaled((self.A * weights[:, None]).T @ self.A, missed)
        # with fewer rows than directions, factorise a matrix over the rows: (B'B)^+ = B' (BB')^+ (BB')^+ B
        B = self.A * np.sqrt(weights)[:, None]
        scale = norm(B.T, axis=1)
        scale[scale == 0] = 1.0
        B /= scale
        inverse = np.linalg.pinv(B @ B.T, rcond=d * np.finfo(float).eps, hermitian=True)
        return B.T @ (inverse @ (inverse @ (B @ (missed / scale)))) / scale


def drawn_to(a: Array, directions: Directions, target: Array, is_limit: Any = False) -> Array:
    """Return dual weights in [0, 1] near `a` whose sums along the directions are the target, or nearly so.

    Where `is_limit`, sums may stay below the target. Weights move in proportion to their room, the distance to the
    nearer bound: a row at a bound is far from the kink of its loss, so its slope is known. Weights at a bound leave it
    only if the others cannot reach the target.
    """
    room = np.minimum(a, 1 - a)
    for k in range(ROUNDS):
        missed = directions.sums(a) - target
        missed = np.where(is_limit, np.maximum(missed, 0.0), missed)
        # the second round removes the first one's rounding
        if k > 1 and np.all(np.abs(missed) <= 0.1 * MISSED * directions.sizes(a)):
            break
        move = -directions.moves(directions.potential(room, missed))
        a = np.clip(a + room * move, 0.0, 1.0)
        if k > 0:
            room = np.where(move < 0, a, 1 - a)
    return a


def without_exact_pull(problem: MarginScaleProblem, a: Array) -> Array:
    """Return dual weights near `a`, with no pull, or as little as can be, on exact directions and the intercept.

    No budget can bear a pull there. The rows strictly between the bounds cancel it, each in proportion to its room to
    move. If there are no exact directions, or too many, `a` is returned.
    """
    Z = exact_columns(problem)
    if Z is None:
        return a
    return drawn_to(a, Columns(problem.signs[:, None] * Z, problem.weights), np.zeros(Z.shape[1]))


def balanced(problem: MarginScaleProblem, a: Array) -> Array:
    """Return factors that shrink the heavier class's dual weights until both classes pull equally on the intercept."""
    y, positive, negative = problem.signs, 0.0, 0.0
    for part in stretches(len(y)):
        weighted = problem.weights[part] * a[part]
        positive += float(weighted @ (y[part] > 0))
        negative += float(weighted @ (y[part] < 0))
    smaller = min(positive, negative)
    return np.where(y > 0, ratio(smaller, positive), ratio(smaller, negative))


def exact_columns(problem: LinearProblem) -> Array | None:
    """Return the rows' coordinates in directions without noise, and a column of ones if there is an intercept.

    None if there are no directions without noise, or too many.
    """
    rows = problem.rows
    exact, skew = problem.sets.exact_features(rows.n_features), problem.sets.exact_directions(rows.n_features)
    n_exact = np.count_nonzero(exact) + skew.shape[1]
    if n_exact == 0 or rows.n_samples * n_exact > LARGEST_EXACT:
        return None
    Z = np.concatenate([np.column_stack([block[:, exact], block @ skew]) for _, block in rows.dense_blocks()])
    return np.column_stack([Z, np.ones(len(Z))]) if problem.fit_intercept else Z
