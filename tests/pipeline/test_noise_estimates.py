"""Noise estimates: against simulated errors whose size is known, and against the formulas by hand."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from holdfast import (
    Box,
    GaussianNoise,
    GaussianRobustClassifier,
    noise_from_intervals,
    noise_from_quantization,
    noise_from_replicates,
    split_errors,
)
from holdfast.datasets import intervals_from_replicates

C = np.array([[0.5, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.1]])


def measured(rng, sizes, spread=None):
    """Return rows measured as often as `sizes` say, with errors of covariance C (times `spread` of their group), and groups."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    factor = 1.0 if spread is None else spread[groups, None]
    errors = rng.multivariate_normal(np.zeros(3), C, size=len(groups)) * factor
    return 5 * rng.normal(size=(len(sizes), 3))[groups] + errors, groups


def test_pooled_covariance_has_no_bias_also_with_two_replicates(rng):
    found = np.array([noise_from_replicates(*measured(rng, np.full(50, 2))).cov for _ in range(400)])
    error = np.sqrt((C**2 + np.outer(np.diag(C), np.diag(C))) / 50 / 400)
    assert np.all(np.abs(found.mean(axis=0) - C) <= 4 * error)


def test_estimates_are_the_formulas_by_hand(rng):
    X, groups = measured(rng, [3, 1, 2, 4])
    order = rng.permutation(len(X))
    X, groups = X[order], groups[order]
    noise = noise_from_replicates(X, groups, prior=2.5)
    residuals = X - np.array([X[groups == g].mean(axis=0) for g in groups])
    assert noise.freedom == 6
    assert_allclose(noise.cov, residuals.T @ residuals / 6)
    assert_allclose(noise.std, np.sqrt(np.diag(noise.cov)))
    for g, mean, error in zip(noise.groups, noise.means, noise.means_std, strict=True):
        own = groups == g
        assert_allclose(mean, X[own].mean(axis=0))
        square = (2.5 * noise.std**2 + (residuals[own] ** 2).sum(axis=0)) / (2.5 + own.sum() - 1)
        assert_allclose(noise.X_std[own], np.tile(np.sqrt(square), (own.sum(), 1)))
        assert_allclose(error, np.sqrt(square / own.sum()))
    assert_allclose(noise.X_std[groups == 1][0], noise.std)


def test_prior_goes_from_each_group_for_itself_to_the_same_for_all(rng):
    X, groups = measured(rng, [3, 5, 1, 2])
    alone, pooled = (noise_from_replicates(X, groups, prior=prior) for prior in (0, np.inf))
    assert_allclose(alone.X_std[:3], np.tile(X[:3].std(axis=0, ddof=1), (3, 1)))
    assert_allclose(pooled.X_std, np.tile(pooled.std, (11, 1)))
    own = intervals_from_replicates(X, groups)
    assert_allclose(own.X, alone.means)
    assert_allclose(own.X_std, alone.X_std[[0, 3, 8, 9]])


def test_shrinkage_is_nearer_to_the_truth_than_either_end_where_few_replicates_tell_groups_apart(rng):
    spread = rng.uniform(0.5, 1.5, size=400)
    X, groups = measured(rng, np.full(400, 4), spread)
    truth = spread[groups, None] * np.sqrt(np.diag(C))
    apart = [np.mean((noise_from_replicates(X, groups, prior=p).X_std - truth) ** 2) for p in (0, 4.0, np.inf)]
    assert apart[1] < min(apart[0], apart[2])


def test_estimates_fit_where_errors_go(rng):
    X, groups = measured(rng, np.full(20, 3))
    y = (groups < 10).astype(int)
    noise = noise_from_replicates(X, groups)
    assert GaussianRobustClassifier().fit(X, y, X_std=noise.X_std).gap_ < 1e-6
    assert GaussianRobustClassifier(GaussianNoise(cov=noise.cov)).fit(X, y).gap_ < 1e-6
    assert GaussianRobustClassifier().fit(noise.means, y[::3], X_std=noise.means_std).gap_ < 1e-6


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_come_back_for_frames(frame, rng):
    values, groups = measured(rng, [3, 2])
    X = frame(dict(zip("abc", values.T, strict=True)))
    noise, plain = noise_from_replicates(X, groups), noise_from_replicates(values, groups)
    for found, expected in zip(noise[3:6], plain[3:6], strict=True):
        assert isinstance(found, frame)
        assert list(found.columns) == ["a", "b", "c"]
        assert_array_equal(found.to_numpy(), expected)
    ends = noise_from_intervals(X, frame(dict(zip("abc", values.T + 1, strict=True))))
    assert isinstance(ends.X, frame)
    assert list(ends.X_std.columns) == ["a", "b", "c"]


