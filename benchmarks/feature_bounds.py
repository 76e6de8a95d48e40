"""How loose are the sets that hold what errors do to features of kernels, and which of them are worth trying?

Run it with `python benchmarks/feature_bounds.py`. Rows are drawn from two Gaussian classes in n features and lie in balls of
an l1, l2 or linf norm. `width` is gamma over "scale", 1 / (n_features * X.var()): above 1 kernels are narrower than usual.
`size` is the length of the longest error, in l2, over the kernel's own length 1 / sqrt(2 gamma). The adversary has its own
formulas of the features: conditional gradients from STARTS starts a row, corners and sides among them, for STEPS steps with
five step lengths each, and the best point of all is kept. It may miss the worst one, so that ratios are upper bounds of what
is lost.

*Scores*: how far the score of a row goes by a bound (`push`), over how far the adversary took it; weights are those of a
logistic regression, C = 10, in D random Fourier features, or m Nystroem landmarks. Median over ROWS rows and SEEDS seeds. The
last two columns of Fourier features are the other two forms of the published radius, in the l1 and the linf norm, written
again here.

*Features*: the radius that holds the change of all Fourier features in a norm (`radius`), over the largest change that was
found at any row. Errors are in an l2 ball. "-" where a bound does not know the norm.

*Trained*: the objective of `RobustKernelClassifier`, hinge and alpha = 0.03, trained for a bound, over the lowest one of any
bound, at a gap of 1e-3: 60 rows of moons, breast cancer and shells (six features, the classes are two ranges of |x|), 40
features, widths 0.1, 1 and 5, balls and boxes, sizes 0.03 and 0.3, and 0.4 for width 0.3. Problems whose best model is w = 0
for all bounds are left out. `lowest` counts how often a bound has the lowest objective, within 1 %; `alone`, how often no
other one has. `at most` is the largest ratio. Bounds in bold type are those that bound="auto" chooses from, `best_bounds`;
`lost` is by how much the best of them is above the lowest of all.

`violations` counts bounds that were below a change that was found, by more than 1e-9 of it. There must be none.
"""

import sys
import warnings
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import Ball, Box, RobustFourierFeatures, RobustKernelClassifier, RobustNystroem
from tables import environment, write

HERE = Path(__file__).parent
ROWS, SEEDS, STARTS, STEPS = 12, 4, 20, 25
LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.01)
SLACK = 1e-9
NORMS = (1, 2, np.inf)
LF = "\n"


class Fourier:
    """Random Fourier features by their formula, for the adversary."""

    def __init__(self, map):
        self.frequencies = map.frequencies_

    def __call__(self, X):
        angles = X @ self.frequencies.T
        return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(len(self.frequencies))

    def back(self, X, Q):
        """Return the gradients of the products with Q, a row each."""
        angles, half = X @ self.frequencies.T, len(self.frequencies)
        return (Q[:, half:] * np.cos(angles) - Q[:, :half] * np.sin(angles)) @ self.frequencies / np.sqrt(half)


class Nystroem:
    """Nystroem features by their formula, for the adversary."""

    def __init__(self, map):
        self.points, self.gamma, self.mix = map.landmarks_, map.gamma_, map.normalization_

    def values(self, X):
        return np.exp(-self.gamma * ((X[:, None] - self.points) ** 2).sum(axis=2))

    def __call__(self, X):
        return self.values(X) @ self.mix.T

    def back(self, X, Q):
        c = (Q @ self.mix) * self.values(X)
        return 2 * self.gamma * (c @ self.points - c.sum(axis=1, keepdims=True) * X)


def farthest(G, norm, radius):
    """Return the points of balls that go farthest along the rows of G."""
    if norm == 1:
        out = np.zeros_like(G)
        best = np.abs(G).argmax(axis=1)[:, None]
        np.put_along_axis(out, best, radius * np.sign(np.take_along_axis(G, best, axis=1)), axis=1)
        return out
    if norm == 2:
        return radius * G / np.maximum(np.linalg.norm(G, axis=1, keepdims=True), 1e-300)
    return radius * np.sign(G)


