"""The common base of feature maps that map sets of inputs to sets of features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from holdfast._core.allowed import NORM, Choice
from holdfast._core.labels import check_columns, check_features
from holdfast._core.metadata import known_metadata
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._core.whole_fits import WholeFits
from holdfast.features.expected_features import checked_rows
from holdfast.features.rows import checked_weights


class RobustFeatures(WholeFits, TransformerMixin, BaseEstimator):
    """A feature map with bounds on the changes of its features under errors of the inputs."""

    bounds: ClassVar[tuple[str, ...]]
    """The kinds of sets that `push` can return, the default first."""
    common_bounds: ClassVar[tuple[str, ...]]
    """The bounds that are a single radius, the same for all rows with equal errors; the default of `radius` first."""

    best_bounds: ClassVar[tuple[str, ...]]
    """The bounds worth trying; one of them is the best in the study ``benchmarks/feature_bounds.md``."""

    @abstractmethod
    def _fit(self, X: Array, weights: Array) -> None:
        """Fit to checked rows."""

    @abstractmethod
    def _features(self, X: Array) -> Array:
        """Return the features of checked rows."""

    @abstractmethod
    def _push(self, X: Array, inputs: RowSets, bound: str) -> RowSets:
        """Return sets that contain the changes of the features of checked rows X for all errors in `inputs`."""

    @abstractmethod
    def _radius(self, X: Array, inputs: RowSets, bound: str, norm: float) -> Array:
        """Return radii of balls in a norm that contain the changes, shape (n_samples,), or () if all are the same."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Not used.
        sample_weight : array-like of shape (n_samples,), default=None
            The weights of the rows in ``gamma="scale"``; rows of weight 0 are not used at all.
        """
        call = f"{type(self).__name__}.fit"
        check_columns(X, {"sample_weight": sample_weight})
        X = checked_rows(self, X, call=call)
        weights = checked_weights(sample_weight, X, call)
        if not 0 < (total := weights.sum()) < np.inf:
            raise ValueError(f"{call}: sample_weight sums to {total:g}. Give some row a weight > 0, none a huge one.")
        self._fit(X, weights)
        return self

    def transform(self, X: Any) -> Array:
        """Return the features of rows, shape (n_samples, n_features_out)."""
        check_is_fitted(self)
        return self._features(self._rows(X, "transform"))

    def push(self, X: Any, uncertainty: UncertaintySet, *, bound: str | None = None, **metadata: Any) -> RowSets:
        r"""Return sets that contain all changes :math:`\phi(x_i + d) - \phi(x_i)` of features, d in the set of row i.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        uncertainty : UncertaintySet
            The set of the rows, in the units of X: ``Ball(0.3)``, ``Box(0.1)``, ``Ellipsoid()``, ``IntervalBox()``, or
            a sum.
        bound : str, default=None
            The kind of set, one of `bounds`; None for the first one.
        **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
            Uncertainty that differs by row.

        Returns
        -------
        RowSets
            ``support(w)`` is the largest change of each row's score w'phi, and ``maximizer(w)`` attains it. Rounding of
            the features themselves comes on top.
        """
        X, inputs = self._bound(X, uncertainty, metadata, "push")
        chosen = self.bounds[0] if bound is None else bound
        return self._push(X, inputs, Choice(*self.bounds).checked(chosen, f"{type(self).__name__}.push(bound"))

    def radius(
        self, X: Any, uncertainty: UncertaintySet, *, bound: str | None = None, norm: Any = 2, **metadata: Any
    ) -> Array:
        """Return, for each row, the radius of a ball that contains the changes of the features, rounded up.

        Parameters
        ----------
        X, uncertainty, **metadata
            As for `push`.
        bound : str, default=None
            One of `common_bounds`; None for the first one.
        norm : {1, 2, "inf"}, default=2
            The norm of the changes of the features. Not every bound supports every norm.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        X, inputs = self._bound(X, uncertainty, metadata, "radius")
        call = f"{type(self).__name__}.radius"
        chosen = self.common_bounds[0] if bound is None else bound
        chosen = Choice(*self.common_bounds).checked(chosen, f"{call}(bound")
        order = NORM.checked(norm, f"{call}(norm")
        return np.array(np.broadcast_to(self._radius(X, inputs, chosen, order), len(X)))

    def _rows(self, X: Any, method: str) -> Array:
        found: Array = checked_rows(self, X, call=f"{type(self).__name__}.{method}", reset=False)
        return found

    def _bound(self, X: Any, uncertainty: Any, metadata: Mapping[str, Any], method: str) -> tuple[Array, RowSets]:
        """Return checked rows and the sets around them."""
        check_is_fitted(self)
        call = f"{type(self).__name__}.{method}"
        stated = known_metadata(metadata, call)
        check_columns(X, stated, self)
        check_features(X, {"uncertainty": uncertainty}, self)
        X = self._rows(X, method)
        if not isinstance(uncertainty, UncertaintySet):
            raise ValueError(f"{call}(uncertainty={uncertainty!r:.80}): give a set, such as Ball(0.3) or Box(0.1).")
        return X, worst_only(uncertainty, X, stated, call)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return feature names, such as "robustnystroem0"."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.asarray([f"{type(self).__name__.lower()}{k}" for k in range(self._n_features_out)], dtype=object)

    @property
    @abstractmethod
    def _n_features_out(self) -> int:
        """The number of features."""


def worst_only(uncertainty: UncertaintySet, X: Array, metadata: Mapping[str, Any], call: str) -> RowSets:
    """Return the sets bound to rows.

    Raises ValueError for a noise to average over, for sets without 0, and for sets that bound linear scores only.
    """
    worst, cloud = uncertainty.split(X, metadata)
    if worst is None or cloud is not None:
        raise ValueError(
            f"{call}({uncertainty!r:.80}): Gaussian noise has no bounds, so that no set holds what curved features make of it. "
            "State a set, such as Ellipsoid(2) for two standard deviations; NoiseAwareClassifier averages over noise."
        )
    if not worst.has_origin:
        raise ValueError(
            f"{call}({uncertainty!r:.80}): rows have to change in this set, and features are pushed around rows as they are. "
            "Use exactly=False."
        )
    if uncertainty.is_of_scores:
        raise ValueError(
            f"{call}({uncertainty!r:.80}): this set says how far linear scores go, not where rows are, and the features are "
            "curved. State a set that bounds the rows themselves, such as Box or Ellipsoid."
        )
    return worst
