"""Several classes at once: the loss of a row is that of its most dangerous class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import ratio
from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array
from holdfast._core.problem import WITHHELD, Composite
from holdfast._core.programs import FiniteSum
from holdfast._core.tolerances import AFFORDABLE
from holdfast._problems.pairwise import PairBends, PairwiseProblem

STRAIGHT = 1e-14
"""A row that bends by no more than this share of what the most bent one does is left out of a Hessian."""
UNFELT = 1e-4
"""The same where all such rows together bend by no more than this share of the ridge."""


@dataclass
class MaxOfPairsProblem(PairwiseProblem):
    r"""Minimise the losses at worst points of the rows' sets, over C weight vectors and intercepts:

    .. math:: \sum_i c_i F\bigl([m - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k) + h_i(w_k - w_{y_i})]_k\bigr)
              + \frac{\alpha}{C} \sum_{k<l} |w_k - w_l|^2,

    where the entry of a row's own class is 0. F is a :class:`JointLoss` of margin m: the largest entry, or the
    logarithm of the sum of their exponentials. As F rises with every entry and the row's perturbation is one for all of
    them, the sum is the largest loss of any admissible data where F is the maximum, and an upper bound of it otherwise.

    The lines under F have slopes :math:`a_{ik} \ge 0`, :math:`\sum_{k \ne y_i} a_{ik} \le 1`: these are dual weights as
    in :class:`PairwiseProblem`, under the tighter constraint on their sum.
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

    def bends(self, parameters: Array) -> PairBends:
        u, t = self._deficits_and_scales(parameters)
        each, c = np.arange(len(u)), self.weights[:, None]
        shares = self.loss.evaluate(self._table(u, t, self.labels))[1]
        s = c * self.loss.bends(shares)
        total = s.sum(axis=1)
        # the curvatures of a row cancel if one class has almost all of its shares
        spread = total - ratio(np.square(s).sum(axis=1), total)
        s[spread <= max(STRAIGHT * np.max(spread, initial=0.0), self._unfelt)] = 0.0
        s[each, self.labels] = shares[each, self.labels] = 0.0
        p = ratio(s, np.sqrt(total)[:, None])
        return PairBends(c * shares, s, s, s, (p, p))

    @property
    def _unfelt(self) -> float:
        """A row's curvature that is negligible beside the ridge, even if all rows have as much."""
        squares = self.rows.n_samples * float(self.rows.column_squares.sum())
        return UNFELT * 2 * self.alpha / squares if squares > 0 else 0.0

    def longest_step(self, parameters: Array, step: Array) -> float:
        return np.inf
