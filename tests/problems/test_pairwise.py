"""The problem of several classes: against the published formulas, sampled noise, its binary parts, and other solvers."""

from itertools import combinations, permutations, product

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.stats import norm

from holdfast import GaussianNoise
from holdfast._core.solution import DualGuess
from holdfast._problems import class_blocks
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import certificate
from holdfast._proofs.pairwise_certificate import _absorbed, _circulating, _flows, _routed
from holdfast._training.training import train
from holdfast.losses import GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge

ROUNDING = 1e-10
SETTINGS = [(0.0, False), (0.0, True), (0.7, True)]
settings = pytest.mark.parametrize(("alpha", "fit_intercept"), SETTINGS)
SIZES = (10, 8, 6)


KINDS = ["number", "std", "cov", "X_std", "X_cov", "X_factor"]
OTHERS = [Log2Hinge(), QuadraticHinge(), TwoPointHinge()]
CASES = [(GaussianHinge(), kind) for kind in KINDS] + list(zip(OTHERS, ("number", "X_std", "X_std"), strict=True))


def _noise(kind):
    """Return noise of one form for 24 rows of 3 features, and the metadata that go with it."""
    rng = np.random.default_rng(5)
    factor = rng.normal(size=(24, 3, 3)) / 2
    cov = factor @ factor.transpose(0, 2, 1)
    return {
        "number": (0.6, {}),
        "std": (GaussianNoise(std=[0.3, 0.6, 0.9]), {}),
        "cov": (GaussianNoise(cov=cov[0]), {}),
        "X_std": (GaussianNoise(), {"X_std": rng.uniform(0.2, 1.0, size=(24, 3))}),
        "X_cov": (GaussianNoise(std=0.8), {"X_cov": cov}),
        "X_factor": (GaussianNoise(std=1.2), {"X_factor": factor}),
    }[kind]


@pytest.fixture(params=KINDS)
def noise(request):
    """Noise of every form, as (noise, metadata)."""
    return _noise(request.param)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]!r}-{case[1]}")
def case(request):
    """The hinge with noise of every form, and every other perspective loss with one, as (loss, noise, metadata)."""
    loss, kind = request.param
    return loss, *_noise(kind)


def _published(X, y, weights, sigma, W, b):
    """Return M-GURU's objective and gradients, row by row and class by class as published."""
    value, by_W, by_b = 0.0, np.zeros_like(W), np.zeros_like(b)
    for x, k, c in zip(X, y, weights, strict=True):
        for other in set(range(len(W))) - {k}:
            d = W[k] - W[other]
            length = np.linalg.norm(d)
            s, u = sigma * length, 1 - d @ x - (b[k] - b[other])
            value += c * (u * norm.cdf(u / s) + s * norm.pdf(u / s))
            push = c * (-x * norm.cdf(u / s) + sigma * norm.pdf(u / s) * d / length)
            by_W[k] += push
            by_W[other] -= push
            by_b[k] -= c * norm.cdf(u / s)
            by_b[other] += c * norm.cdf(u / s)
    return value, by_W, by_b


def _point(problem, rng, size=1.0):
    return problem.join(size * rng.normal(size=(problem.n_classes, problem.rows.n_features)), rng.normal(size=3))


def _solved(problem):
    found, proof = train(problem, tol=1e-9, max_iter=1000)
    assert proof.gap <= 1e-9
    return found, proof


def _pair(problem, k, other):
    """Return the binary problem of two of three classes, class k being the positive one."""
    rows = np.concatenate([problem.members[k], problem.members[other]])
    return MarginScaleProblem(
        problem.rows.take(rows),
        np.where(problem.labels[rows] == k, 1.0, -1.0),
        problem.weights[rows],
        problem.loss,
        problem.sets.take(rows),
        2 * problem.alpha / problem.n_classes,
        problem.fit_intercept,
    )


# Value, gradient, Hessian


def test_objective_and_gradient_are_the_published_sums(make_pairwise, several_classes, rng):
    X, y = several_classes(SIZES)
    weights = rng.uniform(0.5, 2, 24)
    problem = make_pairwise(X, y, GaussianHinge(), 0.7, weights=weights)
    for size in (0.1, 1.0, 5.0):
        W, b = size * rng.normal(size=(3, 3)), rng.normal(size=3)
        value, gradient = problem.value_and_gradient(problem.join(W, b))
        exact, by_W, by_b = _published(X, y, weights, 0.7, W, b)
        assert value == pytest.approx(exact, rel=1e-12)
        assert_allclose(problem.split(gradient)[0], by_W, rtol=1e-11, atol=1e-11)
        assert_allclose(problem.split(gradient)[1], by_b, rtol=1e-11, atol=1e-11)


