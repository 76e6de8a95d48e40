"""SafeClassifier: what it learns, what it refuses to learn, and that the rest is a robust linear classifier."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Box,
    Ellipsoid,
    RobustFourierFeatures,
    RobustLinearClassifier,
    RobustNystroem,
    SafeClassifier,
    make_uncertain_pipeline,
)
from holdfast._training import lengths
from holdfast.estimators.validation import Validation
from holdfast.exceptions import NothingLearnedWarning, UnitsWarning

NOISY = np.array([0, 0, 1.5, 1.5])


def drawn(seed, n, noise=0.0, wrong=0.0):
    """Return rows of four features, as many good ones as noisy ones, of two classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.where(X.sum(axis=1) > 0, 1, 0)
    y = np.where(rng.uniform(size=n) < wrong, 1 - y, y)
    return X + noise * NOISY * rng.normal(size=X.shape), y


def validated(noise=1.0, n=300, seed=1, wrong=0.0):
    X_val, y_val = drawn(seed, n, noise, wrong)
    return {"X_val": X_val, "y_val": y_val}


X, Y = drawn(0, 150)
QUICK = {"n_starts": 1, "alpha": 0.5}


@pytest.fixture
def rough(monkeypatch):
    """Let learning take a few steps only, where it does not matter what is learned."""
    monkeypatch.setattr(lengths, "ROUNDINGS", (0.2,))
    monkeypatch.setattr(lengths, "MOST_STEPS", 4)


roughly = pytest.mark.usefixtures("rough")


def hinge(model, rows, y):
    return np.maximum(1 - np.where(y == model.classes_[1], 1, -1) * model.decision_function(rows), 0)


@pytest.fixture(scope="module")
def learned():
    return SafeClassifier(alpha=0.5).fit(X, Y, **validated())


def test_noisy_features_are_told_from_clean_ones_where_validation_is_noisier(learned):
    assert learned.is_learned_
    assert learned.gain_ > 2 * learned.gain_error_ > 0
    assert learned.lengths_[2:].min() > 2 * learned.lengths_[:2].max()
    assert [line[0] for line in learned.distrust()._lines()[:2]] in (["x2", "x3"], ["x3", "x2"])
    least = SafeClassifier(sigma_max=0.01 * X.std(axis=0), sigma_min=0.01 * X.std(axis=0), alpha=0.5).fit(X, Y)
    fresh, y = drawn(7, 2000, 1.0)
    falls = hinge(least, fresh, y) - hinge(learned, fresh, y)
    assert falls.mean() > 4 * falls.std() / np.sqrt(len(falls))
    assert_allclose(falls.mean(), learned.gain_, rtol=0.5)


@pytest.mark.thin(3)
@pytest.mark.parametrize("seed", range(3))
def test_noisy_features_are_told_from_clean_ones_by_noisy_copies(seed):
    rows, y = drawn(seed, 150)
    model = SafeClassifier(**QUICK).fit(rows, y, X_std=np.tile(NOISY, (150, 1)))
    assert model.is_learned_
    assert model.lengths_[2:].min() > 2 * model.lengths_[:2].max()


@pytest.mark.thin(5)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_where_validation_is_as_noisy_as_training_the_lengths_are_the_least(seed, noise):
    rows, y = drawn(seed, 400, noise, wrong=0.1)
    with pytest.warns(NothingLearnedWarning, match="lower the validation loss by .*standard error"):
        model = SafeClassifier(alpha=3.0, n_starts=1).fit(rows, y, **validated(noise, 400, seed + 100, wrong=0.1))
    assert not model.is_learned_
    assert_allclose(model.lengths_, 0.01 * rows.std(axis=0))
    assert not model.gain_ > 2 * model.gain_error_ + 1e-6


