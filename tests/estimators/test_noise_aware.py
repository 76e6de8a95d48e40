"""NoiseAwareClassifier: its objective by hand, what is proved of it, what noise does to its answers, and how it is called."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_validate
from sklearn.utils import check_random_state

from holdfast import ExpectedFeatures, GaussianRobustClassifier, NoiseAwareClassifier, NoiseAwareClassifierCV
from holdfast.datasets import load_breast_cancer_errors
from holdfast.exceptions import UnitsWarning
from holdfast.features.row_noise import RowNoise

SMALL = {"n_knots": 4, "n_components": 20}
WARNED = "fitted with the noise of each row and is given none here"
both_methods = pytest.mark.parametrize("method", ["consistent", "moments"])


def moons(n, seed, factor=1.0):
    """Two moons, measured well or badly: rows, labels, deviations."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(n, noise=0.1, random_state=seed)
    S = factor * np.where(rng.uniform(size=(n, 1)) < 0.5, 0.05, 0.6) * rng.uniform(0.5, 1.5, size=X.shape)
    return X + S * rng.normal(size=X.shape), y, S


def blobs(n, seed, n_classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = 2.5 * rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(n, 3))
    return X, y, rng.uniform(0.1, 1, size=X.shape)


@pytest.fixture(scope="module")
def told():
    return moons(90, 1)


@pytest.fixture(scope="module")
def three():
    return blobs(75, 2)


# The objective


def seed_of(model):
    return int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))


def posterior(prior, X, noise):
    """Return rows given their noisy values and what rows are like, by full matrices, and what stays unknown of them."""
    Sigma = prior.scale[:, None] * (prior.loadings @ prior.loadings.T + np.diag(prior.unique)) * prior.scale
    means, left = np.empty_like(X), np.empty((*X.shape, X.shape[1]))
    for i, causes in enumerate(noise.causes):
        gain = Sigma @ np.linalg.inv(Sigma + causes @ causes.T)
        means[i] = prior.mean + gain @ (X[i] - prior.mean)
        left[i] = Sigma - gain @ Sigma
        left[i] = 0.5 * (left[i] + left[i].T)
    if noise.factor.shape[2]:
        return means, {"X_cov": left}
    return means, {"X_std": np.sqrt(np.maximum(np.diagonal(left, axis1=1, axis2=2), 0))}


def rebuilt(model, X, noise, weights):
    """Return the training rows of the docstring, one lot after the other: features and weights."""
    features = ExpectedFeatures(
        model.features,
        n_knots=model.n_knots,
        n_components=model.n_components,
        gamma=model.gamma,
        random_state=seed_of(model),
    ).fit(X, sample_weight=weights)
    rng, lots, shares = np.random.default_rng(seed_of(model)), [], []
    for level in model.levels:
        n_copies = 1 if level == 0 else model.n_copies
        for _ in range(n_copies):
            shares.append(weights / len(model.levels) / n_copies)
            if level == 0:
                lots.append(features.transform(X))
                continue
            own = level * noise.std * rng.standard_normal(noise.std.shape)
            common = rng.standard_normal((len(X), noise.factor.shape[2]))
            drawn = X + own + level * np.einsum("ndr,nr->nd", noise.factor, common)
            if model.prior_ is None:
                lots.append(features.transform(drawn, X_factor=level * noise.causes))
            else:
                means, unknown = posterior(model.prior_, drawn, noise.times(level))
                lots.append(features.transform(means, **unknown))
    return np.concatenate(lots), np.concatenate(shares), len(lots)


def objective_of(model, Z, codes, weights, W=None, b=None):
    """Return the sum of the docstring."""
    W, b = (model.model_.coef_, model.model_.intercept_) if W is None else (W, b)
    scores = Z @ W.T + b
    if len(W) == 1:
        losses = np.logaddexp(0, -np.where(codes == 1, 1, -1) * scores[:, 0])
        return weights @ losses + 0.5 * model.alpha * np.sum(W**2)
    losses = logsumexp(scores, axis=1) - np.take_along_axis(scores, codes[:, None], axis=1)[:, 0]
    return weights @ losses + model.alpha * np.sum(W**2)


