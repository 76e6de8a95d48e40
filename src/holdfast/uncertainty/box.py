"""Boxes around each row: each feature has an error of limited size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import rescaled
from holdfast._core.row_plus_sparse import regular
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import at_most_one, nonnegative, per_entry, per_feature, stated
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_boxes import RowBoxes
from holdfast.uncertainty.sized import SizedSet

MOST_DEVIATIONS = 0.1
"""If at most this share of the half-widths differs from a common row, that row is stored once."""


class Box(SizedSet):
    r"""The box :math:`|\delta_{ij}| \le r\, s_{ij}`: each feature has an error of limited size, whatever the others do.

    It changes a score by at most :math:`r \sum_j s_{ij} |w_j|`.

    Parameters
    ----------
    radius : float, default=None
        r, which multiplies the half-widths, whichever way they are stated. None means r = 1.
    half_widths : float or array-like of shape (n_features,), default=None
        s, common to all rows, in the units of the features.
    relative : float or array-like of shape (n_features,), default=None
        :math:`s_{ij} = \mathrm{relative}_j |x_{ij}|`: 0.05 for values that are right to within 5 percent. Zeros are
        then exact, so a sparse X has sparse half-widths.

    Notes
    -----
    Half-widths that differ by row go to ``fit`` as ``X_std``, an array or a sparse matrix of shape (n_samples,
    n_features). Give at most one of `half_widths`, `relative` and ``X_std``. Without any of them s = 1 and the radius
    is required: ``Box(0.1)`` allows 0.1 in the unit of every feature, and ``Box()`` without ``X_std`` is an error. If
    nine in ten entries of a large array equal those of one common row, only the others are stored. For a sparse X with
    half-widths that are nowhere 0, state the common row yourself, ``Box(half_widths=s) + Box()``, and pass the excess
    over it as a sparse ``X_std``.

    Examples
    --------
    >>> X, w = np.array([[10.0, 0.0], [20.0, 5.0]]), np.array([3.0, -1.0])
    >>> float(Box(0.5).at(X, {}).support(w))
    2.0
    >>> Box(relative=0.1).at(X, {}).support(w)
    array([3. , 6.5])
    """

    size_parameters = ("radius", "half_widths", "relative")
    metadata = ("X_std",)
    size_name = "half-widths"

    def __init__(self, radius: Any = None, *, half_widths: Any = None, relative: Any = None):
        self.radius = radius
        self.half_widths = half_widths
        self.relative = relative

    @property
    def open_metadata(self) -> tuple[str, ...]:
        is_settled = self.half_widths is not None or self.relative is not None
        return () if is_settled else self.metadata

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        n_features, size, own = X.shape[1], self._radius(), stated(self, metadata)
        common = {name: getattr(self, name) for name in ("half_widths", "relative")}
        common = {name: value for name, value in common.items() if value is not None}
        at_most_one([*common, *own])
        if own:
            widths = nonnegative(
                per_entry(own["X_std"], X.shape, "X_std", "Box(half_widths=...)"), "X_std=...", "X_std"
            )
            return _boxes(size * widths)
        if not common:
            return CommonBox(np.full(n_features, self._radius_alone()))
        [(name, value)] = common.items()
        call = f"Box({name}=...)"
        widths = np.broadcast_to(nonnegative(per_feature(value, n_features, call, name), call, name), n_features)
        return CommonBox(size * widths) if name == "half_widths" else RowBoxes(_shares(X, size * widths))

    def as_errors(self, X: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if self.relative is None:
            return self, dict(metadata)
        boxes = self.at(X, metadata)
        form = boxes.interval_form()
        assert form is not None
        return Box(), {"X_std": form.own}

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if metadata and map.is_monomial:
            return self, map.cloud(metadata)
        return super().image(map, metadata)

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        widths = sparse.csr_array([[1.0, 0, 2], [0, 0.5, 0], [3, 0, 1], [0.2, 0.7, 0], [0, 0, 1]])
        return [
            (cls(0.4), {}),
            (cls(0.5, half_widths=[1.0, 0.6, 4.0]), {}),
            (cls(0.2), {"X_std": widths.toarray() + 0.1}),
            (cls(0.2), {"X_std": widths}),
        ]


def _boxes(widths: Any) -> RowBoxes:
    """Return the boxes with these half-widths. A row that most entries of an array agree with is stored once."""
    # passes over the rows, and linear programs, then handle the deviations only instead of all entries
    found = None if sparse.issparse(widths) else regular(widths, MOST_DEVIATIONS)
    return RowBoxes(widths) if found is None else RowBoxes(found.rest, common=found.row)


def _shares(X: Any, columns: Any) -> Any:
    """Return \\|x_ij\\| * columns_j, an array or a CSR array."""
    size = abs(sparse.csr_array(X, dtype=np.float64)) if sparse.issparse(X) else np.abs(np.asarray(X, dtype=np.float64))
    return rescaled(size, np.ones(X.shape[0]), columns)
