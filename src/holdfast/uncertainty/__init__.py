"""Uncertainty: where may a sample be?"""

from holdfast.uncertainty.ball import Ball as Ball
from holdfast.uncertainty.box import Box as Box
from holdfast.uncertainty.chance import ChanceConstraint as ChanceConstraint
from holdfast.uncertainty.corruption import CorruptedFeatures as CorruptedFeatures
from holdfast.uncertainty.corruption import corruption_margin as corruption_margin
from holdfast.uncertainty.deletions import deletions_survived as deletions_survived
from holdfast.uncertainty.deletions import feature_values as feature_values
from holdfast.uncertainty.deletions import random_deletions as random_deletions
from holdfast.uncertainty.deletions import worst_deletions as worst_deletions
from holdfast.uncertainty.ellipsoid import Ellipsoid as Ellipsoid
from holdfast.uncertainty.feature_deletion import FeatureDeletion as FeatureDeletion
from holdfast.uncertainty.gaussian import GaussianNoise as GaussianNoise
from holdfast.uncertainty.images import LinearImage as LinearImage
from holdfast.uncertainty.interval_box import IntervalBox as IntervalBox
from holdfast.uncertainty.sums import SetSum as SetSum
from holdfast.uncertainty.weight_error import WeightError as WeightError
