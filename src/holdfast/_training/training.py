"""From a problem to a certified solution: start, path, collapse, proof."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from holdfast._core.arithmetic import norm
from holdfast._core.loss import Array
from holdfast._core.problem import Curved
from holdfast._core.programs import ConeProgram, FiniteSum, ProximalSum
from holdfast._core.rows import Rows, Span
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, Solver, silent
from holdfast._core.tolerances import AFFORDABLE, LOOSE, ROUNDING
from holdfast._data import rows_of
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate, certificate, rounding_at
from holdfast._proofs.consistency import SUMS, agreed, attained
from holdfast._training.collapse import examine_collapse, way_out
from holdfast._training.smoothed_training import SmoothedTraining
from holdfast.solvers import Newton
from holdfast.solvers.selection import pick

FIRST_EASE, SHRINK, LAST_EASE = 0.5, 0.15, 1e-7
"""Noise on the score: at the path's start, its factor between stages, and the value that suggests a collapse."""
NEWTON_EASE = 0.7
"""Noise at the start if Newton steps are cheap: from w = 0 they overshoot the more, the less noise there is."""
STRAIGHT, FINE = 0.01, 1e-8
"""Below `STRAIGHT`, a noise on the score, the path is nearly straight; stages then end at a relative gain of `FINE`."""
PATIENCE = 60
"""Number of steps after which an unfinished solver makes way for Newton's method."""
WARM_PATIENCE, WARM_STEPS = 6, 100
"""The same number with a given start, and the number of steps after which the start is abandoned."""
PROBE = 50
"""Number of steps without smoothing to test whether some pair of classes is about to collapse."""
CLOSE = 2.0
"""The path ends when the noise on the score is this multiple of the noise that the features cause."""
NOTHING_TO_GAIN = 1e-10
"""Gap at w = 0 up to which a collapse counts as proved: any other w could gain only a rounding error."""
ROUGH = 1e-2
"""A start for another problem is improved while the next step promises at least this share of the objective."""
ROUGHEST = 0.1
"""The same share for a stage of the path, whose result the next stage changes anyway."""
NEARLY, ALMOST = 0.5, 0.7
"""Share of the tolerance to aim at: the gap of a proof by a dual exceeds its estimate, that by a ridge matches it."""
AHEAD = 0.02
"""Share of a loose tolerance to aim at: estimates of large gaps hold only to leading order and may be too low."""
TRACE = 0.02
"""Smoothing left in a solution for sets with kinks, as a share of `tol`: the gap it causes is a few times as large."""
SMALLEST_TRACE = 1e-10
"""The smallest smoothing at which Newton steps are not lost in rounding."""
STAGE = 0.1
"""A stage on the path to that trace ends when the next step promises less than this share of the smoothing."""
STAGE_STEPS, NO_SHRINK = 40, 0.9
"""Steps after which a stage is replaced by one nearer to the last, and the largest factor at which this is done."""

MOST_GENERATORS = 500
"""Most generators of sets for which a joint basis with the rows costs less than it saves."""


def train(
    problem: LinearProblem,
    solver: Solver | str | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    near: Solution | None = None,
    random_state: Any = None,
    report: Report = silent,
) -> tuple[Solution, Certificate]:
    """Return a solution and its certificate; the status is SOLVED only if the certified gap is within `tol`.

    `near` is the solution of a similar problem, if one is known; no status depends on it.
    """
    chosen = None if solver is None else pick(problem, solver).seeded(random_state)
    if chosen is not None and not {FiniteSum, ProximalSum}.isdisjoint(chosen.needs):
        # the solver visits the rows as given, and its result is not refined
        begin = np.zeros(problem.n_parameters) if start is None else start
        found = chosen.minimise(problem, begin, tol=tol, max_iter=max_iter, report=report)
        proof = _proof(problem, found)
        _checked(problem, found, proof, None)
        return _judged(found, proof, tol, max_iter), proof
    centred, back = problem.centred()
    smaller, span = _reduced(centred)
    if start is not None:
        start = problem.moved(start, -back)
        if span is not None:
            w, b = centred.split(start)
            start = smaller.join(span.project(w.T).T, b)
    strategy = SmoothedTraining if smaller.has_kinks else _Training
    training = strategy(cast(Any, smaller), pick(smaller, solver), tol, max_iter, report, is_free=solver is None)
    found, proof = training.warm(start, near) if start is not None else training.solved(None)
    if span is not None:
        w, b = smaller.split(found.parameters)
        dual = found.dual and found.dual._replace(direction=span.lift(found.dual.direction.T).T, points=None)
        if dual is not None and not centred.sets.is_isotropic:
            dual = dual._replace(sets=None)  # these sets live in the span
        found = replace(found, parameters=centred.join(span.lift(w.T).T, b), dual=dual)
        proof = _proof(centred, found)
    # SmoothedTraining reports the objective of its best proof, not an objective that a solver saw
    _checked(centred, found, proof, None if smaller.has_kinks else found.objective)
    if centred is not problem:
        # this is the same problem in other coordinates, in which sums do not cancel: the proof remains valid
        found = replace(found, parameters=problem.moved(found.parameters, back))
    return _judged(found, proof, tol, max_iter), proof


