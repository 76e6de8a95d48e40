"""How much noise a model tolerates, and whether training with the noise would help."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from holdfast._certificates.pipelines import exact_columns
from holdfast._core.allowed import SEED, Count, Number, arguments
from holdfast._core.arithmetic import dense
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, digits, percent
from holdfast.evaluate.fitted import (
    classes_of,
    labels_of,
    refuse_errors_of_categories,
    refuse_spread,
    rows_for,
    stated_of,
    told,
)
from holdfast.evaluate.noise import NOISE_ARGUMENT, flip_probability, linear_or_none, predicted_at, score_deviations
from holdfast.features.rows import numbers_of
from holdfast.uncertainty import GaussianNoise

GRID = 2.0 ** np.arange(-10, 10.01, 0.25)
"""Multiples of the noise, tried in this order for the first one at which accuracy is below the target."""
HALVINGS, COARSE = 40, 10
"""Bisections of an interval of the grid, 19 % wide: for exact expectations, and for expectations from draws."""
LOW_RATE, HIGH_RATE = 0.05, 0.15
"""Expected flip rates below which there is little to gain, and above which there is much."""
VERDICTS = (
    ("Little", "Training with the errors will hardly pay.", "less than 5 %", (-2.0, 1.0)),
    (
        "Something",
        "Training with the errors may gain or lose: compare both on rows held out.",
        "5 to 15 %",
        (-6.0, 3.0),
    ),
    (
        "Much",
        "Train with the errors: GaussianRobustClassifier(...).fit(X, y, X_std=...).",
        "more than 15 %",
        (4.3, 12.0),
    ),
)
"""For each range of flip rates: how much is to gain, what to do, the range, and measured gains in accuracy (points)."""
MEASURED = (
    "Where noise changed {share} of the predictions of a logistic regression, training with the errors changed its accuracy "
    "under that noise by {low:+.1f} to {high:+.1f} points (33 trials on eleven data sets); yours may differ. This rate says "
    "how fragile the model is, not how well it fits."
)
COMPARED, FOLDS, RIDGES = 2000, 3, (0.1, 1.0)
"""For the comparison of a linear model with splines: the most rows, the folds, and the values of C (inverse ridges)."""
LEAST_PROBABILITY = 1e-15
"""Smaller probabilities count as this one, so that log losses are finite."""
CLEARLY = 2.0
"""Differences of more standard errors than this count as clear."""


@dataclass(frozen=True, kw_only=True)
class NoiseBudget(Summary):
    """How much noise a model tolerates."""

    multiple: float
    """The multiple of the stated noise up to which expected accuracy is at least the target: 0 if it is below the
    target without noise, inf if it is not below the target at any multiple tried."""
    target_accuracy: float
    plain_accuracy: float
    """The accuracy without noise."""
    is_exact: bool
    """Whether expected accuracies come from a formula, not from draws."""
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
    """What there is to gain from training with the errors of the features."""

    flip_rate: float
    """The expected share of predictions that a second measurement of the same quality changes."""
    standard_error: float
    """The standard error of `flip_rate` if it comes from draws; else 0."""
    points: tuple[float, float]
    """The smallest and largest gain in accuracy under noise, in points, measured on other data sets at such rates."""
    verdict: str
    """In words: what these measurements say about such a rate, and the result of the comparison with splines."""
    linear_log_loss: float = np.nan
    """The cross-validated log loss of a logistic regression on clean rows; NaN without a comparison."""
    spline_log_loss: float = np.nan
    """The same for a logistic regression on splines of each feature."""
    plain_log_loss: float = np.nan
    """The log loss of predicting the shares of the classes for every row."""
    difference_error: float = np.nan
    """The standard error of the linear log loss minus the spline log loss, paired by row."""

    @property
    def is_nonlinear_advised(self) -> bool:
        """Whether splines fit clearly better than a linear model, by two standard errors."""
        return bool(self.linear_log_loss - self.spline_log_loss > CLEARLY * self.difference_error)

    def __str__(self) -> str:
        return self.verdict

    def _lines(self) -> list[tuple[str, str]]:
        error = f", standard error {percent(self.standard_error)}" if self.standard_error > 0 else ""
        lines = [
            ("predictions that noise changes", f"{percent(self.flip_rate)}{error}"),
            ("gained elsewhere at such rates", "{:+.1f} to {:+.1f} points".format(*self.points)),
        ]
        if not np.isnan(self.linear_log_loss):
            pair = f"{digits(self.linear_log_loss)}, splines {digits(self.spline_log_loss)}"
            lines += [
                (
                    "log loss on clean rows, linear",
                    f"{pair}, standard error of the difference {self.difference_error:.2g}",
                )
            ]
        return lines

    def _notes(self) -> list[str]:
        return [self.verdict]


@arguments(noise=NOISE_ARGUMENT, n_draws=Count(), random_state=Count(0))
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
    r"""Return the largest multiple of the stated noise up to which expected accuracy stays at or above a target.

    For linear models of two classes, expected accuracy at m times the noise is exactly
    :math:`\frac1n \sum_i \Phi(y_i f(x_i) / (m\,t_i))`, with the score's standard deviation
    :math:`t_i = \sqrt{w^\top C_i w}`. For other models it is the mean over `n_draws` noisy copies of the rows, with the
    same draws for every m. Multiples from 1/1024 to 1024, each 19 % above the one before, are tried for the first fall
    below the target, which is then bisected.

    Parameters
    ----------
    model : classifier
        Fitted, any with `predict`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    target_accuracy : float
        Above 0, at most 1.
    noise : float or GaussianNoise, default=None
        The noise that all rows share.
    X_std, X_cov, X_factor : array-like, default=None
        The noise of each row, as for :class:`GaussianNoise`.
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
        exact = told(model, bound.scaled(0.0), rows.shape)
        plain = float(np.mean(np.asarray(model.predict(X, **exact)) == labels))
        if stated.unknown is not None:
            raise ValueError(
                f"{call}(noise={noise!r}): a covariance that is unknown cannot be drawn from, and for this model no "
                "formula is known. State a covariance, as GaussianNoise(std=...)."
            )
        values = dense(rows)

        def expected(m: float) -> float:
            # the same seeds for every multiple, so that changes are due to the multiple and not to the draws
            draws = (
                dense(bound.gaussian(np.random.default_rng([random_state, k]), values.shape)) for k in range(n_draws)
            )
            known = told(model, bound.scaled(m), values.shape)
            return float(np.mean(predicted_at(model, X, (values + m * e for e in draws), call, known) == labels))

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
    y: Any = None,
    X_std: Any = None,
    X_cov: Any = None,
    X_factor: Any = None,
    n_draws: int = 200,
    random_state: int = 0,
) -> Gain:
    r"""Return whether training with the errors of the features is likely to pay, judged by how often they flip classes.

    The expected flip rate is the mean of :math:`\Phi(-|f(x_i)| / t_i)` for linear models of two classes, and comes from
    draws for others. Below 5 % there is little to gain, above 15 % much; in between training with the errors may gain
    or lose. These are rough limits, set by 33 trials on eleven data sets. In 33 other trials
    (``benchmarks/what_is_to_gain.md``) the gain was -0.5 to +1.5 points below 5 %, +0.4 to +4.7 points up to 15 %, and
    +1.4 to +8.5 points above; its rank correlation with the flip rate was 0.77.

    The rate says how fragile a model is, not how well it fits: a linear model that fits badly may be stable. With `y`,
    a logistic regression is compared with one on splines of each feature, by their log losses on clean rows. If splines
    are better by two standard errors, try a model that is not linear first. Splines do not model interactions: if they
    are no better, boosting may still be.

    Parameters
    ----------
    model : classifier
        Fitted without the noise.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    noise, X_std, X_cov, X_factor
        The noise that rows will have when the model is used, as for :func:`flip_probability`.
    y : array-like of shape (n_samples,), default=None
        The classes of the rows, for the comparison. It uses three folds of at most 2000 rows, numbers as they are in X,
        and the better of two ridges for each model. There is none if X is sparse or the model takes categories; the
        verdict then says so.
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
    Something to gain: noise as stated changes 9.1 % of the predictions. Training with the errors may gain or lose: compare
    both on rows held out. Where noise changed 5 to 15 % of the predictions of a logistic regression, training with the errors
    changed its accuracy under that noise by -6.0 to +3.0 points (33 trials on eleven data sets); yours may differ. This rate
    says how fragile the model is, not how well it fits.
    """
    # with several classes some models have only an upper bound, which would promise too much
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
    # draws of different rows are independent
    error = float(np.sqrt(np.sum(np.square(flips.standard_error))) / len(flips))
    much, advice, share, points = VERDICTS[int(rate >= LOW_RATE) + int(rate > HIGH_RATE)]
    measured = MEASURED.format(share=share, low=points[0], high=points[1])
    verdict = f"{much} to gain: noise as stated changes {100 * rate:.1f} % of the predictions. {advice} {measured}"
    found = Gain(flip_rate=rate, standard_error=error, points=points, verdict=verdict)
    return found if y is None else _with_comparison(found, model, X, y, random_state)


