"""Class probabilities that allow for the noise of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from holdfast._core.labels import check_columns
from holdfast._core.loss import Array
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.row_sets import RowSets
from holdfast._core.whole_fits import WholeFits
from holdfast.estimators.scores import against_the_rest, among_all, coefficients_of
from holdfast.features.rows import checked_weights
from holdfast.losses import ExpectedLogistic
from holdfast.pipeline.inner_fit import CLASSIFIER, InnerFit
from holdfast.uncertainty import GaussianNoise

NAME = "ModeratedClassifier"
Link = Callable[[Array, Array, RowSets | None, Callable[[Array, Array], Array]], Array]
LINKS: dict[str, Link] = {"one_vs_rest": against_the_rest, "softmax": among_all}
LINK_ACCURACY = 1e-4
"""The largest difference between a model's probabilities and those of a link that counts as agreement."""


def _expected_sigmoid(score: Array, t: Array) -> Array:
    return ExpectedLogistic().evaluate(1.0 + score, t)[1]


class ModeratedClassifier(WholeFits, InnerFit, ClassifierMixin, BaseEstimator):
    r"""Class probabilities of a linear model, averaged over the noise of each row.

    A logistic model is over-confident about rows that are measured badly. With the score f and its standard deviation
    :math:`t = \sqrt{w^\top C w}` under the noise :math:`N(0, C)` of a row, the second of two classes has the
    probability

    .. math:: \mathbb E\,\mathrm{sigmoid}(f + tZ) \approx \mathrm{sigmoid}\bigl(f / \sqrt{1 + \pi t^2 / 8}\bigr) ,

    with Z standard normal. The left side is computed, up to rounding; MacKay's approximation on the right is
    off by up to 0.02. With more classes, where the model's probabilities are the softmax of its scores,

    .. math:: p_k \propto \Bigl(1 + \sum_{l \ne k} \frac{1 - p_{kl}}{p_{kl}}\Bigr)^{-1}, \qquad
              p_{kl} = \mathbb E\,\mathrm{sigmoid}(f_k - f_l + t_{kl}Z),

    an approximation made of exact probabilities of pairs of classes. Where they are the probabilities of each class
    against the rest, scaled to sum to 1, each of these is averaged, with the root mean square of the classes'
    deviations as t; this is rougher. Training and predictions are those of the estimator.

    Parameters
    ----------
    estimator : classifier
        A linear model of probabilities: ``LogisticRegression()``, ``SGDClassifier(loss="log_loss")``,
        ``RobustLinearClassifier(loss="logistic")``, ``LinearDiscriminantAnalysis()`` or
        ``CalibratedClassifierCV(LinearSVC(), ensemble=False)``. Pass a model that is fitted already as
        ``FrozenEstimator(model)``. Put scalers before it, in an :class:`UncertainPipeline`.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    link_ : {"one_vs_rest", "softmax"}
        How its scores become probabilities; with two classes both links are the same.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    D. MacKay, "The Evidence Framework Applied to Classification Networks" (1992).
    Z. Lu, E. Ie, F. Sha, "Mean-Field Approximation to Gaussian-Softmax Integral" (2020).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import ModeratedClassifier
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> scale = data.X.std(axis=0)
    >>> X, S = data.X / scale, data.X_std / scale
    >>> model = ModeratedClassifier(LogisticRegression(max_iter=1000)).fit(X, data.y)
    >>> model.predict_proba(X[:2])[:, 0].round(3), model.predict_proba(X[:2], X_std=4 * S[:2])[:, 0].round(3)
    (array([0.999, 0.995]), array([0.888, 0.911]))
    """

    parameter_table = {"estimator": CLASSIFIER}

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Fit the estimator, and find how its scores become probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        **params : dict
            For the estimator's `fit`.
        """
        given = self._handed_on(params)
        if sample_weight is not None:
            checked_weights(sample_weight, X, f"{NAME}.fit")
            given = {**given, "sample_weight": sample_weight}
        model = clone(self.estimator).fit(X, y, **given)
        link = _link_of(model, X)
        self.estimator_, self.link_, self.classes_ = model, link, model.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    def predict(self, X: Any) -> Any:
        """Return the predicted class of each row, shape (n_samples,)."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def decision_function(self, X: Any) -> Array:
        """Return the linear scores, which do not depend on noise, shape (n_samples,) or (n_samples, n_classes)."""
        check_is_fitted(self)
        return _scores_and_coefficients(self.estimator_, X)[0]

    @takes_metadata
    def predict_proba(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        """Return class probabilities averaged over the noise of each row, shape (n_samples, n_classes).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        **metadata
            The noise of each row: ``X_std``, standard deviations, (n_samples, n_features); ``X_cov``, covariances,
            (n_samples, n_features, n_features); or ``X_factor``, factors of them, (n_samples, n_features, r). Without
            metadata, the estimator's own probabilities are returned.
        """
        check_is_fitted(self)
        if not metadata:
            return self.estimator_.predict_proba(X)
        check_columns(X, metadata, self)
        scores, coef = _scores_and_coefficients(self.estimator_, X)
        noise = GaussianNoise().at(np.broadcast_to(0.0, (len(scores), coef.shape[1])), metadata)
        return LINKS[self.link_](scores, coef, noise, _expected_sigmoid)

    @takes_metadata
    def predict_log_proba(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X, **metadata))


