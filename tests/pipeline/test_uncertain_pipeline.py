"""The pipeline: the same fits and answers as by hand, and all that scikit-learn does with pipelines."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    FeatureDeletionClassifier,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    UncertainPipeline,
    make_uncertain_pipeline,
)
from holdfast.experiments import AlternatingSVC
from holdfast.features import Affine
from holdfast.pipeline.stated_sets import held_sets
from holdfast.uncertainty import LinearImage

N, D = 60, 4
SCALES = np.array([1.0, 30.0, 0.2, 5.0])


@pytest.fixture
def data(rng):
    """Rows in very different units, and the size of their errors."""
    y = np.arange(N) % 2
    X = (rng.normal(size=(N, D)) + np.outer(y - 0.5, [2.0, -1.0, 1.0, 0.0])) * SCALES + 3 * SCALES
    return X, y, rng.uniform(0.05, 0.5, size=(N, D)) * SCALES


def _scaled(final, **options):
    return UncertainPipeline([("scale", StandardScaler()), ("clf", final)], **options)


def _metadata(X, S, rng):
    factors = S[:, :, None] * rng.normal(size=(N, D, 2))
    return {
        "X_std": ({"X_std": S}, lambda s: {"X_std": S / s}),
        "X_cov": (
            {"X_cov": factors @ factors.transpose(0, 2, 1)},
            lambda s: {"X_cov": factors @ factors.transpose(0, 2, 1) / np.outer(s, s)},
        ),
        "X_factor": ({"X_factor": factors}, lambda s: {"X_factor": factors / s[:, None]}),
    }


@pytest.mark.parametrize("name", ["X_std", "X_cov", "X_factor"])
def test_noise_by_row_is_scaled_and_not_shifted_at_fit_and_at_prediction(name, data, rng):
    X, y, S = data
    given, by_hand = _metadata(X, S, rng)[name]
    pipe = _scaled(GaussianRobustClassifier(0.8)).fit(X, y, **given)
    scaler = StandardScaler().fit(X)
    Z, errors = scaler.transform(X), by_hand(scaler.scale_)
    model = GaussianRobustClassifier(0.8).fit(Z, y, **errors)
    assert_allclose(pipe[-1].coef_, model.coef_, rtol=1e-9)
    assert_allclose(pipe[-1].objective_, model.objective_, rtol=1e-12)
    for method in ("flip_probability", "predict_proba", "predict_log_proba", "score_std"):
        assert_allclose(getattr(pipe, method)(X, **given), getattr(model, method)(Z, **errors), rtol=1e-7, atol=1e-12)
    # the trap: as scikit-learn's Pipeline passes them on, X_std are of another size altogether
    unscaled = Pipeline(pipe.steps).predict_proba(X, **given)
    assert np.abs(unscaled - pipe.predict_proba(X, **given)).max() > 0.01
    with pytest.warns(UserWarning, match="plain probabilities"):
        assert_allclose(pipe.predict_proba(X), model.predict_proba(Z, X_std=np.zeros_like(Z)), rtol=1e-7)
    with pytest.raises(ValueError, match="fitted with the noise of each row"):
        pipe.flip_probability(X)


@pytest.mark.parametrize(
    ("uncertainty", "by_hand"),
    [
        (Box(0.5), lambda s: Box(half_widths=0.5 / s)),
        (Ball(0.5), lambda s: Ellipsoid(0.5, shape=1 / s**2)),
        (Ellipsoid(0.5, shape=SCALES**2), lambda s: Ellipsoid(0.5, shape=SCALES**2 / s**2)),
        (IntervalBox(-0.1, 0.5), lambda s: IntervalBox(-0.1 / s, 0.5 / s)),
        (Ball(0.2) + Box(0.1), lambda s: Ellipsoid(0.2, shape=1 / s**2) + Box(half_widths=0.1 / s)),
        (GaussianNoise(0.5), lambda s: GaussianNoise(0.5 / s)),
    ],
    ids=["box", "ball", "ellipsoid", "interval", "sum", "noise"],
)
def test_sets_of_the_constructor_are_in_the_units_of_x(uncertainty, by_hand, data):
    X, y, _ = data
    pipe = _scaled(RobustLinearClassifier(uncertainty, loss="logistic")).fit(X, y)
    scaler = StandardScaler().fit(X)
    model = RobustLinearClassifier(by_hand(scaler.scale_), loss="logistic").fit(scaler.transform(X), y)
    assert_allclose(pipe[-1].objective_, model.objective_, rtol=1e-6)
    assert_allclose(pipe[-1].coef_, model.coef_, rtol=1e-3, atol=1e-5)
    assert pipe[-1].uncertainty is uncertainty
    assert pipe.get_params()["clf__uncertainty"] == uncertainty
    if not uncertainty.is_expectation:
        assert_allclose(pipe.certified_margin(X), model.certified_margin(scaler.transform(X)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("uncertainty", [Box(0.3), Box(0.3, relative=0.1), IntervalBox(-0.1, 0.3), Ball(0.3)], ids=repr)
def test_rows_of_the_worst_case_are_admissible_and_attain_the_margin_through_scaler_and_rotation(
    uncertainty, data, rng
):
    X, y, _ = data
    pipe = UncertainPipeline(
        [("scale", StandardScaler()), ("pca", PCA(3)), ("clf", RobustLinearClassifier(uncertainty))]
    )
    pipe.fit(X, y)
    assert pipe[-1].gap_ < 1e-6
    scores = pipe.decision_function(X)
    predicted = pipe.predict(X)
    worst = pipe.worst_case_data(X, predicted)
    bound = uncertainty.at(X, {})
    assert np.all(bound.contains(worst - X, slack=1e-9))
    side = np.where(scores > 0, 1.0, -1.0)
    assert_allclose(side * pipe.decision_function(worst), pipe.certified_margin(X), rtol=1e-8, atol=1e-8)
    for draw in bound.sample(rng, 50, D):
        certain = pipe.certify(X)
        assert np.array_equal(pipe.predict(X + draw)[certain], predicted[certain])


def test_boxes_through_a_rotation_are_worst_cases_over_the_original_box(data):
    # the fit in the original features, on the same rotated rows, by a set of all corners
    X, y, _ = data
    pipe = UncertainPipeline([("pca", PCA(2)), ("clf", RobustLinearClassifier(Box(0.3)))]).fit(X / SCALES, y)
    corners = 0.3 * np.stack(np.meshgrid(*[[-1, 1]] * D), axis=-1).reshape(-1, D) @ pipe[0].components_.T
    Z, w, b = pipe[0].transform(X / SCALES), pipe[-1].coef_[0], pipe[-1].intercept_[0]
    signs = 2 * y - 1
    worst = np.array([(1 - signs * ((Z + corner) @ w + b)) for corner in corners]).max(axis=0)
    objective = np.maximum(worst, 0).sum() + 0.5 * w @ w
    assert_allclose(pipe[-1].objective_, objective, rtol=1e-9)
    assert pipe[-1].gap_ < 1e-6


def test_intervals_and_radii_by_row(data):
    X, y, S = data
    scaler = StandardScaler().fit(X)
    Z = scaler.transform(X)
    ends = {"X_lower": X - S, "X_upper": X + 0.5 * S}
    pipe = _scaled(RobustLinearClassifier(IntervalBox(radius=0.7), loss="logistic")).fit(X, y, **ends)
    by_hand = {name: scaler.transform(end) for name, end in ends.items()}
    model = RobustLinearClassifier(IntervalBox(radius=0.7), loss="logistic").fit(Z, y, **by_hand)
    assert_allclose(pipe[-1].coef_, model.coef_, rtol=1e-4, atol=1e-6)
    assert_allclose(pipe.certified_margin(X, **ends), model.certified_margin(Z, **by_hand), rtol=1e-4, atol=1e-5)
    radii = 0.3 * np.linspace(0, 1, N)
    pipe = _scaled(RobustLinearClassifier(Ball(2.0))).fit(X, y, X_radius=radii)
    assert pipe[-1].gap_ < 1e-6
    t = radii * np.linalg.norm(pipe[-1].coef_ / scaler.scale_)
    assert_allclose(pipe.certified_margin(X, X_radius=radii), np.abs(pipe.decision_function(X)) - t, rtol=1e-9)


class WithValidationRows(ClassifierMixin, BaseEstimator):
    """A classifier that is given other rows beside those that it learns from."""

    def fit(self, X, y, X_val=None):
        self.X_val_, self.classes_ = X_val, np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[0], len(X))


def test_other_rows_are_transformed_for_the_last_step_as_in_a_plain_pipeline(data):
    X, y, _ = data
    with sklearn.config_context(enable_metadata_routing=True):
        last = WithValidationRows().set_fit_request(X_val=True)
        pipe = _scaled(last, transform_input=["X_val"]).fit(X, y, X_val=X[:7])
        assert_allclose(pipe[-1].X_val_, pipe[0].transform(X[:7]))


def test_parameters_are_as_before_also_when_the_fit_fails(data):
    X, y, _ = data
    pipe = _scaled(GaussianRobustClassifier(GaussianNoise(0.3), loss="hinge", max_iter=0))
    before = clone(pipe).get_params(deep=True)
    with pytest.raises(ValueError, match="max_iter"):
        pipe.fit(X, y)
    assert pipe.get_params()["clf__noise"] == before["clf__noise"]
    assert [name for name in vars(pipe) if name.startswith("_")] == ["_is_broken"]


def test_metadata_with_the_wrong_number_of_rows_is_refused_before_anything_is_fitted(data):
    X, y, S = data
    pipe = _scaled(GaussianRobustClassifier())
    with pytest.raises(ValueError, match=r"UncertainPipeline.fit: X_std has 59 rows, X has 60"):
        pipe.fit(X, y, X_std=S[1:])
    with pytest.raises(ValueError, match=r"Ball\(\): does not take X_std"):
        _scaled(RobustLinearClassifier(Ball())).fit(X, y, X_std=S)
    with pytest.raises(ValueError, match=r"X_std has shape \(60, 3\)"):
        pipe.fit(X, y, X_std=S[:, :3])
    with pytest.raises(ValueError, match=r"X_lower.*is above X"):
        _scaled(RobustLinearClassifier(IntervalBox())).fit(X, y, X_lower=X + S, X_upper=X + S)
    with pytest.raises(NotFittedError):
        check_is_fitted(pipe[0])
    pipe.fit(X, y, X_std=S)
    with pytest.raises(ValueError, match=r"UncertainPipeline.flip_probability: X_std has 60 rows, X has 5"):
        pipe.flip_probability(X[:5], X_std=S)
    with pytest.raises(ValueError, match=r"UncertainPipeline\(nonlinear='no'\)"):
        _scaled(GaussianRobustClassifier(), nonlinear="no").fit(X, y)
    with pytest.raises(ValueError, match="leave out X_std"):
        _scaled(GaussianRobustClassifier(), transform_input=["X_std"]).fit(X, y)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, lambda rows, columns: pl.DataFrame(rows, schema=columns)], ids=["pandas", "polars"]
)
def test_frames_are_matched_by_name(frame, data):
    X, y, S = data
    names = list("abcd")
    pipe = _scaled(GaussianRobustClassifier()).fit(
        frame(X, columns=names), y, X_std=frame(S, columns=names)[names[::-1]]
    )
    plain = _scaled(GaussianRobustClassifier()).fit(X, y, X_std=S)
    assert_allclose(pipe[-1].coef_, plain[-1].coef_, rtol=1e-12)
    again = pipe.flip_probability(frame(X, columns=names), X_std=frame(S, columns=names)[["b", "a", "d", "c"]])
    assert_allclose(again, plain.flip_probability(X, X_std=S), rtol=1e-12)
    with pytest.raises(ValueError, match="X_std lacks the column 'a'"):
        pipe.fit(frame(X, columns=names), y, X_std=frame(S, columns=names)[names[1:]])
    pipe.set_output(transform="pandas").fit(frame(X, columns=names), y, X_std=S)
    assert list(pipe[-1].feature_names_in_) == names


class Same(TransformerMixin, BaseEstimator):
    """Knows no names of columns."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    def uncertainty_effect(self, n_features):
        return Affine(np.ones(n_features))

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.parametrize("first", ["passthrough", FunctionTransformer(), Same()], ids=str)
@pytest.mark.parametrize(
    "frame", [pd.DataFrame, lambda rows, columns: pl.DataFrame(rows, schema=columns)], ids=["pandas", "polars"]
)
def test_frames_with_columns_in_another_order_are_refused_whatever_the_first_step_knows(first, frame, data):
    X, y, S = data
    names = list("abcd")
    by_name = ColumnTransformer([("one", StandardScaler(), ["a", "c"]), ("two", MinMaxScaler(), ["b", "d"])])
    pipe = UncertainPipeline([("first", first), ("columns", by_name), ("clf", RobustLinearClassifier(Box(0.1)))])
    rows, errors, other = frame(X, columns=names), frame(S, columns=names), ["b", "a", "c", "d"]
    pipe.fit(rows, y, X_std=errors)
    assert pipe.certify(rows, X_std=errors[other]).any()
    for question in (pipe.certify, pipe.carried, pipe[:2].carried):
        with pytest.raises(ValueError, match=r"other columns than in fit, or in another order.*\['a', 'b', 'c', 'd'\]"):
            question(rows[other], X_std=errors[other])
    with pytest.raises(ValueError, match="other columns than in fit"):
        pipe.worst_case_data(rows[other], y, X_std=errors[other])


