"""How long does a certified Gaussian robust fit with a kernel take, beside SVC with the same kernel?

Run it with `python benchmarks/kernel_speed.py`. Both use an RBF kernel and a single thread; times are CPU seconds of a fit of
the process, the median over rounds in which the methods take turns; SVC has a cache of 500 MB. Ours is
`GaussianRobustClassifier(noise, loss="hinge", kernel="rbf")`, KEN-GURU, with 500 landmarks (Nystroem), or exact, which is the
kernel of all rows. Settings are chosen for both alike, by accuracy in three folds of about 1500 training rows: gamma among
0.3, 1 and 3 times a usual one (`gamma="scale"`; for images 1 over their mean squared length), noise among NOISES, C among CS.
Accuracy is that of test rows which nobody has seen, in percent, with its standard error. `gap` is what is proved of our fit,
relative; with landmarks it speaks of Nystroem's kernel. The ratio is SVC's time over ours. SVC is not run on 100 000 rows.

* moons: two half moons with noise, turned into 10 dimensions together with 8 columns of noise
* shells: 10 features, classes by the length of the row, 10 % of the labels wrong
* board: squares of a 4 x 4 board with 8 columns of noise beside it, 5 % of the labels wrong
* clusters: scikit-learn's make_classification, 20 features, 8 of them informative, 12 clusters
* MNIST 4 or 9, USPS 3 or 5: images
"""

import argparse
import os
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from gaussian_dense import environment, timed
from sklearn.datasets import make_classification, make_moons
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
NOISES, CS, WIDTHS = (0.003, 0.01, 0.03, 0.1), (0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)
N_TEST, N_CHOICE = 5000, 1500
LF = "\n"


@dataclass
class Task:
    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    gamma: float
    n_landmarks: int | None
    has_peer: bool = True


def moons(n, rng):
    X, y = make_moons(n, noise=0.25, random_state=0)
    Q, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    return np.hstack([X, 0.2 * rng.normal(size=(n, 8))]) @ Q, y


def shells(n, rng):
    X = rng.normal(size=(n, 10))
    return X, (np.linalg.norm(X, axis=1) > 3.06).astype(int) ^ (rng.uniform(size=n) < 0.1)


def board(n, rng):
    X = rng.uniform(-2, 2, size=(n, 2))
    y = np.floor(X).sum(axis=1).astype(int) % 2 ^ (rng.uniform(size=n) < 0.05)
    return np.hstack([X, 0.2 * rng.normal(size=(n, 8))]), y


def clusters(n, rng):
    options = {"n_informative": 8, "n_redundant": 4, "n_clusters_per_class": 6, "flip_y": 0.02, "random_state": 0}
    X, y = make_classification(n, 20, **options)
    return X / X.std(axis=0), y


def drawn(make, n, **options):
    X, y = make(n + N_TEST, np.random.default_rng(0))
    gamma = 1 / (X.shape[1] * X[:n].var())
    name = f"{make.__name__}, " + f"{n:,} x {X.shape[1]}".replace(",", " ")
    return Task(name, X[:n], y[:n], X[n:], y[n:], gamma, **options)


def digits(name, one, other, n):
    data = load_from_folder(name)
    X, y = (data[key][np.isin(data["y"], (one, other))] for key in ("X", "y"))
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] - X.mean(axis=0), y[order]
    gamma = 1 / (X**2).sum(axis=1).mean()
    title = f"{name.upper()} {one} or {other}, {n} x {X.shape[1]}"
    return Task(title, X[:n], y[:n], X[n : n + N_TEST], y[n : n + N_TEST], gamma, None)


def tasks(quick):
    n = 2000 if quick else 10_000
    for make in (moons, shells, board, clusters):
        yield drawn(make, n, n_landmarks=500)
    if not quick:
        for make in (moons, shells):
            yield drawn(make, 100_000, n_landmarks=500, has_peer=False)
    yield drawn(shells, 2000, n_landmarks=None)
    if os.environ.get("HOLDFAST_DATA"):
        yield digits("mnist", 4, 9, 2000)
        yield digits("usps", 3, 5, 1200)


def chosen(make, grid, task):
    """Return the settings that are best in three folds of some training rows."""
    stride = max(1, len(task.X) // N_CHOICE)
    gammas = {"gamma": [task.gamma * width for width in WIDTHS]}
    search = GridSearchCV(make(), grid | gammas, cv=StratifiedKFold(3), refit=False)
    return search.fit(task.X[::stride], task.y[::stride]).best_params_


def measure(task, rounds):
    ours = partial(
        GaussianRobustClassifier, 0.1, loss="hinge", kernel="rbf", n_landmarks=task.n_landmarks, random_state=0
    )
    makers = {"ours": (ours, {"noise": NOISES})}
    if task.has_peer:
        makers["SVC"] = partial(SVC, cache_size=500), {"C": CS}
    settings = {name: chosen(make, grid, task) for name, (make, grid) in makers.items()}
    times, models = {name: [] for name in makers}, {}
    for _ in range(rounds):
        for name, (make, _) in makers.items():
            model = make().set_params(**settings[name])
            seconds, models[name] = timed(lambda model=model: model.fit(task.X, task.y))
            times[name].append(seconds)
    return {name: float(np.median(found)) for name, found in times.items()}, models, settings


def row(task, seconds, models, settings):
    def accuracy(name):
        share = models[name].score(task.X_test, task.y_test)
        return f"{100 * share:.1f} ({100 * np.sqrt(share * (1 - share) / len(task.y_test)):.1f})"

    def told(name):
        width = settings[name]["gamma"] / task.gamma
        [rest] = [f"{key} {value:g}" for key, value in settings[name].items() if key != "gamma"]
        return f"{rest}, width {width:g}"

    ours = models["ours"]
    kind = "exact" if task.n_landmarks is None else f"{task.n_landmarks} landmarks"
    cells = [task.name, kind, f"{seconds['ours']:.2f}", f"{ours.gap_:.0e}", accuracy("ours"), told("ours")]
    if task.has_peer:
        cells += [f"{seconds['SVC']:.2f}", accuracy("SVC"), told("SVC"), str(models["SVC"].n_support_.sum())]
        cells += [f"{seconds['SVC'] / seconds['ours']:.2f}"]
    else:
        cells += ["not run", "", "", "", ""]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| rows | ours | seconds | gap | accuracy | chosen | SVC, seconds | accuracy | chosen | support vectors | ratio |"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2000 rows")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for task in tasks(options.quick):
            lines.append(row(task, *measure(task, options.rounds)))
            print(lines[-1], flush=True)
    out = HERE / "kernel_speed.md"
    about = __doc__.split("\n", 1)[1].replace("NOISES", str(NOISES)).replace("CS", str(CS))
    head = "# Gaussian robust fits with a kernel beside SVC (CPU seconds)"
    out.with_suffix(".tmp").write_text(f"{head}\n{about}\n{environment()}\n\n{LF.join(lines)}\n")
    out.with_suffix(".tmp").replace(out)
    print(f"written to {out.name}")


if __name__ == "__main__":
    sys.exit(main())