@settings
def test_gradient_and_hessian_are_derivatives(case, alpha, fit_intercept, make_pairwise, several_classes, rng):
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    weights = rng.uniform(0.5, 2, 24)
    problem = make_pairwise(
        X, y, loss, kind, metadata=metadata, weights=weights, alpha=alpha, fit_intercept=fit_intercept
    )
    theta, step = _point(problem, rng), 1e-6
    gradient, H = problem.value_and_gradient(theta)[1], problem.hessian(theta)
    assert H.shape == (problem.n_parameters, problem.n_parameters)
    assert_allclose(H, H.T, atol=1e-12 * np.abs(H).max())
    for j, e in enumerate(step * np.eye(problem.n_parameters)):
        (above, g_above), (below, g_below) = (problem.value_and_gradient(theta + s * e) for s in (1, -1))
        assert gradient[j] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)
        assert_allclose(H[j], (g_above - g_below) / (2 * step), rtol=1e-5, atol=1e-6 * np.abs(H).max())


@settings
def test_problem_is_the_sum_of_the_binary_problems_of_all_pairs(
    case, alpha, fit_intercept, make_pairwise, several_classes, rng
):
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    problem = make_pairwise(X, y, loss, kind, metadata=metadata, alpha=alpha, fit_intercept=fit_intercept)
    theta = _point(problem, rng)
    table = theta.reshape(3, -1)
    H = np.zeros((3, table.shape[1], 3, table.shape[1]))
    value, gradient = 0.0, np.zeros_like(table)
    for k, other in combinations(range(3), 2):
        pair, difference = _pair(problem, k, other), table[k] - table[other]
        part, slope = pair.value_and_gradient(difference)
        value += part
        gradient[k] += slope
        gradient[other] -= slope
        bend = pair.hessian(difference)
        for i, j in permutations((k, other)):
            H[i, :, i] += bend
            H[i, :, j] -= bend
    found, slope = problem.value_and_gradient(theta)
    assert found == pytest.approx(value, rel=1e-12)
    assert_allclose(slope, gradient.ravel(), rtol=1e-10, atol=1e-11)
    assert_allclose(problem.hessian(theta), H.reshape(len(theta), -1), rtol=1e-9, atol=1e-10)


@settings
def test_for_centred_weights_the_ridge_is_alpha_times_their_squares(
    alpha, fit_intercept, make_pairwise, several_classes, rng
):
    X, y = several_classes(SIZES)
    options = {"fit_intercept": fit_intercept}
    W = rng.normal(size=(3, 3))
    W -= W.mean(axis=0)
    values = []
    for ridge in (alpha, 0.0):
        problem = make_pairwise(X, y, GaussianHinge(), alpha=ridge, **options)
        values.append(problem.value_and_gradient(problem.join(W, np.zeros(3)))[0])
    assert values[0] - values[1] == pytest.approx(alpha * np.sum(W**2), abs=1e-11)


def test_objective_is_the_mean_sum_of_hinges_under_sampled_noise(make_pairwise, several_classes, noise, rng):
    kind, metadata = noise
    X, y = several_classes(SIZES)
    problem = make_pairwise(X, y, GaussianHinge(), kind, metadata=metadata)
    W, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    value = problem.value_and_gradient(problem.join(W, b))[0]
    factor = metadata.get("X_factor", None)
    if "X_std" in metadata:
        factor = metadata["X_std"][:, :, None] * np.eye(3)
    if "X_cov" in metadata:
        factor = np.linalg.cholesky(metadata["X_cov"])
    if factor is None:
        cov = kind.cov if not np.isscalar(kind) and kind.cov is not None else None
        std = kind if np.isscalar(kind) else kind.std
        factor = np.linalg.cholesky(cov)[None] if cov is not None else (np.broadcast_to(std, 3) * np.eye(3))[None]
    elif kind.std is not None:
        factor = kind.std * factor
    noisy = X + np.einsum("nij,mnj->mni", np.broadcast_to(factor, (24, 3, 3)), rng.normal(size=(20_000, 24, 3)))
    scores = noisy @ W.T + b
    own = np.take_along_axis(scores, np.broadcast_to(y[:, None], (20_000, 24, 1)), axis=2)
    hinges = np.maximum(0, 1 - own + scores) * (np.arange(3) != y[:, None])
    sums = hinges.sum(axis=(1, 2))
    assert abs(sums.mean() - value) <= 4 * sums.std() / np.sqrt(len(sums))


def test_without_weights_the_objective_is_smooth(perspective, make_pairwise, several_classes, rng):
    X, y = several_classes((14, 11, 9, 6))
    c = rng.uniform(0.5, 2, 40)
    problem = make_pairwise(X, y, perspective, weights=c)
    expected = np.array([c @ X - 4 * c[y == k] @ X[y == k] for k in range(4)])
    # the two-point hinge's slope in t is 5e-9 where u / t is clipped
    for size, accuracy in ((0.0, 1e-12), (1e-300, 1e-7), (1e-150, 1e-7)):
        value, gradient = problem.value_and_gradient(problem.join(size * rng.normal(size=(4, 3)), np.zeros(4)))
        assert value == pytest.approx(3 * c.sum(), rel=1e-14)
        assert_allclose(problem.split(gradient)[0], expected, rtol=accuracy)
        assert_allclose(problem.split(gradient)[1], [c.sum() - 4 * c[y == k].sum() for k in range(4)], rtol=1e-12)


