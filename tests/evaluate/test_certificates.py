"""Certificates of radii, intervals and deletions: sound, tight for linear models, rounded outward, for any kind of rows."""

import runpy
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.svm import SVC

from holdfast import Ball, RobustLinearClassifier
from holdfast._certificates.decisions import one_score
from holdfast._certificates.fitted import known_model, linear_model
from holdfast._certificates.models import LinearModel
from holdfast._certificates.pipelines import view_of
from holdfast._certificates.rounded_map import RoundedMap
from holdfast.evaluate import (
    certified_accuracy,
    certified_deletions,
    certified_interval,
    certified_radius,
    flip_probability,
    safe_bits,
    worst_case,
)
from holdfast.evaluate.fitted import rows_for
from holdfast.exceptions import NoCertificateError

NORMS = (1, 2, np.inf)
check = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "certify_check.py"), run_name="check"))


def linear(W, b, dtype=float):
    """Return a linear classifier of scikit-learn with these weights."""
    W, b = np.atleast_2d(np.asarray(W, dtype=dtype)), np.atleast_1d(np.asarray(b, dtype=dtype))
    model = LogisticRegression()
    model.classes_ = np.arange(max(2, len(W)))
    model.coef_, model.intercept_, model.n_features_in_ = W, b, W.shape[1]
    return model


@pytest.fixture
def rows(several_classes):
    return several_classes((40, 30, 20), 5)


def test_no_attack_within_a_certificate_succeeds_and_linear_radii_are_tight():
    violations, tight, attacks = check.main(3_000, out=lambda line: None, skipped=check.DEAR)
    assert min(attacks.values()) >= 3_000
    assert violations == 0
    assert tight >= 0.999


# Rounding


def near_ties(rng, n=300, d=12):
    """Return weights and rows whose terms all but cancel, so that of many a score the sign is that of rounding."""
    w, X = rng.normal(size=d), rng.normal(size=(n, d))
    X[:, d // 2] -= (X @ w) / w[d // 2]
    return w, X


@pytest.mark.parametrize("norm", NORMS)
def test_radii_never_exceed_those_without_rounding_even_where_scores_cancel(norm, rng):
    w, X = near_ties(rng)
    model = linear(w, 0.0)
    exact, found = (certified_radius(model, X, norm=norm, exact=exact) for exact in (True, False))
    lies = (model.predict(X) != exact.predicted) & (exact.radius > 0)
    assert np.any(lies & (model.decision_function(X) != 0))
    assert np.all(found.radius <= exact.radius)
    assert np.all(found.radius[lies] == 0)
    Z = rng.normal(size=(300, 12))
    exact, found = (certified_radius(model, Z, norm=norm, exact=exact).radius for exact in (True, False))
    assert np.all(found <= exact)
    assert_allclose(found, exact, rtol=1e-6)


def test_exact_radius_tells_the_class_where_floats_lie():
    model, X = linear([1e17, 1.0, -1e17], 0.0), np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 0.0, 1.0]])
    assert np.array_equal(certified_radius(model, X).radius, np.zeros(3))
    exact = certified_radius(model, X, norm=np.inf, exact=True)
    assert exact.predicted.tolist()[:2] == [1, 0]
    assert exact.radius.tolist() == [pytest.approx(1 / 2e17), pytest.approx(1 / 2e17), 0.0]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n_classes", [1, 3])
def test_exact_radius_is_the_largest_float_that_is_proved(norm, n_classes, rng):
    W, b, X = rng.normal(size=(n_classes, 4)), rng.normal(size=n_classes), rng.normal(size=(30, 4))
    weights = np.array([1.0, 0.5, 0.0, 3.0])
    found = certified_radius(linear(W, b), X, norm=norm, weights=weights, exact=True)
    full, offset = (np.vstack([np.zeros(4), W]), np.append(0.0, b)) if n_classes == 1 else (W, b)
    for x, k, radius in zip(X, found.predicted, found.radius, strict=True):

        def is_proved(r, x=x, k=k):
            r = Fraction(r)
            for rival in (rival for rival in range(len(full)) if rival != k):
                v = [Fraction(p) - Fraction(q) for p, q in zip(full[k], full[rival], strict=True)]
                lead = (
                    sum(a * Fraction(t) for a, t in zip(v, x, strict=True))
                    + Fraction(offset[k])
                    - Fraction(offset[rival])
                )
                v = [abs(a) * Fraction(s) for a, s in zip(v, weights, strict=True)]
                if norm == 2:
                    ok = lead > 0 and r**2 * sum(a * a for a in v) < lead**2
                else:
                    ok = r * (max(v) if norm == 1 else sum(v)) < lead
                if not ok:
                    return False
            return True

        assert is_proved(radius)
        assert not is_proved(np.nextafter(radius, np.inf))


