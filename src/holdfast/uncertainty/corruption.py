"""Features that are replaced by noise rather than deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import Choice, Count
from holdfast._core.parameters import Parameters
from holdfast.uncertainty.checks import nonnegative, one_number, per_feature

Array = NDArray[np.float64]
FACTORS = {"corrected": 2.0, "published": 0.5}
NOISES = {
    "uniform": lambda rng, shape: rng.uniform(-1.0, 1.0, size=shape),
    "sign": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
}


def corruption_margin(bound: float, n_corrupted: float, eps: float, *, variant: str = "corrected") -> float:
    r"""Return the margin at which noise in N features changes a decision with probability at most eps.

    The margin

    .. math:: \gamma = C \sqrt{2 N \ln(1/\varepsilon)}

    makes :math:`\Pr(\sum_{j \in J} w_j \xi_j \ge \gamma) \le \varepsilon` for :math:`|J| \le N`, :math:`|w_j| \le C` and
    independent zero-mean :math:`\xi_j \in [-1, 1]` (Hoeffding's inequality).

    Parameters
    ----------
    bound : float
        C > 0, the largest weight.
    n_corrupted : float
        N >= 0.
    eps : float
        In (0, 1).
    variant : {"corrected", "published"}, default="corrected"
        "published" is :math:`C \sqrt{N \ln(1/\varepsilon) / 2}`, theorem 3 of Dekel & Shamir (2008) as printed. It is
        half as large, and wrong: the range of each summand is 2C, not C. For eps = 0.3, a fair random sign in one
        feature of weight 1 changes a decision of that margin with probability 0.5.

    Examples
    --------
    >>> corruption_margin(1.0, 2, 0.05)
    3.4616
    """
    call = "corruption_margin"
    C = one_number(bound, f"{call}(bound=...)", "bound")
    N = one_number(n_corrupted, f"{call}(..., n_corrupted=...)", "n_corrupted")
    e = one_number(eps, f"{call}(..., eps=...)", "eps")
    if not 0 < e < 1:
        raise ValueError(f"{call}(..., eps={eps!r}): must lie between 0 and 1.")
    if C == 0:
        raise ValueError(f"{call}(bound={bound!r}): must be > 0.")
    Choice(*FACTORS).checked(variant, f"{call}(..., variant")
    return float(C * np.sqrt(FACTORS[variant] * N * np.log(1.0 / e)))


class CorruptedFeatures(Parameters):
    r"""Up to n features of a row, chosen by an adversary, are replaced by independent zero-mean noise in [-1, 1].

    Training against deletion, with a larger margin, is enough. Theorem 3 of Dekel & Shamir (2008), corrected: let each
    feature be worth 1, let there be no intercept, and let :math:`|w_j| \le C`. If
    :math:`\gamma \ge C \sqrt{2 n \ln(1/\varepsilon)}` then

    .. math:: \Pr\bigl(y\, w^\top \tilde x \le 0\bigr) \le \mathbf E\, \ell_\gamma + \varepsilon ,

    where :math:`\ell_\gamma = 1` if some deletion of n features leaves the remaining ones with less than the margin
    asked of them, as in :func:`generalization_bound`. The features are chosen before the noise is drawn, and the noise
    of each feature is independent of the row and of the other noise. The statement also holds with an intercept, which
    has no noise.

    Parameters
    ----------
    n_corrupted : int, default=1
        n.
    noise : {"uniform", "sign"}, default="uniform"
        The noise that `sample` draws: uniform in [-1, 1], or a random sign, which has the largest possible variance.
    scale : float or array-like of shape (n_features,), default=1.0
        The factor of the noise, in the units of the features.

    Examples
    --------
    >>> corrupted = CorruptedFeatures(2)
    >>> corrupted.margin(bound=1.0, eps=0.05)
    3.4616
    >>> bool(np.any(corrupted.sample(np.zeros((3, 4)), random_state=0).round(2), axis=1).all())
    True
    """

    def __init__(self, n_corrupted: int = 1, *, noise: str = "uniform", scale: Any = 1.0):
        self.n_corrupted = n_corrupted
        self.noise = noise
        self.scale = scale

    def margin(self, bound: float, eps: float) -> float:
        """Return the margin to train with if no |weight| times scale exceeds `bound`; see :func:`corruption_margin`."""
        return corruption_margin(bound, self._count(), eps)

    def sample(self, X: Any, *, gains: Any = None, random_state: Any = None) -> Array:
        """Return a copy of rows with n features of each replaced by noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        gains : array-like of shape (n_samples, n_features), default=None
            The adversary's gains, such as ``y[:, None] * w * X``: of the features with a gain above 0, the n with the
            largest gains are replaced. None: n features at random.
        random_state : int or Generator, default=None
        """
        rows, n = np.array(X, dtype=np.float64), self._count()
        if rows.ndim != 2:
            raise ValueError(f"{self!r}.sample: X has shape {rows.shape}; give (n_samples, n_features).")
        Choice(*NOISES).checked(self.noise, "CorruptedFeatures(noise")
        if n > rows.shape[1]:
            raise ValueError(f"{self!r}.sample: X has only {rows.shape[1]} features.")
        rng = np.random.default_rng(random_state)
        worth = rng.uniform(size=rows.shape) if gains is None else np.asarray(gains, dtype=np.float64)
        if worth.shape != rows.shape:
            raise ValueError(
                f"{self!r}.sample: gains has shape {worth.shape}; it must have the shape of X, {rows.shape}."
            )
        # stable sort, so that ties are broken alike on every platform
        chosen = np.argsort(-worth, axis=1, kind="stable")[:, :n]
        call = "CorruptedFeatures(scale=...)"
        scale = nonnegative(per_feature(self.scale, rows.shape[1], call, "scale"), call, "scale")
        # n numbers are drawn for every row, even if fewer features gain, so that a row's gains do not change the next
        # row's noise
        drawn = NOISES[self.noise](rng, chosen.shape) * np.broadcast_to(scale, rows.shape[1])[chosen]
        kept = np.take_along_axis(rows, chosen, axis=1)
        np.put_along_axis(rows, chosen, np.where(np.take_along_axis(worth, chosen, axis=1) > 0, drawn, kept), axis=1)
        return rows

    def _count(self) -> int:
        return Count(0).checked(self.n_corrupted, "CorruptedFeatures(n_corrupted")
