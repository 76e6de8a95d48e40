"""A fitted classifier as certificates see it at certain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from holdfast._certificates.decisions import Leads, Rows
from holdfast._certificates.models import LinearModel, Model
from holdfast._core.memory import keep_freed
from holdfast._core.rounding import Array, gamma
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.carrying import carry, refuse_inexact, transformed
from holdfast.features.composed import exact_inputs
from holdfast.features.effects import Corners, Effect
from holdfast.features.rows import beside, others_than_numbers

BLOCK_ENTRIES = 1 << 18
"""Entries that are worked on at once, 2 MB, so that what is made of them stays in cache."""
BOTH_ENDS = 2
"""How often the error of a score is taken off a lead: once for the score here, once for the model's own at a moved row."""


def refuse_scores_alone(model: Model, uncertainty: UncertaintySet) -> None:
    """Raise where a set says how far linear scores go, not where rows are, and the model's scores are not linear."""
    if uncertainty.is_of_scores and model.as_linear() is None:
        raise ValueError(
            f"uncertainty={uncertainty!r:.80}: this set says how far linear scores go, not where rows are, and this model's "
            "scores are not linear. State a set that bounds the rows themselves, such as Box or Ellipsoid."
        )


def _some(sets: RowSets, rows: Rows) -> RowSets:
    return sets if isinstance(rows, slice) else sets.take(rows)


@dataclass(frozen=True)
class Passage:
    """Steps that rows pass before a model, and which of them the model accounts for itself."""

    steps: Sequence[tuple[str, Any]]
    effects: Sequence[Effect]
    n_curved: int
    """How many of the first steps the model does not account for: sets are carried through these."""
    nonlinear: str = "auto"

    @property
    def is_curved(self) -> bool:
        """Whether the model is one of transformed rows, not of the rows themselves."""
        return self.n_curved > 0

    def rows(self, X: Any) -> Any:
        """Return the rows after the curved steps."""
        return transformed(self.steps[: self.n_curved], X)

    def exact(self, n_features: int) -> NDArray[np.intp]:
        """Return the columns of X that must have no error."""
        return exact_inputs(self.effects, n_features)


