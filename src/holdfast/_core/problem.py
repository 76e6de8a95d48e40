"""Problems, and views of them for solvers that call functions; `programs` has views written out as data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
View = TypeVar("View")


class Evaluation(NamedTuple):
    """A problem evaluated at one point: all that a solver needs to judge the point, so that problems keep no state."""

    parameters: Array
    value: float
    gradient: Array
    stiffness: Any = 0.0
    """A guaranteed curvature at the point, in a form that only the problem reads."""


@runtime_checkable
class Smooth(Protocol):
    """A convex function with a gradient."""

    @property
    def n_parameters(self) -> int:
        """The number of parameters."""
        ...

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def evaluate(self, parameters: Array) -> Evaluation:
        """Return the objective, its gradient, and the data that `suboptimality` needs."""
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
        """Return the largest factor of `step` that does not reach a kink, inf if there is no kink."""
        ...


@runtime_checkable
class Curved(Smooth, Protocol):
    """A smooth function whose Hessian fits in memory."""

    def hessian(self, parameters: Array) -> Array:
        """Return the Hessian, shape (n_parameters, n_parameters)."""
        ...

    def second_order(self, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        """Return the objective, its gradient, and a function for the Hessian that reuses intermediate results."""
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
        """Return a local model of the function at these parameters."""
        ...


@runtime_checkable
class Coordinatewise(Protocol):
    """A function that can be lowered one parameter at a time, or all at once, by steps without a line search."""

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def coordinates(self, parameters: Array) -> Coordinates:
        """Return a movable point at these parameters."""
        ...


class Coordinates(Protocol):
    """A point that moves in steps, each of which lowers the function."""

    n_blocks: int
    """The number of blocks: a block is a parameter with its own step, and the parameters that move along with it."""

    @property
    def parameters(self) -> Array:
        """The current parameters."""
        ...

    @property
    def value(self) -> float:
        """The value of the function at the current parameters."""
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
        """Take the steps of the parameters that move along with the blocks."""
        ...


class LocalModel(Protocol):
    """A model of a function around one point."""

    parameters: Array
    value: float

    @property
    def gradient(self) -> Array:
        """The gradient; the first access may take a pass over the rows."""
        ...

    def gap(self, gradient: Array) -> float:
        """Return an estimate of the certified relative gap at a point near this one with the given gradient."""
        ...

    def product(self, v: Array, *, exact: bool = True) -> tuple[Array, Array]:
        """Return the Hessian times v, and the change of the scores along v, up to a share of 1e-6 unless `exact`."""
        ...

    def hessian(self, *, whole: bool = False) -> Array:
        """Return the Hessian, without negligible terms unless `whole`; only for problems that are also `Curved`."""
        ...

    def preconditioner(self) -> Callable[[Array], Array]:
        """Return v -> M^-1 v for a positive definite M that resembles the Hessian."""
        ...

    def plane(self, step: Array, moves: Array | None = None) -> Plane:
        """Return the function over multiples of the weights plus multiples of `step`, with any intercepts.

        `moves` is the change of the scores along the step, if known from products.
        """
        ...


class Offer(NamedTuple):
    """How problems of a class are turned into a kind of view."""

    make: Callable[[Any], Any]
    """Maps the problem to the view."""
    is_possible: Callable[[Any], bool] = lambda problem: True
    """Whether this problem has the view; answered without building it."""


ITSELF = Offer(lambda problem: problem)
"""The problem is itself the view."""
WITHHELD = Offer(lambda problem: None, lambda problem: False)
"""Problems of this class do not have the view, though those of a base class do."""


class Problem:
    """A problem to minimise, which solvers see through views.

    A class states its views in `views`, and inherits those of its base classes. A module that makes views of another
    module's problems registers them with `seen_as`. A view that is not stated is offered by problems that have its
    members.
    """

    views: ClassVar[dict[type, Offer]] = {}

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls.views = dict(cls.__dict__.get("views", {}))

    @classmethod
    def seen_as(
        cls, kind: type[View], is_possible: Callable[[Any], bool] = ITSELF.is_possible
    ) -> Callable[[Callable[[Any], View]], Callable[[Any], View]]:
        """Return a decorator that registers a function from problems of this class to this kind of view."""

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
        """Return the problem as this kind of view, or None if it does not have it."""
        offer = self._offer(kind)
        return offer.make(self) if offer.is_possible(self) else None

    def offers(self, kind: type) -> bool:
        """Return whether the problem has this kind of view, without building it."""
        return self._offer(kind).is_possible(self)

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers state how well they suit the problem.

        These are n_samples, n_features, n_entries (numbers that a pass reads) and is_cheap_to_factorise.
        """
        raise NotImplementedError

    def second_order(self: Any, parameters: Array) -> tuple[float, Array, Callable[[], Array]]:
        """Return the results of `Curved.second_order`, for any problem with the other methods of `Curved`."""
        return *self.value_and_gradient(parameters), partial(self.hessian, parameters)


class Plane(Problem):
    """A `Curved` function of few numbers: coordinates in a plane through a point, and any intercepts."""

    views = {Curved: ITSELF}
    start: Array
    """The coordinates of the point."""
    ahead: Array
    """The coordinates of the point after one step."""

    def model(self, parameters: Array) -> LocalModel:
        """Return a local model of the whole function at the point with these coordinates."""
        raise NotImplementedError
