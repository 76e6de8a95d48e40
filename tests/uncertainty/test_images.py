"""Images of sets under linear maps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from holdfast import Ball, Box, ChanceConstraint, Ellipsoid, GaussianNoise, IntervalBox
from holdfast.uncertainty import LinearImage

A = np.array([[2.0, 0.0, 0.0], [0.3, 0.5, -1.0]])
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.2]])
DRAWN = {
    "noise": GaussianNoise(cov=COV),
    "spreads": GaussianNoise(std=[0.1, 2.0, 0.5]),
    "box": Box(0.5),
    "intervals": IntervalBox(-0.1, 0.4),
    "ball": Ball(0.5, 1),
    "ellipsoid": Ellipsoid(0.5, shape=COV),
    "sum": Ball(0.2) + GaussianNoise(std=0.1),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_the_moved_draws_of_the_original_set(name):
    original, n_draws = DRAWN[name], 3
    drawn = LinearImage(original, A).draws(np.zeros((6, 2)), {}, np.random.default_rng(0), n_draws)
    before = original.draws(np.zeros((6, 3)), {}, np.random.default_rng(0), n_draws)
    for errors, originals in zip(drawn, before, strict=True):
        assert_allclose(errors, originals @ A.T, rtol=1e-12, atol=1e-14)


def test_draws_of_noise_have_its_covariance():
    noise = LinearImage(GaussianNoise(cov=COV), A)
    (drawn,) = noise.draws(np.zeros((40_000, 2)), {}, np.random.default_rng(0), 1)
    assert_allclose(np.cov(drawn.T), A @ COV @ A.T, atol=0.1)


def test_metadata_of_draws_are_those_of_the_originals(rng):
    X, stds = np.zeros((6, 2)), rng.uniform(0.1, 1.0, size=(6, 3))
    (drawn,) = LinearImage(Box(), A).draws(X, {"X_std": stds}, np.random.default_rng(0), 1)
    (before,) = Box().draws(np.zeros((6, 3)), {"X_std": stds}, np.random.default_rng(0), 1)
    assert_array_equal(drawn, before @ A.T)


def test_sets_that_cannot_be_drawn_from_say_so_of_their_images_too():
    with pytest.raises(ValueError, match="not which errors to draw from"):
        LinearImage(ChanceConstraint(0.1, cov=1.0), A).draws(np.zeros((6, 2)), {}, np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match=r"LinearImage\(matrix=...\): has shape \(2, 3\); X has 4 features"):
        LinearImage(Box(0.1), A).draws(np.zeros((6, 4)), {}, np.random.default_rng(0), 1)


def test_large_and_sparse_matrices_are_printed_short():
    assert (
        repr(LinearImage(Box(0.1), np.eye(3)))
        == "LinearImage(original=Box(radius=0.1), matrix=<array of shape (3, 3)>)"
    )
    thin = sparse.eye_array(2, format="csr")
    assert (
        repr(LinearImage(Box(0.1), thin))
        == "LinearImage(original=Box(radius=0.1), matrix=<sparse array of shape (2, 2)>)"
    )
