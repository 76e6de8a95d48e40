"""Every estimator: scikit-learn's own checks, none expected to fail."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from holdfast import (
    Ball,
    Box,
    FeatureDeletionClassifier,
    FeatureDeletionPerceptron,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    LabelFlips,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    WeightError,
)
from holdfast.estimators import AlternatingSVC
from holdfast.solvers import StochasticProximal

SETTINGS = [
    AlternatingSVC(0.1, max_iter=5),
    AlternatingSVC(0.1, "optimistic", max_iter=5),
    FeatureDeletionClassifier(0.5),
    FeatureDeletionClassifier(0.5, margin=1.0, adversary="exact"),
    FeatureDeletionPerceptron(),
    FeatureDeletionPerceptron(0.1, norm="inf", adversary="exact", missing="delete"),
    GaussianRobustClassifier(),
    GaussianRobustClassifier(0.1, loss="hinge"),
    GaussianRobustClassifier(0.1, loss="hinge", alpha=1e-3, warm_start=True),
    GaussianRobustClassifier(GaussianNoise(std=0.3), loss="two_point"),
    GaussianRobustClassifier(0.2, loss="log2", class_weight="balanced"),
    GaussianRobustClassifier(0.2, loss="quadratic", alpha=0.5),
    GaussianRobustClassifier(0.5, solver="quasi_newton"),
    GaussianRobustClassifierCV(noises=3, cv=2),
    GaussianRobustClassifierCV(noises=[0.3, 0.1], alphas=[0.1, 1e-3], loss="hinge", cv=2),
    RobustLinearClassifier(Ball(0.1), solver=StochasticProximal(5)),
    RobustLinearClassifier(),
    RobustLinearClassifier(Ball(0.1), loss="squared_hinge"),
    RobustLinearClassifier(Box(0.1), loss="logistic", penalty="l1", kappa=0.5),
    RobustLinearClassifier(Box(0.1), loss="huberized_hinge"),
    MinimaxProbabilityClassifier(),
    MinimaxProbabilityClassifier(Box(0.01), kappa=0.5, covariance_ridge=0.1),
    MinimaxProbabilityClassifier(kernel="rbf", covariance_ridge=0.1),
    RobustLinearClassifier(ambiguity=LabelFlips(0.1)),
    RobustLinearClassifier(loss="logistic", weight_error=WeightError(0.05)),
    RobustLinearClassifier(weight_error=WeightError(0.05, relative=True)),
    RobustLinearClassifier(Ball(0.1), multiclass="joint"),
    RobustLinearClassifier(Box(0.1), loss="logistic", multiclass="joint"),
    RobustLinearClassifierCV([0.03, 0.01], uncertainty=Box(), loss="logistic", cv=2),
    ModeratedClassifier(LogisticRegression()),
    # draws that differ keep weights of 2 from being the same as two rows; tests/pipeline has the other checks with noise
    NoiseCopies(LogisticRegression(), 3, uncertainty=Box(relative=0.0)),
    SpreadImputer(),
]


@pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.CollapseWarning",  # tiny, unbalanced or random data: w = 0 is the right answer there
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::scipy.linalg.LinAlgWarning",  # more features than rows
)
@parametrize_with_checks(SETTINGS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
