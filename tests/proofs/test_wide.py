"""More features than rows: low rank is found, nothing of the size of a Hessian is formed, and the optimum is the same."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from holdfast import ChanceConstraint, Ellipsoid, GaussianNoise, GaussianRobustClassifier, RobustLinearClassifier
from holdfast._core.arithmetic import solve_scaled
from holdfast._problems.local_margin_model import LocalMarginModel
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs import pulls
from holdfast._training import training
from holdfast.losses import Hinge

N, D, RANK = 8, 40, 3


@pytest.fixture
def wide(two_classes):
    return two_classes(N, D, separation=0.3)


@pytest.fixture
def factor(rng):
    return rng.normal(size=(D, RANK)) * 10 ** rng.uniform(-2, 1, size=(D, 1))


def noises(factor, rng):
    """Return models under noise of a low rank, with metadata."""
    cov = factor @ factor.T
    own = {"X_factor": factor[None, :, :1] * rng.uniform(0.5, 2, size=(N, 1, 1))}
    return {
        "cov": (GaussianRobustClassifier(GaussianNoise(cov=cov), alpha=1e-2), {}),
        "factor": (GaussianRobustClassifier(GaussianNoise(factor=factor), loss="hinge", alpha=1e-2), {}),
        "shape": (RobustLinearClassifier(Ellipsoid(0.5, shape=cov), loss="squared_hinge", alpha=0.1), {}),
        "chance": (RobustLinearClassifier(ChanceConstraint(0.2, cov=cov), loss="logistic", alpha=1e-2), {}),
        "X_factor": (RobustLinearClassifier(Ellipsoid(0.5), loss="squared_hinge", alpha=0.1), own),
        "tiny factor": (GaussianRobustClassifier(GaussianNoise(factor=1e-13 * factor), alpha=1e-2), {}),
    }


@pytest.mark.parametrize("case", list(noises(np.zeros((D, RANK)), np.random.default_rng(0))))
def test_noise_of_low_rank_is_fitted_in_the_span_of_rows_and_noise(case, wide, factor, rng, monkeypatch):
    model, metadata = noises(factor, rng)[case]
    sizes, reduced = [], training._reduced

    def watched(problem):
        smaller, span = reduced(problem)
        sizes.append(smaller.rows.n_features)
        return smaller, span

    monkeypatch.setattr(training, "_reduced", watched)
    model.fit(*wide, **metadata)
    objective, coef = model.objective_, model.coef_
    assert sizes == [N + (1 if metadata else RANK)]
    monkeypatch.setattr(training, "_reduced", lambda problem: (problem, None))
    model.fit(*wide, **metadata)
    assert model.gap_ <= 1e-6
    assert objective == pytest.approx(model.objective_, rel=2e-6)
    assert_allclose(coef, model.coef_, rtol=0.02, atol=2e-3 * np.abs(coef).max())


def test_a_covariance_has_a_factor_of_as_many_columns_as_its_rank(factor, rng, monkeypatch):
    X = np.zeros((N, D))
    by_row = GaussianNoise().at(X[:2], {"X_cov": np.stack([factor[:, :2] @ factor[:, :2].T, np.zeros((D, D))])}).factors
    assert by_row.shape == (2, D, 2)
    assert_allclose(by_row[0] @ by_row[0].T, factor[:, :2] @ factor[:, :2].T, rtol=1e-9, atol=1e-12)
    # all eigenvalues of a large matrix take ten times as long
    monkeypatch.setattr(np.linalg, "eigh", None)
    found = GaussianNoise(cov=factor @ factor.T).at(X, {}).factor
    assert found.shape == (D, RANK)
    assert_allclose(found @ found.T, factor @ factor.T, rtol=1e-9, atol=1e-12)
    full = factor @ factor.T + np.diag(rng.uniform(0.1, 1, size=D))
    found = GaussianNoise(cov=full).at(X, {}).factor
    assert_allclose(found @ found.T, full, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("form", ["X_std", "shape"])
def test_ellipsoids_of_wide_rows_are_fitted_without_a_hessian(form, loss, wide, rng, monkeypatch):
    X, y = wide
    stds = rng.uniform(0.1, 0.5, size=X.shape)
    uncertainty, metadata = (Ellipsoid(1.0), {"X_std": stds}) if form == "X_std" else (Ellipsoid(shape=stds[0]), {})
    plain = RobustLinearClassifier(uncertainty, loss=loss, solver="semismooth").fit(X, y, **metadata)

    def refused(place):
        raise AssertionError("a Hessian was formed")

    monkeypatch.setattr(LocalMarginModel, "hessian", refused)
    model = RobustLinearClassifier(uncertainty, loss=loss).fit(X, y, **metadata)
    assert model.gap_ <= 1e-6
    assert model.objective_ == pytest.approx(plain.objective_, rel=2e-6)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_nothing_of_the_size_of_a_hessian_is_formed_without_a_penalty_either(loss, wide, rng, monkeypatch):
    X, y = wide
    stds = rng.uniform(0.01, 0.05, size=X.shape)

    def refused(*_):
        raise AssertionError("a matrix of all features was formed")

    for place in ((pulls, "solve_scaled"), (MarginScaleProblem, "hessian_of"), (LocalMarginModel, "hessian")):
        monkeypatch.setattr(*place, refused)
    model = RobustLinearClassifier(Ellipsoid(1.0), loss=loss, penalty=None)
    if loss == "logistic":
        with pytest.raises(ValueError, match="can be separated whatever happens"):
            model.fit(X, y, X_std=stds)
    else:
        assert model.fit(X, y, X_std=stds).gap_ <= 1e-6


@pytest.mark.parametrize("is_repeated", [False, True])
def test_potentials_of_fewer_rows_than_directions_are_those_of_the_matrix_of_all_directions(is_repeated, rng):
    A = rng.normal(size=(N, D)) * 10.0 ** rng.integers(-3, 4, size=D)
    c, room, missed = rng.uniform(size=N), rng.uniform(size=N), rng.normal(size=D) * np.abs(A).sum(axis=0)
    room[0] = 0.0
    A[1] = A[2] if is_repeated else A[1]
    expected = A @ solve_scaled((A * (c * room)[:, None]).T @ A, missed)
    assert_allclose(A @ pulls.Columns(A, c).potential(room, missed), expected, rtol=1e-9, atol=1e-11)


def test_wide_preconditioner_leaves_few_directions_to_find(wide, make_problem, rng):
    X, y = wide
    stds = {"X_std": rng.uniform(0.5, 1.0, size=X.shape)}
    model = RobustLinearClassifier(Ellipsoid(1.0), alpha=0.1).fit(X, y, **stds)
    problem = make_problem(X, y, Hinge(), Ellipsoid(1.0), metadata=stds, alpha=0.1 * N).smoothed(1e-3)
    assert problem.is_wide
    theta = np.append(model.coef_, model.intercept_)
    precondition = problem.at(theta).preconditioner()
    M = np.array([precondition(e) for e in np.eye(D + 1)])
    assert_allclose(M, M.T, atol=1e-9 * np.abs(M).max())
    values = np.linalg.eigvals(M @ problem.hessian(theta)).real
    assert values.max() < 3
    assert np.sum(values < 0.3) <= 1  # the intercept's
