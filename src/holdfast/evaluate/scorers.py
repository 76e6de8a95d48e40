"""Scorers for ``scoring=`` that take the uncertainty of the rows into account."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import _check_sample_weight

from holdfast._core.allowed import short
from holdfast._core.exceptions import UnstatedError
from holdfast._core.loss import Array
from holdfast._core.metadata import METADATA, SetsByRow, takes_metadata
from holdfast._core.uncertainty import UncertaintySet
from holdfast.estimators.linear import ROUTING
from holdfast.evaluate.attack_questions import question_of
from holdfast.evaluate.noise import flip_probability
from holdfast.uncertainty import GaussianNoise


class RowScorer(BaseEstimator, ABC):
    """The weighted mean of one number per row, which may depend on the row's uncertainty; greater is better.

    With metadata routing on, the scorer requests ``X_std`` and the like without a `set_score_request`, and scikit-learn
    slices them by fold; ``sample_weight`` requires ``set_score_request(sample_weight=True)``. With routing off,
    scikit-learn passes none of them; then a set that multiplies ``X_std`` and the like is refused for a model that was
    fitted with them.
    """

    __metadata_request__score = {"estimator": UNUSED, **dict.fromkeys(METADATA, True)}

    @abstractmethod
    def of_rows(self, estimator: Any, X: Any, y: NDArray[Any], metadata: Mapping[str, Any]) -> Array:
        """Return one number for each row; `metadata` has no values that are None."""

    @takes_metadata
    def score(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[SetsByRow]) -> float:
        """Return the score of a fitted estimator; calling the scorer does the same."""
        own: Any = getattr(self, "uncertainty", None)
        is_open = isinstance(own, UncertaintySet) and bool(own.open_metadata)
        if is_open and not metadata and _was_told_of_rows(estimator):
            raise UnstatedError(
                f"{self!r}: this model was fitted with the uncertainty of each row, which {own!r} multiplies, so it needs "
                f"theirs here too. Pass {' or '.join(own.open_metadata)} (zeros for exact rows). {ROUTING} A set that is the "
                "same for all rows goes to robust_accuracy or flip_probability."
            )
        try:
            rows = self.of_rows(estimator, X, np.asarray(y), metadata)
        except UnstatedError as error:
            raise UnstatedError(f"{error} {ROUTING}") from error
        return float(np.average(rows, weights=_check_sample_weight(sample_weight, rows, ensure_non_negative=True)))

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, **metadata: Any) -> float:
        """Return the score of a fitted estimator."""
        return self.score(estimator, X, y, sample_weight=sample_weight, **metadata)

    def _accept_sample_weight(self) -> bool:  # scikit-learn asks this of the scorers of a dict
        return True


def _was_told_of_rows(estimator: Any) -> bool:
    """Return whether an estimator, or the last step of a pipeline, was fitted with the uncertainty of each row."""
    found = getattr(estimator, "best_estimator_", estimator)
    steps = (found, getattr(found, "_final_estimator", None))
    return any(getattr(step, name, False) for step in steps for name in ("row_noise_", "row_uncertainty_"))


class robust_accuracy_scorer(RowScorer):
    """Score: the share of rows that a linear classifier gets right wherever they are in their sets.

    It is exact, by the support functions of the sets. It takes linear classifiers of holdfast and scikit-learn, trained
    with the uncertainty or not, also after scalers and other affine steps of a pipeline. Sets are in the units of X. A
    row counts as wrong if rounding leaves it in doubt.

    Parameters
    ----------
    uncertainty : UncertaintySet
        The sets, such as ``Box(0.1)`` or ``Ball(0.5)``. With metadata at scoring, it says how to read them, as in
        `fit`: ``Box(2.0)`` is twice the half-widths ``X_std``. Gaussian noise has no bounds; use ``ChanceConstraint``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from holdfast import Ball
    >>> from holdfast.evaluate import robust_accuracy_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> scoring = {"clean": "accuracy", "robust": robust_accuracy_scorer(Ball(0.3))}
    >>> scores = cross_validate(LogisticRegression(max_iter=1000), X, y, scoring=scoring)
    >>> scores["test_clean"].mean().round(2), scores["test_robust"].mean().round(2)
    (np.float64(0.97), np.float64(0.87))
    """

    def __init__(self, uncertainty: UncertaintySet):
        self.uncertainty = uncertainty

    def of_rows(self, estimator: Any, X: Any, y: NDArray[Any], metadata: Mapping[str, Any]) -> Array:
        """Return 1.0 for rows that stay right, else 0.0."""
        is_known = np.isin(y, estimator.classes_)
        labels = np.where(is_known, y, estimator.classes_[0])
        call = "robust_accuracy_scorer"
        question = question_of(estimator, X, labels, self.uncertainty, metadata, "closed_form", call)
        sure = question.right_rows()[1]
        return np.where(is_known & sure, 1.0, 0.0)


class certified_accuracy_scorer(RowScorer):
    """Score: the share of rows whose prediction is right and certified by the classifier's own ``certify(X, **metadata)``.

    For `RobustLinearClassifier`, and any pipeline or other estimator that has ``certify``. The sets are those of the
    classifier's constructor, or those that metadata at scoring state.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from holdfast import Ball, RobustLinearClassifier
    >>> from holdfast.evaluate import certified_accuracy_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RobustLinearClassifier(Ball(0.2), multiclass="joint")
    >>> cross_val_score(model, X, y, scoring=certified_accuracy_scorer()).mean().round(2)
    np.float64(0.91)
    """

    def of_rows(self, estimator: Any, X: Any, y: NDArray[Any], metadata: Mapping[str, Any]) -> Array:
        """Return 1.0 for rows that are right and certified, else 0.0."""
        if not hasattr(estimator, "certify"):
            raise ValueError(
                f"certified_accuracy_scorer(): {type(estimator).__name__} has no certify(X, **metadata); "
                "RobustLinearClassifier and UncertainPipeline have. For other linear models state the sets, "
                "robust_accuracy_scorer(Box(0.1))."
            )
        return np.where(estimator.certify(X, **metadata) & (estimator.predict(X) == y), 1.0, 0.0)


class flip_rate_scorer(RowScorer):
    r"""Score: minus the mean probability that noise changes the prediction; 0 is best.

    It does not depend on labels, so use it together with accuracy. The probability is exact for two classes,
    :math:`\Phi(-|f|/t)`, and for more classes an upper bound.

    Parameters
    ----------
    uncertainty : GaussianNoise, default=None
        The noise, for any classifier (by draws if it is not linear); it multiplies metadata at scoring, as in `fit`.
        None: the classifier's own ``flip_probability(X, **metadata)``, for the noise of its constructor, or that of the
        metadata as stated.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from holdfast import GaussianNoise
    >>> from holdfast.evaluate import flip_rate_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> model, scoring = LogisticRegression(max_iter=1000), flip_rate_scorer(GaussianNoise(0.2))
    >>> cross_val_score(model, X, y, scoring=scoring).mean().round(3)
    np.float64(-0.038)
    """

    def __init__(self, uncertainty: UncertaintySet | None = None):
        self.uncertainty = uncertainty

    def of_rows(self, estimator: Any, X: Any, y: NDArray[Any], metadata: Mapping[str, Any]) -> Array:
        """Return minus the probability that each row's prediction flips."""
        if self.uncertainty is not None:
            if not isinstance(self.uncertainty, GaussianNoise):
                raise ValueError(
                    f"flip_rate_scorer(uncertainty={short(self.uncertainty):.80}): a set says what may happen, not how likely "
                    "it is. Give GaussianNoise, or use robust_accuracy_scorer."
                )
            return -flip_probability(estimator, X, self.uncertainty, **metadata, random_state=0).probability
        if not hasattr(estimator, "flip_probability"):
            raise ValueError(
                f"flip_rate_scorer(uncertainty=None): {type(estimator).__name__} has no flip_probability(X, **metadata); "
                "GaussianRobustClassifier and UncertainPipeline have. For other linear models state the noise, "
                "flip_rate_scorer(GaussianNoise(0.1)), or GaussianNoise() for X_std at scoring."
            )
        return -np.asarray(estimator.flip_probability(X, **metadata))
