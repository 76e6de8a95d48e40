"""Deleted features of wide sparse rows: HiGHS on the published program, the choice by size, and nothing that is dense."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from holdfast import FeatureDeletion, FeatureDeletionClassifier, RobustLinearClassifier
from holdfast._core.solution import Status
from holdfast._data import rows_of
from holdfast._data.sparse import SparseRows
from holdfast._problems.feature_deletion import FeatureDeletionProblem
from holdfast._training import feature_deletion as training
from holdfast._training.feature_deletion import train_deletion
from holdfast.solvers import DeletionInteriorPoint, DeletionPrimalDual
from holdfast.uncertainty.deletion_loss import DeletionLoss


def texts(rng, m=50, n=70, per_row=8):
    """Rows with few words each, some words in most rows and many in few; labels by some of the words, with noise."""
    share = np.minimum(3.0 / (1 + np.arange(n)), 0.8) * per_row / 8
    X = (rng.random((m, n)) < share) * rng.uniform(0.2, 1.0, size=(m, n))
    score = X @ (rng.normal(size=n) * (rng.random(n) < 0.3)) + 0.3 * rng.normal(size=m)
    return sparse.csr_array(X), np.where(score > np.quantile(score, 0.7), 1.0, -1.0)


def problem_of(X, y, *, values=None, budget=2.0, margin=0.1, adversary="relaxed", limit=1.0):
    loss = DeletionLoss.of(values, budget, margin, adversary, X.shape[1], "test")
    return FeatureDeletionProblem(rows_of(X), y, np.full(len(y), 1 / len(y)), loss, limit)


PROGRAMS = {
    "separable": {},
    "hard to tell apart": {"margin": 1.0},
    "all but collapsed": {"budget": 40.0, "margin": 3.0},
    "unequal values": {"values": "drawn", "budget": 1.3, "margin": 0.5},
    "tightened": {"values": "drawn", "budget": 0.9, "margin": 0.5, "adversary": "tightened"},
    "no budget": {"budget": 0.0, "margin": 1.0},
}


@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
def test_it_agrees_with_highs_on_the_published_program(options, rng):
    X, y = texts(rng)
    if "values" in options:
        options = options | {"values": np.where(rng.random(70) < 0.1, np.inf, rng.uniform(0.3, 2.0, size=70))}
    problem = problem_of(X, y, **options)
    _, theirs = train_deletion(problem, "highs", tol=1e-7, max_iter=10**6)
    found, ours = train_deletion(problem, DeletionPrimalDual(), tol=1e-4, max_iter=300)
    scale = max(theirs.objective, problem.floor)
    assert theirs.gap <= 1e-7
    assert found.status is Status.SOLVED
    assert ours.gap <= 1e-4
    assert ours.objective == pytest.approx(theirs.objective, abs=1.1e-4 * scale)
    assert ours.lower_bound <= theirs.objective + 1e-7 * scale


@pytest.mark.parametrize("budget", [1, 1.5])
def test_a_ridge_is_solved_as_by_the_interior_point(budget, rng):
    X, y = texts(rng)
    sets = FeatureDeletion(budget)
    ours, theirs = (
        RobustLinearClassifier(sets, alpha=0.1, solver=solver, tol=tol).fit(X, y)
        for solver, tol in (("deletion_primal_dual", 1e-5), ("deletion_interior_point", 1e-8))
    )
    assert ours.gap_ <= 1e-5
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=1.1e-5)


@pytest.mark.parametrize(
    ("shape", "n_entries", "chosen"),
    [
        ((500, 1000), 20_000, DeletionInteriorPoint),
        ((2000, 5000), 80_000, DeletionPrimalDual),
        ((20_000, 50_000), 1_000_000, DeletionPrimalDual),
        ((20_000, 500), 10_000_000, DeletionInteriorPoint),
        ((1000, 5000), 5_000_000, DeletionInteriorPoint),
    ],
)
def test_it_is_chosen_by_size(shape, n_entries, chosen):
    work = {"n_samples": shape[0], "n_features": shape[1], "n_entries": n_entries}
    solvers = DeletionInteriorPoint(), DeletionPrimalDual()
    assert isinstance(max(solvers, key=lambda solver: solver.preference(work)), chosen)


def noting(sizes, function):
    """Return the function, which also notes how many numbers the array has that it is called on."""

    def noted(array, *arguments, **options):
        sizes.append(np.prod(array.shape) if hasattr(array, "shape") else array.n_samples * array.n_features)
        return function(array, *arguments, **options)

    return noted


@pytest.mark.parametrize("classifier", [FeatureDeletionClassifier(2), RobustLinearClassifier(FeatureDeletion(2))])
def test_nothing_of_wide_sparse_rows_is_made_dense(classifier, monkeypatch, rng):
    X = sparse.random_array((400, 3000), density=0.004, rng=rng, format="csr")
    y = np.where(X @ rng.normal(size=3000) > 0, 1, -1)

    largest = []
    for cls in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        monkeypatch.setattr(cls, "toarray", noting(largest, cls.toarray))
    monkeypatch.setattr(SparseRows, "dense_blocks", noting(largest, SparseRows.dense_blocks))
    classifier.fit(X, y)
    assert max(largest, default=0) < 100 * X.shape[1]
    assert classifier.solution_["solver"] == "deletion_primal_dual"
    assert classifier.gap_ <= classifier.tol


def test_what_it_cannot_finish_the_interior_point_does(monkeypatch, rng):
    X, y = texts(rng)
    problem = problem_of(X, y, margin=1.0)
    monkeypatch.setattr(training, "pick", lambda problem, solver=None: solver or DeletionPrimalDual())
    found, proof = train_deletion(problem, tol=1e-7, max_iter=30)
    assert found.solver == "deletion_interior_point"
    assert proof.gap <= 1e-7
    named, gap = train_deletion(problem, DeletionPrimalDual(), tol=1e-7, max_iter=30)
    assert named.status is Status.SLOW
    assert gap.gap > 1e-7


def test_nor_does_a_ridge_keep_it_from_that(monkeypatch, rng):
    X, y = texts(rng)
    X = X.multiply(10.0 ** rng.integers(-2, 3, X.shape[1])).tocsr()
    monkeypatch.setattr(DeletionPrimalDual, "preference", lambda solver, work: 9.0)
    free = RobustLinearClassifier(FeatureDeletion(1), max_iter=100).fit(X, y)
    assert free.gap_ <= 1e-6
    assert free.solution_["solver"] == "deletion_interior_point"
    with pytest.warns(ConvergenceWarning, match="deletion_interior_point"):
        named = RobustLinearClassifier(FeatureDeletion(1), max_iter=5, solver="deletion_primal_dual").fit(X, y)
    assert named.gap_ > 1e-6


@pytest.mark.parametrize(("n_samples", "n_features", "expected"), [(150, 2500, True), (150, 20_000, False)])
def test_it_hands_over_only_where_that_is_a_matter_of_seconds(n_samples, n_features, expected):
    work = {"n_samples": n_samples, "n_features": n_features, "n_entries": 8 * n_samples}
    assert (DeletionPrimalDual().stand_in(work) is not None) == expected


def test_stored_zeros_and_entries_in_parts_change_nothing(rng):
    X, y = texts(rng)
    plain = FeatureDeletionClassifier(2, margin=1.0, solver="deletion_primal_dual", tol=1e-3).fit(X, y)
    twice = sparse.csr_array(
        (np.repeat(X.data, 3) * np.tile([0.25, 0.75, 0.0], X.nnz), np.repeat(X.indices, 3), 3 * X.indptr), shape=X.shape
    )
    again = FeatureDeletionClassifier(2, margin=1.0, solver="deletion_primal_dual", tol=1e-3).fit(twice, y)
    assert again.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    assert again.lower_bound_ == pytest.approx(plain.lower_bound_, rel=1e-9)
