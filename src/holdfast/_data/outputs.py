"""Outputs of weak learners on the rows, and the passes over them that a vote needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.memory import keep_freed
from holdfast._core.rows import Array

BLOCK_ENTRIES = 1 << 17
"""Entries of a block of outputs."""
FACTORS_AT_A_TIME = 16
"""This many factors 1 - x^2 s^2 are multiplied before a logarithm is taken; their product cannot underflow."""


class Spread(ABC):
    r"""The vector :math:`\ln D_i = -\sum_k \ln(1 - x_{ik}^2 s_k^2)` at posterior scales s, and its derivatives.

    J is the matrix :math:`J_{ik} = \partial \ln D_i / \partial s_k = 2 x_{ik}^2 s_k / (1 - x_{ik}^2 s_k^2)`.
    """

    log_means: Array
    """ln D, shape (n_samples,)."""

    @abstractmethod
    def pull(self, q: Array) -> Array:
        """Return J'q."""

    @abstractmethod
    def bends(self, q: Array) -> Array:
        """Return sum_i q_i d^2 ln D_i / d s_k^2."""

    @abstractmethod
    def grams(self, h: Array, signs: Array) -> tuple[Array, Array, Array]:
        """Return X'HX, X'HYJ and J'HJ with the diagonal matrices of h >= 0 and of signs."""


class Outputs(ABC):
    """Outputs x_ik of weak learners k on rows i."""

    n_samples: int
    n_learners: int

    @cached_property
    @abstractmethod
    def largest(self) -> Array:
        """The largest absolute output of each learner."""

    @abstractmethod
    def dot(self, w: Array) -> Array:
        """Return X w."""

    @abstractmethod
    def transpose_dot(self, q: Array) -> Array:
        """Return X'q."""

    @abstractmethod
    def sizes_dot(self, q: Array) -> Array:
        """Return |X|'q."""

    @abstractmethod
    def square_dot(self, q: Array) -> Array:
        """Return sum_i q_i x_ik**2."""

    @abstractmethod
    def reach(self, s: Array) -> float:
        """Return the largest sum_k s_k |x_ik| of all rows i, for s >= 0."""

    def reaches(self, s: Array) -> Array:
        """Return s_k |x_ik| for s >= 0, shape (n_samples, n_learners), or a single row if all rows are equal."""
        return np.abs(self.dense(slice(None))) * s

    def reaches_any(self) -> NDArray[np.bool_]:
        """Return for each row whether any output is not 0."""
        return np.any(self.dense(slice(None)) != 0, axis=1)

    @abstractmethod
    def column(self, k: int) -> Array:
        """Return the outputs of one learner."""

    @abstractmethod
    def at(self, s: Array) -> Spread:
        """Return ln D and its derivatives at posterior scales s."""

    @abstractmethod
    def take(self, rows: NDArray[np.intp]) -> Outputs:
        """Return the outputs on some rows."""

    @abstractmethod
    def dense(self, rows: slice | NDArray[np.intp]) -> Array:
        """Return the outputs on some rows as an array."""

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield (slice of rows, their outputs), from the first row to the last."""
        size = max(16, BLOCK_ENTRIES // max(1, self.n_learners))
        for start in range(0, self.n_samples, size):
            rows = slice(start, min(start + size, self.n_samples))
            yield rows, self.dense(rows)

    def stated_log_means(self, s: Array) -> Array:
        """Return ln D by its defining formula, for proofs."""
        # log1p, one factor at a time: exact for small x s, where 1 - x^2 s^2 has lost the digits
        return np.concatenate([-np.log1p(-np.square(block * s)).sum(axis=1) for _, block in self.blocks()])

    def stated_slopes(self, q: Array, s: Array) -> tuple[Array, Array]:
        """Return the first and second derivatives of sum_i q_i ln D_i in s, by their formulas, for proofs."""
        first, second = np.zeros_like(s), np.zeros_like(s)
        for rows, block in self.blocks():
            parts = np.square(block)
            parts /= 1 - parts * np.square(s)
            first += q[rows] @ parts
            second += q[rows] @ np.square(parts)
        return 2 * s * first, 2 * first + 4 * np.square(s) * second

    def gram(self, h: Array) -> Array:
        """Return X'HX with the diagonal matrix of h >= 0."""
        out = np.zeros((self.n_learners, self.n_learners))
        for rows, block in self.blocks():
            scaled = block * np.sqrt(h[rows])[:, None]
            out += scaled.T @ scaled
        return out

    @cached_property
    def gram_work(self) -> float:
        """Number of multiplications in `Spread.grams`, roughly."""
        return float(self.n_samples) * self.n_learners**2


class DenseOutputs(Outputs):
    """Outputs in an array."""

    def __init__(self, X: Array):
        self.X = np.asfortranarray(
            X, dtype=np.float64
        )  # so that operations on one learner, for all rows, are contiguous
        self.n_samples, self.n_learners = self.X.shape
        # each point of a fit makes and drops arrays of this size
        keep_freed(2 * self.X.size)

    @cached_property
    def squares(self) -> Array:
        """x**2."""
        return np.square(self.X)

    @cached_property
    def largest(self) -> Array:
        return np.abs(np.maximum(self.X.max(axis=0, initial=0.0), -self.X.min(axis=0, initial=0.0)))  # no -0

    def dot(self, w: Array) -> Array:
        return self.X @ w

    def transpose_dot(self, q: Array) -> Array:
        return q @ self.X

    def sizes_dot(self, q: Array) -> Array:
        return q @ np.abs(self.X)

    def square_dot(self, q: Array) -> Array:
        return q @ self.squares

    def reach(self, s: Array) -> float:
        return float(np.max(np.abs(self.X) @ s, initial=0.0))

    def column(self, k: int) -> Array:
        return np.ascontiguousarray(self.X[:, k])

    def at(self, s: Array) -> Spread:
        return _DenseSpread(self, s)

    def take(self, rows: NDArray[np.intp]) -> Outputs:
        return DenseOutputs(self.X[rows])

    def dense(self, rows: slice | NDArray[np.intp]) -> Array:
        return self.X[rows]


