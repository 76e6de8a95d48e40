"""Warnings name the line of the user, whatever lies between it and where they arise."""

import inspect
import warnings

import numpy as np
import pytest
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning

from holdfast import (
    Ball,
    Box,
    FeatureDeletionClassifier,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    MinimaxProbabilityClassifier,
    NoiseAwareClassifier,
    RobustKernelClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
    UncertainPipeline,
)
from holdfast.estimators import noise_path
from holdfast.exceptions import CollapseWarning, NothingLearnedWarning, UnitsWarning

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = (X[:, 0] + rng.normal(size=60) > 0.5).astype(int)
S = np.full(X.shape, 0.2)
NOISY = GaussianRobustClassifier().fit(X, y, X_std=S)
AWARE = NoiseAwareClassifier(n_components=3, n_knots=3, n_copies=1).fit(X, y, X_std=S)
CASES = {
    "collapse": (CollapseWarning, lambda: GaussianRobustClassifier(99.0, loss="hinge").fit(X, y)),
    "collapse of a set": (CollapseWarning, lambda: RobustLinearClassifier(Ball(99.0)).fit(X, y)),
    "collapse under deletion": (CollapseWarning, lambda: FeatureDeletionClassifier(2.9, class_weight={0: 9}).fit(X, y)),
    "collapse in a map": (CollapseWarning, lambda: RobustKernelClassifier(Ball(9.0), bound="tangent").fit(X, y)),
    "collapse in a search": (
        CollapseWarning,
        lambda: GaussianRobustClassifierCV([99.0], loss="hinge", cv=2, n_jobs=1).fit(X, y),
    ),
    "gap": (ConvergenceWarning, lambda: RobustLinearClassifier(Box(0.1), loss="logistic", max_iter=1).fit(X, y)),
    "gap on a path": (ConvergenceWarning, lambda: noise_path(X, y, [0.1, 0.2], max_iter=1, tol=1e-12)),
    "gap in a search": (
        ConvergenceWarning,
        lambda: RobustLinearClassifierCV([0.1], loss="logistic", cv=2, max_iter=1, tol=1e-12).fit(X, y),
    ),
    "units": (UnitsWarning, lambda: GaussianRobustClassifier().fit(X, y, X_std=99 * S)),
    "units in a pipeline": (
        UnitsWarning,
        lambda: UncertainPipeline([("classify", RobustLinearClassifier(Box()))]).fit(X, y, X_std=99 * S),
    ),
    "nothing learned": (NothingLearnedWarning, lambda: SafeClassifier().fit(X, y)),
    "ridge": (LinAlgWarning, lambda: MinimaxProbabilityClassifier(covariance_ridge=1e-9).fit(X[:4], [0, 0, 1, 1])),
    "exact rows": (UserWarning, lambda: NOISY.predict_proba(X)),
    "exact rows in logarithms": (UserWarning, lambda: NOISY.predict_log_proba(X)),
    "exact rows of features": (UserWarning, lambda: AWARE.predict(X)),
}


@pytest.mark.parametrize("name", CASES)
def test_warnings_name_the_line_that_called(name):
    category, call = CASES[name]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        call()
    ours = [warning for warning in heard if issubclass(warning.category, category)]
    assert ours
    lines, start = inspect.getsourcelines(call)
    for warning in ours:
        assert warning.filename == __file__, warning
        assert start <= warning.lineno < start + len(lines)
