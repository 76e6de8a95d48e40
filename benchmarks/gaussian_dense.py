"""How long does a certified Gaussian robust fit take, beside scikit-learn's linear classifiers?

Run it with `make bench`. Every method runs on one thread; times are CPU seconds of the process, the median over rounds in
which the methods take turns, so that a busy machine disturbs all alike. Each method, ours included, runs at the loosest
tolerance (of powers of ten) at which its own objective is within 1e-6 of its own optimum. Columns: `ours` such a fit;
`NumPy` the same without numba; `certified` our fit at the default tolerance, whose proved gap is below 1e-6; `proof`
the part of it that recomputes the gap from the data. Ratios are the best peer's time over ours. The noise is 0.1 of a
feature's standard deviation; the logistic loss has a ridge of 1, the hinge none. Writes the tables beside this file.
`--as-typed` measures the second one only, and leaves the first as it is.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import holdfast
from holdfast import GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._proofs.certificate import certificate
from holdfast.datasets import load_from_folder

ACCURACY = 1e-6
TOLERANCES = 10.0 ** -np.arange(1, 12)
HERE = Path(__file__).parent


@dataclass
class Task:
    """A data set and the noise to train for."""

    name: str
    X: np.ndarray
    y: np.ndarray
    noise: float = 0.1

    def as_type(self, dtype):
        return Task(
            f"{self.name}, {np.dtype(dtype).name}", np.ascontiguousarray(self.X, dtype=dtype), self.y, self.noise
        )


@dataclass
class Method:
    """A classifier as a function of its tolerance, and its own objective."""

    name: str
    make: Callable
    objective: Callable
    tol: float = np.nan


def correlated(n, d, seed=0):
    """Gaussian features with correlation 0.5 between neighbours, labels from a linear score with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    w = rng.normal(size=d) / np.sqrt(d)
    return X, np.where(X @ w + 0.5 * rng.normal(size=n) > 0, 1, -1)


def tasks(quick):
    shapes = [(10_000, 50)] if quick else [(10_000, 50), (100_000, 100), (1_000_000, 50), (20_000, 2000)]
    for n, d in shapes:
        yield Task(f"{n:,} x {d}".replace(",", " "), *correlated(n, d))
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("usps")
        pair = np.isin(data["y"], (3, 5))
        yield scaled("USPS 3 vs 5", data["X"][pair], data["y"][pair])
        data = load_from_folder("spambase")
        yield scaled("spambase", data["X"], data["y"])
    else:
        yield scaled("breast cancer", *load_breast_cancer(return_X_y=True))


def typed_tasks(quick):
    """Yield every task in float64 and in float32."""
    for task in tasks(quick):
        yield from (task.as_type(dtype) for dtype in (np.float64, np.float32))


def scaled(name, X, y):
    constant = X.std(axis=0) == 0
    X = StandardScaler().fit_transform(X[:, ~constant])
    return Task(f"{name} {len(X)} x {X.shape[1]}", X, np.where(y == y.max(), 1, -1))


def ours(task, loss):
    def objective(model, X, y):
        problem = GaussianRobustClassifier(task.noise, loss=loss)._problems(X, y, None, {})[0]
        return problem.value_and_gradient(np.append(model.coef_[0], model.intercept_[0]))[0]

    return Method(loss, lambda tol: GaussianRobustClassifier(task.noise, loss=loss, tol=tol), objective)


def peers(task):
    def logistic(model, X, y):
        f = X @ model.coef_[0].astype(float) + model.intercept_[0]
        return np.logaddexp(0, -y * f).sum() + 0.5 * np.sum(model.coef_.astype(float) ** 2)

    def squared_hinge(model, X, y):
        f = X @ model.coef_[0].astype(float) + model.intercept_[0]
        size = np.sum(model.coef_.astype(float) ** 2) + float(model.intercept_[0]) ** 2
        return np.square(np.maximum(0, 1 - y * f)).sum() + 0.5 * size

    yield Method("LR lbfgs", lambda tol: LogisticRegression(tol=tol, max_iter=100_000), logistic)
    if task.X.shape[1] <= 500:
        newton = {"solver": "newton-cholesky", "max_iter": 1000}
        yield Method("LR newton-cholesky", lambda tol: LogisticRegression(tol=tol, **newton), logistic)
    if task.X.size <= 2e7 or task.X.shape[1] > 500:  # 7 to 8 s at 1 000 000 x 50: not worth the wait
        yield Method("LinearSVC primal", lambda tol: LinearSVC(dual=False, tol=tol, max_iter=100_000), squared_hinge)


def calibrate(method, task):
    """Set the loosest tolerance that reaches the accuracy; the optimum is the best value of any tolerance tried."""
    values = {}
    for tol in TOLERANCES:
        values[tol] = method.objective(method.make(tol).fit(task.X, task.y), task.X, task.y)
        changes = abs(np.diff(list(values.values())[-3:])) / abs(values[tol])
        if len(changes) == 2 and np.all(changes < 1e-8):
            break
    best = min(values.values())
    method.tol = max(tol for tol, value in values.items() if value <= best * (1 + ACCURACY))


