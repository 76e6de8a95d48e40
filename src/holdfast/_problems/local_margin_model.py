"""A margin-scale problem seen from one point: its costs row by row, its bends, and the plane of scale, step and intercept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from holdfast._core import compiled
from holdfast._core.arithmetic import inverse, ratio
from holdfast._core.loss import Array, Coupling
from holdfast._core.problem import Plane
from holdfast._core.tolerances import ROUNDING, VANISHING

if TYPE_CHECKING:
    from holdfast._problems.linear import LinearProblem
    from holdfast._problems.margin_scale import MarginScaleProblem

HEAVY = 64
"""Columns, those with the largest squares, whose products with each other the preconditioner knows."""
HEAVY_ROWS = 30
"""Rows a heavy column that are enough for these products."""
FRESH = 8
"""Steps after which scores are computed anew: until then rounding adds up."""


class Costs:
    """Losses of all rows at deficits u and scales t, with their derivatives."""

    def __init__(self, problem: MarginScaleProblem, u: Array, t: Array):
        self.loss, self.u, self.t = problem.loss, u, t
        # a loss that is no function of the row alone has a table for rows with one scale: NumPy is faster there
        is_fast = np.all(t > 0) and (problem.loss.is_rowwise or t.ndim > 0)
        repays = is_fast and compiled.repays(problem.rows.n_entries * problem.rows.n_fits)
        kernel = problem.loss.compiled() if repays else None
        if kernel is None:
            # bends share most of their work with values, and nearly always they are asked for next
            self.values, self.slopes, self.scale_slopes, *bends = problem.loss.derivatives(u, t)
            self.curvature = bends[0], bends[1], bends[2]
        else:
            self.values, self.slopes, self.scale_slopes = np.empty((3, len(u)))
            kernel(u, np.full(len(u), t) if t.ndim == 0 else t, self.values, self.slopes, self.scale_slopes)

    @cached_property
    def curvature(self) -> tuple[Array, Array, Array]:
        """The second derivatives in uu, ut and tt."""
        return self.loss.curvature(self.u, self.t)

    @cached_property
    def couplings(self) -> Sequence[Coupling]:
        return self.loss.couplings(self.u, self.t)


class MarginPlane(Plane):
    r"""The problem for weights :math:`B x` and any intercept: O(n_samples) an evaluation, X is not read.

    Parameters are the coordinates x in the basis, a few directions, then the intercept where the problem has one.
    """

    metric_age = 1

    def __init__(self, origin: LocalMarginModel, step: Array, moves: Array | None = None):
        problem, w = origin.problem, origin.w
        move, shift = problem.split(step)
        directions = [(w, origin.scores)] if np.any(w) else []
        directions.append((move, problem.rows.dot(move) if moves is None else moves))
        basis, scores = np.column_stack([d for d, _ in directions]), np.stack([s for _, s in directions])
        self.start = np.zeros(len(directions) + int(problem.fit_intercept))
        self.start[0] = float(np.any(w))
        self.start[len(directions) :] = origin.b
        self.ahead = self.start.copy()
        self.ahead[len(directions) - 1] = 1.0
        self.ahead[len(directions) :] += shift
        self.origin, self.problem, self.basis, self.scores = origin, problem, basis, scores
        self.u_slopes = -problem.signs * np.vstack([scores, np.ones((int(problem.fit_intercept), scores.shape[1]))])
        self.known = (self.start, origin.costs)
        generators = problem.sets.generators(len(basis))
        # of sets with generators the plane knows all from their coordinates in it
        if generators is None or len(generators) == 0:
            self.sets, self.lift = problem.sets, basis
        else:
            self.sets, self.lift = problem.sets.with_generators(generators @ basis), np.eye(basis.shape[1])
        tilt = np.zeros(problem.n_parameters) if problem.tilt is None else problem.tilt
        self.tilt = self._pulled_back(tilt[: len(basis)], tilt[len(basis) :])
        self.ridge = problem.alpha * basis.T @ basis
        self.penalty = problem.penalty

    @property
    def n_parameters(self) -> int:
        return len(self.u_slopes)

    @property
    def enough(self) -> float:
        return self.problem.enough

    def _pulled_back(self, w_part: Array, rest: Array) -> Array:
        return np.concatenate([self.basis.T @ w_part, rest])

    def _coordinates(self, parameters: Array) -> Array:
        return parameters[: len(self.scores)]

    def costs(self, parameters: Array) -> Costs:
        """Return the rows' costs there, those found last being remembered."""
        if not np.array_equal(self.known[0], parameters):
            t = self.sets.support(self.lift @ self._coordinates(parameters))
            self.known = (parameters, Costs(self.problem, self.problem.target + parameters @ self.u_slopes, t))
        return self.known[1]

    @np.errstate(over="ignore", invalid="ignore")  # a step too long is told from its infinite value
    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        x, c, costs = self._coordinates(parameters), self.problem.weights, self.costs(parameters)
        value = float(c @ costs.values) + 0.5 * float(x @ self.ridge @ x) + float(self.tilt @ parameters)
        gradient = self.u_slopes @ (c * costs.slopes) + self.tilt
        gradient[: len(x)] += self._t_slopes(x) @ np.broadcast_to(c * costs.scale_slopes, len(c)) + self.ridge @ x
        if self.penalty is not None:
            w = self.basis @ x
            value += self.penalty.value(w)
            gradient[: len(x)] += self.basis.T @ self.penalty.slopes(w)
        return value, gradient

    def _t_slopes(self, x: Array) -> Array:
        """Return the slopes of every row's scale in the coordinates, shape (n_coordinates, n_samples)."""
        slopes = [self.sets.directional(self.lift @ x, v) for v in self.lift.T]
        return np.stack([np.broadcast_to(slope, self.scores.shape[1]) for slope in slopes])

    def hessian(self, parameters: Array) -> Array:
        x, c, costs = self._coordinates(parameters), self.problem.weights, self.costs(parameters)
        uu, ut, tt = (c * part for part in costs.curvature)
        H = (self.u_slopes * uu) @ self.u_slopes.T
        k, t_slopes = len(x), self._t_slopes(x)
        mixed = self.u_slopes @ (t_slopes * ut).T
        H[:, :k] += mixed
        H[:k] += mixed.T
        bends = [self.sets.curvature_product(self.lift @ x, c * costs.scale_slopes, v) for v in self.lift.T]
        H[:k, :k] += (t_slopes * tt) @ t_slopes.T + np.stack(bends) @ self.lift + self.ridge
        if self.penalty is not None:
            H[:k, :k] += self.basis.T @ (self.penalty.bends(self.basis @ x)[:, None] * self.basis)
        for by_u, by_t, total in costs.couplings:
            v = self.u_slopes @ by_u
            v[:k] += t_slopes @ by_t
            H -= np.outer(v, v) / total
        return H

    def typical_curvature(self) -> Array:
        # every bend counts here, be the objective all but 0
        return np.zeros(self.n_parameters)

    def longest_step(self, parameters: Array, step: Array) -> float:
        return self.problem.longest_stretch(*(self.basis @ self._coordinates(v) for v in (parameters, step)))

    def model(self, parameters: Array) -> LocalMarginModel:
        x, intercept = np.split(parameters, [len(self.scores)])
        there, age = np.append(self.basis @ x, intercept), self.origin.age + 1
        if age >= FRESH:
            return LocalMarginModel(self.problem, there)
        return LocalMarginModel(self.problem, there, (x @ self.scores, self.costs(parameters)), age)


