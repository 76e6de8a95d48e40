"""The logistic loss averaged over Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss, hermevander
from scipy.interpolate import make_interp_spline
from scipy.special import expit, ndtr

from holdfast._core import compiled
from holdfast._core.chunks import STRETCH
from holdfast._core.joint_loss import ExpectedJointLoss
from holdfast._core.loss import Array, Loss
from holdfast.losses.expected_cross_entropy import ExpectedCrossEntropy
from holdfast.losses.gaussian_hinge import density, mills_ratios

FEW_NODES = ((0.1, 7), (0.2, 9), (0.3, 11), (0.4, 13), (0.5, 15))
"""Pairs (largest scale, enough Gauss-Hermite nodes): over narrow noise the logistic function is nearly a polynomial."""
SPACINGS = ((0.8, 0.5), (1.2, 0.4), (2.0, 0.25), (4.0, 0.125), (8.0, 0.0625))
"""Pairs (largest scale, node spacing) for wider noise: the nearest poles of the logistic function lie at i pi / t."""
FEW_NODES_OF_PROOFS = ((0.1, 6), (0.2, 8), (0.3, 10), (0.4, 12), (0.5, 14))
FINE_SPACINGS = ((1.0, 0.4), (2.0, 0.22), (4.0, 0.11), (8.0, 0.055))
"""The same for proofs. They share no node with the rules above: rules with an even number of nodes have none at 0."""
REACH, WIDEST = 9.0, 36.0
"""Largest node for standard normal noise, and for logistic noise; the mass beyond is less than 1e-15."""
BLOCK_ENTRIES = 25_000
"""Row-node pairs evaluated at once: few enough to stay in the cache, many enough to make calls worth their while."""
MANY_ROWS = 5_000
"""With more rows of one scale than this, a proof reads the loss off a spline."""
DEGREE, PER_UNIT_OF_CURVES = 5, 32
"""The degree of that spline, and its nodes per unit of the loss or of the noise, whichever is wider."""
TABLE_GROWTH = 64
"""Tables grow by this many nodes on either side."""
PER_UNIT = 48
"""Nodes of the interpolation table per unit of the wider of two scales: the loss's, which is 1, and the noise's."""
FEWEST_ROWS, TABLE_PAYS = 1000, 4.0
"""A table pays for more rows of one scale than this, if they outnumber its nodes on one side by this factor."""
BY_PARTS = 0.1
"""Above this scale t a table may divide by t^4: an error of 1e-12 becomes 1e-8, negligible in a sixth derivative."""
FARTHEST = 600.0
"""From here on the loss is a straight line."""


class ExpectedLogistic(Loss):
    r"""The expected logistic loss :math:`\mathbb E \log(1 + e^{u - 1 + tZ})`, Z standard normal.

    There is no closed form. With :math:`G_k(x, t) = \mathbb E\, \mathrm{softplus}^{(k)}(x + tZ)` and x = u - 1, the
    loss is :math:`G_0`, its slopes :math:`G_1` and :math:`t\,G_2`, its curvature :math:`G_2,\ t\,G_3,\ G_2 + t^2 G_4`.
    Up to t = 0.5 a Gauss-Hermite rule of 15 nodes at most gives them to about 1e-12, up to t = 8 the trapezoid rule
    over z in [-9, 9]. For larger t it would need ever more nodes, so softplus is written as the hinge averaged over
    logistic noise: :math:`G_0 = \int \sigma'(a)\, t f((x-a)/t)\, da` with the Gaussian hinge's f, and the trapezoid
    rule is used on that: 145 nodes for any t. All are sums of convex functions with positive weights, so the computed
    loss is convex, and nondecreasing in t. Values at many rows with one common t are interpolated from a table (Taylor;
    error below 1e-11, in the second derivative in t below 5e-8).

    The loss is smooth at t = 0 and never collapses. Its dual has no closed form: with a ridge alpha > 0 the certificate
    uses strong convexity instead; without a ridge no lower bound is known.

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
        return g[0], g[1], t * g[2], g[2], g[3], g[2] + g[4]

    def largest_scale_slope(self) -> float:
        return float(density(np.array(0.0)))  # E[Z p(x + tZ)] <= E[Z+], p increasing from 0 to 1

    def jointly(self) -> ExpectedJointLoss:
        return ExpectedCrossEntropy()

    def compiled(self) -> Any | None:
        return compiled.kernel("expected_logistic")


