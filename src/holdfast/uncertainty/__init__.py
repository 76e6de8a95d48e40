"""Sets and noises: the possible errors in the values of a row.

A set or noise is stated in the units of the features, once for all rows or row by row. It goes wherever an
`uncertainty` or a `noise` is asked for: into classifiers, pipelines, certificates, attacks and robustness curves. Sets
add up: ``Box(0.1) + Ball(0.5)``.

There are also adversaries that delete features (`worst_deletions`, `random_deletions`, `deletions_survived`), values
for the features (`feature_values`), and the margin that guards against corrupted features (`corruption_margin`).
"""

from holdfast.uncertainty.ball import Ball
from holdfast.uncertainty.box import Box
from holdfast.uncertainty.chance import ChanceConstraint
from holdfast.uncertainty.corruption import CorruptedFeatures, corruption_margin
from holdfast.uncertainty.deletions import deletions_survived, feature_values, random_deletions, worst_deletions
from holdfast.uncertainty.dropout import DropoutNoise
from holdfast.uncertainty.ellipsoid import Ellipsoid
from holdfast.uncertainty.feature_deletion import FeatureDeletion
from holdfast.uncertainty.gaussian import GaussianNoise
from holdfast.uncertainty.images import LinearImage
from holdfast.uncertainty.interval_box import IntervalBox
from holdfast.uncertainty.sums import SetSum
from holdfast.uncertainty.weight_error import WeightError

__all__ = [
    "Ball",
    "Box",
    "ChanceConstraint",
    "CorruptedFeatures",
    "DropoutNoise",
    "Ellipsoid",
    "FeatureDeletion",
    "GaussianNoise",
    "IntervalBox",
    "LinearImage",
    "SetSum",
    "WeightError",
    "corruption_margin",
    "deletions_survived",
    "feature_values",
    "random_deletions",
    "worst_deletions",
]
