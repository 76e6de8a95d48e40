"""Newton's method: steps that are absurdly long, and those that need not be taken."""

import numpy as np
import pytest

from holdfast._core.problem import Problem
from holdfast._core.solution import Status
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.losses import ExpectedLogistic
from holdfast.solvers import newton
from holdfast.solvers.newton import Newton
from holdfast.uncertainty.ellipsoids import CommonEllipsoid


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


def test_the_end_that_is_foretold_is_the_end(draw_classes, monkeypatch):
    saved = 0
    for seed in range(6):
        X, y = draw_classes(np.random.default_rng(seed), 300, 5)
        problem = MarginScaleProblem(rows_of(X), y, np.ones(len(y)), ExpectedLogistic(), CommonEllipsoid(0.2), 1.0)
        for exact in (newton.EXACT, 0.0):
            monkeypatch.setattr(newton, "EXACT", exact)
            found = Newton().minimise(problem, np.zeros(6), tol=0.0, max_iter=60)
            assert found.status is Status.SOLVED
            assert np.linalg.norm(problem.value_and_gradient(found.parameters)[1]) <= 1e-9 * len(y)
            saved += found.n_iter if exact == 0 else -found.n_iter
        monkeypatch.undo()
    assert 2 <= saved <= 6


class Valley(Cliff):
    """1e6 + x**4, whose minimum Newton's steps approach by a third each: the value has settled long before x has."""

    n_parameters = 1

    def value_and_gradient(self, parameters):
        return 1e6 + float(np.sum(parameters**4)), 4 * parameters**3

    def hessian(self, parameters):
        return np.diag(12 * parameters**2)

    def typical_curvature(self):
        return np.zeros(1)


def test_steps_go_on_for_a_while_after_the_value_has_settled_where_all_digits_are_asked_for():
    ends = {tol: Newton().minimise(Valley(), np.ones(1), tol=tol, max_iter=60).parameters[0] for tol in (0.0, 1e-14)}
    assert 0 < ends[0.0] < 0.1 * ends[1e-14]
