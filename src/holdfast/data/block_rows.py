"""Passes written once for every matrix that can be cut into blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.rows import Array, Elementwise, MarginPass, Rows


class BlockRows(Rows):
    """Rows held by a matrix X that knows ``@``, slicing and ``.T``: NumPy arrays and SciPy's CSR alike."""

    def __init__(self, X: Any):
        self.X = X
        self.n_samples, self.n_features = X.shape

    def exact(self, block: Any) -> Any:
        """Return a block in float64, itself if it is that already."""
        return block.astype(np.float64, copy=False)

    def dot(self, w: Array) -> Array:
        return np.concatenate([self.exact(block) @ w for _, block in self.blocks()])

    def transpose_dot(self, r: Array) -> Array:
        return np.sum([self.exact(block).T @ r[rows] for rows, block in self.blocks()], axis=0)

    def square_sums(self, weights: Array) -> Array:
        return np.sum([self._squared(block).T @ weights[rows] for rows, block in self.blocks()], axis=0)

    def _squared(self, block: Any) -> Any:
        exact = self.exact(block)
        return exact * exact

    def normal_pass(self, weights: Array, v: Array, shift: float, extra: Array) -> tuple[Array, Array]:
        m, out = np.empty(self.n_samples), np.zeros(self.n_features)
        for rows, stored in self.blocks():
            block = self.exact(stored)
            m[rows] = block @ v + shift
            out += block.T @ (weights[rows] * m[rows] + extra[rows])
        return m, out

    @property
    def n_entries(self) -> int:
        return int(self.X.size)

    def take(self, rows: Any) -> BlockRows:
        return type(self)(self.X[rows])

    def margin_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float
    ) -> MarginPass:
        if not loss.is_rowwise:
            return self._whole_pass(loss, signs, weights, w, b, t, target)
        value, balance = 0.0, 0.0
        pull = np.zeros(self.n_features)
        scale_slopes = np.empty(self.n_samples)
        for rows, stored in self.blocks():
            y, c, block = signs[rows], weights[rows], self.exact(stored)
            u = target - y * (block @ w + b)
            losses, slopes, scale_slopes[rows] = loss.evaluate(u, t if t.ndim == 0 else t[rows])
            value += float(c @ losses)
            r = c * y * slopes
            balance += float(r.sum())
            pull += block.T @ r
        scale_slopes *= weights
        return MarginPass(value, pull, balance, scale_slopes if t.ndim else scale_slopes.sum())

    def _whole_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float
    ) -> MarginPass:
        """Return the same in two reads of X, for a loss that is cheaper for all rows at once."""
        losses, slopes, scale_slopes = loss.evaluate(target - signs * (self.dot(w) + b), t)
        r = weights * signs * slopes
        scale_slopes = weights * scale_slopes
        pull = self.transpose_dot(r)
        return MarginPass(float(weights @ losses), pull, float(r.sum()), scale_slopes if t.ndim else scale_slopes.sum())
