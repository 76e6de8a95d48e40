"""ExpectedFeatures: units, weights, columns of few values, frames and what is refused."""

import re
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from holdfast import ExpectedFeatures
from holdfast.features.expected_features import GAIN, NARROWEST

SMALL = {"n_knots": 4, "n_components": 6, "random_state": 0}
kinds = pytest.mark.parametrize("kind", ["both", "splines", "fourier"])


@pytest.fixture
def rows(rng):
    return rng.normal(size=(40, 3)), rng.uniform(0.1, 1, size=(40, 3))


@kinds
def test_units_of_columns_and_their_errors_change_nothing(rows, kind):
    X, S = rows
    units, shift = np.array([1e-6, 3.0, 1e5]), np.array([1.0, -20, 4e5])
    features = ExpectedFeatures(kind, **SMALL)
    plain, noisy = features.fit_transform(X), features.transform(X, X_std=S)
    features.fit(X * units + shift)
    assert_allclose(features.transform(X * units + shift), plain, atol=1e-6)
    assert_allclose(features.transform(X * units + shift, X_std=S * units), noisy, atol=1e-6)
    cov = np.einsum("ni,ij,nj->nij", S, 0.5 + 0.5 * np.eye(3), S)
    given = features.transform(X * units + shift, X_cov=cov * np.outer(units, units))
    assert_allclose(given, clone(features).fit(X).transform(X, X_cov=cov), atol=1e-6)


def test_features_are_the_ramps_and_waves_of_the_docstring(rows):
    X, _ = rows
    features = ExpectedFeatures(**SMALL).fit(X)
    columns = []
    for j, knots in enumerate(features.knots_):
        assert_array_equal(knots[[0, -1]], [X[:, j].min(), X[:, j].max()])
        assert_array_equal(knots, np.quantile(X[:, j], np.linspace(0, 1, 5), method="inverted_cdf"))
        for low, high in pairwise(knots):
            width = (high - low) / features.scale_[j]
            rise = np.clip((X[:, j] - low) / features.scale_[j], 0, width)
            columns.append(rise / np.sqrt(max(width, NARROWEST)))
    Z = StandardScaler().fit_transform(X)
    waves = GAIN * np.sqrt(2 / 6) * np.cos(Z @ features.frequencies_.T + features.phases_)
    assert_allclose(features.transform(X), np.column_stack([*columns, waves]), atol=1e-12)
    assert features.gamma_ == pytest.approx(1 / 3)


def test_waves_have_the_kernel_that_is_stated(rng):
    X = StandardScaler().fit_transform(rng.normal(size=(30, 2)))
    Z = ExpectedFeatures("fourier", n_components=20_000, gamma=0.7, random_state=0).fit_transform(X) / GAIN
    squares = np.square(X[:, None] - X).sum(axis=2)
    assert_allclose(Z @ Z.T, np.exp(-0.7 * squares), atol=0.05)


@kinds
def test_weights_are_numbers_of_rows(rows, kind, rng):
    X, S = rows
    counts = rng.integers(0, 4, size=40)
    features = ExpectedFeatures(kind, **SMALL)
    weighted = clone(features).fit(X, sample_weight=counts).transform(X, X_std=S)
    repeated = clone(features).fit(np.repeat(X, counts, axis=0)).transform(X, X_std=S)
    left_out = clone(features).fit(X[counts > 0], sample_weight=counts[counts > 0]).transform(X, X_std=S)
    assert_allclose(weighted, repeated, atol=1e-12)
    assert_allclose(weighted, left_out, atol=1e-12)
    assert_allclose(clone(features).fit(X, sample_weight=counts / 1024).transform(X, X_std=S), weighted, atol=1e-12)
    # a row of weight 0 may be anything
    far = np.where((counts == 0)[:, None], 1e6, X)
    assert_allclose(clone(features).fit(far, sample_weight=counts).transform(X, X_std=S), weighted, atol=1e-9)


def test_columns_of_few_values_have_few_ramps(rng):
    X = np.column_stack([np.full(20, 7.0), np.arange(20) % 2, np.arange(20) % 3, np.arange(20.0)])
    features = ExpectedFeatures("splines").fit(X)
    assert [len(knots) - 1 for knots in features.knots_] == [1, 1, 2, 12]
    assert_array_equal(features.knots_[0], [6, 8])
    found = features.transform(X)
    assert np.all(np.isfinite(found))
    assert len(np.unique(found[:, 0])) == 1
    assert_array_equal(found[:, 1] > 0, X[:, 1] > 0)
    # another value of a constant column shows, and its errors are in its units
    other = X[:1] + np.array([0.5, 0, 0, 0])
    assert features.transform(other)[0, 0] > found[0, 0]
    assert features.transform(X, X_std=np.ones_like(X))[0, 0] == pytest.approx(found[0, 0])
    assert features.scale_[0] == 1.0


def test_a_constant_column_may_be_off_by_rounding():
    X = np.column_stack([np.full(10, 0.1) * 3, 1e9 + np.zeros(10), np.arange(10)])
    features = ExpectedFeatures(**SMALL).fit(X)
    assert_array_equal(features.scale_[:2], 1.0)
    assert np.all(np.isfinite(features.transform(X)))


@kinds
def test_one_row_is_enough(kind):
    features = ExpectedFeatures(kind, **SMALL).fit([[1.0, 2.0]])
    found = features.transform([[1.0, 2.0], [5.0, -3.0]], X_std=np.ones((2, 2)))
    assert found.shape == (2, len(features.get_feature_names_out()))
    assert np.all(np.isfinite(found))


