"""MinimaxProbabilityClassifier: what it promises holds, and its options mean what they say."""

import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, MinimaxProbabilityClassifier


@pytest.fixture
def data(rng):
    """Sixty rows of four features whose spreads differ, y = 0, 1, and half-widths."""
    y = (np.arange(60) % 3 == 0).astype(int)
    X = rng.normal(size=(60, 4)) * np.where(y[:, None] == 1, [1.0, 2.0, 0.5, 1.0], [1.5, 1.0, 1.0, 0.3])
    return X + np.outer(y, [1.5, 1.0, 0.0, -0.5]), y, rng.uniform(0, 0.4, size=(60, 4))


def _laws(rng, mean, covariance, n_laws, n_points):
    """Return points of laws with exactly this mean and covariance: each law uniform on its points."""
    root = np.linalg.cholesky(covariance)
    for number in range(n_laws):
        kind = number % 4
        Y = [rng.normal, rng.standard_cauchy, rng.exponential, lambda size: rng.choice([-1.0, 1.0, 20.0], size=size)][
            kind
        ]
        Y = Y(size=(n_points, len(mean)))
        Y = Y - Y.mean(axis=0)
        values, vectors = np.linalg.eigh(Y.T @ Y / n_points)
        yield mean + Y @ (vectors / np.sqrt(values)) @ vectors.T @ root.T


