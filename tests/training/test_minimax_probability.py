"""The minimax probability problem against a conic solver, and proofs that hold whatever they are told."""

import cvxpy as cp
import numpy as np
import pytest

from holdfast._data import rows_of
from holdfast._problems.minimax_probability import MinimaxProbabilityProblem, Moments, class_law
from holdfast._proofs.minimax_probability import certificate_of
from holdfast._training.minimax_probability import train_minimax
from holdfast.uncertainty import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox

SIGNS = (-1.0, 1.0)


@pytest.fixture
def data(rng):
    """Fourteen rows of four features, y = -1, +1, and half-widths."""
    y = np.where(np.arange(14) < 6, 1.0, -1.0)
    return rng.normal(size=(14, 4)) + np.outer(y, [1.0, 0.5, 0.0, -0.3]), y, rng.uniform(0, 0.4, size=(14, 4))


def _problem(X, y, chosen=None, metadata=None, *, means="fixed", weights=None, **options):
    worst, cloud = (None, None) if chosen is None else chosen.split(X, metadata or {})
    weights = np.ones(len(y)) if weights is None else weights
    laws, budgets = [], np.zeros(len(y))
    for sign in SIGNS:
        own = np.flatnonzero(y == sign)
        moments = Moments.of(rows_of(X[own]), weights[own])
        budgets[own] = moments.shares
        sets, noise = (None if part is None else part.take(own) for part in (worst, cloud))
        drift = None if sets is None or means == "fixed" else sets.against_labels(np.full(len(own), sign))
        laws.append(class_law(moments, sets, noise, drift=drift, **options))
    return MinimaxProbabilityProblem(*laws, sets=worst, budgets=budgets)


def _solved(problem, tol=1e-6, **options):
    found, proof = train_minimax(problem, tol=tol, max_iter=1000, **options)
    assert proof.gap <= tol
    return found, proof


def _conic(X, y, S, *, kappa=1.0, means="fixed", pooling="rms", ridge=0.0, absolute=True):
    """Return the optimum and w of the program in (w+, w-, q+, q-), straight from the corrected report (or the printed one)."""
    d = X.shape[1]
    plus, minus = cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True)
    w, size = plus - minus, plus + minus
    cost, constraints, lead = 0, [], 0
    for sign in SIGNS:
        A, R = X[y == sign], S[y == sign]
        c, q, u = len(A) ** -0.5, cp.Variable(), cp.Variable(len(A))
        constraints += [q == A.mean(axis=0) @ w, u >= A @ w - q + kappa * R @ size]
        constraints += [u >= q - A @ w + kappa * R @ size] if absolute else []
        tau = c * (np.linalg.norm(R, axis=0) if pooling == "rms" else R.sum(axis=0))
        cost += cp.norm(cp.hstack([c * u, np.sqrt(ridge) * w])) + (1 - kappa) * tau @ size
        lead += sign * q - (R.mean(axis=0) @ size if means == "uncertain" else 0.0)
    program = cp.Problem(cp.Minimize(cost), [*constraints, lead >= 1])
    program.solve(solver=cp.CLARABEL)
    return program.value, w.value


@pytest.mark.parametrize("means", ["fixed", "uncertain"])
@pytest.mark.parametrize("pooling", ["rms", "sum"])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_boxes_reach_the_optimum_of_the_cone_program(data, kappa, pooling, means):
    X, y, S = data
    options = {"kappa": kappa, "pooling": pooling, "ridge": 0.05}
    problem = _problem(X, y, Box(), {"X_std": S}, means=means, **options)
    found, proof = _solved(problem)
    optimum, w = _conic(X, y, S, means=means, **options)
    assert proof.lower_bound <= optimum * (1 + 1e-7)
    assert proof.objective == pytest.approx(optimum, rel=1e-6)
    assert problem.objective(w) == pytest.approx(optimum, rel=1e-6)
    assert problem.lead(found.parameters) == pytest.approx(1.0, rel=1e-12)
    assert problem.spread.value(found.parameters) == pytest.approx(proof.objective, rel=1e-12)


@pytest.mark.parametrize("means", ["fixed", "uncertain"])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_ellipsoids_of_each_row_reach_the_optimum_of_the_cone_program(data, kappa, means):
    X, y, S = data
    problem = _problem(X, y, Ellipsoid(), {"X_std": S}, means=means, kappa=kappa)
    w, cost, constraints, lead = cp.Variable(4), 0, [], 0
    for sign in SIGNS:
        A, R = X[y == sign], S[y == sign]
        t, u = cp.Variable(len(A)), cp.Variable(len(A))
        scores = (A - A.mean(axis=0)) @ w
        constraints += [t[i] >= cp.norm(cp.multiply(row, w)) for i, row in enumerate(R)]
        constraints += [u >= scores + kappa * t, u >= -scores + kappa * t]
        outside = cp.norm(cp.multiply(np.sqrt(np.mean(R**2, axis=0)), w))
        cost += cp.norm(u) / np.sqrt(len(A)) + (1 - kappa) * outside
        lead += sign * (A.mean(axis=0) @ w) - (cp.sum(t) / len(A) if means == "uncertain" else 0.0)
    program = cp.Problem(cp.Minimize(cost), [*constraints, lead >= 1])
    program.solve(solver=cp.CLARABEL)
    assert _solved(problem)[1].objective == pytest.approx(program.value, rel=1e-6)


