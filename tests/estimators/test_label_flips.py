"""RobustLinearClassifier whose labels may be wrong: against a conic solver, all subsets, and known cases."""

import warnings
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    LabelFlips,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    WeightError,
)
from holdfast.exceptions import CollapseWarning

LOSSES = {
    "hinge": cp.pos,
    "logistic": lambda x: cp.logistic(x - 1),
    "squared_hinge": lambda x: cp.square(cp.pos(x)),
}


def _referee(X, y, budgets, loss, alpha, supports=None, weights=None, counts=None, factors=None):
    """Return the optimum of the published problem: epigraphs over either label, a price for each budget, a ridge."""
    n, d = X.shape
    w, b, e = cp.Variable(d), cp.Variable(), cp.Variable(n)
    counts = np.ones(n) if counts is None else counts
    factors = np.ones(n) if factors is None else factors
    margins = cp.multiply(y, X @ w + b)
    own, other = (0.0, 0.0) if supports is None else (supports(w, y), supports(w, -y))
    psi = LOSSES[loss]
    price = cp.Variable(len(budgets), nonneg=True)
    prices = price[0] if len(budgets) == 1 else cp.hstack([price[int(s > 0)] for s in y])
    costs = cp.multiply(factors, psi(1 - margins + own)), cp.multiply(factors, psi(1 + margins + other))
    objective = cp.sum(cp.multiply(counts, e)) + np.asarray(budgets) @ price + alpha / 2 * cp.sum_squares(w)
    problem = cp.Problem(cp.Minimize(objective), [e >= costs[0], e >= costs[1] - prices])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    return problem.value


def _fit(model, *args, **metadata):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return model.fit(*args, **metadata)


@pytest.mark.thin(4)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("k", [1, 4, 0.15])
def test_it_is_the_optimum_of_the_published_problem(loss, k, two_classes):
    X, y = two_classes(40, 3, separation=1.2)
    model = _fit(RobustLinearClassifier(loss=loss, alpha=0.3, ambiguity=LabelFlips(k)), X, y)
    assert model.gap_ <= 1e-6
    budget = k if isinstance(k, int) else 40 * k
    assert model.objective_ == pytest.approx(_referee(X, y, [budget], loss, 0.3), rel=1e-5)


def test_sets_of_every_kind_join_in(two_classes, rng):
    X, y = two_classes(30, 3, separation=1.5)
    s, low, high = rng.uniform(0, 0.4, (30, 3)), -rng.uniform(0, 0.2, (30, 3)), rng.uniform(0, 0.6, (30, 3))
    one = np.ones(30)

    def lopsided(w, y):
        return cp.hstack(
            [cp.sum(cp.maximum(cp.multiply(-y[i] * low[i], w), cp.multiply(-y[i] * high[i], w))) for i in range(len(y))]
        )

    cases = [
        (Ball(0.3), {}, lambda w, y: 0.3 * cp.norm(w) * one),
        (Box(), {"X_std": s}, lambda w, y: s @ cp.abs(w)),
        (Ellipsoid(), {"X_std": s}, lambda w, y: cp.hstack([cp.norm(cp.multiply(row, w)) for row in s])),
        (IntervalBox(), {"X_lower": X + low, "X_upper": X + high}, lopsided),
        (
            Ball(0.1) + IntervalBox(),
            {"X_lower": X + low, "X_upper": X + high},
            lambda w, y: 0.1 * cp.norm(w) + lopsided(w, y),
        ),
    ]
    for sets, metadata, supports in cases:
        for loss in LOSSES:
            model = _fit(RobustLinearClassifier(sets, loss=loss, ambiguity=LabelFlips(3)), X, y, **metadata)
            assert model.gap_ <= 1e-6
            assert model.objective_ == pytest.approx(_referee(X, y, [3], loss, 1.0, supports), rel=1e-5), (sets, loss)


