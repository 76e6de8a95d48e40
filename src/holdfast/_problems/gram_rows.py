"""Rows of a factor of a Gram matrix, seen through the matrix itself."""

from __future__ import annotations

import numpy as np

from holdfast._core.rows import Array
from holdfast._data import DenseRows
from holdfast.features.gram import KernelSpace

EPS = 2 * float(np.finfo(np.float64).eps)
"""Rounding of an entry of K, and of a product with K, as a share of sqrt(k(x, x) k(z, z))."""


class GramRows(DenseRows):
    r"""Rows whose scores and pulls are computed with K: what a proof speaks of that is to hold for K, not for its factor.

    Scores :math:`L\theta` are those of the weights :math:`\beta` of the rows, :math:`K\beta`. Pulls
    :math:`\sum_i q_i \varphi(x_i)` get, besides their coordinates :math:`L^\top q`, `n_extra` more that bring their products
    with each other up to :math:`q^\top K q`, rounded up: what the factor leaves out, and what rounding has done to it.
    """

    def __init__(self, space: KernelSpace, n_extra: int):
        assert space.gram is not None
        super().__init__(np.pad(space.coordinates, [(0, 0), (0, n_extra)]))
        self.space, self.K, self.n_extra = space, space.gram, n_extra

    def dot(self, w: Array) -> Array:
        weights = np.zeros((self.n_samples, *w.shape[1:]))
        weights[self.space.support] = self.space.factor.weights(w[: self.n_features - self.n_extra])
        return self.K @ weights

    def transpose_dot(self, r: Array) -> Array:
        # by an orthogonal basis, so that pulls that add up to 0 still do
        Q, T = np.linalg.qr(r.reshape(self.n_samples, -1))
        out = super().transpose_dot(Q)
        rounding = EPS * self.n_samples * (Q.T * np.maximum(np.diag(self.K), 0.0)) @ Q
        values, vectors = np.linalg.eigh(Q.T @ self.K @ Q - out.T @ out + rounding)
        out[self.n_features - self.n_extra :][: len(values)] = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return np.asarray(out @ T).reshape(-1, *r.shape[1:])
