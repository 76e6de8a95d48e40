"""The hinge under the worst noise of given variance."""

import numpy as np
import pytest
from scipy.optimize import linprog

from holdfast.losses import TwoPointHinge


@pytest.mark.parametrize(("u", "t"), [(0.5, 1.0), (-1.0, 0.7), (2.0, 1.5), (0.0, 1.0), (-2.5, 1.0)])
def test_no_distribution_of_that_variance_has_a_larger_expected_hinge(u, t):
    """The linear program over all distributions on a fine grid attains the loss, up to the grid, and not more."""
    noise = np.linspace(-25, 25, 4001)
    moments = np.array([np.ones_like(noise), noise, noise**2])
    found = linprog(-np.maximum(u + noise, 0), A_eq=moments, b_eq=[1, 0, t * t], bounds=(0, None), method="highs")
    value = float(TwoPointHinge().value(np.array(u), np.array(t)))
    assert -found.fun <= value * (1 + 1e-7)
    assert -found.fun >= value - 1e-4


@pytest.mark.parametrize(("u", "t"), [(0.5, 1.0), (-1.0, 0.7), (2.0, 1.5)])
def test_two_points_attain_it(u, t):
    root = np.hypot(u, t)
    high, low = root - u, -root - u  # where u + noise = +-root
    p = -low / (high - low)
    assert p * high + (1 - p) * low == pytest.approx(0, abs=1e-14)
    assert p * high**2 + (1 - p) * low**2 == pytest.approx(t * t)
    expected = p * max(u + high, 0) + (1 - p) * max(u + low, 0)
    assert expected == pytest.approx(float(TwoPointHinge().value(np.array(u), np.array(t))), rel=1e-13)
