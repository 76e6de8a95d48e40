"""Certificate views of fitted pipelines: the steps, their effects on rows, and the classifier at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from holdfast._certificates.fitted import SMOOTHED, model_of, refuse_own_predicts
from holdfast._certificates.fourier_model import FourierModel
from holdfast._certificates.kernel_model import KernelModel
from holdfast._certificates.models import LinearModel, Model
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._certificates.views import Passage, View
from holdfast._core.arithmetic import dense, has_nan
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.labels import column_name
from holdfast._core.operations import Cast
from holdfast.features.carrying import added, effects_of, together, transformed
from holdfast.features.composed import InSequence
from holdfast.features.curved import RbfValues, Waves
from holdfast.features.effects import AffineForm, Effect
from holdfast.features.rows import (
    beside,
    coarsest_dtype,
    is_flat,
    is_numeric,
    known_numbers,
    n_columns,
    numbers_of,
    others_than_numbers,
)
from holdfast.features.steps import TextStepError, UnknownStepError, may_add_errors
from holdfast.uncertainty.affine_map import AffineMap


def view_of(model: Any, X: Any) -> View:
    """Return the view of a fitted classifier at rows X. Raises NoCertificateError if its class is not known."""
    steps, last, claims, nonlinear = _unfolded(model)
    _check_names(model, X)
    refuse_own_predicts(model)
    found = model_of(last)
    if not steps:
        return View(found, X, rows := numbers_for(model, X), rows.shape[1])
    effects = _effects(steps, X, claims)
    stop = first = len(steps)
    while True:
        # the affine steps after the last curved one become part of the model; then that curved step, if there is a
        # model of it; and so on towards the rows
        first = 1 + max((i for i in range(stop) if effects[i].map is None), default=-1)
        passage = Passage(steps, effects, first, nonlinear)
        inner = together(steps[first:stop], effects[first:stop], _width(effects[:first], n_columns(X)))
        Z = passage.rows(X)
        form = inner.affine_form(Z)
        assert form is not None
        # for the given rows only: later numbers have the arithmetic of the step that computes them
        map = _in_arithmetic_of(Z, form.map) if first == 0 else form.map
        found = found.after(map) if map.operations else found
        made = model_before(effects[first - 1], found) if first and form.given is None else None
        if made is None:
            break
        found, stop = made, first - 1
    numbers, missing = known_numbers(Z), None
    corners = [one.shifted(numbers.shape[1]) for one in form.corners]
    if first:
        corners += effects[first - 1].corners(transformed(steps[: first - 1], X))
    if first == 0:
        _refuse_texts_as_numbers(form, X)
        numbers, missing = numbers_for(model, X), _not_moving(form, X)
    is_exact = form.below is None or not (np.any(form.below) or np.any(form.above) or np.any(form.std))
    slack, std = (None, None) if is_exact else ((form.below, form.above), form.std)
    rows = numbers if form.given is None else beside([numbers, form.given]).astype(numbers.dtype)
    return View(found, X, rows, numbers.shape[1], slack, std, missing, passage, tuple(corners))


def _refuse_texts_as_numbers(form: AffineForm, X: Any) -> None:
    """Raise ValueError if a step converts a column of texts, such as "3.5", to numbers."""
    texts = np.flatnonzero(others_than_numbers(X))
    if not len(texts):
        return
    used = texts[np.asarray(abs(form.map.matrix[:, texts]).sum(axis=0)).ravel() > 0]
    if len(used):
        raise ValueError(
            f"X: column {column_name(X, used[0])!r} holds texts, and a step takes them for numbers. Convert it: "
            "X.astype(float)."
        )


def _effects(steps: Sequence[tuple[str, Any]], X: Any, claims: Mapping[str, str]) -> list[Effect]:
    """Return the effects of steps. Raises NoCertificateError for an unknown step."""
    try:
        return effects_of(steps, X, claims, fills_are_exact=True)
    except TextStepError as error:
        raise NoCertificateError(str(error)) from error
    except UnknownStepError as error:
        raise NoCertificateError(f"{error} {SMOOTHED}") from error


def _not_moving(form: AffineForm, X: Any) -> NDArray[np.bool_] | None:
    """Return which entries of X are missing and filled in by exact values; None if there are none."""
    if form.lost is None:
        return None
    missing = np.isnan(dense(numbers_of(X))) & ~others_than_numbers(X)
    for column, is_filled, errors in zip(
        form.lost.columns, form.lost.mask.T, (form.below + form.above + form.std).T, strict=True
    ):
        if column < missing.shape[1]:
            missing[:, column] &= ~(is_filled & (errors > 0))
    return missing if np.any(missing) else None


def fills_with_errors(model: Any, X: Any) -> bool:
    """Return whether steps of a model fill in entries of X by uncertain values."""
    steps, _, claims, _ = _unfolded(model)
    if not may_add_errors(step for _, step in steps):
        return False
    try:
        return added(X, steps, effects_of(steps, X, claims, fills_are_exact=True))
    except UnknownStepError:
        return bool(np.any(np.isnan(dense(numbers_of(X))[:, ~others_than_numbers(X)])))


def exact_columns(model: Any, X: Any) -> NDArray[np.intp]:
    """Return the columns of X that a model does not take as numbers, such as categories."""
    steps, _, claims, _ = _unfolded(model)
    others = np.flatnonzero(others_than_numbers(X)) if steps else np.zeros(0, dtype=np.intp)
    try:
        found = together(steps, effects_of(steps, X, claims), n_columns(X)).exact
    except UnknownStepError:
        return others
    return np.union1d(found, others)


def _in_arithmetic_of(X: Any, map: AffineMap) -> AffineMap:
    """Return the map in the coarsest arithmetic among the columns of a frame, which is lost in a single array."""
    if not hasattr(X, "columns"):
        return map
    dtype = coarsest_dtype(X)
    return map if dtype == np.float64 else map.after(AffineMap.computed(map.n_features, Cast(dtype)))


def _width(effects: Sequence[Effect], n_features: int) -> int:
    for effect in effects:
        n_features = effect.width(n_features)
    return n_features


def _unfolded(model: Any) -> tuple[list[tuple[str, Any]], Any, dict[str, str], str]:
    """Return the steps before a classifier (nested ones too), the classifier, claims on steps, and `nonlinear`."""
    steps: list[tuple[str, Any]] = []
    claims: dict[str, str] = {}
    path, nonlinear = "", "auto"
    while True:
        if isinstance(model, BaseSearchCV):
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            steps += [(f"{path}{name}", step) for name, step in model.steps[:-1]]
            claims |= {f"{path}{name}": said for name, said in (getattr(model, "effects", None) or {}).items()}
            nonlinear = getattr(model, "nonlinear", nonlinear)
            path, model = f"{path}{model.steps[-1][0]}__", model.steps[-1][1]
        else:
            return steps, model, claims, nonlinear


def linear_in_x(model: Any, call: str) -> LinearModel:
    """Return the linear model and its preceding affine steps, without needing rows.

    Raises NoCertificateError for other models.
    """
    steps, last, claims, _ = _unfolded(model)
    refuse_own_predicts(model)
    found, n = model_of(last), int(_taker(model)[0].n_features_in_)
    if steps:
        map = together(steps, _effects(steps, np.zeros((1, n)), claims), n).map
        if map is None:
            raise NoCertificateError(f"{call}: for linear models after affine steps only; {model!r:.80} has others.")
        found = found.after(map)
    linear = found.as_linear()
    if linear is None:
        raise NoCertificateError(f"{call}: for linear models only; this one is certified by '{found.method}'.")
    return linear


def numbers_for(model: Any, X: Any) -> Any:
    """Return rows as an array or CSR matrix of finite floats, with 0 for texts and for entries that a step fills in."""
    _check_names(model, X)
    taker, is_pipeline = _taker(model)
    if is_pipeline and is_flat(X):
        _effects(_unfolded(model)[0], X, {})  # raises an error that names the step that takes texts
    elif is_pipeline and not is_numeric(X):
        return known_numbers(X)
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32, np.float16], "ensure_all_finite": "allow-nan"}
    is_known = isinstance(taker, BaseEstimator) and not (
        hasattr(X, "columns") and not hasattr(taker, "feature_names_in_")
    )
    rows = validate_data(taker, X, reset=False, **options) if is_known else check_array(X, **options)
    if not has_nan(rows.data if sparse.issparse(rows) else rows):
        return rows
    if is_pipeline and not sparse.issparse(rows):
        return np.where(np.isnan(rows), rows.dtype.type(0), rows)
    raise ValueError(
        "X: Input X contains NaN, around which nothing is known. Leave rows with missing entries out, or fill them in by an "
        "imputer in a pipeline."
    )


def _taker(model: Any) -> tuple[Any, bool]:
    """Return the first estimator that receives X, and whether it is a step of a pipeline."""
    steps, last, _, _ = _unfolded(model)
    first = next((step for _, step in steps if step not in (None, "passthrough")), last)
    return first, bool(steps)


@singledispatch
def model_before(effect: Effect, model: Model) -> Model | None:
    """Return the model of the rows before a step, given the model of the rows after it; None if it is not known."""
    return None if effect.map is None or effect.adds_errors or len(effect.exact) else model.after(effect.map)


@model_before.register
def _(effect: InSequence, model: Model) -> Model | None:
    found: Model | None = model
    for part, _ in reversed(effect.parts):
        found = None if found is None else model_before(part, found)
    return found


@model_before.register
def _(effect: Waves, model: Model) -> Model | None:
    linear = model.as_linear()
    if linear is None:
        return None
    angles = RoundedMap(effect.weights, effect.offset, follows_rows=True)
    return FourierModel(angles, linear.map, linear.decision)


@model_before.register
def _(effect: RbfValues, model: Model) -> Model | None:
    linear = model.as_linear()
    if linear is None:
        return None
    centres, is_direct = effect.centres.astype(np.float64), effect.is_direct
    return KernelModel(centres, effect.width_of_kernel, linear.map, linear.decision, is_direct=is_direct)


def _check_names(model: Any, X: Any) -> None:
    """Raise ValueError if a frame does not have the columns of fit in the same order."""
    known = getattr(model, "feature_names_in_", None)
    if known is not None and hasattr(X, "columns") and list(X.columns) != list(known):
        lacking = [name for name in known if name not in list(X.columns)]
        what = f"lacks the column {lacking[0]!r}" if lacking else "has other columns than in fit, or in another order"
        raise ValueError(f"X {what}. Give X[{list(known)!r:.120}], the columns of fit in their order.")
