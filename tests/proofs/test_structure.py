"""Structure of half-widths and rows: the same optimum, and nothing of the size of a dense table."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import entr

from holdfast import Ball, Box, RobustLinearClassifier
from holdfast._core.programs import LinearProgram
from holdfast._data import SparseRows
from holdfast._problems.penalty import Lasso
from holdfast._training.training import train
from holdfast.losses import Hinge, Logistic, Mixture
from holdfast.solvers import Highs
from holdfast.uncertainty.row_boxes import RowBoxes

STEP = 1e-6


def _mixed(loss, kappa):
    return loss if kappa == 1 else Mixture(loss, kappa)


@pytest.fixture
def regular(two_classes, rng):
    """Rows, labels, half-widths, and the same as deviations of both signs from one row."""
    X, y = two_classes(40, 5, separation=0.6)
    s = rng.uniform(0.05, 0.3, size=5)
    S = np.tile(s, (40, 1))
    changed = rng.uniform(size=S.shape) < 0.2
    S[changed] = np.where(rng.uniform(size=changed.sum()) < 0.5, 0.0, rng.uniform(0, 0.6, changed.sum()))
    return X, y, S, RowBoxes(sparse.csr_array(S - s), common=s)


@pytest.mark.parametrize("kappa", [1.0, 0.4])
def test_slopes_and_bends_are_those_of_dense_half_widths(kappa, regular, make_problem, rng):
    X, y, S, bound = regular
    thin, dense = (make_problem(X, y, _mixed(Logistic(), kappa), each, alpha=0.3) for each in (bound, RowBoxes(S)))
    theta, v = rng.normal(size=6), rng.normal(size=6)
    value, gradient = thin.value_and_gradient(theta)
    assert_allclose(value, dense.value_and_gradient(theta)[0], rtol=1e-13)
    assert_allclose(gradient, dense.value_and_gradient(theta)[1], rtol=1e-11, atol=1e-12)
    assert_allclose(thin.hessian(theta), dense.hessian(theta), rtol=1e-11, atol=1e-12)
    product = thin.at(theta).product(v)[0]
    assert_allclose(product, dense.hessian(theta) @ v, rtol=1e-10, atol=1e-11)
    # no entry of w changes its sign within a step
    there, here = (thin.value_and_gradient(theta + side * STEP * v) for side in (1, -1))
    assert_allclose((there[0] - here[0]) / (2 * STEP), gradient @ v, rtol=1e-6, atol=1e-7)
    assert_allclose((there[1] - here[1]) / (2 * STEP), product, rtol=1e-5, atol=1e-6)


def _report_program(X, y, S, rho, kappa, s=None):
    """Return ROBLP's optimum and (w+, w-) from the report's program in (w+, w-, b, e), or in (w+, w-, b, e, u)."""
    (N, n), deviations, sigma = X.shape, S if s is None else S - s, S.sum(axis=0)
    own = kappa * rho * deviations
    A = np.hstack([own - y[:, None] * X, own + y[:, None] * X, -y[:, None], -np.eye(N)])
    cost = np.concatenate([np.tile((1 - kappa) * rho * sigma, 2), [0.0], np.ones(N)])
    bounds = [(0, None)] * (2 * n) + [(None, None)] + [(0, None)] * N
    right = -np.ones(N)
    if s is not None:
        above = np.concatenate([s, s, np.zeros(1 + N), [-1.0]])
        A = np.vstack([np.hstack([A, np.full((N, 1), kappa * rho)]), above])
        cost[: 2 * n] = np.tile((1 - kappa) * rho * deviations.sum(axis=0), 2)
        cost, bounds, right = np.append(cost, (1 - kappa) * rho * N), [*bounds, (None, None)], np.append(right, 0.0)
    found = linprog(cost, A, right, bounds=bounds)
    return found.fun, found.x[:n], found.x[n : 2 * n]


@pytest.mark.thin(3)
@pytest.mark.parametrize("kappa", [1.0, 0.4])
@pytest.mark.parametrize("rho", [1.0, 0.5])
def test_program_with_one_more_variable_is_the_dense_program(rho, kappa, regular, make_problem):
    X, y, S, bound = regular
    dense, up, down = _report_program(X, y, S, rho, kappa)
    augmented, *_ = _report_program(X, y, S, rho, kappa, bound.common)
    assert np.any(up + down > 0)
    assert_allclose(up * down, 0.0, atol=1e-12)
    assert augmented == pytest.approx(dense, rel=1e-9)
    problem = make_problem(X, y, _mixed(Hinge(), kappa), bound.scaled(rho))
    for solver in ("highs", "interior_point", "clarabel", "semismooth"):
        found, proof = train(problem, solver, tol=1e-6, max_iter=1000)
        assert proof.gap <= 1e-6
        assert found.objective == pytest.approx(dense, rel=2e-6)


def test_linear_program_holds_the_common_row_once(regular, make_problem):
    X, y, _, bound = regular
    X = sparse.csr_array(np.where(np.abs(X) > 1.5, X, 0.0))
    program = make_problem(X, y, Hinge(), bound, penalty=Lasso(0.1)).view(LinearProgram)
    n_lines = 2 * 2 * 2 * 5 + 5 + 1  # two times z >= |w|, u >= s'z
    assert program.A.nnz <= X.nnz + bound.half.nnz + 4 * 40 + n_lines
    common = make_problem(X, y, Hinge(), Box(0.1), penalty=Lasso(0.1)).view(LinearProgram)
    assert common.A.nnz <= X.nnz + 4 * 40 + n_lines


def _thin(N, n, seed=3):
    """Return sparse rows, labels, and half-widths that are 0 nowhere: a row for all, and sparse ones besides."""
    rng = np.random.default_rng(seed)
    few = rng.normal(size=(N, 5))
    rest = sparse.random_array((N, n - 5), density=0.01, rng=rng, data_sampler=lambda size: rng.normal(size=size))
    y = np.where(few.sum(axis=1) + 0.5 * rng.normal(size=N) > 0, 1, -1)
    own = 0.05 * sparse.random_array((N, n), density=0.01, rng=rng)
    return sparse.csr_array(sparse.hstack([few, rest])), y, rng.uniform(0.0005, 0.003, size=n), sparse.csr_array(own)


# what is factorised has the size of the smaller side squared, or of all features squared: it is small in tall tables only
@pytest.mark.parametrize(
    ("solver", "shape", "options"),
    [
        ("interior_point", (8000, 150), {}),
        pytest.param("semismooth", (8000, 150), {}, marks=pytest.mark.slow),
        ("newton_cg", (800, 1000), {"loss": "logistic"}),
        pytest.param("clarabel", (800, 1000), {}, marks=pytest.mark.slow),
        pytest.param(Highs("highs-ipm"), (1500, 1500), {"penalty": "l1", "alpha": 5.0}, marks=pytest.mark.slow),
    ],
)
def test_sparse_rows_with_dense_uncertainty_stay_sparse_in_every_solver(solver, shape, options):
    X, y, s, own = _thin(*shape)
    model = RobustLinearClassifier(Box(half_widths=s) + Box(), solver=solver, tol=1e-5, **options)
    tracemalloc.start()
    model.fit(X, y, X_std=own)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.gap_ <= 1e-5
    assert peak < 0.6 * 8 * X.shape[0] * X.shape[1]
    # primal and dual objective by the formulas, with the dense table
    X, S, w, is_hinge = X.toarray(), s + own.toarray(), model.coef_[0], model.loss == "hinge"
    u = 1 - y * (X @ w + model.intercept_[0]) + S @ np.abs(w)
    lam = np.abs(model.proof_weights_[0])
    excess = np.maximum(np.abs(X.T @ (y * lam)) - S.T @ lam, 0.0)
    if model.penalty == "l2":
        price, paid = 0.5 * w @ w, 0.5 * excess @ excess
    else:
        price, paid = model.alpha * np.abs(w).sum(), 0.0
        assert np.all(excess <= model.alpha * (1 + 1e-9))
    primal = np.sum(np.maximum(u, 0) if is_hinge else np.logaddexp(0, u - 1)) + price
    dual = np.sum(lam if is_hinge else entr(lam) + entr(1 - lam)) - paid
    assert abs(y @ lam) <= 1e-9 * lam.sum()
    assert np.all(lam <= 1 + 1e-12)
    assert model.objective_ == pytest.approx(primal, rel=1e-12)
    assert model.lower_bound_ == pytest.approx(dual, rel=1e-9)


@pytest.fixture
def pixels(rng):
    """Rows of which most entries are those of one row, in the thousands."""
    background = rng.integers(-2000, 2000, size=60) / 2.0
    X = np.tile(background, (2000, 1))
    drawn = rng.uniform(size=X.shape) < 0.05
    X[drawn] += rng.normal(size=drawn.sum())
    y = np.where((X - background) @ rng.normal(size=60) + 0.3 * rng.normal(size=2000) > 0, 1.0, -1.0)
    return X, y, background


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_around_one_row_are_passed_over_as_sparse_ones(dtype, pixels, make_problem, monkeypatch):
    X, y, background = pixels
    problem = make_problem(X.astype(dtype), y, Hinge(), Ball(0.01), alpha=1.0)
    assert_allclose(problem.rows.offset(), background)
    moved = problem.rows.shifted(problem.rows.offset())
    assert isinstance(moved, SparseRows)
    assert_allclose(moved.X.toarray(), X.astype(dtype).astype(float) - background, atol=1e-12)
    assert not isinstance(problem.rows.shifted(background + 1), SparseRows)
    passes = []
    plain = SparseRows.blocks
    monkeypatch.setattr(SparseRows, "blocks", lambda self: (passes.append(1), plain(self))[1])
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    assert passes
    assert proof.gap <= 1e-6
    w, b = problem.split(found.parameters)
    u = 1 - y * ((X - background) @ w + (b + background @ w)) + 0.01 * np.linalg.norm(w)
    assert found.objective == pytest.approx(
        np.maximum(u, 0).sum() + 0.5 * w @ w, rel=1e-3 if dtype == np.float32 else 1e-8
    )


def test_rows_without_an_intercept_or_structure_are_taken_as_they_are(pixels, make_problem, rng, monkeypatch):
    X, y, _ = pixels
    monkeypatch.setattr(SparseRows, "__init__", None)
    problem = make_problem(X / 1000, y, Hinge(), Ball(0.01), alpha=1.0, fit_intercept=False)
    assert train(problem, tol=1e-6, max_iter=1000)[1].gap <= 1e-6
    assert make_problem(rng.normal(size=X.shape), y, Hinge(), Ball(0.01)).rows.offset() is None
