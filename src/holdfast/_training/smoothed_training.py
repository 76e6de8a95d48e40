"""Training for worst-case losses and for penalties with kinks: a path of decreasing smoothing, with proofs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.problem import Curved, Rounded
from holdfast._core.programs import ConeProgram, DeletionProgram, IntervalProgram, LinearProgram
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Report, Solver
from holdfast._core.tolerances import LOOSE, ROUNDING, SMALL_WORK
from holdfast._problems.linear import LinearProblem
from holdfast._proofs.certificate import Certificate, certificate
from holdfast._proofs.intercepts import best_constant
from holdfast._proofs.pulls import has_points
from holdfast.solvers import Newton
from holdfast.solvers.lagged_newton import LaggedNewton
from holdfast.solvers.selection import pick

FIRST, FIRST_SMOOTH, FIRST_WARM = 1.0, 1e-2, 5e-3
"""Smoothing at the start of a path: with kinks everywhere, with one at w = 0 only, and from a given start."""
SHRINK, GENTLE = 0.1, 0.9
"""Factor of the smoothing from stage to stage, and the largest factor up to which it may be made gentler."""
SMALLEST = 1e-10
"""The smallest smoothing at which steps are not lost in rounding."""
STAGE_STEPS = 40
"""Steps after which a stage is replaced by a stage nearer to the previous one."""
PLAIN_STEPS, LAGGED_STEPS = 15, 30
"""Most Newton steps of a stage without exact searches, plain or keeping slopes; fewer mostly suffice."""
GROWTH = 2.0
"""The first smoothing of a fit, as a multiple of its neighbour's final smoothing."""
AIM = 0.3
"""The gap that the next smoothing aims at, as a share of `tol`."""
STAGE, ROUGH, WARM_STAGE = 0.02, 1e-2, 1e-3
"""A stage ends when its next step promises less than `STAGE` times the gap that the smoothing leaves (`ROUGH` at most);
the first stage, less than `ROUGH` (from scratch) or `WARM_STAGE` (from a given start) times the smoothing."""
LAGGING, CARE, LEAST_CARE = 3.0, 1e-3, 1e-9
"""Factor by which a gap may exceed its proportion to the smoothing; beyond it, `CARE` multiplies the stages' goals."""
SAMPLE_ROWS, ROWS_PER_PARAMETER, FEW = 2000, 30, 5
"""Size of the sample that gives a start: least rows, rows per parameter, and least ratio of all rows to the sample."""
POLISHING_STEPS = 6
"""Most Newton steps that polish a small, smooth fit; two or three suffice unless weights move to their kinks."""
STRAIGHT = 0.01
"""At this smoothing and below, w = 0 is tried too."""
TETHER = 0.01
"""Ridge of a smoothed problem without one of its own, as a share of the smoothing and of the least curvature of a feature."""
SLOPES = np.linspace(0.1, 1.0, 10)
"""Trial slopes of the lighter class for a lower bound at w = 0, as shares of the steepest slope."""
PROVED = 1e-9
"""Gap to aim at where it is cheap, and for a proof that w = 0 is optimal."""
ACCURATE = {IntervalProgram, DeletionProgram}
"""Views whose solvers minimise to rounding and take no start."""
BACK_OFF = 0.1
"""Reduction of the sets, as a share of the target gap, used in training if nothing else gives dual weights room."""


