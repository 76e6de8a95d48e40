"""Rows of a factor of a Gram matrix K, with products computed from K."""

from __future__ import annotations

import numpy as np

from holdfast._core.rows import Array
from holdfast._data import DenseRows
from holdfast.features.gram import KernelSpace

EPS = 2 * float(np.finfo(np.float64).eps)
"""Rounding of an entry of K, and of a product with K, as a share of sqrt(k(x, x) k(z, z))."""


class GramRows(DenseRows):
    r"""Rows whose scores and pulls are computed with K, so that proofs hold for K and not only for its factor.

    Scores :math:`L\theta` are computed as :math:`K\beta` from the weights :math:`\beta` of the rows. Pulls
    :math:`\sum_i q_i \varphi(x_i)` have their coordinates :math:`L^\top q` and `n_extra` further coordinates, which
    raise their inner products to :math:`q^\top K q`, rounded up. The further coordinates cover the part of K that the
    factor leaves out, and rounding.
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
        # in an orthogonal basis, so that pulls that sum to 0 still do
        Q, T = np.linalg.qr(r.reshape(self.n_samples, -1))
        out = super().transpose_dot(Q)
        rounding = EPS * self.n_samples * (Q.T * np.maximum(np.diag(self.K), 0.0)) @ Q
        values, vectors = np.linalg.eigh(Q.T @ self.K @ Q - out.T @ out + rounding)
        out[self.n_features - self.n_extra :][: len(values)] = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return np.asarray(out @ T).reshape(-1, *r.shape[1:])
