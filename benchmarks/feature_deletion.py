"""How long does a classifier for deleted features take, beside a general solver on its linear program?

Run it with `python benchmarks/feature_deletion.py`. Every method runs on one thread; times are CPU seconds of the process, the
median over rounds. The peer is HiGHS (interior point, as in scipy.optimize.linprog) on the linear program as published, (4) of
Dekel and Shamir, its matrix built beforehand; it gets LIMIT seconds of wall time and is not run where n_samples * n_features
exceeds SKIP, to save time. Ours is certified: `gap` is (objective - lower bound) / max(objective, margin), 1e-6 at most.
`excess` is by how much the peer's objective lies above ours, in the same unit. The ratio is the peer's time over ours; ">"
where the peer did not end. Uniform rows have entries from -1 to 1, labels by five features and noise. Real features are
scaled to a largest absolute value of 1. Bound and margin are 1. Writes the table beside this file.
"""

import argparse
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gaussian_dense import environment, timed
from scipy import sparse
from scipy.optimize import linprog
from threadpoolctl import threadpool_limits

from holdfast import FeatureDeletionClassifier
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
LIMIT, SKIP = 300.0, 500_000
"""Seconds that the peer gets, and entries from which on it is not run."""


@dataclass
class Task:
    data: str
    X: np.ndarray
    y: np.ndarray
    budget: float
    values: np.ndarray

    @property
    def name(self):
        kind = "1 each" if np.all(self.values == 1) else "0.5 to 2"
        return f"{self.data} | {self.budget:g}, values {kind}"


def uniform(m, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(m, n))
    return X, np.sign(X[:, :5].sum(axis=1) + 0.5 * rng.normal(size=m))


def tasks():
    for m, n in ((200, 50), (1000, 100)):
        yield Task(f"{m} x {n}", *uniform(m, n), n / 5, np.ones(n))
    yield Task("1000 x 100", *uniform(1000, 100), 20.3, np.random.default_rng(1).uniform(0.5, 2, size=100))
    for m, n in ((2000, 200), (10_000, 100)):
        yield Task(f"{m} x {n}", *uniform(m, n), n / 5, np.ones(n))
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("spambase")
        X, y = data["X"] / np.abs(data["X"]).max(axis=0), np.where(data["y"] == 1, 1.0, -1.0)
        yield Task("spambase, 4601 x 57", X, y, 5, np.ones(57))
        data = load_from_folder("mnist")
        some = np.flatnonzero((data["y"] == 4) | (data["y"] == 7))[:2000]
        X, y = data["X"][some] / 255.0, np.where(data["y"][some] == 7, 1.0, -1.0)
        for budget in (25, 100):
            yield Task("MNIST 4 or 7, 2000 x 784", X, y, budget, np.ones(784))


def published(task):
    """Return the arguments of linprog for (4): variables w, b, xi, lambda, alpha."""
    (m, n), v, y = task.X.shape, task.values, task.y
    P = v.sum() - task.budget
    each, entry = np.arange(m), np.arange(m * n)
    owner, column = np.repeat(each, n), np.tile(np.arange(n), m)
    rows = np.concatenate([each, each, each, owner, m + entry, m + entry, m + entry])
    variables = np.full(m, n), n + 1 + each, n + 1 + m + each, n + 1 + 2 * m + entry
    columns = np.concatenate([*variables, column, n + 1 + m + owner, n + 1 + 2 * m + entry])
    entries = np.concatenate(
        [
            -y,
            -np.ones(m),
            -P * np.ones(m),
            np.ones(m * n),
            -(y[:, None] * task.X).ravel(),
            np.tile(v, m),
            -np.ones(m * n),
        ]
    )
    size = n + 1 + 2 * m + m * n
    cost = np.zeros(size)
    cost[n + 1 : n + 1 + m] = 1 / m
    return {
        "c": cost,
        "A_ub": sparse.csc_array((entries, (rows, columns)), shape=(m + m * n, size)),
        "b_ub": np.concatenate([np.zeros(m), -np.tile(v / P, m)]),
        "bounds": [(-1, 1)] * n + [(None, None)] + [(0, None)] * (2 * m + m * n),
    }


def measure(task, rounds):
    """Return the median CPU seconds of ours, the model, and the peer's seconds and objective, None for what is not known."""
    ours = []
    for _ in range(rounds):
        model = FeatureDeletionClassifier(task.budget, task.values, margin=1.0)
        seconds, model = timed(lambda model=model: model.fit(task.X, task.y))
        ours.append(seconds)
    if model.gap_ > 1e-6:
        raise RuntimeError(f"{task.name}: gap {model.gap_:.1e}")
    if task.X.size > SKIP:
        return float(np.median(ours)), model, None, None
    arguments = published(task)
    seconds, found = timed(lambda: linprog(**arguments, method="highs-ipm", options={"time_limit": LIMIT}))
    return float(np.median(ours)), model, seconds, found.fun if found.status == 0 else None


def row(task, ours, model, peer, objective):
    cells = [task.name, f"{ours:.2f}", str(model.n_iter_), f"{model.gap_:.0e}", f"{model.objective_:.6f}"]
    if peer is None:
        cells += ["not run", "", ""]
    elif objective is None:
        cells += [f"> {peer:.0f}", "", f"> {peer / ours:.0f}"]
    else:
        excess = (objective - model.objective_) / max(model.objective_, 1.0)
        cells += [f"{peer:.1f}", f"{excess:.0e}", f"{peer / ours:.0f}"]
    return "| " + " | ".join(cells) + " |"


HEAD = "| data | budget | ours | steps | gap | objective | HiGHS | excess | ratio |"


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
            lines.append(row(task, *measure(task, 1 if task.X.size > SKIP else options.rounds)))
            print(lines[-1], flush=True)
    out = HERE / "feature_deletion.md"
    note = f"\n{options.note}\n" if options.note else ""
    head = "# A classifier for deleted features beside a general linear-programming solver (CPU seconds)"
    about = __doc__.split("\n", 1)[1].replace("LIMIT", f"{LIMIT:.0f}").replace("SKIP", f"{SKIP:_}".replace("_", " "))
    out.with_suffix(".tmp").write_text(f"{head}\n{about}\n{environment()}\n{note}\n" + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