def test_without_anything_to_learn_from_it_says_so_and_is_the_robust_classifier_of_the_least_lengths():
    for metadata in ({}, {"X_std": np.zeros_like(X)}):
        with pytest.warns(NothingLearnedWarning, match="pass X_val and y_val, or X_std"):
            model = SafeClassifier(0.2, 1.0).fit(X, Y, **metadata)
        assert_allclose(model.lengths_, 0.2)
        assert np.isnan(model.gain_)
        assert "nothing to learn from" in str(model.distrust())
        assert_allclose(model.coef_, RobustLinearClassifier(Ellipsoid(0.2)).fit(X, Y).coef_, atol=1e-4)
    with pytest.warns(NothingLearnedWarning):
        assert not SafeClassifier(deploy_noise=0).fit(X, Y, X_std=np.ones_like(X)).is_learned_


def test_lengths_that_leave_no_choice_are_taken_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SafeClassifier([0.1, 0, 0.2, 0], [0.1, 0, 0.2, 0]).fit(X, Y)
    assert_array_equal(model.lengths_, [0.1, 0, 0.2, 0])


@roughly
def test_the_final_fit_is_that_of_the_robust_classifier_and_certified(learned):
    for options in ({}, {"fit_intercept": False}, {"class_weight": {0: 1.0, 1: 3.0}}):
        model = SafeClassifier(alpha=0.5, n_starts=1, **options).fit(X, Y, **validated())
        other = RobustLinearClassifier(Ellipsoid(shape=model.learned_shape_), alpha=0.5, **options).fit(X, Y)
        assert model.gap_ <= 1e-6
        assert_allclose(model.objective_, other.objective_, rtol=1e-6)
        assert_allclose(model.coef_, other.coef_, atol=1e-3 * np.abs(other.coef_).max())
        assert_allclose(model.learned_shape_, model.lengths_**2)
    signs = 2.0 * Y - 1
    pushed = np.maximum(1 - signs * learned.decision_function(X) + np.linalg.norm(learned.lengths_ * learned.coef_), 0)
    assert_allclose(learned.objective_, pushed.sum() + 0.25 * (learned.coef_**2).sum(), rtol=1e-9)


def test_certificates_ask_about_the_learned_ellipsoid_unless_told_otherwise(learned):
    expected = learned.certified_margin(X, Ellipsoid(shape=learned.learned_shape_))
    assert_array_equal(learned.certified_margin(X), expected)
    reach = np.linalg.norm(learned.lengths_ * learned.coef_)
    assert_allclose(expected, np.abs(learned.decision_function(X)) - reach, atol=1e-9)
    assert learned.certify(X, Box(0.01)).mean() > learned.certify(X).mean()


@roughly
def test_the_gain_is_the_paired_mean_over_halves_that_did_not_choose():
    given = validated(n=60)
    model = SafeClassifier(**QUICK).fit(X, Y, **given)
    order = np.argsort(given["y_val"], kind="stable")
    first = np.zeros(60, dtype=bool)
    first[order[::2]] = True
    falls = np.empty(60)
    least = RobustLinearClassifier(Ellipsoid(shape=(0.01 * X.std(axis=0)) ** 2), alpha=0.5).fit(X, Y)
    for half in (first, ~first):
        # the lengths of a half are those that the whole search proposes for these rows alone
        search = SafeClassifier(**QUICK)
        found = _lengths_of(search, half, given)
        other = RobustLinearClassifier(Ellipsoid(shape=found), alpha=0.5).fit(X, Y)
        rows, labels = given["X_val"][~half], given["y_val"][~half]
        falls[~half] = hinge(least, rows, labels) - hinge(other, rows, labels)
    assert_allclose(model.gain_, falls.mean(), rtol=1e-3)
    assert_allclose(model.gain_error_, falls.std(ddof=1) / np.sqrt(60), rtol=1e-3)


