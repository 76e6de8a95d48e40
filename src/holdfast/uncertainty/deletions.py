"""The features an adversary deletes from given rows, and the budget it needs to change a prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.allowed import Choice, Count, arguments
from holdfast._core.arithmetic import dense, rescaled
from holdfast._core.rounding import gamma, product_error
from holdfast._core.row_forms import Array
from holdfast.uncertainty.checks import feature_costs, numbers, stated_number
from holdfast.uncertainty.deletion_loss import ADVERSARIES
from holdfast.uncertainty.knapsacks import Knapsacks, cost_to_gain

BLOCK_ENTRIES = 5e7
"""The number of entries of rows in memory at a time."""
DELETION_ROUNDINGS = 4
"""The rounding errors of a score that are deducted from a lead: one each for the score computed here, the model's score
before and after the deletion, and the sum of gains."""


def worst_deletions(gains: Any, budget: Any, values: Any = None, *, adversary: str = "exact") -> Any:
    r"""Return the features of each row to delete so that its margin falls the most.

    Deleting feature j of row i lowers the row's margin by ``gains[i, j]``, which is :math:`y_i w_j x_{ij}` for a linear
    classifier of two classes. The deletions of a row are together worth at most `budget`.

    ==================  ===============================================================================================
    ``"exact"``         the best whole deletions: by sorting if all values except 0 and inf are equal, otherwise, for
                        multiples of a common unit, by dynamic programming in O(n_samples n_features budget)
    ``"relaxed"``       the best deletions in parts, any values; :class:`holdfast.FeatureDeletion` trains against these
    ``"greedy"``        whole deletions in order of gain per value, while they fit; not always the best ones
    ==================  ===============================================================================================

    Parameters
    ----------
    gains : {array-like, sparse matrix} of shape (n_samples, n_features)
    budget : float
        >= 0.
    values : array-like of shape (n_features,), default=None
        >= 0, 1 each by default; inf cannot be deleted.
    adversary : {"exact", "relaxed", "greedy"}, default="exact"

    Returns
    -------
    {ndarray, csr_array} of shape (n_samples, n_features)
        True where a feature is deleted; with "relaxed", the deleted share of it. Sparse if the gains are.

    Examples
    --------
    >>> worst_deletions([[3.0, 10.0]], 4, [1, 4])
    array([[False,  True]])
    >>> worst_deletions([[3.0, 10.0]], 4, [1, 4], adversary="greedy")
    array([[ True, False]])
    >>> worst_deletions([[3.0, 10.0]], 4, [1, 4], adversary="relaxed")
    array([[1.  , 0.75]])
    """
    call = "worst_deletions(..., %s=...)"
    Choice("exact", "relaxed", "greedy").checked(adversary, "worst_deletions(..., adversary")
    given = numbers(gains, call % "gains", "gains")
    costs = feature_costs(values, given.shape[1], call % "values")
    limit = stated_number(budget, "worst_deletions", "budget")
    entries = _entries(given, costs, limit)
    sacks = Knapsacks(entries.indptr, costs[entries.indices], limit)
    if adversary == "greedy":
        return _like(given, entries, sacks.in_order(sacks.worth(entries.data)))
    if adversary == "relaxed":
        return _like(given, entries, sacks.filled(entries.data).shares)
    exact = ADVERSARIES["exact"](costs, limit, "worst_deletions(adversary='exact')")
    if not exact.is_whole:
        units = Knapsacks(entries.indptr, exact.prices[entries.indices], exact.capacity)
        return _like(given, entries, units.filled(entries.data).shares > 0)
    size = max(1, int(BLOCK_ENTRIES / given.shape[1]))
    blocks = (entries[start : start + size].toarray() for start in range(0, given.shape[0], size))
    chosen = [exact.best(block) > 0 for block in blocks]
    return (
        sparse.vstack([sparse.csr_array(each) for each in chosen], format="csr")
        if sparse.issparse(given)
        else np.concatenate(chosen)
    )


def _entries(matrix: Any, costs: Array, limit: float) -> sparse.csr_array:
    """Return the entries that can be deleted and are not 0."""
    kept = sparse.csr_array(matrix * (np.isfinite(costs) & ((costs == 0) | (limit > 0))))
    kept.eliminate_zeros()
    return kept


def _like(matrix: Any, entries: sparse.csr_array, chosen: Any) -> Any:
    """Return the numbers `chosen`, one for each entry, as a matrix that is sparse if `matrix` is."""
    found = sparse.csr_array((chosen, entries.indices, entries.indptr), shape=entries.shape)
    return found if sparse.issparse(matrix) else found.toarray()


def random_deletions(X: Any, budget: Any, values: Any = None, *, random_state: Any = None) -> Any:
    """Return random features of each row to delete, drawn from those that are not 0 while they fit the budget.

    With unit values every set of `budget` nonzero features is equally likely, as in the experiments of Globerson and
    Roweis.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    budget : float
        >= 0.
    values : array-like of shape (n_features,), default=None
        >= 0, 1 each by default; inf cannot be deleted.
    random_state : int or None, default=None

    Returns
    -------
    {ndarray, csr_array} of shape (n_samples, n_features)
        True where a feature is deleted. Sparse if X is.

    Examples
    --------
    >>> random_deletions([[1.0, 0.0, 2.0, 3.0]], 2, random_state=0).sum()
    np.int64(2)
    """
    call = "random_deletions(..., %s=...)"
    given = numbers(X, call % "X", "X")
    costs = feature_costs(values, given.shape[1], call % "values")
    limit = stated_number(budget, "random_deletions", "budget")
    entries = _entries(given, costs, limit)
    order = np.random.default_rng(random_state).uniform(0.5, 1.0, size=entries.nnz)
    return _like(given, entries, Knapsacks(entries.indptr, costs[entries.indices], limit).in_order(order))


def deletions_survived(coef: Any, intercept: Any, X: Any, values: Any = None) -> Array:
    r"""Return the budget of deletions, whichever they are, that each prediction of a linear classifier survives.

    With unit values it is the largest number K of features such that the K largest gains :math:`y w_j x_j > 0` add up
    to less than the absolute score. If all values except 0 and inf equal v, it is K v. With other values it is the
    budget at which deletions in parts change the prediction; whole deletions worth less never change it. For several
    classes, with k predicted, it is the smallest result over all other classes l, with gains :math:`(w_k - w_l)_j x_j`
    and the lead :math:`f_k - f_l`.

    Parameters
    ----------
    coef : array-like of shape (n_features,), (1, n_features) or (n_classes, n_features)
    intercept : float or array-like of shape (1,) or (n_classes,)
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    values : array-like of shape (n_features,), default=None
        >= 0, 1 each by default; inf cannot be deleted.

    Returns
    -------
    ndarray of shape (n_samples,)
        inf if no deletion changes the prediction; 0 also if the score is a tie. Rounded down: a lead that may be due to
        rounding alone counts as 0.

    Examples
    --------
    >>> deletions_survived([1.0, 2.0, -1.0], 0.5, [[1.0, 1.0, 1.0], [3.0, 3.0, -1.0], [-1.0, 0.0, 0.0]])
    array([ 1., inf,  0.])
    """
    call = "deletions_survived(..., %s=...)"
    W = np.atleast_2d(numbers(coef, call % "coef", "coef"))
    b = np.atleast_1d(numbers(intercept, call % "intercept", "intercept"))
    rows = numbers(X, call % "X", "X")
    if W.ndim != 2 or b.shape != (len(W),) or rows.shape[1] != W.shape[1]:
        raise ValueError(
            f"deletions_survived(coef, intercept, X): shapes {W.shape}, {b.shape} and {rows.shape} do not fit together; give "
            "the coef_ and intercept_ of a model and rows of as many features."
        )
    costs = feature_costs(values, W.shape[1], call % "values")
    if len(W) == 1:
        # two classes: add a class whose score is always 0
        W, b = np.vstack([np.zeros(W.shape[1]), W]), np.append(0.0, b)
    scores = np.asarray(rows @ W.T + b)
    errors = product_error(rows, np.abs(W), np.abs(b), W.shape[1])
    predicted, survived = scores.argmax(axis=1), np.full(len(scores), np.inf)
    for k in range(len(W)):
        own = np.flatnonzero(predicted == k)
        for rival in (rival for rival in range(len(W)) if rival != k and len(own)):
            gains = rescaled(rows[own], np.ones(len(own)), W[k] - W[rival])
            lead = scores[own, k] - scores[own, rival] - DELETION_ROUNDINGS * (errors[own, k] + errors[own, rival])
            survived[own] = np.minimum(survived[own], lead_survives(gains, lead, costs))
    return survived


def lead_survives(gains: Any, leads: Array, costs: Array) -> Array:
    """Return the budget of deletions that each lead survives: up to it, the gains add up to less than the lead.

    Parameters
    ----------
    gains : {ndarray, csr_array} of shape (n_samples, n_features)
    leads : ndarray of shape (n_samples,)
        The leads, less what rounding may have added to them.
    costs : ndarray of shape (n_features,)
        The deletion costs, as returned by `feature_costs`.
    """
    is_finite = np.isfinite(costs)
    if not np.all(is_finite):
        gains, costs = gains[:, is_finite], costs[is_finite]
    if sparse.issparse(gains):
        whole, parts = Knapsacks(gains.indptr, costs[gains.indices], 1.0).cost_to_gain(gains.data, leads)
    else:
        whole, parts = cost_to_gain(gains, costs, leads)
    # with equal costs the result is a whole number of items, without rounding errors
    return whole if len(np.unique(costs[costs > 0])) <= 1 else parts * (1 - gamma(len(costs)))


@arguments(method=Choice("mutual_information"), n_bins=Count(2))
def feature_values(X: Any, y: Any, *, method: str = "mutual_information", n_bins: int = 10) -> Array:
    r"""Return values of the features by their mutual information with the class, scaled to an average of 1.

    :math:`v_j = n I_j / \sum_k I_k` with n features and the plug-in mutual information :math:`I_j` of y and feature j.
    The feature is cut into `n_bins` bins with about equally many rows, unless it has at most `n_bins` different values.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    method : {"mutual_information"}, default="mutual_information"
    n_bins : int, default=10

    Returns
    -------
    ndarray of shape (n_features,)

    Examples
    --------
    >>> feature_values([[0, 1], [0, 2], [1, 1], [1, 2]], [0, 0, 1, 1])
    array([2., 0.])
    """
    rows, (classes, codes) = numbers(X, "feature_values(X=...)", "X"), np.unique(np.asarray(y), return_inverse=True)
    if rows.ndim != 2:
        raise ValueError(f"feature_values(X=...): X has shape {rows.shape}; give (n_samples, n_features).")
    if codes.shape != (rows.shape[0],):
        raise ValueError(
            f"feature_values(X, y): y has shape {np.shape(y)}; give one label for each of {rows.shape[0]} rows."
        )
    columns = (dense(rows[:, [j]]).ravel() for j in range(rows.shape[1]))
    found = np.array([_information(_cut(column, n_bins), codes, len(classes)) for column in columns])
    if not np.any(found > 0):
        raise ValueError("feature_values(X, y): no feature tells the classes apart, so that none is worth anything.")
    return len(found) * found / found.sum()


def _cut(column: Array, n_bins: int) -> Any:
    """Return the bin of each number of a column."""
    known, codes = np.unique(column, return_inverse=True)
    if len(known) <= n_bins:
        return codes
    # a value that many rows share may be several quantiles, but must end one bin only
    return np.searchsorted(np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins)), column, side="right")


def _information(bins: Any, codes: Any, n_classes: int) -> float:
    """Return the mutual information of two codes, in nats, from their joint frequencies; 0 if it is only rounding."""
    joint = np.bincount(bins * n_classes + codes, minlength=(bins.max() + 1) * n_classes).reshape(-1, n_classes)
    joint = joint / joint.sum()
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    seen = joint > 0
    found = float(np.sum(joint[seen] * np.log(joint[seen] / apart[seen])))
    return found if found > 1e-14 else 0.0
