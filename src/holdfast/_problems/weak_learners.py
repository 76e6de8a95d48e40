"""Weak learners: the columns of X, stumps, ramps, or given functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.utils.sparsefuncs import min_max_axis

from holdfast._core.allowed import as_numbers, short
from holdfast._core.arithmetic import dense
from holdfast._core.loss import Array
from holdfast._data.outputs import DenseOutputs, Outputs, SparseOutputs
from holdfast._data.stump_outputs import StumpOutputs
from holdfast.features.averaged import Ramp
from holdfast.features.expected_features import quantile_knots

ROUNDED = 1e-12
"""A column counts as constant if its deviation is no larger than this share of its values."""
MOST = 10**7
"""Largest number of stumps or ramps."""


class Learners(ABC):
    """Fitted weak learners, followed by a constant one if there is an intercept."""

    owners: NDArray[np.intp]
    """Index of the feature, or of the given function, of each learner; -1 for the constant."""
    limits: Array | None = None
    """Divisors of the columns, if the learners are columns."""

    def __init__(self, has_constant: bool, reason: str):
        self.has_constant = has_constant
        self.reason = reason
        """Why the learners depend on the training rows; empty if they do not."""

    @property
    def n_learners(self) -> int:
        """Number of learners, the constant included."""
        return len(self.owners)

    @abstractmethod
    def outputs(self, X: Any, X_std: Array | None) -> Outputs:
        """Return the learners' outputs on rows, averaged over the noise of each entry."""

    def importances(self, means: Array, scales: Array) -> tuple[Array, Array]:
        """Return each owner's sum of absolute means, as a share of the total, and the deviation of its weights' sum.

        Means and scales of the weights have the shape (n_problems, n_learners). The constant learner is left out.
        """
        own = self.owners >= 0
        n = int(self.owners.max(initial=-1)) + 1
        sizes = np.bincount(self.owners[own], np.abs(means[:, own]).mean(axis=0), n)
        # a Laplace variable of scale s has the variance 2 s^2
        spreads = np.sqrt(np.bincount(self.owners[own], 2 * np.square(scales[:, own]).mean(axis=0), n))
        total = sizes.sum() or 1.0
        return sizes / total, spreads / total

    def _owned(self, counts: Sequence[int]) -> NDArray[np.intp]:
        owners = np.repeat(np.arange(len(counts)), counts)
        return np.append(owners, -1) if self.has_constant else owners

    def _with_constant(self, values: Array) -> Outputs:
        return DenseOutputs(np.column_stack([values, np.ones(len(values))]) if self.has_constant else values)


class Columns(Learners):
    """The columns of X, divided by their limits."""

    limits: Array

    def __init__(self, limits: Array, has_constant: bool, reason: str):
        super().__init__(has_constant, reason)
        self.limits, self.owners = limits, self._owned([1] * len(limits))

    def outputs(self, X: Any, X_std: Array | None) -> Outputs:
        if not sparse.issparse(X):
            values = np.empty((X.shape[0], self.n_learners), order="F")
            values[:, X.shape[1] :] = 1.0
            np.divide(X, self.limits, out=values[:, : X.shape[1]])
            return DenseOutputs(values)
        scaled = X @ sparse.diags_array(1 / self.limits)
        ones = [np.ones((X.shape[0], 1))] * self.has_constant
        return SparseOutputs(sparse.hstack([scaled, *ones], format="csr"))


class Stumps(Learners):
    r"""1 where a column is above a threshold, else -1; on average :math:`2 \Phi((x - \theta) / s) - 1`."""

    def __init__(self, thresholds: Sequence[Array], has_constant: bool, reason: str):
        super().__init__(has_constant, reason)
        self.thresholds = list(thresholds)
        self.owners = self._owned([len(own) for own in thresholds])

    def outputs(self, X: Any, X_std: Array | None) -> Outputs:
        X = dense(X)
        if X_std is None:
            codes = np.array(
                [np.searchsorted(own, x) for own, x in zip(self.thresholds, X.T, strict=True)], dtype=np.intp
            )
            return StumpOutputs(codes, [len(own) for own in self.thresholds], self.has_constant)
        parts = []
        for own, x, s in zip(self.thresholds, X.T, X_std.T, strict=True):
            apart = x[:, None] - own
            exact = np.where(apart > 0, 1.0, -1.0)
            with np.errstate(over="ignore"):
                far = np.divide(apart, s[:, None], out=np.zeros_like(apart), where=s[:, None] > 0)
            parts.append(np.where(s[:, None] > 0, 2 * ndtr(far) - 1, exact))
        return self._with_constant(np.hstack(parts))


class Ramps(Learners):
    """-1 below a knot, 1 above the next knot and linear in between, with averages in closed form."""

    def __init__(self, knots: Sequence[Array], has_constant: bool, reason: str):
        super().__init__(has_constant, reason)
        self.knots = list(knots)
        self.owners = self._owned([len(own) - 1 for own in knots])

    def outputs(self, X: Any, X_std: Array | None) -> Outputs:
        X, parts = dense(X), []
        for j, own in enumerate(self.knots):
            widths = np.diff(own)
            curve = Ramp(widths, is_last=np.arange(len(widths)) == len(widths) - 1)
            # ramps are constant beyond the outer knots, so that clipped values give the same
            apart = np.clip(X[:, [j]], own[0], own[-1]) - own[:-1] if X_std is None else X[:, [j]] - own[:-1]
            if X_std is None:
                means = curve.value(apart)
            else:
                means = curve.mean(apart, np.broadcast_to(X_std[:, [j]], apart.shape))
            parts.append(2 * np.clip(means / widths, 0.0, 1.0) - 1)
        return self._with_constant(np.hstack(parts))