def _kinds(rng, n_classes, make):
    """Return rows of two numbers and a category that matters, as `make` makes them of columns, and labels."""
    numbers, kinds = rng.normal(size=(90, 2)), rng.integers(0, 3, size=90)
    scores = numbers @ rng.normal(size=(2, n_classes)) + 1.5 * rng.normal(size=(3, n_classes))[kinds]
    return make({"a": numbers[:, 0], "kind": np.array(["u", "v", "w"])[kinds], "b": numbers[:, 1]}), scores.argmax(
        axis=1
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        pl.DataFrame,
        lambda columns: np.column_stack([np.asarray(c, dtype=object) for c in columns.values()]),
    ],
    ids=["pandas", "polars", "objects"],
)
def test_worst_rows_with_categories_attain_the_certified_margin(make, n_classes, rng):
    X, y = _kinds(rng, n_classes, make)
    columns = ColumnTransformer([("s", StandardScaler(), [0, 2]), ("o", OneHotEncoder(), [1])])
    last = RobustLinearClassifier(Box(half_widths=[0.2, 0.0, 0.2]), multiclass="joint", alpha=1e-3)
    pipe = UncertainPipeline([("columns", columns), ("clf", last)]).fit(X, y)
    predicted = pipe.predict(X)
    worst = pipe.worst_case_data(X, predicted)
    assert type(worst) is type(X)
    assert np.array_equal(np.asarray(worst)[:, 1], np.asarray(X)[:, 1])
    scores, index = pipe.decision_function(worst), np.searchsorted(pipe.classes_, predicted)
    scores = np.column_stack([-scores, scores]) / 2 if n_classes == 2 else scores
    own = scores[np.arange(90), index]
    scores[np.arange(90), index] = -np.inf
    assert_allclose(own - scores.max(axis=1), pipe.certified_margin(X), atol=1e-9)


