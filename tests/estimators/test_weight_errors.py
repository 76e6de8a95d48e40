"""Fits for weights in error: against a conic solver, against every vertex, after pruning; and what is refused."""

import warnings
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    WeightError,
)
from holdfast._core.programs import ProximalSum
from holdfast.datasets import load_breast_cancer_errors
from holdfast.estimators import prune, pruning_path, worst_weight_loss
from holdfast.exceptions import CollapseWarning
from holdfast.losses import HuberizedHinge
from holdfast.solvers import StochasticProximal

AGREEMENT = 1e-6
LOSSES = ("hinge", "squared_hinge", "logistic", "huberized_hinge")
PENALTIES = ("l2", "l1", "box", None)
BEND = 4 * np.log(2)
PSI = {
    "hinge": lambda x: np.maximum(x, 0),
    "squared_hinge": lambda x: np.maximum(x, 0) ** 2,
    "logistic": lambda x: np.logaddexp(0, x - 1),
    "huberized_hinge": lambda x: HuberizedHinge().psi(x)[0],
}
CONVEX = {
    "hinge": cp.pos,
    "squared_hinge": lambda u: cp.square(cp.pos(u)),
    "logistic": lambda u: cp.logistic(u - 1),
    "huberized_hinge": lambda u: cp.huber(cp.pos(u - 1 + BEND), 2 * BEND) / (4 * BEND),
}


@pytest.fixture
def intervals(two_classes, rng):
    """Rows that cannot be separated, their labels, and half-widths some of which are 0."""
    X, y = two_classes(30, 3, separation=1.5)
    X[:2], y[:2] = X[0], (1.0, -1.0)
    return X, y, rng.uniform(0, 0.8, size=X.shape) * (rng.uniform(size=X.shape) > 0.2)


@pytest.fixture
def breast_cancer():
    data = load_breast_cancer_errors()
    scale = data.X.std(axis=0)
    return (data.X - data.X.mean(axis=0)) / scale, data.y, data.X_std / scale


def _penalty(w, penalty, alpha):
    return {"l2": alpha / 2 * cp.sum_squares(w), "l1": alpha * cp.norm1(w), "box": 0.0, None: 0.0}[penalty]


def _referee(X, y, lower, upper, delta, loss, penalty, alpha, kappa):
    """Return the optimum with one variable T_ij for each entry, above -y w z + delta |z| at both ends z of its interval."""
    (N, n), sign = X.shape, y[:, None]
    w, b, T = cp.Variable(n), cp.Variable(), cp.Variable((N, n))
    ends = [X + lower, X + upper]
    above = [
        cp.multiply(-sign * z, np.ones((N, 1)) @ cp.reshape(w, (1, n), order="C")) + delta * abs(z) <= T for z in ends
    ]
    if kappa < 1:
        # what does not depend on the rows' errors stays inside the loss
        half, middle = 0.5 * (upper - lower), X + 0.5 * (upper + lower)
        kinks = sign * delta * np.divide(np.clip(middle, -half, half), half, out=0 * X, where=half > 0)
        t = cp.sum(cp.multiply(half, cp.abs(np.ones((N, 1)) @ cp.reshape(w, (1, n), order="C") - kinks)), axis=1)
        u = 1 - cp.multiply(y, X @ w + b) + delta * np.sum(np.maximum(abs(middle), half), axis=1)
        losses, above = cp.sum(CONVEX[loss](u + kappa * t)) + (1 - kappa) * cp.sum(t), []
    else:
        losses = cp.sum(CONVEX[loss](1 - cp.multiply(y, b * np.ones(N)) + cp.sum(T, axis=1)))
    limits = [cp.abs(w) <= 1 / alpha] if penalty == "box" else []
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
    objective = cp.Minimize(losses + _penalty(w, penalty, alpha))
    return cp.Problem(objective, above + limits).solve(solver=cp.CLARABEL, **tight)


