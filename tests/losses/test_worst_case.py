"""Losses at worst points, and their averages over Gaussian noise: what the protocol promises, one by one."""

from itertools import pairwise

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.integrate import quad

from holdfast.losses import (
    ExpectedHuberizedHinge,
    ExpectedSquaredHinge,
    Hinge,
    HuberizedHinge,
    Logistic,
    Mixture,
    SquaredHinge,
)
from holdfast.losses.hyperbolic_hinge import HyperbolicHinge
from holdfast.losses.worst_case import WorstCaseLoss

STEP = 1e-5
PLAIN = {
    "hinge": (Hinge(), lambda x: np.maximum(x, 0.0)),
    "squared_hinge": (SquaredHinge(), lambda x: np.maximum(x, 0.0) ** 2),
    "logistic": (Logistic(), lambda x: np.logaddexp(0.0, x - 1)),
    "huberized_hinge": (HuberizedHinge(), lambda x: _huber(x - 1, 4 * np.log(2))),
    "another_huber": (HuberizedHinge(0.3, 0.2), lambda x: _huber(x - 0.2, 0.3)),
    "hyperbolic": (HyperbolicHinge(0.7), lambda x: 0.5 * (x + np.sqrt(x * x + 0.49))),
}
WORST_CASES = [loss for cls in WorstCaseLoss.__subclasses__() for loss in cls.examples()]
AVERAGED = [name for name in PLAIN if name != "hyperbolic"]


def _huber(x, c):
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


@pytest.fixture(params=PLAIN)
def plain(request):
    """Every plain loss with its formula."""
    return PLAIN[request.param]


@pytest.fixture(params=AVERAGED)
def averaged(request):
    """Every plain loss that has an average, as (average, formula of the plain one, where that has kinks)."""
    loss, formula = PLAIN[request.param]
    return loss.averaged(), formula, [-0.1, 0.0, 0.5, 1 - 4 * np.log(2), 1 + 4 * np.log(2)]


@pytest.fixture(params=[*WORST_CASES, HuberizedHinge(0.3, 0.2)], ids=repr)
def mixed(request):
    """Every loss that is no mixture itself, for mixtures of any kappa."""
    return request.param


@pytest.fixture
def points(rng):
    """Deficits and scales at which every worst case, and each with 0.4 of its scale inside, has two derivatives."""
    u, t = rng.uniform(-6, 6, size=3000), rng.uniform(0.0, 3.0, size=3000)
    kinks = np.array([0.0, 1 - 4 * np.log(2), 1 + 4 * np.log(2), -0.1, 0.5])
    away = [np.min(np.abs((u + share * t)[:, None] - kinks), axis=1) > 1e-3 for share in (0.0, 0.4, 1.0)]
    return u[np.all(away, axis=0)], t[np.all(away, axis=0)] + 2 * STEP


def test_worst_case_is_the_plain_loss_of_deficit_and_support_together(plain, rng):
    loss, formula = plain
    u, t = 4 * rng.normal(size=500), rng.uniform(0, 3, size=500)
    assert_allclose(loss.value(u, t), formula(u + t), rtol=1e-12, atol=1e-15)
    assert_allclose(Mixture(loss, 0.3).value(u, t), formula(u + 0.3 * t) + 0.7 * t, rtol=1e-12, atol=1e-15)


def test_loss_reaches_zero_where_it_says_so(mixed):
    # far out, yet where no exponential underflows
    assert (mixed.psi(np.array([-600.0]))[0][0] == 0) == mixed.reaches_zero


def test_worst_case_is_that_of_the_deficit_enlarged_by_the_support(mixed, rng):
    u, t = 4 * rng.normal(size=500), rng.uniform(0, 3, size=500)
    assert_allclose(mixed.value(u, t), mixed.value(u + t, np.zeros(500)), rtol=1e-12, atol=1e-15)


def test_no_point_of_an_interval_costs_more_than_the_worst_case_and_its_end_costs_as_much(plain, rng):
    loss, formula = plain
    u, t = 3 * rng.normal(size=100), rng.uniform(0, 3, size=100)
    pushes = np.linspace(-1, 1, 41)[:, None] * t
    costs = formula(u + pushes)
    assert np.all(costs <= loss.value(u, t) * (1 + 1e-12) + 1e-15)
    assert_allclose(costs.max(axis=0), loss.value(u, t), rtol=1e-12, atol=1e-15)


