"""A margin-scale problem at one point: its rows' losses and curvature, and the plane of scale, step and intercept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from holdfast._core import compiled
from holdfast._core.arithmetic import inverse, ratio
from holdfast._core.chunks import STRETCH, stretches
from holdfast._core.loss import Array, Coupling
from holdfast._core.problem import Plane
from holdfast._core.tolerances import ROUNDING, VANISHING

if TYPE_CHECKING:
    from holdfast._problems.linear import LinearProblem
    from holdfast._problems.margin_scale import MarginScaleProblem

HEAVY = 64
"""Number of columns, those with the largest squares, whose mutual products the preconditioner uses."""
HEAVY_ROWS = 30
"""Rows for each heavy column that suffice for these products."""
FRESH = 8
"""Steps after which scores are recomputed, because rounding errors accumulate."""


class Costs:
    """Losses of all rows at deficits u and scales t: their sum and their derivatives."""

    def __init__(self, problem: MarginScaleProblem, u: Array, t: Array):
        self.loss, self.u, self.t = problem.loss, u, t
        # a loss that couples rows has a table for rows with one scale, where NumPy is faster
        is_fast = np.all(t > 0) and (problem.loss.is_rowwise or t.ndim > 0)
        repays = is_fast and compiled.repays(problem.rows.n_entries * problem.rows.n_fits)
        kernel = problem.loss.compiled() if repays else None
        if kernel is not None:
            values, self.slopes, self.scale_slopes = np.empty((3, len(u)))
            kernel(u, np.full(len(u), t) if t.ndim == 0 else t, values, self.slopes, self.scale_slopes)
            self.total = float(problem.weights @ values)
            return
        # second derivatives share most of their work with values and are nearly always needed next
        self.total, found = _derivatives(problem, u, t)
        self.slopes, self.scale_slopes = found[:2]
        self.curvature = found[2], found[3], found[4]
        if problem.loss.is_rowwise:
            self.u = np.empty(0)  # not needed any more

    @cached_property
    def curvature(self) -> tuple[Array, Array, Array]:
        """The second derivatives in uu, ut and tt."""
        return self.loss.curvature(self.u, self.t)

    @cached_property
    def couplings(self) -> Sequence[Coupling]:
        return self.loss.couplings(self.u, self.t)


def _derivatives(problem: MarginScaleProblem, u: Array, t: Array) -> tuple[float, list[Array]]:
    """Return the weighted sum of the losses, and their derivatives up to order 2; equal ones share an array."""
    loss, c, n = problem.loss, problem.weights, len(u)
    if not loss.is_rowwise or n <= 2 * STRETCH:
        values, *found = loss.derivatives(u, t)
        return float(c @ values), found
    total, whole = 0.0, list[Array]()
    order: list[int] = []
    for part in stretches(n):
        values, *found = loss.derivatives(u[part], t[part] if t.ndim else t)
        total += float(c[part] @ values)
        if not order:
            different = list({id(one): one for one in found}.values())
            order = [next(k for k, one in enumerate(different) if one is other) for other in found]
            whole = [np.empty(n) for _ in different]
        for k, one in zip(order, found, strict=True):
            whole[k][part] = one
    return total, [whole[k] for k in order]


class MarginPlane(Plane):
    r"""The problem for weights :math:`B x` and any intercept: an evaluation costs O(n_samples) and does not read X.

    Parameters are the coordinates x in the basis (a few directions), then the intercept if there is one.
    """

    metric_age = 1

    def __init__(self, origin: LocalMarginModel, step: Array, moves: Array | None = None):
        problem, w = origin.problem, origin.w
        move, shift = problem.split(step)
        directions = [(w, origin.scores)] if np.any(w) else []
        directions.append((move, problem.rows.dot(move) if moves is None else moves))
        basis, scores = np.column_stack([d for d, _ in directions]), [s for _, s in directions]
        self.start = np.zeros(len(directions) + int(problem.fit_intercept))
        self.start[0] = float(np.any(w))
        self.start[len(directions) :] = origin.b
        self.ahead = self.start.copy()
        self.ahead[len(directions) - 1] = 1.0
        self.ahead[len(directions) :] += shift
        self.origin, self.problem, self.basis, self.scores = origin, problem, basis, scores
        self.known = (self.start, origin.costs)
        generators = problem.sets.generators(len(basis))
        # where sets have generators, their coordinates in the plane determine the supports
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
        return len(self.start)

    @property
    def enough(self) -> float:
        return self.problem.enough

    def _pulled_back(self, w_part: Array, rest: Array) -> Array:
        return np.concatenate([self.basis.T @ w_part, rest])

    def _coordinates(self, parameters: Array) -> Array:
        return parameters[: len(self.scores)]

    def _moved(self, x: Array) -> Array:
        """Return the scores at x without the intercept."""
        moved = x[0] * self.scores[0]
        for factor, own in zip(x[1:], self.scores[1:], strict=True):
            moved += factor * own
        return moved

    def costs(self, parameters: Array) -> Costs:
        """Return the rows' losses at the parameters; the last result is remembered."""
        if not np.array_equal(self.known[0], parameters):
            self.known = self.known[0] + np.nan, self.origin.costs  # frees memory first
            x = self._coordinates(parameters)
            u = self._moved(x)
            u += np.sum(parameters[len(x) :])
            u *= self.problem.signs
            np.subtract(self.problem.target, u, out=u)
            self.known = (parameters, Costs(self.problem, u, self.sets.support(self.lift @ x)))
        return self.known[1]

    def _u_slopes(self, part: slice) -> Array:
        """Return the slopes of some rows' deficits in the parameters."""
        slopes = np.empty((self.n_parameters, len(self.problem.signs[part])))
        for line, own in zip(slopes, self.scores, strict=False):
            line[:] = own[part]
        slopes[len(self.scores) :] = 1.0
        slopes *= -self.problem.signs[part]
        return slopes

    @np.errstate(over="ignore", invalid="ignore")  # a step too long is told from its infinite value
    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        x, c, costs = self._coordinates(parameters), self.problem.weights, self.costs(parameters)
        value = costs.total + 0.5 * float(x @ self.ridge @ x) + float(self.tilt @ parameters)
        gradient, t_slopes = self.tilt.copy(), self._t_slopes(x)
        gradient[: len(x)] += self.ridge @ x
        for part in stretches(len(c)):
            gradient += self._u_slopes(part) @ (c[part] * costs.slopes[part])
            weighted = c[part] * costs.scale_slopes[part]
            gradient[: len(x)] += [float(np.sum(_of(slope, part) * weighted)) for slope in t_slopes]
        if self.penalty is not None:
            w = self.basis @ x
            value += self.penalty.value(w)
            gradient[: len(x)] += self.basis.T @ self.penalty.slopes(w)
        return value, gradient

    def _t_slopes(self, x: Array) -> list[Array]:
        """Return the slopes of the rows' scales in each coordinate, shape (n_samples,), or () if rows share a scale."""
        return [self.sets.directional(self.lift @ x, v) for v in self.lift.T]

    def hessian(self, parameters: Array) -> Array:
        x, c, costs = self._coordinates(parameters), self.problem.weights, self.costs(parameters)
        k, t_slopes = len(x), self._t_slopes(x)
        H = np.zeros((len(parameters), len(parameters)))
        for part in stretches(len(c)):
            u_slopes, (uu, ut, tt) = self._u_slopes(part), (c[part] * bend[part] for bend in costs.curvature)
            along = np.stack([np.broadcast_to(_of(slope, part), uu.shape) for slope in t_slopes])
            H += (u_slopes * uu) @ u_slopes.T
            mixed = u_slopes @ (along * ut).T
            H[:, :k] += mixed
            H[:k] += mixed.T
            H[:k, :k] += (along * tt) @ along.T
        scale_slopes = self.origin.scale_weights(costs)
        bends = [self.sets.curvature_product(self.lift @ x, scale_slopes, v) for v in self.lift.T]
        H[:k, :k] += np.stack(bends) @ self.lift + self.ridge
        if self.penalty is not None:
            H[:k, :k] += self.basis.T @ (self.penalty.bends(self.basis @ x)[:, None] * self.basis)
        for by_u, by_t, total in costs.couplings:
            v = self._u_slopes(slice(None)) @ by_u
            v[:k] += [float(np.sum(slope * by_t)) for slope in t_slopes]
            H -= np.outer(v, v) / total
        return H

    def typical_curvature(self) -> Array:
        # all curvature counts here, even if the objective is almost 0
        return np.zeros(self.n_parameters)

    def longest_step(self, parameters: Array, step: Array) -> float:
        return self.problem.longest_stretch(*(self.basis @ self._coordinates(v) for v in (parameters, step)))

    def model(self, parameters: Array) -> LocalMarginModel:
        x, intercept = np.split(parameters, [len(self.scores)])
        there, age = np.append(self.basis @ x, intercept), self.origin.age + 1
        if age >= FRESH:
            return LocalMarginModel(self.problem, there)
        return LocalMarginModel(self.problem, there, (self._moved(x), self.costs(parameters)), age)


