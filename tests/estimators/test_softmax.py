"""The logistic loss of several classes: softmax regression, what it is under noise, and what is fitted otherwise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    ModeratedClassifier,
    RobustLinearClassifier,
)
from holdfast.estimators import noise_path
from holdfast.losses import ExpectedSquaredHinge
from holdfast.solvers import SGD

ALPHA = 0.3


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def wine_errors(wine):
    return np.random.default_rng(3).uniform(0.1, 0.8, size=wine[0].shape)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csr_array, lambda X: X.astype("f")], ids=["dense", "sparse", "single"]
)
def test_without_noise_it_is_softmax_regression(make, class_weight, fit_intercept, wine):
    X, y = wine
    options = {"fit_intercept": fit_intercept, "class_weight": class_weight}
    weights = np.random.default_rng(0).uniform(0.5, 2, size=len(y))
    # alpha |W|^2 is |W|^2 / (2 C)
    theirs = LogisticRegression(C=0.5 / ALPHA, solver="newton-cholesky", tol=1e-12, **options).fit(X, y, weights)
    ours = GaussianRobustClassifier(alpha=ALPHA, **options).fit(make(X), y, weights)
    slack = 1e-4 if make(X).dtype == np.float32 else 1e-6
    assert ours.gap_ <= 1e-6
    assert ours.multiclass_ == "joint"
    assert_allclose(ours.coef_, theirs.coef_ - theirs.coef_.mean(axis=0), atol=slack)
    assert_allclose(ours.intercept_, theirs.intercept_ - theirs.intercept_.mean(), atol=slack)
    assert_allclose(ours.predict_proba(make(X)), softmax(theirs.decision_function(X), axis=1), atol=slack)
    totals = np.bincount(y, weights)
    c = weights * (1.0 if class_weight is None else (totals.sum() / 3 / totals)[y])
    losses = -np.log(theirs.predict_proba(X)[np.arange(len(y)), y])
    assert_allclose(ours.objective_, c @ losses + ALPHA * np.sum(theirs.coef_**2), rtol=slack)
    # the same problem as that of the largest loss of sets without extent
    worst = RobustLinearClassifier(Ball(0.0), loss="logistic", multiclass="joint", alpha=ALPHA, **options)
    assert_allclose(worst.fit(X, y, weights).objective_, ours.objective_, rtol=slack)


def test_probabilities_are_near_those_of_rows_measured_again(wine, wine_errors, rng):
    X, y = wine
    model = GaussianRobustClassifier().fit(X, y, X_std=wine_errors)
    rows, S = X[::9], 2 * wine_errors[::9]
    drawn = rows + S * rng.normal(size=(4000, *rows.shape))
    scores = model.decision_function(drawn.reshape(-1, 13))
    exact = softmax(scores, axis=1).reshape(4000, -1, 3).mean(axis=0)
    given = model.predict_proba(rows, X_std=S)
    plain = softmax(model.decision_function(rows), axis=1)
    assert_allclose(given, exact, atol=0.03)
    assert np.abs(given - exact).sum() < 0.4 * np.abs(plain - exact).sum()
    moderated = ModeratedClassifier(GaussianRobustClassifier()).fit(X, y, X_std=wine_errors)
    assert moderated.link_ == "softmax"


def test_kernel_has_the_fit_of_its_coordinates(wine):
    X, y = wine
    kernel = GaussianRobustClassifier(0.2, kernel=lambda a, b: a @ b, alpha=ALPHA).fit(X, y)
    linear = GaussianRobustClassifier(0.2, alpha=ALPHA).fit(X, y)
    assert kernel.gap_ <= 1e-6
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-9)
    assert_allclose(kernel.predict_proba(X), linear.predict_proba(X), atol=1e-6)


def test_wide_sparse_rows_are_certified(rng):
    words = rng.zipf(1.3, size=(300, 30)) % 2000
    X = sparse.csr_array((np.ones(9000), (np.repeat(np.arange(300), 30), words.ravel())), shape=(300, 2000))
    X.sum_duplicates()
    y = np.argmax(X @ rng.normal(size=(2000, 3)) + rng.gumbel(size=(300, 3)), axis=1)
    noise = GaussianNoise(std=rng.uniform(0.1, 0.5, size=2000))
    model = GaussianRobustClassifier(noise).fit(X, y)
    assert model.solution_["solver"] == "newton_cg"
    assert model.gap_ <= 1e-6
    assert_allclose(
        GaussianRobustClassifier(noise, tol=1e-9).fit(X.toarray(), y).objective_, model.objective_, rtol=1e-6
    )


def test_searches_and_paths_take_the_way_too(wine):
    X, y = wine
    for way in ("joint", "ovr"):
        found = GaussianRobustClassifierCV([0.5, 0.1], multiclass=way, cv=3).fit(X, y)
        plain = GaussianRobustClassifier(found.noise_, multiclass=way).fit(X, y)
        assert found.multiclass_ == way
        assert_allclose(found.objective_, plain.objective_, rtol=2e-6)
        assert_allclose(found.predict_proba(X), plain.predict_proba(X), atol=1e-3)
        path = noise_path(X, y, [0.5, 0.1], multiclass=way)
        assert_allclose(
            path.objectives[0], GaussianRobustClassifier(0.5, multiclass=way).fit(X, y).objective_, rtol=2e-6
        )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_known_one_against_the_rest_alone_is_fitted_so(wine):
    X, y = wine
    for model in (
        GaussianRobustClassifier(0.3, link="moderated"),
        GaussianRobustClassifier(0.3, loss=ExpectedSquaredHinge()),
        GaussianRobustClassifier(0.3, solver=SGD(epochs=2, eta0=0.1, bound=5.0)),
    ):
        assert model.fit(X, y).multiclass_ == "ovr"
        with pytest.raises(ValueError, match=r"multiclass='joint'.*With 3 classes use multiclass='ovr'"):
            model.set_params(multiclass="joint").fit(X, y)
        # with two there is nothing to choose
        model.fit(X[y < 2], y[y < 2])
    streamed = GaussianRobustClassifier(0.3).partial_fit(X, y, classes=[0, 1, 2])
    assert streamed.multiclass_ == "ovr"
    assert_array_equal(streamed.predict_proba(X).argmax(axis=1), streamed.predict(X))
    with pytest.raises(ValueError, match=r"multiclass='joint', solver=None.*partial_fit.*use multiclass='ovr'"):
        GaussianRobustClassifier(0.3, multiclass="joint").partial_fit(X, y, classes=[0, 1, 2])


def test_ways_that_are_not_known_are_refused(wine):
    X, y = wine
    with pytest.raises(ValueError, match=r"loss='hinge', multiclass='ovr'.*added up over all pairs"):
        GaussianRobustClassifier(0.3, loss="hinge", multiclass="ovr").fit(X, y)
    assert (
        GaussianRobustClassifier(GaussianNoise(0.3), loss="hinge", multiclass="joint").fit(X, y).multiclass_ == "joint"
    )
    with pytest.raises(ValueError, match=r"multiclass='softmax'.*give 'joint'"):
        GaussianRobustClassifier(multiclass="softmax").fit(X, y)
