"""Features that are really missing."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from holdfast import FeatureDeletion, FeatureDeletionClassifier, FeatureDeletionPerceptron, RobustLinearClassifier

NAN = np.nan


@pytest.fixture(params=["two classes", "three classes"])
def case(request, several_classes):
    """A fitted model, its rows, and the same rows with holes."""
    X, y = several_classes((30, 20, 25) if request.param == "three classes" else (30, 25), 4)
    model = FeatureDeletionPerceptron(1.0, [1, 2, 1, 1], margin=0.05, missing="delete", random_state=0).fit(X, y)
    rng = np.random.default_rng(0)
    return model, X, np.where(rng.uniform(size=X.shape) < 0.2, NAN, X)


def corners(row, lower, upper):
    """All rows with an end of the range for each missing entry."""
    ends = [(low, high) if np.isnan(x) else (x,) for x, low, high in zip(row, lower, upper, strict=True)]
    return np.array(list(product(*ends)))


@pytest.mark.filterwarnings("ignore:.*rows miss features worth more")
def test_score_interval_is_attained_at_corners_and_never_left(case):
    model, X, holes = case
    low, high = model.score_interval(holes)
    rng = np.random.default_rng(1)
    for row, least, largest in zip(holes, low, high, strict=True):
        scores = model.decision_function(corners(row, X.min(axis=0), X.max(axis=0)))
        assert_allclose([scores.min(axis=0), scores.max(axis=0)], [least, largest], atol=1e-12)
        inside = model.decision_function(np.where(np.isnan(row), rng.uniform(X.min(axis=0), X.max(axis=0)), row)[None])[
            0
        ]
        assert np.all((inside >= least - 1e-12) & (inside <= largest + 1e-12))


@pytest.mark.filterwarnings("ignore:.*rows miss features worth more")
def test_certain_rows_keep_their_class_at_every_corner_and_others_do_not(case):
    model, X, holes = case
    certain = model.is_certain(holes)
    assert 0 < certain.mean() < 1
    for row, claim, label in zip(holes, certain, model.predict(holes), strict=True):
        labels = model.predict(corners(row, X.min(axis=0), X.max(axis=0)))
        assert claim == np.all(labels == label)


def test_class_that_no_value_in_the_range_has_is_not_certain(case):
    model, X, _ = case
    row = np.where(np.arange(4) == 0, NAN, X[:1])
    rest = model.predict(row)
    ends = [(value, value + 1) for value in (-1e3, 1e3) if model.predict(np.nan_to_num(row, nan=value))[0] != rest[0]]
    assert ends
    for lower, upper in ends:
        assert not model.is_certain(row, lower=lower, upper=upper)[0]
        assert model.is_certain(row, lower=0.0, upper=0.0)[0]


def test_stated_ranges_replace_the_learned_ones(case):
    model, X, holes = case
    zeros = [model.score_interval(holes, lower=0.0, upper=0.0)[side] for side in (0, 1)]
    assert_array_equal(*zeros)
    with pytest.warns(UserWarning, match="rows miss features worth more"):
        assert_array_equal(zeros[0], model.decision_function(holes))
    low, high = model.score_interval(holes, lower=-np.inf, upper=np.inf)
    missed = np.isnan(holes).any(axis=1)
    assert np.all(np.isinf(low[missed]))
    assert np.all(np.isinf(high[missed]))
    assert_array_equal(model.is_certain(holes, lower=-np.inf, upper=np.inf), ~missed)
    wide = model.score_interval(holes, lower=X.min(axis=0) - 1, upper=X.max(axis=0) + 1)
    assert np.all(wide[0] <= model.score_interval(holes)[0])


def test_feature_never_seen_has_an_infinite_range_unless_its_weight_is_zero(several_classes):
    X, y = several_classes((30, 25), 3)
    X[:, 1] = NAN
    model = FeatureDeletionPerceptron(1.0, missing="delete").fit(X, y)
    assert model.coef_[0, 1] == 0
    assert_array_equal(np.isnan(model.feature_range_), [[False, True, False]] * 2)
    assert np.all(np.isfinite(model.score_interval(X)))
    model.coef_[0, 1] = 0.1
    assert np.all(np.isinf(model.score_interval(X)))


def test_missing_entries_are_left_out_of_the_score(case):
    model, _, holes = case
    scores = np.nansum(holes[:, None, :] * model.coef_, axis=2) + model.intercept_
    with pytest.warns(UserWarning, match=r"of \d+ rows miss features worth more than budget=1, up to"):
        found = model.decision_function(holes)
    assert_allclose(found.reshape(scores.shape), scores)


def test_rows_within_the_budget_are_scored_without_a_warning(case):
    model, X, _ = case
    one = X.copy()
    one[:, 2] = NAN
    model.predict(one)
    one[0, 0] = NAN
    with pytest.warns(UserWarning, match="1 of .* up to 2: more than the model was trained for"):
        model.predict(one)


TRAINED_FOR_DELETION = [
    FeatureDeletionClassifier(1.0),
    FeatureDeletionPerceptron(1.0, random_state=0),
    RobustLinearClassifier(FeatureDeletion(1)),
]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("model", TRAINED_FOR_DELETION, ids=lambda model: type(model).__name__)
def test_missing_values_after_training_without_any_are_never_a_silent_zero(model, layout, several_classes):
    """The trap of LightGBM's issue 4040: there a NaN at prediction counts as 0 where training had none, without a word."""
    X, y = several_classes((30, 25), 6)
    model = clone(model).fit(X, y)
    holes = X.copy()
    holes[0, 1] = NAN
    for ask in (model.predict, model.decision_function, lambda rows: model.score(rows, y)):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            ask(layout(holes))
        with pytest.raises(ValueError, match="infinity"):
            ask(layout(np.where(np.isnan(holes), np.inf, X)))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clone(model).fit(layout(holes), y)


