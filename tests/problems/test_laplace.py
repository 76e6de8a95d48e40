"""A vote with Laplace laws: derivatives, convexity, steps against brute force, solvers against each other, and the proof."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar

from holdfast._core.exceptions import ProofError
from holdfast._core.solution import Status
from holdfast._data.outputs import DenseOutputs
from holdfast._data.stump_outputs import StumpOutputs
from holdfast._problems.laplace import LaplaceProblem, conjugate
from holdfast._problems.laplace_coordinates import best_steps
from holdfast._problems.laplace_tail import TailProblem, TailRows
from holdfast._proofs.laplace import dual_bound, laplace_certificate
from holdfast._proofs.laplace_tail import ground
from holdfast._training.laplace import OTHERS, train_laplace
from holdfast._training.laplace_tail import train_tail
from holdfast.losses import ExpVote, LogVote, laplace_kl
from holdfast.losses.laplace_law import laplace_density, laplace_tail
from holdfast.losses.votes import VoteLoss
from holdfast.solvers import CoordinateDescent, Newton, QuasiNewton

FINE = {"xatol": 1e-11}
LOSSES = [LogVote(), ExpVote()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


class HalfExp(VoteLoss):
    """2 exp(v / 2) - 1 + [...]: another loss that is concave in exp(v)."""

    def value(self, v):
        return 2 * np.exp(v / 2)

    def slope(self, v):
        return np.exp(v / 2)

    def bend(self, v):
        return 0.5 * np.exp(v / 2)

    def dual_value(self, a):
        return 2 * a - 2 * a * np.log(np.where(a > 0, a, 1.0))


@pytest.fixture
def make(rng):
    """A function that makes a problem of uniform rows or of stumps."""

    def problem(loss, *, n=60, d=4, c=0.5, stumps=False, fixed=False, plain=False):
        if stumps:
            outputs = StumpOutputs(rng.integers(0, 4, size=(d, n)), [3] * d, has_constant=True)
        else:
            outputs = DenseOutputs(rng.uniform(-1, 1, size=(n, d)) * (1 if plain else 3))
        X, d = outputs.dense(slice(None)), outputs.n_learners
        signs = np.where(X @ rng.normal(size=d) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
        weights = c * (np.ones(n) if plain else rng.uniform(0.5, 2.0, size=n))
        prior = np.ones(d) if plain else rng.uniform(0.3, 2.0, size=d)
        offsets = np.zeros(n) if plain else 0.1 * rng.normal(size=n)
        scales = rng.uniform(0.2, 0.8, size=d) / outputs.largest if fixed else None
        return LaplaceProblem(outputs, signs, weights, loss, prior, offsets, scales)

    return problem


def general_optimum(problem):
    """Return the optimum by a general optimiser, scales on a logarithmic axis."""
    d = problem.n_learners

    def of_logs(v):
        theta = v.copy()
        theta[d:] = np.exp(v[d:])
        value, gradient = problem.value_and_gradient(theta)
        gradient = np.nan_to_num(gradient) * np.where(np.arange(len(v)) < d, 1.0, theta)
        return min(value, 1e12), gradient

    start = problem.start()
    start[d:] = np.log(start[d:])
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(of_logs, start, jac=True, method="L-BFGS-B", options=options).fun


@every_loss
@pytest.mark.parametrize("stumps", [False, True])
def test_gradient_and_hessian_are_derivatives(loss, stumps, make, rng):
    problem = make(loss, stumps=stumps)
    theta, h = problem.start(), 1e-6
    theta[: problem.n_learners] = 0.2 * rng.normal(size=problem.n_learners)
    _, gradient = problem.value_and_gradient(theta)
    steps = h * np.eye(len(theta))
    ends = [[problem.value_and_gradient(theta + sign * step) for sign in (1, -1)] for step in steps]
    assert_allclose(gradient, [(up[0] - down[0]) / (2 * h) for up, down in ends], rtol=1e-5, atol=1e-6)
    slopes = np.array([(up[1] - down[1]) / (2 * h) for up, down in ends])
    H = problem.hessian(theta)
    assert_allclose(H, slopes, rtol=1e-5, atol=1e-6 * np.abs(H).max())
    assert_allclose(problem.metric(theta), np.diag(H), rtol=0.5)


@every_loss
def test_objective_is_divergence_plus_loss_and_jointly_convex(loss, make, rng):
    problem = make(loss)
    d, X = problem.n_learners, problem.outputs.dense(slice(None))
    points = [
        np.concatenate([rng.normal(size=d), rng.uniform(0.02, 0.98, size=d) * problem.limits]) for _ in range(300)
    ]
    for one, other in zip(points[::2], points[1::2], strict=True):
        values = [problem.value_and_gradient(point)[0] for point in (one, other, 0.5 * (one + other))]
        assert values[2] <= 0.5 * (values[0] + values[1]) * (1 + 1e-12) + 1e-9
    mu, s = points[0][:d], points[0][d:]
    v = -np.log(1 - np.square(X * s)).sum(axis=1) - problem.offsets - problem.signs * (X @ mu)
    direct = laplace_kl(mu, s, prior_scale=problem.prior_scales) + problem.weights @ loss.value(v)
    assert problem.value_and_gradient(points[0])[0] == pytest.approx(direct, rel=1e-12)


def test_losses_are_above_the_share_of_voters_that_err(rng):
    for loss in LOSSES:
        x, s = rng.uniform(-1, 1, size=(200, 5)), rng.uniform(0.05, 0.95, size=5)
        z = rng.normal(0, 2, size=200)
        v = -np.log(1 - np.square(x * s)).sum(axis=1) - z
        assert np.all(loss.value(v) >= laplace_tail(z, s * np.abs(x)) - 1e-12)
        draws = np.exp(-(z[:1] + (x[:1] * s * rng.laplace(size=(400_000, 5))).sum(axis=1)))
        if v[0] < 1 and np.all(s * np.abs(x[0]) < 0.5):  # else the mean of draws has no variance
            assert np.log(draws.mean()) == pytest.approx(v[0], abs=0.05)


def test_dual_values_are_the_minimum_by_brute_force(rng):
    v = np.linspace(-40, 40, 80_001)
    for loss in [*LOSSES, HalfExp()]:
        for a in rng.uniform(0.01, 0.99, size=10) * min(loss.largest_slope, 2.0):
            assert loss.dual_value(np.array(a)) == pytest.approx(np.min(loss.value(v) - a * v), abs=1e-5)


def majoriser(t, u, plus, minus, reach):
    return np.abs(u + t) + np.exp(-np.abs(u + t)) + (plus * np.exp(-reach * t) + minus * np.exp(reach * t)) / reach


@pytest.mark.parametrize("reach", [1.0, 3.0])
def test_steps_are_the_minimum_of_the_majoriser_in_both_branches(reach, rng):
    u, plus, minus = rng.normal(0, 2, size=400), 10 ** rng.uniform(-4, 3, size=400), 10 ** rng.uniform(-4, 3, size=400)
    plus[::10], minus[1::10] = 0.0, 0.0
    plus[2::10] = minus[2::10] = 0.0
    steps = best_steps(u, plus, minus, reach)
    sides = np.log(np.maximum(plus, 1e-300)) + 2 * u >= np.log(np.maximum(minus, 1e-300))
    assert 100 < sides.sum() < 300
    for t, *rest in zip(steps, u, plus, minus, strict=True):
        least = min(
            minimize_scalar(
                majoriser, args=(*rest, reach), bounds=(t - w, t + w), method="bounded", options={"xatol": 1e-11}
            ).fun
            for w in (0.1, 3.0, 30.0)
        )
        assert majoriser(t, *rest, reach) <= least * (1 + 1e-9) + 1e-12


@every_loss
@pytest.mark.parametrize("rule", ["cyclic", "greedy", "parallel"])
def test_every_step_lowers_the_objective_and_by_what_it_promised(loss, rule, make, rng):
    for fixed in (True, False):
        problem = make(loss, c=0.3, fixed=fixed)
        theta = problem.start()
        theta[: problem.n_learners] = rng.normal(size=problem.n_learners)
        place = problem.coordinates(theta)
        for k in range(12):
            before, gains = place.value, place.gains()
            assert np.all(gains >= -1e-10 * before)
            if rule == "parallel":
                place.move_all()
            else:
                block = int(np.argmax(gains)) if rule == "greedy" else k % place.n_blocks
                place.move(block)
                assert place.value <= before - gains[block] + 1e-10 * before
            assert place.value <= before * (1 + 1e-12)
            place.settle()
            assert place.value <= before * (1 + 1e-12)
        assert place.value == pytest.approx(problem.value_and_gradient(place.parameters)[0], rel=1e-10)


@every_loss
def test_all_means_at_once_do_not_overshoot_where_learners_are_alike(loss, rng):
    X, y = np.repeat(rng.uniform(0.5, 1.0, size=(40, 1)), 40, axis=1), np.where(np.arange(40) < 36, 1.0, -1.0)
    problem = LaplaceProblem(DenseOutputs(X), y, np.full(40, 3.0), loss, np.ones(40), np.zeros(40), np.full(40, 0.2))
    place = problem.coordinates(problem.start())
    for _ in range(20):
        before = place.value
        place.move_all()
        assert place.value <= before * (1 + 1e-12)


@every_loss
def test_solvers_a_general_optimiser_and_the_dual_agree(loss, make):
    for c, stumps in ((0.01, False), (0.2, False), (1.0, True), (30.0, False)):
        problem = make(loss, c=c, stumps=stumps)
        optimum = general_optimum(problem)
        solvers = [Newton(), QuasiNewton()]
        solvers += [CoordinateDescent(rule) for rule in ("cyclic", "greedy", "parallel")] if c < 0.1 else []
        for solver in solvers:
            problem.trace.clear()
            found, proof = train_laplace(problem, solver, tol=1e-7, max_iter=5000, start=problem.start())
            assert found.objective == pytest.approx(optimum, rel=1e-6)
            assert 0 <= proof.gap < 1e-5
            assert proof.lower_bound <= optimum * (1 + 1e-9)
            path = np.array(problem.trace)
            assert len(path) > 1
            assert np.all(np.diff(path) <= 1e-12 * path[:-1])


def test_a_solver_that_is_content_too_early_goes_on(make, monkeypatch):
    monkeypatch.setattr(Newton, "minimise", _hasty(Newton.minimise))
    problem = make(LogVote(), c=1.0)
    found, proof = train_laplace(problem, "newton", tol=1e-8, max_iter=100, start=problem.start())
    assert proof.gap <= 1e-8
    assert found.status is Status.SOLVED
    assert 5 < found.n_iter <= 100
    found, proof = train_laplace(problem, "newton", tol=1e-8, max_iter=5, start=problem.start())
    assert proof.gap > 1e-8
    assert found.status is Status.ITERATION_LIMIT
    assert found.n_iter == 5


def _hasty(minimise):
    """Return a solver's method that takes any tolerance for a rougher one."""

    def method(self, problem, start, *, tol, **options):
        return minimise(self, problem, start, tol=1e7 * tol, **options)

    return method


