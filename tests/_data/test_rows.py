"""Passes over rows: every way of holding them gives the plain formula, and holding them costs nothing."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from holdfast._core import compiled
from holdfast._core.rows import Rows
from holdfast._data import dense, rows_of
from holdfast.losses import GaussianHinge

FORMATS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
}
DENSE = [name for name in FORMATS if "csr" not in name]


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def values(request, rng):
    """Rows with zeros, on features of unequal scale."""
    X = rng.normal(size=(700, 5)) * [1, 10, 0.1, 3, 1] * (rng.uniform(size=(700, 5)) > 0.3)
    return X.astype(request.param)


@pytest.fixture(params=FORMATS)
def rows(request, values):
    return rows_of(FORMATS[request.param](values))


@pytest.fixture
def exact(values):
    return values.astype(np.float64)


@pytest.fixture
def row_numbers(rng):
    return rng.uniform(0.1, 2.0, size=700)


def test_rows_know_their_shape(rows, values):
    assert isinstance(rows, Rows)
    assert (rows.n_samples, rows.n_features) == values.shape


def test_products_are_the_plain_ones_in_float64(rows, exact, row_numbers, rng):
    w, r = rng.normal(size=5), rng.normal(size=700)
    column_numbers = np.array([0.0, 1.0, 0.3, 2.0, 0.1])
    for found, plain in (
        (rows.dot(w), exact @ w),
        (rows.transpose_dot(r), exact.T @ r),
        (rows.gram(row_numbers), (exact * row_numbers[:, None]).T @ exact),
        (rows.outer(column_numbers), (exact * column_numbers) @ exact.T),
        (rows.square_sums(row_numbers), row_numbers @ exact**2),
    ):
        assert found.dtype == np.float64
        assert_allclose(found, plain, rtol=1e-6 if rows.X.dtype == np.float32 else 1e-12, atol=1e-11)


def test_scores_of_float32_rows_lose_nothing(rows, exact, rng):
    """What a certificate is made of must not depend on the type of X."""
    w, r = rng.normal(size=5), rng.normal(size=700)
    assert_allclose(rows.dot(w), exact @ w, rtol=1e-13, atol=1e-13)
    assert_allclose(rows.transpose_dot(r), exact.T @ r, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("chosen", [slice(None, None, 7), slice(3, 5), np.array([5, 2, 699])], ids=str)
def test_taken_rows_are_those_rows(rows, exact, chosen, rng):
    w = rng.normal(size=5)
    assert_allclose(rows.take(chosen).dot(w), exact[chosen] @ w, rtol=1e-6)
    assert rows.take(chosen).n_samples == len(exact[chosen])


def test_blocks_cover_all_rows_once_and_in_order(rows, exact, monkeypatch):
    monkeypatch.setattr("holdfast._data.dense.BLOCK_BYTES", 2000)
    for blocks in (rows.blocks(), rows.dense_blocks()):
        where, parts = zip(*blocks, strict=True)
        assert np.concatenate([np.arange(700)[part] for part in where]).tolist() == list(range(700))
        parts = [part.toarray() if sparse.issparse(part) else part for part in parts]
        assert_array_equal(np.concatenate(parts), exact)


def test_dense_blocks_are_float64_arrays(rows):
    for _, block in rows.dense_blocks():
        assert isinstance(block, np.ndarray)
        assert block.dtype == np.float64


TARGETS = np.random.default_rng(3).uniform(0.5, 3, size=700)


def _plain_pass(loss, X, signs, weights, w, b, t, target):
    value, slope, scale_slope = loss.evaluate(target - signs * (X @ w + b), np.broadcast_to(t, len(X)).copy())
    r = weights * signs * slope
    return weights @ value, X.T @ r, r.sum(), weights * scale_slope


def _assert_pass(found, plain, t, rtol):
    value, pull, balance, scale_slopes = plain
    assert found.value == pytest.approx(value, rel=rtol)
    assert_allclose(found.pull, pull, rtol=rtol, atol=rtol * np.abs(pull).max())
    assert found.balance == pytest.approx(balance, rel=rtol, abs=rtol * 700)
    assert found.scale_slopes.shape == np.shape(t)
    expected = scale_slopes if np.ndim(t) else scale_slopes.sum()
    assert_allclose(found.scale_slopes, expected, rtol=rtol, atol=rtol)


def test_margin_pass_is_the_plain_formula(rows, exact, loss, row_numbers, rng):
    signs, weights = np.where(rng.uniform(size=700) > 0.4, 1.0, -1.0), rng.uniform(0, 2, 700)
    w = 0.3 * rng.normal(size=5)
    rtol = 1e-5 if rows.X.dtype == np.float32 else 1e-9
    for t, target in product((np.array(0.8), row_numbers), (1.0, 0.0, TARGETS)):
        arguments = (loss, signs, weights, w, 0.3, t, target)
        _assert_pass(rows.margin_pass(*arguments), _plain_pass(loss, exact, *arguments[1:]), t, rtol)


@pytest.mark.parametrize("is_common", [True, False], ids=["common t", "t by row"])
@pytest.mark.parametrize("target", [1.0, TARGETS], ids=["1", "target by row"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_compiled_sweep_is_the_plain_formula(values, exact, order, target, is_common, row_numbers, monkeypatch, rng):
    pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    signs = np.where(rng.uniform(size=700) > 0.4, 1.0, -1.0)
    t = np.array(0.8) if is_common else row_numbers
    loss = GaussianHinge()
    arguments = (loss, signs, rng.uniform(0, 2, 700), 0.3 * rng.normal(size=5), 0.3, t, target)
    found = rows_of(FORMATS[order](values)).margin_pass(*arguments)
    rtol = 1e-5 if values.dtype == np.float32 else 1e-11
    _assert_pass(found, _plain_pass(loss, exact, *arguments[1:]), t, rtol)


def test_compiled_sweep_is_used_where_it_is_worthwhile(values, monkeypatch, rng):
    """The kernel's calls are counted, lest the test above compare NumPy with itself."""
    pytest.importorskip("numba")
    asked = []
    kernel = compiled.kernel
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    monkeypatch.setattr(compiled, "kernel", lambda name: asked.append(name) or kernel(name))
    arguments = (GaussianHinge(), np.ones(700), np.ones(700), rng.normal(size=5), 0.0, np.array(1.0), 1.0)
    rows_of(values).margin_pass(*arguments)
    assert "margin_sweep" in asked
    asked.clear()
    monkeypatch.setattr(compiled, "WORTHWHILE", 1e9)
    rows_of(values).margin_pass(*arguments)
    assert asked == []


