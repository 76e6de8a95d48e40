import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from holdfast.evaluate import (
    CorruptFeatures,
    DeleteFeatures,
    FlipLabels,
    Perturbation,
    Quantize,
    RandomNoise,
    UniformNoise,
)

PERTURBATIONS = [example for cls in Perturbation.__subclasses__() for example in cls.examples()]
every = pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=repr)


def rows(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.uniform(size=(n, 4)) < 0.3, 0.0, rng.normal(size=(n, 4)))
    return X, np.arange(n) % 3


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
    if isinstance(perturbation, UniformNoise | Quantize | DeleteFeatures):
        assert bounds is not None
    if bounds is not None:
        sets = bounds.uncertainty.at(X, bounds.metadata)
        for seed in range(20):
            assert sets.contains(applied(perturbation, X, y, 1.0, model, seed)[0] - X).all()


@pytest.mark.parametrize(
    "perturbation", [UniformNoise(1e-9), UniformNoise(X_std=np.full((12, 4), 1e-9)), Quantize(1e-9)]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bounds_hold_what_rounding_adds_to_large_values(perturbation, dtype):
    X, y = rows()
    X = (X * 1e7 + 3.3).astype(dtype)
    bounds = perturbation.bounds(X, 1.0)
    sets = bounds.uncertainty.at(X, bounds.metadata)
    for seed in range(20):
        Z = applied(perturbation, X, y, 1.0, None, seed)[0]
        assert sets.contains(Z.astype(np.float64) - X.astype(np.float64), slack=1e-12).all()


@every
def test_it_is_a_parameter_object(perturbation):
    assert clone(perturbation) == perturbation
    assert type(perturbation).__name__ in repr(perturbation)
    assert perturbation.unit


@every
@pytest.mark.parametrize("level", [-1.0, np.nan, "much", [1.0, 2.0]])
def test_levels_are_checked(perturbation, model, level):
    X, y = rows()
    with pytest.raises(ValueError, match="level"):
        applied(perturbation, X, y, level, model)


def test_random_noise_has_the_stated_moments():
    S = np.array([[1.0, 0.0], [0.5, 2.0]])
    draws = np.array(
        [applied(RandomNoise(2.0, X_std=S), np.ones((2, 2)), [0, 1], 1.5, None, k)[0] for k in range(1500)]
    )
    assert_allclose(draws.mean(axis=0), 1.0, atol=0.5)
    assert_allclose(draws.std(axis=0), 3 * S, rtol=0.08)
    F = np.array([[[1.0], [2.0]], [[0.0], [1.0]]])
    draws = np.array([applied(RandomNoise(X_factor=F), np.zeros((2, 2)), [0, 1], 0.5, None, k)[0] for k in range(1500)])
    for i in range(2):
        assert_allclose(np.cov(draws[:, i].T), 0.25 * F[i] @ F[i].T, atol=0.12)


def test_uniform_noise_fills_its_box():
    draws = applied(UniformNoise([2.0, 0.0]), np.zeros((4000, 2)), np.zeros(4000), 0.5, None)[0]
    assert draws[:, 0].min() == pytest.approx(-1, abs=0.01)
    assert draws[:, 0].max() == pytest.approx(1, abs=0.01)
    assert draws[:, 0].std() == pytest.approx(1 / np.sqrt(3), rel=0.03)
    assert not np.any(draws[:, 1])


def test_sparse_noise_leaves_sparse_rows_sparse():
    X, S = sparse.csr_matrix(np.eye(4)), sparse.csr_array(np.eye(4))
    found, _ = applied(RandomNoise(X_std=S), X, np.zeros(4), 1.0, None)
    assert sparse.issparse(found)
    assert found.nnz == 4
    assert np.all(found.diagonal() != 1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_random_deletion_deletes_as_many_nonzero_features_as_there_are(k):
    X, y = rows()
    found, _ = applied(DeleteFeatures(), X, y, k, None)
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
        assert_allclose(leads(applied(DeleteFeatures("exact"), X, y, k, model)[0]), worst, atol=1e-12)


def test_greedy_deletion_is_no_worse_than_chance_and_no_better_than_the_best(model):
    X, y = rows(40)
    X = X + y[:, None]
    values = [1.0, 2.0, 3.0, 1.0]
    right = {
        name: np.mean(model.predict(applied(DeleteFeatures(name, values=values), X, y, 3.0, model)[0]) == y)
        for name in ("random", "greedy", "exact")
    }
    assert right["exact"] <= right["greedy"] < right["random"]


def test_corruption_replaces_as_many_features_by_bounded_noise(model):
    X, y = np.full((50, 4), 10.0), np.arange(50) % 3
    found, _ = applied(CorruptFeatures(scale=[1.0, 2.0, 3.0, 4.0]), X, y, 2, model)
    assert_array_equal((found != 10.0).sum(axis=1), 2)
    assert np.all((found == 10.0) | (np.abs(found) <= [1.0, 2.0, 3.0, 4.0]))
    signs, _ = applied(CorruptFeatures(noise="sign", scale=2.0), X, y, 1, model)
    assert set(np.unique(signs)) == {-2.0, 2.0, 10.0}
    aimed, _ = applied(CorruptFeatures("greedy"), X, y, 1, model)
    deleted, _ = applied(DeleteFeatures("greedy"), X, y, 1, model)
    assert_array_equal(aimed != X, deleted != X)


def test_as_many_labels_are_flipped_as_stated_each_to_another_class():
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    found = FlipLabels().apply(np.zeros((90, 1)), y, 0.4, np.random.default_rng(0))[1]
    assert np.sum(found != y) == 36
    assert set(found) == {"a", "b", "c"}
    assert {new for old, new in zip(y, found, strict=True) if old == "a" and new != old} == {"b", "c"}


def test_quantized_values_are_multiples_of_the_step():
    X = np.random.default_rng(0).normal(size=(20, 2))
    found, _ = applied(Quantize([0.5, 0.0]), X, np.zeros(20), 0.5, None)
    assert_allclose(found[:, 0] / 0.25, np.round(found[:, 0] / 0.25))
    assert_array_equal(found[:, 1], X[:, 1])


@pytest.mark.parametrize(
    ("perturbation", "level", "text"),
    [
        (RandomNoise(-1.0), 1, r"RandomNoise\(std=-1\): std must be >= 0"),
        (RandomNoise([1.0, 2.0]), 1, r"std has shape \(2,\)"),
        (RandomNoise(X_std=np.ones((3, 4))), 1, "X_std has shape"),
        (RandomNoise(X_std=np.ones((12, 4)), X_factor=np.ones((12, 4, 1))), 1, "twice"),
        (RandomNoise([1.0] * 4, X_std=np.ones((12, 4))), 1, "one number that multiplies"),
        (RandomNoise(X_factor=np.ones((12, 3, 1))), 1, "X_factor has shape"),
        (DeleteFeatures("clever"), 1, "adversary=.*give 'random'"),
        (CorruptFeatures("exact"), 1, "adversary=.*give 'random'"),
        (CorruptFeatures(), 1.5, "a number of features"),
        (CorruptFeatures(), 5, "of which X has 4"),
        (CorruptFeatures(scale=-1.0), 1, ">= 0"),
        (FlipLabels(), 1.5, "a share of the labels"),
        (Quantize(-0.1), 1, ">= 0"),
    ],
)
def test_parameters_are_checked_where_they_are_used(perturbation, level, text, model):
    X, y = rows()
    with pytest.raises(ValueError, match=text):
        applied(perturbation, X, y, level, model)


def test_adversaries_say_what_they_need():
    X, y = rows()
    with pytest.raises(ValueError, match="needs to know the model"):
        applied(DeleteFeatures("exact"), X, y, 1, None)
    with pytest.raises(TypeError, match="no certificate is known"):
        applied(DeleteFeatures("exact"), X, y, 1, DecisionTreeClassifier().fit(X, y))


@pytest.mark.parametrize("perturbation", [FlipLabels(), DeleteFeatures("exact"), CorruptFeatures("greedy")], ids=repr)
@pytest.mark.parametrize("stranger", [-1, 1.5, 7, "a"])
def test_labels_that_the_model_does_not_know_are_refused(perturbation, stranger, model):
    X, y = rows()
    y = y.astype(np.asarray([stranger]).dtype)
    y[3] = stranger
    with pytest.raises(ValueError, match=rf"{stranger}.*which the model does not know: its classes are \[0, 1, 2\]"):
        applied(perturbation, X, y, 1, model)
