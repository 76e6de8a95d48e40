"""The loss that errors of a model's weights can cause, and pruning of models that were trained for such errors."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any, Unpack

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.allowed import Choice, arguments, short
from holdfast._core.arithmetic import dense
from holdfast._core.labels import check_columns
from holdfast._core.loss import Array
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.solver import silent
from holdfast._core.summary import Summary, counted, digits, percent, some
from holdfast._problems.labelled_rows import LabelledRows
from holdfast.estimators.inputs import one_blas_thread, row_weights
from holdfast.estimators.paths import grid, warn_of_gaps
from holdfast.estimators.robust_linear import RobustLinearClassifier
from holdfast.uncertainty import WeightError
from holdfast.uncertainty.weight_error import COMPONENTWISE

MOST_FEATURES = 12
"""The most features for which all vertices of the weights' errors are visited."""


@arguments(common=Choice("exact", "bound"))
@takes_metadata
def worst_weight_loss(
    model: RobustLinearClassifier,
    X: Any,
    y: Any,
    *,
    weight_error: WeightError | None = None,
    common: str = "exact",
    sample_weight: Any = None,
    **metadata: Unpack[SetsByRow],
) -> float:
    r"""Return the largest loss of a fitted model over errors of its weights and the rows' sets, without the penalty.

    ``common="exact"``: the largest loss over an error dw that all rows share, with each row at its worst in its set,

    .. math:: \max_{dw} \sum_i c_i\, \psi\bigl(1 - y_i((w + dw)^\top x_i + b) + h_i(-y_i (w + dw))\bigr).

    The sum is convex in dw, so the maximum is at one of :math:`2^n` vertices, all of which are visited; finding it is
    NP-hard. ``common="bound"``: each row has its own worst dw. This is an upper bound, and the loss that
    :class:`WeightError` trains for (exactly, unless ``joint="bound"``).

    Parameters
    ----------
    model : RobustLinearClassifier
        Fitted.
    X, y, sample_weight
        Rows of all classes, as in `fit`; they need not be those of the fit.
    weight_error : WeightError, default=None
        None: the model's own.
    common : {"exact", "bound"}, default="exact"
        "exact" is for up to 12 features.
    **metadata
        The sizes of sets that differ by row, as in `fit`.

    Returns
    -------
    float
        With more than two classes, the sum over the classes, each with its own dw.

    Examples
    --------
    >>> from holdfast import RobustLinearClassifier, WeightError
    >>> X, y = [[1.0, 3.0], [2.0, -1.0], [-1.0, 0.5], [0.2, -4.0]], [1, 1, 0, 0]
    >>> model = RobustLinearClassifier(loss="logistic", weight_error=WeightError(0.2)).fit(X, y)
    >>> exact, bound = (worst_weight_loss(model, X, y, common=common) for common in ("exact", "bound"))
    >>> exact < bound < model.objective_
    True
    """
    call = "worst_weight_loss"
    _check_takes_errors(model, call)
    check_is_fitted(model)
    error = model.weight_error if weight_error is None else weight_error
    if not isinstance(error, WeightError):
        raise ValueError(
            f"{call}(..., weight_error={error!r:.80}): the model has no weight_error; give WeightError(delta)."
        )
    if model.multiclass == "joint" and len(model.classes_) > 2:
        raise ValueError(
            f"{call}: the model was trained for all classes at once (multiclass='joint'); give one of 'ovr'."
        )
    if model.row_uncertainty_ and not metadata:
        raise ValueError(
            f"{call}: this model was fitted with the uncertainty of each row, so it needs theirs here too. Pass "
            f"{' or '.join(model._stated_set().metadata)} (zeros for exact rows)."
        )
    n_features = model.coef_.shape[1]
    if common == "exact" and n_features > MOST_FEATURES:
        raise ValueError(
            f"{call}(..., common='exact'): {n_features} features make 2**{n_features} vertices; it is for up to "
            f"{MOST_FEATURES}. Use common='bound'."
        )
    own = error if common == "bound" else None
    plain = clone(model).set_params(penalty=None, kappa=1.0, weight_error=own, ambiguity=None)
    check_columns(X, metadata, model)
    X = validate_data(model, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
    codes = model._codes(y, X.shape[0], call)
    weights = row_weights(sample_weight, model.class_weight, X, codes, model.classes_, call)
    plain.check_parameters(call)
    rows = LabelledRows(X, codes, weights, weights, model.classes_)
    problems, _ = plain._risk().problems(rows, metadata)
    signs = [np.zeros(n_features)] if own else [np.array(s) for s in product((-1.0, 1.0), repeat=n_features)]
    with one_blas_thread:
        return float(
            sum(
                max(problem.value_and_gradient(problem.join(w + s * error.reach(w), float(b)))[0] for s in signs)
                for problem, w, b in zip(problems, model.coef_, model.intercept_, strict=True)
            )
        )


def _check_takes_errors(model: Any, call: str, name: str = "model") -> None:
    if not isinstance(model, RobustLinearClassifier) or "weight_error" not in model.get_params(deep=False):
        raise ValueError(f"{call}({name}={short(model):.80}, ...): give a RobustLinearClassifier.")


@arguments()
def prune(model: Any, delta: float | WeightError | None = None) -> Any:
    r"""Return a copy of a fitted linear model in which weights no larger than the error of the weights are 0.

    These are the weights with :math:`|w_j| \le \delta`, or :math:`\le \delta |w|_1` with ``relative=True``. If the
    model was trained for such errors, the pruned model's objective is at most `objective_` of the fit, which the copy
    keeps with all other attributes. With ``kappa=1``, or for losses of slope at most 1, the same holds for its loss on
    the training rows wherever they are in their sets.

    Parameters
    ----------
    model : estimator
        Fitted, with `coef_`: a linear model of holdfast or scikit-learn.
    delta : float or WeightError, default=None
        A number is an error in the units of the weights. None: the `weight_error` that `model` was trained for.

    Returns
    -------
    estimator
        With the attribute `pruned_`, boolean and of the shape of `coef_`: the weights that became 0.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0, 0.1, 2.0], [1.0, 0.0, 3.0], [0.1, 0.2, 7.0], [1.0, 0.1, 8.0]], [0, 0, 1, 1])
    >>> prune(model, 0.1).pruned_
    array([[ True,  True, False]])
    """
    if not isinstance(model, type) and hasattr(model, "fit"):
        check_is_fitted(model, msg="prune(model=%(name)s(...)): is not fitted yet. Call fit first.")
    if isinstance(model, type) or not hasattr(model, "coef_"):
        raise ValueError(f"prune(model={short(model):.80}): has no coef_. Give a fitted linear model.")
    error = getattr(model, "weight_error", None) if delta is None else delta
    error = WeightError(error) if isinstance(error, Real) else error
    if not isinstance(error, WeightError):
        why = "the model was trained for no weight_error" if delta is None else "that is no error of weights"
        raise ValueError(
            f"prune({type(model).__name__}(...), delta={delta!r:.80}): say what to prune; {why}. Give a number >= 0, or "
            "WeightError(delta, relative=True)."
        )
    if error.relative == COMPONENTWISE:
        raise ValueError(
            f"prune(..., {error!r}): a share of each weight itself makes none of them 0. Give another error."
        )
    coef = dense(model.coef_)
    pruned = (np.abs(coef) <= error.reach(coef)) & (coef != 0)
    out = deepcopy(model)
    out.coef_ = np.where(pruned, np.zeros((), dtype=coef.dtype), coef)
    out.pruned_ = pruned
    return out


@dataclass
class PruningPath(Summary):
    """Fits for smaller and smaller errors of the weights, each pruned by the error that it was trained for.

    Attributes
    ----------
    deltas : ndarray of shape (n_deltas,)
        From the largest to the smallest.
    coefs : ndarray of shape (n_deltas, 1 or n_classes, n_features)
        After pruning.
    intercepts : ndarray of shape (n_deltas, 1 or n_classes)
    n_nonzero : ndarray of shape (n_deltas,)
        The number of weights that are not 0 after pruning.
    objectives, lower_bounds, gaps : ndarray of shape (n_deltas,)
        Before pruning, as `objective_`, `lower_bound_` and `gap_` of :class:`RobustLinearClassifier`.
    certified_losses : ndarray of shape (n_deltas,)
        The largest training loss over all admissible errors of weights and rows: :func:`worst_weight_loss` with
        ``common="bound"``.
    losses : ndarray of shape (n_deltas,)
        The largest training loss after pruning, over all admissible rows: never above `certified_losses`.
    scores : ndarray of shape (n_deltas,)
        The accuracy after pruning, on the validation rows if there are some, else on the training rows.
    """

    deltas: Array
    coefs: Array
    intercepts: Array
    n_nonzero: Array
    objectives: Array
    lower_bounds: Array
    gaps: Array
    certified_losses: Array
    losses: Array
    scores: Array

    def _title(self) -> str:
        return f"PruningPath of {counted(len(self.deltas), 'fit')}"

    def _columns(self) -> list[str]:
        return ["error of the weights", "weights left", "loss", "certified loss", "accuracy"]

    def _lines(self) -> list[list[str]]:
        return [
            [
                digits(self.deltas[k]),
                digits(self.n_nonzero[k]),
                digits(self.losses[k]),
                digits(self.certified_losses[k]),
                percent(self.scores[k]),
            ]
            for k in some(len(self.deltas))
        ]

    def _notes(self) -> list[str]:
        return [f"Certified to a gap of {digits(np.max(self.gaps))} at most."]


@arguments()
@takes_metadata
def pruning_path(
    estimator: RobustLinearClassifier,
    X: Any,
    y: Any,
    deltas: int | Sequence[float] | Array = 10,
    *,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight: Any = None,
    **metadata: Unpack[SetsByRow],
) -> PruningPath:
    """Fit a classifier for many errors of the weights, prune each fit by its error, and measure the losses.

    Parameters
    ----------
    estimator : RobustLinearClassifier
        It is cloned. If it has a `weight_error`, `relative` and `joint` are taken from that.
    X, y, sample_weight
        As for its `fit`.
    **metadata
    deltas : int or array-like of floats, default=10
        The errors, in any order; or their number: then they go from the largest weight of the fit without errors (from
        its share in :math:`|w|_1` with ``relative=True``) down to a thousandth of it.
    X_val, y_val : array-like, default=None
        Validation rows and labels, for `scores`.

    Returns
    -------
    PruningPath

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> shares = WeightError(0.0, relative=True)
    >>> path = pruning_path(RobustLinearClassifier(weight_error=shares), scale(X), y, [0.03, 0.01, 0.0])
    >>> path.n_nonzero, bool(np.all(path.losses <= path.certified_losses))
    (array([ 3,  7, 30]), True)
    """
    _check_takes_errors(estimator, "pruning_path", "estimator")
    if (X_val is None) != (y_val is None):
        raise ValueError("pruning_path(..., X_val, y_val): give both or neither.")
    estimator.check_parameters("pruning_path(RobustLinearClassifier")
    model = clone(estimator).set_params(warm_start=True)
    shape = WeightError(0.0) if model.weight_error is None else model.weight_error
    if shape.relative == COMPONENTWISE:
        raise ValueError(f"pruning_path(..., {shape!r}): a share of each weight itself makes none of them 0.")

    def fit(delta: float) -> WeightError:
        error = WeightError(delta, shape.relative, joint=shape.joint)
        task = model.set_params(weight_error=error)._task(X, y, sample_weight, metadata)
        model._complete(task, model._solved(task, silent))
        return error

    def largest() -> float:
        fit(0.0)
        sizes = np.sum(np.abs(model.coef_), axis=1, keepdims=True) if shape.relative else 1.0
        return float(np.max(np.abs(model.coef_) / np.where(sizes == 0, 1.0, sizes))) or 1.0

    errors = grid(deltas, largest, "pruning_path(deltas", "delta", "deltas")
    found = []
    data = {"sample_weight": sample_weight, "common": "bound", **metadata}
    for delta in errors:
        error = fit(float(delta))
        thin = prune(model, error)
        certified = worst_weight_loss(model, X, y, **data)
        loss = worst_weight_loss(thin, X, y, weight_error=WeightError(0.0), **data)
        score = thin.score(X, y) if X_val is None else thin.score(X_val, y_val)
        proof = (model.objective_, model.lower_bound_, model.gap_)
        found.append((thin.coef_, thin.intercept_, np.count_nonzero(thin.coef_), *proof, certified, loss, score))
    path = PruningPath(errors, *(np.array(column) for column in zip(*found, strict=True)))
    warn_of_gaps(path.gaps, float(model.tol))
    return path
