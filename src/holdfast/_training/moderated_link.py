"""Training with the moderated link: descents on a nonconvex objective that start at certified solutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from holdfast._core.loss import Array, Loss
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, silent
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate
from holdfast._proofs.objectives import objective_at
from holdfast._training.training import train
from holdfast.solvers import QuasiNewton

SPREAD = np.pi / 8
"""With this factor of the variance the moderated sigmoid resembles the mean of the sigmoid over the noise (MacKay)."""
FINE = 1e-5
"""The descent goes on while the next step promises at least this share of `tol`."""


def moderation(t: Array) -> Array:
    r"""Return the factor :math:`r = (1 + \pi t^2 / 8)^{-1/2}` of a score with standard deviation t; 1 without noise."""
    return np.asarray(1.0 / np.hypot(1.0, np.sqrt(SPREAD) * t))


@dataclass
class Moderated:
    r"""The expected logistic loss of moderated scores, :math:`\mathbb E \log(1 + e^{r (u - 1 + tZ)})`.

    This is the expected logistic loss at the deficit 1 + r (u - 1) and the scale r t. It is not convex and decreases
    with t where u > 1, so it is no :class:`Loss`: it has the methods that descents use, but none of those that a proof
    needs.
    """

    expected: Loss
    is_rowwise = is_homogeneous = is_worst_case = has_dual = False

    def value(self, u: Array, t: Array) -> Array:
        r = moderation(t)
        return self.expected.value(1.0 + r * (u - 1.0), r * t)

    def evaluate(self, u: Array, t: Array) -> tuple[Array, Array, Array]:
        r = moderation(t)
        x, scale = r * (u - 1.0), r * t
        value, slope, scale_slope = self.expected.evaluate(1.0 + x, scale)
        # dr/dt = -SPREAD t r^3 and d(rt)/dt = r^3, ordered so that nothing overflows
        return value, r * slope, r * (r * r * scale_slope - SPREAD * scale * x * slope)

    def derivatives(self, u: Array, t: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Return the derivatives with r held fixed: the loss is then convex, so they provide a metric for the steps."""
        r = moderation(t)
        value, slope, scale_slope, uu, ut, tt = self.expected.derivatives(1.0 + r * (u - 1.0), r * t)
        return value, r * slope, r * scale_slope, r * r * uu, r * r * ut, r * r * tt

    def couplings(self, u: Array, t: Array) -> tuple[()]:
        return ()


def moderated(problem: MarginScaleProblem) -> MarginScaleProblem:
    """Return the same problem with the moderated link, for quasi-Newton steps."""
    return problem.having(loss=cast(Any, Moderated(problem.loss)))


def objective(problem: MarginScaleProblem, parameters: Array) -> float:
    """Return the objective by its definition, computed independently of the steps."""
    w, b = problem.split(parameters)
    return objective_at(problem, w, b, problem.rows.dot(w), problem.sets.support(w))


def through_moderated_link(
    problem: MarginScaleProblem,
    found: Solution,
    proof: Certificate,
    *,
    tol: float,
    max_iter: int,
    report: Report = silent,
) -> tuple[Solution, Certificate]:
    """Return the better of two descents: from the solution for the expected logistic loss and from that for exact rows.

    The result has no lower bound. Very noisy rows hold the first start near w = 0, from which no descent may be
    possible; they do not affect the second start. Without noise the objectives coincide, and the given solution is
    returned with its proof.
    """
    if np.all(problem.sets.exact_features(problem.rows.n_features)):
        return found, proof
    exact, _ = train(problem.having(sets=problem.sets.scaled(0.0)), tol=tol, max_iter=max_iter, report=report)
    near, back = problem.centred()
    near, left = moderated(near), max(1, max_iter - found.n_iter)
    ends = [
        QuasiNewton().minimise(
            near, problem.moved(start.parameters, -back), tol=FINE * tol, max_iter=left, rough=True, report=report
        )
        for start in (found, exact)
    ]
    first, second = (objective(near, end.parameters) for end in ends)
    # if both descents end at the same point, rounding must not choose between them
    lowest, end = (second, ends[1]) if second < (1 - tol) * first else (first, ends[0])
    is_sound = found.status in (Status.SOLVED, Status.NO_BOUND)
    ended = replace(
        end,
        parameters=problem.moved(end.parameters, back),
        status=end.status if is_sound else found.status,
        objective=lowest,
        n_iter=found.n_iter + end.n_iter,
    )
    return ended, Certificate(lowest, -np.inf, np.inf)