def test_radius_at_which_a_row_would_be_a_tie_is_not_certified():
    model, X = linear([3.0, 4.0], 0.0), [[3.0, 4.0]]
    for norm, distance in zip(NORMS, (25 / 4, 5.0, 25 / 7), strict=True):
        assert certified_radius(model, X, norm=norm).radius[0] < distance
        exact = certified_radius(model, X, norm=norm, exact=True).radius[0]
        assert Fraction(exact) < Fraction(25, {1: 4, 2: 5, np.inf: 7}[norm])
        assert exact >= np.nextafter(distance, 0.0)


def test_exact_radius_of_a_pipeline_is_that_of_its_steps_numbers(rows):
    X, y = rows
    model = make_pipeline(StandardScaler(), PCA(3), LogisticRegression()).fit(X, y)
    exact, found = (certified_radius(model, X, exact=exact).radius for exact in (True, False))
    assert np.all(found <= exact)
    assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("norm", NORMS)
def test_radius_has_the_units_of_the_rows(scale, norm, rng):
    W, b, X = rng.normal(size=(3, 5)), rng.normal(size=3), rng.normal(size=(50, 5))
    plain = certified_radius(linear(W, b), X, norm=norm).radius
    assert_allclose(certified_radius(linear(W, b * scale), X * scale, norm=norm).radius, scale * plain, rtol=1e-9)
    assert_allclose(certified_radius(linear(W * scale, b * scale), X, norm=norm).radius, plain, rtol=1e-9)
    assert_allclose(
        certified_radius(linear(W, b), X, norm=norm, weights=np.full(5, scale)).radius, plain / scale, rtol=1e-9
    )


def test_what_overflows_is_not_certified(rng):
    W, X = rng.normal(size=(3, 4)) * 1e200, rng.normal(size=(20, 4)) * 1e200
    with np.errstate(over="ignore", invalid="ignore"):  # of the model's own scores
        assert np.array_equal(certified_radius(linear(W, np.zeros(3)), X).radius, np.zeros(20))


@pytest.mark.parametrize(
    ("model", "x", "norm"),
    [
        (linear([[1e20], [2e20], [0]], np.zeros(3), np.float32), np.float32([[1e19]]), 2),
        (linear([[0, 0], [0.9e300] * 2, [1e300] * 2], np.zeros(3)), np.array([[1.5e8, 0.0]]), np.inf),
        (linear([[0, 0], [0.9e300] * 2, [1e300] * 2], np.zeros(3)), np.array([[1e7, 0.0]]), np.inf),
        (linear([[1e20], [1.0000002e20]], [0, 1e37], np.float32), np.float32([[0]]), 2),
        (linear([[1e200], [1.00000000000001e200]], [0, 1e305]), np.array([[0.0]]), 1),
    ],
)
def test_rows_keep_their_class_where_scores_overflow_on_the_way(model, x, norm):
    corners = np.array(list(product((-1.0, 0.0, 1.0), repeat=x.shape[1])))
    with np.errstate(over="ignore", invalid="ignore"):  # of the model's own scores
        found = certified_radius(model, x, norm=norm)
        radius = float(found.radius[0])
        for share in (0.5, 0.999):
            moved = (x + share * radius * corners).astype(x.dtype)
            assert np.all(model.predict(moved) == found.predicted[0])


def test_intervals_in_which_scores_overflow_are_not_certified():
    model, x = linear([[0, 0], [0.9e300] * 2, [1e300] * 2], np.zeros(3)), np.array([[1e7, 0.0]])
    assert certified_interval(model, x, X_lower=x, X_upper=x + 1e6).certified[0]
    assert not certified_interval(model, x, X_lower=x, X_upper=x + 1.5e8).certified[0]
    with np.errstate(over="ignore", invalid="ignore"):
        assert model.predict(x + 1.5e8)[0] != model.predict(x)[0]


