"""RobustLinearClassifier: brute force, the theorems of the corrected interval report, and what users meet."""

import pickle
import warnings
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast.exceptions import CollapseWarning
from holdfast.losses import GaussianHinge

LOSSES = ("hinge", "squared_hinge", "logistic", "huberized_hinge")
PLAIN = {
    "hinge": lambda x: np.maximum(x, 0.0),
    "squared_hinge": lambda x: np.maximum(x, 0.0) ** 2,
    "logistic": lambda x: np.logaddexp(0.0, x - 1),
    "huberized_hinge": lambda x: _huber(x - 1, 4 * np.log(2)),
}


def _huber(x, c):
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


def _plain_loss(model, X, y):
    """Return the plain loss of a binary model on data with labels -1 and +1, summed."""
    return float(np.sum(PLAIN[model.loss](1 - y * (X @ model.coef_[0] + model.intercept_[0]))))


@pytest.fixture(params=LOSSES)
def loss(request):
    return request.param


@pytest.fixture
def intervals(two_classes, rng):
    """Rows that nothing separates, labels -1 and +1, half-widths by entry."""
    X, y = two_classes(24, 3, separation=0.6, positives=10)
    X[:2], y[:2] = X[0], (1.0, -1.0)
    return X, y, rng.uniform(0.05, 0.6, size=X.shape)


# brute force


@pytest.mark.parametrize("rho", [0.4, 1.7])
def test_no_vertex_of_three_boxes_costs_more_than_the_worst_case_data_and_these_are_a_vertex(loss, rho, rng):
    X, y, S = rng.normal(size=(3, 3)), np.array([1.0, -1.0, 1.0]), rng.uniform(0.1, 1, size=(3, 3))
    model = RobustLinearClassifier(Box(rho), loss=loss, alpha=0.1).fit(X, y, X_std=S)
    vertices = X + rho * S * np.array(list(product([-1.0, 1.0], repeat=9))).reshape(-1, 3, 3)
    fitted = (model.coef_, model.intercept_)
    for w, b in [fitted, *((rng.normal(size=(1, 3)), rng.normal(size=1)) for _ in range(5))]:
        model.coef_, model.intercept_ = w, b
        costs = [_plain_loss(model, Z, y) for Z in vertices]
        worst = model.worst_case_data(X, y, X_std=rho * S)
        assert _plain_loss(model, worst, y) == pytest.approx(max(costs), rel=1e-12)
        assert_allclose(worst, X - rho * y[:, None] * S * np.sign(w), rtol=1e-12)
    model.coef_, model.intercept_ = fitted
    worst = model.worst_case_data(X, y, X_std=rho * S)
    ridge = 0.05 * float(np.sum(model.coef_**2))
    assert model.objective_ == pytest.approx(_plain_loss(model, worst, y) + ridge, rel=1e-12)


@pytest.mark.thin(2)
def test_objective_is_attained_by_the_worst_case_data_and_beaten_by_no_sampled_data(loss, intervals, rng):
    X, y, S = intervals
    S = 0.4 * S
    cases = [
        (Ball(0.12), {}),
        (Ball(0.12, 1), {}),
        (Ball(0.12, 3), {}),
        (Ball(0.5), {"X_radius": S[:, 0]}),
        (Box(), {"X_std": S}),
        (IntervalBox(), {"X_lower": X - S, "X_upper": X + 0.2 * S}),
        (Ellipsoid(0.5), {"X_std": S}),
        (Ball(0.1) + IntervalBox(), {"X_lower": X - S, "X_upper": X + 0.2 * S}),
    ]
    for sets, metadata in cases:
        model = RobustLinearClassifier(sets, loss=loss, penalty="l1", alpha=0.2).fit(X, y, **metadata)
        size = getattr(sets, "radius", None) or 1.0
        stated = metadata if "X_lower" in metadata else {name: size * value for name, value in metadata.items()}
        worst = model.worst_case_data(X, y, **stated)
        bound = sets.at(X, metadata)
        assert np.all(bound.contains(worst - X, slack=1e-6))
        price = 0.2 * np.abs(model.coef_).sum()
        assert model.objective_ == pytest.approx(_plain_loss(model, worst, y) + price, rel=1e-9)
        for errors in bound.sample(rng, 100, 3):
            assert _plain_loss(model, X + errors, y) + price <= model.objective_ * (1 + 1e-12)


