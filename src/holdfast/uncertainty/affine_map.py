"""Affine maps of rows, and of the errors stated for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense
from holdfast._core.operations import Multiply, Operation, Product, Read, Select, Shift, spread_over, stages
from holdfast._core.row_forms import Array


class AffineMap:
    r"""The map :math:`x \mapsto A x + c` of rows, kept as the sequence of operations that computes it.

    Parameters
    ----------
    matrix : {ndarray, sparse array} of shape (n_out, n_in)
        A.
    offset : ndarray of shape (n_out,), default=None
        c, 0 by default.

    Examples
    --------
    >>> halved = AffineMap.diagonal([0.5, 0.25])
    >>> AffineMap([[1.0, 1.0]], [3.0]).after(halved)(np.array([[2.0, 4.0]]))
    array([[5.]])
    """

    def __init__(self, matrix: Any, offset: Any = None):
        matrix = sparse.csr_array(matrix) if sparse.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        self.operations: tuple[Operation, ...] = (Product(matrix), *_shift(offset))
        self.n_features = int(matrix.shape[1])

    @classmethod
    def computed(cls, n_features: int, *operations: Operation) -> AffineMap:
        """Return the map of rows with `n_features` features that applies the operations in turn."""
        found = cls.__new__(cls)
        found.operations, found.n_features = operations, int(n_features)
        return found

    @classmethod
    def diagonal(cls, scales: Any, offset: Any = None) -> AffineMap:
        """Return the map that multiplies each feature by a number."""
        scales = np.asarray(scales, dtype=np.float64)
        return cls.computed(len(scales), Multiply(scales), *_shift(offset))

    @classmethod
    def identity(cls, n_features: int) -> AffineMap:
        """Return the map that leaves rows as they are."""
        return cls.computed(n_features)

    @classmethod
    def selection(cls, columns: Any, n_features: int) -> AffineMap:
        """Return the map that keeps the features `columns`, in this order, out of `n_features`."""
        return cls.computed(n_features, Select(np.asarray(columns, dtype=np.intp), n_features))

    @classmethod
    def beside(cls, parts: Sequence[tuple[AffineMap, Any]], n_features: int) -> AffineMap:
        """Return the map that concatenates the outputs of several maps, each applied to some of the features."""
        return cls.computed(n_features, Beside(tuple(parts), n_features))

    @cached_property
    def _pushed(self) -> tuple[Any, Array]:
        # the identity is sparse, so that the matrix of a scaler or selector of many features stays sparse
        A, c = sparse.eye_array(self.n_features, format="csr"), np.zeros(self.n_features)
        for operation in self.operations:
            A, c = operation.push(A, c)
        return A, c

    @property
    def matrix(self) -> Any:
        """A, an array or a CSR array of shape (n_out, n_in)."""
        return self._pushed[0]

    @property
    def offset(self) -> Array:
        """c, shape (n_out,)."""
        return self._pushed[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(n_out, n_in)."""
        n_out = self.n_features
        for operation in self.operations:  # from the operations alone, as A itself may be large
            n_out = operation.width(n_out)
        return n_out, self.n_features

    @property
    def n_roundings(self) -> int:
        """The number of roundings that each term of an output, or of a score of the outputs, goes through."""
        return sum(operation.n_roundings for operation in self.operations)

    def parameters(self) -> list[Any]:
        """Return the arrays that the operations hold."""
        return [held for operation in self.operations for held in operation.parameters()]

    def after(self, first: AffineMap) -> AffineMap:
        """Return the map that applies `first`, then this one."""
        return AffineMap.computed(first.n_features, *first.operations, *self.operations)

    def __call__(self, rows: Array) -> Array:
        """Return the images A x + c of rows x."""
        return self.moved(rows) + self.offset

    def moved(self, errors: Array) -> Array:
        """Return the images A d of errors d, which lie along the last axis."""
        return np.asarray((self.matrix @ errors.reshape(-1, errors.shape[-1]).T).T).reshape(*errors.shape[:-1], -1)

    def back(self, w: Array) -> Array:
        """Return A'w."""
        return np.asarray(self.matrix.T @ w)

    @cached_property
    def is_monomial(self) -> bool:
        """Whether every output is a multiple of one input, and no input is used twice."""
        A = sparse.csr_array(self.matrix)
        A.eliminate_zeros()
        return bool(np.all(np.diff(A.indptr) <= 1) and np.all(np.bincount(A.indices, minlength=1) <= 1))

    @cached_property
    def sources(self) -> NDArray[np.intp]:
        """For each output of a monomial map, the input that it is a multiple of; any input if the output is 0."""
        return np.asarray(abs(self.matrix).argmax(axis=1), dtype=np.intp).ravel()

    @cached_property
    def scales(self) -> Array:
        """For each output of a monomial map, the factor that multiplies its input."""
        return np.asarray(self.matrix[np.arange(self.shape[0]), self.sources]).ravel()

    @cached_property
    def rank(self) -> int:
        """The rank of A."""
        return int(np.linalg.matrix_rank(dense(self.matrix))) if min(self.shape) else 0

    @cached_property
    def isometry(self) -> float | None:
        """The c with A A' = c^2 I, so that a ball of radius r becomes one of radius c r; None if there is no such c."""
        gram = dense(self.matrix @ self.matrix.T)
        square = float(np.mean(np.diag(gram))) if len(gram) else 0.0
        is_one = square > 0 and np.max(np.abs(gram - square * np.eye(len(gram)))) <= 1e-13 * square
        if not is_one:
            return None
        # exactly 1 for a rotation, so that rounding does not change a stated radius
        return 1.0 if abs(square - 1) <= 1e-13 else float(np.sqrt(square))

    def columns(self, values: Any, factors: Array) -> Any:
        """Return the columns of `values` (an array or CSR array) that a monomial map keeps, multiplied by `factors`."""
        chosen = values[:, self.sources]
        if sparse.issparse(chosen):
            return sparse.csr_array(chosen @ sparse.diags_array(factors))
        return chosen * factors

    def cloud(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata (X_std, X_cov, X_factor) of the images of rows.

        X_std stays X_std if the map is monomial. A map that mixes features turns it into X_cov, or into X_factor if
        that has fewer entries.
        """
        A = dense(self.matrix)
        return {key: made for name, value in metadata.items() for key, made in self._cloud(A, name, value)}

    def _cloud(self, A: Array, name: str, value: Any) -> list[tuple[str, Any]]:
        value = value if sparse.issparse(value) else np.asarray(value, dtype=np.float64)
        if name == "X_std" and self.is_monomial:
            return [
                (name, self.columns(sparse.csr_array(value) if sparse.issparse(value) else value, abs(self.scales)))
            ]
        if name == "X_std":
            if self.shape[0] >= self.shape[1]:
                return [("X_factor", A * dense(value)[:, None, :])]
            # n_out < n_in: per row, a covariance has n_out^2 entries, fewer than the n_out n_in of a factor
            pairs = (A[:, None, :] * A).reshape(-1, self.shape[1])
            return [("X_cov", (np.square(dense(value)) @ pairs.T).reshape(-1, *A.shape[:1] * 2))]
        return [(name, A @ value @ A.T if name == "X_cov" else A @ value)]


@dataclass(frozen=True)
class Beside(Operation):
    """The concatenated outputs of several maps, each applied to some of the features."""

    parts: tuple[tuple[AffineMap, Any], ...]
    """Pairs of a map and the indices of the features it takes."""
    n_features: int

    @property
    def n_roundings(self) -> int:
        # each term of a score goes through one part; the sums of all parts are then added up
        return max((map.n_roundings for map, _ in self.parts), default=0) + len(self.parts)

    def width(self, n_features: int) -> int:
        return sum(map.shape[0] for map, _ in self.parts)

    def stages(self, W: Any, b: Any, read: Read) -> Iterator[tuple[Any, Any]]:
        total, start = read(np.zeros((len(W), self.n_features))), 0
        for map, chosen in self.parts:
            stop = start + map.shape[0]
            for V, own in stages(map.operations, W[:, start:stop], read(np.zeros(len(W))), read):
                yield V, own
            total = total + spread_over(V, chosen, self.n_features, read)
            b, start = b + own, stop
        yield total, b

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        *_, last = self.stages(W, b, read)
        return last

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        matrices = [map.matrix @ A[chosen] for map, chosen in self.parts]
        offsets = [map.matrix @ c[chosen] + map.offset for map, chosen in self.parts]
        is_sparse = any(sparse.issparse(matrix) for matrix in matrices)
        return sparse.csr_array(sparse.vstack(matrices)) if is_sparse else np.vstack(matrices), np.concatenate(offsets)

    def parameters(self) -> Sequence[Any]:
        return [held for map, _ in self.parts for held in map.parameters()]


def _shift(offset: Any) -> tuple[Operation, ...]:
    return () if offset is None else (Shift(np.asarray(offset, dtype=np.float64)),)
