"""Training of a vote: posterior distributions of its weights, and advice if they are not proved optimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver
from holdfast._data.outputs import Outputs
from holdfast._problems.laplace import LaplaceProblem
from holdfast._problems.laplace_tail import TailProblem, TailRows
from holdfast._proofs.laplace import LaplaceProof
from holdfast._training.laplace import train_laplace
from holdfast._training.laplace_tail import train_tail
from holdfast.losses.votes import VoteLoss

APART = "The means separate the classes without error, and scales may be next to the end of their range. "
ELSE = "Put columns on similar scales (StandardScaler), use a smaller c or prior_scale, or raise tol."
BETWEEN = "The bound over all scales could not be raised further. Use a smaller c or scale='fixed', or raise tol."


class Laws(NamedTuple):
    """Laplace distributions, one per weight."""

    means: Array
    scales: Array


class Posterior(NamedTuple):
    """The distributions for one class against the rest, with their proof."""

    laws: Laws
    solution: Solution
    proof: LaplaceProof
    floor: float
    """Gaps are relative to this number where the objective is smaller."""
    trace: list[float]
    advice: str
    """Why the fit is not certified and what to do; empty if it is certified."""
    n_sigma_solves: int = 0


@dataclass
class VoteTraining:
    """Training of a vote, with its settings.

    Parameters
    ----------
    prior : Laws
        Distributions of the weights before any row is seen.
    fixed : float or None
        The scales in units of the prior's; None if they are learned.
    solver : Solver or str or None
    tol : float
    max_iter : int
    report : Report
    """

    prior: Laws
    fixed: float | None
    solver: Solver | str | None
    tol: float
    max_iter: int
    report: Report

    def by_loss(self, loss: VoteLoss, outputs: Outputs, signs: Array, weights: Array, before: Laws | None) -> Posterior:
        """Return the best distributions for a loss of ln E exp(-margin), starting from `before`."""
        prior = self.prior
        scales = None if self.fixed is None else self.fixed * prior.scales
        problem = LaplaceProblem(outputs, signs, weights, loss, prior.scales, signs * outputs.dot(prior.means), scales)
        start = None if before is None else problem.start(before.means - prior.means, before.scales)
        found, proof = train_laplace(
            problem, self.solver, tol=self.tol, max_iter=self.max_iter, start=start, report=self.report
        )
        delta, s = problem.split(found.parameters)
        laws = Laws(prior.means + delta, s)
        cause = APART if np.all(signs * outputs.dot(laws.means) > 0) else ""
        return Posterior(laws, found, proof, problem.floor, problem.trace, self._advice(found, cause + ELSE))

    def by_tail(self, outputs: Outputs, signs: Array, weights: Array, before: Laws | None) -> Posterior:
        """Return the best distributions with one common scale, for the loss that is the share of voters that err."""
        rows = TailRows(signs[:, None] * outputs.dense(slice(None)) * self.prior.scales, weights)
        found = train_tail(
            rows,
            self.fixed,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            start=None if before is None else before.means / before.scales,
            report=self.report,
        )
        scales = found.sigma * self.prior.scales
        is_between = self.fixed is None and found.solution.status is Status.UNCERTIFIED
        advice = self._advice(found.solution, BETWEEN if is_between else ELSE)
        floor = TailProblem(rows, 1.0).floor
        laws = Laws(found.means * scales, scales)
        return Posterior(laws, found.solution, found.proof, floor, found.trace, advice, found.n_sigma_solves)

    def _advice(self, found: Solution, otherwise: str) -> str:
        """Return why a fit is not certified and what to do; empty if it is certified."""
        if found.status is Status.SOLVED:
            return ""
        if found.status is Status.ITERATION_LIMIT:
            return found.advice
        # solver=None tries more than one solver
        return otherwise if self.solver is None else f"Use solver=None. {otherwise}"
