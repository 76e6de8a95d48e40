"""The public sets: what they reduce to, the laws behind chance constraints, and what is refused."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse, stats
from scipy.optimize import linprog

from holdfast.exceptions import UnstatedError
from holdfast.uncertainty import Ball, Box, ChanceConstraint, Ellipsoid, GaussianNoise, IntervalBox, LinearImage

X = np.array([[1.0, -2.0, 0.0], [0.5, 0.0, 4.0], [0.0, 3.0, -1.0], [2.0, 2.0, 2.0]])


def support(uncertainty, w, X=X, **metadata):
    return np.broadcast_to(uncertainty.at(X, metadata).support(np.asarray(w)), len(X))


# sizes


@pytest.mark.parametrize(
    "uncertainty",
    [
        *(Ball(), Ball(0.3), Box(), Box(0.1), Box(half_widths=[0.1, 0.2, 0.0]), Box(relative=0.1), Ellipsoid()),
        *(Ellipsoid(shape=[1.0, 2.0, 0.5]), IntervalBox(), IntervalBox(lower=X.min(axis=0), upper=X.max(axis=0))),
        *(ChanceConstraint(0.1), ChanceConstraint(0.1, cov=[1.0, 2.0, 0.5]), Box() + Ball(0.1), Ball(0.1) + Box()),
        *(Ball(0.2) + Box(0.1), LinearImage(Ball(), np.eye(3)), LinearImage(Ball(0.2), np.eye(3))),
    ],
    ids=repr,
)
def test_what_has_no_size_of_its_own_says_so_and_is_refused(uncertainty):
    if uncertainty.has_size:
        assert np.any(uncertainty.at(X, {}).support(np.ones(3)) > 0)
    else:
        with pytest.raises(UnstatedError):
            uncertainty.at(X, {})


# Balls


@pytest.mark.parametrize("p", [1, 1.2, 1.5, 2, 3, 7.5, np.inf])
def test_support_of_a_ball_is_the_dual_norm(p, rng):
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    for w in rng.normal(size=(10, 3)):
        assert_allclose(support(Ball(0.3, p), w), 0.3 * np.linalg.norm(w, q), rtol=1e-13)
        worst = Ball(0.3, p).at(X, {}).maximizer(w)[0]
        assert np.linalg.norm(worst, p) == pytest.approx(0.3)


def test_balls_of_neighbouring_norms_are_alike(rng):
    w = rng.normal(size=3)
    for p, near in ((2, 2 + 1e-7), (1, 1 + 1e-7), (np.inf, 1e7)):
        assert_allclose(support(Ball(0.3, near), w), support(Ball(0.3, p), w), rtol=1e-5)


def test_radii_by_row_multiply_the_radius(rng):
    w, radii = rng.normal(size=3), np.array([0.0, 1.0, 0.5, 2.0])
    for p in (1, 2, 3, np.inf):
        assert_allclose(support(Ball(0.3, p), w, X_radius=radii), radii * support(Ball(0.3, p), w), rtol=1e-14)


def test_infinite_ball_is_the_box_and_the_unit_ellipsoid_the_ball(rng):
    w = rng.normal(size=3)
    for largest in (np.inf, "inf"):
        assert_allclose(support(Ball(0.3, largest), w), support(Box(0.3), w), rtol=1e-14)
    assert_allclose(support(Ball(0.3), w), support(Ellipsoid(0.3), w), rtol=1e-14)


@pytest.mark.parametrize("norm", [0.5, 0, -1, np.nan, "2x", None, [2, 2]])
def test_norm_below_one_is_refused(norm):
    with pytest.raises(ValueError, match=r"Ball\(norm=.*give 1, 2 or 'inf', or another number >= 1"):
        Ball(norm=norm).at(X, {})


# Sizes


@pytest.mark.parametrize(
    ("uncertainty", "row_sizes"),
    [(Box(), "X_std"), (Ball(), "X_radius"), (Ball(norm=1), "X_radius"), (Ellipsoid(), "X_std or X_cov or X_factor")],
    ids=repr,
)
def test_a_size_that_is_stated_nowhere_is_refused_unless_others_state_it(uncertainty, row_sizes):
    both_ways = rf"size is stated neither here nor by the rows.*\(radius=0.1\).*or pass that of each row, {row_sizes}"
    for unsized in (uncertainty, uncertainty + IntervalBox(-0.1, 0.2), LinearImage(uncertainty, np.eye(3))):
        with pytest.raises(ValueError, match=both_ways):
            unsized.at(X, {})
        assert_allclose(support(unsized.as_shape(), [1.0, 2.0, 3.0]), support(unsized.times(1.0), [1.0, 2.0, 3.0]))
    stated = uncertainty.set_params(radius=0.3).as_shape()
    assert stated.radius == 0.3
    uncertainty.set_params(radius=None)


def test_sizes_that_rows_or_shapes_state_are_taken_as_stated(rng):
    w, S = rng.normal(size=3), rng.uniform(size=X.shape)
    for make, metadata in (
        (Box, {"X_std": S}),
        (Ball, {"X_radius": S[:, 0]}),
        (Ellipsoid, {"X_std": S}),
        (lambda *radius: Box(*radius, half_widths=S[0]), {}),
        (lambda *radius: Box(*radius, relative=0.1), {}),
        (lambda *radius: Ellipsoid(*radius, shape=S[0]), {}),
    ):
        assert_allclose(support(make(), w, **metadata), support(make(1.0), w, **metadata), rtol=1e-15)


# Boxes


def test_ways_of_stating_the_same_box_agree(rng):
    w, s = rng.normal(size=3), np.array([0.5, 0.0, 2.0])
    expected = 0.4 * s @ np.abs(w)
    ways = [
        support(Box(0.4, half_widths=s), w),
        support(Box(0.4), w, X_std=np.tile(s, (4, 1))),
        support(Box(0.4), w, X_std=sparse.csr_array(np.tile(s, (4, 1)))),
        support(IntervalBox(-0.4 * s, 0.4 * s), w),
        support(IntervalBox(-s, s, radius=0.4), w),
        support(IntervalBox(), w, X_lower=X - 0.4 * s, X_upper=X + 0.4 * s),
        support(Box(1.0, relative=0.4 * s), w, X=np.ones((4, 3))),
    ]
    for found in ways:
        assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_relative_half_widths_follow_the_entries_and_stay_sparse(kind, rng):
    w, share = rng.normal(size=3), np.array([0.1, 0.2, 0.0])
    box = Box(2.0, relative=share).at(kind(X), {})
    assert_allclose(box.support(w), 2 * np.abs(X) * share @ np.abs(w), rtol=1e-14)
    assert sparse.issparse(box.half) == (kind is not np.asarray)


def test_interval_box_is_asymmetric_and_attained_at_its_ends(rng):
    lower, upper = -rng.uniform(0, 1, size=X.shape), rng.uniform(0, 3, size=X.shape)
    box = IntervalBox().at(X, {"X_lower": X + lower, "X_upper": X + upper})
    w = rng.normal(size=3)
    assert not box.is_symmetric
    assert_allclose(box.support(w), np.sum(np.maximum(lower * w, upper * w), axis=1), rtol=1e-12)
    assert_allclose(box.maximizer(w), np.where(w > 0, upper, lower), rtol=0, atol=1e-14)
    # the worst case of row i is pushed to its wrong side
    y = np.array([1.0, -1, 1, -1])
    worst = y * (X @ w) - box.against_labels(y).support(w)
    corners = [np.where(choice, upper, lower) for choice in product([False, True], repeat=3)]
    assert_allclose(worst, np.min([y * ((X + corner) @ w) for corner in corners], axis=0), rtol=1e-12)


def test_sparse_intervals_of_sparse_rows_say_what_dense_ones_say(rng):
    w, y = rng.normal(size=3), np.array([1.0, -1, 1, -1])
    lower, upper = X - 0.3 * np.abs(X), X + np.abs(X)
    dense = IntervalBox(radius=0.7).at(X, {"X_lower": lower, "X_upper": upper})
    for rows, kind in ((X, np.asarray), (sparse.csr_array(X), sparse.csr_array), (sparse.csr_array(X), np.asarray)):
        other = IntervalBox(radius=0.7).at(rows, {"X_lower": kind(lower), "X_upper": kind(upper)})
        assert_allclose(other.against_labels(y).support(w), dense.against_labels(y).support(w), rtol=1e-13)
        assert sparse.issparse(other.half) == (kind is sparse.csr_array)


def test_value_outside_its_interval_is_named_by_row_and_column():
    ends = {"X_lower": X - 1, "X_upper": X + 1}
    for kind in (np.array, sparse.csr_array):
        for name, shift, word in (("X_lower", 1.25, "above"), ("X_upper", -1.25, "below")):
            wrong = {key: np.array(value) for key, value in ends.items()}
            wrong[name][2, 1] += shift
            wrong = {key: kind(value) for key, value in wrong.items()}
            with pytest.raises(ValueError, match=rf"{name}\[2, 1\] is {word} X\[2, 1\] by 0.25.*np.clip"):
                IntervalBox().at(kind(X), wrong)


def test_half_an_interval_is_refused():
    for box, metadata in (
        (IntervalBox(), {}),
        (IntervalBox(lower=-1.0), {}),
        (IntervalBox(), {"X_upper": X + 1}),
    ):
        with pytest.raises(ValueError, match="an interval has two ends"):
            box.at(X, metadata)
    with pytest.raises(ValueError, match="stated twice"):
        IntervalBox(-1, 1).at(X, {"X_lower": X, "X_upper": X})
    for lower, upper in ((0.1, 1.0), (-1.0, [1.0, 1.0, -0.1])):
        with pytest.raises(ValueError, match=r"lower must be <= 0 and upper >= 0"):
            IntervalBox(lower, upper).at(X, {})


# Ellipsoids


def test_ways_of_stating_the_same_ellipsoid_agree(rng):
    w, F = rng.normal(size=3), rng.normal(size=(3, 2))
    expected = 0.4 * np.sqrt(w @ F @ F.T @ w)
    assert_allclose(support(Ellipsoid(0.4, shape=F @ F.T), w), expected, rtol=1e-12)
    assert_allclose(support(Ellipsoid(0.4), w, X_cov=np.tile(F @ F.T, (4, 1, 1))), expected, rtol=1e-12)
    assert_allclose(support(Ellipsoid(0.4), w, X_factor=np.tile(F, (4, 1, 1))), expected, rtol=1e-12)
    s = np.array([0.5, 0.0, 2.0])
    for found in (support(Ellipsoid(0.4, shape=s**2), w), support(Ellipsoid(0.4), w, X_std=np.tile(s, (4, 1)))):
        assert_allclose(found, 0.4 * np.linalg.norm(s * w), rtol=1e-12)


def test_maximizer_lies_on_the_ellipsoid(rng):
    F, w = rng.normal(size=(3, 3)), rng.normal(size=3)
    E = F @ F.T
    point = Ellipsoid(0.4, shape=E).at(X, {}).maximizer(w)[0]
    assert point @ np.linalg.solve(E, point) == pytest.approx(0.16)


# Chance constraints


def largest_tail(tails, moments, values):
    """Return the largest tail probability of any mixture of laws with the given moments."""
    return -linprog(-np.asarray(tails, dtype=float), A_eq=np.vstack(moments), b_eq=values, bounds=(0, None)).fun


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.15, 0.4, 0.8])
def test_cantelli_is_attained_by_a_two_point_law_and_never_exceeded(epsilon):
    gamma = ChanceConstraint(epsilon).gamma()
    values, chances = np.array([gamma, -1 / gamma]), np.array([epsilon, 1 - epsilon])
    assert_allclose([chances @ values, chances @ values**2], [0, 1], rtol=0, atol=1e-12)
    grid = np.unique(np.concatenate([np.linspace(-15, 15, 1001), values]))
    tail = largest_tail(grid >= gamma - 1e-12, [np.ones_like(grid), grid, grid**2], [1, 0, 1])
    assert tail == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.15, 0.4])
def test_symmetric_rule_is_attained_and_never_exceeded(epsilon):
    gamma = ChanceConstraint(epsilon, "symmetric").gamma()
    sizes = np.unique(np.append(np.linspace(0, 15, 1501), gamma))  # laws on {-a, a}
    tail = largest_tail(0.5 * (sizes >= gamma - 1e-12), [np.ones_like(sizes), sizes**2], [1, 1])
    assert tail == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.12, 1 / 6])
def test_unimodal_rule_is_attained_and_never_exceeded(epsilon):
    gamma = ChanceConstraint(epsilon, "unimodal").gamma()
    a = np.unique(np.append(np.linspace(1e-3, 40, 8001), 1.5 * gamma))  # uniform laws on [-a, a]
    tail = largest_tail(np.where(a > gamma, (a - gamma) / (2 * a), 0), [np.ones_like(a), a**2 / 3], [1, 1])
    assert tail == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-8, 0.05, 0.3, 0.5])
def test_gaussian_rule_is_exact(epsilon):
    assert stats.norm.sf(ChanceConstraint(epsilon, "gaussian").gamma()) == pytest.approx(epsilon)


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.2, 0.6])
def test_bounded_rule_is_kept_by_random_signs(epsilon, rng):
    signs = np.array(list(product([-1.0, 1.0], repeat=10)))
    for s in (np.ones(10), rng.uniform(0.1, 1, size=10), 0.5 ** np.arange(10)):
        w = rng.choice([-1.0, 1.0], size=10)
        t = float(ChanceConstraint(epsilon, "bounded", cov=s**2).at(np.zeros((2, 10)), {}).support(w))
        assert np.mean((signs * s) @ w > t) <= epsilon


def test_assumptions_that_say_more_need_less_room():
    rules = ("none", "symmetric", "unimodal", "gaussian")
    for epsilon in (0.001, 0.05, 1 / 6):
        gammas = [ChanceConstraint(epsilon, rule).gamma() for rule in rules]
        assert gammas == sorted(gammas, reverse=True)


def test_chance_constraint_is_an_ellipsoid_of_its_radius(rng):
    w, cov = rng.normal(size=3), np.diag([1.0, 2.0, 0.5]) + 0.3
    chance = ChanceConstraint(0.1, "gaussian", cov=cov, radius=2.0)
    expected = Ellipsoid(2 * chance.gamma(), shape=cov)
    assert_allclose(support(chance, w), support(expected, w), rtol=1e-13)
    assert_allclose(support(ChanceConstraint(0.1, cov=4.0), w), 6 * np.linalg.norm(w), rtol=1e-13)
    assert_allclose(support(ChanceConstraint(0.1), w, X_std=np.full((4, 3), 2.0)), 6 * np.linalg.norm(w), rtol=1e-13)


@pytest.mark.parametrize(
    ("assumption", "wrong", "words"),
    [
        ("none", 1.0, "0 < epsilon < 1"),
        ("none", 0.0, "0 < epsilon < 1"),
        ("symmetric", 0.51, "0 < epsilon <= 1/2"),
        ("unimodal", 0.17, "0 < epsilon <= 1/6"),
        ("gaussian", 0.6, "0 < epsilon <= 1/2"),
        ("bounded", 1.5, "0 < epsilon < 1"),
        ("none", [0.1, 0.2], "one number"),
    ],
)
def test_epsilon_out_of_range_is_refused_with_the_range(assumption, wrong, words):
    with pytest.raises(ValueError, match=f"assumption='{assumption}' epsilon is one number.*") as caught:
        ChanceConstraint(wrong, assumption, cov=1.0).at(X, {})
    assert words in str(caught.value)


def test_chance_constraint_asks_for_what_it_needs():
    with pytest.raises(ValueError, match=r"states no covariance. Give cov, or pass X_std"):
        ChanceConstraint(0.1).at(X, {})
    with pytest.raises(ValueError, match=r"no such assumption. Choose one of 'none'"):
        ChanceConstraint(0.1, "normal", cov=1.0).at(X, {})
    with pytest.raises(ValueError, match="cov is diagonal"):
        ChanceConstraint(0.1, "bounded", cov=np.eye(3) + 0.1).at(X, {})
    with pytest.raises(ValueError, match=r"together with X_cov.*passed as X_std"):
        ChanceConstraint(0.1, "bounded").at(X, {"X_cov": np.tile(np.eye(3), (4, 1, 1))})


# What every set refuses


@pytest.mark.parametrize("cls", [Ball, Box, Ellipsoid, lambda radius: IntervalBox(-1, 1, radius=radius)])
@pytest.mark.parametrize("radius", [-1.0, np.nan, np.inf, "wide", [1.0, 2.0, 3.0]])
def test_radius_must_be_one_number_that_is_not_negative(cls, radius):
    with pytest.raises(ValueError, match=r"\(radius=.*\): radius"):
        cls(radius).at(X, {})


STDS = np.ones((4, 3))


@pytest.mark.parametrize(
    ("uncertainty", "metadata", "words"),
    [
        (Ball(), {"X_std": STDS}, r"Ball\(\): does not take X_std. It takes X_radius"),
        (Box(), {"X_radius": np.ones(4)}, r"Box\(\): does not take X_radius. It takes X_std"),
        (IntervalBox(-1, 1), {"X_std": STDS}, "does not take X_std. It takes X_lower, X_upper"),
        (Ellipsoid(), {"X_lower": STDS}, "does not take X_lower"),
        (GaussianNoise(), {"X_radius": np.ones(4)}, "does not take X_radius"),
        (Ball(), {"X_radius": 1.0}, r"X_radius has shape \(\).*Ball\(radius=...\)"),
        (Ball(), {"X_radius": np.ones(5)}, r"X_radius has shape \(5,\); it is one number for each row"),
        (Ball(), {"X_radius": -np.ones(4)}, "X_radius must be >= 0"),
        (Box(), {"X_std": np.ones(3)}, r"X_std has shape \(3,\).*Box\(half_widths=...\)"),
        (Box(), {"X_std": -STDS}, "X_std must be >= 0"),
        (Box(), {"X_std": np.nan * STDS}, "X_std contains NaN"),
        (Box(half_widths=1.0), {"X_std": STDS}, "half_widths and X_std say the same thing twice"),
        (Box(half_widths=1.0, relative=0.1), {}, "half_widths and relative say the same thing twice"),
        (Box(half_widths=[1.0, 2.0]), {}, r"Box\(half_widths=...\): half_widths has shape \(2,\)"),
        (Box(relative=-0.1), {}, r"Box\(relative=-0.1\): relative must be >= 0"),
        (IntervalBox(), {"X_lower": np.zeros(3), "X_upper": X}, r"X_lower has shape \(3,\)"),
        (IntervalBox(np.nan, 1.0), {}, "lower contains NaN"),
        (Ellipsoid(), {"X_std": np.ones(3)}, r"X_std has shape \(3,\).*Ellipsoid\(shape=...\)"),
        (Ellipsoid(shape=np.ones(2)), {}, r"Ellipsoid\(shape=...\): shape has shape \(2,\)"),
        (Ellipsoid(shape=[1.0, -1.0, 1.0]), {}, "shape must be >= 0"),
        (Ellipsoid(shape=np.diag([1.0, -1.0, 1.0])), {}, "shape is indefinite"),
        (Ellipsoid(shape=1.0), {"X_std": STDS}, "shape and X_std say the same thing twice"),
        (Ellipsoid(), {"X_std": STDS, "X_factor": STDS[..., None]}, "X_std and X_factor say the same thing twice"),
    ],
    ids=str,
)
def test_wrong_numbers_are_refused_with_what_to_do(uncertainty, metadata, words):
    with pytest.raises(ValueError, match=words):
        uncertainty.at(X, metadata)


# Directions by row


def test_supports_at_a_direction_of_each_row_are_those_of_that_row_alone(smooth_bounds, rng):
    for bound in smooth_bounds:
        W = rng.normal(size=(5, 3))
        found, points = bound.supports_at(W), bound.maximizers_at(W)
        alone = [np.broadcast_to(bound.support(w), 5)[i] for i, w in enumerate(W)]
        each = [np.broadcast_to(bound.maximizer(w), (5, 3))[i] for i, w in enumerate(W)]
        assert_allclose(found, alone, rtol=1e-12, atol=1e-14)
        assert_allclose(points, each, rtol=1e-9, atol=1e-12)


def test_bends_at_a_direction_of_each_row_are_those_of_that_row_alone(smooth_bounds, rng):
    for bound in smooth_bounds:
        W, V = rng.normal(size=(2, 5, 3))
        alone = [bound.curvature_product(w, np.eye(5)[i], v) for i, (w, v) in enumerate(zip(W, V, strict=True))]
        assert_allclose(bound.hessians_at(W).dot(V), alone, rtol=1e-9, atol=1e-12)


def test_no_point_of_a_set_is_stretched_by_more_than_its_bound(bounds, rng):
    for bound in bounds:
        for A in (np.eye(3), rng.normal(size=(7, 3)), rng.normal(size=(2, 3))):
            points = bound.sample(rng, 300, 3)
            assert np.all(np.linalg.norm(points @ A.T, axis=-1) <= bound.stretch(A) * (1 + 1e-12))


def test_stretches_of_balls_and_boxes_are_reached(rng):
    A = rng.normal(size=(4, 3))
    exact = {1: np.linalg.norm(A, axis=0).max(), 2: np.linalg.norm(A, 2)}
    for p, longest in exact.items():
        assert_allclose(Ball(0.5, p).at(X, {}).stretch(A), 0.5 * longest, rtol=1e-10)
    diagonal = np.diag([1.0, -2.0, 3.0])
    assert_allclose(Box(half_widths=[0.3, 0.2, 0.1]).at(X, {}).stretch(diagonal), np.linalg.norm([0.3, 0.4, 0.3]))