@dataclass
class SmoothedTraining:
    """The work on one problem: the best parameters and the best dual weights so far, which need not belong together."""

    problem: LinearProblem
    solver: Solver
    tol: float
    max_iter: int
    report: Report
    is_free: bool = True
    """Whether the solver may be chosen anew for each stage."""
    n_iter: int = 0

    def __post_init__(self) -> None:
        n, d = self.problem.rows.n_samples, self.problem.rows.n_features * self.problem.n_vectors
        is_cheap = n * d * d <= SMALL_WORK
        self.is_wide = bool(self.problem.work().get("is_wide", False))
        # exact searches save steps, but cost more than the steps where Hessians are cheap
        self.is_plain = is_cheap and not self.is_wide
        self.fine = min(self.tol, PROVED) if is_cheap and self.tol <= LOOSE else self.tol
        self.lowest, self.highest = np.inf, -np.inf
        self.parameters = np.zeros(self.problem.n_parameters)
        self.dual: DualGuess | None = None
        self.flat: tuple[Array, float] | None = None
        self.slopes: Array | None = None
        self.is_near, self.first = False, FIRST_WARM
        self.proved: tuple[Array, DualGuess, Certificate] | None = None
        self.status = Status.STALLED

    def warm(self, start: Array, near: Solution | None = None) -> tuple[Solution, Certificate]:
        """Return the solution from a given start; slopes start at the values in a neighbour's proof."""
        if near is not None and near.dual is not None and self.tol > LOOSE:
            self.slopes = 2 * near.dual.slopes - 1
            if near.dual.smoothing > 0 and self.problem.sets.is_smooth:
                # if a neighbour needed less smoothing, so will this fit; but with kinks in the sets, steps would get
                # nowhere there
                self.first = min(FIRST_WARM, GROWTH * near.dual.smoothing)
        self.is_near = self.tol > LOOSE
        return self.solved(start)

    def solved(self, start: Array | None) -> tuple[Solution, Certificate]:
        """Return a solution with its proof."""
        whole = self.solver
        takes_whole = bool({ConeProgram, LinearProgram, *ACCURATE}.intersection(whole.needs))
        if takes_whole and start is not None and self.tol > LOOSE and self.is_free:
            # try steps from a near start before solvers that take no start
            self.follow(start)
            if self.gap <= self.tol:
                return self._proved()
            self.solver = whole
        if takes_whole:
            if not ACCURATE.intersection(self.solver.needs):
                # general solvers do not reach a finer gap
                self.fine = self.tol
            found, proof = self._taken_whole()
            other = self.solver.stand_in(self.problem.work()) if self.is_free and proof.gap > self.tol else None
            if other is not None:
                self.report(f"certified gap {proof.gap:.2e}; once more by {other.name}")
                self.solver = other
                again, better = self._taken_whole()
                found, proof = (again, better) if better.gap < proof.gap else (found, proof)
            if proof.gap <= self.tol or not self.is_free or self.n_iter >= self.max_iter:
                return self._polished(found, proof)
            start, self.dual = found.parameters, found.dual
            self.lowest, self.parameters, self.highest = proof.objective, start, proof.lower_bound
        self.follow(self._start_on_fewer_rows() if start is None else start)
        is_left = self.gap > self.tol and self.highest > -np.inf and self.n_iter < self.max_iter
        # with far more features than rows the Hessian costs more than all else, and tells newton_cg nothing new
        is_other = not (isinstance(self.solver, Newton) or self.is_wide)
        if is_left and self.is_free and is_other and self.problem.offers(Curved):
            # where one kind of step fails, the other mostly succeeds
            if self.is_plain:
                self.report("once more with exact searches")
                self.is_plain = False
            else:
                self.report("once more with plain Newton steps")
                self.solver, self.is_free = Newton(), False
            self.follow(None)
        return self._proved()

    def _proved(self) -> tuple[Solution, Certificate]:
        """Return the best parameters with their proof."""
        found = Solution(self.parameters, self.status, self.lowest, self.n_iter, self.solver.name, dual=self.dual)
        return self._polished(found, self._proof(found))

    def _polished(self, found: Solution, proof: Certificate) -> tuple[Solution, Certificate]:
        """Return the solution of a small, smooth problem after Newton steps that cross no kink of the weights.

        Objectives determine weights to only half of the digits; slopes determine more.
        """
        problem, theta = self.problem, found.parameters
        is_worth_it = self.fine <= PROVED and proof.gap <= self.tol and problem.n_vectors == 1
        if not (is_worth_it and problem.loss.is_smooth) or self._is_flat(theta):
            return found, proof
        w = problem.split(theta)[0]
        limit = np.inf if problem.penalty is None else problem.penalty.limit
        free = np.flatnonzero(problem.join((w != 0) & (np.abs(w) < limit), 1.0))
        slopes = problem.value_and_gradient(theta)[1][free]
        for _ in range(POLISHING_STEPS):
            try:
                step = np.linalg.solve(problem.hessian(theta)[np.ix_(free, free)], slopes)
            except np.linalg.LinAlgError:
                break
            there = theta.copy()
            there[free] -= step
            crossed = np.flatnonzero(problem.split(there)[0] * w < 0)
            if len(crossed):
                # weights that would cross a kink are put on it
                there, free = theta.copy(), np.setdiff1d(free, crossed)
                there[crossed] = 0.0
            new = problem.value_and_gradient(there)[1][free]
            if not len(crossed) and not np.linalg.norm(new) < np.linalg.norm(slopes):
                break
            theta, slopes = there, new
        better = replace(found, parameters=theta)
        proved = self._proof(better)
        return (better, proved) if proved.gap <= max(proof.gap, PROVED) else (found, proof)

    def _taken_whole(self) -> tuple[Solution, Certificate]:
        """Return the result of a solver that uses no start and no smoothing; w = 0 is proved to a smaller gap."""
        found = self.solver.minimise(
            self._trained_for, self.parameters, tol=self.fine, max_iter=self.max_iter, report=self.report
        )
        if self.problem.penalty is not None:
            # solvers meet limits only up to rounding
            w, b = self.problem.split(found.parameters)
            found = replace(found, parameters=self.problem.join(self.problem.penalty.admitted(w), b))
        proof = self._proof(found)
        self.report(f"certified gap {proof.gap:.2e}")
        self.n_iter = found.n_iter
        if proof.gap <= self.tol:
            found, proof = self._flattened(found, proof)
        is_accurate = bool(ACCURATE.intersection(self.solver.needs))
        if is_accurate and self.fine > PROVED and proof.gap > PROVED and self._is_flat(found.parameters):
            self.fine = PROVED
            return self._taken_whole()
        return found, proof

    def _is_flat(self, parameters: Array) -> bool:
        return not np.any(self.problem.split(parameters)[0])

    def _start_on_fewer_rows(self) -> Array | None:
        """Return a rough solution for a sample of the rows, None if there are too few rows for a sample to pay."""
        n_rows = max(SAMPLE_ROWS, ROWS_PER_PARAMETER * self.problem.n_parameters)
        if self.problem.rows.n_samples < FEW * n_rows:
            return None
        self.report(f"a rough solution for {n_rows} of {self.problem.rows.n_samples} rows")
        sample = replace(self, problem=self.problem.thinned(n_rows), tol=ROUGH)
        sample.follow(sample._start_on_fewer_rows())
        self.n_iter = sample.n_iter
        return sample.parameters

    def _proof(self, found: Solution) -> Certificate:
        if self.proved is not None and found.parameters is self.proved[0] and found.dual is self.proved[1]:
            return self.proved[2]
        w, b = self.problem.split(found.parameters)
        return certificate(self.problem, w, b, found.dual)

    @property
    def gap(self) -> float:
        """The certified gap so far."""
        return (self.lowest - max(self.highest, 0.0)) / max(abs(self.lowest), self.problem.floor)

    def follow(self, start: Array | None) -> None:
        """Follow the path until the gap is within `tol` or nothing more can be gained."""
        problem = self.problem
        is_plain = problem.penalty is None and problem.push is None
        has_kinks = not (is_plain and problem.loss.is_smooth and problem.sets.is_smooth)
        delta = (FIRST if has_kinks else FIRST_SMOOTH) if start is None else self.first
        theta = self._admitted(np.zeros(problem.n_parameters) if start is None else start)
        # from a given start one stage mostly suffices, if its slopes are accurate enough for a tight proof
        last, shrink, goal, care = delta, SHRINK, (ROUGH if start is None else WARM_STAGE) * delta, 1.0
        back: tuple[float, Array] | None = None
        while True:
            smoothed = self._eased(delta)
            begins = [theta, self._admitted(problem.snapped_to_kinks(theta, last, delta / last))]
            if back is not None and delta < last:
                # while the same rows are at their kinks, the path is straight
                begins.append(self._admitted(theta + (last - delta) / (back[0] - last) * (theta - back[1])))
            begin = self._better(smoothed, *begins)
            self.report(f"smoothing {delta:.2g}")
            stage = self._minimise(smoothed, begin, goal)
            is_out = self.n_iter >= self.max_iter
            if stage.status is not Status.SOLVED and not is_out and delta < last and shrink < GENTLE:
                shrink = float(np.sqrt(shrink))
                delta = shrink * last
                continue
            back, theta = ((last, theta) if delta < last else back), stage.parameters
            before = self.gap
            self._judge(smoothed, theta, delta)
            self.report(f"certified gap {self.gap:.2e}")
            goal_gap = min(self.fine, PROVED) if self._is_flat(self.parameters) else self.fine
            if self.gap <= goal_gap or (self.gap <= self.tol and (is_out or delta <= SMALLEST)):
                self.status = Status.SOLVED
                return
            if is_out:
                self.status = Status.ITERATION_LIMIT
                return
            if delta <= SMALLEST:
                return
            if delta < last and self.gap > LAGGING * before * delta / last and care > LEAST_CARE:
                # the gap did not fall with the smoothing: the stage took too few steps
                care *= CARE
                goal *= CARE
                last = delta
                continue
            # the gap is proportional to a power of the smoothing: 1 if few rows are near their kinks, 2 if many are
            order = np.log(before / self.gap) / np.log(last / delta) if delta < last and np.isfinite(before) else 1.0
            wanted = float((AIM * goal_gap / self.gap) ** (1 / np.clip(order, 1.0, 2.0)))
            last, shrink = delta, max(SHRINK, shrink**2)
            delta = max(delta * min(max(wanted, shrink), 0.5), SMALLEST)
            goal = min(ROUGH, care * self._goal(max(self.gap * delta / last, AIM * goal_gap)))

    def _eased(self, delta: float) -> LinearProblem:
        """Return the problem smoothed by `delta`.

        Where the sets almost cancel the gain of some weights, these weights may grow without limit for a tiny gain,
        because smoothing rewards growth a little. A small ridge keeps them where scores are larger than rounding
        errors.
        """
        problem = self.problem
        if problem.is_penalised or not has_points(problem):
            return self._trained_for.smoothed(delta)
        squares = problem.rows.column_squares
        least = float(np.min(squares[squares > 0], initial=np.inf))
        ridge = TETHER * delta * float(problem.weights.sum()) * least if np.isfinite(least) else 0.0
        return problem.smoothed(delta).having(alpha=ridge)

    @property
    def _trained_for(self) -> LinearProblem:
        """The problem, with slightly smaller sets if nothing else lets dual weights compensate for rounding."""
        if self.problem.is_penalised:
            return self.problem
        return self.problem.having(sets=self.problem.sets.scaled(1 - BACK_OFF * self.fine))

    def _goal(self, gap: float) -> float:
        """Return the promised gain at which to stop, so that the proof loses no more than a small share of `gap`."""
        return 0.05 * STAGE * gap if self.problem.alpha > 0 else 0.01 * np.square(STAGE * gap)

    def _minimise(self, smoothed: LinearProblem, start: Array, goal: float) -> Solution:
        cheaper = self._cheaper(smoothed)
        if cheaper is not None:
            limit = max(1, min(LAGGED_STEPS if self.is_near else PLAIN_STEPS, self.max_iter - self.n_iter))
            plain = cheaper.minimise(smoothed, start, tol=goal, max_iter=limit, rough=True, report=self.report)
            self.n_iter += plain.n_iter
            if plain.status is Status.SOLVED or self.n_iter >= self.max_iter:
                return plain
            start = plain.parameters
        solver = pick(smoothed) if self.is_free else self.solver
        limit = min(STAGE_STEPS if self.is_free else self.max_iter, max(1, self.max_iter - self.n_iter))
        found = solver.minimise(smoothed, start, tol=goal, max_iter=limit, rough=True, report=self.report)
        self.n_iter += found.n_iter
        self.solver = solver
        return found

    def _cheaper(self, smoothed: LinearProblem) -> Solver | None:
        """Return the solver to try before steps with exact searches, None if there is none."""
        if not self.is_free:
            return None
        if self.is_near and smoothed.offers(Rounded):
            return LaggedNewton(self.slopes)
        return Newton() if self.is_plain and smoothed.offers(Curved) else None

    def _admitted(self, parameters: Array) -> Array:
        """Return the parameters with weights strictly inside the penalty's limits."""
        if self.problem.penalty is None:
            return parameters
        w, b = self.problem.split(parameters)
        return self.problem.join(self.problem.penalty.smoothed(1.0).admitted(w), b)

    def _better(self, problem: LinearProblem, *points: Array) -> Array:
        different = [point for k, point in enumerate(points) if not any(np.array_equal(point, q) for q in points[:k])]
        if len(different) == 1:
            return different[0]
        return min(different, key=lambda point: problem.value_and_gradient(point)[0])

    def _judge(self, smoothed: LinearProblem, theta: Array, delta: float) -> None:
        """Record the parameters of a stage, tidied if that is as good, and the lower bound from its slopes."""
        problem = self.problem
        guess = smoothed.dual_guess(theta)._replace(smoothing=delta)
        self.slopes = 2 * guess.slopes - 1
        w, b = problem.split(theta)
        proof = certificate(problem, w, b, guess)
        if proof.lower_bound > self.highest:
            self.highest, self.dual = proof.lower_bound, guess
            self.proved = theta, guess, proof
        self._note(theta, proof.objective)
        tidy = problem.tidied(theta, delta)
        if not np.array_equal(tidy, theta):
            self._note(tidy, problem.value_and_gradient(tidy)[0], slack=0.1 * self.fine)
        if delta <= STRAIGHT and self._may_be_flat():
            self._note(*self._flat(b), slack=ROUNDING)

    def _may_be_flat(self) -> bool:
        """Return whether w = 0 may be as good as the best parameters, by a bound that needs no pass over the rows."""
        problem, loss = cast(Any, self.problem), self.problem.loss
        if not (loss.has_dual and problem.n_vectors == 1 and np.ndim(problem.target) == 0 and problem.fit_intercept):
            return True
        lighter, heavier = sorted(problem.class_weights())
        slopes = min(loss.dual_limit, 1.0) * SLOPES
        constant = lighter * loss.dual_value(slopes) + heavier * loss.dual_value(slopes * (lighter / heavier))
        return bool(self.lowest >= (1 - LOOSE) * np.max(constant))

    def _flat(self, b: Any) -> tuple[Array, float]:
        """Return w = 0 with its best intercept, sought from b, and the objective there."""
        if self.flat is None:
            problem = self.problem
            b = best_constant(problem, b) if problem.fit_intercept else b
            parameters = problem.join(np.zeros_like(problem.split(self.parameters)[0]), b)
            self.flat = parameters, problem.value_and_gradient(parameters)[0]
        return self.flat

    def _flattened(self, found: Solution, proof: Certificate) -> tuple[Solution, Certificate]:
        """Return w = 0 if it is as good as `found` and the same dual weights prove it; otherwise return `found`."""
        flat, objective = self._flat(self.problem.split(found.parameters)[1])
        slack = 0.1 * self.fine * max(proof.objective, self.problem.floor)
        if objective > proof.objective + slack:
            return found, proof
        tidy = replace(found, parameters=flat)
        again = self._proof(tidy)
        return (tidy, again) if again.gap <= max(self.tol, proof.gap) else (found, proof)

    def _note(self, parameters: Array, objective: float, slack: float = 0.0) -> None:
        if objective < self.lowest or objective <= self.lowest + slack * max(self.lowest, self.problem.floor):
            self.lowest, self.parameters = objective, parameters