def test_rows_without_noise_are_not_left_to_the_kernel(values, exact, monkeypatch, rng):
    """The kernel divides by t."""
    pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    t = np.where(np.arange(700) % 3 == 0, 0.0, 0.5)
    arguments = (GaussianHinge(), np.ones(700), np.ones(700), rng.normal(size=5), 0.1, t, 1.0)
    found = rows_of(values).margin_pass(*arguments)
    _assert_pass(found, _plain_pass(GaussianHinge(), exact, *arguments[1:]), t, 1e-5)


def _plain_normal_pass(X, weights, v, shift, extra):
    m = X @ v + shift
    return m, X.T @ (weights * m + extra)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "NumPy"])
def test_normal_pass_is_the_plain_formula(rows, exact, is_compiled, row_numbers, monkeypatch, rng):
    if is_compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "WORTHWHILE", 0 if is_compiled else np.inf)
    arguments = (row_numbers, rng.normal(size=5), 0.3, rng.normal(size=700))
    for found, plain in zip(rows.normal_pass(*arguments), _plain_normal_pass(exact, *arguments), strict=True):
        assert found.dtype == np.float64
        assert_allclose(found, plain, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "NumPy"])
def test_compiled_products_of_float32_rows_lose_nothing(rows, exact, is_compiled, row_numbers, monkeypatch, rng):
    if is_compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "WORTHWHILE", 0 if is_compiled else np.inf)
    w, r = rng.normal(size=5), rng.normal(size=700)
    assert_allclose(rows.dot(w), exact @ w, rtol=1e-13, atol=1e-12)
    assert_allclose(rows.transpose_dot(r), exact.T @ r, rtol=1e-12, atol=1e-11)
    assert_allclose(rows.square_sums(row_numbers), row_numbers @ exact**2, rtol=1e-12)
    for shape in ((0, 5), (1, 5), (67, 5)):
        few = (
            rows_of(np.ascontiguousarray(rows.X[: shape[0]]))
            if not sparse.issparse(rows.X)
            else rows.take(slice(shape[0]))
        )
        assert_allclose(few.transpose_dot(r[: shape[0]]), exact[: shape[0]].T @ r[: shape[0]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "NumPy"])
@pytest.mark.parametrize("size", [1e-60, 1.0, 1e60])
def test_quick_rows_multiply_to_single_precision_whatever_the_sizes(
    rows, exact, is_compiled, size, row_numbers, monkeypatch, rng
):
    if is_compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "WORTHWHILE", 0 if is_compiled else np.inf)
    arguments = (row_numbers, size * rng.normal(size=5), size * 0.3, size * rng.normal(size=700))
    quick = rows.quick
    for found, plain in zip(quick.normal_pass(*arguments), _plain_normal_pass(exact, *arguments), strict=True):
        assert found.dtype == np.float64
        assert_allclose(found, plain, rtol=0, atol=3e-6 * np.abs(plain).max())
    assert rows.quick is quick


def test_quick_rows_are_shifted_and_hold_every_row(exact, row_numbers, rng):
    shift = np.array([1e3, 0.0, 1.0, -50.0, 0.0])
    arguments = (row_numbers, rng.normal(size=5), 0.3, rng.normal(size=700))
    quick = rows_of(exact + shift).shifted(shift).quick
    for found, plain in zip(quick.normal_pass(*arguments), _plain_normal_pass(exact, *arguments), strict=True):
        assert_allclose(found, plain, rtol=0, atol=3e-6 * np.abs(plain).max())


