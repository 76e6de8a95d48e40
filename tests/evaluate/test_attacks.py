import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    RobustLinearClassifier,
)
from holdfast._certificates.pipelines import view_of
from holdfast.evaluate import certified_accuracy, certified_interval, certified_radius, robust_accuracy, worst_case


class Shell(ClassifierMixin, BaseEstimator):
    """A fitted classifier of which only what is named can be asked."""

    def __init__(self, model, names):
        self.model, self.names, self.classes_ = model, names, model.classes_
        for name in names:
            setattr(self, name, getattr(model, name))

    def fit(self, X, y):
        raise NotImplementedError

    def __sklearn_is_fitted__(self):
        return True


def three_classes(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(3, d))[y], y


def leads_of(model, Z, y):
    """Return the leads of labels from decision_function, by hand."""
    scores, codes = model.decision_function(Z), np.searchsorted(model.classes_, y)
    if scores.ndim == 1:
        return np.where(codes == 1, scores, -scores)
    own = scores[np.arange(len(y)), codes]
    scores[np.arange(len(y)), codes] = -np.inf
    return own - scores.max(axis=1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_on_boxes_the_closed_form_is_the_worst_vertex(n_classes):
    X, y = three_classes()
    y = np.minimum(y, n_classes - 1)
    rng = np.random.default_rng(1)
    lower, upper = X - rng.uniform(0, 1, X.shape), X + rng.uniform(0, 2, X.shape)
    model = LogisticRegression().fit(X, y)
    found = worst_case(model, X, y, IntervalBox(), X_lower=lower, X_upper=upper)
    corners = [np.where(mask, upper, lower) for mask in itertools.product([True, False], repeat=3)]
    assert_allclose(found.lead, np.min([leads_of(model, Z, y) for Z in corners], axis=0), atol=1e-12)
    assert_allclose(leads_of(model, found.X, y), found.lead, atol=1e-12)
    assert_array_equal(found.is_wrong, model.predict(found.X) != y)
    assert found.is_exact
    assert found.is_wrong.any()
    assert not found.is_wrong.all()


@pytest.fixture(scope="module", params=[2, 3])
def linear(request):
    """A linear model of two classes, and of three, and labels for five rows."""
    X, y = three_classes(60)
    return LogisticRegression().fit(X, y % request.param), np.array([0, 1, 2, 0, 1]) % request.param


@pytest.mark.parametrize("method", ["closed_form", "gradient", "queries"])
def test_every_attack_stays_in_every_set_and_the_exact_one_is_the_worst(uncertainty, linear, method):
    (stated, metadata), (model, y) = uncertainty, linear
    X = stated.example_rows()
    if stated.is_expectation:
        with pytest.raises(ValueError, match="Gaussian noise has no bounds"):
            worst_case(model, X, y, stated, method=method, **metadata)
        return
    found = worst_case(model, X, y, stated, method=method, max_iter=5, n_starts=2, **metadata)
    bound = stated.at(X, metadata)
    assert bound.contains(found.moves, slack=1e-6).all()
    assert_allclose(found.X, X + found.moves)
    assert_allclose(found.lead, leads_of(model, found.X, y), atol=1e-9)
    exact = worst_case(model, X, y, stated, **metadata)
    assert np.all(exact.lead <= found.lead + 1e-9)
    draws = X + bound.sample(np.random.default_rng(0), 200, 3)
    sampled = leads_of(model, draws.reshape(-1, 3), np.tile(y, 200)).reshape(200, -1)
    assert np.all(exact.lead <= sampled.min(axis=0) + 1e-9)
    if method == "gradient":
        right = ~found.is_wrong
        assert_allclose(found.lead[right], exact.lead[right], atol=1e-9)


def test_it_is_the_worst_case_that_our_own_models_were_trained_for():
    X, y = three_classes()
    S = np.random.default_rng(0).uniform(size=X.shape)
    for labels in (y, y > 0):
        model = RobustLinearClassifier(Box(0.3), alpha=0.1).fit(X, labels, X_std=S)
        own = model.worst_case_data(X, labels, X_std=0.3 * S)
        assert_allclose(worst_case(model, X, labels, Box(0.3), X_std=S).X, own)
        sure = model.certify(X, X_std=0.3 * S) & (model.predict(X) == labels)
        found = robust_accuracy(model, X, labels, Box(0.3), X_std=S)
        assert found.accuracy == found.certified == sure.mean()


def test_pipelines_are_attacked_in_the_units_of_their_input():
    X, y = three_classes()
    X = X * [1.0, 100.0, 0.01] + [0, 500, 0]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    box = Box(0.3, half_widths=X.std(axis=0))
    found = worst_case(model, X, y, box)
    assert_allclose(np.abs(found.X - X), np.broadcast_to(0.3 * X.std(axis=0), X.shape))
    assert_allclose(leads_of(model, found.X, y), found.lead, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        SVC(gamma=0.5),
        make_pipeline(StandardScaler(), SVC(gamma=0.5)),
        make_pipeline(RBFSampler(gamma=0.2, random_state=0), LogisticRegression()),
        make_pipeline(StandardScaler(), Nystroem(gamma=0.2, random_state=0, n_components=10), LogisticRegression()),
        RidgeClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_gradients_are_those_of_finite_differences(model):
    X, y = three_classes()
    view = view_of(model.fit(X, y), X).model
    rng = np.random.default_rng(0)
    C, h = rng.normal(size=(len(X), view.decision.n_scores)), 1e-5
    for j, unit in enumerate(np.eye(3)):
        ends = [np.sum(C * view.scores(X + sign * h * unit)[0], axis=1) for sign in (1, -1)]
        assert_allclose(view.gradients(X, C)[:, j], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_by_gradients_kernels_are_attacked_nearly_as_well_as_by_exhaustion(n_classes):
    X, y = three_classes(60, 2)
    y = y % n_classes
    model = SVC(gamma=1.0, C=10).fit(X, y)
    steps = np.linspace(-0.4, 0.4, 41)
    grid = np.array(list(itertools.product(steps, steps)))
    wrong = np.array([np.any(model.predict(x + grid) != label) for x, label in zip(X, y, strict=True)])
    found = worst_case(model, X, y, Box(0.4))
    assert not found.is_exact
    assert np.sum(wrong & ~found.is_wrong) <= 1  # of 60 rows
    lowest = certified_interval(model, X, X_lower=X - 0.4, X_upper=X + 0.4)
    assert not np.any(found.is_wrong & lowest.certified & (lowest.predicted == y))
    result = robust_accuracy(model, X, y, Box(0.4))
    assert result.certified <= 1 - wrong.mean() <= result.accuracy + 1 / 60
    assert result.certified == np.mean(lowest.certified & (lowest.predicted == y))
    assert result.plain == np.mean(model.predict(X) == y)


def test_balls_and_ellipsoids_around_rows_of_kernels_are_certified_by_radii():
    X, y = three_classes(60, 3)
    model = SVC(gamma=0.2).fit(X, y)
    sizes = np.array([0.05, 0.1, 0.0])
    for uncertainty, weights in ((Ball(0.1), 0.1), (Ellipsoid(shape=sizes**2), sizes)):
        found = robust_accuracy(model, X, y, uncertainty)
        radii = certified_radius(model, X, norm=2, weights=weights)
        assert found.certified == np.mean((radii.radius >= 1) & (radii.predicted == y))
        assert 0.2 < found.certified <= found.accuracy


@pytest.mark.parametrize("names", [("decision_function", "predict"), ("predict_proba", "predict")])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_asked_for_scores_a_black_box_gives_away_what_a_linear_model_does(names, n_classes):
    X, y = three_classes(90)
    y = y % n_classes
    model = LogisticRegression().fit(X, y)
    for uncertainty in (Box(0.5), Ellipsoid(0.8, shape=np.array([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 0.1]]))):
        exact = worst_case(model, X, y, uncertainty)
        found = worst_case(Shell(model, names), X, y, uncertainty)
        assert not found.is_exact
        assert abs(found.is_wrong.mean() - exact.is_wrong.mean()) <= 1 / 90
        if n_classes == 2:
            right = ~exact.is_wrong
            sign = model.decision_function(found.X[right]) * np.where(y[right] == 1, 1, -1)
            assert_allclose(sign, exact.lead[right], rtol=1e-6)


@pytest.mark.parametrize(
    "uncertainty", [Ball(0.6), Box(0.2), Ellipsoid(0.6, shape=np.linspace(0.05, 2, 10))], ids=lambda u: type(u).__name__
)
def test_asked_for_predictions_alone_it_finds_nearly_all_that_can_be_turned(uncertainty):
    rng, y = np.random.default_rng(0), np.arange(100) % 2
    X = rng.normal(size=(100, 10)) + np.outer(2 * y - 1, rng.normal(size=10)) * 0.5
    model = LogisticRegression().fit(X, y)
    exact, found = (worst_case(m, X, y, uncertainty) for m in (model, Shell(model, ["predict"])))
    assert exact.is_wrong.sum() > np.sum(model.predict(X) != y) + 10
    assert not np.any(found.is_wrong & ~exact.is_wrong)
    assert found.is_wrong.sum() >= exact.is_wrong.sum() - 2
    assert set(np.unique(found.lead)) <= {-1.0, 1.0}


def test_trees_are_attacked_within_a_box_as_by_exhaustion():
    X, y = three_classes(60, 2)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    steps = np.linspace(-0.5, 0.5, 41)
    grid = np.array(list(itertools.product(steps, steps)))
    wrong = np.array([np.any(model.predict(x + grid) != label) for x, label in zip(X, y, strict=True)])
    found = worst_case(model, X, y, Box(0.5))
    assert wrong.sum() > np.sum(model.predict(X) != y) + 5
    assert np.sum(wrong & ~found.is_wrong) <= 3
    assert np.isnan(robust_accuracy(model, X, y, Box(0.5)).certified)


def test_contests_of_pairs_are_attacked_by_search():
    X, y = three_classes(60)
    model = SVC(kernel="linear").fit(X, y)
    result = robust_accuracy(model, X, y, Box(0.3))
    assert not result.is_exact
    steps = np.array(list(itertools.product([-0.3, 0.0, 0.3], repeat=3)))
    wrong = np.array([np.any(model.predict(x + steps) != label) for x, label in zip(X, y, strict=True)])
    assert result.certified <= 1 - wrong.mean()
    assert result.accuracy <= 1 - wrong.mean() + 1 / 60


def test_robust_accuracy_at_radius_zero_is_accuracy_ties_included():
    X, y = three_classes()
    model = LogisticRegression().fit(X, y)
    assert robust_accuracy(model, X, y, Ball(0.0)).accuracy == model.score(X, y)
    model.coef_, model.intercept_ = np.zeros_like(model.coef_), np.zeros_like(model.intercept_)
    assert robust_accuracy(model, X, y, Ball(0.5)).accuracy == model.score(X, y) == np.mean(y == 0)
    two = LogisticRegression().fit(X, y > 0)
    two.coef_, two.intercept_ = np.zeros_like(two.coef_), np.zeros_like(two.intercept_)
    assert robust_accuracy(two, X, y > 0, Ball(0.5)).accuracy == np.mean(y == 0)
    assert certified_accuracy(two, X, y > 0, Ball(0.5)) == 0  # a tie is not certified


def test_robust_accuracy_falls_as_sets_grow_and_is_that_of_the_attack():
    X, y = three_classes(90)
    model = LogisticRegression().fit(X, y)
    results = [robust_accuracy(model, X, y, Ball(r, norm=1)) for r in (0.0, 0.3, 0.6, 2.0)]
    shares = [float(each) for each in results]
    assert shares == sorted(shares, reverse=True)
    assert all(each.is_exact and each.certified == each.accuracy for each in results)
    assert shares[1] == np.mean(~worst_case(model, X, y, Ball(0.3, norm=1)).is_wrong)
    assert certified_accuracy(model, X, y, Ball(0.3, norm=1)) == shares[1]


def test_deleted_features_are_attacked_exactly():
    X, y = three_classes()
    model = LogisticRegression().fit(X, y)
    subsets = [np.isin(np.arange(3), gone) for k in range(3) for gone in itertools.combinations(range(3), k)]
    right = np.all([model.predict(np.where(gone, 0.0, X)) == y for gone in subsets], axis=0)
    assert robust_accuracy(model, X, y, FeatureDeletion(2)).accuracy == right.mean()


def test_sparse_rows_frames_and_float32_give_the_same():
    X, y = three_classes()
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32).astype(np.float64)
    plain = worst_case(LogisticRegression().fit(X, y), X, y, Box(0.4))
    model = LogisticRegression().fit(X, y)
    for other in (sparse.csr_matrix(X), sparse.csr_array(X), X.astype(np.float32)):
        found = worst_case(model, other, y, Box(0.4))
        assert_allclose(found.X, plain.X)
        assert_array_equal(found.is_wrong, plain.is_wrong)
        assert robust_accuracy(model, other, y, Box(0.4)).accuracy == np.mean(~plain.is_wrong)
    for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
        for method in ("closed_form", "gradient", "queries"):
            found = worst_case(
                LogisticRegression().fit(frame, y), frame, y, Box(0.4), method=method, n_starts=1, max_iter=3
            )
            assert isinstance(found.X, type(frame))
            assert list(found.X.columns) == list("abc")
            assert_array_equal(found.is_wrong, plain.is_wrong)


def test_searches_are_repeated_by_their_seed():
    X, y = three_classes()
    model = GaussianNB().fit(X, y)
    one, same, other = (worst_case(model, X, y, Box(0.3), random_state=seed) for seed in (0, 0, 1))
    assert_array_equal(one.moves, same.moves)
    assert np.any(one.moves != other.moves)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"uncertainty": 0.3}, ValueError, r"worst_case\(..., uncertainty=0.3\): give a set"),
        ({"uncertainty": GaussianNoise(1.0)}, ValueError, "Gaussian noise has no bounds.*ChanceConstraint"),
        ({"y": [0, 1, 5, 0]}, ValueError, r"y must hold one of the classes \[0, 1\]"),
        ({"y": [0, 1]}, ValueError, "for each of the 4 rows"),
        ({"X": np.zeros((4, 3))}, ValueError, "3 features"),
        ({"method": "magic"}, ValueError, "method='magic'"),
        ({"n_starts": 0}, ValueError, "n_starts=0"),
        ({"max_iter": 1.5}, ValueError, "max_iter=1.5"),
        ({"X_radius": np.ones(3)}, ValueError, "X_radius has 3 rows, X has 4"),
        ({"Xstd": np.ones((4, 2))}, ValueError, "does not take Xstd"),
        ({"model": LogisticRegression()}, NotFittedError, "not fitted"),
        ({"model": GaussianNB().fit([[0, 0], [1, 1]], [0, 1]), "method": "closed_form"}, TypeError, "no certificate"),
        ({"model": SVC().fit([[0, 0], [1, 1]], [0, 1]), "method": "closed_form"}, TypeError, "method='gradient'"),
    ],
)
def test_questions_that_make_no_sense_are_refused_with_advice(change, error, text):
    X, y = np.array([[-2.0, 1], [-1, 0], [1, 0], [2, -1]]), [0, 0, 1, 1]
    asked = {"model": LogisticRegression().fit(X, y), "X": X, "y": y, "uncertainty": Ball(0.3), **change}
    model, rows, labels, uncertainty = (asked.pop(name) for name in ("model", "X", "y", "uncertainty"))
    with pytest.raises(error, match=text):
        worst_case(model, rows, labels, uncertainty, **asked)
    if "n_starts" not in change and "max_iter" not in change:
        with pytest.raises(error, match=text.replace("worst_case", "robust_accuracy")):
            robust_accuracy(model, rows, labels, uncertainty, **asked)


