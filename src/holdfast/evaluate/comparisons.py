"""Comparisons of models on the same perturbed rows, with tests of their differences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from scipy.stats import t as student

from holdfast._core.allowed import Count, arguments
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, digits, percent
from holdfast.evaluate.curves import Trial, checked_levels, checked_seed

TESTS = {
    "mcnemar": "McNemar's exact test of the rows that one model alone gets right",
    "t": "paired t test over the rows, of each row's share of draws that are right",
    "sign": "exact sign test where all rows differ alike",
}

ALIKE = 1e-12
"""Smaller differences between shares of draws are rounding errors."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Summary):
    """Differences of accuracies between all pairs of models."""

    models: tuple[str, ...]
    accuracy: Array
    """Mean accuracy of each model, shape (n_models,)."""
    pairs: tuple[tuple[str, str], ...]
    difference: Array
    """Accuracy of the first model of each pair minus that of the second, shape (n_pairs,)."""
    standard_error: Array
    """Standard errors of the differences, over rows like these, shape (n_pairs,)."""
    p_value: Array
    """The p-value of each difference on its own, shape (n_pairs,)."""
    p_holm: Array
    """The p-values corrected for the number of pairs by Holm's method, shape (n_pairs,)."""
    test: str
    """The name of the test."""
    level: float

    def _title(self) -> str:
        accuracies = (f"{name} {percent(share)}" for name, share in zip(self.models, self.accuracy, strict=True))
        return f"Accuracy at level {digits(self.level)}: {', '.join(accuracies)}"

    def _columns(self) -> list[str]:
        return ["pair", "difference in points", "standard error", "p (Holm)"]

    def _lines(self) -> list[list[str]]:
        rows = zip(self.pairs, self.difference, self.standard_error, self.p_holm, strict=True)
        return [[f"{a} - {b}", f"{100 * d:+.2f}", f"{100 * e:.2f}", f"{p:.2g}"] for (a, b), d, e, p in rows]

    def _notes(self) -> list[str]:
        return [f"By {self.test}."]


@arguments(n_repeats=Count())
def compare(
    models: Any,
    X: Any,
    y: Any,
    uncertainty: Any,
    level: float,
    *,
    adversary: str = "random",
    n_repeats: int = 10,
    random_state: int = 0,
    **metadata: Any,
) -> Comparison:
    r"""Return the differences between models on the same perturbed rows, each with a paired test, Holm-corrected.

    With one draw it is McNemar's exact test: of the rows that only one of the two models gets right, half should be
    each model's. With several draws it is the t test of :math:`d_i`, the share of draws of row i in which the first
    model is right minus that of the second. The sample is the rows; draws only make each :math:`d_i` more precise. So
    more draws do not make a difference significant that other rows would not show. If all :math:`d_i` are equal there
    is no t, and their signs are tested as in McNemar's test. All tests take the rows as independent.

    Parameters
    ----------
    models, X, y, uncertainty, adversary, n_repeats, random_state, **metadata
        As for :func:`robustness_curve`; at least two models.
    level : float

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from holdfast import GaussianNoise
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> y = (X[:, 0] > 0).astype(int)
    >>> models = {"logistic": LogisticRegression().fit(X, y), "always 0": DummyClassifier().fit(X, y)}
    >>> print(compare(models, X, y, GaussianNoise(1.0), 0.1))
    Accuracy at level 0.1: logistic 97.5 %, always 0 50.0 %
      pair                 difference in points  standard error  p (Holm)
      logistic - always 0                +47.50            8.44   1.7e-06
    By paired t test over the rows, of each row's share of draws that are right.
    """
    call = "compare"
    trial = Trial(models, X, y, uncertainty, adversary, metadata, call)
    if len(trial.models) < 2:
        raise ValueError(f"{call}(models=...): give two models at least.")
    size = float(checked_levels([level], call, "level")[0])
    counts, seed = trial.repeats(n_repeats), checked_seed(random_state, call)
    names = list(trial.models)
    draws = [trial.hits(names, size, repeat, seed) for repeat in range(counts)]
    shares = {name: np.mean([hits[name] for hits in draws], axis=0) for name in names}
    pairs = tuple(combinations(names, 2))
    apart = np.array([shares[a] - shares[b] for a, b in pairs])
    n = apart.shape[1]
    errors = apart.std(axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(pairs), np.nan)
    kind = "mcnemar" if counts == 1 else "t"
    p = np.array([_mcnemar(d) if kind == "mcnemar" else _t_test(d, e) for d, e in zip(apart, errors, strict=True)])
    return Comparison(
        models=tuple(names),
        accuracy=np.array([shares[name].mean() for name in names]),
        pairs=pairs,
        difference=apart.mean(axis=1),
        standard_error=errors,
        p_value=p,
        p_holm=holm(p),
        test=TESTS[kind] + (f"; {TESTS['sign']}" if kind == "t" and any(map(_are_alike, apart)) else ""),
        level=size,
    )


def holm(p: Array) -> Array:
    """Return p-values corrected by Holm's method: no smaller than before, and in the same order."""
    order = np.argsort(p)
    # the k-th smallest of m p-values is multiplied by m - k + 1; no corrected value is below that of a smaller p-value
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    out = np.empty(len(p))
    out[order] = np.minimum(steps, 1.0)
    return out


def _mcnemar(d: Array) -> float:
    ups, downs = int(np.sum(d > ALIKE)), int(np.sum(d < -ALIKE))
    return float(binomtest(ups, ups + downs).pvalue) if ups + downs else 1.0


def _t_test(d: NDArray[np.float64], error: float) -> float:
    return _mcnemar(d) if _are_alike(d) else float(2 * student.sf(abs(d.mean()) / error, len(d) - 1))


def _are_alike(d: NDArray[np.float64]) -> bool:
    """Return whether all rows have the same difference, up to rounding."""
    return bool(np.ptp(d) < ALIKE)