def test_slopes_are_derivatives_of_the_value(worst_case, points):
    u, t = points
    _, slope_u, slope_t = worst_case.evaluate(u, t)
    assert_allclose(
        slope_u, (worst_case.value(u + STEP, t) - worst_case.value(u - STEP, t)) / (2 * STEP), rtol=1e-8, atol=1e-9
    )
    assert_allclose(
        slope_t, (worst_case.value(u, t + STEP) - worst_case.value(u, t - STEP)) / (2 * STEP), rtol=1e-8, atol=1e-9
    )


def test_curvature_is_the_derivative_of_the_slopes(worst_case, points):
    u, t = points
    uu, ut, tt = worst_case.curvature(u, t)
    _, up_u, up_t = worst_case.evaluate(u + STEP, t)
    _, down_u, down_t = worst_case.evaluate(u - STEP, t)
    wide, slim = worst_case.evaluate(u, t + STEP)[2], worst_case.evaluate(u, t - STEP)[2]
    assert_allclose(uu, (up_u - down_u) / (2 * STEP), rtol=1e-7, atol=1e-8)
    assert_allclose(ut, (up_t - down_t) / (2 * STEP), rtol=1e-7, atol=1e-8)
    assert_allclose(tt, (wide - slim) / (2 * STEP), rtol=1e-7, atol=1e-8)


def test_derivatives_are_what_evaluate_and_curvature_say(worst_case, points):
    separate = (*worst_case.evaluate(*points), *worst_case.curvature(*points))
    for one, other in zip(worst_case.derivatives(*points), separate, strict=True):
        assert_allclose(one, other, rtol=1e-14)


def test_worst_case_is_jointly_convex_and_nondecreasing(worst_case, rng):
    u = rng.normal(size=(2, 5000)) * 10 ** rng.uniform(-2, 2, size=(2, 5000))
    t = 10 ** rng.uniform(-3, 2, size=(2, 5000)) * (rng.uniform(size=(2, 5000)) > 0.1)
    chord = 0.5 * (worst_case.value(u[0], t[0]) + worst_case.value(u[1], t[1]))
    assert np.all(worst_case.value(u.mean(axis=0), t.mean(axis=0)) <= chord * (1 + 1e-12) + 1e-13)
    above = worst_case.value(np.maximum(*u), np.maximum(*t))
    assert np.all(worst_case.value(np.minimum(*u), np.minimum(*t)) <= above * (1 + 1e-12))
    _, slope_u, slope_t = worst_case.evaluate(u[0], t[0])
    assert np.all((slope_u >= 0) & (slope_u <= worst_case.dual_limit))
    assert np.all((slope_t >= 0) & (slope_t <= worst_case.largest_scale_slope() * (1 + 1e-15)))


def test_worst_case_is_finite_and_silent_at_extreme_arguments(worst_case):
    deficits = np.array([-1e10, -1e8, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1e8, 1e10])
    u, t = (grid.ravel() for grid in np.meshgrid(deficits, [0.0, 1e-300, 1e-8, 1.0, 1e8]))
    value, *rest = (*worst_case.evaluate(u, t), *worst_case.curvature(u, t))
    for part in (value, *rest):
        assert part.shape == u.shape
        assert np.all(np.isfinite(part))
    assert np.all(value >= np.maximum(u - 1, 0) * (1 - 1e-12))


def test_worst_case_is_zero_somewhere_exactly_where_it_says_so(plain):
    loss, _ = plain
    assert (loss.value(np.array([-50.0]), np.zeros(1))[0] == 0) == loss.reaches_zero


def test_homogeneity_and_smoothness_are_what_the_loss_says(worst_case, rng):
    u, t = rng.normal(size=200), rng.uniform(0.1, 3, size=200)
    difference = worst_case.value(7 * u, 7 * t) - 7 * worst_case.value(u, t)
    assert (np.abs(difference).max() < 1e-12) == worst_case.is_homogeneous
    grids = [np.linspace(-6, 6, n + 1) for n in (12_000, 120_000)]
    coarse, fine = (np.max(np.diff(worst_case.evaluate(x, np.zeros_like(x))[1])) for x in grids)
    assert (fine < 0.2 * coarse) == worst_case.is_smooth  # a jump does not shrink with the steps


