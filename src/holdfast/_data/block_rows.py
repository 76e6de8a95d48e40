"""Passes written once for every matrix that can be cut into blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.rows import Array, Elementwise, MarginPass, Reaction, Rows


class BlockRows(Rows):
    """Rows held by a matrix X that knows ``@``, slicing and ``.T``: NumPy arrays and SciPy's CSR alike."""

    def __init__(self, X: Any):
        self.X = X
        self.n_samples, self.n_features = X.shape

    def exact(self, block: Any) -> Any:
        """Return the block in float64, without a copy if it is float64 already."""
        return block.astype(np.float64, copy=False)

    def blocks_for(self, n_columns: int) -> Any:
        """Return blocks for a pass that computes `n_columns` scores of each row."""
        return self.blocks()

    def dot(self, w: Array) -> Array:
        return np.concatenate([self.exact(block) @ w for _, block in self.blocks()])

    def transpose_dot(self, r: Array) -> Array:
        none = np.zeros((self.n_features, *r.shape[1:]))
        return sum((self.exact(block).T @ r[rows] for rows, block in self.blocks()), none)

    def pull(self, W: Array, react: Reaction) -> Array:
        out = np.zeros((self.n_features, *W.shape[1:]))
        for rows, stored in self.blocks_for(W.shape[1] if W.ndim > 1 else 1):
            block = self.exact(stored)
            out += block.T @ react(rows, block @ W)
        return out

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
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float | Array
    ) -> MarginPass:
        if not loss.is_rowwise:
            return self._whole_pass(loss, signs, weights, w, b, t, target)
        value, balance = 0.0, 0.0
        scale_slopes, asked = np.empty(self.n_samples), np.broadcast_to(target, self.n_samples)

        def react(rows: slice, scores: Array) -> Array:
            nonlocal value, balance
            y, c = signs[rows], weights[rows]
            losses, slopes, scale_slopes[rows] = loss.evaluate(asked[rows] - y * (scores + b), t[rows] if t.ndim else t)
            value += float(c @ losses)
            r = c * y * slopes
            balance += float(r.sum())
            return r

        pull = self.pull(w, react)
        scale_slopes *= weights
        return MarginPass(value, pull, balance, scale_slopes if t.ndim else scale_slopes.sum())

    def _whole_pass(
        self, loss: Elementwise, signs: Array, weights: Array, w: Array, b: float, t: Array, target: float | Array
    ) -> MarginPass:
        """Return the result of `margin_pass` in two reads of X, for a loss that is cheaper on all rows at once."""
        losses, slopes, scale_slopes = loss.evaluate(target - signs * (self.dot(w) + b), t)
        r = weights * signs * slopes
        scale_slopes = weights * scale_slopes
        pull = self.transpose_dot(r)
        return MarginPass(float(weights @ losses), pull, float(r.sum()), scale_slopes if t.ndim else scale_slopes.sum())
