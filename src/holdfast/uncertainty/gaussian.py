"""Gaussian noise of the features: a standard deviation, a covariance or a factor, for all rows or for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.uncertainty import Array, BoundSet, UncertaintySet
from holdfast.uncertainty.clouds import CommonCloud, DiagonalClouds, FactorClouds, RowClouds
from holdfast.uncertainty.polytopes import CommonBox, CommonDiamond

INDEFINITE = -1e-8
"""An eigenvalue of the correlations below this is no rounding error."""
ADVERSARIES: dict[str, Callable[[Array], BoundSet]] = {
    "trace": CommonCloud,
    "diagonal": CommonDiamond,
    "marginals": CommonBox,
}


class GaussianNoise(UncertaintySet):
    r"""Gaussian noise :math:`\delta_i \sim N(0, C_i)` on the features; the score's standard deviation is
    :math:`t_i(w) = \sqrt{w^\top C_i w}`.

    State what is common to all rows here, in one of the three ways, and what differs by row as metadata of ``fit``
    (``X_std``, ``X_cov`` or ``X_factor``); a scalar `std` then multiplies the metadata.

    Parameters
    ----------
    std : float or array-like of shape (n_features,), default=None
        Standard deviation of the noise, in the units of the features: one number, or one a feature (independent errors).
    cov : array-like of shape (n_features, n_features), default=None
        Covariance of the noise; may be singular.
    factor : array-like of shape (n_features, r), default=None
        A factor F of the covariance F F', for noise that a few sources cause together.
    adversary : {"trace", "diagonal", "marginals"}, default="trace"
        What is known of the covariance C besides `std`; the worst C that agrees with it is assumed.

        - "trace": nothing but its trace, or largest eigenvalue, at most std**2, with the same
          :math:`t = \mathrm{std}\,|w|_2` as independent errors; with one std a feature, independent errors.
        - "diagonal": errors are independent, their variances add up to at most std**2, one number;
          :math:`t = \mathrm{std}\,\max_j |w_j|`.
        - "marginals": each feature's deviation is at most its std, one number or one a feature, and the errors may be
          correlated in any way; :math:`t = \sum_j \mathrm{std}_j |w_j|`, which makes many coefficients exactly 0.

    Examples
    --------
    >>> noise = GaussianNoise(std=[0.5, 0.0]).at(np.zeros((4, 2)), metadata={})
    >>> noise.support(np.array([3.0, -1.0]))
    np.float64(1.5)
    >>> noise = GaussianNoise(std=[0.5, 2.0], adversary="marginals").at(np.zeros((4, 2)), metadata={})
    >>> float(noise.support(np.array([3.0, -1.0])))
    3.5
    """

    metadata = ("X_std", "X_cov", "X_factor")

    def __init__(self, std: Any = None, cov: Any = None, factor: Any = None, adversary: str = "trace"):
        self.std = std
        self.cov = cov
        self.factor = factor
        self.adversary = adversary

    def at(self, X: Any, metadata: Mapping[str, Any]) -> BoundSet:
        n_samples, n_features = X.shape
        common = {name: getattr(self, name) for name in ("std", "cov", "factor") if getattr(self, name) is not None}
        own = {name: value for name, value in metadata.items() if value is not None}
        for stated in (common, own):
            if len(stated) > 1:
                raise ValueError(f"{' and '.join(stated)} say the same thing twice. Give one of them.")
        if not common and not own:
            raise ValueError(
                "GaussianNoise(): states no noise. Give std, cov or factor, or pass X_std, X_cov or X_factor."
            )
        self._check_adversary({**common, **own})
        if not own:
            return ADVERSARIES[self.adversary](self._common_factor(n_features))
        if not common:
            return _row_clouds(1.0, n_samples, n_features, own)
        if self.std is None or np.ndim(self.std) > 0:
            raise ValueError(
                f"{self!r} together with {next(iter(own))}: the noise is stated twice. "
                "With metadata, let std be a single number that multiplies it (1.0: as stated)."
            )
        return _row_clouds(float(self._common_factor(n_features)), n_samples, n_features, own)

    def times(self, factor: float) -> GaussianNoise:
        """Return noise of `factor` times the size."""
        scaled = {"std": factor, "cov": factor**2, "factor": factor}
        stated = {
            name: np.multiply(value, scaled[name])
            for name, value in self.get_params(deep=False).items()
            if name in scaled and value is not None
        }
        return type(self)(**(self.get_params(deep=False) | stated))

    def _check_adversary(self, stated: Mapping[str, Any]) -> None:
        if not isinstance(self.adversary, str) or self.adversary not in ADVERSARIES:
            raise ValueError(f"{self!r}: no such adversary. Choose one of {', '.join(map(repr, ADVERSARIES))}.")
        if self.adversary == "trace":
            return
        if others := [name for name in stated if name != "std"]:
            raise ValueError(
                f"{self!r} together with {others[0]}: an adversary who chooses the covariance leaves no place for one that is "
                "known. Give std alone, or leave adversary='trace'."
            )
        if self.adversary == "diagonal" and np.ndim(self.std) > 0:
            raise ValueError(
                f"{self!r}: with adversary='diagonal' std is one number, the root of the sum of all variances. "
                "Deviations known for each feature go with adversary='marginals'."
            )

    def _common_factor(self, n_features: int) -> Array:
        if self.std is not None:
            std = _numbers(self.std, "GaussianNoise(std=...)", "std")
            if std.ndim and std.shape != (n_features,):
                raise ValueError(
                    f"GaussianNoise(std=...): std has shape {std.shape}; give one number, or one per feature, ({n_features},). "
                    "Noise that differs by row goes to fit as X_std."
                )
            return _nonnegative(std, "GaussianNoise(std=...)", "std")
        if self.cov is not None:
            cov = _numbers(self.cov, "GaussianNoise(cov=...)", "cov")
            if cov.shape != (n_features, n_features):
                raise ValueError(
                    f"GaussianNoise(cov=...): cov has shape {cov.shape}, not ({n_features}, {n_features}). "
                    "Covariances that differ by row go to fit as X_cov."
                )
            return _root(cov, "GaussianNoise(cov=...)", "cov")
        factor = _numbers(self.factor, "GaussianNoise(factor=...)", "factor")
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
            (cls(0.7, adversary="diagonal"), {}),
            (cls(0.7, adversary="marginals"), {}),
            (cls([0.5, 0.1, 2.0], adversary="marginals"), {}),
        ]


def _row_clouds(multiplier: float, n_samples: int, n_features: int, own: Mapping[str, Any]) -> RowClouds:
    """Return each row's own noise, checked."""
    name, value = next(iter(own.items()))
    value = _numbers(value, f"{name}=...", name)
    shapes = {
        "X_std": "(n_samples, n_features)",
        "X_cov": "(n_samples, n_features, n_features)",
        "X_factor": "(n_samples, n_features, r)",
    }
    wanted = {
        "X_std": (n_samples, n_features),
        "X_cov": (n_samples, n_features, n_features),
        "X_factor": (n_samples, n_features, *value.shape[2:3]),
    }[name]
    if value.shape != wanted or value.ndim != shapes[name].count(",") + 1:
        raise ValueError(
            f"{name} has shape {value.shape}; it states the noise of each row and must have shape {shapes[name]}, here with "
            f"n_samples={n_samples} and n_features={n_features}. Noise common to all rows belongs in the constructor: "
            f"noise=GaussianNoise({name.removeprefix('X_')}=...)."
        )
    if name == "X_std":
        return DiagonalClouds.of(multiplier * _nonnegative(value, f"{name}=...", name))
    return FactorClouds(multiplier * (_root(value, f"{name}=...", name) if name == "X_cov" else value))


