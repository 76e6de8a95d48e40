"""From a problem to a certified solution: start, path, collapse, proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from holdfast._core.loss import Array
from holdfast._core.problem import ConeProgram, Curved
from holdfast._core.rows import Rows
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast.counterpart.certificate import Certificate, certificate
from holdfast.counterpart.collapse import examine_collapse, way_out
from holdfast.counterpart.margin_scale import METRIC_ROWS, MarginScaleProblem
from holdfast.data import rows_of
from holdfast.solvers import Newton, pick

FIRST_EASE, SHRINK, LAST_EASE = 0.5, 0.15, 1e-7
"""Noise on the score that the path starts with, its factor from stage to stage, and where a collapse is suspected."""
AFFORDABLE = 1e11
"""Multiplications of a Hessian up to which Newton steps may finish what another solver left."""


def train(
    problem: MarginScaleProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> tuple[Solution, Certificate]:
    """Return a solution and what is proved about it; its status is SOLVED only if the certified gap is within `tol`."""
    chosen = pick(problem, solver)
    if ConeProgram in chosen.needs:
        found = chosen.minimise(problem, np.zeros(problem.n_parameters), tol=tol, max_iter=max_iter, report=report)
        return _judged(found, _certified(problem, found), tol, max_iter)
    smaller, back = _reduced(problem)
    if smaller is not problem:
        chosen = pick(smaller, solver)
    found = _descend(smaller, chosen, tol, max_iter, None if start is None or back is not None else start, report)
    return _certify(problem, smaller, back, chosen, found, tol, max_iter, report)


def _certify(
    problem: MarginScaleProblem,
    smaller: MarginScaleProblem,
    back: Array | None,
    chosen: Solver,
    found: Solution,
    tol: float,
    max_iter: int,
    report: Report,
) -> tuple[Solution, Certificate]:
    """Return the solution with its proof, after going on where the proof falls short and something can be done."""
    proof = _certified(problem, _returned(found, back))
    escaped = _escape(smaller, chosen, found, proof.objective, tol, max_iter, report)
    if escaped is not None:
        found, proof = escaped, _certified(problem, _returned(escaped, back))
    for _ in range(3):
        report(f"certified gap {proof.gap:.2e}")
        if proof.gap <= tol or proof.lower_bound == -np.inf or found.n_iter >= max_iter:
            break
        n, d = smaller.rows.n_samples, smaller.rows.n_features
        finisher = Newton() if smaller.view(Curved) is not None and n * d * d <= AFFORDABLE else chosen
        again = finisher.minimise(
            smaller,
            found.parameters,
            tol=0.0 if finisher.name == "newton" else 1e-4 * tol,
            max_iter=max_iter - found.n_iter,
            report=report,
        )
        again = replace(again, n_iter=again.n_iter + found.n_iter)
        better = _certified(problem, _returned(again, back))
        if not better.gap < 0.9 * proof.gap:
            break
        found, proof = again, better
    return _judged(_returned(found, back), proof, tol, max_iter)


def _certified(problem: MarginScaleProblem, found: Solution) -> Certificate:
    w, b = problem.split(found.parameters)
    return certificate(problem, w, b, found.dual)


def _judged(found: Solution, proof: Certificate, tol: float, max_iter: int) -> tuple[Solution, Certificate]:
    """Return the solution with the status that its proof deserves."""
    if proof.gap <= tol:
        status = Status.SOLVED
    elif proof.lower_bound == -np.inf:
        status = Status.NO_BOUND if found.status is Status.SOLVED else found.status
    elif found.status is Status.ITERATION_LIMIT or found.n_iter >= max_iter:
        status = Status.ITERATION_LIMIT
    else:
        status = Status.UNCERTIFIED if found.status is Status.SOLVED else found.status
    return replace(found, status=status, objective=proof.objective, lower_bound=proof.lower_bound), proof


def _reduced(problem: MarginScaleProblem) -> tuple[MarginScaleProblem, Array | None]:
    """Return the problem in the span of its rows, and the basis, where there are more features than rows.

    Weights outside the span change no score and only add noise, so there are none at the optimum; that needs noise that is
    the same in all directions.
    """
    rows = problem.rows
    if rows.n_features <= rows.n_samples or not problem.bound.is_isotropic:
        return problem, None
    X = np.concatenate([block for _, block in rows.dense_blocks()])
    basis, triangle = linalg.qr(X.T, mode="economic")
    reduced: Rows = rows_of(np.ascontiguousarray(triangle.T))
    return replace(problem, rows=reduced), basis


def _returned(found: Solution, basis: Array | None) -> Solution:
    """Return the solution in the original features."""
    if basis is None:
        return found
    k = basis.shape[1]
    return replace(found, parameters=np.concatenate([basis @ found.parameters[:k], found.parameters[k:]]))


def _descend(
    problem: MarginScaleProblem, solver: Solver, tol: float, max_iter: int, start: Array | None, report: Report
) -> Solution:
    """Return a local solution: from `start`, from a solution on fewer rows, or along the path of easings."""
    accuracy = _accuracy(problem, solver, tol)
    used = 0
    if start is None and _is_worth_thinning(problem, solver):
        sample = problem.thinned(METRIC_ROWS * problem.n_parameters)
        report(f"solving for {sample.rows.n_samples} of {problem.rows.n_samples} rows first")
        rough = _descend(sample, pick(sample), 1e-3, max_iter, None, report)
        start, used = rough.parameters, rough.n_iter
    if start is not None and np.any(problem.split(start)[0] != 0):
        found = solver.minimise(problem, start, tol=accuracy, max_iter=max(1, max_iter - used), report=report)
        return replace(found, n_iter=found.n_iter + used)
    if not problem.loss.is_homogeneous:
        return solver.minimise(problem, np.zeros(problem.n_parameters), tol=accuracy, max_iter=max_iter, report=report)
    return _follow(problem, solver, accuracy, max_iter, report)


def _accuracy(problem: MarginScaleProblem, solver: Solver, tol: float) -> float:
    """Return the gap to aim at: none where going on to rounding costs next to nothing."""
    return 0.0 if solver.name == "newton" or problem.work()["is_cheap_to_factorise"] else 0.3 * tol


def _is_worth_thinning(problem: MarginScaleProblem, solver: Solver) -> bool:
    sample = METRIC_ROWS * problem.n_parameters
    return solver.name != "newton" and problem.rows.n_samples >= 2 * sample and problem.rows.n_features <= 1000


def _follow(problem: MarginScaleProblem, solver: Solver, accuracy: float, max_iter: int, report: Report) -> Solution:
    """Return the end of the path: problems with ever less noise on the score itself, each starting at the last one's solution.

    The eased problems are smooth at w = 0, so the path can start there, and never stops at the kink.
    """
    theta, delta, used = np.zeros(problem.n_parameters), FIRST_EASE, 0
    while True:
        report(f"easing {delta:.2g}")
        stage = solver.minimise(problem.eased(delta), theta, tol=1e-3, max_iter=max(1, max_iter - used), report=report)
        theta, used = stage.parameters, used + stage.n_iter
        scales = problem.bound.support(problem.split(theta)[0])
        if delta <= LAST_EASE or used >= max_iter:
            # w has shrunk along with the easing: a collapse, it seems, and no place to take steps from
            return replace(stage, n_iter=used)
        typical = float(np.median(scales))
        if delta <= 0.5 * typical:
            break
        delta = max(SHRINK * delta, LAST_EASE)
    # rows without noise keep the hinge's kink: a trace of easing stands in for it
    last = LAST_EASE if np.min(scales) <= 1e-9 * np.max(scales, initial=0.0) else 0.0
    found = solver.minimise(problem.eased(last), theta, tol=accuracy, max_iter=max(1, max_iter - used), report=report)
    return replace(found, n_iter=found.n_iter + used)


def _escape(
    problem: MarginScaleProblem,
    solver: Solver,
    found: Solution,
    objective: float,
    tol: float,
    max_iter: int,
    report: Report,
) -> Solution | None:
    """Return a certified collapse, or a solution that started downhill from it; None where w = 0 is out of the question."""
    constant = 2 * min(problem.class_weights()) if problem.fit_intercept else float(problem.weights.sum())
    if not problem.loss.is_homogeneous or objective < constant * (1 - 1e-6):
        return None
    report("testing whether w = 0 is optimal")
    test = examine_collapse(problem, report=report)
    w, b = np.zeros(problem.rows.n_features), test.intercept
    proof = certificate(problem, w, b, test.dual)
    if proof.gap <= tol:
        return Solution(problem.join(w, b), Status.SOLVED, proof.objective, found.n_iter, solver.name, dual=test.dual)
    start = way_out(problem, test)
    accuracy = _accuracy(problem, solver, tol)
    again = solver.minimise(problem, start, tol=accuracy, max_iter=max(1, max_iter - found.n_iter), report=report)
    return replace(again, n_iter=again.n_iter + found.n_iter) if again.objective <= objective else None
