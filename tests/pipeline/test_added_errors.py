"""What steps add to the errors of rows reaches the last step, or the call is refused."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletionClassifier,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    LabelFlips,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    UncertainPipeline,
    make_uncertain_pipeline,
)
from holdfast.evaluate import certified_accuracy_scorer
from holdfast.experiments import AlternatingSVC
from holdfast.features import teach_step
from holdfast.features.effects import Imputed
from holdfast.uncertainty.affine_map import AffineMap

N, D = 80, 4
SCALES = np.array([1.0, 30.0, 0.2, 5.0])


@pytest.fixture
def rows(rng):
    """Complete rows in different units, the same with entries missing, and labels."""
    y = np.arange(N) % 2
    X = (rng.normal(size=(N, D)) + np.outer(y - 0.5, [3.0, -2.0, 2.0, 0.0])) * SCALES + 100 * SCALES
    return X, np.where(rng.uniform(size=X.shape) < 0.15, np.nan, X), y


def _range():
    return SpreadImputer(spread="range")


def _columns(*, curved=False):
    last = FunctionTransformer(np.log1p) if curved else MinMaxScaler()
    return ColumnTransformer(
        [("a", make_pipeline(_range(), StandardScaler()), [3, 0]), ("b", make_pipeline(_range(), last), [1, 2])]
    )


WAYS = {
    "scaler": [_range(), StandardScaler()],
    "scaler_first": [StandardScaler(), _range()],
    "rotation": [_range(), StandardScaler(), PCA(3)],
    "columns": [_columns()],
    "columns_curved": [_columns(curved=True), StandardScaler()],
    "nested": [Pipeline([("fill", _range()), ("scale", StandardScaler())]), MaxAbsScaler()],
    "union": [
        FeatureUnion([("a", make_pipeline(_range(), StandardScaler())), ("b", make_pipeline(_range(), MinMaxScaler()))])
    ],
    "log": [_range(), FunctionTransformer(np.log), StandardScaler()],
}
SETS = {
    "none": None,
    "box_0": Box(0.0),
    "box": Box(half_widths=0.05 * SCALES),
    "ball": Ball(0.01),
    "ellipsoid": Ellipsoid(0.1, shape=SCALES**2),
    "intervals": IntervalBox(-0.05 * SCALES, 0.1 * SCALES),
    "sum": Ball(0.01) + Box(half_widths=0.05 * SCALES),
}


PAIRS = [(way, key) for way in WAYS for key in SETS if (way, key) != ("union", "intervals")]  # that one is refused


def _fillings(X, rng, n_draws):
    """Return complete rows, n_draws of each, missing entries anywhere in the range of their column, mostly at its ends."""
    lower, upper = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    shares = rng.uniform(size=(n_draws, *X.shape))
    shares[n_draws // 3 :] = np.round(shares[n_draws // 3 :])
    return np.where(np.isnan(X), lower + shares * (upper - lower), X)


def _changed(pipe, X, rng, uncertainty=None, n_draws=60):
    """Return the rows that some filling, with some error within a set, predicts otherwise."""
    filled = _fillings(X, rng, n_draws)
    if uncertainty is not None:
        filled = filled + uncertainty.at(np.zeros(X.shape), {}).sample(rng, n_draws, D)
    return np.any(pipe.predict(filled.reshape(-1, D)).reshape(n_draws, -1) != pipe.predict(X), axis=0)


@pytest.mark.parametrize(
    ("way", "key"),
    [pytest.param(*pair, marks=() if pair[0] == "scaler" or pair[1] == "none" else pytest.mark.slow) for pair in PAIRS],
)
def test_no_filling_breaks_a_certificate(way, key, rows, rng):
    X, holed, y = rows
    uncertainty = SETS[key]
    pipe = make_uncertain_pipeline(*clone(WAYS[way], safe=False), RobustLinearClassifier(uncertainty, alpha=0.1))
    pipe.fit(holed, y)
    assert pipe[-1].gap_ < 1e-5
    certain, changed = pipe.certify(holed), _changed(pipe, holed, rng, uncertainty)
    assert not np.any(certain & changed)
    assert np.any(changed)
    assert np.any(certain[np.isnan(holed).any(axis=1)])
    if uncertainty is None:  # nothing is uncertain about rows that are complete
        assert_allclose(pipe.certified_margin(X), np.abs(pipe.decision_function(X)), rtol=1e-9)


def test_plain_classifiers_train_for_what_is_filled_in_as_those_with_a_box_of_no_size(rows):
    _, holed, y = rows
    fits = [
        make_uncertain_pipeline(_range(), StandardScaler(), RobustLinearClassifier(uncertainty)).fit(holed, y)
        for uncertainty in (None, Box(0.0))
    ]
    assert fits[0][-1].objective_ == fits[1][-1].objective_
    assert fits[0][-1].uncertainty is None
    assert np.array_equal(fits[0].certify(holed), fits[1].certify(holed))
    plain = make_pipeline(SimpleImputer(), StandardScaler(), RobustLinearClassifier()).fit(holed, y)
    assert fits[0][-1].objective_ > 1.1 * plain[-1].objective_
    search = GridSearchCV(
        fits[0], {"robustlinearclassifier__alpha": [0.1, 1.0]}, cv=2, scoring=certified_accuracy_scorer()
    )
    search.fit(holed, y)
    assert 0.3 < search.best_score_ < np.mean(search.predict(holed) == y)


def test_complete_rows_train_the_plain_classifier(rows):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(_range(), StandardScaler(), RobustLinearClassifier()).fit(X, y)
    by_hand = RobustLinearClassifier().fit(StandardScaler().fit_transform(X), y)
    assert np.array_equal(pipe[-1].coef_, by_hand.coef_)
    assert np.all(pipe.certify(X))
    certain = pipe.certify(holed)
    assert not np.all(certain)
    assert not np.any(certain & _changed(pipe, np.where(np.isnan(holed), np.nan, X), np.random.default_rng(0)))


@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(),
        RandomForestClassifier(2),
        LogisticRegressionCV(),
        CalibratedClassifierCV(LogisticRegression(), cv=2),
        GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2),
        Pipeline([("scale", StandardScaler()), ("clf", LogisticRegression())]),
        StackingClassifier([("a", LogisticRegression())]),
        AlternatingSVC(0.1),
        FeatureDeletionClassifier(1),
        MinimaxProbabilityClassifier(kernel="rbf"),
    ],
    ids=lambda last: type(last).__name__,
)
@pytest.mark.parametrize("routing", [False, True])
def test_last_steps_that_take_no_errors_are_refused_where_entries_are_filled_in(last, routing, rows):
    _, holed, y = rows
    for steps in ([_range(), MaxAbsScaler()], [_columns()]):
        pipe = make_uncertain_pipeline(*steps, last)
        with (
            sklearn.config_context(enable_metadata_routing=routing),
            pytest.raises(
                ValueError, match=r"UncertainPipeline.*(takes none|by plain numbers)|set of rows becomes under a kernel"
            ),
        ):
            pipe.fit(holed, y)


def test_refusals_name_the_ways_out(rows):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(_range(), StandardScaler(), LogisticRegression())
    ways = (
        r"LogisticRegression\(\), takes none.*RobustLinearClassifier.*NoiseCopies.*ModeratedClassifier.*SimpleImputer"
    )
    with pytest.raises(ValueError, match=f"UncertainPipeline.fit: the steps fill in entries.*{ways}"):
        pipe.fit(holed, y)
    pipe.fit(X, y)
    assert_allclose(pipe.predict_proba(X), Pipeline(pipe.steps).predict_proba(X))
    with pytest.raises(ValueError, match=f"UncertainPipeline.predict_proba: the steps fill in.*{ways}"):
        pipe.predict_proba(holed)
    assert len(pipe.predict(holed)) == N
    make_uncertain_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(holed, y).predict_proba(holed)
    make_uncertain_pipeline(_range(), StandardScaler()).fit(holed, y).transform(holed)


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("kind", [float, object])
def test_what_is_filled_in_has_its_spread_whatever_the_strategy(strategy, kind, rows):
    X, holed, y = rows
    holed = holed.astype(kind) if strategy in ("most_frequent", "constant") else holed
    fill = SpreadImputer(strategy=strategy, fill_value=3.0)
    pipe = make_uncertain_pipeline(fill, StandardScaler(), RobustLinearClassifier()).fit(holed, y)
    # each row with all its missing entries at that end of their interval that is worst for it
    missing, Z, w = np.isnan(holed.astype(float)), pipe[:-1].transform(holed), pipe[-1].coef_[0]
    reach = missing * pipe[0].spread_[2] / pipe[1].scale_
    scores = pipe.decision_function(holed)
    worst = (Z - np.sign(scores)[:, None] * np.sign(w) * reach) @ w + pipe[-1].intercept_[0]
    flips = worst * scores < 0
    assert np.any(flips)
    assert not np.any(pipe.certify(holed) & flips)
    noisy = make_uncertain_pipeline(clone(fill), StandardScaler(), Noisy()).fit(holed, y)
    assert_allclose(noisy[-1].seen_, reach)
    with pytest.raises(ValueError, match="takes none"):
        make_uncertain_pipeline(clone(fill), StandardScaler(), LogisticRegression()).fit(holed, y)
    S = np.tile(0.1 * SCALES, (N, 1))
    told = make_uncertain_pipeline(clone(fill), StandardScaler(), Noisy()).fit(X, y, X_std=S)
    assert_allclose(told[-1].seen_, S / told[1].scale_)


@pytest.mark.parametrize("fill_value", [np.inf, np.nan, True, "a"])
def test_constants_to_fill_in_are_finite_numbers(fill_value, rows):
    with pytest.raises(ValueError, match=r"SpreadImputer\(fill_value="):
        SpreadImputer(strategy="constant", fill_value=fill_value).fit(rows[1])


def test_what_is_filled_in_without_a_spread_is_not_certified(rows):
    X, holed, y = rows
    for strategy in ("mean", "constant"):
        pipe = make_uncertain_pipeline(SimpleImputer(strategy=strategy), RobustLinearClassifier()).fit(holed, y)
        with pytest.raises(ValueError, match=r"step 'simpleimputer'.*does not say how uncertain.*SpreadImputer"):
            pipe.certify(holed)
        assert np.all(pipe.certify(X))


def test_probabilities_are_averages_over_what_is_filled_in(rows, rng):
    _, holed, y = rows
    for inner in (LogisticRegression(), RobustLinearClassifier(loss="logistic")):
        pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), ModeratedClassifier(inner)).fit(holed, y)
        filled, missing = pipe[0].transform(holed), np.isnan(holed)
        draws = filled + missing * pipe[0].spread_[2] * rng.normal(size=(4000, *holed.shape))
        w, b = pipe[-1].estimator_.coef_[0], pipe[-1].estimator_.intercept_[0]
        want = expit(((draws - pipe[1].mean_) / pipe[1].scale_) @ w + b).mean(axis=0)
        assert_allclose(pipe.predict_proba(holed)[:, 1], want, atol=0.02)
        assert np.abs(Pipeline(pipe.steps).predict_proba(holed)[:, 1] - want).max() > 0.03


@pytest.mark.parametrize(
    "last",
    [
        NoiseCopies(LogisticRegression(), 2, random_state=0),
        NoiseCopies(ModeratedClassifier(LogisticRegression()), 2, random_state=0),
        RobustLinearClassifier(loss="logistic"),
        RobustLinearClassifier(GaussianNoise(0.01), loss="logistic"),
        CalibratedClassifierCV(GaussianRobustClassifier(), cv=2),
    ],
    ids=repr,
)
def test_probabilities_that_are_no_averages_over_what_is_filled_in_warn(last, rows, recwarn):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), last).fit(holed, y)
    recwarn.clear()
    pipe.predict_proba(X), pipe.predict(holed)
    assert not recwarn
    for method in ("predict_proba", "predict_log_proba") if hasattr(last, "predict_log_proba") else ("predict_proba",):
        with pytest.warns(UserWarning, match=f"UncertainPipeline.{method}: the steps fill.*Moderated") as found:
            getattr(pipe, method)(holed)
        assert len(found) == 1
        assert found[0].filename == __file__


def test_probabilities_know_of_what_is_filled_in_where_training_was_told_of_more(rows):
    _, holed, y = rows
    S = np.tile(0.1 * SCALES, (N, 1))
    plain = make_uncertain_pipeline(
        SpreadImputer(), StandardScaler(), RobustLinearClassifier(Box(), loss="logistic")
    ).fit(holed, y, X_std=S)
    with pytest.warns(UserWarning, match="does not average over them"):
        sure = plain.predict_proba(holed)
    moderated = UncertainPipeline([*plain.steps[:-1], ("last", ModeratedClassifier(clone(plain[-1])))])
    found = moderated.fit(holed, y, X_std=S).predict_proba(holed)
    assert_allclose(found, moderated.predict_proba(holed, X_std=0 * S))
    assert np.abs(found - sure).max() > 0.01


class Noisy(ClassifierMixin, BaseEstimator):
    """Notes the noise that it is told of, and states none itself."""

    def __init__(self, noise=None):
        self.noise = noise

    def stated_uncertainty(self):
        return "noise", self.noise

    def fit(self, X, y, X_std=None):
        self.classes_, self.row_noise_, self.seen_ = np.unique(y), X_std is not None, X_std
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score_std(self, X, X_std=None):
        if self.row_noise_ and X_std is None:
            raise ValueError("fitted with the noise of each row")
        return np.zeros(len(X)) if X_std is None else np.linalg.norm(X_std, axis=1)


class Ends(Noisy):
    """Takes intervals only."""

    def fit(self, X, y, X_lower=None, X_upper=None):
        return super().fit(X, y, None if X_lower is None else X_upper - X_lower)


def test_noise_of_what_is_filled_in_reaches_last_steps_that_state_none(rows):
    X, holed, y = rows
    missing = np.isnan(holed)
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), Noisy()).fit(holed, y)
    want = missing * pipe[0].spread_[2] / pipe[1].scale_
    assert_allclose(pipe[-1].seen_, want)
    assert_allclose(pipe.score_std(holed), np.linalg.norm(want, axis=1))
    assert not np.any(pipe.score_std(X))
    assert make_uncertain_pipeline(SpreadImputer(), StandardScaler(), Noisy()).fit(X, y)[-1].seen_ is None
    ends = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), Ends()).fit(holed, y)
    assert_allclose(ends[-1].seen_, 2 * want, atol=1e-12)
    with pytest.raises(ValueError, match="Ends takes X_lower, X_upper, and the steps make LinearImage"):
        make_uncertain_pipeline(SpreadImputer(), PCA(2), Ends()).fit(holed, y)
    copies = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), NoiseCopies(Inner(), 200)).fit(holed, y)
    spread = copies[-1].estimator_.X_.reshape(200, N, D).std(axis=0)
    assert_allclose(spread, want, rtol=0.3, atol=1e-12)


class Inner(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.X_, self.classes_ = X, np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.mark.parametrize(
    "last",
    [
        MinimaxProbabilityClassifier(),
        RobustLinearClassifier(ambiguity=LabelFlips(0.05)),
        RobustLinearClassifierCV([0.1, 1.0], uncertainty=Box(0.0), cv=2),
        GridSearchCV(RobustLinearClassifier(), {"alpha": [1.0]}, cv=2),
        CalibratedClassifierCV(RobustLinearClassifier(), cv=2, ensemble=False),
        GaussianRobustClassifier(0.0),
        GaussianRobustClassifier(GaussianNoise(0.01)),
    ],
    ids=repr,
)
def test_what_is_filled_in_changes_what_is_learnt(last, rows):
    _, holed, y = rows
    answers = []
    for make, imputer in ((make_uncertain_pipeline, _range()), (make_pipeline, SimpleImputer())):
        pipe = Pipeline(make(imputer, StandardScaler(), clone(last)).fit(holed, y).steps)
        answers.append(
            pipe.decision_function(holed) if hasattr(pipe, "decision_function") else pipe.predict_proba(holed)
        )
    assert np.abs(answers[0] - answers[1]).max() > 0.01


@pytest.mark.parametrize("kind", [BaggingClassifier, lambda one: VotingClassifier([("one", one)])])
def test_last_steps_that_hand_on_errors_with_routing_only_say_so(kind, rows):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), kind(GaussianRobustClassifier()))
    advice = (
        r"(?s)UncertainPipeline.fit: the last step.*hand X_std.*enable_metadata_routing.*set_fit_request\(X_std=True\)"
    )
    with pytest.raises(ValueError, match=advice):
        pipe.fit(holed, y)
    with pytest.raises(ValueError, match=advice):
        pipe.fit(X, y, X_std=np.tile(0.1 * SCALES, (N, 1)))
    with sklearn.config_context(enable_metadata_routing=True):
        inner = GaussianRobustClassifier().set_fit_request(X_std=True)
        last = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), kind(inner)).fit(holed, y)[-1]
        assert all(one.row_noise_ for one in last.estimators_)


def test_steps_that_are_taught_to_add_errors_reach_the_last_step_too(rows):
    _, holed, y = rows

    class Neighbours(KNNImputer):
        pass

    def effect(step, n_features):
        spread = _range().fit(holed).spread_
        return Imputed(AffineMap.diagonal(np.ones(n_features)), step.transform, *spread)

    teach_step(Neighbours, effect)
    pipe = make_uncertain_pipeline(Neighbours(), StandardScaler(), RobustLinearClassifier()).fit(holed, y)
    assert not np.any(pipe.certify(holed) & _changed(pipe, holed, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="takes none"):
        make_uncertain_pipeline(Neighbours(), LogisticRegression()).fit(holed, y)


def test_searches_over_sets_inside_the_last_step_are_refused(rows):
    X, _, y = rows
    for last, grid in (
        (RobustLinearClassifier(Box(0.1)), {"uncertainty__radius": [0.1, 1.0]}),
        (RobustLinearClassifier(Box(0.1)), [{"alpha": [1.0]}, {"uncertainty": [Box(0.1), Ball(0.1)]}]),
        (GaussianRobustClassifier(0.1), {"noise": [0.1, 1.0]}),
    ):
        with pytest.raises(
            ValueError, match=r"GridSearchCV inside it searches over '(unc|noise).*Put the search around"
        ):
            make_uncertain_pipeline(StandardScaler(), GridSearchCV(last, grid, cv=2)).fit(X, y)
    make_uncertain_pipeline(
        StandardScaler(), GridSearchCV(RobustLinearClassifier(Box(0.1)), {"alpha": [1.0]}, cv=2)
    ).fit(X, y)


def test_imputers_of_plain_pipelines_inside_the_last_step_are_refused(rows):
    _, holed, y = rows
    inner = Pipeline([("fill", SpreadImputer()), ("clf", LogisticRegression())])
    for last in (inner, CalibratedClassifierCV(inner, cv=2)):
        with pytest.raises(ValueError, match=r"its last step is a Pipeline|there is a plain Pipeline"):
            UncertainPipeline([("scale", StandardScaler()), ("last", last)]).fit(holed, y)


def test_carried_says_what_steps_add_to_exact_rows(rows):
    _, holed, y = rows
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler()).fit(holed, y)
    _, carried = pipe.carried(holed)
    assert_allclose(carried["X_std"], np.isnan(holed) * pipe[0].spread_[2] / pipe[1].scale_)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_intervals_of_our_own_making_contain_their_rows(dtype):
    columns = ColumnTransformer([("a", make_pipeline(SpreadImputer(), StandardScaler()), [0, 1, 2])])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = (rng.normal(size=(30, 3)) * 10.0 ** rng.integers(-3, 4) + rng.normal() * 100).astype(dtype)
        missing = rng.uniform(size=X.shape) < 0.2
        X[missing] = np.nan
        pipe = UncertainPipeline([("columns", clone(columns))]).fit(X)
        made, carried = pipe.carried(X, Box(0.0))
        Z = pipe.transform(X)
        assert made == IntervalBox()
        made.at(Z, carried)  # is not refused
        assert np.all((carried["X_lower"] <= Z) & (carried["X_upper"] >= Z))
        assert np.array_equal(carried["X_lower"] < carried["X_upper"], missing)
        fill, scale = pipe[0].named_transformers_["a"]
        for end, name in zip(fill.spread_, ("X_lower", "X_upper"), strict=False):
            want = scale.transform(np.where(missing, end, 0.0))
            assert_allclose(
                carried[name][missing], want[missing], rtol=1e-9 if dtype is np.float64 else 1e-3, atol=1e-6
            )


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("way", ["steps", "columns"])
def test_rounding_in_single_precision_flips_no_certified_row_that_is_filled_in(way, offset, rng):
    X = (offset + rng.normal(size=(1000, 4))).astype(np.float32)
    y = ((X - offset) @ [1.0, 2.0, -1.0, 1.0] > 0).astype(int)
    steps = [_range(), StandardScaler()]
    if way == "columns":
        steps = [ColumnTransformer([("all", make_pipeline(*steps), [0, 1, 2, 3])])]
    pipe = make_uncertain_pipeline(*steps, RobustLinearClassifier()).fit(X, y)
    w = pipe.decision_function(offset + np.eye(4)) - pipe.decision_function(np.full((1, 4), offset))
    holed, filled = X.copy(), X.copy()
    holed[:, 3] = np.nan
    filled[:, 3] = np.where(pipe.decision_function(holed) * w[3] > 0, X[:, 3].min(), X[:, 3].max())
    for _ in range(3):  # rows whose worst filling is on the boundary, but for rounding
        holed[:, 1] = filled[:, 1] = (filled[:, 1] - pipe.decision_function(filled.astype(np.float64)) / w[1]).astype(
            np.float32
        )
    assert not np.any(pipe.certify(holed) & (pipe.predict(filled) != pipe.predict(holed)))
    side = np.sign(pipe.decision_function(holed))
    holed[:, 1] += side * np.sign(w[1]) * np.float32(0.01)
    assert np.all(pipe.certify(holed))


def test_boxes_of_no_size_go_with_imputers_inside_column_transformers(rows):
    _, holed, y = rows
    for kind in (np.float64, np.float32):
        pipe = make_uncertain_pipeline(_columns(), RobustLinearClassifier(Box(0.0))).fit(holed.astype(kind), y)
        assert 0 < pipe.certify(holed.astype(kind)).mean() < 1


def test_deviations_that_are_stated_of_missing_entries_come_on_top(rows):
    _, holed, y = rows
    missing, S = np.isnan(holed), np.tile(0.7 * SCALES, (N, 1))
    pipe = make_uncertain_pipeline(SpreadImputer(), GaussianRobustClassifier()).fit(holed, y, X_std=S)
    want = np.where(missing, np.hypot(S, pipe[0].spread_[2]), S)
    assert_allclose(pipe.carried(holed, X_std=S)[1]["X_std"], want)
    # as those of all rows do
    assert_allclose(pipe.carried(holed, GaussianNoise(0.7 * SCALES))[1]["X_std"], want)
    unknown = pipe.carried(holed, X_std=np.where(missing, np.nan, S))[1]["X_std"]
    assert_allclose(unknown, np.where(missing, pipe[0].spread_[2], S))


def test_covariances_may_be_unknown_where_entries_are_missing_as_deviations_may(rows, rng):
    _, holed, y = rows
    missing, factors = np.isnan(holed), 0.1 * SCALES[:, None] * rng.normal(size=(N, D, 2))
    covs = factors @ factors.transpose(0, 2, 1)
    pairs = missing[:, :, None] | missing[:, None, :]
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier())
    answers = [
        pipe.fit(holed, y, **stated).score_std(holed, **stated)
        for stated in (
            {"X_cov": np.where(pairs, 0.0, covs)},
            {"X_cov": np.where(pairs, np.nan, covs)},
            {"X_factor": np.where(missing[:, :, None], np.nan, factors)},
        )
    ]
    assert_allclose(answers[1], answers[0])
    assert_allclose(answers[2], answers[0], rtol=1e-4)
    for name, value in (("X_cov", covs), ("X_factor", factors)):
        unknown = value.copy()
        unknown[np.flatnonzero(~missing.any(axis=1))[0], 0, 0] = np.nan
        with pytest.raises(ValueError, match=f"{name} contains NaN"):
            pipe.fit(holed, y, **{name: unknown})
    with pytest.raises(ValueError, match="X_cov"):
        pipe.fit(holed, y, X_cov=covs[:, :, :2])


def test_intervals_that_are_stated_of_missing_entries_are_refused(rows):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(_range(), StandardScaler(), RobustLinearClassifier(IntervalBox()))
    i, j = np.argwhere(np.isnan(holed))[0]
    with pytest.raises(
        ValueError, match=rf"UncertainPipeline.fit: X\[{i}, {j}\] is missing, but X_lower and X_upper say"
    ):
        pipe.fit(holed, y, X_lower=X - 0.1 * SCALES, X_upper=X + 0.1 * SCALES)
    pipe.fit(holed, y, X_lower=holed - 0.1 * SCALES, X_upper=holed + 0.1 * SCALES)
    certain = pipe.certify(holed, X_lower=holed - 0.1 * SCALES, X_upper=holed + 0.1 * SCALES)
    assert not np.any(certain & _changed(pipe, holed, np.random.default_rng(0), Box(half_widths=0.1 * SCALES)))
    assert 0 < certain.mean() < 1


def test_wrong_intervals_of_users_are_still_refused(rows):
    X, _, y = rows
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), RobustLinearClassifier(IntervalBox()))
    with pytest.raises(ValueError, match=r"X_lower\[0, 0\] is above X"):
        pipe.fit(X, y, X_lower=X + 1e-9, X_upper=X + 1.0)


def _branch():
    return make_pipeline(SpreadImputer(), StandardScaler())


@pytest.mark.parametrize(
    "steps",
    [
        [FeatureUnion([("a", _branch()), ("b", _branch())])],
        [FeatureUnion([("a", _branch()), ("b", make_pipeline(SpreadImputer(), FunctionTransformer(np.log)))])],
        [FeatureUnion([("a", _branch()), ("b", make_pipeline(SpreadImputer(), PCA(2)))])],
        [ColumnTransformer([("a", _branch(), [0, 1, 2]), ("b", _branch(), [2, 3])])],
        [FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]), SpreadImputer()],
    ],
    ids=["union", "curved", "rotated", "columns", "copied_before"],
)
@pytest.mark.parametrize(
    "last",
    [GaussianRobustClassifier(), NoiseCopies(LogisticRegression(), 2), ModeratedClassifier(LogisticRegression())],
)
def test_one_missing_entry_is_never_taken_for_several_independent_errors(steps, last, rows):
    X, holed, y = rows
    pipe = make_uncertain_pipeline(*clone(steps, safe=False), clone(last)).fit(X, y)
    ask = pipe.predict_proba if isinstance(last, ModeratedClassifier) else lambda rows: pipe.fit(rows, y)
    with pytest.raises(ValueError, match=r"the same missing entries are filled in several times.*Fill them in once"):
        ask(holed)


def test_one_missing_entry_that_is_filled_in_once_is_one_error_in_all_branches(rows, rng):
    _, holed, y = rows
    twice = FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())])
    pipe = make_uncertain_pipeline(SpreadImputer(), twice, GaussianRobustClassifier()).fit(holed, y)
    filled, missing = pipe[0].transform(holed), np.isnan(holed)
    draws = filled + missing * pipe[0].spread_[2] * rng.normal(size=(3000, *holed.shape))
    scores = pipe[1:].decision_function(draws.reshape(-1, D)).reshape(3000, N)
    assert_allclose(pipe.score_std(holed), scores.std(axis=0), rtol=0.1, atol=1e-9)
    # branches that fill in different columns add different errors
    apart = make_uncertain_pipeline(
        ColumnTransformer([("a", _branch(), [0, 1]), ("b", _branch(), [2, 3])]), GaussianRobustClassifier()
    ).fit(holed, y)
    once = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier()).fit(holed, y)
    assert_allclose(apart.score_std(holed), once.score_std(holed), rtol=1e-5)