def test_worst_rows_have_no_errors_in_categories(rng):
    X, y = _kinds(rng, 2, lambda columns: np.column_stack([columns["a"], columns["kind"] == "u", columns["b"]]))
    columns = ColumnTransformer([("s", StandardScaler(), [0, 2]), ("o", OneHotEncoder(), [1])])
    errors = np.full(X.shape, 0.1)
    exact = errors * [1, 0, 1]
    pipe = UncertainPipeline([("columns", columns), ("clf", RobustLinearClassifier(Box()))]).fit(X, y, X_std=exact)
    assert_allclose(np.abs(pipe.worst_case_data(X, y, X_std=exact) - X), exact, atol=1e-12)
    with pytest.raises(ValueError, match="column 1 goes into categories"):
        pipe.worst_case_data(X, y, X_std=errors)


def test_sparse_and_single_precision_rows(data):
    X, y, S = data
    thin = sparse.csr_array(np.where(X > 3 * SCALES, X, 0.0))
    errors = sparse.csr_array(np.where(thin.toarray() > 0, S, 0.0))
    pipe = make_uncertain_pipeline(MaxAbsScaler(), RobustLinearClassifier(Box(0.5)))
    full = clone(pipe).fit(thin.toarray(), y, X_std=errors.toarray())
    pipe.fit(thin, y, X_std=errors)
    assert_allclose(pipe[-1].objective_, full[-1].objective_, rtol=1e-6)
    assert_allclose(pipe.certify(thin, X_std=errors), full.certify(thin.toarray(), X_std=errors.toarray()))
    single = clone(pipe).fit(X.astype(np.float32), y, X_std=S.astype(np.float32))
    assert_allclose(single[-1].coef_, clone(pipe).fit(X, y, X_std=S)[-1].coef_, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, sparse.csr_array], ids=["array", "frame", "sparse"])
