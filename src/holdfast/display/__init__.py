"""Pictures of how models degrade, in scikit-learn's manner: data first, ``plot(ax=)`` afterwards. They need matplotlib."""

from holdfast.display.certified import CertifiedAccuracyDisplay
from holdfast.display.curves import RobustnessCurveDisplay
from holdfast.display.decisions import DecisionUncertaintyDisplay
from holdfast.display.features import FeatureFragilityDisplay
from holdfast.display.paths import NoisePathDisplay

__all__ = [
    "CertifiedAccuracyDisplay",
    "DecisionUncertaintyDisplay",
    "FeatureFragilityDisplay",
    "NoisePathDisplay",
    "RobustnessCurveDisplay",
]