def test_sparse_rows_with_lopsided_boxes_are_the_same_as_dense_ones(two_classes):
    X, y = two_classes(40, 6)
    X[np.abs(X) < 0.8] = 0
    low, high = (sparse.csr_array(X + side * np.abs(X)) for side in (-0.1, 0.4))
    fits = [
        _fit(RobustLinearClassifier(IntervalBox(), ambiguity=LabelFlips(3)), rows, y, X_lower=low, X_upper=high)
        for rows in (X, sparse.csr_array(X))
    ]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-7)


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
def test_training_is_minimax_over_all_subsets(loss, k, two_classes):
    X, y = two_classes(8, 2, separation=1.0)
    w, b, top = cp.Variable(2), cp.Variable(), cp.Variable()
    bounds = []
    for flipped in combinations(range(8), k):
        labels = y.copy()
        labels[list(flipped)] *= -1
        bounds.append(top >= cp.sum(LOSSES[loss](1 - cp.multiply(labels, X @ w + b))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # fewer flips than k are allowed too
        bounds.append(top >= cp.sum(LOSSES[loss](1 - cp.multiply(y, X @ w + b))))
        problem = cp.Problem(cp.Minimize(top + 0.05 * cp.sum_squares(w)), bounds)
        problem.solve(solver=cp.CLARABEL)
        model = _fit(RobustLinearClassifier(loss=loss, alpha=0.1, ambiguity=LabelFlips(k)), X, y)
    assert model.objective_ == pytest.approx(problem.value, rel=2e-4 if k == 4 else 1e-5)


@pytest.mark.parametrize("budgets", [{"a": 2, "b": 0.25}, {"a": 0, "b": 4}])
def test_budgets_by_class(budgets, two_classes):
    X, y = two_classes(36, 3, separation=1.2, positives=20)
    names = np.where(y > 0, "b", "a")
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips(budgets)), X, names)
    amounts = [budgets["a"], budgets["b"] if isinstance(budgets["b"], int) else 20 * budgets["b"]]
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(_referee(X, y, amounts, "hinge", 1.0), rel=1e-5)


def test_a_weight_of_two_is_a_row_twice(two_classes, rng):
    X, y = two_classes(30, 3, separation=1.2)
    weights = rng.integers(0, 4, size=30)
    model = RobustLinearClassifier(ambiguity=LabelFlips(5), loss="squared_hinge")
    once = _fit(model, X, y, sample_weight=weights)
    once_objective, once_coef = once.objective_, once.coef_
    again = _fit(model, np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert once_objective == pytest.approx(again.objective_, rel=1e-8)
    np.testing.assert_allclose(once_coef, again.coef_, rtol=1e-4)


def test_class_weights_make_a_flip_dearer_but_count_no_more(two_classes):
    X, y = two_classes(40, 3, separation=1.2, positives=10)
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips(4), class_weight={-1: 1, 1: 3}), X, y)
    factors = np.where(y > 0, 3.0, 1.0)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(_referee(X, y, [4], "hinge", 1.0, factors=factors), rel=1e-5)


def test_no_flips_are_the_plain_classifier(two_classes):
    X, y = two_classes(40, 3)
    plain = RobustLinearClassifier(Ball(0.2)).fit(X, y)
    for none in (0, 0.0, {-1: 0, 1: 0.0}):
        model = RobustLinearClassifier(Ball(0.2), ambiguity=LabelFlips(none)).fit(X, y)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        assert model.objective_ == plain.objective_


def test_more_flips_never_cost_less(two_classes):
    X, y = two_classes(40, 3, separation=1.2)
    objectives = [
        _fit(RobustLinearClassifier(ambiguity=LabelFlips(k), loss="logistic"), X, y).objective_
        for k in (0, 1, 3, 6, 12)
    ]
    assert np.all(np.diff(objectives) >= -1e-6)


def test_half_of_the_labels_leave_nothing_to_learn(two_classes):
    X, y = two_classes(21, 2, separation=3.0)
    for k in (11, 15):
        with pytest.warns(UserWarning, match="of the labels may be wrong"), pytest.warns(CollapseWarning):
            model = RobustLinearClassifier(ambiguity=LabelFlips(k), penalty=None).fit(X, y)
        assert model.objective_ == pytest.approx(21.0, rel=1e-6)
        assert not np.any(model.coef_)


def test_separable_rows_of_equal_margin_cost_two_a_flip():
    X = np.array([[1.0, 0]] * 5 + [[-1.0, 0]] * 5)
    y = np.sign(X[:, 0])
    for k in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = RobustLinearClassifier(ambiguity=LabelFlips(k), penalty=None, fit_intercept=False).fit(X, y)
        assert model.objective_ == pytest.approx(2 * k, rel=1e-6, abs=1e-6)


def test_many_flips_are_warned_of_at_the_caller(two_classes):
    X, y = two_classes(20, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RobustLinearClassifier(ambiguity=LabelFlips(0.4)).fit(X, y)
        RobustLinearClassifier(ambiguity=LabelFlips(3)).fit(X, y, sample_weight=np.full(20, 0.15))
    texts = [str(one.message) for one in caught if "Allow for fewer flips" in str(one.message)]
    assert len(texts) == 2
    assert "40% of the labels" in texts[0]
    assert "100% of the labels" in texts[1]
    assert {one.filename for one in caught} == {__file__}


def test_several_classes_one_against_the_rest(several_classes):
    X, y = several_classes((20, 25, 15), 3)
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips(4)), X, y)
    expected = [_fit(RobustLinearClassifier(ambiguity=LabelFlips(4)), X, y == k).objective_ for k in np.unique(y)]
    assert model.objective_ == pytest.approx(sum(expected), rel=1e-8)
    assert model.gap_ <= 1e-6


