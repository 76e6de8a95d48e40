"""The worst flips of labels: brute force over subsets, slopes, bends, and what is proved."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from holdfast import Ball, Box, Ellipsoid, IntervalBox
from holdfast._core.solution import DualGuess
from holdfast._data import rows_of
from holdfast._problems.label_flips import FlippedLoss, eased_price, flipped, hyperbola
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.penalty import Lasso, Limits
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import Hinge, HuberizedHinge, Logistic, Mixture, SquaredHinge
from holdfast.solvers import Newton, NewtonCG, QuasiNewton, Semismooth

PLAIN = [Hinge(), SquaredHinge(), Logistic(), HuberizedHinge(), Mixture(Hinge(), 0.4)]


def _flipped_loss(base, c, budget, n=None, smoothing=0.0):
    n = np.ones(len(c)) if n is None else n
    return FlippedLoss(base, n, c / n, [slice(None)], np.array([float(budget)]), smoothing=smoothing)


def _problem(rng, loss, k, *, n=30, d=3, sets=None, metadata=None, weights=None, counts=None, **options):
    y = np.where(np.arange(n) % 5 < 2, 1.0, -1.0)
    X = rng.normal(size=(n, d)) + 0.8 * y[:, None]
    sets = (Ball(0.0) if sets is None else sets).at(X, metadata or {}).against_labels(y)
    weights = np.ones(n) if weights is None else weights
    plain = MarginScaleProblem(rows_of(X), y, weights, loss, sets, **({"alpha": 0.5} | options))
    return flipped(
        plain,
        np.atleast_1d(np.asarray(k, dtype=float)),
        (np.ndim(k) * (y > 0)).astype(int),
        np.ones(n) if counts is None else counts,
    )


@pytest.mark.parametrize("base", PLAIN, ids=repr)
@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_the_value_is_the_largest_over_all_subsets(base, size, rng):
    for n in (1, 5, 8):
        margins, t = size * rng.normal(size=n), rng.uniform(0, 1, size=n)
        own, other = base.value(1 - margins, t), base.value(1 + margins, t)
        for k in range(n + 1):
            worst = max(
                own.sum() + sum(other[i] - own[i] for i in subset)
                for m in range(k + 1)
                for subset in combinations(range(n), m)
            )
            found = _flipped_loss(base, np.ones(n), k).value(1 - margins, t)
            assert found.sum() == pytest.approx(worst, rel=1e-12)


def test_flips_in_part_change_nothing_for_an_integer_budget_and_equal_weights(rng):
    margins, loss = rng.normal(size=9), Hinge()
    gain = loss.value(1 + margins, np.zeros(9)) - loss.value(1 - margins, np.zeros(9))
    for k in range(10):
        share = _flipped_loss(loss, np.ones(9), k).at(1 - margins, np.zeros(9)).share
        assert set(share) <= {0.0, 1.0}
        best = linprog(-gain, A_ub=np.ones((1, 9)), b_ub=[k], bounds=(0, 1))
        assert gain @ share == pytest.approx(-best.fun)


@pytest.mark.parametrize("base", PLAIN, ids=repr)
def test_weighted_flips_are_a_knapsack_by_weight(base, rng):
    n = 12
    margins, t, counts = rng.normal(size=n), rng.uniform(0, 1, size=n), rng.uniform(0, 2, size=n)
    counts[3] = 0
    c = counts * rng.choice([0.5, 3.0], size=n)
    c[3] = 0
    gain = base.value(1 + margins, t) - base.value(1 - margins, t)
    factors = np.where(counts > 0, c / np.where(counts > 0, counts, 1), 1.0)
    for budget in (0.3, 4.0, counts.sum()):
        loss = FlippedLoss(base, counts, factors, [slice(None)], np.array([budget]))
        best = linprog(-c * gain, A_ub=counts[None], b_ub=[budget], bounds=(0, 1))
        assert c @ loss.value(1 - margins, t) == pytest.approx(c @ base.value(1 - margins, t) - best.fun, rel=1e-9)
        share = loss.at(1 - margins, t).share
        assert counts @ share <= budget * (1 + 1e-12)
        assert (c * gain) @ share == pytest.approx(-best.fun, rel=1e-9, abs=1e-12)


def test_budgets_by_class_are_spent_in_their_class(rng):
    y, margins = np.array([-1.0, -1, -1, 1, 1, 1, 1]), rng.normal(size=7)
    loss = Logistic()
    own, other = loss.value(1 - margins, np.zeros(7)), loss.value(1 + margins, np.zeros(7))
    for k in product(range(4), range(5)):
        groups = [np.flatnonzero(y < 0), np.flatnonzero(y > 0)]
        found = FlippedLoss(loss, np.ones(7), np.ones(7), groups, np.array(k, dtype=float))
        expected = own.sum()
        for group, most in zip(groups, k, strict=True):
            expected += np.sort(np.maximum(other - own, 0)[group])[::-1][:most].sum()
        assert found.value(1 - margins, np.zeros(7)).sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("base", PLAIN, ids=repr)
def test_smoothing_bounds_from_above_and_vanishes(base, rng):
    u, t, k = rng.normal(size=50), rng.uniform(0, 1, size=50), 6
    exact = _flipped_loss(base, np.ones(50), k).value(u, t).sum()
    for smoothing in (1.0, 1e-2, 1e-5):
        smoothed = _flipped_loss(base, np.ones(50), k).smoothed(smoothing).value(u, t).sum()
        assert exact <= smoothed <= exact + 50 * smoothing


def test_the_price_uses_up_the_budget(rng):
    worth, counts = rng.normal(size=200), rng.uniform(0, 2, size=200)
    for smoothing, budget in product((1.0, 1e-3, 1e-9), (0.01, 5.0, 60.0)):
        price = eased_price(worth, counts, budget, smoothing)
        # as nearly as numbers next to the price differ
        more, less = (counts @ hyperbola(worth - np.nextafter(price, end), smoothing)[1] for end in (-np.inf, np.inf))
        assert less * (1 - 1e-9) <= budget <= more * (1 + 1e-9)
    assert eased_price(worth, counts, 300.0, 0.1) == 0.0


SOME_SETS = {
    "none": (None, {}),
    "ball": (Ball(0.3), {}),
    "boxes": (Box(), {"X_std": np.random.default_rng(0).uniform(0, 0.5, size=(30, 3))}),
    "ellipsoids": (Ellipsoid(), {"X_std": np.random.default_rng(1).uniform(0, 0.5, size=(30, 3))}),
}


@pytest.mark.parametrize("sets", SOME_SETS)
@pytest.mark.parametrize("base", PLAIN, ids=repr)
@pytest.mark.parametrize("k", [4.0, [2.0, 1.5]], ids=["shared", "by_class"])
def test_slopes_and_bends_are_derivatives_of_the_value(sets, base, k, rng):
    chosen, metadata = SOME_SETS[sets]
    problem = _problem(rng, base, k, sets=chosen, metadata=metadata, weights=rng.uniform(0.5, 2, size=30)).smoothed(0.3)
    theta, eps = 0.5 * rng.normal(size=4), 1e-5
    gradient, H = problem.value_and_gradient(theta)[1], problem.hessian(theta)
    for j, unit in enumerate(np.eye(4)):
        ahead, behind = (problem.value_and_gradient(theta + s * eps * unit) for s in (1, -1))
        assert gradient[j] == pytest.approx((ahead[0] - behind[0]) / (2 * eps), rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(H[j], (ahead[1] - behind[1]) / (2 * eps), rtol=1e-5, atol=1e-5)
    place = problem.at(theta)
    np.testing.assert_allclose(place.hessian(), H, rtol=1e-9, atol=1e-9)
    v = rng.normal(size=4)
    np.testing.assert_allclose(place.product(v)[0], H @ v, rtol=1e-9)
    plane = place.plane(v)
    here = plane.start
    basis = np.zeros((4, plane.n_parameters))
    basis[:3, :-1], basis[3, -1] = plane.basis, 1.0
    np.testing.assert_allclose(plane.hessian(here), basis.T @ H @ basis, rtol=1e-8, atol=1e-9)


@pytest.mark.thin(4)
@pytest.mark.parametrize("solver", [Newton(), NewtonCG(), QuasiNewton(), Semismooth()], ids=repr)
@pytest.mark.parametrize("base", [Hinge(), Logistic()], ids=repr)
def test_solvers_agree(solver, base, rng):
    problem = _problem(rng, base, 4, n=60)
    values = [train(problem, chosen, tol=1e-6, max_iter=5000)[1] for chosen in (None, solver)]
    assert values[0].gap <= 1e-6
    assert values[1].gap <= 1e-6
    assert values[0].objective == pytest.approx(values[1].objective, rel=2e-6)


@pytest.mark.parametrize("options", [{}, {"penalty": Lasso(0.5), "alpha": 0.0}, {"penalty": Limits(0.7), "alpha": 0.0}])
@pytest.mark.parametrize("base", PLAIN, ids=repr)
def test_no_guess_makes_a_proof_lie(base, options, rng):
    """Shares, slopes and directions may be nonsense: the bound stays below the optimum."""
    problem = _problem(rng, base, 3, sets=Ball(0.2), **options)
    found, proof = train(problem, tol=1e-8, max_iter=2000)
    assert proof.gap <= 1e-7
    w, b = problem.split(found.parameters)
    for _ in range(30):
        size = 10.0 ** rng.uniform(-2, 1)
        guess = DualGuess(size * rng.uniform(-0.2, 1.2, size=(3, 30)), rng.normal(size=3), np.array(rng.uniform(0, 2)))
        proved = certificate(problem, w + 0.3 * rng.normal(size=3), b + rng.normal(), guess)
        assert proved.lower_bound <= proof.objective * (1 + 1e-12)
        assert proved.objective >= proof.lower_bound


def test_a_budget_that_is_overdrawn_proves_nothing_more(rng):
    problem = _problem(rng, Hinge(), 3)
    found, proof = train(problem, tol=1e-8, max_iter=2000)
    more = problem.having(budgets=np.array([6.0]))
    beyond, proof_of_more = train(more, tol=1e-8, max_iter=2000)
    assert proof_of_more.lower_bound > 1.1 * proof.objective
    guess = more.smoothed(1e-6).dual_guess(beyond.parameters)
    assert certificate(more, *more.split(beyond.parameters), guess).lower_bound > proof.objective
    # elsewhere, as no bound is ever said to exceed the objective itself
    assert certificate(problem, *problem.split(9 * found.parameters), guess).lower_bound <= proof.objective


def test_the_dual_weights_are_those_of_the_rows(rng):
    problem = _problem(rng, SquaredHinge(), 4)
    found, proof = train(problem, tol=1e-8, max_iter=2000)
    w = problem.split(found.parameters)[0]
    # at the optimum alpha w is what the rows pull
    np.testing.assert_allclose(problem.rows.transpose_dot(problem.signed(proof.dual)), problem.alpha * w, atol=1e-3)
    assert np.sum(problem.signed(proof.dual)) == pytest.approx(0.0, abs=1e-9)
    assert np.any(proof.dual < 0)


def test_a_flip_that_leaves_one_class_is_no_error(rng):
    problem = _problem(rng, Hinge(), [18.0, 0.0])
    assert train(problem, tol=1e-6, max_iter=1000)[1].gap <= 1e-6


def test_sets_that_lie_to_one_side_are_centred(rng):
    X = rng.normal(size=(30, 3))
    box = IntervalBox(-0.1, 0.5).at(X, {})
    moved, around = box.centred(X)
    assert around.is_symmetric
    w, y = rng.normal(size=3), rng.choice([-1.0, 1.0], size=30)
    # -y w'x + h(-y w), from either side
    for signs in (y, -y):
        ends = box.against_labels(signs).support(w) - signs * (X @ w)
        np.testing.assert_allclose(around.support(w) - signs * (moved @ w), ends, rtol=1e-12)
