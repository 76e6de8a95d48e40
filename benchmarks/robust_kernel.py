"""Do nonlinear models trained for sets of inputs hold up better than a plain SVC?

Run it with `python benchmarks/robust_kernel.py`; HOLDFAST_DATA names the folder of spambase and usps. It writes the table
beside this file. Rows are standardised by the training rows (USPS: divided by the common deviation of all pixels), so that
sizes are in standard deviations. In every split there are 300 rows to train, 150 to choose settings, 300 to test.

* SVC: the RBF kernel, gamma and C from a grid of 2 x 3.
* robust kernel: RobustKernelClassifier with 100 landmarks, gamma from the same grid, two values of alpha, trained for balls or
  boxes of half or all of the size that is met.
* robust linear: RobustLinearClassifier for the same sets, three values of alpha.

What is met: nothing (clean); the worst that a search finds in an l2 ball or in an linf ball (see robust_accuracy: it is an
upper bound on the accuracy under attack); or Gaussian noise in all features, averaged over 20 draws. Settings are chosen on the
validation rows *under what is met*, the plain SVC's too. `proved` is the share of test rows that are right and certified, of
the model chosen for that attack. Numbers are means over splits in percent, with standard errors; differences are paired.
"""

import argparse
import os
import warnings
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from holdfast import Ball, Box, RobustKernelClassifier, RobustLinearClassifier, robust_accuracy
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
N_TRAIN, N_CHOOSE, N_TEST = 300, 150, 300
WIDTHS = (0.2, 0.7)
"""gamma times the number of features."""
FAMILIES = ("SVC", "robust kernel", "robust linear")


def tables():
    """Yield names, rows, labels, whether features keep their common scale, and the sizes that are met: l2, linf, noise."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y, False, (1.0, 0.3, 0.5)
    if not os.environ.get("HOLDFAST_DATA"):
        print("robust_kernel.py: HOLDFAST_DATA is not set, so spambase and USPS are left out.")
        return
    data = load_from_folder("spambase")
    yield "spambase", np.log1p(data["X"]), (data["y"] == 1).astype(int), False, (0.5, 0.1, 0.5)
    data = load_from_folder("usps")
    for one, other in ((3, 5), (4, 9)):
        own = np.isin(data["y"], [one, other])
        yield f"USPS {one} v {other}", data["X"][own], (data["y"][own] == one).astype(int), True, (1.5, 0.15, 1.0)


def conditions(sizes):
    """Return what is met, by name: sets for attacks, and deviations of noise."""
    l2, linf, noise = sizes
    return {"clean": 0.0, f"l2 {l2:g}": Ball(l2), f"linf {linf:g}": Box(linf), f"noise {noise:g}": noise}


def candidates(family, met, n_features):
    """Yield models of a family that may be good for what is met."""
    gammas = [width / n_features for width in WIDTHS]
    if family == "SVC":
        for gamma, C in product(gammas, (0.3, 3.0, 30.0)):
            yield SVC(gamma=gamma, C=C)
        return
    # noise of deviation s in d features is about s sqrt(d) long, little of it along any one direction
    whole = Ball(2 * met) if isinstance(met, float) else met
    sets = [whole.times(0.5), whole] if met else [None]
    for uncertainty in sets:
        if family == "robust linear":
            yield from (RobustLinearClassifier(uncertainty, alpha=alpha) for alpha in (0.1, 1.0, 10.0))
        else:
            for gamma, alpha in product(gammas, (0.03, 0.3)):
                yield RobustKernelClassifier(
                    uncertainty, gamma=gamma, alpha=alpha, n_components=100, bound="tangent", tol=1e-3, random_state=0
                )


def score(model, X, y, met, *, thorough):
    """Return accuracy under what is met, and the share that is proved."""
    if not isinstance(met, float):
        effort = {"n_starts": 3, "max_iter": 40} if thorough else {"n_starts": 1, "max_iter": 15}
        found = robust_accuracy(model, X, y, met, **effort)
        return found.accuracy, found.certified
    if met == 0:
        return model.score(X, y), np.nan
    rng = np.random.default_rng(0)
    return np.mean([model.score(X + met * rng.normal(size=X.shape), y) for _ in range(20)]), np.nan


def split(name, X, y, is_common, sizes, seed):
    """Return rows of results for one split."""
    warnings.simplefilter("ignore")
    parts = train_test_split(X, y, train_size=N_TRAIN + N_CHOOSE, stratify=y, random_state=seed)
    own, rest, y_own, y_rest = parts
    rest, y_rest = rest[:N_TEST], y_rest[:N_TEST]
    fit, choose, y_fit, y_choose = train_test_split(own, y_own, test_size=N_CHOOSE, stratify=y_own, random_state=seed)
    if is_common:
        scale = fit.std()
        fit, choose, rest = fit / scale, choose / scale, rest / scale
    else:
        scaler = StandardScaler().fit(fit)
        fit, choose, rest = (scaler.transform(rows) for rows in (fit, choose, rest))
    results = []
    with threadpool_limits(1):
        for what, met in conditions(sizes).items():
            for family in FAMILIES:
                begin, tried = process_time(), []
                for model in candidates(family, met, X.shape[1]):
                    model.fit(fit, y_fit)
                    tried.append((score(model, choose, y_choose, met, thorough=False)[0], model))
                seconds = (process_time() - begin) / len(tried)
                best = max(tried, key=lambda pair: pair[0])[1]
                results.append((name, what, family, *score(best, rest, y_rest, met, thorough=True), seconds))
    return results


def mean(values):
    values = np.asarray(values) * 100
    return f"{values.mean():.1f} ({values.std(ddof=1) / np.sqrt(len(values)):.1f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    cases = [(*table, seed) for table in tables() for seed in range(arguments.splits)]
    found = [row for rows in Parallel(arguments.jobs)(delayed(split)(*case) for case in cases) for row in rows]
    lines = [
        "# Nonlinear models trained for sets of inputs, beside a plain SVC",
        "",
        "`python benchmarks/robust_kernel.py` writes this page; its first lines say how. Sizes are in standard deviations.",
        "",
        "| data | met | SVC | robust kernel | robust linear | kernel - SVC | proved: SVC | robust kernel | robust linear |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, what in dict.fromkeys((row[0], row[1]) for row in found):
        own = {family: [row for row in found if row[:3] == (name, what, family)] for family in FAMILIES}
        accuracy = {family: np.array([row[3] for row in rows]) for family, rows in own.items()}
        proved = [np.array([row[4] for row in rows]) for rows in own.values()]
        cells = [mean(accuracy[family]) for family in FAMILIES]
        cells.append(mean(accuracy["robust kernel"] - accuracy["SVC"]))
        cells += ["" if np.any(np.isnan(shares)) else f"{100 * shares.mean():.0f}" for shares in proved]
        lines.append(f"| {name} | {what} | {' | '.join(cells)} |")
    Path(HERE / "robust_kernel.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
