"""What is it worth to say how errors are correlated, and when does a re-tuned ridge do as well?

Run it with `python benchmarks/noise_structure.py`; it writes the table beside this file. Ten mean features of 569 images with
their standard errors, stratified splits into 70 % training and 30 % test rows, standardised by the training rows, as in
`examples/plot_do_error_bars_help.py`. Test rows are measured again 20 times, which is simulated, in one of three ways:

* independent: four times the stated errors, each feature drawn on its own.
* together: the same sizes, but the errors of radius, perimeter and area are one draw, as they may well be.
* alike: one standard deviation for all features and rows, the root mean square of four times the stated errors.

The models, told of the noise that will come:

* LogisticRegression: not told; its ridge is chosen on clean rows.
* re-tuned: the same, its ridge chosen on ten noisy copies of the validation rows, noise of the same kind.
* deviations: GaussianRobustClassifier told the standard deviations, correlations left out.
* covariances: GaussianRobustClassifier told the whole covariance of each row, as a factor.

Ridges are chosen by three folds of the training rows, clean ones but for *re-tuned*. Accuracies are means over the splits in
percent, with standard errors; differences are paired.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import GaussianRobustClassifier
from holdfast.datasets import load_breast_cancer_errors

HERE = Path(__file__).parent
LEVEL, DRAWS, COPIES = 4.0, 20, 10
RIDGES = np.array([1000.0, 100.0, 10.0, 1.0, 0.1])
TOGETHER = ("radius", "perimeter", "area")
KINDS = ("independent", "together", "alike")
PLAIN, RETUNED, DEVIATIONS, COVARIANCES = "LogisticRegression", "re-tuned", "deviations", "covariances"


def factors(S, kind, names):
    """Return F of each row's covariance F F', shape (n_samples, n_features, n_draws)."""
    F = LEVEL * S[:, :, None] * np.eye(S.shape[1])
    if kind == "together":
        trio = [list(names).index(name) for name in TOGETHER]
        F[:, trio, trio[0]] = F[:, trio, trio]
        F[:, trio[1:], trio[1:]] = 0.0
    return F


def measured(X, F, n_times, rng):
    """Return rows measured again, shape (n_times, n_samples, n_features)."""
    return X + np.einsum("ijk,tik->tij", F, rng.standard_normal((n_times, len(X), F.shape[2])))


def tuned(model, values, X, y, **metadata):
    """Return the model with its ridge chosen by folds; ties go to the stronger ridge."""
    return GridSearchCV(model, values, cv=3).fit(X, y, **metadata).best_estimator_


def retuned(X, y, copies):
    """Return a logistic regression on the rows as they are, its ridge chosen on noisy validation rows."""
    starts = len(y) * np.arange(1, 1 + len(copies))[:, None]
    folds = [(fit, (starts + check).ravel()) for fit, check in StratifiedKFold(3).split(X, y)]
    search = GridSearchCV(LogisticRegression(), {"C": 1 / RIDGES}, cv=folds, refit=False)
    search.fit(np.concatenate([X, *copies]), np.tile(y, 1 + len(copies)))
    return LogisticRegression(**search.best_params_).fit(X, y)


def accuracies(kind, n_splits):
    """Return accuracies in percent of each model, one for each split."""
    data = load_breast_cancer_errors()
    found = {name: [] for name in (PLAIN, RETUNED, DEVIATIONS, COVARIANCES)}
    splits = StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(data.X, data.y)
    for seed, (train, test) in enumerate(splits):
        rng = np.random.default_rng(seed)
        scaler = StandardScaler().fit(data.X[train])
        X, S, y = scaler.transform(data.X), data.X_std / scaler.scale_, data.y
        if kind == "alike":
            S = np.full_like(S, np.sqrt(np.mean(S[train] ** 2)))
        F = factors(S, kind, data.feature_names)
        rows, ridges = (X[train], y[train]), {"alpha": RIDGES}
        models = {
            PLAIN: tuned(LogisticRegression(), {"C": 1 / RIDGES}, *rows),
            RETUNED: retuned(*rows, measured(X[train], F[train], COPIES, rng)),
            DEVIATIONS: tuned(GaussianRobustClassifier(LEVEL), ridges, *rows, X_std=S[train]),
            COVARIANCES: tuned(GaussianRobustClassifier(LEVEL), ridges, *rows, X_factor=F[train] / LEVEL),
        }
        again = measured(X[test], F[test], DRAWS, rng)
        for name, model in models.items():
            right = [np.mean(model.predict(rows) == y[test]) for rows in again]
            found[name].append(100 * np.mean(right))
    return {name: np.array(values) for name, values in found.items()}


def shown(values, sign=""):
    return f"{values.mean():{sign}.1f} ({values.std(ddof=1) / np.sqrt(len(values)):.1f})"


def table(n_splits):
    lines = [f"{n_splits} splits.\n", "| errors | " + " | ".join((PLAIN, RETUNED, DEVIATIONS, COVARIANCES)) + " |"]
    lines.append("|---" * 5 + "|")
    gains = ["| points gained | deviations over re-tuned | covariances over deviations |", "|---|---|---|"]
    for kind in KINDS:
        found = accuracies(kind, n_splits)
        lines.append(f"| {kind} | " + " | ".join(map(shown, found.values())) + " |")
        over = found[DEVIATIONS] - found[RETUNED], found[COVARIANCES] - found[DEVIATIONS]
        gains.append(f"| {kind} | " + " | ".join(shown(values, "+") for values in over) + " |")
    return "\n".join([*lines, "", *gains]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=30)
    with threadpool_limits(1):  # the data are small: threads would only wait for each other
        text = table(parser.parse_args().splits)
    print(text)
    about = "\n".join(__doc__.splitlines()[2:])
    (HERE / "noise_structure.md").write_text(f"# {__doc__.splitlines()[0]}\n\n{about}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
