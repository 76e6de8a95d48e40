"""Scorers: what they say of each fold by hand, with and without metadata routing, and against attacks."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    FeatureDeletion,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    NoiseCopies,
    RobustLinearClassifier,
    make_uncertain_pipeline,
)
from holdfast.evaluate import certified_accuracy_scorer, flip_rate_scorer, robust_accuracy_scorer

CV = StratifiedKFold(3)


@pytest.fixture
def noisy(several_classes, rng):
    X, y = several_classes((20, 16, 14), d=3)
    return X, y, rng.uniform(0.05, 0.6, size=X.shape)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def by_hand(model, X, y, S, score):
    """Return a score of each fold, of models fitted without scikit-learn's help."""
    return [
        score(clone(model).fit(X[fit], y[fit], X_std=S[fit]), X[test], y[test], S[test]) for fit, test in CV.split(X, y)
    ]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("inner", [LogisticRegression(), LinearSVC(), RobustLinearClassifier(Ball(0.2))], ids=repr)
@pytest.mark.parametrize(
    "chosen", [Box(0.3), Ball(0.4), Box(half_widths=[0.1, 0.6, 0.0]), IntervalBox(lower=-0.1, upper=0.8)], ids=repr
)
def test_robust_accuracy_is_what_no_attack_goes_below_and_some_attack_reaches(n_classes, inner, chosen, noisy, rng):
    X, y, _ = noisy
    X, y = X[y < n_classes], y[y < n_classes]
    model = clone(inner).fit(X, y)
    bound = chosen.at(X, {})
    found = robust_accuracy_scorer(chosen).of_rows(model, X, y, {}) > 0
    directions = [a - b for a in model.coef_ for b in model.coef_] + [*model.coef_, *-model.coef_]
    points = np.concatenate(
        [
            np.broadcast_to(bound.sample(rng, 50, 3), (50, *X.shape)),
            [np.broadcast_to(bound.maximizer(w), X.shape) for w in directions],
        ]
    )
    survived = np.all([model.predict(X + moved) == y for moved in points], axis=0)
    assert np.all(survived[found])
    assert np.array_equal(
        survived, found
    )  # the maximizers along differences of weights are the worst attacks there are
    assert robust_accuracy_scorer(chosen)(model, X, y) == found.mean()


def test_scores_of_a_set_of_size_0_are_plain_accuracy(noisy):
    X, y, _ = noisy
    model = LogisticRegression().fit(X, y)
    assert robust_accuracy_scorer(Ball(0.0))(model, X, y) == model.score(X, y)
    assert robust_accuracy_scorer(Ball(0.0))(model, X, np.full(len(y), 7)) == 0.0


def test_flip_rate_is_minus_the_share_of_noisy_predictions_that_differ(noisy, rng):
    X, y, S = noisy
    X, y, S = X[y < 2], y[y < 2], S[y < 2]
    model = LogisticRegression().fit(X, y)
    again = model.predict((X + 2 * S * rng.normal(size=(5000, *X.shape))).reshape(-1, 3)).reshape(5000, -1)
    flips = np.mean(again != model.predict(X))
    assert_allclose(flip_rate_scorer(GaussianNoise(2.0))(model, X, y, X_std=S), -flips, atol=4e-3)


def test_own_methods_and_stated_noise_agree(noisy):
    X, y, S = noisy
    model = GaussianRobustClassifier().fit(X, y, X_std=S)
    own = flip_rate_scorer()(model, X, y, X_std=S)
    assert_allclose(own, -model.flip_probability(X, X_std=S).mean())
    assert_allclose(own, flip_rate_scorer(GaussianNoise())(model, X, y, X_std=S))
    robust = RobustLinearClassifier(Box(0.3)).fit(X, y)
    assert certified_accuracy_scorer()(robust, X, y) == robust_accuracy_scorer(Box(0.3))(robust, X, y)


def test_weights_count(noisy):
    X, y, _ = noisy
    model = LogisticRegression().fit(X, y)
    weights = np.arange(len(y), dtype=float)
    scorer = robust_accuracy_scorer(Ball(0.3))
    rows = scorer.of_rows(model, X, y, {})
    assert_allclose(scorer(model, X, y, sample_weight=weights), np.average(rows, weights=weights))


