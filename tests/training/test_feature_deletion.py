"""Deleted features: what adversaries choose, the published programs, their bounds, and generated rows."""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from holdfast import FeatureDeletionClassifier
from holdfast._core.solution import Status
from holdfast._data import rows_of
from holdfast._problems.feature_deletion import FeatureDeletionProblem
from holdfast._proofs.feature_deletion import deletion_bound
from holdfast._training.feature_deletion import generate_rows, train_deletion
from holdfast.solvers import DeletionInteriorPoint, Highs
from holdfast.uncertainty.deletion_loss import DeletionLoss
from holdfast.uncertainty.knapsacks import Knapsack


def subsets(n):
    return [np.isin(np.arange(n), s) for s in chain.from_iterable(combinations(range(n), k) for k in range(n + 1))]


def make(X, y, values, budget, *, margin=0.5, limit=1.0, adversary="relaxed", weights=None):
    weights = np.full(len(y), 1 / len(y)) if weights is None else weights
    loss = DeletionLoss.of(values, budget, margin, adversary, X.shape[1], "make")
    return FeatureDeletionProblem(rows_of(X), y, weights, loss, limit)


def draw(rng, m=12, n=5):
    y = rng.choice([-1.0, 1.0], size=m)
    y[:2] = 1, -1
    return rng.normal(size=(m, n)) + 0.7 * y[:, None], y


def exponential(X, y, values, budget, margin=0.5, limit=1.0):
    """Return the optimum of (3), every feasible set of every row a constraint."""
    (m, n), P = X.shape, values.sum() - budget
    kept = [~D for D in subsets(n) if values[D].sum() <= budget + 1e-12]
    lines = [
        np.concatenate([-yi * xi * J, [-yi], -1.0 * (np.arange(m) == i)])
        for J in kept
        for i, (xi, yi) in enumerate(zip(X, y, strict=True))
    ]
    right = [-margin * values[J].sum() / P for J in kept for _ in range(m)]
    cost = np.concatenate([np.zeros(n + 1), np.full(m, 1 / m)])
    bounds = [(-limit, limit)] * n + [(None, None)] + [(0, None)] * m
    return linprog(cost, A_ub=np.array(lines), b_ub=right, bounds=bounds).fun


@pytest.mark.parametrize(("adversary", "solver"), [("relaxed", None), ("relaxed", "highs"), ("exact", None)])
def test_without_an_intercept_it_is_the_same_program_without_one(adversary, solver, rng):
    X, y = draw(rng)
    X += 0.8
    values = np.array([1.0, 2.0, 1.0, 3.0, 1.0]) if adversary == "exact" else np.ones(5)
    # rows and their mirror images ask for no intercept
    both, signs = np.concatenate([X, -X]), np.concatenate([y, -y])
    problem = replace(make(X, y, values, 2.0, adversary=adversary), fit_intercept=False)
    run = generate_rows if adversary == "exact" else train_deletion
    found, proof = run(problem, solver, tol=1e-7, max_iter=200)
    assert found.status is Status.SOLVED
    assert found.parameters[-1] == 0
    assert proof.objective == pytest.approx(exponential(both, signs, values, 2.0), abs=1e-6)
    assert proof.objective > exponential(X, y, values, 2.0) + 1e-3
    for _ in range(5):
        claimed = deletion_bound(problem, rng.uniform(0, 1.2, size=12), rng.uniform(0, 1, size=(12, 5)))
        assert claimed <= proof.objective + 1e-9


def optimum(problem, tol=1e-8):
    found, proof = train_deletion(problem, tol=tol, max_iter=200)
    assert found.status is Status.SOLVED
    return proof.objective


@pytest.mark.parametrize("budget", [1.0, 2.0])
def test_sets_and_shares_are_worth_the_same_for_unit_values_and_whole_budgets(budget, rng):
    for _ in range(5):
        X, y = draw(rng)
        assert optimum(make(X, y, np.ones(5), budget)) == pytest.approx(exponential(X, y, np.ones(5), budget), abs=1e-7)


@pytest.mark.parametrize("budget", [1, 2])
def test_sets_and_shares_are_worth_the_same_where_some_features_are_free(budget, rng):
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    for _ in range(3):
        X, y = draw(rng)
        model = FeatureDeletionClassifier(budget, values, margin=0.5, tol=1e-8).fit(X, y)
        assert model.objective_ == pytest.approx(exponential(X, y, values, budget), abs=1e-7)


