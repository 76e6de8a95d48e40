"""Compiled kernels, the only use of numba: elementwise losses, and passes and stochastic steps that take any loss.

A loss kernel fills (l, l_u, l_t) from (u, t) for a short vector. Its type is fixed, so a pass calls it through a pointer
and is compiled, and cached on disk, once for all losses. Tests hold each kernel equal to the NumPy definition.

Importing this module compiles nothing. Each kernel states its signatures beforehand, so that `Kernel.is_cached` can tell
from the files on disk whether using it means waiting for the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit, types
from numba.experimental.function_type import _get_wrapper_address
from numba.extending import register_jitable
from scipy.special import erfcx

from holdfast._core import deletion_steps as deletions
from holdfast._core import descent

VECTOR = types.Array(types.float64, 1, "C")
INPUT = types.Array(types.float64, 1, "C", readonly=True)
LOSS = types.void(VECTOR, VECTOR, VECTOR, VECTOR, VECTOR)
BLOCK_ROWS = 64
LN2 = math.log(2)
EXACT_SUMS = {"contract", "nsz", "arcp"}
"""The fast-math flags that the compiler may use; they do not include reordering of sums."""


class Kernel:
    """A function that is compiled for the given signatures only."""

    def __init__(self, function: Callable[..., Any], signatures: list[Any], fastmath: Any):
        self.function: Any = njit(cache=True, error_model="numpy", fastmath=fastmath)(function)
        self.signatures = signatures

    def __call__(self, *arguments):  # type: ignore[no-untyped-def]
        return self.function(*arguments)

    def is_cached(self) -> bool:
        """Return whether numba finds the kernel on disk, for this machine and this source, in every signature."""
        cache, context = self.function._cache, self.function.targetctx
        if not cache._cache_file._load_index():
            return False  # return before setting up the compiler, which takes 0.2 s
        return all(cache.load_overload(signature, context) is not None for signature in self.signatures)

    @cached_property
    def loaded(self) -> Kernel:
        """The kernel itself, after loading it from disk or compiling it."""
        for signature in self.signatures:
            self.function.compile(signature)
        self.function.disable_compile()  # arguments of other types are converted or refused
        return self


def compiled_for(*signatures: Any, fastmath: Any = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that turns a function into a kernel."""
    return lambda function: Kernel(function, list(signatures), fastmath)


def _mills_polynomial() -> str:
    """Return, as Horner's rule in y = (x - 3.75) / (x + 3.75), the polynomial for (1 + x) Q(x) / density(x), x >= 0."""
    # the quotient is smooth and bounded for x >= 0, which is mapped to [-1, 1); a fit at Chebyshev nodes is nearly the
    # best polynomial
    y = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    x = 3.75 * (1 + y) / (1 - y)
    fit = np.polynomial.Chebyshev.fit(y, np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)) * (1 + x), 24, domain=[-1, 1])
    coefficients = [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]
    terms = "".join(f" * y + {c!r})" for c in coefficients[-2::-1])
    return f"{'(' * (len(coefficients) - 1)}{coefficients[-1]!r}{terms}"


# Written out and inlined, as only straight-line code is vectorised.
mills_polynomial = njit(inline="always")(eval(f"lambda y: {_mills_polynomial()}"))


@njit(inline="always")
def exponential(x):  # type: ignore[no-untyped-def]
    """exp(x) for x <= 0, to 2e-16, in operations that vectorise (libm's does not)."""
    # below this, 2^k would not be a normal number
    x = x if x > -700.0 else -700.0
    k = math.floor(x * 1.4426950408889634 + 0.5)
    # ln 2 in two parts (Cody & Waite): the first ends in zero bits, so its product with k is exact, and r stays
    # accurate
    r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
    r3 = 1 / 6 + r * (
        1 / 24
        + r
        * (
            1 / 120
            + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r / 39916800)))))
        )
    )
    e = 1 + r * (1 + r * (0.5 + r * r3))
    # 2^k by its exponent bits
    return e * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@njit(inline="always")
