"""
Do error bars help a classifier?
================================

The breast-cancer data list ten features of 569 cell images, each the mean over the nuclei of an image, **and the standard
error of each of these means**. A classifier normally throws the errors away. Here one is trained with them, and all models
are then tried on test images that are *re-measured*: their features redrawn with m times the stated errors.

- m = 0 is the test set as it is, m = 1 a second measurement of the same quality, m = 4 one that is four times as noisy
  (a cheaper instrument, a sixteenth of the nuclei). Re-measurement is simulated, the errors taken as independent.
- ``holdfast, noise=1`` is linear and trained with the errors as stated, ``noise=4`` for measurements four times as noisy. Both
  see the same training rows as the other models, and no noisy copies of them.
- ``NoiseAwareClassifier`` is not linear. It is one model for all levels, as it comes: fitted with the stated errors, and told
  m times the errors of each row that it is to predict. The other models know nothing of the rows they predict but their values.
- Two baselines are told of the noise too, by the usual means: a logistic regression whose ridge is chosen on validation
  rows with four times the noise, and boosting trained on ten noisy copies of each training row.
- All ridges are chosen by cross-validation within the training rows. Split: 70 % training, 30 % test, stratified, 30 times.
  Standard errors are over the splits: they tell how well the mean over splits of *these* data is known.

Run ``python examples/plot_do_error_bars_help.py [FOLDER]``; the table and the picture go to FOLDER (build/demo).
"""

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier, NoiseAwareClassifier
from holdfast.datasets import load_breast_cancer_errors

LEVELS = np.arange(0.0, 4.5, 0.5)  # noise of the re-measurement, in stated standard errors
DRAWS = 20  # re-measurements of each test row
TOLD_DRAWS = 5  # the first of these, for the model that is told of the noise: its features take longer
COPIES = 10  # noisy copies of each training row, for the two baselines that are told of the noise
RIDGES = np.array([100.0, 10.0, 1.0, 0.1])  # alpha; the C of scikit-learn is 1 / alpha
ACCURACY, FLIPS, CERTAIN = range(3)  # what is measured at each level

LOGISTIC = "LogisticRegression"
RETUNED = "LogisticRegression, tuned at 4x"
BOOSTING = "HistGradientBoosting"
COPIED = "HistGradientBoosting, copies at 4x"
HOLDFAST_1 = "holdfast, noise=1"
HOLDFAST_4 = "holdfast, noise=4"
TOLD = "holdfast, NoiseAwareClassifier"
STYLE = {  # colour (Okabe and Ito's, safe for the colour-blind) by family; dashed: prepared for four times the noise
    LOGISTIC: ("#D55E00", "-"),
    RETUNED: ("#D55E00", "--"),
    "LinearSVC": ("#CC79A7", "-"),
    BOOSTING: ("#009E73", "-"),
    COPIED: ("#009E73", "--"),
    HOLDFAST_1: ("#0072B2", "-"),
    HOLDFAST_4: ("#0072B2", "--"),
    TOLD: ("#000000", "-"),
}


class Rows(NamedTuple):
    """Standardised features, their standard errors in the same units, and labels."""

    X: np.ndarray
    X_std: np.ndarray
    y: np.ndarray


def split(data, train, test):
    """Return training and test rows in the units of a scaler fitted on the training rows."""
    scaler = StandardScaler().fit(data.X[train])
    return [Rows(scaler.transform(data.X[i]), data.X_std[i] / scaler.scale_, data.y[i]) for i in (train, test)]


def remeasure(rows, levels, n_times, rng):
    """Return re-measured features, shape (n_levels, n_times, n_samples, n_features); the draws are the same at all levels."""
    errors = rows.X_std * rng.standard_normal((n_times, *rows.X.shape))
    return rows.X + np.reshape(levels, (-1, 1, 1, 1)) * errors


def tuned(model, rows, values, **metadata):
    """Return the model with its ridge chosen by cross-validation; ties go to the stronger ridge."""
    return GridSearchCV(model, values, cv=3).fit(rows.X, rows.y, **metadata).best_estimator_


