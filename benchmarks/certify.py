"""What does a certificate cost beside a prediction?

Run it with `python benchmarks/certify.py`. One thread; CPU seconds of the process, the median over rounds in which the calls
take turns. Gaussian features, 100 unless stated; scikit-learn's LogisticRegression, trained on 5000 rows, and its SVC and
RBFSampler, on 2000. `scores` is what `decision_function` takes. Radii are in the l2 norm, intervals reach 0.1 to either side
(0.02 for kernels), and all rounding is accounted for; `exact=True` is the same by fractions. The certificates of SVC and
RBFSampler are searches, whose bounds ask more of each row than its score. Writes the table beside this file.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from gaussian_dense import environment, timed
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from holdfast.evaluate import certified_deletions, certified_interval, certified_radius, safe_bits

HERE = Path(__file__).parent
HEAD = "| model | rows | call | scores | certificate | certificate / scores |"


def model(kind, X, n_classes, rng):
    y = (X @ rng.normal(size=(X.shape[1], n_classes)) + rng.normal(size=(len(X), n_classes))).argmax(axis=1)
    return kind.fit(X, y)


def within(size):
    """Return the certificate of intervals that are stated once for all rounds."""
    ends = {}

    def certify(fitted, X):
        if id(X) not in ends:
            ends[id(X)] = {"X_lower": X - size, "X_upper": X + size}
        return certified_interval(fitted, X, **ends[id(X)])

    return certify


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rows, 100))
    few, fewer, wide = X[: options.rows // 10], X[:1000], rng.normal(size=(1000, 500))
    plain, ten = (model(LogisticRegression(), X[:5000], k, rng) for k in (2, 10))
    plain_wide = model(LogisticRegression(), wide, 2, rng)
    scaled = model(make_pipeline(StandardScaler(), LogisticRegression()), X[:5000], 2, rng)
    kernel = model(make_pipeline(StandardScaler(), SVC()), X[:2000], 2, rng)
    waves = RBFSampler(gamma=0.01, n_components=200, random_state=0)
    fourier = model(make_pipeline(StandardScaler(), waves, LogisticRegression()), X[:2000], 2, rng)
    values = rng.uniform(0.5, 2.0, size=100)
    cases = [
        ("2 classes", plain, X, "certified_radius", certified_radius),
        ("2 classes, float32", plain, X.astype(np.float32), "certified_radius", certified_radius),
        ("10 classes", ten, X, "certified_radius", certified_radius),
        ("StandardScaler, 2 classes", scaled, X, "certified_radius", certified_radius),
        ("2 classes", plain, few, "certified_interval", within(0.1)),
        ("10 classes", ten, few, "certified_interval", within(0.1)),
        ("2 classes, 500 features", plain_wide, wide, "certified_interval", within(0.1)),
        ("2 classes", plain, few, "certified_deletions", certified_deletions),
        (
            "2 classes",
            plain,
            few,
            "certified_deletions(values=...)",
            lambda m, X: certified_deletions(m, X, values=values),
        ),
        ("10 classes", ten, few, "certified_deletions", certified_deletions),
        ("2 classes, 500 features", plain_wide, wide, "certified_deletions", certified_deletions),
        ("2 classes", plain, few, "safe_bits", safe_bits),
        ("2 classes", plain, fewer, "certified_radius(exact=True)", lambda m, X: certified_radius(m, X, exact=True)),
        ("StandardScaler, SVC(rbf)", kernel, fewer, "certified_radius", certified_radius),
        ("StandardScaler, SVC(rbf)", kernel, fewer, "certified_interval", within(0.02)),
        ("StandardScaler, RBFSampler", fourier, fewer, "certified_radius", certified_radius),
        ("StandardScaler, RBFSampler", fourier, fewer, "certified_interval", within(0.02)),
    ]
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    print(environment(), *lines, sep="\n", flush=True)
    with threadpool_limits(1):
        for name, fitted, rows, call, certify in cases:
            times = np.array(
                [
                    [timed(lambda: fitted.decision_function(rows))[0], timed(lambda: certify(fitted, rows))[0]]  # noqa: B023
                    for _ in range(options.rounds)
                ]
            )
            scores, certificate = np.median(times, axis=0)
            cells = [name, f"{len(rows):,}", call, f"{scores:.3g}", f"{certificate:.3g}", f"{certificate / scores:.1f}"]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    head = "# What a certificate costs beside a prediction (CPU seconds)"
    text = f"{head}\n{__doc__.split(chr(10), 1)[1]}\n{environment()}\n\n"
    (HERE / "certify.md").write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
