"""The exact minimum of a function of linear scores over a plane."""

from __future__ import annotations

from holdfast._core.problem import LocalModel
from holdfast._core.solver import Array
from holdfast.solvers.newton import Newton

SEARCH_STEPS = 50
"""Most Newton steps in the few coordinates of a plane; a handful is the rule."""


def best_along(here: LocalModel, step: Array, tol: float) -> LocalModel:
    """Return the best point among multiples of the weights plus multiples of `step`, with any intercepts.

    The search stops once a further step would lower the objective by less than its share `tol`.
    """
    plane = here.plane(step)
    return plane.model(Newton().minimise(plane, plane.start, tol=tol, max_iter=SEARCH_STEPS).parameters)
