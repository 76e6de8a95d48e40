"""Arithmetic that proofs rest on, where a library's routine gives up."""

import numpy as np
from numpy.testing import assert_allclose

from holdfast._core.arithmetic import solve_scaled


def test_least_squares_are_found_where_the_library_gives_up(rng, monkeypatch):
    half = rng.normal(size=(9, 6)) * 10.0 ** np.arange(-3, 3)
    half[:, 2] = 0.0
    half[:, 4] = 2 * half[:, 3]
    matrix, sides = half.T @ half, half.T @ rng.normal(size=(9, 2))
    expected = solve_scaled(matrix, sides)

    def give_up(*args, **options):
        raise np.linalg.LinAlgError("SVD did not converge in Linear Least Squares")

    monkeypatch.setattr(np.linalg, "lstsq", give_up)
    assert_allclose(solve_scaled(matrix, sides), expected, rtol=1e-9, atol=1e-12)
    assert_allclose(solve_scaled(matrix, sides[:, 0]), expected[:, 0], rtol=1e-9, atol=1e-12)