def test_no_law_with_the_moments_of_a_class_errs_more_often_than_promised(rng, data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(X, y)
    for k in (0, 1):
        mean, covariance = X[y == k].mean(axis=0), np.cov(X[y == k].T, ddof=0)
        for Z in _laws(rng, mean, covariance, 1000, 40):
            assert np.mean(model.predict(Z) != k) <= model.worst_case_error_ + 1e-12


def test_two_points_in_the_worst_place_err_exactly_as_often_as_promised(data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(covariance_ridge=0.0, tol=1e-10).fit(X, y)
    w, kappa = model.coef_[0], model.separation_[0]
    for k, side in ((0, 1.0), (1, -1.0)):
        mean, G = X[y == k].mean(axis=0), np.cov(X[y == k].T, ddof=0)
        along = G @ w / np.sqrt(w @ G @ w)
        # the rest of the covariance, in directions that do not move the score
        values, vectors = np.linalg.eigh(G - np.outer(along, along))
        rest = vectors[:, 1:] * np.sqrt(values[1:] * 3)
        corners = np.concatenate([rest.T, -rest.T])
        points = np.concatenate([mean + side * kappa * along + corners, mean - side / kappa * along + corners])
        chances = np.repeat([1 / (1 + kappa**2), kappa**2 / (1 + kappa**2)], 6) / 6
        np.testing.assert_allclose(chances @ points, mean, atol=1e-8)
        np.testing.assert_allclose((points - mean).T @ ((points - mean) * chances[:, None]), G, atol=1e-7)
        wrong = side * model.decision_function(points) >= -1e-8  # on the boundary or beyond
        assert chances @ wrong == pytest.approx(1 / (1 + kappa**2), rel=1e-9)
        assert model.class_worst_case_errors_[k] == pytest.approx(1 / (1 + kappa**2), rel=1e-9)


def test_other_directions_and_thresholds_promise_less(rng, data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(X, y)
    means, covariances = zip(*((X[y == k].mean(axis=0), np.cov(X[y == k].T, ddof=0)) for k in (0, 1)), strict=True)
    for _ in range(300):
        w, b = model.coef_[0] + 0.1 * rng.normal(size=4), model.intercept_[0] + 0.1 * rng.normal()
        margins = [s * (m @ w + b) / np.sqrt(w @ G @ w) for s, m, G in zip((-1, 1), means, covariances, strict=True)]
        assert min(margins) <= model.separation_[0] * (1 + 1e-6)


def test_training_rows_err_no_more_often_than_promised_whatever_the_sets(data):
    X, y, S = data
    models = [
        MinimaxProbabilityClassifier(),
        MinimaxProbabilityClassifier(Box(0.5), kappa=0.3),
        MinimaxProbabilityClassifier(Ellipsoid(), means="uncertain"),
        MinimaxProbabilityClassifier(GaussianNoise()),
    ]
    for model in models:
        model.fit(X, y, X_std=S if model.uncertainty is not None else None)
        errors = [np.mean(model.predict(X[y == k]) != k) for k in (0, 1)]
        assert np.all(errors <= model.class_worst_case_errors_)
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(1 / model.separation_[0], rel=1e-12)
        assert model.lower_bound_ <= model.objective_
        np.testing.assert_allclose(model.class_worst_case_errors_, model.worst_case_error_, rtol=1e-9)


def test_admissible_rows_err_no_more_often_than_promised_where_means_move_too(rng, data):
    X, y, S = data
    model = MinimaxProbabilityClassifier(Box(), means="uncertain").fit(X, y, X_std=S)
    signs = np.where(y == 1, 1.0, -1.0)
    for _ in range(1000):
        pushed = np.where(
            rng.random((60, 1)) < rng.uniform(), -signs[:, None] * np.sign(model.coef_), rng.choice([-1, 1])
        )
        wrong = model.predict(X + S * pushed) != y
        assert max(wrong[y == 0].mean(), wrong[y == 1].mean()) <= model.worst_case_error_


def test_intervals_longer_one_way_move_means_and_spreads_by_the_formula(data):
    X, y, S = data
    low, high = 0.3 * S, 2.0 * S
    model = MinimaxProbabilityClassifier(IntervalBox(), means="uncertain", covariance_ridge=0.0)
    model.fit(X, y, X_lower=X - low, X_upper=X + high)
    w, b = model.coef_[0], model.intercept_[0]
    up, down = (np.sum(np.maximum(sign * high * w, -sign * low * w), axis=1) for sign in (1, -1))
    for k, towards in ((0, up), (1, down)):
        a = (X[y == k] - X[y == k].mean(axis=0)) @ w
        spread = np.sqrt(np.mean(np.maximum(a + up[y == k], -a + down[y == k]) ** 2))
        lead = (2 * k - 1) * (X[y == k].mean(axis=0) @ w + b) - towards[y == k].mean()
        assert lead / spread == pytest.approx(model.separation_[0], rel=1e-9)
        assert model.class_worst_case_errors_[k] == pytest.approx(1 / (1 + (lead / spread) ** 2), rel=1e-9)


def test_a_refused_refit_leaves_the_model_as_it_was(data):
    X, y, _ = data
    for kernel in (None, "rbf"):
        model = MinimaxProbabilityClassifier(covariance_ridge=0.01, kernel=kernel).fit(X, y)
        before = model.decision_function(X)
        with pytest.raises(ValueError, match="same mean"):
            model.fit(np.zeros_like(X), y)
        np.testing.assert_array_equal(model.decision_function(X), before)


def test_a_refit_that_is_refused_late_leaves_the_whole_model(rng, data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier().fit(pd.DataFrame(X, columns=list("abcd")), y)
    before = vars(model).copy()
    for wide, labels in (
        (rng.normal(size=(12, 30)), np.arange(12) % 2),
        (rng.normal(size=(30, 3)), np.arange(30) == 0),
    ):
        model.set_params(covariance_ridge=0.0)
        with pytest.raises(ValueError, match="covariance_ridge"):
            model.fit(wide, labels)
        after = vars(model.set_params(covariance_ridge=1e-6))
        assert all(after[name] is before[name] for name in before if name.endswith("_"))
        assert [name for name in after if name.endswith("_")] == [name for name in before if name.endswith("_")]


def test_a_class_of_one_row_needs_a_ridge(rng):
    X, y = rng.normal(size=(30, 3)), np.array(["few"] + ["many"] * 29)
    with pytest.raises(ValueError, match="class 'few' has no spread at all, so the boundary runs through its mean"):
        MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(X, y)
    model = MinimaxProbabilityClassifier(covariance_ridge=0.1).fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.predict(X[:1]) == "few"


def test_an_early_stop_is_not_taken_for_means_that_coincide(rng):
    X, y = rng.normal(size=(200, 10)), np.arange(200) % 2
    X[y == 1] += 0.5 * rng.normal(size=10)
    D = np.abs(X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0))
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = MinimaxProbabilityClassifier(Box(0.499 * D.max()), means="uncertain", max_iter=10).fit(X, y)
    assert np.isfinite(model.objective_)
    assert model.lower_bound_ < model.objective_
    for max_iter in (10, 1000):
        with pytest.raises(ValueError, match="within the sets the classes may have the same mean"):
            MinimaxProbabilityClassifier(Box(0.501 * D.max()), means="uncertain", max_iter=max_iter).fit(X, y)


def test_an_early_stop_without_an_answer_is_called_so(rng):
    X, y = rng.normal(size=(40, 5)), np.arange(40) % 2
    F = rng.normal(size=(40, 5, 2)) @ np.diag([0.5, 0.01])
    model = MinimaxProbabilityClassifier(Ellipsoid(), means="uncertain", max_iter=1)
    with pytest.raises(ValueError, match=r"raise max_iter=1"):
        model.fit(X, y, X_factor=F)


def test_noise_is_as_good_as_rows_that_have_been_moved_by_it(data):
    X, y, _ = data
    noisy = MinimaxProbabilityClassifier(GaussianNoise(0.3), covariance_ridge=0.0).fit(X, y)
    moves = 0.3 * np.sqrt(4) * np.concatenate([np.eye(4), -np.eye(4)])
    spread = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(
        (X[:, None] + moves).reshape(-1, 4), np.repeat(y, len(moves))
    )
    np.testing.assert_allclose(noisy.coef_, spread.coef_, rtol=1e-6)
    np.testing.assert_allclose(noisy.intercept_, spread.intercept_, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"kappa": 0.4, "weights": "sum"}, {"means": "uncertain"}], ids=str)
def test_a_weight_of_two_is_as_good_as_stating_a_row_twice(rng, data, options):
    X, y, S = data
    counts = rng.integers(0, 3, size=60)
    model = MinimaxProbabilityClassifier(Box(), **options)
    weighted = model.fit(X, y, sample_weight=counts, X_std=S).__dict__.copy()
    model.fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), X_std=np.repeat(S, counts, axis=0))
    np.testing.assert_allclose(weighted["coef_"], model.coef_, rtol=1e-4, atol=1e-5)
    assert weighted["objective_"] == pytest.approx(model.objective_, rel=1e-6)