@pytest.mark.thin(4)
@pytest.mark.parametrize("penalty", ["l1", "box", None])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_penalty_is_certified(penalty, loss, two_classes):
    X, y = two_classes(50, 4)
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips(4), loss=loss, penalty=penalty), X, y)
    assert model.gap_ <= 1e-6


def test_noise_may_join_in(two_classes):
    X, y = two_classes(50, 4)
    model = _fit(RobustLinearClassifier(GaussianNoise(0.3), ambiguity=LabelFlips(4)), X, y)
    assert model.gap_ <= 1e-6
    with pytest.raises(ValueError, match="averaged, maximised and flipped"):
        RobustLinearClassifier(GaussianNoise(0.3) + Ball(0.1), ambiguity=LabelFlips(4)).fit(X, y)


@pytest.mark.parametrize("name", ["ionosphere", "pima", "spambase"])
@pytest.mark.parametrize("loss", LOSSES)
def test_real_data_are_certified(name, loss, load_data):
    data = load_data(name)
    X, y = data["X"][::3], data["y"][::3]
    X = StandardScaler().fit_transform(X)
    model = _fit(RobustLinearClassifier(loss=loss, ambiguity=LabelFlips(0.05)), X, y)
    assert model.gap_ <= 1e-6


@pytest.mark.slow
def test_the_printed_bound_of_the_report_is_none(rng):
    """El Ghaoui et al., section 6.2: the factor 2 of a flip is lost, and lambda k is counted in every term."""
    violated = 0
    for _ in range(60):
        margins, k = 2 * rng.normal(size=8), int(rng.integers(1, 5))
        hinge = np.maximum(1 - margins, 0)
        exact = hinge.sum() + np.sort(np.maximum(np.maximum(1 + margins, 0) - hinge, 0))[::-1][:k].sum()
        # with the corrected derivation: exact; with the printed factor 1: too small
        prices = np.linspace(0, 10, 2001)

        def bound(factor, prices=prices, margins=margins, k=k):
            rows = [np.maximum(0, np.maximum(1 - margins, 1 - margins + factor * margins - p)).sum() for p in prices]
            return min(k * p + row for p, row in zip(prices, rows, strict=True))

        assert bound(2.0) == pytest.approx(exact, abs=k * 0.006)
        violated += bound(1.0) < exact - 1e-9
    assert violated > 30


def test_settings_that_make_no_sense(two_classes):
    X, y = two_classes(20, 2)
    with pytest.raises(ValueError, match="give LabelFlips"):
        RobustLinearClassifier(ambiguity=5).fit(X, y)
    with pytest.raises(AttributeError, match="partial_fit") as refused:
        RobustLinearClassifier(ambiguity=LabelFlips(2)).partial_fit(X, y, classes=[-1, 1])
    assert "visited on its own" in str(refused.value)
    with pytest.raises(ValueError, match="interior_point"):
        RobustLinearClassifier(ambiguity=LabelFlips(2), solver="interior_point").fit(X, y)


@pytest.mark.slow
def test_a_search_over_k(two_classes):
    X, y = two_classes(60, 3)
    search = GridSearchCV(RobustLinearClassifier(ambiguity=LabelFlips(1)), {"ambiguity__k": [0, 2, 4]}).fit(X, y)
    assert search.best_params_["ambiguity__k"] in (0, 2, 4)


def test_the_size_of_the_sets_is_searched_for_with_flips(two_classes):
    X, y = two_classes(40, 3)
    ends = {"X_lower": X - 0.1, "X_upper": X + np.random.default_rng(0).uniform(size=X.shape)}
    for sets, metadata in ((Ball(), {}), (IntervalBox(-0.1, 0.1), {}), (IntervalBox(), ends)):
        model = RobustLinearClassifierCV([0.1, 0.3], uncertainty=sets, ambiguity=LabelFlips(0.05), cv=2)
        _fit(model, X, y, **metadata)
        assert model.gap_ <= 1e-6
        alone = _fit(RobustLinearClassifier(sets.times(model.radius_), ambiguity=LabelFlips(0.05)), X, y, **metadata)
        assert model.objective_ == pytest.approx(alone.objective_, rel=1e-6)
    assert _fit(RobustLinearClassifierCV(4, ambiguity=LabelFlips(0.05), cv=2), X, y).gap_ <= 1e-6


