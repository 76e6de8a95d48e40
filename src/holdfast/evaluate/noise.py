"""How likely noise is to change predictions: by formula for linear models, by draws for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from holdfast._certificates.views import View
from holdfast._core.allowed import NOTHING, SEED, Choice, Count, Instance, Number, arguments
from holdfast._core.arithmetic import dense
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast.estimators.flips import loses_to_any, loses_to_some
from holdfast.evaluate.fitted import (
    asked,
    classes_of,
    refuse_errors_of_categories,
    refuse_spread,
    rows_for,
    stated_of,
    told,
)
from holdfast.evaluate.results import FlipProbability
from holdfast.features.rows import as_given, n_columns
from holdfast.uncertainty import GaussianNoise

METHODS = ("auto", "bound", "draws")
NOISE_ARGUMENT = Number() | Instance(GaussianNoise, "GaussianNoise(...)") | NOTHING
BLOCK_ENTRIES = 1 << 20
"""Entries of noisy rows that are predicted at a time."""


@arguments(method=Choice(*METHODS), n_draws=Count(), random_state=SEED, noise=NOISE_ARGUMENT)
def flip_probability(
    model: Any,
    X: Any,
    noise: Any = None,
    *,
    X_std: Any = None,
    X_cov: Any = None,
    X_factor: Any = None,
    method: str = "auto",
    n_draws: int = 1000,
    random_state: Any = None,
) -> FlipProbability:
    r"""Return the probability that Gaussian noise on each row changes its prediction.

    For linear models of two classes it is exactly :math:`\Phi(-|f(x)| / t)`, with the score's standard deviation
    :math:`t = \sqrt{w^\top C w}`. With three classes it is exact too, by the normal law of the predicted class's two
    leads. With more classes it is estimated from `n_draws` draws of the leads; the standard error is small where
    changes are rare. For other models it is the share of `n_draws` noisy copies whose class changes.

    Parameters
    ----------
    model : classifier
        Fitted, any with `predict`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        In the units that the model, or the pipeline, takes; so is the noise.
    noise : float or GaussianNoise, default=None
        The noise that all rows share.
    X_std, X_cov, X_factor : array-like (X_std may be sparse), default=None
        The noise of each row, as for :class:`GaussianNoise`.
    method : {"auto", "bound", "draws"}, default="auto"
        "bound": for linear models of several classes, the *upper bound* :math:`\sum_l \Phi(-(f_k - f_l) / t_{kl})` over
        the rivals l of the predicted class k, at most 1. "auto" also gives it if pairs of classes vote for the class,
        or if the covariance of the noise is only partly known. "draws": noisy copies of the rows, for linear models
        too.
    n_draws : int, default=1000
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    FlipProbability
        With `probability`, `standard_error`, `predicted`, `method` and `assumption`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> flip_probability(LogisticRegression().fit(X, y), X, X_std=np.ones((4, 1))).probability.round(3)
    array([0.023, 0.159, 0.159, 0.023])
    """
    call = "flip_probability"
    own = {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor}
    classes, rows = classes_of(model), rows_for(model, X)
    own = stated_of(model, X, own, call, {"noise": noise})
    stated = noise if isinstance(noise, GaussianNoise) else GaussianNoise(std=noise)
    refuse_errors_of_categories(model, X, stated, own)
    sets = stated.at(rows, own)
    view = linear_or_none(model, X) if method != "draws" else None
    if method == "bound" and view is None:
        raise ValueError(
            f"{call}(method='bound'): no bound is known for {type(model).__name__} on these rows, only for models that are "
            "linear in them. Use method='auto'."
        )
    seed = int(check_random_state(random_state).randint(1 << 31))
    if view is not None:
        is_bound = _is_bound(view, stated, method)
        codes, probability, error = _by_normal_law(view, sets, None if is_bound else (int(n_draws), seed))
        is_drawn = bool(np.any(error))
        return FlipProbability(
            predicted=classes[codes],
            probability=probability,
            standard_error=error,
            method="linear: " + (f"{n_draws} draws of the scores" if is_drawn else "normal law of the scores"),
            assumption=_assumption(stated, is_bound, is_drawn),
        )
    refuse_spread(model, X, call)
    if stated.unknown is not None:
        raise ValueError(
            f"{call}(noise={noise!r}): a covariance that is unknown cannot be drawn from, and for this model no "
            "formula is known. State a covariance, as GaussianNoise(std=...)."
        )
    predicted, share = _by_draws(model, X, rows, sets, int(n_draws), np.random.default_rng(seed))
    return FlipProbability(
        predicted=predicted,
        probability=share,
        standard_error=np.sqrt(share * (1 - share) / n_draws),
        method=f"{n_draws} draws",
        assumption="Gaussian noise as stated; an estimate",
    )


def linear_or_none(model: Any, X: Any) -> View | None:
    """Return the view of a model that is linear in X, None for other models."""
    try:
        view, _ = asked(model, X)
    except NoCertificateError:
        return None
    return None if view.model.as_linear() is None or view.is_curved else view


def _is_bound(view: View, stated: GaussianNoise, method: str) -> bool:
    """Return whether the result is an upper bound: as asked for, or as nothing better is known."""
    is_joint = view.model.decision.is_by_duels and stated.unknown is None
    return view.model.decision.n_scores > 1 and (method == "bound" or not is_joint)


def _assumption(stated: GaussianNoise, is_bound: bool, is_drawn: bool) -> str:
    """Return, in words, which noise a probability is for, and whether it is exact, a bound or an estimate."""
    law = (
        "Gaussian noise as stated"
        if stated.unknown is None
        else "the worst Gaussian noise that agrees with what is stated"
    )
    return f"{law}; " + ("an upper bound, the sum over rivals" if is_bound else "an estimate" if is_drawn else "exact")


def score_deviations(view: View, noise: RowSets, v: Array, which: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return standard deviations of the scores with weights v at rows `which`: by noise, and by errors of fill-ins."""
    t = np.zeros(len(which))
    for few, weights in view.patterns(which):
        t[few] = noise.take(which[few]).support(weights * v[: view.n_features])
    own = np.zeros(len(which)) if view.std is None else np.square(view.std[which]) @ np.square(v[view.n_features :])
    for one in view.corners:
        own = own + one.take(which).variances(v[one.columns])
    return t, np.sqrt(own)