def _dual_grid(loss, largest):
    """Return slopes up to that at the largest u + t asked for."""
    limit = min(loss.dual_limit, 1.1 * float(loss.evaluate(np.array(largest), np.zeros(()))[1]))
    return limit * np.concatenate([np.sin(np.linspace(0, np.pi / 2, 40001)) ** 2, 10.0 ** np.arange(-300, -8, 4)])


def test_worst_case_is_the_maximum_of_its_dual_form(worst_case):
    a = _dual_grid(worst_case, 9.0)
    for u in (-3.0, -0.4, 0.0, 0.7, 1.0, 5.0):
        for t in (0.0, 0.05, 0.8, 4.0):
            lines = a * (u - 1) + worst_case.dual_value(a) + worst_case.dual_scale(a) * t
            value = float(worst_case.value(np.array(u), np.array(t)))
            assert np.all(lines <= value + 1e-12)
            assert lines.max() >= value - 2e-6


def test_slopes_attain_the_dual_form(worst_case, rng):
    u, t = 3 * rng.normal(size=500), rng.uniform(0, 3, size=500)
    value, a, slope_t = worst_case.evaluate(u, t)
    lines = a * (u - 1) + worst_case.dual_value(a) + worst_case.dual_scale(a) * t
    assert_allclose(lines, value, rtol=1e-12, atol=1e-12)
    assert_allclose(worst_case.dual_scale(a), slope_t, rtol=0, atol=1e-15)


def test_dual_slope_and_bend_are_derivatives_of_the_dual_value(worst_case, rng):
    a = rng.uniform(0.02, 0.98, size=300) * min(worst_case.dual_limit, 5.0)
    up, down = a + STEP * 0.1, a - STEP * 0.1
    slope = (worst_case.dual_value(up) - worst_case.dual_value(down)) / (up - down)
    bend = (worst_case.dual_slope(up) - worst_case.dual_slope(down)) / (up - down)
    assert_allclose(worst_case.dual_slope(a), slope, rtol=1e-7, atol=1e-8)
    assert_allclose(worst_case.dual_bend(a), bend, rtol=1e-6, atol=1e-8)
    assert np.all(worst_case.dual_bend(a) <= 0)


def test_dual_scale_is_affine(worst_case):
    a = np.linspace(0, min(worst_case.dual_limit, 7.0), 11)
    ends = worst_case.dual_scale(a[[0, -1]])
    assert_allclose(worst_case.dual_scale(a), np.linspace(*ends, 11), rtol=0, atol=1e-14)


@pytest.mark.parametrize("delta", [1.0, 1e-3, 1e-9])
def test_smoothed_loss_lies_above_by_half_of_the_smoothing_at_most(worst_case, delta, rng):
    smoothed = worst_case.smoothed(delta)
    assert smoothed.is_smooth
    u = np.concatenate([3 * rng.normal(size=300), delta * rng.normal(size=300), [0.0]])
    t = np.concatenate([rng.uniform(0, 2, size=300), np.zeros(301)])
    excess = smoothed.value(u, t) - worst_case.value(u, t)
    assert np.all(excess >= -1e-15 * (1 + np.abs(u)))
    assert np.all(excess <= 0.5 * delta * (1 + 1e-9) + 1e-15)
    assert worst_case.is_smooth or excess.max() >= 0.499 * delta


@pytest.mark.parametrize("delta", [1.0, 1e-3])
def test_slopes_of_an_smoothed_loss_are_slopes_of_the_loss_nearby(worst_case, delta, rng):
    """The line of slope a under the loss itself lies no more than the smoothing below the smoothed one."""
    smoothed = worst_case.smoothed(delta)
    u, t = 2 * rng.normal(size=400), rng.uniform(0, 2, size=400)
    value, a, _ = smoothed.evaluate(u, t)
    assert np.all((a >= 0) & (a <= worst_case.dual_limit))
    line = a * (u - 1) + worst_case.dual_value(a) + worst_case.dual_scale(a) * t
    assert np.all(line <= worst_case.value(u, t) * (1 + 1e-12) + 1e-12)
    assert np.all(line >= value - delta - 1e-12)


