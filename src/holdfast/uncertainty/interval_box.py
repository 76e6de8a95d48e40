"""Intervals around features; a feature need not be in the middle of its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.allowed import LARGEST
from holdfast._core.arithmetic import dense
from holdfast._core.exceptions import UnstatedError
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import numbers, per_entry, per_feature, stated
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_boxes import RowBoxes
from holdfast.uncertainty.sized import SizedSet


class IntervalBox(SizedSet):
    r"""The box :math:`r\,l_{ij} \le \delta_{ij} \le r\,u_{ij}`, :math:`l \le 0 \le u`: errors larger on one side.

    It raises a score by at most :math:`r \sum_j \max(l_{ij} w_j, u_{ij} w_j)`.

    Parameters
    ----------
    lower, upper : float or array-like of shape (n_features,), default=None
        The ends of each feature's error, lower <= 0 and upper >= 0, common to all rows, in the units of the features.
    radius : float, default=1.0
        r, which multiplies `lower` and `upper`, or the distances of ``X_lower`` and ``X_upper`` from X.

    Notes
    -----
    Intervals that differ by row go to ``fit`` as ``X_lower`` and ``X_upper``, arrays or sparse matrices of shape
    (n_samples, n_features) with X_lower <= X <= X_upper: the ends of the intervals, not their distances from X.

    Examples
    --------
    >>> X = np.array([[1.0, 5.0]])
    >>> box = IntervalBox(lower=-1.0, upper=[0.0, 2.0]).at(X, {})
    >>> box.support(np.array([3.0, 1.0])), box.support(np.array([-3.0, -1.0]))
    (array([2.]), array([4.]))
    >>> IntervalBox().at(X, {"X_lower": [[0.0, 4.0]], "X_upper": [[1.0, 7.0]]}).support(np.array([3.0, 1.0]))
    array([2.])
    """

    size_parameters = ("lower", "upper")
    metadata = ("X_lower", "X_upper")
    size_name = "intervals"

    def __init__(self, lower: Any = None, upper: Any = None, *, radius: Any = 1.0):
        self.lower = lower
        self.upper = upper
        self.radius = radius

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        size, own = self._radius(), stated(self, metadata)
        common = [name for name in ("lower", "upper") if getattr(self, name) is not None]
        if common and own:
            raise ValueError(
                f"{self!r} together with {next(iter(own))}: the intervals are stated twice. Give one of them."
            )
        if len(common or own) < 2:
            raise UnstatedError(
                f"{self!r}: an interval has two ends. Give lower and upper (0 for errors that go one way only), or pass "
                "X_lower and X_upper."
            )
        lower, upper = row_offsets(X, own) if own else self._offsets(X.shape[1])
        # in place, to save an array of the size of X
        half, centre = upper - lower, upper + lower
        half *= 0.5 * size
        centre *= 0.5 * size
        is_around_zero = not np.any(centre.data if sparse.issparse(centre) else centre)
        if common and is_around_zero:
            return CommonBox(half[0])
        return RowBoxes(half, None if is_around_zero else centre, np.ones(X.shape[0]))

    def _offsets(self, n_features: int) -> tuple[Array, Array]:
        lower, upper = (
            np.broadcast_to(
                per_feature(getattr(self, name), n_features, f"IntervalBox({name}=...)", name), (1, n_features)
            )
            for name in ("lower", "upper")
        )
        if np.any(lower > 0) or np.any(upper < 0):
            raise ValueError(f"{self!r}: lower must be <= 0 and upper >= 0; they are distances from a feature's value.")
        return lower, upper

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if not metadata:
            return self, {}
        lower, upper = row_offsets(X, metadata)
        return self, {"X_lower": lower, "X_upper": upper}

    def at_rows(self, X: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        values = numbers(X, "X=...", "X")
        is_sparse = sparse.issparse(values) and all(sparse.issparse(end) for end in metadata.values())
        return {name: values + end if is_sparse else dense(values) + dense(end) for name, end in metadata.items()}

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if not metadata or not map.is_monomial:
            return super().image(map, metadata)
        ends = [map.columns(metadata[name], map.scales) for name in ("X_lower", "X_upper")]
        # a negative scale swaps the ends of an interval
        return self, {"X_lower": sum((end < 0) * end for end in ends), "X_upper": sum((end > 0) * end for end in ends)}

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        lower, upper = -rng.uniform(0.1, 1, size=(5, 3)), rng.uniform(0.1, 2, size=(5, 3))
        thin = sparse.csr_array([[1.0, 0, 2], [0, 0.5, 0], [3, 0, 1], [0.2, 0.7, 0], [0, 0, 1]])
        return [
            (cls(-0.5, [0.1, 2.0, 0.5]), {}),
            (cls(-0.5, 0.5), {}),
            (cls(0.0, [1.0, 0.1, 2.0]), {}),
            (cls(radius=0.5), {"X_lower": lower, "X_upper": upper}),
            (cls(radius=0.2), {"X_lower": -0.3 * thin, "X_upper": thin}),
        ]


def row_offsets(X: Any, own: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the ends of the intervals minus X, both sparse or both arrays."""
    home = "IntervalBox(lower=..., upper=...)"
    if isinstance(X, np.ndarray) and (quick := _quick_offsets(X, own)) is not None:
        return quick
    ends = [per_entry(own[name], X.shape, name, home) for name in ("X_lower", "X_upper")]
    values = numbers(X, "X=...", "X", copy=False)
    is_sparse = all(sparse.issparse(end) for end in [values, *ends])
    below, above = ((end if is_sparse else dense(end)) - (values if is_sparse else dense(values)) for end in ends)
    # values rounded to float32 may lie outside ends given in float64
    slack = np.finfo(X.dtype).eps * abs(values if is_sparse else dense(values)) if X.dtype.kind == "f" else 0.0 * below
    for name, offset, is_wrong in (("X_lower", below, below > slack), ("X_upper", above, above < -slack)):
        if np.any(is_wrong.data if sparse.issparse(is_wrong) else is_wrong):
            i, j = (int(index[0]) for index in is_wrong.nonzero())
            side, entry = "above" if name == "X_lower" else "below", f"[{i}, {j}]"
            raise ValueError(
                f"{name}{entry} is {side} X{entry} by {abs(offset[i, j]):g}. An interval contains its "
                "value: widen it, or move X into it with np.clip(X, X_lower, X_upper)."
            )
    if not is_sparse:
        return np.minimum(below, 0.0), np.maximum(above, 0.0)
    # multiplying by a comparison keeps the arrays sparse; clipping would not
    return (below < 0) * below, (above > 0) * above


def _quick_offsets(X: Array, own: Mapping[str, Any]) -> tuple[Array, Array] | None:
    """Return the offsets quickly if the intervals are faultless arrays; None for all others, which need closer checks.

    If X_lower <= X <= X_upper, the extreme ends bound all numbers, so four extremes replace a check of each number.
    """
    lower, upper = own["X_lower"], own["X_upper"]
    if not all(
        isinstance(one, np.ndarray) and one.dtype.kind == "f" and one.shape == X.shape for one in (X, lower, upper)
    ):
        return None
    values = X.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        below, above = (end.astype(np.float64, copy=False) - values for end in (lower, upper))
    is_around = below.max(initial=0.0) <= 0 <= above.min(initial=0.0)  # False where there is a NaN
    is_small = lower.min(initial=0.0) >= -LARGEST and upper.max(initial=0.0) <= LARGEST
    return (below, above) if is_around and is_small else None