@pytest.mark.usefixtures("routing")
def test_routed_errors_arrive_sliced_by_fold(noisy):
    X, y, S = noisy
    robust = RobustLinearClassifier(Box()).set_fit_request(X_std=True)
    scorer = certified_accuracy_scorer()
    found = cross_val_score(robust, X, y, cv=CV, scoring=scorer, params={"X_std": S})

    def certified(model, Z, labels, T):
        return np.mean(model.certify(Z, X_std=T) & (model.predict(Z) == labels))

    assert_allclose(found, by_hand(robust, X, y, S, certified))
    gaussian = GaussianRobustClassifier().set_fit_request(X_std=True)
    found = cross_val_score(gaussian, X, y, cv=CV, scoring=flip_rate_scorer(), params={"X_std": S})
    assert_allclose(found, by_hand(gaussian, X, y, S, lambda m, Z, _, T: -m.flip_probability(Z, X_std=T).mean()))


@pytest.mark.usefixtures("routing")
def test_requests_can_be_set_as_scikit_learn_does_where_its_own_scorers_fail(noisy):
    X, y, S = noisy
    model = GaussianRobustClassifier().set_fit_request(X_std=True)
    scorers = {
        "flips": flip_rate_scorer().set_score_request(X_std=True),
        "four times": flip_rate_scorer(GaussianNoise(4.0)),
        "renamed": flip_rate_scorer().set_score_request(X_std="later"),
        "accuracy": "accuracy",
    }
    params = {"X_std": S, "later": 3 * S}
    found = cross_validate(model, X, y, cv=CV, scoring=scorers, params=params)
    once, four, renamed = (
        by_hand(model, X, y, S, lambda m, Z, _, T, k=k: -m.flip_probability(Z, X_std=k * T).mean()) for k in (1, 4, 3)
    )
    assert_allclose(found["test_flips"], once)
    assert_allclose(found["test_four times"], four)
    assert_allclose(found["test_renamed"], renamed)
    plain = [m.score(X[t], y[t]) for m, t in _fitted(model, X, y, S)]
    assert_allclose(found["test_accuracy"], plain)


def _fitted(model, X, y, S):
    return [(clone(model).fit(X[fit], y[fit], X_std=S[fit]), test) for fit, test in CV.split(X, y)]


@pytest.mark.usefixtures("routing")
def test_search_by_certified_accuracy_picks_the_best_of_the_folds(noisy):
    X, y, S = noisy
    model = RobustLinearClassifier(Box()).set_fit_request(X_std=True)
    radii = {"uncertainty__radius": [0.0, 0.25, 0.5, 1.0]}
    scoring = {"certified": certified_accuracy_scorer(), "robust": robust_accuracy_scorer(Box())}
    search = GridSearchCV(model, radii, cv=CV, scoring=scoring, refit="certified").fit(X, y, X_std=S)
    certified = search.cv_results_["mean_test_certified"]
    assert_allclose(certified, search.cv_results_["mean_test_robust"])
    means = [
        np.mean([np.mean(m.certify(X[t], X_std=S[t]) & (m.predict(X[t]) == y[t])) for m, t in _fitted(fit, X, y, S)])
        for fit in (clone(model).set_params(uncertainty__radius=r) for r in radii["uncertainty__radius"])
    ]
    assert_allclose(certified, means)
    assert search.best_index_ == np.argmax(means)


def test_without_routing_the_sets_of_constructors_are_meant(noisy):
    X, y, _ = noisy
    model = RobustLinearClassifier(Box(0.2))
    scoring = {
        "certified": certified_accuracy_scorer(),
        "robust": robust_accuracy_scorer(Box(0.2)),
        "flips": flip_rate_scorer(GaussianNoise(0.1)),
        "accuracy": "accuracy",
    }
    found = cross_validate(model, X, y, cv=CV, scoring=scoring)
    assert_allclose(found["test_certified"], found["test_robust"])
    assert np.all(found["test_robust"] <= found["test_accuracy"])
    assert np.all(found["test_flips"] < 0)


def test_sparse_float32_and_frames_say_the_same(noisy):
    X, y, S = noisy
    model = LogisticRegression().fit(X, y)
    for scorer in (robust_accuracy_scorer(Box()), flip_rate_scorer(GaussianNoise())):
        dense = scorer(model, X, y, X_std=S)
        assert_allclose(scorer(model, sparse.csr_array(X), y, X_std=sparse.csr_array(S)), dense)
        assert_allclose(scorer(model, X.astype(np.float32), y, X_std=S), dense, atol=1e-5)
        framed = LogisticRegression().fit(pd.DataFrame(X, columns=list("abc")), y)
        frames = [pd.DataFrame(table, columns=list("abc")) for table in (X, S)]
        assert_allclose(scorer(framed, frames[0], pd.Series(y), X_std=frames[1]), dense)
        with pytest.raises(ValueError, match="Give both the same"):
            scorer(framed, frames[0], y, X_std=frames[1][["c", "a", "b"]])


