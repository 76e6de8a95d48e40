"""Training of means and scales: start on a sample of the rows, solve, prove, and go on while the gap is too large."""

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
"""If the gap still exceeds the tolerance, they go on with their own tolerance multiplied by this."""
ROUGH = 0.1
"""On a sample, the solver stops when a step gains less than this share of the objective."""
COARSER, NEARING = 4, 50
"""A fit to every fourth row of the sample comes before the fit to the sample; the largest number of steps of each."""
GUIDED = ("newton", "quasi_newton")
"""Solvers that start from the sample's solution. Coordinate steps are rounds of boosting and start at the prior."""
OTHERS: dict[str, tuple[type[Solver], int]] = {"quasi_newton": (Newton, 40), "newton": (QuasiNewton, 200)}
"""The solver that takes over if the automatically chosen solver leaves a gap, and the number of steps before it does.

Steps with the sample's Hessian are followed by steps with the Hessian of all rows. Newton's steps, where their
quadratic model is bad, are followed by steps that need no Hessian.
"""
FALLING = 0.5
"""Newton's method goes on if its steps reduce the objective by this factor: each divides an exponential loss by e."""


def train_laplace(
    problem: LaplaceProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> tuple[Solution, LaplaceProof]:
    """Return the solution, with the best means and scales, and its proof."""
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
    """Return the point with the lower objective and the higher of the bounds; the second was found from the first."""
    n_iter, bound = found.n_iter + other.n_iter, max(proof.lower_bound, others.lower_bound)
    if others.objective <= proof.objective:
        found, proof = other, others
    gap = (proof.objective - bound) / max(proof.objective, problem.floor)
    return replace(found, n_iter=n_iter), LaplaceProof(proof.objective, bound, gap)


def _near(problem: LaplaceProblem) -> Array:
    """Return roughly the best parameters for the sample, starting from those for a part of it."""
    start = None
    for sample in (problem.sample.thinned(COARSER), problem.sample):
        start = Newton().minimise(sample, _valid(sample, start), tol=ROUGH, max_iter=NEARING, rough=True).parameters
    return _valid(problem, start)


def _valid(problem: LaplaceProblem, start: Array | None) -> Array:
    """Return the start if it is feasible, else the default: rows outside the sample may limit the scales more."""
    return start if start is not None and np.isfinite(problem.value_and_gradient(start)[0]) else problem.start()


def _proved(
    problem: LaplaceProblem, solver: Solver, start: Array, tol: float, max_iter: int, report: Report
) -> tuple[Solution, LaplaceProof]:
    """Return the solver's best point and its proof; tighten the tolerance while the gap is too large and this helps."""
    fine, n_iter, best = FINE * tol, 0, None
    while True:
        # with a good metric the next step estimates the remaining gain, so no gap is computed on the way
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
