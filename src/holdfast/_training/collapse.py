"""Test whether w = 0 is optimal: with an intercept and unequal classes it is, exactly, from some finite noise on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._core.solver import Report, Solver, silent
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import certificate
from holdfast.solvers import Newton, NewtonCG


@dataclass
class CollapseTest:
    """The outcome of the test: dual weights that prove a collapse, or else a direction downhill from w = 0."""

    intercept: float
    dual: DualGuess
    direction: Array


def majority(problem: MarginScaleProblem) -> int:
    """Return the sign of the heavier class, 0 if the classes weigh the same."""
    negative, positive = problem.class_weights()
    return 0 if abs(positive - negative) <= 1e-12 * (positive + negative) else int(np.sign(positive - negative))


def examine_collapse(
    problem: MarginScaleProblem, *, start: Array | None = None, report: Report = silent
) -> CollapseTest:
    r"""Minimise the slope of the objective at (0, b0), b0 the heavier class, over all directions (v, c).

    .. math:: R(v, c) = \sum_{\min} c_i (-y_i)(v^\top x_i + c) + \sum_{\text{maj}} c_i\, T_i f(-y_i(v^\top x_i + c)/T_i),
              \quad T_i = \sqrt{1 + t_i(v)^2}

    a smooth convex function that lies above the slope. If it falls below 0, (v, c) leads downhill. If it has a minimum,
    its slopes there are dual feasible with dual objective P(0, b0), which proves that w = 0 is optimal; callers check
    this with the certificate. (The 1 under the root replaces the constraint |w| <= 1 of the usual form.)
    """
    heavier = majority(problem) if problem.fit_intercept else 0
    if heavier == 0:
        pull = problem.rows.transpose_dot(problem.weights * problem.signs)
        guess = DualGuess(np.ones(problem.rows.n_samples), pull, problem.sets.support(pull))
        return CollapseTest(0.0, guess, problem.join(pull, 0.0))
    y, c = problem.signs, problem.weights
    lighter = np.where(y == heavier, 0.0, c)
    tilt = problem.join(-problem.rows.transpose_dot(lighter * y), -float(np.sum(lighter * y)))
    slope = replace(problem, weights=c - lighter, sets=problem.sets.smoothed(1.0), alpha=0.0, target=0.0, tilt=tilt)
    # solved to rounding: any error of the slopes at the minimum weakens the proof
    solver: Solver = Newton() if slope.work()["is_cheap_to_factorise"] else NewtonCG()
    begin = np.zeros(slope.n_parameters) if start is None else start
    found = solver.minimise(slope, begin, tol=0.0, max_iter=300, report=report)
    guess = slope.dual_guess(found.parameters)
    dual = guess._replace(slopes=np.where(y == heavier, guess.slopes, 1.0))
    return CollapseTest(float(heavier), dual, found.parameters)


def way_out(problem: MarginScaleProblem, test: CollapseTest) -> Array:
    """Return the best parameters found on the ray from (0, b0) along the direction of the test."""
    origin = problem.join(np.zeros(problem.rows.n_features), test.intercept)
    reach = float(np.mean(problem.sets.support(problem.split(test.direction)[0])))
    unit = test.direction / reach if reach > 0 else test.direction

    def along(log_length: float) -> float:
        return problem.value_and_gradient(origin + np.exp(log_length) * unit)[0]

    grid = np.linspace(-18, 6, 49)
    best = int(np.argmin([along(x) for x in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(along, bounds=around, method="bounded")
    return np.asarray(origin + np.exp(found.x) * unit)


def critical_factor(problem: MarginScaleProblem) -> float:
    r"""Return the smallest factor k of the noise at which w = 0 is optimal; see :func:`holdfast.critical_noise`.

    A test at a k with a collapse gives dual weights a, which prove a collapse down to
    :math:`k \cdot \mathrm{gauge}(V(a)) / \sum c f^*(a)`. The next test is made there, so the proved factors decrease.
    """
    if not problem.loss.is_homogeneous:
        return np.inf
    lighter, heavier = sorted(problem.class_weights())
    if majority(problem) == 0:
        pull = problem.rows.transpose_dot(problem.weights * problem.signs)
        spread = np.sqrt(float(np.sum(problem.rows.square_sums(problem.weights**2))))
        return 0.0 if np.linalg.norm(pull) <= 1e-12 * spread else np.inf
    if np.any(problem.sets.exact_features(problem.rows.n_features)):
        return _bisected_factor(problem)
    # constant dual weights on the heavier class prove a collapse for all larger factors
    dual = np.where(problem.signs == majority(problem), lighter / heavier, 1.0)
    factor = _provable(problem, dual)
    start, direction = factor, None
    for _ in range(100):
        # each test begins at the minimum of the previous test
        test = examine_collapse(replace(problem, sets=problem.sets.scaled(factor)), start=direction)
        direction = test.direction
        lower = _provable(problem, test.dual.slopes)
        if not lower < factor * (1 - 1e-9):
            return factor
        factor = lower
        if factor <= 1e-9 * start:
            return 0.0
    return factor


def _provable(problem: MarginScaleProblem, dual: Array) -> float:
    """Return the smallest factor of the noise at which these dual weights, once balanced, prove a collapse."""
    heavy = problem.signs == majority(problem)
    wanted, total = min(problem.class_weights()), float(np.sum((problem.weights * dual)[heavy]))
    dual = np.where(heavy, dual * (wanted / total if total > 0 else np.inf), 1.0)
    if not np.all(dual <= 1 + 1e-9):
        return np.inf
    dual = np.minimum(dual, 1.0)
    budgets = problem.weights * problem.loss.dual_scale(dual)
    V = problem.rows.transpose_dot(problem.weights * dual * problem.signs)
    total = float(np.sum(budgets))
    return float(problem.sets.required_share(V, budgets, np.ones(()))) / total if total > 0 else np.inf


def _bisected_factor(problem: MarginScaleProblem) -> float:
    """Return the critical factor by bisection, for noise that leaves some features exact; certificates decide."""

    def collapses(log_factor: float) -> bool:
        scaled = replace(problem, sets=problem.sets.scaled(np.exp(log_factor)), alpha=0.0)
        test = examine_collapse(scaled)
        return certificate(scaled, np.zeros(problem.rows.n_features), test.intercept, test.dual).gap <= 1e-9

    # noise relative to the size of the features, from negligible to overwhelming
    typical = float(np.max(problem.sets.support(np.eye(problem.rows.n_features)[0]))) or 1.0
    centre = 0.5 * np.log(float(np.mean(problem.rows.column_squares)) or 1.0) - np.log(typical)
    low, high = centre - 20.0, centre + 20.0
    if not collapses(high):
        return np.inf
    if collapses(low):
        return 0.0
    while high - low > 1e-7:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if collapses(middle) else (middle, high)
    return float(np.exp(high))
