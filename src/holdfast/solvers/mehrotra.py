"""Mehrotra's predictor-corrector method: the loop, the lengths of its steps, and the best points so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import LinAlgError

from holdfast._core.solution import Status
from holdfast._core.solver import Report

SPARE = 0.3
"""Steps stop at this share of the tolerated gap, so that the proof, made elsewhere, does not narrowly miss it."""
CONTENT = 1e-9
"""A relative gap this small counts as solved even if a smaller one is asked for: floating point may allow no better."""
NO_STEP = 1e-2
"""A step shorter than this share of the full one counts as no progress."""


@dataclass
class Best:
    """The best primal and the best dual point so far, which need not belong together."""

    floor: float
    """The gap is measured against the objective, or against this number where that is smaller."""
    rounding: float = 0.0
    """A difference of value and bound this small is attributed to rounding."""
    value: float = np.inf
    bound: float = -np.inf
    primal: Any = None
    dual: Any = None
    age: int = 0
    """Number of points seen since the gap last fell by a tenth."""

    def see(self, value: float, primal: Any, bound: float, dual: Any, *, is_on_the_way: bool = False) -> None:
        """Keep value and bound if they are the best so far; a point that `is_on_the_way` resets the age in any case."""
        before = self.gap
        if value < self.value or self.primal is None:
            self.value, self.primal = value, primal
        # a bound clearly above an attained value is not valid: rounding has made these dual weights infeasible
        if self.bound == -np.inf or self.bound < bound <= self.value + self.rounding:
            self.bound, self.dual = bound, dual
        is_better = self.gap < 0.9 * before or not np.isfinite(before)
        self.age = 0 if is_better or is_on_the_way else self.age + 1

    @property
    def scale(self) -> float:
        """The number that the gap is measured against."""
        return max(abs(self.value), self.floor)

    @property
    def gap(self) -> float:
        """The relative gap, inf before the first point."""
        return np.inf if self.dual is None else (self.value - self.bound) / self.scale


class PrimalDual(ABC):
    """A program at a point strictly between its bounds; the products of slacks and multipliers go to 0 together.

    Each step solves the optimality conditions for prescribed products of slacks and multipliers. `turn` sets the
    direction, which holds until it is called again.
    """

    title: ClassVar[str]
    """The name of the method in reports."""
    patience: ClassVar[int]
    """The method gives up after this many points without a better gap, or very short steps, in a row."""
    finest: ClassVar[float]
    """The smallest gap that is worth aiming at."""
    least_centring: ClassVar[float] = 0.0
    """Each step aims at no less than this share of the mean product."""
    most_correction: ClassVar[float] = np.inf
    """Largest correction of a product, as a multiple of the mean product."""

    best: Best
    unit: float
    """The unit of objective values; reports multiply values by it."""
    has_one_length: bool
    """Whether primal and dual must take steps of equal length, since nonlinear terms couple them."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """The mean product of slack and multiplier."""

    @abstractmethod
    def look(self, goal: float) -> None:
        """Show the point to `best`, unless its gap is certainly far above the goal."""

    @abstractmethod
    def factorise(self) -> None:
        """Factorise the equations of a step from here; raise LinAlgError if rounding prevents it."""

    @abstractmethod
    def turn(self, aim: float, most: float) -> tuple[float, float]:
        """Set the direction towards products `aim`, and return how many times it fits before a bound, primal and dual.

        With `most` > 0, the last direction's products of slack and multiplier changes are subtracted, each clipped to
        +-`most`: Mehrotra's correction.
        """

    @abstractmethod
    def product(self, primal: float, dual: float) -> float:
        """Return the mean product after steps of these lengths."""

    @abstractmethod
    def move(self, primal: float, dual: float) -> bool:
        """Take a step of these lengths, unless it is not finite; return whether it was taken."""

    @abstractmethod
    def share(self, mu: float) -> float:
        """Return the share of the way to the boundary that a step may go."""

    def correct(self, mu: float, centring: float, predicted: tuple[float, float]) -> tuple[float, float]:
        """Set the corrected direction after a predictor of these lengths; return how many times it fits."""
        return self.turn(centring * mu, self.most_correction * mu)

    def lengths(self, fits: tuple[float, float], share: float = 1.0) -> tuple[float, float]:
        """Return the step lengths, 1 at most, that go this share of the way to the boundary."""
        primal, dual = (min(fits), min(fits)) if self.has_one_length else fits
        return min(1.0, share * primal), min(1.0, share * dual)

    def step(self) -> float:
        """Take a step, and return its larger length; 0 if rounding prevents any step."""
        mu = self.mu
        try:
            self.factorise()
        except LinAlgError:
            return 0.0
        primal, dual = self.turn(0.0, 0.0)
        predicted = min(1.0, primal), min(1.0, dual)
        # the better the predictor, the less centring is needed: Mehrotra's cube
        centring = max((self.product(*predicted) / mu) ** 3, self.least_centring)
        taken = self.lengths(self.correct(mu, centring, predicted), self.share(mu))
        return max(taken) if self.move(*taken) else 0.0

    def solve(self, *, tol: float, max_iter: int, report: Report) -> tuple[Status, int]:
        """Step until the best gap is within a share of `tol`; return the status and the number of steps."""
        goal = max(SPARE * tol, self.finest)
        status, n_iter, idle = Status.ITERATION_LIMIT, 0, 0
        for n_iter in range(1, max_iter + 1):
            self.look(goal)
            report(
                f"{self.title} {n_iter}: objective {self.best.value * self.unit:.10g}, mean product {self.mu:.3g}, "
                f"estimated gap {self.best.gap:.2e}"
            )
            if self.best.gap <= goal or self.best.value - self.best.bound <= self.best.rounding:
                return Status.SOLVED, n_iter
            length = 0.0 if self.best.age >= self.patience else self.step()
            # long steps may follow one short step, but not several in a row
            idle = 0 if length > NO_STEP else idle + 1
            if length == 0 or idle >= self.patience:
                status = Status.STALLED
                break
        # the last point may be the best one; `look` may have skipped it as too rough
        self.look(np.inf)
        return (Status.SOLVED if self.best.gap <= max(tol, CONTENT) else status), n_iter
