"""Every loss: what the protocol promises, against finite differences, brute force and a conic solver."""

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import expit

EXTREME_DEFICITS = np.array([-1e10, -1e8, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1e8, 1e10])
EXTREME_SCALES = np.array([0.0, 1e-300, 1e-8, 1.0, 1e8])
STEP = 1e-5


@pytest.fixture
def points(rng):
    """Deficits and scales at which all losses are twice differentiable."""
    u, t = rng.uniform(-9, 9, size=4000), rng.uniform(0.5, 3.2, size=4000)
    away = np.abs(np.abs(u / t) - 4) > 0.01  # the quadratic hinge's breaks
    return u[away], t[away]


def test_slopes_are_derivatives_of_the_value(loss, points):
    u, t = points
    _, slope_u, slope_t = loss.evaluate(u, t)
    assert_allclose(slope_u, (loss.value(u + STEP, t) - loss.value(u - STEP, t)) / (2 * STEP), rtol=1e-8, atol=2e-10)
    assert_allclose(slope_t, (loss.value(u, t + STEP) - loss.value(u, t - STEP)) / (2 * STEP), rtol=1e-8, atol=2e-10)


def test_curvature_is_the_derivative_of_the_slopes(loss, points):
    u, t = points
    uu, ut, tt = loss.curvature(u, t)
    _, up_u, up_t = loss.evaluate(u + STEP, t)
    _, down_u, down_t = loss.evaluate(u - STEP, t)
    _, _, wide_t = loss.evaluate(u, t + STEP)
    _, _, slim_t = loss.evaluate(u, t - STEP)
    assert_allclose(uu, (up_u - down_u) / (2 * STEP), rtol=1e-8, atol=5e-9)
    assert_allclose(ut, (up_t - down_t) / (2 * STEP), rtol=1e-8, atol=5e-9)
    assert_allclose(tt, (wide_t - slim_t) / (2 * STEP), rtol=1e-8, atol=5e-9)


def test_loss_is_jointly_convex(loss, rng):
    u = rng.normal(size=(2, 5000)) * 10 ** rng.uniform(-2, 2, size=(2, 5000))
    t = 10 ** rng.uniform(-3, 2, size=(2, 5000)) * (rng.uniform(size=(2, 5000)) > 0.1)
    chord = 0.5 * (loss.value(u[0], t[0]) + loss.value(u[1], t[1]))
    assert np.all(loss.value(u.mean(axis=0), t.mean(axis=0)) <= chord * (1 + 1e-11) + 1e-13)


def test_curvature_is_positive_semidefinite(loss, points):
    uu, ut, tt = loss.curvature(*points)
    assert np.all(uu >= -1e-12)
    assert np.all(tt >= -1e-11)
    assert np.all(uu * tt - ut**2 >= -1e-10 * (uu + tt) ** 2 - 1e-12)


def test_loss_is_nondecreasing_in_deficit_and_scale(loss):
    u, t = np.meshgrid(np.linspace(-30, 30, 401), np.concatenate([[0.0], np.geomspace(1e-4, 60, 80)]))
    value, slope_u, slope_t = (part.reshape(u.shape) for part in loss.evaluate(u.ravel(), t.ravel()))
    assert np.all(np.diff(value, axis=1) >= -1e-12)
    assert np.all(np.diff(value, axis=0) >= -1e-10)
    assert np.all((slope_u >= 0) & (slope_u <= 1))
    assert np.all(slope_t >= -1e-13)


def test_loss_is_finite_and_silent_at_extreme_arguments(loss):
    u, t = (grid.ravel() for grid in np.meshgrid(EXTREME_DEFICITS, EXTREME_SCALES))
    value, slope_u, slope_t = loss.evaluate(u, t)
    for part in (value, slope_u, slope_t, *loss.curvature(u, t)):
        assert part.shape == u.shape
        assert np.all(np.isfinite(part))
    assert np.all(value >= np.maximum(u - 1, 0) * (1 - 1e-12))
    assert np.all(value <= np.maximum(u, 0) * (1 + 1e-12) + t + 1)


def test_vanishing_scale_gives_the_loss_without_noise(loss):
    u = np.linspace(-5, 5, 101)
    exact = loss.value(u, np.zeros_like(u))
    for t in (1e-300, 1e-9):
        assert_allclose(loss.value(u, np.full_like(u, t)), exact, rtol=0, atol=2e-9)


@pytest.mark.parametrize("t", [0.0, 0.3, 2.9, 3.1, 20.0])
def test_one_common_scale_equals_the_same_scale_row_by_row(loss, t, rng):
    u = 5 * max(t, 1) * rng.normal(size=3000)
    # curvature only guides the steps of a solver
    for method, accuracy in ((loss.evaluate, 1e-11), (loss.curvature, 1e-7)):
        for common, own in zip(method(u, np.array(t)), method(u, np.full_like(u, t)), strict=True):
            assert_allclose(common, own, rtol=0, atol=accuracy * max(t, 1))


def test_a_row_costs_the_same_alone_as_among_others(loss, rng):
    u, t = 3 * rng.normal(size=2000), rng.uniform(0, 6, size=2000)
    alone = [loss.evaluate(u[i : i + 1], t[i : i + 1]) for i in range(5)]
    for part, among in enumerate(loss.evaluate(u, t)):
        assert_allclose(np.concatenate([one[part] for one in alone]), among[:5], rtol=1e-13, atol=1e-15)


