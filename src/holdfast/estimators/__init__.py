"""Estimators: thin scikit-learn classes."""

from holdfast.estimators.alternating_svc import AlternatingSVC as AlternatingSVC
from holdfast.estimators.critical_radius import critical_radius as critical_radius
from holdfast.estimators.critical_radius import separability_radius as separability_radius
from holdfast.estimators.dual_view import recover_from_dual as recover_from_dual
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier as GaussianRobustClassifier
from holdfast.estimators.gaussian_robust import critical_noise as critical_noise
from holdfast.estimators.gaussian_robust_cv import GaussianRobustClassifierCV as GaussianRobustClassifierCV
from holdfast.estimators.gaussian_robust_cv import NoisePath as NoisePath
from holdfast.estimators.gaussian_robust_cv import noise_path as noise_path
from holdfast.estimators.minimax_probability import MinimaxProbabilityClassifier as MinimaxProbabilityClassifier
from holdfast.estimators.robust_linear import RobustLinearClassifier as RobustLinearClassifier
from holdfast.estimators.robust_linear_cv import RadiusPath as RadiusPath
from holdfast.estimators.robust_linear_cv import RobustLinearClassifierCV as RobustLinearClassifierCV
from holdfast.estimators.robust_linear_cv import radius_path as radius_path
from holdfast.estimators.weight_errors import PruningPath as PruningPath
from holdfast.estimators.weight_errors import prune as prune
from holdfast.estimators.weight_errors import pruning_path as pruning_path
from holdfast.estimators.weight_errors import worst_weight_loss as worst_weight_loss
