"""Steps of a pipeline that are affine maps of the features, and how weights are carried back through them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from holdfast._core.exceptions import NoCertificateError as NoCertificateError
from holdfast._core.rounding import Array, coarsest, gamma, product_error

Read = Callable[[Any], Any]
"""Makes an array of parameters one of the arithmetic at hand: float64, absolute values, or fractions."""


def as_float(value: Any) -> Array:
    """Return an array in float64."""
    return np.asarray(value, dtype=np.float64)


def as_size(value: Any) -> Array:
    """Return absolute values."""
    return np.abs(as_float(value))


def as_fractions(value: Any) -> NDArray[np.object_]:
    """Return an array of fractions that are exactly the floats given."""
    flat = [Fraction(number) for number in as_float(value).ravel().tolist()]
    out = np.empty(len(flat), dtype=object)
    out[:] = flat
    return out.reshape(np.shape(value))


class Operation(ABC):
    """One affine operation on rows z; scores W z' + b of its result are scores of z too."""

    @property
    @abstractmethod
    def n_roundings(self) -> int:
        """Roundings that a term of a score meets here, whether rows are carried forward or weights back."""

    @abstractmethod
    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        """Return the weights and offsets with which the scores are scores of z."""

    def parameters(self) -> Sequence[Any]:
        """Return what it holds."""
        return [value for value in vars(self).values() if isinstance(value, np.ndarray)]


@dataclass(frozen=True)
class Shift(Operation):
    """z + offset."""

    offset: Any

    @property
    def n_roundings(self) -> int:
        return len(self.offset) + 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W, b + W @ read(self.offset)


@dataclass(frozen=True)
class Multiply(Operation):
    """z * factor, by feature."""

    factor: Any
    n_roundings = 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W * read(self.factor), b


@dataclass(frozen=True)
class Divide(Operation):
    """z / divisor, by feature."""

    divisor: Any
    n_roundings = 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W / read(self.divisor), b


@dataclass(frozen=True)
class Product(Operation):
    """z @ matrix.T."""

    matrix: Any

    @property
    def n_roundings(self) -> int:
        return sum(self.matrix.shape) + 2

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        return W @ read(self.matrix), b


@dataclass(frozen=True)
class Select(Operation):
    """z[:, kept], kept a mask."""

    kept: Any
    n_roundings = 0

    def pull(self, W: Any, b: Any, read: Read) -> tuple[Any, Any]:
        out = read(np.zeros((len(W), len(self.kept))))
        out[:, self.kept] = W
        return out, b


