"""Rows whose features are deleted within a budget: the problem, its linear program, its proof and its training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import ratio
from holdfast._core.problem import ConeProgram, DeletionProgram, LinearProgram, Problem, View
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import ROUNDING
from holdfast._proofs.consistency import consistent
from holdfast.solvers import Highs
from holdfast.solvers.selection import pick
from holdfast.uncertainty.knapsack import Array, DeletionLoss

SMALL_PROGRAM = 1e5
"""Entries of the rows up to which the whole linear program is handed to a general solver where the structured one fails."""
VIOLATED = 1e-3
"""Share of `tol` by which a loss must exceed what the rows so far say before another one is generated."""


@dataclass(frozen=True)
class FeatureDeletionProblem(Problem):
    r"""The smallest mean loss when an adversary deletes features of every row.

    .. math::
        \min_{|w_j| \le C,\,b} \sum_i c_i \Bigl[\max_{d \in D}\ \sum_j (1 - d_j) \bigl(\gamma v_j / P - y_i w_j x_{ij}\bigr)
        - y_i b\Bigr]_+ , \qquad P = \sum_j v_j - N .

    D is what the adversary may choose: (3) of Dekel and Shamir has sets of features worth at most N, (4) shares of features
    too.

    Parameters
    ----------
    rows : Rows
    signs : ndarray of shape (n_samples,)
    weights : ndarray of shape (n_samples,)
        c, summing to 1 for a mean.
    loss : DeletionLoss
        Its prices are > 0.
    limit : float
        C.
    fit_intercept : bool
        Whether b is free; it is 0 otherwise.
    """

    rows: Rows
    signs: Array
    weights: Array
    loss: DeletionLoss
    limit: float
    fit_intercept: bool = True

    @property
    def bias(self) -> Array:
        """What b is multiplied by in each row's score, against_labels its label."""
        return self.signs if self.fit_intercept else np.zeros_like(self.signs)

    @property
    def n_parameters(self) -> int:
        return self.rows.n_features + 1

    @property
    def floor(self) -> float:
        """What the gap is measured against where the objective is smaller: the margin."""
        return self.loss.margin * float(self.weights.sum())

    def take(self, rows: NDArray[np.intp]) -> FeatureDeletionProblem:
        """Return the problem of some of the rows."""
        return replace(self, rows=self.rows.take(rows), signs=self.signs[rows], weights=self.weights[rows])

    def worst(self, w: Array, b: float) -> Iterator[tuple[slice, Array, Array]]:
        """Yield (which rows, what is deleted of each entry, the deficit then: the loss is its positive part)."""
        for rows, X in self.rows.dense_blocks():
            y = self.signs[rows]
            deficits, left = self.loss.deficits(y[:, None] * X * w, self.bias[rows] * b)
            yield rows, 1 - left, deficits

    def objective(self, w: Array, b: float) -> float:
        """Return the weighted sum of the losses."""
        return float(sum(self.weights[rows] @ np.maximum(deficits, 0.0) for rows, _, deficits in self.worst(w, b)))

    def view(self, kind: type[View]) -> View | None:
        found: Any = super().view(kind)
        if kind is DeletionProgram:
            found = self._deletion_program()
        elif kind in (LinearProgram, ConeProgram):
            found = _published_program(self)
        return found

    def offers(self, kind: type) -> bool:
        return kind in (DeletionProgram, LinearProgram, ConeProgram) or super().offers(kind)

    def _deletion_program(self) -> DeletionProgram:
        is_deletable = np.isfinite(self.loss.knapsack.prices)
        return DeletionProgram(
            self.rows,
            self.signs,
            self.weights,
            self.loss.knapsack.prices,
            self.loss.knapsack.capacity,
            np.where(is_deletable, self.loss.asked, 0.0),
            base=float(self.loss.asked @ ~is_deletable),
            ridge=0.0,
            limit=self.limit,
            floor=self.floor,
            fit_intercept=self.fit_intercept,
        )

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit."""
        n, d = self.rows.n_samples, self.rows.n_features
        return {"n_samples": n, "n_features": d, "n_entries": self.rows.n_entries, "is_cheap_to_factorise": True}


def _published_program(problem: FeatureDeletionProblem) -> LinearProgram:
    r"""Return (4) of Dekel and Shamir, O(n_samples * n_features) variables: w, b, xi, the prices and alpha."""
    X = np.concatenate([block for _, block in problem.rows.dense_blocks()])
    (m, n), y, v, asked = X.shape, problem.signs, problem.loss.knapsack.prices, problem.loss.asked
    A, each = y[:, None] * X, np.arange(m)
    deletable = np.flatnonzero(np.isfinite(v))
    k = len(deletable)
    needed = float(v[deletable].sum()) - problem.loss.knapsack.capacity
    q = np.concatenate([np.zeros(n + 1), problem.weights, np.zeros(m + m * k)])
    entry, owner, column = np.arange(m * k), np.repeat(each, k), np.tile(deletable, m)
    fixed = A.copy()
    fixed[:, deletable] = 0.0
    one = sparse.eye_array(m)
    own = sparse.coo_array((np.ones(m * k), (owner, entry)), shape=(m, m * k))
    first = sparse.hstack([sparse.csr_array(fixed), problem.bias[:, None], one, needed * one, -own])
    second = sparse.hstack(
        [
            sparse.coo_array((A[:, deletable].ravel(), (entry, column)), shape=(m * k, n)),
            sparse.coo_array((m * k, 1 + m)),
            sparse.coo_array((-np.tile(v[deletable], m), (entry, owner)), shape=(m * k, m)),
            sparse.eye_array(m * k),
        ]
    )
    bounds = sparse.eye_array(len(q), format="csr")
    A_all = sparse.vstack([-first, -second, bounds[:n], -bounds[:n], -bounds[n + 1 :]], format="csc")
    wanted = np.concatenate([np.full(m, asked @ np.isinf(v)), np.tile(asked[deletable], m)])
    right = np.concatenate([-wanted, np.full(2 * n, problem.limit), np.zeros(len(q) - n - 1)])

    def dual_guess(parameters: Array, multipliers: Array) -> DualGuess:
        pi, t = multipliers[:m], multipliers[m : m + m * k].reshape(m, k)
        deleted = np.zeros((m, n))
        deleted[:, deletable] = 1 - ratio(t, pi[:, None])
        return DualGuess(ratio(pi, problem.weights), parameters[:n], np.zeros(m), points=deleted)

    P = sparse.csc_matrix((len(q), len(q)))
    cones = [("nonnegative", len(right))]
    return LinearProgram(P, q, sparse.csc_matrix(A_all), right, cones, n + 1, dual_guess=dual_guess)


class DeletionProof(NamedTuple):
    """What is proved about weights and an intercept."""

    objective: float
    lower_bound: float
    """A number that no weights can go below."""
    gap: float
    """(objective - lower_bound) / max(objective, margin), for weights that sum to 1."""

    @classmethod
    def of(cls, problem: FeatureDeletionProblem, objective: float, bound: float) -> DeletionProof:
        """Return what a lower bound proves of an objective."""

        def rounding() -> float:
            sizes = np.sqrt(float(problem.weights.sum()) * problem.rows.square_sums(problem.weights))
            return ROUNDING * (problem.floor + problem.limit * float(np.sum(sizes)))

        bound = consistent(objective, bound, rounding)
        return cls(objective, bound, (objective - bound) / max(objective, problem.floor))


def deletion_bound(problem: FeatureDeletionProblem, slopes: Array, deleted: Any) -> float:
    r"""Return a number that no weights can go below, whatever the guess, from the data alone.

    For :math:`0 \le \pi_i \le c_i` with :math:`\sum_i y_i \pi_i = 0` and shares d in [0, 1] worth no more than the capacity
    in every row,

    .. math:: \sum_{ij} \pi_i (1 - d_{ij}) \gamma v_j / P - C \Bigl\| \sum_i \pi_i y_i\, x_i \circ (1 - d_i) \Bigr\|_1

    bounds (4) from below. A guess is made such a point: the larger class shrinks to the smaller, and so do deletions to the
    capacity. It bounds (3) too where every :math:`d_i` is a mean of sets that the adversary of (3) may delete.

    Parameters
    ----------
    problem : FeatureDeletionProblem
    slopes : ndarray of shape (n_samples,)
        :math:`\pi / c`.
    deleted : {ndarray, csr_array} of shape (n_samples, n_features)
        d.
    """
    pi = problem.weights * np.clip(np.nan_to_num(slopes), 0.0, 1.0)
    sums = [float(pi[problem.signs == sign].sum()) for sign in (-1.0, 1.0)]
    if problem.fit_intercept:
        pi = pi * np.where(problem.signs > 0, *(min(sums) / (each or 1.0) for each in sums[::-1]))
    worth, pull = 0.0, np.zeros(problem.rows.n_features)
    sack = problem.loss.knapsack
    finite = np.where(np.isfinite(sack.prices), sack.prices, 0.0)
    for rows, X in problem.rows.dense_blocks():
        d = deleted[rows].toarray() if sparse.issparse(deleted) else deleted[rows]
        d = np.clip(np.nan_to_num(d), 0.0, 1.0) * (finite > 0)
        spent = d @ finite
        d = d * np.minimum(1.0, sack.capacity / np.where(spent > 0, spent, np.inf))[:, None]
        kept = pi[rows, None] * (1 - d)
        worth += float(np.sum(kept @ problem.loss.asked))
        pull += np.sum(problem.signs[rows, None] * kept * X, axis=0)
    return worth - problem.limit * float(np.sum(np.abs(pull)))


def deletion_proof(problem: FeatureDeletionProblem, w: Array, b: float, slopes: Array, deleted: Any) -> DeletionProof:
    """Return what a dual guess, as `deletion_bound` takes it, proves of weights and an intercept."""
    return DeletionProof.of(problem, problem.objective(w, b), max(deletion_bound(problem, slopes, deleted), 0.0))


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
    """Return the solution of a problem with a fractional adversary, and what is proved of it.

    With more than one chunk rows are dealt out, each class evenly, and the mean of the chunks' models is returned, as
    published. The chunks' dual weights together prove what it is worth on all rows.
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
        deleted.append(np.zeros((len(rows), n)) if own.dual is None else own.dual.points)
    mean[:n] = np.clip(mean[:n], -problem.limit, problem.limit)
    mean[n] *= problem.fit_intercept
    proof = deletion_proof(problem, mean[:n], float(mean[n]), slopes, _joined(deleted, parts))
    worst = min(found, key=lambda each: each.status is Status.SOLVED)
    status = Status.CHUNKED if n_chunks > 1 else worst.status
    steps = max(each.n_iter for each in found)
    mean, proof = _flattened(problem, mean, proof)
    is_stuck = proof.gap > tol and status not in (Status.ITERATION_LIMIT, Status.CHUNKED)
    if is_stuck and solver is None and problem.rows.n_samples * n <= SMALL_PROGRAM:
        report("once more by the simplex method, which rows of very different weights do not disturb")
        again = train_deletion(problem, Highs(), tol=tol, max_iter=max_iter, report=report)
        if again[1].gap < proof.gap:
            return again
    return _told(mean, proof, status, steps, chosen.name, tol), proof