@dataclass(frozen=True)
class View:
    """A fitted classifier as certificates see it at certain rows."""

    model: Model
    """The model of the numbers in `rows`."""
    X: Any
    """The rows as given."""
    rows: Any
    """Their numbers, (n_samples, n_features), 0 for a missing one or a text; then columns that steps add, such as fill-ins."""
    n_features: int
    slack: tuple[Array, Array] | None = None
    """How far below and above these added columns the true numbers may lie; None where they are exact."""
    std: Array | None = None
    """Their standard deviations, where errors are averaged over."""
    missing: NDArray[np.bool_] | None = None
    """Entries of X that are missing and filled in by exact numbers, (n_samples, n_features), which do not move."""
    passage: Passage = Passage((), (), 0)
    corners: tuple[Corners, ...] = ()
    """One-hot columns of `rows` of categories in doubt."""

    @property
    def is_curved(self) -> bool:
        """Whether `rows` are transformed by curved steps, not as given."""
        return self.passage.is_curved

    @property
    def numbers(self) -> Any:
        """The numbers of the rows, without the columns that steps add."""
        return self.rows if self.rows.shape[1] == self.n_features else self.rows[:, : self.n_features]

    def take(self, which: NDArray[np.intp] | slice) -> View:
        """Return the view of some of the rows."""
        slack = None if self.slack is None else (self.slack[0][which], self.slack[1][which])
        std = None if self.std is None else self.std[which]
        rows = self.rows[which]
        if self.X is self.rows or sparse.issparse(self.X):
            X = rows
        else:
            X = _safe_indexing(self.X, np.arange(self.rows.shape[0])[which])
        missing = None if self.missing is None else self.missing[which]
        corners = tuple(one.take(which) for one in self.corners)
        return replace(self, X=X, rows=rows, slack=slack, std=std, missing=missing, corners=corners)

    def whole(self, Z: Any, which: Any = slice(None)) -> Any:
        """Return numbers Z of rows `which`, moved or not, with the columns that steps add."""
        given = self.rows[which][:, self.n_features :]
        return beside([Z, given]) if given.shape[1] else Z

    def spread(self, values: Array, rest: float) -> Array:
        """Return numbers by feature, with `rest` for each column that steps add."""
        return np.concatenate([values, np.full(self.rows.shape[1] - self.n_features, rest)])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Which columns of X cannot move: categories, and all that is not a number."""
        n = self.n_features
        fixed = np.zeros(n, dtype=bool)
        fixed[self.passage.exact(n)] = True
        return fixed if self.is_curved else fixed | others_than_numbers(self.X)

    @property
    def has_missing(self) -> bool:
        """Whether entries of X are missing, which steps fill in."""
        return self.missing is not None or self.slack is not None or len(self.corners) > 0

    def patterns(self, which: Any) -> Iterator[tuple[Rows, Array]]:
        """Yield groups of rows among `which` that lack the same entries, with 0 for these features and 1 for the others."""
        if self.missing is None:
            yield slice(None), np.ones(self.n_features)
            return
        found, inverse = np.unique(self.missing[which], axis=0, return_inverse=True)
        for k, lost in enumerate(found):
            yield np.flatnonzero(inverse.ravel() == k), 1.0 - lost

    def sets(self, uncertainty: UncertaintySet, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the sets to maximise over, and those to average over, of the first `n_features` numbers of `rows`."""
        passage = self.passage
        if not passage.is_curved:
            refuse_scores_alone(self.model, uncertainty)
            refuse_inexact(passage.exact(self.n_features), uncertainty, metadata, self.X)
            return uncertainty.split(self.numbers, metadata)
        n = passage.n_curved
        steps, effects = passage.steps[:n], passage.effects[:n]
        made = carry(uncertainty, metadata, self.X, passage.rows(self.X), steps, effects, passage.nonlinear)
        return made.uncertainty.split(self.numbers, self._without_corners(made.metadata))

    def _without_corners(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return metadata without the boxes around categories in doubt, for which `corners` gives tighter bounds."""
        found = dict(metadata)
        for name in ("X_lower", "X_upper") if self.corners else ():
            if name in found:
                found[name] = ends = np.array(found[name])
                for one in self.corners:
                    ends[:, one.columns] = np.where(one.rows[:, None], one.given, ends[:, one.columns])
        return found

    def parts(self) -> Iterator[slice]:
        """Yield parts of the rows that fit in cache."""
        keep_freed(8 * BLOCK_ENTRIES)
        for start in range(0, self.rows.shape[0], self._block_size):
            yield slice(start, start + self._block_size)

    @property
    def _block_size(self) -> int:
        return max(1, BLOCK_ENTRIES // max(self.model.n_entries(self.rows), 1))

    def lead_blocks(self, errors: int = BOTH_ENDS) -> Iterator[tuple[slice, Any, Leads]]:
        """Yield parts of the rows, their numbers, and their leads less so many errors; a nan counts as no lead.

        Leads are the smallest over all true values that columns added by steps may have.
        """
        for part in self.parts():
            block = self.rows[part]
            with np.errstate(over="ignore", invalid="ignore"):
                scores, error = self.model.scores(block)
                found = self.model.decision.leads(scores, errors * error)
            # inf - inf of an overflow: nothing is known of such a row, so it is not certified
            found = found._replace(leads=np.where(np.isnan(found.leads), -np.inf, found.leads))
            if (self.slack is not None or self.corners) and errors:
                falls = self.falls(found, partial(self._falls_at, self._numbers(part)))
                found = found._replace(leads=found.leads - falls)
            yield part, block, found

    def falls(self, found: Leads, of: Callable[[Rows, Array, Array], Any]) -> Array:
        """Return by how much leads can fall, where signs * C f can fall by `of(rows, C, signs)` at rows."""
        out = np.zeros(found.leads.shape)
        for some, C, signs in found.groups(self.model.decision):
            out[some] = of(some, C, signs)
        return out

    def margins(self, sets: RowSets) -> tuple[NDArray[np.intp], Array]:
        """Return the predicted classes, by number, and by how much they lead at the worst points of their sets.

        What rounding could account for, at the row and anywhere in its set, is taken off: a margin > 0 is proof.
        """
        codes, margin = np.zeros(self.rows.shape[0], dtype=np.intp), np.zeros(self.rows.shape[0])
        for part, block, found in self.lead_blocks():
            falls = self.falls(found, partial(self._falls_in, part, block, sets.take(part)))
            codes[part], margin[part] = found.codes, (found.leads - falls).min(axis=1)
        return codes, margin

    def margins_within(
        self, uncertainty: UncertaintySet, metadata: Mapping[str, Any]
    ) -> tuple[NDArray[np.intp], Array]:
        """Return the `margins` of a set that metadata state row by row, bound to as many rows at once as fit in cache."""
        codes, margin = np.zeros(self.rows.shape[0], dtype=np.intp), np.zeros(self.rows.shape[0])
        stated = {name: sparse.csr_array(end) if sparse.issparse(end) else end for name, end in metadata.items()}
        try:
            # sets behind curved steps are found by carrying all rows through these at once
            for part in [slice(None)] if self.is_curved else self.parts():
                some = self.take(part)
                sets, _ = some.sets(uncertainty, {name: value[part] for name, value in stated.items()})
                assert sets is not None
                codes[part], margin[part] = some.margins(sets)
        except ValueError:
            self.sets(uncertainty, metadata)  # which names the entry that is wrong by its place in all rows
            raise
        return codes, margin

    def _falls_in(self, part: slice, block: Any, sets: RowSets, some: Rows, C: Array, signs: Array) -> Array:
        """Return by how much signs * C f can fall where `some` rows of a block move in their sets."""
        out = np.zeros((len(signs), len(C)))
        rows, own = block[some], _some(sets, some)
        for few, weights in self.patterns(self._numbers(part)[some]):
            out[few] = self.model.falls_in(rows[few], _some(own, few), weights, C, signs[few])
        return out

    def _numbers(self, part: slice) -> NDArray[np.intp]:
        return np.arange(*part.indices(self.rows.shape[0]))

    def worst_duels(
        self, sets: RowSets, codes: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_], Array, Array]]:
        """Yield rows of one class, which duels it wins at 0, its worst leads by linear scores, and bounds on their rounding."""
        linear, size = self.linear, self._block_size
        for code in np.unique(codes):
            own = np.flatnonzero(codes == code)
            C, wins = linear.decision.duels(int(code))
            for start in range(0, len(own), size):
                some = own[start : start + size]
                scores, errors = linear.scores(self.rows[some])
                falls, doubts = np.zeros((2, len(some), len(C)))
                signs = np.ones(falls.shape)
                for few, weights in self.patterns(some):
                    found = linear.pushed(sets.take(some[few]), weights, C, signs[few], self.rows.dtype)
                    falls[few], doubts[few] = found
                doubts = doubts + BOTH_ENDS * errors @ np.abs(C).T
                yield some, wins, scores @ C.T - falls - self._own_falls(some, C), doubts

    def _falls_at(self, which: NDArray[np.intp], some: Rows, C: Array, signs: Array) -> Array | float:
        """Return by how much signs * C f can fall as columns that steps add are not exact."""
        ahead, is_turned = self._own_falls(which[some], C), signs < 0
        return np.where(is_turned, self._own_falls(which[some], -C), ahead) if np.any(is_turned) else ahead

    def _own_falls(self, some: Any, C: Array) -> Array | float:
        """Return by how much combinations C of scores can fall at rows `some`, as columns that steps add are not exact."""
        found: Array | float = 0.0
        for one in self.corners:
            found = found + self._corner_falls(one.take(some), C)
        if self.slack is None:
            return found
        down, up = (end[some] for end in self.slack)
        none = np.zeros((len(down), self.n_features))
        return found + self.model.falls(np.hstack([none, down]), np.hstack([none, up]), C, self.rows.dtype)

    def _corner_falls(self, one: Corners, C: Array) -> Array:
        """Return by how much combinations C of scores can fall at the worst category, exactly for linear scores."""
        linear = self.model.as_linear()
        ends = np.zeros((2, len(one.given), self.rows.shape[1]))
        ends[0][:, one.columns] = np.where(one.is_open, one.given, 0.0)
        ends[1][:, one.columns] = np.where(one.is_open, 1.0 - one.given, 0.0)
        # a box around all one-hot corners: for scores that are not linear the only bound known
        boxed = self.model.falls(ends[0], ends[1], C, self.rows.dtype)
        if linear is None:
            return boxed
        V, kind = C @ linear.coef[:, one.columns], self.rows.dtype
        exact = np.column_stack([one.falls(v) for v in V])
        sizes = np.abs(C) @ linear.map.sizes[:, one.columns].max(axis=1, initial=0.0)
        # two columns change, that of the category that goes and that of the one that comes: twice the sizes
        doubt = np.where(one.rows[:, None], (2 * linear.map.gamma(kind) + gamma(len(one.columns) + 8)) * 2 * sizes, 0.0)
        # both are bounds; the box is the tighter one where rounding dominates
        return np.minimum(exact + doubt, boxed)

    def worst_moves(self, sets: RowSets, codes: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the moves within the sets at which classes `codes` do worst by linear scores, and their leads there."""
        moves, found = np.zeros((self.rows.shape[0], self.n_features)), np.zeros(self.rows.shape[0])
        for some, _, leads, _ in self.worst_duels(sets, codes):
            rivals = leads.argmin(axis=1)
            found[some] = leads.min(axis=1)
            directions = self.linear.decision.duels(int(codes[some[0]]))[0] @ self.coef
            for rival in np.unique(rivals):
                own = some[rivals == rival]
                for part, weights in self.patterns(own):
                    few = own[part]
                    # the support's maximizer is where the duel is lost by most, as scores are linear
                    moves[few] = weights * sets.take(few).maximizer(-weights * directions[rival])
        return moves, found

    @property
    def linear(self) -> LinearModel:
        """The model, which must be linear."""
        found = self.model.as_linear()
        assert found is not None
        return found

    @property
    def coef(self) -> Array:
        """The weights of the features of X by linear scores, (n_scores, n_features)."""
        return self.linear.coef[:, : self.n_features]
