"""Kernels, and coordinates of rows whose scalar products are the kernel's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils import gen_batches

Array = NDArray[np.float64]

DEPENDENT, INDEFINITE = 1e-12, 1e-8
"""Relative to the largest diagonal entry: the residual of a row that counts as dependent on others, and the least
negative value that rounding cannot explain."""
ASYMMETRIC = 1e-10
"""A larger difference of k(x, z) and k(z, x), relative to the largest entry, is not rounding."""

ROUNDED_VARIANCE = 1e-15
"""A variance below this share of the squared mean is rounding: all entries are equal."""

CANDIDATES = 3
"""Landmarks are chosen among this many random rows per landmark."""
BLOCK_ENTRIES = 1 << 22
"""The number of kernel values in memory at a time."""


@dataclass(frozen=True)
class Kernel:
    """A kernel k(x, z): the name of one in scikit-learn, or a function of two rows that returns a number.

    Attributes
    ----------
    kernel : str or callable
        As `metric` of :func:`sklearn.metrics.pairwise.pairwise_kernels`.
    gamma : float or None
    degree, coef0 : float
        The degree and constant of ``"poly"``, :math:`(\\gamma\\, x^\\top z + c_0)^{degree}`.
    name : str
        The call that error messages quote.
    """

    kernel: str | Callable[[Array, Array], float]
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0
    name: str = "Kernel"

    def __call__(self, X: Any, Z: Any) -> Array:
        """Return k(x, z) for all pairs of rows, in float64, shape (rows of X, rows of Z)."""
        # a copy of Z, as scikit-learn assumes that a function is symmetric if X and Z are one array
        X, Z = X.astype(np.float64, copy=False), Z.astype(np.float64, copy=callable(self.kernel))
        try:
            K = np.asarray(pairwise_kernels(X, Z, metric=self.kernel, filter_params=True, **self._options))
            K = K.astype(np.float64, copy=False)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{self}: {error}") from error
        if not np.all(np.isfinite(K)):
            raise ValueError(
                f"{self}: some values are not finite. Scale the features, or use a smaller gamma or degree."
            )
        return K

    def diagonal(self, X: Any) -> Array:
        """Return k(x, x) for each row."""
        if self.kernel == "rbf":
            return np.ones(X.shape[0])
        return np.array([self(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])])

    @property
    def _options(self) -> dict[str, Any]:
        return {} if callable(self.kernel) else {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}

    def __str__(self) -> str:
        return f"{self.name}(kernel={self.kernel!r:.60})"


def rbf_values(X: Array, Z: Array, gamma: float) -> Array:
    r"""Return :math:`e^{-\gamma |x - z|^2}` for all pairs of rows, accurate even for rows far from 0.

    It is computed from differences, as :math:`|x|^2 - 2 x^\top z + |z|^2` would cancel for close rows.
    """
    squares = cdist(X, Z, "sqeuclidean")
    squares *= -gamma
    return np.asarray(np.exp(squares, out=squares))


def bandwidth(gamma: float | str, X: Any, weights: Array) -> float:
    """Return gamma as a number; "scale" is 1 / (n_features * weighted variance of entries), "auto" 1 / n_features."""
    if not isinstance(gamma, str):
        return float(gamma)
    d, shares = X.shape[1], weights / np.sum(weights)
    if gamma == "auto":
        return 1.0 / d
    mean = float(np.mean(X.T @ shares))
    # from differences, as the mean of squares minus the squared mean cancels for nearly equal entries. All entries that
    # a sparse matrix does not store differ from the mean by the mean itself
    if sparse.issparse(X):
        away = sparse.csr_array(X, dtype=np.float64, copy=True)
        away.sum_duplicates()
        away.data = np.square(away.data - mean)
        absent = d - np.diff(away.indptr)
        variance = float(shares @ (away.sum(axis=1) + mean**2 * absent)) / d
    else:
        variance = float(np.mean(np.square(X - mean).T @ shares))
    return 1.0 / (d * variance) if variance > ROUNDED_VARIANCE * mean**2 else 1.0 / d


@dataclass(frozen=True)
class PivotedCholesky:
    r"""Coordinates of rows whose scalar products are the kernel's values, :math:`K = L L^\top`, by pivoted Cholesky.

    Each pivot is the row with the largest residual given the previous pivots. A function
    :math:`f(x) = \theta^\top \ell(x)` of the coordinates is :math:`\sum_p \beta_p k(x, x_p)`, a sum over the pivots
    alone, with :math:`\beta = L_P^{-\top} \theta`.

    Attributes
    ----------
    rows : ndarray of shape (n_samples, r)
        L, with rows in their original order. Its first columns are the factor with fewer pivots.
    pivots : ndarray of shape (r,)
    rest : ndarray of shape (n_samples,)
        The diagonal of :math:`K - L L^\top`, never negative.
    """

    rows: Array
    pivots: NDArray[np.intp]
    rest: Array

    @classmethod
    def of(cls, K: Array, *, tol: float = DEPENDENT, most: int | None = None, call: str = "kernel") -> PivotedCholesky:
        """Return the factor of a Gram matrix, with at most `most` pivots.

        Pivots end once no residual exceeds `tol` times the largest diagonal entry. K must be symmetric and positive
        semidefinite, up to rounding; error messages quote `call`.
        """
        # products with one vector of random signs almost surely reveal an asymmetry, without a transposed copy of K
        diagonal, size = np.diag(K), float(max(np.max(K, initial=0.0), -np.min(K, initial=0.0)))
        signs = np.where(np.random.default_rng(0).uniform(size=len(K)) < 0.5, -1.0, 1.0)
        image = K @ signs
        if np.max(np.abs(image - signs @ K), initial=0.0) > ASYMMETRIC * size:
            raise ValueError(f"{call}: the kernel is not symmetric, k(x, z) differs from k(z, x). Use another kernel.")
        largest = float(np.max(diagonal, initial=0.0))
        _refuse_indefinite(float(np.min(diagonal, initial=0.0)), largest or size, call)
        factor, order, rank, _ = dpstrf(np.array(K.T, order="F"), tol=tol * largest, lower=1, overwrite_a=1)
        rank = min(rank, len(K) if most is None else most) if largest > 0 else 0
        rows = np.empty((len(K), rank))
        rows[order - 1] = np.tril(factor[:, :rank])
        rest = diagonal - np.einsum("ij,ij->i", rows, rows)
        _refuse_indefinite(float(np.min(rest, initial=0.0)), largest, call)
        if rank < len(K) and most is None:
            # the residual matrix must be positive semidefinite, so its norm is at most its trace
            missed = float(np.linalg.norm(image - rows @ (rows.T @ signs)) / np.sqrt(len(K)))
            _refuse_indefinite(-max(missed - float(np.sum(np.maximum(rest, 0.0))), 0.0), largest or size, call)
        return cls(rows, order[:rank].astype(np.intp) - 1, np.maximum(rest, 0.0))

    @cached_property
    def triangle(self) -> Array:
        """The rows of L at the pivots, a lower triangular matrix of shape (r, r)."""
        return self.rows[self.pivots]

    def weights(self, theta: Array) -> Array:
        """Return the weights beta of the pivots for the function with weights `theta` of the coordinates.

        Shape (r,), or (r, n_functions) with one column each.
        """
        return np.asarray(solve_triangular(self.triangle, theta, lower=True, trans="T", check_finite=False))

    def coordinates(self, products: Array) -> Array:
        """Return the coordinates of new rows, shape (n_rows, r), from `products`, their k(x, x_p) with the pivots."""
        return np.asarray(solve_triangular(self.triangle, products.T, lower=True, check_finite=False).T)


def _refuse_indefinite(least: float, largest: float, call: str) -> None:
    if least < -INDEFINITE * largest:
        raise ValueError(
            f"{call}: the kernel is not positive semidefinite on these rows: {least:.2g} is left where nothing below 0 can be, "
            f"beside a largest k(x, x) of {largest:.2g}. Use another kernel."
        )


@dataclass(frozen=True)
class KernelSpace:
    """The span of training rows in the feature space of a kernel, and their coordinates in it.

    Attributes
    ----------
    coordinates : ndarray of shape (n_samples, r)
        Their scalar products are the values of the kernel, or of Nystroem's approximation if there are landmarks.
    factor : PivotedCholesky
        Converts functions of the coordinates to weights of the rows `support`.
    support : ndarray of shape (r,)
    gram : ndarray of shape (n_samples, n_samples) or None
        The kernel matrix; None if there are landmarks.
    """

    coordinates: Array
    factor: PivotedCholesky
    support: NDArray[np.intp]
    gram: Array | None

    @classmethod
    def of_products(cls, K: Array, call: str) -> KernelSpace:
        """Return the span of all rows, given their kernel matrix K."""
        factor = PivotedCholesky.of(K, call=call)
        return cls(factor.rows, factor, factor.pivots, K)

    @classmethod
    def of_landmarks(cls, kernel: Kernel, X: Any, among: NDArray[np.intp], n_landmarks: int, rng: Any) -> KernelSpace:
        """Return Nystroem's approximation: all rows projected onto the span of landmarks.

        The landmarks are the leading pivots of a random subset of the rows `among`. There are fewer than `n_landmarks`
        if the subset has a smaller span.
        """
        # sorted, so that the pivots do not depend on the order in which rows were drawn
        some = np.sort(rng.choice(among, size=min(len(among), CANDIDATES * n_landmarks), replace=False))
        part = PivotedCholesky.of(kernel(X[some], X[some]), most=n_landmarks, call=str(kernel))
        support, r = some[part.pivots], len(part.pivots)
        factor = PivotedCholesky(part.triangle, np.arange(r), np.zeros(r))
        coordinates = np.empty((X.shape[0], r))
        for rows in gen_batches(X.shape[0], max(1, BLOCK_ENTRIES // max(r, 1))):
            coordinates[rows] = factor.coordinates(kernel(X[rows], X[support]))
        return cls(coordinates, factor, support, None)