def test_two_classes_of_equal_weights_among_others_are_no_singularity(perspective, make_pairwise, several_classes, rng):
    X, y = several_classes()
    problem = make_pairwise(X, y, perspective)
    W = rng.normal(size=(3, 3))
    W[2], b = W[1], np.array([0.3, -0.2, 0.1])
    theta, step = problem.join(W, b), 1e-6
    gradient, curvature = problem.value_and_gradient(theta)[1], problem.hessian(theta)
    assert np.all(np.isfinite(curvature))
    for j, e in enumerate(step * np.eye(len(theta))):
        rise = problem.value_and_gradient(theta + e)[0] - problem.value_and_gradient(theta - e)[0]
        assert gradient[j] == pytest.approx(rise / (2 * step), rel=1e-5, abs=1e-5)


@settings
def test_one_vector_added_to_all_classes_changes_nothing(
    case, alpha, fit_intercept, make_pairwise, several_classes, rng
):
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    problem = make_pairwise(X, y, loss, kind, metadata=metadata, alpha=alpha, fit_intercept=fit_intercept)
    W, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    value, gradient = problem.value_and_gradient(problem.join(W, b))
    moved = problem.value_and_gradient(problem.join(W + rng.normal(size=3), b + 3.0))
    assert moved[0] == pytest.approx(value, rel=1e-12)
    assert_allclose(moved[1], gradient, rtol=1e-9, atol=1e-9)
    assert_allclose(gradient.reshape(3, -1).sum(axis=0), 0, atol=1e-11)
    shift = np.tile(rng.normal(size=problem.n_parameters_per_class), 3)
    assert_allclose(problem.hessian(problem.join(W, b)) @ shift, 0, atol=1e-10)


def test_no_covariance_of_smaller_eigenvalues_is_worse_than_the_ball(make_pairwise, several_classes, rng):
    """Of all covariances with eigenvalues up to sigma^2 the multiple of the identity costs most; a trace bound is weaker."""
    X, y = several_classes(SIZES)
    W, b, sigma = rng.normal(size=(3, 3)), rng.normal(size=3), 0.8
    costs = lambda noise: (p := make_pairwise(X, y, GaussianHinge(), noise)).value_and_gradient(p.join(W, b))[0]
    worst = costs(sigma)
    for _ in range(300):
        root = rng.normal(size=(3, rng.integers(1, 4)))
        cov = root @ root.T
        spectral, trace = (sigma**2 * cov / size for size in (np.linalg.norm(cov, 2), np.trace(cov)))
        assert costs(GaussianNoise(cov=spectral)) <= worst * (1 + 1e-12)
        assert costs(GaussianNoise(cov=trace)) < worst


# Two classes


@pytest.mark.thin(2)
@settings
def test_two_classes_are_the_binary_problem(case, alpha, fit_intercept, make_pairwise, make_problem, two_classes, rng):
    loss, kind, metadata = case
    X, signs = two_classes(24, 3, positives=13)
    weights = rng.uniform(0.5, 2, 24)
    options = {"metadata": metadata, "weights": weights, "alpha": alpha, "fit_intercept": fit_intercept}
    several = make_pairwise(X, (signs > 0).astype(int), loss, kind, **options)
    binary = make_problem(X, signs, loss, kind, **options)
    table = rng.normal(size=(2, several.n_parameters_per_class))
    value, gradient = several.value_and_gradient(table.ravel())
    exact, slope = binary.value_and_gradient(table[1] - table[0])
    assert value == pytest.approx(exact, rel=1e-13)
    assert_allclose(gradient, np.append(-slope, slope), rtol=1e-10, atol=1e-11)
    assert_allclose(several.hessian(table.ravel())[-len(slope) :, -len(slope) :], binary.hessian(table[1] - table[0]))
    (found, proof), (single, proved) = _solved(several), _solved(binary)
    assert proof.objective == pytest.approx(proved.objective, rel=1e-8)
    halves = found.parameters.reshape(2, -1)
    assert_allclose(halves[1] - halves[0], single.parameters, rtol=1e-3, atol=1e-4)
    W, b = several.split(found.parameters + 0.02 * rng.normal(size=several.n_parameters))
    ours, theirs = certificate(several, W, b), certificate(binary, W[1] - W[0], b[1] - b[0])
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-12)
    assert ours.lower_bound == pytest.approx(theirs.lower_bound, rel=1e-6)
    assert ours.lower_bound < ours.objective * (1 - 1e-6)


# The certificate


