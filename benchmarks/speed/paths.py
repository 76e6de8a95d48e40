"""Paths with cross-validation, over noises and over radii."""

from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

from holdfast import Ball, Box, GaussianRobustClassifier, GaussianRobustClassifierCV, RobustLinearClassifierCV
from speed import data as tables
from speed.case import Case, Section, Way

N_SIZES, N_FOLDS = 30, 5


def path(name, model, data):
    """Return a path of ours; the gap is the largest of its fits."""

    def reached(fitted):
        return f"gap {max(fitted.gap_, *fitted.cv_results_['max_gap']):.0e}, accuracy {fitted.best_score_:.3f}"

    return Way(name, partial(model.fit, data.X, data.y), reached)


def peers(data):
    for solver in ("lbfgs", "newton-cholesky"):
        model = LogisticRegressionCV(Cs=N_SIZES, cv=N_FOLDS, solver=solver, max_iter=10_000)

        def reached(fitted):
            return f"accuracy {max(table.mean(axis=0).max() for table in fitted.scores_.values()):.3f}"

        yield Way(f"LogisticRegressionCV {solver}", partial(model.fit, data.X, data.y), reached)


def cold(data, loss):
    """Fits of half of the first fold's path, each from scratch, times what makes them as many as those of a whole path."""
    own, _ = next(iter(StratifiedKFold(N_FOLDS).split(data.X, data.y)))
    noises = np.geomspace(3.0, 0.003, N_SIZES)[::2]

    def run():
        return [GaussianRobustClassifier(noise, loss=loss).fit(data.X[own], data.y[own]) for noise in noises]

    return Way(f"{loss} loss, 15 cold fits of a fold", run, is_slow=True)


def noise_ways(data):
    for loss in ("logistic", "hinge"):
        yield path(f"{loss} loss", GaussianRobustClassifierCV(N_SIZES, cv=N_FOLDS, loss=loss), data)
    yield from (cold(data, loss) for loss in ("logistic", "hinge"))
    yield from peers(data)


def radius_ways(data, uncertainty):
    for loss in ("hinge", "logistic"):
        model = RobustLinearClassifierCV(N_SIZES, uncertainty=uncertainty, cv=N_FOLDS, loss=loss)
        yield path(f"{uncertainty!r}, {loss} loss", model, data)
    yield from peers(data)


def sets():
    yield "breast cancer 569 x 30", tables.loaded(tables.breast_cancer), True
    if tables.HAS_FOLDER:
        yield "spambase 4601 x 57", tables.loaded(tables.spambase), False
        yield "USPS 3 or 5, 1540 x 256", tables.loaded(tables.usps_3_or_5), False
    yield "20 000 x 50", tables.drawn(tables.correlated, 20_000, 50), False


SECTIONS = {
    "noise path": Section(
        "Paths of noises",
        "`GaussianRobustClassifierCV(30, cv=5)` beside `LogisticRegressionCV(Cs=30, cv=5)`, with the fit to "
        "all rows at the end. Accuracy is that of the best noise, or C, in the folds; `gap` the largest of "
        "all fits.",
        [Case(name, data, noise_ways, is_quick=is_quick) for name, data, is_quick in sets()],
    ),
    "radius path": Section(
        "Paths of radii",
        "The same for `RobustLinearClassifierCV(30, cv=5)`.",
        [
            Case(f"{name}, {uncertainty!r}", data, partial(radius_ways, uncertainty=uncertainty), is_quick=is_quick)
            for name, data, is_quick in sets()
            for uncertainty in (Ball(), Box())
        ],
    ),
}
