"""Features that know their errors: splines and waves, averaged over the noise of each row."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from holdfast._core.allowed import SEED, Choice, Count, Number
from holdfast._core.labels import check_columns
from holdfast._core.uncertainty import Array
from holdfast._core.whole_fits import WholeFits
from holdfast.features.averaged import Averaged, Features, Ramp, Wave
from holdfast.features.row_noise import RowNoise
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.affine_map import AffineMap

NAME = "ExpectedFeatures"
KINDS = ("both", "splines", "fourier")
GAMMA = Choice("scale") | Number(strictly=True)
GAIN = 5.0
"""What waves are multiplied by, so that one ridge suits them beside ramps."""
NARROWEST = 0.05
"""Width of a ramp, in deviations of its column, below which its size no longer falls with the width."""


class ExpectedFeatures(WholeFits, TransformerMixin, BaseEstimator):
    def __init__(
        self,
        kind: str = "both",
        *,
        n_knots: int = 12,
        n_components: int = 300,
        gamma: Any = "scale",
        random_state: Any = None,
    ):
        self.kind = kind
        self.n_knots = n_knots
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state

    parameter_table = {
        "kind": Choice(*KINDS),
        "n_knots": Count(),
        "n_components": Count(),
        "gamma": GAMMA,
        "random_state": SEED,
    }

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        X = checked_rows(self, X, call=f"{NAME}.fit")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        n_features = X.shape[1]
        self.mean_ = np.average(X, axis=0, weights=weights)
        deviation = np.sqrt(np.average(np.square(X - self.mean_), axis=0, weights=weights))
        # what is constant but for rounding has no scale
        is_flat = deviation <= 1e-12 * np.abs(X).max(axis=0, initial=0.0)
        self.scale_ = np.where(is_flat, 1.0, deviation)
        if self.kind != "fourier":
            self.knots_ = [_knots(x, weights, int(self.n_knots), s) for x, s in zip(X.T, self.scale_, strict=True)]
        if self.kind != "splines":
            rng = check_random_state(self.random_state)
            width = 1.0 / n_features if isinstance(self.gamma, str) else float(self.gamma)
            self.gamma_ = width
            self.frequencies_ = np.sqrt(2 * width) * rng.standard_normal((int(self.n_components), n_features))
            self.phases_ = rng.uniform(0, 2 * np.pi, size=int(self.n_components))
        return self

    def uncertainty_effect(self, n_features: int) -> Averaged:
        parts = []
        one = np.ones(n_features)
        if self.kind != "fourier":
            counts = [len(knots) - 1 for knots in self.knots_]
            sources = np.repeat(np.arange(n_features), counts)
            units = self.scale_[sources]
            V = sparse.csr_array((1 / units, (np.arange(len(sources)), sources)), (len(sources), n_features))
            starts = (np.concatenate([knots[:-1] for knots in self.knots_]) - self.mean_[sources]) / units
            widths = np.concatenate([np.diff(knots) for knots in self.knots_]) / units
            is_last = np.isin(np.arange(len(sources)), np.cumsum(counts) - 1)
            gains = 1.0 / np.sqrt(np.maximum(widths, NARROWEST))
            parts.append(Features(AffineMap(V, -starts), Ramp(widths, is_last), gains))
        if self.kind != "splines":
            gain = GAIN * np.sqrt(2.0 / len(self.phases_))
            parts.append(Features(AffineMap(self.frequencies_ / self.scale_, self.phases_), Wave(), gain))
        return Averaged(parts, self.mean_)

    def transform(self, X: Any, *, X_std: Any = None, X_cov: Any = None, X_factor: Any = None) -> Array:
        check_is_fitted(self)
        metadata = {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor}
        check_columns(X, metadata, self)
        X = checked_rows(self, X, call=f"{NAME}.transform", reset=False)
        effect = self.uncertainty_effect(X.shape[1])
        if all(v is None for v in metadata.values()):
            return effect.transform(X)
        return effect.means(X, self._noise(X, metadata))

    def _noise(self, X, metadata):
        return RowNoise.of(GaussianNoise().at(X, metadata).by_row(*X.shape))


def _knots(x: Array, weights: Array, n_knots: int, scale: float) -> Array:
    """Return knots of a column, its ends among them, at weighted quantiles."""
    seen = weights > 0
    shares = np.linspace(0.0, 1.0, n_knots + 1)
    knots = np.unique(np.quantile(x[seen], shares, weights=weights[seen], method="inverted_cdf"))
    return knots if len(knots) > 1 else np.array([knots[0] - scale, knots[0] + scale])


def checked_rows(estimator: Any, X: Any, y: Any = "no_validation", *, call: str, **options: Any) -> Any:
    """Return rows as floats, and labels where there are any, that lack nothing."""
    found = validate_data(estimator, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options)
    if np.any(np.isnan(found if isinstance(y, str) else found[0])):
        raise ValueError(
            f"{call}: X contains NaN. Fill in missing entries first: make_uncertain_pipeline(SpreadImputer(), ...) hands on how "
            "uncertain they are; after SimpleImputer() they count as exact."
        )
    return found