def test_a_loss_of_ones_own_is_trained_and_proved_too(make):
    problem = make(HalfExp())
    found, proof = train_laplace(problem, tol=1e-6, max_iter=100, start=problem.start())
    assert proof.gap < 1e-6
    assert found.objective == pytest.approx(general_optimum(problem), rel=1e-6)


@every_loss
@pytest.mark.parametrize("fixed", [False, True])
def test_no_dual_bound_is_above_the_optimum(loss, fixed, make, rng):
    for c in (0.03, 0.5, 5.0):
        problem = make(loss, c=c, fixed=fixed, stumps=not fixed)
        found, proof = train_laplace(problem, tol=1e-8, max_iter=300, start=problem.start())
        logs = problem.logs(found.parameters)
        _, s = problem.split(found.parameters)
        for spread in (0.0, 0.01, 0.5, 3.0):
            q = loss.slope(logs) * np.exp(spread * rng.normal(size=len(logs)))
            q = np.minimum(q, 0.999 * loss.largest_slope)
            start = s * (np.ones_like(s) if fixed else rng.uniform(0.2, 1.0, size=len(s)))
            bound = dual_bound(problem, q, start)
            assert bound <= proof.objective * (1 + 1e-9)
            if spread == 0.0:
                assert bound >= proof.objective * (1 - 1e-7)


