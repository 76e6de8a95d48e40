import itertools
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    CorruptedFeatures,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    LabelFlips,
)
from holdfast.evaluate import Quantize, compare, robustness_curve
from holdfast.evaluate.perturbations import checked_perturbation


def rows(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.uniform(size=(n, 4)) < 0.3, 0.0, rng.normal(size=(n, 4)))
    return X, np.arange(n) % 3


def made(uncertainty, adversary="random", X=None, **metadata):
    return checked_perturbation(uncertainty, adversary, metadata, rows()[0] if X is None else X, "f")


def examples():
    rng = np.random.default_rng(0)
    S = rng.uniform(size=(12, 4))
    return [
        made(GaussianNoise(0.3)),
        made(GaussianNoise([0.1, 0.0, 1.0, 2.0])),
        made(GaussianNoise(), X_std=S),
        made(GaussianNoise(0.5), X_factor=rng.normal(size=(12, 4, 2))),
        made(GaussianNoise(0.1) + Box(0.1)),
        made(Box(0.3)),
        made(Box(half_widths=[0.1, 0.0, 1.0, 2.0])),
        made(Box(0.5), X_std=S),
        made(IntervalBox(-0.1, [0.2, 0.0, 1.0, 0.0])),
        made(Ball(0.5, norm=1)),
        made(Ellipsoid(0.5), X_std=S),
        made(Ball(0.2) + Box(0.1)),
        *(made(chosen, "exact") for chosen in (Box(0.3), Ball(0.5), IntervalBox(-0.1, [0.2, 0.0, 1.0, 0.0]))),
        made(Ball(0.2) + Box(0.1), "greedy"),
        made(FeatureDeletion(1)),
        made(FeatureDeletion(1, [1.0, 2.0, 1.0, np.inf]), "greedy"),
        made(FeatureDeletion(2), "exact"),
        made(FeatureDeletion(1.5, share=0.5), "relaxed"),
        made(FeatureDeletion(1, filler=[0.5, 0.0, 1.0, 0.0]), "exact"),
        made(CorruptedFeatures(1)),
        made(CorruptedFeatures(2, noise="sign", scale=[1.0, 2.0, 0.5, 3.0]), "greedy"),
        made(LabelFlips(0.5)),
        made(LabelFlips({0: 2, 1: 0.5, 2: 0})),
        made(Quantize(0.3)),
        made(Quantize([0.1, 0.0, 1.0, 2.0])),
    ]


every = pytest.mark.parametrize("perturbation", examples(), ids=lambda made: f"{made!r:.90}")


@pytest.fixture(scope="module")
def model():
    X, y = rows(60, 1)
    return LogisticRegression().fit(X + y[:, None], y)


def applied(perturbation, X, y, level, model, seed=0):
    return perturbation.apply(X, y, level, np.random.default_rng(seed), model)


@every
def test_at_level_zero_nothing_happens_and_nothing_is_written_into_the_rows(perturbation, model):
    X, y = rows()
    before = X.copy(), y.copy()
    Z, labels = applied(perturbation, X, y, 0.0, model)
    assert_array_equal(Z, X)
    assert_array_equal(labels, y)
    applied(perturbation, X, y, 1.0, model)
    assert_array_equal(X, before[0])
    assert_array_equal(y, before[1])


@every
def test_nothing_is_written_into_sparse_rows(perturbation, model):
    X, y = rows()
    X[:, 0] *= 0.01
    given = sparse.csr_matrix(X)
    for level in (0.0, 1.0):
        applied(perturbation, given, y, level, model)
        assert_array_equal(given.toarray(), X)
        assert given.nnz == np.count_nonzero(X)


@every
def test_integers_are_perturbed_like_floats(perturbation, model):
    X, y = rows()
    X = np.round(3 * X).astype(int)
    expected, _ = applied(perturbation, X.astype(float), y, 1.0, model)
    assert_array_equal(applied(perturbation, X, y, 1.0, model)[0], expected)
    found, _ = applied(perturbation, sparse.csr_matrix(X), y, 1.0, model)
    assert_allclose(found.toarray() if sparse.issparse(found) else found, expected, atol=1e-14)
    bounds, plain = (perturbation.bounds(Z, 1.0) for Z in (X, X.astype(float)))
    assert (bounds is None) == (plain is None)


