"""Stochastic gradient steps in plain Python, which `kernels` compiles if numba is installed.

Rows are given as (values, indices, indptr) of a CSR matrix; dense rows have no `indices`. There are K weight vectors W,
shape (K, n_features), and C classes: K = C, or K = 1 and C = 2, where class 0 has the weight vector 0. The loss of a
row of class y is sum_k loss(u_k, s(d_k)) over k != y, with d_k = w_y - w_k, u_k = 1 - d_k'x - (b_y - b_k), and s(d) the
standard deviation of d'x under the noise.

Step n visits row ``order[n]``. It moves W against the gradient, times ``gains[n]``, and the ridge shrinks W by the
factor ``1 - shrinks[n]``. If `draws` is not empty, only the vector ``draws[n]`` moves, K times as far. Then W is
projected onto the ball of Frobenius norm `bound`. W, b and their averages are changed in place. The weight of a step in
the averages is its number, counted from 1 over all calls; the argument `t` is the number of steps taken before this
call.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np

EQUAL = 1e-13
"""Vectors count as equal if |w_y - w_k|^2 is below this share of |w_y|^2 + |w_k|^2, as the difference is rounding."""
SMALLEST_PIVOT, LARGEST_ENTRY = 1e-3, 1e3
"""Beyond these limits the matrix A of `lazy_steps` is multiplied out, as W = A V would become inaccurate."""


def lazy_steps(
    values, indices, indptr, labels, order, draws, gains, shrinks, loss, sigma, bound, t, W, b, mean_W, mean_b, learn_b
):
    r"""Take steps under noise of standard deviation `sigma` in every feature, at a cost of O(nonzeros K + K^3) each.

    The standard deviation of a score is :math:`s(d) = \sigma|d|`. A step is W <- M W + g x' with a K x K matrix M. So W
    = A V is stored as a small matrix A and a V that changes only at the nonzeros of the row; G = W W' gives the norms.
    With :math:`S_t = \sum_{k \le t} k A_k` after step t, the average follows from :math:`\sum_k k W_k = S_t V_t - U`,
    where each step adds :math:`S_{t-1}` times the increment of V to U.
    """
    K = W.shape[0]
    C = max(K, 2)
    first = C - K
    V, U = W, mean_W
    # U is minus the weighted sum of the steps so far: minus their mean times 1 + ... + t
    U *= -0.5 * t * (t + 1.0)
    A, S, M, work = np.eye(K), np.zeros((K, K)), np.empty((K, K)), np.empty((K, K))
    G, score, share = np.empty((K, K)), np.empty(K), np.ones(K)
    raw, moved, g, h, e = np.empty(K), np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    u, scale, norm = np.empty(C - 1), np.empty(C - 1), np.empty(C - 1)
    value, slope_u, slope_t = np.empty(C - 1), np.empty(C - 1), np.empty(C - 1)
    product_with_transpose(V, V, G)
    for n in range(order.size):
        i = order[n]
        x, where, p = values[indptr[i] : indptr[i + 1]], indices[indptr[i] : indptr[i + 1]], labels[i] - first
        t += 1
        square = dots(x, where, V, raw)
        multiply(A, raw, score)
        j = 0
        for q in range(-first, K):
            if q != p:
                u[j], size, both = 1.0, 0.0, 0.0
                if p >= 0:
                    u[j] -= score[p] + b[p]
                    size += G[p, p]
                if q >= 0:
                    u[j] += score[q] + b[q]
                    size += G[q, q]
                if p >= 0 and q >= 0:
                    both = 2.0 * G[p, q]
                # |w_p - w_q|^2 from the entries of G cancels for nearly equal vectors, and its rounding error gives no
                # direction
                norm[j] = math.sqrt(size - both) if size - both > EQUAL * size else 0.0
                scale[j] = sigma * norm[j]
                j += 1
        loss(u, scale, value, slope_u, slope_t)
        if draws.size > 0:
            share[:] = 0.0
            # one of K vectors moves, K times as far, so that the mean step is that of all vectors
            share[draws[n]] = K
        for k in range(K):
            g[k] = 0.0
            for m in range(K):
                M[k, m] = 0.0
            # the ridge shrinks weights to 0 at most, however long the step
            M[k, k] = max(1.0 - share[k] * shrinks[n], 0.0)
        j = 0
        for q in range(-first, K):
            if q != p:
                push = gains[n] * slope_u[j]
                # the gradient of sigma |d| is sigma d / |d|, so the two vectors move towards each other by this share
                # of their difference
                pinch = gains[n] * slope_t[j] * sigma / norm[j] if norm[j] > 0.0 else 0.0
                if p >= 0:
                    g[p] += share[p] * push
                    M[p, p] -= share[p] * pinch
                if q >= 0:
                    g[q] -= share[q] * push
                    M[q, q] -= share[q] * pinch
                if p >= 0 and q >= 0:
                    M[p, q] += share[p] * pinch
                    M[q, p] += share[q] * pinch
                j += 1
        if learn_b:
            for k in range(K):
                b[k] += g[k]
        multiply(M, score, moved)
        product(M, A, work)
        for k in range(K):
            for m in range(K):
                A[k, m] = work[k, m]
        # M W + g x' = M A (V + h x') with M A h = g: V changes only at the row's nonzeros, A becomes M A
        if solves(work, g, h):
            product(M, G, work)
            product_with_transpose(work, M, G)
            multiply(S, h, e)
            add(x, where, h, V)
            add(x, where, e, U)
        else:
            fold(A, S, V, U, raw)
            product_with_transpose(V, V, G)
            add(x, where, g, V)
        total = 0.0
        for k in range(K):
            for m in range(K):
                # (M W + g x') (M W + g x')' with M W x = moved gives the new norms without a pass over W
                G[k, m] += moved[k] * g[m] + g[k] * moved[m] + square * (g[k] * g[m])
            total += G[k, k]
        if total > bound * bound:
            ratio = bound / math.sqrt(total)
            A *= ratio
            G *= ratio * ratio
        for k in range(K):
            for m in range(K):
                S[k, m] += t * A[k, m]
            # t / (1 + ... + t) = 2 / (t + 1): the mean in which step t has the weight t
            mean_b[k] += (b[k] - mean_b[k]) * (2.0 / (t + 1.0))
    fold(A, S, V, U, raw)
    mean_W *= -2.0 / (t * (t + 1.0))


def plain_steps(
    values,
    indices,
    indptr,
    labels,
    order,
    draws,
    gains,
    shrinks,
    loss,
    deviations,
    noisy,
    noise_ptr,
    bound,
    t,
    W,
    b,
    mean_W,
    mean_b,
    learn_b,
):
    r"""Take steps under noise that differs by entry, at a cost of O(n_features K) each.

    The score of row i has the variance :math:`s_i(d)^2 = \sum_j \sigma_{ij}^2 d_j^2`. The standard deviations
    :math:`\sigma_{ij}` are CSR rows (deviations, noisy, noise_ptr): one row for all, or one for each.
    """
    K, d = W.shape
    C = max(K, 2)
    first = C - K
    score, bias, share, raw, g = np.zeros(C), np.zeros(C), np.ones(K), np.empty(K), np.empty(K)
    u, scale, pinch = np.empty(C - 1), np.empty(C - 1), np.empty(C - 1)
    value, slope_u, slope_t = np.empty(C - 1), np.empty(C - 1), np.empty(C - 1)
    column, pulled, variance, one = np.zeros(C), np.empty(K), np.zeros((1, d)), np.ones(1)
    bias[first:] = b
    for n in range(order.size):
        i = order[n]
        x, where, own = values[indptr[i] : indptr[i + 1]], indices[indptr[i] : indptr[i + 1]], labels[i]
        t += 1
        dots(x, where, W, raw)
        score[first:] = raw
        row = i if noise_ptr.size > 2 else 0
        s, at = deviations[noise_ptr[row] : noise_ptr[row + 1]], noisy[noise_ptr[row] : noise_ptr[row + 1]]
        variance[:] = 0.0
        add(s * s, at, one, variance)
        j = 0
        for k in range(C):
            if k != own:
                total = 0.0
                for f in range(d):
                    apart = (W[own - first, f] if own >= first else 0.0) - (W[k - first, f] if k >= first else 0.0)
                    total += variance[0, f] * apart * apart
                u[j] = 1.0 - (score[own] - score[k]) - (bias[own] - bias[k])
                scale[j] = math.sqrt(total)
                j += 1
        loss(u, scale, value, slope_u, slope_t)
        if draws.size > 0:
            share[:] = 0.0
            share[draws[n]] = K
        g[:] = 0.0
        j = 0
        for k in range(C):
            if k != own:
                if own >= first:
                    g[own - first] += share[own - first] * (gains[n] * slope_u[j])
                if k >= first:
                    g[k - first] -= share[k - first] * (gains[n] * slope_u[j])
                pinch[j] = gains[n] * slope_t[j] / scale[j] if scale[j] > 0.0 else 0.0
                j += 1
        for f in range(d):
            for k in range(K):
                # the weights of a feature before any of them moves
                column[first + k] = W[k, f]
            pulled[:] = 0.0
            j = 0
            for k in range(C):
                if k != own:
                    amount = pinch[j] * variance[0, f] * (column[own] - column[k])
                    if own >= first:
                        pulled[own - first] += amount
                    if k >= first:
                        pulled[k - first] -= amount
                    j += 1
            for k in range(K):
                W[k, f] = max(1.0 - share[k] * shrinks[n], 0.0) * W[k, f] - share[k] * pulled[k]
        add(x, where, g, W)
        if bound < np.inf:
            total = 0.0
            for k in range(K):
                for f in range(d):
                    total += W[k, f] * W[k, f]
            if total > bound * bound:
                W *= bound / math.sqrt(total)
        for k in range(K):
            if learn_b:
                bias[first + k] += g[k]
            mean_b[k] += (bias[first + k] - mean_b[k]) * (2.0 / (t + 1.0))
            for f in range(d):
                mean_W[k, f] += (W[k, f] - mean_W[k, f]) * (2.0 / (t + 1.0))
    b[:] = bias[first:]


def dots(x, where, V, out):
    """Set out = V x for a row x with entries at `where` (a dense row if `where` is empty); return x'x."""
    square = 0.0
    for j in range(x.size):
        square += np.float64(x[j]) * x[j]
    for k in range(V.shape[0]):
        total = 0.0
        if where.size == 0:
            for j in range(x.size):
                total += x[j] * V[k, j]
        else:
            for j in range(x.size):
                total += x[j] * V[k, where[j]]
        out[k] = total
    return square