def attacked(features, X, norm, radius, rng, worth):
    """Return the largest worth of changes of the features of each row that was found; `worth` gives also its gradient."""
    before = np.repeat(features(X), STARTS, axis=0)
    rows = np.repeat(X, STARTS, axis=0)
    moves = (
        farthest(rng.normal(size=rows.shape), norm, radius) * np.tile([1.0, 1.0, 0.5, 0.01], len(rows) // 4)[:, None]
    )
    best = worth(features(rows + moves) - before)[0]
    for _ in range(STEPS):
        changes = features(rows + moves) - before
        goal = farthest(features.back(rows + moves, worth(changes)[1]), norm, radius)
        tried = [moves + length * (goal - moves) for length in LENGTHS]
        found = np.array([worth(features(rows + one) - before)[0] for one in tried])
        chosen = found.argmax(axis=0)
        moves = np.array(tried)[chosen, np.arange(len(rows))]
        best = np.maximum(best, found.max(axis=0))
    return best.reshape(len(X), STARTS).max(axis=1)


def along(z):
    """Return what a score with weights z gains."""
    return lambda changes: (changes @ z, np.broadcast_to(z, changes.shape))


def length(norm):
    """Return the length of changes, and its gradient."""

    def worth(changes):
        size = np.linalg.norm(changes, norm, axis=1)
        if norm == 1:
            return size, np.sign(changes)
        if norm == 2:
            return size, changes
        return size, np.where(np.abs(changes) == size[:, None], np.sign(changes), 0.0)

    return worth


def classes(n, seed, n_rows=150):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n_rows // 2)
    X = rng.normal(size=(n_rows, n)) * np.where(rng.uniform(size=n) < 0.5, 1.0, 0.5)
    return X + np.outer(y - 0.5, rng.normal(size=n)) * 2 / np.sqrt(n), y


def drawn(kind, n, width, n_features, seed):
    """Return rows, labels, a fitted map, and the same map for the adversary."""
    X, y = classes(n, seed)
    maps = {"Fourier": (RobustFourierFeatures, Fourier), "Nystroem": (RobustNystroem, Nystroem)}
    ours, theirs = maps[kind]
    map = ours(n_features, gamma=width / (n * X.var()), random_state=seed).fit(X)
    return X, y, map, theirs(map)


def radius_of(size, norm, n, gamma):
    """Return the radius of a ball whose longest error has that size."""
    return size / np.sqrt(2 * gamma) / (np.sqrt(n) if norm == np.inf else 1.0)


def published_forms(map, rows, z, norm, radius):
    """Return the published bounds by the l1 and linf norms of changes turned by each row's own angles, corrected: R^-T z."""
    omega, half = map.frequencies_, len(map.frequencies_)
    t = radius * np.linalg.norm(omega, {1: np.inf, 2: 2, np.inf: 1}[norm], axis=1)
    angles, first, second = rows @ omega.T, z[:half], z[half:]
    turned = [np.cos(angles) * first + np.sin(angles) * second, np.cos(angles) * second - np.sin(angles) * first]
    turned, (c, s) = np.abs(np.hstack(turned)), (np.minimum(2, t**2 / 2), np.minimum(1, t))
    scale = 1 / np.sqrt(half)
    return {
        "published, l1": scale * np.sum(c + s) * turned.max(axis=1),
        "published, linf": scale * np.maximum(c, s).max() * turned.sum(axis=1),
    }


def violations(bounds, truth):
    return int(np.sum(bounds < truth * (1 - SLACK)))


def scores(kind, settings):
    """Return lines of a table, and how many bounds were violated."""
    bounds = (RobustFourierFeatures if kind == "Fourier" else RobustNystroem).bounds
    heads = [*bounds, *(["published, l1", "published, linf"] if kind == "Fourier" else [])]
    lines = [f"| n | {'D' if kind == 'Fourier' else 'm'} | width | norm | size | {' | '.join(heads)} |"]
    lines.append("|" + " --- |" * 5 + " ---: |" * len(heads))
    broken = 0
    for n, n_features, width, norm, size in settings:
        ratios = defaultdict(list)
        for seed in range(SEEDS):
            X, y, map, features = drawn(kind, n, width, n_features, seed)
            z = LogisticRegression(C=10.0, max_iter=2000).fit(features(X), y).coef_[0]
            rows, radius = X[:: len(X) // ROWS][:ROWS], radius_of(size, norm, n, map.gamma_)
            truth = attacked(features, rows, norm, radius, np.random.default_rng(seed), along(z))
            sets = Ball(radius, norm=norm)
            found = {name: np.broadcast_to(map.push(rows, sets, bound=name).support(z), len(rows)) for name in bounds}
            if kind == "Fourier":
                found |= published_forms(map, rows, z, norm, radius)
            for name in heads:
                broken += violations(found[name], truth)
                ratios[name] += list(found[name] / truth)
        cells = " | ".join(short(np.median(ratios[name])) for name in heads)
        lines.append(f"| {n} | {n_features} | {width:g} | {norm:g} | {size:g} | {cells} |")
        print(lines[-1], flush=True)
    return lines, broken


def radii(settings):
    names = RobustFourierFeatures.common_bounds
    heads = [f"{name}, {norm:g}" for norm in NORMS for name in names]
    lines = [f"| n | D | width | size | {' | '.join(heads)} |", "|" + " --- |" * 4 + " ---: |" * len(heads)]
    broken = 0
    for n, D, width, size in settings:
        ratios = defaultdict(list)
        for seed in range(SEEDS):
            X, _, map, features = drawn("Fourier", n, width, D, seed)
            rows, radius = X[:: len(X) // ROWS][:ROWS], radius_of(size, 2, n, map.gamma_)
            for norm in NORMS:
                # no radius depends on the row
                truth = attacked(features, rows, 2, radius, np.random.default_rng(seed), length(norm)).max()
                for name in names:
                    try:
                        found = map.radius(rows, Ball(radius), bound=name, norm=norm)
                    except ValueError:  # of this bound the norm is not known
                        continue
                    broken += violations(found, truth)
                    ratios[name, norm] += list(found / truth)
        cells = [
            short(np.median(ratios[name, norm])) if ratios[name, norm] else "-" for norm in NORMS for name in names
        ]
        lines.append(f"| {n} | {D} | {width:g} | {size:g} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines, broken


def tables():
    """Yield names, rows and labels of data that a line does not tell apart."""
    yield "moons", *make_moons(60, noise=0.2, random_state=0)
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", StandardScaler().fit_transform(X)[:60], y[:60]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    yield "shells", X, (np.linalg.norm(X, axis=1) > 2.3).astype(int)


def trained(kind, settings):
    """Return lines of a table: how good bounds are in training."""
    make = RobustFourierFeatures if kind == "Fourier" else RobustNystroem
    found, lost = [], []
    for (data, X, y), (n_features, width, (shape, norm), size) in product(tables(), settings):
        gamma = width / (X.shape[1] * X.var())
        sets = shape(radius_of(size, norm, X.shape[1], gamma))
        values, is_empty = [], True
        for bound in make.bounds:
            model = RobustKernelClassifier(
                sets, features=make(n_features, gamma=gamma, random_state=0), bound=bound, alpha=0.03, tol=1e-3
            ).fit(X, y)
            values.append(model.objective_)
            is_empty &= np.linalg.norm(model.coef_) < 1e-6
        if is_empty:
            continue
        values = np.array(values)
        chosen = values[[make.bounds.index(name) for name in make.best_bounds]].min()
        lost.append(chosen / values.min() - 1)
        found.append(values / values.min())
        print(data, kind, width, shape.__name__, size, np.round(found[-1], 3), flush=True)
    found = np.array(found)
    is_lowest = found <= 1.01
    lines = ["| bound | lowest | alone | median ratio | at most |", "| --- | ---: | ---: | ---: | ---: |"]
    for k, name in enumerate(make.bounds):
        alone = int(np.sum(is_lowest[:, k] & (is_lowest.sum(axis=1) == 1)))
        mark = "**" if name in make.best_bounds else ""
        ratio = f"{np.median(found[:, k]):.2f} | {found[:, k].max():.2f}"
        lines.append(f"| {mark}{name}{mark} | {is_lowest[:, k].sum()} | {alone} | {ratio} |")
    return [*lines, "", f"{len(found)} problems. `lost`: {max(lost):.1%} at most, {np.mean(lost):.1%} on average."]


def short(ratio):
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


FOURIER = [
    *((2, 20, 1, norm, size) for norm in (2, np.inf) for size in (0.1, 0.5, 1.5)),
    *((8, 200, 1, norm, size) for norm in NORMS for size in (0.1, 0.5, 1.5)),
    *((30, 200, 1, norm, 0.5) for norm in NORMS),
    (8, 200, 0.1, 2, 0.5),
    (8, 200, 10, 2, 0.5),
    (8, 1000, 1, 2, 0.5),
]
NYSTROEM = [
    *((2, 20, 1, norm, size) for norm in (2, np.inf) for size in (0.1, 0.5, 1.5)),
    *((8, 50, 1, norm, size) for norm in NORMS for size in (0.1, 0.5, 1.5)),
    *((30, 50, 1, norm, 0.5) for norm in NORMS),
    (8, 50, 0.1, 2, 0.5),
    (8, 50, 10, 2, 0.5),
    (8, 10, 10, 2, 0.5),
]
RADII = [(2, 20, 1, 0.1), (8, 200, 1, 0.1), (8, 200, 1, 0.5), (8, 200, 1, 1.5), (30, 200, 1, 0.5)]
SHAPES = ((Ball, 2), (Box, np.inf))
TRAINED = [*product((40,), (0.1, 1, 5), SHAPES, (0.03, 0.3)), *product((40,), (0.3,), SHAPES, (0.4,))]


def main():
    warnings.simplefilter("ignore")
    parts, broken = [], 0
    with threadpool_limits(1):
        for kind, settings in (("Fourier", FOURIER), ("Nystroem", NYSTROEM)):
            lines, count = scores(kind, settings)
            broken += count
            parts.append(f"## Scores, {kind} features\n\n{LF.join(lines)}")
        lines, count = radii(RADII)
        broken += count
        parts.append(f"## Fourier features, by norm\n\n{LF.join(lines)}")
        for kind in ("Fourier", "Nystroem"):
            parts.append(f"## Trained, {kind} features\n\n{LF.join(trained(kind, TRAINED))}")
    out = HERE / "feature_bounds.md"
    about = __doc__.split("\n", 1)[1]
    for name in ("ROWS", "SEEDS", "STARTS", "STEPS"):
        about = about.replace(name, str(globals()[name]))
    head = "# How loose are bounds of features of kernels?"
    text = f"{head}\n{about}\n{environment()}\n\n**violations: {broken}**\n\n" + "\n\n".join(parts) + "\n"
    write(out, text)
    print(f"{broken} violations; written to {out.name}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
