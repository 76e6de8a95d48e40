"""How large errors are, found from replicates, from rounding, from intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import Number, arguments, as_numbers, short
from holdfast.datasets.measurements import columns_of, finite, first_and_codes, like, one_a_row

Array = NDArray[np.float64]


class ReplicateNoise(NamedTuple):
    """What replicates tell of the errors of measurements, in the units of the features."""

    std: Array
    """The pooled standard deviation of one measurement, shape (n_features,): ``GaussianNoise(std=...)``."""
    cov: Array
    """The pooled covariance of one measurement's errors, shape (n_features, n_features): ``GaussianNoise(cov=...)``."""
    freedom: int
    """Degrees of freedom of both: the number of rows less that of groups."""
    X_std: Any
    """The standard deviation of each row's own measurement, shape (n_rows, n_features)."""
    means: Any
    """The mean of each group, shape (n_groups, n_features)."""
    means_std: Any
    """The standard error of each group's mean, shape (n_groups, n_features): ``X_std`` of the means."""
    groups: NDArray[Any]
    """The labels of the groups in the order of their first appearance, shape (n_groups,)."""


@arguments()
def noise_from_replicates(X: Any, groups: Any, *, prior: float = 4.0) -> ReplicateNoise:
    r"""Return how large errors are, from samples that were measured several times.

    With the residuals :math:`r_i = x_i - \bar x_{g(i)}` of N rows from the means of their G groups, the pooled covariance is
    :math:`C = \sum_i r_i r_i^\top / (N - G)`, without bias. Deviations by group, for errors that differ between samples, are
    drawn towards the pooled ones, as few replicates tell little:

    .. math:: s_g^2 = \frac{\nu\,C_{jj} + \sum_{i \in g} r_{ij}^2}{\nu + n_g - 1} .

    A group of one row has the pooled deviation.

    Parameters
    ----------
    X : array-like or frame of shape (n_rows, n_features)
        A row for each measurement, none missing (:func:`intervals_from_replicates` takes missing ones).
    groups : array-like of shape (n_rows,)
        Which sample a row measures; rows with equal labels are replicates and need not be neighbours.
    prior : float, default=4.0
        :math:`\nu`, as how many degrees of freedom the pooled deviation counts in that of a group. 0: each group for itself;
        ``np.inf``: the same for all.

    Returns
    -------
    ReplicateNoise
        Rows as they are go to ``fit(X, y, X_std=noise.X_std)``, means of groups to ``fit(noise.means, y_of_groups,
        X_std=noise.means_std)``. Frames come back for frames.

    Examples
    --------
    >>> noise = noise_from_replicates([[1.0, 5.0], [3.0, 5.0], [7.0, 4.0], [7.0, 6.0], [9.0, 9.0]], list("aabbc"), prior=0)
    >>> noise.std.round(3), noise.freedom
    (array([1., 1.]), 2)
    >>> noise.X_std.round(3)
    array([[1.414, 0. ], [1.414, 0. ], [0. , 1.414], [0. , 1.414], [1. , 1. ]])
    >>> noise.means_std.round(3)
    array([[1., 0.], [0., 1.], [1., 1.]])
    """
    call = "noise_from_replicates(X, groups)"
    if not (prior in Number() or (isinstance(prior, float) and prior == np.inf)):
        raise ValueError(f"noise_from_replicates(X, groups, prior={prior!r}): must be a number >= 0, or np.inf.")
    columns = columns_of(X, call)
    values = np.column_stack([finite(column, f"{call}: column {name!r}") for name, column in columns.items()])
    first, codes = first_and_codes(one_a_row(groups, len(values), "groups", call), call)
    labels, counts = np.asarray(groups)[first], np.bincount(codes)
    freedom = len(values) - len(counts)
    if freedom == 0:
        raise ValueError(
            f"{call}: no group has two rows, so nothing is known of their errors. Check groups; errors known otherwise go to "
            "fit as they are."
        )
    means = _sums(values, codes) / counts[:, None]
    residuals = values - means[codes]
    cov = residuals.T @ residuals / freedom
    pooled, squares = np.diag(cov), _sums(residuals**2, codes)
    own_freedom = np.maximum(counts - 1, 1)
    # a single row has no deviation of its own, whatever the prior
    share = np.where(counts == 1, 1.0, 1.0 if np.isinf(prior) else prior / (prior + own_freedom))[:, None]
    std = np.sqrt(share * pooled + (1 - share) * squares / own_freedom[:, None])
    names = list(columns)
    return ReplicateNoise(
        np.sqrt(pooled),
        cov,
        freedom,
        like(X, std[codes], names),
        like(X, means, names, labels),
        like(X, std / np.sqrt(counts)[:, None], names, labels),
        labels,
    )


