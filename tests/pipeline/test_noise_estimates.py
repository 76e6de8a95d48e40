"""Noise estimates: against simulated errors whose size is known, and against the formulas by hand."""

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from holdfast import Box, GaussianNoise, GaussianRobustClassifier, SpreadImputer, make_uncertain_pipeline
from holdfast.datasets import intervals_from_replicates, values_and_errors, values_and_intervals
from holdfast.pipeline import noise_from_intervals, noise_from_quantization, noise_from_replicates

C = np.array([[0.5, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.1]])


def measured(rng, sizes, spread=None):
    """Return rows measured as often as `sizes` say, with errors of covariance C (times `spread` of their group), and groups."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    factor = 1.0 if spread is None else spread[groups, None]
    errors = rng.multivariate_normal(np.zeros(3), C, size=len(groups)) * factor
    return 5 * rng.normal(size=(len(sizes), 3))[groups] + errors, groups


def test_pooled_covariance_has_no_bias_also_with_two_replicates(rng):
    factors = [noise_from_replicates(*measured(rng, np.full(50, 2))).factor for _ in range(200)]
    found = np.array([factor @ factor.T for factor in factors])
    error = np.sqrt((C**2 + np.outer(np.diag(C), np.diag(C))) / 50 / 200)
    assert np.all(np.abs(found.mean(axis=0) - C) <= 4 * error)


def test_estimates_are_the_formulas_by_hand(rng):
    X, groups = measured(rng, [9, 1, 2, 4])
    order = rng.permutation(len(X))
    X, groups = X[order], groups[order]
    noise = noise_from_replicates(X, groups, prior=2.5)
    residuals = X - np.array([X[groups == g].mean(axis=0) for g in groups])
    assert noise.freedom == 12
    cov = residuals.T @ residuals / 12
    assert noise.factor.shape == (3, 3)
    assert_allclose(noise.factor @ noise.factor.T, cov, atol=1e-14)
    assert_allclose(noise.std, np.sqrt(np.diag(cov)))
    for g, mean, error in zip(noise.groups, noise.means, noise.means_std, strict=True):
        own = groups == g
        assert_allclose(mean, X[own].mean(axis=0))
        square = (2.5 * noise.std**2 + (residuals[own] ** 2).sum(axis=0)) / (2.5 + own.sum() - 1)
        assert_allclose(noise.X_std[own], np.tile(np.sqrt(square), (own.sum(), 1)))
        assert_allclose(error, np.sqrt(square / own.sum()))
    assert_allclose(noise.X_std[groups == 1][0], noise.std)


@pytest.mark.filterwarnings("ignore:noise_from_replicates.* X_std takes")
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
    assert GaussianRobustClassifier(GaussianNoise(factor=noise.factor)).fit(X, y).gap_ < 1e-6
    assert GaussianRobustClassifier().fit(noise.means, y[::3], X_std=noise.means_std).gap_ < 1e-6


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_come_back_for_frames(frame, rng):
    values, groups = measured(rng, [9, 8])
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
        (lambda: noise_from_replicates(np.ones((2, 1)), [0, 0], prior=10**400), "prior=<an integer of 1329 bits>"),
        (lambda: noise_from_quantization([]), r"noise_from_quantization\(step=\[\]\): step must be"),
        (
            lambda: noise_from_intervals([[-1e308]], [[1e308]]),
            "row 0 .from 0., column 0: its width overflows",
        ),
        (
            lambda: SpreadImputer(strategy="constant", fill_value=np.inf).fit([[1.0]]),
            r"fill_value=inf\): must be a finite",
        ),
        (
            lambda: SpreadImputer(strategy="constant", fill_value=True).fit([[1.0]]),
            r"fill_value=True\): must be a finite",
        ),
        (lambda: noise_from_quantization([1.0, np.nan]), "must be >= 0 and finite"),
        (
            lambda: noise_from_intervals([[0.0, 3.0]], [[1.0, 2.0]]),
            r"row 0 .from 0., column 1: lower is 3, above upper, 2",
        ),
        (lambda: noise_from_intervals([[0.0]], [[1.0, 2.0]]), "differ in shape or columns"),
        (
            lambda: values_and_errors(pd.DataFrame({"a": [1.0], "b": [2.0]})),
            r"values_and_errors\(frame, suffix='_err'\): no column states errors.*ends in '_err'",
        ),
        (lambda: values_and_errors(pd.DataFrame({"a": [1.0]}), missing="exact"), "no column states errors"),
        (
            lambda: values_and_errors(pd.DataFrame({"a": [1.0], "a_err": [1.0], "b_err": [1.0]})),
            "column 'b_err' states errors, but",
        ),
        (
            lambda: values_and_errors(pd.DataFrame({"a": [1.0, 2.0], "a_err": [1.0, -2.0]})),
            r"column 'a_err', row 1 .from 0. is -2",
        ),
        (
            lambda: values_and_errors(pl.DataFrame({"a": [1.0, 2.0], "a_err": [1.0, None]})),
            r"column 'a_err', row 1 .from 0. is missing",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_place(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def baseline(rng, n_groups=20, n_features=50, own=0.3):
    """Return rows whose errors are mostly one number that is added to all features, with groups and the true covariance."""
    groups = np.repeat(np.arange(n_groups), 4)
    errors = rng.normal(size=(len(groups), 1)) + own * rng.normal(size=(len(groups), n_features))
    cov = np.ones((n_features, n_features)) + own**2 * np.eye(n_features)
    return (
        3 * rng.normal(size=(n_groups, 1))[groups] + rng.normal(size=(n_groups, n_features))[groups] + errors,
        groups,
        cov,
    )


def test_errors_that_go_together_are_said_to_and_only_the_factor_knows_their_scores(rng):
    X, groups, cov = baseline(rng, n_groups=70)
    with pytest.warns(UserWarning, match=r"factor of \d.*Use GaussianNoise\(factor=noise.factor\)"):
        noise = noise_from_replicates(X, groups)
    assert noise.errors == "correlated"
    assert noise.disagreement > 2
    y = (groups < 10).astype(int)
    model = GaussianRobustClassifier(GaussianNoise(factor=noise.factor)).fit(X, y)
    for w in (np.ones(50), model.coef_[0]):
        truth = np.sqrt(w @ cov @ w)
        assert np.linalg.norm(noise.factor.T @ w) == pytest.approx(truth, rel=0.25)
    assert np.linalg.norm(noise.std) < 0.2 * np.sqrt(np.ones(50) @ cov @ np.ones(50))


def test_a_factor_of_few_replicates_is_not_recommended(rng):
    """A model would put its weights where it has seen no errors: its scores deviate by far more than it says."""
    groups = np.repeat(np.arange(16), 4)
    centres, shared = 0.1 * rng.normal(size=(16, 1000)), rng.normal(size=(2, 1000))
    centres[1::2, :20] += 0.5
    errors = rng.normal(size=(len(groups) + 500, 1000)) + rng.normal(size=(len(groups) + 500, 2)) @ shared
    X = centres[groups] + errors[: len(groups)]
    with pytest.warns(UserWarning, match=r"48 degrees of freedom for 1000 features are too few.*PCA to 12 components"):
        noise = noise_from_replicates(X, groups)
    assert noise.errors == "unresolved"
    model = GaussianRobustClassifier(GaussianNoise(factor=noise.factor)).fit(X, groups % 2)
    assert model.score_std(X).max() < 0.5 * np.std(errors[len(groups) :] @ model.coef_[0])


def test_whether_errors_go_together_does_not_depend_on_units(rng):
    X, groups, _ = baseline(rng, own=1.0)
    units = 10 ** rng.uniform(-6, 6, size=X.shape[1])
    with pytest.warns(UserWarning, match="X_std takes the errors"):
        one, other = (noise_from_replicates(rows, groups) for rows in (X, X * units))
    assert one.disagreement == pytest.approx(other.disagreement)
    assert_allclose(other.factor, one.factor * units[:, None])


@pytest.mark.parametrize(("n_groups", "n_features"), [(10, 1), (10, 3), (10, 400), (100, 20)])
def test_independent_errors_are_not_called_correlated(n_groups, n_features, rng):
    for _ in range(10):
        groups = np.repeat(np.arange(n_groups), 3)
        X = rng.normal(size=(n_groups, n_features))[groups] + rng.normal(size=(len(groups), n_features))
        noise = noise_from_replicates(X * 10 ** rng.uniform(-6, 6, size=n_features), groups)
        assert noise.errors == "independent"
        assert 1 <= noise.disagreement <= 2


def test_no_covariance_of_all_features_is_formed(rng):
    groups = np.repeat(np.arange(12), 3)
    X = rng.normal(size=(36, 3000))
    tracemalloc.start()
    noise = noise_from_replicates(X, groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert noise.factor.shape == (3000, 24)
    assert peak < 30e6  # the covariance alone would take 72 MB


def test_missing_replicates_are_left_out_where_that_is_asked_for(rng):
    X, groups = measured(rng, np.full(8, 4))
    X[0, 0] = X[5, 2] = np.nan
    X[8:12, 1] = np.nan
    with pytest.raises(ValueError, match=r"column 0, row 0 .from 0. is missing. Pass values_missing='keep'"):
        noise_from_replicates(X, groups)
    noise = noise_from_replicates(X, groups, values_missing="keep", prior=0)
    some = np.arange(len(X)) // 4 != 2
    own = intervals_from_replicates(X[some], groups[some])
    known = np.arange(8) != 2
    assert_allclose(noise.means[known], own.X)
    assert_allclose(noise.means_std[known], own.X_std / np.sqrt(own.counts))
    assert_array_equal(np.isnan(noise.means), np.outer(~known, [False, True, False]))
    assert_array_equal(noise.X_std == 0, np.isnan(X))
    assert_allclose(np.linalg.norm(noise.factor, axis=1), noise.std)
    assert noise.freedom == 21


def test_errors_that_are_unknown_are_filled_in_as_asked_or_refused(rng):
    stars = pd.DataFrame(
        {
            "id": ["a", "b", "c", "d"],
            "m": [1.0, np.nan, 3.0, 4.0],
            "m_err": [0.1, np.nan, np.nan, 0.5],
            "k": 2.0,
            "k_err": 0.0,
        }
    )
    with pytest.raises(ValueError, match=r"'m', row 1 .from 0. is missing. Pass values_missing='keep'"):
        values_and_errors(stars, exclude="id")
    with pytest.raises(
        ValueError, match=r"'m_err', row 2 .from 0. is missing. An unknown error is not 0.*errors_missing='median'"
    ):
        values_and_errors(stars, exclude=["id"], values_missing="keep")
    for rule, filled in (("median", 0.3), ("column maximum", 0.5)):
        how = {"exclude": ["id"], "values_missing": "keep", "errors_missing": rule}
        X, X_std = values_and_errors(stars, **how)
        assert list(X.columns) == list(X_std.columns) == ["m", "k"]
        assert_array_equal(X["m"], stars["m"])
        assert_allclose(X_std["m"], [0.1, 0.0, filled, 0.5])
        middle, lower, upper = values_and_intervals(stars, **how)
        assert_allclose(upper["m"] - lower["m"], 2 * X_std["m"].where(middle["m"].notna()))
    model = make_uncertain_pipeline(SpreadImputer(), GaussianRobustClassifier()).fit(X, [0, 0, 1, 1], X_std=X_std)
    assert model[-1].gap_ <= 1e-6


def test_intervals_with_a_missing_end_are_as_wide_as_asked():
    lower, upper = [[0.0], [1.0], [np.nan], [np.nan], [5.0]], [[2.0], [7.0], [4.0], [np.nan], [np.nan]]
    with pytest.raises(ValueError, match=r"row 3 .from 0., column 0: both ends are missing"):
        noise_from_intervals(lower, upper)
    with pytest.raises(ValueError, match=r"row 2 .from 0., column 0: one end is missing.*errors_missing="):
        noise_from_intervals(lower, upper, values_missing="keep")
    for rule, width in (("median", 4.0), ("column maximum", 6.0)):
        noise = noise_from_intervals(lower, upper, errors_missing=rule, values_missing="keep")
        assert_allclose(noise.X[:, 0], [1.0, 4.0, 4.0 - width / 2, np.nan, 5.0 + width / 2])
        assert_allclose(noise.X_std[:, 0] * np.sqrt(12), [2.0, 6.0, width, 0.0, width])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"errors_missing": "exact"}, r"errors_missing='exact'\): give 'raise', 'median' or 'column maximum'"),
        ({"values_missing": 0}, r"values_missing=0\): give 'raise' or 'keep'"),
        ({"exclude": ["b"]}, r"exclude=\['b'\]\): there is no such column"),
        ({"errors_missing": "median"}, "column 'a_err' states no error at all"),
    ],
)
def test_wrong_ways_to_treat_what_is_missing_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        values_and_errors(pd.DataFrame({"a": [1.0, 2.0], "a_err": [np.nan, np.nan]}), **options)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_errors_are_split_off_under_the_names_of_their_values(frame):
    X, X_std = values_and_errors(frame({"b_sd": [0.5], "a": [1.0], "b": [2.0], "a_sd": [0.1]}), suffix="_sd")
    assert list(X.columns) == list(X_std.columns) == ["a", "b"]
    assert X_std.to_numpy().tolist() == [[0.1, 0.5]]
