"""The validation loss of a classifier as a function of the lengths of the ellipsoids used in its training."""

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
"""Noise added to the score to make supports smooth at w = 0."""
ACCURATE, TRAINING_STEPS = 1e-11, 200
"""Newton steps of a training end at this promised gain (each squares the error) or after this number of steps."""
ROUNDINGS = (1.0, 0.2, 0.06)
"""Rounding of the hinge in each stage; it bends as much as a softplus of half that softness."""
SLOPE, GAIN, MOST_STEPS = 1e-4, 1e-6, 40
"""A stage ends at this slope (for squares as shares of the largest), at this gain of a step, or after so many steps."""


def ellipsoids(squares: Array, slopes: Array | None) -> RowSets:
    """Return ellipsoids with these squared lengths along the features, or along the variables of the slopes J_i."""
    sizes = np.sqrt(squares)
    return CommonEllipsoid(sizes) if slopes is None else FactorEllipsoids(slopes * sizes)


class ValidatedLengths:
    r"""The validation loss :math:`V(\nu) = \sum_j c_j\, \psi(1 - y_j f_\nu(x_j))` of classifiers :math:`f_\nu` that minimise

    .. math:: \sum_i c_i\, \psi\bigl(1 - y_i (w^\top x_i + b) + t_i(w)\bigr) + \tfrac\alpha2 |w|^2, \qquad
              t_i(w)^2 = \sum_k \nu_k (J_i^\top w)_k^2,

    with :math:`\psi` the hinge rounded by a hyperbola, so that V has a gradient, by the implicit function theorem:
    :math:`\nabla V = -\partial_\nu (q^\top \nabla_\theta F)` with :math:`H q = \nabla_\theta V`, F being what is
    minimised and H its Hessian. If there are several problems (one for each class), all have the same lengths, and V
    sums their validation losses.

    Parameters
    ----------
    trained : sequence of MarginScaleProblem
        The training problems, with a ridge. Their loss and sets are replaced.
    judged : sequence of MarginScaleProblem
        The validation rows of each problem, without a ridge and without sets.
    slopes : ndarray of shape (n_samples, n_features, n_lengths) or None
        :math:`J_i`, the derivatives of the features with respect to the variables that have the lengths; None if these
        variables are the features.
    """

    def __init__(
        self, trained: Sequence[MarginScaleProblem], judged: Sequence[MarginScaleProblem], slopes: Array | None = None
    ):
        offset = trained[0].rows.offset() if trained[0].fit_intercept else None
        if offset is not None:  # the intercept absorbs the shift
            trained = [own.having(rows=own.rows.shifted(offset)) for own in trained]
            judged = [own.having(rows=own.rows.shifted(offset)) for own in judged]
        self.trained, self.judged, self.slopes = trained, judged, slopes
        self._last = [np.zeros(own.n_parameters) for own in trained]

    def sets(self, squares: Array) -> RowSets:
        """Return the ellipsoids with these squared lengths."""
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
        """Return squares of lengths between `low` and `high` with a low V: the best result from all starts.

        L-BFGS minimises over squares as shares of the largest, while the rounding of the hinge is reduced in stages.
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
        """Return the same loss on some of the rows; with `drawn` they were drawn by their weights and count equally."""
        made = object.__new__(type(self))
        made.trained = [_some(own, trained, drawn) for own in self.trained]
        made.judged = [_some(own, judged, drawn) for own in self.judged]
        made.slopes = None if self.slopes is None else self.slopes[trained]
        made._last = [np.zeros(own.n_parameters) for own in self.trained]
        return made

    def pull(self, problem: MarginScaleProblem, theta: Array, move: Array, squares: Array) -> Array:
        """Return the derivatives in nu of the training objective's slope along a move of the parameters."""
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
        """Return J_i'w, as a single row if it is the same for all rows."""
        return w[None, :] if self.slopes is None else np.einsum("ijk,j->ik", self.slopes, w)


def _some(problem: MarginScaleProblem, rows: NDArray[np.intp], drawn: bool) -> MarginScaleProblem:
    return problem.restricted(rows, np.full(len(rows), 1 / len(rows)) if drawn else problem.weights[rows])


def _solved(problem: Any, theta: Array, slope: Array) -> Array:
    """Return H^-1 slope, where H is the Hessian of the problem."""
    H = problem.hessian(theta)
    scale = np.sqrt(np.diag(H))
    factor = cho_factor(H / np.outer(scale, scale) + 1e-15 * np.eye(len(slope)), lower=True)
    return np.asarray(cho_solve(factor, slope / scale) / scale)