def test_values_in_single_precision_may_lie_outside_of_their_intervals_by_rounding(form, data):
    X, y, S = data
    steps = [("scale", MaxAbsScaler()), ("clf", RobustLinearClassifier(IntervalBox()))]
    rows = form(X.astype(np.float32))
    pipe = UncertainPipeline(steps).fit(rows, y, X_lower=X - S, X_upper=X)
    point = pipe.certified_margin(rows, X_lower=X, X_upper=X)
    assert_allclose(point, np.abs(pipe.decision_function(rows)), atol=1e-5)
    with pytest.raises(ValueError, match=r"X_lower\[0, 0\] is above X"):
        pipe.certify(rows, X_lower=X + 1e-3, X_upper=X + 1)
    with pytest.raises(ValueError, match=r"X_lower\[0, 0\] is above X"):
        pipe.certify(form(X), X_lower=X * (1 + 1e-9), X_upper=X * 2)


@pytest.mark.parametrize("routing", [False, True])
def test_cross_validation_slices_metadata_and_brings_it_to_fit(routing, data, rng):
    X, y, S = data
    with sklearn.config_context(enable_metadata_routing=routing):
        for name, (given, _) in _metadata(X, S, rng).items():
            found = cross_validate(
                _scaled(GaussianRobustClassifier()),
                X,
                y,
                cv=2,
                params=given,
                return_estimator=True,
                return_indices=True,
            )
            for pipe, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
                by_hand = _scaled(GaussianRobustClassifier()).fit(X[rows], y[rows], **{name: given[name][rows]})
                assert np.array_equal(pipe[-1].coef_, by_hand[-1].coef_)


