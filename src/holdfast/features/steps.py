"""The registry of the effects of steps: scikit-learn's transformers, and steps that users teach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, singledispatch
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
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
from holdfast._core.arithmetic import dense
from holdfast._core.operations import Divide, Multiply, Operation, Product, Select, Shift
from holdfast._core.row_forms import Array
from holdfast.features.composed import InSequence, SideBySide
from holdfast.features.curved import Monotone, Products, RbfValues, Waves
from holdfast.features.effects import Affine, Effect, Exact, Imputed
from holdfast.features.fills import DoubtfulCategories, KnownCategories, UnknownCategories, unknown_categories
from holdfast.features.rows import in_form_of, is_numeric, numbers_of
from holdfast.uncertainty.affine_map import AffineMap

MONOTONE = (np.log, np.log1p, np.log2, np.log10, np.exp, np.expm1, np.sqrt, np.cbrt, np.arcsinh, np.arctan, np.tanh)
"""Functions of a FunctionTransformer that are known to be increasing."""
TRIES = 1e-9
"""Relative tolerance when a user's claim about a step is tried on rows."""
TRIED = 1000
"""The largest number of rows on which a claim is tried."""
TAUGHT: list[type] = []
"""Classes of steps that users have taught."""


class UnknownStepError(ValueError):
    """Raised if the effect of a step on errors is not known."""


class TextStepError(UnknownStepError):
    """Raised for a step whose input is not a table of numbers and categories."""


class StepContext(NamedTuple):
    """The place of a step in a pipeline, and the user's claims about steps."""

    n_features: int
    """The number of features that the step takes."""
    stated: Mapping[str, str]
    """The user's claims, "linear" or "monotone", by the names of steps."""
    path: str
    """The name of the step, ``outer__inner`` if it is nested."""
    rows: Callable[[], Any]
    """Returns rows as the step takes them, on which claims are tried."""
    fills_are_exact: bool = False
    """Whether entries filled in by an imputer that states no uncertainty count as exact."""

    def inside(self, name: str, n_features: int, rows: Callable[[], Any]) -> StepContext:
        """Return the context of a step inside this one."""
        return self._replace(n_features=n_features, path=f"{self.path}__{name}", rows=rows)


def effect_of(step: Any, at: StepContext) -> Effect:
    """Return the effect of a fitted step on rows and errors.

    The step's own ``uncertainty_effect`` comes first, then the user's claim, then the registry.

    Parameters
    ----------
    step : estimator
        A fitted transformer, or "passthrough".
    at : StepContext
    """
    if hasattr(step, "uncertainty_effect"):
        return _checked(step.uncertainty_effect(at.n_features), step, at).at_rows(at.rows)
    if at.path in at.stated and hasattr(step, "transform"):
        return CLAIMS[at.stated[at.path]](step, at)
    return _checked(_known(step, at), step, at)


def _checked(effect: Any, step: Any, at: StepContext) -> Effect:
    """Return the effect. Raises if it is not an Effect, or takes a different number of features than the step."""
    if not isinstance(effect, Effect):
        raise TypeError(
            f"step {at.path!r}, {type(step).__name__}: its effect is {effect!r:.80}. Return an Effect, such as Affine(matrix)."
        )
    if effect.map is not None and effect.map.n_features != at.n_features:
        raise ValueError(
            f"step {at.path!r}, {type(step).__name__}: its effect takes {effect.map.n_features} features, the step "
            f"{at.n_features}."
        )
    return effect


@singledispatch
def _known(step: Any, at: StepContext) -> Effect:
    raise UnknownStepError(
        f"step {at.path!r}, {type(step).__name__}: what it does to errors is not known. Say UncertainPipeline(effects="
        f"{{{at.path!r}: 'linear'}}) or 'monotone' if it is, teach it by teach_step, or ask about the rows it returns."
    )