def test_minimum_over_the_epigraph_is_the_worst_case(worst_case, rng):
    epigraph = worst_case.epigraph()
    if epigraph is None:  # no cone is known, and no conic solver will be offered the problem
        return
    u, t = 3 * rng.normal(size=60), rng.uniform(0.0, 3, size=60)
    assert_allclose(_conic_minimum(epigraph, u, t), worst_case.value(u, t), rtol=1e-6, atol=1e-6)


def _conic_minimum(epigraph, u, t):
    """Return, for every (u, t), the least cost over the extra variables, all pairs solved in one program."""
    n, k = len(u), len(epigraph.cost) - 2
    kinds = {
        "nonnegative": clarabel.NonnegativeConeT,
        "second_order": clarabel.SecondOrderConeT,
        "exponential": lambda size: clarabel.ExponentialConeT(),
    }
    given, A, b, cones = np.column_stack([u, t]), [], [], []
    constants = epigraph.constants or [np.zeros(len(G)) for _, G in epigraph.cones]
    for (kind, G), constant in zip(epigraph.cones, constants, strict=True):
        G = np.array(G, dtype=float)
        A.append(sparse.kron(sparse.eye(n), -G[:, 2:]))
        b.append((given @ G[:, :2].T + np.asarray(constant, dtype=float)).ravel())
        cones += [kinds[kind](len(G)) for _ in range(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11  # the sum of 60 squares is large
    cost = np.array(epigraph.cost, dtype=float)
    program = clarabel.DefaultSolver(
        sparse.csc_matrix((n * k, n * k)),
        np.tile(cost[2:], n),
        sparse.csc_matrix(sparse.vstack(A)),
        np.concatenate(b),
        cones,
        settings,
    )
    return given @ cost[:2] + np.array(program.solve().x).reshape(n, k) @ cost[2:]


def test_average_is_the_integral_over_the_noise(averaged):
    loss, formula, kinks = averaged
    for u in (-2.5, -0.3, 0.0, 0.9, 4.0):
        for t in (1e-3, 0.2, 1.0, 5.0):
            # the noise is cut at 12 deviations, and the integral at the kinks of the plain loss
            ends = np.unique(np.clip([-12.0, *((np.array(kinks) - u) / t), 0.0, 12.0], -12, 12))
            parts = [
                quad(lambda z, u=u, t=t: formula(u + t * z) * np.exp(-z * z / 2), low, high, epsabs=1e-13, limit=200)[0]
                for low, high in pairwise(ends)
            ]
            exact = sum(parts) / np.sqrt(2 * np.pi)
            found = float(loss.value(np.array([u]), np.array([t]))[0])
            assert found == pytest.approx(exact, rel=1e-9, abs=2e-11)


def test_average_without_noise_is_the_plain_loss(averaged):
    loss, formula, _ = averaged
    u = np.linspace(-8, 8, 161)
    assert_allclose(loss.value(u, np.zeros_like(u)), formula(u), rtol=1e-12, atol=1e-12)
    for t in (1e-300, 1e-10):
        assert_allclose(loss.value(u, np.full_like(u, t)), formula(u), rtol=1e-9, atol=1e-9)


def test_average_lies_above_the_plain_loss_and_rises_with_the_noise(averaged):
    loss, formula, _ = averaged
    u, t = np.meshgrid(np.linspace(-6, 6, 121), np.concatenate([[0.0], np.geomspace(1e-3, 20, 40)]))
    value = loss.value(u.ravel(), t.ravel()).reshape(u.shape)
    assert np.all(value >= formula(u) * (1 - 1e-12) - 1e-10)
    assert np.all(np.diff(value, axis=0) >= -1e-10)


SQUARED = [ExpectedSquaredHinge(), ExpectedHuberizedHinge(), ExpectedHuberizedHinge(0.3, 0.2)]


@pytest.mark.parametrize("loss", SQUARED, ids=repr)
def test_derivatives_of_averaged_squares_are_finite_differences(loss, rng):
    u, t = rng.uniform(-5, 5, size=1000), rng.uniform(0.3, 3, size=1000)
    _, slope_u, slope_t, uu, ut, tt = loss.derivatives(u, t)
    (up, up_u, up_t), (down, down_u, down_t) = loss.evaluate(u + STEP, t), loss.evaluate(u - STEP, t)
    (wide, _, wide_t), (slim, _, slim_t) = loss.evaluate(u, t + STEP), loss.evaluate(u, t - STEP)
    for exact, above, below in (
        (slope_u, up, down),
        (slope_t, wide, slim),
        (uu, up_u, down_u),
        (ut, up_t, down_t),
        (tt, wide_t, slim_t),
    ):
        assert_allclose(exact, (above - below) / (2 * STEP), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("loss", SQUARED, ids=repr)
def test_averaged_squares_are_convex_and_silent_at_extreme_arguments(loss, rng):
    u = rng.normal(size=(2, 5000)) * 10 ** rng.uniform(-2, 2, size=(2, 5000))
    t = 10 ** rng.uniform(-3, 2, size=(2, 5000)) * (rng.uniform(size=(2, 5000)) > 0.1)
    chord = 0.5 * (loss.value(u[0], t[0]) + loss.value(u[1], t[1]))
    assert np.all(loss.value(u.mean(axis=0), t.mean(axis=0)) <= chord * (1 + 1e-9) + 1e-11)
    u, t = (g.ravel() for g in np.meshgrid([-1e8, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1e8], [0.0, 1e-300, 1e-8, 1.0, 1e8]))
    for part in loss.derivatives(u, t):
        assert np.all(np.isfinite(part))
    assert np.all(loss.value(u, t) >= np.maximum(u - 1, 0) * (1 - 1e-12))


def test_huberized_hinge_lies_below_the_logistic_loss_and_touches_it_at_the_boundary():
    """A8b of the corrected report: phi_c <= softplus, equality at 0, nowhere more than 0.0756 apart."""
    x = np.linspace(-40, 40, 400001)
    zero = np.zeros_like(x)
    below = Logistic().value(x + 1, zero) - HuberizedHinge().value(x + 1, zero)
    assert below.min() >= -1e-15
    assert below[np.abs(x) < 1e-9] == pytest.approx(0, abs=1e-15)
    assert 0.0755 < below.max() <= 0.0756
    # with any other scale it does not touch there
    assert HuberizedHinge(1.0).value(np.ones(1), np.zeros(1))[0] == pytest.approx(0.25)


def test_mixture_falls_in_kappa_so_every_share_bounds_the_worst_case(mixed, rng):
    """A3, for losses of slope at most 1; kappa = 1 is the loss itself."""
    if mixed.dual_limit > 1:
        return
    u, t = 3 * rng.normal(size=1000), rng.uniform(0, 3, size=1000)
    values = np.array([Mixture(mixed, kappa).value(u, t) for kappa in np.linspace(0, 1, 21)])
    assert np.all(np.diff(values, axis=0) <= 1e-12)
    assert_allclose(values[-1], mixed.value(u, t), rtol=1e-14)
    assert_allclose(values[0], mixed.value(u, np.zeros_like(t)) + t, rtol=1e-14)


def test_a_share_of_a_squared_hinge_need_not_bound_the_worst_case():
    u, t = np.ones(1), np.ones(1)
    assert Mixture(SquaredHinge(), 0.0).value(u, t) < SquaredHinge().value(u, t)


def test_mixture_says_of_itself_what_its_loss_says(mixed, rng):
    mixture = Mixture(mixed, 0.4)
    for claim in (
        "is_homogeneous",
        "has_dual",
        "has_affine_scale",
        "is_rowwise",
        "is_proper",
        "is_smooth",
        "dual_limit",
    ):
        assert getattr(mixture, claim) == getattr(mixed, claim)
    u, t = rng.normal(size=50), rng.uniform(0.1, 3, 50)
    assert_allclose(mixture.value(u, t), mixed.value(u, 0.4 * t) + 0.6 * t, rtol=1e-12)


def test_mixture_bends_as_its_loss_does_with_the_share_of_the_scale(mixed, points):
    u, t = points
    mixture = Mixture(mixed, 0.4)
    assert np.any(mixture.curvature(u, t)[2] > 0) or not mixed.is_smooth
    test_slopes_are_derivatives_of_the_value(mixture, points)
    test_curvature_is_the_derivative_of_the_slopes(mixture, points)