@every_loss
def test_slack_is_no_less_than_what_a_scale_gains_up_to_the_end_of_its_range(loss, make, rng):
    problem = make(loss, n=30, d=3)
    grid = np.concatenate([np.geomspace(1e-6, 0.5, 400), 1 - np.geomspace(0.5, 1e-14, 400)])[:, None] * problem.ends
    for size in (1e-14, 1e-4, 1.0):
        slopes, steep = size * rng.uniform(size=30), rng.uniform(size=3)

        def worth(s, slopes=slopes, steep=steep):
            left = 1 - np.square(problem.outputs.X * s)
            return s * conjugate(steep) / problem.prior_scales - np.log(s) - slopes @ np.log(left)

        lowest = np.min([worth(s) for s in grid], axis=0)
        for share in (0.01, 0.5, 1 - 1e-9):
            s = share * problem.ends
            pull, _ = problem.outputs.stated_slopes(slopes, s)
            slack = problem.slack(s, s * (conjugate(steep) / problem.prior_scales + pull) - 1)
            assert np.all(worth(s) - slack <= lowest + 1e-12 * np.abs(lowest))
            if size < 1e-10 and share > 0.9:
                assert np.all(slack <= 2e-9)


@pytest.mark.parametrize(
    ("loss", "n", "seed"), [(LogVote(), 300, 26), (ExpVote(), 300, 26), (LogVote(), 6000, 26), (LogVote(), 300, 31)]
)
def test_rows_far_out_that_push_scales_to_the_end_of_their_range_leave_no_gap(loss, n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    signs = np.where(X @ rng.normal(size=8) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    X *= np.exp(2 * rng.normal(size=n))[:, None]
    ones, weights = np.ones(8), np.full(n, 100.0 if seed == 31 else 10.0)
    problem = LaplaceProblem(DenseOutputs(X / np.abs(X).max(axis=0)), signs, weights, loss, ones, np.zeros(n))
    found, proof = train_laplace(problem, "newton" if seed == 31 else None, tol=1e-10, max_iter=500)
    assert np.max(found.parameters[8:]) > 1 - 1e-5
    assert proof.gap <= 1e-10


@pytest.mark.parametrize(("loss", "d", "c"), [(LogVote(), 8, 10.0), (ExpVote(), 8, 10.0), (LogVote(), 60, 100.0)])
def test_a_scale_next_to_the_end_of_its_range_holds_up_no_other_parameter(loss, d, c):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, d))
    signs = np.where(X @ rng.normal(size=d) + 0.5 * rng.normal(size=300) > 0, 1.0, -1.0)
    X *= np.where(rng.uniform(size=(300, 1)) < 0.1, 100.0, 1.0)
    outputs = DenseOutputs(X / np.abs(X).max(axis=0))
    for solver, most in (("newton", 120), ("quasi_newton", 700)):
        problem = LaplaceProblem(outputs, signs, np.full(300, c), loss, np.ones(d), np.zeros(300))
        found, proof = train_laplace(problem, solver, tol=1e-6, max_iter=most)
        assert proof.gap <= 1e-6
        assert found.status is Status.SOLVED