@pytest.mark.parametrize("prior", ["gaussian", None])
@pytest.mark.parametrize("kind", ["X_std", "X_factor"])
@pytest.mark.parametrize("data", ["told", "three"])
def test_the_objective_is_the_sum_of_the_docstring_and_proved(request, data, kind, prior):
    X, y, S = request.getfixturevalue(data)
    rng = np.random.default_rng(5)
    noise = RowNoise(S) if kind == "X_std" else RowNoise(0 * S, 0.5 * rng.normal(size=(*S.shape, 2)))
    weights = rng.uniform(0.5, 2, size=len(X))
    model = NoiseAwareClassifier(levels=(0, 1, 3), alpha=0.3, prior=prior, **SMALL)
    model.fit(X, y, weights, **noise.metadata)
    Z, shares, n_lots = rebuilt(model, X, noise, weights)
    assert n_lots == 5
    assert shares.sum() == pytest.approx(weights.sum())
    codes = np.tile(np.searchsorted(model.classes_, y), n_lots)
    assert model.objective_ == pytest.approx(objective_of(model, Z, codes, shares), rel=1e-7)
    # nobody gets below the bound, and the bound is near
    C = 1 / model.alpha if len(model.classes_) == 2 else 0.5 / model.alpha
    other = LogisticRegression(C=C, tol=1e-9, max_iter=5000).fit(Z, codes, shares)
    best = objective_of(model, Z, codes, shares, other.coef_, other.intercept_)
    assert model.lower_bound_ <= best * (1 + 1e-12)
    assert model.objective_ - best <= 1.1e-4 * best
    assert model.gap_ == pytest.approx((model.objective_ - model.lower_bound_) / model.objective_)
    assert 0 <= model.gap_ <= model.tol


@pytest.mark.parametrize("data", ["told", "three"])
def test_moments_average_the_loss_over_what_is_left_of_the_noise(request, data):
    X, y, S = request.getfixturevalue(data)
    model = NoiseAwareClassifier(method="moments", levels=(0, 1, 2), alpha=0.3, n_knots=4).fit(X, y, X_std=S)
    effect = ExpectedFeatures("splines", n_knots=4).fit(X).uncertainty_effect(X.shape[1])
    nodes, heights = np.polynomial.hermite_e.hermegauss(80)
    heights = heights / heights.sum()
    W, b, total = model.model_.coef_, model.model_.intercept_, 0.0
    for level in (0, 1, 2):
        # rows are blurred once when they are measured, and once by what a row with this noise is averaged over
        means, left = effect.averages(X, RowNoise(level * S), RowNoise(level * S))
        F = np.asarray(left.parts)
        for k, w in enumerate(W):
            signs = np.where(y == (1 if len(W) == 1 else k), 1, -1)
            t = np.linalg.norm(np.einsum("nij,i->nj", F, w), axis=1)
            scores = (means @ w + b[k])[:, None] + t[:, None] * nodes
            total += np.sum(np.logaddexp(0, -signs[:, None] * scores) @ heights) / 3
    total += 0.5 * 0.3 * np.sum(W**2)
    assert np.sum(model.objective_) == pytest.approx(total, rel=1e-5)
    assert np.all(model.gap_ <= model.tol)
    assert model.prior_ is None


def test_without_noise_it_is_a_plain_fit(told):
    X, y, _ = told
    model = NoiseAwareClassifier(alpha=0.5, **SMALL).fit(X, y)
    Z = ExpectedFeatures(random_state=seed_of(model), **SMALL).fit_transform(X)
    plain = LogisticRegression(C=2.0, tol=1e-9, max_iter=5000).fit(Z, y)
    assert_allclose(model.decision_function(X), plain.decision_function(Z), atol=2e-2)
    assert not model.row_noise_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    moments = NoiseAwareClassifier(method="moments", alpha=0.5, n_knots=4).fit(X, y)
    Z = ExpectedFeatures("splines", n_knots=4).fit_transform(X)
    wanted = GaussianRobustClassifier(alpha=0.5).fit(Z, y)
    assert_allclose(moments.decision_function(X), wanted.decision_function(Z), atol=1e-5)