def _sums(values: Array, codes: NDArray[np.intp]) -> Array:
    """Return the sums over the rows of each group."""
    return np.column_stack([np.bincount(codes, column) for column in values.T])


class RoundingErrors(NamedTuple):
    """The errors of rounded values, in the units of the features; numbers or arrays of shape (n_features,)."""

    std: Array
    """Their standard deviation: ``GaussianNoise(std=...)``."""
    half_widths: Array
    """Their largest size: ``Box(half_widths=...)``."""


def noise_from_quantization(step: Any) -> RoundingErrors:
    r"""Return the errors of values that are rounded to multiples of a step h: uniform in :math:`[-h/2, h/2]`.

    Their standard deviation is :math:`h / \sqrt{12}`.

    Parameters
    ----------
    step : float or array-like of shape (n_features,)
        In the units of the features; 0 means exact.

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
    if steps.ndim > 1 or not np.all(np.isfinite(steps) & (steps >= 0)):
        raise ValueError(
            f"noise_from_quantization(step={short(step):.80}): step must be >= 0 and finite, one number or one a feature."
        )
    return RoundingErrors(steps / np.sqrt(12), steps / 2)


class IntervalNoise(NamedTuple):
    """Middles of intervals and the deviation of values that are uniform in them, tables of shape (n_rows, n_features)."""

    X: Any
    """The middles."""
    X_std: Any
    """Their standard deviation."""


@arguments()
def noise_from_intervals(lower: Any, upper: Any) -> IntervalNoise:
    r"""Return values and errors for features of which only an interval is known.

    A value that is uniform in [l, u] has the mean :math:`(l + u)/2` and the standard deviation :math:`(u - l)/\sqrt{12}`.

    Parameters
    ----------
    lower, upper : array-like or frame of shape (n_rows, n_features)
        The ends, lower <= upper; equal ends are exact values.

    Examples
    --------
    >>> noise = noise_from_intervals([[20.0], [40.0]], [[40.0], [40.0]])
    >>> noise.X.tolist(), noise.X_std.round(3).tolist()
    ([[30.0], [40.0]], [[5.774], [0.0]])
    """
    call = "noise_from_intervals(lower, upper)"
    named = [columns_of(table, call) for table in (lower, upper)]
    low, high = (
        np.column_stack([finite(column, f"{call}: {side}, column {name!r}") for name, column in columns.items()])
        for side, columns in zip(("lower", "upper"), named, strict=True)
    )
    if low.shape != high.shape or list(named[0]) != list(named[1]):
        raise ValueError(f"{call}: lower and upper differ in shape or columns, {low.shape} and {high.shape}.")
    if np.any(low > high):
        row, column = map(int, np.argwhere(low > high)[0])
        raise ValueError(
            f"{call}: row {row} (from 0), column {list(named[0])[column]!r}: lower is {low[row, column]:g}, above upper, "
            f"{high[row, column]:g}. Swap the ends."
        )
    names = list(named[0])
    return IntervalNoise(like(lower, 0.5 * low + 0.5 * high, names), like(lower, (high - low) / np.sqrt(12), names))
