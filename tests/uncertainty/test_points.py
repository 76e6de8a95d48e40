"""A set of one point: a margin problem with it is that of displaced rows, and its proof is sound."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast._core.solution import DualGuess
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import Hinge, Logistic
from holdfast.uncertainty.points import CommonPoint


@pytest.mark.parametrize("loss", [Hinge(), Hinge().smoothed(0.3), Logistic()], ids=repr)
def test_problem_is_that_of_displaced_rows(two_classes, make_problem, rng, loss):
    X, y = two_classes(20, 3)
    point, theta = rng.normal(size=3), rng.normal(size=4)
    with_point = make_problem(X, y, loss, CommonPoint(point), alpha=0.4)
    moved = make_problem(X - y[:, None] * point, y, loss, CommonPoint(np.zeros(3)), alpha=0.4)
    for one, other in zip(with_point.value_and_gradient(theta), moved.value_and_gradient(theta), strict=True):
        assert_allclose(one, other, rtol=1e-12)
    assert_allclose(with_point.hessian(theta), moved.hessian(theta), rtol=1e-11, atol=1e-12)
    v = rng.normal(size=4)
    assert_allclose(with_point.at(theta).product(v)[0], moved.at(theta).product(v)[0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optimum_is_proved_whichever_way_the_point_is(two_classes, make_problem, rng, fit_intercept):
    X, y = two_classes(30, 3)
    for size in (-2.0, -0.3, 0.3, 2.0):
        point = size * rng.normal(size=3)
        problem = make_problem(X, y, Hinge(), CommonPoint(point), alpha=0.4, fit_intercept=fit_intercept)
        _, proof = train(problem, tol=1e-8, max_iter=300)
        assert proof.gap <= 1e-8
        none = CommonPoint(np.zeros(3))
        moved = make_problem(X - y[:, None] * point, y, Hinge(), none, alpha=0.4, fit_intercept=fit_intercept)
        assert_allclose(proof.objective, train(moved, tol=1e-8, max_iter=300)[1].objective, rtol=3e-8)


def test_nonsense_proves_nothing_false(two_classes, make_problem, rng):
    X, y = two_classes(30, 3)
    for _ in range(10):
        point = rng.normal(size=3)
        problem = make_problem(X, y, Hinge(), CommonPoint(point), alpha=0.1, fit_intercept=False)
        _, proof = train(problem, tol=1e-8, max_iter=300)
        for _ in range(20):
            direction = 10 ** rng.uniform(-6, 1) * rng.normal(size=3)
            slopes, scale = rng.uniform(-0.3, 1.3, size=30), np.asarray(10 ** rng.uniform(-3, 3))
            claimed = certificate(problem, direction, 0.0, DualGuess(slopes, direction, scale, problem.sets))
            assert claimed.lower_bound <= proof.objective * (1 + 1e-12)


def test_only_multiples_of_the_point_are_reached(rng):
    point = rng.normal(size=4)
    sets = CommonPoint(point)
    assert_allclose(sets.gauge(2.5 * point), 2.5, rtol=1e-13)
    assert sets.gauge(-point) == np.inf
    assert sets.gauge(point + np.eye(4)[0]) == np.inf
    assert sets.contains(point).all()
    assert not sets.contains(0.5 * point).any()
    assert_allclose(sets.scaled(3.0).support(point), 3 * point @ point, rtol=1e-13)
    assert np.all(sets.sample(rng, 3, 4) == point)


def test_random_points_of_a_set_without_the_origin_are_in_it():
    signs = np.array([1.0, -1.0, 1.0])
    points = CommonPoint(np.array([1.0, 2.0])).against_labels(signs).sample(np.random.default_rng(0), 4, 2)
    assert_allclose(points, np.broadcast_to(-signs[:, None] * [1.0, 2.0], (4, 3, 2)))
