"""Every estimator: a fit that is refused or interrupted leaves what was fitted as it was, all of it."""

import inspect
import sys
import warnings
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Ball,
    Box,
    CategoryEncoder,
    ConditionalImputer,
    ExpectedFeatures,
    FeatureDeletionClassifier,
    FeatureDeletionClassifierCV,
    FeatureDeletionPerceptron,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
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
    UncertainPipeline,
    estimators,
    experiments,
    features,
    pipeline,
)
from holdfast._core.whole_fits import WholeFits
from holdfast.experiments import AlternatingSVC
from holdfast.solvers import SGD, StochasticProximal

PIPELINE = [("scale", StandardScaler()), ("classify", RobustLinearClassifier(Box(0.1)))]
EXAMPLES = [
    AlternatingSVC(0.1, max_iter=3),
    FeatureDeletionClassifier(0.5),
    FeatureDeletionPerceptron(0.5, radius=9.0, horizon=100, random_state=0),
    GaussianRobustClassifier(0.3, loss="hinge", solver=SGD(epochs=2), random_state=0),
    GaussianRobustClassifier(0.3, warm_start=True),
    GaussianRobustClassifier(0.3, link="moderated"),
    GaussianRobustClassifierCV([0.3, 0.1], cv=2),
    LaplaceBoostClassifier(base="stumps", n_knots=3, warm_start=True),
    LaplaceBoostClassifier("tail", tol=1e-3),
    MinimaxProbabilityClassifier(kernel="rbf", covariance_ridge=0.1),
    ModeratedClassifier(LogisticRegression()),
    ExpectedFeatures(n_components=3, random_state=0),
    NoiseAwareClassifier(n_components=3),
    NoiseAwareClassifier(method="moments", n_knots=3),
    NoiseAwareClassifierCV([1.0], alphas=[1.0], cv=2, n_knots=2, n_components=3),
    NoiseCopies(LogisticRegression(), 2, uncertainty=Box(0.1), random_state=0),
    RobustFourierFeatures(6, random_state=0),
    RobustKernelClassifier(Ball(0.1), n_components=6, random_state=0, bound="tangent"),
    RobustLinearClassifier(Ball(0.1), solver=StochasticProximal(2), random_state=0),
    RobustLinearClassifier(Box(0.1), loss="logistic"),
    RobustLinearClassifierCV([0.3, 0.1], uncertainty=Box(1.0), cv=2),
    RobustNystroem(5, random_state=0),
    SafeClassifier(0.1, 1.0, features=RobustNystroem(5, random_state=0)),
    SpreadImputer(),
    ConditionalImputer(),
    CategoryEncoder(),
    FeatureDeletionClassifierCV([0, 0.5], deleted=0.5, cv=2),
    UncertainPipeline(PIPELINE),
]
BAD = ["nonsense", -1, [], np.ones((2, 2, 2))]
QUESTIONS = ("predict", "decision_function", "transform")

pytestmark = pytest.mark.filterwarnings("ignore")
every_estimator = pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: f"{model!r:.70}")


@pytest.fixture
def data():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(24, 3))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=24) > 0, "b", "a")


@pytest.fixture
def other(data):
    """Rows of another size and with other labels, so that whatever is taken from them shows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3)) + 1.0
    return X, np.where(X[:, 1] > 1.0, "no", "yes")


def answers(model, X):
    return [np.asarray(getattr(model, question)(X)) for question in QUESTIONS if hasattr(model, question)]


def fitted(model):
    """Return every attribute that is no parameter, with a copy of what arrays hold."""
    names = set(vars(model)) - set(model.get_params(deep=False))
    return {name: (id(vars(model)[name]), repr(vars(model)[name])) for name in names}


def fits(model):
    return [name for name in ("fit", "partial_fit") if hasattr(model, name)]


def call(model, kind, X, y):
    if kind == "fit":
        return model.fit(X, y)
    return model.partial_fit(X, np.where(y == "no", "a", "b"), classes=["a", "b"])


def assert_as_it_was(model, X, before, said, what):
    if isinstance(model, UncertainPipeline) and "_is_broken" in vars(model):
        with pytest.raises(NotFittedError, match="its last fit failed"):
            model.predict(X)
        return
    assert fitted(model) == before, what
    for one, another in zip(answers(model, X), said, strict=True):
        np.testing.assert_array_equal(one, another, err_msg=what)


def test_all_estimators_are_here():
    public = [
        getattr(package, name) for package in (estimators, experiments, features, pipeline) for name in package.__all__
    ]
    found = {kind for kind in public if inspect.isclass(kind) and hasattr(kind, "fit")}
    assert found == {type(model) for model in EXAMPLES}


@pytest.mark.thin(2)
@every_estimator
def test_a_refused_fit_changes_nothing(model, data, other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a pipeline may take a word for the folder of its cache
    X, y = data
    model, refused = clone(model).fit(X, y), set()
    for name, value in model.get_params(deep=False).items():
        for bad in BAD:
            for kind in fits(model):
                trial = deepcopy(model)
                before, said = fitted(trial), answers(trial, X)
                setattr(trial, name, bad)
                try:
                    call(trial, kind, *other)
                except (ValueError, TypeError, AttributeError):
                    refused.add(name)
                    setattr(trial, name, value)
                    assert_as_it_was(trial, X, before, said, f"{kind} with {name}={bad!r}")
    # an imputer takes anything for these
    assert set(model.get_params(deep=False)) - refused <= {"fill_value", "copy"}


class Interrupt:
    """Ctrl-C at the k-th call of one of the library's functions; counts them where k is None."""

    def __init__(self, k=None):
        self.k, self.n_calls = k, 0

    def __call__(self, frame, event, _):
        if event != "call" or not frame.f_globals.get("__name__", "").startswith("holdfast."):
            return
        self.n_calls += 1
        if self.n_calls == self.k:
            raise KeyboardInterrupt

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)


