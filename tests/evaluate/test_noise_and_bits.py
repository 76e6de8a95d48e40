"""Smoothing, flips by noise, and bits: confidence by simulation, formulas by draws, rounding by rounding."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.stats import beta, binom, norm
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._certificates.pipelines import view_of
from holdfast.evaluate import certified_radius, flip_probability, safe_bits, smoothed
from holdfast.evaluate.smoothing import lower_confidence


@pytest.fixture
def rows(several_classes):
    return several_classes((40, 30, 20), 4)


# Smoothing


def test_lower_confidence_is_clopper_and_pearsons():
    hits = np.arange(0, 41)
    expected = np.where(hits > 0, beta.ppf(0.01, np.maximum(hits, 1), 41 - hits), 0.0)
    assert_allclose(lower_confidence(hits, 40, 0.01), expected, rtol=1e-9)
    # it is the probability at which so many hits or more are as rare as alpha
    assert_allclose(binom.sf(hits[1:] - 1, 40, lower_confidence(hits[1:], 40, 0.01)), 0.01, rtol=1e-6)


def test_smoothed_radius_exceeds_the_true_one_no_more_often_than_alpha():
    # the smoothed classifier of a linear model is the model, and its radius the distance to the hyperplane
    alpha, n = 0.1, 4000
    w = np.array([3.0, -4.0])
    model = LogisticRegression()
    model.classes_, model.coef_, model.intercept_, model.n_features_in_ = np.array([0, 1]), w[None], np.zeros(1), 2
    distances = np.tile([0.1, 0.4, 0.9, 1.6], n // 4)
    X = distances[:, None] * w / 5
    found = smoothed(model, X, sigma=1.0, n_draws=200, n_choose=20, alpha=alpha, random_state=0)
    wrong = np.where(found.predicted == 1, found.radius > distances, found.radius > 0)
    assert beta.ppf(0.01, max(np.sum(wrong), 1), n - np.sum(wrong) + 1) <= alpha
    # the bound is used up where draws can tell
    assert np.mean(wrong[distances == 0.9]) > alpha / 3
    assert np.all(found.radius[found.abstained] == 0)
    assert np.all(found.probability[~found.abstained] > 0.5)
    assert 0 < np.mean(found.abstained[distances == 0.1]) < 1
    assert_allclose(found.radius[~found.abstained], norm.ppf(found.probability[~found.abstained]), rtol=1e-9)


def test_smoothing_has_units_and_a_seed(rows):
    X, y = rows
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    options = {"sigma": 0.4, "n_draws": 100, "n_choose": 20, "alpha": 0.01, "random_state": 3}
    found = smoothed(model, X, **options)
    again = certified_radius(model, X, method="smoothing", **options)
    assert np.array_equal(found.radius, again.radius)
    scale = np.array([1.0, 100.0, 0.1, 2.0])
    scaled = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X * scale, y)
    assert np.array_equal(smoothed(scaled, X * scale, weights=scale, **options).radius, found.radius)
    assert np.array_equal(smoothed(model, sparse.csr_array(X), **options).radius, found.radius)
    assert "smoothed classifier, not by the model" in found.assumption


def test_smoothing_says_what_is_wrong(rows):
    X, y = rows
    model = DecisionTreeClassifier().fit(X, y)
    for options, text in (
        ({}, r"sigma=None"),
        ({"sigma": -1.0}, r"sigma=-1.0"),
        ({"sigma": 1.0, "n_draws": 0}, r"n_draws=0"),
        ({"sigma": 1.0, "alpha": 0.7}, r"alpha=0.7"),
    ):
        with pytest.raises(ValueError, match=text):
            smoothed(model, X, **options)


# Flips


def test_flips_of_our_own_model_are_those_that_it_says(rng, rows):
    X, y = rows
    S = rng.uniform(0.1, 1.0, size=X.shape)
    for classes in (2, 3):
        X, S, y = X[y < classes + 1], S[y < classes + 1], y[y < classes + 1]
        model = GaussianRobustClassifier().fit(X, y, X_std=S)
        assert_allclose(flip_probability(model, X, X_std=S).probability, model.flip_probability(X, X_std=S), rtol=1e-9)
    assert_allclose(flip_probability(model, X, 0.3).probability, model.flip_probability(X, X_std=np.full(X.shape, 0.3)))


@pytest.mark.parametrize("kind", ["X_std", "X_cov", "X_factor", "common", "common_cov"])
def test_flips_by_formula_are_those_of_draws(kind, rng, rows):
    X, y = rows
    X, y = X[y < 2], y[y < 2]
    X = X * [1, 10, 0.1, 1]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    F = rng.normal(size=(len(X), 4, 2)) * np.array([1, 10, 0.1, 1])[:, None]
    noise = {
        "X_std": {"X_std": np.abs(F[:, :, 0])},
        "X_cov": {"X_cov": F @ F.transpose(0, 2, 1)},
        "X_factor": {"X_factor": F},
        "common": {"noise": GaussianNoise(std=[0.5, 3.0, 0.1, 0.4])},
        "common_cov": {"noise": GaussianNoise(cov=F[0] @ F[0].T)},
    }[kind]
    formula = flip_probability(model, X, **noise)
    draws = flip_probability(model, X, **noise, method="draws", n_draws=2000, random_state=0)
    assert np.array_equal(formula.predicted, draws.predicted)
    assert np.all(formula.standard_error == 0)
    assert np.all(np.abs(draws.probability - formula.probability) <= 5 * np.sqrt(0.25 / 2000))
    assert abs(np.mean(draws.probability - formula.probability)) < 0.01
    assert_allclose(draws.standard_error, np.sqrt(draws.probability * (1 - draws.probability) / 2000))


def test_flips_of_several_classes_are_those_of_draws_below_their_bound(rows):
    X, y = rows
    for model, is_exact in ((LogisticRegression(), True), (SVC(kernel="linear"), False)):
        model.fit(X, y)
        found = flip_probability(model, X, 0.5)
        bound = flip_probability(model, X, 0.5, method="bound")
        draws = flip_probability(model, X, 0.5, method="draws", n_draws=2000, random_state=0)
        assert "upper bound" in bound.assumption
        assert ("exact" in found.assumption) == is_exact
        assert np.all(found.probability <= bound.probability + 1e-12)
        excess = draws.probability - found.probability
        assert np.all((np.abs(excess) if is_exact else excess) <= 5 * np.sqrt(0.25 / 2000))
        assert is_exact == bool(np.any(found.probability < bound.probability - 0.01))


def test_flips_of_many_classes_come_with_a_standard_error(several_classes):
    X, y = several_classes((20, 20, 20, 20, 20), 4)
    model = LogisticRegression().fit(X, y)
    found = flip_probability(model, X, 0.5, random_state=0)
    bound = flip_probability(model, X, 0.5, method="bound").probability
    draws = flip_probability(model, X, 0.5, method="draws", n_draws=4000, random_state=1)
    assert "an estimate" in found.assumption
    assert np.all(found.standard_error <= 0.5 * bound / np.sqrt(1000) + 1e-15)
    error = np.hypot(found.standard_error, np.sqrt(0.25 / 4000))
    assert np.all(np.abs(found.probability - draws.probability) <= 5 * error)
    # the draws of a row are its own: others asked about with it change nothing
    assert_allclose(flip_probability(model, X[::7], 0.5, random_state=0).probability, found.probability[::7])


def test_a_bound_of_flips_is_known_of_linear_models_alone(rows):
    X, y = rows
    with pytest.raises(ValueError, match="no bound is known for DecisionTreeClassifier"):
        flip_probability(DecisionTreeClassifier().fit(X, y), X, 0.2, method="bound")


def test_flips_of_other_models_are_drawn(rows):
    X, y = rows
    found = flip_probability(DecisionTreeClassifier(random_state=0).fit(X, y), X, 0.2, n_draws=50, random_state=0)
    assert found.method == "50 draws"
    assert 0 < found.probability.mean() < 0.5


def test_flips_need_noise(rows):
    X, y = rows
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="states no noise"):
        flip_probability(model, X)
    with pytest.raises(ValueError, match="X_std has 4 rows, X has 90"):
        flip_probability(model, X, X_std=np.ones(4))
    with pytest.raises(ValueError, match="a covariance that is unknown"):
        flip_probability(DecisionTreeClassifier().fit(X, y), X, GaussianNoise(1.0, unknown="correlations"))
    with pytest.raises(ValueError, match="'auto', 'bound' or 'draws'"):
        flip_probability(model, X, 1.0, method="guess")


# Bits


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_in_so_many_bits_predict_the_same(intercept, n_classes, rows):
    X, y = rows
    X, y = X[y < n_classes], y[y < n_classes]
    model = LogisticRegression().fit(X, y)
    found = safe_bits(model, X, intercept=intercept)
    W, b = model.coef_, model.intercept_
    largest = max(np.abs(W).max(), np.abs(b).max()) if intercept else np.abs(W).max()
    assert found.all_rows == found.bits.max() < np.inf
    for bits in np.unique(found.bits):
        step = largest / (2 ** (bits - 1) - 1)
        coarse = LogisticRegression()
        coarse.__dict__ |= model.__dict__
        coarse.coef_, coarse.intercept_ = np.round(W / step) * step, np.round(b / step) * step if intercept else b
        rows = found.bits <= bits
        assert np.array_equal(coarse.predict(X[rows]), model.predict(X[rows]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_so_many_bits_are_enough_for_the_worst_weights_and_one_less_is_not(n_classes, rows):
    X, y = rows
    X, y = X[y < n_classes], y[y < n_classes]
    model = LogisticRegression(C=100).fit(X, y)
    view, bits = view_of(model, X).model, safe_bits(model, X).bits
    scores = np.atleast_2d(X @ view.coef.T + view.intercept)
    leads = np.abs(scores[:, 0]) if n_classes == 2 else np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2]
    falls = (1 if n_classes == 2 else 2) * 0.5 * np.abs(view.coef).max() * np.abs(X).sum(axis=1)
    some = bits > 2
    assert np.any(some)
    assert np.all(falls / (2 ** (bits - 1) - 1) < leads)
    assert np.all(falls[some] / (2 ** (bits[some] - 2) - 1) >= leads[some] * (1 - 1e-9))


def test_tie_is_safe_in_no_number_of_bits():
    model = LogisticRegression().fit([[-1.0, 0.0], [1.0, 0.0]], [0, 1])
    model.intercept_ = np.zeros(1)
    assert safe_bits(model, [[0.0, 0.0], [1.0, 0.0]]).bits.tolist() == [np.inf, 2.0]


@pytest.mark.parametrize("intercept", [-1, 0, 1, "False", None])
def test_only_true_and_false_say_whether_intercepts_are_stored(intercept):
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0], [4.0, 3.0]]), [0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"intercept=.*give True or False"):
        safe_bits(LogisticRegression().fit(X, y), X, intercept=intercept)
