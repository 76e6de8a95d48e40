"""Paths over the size of sets, and the size chosen by cross-validation."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from holdfast import Ball, Box, GaussianNoise, RobustLinearClassifier, RobustLinearClassifierCV
from holdfast.estimators import critical_radius, radius_path

pytestmark = pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.CollapseWarning", "ignore::holdfast.exceptions.EndOfPathWarning"
)


@pytest.fixture
def draw(two_classes):
    def drawn(n=48, positives=20):
        X, y = two_classes(n, 3, positives=positives)
        return X, y, np.random.default_rng(2).uniform(0.1, 1.0, size=X.shape)

    return drawn


@pytest.mark.parametrize(
    ("uncertainty", "options"),
    [
        (Box(), {"loss": "hinge"}),
        (Ball(0.5), {"loss": "logistic", "penalty": "l1", "alpha": 0.3}),
        (Ball(0.3) + GaussianNoise(0.4), {"loss": "squared_hinge", "kappa": 0.5}),
    ],
    ids=["box", "ball", "noise and ball"],
)
def test_path_fits_are_cold_fits(draw, uncertainty, options):
    X, y, _ = draw()
    path = radius_path(X, y, [0.4, 0.05, 0.2], uncertainty=uncertainty, tol=1e-9, **options)
    assert np.array_equal(path.radii, [0.4, 0.2, 0.05])
    for radius, coef, intercept, objective, gap in zip(
        path.radii, path.coefs, path.intercepts, path.objectives, path.gaps, strict=True
    ):
        cold = RobustLinearClassifier(uncertainty.times(radius), tol=1e-9, **options).fit(X, y)
        assert gap <= 1e-9
        assert np.isclose(objective, cold.objective_, rtol=2e-9)
        assert np.allclose(coef, cold.coef_, atol=3e-4)
        assert np.allclose(intercept, cold.intercept_, atol=3e-3)


@pytest.mark.parametrize("options", [{"loss": "logistic"}, {"loss": "hinge", "class_weight": "balanced"}])
def test_grid_goes_down_geometrically_from_the_critical_radius_where_it_collapses(draw, options):
    X, y, S = draw()
    top = critical_radius(X, y, Box(), X_std=S, **options)
    path = radius_path(X, y, 4, uncertainty=Box(), X_std=S, **options)
    assert np.allclose(path.radii, top * np.array([1.0, 0.1, 0.01, 0.001]), rtol=1e-9)
    assert not np.any(path.coefs[0])
    assert np.all(np.any(path.coefs[1:], axis=2))


def test_grid_of_unequal_classes_starts_where_the_collapse_is_known(draw):
    X, y, _ = draw()
    path = radius_path(X, y, 3, uncertainty=Box())
    assert path.radii[0] >= critical_radius(X, y, Box())
    assert not np.any(path.coefs[0])


def test_scores_are_those_of_cold_fits_on_the_other_folds_with_their_own_sets(draw):
    X, y, S = draw()
    radii, folds = [0.8, 0.3, 0.1], StratifiedKFold(3)
    model = RobustLinearClassifierCV(radii, uncertainty=Box(2.0), cv=folds, cv_tol=1e-8, tol=1e-8).fit(X, y, X_std=S)
    for i, (own, others) in enumerate(folds.split(X, y)):
        for k, radius in enumerate(radii):
            cold = RobustLinearClassifier(Box(2.0 * radius), tol=1e-8).fit(X[own], y[own], X_std=S[own])
            # taken as stated: without the 2 that multiplies them at training
            right = (cold.predict(X[others]) == y[others]) & cold.certify(X[others], X_std=S[others])
            assert np.isclose(model.cv_results_[f"split{i}_test_score"][k], right.mean())
    assert model.best_score_ == model.cv_results_["mean_test_score"].max()
    assert model.radius_ == model.cv_results_["param_radius"][np.argmax(model.cv_results_["mean_test_score"])]
    assert np.all(model.cv_results_["max_gap"] <= 1e-8)
    refitted = RobustLinearClassifier(Box(2.0 * model.radius_), tol=1e-8).fit(X, y, X_std=S)
    assert np.isclose(model.objective_, refitted.objective_, rtol=2e-8)


def test_certified_accuracy_wants_protection_where_plain_accuracy_does_not(draw):
    X, y, _ = draw(120, 60)
    options = {"radii": [1.0, 0.5, 0.25, 1e-3], "uncertainty": Ball(0.8), "penalty": None, "cv": 3}
    certified = RobustLinearClassifierCV(scoring="certified", **options).fit(X, y)
    right = (certified.predict(X) == y) & certified.certify(X)
    assert certified.best_score_ < np.mean(certified.predict(X) == y)
    assert abs(right.mean() - certified.best_score_) < 0.15
    plain = RobustLinearClassifierCV(scoring="accuracy", **options).fit(X, y)
    default = RobustLinearClassifierCV(**options).fit(X, y)  # the set states its size, so it is what rows meet
    assert np.array_equal(default.cv_results_["mean_test_score"], certified.cv_results_["mean_test_score"])
    assert np.all(plain.cv_results_["mean_test_score"] >= certified.cv_results_["mean_test_score"])


def test_among_equals_the_largest_radius_wins(draw):
    X, y, _ = draw()
    model = RobustLinearClassifierCV([0.01, 0.3, 0.1], cv=3, scoring=lambda *_: 1.0).fit(X, y)
    assert model.radius_ == 0.3
    assert np.array_equal(model.radii_, [0.3, 0.1, 0.01])
    assert np.array_equal(model.cv_results_["rank_test_score"], [1, 1, 1])


def test_without_refit_the_folds_are_averaged(draw):
    X, y, _ = draw()
    model = RobustLinearClassifierCV([0.2], cv=3, cv_tol=1e-6, refit=False).fit(X, y)
    cold = [RobustLinearClassifier(Ball(0.2)).fit(X[own], y[own]) for own, _ in StratifiedKFold(3).split(X, y)]
    assert np.allclose(model.coef_, np.mean([one.coef_ for one in cold], axis=0), atol=1e-3)
    assert model.gap_ > 1e-6


def test_weights_of_rows_count_in_training_and_validation(draw):
    X, y, _ = draw()
    weights = np.random.default_rng(3).integers(1, 4, size=len(y)).astype(float)
    folds = list(StratifiedKFold(3).split(X, y))
    model = RobustLinearClassifierCV([0.3], cv=folds, cv_tol=1e-8, tol=1e-8).fit(X, y, sample_weight=weights)
    own, others = folds[0]
    cold = RobustLinearClassifier(Ball(0.3), tol=1e-8).fit(X[own], y[own], sample_weight=weights[own])
    right = np.average(cold.predict(X[others]) == y[others], weights=weights[others])
    assert np.isclose(model.cv_results_["split0_test_score"][0], right)


def test_what_makes_no_sense_is_refused(draw):
    X, y, S = draw()
    with pytest.raises(ValueError, match=r"RobustLinearClassifierCV\(radii=0\): give at least one radius"):
        RobustLinearClassifierCV(0).fit(X, y)
    with pytest.raises(ValueError, match="radii must be finite numbers >= 0"):
        RobustLinearClassifierCV([-1.0]).fit(X, y)
    with pytest.raises(ValueError, match="no bounds"):
        RobustLinearClassifierCV([0.1], uncertainty=GaussianNoise(1.0), scoring="certified").fit(X, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'X_sdt'"):
        radius_path(X, y, X_sdt=S)


def test_rows_noise_without_bounds_is_judged_by_accuracy(draw):
    X, y, S = draw()
    model = RobustLinearClassifierCV([0.5, 0.1], uncertainty=GaussianNoise(), loss="logistic", cv=3)
    assert 0.4 < model.fit(X, y, X_std=S).best_score_ <= 1.0


def test_rows_that_are_all_alike_have_no_path_of_their_own():
    X, y = np.ones((20, 1)), np.arange(20) % 2
    for ask in (lambda: RobustLinearClassifierCV(5).fit(X, y), lambda: radius_path(X, y, 5)):
        with pytest.raises(ValueError, match=r"radii=5\): there is no largest radius.*all alike"):
            ask()


def test_paths_without_a_known_bound_say_so(two_classes):
    X, y = two_classes(40, 3)
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 fits on the path: No lower bound is known"):
        radius_path(X, y, 3, uncertainty=GaussianNoise(std=[1.0, 1, 1]), loss="squared_hinge", penalty=None)
