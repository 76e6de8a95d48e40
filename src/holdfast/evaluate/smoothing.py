"""Randomized smoothing: certificates, with a confidence, of the smoothed version of any classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import betaincinv, ndtri
from sklearn.utils import check_random_state

from holdfast._core.allowed import SEED, Count, Number, arguments
from holdfast._core.labels import check_features
from holdfast._core.rounding import Array
from holdfast.evaluate.fitted import classes_of, rows_for, scale_of
from holdfast.evaluate.results import SmoothedRadius
from holdfast.features.rows import as_given

BLOCK_ENTRIES = 1 << 22
"""How many entries of noisy rows are predicted at a time."""
LAST_BITS = 1e-12
"""Share by which bounds are reduced: more than the rounding errors of the functions in them."""


@arguments(sigma=Number(strictly=True), n_draws=Count(), n_choose=Count(), random_state=SEED)
def smoothed(
    model: Any,
    X: Any,
    sigma: float | None = None,
    *,
    n_draws: int = 1000,
    alpha: float = 0.001,
    n_choose: int = 100,
    weights: Any = None,
    random_state: Any = None,
) -> SmoothedRadius:
    r"""Return radii of the smoothed classifier: the class that a model predicts most often under Gaussian noise.

    :math:`g(x) = \arg\max_c P(f(x + \sigma Z) = c)` cannot change within :math:`\sigma\,\Phi^{-1}(p)` in the l2 norm,
    where p > 1/2 is the probability of its class (Cohen, Rosenfeld & Kolter 2019). `n_choose` draws choose the class,
    and `n_draws` other draws give the lower bound of Clopper and Pearson on p: each row's radius is wrong with
    probability alpha at most. Where the bound is not above 1/2 the row is `abstained`, with radius 0.

    The certificate holds for the smoothed classifier, not for the model itself: to rely on it, use its predictions.

    Parameters
    ----------
    model : classifier
        Fitted, any with `predict` and `classes_`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    sigma : float
        Standard deviation of the noise, > 0, in units of `weights`. The largest possible radius is a little below
        :math:`\sigma \Phi^{-1}(\alpha^{1/n})`, n being `n_draws`.
    n_draws : int, default=1000
    alpha : float, default=0.001
        The probability that a row's radius is wrong, at most; below 0.5.
    n_choose : int, default=100
    weights : array-like of shape (n_features,), default=None
        Units of the features, >= 0: the noise of feature j has the standard deviation sigma * weights_j, and radii
        bound the norm of d / weights.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    SmoothedRadius
        With `radius`, `predicted`, `abstained`, `probability`, `method` and `assumption`.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = DecisionTreeClassifier(random_state=0).fit(X, [0, 0, 1, 1])
    >>> smoothed(model, X, sigma=0.5, random_state=0).radius.round(1)
    array([1.2, 0.9, 0.9, 1.2])
    """
    call = "smoothed"
    if sigma is None:
        raise ValueError(f"{call}(sigma=None): give the standard deviation of the noise, > 0, in the units of X.")
    if alpha not in Number(strictly=True) or not alpha < 0.5:
        raise ValueError(f"{call}(alpha={alpha!r}): give the probability of an error, above 0 and below 0.5.")
    classes, rows = classes_of(model), rows_for(model, X)
    check_features(X, {"weights": weights}, model)
    units = float(sigma) * scale_of(weights, rows.shape[1], call)
    rng = check_random_state(random_state)
    rows = rows.tocsr() if sparse.issparse(rows) else rows
    first = _counts(model, X, rows, units, int(n_choose), classes, rng)
    codes = first.argmax(axis=1)
    # new draws: those that chose the class favour it, and a bound from them would be too high
    hits = _counts(model, X, rows, units, int(n_draws), classes, rng)[np.arange(len(codes)), codes]
    probability = lower_confidence(hits, int(n_draws), float(alpha))
    is_sure = probability > 0.5
    radius = np.where(is_sure, float(sigma) * ndtri(np.where(is_sure, probability, 0.5)) * (1 - LAST_BITS), 0.0)
    return SmoothedRadius(
        predicted=classes[codes],
        radius=np.maximum(radius, 0.0),
        abstained=~is_sure,
        probability=probability,
        method=(
            f"the smoothed classifier, by randomized smoothing with sigma={sigma:g} and {n_draws} draws, each row with "
            f"confidence {1 - alpha:g}"
        ),
        assumption=(
            "no x + d with ||d / weights||_2 <= radius has another class by the smoothed classifier, not by the model itself; "
            f"each with confidence {1 - alpha:g}"
        ),
    )


def lower_confidence(hits: NDArray[Any], n_draws: int, alpha: float) -> Array:
    """Return Clopper and Pearson's lower bound on a probability, with confidence 1 - alpha, from hits in `n_draws`."""
    with np.errstate(invalid="ignore"):
        # the p at which this many hits, or more, have the probability alpha
        bound = betaincinv(np.maximum(hits, 1), n_draws - hits + 1.0, alpha)
    return np.where(hits > 0, bound * (1 - LAST_BITS), 0.0)


def _counts(
    model: Any, X: Any, rows: Any, units: Array, n_draws: int, classes: NDArray[Any], rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Return how often each class is predicted under noise, shape (n_samples, n_classes)."""
    n_samples, n_features = rows.shape
    counts = np.zeros((n_samples, len(classes)), dtype=np.intp)
    at_once = max(1, min(n_draws, BLOCK_ENTRIES // n_features))
    size = max(1, BLOCK_ENTRIES // (at_once * n_features))
    for start in range(0, n_samples, size):
        block = rows[start : start + size]
        block = block.toarray() if sparse.issparse(block) else np.asarray(block)
        for done in range(0, n_draws, at_once):
            k = min(at_once, n_draws - done)
            noisy = block[:, None, :] + units * rng.standard_normal((len(block), k, n_features))
            which = np.repeat(np.arange(start, start + len(block)), k)
            labels = model.predict(as_given(X, noisy.reshape(-1, n_features), which))
            codes = np.searchsorted(classes, np.asarray(labels)).reshape(len(block), k)
            for c in range(len(classes)):
                counts[start : start + size, c] += np.sum(codes == c, axis=1)
    return counts
