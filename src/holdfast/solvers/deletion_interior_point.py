"""An interior point for linear classifiers with deletable features, using the structure of their programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import ratio
from holdfast._core.problem import Problem
from holdfast._core.programs import DeletionProgram
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.unit_cholesky import UnitCholesky
from holdfast.solvers.deletion_parts import Constraints, Group, GroupDual, Limits, Part
from holdfast.solvers.mehrotra import CONTENT, Best, PrimalDual

GROUP_ENTRIES, GROUP_ROWS = 1 << 17, 64
"""Entries of a group of rows, few enough for cache, and its fewest rows: matrix products need several."""
BOUNDED_FROM = 10.0
"""Bounds are computed once the steps' own gap is within this many tolerated gaps; earlier ones cannot end the solve."""
BOUNDARY_SHARE = 0.95
"""A step goes this share of the way to the boundary."""
LARGEST_MATRIX, WIDEST = 1.5e8, 20_000
"""Most entries (some 17 arrays of this size, 20 GB) and features (a matrix to factorise) for which it is preferred."""
JITTERS = np.append(0.0, 10.0 ** np.arange(-15, -3))
"""Added to the unit diagonal of a matrix in turn, until its factorisation succeeds."""


class DeletionInteriorPoint(Solver):
    r"""Mehrotra's predictor-corrector method on the linear (or quadratic) program of a `DeletionProgram`.

    Let :math:`\lambda_i` be the price of a row's budget, :math:`A_{ij} = y_i x_{ij}`, and :math:`\alpha_{ij}` the
    amount that remains to be paid for each entry. The program is (4) of Dekel and Shamir,

    .. math::
        \min \sum_i c_i \xi_i + \tfrac12 ridge\,|w|^2 \quad\text{subject to}\quad
        \xi_i + P \lambda_i - \sum_j \alpha_{ij} + y_i b \ge base, \quad
        A_{ij} w_j - \lambda_i v_j + \alpha_{ij} \ge gain_j, \quad \xi, \lambda, \alpha \ge 0,\ |w| \le limit,

    P being the sum of the values less the capacity. Given w and b, rows are independent, and each is eliminated on its
    own: a step costs two updates of a matrix of the features, :math:`O(m n^2)`, and its factorisation. Entries that are
    0 are never deleted and only add constants, so only the nonzeros of sparse rows are kept. The start is not used.
    """

    name = "deletion_interior_point"
    needs = (DeletionProgram,)
    takes = (
        "It takes the hinge loss, an l2 or box penalty, and deletions of whole features, each worth more than 0, within a "
        "budget above 0. "
    )

    def preference(self, work: dict[str, Any]) -> float:
        is_small = work["n_entries"] <= LARGEST_MATRIX and work["n_features"] <= WIDEST
        return 5.0 if is_small else 0.2

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        program = problem.view(DeletionProgram)
        assert program is not None
        scaled = ScaledDeletions(program)
        if scaled.has_one_class:
            return one_class(scaled, self.name)
        point = DeletionPoint(scaled)
        status, n_iter = point.solve(tol=tol, max_iter=max_iter, report=report)
        return scaled.solution(point.best, point.groups, status, n_iter, self.name)


