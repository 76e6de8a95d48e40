"""Paths over the noise, and GaussianRobustClassifierCV: the same fits as one by one, and a choice that can be done by hand."""

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.metrics import log_loss, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from holdfast import GaussianNoise, GaussianRobustClassifier, GaussianRobustClassifierCV, RobustLinearClassifierCV
from holdfast.datasets import load_breast_cancer_errors
from holdfast.estimators import critical_noise, noise_path
from holdfast.exceptions import CollapseWarning, EndOfPathWarning

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.exceptions.EndOfPathWarning")

NOISES = np.array([1.5, 0.4, 0.1])
by_loss = pytest.mark.parametrize("loss", ["hinge", "two_point", "logistic"])
by_classes = pytest.mark.parametrize("n_classes", [2, 3])


@pytest.fixture(scope="module")
def draw():
    """A function that draws overlapping classes of unequal size with errors of each entry, always the same ones."""

    def drawn(n_classes=2, n=75, d=3):
        rng = np.random.default_rng(11)
        y = np.minimum(rng.integers(0, n_classes + 1, size=n), n_classes - 1)
        X = rng.normal(size=(n, d)) + 1.2 * rng.normal(size=(n_classes, d))[y]
        return X, y, rng.uniform(0.05, 0.6, size=(n, d))

    return drawn


@pytest.fixture(scope="module")
def cells():
    """Scaled mean features of cell images, their scaled errors, and labels."""
    data = load_breast_cancer_errors()
    scaler = StandardScaler().fit(data.X)
    return scaler.transform(data.X), data.X_std / scaler.scale_, data.y


