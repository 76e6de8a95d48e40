"""Checks and views of fitted classifiers and the rows that they are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from holdfast._certificates.models import LinearModel
from holdfast._certificates.pipelines import exact_columns, fills_with_errors, numbers_for, view_of
from holdfast._certificates.views import View
from holdfast._core.allowed import short
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.labels import check_columns, check_features
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.carrying import refuse_inexact
from holdfast.features.rows import checked_metadata, is_numeric, n_columns
from holdfast.pipeline.stated_sets import takes_by_name
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.checks import nonnegative, per_feature

CHECKED = 1000
"""How many rows, evenly spaced, a model's view is checked against its predictions on; all would double the cost."""


def _check_model(model: Any) -> None:
    if isinstance(model, type) or not (hasattr(model, "predict") and hasattr(model, "fit")):
        raise TypeError(f"model={short(model):.80}: give a fitted classifier.")
    check_is_fitted(model, msg="model: this %(name)s is not fitted yet. Call fit first.")


def classes_of(model: Any) -> NDArray[Any]:
    """Return the classes of a fitted classifier."""
    _check_model(model)
    if not hasattr(model, "classes_"):
        raise TypeError(f"model={short(model):.80}: is no classifier, as it has no classes_. Give a fitted classifier.")
    return np.asarray(model.classes_)


def labels_of(model: Any, y: Any, n_samples: int, call: str) -> NDArray[Any]:
    """Return labels as an array, after checking that there is one of the model's classes for each row."""
    classes, labels = classes_of(model), np.asarray(y).ravel()
    if labels.shape != (n_samples,) or not np.all(np.isin(labels, classes)):
        raise ValueError(
            f"{call}(model, X, y): y must hold one of the classes {classes.tolist()!r:.200} for each of the {n_samples} rows."
        )
    return labels


def rows_for(model: Any, X: Any) -> Any:
    """Return the rows as numbers, with the features that a model was fitted with; 0 for missing entries and texts."""
    _check_model(model)
    return numbers_for(model, X)


def stated_of(
    model: Any, X: Any, metadata: Mapping[str, Any], call: str, by_feature: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the checked metadata of the rows X, without None; labels of rows and columns must be those of X."""
    stated = {name: value for name, value in metadata.items() if value is not None}
    check_features(X, by_feature or {}, model)
    if is_numeric(X):
        check_columns(X, stated, model)
    return checked_metadata(X, stated, call, model)


def told(model: Any, noise: RowSets, shape: tuple[int, int]) -> dict[str, Any]:
    """Return this noise as metadata for `predict`, if the model averages over errors of rows; else an empty dict."""
    return (noise.as_metadata(*shape) or {}) if takes_by_name(model, "predict", "X_std") else {}


def refuse_errors_of_categories(model: Any, X: Any, uncertainty: UncertaintySet, stated: Mapping[str, Any]) -> None:
    """Raise if a set gives errors to columns that a model takes as categories."""
    refuse_inexact(exact_columns(model, X), uncertainty, stated, X)


def refuse_spread(model: Any, X: Any, call: str) -> None:
    """Raise if steps fill in entries that have errors: draws of the rows would not include these errors."""
    if fills_with_errors(model, X):
        raise ValueError(
            f"{call}: steps of this model fill in entries that have errors, as SpreadImputer does. Draws of the rows "
            "do not follow these errors. Linear models of two classes need no draws; an UncertainPipeline has "
            "flip_probability; after a SimpleImputer fill-ins count as exact."
        )


def scale_of(weights: Any, n_features: int, call: str) -> Array:
    """Return the units of perturbations, shape (n_features,)."""
    given = per_feature(1.0 if weights is None else weights, n_features, f"{call}(..., weights=...)", "weights")
    return np.broadcast_to(nonnegative(given, f"{call}(..., weights=...)", "weights"), n_features)


def asked(model: Any, X: Any) -> tuple[View, NDArray[Any]]:
    """Return a model at rows X as certificates see it, and its classes; NoCertificateError if its predict disagrees."""
    classes = classes_of(model)
    view = view_of(model, X)
    check_view(model, view, classes)
    return view, classes


def check_view(model: Any, view: View, classes: NDArray[Any]) -> None:
    """Raise NoCertificateError if a model's predictions contradict its view at rows where the view leaves no doubt."""
    some = view.take(slice(None, None, -(-view.rows.shape[0] // CHECKED)))
    said = own_predictions(model, some)
    agrees = said.shape == some.rows.shape[:1]
    for part, _, (own, leads, _) in some.lead_blocks() if agrees else ():
        agrees &= bool(np.all((said[part] == classes[own]) | ~np.all(leads > 0, axis=1)))
    if not agrees:
        raise NoCertificateError(
            f"{model!r:.120}: its predict says something else than its weights, so nothing can be certified. It may "
            "have a predict of its own, several labels per row, or weights that were changed. Smoothing takes any "
            "classifier with one label per row: certified_radius(..., method='smoothing')."
        )


def own_predictions(model: Any, view: View) -> NDArray[Any]:
    """Return the model's own predictions for the rows of a view."""
    X = view.X if hasattr(view.X, "columns") or not is_numeric(view.X) or view.passage.steps else view.rows
    exact = told(model, GaussianNoise(0.0).at(view.rows, {}), (view.rows.shape[0], n_columns(X)))
    return np.asarray(model.predict(X, **exact))


def linear_only(view: View, call: str) -> LinearModel:
    """Return a linear model as certificates see it; raise for others."""
    linear = view.model.as_linear()
    if linear is None:
        raise NoCertificateError(f"{call}: for linear models only; this one is certified by '{view.model.method}'.")
    return linear


def straight_only(view: View, call: str, instead: str) -> None:
    """Raise if steps before the model are not affine: then radii and the like are not known in the units of X."""
    if not view.is_curved:
        return
    name, step = view.passage.steps[view.passage.n_curved - 1]
    clipped = " with clip=True; use clip=False" if getattr(step, "clip", False) else ""
    raise NoCertificateError(f"{call}: step {name!r}, {type(step).__name__}, is no affine map{clipped}. {instead}")


def settled(
    model: Any, view: View, classes: NDArray[Any], codes: NDArray[np.intp], is_sure: NDArray[np.bool_]
) -> NDArray[Any]:
    """Return the predicted classes; where rounding or a tie leaves them open, ask the model itself."""
    predicted = classes[codes]
    if len(unsure := np.flatnonzero(~is_sure)):
        predicted[unsure] = own_predictions(model, view.take(unsure))
    return predicted
