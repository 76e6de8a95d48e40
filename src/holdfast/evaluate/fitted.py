"""Fitted classifiers, ours and scikit-learn's, as models of which something is certain: found by what they are."""

from __future__ import annotations

from functools import singledispatch
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, NuSVC
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.allowed import short
from holdfast._core.rounding import Array
from holdfast.estimators import MinimaxProbabilityClassifier
from holdfast.estimators.linear import LinearClassifier
from holdfast.evaluate.decisions import LargestScore, Votes, one_score
from holdfast.evaluate.models import FourierModel, KernelModel, LinearModel, Model
from holdfast.evaluate.steps import AffineMap, Multiply, NoCertificateError, Product, affine_operations
from holdfast.uncertainty.checks import nonnegative, per_feature
from holdfast.uncertainty.clouds import dense

SUPPORTED = (
    "holdfast's classifiers; scikit-learn's linear classifiers (LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, "
    "Perceptron, LinearDiscriminantAnalysis, ...), SVC and NuSVC with kernel='linear' or 'rbf'; these after affine steps in a "
    "Pipeline, and linear ones after RBFSampler or Nystroem(kernel='rbf')"
)


@singledispatch
def model_of(model: Any) -> Model:
    """Return what certificates see of a fitted classifier; NoCertificateError where it is none that is known.

    A classifier of one's own joins by ``model_of.register``.
    """
    raise NoCertificateError(
        f"{model!r:.120}: no certificate is known for it. Supported are {SUPPORTED}. Any classifier with predict takes "
        "certified_radius(..., method='smoothing'), which is smoothed."
    )


def _of_linear_scores(last: Any, offset: Any) -> LinearModel:
    W = np.atleast_2d(last)
    b = np.broadcast_to(np.ravel(offset), len(W))
    return LinearModel(AffineMap(W, b), one_score() if len(W) == 1 else LargestScore(len(W)))


@model_of.register(LinearClassifier)
@model_of.register(LinearClassifierMixin)
def _(model: Any) -> Model:
    if not hasattr(model, "coef_"):
        return model_of.dispatch(object)(model)
    return _of_linear_scores(dense(model.coef_), model.intercept_)


@model_of.register
def _(model: MinimaxProbabilityClassifier) -> Model:
    if hasattr(model, "coef_"):
        return _of_linear_scores(model.coef_, model.intercept_)
    if model.kernel != "rbf":
        raise NoCertificateError(
            f"{model!r:.80}: of kernels only kernel='rbf' is certified. Supported are {SUPPORTED}."
        )
    decision = one_score() if len(model.dual_coef_) == 1 else LargestScore(len(model.dual_coef_))
    output = AffineMap(model.dual_coef_, model.intercept_)
    return KernelModel(dense(model.X_fit_).astype(np.float64), model.gamma_, output, decision)


@model_of.register(SVC)
@model_of.register(NuSVC)
def _(model: Any) -> Model:
    centres, a, K = dense(model.support_vectors_), dense(model.dual_coef_), len(model.classes_)
    decision: Votes = one_score()
    if K > 2:
        # libsvm keeps the weights of all contests of a class with its own support vectors
        owner, pairs = np.repeat(np.arange(K), model.n_support_), list(combinations(range(K), 2))
        a = np.array([np.where(owner == i, a[j - 1], np.where(owner == j, a[i], 0.0)) for i, j in pairs])
        decision = Votes(np.array(pairs), K, needs_lead=bool(model.break_ties))
    if model.kernel == "linear":
        return LinearModel(AffineMap(a, model.intercept_, (Product(centres),)), decision)
    if model.kernel == "rbf":
        return KernelModel(centres, model._gamma, AffineMap(a, model.intercept_), decision)
    raise NoCertificateError(
        f"{model!r:.80}: of kernels only 'linear' and 'rbf' are certified. Supported are {SUPPORTED}."
    )


