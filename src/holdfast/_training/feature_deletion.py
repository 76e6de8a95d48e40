"""Training for deletions of features within a budget: by one program, in chunks, or by generating rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense, ratio
from holdfast._core.problem import Offer, Problem
from holdfast._core.programs import ConeProgram, LinearProgram
from holdfast._core.row_forms import Array
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.feature_deletion import FeatureDeletionProblem
from holdfast._proofs.feature_deletion import DeletionProof, deletion_bound, deletion_proof
from holdfast.solvers import Highs
from holdfast.solvers.selection import pick

SMALL_PROGRAM = 1e5
"""Most entries of the rows with which a general solver gets the linear program if the structured solver fails."""
VIOLATED = 1e-3
"""A deletion is added for a row if its loss exceeds the loss in the current program by this share of `tol`."""
Trained = tuple[Solution, DeletionProof]


def train_deletion(
    problem: FeatureDeletionProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    n_chunks: int = 1,
    report: Report = silent,
) -> Trained:
    """Return the solution of a problem with a fractional adversary, and its proof.

    With more than one chunk, the rows of each class are dealt out evenly, and the mean of the chunks' models is
    returned, as published. Together the chunks' dual weights give a lower bound for all rows.
    """
    chosen = pick(problem, solver)
    n = problem.rows.n_features
    parts = [np.arange(len(problem.signs))] if n_chunks == 1 else _dealt(problem.signs, n_chunks)
    mean, slopes, deleted = np.zeros(n + 1), np.zeros(len(problem.signs)), []
    found: list[Solution] = []
    for rows in parts:
        part = problem if n_chunks == 1 else problem.take(rows)
        own = chosen.minimise(part, np.zeros(n + 1), tol=tol, max_iter=max_iter, report=report)
        found.append(own)
        mean[: len(own.parameters)] += own.parameters * float(part.weights.sum() / problem.weights.sum())
        if own.dual is not None:
            slopes[rows] = own.dual.slopes
        deleted.append(sparse.csr_array((len(rows), n)) if own.dual is None else own.dual.points)
    mean[:n] = np.clip(mean[:n], -problem.limit, problem.limit)
    mean[n] *= problem.fit_intercept
    proof = deletion_proof(problem, mean[:n], float(mean[n]), slopes, _joined(deleted, parts))
    worst = min(found, key=lambda each: each.status is Status.SOLVED)
    status = Status.CHUNKED if n_chunks > 1 else worst.status
    steps = max(each.n_iter for each in found)
    mean, proof = _flattened(problem, mean, proof)
    other = _other(problem, chosen, status) if solver is None and proof.gap > tol else None
    if other is not None:
        report(f"certified gap {proof.gap:.2e}; once more by {other.name}")
        again = train_deletion(problem, other, tol=tol, max_iter=max_iter, report=report)
        if again[1].gap < proof.gap:
            return again
    return _told(mean, proof, status, steps, chosen.name, tol), proof


def _other(problem: FeatureDeletionProblem, chosen: Solver, status: Status) -> Solver | None:
    """Return the solver to try next if the gap is still too large, None if there is none."""
    if status is Status.CHUNKED:
        return None
    # the simplex method copes with rows of very different weights
    is_small = problem.rows.n_samples * problem.rows.n_features <= SMALL_PROGRAM
    is_stuck = is_small and status not in (Status.ITERATION_LIMIT, Status.SLOW)
    return Highs() if is_stuck else chosen.stand_in(problem.work())


def _flattened(problem: FeatureDeletionProblem, found: Array, proof: DeletionProof) -> tuple[Array, DeletionProof]:
    """Return w = 0 with the best intercept, and its proof by the same bound, unless the found parameters are better."""
    w = np.zeros(problem.rows.n_features)
    asked = problem.objective(w, 0.0) / float(problem.weights.sum())
    costs = {b: problem.objective(w, b) for b in ((0.0, asked, -asked) if problem.fit_intercept else (0.0,))}
    b = min(costs, key=lambda each: costs[each])
    if costs[b] > proof.objective * (1 + ROUNDING):
        return found, proof
    return np.append(w, b), DeletionProof.of(problem, costs[b], proof.lower_bound)


def _told(parameters: Array, proof: DeletionProof, status: Status, n_iter: int, name: str, tol: float) -> Solution:
    """Return the solution with the status, the objective and the bound of its proof."""
    if proof.gap <= tol:
        status = Status.SOLVED
    elif status is Status.SOLVED:
        status = Status.UNCERTIFIED
    return Solution(parameters, status, proof.objective, n_iter, name, proof.lower_bound)


def _dealt(signs: Array, n_chunks: int) -> list[NDArray[np.intp]]:
    """Return the rows of each chunk: the rows of each class are dealt out to the chunks in turn."""
    order = np.argsort(signs, kind="stable")
    starts = np.concatenate([np.arange(np.count_nonzero(signs == sign)) for sign in (-1.0, 1.0)])
    return [np.sort(order[starts % n_chunks == k]) for k in range(n_chunks)]


def _joined(parts: Sequence[Any], rows: Sequence[NDArray[np.intp]]) -> Any:
    """Return the parts joined, with rows in their original order."""
    if len(parts) == 1:
        return parts[0]
    places = np.argsort(np.concatenate(rows))
    if any(map(sparse.issparse, parts)):
        return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")[places]
    return np.concatenate(parts)[places]


@dataclass(frozen=True)
class _Master(Problem):
    """The problem with some deletions only: the k-th deletes the features in `deleted[k]` from row `owners[k]`."""

    problem: FeatureDeletionProblem
    X: Array
    owners: NDArray[np.intp]
    deleted: Array

    views = dict.fromkeys((LinearProgram, ConeProgram), Offer(lambda master: master.program()))

    def program(self) -> LinearProgram:
        """Return the linear program."""
        problem, owners = self.problem, self.owners
        m, n = self.X.shape
        y, kept = problem.signs[owners], 1 - self.deleted
        one = sparse.coo_array((np.ones(len(owners)), (np.arange(len(owners)), owners)), shape=(len(owners), m))
        cuts = sparse.hstack([sparse.csr_array(y[:, None] * kept * self.X[owners]), problem.bias[owners, None], one])
        bounds = sparse.eye_array(n + 1 + m, format="csr")
        A = sparse.vstack([-cuts, bounds[:n], -bounds[:n], -bounds[n + 1 :]], format="csc")
        right = np.concatenate([-kept @ problem.loss.asked, np.full(2 * n, problem.limit), np.zeros(m)])
        q = np.concatenate([np.zeros(n + 1), problem.weights])
        return LinearProgram(
            sparse.csc_matrix((len(q), len(q))),
            q,
            sparse.csc_matrix(A),
            right,
            [("nonnegative", len(right))],
            n + 1,
            dual_guess=self._dual_guess,
        )

    def _dual_guess(self, parameters: Array, multipliers: Array) -> DualGuess:
        m, n = self.X.shape
        beta = np.maximum(multipliers[: len(self.owners)], 0.0)
        pi = np.asarray(np.bincount(self.owners, beta, m), dtype=np.float64)
        share = sparse.coo_array((beta, (self.owners, np.arange(len(beta)))), shape=(m, len(beta)))
        deleted = ratio(np.asarray(share @ self.deleted), pi[:, None])
        return DualGuess(ratio(pi, self.problem.weights), parameters[:n], np.zeros(m), points=deleted)


def generate_rows(
    problem: FeatureDeletionProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    report: Report = silent,
) -> Trained:
    """Return the solution of a problem with an adversary that deletes whole features, and its proof.

    Each of up to `max_iter` rounds solves a linear program with the deletions so far, whose optimum is a lower bound,
    and adds the worst deletions at its solution. The first deletions are the worst ones at the solution for an
    adversary who deletes shares of features.
    """
    n, zero = problem.rows.n_features, np.zeros(problem.n_parameters)
    relaxed = replace(problem, loss=replace(problem.loss, knapsack=replace(problem.loss.knapsack, is_whole=False)))
    z = np.append(pick(relaxed).minimise(relaxed, zero, tol=0.1, max_iter=max_iter).parameters, 0.0)[: n + 1]
    X = np.concatenate([block for _, block in problem.rows.dense_blocks()])
    owners, deleted = np.arange(len(problem.signs)), np.zeros(X.shape)
    chosen = pick(_Master(problem, X, owners, deleted), Highs() if solver is None else solver)
    best, value, bound, status, n_iter = zero, np.inf, 0.0, Status.ITERATION_LIMIT, 0
    promised = np.full(len(problem.signs), -np.inf)
    for n_iter in range(1, max_iter + 1):
        worst = list(problem.worst(z[:n], float(z[n])))
        d, deficits = (np.concatenate([dense(each[k]) for each in worst]) for k in (1, 2))
        found = float(problem.weights @ np.maximum(deficits, 0.0))
        if found < value:
            best, value = z, found
        proof = DeletionProof.of(problem, value, bound)
        report(f"row generation {n_iter}: {len(owners)} rows, objective {value:.10g}, certified gap {proof.gap:.2e}")
        added = np.flatnonzero((problem.weights > 0) & (deficits > promised + VIOLATED * tol * problem.loss.margin))
        if proof.gap <= tol or len(added) == 0:
            status = Status.STALLED
            break
        owners, deleted = np.concatenate([owners, added]), np.concatenate([deleted, d[added]])
        master = _Master(problem, X, owners, deleted)
        step = chosen.minimise(master, zero, tol=tol, max_iter=1000, report=report)
        z = np.append(np.clip(step.parameters[:n], -problem.limit, problem.limit), step.parameters[n])
        if step.dual is not None:
            bound = max(bound, deletion_bound(problem, step.dual.slopes, step.dual.points))
        gains = problem.bias[owners] * z[n] + np.sum(
            (1 - deleted) * (problem.signs[owners, None] * X[owners] * z[:n] - problem.loss.asked), axis=1
        )
        promised = np.zeros(len(problem.signs))
        np.maximum.at(promised, owners, -gains)
    best[n] *= problem.fit_intercept
    best, proof = _flattened(problem, best, DeletionProof.of(problem, value, bound))
    return _told(best, proof, status, n_iter, chosen.name, tol), proof
