"""What may be wrong with how much rows count, or with what they are said to be."""

from holdfast.ambiguity.label_flips import LabelFlips

__all__ = ["LabelFlips"]