def test_rows_of_which_features_have_to_be_deleted_are_attacked_within_their_sets():
    X, y = three_classes()
    exactly = FeatureDeletion(1, exactly=True)
    for model, method in ((LogisticRegression(), "closed_form"), (SVC(), "gradient"), (GaussianNB(), "queries")):
        found = worst_case(model.fit(X, y), X, y, exactly, method=method)
        assert exactly.at(X, {}).contains(found.moves).all()


def test_a_chance_constraint_is_a_set_like_any_other():
    X, y = three_classes()
    model = LogisticRegression().fit(X, y)
    S = np.full(X.shape, 0.2)
    wide = robust_accuracy(model, X, y, ChanceConstraint(0.001, "gaussian"), X_std=S).accuracy
    assert wide < robust_accuracy(model, X, y, ChanceConstraint(0.4, "gaussian"), X_std=S).accuracy


def test_moves_that_cancel_in_the_score_are_not_taken_for_small(rng):
    X = rng.normal(size=(300, 2)) * [1.0, 0.2]
    y = (X[:, 0] > X[:, 1]).astype(int)
    model = RobustLinearClassifier(Ellipsoid()).fit(X, y, X_factor=np.full((300, 2, 1), 0.1))
    model.coef_, model.intercept_ = np.array([[1.0, -1.0]]), np.zeros(1)
    # a common drift of both features changes nothing but for rounding, which it makes large
    drift = np.full((300, 2, 1), 1e17)
    assert np.all(model.certify(X, X_factor=np.full((300, 2, 1), 1.0)))
    certified = model.certify(X, X_factor=drift)
    for shift in np.linspace(-1, 1, 41) * 1e17:
        assert not np.any(certified & (model.predict(X + shift) != model.predict(X)))
    assert certified_accuracy(model, X, y, Ellipsoid(), X_factor=drift) == 0