@pytest.mark.parametrize("solver", [None, "semismooth"])
@pytest.mark.parametrize("loss", LOSSES)
def test_few_steps_are_enough(loss, solver, rng):
    y = np.where(rng.uniform(size=60) < 0.4, 1, -1)
    X = rng.normal(size=(60, 4)) + 0.9 * y[:, None]
    model = RobustLinearClassifier(loss=loss, alpha=0.5, ambiguity=LabelFlips(5), solver=solver)
    assert _fit(model, X, y).n_iter_ < 60


def test_errors_of_the_weights_join_in(two_classes):
    X, y = two_classes(40, 3, separation=1.2)
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips(3), weight_error=WeightError(0.1)), X, y)
    reach = 0.1 * np.abs(X).sum(axis=1)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(_referee(X, y, [3], "hinge", 1.0, lambda w, y: reach), rel=1e-5)
    sets = {"uncertainty": Box(0.1), "ambiguity": LabelFlips(3)}
    both = _fit(RobustLinearClassifier(**sets, weight_error=WeightError(0.1, joint="bound")), X, y)
    assert both.gap_ <= 1e-6
    reach = reach + 0.1 * 0.3
    expected = _referee(X, y, [3], "hinge", 1.0, lambda w, y: reach + 0.1 * cp.norm1(w))
    assert both.objective_ == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="joint='bound'"):
        RobustLinearClassifier(**sets, weight_error=WeightError(0.1)).fit(X, y)


def test_a_class_spends_no_budget_but_its_own(several_classes):
    """Budgets by class are exact for several classes: brute force over all admissible flips at the fitted weights."""
    X, y = several_classes((4, 3, 3), 2)
    model = _fit(RobustLinearClassifier(ambiguity=LabelFlips({0: 2, 1: 0, 2: 1})), X, y)
    total = 0.5 * np.sum(model.coef_**2)
    for k, (w, b) in enumerate(zip(model.coef_, model.intercept_, strict=True)):
        signs = np.where(y == k, 1.0, -1.0)
        margins = signs * (X @ w + b)
        own, other = np.maximum(1 - margins, 0), np.maximum(1 + margins, 0)
        total += own.sum()
        for label, budget in {0: 2, 1: 0, 2: 1}.items():
            total += np.sort(np.maximum(other - own, 0)[y == label])[::-1][:budget].sum()
    assert model.objective_ == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("kappa", [1.0, 0.3])
@pytest.mark.parametrize(
    "uncertainty", [IntervalBox(-0.3, 0.05), FeatureDeletion(1) + IntervalBox(-0.3, 0.05), GaussianNoise(0.2)], ids=repr
)
def test_no_flips_and_no_weight_errors_are_the_plain_classifier(uncertainty, kappa, two_classes):
    X, y = two_classes(40, 3, separation=1.2)
    plain, *others = (
        _fit(RobustLinearClassifier(uncertainty, kappa=kappa, **nothing), X, y)
        for nothing in ({}, {"ambiguity": LabelFlips(0)}, {"weight_error": WeightError(0)})
    )
    for other in others:
        assert_allclose(other.coef_, plain.coef_, atol=1e-12)
        assert other.objective_ == plain.objective_


@pytest.mark.parametrize("also", [{}, {"ambiguity": LabelFlips(2)}, {"weight_error": WeightError(0.05)}], ids=repr)
def test_a_mix_does_not_depend_on_which_point_of_an_interval_is_the_row(also, two_classes):
    X, y = two_classes(40, 3, separation=1.2)
    ends = {"X_lower": X - 0.3, "X_upper": X + 0.05}
    model = RobustLinearClassifier(IntervalBox(), kappa=0.3, **also)
    within = np.random.default_rng(0).uniform(X - 0.3, X + 0.05)
    fits = [_fit(model, Z, y, **ends).objective_ for Z in (X, X - 0.125, within)]
    assert_allclose(fits, fits[0], rtol=1e-6)


def test_next_to_no_flips_are_next_to_no_change(two_classes):
    X, y = two_classes(20, 2)
    ends = {"X_lower": X - 0.1, "X_upper": X + 0.6}
    for kappa in (1.0, 0.5):
        fits = [
            _fit(RobustLinearClassifier(IntervalBox(), kappa=kappa, ambiguity=LabelFlips(k)), X, y, **ends)
            for k in (0, 1e-12)
        ]
        assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
