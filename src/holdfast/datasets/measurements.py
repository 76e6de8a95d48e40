"""Convert tables of measurements (replicates, error bars, intervals) to the arrays that ``fit`` takes.

Tables are arrays, or frames of pandas or polars; results have the type of the table. Neither library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import NOTHING, Choice, Instance, Listed, Number, arguments
from holdfast._core.labels import check_index
from holdfast._core.summary import summarized

Array = NDArray[np.float64]
FILLS: dict[str, Callable[[Array], Any]] = {"median": np.median, "column maximum": np.max}
"""Replacements for a missing error, from the known errors of its column."""
COLUMNS_MISSING = Choice("error", "exact")
COLUMNS = Instance(str, "give the name of a column") | Listed("give a list of names")
ERRORS_MISSING, VALUES_MISSING = Choice("raise", *FILLS), Choice("raise", "keep")
UNKNOWN = (
    "An unknown error is not 0, which would say exact: pass errors_missing='median' or 'column maximum' to take it from the "
    "others of its column. "
)
KEPT = "Pass values_missing='keep' to let a SpreadImputer fill it in. "


@summarized
class Intervals(NamedTuple):
    """Samples with intervals: one row for each group of replicates, tables of shape (n_groups, n_features)."""

    X: Any
    """The mean of the replicates."""
    X_lower: Any
    """The lower ends, at most X."""
    X_upper: Any
    """The upper ends, at least X."""
    X_std: Any
    """The standard deviation of one measurement."""
    counts: Any
    """The number of replicates that are not missing."""
    groups: NDArray[Any]
    """The labels of the groups, shape (n_groups,)."""
    y: NDArray[Any] | None
    """The class of each group, shape (n_groups,); None if no classes were given."""


@arguments(deviations=Number() | NOTHING)
def intervals_from_replicates(X: Any, groups: Any, *, y: Any = None, deviations: float | None = None) -> Intervals:
    r"""Return one row for each sample that was measured several times: its mean, interval and standard deviation.

    For a group g with values :math:`x_1, \dots, x_n` of a feature, :math:`n \ge 2`, these are

    .. math:: \bar x = \frac1n \sum_k x_k, \qquad
        [\min_k x_k, \max_k x_k], \qquad s = \sqrt{\frac{1}{n - 1} \sum_k (x_k - \bar x)^2} .

    A single value has no standard deviation of its own; it is given the pooled one of its feature,
    :math:`\sqrt{\sum_g (n_g - 1) s_g^2 / \sum_g (n_g - 1)}`. Its interval from the smallest to the largest value is
    that value alone, so state `deviations` to give it an interval with a width. ``X_std`` is the standard deviation of
    one measurement; that of the mean is ``X_std / sqrt(counts)``.

    Parameters
    ----------
    X : array-like or frame of shape (n_rows, n_features)
        One row for each measurement, without the column of labels. NaN means a missing replicate, which is left out.
    groups : array-like of shape (n_rows,)
        The label of the sample that each row measures. Rows with equal labels are replicates; they need not be
        adjacent.
    y : array-like of shape (n_rows,), default=None
        The class of each row, the same for all rows of a group.
    deviations : float, default=None
        The half-width of each interval in standard deviations: from ``X - deviations * X_std`` to
        ``X + deviations * X_std``. None: from the smallest to the largest replicate.

    Returns
    -------
    Intervals
        Groups are in the order of their first appearance; a pandas frame has them as its index. Pass ``X_lower`` and
        ``X_upper`` to ``fit`` for ``IntervalBox``, and ``X_std`` for ``GaussianNoise`` or ``Box``.

    Examples
    --------
    Blood of two patients, drawn three times and twice; one value of potassium is missing:

    >>> glucose_and_potassium = [[5.1, 4.0], [7.9, 3.5], [5.4, np.nan], [8.3, 3.9], [5.1, 4.4]]
    >>> data = intervals_from_replicates(glucose_and_potassium, groups=["ann", "bob", "ann", "bob", "ann"], y=[0, 1, 0, 1, 0])
    >>> data.X
    array([[5.2, 4.2], [8.1, 3.7]])
    >>> metadata = {"X_lower": data.X_lower, "X_upper": data.X_upper}
    >>> metadata["X_lower"], metadata["X_upper"]
    (array([[5.1, 4. ], [7.9, 3.5]]), array([[5.4, 4.4], [8.3, 3.9]]))
    >>> data.groups, data.y
    (array(['ann', 'bob'], dtype='<U3'), array([0, 1]))
    >>> from holdfast import IntervalBox, RobustLinearClassifier
    >>> model = RobustLinearClassifier(IntervalBox()).fit(data.X, data.y, **metadata)
    >>> model.certify(data.X, **metadata)
    array([ True,  True])
    """
    call = "intervals_from_replicates(X, groups)"
    if deviations is not None and not (isinstance(deviations, Real) and 0 <= float(deviations) < np.inf):
        raise ValueError(
            f"intervals_from_replicates(X, groups, deviations={deviations!r}): must be a finite number >= 0, or None."
        )
    columns = {name: _numbers(column, f"{call}: column {name!r}") for name, column in columns_of(X, call).items()}
    n_rows = len(next(iter(columns.values())))
    check_index(X, groups, "groups")
    check_index(X, y, "y")
    first, codes = first_and_codes(one_a_row(groups, n_rows, "groups", call), call)
    labels = np.asarray(groups)[first]
    classes = None if y is None else _classes(one_a_row(y, n_rows, "y", call), first, codes, labels, call)
    found = [_summary(column, codes, labels, f"{call}: column {name!r}") for name, column in columns.items()]
    mean, lower, upper, std, counts = (np.column_stack(part) for part in zip(*found, strict=True))
    if deviations is not None:
        lower, upper = mean - deviations * std, mean + deviations * std
    names = list(columns)
    return Intervals(
        like(X, mean, names, labels),
        like(X, lower, names, labels),
        like(X, upper, names, labels),
        like(X, std, names, labels),
        like(X, counts, names, labels),
        labels,
        classes,
    )


@arguments(missing=COLUMNS_MISSING, errors_missing=ERRORS_MISSING, values_missing=VALUES_MISSING, exclude=COLUMNS)
def values_and_errors(
    frame: Any,
    *,
    suffix: str = "_err",
    missing: str = "error",
    errors_missing: str = "raise",
    values_missing: str = "raise",
    exclude: Any = (),
) -> tuple[Any, Any]:
    """Return the values of a table and their errors, from columns such as ``mass`` and ``mass_err``.

    Parameters
    ----------
    frame : frame of pandas or polars, of shape (n_rows, n_columns)
        All columns must be numbers. Columns that are not errors are features; list others, such as the class, in
        `exclude`.
    suffix : str, default="_err"
        The ending of the name of a column of errors, after the name of its values.
    missing : {"error", "exact"}, default="error"
        How to treat columns of values without a column of errors: refuse them, or take them as exact, with errors 0.
    errors_missing : {"raise", "median", "column maximum"}, default="raise"
        How to treat a missing error (NaN) in a column of errors, which is unknown, not 0: refuse it, or replace it by
        the median or the largest of the known errors of its column.
    values_missing : {"raise", "keep"}, default="raise"
        How to treat a missing value: refuse it, or keep it missing, with error 0, for a :class:`SpreadImputer` in an
        :class:`UncertainPipeline`, which states the errors of the values it fills in. Other imputers do not.
    exclude : str or sequence of str, default=()
        Columns that are neither values nor errors. They are ignored, and not returned.

    Returns
    -------
    X : frame of shape (n_rows, n_features)
        The values, with columns in their original order.
    X_std : frame of shape (n_rows, n_features)
        The errors, >= 0, under the names and in the units of the values. Pass them as ``fit(X, y, X_std=X_std)``.

    Examples
    --------
    >>> import pandas
    >>> stars = pandas.DataFrame({"mass": [1.0, 2.0], "age": [4.6, 0.3], "age_err": [0.2, 0.1], "mass_err": [0.0, 0.3]})
    >>> X, X_std = values_and_errors(stars)
    >>> X
       mass  age
    0   1.0  4.6
    1   2.0  0.3
    >>> X_std
       mass  age
    0   0.0  0.2
    1   0.3  0.1
    """
    call = f"values_and_errors(frame, suffix={suffix!r})"
    columns = _without(columns_of(frame, call), exclude, call)
    if sided := [name for name in columns if str(name).endswith((f"{suffix}_lower", f"{suffix}_upper"))]:
        raise ValueError(
            f"{call}: column {sided[0]!r} states errors of one side. Use values_and_intervals, which keeps both sides."
        )
    how = Missing(missing, errors_missing, values_missing)
    names, X, below, _ = _values_below_above(frame, suffix, how, exclude, call)
    return like(frame, X, names), like(frame, below, names)


class Missing(NamedTuple):
    """How to treat missing columns of errors, missing errors and missing values."""

    columns: str
    errors: str
    values: str


@arguments(missing=COLUMNS_MISSING, errors_missing=ERRORS_MISSING, values_missing=VALUES_MISSING, exclude=COLUMNS)
def values_and_intervals(
    frame: Any,
    *,
    suffix: str = "_err",
    missing: str = "error",
    errors_missing: str = "raise",
    values_missing: str = "raise",
    exclude: Any = (),
) -> tuple[Any, Any, Any]:
    """Return the values of a table and the ends of their error bars, which may be longer on one side.

    The errors of a column ``mass`` are in two columns ``mass_err_lower`` and ``mass_err_upper``, both >= 0 and measured
    from the value: the interval is from ``mass - mass_err_lower`` to ``mass + mass_err_upper``. A single column
    ``mass_err`` serves for both sides.

    Parameters
    ----------
    frame : frame of pandas or polars, of shape (n_rows, n_columns)
    suffix : str, default="_err"
        The part of the name of an error column between the name of its values and ``_lower`` or ``_upper``.
    missing, errors_missing, values_missing, exclude
        As for :func:`values_and_errors`; if a value stays missing, its ends are missing too.

    Returns
    -------
    X, X_lower, X_upper : frames of shape (n_rows, n_features)
        The values and the ends, all under the names of the values.

    Examples
    --------
    >>> import pandas
    >>> planets = pandas.DataFrame({"mass": [1.0, 2.0], "mass_err_lower": [0.1, 0.5], "mass_err_upper": [0.2, 3.0]})
    >>> X, X_lower, X_upper = values_and_intervals(planets)
    >>> X_lower["mass"].tolist(), X_upper["mass"].tolist()
    ([0.9, 1.5], [1.2, 5.0])
    """
    how = Missing(missing, errors_missing, values_missing)
    call = f"values_and_intervals(frame, suffix={suffix!r})"
    names, X, below, above = _values_below_above(frame, suffix, how, exclude, call)
    return like(frame, X, names), like(frame, X - below, names), like(frame, X + above, names)


@arguments()
def values_and_bounds(frame: Any) -> tuple[Any, Any, Any]:
    """Return the midpoints and the ends of a table of intervals, such as the bins of ``pandas.cut``.

    Whether an interval contains its ends does not matter, as open and closed intervals have the same worst case. A
    number is exact: it is both ends of its interval. Note that ``pandas.cut`` rounds the ends of its bins (see its
    `precision`).

    Parameters
    ----------
    frame : frame or array-like of shape (n_rows, n_features) or (n_rows,)
        Columns of numbers or intervals: an interval dtype, categories that are intervals, or objects with ``left`` and
        ``right``. Intervals must not be missing or unbounded. A single column, such as an IntervalArray, is a table
        with one feature.

    Returns
    -------
    X, X_lower, X_upper : frames of the columns of `frame`, or arrays, of shape (n_rows, n_features)
        The midpoints and the ends.

    Examples
    --------
    >>> import pandas
    >>> people = pandas.DataFrame({"age": pandas.cut([23, 67, 35], [20, 40, 80]), "height": [1.6, 1.7, 1.8]})
    >>> X, X_lower, X_upper = values_and_bounds(people)
    >>> X
        age  height
    0  30.0     1.6
    1  60.0     1.7
    2  30.0     1.8
    >>> X_lower["age"].tolist(), X_upper["age"].tolist()
    ([20.0, 40.0, 20.0], [40.0, 80.0, 40.0])
    """
    call = "values_and_bounds(frame)"
    if not hasattr(frame, "columns") and (column := np.asarray(frame)).ndim == 1:
        frame = column[:, None]
    columns = columns_of(frame, call)
    lower, upper = (
        np.column_stack([finite(_end(column, side), f"{call}: column {name!r}") for name, column in columns.items()])
        for side in ("left", "right")
    )
    X = np.clip(0.5 * lower + 0.5 * upper, lower, upper)  # clip, as half of the smallest number rounds to 0
    names = list(columns)
    return like(frame, X, names), like(frame, lower, names), like(frame, upper, names)


def columns_of(table: Any, call: str) -> dict[Any, Any]:
    """Return the columns of a frame by name, or of an array by index."""
    if hasattr(table, "columns"):
        names = list(table.columns)
        if not names or not len(table):
            raise ValueError(f"{call}: the frame has shape {table.shape}. It must have rows and columns.")
        if len(set(names)) < len(names):
            name = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{call}: there are {names.count(name)} columns {name!r}. Give each its own name.")
        return {name: table[name] for name in names}
    array = np.asarray(table)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{call}: expected a frame or a dense array of shape (n_rows, n_features), got a {type(table).__name__} "
            f"of shape {np.shape(table)}."
        )
    return dict(enumerate(array.T))


def like(table: Any, values: NDArray[Any], names: Sequence[Any], index: Any = None) -> Any:
    """Return values as a frame if the table is one, with the index of the table unless `index` is given."""
    if not hasattr(table, "columns"):
        return values
    if hasattr(table, "index"):
        return type(table)(values, columns=names, index=table.index if index is None else index)
    return type(table)(values, schema=list(names), orient="row")


def _numbers(column: Any, where: str) -> Array:
    """Return a column in float64, NaN if missing. Texts and dates are refused, even if they could be converted."""
    raw = np.asarray(column)
    if raw.dtype.kind in "biuf" or (raw.dtype.kind == "O" and not any(isinstance(v, str | bytes) for v in raw)):
        with suppress(TypeError, ValueError):
            return np.asarray(column, dtype=np.float64)
    wrong = next((value for value in raw.tolist() if not isinstance(value, Real)), raw[0])
    raise ValueError(f"{where} must be numbers, got {wrong!r:.60}. Convert the column, or leave it out.")


def finite(column: Any, where: str, cure: str = "", *, missing: str = "raise") -> Array:
    """Return a column of finite numbers, or NaN unless `missing` is "raise". Messages on missing ones add `cure`."""
    values = _numbers(column, where)
    wrong = np.isinf(values) if missing != "raise" else ~np.isfinite(values)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        what = f"is missing. {cure}" if np.isnan(values[row]) else "reaches infinity. "
        raise ValueError(f"{where}, row {row} (from 0) {what}Give it finite numbers, or leave the row out.")
    return values


def known_errors(errors: Array, rule: str, where: str) -> Array:
    """Return a column of errors with missing ones replaced, by a rule of `FILLS`, from the known ones."""
    lost = np.isnan(errors)
    if np.all(lost):
        raise ValueError(f"{where} states no error at all. Leave it out, or give errors that are known otherwise.")
    return np.where(lost, FILLS[rule](errors[~lost]), errors) if np.any(lost) else errors


def one_a_row(labels: Any, n_rows: int, name: str, call: str) -> NDArray[Any]:
    """Return labels as an array. Raises ValueError if there is not one for each row."""
    out = np.asarray(labels)
    if out.shape != (n_rows,):
        raise ValueError(f"{call}: {name} has shape {out.shape}; give one label for each row of X, ({n_rows},).")
    return out


def first_and_codes(labels: NDArray[Any], call: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each group, in the order of appearance, and the group index of each row."""
    first: dict[Any, int] = {}
    starts = np.empty(len(labels), dtype=np.intp)
    for row, label in enumerate(labels):
        same = label == label  # NaN, NaT and pandas.NA do not equal themselves
        if label is None or not isinstance(same, bool | np.bool_) or not same:
            raise ValueError(f"{call}: groups, row {row} (from 0) is missing. Label it, or leave the row out.")
        starts[row] = first.setdefault(label, row)
    return np.unique(starts, return_inverse=True)


