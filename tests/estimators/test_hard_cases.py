"""Cases that once went wrong, each stated as the property it broke."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._proofs.certificate import certificate
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning
from holdfast.losses import GaussianHinge, Log2Hinge, QuadraticHinge


@pytest.fixture
def noisy_labels(rng):
    X = rng.normal(size=(40_000, 10))
    return X, (X[:, 0] + rng.normal(size=40_000) > 0.3).astype(int)


def test_rows_that_alternate_between_the_classes_are_no_harder_than_others(noisy_labels):
    X, y = noisy_labels
    half = min(np.sum(y == 0), np.sum(y == 1))
    order = np.column_stack([np.flatnonzero(y == 0)[:half], np.flatnonzero(y == 1)[:half]]).ravel()
    model = GaussianRobustClassifier(0.3, loss="hinge").fit(X[order], y[order])
    assert model.gap_ <= 1e-6
    assert model.n_iter_ < 100


def test_weights_that_vanish_on_every_other_row_are_the_fit_without_these_rows(noisy_labels):
    X, y = noisy_labels
    weights = np.arange(len(y)) % 2.0
    model = GaussianRobustClassifier(0.3, loss="hinge").fit(X, y, sample_weight=weights)
    alone = GaussianRobustClassifier(0.3, loss="hinge").fit(X[1::2], y[1::2])
    assert model.gap_ <= 1e-6
    assert_allclose(model.objective_, alone.objective_, rtol=2e-6)


@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(6))
def test_weights_driven_onto_an_exact_feature_are_certified(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 2))
    y = (X[:, 1] + 0.5 * rng.normal(size=80) > 0).astype(int)
    for alpha in (0.0, 1.0):
        model = GaussianRobustClassifier(GaussianNoise(std=[5.0, 0.0]), loss="hinge", alpha=alpha).fit(X, y)
        assert model.gap_ <= 1e-6


@pytest.mark.parametrize("loss", [GaussianHinge(), Log2Hinge(), QuadraticHinge()])
def test_norm_bound_is_smooth_and_positive_for_every_pull(loss):
    pulls = np.geomspace(1e-12, 1e12 if not isinstance(loss, QuadraticHinge) else 3.9, 200)
    bounds = np.array([loss.largest_norm(pull, 1.0, None) for pull in pulls])
    assert np.all(bounds > 0)
    assert np.all(np.diff(bounds) >= -1e-12 * bounds[1:])
    if isinstance(loss, GaussianHinge):  # |w| ~ pull / sigma^2 for well separated points
        assert_allclose(bounds[-1], pulls[-1], rtol=1e-6)


def test_two_points_at_next_to_no_noise_are_fitted():
    model = GaussianRobustClassifier(1e-9, loss="hinge", fit_intercept=False).fit([[1.0, 0], [-1, 0]], [1, 0])
    assert model.gap_ <= 1e-6


def test_covariance_of_features_on_very_different_scales_keeps_all_noise(rng):
    w = np.array([0.0, 1.0])
    cloud = GaussianNoise(cov=np.diag([1e10, 1e-6])).at(np.zeros((3, 2)), {})
    assert_allclose(cloud.support(w), 1e-3)
    rows = GaussianNoise().at(np.zeros((3, 2)), {"X_cov": np.broadcast_to(np.diag([1e10, 1e-6]), (3, 2, 2))})
    assert_allclose(rows.support(w), 1e-3)
    with pytest.raises(ValueError, match="indefinite"):
        GaussianNoise(cov=[[1e10, 0], [0, -1e-6]]).at(np.zeros((3, 2)), {})
    with pytest.raises(ValueError, match="indefinite"):
        GaussianNoise(cov=[[1.0, 0.5], [0.5, 0.0]]).at(np.zeros((3, 2)), {})


@pytest.mark.parametrize("share", [1e-6, 1e-9, 1e-13])
@pytest.mark.parametrize("exact", [False, True])
def test_bound_is_valid_and_tight_for_features_on_very_different_scales(share, exact, rng):
    X = rng.normal(size=(60, 2))
    y = (X[:, 1] + 0.4 * rng.normal(size=60) > 0).astype(int)
    scale = np.array([1.0, share])
    S = np.full((60, 2), 0.5)
    S[:, 1] = 0.0 if exact else S[:, 1]
    plain = GaussianRobustClassifier(loss="hinge").fit(X, y, X_std=S)
    scaled = GaussianRobustClassifier(loss="hinge").fit(X * scale, y, X_std=S * scale)
    assert_allclose(scaled.objective_, plain.objective_, rtol=1e-6)
    assert scaled.gap_ <= 1e-6
    # a poor point has a valid bound too
    problem = GaussianRobustClassifier(loss="hinge")._problems(X * scale, y, None, {"X_std": S * scale})[0]
    poor = certificate(problem, np.array([0.1, 0.0]), 0.0)
    assert poor.lower_bound <= plain.objective_ * (1 + 1e-9)


def test_all_zero_wide_sparse_data_collapse_like_dense_ones():
    y = np.arange(10) < 3
    for X in (np.zeros((10, 20)), sparse.csr_matrix((10, 20))):
        with pytest.warns(CollapseWarning):
            assert GaussianRobustClassifier(0.3, loss="hinge").fit(X, y).collapsed_


def test_critical_noise_with_an_exact_feature_is_where_fits_collapse(rng):
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 2 * rng.normal(size=60) > 1.2).astype(int)
    X[:, 1] = rng.permutation(X[:, 1])
    shape = GaussianNoise(std=[1.0, 0.0])
    critical = critical_noise(X, y, noise=shape)
    assert 0 <= critical <= np.inf
    if 0 < critical < np.inf:
        above, below = (GaussianNoise(std=[k * critical, 0.0]) for k in (1.01, 0.99))
        with pytest.warns(CollapseWarning):
            assert GaussianRobustClassifier(above, loss="hinge").fit(X, y).collapsed_
        assert not GaussianRobustClassifier(below, loss="hinge").fit(X, y).collapsed_


def test_noise_along_a_difference_of_features_is_noise(rng):
    X = rng.normal(size=(40, 2))
    y = (X.sum(axis=1) > 0).astype(int)
    y[:5] = 1 - y[:5]
    model = GaussianRobustClassifier(GaussianNoise(factor=[[1.0], [-1.0]]), loss="hinge", alpha=0.1).fit(X, y)
    assert model.gap_ <= 1e-6


def test_fits_in_threads_leave_the_threads_of_blas_as_they_were(rng):
    X = rng.normal(size=(200, 5))
    y = rng.integers(0, 2, size=200)
    before = [pool["num_threads"] for pool in threadpool_info()]
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda seed: GaussianRobustClassifier(0.3).fit(X, y), range(40)))
    assert [pool["num_threads"] for pool in threadpool_info()] == before
    for model in models:
        assert_array_equal(model.coef_, models[0].coef_)


def test_clarabel_finds_a_collapse_too(rng):
    X = rng.normal(size=(30, 2))
    y = np.arange(30) < 8
    with pytest.warns(CollapseWarning):
        model = GaussianRobustClassifier(50.0, loss="two_point", solver="clarabel").fit(X, y)
    assert model.collapsed_


def test_collapse_for_want_of_a_difference_is_not_blamed_on_the_noise():
    X, y = np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([0, 0, 1, 1])
    with pytest.warns(CollapseWarning, match="means of the classes coincide"):
        GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)


def test_frames_whose_columns_differ_are_an_error(rng):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rng.normal(size=(40, 3)), columns=list("abc"))
    S = pandas.DataFrame(np.full((40, 3), 0.1), columns=list("abc"))
    y = (X["a"] > 0).astype(int)
    model = GaussianRobustClassifier().fit(X, y, X_std=S)
    assert list(model.feature_names_in_) == list("abc")
    with pytest.raises(ValueError, match="Give both the same"):
        GaussianRobustClassifier().fit(X, y, X_std=S[list("cba")])


def test_bound_near_the_optimum_is_tight_with_an_exact_feature(rng):
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + X[:, 2] + 0.7 * rng.normal(size=80) > 0.2).astype(int)
    noise = GaussianNoise(std=[0.5, 0.3, 0.0])
    model = GaussianRobustClassifier(noise, loss="hinge").fit(X, y)
    problem = model._problems(X, y, None, {})[0]
    for error in (1e-2, 1e-3):
        near = model.coef_[0] * (1 + error * np.array([1.0, -2.0, -1.0]))
        proof = certificate(problem, near, model.intercept_[0])
        assert proof.lower_bound <= model.objective_ * (1 + 1e-12)
        assert proof.gap <= 3 * error


def test_no_collapse_is_claimed_just_below_the_critical_noise(rng):
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=60) > 0.6).astype(int)
    noise = (1 - 1e-7) * critical_noise(X, y)
    model = GaussianRobustClassifier(noise, loss="hinge").fit(X, y)
    constant = 2 * min(np.sum(y == 0), np.sum(y == 1))
    assert model.objective_ > constant * (1 - 1e-6)  # so near that w = 0 has to be examined
    assert np.any(model.coef_)
    assert not model.collapsed_
    assert model.gap_ <= 1e-6


def test_nothing_is_proved_from_exact_features_that_all_but_coincide(rng):
    """Their difference, a millionth of a millionth of them, tells the classes apart without error."""
    y, z = rng.integers(0, 2, 200), rng.normal(size=200)
    X = np.column_stack([rng.normal(size=200), 1e6 * z, 1e6 * z + 1e-5 * (y - 0.5)])
    with pytest.warns(ConvergenceWarning):
        model = GaussianRobustClassifier(GaussianNoise(std=[1.0, 0.0, 0.0]), loss="hinge").fit(X, y)
    assert model.lower_bound_ <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_million_rows_of_float32_take_less_than_a_gigabyte_beside_the_data(loss, rng):
    X = rng.standard_normal(size=(1_000_000, 50), dtype=np.float32)
    y = (X[:, :5].sum(axis=1) + rng.normal(size=len(X)) > 0.5).astype(int)
    tracemalloc.start()
    model = GaussianRobustClassifier(0.5, loss=loss).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.gap_ <= 1e-6
    assert peak < 1e9