def test_homogeneity_is_what_the_loss_says(loss, rng):
    u, t = rng.normal(size=200), rng.uniform(0.1, 3, size=200)
    difference = loss.value(7 * u, 7 * t) - 7 * loss.value(u, t)
    assert (np.abs(difference).max() < 1e-12) == loss.is_homogeneous


def test_proper_loss_gives_the_probability_of_the_positive_class(loss):
    score = np.linspace(-6, 6, 41)
    positive = loss.evaluate(1 + score, np.zeros_like(score))[1]
    assert np.allclose(positive, expit(score), atol=1e-10) == loss.is_proper


def test_loss_is_the_maximum_of_its_dual_form(dual_loss):
    a = np.sin(np.linspace(0, np.pi / 2, 40001)) ** 2  # dense at both ends
    a = np.concatenate([a, 10.0 ** np.arange(-300, -8, 4)])
    for u in (-3.0, -0.4, 0.0, 0.7, 1.0, 5.0):
        for t in (0.0, 0.05, 0.8, 4.0):
            lines = a * (u - 1) + dual_loss.dual_value(a) + dual_loss.dual_scale(a) * t
            value = float(dual_loss.value(np.array(u), np.array(t)))
            assert np.all(lines <= value + 1e-12)
            assert lines.max() >= value - 1e-6


def test_slope_attains_the_dual_form(dual_loss, rng):
    u, t = 3 * rng.normal(size=500), rng.uniform(0.1, 3, size=500)
    value, a, slope_t = dual_loss.evaluate(u, t)
    assert_allclose(a * (u - 1) + dual_loss.dual_value(a) + dual_loss.dual_scale(a) * t, value, rtol=0, atol=1e-9)
    assert_allclose(dual_loss.dual_scale(a), slope_t, rtol=0, atol=1e-9)


def test_dual_scale_is_concave_and_vanishes_at_both_ends(dual_loss):
    a = np.linspace(0, 1, 2001)
    scale = dual_loss.dual_scale(a)
    assert_allclose(scale[[0, -1]], 0, rtol=0, atol=1e-15)
    assert np.all(scale >= 0)
    assert np.all(scale[1:-1] >= 0.5 * (scale[2:] + scale[:-2]) - 1e-13)


def test_loss_without_a_dual_says_so(loss):
    if loss.has_dual:
        assert np.isfinite(loss.dual_value(np.array(0.5)) + loss.dual_scale(np.array(0.5)))
        return
    with pytest.raises(NotImplementedError, match=type(loss).__name__):
        loss.dual_scale(np.array(0.5))


def test_compiled_kernel_equals_the_definition(loss, rng):
    pytest.importorskip("numba")
    kernel = loss.compiled()
    t = 10 ** rng.uniform(-6, 3, size=20000)
    z = np.concatenate([rng.uniform(-45, 45, size=10000), rng.normal(size=9990), [0, 5, -5, 1e7, -1e7, 1e12, -1e12]])
    t = t[: z.size]
    u = np.append(z * t, [0.0, 1e-9, -1e-9, 3.0, -3.0])
    t = np.append(t, np.zeros(5))
    if kernel is None:  # nothing to compare: passes then use `evaluate` itself
        return
    value, slope_u, slope_t = (np.empty_like(u) for _ in range(3))
    kernel(u, t, value, slope_u, slope_t)
    exact = loss.evaluate(u, t)
    assert np.all(np.abs(value - exact[0]) <= 1e-13 * (exact[0] + t))
    assert_allclose(slope_u, exact[1], rtol=1e-12, atol=1e-15)
    assert_allclose(slope_t, exact[2], rtol=1e-12, atol=1e-15)


def test_minimum_over_the_epigraph_is_the_loss(loss, rng):
    epigraph = loss.epigraph()
    if epigraph is None:  # no cone is known, and no conic solver will be offered the problem
        return
    u, t = 3 * rng.normal(size=60), rng.uniform(0.2, 3, size=60)
    assert_allclose(_conic_minimum(epigraph, u, t), loss.value(u, t), rtol=0, atol=1e-6)


def _conic_minimum(epigraph, u, t):
    """Return, for every (u, t), the least cost over the extra variables, all pairs solved in one program."""
    n, k = len(u), len(epigraph.cost) - 2
    kinds = {
        "nonnegative": clarabel.NonnegativeConeT,
        "second_order": clarabel.SecondOrderConeT,
        "exponential": lambda size: clarabel.ExponentialConeT(),
    }
    given = np.column_stack([u, t])
    A, b, cones = [], [], []
    for kind, G in epigraph.cones:
        G = np.array(G, dtype=float)
        A.append(sparse.kron(sparse.eye(n), -G[:, 2:]))
        b.append((given @ G[:, :2].T).ravel())
        cones += [kinds[kind](len(G)) for _ in range(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cost = np.array(epigraph.cost, dtype=float)
    program = clarabel.DefaultSolver(
        sparse.csc_matrix((n * k, n * k)),
        np.tile(cost[2:], n),
        sparse.csc_matrix(sparse.vstack(A)),
        np.concatenate(b),
        cones,
        settings,
    )
    extra = np.array(program.solve().x).reshape(n, k)
    return given @ cost[:2] + extra @ cost[2:]