def _classes(
    y: NDArray[Any], first: NDArray[np.intp], codes: NDArray[np.intp], labels: NDArray[Any], call: str
) -> NDArray[Any]:
    """Return the class of each group. Raises ValueError if a group has two classes."""
    if np.any(other := y != y[first][codes]):
        row = int(np.argmax(other))
        both = y[[first[codes[row]], row]].tolist()
        raise ValueError(
            f"{call}: y is {both[0]!r} and {both[1]!r} in the group {labels.tolist()[codes[row]]!r}. "
            "Replicates are of one sample, which has one class."
        )
    return y[first]


def _summary(
    values: Array, codes: NDArray[np.intp], labels: NDArray[Any], where: str
) -> tuple[Array, Array, Array, Array, NDArray[np.intp]]:
    """Return mean, minimum, maximum, standard deviation and count of the known values of each group."""
    if np.any(np.isinf(values)):
        row = int(np.argmax(np.isinf(values)))
        raise ValueError(f"{where}, row {row} (from 0) is infinite. NaN states a replicate that is missing.")
    known = ~np.isnan(values)
    values, codes = values[known], codes[known]
    counts = np.bincount(codes, minlength=len(labels))
    if np.any(counts == 0):
        group = labels.tolist()[np.argmin(counts)]
        raise ValueError(
            f"{where}: all replicates of the group {group!r} are missing. Leave out the group or the column."
        )
    order = np.lexsort((values, codes))  # values are sorted so that sums do not depend on the order of the rows
    values, codes = values[order], codes[order]
    starts = np.cumsum(counts) - counts
    lower, upper = values[starts], values[starts + counts - 1]
    mean = np.clip(np.add.reduceat(values, starts) / counts, lower, upper)  # for rounded means of equal values
    freedom = counts - 1
    if not np.any(freedom):
        raise ValueError(
            f"{where}: no group has two replicates, so nothing is known of their deviation. "
            "Check groups; errors known otherwise go to fit as they are."
        )
    residual = values - mean[codes]
    # hypot adds squares without under- or overflow
    own = np.hypot.reduceat(residual, starts) / np.sqrt(np.maximum(freedom, 1))
    pooled = np.hypot.reduce(residual) / np.sqrt(freedom.sum())
    return mean, lower, upper, np.where(freedom > 0, own, pooled), counts


