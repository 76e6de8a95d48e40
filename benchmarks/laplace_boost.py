"""Does boosting with Laplace posteriors hold where some training inputs are corrupted? The experiment of Noy & Crammer (2014).

Run it with `python benchmarks/laplace_boost.py`, for about a quarter of an hour; HOLDFAST_DATA names the folder of spambase,
USPS and MNIST, which are left out without it. It writes the table beside this file and a picture to docs/images. Finished
cells are kept in build/laplace_boost.json, and a run that was cut off goes on from there. `--quick`
prints one small cell; `--jobs` is the number of processes.

A set has 300 training rows (wine 100). A tenth of them get Gaussian noise added to every feature, `sd` times the feature's
deviation over all rows; test rows, 1000 at most, are clean. Columns are standardised by the (noisy) training rows for every
method. Pixels of digits are averaged, 2 x 2, to 196 (MNIST, 4 or 9) and 64 (USPS, 3 or 5); wine is the second cultivar against
the others; features of spambase become log(1 + x). Synthetic rows are normal in 8 dimensions, and the label is the sign of a
random linear score.

Every method chooses among a few settings by its errors on a third of the training rows, which are as noisy as the others, and
is then fitted to all of them: c of 0.1, 0.3, 1, 3 and 10 for ours, up to a certified gap of 1e-3, C of 0.01, 0.1, 1 and 10 for
LogisticRegression and LinearSVC, 30 or 100 trees for the others. RobuCoP, BaLaBoost and Huber-Reg AdaBoost vote with columns,
"BaLaBoost, stumps" with five stumps of each column. Figures are means over repeats, with standard errors. Repeats on one set
draw from the same rows, so these are somewhat too small.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from holdfast import LaplaceBoostClassifier, __version__
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "laplace_boost.png"
DONE = HERE.parent / "build" / "laplace_boost.json"
SHARE, LEVELS, REPEATS, N_TRAIN, N_TEST = 0.1, (0, 1, 3, 10), 10, 300, 1000
CS, LINEAR_CS, TREES = (0.1, 0.3, 1.0, 3.0, 10.0), (0.01, 0.1, 1.0, 10.0), (30, 100)


def ours(loss, **options):
    return [LaplaceBoostClassifier(loss, c=c, tol=1e-3, **options) for c in CS]


METHODS = {
    "RobuCoP": ours("tail"),
    "BaLaBoost": ours("log"),
    "Huber-Reg AdaBoost": ours("exp"),
    "BaLaBoost, stumps": ours("log", base="stumps", n_knots=5),
    "AdaBoost": [AdaBoostClassifier(n_estimators=n, random_state=0) for n in TREES],
    "GradientBoosting": [GradientBoostingClassifier(n_estimators=n, random_state=0) for n in TREES],
    "HistGradientBoosting": [HistGradientBoostingClassifier(max_iter=n, random_state=0) for n in TREES],
    "LogisticRegression": [LogisticRegression(C=C, max_iter=2000) for C in LINEAR_CS],
    "LinearSVC": [LinearSVC(C=C, dual=True, max_iter=5000) for C in LINEAR_CS],
}
STYLE = {
    "RobuCoP": ("#0072B2", "-", "D"),
    "BaLaBoost": ("#56B4E9", "-", "o"),
    "Huber-Reg AdaBoost": ("#E69F00", "-", "s"),
    "BaLaBoost, stumps": ("#CC79A7", "--", "v"),
    "AdaBoost": ("#D55E00", ":", "X"),
    "GradientBoosting": ("#009E73", ":", "P"),
    "HistGradientBoosting": ("#009E73", "--", "x"),
    "LogisticRegression": ("#000000", ":", "o"),
    "LinearSVC": ("#777777", ":", "^"),
}


def pixels(images, side):
    half = side // 2
    return images.reshape(-1, half, 2, half, 2).mean(axis=(2, 4)).reshape(len(images), -1)


def digits(name, side, pair):
    data = load_from_folder(name)
    chosen = np.isin(data["y"], pair)
    return pixels(np.asarray(data["X"], dtype=float)[chosen], side), np.where(data["y"][chosen] == pair[0], 1, -1)


def spambase():
    data = load_from_folder("spambase")
    return np.log1p(np.asarray(data["X"], dtype=float)), data["y"]


def bundled(load, positive):
    X, y = load(return_X_y=True)
    return X, np.where(y == positive, 1, -1)


SETS = {
    "synthetic": None,
    "breast cancer": lambda: bundled(load_breast_cancer, 1),
    "wine": lambda: bundled(load_wine, 1),
    "spambase": spambase,
    "USPS 3 or 5": lambda: digits("usps", 16, (3, 5)),
    "MNIST 4 or 9": lambda: digits("mnist", 28, (4, 9)),
}


def drawn(name, rng, whole):
    """Return clean training and test rows."""
    if whole is None:
        X = rng.standard_normal((N_TRAIN + N_TEST, 8))
        whole = X, np.where(X @ rng.standard_normal(8) > 0, 1, -1)
    X, y = whole
    order = rng.permutation(len(y))
    n = min(N_TRAIN, 100 if len(y) < 300 else N_TRAIN)
    train, test = order[:n], order[n : n + N_TEST]
    return X[train], y[train], X[test], y[test]


def corrupted(X, deviations, sd, rng):
    """Return rows of which a tenth have noise."""
    hit = rng.permutation(len(X)) < round(SHARE * len(X))
    return X + hit[:, None] * sd * deviations * rng.standard_normal(X.shape)


def error(settings, X, y, X_test, y_test):
    """Return the test error of the setting that is best on a third of the training rows."""
    cut = len(y) // 3
    models = [make_pipeline(StandardScaler(), model) for model in settings]
    wrong = [1 - clone(model).fit(X[cut:], y[cut:]).score(X[:cut], y[:cut]) for model in models]
    return 1 - models[int(np.argmin(wrong))].fit(X, y).score(X_test, y_test)


def cell(name, sd, repeats):
    """Return set, noise and the errors of all methods in all repeats; none where the set is not there."""
    warnings.simplefilter("ignore")
    try:
        whole = None if SETS[name] is None else SETS[name]()
    except FileNotFoundError as missing:
        print(f"left out {name}: {missing}", file=sys.stderr)
        return name, sd, {}
    found = {method: [] for method in METHODS}
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat + 1)  # the same rows at every level
        X, y, X_test, y_test = drawn(name, rng, whole)
        deviations = np.std(X if whole is None else whole[0], axis=0)
        X = corrupted(X, deviations, sd, rng)
        for method, settings in METHODS.items():
            found[method].append(error(settings, X, y, X_test, y_test))
    means = {method: round(float(np.mean(errors)), 3) for method, errors in found.items()}
    print(time.strftime("%H:%M"), name, sd, means, file=sys.stderr, flush=True)
    return name, sd, found


def run(sets, levels, repeats, jobs, kept=None):
    """Return the errors in percent of each (set, noise, method); finished cells are kept in a file, and read from it."""
    settings = repr((SHARE, repeats, N_TRAIN, N_TEST, CS, LINEAR_CS, TREES, __version__, sklearn.__version__))
    done = json.loads(kept.read_text()) if kept and kept.exists() else {}
    done = done if done.get("settings") == settings else {"settings": settings}
    todo = [(name, sd, repeats) for name in reversed(sets) for sd in levels if f"{name}, {sd}" not in done]
    for name, sd, found in Parallel(jobs, return_as="generator_unordered")(delayed(cell)(*one) for one in todo):
        done[f"{name}, {sd}"] = found
        if kept:
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(done))
    return {
        (name, sd, method): 100 * np.array(errors)
        for name in sets
        for sd in levels
        for method, errors in done[f"{name}, {sd}"].items()
    }


def with_error(values, digits=1):
    """Return the mean, and its standard error in brackets."""
    return f"{values.mean():.{digits}f} ({values.std(ddof=1) / np.sqrt(len(values)):.{digits}f})"


def table(cell, levels):
    """Yield lines of Markdown: errors in percent, the best of each column in bold."""
    for name in dict.fromkeys(key[0] for key in cell):
        yield f"\n**{name}**\n"
        yield "| | " + " | ".join(f"sd = {sd}" for sd in levels) + " |"
        yield "|---|" + "---|" * len(levels)
        best = [min(cell[name, sd, method].mean() for method in METHODS) for sd in levels]
        for method in METHODS:
            texts = [with_error(cell[name, sd, method]) for sd in levels]
            marked = [cell[name, sd, method].mean() <= least + 1e-9 for sd, least in zip(levels, best, strict=True)]
            shown = [f"**{text}**" if is_best else text for text, is_best in zip(texts, marked, strict=True)]
            yield f"| {method} | " + " | ".join(shown) + " |"


def differences(cell, sd):
    """Yield lines of Markdown: how much more each other method errs than RobuCoP on the same rows."""
    sets = list(dict.fromkeys(key[0] for key in cell))
    yield "| | " + " | ".join(sets) + " |"
    yield "|---|" + "---|" * len(sets)
    for method in list(METHODS)[1:]:
        texts = []
        for name in sets:
            more = cell[name, sd, method] - cell[name, sd, "RobuCoP"]
            is_sure = abs(more.mean()) > 2 * more.std(ddof=1) / np.sqrt(len(more))
            texts.append(f"**{with_error(more)}**" if is_sure else with_error(more))
        yield f"| {method} | " + " | ".join(texts) + " |"


def draw(cell, levels):
    """Draw errors against the noise, a panel for each set."""
    sets = list(dict.fromkeys(key[0] for key in cell))
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = np.ravel(figure.subplots(2, 3))
    for axes, name in zip(panels, sets, strict=False):
        for method, (colour, line, marker) in STYLE.items():
            errors = [cell[name, sd, method] for sd in levels]
            bars = [one.std(ddof=1) / np.sqrt(len(one)) for one in errors]
            means = [one.mean() for one in errors]
            axes.errorbar(
                range(len(levels)), means, bars, color=colour, ls=line, marker=marker, ms=4, lw=1.2, label=method
            )
        axes.set(title=name, xticks=range(len(levels)), xticklabels=levels, ylim=(0, None))
    for axes in panels[len(sets) :]:
        axes.set_axis_off()
    figure.supylabel("test error in %", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    # a label of the whole figure would lie under the legend
    panels[4].set_xlabel("noise of a tenth of the training rows, in deviations of each feature", fontsize=10)
    figure.savefig(PICTURE, dpi=110)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.quick:
        print("\n".join(table(run(["synthetic"], (0, 10), 2, options.jobs), (0, 10))))
        return
    cell = run(list(SETS), LEVELS, REPEATS, options.jobs, DONE)
    draw(cell, LEVELS)
    lines = ["# Boosting with Laplace posteriors where training inputs are corrupted", "", __doc__]
    lines += [f"{REPEATS} repeats, {made()}.", "", "## Test errors in percent", *table(cell, LEVELS), ""]
    lines += ["## Against RobuCoP", ""]
    lines += [
        "Errors of the others less those of RobuCoP on the same rows, in percentage points, with standard errors of these"
    ]
    lines += ["differences; negative where RobuCoP errs more. Bold: more than two standard errors from 0."]
    for sd in (LEVELS[0], LEVELS[-1]):
        lines += ["", f"**sd = {sd}**", "", *differences(cell, sd)]
    (HERE / "laplace_boost.md").write_text("\n".join([*lines, ""]))


def made():
    return f"holdfast {__version__}, scikit-learn {sklearn.__version__}, NumPy {np.__version__}"


if __name__ == "__main__":
    main()
