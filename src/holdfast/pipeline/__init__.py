"""Uncertainty on its way to a classifier: estimated, drawn from, and carried into probabilities."""

from holdfast.datasets import values_and_errors
from holdfast.pipeline.moderated import ModeratedClassifier as ModeratedClassifier
from holdfast.pipeline.noise_copies import NoiseCopies as NoiseCopies
from holdfast.pipeline.noise_estimates import IntervalNoise as IntervalNoise
from holdfast.pipeline.noise_estimates import ReplicateNoise as ReplicateNoise
from holdfast.pipeline.noise_estimates import RoundingErrors as RoundingErrors
from holdfast.pipeline.noise_estimates import noise_from_intervals as noise_from_intervals
from holdfast.pipeline.noise_estimates import noise_from_quantization as noise_from_quantization
from holdfast.pipeline.noise_estimates import noise_from_replicates as noise_from_replicates

split_errors = values_and_errors