def test_scorers_are_cloned_and_print_as_they_are_called():
    scorer = robust_accuracy_scorer(Box(0.1))
    assert repr(scorer) == "robust_accuracy_scorer(uncertainty=Box(radius=0.1))"
    assert clone(scorer).uncertainty.radius == 0.1
    assert robust_accuracy_scorer(ChanceConstraint(0.1, "gaussian", cov=0.04)).set_params(uncertainty__epsilon=0.2)


@pytest.mark.parametrize(
    ("scorer", "model", "said"),
    [
        (
            certified_accuracy_scorer(),
            LogisticRegression(),
            r"LogisticRegression has no certify.*RobustLinearClassifier",
        ),
        (flip_rate_scorer(), LogisticRegression(), r"LogisticRegression has no flip_probability.*GaussianRobust"),
        (
            robust_accuracy_scorer(Box(0.1)),
            HistGradientBoostingClassifier(),
            r"no certificate is known.* Supported are",
        ),
        (robust_accuracy_scorer(Box(0.1)), SVC(kernel="linear"), "for linear scores of which the largest wins"),
        (robust_accuracy_scorer(GaussianNoise(0.1)), LogisticRegression(), "Gaussian noise has no bounds"),
        (robust_accuracy_scorer(0.1), LogisticRegression(), r"robust_accuracy_scorer\(.*0.1\): give a set"),
        (flip_rate_scorer(Box(0.1)), LogisticRegression(), "what may happen, not how likely"),
    ],
    ids=repr,
)
def test_what_cannot_be_scored_is_refused_with_what_can(scorer, model, said, noisy):
    X, y, _ = noisy
    with pytest.raises((ValueError, TypeError), match=said):
        scorer(model.fit(X, y), X, y)


def test_a_model_of_rows_asks_for_theirs(noisy):
    X, y, S = noisy
    with pytest.raises(ValueError, match="needs theirs here too"):
        flip_rate_scorer()(GaussianRobustClassifier().fit(X, y, X_std=S), X, y)
    with pytest.raises(ValueError, match="needs theirs here too"):
        certified_accuracy_scorer()(RobustLinearClassifier(Box()).fit(X, y, X_std=S), X, y)


def test_models_that_were_told_nothing_of_rows_are_asked_for_with_the_switch_too(noisy):
    X, y, _ = noisy
    plain = LogisticRegression().fit(X, y)
    for scorer in (robust_accuracy_scorer(Box()), flip_rate_scorer(GaussianNoise())):
        with pytest.raises(ValueError, match=r"X_std.*enable_metadata_routing=True"):
            scorer(plain, X, y)


def test_what_is_passed_but_not_routed_is_asked_for_with_the_switch_that_routes_it(noisy):
    X, y, S = noisy

    def by_hand(model, X, y):
        return model.certify(X).mean()

    robust, gaussian = RobustLinearClassifier(Box()), GaussianRobustClassifier()
    for model, scorer in (
        (robust, certified_accuracy_scorer()),
        (robust, robust_accuracy_scorer(Box())),
        (robust, robust_accuracy_scorer(IntervalBox())),
        (robust, robust_accuracy_scorer(ChanceConstraint(0.1))),
        (robust, by_hand),
        (gaussian, flip_rate_scorer()),
        (NoiseCopies(LogisticRegression(), 1, random_state=0), robust_accuracy_scorer(Box())),
        (robust, robust_accuracy_scorer(Box(1.0))),
        (robust, robust_accuracy_scorer(Box(1.0) + FeatureDeletion(1))),
        (gaussian, flip_rate_scorer(GaussianNoise())),
        (gaussian, flip_rate_scorer(GaussianNoise(1.0))),
        (make_uncertain_pipeline(StandardScaler(), gaussian), robust_accuracy_scorer(Box(1.0))),
        (make_uncertain_pipeline(StandardScaler(), gaussian), flip_rate_scorer(GaussianNoise(1.0))),
        (make_uncertain_pipeline(StandardScaler(), gaussian), flip_rate_scorer()),
    ):
        with pytest.raises(ValueError, match=r"[Pp]ass .*enable_metadata_routing=True"):
            cross_val_score(model, X, y, cv=CV, scoring=scorer, params={"X_std": S}, error_score="raise")
    with pytest.warns(UserWarning, match=r"plain probabilities.*Pass X_std.*enable_metadata_routing=True"):
        cross_val_score(gaussian, X, y, cv=CV, scoring="neg_log_loss", params={"X_std": S})


