"""Steps of both programs at once for classifiers whose features may be deleted: each costs a pass over the nonzeros."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.problem import Problem
from holdfast._core.programs import DeletionProgram
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast.solvers.deletion_interior_point import DeletionInteriorPoint, ScaledDeletions, one_class
from holdfast.solvers.deletion_parts import CROWDED, Constraints, listed
from holdfast.solvers.mehrotra import CONTENT, Best

PASSES = 50
"""Passes per step; after each step the gap is computed and a restart is considered."""
SPARE = 0.7
"""The method stops at this share of the tolerated gap, so that the proof meets it despite rounding."""
DEAR = 5e5
"""Products per nonzero in an interior-point step above which this method is preferred: 10 000 passes cost as much."""
QUICK = 3e10
"""Most products of an interior-point step for which the interior point finishes a slow solve: half a minute in all."""
FIRST_WEIGHT = 0.01
"""Initial factor of dual step lengths and divisor of primal ones, for one row, where the units of both are 1."""
ENOUGH, SOME, LONG = 0.2, 0.8, 0.36
"""The method restarts when the residual has fallen to the first share, or to the second and rises again, or after the
third share of all passes: the rules and numbers of PDLP."""
NO_MOVE = 1e-12
"""Moves up to this length do not change the weight of the steps at a restart."""


class DeletionPrimalDual(Solver):
    r"""The primal-dual hybrid gradient method on the program of a `DeletionProgram`; each pass costs O(nonzeros).

    The program is linear or quadratic, the one of `DeletionInteriorPoint`. Each pass takes a projected step in the
    weights, the prices and the :math:`\alpha_{ij}`, then one in the dual weights :math:`0 \le \pi_i \le c_i`,
    :math:`t_{ij} \ge 0`. Step lengths are those of Pock and Chambolle (2011): one over the sum of the absolute entries
    of each row and column. They make up for words of very different frequency. Every pass is reflected and averaged
    with an anchor (Halpern's iteration); each restart moves the anchor, as in PDLP and its successors. If some weights
    classify all rows with the required margin, hundreds of passes are enough; elsewhere the last digits may take many
    thousands. The start is not used.
    """

    name = "deletion_primal_dual"
    needs = (DeletionProgram,)
    takes = (
        "It takes the hinge loss, an l2 or box penalty, and deletions of whole features, each worth more than 0, within a "
        "budget above 0. "
    )

    def preference(self, work: dict[str, Any]) -> float:
        return 6.0 if suits(work["n_samples"], work["n_features"], work["n_entries"]) else 0.1

    def stand_in(self, work: dict[str, Any]) -> Solver | None:
        is_quick = _products(work["n_samples"], work["n_features"]) <= QUICK
        return DeletionInteriorPoint() if is_quick else None

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        program = problem.view(DeletionProgram)
        assert program is not None
        scaled = ScaledDeletions(program)
        if scaled.has_one_class:
            return one_class(scaled, self.name)
        every = sparse.vstack([sparse.csr_array(block) for _, block in scaled.rows.blocks()], format="csr")
        iterates = Iterates(scaled, Constraints(scaled, slice(0, every.shape[0]), every, listed))
        goal, status, n_iter = max(SPARE * tol, CONTENT), Status.SLOW, 0
        best = iterates.best
        iterates.look()
        for n_iter in range(1, max_iter + 1):
            iterates.advance()
            iterates.look()
            report(
                f"deletion primal dual {n_iter}: objective {best.value * scaled.unit * scaled.size:.10g}, "
                f"estimated gap {best.gap:.2e}"
            )
            if best.gap <= goal:
                status = Status.SOLVED
                break
        return scaled.solution(best, [iterates.rows], status, n_iter, self.name)


def suits(n_samples: int, n_features: int, n_entries: float) -> bool:
    """Return whether rows are sparse, and so wide that many passes cost less than matrices of all features."""
    return n_entries <= CROWDED * n_samples * n_features and _products(n_samples, n_features) > DEAR * n_entries


def _products(n_samples: int, n_features: int) -> float:
    """Return the number of products in a step of the interior point."""
    return n_features**2 * (2 * n_samples + n_features / 3)


class Point(NamedTuple):
    """A point of both programs."""

    primal: Array
    """Weights and intercept, then the price of each row, then alpha of each entry."""
    dual: Array
    """pi of each row, then t of each entry."""


class Iterates:
    """Where the method is, where it last restarted, and the best points so far."""

    def __init__(self, scaled: ScaledDeletions, rows: Constraints):
        self.scaled, self.rows = scaled, rows
        self.best = Best(scaled.floor)
        m = len(rows.c)
        self.n_z = rows.n + rows.U.shape[1]
        self.primal_steps, self.dual_steps = _steps(rows)
        self.ridge = np.zeros(self.n_z)
        self.ridge[: len(scaled.order)] = scaled.ridge
        self.limit = np.full(self.n_z, np.inf)
        self.limit[: len(scaled.order)] = scaled.limit
        self.asked = np.concatenate([rows.base, rows.g])
        # long arrays are written over and over: to ask for new ones takes longer than to fill them
        sizes = len(self.primal_steps), len(self.dual_steps)
        self.here, self.anchor, self.next = (Point(*map(np.zeros, sizes)) for _ in range(3))
        self.beyond = np.empty(sizes[0])
        self.work = np.empty(rows.A.size)
        self.weight = FIRST_WEIGHT * np.sqrt(m)
        self.n_passes, self.age = 0, 0
        self.first, self.last = np.inf, np.inf

    def _forward(self, primal: Array, out: Array) -> None:
        """Write the constraint matrix times a primal point to `out`."""
        rows, m, (z, price, alpha) = self.rows, len(self.rows.c), self._parts(primal)
        entries = rows.entries
        out[:m] = rows.needed * price - entries.row_sums(alpha) + rows.U @ z[rows.n :]
        each = out[m:]
        np.multiply(rows.A, entries.of_columns(z[: rows.n]), out=each)
        each += alpha
        each -= np.multiply(entries.of_rows(price), rows.v, out=self.work)

    def _back(self, dual: Array, out: Array) -> None:
        """Write the transpose of the constraint matrix times dual weights to `out`."""
        rows, m = self.rows, len(self.rows.c)
        pi, t = dual[:m], dual[m:]
        entries, (z, price, alpha) = rows.entries, self._parts(out)
        z[: rows.n] = entries.column_sums(np.multiply(rows.A, t, out=self.work))
        z[rows.n :] = rows.U.T @ pi
        price[:] = rows.needed * pi - entries.row_sums(np.multiply(t, rows.v, out=self.work))
        np.subtract(t, entries.of_rows(pi), out=alpha)

    def _parts(self, primal: Array) -> tuple[Array, Array, Array]:
        """Return weights and intercept, prices, and alpha."""
        m = len(self.rows.c)
        return primal[: self.n_z], primal[self.n_z : self.n_z + m], primal[self.n_z + m :]

    def _move(self) -> None:
        """Set the next point: a primal step, then a dual step."""
        here, (primal, dual), beyond = self.here, self.next, self.beyond
        self._back(here.dual, primal)
        primal *= self.primal_steps
        primal /= self.weight
        primal += here.primal
        z, price, alpha = self._parts(primal)
        z /= 1 + self.primal_steps[: self.n_z] * self.ridge / self.weight
        np.clip(z, -self.limit, self.limit, out=z)
        # a budget that has to be spent has a price of either sign
        for part in (alpha,) if self.rows.is_spent else (price, alpha):
            np.maximum(part, 0.0, out=part)
        np.multiply(primal, 2.0, out=beyond)
        beyond -= here.primal
        self._forward(beyond, dual)
        np.subtract(self.asked, dual, out=dual)
        dual *= self.dual_steps
        dual *= self.weight
        dual += here.dual
        np.maximum(dual, 0.0, out=dual)
        pi = dual[: len(self.rows.c)]
        np.minimum(pi, self.rows.c, out=pi)

    def _distances(self, here: Point, there: Point) -> tuple[float, float]:
        """Return the primal and the dual distance of two points, weighted by the inverse step lengths."""
        return (
            float(np.sqrt(np.sum(np.square(there.primal - here.primal) / self.primal_steps))),
            float(np.sqrt(np.sum(np.square(there.dual - here.dual) / self.dual_steps))),
        )

    def _residual(self) -> float:
        primal, dual = self._distances(self.here, self.next)
        return float(np.hypot(np.sqrt(self.weight) * primal, dual / np.sqrt(self.weight)))

    def advance(self) -> None:
        """Take the passes of a step, and restart if a restart is due."""
        for k in range(PASSES):
            self._move()
            if self.age == 0:
                self.first = self._residual()
            if k == PASSES - 1 and self._is_to_restart():
                self._restart()
                continue
            self.age += 1
            self._average()
        self.n_passes += PASSES

    def _average(self) -> None:
        """Reflect this point at the next one, then average with the anchor, whose weight falls with each pass."""
        for anchor, here, there in zip(self.anchor, self.here, self.next, strict=True):
            np.subtract(there, here, out=here)
            here += there
            here -= anchor
            here *= self.age / (self.age + 1)
            here += anchor

    def _is_to_restart(self) -> bool:
        last, self.last = self.last, self._residual()
        has_stopped = self.last <= SOME * self.first and self.last > last
        return self.last <= ENOUGH * self.first or has_stopped or self.age >= LONG * (self.n_passes + PASSES)

    def _restart(self) -> None:
        """Restart at the last point before averaging, with steps in proportion to the moves since the last restart."""
        primal, dual = self._distances(self.anchor, self.next)
        if min(primal, dual) > NO_MOVE:
            self.weight = float(np.sqrt(self.weight * dual / primal))
        for anchor, here, there in zip(self.anchor, self.here, self.next, strict=True):
            here[:] = anchor[:] = there
        self.age, self.last = 0, np.inf

    def look(self) -> None:
        """Show the last point to `best`; with an intercept, both classes get the same total dual weight."""
        rows, m = self.rows, len(self.rows.c)
        guess = rows.guess(self.next.dual[:m], self.next.dual[m:])
        if self.scaled.program.fit_intercept:
            signs = self.scaled.signs
            totals = [float(guess.pi[signs == sign].sum()) for sign in (-1.0, 1.0)]
            shares = np.where(signs > 0, *(min(totals) / (total or 1.0) for total in totals[::-1]))
            guess = guess._replace(pi=shares * guess.pi, t=rows.entries.of_rows(shares) * guess.t)
        z, price, _ = self._parts(self.next.primal)
        self.scaled.look(self.best, [rows], z.copy(), [price], [guess])


def _steps(rows: Constraints) -> tuple[Array, Array]:
    """Return primal and dual step lengths: one over the sums of the absolute entries of columns and of rows."""
    entries, reach, fixed, needed = rows.entries, np.abs(rows.A), abs(rows.U), np.abs(rows.needed)
    columns = [entries.column_sums(reach), _sums(fixed, 0), needed + rows.worth, np.full(rows.A.size, 2.0)]
    counts = entries.row_sums(np.ones_like(rows.A))
    across = [needed + counts + _sums(fixed, 1), reach + rows.v + 1]
    return 1 / _positive(np.concatenate(columns)), 1 / _positive(np.concatenate(across))


def _positive(sums: Array) -> Array:
    """Return sums, and 1 where there was nothing to sum up."""
    return np.where(sums > 0, sums, 1.0)


def _sums(matrix: Any, axis: int) -> Array:
    return np.asarray(matrix.sum(axis=axis), dtype=np.float64).ravel()