def _of(numbers: Array, part: slice) -> Array:
    """Return the numbers of some rows, or the number that all rows share."""
    return numbers[part] if np.ndim(numbers) else numbers


class LocalMarginModel:
    """A margin-scale problem at a point; scores are kept, so a Newton step reads X only for products and slopes."""

    def __init__(
        self, problem: MarginScaleProblem, parameters: Array, known: tuple[Array, Costs] | None = None, age: int = 0
    ):
        self.problem, self.parameters, self.age = problem, parameters, age
        self.w, self.b = problem.split(parameters)
        if known is None:
            scores = problem.rows.dot(self.w) if np.any(self.w) else np.zeros(problem.rows.n_samples)
            u = scores + self.b
            u *= problem.signs
            np.subtract(problem.target, u, out=u)
            known = scores, Costs(problem, u, problem.sets.support(self.w))
        self.scores, self.costs = known
        self.value = self.costs.total + 0.5 * problem.alpha * float(self.w @ self.w)
        if problem.tilt is not None:
            self.value += float(problem.tilt @ parameters)
        if problem.penalty is not None:
            self.value += problem.penalty.value(self.w)

    def scale_weights(self, costs: Costs) -> Array:
        """Return the weighted slopes in t, or their sum, shape (1,), if all rows share one set."""
        c = self.problem.weights
        return np.atleast_1d(c @ costs.scale_slopes) if self.problem.sets.is_common else c * costs.scale_slopes

    @cached_property
    def outward(self) -> Array:
        """The part of the gradient that comes from the scales."""
        return self.problem.sets.adjoint(self.w, self.scale_weights(self.costs))

    @cached_property
    def stiffness(self) -> float:
        """The curvature that noise and ridge guarantee."""
        return self.problem.stiffness(self.w, self.outward)

    @cached_property
    def gradient(self) -> Array:
        """The gradient; X is read on first use."""
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
        return c * uu, -(c * y) * ut, c * tt, self.scale_weights(self.costs)

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
        """The part of ridge and penalty in the diagonal of the Hessian."""
        problem = self.problem
        return problem.alpha if problem.penalty is None else problem.alpha + problem.penalty.bends(self.w)

    def hessian(self, *, whole: bool = False) -> Array:
        """Return the Hessian, O(n_samples * n_features**2), without rows of almost straight losses unless `whole`."""
        curvature, couplings = self.costs.curvature, self.costs.couplings
        # for losses at worst points the three arrays are the same
        weighted = {id(bend): self.problem.weights * bend for bend in curvature}
        uu, ut, tt = (weighted[id(bend)] for bend in curvature)
        if self.problem.loss.is_worst_case and not whole:
            straight = uu <= self.problem.loss.straight * np.max(uu, initial=0.0)
            for bends in weighted.values():
                bends[straight] = 0.0
            couplings = [
                Coupling(np.where(straight, 0.0, u), np.where(straight, 0.0, t), total) for u, t, total in couplings
            ]
        scale_slopes = self.scale_weights(self.costs)
        return self.problem.hessian_of(self.w, scale_slopes, uu, ut, tt) - self.problem.coupled(self.w, couplings)

    def preconditioner(self) -> Callable[[Array], Array]:
        if self.problem.is_wide:
            return self._wide_preconditioner()
        problem, bends = self.problem, self._bends[0]
        # a trace of the typical curvature, for losses without any curvature here
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
        """Return the inverse of a diagonal plus one vector per row, nearly the Hessian, by Woodbury's formula."""
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
        """Return Hutchinson's estimate, from one vector of signs, of the diagonal of sum_i c_i l_t (Hessian of t_i)."""
        signs = np.where(np.random.default_rng(0).uniform(size=len(self.w)) < 0.5, -1.0, 1.0)
        return np.maximum(signs * self.problem.sets.curvature_product(self.w, self._bends[3], signs), 0.0)

    def plane(self, step: Array, moves: Array | None = None) -> MarginPlane:
        return MarginPlane(self, step, moves)


def heavy_block(problem: LinearProblem) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the heaviest columns, some rows of all classes, and their entries with the intercept's column."""
    squares = problem.rows.column_squares
    n_heavy = HEAVY if len(squares) > 2 * HEAVY else len(squares)
    columns = np.sort(np.argsort(squares, kind="stable")[-n_heavy:])
    n = problem.rows.n_samples
    # at a regular stride through the sorted classes, so that no order of the rows can hide a class
    rows = np.argsort(problem.codes, kind="stable")[:: max(1, n // (HEAVY_ROWS * len(columns)))]
    Z = problem.rows.entries(rows, columns)
    return columns, rows, np.column_stack([Z, np.ones(len(rows))]) if problem.fit_intercept else Z