def test_shares_of_unequal_features_are_worth_more_within_the_bound(rng):
    excess = []
    for _ in range(10):
        X, y = draw(rng)
        values = rng.uniform(0.3, 2, size=5)
        excess.append(optimum(make(X, y, values, 1.5)) - exponential(X, y, values, 1.5))
        largest = np.max(np.maximum(np.abs(X).max(axis=0) - 0.5 * values / (values.sum() - 1.5), 0.0))
        assert -1e-7 <= excess[-1] <= largest
    assert max(excess) > 0.01


def test_shares_are_worth_more_for_a_budget_of_one_and_a_half(rng):
    excess = []
    for _ in range(5):
        X, y = draw(rng)
        values = np.ones(5)
        excess.append(optimum(make(X, y, values, 1.5)) - exponential(X, y, values, 1.5))
        largest = np.max(np.maximum(np.abs(X).max(axis=0) - 0.5 * values / 3.5, 0.0))
        assert -1e-7 <= excess[-1] <= largest
    assert max(excess) > 0.01


@pytest.mark.parametrize("eps", [0.1, 1e-3])
def test_the_gap_between_shares_and_sets_can_be_the_bound(eps):
    X, y, values = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, -1.0]), np.array([1.0, 1e3])
    budget = 1 - eps
    gap = optimum(make(X, y, values, budget, margin=1.0)) - exponential(X, y, values, budget, margin=1.0)
    assert gap == pytest.approx(1.0, abs=1.1 * eps + 2e-3)


@pytest.mark.parametrize(("solver", "accuracy"), [("highs", 1e-7), ("clarabel", 2e-6)])
@pytest.mark.parametrize("shape", [(40, 6), (6, 15), (30, 4)])
def test_interior_point_agrees_with_general_solvers_on_the_published_program(solver, accuracy, shape, rng):
    for margin in (0.01, 1.0, 30.0):
        X, y = draw(rng, *shape)
        values = rng.uniform(0.3, 2, size=shape[1])
        values[1] = np.inf
        problem = make(X, y, values, 0.3 * values[np.isfinite(values)].sum(), margin=margin)
        _, ours = train_deletion(problem, "deletion_interior_point", tol=1e-7, max_iter=200)
        _, theirs = train_deletion(problem, solver, tol=1e-7, max_iter=1000)
        assert ours.gap <= 1e-7
        assert theirs.gap <= accuracy
        assert ours.objective == pytest.approx(theirs.objective, abs=(1e-7 + accuracy) * max(margin, ours.objective))


def test_separable_rows_lose_nothing(rng):
    X = rng.normal(size=(30, 4))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    X += 3 * y[:, None]
    _, proof = train_deletion(make(X, y, np.ones(4), 1.0, margin=0.1), tol=1e-6, max_iter=100)
    assert proof.gap <= 1e-6
    assert proof.objective <= 1e-7


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_no_guess_proves_more_than_the_optimum(kind, rng):
    X, y = draw(rng, 30, 5)
    problem = make(kind(X), y, np.array([1.0, 2.0, 0.5, np.inf, 1.0]), 1.7, weights=rng.dirichlet(np.ones(30)))
    best = optimum(problem)
    for scale in (0.1, 1.0, 100.0):
        for _ in range(10):
            slopes, deleted = scale * rng.normal(size=30) + 0.5, scale * rng.normal(size=(30, 5)) + 0.3
            assert deletion_bound(problem, slopes, kind(deleted)) <= best + 1e-12
            assert deletion_bound(problem, np.abs(slopes), kind(np.abs(deleted))) <= best + 1e-12
    slopes[0], deleted[1, 1] = np.nan, np.inf
    assert deletion_bound(problem, slopes, deleted) <= best
    assert deletion_bound(problem, np.ones(30), np.ones((30, 5))) <= best


def test_bound_of_unbalanced_classes_is_that_of_the_smaller_one(rng):
    X, y = 1e-3 * rng.normal(size=(30, 4)), np.where(np.arange(30) < 25, 1.0, -1.0)
    problem = make(X, y, np.ones(4), 1.0)
    bound = deletion_bound(problem, np.ones(30), np.zeros(X.shape))
    assert bound <= optimum(problem) <= 2 * 5 / 30 * 0.5 * 4 / 3
    assert bound == pytest.approx(2 * 5 / 30 * 0.5 * 4 / 3, abs=2e-3)