@both_methods
def test_a_fit_that_is_not_certified_says_so(told, method):
    X, y, S = told
    model = NoiseAwareClassifier(method=method, max_iter=1, tol=1e-9, alpha=1e-4, **SMALL)
    with pytest.warns(
        sklearn.exceptions.ConvergenceWarning, match=r"NoiseAwareClassifier\.fit: certified gap"
    ) as caught:
        model.fit(X, y, X_std=S)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.gap_ > 1e-9


# What noise does to the answers


@both_methods
@pytest.mark.parametrize("data", ["told", "three"])
def test_the_noisier_rows_are_the_less_sure_are_probabilities(request, data, method):
    X, y, S = request.getfixturevalue(data)
    model = NoiseAwareClassifier(method=method, **SMALL).fit(X, y, X_std=S)
    sure = [model.predict_proba(X, X_std=level * S).max(axis=1).mean() for level in (0, 1, 2, 4, 16)]
    assert np.all(np.diff(sure) < 0)
    assert_allclose(model.predict_proba(X, X_std=S).sum(axis=1), 1)
    found = model.predict_proba(X, X_std=S)
    assert_allclose(np.exp(model.predict_log_proba(X, X_std=S)), found)
    assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X, X_std=S))


def test_being_told_of_the_noise_helps():
    X, y, S = moons(400, 3)
    others = [moons(400, seed) for seed in (4, 5)]
    model = NoiseAwareClassifier(n_components=60).fit(X, y, X_std=S)
    linear = GaussianRobustClassifier().fit(X, y, X_std=S)
    told = np.mean([model.score(Xt, yt, X_std=St) for Xt, yt, St in others])
    with pytest.warns(UserWarning, match=WARNED):
        untold = np.mean([model.score(Xt, yt) for Xt, yt, _ in others])
    assert told > untold + 0.01
    assert told > np.mean([linear.score(Xt, yt) for Xt, yt, _ in others]) + 0.01
    losses = [log_loss(yt, model.predict_proba(Xt, X_std=size * St)) for Xt, yt, St in others for size in (1, 0)]
    assert losses[0] < losses[1] - 0.05
    assert losses[2] < losses[3] - 0.05


@both_methods
def test_exact_rows_among_noisy_ones_are_answered_as_exact(told, method):
    X, y, S = told
    model = NoiseAwareClassifier(method=method, **SMALL).fit(X, y, X_std=S)
    with pytest.warns(UserWarning, match=WARNED):
        plain = model.decision_function(X)
    assert_allclose(model.decision_function(X, X_std=0 * S), plain, rtol=1e-12)
    mixed = model.decision_function(X, X_std=np.where(np.arange(len(X))[:, None] % 2, S, 0))
    assert_allclose(mixed[::2], plain[::2], rtol=1e-12)
    assert_allclose(mixed[1::2], model.decision_function(X, X_std=S)[1::2], rtol=1e-12)


def flips_of_draws(model, X, S, n_draws, seed=0):
    rng, said = np.random.default_rng(seed), model.predict(X, X_std=S)
    again = (X + S * rng.normal(size=(n_draws, *X.shape))).reshape(-1, X.shape[1])
    return np.mean(model.predict(again, X_std=np.tile(S, (n_draws, 1))).reshape(n_draws, -1) != said, axis=0)


@pytest.fixture(scope="module")
def cancer():
    data = load_breast_cancer_errors()
    return data.X, data.y, data.X_std