def add(x, where, h, V):
    """Add h x' to V."""
    for k in range(V.shape[0]):
        factor = h[k]
        if where.size == 0:
            for j in range(x.size):
                V[k, j] += factor * x[j]
        else:
            for j in range(x.size):
                V[k, where[j]] += factor * x[j]


def multiply(A, x, out):
    """Set out = A x for a small matrix."""
    for k in range(A.shape[0]):
        total = 0.0
        for m in range(A.shape[1]):
            total += A[k, m] * x[m]
        out[k] = total


def product(A, B, out):
    """Set out = A B for small matrices."""
    for k in range(A.shape[0]):
        for m in range(B.shape[1]):
            total = 0.0
            for r in range(A.shape[1]):
                total += A[k, r] * B[r, m]
            out[k, m] = total


def product_with_transpose(A, B, out):
    """Set out = A B'."""
    for k in range(A.shape[0]):
        for m in range(B.shape[0]):
            total = 0.0
            for r in range(A.shape[1]):
                total += A[k, r] * B[m, r]
            out[k, m] = total


def solves(A, g, h):
    """Set h = A^-1 g, overwriting A; return False instead if A is too large or nearly singular."""
    K = A.shape[0]
    for k in range(K):
        h[k] = g[k]
        for m in range(K):
            if abs(A[k, m]) > LARGEST_ENTRY:
                return False
    for k in range(K):
        pivot = k
        for m in range(k + 1, K):
            if abs(A[m, k]) > abs(A[pivot, k]):
                pivot = m
        if not abs(A[pivot, k]) >= SMALLEST_PIVOT:
            return False
        if pivot != k:
            h[k], h[pivot] = h[pivot], h[k]
            for m in range(K):
                A[k, m], A[pivot, m] = A[pivot, m], A[k, m]
        for m in range(k + 1, K):
            ratio = A[m, k] / A[k, k]
            h[m] -= ratio * h[k]
            for r in range(k, K):
                A[m, r] -= ratio * A[k, r]
    for k in range(K - 1, -1, -1):
        for m in range(k + 1, K):
            h[k] -= A[k, m] * h[m]
        h[k] /= A[k, k]
    return True


def fold(A, S, V, U, column):
    """Multiply out: U <- U - S V and V <- A V; then S = 0 and A = I."""
    K = A.shape[0]
    for j in range(V.shape[1]):
        for k in range(K):
            column[k] = V[k, j]
        for k in range(K):
            new, summed = 0.0, 0.0
            for m in range(K):
                new += A[k, m] * column[m]
                summed += S[k, m] * column[m]
            V[k, j] = new
            U[k, j] -= summed
    for k in range(K):
        for m in range(K):
            A[k, m] = 1.0 if k == m else 0.0
            S[k, m] = 0.0


HELPERS = (dots, add, multiply, product, product_with_transpose, solves, fold)
"""Functions called by the steps, which `kernels` compiles with them."""
