"""Certificates of RBF kernels and of features of them: exact where that is known, never beaten, for rows anywhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from holdfast import Ball, ChanceConstraint, Ellipsoid, RobustFourierFeatures, RobustKernelClassifier, certified_radius
from holdfast._certificates.decisions import one_score
from holdfast._certificates.fitted import kernel_model
from holdfast._certificates.fourier_model import FourierModel
from holdfast._certificates.models import Model
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._certificates.views import View
from holdfast.evaluate.certificates import certified_interval

NORMS = (1, 2, np.inf)
FEATURES = ["nystroem", "exact", "fourier", RobustFourierFeatures(30, gamma=0.5, phases=True, random_state=0)]


class Known(BaseEstimator):
    """A classifier that is known by what certificates see of it."""

    def __init__(self, model: Model, function):
        self.model, self.function, self.classes_ = model, function, np.array([0, 1])

    def certificate_model(self):
        return self.model

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return (self.function(X) > 0).astype(int)


def rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n) > 0).astype(int)


def robust(features="nystroem", **options):
    own = {} if not isinstance(features, str) else {"gamma": 0.5}
    return RobustKernelClassifier(
        Ball(0.1), features=features, alpha=0.3, max_iter=200, random_state=0, **own, **options
    )


@pytest.mark.parametrize("norm", [2, np.inf])
def test_radius_around_one_centre_is_exact(norm):
    X, level = rows()[0], 0.3
    model = Known(
        kernel_model(np.zeros((1, 3)), 0.5, [[1.0]], [-level]), lambda X: np.exp(-0.5 * np.sum(X**2, axis=1)) - level
    )
    edge, radius = np.sqrt(-np.log(level) / 0.5), certified_radius(model, X, norm=norm).radius
    distance = np.linalg.norm(X, axis=1)
    inside = distance < edge
    if norm == 2:
        assert_allclose(radius, np.abs(distance - edge), rtol=1e-5)
    else:
        ends = np.abs(X) + np.where(inside, 1.0, -1.0)[:, None] * radius[:, None]
        assert_allclose(np.linalg.norm(np.maximum(ends, 0.0), axis=1), edge, rtol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_radius_of_one_wave_is_exact(norm):
    X, w = rows()[0], np.array([[0.8, -0.5, 0.3]])
    model = FourierModel(RoundedMap(w, np.zeros(1)), RoundedMap(np.ones((1, 1)), np.zeros(1)), one_score())
    radius = certified_radius(Known(model, lambda X: np.cos(X @ w[0])), X, norm=norm).radius
    angle = np.abs(np.mod(X @ w[0], np.pi) - np.pi / 2)
    dual = {1: np.inf, 2: 2, np.inf: 1}[norm]
    assert_allclose(radius, angle / np.linalg.norm(w[0], dual), rtol=1e-5)


@pytest.mark.thin(2)
@pytest.mark.parametrize("features", FEATURES, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_small_sets_cost_what_the_gradient_says(features, norm):
    X, y = rows()
    model, size, h = robust(features).fit(X, y), 1e-5, 1e-5
    slopes = np.column_stack(
        [(model.decision_function(X + h * e) - model.decision_function(X - h * e)) / (2 * h) for e in np.eye(3)]
    )
    dual = np.linalg.norm(slopes, {1: np.inf, 2: 2, np.inf: 1}[norm], axis=1)
    lost = np.abs(model.decision_function(X)) - model.certified_margin(
        X, Ball(size, norm="inf" if norm == np.inf else norm)
    )
    assert_allclose(lost, size * dual, rtol=1e-2, atol=1e-8)


@pytest.mark.parametrize("features", FEATURES, ids=str)
def test_certified_hinge_is_no_smaller_than_that_of_attacked_rows_nor_larger_than_in_training(features, rng):
    X, y = rows()
    model, signs = robust(features).fit(X, y), np.where(y == 1, 1.0, -1.0)
    for sets, own in ((Ball(0.3), {}), (Ellipsoid(1.0), {"X_std": rng.uniform(0.05, 0.4, size=X.shape)})):
        scores, margin = model.decision_function(X), model.certified_margin(X, sets, **own)
        right = np.sign(scores) == signs
        std = own.get("X_std", np.full(X.shape, 0.3))
        lowest = np.full(len(X), np.inf)
        for _ in range(300):
            step = rng.normal(size=X.shape)
            step *= std / np.linalg.norm(step, axis=1, keepdims=True)
            lowest = np.minimum(lowest, np.sign(scores) * model.decision_function(X + step))
        assert np.all(margin <= lowest)
        assert np.all(np.maximum(1 - margin, 0)[right] >= np.maximum(1 - lowest, 0)[right])
        for bound in set(model.feature_map_.bounds) - {"split"}:
            pushed = model.feature_map_.push(X, sets, bound=bound, **own)
            fall = np.where(scores > 0, pushed.support(-model.coef_[0]), pushed.support(model.coef_[0]))
            assert np.all(margin >= np.abs(scores) - fall - 1e-6), bound


def test_rows_far_from_the_origin_have_the_radii_of_those_near_it():
    X, y = rows()
    X, shift = np.round(X * 2**20) / 2**20, 2.0**20
    models = own, svc = robust().fit(X, y), SVC(gamma=0.5).fit(X, y)
    near = [certified_radius(model, X).radius for model in models]
    own.feature_map_.landmarks_ = own.feature_map_.landmarks_ + shift
    svc.support_vectors_ = svc.support_vectors_ + shift
    far = [certified_radius(model, X + shift).radius for model in models]
    assert np.median(near) > 0.05
    assert_allclose(far, near, rtol=1e-3, atol=1e-5)


def test_infinite_radii_are_those_of_scores_that_no_move_can_turn():
    X, a = rows()[0], np.array([[1.0, -0.5]])
    kernel = Known(kernel_model(np.eye(2, 3), 0.5, a, [0.6]), lambda X: np.ones(len(X)))
    assert np.all(np.isinf(certified_radius(kernel, 10 + X).radius))
    assert not np.any(
        np.isinf(
            certified_radius(Known(kernel_model(np.eye(2, 3), 0.5, a, [0.2]), lambda X: X[:, 0] > -99), 10 + X).radius
        )
    )


def test_sets_that_hold_for_linear_scores_alone_are_refused():
    X, y = rows()
    with pytest.raises(ValueError, match="how far linear scores go"):
        robust().fit(X, y).certify(X, ChanceConstraint(0.05, cov=np.eye(3)))


def test_intervals_of_rows_are_certified_by_coordinates():
    X, level = np.array([[0.1, 0.0], [0.4, 0.4]]), 0.3
    model = kernel_model(np.zeros((1, 2)), 0.5, [[1.0]], [-level])
    known = Known(model, lambda X: np.exp(-0.5 * np.sum(X**2, axis=1)) - level)
    found = certified_interval(known, X, X_lower=X - [0.2, 0.0], X_upper=X + np.array([0.3, 1.0]))
    farthest = np.maximum(np.abs(X - [0.2, 0.0]), np.abs(X + np.array([0.3, 1.0])))
    assert_allclose(found.margin, np.exp(-0.5 * np.sum(farthest**2, axis=1)) - level, rtol=1e-9)
    assert isinstance(View(model, X, X, 2).model, Model)


def test_radius_is_exact_where_the_score_is_the_difference_of_two_points_of_the_kernels_space():
    here, there = np.array([[0.2, -0.4, 1.0]]), np.array([[0.5, 0.3, 0.7]])
    apart = 1 - np.exp(-0.5 * np.sum((here - there) ** 2))
    model = kernel_model(np.vstack([here, there]), 0.5, [[1.0, -1.0]], [apart])
    found = certified_radius(Known(model, lambda X: np.ones(len(X))), here).radius[0]
    assert_allclose(found, np.linalg.norm(here - there), rtol=1e-6)


def test_rows_none_of_which_is_certain_have_radius_zero():
    X = np.zeros((4, 2))
    model = make_pipeline(StandardScaler(), SVC(gamma=1.0)).fit([[-1.0, 0.0], [1.0, 0.0]], [0, 1])
    assert np.all(certified_radius(model, X).radius == 0)