def test_names_say_where_ramps_are(rows):
    X, _ = rows
    frame = pd.DataFrame(X, columns=["radius", "b", "c"])
    features = ExpectedFeatures(**SMALL).fit(frame)
    names = features.get_feature_names_out()
    assert len(names) == features.transform(frame).shape[1] == 3 * 4 + 6
    low, high = features.knots_[0][:2]
    assert names[0] == f"radius from {low:.6g} to {high:.6g}"
    assert list(names[-6:]) == [f"wave{k}" for k in range(6)]
    assert features.fit(X).get_feature_names_out()[0].startswith("x0 from ")
    assert features.get_feature_names_out(["p", "q", "r"])[4].startswith("q from ")


def test_names_differ_where_knots_are_near_each_other():
    X = 1.0 + 1e-9 * np.arange(20)[:, None]
    names = ExpectedFeatures("splines", n_knots=3).fit(X).get_feature_names_out()
    assert len(set(names)) == 3


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_go_in_and_come_out(rows, kind):
    X, S = rows
    frame = {"pandas": pd, "polars": pl}[kind].DataFrame
    given, errors = (frame(dict(zip("abc", part.T, strict=True))) for part in (X, S))
    features = ExpectedFeatures(**SMALL).set_output(transform=kind)
    found = features.fit(given).transform(given, X_std=errors)
    assert type(found).__module__.startswith(kind)
    assert list(found.columns) == list(features.get_feature_names_out())
    assert_allclose(found, ExpectedFeatures(**SMALL).fit(X).transform(X, X_std=S), atol=1e-12)
    with pytest.raises(ValueError, match=r"X_std.*columns"):
        features.transform(given, X_std=errors[["b", "a", "c"]])


@kinds
def test_the_same_seed_gives_the_same_features(rows, kind):
    X, S = rows
    options = {**SMALL, "random_state": 3}
    first, second = (ExpectedFeatures(kind, **options).fit_transform(X, X_std=S) for _ in range(2))
    assert_array_equal(first, second)
    options["random_state"] = 4
    other = ExpectedFeatures(kind, **options).fit_transform(X, X_std=S)
    assert np.array_equal(first, other) == (kind == "splines")
    by_state = ExpectedFeatures(kind, **{**options, "random_state": np.random.RandomState(3)})
    assert_array_equal(by_state.fit_transform(X, X_std=S), first)


def test_cloning_and_fitting_again_leaves_nothing_of_the_first_fit(rows):
    X, _ = rows
    features = ExpectedFeatures(**SMALL).fit(X)
    with pytest.raises(NotFittedError):
        clone(features).transform(X)
    features.set_params(kind="splines").fit(X[:, :2])
    assert not hasattr(features, "frequencies_")
    assert features.n_features_in_ == 2


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ({"X_std": np.ones((40, 2))}, "X_std has shape (40, 2)"),
        ({"X_std": np.ones((39, 3))}, "X_std has shape (39, 3)"),
        ({"X_std": -np.ones((40, 3))}, "X_std must be"),
        ({"X_std": np.full((40, 3), np.nan)}, "X_std"),
        ({"X_std": "much"}, "X_std must be numbers"),
        ({"X_cov": np.ones((40, 3))}, "X_cov"),
        ({"X_cov": -np.tile(np.eye(3), (40, 1, 1))}, "X_cov"),
        ({"X_factor": np.ones((40, 2, 5))}, "X_factor has shape (40, 2, 5)"),
        ({"X_std": np.ones((40, 3)), "X_factor": np.ones((40, 3, 1))}, "X_factor"),
    ],
)
def test_noise_that_does_not_fit_the_rows_is_refused(rows, noise, said):
    features = ExpectedFeatures(**SMALL).fit(rows[0])
    with pytest.raises(ValueError, match=re.escape(said)):
        features.transform(rows[0], **noise)


def test_what_it_cannot_use_is_refused(rows):
    X, S = rows
    features, lost = ExpectedFeatures(**SMALL), np.where(X > 1, np.nan, X)
    for call in (lambda: features.fit(lost), lambda: features.fit(X).transform(lost, X_std=S)):
        with pytest.raises(ValueError, match=r"ExpectedFeatures\.(fit|transform): X contains NaN.*SpreadImputer"):
            call()
    for call in (lambda: features.fit(sparse.csr_array(X)), lambda: features.fit(X).transform(sparse.csr_array(X))):
        with pytest.raises(TypeError, match=r"(?i)sparse.*dense"):
            call()
    with pytest.raises(ValueError, match="infinity"):
        features.fit(np.where(X > 1, np.inf, X))
    with pytest.raises(ValueError, match="3 features"):
        features.fit(X).transform(X[:, :2])
    with pytest.raises(TypeError, match="X_lower"):
        features.transform(X, X_lower=X, X_upper=X)
    for weights in (np.zeros(40), np.full(40, 1e308), -np.ones(40), np.ones(39)):
        with pytest.raises(ValueError, match=r"ExpectedFeatures\.fit.*sample_weight"), np.errstate(over="ignore"):
            features.fit(X, sample_weight=weights)


@kinds
def test_nothing_is_said_where_nothing_is_wrong(rows, kind):
    X, S = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = ExpectedFeatures(kind, **SMALL).fit(X)
        for size in (0.0, 1e-300, 1e-8, 1.0, 1e8, 1e140):
            assert np.all(np.isfinite(features.transform(X, X_std=size * S)))
            assert np.all(np.isfinite(features.transform(X, X_factor=size * S[:, :, None])))