def _lengths_of(model, half, given):
    """Return squares of lengths that are learned from some validation rows."""
    from holdfast._data import rows_of
    from holdfast._problems.margin_scale import MarginScaleProblem
    from holdfast._training.lengths import ValidatedLengths
    from holdfast.losses import Hinge
    from holdfast.uncertainty.ellipsoids import CommonEllipsoid

    none, rows, labels = CommonEllipsoid(np.zeros(())), given["X_val"][half], given["y_val"][half]
    problem = ValidatedLengths(
        [MarginScaleProblem(rows_of(X), 2.0 * Y - 1, np.ones(len(Y)), Hinge(), none, model.alpha)],
        [MarginScaleProblem(rows_of(rows), 2.0 * labels - 1, np.full(len(rows), 1 / 60), Hinge(), none)],
    )
    low, high = (0.01 * X.std(axis=0)) ** 2, X.var(axis=0)
    more = np.zeros(4)
    for k in (0, 1):
        middle = X[k == Y].mean(axis=0)
        share = np.mean(given["y_val"] == k)
        spread = np.mean((given["X_val"][given["y_val"] == k] - middle) ** 2, axis=0)
        more += share * (spread - X[k == Y].var(axis=0))
    return problem.minimised([np.clip(more, low, high)], low, high)


def test_copies_of_a_row_do_not_count_as_independent():
    rng = np.random.default_rng(0)
    values, weights, codes = rng.normal(size=30), rng.uniform(0.5, 2.0, 30), np.arange(30) % 2
    once = Validation(np.zeros((30, 1)), codes, weights, 30).mean(values)
    four = Validation(np.zeros((120, 1)), np.tile(codes, 4), np.tile(weights, 4), 30)
    assert_allclose(four.mean(np.tile(values, 4)), once)
    alike = Validation(np.zeros((30, 1)), codes, np.ones(30), 30).mean(values)
    assert_allclose(alike, (values.mean(), values.std(ddof=1) / np.sqrt(30)))
    for half in four.halves():
        assert_array_equal(half.reshape(4, 30), np.tile(half[:30], (4, 1)))
        assert sum(codes[half[:30]]) in (7, 8)


