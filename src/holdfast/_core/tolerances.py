"""The tolerances that decide, in one place."""

GAP_FLOOR = 1e-9
"""Gaps are relative to the objective, or to this share of the total weight if the objective is smaller."""

ROUNDING = 1e-13
"""Relative errors up to this size count as rounding of float64 sums."""

POLISHED = 1e-15
"""The Newton decrement, relative to the objective, at which further steps change only rounding."""

VANISHING = 1e-14
"""A direction counts as flat if its curvature is below this share of the typical curvature."""

LOOSE = 1e-5
"""A tolerance larger than this is meant to save time, as in cross-validation, so fits stop once they reach it."""

LARGE_Z = 1e8
"""u / t is clipped to this size, far beyond the point where any loss has reached its limit."""

SMALL_WORK = 3e6
"""Up to this n_samples * n_features**2, a factorised Newton step costs no more than an evaluation."""

AFFORDABLE = 1e11
"""Up to this n_samples * n_features**2, a factorised Newton step is taken if nothing else works."""