@pytest.mark.parametrize("pooling", ["rms", "sum"])
def test_the_unit_of_the_weights_does_not_matter(rng, data, pooling):
    X, y, S = data
    model = MinimaxProbabilityClassifier(Box(), kappa=0.4, weights=pooling)
    weights = rng.uniform(0.5, 2, size=60)
    values = [model.fit(X, y, sample_weight=unit * weights, X_std=S).objective_ for unit in (1e-4, 1.0, 1e4)]
    np.testing.assert_allclose(values, values[1], rtol=1e-6)


def test_published_weights_are_those_of_the_report_where_no_row_counts_more(data):
    X, y, S = data
    model = MinimaxProbabilityClassifier(Box(), kappa=0.0, weights="sum", covariance_ridge=0.0)
    w = model.fit(X, y, sample_weight=np.full(60, 0.01), X_std=S).coef_[0]
    spreads = [
        ((X[own] - X[own].mean(axis=0)) @ w).std() + S[own].sum(axis=0) @ np.abs(w) / np.sqrt(own.sum())
        for own in (y == 0, y == 1)
    ]
    assert model.objective_ == pytest.approx(sum(spreads), rel=1e-9)


def test_a_huge_row_of_weight_zero_does_not_count(data):
    X, y, _ = data
    plain = MinimaxProbabilityClassifier().fit(X, y)
    odd = MinimaxProbabilityClassifier().fit(
        np.vstack([X, np.full(4, 1e150)]), np.append(y, 1), sample_weight=np.append(np.ones(60), 0)
    )
    np.testing.assert_allclose(odd.coef_, plain.coef_, rtol=1e-12)


@pytest.mark.parametrize("sets", [None, Box(0.5)], ids=repr)
def test_features_in_other_units_change_nothing_but_the_units(rng, data, sets):
    X, y, S = data
    units, offset = 10.0 ** rng.uniform(-3, 3, size=4), rng.normal(size=4)
    metadata = {} if sets is None else {"X_std": S}
    scaled = {} if sets is None else {"X_std": S * units}
    one = MinimaxProbabilityClassifier(sets, covariance_ridge=0.01).fit(X, y, **metadata)
    other = MinimaxProbabilityClassifier(sets, covariance_ridge=0.01).fit((X + offset) * units, y, **scaled)
    assert other.worst_case_error_ == pytest.approx(one.worst_case_error_, rel=1e-6)
    np.testing.assert_allclose(other.coef_ * units, one.coef_, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        other.decision_function((X + offset) * units), one.decision_function(X), rtol=1e-3, atol=1e-4
    )


