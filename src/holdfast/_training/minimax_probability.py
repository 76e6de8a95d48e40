"""Two classes known by their means and spreads: the minimax probability machine, its training and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.problem import Evaluation, Problem
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import AFFORDABLE, ROUNDING
from holdfast._data import rows_of
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
from holdfast._proofs.consistency import agreed, consistent
from holdfast._proofs.pulls import least_multiple
from holdfast.solvers.newton import newton_step
from holdfast.solvers.selection import pick
from holdfast.uncertainty.polytopes import CommonBox

REWEIGHTINGS = 50
"""Reweighted solves with the covariances alone, before Newton steps take over."""
SETTLED = 1e-12
"""Change of either spread, as a share of their sum, at which reweighting has settled."""
FIRST_EASE, SHRINK, LAST_EASE = 0.1, 0.1, 1e-11
"""Smoothing as a share of the spread: where the path starts, its factor from stage to stage, and the least one."""
TRACE = 0.1
"""Smoothing as a share of `tol` from which on a proof is tried; the gap that it causes is about as large."""
STAGE = 1e-3
"""What the next step must promise at a stage of the path, as a share of the smoothing there."""
FINE, FINEST = 1e-2, 1e-10
"""The same where a proof is tried: a share of `tol` squared, for the gap goes with the root of it, and its largest value."""
STAGE_STEPS, NO_SHRINK = 30, 0.8
"""Steps after which a stage is given up for one nearer to the last, and the factor from which on it is not."""
SLIGHT = 0.01
"""Share of both spreads that a class is taken to have at least where it has to bear a residual."""
DELICATE = 1e-7
"""Smallest eigenvalue of a correlation, as a share of the largest, up to which spreads are computed from scores."""
REFINEMENTS = 5
"""Solves with a covariance at most until what it bears is known exactly."""
BOUNDLESS = 1e7
"""Separation, in standard deviations, from which on there is no end to it."""


@dataclass(frozen=True)
class ClassLaw:
    """What is known of the rows of a class.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
    spread : Spread
        The largest standard deviation of the score w'x about that of the mean.
    drift : Spread
        How far the score of the mean itself may be off, towards the other class.
    inner : ndarray of shape (n_features, n_features)
        M with spread(w)^2 >= w'M w.
    core : RootOfSquares
        The root of w'M w, as exact as can be.
    stated : StatedClass
        What was stated of it, from which proofs recompute spread and drift.
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
    """Counted from a point near their middle, if that is far from 0."""
    shares: Array
    """Weights that sum to 1."""
    centre: Array
    """The mean as counted from that point."""
    mean: Array
    covariance: Array

    @classmethod
    def of(cls, rows: Rows, weights: Array) -> Moments:
        """Return the moments, the covariance over the total weight; a weight of 2 is as good as stating a row twice."""
        shares = weights / float(np.sum(weights))
        near, _ = from_middle(rows, shares)
        centre, mean = near.transpose_dot(shares), rows.transpose_dot(shares)
        return cls(near, shares, centre, mean, centred_gram(near, centre, shares))


