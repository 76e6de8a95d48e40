"""Noise that replaces random entries by fillers, as missing entries are replaced by means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._core.allowed import short
from holdfast._core.arithmetic import dense, rescaled
from holdfast._core.exceptions import UnstatedError
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import numbers, per_feature, stated_number
from holdfast.uncertainty.ellipsoids import CommonEllipsoid
from holdfast.uncertainty.gaussian import GaussianNoise
from holdfast.uncertainty.row_ellipsoids import DiagonalEllipsoids, FactorEllipsoids

MEAN, OBSERVED = "mean", "observed"


class DropoutNoise(UncertaintySet):
    r"""Noise for training: each entry goes missing with some probability, and a filler takes its place.

    Entry :math:`x_{ij}` stays with probability :math:`1 - p_j`, independently of all else, and becomes :math:`a_j` otherwise.
    A linear score of such a row has the mean and the variance

    .. math:: w^\top \bigl(x_i - p \circ (x_i - a)\bigr) + b, \qquad
              t_i(w)^2 = \sum_j p_j (1 - p_j) (x_{ij} - a_j)^2 w_j^2 ,

    and is approximated by a Gaussian with this mean and variance. So ``GaussianRobustClassifier(DropoutNoise(0.3))`` is
    trained for random deletion without copies of the rows: rows are moved towards the filler, and the rest is noise. If
    errors of the entries with covariance C are stated too, they count for entries that stay:
    :math:`C_{jk} (1 - p_j)(1 - p_k)`, and :math:`C_{jj} (1 - p_j)` on the diagonal.

    The noise applies to training only: at prediction, rows are taken as given, with the filler for missing entries.
    Fill in missing entries of training rows and later rows alike, with means, before the model, as SimpleImputer and
    StandardScaler do. Entries filled in this way are already at the filler, so they have no noise.

    Parameters
    ----------
    share : float, array-like of shape (n_features,) or "observed", default=0.3
        p, from 0 to below 1. "observed" is the share of missing entries in each column of the training rows.
        Classifiers take no missing entries, so use "observed" in an UncertainPipeline that fills them in. Columns that
        are not numeric, or have no known entry, do not drop out.
    filler : float, array-like of shape (n_features,) or "mean", default="mean"
        a; "mean" is the mean of the known entries of each column.
    multiple : float, default=1.0
        Multiplies the errors: with 0.5, an entry moves half way to the filler, and stated errors are halved.

    References
    ----------
    L. van der Maaten, M. Chen, S. Tyree, K. Weinberger, "Learning with marginalized corrupted features" (2013).

    Examples
    --------
    >>> X = np.array([[3.0, 1.0], [1.0, 1.0]])
    >>> noise = DropoutNoise(0.5)
    >>> noise.mean_rows(X)  # half way to the mean of each column
    array([[2.5, 1. ],
           [1.5, 1. ]])
    >>> noise.at(X, {}).support(np.array([2.0, 1.0]))
    array([1., 1.])
    """

    metadata = ("X_std", "X_cov", "X_factor")
    size_name = "noise"
    is_expectation = True
    is_of_rows = True
    is_of_training = True

    def __init__(self, share: Any = 0.3, *, filler: Any = MEAN, multiple: float = 1.0):
        self.share = share
        self.filler = filler
        self.multiple = multiple

    @property
    def row_factor(self) -> float:
        return self._size

    @property
    def _size(self) -> float:
        return stated_number(self.multiple, type(self).__name__, "multiple")

    def learned_from(self, X: Any) -> DropoutNoise:
        is_open = [isinstance(value, str) for value in (self.share, self.filler)]
        if not any(is_open) and np.ndim(self.share) > 0:
            return self
        call, n = type(self).__name__, X.shape[1]
        for name, word in (("share", OBSERVED), ("filler", MEAN)):
            if isinstance(value := getattr(self, name), str) and value != word:
                raise ValueError(f"{call}({name}={value!r}): give a number, one for each feature, or {word!r}.")
        missing = None if sparse.issparse(X) else np.isnan(X)
        is_known = np.ones(n, dtype=bool) if missing is None else ~np.all(missing, axis=0)
        share = self.share
        if is_open[0]:
            if missing is None or not np.any(missing[:, is_known]):
                raise ValueError(
                    f"{call}(share={OBSERVED!r}): no entry of X is missing, so the share cannot be estimated. Give a "
                    "share, or let the rows with missing entries reach it: make_uncertain_pipeline(SimpleImputer(), ..., "
                    f"GaussianRobustClassifier({call}({OBSERVED!r})))."
                )
            share = missing.mean(axis=0)
        share = np.where(is_known, self._shares(share, n), 0.0)
        filler = self.filler
        if is_open[1]:
            sums = np.asarray(X.sum(axis=0)).ravel() if missing is None else np.nansum(X, axis=0)
            counts = np.full(n, X.shape[0]) if missing is None else np.sum(~missing, axis=0)
            filler = np.divide(sums, counts, out=np.zeros(n), where=is_known)
        return DropoutNoise(share, filler=filler, multiple=self.multiple)

    def refuse_parts(self, call: str) -> None:
        if isinstance(self.filler, str) or isinstance(self.share, str):
            raise ValueError(
                f"{call}: {type(self).__name__}(share={short(self.share)}, filler={short(self.filler)}) takes means and shares "
                "from all rows at once, and sees a part at a time. Give numbers: "
                f"{type(self).__name__}(0.3, filler=X.mean(axis=0)), or filler=0.0 for standardised rows."
            )

    def _shares(self, share: Any, n_features: int) -> Array:
        call = f"{type(self).__name__}(share={short(self.share)})"
        given = np.broadcast_to(per_feature(share, n_features, call, "share"), n_features)
        if not np.all((given >= 0) & (given < 1)):
            raise ValueError(
                f"{call}: shares are probabilities from 0 to below 1; with 1 nothing is left to learn from."
            )
        return given

    def _away(self, X: Any) -> tuple[Array, Any]:
        """Return p, and the rows minus the filler."""
        n = X.shape[1]
        filler = per_feature(self.filler, n, f"{type(self).__name__}(filler=...)", "filler")
        if not np.any(filler):
            return self._shares(self.share, n), X
        return self._shares(self.share, n), dense(X) - filler

    def mean_rows(self, X: Any) -> Any:
        p, away = self.learned_from(X)._away(X)
        if not sparse.issparse(X):
            return X - (self._size * p * away).astype(X.dtype, copy=False)
        if not sparse.issparse(away):
            raise ValueError(
                f"{self!r}: rows of a sparse matrix would lose their zeros. Say filler=0: what is missing is 0 there."
            )
        return X - sparse.csr_array(rescaled(sparse.csr_array(away), np.ones(X.shape[0]), self._size * p))

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        p, away = self.learned_from(X)._away(numbers(X, "X=...", "X"))
        return self._bound(X, p, away, metadata).scaled(self._size)

    def _bound(self, X: Any, p: Array, away: Any, metadata: Mapping[str, Any]) -> RowSets:
        # an entry that stays with probability k and has error variance C has the variance p k (x - a)^2 + k C; two
        # entries, which stay independently, have the covariance k_j k_l C_jl
        keeps = 1 - p
        own = {name: value for name, value in metadata.items() if value is not None}
        moves = rescaled(away if sparse.issparse(away) else np.asarray(away), np.ones(X.shape[0]), np.sqrt(p * keeps))
        lost = abs(moves)
        known = GaussianNoise().at(X, own).as_metadata(*X.shape) if own else None
        if known is None:
            if not np.any(dense(lost.max(axis=0)) > 0):
                return CommonEllipsoid(np.zeros(()))
            return DiagonalEllipsoids.of(sparse.csr_array(lost) if sparse.issparse(lost) else lost)
        if "X_std" in known:
            return DiagonalEllipsoids.of(np.hypot(dense(lost), np.sqrt(keeps) * known["X_std"]))
        factor = known["X_factor"]
        # keeps * factor gives k^2 C_jj on the diagonal, so the remaining k C_jj - k^2 C_jj = p k C_jj is added
        alone = np.hypot(dense(lost), np.sqrt(p * keeps) * np.sqrt(np.square(factor).sum(axis=2)))
        return FactorEllipsoids(np.concatenate([keeps[:, None] * factor, alone[:, :, None] * np.eye(len(p))], axis=2))

    def draws(self, X: Any, metadata: Mapping[str, Any], rng: np.random.Generator, n_draws: int) -> Iterator[Any]:
        p, away = self.learned_from(X)._away(X)
        own = {name: value for name, value in metadata.items() if value is not None}
        errors = GaussianNoise().draws(X, own, rng, n_draws) if own else (0.0 for _ in range(n_draws))
        for error in errors:
            gone = rng.uniform(size=X.shape) < p
            yield self._size * np.where(gone, -dense(away), dense(error) if own else 0.0)

    def as_stated(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        if all(value is None for value in metadata.values()):
            raise UnstatedError(
                f"{self!r}: says what training is ready for, not how far off these rows are. Pass X_std, X_cov or X_factor for "
                "that; robustness_curve says what happens when entries go missing, missing_report what missing ones may change."
            )
        return GaussianNoise()

    def at_prediction(self) -> UncertaintySet:
        return GaussianNoise(0.0)

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        if not map.is_monomial:
            raise ValueError(
                f"{self!r}: a step that mixes features leaves none of them to go missing. Let them reach the classifier one by "
                "one, through scalers and selectors only."
            )
        n = map.shape[1]
        filler = per_feature(self.filler, n, f"{type(self).__name__}(filler=...)", "filler")
        there = map(np.broadcast_to(filler, (1, n)))[0]
        share = np.where(map.scales != 0, self._shares(self.share, n)[map.sources], 0.0)
        return DropoutNoise(share, filler=there, multiple=self.multiple), map.cloud(metadata) if metadata else {}

    def times(self, factor: float) -> DropoutNoise:
        return DropoutNoise(self.share, filler=self.filler, multiple=self.multiple * factor)

    @classmethod
    def example_rows(cls) -> Array:
        return np.array([[-0.4, 1.4, 0.3], [0.5, -0.2, 0.6], [-0.1, 0.7, -0.3], [0.2, 0.3, 0.5], [0.6, -0.5, -0.2]])

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        rng = np.random.default_rng(0)
        return [
            (cls(0.5), {}),
            (cls([0.0, 0.7, 0.2], filler=[3.0, 0.0, -1.0]), {}),
            (cls(0.3, filler=0.0), {"X_std": rng.uniform(0.1, 1.0, size=(5, 3))}),
            (cls([0.1, 0.5, 0.0]), {"X_factor": rng.normal(size=(5, 3, 2))}),
        ]
