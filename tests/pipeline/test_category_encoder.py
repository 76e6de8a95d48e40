"""Categories that are missing: shares and their covariance, and certificates attacked by trying every category."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from holdfast import (
    Box,
    CategoryEncoder,
    ConditionalImputer,
    GaussianRobustClassifier,
    RobustLinearClassifier,
    SpreadImputer,
    certified_radius,
    flip_probability,
    make_uncertain_pipeline,
)
from holdfast.evaluate import certified_interval

CITIES, KINDS = ["lima", "oslo", "rome"], ["a", "b"]


@pytest.fixture(scope="module")
def table():
    """A frame of numbers and categories, and labels of three classes."""
    rng, n = np.random.default_rng(3), 150
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "city": rng.choice(CITIES, n, p=[0.2, 0.5, 0.3]),
            "kind": rng.choice(KINDS, n),
            "size": rng.normal(2, 1, n),
        }
    )
    score = (frame["age"] - 50) / 10 + frame["size"] + 1.5 * (frame["city"] == "oslo") - (frame["kind"] == "a")
    return frame, np.digitize(score + 0.5 * rng.normal(size=n), [1.5, 3.0])


def holed(frame, *, numbers=False, share=0.5, seed=0):
    out, rng = frame.copy(), np.random.default_rng(seed)
    for name in ("city", "kind") + ("age", "size") * numbers:
        gone = rng.uniform(size=len(out)) < share
        out[name] = out[name].astype(object).where(~gone, None) if name in ("city", "kind") else out[name].where(~gone)
    return out


def columns(encoder=None, number=None):
    return ColumnTransformer(
        [("num", number or StandardScaler(), ["age", "size"]), ("cat", encoder or CategoryEncoder(), ["city", "kind"])]
    )


def completions(row):
    """Yield the row with every category that it may have."""
    for city, kind in product(CITIES, KINDS):
        if row["city"] in (None, city) and row["kind"] in (None, kind):
            yield {**row, "city": city, "kind": kind}


PIPELINES = {
    "linear": make_pipeline(columns(), LogisticRegression()),
    "mixed": make_pipeline(columns(), StandardScaler(), PCA(4), LogisticRegression()),
    "plain encoder": make_pipeline(columns(OneHotEncoder(handle_unknown="ignore")), LogisticRegression()),
    "kernel": make_pipeline(columns(), SVC(gamma=0.02)),
    "nan and spread": make_pipeline(columns(CategoryEncoder(missing="nan")), SpreadImputer(), LogisticRegression()),
    "nan and conditional": make_pipeline(
        columns(CategoryEncoder(missing="nan")), ConditionalImputer(), LogisticRegression()
    ),
    "binary": make_pipeline(columns(), GaussianRobustClassifier()),
}


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    return {name: model.fit(X, y > 0 if name == "binary" else y) for name, model in PIPELINES.items()}


def no_move(X):
    ends = X.copy()
    return {"X_lower": ends, "X_upper": ends}


@pytest.mark.parametrize("name", PIPELINES)
def test_no_category_changes_a_certified_prediction(fitted, table, name):
    X = holed(table[0])
    found = certified_interval(fitted[name], X, **no_move(X))
    every = [list(completions(row)) for row in X.to_dict("records")]
    assert max(map(len, every)) == 6
    said = fitted[name].predict(pd.DataFrame([one for some in every for one in some]))
    owners = np.repeat(np.arange(len(X)), [len(some) for some in every])
    changed = np.zeros(len(X), dtype=bool)
    np.logical_or.at(changed, owners, said != found.predicted[owners])
    assert not np.any(changed & found.certified)
    if name not in ("kernel", "nan and conditional"):
        assert_array_equal(found.certified, ~changed)  # the largest of the corners, and nothing more
    assert np.mean(found.certified[np.any(X.isna(), axis=1)]) > 0


@pytest.mark.parametrize("name", ["linear", "mixed", "binary", "nan and spread"])
def test_numbers_and_categories_together_do_not_leave_a_certified_radius(fitted, table, rng, name):
    X = holed(table[0])
    weights = [5.0, 0.0, 0.0, 0.5]
    found = certified_radius(fitted[name], X, weights=weights)
    assert np.mean(found.radius > 0) > 0.2
    for _ in range(5):
        D = rng.normal(size=(len(X), 2))
        D *= 0.999 * found.radius[:, None] / np.linalg.norm(D, axis=1)[:, None]
        moved = X.assign(age=X["age"] + 5.0 * D[:, 0], size=X["size"] + 0.5 * D[:, 1])
        filled = pd.DataFrame(
            [list(completions(row))[rng.integers(20) % len(list(completions(row)))] for row in moved.to_dict("records")]
        )
        some = found.radius > 0
        assert_array_equal(fitted[name].predict(filled)[some], found.predicted[some])


def test_missing_numbers_beside_missing_categories_are_certified_together(table, rng):
    X, y = table
    last = LogisticRegression()
    model = make_pipeline(columns(number=make_pipeline(ConditionalImputer(coverage=0.6), StandardScaler())), last).fit(
        X, y
    )
    hole = holed(X, numbers=True, share=0.3)
    found = certified_interval(model, hole, **no_move(hole))
    assert 0.1 < np.mean(found.certified) < 1
    low, high = (
        model[0]
        .named_transformers_["num"][0]
        .uncertainty_effect(2)
        .bounds(hole[["age", "size"]], *2 * [np.nan_to_num(hole[["age", "size"]].to_numpy())])
    )
    for _ in range(20):
        values = np.where(rng.uniform(size=low.shape) < 0.5, low, high)
        moved = hole.assign(age=values[:, 0], size=values[:, 1])
        filled = pd.DataFrame(
            [list(completions(row))[rng.integers(60) % len(list(completions(row)))] for row in moved.to_dict("records")]
        )
        assert_array_equal(model.predict(filled)[found.certified], found.predicted[found.certified])


def test_shares_are_counts_and_their_errors_those_of_draws(table):
    X, y = table
    hole = holed(X)
    encoder = CategoryEncoder().fit(hole[["city", "kind"]])
    counts = hole["city"].value_counts().sort_index()
    assert_allclose(encoder.shares_[0], counts / counts.sum())
    Z = encoder.transform(hole[["city", "kind"]])
    gone = hole["city"].isna().to_numpy()
    assert_allclose(Z[gone, :3], np.broadcast_to(encoder.shares_[0], (gone.sum(), 3)))
    assert_allclose(Z[:, :3].sum(axis=1), 1.0)
    assert_array_equal(Z[~gone][:, :3], hole["city"][~gone].to_numpy()[:, None] == np.array(CITIES))
    pipe = make_uncertain_pipeline(columns(), GaussianRobustClassifier()).fit(hole, y > 0)
    w, t = pipe[-1].coef_[0][2:], pipe.score_std(hole)
    want = np.zeros(len(X))
    for part, name, p in ((slice(0, 3), "city", encoder.shares_[0]), (slice(3, 5), "kind", encoder.shares_[1])):
        want += hole[name].isna().to_numpy() * (p @ w[part] ** 2 - (p @ w[part]) ** 2)
    assert_allclose(t**2, want, atol=1e-12)
    assert_allclose(flip_probability(pipe, hole, 0.0 * 1e-9).probability, pipe.flip_probability(hole), atol=1e-9)


def test_training_for_the_worst_sees_the_box_around_the_categories(table):
    X, y = table
    pipe = make_uncertain_pipeline(columns(), RobustLinearClassifier(Box(half_widths=[0.1, 0, 0, 0.1]), alpha=0.1))
    pipe.fit(holed(X, share=0.1), y > 0)
    assert np.mean(pipe.certify(holed(X))) > 0
    plain = make_uncertain_pipeline(
        columns(), RobustLinearClassifier(Box(half_widths=[0.1, 0, 0, 0.1]), alpha=0.1)
    ).fit(X, y > 0)
    assert not np.allclose(pipe[-1].coef_, plain[-1].coef_)


def test_unknown_categories_are_an_error_or_as_good_as_missing(table):
    X, _ = table
    other = X.assign(city="bern")
    with pytest.raises(ValueError, match="unknown categories"):
        CategoryEncoder().fit(X[["city", "kind"]]).transform(other[["city", "kind"]])
    encoder = CategoryEncoder(unknown="missing").fit(X[["city", "kind"]])
    assert_allclose(encoder.transform(other[["city", "kind"]])[:, :3], np.broadcast_to(encoder.shares_[0], (len(X), 3)))
    with pytest.raises(ValueError, match="column 'city' has no known category"):
        CategoryEncoder().fit(X[["city"]].assign(city=None))


def test_zeros_of_a_plain_encoder_are_told_of(table):
    X, y = table
    pipe = make_uncertain_pipeline(columns(OneHotEncoder(handle_unknown="ignore")), GaussianRobustClassifier()).fit(
        X, y > 0
    )
    with pytest.warns(UserWarning, match="OneHotEncoder encodes it as zeros"):
        pipe.predict(holed(X))
    pipe.predict(X)
    with pytest.warns(UserWarning, match="zeros"), pytest.raises(ValueError, match="use CategoryEncoder"):
        pipe.flip_probability(holed(X))


def test_names_and_nan(table):
    X, _ = table
    hole = holed(X)[["city", "kind"]]
    encoder = CategoryEncoder(missing="nan").set_output(transform="pandas").fit(hole)
    found = encoder.transform(hole)
    assert list(found.columns) == ["city_lima", "city_oslo", "city_rome", "kind_a", "kind_b"]
    assert_array_equal(found.isna().all(axis=1), hole.isna().all(axis=1))
    assert_allclose(SpreadImputer().fit(found).transform(found), CategoryEncoder().fit(hole).transform(hole))
    imputed = ConditionalImputer().fit(found)
    assert [group.tolist() for group in imputed.groups_] == [[0, 1, 2], [3, 4]]
    assert_allclose(imputed.transform(found)[:, :3].sum(axis=1), 1.0)
    numbers = CategoryEncoder().fit([[1.0], [2.0], [np.nan], [2.0]])
    assert_allclose(numbers.transform([[np.nan], [1.0]]), [[1 / 3, 2 / 3], [1, 0]])
