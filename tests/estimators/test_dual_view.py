"""The dual weights of a fit, what they prove, and which rows carry it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from holdfast import GaussianRobustClassifier
from holdfast.estimators.gaussian_robust import LOSSES
from holdfast.exceptions import CollapseWarning

PERSPECTIVE = ["hinge", "log2", "quadratic", "two_point"]
perspective_losses = pytest.mark.parametrize("loss", PERSPECTIVE)
intercepts = pytest.mark.parametrize("fit_intercept", [False, True])


@pytest.fixture
def weighted(two_classes, rng):
    """X, y and weights of two classes."""
    return *two_classes(60, 4, separation=0.8), rng.uniform(0.5, 2, 60)


# What the dual weights are


@perspective_losses
@intercepts
def test_dual_weights_pull_along_the_weights_and_add_up_to_the_bound(loss, fit_intercept, weighted):
    X, y, c = weighted
    sigma = 0.6
    model = GaussianRobustClassifier(sigma, loss=loss, fit_intercept=fit_intercept).fit(X, y, sample_weight=c)
    w, t = model.coef_[0], sigma * np.linalg.norm(model.coef_)
    assert model.proof_weights_.shape == (1, 60)
    a = y * model.proof_weights_[0] / c
    assert np.all((a >= 0) & (a <= 1))
    u = 1 - y * (X @ w + model.intercept_[0])
    _, slopes, scale_slopes = LOSSES[loss]().evaluate(u, np.full(60, t))
    assert_allclose(a, slopes, atol=1e-6)
    kappa = sigma * c @ scale_slopes / np.linalg.norm(w)
    assert_allclose(model.proof_weights_ @ X, kappa * model.coef_, rtol=1e-5, atol=1e-6)
    assert np.abs(model.proof_weights_).sum() == pytest.approx(model.lower_bound_, rel=1e-13)
    if fit_intercept:
        assert model.proof_weights_.sum() == pytest.approx(0, abs=1e-11)
    # feasible: what is pulled is no more than the noise bears
    borne = sigma * c @ LOSSES[loss]().dual_scale(a)
    assert np.linalg.norm(model.proof_weights_ @ X) <= borne * (1 + 1e-12)


@perspective_losses
def test_dual_weights_prove_the_bound_for_every_model(loss, weighted, rng):
    """Sum c a - sum c a y (w'x + b) + sum c f*(a) t(w) is no more than the objective, and no less than the bound."""
    X, y, c = weighted
    S = rng.uniform(0.2, 1, size=X.shape)
    model = GaussianRobustClassifier(loss=loss).fit(X, y, sample_weight=c, X_std=S)
    member = LOSSES[loss]()
    a = y * model.proof_weights_[0] / c
    for _ in range(50):
        w, b = rng.normal(size=4) * 10 ** rng.uniform(-2, 1), rng.normal()
        t, u = np.sqrt(np.square(S) @ np.square(w)), 1 - y * (X @ w + b)
        tangent = c @ (a * u + member.dual_scale(a) * t)
        assert model.lower_bound_ * (1 - 1e-9) <= tangent <= c @ member.value(u, t) * (1 + 1e-12)


@perspective_losses
@intercepts
def test_dual_weights_of_several_classes_pull_as_the_noise_holds(loss, fit_intercept, several_classes, rng):
    X, y = several_classes((25, 20, 15), 4)
    c, sigma = rng.uniform(0.5, 2, 60), 0.5
    model = GaussianRobustClassifier(sigma, loss=loss, fit_intercept=fit_intercept).fit(X, y, sample_weight=c)
    D, W = model.proof_weights_, model.coef_
    assert D.shape == (3, 60)
    own = y == np.arange(3)[:, None]
    a = np.where(own, 0.0, -D / c)
    assert np.all((a >= 0) & (a <= 1))
    assert_allclose(D.sum(axis=0), 0, atol=1e-13)
    if fit_intercept:
        assert_allclose(D.sum(axis=1), 0, atol=1e-11)
    assert np.abs(D).sum() == pytest.approx(2 * model.lower_bound_, rel=1e-13)
    # V = (diag(T 1) - T) W with T = sigma sum c f*(a) / |w_k - w_l| over the rows of both classes
    budgets = np.where(own, 0.0, c * LOSSES[loss]().dual_scale(a))
    between = np.array([budgets[:, y == k].sum(axis=1) for k in range(3)])
    distances = np.linalg.norm(W[:, None] - W, axis=2) + np.eye(3)
    T = sigma * (between + between.T) / distances
    assert_allclose(D @ X, (np.diag(T.sum(axis=1)) - T) @ W, rtol=1e-5, atol=1e-5)


def test_dual_weights_at_a_collapse_prove_it(two_classes):
    X, y = two_classes(40, 3, positives=10)
    with pytest.warns(CollapseWarning):
        model = GaussianRobustClassifier(50.0, loss="hinge").fit(X, y)
    assert np.abs(model.proof_weights_).sum() == pytest.approx(20, rel=1e-9)
    assert_allclose(model.proof_weights_[0, y > 0], 1, rtol=1e-9)


def test_dual_weights_of_wide_and_far_rows_are_those_of_their_own(rng):
    X, y = rng.normal(size=(20, 60)), np.arange(20) % 2
    wide = GaussianRobustClassifier(2.0, loss="hinge").fit(X, y)
    pull = wide.proof_weights_ @ X
    assert_allclose(pull / np.linalg.norm(pull), wide.coef_ / np.linalg.norm(wide.coef_), atol=1e-6)
    far = GaussianRobustClassifier(2.0, loss="hinge").fit(X + 1e5, y)
    assert_allclose(far.proof_weights_, wide.proof_weights_, atol=1e-5)


def test_logistic_loss_has_no_dual_weights(weighted):
    X, y, _ = weighted
    model = GaussianRobustClassifier(0.5).fit(X, y)
    assert not hasattr(model, "proof_weights_")
    with pytest.raises(AttributeError, match="no dual weights"):
        model.carrying_rows()


# The rows that carry a model


@pytest.mark.parametrize("n_classes", [2, 3])
def test_carrying_rows_are_the_smallest_such_set(n_classes, several_classes):
    X, y = several_classes((30, 20, 10)[:n_classes])
    model = GaussianRobustClassifier(0.4, loss="hinge").fit(X, y)
    weight = np.abs(model.proof_weights_).sum(axis=0)
    for share in (0.1, 0.5, 0.9, 0.99):
        rows = model.carrying_rows(share)
        assert len(set(rows)) == len(rows)
        assert np.all(np.diff(weight[rows]) <= 0)
        assert weight[rows].sum() >= share * weight.sum()
        assert weight[rows[:-1]].sum() < share * weight.sum()
        # any other set of as many rows carries no more
        assert weight[rows].sum() == pytest.approx(np.sort(weight)[::-1][: len(rows)].sum())
    assert_array_equal(model.carrying_rows(), model.carrying_rows(0.9))
    assert len(model.carrying_rows(0.5)) < len(model.carrying_rows(0.99)) <= len(y)


def test_all_of_a_model_is_carried_by_all_rows_that_matter(several_classes):
    X, y = several_classes((30, 20))
    model = GaussianRobustClassifier(0.4, loss="hinge").fit(X, y)
    assert len(model.carrying_rows(1.0)) >= np.count_nonzero(np.abs(model.proof_weights_) > 1e-12 * model.lower_bound_)


def test_a_share_that_is_none_is_named(weighted):
    X, y, _ = weighted
    model = GaussianRobustClassifier(0.4, loss="hinge").fit(X, y)
    for share in (0, -0.5, 1.1, np.nan, "most"):
        with pytest.raises(ValueError, match=r"carrying_rows\(share="):
            model.carrying_rows(share)


def test_a_fit_to_the_carrying_rows_is_nearly_the_fit(rng):
    """Far rows do not carry: without them the optimum hardly changes."""
    y = np.where(np.arange(400) < 200, 1, -1)
    X = rng.normal(size=(400, 2)) + 2.5 * y[:, None]
    model = GaussianRobustClassifier(0.3, loss="hinge").fit(X, y)
    rows = model.carrying_rows(0.999)
    assert len(rows) < 200
    small = GaussianRobustClassifier(0.3, loss="hinge").fit(X[rows], y[rows])
    assert_allclose(small.coef_, model.coef_, rtol=0.02)