@pytest.mark.parametrize("model", TRAINED_FOR_DELETION[:2], ids=lambda model: type(model).__name__)
def test_missing_values_are_left_out_only_on_request_and_the_error_says_how(model, several_classes):
    X, y = several_classes((30, 25), 6)
    model = clone(model).fit(X, y)
    holes = X.copy()
    holes[0, 1] = NAN
    for ask in (model.predict, model.decision_function):
        with pytest.raises(ValueError, match=r"Input X contains NaN in column 1\. .* set missing='delete'"):
            ask(holes)
    with pytest.raises(ValueError, match=r"fit: Input X contains NaN in column 1"):
        clone(model).fit(holes, y)
    model.set_params(missing="delete")
    scores = model.decision_function(holes)
    assert_allclose(scores[0], np.delete(X[0] * model.coef_[0], 1).sum() + model.intercept_[0])
    assert_allclose(scores[1:], model.decision_function(X)[1:])


def test_error_names_columns_of_frames_and_not_too_many(several_classes):
    X, y = several_classes((30, 25), 8)
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = FeatureDeletionPerceptron(1.0).fit(frame, y)
    frame.loc[3, "c"] = NAN
    with pytest.raises(ValueError, match="NaN in column 'c'"):
        model.predict(frame)
    with pytest.raises(ValueError, match="NaN in columns 'a', 'b', 'c', 'd', 'e' and 3 more"):
        model.predict(frame * NAN)
    report = model.missing_report(frame)
    assert report.rows.sum() == 1


def test_report_counts_what_is_missing(case):
    model, _, holes = case
    gone = np.isnan(holes)
    report = model.missing_report(holes)
    assert_allclose(report.features, gone.mean(axis=0))
    assert_allclose(report.rows, gone @ [1, 2, 1, 1])
    assert_array_equal(report.over_budget, gone @ [1, 2, 1, 1] > 1)
    assert_array_equal(report.certain, model.is_certain(holes))
    assert report.share_certain == np.mean(report.certain)


def test_sparse_rows_tell_the_same(case):
    model, _, holes = case
    holes = np.where(np.abs(holes) < 0.3, 0.0, holes)
    kept = sparse.csr_array(holes)
    assert_allclose(model.score_interval(kept), model.score_interval(holes))
    assert_array_equal(model.is_certain(kept), model.is_certain(holes))
    mine, other = model.missing_report(kept), model.missing_report(holes)
    for name in ("features", "rows", "over_budget", "certain"):
        assert_allclose(getattr(mine, name), getattr(other, name))
    assert_array_equal(np.isnan(kept.toarray()), np.isnan(holes))


def test_training_rows_may_miss_features_and_sparse_ones_agree(several_classes):
    X, y = several_classes((30, 25), 4)
    X[np.random.default_rng(2).uniform(size=X.shape) < 0.2] = NAN
    X[np.abs(X) < 0.3] = 0.0
    settings = {"missing": "delete", "shuffle": False}
    dense, kept = (FeatureDeletionPerceptron(1.0, **settings).fit(rows, y) for rows in (X, sparse.csr_array(X)))
    filled = FeatureDeletionPerceptron(1.0, shuffle=False).fit(np.nan_to_num(X), y)
    for other in (kept, filled):
        assert_allclose(other.coef_, dense.coef_, atol=1e-13)
    assert_allclose(kept.feature_range_, dense.feature_range_)
    assert_allclose(dense.feature_range_, [np.nanmin(X, axis=0), np.nanmax(X, axis=0)])


def test_ranges_widen_with_parts_and_are_learned_anew_by_fit():
    model = FeatureDeletionPerceptron(0.5, missing="delete", horizon=4, radius=10.0)
    model.partial_fit([[1.0, NAN], [-1.0, NAN]], [0, 1], classes=[0, 1])
    model.partial_fit([[3.0, 2.0], [NAN, 4.0]], [0, 1])
    assert_array_equal(model.feature_range_, [[-1.0, 2.0], [3.0, 4.0]])
    model.fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    assert_array_equal(model.feature_range_, [[0.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((2.0, 1.0), "lower=2 is above upper=1 for feature 0"),
        (([0.0, 1.0], None), r"score_interval\(lower=\[0.0, 1.0\]\): give one number, or one for each of 4"),
        ((None, NAN), r"score_interval\(upper=nan\)"),
    ],
)
def test_ranges_that_are_none_are_refused(case, ends, message):
    model, _, holes = case
    with pytest.raises(ValueError, match=message):
        model.score_interval(holes, **dict(zip(("lower", "upper"), ends, strict=False)))