def _numbers(value: Any, call: str, name: str) -> Any:
    """Return an array of finite numbers, a CSR array of a sparse matrix."""
    try:
        out = _canonical(value) if sparse.issparse(value) else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{call}: {name} must be numbers, got {value!r:.80}.") from None
    if not np.all(np.isfinite(_stored(out))):
        raise ValueError(
            f"{call}: {name} contains NaN or infinity. Give every row and feature a finite number; 0 means exact."
        )
    return out


def _canonical(value: Any) -> sparse.csr_array:
    """Return a sparse matrix as a CSR array in which no entry is stored in parts."""
    out = sparse.csr_array(value, dtype=np.float64)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    return out


def _stored(value: Any) -> Array:
    """Return the numbers that an array or a sparse one holds."""
    return np.asarray(value.data if sparse.issparse(value) else value)


def _nonnegative(value: Any, call: str, name: str) -> Any:
    if np.any(_stored(value) < 0):
        raise ValueError(
            f"{call.replace('...', f'{np.min(value):g}') if value.ndim == 0 else call}: {name} must be >= 0."
        )
    return value


def _root(cov: Array, call: str, name: str) -> Array:
    """Return factors F with F F' = cov, for one matrix or a stack of them."""
    if not np.allclose(cov, np.swapaxes(cov, -1, -2), rtol=1e-8, atol=1e-12 * np.abs(cov).max(initial=0.0)):
        raise ValueError(f"{call}: {name} is not symmetric. A covariance is.")
    variances = np.diagonal(cov, axis1=-2, axis2=-1)
    # features of very different scales are judged by their correlations
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    values, vectors = np.linalg.eigh(cov / (scale[..., :, None] * scale[..., None, :]))
    smallest = np.minimum(values.min(axis=-1), np.where(variances < 0, -1.0, 0.0).min(axis=-1))
    if np.any(smallest < INDEFINITE):
        worst = np.unravel_index(np.argmin(smallest), smallest.shape)
        where = f" (row {worst[0]})" if worst else ""
        raise ValueError(
            f"{call}: {name} is indefinite{where}: its smallest eigenvalue is below 0. A covariance has none."
        )
    # what rounding left of a zero eigenvalue is no noise
    values = np.where(values > 1e-14, values, 0.0)
    return scale[..., :, None] * vectors * np.sqrt(values)[..., None, :]
