"""Bandwidths: their angles hold as often as they say, for certain once frequencies are drawn, and not by much too small."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GridSearchCV

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    RobustFourierFeatures,
    RobustKernelClassifier,
)
from holdfast.features import bandwidth_grid

N, D, K, DRAWS = 6, 4, 25, 4000
LEVEL = 0.9


def stated(seed=0):
    """Return sets, with what is stated of the rows and how far frequencies g, one a row, are turned: the formula once more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    stds, F, radii = rng.uniform(0.05, 0.5, size=(N, D)), rng.normal(size=(D, 2)), rng.uniform(0.1, 1, N)
    covs = np.array([np.eye(D) * 0.01 + np.outer(v, v) for v in stds])
    long, E = np.array([1.0, 0.0, 0.0, 0.0]), F @ F.T + 0.01 * np.eye(D)

    def by_row(g, each):
        return np.max([each(g, i) for i in range(N)], axis=0)

    kinds = {
        "l2": (Ball(0.3), {}, lambda g: 0.3 * np.linalg.norm(g, axis=1)),
        "l1": (Ball(0.3, norm=1), {}, lambda g: 0.3 * np.abs(g).max(axis=1)),
        "linf": (Ball(0.3, norm="inf"), {}, lambda g: 0.3 * np.abs(g).sum(axis=1)),
        "box": (Box(half_widths=stds[0]), {}, lambda g: np.abs(g) @ stds[0]),
        "one feature": (Box(half_widths=long), {}, lambda g: np.abs(g[:, 0])),
        "ellipsoid": (Ellipsoid(shape=E), {}, lambda g: np.sqrt(np.einsum("kj,jl,kl->k", g, E, g))),
        "X_radius": (Ball(), {"X_radius": radii}, lambda g: radii.max() * np.linalg.norm(g, axis=1)),
        "X_std box": (Box(1.0), {"X_std": stds}, lambda g: by_row(g, lambda g, i: np.abs(g) @ stds[i])),
        "X_std": (
            Ellipsoid(2.0),
            {"X_std": stds},
            lambda g: by_row(g, lambda g, i: 2 * np.linalg.norm(g * stds[i], axis=1)),
        ),
        "X_cov": (
            Ellipsoid(1.0),
            {"X_cov": covs},
            lambda g: by_row(g, lambda g, i: np.sqrt(np.einsum("kj,jl,kl->k", g, covs[i], g))),
        ),
        "intervals": (
            IntervalBox(),
            {"X_lower": X - stds, "X_upper": X + 3 * stds},
            lambda g: by_row(
                g, lambda g, i: np.maximum(*((np.abs(g) * np.where(s * g > 0, 3, 1)) @ stds[i] for s in (1, -1)))
            ),
        ),
        "sum": (Ball(0.2) + Box(0.1), {}, lambda g: 0.2 * np.linalg.norm(g, axis=1) + 0.1 * np.abs(g).sum(axis=1)),
    }
    return X, kinds


X, KINDS = stated()
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(turned, seed=1):
    """Return the largest angle of K unit frequencies, for each of many draws of them."""
    g = np.random.default_rng(seed).normal(size=(DRAWS * K, D))
    return turned(g).reshape(DRAWS, K).max(axis=1)


@every_kind
def test_all_angles_together_stay_below_the_stated_one_as_often_as_stated(kind):
    sets, metadata, turned = KINDS[kind]
    grid = bandwidth_grid(X, sets, angles=[0.7, 1.4], n_components=2 * K, probability=LEVEL, **metadata)
    worst, slack = drawn(turned), 3 * np.sqrt(LEVEL * (1 - LEVEL) / DRAWS)
    for gamma, angle in zip(grid.gammas, grid.angles, strict=True):
        share = np.mean(np.sqrt(2 * gamma) * worst <= angle)
        assert share >= LEVEL - slack
        if kind in ("l2", "X_radius"):
            assert share <= LEVEL + slack  # exact for balls
    # and no gamma is far too small: that of the quantile itself is at most so many times as large
    largest = 0.7**2 / (2 * np.quantile(worst, LEVEL) ** 2)
    assert grid.gammas[np.isclose(grid.angles, 0.7)] * {"l1": 4.0, "intervals": 4.0}.get(kind, 3.0) > largest


def test_the_published_level_is_that_of_one_frequency_and_not_of_all():
    turned, theta, k = KINDS["one feature"][2], 1.0, 50
    g = np.random.default_rng(2).normal(size=(DRAWS * k, D))
    published = theta / 3.0  # the half-width is 1, and so is the Frobenius norm
    angles = published * turned(g).reshape(DRAWS, k)
    assert np.mean(angles <= theta) > 0.997
    assert np.mean(angles.max(axis=1) <= theta) < 0.9
    grid = bandwidth_grid(X, KINDS["one feature"][0], angles=[theta], n_components=2 * k, probability=0.9973)
    gamma = grid.gammas[np.isclose(grid.angles, theta)]
    assert np.mean(np.sqrt(2 * gamma) * turned(g).reshape(DRAWS, k).max(axis=1) <= theta) > 0.995


