"""Do models trained for wrong labels do better on wrong labels?

Run it with `python benchmarks/label_noise.py`; it writes the table beside this file. Half of the rows are for training, half
for testing, standardised by the training half; test labels are right. Of the training labels a share is flipped: `random`, any
of them with the same probability; or `adversarial`, those that logistic regression on the right labels is surest of. The
strength of the penalty is chosen for every method by three folds of the training rows *with their wrong labels*, from a grid
of three.

* plain: RobustLinearClassifier without uncertainty (hinge, logistic).
* flips: the same with LabelFlips of the true share.
* flips, CV: the share too is chosen by the folds, among 0, half of the true one, and all of it.
* cleanlab: the logistic model without the rows that cleanlab's filter finds to be mislabelled (from five folds of
  out-of-sample probabilities); only where cleanlab is installed.

Every number is a mean over splits with its standard error; differences are paired with the plain model of the same loss.
"""

import argparse
import os
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import LabelFlips, RobustLinearClassifier
from holdfast.datasets import load_from_folder

try:
    from cleanlab.filter import find_label_issues
except ImportError:
    find_label_issues = None

HERE = Path(__file__).parent
RATES = (0.05, 0.1, 0.2)
ALPHAS = (0.1, 1.0, 10.0)
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


def tables():
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y
    if os.environ.get("HOLDFAST_DATA"):
        data = load_from_folder("spambase")
        yield "spambase", data["X"], (data["y"] == 1).astype(int)


def with_flips(kind, X, y, rate, rng):
    """Return the labels with a share of them flipped."""
    n_wrong = round(rate * len(y))
    if kind == "random":
        wrong = rng.permutation(len(y))[:n_wrong]
    else:
        scores = LogisticRegression().fit(X, y).decision_function(X)
        wrong = np.argsort(-scores * np.where(y == 1, 1, -1))[:n_wrong]
    flipped = y.copy()
    flipped[wrong] = 1 - flipped[wrong]
    return flipped


def models(loss, rate, X, y):
    """Yield the plain model, that for the true share of flips, and that whose share is chosen, each with its own alpha."""
    shares = [0.0, 0.5 * rate, rate]
    model = RobustLinearClassifier(loss=loss, ambiguity=LabelFlips(rate))
    search = GridSearchCV(model, {"ambiguity__k": shares, "alpha": ALPHAS}, cv=FOLDS, refit=False).fit(X, y)
    scores = np.asarray(search.cv_results_["mean_test_score"])
    chosen = np.array([candidate["ambiguity__k"] for candidate in search.cv_results_["params"]])
    for name, allowed in (("plain", [0.0]), ("flips", [rate]), ("flips, CV", shares)):
        best = np.argmax(np.where(np.isin(chosen, allowed), scores, -np.inf))
        yield f"{loss}, {name}", clone(model).set_params(**search.cv_results_["params"][best]).fit(X, y)


def cleaned(X, y):
    """Return the model fitted to rows that cleanlab's filter has nothing against."""
    probabilities = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")
    right = ~find_label_issues(y, probabilities)
    search = GridSearchCV(RobustLinearClassifier(loss="logistic"), {"alpha": ALPHAS}, cv=FOLDS)
    return search.fit(X[right], y[right]).best_estimator_


def accuracies(X, y, kind, rate, seed):
    """Return a dict from method to its accuracy on one split."""
    warnings.simplefilter("ignore")
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    wrong = with_flips(kind, X_train, y_train, rate, np.random.default_rng(seed))
    fits = [pair for loss in ("hinge", "logistic") for pair in models(loss, rate, X_train, wrong)]
    if find_label_issues is not None:
        fits.append(("logistic, cleanlab", cleaned(X_train, wrong)))
    return {name: 100 * model.score(X_test, y_test) for name, model in fits}


def error(values):
    """Return the standard error of the mean."""
    return values.std(ddof=1) / np.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    lines = ["| data | flips | rate | method | accuracy % | less plain |", "|---|---|---|---|---|---|"]
    with threadpool_limits(1):
        for (data, X, y), kind, rate in product(tables(), ("random", "adversarial"), RATES):
            runs = Parallel(options.jobs)(delayed(accuracies)(X, y, kind, rate, seed) for seed in range(options.splits))
            found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
            for name, values in found.items():
                gain = values - found[f"{name.split(',')[0]}, plain"]
                gained = "" if name.endswith("plain") else f"{gain.mean():+.1f} ({error(gain):.1f})"
                shown = f"{values.mean():.1f} ({error(values):.1f})"
                lines.append(f"| {data} | {kind} | {rate:.0%} | {name} | {shown} | {gained} |")
                print(lines[-1], flush=True)
    text = "# Models trained for wrong labels, on wrong labels\n\n" + f"{__doc__.split(chr(10) * 2, 1)[1].strip()}\n\n"
    text += f"{options.splits} splits.\n\n" + "\n".join(lines) + "\n"
    (HERE / "label_noise.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