def _with_comparison(gain: Gain, model: Any, X: Any, y: Any, random_state: Any) -> Gain:
    """Return the gain with the log losses of a linear model and of splines, or with the reason why there are none."""
    labels, rng = labels_of(model, y, _num_samples(X), "what_is_to_gain"), check_random_state(random_state)
    chosen = rng.permutation(len(labels))[:COMPARED]
    counts = np.unique(labels[chosen], return_counts=True)[1]
    if sparse.issparse(X):
        why_not = "X is sparse"
    elif len(exact_columns(model, X)):
        why_not = "the model takes categories"
    elif len(counts) < 2 or min(counts) < FOLDS:
        why_not = f"{FOLDS} folds need {FOLDS} rows or more of each of two classes or more"
    else:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=rng.randint(1 << 31))
        rows = numbers_of(X)[chosen]
        linear, curved = (
            _log_losses(step, rows, labels[chosen], folds) for step in (StandardScaler(), SplineTransformer())
        )
        error = float(np.std(linear - curved, ddof=1) / np.sqrt(len(chosen)))
        shares = counts / counts.sum()
        found = replace(
            gain,
            plain_log_loss=float(-np.sum(shares * np.log(shares))),
            linear_log_loss=float(np.mean(linear)),
            spline_log_loss=float(np.mean(curved)),
            difference_error=error,
        )
        return replace(found, verdict=f"{gain.verdict} {_advice(found)}")
    return replace(gain, verdict=f"{gain.verdict} A linear model and splines were not compared: {why_not}.")


