"""Rows and their metadata, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight, _num_samples

from holdfast._core.allowed import short
from holdfast._core.arithmetic import dense, has_nan
from holdfast._core.labels import check_index, column_name, known_columns
from holdfast._core.rounding import coarsest
from holdfast._core.row_forms import Array

BY_ENTRY = ("X_std", "X_lower", "X_upper")


def numbers_of(X: Any) -> Any:
    """Return rows as a float array or CSR array; values that are not numbers, such as categories, become NaN."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=np.float64)
    if np.iscomplexobj(values := np.asarray(X)):
        raise ValueError("X: Complex data not supported. Give real numbers.")
    if values.ndim != 2:
        raise ValueError(
            f"X has shape {values.shape}, not (n_samples, n_features). Reshape your data: X.reshape(-1, 1), say."
        )
    if values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    columns = [np.asarray(X[name]) for name in X.columns] if hasattr(X, "columns") else values.T
    return np.column_stack([_column(column) for column in columns]) if len(columns) else np.zeros(values.shape)


def beside(tables: Sequence[Any]) -> Any:
    """Return several tables of the same rows as one, a CSR array if one of them is sparse."""
    is_sparse = any(sparse.issparse(table) for table in tables)
    return sparse.csr_array(sparse.hstack(tables)) if is_sparse else np.hstack(tables)


def is_flat(X: Any) -> bool:
    """Return whether X is a single column, such as a list of texts, not a table."""
    if hasattr(X, "shape"):
        return len(X.shape) == 1
    return isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], str | bytes | Mapping)


def n_columns(X: Any) -> int:
    """Return the number of columns of a table; a list of texts has one."""
    if is_flat(X):
        return 1
    return int(X.shape[1] if len(getattr(X, "shape", ())) == 2 else numbers_of(X).shape[1])


def is_numeric(X: Any) -> bool:
    """Return whether all columns hold numbers, some possibly missing."""
    return not np.any(others_than_numbers(X))


def others_than_numbers(X: Any) -> NDArray[np.bool_]:
    """Return which columns of a table hold values that are neither numbers nor missing."""
    if sparse.issparse(X):
        return np.zeros(X.shape[1], dtype=bool)
    if hasattr(X, "columns"):
        return np.array([not _holds_numbers(np.asarray(X[name])) for name in X.columns], dtype=bool)
    values = np.asarray(X)
    if values.ndim != 2 or values.dtype.kind != "O":
        return np.full(values.shape[1] if values.ndim == 2 else 1, not _holds_numbers(values))
    return np.array([not _holds_numbers(column) for column in values.T], dtype=bool)