def test_pipelines_that_carry_uncertainty_are_scored_in_the_units_of_their_rows(noisy, routing):
    X, y, S = noisy
    X, S = 100 * X + 7, 100 * S
    plain = RobustLinearClassifier(Box(0.5))
    pipe = make_uncertain_pipeline(StandardScaler(), plain)

    def certified(model, X, y, S):
        return np.mean(model.certify(X, X_std=S) & (model.predict(X) == y))

    found = cross_validate(pipe, X, y, cv=CV, params={"X_std": S}, scoring={"sure": certified_accuracy_scorer()})
    assert_allclose(found["test_sure"], by_hand(pipe, X, y, S, certified))
    by_scaling = []
    for fit, test in CV.split(X, y):
        scale = StandardScaler().fit(X[fit])
        Z, T = scale.transform(X), S / scale.scale_
        by_scaling.append(certified(clone(plain).fit(Z[fit], y[fit], X_std=T[fit]), Z[test], y[test], T[test]))
    assert_allclose(found["test_sure"], by_scaling)
    search = GridSearchCV(pipe, {"robustlinearclassifier__uncertainty__radius": [0.0, 0.3]}, cv=CV)
    search.set_params(scoring=certified_accuracy_scorer()).fit(X, y, X_std=S)
    assert search.best_score_ >= search.cv_results_["mean_test_score"][0] > 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sets_are_in_the_units_of_the_rows_of_any_pipeline(n_classes, noisy):
    X, y, S = noisy
    X, y, S = X[y < n_classes], y[y < n_classes], S[y < n_classes]
    pipe = make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)
    scale, last = pipe[0], pipe[-1]
    by_hand = robust_accuracy_scorer(Box())(last, scale.transform(X), y, X_std=S / scale.scale_)
    assert robust_accuracy_scorer(Box())(pipe, X, y, X_std=S) == by_hand
    assert 0 < by_hand < last.score(scale.transform(X), y)
    rates = [
        flip_rate_scorer(GaussianNoise())(model, Z, y, X_std=T)
        for model, Z, T in ((pipe, X, S), (last, scale.transform(X), S / scale.scale_))
    ]
    assert_allclose(rates[0], rates[1])


def test_flip_rates_of_classifiers_that_are_not_linear_are_drawn(noisy):
    X, y, S = noisy
    model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    found = flip_rate_scorer(GaussianNoise())(model, X, y, X_std=S)
    rng = np.random.default_rng(1)
    moved = X + S * rng.normal(size=(300, *X.shape))
    flips = model.predict(moved.reshape(-1, X.shape[1])) != np.tile(model.predict(X), 300)
    assert abs(found + np.mean(flips)) < 0.02


def test_flip_rates_of_pipelines_that_carry_noise(noisy, routing):
    X, y, S = noisy
    pipe = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier())

    def rate(model, X, y, S):
        return -np.mean(model.flip_probability(X, X_std=S))

    found = cross_val_score(pipe, X, y, cv=CV, params={"X_std": S}, scoring=flip_rate_scorer())
    assert_allclose(found, by_hand(pipe, X, y, S, rate))
    assert np.all(found < 0)


def test_frames_are_matched_as_the_estimator_matches_them(noisy, routing):
    X, y, S = noisy
    rows, errors = (pd.DataFrame(table, columns=list("abc")) for table in (X, S))
    rows, errors = rows.assign(kind=np.where(y == y[0], "u", "v")), errors[["c", "a", "b"]]
    columns = ColumnTransformer([("s", StandardScaler(), list("abc")), ("o", OneHotEncoder(), ["kind"])])
    for last, scorer, question in (
        (RobustLinearClassifier(Box()), certified_accuracy_scorer(), "certify"),
        (GaussianRobustClassifier(), flip_rate_scorer(), "flip_probability"),
    ):
        pipe = make_uncertain_pipeline(columns, last).fit(rows, y, X_std=errors)
        found = getattr(pipe, question)(rows, X_std=errors)
        want = np.mean(found & (pipe.predict(rows) == y)) if question == "certify" else -np.mean(found)
        assert scorer(pipe, rows, y, X_std=errors) == pytest.approx(want)
        assert np.all(np.isfinite(cross_val_score(pipe, rows, y, cv=CV, scoring=scorer, params={"X_std": errors})))
    numbers = rows[list("abc")]
    model = LogisticRegression().fit(numbers, y)
    for scorer in (robust_accuracy_scorer(Box()), flip_rate_scorer(GaussianNoise())):
        with pytest.raises(ValueError, match=r"X_std has the columns \['c', 'a', 'b'\]"):
            scorer(model, numbers, y, X_std=errors)
    robust = RobustLinearClassifier(Box()).fit(numbers, y, X_std=errors[list("abc")])
    with pytest.raises(ValueError, match=r"X_std has the columns \['c', 'a', 'b'\]"):
        certified_accuracy_scorer()(robust, numbers, y, X_std=errors)
