"""The loss on validation rows as a function of the lengths of the ellipsoids that a classifier is trained for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from holdfast._core.loss import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.solver import Report, silent
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.losses.hyperbolic_hinge import HyperbolicHinge
from holdfast.solvers import Newton
from holdfast.solvers.in_box import minimised_in_box
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.row_ellipsoids import FactorEllipsoids

SMOOTHING = 1e-6
"""Noise on the score by which supports are smooth at w = 0."""
ACCURATE, TRAINING_STEPS = 1e-11, 200
"""The gain that the last Newton step of a training may still promise (it squares the error), and steps at most."""
ROUNDINGS = (1.0, 0.2, 0.06)
"""By how much the hinge is rounded, from stage to stage; it bends as much as a softplus of half that softness."""
SLOPE, GAIN, MOST_STEPS = 1e-4, 1e-6, 40
"""The slope, in squares as shares of the largest, and the gain of a step at which a stage ends, and its steps at most."""


def ellipsoids(squares: Array, slopes: Array | None) -> RowSets:
    """Return ellipsoids of lengths whose squares these are, of the features, or of what these have the slopes J_i in."""
    sizes = np.sqrt(squares)
    return CommonEllipsoid(sizes) if slopes is None else FactorEllipsoids(slopes * sizes)


class ValidatedLengths:
    r"""The validation loss :math:`V(\nu) = \sum_j c_j\, \psi(1 - y_j f_\nu(x_j))` of classifiers :math:`f_\nu` that minimise

    .. math:: \sum_i c_i\, \psi\bigl(1 - y_i (w^\top x_i + b) + t_i(w)\bigr) + \tfrac\alpha2 |w|^2, \qquad
              t_i(w)^2 = \sum_k \nu_k (J_i^\top w)_k^2,

    with :math:`\psi` the hinge rounded by a hyperbola, so that V has a gradient, by the implicit function theorem:
    :math:`\nabla V = -\partial_\nu (q^\top \nabla_\theta F)` with :math:`H q = \nabla_\theta V`, F being what is minimised and
    H its Hessian. Several problems (one for each class) are trained for the same lengths, and their validation losses added up.

    Parameters
    ----------
    trained : sequence of MarginScaleProblem
        With a ridge. Their loss and sets are replaced.
    judged : sequence of MarginScaleProblem
        The validation rows of each: with no ridge and no sets.
    slopes : ndarray of shape (n_samples, n_features, n_lengths) or None
        :math:`J_i`, the derivatives of the features in what the lengths are of; None for the features themselves.
    """

    def __init__(
        self, trained: Sequence[MarginScaleProblem], judged: Sequence[MarginScaleProblem], slopes: Array | None = None
    ):
        offset = trained[0].rows.offset() if trained[0].fit_intercept else None
        if offset is not None:  # an intercept makes up for it
            trained = [own.having(rows=own.rows.shifted(offset)) for own in trained]
            judged = [own.having(rows=own.rows.shifted(offset)) for own in judged]
        self.trained, self.judged, self.slopes = trained, judged, slopes
        self._last = [np.zeros(own.n_parameters) for own in trained]

    def sets(self, squares: Array) -> RowSets:
        """Return the ellipsoids of lengths whose squares these are."""
        return ellipsoids(squares, self.slopes)

    def value_and_gradient(self, squares: Array, scale: float) -> tuple[float, Array]:
        """Return V and its gradient in the squares nu of the lengths, for a hinge rounded by `scale`."""
        loss, bound = HyperbolicHinge(scale), self.sets(squares).smoothed(SMOOTHING)
        value, gradient = 0.0, np.zeros(len(squares))
        for k, (own, judged) in enumerate(zip(self.trained, self.judged, strict=True)):
            problem = own.having(loss=loss, sets=bound)
            theta = self._last[k] = (
                Newton().minimise(problem, self._last[k], tol=ACCURATE, max_iter=TRAINING_STEPS).parameters
            )
            own_value, slope = judged.having(loss=loss).value_and_gradient(theta)
            move = _solved(problem, theta, slope)
            value, gradient = value + own_value, gradient - self.pull(problem, theta, move, squares)
        return value, gradient

    def minimised(self, starts: Sequence[Array], low: Array, high: Array, *, report: Report = silent) -> Array:
        """Return squares of lengths between `low` and `high` with a low V: the best that any of the starts leads to.

        By L-BFGS in squares as shares of the largest, the rounding of the hinge taken back in stages.
        """
        unit = np.where(high > 0, high, 1.0)

        def loss(shares: Array, rounding: float) -> tuple[float, Array]:
            value, slope = self.value_and_gradient(shares * unit, rounding)
            return value, slope * unit

        best, least = low, np.inf
        for k, start in enumerate(starts):
            at, value = start / unit, np.inf
            for rounding in ROUNDINGS:
                report(f"start {k + 1} of {len(starts)}, hinge rounded by {rounding:g}")
                stage, bounds = partial(loss, rounding=rounding), (low / unit, high / unit)
                at, value = minimised_in_box(
                    stage, at, *bounds, tol=SLOPE, gain=GAIN, max_iter=MOST_STEPS, report=report
                )
            if value < least:
                best, least = at, value
        return np.clip(best * unit, low, high)

    def part(self, trained: NDArray[np.intp], judged: NDArray[np.intp], *, drawn: bool = False) -> Self:
        """Return what some of the rows make of it; with `drawn` they were drawn by their weights and count alike."""
        made = object.__new__(type(self))
        made.trained = [_some(own, trained, drawn) for own in self.trained]
        made.judged = [_some(own, judged, drawn) for own in self.judged]
        made.slopes = None if self.slopes is None else self.slopes[trained]
        made._last = [np.zeros(own.n_parameters) for own in self.trained]
        return made

    def pull(self, problem: MarginScaleProblem, theta: Array, move: Array, squares: Array) -> Array:
        """Return the derivatives in nu of the slope of what is minimised along a move of the parameters."""
        (w, b), (v, c) = problem.split(theta), problem.split(move)
        t = np.atleast_1d(problem.sets.support(w))
        root, turn = self._roots(w), self._roots(v)
        mixed = root * turn
        along = mixed @ squares / t
        u = 1 - problem.signs * (problem.rows.dot(w) + b)
        first = problem.weights * problem.loss.evaluate(u, t)[1]
        second = problem.weights * problem.loss.curvature(u, t)[0] * (along - problem.signs * (problem.rows.dot(v) + c))
        if self.slopes is None:  # one set for all rows
            first, second = np.array([first.sum()]), np.array([second.sum()])
        return np.square(root).T @ (0.5 * second / t - 0.5 * first * along / np.square(t)) + mixed.T @ (first / t)

    def _roots(self, w: Array) -> Array:
        """Return J_i'w, one row where all rows have the same."""
        return w[None, :] if self.slopes is None else np.einsum("ijk,j->ik", self.slopes, w)


def _some(problem: MarginScaleProblem, rows: NDArray[np.intp], drawn: bool) -> MarginScaleProblem:
    return problem.restricted(rows, np.full(len(rows), 1 / len(rows)) if drawn else problem.weights[rows])


def _solved(problem: Any, theta: Array, slope: Array) -> Array:
    """Return H^-1 slope, H being the Hessian of the problem."""
    H = problem.hessian(theta)
    scale = np.sqrt(np.diag(H))
    factor = cho_factor(H / np.outer(scale, scale) + 1e-15 * np.eye(len(slope)), lower=True)
    return np.asarray(cho_solve(factor, slope / scale) / scale)
