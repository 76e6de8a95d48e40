"""Sets of Fourier and Nystroem features as sets: supports, their points and bends, and what changes of them give."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast import Ball, Box, Ellipsoid, IntervalBox, RobustFourierFeatures, RobustNystroem
from holdfast._data import rows_of
from holdfast.features.fourier_sets import RADII

STEP = 1e-5
N, D = 7, 3


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(N, D))


def stated(size, seed=0):
    """Return sets of every kind, common or by row, with what is stated of the rows."""
    rng, X = np.random.default_rng(seed), rows()
    stds = size * rng.uniform(0.2, 1, size=(N, D))
    return {
        "l1": (Ball(size, 1), {}),
        "l2": (Ball(size), {}),
        "l3": (Ball(size, 3), {}),
        "linf": (Ball(size, "inf"), {}),
        "box": (Box(half_widths=stds[0]), {}),
        "ellipsoid": (Ellipsoid(shape=np.diag(stds[0] ** 2)), {}),
        "X_radius": (Ball(), {"X_radius": stds[:, 0]}),
        "X_std box": (Box(1.0), {"X_std": stds}),
        "X_std": (Ellipsoid(1.0), {"X_std": stds}),
        "X_cov": (Ellipsoid(1.0), {"X_cov": size**2 * np.array([np.eye(D) + v[:, None] * v for v in stds])}),
        "X_factor": (Ellipsoid(1.0), {"X_factor": size * rng.normal(size=(N, D, 2))}),
        "intervals": (IntervalBox(), {"X_lower": X - stds, "X_upper": X + 0.3 * stds}),
        "sum": (Ball(0.5 * size) + Box(1.0), {"X_std": stds}),
        "sum of common": (Ball(0.5 * size) + Box(0.3 * size), {}),
    }


KINDS = list(stated(1.0))
MAPS = {
    "tangent": (RobustFourierFeatures(12, gamma=0.3, random_state=0), "tangent", 0.3),
    "tangent and arcs": (RobustFourierFeatures(12, gamma=0.3, random_state=0), "tangent", 1.5),
    "arc": (RobustFourierFeatures(12, gamma=0.3, random_state=0), "arc", 0.3),
    "phases": (RobustFourierFeatures(6, gamma=0.3, phases=True, random_state=0), "tangent", 0.5),
    "Nystroem tangent": (RobustNystroem(6, gamma=0.2, random_state=0), "tangent", 0.4),
    "Nystroem split": (RobustNystroem(6, gamma=2.0, random_state=0), "split", 0.4),
}


WIDTHS = {"phases": 6, "Nystroem tangent": 6, "Nystroem split": 6}


@pytest.fixture(params=MAPS)
def pushed(request):
    """Sets of every kind, pushed through a map: by their names, with the number of features."""
    model, bound, size = MAPS[request.param]
    model.fit(0.7 * np.random.default_rng(2).normal(size=(30, D)))
    sets = {kind: model.push(rows(), one, bound=bound, **own) for kind, (one, own) in stated(size).items()}
    return sets, WIDTHS.get(request.param, 12)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def slopes(function, w, v):
    """Return the derivative of a function along v."""
    return (function(w + STEP * v) - function(w - STEP * v)) / (2 * STEP)


def with_eased(sets, delta=0.2):
    return [
        (kind + smoothed, one)
        for kind, bound in sets.items()
        for smoothed, one in (("", bound), (" smoothed", bound.smoothed(delta)))
    ]


def test_points_attain_supports_and_are_their_gradients(pushed, rng):
    sets, width = pushed
    for kind, bound in with_eased(sets):
        w, v, r = rng.normal(size=width), rng.normal(size=width), rng.normal(size=N)
        points = bound.maximizer(w)
        if not kind.endswith("smoothed"):
            assert_allclose(points @ w, bound.support(w), rtol=1e-11, err_msg=kind)
        assert_allclose(points @ v, slopes(bound.support, w, v), rtol=1e-6, atol=1e-7, err_msg=kind)
        assert_allclose(bound.directional(w, v), points @ v, rtol=1e-11, atol=1e-13)
        assert_allclose(bound.adjoint(w, r), r @ points, rtol=1e-11, atol=1e-13)
        X = rng.normal(size=(N, width))
        assert_allclose(bound.cross(w, rows_of(X), r), X.T @ (r[:, None] * points), rtol=1e-10, atol=1e-12)
        assert_allclose(bound.maximizer(w, slice(2, 5)), points[2:5], rtol=1e-12)


def test_curvatures_are_derivatives_of_the_points(pushed, rng):
    sets, width = pushed
    for kind, bound in with_eased(sets):
        w, v = rng.normal(size=(2, width))
        first, second = rng.uniform(0.1, 2, size=(2, N))
        bend = slopes(lambda at, bound=bound, first=first: bound.adjoint(at, first), w, v)
        points = bound.maximizer(w)
        product = bound.curvature_product(w, first, v)
        assert_allclose(product, bend, rtol=1e-5, atol=2e-6, err_msg=kind)
        whole = bound.curvature(w, first, second)
        assert_allclose(whole @ v, product + points.T @ (second * (points @ v)), rtol=1e-9, atol=1e-11, err_msg=kind)
        assert_allclose(whole, whole.T, rtol=1e-9, atol=1e-12)


def test_supports_are_convex_and_sublinear(pushed, rng):
    sets, width = pushed
    for kind, bound in with_eased(sets):
        for v, w in rng.normal(size=(8, 2, width)):
            middle = bound.support(0.3 * v + 0.7 * w)
            assert np.all(middle <= (0.3 * bound.support(v) + 0.7 * bound.support(w)) * (1 + 1e-12)), kind
            if bound.is_sublinear:
                assert_allclose(bound.support(3.5 * w), 3.5 * bound.support(w), rtol=1e-11)


def test_smoothed_supports_are_above_by_no_more_than_the_smoothing(pushed, rng):
    sets, width = pushed
    for kind, bound in sets.items():
        for delta in (1e-6, 0.3, 10.0):
            smoothed = bound.smoothed(delta)
            assert smoothed.is_smooth
            for w in (np.zeros(width), *rng.normal(size=(5, width))):
                t, T = bound.support(w), smoothed.support(w)
                assert np.all(t * (1 - 1e-13) <= T), kind
                assert np.all((t + delta) * (1 + 1e-13) >= T), kind


def test_changed_sets_have_changed_supports(pushed, rng):
    sets, width = pushed
    signs, some = np.where(np.arange(N) % 2, 1.0, -1.0), np.array([4, 0, 2])
    for kind, bound in with_eased(sets):
        w = rng.normal(size=width)
        turned = np.where(signs > 0, bound.support(-w), bound.support(w))
        against_labels = bound.against_labels(signs)
        assert_allclose(against_labels.support(w), turned, rtol=1e-12, err_msg=kind)
        assert_allclose(against_labels.against_labels(signs).support(w), bound.support(w), rtol=1e-12)
        assert_allclose(
            against_labels.maximizer(w) @ w, np.where(signs > 0, bound.directional(-w, -w), bound.directional(w, w))
        )
        assert_allclose(bound.take(some).support(w), bound.support(w)[some], rtol=1e-12)
        assert_allclose(against_labels.take(some).support(w), turned[some], rtol=1e-12)
        if bound.is_sublinear:
            assert_allclose(bound.scaled(0.3).support(w), 0.3 * bound.support(w), rtol=1e-12)


def test_samples_are_in_the_sets(pushed, rng):
    sets, width = pushed
    for kind, bound in sets.items():
        points = bound.sample(rng, 200, width)
        assert points.shape == (200, N, width)
        for w in rng.normal(size=(4, width)):
            assert np.all(points @ w <= bound.support(w) * (1 + 1e-9) + 1e-12), kind


def test_everything_is_finite_at_zero_weights(pushed):
    sets, width = pushed
    for kind, bound in with_eased(sets):
        for w in (np.zeros(width), np.full(width, 1e-200)):
            one = np.ones(N)
            found = (
                bound.support(w),
                bound.maximizer(w),
                bound.curvature(w, one, one),
                bound.curvature_product(w, one, w),
            )
            assert all(np.all(np.isfinite(part)) for part in found), kind


@pytest.mark.parametrize(("bound", "norm"), RADII)
def test_radii_hold_the_changes_of_the_features_themselves_in_their_norm(bound, norm, rng):
    X = 3 * rng.normal(size=(400, D))  # whose pairs point anywhere
    for kind, (sets, own) in stated(1.0).items():
        if own:
            continue
        for size in (0.05, 0.5, 3.0):
            map = RobustFourierFeatures(8, gamma=size**2, random_state=1).fit(X)
            radius = map.radius(X, sets, bound=bound, norm=norm)
            moves = sets.at(X, {}).sample(rng, 20, D)
            changes = map.transform((X + moves).reshape(-1, D)).reshape(-1, len(X), 8) - map.transform(X)
            assert np.all(np.linalg.norm(changes, norm, axis=2) <= radius), kind


@pytest.mark.parametrize(("bound", "norm"), [case for case in RADII if case[0] != "published"])
def test_with_one_frequency_radii_are_attained(bound, norm):
    X = np.linspace(0, 2 * np.pi, 2001)[:, None]
    map = RobustFourierFeatures(2, kernel=lambda rng, shape, gamma: np.ones(shape)).fit(X)
    for size in (0.01, 1.0, 4.0):
        radius = map.radius(X, Ball(size), bound=bound, norm=norm)
        change = map.transform(X + min(size, np.pi)) - map.transform(X)
        assert_allclose(np.linalg.norm(change, norm, axis=1).max(), radius, rtol=1e-5)
