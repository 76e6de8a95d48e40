"""The logistic loss averaged over Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline
from scipy.special import expit, ndtr

from holdfast._core import compiled
from holdfast._core.chunks import STRETCH
from holdfast._core.joint_loss import ExpectedJointLoss
from holdfast._core.loss import Array, Loss
from holdfast.losses.expected_cross_entropy import ExpectedCrossEntropy
from holdfast.losses.gaussian_hinge import density, mills_ratios

SPACINGS = ((0.5, 0.7), (0.8, 0.5), (1.2, 0.4), (2.0, 0.25), (4.0, 0.125), (8.0, 0.0625))
"""Spacing of the nodes of the noise up to a scale: the nearest poles of the logistic function lie at z = i pi / t."""
FINE_SPACINGS = ((0.5, 0.6), (1.0, 0.4), (2.0, 0.22), (4.0, 0.11), (8.0, 0.055))
"""The same for proofs, which share no node with what they prove."""
REACH, WIDEST = 9.0, 36.0
"""How many deviations the nodes of the noise cover, and how far those of logistic noise reach: beyond lies less than 1e-15."""
BLOCK_ENTRIES = 25_000
"""Row-node pairs evaluated at once: few enough to stay in the cache, many enough to make calls worth their while."""
MANY_ROWS = 5_000
"""With more rows of one scale than this, a proof reads the loss off a spline."""
DEGREE, PER_UNIT_OF_CURVES = 5, 32
"""The degree of that spline, and its nodes per unit of the loss or of the noise, whichever is wider."""
TABLE_GROWTH = 64
"""Tables grow by so many nodes on either side."""
PER_UNIT = 48
"""Nodes of the interpolation table per unit of the narrower of the two scales."""


class ExpectedLogistic(Loss):
    r"""The expected logistic loss :math:`\mathbb E \log(1 + e^{u - 1 + tZ})`, Z standard normal.

    There is no closed form. With :math:`G_k(x, t) = \mathbb E\, \mathrm{softplus}^{(k)}(x + tZ)` and x = u - 1, the
    loss is :math:`G_0`, its slopes :math:`G_1` and :math:`t\,G_2`, its curvature :math:`G_2,\ t\,G_3,\ G_2 + t^2 G_4`.
    For t <= 8 the trapezoid rule over z in [-9, 9] gives them to about 1e-12. For larger t it would need ever more nodes,
    so softplus is written as the hinge averaged over logistic noise, whence
    :math:`G_0 = \int \sigma'(a)\, t f((x-a)/t)\, da` with the Gaussian hinge's f, and the trapezoid rule is used on that:
    145 nodes for any t. Both are sums of convex functions with positive weights, so the computed loss is convex, and
    nondecreasing in t. Many rows with one common t are interpolated from a table (Taylor, error below 1e-11).

    The loss is smooth at t = 0 and never collapses. Its dual has no closed form: with a ridge alpha > 0 the certificate
    uses strong convexity instead, without one no lower bound is known.

    Examples
    --------
    >>> ExpectedLogistic().value(np.array([1.0, 1.0]), np.array([0.0, 2.0])).round(6)
    array([0.693147, 1.067714])
    """

    is_rowwise = False
    is_proper = True

    def value(self, u: Array, t: Array) -> Array:
        return plain_moments(u - 1.0, t, 1)[0]

    def tangent(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        value, slope, scale_slope = plain_moments(u - 1.0, t, 3)
        return value, slope, scale_slope

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        g = _moments(u - 1.0, t, 2)
        return g[0], g[1], t * g[2]

    def curvature(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        return self.derivatives(u, t)[3:]

    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        g = _moments(u - 1.0, t, 4)
        return g[0], g[1], t * g[2], g[2], t * g[3], g[2] + np.square(t) * g[4]

    def largest_scale_slope(self) -> float:
        return float(density(np.array(0.0)))  # E[Z p(x + tZ)] <= E[Z+], p increasing from 0 to 1

    def jointly(self) -> ExpectedJointLoss:
        return ExpectedCrossEntropy()

    def compiled(self) -> Any | None:
        return compiled.kernel("expected_logistic")


def plain_moments(x: Array, t: Array, n: int) -> Array:
    r"""Return the means of softplus(v), :math:`\sigma(v)` and :math:`Z\,\sigma(v)`, v = x + tZ, or the first n of them.

    For proofs: the trapezoid rule, over Z where that is narrow and over logistic noise where it is wide, good to about 1e-12,
    with nodes of its own and no code of `evaluate`. Many rows with one t are read off a spline.
    """
    x, t = np.asarray(x, dtype=float), np.asarray(t, dtype=float)
    if t.ndim == 0 and x.size > MANY_ROWS:
        reach = float(min(np.abs(x).max(), 40.0 + 9.5 * t))
        return _read_off(x, _curve(float(t), 4.0 * np.ceil(reach / 4.0 + 0.1), n))
    flat, scales = x.ravel(), np.broadcast_to(t, x.shape).ravel()
    out = np.empty((n, flat.size))
    for rows, rule in _by_scale(scales, FINE_SPACINGS, _over_noise, _over_logistic):
        out[:, rows] = rule(flat[rows, None], scales[rows, None], n)
    return out.reshape((n, *x.shape))


@lru_cache(maxsize=4)
def _curve(t: float, reach: float, n: int) -> tuple[Array, Array]:
    """Return nodes and, by mean and power, the coefficients of splines through the means there, off by less than 1e-11."""
    half = np.ceil(PER_UNIT_OF_CURVES * reach / max(1.0, t))
    nodes = np.linspace(-reach, reach, int(2 * half) + 1)
    spline = make_interp_spline(nodes, plain_moments(nodes, np.full(nodes.shape, t), n).T, k=DEGREE)
    powers = [spline(nodes, nu=power).T / factorial(power) for power in range(DEGREE + 1)]
    return nodes, np.ascontiguousarray(np.moveaxis(np.array(powers), 0, 1))


def _read_off(x: Array, curve: tuple[Array, Array]) -> Array:
    """Return the means at x from splines with evenly spaced nodes."""
    nodes, coefs = curve
    out = np.empty((len(coefs), x.size))
    for start in range(0, x.size, STRETCH):
        part = slice(start, start + STRETCH)
        inside = np.clip(x[part], nodes[0], nodes[-1])
        index = ((inside - nodes[0]) * ((len(nodes) - 1) / (nodes[-1] - nodes[0]))).astype(np.intp)
        e = inside - nodes[index]
        for row, powers in zip(out, coefs, strict=True):
            g = powers[DEGREE].take(index)
            for coef in powers[-2::-1]:
                g *= e
                g += coef.take(index)
            row[part] = g
        out[0, part] += np.maximum(x[part] - inside, 0.0)  # beyond its ends the loss is 0 or straight
    return out


def _by_scale(
    scales: Array, spacings: Sequence[tuple[float, float]], narrow: Callable[..., Array], wide: Callable[..., Array]
) -> Iterator[tuple[NDArray[np.intp], Callable[..., Array]]]:
    """Yield stretches of rows and their rule: `narrow` with nodes for their scales, `wide` beyond the last of `spacings`."""
    below = -np.inf
    for reach, spacing in (*spacings, (np.inf, 0.5)):
        nodes = _nodes(REACH if reach < np.inf else WIDEST, spacing)
        rows = np.flatnonzero((scales > below) & (scales <= reach))
        rule = partial(narrow if reach < np.inf else wide, nodes=nodes)
        for part in np.array_split(rows, 1 + rows.size * nodes.size // BLOCK_ENTRIES) if rows.size else ():
            yield part, rule
        below = reach


@lru_cache
def _nodes(reach: float, spacing: float) -> Array:
    half = int(np.ceil(reach / spacing))
    return spacing * np.arange(-half, half + 1, dtype=np.float64)


def _over_noise(x: Array, t: Array, n: int, nodes: Array) -> Array:
    """The trapezoid rule over Z."""
    z = nodes
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    v = x + t * z
    e = np.exp(-np.abs(v))  # softplus and sigma from one exponential, which is what this costs
    softplus = (np.maximum(v, 0.0) + np.log1p(e)) @ weight
    if n == 1:
        return softplus[None]
    p = np.where(v >= 0, 1.0, e) / (1.0 + e)
    return np.array([softplus, p @ weight, p @ (z * weight)])


def _over_logistic(x: Array, t: Array, n: int, nodes: Array) -> Array:
    """softplus(x) is the mean of max(x - L, 0) and sigma(x) the probability of L <= x, L logistic."""
    a = nodes  # sigma' has double poles at i pi: a spacing of 0.6 would already cost four digits
    weight = expit(a) * expit(-a) / (expit(a) * expit(-a)).sum()
    gap = x - a
    z = gap / t
    p, d = ndtr(z), density(z)
    # the mean of max(gap + tZ, 0); its terms cancel where gap << -t, but only to 1e-16 of a margin, unseen in a sum of losses
    return np.array([(gap * p + t * d) @ weight, p @ weight, d @ weight][:n])


def _moments(x: Array, t: Array, order: int) -> list[Array]:
    """Return G_0 ... G_order at every x, each with its own or the common t."""
    x, t = np.asarray(x, dtype=float), np.asarray(t, dtype=float)
    if t.ndim == 0:
        unit = max(1.0, float(t)) / PER_UNIT
        reach = min(np.abs(x).max(initial=0.0), 40.0 + 9.5 * float(t))
        if x.size > 2.2 * reach / unit:
            return _interpolated(x, float(t), order, unit, reach)
    out = _direct(x.ravel(), np.broadcast_to(t, x.shape).ravel(), order)
    return [g.reshape(x.shape) for g in out]


def _direct(x: Array, t: Array, order: int) -> Array:
    """Return G_0 ... G_order, shape (order + 1, n), each row by the rule that suits its t."""
    out = np.empty((order + 1, x.size))
    for rows, rule in _by_scale(t, SPACINGS, _narrow, _wide):
        out[:, rows] = rule(x[rows], t[rows], order)
    return out


def _interpolated(x: Array, t: float, order: int, unit: float, reach: float) -> list[Array]:
    """Return G_0 ... G_order by Taylor expansion around the nearest node of a table made for this t."""
    # rounded up, so that calls for one t share a table although their rows move a little
    half = TABLE_GROWTH * int(np.ceil((reach / unit + 1) / TABLE_GROWTH))
    nodes, by_order = _table(t, unit, half)
    out = np.empty((order + 1, x.size))
    for start in range(0, x.size, STRETCH):
        part = slice(start, start + STRETCH)
        inside = np.clip(x[part], -reach - unit, reach + unit)
        index = np.rint(inside / unit).astype(np.intp) + half
        near = [values.take(index) for values in by_order]
        e = inside - nodes[index]
        shares = [e / (k + 1) for k in range(6)]
        for k in range(order + 1):
            g = near[6] * shares[5 - k]
            for j in range(5, k, -1):
                g += near[j]
                g *= shares[j - k - 1]
            np.add(g, near[k], out=out[k, part])
        # beyond the table the loss is its asymptote to the last bit
        out[0, part] += np.maximum(x[part] - inside, 0.0)
    return list(out)


@lru_cache(maxsize=4)
def _table(t: float, unit: float, half: int) -> tuple[Array, Array]:
    """Return nodes around 0 and, for each of G_0 ... G_6, its values at them."""
    nodes: Array = unit * np.arange(-half, half + 1, dtype=np.float64)
    return nodes, _direct(nodes, np.full(nodes.size, t), 6)


def _narrow(x: Array, t: Array, order: int, nodes: Array) -> Array:
    """Trapezoid rule over the noise: softplus and its derivatives at x + t z, z evenly spaced."""
    z = nodes
    weight = density(z) / density(z).sum()
    v = x[:, None] + t[:, None] * z
    e = np.exp(-np.abs(v))
    rest = e / (1 + e)
    p = np.where(v >= 0, 1 - rest, rest)
    q = rest * (1 - rest)
    derivatives = [
        lambda: np.maximum(v, 0.0) + np.log1p(e),
        lambda: p,
        lambda: q,
        lambda: q * (1 - 2 * p),
        lambda: q * (1 - 6 * q),
        lambda: q * (1 - 2 * p) * (1 - 12 * q),
        lambda: q * (1 - 30 * q + 120 * q * q),
    ]
    return np.array([derivative() @ weight for derivative in derivatives[: order + 1]])


def _wide(x: Array, t: Array, order: int, nodes: Array) -> Array:
    """Trapezoid rule over logistic noise: the Gaussian hinge and its derivatives at x - a, a evenly spaced."""
    a = nodes
    weight = np.exp(-np.abs(a)) / np.square(1 + np.exp(-np.abs(a)))
    weight /= weight.sum()
    t = t[:, None]
    z = (x[:, None] - a) / t
    d = density(z)
    derivatives = [
        lambda: t * (np.maximum(z, 0.0) + density(np.minimum(np.abs(z), 1e3)) * mills_ratios(np.abs(z))[1]),
        lambda: ndtr(z),
        lambda: d / t,
        lambda: -z * d / t**2,
        lambda: (z * z - 1) * d / t**3,
        lambda: z * (3 - z * z) * d / t**4,
        lambda: (z**4 - 6 * z * z + 3) * d / t**5,
    ]
    return np.array([derivative() @ weight for derivative in derivatives[: order + 1]])
