"""Losses: what an uncertain row costs."""

from holdfast.losses.expected_logistic import ExpectedLogistic as ExpectedLogistic
from holdfast.losses.expected_squared_hinge import ExpectedHuberizedHinge as ExpectedHuberizedHinge
from holdfast.losses.expected_squared_hinge import ExpectedSquaredHinge as ExpectedSquaredHinge
from holdfast.losses.gaussian_hinge import GaussianHinge as GaussianHinge
from holdfast.losses.hinge import Hinge as Hinge
from holdfast.losses.huberized_hinge import HuberizedHinge as HuberizedHinge
from holdfast.losses.joint import CrossEntropy as CrossEntropy
from holdfast.losses.joint import MaxHinge as MaxHinge
from holdfast.losses.log2_hinge import Log2Hinge as Log2Hinge
from holdfast.losses.logistic import Logistic as Logistic
from holdfast.losses.mixture import Mixture as Mixture
from holdfast.losses.multi_hinge import expected_max as expected_max
from holdfast.losses.multi_hinge import unidirectional_multi_hinge as unidirectional_multi_hinge
from holdfast.losses.quadratic_hinge import QuadraticHinge as QuadraticHinge
from holdfast.losses.squared_hinge import SquaredHinge as SquaredHinge
from holdfast.losses.two_point_hinge import TwoPointHinge as TwoPointHinge
