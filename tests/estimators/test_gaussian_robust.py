"""GaussianRobustClassifier as its user meets it."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from holdfast import Ball, Box, GaussianNoise, GaussianRobustClassifier
from holdfast.datasets import load_breast_cancer_errors
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning

LOSSES = ["logistic", "hinge", "log2", "quadratic", "two_point"]
every_loss = pytest.mark.parametrize("loss", LOSSES)


@pytest.fixture(scope="module")
def cells():
    """Scaled mean features of cell images, their scaled errors, and labels."""
    data = load_breast_cancer_errors()
    scaler = StandardScaler().fit(data.X)
    return scaler.transform(data.X), data.X_std / scaler.scale_, data.y


# Certified on real data


def _bundled(name):
    if name == "breast cancer":
        return load_breast_cancer(return_X_y=True)
    X, y = {"wine": load_wine, "digits": load_digits}[name](return_X_y=True)
    chosen = np.isin(y, (1, 2) if name == "wine" else (3, 5))
    return X[chosen], y[chosen]


def _from_folder(load_data, name):
    data = load_data(name)
    X, y = data["X"], data["y"]
    chosen = np.isin(y, (3, 5)) if name == "usps" else np.full(len(y), True)
    return X[chosen], y[chosen]


def _assert_certified(X, y, loss):
    unit = np.sqrt(np.mean(X.var(axis=0)))
    for factor in (0.01, 0.1, 1.0):
        for fit_intercept in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CollapseWarning)  # pima at the largest noise
                model = GaussianRobustClassifier(factor * unit, loss=loss, fit_intercept=fit_intercept).fit(X, y)
            assert model.gap_ <= 1e-6
            assert model.lower_bound_ <= model.objective_
            assert model.solution_["status"] == "solved"


@pytest.mark.thin(3)
@every_loss
@pytest.mark.parametrize("name", ["breast cancer", "wine", "digits"])
def test_bundled_data_end_certified_at_every_noise(name, loss):
    _assert_certified(*_bundled(name), loss)


@every_loss
@pytest.mark.parametrize("name", ["ionosphere", "pima", "spambase", "usps"])
def test_published_data_end_certified_at_every_noise(name, loss, load_data):
    _assert_certified(*_from_folder(load_data, name), loss)


# Reductions


def test_without_noise_the_logistic_loss_is_logistic_regression(cells):
    X, _, y = cells
    ours = GaussianRobustClassifier(0, alpha=0.5).fit(X, y)
    plain = LogisticRegression(C=2.0, tol=1e-12, solver="newton-cholesky").fit(X, y)
    assert_allclose(ours.coef_, plain.coef_, rtol=1e-7)
    assert_allclose(ours.intercept_, plain.intercept_, rtol=1e-7)
    assert_allclose(ours.predict_proba(X), plain.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES[1:])
def test_with_vanishing_noise_every_perspective_loss_is_the_hinge(loss, cells):
    X, _, y = cells
    ours = GaussianRobustClassifier(1e-6, loss=loss, alpha=1.0, tol=1e-5).fit(X, y)
    plain = SVC(kernel="linear", C=1.0, tol=1e-8).fit(X, y)
    margins = (2 * y - 1) * (X @ plain.coef_[0] + plain.intercept_[0])
    value = np.maximum(0, 1 - margins).sum() + 0.5 * np.sum(plain.coef_**2)
    assert_allclose(ours.objective_, value, rtol=1e-4)


@every_loss
def test_noise_stated_in_any_way_gives_the_same_fit(loss, cells):
    X, _, y = cells
    n, d = X.shape
    sigma = 0.3
    number = GaussianRobustClassifier(sigma, loss=loss).fit(X, y)
    square = sigma**2 * np.eye(d)
    ways = [
        (GaussianNoise(sigma), {}),
        (GaussianNoise(std=np.full(d, sigma)), {}),
        (GaussianNoise(cov=square), {}),
        (GaussianNoise(factor=sigma * np.eye(d)), {}),
        (1.0, {"X_std": np.full((n, d), sigma)}),
        (sigma, {"X_std": np.ones((n, d))}),
        (GaussianNoise(2.0), {"X_cov": np.broadcast_to(square / 4, (n, d, d))}),
        (GaussianNoise(), {"X_factor": np.broadcast_to(sigma * np.eye(d), (n, d, d))}),
    ]
    for noise, metadata in ways:
        model = GaussianRobustClassifier(noise, loss=loss).fit(X, y, **metadata)
        assert_allclose(model.objective_, number.objective_, rtol=1e-9)
        assert_allclose(model.coef_, number.coef_, rtol=1e-4, atol=1e-6)
        assert model.gap_ <= 1e-6


@every_loss
def test_noise_that_differs_by_row_beats_common_noise_on_its_own_objective(loss, cells):
    X, S, y = cells
    own = GaussianRobustClassifier(loss=loss).fit(X, y, X_std=S)
    common = GaussianRobustClassifier(GaussianNoise(std=S.mean(axis=0)), loss=loss).fit(X, y)
    warm = clone(own).set_params(warm_start=True, max_iter=1)
    warm.coef_, warm.intercept_ = common.coef_, common.intercept_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert own.objective_ < warm.fit(X, y, X_std=S).objective_ * (1 + 1e-9)
    assert own.gap_ <= 1e-6


# Metamorphic relations


@every_loss
def test_duplicated_rows_are_doubled_weights(loss, cells):
    X, S, y = (part[:150] for part in cells)
    twice = np.arange(150) % 3 == 0
    index = np.concatenate([np.arange(150), np.flatnonzero(twice)])
    repeated = GaussianRobustClassifier(loss=loss).fit(X[index], y[index], X_std=S[index])
    weighted = GaussianRobustClassifier(loss=loss).fit(X, y, sample_weight=1.0 + twice, X_std=S)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6, atol=1e-9)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-12)


@every_loss
def test_order_of_rows_and_names_of_classes_do_not_matter(loss, cells, rng):
    X, S, y = (part[:150] for part in cells)
    plain = GaussianRobustClassifier(loss=loss).fit(X, y, X_std=S)
    order = rng.permutation(150)
    moved = GaussianRobustClassifier(loss=loss).fit(X[order], y[order], X_std=S[order])
    assert_allclose(moved.coef_, plain.coef_, rtol=1e-6, atol=1e-9)
    named = GaussianRobustClassifier(loss=loss).fit(X, np.where(y == 1, "benign", "malignant"), X_std=S)
    assert_array_equal(named.classes_, ["benign", "malignant"])
    assert_allclose(named.coef_, -plain.coef_, rtol=1e-6, atol=1e-9)
    assert_array_equal(named.predict(X) == "benign", plain.predict(X) == 1)


@every_loss
def test_features_far_from_zero_are_as_good_as_any(loss, cells):
    X, _, y = cells
    near = GaussianRobustClassifier(0.4, loss=loss).fit(X, y)
    far = GaussianRobustClassifier(0.4, loss=loss).fit(X + 1e6, y)
    assert far.gap_ <= 1e-6
    assert_allclose(far.objective_, near.objective_, rtol=1e-7)
    assert_allclose(far.coef_, near.coef_, rtol=1e-4, atol=1e-6)
    assert_array_equal(far.predict(X + 1e6), near.predict(X))


@every_loss
def test_rotating_the_features_rotates_the_weights(loss, cells, rng):
    X, _, y = cells
    Q, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    plain = GaussianRobustClassifier(0.4, loss=loss).fit(X, y)
    turned = GaussianRobustClassifier(0.4, loss=loss).fit(X @ Q, y)
    assert_allclose(turned.coef_ @ Q.T, plain.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.thin(4)
@every_loss
@pytest.mark.parametrize(
    "make", [sparse.csr_matrix, sparse.csr_array, np.asfortranarray, lambda X: X.astype(np.float32)]
)
def test_every_format_gives_the_same_fit(loss, make, cells):
    X, _, y = cells
    plain = GaussianRobustClassifier(0.4, loss=loss).fit(X, y)
    other = GaussianRobustClassifier(0.4, loss=loss).fit(make(X), y)
    tolerance = 1e-5 if getattr(make(X), "dtype", None) == np.float32 else 1e-9
    assert_allclose(other.objective_, plain.objective_, rtol=tolerance)
    assert_allclose(other.decision_function(make(X)), plain.decision_function(X), rtol=1e-4, atol=1e-4)
    assert other.gap_ <= 1e-6
    assert other.coef_.dtype == np.float64


@every_loss
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_more_features_than_rows_are_solved_in_the_span_of_the_rows(loss, make, rng):
    X = rng.normal(size=(20, 60)) * (rng.uniform(size=(20, 60)) < 0.5)
    y = rng.integers(0, 2, size=20)
    wide = GaussianRobustClassifier(0.5, loss=loss).fit(make(X), y)
    assert wide.gap_ <= 1e-6
    weights = wide.coef_[0]
    assert_allclose(X.T @ np.linalg.lstsq(X.T, weights, rcond=None)[0], weights, atol=1e-9 * np.abs(weights).max())


@every_loss
def test_large_data_are_certified_from_a_sample_on(loss, rng):
    X = rng.normal(size=(30_000, 20))
    y = (X[:, 0] + rng.normal(size=30_000) > 0.5).astype(int)
    model = GaussianRobustClassifier(0.3, loss=loss).fit(X, y)
    assert model.solution_["solver"] == "quasi_newton"
    assert model.gap_ <= 1e-6


def test_rare_class_that_a_sample_would_miss_is_not_lost(rng):
    X = rng.normal(size=(30_000, 5))
    y = np.zeros(30_000, dtype=int)
    y[1:7] = 1
    X[y == 1] += 6
    model = GaussianRobustClassifier(0.1, loss="hinge").fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.predict(X)[y == 1].all()


# Prediction


def test_flip_probability_is_the_share_of_noisy_predictions_that_differ(cells, rng):
    X, S = cells[0][:6], 4 * cells[1][:6]
    model = GaussianRobustClassifier(4.0).fit(cells[0], cells[2], X_std=cells[1])
    noisy = X + S * rng.normal(size=(100_000, 6, 10))
    flips = model.predict(noisy.reshape(-1, 10)).reshape(-1, 6) != model.predict(X)
    expected = model.flip_probability(X, X_std=S)
    error = np.sqrt(expected * (1 - expected) / len(noisy))
    assert np.all(np.abs(flips.mean(axis=0) - expected) <= 4 * error + 1e-5)
    assert np.all((expected >= 0) & (expected <= 0.5))


def test_moderated_probabilities_are_averages_over_the_noise(cells, rng):
    X, S, _ = (part[:6] for part in cells)
    model = GaussianRobustClassifier().fit(cells[0], cells[2], X_std=cells[1])
    scores = model.decision_function(X)[:, None] + model.score_std(X, X_std=3 * S)[:, None] * rng.normal(
        size=(6, 200_000)
    )
    draws = 1 / (1 + np.exp(-scores))
    error = draws.std(axis=1) / np.sqrt(draws.shape[1])
    moderated = model.predict_proba(X, X_std=3 * S)
    assert np.all(np.abs(moderated[:, 1] - draws.mean(axis=1)) <= 4 * error)
    assert_allclose(moderated.sum(axis=1), 1, rtol=1e-15)
    assert_allclose(np.exp(model.predict_log_proba(X, X_std=3 * S)), moderated)


def test_noise_of_the_constructor_is_used_at_prediction_and_that_of_rows_is_asked_for(cells):
    X, S, y = cells
    common = GaussianRobustClassifier(0.5).fit(X, y)
    assert_allclose(common.score_std(X), 0.5 * np.linalg.norm(common.coef_))
    assert_allclose(common.flip_probability(X), common.flip_probability(X, X_std=np.full(X.shape, 0.5)), rtol=1e-9)
    rows = GaussianRobustClassifier(3.0).fit(X, y, X_std=S)
    with pytest.raises(ValueError, match="Pass X_std"):
        rows.flip_probability(X)
    # metadata are taken as stated: the factor 3 of training is not applied again
    assert_allclose(rows.score_std(X, X_std=S), np.sqrt(np.square(S) @ np.square(rows.coef_[0])))
    scores = rows.decision_function(X)
    with pytest.warns(
        UserWarning, match=r"plain probabilities.*Pass X_std.*zeros for exact rows.*enable_metadata_routing"
    ):
        plain = rows.predict_proba(X)
    assert_allclose(plain[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-10, atol=1e-12)
    assert_allclose(rows.predict_proba(X, X_std=np.zeros_like(S)), plain, rtol=1e-10, atol=1e-12)


def test_without_a_stated_noise_rows_have_that_of_fit_as_stated_and_else_none(cells):
    X, S, y = cells
    stated, factor_one = (GaussianRobustClassifier(noise).fit(X, y, X_std=S) for noise in (None, 1.0))
    assert_array_equal(stated.coef_, factor_one.coef_)
    plain, without = (GaussianRobustClassifier(noise).fit(X, y) for noise in (None, 0.0))
    assert_array_equal(plain.coef_, without.coef_)
    other = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, y)
    assert_allclose(plain.coef_, other.coef_, rtol=1e-4, atol=1e-6)
    assert_allclose(plain.predict_proba(X), other.predict_proba(X), atol=1e-5)
    assert_array_equal(without.flip_probability(X), 0)
    # noise of which nothing was ever said is not noise of size 0
    with pytest.raises(ValueError, match=r"states no noise.*pass X_std"):
        plain.flip_probability(X)
    assert np.all(plain.flip_probability(X, X_std=S) > 0)


def test_exact_rows_never_flip(cells):
    X, S, y = cells
    model = GaussianRobustClassifier().fit(X, y, X_std=S)
    assert_array_equal(model.flip_probability(X, X_std=np.zeros_like(S)), 0)


def test_only_the_logistic_loss_has_probabilities(cells):
    X, _, y = cells
    assert hasattr(GaussianRobustClassifier(), "predict_proba")
    assert not hasattr(GaussianRobustClassifier(loss="hinge"), "predict_proba")
    assert hasattr(GaussianRobustClassifier(0.5, loss="hinge").fit(X, y), "flip_probability")


# Honest endings


def test_logistic_loss_without_a_ridge_says_that_no_bound_is_known(cells):
    X, _, y = cells
    with pytest.warns(ConvergenceWarning, match="No lower bound is known"):
        model = GaussianRobustClassifier(0.5, alpha=0.0).fit(X, y)
    assert model.gap_ == np.inf
    assert model.lower_bound_ == -np.inf
    assert np.isfinite(model.objective_)


@every_loss
def test_stopping_early_is_said_and_not_called_solved(loss, cells):
    X, _, y = cells
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = GaussianRobustClassifier(0.05, loss=loss, max_iter=1).fit(X, y)
    assert model.gap_ > model.tol
    assert model.solution_["status"] == "iteration_limit"


def test_collapse_is_proved_said_and_cured(cells):
    X, _, y = cells
    noise = 1.1 * critical_noise(X, y)
    with pytest.warns(CollapseWarning, match="class_weight='balanced'"):
        model = GaussianRobustClassifier(noise, loss="hinge").fit(X, y)
    assert model.collapsed_
    assert model.gap_ <= 1e-9
    assert_array_equal(model.coef_, 0)
    assert set(model.predict(X)) == {1}
    for cure in ({"class_weight": "balanced"}, {"loss": "logistic"}, {"noise": 0.9 * noise}):
        assert np.any(GaussianRobustClassifier(**({"noise": noise, "loss": "hinge"} | cure)).fit(X, y).coef_)


@pytest.mark.thin(4)
@every_loss
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("exact", ["features", "rows", "features and rows", "features for all rows alike"])
def test_exact_features_and_exact_rows_are_certified_too(loss, alpha, exact, cells):
    X, S, y = cells
    S = S.copy()
    if "rows" in exact:
        S[::7] = 0
    if "features" in exact:
        S[:, [2, 5]] = 0
    alpha = alpha if loss != "logistic" else 0.1 + alpha
    common = exact == "features for all rows alike"
    noise, metadata = (GaussianNoise(std=S[1]), {}) if common else (1.0, {"X_std": S})
    for fit_intercept in (True, False):
        model = GaussianRobustClassifier(noise, loss=loss, alpha=alpha, fit_intercept=fit_intercept).fit(
            X, y, **metadata
        )
        assert model.gap_ <= 1e-6
        assert not model.collapsed_


@pytest.mark.parametrize("loss", LOSSES[1:])
def test_separable_data_at_tiny_noise_are_solved_to_rounding(loss, rng):
    y = np.where(np.arange(40) < 15, 1, -1)
    X = rng.uniform(-1, 1, size=(40, 3)) + 3 * y[:, None] * np.array([1.0, 0, 0])
    for sigma in (1.0, 0.3, 0.1, 0.02):
        model = GaussianRobustClassifier(sigma, loss=loss).fit(X, y)
        assert model.gap_ <= 1e-6
        assert_array_equal(model.predict(X), y)
        assert np.all(np.isfinite(model.coef_))


# In scikit-learn's company


def test_noise_can_be_searched_over_and_metadata_travel(cells):
    X, S, y = cells
    search = GridSearchCV(
        GaussianRobustClassifier(GaussianNoise(0.1)), {"noise__std": [0.1, 1.0], "alpha": [1.0, 10.0]}, cv=3
    )
    search.fit(X, y)
    assert search.best_params_["noise__std"] in (0.1, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GaussianRobustClassifier().set_fit_request(X_std=True)
        scores = cross_validate(model, X, y, params={"X_std": S}, cv=3, return_estimator=True)
        parts = [estimator.row_noise_ for estimator in scores["estimator"]]
    assert parts == [True, True, True]


def test_fitted_models_survive_pickle_and_skops(cells):
    skops = pytest.importorskip("skops.io")
    X, S, y = cells
    model = GaussianRobustClassifier(GaussianNoise(1.0), loss="hinge").fit(X, y, X_std=S)
    stored = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=stored)
    assert all(name.startswith("holdfast.") for name in unknown)
    for copy in (pickle.loads(pickle.dumps(model)), skops.loads(stored, trusted=unknown)):
        assert_array_equal(copy.predict(X), model.predict(X))


def test_warm_start_ends_at_the_same_optimum_in_fewer_steps(cells):
    X, _, y = cells
    model = GaussianRobustClassifier(0.50, loss="hinge", warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.set_params(noise=0.51).fit(X, y)
    assert model.n_iter_ < cold
    assert_allclose(model.objective_, GaussianRobustClassifier(0.51, loss="hinge").fit(X, y).objective_, rtol=1e-12)


def test_progress_is_logged_when_asked_for(cells, caplog):
    X, _, y = cells
    GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    assert not caplog.messages
    GaussianRobustClassifier(0.5, loss="hinge", verbose=1).fit(X, y)
    assert any("certified gap" in message for message in caplog.messages)


# Bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": -1.0}, r"noise=-1.0\): must be a finite number >= 0"),
        ({"noise": np.nan}, "noise=nan"),
        ({"noise": "much"}, "noise='much'"),
        ({"noise": [0.1, 0.2]}, "GaussianNoise"),
        ({"noise": GaussianNoise(std=-0.5)}, "std must be >= 0"),
        ({"noise": GaussianNoise(std=[0.1] * 9)}, r"shape \(9,\)"),
        ({"noise": GaussianNoise(std=np.inf)}, "NaN or infinity"),
        ({"noise": GaussianNoise(cov=np.eye(3))}, r"shape \(3, 3\), not \(10, 10\)"),
        ({"noise": GaussianNoise(cov=-np.eye(10))}, "indefinite"),
        ({"noise": GaussianNoise(cov=np.triu(np.ones((10, 10))))}, "not symmetric"),
        ({"noise": GaussianNoise(factor=np.ones(10))}, r"not \(10, r\)"),
        ({"noise": GaussianNoise(std=1.0, cov=np.eye(10))}, "twice"),
        ({"noise": GaussianNoise()}, "states no noise"),
        ({"noise": 0.0, "loss": "hinge"}, "plain hinge"),
        ({"loss": "hinge"}, r"noise=None, loss='hinge'\): without noise.*noise=0.3.*pass that of each row, X_std"),
        ({"noise": Box(1)}, r"noise=Box\(radius=1\)\): a set says.*Use RobustLinearClassifier"),
        ({"noise": GaussianNoise(0.1) + Ball(0.1)}, "Use RobustLinearClassifier"),
        ({"loss": "square"}, "Choose one of 'logistic'"),
        ({"loss": 3}, "loss=3"),
        ({"alpha": -1}, r"alpha=-1\)"),
        ({"tol": 0}, r"tol=0\)"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"solver": "magic"}, "Choose one of 'newton'"),
        ({"noise": 1.0, "solver": "clarabel", "loss": "hinge"}, "Solvers that fit: 'newton'"),
        ({"class_weight": "equal"}, "class_weight='equal'"),
        ({"class_weight": {7: 1.0}}, "no such class"),
        ({"class_weight": {1: -1.0}}, "positive numbers"),
    ],
)
def test_bad_parameters_are_named(parameters, message, cells):
    X, _, y = cells
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier(**parameters).fit(X, y)


def _changed(array, value):
    out = np.array(array, dtype=float)
    out[(0,) * out.ndim] = value
    return out


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (lambda S: {"X_std": S[:-1]}, r"X_std has shape \(568, 10\)"),
        (lambda S: {"X_std": S[:, :9]}, r"X_std has shape \(569, 9\)"),
        (lambda S: {"X_std": S[0]}, r"belongs in the constructor: noise=GaussianNoise\(std=...\)"),
        (lambda S: {"X_std": _changed(S, -1)}, "X_std must be >= 0"),
        (lambda S: {"X_std": _changed(S, np.nan)}, "X_std contains NaN"),
        (lambda S: {"X_std": "wide"}, "X_std must be numbers"),
        (lambda S: {"X_cov": np.eye(10)}, r"X_cov has shape \(10, 10\)"),
        (lambda S: {"X_cov": _changed(S[:, :, None] * np.eye(10), -5)}, r"indefinite \(row 0\)"),
        (lambda S: {"X_factor": S}, r"X_factor has shape \(569, 10\)"),
        (lambda S: {"X_std": S, "X_cov": S[:, :, None] * np.eye(10)}, "twice"),
    ],
)
def test_bad_metadata_are_named_at_fit_and_at_prediction(metadata, message, cells):
    X, S, y = cells
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier().fit(X, y, **metadata(S))
    model = GaussianRobustClassifier().fit(X, y, X_std=S)
    with pytest.raises(ValueError, match=message):
        model.flip_probability(X, **metadata(S))


def test_noise_stated_twice_is_an_error(cells):
    X, S, y = cells
    with pytest.raises(ValueError, match="the noise is stated twice"):
        GaussianRobustClassifier(GaussianNoise(std=S[0])).fit(X, y, X_std=S)


def test_singular_covariances_are_fine(cells, rng):
    X, _, y = cells
    factor = 0.3 * rng.normal(size=(10, 2))
    by_cov = GaussianRobustClassifier(GaussianNoise(cov=factor @ factor.T)).fit(X, y)
    by_factor = GaussianRobustClassifier(GaussianNoise(factor=factor)).fit(X, y)
    assert by_cov.gap_ <= 1e-6
    assert_allclose(by_cov.coef_, by_factor.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (_changed(X, np.nan), y), "X contains NaN"),
        (lambda X, y: (_changed(X, np.inf), y), "X contains infinity"),
        (lambda X, y: (X[:, 0], y), "Expected 2D array"),
        (lambda X, y: (X, np.ones_like(y)), "one class only"),
        (lambda X, y: (X[:1], y[:1]), "minimum of 2"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X, X[:, 0]), "continuous"),
        (lambda X, y: (X, np.where(y == y[0], 0.5, 1.25)), "continuous"),
    ],
)
def test_bad_data_are_named(change, message, cells):
    X, _, y = cells
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier().fit(*change(X, y))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda y: np.zeros(len(y)), "zero"),
        (lambda y: np.where(y == 1, 1.0, 0.0), "zero for every row of class"),
        (lambda y: np.where(y == 1, 1.0, -1.0), "[Nn]egative"),
        (lambda y: np.full(len(y), np.nan), "NaN"),
        (lambda y: np.ones(3), "sample_weight"),
    ],
)
def test_bad_weights_are_named(weights, message, cells):
    X, _, y = cells
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier().fit(X, y, sample_weight=weights(y))


def test_unfitted_models_and_wrong_widths_say_so(cells):
    X, _, y = cells
    for method in ("predict", "decision_function", "flip_probability", "score_std", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(GaussianRobustClassifier(), method)(X)
    model = GaussianRobustClassifier().fit(X, y)
    with pytest.raises(ValueError, match="9 features"):
        model.predict(X[:, :9])


@pytest.mark.parametrize("method", ["flip_probability", "score_std", "predict_proba"])
def test_frames_of_errors_in_another_order_are_refused_at_prediction_too(method, two_classes):
    frames = pytest.importorskip("pandas")
    X, y = two_classes(40, 3)
    X, S = frames.DataFrame(X, columns=list("abc")), frames.DataFrame(np.full((40, 3), 0.3), columns=list("abc"))
    model = GaussianRobustClassifier().fit(X, y, X_std=S)
    getattr(model, method)(X, X_std=S)
    with pytest.raises(ValueError, match="columns"):
        getattr(model, method)(X, X_std=S[list("cba")])


def test_rows_that_carry_a_model_are_known_only_with_dual_weights(two_classes):
    model = GaussianRobustClassifier().fit(*two_classes(40, 3))
    with pytest.raises(AttributeError, match="no dual weights"):
        model.carrying_rows()
