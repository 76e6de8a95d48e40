"""Every uncertainty set, bound to 5 rows of 3 features, and the same sets smoothed: what the protocol promises."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import nnls
from scipy.special import gamma
from scipy.stats import kstest
from sklearn.base import clone

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox
from holdfast._core.arithmetic import dense
from holdfast._data import rows_of
from holdfast._training.training import train
from holdfast.losses import ExpectedLogistic, TwoPointHinge
from holdfast.uncertainty.ellipsoids import CommonEllipsoid

STEP = 1e-5


@pytest.fixture
def directions(rng):
    return rng.normal(size=(20, 3)) * 10 ** rng.uniform(-2, 2, size=(20, 1))


def _by_row(found, n=5):
    """Return one entry for each row, also of a set that is common to all."""
    return np.broadcast_to(found, (n, *np.shape(found)[1:]))


def _supports(bound, w):
    return np.broadcast_to(bound.support(w), 5)


def _best_split(bound, target, budgets):
    """Return how near to `target` a sum of points of budgets_i S_i comes: the nearest point of the hull of more and more sums
    of maximizers, until no other sum of points is nearer."""
    corners = np.array([bound.adjoint(v, budgets) for v in (target, -target)]) - target
    for _ in range(500):
        # shares >= 0 that make |corners' shares|^2 + (1 - sum of shares)^2 least are those of the nearest point, but for size
        shares = nnls(np.vstack([corners.T, np.ones(len(corners))]), np.append(np.zeros(len(target)), 1.0))[0]
        nearest = shares @ corners / shares.sum()
        distance = np.linalg.norm(nearest)
        if distance < 1e-9:
            return distance
        corner = bound.adjoint(-nearest / distance, budgets) - target
        if corner @ nearest >= distance**2 - 1e-8 * distance:
            return distance
        corners = np.vstack([corners[shares > 0], corner])
    raise AssertionError("The nearest sum of points was not found.")


def test_maximizer_is_feasible(smooth_bounds, directions):
    for smooth_bound in smooth_bounds:
        for w in directions[:5]:
            points = _by_row(smooth_bound.maximizer(w))
            assert np.all(smooth_bound.contains(points))


def test_maximizer_attains_the_support(bounds, directions):
    for bound in bounds:
        for w in directions:
            assert_allclose(_by_row(bound.maximizer(w)) @ w, _supports(bound, w), rtol=1e-12)


def test_no_sampled_point_beats_the_support(smooth_bounds, directions, rng):
    for smooth_bound in smooth_bounds:
        points = smooth_bound.sample(rng, 400, 3)
        for w in directions:
            assert np.all(points @ w <= smooth_bound.support(w) * (1 + 1e-12))


def test_samples_belong_to_the_set_and_reach_its_border(bounds, rng):
    for bound in bounds:
        points = bound.sample(rng, 2000, 3)
        assert all(np.all(bound.contains(_by_row(draw))) for draw in points[:8])
        w = rng.normal(size=3)
        assert np.all((points @ w).max(axis=0) >= 0.8 * bound.support(w))


def test_point_beyond_the_maximizer_is_outside(bounds, directions):
    for bound in bounds:
        for w in directions[:8]:
            beyond = bound.contains(1.001 * _by_row(bound.maximizer(w)))
            assert not np.any(beyond & (_supports(bound, w) > 0))


def test_support_is_sublinear(bounds, directions):
    for bound in bounds:
        for v, w in zip(directions[:10], directions[10:], strict=True):
            assert np.all(bound.support(v + w) <= (bound.support(v) + bound.support(w)) * (1 + 1e-12))
            assert_allclose(bound.support(3.5 * w), 3.5 * bound.support(w), rtol=1e-13)


def test_support_is_convex(smooth_bounds, directions):
    for smooth_bound in smooth_bounds:
        for v, w in zip(directions[:10], directions[10:], strict=True):
            chord = 0.5 * (smooth_bound.support(v) + smooth_bound.support(w))
            assert np.all(smooth_bound.support(0.5 * (v + w)) <= chord * (1 + 1e-12))


def test_symmetry_is_what_the_set_says(bounds, directions):
    for bound in bounds:
        same = all(np.allclose(bound.support(-w), bound.support(w), rtol=1e-12) for w in directions)
        assert same == bound.is_symmetric


def test_isotropy_is_what_the_set_says(bounds, directions):
    for bound in bounds:
        ratios = [bound.support(w) / np.linalg.norm(w) for w in directions]
        assert (np.max(np.ptp(ratios, axis=0)) < 1e-12) == bound.is_isotropic


def test_support_has_one_number_for_all_rows_only_where_it_is_common(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        assert np.shape(smooth_bound.support(rng.normal(size=3))) == (() if smooth_bound.is_common else (5,))


def test_maximizer_is_the_gradient_of_the_support(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w = rng.normal(size=3)
        moves = STEP * np.eye(3)
        change = [(_supports(smooth_bound, w + e) - _supports(smooth_bound, w - e)) / (2 * STEP) for e in moves]
        assert_allclose(_by_row(smooth_bound.maximizer(w)), np.transpose(change), rtol=0, atol=1e-8)


def test_maximizer_of_some_rows_is_that_part_of_all(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w = rng.normal(size=3)
        part = slice(1, 4)
        some = np.broadcast_to(smooth_bound.maximizer(w, part), (3, 3))
        assert_allclose(some, _by_row(smooth_bound.maximizer(w))[part], rtol=1e-14)


def test_everything_is_zero_and_silent_at_zero_weights(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        for w in (np.zeros(3), np.full(3, 1e-300)):
            assert np.all(np.isfinite(smooth_bound.support(w)))
            assert np.all(smooth_bound.contains(_by_row(smooth_bound.maximizer(w))))
        if smooth_bound.is_symmetric or smooth_bound.is_sublinear:
            assert_allclose(smooth_bound.maximizer(np.zeros(3)), 0, atol=0)
            assert_allclose(smooth_bound.adjoint(np.zeros(3), rng.uniform(size=5)), 0, atol=0)


def test_maximizer_is_a_subgradient_also_at_ties_and_zeros(smooth_bounds, directions):
    for smooth_bound in smooth_bounds:
        for w in np.array([[1.0, 1, 1], [1, -1, 0], [0, 0, 2], [2, 2, -1], [0, 0, 0]]):
            points, t = _by_row(smooth_bound.maximizer(w)), _supports(smooth_bound, w)
            for v in directions:
                tangent = t + points @ (v - w)
                assert np.all(_supports(smooth_bound, v) >= tangent - 1e-12 * (1 + np.abs(tangent)))


def test_smooth_sets_alone_have_a_continuous_maximizer(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        jumps = []
        for w in np.array([[1.0, 1, 1], [1, -1, 0], [2, 0, 1], [2, 2, -1], [0, 1, -1], [0, 0, 2]]):
            small = 1e-9 * rng.normal(size=3)
            noisy = _supports(smooth_bound, w) > 1e-6
            jump = _by_row(smooth_bound.maximizer(w + small)) - _by_row(smooth_bound.maximizer(w - small))
            jumps.append(np.abs(jump[noisy]).max(initial=0.0))
        # the kinks of a set that is not symmetric may all be where its support begins to rise
        if smooth_bound.is_smooth or smooth_bound.is_symmetric:
            assert (max(jumps) < 1e-6) == smooth_bound.is_smooth


def test_smoothed_support_is_above_by_no_more_than_the_smoothing(bounds, directions):
    for bound in bounds:
        for delta in (1e-6, 0.3, 50.0):
            smoothed = bound.smoothed(delta)
            assert smoothed.is_smooth
            assert not smoothed.is_sublinear
            assert_allclose(smoothed.support(np.zeros(3)), delta, rtol=1e-13)
            for w in directions:
                t, T = bound.support(w), smoothed.support(w)
                assert np.all(t * (1 - 1e-14) <= T)
                assert np.all((t + delta) * (1 + 1e-14) >= T)


def test_gradients_of_the_smoothed_support_are_points_of_the_set(bounds, directions):
    for bound in bounds:
        for delta in (1e-6, 0.3, 50.0):
            for w in directions[:5]:
                assert np.all(bound.contains(_by_row(bound.smoothed(delta).maximizer(w))))


def test_weights_snapped_to_kinks_keep_the_gradient_of_a_set_with_kinks(bounds, rng):
    for bound in bounds:
        delta = 1e-3
        traces = delta * rng.normal(size=3)
        for w in (np.array([2.0, 0, 0]) + traces, np.array([1.0, -1, 1]) + traces, rng.normal(size=3)):
            snapped_to_kinks = bound.snapped_to_kinks(w, delta, 0.1)
            if bound.is_smooth:
                assert np.array_equal(snapped_to_kinks, w)
            else:
                # what the smoothing takes off weights is about delta over the length of the set
                length = float(np.min(bound.stretch(np.eye(3))))
                assert np.all(np.abs(snapped_to_kinks - w) <= 2 * max(np.abs(traces).max(), delta / length))
                before = bound.smoothed(delta).maximizer(w)
                assert_allclose(bound.smoothed(0.1 * delta).maximizer(snapped_to_kinks), before, rtol=0, atol=1e-3)


def test_tiny_weights_keep_their_relative_accuracy(bounds, rng):
    for bound in bounds:
        w = rng.normal(size=3)
        for scale in (1e-200, 1e200):
            assert_allclose(bound.support(scale * w), scale * bound.support(w), rtol=1e-13)
            assert_allclose(bound.maximizer(scale * w), bound.maximizer(w), rtol=1e-12, atol=1e-15)


def test_adjoint_is_the_sum_of_the_maximizers(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, r = rng.normal(size=3), rng.normal(size=5)
        assert_allclose(smooth_bound.adjoint(w, r), r @ _by_row(smooth_bound.maximizer(w)), rtol=1e-12, atol=1e-13)


def test_curvature_is_the_sum_of_hessians_and_of_squared_gradients(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w = rng.normal(size=3)
        first, second = rng.uniform(0.1, 2, size=5), rng.uniform(0.1, 2, size=5)
        moves = STEP * np.eye(3)
        bend = np.array(
            [_by_row(smooth_bound.maximizer(w + e)) - _by_row(smooth_bound.maximizer(w - e)) for e in moves]
        ) / (2 * STEP)
        points = _by_row(smooth_bound.maximizer(w))
        explicit = np.einsum("n,ani->ai", first, bend) + np.einsum("n,ni,nj->ij", second, points, points)
        found = smooth_bound.curvature(w, first, second)
        assert_allclose(found, explicit, rtol=0, atol=1e-7)
        assert_allclose(found, found.T, rtol=1e-12, atol=1e-14)


def test_sums_of_hessians_of_a_common_set_are_those_of_its_curvature(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        if not smooth_bound.is_common:
            continue
        W, firsts = rng.normal(size=(4, 3)) * [[1.0], [1e-3], [0.0], [1.0]], rng.uniform(0.1, 2, size=(2, 4))
        bends = [smooth_bound.curvature(w, np.ones(()), np.zeros(())) for w in W]
        assert_allclose(
            smooth_bound.bends_at(W, firsts), np.einsum("km,mij->kij", firsts, bends), rtol=1e-11, atol=1e-11
        )


def test_directional_is_the_slope_of_the_support_along_a_direction(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, v = rng.normal(size=(2, 3))
        change = (_supports(smooth_bound, w + STEP * v) - _supports(smooth_bound, w - STEP * v)) / (2 * STEP)
        found = smooth_bound.directional(w, v)
        assert found.shape == (() if smooth_bound.is_common else (5,))
        assert_allclose(np.broadcast_to(found, 5), change, rtol=0, atol=1e-8)
        assert_allclose(np.broadcast_to(found, 5), _by_row(smooth_bound.maximizer(w)) @ v, rtol=1e-12, atol=1e-13)


def test_curvature_product_is_the_curvature_times_a_vector(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, v = rng.normal(size=(2, 3))
        first = rng.uniform(0.1, 2, size=5)
        found = smooth_bound.curvature_product(w, first, v)
        assert_allclose(found, smooth_bound.curvature(w, first, np.zeros(5)) @ v, rtol=1e-11, atol=1e-12)
        change = smooth_bound.adjoint(w + STEP * v, first) - smooth_bound.adjoint(w - STEP * v, first)
        assert_allclose(found, change / (2 * STEP), rtol=1e-8, atol=1e-7)


def test_smoothed_set_bends_at_zero_weights_too(bounds, rng):
    for bound in bounds:
        smoothed, v, first = bound.smoothed(0.6), rng.normal(size=3), rng.uniform(0.1, 2, size=5)
        change = smoothed.adjoint(1e-6 * v, first) - smoothed.adjoint(-1e-6 * v, first)
        assert_allclose(smoothed.curvature_product(np.zeros(3), first, v), change / 2e-6, rtol=1e-8)


def test_cross_is_the_sum_over_rows(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, r, X = rng.normal(size=3), rng.normal(size=5), rng.normal(size=(5, 3))
        explicit = np.einsum("n,ni,nj->ij", r, X, _by_row(smooth_bound.maximizer(w)))
        assert_allclose(smooth_bound.cross(w, rows_of(X), r), explicit, rtol=1e-12, atol=1e-13)


def test_minimum_of_the_support_program_is_the_support(bounds, directions):
    for bound in bounds:
        program = bound.support_program(3)
        if program is None:  # no cone is known, and no conic solver will be offered the problem
            continue
        assert program.T.shape[0] == (1 if bound.is_common else 5)
        w, z = cp.Parameter(3), cp.Variable(program.T.shape[1] - 3)
        v = cp.hstack([w, z])
        conditions = []
        for kind, sizes, G in program.cones:
            assert G.shape == (sum(sizes), program.T.shape[1])
            for end, size in zip(np.cumsum(sizes), sizes, strict=True):
                part = G.toarray()[end - size : end] @ v
                conditions += [part >= 0] if kind == "nonnegative" else [cp.SOC(part[0], part[1:])]
        # supports compete for nothing, so that their sum is least where each of them is
        problem = cp.Problem(cp.Minimize(cp.sum(program.T.toarray() @ v)), conditions)
        for direction in directions[:4]:
            w.value = direction / np.linalg.norm(direction)
            problem.solve(solver=cp.CLARABEL)
            found = np.broadcast_to(program.T @ np.append(w.value, z.value), 5)
            assert_allclose(found, _supports(bound, w.value), rtol=1e-6, atol=1e-6)


def test_smoothed_sets_have_no_support_program(bounds):
    for bound in bounds:
        assert bound.smoothed(0.1).support_program(3) is None


def test_share_is_enough_for_a_split_of_the_target(bounds, rng):
    for bound in bounds:
        for _ in range(3):
            w, budgets = rng.normal(size=3), rng.uniform(0.1, 1, size=5)
            target = bound.adjoint(rng.normal(size=3), rng.uniform(size=5))
            share = np.asarray(bound.required_share(target, budgets, bound.support(w)))
            assert np.all(np.isfinite(share))
            shares = np.broadcast_to(share / 5, 5) if bound.is_common else share
            assert _best_split(bound, target, shares * (1 + 1e-7)) <= 1e-6


def test_common_sets_ask_for_no_more_than_needed(bounds, rng):
    for bound in bounds:
        w, budgets = rng.normal(size=3), rng.uniform(0.1, 1, size=5)
        target = bound.adjoint(rng.normal(size=3), rng.uniform(size=5))
        share = bound.required_share(target, budgets, bound.support(w))
        if bound.is_common:
            assert np.shape(share) == ()
            assert not share or _best_split(bound, target, np.full(5, 0.99 * float(share) / 5)) > 1e-4
        else:
            assert np.shape(share) == (5,)


def test_share_for_the_sum_of_maximizers_is_the_budgets(bounds, rng):
    for bound in bounds:
        w, budgets = rng.normal(size=3), rng.uniform(0.1, 1, size=5)
        share = bound.required_share(bound.adjoint(w, budgets), budgets, bound.support(w))
        # where w faces away from a set that is not symmetric, the sum is 0, which takes no share
        needed = budgets * (_supports(bound, w) > 0) if bound.is_common else budgets
        assert_allclose(share, needed.sum() if bound.is_common else needed, rtol=1e-9)


def test_target_that_no_multiple_reaches_has_an_infinite_share(bounds, rng):
    for bound in bounds:
        target = rng.normal(size=3)
        together = np.concatenate([_by_row(bound.maximizer(w)) for w in rng.normal(size=(300, 3))])
        # whether it is a sum of multiples >= 0 of points of the set
        reachable = nnls(together.T, target)[1] <= 1e-9
        share = bound.required_share(target, np.ones(5), np.ones(5))
        assert np.all(np.isfinite(share)) == reachable


def test_residual_bounds_the_distance_and_vanishes_at_the_sum_of_maximizers(bounds, rng):
    for bound in bounds:
        for _ in range(3):
            w, budgets = rng.normal(size=3), rng.uniform(0.1, 1, size=5)
            target = 3 * rng.normal(size=3)
            distance = _best_split(bound, target, budgets)
            for smooth_bound in (bound, bound.smoothed(0.6)):
                missed = np.linalg.norm(smooth_bound.residual(target, budgets, smooth_bound.support(w), w))
                assert missed >= distance - 1e-6
                # the sum of the maximizers is one point, so no claim beyond its distance is made
                own = np.linalg.norm(target - smooth_bound.adjoint(w, budgets))
                assert missed <= own * (1 + 1e-12)
            assert_allclose(bound.residual(bound.adjoint(w, budgets), budgets, bound.support(w), w), 0, atol=1e-13)


def test_taking_rows_takes_their_supports(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w = rng.normal(size=3)
        for chosen in (np.array([4, 0, 2]), slice(1, 5, 2)):
            few = _supports(smooth_bound, w)[chosen]
            assert_allclose(np.broadcast_to(smooth_bound.take(chosen).support(w), few.shape), few, rtol=1e-14)


def test_scaling_a_set_scales_its_support(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w = rng.normal(size=3)
        assert_allclose(smooth_bound.scaled(2.5).support(w), 2.5 * smooth_bound.support(w), rtol=1e-13)


def test_sets_against_labels_have_the_supports_of_signed_weights(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, y = rng.normal(size=3), np.array([1.0, -1, -1, 1, -1])
        against_labels = smooth_bound.against_labels(y)
        expected = [_supports(smooth_bound, -sign * w)[i] for i, sign in enumerate(y)]
        assert_allclose(_supports(against_labels, w), expected, rtol=1e-13)
        assert_allclose(
            np.sum(_by_row(against_labels.maximizer(w)) * w, axis=1), against_labels.directional(w, w), rtol=1e-12
        )
        assert_allclose(against_labels.take(slice(1, 3)).support(w), _supports(against_labels, w)[1:3], rtol=1e-13)
        assert_allclose(_supports(against_labels.against_labels(y), w), _supports(smooth_bound, w), rtol=1e-13)


def test_cross_with_another_set_is_the_sum_over_rows(smooth_bounds, rng):
    for smooth_bound in smooth_bounds:
        w, r = rng.normal(size=3), rng.normal(size=5)
        stds = {"X_std": rng.uniform(0.1, 2, size=(5, 3))}
        for other in (CommonEllipsoid(np.array(0.7)), GaussianNoise().at(np.zeros((5, 3)), stds)):
            explicit = np.einsum("n,ni,nj->ij", r, _by_row(smooth_bound.maximizer(w)), _by_row(other.maximizer(w)))
            assert_allclose(smooth_bound.cross_with(other, w, r), explicit, rtol=1e-11, atol=1e-13)
            assert_allclose(other.cross_with(smooth_bound, w, r), explicit.T, rtol=1e-11, atol=1e-13)


def test_interval_form_is_the_support_of_boxes(smooth_bounds, directions):
    for smooth_bound in smooth_bounds:
        form = smooth_bound.interval_form()
        if form is None:
            # the corner that a box has where all weights are positive does not attain other supports
            corner = _by_row(smooth_bound.maximizer(np.ones(3))) - _by_row(smooth_bound.maximizer(-np.ones(3)))
            boxes = [0.5 * corner @ np.abs(w) for w in directions]
            symmetric = [0.5 * (_supports(smooth_bound, w) + _supports(smooth_bound, -w)) for w in directions]
            assert not np.allclose(symmetric, boxes, rtol=1e-6)
            continue
        for w in directions:
            level = np.broadcast_to(form.common, 3) @ np.abs(w) + (0.0 if form.own is None else form.own @ np.abs(w))
            assert_allclose(
                level + (0.0 if form.centre is None else form.centre @ w), smooth_bound.support(w), rtol=1e-12
            )


def test_set_times_a_factor_is_that_much_larger(uncertainties, rng):
    for chosen, metadata in uncertainties:
        X, w = chosen.example_rows(), rng.normal(size=3)
        larger = chosen.times(2.5)
        assert type(larger) is type(chosen)
        assert_allclose(larger.at(X, metadata).support(w), 2.5 * chosen.at(X, metadata).support(w), rtol=1e-12)


def test_set_splits_into_what_is_maximised_and_what_is_averaged(uncertainties, rng):
    for chosen, metadata in uncertainties:
        worst, cloud = chosen.split(chosen.example_rows(), metadata)
        w = rng.normal(size=3)
        assert (worst is None) == chosen.is_expectation
        assert (cloud is None) != chosen.is_expectation
        found = cloud if chosen.is_expectation else worst
        assert_allclose(found.support(w), chosen.at(chosen.example_rows(), metadata).support(w), rtol=1e-14)


def test_set_is_bound_to_sparse_rows_as_to_dense_ones(uncertainties, rng):
    for chosen, metadata in uncertainties:
        w = rng.normal(size=3)
        X = chosen.example_rows()
        thin = chosen.at(sparse.csr_array(X), metadata)
        assert_allclose(thin.support(w), chosen.at(X, metadata).support(w), rtol=1e-14)


def test_set_can_be_cloned_and_printed(uncertainties):
    for chosen, _ in uncertainties:
        again = clone(chosen)
        assert again == chosen
        assert repr(again) == repr(chosen)


def test_no_covariance_of_given_trace_or_norm_makes_a_score_noisier_than_its_multiple_of_the_identity(rng):
    sigma, w = 0.7, rng.normal(size=4)
    support = GaussianNoise(std=sigma).at(np.zeros((6, 4)), {}).support(w)
    sizes = (np.trace, lambda S: np.linalg.norm(S, 2), np.linalg.norm)
    for _ in range(500):
        F = rng.normal(size=(4, rng.integers(1, 5)))
        S = F @ F.T
        for size in sizes:
            assert w @ (sigma**2 / size(S) * S) @ w <= support**2 * (1 + 1e-12)
    worst = sigma**2 * np.outer(w, w) / (w @ w)
    for size in sizes:
        assert size(worst) == pytest.approx(sigma**2)
    assert w @ worst @ w == pytest.approx(support**2)


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", [TwoPointHinge(), ExpectedLogistic()], ids=repr)
def test_fit_with_a_ridge_is_certified_against_any_set(loss, bounds, make_problem):
    for bound in bounds:
        _check_certificate(loss, 0.8, bound, make_problem)


@pytest.mark.thin(2)
def test_fit_without_a_ridge_is_certified_against_any_set(bounds, make_problem):
    for bound in bounds:
        _check_certificate(TwoPointHinge(), 0.0, bound, make_problem)


def _check_certificate(loss, alpha, bound, make_problem):
    rng = np.random.default_rng(20240607)  # the same rows with every set
    y = np.array([1.0, -1, 1, -1, 1])
    X = rng.normal(size=(5, 3)) + 2 * y[:, None]
    problem = make_problem(X, y, loss, bound.against_labels(y), alpha=alpha)
    found, proof = train(problem, tol=1e-6, max_iter=1000)
    assert proof.gap <= 1e-6
    for step in rng.normal(size=(100, 4)) * 10 ** rng.uniform(-4, 0, size=(100, 1)):
        assert problem.value_and_gradient(found.parameters + step)[0] >= proof.lower_bound * (1 - 1e-12)


# Draws


def test_draws_lie_in_the_set_and_no_two_rows_share_theirs(uncertainties, rng):
    for chosen, metadata in uncertainties:
        X = chosen.example_rows()
        try:
            draws = [dense(draw) for draw in chosen.draws(X, metadata, rng, 50)]
        except ValueError:
            assert chosen.is_expectation or chosen.is_of_scores  # only the covariance is known, or not even that
            with pytest.raises(ValueError, match="to draw from"):
                chosen.draws(X, metadata, rng, 50)
            continue
        assert len(draws) == 50
        assert all(draw.shape == X.shape for draw in draws)
        if not chosen.is_expectation:
            bound = chosen.at(X, metadata)
            assert all(np.all(bound.contains(draw)) for draw in draws[:10])
        moved = np.any(np.std(draws, axis=0) > 0, axis=1)
        different = np.std([draw[0] - draw[1] for draw in draws], axis=0)
        assert np.any(different > 0) or not np.all(moved[:2])


@pytest.mark.parametrize(
    ("chosen", "variance"),
    [  # of the first feature, three of them, by integrals over the set
        (Box(half_widths=[0.6, 1.0, 2.0]), 0.6**2 / 3),
        (Ball(0.6), 0.6**2 / 5),
        (Ball(0.6, 1), 0.6**2 / 10),
        (Ball(0.6, 3.0), 0.6**2 * gamma(1) * gamma(2) / (gamma(1 / 3) * gamma(8 / 3))),
        (Ellipsoid(2.0, shape=[0.09, 4.0, 0.25]), 4 * 0.09 / 5),
        (IntervalBox(lower=0.0, upper=0.6), 0.6**2 / 12),
        (Box(half_widths=0.6) + GaussianNoise(0.5), 0.6**2 / 3 + 0.25),
        (GaussianNoise(cov=[[0.3, 0.1, 0.0], [0.1, 1.0, 0.2], [0.0, 0.2, 0.1]]), 0.3),
    ],
    ids=repr,
)
def test_draws_are_uniform_in_sets_and_normal_of_noise(chosen, variance, rng):
    n = 200_000
    [drawn] = chosen.draws(np.zeros((n, 3)), {}, rng, 1)
    kurtosis = np.mean((drawn[:, 0] - drawn[:, 0].mean()) ** 4) / drawn[:, 0].var() ** 2
    assert_allclose(drawn[:, 0].var(), variance, rtol=4 * np.sqrt((kurtosis - 1) / n))


def test_every_point_of_a_ball_is_as_likely(rng):
    [drawn] = Ball(1.0).draws(np.zeros((100_000, 4)), {}, rng, 1)
    radii = np.linalg.norm(drawn, axis=1)
    assert kstest(radii**4, "uniform").pvalue > 1e-3