def _without(columns: dict[Any, Any], exclude: Any, call: str) -> dict[Any, Any]:
    """Return the columns except those excluded. Raises ValueError if an excluded column does not exist."""
    left_out = [exclude] if isinstance(exclude, str) else list(exclude)
    if unknown := [name for name in left_out if name not in list(columns)]:
        raise ValueError(
            f"{call[:-1]}, exclude=[{unknown[0]!r}]): there is no such column, only {list(columns)!r:.200}."
        )
    return {name: column for name, column in columns.items() if name not in left_out}


def _values_below_above(
    frame: Any, suffix: str, how: Missing, exclude: Any, call: str
) -> tuple[list[Any], Array, Array, Array]:
    """Return the names of the values, the values, and their errors below and above, each of shape (n_rows, n_features)."""
    if not hasattr(frame, "columns"):
        raise ValueError(f"{call}: expected a frame, whose columns have names, got a {type(frame).__name__}.")
    if not isinstance(suffix, str) or not suffix:
        raise ValueError(f"{call}: suffix must be a text such as '_err'.")
    columns = _without(columns_of(frame, call), exclude, call)
    stated = _stated(list(columns), suffix, call)
    unstated = [name for name, found in stated.items() if not found]
    if len(unstated) == len(stated):
        raise ValueError(
            f"{call}: no column states errors, none of {list(columns)!r:.200} ends in {suffix!r}. Say how they end, suffix=..."
        )
    if unstated and how.columns == "error":
        raise ValueError(
            f"{call}: no errors are stated of the columns {unstated}. Add {f'{unstated[0]}{suffix}'!r}, "
            "pass missing='exact' to take them as exact, or exclude=[...] what is no feature."
        )
    X = np.column_stack(
        [finite(columns[name], f"{call}: column {name!r}", KEPT, missing=how.values) for name in stated]
    )
    below, above = np.zeros_like(X), np.zeros_like(X)
    for j, found in enumerate(stated.values()):
        known = ~np.isnan(X[:, j])
        if found and np.any(known):
            sides = (_nonnegative(columns, name, known, how.errors, call) for name in (found[0], found[-1]))
            below[known, j], above[known, j] = sides
    return list(stated), X, below, above