class LocalMarginModel:
    """A margin-scale problem at a point; scores are kept, so that a Newton step reads X for products and slopes only."""

    def __init__(
        self, problem: MarginScaleProblem, parameters: Array, known: tuple[Array, Costs] | None = None, age: int = 0
    ):
        self.problem, self.parameters, self.age = problem, parameters, age
        self.w, self.b = problem.split(parameters)
        if known is None:
            scores = problem.rows.dot(self.w) if np.any(self.w) else np.zeros(problem.rows.n_samples)
            u = problem.target - problem.signs * (scores + self.b)
            known = scores, Costs(problem, u, problem.sets.support(self.w))
        self.scores, self.costs = known
        self.value = float(problem.weights @ self.costs.values) + 0.5 * problem.alpha * float(self.w @ self.w)
        if problem.tilt is not None:
            self.value += float(problem.tilt @ parameters)
        if problem.penalty is not None:
            self.value += problem.penalty.value(self.w)

    @cached_property
    def outward(self) -> Array:
        """The gradient of the scales' part."""
        return self.problem.sets.adjoint(self.w, self.problem.weights * self.costs.scale_slopes)

    @cached_property
    def stiffness(self) -> float:
        """The curvature that noise and ridge guarantee."""
        return self.problem.stiffness(self.w, self.outward)

    @cached_property
    def gradient(self) -> Array:
        """The gradient, for which X is read when it is asked for."""
        problem = self.problem
        r = problem.weights * problem.signs * self.costs.slopes
        w_part = self.outward - problem.rows.transpose_dot(r) + problem.alpha * self.w
        if problem.penalty is not None:
            w_part += problem.penalty.slopes(self.w)
        gradient = problem.join(w_part, -float(r.sum()))
        return gradient if problem.tilt is None else gradient + problem.tilt

    def gap(self, gradient: Array) -> float:
        return self.problem.relative_gap(self.parameters, self.value, gradient, self.stiffness)

    @cached_property
    def _bends(self) -> tuple[Array, Array, Array, Array]:
        """Weighted second derivatives in uu, in the score and t, in tt, and slopes in t."""
        c, y = self.problem.weights, self.problem.signs
        uu, ut, tt = self.costs.curvature
        return c * uu, -(c * y) * ut, c * tt, c * self.costs.scale_slopes

    def product(self, v: Array, *, exact: bool = True) -> tuple[Array, Array]:
        rows = self.problem.rows if exact else self.problem.rows.quick
        bound, (uu, mixed, tt, scale_slopes) = self.problem.sets, self._bends
        move, shift = self.problem.split(v)
        widening = bound.directional(self.w, move)
        extra = mixed * widening
        scores, along = rows.normal_pass(uu, move, shift, extra)
        outward = bound.adjoint(self.w, mixed * scores + tt * widening)
        bend = bound.curvature_product(self.w, scale_slopes, move)
        total = float(uu @ scores + extra.sum())
        bend += self._ridge * move
        out = self.problem.join(along + outward + bend, total)
        for together, weight in self._coupled:
            out -= together * (float(together @ v) / weight)
        return out, scores - shift

    @cached_property
    def _coupled(self) -> list[tuple[Array, float]]:
        return self.problem.couplings_at(self.w, self.costs.couplings)

    @cached_property
    def _ridge(self) -> Any:
        """What ridge and penalty add to the diagonal of the Hessian."""
        problem = self.problem
        return problem.alpha if problem.penalty is None else problem.alpha + problem.penalty.bends(self.w)

    def hessian(self, *, whole: bool = False) -> Array:
        """Return the Hessian; O(n_samples * n_features**2), but for rows whose loss hardly bends, left out unless `whole`."""
        c = self.problem.weights
        uu, ut, tt = (c * bend for bend in self.costs.curvature)
        couplings = self.costs.couplings
        if self.problem.loss.is_worst_case and not whole:
            straight = uu <= self.problem.loss.straight * np.max(uu, initial=0.0)
            uu, ut, tt = (np.where(straight, 0.0, bend) for bend in (uu, ut, tt))
            couplings = [
                Coupling(np.where(straight, 0.0, u), np.where(straight, 0.0, t), total) for u, t, total in couplings
            ]
        return self.problem.hessian_of(self.w, self._bends[3], uu, ut, tt) - self.problem.coupled(self.w, couplings)

    def preconditioner(self) -> Callable[[Array], Array]:
        if self.problem.is_wide:
            return self._wide_preconditioner()
        problem, bends = self.problem, self._bends[0]
        # a trace of the usual curvature, for losses that do not bend at all here
        steady = problem.join(self._noise_diagonal() + self._ridge, 0.0) + VANISHING * problem.typical_curvature()
        diagonal = steady + problem.join(problem.rows.column_squares * float(bends.sum()), 0.0)
        columns, rows, Z = problem.heavy_block
        D = bends[rows]
        D = D * (bends.sum() / max(D.sum(), np.finfo(float).tiny))
        block = (Z * D[:, None]).T @ Z
        heavy = np.append(columns, problem.rows.n_features) if problem.fit_intercept else columns
        block[np.diag_indices(len(heavy))] += steady[heavy]
        solve, rest = inverse(block), inverse(diagonal)

        def precondition(v: Array) -> Array:
            out = rest(v)
            out[heavy] = solve(v[heavy])
            return cast(Array, out)

        return precondition

    def _wide_preconditioner(self) -> Callable[[Array], Array]:
        """Return the inverse of a diagonal and one vector a row, by Woodbury's formula: all but the Hessian itself."""
        problem, (uu, mixed, _, _) = self.problem, self._bends
        root = np.sqrt(np.maximum(uu, 0.0))
        X = np.concatenate([block for _, block in problem.rows.dense_blocks()])
        V = root[:, None] * X + ratio(mixed, root)[:, None] * problem.sets.maximizer(self.w)
        if problem.fit_intercept:
            V = np.column_stack([V, root])
        steady = problem.join(self._noise_diagonal() + self._ridge, float(uu.sum()))
        diagonal = steady + VANISHING * problem.typical_curvature() + ROUNDING * np.einsum("ij,ij->j", V, V)
        scaled = V / diagonal
        solve = inverse(np.eye(len(V)) + scaled @ V.T)
        return lambda v: v / diagonal - scaled.T @ solve(scaled @ v)

    def _noise_diagonal(self) -> Array:
        """Return an estimate of the diagonal of sum_i c_i l_t (Hessian of t_i): Hutchinson's, from one vector of signs."""
        signs = np.where(np.random.default_rng(0).uniform(size=len(self.w)) < 0.5, -1.0, 1.0)
        return np.maximum(signs * self.problem.sets.curvature_product(self.w, self._bends[3], signs), 0.0)

    def plane(self, step: Array, moves: Array | None = None) -> MarginPlane:
        return MarginPlane(self, step, moves)


def heavy_block(problem: LinearProblem) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the heaviest columns, some rows of all classes, and these columns of these rows with the intercept's."""
    squares = problem.rows.column_squares
    n_heavy = HEAVY if len(squares) > 2 * HEAVY else len(squares)
    columns = np.sort(np.argsort(squares, kind="stable")[-n_heavy:])
    n = problem.rows.n_samples
    # by a stride through the classes one after the other, so that no order of the rows can hide one
    rows = np.argsort(problem.codes, kind="stable")[:: max(1, n // (HEAVY_ROWS * len(columns)))]
    Z = problem.rows.entries(rows, columns)
    return columns, rows, np.column_stack([Z, np.ones(len(rows))]) if problem.fit_intercept else Z
