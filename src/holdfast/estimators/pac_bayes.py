"""Bounds on the error of voters on new rows, from their error on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from holdfast._core.allowed import Number, Several, arguments, short
from holdfast._core.caller import warn_caller
from holdfast._core.summary import Summary, digits, percent
from holdfast.estimators.deletion_bounds import kl_inverse
from holdfast.estimators.laplace_boost import LaplaceBoostClassifier

NAME = "pac_bayes_bound"


@dataclass(frozen=True)
class PacBayesBound(Summary):
    """Bounds on the average share of voters that err on a new row, which is the error of the Gibbs classifier.

    Attributes
    ----------
    empirical : float
        The exact average share on the given rows.
    divergence : float
        KL of the posterior from the prior, in nats.
    bound : float
        An upper bound with probability 1 - delta over the rows, for the best of the values of c.
    kl_bound : float
        An upper bound by another theorem, which needs no c. Each of the two bounds holds with probability 1 - delta by
        itself: choose one in advance, or halve delta and take the smaller one.
    majority_bound : float
        Twice `bound`, at most 1: an upper bound for the error of the majority vote, which `predict` returns.
    n_samples : int
    delta : float
    """

    empirical: float
    divergence: float
    bound: float
    kl_bound: float
    majority_bound: float
    n_samples: int
    delta: float

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("voters wrong on these rows", percent(self.empirical)),
            ("on new rows at most", percent(self.bound)),
            ("by the kl form", percent(self.kl_bound)),
            ("majority wrong at most", percent(self.majority_bound)),
            ("divergence", digits(self.divergence)),
        ]

    def _notes(self) -> list[str]:
        return [f"With probability {1 - self.delta:g} over {self.n_samples} independent rows."]


@arguments(c=Number(strictly=True) | Several(Number(strictly=True)))
def pac_bayes_bound(
    model: Any, X: Any, y: Any, delta: float = 0.05, *, c: Any = 1.0, X_std: Any = None
) -> PacBayesBound:
    r"""Bound the error of a fitted `LaplaceBoostClassifier` on new rows from its training rows.

    Let S be the sum over the m rows of the share of voters that err, which is computed exactly. With probability
    :math:`1 - \delta` over the rows, for all posteriors Q at once,

    .. math:: \mathbb E_Q\,\Pr(\text{error}) \le
              \frac{1 - \exp\bigl(-\bigl(c S + \mathrm{KL}(Q \| P) + \ln(G/\delta)\bigr)/m\bigr)}{1 - e^{-c}}

    for each of G values of c stated in advance. With the same probability it is at most
    :math:`\sup\{p : \mathrm{kl}(S/m, p) \le (\mathrm{KL} + \ln(2 \sqrt m / \delta))/m\}`. The posterior may be found in any
    way: with sample weights, with any c in training, by a rough fit.

    **State before you see the data** the learners, the prior and the c of the bound. A model whose thresholds or scaling come
    from the rows is refused: declare `feature_range`. Other conditions cannot be checked and are up to you: do not use these
    rows to scale or select features (in a pipeline), or to choose a prior, ranges or given learners. The rows must be
    independent, and each counts once; they may be the training rows. Bounds mean little unless there are many times more rows
    than learners.

    Parameters
    ----------
    model : LaplaceBoostClassifier
        A model fitted to two classes.
    X, y
        Rows and labels.
    delta : float, default=0.05
        Probability, over the draw of the rows, that a bound is wrong.
    c : float or list of float, default=1.0
        The c of the bound. The best c is large if the error is small and the divergence large.
    X_std : array-like of shape (n_samples, n_features), default=None
        The noise of the rows, for a model that was fitted with noise.

    Returns
    -------
    PacBayesBound

    Examples
    --------
    >>> from holdfast import LaplaceBoostClassifier
    >>> from holdfast.estimators import pac_bayes_bound
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [1.0, 1.0, 0.5] > 0.2 * rng.normal(size=5000)
    >>> model = LaplaceBoostClassifier("tail", feature_range=(-1, 1)).fit(X, y)
    >>> found = pac_bayes_bound(model, X, y, 0.05)
    >>> round(found.empirical, 2), round(found.kl_bound, 2)
    (0.09, 0.11)
    """
    if not isinstance(model, LaplaceBoostClassifier):
        hint = " In a Pipeline it is the last step, model[-1]; transform the rows by the other steps first." * hasattr(
            model, "steps"
        )
        raise ValueError(f"{NAME}(model={short(model):.80}, ...): give a fitted LaplaceBoostClassifier.{hint}")
    check_is_fitted(model)
    if not (isinstance(delta, Real) and 0 < delta < 1) or isinstance(delta, bool):
        raise ValueError(f"{NAME}(..., delta={delta!r}): must be a number between 0 and 1.")
    if len(model.classes_) != 2:
        raise ValueError(f"{NAME}(model, ...): the model has {len(model.classes_)} classes; use it with two.")
    if model.learners_.reason:
        raise ValueError(
            f"{NAME}(model, ...): {model.learners_.reason}, and no bound is known for learners that depend on the rows. "
            "State feature_range=(low, high), known before the data, and fit again."
        )
    if X_std is None and model.row_noise_:
        warn_caller(
            f"{NAME}: the model was fitted with X_std but gets none here, so rows count as exact. Pass X_std.",
            UserWarning,
        )
        X_std = np.zeros(np.shape(X))
    errors = model.gibbs_errors(X, y, X_std=X_std)
    m, S, divergence = len(errors), float(errors.sum()), model.divergence_
    grid = np.atleast_1d(np.asarray(c, dtype=np.float64))
    exponents = (grid * S + divergence + np.log(len(grid) / delta)) / m
    bound = float(min(1.0, np.min(np.expm1(-exponents) / np.expm1(-grid))))
    kl_bound = kl_inverse(S / m, (divergence + np.log(2 * np.sqrt(m) / delta)) / m)
    return PacBayesBound(S / m, divergence, bound, kl_bound, min(1.0, 2 * bound), m, float(delta))
