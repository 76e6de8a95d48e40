"""Rules from scores to predictions: the largest score, or votes of pairs of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.rounding import Array

Rows = NDArray[np.intp] | slice
"""Indices of rows, or a slice of all rows."""


class Leads(NamedTuple):
    """The leads of each row's prediction over its rivals; it cannot change while all leads are > 0."""

    codes: NDArray[np.intp]
    """The indices of the predicted classes, shape (n_samples,)."""
    leads: Array
    """One lead for each rival, inf for classes that are not rivals, shape (n_samples, n_rivals)."""
    is_turned: NDArray[np.bool_]
    """Whether a lead is -C f instead of C f, with C from `Decision.combinations`, shape (n_samples or 1, n_rivals)."""

    def take(self, rows: Any) -> Leads:
        """Return the leads of some rows."""
        return Leads(
            self.codes[rows], self.leads[rows], self.is_turned[rows] if len(self.is_turned) > 1 else self.is_turned
        )

    def groups(self, decision: Decision) -> Iterator[tuple[Rows, Array, Array]]:
        """Yield rows with the same combinations C, C itself, and signs such that the leads are signs * C f."""
        signs = np.broadcast_to(np.where(self.is_turned, -1.0, 1.0), self.leads.shape)
        for some, C in decision.groups(self.codes):
            yield some, C, signs[some]


class Decision(ABC):
    """A rule from scores to classes, described by leads, which are linear combinations of scores."""

    n_scores: int
    is_by_duels: bool
    """Whether a class is predicted if and only if it wins all its `duels`."""

    @abstractmethod
    def duels(self, code: int) -> tuple[Array, NDArray[np.bool_]]:
        """Return C, (n_classes - 1, n_scores), with C f > 0 where the class beats another, and which ties it wins."""

    @abstractmethod
    def leads(self, scores: Array, errors: Array) -> Leads:
        """Return the leads of rows with these scores, each lowered by the largest effect of errors of these sizes."""

    @abstractmethod
    def combinations(self, code: int) -> Array:
        """Return the matrix C such that, where this class is predicted, the leads are C f up to sign.

        It has the shape (n_rivals, n_scores).
        """

    @abstractmethod
    def table(self, of: Callable[[Array], Array]) -> Array:
        """Return of(C) for the combinations C of each predicted class, shape (1 or n_classes, n_rivals)."""

    def groups(self, codes: NDArray[np.intp]) -> Iterator[tuple[Rows, Array]]:
        """Yield rows with the same combinations, and these combinations."""
        for code in np.unique(codes):
            yield np.flatnonzero(codes == code), self.combinations(int(code))

    def of_rows(self, table: Array, codes: NDArray[np.intp]) -> Array:
        """Return the entry of a table for each row."""
        return table if len(table) == 1 else table[codes]


class LargestScore(Decision):
    """The class with the largest score is predicted; the first class wins ties."""

    is_by_duels = True

    def __init__(self, n_classes: int):
        self.n_scores = n_classes

    def duels(self, code: int) -> tuple[Array, NDArray[np.bool_]]:
        others = np.delete(np.arange(self.n_scores), code)
        return self.combinations(code)[others], code < others

    def leads(self, scores: Array, errors: Array) -> Leads:
        codes = scores.argmax(axis=1)
        each = np.arange(len(codes))
        # worst case of errors: the predicted class's score is too high, and each rival's score too low
        leads = (scores[each, codes] - errors[each, codes])[:, None] - (scores + errors)
        leads[each, codes] = np.inf
        return Leads(codes, leads, np.zeros((1, self.n_scores), dtype=bool))

    def combinations(self, code: int) -> Array:
        one = np.eye(self.n_scores)
        return one[code] - one

    def table(self, of: Callable[[Array], Array]) -> Array:
        return np.array([of(self.combinations(k)) for k in range(self.n_scores)])


class Votes(Decision):
    r"""Each score is a vote for one of two classes; the first class with most votes is predicted.

    For two classes, this is the sign of one score. A class that wins all its votes stays predicted as long as it does,
    whatever the votes between other classes. Any other prediction is certain only while no vote changes.

    Parameters
    ----------
    pairs : array-like of shape (n_scores, 2)
        The indices of the two classes: a positive score is a vote for the first, any other for the second.
    n_classes : int
    needs_lead : bool, default=False
        Whether ties of votes are broken by other means than the order of classes, so that no tie is certain.
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
        # a class with all its n_classes - 1 votes wins, whatever the votes between other classes
        leads[(most == self.n_classes - 1)[:, None] & ~takes_part] = np.inf
        if self.needs_lead:
            # ties of votes depend on more than the signs of scores, so nothing is certain
            leads[np.sum(votes == most[:, None], axis=1) > 1] = 0.0
        return Leads(codes, leads, ~is_won)

    def combinations(self, code: int) -> Array:
        return np.eye(self.n_scores)

    def groups(self, codes: NDArray[np.intp]) -> Iterator[tuple[Rows, Array]]:
        yield slice(None), self.combinations(0)

    def table(self, of: Callable[[Array], Array]) -> Array:
        return of(np.eye(self.n_scores))[None]


def one_score() -> Votes:
    """Return the rule for two classes: the second class is predicted if the score is > 0."""
    return Votes(np.array([[1, 0]]), 2)