@pytest.mark.parametrize("norm", NORMS)
def test_radii_are_finite_where_weights_and_units_are_not_zero_but_their_product_is(norm):
    model, x = linear([[1e-200]], 1e-300), np.zeros((1, 1))
    radius = certified_radius(model, x, norm=norm, weights=[1e-200]).radius[0]
    assert radius <= certified_radius(model, x, norm=norm, weights=[1e-200], exact=True).radius[0]
    rows = np.random.default_rng(0).normal(size=(30, 1))
    kernel = make_pipeline(StandardScaler(), SVC()).fit(1e-160 * rows, rows[:, 0] > 0)
    fourier = make_pipeline(RBFSampler(random_state=0), LogisticRegression(C=1e-3)).fit(rows, rows[:, 0] > 0)
    fourier[-1].coef_ = 1e-200 * fourier[-1].coef_
    fourier[-1].intercept_ = np.zeros(1)  # or nothing moves a score by as much
    assert np.all(np.isfinite(certified_radius(fourier, rows, norm=norm, weights=[1e-200]).radius))
    assert np.all(np.isfinite(certified_radius(kernel, 1e-160 * rows, norm=norm, weights=[1e-320]).radius))


def test_radii_too_small_to_be_rounded_down_are_zero():
    for b in np.arange(1.0, 9.0, 0.37) * 4.94065645841e-24:
        model = linear([[1e300]], b)
        radius = certified_radius(model, np.zeros((1, 1))).radius[0]
        assert model.predict([[-radius]])[0] == 1


def test_float32_rows_of_a_pipeline_keep_their_class_where_steps_compute_in_float32(rng, rows):
    X, y = rows
    X = (X + 1000.0).astype(np.float32)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X.astype(np.float64), y)
    coarse, fine = certified_radius(model, X), certified_radius(model, X.astype(np.float64))
    assert np.all(coarse.radius <= fine.radius)
    assert_allclose(coarse.radius, fine.radius, rtol=0.05, atol=1e-3)
    tried, fallen = check.attack_radius(model, X, 2, np.ones(5), 5000, rng)
    assert tried >= 5000
    assert fallen == 0
    Z, scores = X.astype(np.float64), model.decision_function(X)
    view = view_of(model, X).model
    values, errors = view.scores(X)
    assert np.all(np.abs(values - scores) <= errors)
    assert np.max(np.abs(values - scores) / view.scores(Z)[1]) > 100


# Radii


@pytest.mark.parametrize("norm", NORMS)
def test_radius_of_two_classes_is_the_distance_to_the_hyperplane(norm, rng):
    w, b, X, weights = rng.normal(size=4), 0.3, rng.normal(size=(50, 4)), np.array([1.0, 2.0, 0.0, 0.5])
    found = certified_radius(linear(w, b), X, norm=norm, weights=weights)
    v = np.abs(w * weights)
    dual = {1: v.max(), 2: np.sqrt(np.sum(v**2)), np.inf: v.sum()}[norm]
    assert_allclose(found.radius, np.abs(X @ w + b) / dual, rtol=1e-10)
    assert np.array_equal(found.predicted, (X @ w + b > 0).astype(int))
    assert_allclose(np.asarray(found), found.radius)
    assert "linear" in found.method
    assert "no x + d" in found.assumption


def test_tie_is_not_certified_and_has_the_models_own_class():
    found = certified_radius(linear([1.0, -1.0], 0.0), [[1.0, 1.0], [2.0, 1.0]])
    assert found.radius[0] == 0 < found.radius[1]
    svc = SVC(kernel="linear").fit([[-1.0], [1.0]], [0, 1])
    tie = certified_radius(svc, [[0.0]])
    assert tie.radius[0] == 0
    assert tie.predicted[0] == svc.predict([[0.0]])[0]


def test_constant_model_and_features_that_cannot_move_have_infinite_radii():
    model = linear([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]], [0.0, 1.0, 0.0])
    assert np.all(np.isinf(certified_radius(model, np.ones((2, 2)), weights=[0.0, 1.0]).radius))
    assert np.all(np.isinf(certified_radius(linear(np.zeros((3, 2)), [0.0, 1.0, 0.5]), np.ones((2, 2))).radius))