@pytest.mark.parametrize("routing", [False, True])
def test_searches_tune_radii_in_the_units_of_x(routing, data):
    X, y, S = data
    with sklearn.config_context(enable_metadata_routing=routing):
        pipe = UncertainPipeline([("scale", StandardScaler()), ("pca", PCA(2)), ("clf", RobustLinearClassifier(Box()))])
        grid = [{"clf__uncertainty__radius": [0.1, 0.5]}, {"pca__n_components": [3], "scale": ["passthrough"]}]
        search = GridSearchCV(pipe, grid, cv=2).fit(X, y, X_std=S)
        best = clone(pipe).set_params(**search.best_params_).fit(X, y, X_std=S)
        assert_allclose(search.best_estimator_[-1].coef_, best[-1].coef_, rtol=1e-12)
        assert search.best_estimator_[-1].uncertainty == Box(search.best_params_.get("clf__uncertainty__radius"))
        noisy = GridSearchCV(_scaled(GaussianRobustClassifier()), {"clf__noise": [0.5, 2.0]}, cv=2).fit(X, y, X_std=S)
        assert noisy.best_estimator_[-1].noise == noisy.best_params_["clf__noise"]


class Indifferent(LogisticRegression):
    """What stacks predictions: scikit-learn hands it all metadata."""

    def fit(self, X, y, X_std=None):
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore:.*plain probabilities")  # which these ask for
def test_what_is_inside_other_estimators_gets_its_metadata(data):
    X, y, S = data
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = _scaled(GaussianRobustClassifier(0.7))
        calibrated = CalibratedClassifierCV(pipe, cv=2, method="sigmoid").fit(X, y, X_std=S)
        assert all(one.estimator.row_uncertainty_ for one in calibrated.calibrated_classifiers_)
        stacked = StackingClassifier([("pipe", pipe), ("plain", LogisticRegression())], Indifferent(), cv=2)
        stacked.fit(X, y, X_std=S)
        assert_allclose(stacked.estimators_[0][-1].coef_, pipe.fit(X, y, X_std=S)[-1].coef_, rtol=1e-12)
        given = {"X_std": S}
        for final in (LogisticRegression(), GaussianRobustClassifier().set_fit_request(X_std=False)):
            with pytest.raises((TypeError, ValueError), match="X_std"):  # as long as scikit-learn does that
                StackingClassifier([("pipe", pipe)], final, cv=2).fit(X, y, **given)
        StackingClassifier([("pipe", clone(pipe).fit(X, y, **given))], cv="prefit").fit(X, y)
        tuned = TunedThresholdClassifierCV(pipe, cv=2).fit(X, y, X_std=S)
        assert tuned.estimator_.row_uncertainty_
        assert cross_val_predict(pipe, X, y, cv=2, method="predict_proba", params={"X_std": S}).shape == (N, 2)
        assert not pipe.set_fit_request(X_std=False).get_metadata_routing().consumes("fit", ["X_std"])


def test_estimators_inside_the_last_step_get_sets_and_metadata_in_their_units(data):
    X, y, S = data
    Z = StandardScaler().fit_transform(X)
    errors = S / X.std(axis=0)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = RobustLinearClassifier(Box(0.5), loss="logistic").set_fit_request(X_std=True)
        pipe = _scaled(CalibratedClassifierCV(inner, cv=2)).fit(X, y, X_std=S)
        by_hand = CalibratedClassifierCV(inner, cv=2).fit(Z, y, X_std=errors)
        assert_allclose(pipe.predict_proba(X), by_hand.predict_proba(Z), rtol=1e-6)
        turned = UncertainPipeline(
            [("s", StandardScaler()), ("pca", PCA(2)), ("c", CalibratedClassifierCV(inner, cv=2))]
        )
        turned.fit(X, y, X_std=S)
        first = turned[-1].calibrated_classifiers_[0].estimator
        assert isinstance(first.uncertainty, LinearImage)
        assert turned[-1].estimator.uncertainty == Box(0.5)


def test_classifiers_that_cross_validate_themselves(data):
    X, y, S = data
    Z, scale = StandardScaler().fit_transform(X), X.std(axis=0)
    pipe = _scaled(RobustLinearClassifierCV([0.3, 0.1], uncertainty=Box(), cv=2)).fit(X, y, X_std=S)
    model = RobustLinearClassifierCV([0.3, 0.1], uncertainty=Box(), cv=2).fit(Z, y, X_std=S / scale)
    assert pipe[-1].radius_ == model.radius_
    assert_allclose(pipe[-1].coef_, model.coef_, rtol=1e-4, atol=1e-6)
    pipe = _scaled(GaussianRobustClassifierCV([0.3, 0.1], cv=2)).fit(X, y)
    assert_allclose(pipe[-1].noises_, [0.3, 0.1])
    shape = GaussianNoise(0.3 / scale) if pipe[-1].noise_ == 0.3 else GaussianNoise(0.1 / scale)
    assert_allclose(pipe[-1].coef_, GaussianRobustClassifier(shape).fit(Z, y).coef_, rtol=1e-4)