@pytest.mark.parametrize("prior", ["gaussian", None])
def test_flips_are_about_as_likely_as_draws_say(cancer, prior):
    X, y, S = cancer
    model = NoiseAwareClassifier(prior=prior, n_components=40).fit(X, y, X_std=S)
    some = slice(0, 60)
    for level in (1, 4):
        found = model.flip_probability(X[some], X_std=level * S[some])
        assert np.mean(np.abs(found - flips_of_draws(model, X[some], level * S[some], 100))) < 0.02
    assert np.all(model.flip_probability(X, X_std=0 * S) == 0)


@pytest.mark.slow
@both_methods
@pytest.mark.parametrize("prior", ["gaussian", None])
def test_flips_of_all_rows_are_about_as_likely_as_draws_say(cancer, method, prior):
    X, y, S = cancer
    model = NoiseAwareClassifier(prior=prior, method=method, n_components=200).fit(X, y, X_std=S)
    for level in (1, 2, 4):
        found = model.flip_probability(X, X_std=level * S)
        assert np.mean(np.abs(found - flips_of_draws(model, X, level * S, 300))) < 0.02


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_flips_of_several_classes_are_about_as_likely_as_draws_say(three, alpha):
    X, y, S = three
    model = NoiseAwareClassifier(alpha=alpha, **SMALL).fit(X, y, X_std=S)
    found, drawn = model.flip_probability(X, X_std=2 * S), flips_of_draws(model, X, 2 * S, 300)
    assert np.mean(np.abs(found - drawn)) < 0.02
    assert np.all((found >= 0) & (found <= 1))


def test_flips_of_wine_are_about_as_likely_as_draws_say():
    X, y = load_wine(return_X_y=True)
    S = 0.5 * X.std(axis=0) * np.ones_like(X)
    model = NoiseAwareClassifier(n_components=40).fit(X, y, X_std=S)
    found, drawn = model.flip_probability(X[::3], X_std=S[::3]), flips_of_draws(model, X[::3], S[::3], 200)
    assert np.mean(np.abs(found - drawn)) < 0.02


# Calls


def ask(model, X, **noise):
    return [getattr(model, name)(X, **noise) for name in ("decision_function", "predict_proba")]


@both_methods
def test_every_question_that_is_not_told_of_the_noise_warns_once(told, method):
    X, y, S = told
    model = NoiseAwareClassifier(method=method, **SMALL).fit(X, y, X_std=S)
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function", "score"):
        given = (X, y) if name == "score" else (X,)
        with pytest.warns(UserWarning, match=WARNED) as caught:
            getattr(model, name)(*given)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        text = str(caught[0].message)
        assert text.startswith(f"NoiseAwareClassifier.{name}: ")
        assert "Pass X_std, X_cov or X_factor (zeros for exact rows)" in text
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(model, name)(*given, X_std=S)


def test_all_ways_to_state_the_same_noise_agree(told):
    X, y, S = told
    model = NoiseAwareClassifier(**SMALL).fit(X, y, X_std=S)
    wanted = ask(model, X, X_std=S)
    for noise in ({"X_cov": S[:, :, None] ** 2 * np.eye(2)}, {"X_factor": S[:, :, None] * np.eye(2)}):
        for one, other in zip(ask(model, X, **noise), wanted, strict=True):
            assert_allclose(one, other, atol=1e-6)
        assert_allclose(model.flip_probability(X, **noise), model.flip_probability(X, X_std=S), atol=1e-6)


@both_methods
def test_the_same_seed_gives_the_same_model_bit_by_bit(told, method):
    X, y, S = told
    fits = [NoiseAwareClassifier(method=method, random_state=s, **SMALL).fit(X, y, X_std=S) for s in (3, 3, 4)]
    answers = [model.decision_function(X, X_std=S) for model in fits]
    assert_array_equal(answers[0], answers[1])
    assert fits[0].objective_ == fits[1].objective_
    assert np.array_equal(answers[0], answers[2]) == (method == "moments")
    again = fits[0].decision_function(X, X_std=S)
    assert_array_equal(again, fits[0].fit(X, y, X_std=S).decision_function(X, X_std=S))


