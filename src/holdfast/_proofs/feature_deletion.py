"""The proof for rows whose features are deleted within a budget."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import dense, rescaled
from holdfast._core.row_forms import Array
from holdfast._core.solution import Solution
from holdfast._core.tolerances import ROUNDING
from holdfast._problems.feature_deletion import FeatureDeletionProblem
from holdfast._proofs.consistency import consistent


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
    asked, sack, pulls = problem.loss.asked, problem.loss.knapsack, pi * problem.signs
    finite = np.where(np.isfinite(sack.prices), sack.prices, 0.0)
    worth, pull = float(pi.sum()) * float(asked.sum()), problem.rows.transpose_dot(pulls)
    for rows, X in problem.rows.blocks():
        d = rescaled(_shares(deleted[rows]), np.ones(len(pi[rows])), np.where(finite > 0, 1.0, 0.0))
        spent = d @ finite
        d = rescaled(d, np.minimum(1.0, sack.capacity / np.where(spent > 0, spent, np.inf)))
        worth -= float(pi[rows] @ (d @ asked))
        pull -= (d.multiply(X) if sparse.issparse(d) else d * dense(X)).T @ pulls[rows]
    return worth - problem.limit * float(np.sum(np.abs(pull)))


def _shares(guess: Any) -> Any:
    """Return a guess as shares from 0 to 1, sparse where it is."""
    if not sparse.issparse(guess):
        return np.clip(np.nan_to_num(guess), 0.0, 1.0)
    found = sparse.csr_array(guess)
    found.data = np.clip(np.nan_to_num(found.data), 0.0, 1.0)
    return found


def deletion_proof(problem: FeatureDeletionProblem, w: Array, b: float, slopes: Array, deleted: Any) -> DeletionProof:
    """Return what a dual guess, as `deletion_bound` takes it, proves of weights and an intercept."""
    return DeletionProof.of(problem, problem.objective(w, b), max(deletion_bound(problem, slopes, deleted), 0.0))


Trained = tuple[Solution, DeletionProof]