# the theorems of the corrected report


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rho", [0.3, 1.1])
def test_hinge_with_intervals_is_the_linear_program_and_its_dual(kappa, rho, intervals):
    """A5 and A6: ROBLP at kappa = 1, SPLP at 0."""
    X, y, S = intervals
    (n, d), sigma = X.shape, S.sum(axis=0)
    model = RobustLinearClassifier(Box(rho), penalty=None, kappa=kappa)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        model.fit(X, y, X_std=S)
    outside, inside = (1 - kappa) * rho * sigma, kappa * rho * S
    cost = np.concatenate([outside, outside, [0.0], np.ones(n)])
    A = np.column_stack([-y[:, None] * X + inside, y[:, None] * X + inside, -y, -np.eye(n)])
    bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n
    primal = linprog(cost, A_ub=A, b_ub=-np.ones(n), bounds=bounds)
    assert model.objective_ == pytest.approx(primal.fun, rel=1e-6)
    pull = (y[:, None] * X).T
    rows, room = np.vstack([pull - inside.T, -pull - inside.T]), np.concatenate([outside, outside])
    dual = linprog(-np.ones(n), A_ub=rows, b_ub=room, A_eq=y[None], b_eq=[0.0], bounds=[(0, 1)] * n)
    assert -dual.fun == pytest.approx(primal.fun, rel=1e-7)
    lam = y * model.proof_weights_[0]
    assert lam.sum() == pytest.approx(model.lower_bound_, rel=1e-9)
    assert np.all((lam >= -1e-12) & (lam <= 1 + 1e-12))
    assert abs(y @ lam) <= 1e-9
    assert np.all(np.abs(pull @ lam) <= (inside.T @ lam + outside) * (1 + 1e-9) + 1e-9)


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_logistic_and_its_quadratic_approximation_have_their_entropies_for_duals(kappa, intervals):
    """A7 and A8: max H(lam), and max c lam'(1 - lam) with c = 4 ln 2, over the feasible set of the linear program's dual."""
    X, y, S = intervals
    rho, lam = 0.4, cp.Variable(len(y))
    limits = rho * (kappa * S.T @ lam + (1 - kappa) * S.sum(axis=0))
    feasible = [cp.abs((y[:, None] * X).T @ lam) <= limits, y @ lam == 0, lam >= 0, lam <= 1]
    c = 4 * np.log(2)
    for name, value in (
        ("logistic", cp.sum(cp.entr(lam) + cp.entr(1 - lam))),
        ("huberized_hinge", c * (cp.sum(lam) - cp.sum_squares(lam))),
    ):
        model = RobustLinearClassifier(Box(rho), loss=name, penalty=None, kappa=kappa, tol=1e-8).fit(X, y, X_std=S)
        best = cp.Problem(cp.Maximize(value), feasible).solve(solver=cp.CLARABEL)
        assert model.objective_ == pytest.approx(best, rel=1e-6)
        # both duals are strictly concave, so their argmax is one: the slopes of the losses
        assert_allclose(y * model.proof_weights_[0], lam.value, atol=2e-3)
        u = -y * (X @ model.coef_[0] + model.intercept_[0]) + kappa * rho * S @ np.abs(model.coef_[0])
        slopes = 1 / (1 + np.exp(-u)) if name == "logistic" else np.clip((u + c) / (2 * c), 0, 1)
        assert_allclose(y * model.proof_weights_[0], slopes, atol=2e-3)


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_ridge_costs_the_dual_what_the_boxes_do_not_bear(kappa, intervals):
    """A16: max 1'lam - |(|z| - c)_+|^2 / 2 alpha, w = sgn(z) (|z| - c)_+ / alpha."""
    X, y, S = intervals
    rho, alpha, lam = 0.7, 0.5, cp.Variable(len(y))
    z = (y[:, None] * X).T @ lam
    c = rho * (kappa * S.T @ lam + (1 - kappa) * S.sum(axis=0))
    value = cp.sum(lam) - cp.sum_squares(cp.pos(cp.abs(z) - c)) / (2 * alpha)
    best = cp.Problem(cp.Maximize(value), [y @ lam == 0, lam >= 0, lam <= 1]).solve(solver=cp.CLARABEL)
    model = RobustLinearClassifier(Box(rho), alpha=alpha, kappa=kappa, tol=1e-8).fit(X, y, X_std=S)
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    w = np.sign(z.value) * np.maximum(np.abs(z.value) - c.value, 0) / alpha
    assert_allclose(model.coef_[0], w, atol=1e-4)