def test_draws_differ_by_seed_even_where_features_do_not(told):
    X, y, S = told
    fits = [NoiseAwareClassifier("splines", random_state=s, n_knots=4).fit(X, y, X_std=S) for s in (3, 4, 3)]
    answers = [model.decision_function(X, X_std=S) for model in fits]
    assert not np.allclose(answers[0], answers[1], rtol=1e-6)
    assert_array_equal(answers[0], answers[2])


@pytest.mark.parametrize(
    ("settings", "noise", "said"),
    [
        ({"levels": (0,)}, {}, r"NoiseAwareClassifier(levels=(0,)): exact rows alone"),
        (
            {"features": "fourier", "method": "moments"},
            {},
            "features='fourier', method='moments'): moments are those of",
        ),
        ({"levels": (-1, 1)}, {}, "levels=(-1, 1)): give a list"),
        ({"alpha": 0}, {}, "alpha=0): must be"),
        ({"prior": "flat"}, {}, "prior='flat'): give"),
        ({}, {"X_std": np.ones((90, 3))}, "X_std has shape (90, 3)"),
        ({}, {"X_std": np.ones((90, 2)), "X_cov": np.ones((90, 2, 2))}, "X_cov"),
    ],
)
def test_wrong_settings_and_noise_are_refused(told, settings, noise, said):
    X, y, _ = told
    with pytest.raises(ValueError, match=re.escape(said)):
        NoiseAwareClassifier(**settings).fit(X, y, **noise)


def test_what_it_cannot_use_is_refused(told):
    X, y, S = told
    lost = np.where(X > 1.5, np.nan, X)
    model = NoiseAwareClassifier(**SMALL).fit(X, y, X_std=S)
    for call in (lambda: clone(model).fit(lost, y, X_std=S), lambda: model.predict(lost, X_std=S)):
        with pytest.raises(ValueError, match=r"NoiseAwareClassifier\.(fit|predict): X contains NaN.*SpreadImputer"):
            call()
    for call in (clone(model).fit, model.score):
        with pytest.raises(TypeError, match="X_lower"):
            call(X, y, X_lower=X - S, X_upper=X + S)
    with pytest.raises(TypeError, match="X_radius"):
        model.predict(X, X_radius=np.ones(90))
    with pytest.raises(ValueError, match=r"NoiseAwareClassifier\.flip_probability: no noise is stated. Pass X_std"):
        model.flip_probability(X)
    with pytest.raises(ValueError, match="one class"):
        clone(model).fit(X, np.zeros(90), X_std=S)
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pytest.raises(ValueError, match=r"X_std.*columns"):
        clone(model).fit(frame, y, X_std=pd.DataFrame(S, columns=["b", "a"]))
    with pytest.warns(UnitsWarning, match=r"NoiseAwareClassifier\.fit.*larger than the rows vary"):
        clone(model).fit(X, y, X_std=100 * S)


@both_methods
def test_fitted_models_survive_pickle_and_skops(three, method):
    skops = pytest.importorskip("skops.io")
    X, y, S = three
    model = NoiseAwareClassifier(method=method, **SMALL).fit(X, y, X_std=S)
    stored = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=stored)
    assert all(name.startswith("holdfast.") for name in unknown)
    for copy in (pickle.loads(pickle.dumps(model)), skops.loads(stored, trusted=unknown)):
        assert_array_equal(copy.predict_proba(X, X_std=S), model.predict_proba(X, X_std=S))
        assert_allclose(copy.flip_probability(X, X_std=S), model.flip_probability(X, X_std=S))


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_and_labels_that_are_texts(told, library):
    X, y, S = told
    frame, errors = (library.DataFrame({"a": part[:, 0], "b": part[:, 1]}) for part in (X, S))
    words = np.where(y == 1, "up", "down")
    model = NoiseAwareClassifier(**SMALL).fit(frame, words, X_std=errors)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert list(model.classes_) == ["down", "up"]
    plain = NoiseAwareClassifier(**SMALL).fit(X, y, X_std=S)
    assert_array_equal(model.predict(frame, X_std=errors) == "up", plain.predict(X, X_std=S) == 1)
    assert_allclose(ask(model, frame, X_std=errors)[0], ask(plain, X, X_std=S)[0], atol=1e-3)


