"""Newton's method: steps that are absurdly long."""

import numpy as np
import pytest

from holdfast._core.problem import Problem
from holdfast._core.solution import Status
from holdfast.solvers.newton import Newton


class Cliff(Problem):
    """exp(x) - x - y + y**2 / 2: all but straight for x < 0, from where Newton's steps go beyond all numbers."""

    n_parameters, enough = 2, -np.inf

    def view(self, kind):
        return self

    def value_and_gradient(self, parameters):
        x, y = parameters
        with np.errstate(over="ignore"):
            return np.exp(x) - x - y + y * y / 2, np.array([np.exp(x) - 1, y - 1])

    def hessian(self, parameters):
        return np.diag([np.exp(parameters[0]), 1.0])

    def typical_curvature(self):
        return np.zeros(2)

    def longest_step(self, parameters, step):
        return np.inf


@pytest.mark.parametrize("start", [-1.0, -3.0, -4.0, -6.0, -10.0, -30.0])
def test_steps_beyond_all_numbers_are_shortened_no_further_than_need_be(start):
    found = Newton().minimise(Cliff(), np.array([start, 0.0]), tol=1e-12, max_iter=60)
    assert found.status is Status.SOLVED
    assert np.allclose(found.parameters, [0.0, 1.0], atol=1e-5)
