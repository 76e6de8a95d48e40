"""What noise copies and moderated probabilities are worth on the breast-cancer data.

Run it with `python benchmarks/noise_copies.py`; it writes the table beside this file. Ten mean features of 569 images with
their standard errors, stratified splits into 70 % training and 30 % test rows, standardised by the training rows, as in
`examples/plot_do_error_bars_help.py`. Test rows are as they are (clean) or re-measured 20 times with four times the stated
errors, drawn independently. Ridges are chosen by three folds of the clean training rows, around the copies.

* LogisticRegression: plain.
* GaussianRobustClassifier(noise=4): the expected logistic loss, without draws.
* NoiseCopies(LogisticRegression): ten draws at four times the errors; its limit for many draws is the line above.
* HistGradientBoosting: plain, and the same with ten draws at four times the errors (50 rounds).

The third table is of boosting on copies at four times the errors, re-measured rows: as it is, with leaves of at least 200
copies (20 rows) instead of 20 copies, and with probabilities averaged over ten draws of each row (`average_draws=10`).

Leaves matter more where errors are small beside the distances of rows, as copies of one row then lie together. Accuracy on
clean rows of the digits 3 and 8 (six splits; deviations of 0.05 to 0.5 of those of each pixel) with copies at 1x and at 4x.

Log-loss is in nats on the re-measured rows; "moderated" is that of `predict_proba(X, X_std=4 * errors)`.
Numbers are means over the splits with their standard errors; differences are paired. Re-measurement is simulated.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from holdfast import GaussianNoise, GaussianRobustClassifier, ModeratedClassifier, NoiseCopies
from holdfast.datasets import load_breast_cancer_errors

HERE = Path(__file__).parent
LEVEL, DRAWS = 4.0, 20
RIDGES = np.array([100.0, 10.0, 1.0, 0.1])
PLAIN, EXPECTED, COPIED = "LogisticRegression", "GaussianRobustClassifier(noise=4)", "NoiseCopies(LogisticRegression)"
BOOSTED, BOOSTED_COPIES = "HistGradientBoosting", "NoiseCopies(HistGradientBoosting)"
LEAF = 200
VARIANTS = (
    "as it is",
    f"min_samples_leaf={LEAF}",
    "average_draws=10",
    f"both: min_samples_leaf={LEAF}, average_draws=10",
)


def tuned(model, values, X, y, **metadata):
    """Return the model with its ridge chosen by folds; ties go to the stronger ridge."""
    return GridSearchCV(model, values, cv=3).fit(X, y, **metadata).best_estimator_


def fitted(X, S, y, seed):
    """Return all models, fitted, and boosting on copies with larger leaves."""
    noise = GaussianNoise(LEVEL)
    boosting = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    copied = NoiseCopies(boosting, average_draws=10, uncertainty=noise, random_state=seed)
    return {
        PLAIN: tuned(ModeratedClassifier(LogisticRegression()), {"estimator__C": 1 / RIDGES}, X, y),
        EXPECTED: tuned(GaussianRobustClassifier(LEVEL), {"alpha": RIDGES}, X, y, X_std=S),
        COPIED: tuned(
            NoiseCopies(LogisticRegression(), uncertainty=noise, random_state=seed),
            {"estimator__C": 1 / RIDGES},
            X,
            y,
            X_std=S,
        ),
        BOOSTED: HistGradientBoostingClassifier(random_state=0).fit(X, y),
        BOOSTED_COPIES: copied.fit(X, y, X_std=S),
    }, clone(copied).set_params(estimator__min_samples_leaf=LEAF).fit(X, y, X_std=S)


def measured(n_splits):
    """Return accuracies (n_splits, n_models, 2) in percent, clean and re-measured, log-losses (n_splits, 3), names, and both
    of variants of boosting on copies at re-measured rows (n_splits, 4, 2)."""
    data = load_breast_cancer_errors()
    accuracies, losses, names, variants = [], [], [], []
    splits = StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(data.X, data.y)
    for seed, (train, test) in enumerate(splits):
        scaler = StandardScaler().fit(data.X[train])
        (X, S), (Z, T) = ((scaler.transform(data.X[i]), data.X_std[i] / scaler.scale_) for i in (train, test))
        models, larger_leaves = fitted(X, S, data.y[train], seed)
        rng = np.random.default_rng(seed)
        noisy = (Z + LEVEL * T * rng.standard_normal((DRAWS, *Z.shape))).reshape(-1, Z.shape[1])
        labels, errors = np.tile(data.y[test], DRAWS), np.tile(LEVEL * T, (DRAWS, 1))
        names = list(models)
        with warnings.catch_warnings():  # rows without errors are meant
            warnings.simplefilter("ignore")
            accuracies.append([(m.score(Z, data.y[test]), m.score(noisy, labels)) for m in models.values()])
            copied = models[BOOSTED_COPIES], larger_leaves
            chances = [m.predict_proba(noisy) for m in copied] + [m.predict_proba(noisy, X_std=errors) for m in copied]
        variants.append([(100 * np.mean(p.argmax(axis=1) == labels), log_loss(labels, p)) for p in chances])
        plain, expected = models[PLAIN], models[EXPECTED]
        shown = (
            plain.predict_proba(noisy),
            plain.predict_proba(noisy, X_std=errors),
            expected.predict_proba(noisy, X_std=errors),
        )
        losses.append([log_loss(labels, p) for p in shown])
        print(seed, np.round(100 * np.array(accuracies[-1])[:, 1], 1), np.round(losses[-1], 3), flush=True)
    return 100 * np.array(accuracies), np.array(losses), names, np.array(variants)


def leaves():
    """Return accuracies on clean digits in percent (n_splits, 5): boosting, and on copies at 1x and at 4x by size of leaves."""
    X, y = load_digits(return_X_y=True)
    X, y = X[np.isin(y, (3, 8))], y[np.isin(y, (3, 8))]
    S = X.std(axis=0) * np.exp(np.random.default_rng(0).uniform(np.log(0.05), np.log(0.5), size=X.shape[1]))
    found = []
    for seed, (train, test) in enumerate(StratifiedShuffleSplit(6, test_size=0.3, random_state=0).split(X, y)):
        boosting = HistGradientBoostingClassifier(max_iter=50, random_state=0)
        models = [boosting] + [
            NoiseCopies(
                clone(boosting).set_params(min_samples_leaf=leaf),
                uncertainty=GaussianNoise(std=m * S),
                random_state=seed,
            )
            for m in (1.0, LEVEL)
            for leaf in (20, LEAF)
        ]
        found.append([100 * model.fit(X[train], y[train]).score(X[test], y[test]) for model in models])
    return np.array(found)


def shown(values, digits=1):
    """Return a mean over splits with its standard error."""
    return f"{values.mean():.{digits}f} ({values.std(ddof=1) / np.sqrt(len(values)):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=30)
    options = parser.parse_args()
    with threadpool_limits(1):
        accuracies, losses, names, variants = measured(options.splits)
        by_leaves = leaves()
    lines = ["| model | clean % | at 4x % |", "|---|---|---|"]
    lines += [
        f"| {name} | {shown(accuracies[:, k, 0])} | {shown(accuracies[:, k, 1])} |" for k, name in enumerate(names)
    ]
    gap = accuracies[:, names.index(COPIED), 1] - accuracies[:, names.index(EXPECTED), 1]
    lines += ["", f"Ten copies less the expected loss, at 4x: {shown(gap, 2)} points.", ""]
    lines += ["| log-loss at 4x | plain | moderated |", "|---|---|---|"]
    lines += [f"| LogisticRegression | {shown(losses[:, 0], 3)} | {shown(losses[:, 1], 3)} |"]
    lines += [f"| GaussianRobustClassifier(noise=4) | | {shown(losses[:, 2], 3)} |"]
    lines += ["", "| boosting on copies, at 4x | accuracy % | more | log-loss | less |", "|---|---|---|---|---|"]
    for k, name in enumerate(VARIANTS):
        more, less = variants[:, k, 0] - variants[:, 0, 0], variants[:, 0, 1] - variants[:, k, 1]
        parts = shown(variants[:, k, 0]), shown(more), shown(variants[:, k, 1], 3), shown(less, 3)
        lines += [f"| {name} | {' | '.join(parts)} |"]
    lines += ["", f"| digits | leaves of 20 copies | of {LEAF} | more |", "|---|---|---|---|"]
    for k, name in enumerate(("copies at 1x", "copies at 4x")):
        small, large = by_leaves[:, 1 + 2 * k], by_leaves[:, 2 + 2 * k]
        lines += [f"| {name} | {shown(small)} | {shown(large)} | {shown(large - small)} |"]
    lines += ["", f"Boosting without copies: {shown(by_leaves[:, 0])}."]
    text = f"# {__doc__.split(chr(10), 1)[0].rstrip('.')}\n\n{__doc__.split(chr(10) * 2, 1)[1].strip()}\n\n"
    text += f"{options.splits} splits.\n\n" + "\n".join(lines) + "\n"
    (HERE / "noise_copies.md").write_text(text, encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
