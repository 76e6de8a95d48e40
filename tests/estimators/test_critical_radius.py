"""The sizes of sets at which training collapses, and up to which rows can be separated."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.svm import SVC

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast._training.critical import filled
from holdfast.estimators import critical_noise, critical_radius, separability_radius
from holdfast.exceptions import CollapseWarning

N = 40
SLOW = (1, 3, 5, 8)
"""Numbers of the sets that take long."""


@pytest.fixture
def draw(two_classes):
    """A function that draws rows of two classes, their own sizes, half-widths and factors."""

    def drawn(positives=13, separation=0.8):
        X, y = two_classes(N, 3, positives=positives, separation=separation)
        rng = np.random.default_rng(1)
        return X, y, rng.uniform(0.2, 1.0, size=(N, 3)), rng.normal(size=(N, 3, 2))

    return drawn


def _sets(X, S, F):
    return [
        (Ball(0.5), {}),
        (Ball(0.5, 3), {}),
        (Box(half_widths=[0.5, 1.0, 2.0]), {}),
        (Ellipsoid(shape=np.cov(X.T)), {}),
        (IntervalBox(-0.3, 0.1), {}),
        (Ball(0.2) + Box(0.3), {}),
        (Ball(0.5), {"X_radius": S[:, 0]}),
        (Box(0.5), {"X_std": S}),
        (Ellipsoid(0.5), {"X_std": S}),
        (IntervalBox(), {"X_lower": X - S, "X_upper": X + 0.3 * S**2}),
    ]


@pytest.mark.thin(5)
@pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.CollapseWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize("positives", [13, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [pytest.param(i, marks=pytest.mark.slow) if i in SLOW else i for i in range(10)])
@pytest.mark.parametrize(
    ("loss", "penalty", "kappa"),
    [("hinge", "l2", 1.0), ("hinge", "l1", 0.6), ("logistic", "l1", 1.0), ("squared_hinge", "l2", 0.3)],
)
def test_training_collapses_just_above_the_critical_radius_and_not_below(loss, penalty, kappa, number, positives, draw):
    X, y, S, F = draw(positives)
    uncertainty, metadata = _sets(X, S, F)[number]
    options = {"loss": loss, "penalty": penalty, "kappa": kappa, "alpha": 0.5}
    radius = critical_radius(X, y, uncertainty, **options, **metadata)
    below, above = (
        RobustLinearClassifier(uncertainty.times(radius * factor), **options, tol=1e-7).fit(X, y, **metadata)
        for factor in (0.98, 1.001)
    )
    assert above.collapsed_
    assert not np.any(above.coef_)
    assert np.any(below.coef_)
    assert below.objective_ < above.objective_ * (1 - 1e-6)


def test_balanced_hinge_in_a_box_is_the_published_ratio_for_every_kappa(draw):
    X, y, S, _ = draw(20)
    expected = np.max(np.abs(X.T @ y) / S.sum(axis=0))
    for kappa in (0.0, 0.4, 1.0):
        assert np.isclose(critical_radius(X, y, Box(), kappa=kappa, X_std=S), expected, rtol=1e-12)


def test_balanced_hinge_in_a_ball_is_half_the_distance_of_the_means(draw):
    X, y, *_ = draw(20)
    expected = np.linalg.norm(X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0)) / 2
    assert np.isclose(critical_radius(X, y), expected, rtol=1e-12)
    assert np.isclose(critical_radius(X + 1e6, y, loss="huberized_hinge"), expected, rtol=1e-9)


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_logistic_loss_in_a_box_is_the_published_ratio(draw, kappa):
    X, y, S, _ = draw(13)
    a = np.where(y > 0, np.mean(y < 0), np.mean(y > 0))
    expected = np.max(np.abs(X.T @ (a * y)) / (kappa * S.T @ a + (1 - kappa) * S.sum(axis=0)))
    assert np.isclose(critical_radius(X, y, Box(), loss="logistic", kappa=kappa, X_std=S), expected, rtol=1e-10)


@pytest.mark.parametrize("kappa", [1.0, 0.4])
def test_unequal_hinge_in_boxes_is_the_optimum_of_linear_programs(draw, kappa):
    X, y, S, _ = draw(13)

    def collapses(radius):
        # a = 1 on the lighter class, y'a = 0, |X'(y a)| <= radius (kappa S'a + (1 - kappa) S'1)
        V = (X * y[:, None]).T
        A = np.vstack([V - radius * kappa * S.T, -V - radius * kappa * S.T])
        b = np.tile(radius * (1 - kappa) * S.sum(axis=0), 2)
        limits = [(1.0, 1.0) if sign > 0 else (0.0, 1.0) for sign in y]
        return linprog(np.zeros(N), A, b, y[None], [0.0], limits).status == 0

    radius = critical_radius(X, y, Box(), kappa=kappa, X_std=S)
    assert collapses(radius * (1 + 3e-6))
    assert not collapses(radius * (1 - 3e-6))


def test_weights_and_class_weights_count(draw):
    X, y, S, _ = draw(13)
    weights = np.random.default_rng(0).integers(1, 4, size=N)
    repeated = np.repeat(np.arange(N), weights)
    for options in ({}, {"class_weight": "balanced"}):
        one = critical_radius(X, y, Box(), sample_weight=weights, X_std=S, **options)
        other = critical_radius(X[repeated], y[repeated], Box(), X_std=S[repeated], **options)
        assert np.isclose(one, other, rtol=3e-6)


@pytest.mark.parametrize(("penalty", "loss"), [("l2", "hinge"), ("box", "logistic")])
def test_ridge_and_box_change_nothing_and_the_l1_penalty_takes_its_part(draw, penalty, loss):
    X, y, *_ = draw(13)
    plain = critical_radius(X, y, Box(), loss=loss, penalty=None)
    assert critical_radius(X, y, Box(), loss=loss, penalty=penalty, alpha=7.0) == plain
    # in a box the penalty is so much more of every half-width
    cheaper = critical_radius(X, y, Box(), loss="logistic", penalty="l1", alpha=0.4, kappa=0.0)
    full = critical_radius(X, y, Box(), loss="logistic", penalty=None, kappa=0.0)
    assert np.isclose(cheaper, full - 0.4 / N, rtol=1e-10)


def test_gaussian_noise_collapses_at_the_critical_noise_or_never(draw):
    X, y, *_ = draw(13)
    noise = GaussianNoise(std=[0.5, 1.0, 2.0])
    assert critical_radius(X, y, noise, penalty=None) == critical_noise(X, y, noise=noise)
    for loss in ("logistic", "squared_hinge"):
        assert critical_radius(X, y, noise, loss=loss) == np.inf
    assert critical_radius(X, y, noise, class_weight="balanced") == np.inf


def test_equal_means_collapse_at_once_and_exact_features_never():
    X = np.array([[1.0, 2.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 2.0]])
    assert critical_radius(X, [0, 0, 1, 1]) == 0.0
    X = np.array([[1.0, 2.0], [2.0, 0.0], [-1.0, 0.0], [-3.0, 2.0]])
    assert critical_radius(X, [0, 0, 1, 1], Box(half_widths=[0.0, 1.0])) == np.inf
    assert critical_radius(X, [0, 0, 0, 1], Box(half_widths=[0.0, 1.0])) == np.inf


def test_filling_keeps_the_sum_and_the_limit(rng):
    for _ in range(50):
        weights, a = rng.uniform(0.1, 2.0, size=12), rng.uniform(size=12) * (rng.uniform(size=12) < 0.7)
        wanted = rng.uniform(0.05, 0.95) * weights.sum()
        out = filled(weights, a, wanted)
        assert np.isclose(weights @ out, wanted)
        assert np.all((out >= 0) & (out <= 1))
    assert np.allclose(filled(np.ones(3), np.array([0.5, 0.1, 0.4]), 1.0), [0.5, 0.1, 0.4])


@pytest.mark.thin(4)
@pytest.mark.parametrize("number", [pytest.param(i, marks=pytest.mark.slow) if i in SLOW else i for i in range(10)])
@pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.CollapseWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
def test_hinge_loss_is_zero_up_to_the_separability_radius(number, draw):
    X, y, S, F = draw(13, separation=3.0)
    uncertainty, metadata = _sets(X, S, F)[number]
    radius = separability_radius(X, y, uncertainty, **metadata)
    assert 0 < radius < np.inf
    below, above = (
        RobustLinearClassifier(uncertainty.times(radius * factor), penalty=None).fit(X, y, **metadata)
        for factor in (0.995, 1.005)
    )
    assert below.objective_ <= 1e-9
    assert above.lower_bound_ >= 1.9


def test_separability_radius_of_a_ball_is_the_margin_of_a_hard_margin_machine(draw):
    X, y, *_ = draw(13, separation=3.0)
    machine = SVC(kernel="linear", C=1e8, tol=1e-9).fit(X, y)
    assert np.isclose(separability_radius(X, y), 1 / np.linalg.norm(machine.coef_), rtol=1e-5)


def test_separability_radius_of_a_common_box_is_the_optimum_of_a_linear_program(draw):
    X, y, *_ = draw(13, separation=3.0)
    s = np.array([0.5, 1.0, 2.0])
    A = -y[:, None] * np.column_stack([X, -X, np.ones(N)])
    found = linprog(np.append(np.tile(s, 2), 0.0), A, -np.ones(N), bounds=[(0, None)] * 6 + [(None, None)])
    assert np.isclose(separability_radius(X, y, Box(half_widths=s)), 1 / found.fun, rtol=1e-6)


def test_separability_radius_of_rows_own_intervals_is_where_linear_programs_change_their_mind(draw):
    X, y, S, _ = draw(13, separation=3.0)
    lower, upper = S, 0.3 * S**2
    radius = separability_radius(X, y, IntervalBox(), X_lower=X - lower, X_upper=X + upper)

    def separates(k):
        # the entry that hurts: the lower end where y w > 0, the upper where y w < 0
        ups, downs = (np.where(y[:, None] > 0, *ends) for ends in ((lower, upper), (upper, lower)))
        A = -np.column_stack([y[:, None] * X - k * ups, -y[:, None] * X - k * downs, y])
        return linprog(np.zeros(7), A, -np.ones(N), bounds=[(0, None)] * 6 + [(None, None)]).status == 0

    assert separates(radius * (1 - 3e-6))
    assert not separates(radius * (1 + 3e-6))


def test_rows_that_overlap_have_no_separability_radius_and_exact_features_no_limit(draw):
    X, y, *_ = draw(13, separation=0.1)
    assert separability_radius(X, y) == 0.0
    X[:, 0] = y
    assert separability_radius(X, y, Box(half_widths=[0.0, 1.0, 1.0])) == np.inf


def test_sizes_scale_with_the_features(draw):
    X, y, *_ = draw(13, separation=3.0)
    for size in (critical_radius, separability_radius):
        assert np.isclose(size(1e3 * X + 1e4, y), 1e3 * size(X, y), rtol=3e-6)


def test_what_makes_no_sense_is_refused(draw):
    X, y, S, _ = draw()
    classes = np.arange(N) % 3
    for size in (critical_radius, separability_radius):
        with pytest.raises(ValueError, match="y has 3 classes"):
            size(X, classes)
        with pytest.raises(TypeError, match="unexpected keyword argument 'X_sdt'"):
            size(X, y, Box(), X_sdt=S)
    with pytest.raises(ValueError, match="noise without bounds"):
        separability_radius(X, y, GaussianNoise(1.0))
    with pytest.raises(ValueError, match="sum of a noise and a set"):
        critical_radius(X, y, GaussianNoise(1.0) + Ball(0.1))


def test_the_warning_of_a_collapse_names_a_radius_that_is_right(draw):
    X, y, *_ = draw(20)
    with pytest.warns(CollapseWarning, match="critical_radius"):
        RobustLinearClassifier(Ball(critical_radius(X, y) * 1.01)).fit(X, y)


@pytest.mark.parametrize("uncertainty", [None, Box(), Ball(1.0, 3)], ids=repr)
def test_rows_that_are_all_alike_are_never_separable(uncertainty):
    assert separability_radius(np.ones((4, 2)), [0, 0, 1, 1], uncertainty) == 0.0
