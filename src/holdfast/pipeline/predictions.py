"""Predictions and probabilities of a fitted pipeline for rows whose errors are stated in the units of X."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from holdfast._core.caller import warn_caller
from holdfast.estimators.linear import ROUTING
from holdfast.features.carrying import rows_before
from holdfast.features.effects import UNLIKELY
from holdfast.features.rows import known_numbers
from holdfast.features.steps import may_average, may_lose_categories
from holdfast.pipeline.carried_rows import PROBABILITIES, CarriedRows
from holdfast.pipeline.handover import Substitute
from holdfast.pipeline.settings import NAME
from holdfast.pipeline.stated_sets import StatedSet, holders, meaning, own_set, takes, takes_by_name


class Question(NamedTuple):
    """A method call on a pipeline: the method, the rows, and all other arguments."""

    pipeline: Any
    method: str
    rows: CarriedRows
    metadata: Mapping[str, Any]
    params: Mapping[str, Any]
    """Other keyword arguments, for the last step's method."""
    plain: Any
    """The pipeline as a plain Pipeline."""

    @property
    def call(self) -> str:
        """The name of the call in messages."""
        return f"{NAME}.{self.method}"

    def stated(self) -> dict[str, Any]:
        """Return the checked metadata."""
        return self.pipeline._stated_of(self.rows.X, self.metadata, self.call)


def answer(question: Question) -> Any:
    """Return the answer of the last step's method, for a method that may take errors of rows."""
    pipeline, method, rows, _, params, _ = question
    check_is_fitted(pipeline)
    final = rows.final
    _warn_of_zeros(rows)
    averages = takes_by_name(final, method, "X_std")
    if method in PROBABILITIES and not averages and may_average(step for _, step in rows.steps):
        return _of_moved_rows(question)
    stated = question.stated()
    _refuse_unasked(final, method, stated)
    if method in PROBABILITIES and not averages:
        _warn_of_plain(rows, method)
    # without metadata the last step says what it lacks; a ModeratedClassifier still gets the errors that steps add
    if pipeline.row_uncertainty_ and not stated and (hasattr(final, "row_noise_") or not averages):
        return getattr(final, method)(rows.after, **params)
    own = set_asked_about(final, stated)
    if own is not None:
        own.uncertainty.split(known_numbers(rows.X), stated)  # refuses metadata that make no sense
    inputs = rows.last_inputs([own] if own else rows.exact_sets(method), stated)
    asked = Substitute(final, inputs.sets).copy
    # whether these rows have errors, not whether training rows had: imputers may have filled in entries there only
    asked.row_uncertainty_ = asked.row_noise_ = bool(inputs.metadata)
    ask = getattr(asked, method)
    if stated:
        _refuse_unasked(final, method, inputs.metadata)
    # a method without arguments for errors, such as a plain predict_proba, is not given carried metadata either
    told = inputs.metadata if stated or takes(ask, set(inputs.metadata)) else {}
    return ask(inputs.rows, **told, **params)


def prediction(question: Question) -> Any:
    """Return the last step's prediction for rows that are exact, or whose errors are stated in the units of X."""
    check_is_fitted(question.pipeline)
    if takes_by_name(question.rows.final, question.method, "X_std"):
        return answer(question)
    _warn_of_zeros(question.rows)
    return _of_moved_rows(question)


def _of_moved_rows(question: Question) -> Any:
    """Return the answer of a last step that takes no errors, at rows as moved by steps that average over errors."""
    pipeline, method, rows, _, params, plain = question
    final, call, stated = rows.final, question.call, question.stated()
    is_moved = getattr(pipeline, "moves_rows_", False)
    if not stated and not (is_moved and not pipeline.row_uncertainty_):
        if is_moved:
            warn_caller(
                f"{call}: in fit, steps of this pipeline averaged over the errors of the rows; here they are given "
                f"none, so rows count as exact. Pass X_std, X_cov or X_factor (zeros for exact rows). {ROUTING}",
                UserWarning,
            )
        return getattr(plain, method)(rows.X, **params)
    held = holders(final)
    # without metadata, use the noise that the last step's constructor states
    own = [holder for holder in held if not holder.uncertainty.is_of_training]
    if stated:
        own = [StatedSet("", meaning(set(stated)), True, type(final).__name__)]
    # a last step that was trained against sets is not given rows moved by noise
    is_noise = all(holder.uncertainty.is_expectation for holder in held)
    moved = rows.last_inputs(own, stated).rows if is_noise else rows.after
    if moved is rows.after:
        raise ValueError(
            f"{call}: {', '.join(sorted(stated))} would not change the answer of the last step, {final!r:.80}: errors "
            "of a row do not move its score. Leave it out. predict_proba and flip_probability take it, if the last "
            "step has them. NoiseAwareClassifier as the last step averages over errors; so does ExpectedFeatures, "
            "with nonlinear='auto', before a last step that is not trained for sets."
        )
    return getattr(final, method)(moved, **params)


def set_asked_about(final: Any, stated: Mapping[str, Any]) -> StatedSet | None:
    """Return the set around rows that a question is about: stated by metadata, else by the last step's constructor."""
    own = own_set(final)
    if not stated:
        return None if own is None or own.uncertainty.is_of_training else own
    if own is None:
        own = StatedSet("", meaning(set(stated)), True, type(final).__name__)
    return own._replace(uncertainty=own.uncertainty.as_stated(stated))


def _refuse_unasked(final: Any, method: str, metadata: Mapping[str, Any]) -> None:
    """Raise if the last step's method does not take these metadata."""
    if not takes(getattr(final, method), set(metadata)):
        raise ValueError(
            f"{NAME}.{method}: the last step, {final!r:.80}, is not asked with {', '.join(sorted(metadata))}, in its own "
            "units. GaussianRobustClassifier and ModeratedClassifier(estimator) take noise (X_std, X_cov, X_factor) for "
            "probabilities, RobustLinearClassifier takes sets for certify."
        )


def _warn_of_zeros(rows: CarriedRows) -> None:
    """Warn if an encoder turns missing or unknown categories into zeros, which no training row had."""
    if not may_lose_categories(step for _, step in rows.steps):
        return
    for (name, step), effect, Z in rows_before(rows.steps, rows.effects, rows.X):
        lost = [one for one in effect.corners(Z) if np.any(one.unlikely)]
        if lost:
            n_rows = np.sum(np.any([one.rows for one in lost], axis=0))
            warn_caller(
                f"{NAME}: step {name!r}, {type(step).__name__}, in {n_rows} of the rows: {UNLIKELY}", UserWarning
            )


def _warn_of_plain(rows: CarriedRows, method: str) -> None:
    """Warn if steps add errors to the rows and the last step does not average its probabilities over them."""
    rows.exact_sets(method)  # refuses a last step that takes no errors at all
    if rows.adds_errors(method):
        warn_caller(
            f"{NAME}.{method}: the steps fill in entries that have errors, and the last step, {rows.final!r:.80}, does not "
            "average over them, so these are plain probabilities, which are too sure of such rows. Use "
            "ModeratedClassifier(estimator) or GaussianRobustClassifier(loss='logistic'), which average, as the last step, or "
            "SimpleImputer, after which what is filled in counts as exact.",
            UserWarning,
        )
