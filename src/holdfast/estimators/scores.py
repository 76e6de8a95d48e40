"""How far sets and noise move the scores of linear classifiers, those of this library and others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_array

from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets
from holdfast.estimators.linear import predicted_codes, shares_of_classes

SINGLE = 1e-3
"""Tolerance for scores that are computed in float32, as a share of the largest score."""


def coefficients_of(estimator: Any, X: Any, scores: Array, call: str) -> Array:
    """Return `coef_` of a fitted classifier, (1 or n_classes, n_features), after checking that its scores follow from it."""
    coef, intercept = getattr(estimator, "coef_", None), getattr(estimator, "intercept_", None)
    if coef is None or intercept is None:
        raise ValueError(
            f"{call}: {type(estimator).__name__} has no coef_ and intercept_. Give a linear classifier; one behind scalers or "
            "other steps goes into an UncertainPipeline."
        )
    coef = np.atleast_2d(np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef, dtype=np.float64))
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False)
    made = np.asarray(safe_sparse_dot(X, coef.T, dense_output=True) + intercept).reshape(len(scores), -1)
    given = scores.reshape(len(scores), -1)
    slack = SINGLE * (1.0 + np.abs(given).max(initial=0.0))
    if made.shape != given.shape or np.abs(made - given).max(initial=0.0) > slack:
        raise ValueError(
            f"{call}: the scores of this {type(estimator).__name__} are not X @ coef_.T + intercept_, so what errors do to "
            "them is not known. Give a linear classifier with one score for two classes, or one for each of several."
        )
    return coef


def pushes(coef: Array, sets: RowSets, codes: NDArray[np.intp]) -> Array:
    """Return how far the sets can lower the lead of class `codes` over each class, (n_samples, n_classes); own: 0."""
    out = np.zeros((len(codes), len(coef)))
    for k, w in enumerate(coef):
        rows = np.flatnonzero(codes == k)
        own = sets.take(rows)
        for other in range(len(coef)):
            if other != k:
                out[rows, other] = own.support(coef[other] - w)
    return out


def score_deviations(scores: Array, coef: Array, noise: RowSets) -> Array:
    """Return the standard deviation of each score, or of each lead of the predicted class, in the shape of `scores`."""
    if scores.ndim > 1:
        return pushes(coef, noise, predicted_codes(scores))
    return np.array(np.broadcast_to(noise.support(coef[0]), len(scores)))


def in_deviations(lead: Array, t: Array) -> Array:
    """Return lead / t; inf where t is 0."""
    return np.divide(lead, t, out=np.full(lead.shape, np.inf), where=t > 0)


def against_the_rest(
    scores: Array, coef: Array, noise: RowSets | None, expected: Callable[[Array, Array], Array]
) -> Array:
    """Return the probabilities of each class against the rest, averaged over the noise and scaled to sum to 1.

    `expected(f, t)` is the probability at a score f with standard deviation t. With several classes, t is the root mean
    square of their deviations for all of them, so that the predicted class is the likeliest.
    """
    columns = scores.reshape(len(scores), -1)
    squares = [np.zeros(()) if noise is None else np.square(noise.support(w)) for w in coef]
    t = np.sqrt(np.mean(squares, axis=0))
    positive = np.column_stack([expected(score, t) for score in columns.T])
    return np.column_stack([1.0 - positive, positive]) if len(coef) == 1 else shares_of_classes(positive)


def among_all(
    scores: Array,
    coef: Array,
    noise: RowSets | None,
    expected: Callable[[Array, Array], Array],
    *,
    is_alike: bool = False,
) -> Array:
    r"""Return softmax probabilities of several classes, approximately averaged over the noise.

    With :math:`p_{kl} = \mathbb E\,\mathrm{sigmoid}(f_k - f_l + t_{kl} Z)`, which is exact for every pair of classes,
    and the standard deviation :math:`t_{kl}` of the difference of their scores,

    .. math:: q_k = \Bigl(1 + \sum_{l \ne k} \frac{1 - p_{kl}}{p_{kl}}\Bigr)^{-1}, \qquad p_k = q_k / \textstyle\sum_l q_l

    (a mean-field form of Lu, Ie & Sha, 2020). Without noise this is the softmax; with two classes it is exact; a number
    added to all scores changes nothing. With `is_alike`, each :math:`t_{kl}` is replaced by the root mean square of the
    row's deviations: this is rougher, but the class with the highest score is then the likeliest.
    """
    pairs = list(combinations(range(len(coef)), 2))
    squares = [np.zeros(()) if noise is None else np.square(noise.support(coef[k] - coef[other])) for k, other in pairs]
    if is_alike:
        squares = [np.mean(squares, axis=0)] * len(pairs)
    odds = np.ones(scores.shape)
    for (k, other), square in zip(pairs, squares, strict=True):
        lead, t = scores[:, k] - scores[:, other], np.sqrt(square)
        first, second = expected(lead, t), expected(-lead, t)
        with np.errstate(divide="ignore", over="ignore"):
            odds[:, k] += second / first
            odds[:, other] += first / second
    return shares_of_classes(1.0 / odds)
