"""A bound on the error on new rows with deleted features, from the losses on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import rel_entr
from sklearn.utils.validation import check_array

from holdfast._core.allowed import Choice, arguments, as_numbers, short
from holdfast._core.arithmetic import dense
from holdfast._core.labels import check_features
from holdfast._core.loss import Array
from holdfast._core.summary import Summary, digits, percent
from holdfast._core.tolerances import ROUNDING
from holdfast.estimators.inputs import number
from holdfast.uncertainty.checks import nonnegative, per_feature
from holdfast.uncertainty.deletion_loss import DeletionLoss

NAME = "generalization_bound"
VARIANTS = ("tight", "published")
BLOCK_ENTRIES = 1 << 20
"""How many matrix entries are sorted at a time."""


@dataclass(frozen=True)
class GeneralizationBound(Summary):
    """A bound on the probability of an error under deletion.

    Attributes
    ----------
    empirical : float
        The share of rows with a gamma-loss of 1.
    complexity : float
        B.
    bound : float
        The largest p with kl(empirical, p) <= B: with probability 1 - delta over the rows, the error is no larger.
    relaxed : float
        empirical + sqrt(2 empirical B) + 2 B, at most 1: a simpler and larger bound.
    """

    empirical: float
    complexity: float
    bound: float
    relaxed: float

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("rows with a loss", percent(self.empirical)),
            ("wrong at most", percent(self.bound)),
            ("by the simpler formula", percent(self.relaxed)),
            ("complexity", digits(self.complexity)),
        ]

    def _notes(self) -> list[str]:
        return [
            "Of new rows, whatever is deleted of them within the budget, with probability 1 - delta over the rows given."
        ]


def kl_inverse(q: float, B: float) -> float:
    r"""Return the largest p with :math:`q \ln(q/p) + (1-q) \ln((1-q)/(1-p)) \le B`, by bisection, rounded up.

    Examples
    --------
    >>> kl_inverse(0.0, 0.1), bool(kl_inverse(0.1, 0.02) < 0.1 + np.sqrt(2 * 0.1 * 0.02) + 2 * 0.02)
    (0.0951626, True)
    """
    if q == 0:
        return float(-np.expm1(-B))
    low, high = q, 1.0
    while (middle := 0.5 * (low + high)) not in (low, high):
        if rel_entr(q, middle) + rel_entr(1 - q, 1 - middle) <= B:
            low = middle
        else:
            high = middle
    return high


@arguments(variant=Choice(*VARIANTS))
def generalization_bound(
    model: Any,
    X: Any,
    y: Any,
    *,
    budget: float,
    margin: float,
    bound: float,
    values: Any = None,
    delta: float = 0.05,
    variant: str = "tight",
    intercept_bound: float | None = None,
    feature_bound: Any = 1.0,
) -> GeneralizationBound:
    r"""Bound the probability that some deletion of features worth up to N makes a linear classifier err on a new row.

    Theorem 2 of Dekel & Shamir (2008), corrected. Let P be the value of all features minus N. A row has the loss
    :math:`\ell_\gamma = 1` if some deletion leaves a set J of features with :math:`y f(x_J) \le \gamma V(J) / P`, else
    0. Features may be deleted in part, which never makes the loss smaller. Let :math:`\hat q` be its mean over m
    independent rows. With probability :math:`1 - \delta`, for all weights :math:`|w_j| \le C` at once,

    .. math:: \Pr(\text{some deletion makes } y f(x) \le 0) \le \sup\{p : \mathrm{kl}(\hat q, p) \le B\}, \qquad
       B = \frac1m \Bigl(\sum_j \ln \frac{2C}{\mathrm{len}_j} + \ln \frac{2 \sqrt m}{\delta}\Bigr) ,

    where :math:`\mathrm{len}_j` is the length of :math:`[w_j - r_j, w_j + r_j] \cap [-C, C]`, and
    :math:`r_j = \gamma v_j / (2 P s_j)` for features with :math:`|x_j| \le s_j`. An intercept :math:`|b| \le C_b` is
    one more such interval. The intercept, and features that cost nothing to delete, take a share of the margin: if
    there are k of these and n other features, they have :math:`r_b = \gamma / (2 (n + k))` and
    :math:`r_j = \gamma / (2 (n + k) s_j)`, and :math:`r_j` of the other features is multiplied by n / (n + k).

    **Choose C, N, v, s and gamma before seeing the data.** If you try several gamma, divide delta by their number.
    Train with margin 2 gamma and certify with gamma: a row that meets its training margin, or misses it by less than
    gamma, then has no loss here.

    Parameters
    ----------
    model : estimator or array-like of shape (n_features,)
        A fitted linear model of two classes; or the weights of one without intercept, for labels -1 and 1.
    X, y
        Rows and labels; they may be the training rows.
    budget : float
        N, the largest total value of deleted features.
    margin : float
        Gamma, in the units of the scores.
    bound : float
        C, the bound on the size of each weight.
    values : array-like of shape (n_features,), default=None
        v, the value of each feature; None means 1 each.
    delta : float, default=0.05
        The largest probability, over the draw of the rows, that the bound is wrong.
    variant : {"tight", "published"}, default="tight"
        "published": :math:`B = (\ln(m/\delta) + \sum_j \max(0, \ln(4 P C s_j/(\gamma v_j)))) / (m - 1)`, which is never
        smaller; only for positive values and no intercept. The maximum with 0 is needed, but missing in print.
    intercept_bound : float, default=None
        :math:`C_b`, the bound on the size of the intercept. None: models have no intercept, and that of `model` must be
        0.
    feature_bound : float or array-like of shape (n_features,), default=1.0
        s, the bound on the size of each feature.

    Returns
    -------
    GeneralizationBound

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-1, 1], size=5000)
    >>> X = np.clip(y[:, None] * 0.5 + rng.uniform(-0.7, 0.7, size=(5000, 6)), -1, 1)
    >>> found = generalization_bound(np.ones(6), X, y, budget=1, margin=0.5, bound=1.0)
    >>> found.empirical < found.bound < found.relaxed
    True
    """
    check_features(X, {"values": values, "feature_bound": feature_bound}, model)
    w, b, X, signs = _binary(model, X, y)
    m, n = X.shape
    loss = DeletionLoss.of(values, budget, margin, "relaxed", n, NAME)
    C = number(bound, f"{NAME}(..., bound", strictly=True)
    delta = number(delta, f"{NAME}(..., delta", strictly=True)
    if delta >= 1:
        raise ValueError(f"{NAME}(..., delta={delta!r}): must lie between 0 and 1.")
    s = np.broadcast_to(
        nonnegative(
            per_feature(feature_bound, n, f"{NAME}(..., feature_bound=...)", "feature_bound"), NAME, "feature_bound"
        ),
        n,
    )
    C_b = None if intercept_bound is None else number(intercept_bound, f"{NAME}(..., intercept_bound", strictly=True)
    _check_class(w, b, C, C_b, X, s)
    widths, centres, sides = _boxes(loss, w, b, s, C, C_b)
    if variant == "published":
        if C_b is not None or np.any(loss.worth == 0):
            raise ValueError(
                f"{NAME}(..., variant='published'): for positive values and no intercept only. Use 'tight'."
            )
        logs = np.maximum(np.log(2 * sides / widths), 0.0)
        B = float((np.log(m / delta) + logs.sum()) / (m - 1)) if m > 1 else np.inf
    else:
        lengths = np.minimum(sides, centres + widths) - np.maximum(-sides, centres - widths)
        B = float((np.sum(np.log(2 * sides / lengths)) + np.log(2 * np.sqrt(m) / delta)) / m)
    q = _gamma_loss(loss, w, b, X, signs)
    return GeneralizationBound(q, B, kl_inverse(q, B), float(min(q + np.sqrt(2 * q * B) + 2 * B, 1.0)))


def _binary(model: Any, X: Any, y: Any) -> tuple[Array, float, Any, Array]:
    """Return weights, intercept, rows and labels of -1 and 1."""
    if hasattr(model, "coef_"):
        if len(model.classes_) != 2:
            raise ValueError(
                f"{NAME}({type(model).__name__}(...), ...): has {len(model.classes_)} classes; it is for two."
            )
        w, b, classes = dense(model.coef_).ravel(), float(np.ravel(model.intercept_)[0]), model.classes_
    else:
        try:
            w, b, classes = as_numbers(model), 0.0, np.array([-1, 1])
        except TypeError:
            raise ValueError(
                f"{NAME}(model={short(model):.80}, ...): give a fitted linear model, or weights."
            ) from None
    X, y = check_array(X, accept_sparse="csr", dtype=np.float64), np.asarray(y)
    if y.shape != (X.shape[0],):
        raise ValueError(
            f"{NAME}(model, X, y, ...): y has shape {y.shape}; give one label for each of {X.shape[0]} rows."
        )
    if w.shape != (X.shape[1],):
        raise ValueError(f"{NAME}(model, X, ...): the weights have shape {w.shape}, X has {X.shape[1]} features.")
    if len(unknown := np.setdiff1d(y, classes)):
        raise ValueError(
            f"{NAME}(model, X, y, ...): y contains {unknown.tolist()!r}; the classes are {classes.tolist()!r}."
        )
    return w, b, X, np.where(y == classes[1], 1.0, -1.0)


def _check_class(w: Array, b: float, C: float, C_b: float | None, X: Any, s: Array) -> None:
    """Raise if the theorem does not apply to the model or the rows."""
    if np.any(np.abs(w) > C):
        raise ValueError(
            f"{NAME}(..., bound={C:g}): a weight is {np.max(np.abs(w)):g}. State the bound of the training."
        )
    if abs(b) > (0.0 if C_b is None else C_b):
        raise ValueError(
            f"{NAME}(..., intercept_bound={C_b!r}): the intercept is {b:g}. State a bound on it that was known before the data."
        )
    largest = np.ravel(dense(abs(X).max(axis=0)))
    if np.any(beyond := largest > s):
        j = int(np.argmax(beyond))
        raise ValueError(
            f"{NAME}: feature {j} reaches {largest[j]:g}, feature_bound is {s[j]:g}. Scale the features, or state a "
            "feature_bound that was known before the data."
        )


def _boxes(loss: DeletionLoss, w: Array, b: float, s: Array, C: float, C_b: float | None) -> tuple[Array, Array, Array]:
    """Return half-widths, centres and bounds of the parameters' intervals; the intercept, if any, is last."""
    v, n_all = loss.worth, len(w) + (C_b is not None)
    free = loss.margin / (2 * n_all)
    with np.errstate(divide="ignore"):  # s = 0: for a feature that is always 0 any weight will do
        widths = np.where(v > 0, 0.5 * loss.rate * v * np.count_nonzero(v) / n_all, free) / s
    if C_b is None:
        return widths, w, np.full(len(w), C)
    return np.append(widths, free), np.append(w, b), np.append(np.full(len(w), C), C_b)


def _gamma_loss(loss: DeletionLoss, w: Array, b: float, X: Any, signs: Array) -> float:
    """Return the share of rows whose deficit is 0 or more, or may be so by rounding."""
    count, step = 0, max(BLOCK_ENTRIES // len(w), 1)
    for start in range(0, len(signs), step):
        rows = slice(start, start + step)
        margins = signs[rows, None] * dense(X[rows]) * w
        deficit, _ = loss.deficits(margins, signs[rows] * b)
        size = loss.largest_margin + abs(b) + np.abs(margins).sum(axis=1)
        count += int(np.sum(deficit >= -ROUNDING * size))
    return count / len(signs)