class WithErrors(ClassifierMixin, BaseEstimator):
    """Notes what it is given."""

    def fit(self, X, y, X_std=None, X_factor=None, X_lower=None, X_upper=None, X_radius=None):
        self.classes_ = np.unique(y)
        self.seen_ = {"X_std": X_std, "X_lower": X_lower, "X_upper": X_upper, "X_radius": X_radius}
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def predict_proba(self, X, X_std=None):
        return np.column_stack([X_std[:, 0], 1 - X_std[:, 0]])


def test_last_steps_without_sets_get_metadata_in_their_own_units(data):
    X, y, S = data
    scale = X.std(axis=0)
    pipe = _scaled(WithErrors()).fit(X, y, X_std=S)
    assert_allclose(pipe[-1].seen_["X_std"], S / scale)
    assert_allclose(pipe.predict_proba(X[:5], X_std=S[:5])[:, 0], S[:5, 0] / scale[0])
    pipe.fit(X, y, X_lower=X - S, X_upper=X)
    assert_allclose(pipe[-1].seen_["X_lower"], pipe[0].transform(X - S), atol=1e-12)
    turned = UncertainPipeline([("pca", PCA(2)), ("clf", WithErrors())])
    turned.fit(X, y, X_radius=np.ones(N))
    assert_allclose(turned[-1].seen_["X_radius"], 1.0)
    with pytest.raises(ValueError, match=r"WithErrors takes X_lower, X_upper.*which no metadata can state"):
        turned.fit(X, y, X_lower=X - S, X_upper=X)


class Unpicky(WithErrors):
    """Takes whatever it is given."""

    def fit(self, X, y, **given):
        return super().fit(X, y, **given)


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(),
        CalibratedClassifierCV(LogisticRegression(), cv=2),
        GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2),
        ModeratedClassifier(LogisticRegression()),
        Pipeline([("clf", LogisticRegression())]),
        "passthrough",
        MinMaxScaler(),
    ],
    ids=lambda last: type(last).__name__,
)
def test_metadata_that_the_last_step_cannot_take_are_refused_before_anything_is_fitted(last, routing, data):
    X, y, S = data
    with sklearn.config_context(enable_metadata_routing=routing):
        pipe = _scaled(last)
        with pytest.raises(ValueError, match=r"UncertainPipeline.fit: the last step.*takes no X_std.*NoiseCopies"):
            pipe.fit(X, y, X_std=S)
        assert not hasattr(pipe[0], "mean_")
        pipe.fit(X, y)


@pytest.mark.parametrize("routing", [False, True])
def test_metadata_by_the_name_of_a_step_are_refused_before_anything_is_fitted(routing, data):
    X, y, S = data
    for final in (GaussianRobustClassifier(), RobustLinearClassifier(Box())):
        pipe = _scaled(final)
        for stated in ({"clf__X_std": S}, {"X_std": S, "clf__X_std": S}):
            with (
                sklearn.config_context(enable_metadata_routing=routing),
                pytest.raises(
                    ValueError, match=r"UncertainPipeline.fit\(clf__X_std=...\).*Pass X_std=... to the pipeline"
                ),
            ):
                pipe.fit(X, y, **stated)
        assert not hasattr(pipe[0], "scale_")
    weights = np.linspace(1, 2, N)
    weighted = _scaled(GaussianRobustClassifier()).fit(X, y, X_std=S, clf__sample_weight=weights)
    assert np.any(weighted[-1].coef_ != _scaled(GaussianRobustClassifier()).fit(X, y, X_std=S)[-1].coef_)


def test_metadata_that_a_question_cannot_take_are_refused(data):
    X, y, S = data
    pipe = _scaled(LogisticRegression()).fit(X, y)
    with pytest.raises(
        ValueError, match=r"predict_proba: the last step, LogisticRegression.*X_std.*ModeratedClassifier"
    ):
        pipe.predict_proba(X, X_std=S)
    moderated = _scaled(ModeratedClassifier(LogisticRegression())).fit(X, y)
    assert moderated.predict_proba(X, X_std=S).shape == (N, 2)
    with pytest.raises(ValueError, match=r"ModeratedClassifier.*is not asked with X_lower, X_upper"):
        moderated.predict_proba(X, X_lower=X - S, X_upper=X)
    turned = UncertainPipeline([("pca", PCA(2)), ("clf", WithErrors())]).fit(X, y)
    with pytest.raises(ValueError, match=r"WithErrors.*is not asked with X_cov, in its own units"):
        turned.predict_proba(X, X_std=S)
    with pytest.raises(
        ValueError, match=r"fit: the steps make X_cov of what is stated, which the last step, WithErrors"
    ):
        turned.fit(X, y, X_std=S)


