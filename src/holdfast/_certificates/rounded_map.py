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
        Weights of the transformed rows.
    offset : ndarray of shape (n_scores,)
    steps : AffineMap, default=None
        From rows x to those that `last` weights; None where these are x.
    follows_rows : bool, default=False
        Whether the steps compute in the arithmetic of X, float32 for float32, and not in float64.
    """

    last: Any
    offset: Any
    steps: AffineMap | None = None
    follows_rows: bool = False

    def after(self, steps: AffineMap, *, follows_rows: bool = True) -> RoundedMap:
        """Return the same map of rows to which these steps are applied before."""
        total = steps if self.steps is None else self.steps.after(steps)
        return replace(self, steps=total, follows_rows=self.follows_rows or follows_rows)

    @property
    def _operations(self) -> tuple[Any, ...]:
        return () if self.steps is None else self.steps.operations

    def _pulled(self, read: Read) -> list[tuple[Any, Any]]:
        """Return the weights and offsets on the way from the scores back to the rows, those of the rows last."""
        return list(stages(self._operations, read(self.last), read(self.offset), read))

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        return self._pulled(as_float)[-1]

    @cached_property
    def _sizes(self) -> tuple[Array, Array, Array]:
        # the same passes with absolute values: cancellation in W must not make its rounding errors look small
        found = self._pulled(as_size)
        # an underflow at any step reaches the score multiplied by the weights that follow it
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
        """Sums of the absolute values of all terms of W, shape (n_scores, n_features); abs(W) without steps."""
        return self._sizes[0]

    @property
    def offset_sizes(self) -> Array:
        """The same for b, shape (n_scores,)."""
        return self._sizes[1]

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return int(self.last.shape[1]) if self.steps is None else self.steps.n_features

    @cached_property
    def n_roundings(self) -> int:
        """How often a term of a score is rounded on its way."""
        own = sum(np.shape(self.last)) + 2
        return int(own if self.steps is None else own + self.steps.n_roundings)

    def kind(self, dtype: Any) -> np.finfo:
        """Return the coarsest arithmetic that rows of this type meet."""
        held = [] if self.steps is None else self.steps.parameters()
        dtypes = [np.asarray(array).dtype for array in (self.last, self.offset)] + [array.dtype for array in held]
        # float32 parameters, such as those of a PCA fitted to float32 rows, make the whole product float32
        return coarsest([*dtypes, dtype] if self.follows_rows else dtypes)

    def fractions(self) -> tuple[Any, Any]:
        """Return W and b without rounding, as arrays of fractions."""
        return self._pulled(as_fractions)[-1]

    def gamma(self, dtype: Any) -> float:
        """Return the largest rounding error of a score, as a share of the sum of its terms' sizes."""
        return gamma(self.n_roundings, self.kind(dtype))

    def largest(self, dtype: Any) -> float:
        """Return the largest size of terms without overflow, of scores here and elsewhere and of their difference."""
        return float(self.kind(dtype).max) / 4

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return scores and bounds on their errors, here or in the model's own steps, both (n_samples, n_scores)."""
        sizes, offsets, reach = self._sizes
        kind = self.kind(X.dtype)
        rows = X.astype(np.float64, copy=False)
        errors = product_error(rows, sizes, offsets, self.n_roundings, kind)
        # near overflow the bound does not hold: sizes above a quarter of the largest number count as unknown
        errors = np.where(errors < self.gamma(X.dtype) * self.largest(X.dtype), errors, np.inf)
        return np.asarray(rows @ self.coef.T + self.intercept), errors + self.n_roundings * float(kind.tiny) * reach
