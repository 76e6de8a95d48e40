"""ModeratedClassifier: probabilities are averages over the noise, for every kind of linear model it takes."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from holdfast import GaussianNoise, GaussianRobustClassifier, ModeratedClassifier, RobustLinearClassifier
from holdfast.datasets import load_breast_cancer_errors
from holdfast.estimators.scores import among_all
from holdfast.losses import ExpectedLogistic

BINARY = [
    LogisticRegression(),
    SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
    RobustLinearClassifier(loss="logistic"),
    LinearDiscriminantAnalysis(),
    CalibratedClassifierCV(LinearSVC(C=1e-3), ensemble=False),  # slope of the calibration far from 1
]
SEVERAL = [
    LogisticRegression(),
    LinearDiscriminantAnalysis(),
    RobustLinearClassifier(loss="logistic", multiclass="joint"),
    SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
    RobustLinearClassifier(loss="logistic"),
    CalibratedClassifierCV(LinearSVC(C=1e-3), ensemble=False),  # slope of the calibration far from 1
]
every_binary = pytest.mark.parametrize("inner", BINARY, ids=repr)
every_model = pytest.mark.parametrize("inner", SEVERAL, ids=repr)


@every_binary
def test_probabilities_of_two_classes_are_averages_over_the_noise(inner, two_classes, rng):
    X, y = two_classes(60, 3, separation=0.7)
    model = ModeratedClassifier(inner).fit(X, y)
    factors = rng.normal(size=(5, 3, 2))
    n = 20_000
    noisy = X[:5] + np.einsum("nij,dnj->dni", factors, rng.normal(size=(n, 5, 2)))
    sampled = model.estimator_.predict_proba(noisy.reshape(-1, 3)).reshape(n, 5, 2).mean(axis=0)
    found = model.predict_proba(X[:5], X_factor=factors)
    assert_allclose(found, sampled, atol=4 * 0.5 / np.sqrt(n))
    assert_allclose(model.predict_proba(X[:5], X_cov=factors @ factors.transpose(0, 2, 1)), found, rtol=1e-9)


def test_a_million_draws_agree_and_the_closed_form_is_off_by_less_than_two_percent(two_classes, rng):
    X, y = two_classes(60, 3, separation=1.0)
    model = ModeratedClassifier(LogisticRegression(C=10.0)).fit(X, y)
    S = rng.uniform(0.2, 3.0, size=(20, 3))
    w, b = model.estimator_.coef_[0], model.estimator_.intercept_[0]
    f, t = X[:20] @ w + b, np.sqrt(S**2 @ w**2)
    found = model.predict_proba(X[:20], X_std=S)[:, 1]
    z = rng.standard_normal(1_000_000)
    sampled = expit(f[:, None] + t[:, None] * z)
    assert_allclose(found, sampled.mean(axis=1), atol=4.5 * sampled.std(axis=1).max() / 1000)
    assert np.abs(found - expit(f / np.sqrt(1 + np.pi * t**2 / 8))).max() < 0.02


@every_model
def test_probabilities_of_several_classes_are_near_averages_over_the_noise(inner, several_classes, rng):
    X, y = several_classes((20, 20, 20), d=4)
    model = ModeratedClassifier(inner).fit(X, y)
    S = rng.uniform(0.1, 1.5, size=X.shape)
    found = model.predict_proba(X, X_std=S)
    noisy = X + S * rng.normal(size=(2000, *X.shape))
    sampled = model.estimator_.predict_proba(noisy.reshape(-1, 4)).reshape(2000, *found.shape).mean(axis=0)
    assert_allclose(found.sum(axis=1), 1.0)
    # the approximation is close on average, and closer than taking no notice of the noise
    plain = model.predict_proba(X)
    assert np.abs(found - sampled).mean() < 0.025
    assert np.abs(found - sampled).mean() < 0.4 * np.abs(plain - sampled).mean()


@every_model
def test_without_noise_probabilities_are_those_of_the_model(inner, several_classes):
    X, y = several_classes()
    model = ModeratedClassifier(inner).fit(X, y)
    plain = model.estimator_.predict_proba(X)
    assert_array_equal(model.predict_proba(X), plain)
    assert_allclose(model.predict_proba(X, X_std=np.zeros(X.shape)), plain, atol=1e-9)
    assert_array_equal(model.predict(X), model.estimator_.predict(X))


def test_links_are_found():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    links = [ModeratedClassifier(inner).fit(X, y).link_ for inner in SEVERAL]
    assert links == ["softmax"] * 3 + ["one_vs_rest"] * 3


def test_what_all_classes_share_does_not_change_a_softmax(several_classes, rng):
    X, y = several_classes()
    inner = LogisticRegression().fit(X, y)
    S = rng.uniform(0.1, 2, size=X.shape)
    before = ModeratedClassifier(FrozenEstimator(inner)).fit(X, y).predict_proba(X, X_std=S)
    inner.coef_ = inner.coef_ + rng.normal(size=3)
    after = ModeratedClassifier(FrozenEstimator(inner)).fit(X, y).predict_proba(X, X_std=S)
    assert_allclose(after, before, rtol=1e-6)


def test_two_classes_of_a_softmax_are_exact(two_classes, rng):
    X, y = two_classes(40, 3)
    binary = LogisticRegression().fit(X, y)

    def expected_sigmoid(f, t):
        return ExpectedLogistic().evaluate(1 + f, t)[1]

    S = rng.uniform(0.1, 2, size=X.shape)
    scores = binary.decision_function(X)
    pair = np.column_stack([-scores / 2, scores / 2]), np.vstack([-binary.coef_ / 2, binary.coef_ / 2])
    noise = GaussianNoise().at(X, {"X_std": S})
    exact = ModeratedClassifier(FrozenEstimator(binary)).fit(X, y).predict_proba(X, X_std=S)
    assert_allclose(among_all(*pair, noise, expected_sigmoid), exact, atol=1e-9)
    assert_allclose(among_all(*pair, None, expected_sigmoid), softmax(pair[0], axis=1), atol=1e-9)


def test_noise_draws_probabilities_towards_one_half_and_changes_no_prediction(two_classes, rng):
    X, y = two_classes(60, 3)
    model = ModeratedClassifier(LogisticRegression()).fit(X, y)
    confidences = [np.abs(model.predict_proba(X, X_std=np.full(X.shape, s))[:, 1] - 0.5) for s in (0.0, 0.5, 2.0, 50.0)]
    assert np.all(np.diff(confidences, axis=0) <= 0)
    assert confidences[-1].max() < 0.1
    assert_array_equal(model.predict_proba(X, X_std=np.full(X.shape, 2.0))[:, 1] > 0.5, model.decision_function(X) > 0)


def test_it_says_what_the_expected_logistic_loss_says_of_the_same_weights(two_classes, rng):
    X, y = two_classes(60, 3)
    S = rng.uniform(0.1, 1, size=X.shape)
    trained = GaussianRobustClassifier().fit(X, y, X_std=S)
    model = ModeratedClassifier(FrozenEstimator(trained)).fit(X, y)
    assert_allclose(model.predict_proba(X, X_std=S), trained.predict_proba(X, X_std=S), rtol=1e-12)


def test_a_fitted_model_is_taken_as_it_is(two_classes):
    X, y = two_classes(60, 3)
    inner = LogisticRegression().fit(X, y)
    coef = inner.coef_.copy()
    model = ModeratedClassifier(FrozenEstimator(inner)).fit(X[:20], y[:20])
    assert_array_equal(model.estimator_.coef_, coef)
    assert model.n_features_in_ == 3
    fresh = ModeratedClassifier(LogisticRegression()).fit(X, y)
    assert not hasattr(fresh.estimator, "coef_")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_are_matched_by_their_columns(frame, two_classes):
    values, y = two_classes(30, 3)
    X, S = (frame(dict(zip("abc", table.T, strict=True))) for table in (values, np.ones(values.shape)))
    model = ModeratedClassifier(LogisticRegression()).fit(X, y)
    plain = ModeratedClassifier(LogisticRegression()).fit(values, y)
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert_allclose(
        model.predict_proba(X, X_std=S), plain.predict_proba(values, X_std=np.ones(values.shape)), rtol=1e-6
    )
    with pytest.raises(ValueError, match="Give both the same"):
        model.predict_proba(X, X_std=S[["c", "a", "b"]])


def test_sparse_and_float32_say_the_same(two_classes):
    X, y = two_classes(60, 3)
    S = np.where(np.abs(X) > 0.5, 0.7, 0.0)
    model = ModeratedClassifier(LogisticRegression()).fit(X, y)
    dense = model.predict_proba(X, X_std=S)
    assert_allclose(model.predict_proba(sparse.csr_array(X), X_std=sparse.csr_array(S)), dense, rtol=1e-10)
    single = ModeratedClassifier(LogisticRegression()).fit(X.astype(np.float32), y)
    assert_allclose(single.predict_proba(X.astype(np.float32), X_std=S), dense, atol=1e-3)


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (LinearSVC(), r"no predict_proba, so its scores are no log-odds. Calibrate it first"),
        (GaussianNB(), r"it has no decision_function"),
        (SVC(kernel="rbf"), r"no predict_proba"),
        (HistGradientBoostingClassifier(max_iter=1), r"has no coef_ and intercept_"),
        (make_pipeline(StandardScaler(), LogisticRegression()), r"goes into an UncertainPipeline"),
        (SGDClassifier(loss="modified_huber", random_state=0), r"neither the sigmoid nor the softmax"),
        (GaussianRobustClassifier(0.5), r"neither the sigmoid nor the softmax"),
        (CalibratedClassifierCV(LinearSVC()), r"method='sigmoid' and ensemble=False"),
        (
            CalibratedClassifierCV(LinearSVC(), method="isotonic", ensemble=False),
            r"method='sigmoid' and ensemble=False",
        ),
    ],
    ids=repr,
)
def test_models_without_logistic_scores_are_refused_with_advice(inner, said, two_classes):
    X, y = two_classes(60, 3)
    with pytest.raises(ValueError, match=said):
        ModeratedClassifier(inner).fit(X, y)


def test_a_linear_svc_can_be_calibrated_as_the_error_advises(two_classes):
    X, y = two_classes(60, 3)
    assert ModeratedClassifier(CalibratedClassifierCV(LinearSVC(), ensemble=False)).fit(X, y).score(X, y) > 0.7


def test_errors_of_wrong_shape_are_refused(two_classes):
    X, y = two_classes(30, 3)
    model = ModeratedClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"X_std has shape \(29, 3\)"):
        model.predict_proba(X, X_std=np.ones((29, 3)))
    with pytest.raises(ValueError, match="say the same thing twice"):
        model.predict_proba(X, X_std=np.ones((30, 3)), X_factor=np.ones((30, 3, 1)))


def test_metadata_requests_exist_for_probabilities(two_classes):
    X, y = two_classes(30, 3)
    with sklearn.config_context(enable_metadata_routing=True):
        model = ModeratedClassifier(LogisticRegression().set_fit_request(sample_weight=True))
        model.set_predict_proba_request(X_std=True).set_fit_request(sample_weight=True)
        search = GridSearchCV(model, {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.predict_proba(X, X_std=np.ones(X.shape)).shape == (30, 2)


def test_noise_aware_probabilities_are_better_calibrated_on_real_error_bars():
    data, losses = load_breast_cancer_errors(), []
    for seed, (train, test) in enumerate(
        StratifiedShuffleSplit(5, test_size=0.3, random_state=0).split(data.X, data.y)
    ):
        scaler = StandardScaler().fit(data.X[train])
        X, Z = scaler.transform(data.X[train]), scaler.transform(data.X[test])
        T = 4 * data.X_std[test] / scaler.scale_
        again = Z + T * np.random.default_rng(seed).standard_normal(Z.shape)
        model = ModeratedClassifier(LogisticRegression()).fit(X, data.y[train])
        losses.append([log_loss(data.y[test], model.predict_proba(again, X_std=errors)) for errors in (None, T)])
    plain, moderated = np.mean(losses, axis=0)
    assert moderated < 0.8 * plain
