"""DropoutNoise: moments of entries that go missing at random, against sampling; what classifiers and pipelines make of it."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import log_expit
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Box,
    ConditionalImputer,
    DropoutNoise,
    FeatureDeletion,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    MinimaxProbabilityClassifier,
    NoiseCopies,
    RobustKernelClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    make_uncertain_pipeline,
    robustness_curve,
)
from holdfast.estimators import noise_path

D = 4
P = np.array([0.0, 0.3, 0.6, 0.2])
A = np.array([1.0, -2.0, 0.0, 0.5])


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(60, D)) + 0.7
    return X, (X @ [1.0, -1.0, 0.5, 1.0] + rng.normal(size=60) > 0.5).astype(int)


@pytest.mark.parametrize("kind", ["alone", "X_std", "X_cov", "X_factor"])
def test_middles_and_covariances_are_those_of_drawn_rows(rng, kind):
    X, F = rng.normal(size=(3, D)), 0.4 * rng.normal(size=(3, D, 2))
    own = {
        "alone": {},
        "X_std": {"X_std": np.abs(F[:, :, 0])},
        "X_cov": {"X_cov": F @ F.transpose(0, 2, 1)},
        "X_factor": {"X_factor": F},
    }[kind]
    noise, n = DropoutNoise(P, filler=A), 60_000
    gone = rng.uniform(size=(n, 3, D)) < P
    error = np.zeros((n, 3, D))
    if kind == "X_std":
        error = own["X_std"] * rng.standard_normal((n, 3, D))
    elif kind != "alone":
        error = np.einsum("ijk,nik->nij", F, rng.standard_normal((n, 3, 2)))
    made = np.where(gone, A, X + error)
    assert_allclose(noise.mean_rows(X), made.mean(axis=0), atol=0.02)
    for _ in range(4):
        w = rng.normal(size=D)
        assert_allclose(noise.at(X, own).support(w), (made @ w).std(axis=0), rtol=0.03)
    drawn = X + np.array(list(noise.draws(X, own, rng, 4000)))
    assert_allclose(drawn.mean(axis=0), made.mean(axis=0), atol=0.12)
    assert_allclose((drawn @ w).std(axis=0), (made @ w).std(axis=0), rtol=0.1)


def test_the_loss_that_is_minimised_is_that_of_the_shifted_rows(rows, rng):
    """The objective, by quadrature over a Gaussian with the moments of the score, from the definition of dropout."""
    X, y = rows
    model = GaussianRobustClassifier(DropoutNoise(P, filler=A)).fit(X, y)
    assert model.gap_ < 1e-6
    s, z = np.where(y == 1, 1.0, -1.0), np.polynomial.hermite_e.hermegauss(60)

    def objective(w, b):
        f = (X * (1 - P) + A * P) @ w + b
        t = np.sqrt(np.square((X - A) * w) @ (P * (1 - P)))
        return (
            -np.sum(log_expit(s[:, None] * (f[:, None] + t[:, None] * z[0])) @ z[1]) / np.sqrt(2 * np.pi) + 0.5 * w @ w
        )

    w, b = model.coef_[0], model.intercept_[0]
    assert_allclose(objective(w, b), model.objective_, rtol=1e-6)
    for _ in range(20):
        assert objective(w + 0.01 * rng.normal(size=D), b + 0.01 * rng.normal()) > objective(w, b)


def test_it_is_as_good_as_deletion_copies(rng):
    n, d = 400, 10
    X = rng.normal(size=(n, d)) + 0.8 * rng.normal(size=(n, 1))
    y = (X @ np.linspace(0.2, 2, d) + rng.normal(size=n) > 0).astype(int)
    ours = GaussianRobustClassifier(DropoutNoise(0.4)).fit(X, y)
    gone = rng.uniform(size=(40, n, d)) < 0.4
    copies = np.where(gone, X.mean(axis=0), X).reshape(-1, d)
    theirs = LogisticRegression(C=1.0, tol=1e-8).fit(copies, np.tile(y, 40), sample_weight=np.full(40 * n, 1 / 40))
    cosine = ours.coef_[0] @ theirs.coef_[0] / np.linalg.norm(ours.coef_) / np.linalg.norm(theirs.coef_)
    assert cosine > 0.998
    plain = LogisticRegression().fit(X, y)
    assert (
        cosine > plain.coef_[0] @ theirs.coef_[0] / np.linalg.norm(plain.coef_) / np.linalg.norm(theirs.coef_) + 0.002
    )


def test_without_a_share_it_is_no_noise(rows):
    X, y = rows
    assert_allclose(
        GaussianRobustClassifier(DropoutNoise(0.0)).fit(X, y).coef_, GaussianRobustClassifier().fit(X, y).coef_
    )
    assert_array_equal(DropoutNoise(0.0).mean_rows(X), X)


def test_rows_of_a_sparse_matrix_stay_sparse_and_give_the_same_model(rows):
    X, y = rows
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    noise = DropoutNoise(P, filler=0.0)
    assert sparse.issparse(noise.mean_rows(sparse.csr_array(X)))
    got = GaussianRobustClassifier(noise).fit(sparse.csr_array(X), y).coef_
    assert_allclose(got, GaussianRobustClassifier(noise).fit(X, y).coef_, rtol=1e-5)
    assert_allclose(
        DropoutNoise(0.3).at(sparse.csr_array(X), {}).support(np.ones(D)),
        DropoutNoise(0.3).at(X, {}).support(np.ones(D)),
    )
    with pytest.raises(ValueError, match="Say filler=0"):
        GaussianRobustClassifier(DropoutNoise(0.3)).fit(sparse.csr_array(X), y)


def test_pipelines_carry_it_in_the_units_of_the_rows(rows, rng):
    X, y = rows
    X = X * [100.0, 1.0, 0.01, 5.0] + 30
    holed = np.where(rng.uniform(size=X.shape) < 0.25, np.nan, X)
    pipe = make_uncertain_pipeline(SimpleImputer(), StandardScaler(), GaussianRobustClassifier(DropoutNoise(P))).fit(
        holed, y
    )
    Z = pipe[:-1].transform(holed)
    alone = GaussianRobustClassifier(DropoutNoise(P, filler=0.0)).fit(Z, y)  # the mean of a column is 0 there
    assert_allclose(pipe[-1].coef_, alone.coef_, rtol=1e-5)
    assert pipe[-1].noise.get_params() == DropoutNoise(P).get_params() or np.array_equal(pipe[-1].noise.share, P)
    plain = make_pipeline(SimpleImputer(), StandardScaler(), GaussianRobustClassifier(DropoutNoise(P))).fit(holed, y)
    assert_allclose(plain[-1].coef_, alone.coef_, rtol=1e-5)
    assert_array_equal(pipe.predict(holed), plain.predict(holed))
    assert_allclose(pipe.predict_proba(holed), plain.predict_proba(holed), rtol=1e-6)
    last = GaussianRobustClassifier(DropoutNoise(0.3))
    with pytest.raises(ValueError, match="leaves none of them to go missing"):
        make_uncertain_pipeline(SimpleImputer(), PCA(2), last).fit(holed, y)
    with pytest.raises(ValueError, match="what it fills in depends on the row"):
        make_uncertain_pipeline(ConditionalImputer(), last).fit(holed, y)


def test_observed_shares_are_those_of_the_training_rows(rows, rng):
    X, y = rows
    holed = np.where(rng.uniform(size=X.shape) < P, np.nan, X)
    shares = np.isnan(holed).mean(axis=0)
    for imputer in (SimpleImputer(), SimpleImputer(strategy="median")):
        got = make_uncertain_pipeline(
            imputer, StandardScaler(), GaussianRobustClassifier(DropoutNoise("observed"))
        ).fit(holed, y)
        want = make_uncertain_pipeline(imputer, StandardScaler(), GaussianRobustClassifier(DropoutNoise(shares))).fit(
            holed, y
        )
        assert_allclose(got[-1].coef_, want[-1].coef_, rtol=1e-6)
    assert got.predict(X).shape == (60,)
    assert got.predict_proba(X).shape == (60, 2)
    with pytest.raises(ValueError, match="no entry of X is missing"):
        GaussianRobustClassifier(DropoutNoise("observed")).fit(X, y)
    frame = pd.DataFrame(holed, columns=list("abcd"))
    again = make_uncertain_pipeline(
        SimpleImputer(), StandardScaler(), GaussianRobustClassifier(DropoutNoise("observed"))
    )
    assert_allclose(again.fit(frame, y)[-1].coef_[0, 0] != 0, True)


def test_spreads_of_imputers_and_stated_errors_are_used_besides(rows, rng):
    X, y = rows
    holed = np.where(rng.uniform(size=X.shape) < 0.25, np.nan, X)
    S = np.full(X.shape, 0.2)
    pipe = make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GaussianRobustClassifier(DropoutNoise(P)))
    pipe = pipe.fit(holed, y, X_std=np.where(np.isnan(holed), 0.0, S))
    Z = pipe[:-1].transform(holed)
    std = np.where(np.isnan(holed), pipe[0].spread_[2], S) / pipe[1].scale_
    alone = GaussianRobustClassifier(DropoutNoise(P, filler=0.0)).fit(Z, y, X_std=std)
    assert_allclose(pipe[-1].coef_, alone.coef_, rtol=1e-5)
    want = GaussianRobustClassifier(GaussianNoise(1.0)).fit(Z, y, X_std=std)
    want.coef_, want.intercept_ = alone.coef_, alone.intercept_
    assert_allclose(alone.predict_proba(Z, X_std=std), want.predict_proba(Z, X_std=std))
    assert_allclose(alone.flip_probability(Z, X_std=std), want.flip_probability(Z, X_std=std))


def test_rows_that_are_asked_about_are_what_they_are(rows):
    X, y = rows
    model = GaussianRobustClassifier(DropoutNoise(0.3)).fit(X, y)
    p = 1 / (1 + np.exp(-model.decision_function(X)))
    assert_allclose(model.predict_proba(X)[:, 1], p, rtol=1e-9)
    with pytest.raises(ValueError, match="what training is ready for"):
        model.flip_probability(X)


def test_the_ridge_is_chosen_under_deletion(rows, rng):
    X, y = rows
    model = GaussianRobustClassifierCV(noise=DropoutNoise(0.5), alphas=[100.0, 1.0, 0.01], cv=3).fit(X, y)
    assert model.alpha_ in (100.0, 1.0, 0.01)
    # what a fold's score is, by definition
    from sklearn.model_selection import StratifiedKFold

    found = []
    for own, other in StratifiedKFold(3).split(X, y):
        fit = GaussianRobustClassifier(DropoutNoise(0.5), alpha=1.0).fit(X[own], y[own])
        gone = rng.uniform(size=(500, len(other), D)) < 0.5
        found.append(
            np.mean(
                fit.predict(np.where(gone, X[other].mean(axis=0), X[other]).reshape(-1, D)).reshape(500, -1) == y[other]
            )
        )
    assert model.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(found), abs=0.04)
    with pytest.raises(ValueError, match="State its share instead"):
        GaussianRobustClassifierCV(noise=DropoutNoise(0.5), deploy_noise=2, cv=3).fit(X, y)
    with pytest.raises(ValueError, match="State its share instead"):
        noise_path(X, y, [1.0], noise=DropoutNoise(0.5))


def test_robust_classifiers_average_over_it_and_over_sets_around(rows):
    X, y = rows
    noise = DropoutNoise(P, filler=A)
    middle, rest = noise.mean_rows(X), noise.at(X, {}).as_metadata(*X.shape)
    got = RobustLinearClassifier(noise).fit(X, y)
    want = RobustLinearClassifier(GaussianNoise()).fit(middle, y, **rest)
    assert_allclose(got.coef_, want.coef_, rtol=1e-4, atol=1e-6)
    got = RobustLinearClassifier(noise + Box(0.1)).fit(X, y)
    want = RobustLinearClassifier(GaussianNoise() + Box(half_widths=np.full(D, 0.1))).fit(middle, y, **rest)
    assert_allclose(got.coef_, want.coef_, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="State one"):
        RobustLinearClassifier(noise + FeatureDeletion(1)).fit(X, y)
    with pytest.raises(ValueError, match="uncertainty__share"):
        RobustLinearClassifierCV([1.0, 0.5], uncertainty=noise, cv=2).fit(X, y)


@pytest.mark.parametrize("kind", [MinimaxProbabilityClassifier, RobustKernelClassifier])
def test_what_takes_rows_as_they_are_refuses_it(rows, kind):
    with pytest.raises(ValueError, match="does not follow"):
        kind(uncertainty=DropoutNoise(0.3)).fit(*rows)


def test_copies_and_curves_draw_from_it(rows):
    X, y = rows
    model = NoiseCopies(LogisticRegression(), 5, uncertainty=DropoutNoise(0.5)).fit(X, y)
    assert model.score(X, y) > 0.6
    curve = robustness_curve(
        {"m": LogisticRegression().fit(X, y)}, X, y, DropoutNoise(1.0, filler=0.0), [0.0, 0.5, 0.9], n_repeats=3
    )
    assert "share of entries that are missing" in str(curve)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (DropoutNoise(1.0), "from 0 to below 1"),
        (DropoutNoise(-0.1), "from 0 to below 1"),
        (DropoutNoise([0.1, 0.2]), "share"),
        (DropoutNoise("some"), "'observed'"),
        (DropoutNoise(0.2, filler="median"), "'mean'"),
        (DropoutNoise(0.2, filler=[1.0]), "filler"),
    ],
    ids=repr,
)
def test_wrong_numbers_are_refused(rows, wrong, said):
    with pytest.raises(ValueError, match=said):
        GaussianRobustClassifier(wrong).fit(*rows)


@pytest.mark.parametrize("noise", [DropoutNoise(0.3), DropoutNoise("observed", filler=0.0)])
def test_parts_of_the_rows_are_refused_where_means_of_all_are_needed(rows, noise):
    X, y = rows
    with pytest.raises(ValueError, match=r"sees a part at a time. Give numbers"):
        GaussianRobustClassifier(noise).partial_fit(X, y, classes=np.unique(y))
    GaussianRobustClassifier(DropoutNoise(0.3, filler=X.mean(axis=0))).partial_fit(X, y, classes=np.unique(y))
