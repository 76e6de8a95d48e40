"""Errors of the weights: what rows face, by enumeration of every vertex, and the functions that take the place of supports."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import Ball, Box, Ellipsoid, IntervalBox, WeightError
from holdfast.uncertainty.offset_boxes import OffsetBoxes
from holdfast.uncertainty.row_boxes import RowBoxes
from holdfast.uncertainty.weight_error import Faced

N, D = 5, 3
KINDS = (False, True, "componentwise")
SIGNS = np.array(list(product((-1.0, 1.0), repeat=D)))


@pytest.fixture
def rows(rng):
    """Rows with small, large and vanishing values, their labels, half-widths with zeros, and weights."""
    X = rng.normal(size=(N, D)) * [0.2, 1.0, 3.0]
    X[0, 0] = X[1, 2] = 0.0
    S = rng.uniform(0, 1, size=(N, D))
    S[2, 1] = S[:, 0][3] = 0.0
    return X, np.array([1.0, -1.0, 1.0, 1.0, -1.0]), S, rng.normal(size=D)


def _faced(error, X, y, bound):
    return error.faced(X, y, bound.against_labels(y))


def _deficits(faced, X, y, w):
    return faced.target - y * (X @ w) + faced.sets.support(w)


def _vertices(error, X, y, w, lower, upper):
    """Return each row's largest 1 - y (w + dw)'z over all vertices of dw and of z."""
    reach = error.reach(w)
    corners = np.where(SIGNS[:, None] > 0, X + upper, X + lower)
    return np.max([1 - y * (z @ (w + s * reach)) for s in SIGNS for z in corners], axis=0)


@pytest.mark.parametrize("relative", KINDS)
@pytest.mark.parametrize("delta", [0.3, 1.7])
def test_exact_rows_face_the_worst_vertex_of_their_weights(relative, delta, rows):
    X, y, _, w = rows
    error = WeightError(delta, relative)
    found = _deficits(_faced(error, X, y, Ball(0.0).at(X, {})), X, y, w)
    assert_allclose(found, _vertices(error, X, y, w, 0.0 * X, 0.0 * X), rtol=1e-13)


def test_each_kind_is_the_published_formula(rows):
    X, y, _, w = rows
    exact, l1 = Ball(0.0).at(X, {}), np.abs(X).sum(axis=1)
    assert_allclose(_faced(WeightError(0.2), X, y, exact).target, 1 + 0.2 * l1)
    boxes = Box(0.2).at(X, {"X_std": np.outer(l1, np.ones(D))})
    assert_allclose(_faced(WeightError(0.2, True), X, y, exact).sets.support(w), boxes.support(w))
    boxes = Box(relative=0.2).at(X, {})
    assert_allclose(_faced(WeightError(0.2, "componentwise"), X, y, exact).sets.support(w), boxes.support(w))


@pytest.mark.parametrize("relative", [False, "componentwise"])
@pytest.mark.parametrize("delta", [0.0, 0.3, 1.7])
@pytest.mark.parametrize("kind", ["box", "common", "cube", "intervals", "common intervals"])
def test_rows_in_boxes_face_the_worst_vertex_of_weights_and_rows(kind, delta, relative, rows):
    X, y, S, w = rows
    lower, upper = -S, S
    if kind == "intervals":
        lower, upper = -0.3 * S, S[::-1]
        bound = IntervalBox().at(X, {"X_lower": X + lower, "X_upper": X + upper})
    elif kind == "common intervals":
        lower, upper = np.full((2, N, D), [[[-0.5, 0.0, -2.0]], [[0.2, 0.7, 0.0]]])
        bound = IntervalBox(lower[0], upper[0]).at(X, {})
    elif kind == "box":
        bound = Box().at(X, {"X_std": S})
    else:
        upper = np.full((N, D), 0.4)
        lower, bound = -upper, (Box(0.4) if kind == "common" else Ball(0.4, np.inf)).at(X, {})
    error = WeightError(delta, relative)
    faced = _faced(error, X, y, bound)
    for v in (w, -w, 0.1 * w, np.zeros(D)):
        assert_allclose(_deficits(faced, X, y, v), _vertices(error, X, y, v, lower, upper), rtol=1e-12)


@pytest.mark.parametrize("relative", KINDS)
def test_bound_is_below_no_admissible_error(relative, uncertainty, rng):
    chosen, metadata = uncertainty
    if chosen.is_expectation:
        pytest.skip("noise without bounds")
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    X = np.zeros((N, D))
    bound = chosen.at(X, metadata)
    error = WeightError(0.4, relative, joint="bound")
    faced = _faced(error, X, y, bound)
    Z = X + np.broadcast_to(bound.sample(rng, 200, D), (200, N, D))
    for w in rng.normal(size=(5, D)):
        worst = np.max([1 - y * (Z @ (w + s * error.reach(w))) for s in SIGNS], axis=(0, 1))
        assert np.all(worst <= _deficits(faced, X, y, w) + 1e-12)


def test_bound_for_boxes_is_the_published_one_and_above_what_is_exact(rows):
    X, y, S, _ = rows
    bound, slack = Box(0.7).at(X, {"X_std": S}), 0.0
    loose, exact = (_faced(WeightError(0.3, joint=joint), X, y, bound) for joint in ("bound", "exact"))
    for w in np.random.default_rng(0).normal(size=(50, D)):
        published = 1 - y * (X @ w) + 0.7 * S @ (np.abs(w) + 0.3) + 0.3 * np.abs(X).sum(axis=1)
        assert_allclose(_deficits(loose, X, y, w), published)
        apart = published - _deficits(exact, X, y, w)
        assert np.all(apart >= -1e-12)
        slack = max(slack, apart.max())
    assert slack > 0.1


def test_reach_is_where_errors_end():
    W = np.array([[1.0, -3.0, 0.0], [0.0, 0.0, 0.5]])
    assert_allclose(WeightError(0.2).reach(W), np.full((2, 3), 0.2))
    assert_allclose(WeightError(0.2, True).reach(W), np.repeat([[0.8], [0.1]], 3, axis=1))
    assert_allclose(WeightError(0.2, "componentwise").reach(W), 0.2 * np.abs(W))


def test_no_error_leaves_everything_as_it_is(rows):
    X, y, S, _ = rows
    bound = Box().at(X, {"X_std": S})
    for relative in KINDS:
        assert WeightError(0.0, relative).faced(X, y, bound) == Faced(bound, 1.0)


@pytest.mark.parametrize(
    ("error", "sets", "message"),
    [
        (WeightError(-1.0), Box(0.3), r"WeightError\(delta=-1.0\): must be a finite number >= 0"),
        (WeightError([0.1, 0.2]), Box(0.3), r"delta=\[0.1, 0.2\]\): must be a finite number"),
        (WeightError(0.1, "column"), Box(0.3), "relative='column'.*give True or False, or 'componentwise'"),
        (WeightError(0.1, joint="loose"), Box(0.3), "joint='loose'.*give 'exact' or 'bound'"),
        (WeightError(0.1), Ball(0.3), "not known exactly.*joint='bound'"),
        (WeightError(0.1), Ellipsoid(0.3), "not known exactly.*joint='bound'"),
        (WeightError(0.1, True), Box(0.3), "not known exactly.*joint='bound'"),
    ],
)
def test_what_makes_no_sense_or_is_not_known_is_refused_with_the_cure(error, sets, message):
    X, y = np.ones((N, D)), np.ones(N)
    with pytest.raises(ValueError, match=message):
        error.faced(X, y, sets.at(X, {}))


def test_sparse_rows_with_boxes_that_are_not_are_refused():
    X = sparse.csr_array(np.eye(N, D))
    with pytest.raises(ValueError, match="X is sparse and its boxes are not"):
        WeightError(0.1).faced(X, np.ones(N), Box(0.3).at(X, {}))


@pytest.mark.parametrize("relative", [False, "componentwise"])
@pytest.mark.parametrize("kind", ["box", "intervals"])
def test_sparse_rows_and_boxes_face_what_dense_ones_do(kind, relative, rows, rng):
    X, y, S, w = rows
    S, X = S * (rng.uniform(size=S.shape) > 0.4), X * (rng.uniform(size=S.shape) > 0.3)
    ends = {"X_std": S} if kind == "box" else {"X_lower": X - S, "X_upper": X + 0.2 * S}
    chosen = Box() if kind == "box" else IntervalBox()
    thin = {name: sparse.csr_array(value) for name, value in ends.items()}
    full, spare = (
        WeightError(0.3, relative).faced(values, y, chosen.at(values, metadata).against_labels(y))
        for values, metadata in ((X, ends), (sparse.csr_array(X), thin))
    )
    assert sparse.issparse(spare.sets.half)
    assert_allclose(spare.target, full.target)
    r = rng.normal(size=N)
    for v in (w, 0.3 * y[:D], np.zeros(D)):
        assert_allclose(spare.sets.support(v), full.sets.support(v), atol=1e-14)
        assert_allclose(spare.sets.adjoint(v, r), full.sets.adjoint(v, r), atol=1e-14)
        assert_allclose(spare.sets.recession(v), full.sets.recession(v), atol=1e-14)
        smoothed = spare.sets.smoothed(0.1), full.sets.smoothed(0.1)
        assert_allclose(smoothed[0].support(v), smoothed[1].support(v))
        assert_allclose(smoothed[0].curvature(v, r, r**2), smoothed[1].curvature(v, r, r**2), atol=1e-14)
        some = np.array([4, 1])
        assert_allclose(smoothed[0].take(some).support(v), smoothed[1].support(v)[some])
        assert_allclose(spare.sets.take(some).support(v), full.sets.support(v)[some], atol=1e-14)


@pytest.fixture(params=["array", "CSR", "with a centre"])
def shifted(request, rng):
    """Functions with kinks of their own in every entry, some of which several rows share, and one feature without any."""
    half = rng.uniform(0, 1, size=(N, D)) * [1.0, 1.0, 0.0]
    half[1, 0] = 0.0
    kinks = rng.normal(size=(N, D))
    kinks[:3, 1] = 0.4
    if request.param == "CSR":
        thin = sparse.csr_array(half)
        return OffsetBoxes(thin, kinks[half > 0])
    return OffsetBoxes(half, kinks, 0.3 * rng.normal(size=(N, D)) if request.param == "with a centre" else None)


def test_smoothed_functions_have_the_derivatives_that_they_claim(shifted, rng):
    smoothed, w, step = shifted.smoothed(0.5), rng.normal(size=D), 1e-6
    first, second = rng.uniform(size=N), rng.normal(size=N)
    units = step * np.eye(D)
    slopes = np.stack([(smoothed.support(w + e) - smoothed.support(w - e)) / (2 * step) for e in units], axis=1)
    assert_allclose(smoothed.maximizer(w), slopes, atol=1e-8)
    assert_allclose(smoothed.adjoint(w, first), first @ slopes, atol=1e-8)
    bends = np.stack([(smoothed.adjoint(w + e, first) - smoothed.adjoint(w - e, first)) / (2 * step) for e in units])
    assert_allclose(smoothed.curvature(w, first, second), bends + (slopes.T * second) @ slopes, atol=1e-7)
    v = rng.normal(size=D)
    assert_allclose(smoothed.curvature_product(w, first, v), bends @ v, atol=1e-7)
    assert_allclose(smoothed.directional(w, v), slopes @ v, atol=1e-8)


def test_smoothing_lies_above_by_no_more_than_its_size(shifted, rng):
    for w in rng.normal(size=(20, D)):
        rise = shifted.smoothed(0.3).support(w) - shifted.support(w)
        assert np.all((rise >= -1e-12) & (rise <= 0.3 + 1e-12))


def test_recession_is_the_growth_far_out(shifted, rng):
    w = rng.normal(size=D)
    assert_allclose(shifted.recession(w), shifted.support(1e9 * w) / 1e9, atol=1e-8)


@pytest.mark.parametrize("absolute", [0.0, 0.4])
@pytest.mark.parametrize("limit", [np.inf, 0.3])
def test_toll_is_the_least_of_all_lines_that_reach_the_target(shifted, absolute, limit, rng):
    """Lines stay below everywhere and touch somewhere: a sum over features, each with a minimum at a kink, 0 or an end."""
    budgets = rng.uniform(size=N)
    columns = np.nan_to_num(sparse.csr_array(shifted.half).toarray())
    entries = np.full((N, D), np.nan)
    entries[columns > 0] = shifted.kinks if shifted.kinks.ndim == 1 else shifted.kinks[columns > 0]

    def less_line(w, slope):
        return budgets @ shifted.support(w) + absolute * np.abs(w).sum() - slope @ w

    for scale in (0.1, 1.0, 10.0):
        target = scale * rng.normal(size=D)
        rest, toll = shifted.lines_below(target, budgets, absolute, limit)
        slope = target - rest
        for w in np.clip(2 * rng.normal(size=(200, D)), -limit, limit):
            assert less_line(w, slope) >= -toll - 1e-12
        lowest = np.zeros(D)
        for j in range(D):
            places = np.clip(np.append(entries[:, j][columns[:, j] > 0], [0.0, -10.0, 10.0]), -limit, limit)
            at = [less_line(np.where(np.arange(D) == j, place, 0.0), slope) for place in places]
            lowest[j] = places[np.argmin(at)]
        assert less_line(lowest, slope) == pytest.approx(-toll, abs=1e-12)
        centre = 0.0 if shifted.centre is None else shifted.centre.T @ budgets
        most = columns.T @ budgets + absolute
        assert_allclose(rest, np.sign(target - centre) * np.maximum(np.abs(target - centre) - most, 0), atol=1e-14)


def test_weights_near_a_kink_are_drawn_in_to_it_and_others_stay(shifted):
    nearest = shifted.kinks.ravel()[-1] if shifted.kinks.ndim == 1 else shifted.kinks[-1, 1]
    w = np.array([5.0, nearest + 1e-9, 0.2])
    assert_allclose(shifted.snapped_to_kinks(w, 1e-3, 0.0), [5.0, nearest, 0.2], rtol=0, atol=0)
    assert_allclose(shifted.snapped_to_kinks(w, 1e-3, 0.5)[1] - nearest, 0.5e-9, rtol=1e-6)
    assert_allclose(shifted.snapped_to_kinks(w, 1e-12, 0.0), w, rtol=0, atol=0)


def test_scaled_functions_keep_their_kinks(shifted, rng):
    w = rng.normal(size=D)
    assert_allclose(shifted.scaled(0.5).support(w), 0.5 * shifted.support(w))


def test_reach_in_the_l1_norm_is_no_less_than_that_of_any_point(bound, rng):
    found = bound.absolute_reach(D)
    assert np.all(np.abs(bound.sample(rng, 300, D)).sum(axis=2) <= found * (1 + 1e-9))
    assert np.all(np.max([bound.support(s) for s in SIGNS], axis=0) <= found * (1 + 1e-9))


@pytest.mark.parametrize(
    "sets", [Ball(0.4), Ball(0.4, 1), Ball(0.4, 3.0), Ball(0.4, np.inf), Box(0.3), IntervalBox(-0.5, [0.1, 2.0, 0.5])],
    ids=repr,
)  # fmt: skip
def test_reach_in_the_l1_norm_is_exact_for_balls_and_boxes(sets):
    bound = sets.at(np.zeros((N, D)), {})
    assert_allclose(bound.absolute_reach(D), np.max([bound.support(s) for s in SIGNS], axis=0))


def test_a_share_of_each_weight_on_rows_in_boxes_is_again_a_box(rows):
    X, y, S, _ = rows
    faced = _faced(WeightError(0.3, "componentwise"), X, y, Box().at(X, {"X_std": S}))
    assert isinstance(faced.sets, RowBoxes)
    assert faced.target == 1.0