def test_permuting_features_permutes_lengths(learned):
    order = [2, 0, 3, 1]
    given = validated()
    model = SafeClassifier(alpha=0.5).fit(X[:, order], Y, X_val=given["X_val"][:, order], y_val=given["y_val"])
    assert_allclose(model.lengths_, learned.lengths_[order], rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_other_units_give_the_same_lengths_in_these_units(learned):
    given, c = validated(), 1000.0
    model = SafeClassifier(alpha=0.5 * c**2).fit(
        c * X + 5 * c, Y, X_val=c * given["X_val"] + 5 * c, y_val=given["y_val"]
    )
    assert_allclose(model.lengths_, c * learned.lengths_, rtol=1e-2, atol=1e-3 * c)
    assert_allclose(model.gain_, learned.gain_, rtol=1e-2)


@roughly
@pytest.mark.slow
def test_weights_are_counts_and_rows_of_weight_zero_change_nothing():
    given = validated()
    twice = SafeClassifier(**QUICK).fit(np.concatenate([X, X]), np.concatenate([Y, Y]), **given)
    weighed = SafeClassifier(**QUICK).fit(X, Y, sample_weight=np.full(150, 2.0), **given)
    assert_allclose(weighed.lengths_, twice.lengths_, rtol=1e-3)
    more = np.concatenate([X, 50 + X[:9]]), np.concatenate([Y, 1 - Y[:9]])
    S = np.tile(NOISY, (159, 1))
    ignored = SafeClassifier(**QUICK).fit(*more, sample_weight=np.repeat([1.0, 0.0], [150, 9]), X_std=S)
    assert_allclose(ignored.lengths_, SafeClassifier(**QUICK).fit(X, Y, X_std=S[:150]).lengths_, rtol=1e-6)


@roughly
def test_lengths_stay_within_stated_bounds():
    low, high = np.array([0.1, 0.05, 0.1, 0.2]), np.array([0.1, 0.3, 0.5, 4.0])
    model = SafeClassifier(low, high, **QUICK).fit(X, Y, **validated())
    assert np.all((model.lengths_ >= low - 1e-12) & (model.lengths_ <= high + 1e-12))
    assert model.lengths_[0] == pytest.approx(0.1)
    assert model.lengths_[2] == pytest.approx(0.5)


@pytest.mark.slow
def test_the_stochastic_gradient_learns_too_and_is_reproducible():
    models = [
        SafeClassifier(method="stochastic", alpha=0.5, random_state=s).fit(X, Y, **validated()) for s in (0, 0, 1)
    ]
    assert_array_equal(models[0].lengths_, models[1].lengths_)
    assert not np.array_equal(models[0].lengths_, models[2].lengths_)
    for model in models:
        assert model.is_learned_
        assert model.gain_ > 2 * model.gain_error_
        assert model.lengths_[2:].min() > 2 * model.lengths_[:2].max()
        assert model.gap_ <= 1e-6
    rows, y = drawn(3, 300, wrong=0.1)
    with pytest.warns(NothingLearnedWarning):
        model = SafeClassifier(method="stochastic", alpha=3.0).fit(rows, y, **validated(0.0, wrong=0.1))
    assert_allclose(model.lengths_, 0.01 * rows.std(axis=0))


@roughly
@pytest.mark.slow
def test_several_classes_share_their_lengths():
    rows, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    noise = np.array([0.0, 0.0, 1.5, 0.0])
    model = SafeClassifier(**QUICK).fit(rows, y, X_val=rows + noise * rng.normal(size=rows.shape), y_val=y)
    assert model.coef_.shape == (3, 4)
    assert model.is_learned_
    assert model.distrust().names[0] == "x2"
    other = RobustLinearClassifier(Ellipsoid(shape=model.learned_shape_), alpha=0.5).fit(rows, y)
    assert_allclose(model.objective_, other.objective_, rtol=1e-5)
    assert_array_equal(model.predict(rows), other.predict(rows))


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "features", [RobustFourierFeatures(30, gamma=0.3, random_state=0), RobustNystroem(20, gamma=0.3)]
)
def test_in_feature_space_lengths_are_of_the_inputs_and_trained_for_by_the_slopes_of_the_features(features):
    model = SafeClassifier(features=features, n_starts=1, alpha=0.3).fit(X, Y, **validated())
    assert model.is_learned_
    assert model.lengths_[2:].min() > 2 * model.lengths_[:2].max()
    assert model.gap_ <= 1e-6
    phi, step = model.feature_map_.transform, 1e-5
    w, Phi = model.coef_[0], phi(X)
    slopes = np.column_stack([(phi(X + step * e) - phi(X - step * e)) @ w / (2 * step) for e in np.eye(4)])
    hinges = np.maximum(
        1 - (2.0 * Y - 1) * (Phi @ w + model.intercept_) + np.linalg.norm(slopes * model.lengths_, axis=1), 0
    )
    assert_allclose(model.objective_, hinges.sum() + 0.15 * w @ w, rtol=1e-6)
    assert_allclose(model.decision_function(X), Phi @ w + model.intercept_)
    rng = np.random.default_rng(0)
    sure = model.certify(X, Box(0.01))
    assert sure.any()
    for _ in range(20):
        assert_array_equal(model.predict(X + 0.01 * rng.uniform(-1, 1, X.shape))[sure], model.predict(X)[sure])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sigma_min": 0.0, "sigma_max": 1.0}, "no slope"),
        ({"sigma_min": 2.0, "sigma_max": 1.0}, "feature 0 has the least length 2 and the largest 1"),
        ({"sigma_min": -1.0}, "sigma_min=-1.0"),
        ({"sigma_max": [1.0, 2.0]}, "one for each of 4 features"),
        ({"sigma_max": "wide"}, "sigma_max='wide'"),
        ({"sigma_max": [1, 2, np.nan, 3]}, "one for each of 4"),
        ({"method": "exact"}, "method='exact'"),
        ({"features": "fourier"}, "features='fourier'"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"n_copies": 0}, "n_copies=0"),
        ({"deploy_noise": -1}, "deploy_noise=-1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        SafeClassifier(**options).fit(X, Y, **validated())


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"X_val": X}, "Pass y_val too"),
        ({"y_val": Y}, "Pass X_val too"),
        ({"X_val": X, "y_val": Y, "X_std": np.ones_like(X)}, "State one"),
        ({"X_val": X, "y_val": Y + 1}, r"y_val holds \[2\]"),
        ({"X_val": X[:, :3], "y_val": Y}, "3 features"),
        ({"X_val": X[:3], "y_val": Y[:3]}, "3 validation rows"),
        ({"X_val": np.where(X > 2, np.nan, X), "y_val": Y}, "NaN"),
        ({"X_val": X, "y_val": Y[:-1]}, "inconsistent"),
        ({"X_std": np.ones((150, 3))}, "X_std has shape"),
        ({"X_std": -np.ones_like(X)}, "X_std"),
    ],
)
def test_validation_rows_that_make_no_sense_are_refused(metadata, match):
    with pytest.raises(ValueError, match=match):
        SafeClassifier().fit(X, Y, **metadata)


