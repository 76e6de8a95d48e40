"""Every public class and function, called with every kind of nonsense: refused by naming the argument, or legal; none hangs.

A loop over a table of bad values times every parameter of everything public, not test cases: a stride of it by default, all of
it in the slow tier.
"""

import inspect
import re
import signal
from contextlib import contextmanager
from dataclasses import is_dataclass
from decimal import Decimal
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from holdfast import (
    ambiguity,
    datasets,
    display,
    estimators,
    evaluate,
    experiments,
    features,
    losses,
    pipeline,
    solvers,
    uncertainty,
)

PACKAGES = (ambiguity, datasets, display, estimators, evaluate, experiments, features, losses, pipeline, uncertainty)
h = SimpleNamespace(**{name: getattr(package, name) for package in (*PACKAGES, solvers) for name in package.__all__})
"""Everything public."""

SECONDS = 20
"""Longest time that a call may take."""
rng = np.random.default_rng(7)
N, D = 14, 3
X = rng.normal(size=(N, D)).round(2)
y = np.where(X[:, 0] + 0.4 * rng.normal(size=N) > 0, 1, 0)
S = rng.uniform(0.05, 0.2, size=(N, D))
LINEAR, TREE = LogisticRegression().fit(X, y), DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
CURVED = SVC(gamma=0.5).fit(X, y)
ROBUST = h.RobustLinearClassifier(h.Box(0.1), weight_error=h.WeightError(0.01)).fit(X, y)
GAUSSIAN = h.GaussianRobustClassifier(0.2, loss="hinge").fit(X, y)
CHOSEN = h.GaussianRobustClassifierCV([0.3, 0.1], cv=2).fit(X, y)
WAVES, LANDMARKS = h.RobustFourierFeatures(4, random_state=0).fit(X), h.RobustNystroem(4, random_state=0).fit(X)
DELETED = h.FeatureDeletionClassifier(1.0, fit_intercept=False).fit(X / 10, y)
VOTE = h.LaplaceBoostClassifier(base="stumps", feature_range=(-3, 3), n_knots=3).fit(X, y)
CURVE = h.robustness_curve(LINEAR, X, y, h.GaussianNoise(1.0), [0.0, 1.0], n_repeats=2)
PATH = h.noise_path(X, y, [0.1, 0.3])
FRAME = pd.DataFrame({"a": X[:, 0], "a_err": S[:, 0], "b": X[:, 1], "b_err": S[:, 1]})
BOUNDS = pd.DataFrame({"a_lower": X[:, 0] - 1, "a_upper": X[:, 0] + 1})
GROUPS = np.repeat(np.arange(N // 2), 2)

OTHERS = {"Affine", "Effect", "Monotone", "Products", "SetSum", "load_breast_cancer_errors"}
OTHERS |= {"deletions_survived", "random_deletions", "worst_deletions"}
OTHERS |= {
    "Mixture",
    "VoteLoss",
    "CrossEntropy",
    "ExpectedCrossEntropy",
    "MaxHinge",
}  # what `kappa` and `multiclass` stand for
OTHERS |= {"laplace_density", "laplace_kl", "laplace_tail"}  # of arrays that broadcast, whose entries are not checked
"""What other objects and functions are made of, and what takes no arguments."""
BAD = [
    *(None, "x", "", b"x", "1", -1, 0, 3, 2.5, -0.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 10**400, 1j, True, False),
    *([], {}, (), set(), object(), lambda *args: "x", int, Ellipsis, Decimal("NaN"), np.datetime64("2020-01-01")),
    *(np.array(0.5), np.array([]), np.ones(2), np.ones((2, 2)), np.ones((2, 2, 2)), np.full(D, np.nan), -np.ones(D)),
    *(np.full((N, D), np.nan), np.ones((N, D)) * 1j, np.full((N, D), 10**400, dtype=object), ["a", None, 3]),
    *(
        {"a": 1, 0: "x"},
        sparse.csr_array(np.ones((2, 5))),
        pd.DataFrame({"z": ["a"]}),
        LogisticRegression(),
        [[1, 2], [3]],
    ),
]
METADATA = dict.fromkeys(("X_std", "X_cov", "X_factor", "X_lower", "X_upper", "X_radius"))
ARRAYS = r"Expected 2D|Input|Found array|dtype|could not convert|float\(\) arg|inconsistent|must be real|[sS]parse|"
ARRAYS += r"Complex data|inhomogeneous|1d array|label|class|not supported between instances"
KNOWN = dict.fromkeys(("X", "y", "frame", "groups", "lower", "upper"), ARRAYS)
KNOWN |= {"strategy": ARRAYS + "|scalar", "curve_kwargs": "keywords", "sample_weight": "proof_weights"}
KNOWN |= dict.fromkeys(("estimator", "estimators"), r"\bmodels?\b")
"""What scikit-learn and NumPy say of tables and labels, which users know from there, and other words for an argument."""


def fitted(model, **given):
    return model.fit(**({"X": X, "y": y} | given))


def trained(kind, **valid):
    """A classifier: its parameters, then the arguments of its fits."""
    cls = getattr(h, kind)
    yield kind, lambda **p: fitted(cls(**p)), valid, list(inspect.signature(cls).parameters)
    for method in ("fit", "partial_fit"):
        if not hasattr(cls(**valid), method):
            continue
        more = {"classes": [0, 1]} if method == "partial_fit" else {}
        takes = [
            name for name, p in inspect.signature(getattr(cls, method)).parameters.items() if p.kind != p.VAR_KEYWORD
        ]

        def use(method=method, **given):
            return getattr(clone(cls(**valid)), method)(**given)

        yield f"{kind}.{method}", use, {"X": X, "y": y, **more}, [name for name in takes if name != "self"]


def used(kind, use, **valid):
    """A set, a loss or the like: its parameters, once it is used."""
    cls = getattr(h, kind)
    yield kind, lambda **p: use(cls(**p)), valid, list(inspect.signature(cls).parameters)


def called(function, label=None, **valid):
    """A function: its arguments, those of rows' sets too where it takes them."""
    own = inspect.signature(function).parameters.values()
    names = [p.name for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    names += list(METADATA) if any(p.name == "metadata" for p in own) else []
    yield label or function.__name__, function, valid, names


def as_set(chosen):
    return h.RobustLinearClassifier(chosen).fit(X, y)


def as_loss(loss):
    """Fit a classifier that takes the loss."""
    if isinstance(loss, h.VoteLoss):
        return fitted(h.LaplaceBoostClassifier(c=0.1, loss=loss, tol=1e-2))
    if loss.is_worst_case:
        return fitted(h.RobustLinearClassifier(loss=loss))
    return fitted(h.GaussianRobustClassifier(0.2, loss=loss))


def on_trial(uncertainty):
    return h.robustness_curve(LINEAR, X, y, uncertainty, [0.0, 1.0], n_repeats=2)


def scored(scorer):
    return scorer(ROBUST, X, y)


def shown(display, method, **valid):
    return called(getattr(getattr(h, display), method), f"{display}.{method}", **valid)


def plotted(display, **options):
    yield f"{type(display).__name__}.plot", display.plot, {}, list(inspect.signature(display.plot).parameters)


def calls():
    """Return (label, function, valid arguments, names of arguments) of everything public."""
    box = h.Box(0.1)
    data, rows = {"X": X, "y": y}, {"model": LINEAR, "X": X}
    tables = [
        trained("AlternatingSVC", radius=0.1, max_iter=3),
        trained("ExpectedFeatures", n_components=3),
        trained("FeatureDeletionClassifier", budget=0.5, max_iter=20),
        trained("FeatureDeletionClassifierCV", budgets=[0.5], deleted=0.5, cv=2, max_iter=20),
        trained("FeatureDeletionPerceptron", budget=0.5, radius=9.0),
        trained("GaussianRobustClassifier", noise=0.2),
        trained("GaussianRobustClassifierCV", noises=[0.3], cv=2),
        trained("LaplaceBoostClassifier", base="stumps", n_knots=3),
        trained("MinimaxProbabilityClassifier", covariance_ridge=0.1),
        trained("ModeratedClassifier", estimator=LogisticRegression()),
        trained("NoiseAwareClassifier", n_components=3),
        trained("NoiseAwareClassifierCV", gammas=[1.0], alphas=[1.0], cv=2, n_components=3),
        trained("NoiseCopies", estimator=LogisticRegression(), n_copies=2, uncertainty=box),
        trained("RobustFourierFeatures", n_components=4),
        called(WAVES.push, "RobustFourierFeatures.push", X=X, uncertainty=box),
        called(WAVES.radius, "RobustFourierFeatures.radius", X=X, uncertainty=box),
        trained("RobustKernelClassifier", uncertainty=box, n_components=4),
        trained("RobustLinearClassifier", uncertainty=box),
        trained("RobustLinearClassifierCV", radii=[0.3], cv=2, uncertainty=h.Box(1.0)),
        trained("RobustNystroem", n_components=4),
        called(LANDMARKS.push, "RobustNystroem.push", X=X, uncertainty=box),
        called(LANDMARKS.radius, "RobustNystroem.radius", X=X, uncertainty=box),
        trained("SafeClassifier"),
        trained("SpreadImputer"),
        trained("ConditionalImputer"),
        trained("CategoryEncoder"),
        trained("UncertainPipeline", steps=[("scale", StandardScaler()), ("classify", h.RobustLinearClassifier(box))]),
        used("Ball", as_set, radius=0.1),
        used("Box", as_set, radius=0.1),
        used("ChanceConstraint", as_set, epsilon=0.4, cov=0.01 * np.eye(D)),
        used("DropoutNoise", as_set, share=0.2),
        used("Ellipsoid", as_set, radius=0.1),
        used("FeatureDeletion", as_set, budget=1),
        used("GaussianNoise", as_set, std=0.1),
        used("IntervalBox", as_set, lower=-0.1, upper=0.1),
        used("LinearImage", as_set, original=h.Box(0.1), matrix=np.eye(D)),
        *(
            used(name, as_loss)
            for name in losses.__all__
            if isinstance(getattr(losses, name), type) and name not in OTHERS
        ),
        used("LabelFlips", lambda flips: fitted(h.RobustLinearClassifier(ambiguity=flips)), k=1),
        used("WeightError", lambda error: fitted(h.RobustLinearClassifier(weight_error=error)), delta=0.01),
        used("SGD", lambda s: fitted(h.GaussianRobustClassifier(0.2, loss="hinge", solver=s)), epochs=2),
        used(
            "CoordinateDescent",
            lambda s: fitted(h.LaplaceBoostClassifier(c=0.1, solver=s, tol=1e-2)),
            rule="cyclic",
        ),
        used("StochasticProximal", lambda s: fitted(h.RobustLinearClassifier(box, solver=s)), epochs=2),
        used("CorruptedFeatures", lambda c: c.sample(X, random_state=0), n_corrupted=1),
        used("Box", on_trial, radius=0.1),
        used("CorruptedFeatures", on_trial),
        used("FeatureDeletion", on_trial, budget=1),
        used("GaussianNoise", on_trial, std=0.1),
        used("LabelFlips", on_trial, k=1),
        used("Quantize", on_trial),
        called(h.bandwidth_grid, X=X, uncertainty=box),
        called(h.certified_accuracy, **rows, y=y, uncertainty=box),
        called(h.certified_accuracy_scorer),
        called(h.certified_deletions, **rows),
        called(h.certified_interval, **rows, X_lower=X - S, X_upper=X + S),
        called(h.certified_radius, **rows),
        called(h.certified_radius, "certified_radius of an SVC", model=CURVED, X=X),
        called(
            h.compare, models={"a": LINEAR, "b": TREE}, **data, uncertainty=h.GaussianNoise(1.0), level=1.0, n_repeats=2
        ),
        called(h.corruption_margin, bound=1.0, n_corrupted=2, eps=0.1),
        called(h.critical_noise, **data),
        called(h.critical_radius, **data, uncertainty=h.Box(1.0)),
        called(h.expected_max, levels=X, slopes=S),
        called(h.feature_values, **data),
        called(h.flip_probability, **rows, noise=0.2, n_draws=20),
        called(h.flip_probability, "flip_probability of a tree", model=TREE, X=X, noise=0.2, n_draws=20),
        called(
            lambda uncertainty=None: scored(h.flip_rate_scorer(uncertainty)),
            "flip_rate_scorer",
            uncertainty=h.GaussianNoise(0.1),
        ),
        called(
            h.generalization_bound,
            model=DELETED,
            X=X / 10,
            y=y,
            budget=1.0,
            margin=0.1,
            bound=1.0,
        ),
        called(h.intervals_from_replicates, X=X, groups=GROUPS),
        called(lambda **p: h.make_uncertain_pipeline(LogisticRegression(), **p).fit(X, y), "make_uncertain_pipeline"),
        called(h.noise_budget, **rows, y=y, target_accuracy=0.6, noise=0.2, n_draws=5),
        called(h.noise_budget, "noise_budget of a tree", model=TREE, **data, target_accuracy=0.6, noise=0.2, n_draws=5),
        called(h.noise_from_intervals, lower=X - S, upper=X + S),
        called(h.noise_from_quantization, step=0.1),
        called(h.noise_from_replicates, X=X, groups=GROUPS),
        called(h.noise_path, **data, noises=[0.3, 0.1]),
        called(h.pac_bayes_bound, model=VOTE, X=X, y=y),
        called(h.prune, model=LINEAR, delta=0.1),
        called(h.pruning_path, estimator=h.RobustLinearClassifier(box), **data, deltas=[0.1]),
        called(h.radius_path, **data, radii=[0.3, 0.1], uncertainty=h.Box(1.0)),
        called(h.recover_from_dual, proof_weights=GAUSSIAN.proof_weights_, **data, noise=0.2),
        called(h.robust_accuracy, **rows, y=y, uncertainty=box, n_starts=2, max_iter=3),
        called(
            h.robust_accuracy, "robust_accuracy of a tree", model=TREE, **data, uncertainty=box, n_starts=2, max_iter=3
        ),
        called(
            lambda uncertainty=None: scored(h.robust_accuracy_scorer(uncertainty)),
            "robust_accuracy_scorer",
            uncertainty=box,
        ),
        called(
            h.robustness_curve, models=LINEAR, **data, uncertainty=h.GaussianNoise(1.0), levels=[0.0, 1.0], n_repeats=2
        ),
        called(h.safe_bits, **rows),
        called(h.missing_report, given=X, n_draws=20, **rows),
        called(h.separability_radius, **data, uncertainty=h.Box(1.0)),
        called(h.smoothed, model=TREE, X=X, sigma=0.3, n_draws=10, n_choose=5),
        called(h.teach_step, kind=Taught, effect=lambda step, n_features: h.Affine(np.eye(n_features))),
        called(h.unidirectional_multi_hinge, **data, coef=np.eye(2, D), intercept=np.zeros(2), direction=np.ones(D)),
        called(h.what_is_to_gain, **rows, noise=0.2, n_draws=20),
        called(h.worst_case, **rows, y=y, uncertainty=box, n_starts=2, max_iter=3),
        called(h.worst_case, "worst_case of a tree", model=TREE, **data, uncertainty=box, n_starts=2, max_iter=3),
        called(h.worst_weight_loss, model=ROBUST, **data),
        called(h.load_from_folder, name="no such data"),
        called(h.values_and_bounds, frame=BOUNDS),
        called(h.values_and_errors, frame=FRAME),
        called(h.values_and_intervals, frame=FRAME),
        shown("CertifiedAccuracyDisplay", "from_estimator", estimator=LINEAR, **data),
        shown("CertifiedAccuracyDisplay", "from_estimators", estimators={"a": LINEAR}, **data),
        shown(
            "DecisionUncertaintyDisplay",
            "from_estimator",
            estimator=TWO,
            X=X[:, :2],
            y=y,
            uncertainty=box,
            grid_resolution=5,
        ),
        shown("FeatureFragilityDisplay", "from_estimator", estimator=LINEAR, X_std=S),
        shown("FeatureFragilityDisplay", "from_estimators", estimators={"a": LINEAR}, X_std=S),
        shown("NoisePathDisplay", "from_estimator", estimator=CHOSEN),
        shown("NoisePathDisplay", "from_path", path=PATH),
        shown("RobustnessCurveDisplay", "from_curve", curve=CURVE),
        shown(
            "RobustnessCurveDisplay",
            "from_estimator",
            **{"estimator": LINEAR, **data, "uncertainty": h.GaussianNoise(1.0), "levels": [0.0, 1.0], "n_repeats": 2},
        ),
        shown(
            "RobustnessCurveDisplay",
            "from_estimators",
            **{
                "estimators": [LINEAR],
                **data,
                "uncertainty": h.GaussianNoise(1.0),
                "levels": [0.0, 1.0],
                "n_repeats": 2,
            },
        ),
        plotted(h.RobustnessCurveDisplay(CURVE)),
        plotted(h.NoisePathDisplay.from_path(PATH)),
    ]
    return [line for table in tables for line in table]


class Taught:
    """A step that nobody knew."""


TWO = LogisticRegression().fit(X[:, :2], y)


@contextmanager
def alarm():
    def ring(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(function, valid, name, value):
    """Return "legal", "refused", or what is wrong with the answer."""
    try:
        with alarm():
            function(**(valid | {name: value}))
    except (ValueError, TypeError) as error:
        text = f"{error}"
        if re.search(rf"\b({name}s?|{name.removesuffix('s')})\b", text) or re.search(KNOWN.get(name, r"(?!)"), text):
            return "refused"
        return f"{type(error).__name__} without {name!r}: {text:.160}"
    except FileNotFoundError:
        return "refused" if name in ("resume", "name") else "FileNotFoundError"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.160}"
    finally:
        matplotlib.pyplot.close("all")
    return "legal"


def tried(stride, start=0):
    """Return how many calls were tried, refused and legal, and what is wrong with the others."""
    table = [
        (label, function, valid, name, value)
        for label, function, valid, names in calls()
        for name in names
        for value in BAD
    ]
    counts, wrong = {"tried": 0, "refused": 0, "legal": 0}, []
    for label, function, valid, name, value in table[start::stride]:
        found = outcome(function, valid, name, value)
        counts["tried"] += 1
        if found in counts:
            counts[found] += 1
        else:
            wrong.append(f"{label}({name}={value!r:.60}): {found}")
    return counts, wrong


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder for what some words make, such as that of a cache."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")


def test_everything_public_is_tried():
    public = {name: getattr(h, name) for package in PACKAGES for name in package.__all__}
    records = {name for name, kind in public.items() if is_dataclass(kind) or hasattr(kind, "_fields")}
    assert {re.split(r"[. ]", label)[0] for label, *_ in calls()} >= set(public) - records - OTHERS


@pytest.mark.filterwarnings("ignore")
def test_valid_calls_are_legal(elsewhere):
    for label, function, valid, _ in calls():
        if label != "load_from_folder":
            function(**valid)


@pytest.mark.filterwarnings("ignore")
def test_wrong_calls_are_refused_by_naming_the_argument(elsewhere):
    _, wrong = tried(stride=61)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_wrong_calls_are_refused_by_naming_the_argument(elsewhere):
    counts, wrong = tried(stride=1)
    print(counts)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: fitted(h.RobustLinearClassifier(fit_intercept="False")),
            r"\(fit_intercept='False'\): give True or",
        ),
        (
            lambda: fitted(h.GaussianRobustClassifier(0.1, warm_start="no")),
            r"\(warm_start='no'\): give True or False",
        ),
        (lambda: fitted(h.FeatureDeletionPerceptron(0.5, shuffle=0)), r"\(shuffle=0\): give True or False"),
        (
            lambda: h.certified_radius(LINEAR, X, exact="yes"),
            r"certified_radius\(exact='yes'\): give True or False",
        ),
        (
            lambda: h.robustness_curve(LINEAR, X, y, h.GaussianNoise(1.0), [1.0], progress="no"),
            r"\(progress='no'\)",
        ),
        (lambda: fitted(h.RobustLinearClassifier(tol=10**400)), r"\(tol=<an integer of 1329 bits>\)"),
        (lambda: fitted(h.RobustLinearClassifier(max_iter=10**400)), r"\(max_iter=<an integer of 1329 bits>\)"),
        (lambda: fitted(h.RobustLinearClassifier(penalty=[])), r"\(penalty=\[\]\): give 'l2'"),
        (lambda: fitted(h.RobustLinearClassifier(h.Box(1.0)), X_std=S * 1j), "X_std must be numbers"),
        (lambda: fitted(h.NoiseCopies("x")), r"NoiseCopies\(estimator='x'\): give a classifier"),
        (lambda: fitted(h.RobustLinearClassifier(h.Box(1e300))), "sums of radius overflow"),
        (
            lambda: fitted(h.RobustLinearClassifier(loss=h.HuberizedHinge(scale=-1.0))),
            r"^HuberizedHinge\(scale=-1.0\): must be a finite number > 0",
        ),
        (lambda: fitted(h.RobustLinearClassifier(loss=h.HuberizedHinge(scale=0))), r"^HuberizedHinge\(scale=0\): must"),
        (
            lambda: fitted(h.GaussianRobustClassifier(0.2, loss=h.ExpectedHuberizedHinge("a"))),
            r"^ExpectedHuberizedHinge\(scale='a'\): must be a finite number > 0",
        ),
    ],
)
def test_switches_and_numbers_are_checked(call, text):
    with pytest.raises(ValueError, match=text):
        call()