def _flattened(problem: FeatureDeletionProblem, found: Array, proof: DeletionProof) -> tuple[Array, DeletionProof]:
    """Return w = 0 with the best intercept, and what the same bound proves of it, where what was found is no better."""
    w = np.zeros(problem.rows.n_features)
    asked = problem.objective(w, 0.0) / float(problem.weights.sum())
    costs = {b: problem.objective(w, b) for b in ((0.0, asked, -asked) if problem.fit_intercept else (0.0,))}
    b = min(costs, key=lambda each: costs[each])
    if costs[b] > proof.objective * (1 + ROUNDING):
        return found, proof
    return np.append(w, b), DeletionProof.of(problem, costs[b], proof.lower_bound)


def _told(parameters: Array, proof: DeletionProof, status: Status, n_iter: int, name: str, tol: float) -> Solution:
    """Return the solution as its proof has it."""
    if proof.gap <= tol:
        status = Status.SOLVED
    elif status is Status.SOLVED:
        status = Status.UNCERTIFIED
    return Solution(parameters, status, proof.objective, n_iter, name, proof.lower_bound)


def _dealt(signs: Array, n_chunks: int) -> list[NDArray[np.intp]]:
    """Return the rows of each chunk: those of either class are dealt out in turn."""
    order = np.argsort(signs, kind="stable")
    starts = np.concatenate([np.arange(np.count_nonzero(signs == sign)) for sign in (-1.0, 1.0)])
    return [np.sort(order[starts % n_chunks == k]) for k in range(n_chunks)]


