"""Rows on their way through the transformers of a pipeline, together with the sets around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from holdfast._core.arithmetic import dense
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.carrying import Carried, added, carry, effects_of, transformed
from holdfast.features.effects import Effect
from holdfast.features.steps import may_add_errors
from holdfast.pipeline.settings import NAME, check_settings
from holdfast.pipeline.stated_sets import (
    StatedSet,
    draws_errors,
    exact_rows,
    holders,
    meaning,
    predicts,
    takes_by_name,
)
from holdfast.uncertainty import GaussianNoise

PROBABILITIES = ("predict_proba", "predict_log_proba")
PREDICTIONS = ("predict", "decision_function", "score")
PLAIN = ("fit", *PROBABILITIES, *PREDICTIONS)
"""Methods that may be called without any uncertainty."""


class LastInputs(NamedTuple):
    """What the last step of a pipeline is given."""

    sets: dict[str, UncertaintySet]
    """The carried sets that replace its own, by the names of its parameters."""
    metadata: dict[str, Any]
    rows: Any


class CarriedRows:
    """The rows of one call of `fit` or another method, given and transformed; each part is computed once, when needed.

    Parameters
    ----------
    pipeline : UncertainPipeline
    X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
    steps : list of (str, estimator), default=None
        The fitted transformers, all steps but the last by default.
    """

    def __init__(self, pipeline: Any, X: Any, steps: Sequence[tuple[str, Any]] | None = None):
        self.pipeline, self.X, self.final = pipeline, X, pipeline._final_estimator
        self.steps = pipeline.steps[:-1] if steps is None else steps

    @cached_property
    def after(self) -> Any:
        """The transformed rows."""
        return transformed(self.steps, self.X)

    @cached_property
    def effects(self) -> list[Effect]:
        """What each step does to rows and errors."""
        check_settings(self.pipeline)
        return effects_of(self.steps, self.X, self.pipeline.effects or {})

    def carry(self, uncertainty: UncertaintySet, metadata: Mapping[str, Any], *, with_own: bool = True) -> Carried:
        """Return the set and metadata after the transformers, with or without the errors that these add themselves."""
        nonlinear = self.pipeline.nonlinear
        return carry(uncertainty, metadata, self.X, self.after, self.steps, self.effects, nonlinear, with_own=with_own)

    def adds_errors(self, method: str) -> bool:
        """Return whether the transformers add errors to these rows."""
        # where a plain classifier predicts, effects are not computed: they need not be known for each step there
        is_plain = method in PLAIN and not may_add_errors(step for _, step in self.steps)
        return not is_plain and added(self.X, self.steps, self.effects)

    def exact_sets(self, method: str) -> list[StatedSet]:
        """Return sets of size 0 for a last step without a set, if transformers add errors to the rows; else no sets.

        The errors that transformers add are then carried to the last step on top of these sets. Raises if the last step
        has no use for errors at all.
        """
        final, is_fit = self.final, method == "fit"
        if not predicts(final):
            return []
        if not self.adds_errors(method):
            # an estimator that draws from errors needs some: errors of size 0 where the transformers add none
            is_drawn = is_fit and draws_errors(final) and may_add_errors(step for _, step in self.steps)
            return exact_rows(final) if is_drawn and any(effect.adds_errors for effect in self.effects) else []
        found = exact_rows(final)
        own = [holder for holder in found if is_fit or (holder.path and "__" not in holder.path)]
        if own:
            return own
        if not is_fit and takes_by_name(final, method, "X_std"):
            noises = [one.uncertainty.at_prediction() for one in holders(final) if one.uncertainty.is_expectation]
            return [StatedSet("", noises[0] if noises else GaussianNoise(0.0), True, type(final).__name__)]
        # a last step that takes errors in predict_proba only, such as ModeratedClassifier, is given them there
        if found or holders(final) or takes_by_name(final, "predict_proba", "X_std"):
            return []
        raise ValueError(
            f"{NAME}.{method}: the steps fill in entries that have errors, as SpreadImputer does, and the last step, "
            f"{final!r:.80}, takes none. Use one that does: RobustLinearClassifier for worst cases, "
            "GaussianRobustClassifier or NoiseCopies(estimator) for averages, ModeratedClassifier(estimator) for "
            "probabilities; or use SimpleImputer, whose fill-ins count as exact."
        )

    def last_inputs(self, held: Sequence[StatedSet], stated: Mapping[str, Any]) -> LastInputs:
        """Return the last step's inputs, given the sets that it holds and the metadata stated for the rows."""
        sets: dict[str, UncertaintySet] = {}
        told, rows = [], self.after
        for holder in held:
            made, own, rows = self.carry(holder.uncertainty, stated if holder.is_told else {}, with_own=holder.is_told)
            if not holder.is_told and own:
                if not any(np.any(dense(value)) for value in own.values()):  # all errors are 0
                    continue
                raise ValueError(
                    f"{NAME}: the steps make {', '.join(sorted(own))} of {holder.uncertainty!r}, which does not reach "
                    f"{holder.owner} inside {type(self.final).__name__}. State it there instead: "
                    "NoiseCopies(estimator, uncertainty=...)."
                )
            if not holder.is_fixed:
                sets[holder.path] = made
            elif made != (holder.uncertainty if holder.path else meaning(set(own))):
                raise ValueError(_cannot_take(holder, made, own))
            told += [own] if holder.is_told else []
        metadata = told[0] if told else {}
        # one set of metadata reaches all estimators inside the last step, so it must mean the same to each
        if any(not _are_same(metadata, other) for other in told[1:]):
            raise ValueError(
                f"{NAME}: {' and '.join(holder.owner for holder in held)} would be told different things by the same metadata, "
                "as their sets are carried differently. Use one pipeline for each."
            )
        return LastInputs(sets, metadata, rows)


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return set(one) == set(other) and all(np.array_equal(dense(one[name]), dense(other[name])) for name in one)


def _cannot_take(holder: StatedSet, made: UncertaintySet, carried: Mapping[str, Any]) -> str:
    if holder.path:
        return (
            f"{NAME}: {holder.owner} states {holder.uncertainty!r} by plain numbers, and the steps make something else of it. "
            "Use steps that keep it (scalers that neither shift nor stretch: MaxAbsScaler for deletions, PCA for a ball), or "
            "RobustLinearClassifier, which takes any set."
        )
    return (
        f"{NAME}: {holder.owner} takes {', '.join(sorted(carried))}, and the steps make {made!r} of it, which no metadata "
        "can state. Use a last step that holds a set, such as RobustLinearClassifier(IntervalBox())."
    )
