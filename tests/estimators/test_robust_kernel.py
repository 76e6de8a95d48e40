"""RobustKernelClassifier, against conic programs, attacks on the inputs, and scikit-learn's SVC."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    Ellipsoid,
    GaussianNoise,
    IntervalBox,
    RobustFourierFeatures,
    RobustKernelClassifier,
    RobustNystroem,
    certified_radius,
    make_uncertain_pipeline,
)
from holdfast.exceptions import CollapseWarning

X, LABELS = make_moons(40, noise=0.2, random_state=0)
SIGNS = 2.0 * LABELS - 1
THREE = LABELS + (X[:, 0] > 1)
CASES = [("fourier", bound) for bound in RobustFourierFeatures.bounds]
CASES += [("nystroem", bound) for bound in RobustNystroem.bounds]


def fitted(uncertainty=None, y=LABELS, rows=X, **options):
    options = {"gamma": 1.0, "n_components": 16, "alpha": 0.2, "random_state": 0} | options
    if options.get("features") == "exact":
        options["n_components"] = None
    metadata = {name: options.pop(name) for name in list(options) if name.startswith("X_") or name == "sample_weight"}
    return RobustKernelClassifier(uncertainty, **options).fit(rows, y, **metadata)


def attacked(model, rows, size, norm, signs, rng, steps=25):
    """Return the lowest signs * score that projected gradient steps by differences find within a ball of the inputs."""
    f = lambda Z: signs * model.decision_function(Z)
    d = rng.normal(size=rows.shape)
    best = f(rows)
    for k in range(steps):
        d = d * size / np.linalg.norm(d, norm, axis=1, keepdims=True)
        best = np.minimum(best, f(rows + d))
        slopes = [(f(rows + d + 1e-5 * e) - f(rows + d - 1e-5 * e)) / 2e-5 for e in np.eye(rows.shape[1])]
        away = -np.array(slopes).T
        away += (0.3 if k % 3 == 2 else 1e-12) * rng.normal(size=d.shape)
        d = np.sign(away) if norm == np.inf and k % 2 else away
    return best


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of the referee, by its own standards
@pytest.mark.thin(2)
@pytest.mark.parametrize("bound", ["ball", "tangent", "intervals"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_the_optimum_is_that_of_a_conic_solver_for_formulas_written_again(loss, bound):
    model = fitted(Ball(0.1), loss=loss, bound=bound, n_components=12)
    points, gamma, r = model.feature_map_.landmarks_, 1.0, 0.1
    K, k = rbf_kernel(points, gamma=gamma), rbf_kernel(X, points, gamma=gamma)
    T = np.linalg.cholesky(K)
    Phi = np.linalg.solve(T, k.T).T
    w, b = cp.Variable(12), cp.Variable()
    if bound == "ball":
        push = np.sqrt(-2 * np.expm1(-gamma * r**2)) * cp.norm(w) * np.ones(40)
    elif bound == "tangent":
        q = 2 * gamma * r**2
        rest = np.sqrt(2 - 2 * np.exp(-q / 2) + q - 2 * q * np.exp(-q / 2))
        beta = np.linalg.inv(T).T @ w
        slopes = [-2 * gamma * (k[i, :, None] * (X[i] - points)).T @ beta for i in range(40)]
        push = cp.hstack([r * cp.norm(slope) for slope in slopes]) + rest * cp.norm(w)
    else:
        distance = np.sqrt(((X[:, None] - points) ** 2).sum(axis=-1))
        rise = np.exp(-gamma * np.maximum(distance - r, 0) ** 2) - k
        fall = k - np.exp(-gamma * (distance + r) ** 2)
        beta = np.linalg.inv(T).T @ w
        up, down = cp.pos(beta), cp.neg(beta)
        push = cp.hstack(
            [rise[i] @ (down if SIGNS[i] > 0 else up) + fall[i] @ (up if SIGNS[i] > 0 else down) for i in range(40)]
        )
    u = 1 - cp.multiply(SIGNS, Phi @ w + b) + push
    v = cp.Variable(40)
    losses = {"hinge": cp.sum(v), "squared_hinge": cp.sum_squares(v), "logistic": cp.sum(cp.logistic(u - 1))}[loss]
    problem = cp.Problem(cp.Minimize(losses + 0.1 * cp.sum_squares(w)), [v >= u, v >= 0])
    problem.solve(solver=cp.CLARABEL)
    assert_allclose(model.objective_, problem.value, rtol=1e-6)
    assert model.gap_ <= 1e-6
    assert model.lower_bound_ <= problem.value * (1 + 1e-7)


@pytest.mark.filterwarnings("ignore:w = 0")
@pytest.mark.thin(2)
@pytest.mark.parametrize(("features", "bound"), CASES)
def test_no_parameters_go_below_the_bound_and_no_attack_on_the_inputs_above_the_loss(features, bound):
    rng, size = np.random.default_rng(1), 0.08
    for norm in (1, 2, np.inf):
        model = fitted(Ball(size, norm=norm), features=features, bound=bound, tol=1e-5)
        assert model.bound_ == bound
        assert model.gap_ <= 1e-5
        sets = model.feature_map_.push(X, Ball(size, norm=norm), bound=bound).against_labels(SIGNS)
        Phi = model.feature_map_.transform(X)

        def objective(w, b, sets=sets, Phi=Phi):
            hinges = np.maximum(1 - SIGNS * (Phi @ w + b) + sets.support(w), 0)
            return hinges.sum() + 0.1 * w @ w, hinges

        w, b = model.coef_[0], model.intercept_[0]
        value, hinges = objective(w, b)
        assert_allclose(model.objective_, value, rtol=1e-9)
        for scale in (1e-3, 0.03, 0.3):
            moved = w + scale * np.linalg.norm(w) * rng.normal(size=len(w)) / np.sqrt(len(w))
            assert objective(moved, b + scale * rng.normal())[0] >= model.lower_bound_
        assert np.all(1 - attacked(model, X, size, norm, SIGNS, rng) <= hinges + 1e-9)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_without_uncertainty_it_is_the_plain_kernel_machine(loss):
    for uncertainty in (None, Ball(0.0), Box(0.0)):
        model = fitted(uncertainty, features="exact", loss=loss)
        if loss == "hinge":
            svm = SVC(C=5.0, gamma=1.0, tol=1e-8).fit(X, LABELS)
            assert_allclose(model.decision_function(X), svm.decision_function(X), atol=1e-4)
        else:
            Phi = model.feature_map_.transform(X)
            plain = LogisticRegression(C=5.0, tol=1e-10, max_iter=10000).fit(Phi, LABELS)
            assert_allclose(model.predict_proba(X), plain.predict_proba(Phi), atol=1e-4)
            assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))


@pytest.mark.filterwarnings("ignore:w = 0")
@pytest.mark.thin(2)
@pytest.mark.parametrize("features", ["fourier", "nystroem"])
@pytest.mark.parametrize(("gamma", "size"), [(0.3, 0.05), (2.0, 0.15), (20.0, 0.05)])
def test_the_bound_that_is_chosen_is_the_best(features, gamma, size):
    options = {"features": features, "gamma": gamma, "tol": 1e-4}
    model = fitted(Box(size), **options)
    kind = type(model.feature_map_)
    assert set(model.bound_objectives_) == set(kind.best_bounds)
    for bound in kind.bounds:
        assert model.objective_ <= fitted(Box(size), bound=bound, **options).objective_ * 1.01


@pytest.mark.parametrize("bound", ["intervals", "split"])
def test_a_fit_in_which_few_rows_count_is_a_fit_like_others(bound):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    model = fitted(Ball(0.05), rows[:, 0] > 0, rows, features="exact", bound=bound, loss="squared_hinge", gamma=2.3)
    assert model.gap_ <= 1e-6


def test_rows_far_from_0_are_fitted_as_those_around_it():
    near, far = fitted(Ball(0.1), bound="tangent"), fitted(Ball(0.1), bound="tangent", rows=X + 1e6)
    assert far.gap_ <= 1e-6
    assert_allclose(far.objective_, near.objective_, rtol=1e-6)


def test_sets_larger_than_any_feature_are_no_larger_than_all_features():
    model = fitted(Ball(0.1))
    push = model.feature_map_.push(X, Ball(1e3), bound="published").support(model.coef_[0])
    assert np.all(np.isfinite(push))
    with pytest.warns(CollapseWarning):
        assert fitted(Ball(1e3), bound="published").collapsed_


def test_a_model_that_was_trained_for_nothing_asks_what_to_certify_against():
    with pytest.raises(ValueError, match="trained for no set"):
        fitted(None).certify(X)
    assert 0 < np.mean(fitted(None).certify(X, Ball(0.05))) < 1


def test_more_uncertainty_costs_more_and_certifies_more():
    sizes = (0.0, 0.05, 0.1, 0.2)
    models = [fitted(Ball(size)) for size in sizes]
    assert np.all(np.diff([model.objective_ for model in models]) > 0)
    shares = [model.certify(X, Ball(0.1)).mean() for model in models]
    assert shares[2] > shares[0]


@pytest.mark.parametrize(
    ("uncertainty", "metadata", "common"),
    [
        (Ball(), {"X_radius": np.full(40, 0.1)}, Ball(0.1)),
        (Ball(2.0), {"X_radius": np.full(40, 0.05)}, Ball(0.1)),
        (Box(), {"X_std": np.full(X.shape, 0.1)}, Box(0.1)),
        (IntervalBox(), {"X_lower": X - 0.1, "X_upper": X + 0.1}, Box(0.1)),
        (Ellipsoid(), {"X_std": np.full(X.shape, 0.1)}, Ball(0.1)),
        (Ellipsoid(), {"X_cov": np.tile(0.01 * np.eye(2), (40, 1, 1))}, Ball(0.1)),
        (Ellipsoid(), {"X_factor": np.tile(0.1 * np.eye(2), (40, 1, 1))}, Ball(0.1)),
    ],
)
@pytest.mark.parametrize("features", ["fourier", "nystroem"])
def test_sets_stated_row_by_row_are_used_as_those_of_all_rows(features, uncertainty, metadata, common):
    own, same = (fitted(s, features=features, bound="tangent", **m) for s, m in ((uncertainty, metadata), (common, {})))
    assert_allclose(own.objective_, same.objective_, rtol=1e-6)
    assert own.row_uncertainty_
    with pytest.raises(ValueError, match="was fitted with the uncertainty of each row"):
        own.certify(X)


@pytest.mark.parametrize("features", ["fourier", "nystroem", "exact"])
def test_no_attack_within_a_certified_set_changes_a_prediction(features):
    rng = np.random.default_rng(2)
    model = fitted(Ball(0.1), features=features)
    sign = np.sign(model.decision_function(X))
    for norm in (1, 2, np.inf):
        held = model.certify(X, Ball(0.08, norm=norm))
        lowest = attacked(model, X, 0.08, norm, sign, rng)
        assert np.all(lowest[held] > 0)
        assert np.all(model.certified_margin(X, Ball(0.08, norm=norm)) <= lowest + 1e-9)
        radius = certified_radius(model, X, norm=norm).radius
        assert np.all(attacked(model, X, (1 - 1e-9) * radius[:, None], norm, sign, rng) > 0)
    assert np.mean(model.certify(X)) > 0.3


@pytest.mark.parametrize("features", ["fourier", "nystroem", "exact"])
def test_several_classes_are_fitted_one_against_the_rest(features):
    model = fitted(Ball(0.05), THREE, features=features, loss="logistic")
    parts = [fitted(Ball(0.05), k == THREE, features=features, loss="logistic", bound=model.bound_) for k in range(3)]
    assert_allclose(model.objective_, sum(part.objective_ for part in parts), rtol=1e-6)
    assert model.decision_function(X).shape == (40, 3)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.gap_ <= 1e-6


def test_weights_count_as_copies_and_the_order_of_rows_does_not_matter():
    weights = np.tile([1.0, 2.0, 3.0, 1.0], 10)
    repeated = np.repeat(np.arange(40), weights.astype(int))
    for features in ("fourier", "exact"):
        options = {"features": features, "bound": "tangent", "gamma": 1.0}
        one = fitted(Ball(0.1), sample_weight=weights, **options)
        other = fitted(Ball(0.1), LABELS[repeated], X[repeated], **options)
        assert_allclose(one.objective_, other.objective_, rtol=1e-6)
        turned = fitted(Ball(0.1), LABELS[::-1], X[::-1], sample_weight=weights[::-1], **options)
        assert_allclose(one.decision_function(X), turned.decision_function(X), atol=1e-4)


def test_a_feature_map_with_settings_of_its_own():
    map = RobustFourierFeatures(40, kernel="laplacian", gamma=0.5, random_state=3)
    model = RobustKernelClassifier(Ball(0.1), features=map, alpha=0.2).fit(X, LABELS)
    assert model.feature_map_.kernel == "laplacian"
    assert not hasattr(map, "gamma_")
    assert model.coef_.shape == (1, 40)
    for name, value in (("gamma", 1.0), ("n_components", 5)):
        with pytest.raises(ValueError, match=f"state {name} in the feature map"):
            RobustKernelClassifier(features=map, **{name: value}).fit(X, LABELS)


def test_an_uncertain_pipeline_hands_errors_on_in_the_units_of_the_features():
    rng = np.random.default_rng(0)
    rows, S = 100 * X + 7, rng.uniform(0, 20, X.shape)
    scaler = StandardScaler().fit(rows)
    last = RobustKernelClassifier(Box(), gamma=1.0, n_components=20, random_state=0, bound="tangent")
    pipe = make_uncertain_pipeline(StandardScaler(), last).fit(rows, LABELS, X_std=S)
    alone = last.fit(scaler.transform(rows), LABELS, X_std=S / scaler.scale_)
    assert_allclose(pipe.decision_function(rows), alone.decision_function(scaler.transform(rows)), atol=1e-6)
    held = alone.certify(scaler.transform(rows), X_std=S / scaler.scale_)
    assert_array_equal(pipe.certify(rows, X_std=S), held)
    assert 0 < held.mean() < 1


def test_a_collapse_is_proved_and_said():
    with pytest.warns(CollapseWarning, match="a smaller gamma"):
        model = fitted(Ball(5.0))
    assert model.collapsed_
    assert model.gap_ <= 1e-7


@pytest.mark.parametrize(
    ("uncertainty", "options", "words"),
    [
        (GaussianNoise(0.1), {}, "Gaussian noise has no bounds"),
        (ChanceConstraint(0.05, cov=np.eye(2)), {}, "how far linear scores go"),
        (Ball(-1.0), {}, "radius"),
        (0.1, {}, "give a set"),
        (None, {"X_std": np.ones_like(X)}, "say what it means"),
        (Box(), {}, "X_std"),
        (Box(0.1), {"features": "wavelets"}, "features='wavelets'"),
        (Box(0.1), {"features": SVC()}, r"SVC\(\)\): give .*RobustFourierFeatures"),
        (Box(0.1), {"bound": "water"}, r"features='nystroem', bound='water'.*'tangent'"),
        (Box(0.1), {"features": "fourier", "bound": "ball"}, r"bound='ball'.*'water'"),
        (Box(0.1), {"bound": 3}, "bound=3"),
        (Box(0.1), {"gamma": -1.0}, "gamma=-1.0"),
        (Box(0.1), {"alpha": 0.0}, "alpha=0.0"),
        (Box(0.1), {"loss": "exp"}, "loss='exp'"),
        (Box(0.1), {"n_components": 0}, "n_components=0"),
        (Box(half_widths=[0.1, 0.2, 0.3]), {}, "half_widths"),
    ],
)
def test_nonsense_is_refused(uncertainty, options, words):
    with pytest.raises(ValueError, match=words):
        fitted(uncertainty, **options)


def test_all_rows_as_landmarks_leave_nothing_to_choose():
    with pytest.raises(ValueError, match="all rows are landmarks"):
        RobustKernelClassifier(features="exact", n_components=5).fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:w = 0")
@pytest.mark.parametrize("features", ["fourier", "nystroem", "exact"])
@pytest.mark.parametrize("gamma", [1e-4, 0.01, 0.3, 10.0])
def test_trained_models_keep_their_word_on_more_data(features, gamma):
    data, rng = load_iris(), np.random.default_rng(5)
    rows, y = StandardScaler().fit_transform(data.data), (data.target == 1).astype(int)
    signs = 2.0 * y - 1
    for norm in (1, 2, np.inf):
        for size in (0.02, 0.2):
            model = fitted(Ball(size, norm=norm), y, rows, features=features, gamma=gamma, alpha=0.01)
            sets = model.feature_map_.push(rows, Ball(size, norm=norm), bound=model.bound_).against_labels(signs)
            hinges = np.maximum(1 - signs * model.decision_function(rows) + sets.support(model.coef_[0]), 0)
            assert np.all(1 - attacked(model, rows, size, norm, signs, rng) <= hinges + 1e-9)
            sign = np.sign(model.decision_function(rows))
            held = model.certify(rows, Ball(size, norm=norm))
            assert np.all(attacked(model, rows, size, norm, sign, rng)[held] > 0)