def _joined(parts: Sequence[Any], rows: Sequence[NDArray[np.intp]]) -> Any:
    """Return the rows of the parts in their places."""
    if len(parts) == 1:
        return parts[0]
    places = np.argsort(np.concatenate(rows))
    if any(map(sparse.issparse, parts)):
        return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")[places]
    return np.concatenate(parts)[places]


@dataclass(frozen=True)
class _Master(Problem):
    """The problem with some deletions only: of row `owners[k]` the features that `deleted[k]` marks."""

    problem: FeatureDeletionProblem
    X: Array
    owners: NDArray[np.intp]
    deleted: Array

    def offers(self, kind: type) -> bool:
        return kind in (LinearProgram, ConeProgram) or super().offers(kind)

    def view(self, kind: type[View]) -> View | None:
        if kind not in (LinearProgram, ConeProgram):
            return super().view(kind)
        problem, owners = self.problem, self.owners
        m, n = self.X.shape
        y, kept = problem.signs[owners], 1 - self.deleted
        one = sparse.coo_array((np.ones(len(owners)), (np.arange(len(owners)), owners)), shape=(len(owners), m))
        cuts = sparse.hstack([sparse.csr_array(y[:, None] * kept * self.X[owners]), problem.bias[owners, None], one])
        bounds = sparse.eye_array(n + 1 + m, format="csr")
        A = sparse.vstack([-cuts, bounds[:n], -bounds[:n], -bounds[n + 1 :]], format="csc")
        right = np.concatenate([-kept @ problem.loss.asked, np.full(2 * n, problem.limit), np.zeros(m)])
        q = np.concatenate([np.zeros(n + 1), problem.weights])
        program: Any = LinearProgram(
            sparse.csc_matrix((len(q), len(q))),
            q,
            sparse.csc_matrix(A),
            right,
            [("nonnegative", len(right))],
            n + 1,
            dual_guess=self._dual_guess,
        )
        return program

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
    """Return the solution of a problem with an adversary that deletes whole features, and what is proved of it.

    Each of up to `max_iter` rounds solves a linear program of the deletions so far, whose optimum is a lower bound, and adds
    the worst deletions at its solution. The first come from the solution for an adversary who deletes shares.
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
        deficits, d = (np.concatenate([each[k] for each in worst]) for k in (2, 1))
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
