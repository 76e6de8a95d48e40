"""Evaluation of fitted classifiers, ours and others: certificates of single predictions, scorers."""

from holdfast.evaluate.bits import safe_bits as safe_bits
from holdfast.evaluate.certificates import certified_deletions as certified_deletions
from holdfast.evaluate.certificates import certified_interval as certified_interval
from holdfast.evaluate.certificates import certified_radius as certified_radius
from holdfast.evaluate.noise import flip_probability as flip_probability
from holdfast.evaluate.results import CertifiedDeletions as CertifiedDeletions
from holdfast.evaluate.results import CertifiedInterval as CertifiedInterval
from holdfast.evaluate.results import CertifiedRadius as CertifiedRadius
from holdfast.evaluate.results import FlipProbability as FlipProbability
from holdfast.evaluate.results import SafeBits as SafeBits
from holdfast.evaluate.results import SmoothedRadius as SmoothedRadius
from holdfast.evaluate.scorers import certified_accuracy_scorer as certified_accuracy_scorer
from holdfast.evaluate.scorers import flip_rate_scorer as flip_rate_scorer
from holdfast.evaluate.scorers import robust_accuracy_scorer as robust_accuracy_scorer
from holdfast.evaluate.smoothing import smoothed as smoothed
from holdfast.evaluate.steps import NoCertificateError as NoCertificateError
