"""The choice of a solver that suits a problem; errors say why none does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.parameters import resolve
from holdfast._core.problem import Problem
from holdfast._core.solution import Solution
from holdfast._core.solver import Report, Solver, silent
from holdfast.solvers.clarabel import Clarabel
from holdfast.solvers.coordinate_descent import CoordinateDescent
from holdfast.solvers.deletion_interior_point import DeletionInteriorPoint
from holdfast.solvers.deletion_primal_dual import DeletionPrimalDual
from holdfast.solvers.highs import Highs
from holdfast.solvers.interior_point import InteriorPoint
from holdfast.solvers.lagged_newton import LaggedNewton
from holdfast.solvers.newton import Newton
from holdfast.solvers.newton_cg import NewtonCG
from holdfast.solvers.quasi_newton import QuasiNewton
from holdfast.solvers.semismooth import Semismooth
from holdfast.solvers.stochastic import SGD
from holdfast.solvers.stochastic_proximal import StochasticProximal

BUILT_IN: dict[str, type[Solver]] = {
    cls.name: cls
    for cls in (
        Newton,
        QuasiNewton,
        NewtonCG,
        LaggedNewton,
        CoordinateDescent,
        Semismooth,
        InteriorPoint,
        DeletionInteriorPoint,
        DeletionPrimalDual,
        Clarabel,
        Highs,
        SGD,
        StochasticProximal,
    )
}


DEFAULTS = [cls() for cls in BUILT_IN.values()]
"""One solver of each kind with its default settings, whose preferences are compared; solvers keep no state."""


def missing(problem: Problem, solver: Solver | type[Solver]) -> list[str]:
    """Return the names of the views that `solver` needs and `problem` does not offer."""
    return [kind.__name__ for kind in solver.needs if not problem.offers(kind)]


def pick(problem: Problem, solver: Solver | str | None = None) -> Solver:
    """Return the solver asked for, which must fit; with None, the fitting one that suits the problem's size best."""
    if solver is not None:
        return _asked_for(problem, solver)
    work = problem.work()
    # the most suitable solver comes first, so no conic form is built if another solver is better anyway
    for candidate in sorted(DEFAULTS, key=lambda default: -default.preference(work)):
        if not missing(problem, candidate):
            return candidate
    raise ValueError("No built-in solver fits this problem: it offers neither a smooth view nor a cone program.")


def _asked_for(problem: Problem, solver: Solver | str) -> Solver:
    chosen: Solver = resolve(solver, BUILT_IN, "solver=%s")
    if not isinstance(chosen, Solver):
        raise ValueError(f"solver={chosen!r}: give None, one of {', '.join(map(repr, BUILT_IN))}, or a solver object.")
    lacking = missing(problem, chosen)
    if not lacking:
        return chosen
    fitting = [name for name, cls in BUILT_IN.items() if not missing(problem, cls)]
    raise ValueError(
        f"solver={solver!r} needs the view {' and '.join(lacking)}, which this problem does not offer. {chosen.takes}"
        f"Solvers that fit: {', '.join(map(repr, fitting)) or 'none'}; solver=None picks one."
    )


def solve(
    problem: Problem,
    solver: Solver | str | None = None,
    *,
    start: NDArray[np.float64] | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    report: Report = silent,
) -> Solution:
    """Minimise `problem` with `solver`, or with the one that suits it best."""
    chosen = pick(problem, solver)
    begin = np.zeros(_size(problem)) if start is None else start
    return chosen.minimise(problem, begin, tol=tol, max_iter=max_iter, report=report)


def _size(problem: Any) -> int:
    return int(problem.n_parameters)
