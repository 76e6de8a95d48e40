"""Training with the loss "tail": solved at some scales, with lower bounds for all other scales."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._problems.laplace_tail import TailProblem, TailRows
from holdfast._proofs.laplace import LaplaceProof
from holdfast._proofs.laplace_tail import ground, tail_proof
from holdfast.solvers.newton import Newton
from holdfast.solvers.quasi_newton import QuasiNewton
from holdfast.solvers.selection import pick

FINE = 1e-3
"""Each convex problem is solved to this share of the tolerance, because their gaps add to the overall gap."""
ALTERNATIONS, SOLVES = 30, 80
"""Largest number of convex problems solved to find a good scale, and in total."""
SETTLED = 1e-9
"""The alternation ends when the relative change of the scale is at most this."""
PATIENCE = 100
"""Without a chosen solver, another solver takes over after this many Newton steps, or if they leave a gap."""
NARROW = 1e-3
"""A new scale stays this share of a cell's length away from its ends, so that each split is useful."""


class TailFit(NamedTuple):
    """The means and the common scale found."""

    means: Array
    """In units of the scales."""
    sigma: float
    """In units of the prior's scales."""
    solution: Solution
    proof: LaplaceProof
    n_sigma_solves: int
    trace: list[float]


def train_tail(
    rows: TailRows,
    sigma: float | None,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> TailFit:
    """Return the best means for a scale, or the best means and scale if it is None, with a proof over all scales."""
    search = _Search(rows, solver, tol, max_iter, report)
    search.solved(1.0 if sigma is None else sigma, np.zeros(rows.n_learners) if start is None else start)
    if sigma is not None:
        return search.fit(search.bounds[sigma])
    search.alternate()
    return search.fit(search.close())


class _Search:
    """Certified values of G at some scales, and the best means and scale so far."""

    def __init__(self, rows: TailRows, solver: Solver | str | None, tol: float, max_iter: int, report: Report):
        self.rows, self.tol, self.max_iter, self.report = rows, tol, max_iter, report
        self.solver = pick(TailProblem(rows, 1.0), solver)
        is_free = solver is None and isinstance(self.solver, Newton)
        patience = PATIENCE if is_free else max_iter
        self.turns = [(self.solver, FINE * tol, patience), (self.solver, 0.0, patience)]
        """Solvers to try in turn, each with its tolerance and number of steps, until the gap is small enough."""
        if is_free:
            self.turns.append((QuasiNewton(), FINE * tol, max_iter))
        self.floor = TailProblem(rows, 1.0).floor
        self.bounds: dict[float, float] = {}
        """Lower bounds of divergence plus loss, by scale."""
        self.means: dict[float, Array] = {}
        self.best, self.sigma, self.name, self.n_iter = np.inf, 1.0, self.solver.name, 0
        self.trace: list[float] = []
        self.is_cut = False
        """Whether max_iter cut some problem short."""
        self.is_open = False
        """Whether the solver left a gap at some scale."""
        self.ground = rows.lost
        """A lower bound of G at 0."""
        self.grounded: set[float] = set()
        """Scales whose means were tried for the bound of G at 0."""

    def solved(self, sigma: float, start: Array) -> None:
        """Solve the convex problem at a scale."""
        problem = TailProblem(self.rows, sigma)
        (solver, tol, most), *others = self.turns
        found = last = solver.minimise(problem, start, tol=tol, max_iter=min(most, self.max_iter))
        (value, bound), n_iter = self._bounded(problem, found), found.n_iter
        for solver, tol, most in others:
            if n_iter >= self.max_iter or self._is_near(value, bound):
                break
            # tolerance 0 improves the bound only after a converged solve, for instance at a tiny scale
            if not tol and found.status is not Status.SOLVED:
                continue
            last = solver.minimise(problem, found.parameters, tol=tol, max_iter=min(most, self.max_iter - n_iter))
            (lower, raised), n_iter = self._bounded(problem, last), n_iter + last.n_iter
            bound = max(bound, raised)
            if lower <= value:
                found, value = last, lower
        self.n_iter += n_iter
        self.is_cut |= last.status is Status.ITERATION_LIMIT
        self.is_open |= not self._is_near(value, bound)
        self.bounds[sigma], self.means[sigma] = min(bound, value), found.parameters
        for one in [*problem.trace, value]:
            if one < min((self.best, *self.trace[-1:])):
                self.trace.append(one)
        if value < self.best:
            self.best, self.sigma, self.name = value, sigma, found.solver
        self.report(f"scale {sigma:.6g}, number {len(self.bounds)}: objective {value:.10g}, best {self.best:.10g}")

    def _bounded(self, problem: TailProblem, found: Solution) -> tuple[float, float]:
        """Return the objective and the lower bound at a solver's result."""
        return problem.value_and_gradient(found.parameters)[0], problem.lower_bound(found.parameters)

    def _is_near(self, value: float, bound: float) -> bool:
        """Return whether the gap is within the tolerance."""
        return value - bound <= self.tol * max(value, self.floor)

    def alternate(self) -> None:
        """Alternate between the best scale for the means, in closed form, and the best means for the scale."""
        for _ in range(ALTERNATIONS):
            u = self.means[self.sigma]
            sigma = float(len(u) / np.sum(np.abs(u) + np.exp(-np.abs(u))))
            if abs(sigma - self.sigma) <= SETTLED * sigma or sigma in self.bounds:
                break
            before = self.best
            self.solved(sigma, u)
            if before - self.best <= FINE * self.tol * abs(self.best):
                break

    def close(self) -> float:
        """Solve repeatedly at the scale with the lowest bound until the gap is small enough; return the bound."""
        while True:
            bound, sigma = self._worst()
            smallest = min(self.bounds)
            if sigma < smallest and smallest not in self.grounded:
                self.grounded.add(smallest)
                self.ground = max(self.ground, ground(self.rows, self.means[smallest]))
                continue
            if self._is_near(self.best, bound) or len(self.bounds) >= SOLVES or sigma in self.bounds:
                return bound
            near = min(self.means, key=lambda other: abs(np.log(other / sigma)))
            self.solved(sigma, self.means[near])

    def _worst(self) -> tuple[float, float]:
        """Return the bound over all scales, and the scale to solve next.

        G is concave, so it lies above the chords between its certified lower bounds; at scale 0 the bound is for the
        losses alone. Divergence plus loss lies above the chords less (d ln(sigma) + d). The best scale is at most 1.
        """
        d = self.rows.n_learners
        points = [(0.0, self.ground)]
        for sigma in sorted(self.bounds):
            height = self.bounds[sigma] + d * np.log(sigma) + d
            while len(points) > 1 and _slope(points[-2], points[-1]) <= _slope(points[-1], (sigma, height)):
                points.pop()
            points.append((sigma, height))
        cells = []
        for low, high in pairwise(points):
            slope = _slope(low, high)
            least = float(np.clip(d / slope, low[0], high[0])) if slope > 0 else high[0]
            least = max(least, np.finfo(float).tiny)
            cells.append((low[1] + slope * (least - low[0]) - d * np.log(least) - d, least, low[0], high[0]))
        bound, least, start, stop = min(cells)
        if not min(least - start, stop - least) > NARROW * (stop - start):
            least = 0.5 * (start + stop)
        return float(max(bound, 0.0)), least

    def fit(self, bound: float) -> TailFit:
        """Return the best vote found, with its objective recomputed."""
        u, sigma = self.means[self.sigma], self.sigma
        proof = tail_proof(self.rows, u, sigma, self.best, bound)
        unsolved = Status.STALLED if self.is_open else Status.UNCERTIFIED
        if self.is_cut:
            unsolved = Status.ITERATION_LIMIT
        status = Status.SOLVED if proof.gap <= self.tol else unsolved
        found = Solution(u, status, proof.objective, self.n_iter, self.name, proof.lower_bound)
        return TailFit(u, sigma, found, proof, len(self.bounds), self.trace)


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
