"""Attacks: admissible rows at which a model does worst; exact for linear scores, found by a search for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import ANY_SEED, Choice, Count, arguments
from holdfast._core.arithmetic import dense
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, counted, percent, share, spread
from holdfast._core.uncertainty import UncertaintySet
from holdfast.evaluate.attack_questions import Question, question_of
from holdfast.evaluate.searches import worst_found
from holdfast.features.rows import as_given

METHODS = Choice("auto", "closed_form", "gradient", "queries")
SEARCH = {"method": METHODS, "n_starts": Count(), "max_iter": Count(), "random_state": ANY_SEED}
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
    """What was added to the rows: points of their sets, (n_samples, n_features)."""
    lead: Array
    """The label's score minus the best other score, at the attacked rows, (n_samples,). For models with `predict_proba`
    only, logarithms of ratios of probabilities; for models with `predict` only, 1 or -1."""
    predicted: NDArray[Any]
    """The predicted classes of the attacked rows, (n_samples,)."""
    is_wrong: NDArray[np.bool_]
    """Whether the predicted class is not the label, (n_samples,), or is another for some fill-in within the spread of a
    SpreadImputer."""
    is_exact: bool
    """Whether no point of the sets is worse; otherwise the rows are only the worst that were found."""
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
    """Exact up to rounding if `is_exact`; otherwise an *upper* bound: the share of rows that no attack turned."""
    certified: float
    """A proved lower bound, NaN if none is known. Ties do not count, nor do leads that rounding could explain, at the
    row or anywhere in its set."""
    plain: float
    """The share of rows that are right without a perturbation."""
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
    ``"gradient"``     scores with known gradients (RBF kernels, random Fourier features): Frank-Wolfe steps
                       :math:`d \leftarrow d + \eta (v - d)` towards the point v of the set that lowers the lead fastest
                       to first order, against each other class, from the worst vertex at x and from random points
    ``"queries"``      any classifier, by its `decision_function`, `predict_proba` or, if it has neither, `predict`:
                       the same steps with differences along the features instead of gradients. Then, for rows that
                       are still right, bisection finds a boundary of their class, random probes find its normal, and
                       the set's farthest point along the normal is tried
    ``"auto"``         the first of these that works for the model
    =================  ================================================================================================

    All points tried are mixtures of maximizers and random points of the set, so none leaves it. A search stops for a
    row once it is wrong, so its lead need not be the smallest. A search may also miss a point that would be wrong: for
    proofs use a certificate. `FeatureDeletion` also allows features to be deleted in part, and the worst row may be of
    that kind.

    Parameters
    ----------
    model : classifier
        Fitted.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        In the units that the model, or the pipeline, takes; the uncertainty is in the same units. The attacked rows are
        dense.
    y : array-like of shape (n_samples,)
        The true classes.
    uncertainty : UncertaintySet
        A set, as for training: `Ball`, `Box`, `IntervalBox`, `Ellipsoid`, `ChanceConstraint`, `FeatureDeletion`, or a sum.
    method : {"auto", "closed_form", "gradient", "queries"}, default="auto"
    n_starts : int, default=5
        Starts of a search; the first one is not random.
    max_iter : int, default=50
        Steps from each start.
    random_state : int or Generator, default=0
    **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
        The sizes of sets that differ by row, as for training; the set's radius multiplies them.

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
    question = question_of(model, X, y, uncertainty, metadata, method, "worst_case")
    return _attacked(question, int(n_starts), int(max_iter), random_state)


def _attacked(question: Question, n_starts: int, max_iter: int, random_state: Any) -> WorstCase:
    """Return the worst rows, exact or as a search finds them."""
    rows = dense(question.rows).astype(np.float64, copy=False)
    if question.is_closed:
        moves, leads = question.worst_moves()
    else:
        moves, leads = worst_found(question, rows, n_starts, max_iter, np.random.default_rng(random_state))
    attacked = as_given(question.X, rows + moves)
    predicted = np.asarray(question.model.predict(attacked))
    return WorstCase(
        X=attacked,
        moves=moves,
        lead=leads,
        predicted=predicted,
        # fill-ins of an imputer may be wrong too: exact leads allow for that, predictions at the attacked rows do not
        is_wrong=(predicted != question.labels) | (question.is_closed & (leads < 0)),
        is_exact=question.is_closed,
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

    For linear models it is exact up to rounding, and computed without forming attacked rows. For other models it is an
    upper bound by the attack of :func:`worst_case`. RBF kernels and random Fourier features also get a proved lower
    bound, from the certificates of each row's set.

    `FeatureDeletion` also allows features to be deleted in part, so the accuracy may be lower than under whole
    deletions. For linear models with equal values and an integer budget both are the same. To delete whole features
    only, use :func:`robustness_curve` with ``adversary="exact"``.

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
    question = question_of(model, X, y, uncertainty, metadata, method, "robust_accuracy")
    plain = float(np.mean(np.asarray(model.predict(X)) == question.labels))
    if question.is_closed:
        share, certified = (float(np.mean(rows)) for rows in question.right_rows())
        return RobustAccuracy(
            accuracy=share, certified=certified, plain=plain, is_exact=question.is_closed, method=EXACT
        )
    attack = _attacked(question, int(n_starts), int(max_iter), random_state)
    return RobustAccuracy(
        accuracy=float(np.mean(~attack.is_wrong)),
        certified=question.certified_share(),
        plain=plain,
        is_exact=False,
        method=f"an upper bound by {attack.method}",
    )


@arguments()
def certified_accuracy(model: Any, X: Any, y: Any, uncertainty: UncertaintySet, **metadata: Any) -> float:
    """Return the share of rows that are proved right wherever they are in their sets: `certified` of `RobustAccuracy`.

    Parameters
    ----------
    model, X, y, uncertainty, **metadata
        As for :func:`worst_case`.

    Returns
    -------
    float
        NaN for models without a known certificate.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Ball
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> certified_accuracy(LogisticRegression().fit(X, y), X, y, Ball(0.5))
    1.0
    """
    return question_of(model, X, y, uncertainty, metadata, "auto", "certified_accuracy").certified_share()
