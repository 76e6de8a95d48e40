"""Solvers: they minimise views and know neither losses nor sets."""

from holdfast.solvers.clarabel import Clarabel as Clarabel
from holdfast.solvers.deletion_interior_point import DeletionInteriorPoint as DeletionInteriorPoint
from holdfast.solvers.highs import Highs as Highs
from holdfast.solvers.interior_point import InteriorPoint as InteriorPoint
from holdfast.solvers.newton import Newton as Newton
from holdfast.solvers.newton_cg import NewtonCG as NewtonCG
from holdfast.solvers.quasi_newton import QuasiNewton as QuasiNewton
from holdfast.solvers.selection import pick as pick
from holdfast.solvers.selection import solve as solve
from holdfast.solvers.semismooth import Semismooth as Semismooth
from holdfast.solvers.stochastic import SGD as SGD
from holdfast.solvers.stochastic_proximal import StochasticProximal as StochasticProximal
