"""An imputer that says how uncertain what it fills in is."""

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
    """SimpleImputer for worst cases: in an :class:`UncertainPipeline` what it fills in has the spread of its column as error.

    For certificates that hold wherever in their column's spread missing entries are. To predict well use
    :class:`ConditionalImputer`, which asks the other entries of the row: the spread of a column brought no accuracy.

    This error adds to the one stated for the entry, if any. Where errors are averaged over (`GaussianNoise`), its
    standard deviation is the column's in training; where the worst is taken, the entry lies within one standard deviation
    of what is filled in, or with ``spread="range"`` between the smallest and the largest value in training. A last step
    that takes no errors is refused there; a plain Pipeline knows of none. Put it before a FeatureUnion, not into its branches:
    an entry that several of them fill in has one error, not several.

    Parameters
    ----------
    missing_values, strategy, fill_value, copy, add_indicator, keep_empty_features
        As for :class:`sklearn.impute.SimpleImputer`; numeric columns.
    spread : {"std", "range"}, default="std"

    Attributes
    ----------
    spread_ : ndarray of shape (3, n_features)
        The ends of the interval, and the standard deviation, of an entry that is filled in.
    groups_ : list of ndarray of int
        One-hot columns of a category, adjacent and of sum 1, by their places among those that are kept. A category that is
        missing gets the shares of the categories, with ``strategy="mean"``: it is any of them where the worst is taken.

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
        """Fit the imputer and the spreads of the columns."""
        if not (isinstance(self.missing_values, float) and np.isnan(self.missing_values)):
            raise ValueError(
                f"SpreadImputer(missing_values={self.missing_values!r}): in rows with errors it is np.nan."
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
        if self.strategy == "mean":  # shares of categories are means of their columns
            kept = [j for j, fill in enumerate(fills) if self.keep_empty_features or fill == fill]
            self.groups_ = one_hot_groups(dense(numbers_of(X))[:, kept])
        return self
