"""Sums of Laplace variables against partial fractions in long decimals, phases, quadrature and draws."""

from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.linalg import expm

from holdfast.losses import laplace_density, laplace_kl, laplace_tail
from holdfast.losses.laplace_law import LaplaceSum

KINDS = {
    "spread": lambda rng, d: 10 ** rng.uniform(-1, 1, d),
    "one dominates": lambda rng, d: np.r_[1.0, 1e-3 * (1 + 0.1 * rng.random(d - 1))],
    "two dominate": lambda rng, d: np.r_[1.0, 0.9, 1e-4 * rng.random(d)][:d],
    "extreme": lambda rng, d: 10 ** rng.uniform(-8, 2, d),
}
TIED = {
    "equal": lambda rng, d: np.full(d, 0.7),
    "pairs": lambda rng, d: np.repeat(10 ** rng.uniform(-1, 1, d), 2)[:d],
    "with zeros": lambda rng, d: np.r_[10 ** rng.uniform(-1, 1, d), 0.0, 0.0],
}
SIZES = (1, 2, 3, 10, 50, 200)


def partial_fractions(z, scales):
    """Tails and densities at z >= 0 of distinct scales: sum_k a_k exp(-z / s_k), with digits for all that cancels."""
    with localcontext() as context:
        context.prec = 450
        s = [Decimal(float(one)) for one in scales]
        squares = [one * one for one in s]
        tails, densities = [Decimal(0)] * len(z), [Decimal(0)] * len(z)
        for k, own in enumerate(s):
            a = Decimal("0.5")
            for j, other in enumerate(squares):
                if j != k:
                    a *= squares[k] / (squares[k] - other)
            parts = [a * (-Decimal(float(one)) / own).exp() for one in z]
            tails = [tail + part for tail, part in zip(tails, parts, strict=True)]
            densities = [density + part / own for density, part in zip(densities, parts, strict=True)]
    return np.array(tails, dtype=float), np.array(densities, dtype=float)


def phases(z, scales):
    """Tail at z >= 0: what is left of a sum of exponential times when those of the other side have run out."""
    rates = 1 / np.sort(scales)[::-1]
    start = np.eye(len(rates))[0]
    for own in rates:
        new, carried = np.empty(len(rates)), 0.0
        for k, rate in enumerate(rates):
            new[k] = (own * start[k] + carried) / (own + rate)
            carried = rate * new[k]
        start = new
    return float(start @ expm(z * (np.diag(-rates) + np.diag(rates[:-1], 1))).sum(axis=1))


def places(scales):
    return np.array([0.0, 1e-3, 0.3, 1.0, 3.0, 12.0, 40.0]) * np.linalg.norm(scales)


@pytest.mark.thin(2)
@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_tail_and_density_are_those_of_partial_fractions(kind, d, rng):
    scales = KINDS[kind](rng, d)
    z = places(scales)
    tails, densities = partial_fractions(z, scales)
    assert_allclose(laplace_tail(z, scales), tails, rtol=0, atol=1e-12)
    assert_allclose(laplace_density(z, scales) * scales.max(), densities * scales.max(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 10, 40])
@pytest.mark.parametrize("kind", TIED)
def test_tail_of_ties_is_that_of_phases(kind, d, rng):
    scales = TIED[kind](rng, d)
    z = places(scales)
    assert_allclose(laplace_tail(z, scales), [phases(one, scales[scales > 0]) for one in z], rtol=0, atol=1e-9)


def alike(z, d):
    """Tail and density at z >= 0 of d scales of 1: a difference of two gamma variables, as sums of terms > 0."""
    with localcontext() as context:
        context.prec = 40
        z = Decimal(z)
        powers, chance, tail, density = [(-z).exp()], Decimal(2) ** -d, Decimal(0), Decimal(0)
        for i in range(1, d):
            powers.append(powers[-1] * z / i)
        left = np.cumsum(powers)
        for j in range(d):
            tail, density = tail + chance * left[d - j - 1], density + chance * powers[d - j - 1]
            chance *= Decimal(d + j) / (2 * (j + 1))
        return float(tail), float(density)