@both_methods
@pytest.mark.parametrize("data", ["told", "three"])
def test_weights_of_classes_are_weights_of_their_rows(request, data, method):
    X, y, S = request.getfixturevalue(data)
    model = NoiseAwareClassifier(method=method, **SMALL)
    by_class = clone(model).set_params(class_weight={0: 3.0}).fit(X, y, X_std=S)
    by_row = clone(model).fit(X, y, np.where(y == 0, 3.0, 1.0), X_std=S)
    assert_allclose(by_class.objective_, by_row.objective_, rtol=1e-9)
    first = by_class.predict_proba(X, X_std=S)[:, 0].mean()
    assert first > clone(model).fit(X, y, X_std=S).predict_proba(X, X_std=S)[:, 0].mean()
    assert 0.9 < by_row.score(X, y, np.where(y == 0, 1.0, 0.0), X_std=S) <= 1


def test_rows_of_weight_zero_are_left_out(told):
    X, y, S = told
    kept = np.arange(90) >= 30
    for options in ({"method": "moments"}, {"levels": (0, 1e-9)}):  # draws are others where rows are
        model = NoiseAwareClassifier(n_knots=4, n_components=10, **options)
        weighted = clone(model).fit(X, y, 1.0 * kept, X_std=S)
        left_out = clone(model).fit(X[kept], y[kept], X_std=S[kept])
        assert_allclose(weighted.objective_, left_out.objective_, rtol=1e-4)
        assert_allclose(weighted.predict_proba(X, X_std=S), left_out.predict_proba(X, X_std=S), atol=2e-2)


def test_progress_is_logged_when_asked_for(told, caplog):
    X, y, S = told
    NoiseAwareClassifier(**SMALL).fit(X, y, X_std=S)
    assert not caplog.messages
    NoiseAwareClassifier(verbose=1, **SMALL).fit(X, y, X_std=S)
    assert caplog.messages[0].startswith("630 rows, copies included")
    assert "certified gap" in caplog.messages[-1]


# Inside scikit-learn


def test_routing_hands_noise_to_fits_and_scores(told):
    X, y, S = told
    model = NoiseAwareClassifier(**SMALL)
    with sklearn.config_context(enable_metadata_routing=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = cross_validate(model, X, y, params={"X_std": S}, cv=3, return_estimator=True)
            search = GridSearchCV(model, {"alpha": [0.1, 10.0]}, cv=2).fit(X, y, X_std=S)
            assert search.score(X, y, X_std=S) > 0.7
        # scikit-learn's scorers hand nothing to predictions: rows count as exact there, with the warning
        with pytest.warns(UserWarning, match=rf"NoiseAwareClassifier\.predict_proba: .*{WARNED}.*Under cross-"):
            scored = cross_validate(model, X, y, params={"X_std": S}, cv=3, scoring="neg_log_loss")
    assert search.best_estimator_.row_noise_
    folds = StratifiedKFold(3).split(X, y)
    for k, ((_, test), one) in enumerate(zip(folds, found["estimator"], strict=True)):
        assert one.row_noise_
        assert found["test_score"][k] == one.score(X[test], y[test], X_std=S[test])
        exact = one.predict_proba(X[test], X_std=0 * S[test])
        assert scored["test_score"][k] == pytest.approx(-log_loss(y[test], exact))


def test_calibration_runs(told):
    X, y, S = told
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrated = CalibratedClassifierCV(NoiseAwareClassifier(**SMALL), cv=2).fit(X, y, X_std=S)
        assert calibrated.calibrated_classifiers_[0].estimator.row_noise_
        assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1)


