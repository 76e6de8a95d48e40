"""A vote with Laplace laws of one common scale, by the share of voters that err: convex for each scale, and solved for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.problem import Problem
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import AFFORDABLE, GAP_FLOOR, ROUNDING
from holdfast._problems.laplace import WIDEST, LaplaceProof, conjugate
from holdfast._proofs.certificate import drawn_to
from holdfast._proofs.consistency import agreed, consistent
from holdfast.losses.laplace_law import LaplaceSum
from holdfast.solvers.selection import pick

FINE = 1e-3
"""Share of the tolerance to which each convex problem is solved."""
ALTERNATIONS, SOLVES = 30, 80
"""Convex problems that are solved to find a good scale, and all in all."""
SETTLED = 1e-9
"""Relative change of the scale that ends the alternation."""
INVERSIONS = 40
"""Newton steps to the margins at which losses have given slopes."""
FAR = 40.0
"""Deviations at which a row's slope counts as 0."""
BALANCED = 1e-10
"""Pull, as a share of what adds up to it, that is put down to rounding."""
NARROW = 1e-3
"""Share of a cell that a new scale keeps from its ends."""


class TailRows:
    """Signed rows with the law of the vote on each; rows of zeros, which are always wrong, only cost."""

    def __init__(self, signed: Array, weights: Array):
        used = np.any(signed != 0, axis=1)
        self.A, self.weights = np.ascontiguousarray(signed[used]), weights[used]
        self.lost = float(weights[~used].sum())
        self.law = LaplaceSum(np.abs(self.A))
        self.peaks = self.law.density(np.zeros(len(self.A)))

    @property
    def n_learners(self) -> int:
        """D."""
        return self.A.shape[1]

    def ground(self, u: Array) -> float:
        """Return a number that the losses of no means go below, from slopes near those at u that pull in no direction.

        To rounding: slopes that pull nowhere at all are within rounding of those that are used. 0 where there are none nearby.
        """
        z = np.maximum(self.A @ u, 0.0)
        budgets, reach = self.weights * self.peaks, FAR * self.law.deviations
        share = drawn_to(self.law.density(z) / self.peaks, budgets, self.A, np.zeros(self.n_learners))
        for _ in range(INVERSIONS):
            _, density, slope = self.law.derivatives(z)
            missed = density - share * self.peaks
            z = np.clip(z - missed / np.where(slope < 0, slope, -np.inf), 0.0, reach)
            if np.all(np.abs(missed) <= ROUNDING * self.peaks):
                break
        tail, density, _ = self.law.derivatives(z)
        slopes = self.weights * density
        if np.any(np.abs(slopes @ self.A) > BALANCED * (slopes @ np.abs(self.A))):
            return 0.0
        return max(0.0, (1 - BALANCED) * float(self.weights @ tail + slopes @ z)) + self.lost

    def losses(self, z: Array) -> tuple[Array, Array, Array]:
        """Return the loss of margins z, minus its slope, and its second derivative.

        The tail for z >= 0, which is convex there, and its tangent at 0 below.
        """
        tail, density, slope = self.law.derivatives(np.maximum(z, 0.0))
        return np.where(z >= 0, tail, 0.5 - self.peaks * z), density, np.where(z > 0, -slope, 0.0)


