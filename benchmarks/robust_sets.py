"""How long does a certified fit for uncertain rows take, beside general conic and linear solvers?

Run it with `python benchmarks/robust_sets.py`. Every method runs on one thread; times are CPU seconds of the process, the
median over rounds in which the methods take turns. All methods solve the same problem: hinge loss with an l2 ball or an
ellipsoid for all rows and a ridge of 1 (cvxpy + Clarabel), hinge loss with a box for all rows and no penalty, ROBLP (HiGHS'
interior point through SciPy), squared hinge with an ellipsoid for each row and a ridge of 1 beside a plain LinearSVC (squared
hinge, primal), which knows of no uncertainty. Tolerances: 1e-6, relative, certified for ours; what Clarabel and HiGHS call
1e-6; LinearSVC at 1e-6. `gap` is what is proved of our fit, `excess` by how much the peer's objective lies above ours,
relative, both evaluated by the same formula. The ratio is the peer's time over ours. A peer that takes more than a minute is
run once. Synthetic rows are Gaussian, labels follow a linear rule with noise; real rows are standardised.
Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from gaussian_dense import environment, timed
from scipy.optimize import linprog
from scipy.sparse import csc_array, eye_array, hstack
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from holdfast import Ball, Box, Ellipsoid, RobustLinearClassifier
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
LIMIT = 60.0
"""CPU seconds from which on one round is enough."""


@dataclass
class Task:
    data: str
    problem: str
    X: np.ndarray
    y: np.ndarray
    model: RobustLinearClassifier
    peer: str
    fit_peer: Any
    metadata: dict


def synthetic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d) / np.sqrt(min(d, 50))
    return X, np.where(X @ w + 0.3 + 0.7 * rng.normal(size=n) > 0, 1, -1)


def tables():
    for n, d in ((10_000, 100), (500, 5000)):
        yield f"{n:,} x {d:,}".replace(",", " "), *synthetic(n, d)
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("spambase")
        yield "spambase", StandardScaler().fit_transform(data["X"]), np.where(data["y"] == 1, 1, -1)
        data = load_from_folder("usps")
        pair = np.isin(data["y"], (3, 5))
        X = StandardScaler().fit_transform(data["X"][pair].astype(float))
        yield "USPS 3, 5", X, np.where(data["y"][pair] == 3, 1, -1)


def tasks():
    for name, X, y in tables():
        radius = 0.05 if len(X) > X.shape[1] else 1.0
        yield Task(
            name, f"ball {radius}", X, y, RobustLinearClassifier(Ball(radius)), *conic(X, y, radius * np.eye(1)), {}
        )
        if len(X) > X.shape[1]:
            root = np.linalg.cholesky(0.01 * np.cov(X.T) + 1e-4 * np.eye(X.shape[1]))
            model = RobustLinearClassifier(Ellipsoid(shape=root @ root.T))
            yield Task(name, "ellipsoid", X, y, model, *conic(X, y, root), {})
        width = 0.05 if len(X) > X.shape[1] else 0.2
        model = RobustLinearClassifier(Box(width), penalty=None)
        yield Task(name, f"box {width}", X, y, model, "HiGHS ipm", lambda X=X, y=y, width=width: highs(X, y, width), {})
    X, y = synthetic(100_000, 30)
    S = np.random.default_rng(1).uniform(0, 0.3, size=X.shape)
    model = RobustLinearClassifier(Ellipsoid(), loss="squared_hinge")

    def plain():
        found = LinearSVC(dual=False, tol=1e-6).fit(X, y)
        return found.coef_[0], found.intercept_[0]

    yield Task("100 000 x 30", "ellipsoid a row", X, y, model, "LinearSVC (plain)", plain, {"X_std": S})


def conic(X, y, root):
    def fit():
        w, b, t = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
        reach = root[0, 0] * cp.norm(w) if root.size == 1 else cp.norm(root.T @ w)
        cost = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b) + t)) + 0.5 * cp.sum_squares(w)
        settings = {"tol_gap_rel": 1e-6, "tol_gap_abs": 1e-6, "tol_feas": 1e-6, "max_threads": 1}
        cp.Problem(cp.Minimize(cost), [t >= reach]).solve(solver=cp.CLARABEL, **settings)
        return w.value, float(b.value)

    return "cvxpy + Clarabel", fit


def highs(X, y, width):
    """ROBLP in (w+, w-, b, e), straight from the report's linear program."""
    n, d = X.shape
    signed = y[:, None] * X
    A = hstack([csc_array(np.hstack([width - signed, width + signed, -y[:, None]])), -eye_array(n)], format="csc")
    cost = np.concatenate([np.zeros(2 * d + 1), np.ones(n)])
    bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n
    options = {"ipm_optimality_tolerance": 1e-6}
    found = linprog(cost, A, -np.ones(n), bounds=bounds, method="highs-ipm", options=options)
    return found.x[:d] - found.x[d : 2 * d], found.x[2 * d]


def objective(model, w, b, X, y, metadata):
    """Return the objective at other coefficients, by the formula."""
    t = model.uncertainty.at(X, metadata).support(w)
    u = np.maximum(1 - y * (X @ w + b) + t, 0)
    ridge = 0.5 * float(w @ w) if model.penalty == "l2" else 0.0
    return float(np.sum(u if model.loss == "hinge" else u**2)) + ridge


def measure(task, rounds):
    """Return the median CPU seconds of ours and of the peer, the gap, and the peer's excess."""
    times, excess = defaultdict(list), np.nan
    for _ in range(rounds):
        seconds, model = timed(lambda: task.model.fit(task.X, task.y, **task.metadata))
        times["ours"].append(seconds)
        if model.gap_ > 1e-6:
            raise RuntimeError(f"{task.data}, {task.problem}: gap {model.gap_:.1e}")
        if max(times["peer"], default=0.0) < LIMIT:
            seconds, (w, b) = timed(task.fit_peer)
            times["peer"].append(seconds)
            excess = objective(model, w, b, task.X, task.y, task.metadata) / model.objective_ - 1
    return float(np.median(times["ours"])), float(np.median(times["peer"])), model, excess


def row(task, ours, peer, model, excess):
    shown = f"{excess:.0e}" if task.peer != "LinearSVC (plain)" else "another problem"
    solver = model.solution_["solver"]
    cells = [task.data, task.problem, solver, f"{ours:.2f}", f"{model.gap_:.0e}", task.peer, f"{peer:.2f}", shown]
    return "| " + " | ".join([*cells, f"{peer / ours:.1f}"]) + " |"


HEAD = "| data | sets | our solver | ours | gap | peer | peer's time | excess | ratio |"


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
            lines.append(row(task, *measure(task, options.rounds)))
            print(lines[-1], flush=True)
    out = HERE / "robust_sets.md"
    note = f"\n{options.note}\n" if options.note else ""
    head = "# Fits for uncertain rows beside conic and linear solvers (CPU seconds)"
    text = f"{head}\n{__doc__.split(chr(10), 1)[1]}\n{environment()}, cvxpy {cp.__version__}\n{note}\n"
    out.with_suffix(".tmp").write_text(text + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
