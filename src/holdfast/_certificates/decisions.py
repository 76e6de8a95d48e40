"""How predictions follow from scores: by the largest score, or by votes of pairs of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.rounding import Array

Rows = NDArray[np.intp] | slice
"""Some rows, by number, or all of them."""


class Leads(NamedTuple):
    """By how much each row's prediction leads: it cannot change while all its leads are > 0."""

    codes: NDArray[np.intp]
    """The numbers of the predicted classes, shape (n_samples,)."""
    leads: Array
    """One for each rival, inf for classes that are no rivals. Shape (n_samples, n_rivals)."""
    is_turned: NDArray[np.bool_]
    """Whether a lead is minus what `Decision.combinations` gives, shape (n_samples or 1, n_rivals)."""

    def take(self, rows: Any) -> Leads:
        """Return those of some rows."""
        return Leads(
            self.codes[rows], self.leads[rows], self.is_turned[rows] if len(self.is_turned) > 1 else self.is_turned
        )

    def groups(self, decision: Decision) -> Iterator[tuple[Rows, Array, Array]]:
        """Yield rows that share their combinations, these combinations, and the signs with which leads change as they do."""
        signs = np.broadcast_to(np.where(self.is_turned, -1.0, 1.0), self.leads.shape)
        for some, C in decision.groups(self.codes):
            yield some, C, signs[some]


class Decision(ABC):
    """A rule from scores to classes, known by its leads, which are differences of scores."""

    n_scores: int
    is_by_duels: bool
    """Whether a class is predicted where, and only where, it wins all its `duels`."""

    @abstractmethod
    def duels(self, code: int) -> tuple[Array, NDArray[np.bool_]]:
        """Return C, with C f > 0 where a class beats each other, (n_classes - 1, n_scores), and which duels it wins at 0."""

    @abstractmethod
    def leads(self, scores: Array, errors: Array) -> Leads:
        """Return the leads of rows with these scores, each lowered by what errors of this size can take from it."""

    @abstractmethod
    def combinations(self, code: int) -> Array:
        """Return C with leads C f where this class is predicted, up to their signs, shape (n_rivals, n_scores)."""

    @abstractmethod
    def table(self, of: Callable[[Array], Array]) -> Array:
        """Return what `of` makes of the combinations, for each predicted class, shape (1 or n_classes, n_rivals)."""

    def groups(self, codes: NDArray[np.intp]) -> Iterator[tuple[Rows, Array]]:
        """Yield rows that share their combinations, and these combinations."""
        for code in np.unique(codes):
            yield np.flatnonzero(codes == code), self.combinations(int(code))

    def of_rows(self, table: Array, codes: NDArray[np.intp]) -> Array:
        """Return each row's line of a table."""
        return table if len(table) == 1 else table[codes]


class LargestScore(Decision):
    """The class with the largest score; of equal scores the first class wins."""

    is_by_duels = True

    def __init__(self, n_classes: int):
        self.n_scores = n_classes

    def duels(self, code: int) -> tuple[Array, NDArray[np.bool_]]:
        others = np.delete(np.arange(self.n_scores), code)
        return self.combinations(code)[others], code < others

    def leads(self, scores: Array, errors: Array) -> Leads:
        codes = scores.argmax(axis=1)
        each = np.arange(len(codes))
        # worst case of errors: the own score is too high, each rival's too low
        leads = (scores[each, codes] - errors[each, codes])[:, None] - (scores + errors)
        leads[each, codes] = np.inf
        return Leads(codes, leads, np.zeros((1, self.n_scores), dtype=bool))

    def combinations(self, code: int) -> Array:
        one = np.eye(self.n_scores)
        return one[code] - one

    def table(self, of: Callable[[Array], Array]) -> Array:
        return np.array([of(self.combinations(k)) for k in range(self.n_scores)])


class Votes(Decision):
    r"""Each score is a contest of two classes with a vote for the winner; the first class with most votes is predicted.

    With two classes, this is the sign of one score. A class that wins all its contests stays predicted as long as it does,
    whatever happens in other contests. Any other class is certain only while no contest changes.

    Parameters
    ----------
    pairs : array-like of shape (n_scores, 2)
        The classes, by number, that get the vote: the first if the score is positive, else the second.
    n_classes : int
    needs_lead : bool, default=False
        Whether ties of votes are broken by something else than the order of classes, so that no tie is certain.
    """

    def __init__(self, pairs: NDArray[np.intp], n_classes: int, *, needs_lead: bool = False):
        self.pairs, self.n_classes, self.needs_lead = np.asarray(pairs, dtype=np.intp), n_classes, needs_lead
        self.n_scores = len(self.pairs)
        self.is_by_duels = self.n_scores == 1
        self._for, self._against = (np.eye(n_classes)[self.pairs[:, side]] for side in (0, 1))

    def duels(self, code: int) -> tuple[Array, NDArray[np.bool_]]:
        signs = self._for[:, code] - self._against[:, code]
        own = np.flatnonzero(signs)
        # a score of exactly 0 is a vote for the second class of its pair
        return signs[own, None] * np.eye(self.n_scores)[own], signs[own] < 0

    def leads(self, scores: Array, errors: Array) -> Leads:
        is_won = scores > 0
        leads = np.abs(scores) - errors
        if self.n_scores == 1:
            return Leads(np.where(is_won[:, 0], *self.pairs[0]), leads, ~is_won)
        votes = is_won @ self._for + ~is_won @ self._against
        codes = votes.argmax(axis=1)
        most = votes.max(axis=1)
        takes_part = (self._for + self._against)[:, codes].T > 0
        # a class with all its n_classes - 1 votes wins whatever contests of other classes do
        leads[(most == self.n_classes - 1)[:, None] & ~takes_part] = np.inf
        if self.needs_lead:
            # ties of votes depend on more than the scores' signs, so nothing is certain there
            leads[np.sum(votes == most[:, None], axis=1) > 1] = 0.0
        return Leads(codes, leads, ~is_won)

    def combinations(self, code: int) -> Array:
        return np.eye(self.n_scores)

    def groups(self, codes: NDArray[np.intp]) -> Iterator[tuple[Rows, Array]]:
        yield slice(None), self.combinations(0)

    def table(self, of: Callable[[Array], Array]) -> Array:
        return of(np.eye(self.n_scores))[None]


def one_score() -> Votes:
    """Return the rule of two classes: the second where the score is > 0."""
    return Votes(np.array([[1, 0]]), 2)
