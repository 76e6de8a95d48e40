"""Deleted features as a set: its support by enumeration, formats, and what is refused."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import FeatureDeletion
from holdfast.uncertainty.ellipsoids import CommonEllipsoid

SUBSETS = np.array(list(product([0.0, 1.0], repeat=8)))


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(12, 8))
    X[rng.uniform(size=X.shape) < 0.3] = 0.0
    X[4] = 0.0
    return X, rng.choice([-1.0, 1.0], size=12)


@pytest.mark.parametrize("budget", range(1, 8))
def test_support_is_the_worst_of_all_whole_deletions(budget, rows, rng):
    (X, y), w = rows, rng.normal(size=8)
    kept = 1 - SUBSETS[SUBSETS.sum(axis=1) <= budget]
    margins = (y[:, None] * (X * w)) @ kept.T
    against_labels = FeatureDeletion(budget).at(X, {}).against_labels(y)
    assert_allclose(y * (X @ w) - against_labels.support(w), margins.min(axis=1), rtol=1e-12, atol=1e-14)
    worst = X - y[:, None] * against_labels.maximizer(w)
    assert_allclose(y * (worst @ w), margins.min(axis=1), rtol=1e-12, atol=1e-14)
    assert np.all((worst == X) | (worst == 0))


def test_deletions_in_parts_bound_whole_ones_from_above(rows, rng):
    (X, y), w, values = rows, rng.normal(size=8), np.array([1.0, 2.0, 0.7, 3.0, 0.0, np.inf, 1.5, 1.0])
    with np.errstate(invalid="ignore"):
        prices = np.where(SUBSETS > 0, values, 0.0).sum(axis=1)
    gains = y[:, None] * X * w
    for budget in (0.0, 0.5, 1.7, 4.0):
        best = (gains @ SUBSETS[prices <= budget].T).max(axis=1)
        t = FeatureDeletion(budget, values).at(X, {}).against_labels(y).support(w)
        assert np.all(t >= best * (1 - 1e-12))
        assert np.all(t <= best + gains.max(axis=1, initial=0.0) + 1e-12)
        tight = np.where(values > budget, np.inf, values)
        t_tight = FeatureDeletion(budget, tight).at(X, {}).against_labels(y).support(w)
        assert np.all((best * (1 - 1e-12) <= t_tight) & (t_tight <= t * (1 + 1e-12)))


def test_without_a_budget_only_free_features_move(rows):
    X, _ = rows
    assert isinstance(FeatureDeletion(0).at(X, {}), CommonEllipsoid)
    free = FeatureDeletion(0, [0.0] + [1.0] * 7).at(X, {})
    w = np.arange(1.0, 9.0)
    assert_allclose(free.support(w), np.maximum(-X[:, 0], 0.0))
    assert np.array_equal(free.exact_features(8), np.arange(8) > 0)


def test_undeletable_features_are_exact(rows):
    bound = FeatureDeletion(2, [1, np.inf, 1, 1, np.inf, 1, 1, 1]).at(rows[0], {})
    assert np.array_equal(np.flatnonzero(bound.exact_features(8)), [1, 4])


@pytest.mark.parametrize("delta", [None, 1e-8, 0.3])
def test_sparse_rows_have_the_sets_of_dense_ones(delta, rows, rng):
    (X, y), w, v = rows, rng.normal(size=8), rng.normal(size=8)
    first, second = rng.uniform(size=(2, 12))
    uncertainty = FeatureDeletion(2.5, rng.uniform(0.5, 2, size=8))
    pair = [uncertainty.at(rows_like, {}).against_labels(y) for rows_like in (X, sparse.csr_matrix(X))]
    wide, thin = pair if delta is None else [bound.smoothed(delta) for bound in pair]
    for one, other in (
        (wide.support(w), thin.support(w)),
        (wide.maximizer(w), thin.maximizer(w)),
        (wide.curvature(w, first, second), thin.curvature(w, first, second)),
        (wide.take(np.array([3, 4, 0])).support(w), thin.take(np.array([3, 4, 0])).support(w)),
    ):
        assert_allclose(one, other, rtol=1e-12, atol=1e-13 * np.abs(one).max())
    # bends of 1 / delta cancel in products
    rounding = 1e-12 if delta is None else 1e-14 / delta
    assert_allclose(wide.curvature_product(w, first, v), thin.curvature_product(w, first, v), rtol=1e-12, atol=rounding)


def test_large_sparse_rows_take_no_more_than_their_entries(rng):
    X = sparse.random_array((2000, 10**6), density=2e-5, rng=rng, format="csr")
    bound, w = FeatureDeletion(3).at(X, {}), rng.normal(size=10**6)
    smoothed = bound.smoothed(0.1)
    gap = smoothed.support(w) - bound.support(w)
    assert np.all((gap >= 0) & (gap <= 0.1 * (1 + 1e-12)))
    assert_allclose(smoothed.adjoint(w, np.ones(2000)) @ w, smoothed.directional(w, w).sum(), rtol=1e-12)


def test_share_is_what_a_deleted_feature_loses(rows, rng):
    (X, y), w = rows, rng.normal(size=8)
    whole, half = (FeatureDeletion(2, share=share).at(X, {}).against_labels(y) for share in (1.0, 0.5))
    assert_allclose(half.support(w), 0.5 * whole.support(w), rtol=1e-14)
    worst = X - y[:, None] * half.maximizer(w)
    assert np.all((worst == X) | (worst == 0.5 * X))
    assert FeatureDeletion(2, share=0.5).times(3.0).share == 1.5


def test_largest_absolute_reach_is_that_of_the_largest_entries(rows):
    X, _ = rows
    largest = np.sort(np.abs(X), axis=1)[:, ::-1][:, :3].sum(axis=1)
    assert_allclose(FeatureDeletion(3).at(X, {}).absolute_reach(8), largest, rtol=1e-14)


def test_points_that_delete_too_much_or_the_wrong_way_are_outside(rows):
    X, _ = rows
    bound = FeatureDeletion(2).at(X, {})
    full = np.flatnonzero((X[:, :3] != 0).all(axis=1))
    two, three, other_way = (-X * (np.arange(8) < k) for k in (2, 3, 0))
    other_way[:, 0] = 0.1 * X[:, 0]
    outside = X.copy() * 0
    outside[:, 5] = 1.0
    assert np.all(bound.contains(two))
    assert not np.any(bound.contains(three)[full])
    assert not np.any(bound.contains(other_way)[full])
    assert not np.any(bound.contains(outside)[X[:, 5] == 0])


@pytest.mark.parametrize(
    ("uncertainty", "message"),
    [
        (FeatureDeletion(-1), "budget=.*must be a finite number >= 0"),
        (FeatureDeletion(np.nan), "budget=.*must be a finite number >= 0"),
        (FeatureDeletion([1, 2]), "budget=.*must be a finite number >= 0"),
        (FeatureDeletion(8), "nothing is left to learn from"),
        (FeatureDeletion(2.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0, 0, 0]), "nothing is left"),
        (FeatureDeletion(1, [1.0] * 7), "one for each feature"),
        (FeatureDeletion(1, [1.0] * 7 + [-1]), "values must be >= 0"),
        (FeatureDeletion(1, [1.0] * 7 + [np.nan]), "values must be >= 0"),
        (FeatureDeletion(1, "mutual"), "must be numbers"),
        (FeatureDeletion(1, share=-0.1), "share=.*must be a finite number >= 0"),
    ],
    ids=repr,
)
def test_wrong_numbers_are_refused_with_what_to_do(uncertainty, message, rows):
    with pytest.raises(ValueError, match=message):
        uncertainty.at(rows[0], {})


def test_metadata_are_refused(rows):
    with pytest.raises(ValueError, match="does not take X_std"):
        FeatureDeletion(1).at(rows[0], {"X_std": rows[0]})


@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array])
def test_exactly_so_many_are_deleted_also_where_that_helps(rows, rng):
    X = np.where(rng.uniform(size=(20, 6)) < 0.4, 0.0, rng.normal(size=(20, 6)))
    y, w = rng.choice([-1.0, 1.0], size=20), rng.normal(size=6)
    gains = y[:, None] * X * w
    for K in (1, 4, 5):
        bound = FeatureDeletion(K, exactly=True).at(rows(X), {}).against_labels(y)
        assert_allclose(bound.support(w), np.sort(gains, axis=1)[:, -K:].sum(axis=1), atol=1e-12)
        assert_allclose(np.sum(bound.maximizer(w) * w, axis=1), bound.support(w), atol=1e-12)
        assert bound.contains(bound.maximizer(w)).all()
        smoothed = bound.smoothed(1e-2)
        above = smoothed.support(w) - bound.support(w)
        assert np.all((above >= -1e-12) & (above <= 1e-2 + 1e-12))
        for move in np.eye(6):
            slope = (smoothed.support(w + 1e-6 * move) - smoothed.support(w - 1e-6 * move)) / 2e-6
            assert_allclose(smoothed.maximizer(w) @ move, slope, atol=1e-6)
    assert np.any(FeatureDeletion(5, exactly=True).at(X, {}).against_labels(y).support(w) < 0)


def test_rows_with_enough_zeros_may_delete_these_and_need_no_dense_matrix(rng):
    values = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 3.0])
    X = rng.normal(size=(10, 6)) * (np.arange(6) != rng.integers(0, 6, size=(10, 1)))
    for budget in (0.5, 0.51):  # the cheapest zero is worth 0.5
        X[0] = [1.0, -1.0, 1.0, 0.0, 1.0, -1.0]
        exactly, up_to = (
            FeatureDeletion(budget, values, exactly=each).at(sparse.csr_array(X), {}) for each in (True, False)
        )
        assert exactly.has_origin == (budget == 0.5)
        assert exactly.moves.nnz == (np.count_nonzero(X) if budget == 0.5 else X.size)
        w = rng.normal(size=6)
        is_same = exactly.support(w) == pytest.approx(up_to.support(w), abs=1e-12)
        assert is_same or budget > 0.5


def test_draws_of_exactly_so_many_deletions_are_in_the_set_and_fewer_are_not(rng):
    X = rng.normal(size=(8, 5))
    bound = FeatureDeletion(2, exactly=True).at(X, {})
    assert all(bound.contains(points).all() for points in bound.sample(rng, 20, 5))
    assert not bound.contains(np.zeros((8, 5))).any()
