"""Sets that state their core alone: what is derived from it agrees with the formulas of sets that have them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast._core.common_sets import CommonSet, ProjectableSet
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
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
