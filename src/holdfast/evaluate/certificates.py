"""Certificates that single predictions cannot change: within a radius, in intervals, under deletions of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._certificates.exact import exact_radius
from holdfast._certificates.views import View
from holdfast._core.allowed import NORM, Choice, Switch, arguments
from holdfast._core.arithmetic import rescaled
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.labels import check_features
from holdfast._core.rounding import Array
from holdfast.evaluate.fitted import asked, linear_only, scale_of, settled, stated_of, straight_only
from holdfast.evaluate.results import CertifiedDeletions, CertifiedInterval, CertifiedRadius
from holdfast.evaluate.smoothing import smoothed
from holdfast.uncertainty import IntervalBox
from holdfast.uncertainty.checks import feature_costs
from holdfast.uncertainty.deletions import DELETION_ROUNDINGS, lead_survives

AS_COMPUTED = "of the model as computed, on rows of the same type as X; all rounding is accounted for"
INSTEAD = (
    "Ask for what can be carried through it: certified_interval(model, X, X_lower=..., X_upper=...), or certify of an "
    "UncertainPipeline; or smooth the model, certified_radius(..., method='smoothing')."
)
CARRIED = "of the model as computed; rounding is accounted for, but not that of steps that are no affine maps"


@arguments(method=Choice("auto", "smoothing"), exact=Switch())
def certified_radius(
    model: Any,
    X: Any,
    *,
    norm: Any = 2,
    weights: Any = None,
    method: str = "auto",
    exact: bool = False,
    **smoothing: Any,
) -> CertifiedRadius:
    r"""Return how far each row may be moved, in any direction, without its prediction changing.

    Every row x + d with :math:`\|d / weights\|_p \le` radius gets the class of x. With leads :math:`f_k - f_l` of the
    predicted class k over the others the radius is

    ==========================  =======================================================================================
    linear models               :math:`\min_l (f_k - f_l) / \|(w_k - w_l) \cdot weights\|_q`, q dual to p: tight, up to
                                rounding
    RBF kernels, Nystroem       the larger of two bounds: by the gradient and the norm of :math:`f_k - f_l` in the
                                kernel's space; and, for narrow kernels, by intervals of the kernel's values. Sound, not
                                tight
    random Fourier features     the largest of three bounds: by tangents and a bound on curvature; by arcs of each
                                angle; by a Lipschitz constant. Sound, not tight
    ``method="smoothing"``      any classifier, turned into another one by noise: :func:`smoothed`
    ==========================  =======================================================================================

    The radii of kernels and Fourier features are found by a search that proves every radius it returns.

    SVC decides by contests of pairs of classes. Its radius is the smallest over the winner's contests if the winner
    wins all of them, else the smallest over all contests.

    Rounding errors of scores, in this function, in the model and at any moved row, are bounded and subtracted. A tie is
    not certified.

    Parameters
    ----------
    model : classifier
        Fitted: a classifier of holdfast, a linear one of scikit-learn, SVC or NuSVC with a linear or RBF kernel, alone or in a
        Pipeline after affine steps (scalers, PCA, selectors, ...), imputers and encoders of categories, in a ColumnTransformer
        too; linear ones also after RBFSampler or Nystroem.
    X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        In the units that the model, or the pipeline, takes. Categories do not change, and missing entries stay missing.
    norm : {1, 2, "inf"}, default=2
    weights : array-like of shape (n_features,), default=None
        Units of the perturbations of each feature, >= 0: with standard errors as weights, the radius counts standard
        errors. 0 for features that do not change. By default 1 for each feature.
    method : {"auto", "smoothing"}, default="auto"
    exact : bool, default=False
        For linear models only: compute in exact fractions with the model's float64 numbers, so that there is no
        rounding. The radius is the largest float64 that is proved. Slow.
    **smoothing : sigma, n_draws, alpha, random_state
        For ``method="smoothing"``.

    Returns
    -------
    CertifiedRadius
        With `radius`, `columns` (the columns that may change), `predicted`, `method` and `assumption`.

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
                f"{call}(norm={norm!r}, exact={exact!r}, method='smoothing'): smoothing is for norm=2 alone, with "
                "exact=False."
            )
        return smoothed(model, X, weights=weights, **smoothing)
    if smoothing:
        raise TypeError(f"{call}(..., {next(iter(smoothing))}=...): goes with method='smoothing'.")
    view, classes = asked(model, X)
    straight_only(view, call, INSTEAD)
    check_features(X, {"weights": weights}, model)
    units, columns = _units(view, weights, call)
    moved = f"no x + d with ||d / weights||_{norm:g} <= radius has another class"
    if view.n_features > len(columns):
        moved += f", d being 0 but in {len(columns)} of {view.n_features} columns (see `columns`)"
    if view.has_missing:
        moved += ", missing entries staying missing"
    if exact:
        if view.has_missing:
            raise NoCertificateError(f"{call}(exact=True): not available if steps fill in missing entries.")
        codes, radius = exact_radius(linear_only(view, f"{call}(exact=True)"), view.rows, norm, units)
        return CertifiedRadius(
            predicted=settled(model, view, classes, codes, radius > 0),
            radius=radius,
            columns=columns,
            method=f"{view.model.method}, by fractions",
            assumption=f"{moved} without rounding",
        )
    seen, rows = view.model, view.rows
    reaches: dict[bytes, tuple[Array, float]] = {}
    codes, radius = np.zeros(rows.shape[0], dtype=np.intp), np.zeros(rows.shape[0])
    for part, block, found in view.lead_blocks():
        codes[part], is_sure = found.codes, np.all(found.leads > 0, axis=1)
        which = np.arange(part.start, part.start + len(is_sure))
        for few, weights in view.patterns(which):
            if (key := weights.tobytes()) not in reaches:
                moving = units * view.spread(weights, 0.0)
                reaches[key] = seen.reach(norm, moving, rows.dtype), seen.limit(norm, moving, rows.dtype)
            reach, limit = reaches[key]
            some = found.take(few)
            # a bound that holds for all rows is cheap; from it starts the search for a larger radius around each row
            first = seen.radii(np.maximum(some.leads, 0.0), seen.decision.of_rows(reach, some.codes)).min(axis=1)
            first = np.where(is_sure[few], np.minimum(first, limit), 0.0)
            radius[which[few]] = seen.refined(block[few], some, first, norm, units * view.spread(weights, 0.0))
    return CertifiedRadius(
        predicted=settled(model, view, classes, codes, radius > 0),
        radius=radius,
        columns=columns,
        method=seen.method,
        assumption=f"{moved}, {AS_COMPUTED}",
    )