@pytest.mark.thin(5)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_fit_is_the_linear_program_with_a_variable_for_each_entry(loss, penalty, intervals):
    X, y, S = intervals
    turn = LOSSES.index(loss) + PENALTIES.index(penalty)
    delta, kappa = (0.3, 0.05, 0.8, 0.15)[turn % 4], 0.4 if turn % 3 == 0 else 1.0
    model = RobustLinearClassifier(
        Box(0.5), loss=loss, penalty=penalty, kappa=kappa, weight_error=WeightError(delta)
    ).fit(X, y, X_std=S)
    assert model.gap_ <= 1e-6
    expected = _referee(X, y, -0.5 * S, 0.5 * S, delta, loss, penalty, 1.0, kappa)
    assert model.objective_ == pytest.approx(expected, rel=AGREEMENT)


@pytest.mark.parametrize("loss", LOSSES)
def test_fit_to_intervals_on_one_side_is_that_program_too(loss, intervals):
    X, y, S = intervals
    lower, upper = -0.2 * S, 0.9 * S[::-1]
    model = RobustLinearClassifier(IntervalBox(), loss=loss, weight_error=WeightError(0.3))
    model.fit(X, y, X_lower=X + lower, X_upper=X + upper)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(_referee(X, y, lower, upper, 0.3, loss, "l2", 1.0, 1.0), rel=AGREEMENT)


@pytest.mark.thin(5)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_fit_to_exact_rows_asks_for_larger_margins(loss, penalty, intervals):
    X, y, _ = intervals
    model = RobustLinearClassifier(loss=loss, penalty=penalty, weight_error=WeightError(0.2)).fit(X, y)
    w, b = cp.Variable(3), cp.Variable()
    u = 1 + 0.2 * np.abs(X).sum(axis=1) - cp.multiply(y, X @ w + b)
    value = cp.sum(CONVEX[loss](u)) + _penalty(w, penalty, 1.0)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
    expected = cp.Problem(cp.Minimize(value), [cp.abs(w) <= 1] if penalty == "box" else []).solve("CLARABEL", **tight)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(expected, rel=AGREEMENT)


@pytest.mark.parametrize("sets", [None, Box(0.1)], ids=repr)
def test_more_features_than_rows_are_fitted_alike(sets, rng):
    X, y = rng.normal(size=(12, 30)), np.where(np.arange(12) % 2, 1.0, -1.0)
    for loss in LOSSES:
        model = RobustLinearClassifier(sets, loss=loss, weight_error=WeightError(0.05)).fit(X, y)
        half = np.full(X.shape, 0.0 if sets is None else 0.1)
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(_referee(X, y, -half, half, 0.05, loss, "l2", 1.0, 1.0), rel=AGREEMENT)


def test_rows_far_from_the_origin_are_those_near_it_with_larger_margins(intervals):
    """Moving the rows changes what errors of the weights do to them, and nothing else."""
    X, y, S = intervals
    X = X + 1e4
    for loss in ("hinge", "logistic"):
        model = RobustLinearClassifier(Box(0.2), loss=loss, weight_error=WeightError(1e-5)).fit(X, y, X_std=S)
        assert model.gap_ <= 1e-6
        w, b = model.coef_[0], model.intercept_
        worst = _attack(model, X, y, 0.2 * S, WeightError(1e-5), common=False)
        assert model.objective_ == pytest.approx(worst + 0.5 * w @ w, rel=1e-9)
        assert np.abs(b) > 1


def test_relative_errors_are_boxes(intervals):
    X, y, S = intervals
    l1 = np.abs(X).sum(axis=1, keepdims=True)
    for relative, own in ((True, l1 * np.ones(3)), ("componentwise", np.abs(X))):
        error = WeightError(0.1, relative, joint="bound")
        model = RobustLinearClassifier(weight_error=error).fit(X, y)
        same = RobustLinearClassifier(Box(0.1)).fit(X, y, X_std=own)
        assert model.objective_ == pytest.approx(same.objective_, rel=AGREEMENT)
        model = RobustLinearClassifier(Box(0.5), weight_error=error).fit(X, y, X_std=S)
        off = S if relative == "componentwise" else S.sum(axis=1, keepdims=True)
        same = RobustLinearClassifier(Box()).fit(X, y, X_std=0.5 * S + 0.1 * (own + 0.5 * off))
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(same.objective_, rel=AGREEMENT)