@arguments(
    kind=Instance(type, "give a class of steps"), effect=Having(("__call__",), "give a function (step, n_features)")
)
def teach_step(kind: type, effect: Callable[[Any, int], Effect]) -> None:
    """Teach pipelines and certificates the effect of a kind of step on rows and their errors.

    Parameters
    ----------
    kind : type
        The class of the step; its subclasses are included.
    effect : callable
        A function of the fitted step and its number of features that returns an :class:`Effect`:
        ``Affine(matrix, offset)``, ``Monotone(function)``, ``Products(powers)``, or your own. Alternatively, give the
        step a method ``uncertainty_effect(n_features)``.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator, TransformerMixin
    >>> from holdfast import Box, UncertainPipeline
    >>> from holdfast.features import Affine, teach_step
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
    """Return whether some steps, or steps inside them, may add errors to exact rows."""
    return any(
        getattr(one, "adds_errors", False) or hasattr(one, "uncertainty_effect") or isinstance(one, tuple(TAUGHT))
        for one in _all_inside(estimators)
    )


def may_average(estimators: Iterable[Any]) -> bool:
    """Return whether some steps, or steps inside them, average over the errors of rows."""
    return any(getattr(one, "averages_errors", False) for one in _all_inside(estimators))


def may_lose_categories(estimators: Iterable[Any]) -> bool:
    """Return whether some steps, or steps inside them, may encode unknown categories as zeros."""
    return any(isinstance(one, OneHotEncoder) and one.handle_unknown != "error" for one in _all_inside(estimators))


def _all_inside(estimators: Iterable[Any]) -> Iterator[Any]:
    for outer in estimators:
        yield outer
        yield from outer.get_params(deep=True).values() if hasattr(outer, "get_params") else ()


def _as_linear(step: Any, at: StepContext) -> Effect:
    transform, rows = _tried(step, at)
    # the outputs at 0 and at the unit vectors determine a linear step; the trial below detects other steps
    zero = transform(np.zeros((1, at.n_features)))
    matrix = (transform(np.eye(at.n_features)) - zero).T
    rng = np.random.default_rng(0)
    pairs = rng.permuted(rows, axis=0)
    # points near 0, at the rows, and beyond them
    points = np.vstack([rng.normal(size=(8, at.n_features)), rows, rows + 2 * (rows - pairs), pairs])
    size = np.abs(points) @ np.abs(matrix).T + np.abs(zero)
    if not np.all(np.abs(transform(points) - (points @ matrix.T + zero)) <= TRIES * (size + size.max(initial=0.0))):
        raise ValueError(f"effects={{{at.path!r}: 'linear'}}: {type(step).__name__} is not linear.")
    return Affine(matrix, zero[0])


def _as_monotone(step: Any, at: StepContext) -> Effect:
    transform, rows = _tried(step, at)
    # each feature must be mapped in the same way with other values of the other features
    points = np.vstack([rows, np.random.default_rng(0).permuted(rows, axis=0)])
    if len(points) and not _is_monotone(points, transform(points)):
        raise ValueError(
            f"effects={{{at.path!r}: 'monotone'}}: {type(step).__name__} does not change each feature by a function of it "
            "alone that only rises or only falls."
        )
    return Monotone(step.transform)


CLAIMS = {"linear": _as_linear, "monotone": _as_monotone}
"""The claims that users can make about steps, and the functions that try them."""


def _tried(step: Any, at: StepContext) -> tuple[Callable[[Array], Array], Array]:
    """Return the step as a function of arrays, and the complete rows to try it on."""
    X = at.rows()
    values = numbers_of(X)
    rows = dense(values[:: max(-(-values.shape[0] // TRIED), 1)])

    def transform(points: Array) -> Array:
        with np.errstate(all="ignore"):
            return dense(numbers_of(step.transform(in_form_of(X, points))))

    return transform, rows[~np.any(np.isnan(rows), axis=1)]


def _is_monotone(points: Array, found: Array) -> bool:
    """Return whether each column of `found` is a monotone function of the same column of `points`."""
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


def _of_kind(kind: type, effect: Callable[..., Effect], step: Any, at: StepContext) -> Effect:
    """Return the effect of a kind of step. Raises UnknownStepError if a subclass has a transform of its own."""
    home = next((one for one in type(step).__mro__ if "transform" in vars(one)), kind)
    if not issubclass(kind, home):
        raise UnknownStepError(
            f"step {at.path!r}, {type(step).__name__}: is a {kind.__name__}, but {home.__name__} has a transform of its own, "
            "and what that does to errors is not known. Give it a method uncertainty_effect(n_features), or say "
            f"effects={{{at.path!r}: 'linear'}} or 'monotone'."
        )
    return effect(step, at)


@_taught(str, type(None))
def _passthrough(step: Any, at: StepContext) -> Effect:
    return Affine.computed(at.n_features)


@_taught(StandardScaler)
def _standard(step: Any, at: StepContext) -> Effect:
    return _centred(at, step.mean_ if step.with_mean else None, step.scale_)


@_taught(RobustScaler)
def _robust(step: Any, at: StepContext) -> Effect:
    return _centred(at, step.center_, step.scale_)


def _centred(at: StepContext, center: Any, scale: Any) -> Effect:
    """Return the effect (x - center) / scale; `center` or `scale` may be None."""
    shift: list[Operation] = [] if center is None else [Shift(-center)]
    return Affine.computed(at.n_features, *shift, *([] if scale is None else [Divide(scale)]))


@_taught(MinMaxScaler)
def _min_max(step: Any, at: StepContext) -> Effect:
    if step.clip:
        return Monotone(step.transform)
    return Affine.computed(at.n_features, Multiply(step.scale_), Shift(step.min_))


@_taught(MaxAbsScaler)
def _max_abs(step: Any, at: StepContext) -> Effect:
    if getattr(step, "clip", False):
        return Monotone(step.transform)
    return Affine.computed(at.n_features, Divide(step.scale_))


@_taught(PCA, IncrementalPCA)
def _pca(step: Any, at: StepContext) -> Effect:
    shift: list[Operation] = [] if step.mean_ is None else [Shift(-step.mean_)]
    scale = np.sqrt(step.explained_variance_)
    # scikit-learn divides by at least eps
    whiten = [Divide(np.maximum(scale, np.finfo(scale.dtype).eps))] if step.whiten else []
    return Affine.computed(at.n_features, *shift, Product(step.components_), *whiten)


@_taught(FastICA)
def _ica(step: Any, at: StepContext) -> Effect:
    shift: list[Operation] = [Shift(-step.mean_)] if step.whiten else []
    return Affine.computed(at.n_features, *shift, Product(step.components_))


@_taught(TruncatedSVD, GaussianRandomProjection, SparseRandomProjection)
def _projection(step: Any, at: StepContext) -> Effect:
    return Affine.computed(at.n_features, Product(step.components_))


@_taught(SelectorMixin)
def _selector(step: Any, at: StepContext) -> Effect:
    return Affine.computed(at.n_features, Select(np.flatnonzero(step.get_support()), at.n_features))


@_taught(RBFSampler)
def _waves(step: Any, at: StepContext) -> Effect:
    amplitude = np.full(step.n_components, np.sqrt(2.0 / step.n_components))
    waves, scaled = (
        Waves(step.random_weights_.T, step.random_offset_),
        Affine.computed(step.n_components, Multiply(amplitude)),
    )
    return InSequence([(waves, waves.transform), (scaled, _same)], at.n_features)


@_taught(Nystroem)
def _nystroem(step: Any, at: StepContext) -> Effect:
    if step.kernel != "rbf":
        raise UnknownStepError(
            f"step {at.path!r}, Nystroem(kernel={step.kernel!r:.40}): what it does to errors is known of kernel='rbf' alone."
        )
    width = step.gamma if step.gamma is not None else (step.kernel_params or {}).get("gamma")
    values = RbfValues(dense(step.components_), 1.0 / at.n_features if width is None else width)
    mixed = Affine.computed(len(values.centres), Product(step.normalization_))
    return InSequence([(values, values.transform), (mixed, _same)], at.n_features)


@_taught(CountVectorizer, TfidfVectorizer, HashingVectorizer, FeatureHasher, DictVectorizer)
def _text(step: Any, at: StepContext) -> Effect:
    raise TextStepError(
        f"step {at.path!r}, {type(step).__name__}: takes texts or dicts, of which no error can be stated by numbers. Ask about "
        "the counts that it makes: certified_deletions(pipe[-1], pipe[:-1].transform(texts)), say, is how many words a text "
        "may lose."
    )


@_taught(PowerTransformer, QuantileTransformer)
def _monotone(step: Any, at: StepContext) -> Effect:
    if getattr(step, "method", None) != "box-cox":
        return Monotone(step.transform)

    def transform(rows: Any) -> Any:
        # scikit-learn raises an error outside the domain; NaN is returned there instead
        values = numbers_of(rows)
        return step.transform(in_form_of(rows, np.where(values > 0, values, np.nan)))

    return Monotone(transform)


@_taught(PolynomialFeatures)
def _polynomial(step: Any, at: StepContext) -> Effect:
    return Products(step.powers_)


@_taught(OneHotEncoder, OrdinalEncoder)
def _encoder(step: Any, at: StepContext) -> Effect:
    if step.handle_unknown == "use_encoded_value":
        return KnownCategories(at.n_features, step.transform, partial(unknown_categories, step.categories_))
    if step.handle_unknown == "error":
        return Exact(at.n_features, len(step.get_feature_names_out()), step.transform)
    rare = getattr(step, "infrequent_categories_", [None] * at.n_features)
    dropped = [None] * at.n_features if step.drop_idx_ is None else step.drop_idx_
    is_dropped = [one is not None for one in dropped]
    counts = [
        len(known) - (0 if few is None else len(few) - 1) - lost
        for known, few, lost in zip(step.categories_, rare, is_dropped, strict=True)
    ]
    ends = np.cumsum([0, *counts])
    groups = [np.arange(*own) for own in pairwise(ends)]
    assert int(ends[-1]) == len(step.get_feature_names_out())
    if any(is_dropped) or any(few is not None for few in rare):
        found: DoubtfulCategories = UnknownCategories(
            at.n_features, groups, step.transform, partial(unknown_categories, step.categories_), is_dropped
        )
    else:  # without dropped or rare categories, all zeros is not the code of any training category
        found = DoubtfulCategories(at.n_features, groups, step.transform)
    has_texts = any(isinstance(one, str) for known in step.categories_ for one in known)
    # numeric rows are placeholders if the categories are texts, so they are not looked up
    return found if has_texts and is_numeric(at.rows()) else found.at_rows(at.rows)


@_taught(FunctionTransformer)
def _function(step: Any, at: StepContext) -> Effect:
    if step.func is None:
        return Affine.computed(at.n_features)
    if step.func in MONOTONE and not step.kw_args:
        return Monotone(lambda rows: step.func(np.asarray(rows)))
    name = getattr(step.func, "__name__", repr(step.func))
    raise UnknownStepError(
        f"step {at.path!r}, FunctionTransformer({name}): is it linear, or does it change each feature by a function that only "
        f"rises or only falls? Say effects={{{at.path!r}: 'linear'}} or 'monotone'; of others teach_step knows more."
    )


@_taught(SimpleImputer)
def _imputer(step: Any, at: StepContext) -> Effect:
    if not is_scalar_nan(step.missing_values):
        raise ValueError(
            f"step {at.path!r}, {type(step).__name__}(missing_values={step.missing_values!r}): in rows with errors a missing "
            "entry is np.nan, since another number could be the value of a measured one. Put np.nan there before the pipeline."
        )
    # statistics may have the type object even if they are numbers
    if not hasattr(step, "spread_") and not all(isinstance(fill, Real) for fill in step.statistics_):  # categories
        return Exact(at.n_features, len(step.get_feature_names_out()), step.transform)
    kept = [j for j, fill in enumerate(step.statistics_) if step.keep_empty_features or fill == fill]
    n_flags = 0 if step.indicator_ is None else len(step.indicator_.features_)
    map = AffineMap.selection(kept, at.n_features)
    if n_flags:
        map = AffineMap(sparse.vstack([map.matrix, sparse.csr_array((n_flags, at.n_features))]))
    unknown = np.full((3, at.n_features), np.nan)
    if at.fills_are_exact:
        fills = np.array([np.nan if fill is None else fill for fill in step.statistics_], dtype=np.float64)
        unknown = np.stack([fills, fills, np.zeros(at.n_features)])
    spread = getattr(step, "spread_", unknown)
    lower, upper, std = (np.append(part[kept], np.zeros(n_flags)) for part in spread)
    return Imputed(
        map, step.transform, lower, upper, std, getattr(step, "groups_", ()), states_spread=hasattr(step, "spread_")
    )


@_taught(Pipeline)
def _pipeline(step: Any, at: StepContext) -> Effect:
    parts, width, rows = [], at.n_features, at.rows
    for name, inner in step.steps:
        found, transform = effect_of(inner, at.inside(name, width, rows)), getattr(inner, "transform", _same)
        width, rows = found.width(width), after(transform, rows)
        parts.append((found, transform))
    return InSequence(parts, at.n_features)


@_taught(FeatureUnion)
def _union(step: Any, at: StepContext) -> Effect:
    inner = [(name, one) for name, one in step.transformer_list if one != "drop"]
    everything = np.arange(at.n_features)
    parts = [(_weighted(step, name, one, at.inside(name, at.n_features, at.rows)), everything) for name, one in inner]
    return SideBySide(parts, at.n_features)


def _weighted(outer: Any, name: str, step: Any, at: StepContext) -> Effect:
    """Return the effect of a step inside another, which may multiply its outputs by a weight."""
    effect, weight = effect_of(step, at), (outer.transformer_weights or {}).get(name, 1.0)
    if weight == 1:
        return effect
    scaled = Affine(np.full(effect.width(at.n_features), float(weight)))
    return InSequence([(effect, getattr(step, "transform", _same)), (scaled, _same)], at.n_features)


@_taught(ColumnTransformer)
def _columns(step: Any, at: StepContext) -> Effect:
    parts: list[tuple[Effect, NDArray[np.intp]]] = []
    names = list(getattr(step, "feature_names_in_", []))
    for name, one, columns in step.transformers_:
        chosen = positions_of(columns, names, at.n_features)
        if (isinstance(one, str) and one == "drop") or len(chosen) == 0:
            continue
        rows = after(partial(_safe_indexing, indices=chosen, axis=1), at.rows)
        parts.append((_weighted(step, name, one, at.inside(name, len(chosen), rows)), chosen))
    return SideBySide(parts, at.n_features)


def after(transform: Callable[[Any], Any], rows: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that returns the transformed rows."""
    return lambda: transform(rows())


def _same(X: Any) -> Any:
    return X


def positions_of(columns: Any, names: list[str], n_features: int) -> NDArray[np.intp]:
    """Return the indices of columns given by indices, names, a slice or a mask."""
    if isinstance(columns, slice):
        ends = [names.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        # a slice of names includes its end
        stop = ends[1] + 1 if isinstance(columns.stop, str) else ends[1]
        return np.arange(n_features)[slice(ends[0], stop, columns.step)]
    chosen = np.atleast_1d(np.asarray(columns, dtype=object))
    if any(isinstance(column, str) for column in chosen):
        return np.array([names.index(column) for column in chosen], dtype=np.intp)
    return np.arange(n_features)[np.atleast_1d(np.asarray(columns, dtype=None if len(chosen) else np.intp))]
