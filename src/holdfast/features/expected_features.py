"""Nonlinear features with known errors: splines and waves, averaged over the noise of each row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from holdfast._core.allowed import SEED, Choice, Count, Number
from holdfast._core.labels import check_columns
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.row_forms import Array
from holdfast._core.whole_fits import WholeFits
from holdfast.features.averaged import Averaged, Features, Ramp, Wave
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import checked_weights
from holdfast.uncertainty.affine_map import AffineMap

NAME = "ExpectedFeatures"
KINDS = ("both", "splines", "fourier")
ROUNDED = 1e-12
"""A standard deviation below this share of a column's largest value counts as rounding."""
GAMMA = Choice("scale") | Number(strictly=True)
GAIN = 5.0
"""The factor of waves, chosen so that one ridge suits both waves and ramps."""
NARROWEST = 0.05
"""Below this width, in standard deviations of its column, the gain of a ramp no longer grows."""


class ExpectedFeatures(WholeFits, TransformerMixin, BaseEstimator):
    r"""Nonlinear features of a row, averaged over its Gaussian noise.

    These are :math:`\mathbb E\,\varphi(x + \delta)` with :math:`\delta \sim N(0, C)`, exact and in closed form, for the
    noise of each row, with correlations between errors. Columns are standardised to mean 0 and standard deviation 1,
    together with their errors, so X and its noise may be in any units.

    *Splines*: ramps :math:`\min(\max(x_j - \theta, 0), w) / \sqrt w` between neighbouring knots at quantiles of column
    j. Their sums are piecewise linear, and constant beyond the outer knots. A ramp is the difference of two hinges.
    With u = x - theta and errors of standard deviation s, the mean of a hinge is
    :math:`u\,\Phi(u/s) + s\,\varphi(u/s)`, and its slope :math:`\Phi(u/s)`. Dividing ramps by the root of their width
    (at least 0.05 standard deviations of the column) makes a ridge on the weights a penalty on the squared slope of the
    function. *Fourier*: waves :math:`5 \sqrt{2/D} \cos(v^\top x + p)`, random frequencies of the kernel
    :math:`e^{-\gamma |x - x'|^2}`, mean :math:`5 \sqrt{2/D}\, e^{-v^\top C v/2} \cos(v^\top x + p)`. The factor 5 lets
    one ridge suit both kinds.

    A single outlier inflates the standard deviation of its column, and the ramps shrink. Clip outliers first.

    In an :class:`UncertainPipeline` the rows after this step are these means. Their noise is the linear part of the
    errors (a factor of mean slopes) plus the remaining errors, as independent standard deviations. Intervals
    (``X_lower``, ``X_upper``) and other sets become the exact interval of values of each feature. For certificates, use
    ``make_uncertain_pipeline(ExpectedFeatures("splines"), RobustLinearClassifier(IntervalBox()))``.

    Parameters
    ----------
    kind : {"both", "splines", "fourier"}, default="both"
    n_knots : int, default=12
        The largest number of ramps of each column; columns with few different values have fewer.
    n_components : int, default=300
        D, the number of waves.
    gamma : float or "scale", default="scale"
        The bandwidth, for standardised columns; "scale" is 1 / n_features.
    random_state : int, RandomState instance or None, default=None
        Seeds the frequencies.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        The weighted means and standard deviations of the columns.
    knots_ : list of ndarray
        The knots of each column, in its units.
    frequencies_ : ndarray of shape (n_components, n_features)
        v, for standardised columns.
    phases_ : ndarray of shape (n_components,)
    gamma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from holdfast import ExpectedFeatures
    >>> X = np.linspace(0, 4, 9).reshape(-1, 1)
    >>> features = ExpectedFeatures("splines", n_knots=2).fit(X)
    >>> features.get_feature_names_out()
    array(['x0 from 0 to 2', 'x0 from 2 to 4'], dtype=object)
    >>> features.transform([[2.0]]).round(3), features.transform([[2.0]], X_std=[[1.0]]).round(3)
    (array([[1.245, 0.   ]]), array([[1.002, 0.243]]))
    """

    averages_errors = True
    """Whether the errors of a row change its features, so that they are passed to predictions."""
    parameter_table = {
        "kind": Choice(*KINDS),
        "n_knots": Count(),
        "n_components": Count(),
        "gamma": GAMMA,
        "random_state": SEED,
    }

    def __init__(
        self,
        kind: str = "both",
        *,
        n_knots: int = 12,
        n_components: int = 300,
        gamma: float | str = "scale",
        random_state: Any = None,
    ):
        self.kind = kind
        self.n_knots = n_knots
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find scales, knots and frequencies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Not used.
        sample_weight : array-like of shape (n_samples,), default=None
            The weights of the rows in means, standard deviations and quantiles.
        """
        check_columns(X, {"sample_weight": sample_weight})
        X = checked_rows(self, X, call=f"{NAME}.fit")
        weights = checked_weights(sample_weight, X, f"{NAME}.fit")
        if not 0 < (total := weights.sum()) < np.inf:
            raise ValueError(
                f"{NAME}.fit: sample_weight sums to {total:g}. Give some row a weight > 0, none a huge one."
            )
        self.mean_ = np.average(X, axis=0, weights=weights)
        deviation = np.sqrt(np.average(np.square(X - self.mean_), axis=0, weights=weights))
        self.scale_ = np.where(deviation > ROUNDED * np.abs(X).max(axis=0), deviation, 1.0)
        if self.kind != "fourier":
            self.knots_ = [
                quantile_knots(x, weights, int(self.n_knots), s) for x, s in zip(X.T, self.scale_, strict=True)
            ]
        if self.kind != "splines":
            rng = check_random_state(self.random_state)
            self.gamma_ = 1.0 / X.shape[1] if isinstance(self.gamma, str) else float(self.gamma)
            shape = (int(self.n_components), X.shape[1])
            # Bochner: exp(-gamma |d|^2) is the mean of cos(v'd) over normal v with variance 2 gamma
            self.frequencies_ = np.sqrt(2 * self.gamma_) * rng.standard_normal(shape)
            self.phases_ = rng.uniform(0, 2 * np.pi, size=shape[0])
        return self

    @takes_metadata
    def transform(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        """Return the means of the features under the noise of each row, or the features themselves without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **metadata
            ``X_std``, the standard deviation of each entry, (n_samples, n_features); ``X_cov``, the covariance of each
            row, (n_samples, n_features, n_features); or ``X_factor``, a factor of it, (n_samples, n_features, r).

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
        """
        check_is_fitted(self)
        check_columns(X, metadata, self)
        X = checked_rows(self, X, call=f"{NAME}.transform", reset=False)
        effect = self.uncertainty_effect(X.shape[1])
        if not metadata:
            return effect.transform(X)
        return effect.means([X], RowNoise.stated(X, metadata))[0]

    @takes_metadata
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None, **metadata: Unpack[NoiseByRow]) -> Array:
        """Fit to the rows, and return their features as `transform` does."""
        return self.fit(X, y, sample_weight).transform(X, **metadata)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return names, such as "radius from 1.2 to 3.4" for a ramp and "wave0" for a wave."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        found: list[str] = []
        if self.kind != "fourier":
            for name, knots in zip(names, self.knots_, strict=True):
                found += [f"{name} from {low} to {high}" for low, high in pairwise(_texts(knots))]
        if self.kind != "splines":
            found += [f"wave{k}" for k in range(len(self.phases_))]
        return np.asarray(found, dtype=object)

    def uncertainty_effect(self, n_features: int) -> Averaged:
        """Return the effect of this step on rows and their errors, for pipelines."""
        check_is_fitted(self)
        parts = []
        if self.kind != "fourier":
            counts = [len(knots) - 1 for knots in self.knots_]
            sources = np.repeat(np.arange(n_features), counts)
            units, numbers = self.scale_[sources], np.arange(len(sources))
            forms = sparse.csr_array((1 / units, (numbers, sources)), (len(sources), n_features))
            starts = (np.concatenate([knots[:-1] for knots in self.knots_]) - self.mean_[sources]) / units
            widths = np.concatenate([np.diff(knots) for knots in self.knots_]) / units
            ramps = Ramp(widths, is_last=np.isin(numbers, np.cumsum(counts) - 1))
            parts.append(Features(AffineMap(forms, -starts), ramps, 1.0 / np.sqrt(np.maximum(widths, NARROWEST))))
        if self.kind != "splines":
            gain = GAIN * np.sqrt(2.0 / len(self.phases_))
            parts.append(Features(AffineMap(self.frequencies_ / self.scale_, self.phases_), Wave(), gain))
        return Averaged(parts, self.mean_)


def quantile_knots(x: Array, weights: Array, n_knots: int, scale: float) -> Array:
    """Return knots of a column at weighted quantiles, including its extremes."""
    seen = np.argsort(x, kind="stable")
    seen = seen[weights[seen] > 0]
    reached = np.cumsum(weights[seen])
    # lowered slightly: rounding above a sum of weights would move a knot by a row, and the last one beyond all rows
    places = np.searchsorted(reached, np.linspace(0.0, 1.0, n_knots + 1) * reached[-1] * (1 - ROUNDED))
    knots = np.unique(x[seen][places])
    return knots if len(knots) > 1 else np.array([knots[0] - scale, knots[0] + scale])


def _texts(knots: Array) -> list[str]:
    """Return knots as text, with the fewest digits (at least 6) that distinguish them."""
    texts = ([f"{knot:.{digits}g}" for knot in knots] for digits in range(6, 18))
    return next(found for found in texts if len(set(found)) == len(knots))


def checked_rows(estimator: Any, X: Any, y: Any = "no_validation", *, call: str, **options: Any) -> Any:
    """Return rows as floats, and labels if given. Raises ValueError if a row contains NaN."""
    found = validate_data(estimator, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options)
    rows = found if isinstance(y, str) else found[0]
    if np.any(np.isnan(rows.data if sparse.issparse(rows) else rows)):
        raise ValueError(
            f"{call}: X contains NaN. Fill in missing entries first: make_uncertain_pipeline(SpreadImputer(), ...) hands on "
            "how uncertain they are; after SimpleImputer() they count as exact."
        )
    return found