def test_kernel_radius_is_no_smaller_than_where_the_kernels_space_allows_a_change(rows):
    X, y = rows
    X, y = X[y < 2], y[y < 2]
    model = SVC(gamma=0.3).fit(X, y)
    a, S = model.dual_coef_[0], model.support_vectors_
    K = np.exp(-0.3 * np.sum((S[:, None] - S[None]) ** 2, axis=-1))
    share = np.abs(model.decision_function(X)) / np.sqrt(a @ K @ a)
    expected = np.sqrt(-np.log(np.maximum(1 - share**2 / 2, 0.0)) / 0.3)
    radius = certified_radius(model, X).radius
    assert np.all(radius >= expected * (1 - 1e-9))
    assert np.median(radius / expected) >= 1.3
    assert np.all(certified_radius(model, X, norm=1).radius >= radius * (1 - 1e-5))
    assert np.all(certified_radius(model, X, norm=np.inf).radius >= radius / np.sqrt(5) * (1 - 1e-5))
    assert_allclose(certified_radius(model, X, weights=np.full(5, 2.0)).radius, radius / 2, rtol=1e-4)


def test_kernel_radius_through_a_scaler_is_that_of_scaled_rows(rows):
    X, y = rows
    X = X * [1, 10, 100, 0.1, 1]
    scaler = StandardScaler().fit(X)
    svc = SVC().fit(scaler.transform(X), y)
    piped = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    assert_allclose(
        certified_radius(piped, X, weights=scaler.scale_).radius,
        certified_radius(svc, scaler.transform(X)).radius,
        rtol=1e-6,
    )


def test_contest_of_classes_is_certified_by_the_winners_own_contests(rng, several_classes):
    X, y = several_classes((30, 30, 30, 30), 3, separation=0.2)
    model = SVC(kernel="linear", decision_function_shape="ovo").fit(X, y)
    X = rng.uniform(-3, 3, size=(2000, 3))
    scores, pairs = model.decision_function(X), list(combinations(range(4), 2))
    sizes = np.abs(scores) / np.linalg.norm(model.coef_, axis=1)
    predicted, found = model.predict(X), certified_radius(model, X)
    has_part = np.array([[k in pair for pair in pairs] for k in predicted])
    wins = (scores > 0) == (np.array(pairs)[:, 0] == predicted[:, None])
    has_all = np.sum(wins & has_part, axis=1) == 3
    assert np.sum(~has_all) > 0
    others = np.where(has_part, np.inf, sizes).min(axis=1) < np.where(has_part, sizes, np.inf).min(axis=1)
    assert np.any(others & ~has_all)
    expected = np.where(has_all[:, None] & ~has_part, np.inf, sizes).min(axis=1)
    assert_allclose(found.radius, expected, rtol=1e-5, atol=1e-9)
    assert np.array_equal(found.predicted, predicted)


def test_ties_of_votes_that_are_broken_by_scores_are_not_certified(several_classes):
    X, y = several_classes((30, 30, 30), 2, separation=0.3)
    model = SVC(break_ties=True, gamma=5.0).fit(X, y)
    plain = SVC(gamma=5.0).fit(X, y)
    Z = np.random.default_rng(0).uniform(-3, 3, size=(3000, 2))
    broken, kept = certified_radius(model, Z), certified_radius(plain, Z)
    contests = SVC(gamma=5.0, decision_function_shape="ovo").fit(X, y).decision_function(Z)
    won = np.stack([contests > 0, contests <= 0], axis=-1)
    votes = np.zeros((len(Z), 3))
    for p, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        votes[:, i] += won[:, p, 0]
        votes[:, j] += won[:, p, 1]
    tied = np.sum(votes == votes.max(axis=1, keepdims=True), axis=1) > 1
    assert np.any(tied)
    assert np.all(broken.radius[tied] == 0)
    assert np.array_equal(broken.radius[~tied], kept.radius[~tied])
    assert np.array_equal(broken.predicted, model.predict(Z))


