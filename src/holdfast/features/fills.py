"""Effects of steps that fill in missing entries from known ones, or missing categories by probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.preprocessing import OneHotEncoder

from holdfast._core.arithmetic import dense
from holdfast._core.operations import Select
from holdfast._core.row_forms import Array
from holdfast.features.conditional_moments import GaussianMoments
from holdfast.features.effects import AffineForm, Corners, Effect, Exact, Imputed
from holdfast.features.gaps import Gaps
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import known_numbers, numbers_of
from holdfast.uncertainty.affine_map import AffineMap

POSSIBLE = 1e-3
"""The least probability of a category that may be the missing one."""


def one_hot_groups(X: Array) -> list[NDArray[np.intp]]:
    """Return groups of adjacent one-hot columns: entries are 0 or 1, exactly one is 1, and all are missing together.

    Columns of 0 and 1 are grouped from left to right, as long as no known row has two ones.
    """
    missing = np.isnan(X)
    is_binary = np.all(missing | (X == 0) | (X == 1), axis=0) & ~np.all(missing, axis=0)
    groups, start, d = [], 0, X.shape[1]
    while start < d:
        stop, total = start, np.zeros(len(X))
        while stop < d and is_binary[stop] and np.array_equal(missing[:, stop], missing[:, start]):
            total = total + X[:, stop]
            stop += 1
            known = total[~missing[:, start]]
            if np.any(known > 1):
                break
            if np.all(known == 1):
                if stop - start > 1:
                    groups.append(np.arange(start, stop))
                break
        start = stop if groups and stop > start and groups[-1][-1] == stop - 1 else start + 1
    return groups


def likely(found: Array, open_: NDArray[np.bool_]) -> Array:
    """Return, for each row, probabilities of the open categories from their linear predictions."""
    # a linear prediction may be below 0 or above 1
    p = np.where(open_, np.maximum(found, POSSIBLE), 0.0)
    total = p.sum(axis=1, keepdims=True)
    return np.divide(p, total, out=np.zeros_like(p), where=total > 0)


@dataclass(frozen=True)
class ConditionalLaw:
    """The conditional distribution that a ConditionalImputer has learned, in the units of its rows.

    Parameters
    ----------
    kept : ndarray of int
        The indices of the columns that are kept.
    moments : GaussianMoments
        The moments of the kept columns that vary, each centred and divided by its `scale`.
    active : ndarray of int
        The indices of the columns that vary, among the kept ones.
    centre, scale : ndarray of shape (n_kept,)
        The centres and the standard deviations of the kept columns; `scale` is 0 for columns that do not vary.
    groups : sequence of ndarray of int
        Groups of one-hot columns, as indices among the active ones.
    """

    kept: NDArray[np.intp]
    moments: GaussianMoments
    active: NDArray[np.intp]
    centre: Array
    scale: Array
    groups: Sequence[NDArray[np.intp]]

    def standardised(self, X: Array) -> Array:
        """Return the active columns of rows, centred and divided by `scale`, with NaN for missing entries."""
        values = X[:, self.kept][:, self.active]
        return (values - self.centre[self.active]) / self.scale[self.active]

    def filled(self, X: Array) -> Array:
        """Return the kept columns of rows, with NaN replaced by conditional means."""
        out = np.where(np.isnan(X[:, self.kept]), self.centre, X[:, self.kept])
        Z = self.standardised(X)
        missing = np.isnan(Z)
        if not np.any(missing):
            return out
        found = self.moments.filled(Z) * self.scale[self.active] + self.centre[self.active]
        for group in self.groups:
            open_ = self.open_categories(X, group)
            p = likely(found[:, group], open_)
            found[:, group] = np.where(np.isnan(Z[:, group]), p, found[:, group])
        out[:, self.active] = np.where(missing, found, out[:, self.active])
        return out

    def open_categories(self, X: Array, group: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which categories of a group may be the missing one: those with NaN, unless the category is known."""
        values = X[:, self.kept][:, self.active[group]]
        is_known = np.nansum(values, axis=1) > 0.5
        return np.isnan(values) & ~is_known[:, None]

    def factor(self, X: Array) -> Array:
        """Return a factor of the covariance of the filled entries, in the units of the rows, (n_samples, n_kept, r)."""
        Z = self.standardised(X)
        missing, apart = np.isnan(Z), np.zeros(Z.shape[1], dtype=bool)
        for group in self.groups:
            apart[group] = True
        found = self.moments.factor(missing, apart) * self.scale[self.active][:, None]
        order = np.cumsum(missing, axis=1) - 1
        for one in self.corners(X) if self.groups else ():
            group = np.searchsorted(self.active, one.columns)
            own = one.noise(len(self.kept)).factor[:, one.columns]
            for k, column in enumerate(group):
                some = np.flatnonzero(one.is_open[:, k])  # the factor's column for this entry is not used yet
                found[some[:, None], group[None], order[some, column][:, None]] = own[some][:, :, k]
        out = np.zeros((len(X), len(self.kept), found.shape[2]))
        out[:, self.active] = found
        return out

    def corners(self, X: Array) -> list[Corners]:
        """Return the corners of the groups in doubt, with column indices among the kept columns."""
        filled = self.filled(X)
        made = [(self.active[group], self.open_categories(X, group)) for group in self.groups]
        return [Corners(columns, open_, filled[:, columns]) for columns, open_ in made if np.any(open_)]

    def answers(self, errors: Array, X: Array) -> Array:
        """Return the errors of filled entries due to errors of known ones, shape (n_samples, n_kept, r)."""
        missing, scale = np.isnan(self.standardised(X)), self.scale[self.active][:, None]
        out = np.zeros_like(errors)
        out[:, self.active] = self.moments.answers(errors[:, self.active] / scale, missing) * scale
        for group in self.groups:
            out[:, self.active[group]] = 0.0  # probabilities do not follow errors of other entries
        return out

    def reach(self, halves: Array, X: Array) -> Array:
        """Return the largest change of filled entries if known ones change by up to `halves`, (n_samples, n_kept)."""
        missing, scale = np.isnan(self.standardised(X)), self.scale[self.active]
        out = np.zeros_like(halves)
        out[:, self.active] = self.moments.reach(halves[:, self.active] / scale, missing) * scale
        return out


