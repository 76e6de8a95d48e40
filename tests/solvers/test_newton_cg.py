"""Newton-CG on wide sparse data: certified fits, no false collapse, the same answer however the rows are held."""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._core.solution import Status
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning
from holdfast.losses import QuadraticHinge
from holdfast.solvers import NewtonCG, newton_cg
from holdfast.solvers.selection import pick, solve

NOISES = (0.01, 0.05, 0.2)


def texts(rng, n=600, d=1500, per_row=12, positive=0.5):
    """Return rows of words drawn by Zipf's law, of unit length, and labels from a linear rule with noise."""
    edges = np.cumsum(1 / (np.arange(d) + 5.0))
    words = np.searchsorted(edges / edges[-1], rng.uniform(size=n * per_row))
    X = sparse.csr_array((np.ones(n * per_row), words, np.arange(0, n * per_row + 1, per_row)), shape=(n, d))
    X.sum_duplicates()
    X = sparse.csr_array(sparse.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X)
    score = X @ rng.normal(size=d)
    score += 0.5 * score.std() * rng.normal(size=n)
    return X, np.where(score > np.quantile(score, 1 - positive), 1.0, -1.0)


def fitted(X, y, noise, **options):
    weight = options.pop("sample_weight", None)
    return GaussianRobustClassifier(noise, **{"solver": "newton_cg", **options}).fit(X, y, sample_weight=weight)


def test_wide_rows_are_left_to_newton_cg_where_they_are_sparse_or_few(make_problem, rng, loss):
    X, y = texts(rng)
    assert isinstance(pick(make_problem(X, y, loss)), NewtonCG)
    assert isinstance(pick(make_problem(X.toarray(), y, loss)), NewtonCG)
    many = np.broadcast_to(X.toarray()[:1, :501], (501 * 40, 501))
    assert not isinstance(pick(make_problem(many, np.where(np.arange(501 * 40) % 2, 1.0, -1.0), loss)), NewtonCG)
    assert not isinstance(pick(make_problem(X[:, :100], y, loss)), NewtonCG)


@pytest.mark.thin(2)
@pytest.mark.parametrize("noise", NOISES)
def test_fits_of_texts_are_certified(loss, noise, rng):
    X, y = texts(rng)
    model = GaussianRobustClassifier(noise, loss=loss).fit(X, y)
    assert model.solution_["solver"] == "newton_cg"
    assert model.gap_ <= 1e-6


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_fits_of_real_counts_are_certified(loss, noise, load_data):
    data = load_data("spambase")
    X = sparse.csr_array(data["X"] / data["X"].std(axis=0))
    assert fitted(X, data["y"], noise, loss=loss).gap_ <= 1e-6


@pytest.mark.thin(2)
@pytest.mark.parametrize("noise", NOISES)
def test_ridge_and_noise_by_feature_are_certified(dual_loss, noise, rng):
    X, y = texts(rng, 300, 800)
    for std in (noise, GaussianNoise(std=noise * rng.uniform(0.5, 2, size=X.shape[1]))):
        assert fitted(X, y, std, loss=dual_loss, alpha=0.1).gap_ <= 1e-6
    assert fitted(X, y, std, loss=dual_loss).gap_ <= 1e-6


def test_ridge_certifies_the_logistic_loss_under_noise_by_feature(rng):
    X, y = texts(rng)
    std = rng.uniform(0.0, 0.5, size=X.shape[1])
    assert fitted(X, y, GaussianNoise(std=std), loss="logistic", alpha=0.1).gap_ <= 1e-6


def test_sparse_and_dense_rows_give_the_same_coefficients(loss, make_problem, rng):
    X, y = texts(rng, 150, 40)
    found = []
    for held in (X, X.toarray(), X.astype(np.float32)):
        exact = sparse.csr_array(X.astype(np.float32).astype(np.float64)) if held.dtype == np.float32 else held
        problem = make_problem(held, y, loss, 0.1, alpha=0.5)
        start = problem.join(problem.rows.transpose_dot(y) / len(y), 0.0)
        found.append(solve(problem, "newton_cg", start=start, tol=0.0).parameters)
        reference = make_problem(exact, y, loss, 0.1, alpha=0.5)
        newton = solve(reference, "newton", start=start, tol=0.0).parameters
        assert_allclose(found[-1], newton, rtol=0, atol=1e-7 * np.abs(newton).max())
    assert_allclose(found[0], found[1], rtol=0, atol=1e-7 * np.abs(found[1]).max())


