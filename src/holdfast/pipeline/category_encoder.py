"""One-hot columns of categories, some of which may be missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_array, check_is_fitted

from holdfast._core.allowed import Choice
from holdfast._core.whole_fits import WholeFits
from holdfast.features.effects import Effect
from holdfast.features.fills import DoubtfulCategories

NAME = "CategoryEncoder"


class CategoryEncoder(WholeFits, TransformerMixin, BaseEstimator):
    r"""One-hot columns of categories; a missing category gets the shares of all categories, and counts as any of them.

    A missing category (None, NaN) does not become a category of its own, nor a row of zeros. Its columns hold the
    shares p of the categories among the known training rows, whatever their class. In pipelines these columns are then
    uncertain:

    - where errors are averaged over, they have the covariance :math:`D(p) - p p^\top`;
    - certificates hold for each category: with the weights v of these columns, the score can fall by exactly
      :math:`p^\top v - \min_k v_k`;
    - classifiers that are trained for the worst case see the box around the categories.

    Parameters
    ----------
    missing : {"shares", "nan"}, default="shares"
        "shares" fills in the shares p. "nan" leaves NaN in all columns of a missing category for a later step to fill
        in: ConditionalImputer, which uses the rest of the row, or SpreadImputer.
    unknown : {"error", "missing"}, default="error"
        Whether a category that did not occur in training raises an error, or counts as missing.

    Attributes
    ----------
    categories_ : list of ndarray
        The categories of each input column, sorted.
    shares_ : list of ndarray
        The shares p of each input column.
    groups_ : list of ndarray of int
        For each input column, the indices of its one-hot columns.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> X = np.array([["red"], ["blue"], ["red"], ["red"], [None]], dtype=object)
    >>> CategoryEncoder().fit_transform(X)
    array([[0.  , 1.  ],
           [1.  , 0.  ],
           [0.  , 1.  ],
           [0.  , 1.  ],
           [0.25, 0.75]])
    """

    adds_errors = True
    parameter_table = {"missing": Choice("shares", "nan"), "unknown": Choice("error", "missing")}

    def __init__(self, *, missing: str = "shares", unknown: str = "error"):
        self.missing = missing
        self.unknown = unknown

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the categories and their shares.

        Parameters
        ----------
        X : {array-like, frame} of shape (n_samples, n_features)
            Texts or numbers; None and NaN are missing.
        y : ignored
        """
        values = self._checked(X, reset=True)
        gone = missing_categories(values)
        if np.any(nothing := np.all(gone, axis=0)):
            names = getattr(self, "feature_names_in_", np.arange(values.shape[1]))
            raise ValueError(f"{NAME}.fit: column {names[np.argmax(nothing)]!r} has no known category. Leave it out.")
        filled = _filled(values, gone, [column[~lost][0] for column, lost in zip(values.T, gone.T, strict=True)])
        kind = "error" if self.unknown == "error" else "ignore"
        self.encoder_ = OneHotEncoder(sparse_output=False, handle_unknown=kind).fit(filled)
        self.categories_ = self.encoder_.categories_
        ends = np.cumsum([0, *(len(one) for one in self.categories_)])
        self.groups_ = [np.arange(*own) for own in pairwise(ends)]
        encoded = self.encoder_.transform(filled)
        self.shares_ = [encoded[~lost][:, group].mean(axis=0) for group, lost in zip(self.groups_, gone.T, strict=True)]
        return self

    def transform(self, X: Any) -> Any:
        """Return the one-hot columns, shape (n_samples, number of all categories)."""
        check_is_fitted(self)
        values = self._checked(X)
        gone = missing_categories(values)
        out = self.encoder_.transform(_filled(values, gone, [one[0] for one in self.categories_]))
        for group, lost, share in zip(self.groups_, gone.T, self.shares_, strict=True):
            lost = lost | ~np.any(out[:, group], axis=1)  # the encoder turns an unknown category into zeros
            out[np.ix_(lost, group)] = np.nan if self.missing == "nan" else share
        return out

    def _checked(self, X: Any, *, reset: bool = False) -> NDArray[Any]:
        """Return rows as an array of objects, or of numbers."""
        _check_feature_names(self, X, reset=reset)
        kind = None if hasattr(X, "dtype") and getattr(X, "ndim", 0) == 2 and X.dtype.kind in "biuf" else object
        values = check_array(X, dtype=kind, ensure_all_finite=False, estimator=self, input_name="X")
        _check_n_features(self, X if hasattr(X, "shape") else values, reset=reset)
        if any(isinstance(one, complex) for one in values[:1].ravel()) or np.iscomplexobj(values):
            raise ValueError(f"{NAME}: Complex data not supported. Give texts or real numbers.")
        return np.asarray(values, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the one-hot columns, made of the names of columns and categories."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        return np.asarray(self.encoder_.get_feature_names_out(names))

    def uncertainty_effect(self, n_features: int) -> Effect:
        """Return what the step does to rows and their errors."""
        return DoubtfulCategories(n_features, self.groups_, self.transform, leaves_open=self.missing == "nan")


def missing_categories(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which categories are missing: None, pandas.NA, or NaN, which does not equal itself."""
    is_gone = np.frompyfunc(lambda one: one is None or type(one).__name__ == "NAType" or bool(one != one), 1, 1)
    return np.asarray(is_gone(values), dtype=bool)


def _filled(values: NDArray[Any], gone: NDArray[np.bool_], fills: list[Any]) -> NDArray[Any]:
    """Return the values with the missing ones of each column replaced by its entry of `fills`."""
    out = values.copy()
    for column, lost, fill in zip(out.T, gone.T, fills, strict=True):
        column[lost] = fill
    return out
