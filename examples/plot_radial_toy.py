"""
What does noise in the space of a kernel do to a circle?
========================================================

The radial toy of the thesis behind GURU (Ginodi & Globerson, 2010): points of the square from -7.5 to 7.5, one class where r
< 2, the other where r > 3.5, none between. A kernel of degree 2, (x'z + 1)^2, finds a circle; with ``loss="hinge"`` that is
KEN-GURU.

Its noise is that of the kernel's own features, squares and products of the inputs, of the same size in all directions; it is
not an error of the two inputs. Left: circles for some sigmas. Small ones hardly matter. Large ones draw the circle in, since
one point in sixteen is of the inner class and giving it up costs little, until nothing is left of it: w = 0 is then the best
model, which is proved and said in a warning. Right: the radius of the circle against sigma, mean and standard deviation over
draws of the points. With ``class_weight="balanced"`` it is never given up, and grows instead, as the two classes count alike.

Run ``python examples/plot_radial_toy.py [FOLDER]``; the table and the picture go to FOLDER (build/demo).
"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from holdfast import GaussianRobustClassifier
from holdfast.exceptions import CollapseWarning

SIGMAS = (0.1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 20.0)
SHOWN = {
    0.1: ("#000000", "-"),
    3.0: ("#0072B2", "--"),
    5.0: ("#009E73", "-."),
    6.0: ("#CC79A7", ":"),
}  # Okabe and Ito's
WEIGHTS = {None: ("classes as they are", "#D55E00", "o"), "balanced": ('class_weight="balanced"', "#0072B2", "s")}
INNER, OUTER, SIDE = 2.0, 3.5, 7.5
N_DRAWN = 400  # points of the square, of which about 360 are kept


def toy(seed):
    X = np.random.default_rng(seed).uniform(-SIDE, SIDE, size=(N_DRAWN, 2))
    r = np.linalg.norm(X, axis=1)
    kept = (r < INNER) | (r > OUTER)
    return X[kept], (r[kept] < INNER).astype(int)


def fitted(sigma, X, y, class_weight=None):
    kernel = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}
    model = GaussianRobustClassifier(sigma, loss="hinge", class_weight=class_weight, **kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return model.fit(X, y)


def radius(model):
    """Return the mean radius up to which the inner class is predicted, 0 where it never is."""
    r, angles = np.linspace(0, SIDE, 301), np.linspace(0, 2 * np.pi, 36, endpoint=False)
    points = np.stack([np.outer(r, np.cos(angles)), np.outer(r, np.sin(angles))], axis=-1)
    inside = model.predict(points.reshape(-1, 2)).reshape(len(r), -1) == 1
    return np.mean(r[np.argmin(inside, axis=0)])


def radii(n_splits):
    """Return radii, (draws, sigmas) for each way to weigh the classes."""
    draws = [toy(seed) for seed in range(n_splits)]
    return {
        weight: np.array([[radius(fitted(sigma, X, y, weight)) for sigma in SIGMAS] for X, y in draws])
        for weight in WEIGHTS
    }


def draw_circles(axes):
    X, y = toy(0)
    for label, colour, marker, name in ((0, "#56B4E9", "x", "r > 3.5"), (1, "#E69F00", "o", "r < 2")):
        axes.plot(*X[y == label].T, marker, ms=4, color=colour, ls="", label=name)
    across = np.linspace(-4, 4, 201)
    grid = np.stack(np.meshgrid(across, across), axis=-1)
    for sigma, (colour, style) in SHOWN.items():
        model = fitted(sigma, X, y)
        scores = model.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        axes.contour(across, across, scores, levels=[0], colors=[colour], linestyles=[style], linewidths=2)
        axes.plot([], [], color=colour, ls=style, lw=2, label=f"sigma = {sigma:g}")
    axes.set(xlim=(-SIDE, SIDE), ylim=(-SIDE, SIDE), aspect="equal", xlabel="feature 1", ylabel="feature 2")
    axes.set_title("The circle that KEN-GURU finds")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)


def draw_radii(axes, found):
    axes.axhspan(INNER, OUTER, color="0.92", lw=0, label="no points there")
    for weight, values in found.items():
        name, colour, marker = WEIGHTS[weight]
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
        axes.fill_between(SIGMAS, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
        axes.plot(SIGMAS, mean, color=colour, marker=marker, ms=4, label=name)
    axes.set(
        xscale="log", ylim=(-0.1, 5.2), xlabel="sigma, noise of the kernel's features", ylabel="radius of the circle"
    )
    axes.set_xticks([0.1, 0.3, 1, 3, 10, 20], ["0.1", "0.3", "1", "3", "10", "20"])
    axes.set_title("The same, over draws of the points")
    axes.legend(loc="lower left", fontsize=9)
    axes.grid(alpha=0.3)


def table(found):
    lines = [
        "| radius of the circle (standard deviation) | " + " | ".join(f"sigma {sigma:g}" for sigma in SIGMAS) + " |"
    ]
    lines.append("| --- " + "| ---: " * len(SIGMAS) + "|")
    for weight, values in found.items():
        cells = zip(values.mean(axis=0), values.std(axis=0, ddof=1), strict=True)
        lines.append(f"| {WEIGHTS[weight][0]} | " + " | ".join(f"{mean:.2f} ({std:.2f})" for mean, std in cells) + " |")
    return "\n".join(lines) + "\n"


def write_whole(path, save):
    temporary = path.with_suffix(".tmp")
    save(temporary)
    os.replace(temporary, path)


def main(out="build/demo", n_splits=4):
    found = radii(n_splits)
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_circles(left)
    draw_radii(right, found)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "radial_toy.png", lambda path: figure.savefig(path, format="png", dpi=80))
    text = table(found)
    write_whole(out / "radial_toy.md", lambda path: path.write_text(text, encoding="utf-8"))
    print(text, f"written to {out}", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
