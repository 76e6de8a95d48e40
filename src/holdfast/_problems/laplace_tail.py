"""The share of voters that err, and the problem of minimising it over the means for one common scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.problem import Evaluation, Problem
from holdfast._core.tolerances import AFFORDABLE, GAP_FLOOR
from holdfast._data.outputs import Outputs
from holdfast._problems.laplace import WIDEST, conjugate, stride
from holdfast.losses.laplace_law import LaplaceSum

NEAR = 100.0
"""A step may change a mean by this many scales, fewer than for losses whose curvature reaches farther."""


def voters_wrong(outputs: Outputs, means: Array, scales: Array, signs: Any) -> Array:
    """Return the share of voters whose score does not have the row's sign; a score of 0 counts as wrong."""
    return LaplaceSum(outputs.reaches(scales)).tail(signs * outputs.dot(means))


def voters_for(outputs: Outputs, means: Array, scales: Array) -> Array:
    """Return the share of voters whose score is positive, and 1/2 for rows on which all learners are 0."""
    return np.where(outputs.reaches_any(), voters_wrong(outputs, means, scales, -1.0), 0.5)


class TailRows:
    """Rows times their labels, with the distribution of the score on each; rows of zeros are always wrong and set apart."""

    def __init__(self, signed: Array, weights: Array):
        used = np.any(signed != 0, axis=1)
        self.A, self.weights = np.ascontiguousarray(signed[used]), weights[used]
        self.lost = float(weights[~used].sum())
        self.law = LaplaceSum(np.abs(self.A))
        self.peaks = self.law.density(np.zeros(len(self.A)))

    @property
    def n_learners(self) -> int:
        """D."""
        return self.A.shape[1]

    def losses(self, z: Array) -> tuple[Array, Array, Array]:
        """Return the loss of margins z, minus its derivative, and its second derivative.

        The loss is the tail for z >= 0, where it is convex, and its tangent at 0 for z < 0.
        """
        tail, density, slope = self.law.derivatives(np.maximum(z, 0.0))
        return np.where(z >= 0, tail, 0.5 - self.peaks * z), density, np.where(z > 0, -slope, 0.0)


@dataclass(eq=False)
class TailProblem(Problem):
    r"""The convex problem of one scale :math:`\sigma`, in the means :math:`u = \mu_Q / \sigma_Q` in units of the scales.

    .. math:: G(\sigma) = \min_u\ \sigma \sum_k \bigl(|u_k| + e^{-|u_k|}\bigr) + \sum_i c_i\, \ell_i(y_i x_i^\top u),

    with the loss of `TailRows`, at least the share of voters that err. G is concave, and
    :math:`G(\sigma) - d \ln \sigma - d` is divergence plus loss.
    """

    rows: TailRows
    sigma: float
    trace: list[float] = field(default_factory=list)
    _seen: Any = field(default=None, repr=False)

    metric_age = 20

    @property
    def n_parameters(self) -> int:
        """The number of means."""
        return self.rows.n_learners

    @property
    def constant(self) -> float:
        """The scale's part of the divergence: the rest of the objective plus this is divergence plus loss."""
        return self.n_parameters * (self.sigma - np.log(self.sigma) - 1)

    @property
    def floor(self) -> float:
        """Gaps are relative to this number where the objective is smaller."""
        return GAP_FLOOR * (self.n_parameters + float(self.rows.weights.sum()) + self.rows.lost)

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop, because a smaller one would not matter."""
        return GAP_FLOOR * self.floor

    def _at(self, u: Array) -> Any:
        if self._seen is None or not np.array_equal(self._seen[0], u):
            z = self.rows.A @ u
            losses, densities, bends = self.rows.losses(z)
            value = self.sigma * float(np.sum(np.abs(u) + np.expm1(-np.abs(u)))) + float(self.rows.weights @ losses)
            slopes = self.rows.weights * densities
            self._seen = (
                u.copy(),
                z,
                losses,
                slopes,
                bends,
                value + self.rows.lost + self.constant,
                slopes @ self.rows.A,
            )
        return self._seen

    def evaluate(self, u: Array) -> Evaluation:
        """Return objective and gradient."""
        return Evaluation(u, *self.value_and_gradient(u))

    def value_and_gradient(self, u: Array) -> tuple[float, Array]:
        """Return divergence plus loss, and its gradient."""
        *_, value, pulls = self._at(u)
        return value, -self.sigma * np.sign(u) * np.expm1(-np.abs(u)) - pulls

    def hessian(self, u: Array) -> Array:
        """Return the Hessian."""
        _, _, _, _, bends, value, _ = self._at(u)
        self.trace.append(value)
        gram = self.rows.A.T @ (self.rows.A * (self.rows.weights * bends)[:, None])
        return gram + self.sigma * np.diag(np.exp(-np.abs(u)))

    def typical_curvature(self) -> Array:
        """Return the divergence's curvature at u = 0."""
        return np.full(self.n_parameters, self.sigma)

    def metric(self, u: Array) -> Array:
        """Return the diagonal of the Hessian."""
        bends = self._at(u)[4]
        return self.sigma * np.exp(-np.abs(u)) + (self.rows.weights * bends) @ np.square(self.rows.A)

    def suboptimality(self, here: Evaluation) -> float:
        """Return the certified gap of this scale."""
        self.trace.append(here.value)
        return (here.value - self.lower_bound(here.parameters)) / max(here.value, self.floor)

    def longest_step(self, u: Array, step: Array) -> float:
        """Return the largest multiple of the step that keeps means near; see `stride`. There are no kinks."""
        return stride(u, step, NEAR)

    def work(self) -> dict[str, Any]:
        """Return the sizes from which solvers judge whether they suit."""
        n, d = self.rows.A.shape
        return {
            "n_samples": n,
            "n_features": d,
            "n_entries": n * d,
            "is_cheap_to_factorise": d <= 2 * WIDEST and n * d * d <= AFFORDABLE,
        }

    def lower_bound(self, u: Array) -> float:
        """Return a lower bound over all means at this scale, from tangents of the losses at u, shrunk if too steep."""
        _, z, losses, slopes, _, _, pulls = self._at(u)
        steep = np.abs(pulls) / self.sigma
        share = min(1.0, 1 / max(float(steep.max(initial=0.0)), np.finfo(float).tiny))
        heights = float(self.rows.weights @ losses + slopes @ z)
        least = self.sigma * float(np.sum(conjugate(np.minimum(share * steep, 1.0)) - 1))
        return least + share * heights + self.rows.lost + self.constant
