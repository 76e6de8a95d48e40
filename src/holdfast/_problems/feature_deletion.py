"""The smallest mean loss of rows whose features may be deleted within a budget, and its linear program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import ratio, rescaled, without_duplicates
from holdfast._core.problem import Problem
from holdfast._core.programs import ConeProgram, DeletionProgram, LinearProgram
from holdfast._core.row_forms import Array
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess
from holdfast.uncertainty.deletion_loss import DeletionLoss


@dataclass(frozen=True)
class FeatureDeletionProblem(Problem):
    r"""The smallest mean loss when an adversary deletes features of every row.

    .. math::
        \min_{|w_j| \le C,\,b} \sum_i c_i \Bigl[\max_{d \in D}\ \sum_j (1 - d_j) \bigl(\gamma v_j / P - y_i w_j x_{ij}\bigr)
        - y_i b\Bigr]_+ , \qquad P = \sum_j v_j - N .

    D contains the adversary's choices: in (3) of Dekel and Shamir, sets of features worth at most N; in (4), also
    shares of features.

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
        """The factor of b in each row's margin: the label, or 0 without an intercept."""
        return self.signs if self.fit_intercept else np.zeros_like(self.signs)

    @property
    def n_parameters(self) -> int:
        return self.rows.n_features + 1

    @property
    def floor(self) -> float:
        """The margin times the total weight: gaps are relative to it where the objective is smaller."""
        return self.loss.margin * float(self.weights.sum())

    def take(self, rows: NDArray[np.intp]) -> FeatureDeletionProblem:
        """Return the problem on some of the rows."""
        return replace(self, rows=self.rows.take(rows), signs=self.signs[rows], weights=self.weights[rows])

    def worst(self, w: Array, b: float) -> Iterator[tuple[slice, Any, Array]]:
        """Yield (rows, the deleted share of each entry, the deficit, whose positive part is the loss)."""
        for rows, X in self.rows.blocks():
            margins = rescaled(without_duplicates(X), self.signs[rows], w)
            deficits, deleted = self.loss.worst_of(margins, self.bias[rows] * b)
            yield rows, deleted, deficits

    def objective(self, w: Array, b: float) -> float:
        """Return the weighted sum of the losses."""
        return float(sum(self.weights[rows] @ np.maximum(deficits, 0.0) for rows, _, deficits in self.worst(w, b)))

    def work(self) -> dict[str, Any]:
        """Return the sizes from which solvers judge whether they suit."""
        n, d = self.rows.n_samples, self.rows.n_features
        return {"n_samples": n, "n_features": d, "n_entries": self.rows.n_entries, "is_cheap_to_factorise": True}


@FeatureDeletionProblem.seen_as(DeletionProgram)
def deletion_program(problem: FeatureDeletionProblem) -> DeletionProgram:
    """Return the problem in the form for the structured interior point."""
    is_deletable = np.isfinite(problem.loss.knapsack.prices)
    return DeletionProgram(
        problem.rows,
        problem.signs,
        problem.weights,
        problem.loss.knapsack.prices,
        problem.loss.knapsack.capacity,
        np.where(is_deletable, problem.loss.asked, 0.0),
        base=float(problem.loss.asked @ ~is_deletable),
        ridge=0.0,
        limit=problem.limit,
        floor=problem.floor,
        fit_intercept=problem.fit_intercept,
    )


@FeatureDeletionProblem.seen_as(ConeProgram)
@FeatureDeletionProblem.seen_as(LinearProgram)
def published_program(problem: FeatureDeletionProblem) -> LinearProgram:
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
