"""One pipeline asked from several threads, and clones fitted in several: each thread gets what it would get alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Box,
    Ellipsoid,
    GaussianNoise,
    GaussianRobustClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    UncertainPipeline,
)

N_THREADS, ROUNDS = 4, 6
FACTORS = np.linspace(0.2, 2.0, N_THREADS)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) * [1.0, 30.0, 0.2, 5.0]
    return (
        X,
        np.where(X[:, 0] + 0.1 * rng.normal(size=80) > 0, "b", "a"),
        0.1 * rng.uniform(size=X.shape) * X.std(axis=0),
    )


def _in_threads(ask, n_rounds=ROUNDS):
    """Return what `ask` says of each of the factors, asked many times at once."""
    start = threading.Barrier(N_THREADS)

    def many(factor):
        start.wait()  # all at once, not one after the other
        return [ask(factor) for _ in range(n_rounds)]

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(many, FACTORS))


def _pipeline(last, *before):
    return UncertainPipeline([("scale", StandardScaler()), *before, ("clf", last)])


QUESTIONS = {
    "certify": (RobustLinearClassifier(Box()), "certified_margin"),
    "ellipsoids": (RobustLinearClassifier(Ellipsoid()), "certified_margin"),
    "probabilities": (GaussianRobustClassifier(), "predict_proba"),
    "flips": (GaussianRobustClassifier(loss="hinge"), "flip_probability"),
    "drawn": (NoiseCopies(LogisticRegression(), 2, average_draws=4, random_state=0), "predict_proba"),
    "drawn predictions": (NoiseCopies(LogisticRegression(), 2, average_draws=4, random_state=0), "predict"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_from_several_threads_are_answered_as_from_one(name, data):
    X, y, S = data
    last, method = QUESTIONS[name]
    pipe = _pipeline(last).fit(X, y, X_std=S)

    def ask(factor):
        return getattr(pipe, method)(X, X_std=factor * S)

    alone = [ask(factor) for factor in FACTORS]
    assert not np.array_equal(alone[0], alone[-1]) or method == "predict"
    for one, found in zip(alone, _in_threads(ask), strict=True):
        for each in found:
            assert_array_equal(each, one)


def test_sets_of_the_question_do_not_reach_other_threads(data):
    X, y, _ = data
    pipe = _pipeline(RobustLinearClassifier(Box(0.1)), ("pca", PCA(3))).fit(X, y)

    def ask(factor):
        return pipe.certified_margin(X, Box(factor)), pipe.certified_margin(X), pipe.predict(X)

    for one, found in zip([ask(factor) for factor in FACTORS], _in_threads(ask), strict=True):
        for each in found:
            for own, other in zip(each, one, strict=True):
                assert_array_equal(own, other)


@pytest.mark.parametrize(
    "last",
    [
        RobustLinearClassifier(Box()),
        GaussianRobustClassifier(),
        NoiseCopies(LogisticRegression(), 2, uncertainty=GaussianNoise(), random_state=0),
    ],
    ids=lambda last: type(last).__name__,
)
def test_clones_are_fitted_in_several_threads_as_in_one(last, data):
    X, y, S = data
    pipe = _pipeline(last)

    def fit(factor):
        model = clone(pipe).fit(X, y, X_std=factor * S)
        assert "_handover" not in vars(model)
        return model.decision_function(X)

    for one, found in zip([fit(factor) for factor in FACTORS], _in_threads(fit, 2), strict=True):
        for each in found:
            assert_array_equal(each, one)


class Watched(ClassifierMixin, BaseEstimator):
    """A classifier whose fit lets others look at the pipeline meanwhile."""

    look = None

    def __init__(self, uncertainty=None):
        self.uncertainty = uncertainty

    def fit(self, X, y):
        type(self).look(self)
        self.classes_, self.seen_ = np.unique(y), self.uncertainty
        return self

    def predict(self, X):
        return np.repeat(self.classes_[0], len(X))


def test_during_a_fit_the_pipeline_still_has_the_sets_that_it_was_given(data, monkeypatch):
    X, y, _ = data
    pipe = _pipeline(Watched(Box(0.3)))
    seen = []

    def look(fitted):
        seen.append((pipe[-1].uncertainty, pipe.get_params()["clf__uncertainty"], fitted.uncertainty, set(vars(pipe))))

    monkeypatch.setattr(Watched, "look", staticmethod(look))
    pipe.fit(X, y)
    [(own, parameter, carried, names)] = seen
    assert own is parameter is pipe[-1].uncertainty
    assert own == Box(0.3)
    assert carried != own
    assert pipe[-1].seen_ is carried
    assert names == {"steps", "transform_input", "memory", "verbose", "nonlinear", "effects", "_is_broken"}


def test_estimators_inside_the_last_step_keep_their_sets_and_learn_what_their_copies_do(data, monkeypatch):
    X, y, _ = data

    class InPlace(ClassifierMixin, BaseEstimator):
        """A classifier that fits the one inside it, not a clone."""

        def __init__(self, inner):
            self.inner = inner

        def fit(self, X, y):
            self.inner.fit(X, y)
            self.classes_ = self.inner.classes_
            return self

        def predict(self, X):
            return self.inner.predict(X)

    inner = RobustLinearClassifier(Box(0.3))
    pipe = _pipeline(InPlace(inner)).fit(X, y)
    assert pipe[-1].inner is inner
    assert inner.uncertainty == Box(0.3)
    by_hand = _pipeline(RobustLinearClassifier(Box(0.3))).fit(X, y)
    assert_array_equal(inner.coef_, by_hand[-1].coef_)
    assert_array_equal(pipe.predict(X), by_hand.predict(X))