class Given(Learners):
    """Functions from rows to numbers from -1 to 1."""

    def __init__(self, functions: Sequence[Any], has_constant: bool, call: str):
        super().__init__(has_constant, "")
        self.functions, self.call, self.owners = list(functions), call, self._owned([1] * len(functions))

    def outputs(self, X: Any, X_std: Array | None) -> Outputs:
        columns = []
        for number, learner in enumerate(self.functions):
            said = learner.predict(X) if hasattr(learner, "predict") else learner(X)
            try:
                values = np.asarray(said, dtype=np.float64).ravel()
            except (TypeError, ValueError):
                values = np.zeros(0)
            if values.shape != (X.shape[0],) or not np.all(np.abs(values) <= 1):
                raise ValueError(
                    f"{self.call}: learner {number} ({short(learner):.80}) returned {short(said):.80}. Give functions, or "
                    "fitted classifiers of the classes -1 and 1, that return a number from -1 to 1 for each row."
                )
            columns.append(values)
        return self._with_constant(np.column_stack(columns))


def per_learner(value: Any, n_given: int, call: str, name: str) -> Array:
    """Return finite numbers, one for each learner but the constant."""
    said = f"{call}({name}={short(value):.60})"
    try:
        out = as_numbers(value)
    except TypeError:
        raise ValueError(f"{said}: give real numbers.") from None
    if out.shape not in ((), (n_given,)):
        raise ValueError(
            f"{said}: {name} has shape {out.shape}; give one number, or one for each of the {n_given} learners without the "
            f"intercept, ({n_given},)."
        )
    if not np.all(np.isfinite(out)):
        raise ValueError(f"{said}: must be finite numbers.")
    return np.broadcast_to(out, n_given)


def learn(
    base: Any,
    X: Any,
    weights: Array,
    *,
    feature_range: Any,
    n_knots: int,
    has_constant: bool,
    needs_limits: bool,
    call: str,
) -> Learners:
    """Return the weak learners of a base, from declared ranges or else from the rows with a positive weight."""
    if not isinstance(base, str):
        return Given(base, has_constant, f"{call}(base=[...])")
    if base != "linear" and n_knots * X.shape[1] > MOST:
        raise ValueError(
            f"{call}(base={base!r}, n_knots={n_knots}): {X.shape[1]} columns would make {n_knots * X.shape[1]} learners, more "
            f"than {MOST:.0e}. Use a smaller n_knots."
        )
    declared = None if feature_range is None else checked_range(feature_range, X.shape[1], call)
    reason = (
        "" if declared is not None else f"base={base!r} without feature_range takes its grid from the training rows"
    )
    if base == "linear":
        if declared is None and not needs_limits:
            return Columns(np.ones(X.shape[1]), has_constant, "")
        low, high = declared if declared is not None else min_max(X, weights)
        limits = np.maximum(np.abs(low), np.abs(high))
        reason = reason and "base='linear' without feature_range divides columns by their largest training values"
        return Columns(np.where(limits > 0, limits, 1.0), has_constant, reason)
    if declared is not None:
        cells = [np.linspace(low, high, n_knots + 1) for low, high in zip(*declared, strict=True)]
    else:
        cells = [quantile_knots(x, weights, n_knots, _spread(x, weights)) for x in dense(X).T]
    if base == "splines":
        return Ramps(cells, has_constant, reason)
    return Stumps([np.array([0.5 * a + 0.5 * b for a, b in pairwise(own)]) for own in cells], has_constant, reason)


def checked_range(feature_range: Any, n_features: int, call: str) -> tuple[Array, Array]:
    """Return the declared lowest and highest value of each feature."""
    try:
        ends = np.asarray(feature_range, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        ends = np.zeros(0)
    if (
        ends.shape not in ((2,), (n_features, 2))
        or not np.all(np.isfinite(ends))
        or np.any(ends[..., 0] >= ends[..., 1])
    ):
        raise ValueError(
            f"{call}(feature_range={short(feature_range):.80}): give (low, high) with low < high, for all features or for each "
            f"in an array of shape ({n_features}, 2)."
        )
    low, high = np.broadcast_to(ends, (n_features, 2)).T
    return low, high


def min_max(X: Any, weights: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest entry of each column over the rows with a positive weight."""
    rows = X if np.all(weights > 0) else X[np.flatnonzero(weights)]
    if sparse.issparse(rows):
        low, high = min_max_axis(rows, axis=0)
        return np.asarray(low), np.asarray(high)
    return rows.min(axis=0), rows.max(axis=0)


def _spread(x: Array, weights: Array) -> float:
    """Return the deviation of a column, or 1 if it is constant up to rounding."""
    mean = np.average(x, weights=weights)
    deviation = np.sqrt(np.average(np.square(x - mean), weights=weights))
    return float(deviation) if deviation > ROUNDED * np.abs(x).max() else 1.0
