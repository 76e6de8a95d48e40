"""Perceptron steps against deleted features, in plain Python, which `kernels` compiles if numba is installed.

Rows are given as (values, indices, indptr) of a CSR matrix; dense rows share one row of `indices`.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

NEXT_TO_NOTHING = 1e-200
"""Divides gains in place of a price of 0, so that free features come first."""


def deletion_steps(
    values,
    indices,
    indptr,
    signs,
    worth,
    prices,
    capacity,
    is_whole,
    rate,
    asked,
    bound,
    steps,
    t,
    W,
    b,
    late_W,
    late_b,
):
    """Take one step for each row with each of K perceptrons, and return the sums of their losses, shape (K,).

    `signs` has shape (n_rows, K). The deficit of a row is ``asked - y b - sum_j a_j`` plus the largest gain of
    deletions. Deleting feature j gains a_j - rate worth_j at the price ``prices[j]``, and the prices may add up to
    `capacity`. W and b are changed in place, and so are `late_W` and `late_b`, the sums of their changes weighted by
    the number of the step. `t` is the number of steps taken before.
    """
    losses = np.zeros(W.shape[0])
    for i in range(steps.size):
        t += 1
        x = values[indptr[i] : indptr[i + 1]]
        where = indices if indices.size < values.size else indices[indptr[i] : indptr[i + 1]]
        for k in range(W.shape[0]):
            y = signs[i, k]
            w = W[k][where]
            a = y * w * x
            gains = a - rate * worth[where]
            if is_whole:
                left = whole_left(gains, prices[where], int(capacity))
            else:
                left = fraction_left(gains, prices[where], capacity)
            deficit = asked - y * b[k] - a.sum() + ((1.0 - left) * gains).sum()
            if deficit > 0:
                losses[k] += deficit
                new = np.minimum(np.maximum(w + steps[i] * y * left * x, -bound), bound)
                # the mean of the vectors before each of n steps is the last vector minus sum_t t (change of step t) /
                # n. This needs only the row's own features
                late_W[k][where] += t * (new - w)
                W[k][where] = new
                shifted = min(max(b[k] + steps[i] * y, -bound), bound)
                late_b[k] += t * (shifted - b[k])
                b[k] = shifted
    return losses


def fraction_left(gains, prices, capacity):
    """Return the remaining share of each feature after the best deletions in parts, by descending gain per price."""
    left = np.ones(gains.size)
    chosen = np.flatnonzero(gains > 0)
    order = chosen[np.argsort(-gains[chosen] / np.maximum(prices[chosen], NEXT_TO_NOTHING))]
    for j in order:
        # features of price inf come last, and keep their full share
        if prices[j] > capacity:
            left[j] = 1.0 - capacity / prices[j]
            break
        left[j] = 0.0
        capacity -= prices[j]
    return left


def whole_left(gains, prices, capacity):
    """Return the remaining share (0 or 1) of each feature after the best whole deletions, by dynamic programming."""
    left = np.ones(gains.size)
    chosen = np.flatnonzero(gains > 0)
    best, taken = np.zeros(capacity + 1), np.zeros((chosen.size, capacity + 1), dtype=np.bool_)
    for i in range(chosen.size):
        price = int(prices[chosen[i]])
        if price <= capacity:
            tried = best[: capacity + 1 - price] + gains[chosen[i]]
            taken[i, price:] = tried > best[price:]
            best[price:] = np.maximum(best[price:], tried)
    for i in range(chosen.size - 1, -1, -1):
        if taken[i, capacity]:
            left[chosen[i]] = 0.0
            capacity -= int(prices[chosen[i]])
    return left


HELPERS = (fraction_left, whole_left)
"""Functions called by the steps, which `kernels` compiles with them."""