@every_estimator
def test_an_interrupted_fit_changes_nothing(model, data, other):
    assert isinstance(model, (WholeFits, UncertainPipeline)), f"{type(model).__name__}: derive it from WholeFits"
    X, y = data
    model, rng = clone(model).fit(X, y), np.random.default_rng(0)
    for kind in fits(model):
        call(deepcopy(model), kind, *other)  # what is made once in a process is made now
        whole = deepcopy(model)
        with Interrupt() as counted:
            call(whole, kind, *other)
        for k in sorted({1, 2, counted.n_calls - 1, *rng.integers(1, counted.n_calls, size=5)}):
            trial = deepcopy(model)
            before, said = fitted(trial), answers(trial, X)
            with pytest.raises(KeyboardInterrupt), Interrupt(k):
                call(trial, kind, *other)
            assert_as_it_was(trial, X, before, said, f"{kind} interrupted at call {k} of {counted.n_calls}")


@every_estimator
def test_nothing_of_an_earlier_fit_is_left_over(model, data, other):
    if isinstance(model, UncertainPipeline):
        model = UncertainPipeline(clone(model).steps)
    model = clone(model)
    fresh = set(vars(clone(model).fit(*data)))
    model.fit(*other)
    model.leftover_ = model.__dict__.get("coef_")
    if hasattr(model, "partial_fit"):
        call(clone(model), "partial_fit", *other)
        call(model.fit(*data), "partial_fit", *other)
    assert set(vars(model.fit(*data))) - fresh <= ({"leftover_"} if isinstance(model, UncertainPipeline) else set())


def test_going_on_after_an_interruption_is_going_on_from_where_it_was(data):
    X, y = data
    for model in (
        FeatureDeletionPerceptron(0.5, radius=9.0, horizon=100),
        RobustLinearClassifier(Ball(0.1), solver=StochasticProximal(eta0=0.1)),
        GaussianRobustClassifier(0.3, loss="hinge", solver=SGD(eta0=0.1)),
    ):
        whole = clone(model).partial_fit(X[:12], y[:12], classes=["a", "b"]).partial_fit(X[12:], y[12:])
        model.partial_fit(X[:12], y[:12], classes=["a", "b"])
        trial = deepcopy(model)
        with Interrupt() as counted:
            trial.partial_fit(X[12:], y[12:])
        for k in range(1, counted.n_calls, 5):
            with pytest.raises(KeyboardInterrupt), Interrupt(k):
                model.partial_fit(X[12:], y[12:])
        model.partial_fit(X[12:], y[12:])
        np.testing.assert_array_equal(model.coef_, whole.coef_)


def test_labels_of_a_refused_fit_are_not_given_to_old_weights(data):
    X, y = data
    model = RobustLinearClassifier(Box(0.1)).fit(X, y)
    with pytest.raises(ValueError, match=r"RobustLinearClassifier\(tol=-1\): must be a finite number > 0"):
        model.set_params(tol=-1).fit(X, np.where(y == "a", "yes", "no"))
    assert set(model.predict(X)) == {"a", "b"}


def test_a_pipeline_that_failed_is_unfitted_until_it_is_fitted_again(data):
    X, y = data
    pipe = UncertainPipeline(clone(UncertainPipeline(PIPELINE)).steps).fit(X, y)
    pipe.set_params(classify__tol=-1)
    with pytest.raises(ValueError, match="tol=-1"):
        pipe.fit(10 * X, y)
    for question in ("predict", "decision_function", "certify"):
        with pytest.raises(NotFittedError, match="Call fit again"):
            getattr(pipe, question)(X)
    with pytest.raises(NotFittedError):
        pipe[:1].transform(X)
    assert set(pipe.set_params(classify__tol=1e-6).fit(X, y).predict(X)) == {"a", "b"}
    transformers = UncertainPipeline([("scale", StandardScaler())])
    transformers.fit_transform(X)
    assert not np.any(np.isnan(transformers.transform(X)))


def test_warnings_name_the_line_that_called(data):
    X, y = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RobustLinearClassifier(Ball(50.0)).fit(X, y)
        FeatureDeletionPerceptron(0.5, radius=0.1).partial_fit(X, y, classes=["a", "b"])
        FeatureDeletionPerceptron(0.5, radius=0.1).fit(X, y)
    assert len(caught) >= 3
    assert {warning.filename for warning in caught} == {__file__}
