"""The interface of linear problems for training, for any number of classes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array, Loss
from holdfast._core.problem import ITSELF, Composite, Curved, Evaluation, Offer, Problem, Smooth
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.solution import DualGuess
from holdfast._core.tolerances import GAP_FLOOR
from holdfast._problems.local_margin_model import heavy_block
from holdfast._problems.penalty import Penalty

WIDEST_METRIC = 1000
"""Largest number of features for which factorising a sample's Hessian pays."""
WIDEST_HESSIAN = 6000
"""Largest number of parameters for which a Hessian is formed (288 MB)."""


class LinearProblem(Problem):
    """Losses of linear scores and their scales under sets, plus a ridge: a dataclass with at least these fields."""

    rows: Rows
    weights: Array
    loss: Loss
    sets: RowSets
    alpha: float
    fit_intercept: bool

    views = {
        Smooth: ITSELF,
        Composite: ITSELF,
        Curved: Offer(lambda problem: problem, lambda problem: problem.n_parameters <= WIDEST_HESSIAN),
    }

    def having(self, **changes: Any) -> Self:
        """Return the same problem with some fields changed."""
        return cast(Self, replace(cast(Any, self), **changes))

    def sized(self, factor: float) -> Self:
        """Return the problem with the radius of the sets multiplied by a factor."""
        return self.having(sets=self.sets.resized(factor))

    def centred(self) -> tuple[Self, Array]:
        """Return the problem with rows moved to the origin, if they lie far from it and there is an intercept."""
        offset = self.rows.offset() if self.fit_intercept else None
        if offset is None:
            return self, np.zeros(self.rows.n_features)
        return self.having(rows=self.rows.shifted(offset)), offset

    def moved(self, parameters: Array, offset: Array) -> Array:
        """Return the same weights with the intercept that keeps the scores when rows are moved by `offset`."""
        w, b = self.split(parameters)
        return self.join(w, b - w @ offset)

    def generators(self) -> Array | None:
        """Return the vectors that, with the rows, span all directions that matter; None if other directions matter."""
        return self.sets.generators(self.rows.n_features)

    @property
    def floor(self) -> float:
        """The objective below which gaps are measured against the total weight."""
        return GAP_FLOOR * float(self.weights.sum())

    @property
    def enough(self) -> float:
        """An objective this small, a share of 1e-15 of the total weight, is rounding."""
        return 1e-6 * self.floor

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def split(self, parameters: Array) -> tuple[Array, Any]:
        """Return weights and intercept, or a matrix with a row of weights for each class, and the intercepts."""

    @abstractmethod
    def join(self, w: Array, b: Any) -> Array:
        """Return the parameters made of weights and intercepts."""

    @abstractmethod
    def evaluate(self, parameters: Array) -> Evaluation:
        """Return the objective, its gradient, and the curvature that noise and ridge guarantee."""

    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Return the objective and its gradient."""
        here = self.evaluate(parameters)
        return here.value, here.gradient

    @abstractmethod
    def hessian(self, parameters: Array) -> Array:
        """Return the Hessian of the objective."""

    @abstractmethod
    def scales(self, parameters: Array) -> Array:
        """Return the scale of every loss, or the distinct scales, in no particular order."""

    @abstractmethod
    def smallest_typical_scale(self, parameters: Array) -> float:
        """Return the smallest, over pairs of classes, of the median positive scale; 0 where some pair has none."""

    @abstractmethod
    def constant_objective(self) -> float:
        """Return the objective of the best constant prediction; inf if its optimality cannot be tested."""

    @abstractmethod
    def snapped_to_kinks(self, parameters: Array, delta: float, factor: float) -> Array:
        """Return the parameters with weights moved to the kinks of the sets; see :meth:`RowSets.snapped_to_kinks`."""

    penalty: Penalty | None = None
    push: RowSets | None = None

    @property
    def is_penalised(self) -> bool:
        """Whether there is a ridge or a penalty; if not, sets must cover the rows' pull to full precision."""
        return self.alpha > 0 or self.penalty is not None

    @property
    def is_held(self) -> bool:
        """Whether something grows with the weights even where they separate all rows."""
        return self.is_penalised

    @property
    def flipped_share(self) -> float:
        """The share of labels that may be wrong."""
        return 0.0

    @property
    def may_be_bounded(self) -> bool:
        """Whether a size of the sets at which w = 0 becomes optimal is known or can be found."""
        return self.push is None

    has_kinks = False
    """Whether worst-case losses or penalties have kinks besides those of the sets."""
    untidiness = 0.0
    """Gap that tidying may leave, as a multiple of the tolerance."""

    @abstractmethod
    def tidied(self, parameters: Array, delta: float) -> Array:
        """Return the parameters moved to the kinks that only a smoothing by `delta` has kept them from."""

    @abstractmethod
    def dual_guess(self, parameters: Array) -> DualGuess:
        """Return the slopes in u at these parameters as dual weights."""

    @property
    @abstractmethod
    def codes(self) -> NDArray[np.intp]:
        """The class of each row, 0, 1, ..."""

    @abstractmethod
    def of_classes(self, rows: Rows, weights: Array) -> Self:
        """Return the problem with one row for each class, under the noise of the first rows."""

    @property
    @abstractmethod
    def n_vectors(self) -> int:
        """The number of weight vectors: one for two classes, else one for each class."""

    @property
    @abstractmethod
    def ridge_per_vector(self) -> float:
        """The factor of a centred weight vector in the gradient of the ridge."""

    @abstractmethod
    def known_norm_bound(self) -> float:
        """Return a bound on the norm of the optimal weights, from one pass over the rows; inf where none is known."""

    @property
    def offers_steps(self) -> bool:
        """Whether rows can be visited one by one: the noise must be independent by feature."""
        return self.sets.deviations() is not None

    @abstractmethod
    def signed(self, dual: Array) -> Array:
        """Return each row's signed pull on the weights, from a certificate's dual weights."""

    @property
    @abstractmethod
    def members(self) -> list[NDArray[np.intp]]:
        """The rows of each class."""

    @abstractmethod
    def restricted(self, rows: NDArray[np.intp], weights: Array) -> Self:
        """Return the problem on some rows, with new weights."""

    @property
    def metric_age(self) -> int:
        """Number of steps after which a new metric pays."""
        # a Hessian costs n_features products of all rows, each about 16 times cheaper than a product in a pass
        return max(6, self.rows.n_features // 16)

    @cached_property
    def heavy_block(self) -> tuple[Any, Any, Array]:
        """The heaviest columns, some rows, and the block where they meet; see `preconditioner` of a place."""
        return heavy_block(self)

    def smoothed(self, delta: float) -> Self:
        """Return the problem with sets smoothed by `delta`, a noise on the score; unchanged at 0."""
        return self.having(sets=self.sets.smoothed(delta)) if delta > 0 else self

    def without_noise(self) -> LinearProblem | None:
        """Return a problem without noise whose solution is a start for this one, None if it would not be cheaper."""
        return None

    def thinned(self, n_samples: int) -> Self:
        """Return the problem on about `n_samples` rows, weighted to stand for all.

        They are taken at a regular stride within each class, so that no order of the rows can hide a class.
        """
        stride = max(1, self.rows.n_samples // n_samples)
        weights = self.weights.copy()
        parts = []
        for own in self.members:
            own = own[self.weights[own] > 0]
            part = own[::stride]
            weights[part] *= self.weights[own].sum() / max(self.weights[part].sum(), np.finfo(float).tiny)
            parts.append(part)
        chosen = np.sort(np.concatenate(parts))
        return self.restricted(chosen, weights[chosen])

    @property
    @abstractmethod
    def sample_size(self) -> int:
        """Size of a sample whose Hessian resembles that of all rows and costs no more than a pass over all rows."""

    @cached_property
    def sample(self) -> Self:
        """The problem on `sample_size` rows; the whole problem if that would be most rows."""
        return self.thinned(self.sample_size) if self.rows.n_samples >= 2 * self.sample_size else self

    def sample_worth_solving(self) -> Self | None:
        """Return the problem on a sample large enough for a start, or None if no sample pays."""
        if self.rows.n_samples < 3 * self.sample_size or self.rows.n_features > WIDEST_METRIC:
            return None
        rarest = min(np.count_nonzero(self.sample.weights[own] > 0) for own in self.sample.members)
        return self.sample if rarest >= 10 else None
