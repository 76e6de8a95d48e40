"""Exact radii of linear models, by rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._certificates.models import LinearModel
from holdfast._core.operations import as_fractions
from holdfast._core.rounding import Array

DIGITS = 120
"""Bits of the first approximation to a square root, more than twice those of a float64."""


def exact_radius(model: LinearModel, rows: Any, norm: float, weights: Array) -> tuple[NDArray[np.intp], Array]:
    r"""Return the predicted classes' indices, and the largest float64 r with :math:`r \|v\|_q < lead` for all rivals.

    For q = 2 squares are compared, :math:`r^2 \sum_j v_j^2 < lead^2`, as square roots of fractions may be irrational.
    """
    W, b = model.map.fractions()
    units = as_fractions(weights)
    power = 2 if norm == 2 else 1
    codes, radius = np.zeros(rows.shape[0], dtype=np.intp), np.zeros(rows.shape[0])
    reaches: dict[int, list[Fraction]] = {}
    for i in range(rows.shape[0]):
        x = rows[[i]]
        x = as_fractions(x.toarray() if hasattr(x, "toarray") else x)
        scores = x @ W.T + b
        own, leads, _ = model.decision.leads(scores, np.zeros_like(scores))
        code = codes[i] = int(own[0])
        # the reach depends on the predicted class only; as fractions are slow, compute it once for each class
        if code not in reaches:
            reaches[code] = [_dual(v * units, norm) for v in as_fractions(model.decision.combinations(code)) @ W]
        rivals = [(lead, v) for lead, v in zip(leads[0], reaches[code], strict=True) if lead != np.inf]
        if min(lead for lead, _ in rivals) > 0:
            bounds = [Fraction(lead) ** power / v for lead, v in rivals if v > 0]
            radius[i] = _largest_below(min(bounds), power) if bounds else np.inf
    return codes, radius


def _dual(v: Any, norm: float) -> Fraction:
    """Return the dual norm of a vector of fractions, or its square for norm 2."""
    sizes = [abs(each) for each in v]
    if norm == 1:
        return max(sizes)
    return Fraction(sum(sizes)) if norm == np.inf else Fraction(sum(size * size for size in sizes))


def _largest_below(bound: Fraction, power: int) -> float:
    """Return the largest float64 r >= 0 with r**power < bound."""
    # an integer root of this many bits is within a few floats of the answer; the loops below find the answer
    shift = max(0, DIGITS - bound.numerator.bit_length() + bound.denominator.bit_length())
    # the shift is even, as the square root is shifted back by half of it
    shift += shift % 2
    near = Fraction(math.isqrt(math.floor(bound * (1 << shift))), 1 << shift // 2) if power == 2 else bound
    try:
        r = float(near)
    except OverflowError:
        r = float(np.finfo(np.float64).max)
    # strictly below the bound, as the lead is 0 there, and a tie is not certified
    while r > 0 and not (np.isfinite(r) and Fraction(r) ** power < bound):
        r = math.nextafter(r, 0.0)
    while math.isfinite(up := math.nextafter(r, math.inf)) and Fraction(up) ** power < bound:
        r = up
    return r
