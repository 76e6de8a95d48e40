"""Affine operations on rows: their effect on weights, in any arithmetic, and the number of roundings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Read = Callable[[Any], Any]
"""A function that converts an array to some arithmetic: float64, absolute values, or fractions."""


def as_float(value: Any) -> Any:
    """Return an array, or a CSR array, in float64."""
    return sparse.csr_array(value, dtype=np.float64) if sparse.issparse(value) else np.asarray(value, dtype=np.float64)


def as_size(value: Any) -> Any:
    """Return the absolute values in float64."""
    return abs(as_float(value))


def as_fractions(value: Any) -> NDArray[np.object_]:
    """Return an array of fractions that equal the given floats exactly."""
    value = value.toarray() if sparse.issparse(value) else value
    flat = [Fraction(number) for number in as_float(value).ravel().tolist()]
    out = np.empty(len(flat), dtype=object)
    out[:] = flat
    return out.reshape(np.shape(value))


class Operation(ABC):
    """An affine operation on rows z; linear scores of its result are linear scores of z too."""

    @property
    @abstractmethod
    def n_roundings(self) -> int:
        """The number of roundings of each term of a score here, whether rows are pushed or weights pulled back."""

    @abstractmethod
    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        """Return the weights and offsets of scores W * result + b as scores of z."""

    @abstractmethod
    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        """Return the matrix and the offset of rows A x + c after this operation."""

    def width(self, n_features: int) -> int:
        """Return the number of features after this operation on `n_features`."""
        return n_features

    def stages(self, W: Any, b: Any, read: Read) -> Iterator[tuple[Any, Any]]:
        """Yield all intermediate weights and offsets of pulling scores back, with the result of `pull` last."""
        yield self.pull(W, b, read)

    def parameters(self) -> Sequence[Any]:
        """Return the arrays that the operation holds."""
        return [value for value in vars(self).values() if hasattr(value, "dtype")]


@dataclass(frozen=True)
class Shift(Operation):
    """z + offset."""

    offset: Any

    @property
    def n_roundings(self) -> int:
        # pulled back, the offset is added to b by a product with one term for each feature
        return len(self.offset) + 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W, b + W @ read(self.offset)

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        return A, c + as_float(self.offset)


@dataclass(frozen=True)
class Multiply(Operation):
    """z * factor, by feature."""

    factor: Any
    n_roundings = 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W * read(self.factor), b

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        factor = as_float(self.factor)
        return _scaled(A, factor), c * factor


@dataclass(frozen=True)
class Divide(Operation):
    """z / divisor, by feature."""

    divisor: Any
    n_roundings = 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W / read(self.divisor), b

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        divisor = as_float(self.divisor)
        return _scaled(A, 1 / divisor), c / divisor


@dataclass(frozen=True)
class Product(Operation):
    """z @ matrix.T."""

    matrix: Any

    @property
    def n_roundings(self) -> int:
        # sums of shape[1] terms if pushed, of shape[0] terms if pulled; a score has at most both
        return sum(self.matrix.shape) + 2

    def width(self, n_features: int) -> int:
        return int(self.matrix.shape[0])

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W @ read(self.matrix), b

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        matrix = as_float(self.matrix)
        return matrix @ A, matrix @ c


@dataclass(frozen=True)
class Select(Operation):
    """z[:, kept], where z has n_features."""

    kept: Any
    n_features: int
    n_roundings = 1

    def width(self, n_features: int) -> int:
        return len(self.kept)

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return spread_over(W, self.kept, self.n_features, read), b

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        return A[self.kept], c[self.kept]

    def parameters(self) -> Sequence[Any]:
        return []


@dataclass(frozen=True)
class Cast(Operation):
    """z, rounded `n_roundings` times in an arithmetic that may be coarser than that of the rows."""

    dtype: Any
    n_roundings: int = 1

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W, b

    def push(self, A: Any, c: Any) -> tuple[Any, Any]:
        return A, c

    def parameters(self) -> Sequence[Any]:
        return [np.zeros(0, dtype=self.dtype)]


def spread_over(W: Any, columns: Any, n_features: int, read: Read) -> Any:
    """Return weights of `columns`, which may repeat, as weights of all `n_features` features."""
    out = read(np.zeros((n_features, len(W))))
    # `out[columns] += W.T` would count a repeated column only once
    np.add.at(out, columns, W.T)
    return out.T


def stages(operations: Sequence[Operation], W: Any, b: Any, read: Read) -> Iterator[tuple[Any, Any]]:
    """Yield the weights and offsets of scores pulled back through operations, those for the original rows last."""
    yield W, b
    for operation in reversed(operations):
        for pulled in operation.stages(W, b, read):
            yield pulled
        W, b = pulled


def _scaled(A: Any, factors: Any) -> Any:
    return sparse.csr_array(sparse.diags_array(factors) @ A) if sparse.issparse(A) else factors[:, None] * A