@pytest.mark.thin(2)
@settings
def test_optimum_lies_between_bound_and_objective_from_any_point(
    case, alpha, fit_intercept, make_pairwise, several_classes, rng
):
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    weights = rng.uniform(0.5, 2, 24)
    problem = make_pairwise(
        X, y, loss, kind, metadata=metadata, weights=weights, alpha=alpha, fit_intercept=fit_intercept
    )
    best = _solved(problem)[1]
    for _ in range(4):
        W, b = rng.normal(size=(3, 3)) * 10 ** rng.uniform(-2, 1), rng.normal(size=3) * fit_intercept
        proof = certificate(problem, W, b)
        assert proof.objective == pytest.approx(problem.value_and_gradient(problem.join(W, b))[0], rel=1e-12)
        assert proof.lower_bound <= best.objective * (1 + ROUNDING)
        assert proof.objective >= best.lower_bound * (1 - ROUNDING)
        assert proof.gap == pytest.approx((proof.objective - proof.lower_bound) / proof.objective, abs=1e-12)


def _check_bounds(make_pairwise, seed):
    """Draw a problem, harsh in sizes, scales, imbalance and noise, and hold the bounds from many points against objectives."""
    rng = np.random.default_rng(seed)
    C, d = int(rng.integers(2, 6)), int(rng.integers(1, 7))
    n = int(rng.integers(C + 1, 50))
    y = np.append(np.arange(C), rng.choice(C, size=n - C, p=rng.dirichlet(np.full(C, rng.choice([0.5, 5])))))
    X = (rng.normal(size=(n, d)) + rng.choice([0, 1, 5]) * rng.normal(size=(C, d))[y]) * 10 ** rng.uniform(-3, 3)
    unit = np.sqrt(np.mean(X**2))
    S = unit * 10 ** rng.uniform(-2, 1.2) * rng.uniform(0.1, 1, size=(n, d))
    S[1:] *= rng.uniform(size=(n - 1, 1)) > rng.choice([0, 0.2])
    noise, metadata = [
        (GaussianNoise(std=S[0]), {}),
        (GaussianNoise(std=S[0, 0]), {}),
        (GaussianNoise(), {"X_std": S}),
        (GaussianNoise(std=S[0] * (np.arange(d) != 1)), {}),
    ][seed % 4]
    problem = make_pairwise(
        X,
        y,
        [GaussianHinge(), *OTHERS][seed // 4 % 4],
        noise,
        metadata=metadata,
        weights=rng.uniform(0.2, 3, n),
        alpha=float(rng.choice([0.0, 1e-3, 1.0])) * unit**2,
        fit_intercept=bool(rng.integers(2)),
    )
    found, best = train(problem, tol=1e-6, max_iter=100)
    W, b = problem.split(found.parameters)
    for error in 10 ** rng.uniform(-4, 1, size=8):
        V = W + error * (np.linalg.norm(W) + 0.1 / unit) * rng.normal(size=W.shape)
        proof = certificate(problem, V, (b + error * rng.normal(size=C)) * problem.fit_intercept)
        assert proof.lower_bound <= best.objective * (1 + 1e-9) + 1e-9 * problem.floor
        assert best.lower_bound <= proof.objective * (1 + 1e-9) + 1e-9 * problem.floor


@pytest.mark.thin(6)
@pytest.mark.parametrize("seed", range(8))
def test_no_bound_exceeds_an_objective(seed, make_pairwise):
    _check_bounds(make_pairwise, seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 30))
def test_no_bound_exceeds_an_objective_on_many_problems(first, make_pairwise):
    for seed in range(first, first + 30):
        _check_bounds(make_pairwise, seed)


@pytest.mark.thin(2)
@settings
def test_any_dual_guess_gives_a_valid_bound(case, alpha, fit_intercept, make_pairwise, several_classes, rng):
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    problem = make_pairwise(X, y, loss, kind, metadata=metadata, alpha=alpha, fit_intercept=fit_intercept)
    best = _solved(problem)[1].objective
    bounds = []
    for _ in range(6):
        W = rng.normal(size=(3, 3))
        table = problem.scale_table(W)
        scale = table[y] if problem.sets.is_common else table
        guess = DualGuess(rng.uniform(size=(24, 3)) ** rng.choice([0.2, 1, 5]), W, scale)
        proof = certificate(problem, rng.normal(size=(3, 3)), np.zeros(3), guess)
        bounds.append(proof.lower_bound)
    assert max(bounds) <= best * (1 + ROUNDING)
    assert max(bounds) > 0 or not problem.sets.is_isotropic


