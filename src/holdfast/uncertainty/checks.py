"""Checks of the numbers that users state for sets, with the error messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from holdfast._core.allowed import LARGEST, Number, as_numbers, short
from holdfast._core.row_forms import Array
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.row_ellipsoids import DiagonalEllipsoids, FactorEllipsoids, RowEllipsoids
from holdfast.uncertainty.sloped import SlopedEllipsoids, SlopedFactor

INDEFINITE = -1e-8
"""An eigenvalue of a correlation matrix below this cannot be due to rounding."""


def stated(uncertainty: UncertaintySet, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that are not None. Raises ValueError for a name that the set does not take."""
    own = {name: value for name, value in metadata.items() if value is not None}
    for name in own:
        if name not in uncertainty.metadata:
            raise ValueError(
                f"{uncertainty!r}: does not take {name}. It takes {', '.join(uncertainty.metadata) or 'none'}."
            )
    return own


def at_most_one(given: Collection[str]) -> None:
    """Raise ValueError if more than one name is given."""
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} say the same thing twice. Give one of them.")


def one_number(value: Any, call: str, name: str) -> float:
    """Return a finite number >= 0."""
    out = numbers(value, call, name)
    if out.ndim > 0:
        raise ValueError(f"{call}: {name} has shape {out.shape}; it is one number.")
    return float(nonnegative(out, call, name))


def per_feature(value: Any, n_features: int, call: str, name: str) -> Array:
    """Return finite numbers, one for all features or one for each."""
    out = numbers(value, call, name)
    if out.shape not in ((), (n_features,)):
        raise ValueError(f"{call}: {name} has shape {out.shape}; give one number, or one per feature, ({n_features},).")
    return np.asarray(out)


def per_entry(value: Any, shape: tuple[int, ...], name: str, home: str) -> Any:
    """Return finite numbers, one for each entry of X. Messages name `home`, the call for numbers common to all rows."""
    out = numbers(value, f"{name}=...", name, copy=False)
    if out.shape != shape:
        raise ValueError(
            f"{name} has shape {out.shape}; it must have the shape of X, {shape}. "
            f"What is common to all rows belongs in the constructor: {home}."
        )
    return out


def matrix_root(value: Any, n_features: int, call: str, name: str) -> Array:
    """Return a factor of a covariance; it is stated as a matrix, its diagonal, or one variance for every feature."""
    cov = numbers(value, call, name)
    if cov.shape not in ((), (n_features,), (n_features, n_features)):
        raise ValueError(
            f"{call}: {name} has shape {cov.shape}, not ({n_features}, {n_features}); its diagonal, ({n_features},), will do. "
            "What differs by row goes to fit as X_std, X_cov or X_factor."
        )
    return root(cov, call, name) if cov.ndim == 2 else np.asarray(np.sqrt(nonnegative(cov, call, name)))


def row_clouds(multiplier: float, n_samples: int, n_features: int, own: Mapping[str, Any], home: str) -> RowEllipsoids:
    """Return the ellipsoids that X_std, X_cov or X_factor states. Messages name `home`, the call for a common noise."""
    name, value = next(iter(own.items()))
    if isinstance(value, SlopedFactor) and value.shape[:2] == (n_samples, n_features):
        return SlopedEllipsoids(value.times(multiplier))
    value = numbers(value, f"{name}=...", name)
    shapes = {
        "X_std": "(n_samples, n_features)",
        "X_cov": "(n_samples, n_features, n_features)",
        "X_factor": "(n_samples, n_features, r)",
    }
    wanted = {
        "X_std": (n_samples, n_features),
        "X_cov": (n_samples, n_features, n_features),
        "X_factor": (n_samples, n_features, *value.shape[2:3]),
    }[name]
    if value.shape != wanted or value.ndim != shapes[name].count(",") + 1:
        raise ValueError(
            f"{name} has shape {value.shape}; it states the noise of each row and must have shape {shapes[name]}, here with "
            f"n_samples={n_samples} and n_features={n_features}. Noise common to all rows belongs in the constructor: "
            f"{home}."
        )
    if name == "X_std":
        return DiagonalEllipsoids.of(multiplier * nonnegative(value, f"{name}=...", name))
    return FactorEllipsoids(multiplier * (root(value, f"{name}=...", name) if name == "X_cov" else value))