@pytest.mark.thin(6)
def test_every_set_is_solved_to_a_proof(rng, uncertainty):
    chosen, metadata = uncertainty
    X, y = np.vstack([rng.normal(size=(3, 3)), rng.normal(size=(2, 3)) + 3.0]), np.array([-1.0, -1, -1, 1, 1])
    metadata = chosen.at_rows(X, metadata)
    for options in ({}, {"kappa": 0.2, "pooling": "sum"}):
        _solved(_problem(X, y, chosen.times(0.3), metadata, ridge=0.1, **options))


@pytest.mark.parametrize("solver", ["newton", "quasi_newton"])
def test_solvers_agree(data, solver):
    X, y, _ = data
    problem = _problem(X, y, Ball(0.3), ridge=0.05)
    found, proof = train_minimax(problem, solver, tol=1e-4, max_iter=1000)
    assert found.solver == solver
    assert proof.objective == pytest.approx(_solved(problem)[1].objective, rel=1e-4)


def test_reweighting_solves_spreads_without_kinks(data):
    X, y, _ = data
    for chosen in (None, GaussianNoise(0.3)):
        problem = _problem(X, y, chosen)
        found, proof = _solved(problem, tol=1e-10)
        assert found.solver == "reweighting"
        w, roots = cp.Variable(4), [np.linalg.cholesky(law.inner).T for law in (problem.negative, problem.positive)]
        program = cp.Problem(cp.Minimize(sum(cp.norm(root @ w) for root in roots)), [problem.difference @ w == 1])
        program.solve(solver=cp.CLARABEL)
        assert proof.objective == pytest.approx(program.value, rel=1e-7)


@pytest.mark.parametrize("means", ["fixed", "uncertain"])
@pytest.mark.parametrize("chosen", [Box(0.3), Ball(0.2), IntervalBox(-0.1, 0.3), None], ids=repr)
def test_no_guess_proves_more_than_the_optimum(rng, data, chosen, means):
    X, y, _ = data
    for X_now, ridge in ((X, 0.0), (X[[0, 1, 6, 7]], 0.01), (np.hstack([X, X]), 0.0)):
        problem = _problem(X_now, y if len(X_now) == 14 else y[[0, 1, 6, 7]], chosen, means=means, ridge=ridge)
        if chosen is None and X_now.shape[1] == 8:
            continue  # a copy of every feature makes no difference to w, but the covariance is singular
        best = _solved(problem, tol=1e-5)[1].objective
        for _ in range(20):
            w = rng.normal(size=X_now.shape[1]) * 10.0 ** rng.uniform(-6, 6)
            proof = certificate_of(problem, w, problem.smoothed(10.0 ** rng.uniform(-12, 3)))
            assert 0 <= proof.lower_bound <= best * (1 + 1e-9)
            assert proof.objective >= best * (1 - 1e-5)
            assert proof.gap == pytest.approx(max(1 - proof.lower_bound / proof.objective, 0.0), abs=1e-15)


def test_the_proof_is_tight_at_the_optimum_only(data):
    X, y, S = data
    problem = _problem(X, y, Box(), {"X_std": S})
    found, _ = _solved(problem)
    for delta, least in ((1e-3, 1e-5), (1e-1, 1e-3)):
        away = found.parameters + delta * np.array([1.0, -1.0, 1.0, 1.0])
        assert certificate_of(problem, away, problem.smoothed(1e-9)).gap > least


def test_derivatives_of_the_smoothed_function(rng, data):
    X, y, _ = data
    smoothed = _problem(X, y, IntervalBox(-0.1, 0.4), means="uncertain", kappa=0.7, ridge=0.1).smoothed(0.3)
    w, step = rng.normal(size=4), 1e-6
    pairs = [[smoothed.value_and_gradient(w + sign * step * unit) for sign in (1, -1)] for unit in np.eye(4)]
    gradient = [(up[0] - down[0]) / (2 * step) for up, down in pairs]
    hessian = [(up[1] - down[1]) / (2 * step) for up, down in pairs]
    np.testing.assert_allclose(smoothed.value_and_gradient(w)[1], gradient, rtol=1e-6)
    np.testing.assert_allclose(smoothed.hessian(w), hessian, rtol=1e-5, atol=1e-6)