def plain_moments(x: Array, t: Array, n: int) -> Array:
    r"""Return the means of softplus(v), :math:`\sigma(v)` and :math:`Z\,\sigma(v)`, v = x + tZ, or the first n of them.

    For proofs, with its own nodes and without the code of `evaluate`. Narrow noise is integrated over Z, wide noise
    over logistic noise, both accurate to about 1e-12. Many rows with one t are read off a spline.
    """
    x, t = np.asarray(x, dtype=float), np.asarray(t, dtype=float)
    if t.ndim == 0 and x.size > MANY_ROWS:
        reach = float(min(np.abs(x).max(), 40.0 + 9.5 * t))
        return _read_off(x, _curve(float(t), 4.0 * np.ceil(reach / 4.0 + 0.1), n))
    out = np.empty((n, x.size))
    for rows, level, rule in _by_scale(x.size, _flat(t, x.shape), _rules(FEW_NODES_OF_PROOFS, FINE_SPACINGS)):
        means = _over_noise if rule.is_narrow else _over_logistic
        out[:, rows] = means(x.ravel()[rows], level, n, rule)
    return out.reshape((n, *x.shape))


@lru_cache(maxsize=4)
def _curve(t: float, reach: float, n: int) -> tuple[Array, Array]:
    """Return nodes, and coefficients by mean and power of splines through the means at the nodes; error below 1e-11."""
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


class _Rule(NamedTuple):
    """A quadrature rule for means over noise of scales up to `reach`."""

    reach: float
    nodes: Array
    """Nodes of the Gaussian noise if `is_narrow`, otherwise of logistic noise."""
    weights: Array
    is_narrow: bool
    tilted: Array
    r"""The weights times :math:`1, z, z^2 - 1, z^3 - 3z, z^4 - 6z^2 + 3`, z the nodes. Integrated by parts, means of a
    function with these weights are means of its derivatives times powers of t."""

    @classmethod
    def of(cls, reach: float, nodes: Array, weights: Array, *, is_narrow: bool = True) -> _Rule:
        weights = weights / weights.sum()
        polynomials = hermevander(nodes, 4).T
        return cls(reach, nodes, weights, is_narrow, weights * polynomials)


@cache
def _rules(few: Sequence[tuple[float, int]], spacings: Sequence[tuple[float, float]]) -> list[_Rule]:
    """Return the rules, narrowest noise first; the last one serves all wider noise."""
    rules = [_Rule.of(reach, *hermegauss(count)) for reach, count in few]
    for reach, spacing in spacings:
        nodes = _evenly(REACH, spacing)
        rules.append(_Rule.of(reach, nodes, np.exp(-0.5 * nodes**2)))
    # the density of logistic noise has double poles at i pi: a spacing of 0.6 would already cost four digits
    nodes = _evenly(WIDEST, 0.5)
    return [*rules, _Rule.of(np.inf, nodes, expit(nodes) * expit(-nodes), is_narrow=False)]


def _evenly(reach: float, spacing: float) -> Array:
    half = int(np.ceil(reach / spacing))
    return spacing * np.arange(-half, half + 1, dtype=np.float64)


def _flat(t: Array, shape: tuple[int, ...]) -> Array:
    """Return a common scale unchanged, scales by row as a vector."""
    return t if t.ndim == 0 else np.broadcast_to(t, shape).ravel()


