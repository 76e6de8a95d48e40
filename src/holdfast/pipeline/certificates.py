"""Certificates of a fitted pipeline, for sets around its input rows and for ranges of their missing entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from holdfast._certificates.pipelines import view_of
from holdfast._certificates.views import View
from holdfast._core.arithmetic import dense
from holdfast._core.labels import check_features
from holdfast._core.metadata import known_metadata
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.carrying import added, together
from holdfast.features.rows import known_numbers, n_columns, numbers_of, with_numbers
from holdfast.pipeline.carried_rows import CarriedRows
from holdfast.pipeline.handover import Substitute
from holdfast.pipeline.predictions import set_asked_about
from holdfast.pipeline.settings import NAME, check_settings
from holdfast.uncertainty.affine_map import AffineMap


def view_and_sets(
    pipeline: Any, method: str, X: Any, uncertainty: UncertaintySet | None, metadata: Mapping[str, Any]
) -> tuple[View, RowSets]:
    """Return the pipeline at rows X as certificates need it, and the sets of these rows."""
    check_is_fitted(pipeline)
    call, final = f"{NAME}.{method}", pipeline._final_estimator
    stated = pipeline._stated_of(X, known_metadata(metadata, call), call)
    check_settings(pipeline)
    rows = CarriedRows(pipeline, X)
    if uncertainty is None and pipeline.row_uncertainty_ and not stated:
        getattr(final, method)(rows.after)  # raises: the last step says which metadata are missing
    view = view_of(pipeline, X)
    if any(effect.adds_errors for effect in view.passage.effects):
        added(X, rows.steps, rows.effects)  # refuses steps that fill in entries without an error
    if uncertainty is not None:
        check_features(X, {"uncertainty": uncertainty}, pipeline)
        chosen = uncertainty
    elif own := set_asked_about(final, stated):
        chosen = own.uncertainty
        if view.is_curved:  # otherwise view.sets below checks the metadata at the same numbers
            chosen.split(known_numbers(X), stated)  # refuses metadata that make no sense
    else:  # the last step holds no set, though it may have been given errors in training: it says which set to use
        plain = Substitute(final, {}).copy
        plain.row_uncertainty_ = False
        chosen = plain._own_set(view.rows, stated, call)
    if chosen.is_of_rows and (map := _map_of(rows)) is not None:
        chosen = chosen.in_units_before(map)
    worst, cloud = view.sets(chosen, stated)
    if worst is None or cloud is not None:
        raise ValueError(
            f"{call}(uncertainty={chosen!r}): Gaussian noise has no bounds, so no prediction is certain. State a set, as "
            "certify(X, Box(0.1)) or certify(X, Box(), X_std=...)."
        )
    return view, worst


def _map_of(rows: CarriedRows) -> AffineMap | None:
    """Return the transformers as one affine map of the rows, None if they are not affine."""
    return together(rows.steps, rows.effects, n_columns(rows.X)).map


def worst_rows(pipeline: Any, X: Any, y: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the admissible rows, in the units of X, at which a linear model behind affine steps does worst."""
    view, sets = view_and_sets(pipeline, "worst_case_data", X, None, metadata)
    if view.is_curved or view.slack is not None:
        raise ValueError(
            f"{NAME}.worst_case_data: only where all steps before the last are affine maps. Ask "
            "pipe[-1].worst_case_data(pipe[:-1].transform(X), y, ...) for rows in its own units."
        )
    codes = pipeline._final_estimator._codes(y, view.rows.shape[0])
    return with_numbers(X, dense(view.numbers) + view.worst_moves(sets, codes)[0])


def of_gaps(pipeline: Any, method: str, X: Any, ends: Mapping[str, Any]) -> Any:
    """Return what the last step's method answers about missing entries, given ranges of features in the units of X."""
    Z, carried = _with_gaps(pipeline, method, X, ends)
    return getattr(pipeline._final_estimator, method)(Z, **carried)


def _with_gaps(pipeline: Any, method: str, X: Any, ends: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return rows, missing entries included, and ranges of features, both in the units of the last step."""
    check_is_fitted(pipeline)
    call, rows = f"{NAME}.{method}", CarriedRows(pipeline, X)
    lost, left = (np.count_nonzero(np.isnan(dense(numbers_of(each)))) for each in (X, rows.after))
    if left < lost:
        raise ValueError(
            f"{call}: steps fill in missing entries before the last step, {rows.final!r:.80}, which sees none. Ask "
            "holdfast.missing_report(pipe, X) what they may change, or leave out the imputer."
        )
    given = {name: value for name, value in ends.items() if value is not None}
    if not given:
        return rows.after, {}
    map = _map_of(rows)
    if map is None or not map.is_monomial:
        raise ValueError(f"{call}({min(given)}=...): ranges of features pass through scalers and selectors only.")
    whole = {
        name: np.broadcast_to(np.asarray(value, dtype=np.float64), n_columns(X))[map.sources]
        for name, value in given.items()
    }
    unknown = {"lower": -np.inf, "upper": np.inf}
    low, high = (whole.get(name, np.full(map.shape[0], inf)) for name, inf in unknown.items())
    with np.errstate(invalid="ignore"):  # 0 times an infinite end is NaN, which np.where replaces
        moved = [np.where(map.scales == 0, 0.0, map.scales * end) + map.offset for end in (low, high)]
    # a negative scale swaps the ends
    return rows.after, {"lower": np.minimum(*moved), "upper": np.maximum(*moved)}
