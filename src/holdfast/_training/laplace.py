"""Training of means and scales: start on a sample of the rows, solve, prove, and go on where the proof falls short."""

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
from holdfast.solvers.quasi_newton import QuasiNewton
from holdfast.solvers.selection import pick

FINE = 0.5
"""Solvers stop at this share of the tolerance."""
FINER = 0.01
"""If the proof does not reach the tolerance there, they go on to this share of it."""
ROUGH = 0.1
"""On a sample, steps end when one gains less than this share of the objective."""
COARSER, NEARING = 4, 50
"""Before the sample, every fourth of its rows is used. Each takes at most so many steps."""
GUIDED = ("newton", "quasi_newton")
"""Solvers that start from the sample. Coordinate steps do not: they are rounds of boosting, which start at the prior."""
OTHERS: dict[str, tuple[type[Solver], int]] = {"quasi_newton": (Newton, 40), "newton": (QuasiNewton, 200)}
"""Where nobody chose the solver: the one that takes over from it where it leaves a gap, and after how many steps at the latest.

Steps with the sample's Hessian give way to those with Hessians of all rows, and Newton's, where their model of the function is
bad, to those that need none.
"""
FALLING = 0.5
"""Newton's method goes on if so many steps bring the objective below this share: each divides an exponential loss by e."""


def train_laplace(
    problem: LaplaceProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> tuple[Solution, LaplaceProof]:
    """Return the best means and scales, how they were found, and the proof."""
    chosen = pick(problem, solver)
    if start is None:
        start = _near(problem) if problem.is_long and chosen.name in GUIDED else problem.start()
    other, patience = OTHERS.get(chosen.name, (None, 0)) if solver is None and problem.is_factorisable else (None, 0)
    found, proof = _proved(problem, chosen, start, tol, min(max_iter, patience) if other else max_iter, report)
    value = problem.value_and_gradient(start)[0] if proof.gap > tol else np.inf
    while other and proof.gap > tol and found.n_iter < max_iter:
        is_falling = (
            chosen.name == "newton" and found.status is Status.ITERATION_LIMIT and proof.objective < FALLING * value
        )
        value, turn = proof.objective, patience if is_falling else max_iter
        next_one = chosen if is_falling else other()
        steps = min(turn, max_iter - found.n_iter)
        found, proof = _better(problem, found, proof, *_proved(problem, next_one, found.parameters, tol, steps, report))
        if not is_falling:
            break
    status = found.status
    if proof.gap <= tol:
        status = Status.SOLVED
    elif status is Status.SOLVED:
        status = Status.UNCERTIFIED if found.n_iter < max_iter else Status.ITERATION_LIMIT
    problem.trace.append(min(proof.objective, *problem.trace[-1:]))
    return replace(found, status=status, objective=proof.objective, lower_bound=proof.lower_bound), proof


def _better(
    problem: LaplaceProblem, found: Solution, proof: LaplaceProof, other: Solution, others: LaplaceProof
) -> tuple[Solution, LaplaceProof]:
    """Return the lower of two points, the second found from the first, with the higher of their bounds."""
    n_iter, bound = found.n_iter + other.n_iter, max(proof.lower_bound, others.lower_bound)
    if others.objective <= proof.objective:
        found, proof = other, others
    gap = (proof.objective - bound) / max(proof.objective, problem.floor)
    return replace(found, n_iter=n_iter), LaplaceProof(proof.objective, bound, gap)


def _near(problem: LaplaceProblem) -> Array:
    """Return about the best parameters for the sample, found from the best for a part of it."""
    start = None
    for sample in (problem.sample.thinned(COARSER), problem.sample):
        start = Newton().minimise(sample, _valid(sample, start), tol=ROUGH, max_iter=NEARING, rough=True).parameters
    return _valid(problem, start)


def _valid(problem: LaplaceProblem, start: Array | None) -> Array:
    """Return the start if it is in the domain: larger rows may be missing from the sample, which limit the scales more."""
    return start if start is not None and np.isfinite(problem.value_and_gradient(start)[0]) else problem.start()


def _proved(
    problem: LaplaceProblem, solver: Solver, start: Array, tol: float, max_iter: int, report: Report
) -> tuple[Solution, LaplaceProof]:
    """Return the solver's last point and its proof; while the proof falls short, go on with a finer tolerance if it helps."""
    fine, n_iter, best = FINE * tol, 0, None
    while True:
        # with a good metric the next step tells how much is left, so that no gap need be computed on the way
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
