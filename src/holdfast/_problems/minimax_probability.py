"""Two classes known by their means and spreads: the problem of the minimax probability machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.loss import Array
from holdfast._core.problem import Evaluation, Problem
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.tolerances import AFFORDABLE
from holdfast._data import rows_of
from holdfast._problems.certified_gap import certified_gap
from holdfast._problems.dispersions import (
    CentredRows,
    PushedRows,
    Quadratic,
    RootOfSquares,
    Spread,
    Squares,
    SumOfSupports,
    Total,
    centred_gram,
    from_middle,
)
from holdfast.uncertainty.polytopes import CommonBox

DELICATE = 1e-7
"""Smallest eigenvalue of a correlation, as a share of the largest, up to which spreads are computed from scores."""


@dataclass(frozen=True)
class ClassLaw:
    """The mean, spread and drift of a class.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
    spread : Spread
        The largest standard deviation of the score w'x about that of the mean.
    drift : Spread
        How far the mean's score may drift towards the other class.
    inner : ndarray of shape (n_features, n_features)
        M with spread(w)^2 >= w'M w.
    core : RootOfSquares
        The root of w'M w, computed as exactly as possible.
    stated : StatedClass
        The arguments stated for the class, from which proofs recompute spread and drift.
    """

    mean: Array
    spread: Spread
    drift: Spread
    inner: Array
    core: RootOfSquares
    stated: StatedClass


class Moments(NamedTuple):
    """The rows of a class, and their mean and covariance by weight."""

    rows: Rows
    """Relative to a point near their mean, if the mean is far from 0."""
    shares: Array
    """Weights that sum to 1."""
    centre: Array
    """The mean relative to that point."""
    mean: Array
    covariance: Array

    @classmethod
    def of(cls, rows: Rows, weights: Array) -> Moments:
        """Return the moments, the covariance over the total weight; a weight of 2 equals stating a row twice."""
        shares = weights / float(np.sum(weights))
        near, _ = from_middle(rows, shares)
        centre, mean = near.transpose_dot(shares), rows.transpose_dot(shares)
        return cls(near, shares, centre, mean, centred_gram(near, centre, shares))


class StatedClass(NamedTuple):
    """The arguments of `class_law`: proofs recompute the objective from them, not from the spreads that are minimised."""

    moments: Moments
    worst: RowSets | None
    cloud: RowSets | None
    ridge: Any
    kappa: float
    pooling: str
    drifting: RowSets | None


def class_law(
    moments: Moments,
    worst: RowSets | None = None,
    cloud: RowSets | None = None,
    *,
    ridge: Any = 0.0,
    kappa: float = 1.0,
    pooling: str = "rms",
    drift: RowSets | None = None,
) -> ClassLaw:
    r"""Return the law of a class whose rows are stated up to sets and noise.

    With shares :math:`p_i` of the weights the spread is

    .. math:: \sqrt{\textstyle\sum_i p_i u_i(\kappa)^2 + \sum_i p_i\,w^\top C_i w + \sum_j \rho_j w_j^2} + (1 - \kappa)\,\tau(w)

    where :math:`u_i(\kappa)` is the distance from the mean's score at the worst point of :math:`\kappa S_i` and
    :math:`\tau` pools the supports: "rms" :math:`\sqrt{\sum p_i h_i^2}`, for boxes the l1 norm
    :math:`\sum_j |w_j| \sqrt{\sum_i p_i s_{ij}^2}`; "sum" :math:`\sum_i p_i h_i / \sqrt{\min p}`, the former's
    bound by :math:`\sum p_i h_i^2 \le (\sum \sqrt{p_i} h_i)^2`.

    Parameters
    ----------
    moments : Moments
    worst, cloud : RowSets or None
        Sets of the rows, and noise to average over.
    ridge : float or ndarray of shape (n_features,)
        :math:`\rho`.
    kappa : float
    pooling : {"rms", "sum"}
    drift : RowSets or None
        Sets turned towards the other class, whose mean support bounds the drift of the mean's score; None for no drift.
    """
    rows, shares, centre, mean, covariance = moments
    d = rows.n_features
    noise = np.diag(np.broadcast_to(np.asarray(ridge, dtype=np.float64), d))
    squares: list[Squares] = []
    if cloud is not None and cloud.is_smooth:
        noise = noise + cloud.square_curvature(d, shares)
    elif cloud is not None:
        squares.append(_supports(moments, cloud))
    inner = covariance + noise
    core: list[Squares] = [Quadratic(inner)]
    if _is_delicate(inner):
        core = [CentredRows(rows, centre, shares, covariance), Quadratic(noise)]
    if worst is None or kappa == 0:
        squares += core
    else:
        squares += [PushedRows.of(rows, centre, shares, worst.scaled(kappa)), Quadratic(noise)]
    spreads: list[Spread] = [RootOfSquares(squares)]
    if worst is not None and kappa < 1:
        spreads += [_pooled(moments, part, pooling) for part in worst.scaled(1 - kappa).summands()]
    drifts = [] if drift is None else [SumOfSupports(drift, shares)]
    stated = StatedClass(moments, worst, cloud, ridge, kappa, pooling, drift)
    return ClassLaw(mean, Total(spreads), Total(drifts), inner, RootOfSquares(core), stated)


def _is_delicate(covariance: Array) -> bool:
    """Return whether some scores have variances that are lost in rounding of the covariance."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    own = np.flatnonzero(scale > 0)
    values = np.linalg.eigvalsh(covariance[np.ix_(own, own)] / np.outer(scale[own], scale[own]))
    return bool(np.min(values, initial=np.inf) <= DELICATE * np.max(values, initial=0.0))


