"""Training through the moderated link, E log(1 + exp(-y r (f + tZ))), from the certified logistic solution downhill."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from holdfast import Box, GaussianNoise, GaussianRobustClassifier, make_uncertain_pipeline
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._training.moderated_link import Moderated, moderated, moderation, objective
from holdfast.losses import ExpectedLogistic, Logistic
from holdfast.solvers import SGD

SETTINGS = [
    {},
    {"fit_intercept": False},
    {"class_weight": {0: 1.0, 1: 3.0}},
    {"alpha": 0.01},
]
NOISES = ["X_std", "sparse X_std", "X_cov", "X_factor", "std", "cov"]


@pytest.fixture(scope="module")
def rows():
    """Rows of which some are measured badly, their deviations, labels of two classes, and weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = (X @ [1.0, -1.0, 0.5] + 0.7 * rng.normal(size=80) > 0.4).astype(int)
    return X, 0.5 * np.exp(rng.normal(size=X.shape)), y, rng.uniform(0.5, 2.0, size=80)


def stated(kind, S):
    """Return the noise in the words of the classifier, of `fit`, and as the covariance of each row."""
    rng = np.random.default_rng(1)
    F = S[:, :, None] * rng.normal(size=(*S.shape, 2))
    kept = S * (S > 0.4)
    C = F[0] @ F[0].T
    return {
        "X_std": (None, {"X_std": S}, S[:, :, None] ** 2 * np.eye(3)),
        "sparse X_std": (None, {"X_std": sparse.csr_array(kept)}, kept[:, :, None] ** 2 * np.eye(3)),
        "X_cov": (2.0, {"X_cov": F @ F.transpose(0, 2, 1)}, 4 * F @ F.transpose(0, 2, 1)),
        "X_factor": (None, {"X_factor": F}, F @ F.transpose(0, 2, 1)),
        "std": (0.8, {}, np.broadcast_to(0.64 * np.eye(3), (len(S), 3, 3))),
        "cov": (GaussianNoise(cov=C), {}, np.broadcast_to(C, (len(S), 3, 3))),
    }[kind]


NODES, WEIGHTS = (12 * part for part in np.polynomial.legendre.leggauss(240))


def by_quadrature(f, t, y):
    """Return E log(1 + exp(-y r (f + tZ))) by Gauss and Legendre, Z from -12 to 12."""
    f, t, y = (np.asarray(part, dtype=float)[..., None] for part in (f, t, y))
    r = (1 + np.pi * t**2 / 8) ** -0.5
    density = np.exp(-(NODES**2) / 2) / np.sqrt(2 * np.pi)
    return np.logaddexp(0.0, -y * r * (f + t * NODES)) @ (density * WEIGHTS)


def test_the_loss_and_its_slopes_are_those_of_the_formula():
    link, step = Moderated(ExpectedLogistic()), 1e-5
    for u in (-30.0, -2.0, 0.0, 1.0, 3.0, 50.0):
        for t in (0.0, 0.3, 1.0, 4.0, 40.0):
            here = np.array([u]), np.array([t])
            expected = by_quadrature(1 - u, t, 1.0)
            value, slope, scale_slope = link.evaluate(*here)
            assert_allclose([link.value(*here)[0], value[0]], expected, rtol=1e-9, atol=1e-10)
            up, down = (link.value(here[0] + h, here[1])[0] for h in (step, -step))
            assert_allclose(slope[0], (up - down) / (2 * step), rtol=1e-5, atol=1e-7)
            if t > 0:
                up, down = (link.value(here[0], here[1] + h)[0] for h in (step, -step))
                assert_allclose(scale_slope[0], (up - down) / (2 * step), rtol=1e-4, atol=1e-6)


def test_it_is_not_convex_and_falls_with_noise_on_the_wrong_side():
    link, at_zero = Moderated(ExpectedLogistic()), np.ones(3)
    low, middle, high = link.value(at_zero, np.array([0.0, 50.0, 100.0]))
    assert_allclose([low, high], [np.log(2), 0.951], atol=1e-3)
    assert middle > (low + high) / 2 + 0.1
    wrong = link.value(np.full(3, 4.0), np.array([0.0, 2.0, 8.0]))
    assert np.all(np.diff(wrong) < 0)