@pytest.mark.parametrize(
    ("sets", "relative"), [(None, False), (Ball(0.2), True), (Box(0.3), False), (Ellipsoid(0.2), "componentwise")]
)
def test_without_an_error_the_fit_is_the_plain_one(sets, relative, intervals):
    X, y, _ = intervals
    model = RobustLinearClassifier(sets, weight_error=WeightError(0.0, relative)).fit(X, y)
    assert_array_equal(model.coef_, RobustLinearClassifier(sets).fit(X, y).coef_)


def test_a_larger_error_costs_more_and_the_bound_no_less_than_what_is_exact(intervals):
    X, y, S = intervals
    for loss, relative in product(("hinge", "logistic"), (False, "componentwise")):
        costs = {
            joint: [
                RobustLinearClassifier(Box(0.5), loss=loss, weight_error=WeightError(delta, relative, joint=joint))
                .fit(X, y, X_std=S)
                .objective_
                for delta in (0.0, 0.1, 0.3)
            ]
            for joint in ("exact", "bound")
        }
        assert np.all(np.diff(costs["exact"]) > 0)
        assert np.all(np.array(costs["bound"]) >= np.array(costs["exact"]) * (1 - AGREEMENT))
        assert costs["bound"][2] > 1.01 * costs["exact"][2]


def _attack(model, X, y, S, error, *, common):
    """Return the largest loss over vertices of dw and of rows, dw common to all rows or one for each."""
    w, reach, psi = model.coef_[0], error.reach(model.coef_[0]), PSI[model.loss]
    signs = np.array(list(product((-1.0, 1.0), repeat=len(w))))
    by_error = np.array(
        [
            np.max([psi(1 - y * ((X + s * S) @ (w + e * reach) + model.intercept_)) for s in signs], axis=0)
            for e in signs
        ]
    )
    return by_error.sum(axis=1).max() if common else by_error.max(axis=0).sum()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("relative", [False, "componentwise"])
def test_worst_losses_are_those_of_the_vertices(relative, loss, intervals):
    X, y, S = intervals
    error = WeightError(0.3, relative)
    model = RobustLinearClassifier(Box(0.5), loss=loss, weight_error=error).fit(X, y, X_std=S)
    by_row = worst_weight_loss(model, X, y, common="bound", X_std=S)
    common = worst_weight_loss(model, X, y, X_std=S)
    assert by_row == pytest.approx(_attack(model, X, y, 0.5 * S, error, common=False), rel=1e-12)
    assert common == pytest.approx(_attack(model, X, y, 0.5 * S, error, common=True), rel=1e-12)
    assert common < by_row
    ridge = 0.5 * float(np.sum(model.coef_**2))
    assert by_row + ridge == pytest.approx(model.objective_, rel=1e-12)
    mixed = RobustLinearClassifier(Box(0.5), loss=loss, weight_error=error, kappa=0.3).fit(X, y, X_std=S)
    if loss != "squared_hinge":
        # whose slope is above 1, where what is outside of the loss need not make up for it
        assert worst_weight_loss(mixed, X, y, common="bound", X_std=S) < mixed.objective_


def test_what_is_printed_as_an_equality_for_a_common_error_is_a_bound(intervals):
    X, y, _ = intervals
    model = RobustLinearClassifier(weight_error=WeightError(1.0)).fit(X, y)
    assert worst_weight_loss(model, X, y, common="bound") > 1.2 * worst_weight_loss(model, X, y)
    one = [int(np.argmax(y)), int(np.argmin(y))]
    model.coef_, model.intercept_ = np.zeros((1, 3)), np.zeros(1)
    alone = [
        worst_weight_loss(model, X[one], y[one], sample_weight=weight, common=common)
        for weight, common in product(([1, 1e-300], [1e-300, 1]), ("exact", "bound"))
    ]
    assert_allclose(alone[::2], alone[1::2])