@dataclass(frozen=True)
class StatedClass:
    """The arguments of `class_law`, and its formulas once more: proofs share no code with what is minimised."""

    moments: Moments
    worst: RowSets | None
    cloud: RowSets | None
    ridge: Any
    kappa: float
    pooling: str
    drifting: RowSets | None

    def spread(self, w: Array) -> float:
        """Return the largest standard deviation of the score."""
        p, scores = self.moments.shares, self.moments.rows.dot(w)
        distances = scores - p @ scores
        if self.worst is not None:
            up, down = self.kappa * self.worst.support(w), self.kappa * self.worst.support(-w)
            distances = np.maximum(distances + up, down - distances)
        squares = float(p @ np.square(distances)) + float(np.sum(self.ridge * np.square(w)))
        if self.cloud is not None:
            squares += float(np.sum(p * np.square(self.cloud.support(w))))
        outside = [] if self.worst is None or self.kappa == 1 else self.worst.summands()
        return float(np.sqrt(squares)) + (1 - self.kappa) * sum(self._pooled(part, w) for part in outside)

    def _pooled(self, part: RowSets, w: Array) -> float:
        p, form = self.moments.shares, part.interval_form()
        if form is None:
            ends = [part.support(w)] if part.is_symmetric else [part.support(w), part.support(-w)]
            if self.pooling == "rms":
                return float(np.sqrt(np.sum(p * np.square(np.max(ends, axis=0)))))
            return float(np.sum(p * np.sum(ends, axis=0))) / float(np.sqrt(np.min(p)))
        reach = np.broadcast_to(form.common, (len(p), len(w)))
        for own in (form.own, form.centre):
            if own is not None:
                reach = reach + np.abs(own.toarray() if sparse.issparse(own) else own)
        widths = np.sqrt(p @ np.square(reach)) if self.pooling == "rms" else p @ reach / np.sqrt(np.min(p))
        return float(np.abs(w) @ widths)

    def drift(self, w: Array) -> float:
        """Return how far the score of the mean may be off."""
        return 0.0 if self.drifting is None else float(np.sum(self.moments.shares * self.drifting.support(w)))


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
    r"""Return what is known of a class whose rows are stated up to sets and noise.

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
        Sets of the rows, and noise over which is averaged.
    ridge : float or ndarray of shape (n_features,)
        :math:`\rho`.
    kappa : float
    pooling : {"rms", "sum"}
    drift : RowSets or None
        Sets turned towards the other class, whose mean support is how far the mean's score may be off; None for not at all.
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
    """Return whether some scores have a variance that rounding hides in those of the features."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    own = np.flatnonzero(scale > 0)
    values = np.linalg.eigvalsh(covariance[np.ix_(own, own)] / np.outer(scale[own], scale[own]))
    return bool(np.min(values, initial=np.inf) <= DELICATE * np.max(values, initial=0.0))


