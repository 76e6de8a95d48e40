"""Kernel bandwidths at which errors change the angles of random Fourier features by no more than a stated amount."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2
from sklearn.utils import check_array

from holdfast._core.allowed import NOTHING, Count, Number, Several, arguments, short
from holdfast._core.labels import check_columns, check_features
from holdfast._core.metadata import known_metadata
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.summary import Summary, digits, percent
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.carrying import extents
from holdfast.features.fourier_sets import angles as largest_angles
from holdfast.features.gram import bandwidth
from holdfast.features.robust_features import worst_only
from holdfast.features.robust_fourier import RobustFourierFeatures
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.images import image_of

INWARD = 1 - 1e-9
"""Factor of gamma that keeps rounding from taking an angle beyond the stated one."""
SHORTEST_AXIS = 1e-6
"""Axes of a set shorter than this share of the longest are lengthened to it."""


@dataclass(frozen=True, kw_only=True)
class BandwidthGrid(Summary):
    r"""Values of gamma to try for the kernel :math:`e^{-\gamma |x - z|^2}`, in increasing order."""

    gammas: Array
    """Shape (n_gammas,)."""
    angles: Array
    """For each gamma, a bound in radians on the angle by which errors turn a feature; it holds with `probability`."""
    scale: float
    """The gamma suggested by the data alone, 1 / (n_features * X.var())."""
    probability: float
    """The probability that all bounds hold; 1 if the frequencies are known."""

    def _columns(self) -> tuple[str, ...]:
        return ("gamma", "length", "angle", "")

    def _lines(self) -> list[tuple[str, ...]]:
        lengths = 1 / np.sqrt(2 * self.gammas)
        marks = np.where(self.gammas == self.scale, "scale of the data", "")
        rows = zip(self.gammas, lengths, self.angles, strict=True)
        return [(*map(digits, row), mark) for row, mark in zip(rows, marks.tolist(), strict=True)]

    def _notes(self) -> list[str]:
        sure = "for certain" if self.probability == 1 else f"with a probability of {percent(self.probability)}"
        return [f"Errors turn no feature of any row by more than this angle, in radians, {sure}."]


@arguments(
    angles=Several(Number(high=np.pi, strictly=True)),
    n_components=Count(),
    probability=Number(0.0, 1 - 1e-9, strictly=True),
    random_state=Count(0, 2**32 - 1) | NOTHING,
)
def bandwidth_grid(
    X: Any,
    uncertainty: UncertaintySet,
    *,
    angles: Any = (0.5, 1.0, 2.0),
    n_components: int = 200,
    probability: float = 0.95,
    random_state: int | None = None,
    **metadata: Any,
) -> BandwidthGrid:
    r"""Return values of gamma at which errors of the inputs turn random Fourier features by at most the stated angles.

    Features :math:`\cos \omega_j^\top x, \sin \omega_j^\top x`, j = 1, ..., D/2, of the kernel
    :math:`e^{-\gamma |x - z|^2}` have frequencies :math:`\omega_j = \sqrt{2\gamma}\, g_j, g_j \sim N(0, I)`, and an
    error d turns pair j by the angle :math:`\omega_j^\top d`. If all sets lie in an ellipsoid with semi-axes
    :math:`\sqrt{v_1}, ..., \sqrt{v_n}`, no angle exceeds :math:`\sqrt{2 \gamma \sum_k v_k g_{jk}^2}`. With probability
    1 - eta the angles of all pairs are at most theta if

    .. math:: 2 \gamma\, q \le \theta^2, \qquad
              q = \min\Bigl\{v_{\max}\, F_n^{-1}(p),\; \sum_k v_k + 2 \sqrt{T \sum_k v_k^2} + 2 T v_{\max}\Bigr\},

    where :math:`p = (1 - \eta)^{2/D}, T = -\log(1 - p)`, and :math:`F_n` is the distribution function of chi squared
    with n degrees of freedom. This is proposition 5.1 of Couellan & Jan (2020), except that their level of 0.9973 is
    for a single frequency: for fifty together it may be 0.87. The best of four ellipsoids is used: a ball, one fitted
    to boxes, one with the widths of the sets, and one with their axes. The ellipsoid is exact for a common `Ball`.

    With `random_state`, the frequencies are those that ``RobustFourierFeatures(n_components,
    random_state=random_state)`` draws, whatever its gamma. The angles then hold for certain, and gammas may be several
    times as large.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    uncertainty : UncertaintySet
        The set of the rows, in the units of X: ``Ball(0.3)``, ``Box(0.1)``, ``Ellipsoid()``, ``IntervalBox()``, or a
        sum.
    angles : sequence of float, default=(0.5, 1.0, 2.0)
        theta in radians, > 0 and <= pi. Below 1.5 the default bounds of `RobustFourierFeatures` use tangents.
    n_components : int, default=200
        D.
    probability : float, default=0.95
        1 - eta, the probability that all angles of all rows are at most theta. Not used with `random_state`.
    random_state : int, default=None
        The seed of the features that will be used.
    **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
        Uncertainty that differs by row.

    Returns
    -------
    BandwidthGrid
        `gammas`, one for each of `angles` and one for the scale of the data, in increasing order; and the `angles` that
        hold at each of them.

    Examples
    --------
    >>> from holdfast import Ball
    >>> from holdfast.features import bandwidth_grid
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> print(bandwidth_grid(X, Ball(0.15)))
    BandwidthGrid
      gamma  length   angle
     0.3667   1.168     0.5
     0.9536  0.7241  0.8063  scale of the data
      1.467  0.5839       1
      5.867  0.2919       2
    Errors turn no feature of any row by more than this angle, in radians, with a probability of 95.0 %.
    """
    call = "bandwidth_grid"
    stated = known_metadata(metadata, call)
    check_columns(X, stated)
    check_features(X, {"uncertainty": uncertainty})
    if not isinstance(uncertainty, UncertaintySet):
        raise ValueError(f"{call}(uncertainty={short(uncertainty)}): give a set, such as Ball(0.3) or Box(0.1).")
    rows = check_array(X, dtype=np.float64, input_name="X")
    sets = worst_only(uncertainty, rows, stated, call)
    if random_state is None:
        square = _likely_square(sets, rows.shape, 0.5 * (n_components + n_components % 2), float(probability))
    else:
        unit = RobustFourierFeatures(n_components, gamma=0.5, random_state=random_state).fit(rows)
        square = float(np.square(np.max(largest_angles(sets, unit.frequencies_))))
    with np.errstate(over="ignore", invalid="ignore"):
        scale = bandwidth("scale", rows, np.ones(len(rows)))
    # without errors nothing turns, and only the scale of the data is left
    asked = np.square(np.asarray(angles, dtype=np.float64)) if square > 0 else np.zeros(0)
    gammas = np.unique([scale, *(INWARD * asked / (2 * square))])
    if not np.all((gammas > 0) & np.isfinite(gammas)):
        raise ValueError(
            f"{call}(X, uncertainty={uncertainty!r:.80}): gammas from {gammas[0]:.2g} to {gammas[-1]:.2g} cannot be "
            "used. State X and the sets in the same units, near 1."
        )
    return BandwidthGrid(
        gammas=gammas,
        angles=np.sqrt(2 * gammas * square / INWARD),
        scale=scale,
        probability=float(probability) if random_state is None else 1.0,
    )


def _likely_square(sets: RowSets, shape: tuple[int, ...], n_frequencies: float, probability: float) -> float:
    """Return a bound, holding with `probability`, on all squared angles (rows and frequencies g ~ N(0, I))."""
    # each frequency may exceed its bound with probability 1 - probability^(1 / n), computed without cancellation
    beyond = -np.expm1(np.log(probability) / n_frequencies)
    return min((_likely_form(squares, float(beyond)) for squares in _ellipsoids(sets, shape)), default=0.0)


def _likely_form(v: Array, beyond: float) -> float:
    """Return a bound that sum v_k g_k^2, g standard normal, exceeds with probability at most `beyond`."""
    # the smaller of two valid bounds: v_max times a quantile of chi squared, exact for a ball, and Laurent & Massart's
    # bound, which is smaller if a few axes dominate
    largest, T = float(np.max(v)), -np.log(beyond)
    shares = v / largest
    whole = float(np.sum(shares) + 2 * np.linalg.norm(shares) * np.sqrt(T) + 2 * T)
    return largest * min(float(chi2.isf(beyond, len(v))), whole)


def _ellipsoids(sets: RowSets, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield squared semi-axes of ellipsoids around 0 that contain the sets of all rows; none if all sets are {0}."""
    widths = np.max(np.maximum(*extents(sets, shape)), axis=0, initial=0.0)
    moves = widths > 0
    if not np.any(moves):
        return
    # the smallest ellipsoid around a box has squares |h|_1 h; a common factor makes it contain the sets of all rows
    for squares in (np.ones(len(widths)), widths, np.square(widths)):
        inverse = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(widths), where=moves)
        yield _holding(sets, AffineMap.diagonal(inverse), len(widths)) * squares[moves]
    bend = sets.square_curvature(len(widths), np.ones(shape[0]))
    squares, axes = np.linalg.eigh(0.5 * (bend + bend.T))
    squares = np.maximum(squares, SHORTEST_AXIS**2 * squares[-1])
    if squares[-1] > 0:
        yield _holding(sets, AffineMap((axes / np.sqrt(squares)).T), len(widths)) * squares


def _holding(sets: RowSets, map: AffineMap, n_features: int) -> float:
    """Return the squared radius of a ball around 0 that contains the images of the sets of all rows."""
    return float(np.max(np.square(image_of(sets, map).stretch(np.eye(n_features)))))
