"""Minimisation within bounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast.solvers.in_box import minimised_in_box


@pytest.mark.parametrize("seed", range(5))
def test_a_convex_quadratic_in_a_box_meets_its_optimality_conditions(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 6))
    H, c = A @ A.T + 0.1 * np.eye(6), rng.normal(size=6)
    low, high = rng.uniform(-1, 0, 6), rng.uniform(0, 1, 6)
    lines = []
    x, value = minimised_in_box(
        lambda x: (0.5 * x @ H @ x + c @ x, H @ x + c),
        low,
        low,
        high,
        tol=1e-7,
        gain=1e-15,
        max_iter=200,
        report=lines.append,
    )
    assert np.all((low <= x) & (x <= high))
    assert_allclose(value, 0.5 * x @ H @ x + c @ x)
    assert_allclose(np.clip(x - (H @ x + c), low, high), x, atol=1e-3)
    assert lines


def test_what_is_found_is_not_worse_than_the_start_when_steps_run_out():
    x, value = minimised_in_box(
        lambda x: (float(np.cos(3 * x).sum()), -3 * np.sin(3 * x)),
        np.full(2, 0.1),
        np.zeros(2),
        np.ones(2),
        tol=0.0,
        gain=0.0,
        max_iter=1,
    )
    assert value <= 2 * np.cos(0.3)
    assert_allclose(value, np.cos(3 * x).sum())
