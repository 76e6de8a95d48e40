"""What is not stated is not assumed: sets without a size, noise that nobody speaks of."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    make_uncertain_pipeline,
    robust_accuracy,
)
from holdfast.estimators import critical_noise, critical_radius, noise_path, radius_path, separability_radius
from holdfast.evaluate import certified_accuracy, worst_case

UNSIZED = [Box(), Ball(), Ball(norm=1), Ellipsoid(), Ball(0.1) + Box(), Box() + IntervalBox(-0.1, 0.1)]
BOTH_WAYS = r"size is stated neither here nor by the rows.*\(radius=0.1\).*or pass that of each row, X_"


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) * [1.0, 3.0, 0.5]
    return X, (X[:, 0] + 0.2 * rng.normal(size=60) > 0).astype(int), rng.uniform(0.05, 0.2, size=X.shape)


@pytest.mark.parametrize("uncertainty", UNSIZED, ids=repr)
def test_sets_without_a_size_are_refused_by_all_who_use_them_as_they_are(uncertainty, rows):
    X, y, _ = rows
    plain = LogisticRegression().fit(X, y)
    for use in (
        lambda: RobustLinearClassifier(uncertainty).fit(X, y),
        lambda: MinimaxProbabilityClassifier(uncertainty).fit(X, y),
        lambda: NoiseCopies(LogisticRegression(), 2, uncertainty=uncertainty).fit(X, y),
        lambda: make_uncertain_pipeline(StandardScaler(), RobustLinearClassifier(uncertainty)).fit(X, y),
        lambda: make_uncertain_pipeline(PCA(2), RobustLinearClassifier(uncertainty)).fit(X, y),
        lambda: RobustLinearClassifier(Ball(0.1)).fit(X, y).set_params(uncertainty=uncertainty).certify(X),
        lambda: robust_accuracy(plain, X, y, uncertainty),
        lambda: certified_accuracy(plain, X, y, uncertainty),
        lambda: worst_case(plain, X, y, uncertainty),
    ):
        with pytest.raises(ValueError, match=BOTH_WAYS):
            use()


@pytest.mark.parametrize("uncertainty", [Box(), Ellipsoid(), Box() + IntervalBox(-0.1, 0.1)], ids=repr)
def test_those_who_size_sets_themselves_take_them_at_size_one(uncertainty, rows):
    X = rows[0][:14]
    y = X[:, 0] > 0
    sized = uncertainty.as_shape()
    search = RobustLinearClassifierCV([0.1, 0.01], uncertainty=uncertainty, loss="logistic", cv=2)
    for size in (
        lambda sets: critical_radius(X, y, sets, loss="logistic"),
        lambda sets: separability_radius(X, y, sets),
        lambda sets: radius_path(X, y, [0.3, 0.1], uncertainty=sets, loss="logistic").coefs,
        lambda sets: clone(search).set_params(uncertainty=sets).fit(X, y).coef_,
        lambda sets: (
            make_uncertain_pipeline(StandardScaler(), clone(search).set_params(uncertainty=sets)).fit(X, y)[-1].coef_
        ),
    ):
        found = size(uncertainty)
        assert np.any(found)
        assert_array_equal(found, size(sized))


def test_searches_over_the_radius_begin_with_a_set_without_one(rows):
    X, y, _ = rows
    search = GridSearchCV(RobustLinearClassifier(Ball()), {"uncertainty__radius": [0.1, 0.2]}, cv=2).fit(X, y)
    assert search.best_estimator_.uncertainty.radius in (0.1, 0.2)


def test_noise_that_is_searched_is_of_size_one_where_its_size_is_not_stated(rows):
    X, y, S = rows
    for noise in (None, GaussianNoise()):
        assert critical_noise(X, y, noise=noise) == critical_noise(X, y, noise=1.0)
        assert_array_equal(
            noise_path(X, y, [0.5, 0.1], noise=noise, loss="hinge").coefs,
            noise_path(X, y, [0.5, 0.1], noise=1.0, loss="hinge").coefs,
        )
        for metadata, options in (({}, {"noises": [0.5, 0.1]}), ({"X_std": S}, {"alphas": [1.0, 0.1]})):
            model = GaussianRobustClassifierCV(cv=2, noise=noise, **options).fit(X, y, **metadata)
            other = clone(model).set_params(noise=1.0).fit(X, y, **metadata)
            assert_array_equal(model.coef_, other.coef_)
            assert model.noise_ == other.noise_


def test_pipelines_take_the_rows_noise_as_stated_and_else_none(rows):
    X, y, S = rows
    scale = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / scale
    for steps in ([StandardScaler()], [StandardScaler(), PCA(2)]):
        pipe = make_uncertain_pipeline(*steps, GaussianRobustClassifier())
        assert_array_equal(
            clone(pipe).fit(X, y, X_std=S)[-1].coef_,
            clone(pipe).set_params(gaussianrobustclassifier__noise=1.0).fit(X, y, X_std=S)[-1].coef_,
        )
        plain = clone(pipe).fit(X, y)
        without = clone(pipe).set_params(gaussianrobustclassifier__noise=0.0).fit(X, y)
        assert_allclose(plain[-1].coef_, without[-1].coef_, rtol=1e-6)
        assert plain[-1].noise is None
        with pytest.raises(ValueError, match="states no noise"):
            plain.flip_probability(X)
        assert_allclose(plain.flip_probability(X, X_std=S), without.flip_probability(X, X_std=S), rtol=1e-4)
        assert_allclose(plain.predict_proba(X), without.predict_proba(X), rtol=1e-5)
    model = GaussianRobustClassifier().fit(Z, y, X_std=S / scale)
    pipe = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier()).fit(X, y, X_std=S)
    assert_allclose(pipe[-1].coef_, model.coef_, rtol=1e-7)


def test_pipelines_search_the_noise_at_factor_one_and_answer_with_what_was_chosen(rows):
    X, y, _ = rows
    search = GaussianRobustClassifierCV([0.5, 0.2], cv=2)
    model = clone(search).fit(X, y)
    pipe = make_uncertain_pipeline(StandardScaler(with_mean=False, with_std=False), search).fit(X, y)
    assert_allclose(pipe.flip_probability(X), model.flip_probability(X), rtol=1e-9)
    assert_allclose(pipe.fit(X, y)[-1].coef_, model.coef_, rtol=1e-9)
    assert pipe[-1].noise_ == model.noise_ < 1


def test_what_an_imputer_fills_in_is_noise_to_a_classifier_that_states_none(rows):
    X, y, S = rows
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    for metadata in ({}, {"X_std": S}):
        pipe, other = (
            make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier(noise)).fit(
                X, y, **metadata
            )
            for noise in (None, GaussianNoise(0.0) if not metadata else 1.0)
        )
        assert_allclose(pipe[-1].coef_, other[-1].coef_, rtol=1e-7)
        assert pipe[-1].row_noise_
        deviations = pipe.score_std(X, **metadata)
        assert np.all(deviations[np.isnan(X).any(axis=1)] > 0)


def test_classifiers_of_noise_refuse_sets(rows):
    X, y, S = rows
    for sets in (Box(1), Box(), Ellipsoid(0.1), GaussianNoise(0.1) + Ball(0.1)):
        for model in (GaussianRobustClassifier(sets), GaussianRobustClassifierCV([0.1], noise=sets, cv=2)):
            with pytest.raises(ValueError, match=r"a set says what may happen.*Use RobustLinearClassifier"):
                model.fit(X, y)
            with pytest.raises(ValueError, match=r"a set says what may happen.*Use RobustLinearClassifier"):
                make_uncertain_pipeline(StandardScaler(), model).fit(X, y, X_std=S)
        with pytest.raises(ValueError, match="Use RobustLinearClassifier"):
            noise_path(X, y, [0.1], noise=sets)
