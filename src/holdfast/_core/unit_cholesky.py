"""Cholesky factors of positive semidefinite matrices, robust to the scales of their variables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from holdfast._core.arithmetic import Array


class UnitCholesky:
    """A Cholesky factor of a positive semidefinite matrix scaled to unit diagonal.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
    jitters : iterable of float
        Numbers to add to the unit diagonal; the first one with which the factorisation succeeds is used.
    """

    def __init__(self, matrix: Array, jitters: Iterable[float]):
        if not np.all(np.isfinite(matrix)):
            raise LinAlgError("Not finite.")
        diagonal = np.diag(matrix)
        self.roots = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        unit = matrix / self.roots
        unit /= self.roots[:, None]
        # rounding may make a semidefinite matrix slightly indefinite; on a unit diagonal, one jitter is equally small
        # for every variable
        for jitter in jitters:
            unit.flat[:: len(unit) + 1] = 1.0 + jitter
            try:
                self.factor = cho_factor(unit, lower=True, check_finite=False)
                return
            except LinAlgError:
                continue
        raise LinAlgError("Not positive semidefinite, up to rounding.")

    def solve(self, r: Array) -> Array:
        """Return the solution for one right-hand side, or for each column."""
        roots = self.roots if r.ndim == 1 else self.roots[:, None]
        return np.asarray(cho_solve(self.factor, r / roots, check_finite=False) / roots)
