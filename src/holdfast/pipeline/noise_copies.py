"""Any classifier, trained on random draws of uncertain rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _check_method_params, check_is_fitted, has_fit_parameter, validate_data

from holdfast._core.allowed import SEED, Count
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.metadata import METADATA
from holdfast._core.offers import offered_if
from holdfast._core.uncertainty import UncertaintySet
from holdfast._core.whole_fits import WholeFits
from holdfast.estimators.inputs import class_codes, row_weights
from holdfast.estimators.units import warn_of_units
from holdfast.pipeline.inner_fit import CLASSIFIER, InnerFit
from holdfast.pipeline.stated_sets import meaning

NAME = "NoiseCopies"


def _has(method: str) -> Callable[[NoiseCopies], bool]:
    def check(meta: NoiseCopies) -> bool:
        try:
            getattr(getattr(meta, "estimator_", meta.estimator), method)
        except AttributeError as error:
            raise AttributeError(f"NoiseCopies has no {method}, as its estimator has none: {error}") from error
        return True

    return check


class NoiseCopies(WholeFits, InnerFit, ClassifierMixin, BaseEstimator):
    r"""Any classifier, trained on `n_copies` random draws of each row from its stated uncertainty.

    The rows :math:`x_i` become :math:`x_i + \delta_{ik}`, k = 1, ..., n_copies, with independent draws
    :math:`\delta_{ik} \sim N(0, C_i)` of Gaussian noise, or uniform draws from a set; rows as they are measured are not among
    them. Each draw has the weight :math:`c_i / n_{copies}`, so that penalties mean what they do for the rows themselves. It is
    how error bars get into boosting and other models that know of none. For a linear model it is the sampled version of
    :class:`GaussianRobustClassifier`, which needs neither draws nor their memory.

    Draws of one row must not be split between training and validation: put ``GridSearchCV`` or ``cross_validate`` around
    NoiseCopies, never inside it. A model that sets rows aside by itself (``early_stopping`` of boosting, which is on above
    10 000 rows *with copies counted*, ``LogisticRegressionCV``, ``CalibratedClassifierCV``) validates on copies of rows that it
    is trained on: switch that off, or wrap it around.

    Scale features and errors together; :class:`UncertainPipeline` does. There, rows whose errors are only what an imputer would
    add are drawn as they are where nothing is missing. The estimator is told of no errors of rows, only of a set of its own.

    Parameters
    ----------
    estimator : classifier
    n_copies : int, default=10
        Draws of each row, 1 or more. Ten are about as good as the limit of many.
    uncertainty : UncertaintySet, default=None
        What is common to all rows, such as ``GaussianNoise(std=0.2)`` or ``Box(half_widths=s)``, or what metadata of `fit`
        mean: ``GaussianNoise(4.0)`` for four times ``X_std``, ``Box()`` for half-widths ``X_std``. None: Gaussian noise for
        ``X_std``, ``X_cov`` and ``X_factor``, intervals for ``X_lower`` and ``X_upper``, balls for ``X_radius``.
    random_state : int, RandomState or None, default=None
        Seeds the draws. The inner estimator has its own.

    Attributes
    ----------
    estimator_ : classifier
        The fitted one.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from holdfast import GaussianNoise, NoiseCopies
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> boosting = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    >>> model = NoiseCopies(boosting, 5, uncertainty=GaussianNoise(4.0), random_state=0)  # for four times the noise
    >>> bool(model.fit(data.X, data.y, X_std=data.X_std).score(data.X, data.y) > 0.9)
    True
    """

    draws_errors = True
    """Errors of rows are drawn from: it cannot do without, and the estimator inside is told of none."""
    parameter_table = {
        "estimator": CLASSIFIER,
        "n_copies": Count(),
        "random_state": SEED,
    }
    estimator_: Any

    def __init__(
        self,
        estimator: Any,
        n_copies: int = 10,
        *,
        uncertainty: UncertaintySet | None = None,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.n_copies = n_copies
        self.uncertainty = uncertainty
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.input_tags.sparse, inner.input_tags.allow_nan
        tags.classifier_tags = inner.classifier_tags
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_std: Any = None,
        X_cov: Any = None,
        X_factor: Any = None,
        X_lower: Any = None,
        X_upper: Any = None,
        X_radius: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the estimator to draws.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse where the estimator takes it and the uncertainty is that of few entries, such as a sparse ``X_std``.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Only for an estimator whose `fit` takes it.
        X_std, X_cov, X_factor : array-like, default=None
            Deviation of each entry, (n_samples, n_features), may be sparse; covariance of each row, (n_samples, n_features,
            n_features); a factor of it, (n_samples, n_features, r).
        X_lower, X_upper : array-like of shape (n_samples, n_features), default=None
            The interval of each entry.
        X_radius : array-like of shape (n_samples,), default=None
            The radius of each row's ball.
        **params : dict
            For the estimator's `fit`; what has n_samples entries is repeated with the rows.
        """
        metadata = dict(zip(METADATA, (X_std, X_cov, X_factor, X_lower, X_upper, X_radius), strict=True))
        check_columns(X, {"sample_weight": sample_weight, **metadata})
        check_features(X, {"uncertainty": self.uncertainty})
        tags, given_rows = get_tags(self).input_tags, X
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr" if tags.sparse else False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if tags.allow_nan else True,
        )
        classes, codes = class_codes(y, NAME)
        weights = row_weights(sample_weight, None, X, codes, classes, NAME)
        stated = {name: value for name, value in metadata.items() if value is not None}
        copies = self._copies(X, stated)
        warn_of_units(given_rows, stated, f"{NAME}.fit", factor=self._meaning(stated).row_factor)
        rows = np.tile(np.arange(len(y)), self.n_copies)
        given = dict(_check_method_params(X, self._handed_on(params), indices=rows))
        if has_fit_parameter(self.estimator, "sample_weight"):
            given["sample_weight"] = weights[rows] / self.n_copies
        elif sample_weight is not None:
            raise ValueError(
                f"{NAME}({self.estimator!r:.80}).fit(..., sample_weight=...): the fit of this estimator does not take "
                "sample_weight. Leave it out; of a pipeline wrap the last step alone, inside an UncertainPipeline."
            )
        self.estimator_ = clone(self.estimator).fit(copies, y[rows], **given)
        self.classes_ = classes
        return self

    def _copies(self, X: Any, metadata: Mapping[str, Any]) -> Any:
        """Return the draws of all rows, the first of each, the second of each, and so on."""
        uncertainty = self._meaning(metadata)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        drawn = uncertainty.draws(X, metadata, rng, int(self.n_copies))
        if not sparse.issparse(X):
            return np.concatenate([X + _dense(errors).astype(X.dtype, copy=False) for errors in drawn])
        copies = []
        for errors in drawn:
            if not sparse.issparse(errors):
                raise ValueError(
                    f"{NAME}(uncertainty={self.uncertainty!r}).fit: X is sparse, but {uncertainty!r} moves every entry. Pass a "
                    "sparse X_std, or X.toarray()."
                )
            copies.append(X + errors.astype(X.dtype))
        return sparse.vstack(copies, format="csr")

    def _meaning(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        """Return the set to draw from."""
        if isinstance(self.uncertainty, UncertaintySet):
            return self.uncertainty
        if self.uncertainty is not None:
            raise ValueError(
                f"{NAME}(uncertainty={self.uncertainty!r:.80}): give a set, such as GaussianNoise(0.2) or Box(0.1)."
            )
        if not metadata:
            raise ValueError(
                f"{NAME}.fit: no uncertainty is stated. Pass X_std, X_cov, X_factor, X_lower and X_upper, or X_radius; or "
                f"state what is common to all rows, {NAME}(estimator, uncertainty=GaussianNoise(std=...))."
            )
        return meaning(set(metadata))

    def _asked(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        tags = get_tags(self).input_tags
        X = validate_data(
            self,
            X,
            accept_sparse="csr" if tags.sparse else False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if tags.allow_nan else True,
            reset=False,
        )
        return getattr(self.estimator_, method)(X)

    def predict(self, X: Any) -> Any:
        """Return the predicted class of each row, shape (n_samples,)."""
        return self._asked("predict", X)

    @offered_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Return the estimator's class probabilities, shape (n_samples, n_classes)."""
        return self._asked("predict_proba", X)

    @offered_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`."""
        return self._asked("predict_log_proba", X)

    @offered_if(_has("decision_function"))
    def decision_function(self, X: Any) -> Array:
        """Return the estimator's scores, shape (n_samples,) or (n_samples, n_classes)."""
        return self._asked("decision_function", X)


def _dense(errors: Any) -> Array:
    return np.asarray(errors.toarray() if sparse.issparse(errors) else errors)
