"""The problem behind every linear method: losses of a margin deficit and a scale, plus a ridge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.loss import Array, Coupling, Loss
from holdfast._core.problem import Evaluation
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import MarginPass, Rows
from holdfast._core.solution import DualGuess
from holdfast._core.tolerances import AFFORDABLE, SMALL_WORK
from holdfast._data import rows_of
from holdfast._problems.gathered import GatheredRows
from holdfast._problems.linear import WIDEST_METRIC, LinearProblem
from holdfast._problems.local_margin_model import LocalMarginModel
from holdfast._problems.penalty import Penalty

SOME = 0.5
"""If at most this share of the rows has curvature, these rows are gathered before products are formed."""
METRIC_ROWS, SAMPLED = 20, 8
"""Rows per parameter with which a sample's Hessian resembles that of all rows, and the least ratio of all rows to
a larger sample."""

MOST_GATHERED = 2_000_000
"""Largest number of entries of rows that are gathered at a time (16 MB)."""
WIDE, MOST_ROWS = 4, 500
"""Above this ratio of features to rows, and up to this many rows, Newton steps use products of rows with each other."""


@dataclass
class MarginScaleProblem(LinearProblem):
    r"""Minimise :math:`\sum_i c_i\, \ell(u_i, t_i(w)) + \frac\alpha2 |w|^2`, :math:`u_i = \text{target} - y_i(w^\top x_i + b)`.

    Parameters are w, then b where `fit_intercept`. Rows, signs and weights are referred to, never copied.

    Attributes
    ----------
    signs, weights : ndarray of shape (n_samples,)
        y in {-1, +1} and c >= 0.
    target : float or ndarray of shape (n_samples,)
        The target margin: 1, except for errors of the weights, which raise it row by row, and for the collapse test.
    tilt : ndarray of shape (n_parameters,) or None
        A linear term added to the objective.
    penalty : Penalty or None
        A penalty on w besides the ridge.
    push : RowSets or None
        Further sets, over which the loss is maximised: its deficits become u + kappa * h, h their support, and
        (1 - kappa) * h is added to each row's loss. See :class:`NoiseAndSetProblem`.
    middles : matrix of shape (n_samples, n_features) or None
        The shifts that moved rows to the centres of their sets, dense or sparse like the rows.
    """

    rows: Rows
    signs: Array
    weights: Array
    loss: Loss
    sets: RowSets
    alpha: float = 0.0
    fit_intercept: bool = True
    target: float | Array = 1.0
    tilt: Array | None = None
    penalty: Penalty | None = None
    push: RowSets | None = None
    kappa: float = 1.0
    middles: Any = None

    @property
    def n_parameters(self) -> int:
        return self.rows.n_features + int(self.fit_intercept)

    def generators(self) -> Array | None:
        return super().generators() if self.penalty is None else None

    @property
    def enough(self) -> float:
        """A share of 1e-15 of the total weight: rounding. For a tilted objective only a fall below 0 matters."""
        return 1e-6 * self.floor if self.tilt is None else -self.floor

    def sized(self, factor: float) -> Self:
        sized = super().sized(factor)
        if self.middles is None:
            return sized
        # the centre of a set depends on its size
        blocks = [block + (factor - 1) * self.middles[part] for part, block in self.rows.blocks()]
        rows = rows_of(sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks))
        return sized.having(rows=rows, middles=factor * self.middles)

    def split(self, parameters: Array) -> tuple[Array, float]:
        """Return w and b."""
        if self.fit_intercept:
            return parameters[:-1], float(parameters[-1])
        return parameters, 0.0

    def join(self, w: Array, b: float) -> Array:
        """Return the parameters made of w and b."""
        if not self.fit_intercept:
            return w
        parameters = np.empty(len(w) + 1)
        parameters[:-1], parameters[-1] = w, b
        return parameters

    @np.errstate(over="ignore", invalid="ignore")  # a step too long is told from its infinite value
    def evaluate(self, parameters: Array) -> Evaluation:
        if self.gathered is not None:
            return self.gathered.evaluate(parameters)
        w, b = self.split(parameters)
        found = self.rows.margin_pass(self.loss, self.signs, self.weights, w, b, self.sets.support(w), self.target)
        return self.summed(parameters, w, found)

    @cached_property
    def gathered(self) -> GatheredRows | None:
        """The rows gathered with their labels in one array, if there are few enough rows for this to pay; else None."""
        is_simple = self.sets.is_common and self.tilt is None and self.penalty is None
        signed = self.rows.signed(self.signs) if is_simple else None
        return None if signed is None else GatheredRows(self, signed)

    def summed(self, parameters: Array, w: Array, found: MarginPass) -> Evaluation:
        """Return the evaluation that a pass over the rows gives, with ridge, tilt and penalty added."""
        # Danskin: differentiate as if every row's noise pointed where it hurts most.
        outward = self.sets.adjoint(w, found.scale_slopes)
        value = found.value + 0.5 * self.alpha * float(w @ w)
        gradient = self.join(outward - found.pull + self.alpha * w, -found.balance)
        if self.tilt is not None:
            value, gradient = value + float(self.tilt @ parameters), gradient + self.tilt
        if self.penalty is not None:
            value, gradient = value + self.penalty.value(w), gradient + self.join(self.penalty.slopes(w), 0.0)
        return Evaluation(parameters, value, gradient, self.stiffness(w, outward))

    def stiffness(self, w: Array, outward: Array) -> float:
        """Return the curvature that noise and ridge guarantee, 0 if unknown; `outward` is the pull of the noise."""
        square = float(w @ w)
        # with a ridge, proofs count the noise if it is a ball; without a ridge, they need a dual
        counts_noise = self.sets.is_isotropic if self.alpha > 0 else self.loss.has_dual
        return self.alpha + float(w @ outward) / square if counts_noise and square > 0 else self.alpha

    def at(self, parameters: Array) -> LocalMarginModel:
        return LocalMarginModel(self, parameters)

    def hessian(self, parameters: Array) -> Array:
        w, b = self.split(parameters)
        u, t = self.target - self.signs * (self.rows.dot(w) + b), self.sets.support(w)
        H = self.hessian_of(w, *(self.weights * part for part in self.loss.derivatives(u, t)[2:]))
        return H - self.coupled(w, self.loss.couplings(u, t))

    @np.errstate(over="ignore", invalid="ignore")
    def second_order(self, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        if self.gathered is not None:
            return self.gathered.second_order(parameters)
        w, b = self.split(parameters)
        u, t = self.target - self.signs * (self.rows.dot(w) + b), self.sets.support(w)
        losses, *slopes_and_bends = self.loss.derivatives(u, t)
        slopes, *parts = (self.weights * part for part in slopes_and_bends)
        r = self.signs * slopes
        found = MarginPass(float(self.weights @ losses), self.rows.transpose_dot(r), float(r.sum()), parts[0])

        here = self.summed(parameters, w, found)
        return (
            here.value,
            here.gradient,
            lambda: self.hessian_of(w, *parts) - self.coupled(w, self.loss.couplings(u, t)),
        )

    def coupled(self, w: Array, couplings: Sequence[Coupling]) -> Array | float:
        """Return the matrix that couplings of rows subtract from the Hessian."""
        return sum(np.outer(v, v) / total for v, total in self.couplings_at(w, couplings))

    def couplings_at(self, w: Array, couplings: Sequence[Coupling]) -> list[tuple[Array, float]]:
        """Return the vector v and the total of each coupling."""
        found = []
        for by_u, by_t, total in couplings:
            r = self.signs * by_u
            outward = self.sets.adjoint(w, by_t)
            found.append((self.join(outward - self.rows.transpose_dot(r), -float(r.sum())), total))
        return found

    def hessian_of(self, w: Array, slope_t: Array, uu: Array, ut: Array, tt: Array) -> Array:
        """Return the Hessian at w from the weighted derivatives of the rows' losses."""
        n, some = self.rows.n_features, np.flatnonzero(uu)
        H = np.zeros((self.n_parameters, self.n_parameters))
        if len(some) < SOME * len(uu) and not np.any(np.delete(ut, some)):
            # most rows' losses are straight here; the other rows are gathered, a part at a time
            size = max(1, MOST_GATHERED // n)
            for own in np.split(some, range(size, len(some), size)):
                rows, bound = self.rows.take(own), self.sets.take(own)
                H += self._rows_hessian(w, rows, bound, uu[own], self.signs[own] * ut[own])
        else:
            H += self._rows_hessian(w, self.rows, self.sets, uu, self.signs * ut)
        if len(slope_t) != len(tt):
            # the slopes of a set that all rows share may have been summed already
            tt = np.sum(tt, keepdims=True)
        H[:n, :n] += self.sets.curvature(w, slope_t, tt)
        H[np.arange(n), np.arange(n)] += self.alpha if self.penalty is None else self.alpha + self.penalty.bends(w)
        return H

    def _rows_hessian(self, w: Array, rows: Rows, bound: RowSets, uu: Array, mixed: Array) -> Array:
        """Return the part of the Hessian from rows and sets, without the curvature in the scales alone."""
        n = self.rows.n_features
        cross = bound.cross(w, rows, mixed)
        H = np.empty((self.n_parameters, self.n_parameters))
        H[:n, :n] = rows.gram(uu) - cross - cross.T
        if self.fit_intercept:
            H[n, :n] = H[:n, n] = rows.transpose_dot(uu) - bound.adjoint(w, mixed)
            H[n, n] = uu.sum()
        return H

    def typical_curvature(self) -> Array:
        # margins are of order 1, and so is the curvature of a loss within reach of them
        return float(self.weights.sum()) * self.join(self.rows.column_squares, 1.0)

    def metric(self, parameters: Array) -> Array:
        if self.rows.n_features <= WIDEST_METRIC:
            return self.sample.hessian(parameters)
        # only the shape matters: L-BFGS corrects the size from its first step on
        bends = self.alpha if self.penalty is None else self.alpha + self.penalty.bends(self.split(parameters)[0])
        return 0.25 * self.typical_curvature() + self.join(np.broadcast_to(bends, self.rows.n_features), 0.0)

    def suboptimality(self, here: Evaluation) -> float:
        return self.relative_gap(here.parameters, here.value, here.gradient, here.stiffness)

    def relative_gap(self, parameters: Array, value: float, gradient: Array, stiffness: float) -> float:
        r"""Return :math:`|g|^2 / (2\kappa)` over the value: the certified gap to leading order, kappa being `stiffness`."""
        w_part, b_part = self.split(gradient)
        scale = max(abs(value), self.floor)
        guaranteed = float(w_part @ w_part) / (2 * stiffness) if stiffness > 0 else np.inf
        if stiffness > self.alpha > 0 and not self.loss.has_dual:
            # noise has no curvature along w; with a dual, proofs find the best multiple of w
            w = self.split(parameters)[0]
            guaranteed += float(w_part @ w) ** 2 / float(w @ w) * (0.5 / self.alpha - 0.5 / stiffness)
        return (guaranteed + b_part**2 / (2 * scale)) / scale

    def longest_step(self, parameters: Array, step: Array) -> float:
        return self.longest_stretch(self.split(parameters)[0], self.split(step)[0])

    def longest_stretch(self, w: Array, move: Array) -> float:
        """Return the largest factor of `move` with which weights w stay clear of the kink at 0."""
        inside = np.inf if self.penalty is None else self.penalty.longest_step(w, move)
        if self.loss.is_worst_case or not (self.loss.is_homogeneous and self.sets.is_sublinear):
            return inside
        here, there = (float(np.mean(self.sets.support(v))) for v in (w, move))
        return min(inside, 0.9 * here / there) if there > 0 else inside

    @property
    def is_plain(self) -> bool:
        """Whether the objective has no tilt, so that it is a sum over rows."""
        return self.tilt is None

    @property
    def offers_steps(self) -> bool:
        return self.is_plain and bool(np.all(self.target == 1.0)) and super().offers_steps

    def work(self) -> dict[str, Any]:
        n, d = self.rows.n_samples, self.rows.n_features
        cheap = d <= 1000 and n * d * d <= SMALL_WORK
        if not self.sets.is_smooth or self.has_kinks:
            # at the small smoothings that replace kinks, no other steps make progress
            cheap = n * d * d <= AFFORDABLE
        return {
            "n_samples": n,
            "n_features": d,
            "n_entries": self.rows.n_entries,
            "is_cheap_to_factorise": cheap,
            "has_kinks": self.has_kinks,
            "is_wide": self.is_wide,
            "is_exact": self.sets.is_common and bool(np.all(self.sets.exact_features(d))),
        }

    @property
    def is_wide(self) -> bool:
        """Whether products of rows with each other cost far less than products of features."""
        return self.rows.n_features > WIDE * self.rows.n_samples and self.rows.n_samples <= MOST_ROWS

    @property
    def has_kinks(self) -> bool:  # type: ignore[override]
        return self.loss.is_worst_case or self.penalty is not None

    @cached_property
    def members(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.signs < 0), np.flatnonzero(self.signs > 0)]

    @property
    def codes(self) -> NDArray[np.intp]:
        return (self.signs > 0).astype(np.intp)

    def of_classes(self, rows: Rows, weights: Array) -> MarginScaleProblem:
        return replace(self, rows=rows, signs=np.array([-1.0, 1.0]), weights=weights)

    @property
    def n_vectors(self) -> int:
        return 1

    @property
    def ridge_per_vector(self) -> float:
        return self.alpha

    def known_norm_bound(self) -> float:
        return self.norm_bound(self.rows.transpose_dot(self.pull_per_class()))

    def restricted(self, rows: NDArray[np.intp], weights: Array) -> MarginScaleProblem:
        bound = self.sets.take(rows)
        target = self.target[rows] if isinstance(self.target, np.ndarray) else self.target
        some: dict[str, Any] = {
            "rows": self.rows.take(rows),
            "signs": self.signs[rows],
            "sets": bound,
            "target": target,
        }
        return replace(self, **some, weights=weights, **self.row_fields(rows))

    def row_fields(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        """Return the further fields that have entries for rows, for some rows."""
        return {} if self.middles is None else {"middles": self.middles[rows]}

    def signed(self, dual: Array) -> Array:
        return self.signs * dual

    def scales(self, parameters: Array) -> Array:
        return self.sets.support(self.split(parameters)[0])

    def snapped_to_kinks(self, parameters: Array, delta: float, factor: float) -> Array:
        w, b = self.split(parameters)
        w = self.sets.snapped_to_kinks(w, delta, factor)
        return self.join(w if self.penalty is None else self.penalty.snapped_to_kinks(w, delta, factor), b)

    def smoothed(self, delta: float) -> MarginScaleProblem:
        """Return the problem with sets, loss and penalty smoothed by `delta`; itself at 0."""
        if not delta > 0:
            return self
        penalty = None if self.penalty is None else self.penalty.smoothed(delta)
        return replace(self, sets=self.sets.smoothed(delta), loss=self.loss.smoothed(delta), penalty=penalty)

    def tidied(self, parameters: Array, delta: float) -> Array:
        return self.snapped_to_kinks(parameters, delta, 0.0)

    def smallest_typical_scale(self, parameters: Array) -> float:
        scales = self.scales(parameters)
        if scales.ndim == 0:
            return float(scales)
        return float(np.median(scales[scales > 0])) if np.any(scales > 0) else 0.0

    def constant_objective(self) -> float:
        return 2 * min(self.class_weights()) if self.fit_intercept else float(self.weights.sum())

    @property
    def sample_size(self) -> int:
        n, d = self.rows.n_samples, self.rows.n_features
        # a larger share would take a large part of a fit's memory, and its Hessian is no better a metric
        return max(METRIC_ROWS * self.n_parameters, min(8 * n // max(d, 16), n // SAMPLED))

    def dual_guess(self, parameters: Array) -> DualGuess:
        """Return the slopes in u at these parameters as dual weights."""
        w, b = self.split(parameters)
        t = self.sets.support(w)
        slopes = self.loss.evaluate(self.target - self.signs * (self.rows.dot(w) + b), t)[1]
        return DualGuess(slopes, w, t, self.sets)

    def push_of(self, w: Array) -> Array:
        """Return the support of the pushing sets, 0 if there are none."""
        return np.zeros(()) if self.push is None else self.push.support(w)

    def push_budgets(self, slopes: Array) -> Array:
        """Return how much of each pushing set rows with these slopes in u use."""
        return np.asarray(self.weights * (self.kappa * slopes + (1 - self.kappa)))

    def class_weights(self) -> tuple[float, float]:
        """Return the total weight of the negative and of the positive class."""
        # a difference of sums of the same numbers would be inexact for classes of very different weight
        return float(self.weights @ (self.signs < 0)), float(self.weights @ (self.signs > 0))

    def pull_per_class(self) -> Array:
        """Return r with X'r = half the distance of the class means (with intercept) or the mean of y x (without)."""
        negative, positive = self.class_weights()
        if self.fit_intercept:
            return np.where(self.signs > 0, 0.5 / positive, -0.5 / negative) * self.weights
        return self.weights * self.signs / (negative + positive)

    @property
    def noise_bounds_norm(self) -> bool:
        """Whether noise bounds the norm of the optimal w, given the rows' pull."""
        is_one_ball = self.sets.is_isotropic and self.sets.is_common
        if not is_one_ball or self.loss.is_worst_case or self.push is not None:
            return False
        # a loss without a bound for a pull of 0 has none at all
        return self._noise() > 0 and self.loss.largest_norm(0.0, 1.0, 1.0 if self.fit_intercept else None) < np.inf

    def _noise(self) -> float:
        return float(self.sets.support(np.eye(1, self.rows.n_features)[0]))

    def norm_bound(self, pull: Array | None) -> float:
        """Return a bound on the l2 norm of the optimal w: from the ridge, and from the noise where it is isotropic.

        `pull` is X'r with r of `pull_per_class`; it may be None where not `noise_bounds_norm`.
        """
        ridge = self.ridge_bound(self.loss)
        if pull is None or not self.noise_bounds_norm:
            return ridge
        sigma = self._noise()
        classes = self.class_weights()
        imbalance = 2 * max(classes) / sum(classes) if self.fit_intercept else None
        return min(ridge, self.loss.largest_norm(float(np.linalg.norm(pull)), sigma, imbalance))

    def ridge_bound(self, loss: Loss) -> float:
        """Return a bound on the l2 norm of the optimal w from ridge and penalty; `loss` gives the losses at w = 0."""
        # strong convexity: P(0, 0) >= P(w, b) + alpha / 2 |w|^2 at the optimum, where P(w, b) >= alpha / 2 |w|^2
        t = np.zeros(()) if self.sets.is_sublinear else self.sets.support(np.zeros(self.rows.n_features))
        # one value if all rows are alike
        u = np.full(max(np.shape(t), np.shape(self.target), (1,)), self.target)
        at_zero = float(np.sum(self.weights * loss.value(u, t)))
        ridge = float(np.sqrt(at_zero / self.alpha)) if self.alpha > 0 else np.inf
        return ridge if self.penalty is None else min(ridge, self.penalty.norm_bound(at_zero, self.rows.n_features))