def _names(view: View) -> list[Any]:
    """Return the names of the columns of X, or their numbers."""
    return list(view.X.columns) if hasattr(view.X, "columns") else list(range(view.n_features))


def _units(view: View, weights: Any, call: str) -> tuple[Array, tuple[Any, ...]]:
    """Return the units of perturbations of all numbers in a view's rows, and the columns of X whose unit is above 0."""
    units = np.array(scale_of(weights, view.n_features, call))
    names = _names(view)
    wrong = np.flatnonzero((units > 0) & view.fixed)
    if weights is not None and len(wrong):
        raise ValueError(
            f"{call}(..., weights=...): column {names[wrong[0]]!r} is no number that could change a little, so "
            "its weight must be 0. Leave weights out for 1 in the other columns."
        )
    units[wrong] = 0.0
    return view.spread(units, 0.0), tuple(names[j] for j in np.flatnonzero(units))


@arguments()
def certified_interval(model: Any, X: Any, *, X_lower: Any, X_upper: Any) -> CertifiedInterval:
    r"""Return whether each row keeps its class wherever its entries are in their intervals.

    For linear models the certificate is :math:`\min_l (f_k - f_l) - h(w_l - w_k) > 0`, with the support function h of
    the interval around the row; it is tight, up to rounding. For RBF kernels and random Fourier features it is by
    bounds as for :func:`certified_radius`.

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
    >>> certified_interval(model, X, X_lower=X - 0.5, X_upper=X + [[0.1, 2.0]]).certified
    array([ True,  True,  True,  True])
    """
    call = "certified_interval"
    view, classes = asked(model, X)
    ends = stated_of(model, X, {"X_lower": X_lower, "X_upper": X_upper}, call)
    codes, margin = view.margins_within(IntervalBox(), ends)
    return CertifiedInterval(
        predicted=settled(model, view, classes, codes, margin > 0),
        certified=margin > 0,
        margin=margin,
        method=view.model.method,
        assumption=f"no row within X_lower and X_upper has another class, {CARRIED if view.is_curved else AS_COMPUTED}",
    )


@arguments()
def certified_deletions(model: Any, X: Any, *, values: Any = None) -> CertifiedDeletions:
    r"""Return how many features of each row, or how much of their value, may be set to 0 without changing its class.

    With unit values this is the number of features, any of them, and it is exact up to rounding: some deletion of one
    more feature brings another class level. With values that differ, no deletion worth less than the result changes the
    class, and some deletions that are worth more may not either; see
    :func:`holdfast.uncertainty.deletions.deletions_survived`.

    Parameters
    ----------
    model, X
        As for :func:`certified_radius`; linear models only.
    values : array-like of shape (n_features,), default=None
        The value of deleting each feature, >= 0; by default 1 for each; a feature of value inf cannot be deleted.

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
    view, classes = asked(model, X)
    straight_only(view, call, INSTEAD)
    linear = linear_only(view, call)
    check_features(X, {"values": values}, model)
    costs = feature_costs(values, view.n_features, f"{call}(..., values=...)")
    costs = view.spread(np.where(view.fixed, np.inf, costs), np.inf)
    rows = view.rows
    codes, survived = np.zeros(rows.shape[0], dtype=np.intp), np.full(rows.shape[0], np.inf)
    for part, block, found in view.lead_blocks(DELETION_ROUNDINGS):
        codes[part], lasting = found.codes, np.full(len(found.codes), np.inf)
        for some, C, signs in found.groups(linear.decision):
            numbers = block[some].astype(np.float64, copy=False)
            least = np.full(len(signs), np.inf)
            for lead, sign, v in zip(found.leads[some].T, signs.T, C @ linear.coef, strict=True):
                if len(rivals := np.flatnonzero(lead < np.inf)):
                    few = slice(None) if len(rivals) == len(lead) else rivals
                    gains = rescaled(numbers[few], sign[few], v)
                    least[few] = np.minimum(least[few], lead_survives(gains, lead[few], costs))
            lasting[some] = least
        survived[part] = lasting
    return CertifiedDeletions(
        predicted=settled(model, view, classes, codes, survived > 0),
        survived=survived,
        method="linear: the largest gains of deletions against the lead",
        columns=tuple(np.array(_names(view), dtype=object)[np.isfinite(costs[: view.n_features])]),
        assumption="no deletion, setting to 0, of features in `columns` worth up to `survived` changes the class"
        + (", missing entries staying missing" if view.has_missing else "")
        + f", {AS_COMPUTED}",
    )