def test_rounding_errors_have_the_stated_deviation_and_size(rng):
    x = rng.normal(size=400_000) * 10
    step = np.array([1.0, 0.1])
    rounded = np.round(x[:, None] / step) * step
    noise = noise_from_quantization(step)
    assert_allclose((rounded - x[:, None]).std(axis=0), noise.std, rtol=0.01)
    assert np.all(np.abs(rounded - x[:, None]) <= noise.half_widths * (1 + 1e-9))
    assert_allclose(Box(half_widths=noise.half_widths).at(x[:2, None] * step, {}).support(np.array([2.0, 1.0])), 1.05)
    assert noise_from_quantization(0.0).std == 0


def test_values_uniform_in_their_intervals_have_the_stated_mean_and_deviation(rng):
    lower = rng.normal(size=(3, 2))
    upper = lower + rng.uniform(0, 3, size=(3, 2))
    draws = rng.uniform(lower, upper, size=(200_000, 3, 2))
    noise = noise_from_intervals(lower, upper)
    assert_allclose(draws.mean(axis=0), noise.X, atol=0.02)
    assert_allclose(draws.std(axis=0), noise.X_std, rtol=0.02)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: noise_from_replicates(np.ones((3, 2)), [0, 1, 2]), "no group has two rows"),
        (
            lambda: noise_from_replicates(np.ones((3, 2)), [0, 1]),
            r"groups has shape \(2,\); give one label for each row",
        ),
        (lambda: noise_from_replicates([[1.0], [np.nan]], [0, 0]), "column 0, row 1 .from 0. is missing"),
        (lambda: noise_from_replicates(np.ones((2, 1)), [0, 0], prior=-1), r"prior=-1\): must be a number >= 0"),
        (lambda: noise_from_replicates(np.ones((2, 1)), [0, 0], prior="own"), r"prior='own'\): must be a number >= 0"),
        (lambda: noise_from_quantization(-1), r"noise_from_quantization\(step=-1\): step must be >= 0"),
        (lambda: noise_from_quantization([1.0, np.nan]), "must be >= 0 and finite"),
        (
            lambda: noise_from_intervals([[0.0, 3.0]], [[1.0, 2.0]]),
            r"row 0 .from 0., column 1: lower is 3, above upper, 2",
        ),
        (lambda: noise_from_intervals([[0.0]], [[1.0, 2.0]]), "differ in shape or columns"),
        (
            lambda: split_errors(pd.DataFrame({"a": [1.0], "b": [2.0]})),
            r"split_errors\(frame, suffix='_err'\): no column states errors.*ends in '_err'",
        ),
        (lambda: split_errors(pd.DataFrame({"a": [1.0]}), missing="exact"), "no column states errors"),
        (
            lambda: split_errors(pd.DataFrame({"a": [1.0], "a_err": [1.0], "b_err": [1.0]})),
            "column 'b_err' states errors, but",
        ),
        (
            lambda: split_errors(pd.DataFrame({"a": [1.0, 2.0], "a_err": [1.0, -2.0]})),
            r"column 'a_err', row 1 .from 0. is -2",
        ),
        (
            lambda: split_errors(pl.DataFrame({"a": [1.0, 2.0], "a_err": [1.0, None]})),
            r"column 'a_err', row 1 .from 0. is missing",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_place(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_errors_are_split_off_under_the_names_of_their_values(frame):
    X, X_std = split_errors(frame({"b_sd": [0.5], "a": [1.0], "b": [2.0], "a_sd": [0.1]}), suffix="_sd")
    assert list(X.columns) == list(X_std.columns) == ["a", "b"]
    assert X_std.to_numpy().tolist() == [[0.1, 0.5]]