def test_compiled_products_give_the_same_coefficients(rng, monkeypatch):
    pytest.importorskip("numba")
    X, y = texts(rng)
    plain = fitted(X, y, 0.05, loss="hinge", tol=1e-10)
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    model = fitted(X, y, 0.05, loss="hinge", tol=1e-10)
    assert_allclose(model.coef_, plain.coef_, rtol=0, atol=1e-5 * np.abs(plain.coef_).max())


@pytest.mark.thin(4)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_imbalanced_classes_collapse_from_the_critical_noise_on_and_not_before(perspective, seed):
    X, y = texts(np.random.default_rng(seed), 300, 800, positive=0.15)
    critical = critical_noise(X, y, loss=perspective)
    for factor in (0.05, 0.3, 0.97, 0.99):
        model = fitted(X, y, factor * critical, loss=perspective)
        assert not model.collapsed_
        assert model.gap_ <= 1e-6
    with pytest.warns(CollapseWarning):
        assert fitted(X, y, 1.01 * critical, loss=perspective).collapsed_


def test_weights_are_repeated_rows(perspective, rng):
    X, y = texts(rng, 200, 600)
    counts = rng.integers(1, 4, size=200)
    weighted = fitted(X, y, 0.05, loss=perspective, sample_weight=counts, tol=1e-11)
    repeated = fitted(X[np.repeat(np.arange(200), counts)], np.repeat(y, counts), 0.05, loss=perspective, tol=1e-11)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-10)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=0, atol=1e-4 * np.abs(repeated.coef_).max())


def test_order_of_the_rows_does_not_matter(perspective, rng):
    X, y = texts(rng)
    order = np.argsort(y, kind="stable")
    plain, by_class = (fitted(X[rows], y[rows], 0.05, loss=perspective) for rows in (np.arange(len(y)), order))
    assert by_class.gap_ <= 1e-6
    assert by_class.objective_ == pytest.approx(plain.objective_, rel=2e-6)


def test_repeated_constant_and_empty_columns_and_empty_rows_do_no_harm(loss, rng):
    X, y = texts(rng, 200, 600)
    ones, nothing = sparse.csr_array(np.ones((200, 1))), sparse.csr_array((200, 50))
    wide = sparse.hstack([X, X[:, :20], ones, nothing], format="csr")
    tall = sparse.vstack([wide, sparse.csr_array((7, wide.shape[1]))], format="csr")
    model = fitted(tall, np.append(y, np.ones(7)), 0.05, loss=loss)
    assert model.gap_ <= 1e-6
    assert_allclose(model.coef_[0, :20], model.coef_[0, 600:620], rtol=0, atol=1e-4 * np.abs(model.coef_).max())
    assert_allclose(model.coef_[0, 621:], 0, atol=1e-8 * np.abs(model.coef_).max())


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_far_more_features_than_rows(loss, fit_intercept, rng):
    X, y = texts(rng, 100, 5_000, 30)
    noise = GaussianNoise(std=np.full(5_000, 0.05))  # the same as one number, but not reduced to the rows' span
    plain = fitted(X, y, 0.05, loss=loss, fit_intercept=fit_intercept)
    model = fitted(X, y, noise, loss=loss, fit_intercept=fit_intercept)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(plain.objective_, rel=2e-6)


def test_separable_rows_under_hardly_any_noise_are_solved(rng):
    X, y = texts(rng, 300, 3000, positive=0.15)
    for noise in (1e-5, 1e-4, 1e-3):
        assert fitted(X, y, noise, loss="hinge").gap_ <= 1e-6


def test_memory_is_a_few_times_the_nonzeros(rng):
    X, y = texts(rng, 3000, 20_000, 20)
    GaussianRobustClassifier(0.05, loss="hinge").fit(X[:100], y[:100])
    tracemalloc.start()
    try:
        assert GaussianRobustClassifier(0.05, loss="hinge").fit(X, y).gap_ <= 1e-6
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * (X.data.nbytes + X.indices.nbytes + 8 * sum(X.shape))


