"""Certificates of single predictions: how far, within which intervals and without which features they cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from holdfast._core.allowed import NORM, Choice, Switch, arguments
from holdfast._core.labels import check_columns, check_features
from holdfast.evaluate.decisions import Leads
from holdfast.evaluate.exact import exact_radius
from holdfast.evaluate.fitted import classes_of, model_of, rows_for, scale_of
from holdfast.evaluate.models import LinearModel, Model
from holdfast.evaluate.results import CertifiedDeletions, CertifiedInterval, CertifiedRadius
from holdfast.evaluate.smoothing import smoothed
from holdfast.evaluate.steps import NoCertificateError
from holdfast.uncertainty.checks import numbers
from holdfast.uncertainty.clouds import rescaled
from holdfast.uncertainty.deletions import DELETION_ROUNDINGS, lead_survives
from holdfast.uncertainty.interval_box import row_offsets
from holdfast.uncertainty.knapsack import feature_costs

BLOCK = 1 << 18
"""Entries that are looked at at a time: what is made of them stays in cache."""
CHECKED = 1000
"""Rows, evenly spread, on which what is seen of a model is compared with its predictions; all would cost as much as scores."""
BOTH_ENDS = 2
"""Errors of a score that a lead is made smaller by: one of the score here, one of the model's own wherever the row goes."""
SAME = "of the model as computed, on rows of the same type as X; all rounding is accounted for"


@arguments(method=Choice("auto", "smoothing"), exact=Switch())
def certified_radius(
    model: Any,
    X: Any,
    norm: Any = 2,
    weights: Any = None,
    *,
    method: str = "auto",
    exact: bool = False,
    **smoothing: Any,
) -> CertifiedRadius:
    r"""Return how far each row may be moved, in any direction, without its prediction changing.

    Every row x + d with :math:`\|d / weights\|_p \le` radius gets the class of x. With leads :math:`f_k - f_l` of the
    predicted class k over the others the radius is

    ==========================  =======================================================================================
    linear models               :math:`\min_l (f_k - f_l) / \|(w_k - w_l) \cdot weights\|_q`, q dual to p: nothing larger is
                                certain, but for rounding
    RBF kernels                 the r at which :math:`\|f_k - f_l\|_H \sqrt{2 - 2 e^{-\gamma r^2}}` reaches the lead: sound,
                                not tight
    random Fourier features     lead over a Lipschitz constant: sound, not tight
    ``method="smoothing"``      any classifier, made into another one by noise: :func:`smoothed`
    ==========================  =======================================================================================

    SVC's contests of pairs: the smallest over those of the winner where it wins them all, else over all.

    What rounding may do to scores, here, in the model and wherever the row goes, is bounded and taken off. A tie is not
    certified.

    Parameters
    ----------
    model : classifier
        Fitted: a classifier of holdfast, a linear one of scikit-learn, SVC or NuSVC with a linear or RBF kernel, alone or in a
        Pipeline after affine steps (scalers, PCA, TruncatedSVD, selectors); linear ones also after RBFSampler or Nystroem.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        In the units that the model, or the pipeline, takes.
    norm : {1, 2, "inf"}, default=2
    weights : array-like of shape (n_features,), default=None
        Units of the perturbations, >= 0: with the features' standard errors the radius is a number of them. 0 for features that
        stay as they are. 1 each by default.
    method : {"auto", "smoothing"}, default="auto"
    exact : bool, default=False
        Linear models only: certify, by fractions, what the model's float64 numbers give without any rounding. The radius is
        the largest float64 that is proved. Slow.
    **smoothing : sigma, n_draws, alpha, random_state
        For ``method="smoothing"``.

    Returns
    -------
    CertifiedRadius
        With `radius`, `predicted`, `method` and `assumption`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> certified_radius(model, X[:3], norm="inf", weights=X.std(axis=0)).radius.round(2)
    array([1.13, 0.57, 0.86])
    """
    call = "certified_radius"
    norm = NORM.checked(norm, f"{call}(norm")
    if method == "smoothing":
        if norm != 2 or exact:
            raise ValueError(
                f"{call}(norm={norm!r}, exact={exact!r}, method='smoothing'): smoothing knows norm=2 alone."
            )
        return smoothed(model, X, weights=weights, **smoothing)
    if smoothing:
        raise TypeError(f"{call}(..., {next(iter(smoothing))}=...): goes with method='smoothing'.")
    view, rows, classes = asked(model, X)
    check_features(X, {"weights": weights}, model)
    units = scale_of(weights, view.n_features, call)
    assumption = f"no x + d with ||d / weights||_{norm:g} <= radius has another class, {SAME}"
    if exact:
        codes, radius = exact_radius(linear_only(view, f"{call}(exact=True)"), rows, norm, units)
        return CertifiedRadius(
            predicted=settled(model, X, rows, classes, codes, radius > 0),
            radius=radius,
            method=f"{view.method}, by fractions",
            assumption=f"no x + d with ||d / weights||_{norm:g} <= radius has another class without rounding",
        )
    reach, limit = view.reach(norm, units, rows.dtype), view.limit(norm, units, rows.dtype)
    codes, radius = np.zeros(rows.shape[0], dtype=np.intp), np.zeros(rows.shape[0])
    for part, _, (own, leads, _) in lead_blocks(view, rows):
        is_sure = np.all(leads > 0, axis=1)
        found = view.radii(leads, view.decision.of_rows(reach, own)).min(axis=1)
        codes[part], radius[part] = own, np.where(is_sure, np.minimum(found, limit), 0.0)
    predicted = settled(model, X, rows, classes, codes, radius > 0)
    return CertifiedRadius(predicted=predicted, radius=radius, method=view.method, assumption=assumption)


