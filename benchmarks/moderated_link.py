"""When is it worth training through the moderated link?

Run it with `python benchmarks/moderated_link.py`; it writes the tables beside this file. Breast cancer has its own standard
errors. The other sets have synthetic ones, drawn once: *plain*, a deviation for each feature from 0.1 to 1 times its spread,
times 0.5 to 1.5 for each entry; *heavy*, 0.3 times the spread times a log-normal number for each row and one for each entry,
exp(N(0, 1)) each, so that some rows are all but lost. Sets other than breast cancer, wine and digits come from the folder that
HOLDFAST_DATA names.

Stratified splits into training and test rows, at most 400 each; tables are standardised by the training rows, pixels divided by
their spread. Test rows are re-measured four times with m times their errors (m = 0: as they are), and models are told these
errors. The ridge of LogisticRegression is chosen by three folds of clean training rows. GaussianRobustClassifier has alpha = 1,
and is trained for the errors as they are stated (noise=1) and for four times as much (noise=4), with link=None and with
link="moderated". The last table of each noise compares the probabilities sigmoid(r f), which the moderated fit is trained for,
with the mean of the sigmoid over the noise, of the same fit.

Differences are paired; in brackets standard errors, corrected for the overlap of training rows (Nadeau and Bengio). An asterisk
marks what is more than two of them. All re-measurement is simulated.
"""

import argparse
import os
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier, ModeratedClassifier
from holdfast.datasets import load_breast_cancer_errors, load_from_folder

HERE = Path(__file__).parent
ADVICE = """So it pays where some rows are measured far worse than others (heavy), most of all when training for more noise
than is stated: such rows hold the weights of link=None near 0. Where errors are alike (plain, breast cancer) both fits are much
the same at the noise they were trained for; log loss is a little lower on noisier rows. The price is the certificate."""
LEVELS, DRAWS, ROWS = (0, 1, 2, 4), 4, 400
RIDGES = {"C": [0.001, 0.01, 0.1, 1.0, 10.0]}
PAIRS = ((3, 5), (4, 9))


def spread(X, is_image):
    """Return what the features are divided by."""
    columns = X.std(axis=0)
    return np.full(X.shape[1], X.std()) if is_image else np.where(columns > 0, columns, 1.0)


def plain_errors(X, is_image, rng):
    """Return deviations that differ from feature to feature."""
    return spread(X, is_image) * rng.uniform(0.1, 1.0, X.shape[1]) * rng.uniform(0.5, 1.5, X.shape)


def heavy_errors(X, is_image, rng):
    """Return deviations that differ wildly from row to row and from entry to entry."""
    return 0.3 * spread(X, is_image) * np.exp(rng.normal(size=(len(X), 1)) + rng.normal(size=X.shape))


def tables():
    """Yield the name of a set, its rows, its labels, and whether the features are pixels."""
    yield "wine", *load_wine(return_X_y=True), False
    yield "digits", *load_digits(return_X_y=True), True
    if not os.environ.get("HOLDFAST_DATA"):
        return
    for name in ("ionosphere", "pima", "spambase"):
        data = load_from_folder(name)
        yield name, np.log1p(data["X"]) if name == "spambase" else data["X"], data["y"], False
    usps = load_from_folder("usps")
    for pair in PAIRS:
        chosen = np.isin(usps["y"], pair)
        yield f"usps {pair[0]}-{pair[1]}", usps["X"][chosen], usps["y"][chosen], True


def sets():
    """Yield the name of a set, its rows, their errors and labels, and whether the features are pixels."""
    data = load_breast_cancer_errors()
    yield "breast cancer, own errors", data.X, data.X_std, data.y, False
    for name, X, y, is_image in tables():
        for kind, errors in (("plain", plain_errors), ("heavy", heavy_errors)):
            yield f"{name}, {kind}", X, errors(X, is_image, np.random.default_rng(0)), y, is_image


def models(X, S, y):
    """Return all models, fitted."""
    fitted = {"LR": GridSearchCV(LogisticRegression(max_iter=2000), RIDGES, cv=3).fit(X, y)}
    for noise in (1.0, 4.0):
        for link in (None, "moderated"):
            fitted[noise, link] = GaussianRobustClassifier(noise, link=link, multiclass="ovr").fit(X, y, X_std=S)
        fitted[noise, "averaged"] = ModeratedClassifier(FrozenEstimator(fitted[noise, "moderated"])).fit(X, y)
    return fitted


