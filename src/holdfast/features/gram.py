"""Kernels, and rows in coordinates whose products are those of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.sparsefuncs import mean_variance_axis

Array = NDArray[np.float64]

DEPENDENT, INDEFINITE = 1e-12, 1e-8
"""Shares of the largest diagonal entry: what is left of a row that depends on others, and what no kernel leaves negative."""
ASYMMETRIC = 1e-10
"""Difference of k(x, z) and k(z, x), as a share of the largest entry, that is no rounding any more."""

CANDIDATES = 3
"""Rows a landmark among which these are chosen."""


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
        X, Z = (rows.astype(np.float64, copy=False) for rows in (X, Z))
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


def bandwidth(gamma: float | str, X: Any) -> float:
    """Return gamma as a number: "scale" is 1 / (n_features * variance of all entries), "auto" 1 / n_features."""
    if not isinstance(gamma, str):
        return float(gamma)
    d = X.shape[1]
    if gamma == "auto":
        return 1.0 / d
    if isinstance(X, np.ndarray):
        variance = float(np.var(X, dtype=np.float64))
    else:
        means, variances = mean_variance_axis(X.astype(np.float64), axis=0)
        variance = float(np.mean(variances) + np.var(means))
    return 1.0 / (d * variance) if variance > 0 else 1.0


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
        diagonal, size = np.diag(K), float(np.max(np.abs(K), initial=0.0))
        if np.max(np.abs(K - K.T), initial=0.0) > ASYMMETRIC * size:
            raise ValueError(f"{call}: the kernel is not symmetric, k(x, z) differs from k(z, x). Use another.")
        largest = float(np.max(diagonal, initial=0.0))
        _refuse_indefinite(float(np.min(diagonal, initial=0.0)), largest if largest > 0 else size, call)
        factor, order, rank, _ = dpstrf(np.asfortranarray(K), tol=tol * largest, lower=1)
        rank = min(rank, len(K) if most is None else most) if largest > 0 else 0
        rows = np.empty((len(K), rank))
        rows[order - 1] = np.tril(factor[:, :rank])
        rest = diagonal - np.einsum("ij,ij->i", rows, rows)
        _refuse_indefinite(float(np.min(rest, initial=0.0)), largest, call)
        if rank < len(K) and most is None:
            # a positive matrix with such a diagonal takes no vector farther than its trace
            signs = np.where(np.random.default_rng(0).uniform(size=len(K)) < 0.5, -1.0, 1.0)
            missed = float(np.linalg.norm(K @ signs - rows @ (rows.T @ signs)) / np.sqrt(len(K)))
            _refuse_indefinite(-max(missed - float(np.sum(np.maximum(rest, 0.0))), 0.0), largest or size, call)
        return cls(rows, order[:rank].astype(np.intp) - 1, np.maximum(rest, 0.0))

    @property
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
            f"{call}: the kernel is not positive semidefinite on these rows (it leaves {least:.2g} where nothing below 0 can be; "
            f"the largest k(x, x) is {largest:.2g}). Use another kernel."
        )


def landmarks(
    kernel: Kernel, X: Any, n_landmarks: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], PivotedCholesky]:
    """Return rows for Nystroem's approximation and the factor of the kernel between them: leading pivots of a random part.

    Fewer than asked for where all rows of that part depend on fewer.
    """
    n = X.shape[0]
    some = np.sort(rng.choice(n, size=min(n, CANDIDATES * n_landmarks), replace=False))
    factor = PivotedCholesky.of(kernel(X[some], X[some]), most=n_landmarks, call=str(kernel))
    return some[factor.pivots], PivotedCholesky(
        factor.triangle, np.arange(len(factor.pivots)), factor.rest[factor.pivots]
    )