def test_the_threshold_is_as_many_spreads_from_both_means(data):
    X, y, S = data
    for means in ("fixed", "uncertain"):
        problem = _problem(X, y, Box(), {"X_std": S}, means=means)
        found, proof = _solved(problem)
        w = found.parameters
        b = problem.intercept(w)
        np.testing.assert_allclose(problem.deviations(w, b), 1 / proof.objective, rtol=1e-12)
        # from either side: what the report prints as b* is our -b
        ends = {
            sign: law.mean @ w - sign * law.drift.value(w) - sign * law.spread.value(w) / proof.objective
            for sign, law in zip(SIGNS, (problem.negative, problem.positive), strict=True)
        }
        assert ends[-1.0] == pytest.approx(-b, abs=1e-12)
        assert ends[1.0] == pytest.approx(-b, abs=1e-12)


def test_optima_are_ordered_exact_rms_sum_and_rise_with_the_radius(data):
    X, y, S = data
    metadata = {"X_std": S}
    exact, half, rms, total = (
        _solved(_problem(X, y, Box(), metadata, **options))[1].objective
        for options in ({}, {"kappa": 0.5}, {"kappa": 0.0}, {"kappa": 0.0, "pooling": "sum"})
    )
    assert exact < half < rms < total
    radii = [_solved(_problem(X, y, Box(r), metadata))[1].objective for r in (0.0, 0.1, 0.5, 1.0)]
    assert np.all(np.diff(radii) > 0)
    assert radii[0] == pytest.approx(_solved(_problem(X, y))[1].objective, rel=1e-6)
    uncertain = _solved(_problem(X, y, Box(), metadata, means="uncertain"))[1].objective
    assert uncertain > exact


def test_the_printed_program_without_absolute_values_promises_what_nothing_attains(data):
    X, y, S = data
    problem = _problem(X, y, Box(3.0), {"X_std": S})
    best = _solved(problem)[1].objective
    printed, w = _conic(X, y, 3.0 * S, absolute=False)
    assert printed < best - 1e-3
    assert problem.objective(w) >= best - 1e-6


def test_the_printed_threshold_with_swapped_spreads_is_nearer_to_one_of_the_means(data):
    X, y, S = data
    problem = _problem(X, y, Box(), {"X_std": S * np.where(y > 0, 3.0, 0.3)[:, None]})
    found, proof = _solved(problem)
    w = found.parameters
    swapped = problem.positive.mean @ w - problem.negative.spread.value(w) / proof.objective
    assert problem.deviations(w, -swapped).min() < 0.9 / proof.objective


def test_the_printed_mix_without_the_roots_of_the_counts_is_no_bound():
    S, w = np.array([1.0, 0.0, 0.0, 0.0])[:, None], np.ones(1)
    X = np.zeros((4, 1))
    law = class_law(Moments.of(rows_of(X), np.ones(4)), Box().at(X, {"X_std": S}))
    spread = 2 * law.spread.value(w)  # the report's sigma(w), without c = 1/2
    printed = np.linalg.norm(0.5 * S[:, 0]) + 0.5 * S.sum() / 2
    assert spread > printed + 0.1


def test_uncertain_means_are_safe_for_any_admissible_rows(rng, data):
    X, y, S = data
    problem = _problem(X, y, Box(0.5), {"X_std": S}, means="uncertain")
    found, proof = _solved(problem)
    w = found.parameters
    b = problem.intercept(w)
    for draw in range(1000):
        turns = rng.choice([-1.0, 1.0], size=X.shape) if draw % 2 else rng.uniform(-1, 1, size=X.shape)
        if draw % 4 == 3:
            turns = -y[:, None] * np.sign(w) * np.where(rng.random((14, 1)) < 0.8, 1, -1)
        f = (X + 0.5 * S * turns) @ w + b
        for sign in SIGNS:
            own = sign * f[y == sign]
            assert own.mean() / own.std() >= 1 / proof.objective - 1e-9


def test_means_that_may_coincide_leave_no_lead(data):
    X, y, _ = data
    _, proof = train_minimax(_problem(X, y, Ball(5.0), means="uncertain"), tol=1e-6, max_iter=300)
    assert proof.objective == np.inf
    assert proof.lower_bound == 0


def test_singular_covariances_without_ridge_or_sets_have_no_spread(rng):
    X, y = rng.normal(size=(6, 20)), np.array([1.0, 1, 1, -1, -1, -1])
    assert train_minimax(_problem(X, y), tol=1e-6, max_iter=100)[1].objective < 1e-7
    for options in ({"ridge": 0.1}, {"chosen": Box(0.1)}):
        assert _solved(_problem(X, y, **options))[1].objective > 1e-3
