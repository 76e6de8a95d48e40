"""What weak learners say of rows, dense, sparse or by bins: one definition, three ways to the same numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast._data.outputs import DenseOutputs, SparseOutputs
from holdfast._data.stump_outputs import StumpOutputs


def stumps(rng, n=60, counts=(3, 1, 4)):
    codes = np.array([rng.integers(0, count + 1, size=n) for count in counts])
    return StumpOutputs(codes, counts, has_constant=True)


def made(kind, rng):
    """Return outputs and the same as an array."""
    if "stumps" in kind:
        outputs = stumps(rng)
        outputs.has_cheap_products = kind == "stumps"
        return outputs, outputs.dense(slice(None))
    X = rng.uniform(-1, 1, size=(60, 7))
    if kind == "sparse":
        X *= rng.uniform(size=X.shape) < 0.4
        X[:, 3] = 0.0
        return SparseOutputs(sparse.csr_array(X)), X
    return DenseOutputs(X), X


every_kind = pytest.mark.parametrize("kind", ["dense", "sparse", "stumps", "binned stumps"])


@every_kind
def test_passes_are_products_with_the_array(kind, rng):
    outputs, X = made(kind, rng)
    w, q = rng.normal(size=X.shape[1]), rng.uniform(size=len(X))
    assert_allclose(outputs.largest, np.abs(X).max(axis=0))
    assert_allclose(outputs.dot(w), X @ w, atol=1e-12)
    assert_allclose(outputs.transpose_dot(q), X.T @ q, atol=1e-12)
    assert_allclose(outputs.sizes_dot(q), np.abs(X).T @ q, atol=1e-12)
    assert_allclose(outputs.square_dot(q), np.square(X).T @ q, atol=1e-12)
    assert outputs.reach(np.abs(w)) == pytest.approx(np.max(np.abs(X) @ np.abs(w)))
    assert_allclose(np.broadcast_to(outputs.reaches(np.abs(w)), X.shape), np.abs(X) * np.abs(w))
    assert_allclose(np.column_stack([outputs.column(k) for k in range(X.shape[1])]), X)
    assert_allclose(np.concatenate([block for _, block in outputs.blocks()]), X)
    some = rng.permutation(len(X))[:9]
    assert_allclose(outputs.take(some).dot(w), X[some] @ w, atol=1e-12)


@every_kind
def test_spread_is_the_sum_of_logarithms_with_its_derivatives(kind, rng):
    outputs, X = made(kind, rng)
    s, q, h = rng.uniform(0.1, 0.9, size=X.shape[1]), rng.uniform(size=len(X)), rng.uniform(size=len(X))
    signs = rng.choice([-1.0, 1.0], size=len(X))
    spread, left = outputs.at(s), 1 - np.square(X * s)
    J = 2 * np.square(X) * s / left
    assert_allclose(spread.log_means, -np.log(left).sum(axis=1), atol=1e-12)
    assert_allclose(outputs.stated_log_means(s), spread.log_means, atol=1e-12)
    assert_allclose(spread.pull(q), J.T @ q, atol=1e-12)
    assert_allclose(outputs.stated_slopes(q, s), (spread.pull(q), spread.bends(q)), rtol=1e-10)
    assert_allclose(outputs.gram(h), X.T @ (h[:, None] * X), atol=1e-10)
    assert_allclose(spread.bends(q), q @ (2 * np.square(X) * (2 - left) / left**2), atol=1e-11)
    for found, true in zip(
        spread.grams(h, signs),
        (X.T @ (h[:, None] * X), X.T @ ((h * signs)[:, None] * J), J.T @ (h[:, None] * J)),
        strict=True,
    ):
        assert_allclose(found, true, atol=1e-10)


def test_logarithms_of_thousands_of_learners_do_not_underflow(rng):
    X = rng.choice([-1.0, 1.0], size=(3, 5000))
    s = np.full(5000, 0.999)
    assert_allclose(DenseOutputs(X).at(s).log_means, -5000 * np.log(1 - 0.999**2), rtol=1e-10)


def test_the_cheaper_way_to_pairs_of_stumps_is_taken(rng):
    few_rows, many_bins = stumps(rng, n=300, counts=[1] * 200), stumps(rng, n=20_000, counts=[200] * 3)
    assert few_rows.has_cheap_products
    assert few_rows.gram_work == 300 * 201**2
    assert not many_bins.has_cheap_products
    assert many_bins.gram_work < 20_000 * 601**2