def _supports(moments: Moments, sets: RowSets) -> PushedRows:
    """Return the mean square of the supports, as distances from the mean of rows that are all 0."""
    d = moments.rows.n_features
    alike = rows_of(sparse.csr_array((moments.rows.n_samples, d)))
    return PushedRows.of(alike, np.zeros(d), moments.shares, sets)


def _pooled(moments: Moments, part: RowSets, pooling: str) -> Spread:
    """Return one function that no row's support exceeds in quadratic mean."""
    form, shares, size = part.interval_form(), moments.shares, float(np.min(moments.shares)) ** -0.5
    if form is not None:
        own = [part for part in (form.own, None if form.centre is None else abs(form.centre)) if part is not None]
        means, squares = form.common + np.zeros(moments.rows.n_features), np.square(form.common)
        if own:
            reach = sum(own[1:], own[0])
            drift = reach.T @ shares
            means, squares = means + drift, squares + 2 * form.common * drift + (reach * reach).T @ shares
        widths = size * means if pooling == "sum" else np.sqrt(np.maximum(squares, 0.0)) + 0.0 * means
        return SumOfSupports(CommonBox(widths), np.ones(1))
    if pooling == "sum":
        one = np.ones(len(shares))
        sides = [part] if part.is_symmetric else [part.against_labels(-one), part.against_labels(one)]
        return Total([SumOfSupports(side, size * shares) for side in sides])
    return RootOfSquares([_supports(moments, part)])


