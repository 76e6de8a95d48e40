"""Features replaced by noise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

from holdfast import CorruptedFeatures
from holdfast.uncertainty import corruption_margin
from holdfast.uncertainty.deletion_loss import DeletionLoss


def flip_probability(n, margin):
    """Pr(n fair signs sum to -margin or less): weights of 1 and the noise of largest variance."""
    return binom.cdf(np.floor((n - margin) / 2 + 1e-12), n, 0.5)


def test_margin_keeps_its_promise_for_fair_signs():
    for n in (1, 2, 5, 20, 100, 1000):
        for eps in (0.5, 0.3, 0.1, 0.01, 1e-4):
            assert flip_probability(n, corruption_margin(1.0, n, eps)) <= eps


def test_printed_margin_breaks_its_promise():
    assert flip_probability(1, corruption_margin(1.0, 1, 0.3, variant="published")) == 0.5
    assert flip_probability(100, corruption_margin(1.0, 100, 0.01, variant="published")) > 0.01
    assert_allclose(corruption_margin(3.0, 4, 0.2), 2 * corruption_margin(3.0, 4, 0.2, variant="published"))


def test_margin_is_in_units_of_the_bound():
    assert_allclose(CorruptedFeatures(3).margin(5.0, 0.1), 5.0 * corruption_margin(1.0, 3, 0.1))


@pytest.mark.parametrize("noise", ["uniform", "sign"])
def test_error_under_corruption_is_within_the_loss_and_eps(noise):
    rng = np.random.default_rng(0)
    corrupted, eps, w = CorruptedFeatures(2, noise=noise), 0.2, rng.uniform(0.2, 1, size=12)
    y = rng.choice([-1.0, 1.0], size=4000)
    X = np.clip(y[:, None] * 0.7 + rng.uniform(-0.7, 0.7, size=(4000, 12)), -1, 1)
    margins = y[:, None] * w * X
    loss = DeletionLoss.of(None, 2, corrupted.margin(1.0, eps), "exact", 12, "f")
    share = np.mean(loss.deficits(margins, np.zeros(4000))[0] >= 0)
    errors = [np.mean(y * (corrupted.sample(X, gains=margins, random_state=k) @ w) <= 0) for k in range(5)]
    assert 0 < share < 1
    assert np.mean(errors) <= share + eps


def test_sample_replaces_the_features_of_largest_gain_and_no_others():
    X, gains = np.full((2, 4), 7.0), np.array([[3.0, -1.0, 2.0, 1.0], [-1.0, -2.0, 5.0, -3.0]])
    out = CorruptedFeatures(2, noise="sign").sample(X, gains=gains, random_state=0)
    assert_array_equal(np.abs(out), [[1.0, 7.0, 1.0, 7.0], [7.0, 7.0, 1.0, 7.0]])
    assert_array_equal(X, 7.0)


def test_random_sample_replaces_as_many_by_centred_noise():
    X = np.full((4000, 5), 7.0)
    out = CorruptedFeatures(3).sample(X, random_state=1)
    drawn = out[out != 7.0]
    assert_array_equal(np.sum(out != 7.0, axis=1), 3)
    assert np.all(np.abs(drawn) <= 1)
    assert abs(np.mean(drawn)) < 4 * np.sqrt(1 / 3 / drawn.size)
    assert_allclose(np.mean(out != 7.0, axis=0), 0.6, atol=0.04)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corruption_margin(1.0, 1, 1.5), r"eps=1.5\): must lie between 0 and 1"),
        (lambda: corruption_margin(0.0, 1, 0.5), r"bound=0.0\): must be > 0"),
        (lambda: corruption_margin(1.0, 1, 0.5, variant="printed"), "variant='printed'"),
        (lambda: CorruptedFeatures(1.5).margin(1.0, 0.1), "n_corrupted=.*must be an integer"),
        (lambda: CorruptedFeatures(3).sample(np.zeros((2, 2))), "X has only 2 features"),
        (lambda: CorruptedFeatures(1, noise="normal").sample(np.zeros((2, 2))), "noise='normal'"),
        (lambda: CorruptedFeatures(1).sample(np.zeros(2)), r"X has shape \(2,\)"),
        (lambda: CorruptedFeatures(1).sample(np.zeros((2, 2)), gains=[1.0, 2.0]), r"gains has shape \(2,\)"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
