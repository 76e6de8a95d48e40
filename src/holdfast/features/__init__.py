"""What a step does to rows and to what is stated of them: one registry for training, certificates, attacks and displays.

Teach it a step of your own by :func:`teach_step`, or give the step a method ``uncertainty_effect(n_features)``.
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