def test_a_classifier_of_ones_own_joins_by_registration(rng):
    class Sign(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_, self.n_features_in_ = np.array([0, 1]), 2
            return self

        def predict(self, X):
            return (X[:, 0] > X[:, 1]).astype(int)

    X = rng.normal(size=(20, 2))
    model = Sign().fit(X, None)
    with pytest.raises(NoCertificateError, match=r"Supported are holdfast's classifiers"):
        certified_radius(model, X)
    known_model.register(Sign, lambda model: LinearModel(RoundedMap(np.array([[1.0, -1.0]]), np.zeros(1)), one_score()))
    found = certified_radius(make_pipeline("passthrough", model), X)
    assert_allclose(found.radius, np.abs(X[:, 0] - X[:, 1]) / np.sqrt(2))
    assert np.array_equal(found.predicted, model.predict(X))


class Contrary(LogisticRegression):
    def predict(self, X):
        return self.classes_[-1 - super().decision_function(X).argmax(axis=1)]


def test_a_model_that_does_not_predict_by_its_weights_is_refused(rng, rows):
    X, y = rows
    several = RidgeClassifier().fit(X, np.column_stack([y == 0, y == 1, X[:, 0] > 0]).astype(int))
    calls = (
        certified_radius,
        lambda model, X: certified_radius(model, X, exact=True),
        lambda model, X: certified_interval(model, X, X_lower=X, X_upper=X),
        certified_deletions,
        safe_bits,
    )
    for model in (Contrary().fit(X, y), make_pipeline(StandardScaler(), Contrary()).fit(X, y), several):
        for call in calls:
            with pytest.raises(
                NoCertificateError, match=r"predict of its own|predict says something else than its weights"
            ):
                call(model, X[:5])
    model = Contrary().fit(X, y)
    assert np.isnan(certified_accuracy(model, X, y, Ball(0.1)))
    assert flip_probability(model, X, 0.1, n_draws=10, random_state=0).method == "10 draws"
    attack = worst_case(model, X[:9], model.predict(X[:9]), Ball(0.1), n_starts=1)
    assert not attack.is_exact
    with pytest.raises(NoCertificateError, match=r"has a predict of its own|predict says something else"):
        worst_case(model, X, y, Ball(0.1), method="closed_form")


# Steps


@pytest.mark.parametrize("options", [{}, {"gamma": 0.7}, {"kernel_params": {"gamma": 2.0}}])
def test_nystroem_is_certified_with_the_width_that_it_uses(options, rows):
    X, y = rows
    model = make_pipeline(Nystroem(n_components=20, random_state=0, **options), LogisticRegression(C=100)).fit(X, y)
    scores, errors = view_of(model, X).model.scores(X)
    assert np.all(np.abs(scores - model.decision_function(X)) <= errors)
    assert np.array_equal(certified_radius(model, X).predicted, model.predict(X))


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [StandardScaler(with_std=False)],
        [RobustScaler()],
        [MinMaxScaler((-2, 5))],
        [MaxAbsScaler()],
        [PCA(3)],
        [PCA(3, whiten=True)],
        [TruncatedSVD(3)],
        [SelectKBest(k=2)],
        ["passthrough", SelectKBest(k=4), MinMaxScaler(), PCA(2), RobustScaler()],
        [RBFSampler(random_state=0), StandardScaler()],
        [StandardScaler(), Nystroem(random_state=0, n_components=20), MaxAbsScaler()],
    ],
    ids=lambda steps: "+".join(step if isinstance(step, str) else type(step).__name__ for step in steps),
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_through_steps_are_the_pipelines_own_within_the_errors_stated(steps, dtype, rows):
    X, y = rows
    X = (X * [1, 10, 0.1, 3, 1] + 2).astype(dtype)
    model = make_pipeline(*steps, RidgeClassifier()).fit(X, y)
    values, errors = view_of(model, X).model.scores(rows_for(model, X))
    assert np.all(np.abs(values - model.decision_function(X)) <= errors)
    assert_allclose(
        values,
        model.decision_function(X),
        rtol=1e-3 if dtype == np.float32 else 1e-9,
        atol=1e-3 if dtype == np.float32 else 1e-12,
    )


def test_search_is_certified_by_its_best_model(rows):
    X, y = rows
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.1, 1.0]})
    search.fit(X, y)
    assert np.array_equal(certified_radius(search, X).radius, certified_radius(search.best_estimator_, X).radius)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        SVC(kernel="linear"),
        SVC(),
        make_pipeline(PCA(3), SVC()),
        make_pipeline(StandardScaler(), RBFSampler(random_state=0), LogisticRegression()),
    ],
    ids=["scores", "contests", "RBF", "RBF after PCA", "Fourier"],
)
def test_gradients_are_those_of_differences(model, rng, rows):
    X, y = rows
    view = view_of(model.fit(X, y), X).model
    C = rng.normal(size=(len(X), view.decision.n_scores))
    for j, e in enumerate(1e-5 * np.eye(5)):
        slope = np.sum(C * (view.scores(X + e)[0] - view.scores(X - e)[0]), axis=1) / 2e-5
        assert_allclose(view.gradients(X, C)[:, j], slope, rtol=1e-5, atol=1e-5)