@settings
def test_dual_weights_of_a_proof_satisfy_every_constraint(
    case, alpha, fit_intercept, make_pairwise, several_classes, rng
):
    """Weak duality written out: for all W the pulls are no more than the budgets bear, and the bound is their sum."""
    loss, kind, metadata = case
    X, y = several_classes(SIZES)
    c = rng.uniform(0.5, 2, 24)
    problem = make_pairwise(X, y, loss, kind, metadata=metadata, weights=c, alpha=alpha, fit_intercept=fit_intercept)
    start = problem.split(_point(problem, rng, 0.3))
    found, best = _solved(problem)
    for proof in (certificate(problem, *start), best):
        pulls, own = proof.dual, np.arange(3) == y[:, None]
        a = np.where(own, 0.0, -pulls / c[:, None])
        assert np.all((a >= 0) & (a <= 1 + 1e-12))
        assert_allclose(pulls.sum(axis=1), 0, atol=1e-12)
        if fit_intercept:
            assert_allclose(pulls.sum(axis=0), 0, atol=1e-11)
        V = pulls.T @ X
        for W in (
            *rng.normal(size=(50, 3, 3)),
            problem.split(found.parameters)[0],
            *(problem.split(found.parameters)[0] + 0.1 * rng.normal(size=(20, 3, 3))),
        ):
            table = problem.scale_table(W)
            t = table[y] if problem.sets.is_common else table
            borne = np.sum(np.where(own, 0.0, c[:, None] * loss.dual_scale(np.clip(a, 0, 1)) * t))
            values = np.sum(c[:, None] * a)
            ridge = alpha * np.sum(np.square(W - W.mean(axis=0)))
            if alpha == 0:
                assert np.vdot(V, W) <= borne * (1 + 1e-9)
                assert values == pytest.approx(proof.lower_bound, rel=1e-12)
            assert proof.lower_bound <= values - np.vdot(V, W) + borne + ridge + 1e-9


@settings
def test_bound_is_second_order_in_the_error_of_the_weights(
    dual_loss, alpha, fit_intercept, make_pairwise, several_classes, rng
):
    """Halving the error quarters the gap."""
    X, y = several_classes((30, 25, 20), 4, separation=1.0)
    problem = make_pairwise(X, y, dual_loss, 0.7, alpha=alpha, fit_intercept=fit_intercept)
    found, best = _solved(problem)
    W, b = problem.split(found.parameters)
    factors = []
    for _ in range(9):
        error = rng.normal(size=W.shape) * np.linalg.norm(W) / 3
        gaps = [best.objective - certificate(problem, W + e * error, b).lower_bound for e in (5e-3, 2.5e-3)]
        assert gaps[0] <= 0.05 * best.objective
        factors.append(gaps[0] / gaps[1])
    assert 3.3 < np.median(factors) < 4.7


def test_common_factor_and_intercepts_do_not_matter_to_the_bound(dual_loss, make_pairwise, several_classes, rng):
    X, y = several_classes((30, 25, 20), 4, separation=1.0)
    problem = make_pairwise(X, y, dual_loss, 0.7)
    found, best = _solved(problem)
    W, b = problem.split(found.parameters)
    for r in (0.5, 3.0):
        proof = certificate(problem, r * W + rng.normal(size=4), b + rng.normal(size=3))
        assert proof.lower_bound >= best.objective * (1 - 1e-6)


def test_scaling_features_and_noise_together_changes_nothing(perspective, make_pairwise, several_classes):
    X, y = several_classes()
    found, best = _solved(make_pairwise(X, y, perspective, 0.7))
    W = found.parameters.reshape(3, -1)
    for k in (1e-3, 1e3):
        scaled, proof = _solved(make_pairwise(k * X, y, perspective, 0.7 * k))
        assert proof.objective == pytest.approx(best.objective, rel=1e-8)
        assert proof.lower_bound == pytest.approx(best.lower_bound, rel=1e-8)
        difference = scaled.parameters.reshape(3, -1) * np.append(np.full(3, k), 1.0) - W
        assert_allclose(difference - difference.mean(axis=0), 0, atol=2e-4)


@pytest.mark.parametrize("with_budgets", [3, 1, 0])
def test_flows_between_classes_add_up_to_the_pulls(with_budgets, make_pairwise, several_classes, noise, rng):
    kind, metadata = noise
    X, y = several_classes(SIZES)
    for alpha in (0.0, 0.5):
        problem = make_pairwise(X, y, GaussianHinge(), kind, metadata=metadata, alpha=alpha)
        guess = problem.dual_guess(_point(problem, rng))
        pulls = guess.slopes * (np.arange(3) != y[:, None])
        V = rng.normal(size=(3, 3))
        V -= V.mean(axis=0)
        # budgets of all pairs, of some, and of none
        budgets = rng.uniform(0.1, 1, size=(24, 3)) * (np.arange(3) < with_budgets)
        flows = _flows(problem, guess, V, budgets, pulls, _absorbed(problem, guess, budgets))
        total = np.zeros((3, 3))
        for (k, other), flow in flows.items():
            total[k] += flow
            total[other] -= flow
        assert_allclose(total, V, atol=1e-12)


