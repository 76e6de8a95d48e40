"""Sets that state their core alone: what is derived from it agrees with the formulas of sets that have them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from scipy.stats import kstest

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast._core.common_sets import CommonSet, ProjectableSet
from holdfast._core.dual_norm import approaches, least_share
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
from holdfast._training.training import train
from holdfast.losses import TwoPointHinge
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.minkowski import sum_of
from holdfast.uncertainty.norm_balls import CommonNormBall
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_scaled import RowScaledSets

N, D, STEP = 5, 3, 1e-5
STDS = np.random.default_rng(0).uniform(0.1, 1.0, size=(N, D))


class BareRows(RowSets):
    """The core of other sets."""

    def __init__(self, known):
        self.known = known
        self.is_common, self.is_symmetric, self.is_smooth = known.is_common, known.is_symmetric, known.is_smooth

    def support(self, w):
        return self.known.support(w)

    def maximizer(self, w, rows=slice(None)):
        return self.known.maximizer(w, rows)

    def take(self, rows):
        return type(self)(self.known.take(rows))

    def scaled(self, factor):
        return type(self)(self.known.scaled(factor))

    def against_labels(self, signs):
        return type(self)(self.known.against_labels(signs))


class KinkyRows(BareRows):
    def smoothed(self, delta):
        return self.known.smoothed(delta)

    def snapped_to_kinks(self, w, delta, factor):
        return self.known.snapped_to_kinks(w, delta, factor)


class BareSet(CommonSet):
    def __init__(self, known):
        self.known = known

    def support(self, w):
        return self.known.support(w)

    def point(self, w):
        return self.known.point(w)

    def scaled(self, factor):
        return type(self)(self.known.scaled(factor))


class BareBox(ProjectableSet, BareSet):
    def nearest(self, points):
        return np.clip(points, -self.known.widths, self.known.widths)


class OneSidedBox(ProjectableSet):
    """0 <= d_j <= s_j, in which nothing is symmetric."""

    is_symmetric = False

    def __init__(self, widths):
        self.widths = widths

    def support(self, w):
        return self.widths @ np.maximum(w, 0.0)

    def point(self, w):
        return self.widths * (w > 0)

    def nearest(self, points):
        return np.clip(points, 0.0, self.widths)

    def scaled(self, factor):
        return OneSidedBox(factor * self.widths)


class CappedSimplex(ProjectableSet):
    """0 <= d <= caps, sum(d) <= total: a polytope that is not symmetric, with faces in directions that its box lacks."""

    is_symmetric = False

    def __init__(self, total, caps):
        self.total, self.caps = total, caps

    def support(self, w):
        return self.point(w) @ w

    def point(self, w):
        order = np.argsort(-w)
        taken = np.zeros(len(w))
        taken[order] = np.clip(self.total - np.cumsum(self.caps[order]) + self.caps[order], 0.0, self.caps[order])
        return taken * (w > 0)

    def nearest(self, points):
        # the level by which all entries are lowered, by bisection
        low, high = np.zeros((len(points), 1)), np.maximum(np.max(points, axis=1, keepdims=True), 0.0)
        for _ in range(50):
            level = 0.5 * (low + high)
            is_above = np.sum(np.clip(points - level, 0.0, self.caps), axis=1, keepdims=True) > self.total
            low, high = np.where(is_above, level, low), np.where(is_above, high, level)
        is_inside = np.sum(np.clip(points, 0.0, self.caps), axis=1, keepdims=True) <= self.total
        return np.clip(points - np.where(is_inside, 0.0, level), 0.0, self.caps)

    def scaled(self, factor):
        return type(self)(factor * self.total, factor * self.caps)


class CappedDiamond(CappedSimplex):
    """|d| <= caps, sum(|d|) <= total: an l1 ball cut by a box."""

    is_symmetric = True

    def support(self, w):
        return super().point(np.abs(w)) @ np.abs(w)

    def point(self, w):
        return np.sign(w) * super().point(np.abs(w))

    def nearest(self, points):
        return np.sign(points) * super().nearest(np.abs(points))


def _made(uncertainty, **metadata):
    return uncertainty.at(np.zeros((N, D)), metadata)


SMOOTH = {
    "ball by row": BareRows(_made(Ball(0.5), X_radius=[0.3, 1.0, 0.5, 0.8, 0.7])),
    "ellipsoid by row": BareRows(_made(Ellipsoid(0.4), X_std=STDS)),
    "covariance by row": BareRows(_made(GaussianNoise(), X_factor=STDS[:, :, None] * np.eye(D) + 0.2)),
    "ball for all rows": BareRows(_made(Ball(0.5))),
    "common ball": BareSet(CommonNormBall(0.5, 1.5)),
    "common ellipsoid": BareSet(CommonEllipsoid(np.array([[1.0, 0.2], [0.0, 0.5], [0.3, 0.0]]))),
}
BOXES = {
    "box by row": KinkyRows(_made(Box(0.4), X_std=STDS)),
    "interval by row": KinkyRows(_made(IntervalBox(), X_lower=-STDS, X_upper=0.5 * STDS)),
    "box": BareBox(CommonBox(np.array([0.3, 1.0, 0.2]))),
}


@pytest.fixture(params=SMOOTH | BOXES, ids=str)
def bare(request):
    return (SMOOTH | BOXES)[request.param]


@pytest.fixture(params=SMOOTH, ids=str)
def smooth(request):
    return SMOOTH[request.param]


def test_sums_over_rows_are_those_of_formulas(bare, rng):
    w, v, r, X = rng.normal(size=D), rng.normal(size=D), rng.normal(size=N), rng.normal(size=(N, D))
    other, known = CommonEllipsoid(np.array(0.7)), bare.known
    assert_allclose(bare.adjoint(w, r), known.adjoint(w, r), rtol=1e-13)
    assert_allclose(bare.directional(w, v), known.directional(w, v), rtol=1e-12, atol=1e-14)
    assert_allclose(bare.cross(w, rows_of(X), r), known.cross(w, rows_of(X), r), rtol=1e-12, atol=1e-14)
    assert_allclose(bare.cross_with(other, w, r), known.cross_with(other, w, r), rtol=1e-12, atol=1e-14)


def test_sums_are_the_same_in_blocks(bare, rng, monkeypatch):
    w, r = rng.normal(size=D), rng.normal(size=N)
    whole = bare.adjoint(w, r), bare.directional(w, w), bare.curvature(w, r, r)
    monkeypatch.setattr("holdfast._core.row_sets.BLOCK_ROWS", 2)
    for part, found in zip(whole, (bare.adjoint(w, r), bare.directional(w, w), bare.curvature(w, r, r)), strict=True):
        assert_allclose(found, part, rtol=1e-12, atol=1e-9)


def test_hessians_are_those_of_formulas(smooth, rng):
    known, w, v, W = smooth.known, rng.normal(size=D), rng.normal(size=D), rng.normal(size=(N, D))
    first, second = rng.uniform(0.1, 2, size=(2, N))
    exact = known.curvature(w, first, second)
    assert_allclose(smooth.curvature(w, first, second), exact, rtol=0, atol=1e-8 * np.abs(exact).max())
    assert_allclose(smooth.curvature_product(w, first, v), known.curvature_product(w, first, v), rtol=1e-7, atol=1e-8)
    assert_allclose(smooth.supports_at(W), known.supports_at(W), rtol=1e-13)
    assert_allclose(smooth.maximizers_at(W), known.maximizers_at(W), rtol=1e-12)
    assert_allclose(smooth.hessians_at(W).dot(W[::-1]), known.hessians_at(W).dot(W[::-1]), rtol=1e-6, atol=1e-7)


def test_share_of_a_target_is_the_least(smooth, rng):
    known, budgets = smooth.known, rng.uniform(0.1, 1, size=N)
    for _ in range(5):
        w = rng.normal(size=D)
        target = smooth.adjoint(w, rng.uniform(0, 1, size=N))
        share = np.max(
            smooth.required_share(target, budgets, np.ones(())) / (budgets.sum() if smooth.is_common else budgets)
        )
        # no multiple reaches less far than the target in any direction, and the dual norm is attained
        least = max(v @ target / np.sum(budgets * smooth.support(v)) for v in rng.normal(size=(2000, D)))
        assert least <= share * (1 + 1e-9)
        assert share <= 1.05 * least
        if known.shares_are_least():
            assert_allclose(
                smooth.required_share(target, budgets, np.ones(())),
                known.required_share(target, budgets, np.ones(())),
                rtol=1e-9,
            )


def _share_by_linear_program(total, caps, forward, backward, target):
    """Return the least k with target = p - q, p in k `forward` of the capped simplex and q in k `backward` of it."""
    d, eye, one = len(caps), np.eye(len(caps)), np.ones((1, len(caps)))
    limits = np.block(
        [
            [eye, 0 * eye, -forward * caps[:, None]],
            [0 * eye, eye, -backward * caps[:, None]],
            [one, 0 * one, -np.full((1, 1), forward * total)],
            [0 * one, one, -np.full((1, 1), backward * total)],
        ]
    )
    split = np.hstack([eye, -eye, np.zeros((d, 1))])
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(np.eye(2 * d + 1)[-1], limits, np.zeros(len(limits)), split, target, options=options)
    return found.fun if found.status == 0 else np.inf


@pytest.mark.parametrize("d", [3, 12])
@pytest.mark.parametrize("kind", [CappedSimplex, CappedDiamond])
def test_share_of_a_polytope_is_that_of_a_linear_program(kind, d, rng):
    for number in range(10):
        caps, budgets, signs = rng.uniform(0.1, 2, size=d), rng.uniform(0.1, 1, size=N), rng.choice([-1.0, 1.0], size=N)
        sets = kind(rng.uniform(0.2, 0.8) * caps.sum(), caps)
        turned = sets.against_labels(signs)
        target = rng.normal(size=d) if number % 2 else turned.adjoint(rng.normal(size=d), rng.uniform(size=N))
        if sets.is_symmetric:
            # a multiple of what two sets share is what the same multiples of them share
            least = max(np.max(np.abs(target) / caps), np.sum(np.abs(target)) / sets.total)
            turned, budgets = sets, np.ones(1)
            assert sets.gauge(target) == pytest.approx(least, rel=1e-9)
        else:
            # labels turn the set round in the rows of the class +1
            sides = budgets[signs < 0].sum(), budgets[signs > 0].sum()
            least = _share_by_linear_program(sets.total, caps, *sides, target)
        assert least_share(turned, target, budgets, np.full(d, np.linalg.norm(target))) == pytest.approx(
            least, rel=1e-8
        )


def test_targets_are_approached_where_smoothed_kinks_bend_nothing(rng):
    for _ in range(3):
        caps, target = rng.uniform(0.1, 2, size=D), rng.normal(size=D)
        sets = CappedDiamond(0.5 * caps.sum(), caps)
        least = max(found.least for found in approaches(sets, target, np.ones(1)))
        assert least == pytest.approx(sets.gauge(target), rel=1e-3)


def test_smoothed_points_are_in_the_set_however_little_it_is_smoothed(rng):
    for _ in range(20):
        sets, w = CappedSimplex(1.0, rng.uniform(0.1, 2, size=D)), rng.normal(size=D)
        assert np.sum(sets.smoothed(1e-13).point(w)) <= 1 + 1e-12


@pytest.mark.parametrize("kind", [CappedSimplex, CappedDiamond])
def test_fit_without_a_penalty_is_certified_against_a_polytope(kind, make_problem, two_classes):
    X, y = two_classes(12, 4, separation=1.0)
    signs = np.where(y == np.unique(y)[1], 1.0, -1.0)
    sets = kind(0.5, np.array([0.3, 0.1, 0.5, 0.2])).against_labels(signs)
    assert train(make_problem(X, signs, TwoPointHinge(), sets, alpha=0.0), tol=1e-6, max_iter=1000)[1].gap <= 1e-6


def test_smoothing_by_nearest_points_keeps_its_promises(rng):
    box, delta, moves = BOXES["box"], 0.3, STEP * np.eye(D)
    smoothed = box.smoothed(delta)
    assert smoothed.support(np.zeros(D)) == pytest.approx(delta, rel=1e-14)
    for w in rng.normal(size=(20, D)):
        reach = box.support(w)
        assert reach * (1 - 1e-15) <= smoothed.support(w) <= reach + delta
        change = [(smoothed.support(w + e) - smoothed.support(w - e)) / (2 * STEP) for e in moves]
        assert_allclose(smoothed.point(w), change, rtol=0, atol=1e-8)
        bend = np.array([smoothed.point(w + e) - smoothed.point(w - e) for e in moves]) / (2 * STEP)
        assert_allclose(smoothed.curvature(w, np.ones(1), np.zeros(1)), bend, rtol=0, atol=1e-8)


def test_weights_are_taken_to_kinks_with_their_gradient(rng):
    box, delta = BOXES["box"], 1e-3
    for w in rng.normal(size=(20, D)) * [1.0, 1.0, 1e-4]:
        kept = box.smoothed(delta).point(w)
        assert_allclose(box.smoothed(0.1 * delta).point(box.snapped_to_kinks(w, delta, 0.1)), kept, rtol=0, atol=1e-12)
        assert box.snapped_to_kinks(w, delta, 0.0)[2] == 0.0


def test_targets_out_of_reach_have_no_share(rng):
    flat = SMOOTH["common ellipsoid"]
    beyond = np.linalg.svd(flat.known.factor)[0][:, 2]
    assert flat.gauge(flat.point(rng.normal(size=D)) + 1e-3 * beyond) == np.inf
    box = BareBox(CommonBox(np.array([0.3, 0.0, 0.2])))
    assert box.gauge(np.array([0.3, 1e-3, 0.0])) == np.inf
    assert box.gauge(np.array([0.6, 0.0, 0.2])) == pytest.approx(2.0, rel=1e-14)


def test_points_are_judged_and_drawn_as_formulas_say(bare, rng, monkeypatch):
    monkeypatch.setattr("holdfast._core.row_sets.WALK", 2)
    known, points = bare.known, rng.normal(size=(20, N, D)) * STDS
    for point in points:
        assert np.array_equal(bare.contains(point), known.contains(point))
    for point in bare.sample(rng, 10, D):
        assert np.all(known.contains(np.broadcast_to(point, (N, D))))
    if not bare.is_smooth:
        assert np.all(known.contains(bare.draw(rng, (N, D))))


def test_walk_through_a_set_is_uniform_in_it(rng):
    widths = BOXES["box"].known.widths
    drawn = BOXES["box"].draw(rng, (4000, D)) / widths
    for column in drawn.T:
        assert kstest(column, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_reach_is_never_understated(bare, rng):
    A, points = rng.normal(size=(4, D)), bare.sample(rng, 300, D)
    assert np.all(np.abs(points).sum(axis=2) <= bare.absolute_reach(D) * (1 + 1e-12))
    assert np.all(np.linalg.norm(points @ A.T, axis=2) <= bare.stretch(A) * (1 + 1e-12))
    assert np.array_equal(bare.exact_features(D), bare.known.exact_features(D))


def test_common_set_that_is_not_symmetric_is_turned_by_labels(rng):
    widths, signs = np.array([0.3, 1.0, 0.2]), np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    turned, known = OneSidedBox(widths).against_labels(signs), _made(IntervalBox(0.0, widths)).against_labels(signs)
    for sets, same in ((turned, known), (turned.against_labels(signs), known.against_labels(signs))):
        w, v, r, delta = rng.normal(size=D), rng.normal(size=D), rng.normal(size=N), 0.3
        assert_allclose(sets.support(w), same.support(w), rtol=1e-13)
        assert_allclose(sets.maximizer(w), same.maximizer(w), rtol=1e-13)
        assert_allclose(sets.maximizer(w, slice(1, 3)), same.maximizer(w, slice(1, 3)), rtol=1e-13)
        assert_allclose(sets.adjoint(w, r), same.adjoint(w, r), rtol=1e-13, atol=1e-14)
        assert_allclose(sets.directional(w, v), same.directional(w, v), rtol=1e-13)
        assert_allclose(sets.take([4, 1]).scaled(2.0).support(w), same.take([4, 1]).scaled(2.0).support(w), rtol=1e-13)
        smoothed, moves = sets.smoothed(delta), STEP * np.eye(D)
        assert np.all(sets.support(w) <= smoothed.support(w))
        assert np.all(smoothed.support(w) <= sets.support(w) + delta)
        bend = np.array([smoothed.adjoint(w + e, r) - smoothed.adjoint(w - e, r) for e in moves]) / (2 * STEP)
        assert_allclose(smoothed.curvature(w, r, np.zeros(N)), bend, rtol=0, atol=1e-8)


class Stated(UncertaintySet):
    """A set that is bound already."""

    def __init__(self, sets=None):
        self.sets = sets

    def at(self, X, metadata):
        return self.sets

    def times(self, factor):
        return Stated(self.sets.scaled(factor))

    @classmethod
    def examples(cls):
        return []


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize(
    ("core", "known"),
    [
        (BareSet(CommonNormBall(0.3, 1.8)), Ball(0.3, 1.8)),
        (BareBox(CommonBox(np.array([0.3, 0.1, 0.5]))), Box(half_widths=[0.3, 0.1, 0.5])),
        (RowScaledSets(BareBox(CommonBox(np.full(D, 0.3))), np.ones(60)), Box(0.3)),
        (OneSidedBox(np.array([0.3, 0.1, 0.5])), IntervalBox(0.0, [0.3, 0.1, 0.5])),
        (BareSet(CommonEllipsoid(np.array(0.4))), Ball(0.4)),
        (
            sum_of([BareBox(CommonBox(np.full(D, 0.2))), BareSet(CommonEllipsoid(np.array(0.2)))]),
            Box(0.2) + Ball(0.2),
        ),
    ],
    ids=["ball", "box", "box by row", "one-sided box", "l2 ball", "sum"],
)
def test_a_core_is_enough_for_a_certified_fit(core, known, loss, two_classes):
    X, y = two_classes(60, D)
    ours, theirs = (RobustLinearClassifier(each, loss=loss).fit(X, y) for each in (Stated(core), known))
    assert ours.gap_ <= 1e-6
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=2e-6)
    assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-3)
