"""Evaluation of fitted classifiers, ours and others: certificates of single predictions."""