def _fitted(model, *args, **metadata):
    """Return a fit that may collapse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return model.fit(*args, **metadata)


def _cold(factor, X, y, *, noise=1.0, sample_weight=None, metadata=None, **options):
    noise = noise.times(factor) if isinstance(noise, GaussianNoise) else factor * noise
    model = GaussianRobustClassifier(noise, **options)
    return _fitted(model, X, y, sample_weight=sample_weight, **(metadata or {}))


def _right(model, X, y, stds):
    """Return the chance that each row, with independent errors of these deviations, is classified as y (a lower bound)."""
    codes = np.searchsorted(model.classes_, y)
    if len(model.coef_) == 1:
        W, b = np.vstack([-model.coef_, model.coef_]) / 2, np.append(-model.intercept_, model.intercept_) / 2
    else:
        W, b = model.coef_, model.intercept_
    out = np.ones(len(codes))
    for i, k in enumerate(codes):
        for other in set(range(len(W))) - {k}:
            lead = (W[k] - W[other]) @ X[i] + b[k] - b[other]
            t = np.linalg.norm(stds[i] * (W[k] - W[other]))
            wins = lead > 0 or (lead == 0 and k < other)
            out[i] -= ndtr(-lead / t) if t > 0 else float(not wins)
    return np.maximum(out, 0)


# The path


def _ways(X, S):
    """Return ways to state data and noise."""
    d = X.shape[1]
    frames = pytest.importorskip("pandas")
    names = [f"f{j}" for j in range(d)]
    few = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0))
    exact = sparse.csr_array(np.where(S > 0.1, S, 0))
    half = np.linalg.cholesky(0.3 * np.eye(d) + 0.2)
    return {
        "number": (X, 1.0, {}),
        "std per feature": (X, GaussianNoise(std=S[0]), {}),
        "cov": (X, GaussianNoise(cov=half @ half.T), {}),
        "adversary": (X, GaussianNoise(0.4, unknown="correlations"), {}),
        "X_std": (X, 1.0, {"X_std": S}),
        "X_std times a number": (X, 0.5, {"X_std": 2 * S}),
        "X_cov": (X, 1.0, {"X_cov": np.einsum("ni,jk->njk", S**2, half @ half.T)}),
        "X_factor": (X, 1.0, {"X_factor": S[:, :, None] * half[:, :2]}),
        "sparse": (few, 1.0, {}),
        "sparse with sparse X_std": (few, 1.0, {"X_std": exact}),
        "float32": (X.astype(np.float32), 1.0, {}),
        "frames": (frames.DataFrame(X, columns=names), 1.0, {"X_std": frames.DataFrame(S, columns=names)}),
    }


WAYS = [
    "number",
    "std per feature",
    "cov",
    "adversary",
    "X_std",
    "X_std times a number",
    "X_cov",
    "X_factor",
    "sparse",
    "sparse with sparse X_std",
    "float32",
    "frames",
]


@pytest.mark.thin(9)
@pytest.mark.parametrize(
    ("loss", "way"), [*product(["hinge", "logistic"], WAYS), ("two_point", "number"), ("two_point", "X_std")]
)
@by_classes
def test_every_fit_on_the_path_is_a_cold_fit(loss, n_classes, way, draw):
    X, y, S = draw(n_classes)
    X, noise, metadata = _ways(X, S)[way]
    path = noise_path(X, y, NOISES, noise=noise, loss=loss, **metadata)
    assert path.gaps.max() <= 1e-6
    for k, factor in enumerate(NOISES):
        cold = _cold(factor, X, y, noise=noise, loss=loss, metadata=metadata)
        size = np.abs(cold.coef_).max()
        assert_allclose(path.coefs[k], cold.coef_, rtol=0, atol=1e-6 * size)
        assert_allclose(path.intercepts[k], cold.intercept_, rtol=0, atol=1e-6 * max(size, 1))
        assert_allclose(path.objectives[k], cold.objective_, rtol=1e-9)
        assert_allclose(path.lower_bounds[k], path.objectives[k] * (1 - path.gaps[k]), rtol=1e-12)


@pytest.mark.thin(5)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@by_classes
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 2.0},
        {"fit_intercept": False, "alpha": 0.1},
        {"class_weight": "balanced"},
        {"class_weight": {1: 3.0}, "sample_weight": True},
    ],
    ids=["ridge", "no intercept", "balanced", "weights"],
)
def test_options_mean_on_the_path_what_they_mean_in_a_fit(loss, n_classes, options, draw, rng):
    X, y, _ = draw(n_classes)
    if "sample_weight" in options:
        options = options | {"sample_weight": rng.integers(0, 4, size=len(y)) / 2}
    path = noise_path(X, y, NOISES, loss=loss, **options)
    assert path.gaps.max() <= 1e-6
    for k, factor in enumerate(NOISES):
        cold = _cold(factor, X, y, loss=loss, **options)
        assert_allclose(path.coefs[k], cold.coef_, rtol=0, atol=1e-6 * np.abs(cold.coef_).max())


def test_path_has_one_entry_a_noise_from_the_largest_down(draw):
    X, y, _ = draw(3)
    path = noise_path(X, y, [0.1, 1.5, 0.4], loss="hinge")
    assert_array_equal(path.noises, NOISES)
    assert path.coefs.shape == (3, 3, 3)
    assert path.intercepts.shape == path.objectives[:, None].repeat(3, 1).shape
    assert path.objectives.shape == path.lower_bounds.shape == path.gaps.shape == (3,)
    # more noise costs more, at every w and so at the best one
    assert np.all(np.diff(path.objectives) < 0)


@pytest.mark.parametrize(("scale", "limit"), [(1.0, "collapse"), (50.0, "spread")])
def test_grid_goes_down_geometrically_from_the_collapse_or_three_spreads(scale, limit, draw, two_classes):
    X, y = two_classes(60, 3, separation=scale, positives=29 if limit == "spread" else 15)
    noises = noise_path(X, y, 4, loss="hinge").noises
    critical = critical_noise(X, y)
    spreads = 3 * np.sqrt(np.mean(X.var(axis=0)))
    assert (critical < spreads) == (limit == "collapse")
    assert_allclose(noises, min(critical, spreads) * 10.0 ** np.array([0.0, -1, -2, -3]), rtol=1e-6)


def test_grid_of_the_logistic_loss_starts_at_three_weighted_spreads_in_units_of_the_noise(draw):
    X, y, _ = draw()
    weights = 1.0 + np.arange(len(y)) % 3
    centre = np.average(X, axis=0, weights=weights)
    spread = np.sqrt(np.mean(np.average((X - centre) ** 2, axis=0, weights=weights)))
    for unit in (1.0, 4.0):
        noises = noise_path(X + 5, y, 3, noise=unit, sample_weight=weights).noises
        assert_allclose(noises, 3 * spread / unit * np.array([1, 10**-1.5, 1e-3]), rtol=1e-9)
    assert_array_equal(noise_path(X, y, 1).noises.shape, (1,))


def test_largest_noise_of_the_grid_tells_nothing_apart_and_warns_of_nothing(two_classes):
    X, y = two_classes(60, 3, positives=15)
    path = noise_path(X, y, 3, loss="hinge")
    assert_allclose(path.coefs[0], 0, atol=1e-6 * np.abs(path.coefs[2]).max())
    assert np.all(np.any(path.coefs[1:] != 0, axis=(1, 2)))
    assert path.gaps.max() <= 1e-6


def test_many_features_need_no_square_matrix_for_the_grid(rng):
    X = sparse.random(40, 200_000, density=1e-4, random_state=1, format="csr")
    path = noise_path(X, np.arange(40) % 2, 1)
    assert path.gaps.max() <= 1e-6


def test_zero_noise_ends_the_path_of_the_logistic_loss_and_is_refused_for_others(draw):
    X, y, _ = draw()
    path = noise_path(X, y, [0.0, 1.0])
    assert_allclose(path.coefs[1], _cold(0.0, X, y).coef_, rtol=1e-6)
    with pytest.raises(ValueError, match=r"noise_path\(noises=...\): without noise this loss is the plain hinge"):
        noise_path(X, y, [0.0, 1.0], loss="hinge")


@pytest.mark.slow
def test_every_fit_of_several_ridges_is_certified_though_the_noise_jumps_up_between_them(draw):
    X, y, _ = draw(3)
    weights = 1.0 + np.arange(len(y)) % 2
    model = GaussianRobustClassifierCV(2 * NOISES, alphas=[1.0, 0.1], loss="hinge", cv=3)
    _fitted(model, X, y, sample_weight=weights)
    assert model.cv_results_["max_gap"].max() <= 1e-6


# Scores and choice


SPLITS = StratifiedKFold(2)
EXACT_ROWS_TOO = [("hinge", 2), ("logistic", 3)]


def _by_hand(X, y, noises, alphas, score, *, weights=None, metadata=None, splits=SPLITS, **options):
    """Return scores of shape (n_folds, n_steps): the noises of the largest alpha, of the next, and so on."""
    out = []
    for own, held_out in splits.split(X, y):
        parts = {name: value[own] for name, value in (metadata or {}).items()}
        own_weights = None if weights is None else weights[own]
        models = [
            _cold(s, X[own], y[own], alpha=a, sample_weight=own_weights, metadata=parts, **options)
            for a in alphas
            for s in noises
        ]
        out.append(
            [np.average(score(m, held_out), weights=None if weights is None else weights[held_out]) for m in models]
        )
    return np.array(out)


def _assert_results(model, scores):
    results = model.cv_results_
    n_folds, n_steps = scores.shape
    for k in range(n_folds):
        assert_allclose(results[f"split{k}_test_score"], scores[k], rtol=1e-6)
    assert_allclose(results["mean_test_score"], scores.mean(axis=0), rtol=1e-6)
    assert_allclose(results["std_test_score"], scores.std(axis=0), rtol=1e-5, atol=1e-9)
    assert_array_equal(results["rank_test_score"], rankdata(-results["mean_test_score"], method="min"))
    assert results["max_gap"].max() <= 1e-6
    splits = [f"split{k}_test_score" for k in range(n_folds)]
    assert set(results) == {
        *("param_noise", "param_alpha", "mean_test_score", "std_test_score", "rank_test_score", "max_gap"),
        *splits,
    }
    assert all(column.shape == (n_steps,) for column in results.values())
    best = results["rank_test_score"] == 1
    assert model.best_score_ == results["mean_test_score"].max()
    assert (model.noise_, model.alpha_) == max(
        zip(results["param_noise"][best], results["param_alpha"][best], strict=True)
    )


@by_loss
@by_classes
def test_scores_are_accuracies_of_cold_fits_on_the_other_folds(loss, n_classes, draw):
    X, y, _ = draw(n_classes)
    alphas = [1.0, 0.01]
    weights = 1.0 + np.arange(len(y)) % 2
    options = {"loss": loss, "class_weight": "balanced"}
    model = GaussianRobustClassifierCV(NOISES[::-1], alphas=alphas[::-1], cv=SPLITS, cv_tol=1e-6, **options)
    model.fit(X, y, sample_weight=weights)
    assert_array_equal(model.noises_, NOISES)
    assert_array_equal(model.alphas_, alphas)
    assert_array_equal(model.cv_results_["param_noise"], [*NOISES, *NOISES])
    assert_array_equal(model.cv_results_["param_alpha"], np.repeat(alphas, 3))
    hits = lambda fitted, rows: fitted.predict(X[rows]) == y[rows]
    _assert_results(model, _by_hand(X, y, NOISES, alphas, hits, weights=weights, **options))


@pytest.mark.thin(4)
@by_loss
@by_classes
def test_noise_known_by_row_is_taken_and_the_ridge_chosen_by_the_accuracy_it_leaves(loss, n_classes, draw):
    X, y, S = draw(n_classes)
    if (loss, n_classes) in EXACT_ROWS_TOO:
        S[::4] = 0
    alphas = [10.0, 0.1]
    for given, factor in ((None, 1.0), (3.0, 3.0)):
        model = GaussianRobustClassifierCV(
            alphas=alphas, cv=SPLITS, cv_tol=1e-6, loss=loss, deploy_noise=given, noise=0.5
        )
        _fitted(model, X, y, X_std=2 * S)
        assert (model.noise_, model.noises_.tolist()) == (factor, [factor])
        chances = lambda fitted, rows, factor=factor: _right(fitted, X[rows], y[rows], factor * S[rows])
        scores = _by_hand(X, y, [factor], alphas, chances, metadata={"X_std": S}, loss=loss)
        _assert_results(model, scores)


@pytest.mark.parametrize("name", ["std", "cov", "factor"])
def test_noise_known_for_all_rows_is_not_searched_either(name, draw):
    X, y, S = draw()
    stds = S[0]
    noise = GaussianNoise(**{name: {"std": stds, "cov": np.diag(stds**2), "factor": np.diag(stds)}[name]})
    model = GaussianRobustClassifierCV(noise=noise, alphas=[1.0], deploy_noise=2.0, cv=SPLITS, cv_tol=1e-6).fit(X, y)
    chances = lambda fitted, rows: _right(fitted, X[rows], y[rows], np.tile(2 * stds, (len(rows), 1)))
    _assert_results(model, _by_hand(X, y, [2.0], [1.0], chances, noise=noise))
    assert_allclose(model.score_std(X), np.linalg.norm(2 * stds * model.coef_[0]), rtol=1e-9)
    with pytest.raises(ValueError, match=r"noises=...\) together with known noise"):
        clone(model).set_params(noises=[1.0, 2.0]).fit(X, y)


@by_classes
def test_deploy_noise_of_a_searched_noise_is_that_of_the_validation_rows(n_classes, draw):
    X, y, _ = draw(n_classes)
    model = GaussianRobustClassifierCV(NOISES, noise=2.0, deploy_noise=0.7, loss="hinge", cv=SPLITS, cv_tol=1e-6)
    _fitted(model, X, y)
    chances = lambda fitted, rows: _right(fitted, X[rows], y[rows], np.full(X[rows].shape, 1.4))
    _assert_results(model, _by_hand(X, y, NOISES, [0.0], chances, noise=2.0, loss="hinge"))


def test_validation_rows_without_noise_are_right_or_wrong(draw):
    for n_classes in (2, 3):
        X, y, _ = draw(n_classes)
        plain, exact = (
            GaussianRobustClassifierCV(NOISES, deploy_noise=deploy, cv=SPLITS, cv_tol=1e-6)
            .fit(X, y)
            .cv_results_["mean_test_score"]
            for deploy in (None, 0.0)
        )
        assert_array_equal(exact, plain)


def test_collapsed_fits_are_credited_with_the_majority_alone(two_classes):
    X, y = two_classes(60, 3, separation=0.5, positives=20)
    model = GaussianRobustClassifierCV([100.0], loss="hinge", deploy_noise=1.0, cv=SPLITS, cv_tol=1e-6)
    assert _fitted(model, X, y).best_score_ == pytest.approx(2 / 3)
    X, y = np.vstack([X, X + 3]), np.append(y, np.full(60, 7))
    model = GaussianRobustClassifierCV([100.0], loss="hinge", deploy_noise=1.0, cv=SPLITS, cv_tol=1e-6)
    assert _fitted(model, X, y).best_score_ == pytest.approx(1 / 2)


@by_classes
def test_expected_accuracy_is_that_of_noisy_validation_rows(n_classes, draw, rng):
    X, y, S = draw(n_classes)
    model = GaussianRobustClassifierCV(alphas=[1.0], deploy_noise=3.0, cv=SPLITS, cv_tol=1e-6).fit(X, y, X_std=S)
    draws = []
    for own, rows in SPLITS.split(X, y):
        fold = GaussianRobustClassifier(3.0, alpha=1.0).fit(X[own], y[own], X_std=S[own])
        noisy = X[rows] + 3 * S[rows] * rng.normal(size=(4000, *X[rows].shape))
        draws.append(np.mean(fold.predict(noisy.reshape(-1, X.shape[1])).reshape(4000, -1) == y[rows], axis=1))
    simulated, error = np.mean(draws), np.sqrt(np.sum(np.var(draws, axis=1))) / len(draws) / np.sqrt(4000)
    if n_classes == 2:
        assert abs(model.best_score_ - simulated) <= 4 * error
    else:
        assert simulated - 0.1 < model.best_score_ < simulated


def test_among_equals_the_largest_noise_wins_then_the_largest_ridge(draw):
    X, y, _ = draw()
    model = GaussianRobustClassifierCV([0.1, 3.0, 1.0], alphas=[0.5, 2.0, 1.0], cv=2)
    model.set_params(scoring=lambda fitted, X, y: 0.5).fit(X, y)
    assert (model.noise_, model.alpha_, model.best_score_) == (3.0, 2.0, 0.5)
    assert_array_equal(model.cv_results_["rank_test_score"], 1)
    model.set_params(scoring=lambda fitted, X, y: -float(fitted.noise == 3.0)).fit(X, y)
    assert (model.noise_, model.alpha_) == (1.0, 2.0)


def test_scorers_see_each_model_with_its_own_noise(draw):
    X, y, _ = draw()
    model = GaussianRobustClassifierCV(NOISES, noise=2.0, scoring="neg_log_loss", cv=SPLITS, cv_tol=1e-6).fit(X, y)
    loss = lambda fitted, rows: [-log_loss(y[rows], fitted.predict_proba(X[rows]))]
    _assert_results(model, _by_hand(X, y, NOISES, [1.0], loss, noise=2.0))


def test_scorers_see_rows_of_known_noise_as_they_are(draw):
    X, y, S = draw()
    model = GaussianRobustClassifierCV(alphas=[1.0], scoring="neg_log_loss", cv=SPLITS, cv_tol=1e-6).fit(X, y, X_std=S)
    for number, (fit, test) in enumerate(SPLITS.split(X, y)):
        fold = GaussianRobustClassifier(alpha=1.0).fit(X[fit], y[fit], X_std=S[fit])
        plain = -log_loss(y[test], fold.predict_proba(X[test], X_std=np.zeros_like(S[test])))
        assert_allclose(model.cv_results_[f"split{number}_test_score"], plain, rtol=1e-6)


def test_scoring_by_name_and_by_callable_agree_and_take_weights(draw):
    X, y, _ = draw(3)

    def accuracy(fitted, X, y, sample_weight=None):
        return np.average(fitted.predict(X) == y, weights=sample_weight)

    weights = 1.0 + np.arange(len(y)) % 4
    means = [
        GaussianRobustClassifierCV(NOISES, scoring=scoring, cv=SPLITS, cv_tol=1e-6)
        .fit(X, y, sample_weight=weights)
        .cv_results_["mean_test_score"]
        for scoring in (None, "accuracy", accuracy)
    ]
    assert_allclose(means[1], means[0], rtol=1e-12)
    assert_allclose(means[2], means[0], rtol=1e-12)


def test_groups_splitters_and_iterables_are_obeyed(draw):
    X, y, _ = draw()
    groups = np.arange(len(y)) % 5
    by_groups = GaussianRobustClassifierCV([1.0, 0.1], cv=GroupKFold(5)).fit(X, y, groups=groups)
    splits = list(GroupKFold(5).split(X, y, groups))
    for cv in (splits, iter(splits)):
        listed = GaussianRobustClassifierCV([1.0, 0.1], cv=cv).fit(X, y)
        for key, column in by_groups.cv_results_.items():
            assert_array_equal(listed.cv_results_[key], column)
    with pytest.raises(ValueError, match="groups"):
        GaussianRobustClassifierCV([1.0, 0.1], cv=GroupKFold(5)).fit(X, y)


def test_folds_in_threads_give_the_same(draw):
    X, y, S = draw(3)
    one, two = (
        GaussianRobustClassifierCV(alphas=[1.0, 0.1], cv=3, loss="hinge", n_jobs=jobs).fit(X, y, X_std=S)
        for jobs in (None, 2)
    )
    for key, column in one.cv_results_.items():
        assert_array_equal(two.cv_results_[key], column)
    assert_array_equal(two.coef_, one.coef_)


def test_random_state_decides_what_stochastic_steps_find(draw):
    X, y, _ = draw()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        coefs = [
            GaussianRobustClassifierCV([0.5], alphas=[1.0], solver="sgd", cv=2, random_state=seed).fit(X, y).coef_
            for seed in (0, 0, 1)
        ]
    assert_array_equal(coefs[0], coefs[1])
    assert np.any(coefs[0] != coefs[2])


# The model that is kept


@pytest.mark.thin(4)
@by_loss
@by_classes
def test_refit_is_the_classifier_at_what_was_chosen(loss, n_classes, draw):
    X, y, S = draw(n_classes)
    weights = 1.0 + np.arange(len(y)) % 2
    for noises, noise, metadata in ((NOISES, 2.0, {}), (30, 0.5, {"X_std": S})):
        model = GaussianRobustClassifierCV(noises, alphas=[1.0, 0.1], noise=noise, loss=loss, cv=2)
        model.fit(X, y, sample_weight=weights, **metadata)
        plain = GaussianRobustClassifier(model.noise_ * noise, alpha=model.alpha_, loss=loss)
        plain.fit(X, y, sample_weight=weights, **metadata)
        assert_allclose(model.coef_, plain.coef_, rtol=0, atol=1e-6 * np.abs(plain.coef_).max())
        assert_allclose(model.objective_, plain.objective_, rtol=1e-9)
        assert model.gap_ <= 1e-6
        assert model.solution_["status"] == "solved"
        assert_allclose(model.flip_probability(X, **metadata), plain.flip_probability(X, **metadata), atol=1e-6)
        assert hasattr(model, "proof_weights_") == hasattr(plain, "proof_weights_")


@by_loss
@by_classes
def test_without_refit_the_folds_are_averaged_and_the_gap_says_how_good_that_is(loss, n_classes, draw):
    X, y, _ = draw(n_classes)
    model = GaussianRobustClassifierCV([0.4], alphas=[0.5], loss=loss, cv=SPLITS, cv_tol=1e-6, refit=False).fit(X, y)
    folds = [_cold(0.4, X[own], y[own], loss=loss, alpha=0.5) for own, _ in SPLITS.split(X, y)]
    assert_allclose(model.coef_, np.mean([fold.coef_ for fold in folds], axis=0), rtol=1e-5)
    assert_allclose(model.intercept_, np.mean([fold.intercept_ for fold in folds], axis=0), rtol=1e-5, atol=1e-6)
    best = _cold(0.4, X, y, loss=loss, alpha=0.5)
    assert model.lower_bound_ <= best.objective_ < model.objective_
    assert model.gap_ >= 1 - best.objective_ / model.objective_
    assert 1e-6 < model.gap_ < 1
    assert model.solution_["status"] != "solved"
    assert "refit=True" in model.solution_["advice"]


def test_automatic_ridges_reach_from_strong_to_none_where_noise_is_known(draw):
    X, y, S = draw()
    assert_allclose(GaussianRobustClassifierCV(cv=2).fit(X, y, X_std=S).alphas_, np.logspace(4, -4, 10))
    hinge = _fitted(GaussianRobustClassifierCV(cv=2, loss="hinge"), X, y, X_std=S)
    assert_allclose(hinge.alphas_, [*np.logspace(4, -4, 10), 0])
    for loss, alpha in (("logistic", 1.0), ("hinge", 0.0)):
        assert_array_equal(GaussianRobustClassifierCV([0.5], cv=2, loss=loss).fit(X, y).alphas_, [alpha])


def test_flip_probability_is_under_the_chosen_noise(draw):
    X, y, S = draw()
    for noise in (2.0, GaussianNoise(2.0)):
        model = GaussianRobustClassifierCV(NOISES, noise=noise, cv=SPLITS, cv_tol=1e-6).fit(X, y)
        t = 2 * model.noise_ * np.linalg.norm(model.coef_)
        assert_allclose(model.score_std(X), t, rtol=1e-9)
        assert_allclose(model.flip_probability(X), ndtr(-np.abs(model.decision_function(X)) / t), rtol=1e-9)
    known = GaussianRobustClassifierCV(deploy_noise=2.0, alphas=[1.0], cv=SPLITS, cv_tol=1e-6).fit(X, y, X_std=S)
    with pytest.raises(ValueError, match="Pass X_std"):
        known.flip_probability(X)
    assert_allclose(known.score_std(X, X_std=S), np.sqrt(S**2 @ known.coef_[0] ** 2), rtol=1e-9)


@pytest.mark.slow
def test_training_for_the_noise_to_come_pays_on_cells(cells):
    X, S, y = cells
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:400], order[400:]
    chances = {}
    for deploy in (None, 4.0):
        model = GaussianRobustClassifierCV(deploy_noise=deploy).fit(X[train], y[train], X_std=S[train])
        assert model.cv_results_["max_gap"].max() <= 1e-6
        assert model.gap_ <= 1e-6
        chances[deploy] = np.mean(_right(model, X[test], y[test], 4 * S[test]))
    assert chances[4.0] > chances[None] + 0.005


# Warnings where they are due, errors before anything is fitted


def test_logistic_loss_without_a_ridge_warns_once_that_no_bound_is_known(draw):
    X, y, _ = draw()
    with pytest.warns(ConvergenceWarning) as caught:
        model = GaussianRobustClassifierCV(NOISES, alphas=[0.0], cv=2).fit(X, y)
    assert len(caught) == 1
    assert "No lower bound is known" in str(caught[0].message)
    assert np.all(np.isinf(model.cv_results_["max_gap"]))
    ridge = GaussianRobustClassifierCV([0.1], alphas=[0.0, 10.0], cv=2, scoring=lambda m, X, y: -np.abs(m.coef_).max())
    assert ridge.fit(X, y).alpha_ == 10.0


def test_folds_are_certified_as_far_as_scores_see_and_the_last_fit_to_the_end(draw):
    X, y, _ = draw()
    for loss in ("logistic", "hinge"):
        model = _fitted(GaussianRobustClassifierCV(NOISES, loss=loss, cv=3), X, y)
        fine = _fitted(GaussianRobustClassifierCV(NOISES, loss=loss, cv=3, cv_tol=1e-6), X, y)
        gaps = model.cv_results_["max_gap"].max()
        assert fine.cv_results_["max_gap"].max() <= 1e-6
        assert fine.cv_results_["max_gap"].max() < gaps <= 1e-3
        assert model.gap_ <= 1e-6
        assert_allclose(model.cv_results_["mean_test_score"], fine.cv_results_["mean_test_score"], atol=0.02)


@pytest.mark.parametrize(("sign", "word"), [(1, "largest"), (-1, "smallest")])
def test_a_path_that_ends_at_its_best_value_says_so(sign, word, draw):
    X, y, _ = draw()
    for values in ([0.1, 0.2, 0.4], {"noises": [0.2], "alphas": [0.1, 1.0, 10.0]}):
        options = values if isinstance(values, dict) else {"noises": values}
        name = "alpha" if "alphas" in options else "noise"
        model = GaussianRobustClassifierCV(**options, cv=2, scoring=lambda m, X, y: -sign * np.abs(m.coef_).max())
        with pytest.warns(EndOfPathWarning, match=rf"the {name} chosen, .*, is the {word} of 3 that.*Give .* {name}s"):
            model.fit(X, y)


def test_a_choice_within_the_path_or_of_two_values_or_of_no_noise_says_nothing(draw):
    X, y, _ = draw()
    for noises, best in (([0.1, 0.2, 0.4], 0.2), ([0.1, 0.2], 0.2), ([0.0, 0.1, 0.2], 0.0)):
        model = GaussianRobustClassifierCV(noises, cv=2, scoring=lambda m, X, y, best=best: -abs(m.noise - best))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.fit(X, y).noise_ == best


def test_a_path_that_ends_where_w_is_0_does_not_ask_for_larger_sizes(rng):
    X, y = rng.normal(size=(60, 4)), np.repeat([0, 1], [50, 10])
    for model in (GaussianRobustClassifierCV(8, loss="hinge", cv=3), RobustLinearClassifierCV(8, cv=3)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert not np.any(model.fit(X, y).coef_)
        assert [warning.category for warning in told] == [CollapseWarning]


def test_fits_that_are_not_certified_are_counted(draw):
    X, y, _ = draw()
    for alphas in ([1.0], [1.0, 0.0]):
        with pytest.warns(ConvergenceWarning) as caught:
            GaussianRobustClassifierCV(NOISES, alphas=alphas, cv=2, cv_tol=1e-6, max_iter=1).fit(X, y)
        counted = [str(w.message) for w in caught if "fits on the path" in str(w.message)]
        assert len(counted) == 1
        assert "not certified to cv_tol=1e-06" in counted[0]
        assert "max_iter" in counted[0]


def test_collapse_is_said_of_the_model_kept_and_not_of_the_path(two_classes):
    X, y = two_classes(60, 3, separation=0.7, positives=20)
    model = GaussianRobustClassifierCV([100.0, 0.1], loss="hinge", cv=2, scoring=lambda m, X, y: -m.noise)
    assert not model.fit(X, y).collapsed_
    with pytest.warns(CollapseWarning) as caught:
        model.set_params(scoring=lambda m, X, y: m.noise).fit(X, y)
    assert len(caught) == 1
    assert model.collapsed_


def test_column_of_classes_is_warned_of_once_and_scored_as_a_vector(draw):
    X, y, _ = draw()
    model = GaussianRobustClassifierCV([1.0, 0.1], cv=2)
    expected = clone(model).fit(X, y).cv_results_["mean_test_score"]
    with pytest.warns(DataConversionWarning) as caught:
        model.fit(X, y[:, None])
    assert len(caught) == 1
    assert_array_equal(model.cv_results_["mean_test_score"], expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noises": 0}, r"GaussianRobustClassifierCV\(noises=0\): give at least one"),
        ({"noises": []}, "at least one"),
        ({"noises": [1.0, -1.0]}, "noises must be finite numbers >= 0"),
        ({"noises": [np.nan]}, "finite"),
        ({"noises": "many"}, "noises='many'"),
        ({"noises": [0.0, 1.0], "loss": "hinge"}, "plain hinge"),
        ({"alphas": []}, "at least one"),
        ({"alphas": [-1.0]}, r"alphas=\[-1.0\]\): give finite numbers >= 0"),
        ({"alphas": [np.inf]}, "alphas"),
        ({"alphas": "auto"}, "alphas='auto'"),
        ({"alphas": [[1.0, 2.0]]}, "alphas"),
        ({"deploy_noise": -1.0}, r"deploy_noise=-1.0\): must be a finite number >= 0"),
        ({"deploy_noise": "double"}, "deploy_noise='double'"),
        ({"cv": 1}, r"cv=1\): give None, or an integer >= 2, or a splitter"),
        ({"cv": "five"}, "cv"),
        ({"cv": []}, r"GaussianRobustClassifierCV\(cv=\[\]\): gives no folds"),
        ({"scoring": "acuracy"}, "scoring"),
        ({"scoring": ["accuracy", "f1"]}, r"scoring=\['accuracy', 'f1'\]\): give None, the name of one"),
        ({"scoring": 3}, "scoring=3"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"noise": [0.1, 0.2, 0.3]}, "GaussianNoise"),
        ({"loss": "square"}, "Choose one of 'logistic'"),
        ({"tol": 0}, r"tol=0\)"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"solver": "magic"}, "Choose one of 'newton'"),
        ({"class_weight": {7: 1.0}}, "no such class"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_fitted(parameters, message, draw, caplog):
    X, y, _ = draw()
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifierCV(**({"noises": [1.0]} | parameters), verbose=1).fit(X, y)
    assert not caplog.messages


def test_noise_to_deploy_of_zero_is_refused_where_it_would_be_trained_for(draw):
    X, y, S = draw()
    with pytest.raises(ValueError, match=r"deploy_noise=...\): without noise this loss is the plain hinge"):
        GaussianRobustClassifierCV(loss="hinge", deploy_noise=0.0).fit(X, y, X_std=S)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (lambda S: {"X_std": S[:-1]}, "X_std has shape"),
        (lambda S: {"X_std": -S}, "X_std must be >= 0"),
        (lambda S: {"X_std": S, "X_factor": S[:, :, None]}, "twice"),
        (lambda S: {"sample_weight": np.ones(3)}, "sample_weight"),
    ],
)
def test_bad_metadata_are_named(metadata, message, draw):
    X, y, S = draw()
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifierCV().fit(X, y, **metadata(S))
    with pytest.raises(ValueError, match=message):
        noise_path(X, y, **metadata(S))


@by_classes
def test_fold_without_a_class_is_named(n_classes, draw):
    X, y, _ = draw(n_classes)
    names = np.array(["ash", "birch", "cedar"])[y]
    cv = [(np.flatnonzero(y != 1), np.arange(5))]
    with pytest.raises(ValueError, match=r"hold no row of class 'birch'\. Use fewer folds"):
        GaussianRobustClassifierCV([1.0], cv=cv).fit(X, names)


def test_validation_rows_without_weight_are_named(draw):
    X, y, _ = draw()
    with pytest.raises(ValueError, match="sample_weight is zero for all validation rows of a fold"):
        GaussianRobustClassifierCV([1.0], cv=KFold(3)).fit(X, y, sample_weight=np.arange(len(y)) >= len(y) // 3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_score_that_is_no_number_is_never_the_best(value, draw):
    X, y, _ = draw()
    with pytest.raises(ValueError, match=f"gave {value} on the validation rows"):
        GaussianRobustClassifierCV(NOISES, cv=2, scoring=lambda m, X, y: value).fit(X, y)


def test_there_is_no_partial_fit_and_the_reason_is_given():
    model = GaussianRobustClassifierCV()
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit  # noqa: B018
    reason = str(caught.value)
    assert "cross-validation needs all rows at once" in reason


def test_unfitted_models_say_so(draw):
    X, _, _ = draw()
    for method in ("predict", "decision_function", "flip_probability", "score_std", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(GaussianRobustClassifierCV(), method)(X)


# In scikit-learn's company


def test_parameters_are_those_of_the_constructor_and_can_be_searched(draw):
    X, y, _ = draw()
    model = GaussianRobustClassifierCV([0.1, 0.2], cv=2, noise=GaussianNoise(0.5), deploy_noise=0.3)
    assert "alpha" not in model.get_params()
    assert "warm_start" not in model.get_params()
    copy = clone(model).set_params(noise__std=0.7, loss="hinge", noises=[0.5])
    assert (copy.noise.std, copy.loss, copy.noises, model.noise.std) == (0.7, "hinge", [0.5], 0.5)
    with pytest.raises(ValueError, match="Invalid parameter 'alpha'"):
        model.set_params(alpha=1.0)
    search = GridSearchCV(model, {"loss": ["hinge", "logistic"], "noise__std": [0.5]}, cv=2).fit(X, y)
    assert search.best_estimator_.gap_ <= 1e-6
    assert "deploy_noise" in estimator_html_repr(model)
    assert repr(model).startswith("GaussianRobustClassifierCV(")


def test_fitting_changes_no_parameter_and_starts_afresh(draw):
    X, y, _ = draw(3)
    model = GaussianRobustClassifierCV([1.0, 0.1], alphas=[1.0, 0.1], cv=2)
    before = model.get_params()
    model.fit(X, y)
    assert model.get_params() == before
    again = clone(model).fit(X[:, :2], y == 1)
    model.fit(X[:, :2], y == 1)
    assert_array_equal(model.coef_, again.coef_)
    assert model.get_params()["noise"] is None


def test_names_of_features_and_classes_are_kept(draw):
    frames = pytest.importorskip("pandas")
    X, y, S = draw(3)
    names, trees = ["height", "girth", "age"], np.array(["ash", "birch", "cedar"])
    table, errors = frames.DataFrame(X, columns=names), frames.DataFrame(S, columns=names)
    labels = frames.Series(trees[y], index=np.arange(len(y))[::-1])
    model = GaussianRobustClassifierCV(alphas=[1.0, 0.1], cv=2).fit(table, labels, X_std=errors)
    plain = GaussianRobustClassifierCV(alphas=[1.0, 0.1], cv=2).fit(X, y, X_std=S)
    assert_array_equal(model.feature_names_in_, names)
    assert_array_equal(model.classes_, trees)
    assert_array_equal(model.predict(table), trees[plain.predict(X)])
    assert_allclose(model.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], rtol=1e-9)
    with pytest.raises(ValueError, match="X_std has the columns"):
        model.fit(table, labels, X_std=errors[names[::-1]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[names[::-1]])
    model.fit(X, y, X_std=S)
    assert not hasattr(model, "feature_names_in_")
    model.predict(X)
    steps = make_pipeline(StandardScaler().set_output(transform="pandas"), GaussianRobustClassifierCV([1.0], cv=2))
    assert_array_equal(steps.fit(table, labels)[-1].feature_names_in_, names)


def test_metadata_travel_through_a_search(draw):
    X, y, S = draw()
    with sklearn.config_context(enable_metadata_routing=True):
        model = GaussianRobustClassifierCV(alphas=[1.0], cv=2).set_fit_request(X_std=True)
        search = GridSearchCV(model, {"deploy_noise": [1.0, 2.0]}, cv=2).fit(X, y, X_std=S)
    assert search.best_estimator_.row_noise_


def test_fitted_models_survive_pickle_and_skops(draw):
    skops = pytest.importorskip("skops.io")
    X, y, S = draw(3)
    model = GaussianRobustClassifierCV(alphas=[1.0], noise=GaussianNoise(2.0), cv=2, loss="hinge").fit(X, y, X_std=S)
    stored = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=stored)
    assert all(name.startswith("holdfast.") for name in unknown)
    for copy in (pickle.loads(pickle.dumps(model)), skops.loads(stored, trusted=unknown)):
        assert_array_equal(copy.predict(X), model.predict(X))
        assert_array_equal(copy.flip_probability(X, X_std=S), model.flip_probability(X, X_std=S))
        assert_array_equal(copy.cv_results_["mean_test_score"], model.cv_results_["mean_test_score"])


def test_progress_tells_every_fit_of_every_fold(draw, caplog):
    X, y, _ = draw()
    GaussianRobustClassifierCV([1.0, 0.25], cv=3).fit(X, y)
    assert not caplog.messages
    GaussianRobustClassifierCV([1.0, 0.25], cv=3, verbose=1).fit(X, y)
    for noise in ("noise 1,", "noise 0.25,"):
        assert len([line for line in caplog.messages if line.startswith(noise) and "certified gap" in line]) == 3
    caplog.clear()
    noise_path(X, y, [1.0, 0.25], verbose=1)
    assert len([line for line in caplog.messages if line.startswith("noise ")]) == 2


def test_callbacks_hear_of_every_fit(draw):
    pytest.importorskip("sklearn.callback")
    X, y, _ = draw()
    heard = []

    class Listener:
        def setup(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            heard.append(str(context.task_name))

        def on_fit_task_end(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

    GaussianRobustClassifierCV([1.0, 0.25], cv=3).set_callbacks(Listener()).fit(X, y)
    assert len([name for name in heard if name.startswith("noise 0.25")]) == 3


def test_a_path_that_is_not_certified_says_so(draw):
    X, y, _ = draw(2)
    with pytest.warns(ConvergenceWarning, match="of 2 fits on the path"):
        noise_path(X, y, [1.0, 0.3], loss="hinge", max_iter=1)


def test_scorers_that_take_no_weights_are_given_none(draw):
    X, y, _ = draw(2)
    weights = np.linspace(1, 2, len(y))
    plain = make_scorer(lambda truth, found: float(np.mean(truth == found)))
    for scoring in (plain, lambda model, X, y: float(np.mean(model.predict(X) == y))):
        model = GaussianRobustClassifierCV([1.0, 0.1], scoring=scoring, cv=2).fit(X, y, sample_weight=weights)
        assert 0 < model.best_score_ <= 1