def _stated(names: Sequence[Any], suffix: str, call: str) -> dict[Any, list[str]]:
    """Return, for each column of values, its columns of errors: none, one, or two for below and above."""
    ends = (suffix, f"{suffix}_lower", f"{suffix}_upper")
    known = set(names)
    stated = {
        name: [f"{name}{end}" for end in ends if f"{name}{end}" in known]
        for name in names
        if not str(name).endswith(ends)
    }
    used = {column for found in stated.values() for column in found}
    if orphans := [name for name in names if name not in stated and name not in used]:
        raise ValueError(
            f"{call}: column {orphans[0]!r} states errors, but its column of values is not there, or states errors itself. "
            "Add it, or leave out both."
        )
    for name, found in stated.items():
        alone, *sides = (f"{name}{end}" for end in ends)
        if found not in ([], [alone], sides):
            raise ValueError(
                f"{call}: the errors of column {name!r} are stated by {found}. Give {alone!r} alone, or both of {sides}."
            )
    return stated


def _nonnegative(columns: dict[Any, Any], name: str, known: NDArray[np.bool_], rule: str, call: str) -> Array:
    """Return the errors of the known values in a column, checked to be >= 0; missing values need no errors."""
    where = f"{call}: column {name!r}"
    errors = np.where(known, finite(columns[name], where, missing="keep"), 0.0)
    if np.any(errors < 0):
        row = int(np.argmax(errors < 0))
        raise ValueError(f"{where}, row {row} (from 0) is {errors[row]:g}. Errors must be >= 0.")
    errors = finite(errors, where, UNKNOWN, missing=rule)[known]
    return errors if rule == "raise" else known_errors(errors, rule, where)


def _end(column: Any, side: str) -> Any:
    """Return one end of a column of intervals; a number is its own end."""
    values = np.asarray(column)
    return np.array([getattr(value, side, value) for value in values]) if values.dtype.kind == "O" else values
