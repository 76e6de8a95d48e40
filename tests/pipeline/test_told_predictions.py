"""Predictions that are told of the errors of their rows: by pipelines, and by those who ask fitted models."""

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Box,
    ExpectedFeatures,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    NoiseAwareClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    SpreadImputer,
    flip_probability,
    make_uncertain_pipeline,
    robustness_curve,
)
from holdfast.evaluate import noise_budget


@pytest.fixture(scope="module")
def rows():
    """Two rings in units of their own, with errors that differ by row and column."""
    rng = np.random.default_rng(0)
    n = 300
    angle, radius = rng.uniform(0, 2 * np.pi, size=n), np.repeat([1.0, 2.0], n // 2)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * [10.0, 0.1]
    S = rng.uniform(0.05, 0.3, size=(n, 2)) * [10.0, 0.1]
    return X, np.repeat(["inner", "outer"], n // 2), S


def small(**options):
    return NoiseAwareClassifier(n_components=40, **options)


@pytest.fixture(scope="module")
def pipes(rows):
    """A last step that takes errors, and a step that averages over them before one that does not."""
    X, y, S = rows
    made = {
        "last": make_uncertain_pipeline(StandardScaler(), small()),
        "step": make_uncertain_pipeline(ExpectedFeatures(n_components=40, random_state=0), GaussianRobustClassifier()),
    }
    return {name: pipe.fit(X, y, X_std=S) for name, pipe in made.items()}


def test_errors_reach_the_last_step_in_its_units(pipes, rows):
    X, y, S = rows
    plain = small().fit(X, y, X_std=S)
    for method in ("predict_proba", "decision_function"):
        expected = getattr(plain, method)(X, X_std=3 * S)
        assert_allclose(getattr(pipes["last"], method)(X, X_std=3 * S), expected, rtol=1e-6, atol=1e-8)
    assert np.array_equal(pipes["last"].predict(X, X_std=3 * S), plain.predict(X, X_std=3 * S))
    assert pipes["last"].score(X, y, X_std=3 * S) == plain.score(X, y, X_std=3 * S)
    weights = np.arange(len(X)) % 3
    assert_allclose(
        pipes["last"].score(X, y, weights, X_cov=np.stack([np.diag(s**2) for s in S])),
        plain.score(X, y, sample_weight=weights, X_std=S),
    )


def test_a_step_that_averages_moves_rows_before_the_last_one_predicts(pipes, rows):
    X, y, S = rows
    pipe = pipes["step"]
    means = pipe[0].transform(X, X_std=2 * S)
    assert_allclose(pipe.decision_function(X, X_std=2 * S), pipe[-1].decision_function(means))
    assert np.array_equal(pipe.predict(X, X_std=2 * S), pipe[-1].predict(means))
    assert pipe.score(X, y, X_std=2 * S) == pipe[-1].score(means, y)
    # inside other steps too
    columns = ColumnTransformer([("both", ExpectedFeatures(n_components=20, random_state=0), [0, 1])])
    nested = make_uncertain_pipeline(columns, GaussianRobustClassifier()).fit(X, y, X_std=S)
    assert nested.moves_rows_
    assert nested.averages_errors
    assert not np.allclose(nested.decision_function(X, X_std=S), nested.decision_function(X, X_std=0 * S))


def test_noise_of_the_constructor_moves_rows_at_prediction_too(rows):
    X, y, _ = rows
    noise = GaussianNoise(std=[2.0, 0.02])
    pipe = make_uncertain_pipeline(ExpectedFeatures(n_components=40, random_state=0), GaussianRobustClassifier(noise))
    pipe.fit(X, y)
    means = pipe[0].transform(X, X_std=np.broadcast_to(noise.std, X.shape))
    assert_allclose(pipe.decision_function(X), pipe[-1].decision_function(means))


@pytest.mark.parametrize("name", ["last", "step"])
def test_rows_without_errors_count_as_exact_with_one_warning(pipes, rows, name):
    X, y, S = rows
    for method, labels in (("predict", []), ("decision_function", []), ("score", [y])):
        with pytest.warns(UserWarning, match="count as exact") as caught:
            found = getattr(pipes[name], method)(X, *labels)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert np.array_equal(found, getattr(pipes[name], method)(X, *labels, X_std=0 * S))
    exact = make_uncertain_pipeline(*(sklearn.clone(step) for _, step in pipes[name].steps)).fit(X, y)
    with warnings.catch_warnings(action="error"):
        exact.predict(X)


def test_errors_that_change_no_prediction_are_refused(rows):
    X, y, S = rows
    linear = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier()).fit(X, y, X_std=S)
    assert not linear.averages_errors
    for method, labels in (("predict", []), ("decision_function", []), ("score", [y])):
        with pytest.raises(ValueError, match=f"UncertainPipeline.{method}: X_std would not change"):
            getattr(linear, method)(X, *labels, X_std=S)


def test_noise_is_refused_where_the_last_step_was_trained_for_sets(rows):
    X, y, S = rows
    for uncertainty, metadata in (
        (Box(), {"X_std": S / 4}),
        (IntervalBox(), {"X_lower": X - S / 4, "X_upper": X + S / 4}),
    ):
        pipe = make_uncertain_pipeline(ExpectedFeatures("splines"), RobustLinearClassifier(uncertainty))
        pipe.fit(X, y, **metadata)
        for method in ("predict", "decision_function"):
            with pytest.raises(ValueError, match="X_std would not change"):
                getattr(pipe, method)(X, X_std=S)
        pipe.predict(X)


def test_probabilities_belong_to_the_predictions_whatever_the_last_step(rows):
    X, y, S = rows
    for last in (NoiseCopies(LogisticRegression(), 2, random_state=0), LogisticRegression()):
        pipe = make_uncertain_pipeline(ExpectedFeatures(n_components=20, random_state=0), last)
        pipe.fit(X, y, **({} if isinstance(last, LogisticRegression) else {"X_std": S}))
        chances = pipe.predict_proba(X, X_std=3 * S)
        assert np.array_equal(pipe.classes_[chances.argmax(axis=1)], pipe.predict(X, X_std=3 * S))
        assert_allclose(chances, pipe[-1].predict_proba(pipe[0].transform(X, X_std=3 * S)))


def test_what_an_imputer_fills_in_reaches_predictions(rows):
    X, y, _ = rows
    X = X.copy()
    X[::5, 0] = np.nan
    pipe = make_uncertain_pipeline(SpreadImputer(), small()).fit(X, y)
    filled = pipe[0].transform(X)
    spread = np.where(np.isnan(X), filled.std(axis=0), 0.0)
    told = pipe[-1].decision_function(filled, X_std=np.where(np.isnan(X), pipe[0].spread_[2], 0.0))
    assert spread.max() > 0
    assert_allclose(pipe.decision_function(X), told)


def test_routing_brings_errors_to_score_where_they_matter(pipes, rows):
    X, y, S = rows
    linear = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier())
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings(action="error"):
        for pipe in (*pipes.values(), linear, small()):
            found = cross_validate(pipe, X, y, params={"X_std": S}, cv=2, return_indices=True, return_estimator=True)
            test = found["indices"]["test"][0]
            model = found["estimator"][0]
            metadata = {} if pipe is linear else {"X_std": S[test]}
            assert found["test_score"][0] == model.score(X[test], y[test], **metadata)


