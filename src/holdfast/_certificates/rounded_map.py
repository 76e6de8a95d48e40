"""Affine maps from rows to scores, with bounds on their rounding errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from holdfast._core.operations import Read, as_float, as_fractions, as_size, stages
from holdfast._core.rounding import Array, coarsest, gamma, product_error
from holdfast.uncertainty.affine_map import AffineMap


@dataclass(frozen=True)
class RoundedMap:
    r"""Scores :math:`W x + b` that a model computes from transformed rows, with bounds on their rounding errors.

    Parameters
    ----------
    last : ndarray of shape (n_scores, n_last)
        The weights of the transformed rows.
    offset : ndarray of shape (n_scores,)
    steps : AffineMap, default=None
        Maps rows x to the transformed rows; None if these are x.
    follows_rows : bool, default=False
        Whether the steps compute in the arithmetic of X, such as float32, instead of float64.
    """

    last: Any
    offset: Any
    steps: AffineMap | None = None
    follows_rows: bool = False

    def after(self, steps: AffineMap, *, follows_rows: bool = True) -> RoundedMap:
        """Return the map of rows to which `steps` are applied first."""
        total = steps if self.steps is None else self.steps.after(steps)
        return replace(self, steps=total, follows_rows=self.follows_rows or follows_rows)

    @property
    def _operations(self) -> tuple[Any, ...]:
        return () if self.steps is None else self.steps.operations

    def _pulled(self, read: Read) -> list[tuple[Any, Any]]:
        """Return the weights and offsets before each operation, from the scores back to the rows, which come last."""
        return list(stages(self._operations, read(self.last), read(self.offset), read))

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        return self._pulled(as_float)[-1]

    @cached_property
    def _sizes(self) -> tuple[Array, Array, Array]:
        # the same passes with absolute values, as cancellation in W must not hide rounding errors
        found = self._pulled(as_size)
        # an underflow at any step changes the score by its size times the weights that follow
        reach = 1.0 + sum(np.sum(W, axis=1) for W, _ in found)
        return *found[-1], np.asarray(reach)

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
        """For each entry of W, the sum of the absolute values of its terms, shape (n_scores, n_features)."""
        return self._sizes[0]

    @property
    def offset_sizes(self) -> Array:
        """For each entry of b, the sum of the absolute values of its terms, shape (n_scores,)."""
        return self._sizes[1]

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        return int(self.last.shape[1]) if self.steps is None else self.steps.n_features

    @cached_property
    def n_roundings(self) -> int:
        """The number of roundings that each term of a score goes through."""
        own = sum(np.shape(self.last)) + 2
        return int(own if self.steps is None else own + self.steps.n_roundings)

    def kind(self, dtype: Any) -> np.finfo:
        """Return the coarsest arithmetic used for rows of this type."""
        held = [] if self.steps is None else self.steps.parameters()
        dtypes = [np.asarray(array).dtype for array in (self.last, self.offset)] + [array.dtype for array in held]
        # float32 parameters, such as those of a PCA fitted to float32 rows, make the whole product float32
        return coarsest([*dtypes, dtype] if self.follows_rows else dtypes)

    def fractions(self) -> tuple[Any, Any]:
        """Return W and b exactly, as arrays of fractions."""
        return self._pulled(as_fractions)[-1]

    def gamma(self, dtype: Any) -> float:
        """Return the largest rounding error of a score, relative to the sum of the absolute values of its terms."""
        return gamma(self.n_roundings, self.kind(dtype))

    def largest(self, dtype: Any) -> float:
        """Return the size of terms up to which scores, here and in the model, and their differences do not overflow."""
        return float(self.kind(dtype).max) / 4

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return scores and bounds on their rounding errors, here or in the model's steps, (n_samples, n_scores)."""
        sizes, offsets, reach = self._sizes
        kind = self.kind(X.dtype)
        rows = X.astype(np.float64, copy=False)
        errors = product_error(rows, sizes, offsets, self.n_roundings, kind)
        # near overflow the bound does not hold, so the error is infinite if sizes exceed a quarter of the largest
        # number
        errors = np.where(errors < self.gamma(X.dtype) * self.largest(X.dtype), errors, np.inf)
        return np.asarray(rows @ self.coef.T + self.intercept), errors + self.n_roundings * float(kind.tiny) * reach
