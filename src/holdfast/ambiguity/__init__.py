"""Wrong labels: bounds on how many labels may be wrong, in total or by class."""

from holdfast.ambiguity.label_flips import LabelFlips

__all__ = [
    "LabelFlips",
]
