"""Questions to any fitted classifier, ours or scikit-learn's, and the records that answer them.

Certificates: `certified_radius`, `certified_interval`, `certified_deletions`, `certified_accuracy`, `safe_bits`,
`smoothed`.
Worst cases, exact for linear models, found by a search for others: `worst_case`, `robust_accuracy`.
What missing entries may change, and which to measure next: `missing_report`.
Effects of noise: `flip_probability`, `noise_budget`, `what_is_to_gain`.
How accuracy falls with sets, or with `Quantize` for rounded values: `robustness_curve`, `compare`.
For ``scoring=`` of scikit-learn's searches: the scorers.
"""

from holdfast.evaluate.attacks import RobustAccuracy, WorstCase, certified_accuracy, robust_accuracy, worst_case
from holdfast.evaluate.bits import safe_bits
from holdfast.evaluate.budgets import Gain, NoiseBudget, noise_budget, what_is_to_gain
from holdfast.evaluate.certificates import certified_deletions, certified_interval, certified_radius
from holdfast.evaluate.comparisons import Comparison, compare
from holdfast.evaluate.curves import RobustnessCurve, robustness_curve
from holdfast.evaluate.missing import MissingEntries, missing_report
from holdfast.evaluate.noise import flip_probability
from holdfast.evaluate.perturbations import Quantize
from holdfast.evaluate.results import (
    CertifiedDeletions,
    CertifiedInterval,
    CertifiedRadius,
    FlipProbability,
    SafeBits,
    SmoothedRadius,
)
from holdfast.evaluate.scorers import certified_accuracy_scorer, flip_rate_scorer, robust_accuracy_scorer
from holdfast.evaluate.smoothing import smoothed

__all__ = [
    "CertifiedDeletions",
    "CertifiedInterval",
    "CertifiedRadius",
    "Comparison",
    "FlipProbability",
    "Gain",
    "MissingEntries",
    "NoiseBudget",
    "Quantize",
    "RobustAccuracy",
    "RobustnessCurve",
    "SafeBits",
    "SmoothedRadius",
    "WorstCase",
    "certified_accuracy",
    "certified_accuracy_scorer",
    "certified_deletions",
    "certified_interval",
    "certified_radius",
    "compare",
    "flip_probability",
    "flip_rate_scorer",
    "missing_report",
    "noise_budget",
    "robust_accuracy",
    "robust_accuracy_scorer",
    "robustness_curve",
    "safe_bits",
    "smoothed",
    "what_is_to_gain",
    "worst_case",
]