def test_a_larger_share_inside_of_the_loss_costs_less(loss, intervals):
    """A3; the squared hinge, whose slope exceeds 1, is excepted."""
    X, y, S = intervals
    costs = [
        RobustLinearClassifier(Box(0.5), loss=loss, kappa=kappa).fit(X, y, X_std=S).objective_
        for kappa in (0.0, 0.3, 0.7, 1.0)
    ]
    if loss != "squared_hinge":
        assert np.all(np.diff(costs) <= 1e-5)


@pytest.mark.parametrize("name", ["logistic", "huberized_hinge"])
def test_worst_case_rows_weighted_by_their_slopes_balance_where_weights_are_not_zero(name, intervals):
    """A9 and A10: Z'(y lam) = 0 on the support of w."""
    X, y, S = intervals
    rho = 0.3
    model = RobustLinearClassifier(Box(rho), loss=name, penalty=None, tol=1e-9).fit(X, y, X_std=S)
    Z = model.worst_case_data(X, y, X_std=rho * S)
    pull = Z.T @ model.proof_weights_[0]
    used = model.coef_[0] != 0
    assert np.any(used)
    assert_allclose(pull[used], 0, atol=1e-3)
    assert np.all(
        np.abs(X.T @ model.proof_weights_[0])[~used] <= (rho * S.T @ (y * model.proof_weights_[0]))[~used] + 1e-6
    )


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_weights_collapse_from_the_published_radius_on(kappa, intervals):
    """A11: for the logistic loss at any balance of the classes, for the hinge at equal classes."""
    X, y, S = intervals
    share = np.where(y > 0, np.mean(y < 0), np.mean(y > 0))
    radius = np.max(np.abs(X.T @ (y * share)) / (kappa * S.T @ share + (1 - kappa) * S.sum(axis=0)))
    even = np.concatenate([np.flatnonzero(y > 0)[:10], np.flatnonzero(y < 0)[:10]])
    hinge = np.max(np.abs(X[even].T @ y[even]) / S[even].sum(axis=0))
    for name, rows, critical in (("logistic", slice(None), radius), ("hinge", even, hinge)):
        below = RobustLinearClassifier(Box(0.98 * critical), loss=name, penalty=None, kappa=kappa)
        below.fit(X[rows], y[rows], X_std=S[rows])
        assert not below.collapsed_
        assert np.any(below.coef_)
        above = RobustLinearClassifier(Box(1.02 * critical), loss=name, penalty=None, kappa=kappa)
        with pytest.warns(CollapseWarning):
            above.fit(X[rows], y[rows], X_std=S[rows])
        assert above.collapsed_
        assert above.gap_ <= 1e-6
        assert not np.any(above.coef_)


def test_without_a_minimum_the_call_is_refused_and_the_cure_works(rng):
    """A15: a loss that never vanishes, rows that are separable whatever happens, no penalty."""
    y = np.repeat([0, 1], 10)
    X = 0.3 * rng.normal(size=(20, 2)) + np.outer(2 * y - 1, [2.0, 1.0])
    for sets in (None, Ball(0.1), Box(0.1), Ball(0.05) + Box(0.05)):
        with pytest.raises(ValueError, match=r"loss='logistic', penalty=None, kappa=1.0\).*Use a penalty"):
            RobustLinearClassifier(sets, loss="logistic", penalty=None).fit(X, y)
        assert RobustLinearClassifier(sets, loss="logistic").fit(X, y).gap_ <= 1e-6
        assert RobustLinearClassifier(sets, loss="hinge", penalty=None).fit(X, y).objective_ <= 1e-9
    assert RobustLinearClassifier(Ball(0.1), loss="logistic", penalty=None, kappa=0.5).fit(X, y).gap_ <= 1e-6
    with pytest.raises(ValueError, match=r"kappa=0.5\)"):
        RobustLinearClassifier(None, loss="logistic", penalty=None, kappa=0.5).fit(X, y)


def test_noise_that_is_averaged_over_leaves_a_minimum_where_rows_can_be_separated(two_classes):
    X, y = two_classes(40, 2, separation=4.0)
    model = RobustLinearClassifier(GaussianNoise(0.5), loss="hinge", penalty=None).fit(X, y)
    assert model.gap_ <= 1e-6
    assert np.linalg.norm(model.coef_) <= model.norm_bound_
    assert np.all(y * model.decision_function(X) > 0.5 * np.linalg.norm(model.coef_))
    logistic = RobustLinearClassifier(GaussianNoise(0.5), loss="logistic", penalty=None)
    with pytest.warns(ConvergenceWarning, match="No lower bound is known"):
        logistic.fit(X, y)
    assert np.all(np.isfinite(logistic.coef_))


