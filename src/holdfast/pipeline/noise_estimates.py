"""Sizes of errors, estimated from replicates, rounding steps or intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import Number, arguments, as_numbers, short
from holdfast._core.arithmetic import norm
from holdfast._core.caller import warn_caller
from holdfast._core.labels import check_index
from holdfast._core.summary import summarized
from holdfast.datasets.measurements import (
    ERRORS_MISSING,
    KEPT,
    VALUES_MISSING,
    columns_of,
    finite,
    first_and_codes,
    known_errors,
    like,
    one_a_row,
)

Array = NDArray[np.float64]
N_DIRECTIONS = 100
"""Random scores on which independent and correlated errors are compared."""
ONE_END = (
    "Its width is unknown: pass errors_missing='median' or 'column maximum' to take it from the others of its column. "
)
DISAGREEING = 2.0
"""Errors count as correlated if deviations of scores with and without correlations differ by more than this factor."""
RESOLVED = 4
"""Degrees of freedom per feature that a covariance needs at least to be trained with."""


@summarized
class ReplicateNoise(NamedTuple):
    """The errors of measurements, estimated from replicates, in the units of the features.

    `std`, `X_std` and `means_std` treat the errors of different features as independent; `factor` has the correlations
    of the replicates. `errors` says which of the two suits these data.
    """

    std: Array
    """The pooled standard deviation of one measurement, shape (n_features,): ``GaussianNoise(std=...)``."""
    factor: Array
    """F, a factor of one measurement's pooled covariance F F', shape (n_features, r): ``GaussianNoise(factor=...)``.

    r is the number of rows minus the number of groups, or n_features if that is less. F F' itself is never formed.
    """
    freedom: int
    """Degrees of freedom of `std` and `factor`: rows minus groups, for the feature with the fewest known values."""
    X_std: Any
    """The standard deviation of each single measurement, shape (n_rows, n_features); 0 where the value is missing."""
    means: Any
    """The mean of each group, shape (n_groups, n_features); NaN where the whole group has no value."""
    means_std: Any
    """The standard error of each group's mean, shape (n_groups, n_features): ``X_std`` of the means."""
    groups: NDArray[Any]
    """The labels of the groups in the order of their first appearance, shape (n_groups,)."""
    errors: str
    """"independent" if `std` and `factor` agree on random scores within a factor of 2. Otherwise "correlated", if
    `factor` is to be used, or "unresolved", if there are too few replicates to trust either."""
    disagreement: float
    """The factor, >= 1, by which `std` and `factor` differ, or more, in the deviation of one random score in ten."""


