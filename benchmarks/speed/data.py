"""Data of the cases: drawn, or loaded where HOLDFAST_DATA names a folder that has them."""

import os
from functools import cache

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from holdfast.datasets import load_from_folder
from speed.case import Data

SMOKE = 40
"""Rows, or columns, of a smoke test at most."""
HAS_FOLDER = bool(os.environ.get("HOLDFAST_DATA"))


def drawn(draw, *shape, **options):
    """Return data that `draw` draws in this shape, a small one for a smoke test."""
    return lambda is_smoke: draw(*(min(size, SMOKE) if is_smoke else size for size in shape), **options)


def loaded(load):
    """Return data that `load` loads, few rows of each class and some columns for a smoke test."""

    def data(is_smoke):
        X, y, told = load()
        if not is_smoke:
            return Data(X, y, told)
        few = np.sort(np.concatenate([np.flatnonzero(y == label)[:20] for label in np.unique(y)]))
        return Data(X[few][:, :SMOKE], y[few], {name: value[few][:, :SMOKE] for name, value in told.items()})

    return data


def of_type(data, dtype):
    """Return the same data with rows of another type."""

    def typed(is_smoke):
        X, y, told = data(is_smoke)
        return Data(np.ascontiguousarray(X, dtype=dtype), y, told)

    return typed


def told(data, **made):
    """Return the same data with errors of the rows, made of them by functions."""

    def with_errors(is_smoke):
        X, y, _ = data(is_smoke)
        return Data(X, y, {name: make(X) for name, make in made.items()})

    return with_errors


def uniform_errors(X):
    return np.random.default_rng(1).uniform(0, 0.3, size=X.shape)


# drawn


def correlated(n, d, seed=0):
    """Gaussian features with correlation 0.5 between neighbours, labels from a linear score with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    w = rng.normal(size=d) / np.sqrt(d)
    return Data(X, np.where(X @ w + 0.5 * rng.normal(size=n) > 0, 1, -1))


def gaussian(n, d, noise=0.7, flipped=0.0, seed=0):
    """Independent Gaussian features, labels from a linear score with noise, a share of them `flipped`."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d) / np.sqrt(min(d, 50))
    y = np.where(X @ w + 0.3 + noise * rng.normal(size=n) > 0, 1, -1)
    return Data(X, np.where(rng.uniform(size=n) < flipped, -y, y))


def shifted_classes(n, d, seed=0):
    """Gaussian classes with the same correlated features around different means."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=n)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d))
    return Data(X + 0.3 * np.outer(y, rng.normal(size=d)), y)


def uniform(n, d, seed=0):
    """Entries from -1 to 1, labels by the sum of five features with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    return Data(X, np.sign(X[:, :5].sum(axis=1) + 0.5 * rng.normal(size=n)))


def words(n, d, per_row=43, seed=0):
    """Rows like texts: words drawn by Zipf's law, log counts weighted by rarity, unit length; labels from a sparse rule.

    A row has `per_row` words on average, repetitions included. A tenth of the words, of any popularity, carry a normal
    weight; a row is positive if their sum plus noise of half its deviation is above the median.
    """
    rng = np.random.default_rng(seed)
    popularity = 1 / (np.arange(d) + 10.0)
    edges = np.cumsum(popularity / popularity.sum())
    lengths = rng.poisson(per_row, size=n) + 1
    drawn_words = np.minimum(np.searchsorted(edges, rng.uniform(size=lengths.sum())), d - 1)
    columns, starts = (
        rng.permutation(d)[drawn_words].astype(np.int32),
        np.append(0, np.cumsum(lengths)).astype(np.int32),
    )
    X = sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(n, d))
    X.sum_duplicates()
    rarity = np.log(n / np.maximum(np.bincount(X.indices, minlength=d), 1))
    X.data = np.log1p(X.data) * np.maximum(rarity[X.indices], 0.01)
    X.data /= np.repeat(np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1])), np.diff(X.indptr))
    score = X @ (rng.normal(size=d) * (rng.uniform(size=d) < 0.1))
    score += 0.5 * score.std() * rng.normal(size=n)
    return Data(X, np.where(score > np.median(score), 1, -1))


# loaded


@cache
def _table(name):
    data = load_from_folder(name)
    return {key: data[key] for key in data}


def _pair(name, one, other):
    data = _table(name)
    pair = np.isin(data["y"], (one, other))
    return data["X"][pair].astype(float), np.where(data["y"][pair] == other, 1, -1)


def standardised(X, y):
    X = X[:, X.std(axis=0) > 0]
    return Data(StandardScaler().fit_transform(X), np.where(y == y.max(), 1, -1))


def breast_cancer():
    return standardised(*load_breast_cancer(return_X_y=True))


def spambase():
    return standardised(_table("spambase")["X"], _table("spambase")["y"])


def spambase_to_one():
    data = _table("spambase")
    return Data(data["X"] / np.abs(data["X"]).max(axis=0), np.where(data["y"] == 1, 1.0, -1.0))


def usps_3_or_5():
    return standardised(*_pair("usps", 3, 5))


def usps_pixels():
    return _pair("usps", 3, 5)


def mnist_4_or_9():
    return _pair("mnist", 4, 9)


def sparse_spambase():
    data = _table("spambase")
    return Data(sparse.csr_array(data["X"] / data["X"].std(axis=0)), np.where(data["y"] > 0, 1, -1))


def sparse_splice():
    data = _table("splice_uci")
    return Data(sparse.csr_array(OneHotEncoder().fit_transform(data["X"])), np.where(data["y"] == 2, 1, -1))


def sparse_mnist_4_or_7():
    X, y = _pair("mnist", 4, 7)
    X = sparse.csr_array(X)
    X.data /= np.sqrt(np.sum(X.data**2) / X.shape[0])
    return Data(X, y)


def mnist_4_or_7():
    X, y = _pair("mnist", 4, 7)
    return Data(X[:2000] / 255.0, y[:2000].astype(float))


def digits():
    return centred(*load_digits(return_X_y=True))


def splice():
    data = _table("splice_uci")
    spelled = (data["X"][:, :, None] == np.unique(data["X"])).reshape(len(data["X"]), -1)
    return centred(spelled[:, spelled.any(axis=0)].astype(float), data["y"])


def usps(n=None):
    data = _table("usps")
    X, y = data["X"][~data["is_test"]].astype(float), data["y"][~data["is_test"]]
    return centred(X[:n], y[:n])


def centred(X, y):
    """Return rows about their mean, with norms of 1 in quadratic mean."""
    X = X - X.mean(axis=0)
    return Data(X / np.sqrt(np.mean(np.sum(X**2, axis=1))), y)
