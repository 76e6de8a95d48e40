"""Steps in sequence, and side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from holdfast._core.arithmetic import dense
from holdfast._core.operations import Cast
from holdfast._core.row_forms import Array
from holdfast.features.effects import FILLED_TWICE, AffineForm, Corners, Effect, Lost, traced
from holdfast.features.gaps import Gaps
from holdfast.features.row_noise import RowNoise, side_by_side
from holdfast.features.rows import beside, known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap

State = TypeVar("State")


class InSequence(Effect):
    """Steps in sequence.

    Parameters
    ----------
    parts : list of (Effect, callable)
        The effect and the `transform` of each step.
    n_features : int
        The number of inputs of the first step.
    """

    def __init__(self, parts: Sequence[tuple[Effect, Callable[[Any], Any]]], n_features: int):
        self.parts, self.n_features = parts, n_features
        self.map = _all_or_none(
            [part.map for part, _ in parts],
            lambda maps: reduce(lambda one, two: two.after(one), maps, AffineMap.identity(n_features)),
        )
        self.exact = exact_inputs([part for part, _ in parts], n_features)
        self.adds_errors = any(part.adds_errors for part, _ in parts)

    def width(self, n_features: int) -> int:
        return reduce(lambda width, part: part[0].width(width), self.parts, n_features)

    def gaps(self, given: Gaps) -> Gaps:
        return reduce(lambda found, part: part[0].gaps(found), self.parts, given)

    def affine_form(self, X: Any) -> AffineForm | None:
        total = AffineForm(AffineMap.identity(self.n_features))
        # the last step that needs its rows; after it they are not transformed any more
        last = max((i for i, (part, _) in enumerate(self.parts) if part.looks_at_rows), default=-1)
        for number, (part, transform) in enumerate(self.parts):
            own = part.affine_form(X)
            if own is None:
                return None
            total, X = _in_sequence(total, own), transform(X) if number < last else X
        return total

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        return self._through(X, (lower, upper), lambda part, rows, ends: part.bounds(rows, *ends))

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._through(X, noise, lambda part, rows, noise: part.linearised(rows, noise))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._through(X, noise, lambda part, rows, noise: part.moments(rows, noise))

    def expected(self, X: Any, Z: Any, noise: RowNoise) -> tuple[Any, RowNoise]:
        is_moved = False
        for part, transform in self.parts:
            plain = transform(X)
            X, noise = part.expected(X, plain, noise)
            is_moved = is_moved or X is not plain
        return X if is_moved else Z, noise

    def _through(self, X: Any, state: State, change: Callable[[Effect, Any, State], State]) -> State:
        for number, (part, transform) in enumerate(self.parts):
            with traced([one.map for one, _ in self.parts[:number]]):
                state = change(part, X, state)
            X = transform(X)
        return state


def exact_inputs(effects: Sequence[Effect], n_features: int) -> NDArray[np.intp]:
    """Return the inputs from which, through steps in sequence, a feature depends that must be exact."""
    reached, total = np.zeros(n_features, dtype=bool), AffineMap.identity(n_features)
    # stop at the last step with exact features; most pipelines have none, and need no products at all
    last = max((i for i, effect in enumerate(effects) if len(effect.exact)), default=-1)
    for effect in effects[: last + 1]:
        reached |= np.any(dense(total.matrix)[effect.exact] != 0, axis=0)
        # a step that is not affine may mix its features in any way, so every output may depend on every input
        n_in = total.shape[0]
        mixed = AffineMap(np.ones((effect.width(n_in), n_in))) if effect.map is None else effect.map
        total = mixed.after(total)
    return np.flatnonzero(reached)


class SideBySide(Effect):
    """Steps applied to groups of features, with concatenated outputs.

    Parameters
    ----------
    parts : list of (Effect, ndarray of int)
        The effect of each step, and the indices of its inputs.
    n_features : int
        The number of inputs.
    """

    def __init__(self, parts: Sequence[tuple[Effect, NDArray[np.intp]]], n_features: int):
        self.parts, self.n_features = parts, n_features
        self.inputs = [AffineMap.selection(chosen, n_features) for _, chosen in parts]
        self.map = _all_or_none(
            [part.map for part, _ in parts],
            lambda maps: AffineMap.beside(
                [(map, chosen) for map, (_, chosen) in zip(maps, parts, strict=True)], n_features
            ),
        )
        self.exact = np.unique(np.concatenate([chosen[part.exact] for part, chosen in parts]))
        self.adds_errors = any(part.adds_errors for part, _ in parts)

    def width(self, n_features: int) -> int:
        return sum(part.width(len(chosen)) for part, chosen in self.parts)

    def gaps(self, given: Gaps) -> Gaps:
        return Gaps.beside([part.gaps(given.at(chosen)) for part, chosen in self.parts])

    def affine_form(self, X: Any) -> AffineForm | None:
        forms = [
            part.affine_form(_safe_indexing(X, chosen, axis=1) if part.looks_at_rows else X)
            for part, chosen in self.parts
        ]
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return None
        ends = self.n_features + np.cumsum([0, *(_n_given(form) for form in known)])
        columns = [
            np.concatenate([chosen, np.arange(start, stop)])
            for (_, chosen), start, stop in zip(self.parts, ends, ends[1:], strict=False)
        ]
        map = AffineMap.beside([(form.map, own) for form, own in zip(known, columns, strict=True)], int(ends[-1]))
        return _joined(map, known, [chosen for _, chosen in self.parts])

    def corners(self, X: Any) -> Sequence[Corners]:
        ends = np.cumsum([0, *(part.width(len(chosen)) for part, chosen in self.parts)])
        return [
            one.shifted(int(start))
            for (part, chosen), start in zip(self.parts, ends, strict=False)
            for one in part.corners(_safe_indexing(X, chosen, axis=1))
        ]

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        found = self._each(X, lambda part, rows, chosen: part.bounds(rows, lower[:, chosen], upper[:, chosen]))
        low, high = zip(*found, strict=True)
        return np.hstack(low), np.hstack(high)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._noise(X, noise, lambda part, rows, own: part.linearised(rows, own))

    def moments(self, X: Any, noise: RowNoise) -> RowNoise:
        return self._noise(X, noise, lambda part, rows, own: part.moments(rows, own))

    def expected(self, X: Any, Z: Any, noise: RowNoise) -> tuple[Any, RowNoise]:
        ends = np.cumsum([0, *(part.width(len(chosen)) for part, chosen in self.parts)])
        plain = [_safe_indexing(Z, np.arange(*own), axis=1) for own in pairwise(ends)]
        rows = iter(plain)
        moved = []

        def change(part: Effect, X: Any, own: RowNoise) -> RowNoise:
            found, made = part.expected(X, next(rows), own)
            moved.append(found)
            return made

        noise = self._noise(X, noise, change)
        is_moved = any(one is not other for one, other in zip(moved, plain, strict=True))
        return np.hstack([dense(known_numbers(one)) for one in moved]) if is_moved else Z, noise

    def _noise(self, X: Any, noise: RowNoise, change: Callable[[Effect, Any, RowNoise], RowNoise]) -> RowNoise:
        self._refuse_filled_twice(X)
        used = np.concatenate([chosen for _, chosen in self.parts])
        # the error of a feature that several parts take is a cause common to these parts
        noise = noise if len(np.unique(used)) == len(used) else noise.by_causes
        found = self._each(X, lambda part, rows, chosen: change(part, rows, noise.columns(chosen)))
        return side_by_side(found, common=noise.factor.shape[2])

    def _refuse_filled_twice(self, X: Any) -> None:
        """Raise ValueError if several steps add errors to one missing entry, as the error would count several times."""
        filling = [chosen for part, chosen in self.parts if part.adds_errors]
        columns, times = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *filling]), return_counts=True)
        if np.any(np.isnan(dense(numbers_of(_safe_indexing(X, columns[times > 1], axis=1))))):
            raise ValueError(FILLED_TWICE)

    def _each(self, X: Any, change: Callable[[Effect, Any, NDArray[np.intp]], State]) -> list[State]:
        found = []
        for (part, chosen), map in zip(self.parts, self.inputs, strict=True):
            with traced([map]):
                found.append(change(part, _safe_indexing(X, chosen, axis=1), chosen))
        return found


def _n_given(form: AffineForm) -> int:
    return 0 if form.given is None else int(form.given.shape[1])


def _in_sequence(first: AffineForm, second: AffineForm) -> AffineForm:
    """Return the composition of both forms, the first one applied first."""
    n_in, extra, map = first.map.n_features, _n_given(second), first.map
    if second.lost is not None:
        # the second step computes fills for missing entries from the outputs of the first step
        map = AffineMap.computed(n_in, *map.operations, Cast(np.float64, map.n_roundings + 4))
        second = _found_before(second, first.map)
    passed = [(map, np.arange(n_in)), (AffineMap.identity(extra), n_in + np.arange(extra))]
    before = AffineMap.beside(passed, n_in + extra) if extra else map
    return _joined(second.map.after(before), [first, second])


def _found_before(form: AffineForm, map: AffineMap) -> AffineForm:
    """Return the form with its missing entries traced back to the inputs of a map that is applied before it."""
    assert form.lost is not None
    mask, columns, gains = form.lost
    # columns the form itself added are not outputs of the map, and follow all inputs of the map
    by_map = columns < map.shape[0]
    own, columns = map.n_features + columns - map.shape[0], np.where(by_map, columns, 0)
    mask = mask & by_map
    rows = sparse.csr_array(map.matrix)[columns]
    if np.any(mask[:, np.diff(rows.indptr) > 1]):
        raise ValueError("fills in entries that steps before it make of several others. Put it first.")
    made = AffineMap(rows)
    given = form.given - np.where(mask, gains * map.offset[columns], 0.0)
    lost = Lost(form.lost.mask, np.where(by_map, made.sources, own), gains * np.where(by_map, made.scales, 1.0))
    return form._replace(given=given, lost=lost)


def _joined(map: AffineMap, forms: Sequence[AffineForm], columns: Sequence[Any] | None = None) -> AffineForm:
    """Return a form of the map with the extra columns of all `forms`; each form takes `columns` of the inputs."""
    taken = [slice(None)] * len(forms) if columns is None else columns
    parts = [(form, own) for form, own in zip(forms, taken, strict=True) if form.given is not None]
    if not parts:
        return AffineForm(map)
    givens = [form.given for form, _ in parts]
    given = beside(givens)
    starts = np.cumsum([0, *(one.shape[1] for one in givens)])
    corners = tuple(
        one.shifted(int(start)) for (form, _), start in zip(parts, starts, strict=False) for one in form.corners
    )
    if all(form.lost is None for form, _ in parts):
        return AffineForm(map, given, corners=corners)
    nothing = [np.zeros(one.shape) for one in givens]
    errors = [(form.below, form.above, form.std) for form, _ in parts]
    below, above, std = (
        np.hstack([none if error is None else error for error, none in zip(each, nothing, strict=True)])
        for each in zip(*errors, strict=True)
    )
    begins = map.n_features - starts[-1] + starts[:-1]
    lost = [
        _placed(form.lost, none, own, begin) for (form, own), none, begin in zip(parts, nothing, begins, strict=True)
    ]
    return AffineForm(
        map,
        given,
        below,
        above,
        std,
        Lost(
            np.hstack([one.mask for one in lost]),
            np.concatenate([one.columns for one in lost]),
            np.concatenate([one.gains for one in lost]),
        ),
        corners,
    )


def _placed(lost: Lost | None, none: Array, chosen: Any, begin: int) -> Lost:
    """Return missing entries renumbered: columns as indices among all inputs, extra columns counted from `begin`."""
    if lost is None:
        return Lost(none > 0, np.zeros(none.shape[1], dtype=np.intp), np.zeros(none.shape[1]))
    if isinstance(chosen, slice):
        return lost
    return lost._replace(columns=np.append(chosen, begin + np.arange(none.shape[1]))[lost.columns])


def _all_or_none(maps: list[AffineMap | None], make: Callable[[list[AffineMap]], AffineMap]) -> AffineMap | None:
    """Return make(maps), or None if one of the maps is None."""
    known = [map for map in maps if map is not None]
    return make(known) if len(known) == len(maps) else None