@model_of.register
def _(model: BaseSearchCV) -> Model:
    return model_of(model.best_estimator_)


@model_of.register
def _(model: Pipeline) -> Model:
    found = model_of(model.steps[-1][1])
    for _, step in reversed(model.steps[:-1]):
        found = before(step, found)
    return found


@singledispatch
def before(step: Any, model: Model) -> Model:
    """Return what certificates see of a model whose rows go through a fitted step first."""
    return model.after(affine_operations(step))


def _linear_only(step: Any, model: Model) -> LinearModel:
    linear = model.as_linear()
    if linear is None:
        raise NoCertificateError(f"{step!r:.80}: certified before a linear model only. Supported are {SUPPORTED}.")
    return linear


@before.register
def _(step: RBFSampler, model: Model) -> Model:
    linear, amplitude = _linear_only(step, model), np.sqrt(2.0 / step.n_components)
    angles = AffineMap(step.random_weights_.T, step.random_offset_, follows_rows=True)
    output = linear.map.after([Multiply(np.full(step.n_components, amplitude))])
    return FourierModel(angles, output, linear.decision)


@before.register
def _(step: Nystroem, model: Model) -> Model:
    linear = _linear_only(step, model)
    if step.kernel != "rbf":
        raise NoCertificateError(f"{step!r:.80}: of kernels only 'rbf' is certified. Supported are {SUPPORTED}.")
    basis = dense(step.components_).astype(np.float64)
    width = step.gamma if step.gamma is not None else (step.kernel_params or {}).get("gamma")
    width = 1.0 / basis.shape[1] if width is None else width
    return KernelModel(basis, width, linear.map.after([Product(step.normalization_)]), linear.decision)


def _check_model(model: Any) -> None:
    if isinstance(model, type) or not (hasattr(model, "predict") and hasattr(model, "fit")):
        raise TypeError(f"model={short(model):.80}: give a fitted classifier.")
    check_is_fitted(model, msg="model: this %(name)s is not fitted yet. Call fit first.")


def classes_of(model: Any) -> NDArray[Any]:
    """Return the classes of a fitted classifier."""
    _check_model(model)
    return np.asarray(model.classes_)


@singledispatch
def taker_of(model: Any) -> Any:
    """Return the part of a fitted model that X goes to first."""
    return model


@taker_of.register
def _(model: BaseSearchCV) -> Any:
    return taker_of(model.best_estimator_)


@taker_of.register
def _(model: Pipeline) -> Any:
    return taker_of(next(step for _, step in model.steps if step not in (None, "passthrough")))


def rows_for(model: Any, X: Any) -> Any:
    """Return rows as an array or CSR matrix of finite floats, with the features that the model was fitted with."""
    _check_model(model)
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32, np.float16], "ensure_all_finite": "allow-nan"}
    taker = taker_of(model)
    is_known = isinstance(taker, BaseEstimator)
    rows = validate_data(taker, X, reset=False, **options) if is_known else check_array(X, **options)
    if np.any(np.isnan(rows.data if sparse.issparse(rows) else rows)):
        raise ValueError(
            "X: Input X contains NaN, around which nothing is known. Leave rows with missing entries out, or fill these in, as "
            "imputer.transform(X). The certify and flip_probability of an UncertainPipeline take them."
        )
    return rows


def as_given(X: Any, rows: Array) -> Any:
    """Return rows in a frame like X, so that a model finds the names of its features; as they are where X is no frame."""
    if hasattr(X, "iloc"):
        return type(X)(rows, columns=X.columns)
    return type(X)(rows, schema=list(X.columns)) if hasattr(X, "columns") else rows


def scale_of(weights: Any, n_features: int, call: str) -> Array:
    """Return the units of perturbations, shape (n_features,)."""
    given = per_feature(1.0 if weights is None else weights, n_features, f"{call}(..., weights=...)", "weights")
    return np.broadcast_to(nonnegative(given, f"{call}(..., weights=...)", "weights"), n_features)
