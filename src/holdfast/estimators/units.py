"""A warning if errors are larger than the variation of the rows, a sign of wrong units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import csc_median_axis_0, mean_variance_axis

from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import UnitsWarning
from holdfast._core.loss import Array

LARGE = 2.0
"""Columns whose median error exceeds this many standard deviations are named.

For a column of pure noise it is near 1, or near 2 if half-widths are stated.
"""
FEW_ROWS = 20
"""With fewer rows a standard deviation says too little."""
CONSTANT = 1e-8
"""Columns that vary by no more than this share of their mean are constant up to rounding."""
NEARLY_ALL = 0.9
"""Columns with one value in more than this share of the rows are skipped: the few others say little about spread."""
LOOKED_AT = 1e6
"""About how many entries are examined; if there are more, only evenly spaced rows are."""
NAMED = 5
"""How many columns a warning names at most."""
_is_looked_at = ContextVar("_is_looked_at", default=False)


@contextmanager
def units_looked_at() -> Iterator[None]:
    """Return a context in which fits do not check units, as they were checked before the rows were transformed."""
    token = _is_looked_at.set(True)
    try:
        yield
    finally:
        _is_looked_at.reset(token)


def warn_of_units(
    X: Any,
    metadata: Mapping[str, Any],
    call: str,
    *,
    factor: float = 1.0,
    columns: Sequence[Any] | None = None,
) -> None:
    """Warn if the errors in checked metadata are larger than the standard deviations of the columns of X.

    `call` is the name of the call in the message. `factor` multiplies the errors, as far as it is below 1: a factor
    above 1 is no sign of wrong units. `columns` are the names of the columns, by default those of X.
    """
    stated = {key: value for key, value in metadata.items() if value is not None and key != "X_radius"}
    if not stated or _is_looked_at.get():
        return
    names = list(getattr(X, "columns", ())) if columns is None else list(columns)
    X = X if sparse.issparse(X) else np.asarray(X)
    n_samples, n_features = X.shape
    if n_samples < FEW_ROWS:
        return
    step = max(1, n_samples // max(FEW_ROWS, int(LOOKED_AT / n_features)))
    spread = _spreads(X[::step])
    errors = _errors({key: _numbers(value)[::step] for key, value in stated.items()})
    typical = min(factor, 1.0) * _medians(errors)
    large = np.flatnonzero(typical > LARGE * spread)
    if len(large):
        shown = [repr(names[j]) if names else str(j) for j in large]
        worst = large[np.argmax(typical[large] / spread[large])]
        warn_caller(
            f"{call}(..., {'=..., '.join(stated)}=...): these errors are larger than the rows vary in {len(large)} of "
            f"{n_features} columns: {', '.join(shown[:NAMED])}{', ...' * (len(shown) > NAMED)}. At worst the median error "
            f"is {typical[worst]:.3g} and the standard deviation of the column {spread[worst]:.3g}. Likely causes: X was "
            "scaled and its errors were not (scikit-learn's Pipeline does not scale them: use UncertainPipeline); errors in "
            "other units than X; variances in the place of deviations; X and its errors the wrong way round. If rows to come "
            "are noisier than these, state that as a factor, as noise=4 or Box(4). If the errors are right, ignore this "
            "UnitsWarning.",
            UnitsWarning,
        )


def _numbers(values: Any) -> Any:
    return sparse.csr_array(values) if sparse.issparse(values) else np.asarray(values, dtype=np.float64)


def _spreads(X: Any) -> Array:
    """Return the standard deviation of each column's known entries; inf for a column that is (nearly) constant."""
    if sparse.issparse(X):
        means, variances = mean_variance_axis(sparse.csr_matrix(X, dtype=np.float64), axis=0)
        spreads, middles, stored = np.sqrt(variances), _medians(X), sparse.csc_array(X)
        counts = np.diff(stored.indptr)
        columns = np.repeat(np.arange(len(middles)), counts)
        same = np.bincount(columns, stored.data == middles[columns], len(middles))
        shares = (same + np.where(middles == 0, X.shape[0] - counts, 0)) / X.shape[0]
    else:
        known = np.ma.masked_invalid(np.asarray(X, dtype=np.float64))
        middles = np.ma.median(known, axis=0)
        parts = known.mean(axis=0), known.std(axis=0), (known == middles).mean(axis=0)
        means, spreads, shares = (np.ma.filled(part, 0.0) for part in parts)
    return np.where((spreads > CONSTANT * np.abs(means)) & (shares <= NEARLY_ALL), spreads, np.inf)


def _medians(errors: Any) -> Array:
    """Return the median of each column."""
    if sparse.issparse(errors):
        return np.asarray(csc_median_axis_0(sparse.csc_matrix(errors)))
    return np.asarray(np.median(errors, axis=0))


def _errors(stated: Mapping[str, Any]) -> Any:
    """Return the standard deviation, or half-width, of each entry's error."""
    if "X_std" in stated:
        return stated["X_std"]
    if "X_cov" in stated:
        return np.sqrt(np.maximum(np.diagonal(stated["X_cov"], axis1=1, axis2=2), 0.0))
    if "X_factor" in stated:
        return np.sqrt(np.square(stated["X_factor"]).sum(axis=2))
    return 0.5 * (stated["X_upper"] - stated["X_lower"])