@roughly
@pytest.mark.filterwarnings("ignore:nothing was learned", "ignore:w = 0", "ignore:.*nothing was learned")
def test_validation_rows_in_other_units_are_noticed():
    given = validated()
    with pytest.warns(UnitsWarning, match="transform_input"):
        SafeClassifier(**QUICK).fit(X, Y, X_val=given["X_val"] + 30, y_val=given["y_val"])


@roughly
def test_frames_are_matched_by_name():
    frame, given = pd.DataFrame(X, columns=list("abcd")), validated()
    val = pd.DataFrame(given["X_val"], columns=list("abcd"))
    model = SafeClassifier(pd.Series(0.05, index=list("abcd")), **QUICK).fit(frame, Y, X_val=val, y_val=given["y_val"])
    assert set(model.distrust().names[:2]) == {"c", "d"}
    with pytest.raises(ValueError, match="feature names"):
        SafeClassifier().fit(frame, Y, X_val=val[list("bacd")], y_val=given["y_val"])
    with pytest.raises(ValueError, match="sigma_min has the labels"):
        SafeClassifier(pd.Series(0.05, index=list("dcba"))).fit(frame, Y)


@roughly
def test_an_uncertain_pipeline_scales_errors_of_rows():
    units, S, scale = np.array([1.0, 100.0, 1.0, 0.01]), np.tile(NOISY, (150, 1)), X.std(axis=0)
    pipe = make_uncertain_pipeline(StandardScaler(), SafeClassifier(**QUICK)).fit(X * units, Y, X_std=S * units)
    plain = SafeClassifier(**QUICK).fit((X - X.mean(axis=0)) / scale, Y, X_std=S / scale)
    assert_allclose(pipe[-1].lengths_, plain.lengths_, rtol=1e-3)


@roughly
@pytest.mark.slow
def test_a_pipeline_scales_validation_rows_and_cross_validation_hands_them_on():
    units, given, safe = np.array([1.0, 100.0, 1.0, 0.01]), validated(), SafeClassifier(**QUICK)
    with sklearn.config_context(enable_metadata_routing=True):
        safe.set_fit_request(X_val=True, y_val=True)
        pipe = make_pipeline(StandardScaler(), safe, transform_input=["X_val"])
        pipe.fit(X * units, Y, X_val=given["X_val"] * units, y_val=given["y_val"])
        assert cross_val_score(pipe, X, Y, cv=2, params=given).min() > 0.6
    away, scale = X.mean(axis=0), X.std(axis=0)
    scaled = given | {"X_val": (given["X_val"] - away) / scale}
    other = SafeClassifier(**QUICK).fit((X - away) / scale, Y, **scaled)
    assert_allclose(pipe[-1].lengths_, other.lengths_, rtol=1e-3)


@roughly
def test_it_tells_of_its_progress(caplog):
    with caplog.at_level("INFO", "holdfast"):
        SafeClassifier(verbose=1, **QUICK).fit(X, Y, **validated())
    assert "to be tested on the others" in caplog.text
    assert "standard error" in caplog.text


def test_of_many_features_the_most_distrusted_are_shown():
    rng = np.random.default_rng(0)
    sizes = np.linspace(0.01, 0.2, 20)
    text = str(SafeClassifier(sizes, sizes).fit(rng.normal(size=(40, 20)), np.arange(40) % 2).distrust())
    assert "12 features more" in text
    assert "x19" in text
    assert "x0 " not in text
