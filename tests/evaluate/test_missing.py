"""missing_report: formulas against draws and quadrature, draws against enumeration, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, norm
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import (
    CategoryEncoder,
    ConditionalImputer,
    FeatureDeletionClassifier,
    GaussianRobustClassifier,
    RobustLinearClassifier,
    SpreadImputer,
    make_uncertain_pipeline,
    missing_report,
)
from holdfast.evaluate.missing import flip_once_known

D = 4


@pytest.fixture
def table(rng):
    A = rng.normal(size=(D, D))
    X = rng.normal(size=(300, D)) @ A.T * [1.0, 10.0, 0.1, 1.0] + 5
    y = np.where(X[:, 0] + X[:, 1] / 10 + rng.normal(size=300) > 5.5, "ill", "well")
    return X, np.where(rng.uniform(size=X.shape) < 0.35, np.nan, X), y


def test_flips_once_an_entry_is_known_are_those_of_two_normal_variables(rng):
    f, t = rng.normal(size=30), rng.uniform(0.1, 2, size=30)
    a = t * rng.uniform(0.01, 0.999, size=30)
    got = flip_once_known(f, t, a)
    for k in range(30):
        both = multivariate_normal([f[k], f[k]], [[a[k] ** 2, a[k] ** 2], [a[k] ** 2, t[k] ** 2]])
        below = both.cdf([0.0, 0.0])  # mean and truth both lost
        want = norm.cdf(-f[k] / a[k]) + norm.cdf(-f[k] / t[k]) - 2 * below
        assert got[k] == pytest.approx(want, abs=2e-5)
    # an entry that decides nearly alone: T(h, s) = s exp(-h^2/2) / 2 pi for small s
    left = 1e-6 * np.sqrt(2.0) * t
    expected = 2 * norm.pdf(f / t) * left / t * norm.pdf(0.0)
    assert_allclose(flip_once_known(f, t, t * (1 - 1e-12)), expected, rtol=1e-3)
    assert_allclose(flip_once_known(f, t, 0 * t), norm.cdf(-np.abs(f) / t), atol=1e-12)
    assert_allclose(flip_once_known(f, t, t), 0.0, atol=1e-12)
    assert np.all(got <= norm.cdf(-np.abs(f) / t) + 1e-12)


@pytest.mark.parametrize(
    "model",
    [
        make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), GaussianRobustClassifier()),
        make_pipeline(SpreadImputer(), StandardScaler(), LogisticRegression()),
    ],
    ids=["conditional", "spread"],
)
def test_formulas_agree_with_draws(table, rng, model, monkeypatch):
    _, holed, y = table
    model = model.fit(holed, y)
    rows = holed[:60]
    exact = missing_report(model, rows)
    assert exact.method.startswith("by formula")
    monkeypatch.setattr("holdfast.evaluate.missing._by_formula", lambda *args: np.zeros(0, dtype=int))
    drawn = missing_report(model, rows, n_draws=4000)
    assert drawn.method.startswith("by 4000 draws")
    assert_allclose(drawn.flip_probability, exact.flip_probability, atol=0.03)
    assert_allclose(drawn.flip_after, exact.flip_after, atol=0.04)
    if hasattr(model, "flip_probability"):
        assert_allclose(exact.flip_probability, model.flip_probability(rows), atol=1e-6)


def test_the_measurement_that_is_advised_is_the_one_that_helps_most(table, rng):
    """Measured again and again, by drawing what it would be and asking the model anew."""
    _, holed, y = table
    model = make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), GaussianRobustClassifier()).fit(holed, y)
    report = missing_report(model, holed)
    unsure = np.argsort(-report.flip_probability * (report.missing.sum(axis=1) == 3))[:3]
    for i in unsure:
        law = model[0].law()
        mean, F = law.filled(holed[i : i + 1])[0], law.factor(holed[i : i + 1])[0]
        after = np.full(D, np.nan)
        for j in np.flatnonzero(report.missing[i]):
            rows = np.repeat(holed[i : i + 1], 2000, axis=0)
            rows[:, j] = (mean + rng.standard_normal((2000, F.shape[1])) @ F.T)[:, j]
            after[j] = model.flip_probability(rows).mean()
        assert_allclose(after, report.flip_after[i], atol=0.01)
        assert report.next_measurement[i] == np.nanargmin(after)
    assert_array_equal(report.next_measurement[report.missing.sum(axis=1) == 0], None)
    assert report.worth.shape == (D,)


def test_categories_are_tried_by_their_shares(rng):
    n = 400
    frame = pd.DataFrame({"kind": rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2]), "size": rng.normal(size=n)})
    y = (frame["kind"] == "a").astype(int)
    columns = ColumnTransformer([("c", CategoryEncoder(), ["kind"]), ("n", ConditionalImputer(), ["size"])])
    model = make_uncertain_pipeline(columns, GaussianRobustClassifier(alpha=0.1)).fit(frame, y)
    rows = frame.head(6).copy()
    rows["kind"] = [None, None, "a", "b", None, "c"]
    rows["size"] = [0.0, np.nan, np.nan, 0.0, 0.0, 0.0]
    report = missing_report(model, rows, n_draws=4000)
    p = (frame["kind"] == "a").mean()
    want = np.where(report.predicted == 1, 1 - p, p)
    assert_allclose(report.flip_probability[[0, 1, 4]], want[[0, 1, 4]], atol=0.03)
    assert_allclose(report.flip_after[[0, 1, 4], 0], 0.0, atol=0.01)
    assert_array_equal(report.next_measurement, ["kind", "kind", None, None, "kind", None])
    assert_array_equal(report.certain, [False, False, True, True, False, True])
    assert "measure next" in str(report)
    assert "kind (3)" in str(report)
    assert report._repr_html_().startswith("<table>")


def test_any_model_is_asked_with_rows_like_those(table, rng):
    X, holed, y = table
    trees = HistGradientBoostingClassifier(max_iter=20).fit(holed, y)
    report = missing_report(trees, holed[:40], given=holed, n_draws=400)
    assert report.certain is None
    assert np.all(report.flip_probability[~np.any(report.missing[:40], axis=1)] == 0)
    assert 0.02 < report.flip_probability.mean() < 0.5
    same = missing_report(trees, holed[:40], given=ConditionalImputer(keep_empty_features=True).fit(holed), n_draws=400)
    assert_allclose(same.flip_probability, report.flip_probability)
    deletion = FeatureDeletionClassifier(1, missing="delete").fit((holed - 5) / [1, 10, 0.1, 1], y)
    report = missing_report(deletion, (holed[:40] - 5) / [1, 10, 0.1, 1], given=(holed - 5) / [1, 10, 0.1, 1])
    assert report.method.startswith("by formula")
    assert report.certain is not None
    # true values, where they are known, flip as often as is said
    changed = trees.predict(X) != trees.predict(holed)
    said = missing_report(trees, holed, given=holed, n_draws=300).flip_probability
    assert said.mean() == pytest.approx(changed.mean(), abs=0.06)


def test_mixed_tables_are_learned_together(rng):
    n = 300
    kind = rng.choice(["a", "b"], n)
    frame = pd.DataFrame(
        {"kind": kind, "size": 3.0 * (kind == "a") + 0.3 * rng.normal(size=n), "other": rng.normal(size=n)}
    )
    y = (kind == "a").astype(int)
    columns = ColumnTransformer([("c", CategoryEncoder(), ["kind"]), ("n", SimpleImputer(), ["size", "other"])])
    model = make_pipeline(columns, LogisticRegression()).fit(frame, y)
    rows = pd.DataFrame({"kind": [None, None, "a"], "size": [3.0, np.nan, np.nan], "other": [0.0, 0.0, 0.0]})
    report = missing_report(model, rows, given=frame)
    assert report.flip_probability[0] < 0.1  # its size tells the kind
    assert report.flip_probability[1] > 0.25
    with pytest.raises(ValueError, match=r"column 'size' are missing, and no step.*given=X_train"):
        missing_report(model, rows)
    with pytest.raises(ValueError, match="Give rows like X"):
        missing_report(model, rows, given=frame[["kind", "size"]])


def test_certain_rows_keep_their_class_within_the_intervals(table, rng):
    X, holed, y = table
    model = make_uncertain_pipeline(ConditionalImputer(coverage=0.8), StandardScaler(), GaussianRobustClassifier())
    model = model.fit(holed, y)
    report = missing_report(model, holed)
    low, high = model[0].uncertainty_effect(D).bounds(holed, *2 * [np.nan_to_num(holed)])
    for _ in range(30):
        filled = np.where(np.isnan(holed), np.where(rng.uniform(size=X.shape) < 0.5, low, high), holed)
        assert_array_equal(model.predict(filled)[report.certain], report.predicted[report.certain])
    assert 0.3 < np.mean(report.certain) < 1


def test_columns_that_the_model_does_not_use_make_no_difference(table, rng):
    _, holed, y = table
    once = np.where(np.arange(300) == 0, 1.0, np.nan)
    model = make_uncertain_pipeline(ConditionalImputer(), GaussianRobustClassifier())
    with pytest.warns(UserWarning, match="left out"):
        model.fit(np.column_stack([holed, once]), y)
    report = missing_report(model, np.column_stack([holed, once]))
    assert_allclose(report.flip_after[1:, D], report.flip_probability[1:], atol=1e-9)
    frame = pd.DataFrame(holed, columns=list("abcd")).assign(
        note=None, kind=np.where(rng.uniform(size=300) < 0.5, "u", "v")
    )
    frame.loc[:9, "kind"] = None
    columns = ColumnTransformer([("n", ConditionalImputer(), list("abcd")), ("k", CategoryEncoder(), ["kind"])])
    model = make_uncertain_pipeline(columns, GaussianRobustClassifier()).fit(frame, y)
    report = missing_report(model, frame, n_draws=200)
    assert_allclose(report.flip_after[:, 4], report.flip_probability, atol=1e-9)
    assert "note" not in report.next_measurement


def test_complete_rows_have_nothing_to_measure(table):
    X, holed, y = table
    model = make_uncertain_pipeline(ConditionalImputer(), GaussianRobustClassifier()).fit(holed, y)
    report = missing_report(model, X)
    assert not np.any(report.flip_probability)
    assert np.all(np.isnan(report.flip_after))
    assert report.method == "nothing is missing"
    assert not np.any(report.worth)
    with pytest.raises(ValueError, match="n_draws=5"):
        missing_report(model, X, n_draws=5)
    worst = make_uncertain_pipeline(
        ConditionalImputer(coverage=0.5), StandardScaler(), RobustLinearClassifier(alpha=1e-2)
    )
    assert missing_report(worst.fit(holed, y), holed).method.startswith("by formula")
