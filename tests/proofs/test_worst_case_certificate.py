"""The proof for losses at worst points: no guess may prove too much, and at the optimum little may be missing."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from holdfast._core.solution import DualGuess
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.penalty import Lasso, Limits
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import Hinge, HuberizedHinge, Logistic, Mixture, SquaredHinge
from holdfast.uncertainty import Ball, Box, Ellipsoid, IntervalBox
from holdfast.uncertainty.offset_boxes import OffsetBoxes

ROUNDING = 1e-11
LOSSES = {
    "hinge": (Hinge(), lambda x: np.maximum(x, 0.0)),
    "squared_hinge": (SquaredHinge(), lambda x: np.maximum(x, 0.0) ** 2),
    "logistic": (Logistic(), lambda x: np.logaddexp(0.0, x - 1)),
    "huberized_hinge": (HuberizedHinge(), lambda x: _huber(x - 1, 4 * np.log(2))),
}
PENALTIES = {
    "ridge": ({"alpha": 0.6}, lambda w: 0.3 * w @ w),
    "lasso": ({"penalty": Lasso(1.3)}, lambda w: 1.3 * np.abs(w).sum()),
    "limits": ({"penalty": Limits(0.5)}, lambda w: np.inf if np.abs(w).max() > 0.5 else 0.0),
    "none": ({}, lambda w: 0.0),
}
SETS = (
    "ball", "ellipsoid", "flat", "X_std", "X_factor", "box", "exact", "row_boxes", "X_std_box", "diamond", "norm_3",
    "norm_1.5", "multiples", "sum", "row_sum", "nothing", "shifted", "shifted_intervals", "shifted_exact",
)  # fmt: skip


def _huber(x, c):
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


def _sets(name, rng, X, y):
    """Return sets bound to the rows and against_labels y, and their supports h_i(-y_i w) by formulas of their own."""
    n, d = X.shape
    size, F = rng.choice([0.1, 0.5]), rng.normal(size=(d, d))
    s, factors, radii = rng.uniform(0, 0.8, size=(n, d)), rng.normal(size=(n, d, 2)), rng.uniform(0, 1, size=n)
    low, high = -rng.uniform(0, 0.3, size=(n, d)), rng.uniform(0, 0.8, size=(n, d))
    exact = np.append(np.zeros(1), s[0, 1:])
    ends = {"X_lower": X + low, "X_upper": X + high}
    kinks, thin = (
        rng.choice([-0.3, 0.3, 0.7], size=(n, d)) + rng.choice([0, 0, 1], (n, d)) * rng.normal(size=(n, d)),
        s * exact,
    )
    if name.startswith("shifted"):
        half, centre = (
            (thin if name == "shifted_exact" else s),
            (0.3 * s[::-1] if name == "shifted_intervals" else 0.0 * s),
        )
        sets = OffsetBoxes(half, kinks, centre if np.any(centre) else None)
        return sets, lambda w: np.sum(half * np.abs(w - kinks), axis=1) + centre @ w

    def pushed(w):
        v = -y[:, None] * w
        return np.maximum(low * v, high * v).sum(axis=1)

    chosen, metadata, support = {
        "ball": (Ball(size), {}, lambda w: size * np.linalg.norm(w)),
        "ellipsoid": (Ellipsoid(size, shape=F @ F.T), {}, lambda w: size * np.linalg.norm(F.T @ w)),
        "flat": (Ellipsoid(size, shape=np.outer(F[0], F[0])), {}, lambda w: size * abs(F[0] @ w)),
        "X_std": (Ellipsoid(size), {"X_std": s}, lambda w: size * np.linalg.norm(s * w, axis=1)),
        "X_factor": (
            Ellipsoid(size),
            {"X_factor": factors},
            lambda w: size * np.linalg.norm(np.einsum("ijk,j->ik", factors, w), axis=1),
        ),
        "box": (Box(size, half_widths=s[0]), {}, lambda w: size * s[0] @ np.abs(w)),
        "exact": (Box(size, half_widths=exact), {}, lambda w: size * exact @ np.abs(w)),
        "row_boxes": (IntervalBox(), ends, pushed),
        "X_std_box": (Box(size), {"X_std": s}, lambda w: size * s @ np.abs(w)),
        "diamond": (Ball(size, 1), {}, lambda w: size * np.abs(w).max()),
        "norm_3": (Ball(size, 3), {}, lambda w: size * np.sum(np.abs(w) ** 1.5) ** (1 / 1.5)),
        "norm_1.5": (Ball(size, 1.5), {}, lambda w: size * np.sum(np.abs(w) ** 3) ** (1 / 3)),
        "multiples": (Ball(size), {"X_radius": radii}, lambda w: size * radii * np.linalg.norm(w)),
        "sum": (
            Ball(0.1) + Box(half_widths=0.2 * s[0]),
            {},
            lambda w: 0.1 * np.linalg.norm(w) + 0.2 * s[0] @ np.abs(w),
        ),
        "row_sum": (Ball(0.1) + IntervalBox(), ends, lambda w: 0.1 * np.linalg.norm(w) + pushed(w)),
        "nothing": (Ball(0.0), {}, lambda w: 0.0),
    }[name]
    return chosen.at(X, metadata).against_labels(y), lambda w: np.broadcast_to(support(w), n)


def _case(draw, name, loss, penalty, kappa, fit_intercept, seed):
    """Return a random problem that no weights separate, and its objective by a formula of its own."""
    rng = np.random.default_rng(seed)
    X, y = draw(rng, 16, 3, separation=0.7, positives=int(rng.integers(5, 12)), offset=rng.normal())
    X[:2], y[:2] = X[0], (1.0, -1.0)
    weights = rng.uniform(0.3, 2, size=16)
    bound, support = _sets(name, rng, X, y)
    target = rng.uniform(0.5, 2.5, size=16) if seed % 5 < 2 else 1.0
    (chosen, psi), (options, price) = LOSSES[loss], PENALTIES[penalty]
    problem = MarginScaleProblem(
        rows_of(X),
        y,
        weights,
        chosen if kappa == 1 else Mixture(chosen, kappa),
        bound,
        fit_intercept=fit_intercept,
        target=target,
        **options,
    )

    def objective(w, b):
        u, h = target - y * (X @ w + b), support(w)
        return weights @ (psi(u + kappa * h) + (1 - kappa) * h) + price(w)

    return problem, objective, rng


def _check(draw, name, loss, penalty, kappa, fit_intercept, seed):
    problem, objective, rng = _case(draw, name, loss, penalty, kappa, fit_intercept, seed)
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    w, b = problem.split(found.parameters)
    optimum = objective(w, b)
    # a flat ellipsoid leaves directions exact that are no features, whose pull nothing makes vanish to the last digit
    assert proof.gap <= 1e-6
    assert proof.objective == pytest.approx(optimum, rel=1e-12)
    assert np.linalg.norm(w) <= proof.norm_bound * (1 + 1e-9)
    lowest = optimum * (1 + ROUNDING)
    assert proof.lower_bound <= lowest
    for _ in range(60):
        size = 10 ** rng.uniform(-3, 1)
        v, shift = w + size * rng.normal(size=3), (b + size * rng.normal()) * fit_intercept
        assert proof.lower_bound <= objective(v, shift) * (1 + ROUNDING)
    for _ in range(6):
        # slopes of other points, slopes of no point, directions and scales that have nothing to do with them
        v, shift = (
            w + rng.normal(size=3) * rng.choice([0, 1e-3, 1]),
            (b + rng.normal() * rng.choice([0, 1])) * fit_intercept,
        )
        slopes = rng.choice(
            [
                rng.uniform(-1, 2.5, size=16),
                problem.dual_guess(problem.join(v, shift)).slopes,
                expit(rng.normal() - 2 * problem.signs * (problem.rows.dot(v) + shift)),
            ]
        )
        direction = [v, rng.normal(size=3), np.zeros(3)][rng.integers(3)]
        scale = problem.sets.support(direction) * 10 ** rng.uniform(-2, 1, size=np.shape(problem.sets.support(v)))
        guess = DualGuess(slopes, direction, scale * rng.choice([0.0, 1.0, 1.0]))
        proved = certificate(problem, v, shift, guess)
        assert proved.objective == pytest.approx(objective(v, shift), rel=1e-12)
        assert proved.lower_bound <= lowest, (name, loss, penalty, kappa, fit_intercept, seed, guess)


@pytest.fixture(params=SETS)
def name(request):
    return request.param


@pytest.mark.parametrize("loss", LOSSES)
def test_no_guess_proves_more_than_the_optimum_and_a_fit_proves_all_but_a_millionth(name, loss, draw_classes):
    # two of the four penalties for each, every pair of a set and a penalty with two of the losses
    for number, penalty in list(enumerate(PENALTIES))[(list(LOSSES).index(loss) + SETS.index(name)) % 2 :: 2]:
        seed = 100 * list(LOSSES).index(loss) + 11 * SETS.index(name) + number
        _check(draw_classes, name, loss, penalty, (0.0, 0.4, 1.0)[seed % 3], bool(seed % 2), seed)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_no_guess_proves_more_than_the_optimum_in_every_combination(name, loss, draw_classes):
    for number, (penalty, kappa, fit_intercept, seed) in enumerate(
        product(PENALTIES, (0.0, 0.4, 1.0), (False, True), range(3))
    ):
        _check(draw_classes, name, loss, penalty, kappa, fit_intercept, 1000 + 7 * number + seed)


@pytest.mark.parametrize("penalty", ["ridge", "lasso", "limits"])
@pytest.mark.parametrize(
    "name", ["ball", "X_std", "box", "row_boxes", "diamond", "norm_3", "multiples", "sum", "row_sum"]
)
def test_scales_that_claim_more_than_the_sets_can_bear_prove_nothing(name, penalty, draw_classes):
    """With a direction along the pull and a scale as small as it takes, sets would seem to bear any pull at all."""
    problem, objective, _ = _case(draw_classes, name, "hinge", penalty, 1.0, False, 5)
    found, _ = train(problem, tol=1e-6, max_iter=1000)
    optimum = objective(*problem.split(found.parameters))
    slopes = np.ones(16)
    pull = problem.rows.transpose_dot(problem.weights * problem.signs)
    given = problem.sets.adjoint(pull, problem.weights)
    for factor in np.geomspace(1e-2, 1, 20) * float(given @ pull / (pull @ pull)):
        guess = DualGuess(slopes, pull, problem.sets.support(pull) * factor)
        assert certificate(problem, np.zeros(3), 0.0, guess).lower_bound <= optimum * (1 + ROUNDING)