def _supports(moments: Moments, bound: RowSets) -> PushedRows:
    """Return the mean square of the supports: distances from the mean for rows that are all alike."""
    d = moments.rows.n_features
    alike = rows_of(sparse.csr_array((moments.rows.n_samples, d)))
    return PushedRows.of(alike, np.zeros(d), moments.shares, bound)


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
    r"""Which weights keep two classes apart by the most standard deviations?

    With the spreads :math:`\sigma_\pm`, :math:`D = \mu_+ - \mu_-` and the drifts :math:`r_\pm` of the means,

    .. math:: \min_w\ \phi(w) = \sigma_+(w) + \sigma_-(w) \quad\text{subject to}\quad D^\top w - r_+(w) - r_-(w) \ge 1 .

    All of it grows in proportion to w, so that the minimum of the convex
    :math:`F(w) = \tfrac12 \phi(w)^2 - D^\top w + r(w)`, a problem without constraints, has the same direction; it is
    :math:`-\kappa_*^2/2` with :math:`\kappa_* = 1/\phi`.

    Parameters
    ----------
    negative, positive : ClassLaw
    bound : RowSets or None
        Sets of all rows, of which each class's spread covers the mean: :math:`\sigma(w) \ge \sum_i p_i h_i(w)`.
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
        """Return how far apart the means' scores are at least."""
        return float(self.difference @ w) - self.drift.value(w)

    def leading(self) -> Array:
        """Return the best of the directions of D and of the features: where sets are boxes some lead unless none does."""
        return max([self.difference, *np.vstack([np.eye(self.n_features), -np.eye(self.n_features)])], key=self.lead)

    def may_coincide(self) -> bool:
        """Return whether it is proved that nothing leads, for the means may be the same within the sets."""
        if self.sets is None or self.budgets is None:
            return False
        if self.sets.interval_form() is not None:
            return self.lead(self.leading()) <= 0
        D = self.difference
        scale = self.sets.support(D)
        return self.sets.is_symmetric and least_multiple(self.sets, D, self.budgets, scale, np.abs(D)) <= 1

    def objective(self, w: Array) -> float:
        """Return phi at the multiple of w that satisfies the constraint, inf where none does."""
        lead = self.lead(w)
        return self.spread.value(w) / lead if lead > 0 else np.inf

    def rescaled(self, w: Array) -> Array:
        """Return the best multiple of w for F, w itself where the means' scores are not apart."""
        lead = self.lead(w)
        size = self.spread.value(w)
        return w * (lead / size**2) if lead > 0 and size > 0 else w

    def intercept(self, w: Array) -> float:
        """Return b such that w'x + b = 0 is as many spreads away from both means, drifts deducted."""
        ends = [law.mean @ w - sign * law.drift.value(w) for sign, law in ((1.0, self.positive), (-1.0, self.negative))]
        sizes = [law.spread.value(w) for law in (self.positive, self.negative)]
        return -float(ends[0] * sizes[1] + ends[1] * sizes[0]) / (sizes[0] + sizes[1])

    def deviations(self, w: Array, b: float) -> Array:
        """Return how many spreads each mean, drift deducted, is on its own side of w'x + b = 0; negative class first."""
        return np.array(
            [
                (sign * (law.mean @ w + b) - law.drift.value(w)) / law.spread.value(w)
                for sign, law in ((-1.0, self.negative), (1.0, self.positive))
            ]
        )

    def smoothed(self, delta: float) -> EasedMinimax:
        """Return F with all kinks smoothed away, by about `delta` in units of the scores."""
        return EasedMinimax(self, self.spread.smoothed(delta), self.drift.smoothed(delta))

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        """Return w nearer to kinks, as `RowSets.snapped_to_kinks` does."""
        return Total([self.spread, self.drift]).snapped_to_kinks(w, delta, factor)

    def start(self, limit: int) -> tuple[Array, int]:
        r"""Return the minimum for spreads :math:`\sqrt{w^\top M w}` and no drift, nearly, and the number of solves it took.

        :math:`w \leftarrow H^{-1} D`, :math:`H = M_+/\sigma_+ + M_-/\sigma_-`: each step minimises a parabola that lies above.
        """
        inner = [self.negative.inner, self.positive.inner]
        w, sizes, n_steps = self.difference, np.ones(2), 0
        while n_steps < limit:
            n_steps += 1
            w = newton_step(inner[0] / sizes[0] + inner[1] / sizes[1], -self.difference, np.zeros(len(w)))[0]
            w = w / float(self.difference @ w)
            before, sizes = sizes, np.sqrt([max(float(w @ M @ w), 0.0) for M in inner])
            total = float(np.sum(sizes))
            if total <= 1 / BOUNDLESS or np.all(np.abs(sizes - before) <= SETTLED * total):
                break
            sizes = np.maximum(sizes, ROUNDING * total)
        return w, n_steps


