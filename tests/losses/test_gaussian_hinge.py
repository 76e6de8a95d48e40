"""The expected hinge: high-precision arithmetic, the expectation itself, and its bounds."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from holdfast._core.loss import SHORT_CUT
from holdfast.losses import GaussianHinge

DIGITS = 360


def _pi():
    """Return pi to all digits of the context, by the arithmetic-geometric mean."""
    a, b, rest, power = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), 1
    for _ in range(12):
        mean = (a + b) / 2
        b = (a * b).sqrt()
        rest -= power * (a - mean) ** 2
        a, power = mean, 2 * power
    return (a + b) ** 2 / (4 * rest)


def _exact_tail(x):
    """Return density(x) - x Q(x), the cancellation being paid for in digits."""
    x = Decimal(x)
    density = (-x * x / 2).exp() / (2 * _pi()).sqrt()
    # Phi(x) - 1/2 = density * (x + x^3 / 3 + x^5 / (3 5) + ...)
    term, total, k = x, x, 1
    while term > Decimal(10) ** (10 - DIGITS) * total:
        k += 2
        term = term * x * x / k
        total += term
    return density - x * (Decimal("0.5") - density * total)


@pytest.mark.parametrize("x", [0.0, 0.1, 0.7, 1.5, 3.0, 4.3, 4.9, 4.999, 5.0, 5.3, 8.0, 13.0, 20.0, 30.0, 37.0])
def test_tail_is_accurate_to_the_last_bits(x):
    with localcontext() as context:
        context.prec = DIGITS
        exact = _exact_tail(x)
        error = abs(Decimal(float(GaussianHinge().tail(np.array([x]))[0])) / exact - 1)
    assert error <= Decimal("5e-15")


@pytest.mark.parametrize(("u", "t"), [(0.4, 1.3), (-2.0, 0.8), (3.0, 2.0), (-6.0, 1.0), (0.0, 0.01)])
def test_loss_is_the_expected_hinge_by_quadrature(u, t):
    value, slope, scale_slope = (float(part[0]) for part in GaussianHinge().evaluate(np.array([u]), np.array([t])))
    edge = max(-u / t, -40.0)
    for found, integrand in (
        (value, lambda z: (u + t * z) * norm.pdf(z)),
        (slope, norm.pdf),
        (scale_slope, lambda z: z * norm.pdf(z)),
    ):
        assert found == pytest.approx(quad(integrand, edge, edge + 50, points=[0], limit=200, epsabs=0)[0], rel=1e-9)


def test_loss_is_the_expected_hinge_under_noise_on_the_features(rng):
    x, w, b, y = rng.normal(size=3), rng.normal(size=3), 0.4, -1.0
    factor = rng.normal(size=(3, 3))
    noise = rng.normal(size=(400_000, 3)) @ factor.T
    hinge = np.maximum(0, 1 - y * ((x + noise) @ w + b))
    loss = GaussianHinge().value(np.array(1 - y * (x @ w + b)), np.linalg.norm(factor.T @ w))
    assert abs(hinge.mean() - loss) < 4 * hinge.std() / np.sqrt(len(hinge))


def test_loss_lies_between_the_hinge_and_the_hinge_plus_the_scale_over_root_two_pi(rng):
    u, t = 3 * rng.normal(size=5000), 10 ** rng.uniform(-8, 3, size=5000)
    value, hinge = GaussianHinge().value(u, t), np.maximum(u, 0)
    assert np.all(value >= hinge)
    assert np.all(value <= (hinge + t / np.sqrt(2 * np.pi)) * (1 + 1e-15))


def test_slopes_are_normal_probability_and_density():
    z = np.linspace(-30, 30, 601)
    _, slope, scale_slope = GaussianHinge().evaluate(2 * z, np.full_like(z, 2.0))
    assert_allclose(slope, norm.cdf(z), rtol=1e-12)
    assert_allclose(scale_slope, norm.pdf(z), rtol=1e-13)


def test_there_is_a_compiled_kernel():
    pytest.importorskip("numba")
    assert GaussianHinge().compiled() is not None


@pytest.mark.parametrize("share", [1.0, 0.3, 1e-2, 1e-4])
def test_less_of_a_slope_leaves_what_is_said_of_the_dual_scale(share):
    """p((1 - e) a) >= p(a) + e r - e^2 q, the left-hand side by the smaller one of a and 1 - a, which does not cancel."""
    z, e, t = np.linspace(-30.0, 12.0, 4001), share * SHORT_CUT, np.array(0.7)
    _, a, p = GaussianHinge().tangent(t * z, t)
    rise, bend = GaussianHinge().shrunk_scale(t * z, t, a)
    rest = ndtr(-z) + e * ndtr(z)
    exact = np.where(z < 0, norm.pdf(norm.ppf(np.minimum((1 - e) * ndtr(z), 0.5))), norm.pdf(norm.isf(rest)))
    said = p + e * rise - e**2 * bend
    assert np.all(said <= exact * (1 + 1e-12))
    assert np.all(said[z < 3] >= (exact - 0.35 * share * e * a)[z < 3] - 1e-15)
    assert np.all(rise[z > 6] > 4)


def test_tangent_touches_the_loss_and_its_line_is_the_highest_of_its_slope(rng):
    u, t = rng.normal(size=200) * 4, rng.uniform(0.1, 3.0, size=200)
    value, slope, scale_slope = GaussianHinge().tangent(u, t)
    assert_allclose(slope * u + scale_slope * t, value, rtol=1e-11, atol=1e-13)
    assert_allclose(scale_slope, GaussianHinge().dual_scale(slope), rtol=1e-9, atol=1e-12)
    assert_allclose(np.log(slope), log_ndtr(u / t), rtol=1e-12, atol=1e-12)