def proved_in(
    problem: LinearProblem, found: Solution, rows: Rows, *, tol: float, max_iter: int
) -> tuple[Solution, Certificate]:
    """Return a solution with its certificate for `rows`, the problem's rows with further features.

    The weights of the further features are 0. The lower bound is rounded down.
    """
    more = rows.n_features - problem.rows.n_features

    def longer(v: Array) -> Array:
        return np.pad(v, [*([(0, 0)] * (v.ndim - 1)), (0, more)])

    seen = problem.having(rows=rows)
    w, b = problem.split(found.parameters)
    dual = found.dual and found.dual._replace(direction=longer(found.dual.direction), points=None)
    proof = _proof(seen, replace(found, parameters=seen.join(longer(w), b), dual=dual))
    objective, bound = proof.objective, proof.lower_bound * (1 - ROUNDING)
    proof = proof._replace(lower_bound=bound, gap=(objective - bound) / max(objective, problem.floor))
    return _judged(found, proof, tol, max_iter), proof


def _reduced(problem: LinearProblem) -> tuple[LinearProblem, Span | None]:
    """Return the problem in the span of its rows and its sets' generators, if these are fewer than the features.

    Weights outside the span change no score and only add noise, so they are 0 at the optimum. This requires noise that
    is isotropic apart from its generators.
    """
    rows, n = problem.rows, problem.rows.n_samples
    generators = problem.generators() if rows.n_features > n else None
    if generators is None or len(generators) > MOST_GENERATORS or rows.n_features <= n + len(generators):
        return problem, None
    # scaled to the length of the rows, so that no generator is taken for rounding
    lengths = norm(generators, axis=1)
    units = np.where(lengths > 0, lengths, 1.0) / (np.sqrt(float(rows.column_squares.sum())) or 1.0)
    span = (rows.joined(generators / units[:, None]) if len(generators) else rows).span
    if span is None:
        return problem, None
    bound = problem.sets.with_generators(span.coordinates[n:] * units[:, None])
    return problem.having(rows=rows_of(span.coordinates[:n]), sets=bound), span


def _proof(problem: LinearProblem, found: Solution) -> Certificate:
    w, b = problem.split(found.parameters)
    return certificate(problem, w, b, found.dual)


def _checked(problem: LinearProblem, found: Solution, proof: Certificate, seen: float | None) -> None:
    """Raise if the minimised problem is not the problem of the proof.

    `seen` is the objective that the solver saw, if known. It is recomputed if unknown or different from the proof's
    objective.
    """
    if not np.all(np.isfinite(found.parameters)):
        raise RuntimeError(
            f"solver={found.solver!r}: ended at weights that are not finite; nothing was fitted. Put the features on similar "
            "scales (StandardScaler), or use solver=None. A solver of your own returns the best finite weights it has seen."
        )
    w, b = problem.split(found.parameters)
    if seen is None or not abs(seen - proof.objective) <= SUMS * abs(proof.objective):
        # the solver may have seen a smoothed objective
        seen = problem.value_and_gradient(found.parameters)[0]
        agreed(seen, proof.objective, lambda: rounding_at(problem, w, b))
    for sets in (problem.sets, problem.push):
        if sets is not None:
            attained(sets, w if w.ndim == 1 else w[0] - w[1], problem.rows.n_samples)


def _judged(found: Solution, proof: Certificate, tol: float, max_iter: int) -> Solution:
    """Return the solution with the status that its proof deserves."""
    if proof.gap <= tol:
        status = Status.SOLVED
    elif found.n_iter >= max_iter and found.status is not Status.SLOW:
        status = Status.ITERATION_LIMIT
    elif proof.lower_bound == -np.inf:
        status = Status.NO_BOUND
    elif found.status is Status.SOLVED:
        status = Status.UNCERTIFIED
    else:
        status = found.status
    return replace(found, status=status, objective=proof.objective, lower_bound=proof.lower_bound)