def numbers(value: Any, call: str, name: str, *, copy: bool = True) -> Any:
    """Return the value as an array of finite numbers, or as a CSR array if it is sparse."""
    try:
        if value is None:
            raise TypeError("nothing")
        out = _canonical(value) if sparse.issparse(value) else as_numbers(value, copy=copy)
    except (TypeError, ValueError):
        raise ValueError(f"{call}: {name} must be numbers, got {short(value):.80}.") from None
    # the extremes alone tell whether all entries are finite, and how large they are, without a copy of the array
    largest = np.maximum(_stored(out).max(initial=0.0), -_stored(out).min(initial=0.0))
    if not np.isfinite(largest):
        raise ValueError(
            f"{call}: {name} contains NaN or infinity. Give every row and feature a finite number. 0 means exact, so it is not "
            "for errors that are unknown: values_and_errors(frame, errors_missing=...) fills these in."
        )
    if largest > LARGEST:
        raise ValueError(f"{call}: sums of {name} overflow. Use other units, {LARGEST:g} at most.")
    return out


def _canonical(value: Any) -> sparse.csr_array:
    """Return a sparse matrix as a CSR array without duplicate entries."""
    if value.dtype.kind not in "biuf":
        raise TypeError("no real numbers")
    out = sparse.csr_array(value, dtype=np.float64)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    return out


def _stored(value: Any) -> Array:
    """Return the numbers stored in an array or in a sparse array."""
    return np.asarray(value.data if sparse.issparse(value) else value)


def nonnegative(value: Any, call: str, name: str) -> Any:
    """Return the array unchanged. Raises ValueError if an entry is below 0."""
    if np.any(_stored(value) < 0):
        raise ValueError(
            f"{call.replace('...', f'{np.min(value):g}') if value.ndim == 0 else call}: {name} must be >= 0."
        )
    return value


def root(cov: Array, call: str, name: str) -> Array:
    """Return F with F F' = cov for one matrix or a stack; F has as many columns as the (largest) rank."""
    apart = np.abs(cov - np.swapaxes(cov, -1, -2))
    # two tolerances: rounding of sums is relative to the largest entry, digits cut off in a file to each entry
    if np.any(apart > 1e-12 * np.abs(cov).max(initial=0.0) + 1e-8 * np.abs(cov)):
        raise ValueError(f"{call}: {name} is not symmetric. A covariance is.")
    variances = np.diagonal(cov, axis1=-2, axis2=-1)
    # eigenvalues of correlations, not covariances, as the scales of the features may differ widely
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    correlations = cov / (scale[..., :, None] * scale[..., None, :])
    # pivoted Cholesky costs n rank^2, eigenvalues several n^3. Where its factor does not reproduce the matrix, the
    # eigenvalues are computed, which also tell whether the matrix is indefinite
    if cov.ndim == 2 and (factor := _cholesky(correlations)) is not None:
        return scale[:, None] * factor
    values, vectors = np.linalg.eigh(correlations)
    smallest = np.minimum(values.min(axis=-1), np.where(variances < 0, -1.0, 0.0).min(axis=-1))
    if np.any(smallest < INDEFINITE):
        worst = np.unravel_index(np.argmin(smallest), smallest.shape)
        where = f" (row {worst[0]})" if worst else ""
        raise ValueError(
            f"{call}: {name} is indefinite{where}: its smallest eigenvalue is below 0. A covariance has none."
        )
    # an eigenvalue of the size of rounding should be 0, and is not noise
    values = np.where(values > 1e-14, values, 0.0)
    # eigenvalues are in ascending order, so columns that are 0 in all factors come first; at least one column is kept
    first = min(int(np.argmax(np.any(np.atleast_2d(values) > 0, axis=0))), values.shape[-1] - 1)
    return (scale[..., :, None] * vectors * np.sqrt(values)[..., None, :])[..., first:]


def _cholesky(matrix: Array) -> Array | None:
    """Return a factor of a positive semidefinite matrix, its columns as many as the rank; None if it may be indefinite.

    Pivoted Cholesky in O(n rank^2). The factor must reproduce the matrix up to rounding.
    """
    n = len(matrix)
    triangle, order, rank, _ = lapack.dpstrf(matrix, lower=1)
    factor = np.zeros((n, max(rank, 1)))
    factor[order - 1, :rank] = np.tril(triangle[:, :rank])
    is_whole = np.max(np.abs(matrix - factor @ factor.T), initial=0.0) <= 4 * n * np.finfo(float).eps
    return factor if is_whole else None


def stated_number(value: Any, call: str, name: str) -> float:
    """Return one finite number >= 0."""
    return Number().checked(value, f"{call}({name}")


def feature_costs(values: Any, n_features: int, call: str) -> Array:
    """Return the deletion cost of each feature: >= 0, inf if it cannot be deleted, 1 for every feature if None."""
    if values is None:
        return np.ones(n_features)
    try:
        out = as_numbers(values)
    except TypeError:
        raise ValueError(f"{call}: values must be numbers, got {short(values):.80}.") from None
    if out.shape != (n_features,):
        raise ValueError(f"{call}: values have shape {out.shape}; give one for each feature, ({n_features},).")
    if not np.all(out >= 0):
        raise ValueError(f"{call}: values must be >= 0; 0 is deleted free of charge, inf never.")
    return out
