"""Methods that an estimator has not, or not with these settings: no attribute, and an error that says what brings them."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from holdfast import (
    Box,
    FeatureDeletionClassifier,
    FeatureDeletionPerceptron,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    LabelFlips,
    MinimaxProbabilityClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
)
from holdfast.estimators import linear
from holdfast.experiments import AlternatingSVC

X = np.array([[-2.0, 1.0], [-1.0, 0.0], [1.0, 0.0], [2.0, -1.0]])
y = np.array([0, 0, 1, 1])
MISSING = [
    (RobustLinearClassifier(Box(0.1)), "predict_proba", "has no predict_proba with loss='hinge'.*Use loss='logistic'"),
    (
        RobustLinearClassifierCV(loss="squared_hinge"),
        "predict_log_proba",
        "with loss='squared_hinge'.*Use loss='logistic'",
    ),
    (
        GaussianRobustClassifier(0.1, loss="hinge"),
        "predict_proba",
        "with loss='hinge'.*loss='logistic'; flip_probability says",
    ),
    (RobustLinearClassifier(multiclass="joint"), "partial_fit", "with multiclass='joint'.*Use multiclass='ovr'"),
    (RobustLinearClassifier(ambiguity=LabelFlips(1)), "partial_fit", "with ambiguity=LabelFlips.*or ambiguity=None"),
    (RobustLinearClassifier(solver="highs"), "partial_fit", "with solver='highs'.*Give solver=None"),
    (GaussianRobustClassifier(class_weight="balanced"), "partial_fit", "with class_weight='balanced'.*Give a dict"),
    (GaussianRobustClassifier(link="moderated"), "partial_fit", "with link='moderated'.*Use link=None"),
    (GaussianRobustClassifierCV(), "partial_fit", "Use GaussianRobustClassifier."),
    (RobustLinearClassifier(Box(0.1)), "flip_probability", r"has no flip_probability. GaussianRobustClassifier has it"),
    (RobustLinearClassifier(Box(0.1)), "missing_report", "FeatureDeletionClassifier"),
    (
        AlternatingSVC(),
        "predict_proba",
        "AlternatingSVC has no predict_proba. RobustLinearClassifier and .*loss='logistic'",
    ),
    (FeatureDeletionClassifier(), "partial_fit", "FeatureDeletionPerceptron have it"),
    (FeatureDeletionPerceptron(), "score_std", "GaussianRobustClassifier has it"),
    (MinimaxProbabilityClassifier(), "flip_probability", "GaussianRobustClassifier has it"),
    (GaussianRobustClassifier(), "proof_weights_", "with loss='hinge'"),
    (
        NoiseCopies(LinearSVC()),
        "predict_proba",
        "NoiseCopies has no predict_proba, as its estimator has none: .*LinearSVC",
    ),
]


@pytest.mark.parametrize(("model", "name", "text"), MISSING, ids=lambda value: f"{value!r:.40}")
def test_what_is_missing_is_no_attribute_and_the_error_says_what_brings_it(model, name, text):
    for each in (model, clone(model), pickle.loads(pickle.dumps(model))):
        assert not hasattr(each, name)
        with pytest.raises(AttributeError, match=text):
            getattr(each, name)


def test_what_brings_it_does():
    assert hasattr(RobustLinearClassifier(loss="logistic"), "predict_proba")
    assert hasattr(RobustLinearClassifier(multiclass="ovr"), "partial_fit")
    assert hasattr(NoiseCopies(LogisticRegression()), "predict_proba")
    assert RobustLinearClassifier(loss="logistic").fit(X, y).predict_proba(X).shape == (4, 2)


def test_settings_decide_anew_after_they_are_changed():
    model = RobustLinearClassifier(loss="logistic").fit(X, y)
    assert not hasattr(model.set_params(loss="hinge"), "predict_proba")
    assert hasattr(model.set_params(loss="logistic"), "predict_proba")


def test_other_names_are_missing_as_usual():
    with pytest.raises(AttributeError, match="'RobustLinearClassifier' object has no attribute 'predikt'"):
        _ = RobustLinearClassifier().predikt
    assert not hasattr(RobustLinearClassifier(), "__name__")


def test_whoever_is_named_has_it():
    models = [
        RobustLinearClassifier(Box(0.1), loss="logistic").fit(X, y),
        RobustLinearClassifier(Box(0.1)).fit(X, y),
        GaussianRobustClassifier(0.1, loss="hinge").fit(X, y),
        GaussianRobustClassifier(0.1).fit(X, y),
        FeatureDeletionClassifier(0.5, missing="delete").fit(X, y),
        FeatureDeletionPerceptron(0.5, radius=3.0).fit(X, y),
        SafeClassifier(0.1, 0.1).fit(X, y),
    ]
    for name, where in linear.ELSEWHERE.items():
        named = [model for model in models if type(model).__name__ in where]
        assert any(hasattr(model, name) for model in named), name
