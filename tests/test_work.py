"""No fit takes more work than it did: counts of passes over the rows, Hessians, solver steps and proofs, instead of times.

`python tests/test_work.py` prints what the fits below take now. Where a fit has come to take less, put the new counts here.
"""

import inspect
import sys
import warnings
from collections import Counter
from contextlib import contextmanager
from functools import wraps

import numpy as np
import pytest
from scipy import sparse

import holdfast
from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    FeatureDeletionClassifier,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    LabelFlips,
    LaplaceBoostClassifier,
    MinimaxProbabilityClassifier,
    NoiseAwareClassifier,
    RobustKernelClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
    WeightError,
)
from holdfast._core.rows import Rows
from holdfast._core.solver import Solver
from holdfast._problems.gathered import GatheredRows

KINDS = ("passes", "Hessians", "steps", "proofs")
SLACK, SPARE = 1.2, 2
"""A fit may take so many times the counts below, and so many more: other processors round differently, and add a stage."""
PASSES = ("dot", "transpose_dot", "pull", "margin_pass", "normal_pass", "square_sums")


def rows(n=300, d=8, *, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, d)) + 1.2 * rng.normal(size=(n_classes, d))[y]
    return X, y


def errors(X):
    return np.random.default_rng(1).uniform(0, 0.4, X.shape)


def words():
    X = sparse.random_array((400, 3000), density=0.01, rng=np.random.default_rng(2), format="csr")
    return X, (X @ np.random.default_rng(3).normal(size=3000) > 0).astype(int)


def few(model, **options):
    return lambda: model.fit(*rows(**options))


def told(model):
    X, y = rows()
    return lambda: model.fit(X, y, X_std=errors(X))


def validated():
    X, y = rows()
    return SafeClassifier().fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])


FITS = {
    # (passes, Hessians, steps, proofs), and the fit
    "Gaussian, hinge": ((21, 7, 7, 1), few(GaussianRobustClassifier(0.3, loss="hinge"))),
    "Gaussian, logistic": ((23, 9, 9, 1), few(GaussianRobustClassifier(0.3))),
    "Gaussian, own errors of rows": ((30, 8, 8, 1), told(GaussianRobustClassifier(loss="hinge"))),
    "Gaussian, wide sparse": ((31, 2, 20, 2), lambda: GaussianRobustClassifier(0.02, loss="hinge").fit(*words())),
    "Gaussian, three classes": ((25, 9, 9, 1), few(GaussianRobustClassifier(0.3, loss="hinge"), n_classes=3)),
    "Gaussian, three classes, logistic": ((22, 8, 8, 1), few(GaussianRobustClassifier(0.3), n_classes=3)),
    "Gaussian, path": ((723, 152, 156, 16), few(GaussianRobustClassifierCV(5, loss="hinge", cv=3))),
    "Gaussian, path, logistic": ((218, 52, 52, 16), few(GaussianRobustClassifierCV(5, cv=3))),
    "ball": ((222, 36, 36, 12), few(RobustLinearClassifier(Ball(0.2)))),
    "ball, path": ((1351, 230, 230, 50), few(RobustLinearClassifierCV(5, uncertainty=Ball(), cv=3))),
    "box": ((179, 0, 15, 1), few(RobustLinearClassifier(Box(0.1)))),
    "box, path": ((1640, 83, 171, 26), few(RobustLinearClassifierCV(5, uncertainty=Box(), cv=3))),
    "ellipsoids of rows": ((73, 16, 13, 5), told(RobustLinearClassifier(Ellipsoid(), loss="squared_hinge"))),
    "three classes, jointly": (
        (219, 53, 53, 11),
        few(RobustLinearClassifier(Ball(0.2), multiclass="joint"), n_classes=3),
    ),
    "label flips": ((298, 45, 45, 11), few(RobustLinearClassifier(ambiguity=LabelFlips(0.05)))),
    "weight errors": ((243, 0, 16, 1), few(RobustLinearClassifier(weight_error=WeightError(0.05)))),
    "deleted features": ((2, 0, 32, 1), few(FeatureDeletionClassifier(2))),
    # a step is 50 passes of the solver's own
    "deleted features, wide sparse": ((1, 0, 2, 1), lambda: FeatureDeletionClassifier(2).fit(*words())),
    "deleted features, wide sparse, ridge": (
        (4, 0, 54, 1),
        lambda: RobustLinearClassifier(FeatureDeletion(2)).fit(*words()),
    ),
    "class moments": ((16, 0, 0, 1), few(MinimaxProbabilityClassifier())),
    "class moments, boxes": ((520, 30, 30, 2), told(MinimaxProbabilityClassifier(Box()))),
    "boosting, exp": ((0, 8, 8, 1), few(LaplaceBoostClassifier("exp"))),
    "boosting, tail": ((0, 32, 32, 1), few(LaplaceBoostClassifier("tail", tol=1e-3))),
    "kernel": ((407, 79, 79, 19), few(RobustKernelClassifier(Ball(0.1), n_components=20, random_state=0))),
    "safe": ((5682, 1505, 1217, 51), validated),
    "noise aware": ((3, 0, 0, 1), told(NoiseAwareClassifier())),
}