def _by_scale(n_rows: int, t: Array, rules: Sequence[_Rule]) -> Iterator[tuple[Any, Array, _Rule]]:
    """Yield blocks of rows, their scales or the common one, and the rule for these scales."""
    if t.ndim == 0:
        rule = [*(rule for rule in rules if t <= rule.reach), rules[-1]][0]
        size = max(1, BLOCK_ENTRIES // rule.nodes.size)
        yield from ((slice(start, start + size), t, rule) for start in range(0, n_rows, size))
        return
    below = -np.inf
    for rule in rules:
        rows = np.flatnonzero((t > below) & (t <= rule.reach))
        for part in np.array_split(rows, 1 + rows.size * rule.nodes.size // BLOCK_ENTRIES) if rows.size else ():
            yield part, t[part], rule
        below = rule.reach


def _over_noise(x: Array, t: Array, n: int, rule: _Rule) -> Array:
    """Return the first n of `plain_moments`, as means over Z."""
    z = rule.nodes[:, None]
    v = x + t * z
    e = np.exp(-np.abs(v))  # softplus and sigma share one exponential, the main cost
    softplus = rule.weights @ (np.maximum(v, 0.0) + np.log1p(e))
    if n == 1:
        return softplus[None]
    p = np.maximum(e, v >= 0) / (1.0 + e)
    return np.array([softplus, *rule.tilted[:2] @ p])


def _over_logistic(x: Array, t: Array, n: int, rule: _Rule) -> Array:
    """softplus(x) is the mean of max(x - L, 0) and sigma(x) the probability of L <= x, L logistic."""
    gap = x - rule.nodes[:, None]
    z = gap / t
    p, d = ndtr(z), density(z)
    # the mean of max(gap + tZ, 0); its terms cancel where gap << -t, but only to 1e-16 of a margin, which no sum of
    # losses shows
    return np.array([rule.weights @ (gap * p + t * d), rule.weights @ p, rule.weights @ d][:n])


def _moments(x: Array, t: Array, order: int) -> list[Array]:
    """Return G_0, G_1, G_2, t G_3, t^2 G_4, ... up to an order, at every x, each with its own or the common t."""
    x, t = np.asarray(x, dtype=float), np.asarray(t, dtype=float)
    if t.ndim == 0 and x.size > FEWEST_ROWS:
        unit = max(1.0, float(t)) / PER_UNIT
        reach = min(np.abs(x).max(), 40.0 + 9.5 * float(t))
        if x.size > TABLE_PAYS * reach / unit:
            found = _interpolated(x, float(t), order, unit, reach)
            return [*found[:3], *(t**k * g for k, g in enumerate(found[3:], 1))]
    out = np.empty((order + 1, x.size))
    for rows, level, rule in _by_scale(x.size, _flat(t, x.shape), _rules(FEW_NODES, SPACINGS)):
        out[:, rows] = (_narrow if rule.is_narrow else _wide)(x.ravel()[rows], level, order, rule)
    return [g.reshape(x.shape) for g in out]


def _narrow(x: Array, t: Array, order: int, rule: _Rule) -> list[Array]:
    """Return the values of `_moments`, as means over the noise."""
    # beyond FARTHEST the loss is a straight line to the last bit, and the exponential might overflow
    inside = np.minimum(x, FARTHEST)
    e = inside + t * rule.nodes[:, None]
    np.exp(e, out=e)
    loss = rule.weights @ np.log1p(e)
    loss += np.maximum(x - inside, 0.0)
    rest = e + 1.0
    np.reciprocal(rest, out=rest)
    e *= rest  # the logistic function at the nodes, and its slope
    rest *= e
    return [loss, rule.weights @ e, *rule.tilted[: order - 1] @ rest]


def _wide(x: Array, t: Array, order: int, rule: _Rule) -> list[Array]:
    """Return the values of `_moments`, as means over logistic noise."""
    found = _by_logistic_noise(x, t, order, rule)
    return [*found[:3], *(t**k * g for k, g in enumerate(found[3:], 1))]


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
    out = np.empty((7, nodes.size))
    for part, level, rule in _by_scale(nodes.size, np.array(t), _rules(FEW_NODES, SPACINGS)):
        if rule.is_narrow and t > BY_PARTS:
            out[:, part] = _narrow(nodes[part], level, 6, rule)
            out[3:, part] /= t ** np.arange(1, 5)[:, None]
        else:
            out[:, part] = (_by_noise if rule.is_narrow else _by_logistic_noise)(nodes[part], level, 6, rule)
    return nodes, out


def _by_noise(x: Array, t: Array, order: int, rule: _Rule) -> Array:
    """Return the means over the noise of softplus and its derivatives."""
    v = x + t * rule.nodes[:, None]
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
    return np.array([rule.weights @ derivative() for derivative in derivatives[: order + 1]])


def _by_logistic_noise(x: Array, t: Array, order: int, rule: _Rule) -> Array:
    """Return the means over logistic noise of the Gaussian hinge and its derivatives."""
    z = (x - rule.nodes[:, None]) / t
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
    return np.array([rule.weights @ derivative() for derivative in derivatives[: order + 1]])