def test_quick_rows_are_the_rows_themselves_where_single_precision_has_no_room(exact, monkeypatch):
    for X in (1e-20 * exact, 1e20 * exact):
        rows = rows_of(X)
        assert rows.quick is rows
    single = rows_of(exact.astype(np.float32))
    assert single.quick.X is single.X  # no copy
    monkeypatch.setattr(dense, "LARGEST_COPY", 10)
    rows = rows_of(exact)
    assert rows.quick is rows


def test_wide_indices_are_passed_over_without_the_kernel(exact, row_numbers, monkeypatch, rng):
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    X = sparse.csr_array(exact)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    arguments = (row_numbers, rng.normal(size=5), 0.3, rng.normal(size=700))
    for found, plain in zip(rows_of(X).normal_pass(*arguments), _plain_normal_pass(exact, *arguments), strict=True):
        assert_allclose(found, plain, rtol=1e-11, atol=1e-9)


def test_entries_are_those_of_the_rows_and_columns(rows, exact):
    chosen, columns = np.array([5, 2, 699]), np.array([0, 3])
    found = rows.entries(chosen, columns)
    assert found.dtype == np.float64
    assert_array_equal(found, exact[np.ix_(chosen, columns)])
    assert rows.n_entries == (np.count_nonzero(exact) if sparse.issparse(rows.X) else exact.size)


def test_entries_of_shifted_rows_are_shifted(exact):
    shift, columns = np.arange(5.0), np.array([4, 1])
    found = rows_of(exact).shifted(shift).entries(np.array([3, 0]), columns)
    assert_allclose(found, (exact - shift)[np.ix_([3, 0], columns)], rtol=1e-15)


@pytest.mark.parametrize("most", [0, 1 << 21], ids=["lazily", "copied"])
def test_rows_shifted_again_are_less_both_offsets(rows, exact, most, monkeypatch):
    monkeypatch.setattr("holdfast._data.dense.SMALL_COPY", most)
    one, other = np.array([0.5, 0.0, -2.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 4.0, 1.0])
    found = np.concatenate([block for _, block in rows.shifted(one).shifted(other).dense_blocks()])
    assert_allclose(found, exact - one - other, rtol=1e-15)


def test_gram_does_not_depend_on_how_many_entries_are_zero(rng, monkeypatch):
    X = sparse.random_array((300, 7), density=0.5, rng=rng, format="csr")
    weights = rng.uniform(size=300)
    crowded = rows_of(X).gram(weights)
    monkeypatch.setattr("holdfast._data.sparse.CROWDED", 2.0)
    assert_allclose(rows_of(X).gram(weights), crowded, rtol=1e-12, atol=1e-13)


def test_outer_product_of_crowded_and_of_shifted_rows_is_the_plain_one(rng, monkeypatch):
    X, columns = rng.normal(size=(6, 900)) * (rng.uniform(size=(6, 900)) > 0.5), rng.uniform(size=900)
    shift = rng.normal(size=900)
    for share in (0.0, 2.0):
        monkeypatch.setattr("holdfast._data.sparse.CROWDED", share)
        assert_allclose(rows_of(sparse.csr_array(X)).outer(columns), (X * columns) @ X.T, rtol=1e-12, atol=1e-12)
    moved = X - shift
    assert_allclose(rows_of(X).shifted(shift).outer(columns), (moved * columns) @ moved.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", DENSE)
def test_dense_rows_are_referred_to_not_copied(values, name):
    X = FORMATS[name](values)
    assert np.shares_memory(rows_of(X).X, X)


@pytest.mark.parametrize("name", ["csr_matrix", "csr_array"])
def test_sparse_rows_share_their_values(values, name):
    X = FORMATS[name](values)
    assert np.shares_memory(rows_of(X).X.data, X.data)


def test_float32_rows_are_never_up_cast_as_a_whole(rows, values, row_numbers):
    if values.dtype != np.float32:
        return
    weights, signs, w = row_numbers, np.ones(700), np.ones(5)
    rows.dot(w), rows.gram(weights), rows.square_sums(weights)
    rows.margin_pass(GaussianHinge(), signs, weights, w, 0.0, np.array(1.0), 1.0)
    for held in vars(rows).values():
        large = getattr(held, "data", held) if sparse.issparse(held) else held
        if isinstance(large, np.ndarray) and large.size >= 700:
            assert large.dtype == np.float32


def test_span_of_rows_that_repeat_has_their_rank(rng):
    half = rng.normal(size=(4, 10))
    X = np.concatenate([half, half[::-1]])
    span = rows_of(X).span
    assert span.coordinates.shape == (8, 4)
    v = rng.normal(size=4)
    assert_allclose(X @ span.lift(v), span.coordinates @ v, atol=1e-12)
    assert_allclose(span.project(span.lift(v)), v, atol=1e-12)
    assert rows_of(np.zeros((3, 5))).span.coordinates.shape == (3, 1)
