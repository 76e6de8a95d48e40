"""Tables of measurements: against pandas, by hand, and under what must change nothing."""

import statistics

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from holdfast import GaussianRobustClassifier
from holdfast.datasets import intervals_from_replicates, values_and_bounds, values_and_errors, values_and_intervals

pandas = pytest.importorskip("pandas")
TABLES = ("X", "X_lower", "X_upper", "X_std", "counts")
PARTS = [values_and_errors, values_and_intervals]

quickly = settings(max_examples=60, deadline=None, database=None, derandomize=True)
numbers = st.floats(-1e12, 1e12)


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    """The class of frames of a library."""
    return pytest.importorskip(request.param).DataFrame


@st.composite
def replicates(draw):
    """Rows, the labels of their groups (the first group has two values of each feature) and their classes."""
    n, d = draw(st.integers(0, 10)), draw(st.integers(1, 3))
    groups = draw(st.permutations(["a", "a", *draw(st.lists(st.sampled_from("abcd"), min_size=n, max_size=n))]))
    X = np.array(draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n + 2, max_size=n + 2)))
    spared = {groups.index(label) for label in groups} | {i for i, label in enumerate(groups) if label == "a"}
    for i in set(range(n + 2)) - spared:
        for j in range(d):
            if draw(st.integers(0, 3)) == 0:
                X[i, j] = np.nan
    return X, np.array(groups)


def _by_hand(X, groups, label, j):
    return [float(x) for x, group in zip(X[:, j], groups, strict=True) if group == label and not np.isnan(x)]


@quickly
@given(replicates())
def test_each_group_is_summed_up_as_by_hand(measured):
    X, groups = measured
    data = intervals_from_replicates(X, groups)
    assert list(data.groups) == list(dict.fromkeys(groups))
    for j in range(X.shape[1]):
        values = [_by_hand(X, groups, label, j) for label in data.groups]
        scale = max(abs(x) for found in values for x in found)
        squares = [statistics.variance(found) * (len(found) - 1) for found in values if len(found) > 1]
        pooled = np.sqrt(sum(squares) / sum(len(found) - 1 for found in values))
        for i, found in enumerate(values):
            assert data.counts[i, j] == len(found)
            assert data.X_lower[i, j] == min(found)
            assert data.X_upper[i, j] == max(found)
            std = statistics.stdev(found) if len(found) > 1 else pooled
            assert_allclose(data.X[i, j], statistics.mean(found), rtol=1e-14, atol=1e-15 * scale)
            assert_allclose(data.X_std[i, j], std, rtol=1e-12, atol=1e-14 * scale)


@quickly
@given(replicates(), st.randoms(use_true_random=False))
def test_order_of_rows_and_of_groups_does_not_matter(measured, random):
    X, groups = measured
    order = list(range(len(X)))
    random.shuffle(order)
    data, other = intervals_from_replicates(X, groups), intervals_from_replicates(X[order], groups[order])
    place = [list(other.groups).index(label) for label in data.groups]
    for name in ("X", "X_lower", "X_upper", "counts"):
        assert_array_equal(getattr(other, name)[place], getattr(data, name))
    assert_allclose(other.X_std[place], data.X_std, rtol=1e-13)


@quickly
@given(replicates(), st.none() | st.floats(0, 5))
def test_intervals_contain_the_mean(measured, deviations):
    data = intervals_from_replicates(*measured, deviations=deviations)
    assert np.all((data.X_lower <= data.X) & (data.X_upper >= data.X))


def test_equal_replicates_are_exact():
    data = intervals_from_replicates([[0.1], [0.1], [0.1]], [7, 7, 7])  # 0.1 + 0.1 + 0.1 > 0.3
    assert [getattr(data, name).item() for name in TABLES] == [0.1, 0.1, 0.1, 0.0, 3]


@quickly
@given(replicates())
def test_missing_replicates_change_nothing(measured):
    X, groups = measured
    more = np.vstack([X, np.full_like(X, np.nan)])
    data, other = intervals_from_replicates(X, groups), intervals_from_replicates(more, [*groups, *groups])
    for name in TABLES:
        assert_array_equal(getattr(other, name), getattr(data, name))


