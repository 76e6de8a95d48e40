"""FeatureDeletionClassifier: the published optimum, laws it obeys, missing values, and what a prediction survives."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from holdfast import FeatureDeletionClassifier
from holdfast.exceptions import CollapseWarning


def published(X, y, values, budget, margin, bound):
    """Return the optimum of (4) of Dekel and Shamir by HiGHS: variables w, b, xi, lambda, alpha."""
    (m, n), P = X.shape, values.sum() - budget
    A = y[:, None] * X
    size = n + 1 + 2 * m + m * n
    lines, right = [], []
    for i in range(m):
        first = np.zeros(size)
        own = n + 1 + 2 * m + n * i + np.arange(n)
        first[n], first[n + 1 + i], first[n + 1 + m + i], first[own] = y[i], 1, P, -1
        lines.append(-first)
        right.append(0.0)
        for j in range(n):
            second = np.zeros(size)
            second[j], second[n + 1 + m + i], second[own[j]] = A[i, j], -values[j], 1
            lines.append(-second)
            right.append(-margin * values[j] / P)
    cost = np.zeros(size)
    cost[n + 1 : n + 1 + m] = 1 / m
    bounds = [(-bound, bound)] * n + [(None, None)] + [(0, None)] * (2 * m + m * n)
    return linprog(cost, A_ub=sparse.csr_array(np.array(lines)), b_ub=right, bounds=bounds).fun


def draw(rng, m=30, n=5):
    """Return rows of two classes, all of whose features tell a little."""
    y = rng.choice([-1, 1], size=m)
    y[:2] = 1, -1
    return rng.normal(size=(m, n)) + 0.7 * y[:, None], y


@pytest.mark.parametrize("ratio", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("unequal", [False, True])
def test_objective_is_the_optimum_of_the_published_program(ratio, unequal, rng):
    for m, n in ((25, 5), (8, 12)):
        X, y = draw(rng, m, n)
        values = rng.uniform(0.3, 2, size=n) if unequal else np.ones(n)
        model = FeatureDeletionClassifier(1.7, values, margin=2 * ratio, bound=2.0).fit(X, y)
        optimum = published(X, y, values, 1.7, 2 * ratio, 2.0)
        scale = max(optimum, 2 * ratio)
        assert model.objective_ == pytest.approx(optimum, abs=1e-6 * scale)
        assert model.lower_bound_ <= optimum + 1e-9 * scale
        assert model.gap_ == pytest.approx((model.objective_ - model.lower_bound_) / max(model.objective_, 2 * ratio))
        assert model.gap_ <= 1e-6
        assert np.all(np.abs(model.coef_) <= 2.0)


def test_budget_of_0_is_a_hinge_loss_with_limits(rng):
    X, y = draw(rng, 40, 4)
    model = FeatureDeletionClassifier(0, margin=0.5).fit(X, y)
    m, n = X.shape
    A = np.hstack([-y[:, None] * X, -y[:, None], -np.eye(m)])
    bounds = [(-1, 1)] * n + [(None, None)] + [(0, None)] * m
    hinge = linprog(np.r_[np.zeros(n + 1), np.full(m, 1 / m)], A_ub=A, b_ub=np.full(m, -0.5), bounds=bounds).fun
    assert model.objective_ == pytest.approx(hinge, abs=1e-6)


def test_twice_the_margin_and_the_bound_are_twice_the_objective(rng):
    X, y = draw(rng)
    once = FeatureDeletionClassifier(1, margin=0.3).fit(X, y)
    twice = FeatureDeletionClassifier(1, margin=0.6, bound=2.0).fit(X, y)
    assert twice.objective_ == pytest.approx(2 * once.objective_, rel=1e-9)
    assert twice.worst_case_error_ == pytest.approx(once.worst_case_error_, rel=1e-9)


def test_features_of_no_value_are_not_used(rng):
    X, y = draw(rng, n=6)
    values = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 1.0])
    model = FeatureDeletionClassifier(1.5, values).fit(X, y)
    used = values > 0
    assert np.all(model.coef_[:, ~used] == 0)
    assert model.objective_ == pytest.approx(FeatureDeletionClassifier(1.5, values[used]).fit(X[:, used], y).objective_)
    assert model.objective_ == pytest.approx(published(X, y, values, 1.5, 0.1, 1.0), abs=1e-6)


@pytest.mark.parametrize("kind", [np.float32, sparse.csr_matrix, sparse.csc_array, np.asfortranarray])
def test_format_of_the_rows_does_not_matter(kind, rng):
    X, y = draw(rng, 60, 6)
    X = np.round(X, 1).astype(np.float32).astype(np.float64) * (rng.random(X.shape) < 0.3)
    model = FeatureDeletionClassifier(1.3, [1, 2, 1, np.inf, 1, 1])
    assert model.fit(kind(X), y).objective_ == pytest.approx(model.fit(X, y).objective_, abs=1e-8)
    assert np.array_equal(model.predict(kind(X)), model.predict(X))
    assert model.deletions_survived(kind(X)) == pytest.approx(model.deletions_survived(X), rel=1e-6)


def test_weights_are_repetitions(rng):
    X, y = draw(rng)
    times = rng.integers(0, 4, size=len(y))
    times[:2] = 1
    weighted = FeatureDeletionClassifier(2, margin=0.5, tol=1e-8).fit(X, y, sample_weight=times)
    repeated = FeatureDeletionClassifier(2, margin=0.5, tol=1e-8).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-7)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-7)


def test_class_weights_are_weights(rng):
    X, y = draw(rng)
    by_class = FeatureDeletionClassifier(1, class_weight={1: 3.0}).fit(X, y)
    by_row = FeatureDeletionClassifier(1).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    assert by_class.objective_ == by_row.objective_


def test_worst_case_error_holds_for_every_deletion(rng):
    X, y = draw(rng, 50, 5)
    model = FeatureDeletionClassifier(2, margin=0.05).fit(X, y)
    turned = np.zeros(len(y), dtype=bool)
    for size in range(3):
        for columns in combinations(range(5), size):
            some = X.copy()
            some[:, columns] = 0
            turned |= y * model.decision_function(some) <= 0
    assert turned.mean() <= model.worst_case_error_ < 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_deletions_survived_by_enumeration(n_classes, rng, several_classes):
    X, y = several_classes((12, 10, 9)[:n_classes], d=5)
    model = FeatureDeletionClassifier(1, margin=0.5).fit(X, y)
    survived = model.deletions_survived(X)
    own, every = model.predict(X), np.arange(len(y))
    least = np.full(len(y), np.inf)
    for size in range(6):
        for columns in combinations(range(5), size):
            some = X.copy()
            some[:, columns] = 0
            scores = some @ model.coef_.T + model.intercept_
            scores = np.hstack([-scores, scores]) if n_classes == 2 else scores
            rivals = scores.copy()
            rivals[every, own] = -np.inf
            least[(scores[every, own] <= rivals.max(axis=1)) & np.isinf(least)] = size
    assert np.array_equal(survived, np.maximum(least - 1, 0))
    assert len(np.unique(survived)) > 2


def test_deletions_survived_of_unequal_values_leave_the_class(rng):
    X, y = draw(rng, 60, 6)
    values = rng.uniform(0.3, 2, size=6)
    model = FeatureDeletionClassifier(1.5, values, margin=0.5).fit(X, y)
    survived, own = model.deletions_survived(X), model.predict(X)
    assert np.any(survived < values.sum())
    for size in range(7):
        for columns in combinations(range(6), size):
            some = X.copy()
            some[:, columns] = 0
            safe = values[list(columns)].sum() < survived
            assert np.array_equal(model.predict(some)[safe], own[safe])


def test_exact_adversary_costs_no_more_than_the_relaxed_one(rng):
    X, y = draw(rng, 40, 5)
    for values, budget in (([1, 2, 3, 1, 2], 4.0), (np.full(5, 0.1), 0.25), (np.full(5, 0.1), 0.3)):
        relaxed = FeatureDeletionClassifier(budget, values, margin=0.5).fit(X, y)
        exact = FeatureDeletionClassifier(budget, values, margin=0.5, adversary="exact").fit(X, y)
        assert exact.gap_ <= 1e-6
        assert exact.objective_ <= relaxed.objective_ + 1e-6
    assert exact.objective_ == pytest.approx(relaxed.objective_, abs=1e-6)  # 0.3 is three of them


def test_chunks_are_averaged_and_said_to_be(rng):
    X, y = draw(rng, 120, 4)
    whole = FeatureDeletionClassifier(1, margin=0.5).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="n_chunks"):
        parts = FeatureDeletionClassifier(1, margin=0.5, n_chunks=4).fit(X, y)
    assert parts.lower_bound_ <= whole.objective_ <= parts.objective_
    assert 1e-6 < parts.gap_ < 0.3
    assert parts.solution_["status"] == "chunked"


def test_nan_is_refused_unless_it_may_be_deleted(rng):
    X, y = draw(rng)
    some = X.copy()
    some[3, 1] = some[5, 4] = np.nan
    model = FeatureDeletionClassifier(1)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(some, y)
    model.fit(X, y)
    for call in (model.predict, model.decision_function, model.deletions_survived):
        with pytest.raises(ValueError, match=r"NaN in columns 1, 4.*missing='delete'"):
            call(some)
    model.set_params(missing="delete")
    again = FeatureDeletionClassifier(1, missing="delete").fit(some, y)
    assert again.objective_ == pytest.approx(FeatureDeletionClassifier(1).fit(np.nan_to_num(some), y).objective_)
    assert np.array_equal(model.decision_function(some), model.decision_function(np.nan_to_num(some)))
    assert model.decision_function(sparse.csr_array(some)) == pytest.approx(model.decision_function(some))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.where(np.isnan(some), np.inf, some))


def test_more_missing_than_the_budget_is_said(rng):
    X, y = draw(rng)
    model = FeatureDeletionClassifier(1.5, [1, 1, 1, 2, np.inf], missing="delete").fit(X, y)
    some = X.copy()
    some[0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(some)
    some[1, :2] = some[2, 3] = some[3, 4] = np.nan
    with pytest.warns(UserWarning, match="3 of 30 rows miss features worth more than budget=1.5"):
        model.predict(some)


def test_training_is_not_touched_by_prediction(rng):
    X, y = draw(rng)
    model = FeatureDeletionClassifier(1, missing="delete").fit(X, y)
    some = np.where(np.arange(5) == 2, np.nan, X)
    before = some.copy()
    model.predict(some)
    assert np.array_equal(some, before, equal_nan=True)


def test_limit_of_steps_is_a_warning_with_an_honest_gap(rng):
    X, y = draw(rng, 60, 5)
    optimum = FeatureDeletionClassifier(2, margin=0.5).fit(X, y).objective_
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = FeatureDeletionClassifier(2, margin=0.5, max_iter=4).fit(X, y)
    assert model.lower_bound_ <= optimum + 1e-6 <= model.objective_ + 2e-6
    assert model.gap_ > 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget=.*must be a finite number >= 0"),
        ({"budget": 5}, r"budget=5\): must be below .* 5 \(n_features=5\)"),
        ({"values": [1, 1]}, "one for each feature"),
        ({"values": [1, 1, -1, 1, 1]}, "must be >= 0"),
        ({"margin": 0}, "margin=0"),
        ({"bound": np.inf}, "bound=inf"),
        ({"bound": 0.0}, "bound=0.0"),
        ({"margin": -0.1}, "margin=-0.1"),
        ({"adversary": "greedy"}, "'relaxed', 'tightened', 'exact'"),
        ({"adversary": "exact", "values": [1, 1.5, 1, 1, 1]}, "Give integers"),
        ({"adversary": "exact", "n_chunks": 2}, "chunks are for adversary='relaxed'"),
        ({"missing": "zero"}, "'raise' or 'delete'"),
        ({"n_chunks": 0}, "n_chunks=0"),
        ({"n_chunks": 29}, "every chunk needs one"),
        ({"solver": "newton"}, "deletion_interior_point"),
        ({"tol": 0}, "tol=0"),
    ],
)
def test_senseless_settings_are_refused(options, message, rng):
    X, y = draw(rng)
    with pytest.raises(ValueError, match=message):
        FeatureDeletionClassifier(**options).fit(X, y)


def test_data_too_large_are_refused_with_a_cure(rng, monkeypatch):
    X, y = draw(rng)
    monkeypatch.setattr("holdfast.estimators.feature_deletion.LARGEST_MATRIX", 60)
    with pytest.raises(ValueError, match=r"Use n_chunks=3 or more"):
        FeatureDeletionClassifier(1).fit(X, y)


@pytest.mark.parametrize(
    "options", [{"solver": "deletion_interior_point"}, {"adversary": "exact"}, {"dense": True}, {}]
)
def test_wide_rows_are_refused_by_those_who_take_matrices_of_all_features(options, rng, monkeypatch):
    X = sparse.random_array((40, 2000), density=0.005, rng=rng, format="csr")
    y, is_refused = np.where(np.arange(40) % 2, 1, -1), bool(options)
    X = X.toarray() if options.pop("dense", False) else X
    monkeypatch.setattr("holdfast.estimators.feature_deletion.WIDEST", 1999)
    model = FeatureDeletionClassifier(2, 1 + np.arange(2000) % 2, **options)
    if is_refused:
        with pytest.raises(ValueError, match=r"X has 2000 features.*adversary='relaxed' and.*1999 features"):
            model.fit(X, y)
    else:
        assert model.fit(X, y).solution_["solver"] == "deletion_primal_dual"


def test_labels_may_be_words_and_columns_have_names(rng):
    pd = pytest.importorskip("pandas")
    X, y = draw(rng)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = FeatureDeletionClassifier(1).fit(frame, np.where(y > 0, "yes", "no"))
    assert model.score(frame, np.where(y > 0, "yes", "no")) == FeatureDeletionClassifier(1).fit(X, y).score(X, y)
    frame.loc[0, "b"] = np.nan
    with pytest.raises(ValueError, match="NaN in column 'b'"):
        model.predict(frame)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_model_does_not_depend_on_how_repeated_rows_are_stated(kind, rng):
    X, y = draw(rng, 40, 4)
    X = np.round(X)
    times = rng.integers(0, 4, size=40)
    times[:2] = 1
    order = rng.permutation(times.sum())
    weighted = FeatureDeletionClassifier(1).fit(kind(X), y, sample_weight=times)
    repeated = FeatureDeletionClassifier(1).fit(kind(np.repeat(X, times, axis=0)[order]), np.repeat(y, times)[order])
    assert weighted.coef_ == pytest.approx(repeated.coef_, abs=1e-7)


def test_rows_that_contradict_each_other_both_count():
    X, y = np.array([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]), np.array([1, -1, -1])
    with pytest.warns(CollapseWarning):
        model = FeatureDeletionClassifier(0.5, margin=0.3).fit(X, y)
    assert model.objective_ == pytest.approx(published(X, y, np.ones(2), 0.5, 0.3, 1.0), abs=1e-6)
    assert model.objective_ >= 0.3 / 3


@pytest.mark.parametrize("adversary", ["relaxed", "exact"])
def test_a_model_that_gives_all_rows_one_class_says_so(adversary, rng):
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 3 > 0
    model = FeatureDeletionClassifier(1, adversary=adversary, missing="delete")
    with pytest.warns(CollapseWarning, match="every prediction is the same"):
        model.fit(X, y)
    assert model.collapsed_
    assert not np.any(model.coef_)
    assert np.all(model.predict(X))
    assert model.gap_ <= 1e-6
    with_gaps = np.where(rng.uniform(size=X.shape) < 0.5, np.nan, X)
    assert np.all(model.is_certain(with_gaps))  # of what is missing, as its documentation says
    told = FeatureDeletionClassifier(1, adversary=adversary).fit(X + 2.0 * y[:, None], y)
    assert not told.collapsed_


@pytest.mark.thin(3)
@pytest.mark.parametrize("margin", [0.1, 0.001])
@pytest.mark.parametrize("scale", [True, False])
def test_real_rows_are_certified(scale, margin):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) if scale else X
    model = FeatureDeletionClassifier(2, margin=margin).fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.score(X, y) > 0.9


def test_rows_of_very_different_weights_are_certified():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(12, 2)) + (np.arange(12) % 2)[:, None], np.arange(12) % 2
    assert FeatureDeletionClassifier(1).fit(X, y, sample_weight=10.0 ** rng.uniform(-6, 6, 12)).gap_ <= 1e-6
