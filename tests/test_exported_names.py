"""What can be imported from where: the list at the top, and in each sub-package all that it exports and nothing else."""

import importlib
import inspect
import pkgutil
import re

import pytest
from sklearn.base import BaseEstimator

import holdfast
from holdfast import estimators
from holdfast._core.solver import Solver
from holdfast._core.uncertainty import UncertaintySet

TOP = [
    "Ball",
    "Box",
    "ChanceConstraint",
    "CorruptedFeatures",
    "Ellipsoid",
    "DropoutNoise",
    "FeatureDeletion",
    "GaussianNoise",
    "IntervalBox",
    "LabelFlips",
    "WeightError",
    "FeatureDeletionClassifier",
    "FeatureDeletionClassifierCV",
    "FeatureDeletionPerceptron",
    "GaussianRobustClassifier",
    "GaussianRobustClassifierCV",
    "NoiseAwareClassifier",
    "NoiseAwareClassifierCV",
    "LaplaceBoostClassifier",
    "MinimaxProbabilityClassifier",
    "RobustKernelClassifier",
    "RobustLinearClassifier",
    "RobustLinearClassifierCV",
    "SafeClassifier",
    "ExpectedFeatures",
    "RobustFourierFeatures",
    "RobustNystroem",
    "ModeratedClassifier",
    "NoiseCopies",
    "SpreadImputer",
    "ConditionalImputer",
    "CategoryEncoder",
    "UncertainPipeline",
    "make_uncertain_pipeline",
    "certified_radius",
    "compare",
    "compile",
    "flip_probability",
    "missing_report",
    "robust_accuracy",
    "robustness_curve",
    "__version__",
]
PUBLIC = [
    "ambiguity",
    "datasets",
    "display",
    "estimators",
    "evaluate",
    "exceptions",
    "experiments",
    "features",
    "losses",
    "pipeline",
    "solvers",
    "uncertainty",
]
INTERNAL = ["_core", "_data", "_problems", "_proofs", "_training"]
every_package = pytest.mark.parametrize("package", PUBLIC)


def opened(package):
    return importlib.import_module(f"holdfast.{package}")


def test_the_top_holds_what_most_people_need_and_no_more():
    assert sorted(holdfast.__all__) == sorted(TOP)
    assert len(holdfast.__all__) <= 45
    named = {name for name in vars(holdfast) if not name.startswith("_")}
    assert named - {name for _, name, _ in pkgutil.iter_modules(holdfast.__path__)} == set(TOP) - {"__version__"}


def test_every_part_of_the_package_is_public_or_internal():
    found = {name for _, name, _ in pkgutil.iter_modules(holdfast.__path__) if not name.startswith("_")}
    assert found - set(INTERNAL) == set(PUBLIC)


@every_package
def test_a_sub_package_exports_what_it_says_and_says_what_it_is_for(package):
    module = opened(package)
    inside = {name for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", []))}
    named = {name for name, value in vars(module).items() if not name.startswith("_")}
    assert named - inside - {"annotations"} == set(module.__all__) - inside
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(module.__doc__) > 60


@every_package
def test_everything_exported_has_a_docstring_of_its_own(package):
    for name in opened(package).__all__:
        value = getattr(opened(package), name)
        assert value.__doc__, name
        assert "__doc__" not in vars(type(value)) or not value.__doc__.startswith(f"{name}("), (
            name
        )  # a dataclass's default


def test_what_is_at_the_top_is_exported_by_its_sub_package_too():
    homes = {name: getattr(opened(package), name) for package in PUBLIC for name in opened(package).__all__}
    for name in set(TOP) - {"__version__"}:
        assert homes[name] is getattr(holdfast, name)


def test_the_chooser_names_everything_at_the_top_and_nothing_that_is_not_there():
    for name in set(TOP) - {"__version__"}:
        assert re.search(rf"\b{name}\b", holdfast.__doc__), name
    assert set(re.findall(r"(\w+)\(", holdfast.__doc__)) <= set(TOP) | {"fit", "StandardScaler"}
    for package in PUBLIC:
        assert f"`holdfast.{package}`" in holdfast.__doc__


def test_every_public_classifier_is_at_the_top():
    public = {
        name
        for name in estimators.__all__
        if inspect.isclass(getattr(estimators, name)) and name.endswith("Classifier")
    }
    assert public <= set(TOP)


def test_calls_of_the_chooser_can_be_made():
    calls = re.findall(r"(?<= )[A-Z]\w+\((?:[^().]|\([^()]*\)|\d\.)*\)", holdfast.__doc__)
    made = [eval(call, vars(holdfast)) for call in calls if "classifier" not in call and "..." not in call]
    assert len(made) > 10


def public_classes(package):
    """Return the classes of a sub-package's public modules that have no underscore."""
    module = opened(package)
    for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", [])):
        part = importlib.import_module(f"holdfast.{package}.{name}")
        for found, value in vars(part).items():
            if inspect.isclass(value) and value.__module__ == part.__name__ and not found.startswith("_"):
                yield found, value


@pytest.mark.parametrize(
    ("package", "base"),
    [
        ("estimators", BaseEstimator),
        ("experiments", BaseEstimator),
        ("pipeline", BaseEstimator),
        ("solvers", Solver),
        ("uncertainty", UncertaintySet),
        ("display", object),
    ],
)
def test_whatever_people_may_make_is_exported(package, base):
    kinds = {name: kind for name, kind in public_classes(package) if issubclass(kind, base)}
    made = {name for name, kind in kinds.items() if not inspect.isabstract(kind) and not kind.__subclasses__()}
    assert made - set(opened(package).__all__) - {"NoiseOfRows"} == set()  # what noise=None means in a classifier


@pytest.mark.parametrize("package", ["estimators", "evaluate", "experiments", "pipeline", "datasets"])
def test_records_that_public_functions_return_are_exported(package):
    for name in opened(package).__all__:
        value = getattr(opened(package), name)
        answer = inspect.signature(value).return_annotation if inspect.isfunction(value) else None
        if isinstance(answer, str) and re.fullmatch(r"[A-Z]\w+", answer) and answer not in ("Any", "Array", "None"):
            assert answer in opened(package).__all__, f"{name} returns {answer}"
