"""An imputer that fills in conditional means given the other entries of a row, and knows their errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import FLOAT_DTYPES, _check_feature_names_in, check_is_fitted, validate_data

from holdfast._core.allowed import NOTHING, VERBOSE, Choice, Count, Number, Switch
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.progress import reporter
from holdfast._core.whole_fits import WholeFits
from holdfast.features.conditional_moments import MOST_FACTORS, GaussianMoments, learned
from holdfast.features.effects import Effect
from holdfast.features.fills import ConditionalFill, ConditionalLaw, one_hot_groups

NAME = "ConditionalImputer"
SHOWN = 5
"""How many columns a warning names at most."""


class ConditionalImputer(WholeFits, TransformerMixin, BaseEstimator):
    r"""Fill in missing entries from the others of their row, and tell an :class:`UncertainPipeline` their errors.

    Rows are modelled as :math:`N(m, \Sigma)`. The moments are learned from the known entries by expectation
    maximisation (EM). With m the missing and o the known entries of a row,

    .. math:: \hat x_m = m_m + \Sigma_{mo} \Sigma_{oo}^{-1} (x_o - m_o), \qquad
              C_m = \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}:

    a missing entry becomes its conditional mean, and the errors of a row's missing entries have the conditional
    covariance :math:`C_m`, which reaches the last step of an UncertainPipeline as a factor (``X_factor``), in training
    and at prediction. The stated errors of known entries are carried to the entries that are filled in from them; the
    fill-ins themselves are computed as if known entries were exact. Where errors are averaged over, an error that is
    stated for a missing entry (``X_std``) is ignored: the entry was not measured. For worst cases, a missing entry lies
    in its central interval of probability `coverage`.

    :math:`\Sigma` is shrunk, as if `ridge` rows whose columns are uncorrelated, with the same variances, were added to
    the data. A plain Pipeline gets the conditional means. Entries must be missing at random: whether an entry is
    missing may depend on known entries only.

    One-hot columns of a category, which are adjacent and sum to 1, are detected (`categories`). A missing category gets
    probabilities p >= 0 that sum to 1, with the covariance :math:`D(p) - p p^\top` where errors are averaged over;
    certificates hold for each category. Errors of categories and of numbers in one row then count as independent.

    Parameters
    ----------
    ridge : float or "auto", default="auto"
        The number of uncorrelated rows that are added. "auto": 0.001, 0.01, 0.1 or 1 times the number of rows,
        whichever makes a held-out fifth of the rows most likely.
    n_factors : int, "auto" or None, default="auto"
        None learns all of :math:`\Sigma`; a number learns :math:`L L^\top + D(\psi)`, where L has that many columns.
        "auto": None, unless there are more columns than rows: then 20 factors, or a quarter of the number of rows if
        that is less.
    coverage : float, default=0.95
        The probability of the intervals for worst cases, above 0 and below 1.
    categories : {"auto", None}, default="auto"
        "auto" detects one-hot columns; None treats all columns as numbers.
    keep_empty_features : bool, default=False
        Whether to keep columns with fewer than two known entries, from which nothing can be learned. They are then
        filled with their one known value or 0. Otherwise they are left out. Either way there is a warning.
    tol : float, default=1e-3
        EM stops when no moment changes by more than `tol`, in units of the standard deviations of the columns.
    max_iter : int, default=200
    verbose : int, default=0
        1 logs progress to the logger "holdfast".

    Attributes
    ----------
    mean_ : ndarray of shape (n_kept,)
        The means of the kept columns.
    covariance_ : ndarray of shape (n_kept, n_kept)
        Their covariance; 0 for columns that do not vary.
    kept_ : ndarray of int of shape (n_kept,)
        The indices of the kept columns in X.
    groups_ : list of ndarray of int
        The one-hot columns of each category, as indices into the kept columns.
    ridge_ : float
        The number of uncorrelated rows that were added.
    n_factors_ : int or None
    n_iter_ : int
    method_ : str
        What was done, in words.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    SpreadImputer : Fills in each column on its own, for worst cases.
    DropoutNoise : Noise to train with for entries that go missing at random.

    Notes
    -----
    Memory of the factor: n_samples * n_kept * (largest number of missing entries in a row) numbers. Time: at every step
    of EM, for each pattern of missing entries, the cube of their number.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> height = rng.normal(170, 10, size=200)
    >>> X = np.column_stack([height, 0.9 * height - 90 + rng.normal(0, 5, size=200)])
    >>> imputer = ConditionalImputer().fit(X)
    >>> imputer.transform([[190.0, np.nan], [np.nan, 45.0]]).round()
    array([[190.,  81.],
           [156.,  45.]])
    >>> imputer.method_
    'all moments of 2 columns, with 0.2 uncorrelated rows added to 200; 1 step of EM'
    """

    adds_errors = True
    parameter_table = {
        "ridge": Choice("auto") | Number(strictly=True),
        "n_factors": Choice("auto") | Count() | NOTHING,
        "coverage": Number(0.0, 1.0, strictly=True),
        "categories": Choice("auto", None),
        "keep_empty_features": Switch(),
        "tol": Number(strictly=True),
        "max_iter": Count(),
        "verbose": VERBOSE,
    }

    def __init__(
        self,
        *,
        ridge: float | str = "auto",
        n_factors: int | str | None = "auto",
        coverage: float = 0.95,
        categories: str | None = "auto",
        keep_empty_features: bool = False,
        tol: float = 1e-3,
        max_iter: int = 200,
        verbose: int = 0,
    ):
        self.ridge = ridge
        self.n_factors = n_factors
        self.coverage = coverage
        self.categories = categories
        self.keep_empty_features = keep_empty_features
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the moments of rows, missing entries (NaN) included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        """
        if not self.coverage < 1:
            raise ValueError(f"{NAME}(coverage={self.coverage!r}): must be below 1.")
        X = self._checked(X, reset=True, ensure_min_samples=2).astype(np.float64)
        self._choose_columns(X)
        Y = X[:, self.kept_]
        counts = np.sum(~np.isnan(Y), axis=0)
        self.mean_ = np.where(counts > 0, np.nansum(Y, axis=0) / np.maximum(counts, 1), 0.0)
        away = np.where(np.isnan(Y), 0.0, Y - self.mean_)
        largest = np.abs(away).max(axis=0, initial=0.0)
        # equal numbers differ from their mean by rounding errors only
        varies = largest > 8 * np.finfo(np.float64).eps * np.abs(self.mean_)
        unit = np.where(varies, largest, 1.0)
        # differences are divided by the largest one, so that their squares neither under- nor overflow
        scale = np.where(varies, unit * np.sqrt(np.square(away / unit).sum(axis=0) / np.maximum(counts, 1)), 0.0)
        active = np.flatnonzero(scale > 0)
        self.covariance_ = np.zeros((len(self.kept_), len(self.kept_)))
        self.groups_ = self._groups(Y, active)
        self.n_factors_, self.ridge_, self.n_iter_ = None, 0.0, 1
        if len(active) == 0:
            self.method_ = "constants, as no column varies"
            return self
        Z = away[:, active] / scale[active]
        Z[np.isnan(Y[:, active])] = np.nan
        self._learn(Z[~np.all(np.isnan(Z), axis=1)], active, scale)
        return self

    def _choose_columns(self, X: Array) -> None:
        counts = np.sum(~np.isnan(X), axis=0)
        empty = np.flatnonzero(counts < 2)
        self.kept_ = np.arange(X.shape[1]) if self.keep_empty_features else np.flatnonzero(counts >= 2)
        if len(empty) == 0:
            return
        names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))[empty].tolist()
        shown = ", ".join(map(repr, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        what = "they are kept, and fill-ins there count as exact" if self.keep_empty_features else "they are left out"
        warn_caller(
            f"{NAME}.fit: of the column{'s' * (len(names) > 1)} {shown} fewer than two entries are known, which does not tell "
            f"what others may be: {what}. Measure more, or drop such columns.",
            UserWarning,
        )
        if len(self.kept_) == 0:
            raise ValueError(
                f"{NAME}.fit: no column of X has two known entries, so that there is nothing to learn from."
            )

    def _groups(self, Y: Array, active: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        found = one_hot_groups(Y) if self.categories == "auto" else []
        return [group for group in found if np.all(np.isin(group, active))]

    def _learn(self, Z: Array, active: NDArray[np.intp], scale: Array) -> None:
        n, d = Z.shape
        if n < 2:
            raise ValueError(f"{NAME}.fit: n_samples = {n} with a known entry that varies. Give two rows at least.")
        factors = self.n_factors
        if factors == "auto":
            factors = max(1, min(MOST_FACTORS, n // 4)) if d > n else None
        self.n_factors_ = None if factors is None else min(int(factors), d, n)
        ridge = None if self.ridge == "auto" else float(self.ridge)
        report = reporter(self.verbose)
        found = learned(Z, self.n_factors_, ridge, float(self.tol), int(self.max_iter), report)
        moments, self.ridge_, self.n_iter_ = found.moments, float(found.ridge), found.n_iter
        self.mean_[active] += scale[active] * moments.mean
        self.covariance_[np.ix_(active, active)] = moments.covariance * np.outer(scale[active], scale[active])
        what = "all moments" if self.n_factors_ is None else f"{self.n_factors_} factor{'s' * (self.n_factors_ > 1)}"
        steps = f"{self.n_iter_} step{'s' * (self.n_iter_ > 1)} of EM"
        self.method_ = (
            f"{what} of {d} column{'s' * (d > 1)}, with {self.ridge_:.3g} uncorrelated rows added to {n}; {steps}"
        )
        if not found.has_settled:
            warn_caller(
                f"{NAME}(max_iter={self.max_iter!r}, tol={self.tol!r}): EM has not settled. Raise max_iter or tol, or use "
                "n_factors=10.",
                ConvergenceWarning,
            )

    def _checked(self, X: Any, *, reset: bool = False, **options: Any) -> Any:
        return validate_data(self, X, reset=reset, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan", **options)

    def law(self) -> ConditionalLaw:
        """Return the learned moments in the form that pipelines and reports use."""
        check_is_fitted(self)
        scale = np.sqrt(np.diag(self.covariance_))
        active = np.flatnonzero(scale > 0)
        unit = scale[active]
        moments = GaussianMoments(
            np.zeros(len(active)), self.covariance_[np.ix_(active, active)] / unit[:, None] / unit
        )
        groups = [np.searchsorted(active, group) for group in self.groups_]
        return ConditionalLaw(self.kept_, moments, active, self.mean_, scale, groups)

    def transform(self, X: Any) -> Any:
        """Return the rows with missing entries replaced by their conditional means, shape (n_samples, n_kept)."""
        check_is_fitted(self)
        X = self._checked(X)
        kept = X[:, self.kept_]
        return np.where(np.isnan(kept), self.law().filled(X.astype(np.float64)), kept).astype(X.dtype, copy=False)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that are kept."""
        check_is_fitted(self)
        return np.asarray(_check_feature_names_in(self, input_features)[self.kept_])

    def uncertainty_effect(self, n_features: int) -> Effect:
        """Return what the step does to rows and their errors."""
        return ConditionalFill(self.law(), self.transform, float(self.coverage))
