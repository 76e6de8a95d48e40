"""Several classes at once: every row costs what its most dangerous class makes it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import ratio
from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array
from holdfast._core.problem import WITHHELD, Composite, FiniteSum
from holdfast._core.tolerances import AFFORDABLE
from holdfast._problems.linear import WIDEST_METRIC
from holdfast._problems.pairwise import PairwiseProblem

STRAIGHT = 1e-14
"""A row that bends by no more than this share of what the most bent one does is left out of a Hessian."""


@dataclass
class MaxOfPairsProblem(PairwiseProblem):
    r"""Minimise what the worst points of the rows' sets cost, over C weight vectors and intercepts:

    .. math:: \sum_i c_i F\bigl([m - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k) + h_i(w_k - w_{y_i})]_k\bigr)
              + \frac{\alpha}{C} \sum_{k<l} |w_k - w_l|^2,

    the entry of a row's own class being 0. F is a :class:`JointLoss` of margin m: the largest entry, or the logarithm of the
    sum of their exponentials. As F rises with every entry and the row's perturbation is one for all of them, the sum is the
    largest loss of any admissible data where F is the maximum, and an upper bound of it otherwise.

    The lines under F have slopes :math:`a_{ik} \ge 0`, :math:`\sum_{k \ne y_i} a_{ik} \le 1`: dual weights as those of
    :class:`PairwiseProblem`, of which only fewer are admissible.
    """

    loss: JointLoss  # type: ignore[assignment]
    has_kinks = True
    views = {Composite: WITHHELD, FiniteSum: WITHHELD}

    def work(self) -> dict[str, object]:
        cheap = self.n_parameters**2 * (self.rows.n_samples + self.n_parameters / 3) <= AFFORDABLE
        return super().work() | {"is_cheap_to_factorise": cheap}

    def smoothed(self, delta: float) -> MaxOfPairsProblem:
        """Return the problem with sets and loss smoothed by `delta`; itself at 0."""
        return self.having(sets=self.sets.smoothed(delta), loss=self.loss.smoothed(delta)) if delta > 0 else self

    def row_losses(self, u: Array, t: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        values, shares = self.loss.evaluate(self._table(u, t, labels))
        shares[np.arange(len(shares)), labels] = 0.0
        return values, shares, shares

    def _table(self, u: Array, t: Array, labels: NDArray[np.intp]) -> Array:
        z = u + t - (1.0 - self.loss.margin)
        z[np.arange(len(z)), labels] = 0.0
        return z

    def admissible(self, slopes: Array) -> Array:
        a = super().admissible(slopes)
        return np.asarray(a / np.maximum(a.sum(axis=1, keepdims=True), 1.0))

    def dual_value(self, a: Array) -> float:
        foreign, shares = a.sum(axis=1), a.copy()
        shares[np.arange(len(a)), self.labels] = np.maximum(1.0 - foreign, 0.0)
        return float(self.weights @ (self.loss.margin * foreign + self.loss.dual_value(shares)))

    def hessian(self, parameters: Array) -> Array:
        W, b = self.split(parameters)
        C, p = self.n_classes, self.n_parameters_per_class
        H = np.zeros((C, p, C, p))
        for k, (own, rows) in enumerate(zip(self.members, self.rows_by_class, strict=True)):
            H += self._hessian_of_class(k, own, rows.dot(np.ascontiguousarray(W.T)) + b, W)
        ridge = 2 * self.alpha * (np.eye(C) - 1 / C)
        for j in range(self.rows.n_features):
            H[:, j, :, j] += ridge
        return H.reshape(self.n_parameters, self.n_parameters)

    def _hessian_of_class(self, k: int, own: NDArray[np.intp], scores: Array, W: Array) -> Array:
        r"""Return what the rows of class k contribute.

        With :math:`J_c = (x - q_c, 1)`, :math:`q_c` the set's maximizer along :math:`w_k - w_c`, entry c of a row's table
        changes by :math:`J_c` times the change of the parameters of class c less those of class k, so that F's bends
        :math:`\mathrm{diag}(s) - ss^\top/\sum s` give one product a class less one of all.
        """
        C, p, d = self.n_classes, self.n_parameters_per_class, self.rows.n_features
        others, sets, labels = [c for c in range(C) if c != k], self.own_sets[k], np.full(len(own), k)
        t = np.ones_like(scores)
        for c in others:
            t[:, c] = sets.support(W[k] - W[c])
        shares = self.loss.evaluate(self._table(1.0 - scores[:, [k]] + scores, t, labels))[1]
        c_own = self.weights[own]
        s = c_own[:, None] * self.loss.bends(shares)
        total = s.sum(axis=1)
        # bends of a row whose shares are all but one class's cancel
        spread = total - ratio(np.square(s).sum(axis=1), total)
        some = np.flatnonzero(spread > STRAIGHT * np.max(spread, initial=0.0))
        alone, both = np.zeros((C, p, p)), np.zeros((C, p, C, p))
        part, bound = self.rows_by_class[k].take(some), sets.take(some)
        for block, X in part.dense_blocks():
            weights, root = s[some[block]], np.sqrt(total[some[block]])
            moves = np.zeros((len(X), C, p))
            for c in others:
                moves[:, c, :d] = X - bound.maximizer(W[k] - W[c], block)
                moves[:, c, d:] = 1.0
                alone[c] += (moves[:, c] * weights[:, c, None]).T @ moves[:, c]
            pulled = (moves * (weights / root[:, None])[:, :, None]).reshape(len(X), -1)
            both -= (pulled.T @ pulled).reshape(C, p, C, p)
        for c in others:
            both[c, :, c] += alone[c]
            both[c, :d, c, :d] += sets.curvature(W[k] - W[c], c_own * shares[:, c], np.zeros(len(own)))
        return _in_differences(both, k)

    def longest_step(self, parameters: Array, step: Array) -> float:
        return np.inf

    def metric(self, parameters: Array) -> Array:
        if self.rows.n_features > WIDEST_METRIC:
            return super().metric(parameters)
        p = self.n_parameters_per_class
        H = self.sample.hessian(parameters).reshape(self.n_classes, p, self.n_classes, p)
        return np.stack([H[k, :, k] for k in range(self.n_classes)])


def _in_differences(H: Array, k: int) -> Array:
    """Return a Hessian in the parameters of each class from one in their differences from those of class k."""
    H[k] = -H.sum(axis=0)
    H[:, :, k] = -H.sum(axis=2)
    return H
