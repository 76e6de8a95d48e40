"""Certificates, attacks and flips of pipelines as people have them: mixed columns, imputers, projections, curved steps."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import SVC

from holdfast import (
    Ball,
    Box,
    CategoryEncoder,
    ConditionalImputer,
    CorruptedFeatures,
    FeatureDeletion,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    RobustLinearClassifier,
    SpreadImputer,
    UncertainPipeline,
    certified_radius,
    compare,
    flip_probability,
    make_uncertain_pipeline,
    robust_accuracy,
    robustness_curve,
)
from holdfast._certificates.pipelines import view_of
from holdfast.display import CertifiedAccuracyDisplay, FeatureFragilityDisplay
from holdfast.evaluate import (
    Quantize,
    certified_deletions,
    certified_interval,
    noise_budget,
    safe_bits,
    what_is_to_gain,
    worst_case,
)
from holdfast.exceptions import NoCertificateError

N = 120
NUMBERS = ["age", "income", "debt"]


@pytest.fixture(scope="module")
def table():
    """A frame with numbers, categories and a column that no model takes, and its labels."""
    rng = np.random.default_rng(0)
    age, income, debt = rng.normal(50, 12, N), rng.exponential(1000, N) + 100, rng.normal(0, 300, N)
    city, key = rng.choice(["rome", "oslo", "lima"], N), [f"id{i}" for i in range(N)]
    score = (age - 50) / 12 + (income - 1100) / 1000 - debt / 300 + (city == "oslo") + 0.5 * rng.normal(size=N)
    X = pd.DataFrame({"key": key, "age": age, "city": city, "income": income, "debt": debt})
    return X, np.where(score > 0.3, "good", "bad")


def columns(number=None, category=None):
    return ColumnTransformer(
        [("num", number or StandardScaler(), NUMBERS), ("cat", category or OneHotEncoder(), ["city"])]
    )


def with_holes(X, share=0.2):
    holed = X.copy()
    for j, name in enumerate(NUMBERS):
        holed.loc[np.random.default_rng(j).uniform(size=len(X)) < share, name] = np.nan
    return holed


def moved(X, D):
    """Return rows whose numbers, where there are any, are moved."""
    return X.assign(**{name: X[name] + D[:, j] for j, name in enumerate(NUMBERS)})


def sphere(rng, n, norm, weights):
    """Return moves of length 1 in the units of the weights, corners among them."""
    D = rng.normal(size=(n, len(weights)))
    D[: n // 2] = np.sign(D[: n // 2])
    return D / np.linalg.norm(D, norm, axis=1)[:, None] * weights


PIPELINES = {
    "mixed": make_pipeline(columns(), LogisticRegression()),
    "ordinal": make_pipeline(columns(RobustScaler(), OrdinalEncoder()), LogisticRegression()),
    "mixed and weighted": make_pipeline(
        ColumnTransformer(
            [("num", StandardScaler(), NUMBERS), ("cat", OneHotEncoder(), ["city"])],
            transformer_weights={"num": 3.0, "cat": 0.5},
        ),
        LogisticRegression(),
    ),
    "imputer": make_pipeline(columns(make_pipeline(SimpleImputer(), StandardScaler())), LogisticRegression()),
    "imputer and flags": make_pipeline(
        columns(make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())), LogisticRegression()
    ),
    "imputer last": make_pipeline(columns(make_pipeline(StandardScaler(), SimpleImputer())), LogisticRegression()),
    "imputer after columns": make_pipeline(columns(MinMaxScaler()), SimpleImputer(), LogisticRegression()),
    "spread": make_pipeline(columns(make_pipeline(SpreadImputer(), StandardScaler())), LogisticRegression()),
    "spread last": make_pipeline(columns(make_pipeline(StandardScaler(), SpreadImputer())), LogisticRegression()),
    "conditional": make_pipeline(columns(make_pipeline(ConditionalImputer(), StandardScaler())), LogisticRegression()),
    "categories": make_pipeline(columns(category=CategoryEncoder()), LogisticRegression()),
    "projected": make_pipeline(columns(make_pipeline(SimpleImputer(), StandardScaler(), PCA(2))), LogisticRegression()),
    "union": make_pipeline(
        columns(make_pipeline(StandardScaler(), FeatureUnion([("pca", PCA(1)), ("ica", FastICA(2, random_state=0))]))),
        LogisticRegression(),
    ),
    "random": make_pipeline(
        columns(make_pipeline(StandardScaler(), GaussianRandomProjection(2, random_state=0))), LogisticRegression()
    ),
    "kernel": make_pipeline(columns(), SVC()),
    "ours": make_pipeline(columns(), GaussianRobustClassifier(0.1)),
    "search": GridSearchCV(make_pipeline(columns(), LogisticRegression()), {"logisticregression__C": [0.1, 1.0]}),
}
FILLED = [name for name in PIPELINES if "imputer" in name or "spread" in name or name == "projected"]


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    return {name: model.fit(with_holes(X) if name in FILLED else X, y) for name, model in PIPELINES.items()}


# Radii


@pytest.mark.thin(2)
@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize("name", PIPELINES)
def test_no_move_within_a_radius_changes_a_prediction(name, norm, fitted, table, rng):
    X, _ = table
    model = fitted[name]
    for rows in (X, with_holes(X)) if name in FILLED else (X,):
        weights = pd.Series({"key": 0.0, "age": 1.0, "city": 0.0, "income": 30.0, "debt": 20.0})
        found = certified_radius(model, rows, norm=norm, weights=weights)
        assert found.columns == ("age", "income", "debt")
        assert_array_equal(found.predicted, model.predict(rows))
        assert np.mean(found.radius > 0) > 0.5
        sure = np.tile(np.flatnonzero(found.radius > 0), 20)
        D = sphere(rng, len(sure), norm, np.array([1.0, 30.0, 20.0])) * np.minimum(found.radius, 1e6)[sure, None]
        assert_array_equal(model.predict(moved(rows.iloc[sure], D)), found.predicted[sure])


@pytest.mark.parametrize("name", ["mixed", "ordinal", "mixed and weighted", "imputer", "projected", "union", "random"])
def test_radii_of_linear_models_are_tight(name, fitted, table):
    X, _ = table
    model = fitted[name]
    found = certified_radius(model, X, norm=np.inf)
    coef = view_of(model, X).coef[0][[1, 3, 4]]
    signs = np.where(model.decision_function(X) > 0, -1.0, 1.0)
    D = 1.0001 * found.radius[:, None] * signs[:, None] * np.sign(coef)
    assert np.all(model.predict(moved(X, D)) != found.predicted)


@pytest.mark.parametrize("name", ["imputer", "imputer and flags", "imputer last", "projected"])
@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_radii_of_rows_with_holes_are_tight_in_what_is_there(name, norm, fitted, table):
    X, _ = table
    model, holed = fitted[name], with_holes(X)
    found, w = certified_radius(model, holed, norm=norm), view_of(model, holed).coef[0][[1, 3, 4]]
    w = np.where(holed[NUMBERS].isna(), 0.0, w)
    largest, length = np.abs(w).max(axis=1, keepdims=True), np.linalg.norm(w, axis=1, keepdims=True)
    D = {
        1: np.where(np.abs(w) == largest, np.sign(w), 0.0),
        2: w / np.where(length > 0, length, 1.0),
        np.inf: np.sign(w),
    }[norm]
    signs = np.where(model.decision_function(holed) > 0, -1.0, 1.0)
    finite = np.isfinite(found.radius)
    Z = moved(holed, np.where(finite, 1.0001 * found.radius, 0.0)[:, None] * signs[:, None] * D)
    assert np.all((model.predict(Z) != found.predicted)[finite])


def test_a_radius_says_of_which_columns_it_speaks(fitted, table):
    X, _ = table
    found = certified_radius(fitted["mixed"], X)
    assert found.columns == ("age", "income", "debt")
    assert "3 of 5 columns" in found.assumption
    with pytest.raises(ValueError, match=r"column 'city' is no number .* weight must be 0"):
        certified_radius(fitted["mixed"], X, weights=[0, 1, 1, 1, 1])
    plain = RidgeClassifier().fit(X[NUMBERS], X["city"])
    assert certified_radius(plain, X[NUMBERS]).columns == tuple(NUMBERS)
    assert certified_radius(plain, X[NUMBERS], weights=[1, 0, 1]).columns == ("age", "debt")


def test_radii_of_rows_with_holes_say_that_these_stay(fitted, table):
    X, _ = table
    assert "missing" not in certified_radius(fitted["imputer"], X).assumption
    assert "missing entries staying missing" in certified_radius(fitted["imputer"], with_holes(X)).assumption


def test_mixed_columns_are_certified_by_fractions_too(fitted, table):
    X, _ = table
    some = X.iloc[:10]
    exact = certified_radius(fitted["mixed"], some, exact=True).radius
    assert_allclose(exact, certified_radius(fitted["mixed"], some).radius, rtol=1e-9)
    with pytest.raises(NoCertificateError, match="missing entries"):
        certified_radius(fitted["spread"], with_holes(X), exact=True)


def test_what_an_imputer_fills_in_may_be_off_by_its_spread(fitted, table, rng):
    X, _ = table
    model, holed = fitted["spread"], with_holes(X)
    found = certified_radius(model, holed)
    is_certain, missing = found.radius > 0, holed[NUMBERS].isna().to_numpy()
    assert 0 < np.mean(is_certain[missing.any(axis=1)]) < 1
    lower, upper, _ = model[0].named_transformers_["num"][0].spread_
    for _ in range(50):
        filled = holed.assign(
            **{
                name: np.where(missing[:, j], rng.choice([lower[j], upper[j]], size=N), holed[name])
                for j, name in enumerate(NUMBERS)
            }
        )
        assert_array_equal(model.predict(filled)[is_certain], found.predicted[is_certain])


def test_columns_in_single_precision_are_certified_in_it(table):
    X, y = table
    X = X.assign(**{name: X[name].astype(np.float32) for name in NUMBERS})
    model = make_pipeline(columns(), LogisticRegression(C=1e4)).fit(X, y)
    values, errors = view_of(model, X).model.scores(view_of(model, X).rows)
    own = model.decision_function(X)
    assert np.all(np.abs(values[:, 0] - own) <= errors[:, 0])
    assert np.max(np.abs(values[:, 0] - own)) > 1e-9  # which float64 would not explain
    fine = X.assign(**{name: X[name].astype(np.float64) for name in NUMBERS})
    assert np.all(certified_radius(model, X).radius <= certified_radius(model, fine).radius)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_of_any_kind_have_the_same_radii(frame, table):
    X, y = table
    rows = frame({name: X[name].to_numpy() for name in X.columns})
    model = make_pipeline(columns(), LogisticRegression()).fit(rows, y)
    plain = make_pipeline(columns(), LogisticRegression()).fit(X, y)
    assert_allclose(certified_radius(model, rows).radius, certified_radius(plain, X).radius, rtol=1e-9)


# What else may be asked


def test_intervals_deletions_and_bits_of_mixed_columns(fitted, table, rng):
    X, _ = table
    model, reach = fitted["mixed"], {"age": 4.0, "income": 200.0, "debt": 50.0}
    lower, upper = (
        X.assign(**{n: X[n] - r for n, r in reach.items()}),
        X.assign(**{n: X[n] + r for n, r in reach.items()}),
    )
    found = certified_interval(model, X, X_lower=lower[NUMBERS], X_upper=upper[NUMBERS])
    assert_array_equal(found.certified, certified_radius(model, X, norm=np.inf, weights=[0, 4, 0, 200, 50]).radius >= 1)
    deleted = certified_deletions(model, X).survived
    for i in np.flatnonzero(deleted == 0)[:10]:
        gone = [X.iloc[[i]].assign(**{name: 0.0}) for name in NUMBERS]
        assert any(model.predict(row)[0] != found.predicted[i] for row in gone)
    bits = safe_bits(model, X)
    Z, last, scaler = model[:-1].transform(X), model[-1], model[0].named_transformers_["num"]
    # weights in the units of X, and those of each category
    slopes = last.coef_[0][:3] / scaler.scale_
    W, shift = np.concatenate([slopes, last.coef_[0][3:]]), last.intercept_[0] - np.sum(slopes * scaler.mean_)
    rows = np.hstack([X[NUMBERS].to_numpy(), np.asarray(Z)[:, 3:]])
    step = np.abs(W).max() / (2.0 ** (bits.bits - 1) - 1)
    rounded = np.round(W / step[:, None]) * step[:, None]
    assert_array_equal(np.sum(rounded * rows, axis=1) + shift > 0, rows @ W + shift > 0)


@pytest.mark.parametrize("name", ["mixed", "imputer", "spread", "kernel"])
def test_attacks_on_mixed_columns_stay_in_the_sets_and_below_the_certified_share(name, fitted, table):
    X, y = table
    rows, model = with_holes(X) if name in FILLED else X, fitted[name]
    S = pd.DataFrame({"age": np.full(N, 3.0), "income": np.full(N, 150.0), "debt": np.full(N, 60.0)})
    worst = worst_case(model, rows, y, Box(), X_std=S)
    assert list(worst.X["city"]) == list(rows["city"])
    assert_array_equal(worst.X[NUMBERS].isna(), rows[NUMBERS].isna())
    assert np.all(np.abs(worst.X[NUMBERS] - rows[NUMBERS]).fillna(0.0).to_numpy() <= S.to_numpy() * (1 + 1e-12))
    assert_array_equal(worst.predicted, model.predict(worst.X))
    assert np.all(worst.is_wrong | (worst.lead >= 0)) or name == "kernel"
    found = robust_accuracy(model, rows, y, Box(), X_std=S)
    assert found.certified <= found.accuracy <= found.plain
    assert found.certified <= np.mean(~worst.is_wrong)
    assert found.is_exact == (name != "kernel")
    with pytest.raises(ValueError, match=r"column 'key' goes into categories.*State 0"):
        robust_accuracy(model, rows, y, Box(0.1))


@pytest.mark.parametrize("name", ["mixed", "imputer", "imputer and flags", "imputer last"])
def test_flips_of_rows_with_categories_and_holes_are_those_of_draws(name, fitted, table):
    X, y = table
    rows, model = with_holes(X) if name in FILLED else X, fitted[name]
    S = pd.DataFrame({"age": np.full(N, 3.0), "income": np.full(N, 150.0), "debt": np.full(N, 60.0)})
    S = S.mask(rows[NUMBERS].isna())
    exact = flip_probability(model, rows, X_std=S).probability
    drawn = flip_probability(model, rows, X_std=S, method="draws", n_draws=2000, random_state=0)
    assert np.all(np.abs(drawn.probability - exact) <= 5 * np.sqrt(exact * (1 - exact) / 2000) + 1e-9)
    assert_allclose(what_is_to_gain(model, rows, X_std=S).flip_rate, exact.mean())
    assert 0 < noise_budget(model, rows, y, 0.7, X_std=S).multiple < np.inf


def test_functions_say_of_a_pipeline_what_its_own_methods_say(table):
    X, y = table
    holed = with_holes(X)[NUMBERS]
    S = pd.DataFrame({"age": np.full(N, 3.0), "income": np.full(N, 150.0), "debt": np.full(N, 60.0)})
    noisy = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier()).fit(
        holed, y, X_std=S
    )
    assert_allclose(
        flip_probability(noisy, holed, X_std=S).probability,
        noisy.flip_probability(holed, X_std=S),
        rtol=1e-9,
        atol=1e-12,
    )
    last = RobustLinearClassifier(Box(0.1), loss="logistic", alpha=1e-3)
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), PCA(3), last).fit(holed, y, X_std=S)
    sure = pipe.certify(holed, X_std=S)
    assert 0 < np.mean(sure) < 1
    assert_allclose(
        robust_accuracy(pipe, holed, y, Box(), X_std=S).certified, np.mean(sure & (pipe.predict(holed) == y))
    )
    assert_array_equal(noisy.certify(holed, Box(), X_std=S) & False, np.zeros(N, dtype=bool))
    ends = (holed - S).fillna(0.0), (holed + S).fillna(0.0)
    some = ~holed.isna().any(axis=1).to_numpy()
    rows = holed[some]
    found = certified_interval(pipe, rows, X_lower=ends[0][some], X_upper=ends[1][some])
    assert_array_equal(found.certified, pipe.certify(rows, IntervalBox(), X_lower=ends[0][some], X_upper=ends[1][some]))


@pytest.mark.parametrize(
    "step",
    [
        FunctionTransformer(np.log),
        MinMaxScaler(clip=True),
        RBFSampler(n_components=20, random_state=0),
        Nystroem(gamma=0.2, n_components=4, random_state=0),
    ],
)
def test_intervals_are_carried_through_curved_steps(step, table, rng):
    X, y = table
    rows = X[["income"]] if isinstance(step, FunctionTransformer) else X[NUMBERS] / [50, 1000, 300]
    model = make_pipeline(step, LogisticRegression(C=10.0)).fit(rows, y)
    lower, upper = 0.97 * rows, 1.03 * rows
    lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
    found = certified_interval(model, rows, X_lower=lower, X_upper=upper)
    assert np.any(found.certified)
    for _ in range(50):
        Z = lower + rng.choice([0.0, 1.0, rng.uniform()], size=rows.shape) * (upper - lower)
        assert_array_equal(model.predict(Z)[found.certified], found.predicted[found.certified])
    shares = robust_accuracy(model, rows, y, Box(relative=0.03), n_starts=2, max_iter=5)
    assert shares.certified <= shares.accuracy
    pipe = UncertainPipeline(
        [("curved", step), ("clf", RobustLinearClassifier(Box(relative=0.03), loss="logistic"))]
    ).fit(rows, y)
    sure = pipe.certify(rows)
    for _ in range(20):
        Z = lower + rng.choice([0.0, 1.0, rng.uniform()], size=rows.shape) * (upper - lower)
        assert_array_equal(pipe.predict(Z)[sure], pipe.predict(rows)[sure])


# Refusals


@pytest.mark.parametrize("step", [CountVectorizer(), TfidfVectorizer(), HashingVectorizer(n_features=20)])
def test_texts_are_refused_with_what_can_be_asked(step):
    texts, y = ["good one", "bad one", "very good", "very bad"] * 5, [1, 0, 1, 0] * 5
    model = Pipeline([("words", step), ("clf", LogisticRegression())]).fit(texts, y)
    for ask in (
        lambda: certified_radius(model, texts),
        lambda: safe_bits(model, texts),
        lambda: robust_accuracy(model, texts, y, Ball(0.1)),
        lambda: flip_probability(model, texts, noise=0.1),
    ):
        with pytest.raises(NoCertificateError, match=r"step 'words', .*certified_deletions\(pipe\[-1\], pipe\[:-1\]"):
            ask()
    assert len(certified_deletions(model[-1], model[:-1].transform(texts))) == 20


def test_steps_that_are_not_known_are_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = Pipeline([("unit", Normalizer()), ("clf", LogisticRegression())]).fit(X, y)
    with pytest.raises(NoCertificateError, match=r"step 'unit', Normalizer: .*teach_step.*smoothing"):
        certified_radius(model, X)
    curved = make_pipeline(FunctionTransformer(np.exp), LogisticRegression()).fit(X, y)
    for ask in (certified_radius, certified_deletions):
        with pytest.raises(NoCertificateError, match=r"step 'functiontransformer'.*no affine map.*certified_interval"):
            ask(curved, X)
    with pytest.raises(NoCertificateError, match=r"safe_bits\(pipe\[-1\]"):
        safe_bits(curved, X)


def test_entries_that_mixed_steps_lose_are_not_followed():
    X = np.array([[1.0, 2.0, 4.0], [2.0, np.nan, 3.0], [5.0, 1.0, 0.0], [0.0, 2.0, 1.0]])

    def differences(rows):
        return np.diff(rows, axis=1)

    pipe = UncertainPipeline(
        [("d", FunctionTransformer(differences)), ("fill", SimpleImputer()), ("clf", RobustLinearClassifier(Box(0.1)))],
        effects={"d": "linear"},
    ).fit(X[[0, 2, 3]], [0, 1, 1])
    with pytest.raises(ValueError, match="Put it first"):
        certified_radius(pipe, X)


def test_pictures_of_several_models_leave_out_those_without_a_certificate(table):
    X, y = table
    rows = X[NUMBERS]
    models = {
        "linear": LogisticRegression().fit(rows, y),
        "trees": HistGradientBoostingClassifier(max_iter=2).fit(rows, y),
    }
    with pytest.warns(UserWarning, match="'trees' is left out"):
        display = CertifiedAccuracyDisplay.from_estimators(models, rows, y)
    assert display.models == ("linear",)
    with pytest.warns(UserWarning, match="'trees' is left out"):
        shares = FeatureFragilityDisplay.from_estimators(models, X_std=np.ones(3))
    assert shares.models == ("linear",)
    with pytest.raises(NoCertificateError):
        CertifiedAccuracyDisplay.from_estimators({"trees": models["trees"]}, rows, y)


@pytest.mark.parametrize(
    "kind", [LogisticRegression(), RandomForestClassifier(n_estimators=3, random_state=0)], ids=str
)
def test_errors_that_categories_would_have_are_refused_by_all(kind, table):
    X, y = table
    model, noise = make_pipeline(columns(), kind).fit(X, y), GaussianNoise(std=[0, 0, 5.0, 0, 0])
    for ask in (
        lambda: flip_probability(model, X, noise),
        lambda: flip_probability(model, X, GaussianNoise(0.1), method="draws", n_draws=2),
        lambda: noise_budget(model, X, y, 0.8, noise),
        lambda: robust_accuracy(model, X, y, Box(half_widths=[0, 0, 5.0, 0, 0])),
        lambda: robustness_curve(model, X, y, noise, [1.0]),
        lambda: compare({"a": model, "b": model}, X, y, noise, 1.0),
        lambda: robustness_curve(model, X, y, FeatureDeletion(1), [1.0]),
    ):
        with pytest.raises(ValueError, match=r"column '(key|city)' goes into categories"):
            ask()
    with pytest.raises(ValueError, match="'key' is no number that noise could replace"):
        robustness_curve(model, X, y, CorruptedFeatures(1), [1.0])
    with pytest.raises(ValueError, match="'key' is no number that could be rounded"):
        robustness_curve(model, X, y, Quantize(1.0), [1.0])


def test_what_is_stated_of_categories_must_be_what_they_are(fitted, table):
    X, y = table
    model, numbers = fitted["mixed"], X[NUMBERS]
    with pytest.raises(
        ValueError, match="X_upper says of column 'city', which holds categories, something else than X"
    ):
        certified_interval(model, X, X_lower=X, X_upper=X.assign(city="oslo"))
    with pytest.raises(ValueError, match="X_std says of column 'city'"):
        robust_accuracy(model, X, y, Box(), X_std=numbers.assign(city=1.0) * 0 + 1)
    found = certified_interval(model, X, X_lower=X, X_upper=X)
    assert_array_equal(found.certified, certified_interval(model, X, X_lower=numbers, X_upper=numbers).certified)


def test_categories_that_look_like_numbers_stay_what_they_are(rng):
    X = pd.DataFrame({"x": rng.normal(size=100), "zip": rng.choice(["007", "12", "3"], 100)})
    y = (0.2 * X["x"] + 2 * (X["zip"] == "007") > 1).astype(int)
    category = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    both = ColumnTransformer([("x", StandardScaler(), ["x"]), ("zip", category, ["zip"])])
    S = np.tile([1e-9, 0.0], (100, 1))
    for last in (RandomForestClassifier(n_estimators=5, random_state=0), LogisticRegression()):
        model = make_pipeline(both, last).fit(X, y)
        assert flip_probability(model, X, X_std=S, n_draws=5, method="draws", random_state=0).probability.max() == 0
        assert_array_equal(robustness_curve(model, X, model.predict(X), Box(), [0.0], X_std=S).mean, [[1.0]])
        assert list(worst_case(model, X[:3], y[:3], Box(), X_std=S[:3], n_starts=1).X["zip"]) == list(X["zip"][:3])
    assert certified_radius(model, X).columns == ("x",)


def test_classes_that_predict_in_their_own_way_are_not_certified_by_their_weights(rng):
    class Cautious(LogisticRegression):
        def predict(self, X):
            return (self.predict_proba(X)[:, 1] > 0.2).astype(int)

    class Opposite(Pipeline):
        def predict(self, X):
            return 1 - super().predict(X)

    class Robust(RobustLinearClassifier):
        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    class Same(LogisticRegression):
        pass

    X = rng.normal(size=(60, 2))
    y = (X.sum(axis=1) > 0).astype(int)
    far = X[[np.argmin(X.sum(axis=1))]]
    for model in (
        Cautious(),
        make_pipeline(StandardScaler(), Cautious()),
        Opposite([("clf", LogisticRegression())]),
        Robust(),
    ):
        with pytest.raises(NoCertificateError, match="has a predict of its own"):
            certified_radius(model.fit(X, y), far)
    with pytest.raises(NoCertificateError, match="has a predict of its own"):
        Robust().fit(X, y).certify(far, Box(0.1))
    assert certified_radius(Same().fit(X, y), far).radius > 0
    assert flip_probability(Cautious().fit(X, y), far, 0.1, n_draws=5).method == "5 draws"


def test_noise_budgets_leave_the_spread_of_what_is_filled_in_as_it_is(rng):
    X = rng.normal(size=(200, 2))
    y = (X.sum(axis=1) > 0).astype(int)
    X[:80, 0] = np.nan
    model = make_pipeline(SpreadImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    rows, S = X[:80], np.full((80, 2), 0.1)
    labels = model.predict(rows)
    right = 1 - flip_probability(model, rows, X_std=1e-9 * S).probability.mean()
    assert noise_budget(model, rows, labels, right + 0.01, X_std=S).multiple == 0
    found = noise_budget(model, rows, labels, right - 0.02, X_std=S).multiple
    assert_allclose(noise_budget(model, rows, labels, right - 0.02, X_std=S / 100).multiple, 100 * found, rtol=1e-6)
    with pytest.raises(ValueError, match="Draws of the rows do not follow"):
        flip_probability(model, rows, X_std=S, method="draws")
    with pytest.raises(ValueError, match="not for rows with missing entries"):
        safe_bits(model, rows)
    assert "staying missing" in certified_deletions(model, rows).assumption


def test_flags_before_branches_are_followed(rng):
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    X[::5, 1] = np.nan
    branches = FeatureUnion([("p", PCA(2)), ("s", StandardScaler())])
    model = make_pipeline(SimpleImputer(add_indicator=True), branches, LogisticRegression()).fit(X, y)
    found = certified_radius(model, X)
    D = sphere(rng, 60, 2, np.ones(3)) * found.radius[:, None]
    assert_array_equal(model.predict(X + D), found.predicted)


def test_fills_without_a_spread_are_exact_beside_curved_steps_too(table, rng):
    X, y = table
    holed = X[["income", "age"]].assign(age=with_holes(X)["age"])
    both = ColumnTransformer([("log", FunctionTransformer(np.log), ["income"]), ("n", SimpleImputer(), ["age"])])
    model = make_pipeline(both, StandardScaler(), LogisticRegression()).fit(holed, y)
    lower, upper = holed * [0.9, 0.95], holed * [1.1, 1.05]
    found = certified_interval(model, holed, X_lower=lower, X_upper=upper)
    assert 0 < np.mean(found.certified) < 1
    for _ in range(20):
        Z = lower + rng.choice([0.0, 1.0], size=holed.shape) * (upper - lower)
        assert_array_equal(model.predict(Z)[found.certified], found.predicted[found.certified])


def test_frames_with_other_columns_than_in_fit_are_refused_in_words(fitted, table):
    X, _ = table
    with pytest.raises(ValueError, match=r"X lacks the column 'debt'\. Give X\[\["):
        certified_radius(fitted["mixed"], X.drop(columns="debt"))
    with pytest.raises(ValueError, match="in another order"):
        flip_probability(fitted["mixed"], X[X.columns[::-1]], 0.1)


def test_noise_that_leaves_the_domain_of_a_step_is_told(table):
    X, y = table
    rows = X[["income"]]
    model = make_pipeline(FunctionTransformer(np.log), StandardScaler(), LogisticRegression()).fit(rows, y)
    for ask in (
        lambda: flip_probability(model, rows, 1e4, method="draws", n_draws=20, random_state=0),
        lambda: noise_budget(model, rows, y, 0.5, 1e4, n_draws=5),
    ):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="refuses rows with noise"):
            ask()


def test_texts_that_a_step_takes_for_numbers_are_named(table):
    X, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[NUMBERS], y)
    with pytest.raises(ValueError, match="column 'age' holds texts"):
        certified_radius(model, X[NUMBERS].astype(str))


def test_what_may_be_off_by_its_spread_and_by_what_is_stated_is_off_by_both():
    X = np.array([[-2.0, 1.0], [-2.1, 1.2], [2.0, 1.0], [2.1, 1.2], [1.0, np.nan]])
    model = make_pipeline(SpreadImputer(), LogisticRegression()).fit(X, [0, 0, 1, 1, 1])
    model[-1].coef_, model[-1].intercept_ = np.array([[1.0, 1.0]]), np.zeros(1)
    row = np.array([[0.0, np.nan]])  # filled in by 1.1, off by 0.1
    for half, is_right in ((0.9, True), (1.1, False)):
        chosen = Box(half_widths=[0.0, half])
        found = robust_accuracy(model, row, [1], chosen)
        assert (found.accuracy, found.certified, found.is_exact) == (is_right, is_right, True)
        assert worst_case(model, row, [1], chosen).is_wrong[0] != is_right
    assert_allclose(certified_radius(model, row, weights=[0, 1]).radius, 1.0)
    with pytest.raises(ValueError, match="Draws of the rows do not follow"):
        robustness_curve(model, row, [1], Box(0.1), [1.0])


def test_attacks_stay_where_the_steps_have_values(table):
    X, y = table
    rows = X[["income"]]
    model = make_pipeline(FunctionTransformer(np.sqrt), StandardScaler(), LogisticRegression()).fit(rows, y)
    found = robust_accuracy(model, rows, y, IntervalBox(), X_lower=0 * rows, X_upper=rows, n_starts=1, max_iter=3)
    assert found.certified <= found.accuracy


def test_curves_of_mixed_columns_are_those_of_attacks(fitted, table):
    X, y = table
    model, chosen = fitted["mixed"], Box(half_widths=[0, 4.0, 0, 100.0, 50.0])
    curve = robustness_curve(model, X, y, chosen, [0.0, 1.0], adversary="exact")
    assert_allclose(curve.mean[0], [model.score(X, y), robust_accuracy(model, X, y, chosen).accuracy])
    assert curve.certified[0, 1] <= curve.mean[0, 1]
    deleted = robustness_curve(
        model, X, y, FeatureDeletion(1, values=[np.inf, 1, np.inf, 1, 1]), [1.0], adversary="exact"
    )
    stays = np.all([model.predict(X.assign(**{name: 0.0})) == y for name in NUMBERS], axis=0)
    assert_allclose(deleted.mean[0, 0], np.mean(stays & (model.predict(X) == y)))
    assert certified_deletions(model, X).columns == tuple(NUMBERS)