def test_max_products_bounds_the_work_of_a_step(make_problem, rng, monkeypatch):
    X, y = texts(rng)
    problem = make_problem(X, y, GaussianRobustClassifier(loss="hinge")._loss(), 0.01)
    place = problem.at(problem.join(problem.rows.transpose_dot(y) / len(y), 0.0))
    calls = []
    product = type(place).product
    monkeypatch.setattr(
        type(place), "product", lambda self, v, **options: calls.append(1) or product(self, v, **options)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        NewtonCG(max_products=2).minimise(problem, place.parameters, tol=1e-8, max_iter=1)
    assert 1 <= len(calls) <= 2


def test_step_ends_where_more_is_promised_than_can_be_gained(make_problem, rng):
    X, y = texts(rng)
    problem = make_problem(X, y, GaussianRobustClassifier(loss="hinge")._loss(), 0.001).smoothed(1.0)
    place = problem.at(problem.join(problem.rows.transpose_dot(y), 0.0))
    precondition = place.preconditioner()
    _, _, whole = NewtonCG()._step(place, precondition, 1e-3, 0.0, np.inf)
    step, _, n_products = NewtonCG()._step(place, precondition, 1e-3, 0.0, 1e-3 * place.value)
    assert n_products < whole
    assert place.gradient @ step < 0


def test_products_in_single_precision_cost_no_accuracy(make_problem, rng):
    """Features that are all but multiples of one row need steps that rounding to float32 would spoil."""
    X = rng.normal(size=(400, 1)) @ rng.normal(size=(1, 60)) + 1e-5 * rng.normal(size=(400, 60))
    y = np.where(X[:, 0] + 1e-5 * rng.normal(size=400) > 0, 1.0, -1.0)
    for loss, alpha in (("hinge", 0.0), ("logistic", 1e-6)):
        model = GaussianRobustClassifier(1e-6, loss=loss, alpha=alpha, solver="newton_cg").fit(X, y)
        exact = GaussianRobustClassifier(1e-6, loss=loss, alpha=alpha, solver="newton").fit(X, y)
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(exact.objective_, rel=2e-6)


def test_products_become_exact_once_a_step_takes_many(make_problem, rng, monkeypatch):
    X, y = texts(rng)
    problem = make_problem(X, y, GaussianRobustClassifier(loss="hinge")._loss(), 0.05).smoothed(1.0)
    place = problem.at(problem.join(problem.rows.transpose_dot(y) / len(y), 0.0))
    asked, product = [], type(place).product
    monkeypatch.setattr(
        type(place), "product", lambda self, v, *, exact: asked.append(exact) or product(self, v, exact=exact)
    )
    monkeypatch.setattr(newton_cg, "HARD", 3)
    NewtonCG().minimise(problem, place.parameters, tol=1e-9, max_iter=100)
    assert not asked[0]
    assert asked[-1]


def test_columns_of_very_different_scales_are_left_to_newton_after_some_products(rng):
    n, d = 700, 520
    X = rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.1 * rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + 5 * rng.normal(size=n) > 0, 1, -1)
    X_std, units = 0.1 * np.exp(0.5 * rng.normal(size=X.shape)), 10.0 ** rng.uniform(-4, 4, size=d)
    model = GaussianRobustClassifier(loss="hinge").fit(X * units, y, X_std=X_std * units)
    assert model.solution_["solver"] == "newton"
    newton = GaussianRobustClassifier(loss="hinge", solver="newton").fit(X * units, y, X_std=X_std * units)
    assert_allclose(model.objective_, newton.objective_, rtol=2e-6)


def test_steps_of_many_products_use_up_iterations(make_problem, rng):
    X, y = texts(rng, 300, 800)
    problem = make_problem(X, y, QuadraticHinge(), 0.01)
    start = problem.join(problem.rows.transpose_dot(y) / len(y), 0.0)
    impatient = NewtonCG()
    impatient.passes_a_step = 1
    found = impatient.minimise(problem, start, tol=0.0, max_iter=20)
    assert found.n_iter < NewtonCG().minimise(problem, start, tol=0.0, max_iter=20).n_iter
    assert found.status is Status.ITERATION_LIMIT
