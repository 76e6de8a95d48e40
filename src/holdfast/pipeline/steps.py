"""The effects of scikit-learn's transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

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
from sklearn.random_projection import BaseRandomProjection

from holdfast.pipeline.effects import Affine, Effect, Exact, Imputed, InSequence, Monotone, Products, SideBySide
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense

MONOTONE = (np.log, np.log1p, np.log2, np.log10, np.exp, np.expm1, np.sqrt, np.cbrt, np.arcsinh, np.arctan, np.tanh)
"""Functions of a FunctionTransformer that are known to rise."""
TRIES = 1e-9
"""What a step that is said to be linear may differ from its matrix, as a share of its values."""


@singledispatch
def effect_of(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    """Return what a fitted step does to errors.

    Parameters
    ----------
    step : estimator
        A fitted transformer, or "passthrough".
    n_features : int
        How many features it takes.
    stated : dict of {"linear", "monotone"}
        What a user says of steps, by their names.
    path : str
        The name of the step, ``outer__inner`` where it is nested.
    """
    if hasattr(step, "uncertainty_effect"):
        return step.uncertainty_effect(n_features)
    if path in stated:
        return _as_stated(step, n_features, stated[path], path)
    raise ValueError(
        f"step {path!r}, {type(step).__name__}: what it does to errors is not known. Say effects={{{path!r}: 'linear'}} or "
        "'monotone' if it is, teach it by teach_step, move it before the pipeline, or train without uncertainty in a plain "
        "Pipeline."
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
    >>> from holdfast import Box, UncertainPipeline, teach_step
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
    effect_of.register(kind, lambda step, n_features, stated, path: effect(step, n_features))


def _as_stated(step: Any, n_features: int, said: str, path: str) -> Effect:
    if said == "monotone":
        return Monotone(step.transform)
    if said == "linear":
        units = np.eye(n_features)
        zero = dense(step.transform(0 * units[:1])).astype(np.float64)
        matrix = (dense(step.transform(units)) - zero).T
        tried = np.random.default_rng(0).normal(size=(8, n_features))
        found, size = dense(step.transform(tried)), np.abs(matrix).max(initial=0.0) + np.abs(zero).max(initial=0.0)
        if not np.allclose(found, tried @ matrix.T + zero, rtol=TRIES, atol=TRIES * size):
            raise ValueError(f"effects={{{path!r}: 'linear'}}: {type(step).__name__} is not linear.")
        return Affine(matrix, zero[0])
    raise ValueError(f"effects={{{path!r}: {said!r}}}: say 'linear' or 'monotone'.")


def _taught(*kinds: type) -> Callable[[Callable[..., Effect]], Callable[..., Effect]]:
    def teach(effect: Callable[..., Effect]) -> Callable[..., Effect]:
        for kind in kinds:
            effect_of.register(kind, effect)
        return effect

    return teach


@_taught(str, type(None))
def _passthrough(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Affine(np.ones(n_features))


@_taught(StandardScaler)
def _standard(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    scale = np.ones(n_features) if step.scale_ is None else 1 / step.scale_
    return Affine(scale, -scale * step.mean_ if step.with_mean else None)


@_taught(RobustScaler)
def _robust(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    scale = np.ones(n_features) if step.scale_ is None else 1 / step.scale_
    return Affine(scale, None if step.center_ is None else -scale * step.center_)


@_taught(MinMaxScaler)
def _min_max(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Monotone(step.transform) if step.clip else Affine(step.scale_, step.min_)


@_taught(MaxAbsScaler)
def _max_abs(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Monotone(step.transform) if getattr(step, "clip", False) else Affine(1 / step.scale_)


@_taught(PCA, IncrementalPCA)
def _pca(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    matrix = step.components_ / np.sqrt(step.explained_variance_)[:, None] if step.whiten else step.components_
    return Affine(matrix, None if step.mean_ is None else -matrix @ step.mean_)


@_taught(FastICA)
def _ica(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Affine(step.components_, -step.components_ @ step.mean_ if step.whiten else None)


@_taught(TruncatedSVD, BaseRandomProjection)
def _projection(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Affine(step.components_)


@_taught(SelectorMixin)
def _selector(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Affine(AffineMap.selection(np.flatnonzero(step.get_support()), n_features).matrix)


@_taught(PowerTransformer, QuantileTransformer)
def _monotone(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Monotone(step.transform)


@_taught(PolynomialFeatures)
def _polynomial(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Products(step.powers_)


@_taught(OneHotEncoder, OrdinalEncoder)
def _encoder(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    return Exact(n_features, len(step.get_feature_names_out()), step.transform)


@_taught(FunctionTransformer)
def _function(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    if path in stated:
        return _as_stated(step, n_features, stated[path], path)
    if step.func is None:
        return Affine(np.ones(n_features))
    if step.func in MONOTONE and not step.kw_args:
        return Monotone(lambda rows: step.func(np.asarray(rows)))
    name = getattr(step.func, "__name__", repr(step.func))
    raise ValueError(
        f"step {path!r}, FunctionTransformer({name}): is it linear, or does it change each feature by a function that only "
        f"rises or only falls? Say effects={{{path!r}: 'linear'}} or 'monotone'; of others teach_step knows more."
    )


@_taught(SimpleImputer)
def _imputer(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    if step.statistics_.dtype.kind == "O":  # categories
        return Exact(n_features, len(step.get_feature_names_out()), step.transform)
    kept = [j for j, fill in enumerate(step.statistics_) if step.keep_empty_features or fill == fill]
    n_flags = 0 if step.indicator_ is None else len(step.indicator_.features_)
    matrix = sparse.vstack([AffineMap.selection(kept, n_features).matrix, sparse.csr_array((n_flags, n_features))])
    spread = getattr(step, "spread_", np.full((3, n_features), np.nan))
    lower, upper, std = (np.append(part[kept], np.zeros(n_flags)) for part in spread)
    return Imputed(AffineMap(matrix), step.transform, lower, upper, std)


@_taught(Pipeline)
def _pipeline(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    parts, width = [], n_features
    for name, inner in step.steps:
        found = effect_of(inner, width, stated, f"{path}__{name}")
        width = found.width(width)
        parts.append((found, getattr(inner, "transform", _same)))
    return InSequence(parts, n_features)


@_taught(FeatureUnion)
def _union(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    inner = [(name, one) for name, one in step.transformer_list if one != "drop"]
    weights = step.transformer_weights or {}
    parts: list[tuple[Effect, NDArray[np.intp]]] = []
    for name, one in inner:
        effect = effect_of(one, n_features, stated, f"{path}__{name}")
        weight = Affine(np.full(effect.width(n_features), weights.get(name, 1.0)))
        weighted = InSequence([(effect, getattr(one, "transform", _same)), (weight, _same)], n_features)
        parts.append((weighted, np.arange(n_features)))
    return SideBySide(parts, n_features)


@_taught(ColumnTransformer)
def _columns(step: Any, n_features: int, stated: dict[str, str], path: str) -> Effect:
    parts: list[tuple[Effect, NDArray[np.intp]]] = []
    names = list(getattr(step, "feature_names_in_", []))
    if step.transformer_weights:
        raise ValueError(f"step {path!r}: ColumnTransformer(transformer_weights=...) is not known here. Leave it out.")
    for name, one, columns in step.transformers_:
        chosen = _positions(columns, names, n_features)
        if (isinstance(one, str) and one == "drop") or len(chosen) == 0:
            continue
        parts.append((effect_of(one, len(chosen), stated, f"{path}__{name}"), chosen))
    return SideBySide(parts, n_features)


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
