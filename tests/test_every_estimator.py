"""Every estimator: scikit-learn's own checks, none expected to fail, and the objective that linear ones say they minimise."""

from unittest import SkipTest

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import estimator_checks_generator

from holdfast import (
    Ball,
    Box,
    CategoryEncoder,
    ConditionalImputer,
    ExpectedFeatures,
    FeatureDeletionClassifier,
    FeatureDeletionClassifierCV,
    FeatureDeletionPerceptron,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    LabelFlips,
    LaplaceBoostClassifier,
    MinimaxProbabilityClassifier,
    ModeratedClassifier,
    NoiseAwareClassifier,
    NoiseAwareClassifierCV,
    NoiseCopies,
    RobustFourierFeatures,
    RobustKernelClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    RobustNystroem,
    SafeClassifier,
    SpreadImputer,
    WeightError,
)
from holdfast.estimators.linear import LinearClassifier
from holdfast.experiments import AlternatingSVC
from holdfast.solvers import StochasticProximal

SETTINGS = [
    AlternatingSVC(0.1, max_iter=2),
    AlternatingSVC(0.1, "optimistic", max_iter=2),
    FeatureDeletionClassifier(0.5),
    FeatureDeletionClassifier(0.5, margin=1.0, adversary="exact"),
    FeatureDeletionClassifierCV([0.0, 0.5], deleted=0.5, cv=2),
    FeatureDeletionPerceptron(),
    FeatureDeletionPerceptron(0.1, norm="inf", adversary="exact", missing="delete"),
    GaussianRobustClassifier(),
    GaussianRobustClassifier(0.1, loss="hinge"),
    GaussianRobustClassifier(0.1, loss="hinge", alpha=1e-3, warm_start=True),
    GaussianRobustClassifier(GaussianNoise(std=0.3), loss="two_point"),
    GaussianRobustClassifier(0.2, loss="log2", class_weight="balanced"),
    GaussianRobustClassifier(0.2, loss="quadratic", alpha=0.5),
    GaussianRobustClassifier(0.5, solver="quasi_newton"),
    GaussianRobustClassifier(0.5, link="moderated"),
    GaussianRobustClassifierCV(noises=3, cv=2),
    GaussianRobustClassifierCV(noises=[0.3, 0.1], alphas=[0.1, 1e-3], loss="hinge", cv=2),
    RobustKernelClassifier(Ball(0.1), n_components=10, bound="tangent", random_state=0),
    RobustLinearClassifier(),
    RobustLinearClassifier(Ball(0.1), solver=StochasticProximal(5)),
    RobustLinearClassifier(Ball(0.1), loss="squared_hinge"),
    RobustLinearClassifier(Box(0.1), loss="logistic", penalty="l1", kappa=0.5),
    RobustLinearClassifier(Box(0.1), loss="huberized_hinge"),
    LaplaceBoostClassifier(),
    LaplaceBoostClassifier("tail", c=0.3, tol=1e-2),
    LaplaceBoostClassifier("exp", base="stumps", n_knots=4),
    LaplaceBoostClassifier(base="splines", n_knots=4, scale="fixed"),
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
    ConditionalImputer(),
    CategoryEncoder(),
    ConditionalImputer(n_factors=2),
    ExpectedFeatures(n_components=20),
    RobustFourierFeatures(20),
    RobustFourierFeatures(11, kernel="laplacian", phases=True),
    RobustNystroem(20),
    RobustNystroem(None, gamma=0.1),
    SafeClassifier(),
    NoiseAwareClassifier(n_components=20),
    NoiseAwareClassifier(method="moments"),
    NoiseAwareClassifierCV([1.0], alphas=[1.0, 0.1], cv=2, n_components=10),
]


FIRST = list({type(setting): setting for setting in reversed(SETTINGS)}.values())[::-1]
"""One setting of every class."""
OTHERS = [setting for setting in SETTINGS if setting not in FIRST]
OF_THE_FIT = {
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
    "check_sample_weight_equivalence_on_dense_data",
}
"""Checks whose outcome depends on how a model is fitted; the others see the same code in every setting of a class."""
MADE_OF_OTHERS = (
    AlternatingSVC,
    FeatureDeletionClassifierCV,
    GaussianRobustClassifierCV,
    NoiseAwareClassifierCV,
    RobustLinearClassifierCV,
)
"""Classes whose fits are those of another class, many of them."""
OF_THESE = {
    "check_classifiers_train",
    "check_estimators_nan_inf",
    "check_fit2d_1sample",
    "check_sample_weight_equivalence_on_dense_data",
}
"""Checks that see of such a class more than of the class that it is made of."""


def _is_slow(setting, check):
    """Return whether a check makes dozens of fits to the same rows, or sees what another one sees by default."""
    is_seen = isinstance(setting, MADE_OF_OTHERS) and (check.keywords or check.func.__name__ not in OF_THESE)
    return check.func.__name__ == "check_estimator_sparse_matrix" or is_seen


def _cases(setting):
    for estimator, check in estimator_checks_generator(setting):
        name, options = check.func.__name__, [f"{key}={value}" for key, value in check.keywords.items()]
        marks = [pytest.mark.slow] if _is_slow(setting, check) else []
        yield pytest.param(estimator, check, marks=marks, id="-".join([type(setting).__name__, name, *options]))


pytestmark = pytest.mark.filterwarnings(
    "ignore::holdfast.exceptions.CollapseWarning",  # tiny, unbalanced or random data: w = 0 is the right answer there
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::holdfast.exceptions.EndOfPathWarning",
    "ignore::holdfast.exceptions.NothingLearnedWarning",
    "ignore::scipy.linalg.LinAlgWarning",  # more features than rows
)


