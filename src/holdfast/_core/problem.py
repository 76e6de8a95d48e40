"""Problems, and the views through which solvers that call functions see them; `programs` has those written out as data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
View = TypeVar("View")


class Evaluation(NamedTuple):
    """A problem evaluated at one point: everything by which a solver judges the point, so that problems keep no state."""

    parameters: Array
    value: float
    gradient: Array
    stiffness: Any = 0.0
    """The curvature that is guaranteed there, in a form that only the problem itself reads."""


@runtime_checkable
class Smooth(Protocol):
    """A convex function with a gradient."""

    @property
    def n_parameters(self) -> int:
        """How many parameters there are."""
        ...

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def evaluate(self, parameters: Array) -> Evaluation:
        """Return the objective, its gradient, and what `suboptimality` needs to know."""
        ...

    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Return the objective and its gradient."""
        ...

    @property
    def metric_age(self) -> int:
        """The number of steps after which a new metric is worth its cost."""
        ...

    def typical_curvature(self) -> Array:
        """Return the typical size of the Hessian's diagonal, shape (n_parameters,)."""
        ...

    def metric(self, parameters: Array) -> Array:
        """Return a cheap estimate of the Hessian: a matrix, its diagonal, or diagonal blocks of equal size (k, m, m)."""
        ...

    def suboptimality(self, here: Evaluation) -> float:
        """Return an estimate of the certified relative gap at the point of this evaluation."""
        ...

    def longest_step(self, parameters: Array, step: Array) -> float:
        """Return the largest factor of `step` that stays clear of a kink, inf where there is none."""
        ...


