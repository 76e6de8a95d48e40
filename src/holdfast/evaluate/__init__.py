"""Evaluation: how well does a classifier hold?"""

from holdfast.evaluate.scorers import certified_accuracy_scorer as certified_accuracy_scorer
from holdfast.evaluate.scorers import neg_flip_rate_scorer as neg_flip_rate_scorer
from holdfast.evaluate.scorers import robust_accuracy_scorer as robust_accuracy_scorer