def clipped_ratio(u, t):  # type: ignore[no-untyped-def]
    """U / t within +-1e8; at t = 0 the limit, which is 0 at u = 0."""
    z = u / t if t > 0 else (1e8 if u > 0 else (-1e8 if u < 0 else 0.0))
    z = z if z < 1e8 else 1e8
    return z if z > -1e8 else -1e8


@njit(inline="always")
def gaussian_tail(x):  # type: ignore[no-untyped-def]
    """Return h(x) = density - x Q, the upper tail Q and the density of the standard normal at x >= 0."""
    ratio = mills_polynomial((x - 3.75) / (x + 3.75)) / (1 + x)
    density = 0.3989422804014327 * exponential(-0.5 * x * x)
    # for large x this is rounding of either sign, times a density of nearly 0
    excess = 1 - x * ratio
    return density * (excess if excess > 0 else 0.0), density * ratio, density


class LossKernel(Kernel, types.WrapperAddressProtocol):
    """A loss kernel, which other kernels call through its address."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function, [LOSS], EXACT_SUMS)

    @cached_property
    def address(self) -> int:
        """The address, cached as a lookup takes a millisecond and would otherwise happen at every call."""
        return _get_wrapper_address(self.loaded.function, LOSS)

    def __wrapper_address__(self):  # type: ignore[no-untyped-def]
        return self.address

    def signature(self):  # type: ignore[no-untyped-def]
        return LOSS


@LossKernel
def gaussian_hinge(u, t, loss, slope, scale_slope):  # type: ignore[no-untyped-def]
    """Gaussian hinge."""
    for i in range(u.size):
        z = clipped_ratio(u[i], t[i])
        value, tail, density = gaussian_tail(abs(z))
        loss[i] = (u[i] if u[i] > 0 else 0.0) + t[i] * value
        slope[i] = 1 - tail if z > 0 else tail
        scale_slope[i] = density


@LossKernel
def log2_hinge(u, t, loss, slope, scale_slope):  # type: ignore[no-untyped-def]
    """Base-2 softplus as a perspective."""
    for i in range(u.size):
        z = clipped_ratio(u[i], t[i])
        x = LN2 * abs(z)
        e = exponential(-x)
        tail, rest = math.log1p(e) / LN2, e / (1 + e)
        loss[i] = (u[i] if u[i] > 0 else 0.0) + t[i] * tail
        slope[i] = 1 - rest if z > 0 else rest
        scale_slope[i] = tail + x * rest / LN2


@LossKernel
def quadratic_hinge(u, t, loss, slope, scale_slope):  # type: ignore[no-untyped-def]
    """Quadratically rounded hinge."""
    for i in range(u.size):
        z = clipped_ratio(u[i], t[i])
        left = 4 - abs(z) if abs(z) < 4 else 0.0
        p = left / 8
        loss[i] = (u[i] if u[i] > 0 else 0.0) + t[i] * left * left / 16
        slope[i] = 1 - p if z > 0 else p
        scale_slope[i] = 4 * p * (1 - p)


@LossKernel
def two_point_hinge(u, t, loss, slope, scale_slope):  # type: ignore[no-untyped-def]
    """Hinge under the worst noise of given power."""
    for i in range(u.size):
        z = clipped_ratio(u[i], t[i])
        x, root = abs(z), math.sqrt(1 + z * z)
        tail = 0.5 / (root + x)
        loss[i] = (u[i] if u[i] > 0 else 0.0) + t[i] * tail
        slope[i] = 1 - tail / root if z > 0 else tail / root
        scale_slope[i] = 0.5 / root


NORMAL_NODES = np.arange(-36, 37) / 4
NORMAL_WEIGHTS = np.exp(-0.5 * NORMAL_NODES**2) / np.exp(-0.5 * NORMAL_NODES**2).sum()
LOGISTIC_NODES = np.arange(-72, 73) / 2
LOGISTIC_WEIGHTS = 0.125 / np.cosh(LOGISTIC_NODES / 2) ** 2
LOGISTIC_WEIGHTS /= LOGISTIC_WEIGHTS.sum()


@LossKernel
def expected_logistic(u, t, loss, slope, scale_slope):  # type: ignore[no-untyped-def]
    """Expected logistic loss by the two trapezoid rules of its definition."""
    for i in range(u.size):
        x, g0, g1, g2 = u[i] - 1, 0.0, 0.0, 0.0
        # for small t, E softplus(x + tZ) is a mean over normal nodes. For large t softplus is too sharp for these
        # nodes; as softplus(x) = E (x - L)_+ with L logistic, it is then a mean of Gaussian hinges over L
        if t[i] <= 2:
            for k in range(NORMAL_NODES.size):
                v = x + t[i] * NORMAL_NODES[k]
                e = exponential(-abs(v))
                rest = e / (1 + e)
                g0 += NORMAL_WEIGHTS[k] * ((v if v > 0 else 0.0) + math.log1p(e))
                g1 += NORMAL_WEIGHTS[k] * (1 - rest if v > 0 else rest)
                g2 += NORMAL_WEIGHTS[k] * (rest * (1 - rest))
            loss[i], slope[i], scale_slope[i] = g0, g1, t[i] * g2
        else:
            for k in range(LOGISTIC_NODES.size):
                z = clipped_ratio(x - LOGISTIC_NODES[k], t[i])
                value, tail, density = gaussian_tail(abs(z))
                g0 += LOGISTIC_WEIGHTS[k] * ((x - LOGISTIC_NODES[k] if z > 0 else 0.0) + t[i] * value)
                g1 += LOGISTIC_WEIGHTS[k] * (1 - tail if z > 0 else tail)
                g2 += LOGISTIC_WEIGHTS[k] * density
            loss[i], slope[i], scale_slope[i] = g0, g1, g2


def _sweep_signature(dtype):  # type: ignore[no-untyped-def]
    X = types.Array(dtype, 2, "C", readonly=True)
    result = types.Tuple((types.float64, VECTOR, types.float64, types.float64))
    return result(X, INPUT, INPUT, INPUT, types.float64, INPUT, INPUT, types.FunctionType(LOSS), VECTOR)


@njit(inline="always")
def add_rows(X, start, size, r, out):  # type: ignore[no-untyped-def]
    """Add X[start : start + size]'r, four rows at a time, so that `out` is read and written once for all four."""
    whole = size - size % 4
    for i in range(0, whole, 4):
        k, r0, r1, r2, r3 = start + i, r[i], r[i + 1], r[i + 2], r[i + 3]
        for j in range(out.size):
            out[j] += r0 * X[k, j] + r1 * X[k + 1, j] + r2 * X[k + 2, j] + r3 * X[k + 3, j]
    for i in range(whole, size):
        for j in range(out.size):
            out[j] += r[i] * X[start + i, j]


