"""
Which predictions survive every admissible error?
=================================================

Left: rows known up to intervals. Some are measured well, some badly along one feature. The plain SVM trusts all of them alike;
the robust one is trained for the worst points of the boxes (crosses) and leans on the rows that are known.

Right: the breast-cancer data with their standard errors. Each entry may lie anywhere within m standard errors of its value. The
curves show the share of test rows that are classified correctly *for every admissible input*: a certificate, computed
exactly, not an attack that may have missed something. Split: 70 % training, 30 % test, stratified, 20 times; bands are standard
errors over the splits. m = 0 is ordinary accuracy.

Run ``python examples/plot_certified_intervals.py [FOLDER]``; the table and the picture go to FOLDER (build/demo).
"""

import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sklearn.model_selection import StratifiedShuffleSplit

from holdfast import Box, RobustLinearClassifier
from holdfast.datasets import load_breast_cancer_errors

LEVELS = np.linspace(0, 2, 17)  # half-widths at prediction, in stated standard errors
RADII = {0.0: "#D55E00", 0.25: "#009E73", 1.0: "#0072B2"}  # half-widths at training: colour (Okabe and Ito's)


def toy():
    """Rows of two classes and their half-widths: the second feature tells more, but only of rows that are measured well."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], 14)
    X = rng.normal(size=(28, 2)) * [0.8, 0.5] + np.outer(2 * y - 1, [0.75, 0.7])
    widths = np.where(rng.uniform(size=28) < 0.4, 1.1, 0.12)
    return X, y, np.column_stack([np.full(28, 0.12), widths])


def draw_toy(axes):
    X, y, S = toy()
    for label, colour in ((0, "#56B4E9"), (1, "#E69F00")):
        for x, s in zip(X[y == label], S[y == label], strict=True):
            axes.add_patch(Rectangle(x - s, *(2 * s), color=colour, alpha=0.25, lw=0))
        axes.plot(*X[y == label].T, "o", ms=4, color=colour)
    across = np.array([-3.0, 3.0])
    for radius, name, colour in ((0.0, "plain SVM", "#D55E00"), (1.0, "trained for the boxes", "#0072B2")):
        model = RobustLinearClassifier(Box(radius), alpha=0.1).fit(X, y, X_std=S)
        (w,), (b,) = model.coef_, model.intercept_
        axes.plot(across, -(w[0] * across + b) / w[1], color=colour, label=name)
    worst = model.worst_case_data(X, y, X_std=S)
    axes.plot(*worst.T, "x", ms=4, color="0.35", label="worst admissible rows")
    axes.set(xlim=(-3, 3), ylim=(-3, 3), xlabel="feature 1", ylabel="feature 2", title="Rows known up to boxes")
    axes.legend(loc="lower right", fontsize=8)


def certified(n_splits):
    """Return the share of test rows that are right for every admissible input, (splits, levels) for each radius."""
    X, X_std, y, _ = load_breast_cancer_errors()
    found = {radius: [] for radius in RADII}
    for train, test in StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(X, y):
        scale = X[train].std(axis=0)
        Z, S = X / scale, X_std / scale
        for radius, shares in found.items():
            model = RobustLinearClassifier(Box(radius)).fit(Z[train], y[train], X_std=S[train])
            right = model.predict(Z[test]) == y[test]
            safe = [right & model.certify(Z[test], X_std=level * S[test]) for level in LEVELS]
            shares.append(np.mean(safe, axis=1))
    return {radius: np.array(shares) for radius, shares in found.items()}


def draw_curves(axes, found):
    for radius, shares in found.items():
        mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
        name = "plain SVM" if radius == 0 else f"trained for {radius:g} standard errors"
        axes.fill_between(LEVELS, 100 * (mean - error), 100 * (mean + error), color=RADII[radius], alpha=0.25, lw=0)
        axes.plot(LEVELS, 100 * mean, color=RADII[radius], label=name)
    axes.set(xlabel="admissible error, in standard errors", ylabel="certified accuracy (%)", ylim=(0, 100), xlim=(0, 2))
    axes.set_title("Breast cancer, certified for every admissible input")
    axes.legend(loc="lower left", fontsize=8)
    axes.grid(alpha=0.3)


def table(found):
    shown = (0.0, 0.5, 1.0, 2.0)
    head = "| certified accuracy in % (standard error) | " + " | ".join(f"at {level:g}" for level in shown) + " |"
    lines = [head, "| --- " + "| ---: " * len(shown) + "|"]
    for radius, shares in found.items():
        at = shares[:, np.searchsorted(LEVELS, shown)] * 100
        cells = [
            f"{m:.1f} ({e:.1f})" for m, e in zip(at.mean(axis=0), at.std(axis=0, ddof=1) / len(at) ** 0.5, strict=True)
        ]
        lines.append(f"| {'plain SVM' if radius == 0 else f'Box({radius:g})'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write_whole(path, save):
    temporary = path.with_suffix(".tmp")
    save(temporary)
    os.replace(temporary, path)


def main(out="build/demo", n_splits=20):
    found = certified(n_splits)
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_toy(left)
    draw_curves(right, found)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "certified_intervals.png", lambda path: figure.savefig(path, format="png", dpi=100))
    text = table(found)
    write_whole(out / "certified_intervals.md", lambda path: path.write_text(text, encoding="utf-8"))
    print(text, f"written to {out}", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
