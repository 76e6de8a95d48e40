"""Adversaries that delete features, against enumeration of all subsets."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import FeatureDeletion
from holdfast.uncertainty.deletions import deletions_survived, feature_values, random_deletions, worst_deletions

SUBSETS = np.array(list(product([False, True], repeat=7)))


def _best(gains, budget, values):
    """Return the largest gain of any whole deletion within the budget, row by row."""
    with np.errstate(invalid="ignore"):
        prices = np.where(SUBSETS, values, 0.0).sum(axis=1)
    return (gains @ SUBSETS[prices <= budget].T).max(axis=1)


@pytest.fixture
def gains(rng):
    out = rng.normal(size=(30, 7)) + 0.3
    out[rng.uniform(size=out.shape) < 0.2] = 0.0
    return out


@pytest.mark.parametrize(
    "values",
    [
        None,
        [1, 1, 1, 0, 1, 1, 1],
        [0.3] * 7,
        [1, 2, 3, 1, 4, 2, 0],
        [2, np.inf, 3, 1, 4, 2, 5],
        [1, 1, np.inf, 1, 1, 1, 1],
    ],
    ids=str,
)
def test_exact_adversary_is_the_best_of_all_subsets(gains, values):
    costs = np.ones(7) if values is None else np.asarray(values, dtype=float)
    for budget in (0, 0.9, 1, 2, 3, 4.5, 7, 100):
        chosen = worst_deletions(gains, budget, values)
        assert chosen.dtype == bool
        assert np.all(np.where(chosen, costs, 0.0).sum(axis=1) <= budget * (1 + 1e-12))
        assert_allclose(np.sum(gains * chosen, axis=1), _best(gains, budget, costs), rtol=1e-12, atol=1e-14)


def test_three_copies_of_a_third_fit_a_budget_of_one():
    assert worst_deletions([[1.0, 1.0, 1.0]], 3 * 0.1, [0.1] * 3).sum() == 3


def test_parts_of_features_do_at_least_as_much_as_whole_ones_and_greed_no_more(gains):
    values = np.array([1, 2, 3, 1, 4, 2, 1.0])
    for budget in (1, 2.5, 4, 6):
        best = _best(gains, budget, values)
        parts = np.sum(gains * worst_deletions(gains, budget, values, adversary="relaxed"), axis=1)
        greedy = worst_deletions(gains, budget, values, adversary="greedy")
        assert np.all(greedy @ values <= budget)
        assert np.all(parts >= best * (1 - 1e-12))
        assert np.all(np.sum(gains * greedy, axis=1) <= best * (1 + 1e-12))
        # at most one feature is deleted in part, and leaving it out is a whole deletion
        assert np.all(parts - best <= gains.max(axis=1))
    assert np.any(np.sum(gains * greedy, axis=1) < best * (1 - 1e-6))


def test_greed_is_not_the_best():
    gains, values = [[3.0, 10.0]], [1, 4]
    assert np.sum(worst_deletions(gains, 4, values, adversary="greedy") * gains) == 3.0
    assert np.sum(worst_deletions(gains, 4, values) * gains) == 10.0


def test_relaxed_adversary_attains_the_support_of_the_set(gains, rng):
    values, w, y = rng.uniform(0.5, 2, size=7), rng.normal(size=7), rng.choice([-1.0, 1.0], size=30)
    chosen = worst_deletions(y[:, None] * w * gains, 2.5, values, adversary="relaxed")
    support = FeatureDeletion(2.5, values).at(gains, {}).against_labels(y).support(w)
    assert_allclose(np.sum(chosen * y[:, None] * w * gains, axis=1), support, rtol=1e-12)


@pytest.mark.parametrize("adversary", ["exact", "relaxed", "greedy"])
def test_sparse_gains_give_the_same_deletions(gains, adversary):
    values = [1, 2, 3, 1, 4, 2, 0]
    thin = worst_deletions(sparse.csr_array(gains), 4, values, adversary=adversary)
    assert sparse.issparse(thin)
    assert np.array_equal(thin.toarray(), worst_deletions(gains, 4, values, adversary=adversary))


def test_random_deletions_are_of_nonzero_features_and_use_up_the_budget(gains):
    chosen = random_deletions(np.tile(gains, (200, 1)), 3, random_state=0)
    X = np.tile(gains, (200, 1))
    assert np.all(X[chosen] != 0)
    assert np.array_equal(chosen.sum(axis=1), np.minimum(3, (X != 0).sum(axis=1)))
    often = chosen.reshape(200, 30, 7).mean(axis=0)
    expected = np.where(gains != 0, 3 / np.maximum((gains != 0).sum(axis=1), 3)[:, None], 0.0)
    assert_allclose(often, expected, atol=0.17)
    assert np.array_equal(random_deletions(X, 3, random_state=0), chosen)
    assert np.array_equal(random_deletions(sparse.csr_array(X), 3, random_state=0).toarray(), chosen)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_rows_survive_as_many_deletions_as_enumeration_says(n_classes, gains, rng):
    W, b = rng.normal(size=(n_classes, 7)), rng.normal(size=n_classes)
    found = deletions_survived(W, b, gains)
    assert np.array_equal(deletions_survived(W, b, sparse.csr_array(gains)), found)
    full, shift = (np.vstack([np.zeros(7), W]), np.append(0.0, b)) if n_classes == 1 else (W, b)
    for x, survived in zip(gains, found, strict=True):
        scores = (x * ~SUBSETS) @ full.T + shift
        changed = scores.argmax(axis=1) != (full @ x + shift).argmax()
        sizes = SUBSETS.sum(axis=1)[changed]
        assert survived == (sizes.min() - 1 if len(sizes) else np.inf)


@pytest.mark.parametrize(
    "values", [np.ones(5), np.array([0.0, 2.0, 2.0, np.inf, 2.0]), np.array([1.0, 2.0, 0.5, 3.0, 1.5])]
)
def test_value_survived_by_enumeration(values, rng):
    gains, margins = rng.normal(size=(200, 5)) + 0.2, rng.uniform(0, 2, size=200)
    sets = np.array([D for D in product((False, True), repeat=5) if np.isfinite(values[list(D)].sum())])
    worth = np.array([values[D].sum() for D in sets])
    least = np.where(margins[:, None] <= gains @ sets.T, worth, np.inf).min(axis=1)
    # what is never deleted makes up the margins
    X = np.column_stack([gains, margins - gains.sum(axis=1)])
    survived = deletions_survived(np.ones(6), 0.0, X, np.append(values, np.inf))
    assert np.array_equal(np.isinf(survived), np.isinf(least))
    some = np.isfinite(least)
    if len(np.unique(values[np.isfinite(values) & (values > 0)])) == 1:
        assert np.array_equal(survived[some], np.maximum(least[some] - values[1], 0.0))
    else:
        assert np.all(survived[some] <= least[some] + 1e-12)
        assert np.all(survived[some] > least[some] - values.max())


def test_ties_up_to_rounding_count_against_the_prediction(rng):
    assert deletions_survived([0.1, 0.2, 0.3], 0.0, [[1.0, 1.0, 1.0]]) == 2
    for _ in range(200):
        w = rng.uniform(0.1, 1, size=6)
        assert deletions_survived(w, 0.0, np.ones((1, 6))) == 5


def test_no_whole_deletion_worth_less_than_the_budget_survived_changes_a_prediction(gains, rng):
    w, values = rng.normal(size=7), np.array([0.5, 1.3, 2, 0.7, 1, np.inf, 0.2])
    found = deletions_survived(w, 0.1, gains, values)
    assert np.isfinite(found).any()
    with np.errstate(invalid="ignore"):
        prices = np.where(SUBSETS, values, 0.0).sum(axis=1)
    for x, survived in zip(gains, found, strict=True):
        f = w @ x + 0.1
        changed = ((x * ~SUBSETS) @ w + 0.1 > 0) != (f > 0)
        assert np.all(prices[changed] >= survived)
        if 0 < survived < np.inf:
            # in parts it takes no more than that
            bound = FeatureDeletion(survived, values).at(x[None], {}).against_labels(np.array([1.0 if f > 0 else -1.0]))
            assert_allclose(bound.support(w), abs(f), rtol=1e-9)


def test_copies_of_the_label_are_the_most_valuable_features(rng):
    y = rng.integers(3, size=600)
    X = np.column_stack([y, -2.5 * y, y + rng.normal(size=600), rng.normal(size=600), np.ones(600)])
    v = feature_values(X, y)
    assert_allclose(v.mean(), 1)
    assert_allclose(v[0], v[1])
    assert v[1] > v[2] > v[3] > v[4] == 0
    assert_allclose(feature_values(sparse.csr_array(X), y), v)
    entropy = -sum(p * np.log(p) for p in np.bincount(y) / 600)
    assert_allclose(v[3] / v[0], _plug_in(X[:, 3], y) / entropy, rtol=1e-12)


def _plug_in(x, y):
    bins = np.searchsorted(np.quantile(x, np.arange(1, 10) / 10), x, side="right")
    total = 0.0
    for k, c in product(range(10), range(3)):
        p = np.mean((bins == k) & (y == c))
        total += p * np.log(p / (np.mean(bins == k) * np.mean(y == c))) if p > 0 else 0.0
    return total


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: worst_deletions(np.ones((2, 2)), 1, [1.5, 2]), "adversary='relaxed'"),
        (
            lambda: worst_deletions(np.ones((2, 2)), 1, adversary="best"),
            r"worst_deletions\(..., adversary='best'\): give",
        ),
        (lambda: worst_deletions(np.ones((2, 4)), 1.5e9, [1e9, 1, 1e9 + 1, 7]), "coarser unit"),
        (lambda: worst_deletions(np.ones((2, 2)), True), "budget=True"),
        (lambda: worst_deletions(np.ones((2, 2)), -1), "finite number >= 0"),
        (lambda: worst_deletions(np.ones((2, 2)), 1, [1, 2, 3]), "one for each feature"),
        (lambda: worst_deletions(np.ones((2, 2)), 1, [1, np.nan]), "must be >= 0"),
        (lambda: deletions_survived(np.ones(3), 0.0, np.ones((2, 2))), "do not fit"),
        (lambda: feature_values(np.ones((3, 2)), [0, 1, 1]), "none is worth"),
        (lambda: feature_values(np.eye(3), [0, 1]), "one label"),
        (lambda: feature_values(np.eye(3), [0, 1, 1], method="variance"), "mutual_information"),
    ],
)
def test_wrong_numbers_are_refused_with_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
