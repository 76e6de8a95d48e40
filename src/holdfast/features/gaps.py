"""Which columns are those of one category that may be missing: steps that change them hide that from imputers behind."""

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
    """One-hot columns of a category, all NaN where it is missing."""

    columns: NDArray[np.intp]
    source: int
    """The column that held the category, of the rows before all steps; -1 where that is not known."""
    is_changed: bool = False
    """Whether they may be something else than 0, 1 or NaN by now, or not all there."""


class Gaps(NamedTuple):
    """What is known of columns between steps."""

    sources: NDArray[np.intp]
    """The column, before all steps, that each of them is a multiple of; -1 where that is not known."""
    one_hot: tuple[OneHot, ...] = ()

    @classmethod
    def start(cls, n_features: int) -> Self:
        """Return what is known before all steps."""
        return cls(np.arange(n_features))

    def encoded(self, groups: Sequence[NDArray[np.intp]], n_out: int) -> Gaps:
        """Return the same after each column became one-hot columns `groups`, which are left open."""
        made = [OneHot(group, int(source)) for group, source in zip(groups, self.sources, strict=False)]
        return Gaps(np.full(n_out, -1), tuple(made))

    def through(self, map: AffineMap | None, n_out: int) -> Gaps:
        """Return the same after a map, None for one that is not known."""
        if map is None or not sparse.issparse(map.matrix):
            every = np.arange(n_out)
            return Gaps(np.full(n_out, -1), tuple(one._replace(columns=every, is_changed=True) for one in self.one_hot))
        sources = np.full(n_out, -1)
        if map.is_monomial:
            sources = np.where(map.scales != 0, self.sources[map.sources], -1)
        moved = [_moved(one, map) for one in self.one_hot]
        return Gaps(sources, tuple(one for one in moved if len(one.columns)))

    def at(self, chosen: NDArray[np.intp]) -> Gaps:
        """Return the same of some of the columns."""
        return (
            self.through(AffineMap.selection(chosen, len(self.sources)), len(chosen)) if len(chosen) else Gaps(chosen)
        )

    @classmethod
    def beside(cls, parts: Sequence[Gaps]) -> Gaps:
        """Return the same of all columns of several parts, side by side."""
        starts = np.cumsum([0, *(len(part.sources) for part in parts)])
        made = [
            one._replace(columns=one.columns + start)
            for part, start in zip(parts, starts, strict=False)
            for one in part.one_hot
        ]
        return cls(np.concatenate([np.zeros(0, dtype=np.intp), *(part.sources for part in parts)]), tuple(made))

    def filled(self, map: AffineMap, groups: Sequence[NDArray[np.intp]]) -> Gaps:
        """Return the same after missing entries were filled in, categories in the outputs `groups`; raise for others."""
        after = self.through(map, map.shape[0])
        known = {tuple(np.sort(group)) for group in groups}
        # a single category is known, whatever is filled in
        if any(one.is_changed or (len(one.columns) > 1 and tuple(one.columns) not in known) for one in after.one_hot):
            raise ValueError(HIDDEN)
        return after._replace(one_hot=())

    def are_doubled(self, X: Any, given: Any) -> bool:
        """Return whether an entry that rows `given` lack, before all steps, is missing in several places of the rows X."""
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
    """Return one-hot columns after a map: which outputs they reach, and whether as they are."""
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
