"""How long does a certified Gaussian robust fit of sparse rows take, beside liblinear's classifiers?

Run it with `python benchmarks/gaussian_sparse.py`. Every method runs on one thread; times are CPU seconds of the process,
the median over rounds in which the methods take turns. Ours runs at its default tolerance, a proved gap of 1e-6, proof
included (`proof` is that part); peers run at the loosest tolerance (of powers of ten) at which their own objective is
within 1e-6 of the best one they reach, a `>` marking those that do not get there in 4 s. `quasi-Newton` is our fit
by L-BFGS. C is the inverse of the ridge that the noise amounts to at our optimum (hinge), or that we add (logistic loss).
The ratio is the best peer's time over ours. Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from collections import defaultdict

import numpy as np
from gaussian_dense import HERE, Method, Task, environment, timed
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier
from holdfast._proofs.certificate import certificate
from holdfast.datasets import load_from_folder

ACCURACY = 1e-6
TOLERANCES = 10.0 ** -np.arange(1, 8)
PATIENCE = 4.0


def bag_of_words(n, d, per_row=43, positive=0.5, seed=0):
    """Rows like texts: words drawn by Zipf's law, log counts weighted by rarity, unit length; labels from a sparse rule.

    A row has `per_row` words on average, repetitions included. A tenth of the words, of any popularity, carry a normal
    weight; a row is positive if their sum plus noise of half its deviation is among the largest share `positive`.
    """
    rng = np.random.default_rng(seed)
    popularity = 1 / (np.arange(d) + 10.0)
    edges = np.cumsum(popularity / popularity.sum())
    lengths = rng.poisson(per_row, size=n) + 1
    words = np.minimum(np.searchsorted(edges, rng.uniform(size=lengths.sum())), d - 1)
    words = rng.permutation(d)[words].astype(np.int32)
    X = sparse.csr_array((np.ones(len(words)), words, np.append(0, np.cumsum(lengths)).astype(np.int32)), shape=(n, d))
    X.sum_duplicates()
    rarity = np.log(n / np.maximum(np.bincount(X.indices, minlength=d), 1))
    X.data = np.log1p(X.data) * rarity[X.indices]
    X.data /= np.repeat(np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1])), np.diff(X.indptr))
    score = X @ (rng.normal(size=d) * (rng.uniform(size=d) < 0.1))
    score += 0.5 * score.std() * rng.normal(size=n)
    return X, np.where(score > np.quantile(score, 1 - positive), 1, -1)


def tasks(quick):
    if quick:
        yield Task("words 5 000 x 5 000", *bag_of_words(5_000, 5_000), 0.01)
        return
    for noise in (0.01, 0.005):
        yield Task("words 100 000 x 50 000", *bag_of_words(100_000, 50_000), noise)
    if not os.environ.get("HOLDFAST_DATA"):
        return
    data = load_from_folder("spambase")
    X = sparse.csr_array(data["X"] / data["X"].std(axis=0))
    yield Task("spambase 4601 x 57", X, np.where(data["y"] > 0, 1, -1), 0.1)
    data = load_from_folder("splice_uci")
    X = sparse.csr_array(OneHotEncoder().fit_transform(data["X"]))
    yield Task(f"splice, one-hot, {X.shape[0]} x {X.shape[1]}", X, np.where(data["y"] == 2, 1, -1), 0.1)
    data = load_from_folder("mnist")
    pair = np.isin(data["y"], (4, 7))
    X = sparse.csr_array(data["X"][pair])
    X.data /= np.sqrt(np.sum(X.data**2) / X.shape[0])
    yield Task(f"MNIST 4 vs 7, {X.shape[0]} x {X.shape[1]}", X, np.where(data["y"][pair] == 7, 1, -1), 0.03)


def strength(model, task):
    """Return the inverse of the ridge that the noise amounts to at the optimum, or of the one that was added."""
    if model.loss == "logistic":
        return 1.0
    problem = model._problems(task.X, task.y, None, {})[0]
    return 1 / problem.at(np.append(model.coef_[0], model.intercept_[0])).stiffness


def peers(C, loss):
    def measured(cost):
        def objective(model, X, y):
            f = X @ model.coef_[0] + model.intercept_[0]
            return C * cost(y * f).sum() + 0.5 * np.sum(model.coef_**2) + 0.5 * model.intercept_[0] ** 2

        return objective

    options = {"C": C, "max_iter": 100_000}
    if loss == "logistic":
        make = {"LR liblinear": lambda tol: LogisticRegression(solver="liblinear", tol=tol, **options)}
        cost = {"LR liblinear": lambda m: np.logaddexp(0, -m)}
    else:
        make = {
            "SVC dual, squared hinge": lambda tol: LinearSVC(dual=True, tol=tol, random_state=0, **options),
            "SVC primal, squared hinge": lambda tol: LinearSVC(dual=False, tol=tol, **options),
            "SVC dual, hinge": lambda tol: LinearSVC(loss="hinge", dual=True, tol=tol, random_state=0, **options),
        }
        cost = dict.fromkeys(make, lambda m: np.square(np.maximum(0, 1 - m)))
        cost["SVC dual, hinge"] = lambda m: np.maximum(0, 1 - m)
    return [Method(name, make[name], measured(cost[name])) for name in make]


def calibrate(method, task):
    """Set the loosest tolerance that reaches the accuracy; return whether some tighter one confirms it in time."""
    values = {}
    for tol in TOLERANCES:
        seconds, model = timed(lambda tol=tol: method.make(tol).fit(task.X, task.y))
        values[tol] = method.objective(model, task.X, task.y)
        best = min(values.values())
        method.tol = max(tol for tol, value in values.items() if value <= best * (1 + ACCURACY))
        if method.tol >= 99 * tol:
            return True
        if seconds > PATIENCE:
            break
    return method.tol > tol


def measure(task, loss, rounds):
    """Return median CPU seconds by method, C, and the peers that do not reach the accuracy in time."""

    def ours(solver=None):
        seconds, model = timed(
            lambda: GaussianRobustClassifier(task.noise, loss=loss, solver=solver).fit(task.X, task.y)
        )
        if model.gap_ > ACCURACY:
            raise RuntimeError(f"{task.name}: gap {model.gap_:.1e}")
        return seconds, model

    C = strength(ours()[1], task)
    compared = peers(C, loss)
    late = {method.name for method in compared if not calibrate(method, task)}
    times = defaultdict(list)
    for _ in range(rounds):
        seconds, model = ours()
        times["ours"].append(seconds)
        times["quasi-Newton"].append(ours("quasi_newton")[0])
        problem = model._problems(task.X, task.y, None, {})[0]
        proof = timed(lambda m=model, p=problem: certificate(p, m.coef_[0], m.intercept_[0]))[0]
        times["proof"].append(proof)
        for method in compared:
            times[method.name].append(timed(lambda m=method: m.make(m.tol).fit(task.X, task.y))[0])
    return {name: float(np.median(values)) for name, values in times.items()}, C, late, model.solution_["solver"]


PEERS = ["SVC dual, squared hinge", "SVC primal, squared hinge", "SVC dual, hinge", "LR liblinear"]
HEAD = "| data | noise | loss | C | solver | ours | proof | quasi-Newton | " + " | ".join(PEERS) + " | ratio |"


def row(task, loss, seconds, C, late, solver):
    theirs = {name: seconds[name] for name in PEERS if name in seconds}
    cells = " | ".join(f"{seconds[name]:.3f}" for name in ("ours", "proof", "quasi-Newton"))
    others = " | ".join(f"{'>' * (name in late)}{theirs[name]:.3f}" if name in theirs else "-" for name in PEERS)
    ratio = min(theirs.values()) / seconds["ours"]
    return f"| {task.name} | {task.noise} | {loss} | {C:.2g} | {solver} | {cells} | {others} | {ratio:.2f} |"


def write(lines):
    title = "# Gaussian robust fits of sparse rows beside liblinear (CPU seconds)"
    text = f"{title}\n{__doc__.split(chr(10), 1)[1]}\n{environment()}\n\n" + "\n".join(lines) + "\n"
    (HERE / "gaussian_sparse.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small set only")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for task in tasks(options.quick):
            for loss in ("hinge", "logistic"):
                lines.append(row(task, loss, *measure(task, loss, options.rounds)))
                print(lines[-1], flush=True)
                if not options.quick:
                    write(lines)


if __name__ == "__main__":
    sys.exit(main())
