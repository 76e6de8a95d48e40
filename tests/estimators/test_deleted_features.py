"""Training for deleted features: FDROP against quadratic programs, and what certificates mean."""

import warnings
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.svm import SVC

from holdfast import Ball, FeatureDeletion, GaussianNoise, LabelFlips, RobustLinearClassifier, WeightError
from holdfast._core.solution import DualGuess
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.losses import Hinge, Logistic, SquaredHinge
from holdfast.uncertainty.deletions import deletions_survived


@pytest.fixture
def data(draw_classes):
    return draw_classes(np.random.default_rng(5), 40, 8, separation=2.5)


@pytest.fixture
def few(draw_classes):
    return draw_classes(np.random.default_rng(2), 16, 4, separation=2.0)


def _of_subsets(X, y, K, alpha):
    """Return the least objective with one constraint for each row and each set of K deleted features."""
    w, b, xi = cp.Variable(8), cp.Variable(), cp.Variable(len(y), nonneg=True)
    conditions = []
    for gone in combinations(range(8), K):
        kept = np.delete(np.arange(8), gone)
        for size in range(K + 1):
            for back in combinations(gone, size):
                left = [*kept, *back]
                conditions.append(cp.multiply(y, X[:, left] @ w[left] + b) >= 1 - xi)
    objective = cp.sum(xi) + 0.5 * alpha * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(objective), conditions).solve(solver=cp.CLARABEL)


def _compact(X, y, N, v, alpha, loss=cp.pos, share=1.0, exactly=False):
    """Return the least objective with the knapsacks' dual in place of the sets."""
    n, d = X.shape
    w, b, z, u = cp.Variable(d), cp.Variable(), cp.Variable(n, nonneg=not exactly), cp.Variable((n, d), nonneg=True)
    may, v = np.isfinite(v), np.where(np.isfinite(v), v, 0.0)
    gains = cp.multiply(share * y[:, None] * X * may, np.ones((n, 1)) @ cp.reshape(w, (1, d), order="C"))
    conditions = [u + cp.reshape(z, (n, 1), order="C") @ v[None] >= gains]
    deficits = 1 - cp.multiply(y, X @ w + b) + N * z + cp.sum(u, axis=1)
    objective = cp.sum(loss(deficits)) + 0.5 * alpha * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(objective), conditions).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("K", [1, 2])
def test_fit_is_the_quadratic_program_over_all_subsets(K, data):
    X, y = data
    model = RobustLinearClassifier(FeatureDeletion(K), alpha=0.5).fit(X, y)
    assert model.gap_ <= 1e-6
    assert np.any(model.coef_)
    assert_allclose(model.objective_, _of_subsets(X, y, K, 0.5), rtol=2e-6)


@pytest.mark.parametrize(
    ("loss", "penalty_free"),
    [("hinge", cp.pos), ("squared_hinge", lambda x: cp.square(cp.pos(x))), ("logistic", lambda x: cp.logistic(x - 1))],
)
def test_fit_is_the_compact_program(loss, penalty_free, data, rng):
    X, y = data
    values = rng.uniform(0.5, 2, size=8)
    for N, v in ((3, np.ones(8)), (1.7, values)):
        model = RobustLinearClassifier(FeatureDeletion(N, v), loss=loss, alpha=0.5).fit(X, y)
        assert model.gap_ <= 1e-6
        assert_allclose(model.objective_, _compact(X, y, N, v, 0.5, penalty_free), rtol=3e-6)


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array])
def test_exactly_so_many_deletions_are_the_compact_program_with_free_prices(loss, rows):
    rng = np.random.default_rng(5)
    y = rng.choice([-1.0, 1.0], size=40)
    X = (rng.normal(size=(40, 8)) + 0.9 * y[:, None]) * (rng.uniform(size=(40, 8)) < 0.95)
    of_loss = {"hinge": cp.pos, "logistic": lambda x: cp.logistic(x - 1)}[loss]
    for N, v in ((3, np.ones(5)), (2.9, rng.uniform(0.8, 1.2, size=5))):
        v = np.append(np.full(3, np.inf), v)
        model = RobustLinearClassifier(FeatureDeletion(N, v, exactly=True), loss=loss, alpha=0.05).fit(rows(X), y)
        assert model.gap_ <= 1e-6
        assert np.count_nonzero(np.abs(model.coef_) > 1e-3) > 3
        best = _compact(X, y, N, v, 0.05, of_loss, exactly=True)
        assert_allclose(model.objective_, best, rtol=3e-6)
        assert best < _compact(X, y, N, v, 0.05, of_loss) - 1e-3