def measured(X, S, y, is_image, n_splits):
    """Return accuracies in % and log losses (n_splits, 2, n_models, n_levels), the models' names, test rows a training row.

    LogisticRegression is not told the errors of a row: its log loss is left out.
    """
    n_train = min(ROWS, 7 * len(X) // 10)
    n_test = min(ROWS, len(X) - n_train)
    out, names = [], []
    splits = StratifiedShuffleSplit(n_splits, train_size=n_train, test_size=n_test, random_state=0).split(X, y)
    for seed, (train, test) in enumerate(splits):
        middle, unit = X[train].mean(axis=0), spread(X[train], is_image)
        Z, T = (X - middle) / unit, S / unit
        fitted, rng = models(Z[train], T[train], y[train]), np.random.default_rng(seed)
        names, found = list(fitted), []
        for m in LEVELS:
            draws = DRAWS if m else 1
            errors, labels = np.tile(m * T[test], (draws, 1)), np.tile(y[test], draws)
            rows = np.tile(Z[test], (draws, 1)) + errors * rng.normal(size=errors.shape)
            right = [100 * np.mean(model.predict(rows) == labels) for model in fitted.values()]
            told = [model.predict_proba(rows, X_std=errors) for name, model in fitted.items() if name != "LR"]
            found.append((right, [np.nan, *(log_loss(labels, p) for p in told)]))
        out.append(np.moveaxis(found, 0, -1))
    return np.array(out), names, n_test / n_train


def error_of(differences, ratio):
    """Return the standard error of a mean over splits, corrected for their overlap."""
    return np.sqrt((1 / len(differences) + ratio) * differences.var(ddof=1))


def shown(differences, ratio, digits):
    """Return a mean over splits with its standard error."""
    mean, error = differences.mean(), error_of(differences, ratio)
    return f"{mean:+.{digits}f} ({error:.{digits}f}){'*' if abs(mean) > 2 * error else ''}"


def gaps(results, which, one, other):
    """Yield the differences of two models on a set, shape (n_splits, n_levels), with the set's name and ratio of rows."""
    for name, (values, names, ratio) in results.items():
        yield name, values[:, which, names.index(one)] - values[:, which, names.index(other)], ratio


def table(results, which, one, other, digits):
    """Return lines that compare two models on all sets at all levels."""
    lines = ["| set and errors | " + " | ".join(f"m = {m}" for m in LEVELS) + " |", "|---|" + "---|" * len(LEVELS)]
    for name, values, ratio in gaps(results, which, one, other):
        lines.append(f"| {name} | " + " | ".join(shown(gap, ratio, digits) for gap in values.T) + " |")
    return lines


def verdict(results, noise, which):
    """Return how many cells the moderated link is clearly above and below in, and the extremes of its differences."""
    found = [
        (gap.mean(), error_of(gap, ratio))
        for _, values, ratio in gaps(results, which, (noise, "moderated"), (noise, None))
        for gap in values.T
    ]
    above, below = (sum(side * mean > 2 * error for mean, error in found) for side in (1, -1))
    means = [mean for mean, _ in found]
    return f"{above} of {len(found)} cells clearly above, {below} below, {min(means):+.2f} to {max(means):+.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    results = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*these errors are larger than the rows vary")
        for name, *data in sets():
            begin = process_time()
            results[name] = measured(*data, options.splits)
            print(name, results[name][0].mean(axis=0).round(3), f"{process_time() - begin:.1f} s", flush=True)
    title, rest = __doc__.split("\n\n", 1)
    lines = [
        f"# {title}",
        "",
        rest.strip(),
        "",
        f"{options.splits} splits. Moderated less not, over all sets and levels:",
        "",
    ]
    for noise in (1.0, 4.0):
        lines += [
            f"- noise={noise:g}: accuracy, points: {verdict(results, noise, 0)}; log loss: {verdict(results, noise, 1)}."
        ]
    lines += ["", ADVICE]
    for noise in (1.0, 4.0):
        for which, word, digits in ((0, "accuracy, points", 2), (1, "log loss", 3)):
            heading = f'Trained with noise={noise:g}: {word}, link="moderated" less link=None'
            lines += ["", f"## {heading}", "", *table(results, which, (noise, "moderated"), (noise, None), digits)]
        for link in (None, "moderated"):
            heading = f"Trained with noise={noise:g}: accuracy, points, link={link!r} less LogisticRegression"
            lines += ["", f"## {heading}", "", *table(results, 0, (noise, link), "LR", 2)]
        heading = f"Trained with noise={noise:g} and moderated: log loss of sigmoid(r f) less that of E sigmoid(f + tZ)"
        lines += ["", f"## {heading}", "", *table(results, 1, (noise, "moderated"), (noise, "averaged"), 3)]
    (HERE / "moderated_link.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
