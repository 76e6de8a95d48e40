"""Warnings of our own."""


class CollapseWarning(UserWarning):
    """The best model under the stated uncertainty ignores the features: w = 0 is certified optimal."""
