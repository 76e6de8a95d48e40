"""The numbers that decide, named and in one place."""

GAP_FLOOR = 1e-9
"""An objective smaller than this share of the total weight is measured against the share, not against itself."""

ROUNDING = 1e-13
"""Relative size of what is put down to rounding in float64 sums."""

POLISHED = 1e-15
"""Newton's decrement, as a share of the objective, at which further steps change only rounding."""

VANISHING = 1e-14
"""Share of the typical curvature below which a direction is taken for flat."""

LOOSE = 1e-5
"""A gap that may be larger than this is asked for to save time, as in cross-validation: fits then stop once it is reached."""

LARGE_Z = 1e8
"""u / t is clipped to this, far beyond where any loss has become its limit."""

SMALL_WORK = 3e6
"""n_samples * n_features**2 up to which a factorised Newton step costs no more than an evaluation."""

AFFORDABLE = 1e11
"""The same up to which a factorised Newton step is taken where nothing else will do."""
