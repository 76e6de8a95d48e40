"""`certify` and `certified_margin` of every linear classifier, against corners of boxes and the functions of `evaluate`."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    FeatureDeletionClassifier,
    FeatureDeletionClassifierCV,
    FeatureDeletionPerceptron,
    GaussianNoise,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
    make_uncertain_pipeline,
)
from holdfast.estimators.linear import LinearClassifier
from holdfast.evaluate import certified_interval, worst_case
from holdfast.experiments import AlternatingSVC

MODELS = {
    "RobustLinearClassifier": RobustLinearClassifier(Box(0.1)),
    "RobustLinearClassifierCV": RobustLinearClassifierCV([0.1, 0.2], cv=2, uncertainty=Box()),
    "GaussianRobustClassifier": GaussianRobustClassifier(0.2),
    "GaussianRobustClassifierCV": GaussianRobustClassifierCV([0.1, 0.3], cv=2),
    "MinimaxProbabilityClassifier": MinimaxProbabilityClassifier(),
    "FeatureDeletionClassifier": FeatureDeletionClassifier(1.0),
    "FeatureDeletionClassifierCV": FeatureDeletionClassifierCV([0.5, 1.0], cv=2),
    "FeatureDeletionPerceptron": FeatureDeletionPerceptron(1.0),
    "AlternatingSVC": AlternatingSVC(0.1, max_iter=3),
    "SafeClassifier": SafeClassifier(0.1, 0.1),
}


def drawn(n_classes, rng):
    X = rng.uniform(-1, 1, size=(60, 3))
    y = np.digitize(X @ [1.0, 0.6, -0.3] + 0.1 * rng.normal(size=60), [0.0] if n_classes == 2 else [-0.4, 0.4])
    return X, y


def concrete(cls):
    for child in cls.__subclasses__():
        yield from concrete(child)
        if child.__module__.startswith("holdfast.") and not child.__name__.startswith("_"):
            yield child


def test_every_linear_classifier_is_here():
    found = {one.__name__ for one in concrete(LinearClassifier) if hasattr(one, "fit")}
    parts = {"IncrementalClassifier", "MissingFeatures", "PathSearch", "CrossValidated"}
    # which is linear in its features, not in its inputs; its own tests attack it
    assert found - parts - {"RobustKernelClassifier"} == set(MODELS)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_certified_rows_keep_their_class_at_every_corner_and_others_lose_it(name, n_classes, rng):
    X, y = drawn(n_classes, rng)
    model = MODELS[name].fit(X, y)
    half = np.array([0.3, 0.1, 0.2])
    sure, margin = model.certify(X, Box(half_widths=half)), model.certified_margin(X, Box(half_widths=half))
    assert_array_equal(sure, margin > 0)
    corners = np.array(list(product((-1.0, 1.0), repeat=3))) * half
    same = np.all([model.predict(X + corner) == model.predict(X) for corner in corners], axis=0)
    assert 0 < np.sum(same) < len(X)
    assert_array_equal(sure, same)
    by_row = np.broadcast_to(half, X.shape)
    assert_allclose(model.certified_margin(X, Box(), X_std=by_row), margin, rtol=1e-9, atol=1e-12)
    if model.__sklearn_tags__().input_tags.sparse:
        rows = sparse.csr_array(X)
        assert_allclose(model.certified_margin(rows, Box(half_widths=half)), margin, rtol=1e-9, atol=1e-12)
    found = certified_interval(model, X, X_lower=X - half, X_upper=X + half)
    assert_array_equal(found.certified, sure)
    assert_allclose(found.margin, margin, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_without_a_set_their_own_is_meant(name, rng):
    X, y = drawn(2, rng)
    model = MODELS[name].fit(X, y)
    if name in ("GaussianRobustClassifier", "GaussianRobustClassifierCV", "MinimaxProbabilityClassifier"):
        with pytest.raises(ValueError, match=r"trained for no set of inputs.*certify\(X, Box\(0.1\)\)"):
            model.certify(X)
    else:
        own = model._own_set(X, {}, "")
        assert_array_equal(model.certify(X), model.certify(X, own))
    with pytest.raises(ValueError, match="Gaussian noise has no bounds"):
        model.certify(X, GaussianNoise(0.1))
    with pytest.raises(ValueError, match="give a set"):
        model.certify(X, 0.1)
    with pytest.raises(TypeError, match=r"no such argument: X_sdt"):
        model.certify(X, Box(), X_sdt=X)


def test_kernels_say_which_of_them_are_certified(rng):
    X, y = drawn(2, rng)
    model = MinimaxProbabilityClassifier(kernel="poly", covariance_ridge=0.1).fit(X, y)
    assert not hasattr(model, "certify")
    with pytest.raises(AttributeError, match="kernel=None and kernel='rbf'"):
        model.certify(X, Box(0.1))
    model.set_params(kernel="rbf").fit(X, y)
    assert 0 < np.mean(model.certify(X, Box(0.1))) < 1


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "AlternatingSVC"])
def test_a_pipeline_certifies_in_the_units_of_its_rows(name, rng):
    X, y = drawn(2, rng)
    X = X * [10.0, 1.0, 0.1] + [5.0, 0.0, 1.0]
    half = np.array([3.0, 0.1, 0.02])
    pipe = make_uncertain_pipeline(StandardScaler(with_mean=False), MODELS[name])
    if name in ("FeatureDeletionClassifier", "FeatureDeletionPerceptron"):
        pipe = make_uncertain_pipeline(StandardScaler(with_mean=False, with_std=False), MODELS[name])
    pipe.fit(X, y)
    sure = pipe.certify(X, Box(half_widths=half))
    corners = np.array(list(product((-1.0, 1.0), repeat=3))) * half
    assert_array_equal(sure, np.all([pipe.predict(X + corner) == pipe.predict(X) for corner in corners], axis=0))
    assert_array_equal(sure, pipe.certify(X, IntervalBox(), X_lower=X - half, X_upper=X + half))


def test_the_worst_rows_of_a_model_are_those_of_the_attack(rng):
    for n_classes in (2, 3):
        X, y = drawn(n_classes, rng)
        model = RobustLinearClassifier(Ball(0.2)).fit(X, y)
        assert_allclose(model.worst_case_data(X, y), worst_case(model, X, y, Ball(0.2)).X)