def _log_losses(step: Any, rows: Array, labels: Any, folds: Any) -> Array:
    """Return each row's cross-validated log loss by a logistic regression after a step, with the better ridge."""
    codes, found = np.unique(labels, return_inverse=True)[1], []
    fill = SimpleImputer(strategy="median", keep_empty_features=True)
    with warnings.catch_warnings():  # a fit that has nearly converged is good enough for a comparison
        warnings.simplefilter("ignore", ConvergenceWarning)
        for C in RIDGES:
            model = make_pipeline(fill, step, LogisticRegression(C=C, max_iter=300))
            chances = cross_val_predict(model, rows, labels, cv=folds, method="predict_proba")
            found.append(-np.log(np.maximum(chances[np.arange(len(codes)), codes], LEAST_PROBABILITY)))
    return min(found, key=np.mean)


def _advice(gain: Gain) -> str:
    """Return the result of the comparison in words."""
    losses = (
        f"(log loss {gain.spline_log_loss:.3f} against {gain.linear_log_loss:.3f}, standard error of the difference "
        f"{gain.difference_error:.3f})"
    )
    if gain.is_nonlinear_advised:
        return (
            f"On clean rows splines fit clearly better than a linear model {losses}: use a model that is not linear, "
            "NoiseAwareClassifier() or NoiseCopies(HistGradientBoostingClassifier())."
        )
    if gain.linear_log_loss > gain.plain_log_loss - CLEARLY * gain.difference_error:
        return (
            f"On clean rows neither splines nor a linear model {losses} fit better than the shares of the classes "
            f"({gain.plain_log_loss:.3f}). Features may act together: try boosting, or NoiseAwareClassifier()."
        )
    return (
        f"On clean rows splines fit no better than a linear model {losses}: a linear one will do, unless features act "
        "together."
    )


def _by_formula(leads: Array, t: Array, own: Array, signs: Array) -> Callable[[float], float]:
    """Return expected accuracy as a function of the noise's multiple m, which does not multiply `own`, of fill-ins."""
    # a score of 0 predicts the first class
    still = np.where((leads > 0) | ((leads == 0) & (signs < 0)), np.inf, -np.inf)

    def expected(m: float) -> float:
        total = np.hypot(m * t, own)
        return float(np.mean(ndtr(np.divide(leads, total, out=still.copy(), where=total > 0))))

    return expected


def _first_fall(expected: Callable[[float], float], plain: float, target: float, halvings: int) -> float:
    """Return the multiple at which expected accuracy first falls below a target: 0 if it starts below, inf if never."""
    if plain < target:
        return 0.0
    low = 0.0
    # from small to large, not by bisection of the whole range: accuracy need not fall steadily, the first fall counts
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