def test_a_box_common_to_all_rows_is_a_retuned_svm_with_the_l1_norm(two_classes):
    """A17: w / (1 + rho s'|w|) solves the l1 SVM of strength rho V s, V being the optimum."""
    X, y = two_classes(40, 3, separation=0.6)
    for kind, norm in ((Ball(0.25, np.inf), lambda w: np.abs(w).sum()), (Ball(0.25, 1), lambda w: np.abs(w).max())):
        robust = RobustLinearClassifier(kind, penalty=None, tol=1e-9).fit(X, y)
        shrink = 1 + 0.25 * norm(robust.coef_)
        w, b, strength = robust.coef_[0] / shrink, robust.intercept_[0] / shrink, 0.25 * robust.objective_
        cost = np.maximum(1 - y * (X @ w + b), 0).sum() + strength * norm(w)
        v, c = cp.Variable(3), cp.Variable()
        penalty = cp.norm1(v) if kind.norm == np.inf else cp.norm(v, "inf")
        best = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(y, X @ v + c))) + strength * penalty))
        assert cost == pytest.approx(best.solve(solver=cp.CLARABEL), rel=1e-6)


def test_a_ball_common_to_all_rows_is_an_ordinary_svm_at_another_strength(two_classes):
    """D9, both ways: the SVM at alpha' has the weights w / (1 + r |w|)."""
    X, y = two_classes(40, 3, separation=0.6)
    alpha, r = 0.7, 0.3
    robust = RobustLinearClassifier(Ball(r), alpha=alpha, tol=1e-9).fit(X, y)
    length = np.linalg.norm(robust.coef_)
    v = robust.coef_[0] / (1 + r * length)
    other = (alpha * length + r * np.abs(robust.proof_weights_).sum()) / np.linalg.norm(v)
    plain = RobustLinearClassifier(None, alpha=other, tol=1e-9).fit(X, y)
    assert_allclose(plain.coef_[0], v, atol=1e-4)
    assert_allclose(SVC(kernel="linear", C=1 / other, tol=1e-8).fit(X, y).coef_[0], v, atol=1e-4)


def test_balls_of_different_radii_have_the_published_dual(two_classes, rng):
    """D10: max 1'a - (|sum a y x| - r'a)_+^2 / 2 alpha."""
    X, y = two_classes(30, 3, separation=0.7)
    r, alpha, a = rng.uniform(0, 0.6, size=30), 0.4, cp.Variable(30)
    z = (y[:, None] * X).T @ a
    value = cp.sum(a) - cp.square(cp.pos(cp.norm(z) - r @ a)) / (2 * alpha)
    best = cp.Problem(cp.Maximize(value), [y @ a == 0, a >= 0, a <= 1]).solve(solver=cp.CLARABEL)
    model = RobustLinearClassifier(Ball(), alpha=alpha, tol=1e-8).fit(X, y, X_radius=r)
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    length = np.linalg.norm(z.value)
    assert_allclose(model.coef_[0], max(1 - r @ a.value / length, 0) * z.value / alpha, atol=1e-4)


# certificates of predictions


@pytest.mark.parametrize("n_classes", [2, 3])
def test_certified_predictions_withstand_every_attack_and_others_fall_to_the_best_one(n_classes, several_classes, rng):
    X, y = several_classes((20, 15, 18)[:n_classes], 3)
    half = rng.uniform(0, 0.5, size=X.shape)
    for sets, metadata in (
        (Ball(0.4), {}),
        (Ball(0.4, 1), {}),
        (Box(), {"X_std": half}),
        (IntervalBox(), {"X_lower": X - half, "X_upper": X + 0.1}),
        (Ball(0.1) + Box(0.1), {}),
    ):
        model = RobustLinearClassifier(sets).fit(X, y, **metadata)
        safe, margin, predicted = (
            model.certify(X, **metadata),
            model.certified_margin(X, **metadata),
            model.predict(X),
        )
        assert_array_equal(safe, margin > 0)
        assert np.any(safe)
        bound = sets.at(X, metadata)
        for errors in bound.sample(rng, 200, 3):
            assert np.all((model.predict(X + errors) == predicted)[margin > 1e-12])
        # the worst data for the prediction itself come as near as the margin says
        worst = model.worst_case_data(X, predicted, **metadata)
        scores, codes = model.decision_function(worst), np.searchsorted(model.classes_, predicted)
        if n_classes == 2:
            lead = np.where(codes == 1, scores, -scores)
        else:
            own = scores[np.arange(len(X)), codes]
            others = np.where(np.arange(n_classes) == codes[:, None], -np.inf, scores)
            lead = own - others.max(axis=1)
        assert_allclose(lead, margin, atol=1e-10)
        assert np.all((model.predict(worst) != predicted)[margin < -1e-9])


