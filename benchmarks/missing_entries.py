"""How accurate is a classifier on rows that lack entries?

Run it with `python benchmarks/missing_entries.py`; HOLDFAST_DATA names the folder of the data. It writes the tables beside this
file. `--quick` makes two splits of each set and writes nothing. `--sets pima wine` takes some sets.

Models are trained on rows as they are, complete but for pima, whose zeros in five columns are missing entries. Of test rows

* 25 % or 50 % of the entries are deleted at random, of splice whole letters;
* or the most informative fifth of the columns is gone, by mutual information with the class in the training rows.

The methods; linear models are logistic regressions with ridge 1 on standardised columns, GL is GaussianRobustClassifier:

* mean + LR: SimpleImputer and LogisticRegression.
* iterative + LR: scikit-learn's IterativeImputer before it.
* HGB: HistGradientBoosting, which takes missing entries as they are.
* HGB, copies: the same on 8 copies of the training rows with half of their entries deleted, and the rows themselves.
* deletion LP: SimpleImputer, then FeatureDeletionClassifier(budget=1), the worst feature of each row gone.
* spread + GL: SpreadImputer and GL, which is told of the spread of what is filled in.
* dropout GL: SimpleImputer and GL with DropoutNoise(0.5).
* conditional + LR: ConditionalImputer and LogisticRegression.
* conditional + GL: ConditionalImputer and GL, which is told of the conditional covariance of what is filled in.
* conditional + GL, copies: the same, trained on the rows, a copy of each with 25 % and one with 50 % of the entries deleted.
* conditional + noise-aware, copies: NoiseAwareClassifier(levels=(0, 1)) on the same rows.

No setting is tuned. Accuracy in % on the test rows and log loss, means over splits; in brackets the standard error of the mean.
Splits share rows, so these errors are too small to tell how much another sample would differ.
"""

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import mutual_info_classif
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import (
    ConditionalImputer,
    DropoutNoise,
    FeatureDeletionClassifier,
    GaussianRobustClassifier,
    NoiseAwareClassifier,
    SpreadImputer,
    make_uncertain_pipeline,
)
from holdfast.datasets import load_from_folder

HERE = Path(__file__).parent
GL = partial(GaussianRobustClassifier, multiclass="ovr")
CELLS = ("complete", "25 % gone", "50 % gone", "best fifth gone")
COPIES = 8
OURS = (
    "dropout GL",
    "conditional + LR",
    "conditional + GL",
    "conditional + GL, copies",
    "conditional + noise-aware, copies",
)


