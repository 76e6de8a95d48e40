"""The effects of pipeline steps on rows and their uncertainty: one registry for training, certificates and attacks.

To register a step of your own, use :func:`teach_step`, or give the step a method ``uncertainty_effect(n_features)``.
"""

from holdfast.features.bandwidths import BandwidthGrid, bandwidth_grid
from holdfast.features.curved import Monotone, Products
from holdfast.features.effects import Affine, AffineForm, Effect
from holdfast.features.expected_features import ExpectedFeatures
from holdfast.features.robust_fourier import RobustFourierFeatures
from holdfast.features.robust_nystroem import RobustNystroem
from holdfast.features.row_noise import RowNoise
from holdfast.features.steps import teach_step

__all__ = [
    "Affine",
    "AffineForm",
    "BandwidthGrid",
    "Effect",
    "ExpectedFeatures",
    "Monotone",
    "Products",
    "RobustFourierFeatures",
    "RobustNystroem",
    "RowNoise",
    "bandwidth_grid",
    "teach_step",
]