@arguments()
def certified_interval(model: Any, X: Any, X_lower: Any, X_upper: Any) -> CertifiedInterval:
    r"""Return whether each row keeps its class wherever its entries are in their intervals.

    Linear models: exactly, but for rounding, :math:`\min_l (f_k - f_l) - h(w_l - w_k) > 0` with the support function h of the
    interval around the row. RBF kernels and random Fourier features: by a bound as for :func:`certified_radius`.

    Parameters
    ----------
    model, X
        As for :func:`certified_radius`.
    X_lower, X_upper : {array-like, sparse matrix} of shape (n_samples, n_features)
        The intervals, X_lower <= X <= X_upper.

    Returns
    -------
    CertifiedInterval
        With `certified`, `margin`, `predicted`, `method` and `assumption`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0], [4.0, 3.0]]), [0, 0, 1, 1]
    >>> model = LogisticRegression().fit(X, y)
    >>> certified_interval(model, X, X - 0.5, X + [[0.1, 2.0]]).certified
    array([ True,  True,  True,  True])
    """
    view, rows, classes = asked(model, X)
    check_columns(X, {"X_lower": X_lower, "X_upper": X_upper}, model)
    ends = {name: _end(value, rows.shape, name) for name, value in (("X_lower", X_lower), ("X_upper", X_upper))}
    codes, margin = np.zeros(rows.shape[0], dtype=np.intp), np.zeros(rows.shape[0])
    for part, block, (own, leads, is_turned) in lead_blocks(view, rows):
        codes[part] = own
        falls = np.zeros(leads.shape)
        down, up = row_offsets(block, {name: end[part] for name, end in ends.items()}, part.start)
        down = -down
        for some, C in view.decision.groups(own):
            turned = is_turned if len(is_turned) == 1 else is_turned[some]
            falls[some] = view.falls(down[some], up[some], C, block.dtype)
            if np.any(turned):
                falls[some] = np.where(turned, view.falls(up[some], down[some], C, block.dtype), falls[some])
        margin[part] = (leads - falls).min(axis=1)
    return CertifiedInterval(
        predicted=settled(model, X, rows, classes, codes, margin > 0),
        certified=margin > 0,
        margin=margin,
        method=view.method,
        assumption=f"no row within X_lower and X_upper has another class, {SAME}",
    )


def _end(value: Any, shape: tuple[int, int], name: str) -> Any:
    """Return one end of the intervals, a number for each entry of X."""
    call = f"certified_interval(..., {name}=...)"
    end = numbers(value, call, name)
    if end.shape != shape:
        raise ValueError(f"{call}: {name} has shape {end.shape}; give one number for each entry of X, {shape}.")
    return end


