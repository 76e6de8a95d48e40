"""How much noise a model stands, and whether knowing the noise would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from holdfast._core.allowed import SEED, Count, Number, arguments
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, digits, percent
from holdfast.evaluate.fitted import (
    classes_of,
    labels_of,
    refuse_errors_of_categories,
    refuse_spread,
    rows_for,
    stated_of,
)
from holdfast.evaluate.noise import NOISE, flip_probability, linear_or_none, predicted_at, score_deviations
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.clouds import dense

GRID = 2.0 ** np.arange(-10, 10.01, 0.25)
"""Multiples of the noise among which the first one is looked for at which accuracy is below the target."""
HALVINGS, COARSE = 40, 10
"""Bisections of an interval of 19 % where expectations are exact, and where they are drawn."""
FEW, MANY = 0.05, 0.15
"""Expected flip rates that tell little to gain from some, and some from much."""
MEASURED = (
    "In examples/plot_do_error_bars_help.py, 3.6 % went with 0.3 points of accuracy gained on noisy rows over a plain logistic "
    "regression, 15.2 % with 5.9, and 3.6 over a ridge tuned for that noise; on clean rows nothing is gained. Your data may "
    "differ."
)
VERDICTS = (
    ("Little", "A plain model will do."),
    ("Something", "Training with the errors is worth a try."),
    ("Much", "Train with the errors: GaussianRobustClassifier(...).fit(X, y, X_std=...)."),
)


@dataclass(frozen=True, kw_only=True)
class NoiseBudget(Summary):
    """How much noise a model stands."""

    multiple: float
    """The largest multiple of the stated noise up to which expected accuracy is at least the target: 0 where it is below the
    target without noise, inf where no noise that was tried brings it there."""
    target_accuracy: float
    plain_accuracy: float
    """Without noise."""
    is_exact: bool
    """Whether expectations are those of a formula, not of draws."""
    method: str

    def __float__(self) -> float:
        return self.multiple

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("the model stands", f"{digits(self.multiple)} times the stated noise"),
            ("target accuracy", percent(self.target_accuracy)),
            ("accuracy without noise", percent(self.plain_accuracy)),
            ("method", self.method),
        ]


@dataclass(frozen=True, kw_only=True)
class Gain(Summary):
    """What there is to gain from knowing the errors of the features."""

    flip_rate: float
    """The expected share of predictions that a second measurement of the same quality changes."""
    standard_error: float
    """Of that, where it comes from draws."""
    verdict: str
    """What measurements elsewhere say of such a rate, in words."""

    def __str__(self) -> str:
        return self.verdict

    def _lines(self) -> list[tuple[str, str]]:
        error = f", standard error {percent(self.standard_error)}" if self.standard_error > 0 else ""
        return [("predictions that noise changes", f"{percent(self.flip_rate)}{error}")]

    def _notes(self) -> list[str]:
        return [self.verdict]


@arguments(noise=NOISE, n_draws=Count(), random_state=Count(0))
def noise_budget(
    model: Any,
    X: Any,
    y: Any,
    target_accuracy: float,
    noise: Any = None,
    *,
    X_std: Any = None,
    X_cov: Any = None,
    X_factor: Any = None,
    n_draws: int = 50,
    random_state: int = 0,
) -> NoiseBudget:
    r"""Return the largest multiple of the stated noise at which expected accuracy stays above a target.

    Linear models of two classes: expected accuracy at m times the noise is exactly
    :math:`\frac1n \sum_i \Phi(y_i f(x_i) / (m\,t_i))` with the score's deviation :math:`t_i = \sqrt{w^\top C_i w}`. Others: the
    mean over `n_draws` noisy copies of the rows, the same draws for every m. The first fall below the target is looked for
    at multiples from 1/1024 to 1024, each 19 % above the one before, then bisected.

    Parameters
    ----------
    model : classifier
        Fitted, any with `predict`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    target_accuracy : float
        Above 0, at most 1.
    noise : float or GaussianNoise, default=None
        Noise that all rows have.
    X_std, X_cov, X_factor : array-like, default=None
        That of each row, as for :class:`GaussianNoise`.
    n_draws : int, default=50
    random_state : int, default=0

    Returns
    -------
    NoiseBudget

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> round(noise_budget(LogisticRegression().fit(X, y), X, y, 0.9, noise=1.0).multiple, 2)
    1.05
    """
    call = "noise_budget"
    if target_accuracy not in Number(0, 1, strictly=True):
        raise ValueError(
            f"{call}(target_accuracy={target_accuracy!r:.40}): give a share of the rows, above 0, at most 1."
        )
    own = {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor}
    classes, rows = classes_of(model), rows_for(model, X)
    own = stated_of(model, X, own, call, {"noise": noise})
    labels = labels_of(model, y, rows.shape[0], call)
    stated = noise if isinstance(noise, GaussianNoise) else GaussianNoise(std=noise)
    refuse_errors_of_categories(model, X, stated, own)
    bound = stated.at(rows, own)
    view = linear_or_none(model, X)
    is_exact = view is not None and view.model.decision.n_scores == 1
    expected: Callable[[float], float]
    if view is not None and is_exact:
        signs = np.where(labels == classes[1], 1.0, -1.0)
        leads = signs * view.model.scores(view.rows)[0][:, 0]
        t, filled = score_deviations(view, bound, view.linear.coef[0], np.arange(len(leads)))
        expected, method = _by_formula(leads, t, filled, signs), "linear: normal law of the scores"
        plain = expected(0.0)
    else:
        refuse_spread(model, X, call)
        plain = float(np.mean(np.asarray(model.predict(X)) == labels))
        if stated.unknown is not None:
            raise ValueError(
                f"{call}(noise={noise!r}): a covariance that is unknown cannot be drawn from, and for this model no "
                "formula is known. State a covariance, as GaussianNoise(std=...)."
            )
        values = dense(rows)

        def expected(m: float) -> float:
            draws = (
                dense(bound.gaussian(np.random.default_rng([random_state, k]), values.shape)) for k in range(n_draws)
            )
            return float(np.mean(predicted_at(model, X, (values + m * e for e in draws), call) == labels))

        method = f"{n_draws} draws"
    return NoiseBudget(
        multiple=_first_fall(expected, plain, float(target_accuracy), HALVINGS if is_exact else COARSE),
        target_accuracy=float(target_accuracy),
        plain_accuracy=plain,
        is_exact=is_exact,
        method=method,
    )


@arguments(n_draws=Count(), random_state=SEED)
def what_is_to_gain(
    model: Any,
    X: Any,
    noise: Any = None,
    *,
    X_std: Any = None,
    X_cov: Any = None,
    X_factor: Any = None,
    n_draws: int = 200,
    random_state: int = 0,
) -> Gain:
    r"""Return whether training with the errors of the features is likely to pay, by how often noise changes a plain model.

    The expected flip rate is the mean of :math:`\Phi(-|f(x_i)| / t_i)` for linear models of two classes, of draws for others.
    Below 5 % there is little to gain, above 15 % much: rough marks, set by the rates and gains of
    ``examples/plot_do_error_bars_help.py``.

    Parameters
    ----------
    model : classifier
        Fitted without knowing the noise.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    noise, X_std, X_cov, X_factor
        The noise that rows will have when the model is used, as for :func:`flip_probability`.
    n_draws : int, default=200
    random_state : int, default=0

    Returns
    -------
    Gain

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    >>> gain = what_is_to_gain(LogisticRegression().fit(X, y), X, noise=1.0)
    >>> round(gain.flip_rate, 3)
    0.091
    >>> print(gain)
    Something to gain: noise as stated changes 9.1 % of the predictions. Training with the errors is worth a try.
    In examples/plot_do_error_bars_help.py, 3.6 % went with 0.3 points of accuracy gained on noisy rows over a plain logistic
    regression, 15.2 % with 5.9, and 3.6 over a ridge tuned for that noise; on clean rows nothing is gained. Your data may
    differ.
    """
    # of several classes the formula is an upper bound, which would promise too much
    method = "auto" if len(classes_of(model)) == 2 else "draws"
    flips = flip_probability(
        model,
        X,
        noise,
        X_std=X_std,
        X_cov=X_cov,
        X_factor=X_factor,
        method=method,
        n_draws=n_draws,
        random_state=random_state,
    )
    rate = float(np.mean(flips.probability))
    error = float(np.sqrt(np.sum(np.square(flips.standard_error))) / len(flips))
    much, advice = VERDICTS[int(rate >= FEW) + int(rate > MANY)]
    verdict = f"{much} to gain: noise as stated changes {100 * rate:.1f} % of the predictions. {advice} {MEASURED}"
    return Gain(flip_rate=rate, standard_error=error, verdict=verdict)


def _by_formula(leads: Array, t: Array, own: Array, signs: Array) -> Callable[[float], float]:
    """Return expected accuracy as a function of the multiple of the noise, beside what entries that are filled in have."""
    # a score of 0 is the first class
    still = np.where((leads > 0) | ((leads == 0) & (signs < 0)), np.inf, -np.inf)

    def expected(m: float) -> float:
        total = np.hypot(m * t, own)
        return float(np.mean(ndtr(np.divide(leads, total, out=still.copy(), where=total > 0))))

    return expected


def _first_fall(expected: Callable[[float], float], plain: float, target: float, halvings: int) -> float:
    """Return where expected accuracy first falls below a target: 0 where it is below at the start, inf where never."""
    if plain < target:
        return 0.0
    low = 0.0
    for high in GRID:
        if expected(float(high)) < target:
            break
        low = float(high)
    else:
        return np.inf
    for _ in range(halvings):
        middle = 0.5 * (low + float(high))
        low, high = (low, middle) if expected(middle) < target else (middle, high)
    return low