LOST, HUGE = np.where(X[0, 0] == X, np.nan, X), X.astype(object)
HUGE[0, 0] = 10**400
UNKNOWN = pd.DataFrame(S, columns=list("abc")).astype("Float64")
UNKNOWN.iloc[0, 0] = pd.NA
IMPUTED = h.make_uncertain_pipeline(h.SpreadImputer(), StandardScaler(), h.RobustLinearClassifier(h.Box(0.1))).fit(X, y)
NOISE, NO_NAN = h.GaussianNoise(1.0), "Input X contains NaN, around which nothing is known"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: h.flip_probability(LINEAR, LOST, 1.0), NO_NAN),
        (lambda: h.robust_accuracy(LINEAR, LOST, y, h.Box(0.1)), NO_NAN),
        (lambda: h.noise_budget(LINEAR, LOST, y, 0.8, 1.0), NO_NAN),
        (lambda: h.smoothed(LINEAR, LOST, 0.1, n_draws=2), NO_NAN),
        (lambda: h.robustness_curve(LINEAR, LOST, y, NOISE, [0, 1]), NO_NAN),
        (
            lambda: h.RobustLinearClassifier().fit(X, y).certify(X, X_std=S),
            r"uncertainty=None\), X_std=.*Box\(\)",
        ),
        (lambda: h.GaussianRobustClassifier().fit(X, y, X_std=UNKNOWN), "X_std contains NaN"),
        (
            lambda: h.FeatureFragilityDisplay.from_estimator(LINEAR, X_std=None),
            "X_std must be numbers, got None",
        ),
        (
            lambda: h.GaussianRobustClassifier(alpha=1e300).fit(X, y),
            r"GaussianRobustClassifier\(alpha=1e\+300\): sums of such numbers overflow",
        ),
        (
            lambda: h.GaussianRobustClassifier(0.1).fit(X, y).flip_probability(X, method="foo"),
            r"GaussianRobustClassifier\.flip_probability\(method='foo'\): give 'auto' or 'bound'",
        ),
        (lambda: ROBUST.certify(HUGE), "RobustLinearClassifier: some numbers of X are too large"),
        (lambda: h.robustness_curve(LINEAR, X, y, NOISE, [0], resume="a\0b"), "resume=.*name a file"),
        (
            lambda: h.values_and_errors(pd.DataFrame({"a": [1.0], "a_err": [1.0], "a_err_err": [1.0]})),
            "'a_err_err' states errors, but its column of values is not there, or states errors itself",
        ),
    ],
)
def test_errors_speak_of_what_was_written(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()


def test_a_record_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def refuse(*paths):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match=r"resume='.*run\.jsonl'\): the file cannot be written \(Permission denied\)"):
        h.robustness_curve(LINEAR, X, y, NOISE, [0], resume=tmp_path / "run.jsonl")
