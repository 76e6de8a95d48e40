"""An imputer that states the errors of the entries that it fills in."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.impute import SimpleImputer

from holdfast._core.allowed import NOTHING, Choice, Number
from holdfast._core.arithmetic import dense
from holdfast._core.whole_fits import WholeFits
from holdfast.features.fills import one_hot_groups
from holdfast.features.rows import numbers_of


class SpreadImputer(WholeFits, SimpleImputer):
    """SimpleImputer for worst cases: in an :class:`UncertainPipeline` a fill-in's error is the spread of its column.

    Use it for certificates that hold for missing entries anywhere in the spread of their column. For accurate
    predictions use :class:`ConditionalImputer`, which learns from the other entries of the row: errors by the spread of
    a column did not improve accuracy.

    This error adds to the error stated for the entry, if any. Where errors are averaged over (`GaussianNoise`), its
    standard deviation is that of the column in training. For worst cases, the entry lies within one standard deviation
    of the fill-in, or with ``spread="range"`` between the smallest and the largest value in training. An
    UncertainPipeline refuses a last step that takes no errors; a plain Pipeline does not see these errors. Put it
    before a FeatureUnion, not into its branches: an entry that several branches fill in has one error, not several.

    Parameters
    ----------
    missing_values, strategy, fill_value, copy, add_indicator, keep_empty_features
        As for :class:`sklearn.impute.SimpleImputer`, for numeric columns only.
    spread : {"std", "range"}, default="std"
        Where a missing entry lies in worst cases: within one standard deviation of the fill-in, or in the column's
        range.

    Attributes
    ----------
    spread_ : ndarray of shape (3, n_features)
        For fill-ins of each column: the lower and upper end of their interval, and their standard deviation.
    groups_ : list of ndarray of int
        The one-hot columns of each category, which are adjacent and sum to 1, as indices into the kept columns. They
        are detected with ``strategy="mean"`` only. A missing category then gets the shares of the categories; for worst
        cases it may be any of them.

    Examples
    --------
    >>> X = [[1.0, 7.0], [np.nan, 9.0], [3.0, np.nan]]
    >>> SpreadImputer().fit(X).spread_
    array([[1., 7.],
           [3., 9.],
           [1., 1.]])
    """

    adds_errors = True
    parameter_table = {"spread": Choice("std", "range"), "fill_value": Number(-np.inf) | NOTHING}

    def __init__(
        self,
        *,
        missing_values: Any = np.nan,
        strategy: Any = "mean",
        fill_value: Any = None,
        copy: bool = True,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        spread: str = "std",
    ):
        super().__init__(
            missing_values=missing_values,
            strategy=strategy,
            fill_value=fill_value,
            copy=copy,
            add_indicator=add_indicator,
            keep_empty_features=keep_empty_features,
        )
        self.spread = spread

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the fill-ins and the spreads of the columns."""
        if not (isinstance(self.missing_values, float) and np.isnan(self.missing_values)):
            raise ValueError(
                f"SpreadImputer(missing_values={self.missing_values!r}): missing entries must be np.nan here."
            )
        super().fit(X, y)
        columns = [column[~np.isnan(column)] for column in dense(numbers_of(X)).T]
        fills = np.array([np.nan if fill is None else fill for fill in self.statistics_], dtype=np.float64)
        std = np.array([column.std() if len(column) else 0.0 for column in columns])
        if self.spread == "range":
            lower = np.array([column.min() if len(column) else 0.0 for column in columns])
            upper = np.array([column.max() if len(column) else 0.0 for column in columns])
        else:
            lower, upper = fills - std, fills + std
        self.spread_ = np.stack([lower, upper, std])
        self.groups_ = []
        if self.strategy == "mean":  # the mean of a one-hot column is the share of its category
            kept = [j for j, fill in enumerate(fills) if self.keep_empty_features or fill == fill]
            self.groups_ = one_hot_groups(dense(numbers_of(X))[:, kept])
        return self