def test_a_common_error_at_zero_weights_is_a_norm_that_is_hard_to_compute(rng):
    """At w = 0, b = 1 rows +-a of the positive class cost |dw'a| together: the norm from l_inf to l_1."""
    A = rng.normal(size=(6, 5))
    X, y = np.vstack([A, -A, np.zeros((1, 5))]), np.append(np.ones(12), 0)
    with pytest.warns(CollapseWarning):
        model = RobustLinearClassifier(weight_error=WeightError(0.7)).fit(X, y)
    model.coef_, model.intercept_ = np.zeros((1, 5)), np.ones(1)
    norm = max(np.abs(A @ np.array(s)).sum() for s in product((-1, 1), repeat=5))
    assert worst_weight_loss(model, X, y) == pytest.approx(0.7 * norm + 2.0)


def test_real_data_are_certified_and_rows_in_boxes_to_the_same_gap(breast_cancer):
    X, y, S = breast_cancer
    for loss, sets, metadata in product(LOSSES, (None, Box(0.5)), ({}, {"X_std": S})):
        if (sets is None) == bool(metadata):
            continue
        model = RobustLinearClassifier(sets, loss=loss, weight_error=WeightError(0.05)).fit(X, y, **metadata)
        assert model.gap_ <= 1e-6
    model = RobustLinearClassifier(Box(0.5), penalty=None, weight_error=WeightError(0.05)).fit(X, y, X_std=S)
    assert model.gap_ <= 1e-6


@pytest.mark.thin(5)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sets", [None, Box(0.1)], ids=repr)
@pytest.mark.parametrize("relative", [False, True])
def test_pruned_models_keep_what_was_certified(relative, sets, loss, breast_cancer):
    X, y, S = breast_cancer
    error = WeightError(0.02 if relative else 0.1, relative, joint="bound" if relative else "exact")
    metadata = {} if sets is None else {"X_std": S}
    model = RobustLinearClassifier(sets, loss=loss, weight_error=error).fit(X, y, **metadata)
    for shares in ([0.0, 0.0, 0.0], [0.5, -0.5, 0.2]):
        model.coef_[0, :3] += shares * error.reach(model.coef_)[0, :3] - np.any(shares) * model.coef_[0, :3]
        thin = prune(model)
        assert_array_equal(thin.pruned_, (thin.coef_ == 0) & (model.coef_ != 0))
        assert_array_equal(thin.coef_[~thin.pruned_], model.coef_[~thin.pruned_])
        after = worst_weight_loss(thin, X, y, weight_error=WeightError(0.0), common="bound", **metadata)
        certified = worst_weight_loss(model, X, y, common="bound", **metadata)
        assert after <= certified
        if not np.any(shares):
            assert after + 0.5 * np.sum(thin.coef_**2) <= thin.objective_ == model.objective_
    assert np.all(thin.pruned_[0, :3])
    assert np.any(thin.coef_)


def test_pruning_takes_what_is_at_most_delta_and_leaves_the_model_alone(intervals):
    X, y, _ = intervals
    model = LogisticRegression().fit(X, y)
    model.coef_ = np.array([[0.2, -0.1, -0.7]])
    thin = prune(model, 0.2)
    assert_array_equal(thin.coef_, [[0.0, 0.0, -0.7]])
    assert_array_equal(thin.pruned_, [[True, True, False]])
    assert_array_equal(model.coef_, [[0.2, -0.1, -0.7]])
    assert not hasattr(model, "pruned_")
    assert_array_equal(thin.predict(X), thin.classes_[(X @ [0, 0, -0.7] + model.intercept_ > 0).astype(int)])
    assert_array_equal(prune(model, WeightError(0.15, relative=True)).coef_, [[0.2, 0.0, -0.7]])
    assert_array_equal(prune(LogisticRegression().fit(X, y).sparsify(), 1e9).coef_, np.zeros((1, 3)))
    assert prune(Ridge().fit(X, y), 1e9).coef_.shape == (3,)
    assert not prune(GaussianRobustClassifier(0.5).fit(X, y), 1e9).coef_.any()


