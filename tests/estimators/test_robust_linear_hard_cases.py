"""RobustLinearClassifier on data that have broken it once: outliers, repeated rows, rows that do not bend, refused refits."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, GaussianRobustClassifier, IntervalBox, RobustLinearClassifier
from holdfast.estimators import critical_radius
from holdfast.exceptions import CollapseWarning


@pytest.fixture
def outlier(rng):
    """Rows of which one, far on its right side, has an entry of size 1e15 in the second, exact feature; and the others."""
    y = np.where(np.arange(40) % 2, 1, -1)
    X = rng.normal(size=(40, 2)) + np.outer(y, [0.4, 1.0])
    X[0, 1] = 1e15 * y[0]
    return X, y


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("uncertainty", [Box(half_widths=[0.3, 0.0]), None], ids=repr)
def test_a_huge_value_in_an_exact_feature_does_not_pass_for_rounding(loss, uncertainty, outlier):
    X, y = outlier
    model = RobustLinearClassifier(uncertainty, loss=loss, penalty=None).fit(X, y)
    without = RobustLinearClassifier(uncertainty, loss=loss, penalty=None).fit(X[1:], y[1:])
    assert without.coef_[0, 1] > 0  # the outlier costs nothing there
    assert model.lower_bound_ <= without.objective_ * (1 + 1e-9)


def test_nor_does_it_make_a_collapse_of_an_exact_feature_that_tells_the_classes_apart(outlier):
    X, y = outlier
    weights = np.where(np.arange(len(y)) > 0, 1.0, 0.0)
    for loss in ("hinge", "logistic"):
        found = critical_radius(
            X, y, Box(half_widths=[0.3, 0.0]), loss=loss, sample_weight=weights, class_weight="balanced"
        )
        assert found == np.inf


def test_nor_does_it_under_gaussian_noise(outlier):
    X, y = outlier
    noise = GaussianNoise([0.3, 0.0])
    without = GaussianRobustClassifier(noise, loss="hinge").fit(X[1:], y[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GaussianRobustClassifier(noise, loss="hinge").fit(X, y)
    assert model.lower_bound_ <= without.objective_ * (1 + 1e-9)


@pytest.mark.parametrize(
    "options", [{"uncertainty": Box(0.1) + Ball(0.01)}, {"uncertainty": Box(0.1), "solver": "newton"}]
)
def test_rows_none_of_which_bends_are_no_obstacle(options, rng):
    y = np.where(np.arange(20) % 2, 1, -1)
    X = rng.normal(size=(20, 3)) + 3 * np.outer(y, [1, 0, 0])
    for loss, size in (("squared_hinge", 1.0), ("huberized_hinge", 10.0)):
        model = RobustLinearClassifier(loss=loss, **options).fit(size * X, y, X_std=rng.uniform(0, 0.1, size=(20, 3)))
        assert model.gap_ <= 1e-6


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "huberized_hinge"])
def test_more_features_than_rows_and_rows_that_repeat(loss, rng):
    for _ in range(3):
        half = rng.normal(size=(4, 10))
        X, y = np.concatenate([half, half]), [1, -1, 1, -1, 1, -1, -1, 1]
        model = RobustLinearClassifier(Ball(0.1), loss=loss, penalty=None).fit(X, y)
        again = RobustLinearClassifier(Ball(0.1), loss=loss, penalty=None, solver="newton").fit(X, y)
        assert model.gap_ <= 1e-6
        assert_allclose(model.objective_, again.objective_, rtol=1e-6)


@pytest.mark.parametrize("kappa", [0.0, 0.05, 0.5, 1.0])
def test_a_ball_of_radius_0_beside_noise_changes_nothing(kappa, rng):
    X = rng.normal(size=(30, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=30) > 0, 1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        alone, beside = (
            RobustLinearClassifier(sets, kappa=kappa).fit(X, y)
            for sets in (GaussianNoise(0.3), GaussianNoise(0.3) + Ball(0.0))
        )
    assert max(alone.gap_, beside.gap_) <= 1e-6
    assert_allclose(alone.objective_, beside.objective_, rtol=1e-6)


def test_a_refused_refit_leaves_the_model_as_it_was(two_classes):
    X, y = two_classes(30, 3)
    names = np.where(y > 0, "spam", "ham")
    model = RobustLinearClassifier(Box(0.1)).fit(X, names)
    before = model.predict(X)
    with pytest.raises(ValueError, match="X_std has shape"):
        model.fit(X, y, X_std=np.ones((3, 3)))
    assert np.array_equal(model.predict(X), before)


def test_values_rounded_to_float32_may_leave_their_intervals_by_as_much(two_classes):
    X, y = two_classes(30, 3)
    rounded = RobustLinearClassifier(IntervalBox()).fit(X.astype(np.float32), y, X_lower=X, X_upper=X + 0.1)
    exact = RobustLinearClassifier(IntervalBox()).fit(X, y, X_lower=X, X_upper=X + 0.1)
    assert_allclose(rounded.objective_, exact.objective_, rtol=1e-5)
    with pytest.raises(ValueError, match=r"X_lower\[0, 0\] is above X\[0, 0\] by 1e-05"):
        RobustLinearClassifier(IntervalBox()).fit(X, y, X_lower=X + 1e-5, X_upper=X + 0.1)


@pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.UnitsWarning"
)  # errors of a column are several times its spread
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", "huberized_hinge"])
@pytest.mark.parametrize("by_row", [False, True], ids=["common", "by row"])
def test_flat_ellipsoids_are_certified_without_a_penalty(loss, by_row, rng):
    for rank in (1, 2):
        F = 0.3 * rng.normal(size=(3, rank)) * np.array([[0.1], [1.0], [10.0]])
        X = rng.normal(size=(30, 3))
        X[:, 0] *= rank - 1  # once a column of zeros
        y = np.where(X[:, 1] + rng.normal(size=30) > 0, 1, 0)
        factors = F * rng.uniform(0.5, 2, size=(30, 1, 1))
        model = RobustLinearClassifier(Ellipsoid(0.3, shape=None if by_row else F @ F.T), loss=loss, penalty=None)
        model.fit(X, y, **({"X_factor": factors} if by_row else {}))
        assert model.gap_ <= 1e-6
