"""Uncertainty on its way to a classifier: estimated, drawn from, carried through preprocessing and into probabilities.

`UncertainPipeline` carries the uncertainty of raw features through the steps of scikit-learn, and through steps that
`holdfast.features.teach_step` was told of. `noise_from_replicates`, `noise_from_quantization` and
`noise_from_intervals` estimate errors from data.
"""

from holdfast.pipeline.category_encoder import CategoryEncoder
from holdfast.pipeline.conditional_imputer import ConditionalImputer
from holdfast.pipeline.moderated import ModeratedClassifier
from holdfast.pipeline.noise_copies import NoiseCopies
from holdfast.pipeline.noise_estimates import (
    IntervalNoise,
    ReplicateNoise,
    RoundingErrors,
    noise_from_intervals,
    noise_from_quantization,
    noise_from_replicates,
)
from holdfast.pipeline.spread_imputer import SpreadImputer
from holdfast.pipeline.uncertain_pipeline import UncertainPipeline, make_uncertain_pipeline

__all__ = [
    "CategoryEncoder",
    "ConditionalImputer",
    "IntervalNoise",
    "ModeratedClassifier",
    "NoiseCopies",
    "ReplicateNoise",
    "RoundingErrors",
    "SpreadImputer",
    "UncertainPipeline",
    "make_uncertain_pipeline",
    "noise_from_intervals",
    "noise_from_quantization",
    "noise_from_replicates",
]
