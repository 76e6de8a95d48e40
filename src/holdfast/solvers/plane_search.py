"""The exact minimum of a function of linear scores over a plane."""

from __future__ import annotations

import numpy as np

from holdfast._core.problem import Curved, LocalModel
from holdfast._core.solver import Array
from holdfast.solvers.newton import Newton

SEARCH_STEPS = 50
"""Most Newton steps in the few coordinates of a plane; a handful is usual."""


def best_along(
    here: LocalModel, step: Array, tol: float, enough: float = np.inf, moves: Array | None = None
) -> LocalModel:
    """Return the best point among multiples of the weights plus multiples of `step`, with any intercepts.

    The search stops once a further step would lower the objective by less than its share `tol`. If the full step gains
    `enough`, there is no search. `moves` is the change of the scores along the step, if known.
    """
    plane = here.plane(step, moves)
    if enough < np.inf:
        curve = plane.view(Curved)
        assert curve is not None
        is_clear = curve.longest_step(plane.start, plane.ahead - plane.start) >= 1
        if is_clear and curve.value_and_gradient(plane.ahead)[0] <= here.value - enough:
            return plane.model(plane.ahead)
    return plane.model(Newton().minimise(plane, plane.start, tol=tol, max_iter=SEARCH_STEPS).parameters)