def test_units_of_the_measurements_carry_over(rng):
    X, groups = rng.normal(size=(30, 2)), rng.integers(6, size=30)
    data, other = intervals_from_replicates(X, groups), intervals_from_replicates(5 - 100 * X, groups)
    assert_allclose(other.X, 5 - 100 * data.X, rtol=1e-12)
    assert_allclose(other.X_lower, 5 - 100 * data.X_upper, rtol=1e-12)
    assert_allclose(other.X_std, 100 * data.X_std, rtol=1e-12)


def test_deviations_and_ranges_are_those_of_pandas(rng):
    frame = pandas.DataFrame(rng.normal(size=(60, 3)), columns=list("pqr")).mask(rng.uniform(size=(60, 3)) < 0.1)
    groups = rng.permutation(np.arange(60) % 9)
    data, by_group = intervals_from_replicates(frame, groups), frame.groupby(groups, sort=False)
    for found, expected in zip(data, (by_group.mean(), by_group.min(), by_group.max(), by_group.std()), strict=False):
        pandas.testing.assert_frame_equal(found, expected, rtol=1e-13)
    pandas.testing.assert_frame_equal(data.counts, by_group.count())


def test_pooled_deviation_estimates_that_of_samples_measured_once(rng):
    groups = np.concatenate([np.repeat(np.arange(2000), 3), [5000]])
    X = 10 * rng.normal(size=5001)[groups] + 0.7 * rng.normal(size=6001)
    data = intervals_from_replicates(X[:, None], groups)
    assert data.counts[-1, 0] == 1
    assert_allclose(data.X_std[-1, 0], 0.7, rtol=0.05)
    assert data.X_lower[-1, 0] == data.X_upper[-1, 0] == X[-1]


def test_deviations_widen_the_intervals_also_of_samples_measured_once():
    X, groups = [[1.0], [3.0], [7.0]], list("aab")
    data = intervals_from_replicates(X, groups, deviations=2)
    assert_allclose(data.X_lower[:, 0], [2 - 2 * np.sqrt(2), 7 - 2 * np.sqrt(2)])
    assert_allclose(data.X_upper[:, 0], [2 + 2 * np.sqrt(2), 7 + 2 * np.sqrt(2)])


def test_large_and_small_numbers_do_not_overflow():
    data = intervals_from_replicates([[1e300, 1e-300], [3e300, 3e-300]], [0, 0])
    assert_allclose(data.X_std, [[2**0.5 * 1e300, 2**0.5 * 1e-300]], rtol=1e-14)


def test_classes_are_those_of_the_groups_and_refused_where_they_differ():
    X, groups = np.arange(5.0)[:, None], ["s2", "s1", "s2", "s1", "s2"]
    data = intervals_from_replicates(X, groups, y=["ill", "well", "ill", "well", "ill"])
    assert data.y.tolist() == ["ill", "well"]
    with pytest.raises(ValueError, match=r"y is 'well' and 'ill' in the group 's1'"):
        intervals_from_replicates(X, groups, y=["ill", "well", "ill", "ill", "ill"])


def test_frames_stay_frames_and_go_to_fit(frame, rng):
    truth = rng.normal(size=(20, 2))
    groups = rng.permutation(np.repeat([f"s{i:02}" for i in range(20)], 4))
    each = np.array([int(label[1:]) for label in groups])
    X = frame({"mass": truth[each, 0] + 0.1 * rng.normal(size=80), "age": truth[each, 1]})
    data = intervals_from_replicates(X, groups, y=truth[each].sum(axis=1) > 0)
    assert {type(getattr(data, name)) for name in TABLES} == {frame}
    model = GaussianRobustClassifier().fit(data.X, data.y, X_std=data.X_std)
    assert list(model.feature_names_in_) == ["mass", "age"]
    arrays = intervals_from_replicates(X.to_numpy(), groups)
    for name in TABLES:
        assert_array_equal(getattr(data, name).to_numpy(), getattr(arrays, name))


def test_groups_are_the_index_of_frames():
    frame = pandas.DataFrame({"mass": [1.0, 2.0, 3.0]}, index=[10, 11, 12])
    data = intervals_from_replicates(frame, pandas.Series(["b", "a", "b"], index=frame.index))
    assert data.X.index.tolist() == data.X_upper.index.tolist() == data.groups.tolist() == ["b", "a"]
    assert data.X["mass"].to_dict() == {"b": 2.0, "a": 2.0}
    assert data.X_upper["mass"].to_dict() == {"b": 3.0, "a": 2.0}