@dataclass(frozen=True)
class AffineMap:
    r"""Scores :math:`W x + b` that are computed through operations, and how far off rounding may make them.

    Parameters
    ----------
    last : ndarray of shape (n_scores, n_last)
        Weights of what the operations give.
    offset : ndarray of shape (n_scores,)
    operations : tuple of Operation, default=()
        From rows x to what `last` weighs, in order.
    follows_rows : bool, default=False
        Whether what comes before is computed in the arithmetic of X, float32 for float32, and not in float64.
    """

    last: Any
    offset: Any
    operations: tuple[Operation, ...] = ()
    follows_rows: bool = False

    def after(self, operations: Sequence[Operation]) -> AffineMap:
        """Return the same map of rows to which these operations of a pipeline are applied before."""
        return replace(self, operations=(*operations, *self.operations), follows_rows=True)

    def _pulled(self, read: Read) -> list[tuple[Any, Any]]:
        """Return the weights and offsets on the way from the scores back to the rows, those of the rows last."""
        stages = [(read(self.last), read(self.offset))]
        for operation in reversed(self.operations):
            stages.append(operation.pull(*stages[-1], read))
        return stages

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        return self._pulled(as_float)[-1]

    @cached_property
    def _sizes(self) -> tuple[Array, Array, Array]:
        stages = self._pulled(as_size)
        # an underflow anywhere on the way counts by the weights that it meets afterwards
        reach = 1.0 + sum(np.sum(W, axis=1) for W, _ in stages)
        return *stages[-1], np.asarray(reach)

    @property
    def coef(self) -> Array:
        """W in the units of X, shape (n_scores, n_features)."""
        return self._weights[0]

    @property
    def intercept(self) -> Array:
        """b, shape (n_scores,)."""
        return self._weights[1]

    @property
    def sizes(self) -> Array:
        """Sums of the sizes of what adds up to W, shape (n_scores, n_features): abs(W) where there are no operations."""
        return self._sizes[0]

    @property
    def offset_sizes(self) -> Array:
        """The same for b, shape (n_scores,)."""
        return self._sizes[1]

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return int(self.coef.shape[1])

    @cached_property
    def n_roundings(self) -> int:
        """Roundings that a term of a score meets."""
        return int(sum(operation.n_roundings for operation in self.operations) + sum(np.shape(self.last)) + 2)

    def kind(self, dtype: Any) -> np.finfo:
        """Return what is known of the coarsest arithmetic that rows of this type meet."""
        held = [array for operation in self.operations for array in operation.parameters()]
        dtypes = [np.asarray(array).dtype for array in (*held, self.last, self.offset)]
        return coarsest([*dtypes, dtype] if self.follows_rows else dtypes)

    def fractions(self) -> tuple[Any, Any]:
        """Return W and b without any rounding, arrays of fractions."""
        return self._pulled(as_fractions)[-1]

    def gamma(self, dtype: Any) -> float:
        """Return the largest error of a score by rounding, as a share of the sizes that it is the sum of."""
        return gamma(self.n_roundings, self.kind(dtype))

    def largest(self, dtype: Any) -> float:
        """Return up to where sizes may go at a row, and change on its way, without an overflow of scores or differences."""
        return float(self.kind(dtype).max) / 4

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return scores and how far off they may be, here or where the steps compute them, both (n_samples, n_scores)."""
        sizes, offsets, reach = self._sizes
        kind = self.kind(X.dtype)
        rows = X.astype(np.float64, copy=False)
        errors = product_error(rows, sizes, offsets, self.n_roundings, kind)
        # near overflow, where errors are a share of sizes that reach a quarter of the largest number, nothing is known
        errors = np.where(errors < self.gamma(X.dtype) * self.largest(X.dtype), errors, np.inf)
        return np.asarray(rows @ self.coef.T + self.intercept), errors + self.n_roundings * float(kind.tiny) * reach


@singledispatch
def affine_operations(step: Any) -> list[Operation]:
    """Return a fitted transformer as affine operations; NoCertificateError where it is none that is known.

    A transformer of one's own joins by ``affine_operations.register``.
    """
    raise NoCertificateError(
        f"{step!r:.80}: not a step through which certificates can be carried. Affine steps are: StandardScaler, MinMaxScaler, "
        "MaxAbsScaler and RobustScaler (without clip), PCA, TruncatedSVD, feature selectors, pipelines of them, "
        "and 'passthrough'; before a linear model also RBFSampler and Nystroem(kernel='rbf'). Smoothing takes any model: "
        "certified_radius(..., method='smoothing')."
    )


def _refuse_clip(step: Any) -> None:
    if getattr(step, "clip", False):
        raise NoCertificateError(
            f"{step!r:.80}: clip=True makes the step no affine map. Use clip=False, or method='smoothing'."
        )


@affine_operations.register
def _(step: StandardScaler) -> list[Operation]:
    shift = [Shift(-step.mean_)] if step.with_mean else []
    return [*shift, Divide(step.scale_)] if step.with_std else [*shift]


@affine_operations.register
def _(step: RobustScaler) -> list[Operation]:
    shift = [Shift(-step.center_)] if step.with_centering else []
    return [*shift, Divide(step.scale_)] if step.with_scaling else [*shift]


@affine_operations.register
def _(step: MinMaxScaler) -> list[Operation]:
    _refuse_clip(step)
    return [Multiply(step.scale_), Shift(step.min_)]


@affine_operations.register
def _(step: MaxAbsScaler) -> list[Operation]:
    _refuse_clip(step)
    return [Divide(step.scale_)]


@affine_operations.register(PCA)
@affine_operations.register(IncrementalPCA)
def _(step: Any) -> list[Operation]:
    turned: list[Operation] = [Shift(-step.mean_), Product(step.components_)]
    if not step.whiten:
        return turned
    scale = np.sqrt(step.explained_variance_)
    return [*turned, Divide(np.maximum(scale, np.finfo(scale.dtype).eps))]


@affine_operations.register
def _(step: TruncatedSVD) -> list[Operation]:
    return [Product(step.components_)]


@affine_operations.register
def _(step: SelectorMixin) -> list[Operation]:
    return [Select(step.get_support())]


@affine_operations.register
def _(step: str) -> list[Operation]:
    if step != "passthrough":
        raise NoCertificateError(f"{step!r}: the only step that is a text is 'passthrough'.")
    return []


@affine_operations.register
def _(step: None) -> list[Operation]:
    return []


@affine_operations.register
def _(step: Pipeline) -> list[Operation]:
    return [operation for _, inner in step.steps for operation in affine_operations(inner)]