def test_rows_far_from_zero_give_the_same_weights(data):
    X, y, _ = data
    near, far = (MinimaxProbabilityClassifier().fit(X + shift, y) for shift in (0.0, 1e6))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-6)
    np.testing.assert_allclose(far.decision_function(X + 1e6), near.decision_function(X), atol=1e-6)


def _on_a_grid(X):
    """Return numbers that are still exact when they are added to others of up to 2**30."""
    return np.round(X * 2.0**20) / 2.0**20


@pytest.mark.parametrize("far", [2.0**10, 2.0**20, 2.0**30])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("sets", [None, Box(0.1), Ball(0.1)], ids=repr)
def test_what_is_certified_far_from_zero_is_the_optimum_near_it(data, sets, kind, far):
    X, y, _ = data
    X = _on_a_grid(X)
    near = MinimaxProbabilityClassifier(sets, covariance_ridge=0.01).fit(X, y)
    model = MinimaxProbabilityClassifier(sets, covariance_ridge=0.01).fit(kind(X + far * np.array([1, -1, 0, 1])), y)
    assert model.gap_ <= 1e-6
    assert model.lower_bound_ <= near.objective_ * (1 + 1e-9)
    assert model.objective_ == pytest.approx(near.objective_, rel=1e-6)
    np.testing.assert_allclose(model.covariance_ridge_, near.covariance_ridge_, rtol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("sets", [None, Box(0.1)], ids=repr)
def test_classes_far_apart_have_the_spreads_that_they_have_near_each_other(data, sets, kind):
    X, y, _ = data
    X = _on_a_grid(X) + 2.0**20 * y[:, None]
    model = MinimaxProbabilityClassifier(sets, covariance_ridge=0.0).fit(kind(X), y)
    w, spread = model.coef_[0], 0.0
    for k in (0, 1):
        a = np.abs((X[y == k] - X[y == k].mean(axis=0)) @ w) + (0 if sets is None else 0.1 * np.abs(w).sum())
        spread += np.sqrt(np.mean(a**2))
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(spread / (w @ (X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0))), rel=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("large", [2.0**10, 2.0**14, 2.0**17])
def test_features_that_all_but_agree_prove_no_more_than_their_differences(rng, large, kind):
    y = np.arange(200) % 2
    T = _on_a_grid(np.column_stack([rng.normal(size=200), rng.normal(size=200) + y]))
    X = np.column_stack([large * T[:, 0], large * T[:, 0] + T[:, 1]])
    model = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(kind(X), y)
    best = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(T, y).objective_
    assert model.gap_ <= 1e-6
    assert model.lower_bound_ <= best * (1 + 1e-9)
    assert model.objective_ == pytest.approx(best, rel=1e-6)


def test_swapped_labels_turn_the_model_around(data):
    X, y, _ = data
    one = MinimaxProbabilityClassifier(IntervalBox(-0.1, 0.4)).fit(X, y)
    other = MinimaxProbabilityClassifier(IntervalBox(-0.1, 0.4)).fit(X, 1 - y)
    np.testing.assert_allclose(other.decision_function(X), -one.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("sets", [Box(0.0), Ball(0.0), GaussianNoise(0.0)], ids=repr)
def test_sets_of_size_zero_leave_the_plain_machine(data, sets):
    X, y, _ = data
    np.testing.assert_array_equal(
        MinimaxProbabilityClassifier(sets).fit(X, y).coef_, MinimaxProbabilityClassifier().fit(X, y).coef_
    )


def test_sparse_rows_and_half_widths_give_the_dense_model(rng, data):
    X, y, S = data
    X, S = X * (rng.random(X.shape) < 0.7), S * (rng.random(S.shape) < 0.5)
    dense = MinimaxProbabilityClassifier(Box()).fit(X, y, X_std=S)
    thin = MinimaxProbabilityClassifier(Box()).fit(sparse.csr_matrix(X), y, X_std=sparse.csr_matrix(S))
    assert thin.objective_ == pytest.approx(dense.objective_, rel=1e-6)
    np.testing.assert_allclose(thin.decision_function(sparse.csr_matrix(X)), dense.decision_function(X), atol=1e-4)


def test_published_weights_and_no_sets_inside_make_coefficients_zero(data):
    X, y, S = data
    model = MinimaxProbabilityClassifier(Box(), kappa=0.0, weights="sum").fit(X, y, X_std=S)
    assert np.any(model.coef_ == 0)
    assert model.gap_ <= 1e-6


def test_the_ridge_is_a_share_of_the_variances(data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(covariance_ridge=0.1).fit(X, y)
    np.testing.assert_allclose(model.covariance_ridge_, 0.1 * X.var(axis=0), rtol=1e-12)
    w = model.coef_[0]
    spreads = [np.sqrt(w @ (np.cov(X[y == k].T, ddof=0) + 0.1 * np.diag(X.var(axis=0))) @ w) for k in (0, 1)]
    assert model.objective_ == pytest.approx(sum(spreads), rel=1e-10)


def test_more_features_than_rows_are_solved_in_their_span(rng):
    X, y = rng.normal(size=(12, 30)) + 2.0, np.arange(12) % 2
    wide = MinimaxProbabilityClassifier(covariance_ridge=1.0).fit(X, y)
    # a set of next to no size keeps the fit in the space of the features
    full = MinimaxProbabilityClassifier(Ball(1e-9), covariance_ridge=1.0).fit(X, y)
    np.testing.assert_allclose(wide.coef_, full.coef_, rtol=1e-4, atol=1e-6)
    assert wide.objective_ == pytest.approx(full.objective_, rel=1e-6)
    thin = MinimaxProbabilityClassifier(covariance_ridge=1.0).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(thin.coef_, wide.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:The covariances are all but singular")
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("ridge", [1e-6, 1e-10])
@pytest.mark.parametrize("noise", [1e-3, 1e-5])
def test_more_features_than_rows_that_all_but_agree_prove_no_more_than_the_optimum(rng, noise, ridge, kind):
    y = np.arange(20) % 2
    X = 90 + rng.normal(size=(20, 1)) + noise * (rng.normal(size=(20, 40)) + 2 * np.outer(y, np.linspace(-1, 1, 40)))
    model = MinimaxProbabilityClassifier(covariance_ridge=ridge).fit(kind(X), y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    w, groups = cp.Variable(40), [Z[y == k] for k in (0, 1)]
    parts = [cp.hstack([(A - A.mean(axis=0)) @ w / np.sqrt(len(A)), np.sqrt(ridge) * w]) for A in groups]
    program = cp.Problem(
        cp.Minimize(sum(map(cp.norm, parts))), [(groups[1].mean(axis=0) - groups[0].mean(axis=0)) @ w == 1]
    )
    program.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-12)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(program.value, rel=1e-5)
    v = model.coef_[0] * X.std(axis=0)
    attained = sum(np.sqrt(((A - A.mean(axis=0)) @ v).var() + ridge * v @ v) for A in groups)
    assert model.objective_ == pytest.approx(attained, rel=1e-6)


def test_a_linear_kernel_far_from_zero_is_the_one_near_it(data):
    X, y, _ = data
    X = _on_a_grid(X)
    near, far = (MinimaxProbabilityClassifier(kernel="linear").fit(X + shift, y) for shift in (0.0, 2.0**10))
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-6)
    np.testing.assert_allclose(far.decision_function(X + 2.0**10), near.decision_function(X), atol=1e-5)


def test_a_promise_that_rests_on_a_small_ridge_is_called_so(rng):
    X, y = rng.normal(size=(12, 30)), np.arange(12) % 2
    with pytest.warns(LinAlgWarning, match="covariance_ridge=1e-06 and little else. Raise it, to about 1") as caught:
        MinimaxProbabilityClassifier().fit(X, y)
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="covariances are singular and promise errors of 0"):
        MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(X, y)
    assert MinimaxProbabilityClassifier(Box(0.3), covariance_ridge=0.0).fit(X, y).gap_ <= 1e-6


@pytest.mark.thin(3)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("sets", [None, Box(half_widths=[0.1, 0.1, 0.1, 0.1, 0.0])], ids=repr)
@pytest.mark.parametrize("constant", [7.0, 0.1, -0.7, 1e-3, 1e200])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_constant_features_get_no_weight(rng, data, constant, sets, kind, ridge):
    X, y, _ = data
    plain = MinimaxProbabilityClassifier(
        None if sets is None else Box(half_widths=np.full(4, 0.1)), covariance_ridge=ridge
    ).fit(X, y)
    for column in (np.full(60, constant), constant * (1 + 2e-16 * rng.integers(-1, 2, size=60))):
        model = MinimaxProbabilityClassifier(sets, covariance_ridge=ridge).fit(kind(np.column_stack([X, column])), y)
        assert model.gap_ <= 1e-6
        assert model.coef_[0, 4] == 0
        assert model.covariance_ridge_[4] == 0
        np.testing.assert_allclose(model.coef_[0, :4], plain.coef_[0], rtol=1e-4)
        np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=1e-4)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_constant_features_that_are_known_up_to_a_set_get_no_weight(data, kind):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(Box(0.1)).fit(kind(np.column_stack([X, np.full(60, 0.3)])), y)
    plain = MinimaxProbabilityClassifier(Box(0.1)).fit(X, y)
    assert model.gap_ <= 1e-6
    np.testing.assert_allclose(model.coef_[0], np.append(plain.coef_[0], 0.0), rtol=1e-4, atol=1e-12)


def test_features_that_vary_in_rows_of_weight_zero_only_get_no_weight(data):
    X, y, _ = data
    weights = (np.arange(60) > 5).astype(float)
    X = np.column_stack([X, np.where(weights > 0, 0.1, np.arange(60.0))])
    model = MinimaxProbabilityClassifier().fit(X, y, sample_weight=weights)
    assert model.gap_ <= 1e-6
    assert model.coef_[0, 4] == 0


def test_several_classes_are_told_apart_one_against_the_rest(several_classes):
    X, y = several_classes()
    model = MinimaxProbabilityClassifier(Ball(0.1)).fit(X, y)
    for k in range(3):
        alone = MinimaxProbabilityClassifier(Ball(0.1)).fit(X, (y == k).astype(int))
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], rtol=1e-9)
        np.testing.assert_allclose(model.class_worst_case_errors_[k], alone.class_worst_case_errors_, rtol=1e-9)
        assert model.separation_[k] == pytest.approx(alone.separation_[0], rel=1e-9)
    assert model.worst_case_error_ == pytest.approx(min(1.0, np.sum(1 / (1 + model.separation_**2))), rel=1e-12)
    assert np.mean(model.predict(X) != y) <= model.worst_case_error_
    assert model.class_worst_case_errors_.shape == (3, 2)