@pytest.mark.parametrize(("estimator", "check"), [case for setting in FIRST for case in _cases(setting)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def _is_of_the_fit(check):
    is_again = check.keywords.get("readonly_memmap", False)  # which has a check of its own
    return check.func.__name__ in OF_THE_FIT and not is_again


def _pass_checks(setting, is_wanted):
    for estimator, check in estimator_checks_generator(setting):
        if is_wanted(check):
            print(check)
            try:
                check(estimator)
            except SkipTest as reason:
                print(reason)


def _marked(setting):
    return pytest.param(setting, id=repr(setting), marks=[pytest.mark.slow] * isinstance(setting, MADE_OF_OTHERS))


@pytest.mark.thin(3)
@pytest.mark.parametrize("setting", [_marked(setting) for setting in OTHERS])
def test_other_settings_pass_the_checks_that_depend_on_the_fit(setting):
    _pass_checks(setting, _is_of_the_fit)


@pytest.mark.slow
@pytest.mark.parametrize("setting", OTHERS, ids=repr)
def test_other_settings_pass_the_other_checks_too(setting):
    _pass_checks(setting, lambda check: not _is_of_the_fit(check))


def _huberized(x):
    c = 4 * np.log(2)
    return np.where(x <= -c, 0.0, np.where(x >= c, x, (x + c) ** 2 / (4 * c)))


def _half_square(w):
    return 0.5 * w @ w


COSTS = {
    # by setting: how far the stated set or noise moves the score, the loss of deficit and that, and the penalty
    "GaussianRobustClassifier()": (lambda w: 0.0, lambda u, t: np.logaddexp(0, u - 1), _half_square),
    "GaussianRobustClassifier(loss='hinge', noise=0.1)": (
        lambda w: 0.1 * np.sqrt(w @ w),
        lambda u, t: u * norm.cdf(u / t) + t * norm.pdf(u / t),
        lambda w: 0.0,
    ),
    "GaussianRobustClassifier(alpha=0.001, loss='hinge', noise=0.1, warm_start=True)": (
        lambda w: 0.1 * np.sqrt(w @ w),
        lambda u, t: u * norm.cdf(u / t) + t * norm.pdf(u / t),
        lambda w: 0.0005 * w @ w,
    ),
    "GaussianRobustClassifier(loss='two_point', noise=GaussianNoise(std=0.3))": (
        lambda w: 0.3 * np.sqrt(w @ w),
        lambda u, t: (u + np.sqrt(u**2 + t**2)) / 2,
        lambda w: 0.0,
    ),
    "RobustLinearClassifier()": (lambda w: 0.0, lambda u, t: np.maximum(u, 0), _half_square),
    "RobustLinearClassifier(loss='squared_hinge', uncertainty=Ball(radius=0.1))": (
        lambda w: 0.1 * np.sqrt(w @ w),
        lambda u, t: np.maximum(u + t, 0) ** 2,
        _half_square,
    ),
    "RobustLinearClassifier(kappa=0.5, loss='logistic', penalty='l1', uncertainty=Box(radius=0.1))": (
        lambda w: 0.1 * np.abs(w).sum(),
        lambda u, t: np.logaddexp(0, u + 0.5 * t - 1) + 0.5 * t,
        lambda w: np.abs(w).sum(),
    ),
    "RobustLinearClassifier(loss='huberized_hinge', uncertainty=Box(radius=0.1))": (
        lambda w: 0.1 * np.abs(w).sum(),
        lambda u, t: _huberized(u + t - 1),
        _half_square,
    ),
}
NOT_RECOMPUTED = {
    "class_weight=": "weights of rows",
    "loss='quadratic'": "a bound; tests/losses/test_perspective.py has its formula",
    "solver='quasi_newton'": "the same objective as without a noise, at 0.5",
    "solver=StochasticProximal": "not certified",
    "link='moderated'": "a second fit, of the link",
    "CV(": "the objective of the classifier that is chosen",
    "LabelFlips": "a sum over the worst labels; tests/problems/test_label_flips.py",
    "WeightError": "errors of the weights; tests/estimators/test_weight_errors.py",
    "multiclass='joint'": "for two classes it is that of one vector for each",
    "FeatureDeletion": "deletions; tests/estimators/test_feature_deletion.py",
    "AlternatingSVC": "not convex; tests/experiments/test_alternating_svc.py",
    "MinimaxProbability": "moments of the classes; tests/estimators/test_minimax_probability.py",
    "LaplaceBoost": "a distribution of weights; tests/estimators/test_laplace_boost.py",
    "RobustKernel": "features first; tests/estimators/test_robust_kernel.py",
    "Safe": "flips within radii; tests/estimators/test_safe.py",
    "NoiseAware": "features first; tests/estimators/test_noise_aware.py",
}


def _written(setting):
    return " ".join(f"{setting!r}".split())


@pytest.mark.parametrize("setting", COSTS)
def test_objective_is_that_of_the_stated_set_and_loss(setting):
    (model,) = (each for each in SETTINGS if _written(each) == setting)
    move, loss, penalty = COSTS[setting]
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] + rng.normal(size=40) > 0, 1.0, -1.0)
    fitted = model.__class__(**model.get_params(deep=False)).fit(X, y)
    w = fitted.coef_[0]
    by_hand = np.sum(loss(1 - y * (X @ w + fitted.intercept_[0]), move(w))) + penalty(w)
    assert fitted.objective_ == pytest.approx(by_hand, rel=1e-10)


def test_every_linear_setting_is_recomputed_or_said_not_to_be():
    linear = [_written(each) for each in SETTINGS if isinstance(each, LinearClassifier)]
    left = [name for name in linear if name not in COSTS and not any(word in name for word in NOT_RECOMPUTED)]
    assert not left
