"""How long does a certified minimax probability machine take, beside linear discriminant analysis and a conic solver?

Run it with `python benchmarks/minimax_probability.py`. Every method runs on one thread; times are CPU seconds of the process,
the median over rounds in which the methods take turns. The plain machine, of means and covariances alone, runs beside
scikit-learn's LinearDiscriminantAnalysis, which solves another problem with the same moments (solver "svd", the default, and
"lsqr"). Robust machines run beside the same problem in cvxpy, solved by Clarabel: intervals of each entry (ROBMPM), with means
that move, with all of the intervals outside (SPMPM), and an ellipsoid for each row. Tolerances: 1e-6, relative, certified for
ours; what Clarabel calls 1e-6. `gap` is what is proved of our fit, `excess` by how much the peer's objective lies above ours,
relative, both evaluated by the same formula. The ratio is the peer's time over ours. Rows are Gaussian with correlated
features; half-widths and deviations are uniform from 0 to 0.3, features deviate by about 1. Real rows are standardised, their
half-widths alike. Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from gaussian_dense import environment, timed
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import Box, Ellipsoid, MinimaxProbabilityClassifier
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
    model: MinimaxProbabilityClassifier
    peer: str
    fit_peer: Any
    metadata: dict = field(default_factory=dict)


def synthetic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=n)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d))
    return X + 0.3 * np.outer(y, rng.normal(size=d)), y


def tasks():
    X, y = synthetic(100_000, 100)
    for solver in ("svd", "lsqr"):
        model = MinimaxProbabilityClassifier()
        peer = LinearDiscriminantAnalysis(solver=solver)
        yield Task("100 000 x 100", "plain", X, y, model, f"LDA ({solver})", lambda X=X, y=y, peer=peer: peer.fit(X, y))
    for name, X, y in tables():
        S = np.random.default_rng(1).uniform(0, 0.3, size=X.shape)
        for problem, options in (
            ("ROBMPM", {}),
            ("ROBMPM, means move", {"means": "uncertain"}),
            ("SPMPM", {"kappa": 0.0}),
        ):
            model = MinimaxProbabilityClassifier(Box(), covariance_ridge=0.0, **options)
            yield Task(name, problem, X, y, model, "cvxpy + Clarabel", conic(X, y, S, **options), {"X_std": S})
        model = MinimaxProbabilityClassifier(Ellipsoid(), covariance_ridge=0.0)
        yield Task(name, "ellipsoid a row", X, y, model, "cvxpy + Clarabel", conic_ellipsoids(X, y, S), {"X_std": S})


def tables():
    yield "2 000 x 50", *synthetic(2000, 50)
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("spambase")
        yield "spambase", StandardScaler().fit_transform(data["X"]), np.where(data["y"] == 1, 1, -1)


def conic(X, y, S, means="fixed", kappa=1.0):
    def fit():
        plus, minus = cp.Variable(X.shape[1], nonneg=True), cp.Variable(X.shape[1], nonneg=True)
        w, size, cost, lead, constraints = plus - minus, plus + minus, 0, 0, []
        for sign in (1, -1):
            A, R = X[y == sign], kappa * S[y == sign]
            a = (A - A.mean(axis=0)) @ w
            u = cp.Variable(len(A))
            constraints += [u >= a + R @ size, u >= -a + R @ size]
            outside = (1 - kappa) * np.sqrt(np.mean(S[y == sign] ** 2, axis=0)) @ size
            cost += cp.norm(u) / np.sqrt(len(A)) + outside
            drift = S[y == sign].mean(axis=0) @ size if means == "uncertain" else 0
            lead += sign * (A.mean(axis=0) @ w) - drift
        return solved(cost, [*constraints, lead >= 1], w)

    return fit


def conic_ellipsoids(X, y, S):
    def fit():
        w, cost, lead, constraints = cp.Variable(X.shape[1]), 0, 0, []
        for sign in (1, -1):
            A, R = X[y == sign], S[y == sign]
            u, t = cp.Variable(len(A)), cp.Variable(len(A))
            a = (A - A.mean(axis=0)) @ w
            constraints += [
                u >= a + t,
                u >= -a + t,
                cp.SOC(t, cp.multiply(R, np.ones((len(A), 1)) @ w[None, :]), axis=1),
            ]
            cost += cp.norm(u) / np.sqrt(len(A))
            lead += sign * (A.mean(axis=0) @ w)
        return solved(cost, [*constraints, lead >= 1], w)

    return fit


def solved(cost, constraints, w):
    settings = {"tol_gap_rel": 1e-6, "tol_gap_abs": 1e-6, "tol_feas": 1e-6, "max_threads": 1}
    cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL, **settings)
    return w.value


def objective(task, w):
    """Return the objective at other weights, by the formula: the sum of spreads over the lead."""
    S, model = task.metadata["X_std"], task.model
    reach = S @ np.abs(w) if isinstance(model.uncertainty, Box) else np.sqrt(S**2 @ w**2)
    spread, lead = 0.0, 0.0
    for sign in (1, -1):
        own = task.y == sign
        a = (task.X[own] - task.X[own].mean(axis=0)) @ w
        spread += np.sqrt(np.mean((np.abs(a) + model.kappa * reach[own]) ** 2))
        spread += (1 - model.kappa) * np.sqrt(np.mean(S[own] ** 2, axis=0)) @ np.abs(w)
        lead += sign * task.X[own].mean(axis=0) @ w - (reach[own].mean() if model.means == "uncertain" else 0.0)
    return spread / lead


def measure(task, rounds):
    """Return the median CPU seconds of ours and of the peer, the model, and the peer's excess."""
    times, excess = defaultdict(list), np.nan
    for _ in range(rounds):
        seconds, model = timed(lambda: task.model.fit(task.X, task.y, **task.metadata))
        times["ours"].append(seconds)
        if model.gap_ > 1e-6:
            raise RuntimeError(f"{task.data}, {task.problem}: gap {model.gap_:.1e}")
        if max(times["peer"], default=0.0) < LIMIT:
            seconds, found = timed(task.fit_peer)
            times["peer"].append(seconds)
            excess = objective(task, found) / model.objective_ - 1 if task.metadata else np.nan
    return float(np.median(times["ours"])), float(np.median(times["peer"])), model, excess


def row(task, ours, peer, model, excess):
    shown = f"{excess:.0e}" if np.isfinite(excess) else "another problem"
    cells = [task.data, task.problem, f"{ours:.2f}", f"{model.gap_:.0e}", task.peer, f"{peer:.2f}", shown]
    return "| " + " | ".join([*cells, f"{peer / ours:.1f}"]) + " |"


HEAD = "| data | problem | ours | gap | peer | peer's time | excess | ratio |"


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
    out = HERE / "minimax_probability.md"
    note = f"\n{options.note}\n" if options.note else ""
    head = "# Minimax probability machines beside discriminant analysis and a conic solver (CPU seconds)"
    text = f"{head}\n{__doc__.split(chr(10), 1)[1]}\n{environment()}, cvxpy {cp.__version__}\n{note}\n"
    out.with_suffix(".tmp").write_text(text + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