def test_a_linear_kernel_is_the_linear_machine(data):
    X, y, _ = data
    linear = MinimaxProbabilityClassifier(covariance_ridge=0.0).fit(X, y)
    kernel = MinimaxProbabilityClassifier(covariance_ridge=0.0, kernel="linear").fit(X, y)
    np.testing.assert_allclose(kernel.decision_function(X), linear.decision_function(X), atol=1e-7)
    np.testing.assert_allclose(kernel.dual_coef_ @ X, linear.coef_, atol=1e-7)
    assert not hasattr(kernel, "coef_")


def test_kernels_may_be_named_computed_before_or_called(data):
    X, y, _ = data
    gamma = 1 / (4 * X.var())
    named = MinimaxProbabilityClassifier(kernel="rbf", covariance_ridge=0.01).fit(X, y)
    assert named.gamma_ == pytest.approx(gamma, rel=1e-12)
    K = rbf_kernel(X, gamma=gamma)
    before = MinimaxProbabilityClassifier(kernel="precomputed", covariance_ridge=0.01).fit(K, y)
    called = MinimaxProbabilityClassifier(
        kernel=lambda a, b: np.exp(-gamma * np.sum((a - b) ** 2)), covariance_ridge=0.01
    ).fit(X, y)
    np.testing.assert_allclose(before.decision_function(K), named.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(called.decision_function(X), named.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_kernel_machine_does_not_change_with_what_it_was_made_of(data, kind):
    X, y, _ = data
    rows = kind(X.copy())
    model = MinimaxProbabilityClassifier(kernel="poly", degree=2, coef0=1.0, covariance_ridge=0.01).fit(rows, y)
    before = model.decision_function(X)
    rows *= 0.0
    model.set_params(kernel=None, degree=3, coef0=5.0, gamma=9.0)
    np.testing.assert_array_equal(model.decision_function(X), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).decision_function(X), before)
    linear = MinimaxProbabilityClassifier().fit(X, y)
    before = linear.predict(X)
    np.testing.assert_array_equal(linear.set_params(kernel="rbf").predict(X), before)


def test_negative_coef0_of_a_kernel_is_not_refused_for_its_sign(data):
    X, y, _ = data
    model = MinimaxProbabilityClassifier(kernel="poly", degree=1, coef0=-2.0, covariance_ridge=0.01).fit(X, y)
    plain = MinimaxProbabilityClassifier(kernel="poly", degree=1, covariance_ridge=0.01).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(X), atol=1e-8)


