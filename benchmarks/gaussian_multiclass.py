"""How long do certified fits of several classes take, beside scikit-learn's linear classifiers?

Run it with `python benchmarks/gaussian_multiclass.py`. Every method runs on one thread; times are CPU seconds of the process,
the median over rounds in which the methods take turns. Rows are centred and divided by the root mean square of their norms, so
that `noise` is in these units. `hinge` is the joint fit of all classes, `logistic` one class against the rest; both at the
default tolerance, and `gap` is what is then proved. scikit-learn runs at the loosest tolerance (of powers of ten) at which
its own objective is within 1e-6 of the best it reaches at any: LogisticRegression (multinomial, lbfgs) and LinearSVC (one
against the rest, squared hinge, primal). Their C is 4 / (n noise**2): to second order, noise adds that ridge at most to the
logistic loss. Our ridge is 1 for the logistic loss and 0 for the hinge. The ratio is the faster peer's time over ours.
Accuracies are on the training rows. Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from gaussian_dense import Method, Task, calibrate, environment, timed
from scipy.special import logsumexp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier
from holdfast.datasets import load_from_folder

LOSSES, PEERS = ["hinge", "logistic"], ["LR lbfgs", "LinearSVC primal"]
HERE = Path(__file__).parent


def tasks():
    yield normed("digits", *load_digits(return_X_y=True))
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("splice_uci")
        bases = np.unique(data["X"])
        spelled = (data["X"][:, :, None] == bases).reshape(len(data["X"]), -1)
        yield normed("splice", spelled[:, spelled.any(axis=0)].astype(float), data["y"])
        data = load_from_folder("usps")
        X, y = data["X"][~data["is_test"]], data["y"][~data["is_test"]]
        yield normed("USPS", X[:3000], y[:3000])
        yield normed("USPS", X, y)


def normed(name, X, y):
    X = X - X.mean(axis=0)
    X /= np.sqrt(np.mean(np.sum(X**2, axis=1)))
    return Task(f"{name} {len(X)} x {X.shape[1]}, {len(np.unique(y))} classes", X, y)


def peers(task, noise):
    C = 4 / (len(task.y) * noise**2)

    def logistic(model, X, y):
        f = X @ model.coef_.T + model.intercept_
        own = f[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        return C * np.sum(logsumexp(f, axis=1) - own) + 0.5 * np.sum(model.coef_**2)

    def squared_hinge(model, X, y):
        f, signs = X @ model.coef_.T + model.intercept_, np.where(y[:, None] == model.classes_, 1, -1)
        size = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
        return C * np.square(np.maximum(0, 1 - signs * f)).sum() + 0.5 * size

    yield Method(PEERS[0], lambda tol: LogisticRegression(C=C, tol=tol, max_iter=100_000), logistic)
    yield Method(PEERS[1], lambda tol: LinearSVC(C=C, dual=False, tol=tol, max_iter=100_000), squared_hinge)


def measure(task, noise, rounds):
    """Return the median CPU seconds and the accuracy of every method, and the largest gaps of ours."""
    compared = list(peers(task, noise))
    for method in compared:
        calibrate(method, task)
    makers = {loss: lambda loss=loss: GaussianRobustClassifier(noise, loss=loss) for loss in LOSSES}
    makers |= {method.name: lambda m=method: m.make(m.tol) for method in compared}
    times, accuracies, gaps = defaultdict(list), {}, {}
    for _ in range(rounds):
        for name, make in makers.items():
            seconds, model = timed(lambda make=make: make().fit(task.X, task.y))
            times[name].append(seconds)
            accuracies[name] = model.score(task.X, task.y)
            if name in LOSSES:
                gaps[name] = model.gap_
                if model.gap_ > 1e-6:
                    raise RuntimeError(f"{task.name}, {name}, noise {noise}: gap {model.gap_:.1e}")
    return {name: float(np.median(values)) for name, values in times.items()}, accuracies, gaps


def row(task, noise, seconds, accuracies, gaps):
    best = min(seconds[name] for name in PEERS)
    cells = [f"{seconds[name]:.2f} ({accuracies[name]:.3f})" for name in LOSSES + PEERS]
    proved = [f"{gaps[loss]:.0e}" for loss in LOSSES]
    ratios = [f"{best / seconds[loss]:.2f}" for loss in LOSSES]
    return f"| {task.name} | {noise} | " + " | ".join(cells + proved + ratios) + " |"


HEAD = (
    "| data | noise | hinge (accuracy) | logistic | LR lbfgs | LinearSVC primal | gap hinge | gap logistic "
    "| ratio hinge | ratio logistic |"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="a remark on the machine, written above the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for task in tasks():
            for noise in (0.1, 0.5):
                lines.append(row(task, noise, *measure(task, noise, options.rounds)))
                print(lines[-1], flush=True)
    out = HERE / "gaussian_multiclass.md"
    note = f"\n{options.note}\n" if options.note else ""
    head = "# Fits of several classes beside scikit-learn (CPU seconds)"
    text = f"{head}\n{__doc__.split(chr(10), 1)[1]}\n{environment()}\n{note}\n"
    out.with_suffix(".tmp").write_text(text + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