@dataclass(frozen=True)
class MinimaxProbabilityProblem:
    r"""Find the weights that separate two classes by the most standard deviations.

    With the spreads :math:`\sigma_\pm`, :math:`D = \mu_+ - \mu_-` and the drifts :math:`r_\pm` of the means,

    .. math:: \min_w\ \phi(w) = \sigma_+(w) + \sigma_-(w) \quad\text{subject to}\quad D^\top w - r_+(w) - r_-(w) \ge 1 .

    All terms are proportional to the scale of w, so the minimum of the convex
    :math:`F(w) = \tfrac12 \phi(w)^2 - D^\top w + r(w)`, a problem without constraints, has the same direction; it is
    :math:`-\kappa_*^2/2` with :math:`\kappa_* = 1/\phi`.

    Parameters
    ----------
    negative, positive : ClassLaw
    sets : RowSets or None
        Sets of all rows; each class's spread exceeds the mean of their supports:
        :math:`\sigma(w) \ge \sum_i p_i h_i(w)`.
    budgets : ndarray of shape (n_samples,)
        p, by class.
    """

    negative: ClassLaw
    positive: ClassLaw
    sets: RowSets | None = None
    budgets: Array | None = None

    @property
    def n_features(self) -> int:
        """How many weights there are."""
        return len(self.difference)

    @cached_property
    def difference(self) -> Array:
        """D."""
        return self.positive.mean - self.negative.mean

    @cached_property
    def spread(self) -> Total:
        """The sum of both spreads."""
        return Total([self.negative.spread, self.positive.spread])

    @cached_property
    def drift(self) -> Total:
        """The sum of both drifts."""
        return Total([self.negative.drift, self.positive.drift])

    def lead(self, w: Array) -> float:
        """Return a lower bound on the distance of the means' scores."""
        return float(self.difference @ w) - self.drift.value(w)

    def leading(self) -> Array:
        """Return the direction with the largest lead, of D and the features; for boxes some lead unless none can."""
        return max([self.difference, *np.vstack([np.eye(self.n_features), -np.eye(self.n_features)])], key=self.lead)

    def objective(self, w: Array) -> float:
        """Return phi at the multiple of w that satisfies the constraint, inf if there is none."""
        lead = self.lead(w)
        return self.spread.value(w) / lead if lead > 0 else np.inf

    def rescaled(self, w: Array) -> Array:
        """Return the best multiple of w for F, w itself if it has no lead."""
        lead = self.lead(w)
        size = self.spread.value(w)
        return w * (lead / size**2) if lead > 0 and size > 0 else w

    def intercept(self, w: Array) -> float:
        """Return b such that w'x + b = 0 is equally many spreads from both means, less their drifts."""
        ends = [law.mean @ w - sign * law.drift.value(w) for sign, law in ((1.0, self.positive), (-1.0, self.negative))]
        sizes = [law.spread.value(w) for law in (self.positive, self.negative)]
        return -float(ends[0] * sizes[1] + ends[1] * sizes[0]) / (sizes[0] + sizes[1])

    def deviations(self, w: Array, b: float) -> Array:
        """Return each mean's distance from w'x + b = 0, less its drift, in spreads; the negative class comes first."""
        return np.array(
            [
                (sign * (law.mean @ w + b) - law.drift.value(w)) / law.spread.value(w)
                for sign, law in ((-1.0, self.negative), (1.0, self.positive))
            ]
        )

    def smoothed(self, delta: float) -> SmoothedMinimax:
        """Return F with all kinks smoothed away, by about `delta` in units of the scores."""
        return SmoothedMinimax(self, self.spread.smoothed(delta), self.drift.smoothed(delta))

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w nearer to kinks, as `RowSets.snapped_to_kinks` does."""
        return Total([self.spread, self.drift]).snapped_to_kinks(w, delta, factor)


@dataclass(frozen=True)
class SmoothedMinimax(Problem):
    """F with smooth spreads and drifts, whose gradients are points of the original ones' sets."""

    problem: MinimaxProbabilityProblem
    spread: Total
    drift: Total

    enough = -np.inf
    metric_age = 20

    @property
    def n_parameters(self) -> int:
        """How many weights there are."""
        return self.problem.n_features

    def evaluate(self, w: Array) -> Evaluation:
        """Return objective and gradient."""
        return Evaluation(w, *self.value_and_gradient(w))

    def value_and_gradient(self, w: Array) -> tuple[float, Array]:
        """Return F and its gradient."""
        size, D = self.spread.value(w), self.problem.difference
        value = 0.5 * size**2 - float(D @ w) + self.drift.value(w)
        return value, size * self.spread.gradient(w) - D + self.drift.gradient(w)

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of F."""
        g = self.spread.gradient(w)
        return self.spread.value(w) * self.spread.hessian(w) + np.outer(g, g) + self.drift.hessian(w)

    def typical_curvature(self) -> Array:
        """Return the covariances' part of the Hessian's diagonal."""
        return np.diag(self.problem.negative.inner) + np.diag(self.problem.positive.inner)

    def metric(self, w: Array) -> Array:
        """Return the Hessian."""
        return self.hessian(w)

    def suboptimality(self, here: Evaluation) -> float:
        """Return the certified gap."""
        return certified_gap(self, here.parameters)[1]

    def longest_step(self, w: Array, step: Array) -> float:
        """Return inf: there are no kinks."""
        return np.inf

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit."""
        d = self.n_parameters
        n = d if self.problem.budgets is None else len(self.problem.budgets)
        return {"n_samples": n, "n_features": d, "n_entries": n * d, "is_cheap_to_factorise": n * d * d <= AFFORDABLE}
