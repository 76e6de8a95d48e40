"""Classifiers that hold when the data does not."""

from holdfast._core.exceptions import CollapseWarning as CollapseWarning
from holdfast._core.version import __version__ as __version__
from holdfast.estimators import GaussianRobustClassifier as GaussianRobustClassifier
from holdfast.estimators import GaussianRobustClassifierCV as GaussianRobustClassifierCV
from holdfast.estimators import NoisePath as NoisePath
from holdfast.estimators import critical_noise as critical_noise
from holdfast.estimators import noise_path as noise_path
from holdfast.estimators import recover_from_dual as recover_from_dual
from holdfast.solvers import SGD as SGD
from holdfast.uncertainty import GaussianNoise as GaussianNoise
