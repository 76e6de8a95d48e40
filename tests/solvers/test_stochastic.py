"""SGD: its steps are those of a plain loop over the published formula, and they lead to the optimum."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._core.problem import Offer, Problem
from holdfast._core.programs import FiniteSum
from holdfast._core.rows import RowArrays
from holdfast._core.solution import Status
from holdfast._proofs.certificate import certificate
from holdfast.losses import ExpectedLogistic, GaussianHinge, TwoPointHinge
from holdfast.solvers import SGD
from holdfast.solvers.selection import pick
from holdfast.solvers.stochastic import Iterate, Pace

ROUNDING = 1e-11


def plain_loop(X, labels, order, draws, gains, shrinks, loss, deviations, bound, W, b):
    """Return W, b and their averages after steps as they are written in the paper; deviations of shape (n_samples, d)."""
    K, C = len(W), max(2, len(W))
    mean_W, mean_b = np.zeros_like(W), np.zeros_like(b)
    for t, i in enumerate(order, start=1):
        vectors = np.concatenate([np.zeros((C - K, X.shape[1])), W])
        intercepts = np.concatenate([np.zeros(C - K), b])
        gradient_W, gradient_b = np.zeros_like(vectors), np.zeros_like(intercepts)
        for k in set(range(C)) - {labels[i]}:
            y = labels[i]
            d = vectors[y] - vectors[k]
            spread = np.linalg.norm(deviations[i] * d)
            u = 1 - d @ X[i] - (intercepts[y] - intercepts[k])
            _, slope_u, slope_t = (part[0] for part in loss.evaluate(np.array([u]), np.array([spread])))
            along = -slope_u * X[i] + (slope_t * deviations[i] ** 2 * d / spread if spread > 0 else 0)
            gradient_W[y] += along
            gradient_W[k] -= along
            gradient_b[y] -= slope_u
            gradient_b[k] += slope_u
        moved = np.ones(K) if len(draws) == 0 else K * (np.arange(K) == draws[t - 1])
        W = W - moved[:, None] * (gains[t - 1] * gradient_W[C - K :] + shrinks[t - 1] * W)
        b = b - moved * gains[t - 1] * gradient_b[C - K :]
        W = W * min(1.0, bound / max(np.linalg.norm(W), 1e-300))
        mean_W, mean_b = mean_W + (W - mean_W) * 2 / (t + 1), mean_b + (b - mean_b) * 2 / (t + 1)
    return W, b, mean_W, mean_b


def sum_of_losses(X, labels, loss, deviations, n_vectors=1, weights=None, ridge=0.0, certify=None, fit_intercept=True):
    """Return the view of a problem of any number of vectors; one deviation for all is told from a matrix of them."""
    if np.ndim(deviations) == 0:
        kernel, noise = "lazy_steps", (float(deviations),)
    else:
        kernel, noise = "plain_steps", tuple(RowArrays.of(deviations))
    return FiniteSum(
        rows=RowArrays.of(X),
        n_features=X.shape[1],
        labels=labels,
        weights=np.ones(len(labels)) if weights is None else weights,
        loss=loss,
        kernel=kernel,
        noise=noise,
        largest_deviation=float(np.max(deviations)),
        largest_scale_slope=loss.largest_scale_slope(),
        ridge=ridge,
        n_vectors=n_vectors,
        fit_intercept=fit_intercept,
        norm_bound=lambda: np.inf,
        certify=certify,
    )


class Whole(Problem):
    """A problem that is nothing but its finite sum."""

    views = {FiniteSum: Offer(lambda problem: problem.sum)}

    def __init__(self, view):
        self.sum = view


@pytest.fixture(params=["plain", "compiled"])
def way(request, monkeypatch):
    """The steps in plain Python, and compiled."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "STEPS_WORTHWHILE", 0 if request.param == "compiled" else np.inf)
    return request.param


@pytest.fixture
def sparse_rows(rng):
    """Rows with many zeros, one of them empty."""
    X = rng.normal(size=(50, 7)) * (rng.uniform(size=(50, 7)) < 0.4)
    X[3] = 0.0
    return X


# The steps


