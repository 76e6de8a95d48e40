"""Newton steps that keep the slopes of rounded kinks."""

import numpy as np
import pytest

from holdfast import Ball, Box, Ellipsoid, LabelFlips, RobustLinearClassifier
from holdfast._core.problem import Rounded
from holdfast._core.solution import Status
from holdfast.solvers import Newton
from holdfast.solvers.lagged_newton import LaggedNewton

SETS = [Ball(0.3), Box(0.2), Ellipsoid(0.3, shape=np.diag([1.0, 2.0, 0.5, 1.0]))]


def smoothed(rng, uncertainty, delta, **options):
    X = rng.normal(size=(60, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=60) > 0).astype(int)
    (problem,) = RobustLinearClassifier(uncertainty, **options)._problems(X, y, None, {})
    return problem.smoothed(delta)


@pytest.mark.parametrize("uncertainty", SETS, ids=repr)
def test_by_their_own_slopes_terms_bend_as_the_hessian_says(uncertainty, rng):
    problem = smoothed(rng, uncertainty, 0.5)
    theta = rng.normal(size=problem.n_parameters)
    here = problem.view(Rounded).rounded_at(theta)
    value, gradient = problem.value_and_gradient(theta)
    assert here.value == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(here.gradient, gradient, rtol=1e-12)
    np.testing.assert_allclose(here.hessian(here.slopes), problem.hessian(theta), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("uncertainty", SETS, ids=repr)
def test_slopes_after_a_small_step_are_those_of_the_place_it_leads_to(uncertainty, rng):
    problem = smoothed(rng, uncertainty, 0.5)
    theta, step = rng.normal(size=(2, problem.n_parameters)) * [[1.0], [1e-6]]
    view = problem.view(Rounded)
    here = view.rounded_at(theta)
    there = view.rounded_at(theta + step).slopes
    assert np.any(there != here.slopes)
    np.testing.assert_allclose(here.slopes_after(here.slopes, step), there, atol=1e-10)


@pytest.mark.parametrize("uncertainty", SETS, ids=repr)
def test_it_finds_the_optimum_that_newton_finds(uncertainty, rng):
    problem = smoothed(rng, uncertainty, 0.1)
    start = np.zeros(problem.n_parameters)
    found = LaggedNewton().minimise(problem, start, tol=1e-12, max_iter=50)
    best = Newton().minimise(problem, start, tol=1e-12, max_iter=200)
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(best.objective, rel=1e-9)
    assert not np.any(start)


def test_a_neighbours_slopes_save_steps():
    near, problem = (smoothed(np.random.default_rng(0), Ball(0.3), 1e-3, alpha=alpha) for alpha in (1.0, 1.1))
    start = LaggedNewton().minimise(near, np.zeros(near.n_parameters), tol=1e-9, max_iter=50)
    slopes = near.view(Rounded).rounded_at(start.parameters).slopes
    options = {"tol": 1e-9, "max_iter": 100}
    kept = LaggedNewton(slopes).minimise(problem, start.parameters, **options)
    plain = Newton().minimise(problem, start.parameters, **options)
    assert kept.objective == pytest.approx(plain.objective, rel=1e-6)
    assert kept.n_iter <= plain.n_iter


def test_other_problems_are_not_seen_as_rounded(rng):
    assert not smoothed(rng, Ball(0.3), 0.1, loss="logistic").offers(Rounded)
    assert not smoothed(rng, Ball(0.3), 0.1, ambiguity=LabelFlips(0.05)).offers(Rounded)
    assert not smoothed(rng, Ball(0.3), 0.0).offers(Rounded)


def test_steps_run_out_honestly(rng):
    problem = smoothed(rng, Ball(0.3), 1e-3)
    found = LaggedNewton().minimise(problem, np.zeros(problem.n_parameters), tol=1e-12, max_iter=1)
    assert found.status is Status.ITERATION_LIMIT
    assert found.n_iter == 1
