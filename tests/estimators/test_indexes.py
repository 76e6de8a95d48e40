"""Frames and series of errors have the index of the rows, or are refused."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    flip_probability,
    make_uncertain_pipeline,
    robust_accuracy,
    worst_case,
)

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
