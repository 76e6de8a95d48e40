"""Uncertainty carried through steps: from the units of the rows before them to the units of the rows after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.arithmetic import dense
from holdfast._core.labels import column_name
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.composed import InSequence
from holdfast.features.effects import FILLED_TWICE, Effect, OutOfDomainError
from holdfast.features.gaps import Gaps
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import known_numbers, n_columns, numbers_of
from holdfast.features.steps import StepContext, after, effect_of
from holdfast.uncertainty import Ellipsoid, GaussianNoise, IntervalBox, SetSum

WRONG = 1e-6
"""Relative tolerance for the output of a step outside the interval that its effect states."""
NONLINEAR = ("auto", "interval", "linearise", "raise")

Stated = tuple[UncertaintySet, dict[str, Any]]


class Carried(NamedTuple):
    """Rows and their uncertainty after some steps."""

    uncertainty: UncertaintySet
    metadata: dict[str, Any]
    rows: Any
    """The rows that errors are around: the transformed rows, or where steps that average over noise move them."""


def effects_of(
    steps: Sequence[tuple[str, Any]], X: Any, stated: Mapping[str, str], *, fills_are_exact: bool = False
) -> list[Effect]:
    """Return the effects of fitted steps; the first step takes the rows X."""
    found: list[Effect] = []
    n_given = n_features = n_columns(X)
    rows = lambda: X
    for name, step in steps:
        effect = effect_of(step, StepContext(n_features, stated, name, rows, fills_are_exact))
        n_features = effect.width(n_features)
        rows = after(step.transform, rows) if hasattr(step, "transform") else rows
        found.append(effect)
    if any(effect.adds_errors for effect in found):  # only steps that fill in gaps can fill one gap twice
        gaps = Gaps.start(n_given)
        for (name, step), effect in zip(steps, found, strict=True):
            with _naming(name, step):
                gaps = effect.gaps(gaps)
    return found


def transformed(steps: Sequence[tuple[str, Any]], X: Any) -> Any:
    """Return the rows after all fitted steps."""
    for _, step in steps:
        X = step.transform(X) if hasattr(step, "transform") else X
    return X


def rows_before(
    steps: Sequence[tuple[str, Any]], effects: Sequence[Effect], X: Any
) -> Iterator[tuple[tuple[str, Any], Effect, Any]]:
    """Yield each step with its effect and the rows it takes."""
    for (name, step), effect in zip(steps, effects, strict=True):
        yield (name, step), effect, X
        X = step.transform(X) if hasattr(step, "transform") else X


def together(steps: Sequence[tuple[str, Any]], effects: Sequence[Effect], n_features: int) -> InSequence:
    """Return the effect of several steps in sequence."""
    same = lambda rows: rows
    parts = [(effect, getattr(step, "transform", same)) for (_, step), effect in zip(steps, effects, strict=True)]
    return InSequence(parts, n_features)


def added(X: Any, steps: Sequence[tuple[str, Any]], effects: Sequence[Effect]) -> bool:
    """Return whether the steps add errors to the rows X if these have none."""
    for (name, step), effect in zip(steps, effects, strict=True):
        if effect.adds_errors:
            with _naming(name, step):
                if any(np.any(end) for end in _own_ends(effect, X, step).values()):
                    return True
        X = step.transform(X) if hasattr(step, "transform") else X
    return False


@contextmanager
def _naming(name: str, step: Any, X: Any = None, before: Sequence[Effect] = ()) -> Iterator[None]:
    """Add to ValueErrors the step in which they arose, and the column of X, the rows before all steps."""
    try:
        yield
    except OutOfDomainError as error:
        found = error.before([effect.map for effect in before]).named(X)
        raise ValueError(f"step {name!r}, {type(step).__name__}: {found}") from error
    except ValueError as error:
        raise ValueError(f"step {name!r}, {type(step).__name__}: {error}") from error


def _own_ends(effect: Effect, X: Any, step: Any) -> dict[str, Array]:
    """Return the ends (relative to its outputs) of the errors that a step adds to rows without errors."""
    values, Z = known_numbers(X), known_numbers(step.transform(X))
    lower, upper = effect.bounds(X, values, values)
    # equal ends mean no error; other ends may be on the wrong side of the step's own output by rounding
    moves = lower < upper
    return {
        "X_lower": np.where(moves, np.minimum(lower - Z, 0.0), 0.0),
        "X_upper": np.where(moves, np.maximum(upper - Z, 0.0), 0.0),
    }


def carry(
    uncertainty: UncertaintySet,
    metadata: Mapping[str, Any],
    X: Any,
    Z: Any,
    steps: Sequence[tuple[str, Any]],
    effects: Sequence[Effect],
    nonlinear: str,
    *,
    with_own: bool = True,
) -> Carried:
    """Carry a set and metadata through the steps that turn X into Z, with or without the errors affine steps add."""
    X = given = X if hasattr(X, "shape") else np.asarray(X)
    uncertainty = uncertainty.learned_from(numbers_of(X))
    state = uncertainty.as_errors(known_numbers(X), metadata)
    # the last step that needs its rows; after it they are not transformed any more
    last = max((i for i, one in enumerate(effects) if one.map is None or one.adds_errors or len(one.exact)), default=-1)
    is_moved, gaps, fills = False, Gaps.start(n_columns(X)), any(one.adds_errors for one in effects)
    for number, ((name, step), effect) in enumerate(zip(steps, effects, strict=True)):
        transform = getattr(step, "transform", lambda rows: rows)
        with _naming(name, step, given, effects[:number]):
            if effect.adds_errors and state[0].is_expectation and gaps.are_doubled(X, given):
                raise ValueError(FILLED_TWICE)
            gaps = effect.gaps(gaps) if fills else gaps
            if effect.map is None:
                plain = transform(X)
                state, X = _after(effect, state, X, plain, nonlinear)
                is_moved = is_moved or X is not plain
            else:
                # a noise of missing entries (DropoutNoise) already stands for the error of fills without a spread
                is_met = uncertainty.is_of_training and not effect.knows_spread
                state = _image(effect, state, X, step, with_own and effect.adds_errors and not is_met)
                X = transform(X) if number < last or is_moved else X
    made, stated = state
    rows = X if is_moved else Z
    return Carried(made, made.at_rows(known_numbers(rows), stated), rows)


def _image(effect: Effect, state: Stated, X: Any, step: Any, with_own: bool) -> Stated:
    """Return the set after an affine step, with or without the errors the step itself adds."""
    uncertainty, metadata = state
    assert effect.map is not None
    _refuse_inexact(effect, state, X)
    made, stated = uncertainty.image(effect.map, metadata)
    if not with_own:
        return made, stated
    values = known_numbers(X)
    Z = known_numbers(step.transform(X))
    if made.is_expectation:
        own = effect.linearised(X, RowNoise.none(values.shape))
        if made.is_of_training:
            noise = RowNoise.stated(np.zeros(Z.shape), stated) if stated else RowNoise.none(Z.shape)
            return made, noise.plus(own).metadata if stated or np.any(own.deviations) else {}
        known = made.at(Z, stated).as_metadata(*Z.shape)
        if known is None or "X_lower" in known:
            raise ValueError(f"fills in entries, and other noise cannot be added to {uncertainty!r}.")
        return GaussianNoise(), RowNoise.of(known).plus(own).metadata
    own_ends = _own_ends(effect, X, step)
    if not any(np.any(end) for end in own_ends.values()):
        return made, stated
    worst, cloud = made.split(Z, made.at_rows(Z, stated))
    box = worst.as_metadata(*Z.shape) if worst is not None and cloud is None else None
    if box is not None and "X_lower" in box:
        return IntervalBox(), {name: end + box[name] for name, end in own_ends.items()}
    if "X_lower" in stated:
        raise ValueError(f"fills in entries, and the intervals of {uncertainty!r} are no longer a box.")
    return SetSum(made, IntervalBox()), stated | own_ends


def _refuse_inexact(effect: Effect, state: Stated, X: Any) -> None:
    uncertainty, metadata = state
    if len(effect.exact):
        refuse_inexact(effect.exact, uncertainty, uncertainty.at_rows(known_numbers(X), metadata), X)


def refuse_inexact(exact: NDArray[np.intp], uncertainty: UncertaintySet, metadata: Mapping[str, Any], X: Any) -> None:
    """Raise ValueError if a set gives errors to the columns `exact` of X, which can have none."""
    if not len(exact):
        return
    values = known_numbers(X)
    # a set that depends on the values of a row would miss a category, whose value is unknown: ones stand in for values
    is_seen = not uncertainty.is_of_rows or "X_lower" in metadata
    found = uncertainty.split(values if is_seen else np.ones(values.shape), metadata)
    for j in exact:
        direction = np.zeros(values.shape[1])
        direction[j] = 1.0
        if any(np.any(one.support(sign * direction)) for one in found if one is not None for sign in (-1.0, 1.0)):
            cure = (
                "State inf for it: FeatureDeletion(budget, values=[...])."
                if uncertainty.is_of_rows
                else "State 0 for it: Box(half_widths=[...]), GaussianNoise(std=[...]), X_std."
            )
            raise ValueError(
                f"column {column_name(X, j)!r} goes into categories, so it can have no error, but "
                f"{uncertainty!r} gives it one. {cure}"
            )


def _after(effect: Effect, state: Stated, X: Any, Z: Any, nonlinear: str) -> tuple[Stated, Any]:
    """Return the set and the rows after a step that is not affine: by intervals, moments of noise, or linearisation."""
    uncertainty, metadata = state
    if nonlinear == "raise":
        raise ValueError(
            "is no affine map. Use UncertainPipeline(nonlinear='auto') to carry intervals and moments of noise through it."
        )
    if uncertainty.is_of_rows:
        kind = "what it fills in depends on the row" if effect.adds_errors else "it is no affine map"
        raise ValueError(
            f"{kind}, and {uncertainty!r} is carried through imputers of constants, scalers and selectors only."
        )
    _refuse_inexact(effect, state, X)
    values = known_numbers(X)
    worst, cloud = uncertainty.split(values, uncertainty.at_rows(values, metadata))
    made: list[Stated] = []
    if worst is not None:
        made.append(_set_after(effect, uncertainty, worst, X, known_numbers(Z), nonlinear))
    if cloud is not None:
        Z, noise = _noise_after(effect, uncertainty, cloud, X, Z, nonlinear)
        made.append((GaussianNoise(), noise.metadata))
    if len(made) == 1:
        return made[0], Z
    (first, ours), (second, others) = made
    return (SetSum(first, second), ours | others), Z


def _noise_after(
    effect: Effect, uncertainty: UncertaintySet, cloud: RowSets, X: Any, Z: Any, nonlinear: str
) -> tuple[Any, RowNoise]:
    if nonlinear == "interval":
        raise ValueError(
            f"is no affine map, and {uncertainty!r} has no bounds that could be carried through it. Use "
            "UncertainPipeline(nonlinear='auto'), which carries the moments of noise, or state a set."
        )
    known = cloud.as_metadata(*known_numbers(X).shape)
    if known is None or "X_lower" in known:
        raise ValueError(f"is no affine map, and {uncertainty!r} does not state a covariance. State one.")
    noise = RowNoise.of(known)
    return (Z, effect.linearised(X, noise)) if nonlinear == "linearise" else effect.expected(X, Z, noise)


def _set_after(effect: Effect, uncertainty: UncertaintySet, worst: RowSets, X: Any, Z: Array, nonlinear: str) -> Stated:
    values = known_numbers(X)
    known = worst.as_metadata(*values.shape)
    if nonlinear == "linearise" and known is not None and "X_lower" not in known:
        return Ellipsoid(), effect.linearised(X, RowNoise.of(known)).metadata
    if uncertainty.is_of_scores:
        raise ValueError(
            f"is no affine map, and {uncertainty!r} bounds single scores with its probability, not the row: intervals would "
            "not keep that. Use UncertainPipeline(nonlinear='linearise'), which does to first order, or Box(half_widths=...) "
            "that hold with probability 1 - epsilon/n for each of n features."
        )
    if known is None or "X_lower" not in known:
        # a curved step maps a set other than a box to one of no known form, so the smallest box around the set is
        # carried
        below, above = extents(worst, values.shape)
        known = {"X_lower": -below, "X_upper": above}
    lower, upper = effect.bounds(X, values + known["X_lower"], values + known["X_upper"])
    # if the row itself is outside, the effect was taught wrongly; the slack allows for steps in single precision
    slack = WRONG * (1 + np.abs(dense(Z)))
    if np.any(lower > dense(Z) + slack) or np.any(upper < dense(Z) - slack):
        raise ValueError(
            f"its effect, {type(effect).__name__}, gives intervals that do not contain the outputs of the step. "
            "Teach it the step's own function."
        )
    # rounding within the slack may put an end on the wrong side of the row, but an error of 0 is always possible
    return IntervalBox(), {"X_lower": np.minimum(lower - Z, 0.0), "X_upper": np.maximum(upper - Z, 0.0)}


def extents(sets: RowSets, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return how far each feature of each row can move down and up, two arrays of shape (n_samples, n_features)."""
    units = np.eye(shape[1])
    below, above = (
        np.column_stack([np.broadcast_to(sets.support(sign * unit), shape[0]) for unit in units])
        for sign in (-1.0, 1.0)
    )
    return below, above
