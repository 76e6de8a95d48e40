"""Signatures of everything public: few arguments by place, and one spelling for what is the same."""

import importlib
import inspect
import re
from dataclasses import is_dataclass

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from holdfast import Ball, FeatureDeletionPerceptron
from holdfast.display import CertifiedAccuracyDisplay
from holdfast.evaluate import certified_radius

PACKAGES = [
    "ambiguity",
    "datasets",
    "display",
    "estimators",
    "evaluate",
    "experiments",
    "features",
    "pipeline",
    "solvers",
    "uncertainty",
]
PUBLIC = {
    name: getattr(module, name)
    for module in (importlib.import_module(f"holdfast.{package}") for package in PACKAGES)
    for name in module.__all__
}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
RECORDS = {name for name, value in PUBLIC.items() if is_dataclass(value) or hasattr(value, "_fields")}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value) and name not in RECORDS}
ESTIMATORS = {name: value for name, value in CLASSES.items() if hasattr(value, "fit")}
BY_PLACE = {
    "fit": ["X", "y", "sample_weight"],
    "fit_transform": ["X", "y", "sample_weight"],
    "score": ["X", "y", "sample_weight"],
    "partial_fit": ["X", "y", "classes", "sample_weight"],
    "carried": ["X", "uncertainty"],
    "certify": ["X", "uncertainty"],
    "certified_margin": ["X", "uncertainty"],
    "push": ["X", "uncertainty"],
    "radius": ["X", "uncertainty"],
}
METADATA = {"X_std", "X_cov", "X_factor", "X_lower", "X_upper", "X_radius"}
WHAT = {"model", "models", "estimator", "estimators", "X", "y", "frame", "path", "curve", "groups", "steps"}
"""What functions are about."""
STATED = {"uncertainty", "noise", "level", "levels", "noises", "radii", "deltas", "delta", "sigma", "step", "budget"}
"""What is stated of that."""
MAIN = {
    "corruption_margin": {"bound", "n_corrupted", "eps"},
    "deletions_survived": {"coef", "intercept", "values"},
    "expected_max": {"levels", "slopes"},
    "load_from_folder": {"name"},
    "noise_budget": {"target_accuracy"},
    "noise_from_intervals": {"lower", "upper"},
    "random_deletions": {"values"},
    "recover_from_dual": {"proof_weights"},
    "teach_step": {"kind", "effect"},
    "unidirectional_multi_hinge": {"coef", "intercept", "direction"},
    "worst_deletions": {"gains", "values"},
}
"""What some functions are about besides."""


def by_place(function):
    """Return the names of arguments that may be given without their names."""
    parts = inspect.signature(function).parameters.values()
    return [p.name for p in parts if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"]


def own_methods(cls):
    """Return the public methods that are ours, not inherited from scikit-learn."""
    for name in dir(cls):
        method = getattr(cls, name) if not name.startswith("_") else None
        if callable(method) and getattr(method, "__module__", "").startswith("holdfast"):
            yield name, method


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_by_place_what_they_are_about_and_what_is_stated_of_it(name):
    found = by_place(FUNCTIONS[name])
    assert len(found) <= 5
    assert set(found) <= WHAT | STATED | MAIN.get(name, set())


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_methods_take_by_place_rows_labels_and_weights_alone(name):
    for method, function in own_methods(ESTIMATORS[name]):
        found = by_place(function)
        if "X" in found:
            allowed = BY_PLACE.get(method, ["X", "y"])
            assert found == [part for part in allowed if part in found], f"{name}.{method}"
        else:  # such as carrying_rows(share)
            assert len(found) <= 1, f"{name}.{method}"


@pytest.mark.parametrize("name", [name for name in CLASSES if "Display" in name])
def test_pictures_are_made_by_place_of_models_rows_labels_and_what_is_stated(name):
    for method, function in own_methods(CLASSES[name]):
        assert set(by_place(function)) <= WHAT | {"uncertainty", "levels", "ax"}, f"{name}.{method}"


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_take_two_arguments_by_place_at_most(name):
    assert len(by_place(CLASSES[name].__init__)) <= 2 or CLASSES[name].__init__ is object.__init__


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_what_is_stated_by_row_is_spelled_alike_everywhere(name):
    value = PUBLIC[name]
    estimators_taking = [value, *(method for _, method in own_methods(value))] if inspect.isclass(value) else [value]
    for taker in estimators_taking:
        for part in inspect.signature(taker).parameters:
            assert not re.match(r"X_", part) or part in METADATA | {"X_val"}, f"{name}: {part}"
            assert part not in ("perturbation", "adversaries", "p", "ord"), f"{name}: {part}"


@pytest.mark.parametrize(
    "name", [name for name in PUBLIC if re.search(r"^\s+adversary : ", PUBLIC[name].__doc__, re.M)]
)
def test_adversaries_have_the_same_words_everywhere(name):
    [words] = re.findall(r"^\s+adversary : \{(.*?)\}", PUBLIC[name].__doc__, re.MULTILINE)
    ours = {"tightened"} if name.startswith("FeatureDeletion") else set()  # between the two of the paper
    assert set(re.findall(r'"(\w+)"', words)) <= {"random", "greedy", "exact", "relaxed"} | ours


def test_the_largest_norm_may_be_spelled_either_way():
    X, y = np.array([[-2.0, 1.0], [-1.0, 0.0], [1.0, 0.0], [2.0, -1.0]]), np.array([0, 0, 1, 1])
    model = LogisticRegression().fit(X, y)
    for one, other in zip(*(_asked(model, X, y, largest) for largest in ("inf", np.inf)), strict=True):
        np.testing.assert_array_equal(one, other)


def _asked(model, X, y, largest):
    import matplotlib

    matplotlib.use("Agg")
    return [
        certified_radius(model, X, norm=largest).radius,
        Ball(0.5, norm=largest).at(X, {}).support(np.array([1.0, -2.0])),
        FeatureDeletionPerceptron(0.5, norm=largest, radius=2.0, shuffle=False).fit(X, y).coef_,
        CertifiedAccuracyDisplay.from_estimator(model, X, y, norm=largest, radii=[0.5]).accuracy,
    ]


@pytest.mark.parametrize("wrong", ["Inf", "l2", 0.5, True, None, [2], "2"])
def test_other_norms_are_refused(wrong):
    X, y = np.array([[-1.0], [1.0]]), np.array([0, 1])
    with pytest.raises(ValueError, match=r"norm=.*give 1, 2 or 'inf'"):
        certified_radius(LogisticRegression().fit(X, y), X, norm=wrong)
    with pytest.raises(ValueError, match=r"Ball\(norm=.*give 1, 2 or 'inf'"):
        Ball(0.5, norm=wrong).at(X, {})
    with pytest.raises(ValueError, match=r"norm=.*give 1, 2 or 'inf'"):
        FeatureDeletionPerceptron(0.5, norm=wrong).fit(X, y)
