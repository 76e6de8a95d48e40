"""The problem of several classes at one point, for solvers that use products with its Hessian."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.arithmetic import inverse
from holdfast._core.loss import Array
from holdfast._core.problem import Plane
from holdfast._core.tolerances import VANISHING
from holdfast._problems.local_margin_model import FRESH

if TYPE_CHECKING:
    from holdfast._problems.pairwise import PairwiseProblem


class PairCosts:
    """Losses of all rows against all other classes, and their weighted derivatives, each (n_samples, n_classes)."""

    def __init__(self, problem: PairwiseProblem, W: Array, b: Array, scores: Array):
        self.problem = problem
        scores = scores + b
        u = 1.0 - scores[np.arange(len(scores)), problem.labels][:, None] + scores
        t = problem.by_row(problem.scale_table(W))
        value, self.slopes, self.bends = problem.derivatives(u, t)
        self.scale_slopes, self.uu, self.ut, self.tt, self.shared = self.bends
        self.value = value + problem.ridge(W)

    def bent(self, rows: slice, du: Array, dt: Array) -> tuple[Array, Array]:
        """Return how the slopes of some rows in u and in t change along (du, dt), each of shape (..., n_rows, n_classes)."""
        by_u = self.uu[rows] * du + self.ut[rows] * dt
        by_t = self.ut[rows] * du + self.tt[rows] * dt
        if self.shared is not None:
            p, q = (part[rows] for part in self.shared)
            along = np.sum(p * du + q * dt, axis=-1, keepdims=True)
            by_u, by_t = by_u - along * p, by_t - along * q
        return by_u, by_t

    def pulls(self, r: Array) -> Array:
        """Return slopes r in the deficits as slopes in the scores: r for a rival, less their sum for the own class."""
        out = r.copy()
        out[np.arange(len(r)), self.problem.labels] = -r.sum(axis=1)
        return out


class LocalPairwiseModel:
    """A problem of several classes at a point; scores are kept, so a step reads X only for products and slopes."""

    def __init__(self, problem: PairwiseProblem, parameters: Array, scores: Array | None = None, age: int = 0):
        self.problem, self.parameters, self.age = problem, parameters, age
        self.W, self.b = problem.split(parameters)
        self.scores = problem.rows.dot(np.ascontiguousarray(self.W.T)) if scores is None else scores
        self.costs = PairCosts(problem, self.W, self.b, self.scores)
        self.value = self.costs.value
        r = self.costs.pulls(self.costs.slopes)
        outward, self.stiffness = problem.outward(self.W, self.costs.scale_slopes)
        ridge = 2 * problem.alpha * (self.W - self.W.mean(axis=0))
        self.gradient = problem.join(outward + problem.rows.transpose_dot(r).T + ridge, r.sum(axis=0))

    def gap(self, gradient: Array) -> float:
        return self.problem.flow_gap(self.value, gradient, self.stiffness)

    def product(self, v: Array, *, exact: bool = True) -> tuple[Array, Array]:
        problem, costs = self.problem, self.costs
        V, shift = problem.split(v)
        widening = problem.directional_table(self.W, V)
        scale_part, total = np.empty_like(self.scores), np.zeros(problem.n_classes)
        all_moves = np.empty_like(self.scores)

        def react(rows: slice, moves: Array) -> Array:
            nonlocal total
            y, all_moves[rows] = problem.labels[rows], moves
            moves = moves + shift
            du = moves - moves[np.arange(len(y)), y][:, None]
            dt = widening[y] if problem.sets.is_common else widening[rows]
            r, scale_part[rows] = costs.bent(rows, du, dt)
            r[np.arange(len(y)), y] = -r.sum(axis=1)
            total += r.sum(axis=0)
            return r

        out = problem.rows.pull(np.ascontiguousarray(V.T), react).T + 2 * problem.alpha * (V - V.mean(axis=0))
        for k, other in combinations(range(problem.n_classes), 2):
            W, move = self.W[k] - self.W[other], V[k] - V[other]
            push = np.zeros(problem.rows.n_features)
            for i, j in ((k, other), (other, k)):
                own, sets = problem.members[i], problem.own_sets[i]
                push += sets.adjoint(W, scale_part[own, j])
                push += sets.curvature_product(W, costs.scale_slopes[own, j], move)
            out[k] += push
            out[other] -= push
        return problem.join(out, total), all_moves

    def hessian(self, *, whole: bool = False) -> Array:
        return self.problem.hessian_of(self.W, self.costs.bends)

    def preconditioner(self) -> Callable[[Array], Array]:
        """Return each class's inverse block: heaviest columns and intercept by Cholesky, a diagonal elsewhere."""
        problem = self.problem
        bends = np.abs(self.costs.pulls(self.costs.uu))  # all losses of a row add curvature for its own class
        columns, rows, Z = problem.heavy_block
        d, n_heavy = problem.rows.n_features, Z.shape[1]
        heavy = np.append(columns, d) if problem.fit_intercept else columns
        trace = VANISHING * problem.typical_curvature()[: problem.n_parameters_per_class]
        parts = []
        for k in range(problem.n_classes):
            total = float(bends[:, k].sum())
            steady = trace + self.stiffness[k].sum() + 2 * problem.alpha
            diagonal = steady + total * np.append(problem.rows.column_squares, [0.0] * problem.fit_intercept)
            weights = bends[rows, k] * (total / max(float(bends[rows, k].sum()), np.finfo(float).tiny))
            block = (Z * weights[:, None]).T @ Z
            block[np.diag_indices(n_heavy)] += steady[heavy]
            parts.append((inverse(block), inverse(diagonal)))

        def precondition(v: Array) -> Array:
            out = []
            for part, (solve, rest) in zip(v.reshape(problem.n_classes, -1), parts, strict=True):
                one = rest(part)
                one[heavy] = solve(part[heavy])
                out.append(one)
            return np.concatenate(out)

        return precondition

    def plane(self, step: Array, moves: Array | None = None) -> _ScaleAndStep:
        return _ScaleAndStep(self, step, moves)


