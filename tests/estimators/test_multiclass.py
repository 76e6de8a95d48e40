"""GaussianRobustClassifier with more than two classes."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.estimators import critical_noise
from holdfast.exceptions import CollapseWarning

PERSPECTIVE = ["hinge", "log2", "quadratic", "two_point"]
perspective_losses = pytest.mark.parametrize("loss", PERSPECTIVE)
every_loss = pytest.mark.parametrize("loss", ["logistic", *PERSPECTIVE])
LEVELS = (0.01, 0.1, 0.5)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def wine_errors(wine):
    return np.random.default_rng(3).uniform(0.1, 0.8, size=wine[0].shape)


# Certified on real data


def _assert_certified(X, y, loss="hinge"):
    unit = np.sqrt(np.mean(np.sum(np.square(X), axis=1)))
    for level in LEVELS:
        for class_weight in (None, "balanced"):
            model = GaussianRobustClassifier(level * unit, loss=loss, class_weight=class_weight).fit(X, y)
            assert model.gap_ <= 1e-6
            assert model.lower_bound_ <= model.objective_
            assert model.solution_["status"] == "solved"
            assert model.coef_.shape == (len(np.unique(y)), X.shape[1])
            assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-10)
            assert_allclose(model.intercept_.sum(), 0, atol=1e-10)


@pytest.mark.thin(2)
@perspective_losses
def test_wine_is_certified_at_every_noise(loss, wine):
    _assert_certified(*wine, loss)


def _one_hot(X):
    """Return one column for each of the letters that a column of codes can hold."""
    return (X[:, :, None] == np.unique(X)).reshape(len(X), -1).astype(float)


def test_three_digits_and_splice_sites_are_certified_at_every_noise(load_data):
    usps, splice = load_data("usps"), load_data("splice_uci")
    chosen = np.isin(usps["y"], (3, 5, 8))
    _assert_certified(usps["X"][chosen], usps["y"][chosen])
    _assert_certified(_one_hot(splice["X"]), splice["y"])


@pytest.mark.slow
def test_ten_digits_are_certified_at_every_noise(load_data):
    X, y = load_digits(return_X_y=True)
    _assert_certified(X / 16, y)
    usps = load_data("usps")
    _assert_certified(usps["X"][:3000], usps["y"][:3000])


# Collapse


@pytest.fixture
def crowded():
    """Three classes of 40, 15 and 5 rows, and a noise that is too much for them."""
    y = np.repeat([0, 1, 2], [40, 15, 5])
    return np.array([[0, 0], [2, 0], [0, 2.0]])[y] + np.random.default_rng(0).normal(size=(60, 2)), y


@pytest.mark.thin(2)
@perspective_losses
def test_total_collapse_is_proved_said_and_cured(loss, crowded):
    X, y = crowded
    with pytest.warns(CollapseWarning, match=r"classes weigh 40, 15, 5\. Use class_weight='balanced'"):
        model = GaussianRobustClassifier(30.0, loss=loss).fit(X, y)
    assert model.collapsed_
    assert model.gap_ <= 1e-6
    assert_array_equal(model.coef_, 0)
    assert_array_equal(model.collapsed_pairs_, [[0, 1], [0, 2], [1, 2]])
    assert set(model.predict(X)) == {0}
    cured = GaussianRobustClassifier(30.0, loss=loss, class_weight="balanced").fit(X, y)
    assert len(cured.collapsed_pairs_) == 0
    assert not cured.collapsed_
    assert cured.gap_ <= 1e-6


def test_collapsed_pair_is_named_with_its_cure(rng):
    y = np.repeat(["ape", "bee", "cat"], [30, 12, 25])
    X = np.repeat([[0, 0, 0], [0.2, 0, 0], [6.0, 3, 0]], [30, 12, 25], axis=0) + rng.normal(size=(67, 3))
    with pytest.warns(CollapseWarning, match=r"'ape' and 'bee': .*class_weight='balanced'"):
        model = GaussianRobustClassifier(1.0, loss="hinge").fit(X, y)
    assert_array_equal(model.collapsed_pairs_, [["ape", "bee"]])
    assert not model.collapsed_
    assert model.gap_ <= 1e-6
    assert_array_equal(model.coef_[0], model.coef_[1])
    assert "bee" not in model.predict(X)
    cured = GaussianRobustClassifier(1.0, loss="hinge", class_weight="balanced").fit(X, y)
    assert len(cured.collapsed_pairs_) == 0
    assert "bee" in cured.predict(X)


def test_two_classes_report_their_collapse_as_a_pair(crowded):
    X, y = crowded
    X, y = X[y < 2], y[y < 2]
    noise = critical_noise(X, y)
    with pytest.warns(CollapseWarning):
        assert_array_equal(GaussianRobustClassifier(1.1 * noise, loss="hinge").fit(X, y).collapsed_pairs_, [[0, 1]])
    assert GaussianRobustClassifier(0.9 * noise, loss="hinge").fit(X, y).collapsed_pairs_.shape == (0, 2)


def test_warnings_name_the_line_that_called_fit(crowded):
    X, y = crowded
    for options in ({}, {"max_iter": 1}):
        with pytest.warns((CollapseWarning, ConvergenceWarning)) as caught:
            GaussianRobustClassifier(30.0, loss="hinge", **options).fit(X, y)
        assert {warning.filename for warning in caught} == {__file__}


# Reductions and metamorphic relations


def test_one_against_the_rest_is_one_fit_for_each_class(wine, wine_errors):
    X, y = wine
    model = GaussianRobustClassifier(0.7, multiclass="ovr").fit(X, y, X_std=wine_errors)
    parts = [GaussianRobustClassifier(0.7).fit(X, y == k, X_std=wine_errors) for k in range(3)]
    assert_allclose(model.coef_, np.concatenate([part.coef_ for part in parts]), rtol=1e-9)
    assert_allclose(model.intercept_, np.concatenate([part.intercept_ for part in parts]), rtol=1e-9)
    assert model.objective_ == pytest.approx(sum(part.objective_ for part in parts))
    assert model.lower_bound_ == pytest.approx(sum(part.lower_bound_ for part in parts))
    assert model.gap_ <= 1e-6
    assert model.norm_bound_ == max(part.norm_bound_ for part in parts)
    assert not hasattr(model, "proof_weights_")


@every_loss
def test_duplicated_rows_are_doubled_weights(loss, wine, wine_errors):
    (X, y), S = wine, wine_errors
    twice = np.arange(len(y)) % 3 == 0
    index = np.concatenate([np.arange(len(y)), np.flatnonzero(twice)])
    repeated = GaussianRobustClassifier(loss=loss).fit(X[index], y[index], X_std=S[index])
    weighted = GaussianRobustClassifier(loss=loss).fit(X, y, sample_weight=1.0 + twice, X_std=S)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-8)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-11)


@every_loss
def test_names_of_classes_and_order_of_rows_do_not_matter(loss, wine, wine_errors, rng):
    (X, y), S = wine, wine_errors
    plain = GaussianRobustClassifier(loss=loss).fit(X, y, X_std=S)
    order = rng.permutation(len(y))
    names = np.array(["red", "blue", "green"])
    named = GaussianRobustClassifier(loss=loss).fit(X[order], names[y[order]], X_std=S[order])
    assert_array_equal(named.classes_, ["blue", "green", "red"])
    assert_allclose(named.coef_, plain.coef_[[1, 2, 0]], rtol=1e-5, atol=1e-7)
    assert_allclose(named.intercept_, plain.intercept_[[1, 2, 0]], rtol=1e-5, atol=1e-7)
    assert_array_equal(named.predict(X), names[plain.predict(X)])
    assert_array_equal(plain.predict(X), np.argmax(plain.decision_function(X), axis=1))


@pytest.mark.thin(2)
@pytest.mark.parametrize("loss", ["hinge", "two_point"])
@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array, np.asfortranarray, lambda X: X.astype("f")])
def test_every_format_gives_the_same_fit(loss, make, wine):
    X, y = wine
    plain = GaussianRobustClassifier(0.8, loss=loss).fit(X, y)
    other = GaussianRobustClassifier(0.8, loss=loss).fit(make(X), y)
    assert_allclose(other.objective_, plain.objective_, rtol=1e-5 if make(X).dtype == np.float32 else 1e-9)
    assert_allclose(other.coef_, plain.coef_, atol=1e-4 if make(X).dtype == np.float32 else 1e-7)
    assert other.gap_ <= 1e-6
    assert other.coef_.dtype == np.float64


@pytest.mark.parametrize("loss", ["hinge", "two_point"])
def test_noise_stated_in_any_way_gives_the_same_fit(loss, wine):
    X, y = wine
    n, d = X.shape
    number = GaussianRobustClassifier(0.6, loss=loss).fit(X, y)
    for noise, metadata in [
        (GaussianNoise(std=np.full(d, 0.6)), {}),
        (GaussianNoise(cov=0.36 * np.eye(d)), {}),
        (0.6, {"X_std": np.ones((n, d))}),
        (GaussianNoise(2.0), {"X_cov": np.broadcast_to(0.09 * np.eye(d), (n, d, d))}),
        (GaussianNoise(), {"X_factor": np.broadcast_to(0.6 * np.eye(d), (n, d, d))}),
    ]:
        model = GaussianRobustClassifier(noise, loss=loss).fit(X, y, **metadata)
        assert_allclose(model.objective_, number.objective_, rtol=1e-9)
        assert_allclose(model.coef_, number.coef_, rtol=1e-4, atol=1e-6)
        assert model.gap_ <= 1e-6


@pytest.mark.parametrize("loss", ["hinge", "two_point"])
@pytest.mark.parametrize("solver", ["newton", "quasi_newton"])
def test_every_solver_finds_the_same_optimum(loss, solver, wine, wine_errors):
    X, y = wine
    for alpha in (0.0, 0.5):
        best = GaussianRobustClassifier(loss=loss, alpha=alpha).fit(X, y, X_std=wine_errors)
        model = GaussianRobustClassifier(loss=loss, alpha=alpha, solver=solver).fit(X, y, X_std=wine_errors)
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(best.objective_, rel=2e-6)


@perspective_losses
def test_features_far_from_zero_are_as_good_as_any(loss, wine):
    X, y = wine
    near, far = (GaussianRobustClassifier(0.8, loss=loss).fit(X + shift, y) for shift in (0.0, 1e6))
    assert far.gap_ <= 1e-6
    assert_allclose(far.objective_, near.objective_, rtol=1e-7)
    assert_array_equal(far.predict(X + 1e6), near.predict(X))


def test_ridge_shrinks_the_weights_and_counts_their_squares(wine):
    X, y = wine
    bare, ridged = (GaussianRobustClassifier(0.5, loss="hinge", alpha=alpha).fit(X, y) for alpha in (0.0, 5.0))
    square = np.sum(ridged.coef_**2)
    assert square < np.sum(bare.coef_**2)
    assert np.sqrt(square) <= ridged.norm_bound_
    assert bare.norm_bound_ == np.inf
    # each is best at what it minimises
    assert bare.objective_ <= ridged.objective_ - 5 * square
    assert ridged.objective_ <= bare.objective_ + 5 * np.sum(bare.coef_**2)


def test_class_weights_are_weights_of_rows(wine):
    X, y = wine
    factors = {0: 2.0, 2: 0.5}
    by_class = GaussianRobustClassifier(0.5, loss="hinge", class_weight=factors).fit(X, y)
    weights = np.array([2.0, 1.0, 0.5])[y]
    by_row = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y, sample_weight=weights)
    assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-10)
    balanced = GaussianRobustClassifier(0.5, loss="hinge", class_weight="balanced").fit(X, y)
    by_row = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y, sample_weight=(178 / (3 * np.bincount(y)))[y])
    assert_allclose(balanced.coef_, by_row.coef_, rtol=1e-10)


# Odd data


@perspective_losses
def test_one_row_for_each_class_is_enough(loss, rng):
    X = rng.normal(size=(5, 7))
    model = GaussianRobustClassifier(0.1, loss=loss).fit(X, list("abcde"))
    assert model.gap_ <= 1e-6
    assert_array_equal(model.predict(X), list("abcde"))


def test_duplicated_constant_and_empty_columns_are_fine(wine):
    X, y = wine
    plain = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    odd = np.column_stack([X, np.zeros(len(y)), np.full(len(y), 7.0)])
    model = GaussianRobustClassifier(0.5, loss="hinge").fit(odd, y)
    assert model.gap_ <= 1e-6
    # noise on columns that say nothing makes them useless
    assert_allclose(model.coef_[:, :-2], plain.coef_, atol=1e-6)
    assert_allclose(model.coef_[:, -2:], 0, atol=1e-6)
    # a copy with noise of its own halves the variance: the same as one column with less noise
    twins = GaussianRobustClassifier(0.5 * np.sqrt(2), loss="hinge").fit(np.column_stack([X, X]), y)
    assert_allclose(twins.objective_, plain.objective_, rtol=1e-7)
    assert_allclose(twins.coef_, np.column_stack([plain.coef_, plain.coef_]) / 2, atol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_wide_rows_are_solved_in_their_span(make, rng):
    X = rng.normal(size=(200, 5000))
    y = rng.integers(0, 4, size=200)
    model = GaussianRobustClassifier(10.0, loss="hinge").fit(make(X), y)
    assert model.gap_ <= 1e-6
    inside = X.T @ np.linalg.lstsq(X @ X.T, X @ model.coef_.T, rcond=None)[0]
    assert_allclose(inside.T, model.coef_, atol=1e-8 * np.abs(model.coef_).max())


@pytest.mark.thin(2)
@pytest.mark.parametrize(("loss", "alpha"), [("hinge", 0.0), ("two_point", 0.0), ("hinge", 0.1)])
@pytest.mark.parametrize("exact", ["features", "rows", "features and rows", "features for all rows alike"])
def test_exact_features_and_exact_rows_are_certified_too(loss, alpha, exact, wine, wine_errors):
    (X, y), S = wine, wine_errors.copy()
    X = X[:, :5]
    S = S[:, :5]
    if "rows" in exact:
        S[::7] = 0
    if "features" in exact:
        S[:, [2]] = 0
    common = exact == "features for all rows alike"
    noise, metadata = (GaussianNoise(std=S[1]), {}) if common else (1.0, {"X_std": S})
    model = GaussianRobustClassifier(noise, loss=loss, alpha=alpha).fit(X, y, **metadata)
    assert model.gap_ <= 1e-6


def test_many_rows_are_certified_from_a_sample_on(rng):
    X = rng.normal(size=(12_000, 15))
    y = np.argmax(X[:, :4] + rng.normal(size=(12_000, 4)), axis=1)
    model = GaussianRobustClassifier(0.3, loss="hinge").fit(X, y)
    assert model.solution_["solver"] == "quasi_newton"
    assert model.gap_ <= 1e-6


@every_loss
def test_warm_start_ends_at_the_same_optimum_in_fewer_steps(loss, wine):
    X, y = wine
    model = GaussianRobustClassifier(0.50, loss=loss, warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.set_params(noise=0.51).fit(X, y)
    assert model.n_iter_ < cold
    fresh = GaussianRobustClassifier(0.51, loss=loss).fit(X, y)
    assert_allclose(model.objective_, fresh.objective_, rtol=1e-9)
    assert_allclose(model.coef_, fresh.coef_, atol=1e-5)


def test_warm_start_after_a_change_of_classes_starts_afresh(wine):
    X, y = wine
    model = GaussianRobustClassifier(0.5, loss="hinge", warm_start=True).fit(X, y)
    model.fit(X[y < 2], y[y < 2])
    assert model.coef_.shape == (1, 13)
    assert model.proof_weights_.shape == (1, np.sum(y < 2))
    model.set_params(loss="logistic").fit(X, y)
    assert model.gap_ <= 1e-6
    assert not hasattr(model, "proof_weights_")


# Prediction


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_flip_probability_bounds_the_share_of_noisy_predictions_that_differ(loss, wine, rng):
    X, y = wine
    model = GaussianRobustClassifier(1.5, loss=loss, class_weight="balanced").fit(X, y)
    rows = X[::10]
    S = rng.uniform(0.5, 2.5, size=rows.shape)
    noisy = rows + S * rng.normal(size=(20_000, *rows.shape))
    flips = (model.predict(noisy.reshape(-1, 13)).reshape(-1, len(rows)) != model.predict(rows)).mean(axis=0)
    bound = model.flip_probability(rows, X_std=S)
    assert np.all(flips <= bound + 4 * np.sqrt(bound / 20_000) + 1e-4)
    assert np.all(bound <= np.minimum(2 * flips + 4 * np.sqrt(bound / 20_000) + 1e-4, 1))  # two rivals: at most twice
    assert np.any(flips > 0.2)


def test_flip_probability_of_two_classes_is_that_of_their_pair(wine, wine_errors):
    """Two of three classes, asked as three with a hopeless third one, flip as the two do."""
    X, y = wine
    two = GaussianRobustClassifier(0.5, loss="hinge").fit(X[y < 2], y[y < 2])
    three = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    three.coef_ = np.concatenate([-two.coef_ / 2, two.coef_ / 2, np.zeros((1, 13))])
    three.intercept_ = np.append(np.array([-0.5, 0.5]) * two.intercept_[0], -1e6)
    assert_allclose(
        three.flip_probability(X, X_std=wine_errors), two.flip_probability(X, X_std=wine_errors), rtol=1e-9, atol=1e-300
    )


def test_score_deviation_is_that_of_the_lead_over_each_class(wine, wine_errors, rng):
    X, y = wine
    model = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    t = model.score_std(X, X_std=wine_errors)
    assert t.shape == (178, 3)
    winner = np.argmax(model.decision_function(X), axis=1)
    leads = model.coef_[winner][:, None] - model.coef_
    assert_allclose(t, np.sqrt(np.einsum("nkj,nj->nk", leads**2, wine_errors**2)), rtol=1e-12)
    assert_array_equal(t[np.arange(178), winner], 0)
    common = model.score_std(X)
    assert_allclose(common, 0.5 * np.linalg.norm(leads, axis=2), rtol=1e-12)
    assert GaussianRobustClassifier(0.5, loss="hinge").fit(X[y < 2], y[y < 2]).score_std(X).shape == (178,)
    assert_array_equal(model.flip_probability(X, X_std=np.zeros_like(X)), 0)


@pytest.mark.parametrize("multiclass", ["joint", "ovr"])
def test_the_likeliest_class_is_predicted(multiclass, wine, wine_errors):
    X, y = wine
    model = GaussianRobustClassifier(0.5, multiclass=multiclass).fit(X, y)
    for metadata in ({}, {"X_std": wine_errors}):
        probabilities = model.predict_proba(X, **metadata)
        assert probabilities.shape == (178, 3)
        assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-14)
        assert np.all(probabilities > 0)
        assert_array_equal(np.argmax(probabilities, axis=1), model.predict(X))
        assert_allclose(np.exp(model.predict_log_proba(X, **metadata)), probabilities)
    # more noise, less certainty
    assert np.all(model.predict_proba(X, X_std=9 * wine_errors).max(axis=1) < model.predict_proba(X).max(axis=1))


def test_rows_far_from_every_class_have_probabilities_that_sum_to_one(wine):
    X, y = wine
    model = GaussianRobustClassifier(0.1, multiclass="ovr").fit(X, y)
    model.intercept_ = np.full(3, -1e6)
    assert_array_equal(model.predict_proba(X), np.full((178, 3), 1 / 3))


# Bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": 0.0}, r"noise=0.0, loss='hinge'\): without noise .* State it for all rows"),
        ({"solver": "clarabel", "loss": "two_point"}, "Solvers that fit: 'newton', 'quasi_newton'"),
        ({"class_weight": {0: 1.0, 5: 2.0}}, r"no such class in y: \['5'\]. Classes: \[0, 1, 2\]"),
        ({"class_weight": {0: 0.0}}, "positive numbers"),
        ({"alpha": -1.0}, r"alpha=-1.0\)"),
    ],
)
def test_bad_parameters_are_named(parameters, message, wine):
    with pytest.raises(ValueError, match=message):
        GaussianRobustClassifier(**({"noise": 0.5, "loss": "hinge"} | parameters)).fit(*wine)


def test_class_without_weight_is_named(wine):
    X, y = wine
    with pytest.raises(ValueError, match=r"zero for every row of class .*2"):
        GaussianRobustClassifier(0.5, loss="hinge").fit(X, y, sample_weight=(y != 2).astype(float))


def test_critical_noise_of_several_classes_says_what_to_do(wine):
    with pytest.raises(ValueError, match=r"3 classes\. .*collapsed_pairs_"):
        critical_noise(*wine)


def test_rows_fitted_with_their_own_noise_ask_for_it(wine, wine_errors):
    X, y = wine
    model = GaussianRobustClassifier(loss="hinge").fit(X, y, X_std=wine_errors)
    for method in (model.flip_probability, model.score_std):
        with pytest.raises(ValueError, match="Pass X_std"):
            method(X)


def test_stopping_early_is_said_and_not_called_solved(wine):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = GaussianRobustClassifier(0.5, loss="hinge", max_iter=1).fit(*wine)
    assert model.gap_ > 1e-6
    assert model.solution_["status"] == "iteration_limit"
    assert len(model.collapsed_pairs_) == 0


def test_logistic_loss_without_a_ridge_has_no_bound(wine):
    with pytest.warns(ConvergenceWarning, match="No lower bound is known"):
        model = GaussianRobustClassifier(0.5, alpha=0.0).fit(*wine)
    assert model.gap_ == np.inf
    assert model.lower_bound_ == -np.inf


def test_equal_classes_do_not_collapse_unless_their_means_coincide():
    """Two classes with the same rows collapse into one; the third keeps apart from both."""
    X = np.array([[1.0, 0], [-1, 0], [1, 0], [-1, 0], [0, 3], [0, 5]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = GaussianRobustClassifier(0.5, loss="hinge").fit(X, [0, 0, 1, 1, 2, 2])
    assert model.gap_ <= 1e-6
    assert_allclose(model.coef_[0], model.coef_[1], atol=1e-6)
    assert np.linalg.norm(model.coef_[0] - model.coef_[2]) > 0.1
    assert all(issubclass(warning.category, CollapseWarning) for warning in caught)


@pytest.mark.parametrize("solver", ["newton", "quasi_newton", "newton_cg"])
@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_reported_objective_is_that_of_the_coefficients(solver, tol):
    """No shift that is common to all classes may cost digits: evaluated here from coef_ as the paper writes it."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = GaussianRobustClassifier(1.0, loss="hinge", solver=solver, tol=tol).fit(X, y)
    scores = X @ model.coef_.T + model.intercept_
    total = 0.0
    for k in range(3):
        own = scores[y == k]
        for other in {0, 1, 2} - {k}:
            u = 1 - own[:, k] + own[:, other]
            t = np.linalg.norm(model.coef_[k] - model.coef_[other])
            total += np.sum(u * norm.cdf(u / t) + t * norm.pdf(u / t))
    assert_allclose(model.objective_, total, rtol=1e-10)


def test_classes_measured_exactly_are_not_taken_for_equal():
    X = np.array([[-2.4], [-1.4], [0.7], [-2.4], [-1.8], [0.4], [-1.2], [-0.3], [-0.6]])
    y = np.arange(9) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianRobustClassifier(loss="hinge").fit(X, y, X_std=np.where(y == 2, 0.1, 0.0)[:, None])
    assert model.objective_ < 6
    assert len(model.collapsed_pairs_) == 0


def test_classes_that_are_all_alike_have_coefficients_of_exactly_0():
    model = GaussianRobustClassifier()
    model._set_coefficients(np.full((3, 2), 0.1), np.full(3, 0.1), joint=True)  # the mean of three 0.1 is not 0.1
    assert not np.any(model.coef_)
    assert not np.any(model.intercept_)
