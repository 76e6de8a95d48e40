"""ConditionalImputer: conditional moments against closed forms and counts, EM against its likelihood, errors on their way."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from holdfast import (
    Box,
    ConditionalImputer,
    GaussianNoise,
    GaussianRobustClassifier,
    NoiseAwareClassifier,
    RobustLinearClassifier,
    SpreadImputer,
    certified_radius,
    make_uncertain_pipeline,
)
from holdfast.evaluate import certified_interval
from holdfast.features import RowNoise
from holdfast.features.conditional_moments import GaussianMoments, learned

D = 5


def silent(text):
    pass


@pytest.fixture
def gaussian(rng):
    A = rng.normal(size=(D, D))
    return rng.normal(size=D), A @ A.T + 0.1 * np.eye(D)


@pytest.fixture
def table(rng, gaussian):
    """300 correlated rows of 5 columns in units far apart, with a fifth of the entries missing, and their classes."""
    X = rng.multivariate_normal(*gaussian, size=300) * 10.0 ** np.arange(-2, 3)
    y = (X[:, 0] * 100 + X[:, 3] / 10 + rng.normal(size=300) > 0).astype(int)
    return np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X), y


def test_conditional_moments_are_those_of_block_inversion(rng, gaussian):
    mean, cov = gaussian
    law = GaussianMoments(mean, cov)
    X = rng.normal(size=(40, D))
    X[rng.uniform(size=X.shape) < 0.4] = np.nan
    missing = np.isnan(X)
    filled, F = law.filled(X), law.factor(missing, np.zeros(D, dtype=bool))
    reach, moved = law.reach(np.ones((40, D)), missing), law.answers(np.broadcast_to(np.eye(D), (40, D, D)), missing)
    for x, m, got, f, r, a in zip(X, missing, filled, F, reach, moved, strict=True):
        B = cov[np.ix_(m, ~m)] @ np.linalg.inv(cov[np.ix_(~m, ~m)]) if np.any(~m) else np.zeros((m.sum(), 0))
        assert_allclose(got[m], mean[m] + B @ (x - mean)[~m], rtol=1e-8, atol=1e-10)
        assert_array_equal(got[~m], x[~m])
        want = np.zeros((D, D))
        want[np.ix_(m, m)] = cov[np.ix_(m, m)] - B @ cov[np.ix_(~m, m)]
        assert_allclose(f @ f.T, want, atol=1e-9)
        assert_allclose(r[m], np.abs(B).sum(axis=1), atol=1e-9)
        assert_allclose(a[m][:, ~m], B, atol=1e-9)
        assert not np.any(a[~m])
        assert not np.any(a[:, m])


def test_likelihood_is_that_of_the_known_entries(rng, gaussian):
    law, X = GaussianMoments(*gaussian), rng.normal(size=(20, D))
    X[rng.uniform(size=X.shape) < 0.4] = np.nan
    X[0] = np.nan
    want = 0.0
    for x in X[1:]:
        known = ~np.isnan(x)
        want += multivariate_normal(law.mean[known], law.covariance[np.ix_(known, known)]).logpdf(x[known])
    assert_allclose(law.log_likelihood(X), want / 20, rtol=1e-10)


def _penalised(moments, Z, ridge):
    """Return the log-likelihood of the rows and of `ridge` rows whose second moments about the mean are I."""
    _, size = np.linalg.slogdet(moments.covariance)
    own = -0.5 * ridge * (np.trace(np.linalg.inv(moments.covariance)) + size)
    return len(Z) * moments.log_likelihood(Z) + own


def test_expectation_maximisation_ends_at_a_maximum_of_the_penalised_likelihood(rng, gaussian):
    Z = rng.multivariate_normal(*gaussian, size=60)
    Z[rng.uniform(size=Z.shape) < 0.3] = np.nan
    Z = (Z - np.nanmean(Z, axis=0)) / np.nanstd(Z, axis=0)
    found = learned(Z, None, 3.0, 1e-9, 10_000, silent)
    assert found.has_settled
    best = _penalised(found.moments, Z, 3.0)
    for _ in range(30):
        move, turn = 1e-3 * rng.normal(size=D), 1e-3 * rng.normal(size=(D, D))
        other = GaussianMoments(
            found.moments.mean + move, (np.eye(D) + turn) @ found.moments.covariance @ (np.eye(D) + turn).T
        )
        assert _penalised(other, Z, 3.0) < best
    values = [_penalised(learned(Z, None, 3.0, 1e-12, steps, silent).moments, Z, 3.0) for steps in range(1, 8)]
    assert np.all(np.diff(values) > 0)


def test_factors_are_learned_to_a_maximum_of_their_likelihood(rng):
    L = rng.normal(size=(8, 2))
    Z = rng.normal(size=(4000, 2)) @ L.T + rng.normal(size=(4000, 8)) * 0.5
    Z = np.where(rng.uniform(size=Z.shape) < 0.3, np.nan, Z / np.sqrt(np.diag(L @ L.T) + 0.25))
    truth = (L @ L.T + 0.25 * np.eye(8)) / np.sqrt(np.outer(*2 * [np.diag(L @ L.T) + 0.25]))
    found = learned(Z, 2, 1e-3, 1e-6, 2000, silent)
    assert_allclose(found.moments.covariance, truth, atol=0.06)
    values = [learned(Z, 2, 1e-6, 1e-12, steps, silent).moments.log_likelihood(Z) for steps in range(1, 7)]
    assert np.all(np.diff(values) > 0)


def test_means_and_intervals_of_gaussian_rows_are_those_of_the_true_law(rng, gaussian):
    mean, cov = gaussian
    X = rng.multivariate_normal(mean, cov, size=6000)
    holed = np.where(rng.uniform(size=X.shape) < 0.3, np.nan, X)
    imputer = ConditionalImputer(ridge=1e-3, coverage=0.9, tol=1e-5).fit(holed[:5000])
    scale = np.sqrt(np.diag(cov))
    assert_allclose(imputer.mean_ / scale, mean / scale, atol=0.06)
    assert_allclose(imputer.covariance_ / np.outer(scale, scale), cov / np.outer(scale, scale), atol=0.07)
    X, holed = X[5000:], holed[5000:]
    missing, effect = np.isnan(holed), imputer.uncertainty_effect(D)
    known = np.where(missing, 0.0, holed)
    low, high = effect.bounds(holed, known, known)
    assert np.mean((low <= X) & (high >= X), where=missing) == pytest.approx(0.9, abs=0.03)
    assert_array_equal(low[~missing], X[~missing])
    # errors of a row together, in deviations of their own covariance
    F = effect.linearised(holed, RowNoise.none(X.shape)).factor
    some = missing.sum(axis=1) == 2
    away = (X - imputer.transform(holed))[some]
    squares = [
        e[m] @ np.linalg.solve((f @ f.T)[np.ix_(m, m)], e[m])
        for e, m, f in zip(away, missing[some], F[some], strict=True)
    ]
    assert np.mean(squares) == pytest.approx(2.0, rel=0.15)


def test_probabilities_of_missing_categories_are_counts_on_discrete_data(rng):
    """Of a category given another one the conditional mean is linear, so that nothing else than a count is right."""
    a, b = rng.integers(3, size=400), rng.integers(2, size=400)
    a = np.where(rng.uniform(size=400) < 0.6, b, a)
    table = np.column_stack([np.eye(3)[a], np.eye(2)[b]])
    imputer = ConditionalImputer(ridge=1e-6).fit(table)
    assert [group.tolist() for group in imputer.groups_] == [[0, 1, 2], [3, 4]]
    for known in range(2):
        row = np.append([np.nan] * 3, np.eye(2)[known])[None]
        p = np.bincount(a[b == known], minlength=3) / np.sum(b == known)
        assert_allclose(imputer.transform(row)[0, :3], p, atol=1e-3)
        F = imputer.law().factor(row)[0]
        q = imputer.transform(row)[0, :3]
        assert_allclose((F @ F.T)[:3, :3], np.diag(q) - np.outer(q, q), atol=1e-12)
    # one category is ruled out, another one is known
    assert_allclose(imputer.transform([[0.0, np.nan, np.nan, 1.0, 0.0]])[0, :3].sum(), 1.0)
    assert imputer.transform([[0.0, np.nan, np.nan, 1.0, 0.0]])[0, 0] == 0
    assert_array_equal(imputer.transform([[1.0, np.nan, np.nan, 1.0, 0.0]])[0, :3], [1, 0, 0])


def test_columns_that_only_look_like_a_category_are_none(rng):
    two = np.column_stack([rng.integers(2, size=50), rng.integers(2, size=50), rng.normal(size=50)]).astype(float)
    assert ConditionalImputer().fit(two).groups_ == []
    one_hot = np.eye(3)[rng.integers(3, size=50)]
    assert len(ConditionalImputer().fit(one_hot).groups_) == 1
    assert ConditionalImputer(categories=None).fit(one_hot).groups_ == []
    one_hot[:5, 0] = np.nan
    assert ConditionalImputer().fit(one_hot).groups_ == []  # not missing together


def test_errors_reach_the_last_step_as_a_factor_of_the_conditional_covariance(table, rng):
    X, y = table
    pipe = make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), PCA(3), GaussianRobustClassifier()).fit(X, y)
    carried = pipe.carried(X)[1]
    F = pipe[0].law().factor(X) / pipe[1].scale_[:, None]
    want = pipe[2].components_ @ (F @ F.transpose(0, 2, 1)) @ pipe[2].components_.T
    got = carried["X_factor"] @ carried["X_factor"].transpose(0, 2, 1)
    assert_allclose(got, want, atol=1e-10)
    t = pipe.score_std(X)
    assert_allclose(t**2, np.einsum("i,nij,j->n", pipe[3].coef_[0], want, pipe[3].coef_[0]), rtol=1e-8, atol=1e-14)
    assert np.all(t[~np.any(np.isnan(X), axis=1)] == 0)
    assert np.all(pipe.flip_probability(X) <= 0.5)
    # trained with them too
    Z = pipe[:-1].transform(X)
    alone = GaussianRobustClassifier().fit(Z, y, X_factor=carried["X_factor"])
    assert_allclose(pipe[3].coef_, alone.coef_, rtol=1e-5)


def test_stated_errors_of_known_entries_reach_what_is_filled_in_from_them(table, rng):
    X = table[0][:6].copy()
    S = np.nanstd(table[0], axis=0) * np.ones(X.shape)
    pipe = make_uncertain_pipeline(ConditionalImputer(), StandardScaler()).fit(table[0])
    noise = pipe.carried(X, X_std=np.where(np.isnan(X), 0.0, S))[1]["X_factor"]
    draws = pipe.transform((X + S * rng.standard_normal((20_000, *X.shape))).reshape(-1, D)).reshape(20_000, 6, D)
    own = pipe[0].law().factor(X) / pipe[1].scale_[:, None]
    want = np.array([np.cov(draws[:, i].T) for i in range(6)]) + own @ own.transpose(0, 2, 1)
    assert_allclose(noise @ noise.transpose(0, 2, 1), want, atol=0.04 * np.max(want))


def test_intervals_hold_whatever_known_entries_do_in_theirs(table, rng):
    X, _ = table
    imputer = ConditionalImputer(coverage=0.5).fit(X)
    effect, missing = imputer.uncertainty_effect(D), np.isnan(X)
    half = 0.3 * np.nanstd(X, axis=0)
    values = np.where(missing, 0.0, X)
    spread = np.where(missing, 0.0, half)
    low, high = effect.bounds(X, values - spread, values + spread)
    still = effect.bounds(X, values, values)
    for _ in range(20):
        moved = X + half * rng.choice([-1.0, 1.0], size=X.shape)
        found = imputer.transform(moved)
        own = 0.5 * (still[1] - still[0])
        assert np.all(found - own >= low - 1e-9 * np.abs(low))
        assert np.all(found + own <= high + 1e-9 * np.abs(high))


def test_worst_cases_of_missing_entries_are_their_intervals(table):
    X, y = table
    pipe = make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), RobustLinearClassifier(Box(0.0))).fit(X, y)
    missing, Z = np.isnan(X), pipe[:-1].transform(X)
    half = np.sqrt(np.square(pipe[0].law().factor(X)).sum(axis=2)) * 1.959964 / pipe[1].scale_
    want = np.abs(Z @ pipe[-1].coef_[0] + pipe[-1].intercept_) - half @ np.abs(pipe[-1].coef_[0])
    assert_allclose(pipe.certified_margin(X), want, atol=1e-7)
    assert_array_equal(pipe.certify(X), want > 0)
    assert 0.2 < np.mean(pipe.certify(X)[np.any(missing, axis=1)]) < 1


def test_complete_rows_pass_as_they_are(table):
    X, y = table
    model = make_pipeline(ConditionalImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    full = X[~np.any(np.isnan(X), axis=1)]
    w = model[2].coef_[0] / model[1].scale_
    want = np.abs(model.decision_function(full)) / np.linalg.norm(w)
    assert_allclose(certified_radius(model, full).radius, want, rtol=1e-8)
    ends = {"X_lower": X - 1e-3, "X_upper": X + 1e-3}
    margin = certified_interval(model, X, **ends).margin  # with missing ones too
    assert np.all(margin <= np.abs(model.decision_function(X)) + 1e-9)


def test_names_frames_and_columns_of_nothing(table):
    X, _ = table
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.insert(2, "gone", np.nan)
    frame.insert(0, "once", np.where(np.arange(300) == 7, 3.0, np.nan))
    with pytest.warns(UserWarning, match=r"columns 'once', 'gone' fewer than two entries are known.*left out"):
        imputer = ConditionalImputer().set_output(transform="pandas").fit(frame)
    found = imputer.transform(frame)
    assert list(found.columns) == list("abcde") == imputer.get_feature_names_out().tolist()
    assert not found.isna().any(axis=None)
    with pytest.warns(UserWarning, match="they are kept"):
        kept = ConditionalImputer(keep_empty_features=True).fit(frame).transform(frame)
    assert_array_equal(kept[:, 0], 3.0)
    assert_array_equal(kept[:, 3], 0.0)
    assert_allclose(np.delete(kept, [0, 3], axis=1), found)
    with (
        pytest.warns(UserWarning, match="fewer"),
        pytest.raises(ValueError, match="no column of X has two known entries"),
    ):
        ConditionalImputer().fit(np.full((4, 2), np.nan))


def test_constant_columns_are_filled_exactly(table):
    X = np.column_stack([table[0], np.where(np.arange(300) % 3, 0.1, np.nan)])
    imputer = ConditionalImputer().fit(X)
    assert_allclose(imputer.transform(X)[:, D], 0.1)
    assert not np.any(imputer.law().factor(X)[:, D])
    assert_allclose(imputer.transform(X)[:, :D], ConditionalImputer().fit(table[0]).transform(table[0]))
    assert ConditionalImputer().fit([[1.0, 2.0], [1.0, np.nan], [1.0, 2.0]]).method_ == "constants, as no column varies"


def test_more_columns_than_rows_are_learned_by_factors(rng):
    z = rng.normal(size=(40, 3))
    X = z @ rng.normal(size=(3, 120)) + 0.3 * rng.normal(size=(40, 120))
    holed = np.where(rng.uniform(size=X.shape) < 0.1, np.nan, X)
    imputer = ConditionalImputer().fit(holed[:30])
    assert imputer.n_factors_ == 7
    assert imputer.method_.startswith("7 factors of 120 columns")
    missing = np.isnan(holed[30:])
    error = (imputer.transform(holed[30:]) - X[30:])[missing]
    assert np.sqrt(np.mean(error**2)) < 0.5 * np.sqrt(np.mean((X[30:] - X[:30].mean(axis=0))[missing] ** 2))
    deviations = np.sqrt(np.square(imputer.law().factor(holed[30:])).sum(axis=2))[missing]
    assert 0.8 < np.mean(np.abs(error) <= 1.96 * deviations) <= 1.0


def test_units_and_order_of_rows_change_nothing_but_units(table, rng):
    X, _ = table
    units = np.array([1e3, 1.0, 1e-6, 7.0, 0.3])
    filled = ConditionalImputer(ridge=2.0).fit(X).transform(X)
    assert_allclose(ConditionalImputer(ridge=2.0).fit(X * units).transform(X * units), filled * units, rtol=1e-7)
    assert_allclose(ConditionalImputer(ridge=2.0).fit(X[::-1]).transform(X), filled, rtol=1e-7)
    assert_array_equal(ConditionalImputer().fit(X).transform(X), ConditionalImputer().fit(X).transform(X))


def test_filling_in_twice_is_refused_and_steps_before_it_are_carried(table):
    X, y = table
    pipe = make_uncertain_pipeline(StandardScaler(), ConditionalImputer(), GaussianRobustClassifier()).fit(X, y)
    plain = make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), GaussianRobustClassifier()).fit(X, y)
    assert np.mean(pipe.predict(X) == plain.predict(X)) > 0.97
    assert_allclose(pipe.flip_probability(X), plain.flip_probability(X), atol=0.05)
    told = pipe.carried(X, X_std=np.full(X.shape, 1e-3))[1]
    assert np.all(np.isfinite(told["X_factor"]))


def test_mixed_frames_and_models_that_average(table, rng):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde")).assign(kind=np.where(rng.uniform(size=300) < 0.5, "u", "v"))
    columns = ColumnTransformer(
        [
            ("num", make_pipeline(ConditionalImputer(), StandardScaler()), list("abcde")),
            ("cat", OneHotEncoder(), ["kind"]),
        ]
    )
    pipe = make_uncertain_pipeline(columns, GaussianRobustClassifier()).fit(frame, y)
    assert np.all(pipe.score_std(frame)[np.isnan(X).any(axis=1)] > 0)
    pipe = make_uncertain_pipeline(columns, RobustLinearClassifier(Box(half_widths=[1e-3, 0, 0, 0, 0, 0]))).fit(
        frame, y
    )
    assert 0 < np.mean(pipe.certify(frame)) < 1
    aware = make_uncertain_pipeline(ConditionalImputer(), NoiseAwareClassifier(n_components=20)).fit(X, y)
    assert aware.score(X, y) > 0.8
    spread = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier()).fit(X, y)
    assert np.mean(pipe.predict(frame) == y) > np.mean(spread.predict(X) == y) - 0.05


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ridge": 0.0}, r"ConditionalImputer\(ridge=0.0\)"),
        ({"coverage": 1.0}, r"coverage=1.0\): must be below 1"),
        ({"n_factors": 0}, r"n_factors=0"),
        ({"categories": "some"}, r"categories='some'"),
    ],
)
def test_wrong_parameters_are_refused(table, wrong, said):
    with pytest.raises(ValueError, match=said):
        ConditionalImputer(**wrong).fit(table[0])


def test_noise_of_a_set_is_not_bounded(table):
    X, y = table
    pipe = make_uncertain_pipeline(ConditionalImputer(), RobustLinearClassifier(GaussianNoise(0.1))).fit(X, y)
    with pytest.raises(ValueError, match="no bounds"):
        pipe.certify(X)
