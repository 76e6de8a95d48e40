"""What SafeClassifier learns where validation rows are noisier than training rows, and where they are not.

Run ``python benchmarks/safe.py > benchmarks/safe.md``. Six features, whose sum decides the class; three of them are measured
with noise of standard deviation 1, in training, in validation or in both. 400 validation rows, lengths from 0.02 to 1,
alpha 0.1.
"""

import platform
import warnings

import numpy as np
import sklearn

from holdfast import SafeClassifier, __version__
from holdfast.exceptions import NothingLearnedWarning

N_RUNS, N_FEATURES = 10, 6
NOISY = np.repeat([0.0, 1.0], N_FEATURES // 2)
CASES = [(40, 0, 1), (400, 0, 1), (40, 1, 1), (400, 1, 1), (40, 0, 0), (400, 0, 0)]


def drawn(rng, n_rows, noise):
    """Return measured rows and their classes."""
    X = rng.normal(size=(n_rows, N_FEATURES))
    return X + noise * NOISY * rng.normal(size=X.shape), np.where(X.sum(axis=1) > 0, 1, 0)


def one_run(seed, n_rows, trained, validated, method):
    """Return what was learned in one run, and accuracies on fresh rows as noisy as those of validation."""
    rng = np.random.default_rng(seed)
    (X, y), (X_val, y_val), (X_new, y_new) = (
        drawn(rng, n, noise) for n, noise in ((n_rows, trained), (400, validated), (4000, validated))
    )
    least = SafeClassifier(0.02, 0.02, alpha=0.1).fit(X, y)
    model = SafeClassifier(0.02, 1.0, alpha=0.1, method=method).fit(X, y, X_val=X_val, y_val=y_val)
    clean, noisy = model.lengths_[NOISY == 0], model.lengths_[NOISY > 0]
    scores = [100 * one.score(X_new, y_new) for one in (least, model)]
    return [model.is_learned_, clean.mean(), noisy.mean(), noisy.min() > clean.max(), scores[0], scores[1] - scores[0]]


def main():
    """Print the table."""
    warnings.simplefilter("ignore", NothingLearnedWarning)
    print("# What SafeClassifier learns\n")
    print(__doc__.split("\n\n", 1)[1].strip())
    print(
        f"\nMeans of {N_RUNS} runs, standard errors in brackets. Told apart: each noisy feature is longer than each clean one."
    )
    print(
        f"Accuracies are on 4000 fresh rows as noisy as those of validation. holdfast {__version__}, numpy {np.__version__},"
    )
    print(f"scikit-learn {sklearn.__version__}, Python {platform.python_version()}.\n")
    head = [
        "method",
        "training rows",
        "noise in training",
        "in validation",
        "learned",
        "length of clean, of noisy features",
    ]
    head += ["told apart", "accuracy at the least lengths", "more by learned ones"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for method in ("implicit", "stochastic"):
        for n_rows, trained, validated in CASES:
            runs = np.array([one_run(seed, n_rows, trained, validated, method) for seed in range(N_RUNS)], dtype=float)
            learned, clean, noisy, apart, score, more = runs.mean(axis=0)
            error = runs[:, 5].std(ddof=1) / np.sqrt(N_RUNS)
            print(
                f"| {method} | {n_rows} | {trained} | {validated} | {learned:.0%} | {clean:.2f}, {noisy:.2f} | {apart:.0%} ",
                end="",
            )
            print(f"| {score:.1f} | {more:.1f} ({error:.1f}) |", flush=True)


if __name__ == "__main__":
    main()
