"""Each row's own deviations: sparse as dense, at any scale, never made dense, and checked."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._data import rows_of
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.row_ellipsoids import DiagonalEllipsoids, FactorEllipsoids


@pytest.fixture
def stds(rng):
    """Deviations of 40 rows, most of them 0, with a row and a column without noise."""
    stds = rng.uniform(0.1, 2, size=(40, 6)) * (rng.uniform(size=(40, 6)) < 0.4) * 10 ** rng.uniform(-3, 3, size=6)
    stds[7], stds[:, 4] = 0.0, 0.0
    return stds


def _everything(bound, w, X, rng):
    """Return what the methods of a set say, by name."""
    first, second, r = rng.uniform(size=40), rng.uniform(size=40), rng.normal(size=40)
    target = bound.adjoint(w, first)
    return {
        "support": bound.support(w),
        "maximizer": bound.maximizer(w),
        "part": bound.maximizer(w, slice(3, 9)),
        "adjoint": bound.adjoint(w, r),
        "curvature": bound.curvature(w, first, second),
        "cross": bound.cross(w, rows_of(X), r),
        "demand": bound.required_share(target, first, np.ones(40)),
        "out of reach": bound.required_share(np.ones(6), first, np.ones(40)),
        "remainder": bound.residual(3 * target, first, 2 * np.ones(40), w),
        "exact": bound.exact_features(6),
        "scaled": bound.scaled(3.0).support(w),
        "taken": bound.take(np.array([9, 7, 0])).support(w),
        "contains": bound.contains(0.7 * bound.maximizer(w) + 1e-12 * (bound.maximizer(w) != 0)),
        "factors": np.array(list(bound.factor_matrices())),
        "lines": bound.support_program(6).cones[0][2].toarray().sum(axis=0),
        "sample": bound.sample(np.random.default_rng(1), 3, 6),
    }


def _size(value):
    value = np.asarray(value, dtype=float)
    return np.max(np.abs(value[np.isfinite(value)]), initial=0.0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense X", "sparse X"])
def test_sparse_deviations_say_what_dense_ones_say(kind, stds, rng):
    X, w = rng.normal(size=(40, 6)), rng.normal(size=6)
    dense = _everything(DiagonalEllipsoids.of(stds), w, kind(X), np.random.default_rng(0))
    thin = _everything(DiagonalEllipsoids.of(sparse.csr_array(stds)), w, kind(X), np.random.default_rng(0))
    for name, value in dense.items():
        assert_allclose(thin[name], value, rtol=1e-12, atol=1e-12 * _size(value), err_msg=name)


def test_diagonal_clouds_say_what_diagonal_factors_say(stds, rng):
    X, w = rng.normal(size=(40, 6)), rng.normal(size=6)
    diagonal = _everything(DiagonalEllipsoids.of(stds), w, X, np.random.default_rng(0))
    factors = _everything(FactorEllipsoids(np.array([np.diag(row) for row in stds])), w, X, np.random.default_rng(0))
    assert diagonal.keys() == factors.keys()
    for name, value in factors.items():
        assert_allclose(diagonal[name], value, rtol=1e-9, atol=1e-12 * _size(value), err_msg=name)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_deviations_of_any_size_keep_their_digits(kind, stds, rng):
    w, r = rng.normal(size=6), rng.normal(size=40)
    plain = DiagonalEllipsoids.of(kind(stds))
    units = np.array([1e-200, 1e200, 1e-100, 1.0, 1e100, 1e-250])
    for scale in (1e-200, 1e200, units):
        bound = DiagonalEllipsoids.of(kind(stds * scale))
        back = w / scale  # scores stay as they were
        assert_allclose(bound.support(back), plain.support(w), rtol=1e-12)
        assert_allclose(bound.maximizer(back) / scale, plain.maximizer(w), rtol=1e-12)
        assert_allclose(bound.adjoint(back, r) / scale, plain.adjoint(w, r), rtol=1e-10)
        shares = np.abs(r)
        target = plain.adjoint(w, shares)
        sizes = np.full(6, np.linalg.norm(target))
        demand = plain.required_share(target, shares, np.ones(40), sizes)
        assert_allclose(bound.required_share(target * scale, shares, np.ones(40), sizes * scale), demand, rtol=1e-12)
    for scale in (1e-200, 1e200):
        assert_allclose(DiagonalEllipsoids.of(kind(scale * stds)).support(w), scale * plain.support(w), rtol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "two_point", "logistic"])
def test_fit_with_sparse_deviations_is_the_fit_with_dense_ones(loss, two_classes, rng):
    X, y = two_classes(120, 5)
    S = rng.uniform(0.2, 2, size=X.shape) * (rng.uniform(size=X.shape) < 0.5)
    options = {"loss": loss, "alpha": 0.5}
    dense = GaussianRobustClassifier(**options).fit(X, y, X_std=S)
    for thin in (sparse.csr_array(S), sparse.csc_matrix(S), sparse.coo_array(S)):
        for rows in (X, sparse.csr_array(X)):
            model = GaussianRobustClassifier(**options).fit(rows, y, X_std=thin)
            assert_allclose(model.coef_, dense.coef_, rtol=0, atol=1e-7)
            assert model.gap_ <= 1e-6
        assert_allclose(model.flip_probability(X, X_std=thin), dense.flip_probability(X, X_std=S), rtol=0, atol=1e-7)
        assert_allclose(model.score_std(X, X_std=thin), dense.score_std(X, X_std=S), rtol=0, atol=1e-7)
    if loss == "logistic":
        thin = sparse.csr_array(S)
        assert_allclose(model.predict_proba(X, X_std=thin), dense.predict_proba(X, X_std=S), rtol=0, atol=1e-7)


def test_entries_stored_in_parts_are_added_before_they_are_judged():
    parts = sparse.coo_array(([5.0, -2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    raw = sparse.csr_array((np.array([5.0, -2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    for stds in (parts, raw):
        assert_allclose(GaussianNoise().at(np.zeros((2, 2)), {"X_std": stds}).support(np.ones(2)), [3.0, 4.0])
    assert raw.nnz == 3


def test_sparse_deviations_are_never_made_dense(rng):
    n, d = 100_000, 100
    stds = sparse.csr_array((rng.uniform(1, 2, n), rng.integers(0, d, n), np.arange(n + 1)), shape=(n, d))
    rows = rows_of(stds.copy())
    w, r = rng.normal(size=d), rng.uniform(size=n)
    tracemalloc.start()
    bound = GaussianNoise(2.0).at(stds, {"X_std": stds})
    bound.adjoint(w, r)
    bound.curvature(w, r, r)
    bound.cross(w, rows, r)
    bound.required_share(w, r, np.ones(n))
    bound.exact_features(d)
    bound.take(slice(0, n, 3)).support(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * d


def test_wrong_sparse_deviations_are_refused(two_classes):
    X, y = two_classes(20, 3)
    good = sparse.random_array((20, 3), density=0.5, rng=np.random.default_rng(0), format="csr")
    for value, words in ((np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (-1.0, "must be >= 0")):
        wrong = good.copy()
        wrong.data[3] = value
        with pytest.raises(ValueError, match=f"X_std.*{words}"):
            GaussianRobustClassifier().fit(X, y, X_std=wrong)
    with pytest.raises(ValueError, match=r"X_std has shape \(20, 2\)"):
        GaussianRobustClassifier().fit(X, y, X_std=good[:, :2])
    with pytest.raises(ValueError, match=r"X_cov has shape \(20, 3\)"):
        GaussianRobustClassifier().fit(X, y, X_cov=good)
    with pytest.raises(ValueError, match="Noise that differs by row goes to fit as X_std"):
        GaussianRobustClassifier(GaussianNoise(std=good)).fit(X, y)


def test_nothing_reaches_an_exact_feature():
    cloud = CommonEllipsoid(np.array([1.0, 0.0, 2.0]))
    assert cloud.gauge(np.array([0.0, 1.0, 0.0])) == np.inf
    assert_allclose(cloud.gauge(np.array([1.0, 0.0, 2.0])), np.sqrt(2))