@pytest.mark.parametrize("bound", [np.inf, 0.6])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("noise", ["number", "common", "by row"])
@pytest.mark.parametrize(("K", "one_class"), [(1, False), (3, False), (3, True)])
def test_steps_are_those_of_a_plain_loop(K, one_class, noise, make, bound, way, sparse_rows, rng):
    X, n = sparse_rows, len(sparse_rows)
    labels = rng.integers(0, max(2, K), n)
    order = np.concatenate([rng.permutation(n), rng.permutation(n)])
    draws = rng.integers(0, K, len(order) if one_class else 0)
    gains, ridges = rng.uniform(0.2, 2, len(order)), rng.uniform(0, 0.1, len(order))
    each = {"number": np.array(0.7), "common": rng.uniform(0, 1, (1, 7)), "by row": rng.uniform(0, 1, (n, 7))}[noise]
    loss = GaussianHinge()
    view = sum_of_losses(make(X), labels, loss, each if noise != "by row" else make(each), K)
    iterate = Iterate(np.zeros((K, 7)), np.zeros(K), np.zeros((K, 7)), np.zeros(K))
    iterate.advance(view, Pace(0.4, bound), order, gains, ridges, draws)
    eta = 0.4 / np.sqrt(np.arange(1, len(order) + 1))
    deviations = np.broadcast_to(each, X.shape)
    begin = np.zeros((K, 7)), np.zeros(K)
    expected = plain_loop(X, labels, order, draws, eta * gains, eta * ridges, loss, deviations, bound, *begin)
    found = (iterate.weights, iterate.intercepts, iterate.mean_weights, iterate.mean_intercepts)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=ROUNDING)
    assert iterate.n_steps == len(order)


