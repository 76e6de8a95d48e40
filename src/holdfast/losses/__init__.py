"""Losses: the cost of an uncertain row. Classifiers take a loss by name or as an object, ``loss=Log2Hinge()``.

Worst case over a set: the losses with a plain name, such as `Hinge` or `Logistic`.
Mean over Gaussian noise: `GaussianHinge` and the losses named `Expected...`.
Bounds on the mean hinge: `Log2Hinge`, `QuadraticHinge`, `TwoPointHinge`.
All classes at once: `CrossEntropy`, `MaxHinge`, `ExpectedCrossEntropy`.
Part of the uncertainty in the loss, the rest as a penalty (parameter `kappa`): `Mixture`.
Votes with Laplace-distributed weights: the classes named `...Vote` and the functions named `laplace_...`.
"""

from holdfast.losses.expected_cross_entropy import ExpectedCrossEntropy
from holdfast.losses.expected_logistic import ExpectedLogistic
from holdfast.losses.expected_squared_hinge import ExpectedHuberizedHinge, ExpectedSquaredHinge
from holdfast.losses.gaussian_hinge import GaussianHinge
from holdfast.losses.hinge import Hinge
from holdfast.losses.huberized_hinge import HuberizedHinge
from holdfast.losses.joint import CrossEntropy, MaxHinge
from holdfast.losses.laplace_law import laplace_density, laplace_kl, laplace_tail
from holdfast.losses.log2_hinge import Log2Hinge
from holdfast.losses.logistic import Logistic
from holdfast.losses.mixture import Mixture
from holdfast.losses.quadratic_hinge import QuadraticHinge
from holdfast.losses.squared_hinge import SquaredHinge
from holdfast.losses.two_point_hinge import TwoPointHinge
from holdfast.losses.votes import ExpVote, LogVote, VoteLoss

__all__ = [
    "CrossEntropy",
    "ExpVote",
    "ExpectedCrossEntropy",
    "ExpectedHuberizedHinge",
    "ExpectedLogistic",
    "ExpectedSquaredHinge",
    "GaussianHinge",
    "Hinge",
    "HuberizedHinge",
    "Log2Hinge",
    "LogVote",
    "Logistic",
    "MaxHinge",
    "Mixture",
    "QuadraticHinge",
    "SquaredHinge",
    "TwoPointHinge",
    "VoteLoss",
    "laplace_density",
    "laplace_kl",
    "laplace_tail",
]
