"""Spreads: brute force over admissible rows, derivatives, and gradients that are points of the dual set."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse

from holdfast._data import rows_of
from holdfast._problems.dispersions import PushedRows, RootOfSquares
from holdfast._problems.minimax_probability import Moments, class_law
from holdfast.uncertainty import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox


@pytest.fixture
def rows(rng):
    """Five rows of three features with weights."""
    return rng.normal(size=(5, 3)) + 1.0, rng.uniform(0.5, 2.0, size=5)


def _law(X, weights, bound=None, cloud=None, **options):
    return class_law(Moments.of(rows_of(X), weights), bound, cloud, **options)


def test_the_robust_spread_is_the_largest_over_all_vertices_of_all_boxes_together(rng):
    X, S = rng.normal(size=(3, 2)), rng.uniform(0, 1, size=(3, 2))
    law = _law(X, np.ones(3), Box(0.7).at(X, {"X_std": S}))
    for w in rng.normal(size=(20, 2)):
        vertices = (X + 0.7 * S * np.reshape(signs, (3, 2)) for signs in product([-1, 1], repeat=6))
        largest = max(np.sqrt(np.mean(np.square((Z - X.mean(axis=0)) @ w))) for Z in vertices)
        assert law.spread.value(w) == pytest.approx(largest, rel=1e-12)


def test_intervals_that_are_longer_one_way_are_seen_from_both_sides(rng, rows):
    X, weights = rows
    low, high = rng.uniform(0, 0.5, size=X.shape), rng.uniform(0, 2.0, size=X.shape)
    law = _law(X, weights, IntervalBox().at(X, {"X_lower": X - low, "X_upper": X + high}))
    p = weights / weights.sum()
    for w in rng.normal(size=(20, 3)):
        ends = [np.where(np.array(pick) > 0, high, -low) for pick in product([-1, 1], repeat=3)]
        reach = np.max([np.abs((X - p @ X + end) @ w) for end in ends], axis=0)
        assert law.spread.value(w) == pytest.approx(np.sqrt(p @ reach**2), rel=1e-12)


@pytest.mark.thin(2)
def test_no_admissible_rows_spread_more_and_some_as_much(rng, rows, uncertainty):
    X, weights = rows
    chosen, metadata = uncertainty
    worst, _ = chosen.split(np.zeros((5, 3)), metadata)
    if worst is None:
        return  # noise: there is no set to be in
    law, p = _law(X, weights, worst), weights / weights.sum()
    draws = worst.sample(rng, 300, 3)
    for w in rng.normal(size=(5, 3)):
        a = (X - p @ X) @ w
        seen = np.sqrt(np.square(a + draws @ w) @ p)
        assert np.all(seen <= law.spread.value(w) * (1 + 1e-12))
        ends = [worst.maximizer(w) @ w, -worst.against_labels(np.ones(5)).maximizer(w) @ w]
        attained = np.sqrt(p @ np.max([np.square(a + end) for end in ends], axis=0))
        assert law.spread.value(w) == pytest.approx(attained, rel=1e-9)


def test_a_mix_bounds_the_exact_spread_and_rms_weights_are_tighter_than_the_published_ones(rng, rows):
    X, weights = rows
    S = rng.uniform(0, 1, size=X.shape)
    bound, p = Box(1.3).at(X, {"X_std": S}), weights / weights.sum()
    exact = _law(X, weights, bound).spread
    for kappa in (0.0, 0.4, 0.9):
        rms, total = (_law(X, weights, bound, kappa=kappa, pooling=name).spread for name in ("rms", "sum"))
        for w in rng.normal(size=(50, 3)) * rng.choice([0.1, 1, 10], size=(50, 3)):
            inside = np.abs((X - p @ X) @ w) + kappa * 1.3 * S @ np.abs(w)
            formulas = [
                1.3 * np.sqrt(p @ S**2) @ np.abs(w),
                1.3 * (p @ S) @ np.abs(w) / np.sqrt(p.min()),
            ]
            values = [np.sqrt(p @ inside**2) + (1 - kappa) * outside for outside in formulas]
            assert rms.value(w) == pytest.approx(values[0], rel=1e-12)
            assert total.value(w) == pytest.approx(values[1], rel=1e-12)
            assert exact.value(w) <= rms.value(w) * (1 + 1e-12) <= total.value(w) * (1 + 2e-12)


@pytest.mark.thin(2)
@pytest.mark.parametrize("kappa", [0.0, 0.5])
def test_a_mix_bounds_the_exact_spread_for_every_set(rng, rows, uncertainty, kappa):
    X, weights = rows
    weights = weights * 10.0 ** rng.uniform(-4, 0, size=5)
    chosen, metadata = uncertainty
    sets = chosen.split(np.zeros((5, 3)), metadata)
    exact = _law(X, weights, *sets).spread
    mixes = [_law(X, weights, *sets, kappa=kappa, pooling=name).spread for name in ("rms", "sum")]
    for w in rng.normal(size=(20, 3)):
        assert exact.value(w) <= min(mix.value(w) for mix in mixes) * (1 + 1e-12)


def test_published_weights_of_one_row_are_its_support_whatever_it_weighs(rng):
    X, S, w = rng.normal(size=(1, 3)), rng.uniform(0.1, 1, size=(1, 3)), rng.normal(size=3)
    for weight in (1e-6, 1.0, 1e6):
        law = _law(X, np.array([weight]), Box().at(X, {"X_std": S}), kappa=0.0, pooling="sum")
        assert law.spread.value(w) == pytest.approx(S[0] @ np.abs(w), rel=1e-12)


def test_noise_of_any_kind_adds_its_covariance(rng, rows):
    X, weights = rows
    p, F = weights / weights.sum(), rng.normal(size=(5, 3, 2))
    C = np.einsum("i,ijk,ilk->jl", p, F, F)
    G = np.cov(X.T, aweights=weights, ddof=0)
    plain = _law(X, weights, None, GaussianNoise().at(X, {"X_factor": F}), ridge=0.3).spread
    worst = _law(X, weights, None, GaussianNoise([0.1, 0.5, 1.0], unknown="correlations").at(X, {})).spread
    for w in rng.normal(size=(10, 3)):
        assert plain.value(w) ** 2 == pytest.approx(w @ (G + C + 0.3 * np.eye(3)) @ w, rel=1e-12)
        assert worst.value(w) ** 2 == pytest.approx(w @ G @ w + (np.abs(w) @ [0.1, 0.5, 1.0]) ** 2, rel=1e-12)


def test_a_ridge_is_the_worst_covariance_error_of_that_frobenius_norm(rng, rows):
    X, weights = rows
    G, law = np.cov(X.T, aweights=weights, ddof=0), _law(*rows, ridge=0.7)
    for w in rng.normal(size=(10, 3)):
        errors = rng.normal(size=(500, 3, 3))
        errors = errors + errors.transpose(0, 2, 1)
        errors *= 0.7 / np.linalg.norm(errors, axis=(1, 2), keepdims=True)
        worst = 0.7 * np.outer(w, w) / (w @ w)
        assert np.all(np.einsum("j,njk,k->n", w, G + errors, w) <= law.spread.value(w) ** 2 * (1 + 1e-12))
        assert w @ (G + worst) @ w == pytest.approx(law.spread.value(w) ** 2, rel=1e-12)


@pytest.mark.parametrize("options", [{"kappa": 0.3}, {"kappa": 0.3, "pooling": "sum"}], ids=str)
def test_smoothed_spreads_of_every_set_have_these_derivatives(rng, rows, uncertainty, options):
    X, weights = rows
    chosen, metadata = uncertainty
    worst, cloud = chosen.split(np.zeros((5, 3)), metadata)
    spread = _law(X, weights, worst, cloud, ridge=0.2, **options).spread.smoothed(0.5)
    w, step = rng.normal(size=3), 1e-6
    moved = [(w + step * unit, w - step * unit) for unit in np.eye(3)]
    gradient = [(spread.value(up) - spread.value(down)) / (2 * step) for up, down in moved]
    hessian = [(spread.gradient(up) - spread.gradient(down)) / (2 * step) for up, down in moved]
    np.testing.assert_allclose(spread.gradient(w), gradient, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(spread.hessian(w), hessian, rtol=1e-5, atol=1e-6)


def test_slopes_of_every_set_are_subgradients_and_those_of_the_smoothed_one_points_of_its_dual_set(
    rng, rows, uncertainty
):
    X, weights = rows
    chosen, metadata = uncertainty
    worst, cloud = chosen.split(np.zeros((5, 3)), metadata)
    law = _law(X, weights, worst, cloud, kappa=0.6, drift=worst)
    for total in (law.spread, law.drift):
        for _ in range(30):
            w, other = rng.normal(size=(2, 3)) * (rng.random((2, 3)) < 0.8)
            g, value = total.gradient(w), total.value(other)
            assert value >= total.value(w) + g @ (other - w) - 1e-9
            # a point of the set whose support function it is: never above it, in any direction
            assert total.smoothed(0.4).gradient(w) @ other <= value + 1e-9


@pytest.mark.thin(2)
def test_the_smoothed_spread_is_above_and_near(rng, rows, uncertainty):
    X, weights = rows
    chosen, metadata = uncertainty
    spread = _law(X, weights, *chosen.split(np.zeros((5, 3)), metadata)).spread
    for w in rng.normal(size=(10, 3)):
        above = spread.smoothed(1e-3).value(w) - spread.value(w)
        assert -1e-15 <= above <= 5e-3


def test_sparse_rows_and_sets_have_the_spread_of_dense_ones(rng):
    X = rng.normal(size=(6, 4)) * (rng.random((6, 4)) < 0.5)
    common, own = rng.uniform(0, 1, size=4), rng.uniform(0, 1, size=(6, 4)) * (rng.random((6, 4)) < 0.3)
    thin = sparse.csr_array(X)
    regular = (IntervalBox(-common, common) + Box()).at(thin, {"X_std": sparse.csr_array(own)})
    dense = Box().at(X, {"X_std": common + own})
    one = _law(thin, np.ones(6), regular).spread
    other = _law(X, np.ones(6), dense).spread
    for w in rng.normal(size=(10, 4)):
        assert one.value(w) == pytest.approx(other.value(w), rel=1e-12)
        np.testing.assert_allclose(one.gradient(w), other.gradient(w), rtol=1e-10, atol=1e-12)


def test_few_rows_have_the_spread_that_their_covariance_says(rng):
    X = rng.normal(size=(5, 4))
    spread, G = _law(X, np.ones(5)).spread, np.cov(X.T, ddof=0)
    for w in rng.normal(size=(10, 4)):
        assert spread.value(w) == pytest.approx(np.sqrt(w @ G @ w), rel=1e-10)
        np.testing.assert_allclose(spread.gradient(w), G @ w / np.sqrt(w @ G @ w), rtol=1e-9, atol=1e-12)


def test_a_spread_of_next_to_nothing_is_exact_to_the_last_digits():
    X = np.outer([-1.0, 1.0], [1.0, 1.0]) * 3
    assert _law(X, np.ones(2)).spread.value(np.array([1.0, -1.0 + 1e-12])) == pytest.approx(3e-12, rel=1e-3)


def test_the_rows_spread_alone_is_the_root_of_their_squares(rng):
    X, w = rng.normal(size=(4, 2)), rng.normal(size=2)
    for chosen in (Ball(0.3), Ellipsoid(0.2)):
        pushed = PushedRows.of(rows_of(X), np.zeros(2), np.ones(4), chosen.at(X, {}))
        expected = np.linalg.norm(np.abs(X @ w) + chosen.at(X, {}).support(w))
        assert RootOfSquares([pushed]).value(w) == pytest.approx(expected, rel=1e-12)