@every
def test_the_seed_alone_decides(perturbation, model):
    X, y = rows()
    (one, first), (same, second) = (applied(perturbation, X, y, 1.0, model) for _ in range(2))
    assert_array_equal(one, same)
    assert_array_equal(first, second)
    other, third = applied(perturbation, X, y, 1.0, model, seed=1)
    assert (np.any(one != other) or np.any(first != third)) == perturbation.is_random


@pytest.mark.thin(3)
@every
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, np.float32])
def test_sparse_and_float32_rows_are_perturbed_alike(perturbation, model, kind):
    X, y = rows()
    X = X.astype(np.float32).astype(np.float64)
    given = X.astype(kind) if kind is np.float32 else kind(X)
    found, labels = applied(perturbation, given, y, 1.0, model)
    expected, same = applied(perturbation, X, y, 1.0, model)
    assert_allclose(found.toarray() if sparse.issparse(found) else found, expected, atol=1e-6)
    assert_array_equal(labels, same)
    assert found.shape == X.shape


@every
def test_all_that_happens_stays_in_the_bounds(perturbation, model):
    X, y = rows()
    bounds = perturbation.bounds(X, 1.0)
    noises = (GaussianNoise, CorruptedFeatures, LabelFlips)
    chosen = getattr(perturbation, "uncertainty", perturbation)
    assert (bounds is None) == isinstance(getattr(chosen, "first", chosen), noises)
    if bounds is not None:
        sets = bounds.uncertainty.at(X, bounds.metadata)
        for seed in range(5):
            assert sets.contains(applied(perturbation, X, y, 1.0, model, seed)[0] - X).all()