@contextmanager
def counted():
    """Count work within: of calls that make others of their kind, the outermost."""
    counts, inside, changed = Counter(), set(), []

    def counting(kind, function, amount):
        @wraps(function)
        def call(*arguments, **options):
            if kind in inside:
                return function(*arguments, **options)
            inside.add(kind)
            try:
                result = function(*arguments, **options)
            finally:
                inside.discard(kind)
            counts[kind] += amount(result)
            return result

        return call

    def one(result):
        return 1

    def put(owner, name, kind, amount=one):
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, counting(kind, getattr(owner, name), amount))

    for name in ("evaluate", "second_order"):
        put(GatheredRows, name, "passes", lambda result: 2)  # their scores and their pull
    modules = [module for name, module in sys.modules.items() if name.startswith("holdfast.")]
    for cls in descendants(Rows):
        for name in {*PASSES} & {*vars(cls)}:
            put(cls, name, "passes")
    for cls in descendants(Solver):
        if "minimise" in vars(cls):
            put(cls, "minimise", "steps", lambda found: found.n_iter)
    for module in modules:
        for name, value in list(vars(module).items()):
            if proves(value):
                put(module, name, "proofs")
            elif is_seen_by_solvers(value) and value.__module__ == module.__name__:
                for method in {"hessian", "hessian_of"} & {*vars(value)}:
                    put(value, method, "Hessians")
    try:
        yield counts
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)


def descendants(cls):
    return [cls, *(found for child in cls.__subclasses__() for found in descendants(child))]


def proves(value):
    """Return whether it is a function that returns a proof."""
    return inspect.isfunction(value) and str(value.__annotations__.get("return")).endswith(("Certificate", "Proof"))


def is_seen_by_solvers(value):
    """Return whether it is a problem, or what is known of one at a point; Hessians of planes are small."""
    home = getattr(value, "__module__", "").startswith(("holdfast._problems", "holdfast._training"))
    return inspect.isclass(value) and home and "Plane" not in value.__name__


def work_of(fit):
    with counted() as counts, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
    return [counts[kind] for kind in KINDS]


@pytest.mark.parametrize("name", FITS)
def test_a_fit_takes_no_more_work_than_it_did(name):
    known, fit = FITS[name]
    for kind, before, now in zip(KINDS, known, work_of(fit), strict=True):
        limit = int(SLACK * before) + SPARE
        assert now <= limit, f"{name}: {now} {kind}, where {before} were enough and {limit} are allowed"


def test_work_is_counted():
    passes, hessians, steps, proofs = work_of(FITS["Gaussian, hinge"][1])
    assert min(passes, hessians, steps, proofs) > 0
    assert passes >= steps
    X = rows()[0]
    with counted() as counts:
        holdfast._data.rows_of(X).dot(X[0])
    assert counts == {"passes": 1}


if __name__ == "__main__":
    for name, (known, fit) in FITS.items():
        print(f"{name}: {tuple(work_of(fit))}, known {known}")