@pytest.mark.parametrize("d", [100, 200, 1000])
def test_sums_of_many_alike_are_exact_too(d):
    for z in np.sqrt(2 * d) * np.array([0.0, 1e-9, 0.3, 1.0, 2.0, 5.0]):
        tail, density = alike(float(z), d)
        assert abs(laplace_tail(z, np.ones(d)) - tail) < 1e-14
        assert abs(laplace_density(z, np.ones(d)) - density) < 1e-14
    assert laplace_tail(0.0, np.ones(d)) == laplace_tail(-0.0, np.ones(d)) == 0.5


def test_density_is_the_derivative_of_the_tail_and_integrates_to_it(rng):
    for scales in (rng.uniform(0.1, 1, 6), np.full(4, 0.5), np.array([1.0, 1e-3])):
        for z in (0.05, 0.7, 2.5):
            found = quad(lambda x, scales=scales: laplace_density(x, scales), z, 60, epsabs=1e-12, limit=200)[0]
            assert found == pytest.approx(laplace_tail(z, scales), abs=1e-9)
            law, h = LaplaceSum(scales[None]), 1e-5
            slope = (law.density(np.array([z + h])) - law.density(np.array([z - h]))) / (2 * h)
            assert_allclose(law.derivatives(np.array([z]))[2], slope, atol=1e-6)


def test_tail_is_the_share_of_draws(rng):
    scales = np.array([0.5, 0.5, 2.0, 0.01])
    draws = rng.laplace(size=(400_000, 4)) @ scales
    for z in (-3.0, -0.2, 0.4, 5.0):
        assert laplace_tail(z, scales) == pytest.approx(np.mean(draws >= z), abs=3e-3)


def test_tails_are_symmetric_monotone_and_follow_units(rng):
    scales = rng.uniform(0, 1, size=(50, 7))
    z = np.linspace(-8, 8, 50)
    assert_allclose(laplace_tail(z, scales) + laplace_tail(-z, scales), 1.0, atol=1e-14)
    assert_allclose(laplace_tail(1e-9 * z, 1e-9 * scales), laplace_tail(z, scales), atol=1e-14)
    assert_allclose(laplace_tail(z, scales[:, rng.permutation(7)]), laplace_tail(z, scales), atol=1e-14)
    assert np.all(np.diff(laplace_tail(z, scales[0])) <= 1e-15)
    assert np.all((laplace_tail(1e3 * z, scales) >= 0) & (laplace_tail(1e3 * z, scales) <= 1))


def test_many_laws_at_once_are_each_by_itself(rng):
    scales = np.vstack([KINDS[kind](rng, 5) for kind in KINDS] + [np.zeros(5), np.eye(5)[2]])
    z = rng.normal(size=len(scales))
    for question in (laplace_tail, laplace_density):
        assert_allclose(question(z, scales), [question(a, s) for a, s in zip(z, scales, strict=True)], rtol=1e-12)
        assert question(z.reshape(2, -1), scales[0]).shape == (2, 3)


def test_no_spread_is_a_point():
    assert_allclose(laplace_tail([-1e-9, 0.0, 1e-9], [0.0, 0.0]), [1.0, 1.0, 0.0])
    assert_allclose(laplace_density([0.0, 1.0], [0.0]), [np.inf, 0.0])


def test_extreme_numbers_do_no_harm():
    assert laplace_tail(1e300, [1e-300]) == 0
    assert laplace_tail(1.0, [1e300, 1e300]) == pytest.approx(0.5)
    assert laplace_tail(1.0, np.full(5000, 0.01)) == pytest.approx(0.1587, abs=1e-3)  # nearly normal, deviation 1
    assert laplace_density(0.0, [1e-200]) == pytest.approx(5e199)