@pytest.mark.parametrize("K", [1, 4])
def test_steps_of_every_loss_are_those_of_a_plain_loop(K, loss, way, sparse_rows, rng):
    n = len(sparse_rows)
    labels, order, none = rng.integers(0, max(2, K), n), rng.permutation(n), np.empty(0, dtype=np.intp)
    iterate = Iterate(np.zeros((K, 7)), np.zeros(K), np.zeros((K, 7)), np.zeros(K))
    view = sum_of_losses(sparse_rows, labels, loss, np.array(0.5), K)
    iterate.advance(view, Pace(0.5, np.inf), order, np.ones(n), np.zeros(n), none)
    deviations, gains = np.full(sparse_rows.shape, 0.5), 0.5 / np.sqrt(np.arange(1, n + 1))
    begin = np.zeros((K, 7)), np.zeros(K)
    expected = plain_loop(sparse_rows, labels, order, none, gains, np.zeros(n), loss, deviations, np.inf, *begin)
    assert_allclose(iterate.weights, expected[0], rtol=0, atol=ROUNDING)
    assert_allclose(iterate.mean_weights, expected[2], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("shrink", [0.3, 1.0, 5.0], ids=["many folds", "W lost at every step", "more than lost"])
def test_scale_factor_may_vanish(K, shrink, way, sparse_rows, rng):
    """A ridge step never goes beyond w = 0, and a matrix A without inverse is multiplied out."""
    n = len(sparse_rows)
    labels, order, none = rng.integers(0, max(2, K), n), np.arange(n), np.empty(0, dtype=np.intp)
    eta = 0.3 / np.sqrt(np.arange(1, n + 1))
    loss, view = TwoPointHinge(), sum_of_losses(sparse_rows, labels, TwoPointHinge(), np.array(1.5), K)
    iterate = Iterate(np.zeros((K, 7)), np.zeros(K), np.zeros((K, 7)), np.zeros(K))
    iterate.advance(view, Pace(0.3, np.inf), order, np.full(n, 3.0), shrink / eta, none)
    begin, shrinks = (np.zeros((K, 7)), np.zeros(K)), np.full(n, min(shrink, 1.0))
    deviations = np.full(sparse_rows.shape, 1.5)
    expected = plain_loop(sparse_rows, labels, order, none, 3 * eta, shrinks, loss, deviations, np.inf, *begin)
    assert_allclose(iterate.weights, expected[0], rtol=0, atol=ROUNDING)
    assert_allclose(iterate.mean_weights, expected[2], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("kernel", ["lazy_steps", "plain_steps"])
def test_compiled_steps_equal_the_interpreted_ones_over_many_epochs(kernel, monkeypatch, two_classes):
    pytest.importorskip("numba")
    X, y = two_classes(60, 5)
    deviations = np.array(0.5) if kernel == "lazy_steps" else np.full((1, 5), 0.5)
    view = sum_of_losses(
        X, (y > 0).astype(np.int64), GaussianHinge(), deviations, certify=lambda parameters: (1.0, 1.0)
    )
    found = []
    for worthwhile in (0, np.inf):
        monkeypatch.setattr(compiled, "STEPS_WORTHWHILE", worthwhile)
        found.append(
            SGD(epochs=10, average=False, random_state=3).minimise(Whole(view), np.zeros(6), tol=0, max_iter=10)
        )
    assert_allclose(found[0].parameters, found[1].parameters, rtol=1e-12, atol=1e-12)


def test_compiled_steps_are_used_where_there_are_many(monkeypatch, two_classes):
    pytest.importorskip("numba")
    asked, kernel = [], compiled.kernel
    monkeypatch.setattr(compiled, "are_cached", lambda group: True)
    monkeypatch.setattr(compiled, "kernel", lambda name: asked.append(name) or kernel(name))
    X, y = two_classes(60, 5)
    with pytest.warns(match="stochastic"):
        GaussianRobustClassifier(0.5, loss="hinge", solver=SGD(epochs=2)).fit(X, y)
    assert asked == []
    with pytest.warns(match="stochastic"):
        GaussianRobustClassifier(0.5, loss="hinge", solver=SGD(epochs=1)).fit(
            np.repeat(X, 1000, axis=0), np.repeat(y, 1000)
        )
    assert set(asked) == {"lazy_steps", "gaussian_hinge"}


def test_first_step_from_zero_goes_along_the_row(loss, make_problem, two_classes):
    """At w = 0 there is no kink: the noise adds nothing, and the slope of a perspective loss in u is 1."""
    X, y = two_classes(30, 3)
    problem = make_problem(X[:1], y[:1], loss, 0.7)
    view = problem.view(FiniteSum)
    iterate = Iterate.at(np.zeros(4), view)
    iterate.advance(view, Pace(0.25, np.inf), np.array([0]), np.ones(1), np.zeros(1), np.empty(0, dtype=np.intp))
    slope = 1.0 if loss.is_homogeneous else 0.5
    assert_allclose(iterate.parameters(view, True), 0.25 * slope * y[0] * np.append(X[0], 1.0), rtol=1e-14)


def test_exact_norms_survive_cancelling_classes(rng):
    """Classes not met so far have moved alike: their difference is 0 up to rounding, and must not be divided by."""
    X = 1e3 + rng.normal(size=(3, 4))
    view = sum_of_losses(X, np.array([0, 1, 2]), GaussianHinge(), np.array(0.5), 5)
    iterate = Iterate(np.zeros((5, 4)), np.zeros(5), np.zeros((5, 4)), np.zeros(5))
    none = np.empty(0, dtype=np.intp)
    iterate.advance(view, Pace(1e-6, np.inf), np.array([0, 1, 2]), np.ones(3), np.zeros(3), none)
    assert_allclose(iterate.weights[3], iterate.weights[4], rtol=1e-13)
    assert np.all(np.isfinite(iterate.weights))


# The solver


@pytest.mark.thin(3)
def test_every_loss_comes_close_to_the_optimum_without_tuning(loss, two_classes):
    X, y = two_classes(100, 3, separation=0.6)
    best = GaussianRobustClassifier(0.8, loss=loss).fit(X, y)
    model = GaussianRobustClassifier(0.8, loss=loss, solver=SGD(epochs=100), tol=1e-2, random_state=0).fit(X, y)
    assert model.gap_ <= 1e-2
    assert model.solution_["status"] == "solved"
    with pytest.warns(match="stochastic"):
        model = GaussianRobustClassifier(0.8, loss=loss, solver=SGD(epochs=50), random_state=0).fit(X, y)
    assert best.objective_ * (1 - 1e-9) <= model.objective_ <= best.objective_ * (1 + 1e-3)
    assert model.objective_ * (1 - model.gap_) <= best.objective_


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_published_step_reaches_the_published_accuracy(fit_intercept, make_problem, two_classes):
    """eta0 = B / G with the bound on the norm and the largest gradient, 30 000 steps: 2.5 of the specification says 6e-5."""
    X, y = two_classes(60, 3, separation=0.6)
    sigma = 1.0
    problem = make_problem(X, y, GaussianHinge(), sigma, fit_intercept=fit_intercept)
    bound = certificate(problem, np.ones(3), 0.0).norm_bound
    steepest = np.sqrt(np.max(np.sum(X**2, axis=1)) + fit_intercept) + sigma / np.sqrt(2 * np.pi)
    best = GaussianRobustClassifier(sigma, loss="hinge", fit_intercept=fit_intercept).fit(X, y)
    sgd = SGD(eta0=bound / steepest, bound=bound, epochs=500, random_state=0)
    found = sgd.minimise(problem, np.zeros(problem.n_parameters), tol=2e-4, max_iter=500)
    assert found.objective <= best.objective_ * (1 + 2e-4)


@pytest.mark.thin(2)
@pytest.mark.parametrize("one_class", [False, True], ids=["M-GURU", "M-GURU-S2"])
def test_three_classes_come_close_to_the_optimum_of_the_published_objective(one_class, rng):
    X = rng.normal(size=(90, 2)) + np.repeat([[1.5, 0], [-1, 1.2], [-1, -1.2]], 30, axis=0)
    labels = np.repeat(np.arange(3), 30)
    loss, sigma, ridge = GaussianHinge(), 0.7, 0.2

    def objective(parameters):
        W, b = parameters.reshape(3, 3)[:, :2], parameters.reshape(3, 3)[:, 2]
        total = 0.5 * ridge * np.sum(W**2)
        for y in range(3):
            for k in {0, 1, 2} - {y}:
                d = W[y] - W[k]
                total += loss.value(1 - X[labels == y] @ d - b[y] + b[k], np.array(sigma * np.linalg.norm(d))).sum()
        return float(total)

    begin = np.column_stack([X.reshape(3, 30, 2).mean(axis=1) * 0.3, np.zeros(3)]).ravel()
    optimum = minimize(objective, begin, method="BFGS", options={"gtol": 1e-4}).fun
    view = sum_of_losses(X, labels, loss, np.array(sigma), 3, ridge=ridge, certify=lambda v: (objective(v), 1.0))
    sgd = SGD(epochs=80, one_class_per_step=one_class, random_state=0)
    found = sgd.minimise(Whole(view), np.zeros(9), tol=0, max_iter=100)
    assert optimum * (1 - 1e-6) <= found.objective <= optimum * (1 + (1e-2 if one_class else 1e-3))


@pytest.mark.thin(3)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_sparse_rows_give_what_dense_ones_give(dtype, alpha, way, rng):
    X = (rng.normal(size=(80, 9)) * (rng.uniform(size=(80, 9)) < 0.3)).astype(dtype)
    y = np.where(X @ rng.normal(size=9) + 0.3 * rng.normal(size=80) > 0, 1, -1)
    options = {"loss": "hinge", "alpha": alpha, "solver": SGD(epochs=3), "random_state": 1}
    duplicated = sparse.csr_array(
        (
            np.repeat(X[X != 0] / 2, 2),
            np.repeat(np.nonzero(X)[1], 2),
            np.append(0, np.cumsum(2 * np.sum(X != 0, axis=1))),
        )
    )
    duplicated.resize(X.shape)
    found = []
    for matrix in (X, np.asfortranarray(X), sparse.csr_array(X), sparse.csc_array(X), duplicated):
        with pytest.warns(match="stochastic"):
            found.append(GaussianRobustClassifier(0.4, **options).fit(matrix, y))
    for model in found[1:]:
        assert_allclose(model.coef_, found[0].coef_, rtol=0, atol=1e-10)
        assert_allclose(model.intercept_, found[0].intercept_, rtol=0, atol=1e-10)


def test_deviations_by_feature_or_row_that_are_all_the_same_are_one_number(two_classes):
    X, y = two_classes(60, 3)
    options = {"loss": "two_point", "solver": SGD(eta0=0.2, bound=5.0, epochs=3), "random_state": 0}
    cases = [(0.4, {}), (GaussianNoise(std=[0.4] * 3), {}), (0.8, {"X_std": np.full(X.shape, 0.5)})]
    found = []
    for noise, metadata in cases:
        with pytest.warns(match="stochastic"):
            found.append(GaussianRobustClassifier(noise, **options).fit(X, y, **metadata).coef_)
    assert_allclose(found[1], found[0], atol=ROUNDING)
    assert_allclose(found[2], found[0], atol=ROUNDING)


def _found(problem, **options):
    return SGD(random_state=0, **options).minimise(problem, np.zeros(problem.n_parameters), tol=0, max_iter=100)


def test_rows_of_weight_zero_change_nothing(make_problem, two_classes, rng):
    X, y = two_classes(60, 3)
    weights = rng.uniform(0.5, 2, 60) * (rng.uniform(size=60) < 0.7)
    kept = weights > 0
    whole = _found(make_problem(X, y, GaussianHinge(), weights=weights, alpha=0.3), epochs=3)
    fewer = _found(make_problem(X[kept], y[kept], GaussianHinge(), weights=weights[kept], alpha=0.3), epochs=3)
    assert_allclose(whole.parameters, fewer.parameters, rtol=0, atol=ROUNDING)
    assert np.any(whole.parameters)


def test_unit_of_weights_does_not_matter(make_problem, two_classes, rng):
    X, y = two_classes(60, 3)
    weights = rng.uniform(0.5, 2, 60)
    one = _found(make_problem(X, y, GaussianHinge(), weights=weights, alpha=0.3), epochs=3)
    other = _found(make_problem(X, y, GaussianHinge(), weights=7 * weights, alpha=7 * 0.3), epochs=3)
    assert_allclose(one.parameters, other.parameters, rtol=0, atol=ROUNDING)


def test_weighted_rows_lead_to_the_weighted_optimum(two_classes, rng):
    X, y = two_classes(100, 3, separation=0.5)
    weights = rng.choice([0.2, 3.0], 100)
    best = GaussianRobustClassifier(0.8, loss="hinge", alpha=2.0).fit(X, y, sample_weight=weights)
    sgd = SGD(epochs=150)
    with pytest.warns(match="stochastic"):
        model = GaussianRobustClassifier(0.8, loss="hinge", alpha=2.0, solver=sgd).fit(X, y, sample_weight=weights)
    assert model.objective_ <= best.objective_ * (1 + 3e-3)


def test_every_point_lies_within_the_bound(make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3), GaussianHinge(), 0.5)
    for average in (True, False):
        for epochs in (1, 2, 5):
            w, b = problem.split(_found(problem, epochs=epochs, bound=0.05, average=average).parameters)
            assert np.linalg.norm(w) <= 0.05 * (1 + 1e-12)
            assert b != 0
    assert np.linalg.norm(w) == pytest.approx(0.05)


def test_certified_gap_is_reported_after_every_epoch_and_the_best_is_kept(make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3), GaussianHinge(), 0.5)
    lines = []
    sgd = SGD(epochs=4, eta0=3.0, average=False, random_state=0)
    found = sgd.minimise(problem, np.zeros(4), tol=0, max_iter=100, report=lines.append)
    gaps = [float(re.search(r"certified gap (\S+)", line).group(1)) for line in lines]
    assert len(gaps) == found.n_iter == 4
    proof = certificate(problem, *problem.split(found.parameters))
    assert f"{proof.gap:.2e}" == f"{min(gaps):.2e}"
    assert gaps[-1] > min(gaps)
    assert found.objective == pytest.approx(proof.objective)