def _has_exact_scores(problem: LinearProblem, parameters: Array) -> bool:
    """Return whether some row's score has almost no noise: there, a perspective loss has a kink."""
    scales = problem.scales(parameters)
    smallest, largest = float(np.min(scales)), float(np.max(scales))
    return problem.loss.is_homogeneous and smallest <= max(1e-9 * largest, 10 * LAST_EASE)


@dataclass
class _Training:
    """The work on one problem, and the number of steps so far."""

    problem: LinearProblem
    solver: Solver
    tol: float
    max_iter: int
    report: Report
    is_free: bool = True
    """Whether another solver may take over before this one ends."""
    n_iter: int = 0
    trace: float = LAST_EASE
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        self.trace = max(min(TRACE * self.tol, LAST_EASE), SMALLEST_TRACE)

    def warm(self, start: Array, near: Solution | None = None) -> tuple[Solution, Certificate]:
        """Return the solution from a given start if few steps suffice; otherwise start afresh with all steps."""
        few = WARM_STEPS if self.can_factorise else self.max_iter
        trial = replace(self, max_iter=min(few, self.max_iter), patience=WARM_PATIENCE)
        found, proof = trial.solved(start)
        if proof.gap <= self.tol or proof.lower_bound == -np.inf:
            return found, proof
        self.report("the given start led nowhere; starting afresh")
        again, better = self.solved(None)
        return (again, better) if better.gap < proof.gap else (found, proof)

    def solved(self, start: Array | None) -> tuple[Solution, Certificate]:
        """Return a solution with its proof, after refinements while the gap is too large and can be reduced."""
        found = self.descend(start)
        proof = _proof(self.problem, found)
        if self.may_be_collapsed(proof.objective) and not (self.is_conic and proof.gap <= self.tol):
            found = self.settle_collapse(found, proof.objective)
            proof = _proof(self.problem, found)
        lowest, theta = proof.objective, found.parameters
        for solver, tol in self.refinements(found.status):
            self.report(f"certified gap {proof.gap:.2e}")
            if proof.gap <= self.tol or proof.lower_bound == -np.inf or self.n_iter >= self.max_iter:
                break
            self.trace = max(0.1 * self.trace, SMALLEST_TRACE)
            again = self.finish(self.problem, theta, tol, solver=solver)
            better = _proof(self.problem, again)
            if better.objective < lowest:
                lowest, theta = better.objective, again.parameters
            if better.gap < proof.gap:
                found, proof = again, better
        return self.tidied(found, proof)

    def tidied(self, found: Solution, proof: Certificate) -> tuple[Solution, Certificate]:
        """Return the solution with zeros and ties that only smoothing had prevented, if the proof allows it."""
        tidy = replace(found, parameters=self.problem.tidied(found.parameters, self.trace))
        if np.array_equal(tidy.parameters, found.parameters):
            return found, proof
        proved = _proof(self.problem, tidy)
        is_proved = proved.gap <= max(self.problem.untidiness * self.tol, proof.gap)
        is_as_good = proved.objective <= proof.objective + self.tol * max(proof.objective, self.problem.floor)
        return (tidy, proved) if is_proved and is_as_good else (found, proof)

    @property
    def is_conic(self) -> bool:
        """Whether the solver takes the whole problem, without starts, paths and refinements."""
        return ConeProgram in self.solver.needs

    def refinements(self, status: Status) -> list[tuple[Solver, float]]:
        """Return solvers and tolerances that may close the remaining gap, the cheapest first."""
        if self.is_conic:
            return []
        is_slow = status is Status.ITERATION_LIMIT
        finer = (
            [(self.solver, 0.02 * self.tol), (self.solver, 1e-4 * self.tol)]
            if self.accuracy > 0 and not is_slow
            else []
        )
        newton = [(Newton(), tol) for tol in (self.accuracy, 0.0)] if self.can_factorise else []
        return [*finer, *newton, (self.solver, 0.0)]

    @property
    def can_factorise(self) -> bool:
        """Whether Newton steps may finish the work of another solver."""
        n, d = self.problem.rows.n_samples, self.problem.rows.n_features
        return self.problem.offers(Curved) and n * d * d <= AFFORDABLE

    def minimise(
        self,
        problem: LinearProblem,
        start: Array,
        tol: float,
        *,
        rough: bool = False,
        solver: Solver | None = None,
        limit: int = sys.maxsize,
    ) -> Solution:
        """Return the result of the solver (by default, the training's own) within the remaining steps, `limit` at most.

        Newton's method takes over if the solver reaches no end within its patience.
        """
        left = min(max(1, self.max_iter - self.n_iter), limit)
        solver, patience = solver or self.solver, left
        if self.is_free and self.can_factorise and not isinstance(solver, Newton):
            steps = self.patience // 6 * problem.metric_age // solver.passes_a_step
            patience = min(left, max(self.patience, steps))
        found = solver.minimise(problem, start, tol=tol, max_iter=patience, rough=rough, report=self.report)
        self.n_iter += found.n_iter
        if found.status is Status.ITERATION_LIMIT and patience < left and not rough:
            return self.minimise(problem, found.parameters, tol, solver=Newton(), limit=limit - patience)
        return replace(found, n_iter=self.n_iter)

    @cached_property
    def is_cheap(self) -> bool:
        """Whether a step with a factorised Hessian is cheap."""
        return bool(self.problem.work()["is_cheap_to_factorise"])

    @property
    def accuracy(self) -> float:
        """The gap to aim at: 0 where going on to rounding is cheap.

        A step near the end gains a digit or more and costs less than a failed proof, so the aim is well below the
        tolerance.
        """
        if self.tol > LOOSE:
            return AHEAD * self.tol
        if self.is_cheap:
            return 0.0
        return (NEARLY if self.problem.loss.has_dual else ALMOST) * self.tol

    def descend(self, start: Array | None) -> Solution:
        """Return a solution: from `start`, from a solution on fewer rows, or along the path of smoothings."""
        if self.is_conic:
            return self.minimise(self.problem, np.zeros(self.problem.n_parameters), self.tol)
        if start is None:
            start = self.start_on_fewer_rows()
        if start is not None and np.any(self.problem.split(start)[0]):
            return self.finish(self.problem, start, self.accuracy)
        if not self.problem.loss.is_homogeneous and self.problem.sets.is_smooth:
            start, easier = np.zeros(self.problem.n_parameters), self.problem.without_noise()
            if easier is not None and not self.is_cheap:
                start = self.minimise(easier, start, ROUGH, rough=True).parameters
            return self.minimise(self.problem, start, self.accuracy)
        return self.follow_path(self.problem, rough=False)

    def start_on_fewer_rows(self) -> Array | None:
        """Return a rough solution for a sample of the rows, None if there are too few rows to sample."""
        sample = self.problem.sample_worth_solving()
        return None if sample is None else self.rough_solution(sample)

    def rough_solution(self, problem: LinearProblem) -> Array:
        """Return a start for a larger problem from ever smaller samples; the smallest is solved from scratch."""
        self.report(f"a rough solution for {problem.rows.n_samples} of {self.problem.rows.n_samples} rows")
        sample = problem.sample_worth_solving()
        start = np.zeros(problem.n_parameters) if sample is None else self.rough_solution(sample)
        if problem.loss.is_homogeneous and not np.any(problem.split(start)[0]):
            return self.follow_path(problem, rough=True).parameters
        return self.finish(problem, start, ROUGH, rough=True, solver=pick(problem)).parameters

    def follow_path(self, problem: LinearProblem, *, rough: bool) -> Solution:
        """Return the end of a path of problems with decreasing noise on the score, each started at the last solution.

        The smoothed problems are smooth at w = 0, so the path can start there, and never stops at the kink.
        """
        solver = pick(problem) if rough else self.solver
        theta = np.zeros(problem.n_parameters)
        delta = NEWTON_EASE if problem.work()["is_cheap_to_factorise"] else FIRST_EASE
        start, collapsible = theta, not np.isfinite(problem.constant_objective())
        scale = np.inf if collapsible else 0.0
        while True:
            self.report(f"smoothing {delta:.2g}")
            smoothed = problem.smoothed(delta)
            stage = self.minimise(smoothed, start, ROUGHEST if delta > STRAIGHT else FINE, rough=True, solver=solver)
            before, theta = theta, stage.parameters
            if self.n_iter >= self.max_iter:
                return stage
            if delta <= LAST_EASE:
                # w has shrunk along with the smoothing: probably a collapse, and a bad point for further steps
                if not collapsible:
                    return stage
                break
            last, scale = scale, problem.smallest_typical_scale(theta)
            if delta <= CLOSE * scale and not collapsible:
                break
            if delta <= CLOSE * scale and scale > 0.5 * last:
                probe = self.minimise(
                    problem, theta, ROUGH if rough else self.accuracy, rough=rough, solver=solver, limit=PROBE
                )
                theta = probe.parameters
                if problem.smallest_typical_scale(theta) > 0.3 * scale:
                    if probe.status is Status.SOLVED:
                        return probe
                    break
            shorter = max(SHRINK * delta, LAST_EASE)
            start = theta
            if delta <= STRAIGHT:
                # in a collapse the weights shrink in proportion to the smoothing
                ahead = theta + (delta - shorter) / (delta / SHRINK - delta) * (theta - before)
                values = [problem.smoothed(shorter).value_and_gradient(point)[0] for point in (theta, ahead)]
                start = ahead if values[1] < values[0] else theta
            delta = shorter
        return self.finish(problem, theta, ROUGH if rough else self.accuracy, rough=rough, solver=solver)

    def finish(
        self,
        problem: LinearProblem,
        start: Array,
        tol: float,
        *,
        rough: bool = False,
        solver: Solver | None = None,
    ) -> Solution:
        """Return the solution near `start`.

        Rows without noise keep the hinge's kink: a trace of smoothing replaces the kink and determines the slopes
        there.
        """
        if not problem.sets.is_smooth:
            return self.ease_off(problem, start, tol, rough=rough, solver=solver)
        if not _has_exact_scores(problem, start):
            found = self.minimise(problem, start, tol, rough=rough, solver=solver)
            if rough or not _has_exact_scores(problem, found.parameters):
                return found
            start = found.parameters
        smoothed = problem.smoothed(LAST_EASE)
        found = self.minimise(smoothed, start, tol, rough=rough, solver=solver)
        return replace(found, dual=smoothed.dual_guess(found.parameters))

    def ease_off(
        self, problem: LinearProblem, start: Array, tol: float, *, rough: bool, solver: Solver | None
    ) -> Solution:
        """Return the solution near `start` for sets with kinks, down to a trace of smoothing.

        At a small smoothing, steps make progress only from nearby, so the smoothing shrinks stage by stage. A stage
        that takes too many steps is repeated with a smoothing nearer to the last one.
        """
        reach = float(np.max(problem.scales(start)))
        theta, delta, shrink = start, min(reach or FIRST_EASE, FIRST_EASE), SHRINK
        last = delta if rough else min(self.trace, delta)
        trial = delta
        while True:
            is_last = trial <= last
            self.report(f"smoothing {trial:.2g}")
            smoothed = problem.smoothed(trial)
            goal = tol if is_last else min(STAGE * trial, ROUGH)
            snapped_to_kinks = problem.snapped_to_kinks(theta, delta, trial / delta)
            values = [smoothed.value_and_gradient(begin)[0] for begin in (theta, snapped_to_kinks)]
            begin = snapped_to_kinks if values[1] < values[0] else theta
            stage = self.minimise(smoothed, begin, goal, rough=rough or not is_last, solver=solver, limit=STAGE_STEPS)
            is_out = self.n_iter >= self.max_iter
            if stage.status is Status.SOLVED or is_out or trial == delta or shrink > NO_SHRINK:
                theta, delta, shrink = stage.parameters, trial, max(SHRINK, shrink**2)
                if is_last or is_out:
                    return replace(stage, dual=smoothed.dual_guess(theta))
            else:
                shrink = float(np.sqrt(shrink))
            trial = max(shrink * delta, last)

    def may_be_collapsed(self, objective: float) -> bool:
        """Return whether a constant prediction is as good as the solution found."""
        return self.problem.loss.is_homogeneous and objective >= self.problem.constant_objective() * (1 - 1e-6)

    def settle_collapse(self, found: Solution, objective: float) -> Solution:
        """Return w = 0 if it is proved optimal, else the better of `found` and the solution downhill from w = 0."""
        self.report("testing whether w = 0 is optimal")
        problem = cast(MarginScaleProblem, self.problem)
        test = examine_collapse(problem, report=self.report)
        flat = problem.join(np.zeros(problem.rows.n_features), test.intercept)
        at_zero = Solution(flat, Status.SOLVED, objective, self.n_iter, self.solver.name, dual=test.dual)
        if _proof(problem, at_zero).gap <= NOTHING_TO_GAIN:
            return at_zero
        again = self.finish(problem, way_out(problem, test), self.accuracy)
        return again if problem.value_and_gradient(again.parameters)[0] <= objective else found
