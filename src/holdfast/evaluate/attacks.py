"""Attacks: admissible rows at which a model does worst; exact where scores are linear, a search elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from holdfast._certificates.views import View
from holdfast._core.allowed import ANY_SEED, Choice, Count, arguments
from holdfast._core.arithmetic import dense, ratio
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.summary import Summary, counted, percent, share, spread
from holdfast._core.uncertainty import UncertaintySet
from holdfast.evaluate.fitted import (
    asked,
    classes_of,
    labels_of,
    refuse_errors_of_categories,
    rows_for,
    stated_of,
)
from holdfast.features.carrying import extents
from holdfast.features.rows import as_given

METHODS = Choice("auto", "closed_form", "gradient", "queries")
SEARCH = {"method": METHODS, "n_starts": Count(), "max_iter": Count(), "random_state": ANY_SEED}
STEPS = 0.5 ** np.arange(8)
"""Lengths that a step of a search tries."""
SETTLED = 1e-4
"""Share of its lead by which a step must bring a row on, for another one to be made."""
HALVINGS = 30
"""Bisections on the way to a boundary between classes."""
ROUNDS = 3
"""Boundary points that are tried for a row."""
PROBES = 1 << 21
"""Entries of the rows that a model is asked about at a time."""
FARTHEST = 2.0 ** np.arange(1, 8)
"""Multiples of a set in which the class is looked for that the set itself does not reach."""
EXACT = "closed form: the support function of the set at differences of weights"
SEARCHES = {
    "gradient": "a search by gradients: Frank-Wolfe steps in the set, from {n} starts",
    "queries": "a search by queries: differences along the features, {n} random starts, and boundaries of classes",
}


@dataclass(frozen=True, kw_only=True)
class WorstCase(Summary):
    """Admissible rows that hurt a model."""

    X: Any
    """The attacked rows, (n_samples, n_features): an array, or a frame like the one given."""
    moves: Array
    """What was added to the rows, points of their sets, (n_samples, n_features)."""
    lead: Array
    """By how much the label's score leads the best other one at the attacked rows, (n_samples,); with `predict` alone 1 or -1.
    In units of the scores; of models known by `predict_proba` alone logarithms of ratios."""
    predicted: NDArray[Any]
    """What the model predicts there, (n_samples,)."""
    is_wrong: NDArray[np.bool_]
    """Whether that is not the label, (n_samples,), or would not be for another number within the spread of a SpreadImputer."""
    is_exact: bool
    """Whether nothing in the sets is worse; else it is only the worst that was found."""
    method: str
    """How the rows were found."""

    def _title(self) -> str:
        return f"WorstCase of {counted(len(self.predicted), 'row')}"

    def _lines(self) -> list[tuple[str, str]]:
        how = "exact: nothing in the sets is worse" if self.is_exact else "the worst that was found"
        return [("wrong", share(self.is_wrong)), ("lead", spread(self.lead)), ("it is", how), ("method", self.method)]


@dataclass(frozen=True, kw_only=True)
class RobustAccuracy(Summary):
    """The share of rows that are right wherever they are in their sets."""

    accuracy: float
    """Exact, but for rounding, where `is_exact`; else an *upper* bound: rows that the attack could not turn."""
    certified: float
    """A lower bound that is proved, NaN where none is known. Ties, and leads that rounding may account for, here or wherever
    the row goes, do not count."""
    plain: float
    """The share of rows that are right as they are."""
    is_exact: bool
    method: str

    def __float__(self) -> float:
        return self.accuracy

    def _lines(self) -> list[tuple[str, str]]:
        kind = "exact" if self.is_exact else "an upper bound"
        return [
            ("right as they are", percent(self.plain)),
            ("right wherever in their sets", f"{percent(self.accuracy)}, {kind}"),
            ("of which proved", percent(self.certified)),
            ("method", self.method),
        ]


@arguments(**SEARCH)
def worst_case(
    model: Any,
    X: Any,
    y: Any,
    uncertainty: UncertaintySet,
    *,
    method: str = "auto",
    n_starts: int = 5,
    max_iter: int = 50,
    random_state: Any = 0,
    **metadata: Any,
) -> WorstCase:
    r"""Return the admissible rows :math:`x_i + d_i`, :math:`d_i \in S_i`, at which the label's lead is smallest.

    =================  ================================================================================================
    ``"closed_form"``  linear scores: :math:`\min_l (f_y - f_l)(x) - h(w_l - w_y)`, attained at the maximizer of the support
                       function h of the set: exact
    ``"gradient"``     scores with known gradients (RBF kernels, random Fourier features): steps
                       :math:`d \leftarrow d + \eta (v - d)` towards the point v of the set that the gradient likes least
                       (Frank and Wolfe), against each other class, from the worst vertex at x and from random points
    ``"queries"``      any classifier, asked for `decision_function`, `predict_proba` or, failing these, `predict`: the same
                       steps with differences along the features in place of gradients; then, for rows that are still right,
                       a boundary of their class is found by bisection, its normal by random probes, and the set's farthest
                       point along it is tried
    ``"auto"``         the first of these that the model admits
    =================  ================================================================================================

    All points are made of the set's own maximizers and random points, so that none leaves it. A search leaves rows alone once
    they are wrong, so that their leads are not the smallest; and it may miss what hurts: whoever needs certainty uses a
    certificate. `FeatureDeletion` also allows parts of features to be deleted, and the worst row may be of that kind.

    Parameters
    ----------
    model : classifier
        Fitted.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        In the units that the model, or the pipeline, takes; so is the uncertainty. What comes back is dense.
    y : array-like of shape (n_samples,)
        The true classes.
    uncertainty : UncertaintySet
        A set, as for training: `Ball`, `Box`, `IntervalBox`, `Ellipsoid`, `ChanceConstraint`, `FeatureDeletion`, or a sum.
    method : {"auto", "closed_form", "gradient", "queries"}, default="auto"
    n_starts : int, default=5
        Starts of a search, the first of them not random.
    max_iter : int, default=50
        Steps from each.
    random_state : int or Generator, default=0
    **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
        Sets that differ by row, as for training; the set's radius multiplies them.

    Returns
    -------
    WorstCase

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Box
    >>> X, y = np.array([[-2.0, 1.0], [-1.0, 0.0], [1.0, 0.0], [2.0, -1.0]]), np.array([0, 0, 1, 1])
    >>> worst = worst_case(LogisticRegression().fit(X, y), X, y, Box(1.5))
    >>> worst.X
    array([[-0.5, -0.5], [ 0.5, -1.5], [-0.5,  1.5], [ 0.5,  0.5]])
    >>> worst.is_wrong, worst.is_exact
    (array([False,  True,  True, False]), True)
    """
    question = _asked(model, X, y, uncertainty, metadata, method, "worst_case")
    return _attacked(question, int(n_starts), int(max_iter), random_state)


def _attacked(question: _Question, n_starts: int, max_iter: int, random_state: Any) -> WorstCase:
    """Return the worst rows, or the worst that a search finds."""
    rows = dense(question.rows).astype(np.float64, copy=False)
    if question.is_closed:
        moves, leads = _closed_form(question, rows)
    else:
        moves, leads = _searched(question, rows, n_starts, max_iter, np.random.default_rng(random_state))
    attacked = as_given(question.X, rows + moves)
    predicted = np.asarray(question.model.predict(attacked))
    return WorstCase(
        X=attacked,
        moves=moves,
        lead=leads,
        predicted=predicted,
        # what an imputer fills in may be off too, which the rows do not show
        is_wrong=(predicted != question.labels) | (question.is_closed & (leads < 0)),
        is_exact=question.is_exact,
        method=EXACT if question.is_closed else SEARCHES[question.method].format(n=n_starts),
    )


@arguments(**SEARCH)
def robust_accuracy(
    model: Any,
    X: Any,
    y: Any,
    uncertainty: UncertaintySet,
    *,
    method: str = "auto",
    n_starts: int = 5,
    max_iter: int = 50,
    random_state: Any = 0,
    **metadata: Any,
) -> RobustAccuracy:
    """Return the share of rows that are right wherever they are in their sets.

    Linear models: exactly, but for rounding, and without forming a row. Others: an upper bound by the attack of
    :func:`worst_case`, and, for RBF kernels and random Fourier features, a lower bound that is proved, by what
    :func:`certified_radius` knows of each row, for the sets themselves.

    `FeatureDeletion` also allows parts of features to be deleted, so the accuracy may be lower than whole deletions would
    leave it; for linear models with equal values and a whole budget it is the same. To delete whole features only, use
    :func:`robustness_curve` with ``adversary="exact"``.

    Parameters
    ----------
    model, X, y, uncertainty, method, n_starts, max_iter, random_state, **metadata
        As for :func:`worst_case`. Linear models take large sparse X.

    Returns
    -------
    RobustAccuracy

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Ball
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> robust_accuracy(LogisticRegression().fit(X, y), X, y, Ball(1.5)).accuracy
    0.5
    """
    question = _asked(model, X, y, uncertainty, metadata, method, "robust_accuracy")
    plain = float(np.mean(np.asarray(model.predict(X)) == question.labels))
    if question.is_closed:
        share, certified = (float(np.mean(rows)) for rows in _exact_rows(question))
        return RobustAccuracy(
            accuracy=share, certified=certified, plain=plain, is_exact=question.is_exact, method=EXACT
        )
    attack = _attacked(question, int(n_starts), int(max_iter), random_state)
    return RobustAccuracy(
        accuracy=float(np.mean(~attack.is_wrong)),
        certified=_certified_share(question),
        plain=plain,
        is_exact=False,
        method=f"an upper bound by {attack.method}",
    )


@arguments()
def certified_accuracy(model: Any, X: Any, y: Any, uncertainty: UncertaintySet, **metadata: Any) -> float:
    """Return a share of rows that are proved to be right wherever they are in their sets: `certified` of `RobustAccuracy`.

    Parameters
    ----------
    model, X, y, uncertainty, **metadata
        As for :func:`worst_case`.

    Returns
    -------
    float
        NaN for models of which nothing is certain.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Ball
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> certified_accuracy(LogisticRegression().fit(X, y), X, y, Ball(0.5))
    1.0
    """
    return _certified_share(_asked(model, X, y, uncertainty, metadata, "auto", "certified_accuracy"))


@dataclass(frozen=True)
class _Question:
    """A model, its rows and labels, their sets, and how to attack them."""

    model: Any
    X: Any
    rows: Any
    labels: NDArray[Any]
    classes: NDArray[Any]
    codes: NDArray[np.intp]
    sets: RowSets
    """In the units of X."""
    view: View | None
    seen: RowSets | None
    """The sets of the rows that the view is of: carried, where curved steps come before its model."""
    method: str

    @property
    def is_closed(self) -> bool:
        """Whether the worst rows follow from linear scores."""
        return self.method == "closed_form"

    @property
    def is_exact(self) -> bool:
        """Whether nothing is worse."""
        return self.is_closed

    def duels(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_], Array, Array]]:
        """Yield rows of one class, which duels it wins at 0, its worst leads by linear scores, and how far off these may be."""
        assert self.view is not None
        assert self.seen is not None
        return self.view.worst_duels(self.seen, self.codes)


def _asked(
    model: Any, X: Any, y: Any, uncertainty: Any, metadata: Mapping[str, Any], method: str, call: str
) -> _Question:
    """Return a question after checking that it makes sense, with the method that answers it."""
    if not isinstance(uncertainty, UncertaintySet):
        raise ValueError(
            f"{call}(..., uncertainty={uncertainty!r:.80}): give a set, such as Ball(0.3), Box(), IntervalBox(), "
            "FeatureDeletion(2), or a sum of sets."
        )
    classes, rows = classes_of(model), rows_for(model, X)
    stated = stated_of(model, X, metadata, call, {"uncertainty": uncertainty})
    labels = labels_of(model, y, rows.shape[0], call)
    refuse_errors_of_categories(model, X, uncertainty, stated)
    sets, cloud = uncertainty.split(rows, stated)
    if cloud is not None or sets is None:
        raise ValueError(
            f"{call}(..., uncertainty={uncertainty!r}): Gaussian noise has no bounds, so that no row is the worst. State a "
            "set: ChanceConstraint(epsilon, 'gaussian') holds what happens with probability 1 - epsilon."
        )
    view = seen = None
    try:
        view, _ = asked(model, X)
        seen, _ = view.sets(uncertainty, stated)
    except NoCertificateError:
        if method in ("closed_form", "gradient"):
            raise
    straight = None if view is None or view.is_curved else view.model
    is_closed = straight is not None and straight.as_linear() is not None and straight.decision.is_by_duels
    if method == "closed_form" and not is_closed:
        raise NoCertificateError(
            f"{call}(method='closed_form'): known for linear scores of which the largest wins; {model!r:.80} has others. "
            "Use method='gradient'."
        )
    if method == "gradient" and straight is None:
        raise NoCertificateError(
            f"{call}(method='gradient'): no gradient is known of {model!r:.80}. Use method='queries'."
        )
    if method == "auto":
        method = "closed_form" if is_closed else "queries" if straight is None else "gradient"
    codes = np.searchsorted(classes, labels)
    return _Question(model, X, rows, labels, classes, codes, sets, view, seen, method)


def _closed_form(question: _Question, rows: Array) -> tuple[Array, Array]:
    """Return the worst moves of rows with linear scores, and their leads."""
    assert question.view is not None
    return question.view.worst_moves(question.sets, question.codes)


def _exact_rows(question: _Question) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows are right anywhere in their sets by linear scores, and which without doubt."""
    right, sure = np.zeros((2, len(question.codes)), dtype=bool)
    for some, wins, leads, doubts in question.duels():
        right[some] = np.all((leads > 0) | ((leads == 0) & wins), axis=1)
        sure[some] = np.all(leads > doubts, axis=1)
    return right, sure


