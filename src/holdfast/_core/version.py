"""The version of holdfast."""

__version__ = "0.1.0"