def test_missing_numbers_of_frames_are_missing_replicates(frame):
    for column in ([1, None, 3, 6], [1.5, float("nan"), 3, 6]):
        data = intervals_from_replicates(frame({"count": column}), [0, 0, 1, 1])
        assert data.counts.to_numpy().tolist() == [[1], [2]]


def test_nullable_integers_have_missing_replicates():
    frame = pandas.DataFrame({"count": pandas.array([1, None, 3, 6], dtype="Int64")})
    assert intervals_from_replicates(frame, [0, 0, 1, 1]).counts["count"].tolist() == [1, 2]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("X", "groups", "options", "words"),
    [
        ([[1.0], [2.0]], ["a", "b"], {}, "column 0: no group has two replicates"),
        ([[1.0, 1], [NAN, 2], [NAN, 3]], ["a", "b", "b"], {}, "column 0: all replicates of the group 'b' are missing"),
        ([[1.0], [INF]], ["a", "a"], {}, r"column 0, row 1 \(from 0\) is infinite"),
        ([[1.0], ["2"]], ["a", "a"], {}, "column 0 must be numbers"),
        ([[1.0], [2.0]], ["a", None], {}, r"groups, row 1 \(from 0\) is missing"),
        ([[1.0], [2.0]], [NAN, 3.0], {}, r"groups, row 0 \(from 0\) is missing"),
        ([[1.0], [2.0]], np.array(["2020-01-01", "NaT"], dtype="M8[ns]"), {}, "is missing"),
        ([[1.0], [2.0]], pandas.array(["a", None], dtype=object), {}, "is missing"),
        ([[1.0], [2.0]], pandas.array([1, None], dtype="Int64").astype(object), {}, "is missing"),
        ([[1.0], [2.0]], ["a"], {}, r"groups has shape \(1,\); give one label for each row of X, \(2,\)"),
        ([[1.0], [2.0]], "a", {}, r"groups has shape \(\)"),
        ([[1.0], [2.0]], ["a", "a"], {"y": [1]}, r"y has shape \(1,\)"),
        ([[1.0], [2.0]], ["a", "a"], {"deviations": -1}, r"deviations=-1\): must be a finite number >= 0"),
        ([[1.0], [2.0]], ["a", "a"], {"deviations": NAN}, r"deviations=nan\)"),
        ([1.0, 2.0], ["a", "a"], {}, r"got a list of shape \(2,\)"),
        (np.empty((0, 2)), [], {}, r"shape \(0, 2\)"),
        (pandas.DataFrame({"m": []}), [], {}, r"shape \(0, 1\)"),
        (pandas.DataFrame(np.eye(2), columns=["m", "m"]), [1, 1], {}, "there are 2 columns 'm'"),
        (pandas.DataFrame({"m": [1.0, 2.0], "name": ["x", "y"]}), [1, 1], {}, "column 'name' must be numbers, got 'x'"),
        (pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01"] * 2)}), [1, 1], {}, "column 'day' must be numbers"),
    ],
)
def test_replicates_that_make_no_sense_are_refused(X, groups, options, words):
    with pytest.raises(ValueError, match=r"^intervals_from_replicates\(.*" + words):
        intervals_from_replicates(X, groups, **options)


@pytest.mark.parametrize("function", PARTS)
def test_errors_follow_their_values_wherever_their_columns_are(function, frame, rng):
    values, errors = rng.normal(size=(4, 3)), rng.uniform(size=(4, 3))
    columns = {"a": values[:, 0], "b": values[:, 1], "c": values[:, 2]}
    columns |= {"a±": errors[:, 0], "b±": errors[:, 1], "c±": errors[:, 2]}
    for names in (["a", "b", "c", "a±", "b±", "c±"], ["c±", "a", "a±", "b±", "b", "c"]):
        parts = function(frame({name: columns[name] for name in names}), suffix="±")
        assert {type(part) for part in parts} == {frame}
        assert {tuple(part.columns) for part in parts} == {("a", "b", "c")}
        expected = {values_and_errors: [errors], values_and_intervals: [values - errors, values + errors]}[function]
        for part, wanted in zip(parts, [values, *expected], strict=True):
            assert_array_equal(part.to_numpy(), wanted)


