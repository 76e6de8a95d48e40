"""Robust training in alternating rounds: displace the rows, train as if they were exact, and repeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Report, silent
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate, certificate
from holdfast._proofs.intercepts import best_constant
from holdfast._training.training import train
from holdfast.uncertainty.points import CommonPoint

FINER = 0.1
"""The gap to which a round is solved, as a share of the tolerance at which the rounds have settled."""
ROUND_STEPS = 1000
"""The largest number of steps of a round."""


@dataclass
class Alternation:
    """The result of the rounds.

    Attributes
    ----------
    solution : Solution
        The best of all rounds, or w = 0 if that is better; its status is SOLVED if the rounds have settled.
    proof : Certificate
        The certificate of the solution; it proves nothing if displacements help the rows.
    objectives : ndarray of shape (n_rounds,)
        The objective after each round.
    """

    solution: Solution
    proof: Certificate
    objectives: Array


def displaced(problem: MarginScaleProblem, parameters: Array, side: float) -> MarginScaleProblem:
    """Return the plain problem on rows displaced to the worst (side = 1) or best (side = -1) points of their sets."""
    w, _ = problem.split(parameters)
    return problem.having(sets=CommonPoint(side * problem.sets.maximizer(w)[0]))


def alternate(
    problem: MarginScaleProblem, side: float, *, tol: float, max_rounds: int, report: Report = silent
) -> Alternation:
    r"""Return the best of several rounds, each trained on rows displaced by the weights of the previous round.

    The first displacement is 0. With weights :math:`w_k` after round k, the next one minimises
    :math:`\sum_i c_i \ell(u_i \pm q_k^\top w) + \frac\alpha2 |w|^2`, where :math:`q_k` is the point of the set that
    attains :math:`t(w_k) = q_k^\top w_k`. At :math:`w_k` this equals the objective. If displacements hurt (+), it is a
    lower bound on the objective everywhere. If they help (-), it is an upper bound, so the objective falls from round
    to round. The rounds have settled if the next one could lower the objective by at most a share `tol`.
    """
    parameters = np.zeros(problem.n_parameters)
    objectives: list[float] = []
    constant = best_constant(problem, 0.0) if problem.fit_intercept else 0.0
    flat = problem.join(np.zeros(problem.rows.n_features), constant)
    best = Solution(flat, Status.ITERATION_LIMIT, problem.value_and_gradient(flat)[0], 0, "alternating")
    highest = -np.inf
    while True:
        there = displaced(problem, parameters, side)
        start = parameters if objectives else None
        found, proof = train(there, tol=FINER * tol, max_iter=ROUND_STEPS, start=start, report=report)
        if proof.lower_bound > highest:
            highest = proof.lower_bound
            best = replace(best, dual=found.dual)
        if objectives and objectives[-1] - proof.lower_bound <= tol * max(objectives[-1], problem.floor):
            best = replace(best, parameters=parameters, status=Status.SOLVED, objective=objectives[-1])
            break
        if len(objectives) == max_rounds:
            break
        parameters = found.parameters
        objectives.append(displaced(problem, parameters, side).value_and_gradient(parameters)[0])
        report(f"round {len(objectives)}: objective {objectives[-1]:.10g}")
        if objectives[-1] < best.objective:
            best = replace(best, parameters=parameters, objective=objectives[-1])
    best = replace(best, n_iter=len(objectives))
    w, b = problem.split(best.parameters)
    if side < 0:
        return Alternation(best, Certificate(best.objective, -np.inf, np.inf), np.array(objectives))
    guess = best.dual and DualGuess(best.dual.slopes, w, problem.sets.support(w))
    proof = certificate(problem, w, b, guess)
    status = Status.SOLVED if proof.gap <= tol else best.status
    return Alternation(replace(best, status=status, lower_bound=proof.lower_bound), proof, np.array(objectives))
