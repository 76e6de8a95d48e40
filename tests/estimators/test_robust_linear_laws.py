"""Laws of RobustLinearClassifier on drawn problems: what more uncertainty does, and what must not matter."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC

from holdfast import Ball, Box, Ellipsoid, IntervalBox, RobustLinearClassifier
from holdfast.exceptions import CollapseWarning

LOSSES = ("hinge", "squared_hinge", "logistic", "huberized_hinge")
PLAIN = {
    "hinge": lambda x: np.maximum(x, 0.0),
    "squared_hinge": lambda x: np.maximum(x, 0.0) ** 2,
    "logistic": lambda x: np.logaddexp(0.0, x - 1),
    "huberized_hinge": lambda x: _huber(x - 1, 4 * np.log(2)),
}
SAME = 2e-6
"""Relative difference of two objectives that are each within 1e-6 of the same optimum."""


def _huber(x, c):
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


def _fit(model, *args, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model.fit(*args, **named)
    assert model.gap_ <= 1e-6
    return model


def _data(seed, n=16, d=3):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = rng.normal(size=(n, d)) + 0.6 * np.outer(y, rng.normal(size=d)) + rng.normal()
    X[:2] = X[0]  # of both classes, so that nothing separates the rows
    return X, y, rng


def _set(kind, radius, X, rng):
    half = rng.uniform(0, 1, size=X.shape)
    return {
        "ball": (Ball(radius), {}),
        "diamond": (Ball(radius, 1), {}),
        "norm_3": (Ball(radius, 3), {}),
        "X_radius": (Ball(radius), {"X_radius": half[:, 0]}),
        "box": (Box(radius), {}),
        "X_std": (Box(radius), {"X_std": half}),
        "intervals": (IntervalBox(radius=radius), {"X_lower": X - half, "X_upper": X + 0.3 * half}),
        "ellipsoid": (Ellipsoid(radius, shape=[1.0, 0.2, 0.0]), {}),
        "X_std_ellipsoid": (Ellipsoid(radius), {"X_std": half}),
        "sum": (Ball(0.5 * radius) + Box(0.2 * radius), {}),
    }[kind]


KINDS = ("ball", "diamond", "norm_3", "X_radius", "box", "X_std", "intervals", "ellipsoid", "X_std_ellipsoid", "sum")
drawn = {
    "seed": st.integers(0, 2**20),
    "loss": st.sampled_from(LOSSES),
    "kind": st.sampled_from(KINDS),
    "penalty": st.sampled_from(["l2", "l1", "box"]),
    "alpha": st.sampled_from([0.3, 1.0, 3.0]),
    "kappa": st.sampled_from([0.0, 0.4, 1.0]),
    "fit_intercept": st.booleans(),
}
many = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
few = settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _price(penalty, alpha, w):
    return {"l2": 0.5 * alpha * w @ w, "l1": alpha * np.abs(w).sum(), "box": 0.0}[penalty]


@few
@given(**drawn)
def test_robust_risk_bounds_the_risk_of_any_admissible_data(seed, loss, kind, penalty, alpha, kappa, fit_intercept):
    X, y, rng = _data(seed)
    sets, metadata = _set(kind, 0.3, X, rng)
    model = RobustLinearClassifier(
        sets, loss=loss, penalty=penalty, alpha=alpha, kappa=kappa, fit_intercept=fit_intercept
    )
    _fit(model, X, y, **metadata)
    w, b = model.coef_[0], model.intercept_[0]
    if loss == "squared_hinge" and kappa < 1:  # of slope above 1: what is outside of the loss need not be enough
        return
    for errors in sets.at(X, metadata).sample(rng, 60, 3):
        risk = PLAIN[loss](1 - y * ((X + errors) @ w + b)).sum() + _price(penalty, alpha, w)
        assert risk <= model.objective_ * (1 + 1e-10)


@few
@given(**drawn)
def test_larger_sets_never_cost_less(seed, loss, kind, penalty, alpha, kappa, fit_intercept):
    X, y, rng = _data(seed)
    options = {"loss": loss, "penalty": penalty, "alpha": alpha, "kappa": kappa, "fit_intercept": fit_intercept}
    sets, metadata = _set(kind, 1.0, X, rng)
    costs = [
        _fit(RobustLinearClassifier(sets.times(radius), **options), X, y, **metadata).objective_
        for radius in (0.0, 0.05, 0.2, 0.6)
    ]
    assert np.all(np.diff(costs) >= -SAME * costs[-1])
    plain = _fit(RobustLinearClassifier(None, **options), X, y)
    assert costs[0] == pytest.approx(plain.objective_, rel=SAME)


@few
@given(**drawn)
def test_what_must_not_matter_does_not(seed, loss, kind, penalty, alpha, kappa, fit_intercept):
    """Order of rows; a row twice or with weight 2; rows of weight 0; names of the classes; float32 and sparse rows."""
    X, y, rng = _data(seed)
    options = {"loss": loss, "penalty": penalty, "alpha": alpha, "kappa": kappa, "fit_intercept": fit_intercept}
    sets, metadata = _set(kind, 0.2, X, rng)
    weights = rng.uniform(0.5, 2, len(y))
    weights[5] = 2 * weights[4]

    def cost(X, y, weights=weights, rows=slice(None), sets=sets):
        own = {name: value[rows] for name, value in metadata.items()}
        return _fit(RobustLinearClassifier(sets, **options), X[rows], y[rows], sample_weight=weights[rows], **own)

    model = cost(X, y)
    order = rng.permutation(len(y))
    assert cost(X, y, rows=order).objective_ == pytest.approx(model.objective_, rel=SAME)
    halved = weights.copy()
    halved[5] /= 2
    twice = np.append(np.arange(len(y)), 5)
    assert cost(X, y, halved, twice).objective_ == pytest.approx(model.objective_, rel=SAME)
    without = np.where(np.arange(len(y)) < 4, 0.0, weights)
    ignored = cost(X, y, without).objective_
    assert ignored == pytest.approx(cost(X, y, weights, np.arange(4, len(y))).objective_, rel=SAME, abs=1e-7)
    named = cost(X, np.where(y > 0, "yes", "no"))
    assert named.classes_.tolist() == ["no", "yes"]
    assert_allclose(named.coef_, model.coef_, rtol=1e-12)
    assert cost(sparse.csr_array(X), y).objective_ == pytest.approx(model.objective_, rel=SAME)


@few
@given(**drawn)
def test_flipped_labels_negate_and_mirrored_rows_do_too(seed, loss, kind, penalty, alpha, kappa, fit_intercept):
    X, y, rng = _data(seed)
    options = {"loss": loss, "penalty": penalty, "alpha": alpha, "kappa": kappa, "fit_intercept": fit_intercept}
    sets, metadata = _set(kind, 0.2, X, rng)
    model = _fit(RobustLinearClassifier(sets, **options), X, y, **metadata)
    flipped = _fit(RobustLinearClassifier(sets, **options), X, -y, **metadata)
    assert flipped.objective_ == pytest.approx(model.objective_, rel=SAME)
    mirrored = dict(metadata)
    if kind == "intervals":
        mirrored = {"X_lower": -metadata["X_upper"], "X_upper": -metadata["X_lower"]}
    other = _fit(RobustLinearClassifier(sets, **options), -X, y, **mirrored)
    assert other.objective_ == pytest.approx(model.objective_, rel=SAME)
    if penalty == "l2" and np.any(model.coef_):
        # a ridge alpha makes w differ by at most sqrt(2 gap / alpha) from the one optimum
        reach = 2 * np.sqrt(2 * 1e-6 * model.objective_ / alpha)
        assert np.linalg.norm(flipped.coef_ + model.coef_) <= reach
        assert np.linalg.norm(other.coef_ + model.coef_) <= reach


scalable = drawn | {"kind": st.sampled_from(["X_std", "box", "X_std_ellipsoid", "intervals"])}


@few
@given(**scalable)
def test_units_and_the_origin_of_the_features_do_not_matter(seed, loss, kind, penalty, alpha, kappa, fit_intercept):
    """Features and sets in other units need the penalty in these units too, so there is none or all have the same."""
    X, y, rng = _data(seed)
    sets, metadata = _set(kind, 0.3, X, rng)
    options = {"loss": loss, "kappa": kappa, "fit_intercept": fit_intercept, "penalty": penalty}
    model = _fit(RobustLinearClassifier(sets, alpha=alpha, **options), X, y, **metadata)
    unit = 3.0
    scaled = {name: unit * value for name, value in metadata.items()}
    larger = sets if metadata else sets.times(unit)
    strength = {"l2": alpha * unit**2, "l1": alpha * unit, "box": alpha * unit}[penalty]
    other = _fit(RobustLinearClassifier(larger, alpha=strength, **options), unit * X, y, **scaled)
    assert other.objective_ == pytest.approx(model.objective_, rel=SAME)
    if fit_intercept:
        shift = 10 * rng.normal(size=3)
        moved = {name: value + shift if name in ("X_lower", "X_upper") else value for name, value in metadata.items()}
        far = _fit(RobustLinearClassifier(sets, alpha=alpha, **options), X + shift, y, **moved)
        assert far.objective_ == pytest.approx(model.objective_, rel=SAME)


@pytest.mark.parametrize("loss", LOSSES)
def test_each_feature_may_have_its_own_unit_where_boxes_are_the_only_penalty(loss):
    X, y, rng = _data(7, 30)
    units, S = np.array([0.1, 1.0, 20.0]), rng.uniform(0.05, 0.4, size=X.shape)
    model = _fit(RobustLinearClassifier(Box(), loss=loss, penalty=None), X, y, X_std=S)
    other = _fit(RobustLinearClassifier(Box(), loss=loss, penalty=None), X * units, y, X_std=S * units)
    assert other.objective_ == pytest.approx(model.objective_, rel=SAME)


@pytest.mark.parametrize("loss", LOSSES)
def test_single_precision_rows_are_the_same_rows(loss):
    X, y, rng = _data(3, 30)
    X = X.astype(np.float32)
    for sets, metadata in ((Ball(0.2), {}), (Box(), {"X_std": rng.uniform(0, 0.3, X.shape).astype(np.float32)})):
        single = _fit(RobustLinearClassifier(sets, loss=loss), X, y, **metadata)
        double = _fit(
            RobustLinearClassifier(sets, loss=loss),
            X.astype(np.float64),
            y,
            **{name: value.astype(np.float64) for name, value in metadata.items()},
        )
        assert single.objective_ == pytest.approx(double.objective_, rel=SAME)


@pytest.mark.parametrize("loss", LOSSES)
def test_several_classes_are_each_fitted_against_the_rest(loss, several_classes, rng):
    X, y = several_classes()
    lower, upper = X - rng.uniform(0, 0.3, X.shape), X + rng.uniform(0, 0.1, X.shape)
    model = _fit(RobustLinearClassifier(IntervalBox(), loss=loss), X, y, X_lower=lower, X_upper=upper)
    parts = [
        _fit(RobustLinearClassifier(IntervalBox(), loss=loss), X, y == k, X_lower=lower, X_upper=upper)
        for k in range(3)
    ]
    assert_allclose(model.coef_, np.concatenate([part.coef_ for part in parts]), atol=1e-12)
    assert_allclose(model.intercept_, np.concatenate([part.intercept_ for part in parts]), atol=1e-12)
    assert model.objective_ == pytest.approx(sum(part.objective_ for part in parts), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_class_weights_are_sample_weights(loss):
    X, y, _ = _data(11, 30)
    y[3:9] = 1.0
    by_class = _fit(RobustLinearClassifier(Ball(0.1), loss=loss, class_weight={-1.0: 3.0}), X, y)
    by_row = _fit(RobustLinearClassifier(Ball(0.1), loss=loss), X, y, sample_weight=np.where(y < 0, 3.0, 1.0))
    assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-12)
    balanced = _fit(RobustLinearClassifier(Ball(0.1), loss=loss, class_weight="balanced"), X, y)
    share = np.where(y < 0, 1 / np.mean(y < 0), 1 / np.mean(y > 0)) / 2
    weighted = _fit(RobustLinearClassifier(Ball(0.1), loss=loss), X, y, sample_weight=share)
    assert_allclose(balanced.coef_, weighted.coef_, rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.1, 2.0])
def test_without_uncertainty_it_is_scikit_learns_classifier(alpha):
    X, y, _ = _data(5, 60)
    options = {"alpha": alpha, "tol": 1e-10}
    svm = _fit(RobustLinearClassifier(None, loss="hinge", alpha=alpha, tol=1e-9), X, y)
    assert_allclose(svm.coef_, SVC(kernel="linear", C=1 / alpha, tol=1e-9).fit(X, y).coef_, atol=1e-5)
    logistic = _fit(RobustLinearClassifier(None, loss="logistic", **options), X, y)
    other = LogisticRegression(C=1 / alpha, solver="newton-cholesky", tol=1e-12).fit(X, y)
    assert_allclose(logistic.coef_, other.coef_, rtol=1e-5, atol=1e-5)
    assert_allclose(logistic.intercept_, other.intercept_, rtol=1e-5, atol=1e-5)
    # LinearSVC penalises the intercept, so both go without; its loss is 1/2 |w|^2 + C sum (1 - m)_+^2
    square = _fit(RobustLinearClassifier(None, loss="squared_hinge", fit_intercept=False, **options), X, y)
    other = LinearSVC(C=1 / alpha, fit_intercept=False, tol=1e-10, max_iter=100000).fit(X, y)
    assert_allclose(square.coef_, other.coef_, rtol=1e-5, atol=1e-5)
    sparse_model = _fit(
        RobustLinearClassifier(None, loss="logistic", penalty="l1", fit_intercept=False, **options), X, y
    )
    other = LogisticRegression(
        l1_ratio=1.0, C=1 / alpha, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10000
    ).fit(X, y)
    assert_allclose(sparse_model.coef_, other.coef_, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [
        test_robust_risk_bounds_the_risk_of_any_admissible_data,
        test_larger_sets_never_cost_less,
        test_what_must_not_matter_does_not,
        test_flipped_labels_negate_and_mirrored_rows_do_too,
        test_units_and_the_origin_of_the_features_do_not_matter,
    ],
    ids=lambda law: law.__name__,
)
def test_laws_hold_on_hundreds_of_problems(law):
    strategies = scalable if law is test_units_and_the_origin_of_the_features_do_not_matter else drawn
    many(given(**strategies)(law.hypothesis.inner_test))()