def test_row_sets_are_taken_as_stated_where_predictions_are_certified(intervals):
    X, y, S = intervals
    model = RobustLinearClassifier(Box(0.5)).fit(X, y, X_std=S)
    score, w = model.decision_function(X), np.abs(model.coef_[0])
    assert_allclose(model.certified_margin(X, X_std=S), np.abs(score) - S @ w, rtol=1e-12)
    with pytest.raises(ValueError, match=r"fitted with the uncertainty of each row.*X_std"):
        model.certify(X)
    common = RobustLinearClassifier(Box(0.1)).fit(X, y)
    assert_allclose(common.certified_margin(X), np.abs(common.decision_function(X)) - 0.1 * np.abs(common.coef_).sum())


# what users meet


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kappa": 1.5}, r"kappa=1\.5\)"),
        ({"kappa": -0.1}, r"kappa=-0\.1\)"),
        ({"kappa": "all"}, r"kappa='all'\)"),
        ({"alpha": -1.0}, r"alpha=-1\.0\)"),
        ({"alpha": np.nan}, r"alpha=nan\)"),
        ({"penalty": "l3"}, r"penalty='l3'\).*'l2', 'l1', 'box' or None"),
        ({"loss": "absolute"}, "loss='absolute'"),
        ({"loss": GaussianHinge()}, r"loss=GaussianHinge\(\)\).*GaussianRobustClassifier"),
        ({"uncertainty": 0.3}, r"uncertainty=0\.3\).*Ball"),
        ({"uncertainty": Ball(-1.0)}, r"radius"),
        ({"ambiguity": "flips"}, "ambiguity='flips'"),
        ({"tol": 0.0}, r"tol=0\.0\)"),
        ({"max_iter": 0}, r"max_iter=0\)"),
        ({"class_weight": {5: 1.0}}, "no such class"),
        ({"solver": "magic"}, "solver='magic'"),
    ],
)
def test_wrong_options_are_refused_by_quoting_them(options, message, two_classes):
    X, y = two_classes(20, 2)
    with pytest.raises(ValueError, match=message):
        RobustLinearClassifier(**options).fit(X, y)


@pytest.mark.parametrize(
    ("sets", "metadata", "message"),
    [
        (None, {"X_std": np.ones((20, 2))}, "say what it means.*Box"),
        (Ball(0.3), {"X_std": np.ones((20, 2))}, "X_std"),
        (Box(0.3), {"X_std": np.ones((20, 3))}, "X_std"),
        (Box(0.3), {"X_std": -np.ones((20, 2))}, "X_std"),
        (Box(0.3), {"X_std": np.full((20, 2), np.nan)}, "X_std"),
        (Box(half_widths=0.1), {"X_std": np.ones((20, 2))}, "half_widths"),
        (Ball(0.3), {"X_radius": np.ones(19)}, "X_radius"),
        (IntervalBox(), {"X_lower": np.full((20, 2), -99.0)}, "two ends"),
        (IntervalBox(), {"X_lower": np.full((20, 2), -99.0), "X_upper": np.full((20, 2), -98.0)}, "X_upper.*below"),
    ],
)
def test_sets_that_make_no_sense_are_refused(sets, metadata, message, two_classes):
    X, y = two_classes(20, 2)
    with pytest.raises(ValueError, match=message):
        RobustLinearClassifier(sets).fit(X, y, **metadata)


def test_wrong_rows_and_labels_are_refused(two_classes):
    X, y = two_classes(20, 2)
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        RobustLinearClassifier(Ball(0.1)).fit(broken, y)
    with pytest.raises(ValueError, match="one class only"):
        RobustLinearClassifier(Ball(0.1)).fit(X, np.ones(20))
    model = RobustLinearClassifier(Ball(0.1))
    with pytest.raises(NotFittedError):
        model.certify(X)
    model.fit(X, y)
    for labels in (np.full(20, 7.0), y[:5]):
        with pytest.raises(ValueError, match=r"worst_case_data\(X, y\): y must hold one of the classes \[-1.0, 1.0\]"):
            model.worst_case_data(X, labels)
    with pytest.raises(TypeError, match="no such argument: X_sdt"):
        model.certify(X, X_sdt=np.ones_like(X))
    noisy = RobustLinearClassifier(GaussianNoise(0.2)).fit(X, y)
    with pytest.raises(ValueError, match="no bounds"):
        noisy.certify(X)


