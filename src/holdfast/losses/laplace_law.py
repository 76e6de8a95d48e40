"""Tails and densities of sums of Laplace variables, and the divergence between Laplace distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import as_numbers, short
from holdfast._core.loss import Array

CROSSING, WIDTH, BEND = 0.7, 1.2, np.pi / 8
"""Where the contour crosses the real axis, its width, and its angle to the right, in units of 1 / deviation of the sum.

The poles are at 0 and at +-1 / scale, at least sqrt(2) units from 0, and the contour passes between them. With many
scales the sum is nearly normal. The generating function of a normal distribution stops falling at the angle pi / 4;
half of that is safe.
"""
STEP = 0.075
"""Distance between nodes: the error of the trapezoid rule is about exp(-2 pi BEND / STEP) = 5e-15."""
NODE_BATCH, FARTHEST = 40, 12
"""Nodes per batch, and most batches. The remainder left out, at most exp(-36), is largest for one scale."""
FAINT_NODES = 1e-15
"""Nodes are added until their share in tail and density falls below this size."""
FACTORS_AT_A_TIME = 8
"""This many factors are multiplied before each division; their product cannot overflow."""
FAR = 1e4
"""Tails are 0 in float64 beyond this many deviations."""
BLOCK_ENTRIES = 1 << 20
"""Entries in each complex table formed."""
HUGE = 2.0**900
"""Scales above this are measured in units of it."""


class _Nodes(NamedTuple):
    """Some nodes of the contour, and their weights in the distributions of some rows."""

    rows: NDArray[np.intp]
    places: NDArray[np.complex128]
    """In units of 1 / deviation, shape (n_nodes,)."""
    weights: NDArray[np.complex128]
    """Shape (len(rows), n_nodes)."""


class LaplaceSum:
    r"""The distributions of :math:`Z_i = \sum_k s_{ik} L_k`, one for each row of scales.

    The :math:`L_k` are independent with density :math:`e^{-|t|}/2`. With the moment generating function
    :math:`M(\theta) = \prod_k (1 - s_k^2 \theta^2)^{-1}`,

    .. math:: \Pr(Z \ge z) = \frac{1}{2 \pi i} \int M(\theta)\, e^{-\theta z}\, \frac{d\theta}{\theta}, \qquad z \ge 0,

    along a contour that crosses the real axis between 0 and the first pole and bends to the right (Talbot's method,
    with the hyperbola of Weideman and Trefethen). All singularities are real, so the trapezoid rule converges
    geometrically for any scales: equal ones, a dominant one, or thousands. The absolute error is about 1e-14.

    Parameters
    ----------
    scales : ndarray of shape (n_laws, d)
        s >= 0. If all scales of a row are 0, Z is 0.
    """

    def __init__(self, scales: Array):
        largest = scales.max(axis=1, initial=0.0)
        shares = np.divide(scales, largest[:, None], out=np.zeros_like(scales), where=largest[:, None] > 0)
        lengths = np.sqrt(2 * np.square(shares).sum(axis=1))
        self.deviations = largest * lengths
        """Standard deviations of Z."""
        self.is_spread = self.deviations > 0
        squares = np.square(np.divide(shares, lengths[:, None], out=shares, where=lengths[:, None] > 0))
        self.nodes = [
            part
            for rows in _blocks(np.flatnonzero(self.is_spread), FACTORS_AT_A_TIME * NODE_BATCH)
            for part in _nodes(squares, rows)
        ]

    def tail(self, z: Array) -> Array:
        """Return Pr(Z >= z) for one z for each distribution, or for any number of z if there is only one."""
        [upper] = self._sums(np.abs(z), 1)
        upper = np.clip(upper, 0.0, 0.5)
        tail = np.where(z >= 0, upper, 1.0 - upper)
        tail = np.where(z == 0, 0.5, tail)
        return np.where(self.is_spread, tail, np.where(z <= 0, 1.0, 0.0))

    def density(self, z: Array) -> Array:
        """Return the density of Z. If Z is always 0, the density is inf at 0 and 0 elsewhere."""
        found = np.maximum(self._sums(np.abs(z), 2)[1], 0.0)
        return np.where(self.is_spread, found, np.where(z == 0, np.inf, 0.0))

    def derivatives(self, z: Array) -> tuple[Array, Array, Array]:
        """Return tail, density and slope of the density at z >= 0, for distributions with some positive scale."""
        tail, density, slope = self._sums(z, 3)
        return np.clip(tail, 0.0, 0.5), np.maximum(density, 0.0), np.maximum(slope, 0.0) * -1.0

    def _sums(self, z: Array, n: int) -> list[Array]:
        """Return the sums over the nodes of weight * place**power * exp(-place * z) for the first n powers."""
        out = [np.zeros(len(z)) for _ in range(n)]
        is_common = len(self.deviations) == 1
        lengths = np.where(self.is_spread, self.deviations, 1.0)
        with np.errstate(under="ignore", over="ignore"):
            x = np.minimum(z / lengths, FAR)
        for part in self.nodes:
            for some in _blocks(np.arange(len(z) if is_common else len(part.rows)), len(part.places)):
                rows = some if is_common else part.rows[some]
                with np.errstate(under="ignore"):
                    waves = np.exp(-part.places * x[rows][:, None])
                    waves *= part.weights if is_common else part.weights[some]
                for power in range(n):
                    out[power][rows] += (waves @ part.places**power).imag
        with np.errstate(over="ignore"):
            return [one / lengths**power for power, one in enumerate(out)]


def _blocks(rows: NDArray[np.intp], width: int) -> list[NDArray[np.intp]]:
    size = max(1, BLOCK_ENTRIES // width)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _nodes(squares: Array, rows: NDArray[np.intp]) -> list[_Nodes]:
    """Return enough nodes for each row of squared scales, which are in units of the deviation."""
    found = []
    for number in range(FARTHEST):
        u = (np.arange(number * NODE_BATCH, (number + 1) * NODE_BATCH) + 0.5) * STEP
        places = CROSSING + WIDTH * (np.sin(BEND) * (np.cosh(u) - 1) + 1j * np.cos(BEND) * np.sinh(u))
        steps = WIDTH * (np.sin(BEND) * np.sinh(u) + 1j * np.cos(BEND) * np.cosh(u))
        weights = np.broadcast_to(STEP / np.pi * steps / places, (len(rows), NODE_BATCH)).copy()
        with np.errstate(under="ignore"):
            for start in range(0, squares.shape[1], FACTORS_AT_A_TIME):
                own = squares[rows, start : start + FACTORS_AT_A_TIME]
                weights /= np.prod(1 - own[:, :, None] * np.square(places), axis=1)
        found.append(_Nodes(rows, places, weights))
        rows = rows[np.abs(weights[:, -1] * places[-1]) > FAINT_NODES]
        if not len(rows):
            break
    return found


def laplace_tail(z: Any, scales: Any) -> Any:
    r"""Return :math:`\Pr(Z \ge z)` for the sum :math:`Z = \sum_k s_k L_k` of independent Laplace variables.

    :math:`L_k` has the density :math:`e^{-|t|}/2`. If the weights w of a linear score have Laplace distributions with
    means mu and scales sigma, the score errs with the probability :math:`\Pr(y\, x^\top w \le 0)`, which is the tail at
    :math:`z = y\, x^\top \mu` with :math:`s_k = \sigma_k |x_k|`. The absolute error is about 1e-14 (2e-14 for 3000
    equal scales) for any scales, also equal ones and zeros. If all scales are 0, the result is 1 for z <= 0, else 0.

    Parameters
    ----------
    z : array-like
    scales : array-like of shape (d,) or z.shape + (d,)
        s >= 0, the same for all z or different for each.

    Returns
    -------
    ndarray in the shape of z

    Examples
    --------
    >>> laplace_tail([0.0, 1.0, -1.0], [1.0])  # exp(-1) / 2
    array([0.5       , 0.18393972, 0.81606028])
    >>> laplace_tail(1.0, [0.5, 0.5, 1e-8]).round(6)  # exp(-2) (1 + 2/2) / 2
    np.float64(0.135335)
    """
    return _of_law(z, scales, "laplace_tail", LaplaceSum.tail)


def laplace_density(z: Any, scales: Any) -> Any:
    """Return the density at z of the sum of independent Laplace variables with these scales, see `laplace_tail`.

    The error is about 1e-14 / s, where s is the largest scale. If all scales are 0, the density is inf at 0 and 0
    elsewhere.

    Parameters
    ----------
    z : array-like
    scales : array-like of shape (d,) or z.shape + (d,)

    Returns
    -------
    ndarray in the shape of z

    Examples
    --------
    >>> laplace_density([0.0, 1.0], [2.0])  # exp(-z/2) / 4
    array([0.25      , 0.15163266])
    """
    return _of_law(z, scales, "laplace_density", LaplaceSum.density)


def laplace_kl(mean: Any, scale: Any, *, prior_mean: Any = 0.0, prior_scale: Any = 1.0) -> Any:
    r"""Return the Kullback-Leibler divergence of a product of Laplace distributions Q from a prior P of the same kind.

    .. math:: \mathrm{KL}(Q \| P) = \sum_k \frac{|D_k| + \sigma_k e^{-|D_k|/\sigma_k}}{\tau_k}
              + \ln \frac{\tau_k}{\sigma_k} - 1, \qquad D = \mu_Q - \mu_P,

    with scales sigma of Q and tau of P. The unit is the nat.

    Parameters
    ----------
    mean, scale : array-like of shape (..., d)
        Parameters of Q, broadcast together with those of P.
    prior_mean, prior_scale : array-like, default=0 and 1
        Parameters of P.

    Returns
    -------
    float or ndarray
        Summed over the last axis.

    Examples
    --------
    >>> laplace_kl([0.0, 2.0], [1.0, 0.5]).round(4)
    np.float64(1.7023)
    """
    given = {"mean": mean, "scale": scale, "prior_mean": prior_mean, "prior_scale": prior_scale}
    parts = {
        name: _checked(value, f"laplace_kl({name}", positive=name.endswith("scale")) for name, value in given.items()
    }
    try:
        mu, s, mu_P, s_P = np.broadcast_arrays(*parts.values())
    except ValueError:
        shapes = ", ".join(f"{name} {part.shape}" for name, part in parts.items())
        raise ValueError(
            f"laplace_kl: the shapes do not go together: {shapes}. Give one number for each weight, or one for all."
        ) from None
    if not mu.ndim:
        mu, s, mu_P, s_P = (np.atleast_1d(value) for value in (mu, s, mu_P, s_P))
    t, ratio = np.abs(mu - mu_P) / s, s / s_P
    return np.sum(ratio * (t + np.expm1(-t)) + (ratio - 1.0 - np.log(ratio)), axis=-1)


def _of_law(z: Any, scales: Any, call: str, question: Any) -> Any:
    z, scales = _checked(z, f"{call}(z"), _checked(scales, f"{call}(..., scales", least=0.0)
    if scales.ndim == 0 or not scales.shape[-1] or scales.shape[:-1] not in ((), z.shape):
        raise ValueError(
            f"{call}(z, scales): z has the shape {z.shape}, scales {scales.shape}. Give scales of shape (d,), or "
            f"{z.shape} + (d,), with d >= 1."
        )
    # the deviations of the largest scales overflow
    unit = np.where(scales.max(axis=-1) > HUGE, HUGE, 1.0)
    law = LaplaceSum((scales / unit[..., None]).reshape(-1, scales.shape[-1]))
    found = question(law, (z / unit).ravel()).reshape(z.shape)
    return (found if question is LaplaceSum.tail else found / unit)[()]


def _checked(value: Any, call: str, *, least: float = -np.inf, positive: bool = False) -> Array:
    try:
        out = as_numbers(value)
    except TypeError:
        raise ValueError(f"{call}={short(value):.80}): give real numbers.") from None
    if not np.all(np.isfinite(out)) or np.any(out < least) or (positive and np.any(out <= 0)):
        bounds = " > 0" if positive else f" >= {least:g}" if np.isfinite(least) else ""
        raise ValueError(f"{call}={short(value):.80}): must be finite numbers{bounds}.")
    return out
