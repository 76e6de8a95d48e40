"""One-hot columns that a step fills in later: what hides them is refused; encoders that do not know a category are in doubt."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from holdfast import (
    CategoryEncoder,
    ConditionalImputer,
    GaussianRobustClassifier,
    NoiseAwareClassifier,
    RobustLinearClassifier,
    SpreadImputer,
    certified_radius,
    make_uncertain_pipeline,
    missing_report,
)
from holdfast._certificates.pipelines import linear_in_x
from holdfast.evaluate import certified_interval

NAMES = ["p", "q", "r"]
ROBUST = partial(RobustLinearClassifier, None, loss="logistic")
OPEN = partial(CategoryEncoder, missing="nan")


@pytest.fixture(scope="module")
def table():
    """A frame of a category and a number, and classes that turn with a rare category; rows that lack it."""
    rng, n = np.random.default_rng(0), 300
    k, a = rng.choice(3, size=n, p=[0.6, 0.35, 0.05]), rng.normal(size=n)
    frame = pd.DataFrame({"k": np.array(NAMES, dtype=object)[k], "a": a})
    return frame, (a + np.array([-1, 0, 4.0])[k] > 0).astype(int), frame.iloc[:80].assign(k=None)


def beside(step, last="passthrough"):
    return make_column_transformer((step, ["k"]), (last, ["a"]))


def flips(model, rows, names=NAMES):
    return np.any([model.predict(rows.assign(k=name)) != model.predict(rows) for name in names], axis=0)


@pytest.mark.parametrize("imputer", [ConditionalImputer(), SpreadImputer()])
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((-1, 1)), PCA(3), MinMaxScaler(clip=True)])
def test_what_hides_a_category_from_the_imputer_is_refused(table, imputer, scaler):
    X, y, _ = table
    inner = make_pipeline(OPEN(), scaler, imputer)
    for steps in (
        [beside(OPEN()), scaler, imputer],
        [beside(make_pipeline(OPEN(), scaler)), imputer],
        [beside(inner)],
        [FunctionTransformer(), make_pipeline(beside(OPEN()), make_pipeline(scaler, imputer))],
    ):
        for last in (ROBUST(), GaussianRobustClassifier()):
            with pytest.raises(ValueError, match="directly behind CategoryEncoder, and scale afterwards"):
                make_uncertain_pipeline(*steps, last).fit(X, y)


def test_plain_pipelines_are_refused_when_they_are_asked(table):
    X, y, lost = table
    model = make_pipeline(beside(OPEN()), StandardScaler(), ConditionalImputer(), ROBUST()).fit(X, y)
    interval = partial(certified_interval, X_lower=lost, X_upper=lost)
    assert missing_report(model, lost).certain is None  # not known
    for ask in (interval, certified_radius):
        with pytest.raises(ValueError, match="directly behind CategoryEncoder"):
            ask(model, lost)


@pytest.mark.parametrize(
    "imputer", [ConditionalImputer(categories=None), SpreadImputer(strategy="median"), SpreadImputer(spread="range")]
)
def test_imputers_that_take_categories_for_numbers_are_refused_or_right(table, imputer):
    X, y, lost = table
    model = make_uncertain_pipeline(beside(OPEN()), imputer, ROBUST())
    if getattr(imputer, "strategy", None) == "mean":
        assert not np.any(model.fit(X, y).certify(lost) & flips(model, lost))
        return
    with pytest.raises(ValueError, match="takes them for numbers"):
        model.fit(X, y)


@pytest.mark.parametrize("imputer", [ConditionalImputer(), SpreadImputer()])
def test_what_leaves_the_columns_alone_is_not_refused(table, imputer):
    X, y, lost = table
    for steps in (
        [beside(OPEN()), imputer, StandardScaler()],
        [beside(OPEN()), FunctionTransformer(), imputer],
        [beside(make_pipeline(OPEN(), imputer), StandardScaler())],
        [make_column_transformer((StandardScaler(), ["a"]), (OPEN(), ["k"])), imputer],
        [beside(OPEN(), StandardScaler()), make_pipeline("passthrough", imputer)],
    ):
        model = make_uncertain_pipeline(*steps, ROBUST()).fit(X, y)
        certain = model.certify(lost)
        assert np.any(certain)
        assert not np.any(certain & flips(model, lost))
    make_uncertain_pipeline(beside(OPEN()), StandardScaler(), SimpleImputer(), ROBUST()).fit(X, y)


@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
@pytest.mark.parametrize("rare", [{}, {"min_frequency": 0.1}], ids=["all", "rare"])
@pytest.mark.parametrize("unknown", ["ignore", "infrequent_if_exist", "warn"])
@pytest.mark.filterwarnings("ignore")
def test_encoders_that_do_not_know_a_category_are_certified_for_each(table, drop, rare, unknown):
    X, y, lost = table
    lost = pd.concat([lost, lost.assign(k="never seen")])
    encoder = OneHotEncoder(sparse_output=False, handle_unknown=unknown, drop=drop, **rare)
    model = make_uncertain_pipeline(beside(encoder), StandardScaler(), ROBUST()).fit(X, y)
    margin = model.certified_margin(lost)
    assert not np.any((margin > 0) & flips(model, lost))
    f = np.array([model.decision_function(lost.assign(k=name)) for name in NAMES])
    here = model.decision_function(lost)
    exact = np.minimum(np.min(np.sign(here) * f, axis=0), np.abs(here))
    if drop is None:  # all zeros is no category then
        exact = np.min(np.sign(here) * f, axis=0)
    assert_allclose(margin[exact > 1e-6], exact[exact > 1e-6], atol=1e-9)
    assert np.all(margin[exact <= 0] <= 0)
    assert np.all(model.certify(X.iloc[:20]))  # known ones, dropped and rare ones too, are not in doubt


@pytest.mark.filterwarnings("ignore")
def test_averages_over_a_category_that_no_one_knows_are_refused(table):
    X, y, lost = table
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="infrequent_if_exist", min_frequency=0.1)
    model = make_uncertain_pipeline(beside(encoder), GaussianRobustClassifier()).fit(X, y)
    with pytest.raises(ValueError, match="use CategoryEncoder"):
        model.flip_probability(lost)
    with pytest.warns(UserWarning, match="use CategoryEncoder"):
        model.predict(lost)


@pytest.mark.parametrize("last", [GaussianRobustClassifier(), NoiseAwareClassifier(n_components=20, random_state=0)])
def test_a_missing_category_is_one_fill_of_several_columns(table, last):
    X, y, lost = table
    hole = X.assign(k=X["k"].where(np.arange(len(X)) % 7 > 0, None))
    model = make_uncertain_pipeline(beside(OPEN()), ConditionalImputer(), last).fit(hole, y)
    assert model.predict_proba(lost).shape == (len(lost), 2)
    assert np.all(model.flip_probability(lost) > 0)


def test_the_covariance_of_a_missing_category_is_that_of_its_probabilities(table):
    X, y, lost = table
    model = make_uncertain_pipeline(beside(OPEN()), ConditionalImputer(), GaussianRobustClassifier()).fit(X, y)
    p, w = model[:-1].transform(lost)[:, :3], model[-1].coef_[0][:3]
    assert_allclose(model.score_std(lost) ** 2, p @ w**2 - (p @ w) ** 2, atol=1e-12)
    other = make_uncertain_pipeline(
        beside(OPEN(unknown="missing")), ConditionalImputer(), GaussianRobustClassifier()
    ).fit(X, y)
    assert_allclose(other.score_std(lost.assign(k="never seen")), model.score_std(lost), atol=1e-12)


def test_the_same_category_filled_in_twice_is_refused(table):
    X, y, lost = table
    for twice in (
        [FeatureUnion([("one", beside(OPEN())), ("two", beside(OPEN()))])],
        [beside(OPEN()), FeatureUnion([("one", "passthrough"), ("two", "passthrough")])],
    ):
        model = make_uncertain_pipeline(*twice, ConditionalImputer(), GaussianRobustClassifier()).fit(X, y)
        with pytest.raises(ValueError, match="filled in several times"):
            model.flip_probability(lost)


def test_a_deviation_that_is_stated_of_a_missing_entry_does_not_count():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    hole = np.where(rng.uniform(size=X.shape) < 0.3, np.nan, X)
    model = make_uncertain_pipeline(ConditionalImputer(), GaussianRobustClassifier()).fit(hole, X[:, 0] > 0)
    known = np.where(np.isnan(hole), 0.0, 0.3)
    want = model.flip_probability(hole, X_std=known)
    assert_allclose(model.flip_probability(hole, X_std=np.full(X.shape, 0.3)), want, atol=1e-12)
    assert_allclose(model.flip_probability(hole, X_std=np.where(np.isnan(hole), np.nan, 0.3)), want, atol=1e-12)
    assert not np.allclose(model.flip_probability(hole), want)


@pytest.mark.parametrize("imputer", [ConditionalImputer(), SpreadImputer()])
def test_a_part_of_a_category_is_no_number_that_can_be_filled_in(table, imputer):
    X, y, _ = table
    part = make_column_transformer(("passthrough", [0, 3]))
    with pytest.raises(ValueError, match="directly behind CategoryEncoder"):
        make_uncertain_pipeline(beside(OPEN()), part, imputer, ROBUST()).fit(X, y)


def test_numbers_for_categories_that_training_did_not_see_are_refused(table):
    X, y, lost = table
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = make_uncertain_pipeline(beside(encoder), ROBUST()).fit(X, y)
    assert np.all(model.certify(X))
    with pytest.raises(ValueError, match="never seen in training, and OrdinalEncoder"):
        model.certify(lost)


@pytest.mark.parametrize("options", [{}, {"drop": "first"}, {"min_frequency": 0.1}])
def test_a_linear_model_behind_an_encoder_is_one_without_any_rows(table, options):
    X, y, _ = table
    encoder = OneHotEncoder(handle_unknown="ignore", **options)
    model = make_pipeline(beside(encoder), ROBUST()).fit(X, y)
    assert_allclose(linear_in_x(model, "call").coef, [[0.0, model[-1].coef_[0, -1]]])
