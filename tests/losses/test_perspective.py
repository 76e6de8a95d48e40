"""The perspective family t f(u / t): identities of its members, and how they lie to one another."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from holdfast.losses import GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge

Z = np.linspace(-40, 40, 16001)
MATCHING_SCALE = np.sqrt(2 * np.pi)


def test_member_and_its_mirror_differ_by_the_identity(perspective):
    assert_allclose(perspective.f(Z) - perspective.f(-Z), Z, rtol=1e-14, atol=1e-14)


def test_member_lies_above_the_hinge_and_nowhere_farther_than_at_zero(perspective):
    excess = perspective.f(Z) - np.maximum(Z, 0)
    assert np.all(excess >= -1e-14)
    assert np.all(excess <= perspective.f(np.array(0.0)) + 1e-15)


def test_tail_keeps_its_relative_accuracy(perspective):
    """Far out f(-x) is tiny; its slope, computed on its own, says how it must fall."""
    x = np.linspace(0.5, 12, 200) if not isinstance(perspective, QuadraticHinge) else np.linspace(0.5, 3.5, 200)
    step = 1e-4 / (1 + x)
    change = (perspective.tail(x + step) - perspective.tail(x - step)) / (2 * step)
    assert_allclose(change, -perspective.slope(-x), rtol=1e-6)


def test_psi_is_what_the_tangent_leaves_at_zero_and_the_conjugate_of_the_slope(perspective):
    psi = perspective.psi(Z)
    assert np.all(psi >= 0)
    assert_allclose(psi, perspective.f(Z) - Z * perspective.slope(Z), rtol=0, atol=1e-13)
    assert_allclose(psi, perspective.conjugate(perspective.slope(Z)), rtol=0, atol=1e-8)


def test_conjugate_is_the_minimum_by_brute_force(perspective):
    z = np.linspace(-60, 60, 120001)
    a = np.linspace(0.02, 0.98, 49)
    brute = (perspective.f(z) - a[:, None] * z).min(axis=1)
    assert_allclose(perspective.conjugate(a), brute, rtol=0, atol=2e-6)


def test_slope_rises_from_zero_to_one(perspective):
    slope = perspective.slope(np.concatenate([[-1e8], Z, [1e8]]))
    assert np.all(np.diff(slope) >= 0)
    assert_allclose(slope[[0, -1]], [0, 1], rtol=0, atol=1e-15)
    assert_allclose(perspective.slope(Z) + perspective.slope(-Z), 1, rtol=0, atol=1e-15)


def test_without_noise_the_slope_is_one_zero_or_a_half(perspective):
    u = np.array([2.0, -1.0, 0.0])
    value, slope, _ = perspective.evaluate(u, np.zeros(3))
    assert_array_equal(value, [2, 0, 0])
    assert_allclose(slope, [1, 0, 0.5], rtol=0, atol=1e-15)


def test_value_is_monotone_over_twenty_orders_of_magnitude(perspective):
    z = np.concatenate([-np.geomspace(1e10, 1e-10, 400), [0.0], np.geomspace(1e-10, 1e10, 400)])
    value = perspective.value(z, np.ones_like(z))
    assert np.all(np.isfinite(value))
    assert np.all(np.diff(value) >= 0)


def test_at_the_matching_scale_quadratic_and_log2_enclose_the_gaussian():
    z = np.linspace(-12, 12, 24001)
    gauss = GaussianHinge().f(z)
    above = Log2Hinge().f(MATCHING_SCALE * z) / MATCHING_SCALE - gauss
    below = gauss - QuadraticHinge().f(MATCHING_SCALE * z) / MATCHING_SCALE
    assert above.min() >= -1e-13
    assert below.min() >= -1e-13
    assert above.max() == pytest.approx(0.0118, abs=5e-5)
    assert below.max() == pytest.approx(0.0319, abs=5e-5)


def test_two_point_noise_is_worse_than_gaussian_noise_by_at_most_an_eighth():
    z = np.linspace(-8, 8, 16001)
    difference = TwoPointHinge().f(z) - GaussianHinge().f(z)
    assert np.all(difference > 0)
    assert np.all(difference <= 0.125)


def test_quadratic_hinge_vanishes_where_all_margins_exceed_four_deviations():
    loss, t = QuadraticHinge(), np.array(1.0)
    assert_array_equal(loss.value(np.array([-4.0, -4.5, -100.0]), t), 0)
    # a margin of exactly 4 sigma |w|: 1 - 4 r with scale r, whose infimum 0 is approached but never attained
    r = np.array([1.0, 10.0, 1e3])
    assert_allclose(loss.value(1 - 4 * r, r), 1 / (16 * r))
