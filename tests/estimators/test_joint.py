"""RobustLinearClassifier(multiclass="joint"): against a conic solver, other software, brute force, and itself."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier, RobustLinearClassifierCV
from holdfast._data import rows_of
from holdfast._problems.max_of_pairs import MaxOfPairsProblem
from holdfast._training.training import train
from holdfast.estimators import radius_path
from holdfast.exceptions import CollapseWarning
from holdfast.losses import CrossEntropy, MaxHinge

SETS = ("ball", "cube", "diamond", "X_std_box", "X_std", "intervals")


def _joint(*args, **options):
    return RobustLinearClassifier(*args, multiclass="joint", **options)


def _sets(name, rng, X):
    """Return a set, its metadata, and a function of (i, v) that returns h_i(v) for cvxpy."""
    s, size = rng.uniform(0, 0.6, size=X.shape), 0.3
    low, high = -0.4 * s, s[::-1]
    return {
        "ball": (Ball(size), {}, lambda i, v: size * cp.norm(v)),
        "cube": (Ball(size, np.inf), {}, lambda i, v: size * cp.norm1(v)),
        "diamond": (Ball(size, 1), {}, lambda i, v: size * cp.norm_inf(v)),
        "X_std_box": (Box(0.8), {"X_std": s}, lambda i, v: 0.8 * (s[i] @ cp.abs(v))),
        "X_std": (Ellipsoid(0.8), {"X_std": s}, lambda i, v: 0.8 * cp.norm(cp.multiply(s[i], v))),
        "intervals": (
            IntervalBox(),
            {"X_lower": X + low, "X_upper": X + high},
            lambda i, v: cp.sum(cp.maximum(cp.multiply(low[i], v), cp.multiply(high[i], v))),
        ),
    }[name]


def _optimum(X, y, weights, support, alpha, fit_intercept, loss="hinge"):
    K = int(y.max()) + 1
    W, b = cp.Variable((K, X.shape[1])), cp.Variable(K)
    total = []
    for i, (x, k) in enumerate(zip(X, y, strict=True)):
        leads = [(W[k] - W[c]) @ x + (b[k] - b[c] if fit_intercept else 0) for c in range(K) if c != k]
        worst = [support(i, W[c] - W[k]) - lead for c, lead in zip((c for c in range(K) if c != k), leads, strict=True)]
        table = cp.hstack([0, *(w + (loss == "hinge") for w in worst)])
        total.append(cp.max(table) if loss == "hinge" else cp.log_sum_exp(table))
    problem = cp.Problem(cp.Minimize(weights @ cp.hstack(total) + alpha * cp.sum_squares(W)))
    problem.solve(solver=cp.CLARABEL)
    return problem.value, W.value


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("sizes", [(8, 7, 6), pytest.param((6, 5, 7, 4), marks=pytest.mark.slow)])
def test_optimum_is_that_of_a_conic_solver(several_classes, rng, name, sizes, fit_intercept):
    X, y = several_classes(sizes, 3)
    uncertainty, metadata, support = _sets(name, rng, X)
    weights = rng.uniform(0.3, 2, size=len(y))
    model = _joint(uncertainty, alpha=0.4, fit_intercept=fit_intercept).fit(X, y, weights, **metadata)
    optimum, W = _optimum(X, y, weights, support, 0.4, fit_intercept)
    assert model.gap_ <= 1e-6
    assert_allclose(model.objective_, optimum, rtol=2e-6)
    assert model.lower_bound_ <= optimum * (1 + 1e-7)
    assert_allclose(model.coef_, W - W.mean(axis=0), atol=2e-3)
    assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("name", ["ball", "X_std_box"])
def test_cross_entropy_is_that_of_a_conic_solver(several_classes, rng, name):
    X, y = several_classes((6, 5, 7), 2)
    uncertainty, metadata, support = _sets(name, rng, X)
    model = _joint(uncertainty, loss="logistic", alpha=0.4).fit(X, y, **metadata)
    assert model.gap_ <= 1e-6
    assert_allclose(model.objective_, _optimum(X, y, np.ones(18), support, 0.4, True, "logistic")[0], rtol=2e-6)
    assert_allclose(model.predict_proba(X), softmax(model.decision_function(X), axis=1), rtol=1e-12)
    assert np.array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_two_classes_are_the_binary_problem_and_what_limits_to_it(two_classes, loss):
    X, y = two_classes(30, 3)
    joint, plain = (RobustLinearClassifier(Ball(0.3), loss=loss, multiclass=m).fit(X, y) for m in ("joint", "ovr"))
    assert np.array_equal(joint.coef_, plain.coef_)
    # a third class of next to no weight, whose rows lie where the others' do not reach, changes next to nothing
    Z = np.vstack([X, [[0.0, 0.0, 0.0]]])
    labels, weights = np.append(y, 5.0), np.append(np.ones(30), 1e-9)
    third = _joint(Ball(0.3), loss=loss, tol=1e-9).fit(Z, labels, weights)
    # its weights halfway between those of the two, the ridge (alpha / 3) sum |w_k - w_l|^2 is that of the pair
    assert_allclose(third.objective_, plain.objective_, rtol=1e-6)


def test_two_classes_as_a_joint_problem_have_the_optimum_of_one(two_classes):
    X, y = two_classes(30, 3)
    for loss, joint in (("hinge", MaxHinge()), ("logistic", CrossEntropy())):
        model = RobustLinearClassifier(Ball(0.3), loss=loss, alpha=0.6, tol=1e-9).fit(X, y)
        codes = (y > 0).astype(np.intp)
        problem = MaxOfPairsProblem(rows_of(X), codes, np.ones(30), joint, Ball(0.3).at(X, {}), 0.6)
        found, proof = train(problem, tol=1e-9, max_iter=500)
        W, b = problem.split(found.parameters)
        assert_allclose(proof.objective, model.objective_, rtol=1e-8)
        assert_allclose(W[1] - W[0], model.coef_[0], atol=1e-4)
        assert_allclose(b[1] - b[0], model.intercept_[0], atol=1e-4)


def test_without_uncertainty_it_is_the_svm_of_crammer_and_singer():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    C = 0.5
    theirs = LinearSVC(multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-9, max_iter=200000).fit(X, y)
    ours = _joint(alpha=0.5 / C, fit_intercept=False).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_ - theirs.coef_.mean(axis=0), atol=1e-4)


def test_names_and_order_of_classes_and_rows_do_not_matter(several_classes, rng):
    X, y = several_classes((9, 6, 7, 5), 3)
    model = _joint(Ball(0.2), tol=1e-9).fit(X, y)
    swap, order = rng.permutation(4), rng.permutation(len(y))
    other = _joint(Ball(0.2), tol=1e-9).fit(X[order], swap[y][order])
    assert_allclose(other.objective_, model.objective_, rtol=1e-8)
    assert_allclose(other.coef_[swap], model.coef_, atol=1e-4)


def test_units_do_not_matter(several_classes):
    X, y = several_classes()
    # the least smoothing, 1e-10 a row, leaves a gap of about 1e-9 where rows cost as little as here
    model = _joint(Ball(0.2), alpha=0.5, tol=5e-9).fit(X, y)
    other = _joint(Ball(0.2 * 8), alpha=0.5 * 64, tol=5e-9).fit(8 * X, y)
    assert_allclose(other.objective_, model.objective_, rtol=1e-8)
    assert_allclose(8 * other.coef_, model.coef_, atol=1e-4)


def test_weights_are_repetitions(several_classes, rng):
    X, y = several_classes()
    times = rng.integers(1, 4, size=len(y))
    weighted = _joint(Ball(0.2), tol=1e-9).fit(X, y, times)
    repeated = _joint(Ball(0.2), tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-8)


def test_objective_is_the_plain_one_at_the_worst_data(several_classes, rng):
    X, y = several_classes()
    model = _joint(Ball(0.4), alpha=0.3).fit(X, y)

    def cost(Z):
        scores = model.decision_function(Z)
        return np.max(1.0 * (y[:, None] != np.arange(3)) + scores - scores[np.arange(len(y)), y][:, None], axis=1)

    ridge = 0.3 * np.sum(model.coef_**2)
    worst = model.worst_case_data(X, y)
    assert np.all(np.linalg.norm(worst - X, axis=1) <= 0.4 + 1e-12)
    assert_allclose(cost(worst).sum() + ridge, model.objective_, rtol=1e-10)
    for _ in range(300):
        moves = rng.normal(size=X.shape)
        moves *= 0.4 / np.linalg.norm(moves, axis=1, keepdims=True)
        assert np.all(cost(X + moves) <= cost(worst) + 1e-10)


def test_larger_sets_cost_more(several_classes):
    X, y = several_classes()
    costs = [_joint(Ball(r)).fit(X, y).objective_ for r in (0.0, 0.1, 0.3, 0.6)]
    assert np.all(np.diff(costs) > 0)


@pytest.mark.parametrize(("sizes", "expected"), [((8, 8, 8), 24.0), ((20, 4, 5), 18.0)])
def test_overwhelming_sets_collapse_and_say_so(several_classes, sizes, expected):
    X, y = several_classes(sizes)
    with pytest.warns(CollapseWarning):
        model = _joint(Ball(50.0)).fit(X, y)
    assert model.collapsed_
    assert not np.any(model.coef_)
    assert_allclose(model.objective_, expected, rtol=1e-12)
    assert len(set(model.predict(X))) == 1


def test_sparse_rows_give_what_dense_ones_do(several_classes, rng):
    X, y = several_classes()
    X = X * (rng.uniform(size=X.shape) < 0.6)
    dense, thin = (_joint(Ball(0.1), tol=1e-9).fit(Z, y) for Z in (X, sparse.csr_array(X)))
    assert_allclose(thin.coef_, dense.coef_, atol=1e-6)


def test_more_features_than_rows(rng):
    X, y = rng.normal(size=(15, 60)), np.repeat([0, 1, 2], 5)
    model = _joint(Ball(0.2)).fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.score(X, y) == 1.0


def test_warm_start_ends_where_a_cold_one_does(several_classes):
    X, y = several_classes()
    model = _joint(Ball(0.3), warm_start=True, tol=1e-9).fit(X, y)
    again = clone(model).fit(X, y)
    again.set_params(uncertainty=Ball(0.31)).fit(X, y)
    cold = _joint(Ball(0.31), tol=1e-9).fit(X, y)
    assert_allclose(again.objective_, cold.objective_, rtol=1e-8)


@pytest.mark.thin(6)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_real_data_are_certified(load, fit_intercept):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    for uncertainty in (None, Ball(0.1), Ball(1.0), Ball(0.1, np.inf)):
        assert _joint(uncertainty, fit_intercept=fit_intercept).fit(X, y).gap_ <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_digits_are_certified(fit_intercept):
    X, y = load_digits(return_X_y=True)
    for uncertainty in (None, Ball(1.0), Ball(0.5, np.inf)):
        assert _joint(uncertainty, fit_intercept=fit_intercept).fit(X[:600], y[:600]).gap_ <= 1e-6


@pytest.mark.slow
def test_cross_validation_and_paths_train_jointly(several_classes):
    X, y = several_classes((20, 20, 20))
    model = RobustLinearClassifierCV([0.4, 0.1], multiclass="joint", cv=3).fit(X, y)
    plain = _joint(Ball(model.radius_)).fit(X, y)
    assert_allclose(model.objective_, plain.objective_, rtol=2e-6)
    assert model.cv_results_["max_gap"].max() <= 1e-6
    path = radius_path(X, y, [0.4, 0.1], multiclass="joint")
    assert path.coefs.shape == (2, 3, 3)
    assert_allclose(path.objectives[0], _joint(Ball(0.4)).fit(X, y).objective_, rtol=2e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        assert radius_path(X, y, 3, multiclass="joint").gaps.max() <= 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {"multiclass": "crammer_singer"},
        {"loss": "squared_hinge"},
        {"penalty": "l1"},
        {"penalty": None},
        {"alpha": 0.0},
        {"kappa": 0.5},
        {"uncertainty": GaussianNoise(0.1)},
        {"uncertainty": GaussianNoise(0.1) + Ball(0.1)},
    ],
    ids=str,
)
def test_settings_that_it_does_not_take_are_refused(several_classes, settings):
    X, y = several_classes()
    name, value = next(iter(settings.items()))
    with pytest.raises(ValueError, match=f"RobustLinearClassifier.*{name}") as caught:
        RobustLinearClassifier(**{"multiclass": "joint"} | settings).fit(X, y)
    assert repr(value)[:12] in str(caught.value)
    assert "ovr" in str(caught.value)


def test_rows_in_parts_are_not_taken():
    assert not hasattr(_joint(Ball(0.1)), "partial_fit")
    assert hasattr(RobustLinearClassifier(Ball(0.1)), "partial_fit")
