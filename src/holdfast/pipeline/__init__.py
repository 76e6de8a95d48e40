"""Uncertainty on its way to a classifier: estimated, drawn from, carried through preprocessing and into probabilities."""

from holdfast.pipeline.moderated import ModeratedClassifier as ModeratedClassifier
from holdfast.pipeline.noise_copies import NoiseCopies as NoiseCopies
from holdfast.pipeline.noise_estimates import IntervalNoise as IntervalNoise
from holdfast.pipeline.noise_estimates import ReplicateNoise as ReplicateNoise
from holdfast.pipeline.noise_estimates import RoundingErrors as RoundingErrors
from holdfast.pipeline.noise_estimates import noise_from_intervals as noise_from_intervals
from holdfast.pipeline.noise_estimates import noise_from_quantization as noise_from_quantization
from holdfast.pipeline.noise_estimates import noise_from_replicates as noise_from_replicates
from holdfast.pipeline.split_errors import split_errors as split_errors
from holdfast.pipeline.spread_imputer import SpreadImputer as SpreadImputer
from holdfast.pipeline.uncertain_pipeline import UncertainPipeline as UncertainPipeline
from holdfast.pipeline.uncertain_pipeline import make_uncertain_pipeline as make_uncertain_pipeline