@dataclass(frozen=True)
class EasedMinimax(Problem):
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
        return certificate_of(self.problem, here.parameters, self).gap

    def longest_step(self, w: Array, step: Array) -> float:
        """Return inf: there are no kinks."""
        return np.inf

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit."""
        d = self.n_parameters
        n = d if self.problem.budgets is None else len(self.problem.budgets)
        return {"n_samples": n, "n_features": d, "n_entries": n * d, "is_cheap_to_factorise": n * d * d <= AFFORDABLE}


class MinimaxProof(NamedTuple):
    """What is proved about weights."""

    objective: float
    """phi there."""
    lower_bound: float
    """A number that no weights can go below."""
    gap: float
    """(objective - lower_bound) / objective."""

    @classmethod
    def at(cls, problem: MinimaxProbabilityProblem, w: Array, bound: float) -> MinimaxProof:
        """Return what a lower bound proves of weights, their objective being recomputed from what was stated."""
        laws = (problem.negative, problem.positive)
        lead = float(problem.difference @ w) - sum(law.stated.drift(w) for law in laws)
        if not lead > 0:
            return cls(np.inf, bound, 1.0)
        spread = sum(law.stated.spread(w) for law in laws)

        def rounding() -> float:
            covered = sum(float(np.abs(w) @ np.abs(law.inner) @ np.abs(w)) for law in laws)
            return ROUNDING * (covered / spread if spread > 0 else np.sqrt(covered)) / lead

        objective = spread / lead
        agreed(problem.objective(w), objective, rounding)
        bound = consistent(objective, bound, rounding)
        return cls(objective, bound, 1 - bound / objective if objective > 0 else 0.0)


def certificate_of(problem: MinimaxProbabilityProblem, w: Array, smoothed: EasedMinimax) -> MinimaxProof:
    r"""Return what is proved at w.

    :math:`\phi(w) = \max_{z \in Z} z^\top w` and :math:`r(w) = \max_{q \in R} q^\top w`. Any point with
    :math:`\lambda (D - q) \in Z` proves :math:`\phi \ge \lambda (D - q)^\top w \ge \lambda`. The gradients of the smoothed
    functions are such points z and q but for a residual :math:`e = \lambda (D - q) - z`; with e in :math:`\gamma Z` the bound
    is :math:`\lambda / (1 + \gamma)`. Nothing about w is taken on trust: where it is not nearly optimal the bound is poor.
    """
    z, aim = smoothed.spread.gradient(w), problem.difference - smoothed.drift.gradient(w)
    lead = float(aim @ w)
    bound = 0.0
    if not (lead > 0 and np.all(np.isfinite(z)) and problem.lead(w) > 0):
        return MinimaxProof.at(problem, w, bound)
    factor = float(z @ w) / lead
    if factor > 0:
        sizes = np.abs(z) + factor * np.abs(aim)
        bound = factor / (1 + _reach(problem, w, factor * aim - z, sizes))
    return MinimaxProof.at(problem, w, bound)


def _reach(problem: MinimaxProbabilityProblem, w: Array, target: Array, sizes: Array) -> float:
    """Return a multiple of Z that contains the target, inf where none is known; Z holds the classes' ellipsoids and sets.

    The ellipsoids bear all they can. `sizes` are those of the numbers that the target was computed from.
    """
    laws = (problem.negative, problem.positive)
    scales = np.array([law.core.value(w) for law in laws])
    scales = np.maximum(scales, SLIGHT * float(np.sum(scales)) or 1.0)
    pooled = laws[0].inner / scales[0] + laws[1].inner / scales[1]
    units = np.where(sizes > 0, sizes, 1.0)
    v, missed, share = np.zeros(len(w)), target, np.inf
    for _ in range(REFINEMENTS):
        nearer = v + newton_step(pooled, -missed, np.zeros(len(w)))[0]
        left = target - sum(law.core.slope(nearer) / scale for law, scale in zip(laws, scales, strict=True))
        if np.isfinite(share) and np.max(np.abs(left) / units) > 0.5 * np.max(np.abs(missed) / units):
            break
        v, missed = nearer, left
        share = max(law.core.value(v) / scale for law, scale in zip(laws, scales, strict=True))
        if np.all(np.abs(missed) <= ROUNDING * sizes):
            return share
    if problem.sets is None or problem.budgets is None:
        return np.inf
    t = problem.sets.support(w)
    whole, rest = (least_multiple(problem.sets, part, problem.budgets, t, sizes) for part in (target, missed))
    return min(whole, share + rest)


def train_minimax(
    problem: MinimaxProbabilityProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    report: Report = silent,
) -> tuple[Solution, MinimaxProof]:
    """Return weights with lead 1, how they were found, and what is proved of them.

    Spreads without kinks are solved by reweighting. Others are followed along a path of ever less smoothing, each stage started
    at the last solution, until the proof says `tol`.
    """
    chosen = pick(problem.smoothed(1.0), solver)
    w, n_iter = problem.start(min(REWEIGHTINGS, max_iter))
    w = problem.rescaled(w)
    first = problem.spread.value(w)
    proof = certificate_of(problem, w, problem.smoothed(LAST_EASE * first))
    name = "reweighting"
    if not (proof.gap <= tol or problem.objective(w) <= 1 / BOUNDLESS):
        path = _Path(problem, chosen, tol, max_iter, report, n_iter)
        w, proof = path.followed(w, proof, first)
        n_iter, name = path.n_iter, chosen.name
    if problem.lead(w) <= 0:
        w = problem.leading()
        proof = MinimaxProof.at(problem, w, proof.lower_bound)
    if proof.gap <= tol:
        status = Status.SOLVED
    else:
        status = Status.ITERATION_LIMIT if n_iter >= max_iter else Status.STALLED
    lead = problem.lead(w)
    found = Solution(w / lead if lead > 0 else w, status, proof.objective, n_iter, name, proof.lower_bound)
    return found, proof


@dataclass
class _Path:
    """The way down to no smoothing."""

    problem: MinimaxProbabilityProblem
    solver: Solver
    tol: float
    max_iter: int
    report: Report
    n_iter: int

    def followed(self, w: Array, proof: MinimaxProof, size: float) -> tuple[Array, MinimaxProof]:
        """Return the best weights on the path and what is proved of them, from weights of this spread."""
        problem, first, best = self.problem, size, w
        delta, shrink = FIRST_EASE * size, SHRINK
        last, trial, begin = delta, delta, [w]
        before = w
        while self.n_iter < self.max_iter:
            is_fine = trial <= TRACE * self.tol * size
            smoothed = problem.smoothed(trial)
            goal = min(FINE * self.tol**2, FINEST) if is_fine else STAGE * trial / size
            start = min(begin, key=lambda v: smoothed.value_and_gradient(v)[0])
            self.report(f"smoothing {trial / size:.2g} of the spread")
            limit = min(STAGE_STEPS, self.max_iter - self.n_iter)
            stage = self.solver.minimise(smoothed, start, tol=goal, max_iter=limit, report=self.report)
            self.n_iter += stage.n_iter
            if stage.status is Status.ITERATION_LIMIT and trial < delta and shrink < NO_SHRINK:
                # too far from the last stage
                shrink = float(np.sqrt(shrink))
            else:
                last, before, w = delta, w, stage.parameters
                delta, shrink = trial, max(SHRINK, shrink**2)
                is_end = delta <= LAST_EASE * first or problem.objective(w) <= 1 / BOUNDLESS
                # a bound holds for all weights
                bound = certificate_of(problem, w, smoothed).lower_bound if is_fine or is_end else 0.0
                best = min(best, w, key=problem.objective)
                proof = MinimaxProof.at(problem, best, max(bound, proof.lower_bound))
                self.report(f"certified gap {proof.gap:.2e}")
                if proof.gap <= self.tol or is_end:
                    break
                size = problem.spread.value(w) if problem.lead(w) > 0 else size
            trial = shrink * delta
            begin = [w, problem.snapped_to_kinks(w, delta, trial / delta)]
            if last > delta:
                begin.append(w + (trial - delta) / (delta - last) * (w - before))
        return self._tidied(best, proof, delta)

    def _tidied(self, w: Array, proof: MinimaxProof, delta: float) -> tuple[Array, MinimaxProof]:
        """Return the weights with the zeros and ties that only smoothing has kept them from, where they are as good."""
        tidy = self.problem.snapped_to_kinks(w, delta, 0.0)
        proved = MinimaxProof.at(self.problem, tidy, proof.lower_bound)
        is_as_good = proved.objective <= proof.objective * (1 + TRACE * self.tol)
        return (tidy, proved) if is_as_good and proved.gap <= max(self.tol, proof.gap) else (w, proof)
