"""Track one-hot columns of missing categories through steps, as a step that changes them hides them from an imputer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import dense
from holdfast.features.rows import numbers_of
from holdfast.uncertainty.affine_map import AffineMap

HIDDEN = (
    "fills in one-hot columns that CategoryEncoder(missing='nan') left open, and does not see that they are of one category: "
    "steps in between changed them, or it takes them for numbers. What it says of them would not hold for a category. Put the "
    "imputer, ConditionalImputer() or SpreadImputer(), directly behind CategoryEncoder, and scale afterwards."
)


class OneHot(NamedTuple):
    """One-hot columns of a category, all NaN if it is missing."""

    columns: NDArray[np.intp]
    source: int
    """The column of the category in the rows before all steps; -1 if unknown."""
    is_changed: bool = False
    """Whether the columns may have values other than 0, 1 and NaN by now, or some are gone."""


class Gaps(NamedTuple):
    """The origins and the one-hot groups of the columns between steps."""

    sources: NDArray[np.intp]
    """For each column, the column before all steps that it is a multiple of; -1 if unknown."""
    one_hot: tuple[OneHot, ...] = ()

    @classmethod
    def start(cls, n_features: int) -> Self:
        """Return the gaps before all steps."""
        return cls(np.arange(n_features))

    def encoded(self, groups: Sequence[NDArray[np.intp]], n_out: int) -> Gaps:
        """Return the gaps after each column is encoded by one-hot columns `groups`, NaN for missing categories."""
        made = [OneHot(group, int(source)) for group, source in zip(groups, self.sources, strict=False)]
        return Gaps(np.full(n_out, -1), tuple(made))

    def through(self, map: AffineMap | None, n_out: int) -> Gaps:
        """Return the gaps after a map with `n_out` outputs; None stands for an unknown map."""
        if map is None or not sparse.issparse(map.matrix):
            every = np.arange(n_out)
            return Gaps(np.full(n_out, -1), tuple(one._replace(columns=every, is_changed=True) for one in self.one_hot))
        sources = np.full(n_out, -1)
        if map.is_monomial:
            sources = np.where(map.scales != 0, self.sources[map.sources], -1)
        moved = [_moved(one, map) for one in self.one_hot]
        return Gaps(sources, tuple(one for one in moved if len(one.columns)))

    def at(self, chosen: NDArray[np.intp]) -> Gaps:
        """Return the gaps of the `chosen` columns."""
        return (
            self.through(AffineMap.selection(chosen, len(self.sources)), len(chosen)) if len(chosen) else Gaps(chosen)
        )

    @classmethod
    def beside(cls, parts: Sequence[Gaps]) -> Gaps:
        """Return the gaps of the columns of several parts, side by side."""
        starts = np.cumsum([0, *(len(part.sources) for part in parts)])
        made = [
            one._replace(columns=one.columns + start)
            for part, start in zip(parts, starts, strict=False)
            for one in part.one_hot
        ]
        return cls(np.concatenate([np.zeros(0, dtype=np.intp), *(part.sources for part in parts)]), tuple(made))

    def filled(self, map: AffineMap, groups: Sequence[NDArray[np.intp]]) -> Gaps:
        """Return the gaps after missing entries are filled in, categories in the output columns `groups`.

        Raises ValueError if the columns of a missing category are not one of the groups.
        """
        after = self.through(map, map.shape[0])
        known = {tuple(np.sort(group)) for group in groups}
        # a column with a single category needs no group: whatever is filled in, the category is known
        if any(one.is_changed or (len(one.columns) > 1 and tuple(one.columns) not in known) for one in after.one_hot):
            raise ValueError(HIDDEN)
        return after._replace(one_hot=())

    def are_doubled(self, X: Any, given: Any) -> bool:
        """Return whether an entry missing in `given`, the rows before all steps, is missing in several places of X."""
        missing, before = (np.isnan(dense(numbers_of(rows))) for rows in (X, given))
        seen: dict[int, NDArray[np.bool_]] = {}
        for one in self.one_hot:
            gone = np.any(missing[:, one.columns], axis=1)
            if np.any(gone & seen.get(one.source, np.zeros(len(gone), dtype=bool))):
                return True
            seen[one.source] = gone | seen.get(one.source, np.zeros(len(gone), dtype=bool))
            if one.source >= 0:
                before[:, one.source] = False
        for one in self.one_hot:
            missing[:, one.columns] = False
        return bool(np.any(np.count_nonzero(missing, axis=1) > np.count_nonzero(before, axis=1)))


def _moved(one: OneHot, map: AffineMap) -> OneHot:
    """Return the outputs of a map that depend on one-hot columns, and whether they have changed."""
    A = sparse.csr_array(map.matrix)
    A.eliminate_zeros()
    own = sparse.csr_array(A[:, one.columns])
    reached = np.flatnonzero(np.diff(own.indptr))
    is_same = (
        len(reached) == len(one.columns)
        and map.is_monomial
        and bool(np.all(own.data == 1))
        and not np.any(map.offset[reached])
    )
    return OneHot(reached, one.source, one.is_changed or not is_same)
