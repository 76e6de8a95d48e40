"""Passes over few gathered rows against those over rows as they are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast._data import DenseRows
from holdfast._data.dense import MOST_GATHERED
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.losses import ExpectedLogistic, GaussianHinge, TwoPointHinge
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.polytopes import CommonBox

SETS = {
    "ball": CommonEllipsoid(0.3),
    "ellipsoid": CommonEllipsoid(np.array([[0.3, 0.0], [0.1, 0.2], [0.0, 0.5]])),
    "smoothed ball": CommonEllipsoid(0.3).smoothed(0.2),
    "smoothed box": CommonBox(np.array([0.1, 0.2, 0.3])).smoothed(0.1),
}


def _problems(rng, *, loss=None, sets=SETS["ball"], shift=None, **options):
    """Return the same problem twice, and the second one does not gather its rows."""
    X, signs = rng.normal(size=(40, 3)), np.where(rng.uniform(size=40) < 0.4, 1.0, -1.0)
    weights = rng.uniform(0.1, 2, size=40)

    def made():
        return MarginScaleProblem(DenseRows(X, shift), signs, weights, loss or ExpectedLogistic(), sets, **options)

    gathered, plain = made(), made()
    plain.gathered = None
    assert gathered.gathered is not None
    return gathered, plain


def _assert_alike(gathered, plain, parameters):
    value, gradient, hessian = gathered.second_order(parameters)
    other = plain.second_order(parameters)
    assert_allclose(value, other[0], rtol=1e-12)
    assert_allclose(gradient, other[1], rtol=1e-10, atol=1e-12)
    assert_allclose(hessian(), other[2](), rtol=1e-9, atol=1e-11)
    here, there = gathered.evaluate(parameters), plain.evaluate(parameters)
    assert_allclose(here.value, there.value, rtol=1e-12)
    assert_allclose(here.gradient, there.gradient, rtol=1e-10, atol=1e-12)
    assert_allclose(here.stiffness, there.stiffness, rtol=1e-10)


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("loss", [ExpectedLogistic(), GaussianHinge(), TwoPointHinge()], ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
def test_gathered_rows_give_the_same_problem(sets, loss, intercept, rng):
    gathered, plain = _problems(rng, loss=loss, sets=SETS[sets], fit_intercept=intercept, alpha=0.7)
    _assert_alike(gathered, plain, rng.normal(size=3 + intercept))


def test_rows_that_were_moved_and_margins_of_their_own(rng):
    gathered, plain = _problems(rng, shift=np.array([2.0, -1.0, 0.5]), target=rng.uniform(0.5, 2, size=40))
    _assert_alike(gathered, plain, rng.normal(size=4))


def test_smoothed_problems_share_what_was_gathered(rng):
    gathered = _problems(rng, loss=GaussianHinge())[0]
    assert gathered.smoothed(0.1).gathered.signed is gathered.gathered.signed
    other = gathered.having(signs=-gathered.signs)
    assert_allclose(other.gathered.signed, -gathered.gathered.signed)


def test_rows_that_are_many_are_not_copied(rng):
    X = np.zeros((int(MOST_GATHERED) + 1, 1))
    assert DenseRows(X).signed(np.ones(len(X))) is None