def test_index_is_kept_and_the_table_untouched():
    frame = pandas.DataFrame({"m": [1, 2], "m_err": [0.5, 0.0]}, index=["x", "y"])
    before = frame.copy()
    X, S = values_and_errors(frame)
    X.loc[:, "m"] = 7.0
    assert X.index.tolist() == S.index.tolist() == ["x", "y"]
    pandas.testing.assert_frame_equal(frame, before)


def test_values_and_errors_go_to_fit(frame, rng):
    X = rng.normal(size=(40, 2))
    table = frame({"m": X[:, 0], "m_err": np.full(40, 0.2), "a": X[:, 1], "a_err": rng.uniform(size=40)})
    values, std = values_and_errors(table)
    model = GaussianRobustClassifier().fit(values, X[:, 0] > 0, X_std=std)
    expected = GaussianRobustClassifier().fit(X, X[:, 0] > 0, X_std=std.to_numpy())
    assert_allclose(model.coef_, expected.coef_)


def test_errors_of_two_sides_point_away_from_the_value():
    frame = pandas.DataFrame(
        {"m_err_upper": [3.0], "m": [10.0], "m_err_lower": [1.0], "a": [5.0], "a_err": [0.5], "id": [4]}
    )
    X, lower, upper = values_and_intervals(frame, missing="exact")
    assert (X.iloc[0].tolist(), lower.iloc[0].tolist(), upper.iloc[0].tolist()) == (
        [10, 5, 4],
        [9, 4.5, 4],
        [13, 5.5, 4],
    )


@pytest.mark.parametrize("function", PARTS)
def test_values_without_errors_are_exact_only_on_demand(function):
    frame = pandas.DataFrame({"m": [1.0], "m_err": [0.5], "age": [3.0], "id": [4]})
    with pytest.raises(ValueError, match=r"no errors are stated of the columns \['age', 'id'\].*missing='exact'"):
        function(frame)
    parts = function(frame, missing="exact")
    assert parts[0].iloc[0].tolist() == [1.0, 3.0, 4.0]
    assert [part.iloc[0].tolist() for part in parts[1:]] == {
        values_and_errors: [[0.5, 0.0, 0.0]],
        values_and_intervals: [[0.5, 3.0, 4.0], [1.5, 3.0, 4.0]],
    }[function]


@pytest.mark.parametrize("function", PARTS)
@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (
            {"m": [1.0], "a_err": [1.0], "m_err": [1.0]},
            {},
            "column 'a_err' states errors, but its column of values is not",
        ),
        ({"m": [1.0], "m_err": [1.0], "m_err_err": [1.0]}, {}, "column 'm_err_err' states errors, but"),
        ({"m": [1.0, 2], "m_err": [1.0, -0.5]}, {}, r"column 'm_err', row 1 \(from 0\) is -0.5. Errors must be >= 0"),
        ({"m": [1.0, 2], "m_err": [NAN, 1.0]}, {}, r"column 'm_err', row 0 \(from 0\) is missing"),
        ({"m": [1.0, NAN], "m_err": [1.0, 1.0]}, {}, r"column 'm', row 1 \(from 0\) is missing"),
        ({"m": [1.0, 2], "m_err": [INF, 1.0]}, {}, r"column 'm_err', row 0 \(from 0\) reaches infinity"),
        ({"m": ["1.0"], "m_err": [1.0]}, {}, "column 'm' must be numbers, got '1.0'"),
        ({"m": [1.0], "m_err": ["small"]}, {}, "column 'm_err' must be numbers, got 'small'"),
        ({"m": [1j], "m_err": [1.0]}, {}, "column 'm' must be numbers, got 1j"),
        ({"m": [1.0], "m_err": [1.0]}, {"suffix": ""}, "suffix must be a text"),
        ({"m": [1.0], "m_err": [1.0]}, {"missing": "zero"}, r"missing='zero'\): give 'error' or 'exact'"),
        ({}, {}, r"shape \(0, 0\)"),
    ],
)
def test_errors_that_make_no_sense_are_refused(function, columns, options, words):
    with pytest.raises(ValueError, match=rf"^{function.__name__}\((frame, suffix=.*)?{words}"):
        function(pandas.DataFrame(columns), **options)


