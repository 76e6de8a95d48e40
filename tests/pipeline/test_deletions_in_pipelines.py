"""FeatureDeletionClassifier behind scalers: a deleted feature is the mean, and says nothing; its budget by cross-validation."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from holdfast import (
    Box,
    FeatureDeletion,
    FeatureDeletionClassifier,
    FeatureDeletionClassifierCV,
    FeatureDeletionPerceptron,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    make_uncertain_pipeline,
)
from holdfast.exceptions import CollapseWarning

D = 4


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(120, D)) * [1.0, 20.0, 0.1, 3.0] + [10.0, -30.0, 1.0, 0.0]
    y = ((X - X.mean(axis=0)) / X.std(axis=0) @ [1.0, 0.8, 0.6, 0.4] + 0.5 * rng.normal(size=120) > 0).astype(int)
    return X, y


@pytest.mark.parametrize(
    "last",
    [FeatureDeletionClassifier(1, missing="delete"), FeatureDeletionPerceptron(1, missing="delete", random_state=0)],
)
def test_what_is_deleted_behind_a_scaler_is_missing(rows, rng, last):
    X, y = rows
    pipe = make_uncertain_pipeline(StandardScaler(), last).fit(X, y)
    by_hand = type(last)(**last.get_params()).fit(pipe[0].transform(X), y)
    assert_allclose(pipe[-1].coef_, by_hand.coef_, atol=1e-9)
    holed = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    few = holed[np.isnan(holed).sum(axis=1) <= 1]
    filled = np.where(np.isnan(few), pipe[0].mean_, few)  # the mean says nothing
    assert_allclose(pipe.decision_function(few), pipe.decision_function(filled), atol=1e-9)
    Z = pipe[0].transform(few)
    assert_array_equal(pipe.is_certain(few), by_hand.is_certain(Z))
    assert_array_equal(pipe.missing_report(few).certain, by_hand.is_certain(Z))
    for got, want in zip(pipe.score_interval(few), by_hand.score_interval(Z), strict=True):
        assert_allclose(got, want)


def test_certificates_of_deletions_are_in_the_units_of_the_rows(rows):
    X, y = rows
    for scaler in (StandardScaler(), MinMaxScaler((1, 3))):
        pipe = make_uncertain_pipeline(scaler, FeatureDeletionClassifier(2, missing="delete")).fit(X, y)
        predicted, survives = pipe.predict(X), np.ones(len(X), dtype=bool)
        for gone in (list(pair) for k in (1, 2) for pair in combinations(range(D), k)):
            holed = X.copy()
            holed[:, gone] = np.nan
            survives &= pipe.predict(holed) == predicted
        assert_array_equal(pipe.certify(X), survives)
    worst = make_uncertain_pipeline(
        StandardScaler(), RobustLinearClassifier(FeatureDeletion(1, share=0.5, filler="missing"))
    ).fit(X, y)
    plain = RobustLinearClassifier(FeatureDeletion(1, share=0.5)).fit(worst[0].transform(X), y)
    assert_allclose(worst[-1].coef_, plain.coef_, rtol=1e-5, atol=1e-8)
    assert_array_equal(worst.certify(X), plain.certify(worst[0].transform(X)))
    with pytest.raises(ValueError, match="give numbers, or 'missing'"):
        RobustLinearClassifier(FeatureDeletion(2, filler="mean")).fit(X, y)


def test_ranges_are_stated_in_the_units_of_the_rows(rows, rng):
    X, y = rows
    pipe = make_uncertain_pipeline(StandardScaler(), FeatureDeletionClassifier(1, missing="delete")).fit(X, y)
    holed = np.where(np.arange(D) == 1, np.nan, X)[:40]
    lower, upper = X.min(axis=0) - 1, X.max(axis=0) + 1
    low, high = pipe.score_interval(holed, lower=lower, upper=upper)
    for value in np.linspace(lower[1], upper[1], 7):
        scores = pipe.decision_function(np.where(np.isnan(holed), value, holed))
        assert np.all((scores >= low - 1e-9) & (scores <= high + 1e-9))
    ends = [pipe.decision_function(np.where(np.isnan(holed), end, holed)) for end in (lower[1], upper[1])]
    assert_allclose(np.minimum(*ends), low)
    assert_allclose(np.maximum(*ends), high)
    assert not np.any(np.isfinite(pipe.score_interval(holed, upper=np.inf, lower=-np.inf)))


def test_steps_that_hide_what_is_missing_are_refused(rows, rng):
    X, y = rows
    holed = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    pipe = make_uncertain_pipeline(StandardScaler(), FeatureDeletionClassifier(1)).fit(X, y)
    pipe.steps.insert(0, ("fill", SpreadImputer().fit(holed)))
    for method in ("is_certain", "score_interval", "missing_report"):
        with pytest.raises(ValueError, match=r"Ask holdfast\.missing_report"):
            getattr(pipe, method)(holed)
    with pytest.raises(ValueError, match="a step that mixes features"):
        make_uncertain_pipeline(PCA(2), FeatureDeletionClassifier(1)).fit(X, y)
    with pytest.raises(AttributeError, match="UncertainPipeline has no is_certain"):
        make_uncertain_pipeline(StandardScaler(), RobustLinearClassifier()).fit(X, y).is_certain(X)


@pytest.mark.parametrize("deletion", ["worst", "random"])
def test_budgets_are_scored_under_the_deletion_that_is_stated(rows, deletion):
    X, y = rows
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    search = FeatureDeletionClassifierCV([0, 1, 2], deleted=1, deletion=deletion, n_draws=40, cv=3).fit(Z, y)
    for column, budget in enumerate(search.budgets_):
        found = []
        for own, held_out in StratifiedKFold(3).split(Z, y):
            model = FeatureDeletionClassifier(budget).fit(Z[own], y[own])
            right = [model.predict(np.where(np.arange(D) == j, 0.0, Z[held_out])) == y[held_out] for j in range(D)]
            if deletion == "worst":
                right = np.all([model.predict(Z[held_out]) == y[held_out], *right], axis=0)
            found.append(np.mean(right))
        got = search.cv_results_["mean_test_score"][column]
        assert got == pytest.approx(np.mean(found), abs=1e-9 if deletion == "worst" else 0.03)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    again = FeatureDeletionClassifier(search.budget_).fit(Z, y)
    assert_allclose(search.coef_, again.coef_)
    assert search.budget == search.budget_
    assert search.gap_ < 1e-6


def test_searches_pass_through_pipelines_and_constant_models_warn(rows):
    X, y = rows
    pipe = make_uncertain_pipeline(
        StandardScaler(), FeatureDeletionClassifierCV(deleted=1, cv=3, missing="delete")
    ).fit(X, y)
    assert pipe[-1].budget_ in pipe[-1].budgets_
    assert_array_equal(pipe[-1].budgets_, [0, 0.25, 0.5, 1, 2])
    assert pipe.is_certain(np.where(np.arange(D) == 3, np.nan, X)).shape == (120,)
    noise = np.random.default_rng(0).normal(size=(30, 4))
    noise = np.vstack([noise, -noise, noise, -noise])  # each class is as the other one, and as itself turned round
    with pytest.warns(CollapseWarning):
        model = FeatureDeletionClassifierCV([3.0], deleted=3, cv=2).fit(noise, np.arange(120) >= 60)
    assert model.collapsed_
    assert_array_equal(model.cv_results_["collapsed"], [1.0])
    with pytest.raises(ValueError, match="Use smaller budgets"):
        FeatureDeletionClassifierCV([4.0]).fit(X, y)


def test_a_common_set_is_what_validation_rows_meet(rows):
    X, y = rows
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    by_default = RobustLinearClassifierCV([0.01, 0.3, 1.0], uncertainty=Box(0.3), cv=3).fit(Z, y)
    named = RobustLinearClassifierCV([0.01, 0.3, 1.0], uncertainty=Box(0.3), cv=3, scoring="certified").fit(Z, y)
    plain = RobustLinearClassifierCV([0.01, 0.3, 1.0], uncertainty=Box(0.3), cv=3, scoring="accuracy").fit(Z, y)
    assert_array_equal(by_default.cv_results_["mean_test_score"], named.cv_results_["mean_test_score"])
    assert np.all(plain.cv_results_["mean_test_score"] > by_default.cv_results_["mean_test_score"])
    # a shape without a size is searched by accuracy
    shape = RobustLinearClassifierCV([0.01, 0.3], uncertainty=Box(), cv=3).fit(Z, y)
    same = RobustLinearClassifierCV([0.01, 0.3], uncertainty=Box(), cv=3, scoring="accuracy").fit(Z, y)
    assert_array_equal(shape.cv_results_["mean_test_score"], same.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    "model", [FeatureDeletionClassifier(0), FeatureDeletionClassifierCV(), FeatureDeletionClassifierCV([0])]
)
def test_features_that_are_all_worth_nothing_are_refused(rows, model):
    with pytest.raises(ValueError, match=r"no feature has a finite value above 0"):
        model.set_params(values=[0, 0, 0, 0]).fit(*rows)
