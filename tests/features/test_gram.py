"""Kernels and pivoted Cholesky factors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.svm import SVC

from holdfast.features.gram import Kernel, KernelSpace, PivotedCholesky, bandwidth

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))


@pytest.mark.parametrize("gamma", [1e-5, 0.3, 100.0])
def test_a_factor_gives_the_kernel_back_and_functions_are_sums_over_its_pivots(gamma):
    doubled = np.concatenate([X, X[:20]])
    K = Kernel("rbf", gamma)(doubled, doubled)
    factor = PivotedCholesky.of(K)
    theta = factor.rows.T @ RNG.normal(size=(len(K), 2))
    assert factor.rows.shape[1] == len(factor.pivots) <= 60
    assert_allclose(factor.rows @ factor.rows.T, K, atol=2e-12)
    assert_allclose(factor.triangle, np.tril(factor.triangle))
    assert_allclose(K[:, factor.pivots] @ factor.weights(theta), factor.rows @ theta, atol=1e-8)
    assert_allclose(factor.coordinates(K[:, factor.pivots]), factor.rows, atol=1e-7)
    assert_allclose(factor.rest, np.maximum(np.diag(K) - np.sum(factor.rows**2, axis=1), 0.0), atol=1e-14)


def test_a_factor_of_fewer_pivots_is_the_beginning_of_the_whole_one():
    K = Kernel("rbf", 0.3)(X, X)
    whole, part = PivotedCholesky.of(K), PivotedCholesky.of(K, most=7)
    assert_array_equal(part.pivots, whole.pivots[:7])
    assert_allclose(part.rows, whole.rows[:, :7])
    assert np.all(part.rest >= whole.rest - 1e-12)


@pytest.mark.parametrize(
    ("K", "words"),
    [
        ([[1.0, 2.0], [0.0, 1.0]], "not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "not positive semidefinite"),
        ([[0.0, 1.0], [1.0, 0.0]], "not positive semidefinite"),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], "not positive semidefinite"),
        ([[-1.0, 0.0], [0.0, -1.0]], "not positive semidefinite"),
        (np.tanh(X @ X.T - 1), "not positive semidefinite"),
    ],
)
def test_what_is_no_kernel_is_refused(K, words):
    with pytest.raises(ValueError, match=words):
        PivotedCholesky.of(np.array(K))


def test_kernels_are_those_of_scikit_learn_for_dense_sparse_and_single_precision():
    poly = Kernel("poly", 0.5, 2, 1.0)
    expected = polynomial_kernel(X, X[:5], gamma=0.5, degree=2, coef0=1.0)
    assert_allclose(poly(X, X[:5]), expected)
    assert_allclose(poly(sparse.csr_array(X), sparse.csr_array(X[:5])), expected)
    assert poly(X.astype(np.float32), X.astype(np.float32)).dtype == np.float64
    assert_allclose(poly.diagonal(X), np.diag(poly(X, X)))
    assert_array_equal(Kernel("rbf", 0.5).diagonal(X), np.ones(60))


def test_bandwidths_are_those_of_svc_and_count_a_row_of_weight_2_twice():
    y = (X[:, 0] > 0).astype(int)
    for gamma in ("scale", "auto"):
        expected = SVC(gamma=gamma).fit(X, y)._gamma
        assert_allclose(bandwidth(gamma, X, np.ones(60)), expected)
        assert_allclose(bandwidth(gamma, sparse.csr_array(X), np.ones(60)), expected)
    weights = np.repeat([2.0, 1.0], 30)
    assert_allclose(bandwidth("scale", X, weights), bandwidth("scale", np.concatenate([X, X[:30]]), np.ones(90)))


def test_landmarks_are_rows_that_may_be_chosen_and_the_kernel_between_them_is_exact():
    kernel, among = Kernel("rbf", 0.3), np.arange(10, 60)
    space = KernelSpace.of_landmarks(kernel, X, among, 12, np.random.default_rng(1))
    assert len(space.support) == 12
    assert np.all(np.isin(space.support, among))
    own = space.coordinates[space.support]
    assert_allclose(own @ own.T, kernel(X[space.support], X[space.support]), atol=1e-10)
    assert np.all(np.sum(space.coordinates**2, axis=1) <= 1 + 1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scale_is_one_over_the_variance_of_the_entries_and_that_of_constant_rows_is_that_of_their_number(offset):
    rows, ones = X + offset, np.ones(len(X))
    assert_allclose(bandwidth("scale", rows, ones), 1 / (rows.shape[1] * X.var()), rtol=1e-8)
    few = np.where(X > 0.5, rows, 0.0)
    assert_allclose(bandwidth("scale", sparse.csr_array(few), ones), bandwidth("scale", few, ones), rtol=1e-12)
    constant, weights = np.full((7, 3), 0.1 + offset), np.arange(1.0, 8.0)
    for same in (constant, sparse.csr_array(constant)):
        assert bandwidth("scale", same, weights) == bandwidth("auto", same, weights)