@every_kind
def test_once_frequencies_are_drawn_the_angles_hold_for_certain_and_are_attained(kind):
    sets, metadata, turned = KINDS[kind]
    grid = bandwidth_grid(X, sets, angles=[0.5, 2.0], n_components=20, random_state=3, **metadata)
    assert grid.probability == 1
    for gamma, angle in zip(grid.gammas, grid.angles, strict=True):
        omega = RobustFourierFeatures(20, gamma=gamma, random_state=3).fit(X).frequencies_
        assert turned(omega).max() <= angle
        assert_allclose(turned(omega).max(), angle, rtol=1e-6)
    assert {0.5, 2.0} <= set(grid.angles.round(6))


@pytest.mark.parametrize("random_state", [None, 0])
def test_units_do_not_matter(random_state):
    rng = np.random.default_rng(5)
    stds = rng.uniform(0.1, 1, size=(N, D))
    first = bandwidth_grid(X, Box(), X_std=stds, random_state=random_state)
    other = bandwidth_grid(100 * X + 7, Box(), X_std=100 * stds, random_state=random_state)
    assert_allclose(other.gammas, first.gammas / 1e4)
    assert_allclose(other.angles, first.angles)
    assert_allclose(other.scale, first.scale / 1e4)


def test_a_rotation_changes_nothing_for_ellipsoids():
    Q, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(D, D)))
    E = np.diag([4.0, 1.0, 0.01, 1e-4])
    plain, turned = (bandwidth_grid(X, Ellipsoid(shape=shape)) for shape in (E, Q @ E @ Q.T))
    assert_allclose(turned.gammas, plain.gammas, rtol=1e-6)


def test_more_features_a_surer_statement_and_larger_sets_all_take_longer_waves():
    def largest(size=0.3, **options):
        grid = bandwidth_grid(X, Ball(size), angles=[1.0], **options)
        return grid.gammas[np.isclose(grid.angles, 1.0)].item()

    assert largest(n_components=2000) < largest(n_components=200) < largest(n_components=1)
    assert largest(n_components=9) == largest(n_components=10)  # pairs
    assert largest(probability=0.999) < largest() < largest(probability=0.5)
    assert_allclose(largest(0.1), 9 * largest(0.3))


def test_exact_rows_leave_the_scale_of_the_data_alone():
    for random_state in (None, 0):
        grid = bandwidth_grid(X, Ball(0.0), random_state=random_state)
        assert_allclose(grid.gammas, 1 / (D * X.var()))
        assert grid.angles == [0.0]


def test_the_scale_of_the_data_is_among_them_and_is_marked():
    grid = bandwidth_grid(X, Ball(0.1), angles=[0.5])
    assert grid.scale in grid.gammas
    assert np.all(np.diff(grid.gammas) > 0)
    assert np.all(np.diff(grid.angles) > 0)
    [line] = [line for line in str(grid).splitlines() if "scale of the data" in line]
    assert f"{grid.scale:.4g}" in line


def test_the_gammas_go_into_a_grid_search():
    rng = np.random.default_rng(7)
    y = np.repeat([0, 1], 20)
    rows = rng.normal(size=(40, 2)) + 3 * y[:, None]
    options = {"features": "fourier", "n_components": 10, "bound": "water", "alpha": 0.1, "random_state": 0}
    model = RobustKernelClassifier(Ball(0.1), **options)
    grid = bandwidth_grid(rows, Ball(0.1), n_components=10, random_state=0, angles=[0.2, 0.5])
    search = GridSearchCV(model, {"gamma": grid.gammas}, cv=2).fit(rows, y)
    assert search.best_params_["gamma"] in grid.gammas


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uncertainty": GaussianNoise(0.1)}, "no bounds"),
        ({"uncertainty": 0.3}, "uncertainty=0.3"),
        ({"uncertainty": FeatureDeletion(1, exactly=True)}, "exactly"),
        ({"angles": []}, "angles"),
        ({"angles": [0.0]}, "angles"),
        ({"angles": [4.0]}, "angles"),
        ({"probability": 1.0}, "probability"),
        ({"probability": 0.0}, "probability"),
        ({"n_components": 0}, "n_components"),
        ({"random_state": -1}, "random_state"),
        ({"X": [[np.nan, 1.0]]}, "NaN"),
        ({"X_stds": 1.0}, "X_stds"),
        ({"X_std": np.ones((N, D))}, "X_std"),
        ({"uncertainty": Box()}, "half_widths|X_std"),
        ({"X": [[1e160], [-1e160]]}, "units"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises((ValueError, TypeError), match=said):
        bandwidth_grid(**{"X": X, "uncertainty": Ball(0.3)} | given)
