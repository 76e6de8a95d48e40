"""How fast are the stochastic steps, beside scikit-learn's SGDClassifier, and how far do they get?

Run it with `python benchmarks/gaussian_sgd.py`. One thread; CPU seconds of the process, the median over rounds in which the
methods take turns. Both take the same number of epochs over the same rows and average. `a row` is the time of a row in an
epoch, without start-up and proof: scikit-learn's from the difference between fits of 2 and of 7 epochs, ours from the steps
alone. `fit` is all of `epochs` epochs, ours with the certified gap after each. `excess` is how far the objective lies above
its optimum, as found by the batch solver at tol=1e-6, if it was; `batch` is the time of that, and the gap it ended with.
scikit-learn has an objective of its own.
The noise is 0.3 of the rms of the nonzero entries, alpha is 0 (logistic: 1). Writes the table beside this file.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

import holdfast
from holdfast import GaussianRobustClassifier
from holdfast._core.problem import FiniteSum
from holdfast.solvers import SGD
from holdfast.solvers.stochastic import Iterate, Pace

HERE = Path(__file__).parent


@dataclass
class Task:
    """A data set and the noise to train for."""

    name: str
    X: object
    y: np.ndarray
    noise: float


def dense(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X @ rng.normal(size=d) / np.sqrt(d)
    return Task(f"{n} x {d} dense", X, np.where(score + 0.5 * rng.normal(size=n) > 0, 1, -1), 0.3)


def text(n, d, nonzeros, seed=0):
    """Rows of unit length with few nonzeros, some features far more frequent than others."""
    rng = np.random.default_rng(seed)
    columns = np.minimum(d * rng.uniform(size=n * nonzeros) ** 3, d - 1).astype(np.int32)
    rows = np.repeat(np.arange(n, dtype=np.int32), nonzeros)
    X = sparse.csr_matrix((rng.exponential(size=n * nonzeros), (rows, columns)), shape=(n, d))
    X = sparse.csr_matrix(sparse.diags_array(1 / sparse.linalg.norm(X, axis=1)) @ X)
    score = X @ rng.normal(size=d)
    y = np.where(score + 0.5 * rng.normal(size=n) > np.median(score), 1, -1)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return Task(f"{n} x {d} CSR, {X.nnz / n:.0f} nonzeros a row", X, y, 0.3 * float(np.sqrt(np.mean(X.data**2))))


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def ours(task, loss, epochs):
    return GaussianRobustClassifier(task.noise, loss=loss, solver=SGD(epochs=epochs), random_state=0).fit(
        task.X, task.y
    )


def theirs(task, epochs):
    model = SGDClassifier(loss="hinge", average=True, max_iter=epochs, tol=None, random_state=0)
    return model.fit(task.X, task.y)


def steps_alone(task, loss):
    """Return a function that takes one epoch of steps."""
    problem = GaussianRobustClassifier(task.noise, loss=loss)._problems(task.X, task.y, None, {})[0]
    view, n = problem.view(FiniteSum), len(task.y)
    order, nothing = np.random.default_rng(0).permutation(n), np.empty(0, dtype=np.intp)
    iterate, pace = Iterate.at(np.zeros(problem.n_parameters), view), Pace(0.1, np.inf)
    return lambda: iterate.advance(view, pace, order, np.ones(n), np.zeros(n), nothing, epochs=1000)


def measure(task, losses, epochs, rounds):
    """Return median CPU seconds by name, and what was reached."""
    seconds, reached = {}, {}

    def note(name, function):
        took, result = timed(function)
        seconds.setdefault(name, []).append(took)
        return result

    passes = {loss: steps_alone(task, loss) for loss in losses}
    for one in passes.values():
        one()
    for _ in range(rounds):
        note("theirs", lambda: theirs(task, epochs))
        few, many = timed(lambda: theirs(task, 2))[0], timed(lambda: theirs(task, 7))[0]
        seconds.setdefault("their epoch", []).append((many - few) / 5)
        for loss in losses:
            note(("epoch", loss), passes[loss])
            reached[loss] = note(("fit", loss), lambda loss=loss: ours(task, loss, epochs))
    for loss in losses:
        best = note(
            ("batch", loss), lambda loss=loss: GaussianRobustClassifier(task.noise, loss=loss).fit(task.X, task.y)
        )
        reached[loss, "excess"] = reached[loss].objective_ / best.objective_ - 1
        reached[loss, "batch"] = best.gap_
    return {name: float(np.median(values)) for name, values in seconds.items()}, reached


COLUMNS = "data,loss,a row (us),SGDClassifier (us),fit (s),SGDClassifier (s),excess,certified gap,batch (s),batch gap"
HEAD = f"| {COLUMNS.replace(',', ' | ')} |"


def environment():
    import scipy

    return (
        f"holdfast {holdfast.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}, numba {__import__('numba').__version__}; "
        f"{platform.machine()}, {os.cpu_count()} cores, one thread used"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--losses", default="hinge,two_point,logistic")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    losses, n = options.losses.split(","), 10_000 if options.quick else 100_000
    warnings.simplefilter("ignore")
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for task in (dense(n, 100), text(n, 50_000, 45)):
            seconds, reached = measure(task, losses, options.epochs, options.rounds)
            for loss in losses:
                cells = [
                    f"{1e6 * seconds['epoch', loss] / n:.2f}",
                    f"{1e6 * seconds['their epoch'] / n:.2f}",
                    f"{seconds['fit', loss]:.2f}",
                    f"{seconds['theirs']:.2f}",
                    f"{reached[loss, 'excess']:.1e}" if reached[loss, "batch"] <= 1e-6 else "-",
                    f"{reached[loss].gap_:.1e}",
                    f"{seconds['batch', loss]:.2f}",
                    f"{reached[loss, 'batch']:.0e}",
                ]
                lines.append(f"| {task.name} | {loss} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    out = HERE / "gaussian_sgd.md"
    about = f"{__doc__.split(chr(10), 1)[1]}\n{options.epochs} epochs. {environment()}\n\n"
    out.with_suffix(".tmp").write_text(f"# Stochastic steps beside scikit-learn's\n{about}" + "\n".join(lines) + "\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
