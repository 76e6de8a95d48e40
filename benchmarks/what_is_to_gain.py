"""Does `what_is_to_gain` tell where training with the errors pays?

Run it with `python benchmarks/what_is_to_gain.py`; HOLDFAST_DATA names the folder of the sets that are not bundled. It writes
the tables beside this file. Each cell is a data set and a multiple m = 1, 2, 4 of its errors, {n_splits} stratified splits with
at most {n_train} training and {n_test} test rows, standardised by the training rows.

* Errors: those of breast cancer are its own standard errors. Others are synthetic: deviations of each feature between 0.05 and
  0.5 of its own, log-uniform, times a factor of each row, exp(N(0, 0.3)).
* Flip rate: `what_is_to_gain(model, X, X_std=m * S)` of a LogisticRegression whose ridge was chosen on clean training rows,
  asked about rows that it was not trained on, the clean test rows (it takes no labels), and about the training rows.
* Gain: accuracy of GaussianRobustClassifier(noise=m) fitted with these errors, minus that of the logistic regression, on test
  rows measured again {n_draws} times with m times their errors. In points, with the standard error over splits.
* Is a model that is not linear better? What `what_is_to_gain(..., y=y)` says on the training rows (log loss of a linear model
  minus that of splines, standard error), and how often it advised one; against the accuracy of HistGradientBoosting minus
  LogisticRegression on clean test rows, and of NoiseCopies(HistGradientBoosting) minus GaussianRobustClassifier at four times
  the errors, {n_copies} copies, {n_rounds} rounds. Both on the first {n_boosted} splits.

Re-measurement is simulated. Splits of a set overlap, so standard errors over splits are too small.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import GaussianNoise, GaussianRobustClassifier, NoiseCopies
from holdfast.datasets import load_breast_cancer_errors, load_from_folder
from holdfast.evaluate import what_is_to_gain

HERE = Path(__file__).parent
LEVELS = (1, 2, 4)
BANDS = ((0.0, 0.05), (0.05, 0.15), (0.15, 1.0))
SETTINGS = {"n_splits": 5, "n_train": 400, "n_test": 400, "n_draws": 10, "n_copies": 4, "n_rounds": 30, "n_boosted": 2}


def pair(X, y, *chosen):
    """Return the rows of two classes."""
    kept = np.isin(y, chosen)
    return X[kept], y[kept]


def bundled():
    """Return rows, labels and errors (None: synthetic) by name."""
    data, digits = load_breast_cancer_errors(), load_digits(return_X_y=True)
    wine = load_wine(return_X_y=True)
    found = {"breast cancer": (data.X, data.y, data.X_std), "wine, 2 against 3": (*pair(*wine, 1, 2), None)}
    return found | {f"digits, {a} against {b}": (*pair(*digits, a, b), None) for a, b in ((3, 8), (4, 9), (1, 8))}


def stored():
    """Return those of the folder likewise, none where it is not there."""
    if not os.environ.get("HOLDFAST_DATA"):
        return {}
    usps = load_from_folder("usps")
    found = {f"USPS, {a} against {b}": (*pair(usps["X"], usps["y"], a, b), None) for a, b in ((3, 5), (4, 9))}
    for name in ("spambase", "pima", "ionosphere", "splice_libsvm"):
        data = load_from_folder(name)
        found[name] = data["X"], data["y"], None
    return found


def synthetic(X, rng):
    """Return errors of rows, those of each feature of another size."""
    sizes = X.std(axis=0) * np.exp(rng.uniform(np.log(0.05), np.log(0.5), size=X.shape[1]))
    return sizes * np.exp(0.3 * rng.standard_normal((len(X), 1)))


def measured(X, y, S):
    """Return by m the flip rates (of new rows, of old ones) and gains of all splits; and what is said, and true, of models
    that are not linear."""
    cells, curves = defaultdict(list), defaultdict(list)
    n_test = min(SETTINGS["n_test"], len(y) // 3)
    splits = StratifiedShuffleSplit(
        SETTINGS["n_splits"], train_size=min(SETTINGS["n_train"], len(y) - n_test), test_size=n_test, random_state=0
    )
    for k, (train, test) in enumerate(splits.split(X, y)):
        scaler = StandardScaler().fit(X[train])
        rows, errors, labels = scaler.transform(X[train]), S[train] / scaler.scale_, y[train]
        asked, noise, truth = scaler.transform(X[test]), S[test] / scaler.scale_, y[test]
        search = GridSearchCV(LogisticRegression(max_iter=2000), {"C": [0.01, 0.1, 1.0, 10.0]}, cv=3)
        plain = search.fit(rows, labels).best_estimator_
        z = np.random.default_rng(k).standard_normal((SETTINGS["n_draws"], *asked.shape))
        for m in LEVELS:
            again, known = (asked + m * noise * z).reshape(-1, X.shape[1]), np.tile(truth, len(z))
            robust = GaussianRobustClassifier(m).fit(rows, labels, X_std=errors)
            new = what_is_to_gain(plain, asked, X_std=m * noise).flip_rate
            old = what_is_to_gain(plain, rows, X_std=m * errors).flip_rate
            cells[m].append((new, old, 100 * (robust.score(again, known) - plain.score(again, known))))
        if k < SETTINGS["n_boosted"]:  # m and what is measured again are those of the last level
            said = what_is_to_gain(plain, rows, X_std=errors, y=labels)
            curves["said"].append((said.linear_log_loss - said.spline_log_loss, said.difference_error))
            curves["advised"].append(said.is_nonlinear_advised)
            boosting = HistGradientBoostingClassifier(
                max_iter=SETTINGS["n_rounds"], early_stopping=False, random_state=0
            )
            copies = NoiseCopies(boosting, SETTINGS["n_copies"], uncertainty=GaussianNoise(float(m)), random_state=k)
            copies.fit(rows, labels, X_std=errors)
            clean = boosting.fit(rows, labels).score(asked, truth) - plain.score(asked, truth)
            curves["clean"].append(100 * clean)
            curves["noisy"].append(100 * (copies.score(again, known) - robust.score(again, known)))
    return {m: np.array(found) for m, found in cells.items()}, {what: np.array(v) for what, v in curves.items()}


def shown(values):
    """Return a mean over splits with its standard error."""
    return f"{np.mean(values):+.1f} ({np.std(values, ddof=1) / np.sqrt(len(values)):.1f})"


def agreement(names, rates, on_training_rows, gains):
    """Return the rank correlation over cells, without each set in turn, and the gains in each band of rates."""
    rho, old = (spearmanr(found, gains).statistic for found in (rates, on_training_rows))
    without = {name: spearmanr(rates[names != name], gains[names != name]).statistic for name in dict.fromkeys(names)}
    low, high = (pick(without, key=without.get) for pick in (min, max))
    bands = []
    for least, most in BANDS:
        inside = gains[(rates >= least) & (rates < most)]
        span = f"{inside.min():+.1f} to {inside.max():+.1f}, median {np.median(inside):+.1f}" if len(inside) else "none"
        bands.append(f"| {100 * least:.0f} to {100 * most:.0f} % | {len(inside)} | {span} |")
    leave = f"without one set {without[low]:.2f} ({low}) to {without[high]:.2f} ({high})"
    head = ["| flip rate | cells | gain in points |", "|---|---|---|"]
    said = f"Spearman's rank correlation of flip rate and gain over {len(rates)} cells: {rho:.2f} (the aim was"
    rest = [f"0.80); {leave}.", f"With the flip rate of the training rows: {old:.2f}."]
    return [said, *rest, "", *head, *bands]


def verdict(boosted):
    """Return what boosting gained on average by whether a model that is not linear was advised in most splits."""
    lines = []
    for is_advised, said in ((True, "advised"), (False, "not advised")):
        found = np.array([gains for advised, *gains in boosted if advised == is_advised])
        spans = [f"{column.min():+.1f} to {column.max():+.1f}" for column in found.T] if len(found) else ["none"] * 2
        lines.append(
            f"* {said} ({len(found)} sets): boosting {spans[0]} points on clean rows, on copies {spans[1]} at 4x."
        )
    return ["A model that is not linear was, in most splits,", "", *lines]


def tables():
    """Return the lines of all tables."""
    cells = ["| set | rows x features | m | flips % | of training rows | gain |", "|---|---|---|---|---|---|"]
    advice = [
        "| set | log loss, linear minus splines | advised | boosting, clean | boosting on copies, 4x |",
        "|---|---|---|---|---|",
    ]
    names, found_rates, gains, boosted = [], [], [], []
    for k, (name, (X, y, own)) in enumerate({**bundled(), **stored()}.items()):
        S = synthetic(X, np.random.default_rng(k)) if own is None else own
        found, curves = measured(X, y, S)
        for m, values in found.items():
            new, old, gain = values.mean(axis=0)
            names.append(name), found_rates.append((new, old)), gains.append(gain)
            flips = f"{100 * new:.1f} | {100 * old:.1f}"
            cells.append(f"| {name} | {len(y)} x {X.shape[1]} | {m} | {flips} | {shown(values[:, 2])} |")
        difference, error = curves["said"].mean(axis=0)
        times = f"{np.sum(curves['advised'])} of {len(curves['advised'])}"
        boosted.append((np.mean(curves["advised"]) > 0.5, curves["clean"].mean(), curves["noisy"].mean()))
        realised = f"{shown(curves['clean'])} | {shown(curves['noisy'])}"
        advice.append(f"| {name} | {difference:+.3f} ({error:.3f}) | {times} | {realised} |")
        print(cells[-1], advice[-1], sep="\n", flush=True)
    summary = agreement(np.array(names), *np.array(found_rates).T, np.array(gains))
    return [*summary, "", *verdict(boosted), "", *cells, "", *advice]


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with threadpool_limits(1):
        lines = tables()
    title, text = __doc__.format(**SETTINGS).split("\n\n", 1)
    (HERE / "what_is_to_gain.md").write_text(
        f"# {title}\n\n{text.strip()}\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
