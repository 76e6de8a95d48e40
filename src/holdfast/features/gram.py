"""Kernels, and rows in coordinates whose products are those of a kernel."""

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
"""Shares of the largest diagonal entry: what is left of a row that depends on others, and what no kernel leaves negative."""
ASYMMETRIC = 1e-10
"""Difference of k(x, z) and k(z, x), as a share of the largest entry, that is no rounding any more."""

ROUNDED_VARIANCE = 1e-15
"""Variance, as a share of the square of the mean, that is rounding: all entries are the same."""

CANDIDATES = 3
"""Rows a landmark among which these are chosen."""
BLOCK_ENTRIES = 1 << 22
"""Values of a kernel that are held at a time."""


@dataclass(frozen=True)
class Kernel:
    """A kernel k(x, z): one that scikit-learn knows by its name, or a function of two rows that returns a number.

    Attributes
    ----------
    kernel : str or callable
        As `metric` of :func:`sklearn.metrics.pairwise.pairwise_kernels`.
    gamma : float or None
    degree, coef0 : float
        Of ``"poly"``, :math:`(\\gamma\\, x^\\top z + c_0)^{degree}`.
    name : str
        The call that errors quote.
    """

    kernel: str | Callable[[Array, Array], float]
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0
    name: str = "Kernel"

    def __call__(self, X: Any, Z: Any) -> Array:
        """Return k(x, z) of all pairs of rows in float64, shape (rows of X, rows of Z)."""
        # a copy, or scikit-learn would take a function's symmetry for granted
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
        """Return k(x, x) of each row."""
        if self.kernel == "rbf":
            return np.ones(X.shape[0])
        return np.array([self(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])])

    @property
    def _options(self) -> dict[str, Any]:
        return {} if callable(self.kernel) else {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}

    def __str__(self) -> str:
        return f"{self.name}(kernel={self.kernel!r:.60})"


def rbf_values(X: Array, Z: Array, gamma: float) -> Array:
    r"""Return :math:`e^{-\gamma |x - z|^2}` of all pairs of rows, to all digits also for rows far from 0.

    From the differences themselves; :math:`|x|^2 - 2 x^\top z + |z|^2` would lose the digits that tell neighbours apart.
    """
    squares = cdist(X, Z, "sqeuclidean")
    squares *= -gamma
    return np.asarray(np.exp(squares, out=squares))


def bandwidth(gamma: float | str, X: Any, weights: Array) -> float:
    """Return gamma as a number: "scale" is 1 / (n_features * variance of all entries by weight), "auto" 1 / n_features."""
    if not isinstance(gamma, str):
        return float(gamma)
    d, shares = X.shape[1], weights / np.sum(weights)
    if gamma == "auto":
        return 1.0 / d
    mean = float(np.mean(X.T @ shares))
    # from differences, as the mean of squares less the square of the mean cancels for entries that are nearly the same; in a
    # sparse matrix all entries that are not stored have one difference, the mean
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
    r"""Rows in r coordinates whose products are those of a kernel, :math:`K = L L^\top`, and the way back.

    Each pivot is the row of which the pivots before leave the most. A function :math:`f(x) = \theta^\top \ell(x)` of the
    coordinates is :math:`\sum_p \beta_p k(x, x_p)`, a sum over the pivots alone, with :math:`\beta = L_P^{-\top} \theta`.

    Attributes
    ----------
    rows : ndarray of shape (n_samples, r)
        L, by the rows as they were given. Its first columns are those of a factor of fewer pivots.
    pivots : ndarray of shape (r,)
    rest : ndarray of shape (n_samples,)
        What L leaves of the diagonal of K, never negative.
    """

    rows: Array
    pivots: NDArray[np.intp]
    rest: Array

    @classmethod
    def of(cls, K: Array, *, tol: float = DEPENDENT, most: int | None = None, call: str = "kernel") -> PivotedCholesky:
        """Return the factor of a Gram matrix, up to what is at most `tol` of its largest diagonal entry, or of `most` pivots.

        `call` is what errors quote: K must be symmetric and positive semidefinite, but for rounding.
        """
        # one product with random signs shows an asymmetry, but for rare chance, and needs no transposed copy of K
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
            # a positive matrix takes no vector farther than its trace does
            missed = float(np.linalg.norm(image - rows @ (rows.T @ signs)) / np.sqrt(len(K)))
            _refuse_indefinite(-max(missed - float(np.sum(np.maximum(rest, 0.0))), 0.0), largest or size, call)
        return cls(rows, order[:rank].astype(np.intp) - 1, np.maximum(rest, 0.0))

    @cached_property
    def triangle(self) -> Array:
        """L of the pivots, lower triangular, shape (r, r)."""
        return self.rows[self.pivots]

    def weights(self, theta: Array) -> Array:
        """Return the weights of the pivots that make the function with weights `theta` of the coordinates.

        Shape (r,), or (r, n_functions) with one column each.
        """
        return np.asarray(solve_triangular(self.triangle, theta, lower=True, trans="T", check_finite=False))

    def coordinates(self, products: Array) -> Array:
        """Return the coordinates of new rows from their k(x, x_p) with the pivots, shape (n_rows, r)."""
        return np.asarray(solve_triangular(self.triangle, products.T, lower=True, check_finite=False).T)


def _refuse_indefinite(least: float, largest: float, call: str) -> None:
    if least < -INDEFINITE * largest:
        raise ValueError(
            f"{call}: the kernel is not positive semidefinite on these rows: {least:.2g} is left where nothing below 0 can be, "
            f"beside a largest k(x, x) of {largest:.2g}. Use another kernel."
        )


@dataclass(frozen=True)
class KernelSpace:
    """The span of training rows in the space of a kernel, and where these rows are in it.

    Attributes
    ----------
    coordinates : ndarray of shape (n_samples, r)
        Their products are those of the kernel; of Nystroem's approximation where there are landmarks.
    factor : PivotedCholesky
        From functions of the coordinates to weights of the rows `support`.
    support : ndarray of shape (r,)
    gram : ndarray of shape (n_samples, n_samples) or None
        The kernel itself; None where there are landmarks.
    """

    coordinates: Array
    factor: PivotedCholesky
    support: NDArray[np.intp]
    gram: Array | None

    @classmethod
    def of_products(cls, K: Array, call: str) -> KernelSpace:
        """Return the span of all rows, whose products are K."""
        factor = PivotedCholesky.of(K, call=call)
        return cls(factor.rows, factor, factor.pivots, K)

    @classmethod
    def of_landmarks(cls, kernel: Kernel, X: Any, among: NDArray[np.intp], n_landmarks: int, rng: Any) -> KernelSpace:
        """Return Nystroem's approximation: all rows projected on the span of landmarks.

        These are the leading pivots of a random part of the rows `among`; fewer than asked for where that part spans no more.
        """
        # sorted, so that the pivots depend on which rows were chosen and not on their order
        some = np.sort(rng.choice(among, size=min(len(among), CANDIDATES * n_landmarks), replace=False))
        part = PivotedCholesky.of(kernel(X[some], X[some]), most=n_landmarks, call=str(kernel))
        support, r = some[part.pivots], len(part.pivots)
        factor = PivotedCholesky(part.triangle, np.arange(r), np.zeros(r))
        coordinates = np.empty((X.shape[0], r))
        for rows in gen_batches(X.shape[0], max(1, BLOCK_ENTRIES // max(r, 1))):
            coordinates[rows] = factor.coordinates(kernel(X[rows], X[support]))
        return cls(coordinates, factor, support, None)
