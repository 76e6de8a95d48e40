"""What may be wrong with labels: how many of them, and of which class."""

from holdfast.ambiguity.label_flips import LabelFlips

__all__ = [
    "LabelFlips",
]