def test_nothing_overflows():
    link = Moderated(ExpectedLogistic())
    u, t = (part.ravel() for part in np.meshgrid([-1e150, -1e8, 1.0, 1e8, 1e150], [0.0, 1e-150, 1.0, 1e8, 1e150]))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        parts = link.evaluate(u, t)
    assert np.all(np.isfinite(parts))
    assert_allclose(link.value(u, t), parts[0], rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", NOISES)
def test_the_gradient_is_that_of_the_objective(rows, kind, fit_intercept):
    X, S, y, weights = rows
    noise, metadata, _ = stated(kind, S)
    bound = GaussianRobustClassifier(noise).stated_uncertainty()[1].at(X, metadata)
    problem = moderated(
        MarginScaleProblem(rows_of(X), 2.0 * y - 1, weights, ExpectedLogistic(), bound, 0.3, fit_intercept)
    )
    theta = np.array([0.8, -1.2, 0.3, 0.4])[: problem.n_parameters]
    value, gradient = problem.value_and_gradient(theta)
    assert_allclose(value, objective(problem, theta), rtol=1e-11)
    for k, slope in enumerate(gradient):
        move = 1e-5 * np.eye(len(theta))[k]
        rise = (objective(problem, theta + move) - objective(problem, theta - move)) / 2e-5
        assert_allclose(slope, rise, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
def test_the_objective_is_by_quadrature_what_the_docstring_says_and_stationary(rows, kind, setting):
    X, S, y, weights = rows
    noise, metadata, C = stated(kind, S)
    model = GaussianRobustClassifier(noise, link="moderated", **setting).fit(X, y, weights, **metadata)
    c = weights * np.where(y == 1, setting.get("class_weight", {1: 1.0})[1], 1.0)
    alpha = setting.get("alpha", 1.0)

    def cost(w, b):
        f, t = X @ w + b, np.sqrt(np.einsum("i,nij,j->n", w, C, w))
        return float(c @ by_quadrature(f, t, 2.0 * y - 1)) + alpha / 2 * w @ w

    [w], [b] = model.coef_, model.intercept_
    here = cost(w, b)
    assert_allclose(model.objective_, here, rtol=1e-9)
    for k in range(3):
        move = 1e-4 * np.eye(3)[k]
        assert abs(cost(w + move, b) - cost(w - move, b)) / 2e-4 < 1e-4 * here
    start = GaussianRobustClassifier(noise, **setting).fit(X, y, weights, **metadata)
    assert here <= cost(start.coef_[0], start.intercept_[0])
    assert not np.allclose(model.coef_, start.coef_, rtol=1e-3)


def test_nothing_is_proved(rows):
    X, S, y, _ = rows
    model = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    assert (model.gap_, model.lower_bound_, model.norm_bound_) == (np.inf, -np.inf, np.inf)
    assert not model.collapsed_
    assert model.solution_["status"] == "solved"
    assert not hasattr(model, "proof_weights_")


@pytest.mark.parametrize(
    ("noise", "metadata"),
    [(None, {}), (None, {"X_std": np.zeros((80, 3))}), (0.0, {}), (None, {"X_factor": np.zeros((80, 3, 1))})],
    ids=["none", "X_std", "number", "X_factor"],
)
def test_without_noise_it_is_the_fit_without_a_link_to_the_last_digit(rows, noise, metadata):
    X, _, y, weights = rows
    plain = GaussianRobustClassifier(noise).fit(X, y, weights, **metadata)
    model = GaussianRobustClassifier(noise, link="moderated").fit(X, y, weights, **metadata)
    for name in ("coef_", "intercept_", "objective_", "lower_bound_", "gap_"):
        assert_array_equal(getattr(model, name), getattr(plain, name))
    assert model.gap_ < 1e-6
    assert_array_equal(model.predict_proba(X, **metadata), plain.predict_proba(X, **metadata))


def test_weights_are_repeated_rows(rows):
    X, S, y, _ = rows
    weights = np.arange(len(y)) % 3
    twice = np.repeat(np.arange(len(y)), weights)
    once = GaussianRobustClassifier(link="moderated").fit(X, y, weights, X_std=S)
    repeated = GaussianRobustClassifier(link="moderated").fit(X[twice], y[twice], X_std=S[twice])
    assert_allclose(once.coef_, repeated.coef_, rtol=1e-6)
    assert_allclose(once.objective_, repeated.objective_, rtol=1e-9)


def test_units_and_places_do_not_matter(rows):
    X, S, y, _ = rows
    model = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    small = GaussianRobustClassifier(link="moderated", alpha=1e-12).fit(1e-6 * X, y, X_std=1e-6 * S)
    large = GaussianRobustClassifier(link="moderated", alpha=1e12).fit(1e6 * X, y, X_std=1e6 * S)
    far = GaussianRobustClassifier(link="moderated").fit(X + 1e6, y, X_std=S)
    for other, unit in ((small, 1e6), (large, 1e-6), (far, 1.0)):
        assert_allclose(other.coef_, unit * model.coef_, rtol=1e-5)
        assert_allclose(other.objective_, model.objective_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*these errors are larger than the rows vary")
@pytest.mark.parametrize("size", [5.0, 50.0, 1e6])
def test_rows_that_are_all_but_lost_count_for_next_to_nothing(rows, size):
    X, _, y, _ = rows
    S = np.full(X.shape, 0.1)
    S[::2] = size
    seen = S[:, 0] < 1
    known = GaussianRobustClassifier(link="moderated").fit(X[seen], y[seen], X_std=S[seen])
    model = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    plain = GaussianRobustClassifier().fit(X, y, X_std=S)
    length = np.linalg.norm(known.coef_)
    assert np.linalg.norm(plain.coef_) < 0.1 * length
    assert np.linalg.norm(model.coef_) > 0.9 * length


def test_several_classes_are_each_fitted_against_the_rest():
    X, y = load_iris(return_X_y=True)
    S = 0.3 * np.exp(np.random.default_rng(0).normal(size=X.shape))
    model = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    ones = [GaussianRobustClassifier(link="moderated").fit(X, y == k, X_std=S) for k in range(3)]
    assert_allclose(model.coef_, np.concatenate([one.coef_ for one in ones]), rtol=1e-9)
    assert_allclose(model.objective_, sum(one.objective_ for one in ones), rtol=1e-12)
    p = model.predict_proba(X, X_std=S)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_array_equal(model.predict(X), p.argmax(axis=1))


def test_probabilities_are_those_that_it_was_trained_for(rows):
    X, S, y, _ = rows
    model = GaussianRobustClassifier(link="moderated", alpha=0.1).fit(X, y, X_std=S)
    f, t = model.decision_function(X), model.score_std(X, X_std=S)
    assert_allclose(moderation(t), 1 / np.sqrt(1 + np.pi * t**2 / 8))
    assert_allclose(model.predict_proba(X, X_std=S)[:, 1], expit(f / np.sqrt(1 + np.pi * t**2 / 8)), rtol=1e-9)
    rng, draws = np.random.default_rng(0), 4000
    noisy = (X + S * rng.normal(size=(draws, *X.shape))).reshape(-1, 3)
    given = model.predict_proba(noisy, X_std=np.tile(S, (draws, 1)))
    loss = len(y) * log_loss(np.tile(y, draws), given) + 0.05 * float(np.sum(model.coef_**2))
    assert_allclose(loss, model.objective_, rtol=2e-3)


def test_a_warm_start_ends_where_a_cold_one_does(rows):
    X, S, y, _ = rows
    cold = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    warm = GaussianRobustClassifier(link="moderated", warm_start=True).fit(X, y, X_std=2 * S).fit(X, y, X_std=S)
    assert_allclose(warm.coef_, cold.coef_, rtol=1e-5)


def test_a_descent_that_ends_early_says_so(rows):
    X, S, y, _ = rows
    steps = GaussianRobustClassifier().fit(X, y, X_std=S).n_iter_
    with pytest.warns(
        ConvergenceWarning, match=r"link='moderated', max_iter=\d+\): the descent.*Raise max_iter.*raise alpha"
    ):
        model = GaussianRobustClassifier(link="moderated", max_iter=steps + 1).fit(X, y, X_std=S)
    whole = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    assert model.objective_ > whole.objective_


def test_what_is_asked_of_a_linear_model_is_answered(rows):
    X, S, y, _ = rows
    model = GaussianRobustClassifier(link="moderated").fit(X, y, X_std=S)
    t = np.sqrt(np.square(S) @ np.square(model.coef_[0]))
    assert_allclose(model.score_std(X, X_std=S), t)
    assert np.all(model.flip_probability(X, X_std=S) <= 0.5)
    lead = np.abs(model.decision_function(X)) - 0.1 * np.abs(model.coef_).sum()
    assert_array_equal(model.certify(X, Box(0.1)), lead > 0)
    assert clone(model).link == "moderated"
    pipe = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier(link="moderated")).fit(X, y, X_std=S)
    assert pipe[-1].gap_ == np.inf


@pytest.mark.parametrize("loss", ["hinge", "two_point", "log2", "quadratic"])
def test_losses_without_probabilities_are_refused(rows, loss):
    X, S, y, _ = rows
    with pytest.raises(ValueError, match=rf"loss='{loss}', link='moderated'\): .*Use loss='logistic', or link=None"):
        GaussianRobustClassifier(loss=loss, link="moderated").fit(X, y, X_std=S)


@pytest.mark.parametrize("solver", ["sgd", SGD(epochs=2)], ids=repr)
def test_stochastic_steps_are_refused(rows, solver):
    X, S, y, _ = rows
    with pytest.raises(ValueError, match=r"solver=.*, link='moderated'\): .*Use solver=None, or link=None"):
        GaussianRobustClassifier(link="moderated", solver=solver).fit(X, y, X_std=S)
    with pytest.raises(AttributeError, match=r"no partial_fit with link='moderated'.*Use link=None, or call fit"):
        GaussianRobustClassifier(link="moderated").partial_fit(X, y, classes=[0, 1], X_std=S)


@pytest.mark.parametrize("unknown", ["correlations", "variances"])
def test_covariances_known_in_part_are_refused(rows, unknown):
    X, _, y, _ = rows
    with pytest.raises(
        ValueError, match=r"link='moderated'\): .*State the covariance, with unknown=None, or use link=None"
    ):
        GaussianRobustClassifier(GaussianNoise(0.3, unknown=unknown), link="moderated").fit(X, y)


def test_other_links_are_refused(rows):
    X, S, y, _ = rows
    with pytest.raises(ValueError, match=r"GaussianRobustClassifier\(link='probit'\): give None or 'moderated'"):
        GaussianRobustClassifier(link="probit").fit(X, y, X_std=S)
    with pytest.raises(ValueError, match="a loss at worst points goes with RobustLinearClassifier"):
        GaussianRobustClassifier(loss=Logistic(), link="moderated").fit(X, y, X_std=S)