def test_relative_pruning_is_by_class(several_classes):
    X, y = several_classes()
    model = LinearSVC().fit(X, y)
    model.coef_ = np.array([[10.0, 1.0, 3.0], [0.1, 0.01, 0.03], [0.0, 0.0, 1.0]])
    expected = [[10.0, 0.0, 3.0], [0.1, 0.0, 0.03], [0.0, 0.0, 1.0]]
    assert_array_equal(prune(model, WeightError(0.1, relative=True)).coef_, expected)


@pytest.mark.parametrize(
    ("model", "delta", "message"),
    [
        (LogisticRegression(), None, "trained for no weight_error"),
        (RobustLinearClassifier(), None, "trained for no weight_error"),
        (LogisticRegression(), -1.0, "delta=-1.0.: must be"),
        (LogisticRegression(), "much", "Give a number >= 0"),
        (LogisticRegression(), WeightError(0.1, "componentwise"), "makes none of them 0"),
    ],
)
def test_pruning_without_saying_what_is_refused(model, delta, message, intervals):
    with pytest.raises(ValueError, match=message):
        prune(clone(model).fit(*intervals[:2]), delta)


def test_pruning_needs_a_fitted_linear_model(intervals):
    with pytest.raises(NotFittedError):
        prune(LogisticRegression(), 0.1)
    with pytest.raises(ValueError, match="has no coef_"):
        prune(GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(*intervals[:2]), 0.1)


@pytest.mark.parametrize("relative", [False, True])
def test_path_is_made_of_fits_and_their_pruned_models(relative, intervals):
    X, y, S = intervals
    plain = RobustLinearClassifier(Box(0.2), loss="logistic", weight_error=WeightError(9.0, relative, joint="bound"))
    path = pruning_path(plain, X[5:], y[5:], [0.01, 0.2], X_val=X[:5], y_val=y[:5], X_std=S[5:])
    assert plain.weight_error.delta == 9.0
    assert_array_equal(path.deltas, [0.2, 0.01])
    for k, delta in enumerate(path.deltas):
        model = clone(plain).set_params(weight_error__delta=delta).fit(X[5:], y[5:], X_std=S[5:])
        thin = prune(model)
        assert_allclose(path.coefs[k], thin.coef_, atol=1e-5)
        assert path.n_nonzero[k] == np.count_nonzero(thin.coef_)
        assert path.objectives[k] == pytest.approx(model.objective_, rel=AGREEMENT)
        certified = worst_weight_loss(model, X[5:], y[5:], common="bound", X_std=S[5:])
        assert path.certified_losses[k] == pytest.approx(certified, rel=1e-4)
        loss = worst_weight_loss(thin, X[5:], y[5:], common="bound", weight_error=WeightError(0.0), X_std=S[5:])
        assert path.losses[k] == pytest.approx(loss, rel=1e-4)
        assert path.scores[k] == thin.score(X[:5], y[:5])
    assert np.all(path.losses <= path.certified_losses)
    assert np.all(path.gaps <= 1e-6)


