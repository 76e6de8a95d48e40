"""Estimators: thin scikit-learn classes."""

from holdfast.estimators.dual_view import recover_from_dual as recover_from_dual
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier as GaussianRobustClassifier
from holdfast.estimators.gaussian_robust import critical_noise as critical_noise