def test_last_steps_that_take_anything_get_it(data):
    X, y, S = data
    assert_allclose(_scaled(Unpicky()).fit(X, y, X_std=S)[-1].seen_["X_std"], S / X.std(axis=0))


def test_last_steps_that_would_be_told_different_things_are_refused(data):
    X, y, S = data
    both = StackingClassifier([("a", RobustLinearClassifier(Box())), ("b", WithErrors())])
    assert {holder.owner for holder in held_sets(both, {"X_std"})} == {"RobustLinearClassifier", "WithErrors"}
    turned = UncertainPipeline([("pca", PCA(2)), ("both", both)])
    with pytest.raises(ValueError, match="RobustLinearClassifier and WithErrors would be told different things"):
        turned.fit(X, y, X_std=S)
    assert turned[-1].estimators[0][1].uncertainty == Box()


def test_pipelines_inside_the_last_step_carry_on_or_are_refused(data):
    X, y, S = data
    inner = [("pca", PCA(2)), ("clf", RobustLinearClassifier(Box(0.2), loss="logistic"))]
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = _scaled(CalibratedClassifierCV(UncertainPipeline(inner), cv=2)).fit(X, y, X_std=S)
        by_hand = CalibratedClassifierCV(UncertainPipeline(inner), cv=2).fit(
            pipe[0].transform(X), y, X_std=S / pipe[0].scale_
        )
        assert_allclose(pipe.predict_proba(X), by_hand.predict_proba(pipe[0].transform(X)), rtol=1e-9)
        with pytest.raises(ValueError, match="inside CalibratedClassifierCV there is a plain Pipeline"):
            _scaled(CalibratedClassifierCV(Pipeline(inner), cv=2)).fit(X, y, X_std=S)
    for kind in (Pipeline, UncertainPipeline):
        with pytest.raises(
            ValueError, match=f"its last step is a {kind.__name__}. Make its steps steps of the outer one"
        ):
            _scaled(kind(inner)).fit(X, y)


def test_sets_stated_by_plain_numbers_pass_where_steps_keep_them(data):
    X, y, _ = data
    unit = X / SCALES
    turned = UncertainPipeline([("pca", PCA(3)), ("svc", AlternatingSVC(0.1))]).fit(unit, y)
    by_hand = AlternatingSVC(0.1).fit(PCA(3).fit_transform(unit), y)
    assert_allclose(turned[-1].coef_, by_hand.coef_, rtol=1e-6)
    with pytest.raises(ValueError, match=r"AlternatingSVC states Ball\(radius=0.1\) by plain numbers"):
        _scaled(AlternatingSVC(0.1)).fit(X, y)
    make_uncertain_pipeline(MaxAbsScaler(), FeatureDeletionClassifier(1)).fit(X, y)
    _scaled(FeatureDeletionClassifier(1)).fit(X, y)  # what is deleted is missing, and 0 for the classifier


def test_deletions_of_original_features_are_survived_where_certified(data):
    X, y, _ = data
    pipe = _scaled(RobustLinearClassifier(FeatureDeletion(1, share=0.2), alpha=0.1)).fit(X, y)
    certain, predicted = pipe.certify(X), pipe.predict(X)
    survived = np.all([pipe.predict(np.where(np.arange(D) == j, 0.8 * X, X)) == predicted for j in range(D)], axis=0)
    assert np.array_equal(certain, survived)
    assert 0 < certain.sum() < N


def test_minimax_probability_machine_with_errors(data):
    X, y, S = data
    pipe = _scaled(MinimaxProbabilityClassifier(Box(0.2))).fit(X, y, X_std=S)
    by_hand = MinimaxProbabilityClassifier(Box(0.2)).fit(pipe[0].transform(X), y, X_std=S / pipe[0].scale_)
    assert_allclose(pipe[-1].coef_, by_hand.coef_, rtol=1e-6)


def test_curved_steps_train_and_certify_by_intervals(data, rng):
    X, y, S = data
    X = np.abs(X) + SCALES
    pipe = make_uncertain_pipeline(FunctionTransformer(np.log), StandardScaler(), RobustLinearClassifier(Box(0.5)))
    pipe.fit(X, y, X_std=S)
    assert pipe[-1].gap_ < 1e-6
    certain, predicted = pipe.certify(X, X_std=S), pipe.predict(X)
    for draw in Box().at(X, {"X_std": S}).sample(rng, 50, D):
        assert np.array_equal(pipe.predict(X + draw)[certain], predicted[certain])
    assert 0 < certain.sum() < N
    with pytest.raises(ValueError, match="needs theirs here too"):
        pipe.certify(X)
    with pytest.raises(ValueError, match=r"only where all steps before the last are affine"):
        pipe.worst_case_data(X, y, X_std=S)
    noisy = make_uncertain_pipeline(FunctionTransformer(np.log), GaussianRobustClassifier())
    assert noisy.fit(X, y, X_std=S)[-1].gap_ < 1e-6
    assert noisy.set_params(nonlinear="linearise").fit(X, y, X_std=S)[-1].gap_ < 1e-6
    with pytest.raises(ValueError, match=r"step 'functiontransformer'.*nonlinear='auto'"):
        noisy.set_params(nonlinear="interval").fit(X, y, X_std=S)