def _scores_and_coefficients(model: Any, X: Any) -> tuple[Array, Array]:
    """Return the linear scores from which the model computes its probabilities, and their coefficients."""
    if hasattr(model, "calibrated_classifiers_"):
        return _calibrated(model, X)
    if not hasattr(model, "decision_function"):
        raise ValueError(
            f"{NAME}({model!r:.80}): it has no decision_function. Give a linear model of probabilities, such as "
            "LogisticRegression(); one behind scalers goes into an UncertainPipeline."
        )
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    return scores, coefficients_of(model, X, scores, f"{NAME}({model!r:.80})")


def _calibrated(model: Any, X: Any) -> tuple[Array, Array]:
    """Return the scores -(a f + b) and their coefficients, for a linear model f calibrated to sigmoid(-(a f + b))."""
    call = f"{NAME}({model!r:.80})"
    if len(model.calibrated_classifiers_) != 1 or not all(
        hasattr(calibrator, "a_") for calibrator in model.calibrated_classifiers_[0].calibrators
    ):
        raise ValueError(f"{call}: it takes only calibrated models with method='sigmoid' and ensemble=False.")
    [pair] = model.calibrated_classifiers_
    scores, coef = _scores_and_coefficients(pair.estimator, X)
    slopes, shifts = np.array([(-calibrator.a_, -calibrator.b_) for calibrator in pair.calibrators]).T
    scores = scores.reshape(len(scores), -1) * slopes + shifts
    return scores[:, 0] if len(slopes) == 1 else scores, coef * slopes[:, None]


def _link_of(model: Any, X: Any) -> str:
    """Return the name of the link in `LINKS` by which the model turns its scores into probabilities."""
    if not hasattr(model, "predict_proba"):
        raise ValueError(
            f"{NAME}({model!r:.80}): it has no predict_proba, so its scores are no log-odds. Calibrate it first, "
            "CalibratedClassifierCV(model, ensemble=False), or use LogisticRegression()."
        )
    scores, coef = _scores_and_coefficients(model, X)
    # a model that was trained with the noise of each row is asked about exact rows
    exact = {"X_std": np.zeros((len(scores), coef.shape[1]))} if getattr(model, "row_noise_", False) else {}
    given = model.predict_proba(X, **exact)
    for name in ("one_vs_rest",) if scores.ndim == 1 else LINKS:
        # no attribute that all classifiers have tells the link, so compare the probabilities themselves
        if np.abs(LINKS[name](scores, coef, None, _expected_sigmoid) - given).max(initial=0.0) <= LINK_ACCURACY:
            return name
    raise ValueError(
        f"{NAME}({model!r:.80}): its probabilities are neither the sigmoid nor the softmax of its scores, so what noise does "
        "to them is not known. Give a logistic model, such as LogisticRegression()."
    )