# The search


GRID = {"gammas": [0.3, 3.0], "alphas": [1.0, 10.0], "cv": 2, "n_knots": 4, "n_components": 10}


def test_a_cell_of_the_search_is_the_log_loss_of_rows_measured_again(told):
    X, y, S = told
    model = NoiseAwareClassifierCV(deploy_noise=2, **GRID).fit(X, y, X_std=S)
    results, seed = model.cv_results_, seed_of(model)
    assert set(zip(results["param_gamma"], results["param_alpha"], strict=True)) == {
        (gamma, alpha) for gamma in (0.3, 3.0) for alpha in (1.0, 10.0)
    }
    [cell] = np.flatnonzero((results["param_gamma"] == 3.0) & (results["param_alpha"] == 10.0))
    for k, (own, held_out) in enumerate(StratifiedKFold(2).split(X, y)):
        plain = NoiseAwareClassifier(gamma=1.5, alpha=10.0, n_knots=4, n_components=10).fit(
            X[own], y[own], X_std=S[own]
        )
        noise = RowNoise(2 * S[held_out])
        again = X[held_out] + noise.drawn(np.random.default_rng([seed, 1]))
        wanted = -log_loss(y[held_out], plain.predict_proba(again, X_std=noise.std))
        assert results[f"split{k}_test_score"][cell] == pytest.approx(wanted, abs=2e-3)
    best = np.argmax(results["mean_test_score"])
    assert model.best_score_ == results["mean_test_score"][best]
    assert (model.gamma_, model.alpha_) == (results["param_gamma"][best], results["param_alpha"][best])
    assert np.all(results["max_gap"] <= model.tol)


def test_the_refit_is_the_plain_classifier_with_what_was_chosen(three):
    X, y, S = three
    model = NoiseAwareClassifierCV(**GRID).fit(X, y, X_std=S)
    plain = NoiseAwareClassifier(gamma=model.gamma_ / 3, alpha=model.alpha_, n_knots=4, n_components=10).fit(
        X, y, X_std=S
    )
    assert_array_equal(model.model_.coef_, plain.model_.coef_)
    assert_array_equal(model.predict_proba(X, X_std=S), plain.predict_proba(X, X_std=S))
    assert model.objective_ == plain.objective_
    # all levels by default
    one = {**GRID, "gammas": [model.gamma_]}
    scores = [
        NoiseAwareClassifierCV(deploy_noise=m, **one).fit(X, y, X_std=S).cv_results_["mean_test_score"]
        for m in (0, None, 4)
    ]
    assert np.all(np.diff(scores, axis=0) < 0)


def test_the_search_uses_groups_threads_and_splitters(told):
    X, y, S = told
    groups = np.arange(90) // 9
    grid = {**GRID, "cv": GroupKFold(2)}
    model = NoiseAwareClassifierCV(**grid).fit(X, y, X_std=S, groups=groups)
    threads = NoiseAwareClassifierCV(n_jobs=2, **grid).fit(X, y, X_std=S, groups=groups)
    assert_array_equal(model.cv_results_["mean_test_score"], threads.cv_results_["mean_test_score"])
    assert_array_equal(model.model_.coef_, threads.model_.coef_)
    folds = list(GroupKFold(2).split(X, y, groups))
    by_hand = NoiseAwareClassifierCV(**{**grid, "cv": folds}).fit(X, y, X_std=S)
    assert_array_equal(model.cv_results_["mean_test_score"], by_hand.cv_results_["mean_test_score"])


def test_splines_and_moments_have_no_bandwidth_to_choose(told):
    X, y, S = told
    for options in ({"features": "splines"}, {"method": "moments"}):
        grid = {**GRID, "alphas": [1.0, 10.0], "cv": 2, **options}
        model = NoiseAwareClassifierCV(**grid).fit(X, y, X_std=S)
        assert list(model.cv_results_["param_gamma"]) == [1.0, 1.0]
        assert model.gamma_ == 1.0


