"""RobustLinearClassifier with every loss, set and penalty on few rows of rounded features: ties and flat optima abound."""

import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    RobustLinearClassifier,
)
from holdfast._core.loss import Loss
from holdfast.estimators.worst_case import LOSSES as NAMED
from holdfast.exceptions import CollapseWarning
from holdfast.uncertainty import LinearImage

LOSSES = tuple(NAMED)
AVERAGED = tuple(name for name, loss in NAMED.items() if loss.averaged is not Loss.averaged)
"""Those that go with noise too."""
PENALTIES = ("l2", "l1", "box", None)
SLOWEST = 2.0
"""Seconds of one core that a fit may take."""
KAPPAS = (1.0, 1.0, 0.3)
"""One fit in three is a mix."""


def rounded_rows(seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(30, 4)))
    return X, X[:, 0] + rng.normal(size=30) > 0


def sets(X):
    """Return sets of every kind, each with its metadata."""
    rng = np.random.default_rng(99)
    S, F, A = np.round(rng.uniform(0, 0.6, size=X.shape), 1), 0.3 * rng.normal(size=(30, 4, 2)), rng.normal(size=(4, 4))
    C, widths, by_row = 0.1 * A @ A.T, [0.3, 0.0, 0.1, 0.5], {"X_std": S}
    return [
        (None, {}),
        *((Ball(0.3, p), {}) for p in (1, 2, 3.0, np.inf)),
        (Ball(1.0), {}),
        *((Ball(0.5, p), {"X_radius": S[:, 0]}) for p in (2, 3.0)),
        (Box(0.2), {}),
        (Box(1.0), {}),
        (Box(0.5, half_widths=widths), {}),
        (Box(0.5), by_row),
        (IntervalBox(-0.3, 0.05), {}),
        (IntervalBox(), {"X_lower": X - S, "X_upper": X + S[::-1]}),
        (Ellipsoid(0.5, shape=C), {}),
        (Ellipsoid(0.5, shape=widths), {}),
        (Ellipsoid(0.5), by_row),
        (Ellipsoid(0.5), {"X_factor": F}),
        (ChanceConstraint(0.2, cov=C), {}),
        (ChanceConstraint(0.1, "gaussian"), by_row),
        (FeatureDeletion(1), {}),
        (FeatureDeletion(2), {}),
        (FeatureDeletion(1.5, [1.0, 0.7, 2.0, 1.0], share=0.8), {}),
        (FeatureDeletion(1.2, [0.0, 3.0, 1.0, 1.0], filler=[0.2, 0.0, -0.1, 0.3]), {}),
        (FeatureDeletion(1, exactly=True), {}),
        (LinearImage(Box(0.2), A), {}),
        (Ball(0.2) + Box(0.1), {}),
        (Box(half_widths=0.1) + Ellipsoid(0.2), by_row),
        (FeatureDeletion(1) + Ball(0.1), {}),
        (FeatureDeletion(1) + Box(0.1), {}),
        (GaussianNoise(0.3), {}),
        (GaussianNoise(1.0), {}),
        (GaussianNoise(std=widths), {}),
        (GaussianNoise(cov=C), {}),
        (GaussianNoise(0.5), by_row),
        (GaussianNoise(), {"X_factor": F}),
        (GaussianNoise(0.2) + Ball(0.2), {}),
        (GaussianNoise(0.2) + Box(half_widths=0.1), {}),
        (GaussianNoise(0.2) + FeatureDeletion(1), {}),
    ]


def fits(first, stride):
    """Yield every `stride`-th fit from the `first` on: the problem in words, the model, and the seconds it took."""
    number = 0
    for seed in range(5):
        X, y = rounded_rows(seed)
        for uncertainty, metadata in sets(X):
            for loss in AVERAGED if "GaussianNoise" in repr(uncertainty) else LOSSES:
                for penalty in PENALTIES:
                    number += 1
                    if number % stride != first:
                        continue
                    kappa = 1.0 if getattr(uncertainty, "exactly", False) else KAPPAS[number // stride % len(KAPPAS)]
                    model = RobustLinearClassifier(uncertainty, loss=loss, penalty=penalty, kappa=kappa)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", CollapseWarning)
                        warnings.simplefilter("ignore", ConvergenceWarning)
                        start = time.process_time()
                        model.fit(X, y, **metadata)
                        taken = time.process_time() - start
                    yield f"seed {seed}: {model}", model, taken


def failures(first, stride, slowest=np.inf):
    """Return the fits that took too long, or are not certified without saying that no bound is known."""
    found = []
    for name, model, taken in fits(first, stride):
        is_known = model.solution_["status"] != "no_bound"
        if taken > slowest or (is_known and model.gap_ > 1e-6):
            found.append(f"{name}: {taken:.1f} s, gap {model.gap_:.1g}, {model.solution_['status']}")
        # for these a bound is known
        assert is_known or (model.penalty is None and "GaussianNoise" in repr(model.uncertainty)), name
    return found


@pytest.mark.slow
def test_some_fits_of_rounded_rows_are_certified():
    assert failures(3, 149) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12))
def test_every_fit_of_rounded_rows_is_quick_and_certified(first):
    assert failures(first, 12, SLOWEST) == []


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("exactly", [False, True])
def test_a_collapse_is_seen_where_weights_may_grow_without_end_at_no_cost(loss, exactly):
    """Deleting the first feature, which is never wrong in these rows, undoes whatever its weight gains."""
    X, y = rounded_rows(3)
    assert np.all(np.where(y, X[:, 0], -X[:, 0]) >= 0)
    model = RobustLinearClassifier(FeatureDeletion(1, exactly=exactly), loss=loss, penalty=None)
    with pytest.warns(CollapseWarning):
        model.fit(X, y)
    assert model.collapsed_
    assert model.gap_ < 1e-8


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("uncertainty", [Box(0.5), Ball(0.5, 1), IntervalBox(-1.0, 0.0)], ids=repr)
def test_sets_that_just_touch_are_certified(loss, uncertainty):
    X = rounded_rows(0)[0]
    assert RobustLinearClassifier(uncertainty, loss=loss, penalty=None).fit(X, X[:, 0] > 0).gap_ < 1e-6


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("solver", [None, "semismooth"])
def test_rows_that_hardly_bend_count_where_no_others_bend(solver, seed):
    X, y = rounded_rows(seed)
    model = RobustLinearClassifier(loss="hinge", penalty=None, solver=solver).fit(X, y)
    assert model.gap_ < 1e-6
    assert model.n_iter_ < ({5: 70, 6: 200}[seed] if solver else 50)


def test_a_set_without_extent_leaves_a_plain_linear_program():
    X, y = rounded_rows(5)
    model = RobustLinearClassifier(Ball(0.0), loss="hinge", penalty=None).fit(X, y)
    assert model.solution_["solver"] == "interior_point"


@pytest.mark.parametrize("loss", AVERAGED)
def test_averages_of_which_a_part_is_outside_of_the_loss_need_no_penalty(loss):
    """What is outside bears what tangents leave; nothing does where some feature is exact."""
    X, y = rounded_rows(1)
    assert RobustLinearClassifier(GaussianNoise(0.5), loss=loss, penalty=None, kappa=0.9).fit(X, y).gap_ < 1e-6
    model = RobustLinearClassifier(GaussianNoise([0.3, 0.0, 0.1, 0.5]), loss=loss, penalty=None, kappa=0.9)
    if loss == "hinge":
        assert model.fit(X, y).gap_ < 1e-6
    else:
        with pytest.warns(ConvergenceWarning, match="No lower bound is known"):
            assert model.fit(X, y).gap_ == np.inf