def test_path_finds_its_own_errors(intervals):
    X, y, _ = intervals
    path = pruning_path(RobustLinearClassifier(), X, y, 3)
    largest = np.abs(RobustLinearClassifier().fit(X, y).coef_).max()
    assert_allclose(path.deltas, [largest, largest * np.sqrt(1e-3), largest * 1e-3], rtol=1e-5)
    path = pruning_path(RobustLinearClassifier(weight_error=WeightError(0.0, relative=True)), X, y, 2)
    assert 1 / 3 <= path.deltas[0] <= 1


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((LogisticRegression(), [0.1]), {}, "give a RobustLinearClassifier"),
        ((RobustLinearClassifierCV(), [0.1]), {}, "give a RobustLinearClassifier"),
        ((RobustLinearClassifier(), [-0.1]), {}, "deltas must be finite numbers >= 0"),
        ((RobustLinearClassifier(), [0.1]), {"X_val": [[0.0, 1.0, 2.0]]}, "give both or neither"),
        ((RobustLinearClassifier(weight_error=WeightError(0.1, "componentwise")), [0.1]), {}, "makes none of them 0"),
    ],
)
def test_paths_that_make_no_sense_are_refused(arguments, options, message, intervals):
    X, y, _ = intervals
    with pytest.raises(ValueError, match=message):
        pruning_path(arguments[0], X, y, arguments[1], **options)


def test_worst_losses_that_make_no_sense_are_refused(intervals, rng):
    X, y, S = intervals
    model = RobustLinearClassifier().fit(X, y)
    with pytest.raises(ValueError, match="give WeightError"):
        worst_weight_loss(model, X, y)
    with pytest.raises(ValueError, match="give 'exact' or 'bound'"):
        worst_weight_loss(model, X, y, weight_error=WeightError(0.1), common="some")
    with pytest.raises(TypeError, match="unexpected keyword argument 'X_noise'"):
        worst_weight_loss(model, X, y, weight_error=WeightError(0.1), X_noise=S)
    with pytest.raises(NotFittedError):
        worst_weight_loss(RobustLinearClassifier(), X, y)
    with pytest.raises(ValueError, match="give a RobustLinearClassifier"):
        worst_weight_loss(RobustLinearClassifierCV([0.1], cv=2).fit(X, y), X, y, weight_error=WeightError(0.1))
    wide = rng.normal(size=(30, 13))
    model = RobustLinearClassifier(weight_error=WeightError(0.1)).fit(wide, y)
    with pytest.raises(ValueError, match=r"13 features make 2\*\*13 vertices.*common='bound'"):
        worst_weight_loss(model, wide, y)
    assert worst_weight_loss(model, wide, y, common="bound") <= model.objective_


@pytest.mark.parametrize("relative", [False, "componentwise"])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_sparse_rows_and_boxes_are_those_of_dense_ones(relative, loss, intervals, rng):
    X, y, S = intervals
    X = X * (rng.uniform(size=X.shape) > 0.3)
    model = RobustLinearClassifier(Box(0.5), loss=loss, weight_error=WeightError(0.3, relative))
    full = model.fit(X, y, X_std=S).objective_
    assert clone(model).fit(sparse.csr_array(X), y, X_std=sparse.csr_array(S)).objective_ == pytest.approx(
        full, rel=2e-6
    )


def test_every_solver_that_fits_ends_at_the_same_objective(intervals):
    X, y, S = intervals
    for sets, metadata, solvers in (
        (Box(0.3), {"X_std": S}, ("semismooth", "newton", "quasi_newton", "newton_cg")),
        (Ball(0.3, np.inf), {}, ("semismooth", "newton", "quasi_newton", "newton_cg")),
        (None, {}, ("semismooth", "newton", "quasi_newton", "newton_cg", "clarabel")),
    ):
        error = WeightError(0.2)
        best = RobustLinearClassifier(sets, loss="logistic", weight_error=error).fit(X, y, **metadata).objective_
        for solver in solvers:
            model = RobustLinearClassifier(sets, loss="logistic", weight_error=error, solver=solver, tol=1e-5)
            assert model.fit(X, y, **metadata).objective_ == pytest.approx(best, rel=1e-5)
    error = WeightError(0.2, joint="bound")
    best = RobustLinearClassifier(Box(0.3), penalty="l1", weight_error=error).fit(X, y, X_std=S).objective_
    for solver in ("interior_point", "clarabel", "highs", "semismooth"):
        model = RobustLinearClassifier(Box(0.3), penalty="l1", weight_error=error, solver=solver, tol=1e-5)
        assert model.fit(X, y, X_std=S).objective_ == pytest.approx(best, rel=1e-5)


