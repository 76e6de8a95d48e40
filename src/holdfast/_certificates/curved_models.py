"""The common base of certificates of nonlinear scores: bounds around each row, and radii found by search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._certificates.decisions import Leads
from holdfast._certificates.models import TINY, Model
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast.features.carrying import extents
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.polytopes import CommonBox, CommonDiamond

BALLS: dict[float, RowSets] = {
    1: CommonDiamond(np.ones(())),
    2: CommonEllipsoid(np.ones(())),
    np.inf: CommonBox(np.ones(())),
}
"""The balls of radius 1, by norm."""
RADIUS_FACTORS = (1 + 1e-9, 1.25, 1.6, 2.0, 3.0, 8.0, 64.0, 1e4, 1e8, 1e16, 1e80, 1e160, np.inf)
"""Factors of the first radius, tried in this order until one is too large: small steps first, then ever larger ones."""
SEARCHES, RADIUS_ACCURACY = 12, 1e-6
"""The largest number of steps of a search between two radii, and the relative difference at which it ends."""
LARGEST_FLOAT = float(np.finfo(np.float64).max)
OUTWARD = 1 + 1e-9
"""Factor that makes a length an upper bound; it exceeds the rounding errors of a norm of up to a million entries."""
LEAST_LEAD = 1e-300
"""Smaller shares of a lead count as this, so that their logarithms are finite."""


class Around(ABC):
    """Bounds on combinations C f of scores for rows that move within multiples of a set."""

    n_bounds: int
    """The number of bounds; number 0 is the cheapest."""

    @abstractmethod
    def take(self, rows: Any) -> Self:
        """Return the bounds for some of the rows."""

    @abstractmethod
    def falls(self, number: int, signs: Array, factors: Array) -> Array:
        """Return bound `number` on falls of signs * C f in `factors` times the sets, (n_samples, n_combinations)."""


class CurvedModel(Model):
    """Nonlinear scores with bounds on their changes around each row, and coarser bounds that hold around any row."""

    @abstractmethod
    def around(self, X: Any, sets: RowSets, weights: Array, C: Array) -> Around:
        """Return bounds around rows whose first features move by `weights` times a point of their sets."""

    def falls_in(self, rows: Any, sets: RowSets, weights: Array, C: Array, signs: Array) -> Array:
        below, above = self._ends(sets, weights, rows.shape[0])
        # the coarse bound holds around any row, so it is used where a bound around the row is nan or inf
        least, ones = self.falls(below, above, C, rows.dtype), np.ones(rows.shape[0])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            around = self.around(rows, sets, weights, C)
            for number in range(around.n_bounds):
                least = np.fmin(least, around.falls(number, signs, ones))
        return least

    def _ends(self, sets: RowSets, weights: Array, n_samples: int) -> tuple[Array, Array]:
        """Return how far each feature can move down and up, two arrays of shape (n_samples, n_features)."""
        rest = np.zeros((n_samples, self.n_features - len(weights)))
        below, above = (np.hstack([weights * end, rest]) for end in extents(sets, (n_samples, len(weights))))
        return below, above

    def refined(self, rows: Any, found: Leads, radii: Array, norm: float, weights: Array) -> Array:
        # a search around the row cannot improve radii of 0 or infinity
        out = radii.copy()
        able = np.flatnonzero((radii > 0) & np.isfinite(radii))
        if not len(able):
            return radii
        found = found.take(able)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            for some, C, signs in found.groups(self.decision):
                which = able[some]
                around = self.around(rows[which], BALLS[norm], weights, C)
                for number in range(around.n_bounds):
                    search = _Search(around, number, found.leads[some], signs)
                    out[which] = search.farthest(out[which])
        # beyond the limit scores may overflow, and the bounds on rounding do not hold
        return np.maximum(np.minimum(out, self.limit(norm, weights, rows.dtype)), radii)


class _Search:
    """A search for the largest multiples of sets for which one bound proves that all leads stay > 0."""

    def __init__(self, around: Around, number: int, leads: Array, signs: Array):
        self.around, self.number, self.leads, self.signs = around, number, leads, signs

    def farthest(self, radii: Array) -> Array:
        """Return radii at least as large as those given; every radius that is larger has been proved."""
        self.low, self.high = radii.copy(), np.full(len(radii), np.inf)
        self.low_log, self.high_log = np.full(len(radii), -1.0), np.zeros(len(radii))
        rows = np.flatnonzero(np.isfinite(radii))
        for factor in RADIUS_FACTORS:
            rows = rows[self._tried(rows, np.minimum(radii[rows] * factor, LARGEST_FLOAT))]
        # the largest radius passed too, so no finite radius changes the prediction
        self.low[rows] = np.inf
        rows = np.flatnonzero(np.isfinite(self.high) & (self.low > radii))
        for step in range(SEARCHES):
            rows = rows[self.high[rows] > self.low[rows] * (1 + RADIUS_ACCURACY)]
            if not len(rows):
                break
            low, high = self.low_log[rows], self.high_log[rows]
            # a fall is nearly a power of the radius, so it is nearly linear in logarithms, and the secant method
            # converges fast; every third step bisects, as the secant alone may converge slowly for a curved bound
            way = np.clip(-low / (high - low), 0.01, 0.99) if step % 3 < 2 else 0.5
            self._tried(rows, self.low[rows] * (self.high[rows] / self.low[rows]) ** way)
        return self.low

    def _tried(self, rows: NDArray[np.intp], radii: Array) -> NDArray[np.bool_]:
        """Return for which rows the radii are proved, and narrow the search interval."""
        leads = self.leads[rows]
        falls = self.around.take(rows).falls(self.number, self.signs[rows], radii)
        # an infinite lead marks a class that is not a rival and can never win
        shares = np.max(np.where(np.isinf(leads), 0.0, falls / leads), axis=1, initial=0.0)
        # nan means that the bound overflowed, so it counts as not proved
        logs = np.log(np.clip(np.where(np.isnan(shares), np.inf, shares), LEAST_LEAD, 1 / LEAST_LEAD))
        holds = logs < 0
        self.low[rows[holds]], self.low_log[rows[holds]] = radii[holds], logs[holds]
        self.high[rows[~holds]], self.high_log[rows[~holds]] = radii[~holds], logs[~holds]
        return holds


def units_of(sizes: Array) -> Array:
    """Return powers of 2 near these sizes; dividing by them is exact, and keeps squares of extreme weights in range."""
    is_one = (sizes > 0) & np.isfinite(sizes)
    return np.where(is_one, np.exp2(np.floor(np.log2(np.where(is_one, sizes, 1.0)))), 1.0)


def longest(sets: RowSets, A: Array, each: Array) -> Array:
    r"""Return bounds on the largest :math:`|A d|_2` over each row's set; `each` bounds |A d|, (n_samples, n_out)."""
    unit = units_of(np.abs(A).max(initial=0.0))
    found = np.asarray(unit * sets.stretch(A / unit) * OUTWARD)
    # a length below that of one entry cannot be a bound: squares have underflowed
    return np.where(found >= each.max(axis=1, initial=0.0), found, np.inf)


def moved_by(map: RoundedMap, sets: RowSets, n_samples: int, weights: Array, dtype: Any) -> tuple[Array, Array]:
    r"""Return the matrix A of the moving features times `weights`, and bounds on rounding of A d, (n_samples, n_out).

    Rounding counts twice: for A, computed here, and for the images of moved rows, computed by the model.
    """
    n = len(weights)
    reach = np.maximum(*extents(sets, (n_samples, n))) * weights
    share = 2 * map.gamma(dtype)
    growth = share * (reach @ map.sizes[:, :n].T) * (1 + 1e-9)
    # for each feature, a product that underflows loses at most the smallest normal number
    growth = growth + n * TINY * np.any(reach > 0, axis=1, keepdims=True)
    return map.coef[:, :n] * weights, np.where(growth < share * map.largest(dtype), growth, np.inf)
