"""CONTRIBUTING.md: its classes work as they stand on the page, and the tests find them where it says to put them."""

import doctest
import re
import runpy
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from holdfast import Ball, Box, GaussianNoise, GaussianRobustClassifier, RobustLinearClassifier, UncertainPipeline
from holdfast._core.loss import Loss
from holdfast._core.solution import Status
from holdfast._core.solver import Solver
from holdfast._core.uncertainty import UncertaintySet
from holdfast._proofs.certificate import certificate
from holdfast._training.training import train
from holdfast.estimators.linear import LinearClassifier
from holdfast.evaluate import worst_case
from holdfast.features import Effect, RowNoise, teach_step
from holdfast.features.steps import TAUGHT
from holdfast.losses import GaussianHinge, Log2Hinge
from holdfast.losses.worst_case import WorstCaseLoss

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOLD = "RoundedRowsClassifier", "Magnitudes"
"""Classes whose tests the page says where to put; the others are found."""
FILES = dict(re.findall(r"`src/holdfast/(\S+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL))
CLASSES = {file: re.findall(r"^class (\w+)", code, re.MULTILINE)[0] for file, code in FILES.items()}
mutants = SimpleNamespace(**runpy.run_path(str(ROOT / "tests" / "mutants.py"), run_name="mutants"))
LOSSES = ["logistic", "hinge", "log2", "quadratic", "two_point"]


@pytest.fixture(scope="module")
def toys():
    """The classes of the page, each from a module of its own."""
    spaces = {}
    for (file, code), name in zip(FILES.items(), CLASSES.values(), strict=True):
        module = ModuleType(f"contributing_{name}")
        spaces[name] = vars(sys.modules.setdefault(module.__name__, module))  # where pickle looks for it
        exec(compile(code, file, "exec"), spaces[name])
    yield SimpleNamespace(**{name: space[name] for name, space in spaces.items()}, spaces=spaces)
    for name in spaces:
        del sys.modules[f"contributing_{name}"]


@pytest.fixture
def fit(two_classes):
    """A function that fits a classifier to the same data every time."""
    X, y = two_classes(60, 3, separation=0.6, positives=28)
    return lambda *noise, **options: GaussianRobustClassifier(*noise, **options).fit(X, y)


# The page


def test_page_shows_one_of_each_kind(toys):
    assert PAGE.count("```python") == len(FILES) == 7
    assert issubclass(toys.RoundingNoise, UncertaintySet)
    assert issubclass(toys.GroupedErrors, UncertaintySet)
    assert max(code.count("\n") for code in FILES.values()) <= 60
    assert issubclass(toys.SoftplusHinge, Loss)
    assert issubclass(toys.CubedHinge, WorstCaseLoss)
    assert issubclass(toys.GradientDescent, Solver)
    assert issubclass(toys.Magnitudes, Effect)
    assert issubclass(toys.RoundedRowsClassifier, LinearClassifier)


def test_page_names_only_commands_that_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", PAGE)) <= set(targets)


def test_examples_of_the_page_are_true(toys):
    for name, space in toys.spaces.items():
        for example in doctest.DocTestFinder().find(space[name], name, module=False, globs=space):
            assert doctest.DocTestRunner().run(example).failed == 0


def test_page_quotes_the_error_that_is_raised(toys):
    with pytest.raises(ValueError, match="step must be") as caught:
        toys.RoundingNoise(step=-1).at(np.zeros((5, 3)), {})
    assert f"`{caught.value}`" in PAGE


def test_fault_shown_on_the_page_is_one_of_those_planted():
    [shown] = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["fault"]
    assert mutants.Fault(**shown) in mutants.faults()


def test_classes_of_the_page_pass_the_tests_where_it_says_to_put_them(tmp_path):
    copy = mutants.copy_source(ROOT / "src", tmp_path)
    found = {file: name for file, name in CLASSES.items() if name not in TOLD}
    for file, name in found.items():
        path = copy / "holdfast" / file
        path.write_text(FILES[file], encoding="utf-8")
        module = f"holdfast.{file.removesuffix('.py').replace('/', '.')}"
        with (path.parent / "__init__.py").open("a", encoding="utf-8") as exports:
            exports.write(f"from {module} import {name} as {name}\n")
    with (copy / "holdfast/solvers/selection.py").open("a", encoding="utf-8") as selection:
        selection.write(
            "\nfrom holdfast.solvers.gradient_descent import GradientDescent\n"
            "BUILT_IN[GradientDescent.name] = GradientDescent\n"
        )
    files = [f"tests/test_every_{what}.py" for what in ("loss", "set", "solver")] + ["tests/losses/test_worst_case.py"]
    outcome = mutants.run_tests(copy, files, "-rp", "-k", " or ".join(found.values()))
    assert outcome.status == 0, outcome.output
    for name in found.values():
        assert len(re.findall(rf"PASSED .*{name}\b", outcome.output)) >= 5


def test_classes_made_by_tests_are_not_taken_for_ours(toys):
    found = runpy.run_path(str(ROOT / "tests" / "conftest.py"))
    things = [*found["LOSSES"], *(uncertainty for uncertainty, _ in found["SETS"]), *found["SOLVERS"]]
    names = {type(thing).__name__ for thing in things}
    assert {"GaussianHinge", "GaussianNoise", "Newton"} <= names
    assert names.isdisjoint(CLASSES.values())


# The set


def test_set_states_the_deviation_of_rounding_errors(toys, rng):
    step, w = np.array([0.5, 0.0, 2.0]), rng.normal(size=3)
    X = 10 * rng.normal(size=(200_000, 3))
    rounded = np.where(step > 0, step * np.round(X / np.where(step > 0, step, 1)), X)
    support = toys.RoundingNoise(step).at(np.zeros((len(X), 3)), {}).support(w)
    assert np.std((rounded - X) @ w) == pytest.approx(float(support), rel=0.01)


@pytest.mark.parametrize("loss", LOSSES)
def test_set_trains_a_classifier_like_noise_of_the_same_deviation(toys, loss, fit):
    step = np.array([0.5, 1.0, 2.0])
    rounding = fit(toys.RoundingNoise(step), loss=loss)
    gaussian = fit(GaussianNoise(std=step / np.sqrt(12)), loss=loss)
    assert rounding.gap_ <= 1e-6
    assert rounding.objective_ == pytest.approx(gaussian.objective_, rel=1e-9)


def test_set_trains_a_problem_without_an_estimator(toys, make_problem, two_classes):
    problem = make_problem(*two_classes(40, 3), GaussianHinge(), toys.RoundingNoise([0.5, 1.0, 2.0]))
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    assert found.status is Status.SOLVED
    assert proof.gap <= 1e-6


def test_set_can_be_cloned_and_searched_over(toys, fit):
    model = clone(fit(toys.RoundingNoise(0.5)))
    assert model.set_params(noise__step=2.0).noise == toys.RoundingNoise(2.0)


def test_set_refuses_noise_by_row_that_it_does_not_know(toys, two_classes):
    X, y = two_classes(40, 3)
    with pytest.raises(ValueError, match=r"RoundingNoise\(step=0.5\).*does not take X_std"):
        GaussianRobustClassifier(toys.RoundingNoise(0.5)).fit(X, y, X_std=np.ones_like(X))


# The set of a new shape


@pytest.fixture
def grouped(toys):
    return toys.GroupedErrors(0.3, ["a", "b", "a"])


def _worst_hinge_loss(X, y, groups, radius, alpha):
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    reach = radius * sum(cp.norm(w[np.array(groups) == group]) for group in set(groups))
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b) + reach))
    problem = cp.Problem(cp.Minimize(loss + 0.5 * alpha * cp.sum_squares(w)))
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def test_new_shape_is_fitted_as_an_independent_program_says(grouped, two_classes):
    X, y = two_classes(60, 3)
    model = RobustLinearClassifier(grouped, loss="hinge", alpha=1.0).fit(X, y)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(_worst_hinge_loss(X, y, grouped.groups, grouped.radius, 1.0), rel=1e-6)