@runtime_checkable
class Curved(Smooth, Protocol):
    """A smooth function whose Hessian fits in memory."""

    def hessian(self, parameters: Array) -> Array:
        """Return the Hessian, shape (n_parameters, n_parameters)."""
        ...

    def second_order(self, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        """Return the objective, its gradient, and a function that makes the Hessian from the same intermediate results."""
        ...


@runtime_checkable
class Rounded(Protocol):
    """A function whose kinks are rounded by hyperbolas, each of which a solver may keep a slope for."""

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def typical_curvature(self) -> Array:
        """Return the typical size of the Hessian's diagonal, shape (n_parameters,)."""
        ...

    def rounded_at(self, parameters: Array) -> RoundedModel:
        """Return what is known of the function there."""
        ...


class RoundedModel(Protocol):
    r"""A function with terms :math:`\sqrt{x^2 + c^2}` seen from one point; their slopes are :math:`q = x / \sqrt{x^2 + c^2}`.

    Written :math:`q \sqrt{x^2 + c^2} = x`, the law of a slope is nearly bilinear, and steps that linearise it in x and q lead
    to the minimum from much farther than those that linearise q in x alone, the less the rounding the more.
    """

    parameters: Array
    value: float
    gradient: Array

    @property
    def slopes(self) -> Array:
        """The slopes of all terms there, between -1 and 1."""
        ...

    def hessian(self, slopes: Array) -> Array:
        """Return the Hessian with bends by slopes that were kept for the terms; by their own it is the Hessian itself."""
        ...

    def slopes_after(self, slopes: Array, step: Array) -> Array:
        """Return the slopes to keep after a step of the parameters."""
        ...


@runtime_checkable
class Composite(Protocol):
    """A convex function of linear scores, which can be minimised exactly over a plane through a point."""

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def at(self, parameters: Array) -> LocalModel:
        """Return what is known of the function there."""
        ...


@runtime_checkable
class Coordinatewise(Protocol):
    """A function that is lowered one parameter at a time, or all at once, by steps that need no search."""

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def coordinates(self, parameters: Array) -> Coordinates:
        """Return what is known of the function there, to be moved."""
        ...


class Coordinates(Protocol):
    """A point that moves in steps each of which lowers the function."""

    n_blocks: int
    """The number of blocks: parameters with steps of their own, each with those that move along."""

    @property
    def parameters(self) -> Array:
        """Where it is."""
        ...

    @property
    def value(self) -> float:
        """The function there."""
        ...

    def gap(self) -> float:
        """Return an estimate of the certified relative gap, recomputed from the rows."""
        ...

    def gains(self) -> Array:
        """Return a lower bound on the gain of each block's step, shape (n_blocks,)."""
        ...

    def move(self, block: int) -> None:
        """Take the step of one block."""
        ...

    def move_all(self) -> None:
        """Take a step of all blocks at once."""
        ...

    def settle(self) -> None:
        """Take the steps of what goes along with the blocks."""
        ...


class LocalModel(Protocol):
    """A function seen from one point."""

    parameters: Array
    value: float

    @property
    def gradient(self) -> Array:
        """The gradient, which may cost a pass over the rows when it is first asked for."""
        ...

    def gap(self, gradient: Array) -> float:
        """Return an estimate of the certified relative gap at a point near this one that has this gradient."""
        ...

    def product(self, v: Array, *, exact: bool = True) -> tuple[Array, Array]:
        """Return the Hessian times v, and how the scores move along v; off by a share of 1e-6 where it need not be exact."""
        ...

    def hessian(self, *, whole: bool = False) -> Array:
        """Return the Hessian, without faint contributions unless `whole`; only for problems seen as `Curved` too."""
        ...

    def preconditioner(self) -> Callable[[Array], Array]:
        """Return v -> M^-1 v for a positive definite M that resembles the Hessian."""
        ...

    def plane(self, step: Array, moves: Array | None = None) -> Plane:
        """Return the function over multiples of the weights plus multiples of `step`, with any intercepts.

        `moves` is how the scores move along the step, where products have told.
        """
        ...


class Offer(NamedTuple):
    """The way in which problems of a class are seen as a kind of view."""

    make: Callable[[Any], Any]
    """From the problem to the view."""
    is_possible: Callable[[Any], bool] = lambda problem: True
    """Whether this problem can be seen that way; answered without building the view."""


ITSELF = Offer(lambda problem: problem)
"""The problem is the view."""
WITHHELD = Offer(lambda problem: None, lambda problem: False)
"""Problems of this class cannot be seen that way, though those of its base class can."""


class Problem:
    """Something to minimise, seen through views.

    A class states its views in `views`, and inherits those of its bases. A module that makes views of another one's problems
    registers them by `seen_as`. What is not stated is offered by problems that have the members of the view themselves.
    """

    views: ClassVar[dict[type, Offer]] = {}

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls.views = dict(cls.__dict__.get("views", {}))

    @classmethod
    def seen_as(
        cls, kind: type[View], is_possible: Callable[[Any], bool] = ITSELF.is_possible
    ) -> Callable[[Callable[[Any], View]], Callable[[Any], View]]:
        """Return a decorator for a function that makes this kind of view of problems of this class."""

        def register(make: Callable[[Any], View]) -> Callable[[Any], View]:
            cls.views[kind] = Offer(make, is_possible)
            return make

        return register

    def _offer(self, kind: type) -> Offer:
        for base in type(self).__mro__:
            stated = base.__dict__.get("views", {})
            if kind in stated:
                return cast(Offer, stated[kind])
        return ITSELF if isinstance(self, kind) else WITHHELD

    def view(self, kind: type[View]) -> View | None:
        """Return the problem as this kind of view, or None where it cannot be seen that way."""
        offer = self._offer(kind)
        return offer.make(self) if offer.is_possible(self) else None

    def offers(self, kind: type) -> bool:
        """Return whether it can be seen as this kind of view, without building it."""
        return self._offer(kind).is_possible(self)

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit.

        These are n_samples, n_features, n_entries (numbers that a pass reads) and is_cheap_to_factorise.
        """
        raise NotImplementedError

    def second_order(self: Any, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        """Return what `Curved` says, for any problem that has its other methods."""
        return *self.value_and_gradient(parameters), partial(self.hessian, parameters)


class Plane(Problem):
    """A `Curved` function of few numbers: coordinates in a plane through a point, and any intercepts."""

    views = {Curved: ITSELF}
    start: Array
    """The coordinates of that point."""
    ahead: Array
    """The coordinates of the point one step on."""

    def model(self, parameters: Array) -> LocalModel:
        """Return what is known of the whole function at the point with these coordinates."""
        raise NotImplementedError