@arguments(values_missing=VALUES_MISSING)
def noise_from_replicates(X: Any, groups: Any, *, prior: float = 4.0, values_missing: str = "raise") -> ReplicateNoise:
    r"""Estimate the errors of measurements from samples that were measured several times.

    With the residuals :math:`r_i = x_i - \bar x_{g(i)}` of N rows from the means of their G groups, the pooled
    covariance is :math:`C = \sum_i r_i r_i^\top / (N - G)`. It is unbiased, and returned as a factor. Errors may differ
    between samples, so each group has its own deviations. As few replicates say little, these are shrunk towards the
    pooled ones:

    .. math:: s_g^2 = \frac{\nu\,C_{jj} + \sum_{i \in g} r_{ij}^2}{\nu + n_g - 1} .

    A group of one row has the pooled deviation.

    Deviations treat the errors of different features as independent. If they are not (a batch, a dilution or a baseline
    moves many features at once), they give wrong deviations of scores, and there is a warning. The test compares
    deviations of random scores. Their weights, in units of the deviations, are random, or random combinations of the
    groups' means, as the weights of a fitted model are combinations of rows.

    With few replicates the factor is no cure. With d features, it gives in some direction only
    :math:`1 - \sqrt{d/(N - G)}` times the deviation, and with fewer degrees of freedom than features it gives 0 in all
    directions orthogonal to the residuals. A model trained with it puts its weights in just these directions. So
    "correlated" requires four degrees of freedom per feature: the deviation is then understated by a factor of 2 at
    most. With fewer, the warning says what to do.

    Parameters
    ----------
    X : array-like or frame of shape (n_rows, n_features)
        One row for each measurement.
    groups : array-like of shape (n_rows,)
        The sample that each row measures. Rows with equal labels are replicates; they need not be adjacent.
    prior : float, default=4.0
        :math:`\nu`, the weight of the pooled deviation in that of a group, as a number of degrees of freedom. 0: each
        group has a deviation of its own; ``np.inf``: all have the pooled one.
    values_missing : {"raise", "keep"}, default="raise"
        What to do with a missing value (NaN). "raise" refuses it. "keep" leaves it out of all sums, with ``X_std`` 0,
        for :class:`SpreadImputer` to fill in; as its products of residuals count as 0, correlations shrink towards 0.

    Returns
    -------
    ReplicateNoise
        If errors are independent, train with single rows by ``fit(X, y, X_std=noise.X_std)``, with means of groups by
        ``fit(noise.means, y_of_groups, X_std=noise.means_std)``. If they are correlated, train with
        ``GaussianNoise(factor=noise.factor)``, for means of n replicates with ``noise.factor / sqrt(n)``. If X is a
        frame, tables are returned as frames.

    Examples
    --------
    >>> noise = noise_from_replicates([[1.0, 5.0], [3.0, 5.0], [7.0, 4.0], [7.0, 6.0], [9.0, 9.0]], list("aabbc"), prior=0)
    >>> noise.std.round(3), noise.freedom, noise.errors
    (array([1., 1.]), 2, 'independent')
    >>> noise.X_std.round(3)
    array([[1.414, 0. ], [1.414, 0. ], [0. , 1.414], [0. , 1.414], [1. , 1. ]])
    >>> noise.means_std.round(3)
    array([[1., 0.], [0., 1.], [1., 1.]])
    """
    call = "noise_from_replicates(X, groups)"
    if not (prior in Number() or (isinstance(prior, float) and prior == np.inf)):
        raise ValueError(
            f"noise_from_replicates(X, groups, prior={short(prior):.80}): must be a number >= 0, or np.inf."
        )
    values, names = _table(X, values_missing, call)
    check_index(X, groups, "groups")
    first, codes = first_and_codes(one_a_row(groups, len(values), "groups", call), call)
    labels, known = np.asarray(groups)[first], ~np.isnan(values)
    counts = _sums(known.astype(np.float64), codes)
    freedom = known.sum(axis=0) - (counts > 0).sum(axis=0)
    if np.any(freedom == 0):
        where = "" if np.all(freedom == 0) else f" of column {names[int(np.argmin(freedom))]!r}"
        raise ValueError(
            f"{call}: no group has two rows{where}, so nothing is known of their errors. Check groups; pass errors "
            "that are known otherwise to fit as they are."
        )
    means = np.divide(
        _sums(np.where(known, values, 0.0), codes), counts, out=np.full(counts.shape, np.nan), where=counts > 0
    )
    residuals = np.where(known, values - means[codes], 0.0)
    squares = _sums(residuals**2, codes)
    pooled, own_freedom = squares.sum(axis=0) / freedom, np.maximum(counts - 1, 1)
    # a single row has no deviation of its own, whatever the prior
    share = np.where(counts <= 1, 1.0, 1.0 if np.isinf(prior) else prior / (prior + own_freedom))
    # the formula of the docstring, written as a mean of two variances, so that it holds for an infinite prior too
    std = np.sqrt(share * pooled + (1 - share) * squares / own_freedom)
    factor = _factor(residuals, codes) / np.sqrt(freedom)[:, None]
    disagreement = _disagreement(factor, np.sqrt(pooled), means)
    errors = "independent"
    if disagreement > DISAGREEING:
        n_features, n_free = values.shape[1], int(freedom.min())
        errors = "correlated" if n_free >= RESOLVED * n_features else "unresolved"
        advice = "Use GaussianNoise(factor=noise.factor), which keeps the correlations."
        if errors == "unresolved":
            advice = (
                f"But {n_free} degrees of freedom for {n_features} features are too few for GaussianNoise(factor=...): a model "
                "puts its weights where the factor has seen no errors, and calls itself certain. Reduce the features first "
                f"(PCA to {max(1, n_free // RESOLVED)} components or fewer), or measure more replicates; X_std ignores the "
                "correlations."
            )
        warn_caller(
            f"{call}: X_std takes the errors of features as independent, but those of the replicates are correlated: for one "
            f"random score in ten the standard deviations differ by a factor of {disagreement:.1f} or more. {advice}",
            UserWarning,
        )
    return ReplicateNoise(
        np.sqrt(pooled),
        factor,
        int(freedom.min()),
        like(X, np.where(known, std[codes], 0.0), names),
        like(X, means, names, labels),
        like(X, np.divide(std, np.sqrt(counts), out=np.zeros_like(std), where=counts > 0), names, labels),
        labels,
        errors,
        disagreement,
    )