def test_routed_flows_are_orthogonal_and_the_cheapest_of_these(rng):
    pairs = list(combinations(range(4), 2))
    incidence = np.zeros((6, 4))
    for p, (k, other) in enumerate(pairs):
        incidence[p, k], incidence[p, other] = 1.0, -1.0
    unit = rng.normal(size=(6, 3))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    missing = rng.normal(size=(4, 3))
    missing -= missing.mean(axis=0)
    stiffness = rng.uniform(0.5, 2, 6)
    flows = _routed(missing, incidence, stiffness, np.ones(6), unit)
    assert_allclose(incidence.T @ flows, missing, atol=1e-5)
    assert_allclose(np.einsum("pj,pj->p", flows, unit), 0, atol=1e-12)
    other = cp.Variable((6, 3))
    constraints = [incidence.T @ other == missing, cp.sum(cp.multiply(other, unit), axis=1) == 0]
    cheapest = cp.Problem(cp.Minimize(cp.sum(cp.multiply(1 / stiffness[:, None], cp.square(other)))), constraints)
    cheapest.solve(solver=cp.CLARABEL)
    assert_allclose(flows, other.value, atol=1e-4)


def test_circulation_keeps_what_is_balanced_and_balances_the_rest(rng):
    for _ in range(100):
        C = int(rng.integers(2, 7))
        flow = rng.uniform(size=(C, C)) ** rng.choice([1, 5]) * (1 - np.eye(C))
        flow *= rng.uniform(size=(C, C)) < rng.choice([0.6, 1.0])
        kept = flow * (factors := _circulating(flow))
        assert np.all((factors >= 0) & (factors <= 1))
        assert_allclose(kept.sum(axis=1), kept.sum(axis=0), atol=1e-14 * C)
        # round trips, and a tour of all classes that nothing comes back on
        balanced = rng.choice([0, 1]) * (flow + flow.T) + np.roll(np.eye(C), 1, axis=1)
        assert_allclose(_circulating(balanced)[balanced > 0], 1, rtol=1e-14)
        nearly = balanced * (1 + 1e-6 * rng.uniform(size=(C, C)))
        assert np.sum(nearly * (1 - _circulating(nearly))) <= 1e-5 * nearly.sum()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_bound_near_the_optimum_is_tight_with_an_exact_feature(fit_intercept, make_pairwise, several_classes, rng):
    X, y = several_classes((30, 25, 20), separation=1.0)
    S = rng.uniform(0.2, 0.8, size=X.shape) * [1, 1, 0]
    for noise, metadata, tightness in (
        (GaussianNoise(std=[0.5, 0.3, 0.0]), {}, 1.0),
        (GaussianNoise(), {"X_std": S}, 200.0),  # rows of their own noise are proved to first order only
    ):
        problem = make_pairwise(X, y, GaussianHinge(), noise, metadata=metadata, fit_intercept=fit_intercept)
        found, best = _solved(problem)
        W, b = problem.split(found.parameters)
        for error in (1e-3, 1e-4):
            proof = certificate(problem, W * (1 + error * rng.uniform(-1, 1, size=W.shape)), b)
            assert proof.lower_bound <= best.objective * (1 + 1e-12)
            assert proof.gap <= tightness * error


def test_estimate_of_the_gap_foretells_the_proof(dual_loss, make_pairwise, several_classes, rng):
    """Close to the optimum, where a solver asks whether to stop, the cheap estimate is no less than a share of the gap."""
    X, y = several_classes((30, 25, 20), 4, separation=1.0)
    problem = make_pairwise(X, y, dual_loss, 0.7, fit_intercept=False)
    theta = _solved(problem)[0].parameters
    for _ in range(5):
        near = theta + 1e-4 * rng.normal(size=theta.shape) * np.abs(theta).max()
        gap = certificate(problem, *problem.split(near)).gap
        estimate = problem.suboptimality(problem.evaluate(near))
        assert 0.3 * gap <= estimate <= 30 * gap


# Optima by other software


