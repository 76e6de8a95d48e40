"""Linear models with missing entries: refuse or leave these out, and find the predictions that they cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.sparsefuncs import min_max_axis
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.allowed import Choice
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.summary import Summary, counted, percent, share, spread
from holdfast._core.uncertainty import UncertaintySet
from holdfast.estimators.linear import LinearClassifier, predicted_codes
from holdfast.uncertainty import FeatureDeletion

MISSING = Choice("raise", "delete")
SHOWN = 5
"""How many columns an error names at most."""


@dataclass
class MissingReport(Summary):
    """How much is missing in some rows, and which predictions do not depend on it.

    Attributes
    ----------
    features : ndarray of shape (n_features,)
        The share of rows in which each feature is missing.
    rows : ndarray of shape (n_samples,)
        The total value of the features that are missing in each row.
    over_budget : ndarray of bool of shape (n_samples,)
        Rows whose missing features are worth more than the budget that the model was trained for.
    certain : ndarray of bool of shape (n_samples,)
        Rows whose predicted class does not depend on the missing entries, by `is_certain`.
    share_certain : float
        The share of rows that are certain.
    """

    features: Array
    rows: Array
    over_budget: NDArray[np.bool_]
    certain: NDArray[np.bool_]

    @property
    def share_certain(self) -> float:
        """The share of rows that are certain."""
        return float(np.mean(self.certain))

    def _title(self) -> str:
        return f"MissingReport of {counted(len(self.rows), 'row')} and {counted(len(self.features), 'feature')}"

    def _lines(self) -> list[tuple[str, str]]:
        most = int(np.argmax(self.features))
        return [
            ("missing most often", f"feature {most}, in {percent(self.features[most])} of the rows"),
            ("missing in a row", f"{spread(self.rows)}, by the values of the features"),
            ("beyond the budget", share(self.over_budget)),
            ("certain all the same", share(self.certain)),
        ]


class MissingFeatures(LinearClassifier):
    """A linear classifier that was trained for the deletion of features worth up to `budget_`.

    A missing entry is NaN. ``missing="raise"`` refuses it; ``missing="delete"`` scores a row without it, which is what
    the model was trained for, and warns if more is missing than the budget. NaN is never replaced unless the user asks
    for it.

    A subclass checks its training rows by `_checked`, sets `feature_range_` (see `_note_ranges`), `values_` and
    `budget_`.
    """

    budget: Any
    values: Any
    missing: Any
    values_: Array
    """The value of each feature."""
    budget_: float
    """The total value of features that may be deleted."""
    feature_range_: Array
    """Smallest and largest finite training entry of each feature, shape (2, n_features); NaN where there was none."""

    def fixed_uncertainty(self) -> tuple[str, FeatureDeletion]:
        """Return the name of the parameter for the set, and the set: deletions up to the budget."""
        return "budget", FeatureDeletion(self.budget, self.values, filler="missing")

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        return self.fixed_uncertainty()[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "delete"
        return tags

    def _checked(self, X: Any, y: Any = "no_validation", *, where: str, reset: bool = False) -> Any:
        """Return the checked rows (and y), which have NaN only if `missing` allows it."""
        MISSING.checked(self.missing, f"{type(self).__name__}(missing")
        out = self._with_missing(X, y, reset=reset)
        rows = out[0] if isinstance(out, tuple) else out
        if self.missing == "raise":
            self._refuse_missing(rows, where)
        return out

    def _with_missing(self, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Any:
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        out = validate_data(self, X, y, reset=reset, **options)
        return (in_whole(out[0]), out[1]) if isinstance(out, tuple) else in_whole(out)

    def _refuse_missing(self, X: Any, where: str) -> None:
        if not np.any(np.isnan(X.data if sparse.issparse(X) else X)):
            return
        columns = np.flatnonzero(missing_entries(X).sum(axis=0))
        names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))[columns].tolist()
        shown = ", ".join(map(repr, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        raise ValueError(
            f"{type(self).__name__}.{where}: Input X contains NaN in column{'s' * (len(names) > 1)} {shown}. Fill what is "
            "missing, or set missing='delete' to score rows without it; score_interval and is_certain tell what it may change."
        )

    def _note_ranges(self, X: Any) -> None:
        """Widen the known ranges of features to those of these rows."""
        low, high = entry_ranges(X)
        known = getattr(self, "feature_range_", np.full((2, X.shape[1]), np.nan))
        self.feature_range_ = np.array([np.fmin(known[0], low), np.fmax(known[1], high)])

    def _rows_to_score(self, X: Any) -> Any:
        X = self._checked(X, where="predict")
        if self.missing == "raise":
            return X
        lost = missing_entries(X) @ self.values_
        if np.any(over := lost > self.budget_):
            warn_caller(
                f"{np.sum(over)} of {len(over)} rows miss features worth more than budget={self.budget_:g}, up to "
                f"{lost.max():g}: more than the model was trained for. missing_report(X) tells which.",
                UserWarning,
            )
        return without_missing(X)

    def score_interval(self, X: Any, *, lower: Any = None, upper: Any = None) -> tuple[Array, Array]:
        r"""Return the smallest and the largest score over all values that the missing entries may have.

        .. math:: b + \sum_{j\ \text{known}} w_j x_j + \sum_{j\ \text{missing}} \min(w_j l_j, w_j u_j) \quad\text{and}\quad
           \max

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            NaN marks a missing entry, also with ``missing="raise"``.
        lower, upper : float or array-like of shape (n_features,), default=None
            The range of each feature, :math:`l \le u`; infinite if unknown. None: the range of the finite training
            entries, infinite for a feature without any.

        Returns
        -------
        low, high : ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        X, ends = self._with_missing(X), self._ends(lower, upper)
        return self._interval(self._scores(without_missing(X)), missing_entries(X), ends)

    def is_certain(self, X: Any, *, lower: Any = None, upper: Any = None) -> NDArray[np.bool_]:
        """Return whether each row's class without the missing entries is its class for all values that they may have.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True for rows without missing entries. With several classes, the class must have the highest score
            everywhere in the range; a tie is not certain. This says nothing about whether the class is right: a model
            whose weights are all 0 (`collapsed_`) gives every row the same class, and all rows are certain.
        """
        check_is_fitted(self)
        X, ends = self._with_missing(X), self._ends(lower, upper)
        known, gone = without_missing(X), missing_entries(X)
        scores = self._scores(known)
        codes = predicted_codes(scores)
        if len(self.coef_) == 1:
            low, high = self._interval(scores, gone, ends)
            return np.where(codes == 1, low > 0, high <= 0)
        certain = gone.sum(axis=1) == 0
        for k in range(len(self.coef_)):
            rows = np.flatnonzero((codes == k) & ~certain)
            ahead, lead = (np.delete(part[k] - part, k, axis=0) for part in (self.coef_, self.intercept_))
            low, _ = _reach(ahead, ends)
            certain[rows] = np.all(known[rows] @ ahead.T + lead + gone[rows] @ low.T > 0, axis=1)
        return certain

    def missing_report(self, X: Any, *, lower: Any = None, upper: Any = None) -> MissingReport:
        """Return how much is missing in each feature and row, and which predictions do not depend on it.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.
        """
        certain = self.is_certain(X, lower=lower, upper=upper)
        gone = missing_entries(self._with_missing(X))
        lost = gone @ self.values_
        return MissingReport(gone.mean(axis=0), lost, lost > self.budget_, certain)

    def _interval(self, scores: Array, gone: Any, ends: Array) -> tuple[Array, Array]:
        """Return the ends of the scores, given the scores by the known entries."""
        low, high = ((gone @ reach.T).reshape(scores.shape) for reach in _reach(self.coef_, ends))
        return scores + low, scores + high

    def _ends(self, lower: Any, upper: Any) -> Array:
        """Return the range of each feature, shape (2, n_features); infinite where it is unknown."""
        learned = np.where(np.isnan(self.feature_range_), [[-np.inf], [np.inf]], self.feature_range_)
        call, n = f"{type(self).__name__}.score_interval", self.coef_.shape[1]
        ends = np.array(
            [
                np.broadcast_to(known if given is None else _end(given, n, call, name), n)
                for known, given, name in zip(learned, (lower, upper), ("lower", "upper"), strict=True)
            ]
        )
        if np.any(wrong := ends[0] > ends[1]):
            j = int(np.argmax(wrong))
            raise ValueError(f"{call}: lower={ends[0, j]:g} is above upper={ends[1, j]:g} for feature {j}.")
        return ends