@pytest.mark.parametrize("penalty", [None, "l1", "l2"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_new_shape_goes_with_any_loss_and_penalty(grouped, loss, penalty, two_classes):
    model = RobustLinearClassifier(grouped, loss=loss, penalty=penalty).fit(*two_classes(60, 3))
    assert 0 <= model.gap_ <= 1e-6


def test_new_shape_goes_with_sums_and_several_classes(grouped, two_classes, several_classes):
    assert RobustLinearClassifier(grouped + Ball(0.1) + Box(0.1)).fit(*two_classes(60, 3)).gap_ <= 1e-6
    assert RobustLinearClassifier(grouped, multiclass="joint").fit(*several_classes()).gap_ <= 1e-6


def test_weights_of_a_group_vanish_exactly(toys, two_classes):
    X, y = two_classes(60, 3, separation=2.0)
    model = RobustLinearClassifier(toys.GroupedErrors(0.9, [0, 1, 1]), loss="hinge").fit(X, y)
    lengths = [np.linalg.norm(model.coef_[0, part]) for part in (slice(0, 1), slice(1, 3))]
    assert min(lengths) == 0 < max(lengths)


def test_new_shape_is_searched_carried_attacked_and_certified(grouped, two_classes):
    X, y = two_classes(80, 3)
    search = GridSearchCV(RobustLinearClassifier(grouped), {"uncertainty__radius": [0.1, 0.3]}, cv=3).fit(X, y)
    assert search.best_params_["uncertainty__radius"] in (0.1, 0.3)
    steps = [("scale", StandardScaler()), ("turn", PCA(2)), ("classify", RobustLinearClassifier(grouped))]
    pipe = UncertainPipeline(steps).fit(X, y)
    assert pipe[-1].gap_ <= 1e-6
    is_safe, attacked = pipe.certify(X), worst_case(pipe, X, y, grouped).X
    assert np.all(grouped.at(X, {}).contains(attacked - X))
    assert np.array_equal(pipe.predict(attacked)[is_safe], pipe.predict(X)[is_safe])
    assert 0 < np.mean(is_safe) < 1


# The loss


def test_loss_is_the_base_two_loss_at_another_noise(toys, fit):
    """t log(1 + exp(u / t)) = s log2(1 + 2^(u / s)) with s = t log 2."""
    natural = fit(0.4, loss=toys.SoftplusHinge())
    binary = fit(0.4 * np.log(2), loss=Log2Hinge())
    assert natural.gap_ <= 1e-6
    assert natural.objective_ == pytest.approx(binary.objective_, rel=1e-9)
    assert_allclose(natural.coef_, binary.coef_, rtol=1e-5)


def test_certificate_of_the_loss_holds_from_any_point(toys, make_problem, two_classes, rng):
    X, y = two_classes(40, 3)
    problem = make_problem(X, y, toys.SoftplusHinge(), 0.4)
    best = GaussianRobustClassifier(0.4, loss=toys.SoftplusHinge()).fit(X, y)
    for _ in range(20):
        proof = certificate(problem, rng.normal(size=3), rng.normal())
        assert proof.lower_bound <= best.objective_ * (1 + 1e-10) <= proof.objective * (1 + 1e-9)


def test_loss_without_a_dual_is_certified_by_a_ridge_and_says_so_without_one(toys, fit):
    class Undual(toys.SoftplusHinge):
        has_dual = False

        def tangent(self, u, t):
            z = u / t
            return self.value(u, t), expit(z), np.logaddexp(0.0, z) - z * expit(z)

    certified = fit(0.4, loss=Undual(), alpha=1.0)
    assert certified.gap_ <= 1e-6
    assert certified.objective_ == pytest.approx(fit(0.4, loss=toys.SoftplusHinge(), alpha=1.0).objective_, rel=1e-9)
    with pytest.warns(ConvergenceWarning, match="No lower bound is known"):
        assert fit(0.4, loss=Undual()).gap_ == np.inf


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("uncertainty", [Ball(0.2), Box(0.2), Ball(0.1) + Box(0.1)], ids=str)
def test_worst_case_loss_is_certified_with_sets_and_penalties(toys, uncertainty, penalty, two_classes):
    X, y = two_classes(60, 3)
    model = RobustLinearClassifier(uncertainty, loss=toys.CubedHinge(), penalty=penalty).fit(X, y)
    assert model.gap_ <= 1e-6
    cost = np.sum(np.maximum(1 - y * model.decision_function(model.worst_case_data(X, y)), 0) ** 3)
    ridge = 0.5 * np.sum(model.coef_**2) if penalty == "l2" else np.sum(np.abs(model.coef_))
    assert model.objective_ == pytest.approx(cost + ridge, rel=1e-9)


# The solver


@pytest.mark.parametrize("loss", LOSSES)
def test_solver_ends_at_the_objective_of_the_built_in_ones(toys, loss, fit):
    own, built_in = (fit(0.5, loss=loss, solver=solver) for solver in (toys.GradientDescent(), None))
    assert own.gap_ <= 1e-6
    assert own.objective_ == pytest.approx(built_in.objective_, rel=1e-9)


def test_solver_takes_metrics_that_are_blocks(toys, several_classes):
    X, y = several_classes()
    known = RobustLinearClassifier(Ball(0.2), loss="logistic", multiclass="joint")
    own = clone(known).set_params(solver=toys.GradientDescent()).fit(X, y)
    assert own.gap_ <= 1e-6
    assert own.objective_ == pytest.approx(known.fit(X, y).objective_, rel=1e-6)


def test_solver_that_ends_at_no_number_is_refused(toys, fit):
    class Lost(toys.GradientDescent):
        def minimise(self, problem, start, **options):
            return replace(super().minimise(problem, start, **options), parameters=np.full(len(start), np.nan))

    with pytest.raises(RuntimeError, match="weights that are not finite; nothing was fitted"):
        fit(0.4, solver=Lost())


def test_values_of_sets_on_the_page_are_checked_like_built_in_ones(toys):
    X = np.zeros((4, 3))
    for wrong in (toys.GroupedErrors("x", [0, 0, 1]), toys.GroupedErrors(1e160, [0, 0, 1]), toys.RoundingNoise("x")):
        with pytest.raises(ValueError, match=r"(radius|step) must be numbers|sums of radius overflow"):
            wrong.at(X, {})
    for groups in ([0, 1], [np.nan] * 3, 3):
        with pytest.raises(ValueError, match="groups must name the group of each of 3 features"):
            toys.GroupedErrors(0.1, groups).at(X, {})


def test_set_loss_and_solver_work_together(toys, fit):
    parts = {"loss": toys.SoftplusHinge(), "solver": toys.GradientDescent()}
    assert fit(toys.RoundingNoise([0.5, 1.0, 2.0]), **parts).gap_ <= 1e-6


# The step


class Absolutes(TransformerMixin, BaseEstimator):
    """A step that the page's effect describes."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.abs(X)


@pytest.fixture
def pipe(toys, two_classes):
    """A fitted pipeline with the step, taught for as long as a test runs, and its rows."""
    X = two_classes(80, 3)[0]
    teach_step(Absolutes, lambda step, n_features: toys.Magnitudes())
    steps = [("size", Absolutes()), ("classify", RobustLinearClassifier(Box(0.3)))]
    yield UncertainPipeline(steps).fit(X, np.linalg.norm(X, axis=1) > 2), X
    TAUGHT.remove(Absolutes)


def test_intervals_of_the_step_contain_all_images_and_are_attained(toys, rng):
    lower, upper = np.sort(rng.normal(size=(2, 40, 3)), axis=0)
    low, high = toys.Magnitudes().bounds(None, lower, upper)
    images = np.abs(lower + np.linspace(0, 1, 1001)[:, None, None] * (upper - lower))
    assert np.all((low <= images + 1e-15) & (images <= high + 1e-15))
    assert_allclose(images.min(axis=0), low, atol=5e-3)
    assert_allclose(images.max(axis=0), high, rtol=1e-12)


def test_noise_of_the_step_is_that_of_its_slopes(toys, rng):
    X, factor = rng.normal(size=(40, 3)), 1e-6 * rng.normal(size=(40, 3, 2))
    found = toys.Magnitudes().linearised(X, RowNoise.mixed(factor)).factor
    assert_allclose(found, np.abs(X[:, :, None] + factor) - np.abs(X)[:, :, None], atol=1e-12)


def test_step_is_trained_with_carried_and_attacked(pipe, rng):
    pipe, X = pipe
    assert pipe[-1].gap_ <= 1e-6
    is_safe, predicted = pipe.certify(X), pipe.predict(X)
    assert 0 < np.mean(is_safe) < 1
    for _ in range(50):
        attacked = pipe.predict(X + rng.choice([-0.3, 0.3], size=X.shape))
        assert np.array_equal(attacked[is_safe], predicted[is_safe])


# The estimator


def test_estimator_passes_the_checks_of_scikit_learn(toys):
    done = check_estimator(toys.RoundedRowsClassifier(0.1), on_fail=None, on_skip=None)
    assert [(check["check_name"], check["exception"]) for check in done if check["status"] == "failed"] == []


def test_estimator_is_the_general_one_with_a_box(toys, two_classes, several_classes):
    for X, y in (two_classes(60, 3), several_classes()):
        model = toys.RoundedRowsClassifier(0.6, alpha=0.2).fit(X, y)
        known = RobustLinearClassifier(Box(0.3), loss="logistic", alpha=0.2).fit(X, y)
        assert model.gap_ <= 1e-6
        assert model.objective_ == pytest.approx(known.objective_, rel=1e-12)
        assert np.array_equal(model.certify(X), known.certify(X))
        assert np.array_equal(model.certified_margin(X, Box(0.5)), known.certified_margin(X, Box(0.5)))


def test_estimator_refuses_what_its_table_does_not_allow_and_stays_as_it_was(toys, two_classes):
    X, y = two_classes(60, 3)
    model = toys.RoundedRowsClassifier(0.6).fit(X, y)
    before = model.coef_
    with pytest.raises(ValueError, match=r"RoundedRowsClassifier\(alpha=-1\): must be"):
        model.set_params(alpha=-1).fit(X, y)
    assert model.coef_ is before


# The planted faults


def test_every_planted_fault_fits_the_code_and_names_tests_that_exist():
    faults = mutants.faults()
    assert [problem for fault in faults if (problem := fault.misfit(ROOT / "src"))] == []
    for test in {test for fault in faults for test in fault.tests}:
        file, name, *_ = re.split(r"::|\[", test + "::")
        assert (ROOT / file).is_file()
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8")