@compiled_for(_sweep_signature(types.float64), _sweep_signature(types.float32), fastmath=True)
def margin_sweep(X, signs, weights, w, b, t, target, loss, scale_slopes):  # type: ignore[no-untyped-def]
    """Return value, pull, balance and sum of scale slopes, 64 rows at a time, so that X is read from memory once.

    Sums are float64 for any type of X, as with float32 sums a line search near the optimum would see only noise.

    `t` and `target` have a single entry, or one for each row; `scale_slopes` is filled if it has one for each row.
    """
    n, d = X.shape
    pull, balance, value, total = np.zeros(d), 0.0, 0.0, 0.0
    u, level, loss_u, slope_u, slope_t = (
        np.empty(BLOCK_ROWS),
        np.empty(BLOCK_ROWS),
        np.empty(BLOCK_ROWS),
        np.empty(BLOCK_ROWS),
        np.empty(BLOCK_ROWS),
    )
    r = np.empty(BLOCK_ROWS)
    level[:] = t[0]
    for start in range(0, n, BLOCK_ROWS):
        size = min(BLOCK_ROWS, n - start)
        for i in range(size):
            score = 0.0
            for j in range(d):
                score += X[start + i, j] * w[j]
            u[i] = target[(start + i) % target.size] - signs[start + i] * (score + b)
        if t.size > 1:
            level[:size] = t[start : start + size]
        loss(u[:size], level[:size], loss_u[:size], slope_u[:size], slope_t[:size])
        for i in range(size):
            c = weights[start + i]
            value += c * loss_u[i]
            total += c * slope_t[i]
            if scale_slopes.size > 0:
                scale_slopes[start + i] = c * slope_t[i]
            r[i] = c * signs[start + i] * slope_u[i]
            balance += r[i]
        # the rows are read a second time, but from cache
        add_rows(X, start, size, r, pull)
    return value, pull, balance, total


