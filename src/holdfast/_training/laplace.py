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
from holdfast.solvers.newton import Newton
from holdfast.solvers.selection import pick

FINE = 0.2
"""Share of the tolerance at which solvers stop."""
FINER = 0.01
"""Share of that to which they go on where what they stopped at is not proved."""
ROUGH = 1e-2
"""Gain that is worth a step on some of the rows, as a share of the objective."""
COARSER, NEARING = 4, 50
"""Every fourth of these rows is used before, and so many steps at most."""
GUIDED = ("newton", "quasi_newton")
"""Solvers that start there; coordinate steps are rounds of boosting, which start at the prior."""
PATIENCE = 40
"""Steps in the metric of some rows after which Hessians of all rows are formed."""


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
        start = _near(problem) if problem.is_long and chosen.name in GUIDED else problem.start()
    has_other = solver is None and problem.is_long and problem.is_factorisable
    found, proof = _proved(problem, chosen, start, tol, min(max_iter, PATIENCE) if has_other else max_iter, report)
    if has_other and proof.gap > tol and found.n_iter < max_iter:
        before = found.n_iter
        found, proof = _proved(problem, Newton(), found.parameters, tol, max_iter - before, report)
        found = replace(found, n_iter=before + found.n_iter)
    status = found.status
    if proof.gap <= tol:
        status = Status.SOLVED
    elif status is Status.SOLVED:
        status = Status.UNCERTIFIED if found.n_iter < max_iter else Status.ITERATION_LIMIT
    problem.trace.append(min(proof.objective, *problem.trace[-1:]))
    return replace(found, status=status, objective=proof.objective, lower_bound=proof.lower_bound), proof


def _near(problem: LaplaceProblem) -> Array:
    """Return parameters that are about the best for some of the rows, found from those for some of these."""
    start = None
    for sample in (problem.sample.thinned(COARSER), problem.sample):
        start = Newton().minimise(sample, _valid(sample, start), tol=ROUGH, max_iter=NEARING, rough=True).parameters
    return _valid(problem, start)


def _valid(problem: LaplaceProblem, start: Array | None) -> Array:
    """Return the start where it can be used: rows that were not sampled may be larger, and the scales too large for these."""
    return start if start is not None and np.isfinite(problem.value_and_gradient(start)[0]) else problem.start()


def _proved(
    problem: LaplaceProblem, solver: Solver, start: Array, tol: float, max_iter: int, report: Report
) -> tuple[Solution, LaplaceProof]:
    """Return where the solver ends and its proof; it goes on, more finely, while it is content too early and that helps."""
    fine, n_iter, best = FINE * tol, 0, None
    while True:
        # in a good metric the next step says how much is left, and no gap need be computed on the way
        found = solver.minimise(
            problem, start, tol=fine, max_iter=max_iter - n_iter, rough=problem.is_long, report=report
        )
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