class _ScaleAndStep(Plane):
    """The problem for r times the weights plus a multiple of a step, which moves the intercepts too."""

    metric_age = 1

    n_parameters = 2
    start, ahead = np.array([1.0, 0.0]), np.array([1.0, 1.0])

    def __init__(self, origin: LocalPairwiseModel, step: Array, moves: Array | None = None):
        self.origin, self.problem = origin, origin.problem
        # adding a vector to all classes changes no loss: steps that way would only accumulate rounding errors
        self.W, self.b = (part - part.mean(axis=0) for part in self.problem.split(step))
        if moves is None:
            self.moves = self.problem.rows.dot(np.ascontiguousarray(self.W.T))
        else:
            self.moves = moves - moves.mean(axis=1, keepdims=True)

    @property
    def enough(self) -> float:
        return self.problem.enough

    def point(self, r: float, length: float) -> Array:
        """Return the problem's parameters."""
        return self.problem.join(r * self.origin.W + length * self.W, self.origin.b + length * self.b)

    def model(self, parameters: Array) -> LocalPairwiseModel:
        r, length = parameters
        there, age = self.point(r, length), self.origin.age + 1
        if age >= FRESH:
            return LocalPairwiseModel(self.problem, there)
        return LocalPairwiseModel(self.problem, there, r * self.origin.scores + length * self.moves, age)

    @cached_property
    def _known(self) -> dict[tuple[float, float], PairCosts]:
        return {(1.0, 0.0): self.origin.costs}

    def _costs(self, x: Array) -> tuple[Array, PairCosts]:
        r, length = float(x[0]), float(x[1])
        W = r * self.origin.W + length * self.W
        if (r, length) not in self._known:
            scores = r * self.origin.scores + length * self.moves
            self._known.clear()
            self._known[r, length] = PairCosts(self.problem, W, self.origin.b + length * self.b, scores)
        return W, self._known[r, length]

    @cached_property
    def _u_slopes(self) -> Array:
        """Slopes of the deficits in r and in the length, shape (2, n_samples, n_classes)."""
        scores = np.stack([self.origin.scores, self.moves + self.b])
        own = scores[:, np.arange(scores.shape[1]), self.problem.labels]
        return np.asarray(scores - own[:, :, None])

    def _t_slopes(self, W: Array) -> Array:
        tables = [self.problem.directional_table(W, direction) for direction in (self.origin.W, self.W)]
        return np.stack([self.problem.by_row(table) for table in tables])

    def _ridge(self) -> Array:
        centred = [V - V.mean(axis=0) for V in (self.origin.W, self.W)]
        return 2 * self.problem.alpha * np.array([[np.vdot(A, B) for B in centred] for A in centred])

    @np.errstate(over="ignore", invalid="ignore")  # a step that is too long is recognised by its infinite value
    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        W, costs = self._costs(parameters)
        gradient = np.einsum("knc,nc->k", self._u_slopes, costs.slopes)
        gradient += np.einsum("knc,nc->k", self._t_slopes(W), costs.scale_slopes)
        return costs.value, gradient + self._ridge() @ parameters

    def hessian(self, parameters: Array) -> Array:
        W, costs = self._costs(parameters)
        u, t = self._u_slopes, self._t_slopes(W)
        by_u, by_t = costs.bent(slice(None), u, t)
        H = np.einsum("knc,lnc->kl", u, by_u) + np.einsum("knc,lnc->kl", t, by_t) + self._ridge()
        directions = (self.origin.W, self.W)
        for k, other in combinations(range(self.problem.n_classes), 2):
            moves = [V[k] - V[other] for V in directions]
            for i, j in ((k, other), (other, k)):
                own, sets = self.problem.members[i], self.problem.own_sets[i]
                bent = [sets.curvature_product(W[k] - W[other], costs.scale_slopes[own, j], move) for move in moves]
                H += np.array([[move @ bend for bend in bent] for move in moves])
        return H

    def typical_curvature(self) -> Array:
        return np.zeros(2)

    def longest_step(self, parameters: Array, step: Array) -> float:
        here, there = (self.problem.join(x[0] * self.origin.W + x[1] * self.W, self.b) for x in (parameters, step))
        return self.problem.longest_step(here, there)