@dataclass(eq=False)
class TailProblem(Problem):
    r"""The convex problem of one scale :math:`\sigma`, in the means :math:`u = \mu_Q / \sigma_Q` in units of the scales.

    .. math:: G(\sigma) = \min_u\ \sigma \sum_k \bigl(|u_k| + e^{-|u_k|}\bigr) + \sum_i c_i\, \ell_i(y_i x_i^\top u),

    with the loss of `TailRows`, at least the share of voters that err. G is concave, and
    :math:`G(\sigma) - d \ln \sigma - d` is divergence plus loss.
    """

    rows: TailRows
    sigma: float
    trace: list[float] = field(default_factory=list)
    _seen: Any = field(default=None, repr=False)

    metric_age = 20

    @property
    def n_parameters(self) -> int:
        """How many means there are."""
        return self.rows.n_learners

    @property
    def constant(self) -> float:
        """What the scale costs, so that value plus constant is divergence plus loss."""
        return self.n_parameters * (self.sigma - np.log(self.sigma) - 1)

    @property
    def floor(self) -> float:
        """The objective below which a gap is measured against this number."""
        return GAP_FLOOR * (self.n_parameters + float(self.rows.weights.sum()) + self.rows.lost)

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        return self.floor

    def _at(self, u: Array) -> Any:
        if self._seen is None or not np.array_equal(self._seen[0], u):
            z = self.rows.A @ u
            losses, densities, bends = self.rows.losses(z)
            value = self.sigma * float(np.sum(np.abs(u) + np.expm1(-np.abs(u)))) + float(self.rows.weights @ losses)
            slopes = self.rows.weights * densities
            self._seen = (
                u.copy(),
                z,
                losses,
                slopes,
                bends,
                value + self.rows.lost + self.constant,
                slopes @ self.rows.A,
            )
        return self._seen

    def value_and_gradient(self, u: Array) -> tuple[float, Array]:
        """Return divergence plus loss, and its gradient."""
        *_, value, pulls = self._at(u)
        return value, -self.sigma * np.sign(u) * np.expm1(-np.abs(u)) - pulls

    def hessian(self, u: Array) -> Array:
        """Return the Hessian."""
        _, _, _, _, bends, value, _ = self._at(u)
        self.trace.append(value)
        gram = self.rows.A.T @ (self.rows.A * (self.rows.weights * bends)[:, None])
        return gram + self.sigma * np.diag(np.exp(-np.abs(u)))

    def typical_curvature(self) -> Array:
        """Return the divergence's curvature at u = 0."""
        return np.full(self.n_parameters, self.sigma)

    def metric(self, u: Array) -> Array:
        """Return the diagonal of the Hessian."""
        bends = self._at(u)[4]
        return self.sigma * np.exp(-np.abs(u)) + (self.rows.weights * bends) @ np.square(self.rows.A)

    def suboptimality(self, u: Array, value: float, gradient: Array) -> float:
        """Return the certified gap of this scale."""
        self.trace.append(value)
        return (value - self.lower_bound(u)) / max(value, self.floor)

    def longest_step(self, u: Array, step: Array) -> float:
        """Return inf: there are no kinks."""
        return np.inf

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit."""
        n, d = self.rows.A.shape
        return {
            "n_samples": n,
            "n_features": d,
            "n_entries": n * d,
            "is_cheap_to_factorise": d <= 2 * WIDEST and n * d * d <= AFFORDABLE,
        }

    def lower_bound(self, u: Array) -> float:
        """Return a number that no means of this scale go below: tangents of the losses at u, made less steep where need be."""
        _, z, losses, slopes, _, _, pulls = self._at(u)
        steep = np.abs(pulls) / self.sigma
        share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
        heights = float(self.rows.weights @ losses + slopes @ z)
        least = self.sigma * float(np.sum(conjugate(np.minimum(share * steep, 1.0)) - 1))
        return least + share * heights + self.rows.lost + self.constant


class TailFit(NamedTuple):
    """A vote of one common scale."""

    means: Array
    """In units of the scales."""
    sigma: float
    """In units of the prior's scales."""
    solution: Solution
    proof: LaplaceProof
    n_sigma_solves: int
    trace: list[float]


def train_tail(
    rows: TailRows,
    sigma: float | None,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    report: Report = silent,
) -> TailFit:
    """Return the best means for a scale, or the best means and scale where it is None, with a proof for all scales."""
    search = _Search(rows, solver, tol, max_iter, report)
    search.solved(1.0 if sigma is None else sigma, np.zeros(rows.n_learners) if start is None else start)
    bound = search.lower_bound() if sigma is None else search.bounds[sigma]
    if sigma is None:
        search.alternate()
        bound = search.close()
    return search.fit(bound)