@arguments()
def certified_deletions(model: Any, X: Any, values: Any = None) -> CertifiedDeletions:
    r"""Return how much of each row may be deleted, set to 0, without its prediction changing, whatever it is.

    With unit values the number of features, exactly but for rounding: some deletion of one more makes another class draw level.
    With values that differ, all deletions worth less leave the class, and some that are worth more may do so too; see
    :func:`holdfast.uncertainty.deletions.deletions_survived`.

    Parameters
    ----------
    model, X
        As for :func:`certified_radius`; linear models only.
    values : array-like of shape (n_features,), default=None
        What deleting each feature is worth, >= 0; 1 each by default; inf cannot be deleted.

    Returns
    -------
    CertifiedDeletions
        With `survived`, `predicted`, `method` and `assumption`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [3.0, 2.0, 2.0], [4.0, 3.0, 3.0]]), [0, 0, 1, 1]
    >>> certified_deletions(LogisticRegression(C=100).fit(X, y), X).survived
    array([inf, inf,  0.,  1.])
    """
    call = "certified_deletions"
    view, rows, classes = asked(model, X)
    linear = linear_only(view, call)
    check_features(X, {"values": values}, model)
    costs = feature_costs(values, view.n_features, f"{call}(..., values=...)")
    codes, survived = np.zeros(rows.shape[0], dtype=np.intp), np.full(rows.shape[0], np.inf)
    for part, block, (own, leads, is_turned) in lead_blocks(linear, rows, DELETION_ROUNDINGS):
        codes[part] = own
        found, signs = np.full(leads.shape, np.inf), np.where(np.broadcast_to(is_turned, leads.shape), -1.0, 1.0)
        for some, C in linear.decision.groups(own):
            for rival, v in enumerate(C @ linear.coef):
                rivals = np.flatnonzero(leads[some, rival] < np.inf)
                chosen = some[rivals]
                gains = rescaled(block[chosen].astype(np.float64), signs[chosen, rival], v)
                found[chosen, rival] = lead_survives(gains, leads[chosen, rival], costs)
        survived[part] = found.min(axis=1)
    is_sure = survived > 0
    return CertifiedDeletions(
        predicted=settled(model, X, rows, classes, codes, is_sure),
        survived=survived,
        method="linear: the largest gains of deletions against the lead",
        assumption=f"no deletion of features worth up to `survived` changes the class, {SAME}",
    )


def lead_blocks(view: Model, rows: Any, errors: int = BOTH_ENDS) -> Iterator[tuple[slice, Any, Leads]]:
    """Yield parts of the rows, which they are, and their leads less so many errors; what is no number is no lead."""
    size = max(1, BLOCK // max(view.n_entries(rows), 1))
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        block = rows[part]
        with np.errstate(over="ignore", invalid="ignore"):
            scores, error = view.scores(block)
            found = view.decision.leads(scores, errors * error)
        yield part, block, found._replace(leads=np.where(np.isnan(found.leads), -np.inf, found.leads))


def asked(model: Any, X: Any) -> tuple[Model, Any, NDArray[Any]]:
    """Return what certificates see of a model, its rows, and its classes."""
    classes = classes_of(model)
    view, rows = model_of(model), rows_for(model, X)
    check_view(model, X, view, rows, classes)
    return view, rows, classes


def check_view(model: Any, X: Any, view: Model, rows: Any, classes: NDArray[Any]) -> None:
    """Raise NoCertificateError where a model predicts something else than what is seen of it says without doubt."""
    some = np.arange(0, rows.shape[0], -(-rows.shape[0] // CHECKED))
    said = own_predictions(model, X, rows, some)
    agrees = said.shape == some.shape
    for part, _, (own, leads, _) in lead_blocks(view, rows[some]) if agrees else ():
        agrees &= bool(np.all((said[part] == classes[own]) | ~np.all(leads > 0, axis=1)))
    if not agrees:
        raise NoCertificateError(
            f"{model!r:.120}: its predict says something else than its weights, so that nothing is known of it: a predict of "
            "its own, several labels a row, or weights that were changed. Smoothing takes any classifier of one label a row: "
            "certified_radius(..., method='smoothing')."
        )


def own_predictions(model: Any, X: Any, rows: Any, which: NDArray[np.intp]) -> NDArray[Any]:
    """Return what a model predicts for some of the rows of X."""
    return np.asarray(model.predict(_safe_indexing(X if hasattr(X, "columns") else rows, which)))


def linear_only(view: Model, call: str) -> LinearModel:
    """Return what is seen of a linear model, an error for others."""
    linear = view.as_linear()
    if linear is None:
        raise NoCertificateError(f"{call}: for linear models only; this one is certified by '{view.method}'.")
    return linear


def settled(
    model: Any, X: Any, rows: Any, classes: NDArray[Any], codes: NDArray[np.intp], is_sure: NDArray[np.bool_]
) -> NDArray[Any]:
    """Return the classes; those that rounding or a tie leaves open are the model's own."""
    predicted = classes[codes]
    if len(unsure := np.flatnonzero(~is_sure)):
        predicted[unsure] = own_predictions(model, X, rows, unsure)
    return predicted