def test_those_who_ask_tell_models_of_the_noise(pipes, rows):
    X, y, S = rows
    with warnings.catch_warnings(action="error"):
        curve = robustness_curve(pipes, X, y, GaussianNoise(), [0.0, 2.0], X_std=S, n_repeats=2)
        rng = np.random.default_rng([0, 1, int(np.float64(2.0).view(np.uint64))])
        [errors] = GaussianNoise().draws(X, {"X_std": S}, rng, 1)
        for number, pipe in enumerate(pipes.values()):
            assert curve.accuracy[number, 0, 0] == pipe.score(X, y, X_std=0 * S)
            assert curve.accuracy[number, 1, 1] == pipe.score(X + 2 * errors, y, X_std=2 * S)
        few = slice(0, 300, 20)
        drawn = flip_probability(pipes["last"], X[few], X_std=2 * S[few], n_draws=400, random_state=0)
        assert_allclose(drawn.probability, pipes["last"].flip_probability(X[few], X_std=2 * S[few]), atol=0.15)
        budget = noise_budget(pipes["last"], X, y, target_accuracy=0.5, X_std=S, n_draws=2)
        assert budget.plain_accuracy == pipes["last"].score(X, y, X_std=0 * S)


def test_copies_that_average_are_told_and_others_are_not(rows):
    X, y, S = rows
    averaging = NoiseCopies(LogisticRegression(), 3, average_draws=4, random_state=0).fit(X, y, X_std=S)
    plain = NoiseCopies(LogisticRegression(), 3, random_state=0).fit(X, y, X_std=S)
    with warnings.catch_warnings(action="error"):
        curve = robustness_curve([averaging, plain], X, y, GaussianNoise(), [0.0], X_std=S, n_repeats=1)
    assert curve.accuracy[0, 0, 0] == averaging.score(X, y, X_std=0 * S)
