"""Views: what a problem can offer a solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
View = TypeVar("View")


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

    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Return the objective and its gradient."""
        ...

    @property
    def metric_age(self) -> int:
        """After how many steps a new metric is worth its price."""
        ...

    def typical_curvature(self) -> Array:
        """Return the size of the Hessian's diagonal where the function bends as it should, shape (n_parameters,)."""
        ...

    def metric(self, parameters: Array) -> Array:
        """Return a cheap estimate of the Hessian: a matrix, or its diagonal as a vector."""
        ...

    def suboptimality(self, parameters: Array, value: float, gradient: Array) -> float:
        """Return an estimate of the certified relative gap from what an evaluation gave."""
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


@runtime_checkable
class Composite(Protocol):
    """A convex function of linear scores: known at a place, where it can be minimised exactly over a plane."""

    @property
    def enough(self) -> float:
        """The objective at which a solver may stop: no smaller one would matter."""
        ...

    def at(self, parameters: Array) -> Place:
        """Return what is known of the function there."""
        ...


class Place(Protocol):
    """A function seen from one point."""

    parameters: Array
    value: float
    gradient: Array

    def gap(self, gradient: Array) -> float:
        """Return an estimate of the certified relative gap at a point near this one that has this gradient."""
        ...

    def product(self, v: Array) -> Array:
        """Return the Hessian times v."""
        ...

    def preconditioner(self) -> Callable[[Array], Array]:
        """Return v -> M^-1 v for a positive definite M that resembles the Hessian."""
        ...

    def best_along(self, step: Array, tol: float) -> Place:
        """Return the best place among multiples of the weights plus multiples of `step`, with any intercepts.

        It need not be better than by a share `tol` of the objective.
        """
        ...


@dataclass
class Epigraph:
    """How a conic solver sees a loss of one row: a linear cost and cones over (u, t, extra variables).

    Each entry of `cones` is (kind, G) and says that G (u, t, extra) lies in that cone.
    """

    cost: Sequence[float]
    cones: Sequence[tuple[str, Sequence[Sequence[float]]]]


@dataclass
class ConeProgram:
    """Minimise ``q'v + v'P v / 2 + constant`` subject to ``b - A v`` in a product of cones.

    `cones` lists (kind, size) with kinds "zero", "nonnegative", "second_order" and "exponential";
    the first `n_parameters` entries of v are the problem's parameters.
    """

    P: sparse.csc_matrix
    q: Array
    A: sparse.csc_matrix
    b: Array
    cones: list[tuple[str, int]]
    n_parameters: int
    constant: float = 0.0


class Problem:
    """Something to minimise, seen through views."""

    def view(self, kind: type[View]) -> View | None:
        """Return the problem as this kind of view, or None where it cannot be seen that way."""
        return self if isinstance(self, kind) else None

    def offers(self, kind: type) -> bool:
        """Return whether it can be seen as this kind of view, without building it."""
        return self.view(kind) is not None

    def work(self) -> dict[str, Any]:
        """Return the sizes by which solvers judge whether they suit.

        These are n_samples, n_features, n_entries (numbers that a pass reads) and is_cheap_to_factorise.
        """
        raise NotImplementedError
