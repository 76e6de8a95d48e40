"""Searches for the rows of given sets at which a model does worst, by gradients or by queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from holdfast._core.arithmetic import dense, ratio
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast.evaluate.attack_questions import Question
from holdfast.features.carrying import extents
from holdfast.features.rows import as_given

STEP_LENGTHS = 0.5 ** np.arange(8)
"""Step lengths that are tried: at most 1, so that a step never leaves a convex set."""
SETTLED = 1e-4
"""A row's search ends when its lead falls by less than this share: later Frank-Wolfe steps would gain little."""
HALVINGS = 30
"""Bisections to find a boundary between classes."""
BOUNDARY_POINTS = 3
"""Points of the boundary of its class that are tried for each row."""
PROBES = 1 << 21
"""How many entries of rows a model is asked about at once, 16 MB: all probes along all features would fill memory."""
PROBE_LENGTH = 0.05
"""How far from a boundary point its normal is probed, in units of the set: near enough for the boundary to be flat."""
LEAST_PROBABILITY = 1e-300
"""Smaller probabilities count as this one, so that their logarithms are finite."""
FARTHEST = 2.0 ** np.arange(1, 8)
"""Multiples of a set's farthest point at which another class is looked for, if none was found inside the set."""


class AttackedModel(ABC):
    """A model as a search sees it: the leads of the labels, and the directions in which they fall."""

    n_targets = 1

    @abstractmethod
    def lead(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        """Return the leads of the labels of rows `which`, moved to Z, over class number `target` of the others."""

    @abstractmethod
    def slope(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        """Return the gradients of these leads."""


class KnownModel(AttackedModel):
    """A model whose gradients are known; each class but the label is a target of its own."""

    def __init__(self, question: Question):
        assert question.view is not None
        self.view, self.model, self.codes = question.view, question.view.model, question.codes
        duels = [self.model.decision.duels(code)[0] for code in range(len(question.classes))]
        self.duels, self.n_targets = np.array(duels), len(duels) - 1

    def lead(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        scores = self._blockwise(lambda part: self.model.scores(self.view.whole(Z[part], which[part]))[0], len(Z))
        return np.asarray(np.einsum("ij,ij->i", self.duels[self.codes[which], target], scores))

    def slope(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        C = self.duels[self.codes[which], target]
        slopes = self._blockwise(
            lambda part: self.model.gradients(self.view.whole(Z[part], which[part]), C[part]), len(Z)
        )
        return slopes[:, : self.view.n_features]

    def _blockwise(self, of: Callable[[slice], Array], n: int) -> Array:
        size = max(1, PROBES // self.model.n_columns)
        return np.concatenate([of(slice(start, start + size)) for start in range(0, n, size)])


class QueriedModel(AttackedModel):
    """A model that is known by its answers only; differences over the extents of the sets replace gradients."""

    def __init__(self, question: Question):
        self.question, self.ask = question, lead_of(question.model, question.X, question.classes)
        self.rows = dense(question.rows).astype(np.float64, copy=False)
        self.below, self.above = extents(question.sets, question.rows.shape)

    def lead(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        return self.ask(Z, self.question.codes[which], which)

    def slope(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        n, d = Z.shape
        out, size = np.zeros((n, d)), max(1, PROBES // (2 * d * d))
        for start in range(0, n, size):
            part = slice(start, start + size)
            own, here = which[part], Z[part]
            # differences stay within the extents of the sets: outside, a step such as log may have no value
            ups = np.minimum(here + self.above[own], self.rows[own] + self.above[own])
            downs = np.maximum(here - self.below[own], self.rows[own] - self.below[own])
            each = np.repeat(own, d)
            up, down = (
                self.ask(
                    (here[:, None] + (ends - here)[:, :, None] * np.eye(d)).reshape(-1, d),
                    self.question.codes[each],
                    each,
                ).reshape(-1, d)
                for ends in (ups, downs)
            )
            out[part] = ratio(up - down, ups - downs)
        return out


def lead_of(model: Any, X: Any, classes: NDArray[Any]) -> Callable[..., Array]:
    """Return a function (Z, codes, which) that returns the leads of classes `codes` at rows Z.

    If X has entries that are not numbers, they are taken from its rows `which`. Leads are differences of scores; for
    models without scores, logarithms of ratios of probabilities; for models with neither, 1 or -1.
    """

    def votes(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return np.where(np.asarray(model.predict(as_given(X, Z, which))) == classes[codes], 1.0, -1.0)

    def scores(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return _leads(np.asarray(model.decision_function(as_given(X, Z, which))), codes)

    def odds(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return _leads(np.log(np.maximum(model.predict_proba(as_given(X, Z, which)), LEAST_PROBABILITY)), codes)

    if hasattr(model, "decision_function"):
        shape = np.shape(model.decision_function(_safe_indexing(X, [0])))
        # the columns of decision_function_shape="ovo" are contests of two classes, not scores of classes
        is_scored = len(shape) == 1 or (
            shape[1] == len(classes) and getattr(model, "decision_function_shape", "ovr") == "ovr"
        )
        return scores if is_scored else votes
    return odds if hasattr(model, "predict_proba") else votes


def _leads(values: Array, codes: NDArray[np.intp]) -> Array:
    """Return the leads of classes `codes`, from one score per row (two classes) or one score per class."""
    if values.ndim == 1:
        return np.where(codes == 1, values, -values)
    each = np.arange(len(values))
    own, others = values[each, codes], values.copy()
    others[each, codes] = -np.inf
    return np.asarray(own - others.max(axis=1))


def worst_found(
    question: Question, rows: Array, n_starts: int, max_iter: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the worst moves that a search finds, and the leads at the moved rows."""
    model_asked: AttackedModel = (QueriedModel if question.method == "queries" else KnownModel)(question)
    everyone = np.arange(len(rows))
    owns = [question.sets.take(everyone[[i]]) for i in everyone]
    best = BestMoves(question, rows, model_asked)
    if question.sets.has_origin:
        best.offer(everyone, np.zeros_like(rows))
    for start in range(n_starts):
        # one random point for all rows, drawn even if few are left, so that results do not depend on earlier starts
        drawn = question.sets.sample(rng, 1, rows.shape[1])[0]
        for target in range(model_asked.n_targets):
            left = np.flatnonzero(~best.is_wrong)
            if not len(left):
                return best.moves, best.leads
            if start:  # the first start is the vertex farthest against the gradient at the row itself
                at = np.broadcast_to(drawn, rows.shape)[left].copy()
            else:
                at = _maximizers(owns, left, -model_asked.slope(rows[left], left, target))
            best.offer(left, _descended(model_asked, rows, owns, left, at, target, max_iter))
    if question.method == "queries":
        # far outside the sets a step such as log may have no value, and the model then refuses the row
        with suppress(ValueError), np.errstate(invalid="ignore"):
            _cross_boundaries(question, rows, owns, best, rng)
    return best.moves, best.leads


class BestMoves:
    """The worst move of each row so far: a move at which the model errs is worse, then one with a smaller lead."""

    def __init__(self, question: Question, rows: Array, model_asked: AttackedModel):
        self.question, self.rows, self.model_asked = question, rows, model_asked
        self.moves, self.leads = np.zeros_like(rows), np.full(len(rows), np.inf)
        self.is_wrong = np.zeros(len(rows), dtype=bool)

    def wrong(self, Z: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether the model errs, for each of the rows `which`, moved to Z."""
        given = as_given(self.question.X, Z, which)
        return np.asarray(np.asarray(self.question.model.predict(given)) != self.question.labels[which])

    def offer(self, which: NDArray[np.intp], moves: Array) -> None:
        """Keep the moves of rows `which` that are worse than the worst so far."""
        Z = self.rows[which] + moves
        leads = np.min(
            [self.model_asked.lead(Z, which, target) for target in range(self.model_asked.n_targets)], axis=0
        )
        wrong = self.wrong(Z, which)
        is_worse = (wrong & ~self.is_wrong[which]) | ((wrong == self.is_wrong[which]) & (leads < self.leads[which]))
        kept = which[is_worse]
        self.moves[kept], self.leads[kept], self.is_wrong[kept] = moves[is_worse], leads[is_worse], wrong[is_worse]


def _maximizers(owns: list[RowSets], which: NDArray[np.intp], directions: Array) -> Array:
    """Return the farthest point of each row's set in the row's direction."""
    return np.array([owns[i].maximizer(v)[0] for i, v in zip(which, directions, strict=True)])


def _descended(
    model_asked: AttackedModel,
    rows: Array,
    owns: list[RowSets],
    which: NDArray[np.intp],
    moves: Array,
    target: int,
    max_iter: int,
) -> Array:
    """Return moves of rows `which` after Frank-Wolfe steps: towards the point of the set that lowers the lead fastest."""
    leads, active = model_asked.lead(rows[which] + moves, which, target), np.arange(len(which))
    for _ in range(max_iter):
        own = which[active]
        steps = _maximizers(owns, own, -model_asked.slope(rows[own] + moves[active], own, target)) - moves[active]
        trials = (rows[own] + moves[active] + STEP_LENGTHS[:, None, None] * steps).reshape(-1, rows.shape[1])
        found = model_asked.lead(trials, np.tile(own, len(STEP_LENGTHS)), target).reshape(len(STEP_LENGTHS), -1)
        # a step that does not lower the lead is not taken, so that a search never ends worse than it began
        best = np.minimum(found.min(axis=0), leads[active])
        moves[active] += np.where(best < leads[active], STEP_LENGTHS[found.argmin(axis=0)], 0.0)[:, None] * steps
        is_settled = best >= leads[active] - SETTLED * np.abs(leads[active])
        leads[active] = best
        active = active[~is_settled]
        if not len(active):
            break
    return moves


def _cross_boundaries(
    question: Question, rows: Array, owns: list[RowSets], best: BestMoves, rng: np.random.Generator
) -> None:
    """Offer the farthest points of the sets along normals of class boundaries, found from predictions alone."""
    predicted = np.asarray(question.model.predict(question.X))
    reach = np.maximum(*extents(question.sets, rows.shape))
    # distances in units of the sets: features that cannot move do not count
    unit = reach.mean(axis=0)
    scaled = ratio(rows, np.where(unit > 0, unit, np.inf))
    beyond = np.full(rows.shape, np.nan)
    for i in np.flatnonzero(~best.is_wrong):
        others = np.flatnonzero(predicted != question.labels[i])
        if len(others):
            beyond[i] = rows[others[np.argmin(np.square(scaled[others] - scaled[i]).sum(axis=1))]]
    for _ in range(BOUNDARY_POINTS):
        left = np.flatnonzero(~best.is_wrong & ~np.isnan(beyond[:, 0]))
        if not len(left):
            return
        edge = _edges(best, rows[left], beyond[left], left)
        normals = np.array([_normal(best, z, reach[i], int(i), rng) for z, i in zip(edge, left, strict=True)])
        moves = _maximizers(owns, left, normals)
        best.offer(left, moves)
        beyond[left] = np.nan
        # nearest last, so that the nearest point with another class remains
        for factor in FARTHEST[::-1]:
            Z = rows[left] + factor * moves
            found = best.wrong(Z, left)
            beyond[left[found]] = Z[found]


def _edges(best: BestMoves, inside: Array, outside: Array, which: NDArray[np.intp]) -> Array:
    """Return points just beyond the boundary of the class, between right rows inside and wrong points outside."""
    low, high = np.zeros(len(which)), np.ones(len(which))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        wrong = best.wrong(inside + middle[:, None] * (outside - inside), which)
        low, high = np.where(wrong, low, middle), np.where(wrong, middle, high)
    return np.asarray(inside + high[:, None] * (outside - inside))


def _normal(best: BestMoves, edge: Array, reach: Array, row: int, rng: np.random.Generator) -> Array:
    r"""Return the direction into the other class at a point of the boundary.

    For probes :math:`z + \epsilon\, r \circ u` with standard normal u, the mean u of the probes beyond the boundary is
    proportional to :math:`r \circ` normal (HopSkipJump, by Chen, Jordan and Wainwright).
    """
    # the error of the mean falls like sqrt(features / probes): ten probes for each feature point clearly across
    u = rng.normal(size=(100 + 10 * len(edge), len(edge)))
    wrong = best.wrong(edge + PROBE_LENGTH * reach * u, np.full(len(u), row)).astype(np.float64)
    return ratio((wrong - wrong.mean()) @ u, np.where(reach > 0, reach, np.inf))