def ridge_tuned_on_copies(rows, copies):
    """Return a logistic regression fitted to the rows as they are, its ridge chosen on noisy validation rows."""
    n = len(rows.y)
    X, y = np.concatenate([rows.X, *copies]), np.tile(rows.y, 1 + len(copies))
    noisy = n * np.arange(1, 1 + len(copies))[:, None]  # where each copy begins
    folds = [(fit, (noisy + check).ravel()) for fit, check in StratifiedKFold(3).split(rows.X, rows.y)]
    search = GridSearchCV(LogisticRegression(), {"C": 1 / RIDGES}, cv=folds, refit=False).fit(X, y)
    return LogisticRegression(**search.best_params_).fit(rows.X, rows.y)


def fit_models(rows, rng):
    """Return all models, fitted, in the order of STYLE."""
    C, alpha = {"C": 1 / RIDGES}, {"alpha": RIDGES}
    copies = remeasure(rows, 4.0, COPIES, rng)[0]
    boosting = HistGradientBoostingClassifier(random_state=0)
    boosting_on_copies = HistGradientBoostingClassifier(max_iter=50, random_state=0)  # 100 are slower, not better
    models = [
        tuned(LogisticRegression(), rows, C),
        ridge_tuned_on_copies(rows, copies),
        tuned(LinearSVC(dual=False), rows, C),
        boosting.fit(rows.X, rows.y),
        boosting_on_copies.fit(np.concatenate(copies), np.tile(rows.y, COPIES)),
        tuned(GaussianRobustClassifier(noise=1.0), rows, alpha, X_std=rows.X_std),
        tuned(GaussianRobustClassifier(noise=4.0), rows, alpha, X_std=rows.X_std),
        NoiseAwareClassifier().fit(rows.X, rows.y, X_std=rows.X_std),
    ]
    return dict(zip(STYLE, models, strict=True))


def standardised_scores(model, rows):
    """Return |f| / s of each row: its score over the standard deviation that the stated errors give to the score."""
    noise = np.sqrt(np.square(rows.X_std) @ np.square(model.coef_[0]))
    return np.abs(model.decision_function(rows.X)) / noise


def predict(model, rows, remeasured):
    """Return predictions of re-measured rows, shape (n_levels, n_times, n_samples)."""
    if not isinstance(model, NoiseAwareClassifier):
        return model.predict(remeasured.reshape(-1, rows.X.shape[1])).reshape(remeasured.shape[:-1])
    stated, known = np.tile(rows.X_std, (TOLD_DRAWS, 1)), remeasured[:, :TOLD_DRAWS]
    found = [model.predict(np.concatenate(X), X_std=m * stated) for m, X in zip(LEVELS, known, strict=True)]
    return np.reshape(found, known.shape[:-1])


def measure(model, rows, remeasured):
    """Return accuracy, share of predictions that flip and share certain in percent, shape (3, n_levels)."""
    again = predict(model, rows, remeasured)
    as_measured = again[0, 0]  # at level 0
    certain = np.full(len(LEVELS), np.nan)  # has no closed form for models that are not linear
    if hasattr(model, "coef_"):
        certain = (standardised_scores(model, rows) > 2 * LEVELS[:, None]).mean(axis=1)
    accuracy, flips = (again == rows.y).mean(axis=(1, 2)), (again != as_measured).mean(axis=(1, 2))
    return 100 * np.array([accuracy, flips, certain])


def run(n_splits):
    """Return all measurements, shape (n_splits, n_models, 3, n_levels), and expected flips, shape (n_splits, n_levels)."""
    data = load_breast_cancer_errors()
    measured, expected = [], []
    splits = StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(data.X, data.y)
    for seed, indices in enumerate(splits):
        rng = np.random.default_rng(seed)
        train, test = split(data, *indices)
        models = fit_models(train, rng)
        remeasured = remeasure(test, LEVELS, DRAWS, rng)
        measured.append([measure(model, test, remeasured) for model in models.values()])
        z = standardised_scores(models[LOGISTIC], test)
        expected.append([100 * ndtr(-z / level).mean() if level else 0.0 for level in LEVELS])
    return np.array(measured), np.array(expected)


