"""Classifiers that hold when the data does not."""

from holdfast._core.exceptions import CollapseWarning as CollapseWarning
from holdfast._core.version import __version__ as __version__
from holdfast.datasets import intervals_from_replicates as intervals_from_replicates
from holdfast.estimators import AlternatingSVC as AlternatingSVC
from holdfast.estimators import GaussianRobustClassifier as GaussianRobustClassifier
from holdfast.estimators import GaussianRobustClassifierCV as GaussianRobustClassifierCV
from holdfast.estimators import NoisePath as NoisePath
from holdfast.estimators import RadiusPath as RadiusPath
from holdfast.estimators import RobustLinearClassifier as RobustLinearClassifier
from holdfast.estimators import RobustLinearClassifierCV as RobustLinearClassifierCV
from holdfast.estimators import critical_noise as critical_noise
from holdfast.estimators import critical_radius as critical_radius
from holdfast.estimators import noise_path as noise_path
from holdfast.estimators import radius_path as radius_path
from holdfast.estimators import recover_from_dual as recover_from_dual
from holdfast.estimators import separability_radius as separability_radius
from holdfast.solvers import SGD as SGD
from holdfast.solvers import StochasticProximal as StochasticProximal
from holdfast.uncertainty import Ball as Ball
from holdfast.uncertainty import Box as Box
from holdfast.uncertainty import ChanceConstraint as ChanceConstraint
from holdfast.uncertainty import Ellipsoid as Ellipsoid
from holdfast.uncertainty import GaussianNoise as GaussianNoise
from holdfast.uncertainty import IntervalBox as IntervalBox
