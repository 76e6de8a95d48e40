"""Training rows with numbered classes and with weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.loss import Array


class LabelledRows(NamedTuple):
    """Checked training rows."""

    X: Any
    codes: NDArray[np.intp]
    """The number of each row's class."""
    weights: Array
    """Weights with the factors of `class_weight`."""
    counts: Array
    """Weights without these factors."""
    classes: NDArray[Any]

    @property
    def positives(self) -> list[int]:
        """The classes with a problem against the rest: the second of two classes, or each of more."""
        return [1] if len(self.classes) == 2 else list(range(len(self.classes)))

    def signs(self) -> list[Array]:
        """Return the labels, 1 and -1, of each class in `positives` against the rest."""
        return [np.where(self.codes == k, 1.0, -1.0) for k in self.positives]