def test_status_says_why_it_stopped(make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3), GaussianHinge(), 0.8)
    begin = np.zeros(4)
    assert SGD(epochs=2).minimise(problem, begin, tol=1e-12, max_iter=9).status is Status.ROUGH
    assert SGD(epochs=9).minimise(problem, begin, tol=1e-12, max_iter=2).status is Status.ITERATION_LIMIT
    done = SGD(epochs=500).minimise(problem, begin, tol=0.05, max_iter=1000)
    assert done.status is Status.SOLVED
    assert done.n_iter < 500
    assert "newton" in Status.ROUGH.value


def test_order_follows_the_seed_of_the_estimator(two_classes):
    X, y = two_classes(60, 3)

    def coefficients(seed, **options):
        model = GaussianRobustClassifier(0.5, solver=SGD(epochs=2, **options), random_state=seed)
        with pytest.warns(match="stochastic"):
            model.fit(X, y)
        return model.coef_

    assert np.array_equal(coefficients(3), coefficients(3))
    assert np.array_equal(coefficients(np.random.RandomState(3)), coefficients(np.random.RandomState(3)))
    assert not np.array_equal(coefficients(3), coefficients(4))
    assert np.array_equal(coefficients(3, random_state=5), coefficients(4, random_state=5))
    assert np.array_equal(coefficients(3, shuffle=False), coefficients(4, shuffle=False))


