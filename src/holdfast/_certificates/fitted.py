"""The certificate models of fitted classifiers, ours and scikit-learn's, without the steps of a pipeline."""

from __future__ import annotations

from functools import singledispatch
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, NuSVC

from holdfast._certificates.decisions import LargestScore, Votes, one_score
from holdfast._certificates.kernel_model import KernelModel
from holdfast._certificates.models import LinearModel, Model
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.arithmetic import dense
from holdfast._core.exceptions import NoCertificateError
from holdfast.uncertainty.affine_map import AffineMap

SUPPORTED = (
    "holdfast's classifiers; scikit-learn's linear classifiers (LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, "
    "Perceptron, LinearDiscriminantAnalysis, ...), SVC and NuSVC with kernel='linear' or 'rbf'; these after affine steps, "
    "imputers and encoders of categories in a Pipeline, and linear ones after RBFSampler or Nystroem(kernel='rbf')"
)
SMOOTHED = "Any classifier with predict takes certified_radius(..., method='smoothing'), which is smoothed."


def model_of(model: Any) -> Model:
    """Return the certificate model of a fitted classifier. Raises NoCertificateError if its class is not known.

    Other classifiers may have a method ``certificate_model()``, or be registered with ``known_model.register``.
    """
    found: Model = model.certificate_model() if hasattr(model, "certificate_model") else known_model(model)
    return found


@singledispatch
def known_model(model: Any) -> Model:
    """Return the certificate model registered for the class of a classifier."""
    raise NoCertificateError(f"{model!r:.120}: no certificate is known for it. Supported are {SUPPORTED}. {SMOOTHED}")


def linear_model(coef: Any, intercept: Any) -> LinearModel:
    """Return the model of linear scores: one score for two classes, else one for each class, and the largest wins."""
    W = np.atleast_2d(dense(coef))
    b = np.broadcast_to(np.ravel(intercept), len(W))
    return LinearModel(RoundedMap(W, b), one_score() if len(W) == 1 else LargestScore(len(W)))


def kernel_model(centres: Any, width: float, coef: Any, intercept: Any) -> KernelModel:
    """Return the model of scores that are linear in values of an RBF kernel, with the decision of :func:`linear_model`."""
    W = np.atleast_2d(coef)
    decision = one_score() if len(W) == 1 else LargestScore(len(W))
    return KernelModel(dense(centres).astype(np.float64), width, RoundedMap(W, intercept), decision)


@known_model.register(LinearClassifierMixin)
def _(model: Any) -> Model:
    return (
        linear_model(model.coef_, model.intercept_) if hasattr(model, "coef_") else known_model.dispatch(object)(model)
    )


@known_model.register(SVC)
@known_model.register(NuSVC)
def _(model: Any) -> Model:
    centres, a, K = dense(model.support_vectors_), dense(model.dual_coef_), len(model.classes_)
    decision: Votes = one_score()
    if K > 2:
        # libsvm stores K - 1 weights for each support vector: for its class against each other class, in order
        owner, pairs = np.repeat(np.arange(K), model.n_support_), list(combinations(range(K), 2))
        a = np.array([np.where(owner == i, a[j - 1], np.where(owner == j, a[i], 0.0)) for i, j in pairs])
        decision = Votes(np.array(pairs), K, needs_lead=bool(model.break_ties))
    if model.kernel == "linear":
        return LinearModel(RoundedMap(a, model.intercept_, AffineMap(centres)), decision)
    if model.kernel == "rbf":
        # libsvm adds up squared differences, which is more accurate than |x|^2 + |z|^2 - 2 x'z
        return KernelModel(centres, model._gamma, RoundedMap(a, model.intercept_), decision, is_direct=True)
    raise NoCertificateError(
        f"{model!r:.80}: of kernels only 'linear' and 'rbf' are certified. Supported are {SUPPORTED}."
    )


def refuse_own_predicts(model: Any) -> None:
    """Raise NoCertificateError if a subclass of a known class overrides predict or decision_function.

    The last step of a pipeline, and the best estimator of a search, are checked too.
    """
    inner = getattr(model, "best_estimator_", None) if isinstance(model, BaseSearchCV) else None
    inner = model.steps[-1][1] if isinstance(model, Pipeline) else inner
    if inner is not None:
        refuse_own_predicts(inner)
    # the author of a certificate_model is responsible for it
    if any("certificate_model" in vars(one) and not _is_known(one) for one in type(model).__mro__):
        return
    known = known_model.dispatch(type(model))
    is_ours = hasattr(model, "certificate_model") or isinstance(model, Pipeline | BaseSearchCV)
    if known is known_model.registry[object] and not is_ours:
        return  # an unknown class: model_of raises the error
    for method in ("predict", "decision_function"):
        # a method defined in a subclass of the known class may use the weights in any way
        home = next((one for one in type(model).__mro__ if method in vars(one)), None)
        if home is not None and not _is_known(home) and known not in _own_registrations(home):
            raise NoCertificateError(
                f"{type(model).__name__}: has a {method} of its own, of which its weights say nothing. Give it a method "
                f"certificate_model(), or smooth it. {SMOOTHED}"
            )


def _is_known(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("sklearn", "holdfast")


def _own_registrations(home: type) -> list[Any]:
    """Return the functions registered for a class or its subclasses."""
    return [found for kind, found in known_model.registry.items() if kind is not object and issubclass(kind, home)]