SINGLE = types.Array(types.float32, 2, "C", readonly=True)


@compiled_for(types.UniTuple(VECTOR, 2)(SINGLE, INPUT, INPUT, types.float64, INPUT), fastmath=True)
def single_sweep(X, weights, v, shift, extra):  # type: ignore[no-untyped-def]
    """Return m = X v + shift and X'(weights * m + extra); sums within blocks of rows are float32, else float64."""
    n, d = X.shape
    m, out = np.empty(n), np.zeros(d)
    # scale the numbers, so that sums stay in the range of float32
    longest = np.max(np.abs(v)) if d > 0 else 0.0
    longest = longest if longest > 0 else 1.0
    direction, part = (v / longest).astype(np.float32), np.zeros(d, dtype=np.float32)
    r = np.zeros(BLOCK_ROWS, dtype=np.float32)
    for start in range(0, n, BLOCK_ROWS):
        size, largest = min(BLOCK_ROWS, n - start), 0.0
        for i in range(start, start + size):
            total = np.float32(0.0)
            for j in range(d):
                total += X[i, j] * direction[j]
            m[i] = longest * total + shift
            largest = max(largest, abs(weights[i] * m[i] + extra[i]))
        largest = largest if largest > 0 else 1.0
        r[:] = 0.0
        for i in range(size):
            k = start + i
            r[i] = (weights[k] * m[k] + extra[k]) / largest
        add_rows(X, start, size, r, part)
        for j in range(d):
            out[j] += largest * part[j]
            part[j] = 0.0
    return m, out


@compiled_for(VECTOR(SINGLE, INPUT), fastmath=True)
def dot_sweep(X, w):  # type: ignore[no-untyped-def]
    """Return X w, summed in float64."""
    n, d = X.shape
    out = np.empty(n)
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j] * w[j]
        out[i] = total
    return out


@compiled_for(VECTOR(SINGLE, INPUT), fastmath=True)
def pull_sweep(X, r):  # type: ignore[no-untyped-def]
    """Return X'r, summed in float64."""
    n, d = X.shape
    out = np.zeros(d)
    for start in range(0, n, BLOCK_ROWS):
        size = min(BLOCK_ROWS, n - start)
        add_rows(X, start, size, r[start : start + size], out)
    return out


def _squares_signature(dtype):  # type: ignore[no-untyped-def]
    return VECTOR(types.Array(dtype, 2, "C", readonly=True), INPUT)


