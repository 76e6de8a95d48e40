"""Picking a solver: the one that suits best, found without more work than that takes."""

import numpy as np
import pytest

from holdfast import Ball, Box, Ellipsoid, GaussianNoise
from holdfast.losses import GaussianHinge, Hinge, Logistic
from holdfast.solvers.selection import BUILT_IN, missing, pick


@pytest.fixture(
    params=[(Hinge(), Box(0.1)), (Hinge(), Ball(0.1)), (Logistic(), Ellipsoid(shape=np.eye(5))), (GaussianHinge(), 0.3)]
)
def problem(request, make_problem, two_classes):
    loss, sets = request.param
    noise = GaussianNoise(sets) if isinstance(sets, float) else sets
    return make_problem(*two_classes(40, 5), loss, noise, alpha=0.1)


def test_solver_is_the_one_of_all_that_fit_that_suits_best(problem):
    fits = [cls() for cls in BUILT_IN.values() if not missing(problem, cls)]
    best = max(solver.preference(problem.work()) for solver in fits)
    assert pick(problem).preference(problem.work()) == best
    assert type(pick(problem)) in map(type, fits)


def test_no_conic_form_is_made_where_another_solver_is_better(problem, monkeypatch):
    monkeypatch.setattr(type(problem.sets), "support_program", None)
    pick(problem)


def test_views_that_are_offered_are_made_and_the_others_are_not(problem):
    for kind in {kind for cls in BUILT_IN.values() for kind in cls.needs}:
        assert problem.offers(kind) == (problem.view(kind) is not None)