def test_divergence_is_that_of_quadrature(rng):
    for _ in range(20):
        mean, prior_mean = rng.normal(0, 3, size=2)
        scale, prior_scale = 10 ** rng.uniform(-1.5, 1.0, size=2)

        def integrand(x, m=mean, s=scale, p=prior_mean, t=prior_scale):
            logs = -abs(x - m) / s - np.log(2 * s), -abs(x - p) / t - np.log(2 * t)
            return np.exp(logs[0]) * (logs[0] - logs[1])

        ends = [mean - 60 * scale, *sorted([mean, prior_mean]), mean + 60 * scale]
        found = sum(quad(integrand, a, b, limit=400)[0] for a, b in pairwise(ends) if a < b)
        ours = laplace_kl([mean], [scale], prior_mean=prior_mean, prior_scale=prior_scale)
        assert ours == pytest.approx(found, rel=1e-7, abs=1e-8)


def test_divergence_is_that_of_draws(rng):
    mean, scale, prior_scale = np.array([0.5, -1.0]), np.array([0.3, 2.0]), np.array([1.0, 0.7])
    w = mean + scale * rng.laplace(size=(400_000, 2))
    ratio = np.abs(w) / prior_scale + np.log(prior_scale) - np.abs(w - mean) / scale - np.log(scale)
    assert laplace_kl(mean, scale, prior_scale=prior_scale) == pytest.approx(ratio.sum(axis=1).mean(), abs=0.03)


def test_divergence_of_a_law_from_itself_is_nothing_and_nearly_so_from_one_nearby():
    assert laplace_kl([1.0, -2.0], [0.3, 5.0], prior_mean=[1.0, -2.0], prior_scale=[0.3, 5.0]) == 0
    assert laplace_kl([1e-6], [1.0]) == pytest.approx(0.5e-12, rel=1e-5)
    assert laplace_kl(np.zeros((4, 3)), np.ones(3)).shape == (4,)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: laplace_tail(np.nan, [1.0]), r"laplace_tail\(z=nan\): must be finite"),
        (lambda: laplace_tail(1.0, [-1.0]), r"scales=\[-1.0\]\): must be finite numbers >= 0"),
        (lambda: laplace_tail(1.0, "x"), r"scales='x'\): give real numbers"),
        (lambda: laplace_density([1.0, 2.0], np.ones((3, 2))), r"Give scales of shape \(d,\)"),
        (lambda: laplace_tail(0.0, []), r"scales \(0,\)\. Give .* with d >= 1"),
        (lambda: laplace_kl(0.0, 0.0), r"laplace_kl\(scale=0.0\): must be finite numbers > 0"),
    ],
)
def test_nonsense_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_scales_next_to_the_largest_number_are_scales_as_others():
    scales, z = np.array([1.0, 1.0, 0.5]), np.array([-2.0, 0.0, 1.0])
    assert_allclose(laplace_tail(1e308 * z[2:], 1e308 * scales), laplace_tail(z[2:], scales), rtol=1e-12)
    assert_allclose(laplace_tail(1e307 * z, 1e307 * scales), laplace_tail(z, scales), rtol=1e-12)
    assert_allclose(1e307 * laplace_density(1e307 * z, 1e307 * scales), laplace_density(z, scales), rtol=1e-12)
    each = np.array([[1e300, 1e300], [1e-300, 1e-300]])
    assert_allclose(laplace_tail([1e300, 1e-300], each), laplace_tail([1.0, 1.0], [1.0, 1.0]), rtol=1e-12)


def test_shapes_that_do_not_go_together_are_named():
    with pytest.raises(
        ValueError, match=r"laplace_kl: the shapes do not go together: mean \(2,\), scale \(3,\), prior_mean \(\)"
    ):
        laplace_kl([1, 2], [1, 2, 3])
