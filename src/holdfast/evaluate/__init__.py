"""Evaluation: how well does a classifier hold?"""

from holdfast.evaluate.scorers import certified_accuracy_scorer as certified_accuracy_scorer
from holdfast.evaluate.scorers import flip_rate_scorer as flip_rate_scorer
from holdfast.evaluate.scorers import robust_accuracy_scorer as robust_accuracy_scorer
