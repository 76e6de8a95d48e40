"""Steps of a perceptron against deleted features, in plain Python: they run as they stand, and `kernels` compiles them.

Rows arrive as (values, indices, indptr) of a CSR matrix; dense rows have one row of `indices` for all.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

NEXT_TO_NOTHING = 1e-200
"""What gains are divided by where the price is 0, so that what is free of charge comes first."""


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
    """Take a step for each row with each of K perceptrons, and return the sums of their losses, shape (K,).

    `signs` has shape (n_rows, K). The deficit of a row is ``asked - y b - sum_j a_j`` plus the most that deletions gain, which
    is a_j - rate worth_j for feature j, at `prices` up to `capacity`. W, b and the sums of their changes, that of step t with
    the weight t, are changed in place; `t` steps have been taken before.
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
                # the mean of the vectors before each of n steps is the last vector less sum_t t (change of step t) / n, which
                # only asks for the row's own features
                late_W[k][where] += t * (new - w)
                W[k][where] = new
                shifted = min(max(b[k] + steps[i] * y, -bound), bound)
                late_b[k] += t * (shifted - b[k])
                b[k] = shifted
    return losses


def fraction_left(gains, prices, capacity):
    """Return the share left of each feature when a fractional knapsack of gains is deleted, the best gain per price first."""
    left = np.ones(gains.size)
    chosen = np.flatnonzero(gains > 0)
    order = chosen[np.argsort(-gains[chosen] / np.maximum(prices[chosen], NEXT_TO_NOTHING))]
    for j in order:
        # what costs inf is last in the order, and loses nothing
        if prices[j] > capacity:
            left[j] = 1.0 - capacity / prices[j]
            break
        left[j] = 0.0
        capacity -= prices[j]
    return left


def whole_left(gains, prices, capacity):
    """Return the share left of each feature when the best whole ones are deleted, by dynamic programming over whole prices."""
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
"""Functions that the steps call, and that `kernels` compiles with them."""
