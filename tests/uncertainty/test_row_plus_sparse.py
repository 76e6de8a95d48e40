"""Half-widths that are one row for all plus sparse deviations: found, kept apart, added up."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from holdfast import Ball, Box, IntervalBox, RobustLinearClassifier
from holdfast._core.row_plus_sparse import columnwise_mode, regular

N, D = 600, 200


@pytest.fixture
def planted(rng):
    """A row for all, and 5 percent of deviations from it, up and down to 0."""
    row = rng.uniform(0.2, 1, size=D)
    S = np.tile(row, (N, 1))
    changed = rng.uniform(size=S.shape) < 0.05
    S[changed] = np.where(rng.uniform(size=changed.sum()) < 0.3, 0.0, rng.uniform(0, 2, changed.sum()))
    return row, S


def test_mode_leaves_the_fewest_deviations(rng):
    for _ in range(20):
        A = rng.integers(0, 4, size=(rng.integers(1, 8), 3)) / 2
        best = min(np.count_nonzero(A - np.array(row)) for row in itertools.product(*(A[:, j] for j in range(3))))
        assert np.count_nonzero(A - columnwise_mode(A)) == best


def test_planted_row_is_found_and_nothing_is_lost(planted):
    row, S = planted
    found = regular(S, 0.1)
    assert_array_equal(found.row, row)
    assert found.rest.nnz == np.count_nonzero(row != S)
    assert found.rest.min() < 0 < found.rest.max()
    assert_allclose(found.row + found.rest.toarray(), S, rtol=0, atol=1e-15)
    assert np.all(found.row + found.rest.toarray() >= 0)


def test_arrays_without_a_row_for_all_are_left_alone(planted, rng):
    _, S = planted
    assert regular(rng.uniform(size=S.shape), 0.1) is None
    assert regular(S, 0.04) is None
    assert regular(S[:400], 0.1) is None  # too small to matter
    half = np.hstack([S[:, :100], rng.uniform(size=(N, 100))])
    assert regular(half, 0.1) is None


def test_a_sample_does_not_decide_alone(rng):
    S = np.ones((2560, 100))
    S[np.arange(2560) % 10 != 0] = rng.uniform(size=(2304, 100))
    assert regular(S[::10].repeat(10, axis=0), 0.1) is not None
    assert regular(S, 0.1) is None


@pytest.mark.parametrize("radius", [1.0, 0.3])
def test_box_finds_the_row_and_has_the_support_of_all_entries(radius, planted, rng):
    row, S = planted
    bound, w = Box(radius).at(S, {"X_std": S}), rng.normal(size=D)
    assert_allclose(bound.common, radius * row, rtol=1e-15)
    assert sparse.issparse(bound.half)
    assert_allclose(bound.support(w), radius * S @ np.abs(w), rtol=1e-12)
    assert Box(radius).at(S, {"X_std": rng.uniform(size=S.shape)}).common is None


def test_boxes_add_up_to_one_box_that_is_no_denser_than_they_are(rng):
    own, s, w = sparse.csr_array(np.eye(5, 3, -1)), np.array([0.1, 0.2, 0.3]), rng.normal(size=3)
    X = np.zeros((5, 3))
    bound = (Box(2.0, half_widths=s) + Box(0.5)).at(X, {"X_std": own})
    assert_array_equal(bound.common, 2 * s)
    assert sparse.issparse(bound.half)
    assert bound.half.nnz == own.nnz
    assert_allclose(bound.support(w), (2 * s + 0.5 * own.toarray()) @ np.abs(w), rtol=1e-13)
    assert (Box(0.1) + Box(half_widths=s)).at(X, {}).is_common
    three = (Box(half_widths=s) + Ball(0.4) + Box()).at(X, {"X_std": own})
    assert len(three.summands()) == 2
    assert_allclose(three.support(w), (s + own.toarray()) @ np.abs(w) + 0.4 * np.linalg.norm(w), rtol=1e-13)
    ends = {"X_lower": -own, "X_upper": 3 * own}
    both = (Box(half_widths=s) + IntervalBox()).at(sparse.csr_array((5, 3)), ends)
    expected = np.abs(w) @ s + own @ np.maximum(-w, 3 * w)
    assert_allclose(both.support(w), expected, rtol=1e-13)
    assert len(both.summands()) == 1


def test_metadata_go_to_the_summand_that_has_not_stated_its_half_widths(two_classes, rng):
    X, y = two_classes(30, 3)
    S, s = rng.uniform(0, 0.3, size=X.shape), np.array([0.1, 0.2, 0.3])
    model = RobustLinearClassifier(Box(0.5, half_widths=s) + Box(0.7)).fit(X, y, X_std=S)
    w, b = model.coef_[0], model.intercept_[0]
    margins = np.where(y > 0, 1, -1) * (X @ w + b) - (0.5 * s + 0.7 * S) @ np.abs(w)
    assert model.objective_ == pytest.approx(np.maximum(1 - margins, 0).sum() + 0.5 * w @ w, rel=1e-12)
    # rows' own half-widths are taken as stated, those of the constructor are not
    assert_allclose(model.certified_margin(X, X_std=S), np.abs(X @ w + b) - (0.5 * s + S) @ np.abs(w), rtol=1e-9)
    with pytest.raises(ValueError, match=r"both summands take X_std.*Box\(half_widths=...\)"):
        (Box(0.1) + Box(0.2)).at(X, {"X_std": S})
    with pytest.raises(ValueError, match="does not take X_std"):
        (Box(0.1, half_widths=s) + Box(0.2, relative=0.1)).at(X, {"X_std": S})
