"""How likely noise is to change the class of a linear model, beside the normal law by others and by draws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_iris

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.estimators.flips import loses_to_any, loses_to_some


def clouds(rng, n_samples, n_rivals, n_causes):
    """Return leads, their deviations, the deviations between them, and their covariances."""
    F = rng.normal(size=(n_samples, n_rivals, n_causes)) * 10 ** rng.uniform(-2, 1, size=(n_samples, 1, 1))
    t = np.linalg.norm(F, axis=2)
    leads = t * np.abs(rng.normal(size=t.shape)) * 10 ** rng.uniform(-2, 0.5, size=t.shape)
    return leads, t, lambda k, other: np.linalg.norm(F[:, k] - F[:, other], axis=1), F @ F.transpose(0, 2, 1)


def test_flips_of_three_classes_are_those_of_the_bivariate_normal_law(rng):
    leads, t, between, C = clouds(rng, 200, 2, 2)
    leads[:20, 0] = 0.0
    leads[20:30] = 0.0
    found, error = loses_to_any(leads, t, between, n_draws=1, seed=0)
    assert_array_equal(error, 0.0)
    for lead, cov, value in zip(leads, C, found, strict=True):
        law = multivariate_normal(cov=cov, abseps=1e-13, releps=1e-13)
        assert_allclose(value, 1 - law.cdf(lead), atol=1e-8)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_flips_of_leads_that_move_together_or_against_each_other(sign):
    leads = np.array([[0.3, 0.5], [0.2, 0.2], [0.0, 1.0], [40.0, 41.0]])
    t = np.tile([1.0, 2.0], (4, 1))
    found = loses_to_any(leads, t, lambda k, other: np.full(4, abs(1 - 2 * sign)), n_draws=1, seed=0)[0]
    heights = leads / t
    expected = norm.sf(heights.min(axis=1)) if sign > 0 else norm.sf(heights).sum(axis=1)
    assert_allclose(found, expected, rtol=1e-7)


def test_rivals_without_noise_between_them_and_the_class_never_win():
    leads, t = np.array([[0.5, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 2.0]])
    found = loses_to_any(leads, t, lambda k, other: t.max(axis=1), n_draws=1, seed=0)[0]
    assert_allclose(found, norm.sf([1.0, 0.5]))


@pytest.mark.parametrize("n_rivals", [3, 6])
def test_flips_of_more_classes_are_within_their_standard_errors(n_rivals, rng):
    leads, t, between, C = clouds(rng, 30, n_rivals, 4)
    found, error = loses_to_any(leads, t, between, n_draws=4000, seed=0)
    bound = loses_to_some(leads, t)
    assert np.all(error <= 0.5 * np.sum(norm.sf(leads / t), axis=1) / np.sqrt(4000))
    assert np.all(found <= bound + 1e-15)
    draws = np.concatenate([rng.multivariate_normal(np.zeros(n_rivals), cov, size=40_000)[None] for cov in C])
    flips = np.any(draws > leads[:, None], axis=2).mean(axis=1)
    assert np.all(np.abs(found - flips) <= 4.5 * np.hypot(error, np.sqrt(flips * (1 - flips) / 40_000)) + 1e-4)
    assert np.any(found < bound - 0.05)


def test_rare_flips_are_told_to_a_share_of_their_size(rng):
    leads, t = np.full((1, 3), 8.0), np.ones((1, 3))
    found, error = loses_to_any(leads, t, lambda k, other: np.full(1, np.sqrt(2.0)), n_draws=1000, seed=0)
    assert_allclose(found, 3 * norm.sf(8.0), rtol=0.01)
    assert error[0] < 0.02 * found[0]


def test_flips_of_a_model_are_the_share_of_noisy_predictions_that_differ(rng):
    X, y = load_iris(return_X_y=True)
    model = GaussianRobustClassifier(0.3, loss="hinge").fit(X, y)
    S = rng.uniform(0.1, 1.0, size=(6, 4))
    rows = X[45:57:2]
    noisy = rows + S * rng.normal(size=(50_000, 6, 4))
    flips = np.mean(model.predict(noisy.reshape(-1, 4)).reshape(-1, 6) != model.predict(rows), axis=0)
    found = model.flip_probability(rows, X_std=S)
    assert np.all(np.abs(found - flips) <= 4.5 * np.sqrt(found * (1 - found) / 50_000) + 1e-5)
    bound = model.flip_probability(rows, X_std=S, method="bound")
    assert np.all(bound >= found)
    with pytest.raises(ValueError, match=r"flip_probability\(method='draws'\): .* 'auto' or 'bound'"):
        model.flip_probability(rows, X_std=S, method="draws")


def test_a_covariance_that_is_known_in_part_has_a_bound_alone():
    X, y = load_iris(return_X_y=True)
    model = GaussianRobustClassifier(GaussianNoise(0.3, unknown="correlations"), loss="hinge").fit(X, y)
    assert_array_equal(model.flip_probability(X), model.flip_probability(X, method="bound"))