def test_probabilities_are_those_of_the_logistic_loss_only(several_classes):
    X, y = several_classes()
    model = RobustLinearClassifier(Ball(0.1), loss="logistic").fit(X, y)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
    two = RobustLinearClassifier(Ball(0.1), loss="logistic").fit(X[y < 2], y[y < 2])
    assert_allclose(two.predict_proba(X)[:, 1], 1 / (1 + np.exp(-two.decision_function(X))), rtol=1e-12)
    assert_allclose(np.exp(two.predict_log_proba(X)), two.predict_proba(X), rtol=1e-12)
    hinge = RobustLinearClassifier(Ball(0.1)).fit(X, y)
    assert not hasattr(hinge, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba") as refused:
        hinge.predict_proba(X)
    assert "Use loss='logistic'" in str(refused.value)


def test_models_survive_clone_pickle_and_skops_and_are_searched_over_their_radius(intervals):
    X, y, S = intervals
    model = RobustLinearClassifier(Box(0.3) + Ball(0.1), loss="logistic").fit(X, y, X_std=S)
    assert repr(clone(model)) == repr(model)
    copies = [pickle.loads(pickle.dumps(model))]
    try:
        import skops.io as skops
    except ImportError:
        pass
    else:
        stored = skops.dumps(model)
        copies.append(skops.loads(stored, trusted=skops.get_untrusted_types(data=stored)))
    for copy in copies:
        assert_array_equal(copy.coef_, model.coef_)
        assert_array_equal(copy.certify(X, X_std=S), model.certify(X, X_std=S))
    search = GridSearchCV(RobustLinearClassifier(Ball()), {"uncertainty__radius": [0.0, 0.2]}, cv=3).fit(X, y)
    assert search.best_estimator_.uncertainty.radius in (0.0, 0.2)


def test_warm_start_and_every_fitting_solver_end_at_the_same_objective(loss, intervals):
    X, y, S = intervals
    model = RobustLinearClassifier(Box(0.3), loss=loss, warm_start=True).fit(X, y, X_std=S)
    cold = model.objective_
    model.set_params(alpha=1.5).fit(X, y, X_std=S)
    assert model.set_params(alpha=1.0).fit(X, y, X_std=S).objective_ == pytest.approx(cold, rel=2e-6)
    for solver in ("semismooth", "interior_point", "newton"):
        other = RobustLinearClassifier(Box(0.3), loss=loss, solver=solver).fit(X, y, X_std=S)
        assert other.gap_ <= 1e-6
        assert other.objective_ == pytest.approx(cold, rel=2e-6)


# real data


def _real(name, load_data):
    """Return standardised rows and labels, 800 rows at most."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        data = load_data(name)
        X, y = data["X"], data["y"]
        if name == "usps":
            X, y = X[np.isin(y, (3, 5))], y[np.isin(y, (3, 5))]
    stride = -(-len(y) // 800)
    return StandardScaler().fit_transform(X[::stride]), y[::stride]


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", ["breast_cancer", "ionosphere", "pima", "spambase", "usps"])
def test_real_data_are_certified(name, loss, load_data):
    X, y = _real(name, load_data)
    widths = 0.1 * np.where(X > 0, 1.0, 0.3)
    shape = 0.01 * np.cov(X.T) + 1e-6 * np.eye(X.shape[1])
    for sets, metadata in ((Ball(0.1), {}), (Box(), {"X_std": widths}), (Ellipsoid(shape=shape), {})):
        model = RobustLinearClassifier(sets, loss=loss).fit(X, y, **metadata)
        assert model.gap_ <= 1e-6
        assert model.solution_["status"] == "solved"


def test_sparse_intervals_and_rows_are_those_of_dense_ones(rng, loss):
    X = sparse.random(60, 12, 0.3, format="csr", random_state=0, data_rvs=lambda size: rng.normal(size=size))
    y = np.where(X @ rng.normal(size=12) + 0.5 * rng.normal(size=60) > 0, 1, 0)
    dense = RobustLinearClassifier(Box(relative=0.2), loss=loss).fit(X.toarray(), y)
    thin = RobustLinearClassifier(Box(relative=0.2), loss=loss).fit(X, y)
    assert thin.objective_ == pytest.approx(dense.objective_, rel=2e-6)