def test_dual_and_primal_meet(rng):
    X, y = draw(rng, 40, 6)
    problem = make(X, y, rng.uniform(0.5, 2, size=6), 2.2)
    found = DeletionInteriorPoint().minimise(problem, np.zeros(7), tol=1e-9, max_iter=100)
    bound = deletion_bound(problem, found.dual.slopes, found.dual.points)
    assert bound == pytest.approx(found.objective, rel=1e-8)
    assert bound == pytest.approx(found.lower_bound, rel=1e-9)
    assert problem.objective(found.parameters[:-1], found.parameters[-1]) == pytest.approx(found.objective, rel=1e-8)


def test_loss_is_the_worst_of_all_sets(rng):
    X, y = draw(rng, 20, 5)
    values, w, b = np.array([1.0, 2.0, 1.0, 3.0, 1.0]), rng.normal(size=5), 0.2
    problem = make(X, y, values, 3.0, adversary="exact")
    kept = np.array([~D for D in subsets(5) if values[D].sum() <= 3])
    losses = np.max(0.5 * (kept @ values) / 5 - y[:, None] * (b + (X * w) @ kept.T), axis=1)
    assert problem.objective(w, b) == pytest.approx(np.maximum(losses, 0).mean())


@pytest.mark.parametrize("budget", [3.0, 3.5])
def test_generated_rows_solve_the_exponential_program(budget, rng):
    for _ in range(4):
        X, y = draw(rng)
        values = rng.integers(1, 4, size=5).astype(float)
        problem = make(X, y, values, budget, adversary="exact")
        found, proof = generate_rows(problem, tol=1e-6, max_iter=50)
        assert found.status is Status.SOLVED
        best = exponential(X, y, values, budget)
        assert proof.objective == pytest.approx(best, abs=1e-6)
        assert proof.lower_bound <= best + 1e-9


def test_generated_rows_that_are_cut_short_are_honest(rng):
    X, y = draw(rng, 30, 6)
    values = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 1.0])
    problem = make(X, y, values, 4.0, adversary="exact", limit=3.0)
    best = generate_rows(problem, tol=1e-6, max_iter=100)[1].objective
    found, proof = generate_rows(problem, tol=1e-6, max_iter=2)
    assert found.status is Status.ITERATION_LIMIT
    assert proof.lower_bound <= best + 1e-9 <= proof.objective + 2e-9
    assert proof.gap > 1e-6


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_mean_of_chunks_is_proved_on_all_rows(kind, rng):
    X, y = draw(rng, 90, 5)
    X = X * (rng.random(X.shape) < 0.25)
    problem = make(kind(X), y, np.ones(5), 1.5, weights=rng.dirichlet(np.ones(90)))
    best = optimum(problem)
    found, proof = train_deletion(problem, tol=1e-9, max_iter=100, n_chunks=3)
    assert found.status is Status.CHUNKED
    assert 0.5 * best < proof.lower_bound <= best + 1e-9
    assert proof.objective == pytest.approx(problem.objective(found.parameters[:-1], found.parameters[-1]))
    assert best - 1e-9 <= proof.objective < 2 * best


def test_adversary_with_more_to_spend_costs_more(rng):
    X, y = draw(rng, 40, 6)
    loss = make(X, y, np.ones(6), 4.0).loss
    spending = [replace(loss, knapsack=Knapsack(np.ones(6), spent)) for spent in (0.0, 1.0, 2.5, 4.0)]
    costs = [optimum(replace(make(X, y, np.ones(6), 4.0), loss=each)) for each in spending]
    assert np.all(np.diff(costs) > 1e-4)


@pytest.mark.parametrize(("values", "budget"), [([1.0, 2.0, 3.0, 5.0, 2.0], 3.5), ([0.3, 1.2, 0.7, 2.5, 0.4], 1.0)])
def test_what_the_budget_does_not_pay_for_is_not_deleted_in_part_by_the_tightened_adversary(values, budget, rng):
    values = np.array(values)
    X, y = draw(rng, 20, 5)
    tightened, relaxed = (optimum(make(X, y, values, budget, adversary=name)) for name in ("tightened", "relaxed"))
    assert exponential(X, y, values, budget) <= tightened + 1e-8
    assert tightened < relaxed - 1e-4
    program = make(X, y, values, budget, adversary="tightened")
    whole = Highs().minimise(program, np.zeros(6), tol=1e-8, max_iter=1000)
    assert program.objective(whole.parameters[:-1], whole.parameters[-1]) == pytest.approx(tightened, abs=1e-7)
