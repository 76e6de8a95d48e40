"""Uncertainty on its way to a classifier: estimated, drawn from, carried through preprocessing and into probabilities.

`UncertainPipeline` carries what is stated of raw features through scikit-learn's steps; `teach_step` tells it what a step of
your own does. `noise_from_replicates`, `noise_from_quantization` and `noise_from_intervals` estimate errors from data.
"""

from holdfast.pipeline.effects import Affine, Effect, Monotone, Products
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
from holdfast.pipeline.steps import teach_step
from holdfast.pipeline.uncertain_pipeline import UncertainPipeline, make_uncertain_pipeline

__all__ = [
    "Affine",
    "Effect",
    "IntervalNoise",
    "ModeratedClassifier",
    "Monotone",
    "NoiseCopies",
    "Products",
    "ReplicateNoise",
    "RoundingErrors",
    "SpreadImputer",
    "UncertainPipeline",
    "make_uncertain_pipeline",
    "noise_from_intervals",
    "noise_from_quantization",
    "noise_from_replicates",
    "teach_step",
]
