"""Classifiers, fits along paths of settings, and proofs about models before and after training.

All classifiers can be imported from `holdfast` too. Paths: `noise_path`, `radius_path`, `pruning_path`. How much
uncertainty is too much: `critical_noise`, `critical_radius`, `separability_radius`. Bounds on errors:
`generalization_bound`, `pac_bayes_bound`. Errors of weights: `worst_weight_loss`, `prune`.
"""

from holdfast.estimators.critical_radius import critical_noise, critical_radius, separability_radius
from holdfast.estimators.deletion_bounds import GeneralizationBound, generalization_bound
from holdfast.estimators.feature_deletion import FeatureDeletionClassifier
from holdfast.estimators.feature_deletion_cv import FeatureDeletionClassifierCV
from holdfast.estimators.feature_deletion_perceptron import FeatureDeletionPerceptron, OnlineBound
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier
from holdfast.estimators.gaussian_robust_cv import GaussianRobustClassifierCV, NoisePath, noise_path
from holdfast.estimators.laplace_boost import LaplaceBoostClassifier
from holdfast.estimators.minimax_probability import MinimaxProbabilityClassifier
from holdfast.estimators.missing import MissingReport
from holdfast.estimators.noise_aware import NoiseAwareClassifier
from holdfast.estimators.noise_aware_cv import NoiseAwareClassifierCV
from holdfast.estimators.pac_bayes import PacBayesBound, pac_bayes_bound
from holdfast.estimators.robust_kernel import RobustKernelClassifier
from holdfast.estimators.robust_linear import RobustLinearClassifier
from holdfast.estimators.robust_linear_cv import RadiusPath, RobustLinearClassifierCV, radius_path
from holdfast.estimators.safe import SafeClassifier
from holdfast.estimators.validation import Distrust
from holdfast.estimators.weight_errors import PruningPath, prune, pruning_path, worst_weight_loss

__all__ = [
    "Distrust",
    "FeatureDeletionClassifier",
    "FeatureDeletionClassifierCV",
    "FeatureDeletionPerceptron",
    "GaussianRobustClassifier",
    "GaussianRobustClassifierCV",
    "GeneralizationBound",
    "LaplaceBoostClassifier",
    "MinimaxProbabilityClassifier",
    "MissingReport",
    "NoiseAwareClassifier",
    "NoiseAwareClassifierCV",
    "NoisePath",
    "OnlineBound",
    "PacBayesBound",
    "PruningPath",
    "RadiusPath",
    "RobustKernelClassifier",
    "RobustLinearClassifier",
    "RobustLinearClassifierCV",
    "SafeClassifier",
    "critical_noise",
    "critical_radius",
    "generalization_bound",
    "noise_path",
    "pac_bayes_bound",
    "prune",
    "pruning_path",
    "radius_path",
    "separability_radius",
    "worst_weight_loss",
]
