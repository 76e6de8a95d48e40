"""The certificate: a lower bound from any point, tight at the optimum, equal to independent duals."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import ndtri

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core import chunks
from holdfast._core.loss import SHORT_CUT
from holdfast._core.solution import DualGuess
from holdfast._proofs.certificate import certificate
from holdfast._proofs.dual_bounds import BinaryRay, SharedBudgets, bound_of_guess
from holdfast.losses import ExpectedLogistic, GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge

ROUNDING = 1e-10
SETTINGS = [(alpha, intercept) for alpha in (0.0, 0.7) for intercept in (False, True)]
settings = pytest.mark.parametrize(("alpha", "fit_intercept"), SETTINGS)


@pytest.fixture(params=["number", "std", "cov", "X_std", "X_cov"])
def noise(request, rng):
    """Noise of every form for 24 rows of 3 features, as (noise, metadata)."""
    factor = rng.normal(size=(24, 3, 3)) / 2
    cov = factor @ factor.transpose(0, 2, 1)
    return {
        "number": (0.6, {}),
        "std": (GaussianNoise(std=[0.3, 0.6, 0.9]), {}),
        "cov": (GaussianNoise(cov=cov[0]), {}),
        "X_std": (GaussianNoise(), {"X_std": rng.uniform(0.2, 1.0, size=(24, 3))}),
        "X_cov": (GaussianNoise(std=0.8), {"X_cov": cov}),
    }[request.param]


def _fitted(problem, X, y, noise, metadata, **options):
    """Return the fitted model of the same problem."""
    model = GaussianRobustClassifier(
        noise, loss=problem.loss, alpha=problem.alpha, fit_intercept=problem.fit_intercept, tol=1e-9, **options
    )
    return model.fit(X, y, sample_weight=problem.weights, **metadata)


def _value(problem, w, b):
    return problem.value_and_gradient(problem.join(w, b))[0]


@pytest.mark.thin(3)
@settings
def test_optimum_lies_between_bound_and_objective_from_any_point(
    dual_loss, noise, alpha, fit_intercept, make_problem, two_classes, rng
):
    kind, metadata = noise
    X, y = two_classes(24, 3, positives=11)
    weights = rng.uniform(0.5, 2, 24)
    problem = make_problem(
        X, y, dual_loss, kind, metadata=metadata, weights=weights, alpha=alpha, fit_intercept=fit_intercept
    )
    model = _fitted(problem, X, y, kind, metadata)
    assert model.gap_ <= 1e-9
    for _ in range(8):
        w, b = rng.normal(size=3) * 10 ** rng.uniform(-2, 1), rng.normal() * fit_intercept
        proof = certificate(problem, w, b)
        assert proof.objective == pytest.approx(_value(problem, w, b), rel=1e-12)
        assert proof.lower_bound <= model.objective_ * (1 + ROUNDING)
        assert proof.objective >= model.lower_bound_ * (1 - ROUNDING)
        assert proof.gap >= 0
        assert proof.gap == pytest.approx((proof.objective - proof.lower_bound) / proof.objective, abs=1e-12)


@pytest.mark.thin(3)
@settings
def test_any_dual_guess_gives_a_valid_bound(dual_loss, noise, alpha, fit_intercept, make_problem, two_classes, rng):
    kind, metadata = noise
    X, y = two_classes(24, 3, positives=11)
    problem = make_problem(X, y, dual_loss, kind, metadata=metadata, alpha=alpha, fit_intercept=fit_intercept)
    best = _fitted(problem, X, y, kind, metadata).objective_
    for _ in range(20):
        guess = rng.uniform(size=24) ** rng.choice([0.2, 1, 5])
        direction = rng.normal(size=3)
        guess = DualGuess(guess, direction, problem.sets.support(direction))
        proof = certificate(problem, rng.normal(size=3), 0.0, guess)
        assert proof.lower_bound <= best * (1 + ROUNDING)


@settings
def test_bound_is_second_order_in_the_error_of_the_weights(
    dual_loss, alpha, fit_intercept, make_problem, two_classes, rng
):
    """Halving the error quarters the gap; the scale and the intercept may be off by any amount."""
    X, y = two_classes(50, 4, separation=0.8)
    problem = make_problem(X, y, dual_loss, 0.7, alpha=alpha, fit_intercept=fit_intercept)
    model = _fitted(problem, X, y, 0.7, {})
    w, b = model.coef_[0], model.intercept_[0]
    assert certificate(problem, w, b).gap <= 1e-9
    factors = []
    for _ in range(7):
        error = rng.normal(size=4) * np.linalg.norm(w)
        # a 0.5 percent error, then half of it
        gaps = [model.objective_ - certificate(problem, w + e * error, b).lower_bound for e in (5e-3, 2.5e-3)]
        factors.append(gaps[0] / gaps[1])
    assert 3.4 < np.median(factors) < 4.6


def test_scale_and_intercept_do_not_matter_to_the_bound(dual_loss, make_problem, two_classes):
    X, y = two_classes(50, 4, separation=0.8)
    problem = make_problem(X, y, dual_loss, 0.7)
    model = _fitted(problem, X, y, 0.7, {})
    for r in (0.5, 3.0):
        for shift in (-0.5, 0.5):
            proof = certificate(problem, r * model.coef_[0], model.intercept_[0] + shift)
            assert proof.lower_bound >= model.objective_ * (1 - 1e-7)


def test_logistic_loss_has_a_bound_exactly_with_a_ridge(noise, make_problem, two_classes, rng):
    kind, metadata = noise
    X, y = two_classes(24, 3, positives=9)
    for fit_intercept in (False, True):
        bare = make_problem(X, y, ExpectedLogistic(), kind, metadata=metadata, fit_intercept=fit_intercept)
        proof = certificate(bare, rng.normal(size=3), 0.0)
        assert proof.lower_bound == -np.inf
        assert proof.gap == np.inf
        ridged = make_problem(X, y, ExpectedLogistic(), kind, metadata=metadata, fit_intercept=fit_intercept, alpha=0.3)
        model = _fitted(ridged, X, y, kind, metadata)
        assert model.gap_ <= 1e-9
        for _ in range(20):
            proof = certificate(ridged, rng.normal(size=3) * 10 ** rng.uniform(-2, 1), rng.normal() * fit_intercept)
            assert 0 <= proof.lower_bound <= model.objective_ * (1 + ROUNDING)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_logistic_bound_is_tight_under_a_heavy_ridge(fit_intercept, make_problem, two_classes, rng):
    """Where the ridge is nearly all of the curvature, strong convexity says nearly all there is to say."""
    X, y = two_classes(24, 3)
    problem = make_problem(X, y, ExpectedLogistic(), 0.5, alpha=1e4, fit_intercept=fit_intercept)
    model = _fitted(problem, X, y, 0.5, {})
    for _ in range(10):
        w = model.coef_[0] + 0.01 * rng.normal(size=3)
        proof = certificate(problem, w, model.intercept_[0])
        excess = proof.objective - model.objective_
        assert excess > 0.01
        assert model.objective_ - 0.05 * excess <= proof.lower_bound <= model.objective_ * (1 + ROUNDING)


def test_logistic_bound_is_tight_whatever_the_intercept(make_problem, two_classes):
    X, y = two_classes(24, 3)
    problem = make_problem(X, y, ExpectedLogistic(), 0.5, alpha=2.0)
    model = _fitted(problem, X, y, 0.5, {})
    for away in (1e-8, 1e-4, 1e-2, 1.0):
        proof = certificate(problem, model.coef_[0], model.intercept_[0] + away)
        assert model.objective_ * (1 - 1e-8) <= proof.lower_bound <= model.objective_ * (1 + ROUNDING)


def test_strong_duality_with_an_independent_dual(make_problem, two_classes):
    """The dual problem, written out and given to other solvers, has the value of the fit."""
    for fit_intercept in (False, True):
        for sigma in (0.3, 1.0, 2.0):
            X, y = two_classes(12, 3)
            for loss in (GaussianHinge(), TwoPointHinge(), QuadraticHinge(), Log2Hinge()):
                problem = make_problem(X, y, loss, sigma, fit_intercept=fit_intercept)
                model = _fitted(problem, X, y, sigma, {})
                value, a = _dual_optimum(loss, X, y, sigma, fit_intercept)
                assert value == pytest.approx(model.objective_, rel=1e-6)
                proof = certificate(
                    problem, w := model.coef_[0], model.intercept_[0], DualGuess(a, w, problem.sets.support(w))
                )
                assert proof.lower_bound == pytest.approx(model.objective_, rel=1e-4)


def _dual_optimum(loss, X, y, sigma, fit_intercept):
    """Return the optimum of max sum a, |sum a y x| <= sigma sum f*(a), 0 <= a <= 1 [, sum a y = 0], and its a."""
    signed = y[:, None] * X
    if isinstance(loss, GaussianHinge):
        return _gaussian_dual_optimum(signed, y, sigma, fit_intercept)
    a, root = cp.Variable(len(y)), cp.Variable(len(y))
    constraints = [a >= 0, a <= 1]
    if isinstance(loss, TwoPointHinge):
        budget = cp.sum(root)
        constraints.append(cp.SOC(np.full(len(y), 0.5), cp.vstack([root, a - 0.5]), axis=0))
    elif isinstance(loss, QuadraticHinge):
        budget = cp.sum(1 - cp.square(2 * a - 1))
    else:
        budget = cp.sum(cp.entr(a) + cp.entr(1 - a)) / np.log(2)
    constraints.append(cp.norm(signed.T @ a) <= sigma * budget)
    if fit_intercept:
        constraints.append(y @ a == 0)
    problem = cp.Problem(cp.Maximize(cp.sum(a)), constraints)
    return problem.solve(solver=cp.CLARABEL), a.value


def _gaussian_dual_optimum(signed, y, sigma, fit_intercept):
    def slack(a):
        return sigma * np.sum(np.exp(-0.5 * ndtri(a) ** 2)) / np.sqrt(2 * np.pi) - np.linalg.norm(signed.T @ a)

    def slack_slope(a):
        pull = signed.T @ a
        return -sigma * ndtri(a) - signed @ pull / np.linalg.norm(pull)

    constraints = [{"type": "ineq", "fun": slack, "jac": slack_slope}]
    if fit_intercept:
        constraints.append({"type": "eq", "fun": lambda a: y @ a, "jac": lambda a: y})
    found = minimize(
        lambda a: -a.sum(),
        np.full(len(y), 0.4),
        jac=lambda a: -np.ones(len(y)),
        bounds=[(1e-12, 1 - 1e-12)] * len(y),
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    return -found.fun, found.x


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_norm_and_intercept_are_recovered_from_the_dual_solution(fit_intercept, two_classes):
    X, y = two_classes(14, 3, separation=0.8)
    sigma = 0.6
    a = _gaussian_dual_optimum(y[:, None] * X, y, sigma, fit_intercept)[1]
    model = GaussianRobustClassifier(sigma, loss="hinge", fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
    length = np.linalg.norm(model.coef_)
    pull = X.T @ (a * y)
    unit = pull / np.linalg.norm(pull)
    assert_allclose(model.coef_[0] / length, unit, atol=1e-4)
    assert a.sum() == pytest.approx(model.objective_, rel=1e-6)
    z = ndtri(a)
    q, well = sigma * z + y * (X @ unit), np.abs(z) < 3
    assert a.sum() / (sigma * GaussianHinge().f(z).sum()) == pytest.approx(length, rel=1e-5)
    if fit_intercept:
        above, below = np.median(q[well & (y > 0)]), np.median(q[well & (y < 0)])
        assert 2 / (above + below) == pytest.approx(length, rel=1e-4)
        assert (below - above) / (above + below) == pytest.approx(model.intercept_[0], abs=1e-4)
    else:
        assert_allclose(1 / q[well], length, rtol=1e-4)


def test_weights_are_the_weighted_pull_over_the_stiffness(perspective, two_classes, rng):
    """At the optimum w = sum c a y x / kappa, kappa = sigma sum c psi(z) / |w|, and sum c a = P*."""
    X, y = two_classes(30, 3)
    weights, sigma = rng.uniform(0.5, 2, 30), 0.7
    model = GaussianRobustClassifier(sigma, loss=perspective, tol=1e-9).fit(X, y, sample_weight=weights)
    w = model.coef_[0]
    length = np.linalg.norm(w)
    u = 1 - y * (X @ w + model.intercept_[0])
    _, a, psi = perspective.evaluate(u, np.full(30, sigma * length))
    assert_allclose(X.T @ (weights * a * y) * length / (sigma * weights @ psi), w, rtol=1e-5)
    assert weights @ a == pytest.approx(model.objective_, rel=1e-7)
    assert weights @ (a * y) == pytest.approx(0, abs=1e-6)


def test_optimum_rises_with_the_noise_at_the_rate_of_the_scale_slopes(perspective, two_classes):
    X, y = two_classes(40, 3, separation=0.6)
    sigma, step = 0.5, 1e-3
    here, above, below = (
        GaussianRobustClassifier(s, loss=perspective, tol=1e-9).fit(X, y) for s in (sigma, sigma + step, sigma - step)
    )
    w = here.coef_[0]
    length = np.linalg.norm(w)
    u = 1 - y * (X @ w + here.intercept_[0])
    rate = length * perspective.evaluate(u, np.full(40, sigma * length))[2].sum()
    assert (above.objective_ - below.objective_) / (2 * step) == pytest.approx(rate, rel=1e-4)


def test_ridge_bound_holds_in_many_random_dual_points(dual_loss, make_problem, two_classes, rng):
    """D(a) = sum c a - [|sum c a y x| - sigma sum c f*(a)]_+^2 / (2 alpha), written out."""
    X, y = two_classes(20, 3)
    weights, sigma, alpha = rng.uniform(0.5, 2, 20), 0.5, 0.6
    problem = make_problem(X, y, dual_loss, sigma, weights=weights, alpha=alpha, fit_intercept=False)
    model = _fitted(problem, X, y, sigma, {})
    best = 0.0
    for _ in range(1000):
        a = rng.uniform(size=20) ** rng.choice([0.2, 1, 5])
        missed = np.linalg.norm(X.T @ (weights * a * y)) - sigma * weights @ dual_loss.dual_scale(a)
        bound = weights @ dual_loss.dual_value(a) - max(missed, 0) ** 2 / (2 * alpha)
        assert bound <= model.objective_ * (1 + ROUNDING)
        best = max(best, bound)
    assert best > 0
    u = 1 - y * (X @ model.coef_[0])
    a = dual_loss.evaluate(u, np.full(20, sigma * np.linalg.norm(model.coef_)))[1]
    missed = np.linalg.norm(X.T @ (weights * a * y)) - sigma * weights @ dual_loss.dual_scale(a)
    bound = weights @ dual_loss.dual_value(a) - max(missed, 0) ** 2 / (2 * alpha)
    assert bound == pytest.approx(model.objective_, rel=1e-8)


def test_gap_of_a_tiny_objective_is_measured_against_the_total_weight(make_problem):
    X, y = np.array([[50.0], [60.0], [-55.0], [-70.0]]), np.array([1.0, 1, -1, -1])
    problem = make_problem(X, y, GaussianHinge(), 0.1, fit_intercept=False)
    proof = certificate(problem, np.array([1.0]), 0.0)
    assert proof.objective < 1e-12
    assert proof.gap <= proof.objective / (1e-9 * 4) * (1 + 1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_budgets_by_sums_are_never_more_than_they_are(dual_loss, fit_intercept, make_problem, two_classes, rng):
    """Of several stretches of rows, for shares short enough for the sums to do and for others."""
    X, y = two_classes(60, 3, positives=21, separation=0.8)
    c = rng.uniform(0.2, 3, 60)
    problem = make_problem(X, y, dual_loss, 0.15, weights=c, fit_intercept=fit_intercept)
    w = rng.normal(size=3)
    ray = BinaryRay(problem, X @ w, problem.sets.support(w), w, 0.1)
    budgets = SharedBudgets(ray, ray.start)
    a = ray.slopes_at(ray.start)
    assert_allclose(a, budgets.slopes)
    balance = np.where(y > 0, budgets.factors[1], budgets.factors[0])
    if fit_intercept:
        assert_allclose((c * a * balance)[y > 0].sum(), (c * a * balance)[y < 0].sum())
    for k in (1.0, 1 - 0.01 * SHORT_CUT, 1 - 0.9 * SHORT_CUT, 0.9, 0.2):
        exact = float(c @ dual_loss.dual_scale(k * balance * a))
        [said] = budgets.dual_scale(np.array([k]))
        assert exact * (1 - 3e-4) <= said <= exact * (1 + 1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_proof_by_sums_over_stretches_is_that_of_all_rows_at_once(
    alpha, fit_intercept, dual_loss, make_problem, two_classes, rng, monkeypatch
):
    X, y = two_classes(60, 3, positives=27, separation=0.8)
    c = rng.uniform(0.2, 3, 60)
    problem = make_problem(X, y, dual_loss, 0.15, alpha=alpha, weights=c, fit_intercept=fit_intercept)
    model = _fitted(problem, X, y, GaussianNoise(0.15), {})
    w, b = 1.001 * model.coef_[0] + 1e-4 * rng.normal(size=3), model.intercept_[0] + 1e-3 * fit_intercept
    whole = certificate(problem, w, b)
    monkeypatch.setattr(chunks, "STRETCH", 7)
    proof = certificate(problem, w, b)
    assert_allclose([proof.objective, proof.lower_bound], [whole.objective, whole.lower_bound], rtol=1e-10)
    assert_allclose(proof.objective, _value(problem, w, b), rtol=1e-12)
    assert_allclose(proof.dual, whole.dual, rtol=1e-6, atol=1e-9)
    assert proof.gap < 1e-5
    # the weights that are given back prove the bound by themselves
    again, _ = bound_of_guess(problem, DualGuess(proof.dual / c, w, problem.sets.support(w)))
    assert_allclose(again, proof.lower_bound, rtol=1e-7)
