"""Solvers: they minimise, and know neither losses nor sets. Classifiers take a solver by name or as an object.

`SGD` and `StochasticProximal` are for large data and data that arrive in parts; `CoordinateDescent` is boosting in the
strict sense. Among the other solvers, classifiers pick the one that suits the problem. `compile` makes solvers faster
on large data.
"""

from holdfast._core.compiled import compile
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

__all__ = [
    "SGD",
    "Clarabel",
    "CoordinateDescent",
    "DeletionInteriorPoint",
    "DeletionPrimalDual",
    "Highs",
    "InteriorPoint",
    "LaggedNewton",
    "Newton",
    "NewtonCG",
    "QuasiNewton",
    "Semismooth",
    "StochasticProximal",
    "compile",
]
