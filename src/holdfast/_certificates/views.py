"""Views of a fitted classifier at given rows, for certificates."""

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
"""The number of entries processed at a time (2 MB), so that intermediate results stay in cache."""
BOTH_ENDS = 2
"""How often a score's error is subtracted from a lead: for the score here, and for the model's at a moved row."""


def refuse_scores_alone(model: Model, uncertainty: UncertaintySet) -> None:
    """Raise ValueError if a set bounds linear scores instead of rows, and the model's scores are not linear."""
    if uncertainty.is_of_scores and model.as_linear() is None:
        raise ValueError(
            f"uncertainty={uncertainty!r:.80}: this set says how far linear scores go, not where rows are, and this model's "
            "scores are not linear. State a set that bounds the rows themselves, such as Box or Ellipsoid."
        )


def _some(sets: RowSets, rows: Rows) -> RowSets:
    return sets if isinstance(rows, slice) else sets.take(rows)


@dataclass(frozen=True)
class Passage:
    """The steps before a model; the last of them may be part of the model."""

    steps: Sequence[tuple[str, Any]]
    effects: Sequence[Effect]
    n_curved: int
    """The number of first steps that are not part of the model; sets are carried through them."""
    nonlinear: str = "auto"

    @property
    def is_curved(self) -> bool:
        """Whether the model takes transformed rows, not the rows themselves."""
        return self.n_curved > 0

    def rows(self, X: Any) -> Any:
        """Return the rows after the first `n_curved` steps."""
        return transformed(self.steps[: self.n_curved], X)

    def exact(self, n_features: int) -> NDArray[np.intp]:
        """Return the columns of X that must have no error."""
        return exact_inputs(self.effects, n_features)