@compiled_for(_squares_signature(types.float64), _squares_signature(types.float32), fastmath=True)
def square_sweep(X, weights):  # type: ignore[no-untyped-def]
    """Return sum_i weights_i x_ij**2, summed in float64."""
    n, d = X.shape
    out = np.zeros(d)
    whole = n - n % 4
    for i in range(0, whole, 4):
        c0, c1, c2, c3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(d):
            x0, x1, x2, x3 = (
                np.float64(X[i, j]),
                np.float64(X[i + 1, j]),
                np.float64(X[i + 2, j]),
                np.float64(X[i + 3, j]),
            )
            out[j] += c0 * x0 * x0 + c1 * x1 * x1 + c2 * x2 * x2 + c3 * x3 * x3
    for i in range(whole, n):
        for j in range(d):
            out[j] += weights[i] * np.float64(X[i, j]) ** 2
    return out


def _normal_signature(dtype):  # type: ignore[no-untyped-def]
    data, index = types.Array(dtype, 1, "C", readonly=True), types.Array(types.uint32, 1, "C", readonly=True)
    return types.UniTuple(VECTOR, 2)(data, index, index, INPUT, INPUT, types.float64, INPUT)


# without fastmath, as sums over gathered entries are slower when vectorised
@compiled_for(_normal_signature(types.float64), _normal_signature(types.float32))
def normal_sweep(data, indices, indptr, weights, v, shift, extra):  # type: ignore[no-untyped-def]
    """Return m = X v + shift and X'(weights * m + extra) for CSR rows, using each row twice while it is in cache."""
    n = weights.size
    m, out = np.empty(n), np.zeros(v.size)
    for i in range(n):
        start, stop = indptr[i], indptr[i + 1]
        total = 0.0
        for k in range(start, stop):
            total += data[k] * v[indices[k]]
        m[i] = total + shift
        r = weights[i] * m[i] + extra[i]
        for k in range(start, stop):
            out[indices[k]] += r * data[k]
    return m, out


for helper in (*descent.HELPERS, *deletions.HELPERS):
    register_jitable(helper)

INDICES, NUMBERS, TABLE = (
    types.Array(types.uint32, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C", readonly=True),
    types.Array(types.float64, 2, "C"),
)


def _steps_signature(dtype, *noise):  # type: ignore[no-untyped-def]
    """Return the signature of steps over rows of this dtype: rows, labels, order, gains, loss, noise, state."""
    rows = types.Array(dtype, 1, "C", readonly=True), INDICES, NUMBERS
    visits = NUMBERS, NUMBERS, NUMBERS, INPUT, INPUT, types.FunctionType(LOSS)
    state = types.float64, types.int64, TABLE, VECTOR, TABLE, VECTOR, types.boolean
    return types.void(*rows, *visits, *noise, *state)


def _deletion_signature():  # type: ignore[no-untyped-def]
    rows = INPUT, NUMBERS, NUMBERS, types.Array(types.float64, 2, "C", readonly=True)
    purse = INPUT, INPUT, types.float64, types.boolean, types.float64, types.float64, types.float64
    return VECTOR(*rows, *purse, INPUT, types.int64, TABLE, VECTOR, TABLE, VECTOR)


DTYPES, QUICK_SUMS = (types.float64, types.float32), EXACT_SUMS | {"reassoc"}
lazy_steps = Kernel(descent.lazy_steps, [_steps_signature(dtype, types.float64) for dtype in DTYPES], QUICK_SUMS)
plain_steps = Kernel(
    descent.plain_steps, [_steps_signature(dtype, INPUT, INDICES, NUMBERS) for dtype in DTYPES], QUICK_SUMS
)
deletion_steps = Kernel(deletions.deletion_steps, [_deletion_signature()], QUICK_SUMS)

LOSSES = ("gaussian_hinge", "log2_hinge", "quadratic_hinge", "two_point_hinge", "expected_logistic")
PASSES = (*LOSSES, "margin_sweep", "normal_sweep", "single_sweep", "dot_sweep", "pull_sweep", "square_sweep")
STEPS = (*LOSSES, "lazy_steps", "plain_steps", "deletion_steps")


def named(name: str) -> Kernel:
    """Return the kernel of this name."""
    kernel: Kernel = globals()[name]
    return kernel