class ConditionalFill(Effect):
    """A step that fills in missing entries from known ones; fills follow the known entries' errors, and add their own.

    Parameters
    ----------
    law : ConditionalLaw
    transform : callable
        The step's `transform`.
    coverage : float
        The probability with which a missing entry lies in its interval.
    """

    adds_errors = True

    def __init__(self, law: ConditionalLaw, transform: Callable[[Any], Any], coverage: float):
        self.law, self.transform, self.coverage = law, transform, coverage

    def width(self, n_features: int) -> int:
        return len(self.law.kept)

    def at_rows(self, rows: Callable[[], Any]) -> Effect:
        X = rows()
        if np.any(np.isnan(dense(numbers_of(X))[:, self.law.kept])):
            return self
        # complete rows only lose columns
        none = np.zeros(len(self.law.kept))
        map = AffineMap.computed(X.shape[1], Select(self.law.kept, X.shape[1]))
        return Imputed(map, self.transform, none, none, none, self._groups)

    @property
    def _groups(self) -> list[NDArray[np.intp]]:
        return [self.law.active[group] for group in self.law.groups]

    def gaps(self, given: Gaps) -> Gaps:
        return given.filled(AffineMap.selection(self.law.kept, len(given.sources)), self._groups)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        law, kept = self.law, self.law.kept
        values, rows = dense(numbers_of(X)), dense(known_numbers(X))
        missing = np.isnan(values[:, kept])
        middle, halves = 0.5 * (lower + upper), 0.5 * (upper - lower)
        moved = np.where(np.isnan(values), np.nan, middle)
        found, reach = dense(law.filled(moved)), np.where(missing, 0.0, halves[:, kept])
        if np.any(reach):
            reach = reach + law.reach(reach, values)
        spread = np.sqrt(np.square(law.factor(values)).sum(axis=2)) * float(ndtri(0.5 + 0.5 * self.coverage))
        stated = [np.where(missing, (end - rows)[:, kept], 0.0) for end in (lower, upper)]
        low = np.where(missing, found - reach - spread, lower[:, kept]) + stated[0]
        high = np.where(missing, found + reach + spread, upper[:, kept]) + stated[1]
        for group in law.groups:
            open_, columns = law.open_categories(values, group), law.active[group]
            gone = np.isnan(values[:, kept[columns]])
            low[:, columns] = np.where(gone, 0.0, low[:, columns])
            high[:, columns] = np.where(gone, 1.0 * open_, high[:, columns])
        return low, high

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        values, kept = dense(numbers_of(X)), self.law.kept
        missing = np.isnan(values[:, kept])
        # a missing entry has no error of measurement, whatever is stated for it
        noise = noise.columns(kept).times(1.0 * ~missing)
        if np.any(noise.std[np.any(missing, axis=1)]):
            noise = noise.by_causes  # errors of known entries also affect the entries filled in from them
        if np.any(noise.factor):
            noise = RowNoise(noise.std, noise.factor + self.law.answers(noise.factor, values))
        return noise.plus(RowNoise.mixed(self.law.factor(values)))

    def corners(self, X: Any) -> Sequence[Corners]:
        return self.law.corners(dense(numbers_of(X))) if self.law.groups else ()