class ScaledDeletions:
    """The program on rows of positive weight: weights of mean 1, gains and base of sum 1, deletable features first."""

    def __init__(self, program: DeletionProgram):
        self.program = program
        self.kept = np.flatnonzero(program.weights > 0)
        self.rows = program.rows if len(self.kept) == len(program.weights) else program.rows.take(self.kept)
        self.signs = program.signs[self.kept].astype(np.float64)
        weights = program.weights[self.kept]
        self.unit = float(weights.mean())
        self.weights = weights / self.unit
        self.size = program.base + float(program.gains.sum())
        # features that cannot be deleted need no rows of constraints; put last, the others form a block
        is_deletable = np.isfinite(program.values) & (program.capacity > 0)
        self.order = np.argsort(~is_deletable, kind="stable")
        self.n_deletable = int(np.count_nonzero(is_deletable))
        self.is_reordered = not np.array_equal(self.order, np.arange(len(self.order)))
        # with a capacity of 0 nothing can be deleted; prices then need some positive capacity, whichever it is
        worth = program.values[self.order[: self.n_deletable]]
        unit = float(worth.mean()) if self.n_deletable else 1.0
        self.values, self.capacity = worth / unit, program.capacity / unit or 1.0
        self.gains = program.gains[self.order[: self.n_deletable]] / self.size
        self.is_spent = program.is_spent and program.capacity > 0 and self.n_deletable > 0
        self.limit = program.limit / self.size
        self.ridge = program.ridge * self.size / self.unit
        self.floor = program.floor / (self.unit * self.size)

    @property
    def has_one_class(self) -> bool:
        """Whether an intercept alone brings the loss to 0."""
        return self.program.fit_intercept and len(np.unique(self.signs)) < 2

    @cached_property
    def first_slopes(self) -> Array:
        """Initial dual weights of the rows; with an intercept, both classes have the same sum."""
        totals = [float(self.weights[self.signs == sign].sum()) for sign in (-1.0, 1.0)]
        shares = np.where(self.signs > 0, 1 / (totals[1] or 1.0), 1 / (totals[0] or 1.0))
        balance = min(totals) * shares if self.program.fit_intercept else np.ones(len(self.signs))
        return np.asarray(0.5 * balance * self.weights)

    @cached_property
    def room(self) -> float:
        """The initial slack of a row: its share of the dual cost of the pull of all rows."""
        pull = self.rows.transpose_dot(self.signs * self.first_slopes)
        held = float(pull @ pull) / self.ridge if self.ridge > 0 else np.inf
        return max(1.0, min(self.limit * float(np.sum(np.abs(pull))), held) / float(self.weights.sum()))

    def groups(self) -> Iterator[Group]:
        """Yield the rows in groups."""
        n = len(self.order)
        size = max(GROUP_ROWS, GROUP_ENTRIES // max(1, n))
        for rows, block in self.rows.blocks():
            for start in range(rows.start, rows.stop, size):
                part = slice(start, min(start + size, rows.stop))
                X = block[start - rows.start : part.stop - rows.start]
                yield Group(self, part, X, self.first_slopes[part])

    def limits(self, groups: Sequence[Group]) -> list[Part]:
        """Return the constraints that keep weights within the limit, none if there is no limit."""
        if not np.isfinite(self.limit):
            return []
        return [
            Limits(
                self.limit,
                total_of(group.pull(group.dual()) for group in groups)[: len(self.order)],
                float(self.weights.sum()),
            )
        ]

    def clipped(self, z: Array) -> Array:
        """Return parameters whose weights are within the limit."""
        n = len(self.order)
        return np.append(np.clip(z[:n], -self.limit, self.limit), z[n:])

    def look(
        self, best: Best, groups: Sequence[Constraints], z: Array, prices: Sequence[Array], guesses: Sequence[GroupDual]
    ) -> None:
        """Show `best` these parameters, valued by the losses at these prices, and these dual weights."""
        z, n = self.clipped(z), len(self.order)
        w = z[:n]
        value = sum(float(group.c @ group.losses(z, price)) for group, price in zip(groups, prices, strict=True))
        value += 0.5 * self.ridge * float(w @ w)
        both = list(zip(groups, guesses, strict=True))
        pull = total_of(group.pull(guess) for group, guess in both)[:n]
        limits = np.full(n, self.limit)
        held = np.copysign(limits, pull) if self.ridge == 0 else np.clip(pull / self.ridge, -limits, limits)
        bound = sum(group.worth_of(guess) for group, guess in both)
        best.see(value, z, bound + 0.5 * self.ridge * float(held @ held) - float(pull @ held), list(guesses))

    def solution(self, best: Best, groups: Sequence[Constraints], status: Status, n_iter: int, name: str) -> Solution:
        """Return the best points in the order and units of the program."""
        program, unit = self.program, self.unit * self.size
        n_samples, n = len(program.weights), len(self.order)
        slopes = np.zeros(n_samples)
        slopes[self.kept] = np.concatenate([dual.pi for dual in best.dual]) / self.weights
        deleted = [
            group.entries.matrix(ratio(group.entries.of_rows(pi) - t, group.entries.of_rows(pi)))
            for group, (pi, t) in zip(groups, best.dual, strict=True)
        ]
        points = program.points(_placed(deleted, self.kept, self.order[: self.n_deletable], (n_samples, n)))
        parameters = self.stated(best.primal)
        dual = DualGuess(slopes, parameters[:n], np.zeros(n_samples), points=points)
        return Solution(parameters, status, best.value * unit, n_iter, name, best.bound * unit, dual)

    def stated(self, z: Array) -> Array:
        """Return parameters in the order and the units of the program."""
        found = self.size * z
        found[self.order] = self.size * z[: len(self.order)]
        return found


def one_class(scaled: ScaledDeletions, name: str) -> Solution:
    """Return the solution for rows of one class: an intercept that brings the loss to 0."""
    z = np.zeros(len(scaled.order) + 1)
    z[-1] = scaled.signs[0] if len(scaled.signs) else 0.0
    n_samples, n = len(scaled.program.weights), len(scaled.order)
    points = scaled.program.points(sparse.csr_array((n_samples, n)))
    dual = DualGuess(np.zeros(n_samples), np.zeros(n), np.zeros(n_samples), points=points)
    return Solution(scaled.stated(z), Status.SOLVED, 0.0, 1, name, lower_bound=0.0, dual=dual)


class DeletionPoint(PrimalDual):
    """Weights and intercept, with the slacks and multipliers of all parts of the program."""

    title, patience, finest = "deletion interior point", 4, 0.1 * CONTENT
    least_centring = 0.1  # with less centring the dual stalls
    most_correction = 5.0  # larger corrections shorten the step

    def __init__(self, scaled: ScaledDeletions):
        self.scaled, self.unit, self.has_one_length = scaled, scaled.unit * scaled.size, scaled.ridge > 0
        self.z = np.zeros(len(scaled.order) + scaled.program.fit_intercept)
        self.groups = list(scaled.groups())
        self.parts: list[Part] = [*self.groups, *scaled.limits(self.groups)]
        self.n_pairs = sum(part.n_pairs for part in self.parts)
        self.best = Best(scaled.floor)

    @property
    def mu(self) -> float:
        return self.product(0.0, 0.0)

    def look(self, goal: float) -> None:
        # the steps' own gap is the sum of all products
        if self.n_pairs * self.mu > BOUNDED_FROM * goal * self._scale():
            return
        guesses = [group.dual() for group in self.groups]
        self.scaled.look(self.best, self.groups, self.z, [group.price.slack for group in self.groups], guesses)

    def _scale(self) -> float:
        """Return an estimate of the number that the gap is measured against."""
        w = self.z[: len(self.scaled.order)]
        losses = sum(float(group.c @ group.xi.slack) for group in self.groups)
        return max(losses + 0.5 * self.scaled.ridge * float(w @ w), self.scaled.floor)

    def factorise(self) -> None:
        n, n_weights = self.scaled.n_deletable, len(self.scaled.order)
        M, cross = np.zeros((len(self.z), len(self.z))), np.zeros((n, n))
        diagonal = np.zeros(len(self.z))
        diagonal[:n_weights] = self.scaled.ridge
        for part in self.parts:
            own = part.add_curvature(M, cross)
            diagonal[: len(own)] += own
        cross.flat[:: n + 1] = 0.0
        M[:n, :n] -= cross
        M.flat[:: len(self.z) + 1] += diagonal
        self.M, self.factor = M, UnitCholesky(M, JITTERS)

    def turn(self, aim: float, most: float) -> tuple[float, float]:
        n_weights = len(self.scaled.order)
        rhs = total_of(part.target(self.z, aim, most) for part in self.parts)
        rhs[:n_weights] -= self.scaled.ridge * self.z[:n_weights]
        self.dz = self.factor.solve(rhs)
        # one step of iterative refinement: near the end the matrix is too ill-conditioned for one solve
        self.dz += self.factor.solve(rhs - self.M @ self.dz)
        fits = [part.turn(self.dz) for part in self.parts]
        return min(primal for primal, _ in fits), min(dual for _, dual in fits)

    def share(self, mu: float) -> float:
        return BOUNDARY_SHARE

    def product(self, primal: float, dual: float) -> float:
        return sum(part.product(primal, dual) for part in self.parts) / self.n_pairs

    def move(self, primal: float, dual: float) -> bool:
        if not np.all(np.isfinite(self.dz)):
            return False
        self.z += primal * self.dz
        for part in self.parts:
            part.move(primal, dual)
        return True


def _placed(parts: Sequence[Any], rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]) -> Any:
    """Return a matrix that has the stacked parts in these rows and columns, and zeros elsewhere."""
    if not any(map(sparse.issparse, parts)):
        found = np.zeros(shape)
        found[rows[:, None], columns] = np.concatenate(parts)
        return found
    stacked = sparse.vstack([sparse.coo_array(part) for part in parts], format="coo")
    return sparse.csr_array((stacked.data, (rows[stacked.row], columns[stacked.col])), shape=shape)


def total_of(parts: Iterable[Array]) -> Array:
    """Return the sum of arrays."""
    return reduce(np.add, parts)