def test_sgd_is_used_only_where_it_is_asked_for(make_problem, two_classes):
    problem = make_problem(*two_classes(60, 3), GaussianHinge(), 0.5)
    assert pick(problem).name != "sgd"
    assert isinstance(pick(problem, "sgd"), SGD)


def test_warm_start_begins_at_the_last_coefficients(two_classes):
    X, y = two_classes(60, 3)
    model = GaussianRobustClassifier(0.5, loss="hinge", warm_start=True).fit(X, y)
    best = model.coef_
    model.set_params(solver=SGD(eta0=1e-9)).fit(X, y)
    assert_allclose(model.coef_, best, atol=1e-6)


# Errors


@pytest.mark.parametrize("noise", [GaussianNoise(cov=np.eye(3)), GaussianNoise(factor=np.eye(3))], ids=repr)
def test_correlated_noise_is_refused_with_what_is_taken(noise, two_classes):
    with pytest.raises(ValueError, match=r"FiniteSum.*std=.*X_std.*solver=None"):
        GaussianRobustClassifier(noise, solver="sgd").fit(*two_classes(60, 3))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"eta0": 0}, r"SGD\(eta0=0\): must be a finite number > 0"),
        ({"eta0": "fast"}, r"SGD\(eta0='fast'\)"),
        ({"bound": -1.0}, r"SGD\(bound=-1.0\)"),
        ({"bound": np.inf}, r"SGD\(bound=inf\)"),
        ({"epochs": 0}, r"SGD\(epochs=0\): must be an integer >= 1"),
        ({"epochs": 2.5}, r"SGD\(epochs=2.5\)"),
        ({"one_class_per_step": True}, r"one_class_per_step=True\).*one weight vector"),
    ],
)
def test_settings_without_sense_are_refused(setting, message, two_classes):
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier(0.5, solver=SGD(**setting)).fit(*two_classes(60, 3))


def test_bound_on_the_slope_in_the_scale_holds_and_is_sharp(loss):
    u, t = (grid.ravel() for grid in np.meshgrid(np.linspace(-60, 60, 481), np.geomspace(1e-3, 1e3, 61)))
    slopes = loss.evaluate(u, t)[2]
    assert slopes.max() <= loss.largest_scale_slope() * (1 + 1e-9)
    assert slopes.max() >= loss.largest_scale_slope() * 0.99


def test_loss_without_a_kernel_is_stepped_through_in_python(monkeypatch, make_problem, two_classes):
    class Own(ExpectedLogistic):
        def compiled(self):
            return None

    monkeypatch.setattr(compiled, "STEPS_WORTHWHILE", 0)
    X, y = two_classes(30, 3)
    one, other = (_found(make_problem(X, y, loss, alpha=1.0), epochs=2) for loss in (Own(), ExpectedLogistic()))
    assert_allclose(one.parameters, other.parameters, rtol=0, atol=ROUNDING)
