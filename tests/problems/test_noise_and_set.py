"""Losses averaged over noise and maximised over sets at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast._core.solution import DualGuess
from holdfast._data import rows_of
from holdfast._problems.noise_and_set import NoiseAndSetProblem
from holdfast._problems.penalty import Lasso, Limits
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import Hinge, HuberizedHinge, Logistic, SquaredHinge

STEP = 1e-6
ROUNDING = 1e-10
PLAIN = {
    "hinge": (Hinge(), lambda x: np.maximum(x, 0.0)),
    "squared_hinge": (SquaredHinge(), lambda x: np.maximum(x, 0.0) ** 2),
    "logistic": (Logistic(), lambda x: np.logaddexp(0.0, x - 1)),
    "huberized_hinge": (HuberizedHinge(), lambda x: _huber(x - 1, 4 * np.log(2))),
}
NODES, MASSES = np.polynomial.hermite_e.hermegauss(200)
MASSES = MASSES / MASSES.sum()


def _huber(x, c):
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


@pytest.fixture(params=PLAIN)
def plain(request):
    return PLAIN[request.param]


def _sets(X, y, kind, rng):
    """Return bound sets that face y, and their supports h_i(-y_i w)."""
    n, d = X.shape
    half, low, high = rng.uniform(0, 0.5, (n, d)), -rng.uniform(0, 0.2, (n, d)), rng.uniform(0, 0.5, (n, d))
    if kind == "ball":
        return Ball(0.3).at(X, {}), lambda w: np.full(n, 0.3 * np.linalg.norm(w))
    if kind == "box":
        return Box().at(X, {"X_std": half}), lambda w: half @ np.abs(w)
    if kind == "ellipsoid":
        return Ellipsoid().at(X, {"X_std": half}), lambda w: np.linalg.norm(half * w, axis=1)
    bound = IntervalBox().at(X, {"X_lower": X + low, "X_upper": X + high})
    return bound.against_labels(y), lambda w: np.maximum(-low * y[:, None] * w, -high * y[:, None] * w).sum(axis=1)


KINDS = ("ball", "box", "ellipsoid", "intervals")


def _noise(X, is_common, rng):
    """Return a noise, bound, and the deviations of its score."""
    n, d = X.shape
    if is_common:
        return GaussianNoise(0.4).at(X, {}), lambda w: np.full(n, 0.4 * np.linalg.norm(w))
    std = rng.uniform(0.1, 0.6, (n, d))
    return GaussianNoise().at(X, {"X_std": std}), lambda w: np.linalg.norm(std * w, axis=1)


def _case(draw, loss, kind, kappa=1.0, fit_intercept=True, seed=0, is_common=True, **options):
    """Return a problem and its objective, the average over the noise by quadrature of the loss at the worst point."""
    rng = np.random.default_rng(seed)
    X, y = draw(rng, 18, 3, separation=0.7, positives=8)
    weights = rng.uniform(0.4, 2, size=18)
    cloud, deviation = _noise(X, is_common, rng)
    push, support = _sets(X, y, kind, rng)
    (plain, psi), options = loss, {"alpha": 0.5} | options
    problem = NoiseAndSetProblem(
        rows_of(X), y, weights, plain.averaged(), cloud, push=push, kappa=kappa, fit_intercept=fit_intercept, **options
    )

    def objective(w, b):
        h = support(w)
        deficits = 1 - y * (X @ w + b) + kappa * h
        average = psi(deficits + NODES[:, None] * deviation(w)).T @ MASSES
        return weights @ (average + (1 - kappa) * h) + 0.5 * problem.alpha * w @ w

    return problem, objective, rng


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_value_is_the_average_of_the_worst_case(plain, kind, kappa, draw_classes):
    problem, objective, rng = _case(draw_classes, plain, kind, kappa, is_common=kind != "box")
    for theta in rng.normal(size=(5, 4)):
        # 200 nodes leave an error where the plain loss has a kink
        assert problem.value_and_gradient(theta)[0] == pytest.approx(objective(theta[:3], theta[3]), rel=2e-3)


def test_value_is_the_mean_over_sampled_noise_of_the_largest_loss_over_sampled_errors(draw_classes):
    """A sampled adversary who sees the noise never does better than the formula says, and nearly as well."""
    rng = np.random.default_rng(3)
    X, y = draw_classes(rng, 12, 2, separation=0.8)
    w, b = np.array([0.9, -0.7]), 0.2
    problem = NoiseAndSetProblem(
        rows_of(X), y, np.ones(12), Hinge().averaged(), GaussianNoise(0.5).at(X, {}), push=Ball(0.4).at(X, {})
    )
    angles = np.linspace(0, 2 * np.pi, 73)
    errors = 0.4 * np.column_stack([np.cos(angles), np.sin(angles)])
    draws = 0.5 * rng.normal(size=(20000, 12, 2))
    scores = y * ((X + draws) @ w + b)
    worst = np.maximum(1 - scores + np.max(errors @ w), 0).sum(axis=1)
    exact = problem.value_and_gradient(np.append(w, b))[0]
    assert abs(worst.mean() - exact) <= 4 * worst.std() / np.sqrt(len(worst)) + 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("is_common", [True, False])
def test_gradient_and_hessian_are_finite_differences(plain, kind, fit_intercept, is_common, draw_classes):
    problem, _, rng = _case(draw_classes, plain, kind, 0.4, fit_intercept, seed=1, is_common=is_common)
    for smoothed in (problem, problem.smoothed(0.3)):
        theta = rng.uniform(0.2, 1, size=problem.n_parameters) * rng.choice([-1, 1], size=problem.n_parameters)
        steps = STEP * np.eye(len(theta))
        ups, downs = ([smoothed.value_and_gradient(theta + sign * step) for step in steps] for sign in (1, -1))
        gradient = [(up[0] - down[0]) / (2 * STEP) for up, down in zip(ups, downs, strict=True)]
        hessian = [(up[1] - down[1]) / (2 * STEP) for up, down in zip(ups, downs, strict=True)]
        assert_allclose(smoothed.value_and_gradient(theta)[1], gradient, rtol=1e-6, atol=1e-6)
        assert_allclose(smoothed.hessian(theta), hessian, rtol=1e-5, atol=1e-5)


PENALTIES = [{"alpha": 0.5}, {"alpha": 0.0, "penalty": Lasso(1.0)}, {"alpha": 0.0, "penalty": Limits(0.4)}]


@pytest.mark.thin(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", PENALTIES, ids=["ridge", "lasso", "limits"])
def test_no_guess_proves_more_than_the_optimum_and_a_fit_proves_all_but_a_millionth(plain, kind, options, draw_classes):
    for seed, (kappa, fit_intercept) in enumerate([(1.0, True), (0.3, False)]):
        problem, _, rng = _case(draw_classes, plain, kind, kappa, fit_intercept, seed, seed == 0, **options)
        found, proof = train(problem, tol=1e-6, max_iter=1000)
        optimum = problem.value_and_gradient(found.parameters)[0]
        assert proof.gap <= 1e-6
        assert proof.objective == pytest.approx(optimum, rel=1e-12)
        w, b = problem.split(found.parameters)
        for _ in range(20):
            far = rng.normal(size=problem.n_parameters) * 10 ** rng.uniform(-3, 1)
            assert proof.lower_bound <= problem.value_and_gradient(found.parameters + far)[0] * (1 + ROUNDING)
        for _ in range(5):
            v, shift = w + rng.normal(size=3) * rng.choice([0, 0.1, 1]), (b + rng.normal()) * fit_intercept
            t = problem.sets.support(v)
            guess = DualGuess(rng.uniform(0, 2, size=18), rng.normal(size=3), t * 10 ** rng.uniform(-2, 1))
            for dual in (None, guess):
                assert certificate(problem, v, shift, dual).lower_bound <= optimum * (1 + ROUNDING)


def test_without_any_penalty_no_bound_is_claimed(draw_classes):
    problem, _, rng = _case(draw_classes, PLAIN["hinge"], "ball", alpha=0.0)
    proof = certificate(problem, rng.normal(size=3), 0.1)
    assert proof.lower_bound == -np.inf
    assert proof.gap == np.inf


def test_no_noise_leaves_the_worst_case_and_no_set_leaves_the_average(plain, two_classes):
    X, y = two_classes(30, 3, separation=0.7)
    loss = plain[0]
    both, alone = (
        RobustLinearClassifier(sets, loss=loss).fit(X, y) for sets in (GaussianNoise(0.0) + Ball(0.3), Ball(0.3))
    )
    assert both.objective_ == pytest.approx(alone.objective_, rel=3e-6)
    both, alone = (
        RobustLinearClassifier(sets, loss=loss).fit(X, y)
        for sets in (GaussianNoise(0.3) + Ball(0.0), GaussianNoise(0.3))
    )
    assert both.objective_ == pytest.approx(alone.objective_, rel=3e-6)


@pytest.mark.parametrize("separation", [0.7, 3.0])
def test_without_any_penalty_the_optimum_is_that_of_a_general_optimiser(plain, separation, draw_classes):
    X, y = draw_classes(np.random.default_rng(8), 30, 3, separation=separation, offset=0.0)
    problem = NoiseAndSetProblem(
        rows_of(X),
        y,
        np.ones(30),
        plain[0].averaged(),
        GaussianNoise(0.1).at(X, {}),
        push=Ball(0.1).at(X, {}),
    )
    found, _ = train(problem, tol=1e-6, max_iter=1000)
    best = minimize(problem.value_and_gradient, np.array([0.1, 0.1, 0.1, 0.0]), jac=True, method="BFGS", tol=1e-9)
    assert problem.value_and_gradient(found.parameters)[0] <= best.fun * (1 + 1e-5) + 1e-9
