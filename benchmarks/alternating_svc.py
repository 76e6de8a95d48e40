"""How often does training by turns settle, and how far from the optimum is it where it does not?

24 random problems: 30 rows of two Gaussian classes in 2 to 4 dimensions, with a separation of 0.5 to 2.5, alpha of 0.1 to 30
and a radius of 0.02 to 1. Each gets 30 rounds of `AlternatingSVC`, and `RobustLinearClassifier` says what the optimum is.
Excess is the objective over the optimum, less 1, in percent. Prints a table.
"""

import warnings

import numpy as np

from holdfast import Ball, RobustLinearClassifier
from holdfast.experiments import AlternatingSVC


def problems(seed=77, count=24):
    """Yield (X, y, alpha, radius)."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1.0, -1.0], 15)
    for _ in range(count):
        separation, alpha, radius = rng.uniform(0.5, 2.5), 10 ** rng.uniform(-1, 1.5), rng.uniform(0.02, 1.0)
        d = rng.integers(2, 5)
        direction = rng.normal(size=d)
        X = rng.normal(size=(30, d)) + separation * np.outer(y, direction / np.linalg.norm(direction))
        yield X, y, alpha, radius


def main():
    """Print the table."""
    print("intercept | settled | after rounds | worse of the last two: median, max | best round: median, max")
    print("---|---|---|---|---")
    for fit_intercept in (False, True):
        rounds, late, best = [], [], []
        for X, y, alpha, radius in problems():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = AlternatingSVC(radius, alpha=alpha, fit_intercept=fit_intercept).fit(X, y)
                exact = RobustLinearClassifier(Ball(radius), alpha=alpha, fit_intercept=fit_intercept).fit(X, y)
            if model.converged_:
                rounds.append(model.n_iter_)
                continue
            late.append(100 * (model.objectives_[0][-2:].max() / exact.objective_ - 1))
            best.append(100 * (model.objective_ / exact.objective_ - 1))
        spread = f"{np.median(late):.1f}, {max(late):.0f} | {np.median(best):.1f}, {max(best):.0f}"
        print(f"{fit_intercept} | {len(rounds)} of 24 | {min(rounds)} to {max(rounds)} | {spread}")


if __name__ == "__main__":
    main()
