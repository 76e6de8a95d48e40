"""Training of the minimax probability machine: reweighting for smooth spreads, else a path of decreasing smoothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.minimax_probability import MinimaxProbabilityProblem
from holdfast._proofs.minimax_probability import MinimaxProof, certificate_of
from holdfast.solvers.newton import newton_step
from holdfast.solvers.selection import pick

REWEIGHTINGS = 50
"""Largest number of reweighted solves, with the covariances alone, before Newton steps take over."""
SETTLED = 1e-12
"""Change of either spread, as a share of their sum, at which reweighting has settled."""
FIRST_EASE, SHRINK, LAST_EASE = 0.1, 0.1, 1e-11
"""Smoothing as a share of the spread: at the start of the path, its factor between stages, and its smallest value."""
TRACE = 0.1
"""A proof is tried once the smoothing is at most this share of `tol`; it causes a gap of about its own size."""
STAGE = 1e-3
"""A stage of the path ends when the next step promises less than this share of the smoothing."""
FINE, FINEST = 1e-2, 1e-10
"""The same limit for a proof: a share of `tol` squared, as the gap varies with its root; and its largest value."""
STAGE_STEPS, NO_SHRINK = 30, 0.8
"""Steps after which a stage is replaced by one nearer to the last, and the largest factor at which this is done."""
BOUNDLESS = 1e7
"""Classes more than this many standard deviations apart count as perfectly separable."""


def train_minimax(
    problem: MinimaxProbabilityProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    report: Report = silent,
) -> tuple[Solution, MinimaxProof]:
    """Return the solution, with weights of lead 1, and its proof.

    Problems whose spreads have no kinks are solved by reweighting. Others follow a path of decreasing smoothing, where
    each stage starts at the last solution, until the gap is at most `tol`.
    """
    chosen = pick(problem.smoothed(1.0), solver)
    w, n_iter = reweighted(problem, min(REWEIGHTINGS, max_iter))
    w = problem.rescaled(w)
    first = problem.spread.value(w)
    proof = certificate_of(problem, w, problem.smoothed(LAST_EASE * first))
    name = "reweighting"
    if not (proof.gap <= tol or problem.objective(w) <= 1 / BOUNDLESS):
        path = _Path(problem, chosen, tol, max_iter, report, n_iter)
        w, proof = path.followed(w, proof, first)
        n_iter, name = path.n_iter, chosen.name
    if problem.lead(w) <= 0:
        w = problem.leading()
        proof = MinimaxProof.at(problem, w, proof.lower_bound)
    if proof.gap <= tol:
        status = Status.SOLVED
    else:
        status = Status.ITERATION_LIMIT if n_iter >= max_iter else Status.STALLED
    lead = problem.lead(w)
    found = Solution(w / lead if lead > 0 else w, status, proof.objective, n_iter, name, proof.lower_bound)
    return found, proof


def reweighted(problem: MinimaxProbabilityProblem, limit: int) -> tuple[Array, int]:
    r"""Return the minimum for spreads :math:`\sqrt{w^\top M w}` and no drift, nearly, and the number of solves it took.

    :math:`w \leftarrow H^{-1} D`, :math:`H = M_+/\sigma_+ + M_-/\sigma_-`: each step minimises a quadratic majorant.
    """
    inner = [problem.negative.inner, problem.positive.inner]
    w, sizes, n_steps = problem.difference, np.ones(2), 0
    while n_steps < limit:
        n_steps += 1
        w = newton_step(inner[0] / sizes[0] + inner[1] / sizes[1], -problem.difference, np.zeros(len(w)))[0]
        w = w / float(problem.difference @ w)
        before, sizes = sizes, np.sqrt([max(float(w @ M @ w), 0.0) for M in inner])
        total = float(np.sum(sizes))
        if total <= 1 / BOUNDLESS or np.all(np.abs(sizes - before) <= SETTLED * total):
            break
        sizes = np.maximum(sizes, ROUNDING * total)
    return w, n_steps


@dataclass
class _Path:
    """A path of decreasing smoothing."""

    problem: MinimaxProbabilityProblem
    solver: Solver
    tol: float
    max_iter: int
    report: Report
    n_iter: int

    def followed(self, w: Array, proof: MinimaxProof, size: float) -> tuple[Array, MinimaxProof]:
        """Return the best weights on the path and their proof, starting from weights w whose spread is `size`."""
        problem, first, best = self.problem, size, w
        delta, shrink = FIRST_EASE * size, SHRINK
        last, trial, begin = delta, delta, [w]
        before = w
        while self.n_iter < self.max_iter:
            is_fine = trial <= TRACE * self.tol * size
            smoothed = problem.smoothed(trial)
            goal = min(FINE * self.tol**2, FINEST) if is_fine else STAGE * trial / size
            start = min(begin, key=lambda v: smoothed.value_and_gradient(v)[0])
            self.report(f"smoothing {trial / size:.2g} of the spread")
            limit = min(STAGE_STEPS, self.max_iter - self.n_iter)
            stage = self.solver.minimise(smoothed, start, tol=goal, max_iter=limit, report=self.report)
            self.n_iter += stage.n_iter
            if stage.status is Status.ITERATION_LIMIT and trial < delta and shrink < NO_SHRINK:
                # too far from the last stage
                shrink = float(np.sqrt(shrink))
            else:
                last, before, w = delta, w, stage.parameters
                delta, shrink = trial, max(SHRINK, shrink**2)
                is_end = delta <= LAST_EASE * first or problem.objective(w) <= 1 / BOUNDLESS
                # a lower bound holds for all weights, so the highest is kept
                bound = certificate_of(problem, w, smoothed).lower_bound if is_fine or is_end else 0.0
                best = min(best, w, key=problem.objective)
                proof = MinimaxProof.at(problem, best, max(bound, proof.lower_bound))
                self.report(f"certified gap {proof.gap:.2e}")
                if proof.gap <= self.tol or is_end:
                    break
                size = problem.spread.value(w) if problem.lead(w) > 0 else size
            trial = shrink * delta
            begin = [w, problem.snapped_to_kinks(w, delta, trial / delta)]
            if last > delta:
                begin.append(w + (trial - delta) / (delta - last) * (w - before))
        return self._tidied(best, proof, delta)

    def _tidied(self, w: Array, proof: MinimaxProof, delta: float) -> tuple[Array, MinimaxProof]:
        """Return the weights with zeros and ties that only smoothing had prevented, if these are as good."""
        tidy = self.problem.snapped_to_kinks(w, delta, 0.0)
        proved = MinimaxProof.at(self.problem, tidy, proof.lower_bound)
        is_as_good = proved.objective <= proof.objective * (1 + TRACE * self.tol)
        return (tidy, proved) if is_as_good and proved.gap <= max(self.tol, proof.gap) else (w, proof)
