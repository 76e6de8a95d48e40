"""Errors of the weights: a model that is rounded, pruned, or built with imprecise parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.allowed import Choice, Number, Switch
from holdfast._core.arithmetic import dense, rescaled
from holdfast._core.parameters import Parameters
from holdfast._core.row_forms import Array, IntervalForm
from holdfast._core.row_sets import RowSets
from holdfast.uncertainty.minkowski import BoundSum
from holdfast.uncertainty.offset_boxes import OffsetBoxes, entries_of
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_boxes import RowBoxes
from holdfast.uncertainty.row_scaled import RowScaledSets

COMPONENTWISE = "componentwise"


class Faced(NamedTuple):
    """The sets and margins of a problem that accounts for errors of the weights."""

    sets: RowSets
    target: Array | float
    """The margin asked for, one number or one for each row."""


class WeightError(Parameters):
    r"""Errors dw of the weights of a linear model when it is used, with a separate dw for each row.

    ===============================  =================================  ===================================================
    ``relative=False``               :math:`|dw_j| \le \delta`          the margin asked for becomes
                                                                        :math:`1 + \delta |x_i|_1`
    ``relative=True``                :math:`|dw_j| \le \delta |w|_1`    a box with the half-width :math:`\delta |x_i|_1`
    ``relative="componentwise"``     :math:`|dw_j| \le \delta |w_j|`    a box with the half-widths :math:`\delta |x_{ij}|`
    ===============================  =================================  ===================================================

    The loss of a row is exactly its largest loss over dw. If all rows share one dw, the sum of these losses is an upper
    bound (:func:`worst_weight_loss` is exact, for few features). The intercept has no error. Relative errors are sets,
    so ``kappa`` keeps a share of them inside the loss. A larger margin stays inside the loss as a whole; in the joint
    formula below, ``kappa`` applies only to the sum of absolute values.

    If the rows are uncertain too, :math:`x + d` with d in a set, the error of the weights multiplies the perturbed row.
    For boxes with half-widths s, ``joint="exact"`` (not with ``relative=True``) is the exact worst case of both errors.
    With ``relative=False`` it is

    .. math:: 1 - y\,w^\top x + \sum_j \Bigl[\delta \max(|x_j|, s_j)
              + s_j \bigl|w_j - y\,\delta\,\mathrm{clip}(x_j / s_j, -1, 1)\bigr|\Bigr] - y b .

    ``joint="bound"`` adds the largest product of both errors, such as :math:`\delta \max_d |d|_1`, to the effect of
    each error alone. For boxes this is the bound of El Ghaoui et al.,
    :math:`1 - y(w^\top x + b) + s^\top(|w| + \delta) + \delta |x|_1`. For other sets the maximum is itself bounded from
    above.

    Parameters
    ----------
    delta : float
        The size of the errors, >= 0: in the units of the weights, or relative to them.
    relative : bool or "componentwise", default=False
    joint : {"exact", "bound"}, default="exact"
        How to combine both errors if the rows are uncertain too.

    References
    ----------
    L. El Ghaoui, G. Lanckriet, G. Natsoulis, "Robust classification with interval data" (2003), section 6.1. An
    equality printed there holds for each row alone; for a common dw, and for the joint bound, its right side is only an
    upper bound.

    Examples
    --------
    >>> from holdfast import RobustLinearClassifier
    >>> X, y = [[1.0, 3.0], [2.0, 1.0], [-1.0, 0.5], [-2.0, -4.0]], [1, 1, 0, 0]
    >>> model = RobustLinearClassifier(weight_error=WeightError(0.1)).fit(X, y)
    >>> model.gap_ < 1e-6
    True
    """

    parameter_table = {
        "delta": Number(),
        "relative": Switch() | Choice(COMPONENTWISE),
        "joint": Choice("exact", "bound"),
    }

    def __init__(self, delta: Any, relative: Any = False, *, joint: str = "exact"):
        self.delta = delta
        self.relative = relative
        self.joint = joint

    def checked(self) -> float:
        """Return delta as a number, after checking all arguments."""
        self.check_parameters()
        return float(self.delta)

    def reach(self, w: Array) -> Array:
        """Return the largest error of each weight; w, and the result, is one vector or has a row for each class."""
        delta = self.checked()
        if self.relative == COMPONENTWISE:
            return np.asarray(delta * np.abs(w))
        return np.broadcast_to(delta * (np.sum(np.abs(w), axis=-1, keepdims=True) if self.relative else 1.0), w.shape)

    def faced(self, X: Any, signs: Array, bound: RowSets) -> Faced:
        """Return sets and margins for rows X with labels y = `signs`; `bound` are their sets `against_labels`."""
        delta = self.checked()
        if delta == 0:
            return Faced(bound, 1.0)
        values = sparse.csr_array(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
        farthest = bound.absolute_reach(values.shape[1])
        if self.joint == "bound" or not np.any(farthest):
            return self._apart(delta, values, bound, farthest)
        form = bound.interval_form() if not self.relative or self.relative == COMPONENTWISE else None
        if form is None:
            raise ValueError(
                f"{self!r}: what errors of the weights do to these uncertain rows is not known exactly; it is for boxes, and "
                "where relative is not True. Use joint='bound'."
            )
        half, centre = _alike(self, values, form)
        middle = values if centre is None else values - rescaled(centre, signs)
        return (_scaled if self.relative else _shifted)(delta, middle, signs, half, centre)

    def _apart(self, delta: float, values: Any, sets: RowSets, farthest: Array) -> Faced:
        """Return the bound that adds the effects of each error alone and the largest product of both."""
        (n, d), sizes = values.shape, row_sums(abs(values)) + farthest
        if not self.relative:
            return Faced(sets, np.asarray(1.0 + delta * sizes))
        parts: list[RowSets] = [sets] if np.any(farthest) else []
        if self.relative != COMPONENTWISE:
            parts.append(RowScaledSets(CommonBox(np.full(d, delta)), sizes))
        else:
            parts.append(RowBoxes(delta * abs(values)))
            if np.any(farthest):
                # the error of weight j multiplies x_j + d_j, at most |x_j| plus the set's reach along feature j in size
                off = np.stack([np.maximum(sets.support(e), sets.support(-e)) for e in np.eye(d)], axis=-1)
                parts.append(RowBoxes(np.atleast_2d(delta * off), None, np.ones(n)))
        return Faced(BoundSum(parts) if len(parts) > 1 else parts[0], 1.0)


def row_sums(matrix: Any) -> Array:
    """Return the sum of each row of an array or a sparse array."""
    return np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()


def _alike(error: WeightError, values: Any, form: IntervalForm) -> tuple[Any, Any | None]:
    """Return half-widths and centres as matrices in the same format (dense or sparse) as the values."""
    half = form.common if form.own is None else dense(form.own) + form.common if np.any(form.common) else form.own
    parts = [half] if form.centre is None else [half, form.centre]
    if not sparse.issparse(values):
        found = [np.broadcast_to(dense(part), values.shape) for part in parts]
    elif all(sparse.issparse(part) for part in parts):
        found = [sparse.csr_array(part) for part in parts]
    else:
        raise ValueError(
            f"{error!r}: X is sparse and its boxes are not, so that every entry would have a kink of its own. Give sparse "
            "boxes (X_std sparse, or Box(relative=...)), or use joint='bound'."
        )
    return found[0], found[1] if len(found) > 1 else None


def _shifted(delta: float, middle: Any, signs: Array, half: Any, centre: Any | None) -> Faced:
    r"""Return the problem of rows in boxes around `middle`, with errors of each weight of at most delta.

    For z from x - s to x + s: :math:`\max_z\,(-y w z + \delta|z|) = -y w x + \delta \max(|x|, s) + |s w - y \delta\,
    \mathrm{clip}(x, -s, s)|`. Here :math:`\max(|x|, s)` is half the sum of :math:`|x + s|` and :math:`|x - s|`, and the
    clip is half their difference.
    """
    above, below = abs(middle + half), abs(middle - half)
    clipped = entries_of(half, rescaled(0.5 * (above - below), signs))
    widths = entries_of(half, half)
    kinks = delta * np.divide(clipped, widths, out=np.zeros(clipped.shape), where=widths > 0)
    return Faced(OffsetBoxes(half, kinks, centre), 1.0 + 0.5 * delta * row_sums(above + below))


def _scaled(delta: float, middle: Any, signs: Array, half: Any, centre: Any | None) -> Faced:
    r"""Return the problem of rows in boxes around `middle`, with errors of each weight of at most delta times its size.

    For z from x - s to x + s, :math:`\max_z\,(-y w z + \delta |w| |z|)` is -y w x plus a multiple of w, which is the
    larger of the multiples at the two ends and differs between w > 0 and w < 0. So it is a box that is not centred at
    0.
    """
    above, below, up = delta * abs(middle + half), delta * abs(middle - half), rescaled(half, signs)
    # max(a, b) = (a + b + |a - b|) / 2, in any format
    right, left = (0.5 * (above + below + abs(above - below - 2 * sign * up)) for sign in (1.0, -1.0))
    shift = 0.5 * (right - left)
    return Faced(RowBoxes(0.5 * (right + left), shift if centre is None else shift + centre), 1.0)