def test_where_newton_does_not_do_another_solver_goes_on(make, monkeypatch):
    monkeypatch.setitem(OTHERS, "newton", (QuasiNewton, 3))
    problem = make(LogVote(), n=300, d=8, c=10.0)
    for most in (3, 10, 300):
        problem.trace.clear()
        found, proof = train_laplace(problem, tol=1e-6, max_iter=most)
        assert (found.solver, found.n_iter <= most) == ("newton" if most == 3 else "quasi_newton", True)
        assert np.all(np.diff(problem.trace) <= 0)
        assert proof.gap == pytest.approx((proof.objective - proof.lower_bound) / proof.objective)
    assert found.status is Status.SOLVED
    assert found.n_iter > 3
    assert proof.lower_bound <= problem.value_and_gradient(found.parameters)[0]


def test_gap_is_of_second_order(make, rng):
    problem = make(LogVote())
    found, _ = train_laplace(problem, tol=1e-9, max_iter=300, start=problem.start())
    push, gaps = np.zeros(problem.n_parameters), []
    push[: problem.n_learners] = rng.normal(size=problem.n_learners)
    for size in (1e-4, 1e-5):
        gaps.append(laplace_certificate(problem, found.parameters + size * push).gap)
    assert gaps[1] < 0.03 * gaps[0]