def mean_and_error(values):
    """Return the mean over splits, the first axis, and its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def level_index(level):
    """Return where a noise level stands in LEVELS."""
    return int(np.flatnonzero(level == LEVELS)[0])


def table(measured):
    """Return the results as a Markdown table, also readable as it is."""
    columns = [("clean", ACCURACY, 0), ("at 1x", ACCURACY, 1), ("at 2x", ACCURACY, 2), ("at 4x", ACCURACY, 4)]
    columns += [("flips 1x", FLIPS, 1), ("flips 4x", FLIPS, 4), ("certain 1x", CERTAIN, 1), ("certain 4x", CERTAIN, 4)]
    mean, error = mean_and_error(measured)
    lines = [["in % (standard error)", *(name for name, _, _ in columns)]]
    for i, name in enumerate(STYLE):
        cells = [(i, what, level_index(level)) for _, what, level in columns]
        lines.append([name, *("-" if np.isnan(mean[c]) else f"{mean[c]:.1f} ({error[c]:.1f})" for c in cells)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    padded = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def gain(measured, better, than, level):
    """Return how many points of accuracy one model is above another, compared split by split."""
    names = list(STYLE)
    accuracy = measured[:, :, ACCURACY, level_index(level)]
    mean, error = mean_and_error(accuracy[:, names.index(better)] - accuracy[:, names.index(than)])
    return f"{mean:+.1f} ({error:.1f})"


def meaning(measured, expected):
    """Return what the numbers say, in words."""
    at_1, at_2, at_4 = (expected.mean(axis=0)[level_index(level)] for level in (1, 2, 4))
    return f"""\
clean: accuracy on the test rows as they are. at 1x, 2x, 4x: accuracy when re-measured with that multiple of the stated errors.
flips: share of predictions that the re-measurement changes. certain: share of rows with |f| > 2 s, where s is the standard
deviation that the noise gives to the score f (linear models only).

Is there anything to gain? The plain logistic regression can expect a re-measurement to flip, by the mean of Phi(-|f| / s),
{at_1:.1f} % of its predictions at 1x, {at_2:.1f} % at 2x and {at_4:.1f} % at 4x. The more flips, the more there is to gain.

Gains in points of accuracy, compared split by split:

- noise=1 over LogisticRegression, at 1x: {gain(measured, HOLDFAST_1, LOGISTIC, 1)}
- noise=4 over LogisticRegression, at 2x: {gain(measured, HOLDFAST_4, LOGISTIC, 2)}
- noise=4 over LogisticRegression, at 4x: {gain(measured, HOLDFAST_4, LOGISTIC, 4)}
- noise=4 over LogisticRegression with its ridge tuned at 4x, at 4x: {gain(measured, HOLDFAST_4, RETUNED, 4)}
- noise=4 over boosting on noisy copies at 4x, at 4x: {gain(measured, HOLDFAST_4, COPIED, 4)}
- noise=4 over LogisticRegression, on clean rows: {gain(measured, HOLDFAST_4, LOGISTIC, 0)}
- NoiseAwareClassifier over noise=1, at 1x: {gain(measured, TOLD, HOLDFAST_1, 1)}
- NoiseAwareClassifier over noise=4, at 4x: {gain(measured, TOLD, HOLDFAST_4, 4)}
- NoiseAwareClassifier over boosting, on clean rows: {gain(measured, TOLD, BOOSTING, 0)}
- NoiseAwareClassifier over boosting, at 1x: {gain(measured, TOLD, BOOSTING, 1)}
- NoiseAwareClassifier over boosting on noisy copies at 4x, at 4x: {gain(measured, TOLD, COPIED, 4)}
- NoiseAwareClassifier over boosting on noisy copies at 4x, on clean rows: {gain(measured, TOLD, COPIED, 0)}

