"""Losses: what an uncertain row costs."""

from holdfast.losses.expected_logistic import ExpectedLogistic as ExpectedLogistic
from holdfast.losses.gaussian_hinge import GaussianHinge as GaussianHinge
from holdfast.losses.log2_hinge import Log2Hinge as Log2Hinge
from holdfast.losses.multi_hinge import expected_max as expected_max
from holdfast.losses.multi_hinge import unidirectional_multi_hinge as unidirectional_multi_hinge
from holdfast.losses.quadratic_hinge import QuadraticHinge as QuadraticHinge
from holdfast.losses.two_point_hinge import TwoPointHinge as TwoPointHinge
