"""Pipelines: uncertainty that travels through preprocessing."""

from holdfast.pipeline.effects import Affine as Affine
from holdfast.pipeline.effects import Effect as Effect
from holdfast.pipeline.effects import Monotone as Monotone
from holdfast.pipeline.effects import Products as Products
from holdfast.pipeline.spread_imputer import SpreadImputer as SpreadImputer
from holdfast.pipeline.steps import teach_step as teach_step
from holdfast.pipeline.uncertain_pipeline import UncertainPipeline as UncertainPipeline
from holdfast.pipeline.uncertain_pipeline import make_uncertain_pipeline as make_uncertain_pipeline