def sets():
    """Yield name, rows, labels, splits, training and test rows at most, and the letters that columns stand for."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y, 10, 400, 1000, None
    for name, splits, train, test in (
        ("wine", 20, 120, 1000),
        ("ionosphere", 10, 250, 1000),
        ("pima", 10, 500, 1000),
        ("spambase", 4, 1500, 1500),
    ):
        data = load_from_folder(name)
        X = np.asarray(data["X_na"] if name == "pima" else data["X"], dtype=float)
        X = np.log1p(X) if name == "spambase" else X
        yield (
            name,
            X[:, np.nanstd(X, axis=0) > 0],
            np.unique(data["y"], return_inverse=True)[1],
            splits,
            train,
            test,
            None,
        )
    data = load_from_folder("splice_uci")
    letters = np.unique(data["X"], return_inverse=True)[1].reshape(data["X"].shape)
    bases = [k for k, letter in enumerate(np.unique(data["X"])) if chr(int(letter)) in "ACGT"]
    sure = np.all(np.isin(letters, bases), axis=1)
    codes = np.searchsorted(bases, letters[sure])
    X = np.eye(4)[codes].reshape(len(codes), -1)
    yield "splice", X, np.asarray(data["y"])[sure], 3, 1000, 1000, 4


def deleted(X, share, rng, width):
    """Return rows with a share of their entries, or of their letters of so many columns, deleted."""
    gone = rng.uniform(size=(len(X), X.shape[1] // (width or 1))) < share
    return np.where(np.repeat(gone, width or 1, axis=1), np.nan, X)


def with_copies(X, y, shares, rng, width):
    return np.vstack([X, *(deleted(X, share, rng, width) for share in shares)]), np.tile(y, 1 + len(shares))


def boosting(X, width):
    """Return boosted trees; letters are one column each."""
    return HistGradientBoostingClassifier(
        categorical_features=None if width is None else list(range(X.shape[1] // width))
    )


def seen(X, width):
    """Return rows as trees take them: the number of a letter in the place of its columns."""
    if width is None:
        return X
    parts = X.reshape(len(X), -1, width)
    return np.where(np.isnan(parts[:, :, 0]), np.nan, np.nan_to_num(parts).argmax(axis=2))


def fitted(X, y, rng, width):
    """Yield names and fitted methods, functions of rows to probabilities, and their CPU seconds."""
    iterative = (
        IterativeImputer() if width is None else IterativeImputer(max_iter=3, n_nearest_features=30, random_state=0)
    )
    plain = {
        "mean + LR": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=1000)),
        "iterative + LR": make_pipeline(iterative, StandardScaler(), LogisticRegression(max_iter=1000)),
        "deletion LP": make_pipeline(SimpleImputer(), StandardScaler(), FeatureDeletionClassifier(1, tol=1e-4)),
        "spread + GL": make_uncertain_pipeline(SpreadImputer(), StandardScaler(), GL()),
        "dropout GL": make_pipeline(SimpleImputer(), StandardScaler(), GL(DropoutNoise(0.5))),
        "conditional + LR": make_pipeline(ConditionalImputer(), StandardScaler(), LogisticRegression(max_iter=1000)),
        "conditional + GL": make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), GL()),
    }
    copied = {
        "conditional + GL, copies": make_uncertain_pipeline(ConditionalImputer(), StandardScaler(), GL()),
        "conditional + noise-aware, copies": make_uncertain_pipeline(
            ConditionalImputer(), StandardScaler(), NoiseAwareClassifier(levels=(0, 1), n_copies=1, n_components=300)
        ),
    }
    wide = width is not None  # factors of 240 columns by row are large: the rows themselves only
    some = with_copies(X, y, (0.25, 0.5), rng, width)
    for name, model in plain.items():
        began = time.process_time()
        yield name, model.fit(X, y), lambda rows: rows, began
    for name, model in {} if wide else copied.items():
        began = time.process_time()
        yield name, model.fit(*some), lambda rows: rows, began
    trees = boosting(X, width)
    began = time.process_time()
    yield "HGB", trees.fit(seen(X, width), y), lambda rows: seen(rows, width), began
    many, labels = with_copies(X, y, (0.5,) * COPIES, rng, width)
    began = time.process_time()
    yield "HGB, copies", boosting(X, width).fit(seen(many, width), labels), lambda rows: seen(rows, width), began


def measured(model, form, X, y):
    """Return accuracy in % and log loss, NaN where there are no probabilities."""
    rows = form(X)
    right = 100 * np.mean(model.predict(rows) == y)
    if not hasattr(model, "predict_proba"):
        return right, np.nan
    p = model.predict_proba(rows)
    return right, float(-np.mean(np.log(np.maximum(p[np.arange(len(y)), y], 1e-9))))


def split(X, y, train, test, width, seed):
    """Return name -> (cells, 2) of one split, and name -> CPU seconds."""
    rng = np.random.default_rng(seed)
    own, other = next(
        StratifiedShuffleSplit(1, train_size=train, test_size=min(test, len(y) - train), random_state=seed).split(X, y)
    )
    known = np.where(np.isnan(X[own]), np.nanmean(X[own], axis=0), X[own])
    worth = mutual_info_classif(known, y[own], discrete_features=width is not None, random_state=0)
    worth = worth.reshape(-1, width or 1).sum(axis=1)
    best = np.repeat(worth >= np.sort(worth)[-max(1, len(worth) // 5)], width or 1)
    rows = [
        X[other],
        *(deleted(X[other], share, rng, width) for share in (0.25, 0.5)),
        np.where(best, np.nan, X[other]),
    ]
    found, seconds = {}, {}
    for name, model, form, began in fitted(X[own], y[own], rng, width):
        found[name] = [measured(model, form, one, y[other]) for one in rows]
        seconds[name] = time.process_time() - began
    return found, seconds


def shown(values, digits):
    """Return a mean and its standard error."""
    if np.any(np.isnan(values)):
        return "-"
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.{digits}f} ({error:.{digits}f})"


def table(found, part, digits):
    head = ["", *CELLS]
    lines = [head, ["---"] * len(head)]
    lines += [
        [name, *(shown(values[:, cell, part], digits) for cell in range(len(CELLS)))] for name, values in found.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def losing(name, found):
    """Yield the cells in which the best of ours is more than a point below the best of all, with the paired difference."""
    for cell in range(len(CELLS)):
        mean = {method: values[:, cell, 0].mean() for method, values in found.items()}
        ours, best = max((m for m in mean if m in OURS), key=mean.get), max(mean, key=mean.get)
        if mean[best] - mean[ours] > 1:
            gap = found[best][:, cell, 0] - found[ours][:, cell, 0]
            yield f"* {name}, {CELLS[cell]}: {best} is {shown(gap, 1)} points ahead of {ours}."


def each(results):
    """Return for each of our methods its largest and mean distance from the best, over all cells with missing entries."""
    lines = [["", "mean distance from the best", "largest", "cells within a point"], ["---"] * 4]
    names = list(dict.fromkeys(name for found in results.values() for name in found))
    for name in names:
        behind = []
        for found in results.values():
            for cell in range(1, len(CELLS)):
                best = max(values[:, cell, 0].mean() for values in found.values())
                behind += [best - found[name][:, cell, 0].mean()] if name in found else []
        close = np.mean(np.array(behind) <= 1)
        lines.append([name, f"{np.mean(behind):.1f}", f"{np.max(behind):.1f}", f"{close:.0%} of {len(behind)}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", nargs="*")
    options = parser.parse_args()
    if not os.environ.get("HOLDFAST_DATA"):
        print(
            "missing_entries.py: not run. Set HOLDFAST_DATA to the folder that holds wine.npz, spambase.npz and others."
        )
        return
    warnings.simplefilter("ignore")
    results, text = {}, ["# Accuracy on rows that lack entries", __doc__.split("\n\n", 1)[1].strip()]
    tables, lost = [], []
    with threadpool_limits(1):
        for name, X, y, n_splits, train, test, width in sets():
            if options.sets and name not in options.sets:
                continue
            runs = [split(X, y, train, test, width, seed) for seed in range(2 if options.quick else n_splits)]
            found = {method: np.array([found[method] for found, _ in runs]) for method in runs[0][0]}
            cost = ", ".join(f"{method} {np.mean([s[method] for _, s in runs]):.2f}" for method in found)
            results[name] = found
            lost += losing(name, found)
            tables += [
                f"## {name}, {train} training rows, {X.shape[1]} columns, {len(runs)} splits",
                f"Accuracy, %\n\n{table(found, 0, 1)}",
                f"Log loss\n\n{table(found, 1, 3)}",
                f"CPU seconds of a split, prediction included: {cost}.",
            ]
            print("\n\n".join(tables[-4:]), flush=True)
    summary = [
        "## In short",
        "Accuracy behind the best method of each cell with missing entries, in points:",
        each(results),
        "Cells, complete rows included, in which the best of our methods is more than a point below the best of all:",
        "\n".join(lost) or "none.",
    ]
    print("\n\n".join(summary))
    if not options.quick and not options.sets:
        (HERE / "missing_entries.md").write_text("\n\n".join([*text, *summary, *tables]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