class DoubtfulCategories(Effect):
    """A step that encodes categories as one-hot columns, if some categories are missing or unknown.

    Parameters
    ----------
    n_features : int
        The number of columns with categories.
    groups : sequence of ndarray of int
        The one-hot columns of each column.
    transform : callable
        The step's `transform`. It encodes a category in doubt by the shares of the categories, or by zeros.
    leaves_open : bool, default=False
        Whether a category in doubt becomes NaN instead, for another step to fill in.
    """

    map: AffineMap
    adds_errors = True

    def __init__(
        self,
        n_features: int,
        groups: Sequence[NDArray[np.intp]],
        transform: Callable[[Any], Any],
        *,
        leaves_open: bool = False,
    ):
        self.groups, self.transform = groups, transform
        self.open_groups = groups if leaves_open else ()
        n_out = sum(len(group) for group in groups)
        self.map, self.exact = AffineMap(sparse.csr_array((n_out, n_features))), np.arange(n_features)

    def at_rows(self, rows: Callable[[], Any]) -> Effect:
        if self.corners(X := rows()):
            return self
        return Exact(X.shape[1], self.map.shape[0], self.transform, self.open_groups)

    def gaps(self, given: Gaps) -> Gaps:
        return given.encoded(self.open_groups, self.map.shape[0])

    def affine_form(self, X: Any) -> AffineForm:
        n_out, n_in = self.map.shape
        map = AffineMap.selection(n_in + np.arange(n_out), n_in + n_out)
        return AffineForm(map, known_numbers(self.transform(X)), corners=tuple(self.corners(X)))

    def corners(self, X: Any) -> Sequence[Corners]:
        found = dense(numbers_of(self.transform(X)))
        made = []
        for group in self.groups:
            given = found[:, group]
            # not in doubt: a single category, or columns left open for another step
            rows = ~np.any(given == 1, axis=1) & ~np.any(np.isnan(given), axis=1)
            if np.any(rows):
                is_open = rows[:, None] & ((given > 0) | ~np.any(given, axis=1, keepdims=True))
                made.append(Corners(group, is_open, given))
        return made

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        low = np.array(dense(known_numbers(self.transform(X))))
        high = low.copy()
        for one in self.corners(X):
            low[:, one.columns] = np.where(one.is_open, 0.0, low[:, one.columns])
            high[:, one.columns] = np.where(one.is_open, 1.0, high[:, one.columns])
        return low, high

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        found = noise.through(self.map)
        for one in self.corners(X):
            found = found.plus(one.noise(self.map.shape[0]))
        return found


def unknown_categories(categories: list[NDArray[Any]], X: Any) -> NDArray[np.bool_]:
    """Return which entries of rows are not among the categories of their column."""
    plain = OneHotEncoder(categories=[list(one) for one in categories], handle_unknown="ignore", dtype=np.float64)
    encoded = sparse.csc_array(plain.fit_transform(X))
    ends = np.cumsum([0, *(len(one) for one in categories)])
    return np.column_stack([np.asarray(encoded[:, slice(*own)].sum(axis=1)) == 0 for own in pairwise(ends)])


class UnknownCategories(DoubtfulCategories):
    """A OneHotEncoder that encodes unknown categories like others: like rare ones, or like the dropped one.

    Parameters
    ----------
    n_features, groups, transform
        As for :class:`DoubtfulCategories`.
    unknown : callable
        Returns which categories of rows are unknown, shape (n_samples, n_features).
    is_dropped : sequence of bool
        Whether some category of each column has no one-hot column.
    """

    def __init__(
        self,
        n_features: int,
        groups: Sequence[NDArray[np.intp]],
        transform: Callable[[Any], Any],
        unknown: Callable[[Any], NDArray[np.bool_]],
        is_dropped: Sequence[bool],
    ):
        super().__init__(n_features, groups, transform)
        self.unknown, self.is_dropped = unknown, is_dropped

    def corners(self, X: Any) -> Sequence[Corners]:
        unknown = self.unknown(X)
        if not np.any(unknown):
            return ()
        found = dense(numbers_of(self.transform(X)))
        return [
            Corners(group, np.repeat(rows[:, None], len(group), axis=1), found[:, group], False, is_dropped)
            for group, rows, is_dropped in zip(self.groups, unknown.T, self.is_dropped, strict=True)
            if len(group) and np.any(rows)
        ]


class KnownCategories(Exact):
    """An encoder that gives all unknown categories one number, which no training category has; so they are refused.

    Parameters
    ----------
    n_features, transform
        As for :class:`DoubtfulCategories`; there are as many outputs as inputs.
    unknown : callable
        Returns which categories of rows are unknown, (n_samples, n_features).
    """

    def __init__(self, n_features: int, transform: Callable[[Any], Any], unknown: Callable[[Any], NDArray[np.bool_]]):
        super().__init__(n_features, n_features, transform)
        self.unknown = unknown

    def _refuse_unknown(self, X: Any) -> None:
        if np.any(rows := np.any(self.unknown(X), axis=1)):
            raise ValueError(
                f"a category of row {int(rows.argmax())} was never seen in training, and OrdinalEncoder encodes "
                "it by a number that no category has, so its possible values are not known. Use "
                "CategoryEncoder(unknown='missing'), or leave such rows out."
            )

    def affine_form(self, X: Any) -> AffineForm:
        self._refuse_unknown(X)
        return super().affine_form(X)

    def bounds(self, X: Any, lower: Array, upper: Array) -> tuple[Array, Array]:
        self._refuse_unknown(X)
        return super().bounds(X, lower, upper)

    def linearised(self, X: Any, noise: RowNoise) -> RowNoise:
        self._refuse_unknown(X)
        return super().linearised(X, noise)
