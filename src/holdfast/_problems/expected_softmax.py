"""Several classes at once: the cross-entropy of the softmax, averaged over the noise of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast._core.joint_loss import ExpectedJointLoss
from holdfast._core.loss import Array
from holdfast._core.problem import WITHHELD
from holdfast._core.programs import FiniteSum
from holdfast._core.tolerances import AFFORDABLE
from holdfast._problems.pairwise import PairBends, PairwiseProblem

MOST_PARAMETERS = 500
"""Largest number of parameters for which a Hessian pays: passes average over noise and are expensive too."""

STEPS_OF_METRIC = 6
"""Steps after which the metric is renewed."""
LIKELY_BEND = 0.025
"""A guess of the average second derivative of a row's loss in a rival's lead."""


@dataclass
class ExpectedSoftmaxProblem(PairwiseProblem):
    r"""Minimise the rows' expected losses under their noise, over C weight vectors and intercepts:

    .. math:: \sum_i c_i F\bigl([u_{ik}]_{k \ne y_i}, [t_i(w_{y_i} - w_k)]_{k \ne y_i}\bigr)
              + \frac{\alpha}{C} \sum_{k<l} |w_k - w_l|^2, \qquad
              u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k),

    F an :class:`ExpectedJointLoss`.
    """

    loss: ExpectedJointLoss  # type: ignore[assignment]
    views = {FiniteSum: WITHHELD}

    @property
    def metric_age(self) -> int:
        # passes average over noise and cost as much as a metric
        return STEPS_OF_METRIC

    def without_noise(self) -> ExpectedSoftmaxProblem | None:
        """Return the softmax with a ridge instead of the noise, at a tenth of the cost; None if no ridge stands in."""
        if not self.sets.is_common:
            return None
        # to second order, noise of variance t^2 costs t^2 / 2 times the loss's second derivative: at most 1/4, mostly
        # far less
        unit = np.eye(1, self.rows.n_features)[0]
        variance = float(np.square(self.sets.support(unit)))
        ridge = LIKELY_BEND * float(self.weights.sum()) * variance
        return self.having(sets=self.sets.resized(0.0), alpha=self.alpha + ridge) if ridge > 0 else None

    def work(self) -> dict[str, object]:
        p = self.n_parameters
        cheap = p <= MOST_PARAMETERS and p**2 * (self.rows.n_samples + p / 3) <= AFFORDABLE
        return super().work() | {"is_cheap_to_factorise": cheap}

    def rivals(self, table: Array, labels: NDArray[np.intp]) -> Array:
        """Return a table without the entries of the rows' own classes, shape (n_samples, n_classes - 1)."""
        # by columns, so that operations on a rival run over many rows at a time
        return table.ravel().take(self._places(labels)).T

    def among_all(self, table: Array, labels: NDArray[np.intp]) -> Array:
        """Return a table of rivals with an entry of 0 for each row's own class."""
        out = np.zeros((len(labels), self.n_classes))
        out.ravel()[self._places(labels)] = table.T
        return out

    def _places(self, labels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the positions of the rivals in a table of all classes, shape (n_classes - 1, n_samples)."""
        rivals = np.arange(self.n_classes - 1)[:, None]
        return self.n_classes * np.arange(len(labels)) + rivals + (rivals >= labels)

    def row_losses(self, u: Array, t: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        values, *slopes = self.loss.evaluate(self.rivals(u, labels), self.rivals(t, labels))
        by_u, by_t = (self.among_all(part, labels) for part in slopes)
        return values, by_u, by_t

    def derivatives(self, u: Array, t: Array) -> tuple[float, Array, PairBends]:
        labels, c = self.labels, self.weights[:, None]
        values, *tables = self.loss.derivatives(self.rivals(u, labels), self.rivals(t, labels))
        slopes, scale_slopes, uu, ut, tt, p, q = (self.among_all(part, labels) for part in tables)
        shared = (np.sqrt(c) * p, np.sqrt(c) * q)
        bends = PairBends(c * scale_slopes, c * uu, c * ut, c * tt, shared)
        return float(self.weights @ values), c * slopes, bends

    @np.errstate(over="ignore", invalid="ignore")
    def second_order(self, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        # the rivals' shares are computed once for value, gradient and Hessian
        here = self.at(parameters)
        return here.value, here.gradient, here.hessian

    def tidied(self, parameters: Array, delta: float) -> Array:
        return parameters
