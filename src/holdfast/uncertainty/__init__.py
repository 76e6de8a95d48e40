"""Uncertainty: where may a sample be?"""

from holdfast.uncertainty.gaussian import GaussianNoise as GaussianNoise