def test_a_search_that_cannot_be_made_is_refused(told):
    X, y, S = told
    with pytest.raises(ValueError, match=r"NoiseAwareClassifierCV\(deploy_noise=2\)\.fit: it multiplies noise"):
        NoiseAwareClassifierCV(deploy_noise=2, **GRID).fit(X, y)
    folds = [(np.flatnonzero(y == 0), np.flatnonzero(y == 1)), (np.flatnonzero(y == 1), np.flatnonzero(y == 0))]
    with pytest.raises(ValueError, match=r"hold no row of class 1. Use fewer folds, or a stratified splitter"):
        NoiseAwareClassifierCV(**{**GRID, "cv": folds}).fit(X, y, X_std=S)
    with pytest.raises(ValueError, match=r"sample_weight is zero for all validation rows of a fold"):
        NoiseAwareClassifierCV(**{**GRID, "cv": [(np.arange(0, 80), np.arange(80, 90))]}).fit(
            X, y, np.where(np.arange(90) < 80, 1, 0), X_std=S
        )
    with pytest.raises(ValueError, match=r"NoiseAwareClassifierCV\(alphas=\[0\]\)"):
        NoiseAwareClassifierCV(alphas=[0]).fit(X, y)


def test_the_search_runs_without_noise_and_is_told_like_the_classifier(told):
    X, y, S = told
    grid = {**GRID, "gammas": [1.0]}
    plain = NoiseAwareClassifierCV(**grid).fit(X, y)
    assert not plain.row_noise_
    assert plain.score(X, y) > 0.7
    model = NoiseAwareClassifierCV(**grid).fit(X, y, X_std=S)
    with pytest.warns(UserWarning, match=rf"NoiseAwareClassifierCV\.predict: .*{WARNED}"):
        model.predict(X)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.all(cross_validate(clone(model), X, y, params={"X_std": S}, cv=2)["test_score"] > 0.6)


def test_what_correlated_errors_leave_known_stays_known(rng):
    """One cause moves both columns alike: their difference is known, and so is the class."""

    def drawn(n):
        X = rng.normal(size=(n, 2))
        return X, np.sin(4 * (X[:, 0] - X[:, 1])) > 0, np.ones((n, 2, 1))

    (X, y, F), (X_new, y_new, F_new) = drawn(600), drawn(600)
    model = NoiseAwareClassifier(gamma=4.0, levels=(0, 1), n_components=300).fit(X, y, X_factor=F)
    noisy = X_new + rng.normal(size=(600, 1))
    assert model.score(noisy, y_new, X_factor=F_new) > 0.85
    assert model.score(noisy, y_new, X_std=F_new[:, :, 0]) < 0.75


def test_draws_do_not_depend_on_how_noise_is_stated_nor_on_rows_of_weight_zero(rng):
    X, S = rng.normal(size=(60, 3)), rng.uniform(0.1, 0.5, size=(60, 3))
    y, options = X[:, 0] + X[:, 1] ** 2 > 1, {"n_components": 10, "prior": None}
    plain = NoiseAwareClassifier(**options).fit(X, y, X_std=S).decision_function(X, X_std=S)
    factors = S[:, :, None] * np.eye(3)
    for metadata in ({"X_factor": factors}, {"X_cov": factors**2}):
        found = NoiseAwareClassifier(**options).fit(X, y, **metadata).decision_function(X, **metadata)
        assert_allclose(found, plain, atol=1e-6)
    weights = (np.arange(60) % 4 > 0).astype(float)
    kept = weights > 0
    left_out = NoiseAwareClassifier(**options).fit(X[kept], y[kept], X_std=S[kept])
    weighted = NoiseAwareClassifier(**options).fit(X, y, weights, X_std=S)
    assert np.array_equal(weighted.decision_function(X, X_std=S), left_out.decision_function(X, X_std=S))