def test_bound_for_other_sets_is_their_support_and_a_margin_for_the_rest(intervals):
    X, y, _ = intervals
    model = RobustLinearClassifier(Ball(0.3), weight_error=WeightError(0.2, joint="bound")).fit(X, y)
    w, b = model.coef_[0], model.intercept_
    farthest = np.abs(X).sum(axis=1) + 0.3 * np.sqrt(3)
    losses = np.maximum(1 - y * (X @ w + b) + 0.3 * np.linalg.norm(w) + 0.2 * farthest, 0)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(losses.sum() + 0.5 * w @ w, rel=1e-12)


@pytest.mark.parametrize("sets", [None, Box(0.3)], ids=repr)
def test_stochastic_steps_and_parts_know_the_margins_of_their_rows(sets, intervals, rng):
    X, y, S = intervals
    metadata = {} if sets is None else {"X_std": S}
    model = RobustLinearClassifier(sets, loss="logistic", alpha=0.0, weight_error=WeightError(0.2))
    [problem] = model._problems(X, y, None, metadata)
    view, theta = problem.view(ProximalSum), rng.normal(size=4)
    parts = [view.gradient(rows, np.ones(len(rows)), theta) for rows in (np.arange(20)[::-1], np.arange(20, 30))]
    assert_allclose(np.sum(parts, axis=0), problem.value_and_gradient(theta)[1])
    stream = RobustLinearClassifier(
        sets, weight_error=WeightError(0.2), solver=StochasticProximal(eta0=0.1, batch_size=5)
    )
    whole = clone(stream).partial_fit(X, y, classes=[-1, 1], **metadata)
    for rows in (slice(0, 10), slice(10, 30)):
        stream.partial_fit(X[rows], y[rows], classes=[-1, 1], **{name: value[rows] for name, value in metadata.items()})
    assert_allclose(stream.coef_, whole.coef_)
    plain = clone(stream).set_params(weight_error=None).partial_fit(X, y, classes=[-1, 1], **metadata)
    assert np.abs(whole.coef_ - plain.coef_).max() > 1e-3


def test_several_classes_have_errors_of_their_own(several_classes):
    X, y = several_classes()
    model = RobustLinearClassifier(loss="logistic", weight_error=WeightError(0.2)).fit(X, y)
    assert model.gap_ <= 1e-6
    parts = [RobustLinearClassifier(loss="logistic", weight_error=WeightError(0.2)).fit(X, y == k) for k in range(3)]
    assert model.objective_ == pytest.approx(sum(part.objective_ for part in parts), rel=AGREEMENT)
    by_class = [worst_weight_loss(part, X, y == k) for k, part in enumerate(parts)]
    assert worst_weight_loss(model, X, y) == pytest.approx(sum(by_class), rel=1e-4)


def test_weights_collapse_to_the_best_constant_where_errors_are_large(two_classes):
    """Rows ask for margins of their own, so that the best intercept is not that of equal rows."""
    X, y = two_classes(30, 2, positives=10)
    for loss in LOSSES:
        model = RobustLinearClassifier(Ball(30.0), loss=loss, weight_error=WeightError(0.1, joint="bound"))
        with pytest.warns(CollapseWarning):
            model.fit(X, y)
        target = 1 + 0.1 * (np.abs(X).sum(axis=1) + 30 * np.sqrt(2))
        grid = np.linspace(-10, 10, 20001)
        best = min(PSI[loss](target - y * b).sum() for b in grid)
        assert not model.coef_.any()
        assert model.objective_ == pytest.approx(best, rel=1e-5)