class _Search:
    """Certified values of G, and the best means and scale among them."""

    def __init__(self, rows: TailRows, solver: Solver | str | None, tol: float, max_iter: int, report: Report):
        self.rows, self.tol, self.max_iter, self.report = rows, tol, max_iter, report
        self.solver = pick(TailProblem(rows, 1.0), solver)
        self.bounds: dict[float, float] = {}
        """Lower bounds of divergence plus loss, by scale."""
        self.means: dict[float, Array] = {}
        self.best, self.sigma, self.n_iter = np.inf, 1.0, 0
        self.trace: list[float] = []
        self.is_cut = False
        """Whether max_iter ended the solver somewhere."""
        self.ground = rows.lost
        """A lower bound of G at 0."""
        self.grounded: set[float] = set()

    def solved(self, sigma: float, start: Array) -> None:
        """Solve the problem of a scale."""
        problem = TailProblem(self.rows, sigma)
        found = self.solver.minimise(problem, start, tol=FINE * self.tol, max_iter=self.max_iter)
        value, _ = problem.value_and_gradient(found.parameters)
        self.n_iter += found.n_iter
        self.is_cut |= found.status is Status.ITERATION_LIMIT
        self.bounds[sigma], self.means[sigma] = min(problem.lower_bound(found.parameters), value), found.parameters
        if value < self.best:
            self.trace += [one for one in [*problem.trace, value] if one < self.best]
            self.best, self.sigma = value, sigma
        self.report(f"scale {sigma:.6g}, number {len(self.bounds)}: objective {value:.10g}, best {self.best:.10g}")

    def alternate(self) -> None:
        """Take the best scale for the means and the best means for the scale by turns."""
        for _ in range(ALTERNATIONS):
            u = self.means[self.sigma]
            sigma = float(len(u) / np.sum(np.abs(u) + np.exp(-np.abs(u))))
            if abs(sigma - self.sigma) <= SETTLED * sigma or sigma in self.bounds:
                break
            before = self.best
            self.solved(sigma, u)
            if before - self.best <= FINE * self.tol * abs(self.best):
                break

    def close(self) -> float:
        """Solve where the bound is worst until it is good, and return it."""
        while True:
            bound, sigma = self._worst()
            smallest = min(self.bounds)
            if sigma < smallest and smallest not in self.grounded:
                self.grounded.add(smallest)
                self.ground = max(self.ground, self.rows.ground(self.means[smallest]))
                continue
            if (
                self.best - bound <= self.tol * max(self.best, 0.0)
                or len(self.bounds) >= SOLVES
                or sigma in self.bounds
            ):
                return bound
            near = min(self.means, key=lambda other: abs(np.log(other / sigma)))
            self.solved(sigma, self.means[near])

    def lower_bound(self) -> float:
        """Return a bound for all scales."""
        return self._worst()[0]

    def _worst(self) -> tuple[float, float]:
        """Return the bound of all scales, and the scale to solve next.

        G is concave, so it lies above the chords between certified values, the losses of no scale at all among them;
        divergence plus loss above these minus d ln(sigma) + d. The best scale is 1 at most.
        """
        d = self.rows.n_learners
        points = [(0.0, self.ground)]
        for sigma in sorted(self.bounds):
            height = self.bounds[sigma] + d * np.log(sigma) + d
            while len(points) > 1 and _slope(points[-2], points[-1]) <= _slope(points[-1], (sigma, height)):
                points.pop()
            points.append((sigma, height))
        cells = []
        for low, high in pairwise(points):
            slope = _slope(low, high)
            least = float(np.clip(d / slope, low[0], high[0])) if slope > 0 else high[0]
            least = max(least, np.finfo(float).tiny)
            cells.append((low[1] + slope * (least - low[0]) - d * np.log(least) - d, least, low[0], high[0]))
        bound, least, start, stop = min(cells)
        if not min(least - start, stop - least) > NARROW * (stop - start):
            least = 0.5 * (start + stop)
        return float(max(bound, 0.0)), least

    def fit(self, bound: float) -> TailFit:
        """Return the best vote, with its objective recomputed."""
        u, sigma = self.means[self.sigma], self.sigma
        objective = tail_objective(self.rows, u, sigma)

        def rounding() -> float:
            return ROUNDING * float(np.sum(np.abs(u)) + len(u) + np.sum(self.rows.weights))

        agreed(self.best, objective, rounding)
        bound = consistent(objective, bound, rounding)
        floor = TailProblem(self.rows, sigma).floor
        proof = LaplaceProof(objective, bound, (objective - bound) / max(objective, floor))
        unsolved = Status.ITERATION_LIMIT if self.is_cut else Status.STALLED
        status = Status.SOLVED if proof.gap <= self.tol else unsolved
        found = Solution(u, status, objective, self.n_iter, self.solver.name, bound)
        return TailFit(u, sigma, found, proof, len(self.bounds), self.trace)


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def tail_objective(rows: TailRows, u: Array, sigma: float) -> float:
    """Return divergence plus loss by the formulas that define them."""
    z = rows.A @ u
    law = LaplaceSum(np.abs(rows.A))
    losses = np.where(z >= 0, law.tail(z), 0.5 - law.density(np.zeros(len(z))) * z)
    divergence = float(np.sum(sigma * (np.abs(u) + np.exp(-np.abs(u))) - np.log(sigma) - 1))
    return divergence + float(rows.weights @ losses) + rows.lost