def test_a_gap_of_large_means_is_of_second_order_too(make, rng):
    # where exp(-|mean| / scale) is all but 0, a pull that is off by any amount exceeds its limit
    problem = make(LogVote(), c=30.0)
    found, _ = train_laplace(problem, tol=1e-9, max_iter=300, start=problem.start())
    means, scales = problem.split(found.parameters)
    assert np.max(np.abs(means) / scales) > 15
    push = np.zeros(problem.n_parameters)
    push[: problem.n_learners] = scales * rng.normal(size=problem.n_learners)
    gaps = [laplace_certificate(problem, found.parameters + size * push).gap for size in (1e-3, 1e-4)]
    assert gaps[1] < 0.03 * gaps[0] < 1e-6


@pytest.mark.parametrize("hidden", [False, True])
def test_many_rows_are_fitted_from_some_of_them(hidden, make):
    """The rows that a sample sees may be like the others, or not at all."""
    problem = make(LogVote(), n=8000, d=21, plain=True)
    if hidden:
        problem.signs[::10] *= -1.0
    assert problem.is_long
    found, proof = train_laplace(problem, tol=1e-6, max_iter=100)
    exact, _ = train_laplace(problem, "newton", tol=1e-9, max_iter=100, start=problem.start())
    assert found.solver == "quasi_newton"
    assert proof.gap <= 1e-6
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)
    assert np.all(np.diff(problem.trace) <= 0)


def test_where_steps_from_a_sample_do_not_do_the_fit_goes_on_with_all_rows(make, monkeypatch):
    monkeypatch.setitem(OTHERS, "quasi_newton", (Newton, 2))
    found, proof = train_laplace(make(LogVote(), n=8000, d=21, plain=True), tol=1e-6, max_iter=100)
    assert found.solver == "newton"
    assert found.status is Status.SOLVED
    assert 2 < found.n_iter < 20
    assert proof.gap <= 1e-6


def test_a_prior_is_a_change_of_units(make, rng):
    problem = make(LogVote())
    d, tau = problem.n_learners, problem.prior_scales
    plain = LaplaceProblem(
        DenseOutputs(problem.outputs.X * tau),
        problem.signs,
        problem.weights,
        problem.loss,
        np.ones(d),
        problem.offsets,
    )
    theta = problem.start()
    theta[:d] = rng.normal(size=d)
    assert problem.value_and_gradient(theta)[0] == pytest.approx(
        plain.value_and_gradient(theta / np.concatenate([tau, tau]))[0], rel=1e-9
    )


