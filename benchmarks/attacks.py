"""How fast and how strong is the closed-form attack on a linear model, beside a general one?

Run it with `python benchmarks/attacks.py` in an environment that has adversarial-robustness-toolbox (ART); without it only our
side is timed. One thread; CPU seconds, the median over rounds. Two classes of Gaussian rows with 50 features; scikit-learn's
LogisticRegression. ART's ProjectedGradientDescent has its own numbers of steps and starts as stated. *Robust accuracy* is the
share of rows that the attack leaves right: ours is exact, ART's an upper bound. Writes the table beside this file.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from holdfast import Ball, robust_accuracy
from tables import environment, table, timed, write

HEAD = (
    "| set | rows | ours | robust accuracy | ART, 20 steps | robust accuracy | ratio "
    "| ART, 100 steps, 5 starts | robust accuracy | ratio |"
)
SETTINGS = ({"max_iter": 20}, {"max_iter": 100, "num_random_init": 5})


def by_art(model, X, y, norm, radius, settings):
    """Return a call that attacks the rows with ART and returns the accuracy that is left."""
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import SklearnClassifier

    wrapped = SklearnClassifier(model=model)
    attack = ProjectedGradientDescent(
        wrapped, norm=norm, eps=radius, eps_step=radius / 8, verbose=False, batch_size=len(X), **settings
    )
    return lambda: float(np.mean(model.predict(attack.generate(X, y)) == y))


def compared(model, X, y):
    """Yield a line for each ball: the median of our times, then those of ART."""
    for norm, radius in ((2, 0.5), (2, 1.0), (np.inf, 0.05), (np.inf, 0.1)):
        ours = [timed(lambda: robust_accuracy(model, X, y, Ball(radius, norm=norm)).accuracy) for _ in range(5)]  # noqa: B023
        seconds = float(np.median([each[0] for each in ours]))
        cells = [f"Ball({radius}, norm={norm})", f"{len(X)}", f"{seconds:.4f}", f"{ours[0][1]:.4f}"]
        for settings in SETTINGS:
            try:
                rounds = 1 if "num_random_init" in settings else 3
                found = [timed(by_art(model, X, y, norm, radius, settings)) for _ in range(rounds)]
            except ImportError:
                cells += ["not installed", "", ""]
                continue
            peer = float(np.median([each[0] for each in found]))
            cells += [f"{peer:.2f}", f"{found[0][1]:.4f}", f"{peer / seconds:.0f}"]
        yield f"| {' | '.join(cells)} |"


def main():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=20_000)
    X = rng.normal(size=(20_000, 50)) + 0.25 * np.where(y, 1, -1)[:, None]
    with threadpool_limits(1):
        lines = table(HEAD, compared(LogisticRegression().fit(X, y), X, y))
    title, about = __doc__.strip().split("\n", 1)
    if "--print" not in sys.argv:
        write(Path(__file__).with_suffix(".md"), f"# {title}\n{about}\n\n{environment()}\n\n{lines}\n")


if __name__ == "__main__":
    main()
