"""LaplaceBoostClassifier: what it learns, what its votes are, what it refuses, and its bound on new rows."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.inspection import partial_dependence
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from holdfast import LaplaceBoostClassifier, certified_radius
from holdfast._core.solution import Status
from holdfast._training.laplace import train_laplace
from holdfast._training.laplace_tail import train_tail
from holdfast.estimators import pac_bayes_bound
from holdfast.exceptions import NoCertificateError
from holdfast.losses import LogVote, laplace_kl, laplace_tail
from holdfast.solvers import CoordinateDescent

SETTINGS = [
    {},
    {"loss": "exp", "c": 0.3},
    {"loss": "tail"},
    {"base": "stumps", "n_knots": 4},
    {"base": "splines", "n_knots": 4, "loss": "tail"},
    {"base": "splines", "n_knots": 4, "prior_scale": 0.5, "scale": "fixed"},
]
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=str)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(120, 3))
    return X, np.where(X[:, 0] + 0.4 * X[:, 1] ** 2 + 0.3 * rng.normal(size=120) > 0.3, "yes", "no")


@every_setting
def test_fits_are_proved_and_predict_the_majority(setting, data, rng):
    X, y = data
    model = LaplaceBoostClassifier(**setting).fit(X, y)
    assert 0 <= model.gap_ < 1e-6
    assert model.lower_bound_ <= model.objective_
    assert model.score(X, y) > 0.8
    assert model.solution_["status"] == "solved"
    path = model.objective_path_[0]
    assert np.all(np.diff(path) <= 1e-10 * path[:-1])
    assert model.mu_.shape == model.sigma_.shape == (1, model.learners_.n_learners)
    shares, new = model.predict_proba(X), rng.normal(size=(50, 3))
    assert_allclose(shares.sum(axis=1), 1.0)
    assert_allclose(model.decision_function(X), shares[:, 1] - shares[:, 0], atol=1e-12)
    assert_array_equal(model.predict(new), model.classes_[(model.mean_scores(new)[:, 0] > 0).astype(int)])
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert np.all(model.importance_scales_ > 0)


@every_setting
def test_shares_are_those_of_drawn_voters(setting, data, rng):
    X, y = data
    model = LaplaceBoostClassifier(**setting).fit(X, y)
    outputs = model.learners_.outputs(X[:6], None).dense(slice(None))
    draws = model.mu_[0] + model.sigma_[0] * rng.laplace(size=(60_000, outputs.shape[1]))
    assert_allclose(model.predict_proba(X[:6])[:, 1], (draws @ outputs.T > 0).mean(axis=0), atol=0.01)
    errors = model.gibbs_errors(X[:6], y[:6])
    assert_allclose(errors, np.where(y[:6] == "yes", *model.predict_proba(X[:6]).T), atol=1e-12)
    drawn = model.predict_gibbs(np.tile(X[:6], (3000, 1)), random_state=0).reshape(3000, 6) == y[:6]
    assert_allclose(drawn.mean(axis=0), 1 - errors, atol=0.05)


@every_setting
def test_objective_is_divergence_plus_losses_of_the_outputs(setting, data):
    X, y = data
    model = LaplaceBoostClassifier(**setting).fit(X, y)
    outputs, signs = model.learners_.outputs(X, None).dense(slice(None)), np.where(y == "yes", 1, -1)
    mu, s, z = model.mu_[0], model.sigma_[0], signs * model.mean_scores(X)[:, 0]
    tau = np.append(np.full(len(mu) - 1, setting.get("prior_scale", 1.0)), 1.0)
    divergence = laplace_kl(mu, s, prior_scale=tau)
    assert model.divergence_ == pytest.approx(divergence)
    v = -np.log(1 - np.square(outputs * s)).sum(axis=1) - z if setting.get("loss") != "tail" else z
    losses = {"log": LogVote().value, "exp": np.exp}.get(setting.get("loss", "log"))
    if losses is None:  # the tail itself for rows that the majority gets right
        right = z >= 0
        found = model.gibbs_errors(X, y)
        assert_allclose(found, laplace_tail(z, s * np.abs(outputs)), atol=1e-10)
        assert divergence + found[right].sum() < model.objective_
        assert divergence + found.sum() <= model.objective_ * (1 + 1e-9)
    else:
        assert model.objective_ == pytest.approx(divergence + model.c_ * losses(v).sum(), rel=1e-9)


def test_weights_count_rows_and_order_does_not_matter(data, rng):
    X, y = data
    weights = rng.integers(0, 3, size=len(y))
    for setting in SETTINGS[:5]:
        model = LaplaceBoostClassifier(**setting)
        one = clone(model).fit(X, y, weights)
        other = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        assert one.objective_ == pytest.approx(other.objective_, rel=1e-5)
        order = rng.permutation(len(y))
        shuffled = clone(model).fit(X[order], y[order], weights[order])
        assert_allclose(shuffled.predict_proba(X), one.predict_proba(X), atol=1e-4)


def test_sparse_rows_are_the_same_rows(data):
    X, y = data
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    for setting in SETTINGS[:5]:
        dense, thin = (LaplaceBoostClassifier(**setting).fit(rows, y) for rows in (X, sparse.csr_matrix(X)))
        assert thin.objective_ == pytest.approx(dense.objective_, rel=1e-8)
        assert_allclose(thin.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-5)


def test_units_do_not_matter_where_ranges_are_known(data):
    X, y = data
    ranges, units = np.array([[-4.0, 4.0], [-4.0, 3.0], [-5.0, 4.0]]), np.array([1e-6, 1.0, 1e6])
    for base in ("linear", "stumps", "splines"):
        options = {"base": base, "n_knots": 5}
        one = LaplaceBoostClassifier(feature_range=ranges, **options).fit(X, y)
        other = LaplaceBoostClassifier(feature_range=ranges * units[:, None], **options).fit(X * units, y)
        assert_allclose(one.predict_proba(X), other.predict_proba(X * units), atol=1e-6)


def test_several_classes_are_fitted_one_against_the_rest(several_classes):
    X, y = several_classes()
    model = LaplaceBoostClassifier(c=1.0).fit(X, y)
    assert model.mu_.shape == (3, 4)
    single = LaplaceBoostClassifier(c=1.0).fit(X, y == 1)
    assert_allclose(model.mu_[1], single.mu_[0], atol=1e-3)
    assert len(model.objective_path_) == 3
    assert_array_equal(model.predict(X), model.classes_[np.argmax(model.predict_proba(X), axis=1)])
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="3 classes; use it with two"):
        model.gibbs_errors(X, y)


def test_rows_that_are_sure_of_their_noise_are_those_without_any(data):
    X, y = data
    for base in ("stumps", "splines"):
        model = LaplaceBoostClassifier(base=base, n_knots=5)
        plain = clone(model).fit(X, y)
        exact = clone(model).fit(X, y, X_std=np.zeros_like(X))
        assert_allclose(exact.predict_proba(X, X_std=np.zeros_like(X)), plain.predict_proba(X), atol=1e-4)
        noisy = clone(model).fit(X, y, X_std=np.full(X.shape, 0.5))
        with pytest.warns(UserWarning, match="gets none here"):
            noisy.predict(X)
        lead = np.abs(noisy.mean_scores(X, X_std=np.full(X.shape, 0.1))).mean()
        assert np.abs(noisy.mean_scores(X, X_std=np.full(X.shape, 50.0))).mean() < lead


def test_outputs_under_noise_are_means_of_draws(data, rng):
    X, y = data
    for base in ("stumps", "splines"):
        learners = LaplaceBoostClassifier(base=base, n_knots=4).fit(X, y).learners_
        std = np.array([[0.3, 0.0, 1.5]])
        draws = X[:1] + std * rng.normal(size=(100_000, 3))
        mean = learners.outputs(draws, None).dense(slice(None)).mean(axis=0)
        assert_allclose(learners.outputs(X[:1], std).dense(slice(None))[0], mean, atol=0.012)
    stumps = LaplaceBoostClassifier(base="stumps", n_knots=1, feature_range=(-4, 4)).fit(X, y).learners_
    found = stumps.outputs(X, np.full(X.shape, 0.7)).dense(slice(None))[:, :3]
    assert_allclose(found, 2 * ndtr(X / 0.7) - 1)


def test_an_error_bar_where_the_row_is_wrong_helps(rng):
    X = rng.uniform(-1, 1, size=(600, 3))
    y = (X[:, 0] > 0).astype(int)
    std = np.where(rng.uniform(size=X.shape) < 0.3, 2.0, 0.0)
    noisy = X + std * rng.normal(size=X.shape)
    train, test = slice(0, 300), slice(300, 600)
    model = LaplaceBoostClassifier(base="stumps", feature_range=(-1, 1))
    told = clone(model).fit(noisy[train], y[train], X_std=std[train])
    plain = clone(model).fit(noisy[train], y[train])
    logs = [
        -np.log(np.maximum(found[np.arange(300), y[test]], 1e-12)).mean()
        for found in (told.predict_proba(noisy[test], X_std=std[test]), plain.predict_proba(noisy[test]))
    ]
    assert logs[0] < logs[1]


def test_given_learners_vote(data):
    X, y = data
    signs = np.where(y == "yes", 1, -1)
    trees = [
        DecisionTreeClassifier(max_depth=1, random_state=k, max_features=1).fit(X[:60], signs[:60]) for k in range(5)
    ]
    model = LaplaceBoostClassifier(base=[*trees, lambda X: np.tanh(X[:, 0])]).fit(X, y)
    assert model.mu_.shape == (1, 7)
    assert model.feature_importances_.shape == (6,)
    assert model.score(X, y) > 0.7
    with pytest.raises(ValueError, match=r"learner 0 .*from -1 to 1 for each row"):
        LaplaceBoostClassifier(base=[lambda X: 2 * np.ones(len(X))]).fit(X, y)


def test_a_round_of_boosting_takes_the_stump_of_least_weighted_error(data):
    X, y = data
    signs = np.where(y == "yes", 1.0, -1.0)
    model = LaplaceBoostClassifier(
        base="stumps", n_knots=6, scale=0.1, fit_intercept=False, solver=CoordinateDescent("greedy"), max_iter=1
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    says = model.learners_.outputs(X, None).dense(slice(None))
    [chosen] = np.flatnonzero(model.mu_[0])
    wrong = np.minimum((says != signs[:, None]).mean(axis=0), (says == signs[:, None]).mean(axis=0))
    assert wrong[chosen] == wrong.min()


def test_warm_starts_and_other_solvers_come_to_the_same(data):
    X, y = data
    model = LaplaceBoostClassifier(c=0.3, warm_start=True).fit(X, y)
    first, objective = model.n_iter_, model.objective_
    assert model.fit(X, y).n_iter_ < first
    for solver in ("quasi_newton", "coordinate_descent", CoordinateDescent("parallel")):
        found = LaplaceBoostClassifier(c=0.3, solver=solver, max_iter=5000).fit(X, y)
        assert found.objective_ == pytest.approx(objective, rel=1e-6)
    with pytest.raises(ValueError, match="needs the view Coordinatewise"):
        LaplaceBoostClassifier("tail", solver="coordinate_descent").fit(X, y)


@pytest.mark.parametrize("seed", [0, 4, 11])
def test_exponential_losses_of_raw_columns_do_not_stall(seed):
    X, y = load_breast_cancer(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, random_state=seed, stratify=y)
    model = LaplaceBoostClassifier("exp").fit(X, y)
    assert model.gap_ < 1e-6
    assert model.objective_ == pytest.approx(LaplaceBoostClassifier("exp", solver="quasi_newton").fit(X, y).objective_)


def test_thousands_of_learners_and_one_do_no_harm(rng):
    X = rng.choice([-1.0, 1.0], size=(60, 5000))
    y = X[:, 0] > 0
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = LaplaceBoostClassifier(max_iter=30).fit(X, y)
    assert 0 < model.lower_bound_ < model.objective_ < np.inf
    assert np.all(np.isfinite(model.mu_))
    assert model.score(X, y) > 0.9
    one = LaplaceBoostClassifier().fit(X[:, :1], y)
    assert one.gap_ < 1e-6
    assert one.score(X[:, :1], y) == 1.0


def test_strange_columns_do_no_harm(data):
    X, y = data
    strange = np.column_stack([X, np.full(120, 7.0), np.zeros(120), 1e12 * X[:, 0], 1e-12 * X[:, 1]])
    for setting in SETTINGS[:5]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the tail takes columns as they are
            model = LaplaceBoostClassifier(**setting).fit(strange, y)
        assert np.all(np.isfinite(model.predict_proba(strange)))
        assert model.gap_ < 1e-6 or setting.get("loss") == "tail"


def test_frames_and_partial_dependence(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LaplaceBoostClassifier(base="stumps", n_knots=4).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    found = partial_dependence(model, frame, ["a"], grid_resolution=5)["average"][0]
    assert found[-1] > found[0]
    with pytest.raises(ValueError, match="matched by position"):
        model.fit(frame, y, X_std=frame[["b", "a", "c"]])


def test_linear_votes_of_two_classes_are_certified(data):
    X, y = data
    model = LaplaceBoostClassifier().fit(X, y)
    radius = certified_radius(model, X).radius
    lead = model.mean_scores(X)[:, 0]
    slopes = model.mu_[0, :3] / model.learners_.limits
    assert_allclose(radius, np.abs(lead) / np.linalg.norm(slopes), rtol=1e-6)
    for other in (LaplaceBoostClassifier(base="stumps"), LaplaceBoostClassifier()):
        labels = y if other.base == "stumps" else np.arange(len(y)) % 3
        with pytest.raises(NoCertificateError):
            certified_radius(other.fit(X, labels), X)


NONSENSE = [
    ({"loss": "hinge"}, r"loss='hinge'\): give 'log', 'exp' or 'tail', or a VoteLoss object"),
    ({"c": 0}, r"c=0\): must be a finite number > 0"),
    ({"base": "trees"}, r"base='trees'\): give 'linear'"),
    ({"base": []}, r"base=\[\]\): give 'linear', 'stumps' or 'splines', or a list of one or more"),
    ({"base": np.ones(2)}, r"base=array.*each of which is a fitted classifier"),
    ({"feature_range": (1, 1)}, r"feature_range=\(1, 1\)\): give \(low, high\)"),
    ({"feature_range": np.zeros((2, 2))}, r"in an array of shape \(3, 2\)"),
    ({"scale": 2.0}, "its scale is 2; their product must be below 1"),
    ({"prior_scale": 0}, r"prior_scale=0\): must be > 0"),
    ({"prior_scale": [1.0, 2.0]}, r"prior_scale has shape \(2,\)"),
    ({"prior_mean": 1.0, "loss": "tail"}, "prior_mean must be 0 with this loss"),
    ({"solver": "highs"}, "needs the view LinearProgram"),
    ({"solver": "sgd"}, "Linear classifiers such as GaussianRobustClassifier offer it"),
    ({"prior_mean": np.nan}, r"prior_mean=nan\): must be finite numbers\.$"),
    ({"prior_mean": "a"}, r"prior_mean='a'\): give real numbers\.$"),
    (
        {"prior_scale": np.ones(3), "base": "stumps", "n_knots": 4},
        r"each of the 12 learners without the intercept, \(12,\)\.$",
    ),
    (
        {"base": "stumps", "n_knots": 10**9, "feature_range": (-1, 1)},
        "3000000000 learners, more than 1e.07. Use a smaller n_knots",
    ),
    ({"base": "splines", "n_knots": 10**9}, "Use a smaller n_knots"),
    (
        {"loss": "exp", "base": "stumps", "n_knots": 200, "scale": 0.95},
        r"ExpVote\(\): .*overflows.*Use a smaller scale or scale='joint', or loss='log'\.$",
    ),
    (
        {"loss": "exp", "prior_mean": [-2e3, 0, 0], "scale": 0.1},
        r"overflows.*scale='joint', or prior_mean nearer to 0, or loss='log'\.$",
    ),
    ({"loss": "exp", "prior_mean": [-2e3, 0, 0]}, r"overflows.*row \d+ .*Use prior_mean nearer to 0, or loss='log'\.$"),
]


@pytest.mark.parametrize(("setting", "text"), NONSENSE, ids=lambda value: f"{value!r:.40}")
def test_nonsense_is_refused(setting, text, data):
    with pytest.raises(ValueError, match=text):
        LaplaceBoostClassifier(**setting).fit(*data)


def test_rows_that_cannot_be_used_are_refused(data):
    X, y = data
    with pytest.raises(ValueError, match=r"X contains NaN.*SpreadImputer"):
        LaplaceBoostClassifier().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match=r"X contains NaN.*SpreadImputer"):
        LaplaceBoostClassifier().fit(sparse.csr_array(np.where(X > 2, np.nan, X)), y)
    with pytest.raises(ValueError, match="one class only"):
        LaplaceBoostClassifier().fit(X, np.zeros(120))
    with pytest.raises(ValueError, match="zero for every row of class"):
        LaplaceBoostClassifier().fit(X, y, y == "yes")
    with pytest.raises(ValueError, match="noise does not change the average of a column"):
        LaplaceBoostClassifier().fit(X, y, X_std=np.ones_like(X))
    with pytest.raises(ValueError, match="X_std"):
        LaplaceBoostClassifier(base="stumps").fit(X, y, X_std=-np.ones_like(X))
    for std in (0.1, np.ones((2, 2))):
        with pytest.raises(ValueError, match=r"fit: X_std has shape .*; give that of X, \(120, 3\)\.$"):
            LaplaceBoostClassifier(base="stumps").fit(X, y, X_std=std)


def test_a_fit_that_is_cut_short_says_so(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=r"Certified gap .* max_iter"):
        model = LaplaceBoostClassifier(max_iter=1, base="splines").fit(X, y)
    assert model.gap_ > 1e-6
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        LaplaceBoostClassifier("tail", max_iter=1).fit(X, y)


def test_advice_is_for_the_true_cause(data, monkeypatch):
    def stalled(*args, **options):
        found, proof = train_laplace(*args, **options)
        return replace(found, status=Status.STALLED), proof

    monkeypatch.setattr("holdfast._training.laplace_votes.train_laplace", stalled)
    X, y = data
    X[:, 0] += np.sign(X[:, 0])
    for labels, solver, text in (
        (y, None, r"tol 1e-06\. Put columns on similar scales \(StandardScaler\), use a smaller c"),
        (y, "quasi_newton", r"tol 1e-06\. Use solver=None\. Put columns"),
        (X[:, 0] > 0, None, "separate the classes without error.*smaller c"),
    ):
        with pytest.warns(ConvergenceWarning, match=text):
            LaplaceBoostClassifier(solver=solver).fit(X, labels)


@pytest.mark.parametrize(
    ("scale", "solver", "status", "text"),
    [
        ("joint", None, Status.UNCERTIFIED, r"tol 1e-06\. The bound over all scales could not be raised"),
        ("joint", "newton", Status.STALLED, r"Use solver=None\. Put columns on similar scales"),
        (0.1, None, Status.UNCERTIFIED, r"tol 1e-06\. Put columns on similar scales"),
        (0.1, "newton", Status.ITERATION_LIMIT, "Raise max_iter"),
    ],
)
def test_advice_for_the_tail_names_no_scales_where_there_are_no_others(scale, solver, status, text, data, monkeypatch):
    def unsolved(*args, **options):
        found = train_tail(*args, **options)
        return found._replace(solution=replace(found.solution, status=status))

    monkeypatch.setattr("holdfast._training.laplace_votes.train_tail", unsolved)
    with pytest.warns(ConvergenceWarning, match=text):
        LaplaceBoostClassifier("tail", scale=scale, solver=solver).fit(*data)


@pytest.mark.parametrize("several", [False, True])
def test_tails_of_clean_rows_and_a_large_c_are_certified(several):
    X, y = load_wine(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), y if several else y == 1
    model = LaplaceBoostClassifier("tail", c=100).fit(X, y)
    assert model.gap_ < 1e-6
    assert model.objective_ == pytest.approx(
        LaplaceBoostClassifier("tail", c=100, solver="quasi_newton").fit(X, y).objective_
    )
    assert model.score(X, y) == 1.0


def test_exponential_losses_of_ramps_and_a_large_c_are_certified():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = LaplaceBoostClassifier("exp", base="splines", n_knots=5, c=100).fit(X, y)
    assert model.gap_ < 1e-6
    assert model.objective_ == pytest.approx(319.66636, rel=1e-6)
    assert model.n_iter_ < 60


def test_an_exponential_loss_that_falls_step_by_step_is_followed_to_its_end(data):
    X, _ = data
    model = LaplaceBoostClassifier("exp", prior_mean=[-600.0, 0.0, 0.0]).fit(np.sign(X), X[:, 0] > 0)
    assert model.solution_["solver"] == "newton"
    assert model.gap_ < 1e-6
    assert 500 < model.n_iter_ < 1000


@pytest.mark.parametrize("loss", ["log", "exp", "tail"])
def test_gaps_of_objectives_next_to_nothing_are_small(loss, data):
    model = LaplaceBoostClassifier(loss, c=1e-300).fit(*data)
    assert 0 <= model.gap_ < 1e-6


@pytest.mark.parametrize("loss", ["log", "tail"])
def test_bound_is_its_formula_and_above_the_error_of_new_rows(loss, rng):
    X = rng.uniform(-1, 1, size=(6000, 3))
    y = 0.2 * rng.normal(size=6000) < X @ [1.0, 0.5, 0.2]
    model = LaplaceBoostClassifier(loss, feature_range=(-1, 1), tol=1e-4).fit(X[:2000], y[:2000])
    found = pac_bayes_bound(model, X[:2000], y[:2000], 0.1, c=[0.3, 1.0])
    S, KL = model.gibbs_errors(X[:2000], y[:2000]).sum(), model.divergence_
    formula = [(1 - np.exp(-(c * S + KL + np.log(2 / 0.1)) / 2000)) / (1 - np.exp(-c)) for c in (0.3, 1.0)]
    assert found.bound == pytest.approx(min(formula))
    true = model.gibbs_errors(X[2000:], y[2000:]).mean()
    assert found.empirical < found.kl_bound < 0.5
    assert true < min(found.bound, found.kl_bound)
    assert np.mean(model.predict(X[2000:]) != y[2000:]) < found.majority_bound
    fewer = pac_bayes_bound(model, X[:500], y[:500], 0.1)
    assert fewer.kl_bound > found.kl_bound
    assert pac_bayes_bound(model, X[:2000], y[:2000], 1e-6).bound > found.bound


def test_bound_is_refused_where_it_would_not_hold(data):
    X, y = data
    for base in ("linear", "stumps", "splines"):
        model = LaplaceBoostClassifier(base=base, n_knots=3).fit(X, y)
        with pytest.raises(ValueError, match=r"training (rows|values).*State feature_range"):
            pac_bayes_bound(model, X, y)
        model.set_params(feature_range=(-5, 5)).fit(X, y)
        assert pac_bayes_bound(model, X, y).bound <= 1
    assert pac_bayes_bound(LaplaceBoostClassifier("tail").fit(X, y), X, y).bound <= 1  # columns as they are
    with pytest.raises(ValueError, match="give a fitted LaplaceBoostClassifier"):
        pac_bayes_bound(RandomForestClassifier(3).fit(X, y), X, y)
    with pytest.raises(ValueError, match=r"Pipeline.*the last step, model\[-1\]"):
        pac_bayes_bound(make_pipeline(StandardScaler(), LaplaceBoostClassifier()).fit(X, y), X, y)
    noisy = LaplaceBoostClassifier(base="stumps", feature_range=(-5, 5)).fit(X, y, X_std=np.full(X.shape, 0.2))
    with pytest.warns(UserWarning, match="^pac_bayes_bound: the model was fitted with X_std") as caught:
        assert pac_bayes_bound(noisy, X, y).bound <= 1
    assert len(caught) == 1
    for delta in (1.5, 0, -1.0, "a", np.nan):
        with pytest.raises(ValueError, match=r"delta=.* must be a number between 0 and 1"):
            pac_bayes_bound(model, X, y, delta)
    with pytest.raises(ValueError, match="has 3 classes"):
        pac_bayes_bound(LaplaceBoostClassifier(feature_range=(-5, 5)).fit(X, np.arange(120) % 3), X, y)
    with pytest.raises(ValueError, match="y contains"):
        pac_bayes_bound(model, X, np.arange(120))


@pytest.mark.slow
def test_bound_fails_no_more_often_than_it_may():
    rng = np.random.default_rng(0)
    population = rng.uniform(-1, 1, size=(60, 2))
    labels = population[:, 0] + 0.8 * rng.normal(size=60) > 0
    failures, n = np.zeros(2), 1000
    for _ in range(n):
        rows = rng.integers(0, 60, size=30)
        if len(set(labels[rows])) < 2:
            continue
        model = LaplaceBoostClassifier(c=rng.choice([0.3, 3.0]), feature_range=(-1, 1), tol=1e-2)
        model.fit(population[rows], labels[rows])
        found, true = (
            pac_bayes_bound(model, population[rows], labels[rows], 0.2),
            model.gibbs_errors(population, labels).mean(),
        )
        failures += [true > found.bound, true > found.kl_bound]
    print(failures / n)
    assert np.all(failures / n <= 0.2)
