"""Pictures of how models degrade, in scikit-learn's manner: data first, ``plot(ax=)`` afterwards."""

from holdfast.display.certified import CertifiedAccuracyDisplay as CertifiedAccuracyDisplay
from holdfast.display.curves import RobustnessCurveDisplay as RobustnessCurveDisplay
from holdfast.display.decisions import DecisionUncertaintyDisplay as DecisionUncertaintyDisplay
from holdfast.display.features import FeatureFragilityDisplay as FeatureFragilityDisplay
from holdfast.display.paths import NoisePathDisplay as NoisePathDisplay