def _by_normal_law(view: View, sets: RowSets, draws: tuple[int, int] | None) -> tuple[NDArray[np.intp], Array, Array]:
    """Return predicted codes, probabilities and standard errors; `draws` is (number, seed), None for the bound."""
    n = view.rows.shape[0]
    codes, (probability, error) = np.zeros(n, dtype=np.intp), np.zeros((2, n))
    for part, _, (own, leads, _) in view.lead_blocks(0):
        which = np.arange(n)[part]
        for some, C in view.model.decision.groups(own):
            V, rows = C @ view.linear.coef, which[some]

            def deviation(v: Array, rows: NDArray[np.intp] = rows) -> Array:
                return np.hypot(*score_deviations(view, sets, v, rows))

            rivals = np.flatnonzero(np.any(leads[some] < np.inf, axis=0))
            lead, t = leads[some][:, rivals], np.column_stack([deviation(V[k]) for k in rivals])
            if draws is None:
                probability[rows] = loses_to_some(lead, t)
                continue

            def between(one: int, other: int, V: Array = V[rivals], deviation: Any = deviation) -> Array:
                return deviation(V[one] - V[other])

            n_draws, seed = draws
            probability[rows], error[rows] = loses_to_any(lead, t, between, n_draws=n_draws, seed=seed)
        codes[part] = own
    return codes, probability, error


def _by_draws(
    model: Any, X: Any, rows: Any, sets: RowSets, n_draws: int, rng: np.random.Generator
) -> tuple[Any, Array]:
    values = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    known = told(model, sets, values.shape)
    predicted = np.asarray(model.predict(X, **known))
    noisy = (values + dense(sets.gaussian(rng, values.shape)) for _ in range(n_draws))
    return predicted, np.mean(predicted_at(model, X, noisy, "flip_probability", known) != predicted, axis=0)


def predicted_at(model: Any, X: Any, noisy: Iterable[Array], call: str, known: Mapping[str, Any]) -> NDArray[Any]:
    """Return the predictions for noisy copies of the numbers of X, many copies at a time, shape (n_copies, n_samples).

    `known` is the metadata of X that `predict` is given.
    """
    copies, size = iter(noisy), max(1, BLOCK_ENTRIES // max(_num_samples(X) * n_columns(X), 1))
    found: list[NDArray[Any]] = []
    while some := list(islice(copies, size)):
        which = np.tile(np.arange(len(some[0])), len(some))
        try:
            errors = {name: value[which] for name, value in known.items()}
            labels = np.asarray(model.predict(as_given(X, np.concatenate(some), which), **errors))
        except ValueError as error:
            raise ValueError(
                f"{call}: the model refuses rows with noise ({error!s:.120}). Noise may move them to where a step has "
                "no value, as a logarithm has none below 0. State less noise, or a set within the step's domain, or "
                "use a function with a larger domain, such as log1p instead of log."
            ) from error
        found.append(labels.reshape(len(some), -1))
    return np.concatenate(found)