@pytest.mark.thin(6)
@pytest.mark.parametrize("penalty", ["l2", "l1", "box"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", "huberized_hinge"])
@pytest.mark.parametrize("trials", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_bounds_of_rows_that_have_to_change_are_none_above_what_others_reach(loss, penalty, trials, rng):
    for trial in range(trials):
        y = rng.permutation(np.repeat([-1.0, 1.0], 8))
        X = rng.normal(size=(16, 1 + trial % 3)) + 0.5 * y[:, None]
        N, share = rng.uniform(0.05, 0.9) * X.shape[1], rng.choice([0.3, 1.0, 2.0])
        model = RobustLinearClassifier(
            FeatureDeletion(N, share=share, exactly=True), loss=loss, penalty=penalty, alpha=0.7
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        bound = FeatureDeletion(N, share=share, exactly=True).at(X, {}).against_labels(y)
        w, b = model.coef_[0], float(model.intercept_[0])
        cost = RobustLinearClassifier(loss=loss)._loss()
        for scale in (1e-3, 1e-2, 0.1, 1.0):
            for _ in range(25):
                v, c = w + scale * rng.normal(size=len(w)), b + scale * rng.normal()
                if penalty == "box":
                    v = np.clip(v, -1 / 0.7, 1 / 0.7)
                extra = {"l2": 0.35 * v @ v, "l1": 0.7 * np.abs(v).sum(), "box": 0.0}[penalty]
                assert cost.value(1 - y * (X @ v + c), bound.support(v)).sum() + extra >= model.lower_bound_ - 1e-9


@pytest.mark.parametrize(
    "settings", [{"kappa": 0.5}, {"multiclass": "joint"}, {"weight_error": WeightError(0.1)}, {"sum": Ball(0.1)}]
)
def test_rows_that_have_to_change_are_refused_where_no_proof_is_known(settings, several_classes):
    uncertainty = FeatureDeletion(1, exactly=True)
    if "sum" in settings:
        uncertainty, settings = uncertainty + settings["sum"], {}
    with pytest.raises(ValueError, match=r"have to change.* exactly=False"):
        RobustLinearClassifier(uncertainty, **settings).fit(*several_classes((8, 8, 8)))


def test_hinge_is_solved_by_the_structured_interior_point(data):
    for settings in ({}, {"exactly": True}):
        model = RobustLinearClassifier(FeatureDeletion(2, **settings), alpha=0.5).fit(*data)
        assert model.solution_["solver"] == "deletion_interior_point"
        assert model.gap_ <= 1e-8
        other = RobustLinearClassifier(FeatureDeletion(2, **settings), alpha=0.5, solver="semismooth").fit(*data)
        assert_allclose(model.objective_, other.objective_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["clarabel", "newton", "quasi_newton"])
def test_solvers_agree(solver, few):
    best = RobustLinearClassifier(FeatureDeletion(1)).fit(*few)
    other = RobustLinearClassifier(FeatureDeletion(1), solver=solver).fit(*few)
    assert other.gap_ <= 1e-6
    assert_allclose(other.objective_, best.objective_, rtol=2e-6)


@pytest.mark.parametrize("penalty", ["l1", "box"])
def test_fit_without_a_ridge_is_certified_and_a_linear_program(penalty, data):
    model = RobustLinearClassifier(FeatureDeletion(2), penalty=penalty, alpha=0.5).fit(*data)
    assert model.gap_ <= 1e-6
    other = RobustLinearClassifier(FeatureDeletion(2), penalty=penalty, alpha=0.5, solver="highs").fit(*data)
    assert other.gap_ <= 1e-6
    assert_allclose(model.objective_, other.objective_, rtol=2e-6)


def test_fit_without_any_penalty_is_certified_by_deletions_that_bear_all_that_rows_pull(few):
    X, y = few
    model = RobustLinearClassifier(FeatureDeletion(1), penalty=None).fit(X, y)
    assert model.gap_ <= 1e-6
    assert np.any(model.coef_)
    assert_allclose(model.objective_, _compact(X, y, 1, np.ones(4), 0.0), rtol=3e-6)


def test_no_deletions_are_the_plain_classifier(data):
    X, y = data
    plain, none = RobustLinearClassifier().fit(X, y), RobustLinearClassifier(FeatureDeletion(0)).fit(X, y)
    assert np.array_equal(plain.coef_, none.coef_)
    assert np.array_equal(plain.intercept_, none.intercept_)
    for fixed in (FeatureDeletion(3, [np.inf] * 8), FeatureDeletion(2, share=0.0)):
        assert np.array_equal(RobustLinearClassifier(fixed).fit(X, y).coef_, plain.coef_)


def test_no_deletions_are_a_support_vector_machine(data):
    X, y = data
    model = RobustLinearClassifier(FeatureDeletion(0), alpha=0.5).fit(X, y)
    machine = SVC(kernel="linear", C=2.0, tol=1e-9).fit(X, y)
    assert_allclose(model.coef_, machine.coef_, atol=1e-5)
    assert_allclose(model.decision_function(X), machine.decision_function(X), atol=1e-4)


def test_free_features_get_no_weight(data):
    X, y = data
    values = np.array([0.0, 1, 1, 1, 1, 1, 1, 1])
    model = RobustLinearClassifier(FeatureDeletion(1, values)).fit(X, y)
    without = RobustLinearClassifier(FeatureDeletion(1)).fit(X[:, 1:], y)
    assert_allclose(model.objective_, without.objective_, rtol=2e-6)
    assert abs(model.coef_[0, 0]) < 1e-4


def test_more_deletions_cost_more(data):
    fits = [RobustLinearClassifier(FeatureDeletion(K)).fit(*data) for K in (0, 1, 1.5, 2)]
    assert np.all(np.diff([fit.objective_ for fit in fits]) > 0)


def test_sparse_rows_and_rows_far_from_zero_fit_as_dense_ones(data, rng):
    X, y = data
    X = np.where(rng.uniform(size=X.shape) < 0.4, 0.0, X)
    thin = RobustLinearClassifier(FeatureDeletion(2)).fit(sparse.csr_array(X), y)
    wide = RobustLinearClassifier(FeatureDeletion(2)).fit(X, y)
    assert_allclose(thin.coef_, wide.coef_, atol=1e-4)
    assert_allclose(thin.objective_, wide.objective_, rtol=2e-6)
    # deleting is setting to 0, wherever the rows are
    far = RobustLinearClassifier(FeatureDeletion(2, share=1e-3)).fit(X + 1e3, y)
    assert far.gap_ <= 1e-6
    assert_allclose(far.objective_, _compact(X + 1e3, y, 2, np.ones(8), 1.0, share=1e-3), rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_certified_rows_keep_their_prediction_under_every_deletion(n_classes, several_classes):
    X, y = several_classes((12, 10, 8)[:n_classes], 5, separation=3.0)
    model = RobustLinearClassifier(FeatureDeletion(2)).fit(X, y)
    certified, margins, before = model.certify(X), model.certified_margin(X), model.predict(X)
    assert 0 < certified.mean() < 1
    survives = np.ones(len(y), dtype=bool)
    for gone in combinations(range(5), 2):
        for size in range(3):
            for some in combinations(gone, size):
                Z = X.copy()
                Z[:, list(some)] = 0.0
                survives &= model.predict(Z) == before
    assert np.array_equal(certified, survives)
    assert np.array_equal(margins > 0, certified)
    assert np.array_equal(deletions_survived(model.coef_, model.intercept_, X) >= 2, certified)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_worst_rows_have_deleted_features_and_the_smallest_margins(n_classes, several_classes):
    X, y = several_classes((12, 10, 8)[:n_classes], 5, separation=3.0)
    model = RobustLinearClassifier(FeatureDeletion(2)).fit(X, y)
    Z = model.worst_case_data(X, y)
    assert np.all((Z == X) | (Z == 0))
    assert np.all((Z != X).sum(axis=1) <= 2)
    if n_classes == 2:
        deficits = 1 - np.where(y == 1, 1, -1) * model.decision_function(Z)
        loss = np.maximum(deficits, 0).sum() + 0.5 * np.sum(model.coef_**2)
        assert_allclose(loss, model.objective_, rtol=1e-9)


@pytest.mark.slow
def test_joint_fit_of_several_classes_is_certified(several_classes):
    X, y = several_classes((6, 5, 4), separation=3.0)
    model = RobustLinearClassifier(FeatureDeletion(1), multiclass="joint").fit(X, y)
    assert model.gap_ <= 1e-6


@pytest.mark.parametrize("other", [Ball(0.2), GaussianNoise(0.3)], ids=repr)
def test_sums_with_other_sets_are_certified_and_cost_more(other, few):
    alone = RobustLinearClassifier(FeatureDeletion(1)).fit(*few)
    both = RobustLinearClassifier(FeatureDeletion(1) + other).fit(*few)
    assert both.gap_ <= 1e-6
    assert both.objective_ > alone.objective_


@pytest.mark.thin(12)
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Logistic()], ids=repr)
@pytest.mark.parametrize(("alpha", "exactly"), [(0.0, False), (0.5, False), (0.5, True)])
def test_nonsense_guesses_prove_nothing_false(loss, alpha, exactly, few, make_problem, rng):
    X, y = few
    bound = FeatureDeletion(1.5, [0.6, 1.0, 1.4, 1.0], exactly=exactly).at(X, {}).against_labels(y)
    problem = make_problem(X, y, loss, bound, alpha=alpha)
    best = train(problem, tol=1e-6, max_iter=500)[1].objective
    for _ in range(10 if alpha else 2):
        slopes, w = rng.uniform(-1, 3, size=16), rng.normal(size=4) * 10 ** rng.uniform(-3, 1)
        points = rng.normal(size=X.shape) if rng.uniform() < 0.5 else y[:, None] * X * rng.uniform(0, 1.2, size=X.shape)
        sets = bound.smoothed(10 ** rng.uniform(-8, 0)) if rng.uniform() < 0.5 else None
        guess = DualGuess(slopes, w, rng.uniform(0, 2, size=16), sets, points=points)
        assert certificate(problem, w, 0.3, guess).lower_bound <= best * (1 + 1e-12)


def test_label_flips_besides_deletions_are_refused(data):
    with pytest.raises(ValueError, match="FeatureDeletion together with LabelFlips"):
        RobustLinearClassifier(FeatureDeletion(1), ambiguity=LabelFlips(2)).fit(*data)


def test_too_large_a_budget_is_refused_before_anything_is_lost(data):
    model = RobustLinearClassifier(FeatureDeletion(1)).fit(*data)
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="nothing is left to learn from"):
        model.set_params(uncertainty__budget=8).fit(*data)
    assert np.array_equal(model.coef_, before)
