"""The effects of scikit-learn's transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, singledispatch
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils import _safe_indexing
from sklearn.utils._missing import is_scalar_nan

from holdfast._core.allowed import Having, Instance, arguments
from holdfast._core.uncertainty import Array
from holdfast.pipeline.effects import Affine, Effect, Exact, Imputed, InSequence, Monotone, Products, SideBySide
from holdfast.pipeline.rows import in_form_of, numbers_of
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense

MONOTONE = (np.log, np.log1p, np.log2, np.log10, np.exp, np.expm1, np.sqrt, np.cbrt, np.arcsinh, np.arctan, np.tanh)
"""Functions of a FunctionTransformer that are known to rise."""
TRIES = 1e-9
"""What a step may differ from what is said of it, as a share of its values."""
TRIED = 1000
"""How many rows it is tried at, at most."""
TAUGHT: list[type] = []
"""Classes of steps that users taught."""


class Place(NamedTuple):
    """Where a step is, and what is said of it."""

    n_features: int
    """How many features it takes."""
    stated: Mapping[str, str]
    """What a user says of steps, "linear" or "monotone", by their names."""
    path: str
    """The name of the step, ``outer__inner`` where it is nested."""
    rows: Callable[[], Any]
    """Returns rows as the step takes them, at which claims are tried."""

    def inside(self, name: str, n_features: int, rows: Callable[[], Any]) -> Place:
        """Return the place of a step inside this one."""
        return Place(n_features, self.stated, f"{self.path}__{name}", rows)


def effect_of(step: Any, at: Place) -> Effect:
    """Return what a fitted step does to errors: what it says itself, else what is said of it, else what its class is known to.

    Parameters
    ----------
    step : estimator
        A fitted transformer, or "passthrough".
    at : Place
    """
    if hasattr(step, "uncertainty_effect"):
        found: Effect = step.uncertainty_effect(at.n_features)
        return found
    if at.path in at.stated and hasattr(step, "transform"):
        return CLAIMS[at.stated[at.path]](step, at)
    return _known(step, at)


@singledispatch
def _known(step: Any, at: Place) -> Effect:
    raise ValueError(
        f"step {at.path!r}, {type(step).__name__}: what it does to errors is not known. Say "
        f"effects={{{at.path!r}: 'linear'}} or 'monotone' if it is, teach it by teach_step, move it before the pipeline, or "
        "train without uncertainty in a plain Pipeline."
    )


@arguments(
    kind=Instance(type, "give a class of steps"), effect=Having(("__call__",), "give a function (step, n_features)")
)
def teach_step(kind: type, effect: Callable[[Any, int], Effect]) -> None:
    """Teach :class:`UncertainPipeline` what a kind of step does to errors.

    Parameters
    ----------
    kind : type
        The class of the step, and of those derived from it.
    effect : callable
        From the fitted step and its number of features to an :class:`Effect`: ``Affine(matrix, offset)``,
        ``Monotone(function)``, ``Products(powers)``, or one of your own. A step may instead have a method
        ``uncertainty_effect(n_features)``.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator, TransformerMixin
    >>> from holdfast import Box, UncertainPipeline
    >>> from holdfast.pipeline import teach_step
    >>> from holdfast.pipeline import Affine
    >>> class Differences(TransformerMixin, BaseEstimator):
    ...     def fit(self, X, y=None):
    ...         return self
    ...     def transform(self, X):
    ...         return np.diff(X, axis=1)
    >>> teach_step(Differences, lambda step, n: Affine(np.diff(np.eye(n), axis=0)))
    >>> X = np.array([[1.0, 4.0, 9.0], [2.0, 3.0, 5.0]])
    >>> uncertainty, _ = UncertainPipeline([("d", Differences())]).fit(X).carried(X, Box(0.5))
    >>> float(uncertainty.at(np.diff(X), {}).support(np.array([1.0, 1.0])))
    1.0
    """
    TAUGHT.append(kind)
    _known.register(kind, lambda step, at: effect(step, at.n_features))


def may_add_errors(estimators: Iterable[Any]) -> bool:
    """Return whether some steps, or those inside them, may give errors to rows that have none."""
    inside = (
        one
        for outer in estimators
        for one in (outer, *(outer.get_params(deep=True).values() if hasattr(outer, "get_params") else ()))
    )
    return any(
        getattr(one, "adds_errors", False) or hasattr(one, "uncertainty_effect") or isinstance(one, tuple(TAUGHT))
        for one in inside
    )


def _as_linear(step: Any, at: Place) -> Effect:
    transform, rows = _tried(step, at)
    zero = transform(np.zeros((1, at.n_features)))
    matrix = (transform(np.eye(at.n_features)) - zero).T
    rng = np.random.default_rng(0)
    pairs = rng.permuted(rows, axis=0)
    # near 0, at the rows, and beyond them
    points = np.vstack([rng.normal(size=(8, at.n_features)), rows, rows + 2 * (rows - pairs), pairs])
    size = np.abs(points) @ np.abs(matrix).T + np.abs(zero)
    if not np.all(np.abs(transform(points) - (points @ matrix.T + zero)) <= TRIES * (size + size.max(initial=0.0))):
        raise ValueError(f"effects={{{at.path!r}: 'linear'}}: {type(step).__name__} is not linear.")
    return Affine(matrix, zero[0])


def _as_monotone(step: Any, at: Place) -> Effect:
    transform, rows = _tried(step, at)
    # single features go where they go with any others
    points = np.vstack([rows, np.random.default_rng(0).permuted(rows, axis=0)])
    if len(points) and not _is_monotone(points, transform(points)):
        raise ValueError(
            f"effects={{{at.path!r}: 'monotone'}}: {type(step).__name__} does not change each feature by a function of it "
            "alone that only rises or only falls."
        )
    return Monotone(step.transform)


CLAIMS = {"linear": _as_linear, "monotone": _as_monotone}
"""What can be said of steps that are not known."""


def _tried(step: Any, at: Place) -> tuple[Callable[[Array], Array], Array]:
    """Return the step as a function of arrays, and the rows, without those that lack entries, to try it at."""
    X = at.rows()
    values = numbers_of(X)
    rows = dense(values[:: max(-(-values.shape[0] // TRIED), 1)])

    def transform(points: Array) -> Array:
        with np.errstate(all="ignore"):
            return dense(numbers_of(step.transform(in_form_of(X, points))))

    return transform, rows[~np.any(np.isnan(rows), axis=1)]


def _is_monotone(points: Array, found: Array) -> bool:
    """Return whether each column of `found` rises or falls with that of `points`, and is the same where that is."""
    if found.shape != points.shape or not np.all(np.isfinite(found)):
        return False
    order, slack = np.argsort(points, axis=0), TRIES * np.max(np.abs(found), axis=0)
    moves, rise = (np.diff(np.take_along_axis(part, order, axis=0), axis=0) for part in (points, found))
    is_one_way = np.all(rise >= -slack, axis=0) | np.all(rise <= slack, axis=0)
    return bool(np.all(is_one_way) and np.all(np.abs(rise) <= slack, where=moves == 0))


def _taught(*kinds: type) -> Callable[[Callable[..., Effect]], Callable[..., Effect]]:
    def teach(effect: Callable[..., Effect]) -> Callable[..., Effect]:
        for kind in kinds:
            _known.register(kind, partial(_of_kind, kind, effect))
        return effect

    return teach


def _of_kind(kind: type, effect: Callable[..., Effect], step: Any, at: Place) -> Effect:
    """Return the effect of a kind of step, unless the step transforms in its own way."""
    home = next((one for one in type(step).__mro__ if "transform" in vars(one)), kind)
    if not issubclass(kind, home):
        raise ValueError(
            f"step {at.path!r}, {type(step).__name__}: is a {kind.__name__}, but {home.__name__} has a transform of its own, "
            "and what that does to errors is not known. Give it a method uncertainty_effect(n_features), or say "
            f"effects={{{at.path!r}: 'linear'}} or 'monotone'."
        )
    return effect(step, at)


@_taught(str, type(None))
def _passthrough(step: Any, at: Place) -> Effect:
    return Affine(np.ones(at.n_features))


@_taught(StandardScaler)
def _standard(step: Any, at: Place) -> Effect:
    scale = np.ones(at.n_features) if step.scale_ is None else 1 / step.scale_
    return Affine(scale, -scale * step.mean_ if step.with_mean else None)


@_taught(RobustScaler)
def _robust(step: Any, at: Place) -> Effect:
    scale = np.ones(at.n_features) if step.scale_ is None else 1 / step.scale_
    return Affine(scale, None if step.center_ is None else -scale * step.center_)


@_taught(MinMaxScaler)
def _min_max(step: Any, at: Place) -> Effect:
    return Monotone(step.transform) if step.clip else Affine(step.scale_, step.min_)


@_taught(MaxAbsScaler)
def _max_abs(step: Any, at: Place) -> Effect:
    return Monotone(step.transform) if getattr(step, "clip", False) else Affine(1 / step.scale_)


@_taught(PCA, IncrementalPCA)
def _pca(step: Any, at: Place) -> Effect:
    scale = np.sqrt(step.explained_variance_)
    # scikit-learn divides by no less
    scale = np.maximum(scale, np.finfo(scale.dtype).eps)
    matrix = step.components_ / scale[:, None] if step.whiten else step.components_
    return Affine(matrix, None if step.mean_ is None else -matrix @ step.mean_)


@_taught(FastICA)
def _ica(step: Any, at: Place) -> Effect:
    return Affine(step.components_, -step.components_ @ step.mean_ if step.whiten else None)


@_taught(TruncatedSVD, GaussianRandomProjection, SparseRandomProjection)
def _projection(step: Any, at: Place) -> Effect:
    return Affine(step.components_)


@_taught(SelectorMixin)
def _selector(step: Any, at: Place) -> Effect:
    return Affine(AffineMap.selection(np.flatnonzero(step.get_support()), at.n_features).matrix)


@_taught(PowerTransformer, QuantileTransformer)
def _monotone(step: Any, at: Place) -> Effect:
    if getattr(step, "method", None) != "box-cox":
        return Monotone(step.transform)

    def transform(rows: Any) -> Any:
        # scikit-learn raises outside of the domain, here there is no value
        values = numbers_of(rows)
        return step.transform(in_form_of(rows, np.where(values > 0, values, np.nan)))

    return Monotone(transform)


@_taught(PolynomialFeatures)
def _polynomial(step: Any, at: Place) -> Effect:
    return Products(step.powers_)


@_taught(OneHotEncoder, OrdinalEncoder)
def _encoder(step: Any, at: Place) -> Effect:
    return Exact(at.n_features, len(step.get_feature_names_out()), step.transform)


@_taught(FunctionTransformer)
def _function(step: Any, at: Place) -> Effect:
    if step.func is None:
        return Affine(np.ones(at.n_features))
    if step.func in MONOTONE and not step.kw_args:
        return Monotone(lambda rows: step.func(np.asarray(rows)))
    name = getattr(step.func, "__name__", repr(step.func))
    raise ValueError(
        f"step {at.path!r}, FunctionTransformer({name}): is it linear, or does it change each feature by a function that only "
        f"rises or only falls? Say effects={{{at.path!r}: 'linear'}} or 'monotone'; of others teach_step knows more."
    )


@_taught(SimpleImputer)
def _imputer(step: Any, at: Place) -> Effect:
    if not is_scalar_nan(step.missing_values):
        raise ValueError(
            f"step {at.path!r}, {type(step).__name__}(missing_values={step.missing_values!r}): in rows with errors a missing "
            "entry is np.nan, since another number could be the value of a measured one. Put np.nan there before the pipeline."
        )
    # a constant is kept as an object even where it is a number
    if not hasattr(step, "spread_") and not all(isinstance(fill, Real) for fill in step.statistics_):  # categories
        return Exact(at.n_features, len(step.get_feature_names_out()), step.transform)
    kept = [j for j, fill in enumerate(step.statistics_) if step.keep_empty_features or fill == fill]
    n_flags = 0 if step.indicator_ is None else len(step.indicator_.features_)
    matrix = sparse.vstack(
        [AffineMap.selection(kept, at.n_features).matrix, sparse.csr_array((n_flags, at.n_features))]
    )
    spread = getattr(step, "spread_", np.full((3, at.n_features), np.nan))
    lower, upper, std = (np.append(part[kept], np.zeros(n_flags)) for part in spread)
    return Imputed(AffineMap(matrix), step.transform, lower, upper, std)


@_taught(Pipeline)
def _pipeline(step: Any, at: Place) -> Effect:
    parts, width, rows = [], at.n_features, at.rows
    for name, inner in step.steps:
        found, transform = effect_of(inner, at.inside(name, width, rows)), getattr(inner, "transform", _same)
        width, rows = found.width(width), after(transform, rows)
        parts.append((found, transform))
    return InSequence(parts, at.n_features)


@_taught(FeatureUnion)
def _union(step: Any, at: Place) -> Effect:
    inner = [(name, one) for name, one in step.transformer_list if one != "drop"]
    weights = step.transformer_weights or {}
    parts: list[tuple[Effect, NDArray[np.intp]]] = []
    for name, one in inner:
        effect = effect_of(one, at.inside(name, at.n_features, at.rows))
        weight = Affine(np.full(effect.width(at.n_features), weights.get(name, 1.0)))
        weighted = InSequence([(effect, getattr(one, "transform", _same)), (weight, _same)], at.n_features)
        parts.append((weighted, np.arange(at.n_features)))
    return SideBySide(parts, at.n_features)


@_taught(ColumnTransformer)
def _columns(step: Any, at: Place) -> Effect:
    parts: list[tuple[Effect, NDArray[np.intp]]] = []
    names = list(getattr(step, "feature_names_in_", []))
    if step.transformer_weights:
        raise ValueError(
            f"step {at.path!r}: ColumnTransformer(transformer_weights=...) is not known here. Leave it out."
        )
    for name, one, columns in step.transformers_:
        chosen = _positions(columns, names, at.n_features)
        if (isinstance(one, str) and one == "drop") or len(chosen) == 0:
            continue
        rows = after(partial(_safe_indexing, indices=chosen, axis=1), at.rows)
        parts.append((effect_of(one, at.inside(name, len(chosen), rows)), chosen))
    return SideBySide(parts, at.n_features)


def after(transform: Callable[[Any], Any], rows: Callable[[], Any]) -> Callable[[], Any]:
    """Return what gives transformed rows."""
    return lambda: transform(rows())


def _same(X: Any) -> Any:
    return X


def _positions(columns: Any, names: list[str], n_features: int) -> NDArray[np.intp]:
    """Return numbers of columns that are given by numbers, names, a slice or a mask."""
    if isinstance(columns, slice):
        ends = [names.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        # a slice of names includes its end
        stop = ends[1] + 1 if isinstance(columns.stop, str) else ends[1]
        return np.arange(n_features)[slice(ends[0], stop, columns.step)]
    chosen = np.atleast_1d(np.asarray(columns, dtype=object))
    if any(isinstance(column, str) for column in chosen):
        return np.array([names.index(column) for column in chosen], dtype=np.intp)
    return np.arange(n_features)[np.atleast_1d(np.asarray(columns, dtype=None if len(chosen) else np.intp))]