class _DenseSpread(Spread):
    def __init__(self, outputs: DenseOutputs, s: Array):
        self.outputs, self.s = outputs, s
        left = outputs.squares * np.square(s)
        np.subtract(1.0, left, out=left)
        self.log_means = _minus_logs(left)
        self.parts = np.divide(outputs.squares, left, out=left)  # x^2 / (1 - x^2 s^2)

    def pull(self, q: Array) -> Array:
        return 2 * self.s * (q @ self.parts)

    def bends(self, q: Array) -> Array:
        squares = np.einsum("i,ij,ij->j", q, self.parts, self.parts)
        return 2 * (q @ self.parts) + 4 * np.square(self.s) * squares

    def grams(self, h: Array, signs: Array) -> tuple[Array, Array, Array]:
        d, root = self.outputs.n_learners, np.sqrt(h)
        # one product of [HX, HJ] with itself gives all three blocks, at the speed of a large matrix product
        both = np.empty((len(h), 2 * d), order="F")
        np.multiply(self.outputs.X, (root * signs)[:, None], out=both[:, :d])
        np.multiply(self.parts, root[:, None], out=both[:, d:])
        gram, twice = both.T @ both, 2 * self.s
        return gram[:d, :d], gram[:d, d:] * twice, gram[d:, d:] * np.outer(twice, twice)


class SparseOutputs(Outputs):
    """Outputs in a CSR array."""

    def __init__(self, X: Any):
        self.X = sparse.csr_array(X, dtype=np.float64)
        self.X.sum_duplicates()
        self.n_samples, self.n_learners = self.X.shape
        self.squares = self._having(np.square(self.X.data))

    def _having(self, values: Array) -> Any:
        return sparse.csr_array((values, self.X.indices, self.X.indptr), shape=self.X.shape)

    @cached_property
    def largest(self) -> Array:
        return np.asarray(abs(self.X).max(axis=0).todense()).ravel()

    @cached_property
    def by_column(self) -> Any:
        """The outputs in column order."""
        return sparse.csc_array(self.X)

    def dot(self, w: Array) -> Array:
        return self.X @ w

    def transpose_dot(self, q: Array) -> Array:
        return self.X.T @ q

    def sizes_dot(self, q: Array) -> Array:
        return abs(self.X).T @ q

    def square_dot(self, q: Array) -> Array:
        return self.squares.T @ q

    def reach(self, s: Array) -> float:
        return float(np.max(abs(self.X) @ s, initial=0.0))

    def column(self, k: int) -> Array:
        return np.asarray(self.by_column[:, [k]].todense()).ravel()

    def at(self, s: Array) -> Spread:
        return _SparseSpread(self, s)

    def take(self, rows: NDArray[np.intp]) -> Outputs:
        return SparseOutputs(self.X[rows])

    def dense(self, rows: slice | NDArray[np.intp]) -> Array:
        return self.X[rows].toarray()

    def gram(self, h: Array) -> Array:
        return np.asarray((self.X.T @ (sparse.diags_array(h) @ self.X)).toarray())

    @cached_property
    def gram_work(self) -> float:
        return float(np.sum(np.square(np.diff(self.X.indptr).astype(np.float64))))


class _SparseSpread(Spread):
    def __init__(self, outputs: SparseOutputs, s: Array):
        X, self.outputs, self.s = outputs.X, outputs, s
        left = 1.0 - outputs.squares.data * np.square(s)[X.indices]
        self.log_means = outputs._having(-np.log(left)) @ np.ones(outputs.n_learners)
        self.parts = outputs._having(outputs.squares.data / left)

    def pull(self, q: Array) -> Array:
        return 2 * self.s * (self.parts.T @ q)

    def bends(self, q: Array) -> Array:
        squares = self.outputs._having(np.square(self.parts.data))
        return 2 * (self.parts.T @ q) + 4 * np.square(self.s) * (squares.T @ q)

    def grams(self, h: Array, signs: Array) -> tuple[Array, Array, Array]:
        weights, twice = sparse.diags_array(h), 2 * self.s
        signed = sparse.diags_array(signs) @ self.outputs.X
        parts = weights @ self.parts
        return (
            self.outputs.gram(h),
            (signed.T @ parts).toarray() * twice,
            (self.parts.T @ parts).toarray() * np.outer(twice, twice),
        )


def _minus_logs(left: Array) -> Array:
    """Return minus the sum of the logarithms over each row."""
    # a logarithm costs far more than a product
    total = np.zeros(len(left))
    for start in range(0, left.shape[1], FACTORS_AT_A_TIME):
        total -= np.log(np.multiply.reduce(left[:, start : start + FACTORS_AT_A_TIME], axis=1))
    return total
