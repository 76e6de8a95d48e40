"""
How does a classifier degrade?
==============================

Three questions about the breast-cancer data, ten features of 569 cell images with the standard error of each, asked of models
that are fitted and left alone:

- What if the images are measured again, with m times the stated noise?
- What if features are missing, that is 0 after scaling, whichever they are? Dashed: what no choice of them goes below.
- How far may all features be off at once, in their mean standard errors, and the class be certain?

``holdfast, noise=4`` is trained for measurements four times as noisy, ``Box(1)`` for features that are each off by up to a
standard error, in the worst way. Boosting is asked the first question only: of the others nothing is certain for it.
Re-measurement is simulated, errors taken as independent. Split: 60 % training, 40 % test, stratified, 10 times; bars are
standard errors over the splits.

Run ``python examples/plot_how_it_degrades.py [FOLDER]``; the table and the picture go to FOLDER (build/demo).
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from holdfast import (
    Box,
    FeatureDeletion,
    GaussianNoise,
    GaussianRobustClassifier,
    RobustLinearClassifier,
    robustness_curve,
)
from holdfast.datasets import load_breast_cancer_errors
from holdfast.display import CertifiedAccuracyDisplay, RobustnessCurveDisplay

NOISES, DELETED, RADII = np.arange(7.0), np.arange(6), np.linspace(0, 6, 121)


def fitted(X, y, S):
    return {
        "LogisticRegression": LogisticRegression().fit(X, y),
        "holdfast, noise=4": GaussianRobustClassifier(4.0).fit(X, y, X_std=S),
        "holdfast, Box(1)": RobustLinearClassifier(Box(1.0)).fit(X, y, X_std=S),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0).fit(X, y),
    }


def over_splits(curves):
    """Return one curve whose repeats are the splits."""
    accuracy = np.stack([curve.mean for curve in curves], axis=2)
    return replace(curves[0], accuracy=accuracy, certified=np.mean([curve.certified for curve in curves], axis=0))


def tried(n_splits):
    X, X_std, y, _ = load_breast_cancer_errors()
    noisy, deleted, certified = [], [], []
    for train, test in StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=0).split(X, y):
        centre, scale = X[train].mean(axis=0), X[train].std(axis=0)
        Z, S = (X - centre) / scale, X_std / scale
        models = fitted(Z[train], y[train], S[train])
        rows = Z[test], y[test]
        noisy.append(robustness_curve(models, *rows, GaussianNoise(), NOISES, X_std=S[test]))
        models.pop("HistGradientBoosting")
        deleted.append(robustness_curve(models, *rows, FeatureDeletion(1), DELETED))
        weights, axes = S[train].mean(axis=0), Figure().subplots()
        certified.append(
            CertifiedAccuracyDisplay.from_estimators(
                models, *rows, norm=np.inf, weights=weights, radii=RADII, unit="mean standard errors", ax=axes
            )
        )
    certified[0].accuracy = np.mean([display.accuracy for display in certified], axis=0)
    return over_splits(noisy), over_splits(deleted), certified[0]


def table(noisy, deleted):
    head = [*(f"{m:g}x noise" for m in NOISES[::2]), *(f"{k} deleted" for k in DELETED[1::2]), "1 deleted, certified"]
    lines = ["| accuracy in % (standard error) | " + " | ".join(head) + " |", "| --- " + "| ---: " * len(head) + "|"]
    for name, mean, error in zip(noisy.models, noisy.mean, noisy.standard_error, strict=True):
        cells = [f"{100 * m:.1f} ({100 * e:.1f})" for m, e in zip(mean[::2], error[::2], strict=True)]
        if name in deleted.models:
            k = deleted.models.index(name)
            own = zip(deleted.mean[k, 1::2], deleted.standard_error[k, 1::2], strict=True)
            cells += [f"{100 * m:.1f} ({100 * e:.1f})" for m, e in own] + [f"{100 * deleted.certified[k, 1]:.1f}"]
        lines.append(f"| {name} | " + " | ".join(cells + ["-"] * (len(head) - len(cells))) + " |")
    return "\n".join(lines) + "\n"


def write_whole(path, save):
    temporary = path.with_suffix(".tmp")
    save(temporary)
    os.replace(temporary, path)


def main(out="build/demo", n_splits=10):
    with threadpool_limits(1):  # the data are small: threads would only wait for each other
        noisy, deleted, certified = tried(n_splits)
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    RobustnessCurveDisplay.from_curve(noisy, ax=left)
    RobustnessCurveDisplay.from_curve(deleted, ax=middle)
    certified.plot(right)
    for axes, title in ((left, "Measured again"), (middle, "Features missing"), (right, "Certain wherever the row is")):
        axes.set_title(title)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "how_it_degrades.png", lambda path: figure.savefig(path, format="png", dpi=100))
    text = table(noisy, deleted)
    write_whole(out / "how_it_degrades.md", lambda path: path.write_text(text, encoding="utf-8"))
    print(text, f"written to {out}", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