@pytest.mark.parametrize(
    "perturbation", [made(Box(1e-9)), made(Box(), X_std=np.full((12, 4), 1e-9)), made(Ball(1e-9)), made(Quantize(1e-9))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bounds_hold_what_rounding_adds_to_large_values(perturbation, dtype):
    X, y = rows()
    X = (X * 1e7 + 3.3).astype(dtype)
    bounds = perturbation.bounds(X, 1.0)
    sets = bounds.uncertainty.at(X, bounds.metadata)
    for seed in range(8):
        Z = applied(perturbation, X, y, 1.0, None, seed)[0]
        assert sets.contains(Z.astype(np.float64) - X.astype(np.float64), slack=1e-12).all()


@every
def test_it_says_what_a_level_counts(perturbation):
    assert re.match("(multiple|share|value) of |deleted|corrupted", perturbation.unit)


def test_rounding_is_a_parameter_object():
    assert clone(Quantize(0.5)) == Quantize(0.5)
    assert repr(Quantize(0.5)) == "Quantize(step=0.5)"


@pytest.mark.thin(2)
@every
@pytest.mark.parametrize("level", [-1.0, np.nan, "much", [1.0, 2.0]])
def test_levels_are_checked(perturbation, model, level):
    X, y = rows()
    with pytest.raises(ValueError, match="level"):
        applied(perturbation, X, y, level, model)


def test_noise_has_the_stated_moments():
    S = np.array([[1.0, 0.0], [0.5, 2.0]])
    draws = np.array(
        [applied(made(GaussianNoise(2.0), X_std=S), np.ones((2, 2)), [0, 1], 1.5, None, k)[0] for k in range(1500)]
    )
    assert_allclose(draws.mean(axis=0), 1.0, atol=0.5)
    assert_allclose(draws.std(axis=0), 3 * S, rtol=0.08)
    F = np.array([[[1.0], [2.0]], [[0.0], [1.0]]])
    noise = made(GaussianNoise(), X_factor=F)
    draws = np.array([applied(noise, np.zeros((2, 2)), [0, 1], 0.5, None, k)[0] for k in range(1500)])
    for i in range(2):
        assert_allclose(np.cov(draws[:, i].T), 0.25 * F[i] @ F[i].T, atol=0.12)


def test_random_errors_fill_their_box():
    draws = applied(made(Box(half_widths=[2.0, 0.0])), np.zeros((4000, 2)), np.zeros(4000), 0.5, None)[0]
    assert draws[:, 0].min() == pytest.approx(-1, abs=0.01)
    assert draws[:, 0].max() == pytest.approx(1, abs=0.01)
    assert draws[:, 0].std() == pytest.approx(1 / np.sqrt(3), rel=0.03)
    assert not np.any(draws[:, 1])


def test_sparse_noise_leaves_sparse_rows_sparse():
    X, S = sparse.csr_matrix(np.eye(4)), sparse.csr_array(np.eye(4))
    found, _ = applied(made(GaussianNoise(), X_std=S), X, np.zeros(4), 1.0, None)
    assert sparse.issparse(found)
    assert found.nnz == 4
    assert np.all(found.diagonal() != 1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_random_deletion_deletes_as_many_nonzero_features_as_there_are(k):
    X, y = rows()
    found, _ = applied(made(FeatureDeletion(1)), X, y, k, None)
    assert_array_equal((found != 0).sum(axis=1), np.maximum((X != 0).sum(axis=1) - k, 0))
    assert_array_equal(found[found != 0], X[found != 0])


@pytest.mark.parametrize("scaled", [False, True])
def test_the_exact_deletion_is_the_worst_subset(scaled):
    X, y = rows(30)
    X = X + 0.5 * y[:, None]
    model = make_pipeline(StandardScaler(), LogisticRegression()) if scaled else LogisticRegression()
    model.fit(X, y)

    def leads(Z):
        scores = model.decision_function(Z)
        own = scores[np.arange(30), y]
        scores[np.arange(30), y] = -np.inf
        return own - scores.max(axis=1)

    for k in (1, 2):
        subsets = [np.isin(np.arange(4), gone) for n in range(k + 1) for gone in itertools.combinations(range(4), n)]
        worst = np.min([leads(np.where(gone, 0.0, X)) for gone in subsets], axis=0)
        assert_allclose(leads(applied(made(FeatureDeletion(1), "exact"), X, y, k, model)[0]), worst, atol=1e-12)


def test_greedy_deletion_is_no_worse_than_chance_and_no_better_than_the_best(model):
    X, y = rows(40)
    X = X + y[:, None]
    values = [1.0, 2.0, 3.0, 1.0]
    right = {
        name: np.mean(model.predict(applied(made(FeatureDeletion(1, values), name), X, y, 3.0, model)[0]) == y)
        for name in ("random", "greedy", "exact")
    }
    assert right["exact"] <= right["greedy"] < right["random"]


def test_corruption_replaces_as_many_features_by_bounded_noise(model):
    X, y = np.full((50, 4), 10.0), np.arange(50) % 3
    found, _ = applied(made(CorruptedFeatures(1, scale=[1.0, 2.0, 3.0, 4.0])), X, y, 2, model)
    assert_array_equal((found != 10.0).sum(axis=1), 2)
    assert np.all((found == 10.0) | (np.abs(found) <= [1.0, 2.0, 3.0, 4.0]))
    signs, _ = applied(made(CorruptedFeatures(1, noise="sign", scale=2.0)), X, y, 1, model)
    assert set(np.unique(signs)) == {-2.0, 2.0, 10.0}
    aimed, _ = applied(made(CorruptedFeatures(1), "greedy"), X, y, 1, model)
    deleted, _ = applied(made(FeatureDeletion(1), "greedy"), X, y, 1, model)
    assert_array_equal(aimed != X, deleted != X)


def test_as_many_labels_are_flipped_as_stated_each_to_another_class():
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    found = applied(made(LabelFlips(0.2)), np.zeros((90, 1)), y, 2, None)[1]
    assert np.sum(found != y) == 36
    assert set(found) == {"a", "b", "c"}
    assert {new for old, new in zip(y, found, strict=True) if old == "a" and new != old} == {"b", "c"}
    one = applied(made(LabelFlips(7)), np.zeros((90, 1)), y, 3, None)[1]
    assert np.sum(one != y) == 21
    own = applied(made(LabelFlips({"a": 0.5, "b": 3, "c": 0})), np.zeros((90, 1)), y, 1, None)[1]
    assert [np.sum((own != y) & (y == name)) for name in "abc"] == [15, 3, 0]


def test_quantized_values_are_multiples_of_the_step():
    X = np.random.default_rng(0).normal(size=(20, 2))
    found, _ = applied(Quantize([0.5, 0.0]), X, np.zeros(20), 0.5, None)
    assert_allclose(found[:, 0] / 0.25, np.round(found[:, 0] / 0.25))
    assert_array_equal(found[:, 1], X[:, 1])


@pytest.mark.parametrize(
    ("perturbation", "level", "text"),
    [
        (made(GaussianNoise(-1.0)), 1, r"GaussianNoise\(std=-1\): std must be >= 0"),
        (made(GaussianNoise([1.0, 2.0])), 1, r"std has shape \(2,\)"),
        (made(GaussianNoise(), X_std=np.ones((3, 4))), 1, "X_std has shape"),
        (made(GaussianNoise(), X_std=np.ones((12, 4)), X_factor=np.ones((12, 4, 1))), 1, "X_std and X_factor"),
        (made(GaussianNoise([1.0] * 4), X_std=np.ones((12, 4))), 1, "single number that multiplies"),
        (made(GaussianNoise(), X_factor=np.ones((12, 3, 1))), 1, "X_factor has shape"),
        (made(Box(0.1), X_cov=np.ones((12, 4, 4))), 1, "X_cov"),
        (made(ChanceConstraint(0.1, cov=1.0)), 1, "not which errors to draw from"),
        (made(FeatureDeletion(1, exactly=True)), 1, "exactly=False"),
        (made(FeatureDeletion(-1)), 1, "budget=-1"),
        (made(CorruptedFeatures(1)), 1.5, "1.5 is no number of features"),
        (made(CorruptedFeatures(5)), 1, "of which X has 4"),
        (made(CorruptedFeatures(1, scale=-1.0)), 1, ">= 0"),
        (made(LabelFlips(0.5)), 3, "18 labels are to flip, and there are 12"),
        (made(Quantize(-0.1)), 1, ">= 0"),
    ],
)
def test_parameters_are_checked_where_they_are_used(perturbation, level, text, model):
    X, y = rows()
    with pytest.raises(ValueError, match=text):
        applied(perturbation, X, y, level, model)


def test_adversaries_say_what_they_need():
    X, y = rows()
    with pytest.raises(ValueError, match="needs to know the model"):
        applied(made(FeatureDeletion(1), "exact"), X, y, 1, None)
    with pytest.raises(ValueError, match="needs to know the model"):
        applied(made(Box(1.0), "exact"), X, y, 1, None)
    with pytest.raises(TypeError, match="no certificate is known"):
        applied(made(FeatureDeletion(1), "exact"), X, y, 1, DecisionTreeClassifier().fit(X, y))
    with pytest.raises(TypeError, match="adversary='greedy' searches"):
        applied(made(Box(1.0), "exact"), X, y, 1, DecisionTreeClassifier().fit(X, y))


@pytest.mark.parametrize(
    ("uncertainty", "adversary", "options", "text"),
    [
        (0.5, "random", {}, r"f\(..., uncertainty=0.5\): give a set, such as"),
        (Box(1.0), "clever", {}, r"f\(..., adversary='clever'\): give 'random', 'greedy', 'exact' or 'relaxed'"),
        (
            Box(1.0),
            "relaxed",
            {},
            r"f\(..., Box\(...\), ..., adversary='relaxed'\): give 'random', 'greedy' or 'exact'",
        ),
        (CorruptedFeatures(1), "exact", {}, "adversary='exact'.*give 'random' or 'greedy'"),
        (LabelFlips(0.1), "greedy", {}, "adversary='greedy'.*give 'random'"),
        (GaussianNoise(1.0), "exact", {}, "is a noise, which has no bounds"),
        (
            FeatureDeletion(1),
            "random",
            {"X_std": np.ones((12, 4))},
            r"X_std=...\): FeatureDeletion\(budget=1\) does not",
        ),
        (Quantize(), "random", {"X_std": np.ones((12, 4))}, "does not take it"),
    ],
)
def test_sets_and_adversaries_that_do_not_go_together_are_refused(uncertainty, adversary, options, text):
    with pytest.raises(ValueError, match=text):
        made(uncertainty, adversary, **options)


@pytest.mark.parametrize("chosen", [Box(0.4), Ball(0.7), Ellipsoid(0.5, shape=np.diag([1.0, 4.0, 1.0, 0.0]))], ids=repr)
def test_no_draw_is_worse_for_a_linear_model_than_the_exact_point(chosen, model):
    X, y = rows(40, 3)
    X = X + y[:, None]
    curve = robustness_curve(model, X, y, chosen, [1.0, 2.0], adversary="exact")
    drawn = robustness_curve(model, X, y, chosen, [1.0, 2.0], n_repeats=30)
    assert np.all(curve.accuracy.min(axis=2) <= drawn.accuracy.min(axis=2))
    assert np.all(curve.certified <= curve.mean)
    assert curve.mean[0, 0] > curve.mean[0, 1]
    assert curve.adversary == "exact"


def test_a_search_finds_bad_points_of_models_without_a_formula():
    X, y = rows(40, 3)
    X = X + y[:, None]
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    found = robustness_curve(tree, X, y, Box(0.3), [1.0], adversary="greedy")
    assert found.mean[0, 0] < robustness_curve(tree, X, y, Box(0.3), [1.0]).mean[0, 0]


def test_frames_with_an_index_of_their_own_are_attacked_like_arrays(model):
    X, y = rows(40, 3)
    S = np.full(X.shape, 0.3)
    frame, errors = (pd.DataFrame(Z, columns=list("abcd"), index=np.arange(40) + 7) for Z in (X, S))
    named = LogisticRegression().fit(*(pd.DataFrame(rows(60, 1)[0], columns=list("abcd")), rows(60, 1)[1]))
    plain = LogisticRegression().fit(*rows(60, 1))
    for adversary in ("exact", "random"):
        found = robustness_curve(named, frame, y, Box(), [1.0], adversary=adversary, X_std=errors)
        expected = robustness_curve(plain, X, y, Box(), [1.0], adversary=adversary, X_std=S)
        assert_array_equal(found.accuracy, expected.accuracy)


def test_deleted_features_come_back_as_their_filler(model):
    X, y = rows()
    filled, _ = applied(made(FeatureDeletion(2, filler=[5.0, 6.0, 7.0, 8.0])), X, y, 1, model)
    is_gone = filled != X
    assert_array_equal(is_gone.sum(axis=1), 2)
    assert_allclose(filled[is_gone], np.broadcast_to([5.0, 6.0, 7.0, 8.0], X.shape)[is_gone])
    half, _ = applied(made(FeatureDeletion(1, share=0.5)), X, y, 4, model)
    assert_allclose(half, 0.5 * X)


def test_comparisons_take_adversaries_and_the_errors_of_rows(model):
    X, y = rows(40, 3)
    X = X + y[:, None]
    models = {"a": model, "b": LogisticRegression(C=0.01).fit(X, y)}
    aimed = compare(models, X, y, Box(), 0.5, adversary="exact", X_std=np.ones_like(X))
    drawn = compare(models, X, y, Box(), 0.5, X_std=np.ones_like(X))
    assert np.all(aimed.accuracy <= drawn.accuracy)
    assert "McNemar" in aimed.test


@pytest.mark.parametrize(
    "perturbation",
    [made(LabelFlips(0.5)), made(FeatureDeletion(1), "exact"), made(CorruptedFeatures(1), "greedy")],
    ids=repr,
)
@pytest.mark.parametrize("stranger", [-1, 1.5, 7, "a"])
def test_labels_that_the_model_does_not_know_are_refused(perturbation, stranger, model):
    X, y = rows()
    y = y.astype(np.asarray([stranger]).dtype)
    y[3] = stranger
    with pytest.raises(ValueError, match=rf"{stranger}.*which the model does not know: its classes are \[0, 1, 2\]"):
        applied(perturbation, X, y, 1, model)
