"""Several classes at once: the sum of the losses of all pairs of classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from holdfast._core.arithmetic import ratio
from holdfast._core.loss import Array, Loss
from holdfast._core.problem import Evaluation
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess
from holdfast._core.tolerances import AFFORDABLE, SMALL_WORK
from holdfast._problems.class_blocks import class_blocks, quick
from holdfast._problems.linear import WIDEST_METRIC, LinearProblem
from holdfast._problems.local_pairwise_model import LocalPairwiseModel
from holdfast._problems.margin_scale import METRIC_ROWS
from holdfast._problems.pair_hessian import pair_hessian

ALIKE = 1e-2
"""Two classes may be equal up to this root mean square difference of their scores, for independent features."""
NEGLIGIBLE = 1e-5
"""Two classes may be equal if the scale of their difference, relative to the margin 1, is at most this."""


class PairBends(NamedTuple):
    """Weighted derivatives of the rows' losses, each of shape (n_samples, n_classes), 0 for a row's own class."""

    scale_slopes: Array
    uu: Array
    ut: Array
    tt: Array
    shared: tuple[Array, Array] | None = None
    """What the classes of a row share: p and q by which :math:`(\\sum_k p_k\\,du_k + q_k\\,dt_k)^2` is to be taken off."""


@dataclass
class PairwiseProblem(LinearProblem):
    r"""Minimise the losses of every row against every other class, over C weight vectors and intercepts:

    .. math:: \sum_i c_i \sum_{k \ne y_i} \ell(u_{ik}, t_i(w_{y_i} - w_k)) + \frac{\alpha}{C} \sum_{k<l} |w_k - w_l|^2,
              \qquad u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k).

    That is one :class:`MarginScaleProblem` for each pair of classes, on the rows of these two, in the difference of
    their parameters and with the ridge :math:`2\alpha/C`; for C = 2 it is the binary problem. Adding one vector to all
    :math:`w_k`, or one number to all :math:`b_k`, changes no loss; for weights that sum to 0 the ridge is
    :math:`\alpha \sum_k |w_k|^2`. Parameters are w_1, b_1, w_2, b_2, ...

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        Classes 0 ... C - 1.
    weights : ndarray of shape (n_samples,)
    sets : RowSets
        Symmetric: t(-w) = t(w).
    n_classes : int
        0 for the number in `labels`.
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
        """The sets of each class's rows, oriented so that they reduce the class's lead."""
        return [self.sets.take(own).against_labels(np.ones(len(own))) for own in self.members]

    def pair_sets(self, rows: NDArray[np.intp], k: int) -> RowSets:
        """Return the sets of rows of two classes, oriented so that they reduce the lead of the rows' own class.

        Their supports are taken at the weights of class k less those of the other class.
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
        if self.sets.is_common:
            table = self.own_sets[0].supports_at(_differences(W)).reshape(self.n_classes, -1)
            np.fill_diagonal(table, 1.0)
            return table
        table = np.ones((len(self.labels), self.n_classes))
        for k, other in permutations(range(self.n_classes), 2):
            table[self.members[k], other] = self.own_sets[k].support(W[k] - W[other])
        return table

    def by_row(self, table: Array) -> Array:
        """Return a table of scales or of their slopes with one row for each row of the data."""
        return table[self.labels] if self.sets.is_common else table

    def directional_table(self, W: Array, V: Array) -> Array:
        """Return the slopes of `scale_table` along V, 0 for a row's own class."""
        if self.sets.is_common:
            slopes = np.sum(self.own_sets[0].maximizers_at(_differences(W)) * _differences(V), axis=1)
            return slopes.reshape(self.n_classes, -1)
        table = np.zeros((len(self.labels), self.n_classes))
        for k, other in permutations(range(self.n_classes), 2):
            table[self.members[k], other] = self.own_sets[k].directional(W[k] - W[other], V[k] - V[other])
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
        """Return dual weights near `slopes` that the losses admit."""
        return np.where(self.labels[:, None] != np.arange(self.n_classes), np.clip(slopes, 0.0, 1.0), 0.0)

    def dual_value(self, a: Array) -> float:
        """Return the dual value of admissible dual weights, before the cost of their pull."""
        foreign = self.labels[:, None] != np.arange(self.n_classes)
        return float(np.sum(self.weights[:, None] * self.loss.dual_value(a), where=foreign))

    def ridge(self, W: Array) -> float:
        """Return the ridge's part of the objective."""
        return self.alpha * float(np.sum(np.square(W - W.mean(axis=0))))

    def outward(self, W: Array, scale_slopes: Array) -> tuple[Array, Array]:
        """Return the scales' part of the gradient, and the curvature that noise and ridge guarantee for each pair."""
        pushes = self._pushes(W, scale_slopes)
        flows = pushes - pushes.transpose(1, 0, 2)
        differences = W[:, None] - W
        guaranteed = ratio(
            np.einsum("klj,klj->kl", differences, flows), np.einsum("klj,klj->kl", differences, differences)
        )
        # without a dual the proof relies on the ridge alone
        stiffness = guaranteed * self.loss.has_dual + 2 * self.alpha / self.n_classes
        np.fill_diagonal(stiffness, 0.0)
        return flows.sum(axis=1), stiffness

    def _pushes(self, W: Array, scale_slopes: Array) -> Array:
        """Return the scales' part of the gradient in w_k - w_l, for class k's rows against class l, by k and l."""
        C = self.n_classes
        if self.sets.is_common:
            total = np.array([scale_slopes[own].sum(axis=0) for own in self.members])
            np.fill_diagonal(total, 0.0)
            return total[:, :, None] * self.own_sets[0].maximizers_at(_differences(W)).reshape(C, C, -1)
        pushes = np.zeros((C, C, self.rows.n_features))
        for k, other in permutations(range(C), 2):
            pushes[k, other] = self.own_sets[k].adjoint(W[k] - W[other], scale_slopes[self.members[k], other])
        return pushes

    @cached_property
    def rows_by_class(self) -> list[Rows]:
        return [self.rows.take(own) for own in self.members]

    @cached_property
    def class_grams(self) -> Array:
        """The products of each class's rows with themselves, shape (n_classes, n_features, n_features)."""
        return np.array([quick(rows).gram(np.ones(rows.n_samples)) for rows in self.rows_by_class])

    def bends(self, parameters: Array) -> PairBends:
        """Return the second derivatives of the rows' losses."""
        return self.derivatives(*self._deficits_and_scales(parameters))[2]

    def derivatives(self, u: Array, t: Array) -> tuple[float, Array, PairBends]:
        """Return the sum of all rows' losses, their slopes in u and their second derivatives, all weighted."""
        parts = self.loss.derivatives(u.ravel(), t.ravel())
        c = np.where(self.labels[:, None] == np.arange(self.n_classes), 0.0, self.weights[:, None])
        losses, by_u, by_t, uu, ut, tt = (c * part.reshape(u.shape) for part in parts)
        return float(losses.sum()), by_u, PairBends(by_t, uu, ut, tt)

    def _deficits_and_scales(self, parameters: Array) -> tuple[Array, Array]:
        """Return the tables u and t of all rows, whose entries for a row's own class are unused."""
        W, b = self.split(parameters)
        scores = self.rows.dot(np.ascontiguousarray(W.T)) + b
        u = 1.0 - scores[np.arange(len(scores)), self.labels][:, None] + scores
        return u, self.by_row(self.scale_table(W))

    def _pair_hessians(self, W: Array, bends: PairBends) -> Iterator[tuple[int, int, Array]]:
        """Yield (k, other, Hessian in the difference of their parameters) for every ordered pair, without shared parts.

        It covers the losses of class k's rows against the other class, and half of the pair's ridge.
        """
        C, d = self.n_classes, self.rows.n_features
        for k, own in enumerate(self.members):
            slopes, *parts = (part[own] for part in bends[:4])
            some = np.flatnonzero(np.any(parts[0] != 0, axis=1) | np.any(parts[1] != 0, axis=1))
            uu, ut, _ = (part[some] for part in parts)
            rows, sets = self.rows_by_class[k].take(some), self.own_sets[k]
            few = sets.take(some)
            pulled, mixed = np.split(rows.transpose_dot(np.hstack([uu, ut])), 2, axis=1)
            for other in set(range(C)) - {k}:
                w, H = W[k] - W[other], np.empty((self.n_parameters_per_class,) * 2)
                if sets.is_common:
                    cross = np.outer(mixed[:, other], sets.maximizer(w)[0])
                else:
                    cross = few.cross(w, rows, ut[:, other])
                H[:d, :d] = rows.gram(uu[:, other]) - cross - cross.T
                H[:d, :d] += sets.curvature(w, slopes[:, other], parts[2][:, other])
                H[np.arange(d), np.arange(d)] += self.alpha / C
                H[d:, :d] = H[:d, d:].T[:] = pulled[:, other] - few.adjoint(w, ut[:, other])
                H[d:, d:] = uu[:, other].sum()
                yield k, other, H

    def _shared_moves(self, W: Array, bends: PairBends) -> Iterator[Array]:
        """Yield, many rows at a time, the vectors whose squares are subtracted, shape (n_rows, n_classes, p)."""
        if bends.shared is None:
            return
        kept: list[Array] = []
        for k, own in enumerate(self.members):
            p, q = (part[own] for part in bends.shared)
            some = np.flatnonzero(np.any(p != 0, axis=1) | np.any(q != 0, axis=1))
            sets = self.own_sets[k].take(some)
            for block, X in self.rows_by_class[k].take(some).dense_blocks():
                kept.append(self._moves_of(k, X, W, sets, block, p[some[block]], q[some[block]]))
                # products of a few rows cost as much as products of as many rows as there are parameters
                if sum(map(len, kept)) >= self.n_parameters:
                    yield np.concatenate(kept)
                    kept.clear()
        if kept:
            yield np.concatenate(kept)

    def _moves_of(self, k: int, X: Array, W: Array, sets: RowSets, block: slice, p: Array, q: Array) -> Array:
        """Return the vectors of `_shared_moves` for rows X of class k."""
        d = self.rows.n_features
        moves = np.zeros((len(X), self.n_classes, self.n_parameters_per_class))
        for other in set(range(self.n_classes)) - {k}:
            moves[:, other, :d] = q[:, other, None] * sets.maximizer(W[k] - W[other], block) - p[:, other, None] * X
            moves[:, other, d:] = -p[:, other, None]
        moves[:, k] = -moves.sum(axis=1)
        return moves

    def hessian(self, parameters: Array) -> Array:
        return self.hessian_of(self.split(parameters)[0], self.bends(parameters))

    def hessian_of(self, W: Array, bends: PairBends) -> Array:
        """Return the Hessian at W from the losses' second derivatives."""
        if self.sets.is_common:
            return pair_hessian(self, W, bends)
        p = self.n_parameters_per_class
        H = np.zeros((self.n_classes, p, self.n_classes, p))
        for k, other, bend in self._pair_hessians(W, bends):
            H[k, :, k] += bend
            H[other, :, other] += bend
            H[k, :, other] -= bend
            H[other, :, k] -= bend
        whole = H.reshape(self.n_parameters, self.n_parameters)
        for moves in self._shared_moves(W, bends):
            flat = moves.reshape(len(moves), -1)
            whole -= flat.T @ flat
        return whole

    def typical_curvature(self) -> Array:
        one = np.append(self.rows.column_squares, [1.0] * self.fit_intercept)
        return float(self.weights.sum()) * np.tile(one, self.n_classes)

    def metric(self, parameters: Array) -> Array:
        """Return one block for each class, shape (n_classes, p, p), or a diagonal for wide rows."""
        if self.rows.n_features > WIDEST_METRIC:
            return 0.25 * self.typical_curvature() + 2 * self.alpha
        sample, W = self.sample, self.split(parameters)[0]
        bends, p = sample.bends(parameters), self.n_parameters_per_class
        if sample.sets.is_common:
            return class_blocks(sample, W, bends)
        blocks = np.zeros((self.n_classes, p, p))
        for k, other, bend in sample._pair_hessians(W, bends):
            blocks[k] += bend
            blocks[other] += bend
        for moves in sample._shared_moves(W, bends):
            for k in range(self.n_classes):
                blocks[k] -= moves[:, k].T @ moves[:, k]
        return blocks

    @property
    def metric_age(self) -> int:
        # a metric has a block for each class, each as expensive as the metric of two classes
        return max(12, self.rows.n_features // 16)

    def suboptimality(self, here: Evaluation) -> float:
        return self.flow_gap(here.value, here.gradient, here.stiffness)

    def flow_gap(self, value: float, gradient: Array, stiffness: Array) -> float:
        """Return the cost of the cheapest flows between classes that cancel the gradient, as a share of the objective.

        The cost of a flow is relative to its pair's `stiffness`, the curvature that noise and ridge guarantee.
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
        if self.sets.is_common:
            out = self.scale_table(W)
            np.fill_diagonal(out, np.inf)
            return out
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
        # the kinks are in differences: no weights can be moved to all of them
        return parameters

    untidiness = 1.0

    def tidied(self, parameters: Array, delta: float) -> Array:
        """Return the parameters in which classes of almost equal weights get their mean."""
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
        u, t = self._deficits_and_scales(parameters)
        slopes = self.row_losses(u, t, self.labels)[1]
        return DualGuess(slopes, self.split(parameters)[0], t, self.sets)

    def class_weights(self) -> Array:
        """Return the total weight of each class."""
        return np.asarray(np.bincount(self.labels, self.weights, self.n_classes), dtype=np.float64)

    def norm_bound(self) -> float:
        """Return a bound on the Frobenius norm of the optimal centred W, known only with a ridge."""
        ones = np.ones((1, self.n_classes))
        at_zero = float(self.row_losses(ones, 0 * ones, self.labels[:1])[0][0]) * float(self.weights.sum())
        return float(np.sqrt(at_zero / (2 * self.alpha))) if self.alpha > 0 else np.inf


def _differences(W: Array) -> Array:
    """Return w_k - w_l for all pairs, k by k, shape (n_classes^2, n_features)."""
    return np.asarray((W[:, None] - W).reshape(len(W) ** 2, -1))
