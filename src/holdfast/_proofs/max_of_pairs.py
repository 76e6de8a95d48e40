"""The proof for several classes at once."""

from __future__ import annotations

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.max_of_pairs import MaxOfPairsProblem
from holdfast._proofs.certificate import UNGUESSED, Certificate, certificate
from holdfast._proofs.intercepts import best_constant
from holdfast._proofs.pairwise_certificate import deficits, proved_by


@certificate.register
def certificate_of_the_most_dangerous(
    problem: MaxOfPairsProblem, W: Array, b: Array, dual: DualGuess | None = None
) -> Certificate:
    """Return the certificate at (W, b) for losses of all classes at once, as for sums over pairs, in two passes."""
    W, b = W - W.mean(axis=0), b - b.mean()
    if dual is None:
        dual = problem.smoothed(UNGUESSED).dual_guess(problem.join(W, b))
    scores = problem.rows.dot(np.ascontiguousarray(W.T))
    reach = np.zeros_like(scores)
    for i, (own, sets) in enumerate(zip(problem.members, problem.own_sets, strict=True)):
        for other in set(range(problem.n_classes)) - {i}:
            reach[own, other] = sets.support(W[i] - W[other])
    asked = np.where(problem.labels[:, None] == np.arange(problem.n_classes), 1.0, 1.0 - problem.loss.margin)
    return proved_by(problem, W, b, problem.loss.value(deficits(problem, scores, b) - asked + reach), dual)


@best_constant.register
def best_constants(problem: MaxOfPairsProblem, b: Array) -> Array:
    """Return the best intercepts where all weights are 0."""
    return problem.loss.best_constant(problem.class_weights())