@contextmanager
def numpy_only():
    repays, compiled.repays = compiled.repays, lambda n_entries: False
    yield
    compiled.repays = repays


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def measure(task, losses, rounds):
    """Return the median CPU seconds of every method; they take turns."""
    compared = [ours(task, loss) for loss in losses] + list(peers(task))
    for method in compared:
        calibrate(method, task)
    times = defaultdict(list)
    for _ in range(rounds):
        for method in compared:
            seconds, _ = timed(lambda method=method: method.make(method.tol).fit(task.X, task.y))
            times[method.name].append(seconds)
        for method in compared[: len(losses)]:
            with numpy_only():
                times[method.name, "NumPy"].append(timed(lambda m=method: m.make(m.tol).fit(task.X, task.y))[0])
            seconds, model = timed(lambda m=method: m.make(1e-6).fit(task.X, task.y))
            if model.gap_ > 1e-6:
                raise RuntimeError(f"{task.name}: gap {model.gap_:.1e}")
            problem = model._problems(task.X, task.y, None, {})[0]
            times[method.name, "certified"].append(seconds)
            times[method.name, "proof"].append(
                timed(lambda m=model, p=problem: certificate(p, m.coef_[0], m.intercept_[0]))[0]
            )
    return {name: float(np.median(values)) for name, values in times.items()}


def row(task, loss, seconds):
    theirs = {name: seconds[name] for name in PEERS if name in seconds}
    best = min(theirs, key=theirs.get)
    mine = [seconds[loss], *(seconds[loss, part] for part in ("NumPy", "certified", "proof"))]
    cells = " | ".join(f"{value:.4f}" for value in mine)
    others = " | ".join(f"{theirs[name]:.4f}" if name in theirs else "-" for name in PEERS)
    ratios = " | ".join(f"{theirs[best] / value:.2f}" for value in mine[:3])
    return f"| {task.name} | {loss} | {cells} | {others} | {best} | {ratios} |"


def as_typed(task, rounds):
    """Return a row of the second table: both classifiers with their default settings, taking turns."""
    made = {"ours": lambda: GaussianRobustClassifier(task.noise), "theirs": LogisticRegression}
    times, models = defaultdict(list), {}
    for _ in range(rounds + 1):
        for name, make in made.items():
            seconds, model = timed(lambda make=make: make().fit(task.X, task.y))
            times[name].append(seconds)
            models[name] = model
    logistic = next(peers(task)).objective
    best = logistic(LogisticRegression(tol=1e-10, max_iter=100_000).fit(task.X, task.y), task.X, task.y)
    short = logistic(models["theirs"], task.X, task.y) / best - 1
    ours, theirs = (float(np.median(times[name][1:])) for name in made)  # the first round warms up
    return (
        f"| {task.name} | {ours:.4f} | {models['ours'].gap_:.0e} | {theirs:.4f} | {short:.0e} | {theirs / ours:.2f} |"
    )


PEERS = ["LR lbfgs", "LR newton-cholesky", "LinearSVC primal"]
OURS = "| data | loss | ours | NumPy | certified | proof | "
HEAD = OURS + " | ".join(PEERS) + " | best peer | ratio | ratio NumPy | ratio certified |"
TYPED_TITLE = "## As typed"
TYPED_TEXT = """The default settings of both: `GaussianRobustClassifier(0.1)`, which stops at a proved gap of 1e-6 (`gap`), and
`LogisticRegression()`, which stops sooner: `excess` is by how much its objective lies above its optimum."""
TYPED_HEAD = "| data | ours | gap | LogisticRegression() | excess | ratio |"


def environment():
    import scipy

    numba = f", numba {__import__('numba').__version__}" if compiled.is_installed() else ", no numba"
    return (
        f"holdfast {holdfast.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}{numba}; {platform.machine()}, {os.cpu_count()} cores, one thread used"
    )


def table(head, rows):
    """Return a table, printed as it grows."""
    lines = [head, "|" + " --- |" * (head.count("|") - 1)]
    print(*lines, sep="\n", flush=True)
    for line in rows:
        lines.append(line)
        print(line, flush=True)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    parser.add_argument("--as-typed", action="store_true", help="the second table only")
    parser.add_argument("--losses", default="hinge,logistic")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    losses = options.losses.split(",")
    warnings.simplefilter("ignore")
    out = HERE / "gaussian_dense.md"
    print(environment(), flush=True)
    with threadpool_limits(1):
        if options.as_typed:
            first = out.read_text().partition(TYPED_TITLE)[0].rstrip()
        else:
            title = f"# Gaussian robust fits beside scikit-learn (CPU seconds)\n{__doc__.split(chr(10), 1)[1]}"
            compared = (
                row(task, loss, seconds)
                for task in typed_tasks(options.quick)
                for seconds in [measure(task, losses, options.rounds)]
                for loss in losses
            )
            first = f"{title}\n{environment()}\n\n{table(HEAD, compared)}"
        second = table(TYPED_HEAD, (as_typed(task, options.rounds) for task in typed_tasks(options.quick)))
    text = f"{first}\n\n{TYPED_TITLE}\n\n{TYPED_TEXT}\n\n{environment()}\n\n{second}\n"
    out.with_suffix(".tmp").write_text(text)
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
