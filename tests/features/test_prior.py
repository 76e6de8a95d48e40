"""A Gaussian prior: what rows are likely to be, given noisy values, against full matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.covariance import ledoit_wolf

from holdfast.features import prior
from holdfast.features.prior import GaussianPrior
from holdfast.features.row_noise import RowNoise


def prior_of(X, weights=None):
    """The prior of rows, scaled as ExpectedFeatures scales them."""
    weights = np.ones(len(X)) if weights is None else weights
    mean = np.average(X, axis=0, weights=weights)
    scale = np.sqrt(np.average(np.square(X - mean), axis=0, weights=weights))
    return GaussianPrior.of(X, weights, mean, np.where(scale > 0, scale, 1.0))


def covariance_of(known):
    return known.scale[:, None] * (known.loadings @ known.loadings.T + np.diag(known.unique)) * known.scale


@pytest.fixture
def rows(rng):
    """Columns that go together, in several units."""
    return (rng.normal(size=(60, 3)) @ rng.normal(size=(3, 5)) + 0.3 * rng.normal(size=(60, 5))) * [
        1,
        10,
        0.1,
        5,
        1,
    ] + 2.0


def noises(n, d, rng, unit):
    std = unit * rng.uniform(0, 2, size=(n, d)) * (rng.uniform(size=(n, d)) < 0.7)
    factor = unit[:, None] * rng.normal(size=(n, d, 2))
    return {
        "std": RowNoise(std),
        "factor": RowNoise(np.zeros((n, d)), factor),
        "both": RowNoise(std, factor),
        "none": RowNoise.none((n, d)),
        "some": RowNoise(std * (np.arange(n) % 2)[:, None]),
    }


@pytest.mark.parametrize("kind", ["std", "factor", "both", "none", "some"])
def test_posteriors_are_those_of_full_matrices(rows, kind, rng):
    known = prior_of(rows)
    noise, Sigma = noises(60, 5, rng, known.scale)[kind], covariance_of(known)
    other = rows + noise.drawn(rng)
    [first, second], unknown = known.posterior([rows, other], noise)
    for i in range(0, 60, 5):
        C = noise.causes[i] @ noise.causes[i].T
        gain = Sigma @ np.linalg.inv(Sigma + C)
        for X, means in ((rows, first), (other, second)):
            assert_allclose(means[i], known.mean + gain @ (X[i] - known.mean), rtol=1e-8)
        left, slack = Sigma - gain @ Sigma, 1e-10 * known.scale.max() ** 2
        assert_allclose(np.square(unknown.deviations[i]), np.diag(left), rtol=1e-6, atol=slack)
        if noise.factor.shape[2]:  # of errors with common causes all of the covariance
            assert_allclose(unknown.causes[i] @ unknown.causes[i].T, left, rtol=1e-6, atol=slack)


def test_exact_rows_stay_what_they_are_to_the_last_digit(rows, rng):
    known = prior_of(rows)
    for noise in (RowNoise.none(rows.shape), RowNoise(np.zeros(rows.shape), np.zeros((*rows.shape, 2)))):
        [same], unknown = known.posterior([rows], noise)
        assert_array_equal(same, rows)
        assert not np.any(unknown.deviations)
    # and an exact row beside noisy ones
    noise = noises(60, 5, rng, known.scale)["some"]
    [found], unknown = known.posterior([rows], noise)
    assert_array_equal(found[::2], rows[::2])
    assert not np.any(unknown.deviations[::2])


def test_a_row_that_says_nothing_is_what_rows_are_like(rows):
    known = prior_of(rows)
    [found], unknown = known.posterior([rows], RowNoise(1e8 * known.scale * np.ones_like(rows)))
    assert_allclose(found, np.broadcast_to(known.mean, rows.shape), rtol=1e-5, atol=1e-6)
    assert_allclose(unknown.std, np.broadcast_to(np.sqrt(np.diag(covariance_of(known))), rows.shape), rtol=1e-6)


def test_a_column_that_is_lost_is_told_by_the_others(rng):
    hidden = rng.normal(size=500)
    X = np.column_stack([hidden + 0.1 * rng.normal(size=500), hidden, rng.normal(size=500)])
    noise = RowNoise(np.where(np.arange(3) == 1, 1e6, 0.0) * np.ones_like(X))
    noisy = X + noise.drawn(rng)
    [found], unknown = prior_of(X).posterior([noisy], noise)
    assert np.sqrt(np.mean(np.square(found[:, 1] - X[:, 1]))) < 0.15
    assert 0.1 < unknown.std[:, 1].mean() < 0.25  # the covariance is shrunk
    assert_array_equal(found[:, [0, 2]], noisy[:, [0, 2]])


@pytest.mark.parametrize("kind", ["std", "factor", "both", "some"])
def test_what_the_means_follow_is_how_they_move(rows, kind, rng):
    known = prior_of(rows)
    noise = noises(60, 5, rng, known.scale)[kind]
    found = known.followed(noise)
    assert not np.any(found.std)
    for cause, move in zip(np.moveaxis(noise.causes, 2, 0), np.moveaxis(found.factor, 2, 0), strict=True):
        [before, after], _ = known.posterior([rows - cause, rows + cause], noise)
        assert_allclose(move, 0.5 * (after - before), rtol=1e-7, atol=1e-7)


def test_rows_are_taken_in_blocks(rows, rng, monkeypatch):
    known = prior_of(rows)
    noise = noises(60, 5, rng, known.scale)["both"]
    [whole], unknown = known.posterior([rows], noise)
    followed = known.followed(noise)
    monkeypatch.setattr(prior, "BLOCK_ENTRIES", 7 * 7 * 11)
    [parts], again = known.posterior([rows], noise)
    assert_allclose(parts, whole, rtol=1e-12)
    assert_allclose(again.std, unknown.std, rtol=1e-12)
    assert_allclose(known.followed(noise).factor, followed.factor, atol=1e-12)


def test_the_covariance_is_that_of_ledoit_and_wolf(rows):
    known = prior_of(rows)
    Z = (rows - known.mean) / known.scale
    wanted, shrinkage = ledoit_wolf(Z, assume_centered=True)
    assert 0 < shrinkage < 1
    found = known.loadings @ known.loadings.T + np.diag(known.unique)
    assert_allclose(found, wanted, atol=1e-8)  # 5 columns: all directions are kept


def test_many_columns_keep_their_variances_and_the_largest_directions(rng):
    X = rng.normal(size=(25, 4)) @ rng.normal(size=(4, 60)) + 0.1 * rng.normal(size=(25, 60))
    known = prior_of(X)
    assert known.loadings.shape == (60, prior.RANK)
    assert np.all(known.unique > 0)
    wanted, _ = ledoit_wolf((X - known.mean) / known.scale, assume_centered=True)
    found = known.loadings @ known.loadings.T + np.diag(known.unique)
    assert_allclose(np.diag(found), np.diag(wanted), rtol=1e-10)
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)
    [means], unknown = known.posterior([X], RowNoise(np.ones_like(X)))
    assert np.all(np.isfinite(means))
    assert np.all(unknown.std <= 1)


def test_weights_are_numbers_of_rows(rows, rng):
    counts = rng.integers(0, 4, size=60)
    weighted, repeated = prior_of(rows, 1.0 * counts), prior_of(np.repeat(rows, counts, axis=0))
    for part in ("mean", "scale", "unique"):
        assert_allclose(getattr(weighted, part), getattr(repeated, part), rtol=1e-9)
    assert_allclose(covariance_of(weighted), covariance_of(repeated), rtol=1e-9)


def test_one_column_shrinks_by_the_share_of_the_noise(rng):
    X = 3 * rng.normal(size=(50, 1)) + 1
    known = prior_of(X)
    assert known.loadings.shape == (1, 0)
    S = rng.uniform(0, 5, size=X.shape)
    [means], unknown = known.posterior([X], RowNoise(S))
    variance = known.scale**2
    kept = variance / (variance + S**2)
    assert_allclose(means, known.mean + kept * (X - known.mean), rtol=1e-9)
    assert_allclose(unknown.std, S * np.sqrt(kept), rtol=1e-9)


def test_constant_columns_are_left_alone(rng):
    X = np.column_stack([np.full(30, 5.0), rng.normal(size=30), np.full(30, -2.0)])
    known = prior_of(X)
    [means], unknown = known.posterior([X], RowNoise(np.ones_like(X)))
    assert np.all(np.isfinite(means))
    assert_allclose(means[:, [0, 2]], X[:, [0, 2]], atol=1e-6)
    assert np.all(unknown.std <= 1 + 1e-12)
    constant = prior_of(np.ones((4, 2)))
    [same], unknown = constant.posterior([np.ones((4, 2))], RowNoise(np.ones((4, 2))))
    assert_allclose(same, np.ones((4, 2)))
    assert np.all(np.isfinite(unknown.std))