@dataclass(frozen=True)
class View:
    """A fitted classifier at given rows, for certificates."""

    model: Model
    """The model of the numbers in `rows`."""
    X: Any
    """The rows as given."""
    rows: Any
    """The numbers of the rows, (n_samples, n_features), 0 if missing or text; then columns added by steps."""
    n_features: int
    slack: tuple[Array, Array] | None = None
    """How far the true numbers of added columns may lie below and above `rows`; None if they are exact."""
    std: Array | None = None
    """The standard deviations of added columns, if losses are averaged over errors."""
    missing: NDArray[np.bool_] | None = None
    """Which entries of X are missing, filled in by exact numbers, and so do not move, (n_samples, n_features)."""
    passage: Passage = Passage((), (), 0)
    corners: tuple[Corners, ...] = ()
    """The one-hot columns of `rows` that encode categories in doubt."""

    @property
    def is_curved(self) -> bool:
        """Whether `rows` are transformed by curved steps."""
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
        """Return Z, (possibly moved) numbers of rows `which`, with the columns that steps add."""
        given = self.rows[which][:, self.n_features :]
        return beside([Z, given]) if given.shape[1] else Z

    def spread(self, values: Array, rest: float) -> Array:
        """Return `values`, one for each feature, followed by `rest` for each column that steps add."""
        return np.concatenate([values, np.full(self.rows.shape[1] - self.n_features, rest)])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Which columns of X cannot move: categories, and all columns without numbers."""
        n = self.n_features
        fixed = np.zeros(n, dtype=bool)
        fixed[self.passage.exact(n)] = True
        return fixed if self.is_curved else fixed | others_than_numbers(self.X)

    @property
    def has_missing(self) -> bool:
        """Whether X has missing entries, which steps fill in."""
        return self.missing is not None or self.slack is not None or len(self.corners) > 0

    def patterns(self, which: Any) -> Iterator[tuple[Rows, Array]]:
        """Yield groups of the rows `which` with equal missing entries, and weights: 0 for these features, else 1."""
        if self.missing is None:
            yield slice(None), np.ones(self.n_features)
            return
        found, inverse = np.unique(self.missing[which], axis=0, return_inverse=True)
        for k, lost in enumerate(found):
            yield np.flatnonzero(inverse.ravel() == k), 1.0 - lost

    def sets(self, uncertainty: UncertaintySet, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the set to maximise over and the one to average over, for the first `n_features` columns of `rows`."""
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
        """Return metadata without the boxes around categories in doubt, as `corners` has tighter bounds for these."""
        found = dict(metadata)
        for name in ("X_lower", "X_upper") if self.corners else ():
            if name in found:
                found[name] = ends = np.array(found[name])
                for one in self.corners:
                    ends[:, one.columns] = np.where(one.rows[:, None], one.given, ends[:, one.columns])
        return found

    def parts(self) -> Iterator[slice]:
        """Yield slices of the rows that fit in cache."""
        keep_freed(8 * BLOCK_ENTRIES)
        for start in range(0, self.rows.shape[0], self._block_size):
            yield slice(start, start + self._block_size)

    @property
    def _block_size(self) -> int:
        return max(1, BLOCK_ENTRIES // max(self.model.n_entries(self.rows), 1))

    def lead_blocks(self, errors: int = BOTH_ENDS) -> Iterator[tuple[slice, Any, Leads]]:
        """Yield slices of the rows, their numbers, and their leads less `errors` times the error of a score.

        A lead of nan counts as -inf. Leads are the smallest over all possible true values of the columns that steps
        add.
        """
        for part in self.parts():
            block = self.rows[part]
            with np.errstate(over="ignore", invalid="ignore"):
                scores, error = self.model.scores(block)
                found = self.model.decision.leads(scores, errors * error)
            # nan is inf - inf after an overflow; such a row is not certified
            found = found._replace(leads=np.where(np.isnan(found.leads), -np.inf, found.leads))
            if (self.slack is not None or self.corners) and errors:
                falls = self.falls(found, partial(self._falls_at, self._numbers(part)))
                found = found._replace(leads=found.leads - falls)
            yield part, block, found

    def falls(self, found: Leads, of: Callable[[Rows, Array, Array], Any]) -> Array:
        """Return the largest falls of the leads; `of(rows, C, signs)` returns those of signs * C f at some rows."""
        out = np.zeros(found.leads.shape)
        for some, C, signs in found.groups(self.model.decision):
            out[some] = of(some, C, signs)
        return out

    def margins(self, sets: RowSets) -> tuple[NDArray[np.intp], Array]:
        """Return the indices of the predicted classes, and their smallest leads over the sets.

        Bounds on rounding, at the row and anywhere in its set, are subtracted, so a margin > 0 is a proof.
        """
        codes, margin = np.zeros(self.rows.shape[0], dtype=np.intp), np.zeros(self.rows.shape[0])
        for part, block, found in self.lead_blocks():
            falls = self.falls(found, partial(self._falls_in, part, block, sets.take(part)))
            codes[part], margin[part] = found.codes, (found.leads - falls).min(axis=1)
        return codes, margin

    def margins_within(
        self, uncertainty: UncertaintySet, metadata: Mapping[str, Any]
    ) -> tuple[NDArray[np.intp], Array]:
        """Return the `margins` of a set with metadata by row, bound to blocks of rows that fit in cache."""
        codes, margin = np.zeros(self.rows.shape[0], dtype=np.intp), np.zeros(self.rows.shape[0])
        stated = {name: sparse.csr_array(end) if sparse.issparse(end) else end for name, end in metadata.items()}
        try:
            # sets are carried through curved steps for all rows at once
            for part in [slice(None)] if self.is_curved else self.parts():
                some = self.take(part)
                sets, _ = some.sets(uncertainty, {name: value[part] for name, value in stated.items()})
                assert sets is not None
                codes[part], margin[part] = some.margins(sets)
        except ValueError:
            self.sets(uncertainty, metadata)  # raises an error that names the wrong entry by its index among all rows
            raise
        return codes, margin

    def _falls_in(self, part: slice, block: Any, sets: RowSets, some: Rows, C: Array, signs: Array) -> Array:
        """Return the largest falls of signs * C f if the rows `some` of a block move in their sets."""
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
        """Yield rows of one class, which ties it wins, its smallest leads by linear scores, and their rounding."""
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
        """Return the largest falls of signs * C f due to the errors of columns that steps add."""
        ahead, is_turned = self._own_falls(which[some], C), signs < 0
        return np.where(is_turned, self._own_falls(which[some], -C), ahead) if np.any(is_turned) else ahead

    def _own_falls(self, some: Any, C: Array) -> Array | float:
        """Return the largest falls of C f at rows `some` due to the errors of columns that steps add."""
        found: Array | float = 0.0
        for one in self.corners:
            found = found + self._corner_falls(one.take(some), C)
        if self.slack is None:
            return found
        down, up = (end[some] for end in self.slack)
        none = np.zeros((len(down), self.n_features))
        return found + self.model.falls(np.hstack([none, down]), np.hstack([none, up]), C, self.rows.dtype)

    def _corner_falls(self, one: Corners, C: Array) -> Array:
        """Return the largest falls of C f over the possible categories; exact for linear scores."""
        linear = self.model.as_linear()
        ends = np.zeros((2, len(one.given), self.rows.shape[1]))
        ends[0][:, one.columns] = np.where(one.is_open, one.given, 0.0)
        ends[1][:, one.columns] = np.where(one.is_open, 1.0 - one.given, 0.0)
        # a box around all one-hot corners is the only known bound for nonlinear scores
        boxed = self.model.falls(ends[0], ends[1], C, self.rows.dtype)
        if linear is None:
            return boxed
        V, kind = C @ linear.coef[:, one.columns], self.rows.dtype
        exact = np.column_stack([one.falls(v) for v in V])
        sizes = np.abs(C) @ linear.map.sizes[:, one.columns].max(axis=1, initial=0.0)
        # two columns change, those of the old and the new category, so the sizes count twice
        doubt = np.where(one.rows[:, None], (2 * linear.map.gamma(kind) + gamma(len(one.columns) + 8)) * 2 * sizes, 0.0)
        # both bounds are valid; the box is tighter if rounding dominates
        return np.minimum(exact + doubt, boxed)

    def worst_moves(self, sets: RowSets, codes: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the worst moves within the sets for the classes `codes`, by linear scores, and the leads there."""
        moves, found = np.zeros((self.rows.shape[0], self.n_features)), np.zeros(self.rows.shape[0])
        for some, _, leads, _ in self.worst_duels(sets, codes):
            rivals = leads.argmin(axis=1)
            found[some] = leads.min(axis=1)
            directions = self.linear.decision.duels(int(codes[some[0]]))[0] @ self.coef
            for rival in np.unique(rivals):
                own = some[rivals == rival]
                for part, weights in self.patterns(own):
                    few = own[part]
                    # scores are linear, so the maximizer of the support is the point where the duel is lost by most
                    moves[few] = weights * sets.take(few).maximizer(-weights * directions[rival])
        return moves, found

    @property
    def linear(self) -> LinearModel:
        """The model as a LinearModel; it must be linear."""
        found = self.model.as_linear()
        assert found is not None
        return found

    @property
    def coef(self) -> Array:
        """The weights of the features of X in linear scores, shape (n_scores, n_features)."""
        return self.linear.coef[:, : self.n_features]
