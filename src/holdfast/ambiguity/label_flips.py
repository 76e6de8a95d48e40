"""Training labels some of which may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import short
from holdfast._core.loss import Array
from holdfast._core.parameters import Parameters
from holdfast._core.tolerances import ROUNDING


class LabelFlips(Parameters):
    r"""At most k training labels are wrong, and it is not known which.

    Let :math:`l_i` be the loss of row i (at the worst point of its set, if it has one), and :math:`l_i'` its loss with
    the other label. The worst case is

    .. math:: \sum_i l_i + \text{the sum of the k largest } (l_i' - l_i)_+
              = \min_{\lambda \ge 0}\; k\lambda + \sum_i \max(l_i,\; l_i' - \lambda),

    It is convex in the model, and exact for an integer k and equal weights. It guards against the flips that raise the
    loss most, those of the rows that the model is most certain about; it does not find out which labels are wrong.

    Parameters
    ----------
    k : int, float or dict
        A number of rows (an integer, at most all of them) or a share of the rows (a float from 0 to 1). A dict maps
        each class to such a number: how many of the rows with that label may belong to another class. With sample
        weights, rows count by their weight, as if they were repeated. If a share or weights give a fractional budget, a
        label may flip in part, which is an upper bound on the worst case.

    Notes
    -----
    If k is at least half of the rows, nothing can be learnt: w = 0 is optimal. Several classes are learnt one against
    the rest, and the adversary of each of these problems has the full budgets. k = 0 is the plain classifier.

    References
    ----------
    L. El Ghaoui, G. Lanckriet, G. Natsoulis, "Robust classification with interval data" (2003), section 6.2. The bound
    printed there lacks a factor of 2, so it is not a valid bound; the value here is exact.

    Examples
    --------
    >>> LabelFlips(5), LabelFlips(0.1), LabelFlips({"spam": 0.02, "ham": 0})
    (LabelFlips(k=5), LabelFlips(k=0.1), LabelFlips(k={'spam': 0.02, 'ham': 0}))
    >>> LabelFlips(0.1).budgets(np.array([30.0, 20.0]), np.array([0, 1]))
    array([5.])
    """

    def __init__(self, k: Any):
        self.k = k

    def budgets(self, totals: Array, classes: NDArray[Any]) -> Array:
        """Return the weight of labels that may flip: one number for all rows, or one for each class if `k` is a dict.

        `totals` has the weight of the rows of each class.
        """
        if not isinstance(self.k, Mapping):
            return np.array([self._budget(self.k, float(totals.sum()))])
        known = classes.tolist()
        unknown = [name for name in self.k if name not in known]
        missing = [name for name in known if name not in self.k]
        if unknown or missing:
            raise ValueError(
                f"{self!r}: name every class, {', '.join(map(repr, known))}"
                + (f", and no other ({unknown[0]!r})" if unknown else f" ({missing[0]!r} is missing; 0 for no flips)")
                + "."
            )
        return np.array([self._budget(self.k[name], total) for name, total in zip(known, totals, strict=True)])

    def _budget(self, k: Any, total: float) -> float:
        is_count = isinstance(k, Integral) and not isinstance(k, bool | np.bool_)
        is_share = not is_count and isinstance(k, Real) and not isinstance(k, bool | np.bool_) and 0 <= float(k) <= 1
        if is_count and k > total * (1 + ROUNDING):
            raise ValueError(
                f"{self!r}: {short(k)} labels of {total:g} rows; rows count by their sample_weight. Give fewer, or a share of "
                "the rows, LabelFlips(0.1), which also suits the fewer rows of a fold."
            )
        if is_share or (is_count and int(k) >= 0):
            return float(min(k, total)) if is_count else float(k) * total
        raise ValueError(
            f"{self!r}: give a count of rows, an integer >= 0, or a share of them, a float from 0 to 1"
            + (f" (did you mean {k:.0f}?)" if isinstance(k, float) and k > 1 and k.is_integer() else "")
            + "."
        )