def certified_rows(
    model: Any, X: Any, y: Any, uncertainty: Any, metadata: Mapping[str, Any], call: str
) -> NDArray[np.bool_]:
    """Return which rows a linear model gets right wherever in their sets they are, without doubt."""
    return _exact_rows(_asked(model, X, y, uncertainty, metadata, "closed_form", call))[1]


def _certified_share(question: _Question) -> float:
    """Return the share of rows that are proved to be right anywhere in their sets, or in boxes around them."""
    view = question.view
    if view is None or question.seen is None:
        return np.nan
    if question.is_closed:
        return float(np.mean(_exact_rows(question)[1]))
    codes, margin = view.margins(question.seen)
    return float(np.mean((margin > 0) & (question.classes[codes] == question.labels)))


class _Prey(ABC):
    """A model as a search sees it: leads of labels, and in which direction they fall."""

    n_targets = 1

    @abstractmethod
    def lead(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        """Return the leads of the labels of rows `which`, moved to Z."""

    @abstractmethod
    def slope(self, Z: Array, which: NDArray[np.intp], target: int) -> Array:
        """Return the gradients of these leads."""


class _Seen(_Prey):
    """A model whose gradients are known; each other class is a target."""

    def __init__(self, question: _Question):
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


class _Queried(_Prey):
    """A model that can be asked only; differences over the extents of the sets stand for gradients."""

    def __init__(self, question: _Question):
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
            # no farther than the sets reach, where a step may have no value
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
    """Return the function (Z, codes, which) that asks a model for leads of classes, by their numbers, at rows like those of X.

    `which` of them, where X holds more than numbers.

    Differences of scores; of models without scores logarithms of ratios of probabilities; else 1 or -1.
    """

    def votes(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return np.where(np.asarray(model.predict(as_given(X, Z, which))) == classes[codes], 1.0, -1.0)

    def scores(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return _leads(np.asarray(model.decision_function(as_given(X, Z, which))), codes)

    def odds(Z: Array, codes: NDArray[np.intp], which: Any = None) -> Array:
        return _leads(np.log(np.maximum(model.predict_proba(as_given(X, Z, which)), 1e-300)), codes)

    if hasattr(model, "decision_function"):
        shape = np.shape(model.decision_function(_safe_indexing(X, [0])))
        # contests of pairs of classes are no scores of classes
        is_scored = len(shape) == 1 or (
            shape[1] == len(classes) and getattr(model, "decision_function_shape", "ovr") == "ovr"
        )
        return scores if is_scored else votes
    return odds if hasattr(model, "predict_proba") else votes


def _leads(values: Array, codes: NDArray[np.intp]) -> Array:
    """Return the leads of classes, by one score or by one a class."""
    if values.ndim == 1:
        return np.where(codes == 1, values, -values)
    each = np.arange(len(values))
    own, others = values[each, codes], values.copy()
    others[each, codes] = -np.inf
    return np.asarray(own - others.max(axis=1))


def _searched(
    question: _Question, rows: Array, n_starts: int, max_iter: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the worst moves that a search finds, and their leads."""
    prey: _Prey = (_Queried if question.method == "queries" else _Seen)(question)
    everyone = np.arange(len(rows))
    owns = [question.sets.take(everyone[[i]]) for i in everyone]
    trail = _Trail(question, rows, prey)
    if question.sets.has_origin:
        trail.offer(everyone, np.zeros_like(rows))
    for start in range(n_starts):
        drawn = question.sets.sample(rng, 1, rows.shape[1])[0]
        for target in range(prey.n_targets):
            left = np.flatnonzero(~trail.is_wrong)
            if not len(left):
                return trail.moves, trail.leads
            if start:
                at = np.broadcast_to(drawn, rows.shape)[left].copy()
            else:
                at = _maximizers(owns, left, -prey.slope(rows[left], left, target))
            trail.offer(left, _descended(prey, rows, owns, left, at, target, max_iter))
    if question.method == "queries":
        # far outside of the sets a step may have no value (log), and the model refuses the row
        with suppress(ValueError), np.errstate(invalid="ignore"):
            _cross_boundaries(question, rows, owns, trail, rng)
    return trail.moves, trail.leads


class _Trail:
    """The worst moves so far: wrong ones before others, then those of the smallest lead."""

    def __init__(self, question: _Question, rows: Array, prey: _Prey):
        self.question, self.rows, self.prey = question, rows, prey
        self.moves, self.leads = np.zeros_like(rows), np.full(len(rows), np.inf)
        self.is_wrong = np.zeros(len(rows), dtype=bool)

    def wrong(self, Z: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether the model errs on rows that are moved to Z."""
        given = as_given(self.question.X, Z, which)
        return np.asarray(np.asarray(self.question.model.predict(given)) != self.question.labels[which])

    def offer(self, which: NDArray[np.intp], moves: Array) -> None:
        """Keep the moves of rows `which` that are worse than those so far."""
        Z = self.rows[which] + moves
        leads = np.min([self.prey.lead(Z, which, target) for target in range(self.prey.n_targets)], axis=0)
        wrong = self.wrong(Z, which)
        is_worse = (wrong & ~self.is_wrong[which]) | ((wrong == self.is_wrong[which]) & (leads < self.leads[which]))
        kept = which[is_worse]
        self.moves[kept], self.leads[kept], self.is_wrong[kept] = moves[is_worse], leads[is_worse], wrong[is_worse]


def _maximizers(owns: list[RowSets], which: NDArray[np.intp], directions: Array) -> Array:
    """Return the farthest point of each row's set in a direction of its own."""
    return np.array([owns[i].maximizer(v)[0] for i, v in zip(which, directions, strict=True)])


def _descended(
    prey: _Prey,
    rows: Array,
    owns: list[RowSets],
    which: NDArray[np.intp],
    moves: Array,
    target: int,
    max_iter: int,
) -> Array:
    """Return moves of rows `which` after steps towards points of their sets along which leads fall."""
    leads, active = prey.lead(rows[which] + moves, which, target), np.arange(len(which))
    for _ in range(max_iter):
        own = which[active]
        steps = _maximizers(owns, own, -prey.slope(rows[own] + moves[active], own, target)) - moves[active]
        trials = (rows[own] + moves[active] + STEPS[:, None, None] * steps).reshape(-1, rows.shape[1])
        found = prey.lead(trials, np.tile(own, len(STEPS)), target).reshape(len(STEPS), -1)
        best = np.minimum(found.min(axis=0), leads[active])
        moves[active] += np.where(best < leads[active], STEPS[found.argmin(axis=0)], 0.0)[:, None] * steps
        is_settled = best >= leads[active] - SETTLED * np.abs(leads[active])
        leads[active] = best
        active = active[~is_settled]
        if not len(active):
            break
    return moves


def _cross_boundaries(
    question: _Question, rows: Array, owns: list[RowSets], trail: _Trail, rng: np.random.Generator
) -> None:
    """Offer the farthest points of the sets along normals of boundaries that are found by predictions alone."""
    predicted = np.asarray(question.model.predict(question.X))
    reach = np.maximum(*extents(question.sets, rows.shape))
    unit = reach.mean(axis=0)
    scaled = ratio(rows, np.where(unit > 0, unit, np.inf))
    beyond = np.full(rows.shape, np.nan)
    for i in np.flatnonzero(~trail.is_wrong):
        others = np.flatnonzero(predicted != question.labels[i])
        if len(others):
            beyond[i] = rows[others[np.argmin(np.square(scaled[others] - scaled[i]).sum(axis=1))]]
    for _ in range(ROUNDS):
        left = np.flatnonzero(~trail.is_wrong & ~np.isnan(beyond[:, 0]))
        if not len(left):
            return
        edge = _edges(trail, rows[left], beyond[left], left)
        normals = np.array([_normal(trail, z, reach[i], int(i), rng) for z, i in zip(edge, left, strict=True)])
        moves = _maximizers(owns, left, normals)
        trail.offer(left, moves)
        beyond[left] = np.nan
        for factor in FARTHEST[::-1]:
            Z = rows[left] + factor * moves
            found = trail.wrong(Z, left)
            beyond[left[found]] = Z[found]


def _edges(trail: _Trail, inside: Array, outside: Array, which: NDArray[np.intp]) -> Array:
    """Return points just beyond the boundary of a class on the way from right rows to wrong ones."""
    low, high = np.zeros(len(which)), np.ones(len(which))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        wrong = trail.wrong(inside + middle[:, None] * (outside - inside), which)
        low, high = np.where(wrong, low, middle), np.where(wrong, middle, high)
    return np.asarray(inside + high[:, None] * (outside - inside))


def _normal(trail: _Trail, edge: Array, reach: Array, row: int, rng: np.random.Generator) -> Array:
    r"""Return the direction into the other class at a boundary point.

    Of probes :math:`z + \epsilon\, r \circ u`, u normal, those beyond the boundary have on average
    :math:`u \propto r \circ` normal (Chen, Jordan and Wainwright's HopSkipJump).
    """
    u = rng.normal(size=(100 + 10 * len(edge), len(edge)))
    wrong = trail.wrong(edge + 0.05 * reach * u, np.full(len(u), row)).astype(np.float64)
    return ratio((wrong - wrong.mean()) @ u, np.where(reach > 0, reach, np.inf))