What it means: if new measurements are as good as the old ones, a linear model gains next to nothing by the errors. If they will
be noisier, knowing the errors is worth several points, and training for the noise costs some accuracy on clean rows: train a
linear model for the noise you will meet. Boosting on noisy copies learns the same lesson; the linear model does it in one fit
without sampling, and says which predictions are certain. A model that is told how noisy each row is need not choose: one fit
serves clean rows and noisy ones. Boosting can be told too, by averaging over draws of the rows asked about, which adds about
half a point at 4x (benchmarks/noise_copies.md). The re-measurement is simulated, with independent errors, on one data set."""


def spread(heights, distance):
    """Return the heights moved apart, as little as needed in one pass, for labels that must not overlap."""
    order = np.argsort(heights)
    moved = np.array(heights, dtype=float)
    for low, high in pairwise(order):
        moved[high] = max(moved[high], moved[low] + distance)
    return moved - np.mean(moved - heights)


def draw_idea(axes):
    """Draw what training with error bars changes: two features, one measured well and one badly, and the two boundaries."""
    X, X_std, y, names = load_breast_cancer_errors()
    pair = [names.index("radius"), names.index("symmetry")]
    scale = X[:, pair].std(axis=0)
    X, X_std = (X[:, pair] - X[:, pair].mean(axis=0)) / scale, X_std[:, pair] / scale
    shown = np.random.default_rng(3).permutation(len(y))[:70]
    for label, colour, name in ((0, "#E69F00", "malignant"), (1, "#56B4E9", "benign")):
        rows = shown[y[shown] == label]
        errors = {"xerr": X_std[rows, 0], "yerr": X_std[rows, 1], "elinewidth": 0.7, "ecolor": colour}
        axes.errorbar(*X[rows].T, fmt="o", ms=3.5, color=colour, label=name, **errors)
    height = np.array([-5.0, 4.5])
    plain, prepared = GaussianRobustClassifier(), GaussianRobustClassifier(noise=4.0)
    for model, metadata, style in ((plain, {}, LOGISTIC), (prepared, {"X_std": X_std}, HOLDFAST_4)):
        (w,), (b,) = model.fit(X, y, **metadata).coef_, model.intercept_
        flips = model.flip_probability(X, X_std=4 * X_std).mean()
        colour, line = STYLE[style]
        axes.plot(-(w[1] * height + b) / w[0], height, line, color=colour, linewidth=2)
        axes.plot([], [], line, color=colour, label=f"{style}: {flips:.0%} flip at 4x")
    axes.set(xlim=(-2.2, 3.2), ylim=height, xlabel="radius (scaled)", ylabel="symmetry (scaled)")
    axes.set_title("Two features and their error bars", loc="left", fontsize=12)
    axes.legend(loc="lower right", fontsize=8.5)


def draw(measured):
    """Return the picture: what error bars change, and accuracy against the noise with the models named beside it."""
    figure = Figure(figsize=(11.5, 4.2))
    idea, axes = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 0.95], "wspace": 0.14})
    figure.subplots_adjust(left=0.05, right=0.775, top=0.92, bottom=0.125)
    draw_idea(idea)
    mean, error = (values[:, ACCURACY] for values in mean_and_error(measured))
    for m, e, (color, line) in zip(mean, error, STYLE.values(), strict=True):
        axes.fill_between(LEVELS, m - e, m + e, color=color, alpha=0.15, linewidth=0)
        axes.plot(LEVELS, m, line, color=color, linewidth=2)
    for name, (color, _), height in zip(STYLE, STYLE.values(), spread(mean[:, -1], 0.75), strict=True):
        axes.annotate(name, (4.06, height), color=color, va="center", annotation_clip=False, fontsize=10)
    axes.set(xlim=(0, 4), xticks=range(5), xticklabels=["none", "1x", "2x", "3x", "4x"])
    axes.set_xlabel("noise of the new measurement, in stated errors")
    axes.set_title("Accuracy in % on test rows measured again", loc="left", fontsize=12)
    axes.text(0.03, 0.04, f"bands: one standard error, {len(measured)} splits", transform=axes.transAxes, color="0.35")
    for panel in (idea, axes):
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def write_whole(path, save):
    """Call save on a temporary file and rename it, so that `path` is never half written."""
    temporary = path.with_name(path.name + ".part")
    save(temporary)
    os.replace(temporary, path)
    print(path)


def main(out="build/demo", n_splits=30):
    """Measure, print, and save the table and the picture."""
    with threadpool_limits(1):  # the data are small: threads would only wait for each other
        measured, expected = run(n_splits)
    text = f"{table(measured)}\n\n{meaning(measured, expected)}\n"
    print(text)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    figure = draw(measured)
    write_whole(out / "do_error_bars_help.md", lambda path: path.write_text(text, encoding="utf-8"))
    write_whole(
        out / "do_error_bars_help.png",
        lambda path: figure.savefig(path, format="png", dpi=100, pil_kwargs={"optimize": True}),
    )


if __name__ == "__main__":
    main(*sys.argv[1:2])
