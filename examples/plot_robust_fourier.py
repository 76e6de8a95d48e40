"""
How far may a point move before a nonlinear classifier changes its mind?
========================================================================

Two half moons and random Fourier features of an RBF kernel, as in the toy of Couellan & Jan (2020). Each point may lie
anywhere in a ball around what was measured. The first three panels show the regions of three classifiers: one that is not
told of the balls, and two that are trained for balls of growing size, drawn in gray. These give up crannies between the
moons, and leave more room around points.

Right: the share of new points that are right wherever they are in a ball of that radius, as far as an attack found out, mean
and standard error over draws of all points. Small balls cost hardly any accuracy on points as they are; large ones do, as
they overlap.

Run ``python examples/plot_robust_fourier.py [FOLDER]``; the table and the picture go to FOLDER (build/demo).
"""

import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.collections import EllipseCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from holdfast import Ball, RobustKernelClassifier, robust_accuracy

RADII = {0.0: ("#000000", "-", "o"), 0.15: ("#0072B2", "--", "s"), 0.3: ("#D55E00", "-.", "^")}  # Okabe and Ito's
LEVELS = np.array([0.0, 0.1, 0.2, 0.3])
CLASSES = ("#56B4E9", "#E69F00")
N_ROWS, N_TEST = 80, 100


def fitted(radius, X, y):
    options = {"features": "fourier", "gamma": 1.0, "n_components": 40, "alpha": 0.03, "tol": 1e-3}
    return RobustKernelClassifier(Ball(radius), bound="tangent", random_state=0, **options).fit(X, y)


def named(radius):
    return f"trained for balls of {radius:g}" if radius else "not told of balls"


def draw_regions(axes, model, X, y, radius):
    across, up = np.linspace(-1.6, 2.6, 161), np.linspace(-1.2, 1.7, 111)
    points = np.stack(np.meshgrid(across, up), axis=-1)
    scores = model.decision_function(points.reshape(-1, 2)).reshape(points.shape[:2])
    axes.contourf(across, up, np.sign(scores), levels=[-2, 0, 2], cmap=ListedColormap(CLASSES), alpha=0.25)
    axes.contour(across, up, scores, levels=[0], colors=RADII[radius][0], linewidths=2)
    if radius:
        sizes = np.full(len(X), 2 * radius)
        balls = {"units": "xy", "offsets": X, "offset_transform": axes.transData}
        axes.add_collection(
            EllipseCollection(sizes, sizes, 0 * sizes, **balls, facecolors="none", edgecolors="0.6", lw=0.5)
        )
    for label, colour, marker in zip((0, 1), CLASSES, ("o", "s"), strict=True):
        axes.plot(*X[y == label].T, marker, ms=4, color=colour, markeredgecolor="0.2", mew=0.5, ls="")
    axes.set(xlim=across[[0, -1]], ylim=up[[0, -1]], aspect="equal", xlabel="feature 1", title=named(radius))


def drawn(seed):
    """Return training rows, new rows, and the models of all radii."""
    X, y = make_moons(N_ROWS + N_TEST, noise=0.12, random_state=seed)
    rows, new = (X[:N_ROWS], y[:N_ROWS]), (X[N_ROWS:], y[N_ROWS:])
    return rows, new, {radius: fitted(radius, *rows) for radius in RADII}


def attacked(draws):
    """Return accuracies within balls, (draws, levels) for each radius of training."""
    return {
        radius: np.array(
            [
                [robust_accuracy(models[radius], *new, Ball(level)).accuracy for level in LEVELS]
                for _, new, models in draws
            ]
        )
        for radius in RADII
    }


def draw_curves(axes, found):
    for radius, shares in found.items():
        colour, style, marker = RADII[radius]
        mean, error = 100 * shares.mean(axis=0), 100 * shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
        axes.errorbar(LEVELS, mean, error, color=colour, ls=style, marker=marker, ms=4, capsize=2, label=named(radius))
    axes.set(xlabel="radius of the attack", ylabel="accuracy (%)", ylim=(None, 101), title="New points under attack")
    axes.legend(loc="lower left", fontsize=8)
    axes.grid(alpha=0.3)


def table(found):
    lines = ["| accuracy in % (standard error) | " + " | ".join(f"within {level:g}" for level in LEVELS) + " |"]
    lines.append("| --- " + "| ---: " * len(LEVELS) + "|")
    for radius, shares in found.items():
        cells = zip(100 * shares.mean(axis=0), 100 * shares.std(axis=0, ddof=1) / len(shares) ** 0.5, strict=True)
        lines.append(f"| {named(radius)} | " + " | ".join(f"{mean:.1f} ({error:.1f})" for mean, error in cells) + " |")
    return "\n".join(lines) + "\n"


def write_whole(path, save):
    temporary = path.with_suffix(".tmp")
    save(temporary)
    os.replace(temporary, path)


def main(out="build/demo", n_splits=4):
    draws = [drawn(seed) for seed in range(n_splits)]
    found = attacked(draws)
    figure = Figure(figsize=(13.5, 3.6), layout="constrained")
    *maps, right = figure.subplots(1, 4)
    rows, _, models = draws[0]
    for axes, radius in zip(maps, RADII, strict=True):
        draw_regions(axes, models[radius], *rows, radius)
    maps[0].set_ylabel("feature 2")
    draw_curves(right, found)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "robust_fourier.png", lambda path: figure.savefig(path, format="png", dpi=90))
    text = table(found)
    write_whole(out / "robust_fourier.md", lambda path: path.write_text(text, encoding="utf-8"))
    print(text, f"written to {out}", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
