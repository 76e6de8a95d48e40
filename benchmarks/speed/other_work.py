"""Certificates, boosting, the first fit after an installation, and memory."""

import os
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
from sklearn.ensemble import AdaBoostClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import holdfast
from holdfast import Ball, GaussianRobustClassifier, LaplaceBoostClassifier, RobustLinearClassifier
from holdfast.evaluate import certified_deletions, certified_interval, certified_radius, safe_bits
from holdfast.solvers import CoordinateDescent
from speed import data as tables
from speed.case import Case, Data, Peer, Section, Way, logistic, ours

# certificates


def scored(n, d, n_fit=5000, n_classes=2):
    """Gaussian rows, the first of them with labels by noisy linear scores."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(max(n, n_fit), d))
    scores = X[:n_fit] @ rng.normal(size=(d, n_classes)) + rng.normal(size=(n_fit, n_classes))
    return Data(X, scores.argmax(axis=1), {"n_rows": n})


def intervals(size):
    """Return the certificate of intervals that are stated once for all rounds."""
    ends = {}

    def certify(model, X):
        if not ends:
            ends.update(X_lower=X - size, X_upper=X + size)
        return certified_interval(model, X, **ends)

    return certify


def deletions_by_value(model, X):
    return certified_deletions(model, X, values=np.random.default_rng(0).uniform(0.5, 2.0, size=X.shape[1]))


def exact_radius(model, X):
    return certified_radius(model, X, exact=True)


def certificate_ways(data, kind, name, call):
    model, X = kind().fit(data.X[: len(data.y)], data.y), data.X[: data.told["n_rows"]]
    yield Way(name, lambda: call(model, X))
    yield Way("decision_function", lambda: model.decision_function(X))


def scaled():
    return make_pipeline(StandardScaler(), LogisticRegression())


def kernel():
    return make_pipeline(StandardScaler(), SVC())


def waves():
    sampler = RBFSampler(gamma=0.01, n_components=200, random_state=0)
    return make_pipeline(StandardScaler(), sampler, LogisticRegression())


def certificate_cases():
    def case(rows, n, call, certify, kind=LogisticRegression, *, dtype=np.float64, d=100, **options):
        is_quick = n <= 100_000 and options == {}
        data = tables.of_type(tables.drawn(scored, n, d, **options), dtype)
        ways = partial(certificate_ways, kind=kind, name=call, call=certify)
        return Case(f"{rows}, {n} rows, {call}", data, ways, is_quick=is_quick)

    many, some, few = 1_000_000, 100_000, 1000
    radius, interval, deletions = "certified_radius", "certified_interval", "certified_deletions"
    yield case("2 classes", many, radius, certified_radius)
    yield case("2 classes, float32", many, radius, certified_radius, dtype=np.float32)
    yield case("10 classes", many, radius, certified_radius, n_classes=10)
    yield case("StandardScaler, 2 classes", many, radius, certified_radius, scaled)
    yield case("2 classes", some, interval, intervals(0.1))
    yield case("10 classes", some, interval, intervals(0.1), n_classes=10)
    yield case("2 classes, 500 features", few, interval, intervals(0.1), d=500)
    yield case("2 classes", some, deletions, certified_deletions)
    yield case("2 classes", some, "certified_deletions(values=...)", deletions_by_value)
    yield case("10 classes", some, deletions, certified_deletions, n_classes=10)
    yield case("2 classes, 500 features", few, deletions, certified_deletions, d=500)
    yield case("2 classes", some, "safe_bits", safe_bits)
    yield case("2 classes", few, "certified_radius(exact=True)", exact_radius)
    for name, kind in (("StandardScaler, SVC(rbf)", kernel), ("StandardScaler, RBFSampler", waves)):
        yield case(name, few, radius, certified_radius, kind, n_fit=2000)
        yield case(name, few, interval, intervals(0.02), kind, n_fit=2000)


# boosting


def columns(n, d):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, d))
    return Data(X, np.where(X @ rng.standard_normal(d) > rng.logistic(size=n), 1, -1))


def bends(n, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return Data(X, np.where(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n) > 0, 1, -1))


def column_ways(data):
    yield ours("BaLaBoost", LaplaceBoostClassifier(feature_range=(-1, 1)), data)
    yield from Peer("LogisticRegression", LogisticRegression, logistic()).ways(data)


def stump_ways(data, rounds=20):
    limits = {"base": "stumps", "feature_range": (-6, 6)}
    greedy = LaplaceBoostClassifier(**limits, solver=CoordinateDescent("greedy"), max_iter=rounds, tol=1e-12)
    yield ours(f"{rounds} rounds of stumps", greedy, data, tol=np.inf)
    yield ours("the optimum over all stumps", LaplaceBoostClassifier(**limits), data)
    theirs = AdaBoostClassifier(n_estimators=rounds, random_state=0)
    yield Way(f"AdaBoostClassifier, {rounds} rounds", partial(theirs.fit, data.X, data.y), is_slow=True)


# the first fit

FIRST = """
import sys, time
import numpy as np
if sys.argv[3] == "no numba":
    sys.modules["numba"] = None