def test_a_kernel_machine_keeps_its_promise_about_its_own_rows(data):
    X, _, _ = data
    ring = (np.linalg.norm(X - X.mean(axis=0), axis=1) > 1.8).astype(int)
    model = MinimaxProbabilityClassifier(kernel="rbf", covariance_ridge=0.01).fit(X, ring)
    K, weights = rbf_kernel(X, gamma=model.gamma_), model.dual_coef_[0]
    total = np.trace(K) / 60 - K.mean()
    sizes = []
    for k in (0, 1):
        scores, own = K[ring == k] @ weights, np.mean(ring == k)
        assert own > 0.2
        sizes.append(np.sqrt(scores.var() + 0.01 * total * weights @ K @ weights))
    assert model.objective_ == pytest.approx(sum(sizes), rel=1e-8)
    assert np.mean(model.predict(X) != ring) <= model.worst_case_error_ < 0.5


def test_max_iter_is_kept_and_said(data):
    X, y, S = data
    with pytest.warns(ConvergenceWarning, match="max_iter") as caught:
        model = MinimaxProbabilityClassifier(Box(), max_iter=5).fit(X, y, X_std=S)
    assert caught[0].filename == __file__
    assert model.n_iter_ <= 5
    assert model.gap_ > 1e-6
    assert model.solution_["status"] == "iteration_limit"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"means": "moving"}, r"means='moving'\): give 'fixed' or 'uncertain'"),
        ({"weights": None}, r"weights=None\): give 'rms' or 'sum'"),
        ({"kappa": 1.5}, r"kappa=1.5\): must be a number from 0 to 1"),
        ({"covariance_ridge": -1}, r"covariance_ridge=-1\): must be a finite number >= 0"),
        ({"tol": 0.0}, r"tol=0.0\): must be a finite number > 0"),
        ({"max_iter": 0}, r"max_iter=0\): must be an integer"),
        ({"uncertainty": 0.3}, r"uncertainty=0.3\): give a set"),
        ({"kernel": "cubic"}, r"kernel='cubic'\): give 'linear', .* or a callable"),
        ({"kernel": "rbf", "gamma": "wide"}, r"gamma='wide'\): give 'scale' or 'auto', or a finite number"),
        ({"kernel": "poly", "degree": 2.5}, r"degree=2.5\): must be an integer >= 0"),
        ({"kernel": "poly", "degree": -1}, r"degree=-1\): must be an integer >= 0"),
        ({"kernel": "poly", "coef0": "one"}, r"coef0='one'\): must be a finite number"),
        ({"kernel": "poly", "coef0": np.inf}, r"coef0=inf\): must be a finite number"),
        ({"kernel": "rbf", "uncertainty": Ball(0.1)}, "what a set of rows becomes under a kernel is not known"),
        ({"solver": "semismooth"}, "solver='semismooth' needs the view"),
        ({"uncertainty": Ball(9.0), "means": "uncertain"}, "within the sets the classes may have the same mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(data, options, message):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        MinimaxProbabilityClassifier(**options).fit(X, y)


def test_rows_that_make_no_sense_are_refused(data):
    X, y, S = data
    model = MinimaxProbabilityClassifier()
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.ones(60))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="say what it means"):
        model.fit(X, y, X_std=S)
    mirrored = np.vstack([X, -X]) + 3.0
    with pytest.raises(ValueError, match="class 1 has the same mean as all other rows"):
        model.fit(mirrored, np.tile(np.arange(60) % 2, 2))
    with pytest.raises(ValueError, match=r"shape \(60, 4\); it is square"):
        MinimaxProbabilityClassifier(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        MinimaxProbabilityClassifier(kernel="precomputed").fit(-np.eye(60), y)
    assert not hasattr(model, "coef_")
