"""NoiseCopies: the draws that the estimator sees, the weights they carry, and what it is worth on real error bars."""

import logging
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    NoiseCopies,
    RobustLinearClassifier,
    SpreadImputer,
    UncertainPipeline,
    make_uncertain_pipeline,
)
from holdfast.datasets import load_breast_cancer_errors


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that keeps what it was fitted to."""

    def fit(self, X, y, sample_weight=None, tags=None):
        self.X_, self.y_, self.sample_weight_, self.tags_, self.classes_ = X, y, sample_weight, tags, np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], X.shape[0])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


@pytest.fixture
def rows(rng):
    return rng.normal(size=(6, 3)), np.array([0, 1, 0, 1, 1, 0])


@pytest.fixture
def noisy(rng):
    """Rows, labels, deviations, and others to ask about."""
    X, Z = rng.normal(size=(2, 60, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int), rng.uniform(0.1, 0.6, size=X.shape), Z


def seen(X, y, n_copies=10, uncertainty=None, seed=0, levels=(1,), inner=None, **metadata):
    """Return what the estimator was fitted to."""
    model = NoiseCopies(inner or Recorder(), n_copies, levels=levels, uncertainty=uncertainty, random_state=seed)
    return model.fit(X, y, **metadata).estimator_


def draw_of(model, k, n):
    """Return the n standard normal numbers that draw k of every row is made of."""
    z = np.random.default_rng([model.draw_seed_, k // 2]).standard_normal(n)
    return z if k % 2 == 0 else -z


def errors(X, y, n_copies=20_000, **options):
    """Return the errors of the copies, shape (n_copies, n_samples, n_features)."""
    return (seen(X, y, n_copies, **options).X_ - np.tile(X, (n_copies, 1))).reshape(n_copies, *X.shape)


def covariances(rows, rng):
    factors = rng.normal(size=(len(rows), 3, 2))
    return factors, factors @ factors.transpose(0, 2, 1)


@pytest.mark.parametrize("name", ["X_std", "X_cov", "X_factor"])
def test_copies_have_the_stated_mean_and_covariance(name, rows, rng):
    X, y = rows
    factors, C = covariances(X, rng)
    stated = {"X_std": np.abs(factors[:, :, 0]), "X_cov": C, "X_factor": factors}[name]
    C = stated[:, :, None] ** 2 * np.eye(3) if name == "X_std" else C
    found = errors(X, y, **{name: stated})
    n = len(found)
    scale = np.sqrt(np.einsum("nii->ni", C))
    # four standard errors of a mean and of an entry of a Gaussian covariance
    assert np.all(np.abs(found.mean(axis=0)) <= 4 * scale / np.sqrt(n) + 1e-12)
    got = np.einsum("dni,dnj->nij", found, found) / n
    spread = np.sqrt((C**2 + scale[:, :, None] ** 2 * scale[:, None] ** 2) / n)
    assert np.all(np.abs(got - C) <= 4.5 * spread + 1e-12)
    flat = found.reshape(n, -1)
    between = np.corrcoef(flat[:, np.ravel(scale > 0)], rowvar=False)[:3, 3:]
    assert np.abs(between).max() < 4.5 / np.sqrt(n)  # rows are independent of each other


def test_a_number_in_the_constructor_multiplies_the_errors_of_rows(rows):
    X, y = rows
    S = np.full(X.shape, 0.3)
    once, four_times = (errors(X, y, 50, uncertainty=u, X_std=S) for u in (None, GaussianNoise(4.0)))
    assert_allclose(four_times, 4 * once)


def test_intervals_balls_and_boxes_are_drawn_from_within(rows):
    X, y = rows
    lower, upper = X - np.array([0.0, 0.1, 2.0]), X + np.array([1.0, 0.0, 0.5])
    copies = seen(X, y, 500, X_lower=lower, X_upper=upper).X_.reshape(500, *X.shape)
    assert np.all(copies >= lower - 1e-12)
    assert np.all(copies <= upper + 1e-12)
    assert_allclose(copies.mean(axis=0), (lower + upper) / 2, atol=0.15)
    radii = np.arange(6) / 5
    lengths = np.linalg.norm(errors(X, y, 500, X_radius=radii), axis=2)
    assert np.all(lengths <= radii + 1e-12)
    assert np.all(lengths.max(axis=0) >= 0.9 * radii)
    boxes = errors(X, y, 500, uncertainty=Box(2.0), X_std=np.tile([0.1, 0.0, 1.0], (6, 1)))
    assert_allclose(np.abs(boxes).max(axis=(0, 1)), [0.2, 0.0, 2.0], rtol=0.02)


def test_no_copy_is_split_from_its_label_and_weight(rows):
    X, y = rows
    weights = np.arange(1.0, 7.0)
    model = NoiseCopies(Recorder(), 4, uncertainty=GaussianNoise(0.0), random_state=0)
    found = model.fit(X, y, sample_weight=weights, tags=list("abcdef")).estimator_
    assert_array_equal(found.X_, np.tile(X, (4, 1)))
    assert_array_equal(found.y_, np.tile(y, 4))
    assert_allclose(found.sample_weight_, np.tile(weights, 4) / 4)
    assert "".join(found.tags_) == "abcdef" * 4
    assert_allclose(model.fit(X, y).estimator_.sample_weight_, 0.25)


def test_without_noise_it_is_the_estimator_itself(two_classes):
    X, y = two_classes(60, 3)
    weights = np.linspace(0.1, 2, 60)
    plain = LogisticRegression(C=0.3, tol=1e-10).fit(X, y, sample_weight=weights)
    copied = NoiseCopies(LogisticRegression(C=0.3, tol=1e-10), 7, uncertainty=Ball(0.0)).fit(
        X, y, sample_weight=weights
    )
    assert_allclose(copied.estimator_.coef_, plain.coef_, rtol=1e-6)
    assert_allclose(copied.predict_proba(X), plain.predict_proba(X), rtol=1e-6)


def test_many_copies_of_a_logistic_regression_become_the_expected_loss(two_classes, rng):
    X, y = two_classes(80, 3)
    S = rng.uniform(0.2, 1.5, size=X.shape)
    limit = GaussianRobustClassifier(alpha=1.0).fit(X, y, X_std=S)
    apart = [
        np.abs(
            NoiseCopies(LogisticRegression(), n, random_state=0).fit(X, y, X_std=S).estimator_.coef_ - limit.coef_
        ).max()
        for n in (10, 3000)
    ]
    assert apart[1] < 0.02 * np.abs(limit.coef_).max()
    assert apart[1] < apart[0]


def test_seed_decides_the_draws_and_each_copy_is_another(rows):
    X, y = rows
    first, again, other = (seen(X, y, 3, GaussianNoise(0.5), seed).X_ for seed in (1, 1, 2))
    assert_array_equal(first, again)
    assert np.all(first != other)
    assert len(np.unique(first.round(12), axis=0)) == 18


def test_constructor_stays_as_it_was(rows):
    X, y = rows
    inner, noise = Recorder(), GaussianNoise(0.5)
    model = NoiseCopies(inner, 2, uncertainty=noise)
    model.fit(X, y)
    assert model.estimator is inner
    assert not hasattr(inner, "X_")
    assert model.uncertainty is noise


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_stay_sparse_and_only_stated_entries_move(container, rng):
    X = np.where(rng.uniform(size=(40, 30)) < 0.1, rng.normal(size=(40, 30)), 0.0)
    S = np.where(rng.uniform(size=(40, 30)) < 0.1, 1.0, 0.0)
    y = np.arange(40) % 2
    found = seen(container(X), y, 3, X_std=container(S)).X_
    assert sparse.issparse(found)
    moved = found.toarray() - np.tile(X, (3, 1))
    assert_array_equal(moved != 0, np.tile(S > 0, (3, 1)))
    for uncertainty in (Box(relative=0.1), IntervalBox()):
        ends = (
            {"X_lower": container(X - S), "X_upper": container(X + S)} if not hasattr(uncertainty, "relative") else {}
        )
        assert sparse.issparse(seen(container(X), y, 3, uncertainty, **ends).X_)
    with pytest.raises(ValueError, match=r"X is sparse, but GaussianNoise\(std=0.1\) moves every entry.*X.toarray"):
        seen(container(X), y, 3, GaussianNoise(0.1))


def test_default_is_one_level_at_the_stated_errors_to_the_last_digit(rows, rng):
    X, y = rows
    S, weights = rng.uniform(0.1, 1, size=X.shape), rng.uniform(0.1, 1, size=6)
    found = seen(X, y, 7, X_std=S, sample_weight=weights)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    drawn = GaussianNoise().draws(X, {"X_std": S}, np.random.default_rng(seed), 7)
    assert_array_equal(found.X_, np.concatenate([X + errors for errors in drawn]))
    assert_array_equal(found.sample_weight_, np.tile(weights, 7) / 7)


def test_levels_multiply_the_errors_and_share_the_weight_of_a_row(rows, rng):
    X, y = rows
    S, weights = rng.uniform(0.1, 1, size=X.shape), rng.uniform(0.1, 1, size=6)
    found = seen(X, y, 3, levels=[2, 0, 0.5], X_std=S, sample_weight=weights)
    copies = found.X_.reshape(7, *X.shape)
    assert_array_equal(copies[3], X)
    once = seen(X, y, 6, X_std=S).X_.reshape(6, *X.shape) - X
    assert_allclose(copies[[0, 1, 2, 4, 5, 6]] - X, once * np.repeat([2, 0.5], 3)[:, None, None], atol=1e-12)
    assert_array_equal(found.y_, np.tile(y, 7))
    shares = found.sample_weight_.reshape(7, 6)
    assert_allclose(shares.sum(axis=0), weights)
    assert_allclose(shares[3], weights / 3)
    assert_allclose(shares[0], weights / 9)


def test_levels_multiply_sets_and_what_is_stated_for_all_rows(rows):
    X, y = rows
    for uncertainty in (Box(0.3), Ball(0.2, 1), GaussianNoise(std=[0.1, 0.0, 2.0]), IntervalBox(-0.1, 0.4) + Box(0.1)):
        one, three = (seen(X, y, 4, uncertainty, levels=(level,)).X_ - np.tile(X, (4, 1)) for level in (1, 3))
        assert_allclose(three, 3 * one, atol=1e-12)


def test_rows_as_they_are_count_as_much_as_copies_without_weights(rows):
    X, y = rows
    pipe = make_pipeline(FunctionTransformer(), Recorder())
    found = seen(X, y, 4, GaussianNoise(0.5), levels=(0, 1), inner=pipe)[-1]
    assert_array_equal(found.X_[: 4 * 6], np.tile(X, (4, 1)))
    assert len(found.X_) == 2 * 4 * 6


def test_rows_as_they_are_refuse_wrong_errors_too(rows):
    X, y = rows
    with pytest.raises(ValueError, match="X_std"):
        seen(X, y, levels=(0, 1), X_std=-np.ones(X.shape))


@pytest.mark.parametrize("levels", [(), 1, "12", [1, -1], [np.nan], [[1.0]], None])
def test_levels_are_checked(levels, rows):
    with pytest.raises(ValueError, match=r"NoiseCopies\(levels=.*give a list of one or more, each of which must be"):
        seen(*rows, levels=levels, uncertainty=GaussianNoise(0.1))


def test_sparse_rows_as_they_are_stay_sparse(rows):
    X, y = rows
    S = sparse.csr_array(np.where(X > 0, 0.1, 0.0))
    found = seen(sparse.csr_array(X), y, 2, levels=(0, 1), X_std=S).X_
    assert found.format == "csr"
    assert_array_equal(found[:6].toarray(), X)


def test_probabilities_are_the_mean_over_draws_that_come_in_pairs(noisy, rng):
    X, y, S, Z = noisy
    model = NoiseCopies(DecisionTreeClassifier(min_samples_leaf=5), 3, average_draws=5, random_state=3)
    model.fit(X, y, X_std=S)
    F = 0.3 * rng.normal(size=(60, 3, 2))
    for stated, n, moves in (({"X_std": S}, 3, lambda z: S * z), ({"X_factor": F}, 2, lambda z: F @ z)):
        want = np.mean([model.estimator_.predict_proba(Z + moves(draw_of(model, k, n))) for k in range(5)], axis=0)
        found = model.predict_proba(Z, **stated)
        assert_allclose(found, want, atol=1e-12)
        assert_array_equal(model.predict(Z, **stated), want.argmax(axis=1))
        with np.errstate(divide="ignore"):
            assert_allclose(np.exp(model.predict_log_proba(Z, **stated)), found)
    assert np.any(model.predict(Z, X_std=S) != model.estimator_.predict(Z))
    assert model.score(Z, y, X_std=S) == np.mean(model.predict(Z, X_std=S) == y)
    weights = np.arange(60.0)
    assert_allclose(model.score(Z, y, weights, X_std=S), np.average(model.predict(Z, X_std=S) == y, weights=weights))


def test_errors_at_prediction_are_taken_as_stated(noisy):
    X, y, S, Z = noisy
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    model = NoiseCopies(tree, 3, levels=(1, 3), uncertainty=GaussianNoise(4.0), average_draws=4, random_state=0)
    model.fit(X, y, X_std=S)
    want = np.mean([model.estimator_.predict_proba(Z + S * draw_of(model, k, 3)) for k in range(4)], axis=0)
    assert_allclose(model.predict_proba(Z, X_std=S), want, atol=1e-12)
    boxes = NoiseCopies(tree, 3, uncertainty=Box(5.0), average_draws=4, random_state=0).fit(X, y, X_std=S)
    ends = NoiseCopies(tree, 3, average_draws=4, random_state=0).fit(X, y, X_lower=X - S, X_upper=X + S)
    ends.estimator_ = boxes.estimator_
    assert_allclose(boxes.predict_proba(Z, X_std=S), ends.predict_proba(Z, X_lower=Z - S, X_upper=Z + S))


@pytest.mark.parametrize("kind", ["X_std", "X_cov", "X_factor", "X_lower", "X_radius", "X_lower by PCA", "l1 ball"])
def test_a_row_is_answered_the_same_each_time_and_whatever_rows_are_beside_it(kind, noisy, rng):
    _, y, S, Z = noisy
    A = rng.normal(size=(60, 3, 2))
    values = {"X_std": S, "X_cov": A @ A.transpose(0, 2, 1), "X_factor": A, "X_radius": S[:, 0]}
    ends = {"X_lower": Z - S, "X_upper": Z + 2 * S}
    stated = ends if kind.startswith("X_lower") else {kind: values[kind]} if kind in values else {"X_radius": S[:, 0]}
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    uncertainty = {"l1 ball": Ball(norm=1), "X_lower by PCA": IntervalBox()}.get(kind)
    model = NoiseCopies(tree, 3, uncertainty=uncertainty, average_draws=4, random_state=0)
    model = (make_uncertain_pipeline(PCA(2), model) if "PCA" in kind else model).fit(Z, y, **stated)
    whole = model.predict_proba(Z, **stated)
    assert_array_equal(model.predict_proba(Z, **stated), whole)
    some = rng.permutation(60)[:7]
    part = model.predict_proba(Z[some], **{name: value[some] for name, value in stated.items()})
    assert_allclose(part, whole[some], atol=1e-12)
    assert np.any(np.abs(whole - model.predict_proba(Z, **{n: _exact(n, v, Z) for n, v in stated.items()})) > 0.01)


def _exact(name, value, Z):
    return Z if name in ("X_lower", "X_upper") else np.zeros_like(value)


def test_rows_without_errors_are_exact(noisy):
    X, y, S, Z = noisy
    for inner in (DecisionTreeClassifier(min_samples_leaf=7), LogisticRegression()):
        model = NoiseCopies(inner, 3, average_draws=7, random_state=0).fit(X, y, X_std=S)
        for method in ("predict", "predict_proba", *["decision_function"] * hasattr(model, "decision_function")):
            plain = getattr(model.estimator_, method)(Z)
            assert_array_equal(getattr(model, method)(Z, X_std=np.zeros(Z.shape)), plain)
            with pytest.warns(
                UserWarning, match=rf"NoiseCopies\(average_draws=7\).{method}: fit was given errors"
            ) as found:
                assert_array_equal(getattr(model, method)(Z), plain)
            assert len(found) == 1
            assert found[0].filename == __file__
    common = NoiseCopies(LogisticRegression(), 3, average_draws=7, uncertainty=GaussianNoise(0.2)).fit(X, y)
    assert_array_equal(common.predict_proba(Z), common.estimator_.predict_proba(Z))


def test_errors_that_predictions_would_not_use_are_refused(noisy):
    X, y, S, Z = noisy
    model = NoiseCopies(LogisticRegression(), 3).fit(X, y, X_std=S)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        with pytest.raises(
            ValueError, match=rf"NoiseCopies.{method}\(..., X_std=...\): with average_draws=None.*average_draws=10"
        ):
            getattr(model, method)(Z, X_std=S)
    with pytest.raises(ValueError, match="average_draws=None"):
        model.score(Z, y, X_std=S)
    pipe = make_uncertain_pipeline(StandardScaler(), model).fit(X, y, X_std=S)
    with pytest.raises(ValueError, match="average_draws=None"):
        pipe.predict_proba(Z, X_std=S)
    with pytest.raises(ValueError, match=r"NoiseCopies\(average_draws=0\): must be an integer >= 1"):
        model.set_params(average_draws=0).predict(Z, X_std=S)
    with pytest.raises(ValueError, match=r"X_std has shape \(59, 3\)"):
        model.set_params(average_draws=2).predict(Z, X_std=S[:59])
    with pytest.raises(ValueError, match="neither predict_proba nor decision_function"):
        NoiseCopies(Recorder(), 2, average_draws=2).fit(X, y, X_std=S)


def test_without_probabilities_predictions_go_by_the_mean_score(noisy):
    X, y, S, Z = noisy
    for labels in (np.array(["no", "yes"])[y], np.array(list("abc"))[y + (X[:, 2] > 0)]):
        model = NoiseCopies(SVC(), 3, average_draws=3, random_state=0).fit(X, labels, X_std=S)
        mean = np.mean([model.estimator_.decision_function(Z + S * draw_of(model, k, 3)) for k in range(3)], axis=0)
        assert_allclose(model.decision_function(Z, X_std=S), mean, atol=1e-9)
        want = model.classes_[mean.argmax(axis=1) if mean.ndim == 2 else (mean > 0).astype(int)]
        assert_array_equal(model.predict(Z, X_std=S), want)
    pairs = NoiseCopies(SVC(decision_function_shape="ovo"), 2, average_draws=2).fit(X, np.arange(60) % 4, X_std=S)
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        pairs.predict(Z, X_std=S)


def test_draws_of_sparse_rows_are_averaged_too(noisy):
    X, y, S, Z = noisy
    S = np.where(S > 0.4, S, 0.0)
    model = NoiseCopies(DecisionTreeClassifier(min_samples_leaf=5), 3, average_draws=100, random_state=0)
    model.fit(sparse.csr_array(X), y, X_std=sparse.csr_array(S))
    found = model.predict_proba(sparse.csr_array(Z), X_std=sparse.csr_array(S))
    assert_array_equal(model.predict_proba(sparse.csr_array(Z), X_std=sparse.csr_array(S)), found)
    assert_allclose(found, model.predict_proba(Z, X_std=S), atol=0.15)
    assert_array_equal(found[~S.any(axis=1)], model.estimator_.predict_proba(Z[~S.any(axis=1)]))
    with pytest.raises(ValueError, match=r"predict_proba: X is sparse, but GaussianNoise\(\) moves every entry"):
        model.predict_proba(sparse.csr_array(Z), X_std=S)


def test_frames_asked_about_are_matched_by_their_columns(noisy):
    X, y, S, Z = (pd.DataFrame(part, columns=list("abc")) if np.ndim(part) == 2 else part for part in noisy)
    model = NoiseCopies(LogisticRegression(), 3, average_draws=2, random_state=0).fit(X, y, X_std=S)
    model.predict(Z, X_std=S), model.predict_log_proba(Z, X_std=S.to_numpy())
    with pytest.raises(ValueError, match=r"X_std has the columns \['c', 'b', 'a'\]"):
        model.predict(Z, X_std=S[["c", "b", "a"]])


def test_a_pipeline_carries_errors_to_the_draws(noisy):
    X, y, S, Z = noisy
    scale = np.array([1.0, 100.0, 0.01])
    last = NoiseCopies(DecisionTreeClassifier(min_samples_leaf=5, random_state=0), 3, average_draws=4, random_state=0)
    pipe = make_uncertain_pipeline(StandardScaler(), last).fit(X * scale, y, X_std=S * scale)
    given, errors = pipe[0].transform(Z * scale), S * scale / pipe[0].scale_
    assert_allclose(pipe.predict_proba(Z * scale, X_std=S * scale), pipe[-1].predict_proba(given, X_std=errors))
    with pytest.warns(UserWarning, match="fit was given errors"):
        pipe.predict_proba(Z * scale)


def test_entries_that_are_filled_in_are_drawn_at_prediction(noisy):
    X, y, _, Z = noisy
    X[::5, 1] = np.nan
    Z[::4, 0] = np.nan
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    pipe = make_uncertain_pipeline(SpreadImputer(), NoiseCopies(tree, 3, average_draws=4, random_state=0)).fit(X, y)
    found, plain = pipe.predict_proba(Z), pipe[-1].estimator_.predict_proba(pipe[0].transform(Z))
    missing = np.isnan(Z).any(axis=1)
    assert_array_equal(found[~missing], plain[~missing])
    assert np.any(found[missing] != plain[missing])


def test_errors_are_routed_to_predictions_that_average(noisy):
    X, y, S, _ = noisy
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        for draws in (None, 4):
            model = NoiseCopies(tree, 3, average_draws=draws, random_state=0).set_fit_request(X_std=True)
            kept = cross_validate(model, X, y, cv=2, params={"X_std": S}, return_estimator=True, return_indices=True)
            for fitted, test, score in zip(kept["estimator"], kept["indices"]["test"], kept["test_score"], strict=True):
                errors = {"X_std": S[test]} if draws else {}
                assert score == fitted.score(X[test], y[test], **errors)
        model.set_score_request(X_std=False)
        routed = model.get_metadata_routing()._self_request
        assert routed.score.requests["X_std"] is False
        assert routed.predict_proba.requests["X_cov"] is True


@pytest.mark.parametrize("stop", ["auto", True])
def test_early_stopping_on_copies_of_the_training_rows_warns(stop, noisy):
    X, y, S, _ = noisy
    boosting = HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=3, early_stopping=stop)
    n_copies = 170 if stop == "auto" else 2
    with pytest.warns(UserWarning, match="early_stopping=.* copies aside.*Set early_stopping=False"):
        NoiseCopies(make_pipeline(StandardScaler(), boosting), n_copies).fit(X, y, X_std=S)
    boosting.set_params(early_stopping=False)
    NoiseCopies(boosting, n_copies).fit(X, y, X_std=S)
    boosting.set_params(early_stopping="auto")
    NoiseCopies(boosting, 160).fit(X, y, X_std=S)


def test_progress_is_logged(noisy, caplog):
    X, y, S, Z = noisy
    caplog.set_level(logging.INFO, logger="holdfast")
    tree = DecisionTreeClassifier(min_samples_leaf=5)
    model = NoiseCopies(tree, 3, levels=(0, 2), average_draws=2, verbose=1).fit(X, y, X_std=S)
    model.predict_proba(Z, X_std=S)
    assert [record.getMessage() for record in caplog.records] == [
        "NoiseCopies: min_samples_leaf=5 counts copies, 4 a row",
        "NoiseCopies: 60 rows, 240 copies at the levels 0, 2",
        "NoiseCopies: fitted DecisionTreeClassifier(min_samples_leaf=5)",
        "NoiseCopies.predict_proba: draw 1 of 2",
        "NoiseCopies.predict_proba: draw 2 of 2",
    ]
    caplog.clear()
    model.set_params(verbose=0).fit(X, y, X_std=S).predict(Z, X_std=S)
    assert not caplog.records


def test_float32_stays_float32(rows):
    X, y = rows
    for rows_given in (X.astype(np.float32), sparse.csr_array(X.astype(np.float32))):
        S = np.ones(X.shape) if isinstance(rows_given, np.ndarray) else sparse.csr_array(np.ones(X.shape))
        assert seen(rows_given, y, X_std=S).X_.dtype == np.float32


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_are_matched_by_their_columns(frame, rows):
    X, y = rows
    X, S = (frame(dict(zip("abc", values.T, strict=True))) for values in (X, np.ones(X.shape)))
    model = NoiseCopies(LogisticRegression(), 3, random_state=0).fit(X, y, X_std=S)
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert model.n_features_in_ == 3
    assert model.predict(X).shape == (6,)
    with pytest.raises(ValueError, match=r"X_std has the columns \['c', 'b', 'a'\]"):
        model.fit(X, y, X_std=S[["c", "b", "a"]])


def test_missing_values_pass_where_the_estimator_takes_them(rows):
    X, y = rows
    X[0, 0] = np.nan
    copies = seen(X, y, 4, GaussianNoise(0.5)).X_
    assert_array_equal(np.isnan(copies), np.tile(np.isnan(X), (4, 1)))
    with pytest.raises(ValueError, match="NaN"):
        NoiseCopies(LogisticRegression(), uncertainty=GaussianNoise(0.5)).fit(X, y)


def test_methods_are_those_of_the_estimator(rows):
    X, y = rows
    with_scores = NoiseCopies(LinearSVC(), 2, uncertainty=GaussianNoise(0.1))
    with_probabilities = NoiseCopies(GaussianNB(), 2, uncertainty=GaussianNoise(0.1))
    assert hasattr(with_scores, "decision_function")
    assert not hasattr(with_scores, "predict_proba")
    assert hasattr(with_probabilities, "predict_proba")
    assert not hasattr(with_probabilities, "decision_function")
    fitted = with_probabilities.fit(X, y)
    assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))
    assert_array_equal(fitted.predict(X), fitted.estimator_.predict(X))
    assert with_scores.fit(X, y).decision_function(X).shape == (6,)


@pytest.mark.parametrize("n_copies", [0, -1, 2.5, "many"])
def test_number_of_copies_is_checked(n_copies, rows):
    with pytest.raises(ValueError, match=rf"NoiseCopies\(n_copies={n_copies!r}\): must be an integer >= 1"):
        NoiseCopies(LogisticRegression(), n_copies, uncertainty=GaussianNoise(0.1)).fit(*rows)


def test_what_makes_no_sense_is_refused_with_advice(rows):
    X, y = rows
    S = np.ones(X.shape)
    with pytest.raises(ValueError, match="no uncertainty is stated"):
        NoiseCopies(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"NoiseCopies\(uncertainty=0.3\): give a set"):
        NoiseCopies(LogisticRegression(), uncertainty=0.3).fit(X, y)
    with pytest.raises(ValueError, match="X_std and X_cov say the same thing twice"):
        NoiseCopies(LogisticRegression()).fit(X, y, X_std=S, X_cov=np.ones((6, 3, 3)))
    with pytest.raises(ValueError, match=r"X_std has shape \(5, 3\)"):
        NoiseCopies(LogisticRegression()).fit(X, y, X_std=S[:5])
    with pytest.raises(ValueError, match="does not take sample_weight"):
        NoiseCopies(KNeighborsClassifier(1)).fit(X, y, sample_weight=np.ones(6), X_std=S)
    with pytest.raises(ValueError, match="one class only"):
        NoiseCopies(LogisticRegression()).fit(X, np.zeros(6), X_std=S)
    for chosen in (ChanceConstraint(0.1, cov=1.0), GaussianNoise(0.1, unknown="correlations")):
        with pytest.raises(ValueError, match="draw"):
            NoiseCopies(LogisticRegression(), uncertainty=chosen).fit(X, y)


def test_an_estimator_without_weights_is_fitted_to_copies_alone(rows):
    X, y = rows
    assert (
        NoiseCopies(KNeighborsClassifier(3), 4, uncertainty=GaussianNoise(1e-9)).fit(X, y).estimator_.n_samples_fit_
        == 24
    )
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    assert NoiseCopies(pipe, 4, uncertainty=GaussianNoise(1e-9)).fit(X, y).score(X, y) >= 0.5


def test_search_around_it_slices_errors_with_the_rows(two_classes, rng):
    X, y = two_classes(40, 3)
    S = rng.uniform(0.1, 1, size=X.shape)
    model = NoiseCopies(Recorder(), 2, random_state=0)
    search = GridSearchCV(model, {"n_copies": [1, 3], "uncertainty": [GaussianNoise(2.0)]}, cv=2)
    best = search.fit(X, y, X_std=S).best_estimator_.estimator_
    assert len(best.X_) == 40
    kept = cross_validate(model, X, y, cv=2, params={"X_std": S}, return_estimator=True, return_indices=True)
    for fitted, train in zip(kept["estimator"], kept["indices"]["train"], strict=True):
        again = NoiseCopies(Recorder(), 2, random_state=0).fit(X[train], y[train], X_std=S[train])
        assert_array_equal(fitted.estimator_.X_, again.estimator_.X_)


def test_metadata_are_routed_to_it_and_through_it(two_classes):
    X, y = two_classes(40, 3)
    S, tags = np.ones(X.shape), np.arange(40)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Recorder().set_fit_request(tags=True, sample_weight=False)
        model = NoiseCopies(inner, 2, random_state=0).set_fit_request(X_std=True, sample_weight=True)
        fit = {"X_std": S, "tags": tags, "sample_weight": np.ones(40)}
        accuracy = make_scorer(accuracy_score).set_score_request(sample_weight=False)
        kept = cross_validate(
            model, X, y, cv=2, params=fit, return_estimator=True, return_indices=True, scoring=accuracy
        )
    for fitted, train in zip(kept["estimator"], kept["indices"]["train"], strict=True):
        assert_array_equal(fitted.estimator_.tags_, np.tile(train, 2))
        assert_allclose(fitted.estimator_.sample_weight_, 0.5)


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pair
        for pair in estimator_checks_generator(
            NoiseCopies(LogisticRegression(), 5, uncertainty=Box(relative=0.02) + Box(relative=0.01), random_state=0)
        )
        if "sample_weight_equivalence" not in str(pair[1])  # other draws: twice a row is not twice its weight
    ],
)
def test_scikit_learn_checks_with_noise(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_on_real_error_bars_ten_copies_are_as_good_as_the_expected_loss_and_boosting_as_published():
    data = load_breast_cancer_errors()
    noise, accuracies = GaussianNoise(4.0), []
    splits = StratifiedShuffleSplit(30, test_size=0.3, random_state=0).split(data.X, data.y)
    for seed, (train, test) in enumerate(splits):
        scaler = StandardScaler().fit(data.X[train])
        (X, S), (Z, T) = ((scaler.transform(data.X[i]), data.X_std[i] / scaler.scale_) for i in (train, test))
        rng, y = np.random.default_rng(seed), data.y[train]
        boosting = HistGradientBoostingClassifier(max_iter=50, random_state=0)
        models = [
            GaussianRobustClassifier(4.0).fit(X, y, X_std=S),
            NoiseCopies(LogisticRegression(), uncertainty=noise, random_state=seed).fit(X, y, X_std=S),
            NoiseCopies(boosting, uncertainty=noise, random_state=seed).fit(X, y, X_std=S),
        ]
        again = Z + 4 * T * rng.standard_normal((20, *Z.shape))
        labels = np.tile(data.y[test], 20)
        accuracies.append([100 * model.score(again.reshape(-1, 10), labels) for model in models])
    expected, copied, boosted = np.array(accuracies).T
    assert abs(np.mean(copied - expected)) <= 0.13
    # measured before: 89.0, with a standard error like ours
    assert abs(boosted.mean() - 89.0) <= 2 * np.sqrt(2) * boosted.std(ddof=1) / np.sqrt(30)


@pytest.mark.parametrize(
    "uncertainty", [Box(0.3), Ball(0.3, 1), IntervalBox(-0.1, 0.3), GaussianNoise(std=[0.1, 2.0, 0.3])]
)
@pytest.mark.parametrize("step", [StandardScaler(), PCA(2)], ids=str)
def test_copies_behind_affine_steps_are_the_transformed_copies(step, uncertainty, rows):
    X, y = rows
    pipe = UncertainPipeline(
        [("step", step), ("copies", NoiseCopies(Recorder(), 3, uncertainty=uncertainty, random_state=0))]
    ).fit(X, y)
    assert_allclose(pipe[-1].estimator_.X_, pipe[0].transform(seen(X, y, 3, uncertainty).X_), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [[], [SpreadImputer()], [FunctionTransformer(np.log)]], ids=repr)
@pytest.mark.parametrize(
    "inner", [GaussianRobustClassifier(), RobustLinearClassifier(), LogisticRegression()], ids=repr
)
def test_copies_are_the_same_whatever_the_estimator_inside_could_be_told(steps, inner, rng):
    y = np.arange(30) % 2
    X = np.exp(rng.normal(size=(30, 3)) + y[:, None])
    X = np.where(rng.uniform(size=X.shape) < 0.1, np.nan, X) if steps and isinstance(steps[0], SpreadImputer) else X
    last = NoiseCopies(inner, 2, random_state=0)
    pipe = make_uncertain_pipeline(*steps, StandardScaler(), last).fit(X, y, X_std=np.full(X.shape, 0.01))
    recorder = NoiseCopies(Recorder(), 2, random_state=0)
    copies = make_uncertain_pipeline(*steps, StandardScaler(), recorder).fit(X, y, X_std=np.full(X.shape, 0.01))
    by_hand = clone(inner).fit(copies[-1].estimator_.X_, np.tile(y, 2), sample_weight=np.full(60, 0.5))
    assert_allclose(pipe[-1].estimator_.coef_, by_hand.coef_, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("first", [StandardScaler(), SpreadImputer()], ids=repr)
def test_the_estimator_inside_is_told_of_no_errors_but_its_own_in_its_units(first, rng):
    y = np.arange(30) % 2
    X = (rng.normal(size=(30, 3)) + y[:, None]) * [1.0, 10.0, 0.1]
    if isinstance(first, SpreadImputer):
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
    scale = StandardScaler().fit(first.fit_transform(X)).scale_ * getattr(first, "scale_", 1.0)
    for inner, name in ((RobustLinearClassifier(Box(0.1)), "uncertainty"), (GaussianRobustClassifier(0.1), "noise")):
        pipe = make_uncertain_pipeline(clone(first), StandardScaler(), NoiseCopies(inner, 2))
        pipe.fit(X, y, X_std=np.full(X.shape, 0.01))
        made = getattr(pipe[-1].estimator_, name).at(np.zeros((1, 3)), {})
        for j, e in enumerate(np.eye(3)):
            assert_allclose(made.support(e), 0.1 / scale[j])


def test_folds_without_missing_entries_train_on_rows_as_they_are(two_classes):
    X, y = two_classes(60, 3)
    holed = X.copy()
    holed[3, 1] = np.nan
    last = NoiseCopies(LogisticRegression(), 2, random_state=0)
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), last)
    assert np.all(np.isfinite(cross_val_score(pipe, holed, y, cv=2, error_score="raise")))
    by_hand = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    assert_allclose(pipe.fit(X, y)[-1].estimator_.coef_, by_hand[-1].coef_, rtol=1e-3)
    # where no step could state any, it still asks for errors
    with pytest.raises(ValueError, match=r"NoiseCopies.fit: no uncertainty is stated"):
        make_uncertain_pipeline(StandardScaler(), last).fit(X, y)


def test_levels_that_leave_all_errors_out_are_refused():
    X, y = np.arange(8.0).reshape(-1, 1), np.arange(8) % 2
    with pytest.raises(ValueError, match="levels=\\(0,\\)"):
        NoiseCopies(LogisticRegression(), 2, levels=(0,)).fit(X, y, X_std=np.ones((8, 1)))