def _holds_numbers(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "biuf" or (
        values.dtype.kind == "O" and not any(isinstance(value, str | bytes) for value in values.ravel())
    )


def coarsest_dtype(X: Any) -> np.dtype[Any]:
    """Return the coarsest float type among the columns of a frame; float64 if X is not a frame."""
    dtypes = [np.asarray(X[name]).dtype for name in X.columns] if hasattr(X, "columns") else []
    return np.dtype(coarsest(dtypes).dtype)


def _column(values: NDArray[Any]) -> Array:
    """Return a column as numbers. Texts are never numbers, as "007" is not 7."""
    if not _holds_numbers(values):
        return np.full(len(values), np.nan)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        try:
            return np.array([float(value) if isinstance(value, Real) else np.nan for value in values])
        except OverflowError:
            return np.full(len(values), np.nan)


def known_numbers(X: Any) -> Any:
    """Return rows as numbers, 0 if missing. Single precision is kept, as intervals allow for its rounding."""
    found = numbers_of(X)
    known = found if sparse.issparse(found) or not has_nan(found) else np.where(np.isnan(found), 0.0, found)
    dtype = X.dtype if sparse.issparse(X) else np.asarray(X).dtype
    return known.astype(np.float32) if dtype == np.float32 else known


def in_form_of(X: Any, values: Array) -> Any:
    """Return an array as a frame like X, or unchanged if X is not a frame."""
    if hasattr(X, "iloc"):
        return type(X)(values, columns=X.columns, index=X.index if len(X) == len(values) else None)
    return type(X)(values, schema=list(X.columns)) if hasattr(X, "columns") else values


def with_numbers(X: Any, values: Array) -> Any:
    """Return rows like X with its numbers replaced by `values`; an array if X has only numbers."""
    if sparse.issparse(X) or not has_nan(given := numbers_of(X)):
        return values
    missing = np.isnan(given)
    values = np.where(missing, np.nan, values)
    own = [X[name] for name in X.columns] if hasattr(X, "columns") else list(np.asarray(X).T)
    columns = [old if np.all(lost) else new for old, new, lost in zip(own, values.T, missing.T, strict=True)]
    if hasattr(X, "columns"):
        return type(X)(dict(zip(X.columns, columns, strict=True)))
    return np.column_stack([np.asarray(column, dtype=object) for column in columns])


def as_given(X: Any, values: Array, which: Any = None) -> Any:
    """Return `values`, numbers for the rows `which` of X (default: all), in the form a model takes.

    This is a frame with the same columns if X is one. Missing entries and values that are not numbers are those of X.
    """
    if sparse.issparse(X):
        return values
    if not is_numeric(X) or has_nan(numbers_of(X)):
        own = X if which is None else _safe_indexing(X, which)
        found = with_numbers(own, values)
        return found if hasattr(found, "columns") or not hasattr(X, "columns") else in_form_of(own, found)
    return in_form_of(X, values) if hasattr(X, "columns") else values


def checked_metadata(X: Any, metadata: Mapping[str, Any], call: str, model: Any = None) -> dict[str, Any]:
    """Return the metadata of the rows X, with columns matched by name to those of X, or of fit, if both have names.

    For a missing entry, errors stated as NaN become 0, as do both ends of its interval; standard deviations and
    covariances with a value are kept.
    """
    n_samples = _num_samples(X)
    stated = {name: value for name, value in metadata.items() if value is not None}
    for name, value in stated.items():
        if not sparse.issparse(value) and _shape(value) == ():
            raise ValueError(
                f"{call}: {name}={short(value):.80} is no array. Give one number for each entry or row of X."
            )
        if (n_rows := _num_samples(value)) != n_samples:
            raise ValueError(f"{call}: {name} has {n_rows} rows, X has {n_samples}. Give one for each row of X.")
    stated = {name: _aligned(X, value, name, call, model) for name, value in stated.items()}
    if sparse.issparse(X):
        return stated
    values = numbers_of(X)
    if not has_nan(values):
        return stated
    missing = np.isnan(values)
    by_entry = {
        name: np.asarray(value.toarray() if sparse.issparse(value) else value, dtype=np.float64)
        for name, value in stated.items()
        if name in BY_ENTRY and np.shape(value) == missing.shape
    }
    _refuse_intervals_of_missing(missing, by_entry, call)
    return (
        stated
        | {
            name: np.where(missing & (np.isnan(value) | (name != "X_std")), 0.0, value)
            for name, value in by_entry.items()
        }
        | {name: _of_measured(stated[name], name, missing) for name in ("X_cov", "X_factor") if name in stated}
    )


def _of_measured(value: Array, name: str, missing: NDArray[np.bool_]) -> Array:
    """Return covariances or factors with NaN replaced by 0 at missing entries."""
    about = missing[:, :, None] if name == "X_factor" else missing[:, :, None] | missing[:, None, :]
    if np.ndim(value) != 3 or any(own not in (1, given) for own, given in zip(about.shape, value.shape, strict=True)):
        return value  # the shape is wrong, which raises an error later
    value = np.asarray(value, dtype=np.float64)
    return np.where(about & np.isnan(value), 0.0, value)


def _refuse_intervals_of_missing(missing: NDArray[np.bool_], stated: Mapping[str, Array], call: str) -> None:
    """Raise ValueError if an interval is stated for a missing entry, as imputers would ignore it."""
    if not {"X_lower", "X_upper"} <= set(stated):
        return
    lower, upper = stated["X_lower"], stated["X_upper"]
    wrong = np.argwhere(missing & (lower != upper) & ~(np.isnan(lower) & np.isnan(upper)))
    if len(wrong):
        i, j = (int(index) for index in wrong[0])
        raise ValueError(
            f"{call}: X[{i}, {j}] is missing, but X_lower and X_upper say that it is in [{lower[i, j]:g}, {upper[i, j]:g}]. "
            "Give it a value there, such as the middle, or let both ends be NaN: an imputer then fills it in."
        )


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of an array, () if the value is not an array."""
    try:
        return np.shape(value)
    except ValueError:  # lists of several lengths
        return ()


def _aligned(X: Any, value: Any, name: str, call: str, model: Any) -> Any:
    """Return one metadata value as numbers, with the columns of a frame in the order of the columns of X."""
    check_index(X, value, name)
    ours, _ = known_columns(X, model)
    if name in BY_ENTRY and not sparse.issparse(value):
        _refuse_other_categories(X, value, name, call)
    if name not in BY_ENTRY or ours is None or not hasattr(value, "columns"):
        is_plain = sparse.issparse(value) or np.asarray(value).dtype.kind != "O" or np.ndim(value) != 2
        return (value if sparse.issparse(value) else np.asarray(value)) if is_plain else numbers_of(value)
    theirs = list(value.columns)
    if unknown := [column for column in theirs if column not in ours]:
        raise ValueError(f"{call}: {name} has the column {unknown[0]!r}, X has not. Name its columns as those of X.")
    values = dense(numbers_of(X))
    exact = np.zeros(len(values))
    lacking = [column for column in ours if column not in theirs]
    if measured := [column for column in lacking if not np.all(np.isnan(values[:, ours.index(column)]))]:
        raise ValueError(
            f"{call}: {name} lacks the column {measured[0]!r} of X. Add it, with 0 for a feature without error in X_std, and "
            "its values themselves in X_lower and X_upper."
        )
    return np.column_stack([exact if column in lacking else numbers_of(value[[column]])[:, 0] for column in ours])


def _refuse_other_categories(X: Any, value: Any, name: str, call: str) -> None:
    """Raise ValueError if metadata state an error, or another value, for a category."""
    for j in np.flatnonzero(others_than_numbers(X)):
        column = column_name(X, j)
        if hasattr(value, "columns"):
            if column not in list(value.columns):
                continue
            said = np.asarray(value[column], dtype=object)
        elif np.shape(value) == np.shape(X):
            said = np.asarray(value, dtype=object)[:, j]
        else:
            continue
        here = np.asarray(X[column] if hasattr(X, "columns") else np.asarray(X, dtype=object)[:, j], dtype=object)
        is_nothing = [isinstance(one, Real) and not abs(float(one)) > 0 for one in said]  # 0 or NaN
        if not all(
            nothing or (name != "X_std" and one == own)
            for nothing, one, own in zip(is_nothing, said, here, strict=True)
        ):
            raise ValueError(
                f"{call}: {name} says of column {column!r}, which holds categories, something else than X. Categories have no "
                "errors: leave the column out, or give it as in X (0 in X_std)."
            )


def check_params(X: Any, params: Mapping[str, Any]) -> None:
    """Raise if a parameter by row, such as step__sample_weight, has an index other than that of X."""
    for name, value in params.items():
        if hasattr(value, "iloc") and len(value) == _num_samples(X):
            check_index(X, value, name)


def checked_weights(sample_weight: Any, X: Any, call: str) -> Array:
    """Return sample_weight as numbers >= 0, all 1 if None."""
    if sample_weight is None:
        return np.ones(_num_samples(X))
    try:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{call}(..., sample_weight={short(sample_weight):.80}): {error}") from None
    if not np.all(np.isfinite(weights)):
        raise ValueError(f"{call}(..., sample_weight={short(sample_weight):.80}): contains NaN or infinity.")
    return np.asarray(weights, dtype=np.float64)