# Intervals


@pytest.mark.parametrize("model", [LogisticRegression(), SVC(kernel="linear")], ids=["scores", "contests"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_interval_is_certified_where_all_corners_keep_their_class(model, n_classes, rng, rows):
    X, y = rows
    X, y = X[y < n_classes], y[y < n_classes]
    model.fit(X, y)
    lower, upper = X - rng.exponential(0.3, size=X.shape), X + rng.exponential(0.6, size=X.shape)
    found = certified_interval(model, X, X_lower=lower, X_upper=upper)
    corners = np.array([np.where(side, upper, lower) for side in product((False, True), repeat=5)])
    same = np.all(model.predict(corners.reshape(-1, 5)).reshape(32, -1) == model.predict(X), axis=0)
    assert 0 < np.sum(same) < len(X)
    assert np.all(same[found.certified])
    if n_classes == 2 or isinstance(model, LogisticRegression):
        assert np.array_equal(found.certified, same)
        view = view_of(model, X).model
        sides = np.concatenate([corners.reshape(-1, 5)])
        if n_classes == 2:
            scores = (sides @ view.coef[0] + view.intercept[0]).reshape(32, -1)
            signs = np.where(model.predict(X) == 1, 1.0, -1.0)
            assert_allclose(found.margin, (signs * scores).min(axis=0), rtol=1e-6, atol=1e-9)


def test_interval_of_no_length_has_the_lead_as_margin(rows):
    X, y = rows
    model = LogisticRegression().fit(X, y)
    scores = np.sort(model.decision_function(X), axis=1)
    assert_allclose(certified_interval(model, X, X_lower=X, X_upper=X).margin, scores[:, -1] - scores[:, -2], rtol=1e-9)


def test_interval_must_contain_its_row(rows):
    X, y = rows
    model, many = LogisticRegression().fit(X, y), np.tile(X, (2000, 1))
    lower = many - 1.0
    lower[150_000, 2] = many[150_000, 2] + 0.1
    with pytest.raises(ValueError, match=r"X_lower\[150000, 2\] is above X\[150000, 2\] by 0.1"):
        certified_interval(model, many, X_lower=lower, X_upper=many)
    with pytest.raises(ValueError, match="X_upper has 3 rows, X has 90"):
        certified_interval(model, X, X_lower=X, X_upper=X[:3])


def test_estimators_own_certificate_agrees_with_intervals(rng, rows):
    X, y = rows
    model = RobustLinearClassifier(Ball(0.05)).fit(X, y)
    assert np.array_equal(model.certify(X), certified_radius(model, X).radius >= 0.05)


def test_certified_margin_of_the_estimator_is_rounded_down(rng):
    w, X = near_ties(rng)
    model = RobustLinearClassifier(Ball(0.0)).fit(X, np.arange(len(X)) % 2)
    model.coef_, model.intercept_ = w[None], np.zeros(1)
    exact = certified_radius(model, X, exact=True)
    certified = model.certify(X)
    assert np.all(exact.radius[certified] > 0)
    assert np.array_equal(exact.predicted[certified], model.predict(X)[certified])
    assert np.any(model.predict(X) != exact.predicted)


# Deletions


@pytest.mark.parametrize("model", [LogisticRegression(), SVC(kernel="linear")], ids=["scores", "contests"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_deletions_survived_by_enumeration(model, n_classes, rows):
    X, y = rows
    X, y = X[y < n_classes] + 0.5, y[y < n_classes]
    model.fit(X, y)
    found = certified_deletions(model, X)
    masks = np.array(list(product((0.0, 1.0), repeat=5)))
    changed = np.array([model.predict(X * (1 - mask)) != found.predicted for mask in masks])
    sizes = masks.sum(axis=1)[:, None]
    least = np.where(changed, sizes, np.inf).min(axis=0) - 1
    assert np.all(found.survived <= least)
    if n_classes == 2 or isinstance(model, LogisticRegression):
        assert np.array_equal(found.survived, least)
    assert 0 < np.sum(np.isfinite(least)) < len(X)


def test_deletions_of_different_values_leave_the_class(rng, rows):
    X, y = rows
    model, values = LogisticRegression().fit(X, y), np.array([0.5, 1.0, 2.0, np.inf, 0.3])
    found = certified_deletions(model, X, values=values)
    masks = np.array([mask for mask in product((False, True), repeat=5) if not mask[3]])
    for mask in masks:
        worth = values[mask].sum()
        same = model.predict(np.where(mask, 0.0, X)) == found.predicted
        assert np.all(same[worth < found.survived])


def test_deletions_are_rounded_down(rng):
    # all but the sign of what is left without the first feature is lost beside it
    X = np.column_stack([1e16 * rng.uniform(1, 2, size=2000), rng.normal(size=(2000, 5))])
    w = np.ones(6)
    survived = certified_deletions(linear(w, 0.0), X).survived
    left = np.array([sum(map(Fraction, x[1:].tolist())) for x in X])
    assert np.all(survived[left <= 0] == 0)
    clear = certified_deletions(linear(w, 0.0), X * [1e-16, 1, 1, 1, 1, 1]).survived
    assert np.any(clear >= 1)


# Kinds of rows


def test_frames_sparse_rows_and_lists_give_what_arrays_give(rows):
    X, y = rows
    X = np.where(X > 0.5, X, 0.0)
    names = [f"f{j}" for j in range(5)]
    frame = pd.DataFrame(X, columns=names)
    array_model = LogisticRegression().fit(X, y)
    expected = certified_radius(array_model, X).radius
    assert_allclose(certified_radius(array_model, sparse.csr_array(X)).radius, expected, rtol=1e-10)
    assert_allclose(certified_radius(array_model, X.tolist()).radius, expected, rtol=1e-10)
    for given in (frame, pl.DataFrame(X, schema=names)):
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(given, y)
        plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
        assert_allclose(certified_radius(model, given).radius, certified_radius(plain, X).radius, rtol=1e-10)
        smooth = certified_radius(model, given, method="smoothing", sigma=0.5, n_draws=50, random_state=0)
        assert_allclose(
            smooth.radius, certified_radius(plain, X, method="smoothing", sigma=0.5, n_draws=50, random_state=0)
        )
    model = LogisticRegression().fit(frame, y)
    ends = sparse.csr_array(X)
    assert_allclose(
        certified_interval(array_model, ends, X_lower=0.9 * ends, X_upper=1.1 * ends).margin,
        certified_interval(array_model, X, X_lower=0.9 * X, X_upper=1.1 * X).margin,
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="X has other columns than in fit"):
        certified_radius(model, frame[names[::-1]])


@pytest.mark.parametrize("kind", [sparse.coo_array, sparse.coo_matrix, sparse.csc_array, sparse.dok_array])
def test_any_kind_of_sparse_rows_may_hold_ties(kind):
    model, X = linear([[1.0, -1.0]], 0.0), np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    found = certified_radius(model, kind(X))
    assert_allclose(found.radius, [0.0, np.sqrt(2), 0.0])
    assert np.array_equal(found.predicted, [0, 1, 0])
    assert np.array_equal(certified_deletions(model, kind(X)).predicted, [0, 1, 0])


def test_blocks_of_sparse_rows_are_as_large_as_what_they_hold(rng):
    model, X = (
        linear(rng.normal(size=(3, 20_000)), np.zeros(3)),
        sparse.random_array((2000, 20_000), density=2e-4, rng=0),
    )
    X = X.tocsr()
    assert len(list(view_of(model, X).lead_blocks())) == 1
    assert len(list(view_of(model, X[:40].toarray()).lead_blocks())) > 2
    some = np.arange(0, 2000, 61)
    assert_allclose(
        certified_radius(model, X).radius[some], certified_radius(model, X[some].toarray()).radius, rtol=1e-9
    )


def test_a_row_has_the_same_certificate_alone_and_among_others(rng):
    model, X = linear(rng.normal(size=(3, 40)), rng.normal(size=3)), rng.normal(size=(30_000, 40))
    radius = certified_radius(model, X).radius
    some = rng.integers(len(X), size=200)
    assert_allclose(certified_radius(model, X[some]).radius, radius[some], rtol=1e-12)


# Errors


def test_errors_say_what_to_do(rows):
    X, y = rows
    model = LogisticRegression().fit(X, y)
    with pytest.raises(NotFittedError):
        certified_radius(LogisticRegression(), X)
    with pytest.raises(ValueError, match="features"):
        certified_radius(model, X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        certified_radius(model, X * np.nan)
    with pytest.raises(ValueError, match=r"certified_radius\(norm=3\): give 1, 2 or 'inf'"):
        certified_radius(model, X, norm=3)
    with pytest.raises(ValueError, match=r"weights must be >= 0"):
        certified_radius(model, X, weights=[-1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match=r"weights has shape \(2,\)"):
        certified_radius(model, X, weights=[1, 1])
    with pytest.raises(ValueError, match="'auto' or 'smoothing'"):
        certified_radius(model, X, method="magic")
    with pytest.raises(TypeError, match="goes with method='smoothing'"):
        certified_radius(model, X, sigma=1.0)
    with pytest.raises(ValueError, match="norm=2 alone"):
        certified_radius(model, X, norm=1, method="smoothing", sigma=1.0)
    for other in (
        RandomForestClassifier(n_estimators=2),
        SVC(kernel="poly"),
        make_pipeline(Normalizer(), LogisticRegression()),
        make_pipeline(Nystroem(kernel="poly", n_components=10), LogisticRegression()),
        make_pipeline(RBFSampler(), SVC()),
    ):
        with pytest.raises(NoCertificateError, match=r"method='smoothing'|Supported are"):
            certified_radius(other.fit(X, y), X)
    with pytest.raises(NoCertificateError, match="clip=False"):
        certified_radius(make_pipeline(MinMaxScaler(clip=True), LogisticRegression()).fit(X, y), X)
    svc = SVC().fit(X, y)
    for call in (lambda: certified_deletions(svc, X), lambda: certified_radius(svc, X, exact=True)):
        with pytest.raises(NoCertificateError, match="linear models only"):
            call()


def test_pipelines_within_pipelines_are_certified_as_their_steps(rng):
    X = rng.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 3.0] + 5
    y = (X[:, 0] > 5).astype(int)
    flat = make_pipeline(StandardScaler(), PCA(3), LogisticRegression()).fit(X, y)
    nested = make_pipeline(make_pipeline(StandardScaler(), "passthrough", PCA(3)), LogisticRegression()).fit(X, y)
    assert_allclose(certified_radius(nested, X).radius, certified_radius(flat, X).radius, rtol=1e-12)


def test_a_model_that_says_something_else_than_it_predicts_is_refused(rows):
    class Mistaken(LogisticRegression):
        def certificate_model(self):
            return linear_model(-self.coef_, self.intercept_)

    X, y = rows
    model = Mistaken().fit(X, y)
    for call in (certified_radius, certified_deletions, safe_bits):
        with pytest.raises(NoCertificateError, match="predict says something else than its weights"):
            call(model, X)


def test_faults_of_intervals_are_named_by_their_place_in_all_rows(monkeypatch, rng):
    monkeypatch.setattr("holdfast._certificates.views.BLOCK_ENTRIES", 12)
    X = rng.normal(size=(40, 3))
    model = LogisticRegression().fit(X, X[:, 0] > 0)
    ends = {"X_lower": X - 0.1, "X_upper": X + 0.1}
    whole = certified_interval(model, X[7:11], **{name: end[7:11] for name, end in ends.items()})
    assert_allclose(certified_interval(model, X, **ends).margin[7:11], whole.margin, rtol=1e-9)
    for name, wrong in (("X_lower", 0.5), ("X_upper", -0.5)):
        moved = ends[name].copy()
        moved[31, 2] = X[31, 2] + wrong
        with pytest.raises(ValueError, match=rf"{name}\[31, 2\]"):
            certified_interval(model, X, **(ends | {name: moved}))
    for wrong in (np.nan, -np.inf, -1e300):
        moved = ends["X_lower"].copy()
        moved[31, 2] = wrong
        with pytest.raises(ValueError, match=r"X_lower contains NaN or infinity|sums of X_lower overflow"):
            certified_interval(model, X, **(ends | {"X_lower": moved}))
