"""A box for each row: sparse as dense, shared rows as repeated ones, never made dense."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast._core.row_forms import IntervalForm
from holdfast._data import rows_of
from holdfast.uncertainty import Box
from holdfast.uncertainty.row_boxes import RowBoxes


@pytest.fixture
def boxes(rng):
    """Half-widths and centres of 30 rows, most of them 0, with a row and a column of exact values."""
    half = rng.uniform(0.1, 2, size=(30, 5)) * (rng.uniform(size=(30, 5)) < 0.4)
    half[7], half[:, 4] = 0.0, 0.0
    return half, half * rng.uniform(-1, 1, size=(30, 5))


def _everything(bound, w, X, rng):
    """Return what the methods of a set say, by name."""
    first, second, r = rng.uniform(size=30), rng.uniform(size=30), rng.normal(size=30)
    y = rng.choice([-1.0, 1.0], size=30)
    found = {}
    for name, each in (
        ("", bound),
        ("against_labels ", bound.against_labels(y)),
        ("smoothed ", bound.against_labels(y).smoothed(0.3)),
    ):
        target = each.adjoint(w, first)
        some = each.take(np.array([9, 7, 0]))
        found |= {
            f"{name}support": each.support(w),
            f"{name}part": each.maximizer(w, slice(3, 9)),
            f"{name}adjoint": each.adjoint(w, r),
            f"{name}curvature": each.curvature(w, first, second),
            f"{name}cross": each.cross(w, rows_of(X), r),
            f"{name}cross with": each.cross_with(bound, w, r),
            f"{name}demand": each.required_share(target, first, np.ones(30)),
            f"{name}out of reach": each.required_share(np.ones(5), first, np.ones(30)),
            f"{name}remainder": each.residual(3 * target, first, 2 * np.ones(30), w),
            f"{name}exact": each.exact_features(5),
            f"{name}scaled": each.scaled(3.0).support(w),
            f"{name}taken": some.support(w),
            f"{name}contains": each.contains(0.99 * each.maximizer(w)),
            f"{name}drawn in": each.snapped_to_kinks(np.append(w[:4], 1e-5), 0.01, 0.1),
        }
    form = bound.against_labels(y).interval_form()
    own, centre = (np.zeros((30, 5)) if part is None else _dense(part) for part in (form.own, form.centre))
    return found | {"half": form.common + own, "centre": centre}


def _dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense X", "sparse X"])
def test_sparse_boxes_say_what_dense_ones_say(kind, boxes, rng):
    X, w = rng.normal(size=(30, 5)), rng.normal(size=5)
    dense = _everything(RowBoxes(*boxes), w, kind(X), np.random.default_rng(0))
    thin = _everything(RowBoxes(*map(sparse.csr_array, boxes)), w, kind(X), np.random.default_rng(0))
    for name, value in dense.items():
        assert_allclose(thin[name], value, rtol=1e-12, atol=1e-13, err_msg=name)


def test_a_box_that_all_rows_share_is_the_same_box_for_each(boxes, rng):
    half, centre = (matrix[:1] for matrix in boxes)
    X, w = rng.normal(size=(30, 5)), rng.normal(size=5)
    repeated = RowBoxes(np.repeat(half, 30, axis=0), np.repeat(centre, 30, axis=0))
    own = _everything(repeated, w, X, np.random.default_rng(0))
    shared = _everything(RowBoxes(half, centre, np.ones(30)), w, X, np.random.default_rng(0))
    for name, value in own.items():
        assert_allclose(shared[name], value, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense X", "sparse X"])
def test_deviations_of_both_signs_from_a_common_row_say_what_whole_half_widths_say(kind, boxes, rng):
    half, centre = boxes
    common = np.append(rng.uniform(0.1, 1, size=4), 0.3)  # the last feature is exact: all of it is taken back
    own = sparse.csr_array(half - common)
    assert own.max() > 0 > own.min()
    X, w = kind(rng.normal(size=(30, 5))), rng.normal(size=5)
    expected = _everything(RowBoxes(half, centre), w, X, np.random.default_rng(0))
    found = _everything(RowBoxes(own, sparse.csr_array(centre), common=common), w, X, np.random.default_rng(0))
    for name, value in expected.items():
        assert_allclose(found[name], value, rtol=1e-12, atol=1e-13, err_msg=name)


def test_what_is_taken_back_of_a_common_row_bears_nothing(rng):
    common = np.array([0.1, 0.7, 0.3])
    bound = RowBoxes(sparse.csr_array(np.tile(-common, (40, 1))), common=common)
    for budgets in rng.uniform(size=(20, 40)):
        assert np.all(np.isinf(bound.required_share(np.array([0.0, 1e-3, 0.0]), budgets, np.ones(40))))
        assert_allclose(bound.required_share(np.full(3, 1e-17), budgets, np.ones(40), np.ones(3)), 0.0)
    assert np.all(bound.support(rng.normal(size=3)) == 0)
    assert np.all(bound.exact_features(3))


def test_a_fixed_part_is_scaled_but_not_resized(boxes, rng):
    half, centre = boxes
    fixed, w = sparse.csr_array(np.where(rng.uniform(size=half.shape) < 0.5, half, 0.0)), rng.normal(size=5)
    form = IntervalForm(np.full(5, 2.0), fixed, None)
    bound = RowBoxes(half + fixed.toarray(), centre, common=np.full(5, 3.0), fixed=form).take(slice(0, 20))
    plain = RowBoxes(half, centre, common=np.ones(5)).take(slice(0, 20)).support(w)
    extra = (2 + fixed[:20].toarray()) @ np.abs(w)
    assert_allclose(bound.scaled(0.3).support(w), 0.3 * (plain + extra), rtol=1e-12)
    assert_allclose(bound.resized(0.3).support(w), 0.3 * plain + extra, rtol=1e-12)
    assert_allclose(bound.resized(0.3).resized(2.0).support(w), 0.6 * plain + extra, rtol=1e-12)


def test_remainder_is_the_distance_to_the_sum_of_the_boxes(boxes, rng):
    bound, budgets, target = RowBoxes(*boxes), rng.uniform(size=30), 5 * rng.normal(size=5)
    lower, upper = (budgets @ (boxes[1] + side * boxes[0]) for side in (-1, 1))
    expected = target - np.clip(target, lower, upper)
    assert_allclose(bound.residual(target, budgets, np.ones(30), target), expected, rtol=0, atol=1e-12)


def test_demand_is_the_smallest_common_share(boxes, rng):
    half = boxes[0] + 0.1
    bound, budgets, target = RowBoxes(half, 0.9 * half), rng.uniform(size=30), rng.normal(size=5)
    demand = bound.required_share(target, budgets, np.ones(30))
    share = demand[0] / budgets[0]
    assert_allclose(demand, share * budgets, rtol=1e-13)
    lower, upper = (budgets @ (0.9 * half + side * half) for side in (-1, 1))
    for factor, is_enough in ((1.0001, True), (0.9999, False)):
        reach = factor * share
        assert np.all((reach * lower <= target) & (target <= reach * upper)) == is_enough


def test_box_on_one_side_of_zero_bears_no_pull_to_the_other():
    bound = RowBoxes(np.full((3, 2), 0.5), np.full((3, 2), 0.5))
    assert np.all(np.isfinite(bound.required_share(np.array([1.0, 2.0]), np.ones(3), np.ones(3))))
    assert np.all(np.isinf(bound.required_share(np.array([1.0, -0.1]), np.ones(3), np.ones(3))))


def test_sparse_boxes_are_never_made_dense(rng):
    n, d = 30_000, 100
    widths = sparse.csr_array((rng.uniform(1, 2, n), rng.integers(0, d, n), np.arange(n + 1)), shape=(n, d))
    rows = rows_of(widths.copy())
    w, r = rng.normal(size=d), rng.uniform(size=n)
    tracemalloc.start()
    for bound in (Box(2.0).at(widths, {"X_std": widths}), Box(relative=0.1).at(widths, {})):
        for each in (bound, bound.smoothed(0.1)):
            each.adjoint(w, each.support(w))
            each.curvature(w, r, r)
            each.cross(w, rows, r)
            each.cross_with(each, w, r)
            each.required_share(w, r, np.ones(n))
            each.residual(w, r, np.ones(n), w)
            each.exact_features(d)
            each.take(slice(0, n, 3)).support(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * d