def _table(X: Any, missing: str, call: str, side: str = "") -> tuple[Array, list[Any]]:
    """Return the values of a table, NaN where missing ones are allowed, and the names of its columns."""
    columns = columns_of(X, call)
    parts = [
        finite(column, f"{call}: {side}column {name!r}", KEPT, missing=missing) for name, column in columns.items()
    ]
    return np.column_stack(parts), list(columns)


def _sums(values: Array, codes: NDArray[np.intp]) -> Array:
    """Return the sums over the rows of each group."""
    return np.column_stack([np.bincount(codes, column) for column in values.T])


def _factor(residuals: Array, codes: NDArray[np.intp]) -> Array:
    """Return F with F F' = R'R, for residuals R that sum to 0 in each group.

    F has n_rows - n_groups columns, or n_features if that is less. It is made of Helmert's contrasts: each row minus
    the mean of the rows before it in its group, scaled.
    """
    # a group's contrasts are orthonormal and orthogonal to constants: as R sums to 0, they keep R'R, with one row fewer
    order = np.argsort(codes, kind="stable")
    contrasts = []
    for rows in np.split(residuals[order], np.cumsum(np.bincount(codes))[:-1]):
        k = np.arange(1, len(rows))[:, None]
        contrasts.append((rows[1:] - np.cumsum(rows, axis=0)[:-1] / k) * np.sqrt(k / (k + 1)))
    # F = T' for the triangle T of a QR decomposition: it needs no products R'R, whose squares would lose digits
    found = np.concatenate(contrasts)
    return found.T if len(found) <= found.shape[1] else np.asarray(np.linalg.qr(found, mode="r")).T


def _disagreement(factor: Array, std: Array, means: Array) -> float:
    """Return the factor, exceeded by one random score in ten, between deviations with and without correlations."""
    rng = np.random.default_rng(0)
    moved = std > 0
    if not np.any(moved):
        return 1.0
    unit, centred = factor[moved] / std[moved, None], means[:, moved] - np.nanmean(means[:, moved], axis=0)
    # fitted weights are combinations of rows: in their directions deviations may differ more, or less, than in others
    weights = rng.normal(size=(N_DIRECTIONS, len(means))) @ (np.nan_to_num(centred) / std[moved])
    found = []
    for directions in (rng.normal(size=(N_DIRECTIONS, len(unit))), weights):
        together, apart = norm(directions @ unit, axis=1), norm(directions, axis=1)
        ratios = np.divide(together, apart, out=np.ones(N_DIRECTIONS), where=apart > 0)
        with np.errstate(divide="ignore"):
            found.append(np.quantile(np.maximum(ratios, 1 / ratios), 0.9))
    return float(max(found))


@summarized
class RoundingErrors(NamedTuple):
    """The errors of rounded values, in the units of the features; numbers or arrays of shape (n_features,)."""

    std: Array
    """Their standard deviation: ``GaussianNoise(std=...)``."""
    half_widths: Array
    """Their largest absolute value: ``Box(half_widths=...)``."""