def test_a_proof_that_contradicts_itself_is_raised(make, monkeypatch):
    problem = make(LogVote())
    found, proof = train_laplace(problem, tol=1e-8, max_iter=300, start=problem.start())
    monkeypatch.setattr("holdfast._proofs.laplace.dual_bound", lambda *_: 2 * proof.objective)
    with pytest.raises(ProofError, match="no parameters can go below"):
        laplace_certificate(problem, found.parameters)
    monkeypatch.undo()
    monkeypatch.setattr(LaplaceProblem, "value_and_gradient", lambda *_: (1.1 * proof.objective, None))
    with pytest.raises(ProofError, match="saw the objective"):
        laplace_certificate(problem, found.parameters)


@pytest.fixture
def draw_rows(rng):
    """A function that draws rows of several lengths for the tail."""

    def draw(c, n=30, d=3, flipped=0.1):
        X = rng.standard_normal((n, d)) * 10 ** rng.uniform(-0.5, 0.5, size=(n, 1))
        y = np.where(X[:, 0] + 0.2 * rng.standard_normal(n) > 0, 1.0, -1.0)
        y[rng.uniform(size=n) < flipped] *= -1
        return TailRows(y[:, None] * X, np.full(n, c))

    return draw


def test_tail_losses_are_convex_bounds_with_their_derivatives(draw_rows):
    rows = draw_rows(1.0)
    for z in np.linspace(-3, 5, 30):
        losses, slopes, bends = rows.losses(np.full(30, z))
        assert np.all(losses >= laplace_tail(np.full(30, z), np.abs(rows.A)) - 1e-12)
        ends = [rows.losses(np.full(30, z + h)) for h in (1e-6, -1e-6)]
        assert_allclose(-slopes, (ends[0][0] - ends[1][0]) / 2e-6, atol=1e-6)
        assert np.all(bends >= 0)
    problem, u, h = TailProblem(rows, 0.4), np.array([0.5, -0.1, 0.3]), 1e-6
    steps = h * np.eye(3)
    ends = [[problem.value_and_gradient(u + sign * step) for sign in (1, -1)] for step in steps]
    assert_allclose(problem.value_and_gradient(u)[1], [(up[0] - down[0]) / (2 * h) for up, down in ends], atol=1e-6)
    assert_allclose(problem.hessian(u), [(up[1] - down[1]) / (2 * h) for up, down in ends], atol=1e-4)


@pytest.mark.parametrize("c", [0.03, 0.5, 5.0, 100.0])
def test_tail_is_proved_for_all_scales_and_no_search_goes_below(c, draw_rows, rng):
    rows = draw_rows(c)
    fit = train_tail(rows, None, tol=1e-6, max_iter=200)
    assert 0 <= fit.proof.gap <= 1e-6
    assert fit.n_sigma_solves <= 30
    assert np.all(np.diff(fit.trace) <= 1e-12 * fit.proof.objective)

    def objective(v):
        u, sigma = v[:-1], np.exp(min(v[-1], 0.0))
        z = rows.A @ u
        tails = np.where(z >= 0, laplace_tail(z, np.abs(rows.A)), 0.5 - rows.peaks * z)
        return laplace_kl(sigma * u, np.full(3, sigma)) + rows.weights @ tails

    assert objective(np.append(fit.means, np.log(fit.sigma))) == pytest.approx(fit.proof.objective, rel=1e-9)
    for _ in range(2):
        start = np.append(rng.standard_normal(3) * 10 ** rng.uniform(-1, 1), rng.uniform(-4, 0))
        found = minimize(
            objective, start, method="Nelder-Mead", options={"maxiter": 250, "fatol": 1e-10, "xatol": 1e-8}
        )
        assert found.fun >= fit.proof.lower_bound * (1 - 1e-9)


STEEP = [(10, 2, 30, 17), (30, 5, 100, 11), (40, 20, 300, 2), (60, 200, 10, 0), (100, 500, 10, 0)]


