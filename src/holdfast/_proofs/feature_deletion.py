"""The proof for rows whose features may be deleted within a budget."""

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
    """The objective of weights and an intercept, and the lower bound that was proved."""

    objective: float
    lower_bound: float
    """A lower bound on the objective of any weights."""
    gap: float
    """(objective - lower_bound) / max(objective, margin), for weights that sum to 1."""

    @classmethod
    def of(cls, problem: FeatureDeletionProblem, objective: float, bound: float) -> DeletionProof:
        """Return the proof that an objective and a lower bound give."""

        def rounding() -> float:
            sizes = np.sqrt(float(problem.weights.sum()) * problem.rows.square_sums(problem.weights))
            return ROUNDING * (problem.floor + problem.limit * float(np.sum(sizes)))

        bound = consistent(objective, bound, rounding)
        return cls(objective, bound, (objective - bound) / max(objective, problem.floor))


def deletion_bound(problem: FeatureDeletionProblem, slopes: Array, deleted: Any) -> float:
    r"""Return a lower bound on the objective of any weights, valid for every guess and computed from the data alone.

    For :math:`0 \le \pi_i \le c_i` with :math:`\sum_i y_i \pi_i = 0` and shares d in [0, 1] worth no more than the capacity
    in every row,

    .. math:: \sum_{ij} \pi_i (1 - d_{ij}) \gamma v_j / P - C \Bigl\| \sum_i \pi_i y_i\, x_i \circ (1 - d_i) \Bigr\|_1

    bounds (4) from below. To make a guess feasible, the dual weights of the heavier class are shrunk until the class
    sums are equal, and deletions are shrunk to the capacity. The expression also bounds (3) where every :math:`d_i` is
    a mean of sets that the adversary of (3) may delete.

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
    """Return a guess clipped to shares in [0, 1], sparse if the guess is."""
    if not sparse.issparse(guess):
        return np.clip(np.nan_to_num(guess), 0.0, 1.0)
    found = sparse.csr_array(guess)
    found.data = np.clip(np.nan_to_num(found.data), 0.0, 1.0)
    return found


def deletion_proof(problem: FeatureDeletionProblem, w: Array, b: float, slopes: Array, deleted: Any) -> DeletionProof:
    """Return the proof for weights and an intercept, with the lower bound of a dual guess (see `deletion_bound`)."""
    return DeletionProof.of(problem, problem.objective(w, b), max(deletion_bound(problem, slopes, deleted), 0.0))


Trained = tuple[Solution, DeletionProof]