def _end(value: Any, n_features: int, call: str, name: str) -> Array:
    """Return one number, or one for each feature; infinities are allowed."""
    given = np.asarray(value, dtype=np.float64)
    if given.shape not in ((), (n_features,)) or np.any(np.isnan(given)):
        raise ValueError(
            f"{call}({name}={value!r:.80}): give one number, or one for each of {n_features} features; "
            "infinite for unknown."
        )
    return given


def _reach(coef: Array, ends: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest w_j x_j over the range of each feature, both of the shape of `coef`."""
    finite = np.where(coef[None] == 0, 0.0, ends[:, None, :])  # 0 times an infinite end would be NaN
    products = coef * finite
    return products.min(axis=0), products.max(axis=0)


def in_whole(X: Any) -> Any:
    """Return X; if it is a sparse matrix that stores some entries in parts, a copy with these parts summed."""
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def missing_entries(X: Any) -> sparse.csr_array:
    """Return a sparse matrix, 1 where an entry is NaN; others are not stored, so infinite ranges give no 0 * inf."""
    if not sparse.issparse(X):
        return sparse.csr_array(np.isnan(X), dtype=np.float64)
    gone = sparse.csr_array((np.isnan(X.data).astype(np.float64), X.indices, X.indptr), X.shape, copy=True)
    gone.eliminate_zeros()
    return gone


def without_missing(X: Any) -> Any:
    """Return X with 0 for NaN, so that products with weights are sums over the known entries."""
    if not sparse.issparse(X):
        return np.where(np.isnan(X), np.zeros((), dtype=X.dtype), X)
    return sparse.csr_array((np.where(np.isnan(X.data), 0.0, X.data), X.indices, X.indptr), shape=X.shape)


def entry_ranges(X: Any) -> tuple[Array, Array]:
    """Return the smallest and the largest known entry of each column, NaN for a column without any."""
    if sparse.issparse(X):
        return min_max_axis(X, axis=0, ignore_nan=True)
    return np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0)