import holdfast
if sys.argv[3] == "compiled":
    holdfast.compile(verbose=0)
rng = np.random.default_rng(0)
X = rng.normal(size=(int(sys.argv[1]), int(sys.argv[2])))
y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=len(X)) > 0
for _ in range(1 + (sys.argv[3] == "compiled")):
    start = time.process_time()
    holdfast.GaussianRobustClassifier(0.1, loss="hinge").fit(X, y)
    seconds = time.process_time() - start
print(seconds)
"""


def first_fit_ways(data):
    """Fits in processes of their own, on rows that they draw themselves in the shape of the data."""

    def run(state):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", FIRST, *map(str, data.X.shape), state]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(ended.stdout)

    for name, state in (
        ("first fit, nothing compiled", "cold"),
        ("first fit without numba", "no numba"),
        ("second fit after holdfast.compile()", "compiled"),
    ):
        yield Way(name, partial(run, state), takes=float, is_slow=state == "compiled")


def empty(n, d):
    return Data(np.empty((n, d)), np.empty(n))


# memory


def memory_ways(data):
    yield ours("Gaussian, hinge", GaussianRobustClassifier(0.1, loss="hinge"), data)
    yield ours("Gaussian, logistic", GaussianRobustClassifier(0.1), data)
    yield ours("Ball(0.1), hinge", RobustLinearClassifier(Ball(0.1)), data)
    yield Way("LogisticRegression()", partial(LogisticRegression().fit, data.X, data.y))


def memory_cases():
    for n, is_quick in ((100_000, True), (1_000_000, False)):
        data = tables.of_type(tables.drawn(tables.correlated, n, 20), np.float32)
        yield Case(f"{n} x 20, float32", data, memory_ways, is_quick=is_quick, has_memory=True)


def compiling(cases):
    """Leave out what numba is needed for."""
    return cases if holdfast._core.compiled.is_installed() else []


SECTIONS = {
    "certificates": Section(
        "Certificates",
        "What a certificate costs beside a prediction: Gaussian features, 100 unless stated; scikit-learn's "
        "LogisticRegression, trained on 5000 rows, and its SVC and RBFSampler, on 2000. Radii are in the l2 norm, intervals "
        "reach 0.1 to either side (0.02 for kernels), and all rounding is accounted for; `exact=True` is the same by "
        "fractions. The certificates of SVC and RBFSampler are searches, whose bounds ask more of each row than its score.",
        list(certificate_cases()),
    ),
    "boosting": Section(
        "Boosting",
        "`LaplaceBoostClassifier` on columns, and on stumps, which AdaBoostClassifier grows itself.",
        [
            Case("20 000 x 50, columns", tables.drawn(columns, 20_000, 50), column_ways, is_quick=True),
            Case("100 000 x 50, stumps", tables.drawn(bends, 100_000, 50), stump_ways),
        ],
    ),
    "first fit": Section(
        "The first fit after an installation",
        '`GaussianRobustClassifier(0.1, loss="hinge")` in a process and with a cache of compiled kernels of its own.',
        compiling([Case("400 000 x 20", tables.drawn(empty, 400_000, 20), first_fit_ways, is_quick=True)]),
    ),
    "memory": Section(
        "Memory",
        "By how much the memory of the process grows at most during a fit, in sizes of X.",
        list(memory_cases()),
    ),
}