def test_parameters_are_cloned_searched_and_printed(intervals):
    X, y, _ = intervals
    error = WeightError(0.1, relative=True)
    assert repr(error) == "WeightError(delta=0.1, relative=True)"
    assert error == WeightError(0.1, True)
    assert error != WeightError(0.1)
    model = RobustLinearClassifier(weight_error=error)
    assert clone(model).weight_error == error
    assert clone(model).weight_error is not error
    search = GridSearchCV(model, {"weight_error__delta": [0.0, 0.1], "weight_error__relative": [False, True]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        search.fit(X, y)
    assert search.best_estimator_.weight_error.delta in (0.0, 0.1)
    assert error.delta == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_error": 0.1}, r"weight_error=0.1\): give WeightError"),
        ({"weight_error": WeightError(-0.1)}, "delta=-0.1.: must be"),
        ({"weight_error": WeightError(0.1), "uncertainty": GaussianNoise(0.1)}, "no closed form"),
        ({"weight_error": WeightError(0.1), "uncertainty": GaussianNoise(0.1) + Box(0.1)}, "no closed form"),
        ({"weight_error": WeightError(0.1), "uncertainty": Ball(0.1)}, "joint='bound'"),
        ({"weight_error": WeightError(0.1), "solver": "interior_point", "uncertainty": Box(0.1)}, "Solvers that fit"),
    ],
)
def test_wrong_errors_are_refused_by_quoting_them(options, message, intervals):
    with pytest.raises(ValueError, match=message):
        RobustLinearClassifier(**options).fit(*intervals[:2])


def test_rows_that_can_be_separated_whatever_happens_leave_no_best_model(rng):
    """Far out the errors' own kinks do not matter; near them they must not be taken for what is far out."""
    X, y = np.array([[2.0, 0.3], [3.0, -0.2], [-2.0, 0.1], [-3.0, 0.2]]), np.array([1, 1, 0, 0])
    options = {"loss": "logistic", "penalty": None, "weight_error": WeightError(0.3)}
    with pytest.raises(ValueError, match="no best model"):
        RobustLinearClassifier(Box(0.5), **options).fit(X, y)
    model = RobustLinearClassifier(Box(2.5), **options).fit(X, y)
    assert model.gap_ <= 1e-6


def test_intervals_longer_one_way_leave_no_loss_below_zero():
    """Rows in the middle of their intervals face no negative push, whatever share of it is outside of the loss."""
    model = RobustLinearClassifier(
        IntervalBox(), weight_error=WeightError(1.0), kappa=0.0, alpha=1e-3, fit_intercept=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model.fit([[1.0], [-1.0]], [1, 0], X_lower=[[1.0], [-2.0]], X_upper=[[2.0], [-1.0]])
    assert 0 <= model.lower_bound_ <= model.objective_
    w = np.append(np.linspace(-5, 5, 10_001), 5 / 3)  # the kink of the loss too
    # rows 1.5 and -1.5 with half-widths 0.5: delta max(|x|, s) inside the loss, s |w - y delta clip(x / s)| outside of it
    values = 2 * (np.maximum(1 + 1.5 - 1.5 * w, 0) + 0.5 * np.abs(w - 1)) + 5e-4 * w**2
    assert model.objective_ == pytest.approx(values.min(), rel=1e-6)


def test_worst_weight_loss_asks_for_the_sets_that_the_model_was_fitted_with(two_classes):
    X, y = two_classes(20, 2)
    model = RobustLinearClassifier(Box(), weight_error=WeightError(0.1)).fit(X, y, X_std=np.full(X.shape, 0.1))
    with pytest.raises(ValueError, match="Pass X_std"):
        worst_weight_loss(model, X, y)


@pytest.mark.parametrize("delta", [True, "a", np.array([0.1, 0.2])])
def test_what_is_no_error_of_weights_is_named(delta, two_classes):
    X, y = two_classes(20, 2)
    model = RobustLinearClassifier().fit(X, y)
    with pytest.raises(ValueError, match="delta"):
        prune(model, delta)