def test_errors_of_one_side_alone_or_stated_twice_are_refused():
    frame = pandas.DataFrame({"m": [1.0], "m_err": [1.0], "m_err_lower": [1.0], "m_err_upper": [1.0]})
    for columns in (["m", "m_err_lower"], ["m", "m_err_upper"], ["m", "m_err", "m_err_upper"], list(frame)):
        with pytest.raises(ValueError, match=r"errors of column 'm' are stated by .* or both of"):
            values_and_intervals(frame[columns])
        with pytest.raises(ValueError, match="Use values_and_intervals"):
            values_and_errors(frame[columns], missing="exact")


def test_arrays_have_no_names_of_errors():
    with pytest.raises(ValueError, match="expected a frame, whose columns have names, got a ndarray"):
        values_and_errors(np.eye(2))


ENDS = st.lists(
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e300)), min_size=1, max_size=6
)


@quickly
@example([(5e-324, 5e-324), (-1.7e308, 1.7e308), (1.6e308, 1.7e308)], "right")
@given(ENDS, st.sampled_from(["left", "right", "both", "neither"]))
def test_bounds_are_the_ends_and_the_midpoint_is_between(ends, closed):
    left = np.array([a for a, _ in ends])
    right = np.array([max(a, b) for a, b in ends])
    intervals = pandas.arrays.IntervalArray.from_arrays(left, right, closed=closed)
    X, lower, upper = values_and_bounds(pandas.DataFrame({"m": intervals, "exact": left}))
    assert_array_equal(lower.to_numpy(), np.column_stack([left, left]))
    assert_array_equal(upper.to_numpy(), np.column_stack([right, left]))
    assert np.all((lower <= X) & (upper >= X))
    assert_allclose(X["m"], left / 2 + right / 2, rtol=1e-15, atol=1e-323)
    assert_array_equal(X["exact"], left)


@pytest.mark.parametrize("make", [pandas.Series, pandas.IntervalIndex, pandas.Categorical, list, np.array])
def test_a_single_column_is_a_table_of_one_feature(make):
    intervals = pandas.arrays.IntervalArray.from_tuples([(0, 1), (1, 5), (0, 1)])
    X, lower, upper = values_and_bounds(make(intervals))
    assert (X.tolist(), lower.tolist(), upper.tolist()) == ([[0.5], [3], [0.5]], [[0], [1], [0]], [[1], [5], [1]])


def test_bins_of_cut_contain_what_was_cut(rng):
    frame = pandas.DataFrame(rng.normal(size=(50, 2)), columns=["m", "a"], index=np.arange(50) + 7)
    edges = [-9.0, -1.0, 0.0, 0.5, 9.0]
    binned = frame.assign(m=pandas.cut(frame["m"], edges), a=pandas.cut(frame["a"], edges))
    X, lower, upper = values_and_bounds(binned)
    assert np.all((lower < frame) & (frame <= upper))
    assert_allclose(X, (lower + upper) / 2, rtol=1e-12)
    assert X.index.tolist() == frame.index.tolist()


def test_frames_of_numbers_alone_are_exact(frame):
    table = frame({"m": [1.0, 2.5], "n": [3, 4]})
    for part in values_and_bounds(table):
        assert type(part) is frame
        assert_array_equal(part.to_numpy(), table.to_numpy())


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pandas.cut([1.0, 7.0], [0, 5, INF]), r"row 1 \(from 0\) reaches infinity"),
        (pandas.cut([1.0, -7.0], [-INF, 0, 5]), r"row 1 \(from 0\) reaches infinity"),
        (pandas.cut([1.0, 9.0], [0, 5]), r"row 1 \(from 0\) is missing"),
        (pandas.arrays.IntervalArray.from_tuples([(0, 1), NAN]), r"row 1 \(from 0\) is missing"),
        (pandas.cut([1.0, 2.0], 2, labels=["low", "high"]), "must be numbers, got 'low'"),
        (pandas.cut(pandas.to_datetime(["2020-01-01", "2021-01-01"]), 2), "must be numbers, got Timestamp"),
        ([1.0, NAN], r"row 1 \(from 0\) is missing"),
    ],
)
def test_intervals_that_make_no_sense_are_refused(column, words):
    with pytest.raises(ValueError, match=rf"^values_and_bounds\(frame\): column 'm'.*{words}"):
        values_and_bounds(pandas.DataFrame({"m": column}))