@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(3))
def test_optimum_agrees_with_a_general_optimiser_on_the_published_formula(seed, make_pairwise):
    rng = np.random.default_rng(seed)
    C, d = (3, 2) if seed % 2 else (4, 3)
    y = np.arange(28) % C
    X = rng.normal(size=(28, d)) + rng.normal(size=(C, d))[y]
    weights, sigma = rng.uniform(0.5, 2, 28), float(rng.choice([0.3, 0.6]))
    problem = make_pairwise(X, y, GaussianHinge(), sigma, weights=weights)

    def objective(theta):
        W, b = theta[: C * d].reshape(C, d), theta[C * d :]
        value, by_W, by_b = _published(X, y, weights, sigma, W, b)
        return value, np.concatenate([by_W.ravel(), by_b])

    options = {"maxiter": 3000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    start = np.concatenate([[X[y == k].mean(axis=0) for k in range(C)]]).ravel()
    found = minimize(objective, np.append(start, np.zeros(C)), jac=True, method="L-BFGS-B", options=options)
    proof = _solved(problem)[1]
    assert proof.lower_bound <= found.fun * (1 + 1e-9)
    assert proof.objective == pytest.approx(found.fun, rel=1e-6)


@settings
def test_optimum_agrees_with_a_conic_solver(alpha, fit_intercept, make_pairwise, several_classes, rng):
    X, y = several_classes(SIZES)
    c, S = rng.uniform(0.5, 2, 24), rng.uniform(0.2, 1.0, size=(24, 3))
    problem = make_pairwise(
        X,
        y,
        TwoPointHinge(),
        GaussianNoise(),
        metadata={"X_std": S},
        weights=c,
        alpha=alpha,
        fit_intercept=fit_intercept,
    )
    W, b = cp.Variable((3, 3)), cp.Variable(3)
    terms = [alpha / 3 * cp.sum_squares(W[k] - W[other]) for k, other in combinations(range(3), 2)]
    for i, k in enumerate(y):
        for other in set(range(3)) - {k}:
            d = W[k] - W[other]
            u = 1 - d @ X[i] - ((b[k] - b[other]) if fit_intercept else 0)
            terms.append(c[i] / 2 * (u + cp.norm(cp.hstack([u, cp.multiply(S[i], d)]))))
    optimum = cp.Problem(cp.Minimize(cp.sum(terms))).solve(solver=cp.CLARABEL)
    proof = _solved(problem)[1]
    assert proof.objective == pytest.approx(optimum, rel=1e-6)
    assert proof.lower_bound <= optimum * (1 + 1e-6)


# Collapse


@pytest.fixture
def crowded():
    """Three classes of 40, 15 and 5 rows."""
    y = np.repeat([0, 1, 2], [40, 15, 5])
    return np.array([[0, 0], [2, 0], [0, 2.0]])[y] + np.random.default_rng(0).normal(size=(60, 2)), y


def test_collapsed_classes_are_proved_at_large_noise(perspective, make_pairwise, crowded, rng):
    X, y = crowded
    problem = make_pairwise(X, y, perspective, 30.0)
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    W, b = problem.split(found.parameters)
    assert proof.gap <= 1e-6
    assert_allclose(W - W[0], 0, atol=1e-12)
    # without weights the intercepts of the best constant prediction are whole numbers: here 2, 1 and 0
    handicaps = np.array(list(product(range(-3, 4), repeat=3)))
    costs = [
        sum(n * np.maximum(1 - b[:, k] + b[:, other], 0) for other in range(3) if other != k)
        for b, (k, n) in product([handicaps], enumerate((40, 15, 5)))
    ]
    assert proof.objective == pytest.approx(np.sum(costs, axis=0).min(), rel=1e-6)
    for _ in range(200):
        point = problem.join(
            rng.normal(size=(3, 2)) * 10 ** rng.uniform(-5, 0), b + rng.normal(size=3) * 10 ** rng.uniform(-5, 0)
        )
        assert proof.lower_bound <= problem.value_and_gradient(point)[0] * (1 + 1e-12)


def test_a_single_collapsed_pair_is_proved(make_pairwise, rng):
    """Two like classes of unequal size, far from a third: the pair collapses and the rest does not."""
    y = np.repeat([0, 1, 2], [30, 12, 25])
    X = np.array([[0, 0, 0], [0.2, 0, 0], [6.0, 3, 0]])[y] + rng.normal(size=(67, 3))
    problem = make_pairwise(X, y, GaussianHinge(), 1.0)
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    W, b = problem.split(found.parameters)
    assert proof.gap <= 1e-6
    assert_array_equal(W[0], W[1])
    assert np.linalg.norm(W[0] - W[2]) > 0.1
    for _ in range(300):
        size = 10 ** rng.uniform(-5, 0)
        point = problem.join(W + size * rng.normal(size=(3, 3)), b + size * rng.normal(size=3))
        assert proof.lower_bound <= problem.value_and_gradient(point)[0] * (1 + 1e-12)


def test_negligible_differences_of_classes_are_tidied_away_and_others_not(make_pairwise, several_classes, rng):
    X, y = several_classes((10, 5, 8, 7))
    problem = make_pairwise(X, y, GaussianHinge(), 0.5)
    W, b = rng.normal(size=(4, 3)), rng.normal(size=4)
    assert_array_equal(problem.tidied(problem.join(W, b), 1e-7), problem.join(W, b))
    W[1] = W[0] + 1e-8 * rng.normal(size=3)
    tidy, intercepts = problem.split(problem.tidied(problem.join(W, b), 1e-7))
    assert_array_equal(tidy[1], tidy[0])
    assert_allclose(tidy[0], (10 * W[0] + 5 * W[1]) / 15, rtol=1e-14)
    assert_array_equal(tidy[2:], W[2:])
    assert_array_equal(intercepts, b)


# What solvers are told


def test_metric_is_made_of_the_diagonal_blocks_of_the_hessian(make_pairwise, several_classes, noise, rng):
    kind, metadata = noise
    X, y = several_classes(SIZES)
    for fit_intercept in (False, True):
        problem = make_pairwise(X, y, GaussianHinge(), kind, metadata=metadata, fit_intercept=fit_intercept, alpha=0.3)
        theta = _point(problem, rng)
        p = problem.n_parameters_per_class
        H = problem.hessian(theta).reshape(3, p, 3, p)
        assert_allclose(problem.metric(theta), [H[k, :, k] for k in range(3)], rtol=1e-12)


@pytest.mark.parametrize("kind", [0.6, GaussianNoise(std=[0.3, 0.6, 0.9])])
def test_metric_of_smoothed_noise_is_made_of_the_blocks_too(make_pairwise, several_classes, kind, rng):
    problem = make_pairwise(*several_classes(SIZES), GaussianHinge(), kind, fit_intercept=True).smoothed(0.4)
    p = problem.n_parameters_per_class
    W, b = problem.split(_point(problem, rng))
    # where paths start, and where two classes have the same weights
    for weights in (W, 0 * W, W[[0, 0, 2]]):
        theta = problem.join(weights, b)
        H = problem.hessian(theta).reshape(3, p, 3, p)
        assert_allclose(problem.metric(theta), [H[k, :, k] for k in range(3)], rtol=1e-12, atol=1e-14)


def test_metric_of_many_rows_is_near_the_blocks(make_pairwise, rng, monkeypatch):
    X, y = rng.normal(size=(900, 3)), rng.integers(0, 3, 900)
    problem = make_pairwise(X, y, GaussianHinge(), 0.2, fit_intercept=True, alpha=0.3)
    theta = _point(problem, rng, 3.0)
    exact = problem.metric(theta)
    monkeypatch.setattr(class_blocks, "MANY_ENTRIES", 0)
    near = problem.metric(theta)
    assert not np.array_equal(near, exact)
    for one, other in zip(near, exact, strict=True):
        scale = np.sqrt(np.diag(other))
        assert_allclose(one / np.outer(scale, scale), other / np.outer(scale, scale), atol=2e-3)


def test_thinned_problem_keeps_the_weight_of_every_class(make_pairwise, several_classes, rng):
    X, y = several_classes((600, 400, 30))
    weights = rng.uniform(0.5, 2, 1030) * (rng.uniform(size=1030) < 0.8)
    S = rng.uniform(0.1, 1, size=X.shape)
    problem = make_pairwise(X, y, GaussianHinge(), GaussianNoise(), metadata={"X_std": S}, weights=weights)
    thin = problem.thinned(100)
    assert 70 <= thin.rows.n_samples <= 130
    assert_allclose(thin.class_weights(), problem.class_weights(), rtol=1e-12)
    theta = _point(problem, rng, 0.3)
    assert thin.value_and_gradient(theta)[0] == pytest.approx(problem.value_and_gradient(theta)[0], rel=0.3)
    assert_array_equal(thin.n_classes, 3)


def test_no_step_within_the_limit_makes_two_classes_the_same(make_pairwise, several_classes, noise, rng):
    kind, metadata = noise
    X, y = several_classes(SIZES)
    problem = make_pairwise(X, y, GaussianHinge(), kind, metadata=metadata)
    for _ in range(20):
        theta, step = _point(problem, rng), _point(problem, rng, 10 ** rng.uniform(-1, 1))
        limit = problem.longest_step(theta, step)
        assert np.all(problem.scales(theta + limit * step) >= 0.0999 * problem.scales(theta))
    # a step straight towards the meeting of two classes ends before it
    W, b = problem.split(theta)
    ahead = np.zeros_like(W)
    ahead[0] = W[1] - W[0]
    W[2] = W[0] + 100 * (W[0] - W[1])
    assert problem.longest_step(problem.join(W, b), problem.join(ahead, 0 * b)) == pytest.approx(0.9)


def test_sparse_rows_give_the_same_problem(make_pairwise, several_classes, noise, rng):
    kind, metadata = noise
    X, y = several_classes(SIZES)
    X[np.abs(X) < 0.5] = 0
    dense, thin = (
        make_pairwise(rows, y, GaussianHinge(), kind, metadata=metadata) for rows in (X, sparse.csr_array(X))
    )
    theta = _solved(dense)[0].parameters + 0.02 * rng.normal(size=dense.n_parameters)
    for ours, theirs in zip(thin.value_and_gradient(theta), dense.value_and_gradient(theta), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert_allclose(thin.hessian(theta), dense.hessian(theta), rtol=1e-10, atol=1e-10)
    assert certificate(thin, *thin.split(theta)).lower_bound == pytest.approx(
        certificate(dense, *dense.split(theta)).lower_bound, rel=1e-9
    )


def test_optimal_weights_stay_within_the_norm_bound(perspective, make_pairwise, several_classes):
    X, y = several_classes()
    for alpha in (1e-2, 1.0, 100.0):
        problem = make_pairwise(X, y, perspective, alpha=alpha)
        found, proof = _solved(problem)
        W = problem.split(found.parameters)[0]
        assert np.linalg.norm(W - W.mean(axis=0)) <= proof.norm_bound < np.inf
    assert make_pairwise(X, y, perspective).norm_bound() == np.inf
