"""The training rows that a fitted model depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from holdfast._core.loss import Array
from holdfast.estimators.inputs import number


class CarryingRows:
    """A classifier whose proof of optimality gives the training rows weights, `proof_weights_`."""

    loss: Any
    proof_weights_: Array

    def carrying_rows(self, share: float = 0.9) -> NDArray[np.intp]:
        """Return the indices of the fewest training rows with at least `share` of the total weight, heaviest first.

        A row's weight is the sum of its entries in \\|`proof_weights_`\\|. Only for the perspective losses; 0 < share
        <= 1.
        """
        check_is_fitted(self)
        if not hasattr(self, "proof_weights_"):
            raise AttributeError(
                f"{type(self).__name__}(loss={self.loss!r}).carrying_rows: there are no dual weights. They come with fit, "
                "not partial_fit, and with the losses 'hinge', 'two_point', 'log2' and 'quadratic'."
            )
        if number(share, f"{type(self).__name__}.carrying_rows(share", strictly=True) > 1:
            raise ValueError(f"{type(self).__name__}.carrying_rows(share={share!r}): a share is at most 1.")
        weight = np.abs(self.proof_weights_).sum(axis=0)
        order = np.argsort(-weight, kind="stable")
        carried = np.cumsum(weight[order])
        return order[: int(np.searchsorted(carried, share * carried[-1])) + 1] if np.any(weight) else order[:0]