def test_sets_of_the_constructor_that_turn_into_metadata_need_none_from_the_user(data):
    X, y, _ = data
    missing = X.copy()
    missing[::7, 1] = np.nan
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier(0.1)).fit(missing, y)
    t = pipe.score_std(missing)
    assert np.all(t[::7] > t[1])
    assert pipe.flip_probability(missing).shape == (N,)
    logistic = RobustLinearClassifier(Box(0.1), loss="logistic")
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), logistic).fit(missing, y)
    with pytest.warns(UserWarning, match="does not average"):
        assert_allclose(pipe.predict_proba(missing), Pipeline(pipe.steps).predict_proba(missing))
    assert pipe.certify(missing).shape == (N,)


def test_it_is_a_pipeline_like_any_other(data, tmp_path):
    X, y, S = data
    pipe = UncertainPipeline(
        [("no", "passthrough"), ("scale", MinMaxScaler()), ("clf", GaussianRobustClassifier())],
        memory=str(tmp_path),
        nonlinear="linearise",
        effects={"scale": "linear"},
    )
    assert isinstance(pipe, Pipeline)
    assert clone(pipe).get_params().keys() == pipe.get_params().keys()
    pipe.fit(X, y, X_std=S)
    again = pipe.fit(X, y, X_std=S)  # from memory
    plain = UncertainPipeline(pipe.steps).fit(X, y, X_std=S)
    assert_allclose(again[-1].coef_, plain[-1].coef_, rtol=1e-12)
    assert np.array_equal(pipe[:-1].transform(X), pipe.named_steps["scale"].transform(X))
    assert (pipe[:2].nonlinear, pipe[:2].effects) == ("linearise", {"scale": "linear"})
    assert pipe[1:].row_uncertainty_
    assert pipe.score(X, y) == np.mean(pipe.predict(X) == y)
    assert "GaussianRobustClassifier" in pipe._repr_html_()
    assert not hasattr(UncertainPipeline([("clf", LogisticRegression())]).fit(X, y), "certify")
    assert not hasattr(_scaled(GaussianRobustClassifier(loss="hinge")), "predict_proba")
    made = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier(), verbose=False, nonlinear="raise")
    assert [name for name, _ in made.steps] == ["standardscaler", "gaussianrobustclassifier"]
    assert made.nonlinear == "raise"


def test_without_uncertainty_any_step_will_do(data):
    X, y, _ = data
    pipe = UncertainPipeline([("odd", FunctionTransformer(lambda X: X**2)), ("clf", LogisticRegression())]).fit(X, y)
    assert_allclose(pipe.predict_proba(X), Pipeline(pipe.steps).predict_proba(X))
    assert pipe.fit(X, y, clf__sample_weight=np.ones(N)).score(X, y) > 0.5


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_finds_no_fault_that_it_does_not_find_with_its_own_pipeline():
    def faults(kind, last):
        found = check_estimator(kind([("scale", StandardScaler()), ("clf", last)]), on_fail=None)
        return {one["check_name"] for one in found if one["status"] == "failed"}

    assert faults(UncertainPipeline, GaussianRobustClassifier(0.1)) == faults(Pipeline, LogisticRegression())


@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0])
def test_rounding_in_single_precision_flips_no_certified_row(offset):
    rng = np.random.default_rng(0)
    X = (offset + rng.normal(size=(2000, 5))).astype(np.float32)
    y = ((X - offset) @ rng.normal(size=5) > 0).astype(int)
    pipe = make_uncertain_pipeline(StandardScaler(), RobustLinearClassifier(Box())).fit(
        X, y, X_std=np.full(X.shape, 0.05)
    )
    w = pipe[-1].coef_[0] / pipe[0].scale_
    f = X.astype(float) @ w + pipe[-1].intercept_[0] - pipe[0].mean_ @ w
    # corners of boxes that reach the boundary, exactly so but for rounding, and boxes that do not
    Z = (X - np.sign(f)[:, None] * np.sign(w) * (np.abs(f) / np.abs(w).sum())[:, None]).astype(np.float32)
    S = np.abs(Z.astype(float) - X)
    certified = pipe.certify(X, X_std=S)
    assert not np.any(certified & (pipe.predict(Z) != pipe.predict(X)))
    assert np.all(pipe.certify(X, X_std=0.9 * S)[np.abs(f) > 0.1])