def noise_from_quantization(step: Any) -> RoundingErrors:
    r"""Return the errors of values that are rounded to multiples of a step h, taken as uniform in :math:`[-h/2, h/2]`.

    Their standard deviation is :math:`h / \sqrt{12}`.

    Parameters
    ----------
    step : float or array-like of shape (n_features,)
        The step h, in the units of the features; 0 means exact.

    Examples
    --------
    >>> noise = noise_from_quantization([1.0, 0.0])
    >>> noise.std.round(4), noise.half_widths
    (array([0.2887, 0.    ]), array([0.5, 0. ]))
    """
    try:
        steps = as_numbers(step)
    except TypeError:
        steps = np.array(np.nan)
    if steps.ndim > 1 or not steps.size or not np.all(np.isfinite(steps) & (steps >= 0)):
        raise ValueError(
            f"noise_from_quantization(step={short(step):.80}): step must be >= 0 and finite, one number or one a feature."
        )
    return RoundingErrors(steps / np.sqrt(12), steps / 2)


@summarized
class IntervalNoise(NamedTuple):
    """Midpoints of intervals, and standard deviations of uniform values in them; two tables (n_rows, n_features)."""

    X: Any
    """The midpoints."""
    X_std: Any
    """The standard deviations."""


@arguments(errors_missing=ERRORS_MISSING, values_missing=VALUES_MISSING)
def noise_from_intervals(
    lower: Any, upper: Any, *, errors_missing: str = "raise", values_missing: str = "raise"
) -> IntervalNoise:
    r"""Return values and errors for entries that are known as intervals only.

    A value that is uniform in [l, u] has the mean :math:`(l + u)/2` and the standard deviation :math:`(u - l)/\sqrt{12}`.

    Parameters
    ----------
    lower, upper : array-like or frame of shape (n_rows, n_features)
        The ends, lower <= upper; equal ends are exact values.
    errors_missing : {"raise", "median", "column maximum"}, default="raise"
        What to do if one end of an interval is missing (NaN): refuse it, or take its width to be the median or the
        maximum of the known widths in its column.
    values_missing : {"raise", "keep"}, default="raise"
        What to do if both ends of an interval are missing: refuse it, or keep the value missing, with error 0, for
        :class:`SpreadImputer` to fill in.

    Examples
    --------
    >>> noise = noise_from_intervals([[20.0], [40.0]], [[40.0], [40.0]])
    >>> noise.X.tolist(), noise.X_std.round(3).tolist()
    ([[30.0], [40.0]], [[5.774], [0.0]])
    """
    call = "noise_from_intervals(lower, upper)"
    (low, names), (high, others) = (
        _table(table, "keep", call, side) for table, side in ((lower, "lower, "), (upper, "upper, "))
    )
    if low.shape != high.shape or names != others:
        raise ValueError(f"{call}: lower and upper differ in shape or columns, {low.shape} and {high.shape}.")
    check_index(lower, upper, "upper", "lower")
    if np.any(low > high):
        row, column = map(int, np.argwhere(low > high)[0])
        raise ValueError(
            f"{call}: row {row} (from 0), column {names[column]!r}: lower is {low[row, column]:g}, above upper, "
            f"{high[row, column]:g}. Swap the ends."
        )
    with np.errstate(over="ignore"):
        widths, unknown = high - low, np.isnan(low) & np.isnan(high)
    if np.any(np.isinf(widths)):
        row, column = map(int, np.argwhere(np.isinf(widths))[0])
        raise ValueError(f"{call}: row {row} (from 0), column {names[column]!r}: its width overflows. Use other units.")
    for what, wrong, rule, cure in (
        ("both ends are", unknown, values_missing, KEPT),
        ("one end is", np.isnan(widths) & ~unknown, errors_missing, ONE_END),
    ):
        if rule == "raise" and np.any(wrong):
            row, column = map(int, np.argwhere(wrong)[0])
            raise ValueError(
                f"{call}: row {row} (from 0), column {names[column]!r}: {what} missing. {cure}Give finite numbers, or leave "
                "the row out."
            )
    for j, name in enumerate(names):
        known = ~unknown[:, j]
        if np.any(np.isnan(widths[known, j])):
            widths[known, j] = known_errors(widths[known, j], errors_missing, f"{call}: column {name!r}")
    low, high = np.where(np.isnan(low), high - widths, low), np.where(np.isnan(high), low + widths, high)
    std = np.where(unknown, 0.0, widths / np.sqrt(12))
    return IntervalNoise(like(lower, 0.5 * low + 0.5 * high, names), like(lower, std, names))
