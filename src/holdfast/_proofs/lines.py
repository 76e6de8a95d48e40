"""Lines below the losses, which give lower bounds on the objective."""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.loss import Array, Loss


class Proof(NamedTuple):
    """Lines a (u - 1) + v + p t below the rows' losses; bounds sum them with the row weights."""

    a: Array
    v: Array
    p: Array

    def shrunk(self, loss: Loss, factors: Array) -> Proof:
        """Return lines of slopes a times factors in [0, 1]; they lie below a loss that is at least `outside` * t."""
        if loss.has_dual:
            return dual_lines(loss, self.a * factors)
        return Proof(self.a * factors, self.v * factors, self.p * factors + loss.outside * (1 - factors))


def dual_lines(loss: Loss, a: Array) -> Proof:
    """Return the highest lines of slope a."""
    return Proof(a, loss.dual_value(a), loss.dual_scale(a))


def tangents(loss: Loss, u: Array, t: Array) -> Proof:
    """Return the lines that touch the losses at (u, t)."""
    return tangent_lines(u, t, *loss.tangent(u, t))


def tangent_lines(u: Array, t: Array, value: Array, slope: Array, scale_slope: Array) -> Proof:
    """Return the lines through the losses' values at (u, t) with their slopes."""
    return Proof(slope, value + slope * (1.0 - u) - scale_slope * t, scale_slope)
