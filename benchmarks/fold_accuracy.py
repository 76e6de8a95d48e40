"""How exactly must the fits in the folds of a search be solved?

Run it with `python benchmarks/fold_accuracy.py`, for about ten minutes; HOLDFAST_DATA names the folder of the data. It writes
the table beside this file. Four searches of 30 sizes and 5 folds, on up to 1050 standardised training rows of eight sets, are
run with `cv_tol` from 1e-6 to 1e-2. "Size" tells whether the size chosen is that of 1e-6, "scores" by how much a mean
validation score of any size differs from it at most, "time" the CPU time as a share of its time.
"""

import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from holdfast import Ball, Box, GaussianRobustClassifierCV, RobustLinearClassifierCV
from holdfast.datasets import load_from_folder
from tables import environment, table, write

PAGE = Path(__file__).with_suffix(".md")
TOLERANCES, ROWS = (1e-6, 1e-4, 1e-3, 1e-2), 1050
SEARCHES = {
    "Gaussian, hinge": lambda tol: GaussianRobustClassifierCV(loss="hinge", cv_tol=tol),
    "Gaussian, logistic": lambda tol: GaussianRobustClassifierCV(cv_tol=tol),
    "ball, hinge": lambda tol: RobustLinearClassifierCV(uncertainty=Ball(), scoring="accuracy", cv_tol=tol),
    "box, logistic": lambda tol: RobustLinearClassifierCV(
        uncertainty=Box(), loss="logistic", scoring="accuracy", cv_tol=tol
    ),
}


def sets():
    """Yield names, rows and labels."""
    yield "breast cancer", *load_breast_cancer(return_X_y=True)
    for name, stored in (("ionosphere", "ionosphere"), ("pima", "pima"), ("wine", "wine"), ("splice", "splice_libsvm")):
        data = load_from_folder(stored)
        yield name, data["X"], data["y"]
    data = load_from_folder("spambase")
    yield "spambase", np.log1p(data["X"]), data["y"]
    for name, stored, pair in (("USPS 3 or 5", "usps", (3, 5)), ("MNIST 4 or 9", "mnist", (4, 9))):
        data = load_from_folder(stored)
        rows = np.flatnonzero(np.isin(data["y"], pair))[:1500]
        yield name, data["X"][rows].reshape(len(rows), -1), data["y"][rows]


def searched(make, X, y):
    """Return CPU seconds, the index of the size chosen, and mean scores."""
    start = time.process_time()
    results = make.fit(X, y).cv_results_
    return time.process_time() - start, int(np.argmin(results["rank_test_score"])), results["mean_test_score"]


def lines():
    """Yield a line of the table for each set and search."""
    rng = np.random.default_rng(0)
    for name, X, y in sets():
        some = rng.permutation(len(y))[:ROWS]
        scaled = StandardScaler().fit_transform(X[some])
        for way, make in SEARCHES.items():
            (seconds, size, scores), *others = (searched(make(tol), scaled, y[some]) for tol in TOLERANCES)
            cells = [f"{seconds:.2f} s"]
            for less, chosen, found in others:
                same = "same" if chosen == size else f"{chosen - size:+d} steps, {found[chosen] - scores[size]:+.4f}"
                cells.append(f"{same}; {np.abs(found - scores).max():.4f}; {less / seconds:.2f}")
            yield f"| {name} | {way} | " + " | ".join(cells) + " |"


def main():
    warnings.simplefilter("ignore")
    head = "| set | search | 1e-6 | " + " | ".join(f"{tol:g}: size; scores; time" for tol in TOLERANCES[1:]) + " |"
    title = "# How exactly must the fits in the folds of a search be solved?"
    about = __doc__.split("\n", 2)[2].strip()
    write(PAGE, f"{title}\n\n{about}\n\n{environment()}\n\n{table(head, lines())}\n")


if __name__ == "__main__":
    main()