@pytest.mark.parametrize("sigma", [None, 0.03])
@pytest.mark.parametrize(("n", "d", "c", "seed"), STEEP)
def test_means_that_start_where_rows_have_no_curvature_are_found(n, d, c, seed, sigma):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    signed = X * np.where(X @ rng.normal(size=d) > 0, 1.0, -1.0)[:, None]
    found = train_tail(TailRows(signed, np.full(n, float(c))), sigma, tol=1e-6, max_iter=100)
    assert found.proof.gap < 1e-6
    assert found.solution.status is Status.SOLVED
    assert np.all(np.diff(found.trace) < 0)
    if sigma:
        exact = train_tail(TailRows(signed, np.full(n, float(c))), sigma, "quasi_newton", tol=1e-6, max_iter=1000)
        assert found.proof.objective == pytest.approx(exact.proof.objective, rel=1e-6)
        assert found.solution.n_iter < 30


@pytest.mark.parametrize("seed", [2, 18, 51])
def test_a_tiny_scale_is_proved_too(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 5)) * np.where(rng.random((100, 1)) < 0.1, 10 ** rng.uniform(1, 4), 1)
    signs = np.where(X @ rng.normal(size=5) + 0.5 * rng.normal(size=100) > 0, 1.0, -1.0)
    found = train_tail(TailRows(signs[:, None] * X, np.full(100, 100.0)), 1e-4, "newton", tol=1e-6, max_iter=100)
    assert found.proof.gap < 1e-6


def test_means_that_newton_does_not_find_are_found_by_another_solver(draw_rows, monkeypatch):
    rows = draw_rows(5.0)
    exact = train_tail(rows, None, tol=1e-6, max_iter=100)
    monkeypatch.setattr("holdfast._training.laplace_tail.PATIENCE", 1)
    found = train_tail(rows, None, tol=1e-6, max_iter=100)
    assert found.proof.gap < 1e-6
    assert np.all(np.diff(found.trace) < 0)
    alone = train_tail(rows, 0.1, tol=1e-6, max_iter=100)
    assert alone.proof.gap < 1e-6
    assert alone.solution.solver == "quasi_newton"
    cut = train_tail(rows, 0.1, tol=1e-6, max_iter=2)
    assert (cut.solution.n_iter, cut.solution.status) == (2, Status.ITERATION_LIMIT)
    assert found.proof.objective == pytest.approx(exact.proof.objective)


def test_bounds_of_each_scale_and_of_none_are_below_its_optimum(draw_rows):
    rows = draw_rows(2.0, flipped=0.3)
    for sigma in (1.0, 0.1, 1e-4):
        problem = TailProblem(rows, sigma)
        found = Newton().minimise(problem, np.zeros(3), tol=1e-12, max_iter=300)
        value = problem.value_and_gradient(found.parameters)[0]
        assert problem.lower_bound(found.parameters) == pytest.approx(value, rel=1e-7)
        for u in (np.zeros(3), found.parameters + 0.3, 5 * found.parameters):
            assert problem.lower_bound(u) <= value * (1 + 1e-10)
            assert ground(rows, u) <= rows.weights @ rows.losses(rows.A @ found.parameters)[0] * (1 + 1e-9)
    assert ground(rows, found.parameters) > 0


def test_rows_of_zeros_cost_what_they_cost_and_densities_are_the_laws(draw_rows):
    rows = draw_rows(1.0)
    with_zeros = TailRows(np.vstack([rows.A, np.zeros((2, 3))]), np.ones(32))
    assert with_zeros.lost == 2.0
    one, other = (train_tail(some, None, tol=1e-6, max_iter=100) for some in (rows, with_zeros))
    assert other.proof.objective == pytest.approx(one.proof.objective + 2, rel=1e-6)
    assert_allclose(rows.peaks, laplace_density(np.zeros(30), np.abs(rows.A)))
