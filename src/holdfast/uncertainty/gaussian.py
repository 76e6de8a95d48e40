"""Gaussian noise of the features, stated by standard deviations, a covariance or a factor, for all rows or by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.allowed import Choice
from holdfast._core.exceptions import UnstatedError
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import at_most_one, nonnegative, numbers, root, row_clouds, stated
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.polytopes import CommonBox, CommonDiamond

UNKNOWN: dict[str | None, Callable[[Array], RowSets]] = {
    None: CommonEllipsoid,
    "variances": CommonDiamond,
    "correlations": CommonBox,
}
"""The unknown part of a covariance, and the set whose support is the largest standard deviation of the score."""


class GaussianNoise(UncertaintySet):
    r"""Gaussian noise :math:`\delta_i \sim N(0, C_i)` on the features; the score's standard deviation is
    :math:`t_i(w) = \sqrt{w^\top C_i w}`.

    State noise common to all rows here, by one of `std`, `cov` and `factor`. Noise that differs by row goes to ``fit``
    as ``X_std``, ``X_cov`` or ``X_factor``; a scalar `std` then multiplies these.

    Parameters
    ----------
    std : float or array-like of shape (n_features,), default=None
        Standard deviation of the noise, in the units of the features: one number, or one for each feature (independent errors).
    cov : array-like of shape (n_features, n_features), default=None
        Covariance of the noise; may be singular.
    factor : array-like of shape (n_features, r), default=None
        A factor F of the covariance F F', for noise that comes from a few common sources.
    unknown : {None, "variances", "correlations"}, default=None
        The part of the covariance C that is unknown besides `std`; the worst C that agrees with `std` is assumed.

        - None: nothing is unknown; errors are independent, or have the stated covariance. A single number `std` also
          covers all covariances with trace, or with largest eigenvalue, at most std**2: their worst case is the same
          :math:`t = \mathrm{std}\,|w|_2`.
        - "variances": errors are independent, and only a bound on the sum of their variances is known, std**2 with one
          number `std`; :math:`t = \mathrm{std}\,\max_j |w_j|`.
        - "correlations": the standard deviation of each feature is at most `std` (one number, or one for each feature),
          and the errors may be correlated in any way; :math:`t = \sum_j \mathrm{std}_j |w_j|`. This makes many
          coefficients exactly 0.

    Examples
    --------
    >>> noise = GaussianNoise(std=[0.5, 0.0]).at(np.zeros((4, 2)), metadata={})
    >>> noise.support(np.array([3.0, -1.0]))
    np.float64(1.5)
    >>> noise = GaussianNoise(std=[0.5, 2.0], unknown="correlations").at(np.zeros((4, 2)), metadata={})
    >>> float(noise.support(np.array([3.0, -1.0])))
    3.5
    """

    metadata = ("X_std", "X_cov", "X_factor")
    size_name = "noise"
    is_expectation = True

    def __init__(self, std: Any = None, *, cov: Any = None, factor: Any = None, unknown: str | None = None):
        self.std = std
        self.cov = cov
        self.factor = factor
        self.unknown = unknown

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        n_samples, n_features = X.shape
        common = {name: getattr(self, name) for name in ("std", "cov", "factor") if getattr(self, name) is not None}
        own = stated(self, metadata)
        for once in (common, own):
            at_most_one(once)
        if not common and not own:
            raise UnstatedError(
                "GaussianNoise(): states no noise. Give std, cov or factor, or pass X_std, X_cov or X_factor."
            )
        self._check_unknown({**common, **own})
        if not own:
            return UNKNOWN[self.unknown](self._common_factor(n_features))
        home = f"noise=GaussianNoise({next(iter(own)).removeprefix('X_')}=...)"
        if not common:
            return row_clouds(1.0, n_samples, n_features, own, home)
        if self.std is None or np.ndim(self.std) > 0:
            raise ValueError(
                f"{self!r} together with {next(iter(own))}: the noise is stated twice. "
                "With metadata, let std be a single number that multiplies it (1.0: as stated)."
            )
        return row_clouds(float(self._common_factor(n_features)), n_samples, n_features, own, home)

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        sets = self.at(X, metadata)
        if self.unknown is not None:
            raise ValueError(
                f"{self!r}: a covariance that is unknown cannot be drawn from. State the one to draw from, as "
                "GaussianNoise(std=...) or GaussianNoise(cov=...)."
            )
        return (sets.gaussian(rng, X.shape) for _ in range(n_draws))

    @property
    def is_size(self) -> bool:  # type: ignore[override]
        """Whether `std` is one number."""
        return self.std is not None and np.ndim(self.std) == 0

    @property
    def row_factor(self) -> float:
        return float(self.std) if self.is_size else 1.0

    def as_stated(self, metadata: Mapping[str, Any]) -> GaussianNoise:
        return self if all(value is None for value in metadata.values()) else GaussianNoise()

    def as_shape(self) -> GaussianNoise:
        is_stated = any(value is not None for value in (self.std, self.cov, self.factor))
        return self if is_stated else self.times(1.0)

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return (self, map.cloud(metadata)) if metadata else super().image(map, metadata)

    def times(self, factor: float) -> GaussianNoise:
        scaled = {"std": factor, "cov": factor**2, "factor": factor}
        larger = {
            name: np.multiply(value, scaled[name])
            for name, value in self.get_params(deep=False).items()
            if name in scaled and value is not None
        }
        # if nothing is stated here, values come by row, and std multiplies them
        return type(self)(**(self.get_params(deep=False) | (larger or {"std": factor})))

    def _check_unknown(self, given: Mapping[str, Any]) -> None:
        Choice(*UNKNOWN).checked(self.unknown, "GaussianNoise(..., unknown")
        if self.unknown is None:
            return
        if others := [name for name in given if name != "std"]:
            raise ValueError(
                f"{self!r} together with {others[0]}: it says that a covariance is unknown that is given. Give std alone, or "
                "leave unknown=None."
            )
        if self.unknown == "variances" and np.ndim(self.std) > 0:
            raise ValueError(
                f"{self!r}: with unknown='variances' std is one number, the root of the sum of all variances. "
                "Deviations known for each feature go with unknown='correlations'."
            )

    def _common_factor(self, n_features: int) -> Array:
        if self.std is not None:
            std = numbers(self.std, "GaussianNoise(std=...)", "std")
            if std.ndim and std.shape != (n_features,):
                raise ValueError(
                    f"GaussianNoise(std=...): std has shape {std.shape}; give one number, or one per feature, ({n_features},). "
                    "Noise that differs by row goes to fit as X_std."
                )
            return nonnegative(std, "GaussianNoise(std=...)", "std")
        if self.cov is not None:
            cov = numbers(self.cov, "GaussianNoise(cov=...)", "cov")
            if cov.shape != (n_features, n_features):
                raise ValueError(
                    f"GaussianNoise(cov=...): cov has shape {cov.shape}, not ({n_features}, {n_features}). "
                    "Covariances that differ by row go to fit as X_cov."
                )
            return root(cov, "GaussianNoise(cov=...)", "cov")
        factor = numbers(self.factor, "GaussianNoise(factor=...)", "factor")
        if factor.ndim != 2 or len(factor) != n_features:
            raise ValueError(
                f"GaussianNoise(factor=...): factor has shape {factor.shape}, not ({n_features}, r). "
                "Factors that differ by row go to fit as X_factor."
            )
        return factor

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        factors = rng.normal(size=(5, 3, 2))
        return [
            (cls(0.7), {}),
            (cls(std=[0.5, 0.1, 2.0]), {}),
            (cls(cov=[[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]]), {}),
            (cls(factor=factors[0]), {}),
            (cls(), {"X_std": rng.uniform(0.1, 2.0, size=(5, 3))}),
            (cls(0.4), {"X_std": sparse.csr_array([[1.0, 0, 2], [0, 0.5, 0], [3, 0, 1], [0.2, 0.7, 0], [0, 0, 1]])}),
            (cls(0.5), {"X_cov": factors @ factors.transpose(0, 2, 1)}),
            (cls(2.0), {"X_factor": factors}),
            (cls(0.7, unknown="variances"), {}),
            (cls(0.7, unknown="correlations"), {}),
            (cls([0.5, 0.1, 2.0], unknown="correlations"), {}),
        ]


class NoiseOfRows(GaussianNoise):
    """Gaussian noise stated row by row as ``X_std``, ``X_cov`` or ``X_factor``; no noise if none of them is given.

    Parameters
    ----------
    multiple : float, default=1.0
        Multiplies the stated noise.
    """

    def __init__(self, multiple: float = 1.0):
        super().__init__()
        self.multiple = multiple

    @property
    def row_factor(self) -> float:
        return self.multiple

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        return GaussianNoise(self.multiple if stated(self, metadata) else 0.0).at(X, metadata)

    def as_stated(self, metadata: Mapping[str, Any]) -> GaussianNoise:
        # at prediction, rows without stated noise are an error, not taken as exact
        return GaussianNoise()

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        return self, map.cloud(metadata) if metadata else {}

    def times(self, factor: float) -> NoiseOfRows:
        return NoiseOfRows(factor * self.multiple)

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        return [(cls(0.5), {"X_std": np.random.default_rng(0).uniform(0.1, 2.0, size=(5, 3))})]
