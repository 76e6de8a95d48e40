"""Frames and series of errors have the index of the rows, or are refused."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    FeatureDeletionClassifier,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    certified_radius,
    flip_probability,
    make_uncertain_pipeline,
    robust_accuracy,
    robustness_curve,
)
from holdfast.datasets import intervals_from_replicates
from holdfast.display import DecisionUncertaintyDisplay, FeatureFragilityDisplay
from holdfast.evaluate import (
    Quantize,
    certified_deletions,
    certified_interval,
    noise_budget,
    smoothed,
    worst_case,
)
from holdfast.experiments import AlternatingSVC
from holdfast.pipeline import noise_from_intervals, noise_from_replicates

pandas = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
LABELS = [f"row {i}" for i in range(40)]
X = pandas.DataFrame(RNG.normal(size=(40, 3)), columns=list("abc"), index=LABELS)
Y = pandas.Series((X["a"] + 0.3 * RNG.normal(size=40) > 0).astype(int), index=LABELS)
S = pandas.DataFrame(RNG.uniform(0.01, 0.3, size=(40, 3)), columns=list("abc"), index=LABELS)
R = S["a"]
BOXES, NOISE = RobustLinearClassifier(Box()), GaussianRobustClassifier()
PIPE = make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier())

FITS = {
    "gaussian": lambda X, S, R: GaussianRobustClassifier().fit(X, Y, X_std=S),
    "gaussian CV": lambda X, S, R: GaussianRobustClassifierCV(alphas=[1.0], cv=2).fit(X, Y, X_std=S),
    "box": lambda X, S, R: RobustLinearClassifier(Box()).fit(X, Y, X_std=S),
    "box CV": lambda X, S, R: RobustLinearClassifierCV([0.1], uncertainty=Box(), cv=2).fit(X, Y, X_std=S),
    "intervals": lambda X, S, R: RobustLinearClassifier(IntervalBox()).fit(
        X, Y, X_lower=X.to_numpy() - S, X_upper=X.to_numpy() + S
    ),
    "ball": lambda X, S, R: RobustLinearClassifier(Ball()).fit(X, Y, X_radius=R),
    "weights": lambda X, S, R: RobustLinearClassifier(Ball(0.1)).fit(X, Y, sample_weight=R),
    "deletion weights": lambda X, S, R: FeatureDeletionClassifier(0.5).fit(X, Y, sample_weight=R),
    "alternating weights": lambda X, S, R: AlternatingSVC(0.1).fit(X, Y, sample_weight=R),
    "pipeline weights": lambda X, S, R: make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier()).fit(
        X, Y, X_std=ERRORS, gaussianrobustclassifier__sample_weight=R
    ),
    "replicates": lambda X, S, R: noise_from_replicates(X, (R > 0.1).rename("group")),
    "intervals of replicates": lambda X, S, R: intervals_from_replicates(X, R > 0.1),
    "minimax": lambda X, S, R: MinimaxProbabilityClassifier(Box()).fit(X, Y, X_std=S),
    "copies": lambda X, S, R: NoiseCopies(LogisticRegression(), 2).fit(X, Y, X_std=S),
    "stream": lambda X, S, R: GaussianRobustClassifier().partial_fit(X, Y, classes=[0, 1], X_std=S),
    "pipeline": lambda X, S, R: make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier()).fit(
        X, Y, X_std=S
    ),
    "pipeline, other columns": lambda X, S, R: make_uncertain_pipeline(
        StandardScaler(), RobustLinearClassifier(Box())
    ).fit(X, Y, X_std=S[["c", "a", "b"]]),
}
QUESTIONS = {
    "flips": lambda X, S, R: NOISE.fit(ROWS, Y, X_std=ERRORS).flip_probability(X, X_std=S),
    "deviations": lambda X, S, R: NOISE.fit(ROWS, Y, X_std=ERRORS).score_std(X, X_std=S),
    "probabilities": lambda X, S, R: NOISE.fit(ROWS, Y, X_std=ERRORS).predict_proba(X, X_std=S),
    "certify": lambda X, S, R: BOXES.fit(ROWS, Y, X_std=ERRORS).certify(X, X_std=S),
    "balls": lambda X, S, R: RobustLinearClassifier(Ball(0.1)).fit(ROWS, Y).certified_margin(X, X_radius=R),
    "worst case": lambda X, S, R: BOXES.fit(ROWS, Y, X_std=ERRORS).worst_case_data(X, Y, X_std=S),
    "moderated": lambda X, S, R: ModeratedClassifier(LogisticRegression()).fit(ROWS, Y).predict_proba(X, X_std=S),
    "pipeline": lambda X, S, R: PIPE.fit(ROWS, Y, X_std=ERRORS).flip_probability(X, X_std=S),
    "any model's flips": lambda X, S, R: flip_probability(LogisticRegression().fit(ROWS, Y), X, X_std=S),
    "any model's attack": lambda X, S, R: worst_case(LogisticRegression().fit(ROWS, Y), X, Y, Box(), X_std=S),
    "any model's accuracy": lambda X, S, R: robust_accuracy(LogisticRegression().fit(ROWS, Y), X, Y, Box(), X_std=S),
}
ROWS, ERRORS = X, S


@pytest.mark.parametrize("ask", [*FITS.values(), *QUESTIONS.values()], ids=[*FITS, *QUESTIONS])
def test_rows_of_errors_are_those_of_the_values(ask):
    ask(X, S, R)
    with pytest.raises(ValueError, match=r"in another order.*\.loc\[X\.index\]"):
        ask(X, S[::-1], R[::-1])
    with pytest.raises(ValueError, match=r"another index than X.*to_numpy\(\)"):
        ask(X, S.reset_index(drop=True), R.reset_index(drop=True))
    doubled = [LABELS[0], *LABELS[:-1]]
    with pytest.raises(ValueError, match="another index"):
        ask(X, S.set_axis(doubled), R.set_axis(doubled))


def test_what_has_no_index_is_matched_by_position():
    expected = GaussianRobustClassifier().fit(X.to_numpy(), Y.to_numpy(), X_std=S.to_numpy()).coef_
    for rows, errors in ((X.to_numpy(), S), (X, S.to_numpy())):
        model = GaussianRobustClassifier().fit(rows, Y.to_numpy(), X_std=errors)
        np.testing.assert_array_equal(model.coef_, expected)
    polars = pytest.importorskip("polars")
    rows, errors = (polars.DataFrame(dict(zip("abc", part.to_numpy().T, strict=True))) for part in (X, S))
    model = GaussianRobustClassifier().fit(rows, Y.to_numpy(), X_std=errors)
    np.testing.assert_array_equal(model.coef_, expected)


def test_both_ends_of_intervals_have_one_index():
    noise_from_intervals(X, X + S)
    with pytest.raises(ValueError, match=r"upper has the rows of lower in another order.*upper\.loc\[lower\.index\]"):
        noise_from_intervals(X, (X + S)[::-1])


LOGISTIC = LogisticRegression().fit(X, Y)
SMOOTHING = {"sigma": 0.5, "n_draws": 10, "random_state": 0}
BY_ENTRY = {
    "flips": lambda X, S: NOISE.fit(ROWS, Y, X_std=ERRORS).flip_probability(X, X_std=S),
    "deviations": lambda X, S: NOISE.fit(ROWS, Y, X_std=ERRORS).score_std(X, X_std=S),
    "probabilities": lambda X, S: NOISE.fit(ROWS, Y, X_std=ERRORS).predict_proba(X, X_std=S),
    "certify": lambda X, S: BOXES.fit(ROWS, Y, X_std=ERRORS).certify(X, X_std=S),
    "moderated": lambda X, S: ModeratedClassifier(LogisticRegression()).fit(ROWS, Y).predict_proba(X, X_std=S),
    "any model's flips": lambda X, S: flip_probability(LOGISTIC, X, X_std=S),
    "any model's budget": lambda X, S: noise_budget(LOGISTIC, X, Y, 0.7, X_std=S),
    "any model's accuracy": lambda X, S: robust_accuracy(LOGISTIC, X, Y, Box(), X_std=S),
    "any model's intervals": lambda X, S: certified_interval(
        LOGISTIC, X, X_lower=ROWS[list(S)] - S, X_upper=ROWS[list(S)] + S
    ),
    "display": lambda X, S: FeatureFragilityDisplay.from_estimator(LOGISTIC, X_std=S),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("ask", BY_ENTRY.values(), ids=BY_ENTRY)
def test_a_model_that_knows_its_columns_compares_them_where_rows_have_no_names(ask):
    ask(X.to_numpy(), S)
    with pytest.raises(
        ValueError, match=r"fitted with \['a', 'b', 'c'\].*same order, X_.*\[list\(model.feature_names_in_\)\]"
    ):
        ask(X.to_numpy(), S[["c", "b", "a"]])


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_pipeline_that_knows_its_columns_matches_errors_by_name_where_rows_have_no_names():
    pipe = PIPE.fit(X, Y, X_std=S)
    expected = pipe.flip_probability(X, X_std=S)
    np.testing.assert_array_equal(pipe.flip_probability(X.to_numpy(), X_std=S[["c", "b", "a"]]), expected)


BY_FEATURE = {
    "box": lambda s, C: RobustLinearClassifier(Box(half_widths=s)).fit(X, Y),
    "sum": lambda s, C: RobustLinearClassifier(Ball(0.1) + Box(half_widths=s)).fit(X, Y),
    "intervals": lambda s, C: RobustLinearClassifier(IntervalBox(-s, s)).fit(X, Y),
    "ellipsoid": lambda s, C: RobustLinearClassifier(Ellipsoid(shape=C)).fit(X, Y),
    "deletion": lambda s, C: RobustLinearClassifier(FeatureDeletion(0.1, values=s)).fit(X, Y),
    "std": lambda s, C: GaussianRobustClassifier(GaussianNoise(std=s)).fit(X, Y),
    "cov": lambda s, C: GaussianRobustClassifier(GaussianNoise(cov=C)).fit(X, Y),
    "stream": lambda s, C: GaussianRobustClassifier(GaussianNoise(std=s)).partial_fit(X, Y, classes=[0, 1]),
    "minimax": lambda s, C: MinimaxProbabilityClassifier(Box(half_widths=s)).fit(X, Y),
    "copies": lambda s, C: NoiseCopies(LogisticRegression(), 2, uncertainty=GaussianNoise(std=s)).fit(X, Y),
    "pipeline": lambda s, C: make_uncertain_pipeline(
        StandardScaler().set_output(transform="pandas"), GaussianRobustClassifier(GaussianNoise(cov=C))
    ).fit(X, Y),
    "deletion classifier": lambda s, C: FeatureDeletionClassifier(0.1, values=s).fit(X, Y),
    "display": lambda s, C: FeatureFragilityDisplay.from_estimator(LOGISTIC, X_std=s),
    "radius": lambda s, C: certified_radius(LOGISTIC, X, norm=np.inf, weights=s),
    "smoothed": lambda s, C: smoothed(LOGISTIC, X, weights=s, **SMOOTHING),
    "deletions": lambda s, C: certified_deletions(LOGISTIC, X, values=s),
    "flips": lambda s, C: flip_probability(LOGISTIC, X, GaussianNoise(std=s)),
    "flips of arrays": lambda s, C: flip_probability(LOGISTIC, X.to_numpy(), GaussianNoise(cov=C)),
    "budget": lambda s, C: noise_budget(LOGISTIC, X, Y, 0.7, GaussianNoise(std=s)),
    "attack": lambda s, C: worst_case(LOGISTIC, X, Y, Box(half_widths=s)),
    "noise": lambda s, C: robustness_curve(LOGISTIC, X, Y, GaussianNoise(std=s), [0, 1], n_repeats=1),
    "uniform noise": lambda s, C: robustness_curve(LOGISTIC, X, Y, Box(half_widths=s), [0, 1], n_repeats=1),
    "rounding": lambda s, C: robustness_curve(LOGISTIC, X, Y, Quantize(step=s), [0, 1]),
    "deleted": lambda s, C: robustness_curve(LOGISTIC, X, Y, FeatureDeletion(1, values=s), [0, 0.1], n_repeats=1),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("ask", BY_FEATURE.values(), ids=BY_FEATURE)
def test_what_is_stated_by_feature_has_the_labels_of_the_columns(ask):
    s, C = S.mean(), S.cov()
    ask(s, C)
    other = ["c", "b", "a"]
    with pytest.raises(ValueError, match=r"\['c', 'b', 'a'\].*Give both the same order, \w+\.loc\["):
        ask(s[other], C.loc[other, other])
    with pytest.raises(ValueError, match=r"Give both the same labels, or an array, \.to_numpy\(\)"):
        ask(s.set_axis([0, 1, 2]), C.set_axis([0, 1, 2]))
    ask(s[other].to_numpy(), C.to_numpy())


def test_covariances_have_the_labels_of_the_columns_along_both_axes():
    with pytest.raises(ValueError, match=r"has the columns \['c', 'b', 'a'\].*cov\.loc\[X\.columns, X\.columns\]"):
        GaussianRobustClassifier(GaussianNoise(cov=S.cov()[["c", "b", "a"]])).fit(X, Y)


def test_pictures_of_decisions_compare_labels():
    rows, errors = X[["a", "b"]], S[["a", "b"]]
    model, draw = LogisticRegression().fit(rows, Y), DecisionUncertaintyDisplay.from_estimator
    draw(model, rows, Y, Box(), X_std=errors, grid_resolution=3)
    with pytest.raises(ValueError, match=r"same order, X_std\[list\(X.columns\)\]"):
        draw(model, rows, Y, Box(), X_std=errors[["b", "a"]], grid_resolution=3)
    with pytest.raises(ValueError, match=r"same order, half_widths\.loc"):
        draw(model, rows, Y, Box(half_widths=errors.mean()[["b", "a"]]), grid_resolution=3)


def test_the_display_names_features_as_a_series_does():
    plain = LogisticRegression().fit(X.to_numpy(), Y)
    assert FeatureFragilityDisplay.from_estimator(plain, X_std=S.mean()).feature_names == ("a", "b", "c")
