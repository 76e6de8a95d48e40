"""Several classes at once: the losses of every pair of classes, added up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from holdfast._core.loss import Array, Loss
from holdfast._core.problem import Evaluation
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess
from holdfast._core.tolerances import AFFORDABLE, SMALL_WORK
from holdfast._problems.linear import WIDEST_METRIC, LinearProblem
from holdfast._problems.local_pairwise_model import LocalPairwiseModel
from holdfast._problems.margin_scale import METRIC_ROWS, MarginScaleProblem

ALIKE = 1e-2
"""Root mean square of what two classes' scores differ by, features taken as independent, below which they may be the same."""
NEGLIGIBLE = 1e-5
"""Scale of the difference of two classes' scores, beside the margin of 1, below which they may well be the same."""


@dataclass
class PairwiseProblem(LinearProblem):
    r"""Minimise the losses of every row against every other class, over C weight vectors and intercepts:

    .. math:: \sum_i c_i \sum_{k \ne y_i} \ell(u_{ik}, t_i(w_{y_i} - w_k)) + \frac{\alpha}{C} \sum_{k<l} |w_k - w_l|^2,
              \qquad u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k).

    That is one :class:`MarginScaleProblem` for each pair of classes, on the rows of these two, in the difference of
    their parameters and with the ridge :math:`2\alpha/C`; for C = 2 it is the binary problem. Adding one vector to all
    :math:`w_k`, or one number to all :math:`b_k`, changes nothing; for weights that sum to 0 the ridge is
    :math:`\alpha \sum_k |w_k|^2`. Parameters are w_1, b_1, w_2, b_2, ...

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        Classes 0 ... C - 1.
    weights : ndarray of shape (n_samples,)
    bound : RowSets
        Symmetric: t(-w) = t(w).
    n_classes : int
        0: as many as `labels` tell.
    """

    rows: Rows
    labels: NDArray[np.intp]
    weights: Array
    loss: Loss
    sets: RowSets
    alpha: float = 0.0
    fit_intercept: bool = True
    n_classes: int = 0

    def __post_init__(self) -> None:
        self.n_classes = self.n_classes or int(self.labels.max()) + 1

    @property
    def n_parameters(self) -> int:
        return self.n_classes * self.n_parameters_per_class

    @property
    def n_parameters_per_class(self) -> int:
        return self.rows.n_features + int(self.fit_intercept)

    @cached_property
    def members(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.labels == k) for k in range(self.n_classes)]

    @cached_property
    def own_sets(self) -> list[RowSets]:
        """The sets of each class's rows, turned to where they make the class's lead smaller."""
        return [self.sets.take(own).against_labels(np.ones(len(own))) for own in self.members]

    def pair_sets(self, rows: NDArray[np.intp], k: int) -> RowSets:
        """Return the sets of rows of two classes, turned to where they make the lead of the rows' own class smaller.

        Their supports are those at the weights of class k less the other's.
        """
        return self.sets.take(rows).against_labels(np.where(self.labels[rows] == k, 1.0, -1.0))

    def split(self, parameters: Array) -> tuple[Array, Array]:
        """Return W, shape (n_classes, n_features), and b, shape (n_classes,)."""
        table = parameters.reshape(self.n_classes, -1)
        return table[:, : self.rows.n_features], table[:, -1] if self.fit_intercept else np.zeros(self.n_classes)

    def join(self, W: Array, b: Array) -> Array:
        """Return the parameters made of W and b."""
        return (np.column_stack([W, b]) if self.fit_intercept else W).ravel()

    def scale_table(self, W: Array) -> Array:
        """Return t_i(w_y - w_k), shape (n_samples, n_classes), or (n_classes, n_classes) where the set is common.

        The entries of a row's own class are never used and hold 1.
        """
        table = np.ones((self.n_classes if self.sets.is_common else len(self.labels), self.n_classes))
        for k, other in permutations(range(self.n_classes), 2):
            own = k if self.sets.is_common else self.members[k]
            table[own, other] = self.own_sets[k].support(W[k] - W[other])
        return table

    def by_row(self, table: Array) -> Array:
        """Return a table of scales or of their slopes with one row for each row of the data."""
        return table[self.labels] if self.sets.is_common else table

    def directional_table(self, W: Array, V: Array) -> Array:
        """Return the slopes of `scale_table` along V, 0 for a row's own class."""
        table = np.zeros((self.n_classes if self.sets.is_common else len(self.labels), self.n_classes))
        for k, other in permutations(range(self.n_classes), 2):
            own = k if self.sets.is_common else self.members[k]
            table[own, other] = self.own_sets[k].directional(W[k] - W[other], V[k] - V[other])
        return table

    def at(self, parameters: Array) -> LocalPairwiseModel:
        return LocalPairwiseModel(self, parameters)

    def scales(self, parameters: Array) -> Array:
        table = self.scale_table(self.split(parameters)[0])
        own = np.arange(self.n_classes) if self.sets.is_common else self.labels
        return table[own[:, None] != np.arange(self.n_classes)]

    @np.errstate(over="ignore", invalid="ignore")  # a step too long is told from its infinite value
    def evaluate(self, parameters: Array) -> Evaluation:
        W, b = self.split(parameters)
        table = self.scale_table(W)
        value, balance = 0.0, np.zeros(self.n_classes)
        scale_slopes = np.empty((self.rows.n_samples, self.n_classes))

        def react(rows: slice, scores: Array) -> Array:
            nonlocal value, balance
            y = self.labels[rows]
            each = np.arange(len(y))
            scores += b
            u = 1.0 - scores[each, y, None] + scores
            t = table[y] if self.sets.is_common else table[rows]
            losses, slopes, slopes_t = self.row_losses(u, t, y)
            c = self.weights[rows]
            value += float(c @ losses)
            np.multiply(c[:, None], slopes_t, out=scale_slopes[rows])
            r = -c[:, None] * slopes
            r[each, y] = -r.sum(axis=1)
            balance += r.sum(axis=0)
            return r

        pull = self.rows.pull(np.ascontiguousarray(W.T), react)
        outward, stiffness = self.outward(W, scale_slopes)
        centred = W - W.mean(axis=0)
        value += self.ridge(W)
        gradient = self.join(outward - pull.T + 2 * self.alpha * centred, -balance)
        return Evaluation(parameters, value, gradient, stiffness)

    def row_losses(self, u: Array, t: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return the loss of each row, and its slopes in the tables of deficits and scales, 0 for the row's own class."""
        values, slopes, scale_slopes = (part.reshape(u.shape) for part in self.loss.evaluate(u.ravel(), t.ravel()))
        foreign = labels[:, None] != np.arange(self.n_classes)
        return np.sum(values, axis=1, where=foreign), foreign * slopes, foreign * scale_slopes

    def admissible(self, slopes: Array) -> Array:
        """Return dual weights that losses can have, near these."""
        return np.where(self.labels[:, None] != np.arange(self.n_classes), np.clip(slopes, 0.0, 1.0), 0.0)

    def dual_value(self, a: Array) -> float:
        """Return what dual weights, as `admissible` gives them, are worth before their pull is paid for."""
        foreign = self.labels[:, None] != np.arange(self.n_classes)
        return float(np.sum(self.weights[:, None] * self.loss.dual_value(a), where=foreign))

    def ridge(self, W: Array) -> float:
        """Return the ridge's part of the objective."""
        return self.alpha * float(np.sum(np.square(W - W.mean(axis=0))))

    def outward(self, W: Array, scale_slopes: Array) -> tuple[Array, Array]:
        """Return the gradient of the scales' part, and the curvature that noise and ridge guarantee for each pair."""
        outward, stiffness = np.zeros_like(W), np.zeros((self.n_classes, self.n_classes))
        by_class = [scale_slopes[own] for own in self.members]
        for k, other in combinations(range(self.n_classes), 2):
            difference = W[k] - W[other]
            push = self.own_sets[k].adjoint(difference, by_class[k][:, other])
            push = push - self.own_sets[other].adjoint(-difference, by_class[other][:, k])
            outward[k] += push
            outward[other] -= push
            square = float(difference @ difference)
            guaranteed = float(difference @ push) / square if square > 0 else 0.0
            stiffness[k, other] = stiffness[other, k] = guaranteed + 2 * self.alpha / self.n_classes
        return outward, stiffness

    @cached_property
    def rows_by_class(self) -> list[Rows]:
        return [self.rows.take(own) for own in self.members]

    def half(self, k: int) -> MarginScaleProblem:
        """Return what the rows of class k contribute to each of its pairs, in the difference of the two classes' parameters."""
        own = self.members[k]
        return MarginScaleProblem(
            self.rows_by_class[k],
            np.ones(len(own)),
            self.weights[own],
            self.loss,
            self.own_sets[k],
            self.alpha / self.n_classes,
            self.fit_intercept,
        )

    def _pair_hessians(self, parameters: Array) -> Any:
        """Yield (k, other, Hessian in the difference of their parameters) for every ordered pair of classes."""
        table = parameters.reshape(self.n_classes, -1)
        for k in range(self.n_classes):
            half = self.half(k)
            for other in range(self.n_classes):
                if other != k:
                    yield k, other, half.hessian(table[k] - table[other])

    def hessian(self, parameters: Array) -> Array:
        p = self.n_parameters_per_class
        H = np.zeros((self.n_classes, p, self.n_classes, p))
        for k, other, bend in self._pair_hessians(parameters):
            H[k, :, k] += bend
            H[other, :, other] += bend
            H[k, :, other] -= bend
            H[other, :, k] -= bend
        return H.reshape(self.n_parameters, self.n_parameters)

    def typical_curvature(self) -> Array:
        one = np.append(self.rows.column_squares, [1.0] * self.fit_intercept)
        return float(self.weights.sum()) * np.tile(one, self.n_classes)

    def metric(self, parameters: Array) -> Array:
        """Return one block a class, shape (n_classes, p, p), or a diagonal for wide rows."""
        if self.rows.n_features > WIDEST_METRIC:
            return 0.25 * self.typical_curvature() + 2 * self.alpha
        p = self.n_parameters_per_class
        blocks = np.zeros((self.n_classes, p, p))
        for k, other, bend in self.sample._pair_hessians(parameters):
            blocks[k] += bend
            blocks[other] += bend
        return blocks

    def suboptimality(self, here: Evaluation) -> float:
        return self.flow_gap(here.value, here.gradient, here.stiffness)

    def flow_gap(self, value: float, gradient: Array, stiffness: Array) -> float:
        """Return what the cheapest flows between classes that make up for the gradient cost, as a share of the objective.

        Each is held against its pair's `stiffness`, the curvature that noise and ridge guarantee there.
        """
        G, g = self.split(gradient)
        scale = max(abs(value), self.floor)
        conductance = np.diag(stiffness.sum(axis=1)) - stiffness
        guaranteed = 0.5 * float(np.vdot(G, np.linalg.lstsq(conductance, G, rcond=None)[0]))
        return (guaranteed + float(g @ g) / (2 * scale)) / scale

    def longest_step(self, parameters: Array, step: Array) -> float:
        if not (self.loss.is_homogeneous and self.sets.is_sublinear):
            return np.inf
        here, there = (self.pair_scales(self.split(v)[0], np.mean) for v in (parameters, step))
        moved = there > 0
        np.fill_diagonal(moved, False)
        return 0.9 * float(np.min(here[moved] / there[moved], initial=np.inf))

    def work(self) -> dict[str, Any]:
        n, d = self.rows.n_samples, self.rows.n_features
        multiplications = self.n_classes * n * d * d + self.n_parameters**3 / 3
        most = SMALL_WORK if self.sets.is_smooth else AFFORDABLE
        cheap = multiplications <= most
        return {"n_samples": n, "n_features": d, "n_entries": self.rows.n_entries, "is_cheap_to_factorise": cheap}

    @property
    def codes(self) -> NDArray[np.intp]:
        return self.labels

    def of_classes(self, rows: Rows, weights: Array) -> PairwiseProblem:
        return replace(self, rows=rows, labels=np.arange(self.n_classes), weights=weights)

    @property
    def n_vectors(self) -> int:
        return self.n_classes

    @property
    def ridge_per_vector(self) -> float:
        return 2 * self.alpha

    def known_norm_bound(self) -> float:
        return self.norm_bound()

    def restricted(self, rows: NDArray[np.intp], weights: Array) -> PairwiseProblem:
        bound = self.sets.take(rows)
        return replace(self, rows=self.rows.take(rows), labels=self.labels[rows], weights=weights, sets=bound)

    def signed(self, dual: Array) -> Array:
        return dual

    def pair_scales(self, W: Array, summary: Any) -> Array:
        """Return a summary of the positive scales of each pair's rows, shape (n_classes, n_classes), inf on the diagonal."""
        out = np.full((self.n_classes, self.n_classes), np.inf)
        for k, other in permutations(range(self.n_classes), 2):
            scales = self.own_sets[k].support(W[k] - W[other])
            out[k, other] = summary(scales[scales > 0]) if np.any(scales > 0) else 0.0
        return out

    def smallest_typical_scale(self, parameters: Array) -> float:
        return float(self.pair_scales(self.split(parameters)[0], np.median).min())

    def constant_objective(self) -> float:
        return np.inf

    def snapped_to_kinks(self, parameters: Array, delta: float, factor: float) -> Array:
        # kinks are those of differences: no weights can be drawn in to all of them
        return parameters

    untidiness = 1.0

    def tidied(self, parameters: Array, delta: float) -> Array:
        """Return the parameters with classes of all but equal weights given the same."""
        W, b = self.split(parameters)
        apart = np.sqrt(np.square(W[:, None] - W) @ self.rows.column_squares)
        close = (self.pair_scales(W, np.max) <= NEGLIGIBLE) & (apart <= ALIKE)
        if not np.any(close):
            return parameters
        _, group = connected_components(csr_array(close | close.T), directed=False)
        weights = self.class_weights()
        W = np.array([np.average(W[group == g], axis=0, weights=weights[group == g]) for g in group])
        return self.join(W, b)

    @property
    def sample_size(self) -> int:
        return 2 * METRIC_ROWS * self.n_parameters_per_class

    def dual_guess(self, parameters: Array) -> DualGuess:
        """Return the slopes in u at these parameters as dual weights, shape (n_samples, n_classes)."""
        W, b = self.split(parameters)
        scores = self.rows.dot(np.ascontiguousarray(W.T)) + b
        u = 1.0 - scores[np.arange(len(scores)), self.labels][:, None] + scores
        t = self.by_row(self.scale_table(W))
        slopes = self.row_losses(u, t, self.labels)[1]
        return DualGuess(slopes, W, t, self.sets)

    def class_weights(self) -> Array:
        """Return the total weight of each class."""
        return np.asarray(np.bincount(self.labels, self.weights, self.n_classes), dtype=np.float64)

    def norm_bound(self) -> float:
        """Return a bound on the Frobenius norm of the optimal centred W, known only with a ridge."""
        ones = np.ones((1, self.n_classes))
        at_zero = float(self.row_losses(ones, 0 * ones, self.labels[:1])[0][0]) * float(self.weights.sum())
        return float(np.sqrt(at_zero / (2 * self.alpha))) if self.alpha > 0 else np.inf
