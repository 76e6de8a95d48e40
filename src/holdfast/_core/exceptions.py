"""Warnings and errors of our own."""


class CollapseWarning(UserWarning):
    """The best model under the stated uncertainty ignores the features: w = 0 is certified optimal."""


class ProofError(RuntimeError):
    """A proof contradicts itself: a fault in holdfast, which asks for a report. Nothing is fitted."""
