"""Training of a vote with Laplace laws: start on some of the rows, solve, prove, and go on where the proof falls short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import POLISHED
from holdfast._problems.laplace import LaplaceProblem
from holdfast._proofs.laplace import LaplaceProof, laplace_certificate
from holdfast.solvers.selection import pick

FINE = 0.1
"""Share of the tolerance at which solvers stop."""
FINER = 0.01
"""Share of that to which they go on where what they stopped at is not proved."""
THINNED, ENOUGH, EACH = 10, 500, 30
"""A fit starts at that of every tenth row, where these are enough, and enough for each learner."""
ROUGH = 1e-3
"""Gain that is worth a step there, as a share of the objective."""


def train_laplace(
    problem: LaplaceProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> tuple[Solution, LaplaceProof]:
    """Return the best means and scales, how they were found, and what is proved of them."""
    chosen = pick(problem, solver)
    if start is None:
        start = problem.start()
        n_thin = problem.outputs.n_samples / THINNED
        if n_thin >= max(ENOUGH, EACH * problem.n_learners) and chosen.name == "newton":
            thin = problem.thinned(THINNED)
            near = chosen.minimise(thin, start, tol=ROUGH, max_iter=max_iter, rough=True).parameters
            start = near if problem.value_and_gradient(near)[0] < np.inf else start
    found, proof = _proved(problem, chosen, start, tol, max_iter, report)
    status = found.status
    if proof.gap <= tol:
        status = Status.SOLVED
    elif status is Status.SOLVED:
        status = Status.UNCERTIFIED if found.n_iter < max_iter else Status.ITERATION_LIMIT
    problem.trace.append(min(proof.objective, *problem.trace[-1:]))
    return replace(found, status=status, objective=proof.objective, lower_bound=proof.lower_bound), proof


def _proved(
    problem: LaplaceProblem, solver: Solver, start: Array, tol: float, max_iter: int, report: Report
) -> tuple[Solution, LaplaceProof]:
    """Return where the solver ends and its proof; it goes on, more finely, while it is content too early and that helps."""
    fine, n_iter, best = FINE * tol, 0, None
    while True:
        found = solver.minimise(problem, start, tol=fine, max_iter=max_iter - n_iter, report=report)
        n_iter += found.n_iter
        proof = laplace_certificate(problem, found.parameters)
        report(f"certified gap {proof.gap:.2e}")
        helped = best is None or proof.gap < best[1].gap
        if helped:
            best = found, proof
        is_early = found.status is Status.SOLVED and fine > POLISHED and n_iter < max_iter
        if proof.gap <= tol or not (helped and is_early):
            assert best is not None
            return replace(best[0], n_iter=n_iter), best[1]
        start, fine = found.parameters, FINER * fine
