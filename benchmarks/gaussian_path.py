"""How long does a path of noises with cross-validation take, beside LogisticRegressionCV and beside cold fits?

Run it with `python benchmarks/gaussian_path.py`. 30 noises (LogisticRegressionCV: 30 Cs) and 5 folds, with a fit to all rows
at the end. Every method runs on one thread; times are CPU seconds of the process, the median over rounds in which the methods
take turns. `path` is GaussianRobustClassifierCV with the solver it picks or with Newton's method; `cold` is the same fits by
GaussianRobustClassifier, each from scratch, timed once. `gap` is the largest proved gap of all fits of the path, and
`short` how many noises have a fold whose gap is above 1e-6. LogisticRegressionCV proves none: it runs at its default tolerance,
with lbfgs and with Newton's method. Ratios are the other's time over that of the path. Features are scaled; the logistic
loss has a ridge of 1, the hinge none. Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from gaussian_dense import Task, correlated, environment, scaled, timed
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier, GaussianRobustClassifierCV
from holdfast.datasets import load_from_folder

N_NOISES, N_FOLDS = 30, 5
HERE = Path(__file__).parent


def tasks():
    yield scaled("breast cancer", *load_breast_cancer(return_X_y=True))
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("spambase")
        yield scaled("spambase", data["X"], data["y"])
        data = load_from_folder("usps")
        pair = np.isin(data["y"], (3, 5))
        yield scaled("USPS 3 vs 5", data["X"][pair], data["y"][pair])
    yield Task("20 000 x 50", *correlated(20_000, 50))


def cold_fits(task, loss, solver, model):
    """Fit what the path of `model` has fitted, one by one."""
    folds = [own for own, _ in StratifiedKFold(N_FOLDS).split(task.X, task.y)]
    for own, noise in [*((own, noise) for own in folds for noise in model.noises_), (slice(None), model.noise_)]:
        GaussianRobustClassifier(noise, loss=loss, solver=solver).fit(task.X[own], task.y[own])


def measure(task, ways, rounds):
    """Return the median CPU seconds of every method, and the gaps of the paths."""
    times, gaps = defaultdict(list), {}
    for k in range(rounds):
        for solver in ("lbfgs", "newton-cholesky"):
            theirs = LogisticRegressionCV(Cs=N_NOISES, cv=N_FOLDS, solver=solver, max_iter=10_000)
            times[solver].append(timed(lambda theirs=theirs: theirs.fit(task.X, task.y))[0])
        for loss, solver in ways:
            ours = GaussianRobustClassifierCV(N_NOISES, cv=N_FOLDS, loss=loss, solver=solver)
            seconds, model = timed(lambda ours=ours: ours.fit(task.X, task.y))
            times[loss, solver].append(seconds)
            gaps[loss, solver] = np.append(model.cv_results_["max_gap"], model.gap_)
            if k == 0:
                seconds, _ = timed(lambda way=(loss, solver), model=model: cold_fits(task, *way, model))
                times[loss, solver, "cold"].append(seconds)
    return {name: float(np.median(values)) for name, values in times.items()}, gaps


def row(task, loss, solver, seconds, gaps):
    path = seconds[loss, solver]
    others = [seconds[loss, solver, "cold"], seconds["lbfgs"], seconds["newton-cholesky"]]
    cells = " | ".join(f"{value:.2f}" for value in (path, *others))
    ratios = " | ".join(f"{value / path:.2f}" for value in others)
    proved = f"{gaps.max():.0e} | {np.count_nonzero(gaps > 1e-6)}"
    return f"| {task.name} | {loss} | {solver or 'picked'} | {cells} | {proved} | {ratios} |"


HEAD = (
    "| data | loss | solver | path | cold | LRCV lbfgs | LRCV newton-cholesky | gap | short "
    "| ratio cold | ratio lbfgs | ratio newton-cholesky |"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", default="hinge,logistic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="a remark on the machine, written above the table")
    options = parser.parse_args()
    ways = [(loss, solver) for loss in options.losses.split(",") for solver in (None, "newton")]
    warnings.simplefilter("ignore")
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for task in tasks():
            seconds, gaps = measure(task, ways, options.rounds)
            for way in ways:
                lines.append(row(task, *way, seconds, gaps[way]))
                print(lines[-1], flush=True)
    out = HERE / "gaussian_path.md"
    note = f"\n{options.note}\n" if options.note else ""
    text = f"# Paths of noises with cross-validation (CPU seconds)\n{__doc__.split(chr(10), 1)[1]}\n{environment()}\n{note}\n"
    out.with_suffix(".tmp").write_text(text + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
