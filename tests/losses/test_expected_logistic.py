"""The expected logistic loss: both quadrature rules and the table against adaptive integration."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit

from holdfast.losses import ExpectedLogistic
from holdfast.losses.expected_logistic import FEW_NODES, MANY_ROWS, SPACINGS

SCORES = [-40.0, -7.3, -1.0, 0.0, 0.4, 2.0, 11.0]


def _expectation(function, x, t):
    """Return E function(x + t Z) by adaptive quadrature, split where the logistic function bends."""
    bends = sorted({float(np.clip((edge - x) / t, -12, 12)) for edge in (-8, -2, 0, 2, 8)} | {0.0})
    weight = 1 / np.sqrt(2 * np.pi)
    edges = [-12.0, *bends, 12.0]
    return sum(
        quad(lambda z: weight * np.exp(-0.5 * z * z) * function(x + t * z), low, high, epsabs=1e-13, epsrel=1e-12)[0]
        for low, high in pairwise(edges)
        if high > low
    )


@pytest.mark.parametrize("t", [1e-3, 0.1, 0.2, 0.3, 0.5, 1.0, 1.9, 2.1, 2.9, 3.0, 3.1, 7.0, 20.0, 50.0])
def test_loss_and_slopes_are_the_expectations_by_quadrature(t):
    x = np.array(SCORES)
    value, slope, scale_slope = ExpectedLogistic().evaluate(1 + x, np.full_like(x, t))
    exact = np.array([_expectation(lambda v: np.logaddexp(0, v), score, t) for score in x])
    assert_allclose(value, exact, rtol=1e-10, atol=1e-10)
    assert_allclose(slope, [_expectation(expit, score, t) for score in x], rtol=0, atol=1e-10)
    bend = [_expectation(lambda v: expit(v) * expit(-v), score, t) for score in x]
    assert_allclose(scale_slope, t * np.array(bend), rtol=0, atol=1e-10)


def test_without_noise_it_is_the_logistic_loss():
    u = np.linspace(-30, 30, 601)
    value, slope, scale_slope = ExpectedLogistic().evaluate(u, np.zeros_like(u))
    assert_allclose(value, np.logaddexp(0, u - 1), rtol=1e-13)
    assert_allclose(slope, expit(u - 1), rtol=1e-12)
    assert_allclose(scale_slope, 0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("t", [reach for reach, _ in (*FEW_NODES, *SPACINGS)])
def test_rules_agree_where_they_meet(t):
    u = np.linspace(-30, 30, 2001)
    below, above = (ExpectedLogistic().evaluate(u, np.full_like(u, scale)) for scale in (t, np.nextafter(t, np.inf)))
    for one, other in zip(below, above, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("t", [0.0, 0.05, 0.11, 0.5, 0.9, 2.2, 2.99, 3.01, 12.0, 80.0])
def test_table_equals_the_direct_rule(t, rng):
    u = 1 + 12 * max(t, 1) * rng.uniform(-1, 1, size=20_000)
    table = ExpectedLogistic().evaluate(u, np.array(t))
    some = slice(0, 400)
    direct = ExpectedLogistic().evaluate(u[some], np.full(400, t))
    for one, other in zip(table, direct, strict=True):
        assert_allclose(one[some], other, rtol=0, atol=1e-11)


def test_table_reaches_the_asymptotes(rng):
    u = np.concatenate([rng.normal(size=20_000), [1e8, -1e8, 1e10, -1e10]])
    value, slope, scale_slope = ExpectedLogistic().evaluate(u, np.array(2.0))
    assert_allclose(value[-4:], [1e8 - 1, 0, 1e10 - 1, 0], rtol=1e-15, atol=1e-15)
    assert_allclose(slope[-4:], [1, 0, 1, 0], rtol=0, atol=1e-15)
    assert_allclose(scale_slope[-4:], 0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("t", [0.0, 0.05, 0.9, 2.2, 7.9, 8.1, 80.0])
def test_what_proofs_read_off_a_spline_is_the_rule_itself(t, rng):
    u = np.append(1 + 12 * max(t, 1) * rng.uniform(-1, 1, size=MANY_ROWS + 1), [1e8, -1e8])
    many = ExpectedLogistic().tangent(u, np.array(t))
    some = np.r_[0:400, -2:0]
    few = ExpectedLogistic().tangent(u[some], np.full(402, t))
    for one, other in zip(many, few, strict=True):
        assert_allclose(one[some], other, rtol=1e-14, atol=1e-11 * max(t, 1))


def test_noise_moderates_probabilities_symmetrically():
    score = np.linspace(-8, 8, 161)
    for t in (0.5, 2.0, 10.0):
        positive = ExpectedLogistic().evaluate(1 + score, np.full_like(score, t))[1]
        mirrored = ExpectedLogistic().evaluate(1 - score, np.full_like(score, t))[1]
        assert_allclose(positive + mirrored, 1, rtol=0, atol=1e-11)
        assert np.all(np.abs(positive - 0.5) <= np.abs(expit(score) - 0.5) + 1e-12)
