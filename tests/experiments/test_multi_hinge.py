"""The multiclass hinge under noise along one direction: against quadrature, sampling and the binary loss."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.integrate import quad
from scipy.stats import norm

from holdfast.experiments import expected_max, unidirectional_multi_hinge
from holdfast.losses import GaussianHinge


def _quadrature(a, k):
    """Return E max(a + k Z), integrated piece by piece between all crossings of two lines."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (a[:, None] - a) / (k - k[:, None])
    inside = crossings[np.isfinite(crossings) & (np.abs(crossings) < 12)]
    knots = np.unique(np.concatenate([inside, np.linspace(-12, 12, 13)]))
    return sum(
        quad(lambda z: np.max(a + k * z) * norm.pdf(z), low, high, epsabs=1e-13, epsrel=1e-12)[0]
        for low, high in pairwise(knots)
    )


@pytest.fixture
def model(rng):
    """X, y, coef and intercept of 4 classes in 3 features."""
    return rng.normal(size=(30, 3)), rng.integers(0, 4, size=30), rng.normal(size=(4, 3)), rng.normal(size=4)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 6])
def test_expected_maximum_is_the_integral(n_classes, rng):
    levels = rng.normal(size=(20, n_classes)) * 10 ** rng.uniform(-1, 0.7, size=(20, 1))
    slopes = rng.normal(size=(20, n_classes)) * 10 ** rng.uniform(-1, 0.7, size=(20, 1))
    exact = [_quadrature(a, k) for a, k in zip(levels, slopes, strict=True)]
    assert_allclose(expected_max(levels, slopes), exact, rtol=1e-10, atol=1e-10)


def test_expected_maximum_with_ties_is_the_integral(rng):
    levels = rng.integers(-2, 3, size=(40, 5)).astype(float)
    slopes = rng.integers(-1, 2, size=(40, 5)).astype(float)
    exact = [_quadrature(a, k) for a, k in zip(levels, slopes, strict=True)]
    assert_allclose(expected_max(levels, slopes), exact, rtol=1e-10, atol=1e-10)


def test_parallel_lines_have_the_level_of_the_highest(rng):
    levels = rng.normal(size=(50, 4))
    assert_allclose(expected_max(levels, np.full(4, 3.7)), levels.max(axis=1), rtol=1e-15)


def test_noise_common_to_all_lines_changes_nothing_and_a_common_level_is_added(rng):
    levels, slopes = rng.normal(size=(2, 50, 4))
    plain = expected_max(levels, slopes)
    assert_allclose(expected_max(levels + 5.0, slopes - 2.0), plain + 5.0, rtol=1e-13)
    order = rng.permutation(4)
    assert_allclose(expected_max(levels[:, order], slopes[:, order]), plain, rtol=1e-13)
    assert_allclose(expected_max(levels, -slopes), plain, rtol=1e-13)


def test_two_lines_are_the_gaussian_hinge_to_the_last_bits():
    """E max(0, u + t Z), where the loss itself is as small as 1e-80 too."""
    u = np.linspace(-19, 19, 401)
    found = expected_max(np.column_stack([np.zeros_like(u), u]), [0.0, 1.0])
    loss = GaussianHinge()
    assert_allclose(found, np.maximum(u, 0.0) + loss.tail(np.abs(u)), rtol=1e-13)
    assert_allclose(loss.evaluate(u, np.ones_like(u))[0], found, rtol=1e-10, atol=1e-300)


def test_extreme_lines_are_silent():
    found = expected_max([[0.0, 1e200, -1e200], [0.0, -1e10, -1e-300]], [[0.0, 1e-300, 1e-200], [0, 1e-300, 2e-300]])
    assert_allclose(found, [1e200, 0.0], atol=1e-290)


def test_loss_is_the_mean_over_sampled_noise(model, rng):
    X, y, W, b = model
    v = rng.normal(size=3)
    scores = (X[:, None] + rng.normal(size=(1, 50_000, 1)) * v) @ W.T + b
    own = np.take_along_axis(scores, np.broadcast_to(y[:, None, None], (30, 50_000, 1)), axis=2)
    margins = scores - own + (np.arange(4) != y[:, None])[:, None]
    losses = margins.max(axis=2)
    error = losses.std(axis=1) / np.sqrt(losses.shape[1])
    rare = 1e-5  # losses that so few draws may miss
    assert np.all(np.abs(losses.mean(axis=1) - unidirectional_multi_hinge(X, y, W, b, v)) <= 4.5 * error + rare)


def test_two_classes_are_the_gaussian_hinge(model, rng):
    X, y, W, b = model
    y, W, b, v = y % 2, W[:2], b[:2], rng.normal(size=3)
    lead = (2 * y - 1) * (X @ (W[1] - W[0]) + b[1] - b[0])
    t = np.full(30, abs((W[1] - W[0]) @ v))
    assert_allclose(unidirectional_multi_hinge(X, y, W, b, v), GaussianHinge().value(1 - lead, t), rtol=1e-12)


def test_without_noise_it_is_the_multiclass_hinge(model):
    X, y, W, b = model
    scores = X @ W.T + b
    margins = scores - scores[np.arange(30), y, None] + (np.arange(4) != y[:, None])
    assert_allclose(unidirectional_multi_hinge(X, y, W, b, np.zeros(3)), margins.max(axis=1), rtol=1e-14)


def test_more_noise_never_helps_and_its_sign_does_not_matter(model, rng):
    X, y, W, b = model
    v = rng.normal(size=3)
    losses = np.array([unidirectional_multi_hinge(X, y, W, b, k * v) for k in np.linspace(0, 5, 21)])
    assert np.all(np.diff(losses, axis=0) >= -1e-14)
    assert np.all(losses[-1] > losses[0])
    assert_allclose(unidirectional_multi_hinge(X, y, W, b, -v), unidirectional_multi_hinge(X, y, W, b, v), rtol=1e-13)


def test_adding_one_vector_to_all_classes_changes_nothing_and_sparse_rows_are_rows(model, rng):
    X, y, W, b = model
    v = rng.normal(size=3)
    plain = unidirectional_multi_hinge(X, y, W, b, v)
    assert_allclose(unidirectional_multi_hinge(X, y, W + rng.normal(size=3), b + 2.0, v), plain, rtol=1e-11)
    assert_allclose(unidirectional_multi_hinge(sparse.csr_array(X), y, W, b, v), plain, rtol=1e-13)


def test_bad_arguments_are_named(model):
    X, y, W, b = model
    with pytest.raises(ValueError, match=r"Give \(n_classes, n_features\)"):
        unidirectional_multi_hinge(X, y, W, b, np.zeros(4))
    with pytest.raises(ValueError, match=r"Give \(n_classes, n_features\)"):
        unidirectional_multi_hinge(X, y, W, b[:3], np.zeros(3))
    for wrong in (y + 1, y - 1, y.astype(float), y.astype(str)):
        with pytest.raises(ValueError, match=r"0 \.\.\. 3"):
            unidirectional_multi_hinge(X, wrong, W, b, np.zeros(3))
    for levels, slopes in (([1.0, 2.0], [0.0, 1.0]), ([[np.nan, 1.0]], [[0.0, 1.0]]), (np.zeros((3, 0)), 0.0)):
        with pytest.raises(ValueError, match="expected_max"):
            expected_max(levels, slopes)
