"""What a case is: data, and ways of doing the same work with them."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

ACCURACY = 1e-6
"""How near to the optimum everybody gets where accuracy is equal, relative."""
TOLERANCES = 10.0 ** -np.arange(1, 12)
PATIENCE = 20.0
"""CPU seconds from which on a peer is not asked for a tighter tolerance."""


class Data(NamedTuple):
    """Rows, labels, and what a fit is told beside."""

    X: Any
    y: np.ndarray
    told: dict = {}


@dataclass
class Way:
    """One way of doing the work: what is timed, and what is said of its result."""

    name: str
    run: Callable[[], Any]
    reached: Callable[[Any], str] = lambda result: ""
    is_slow: bool = False
    """Run once in a full run, and not at all in a quick one."""
    takes: Callable[[Any], float] | None = None
    """The CPU seconds, where the result knows them and this process does not."""


@dataclass(frozen=True)
class Case:
    """A line of a section: all ways take turns on the same data; the first one is ours, to which the others are compared."""

    name: str
    data: Callable[[bool], Data]
    """From whether it is a smoke test, for which a few rows are enough."""
    ways: Callable[[Data], Iterable[Way]]
    is_quick: bool = False
    has_memory: bool = False


class Section(NamedTuple):
    """Cases under one title."""

    title: str
    about: str
    cases: list[Case]


def ours(name, model, data, *, tol=ACCURACY, told=None, **options):
    """Return a certified fit of ours."""

    def reached(fitted):
        if not fitted.gap_ <= tol:
            raise RuntimeError(f"{name}: gap {fitted.gap_:.1e}")
        return f"gap {fitted.gap_:.0e}" + (f", {told(fitted)}" if told else "")

    return Way(name, lambda: model.fit(data.X, data.y, **data.told), reached, **options)


@dataclass
class Peer:
    """A classifier of others: its name, its class, its options, and its objective as a function of (fitted, X, y)."""

    name: str
    kind: Callable
    objective: Callable
    options: dict = field(default_factory=dict)
    told: Callable = lambda fitted: ""
    patience: float = PATIENCE

    def ways(self, data):
        """Yield it with its default tolerance, and at the loosest one that is near enough to its optimum."""
        best, tol, is_late = self._calibrated(data)

        def fit(made):
            return lambda: made.fit(data.X, data.y)

        def reached(fitted):
            excess = max(self.objective(fitted, data.X, data.y) / best - 1, 0.0)
            told = self.told(fitted)
            return f"excess {'> ' * is_late}{excess:.0e}" + (f", {told}" if told else "")

        yield Way(f"{self.name}, default tolerance", fit(self.kind(**self.options)), reached)
        yield Way(f"{self.name}, equally accurate (tol={tol:.0e})", fit(self._at(tol)), reached)

    def _at(self, tol):
        return self.kind(**{"max_iter": 100_000} | self.options, tol=tol)

    def _calibrated(self, data):
        """Return the best objective of any tolerance, the loosest one near it, and whether time ran out before one was."""
        values, seconds = {}, 0.0
        for tol in TOLERANCES:
            start = time.process_time()
            values[tol] = self.objective(self._at(tol).fit(data.X, data.y), data.X, data.y)
            seconds = time.process_time() - start
            changes = abs(np.diff(list(values.values())[-3:])) / abs(values[tol])
            is_settled = len(changes) == 2 and np.all(changes < 1e-2 * ACCURACY)
            if is_settled or seconds > self.patience:
                break
        best = min(values.values())
        loosest = max(tol for tol, value in values.items() if value <= best * (1 + ACCURACY))
        return best, loosest, seconds > self.patience and not is_settled


def scores(model, X):
    """Return the scores in float64, shape (n_samples,) or (n_samples, n_classes)."""
    found = X @ model.coef_.T.astype(float) + model.intercept_.astype(float)
    return found[:, 0] if found.shape[1] == 1 else found


def _signs(model, y, shape):
    own = np.searchsorted(model.classes_, y)
    if len(shape) == 1:
        return 2 * own - 1
    return np.where(own[:, None] == np.arange(shape[1]), 1, -1)


def by_margin(cost, C, model, X, y, *, has_ridge_on_intercept=True):
    """Return C sum cost(margin) + |w|^2 / 2, of one class against the rest where there are several."""
    f = scores(model, X)
    size = np.sum(np.square(model.coef_, dtype=float))
    size += has_ridge_on_intercept * np.sum(np.square(model.intercept_, dtype=float))
    return C * np.sum(cost(_signs(model, y, f.shape) * f)) + 0.5 * size


def hinge(C=1.0):
    return partial(by_margin, lambda m: np.maximum(0, 1 - m), C)


def squared_hinge(C=1.0):
    return partial(by_margin, lambda m: np.square(np.maximum(0, 1 - m)), C)


def logistic(C=1.0, *, has_ridge_on_intercept=False):
    """Return the objective of LogisticRegression, for several classes that of the multinomial model."""

    def objective(model, X, y):
        f = scores(model, X)
        if f.ndim == 1:
            plain = has_ridge_on_intercept
            return by_margin(lambda m: np.logaddexp(0, -m), C, model, X, y, has_ridge_on_intercept=plain)
        own = f[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        top = f.max(axis=1)
        log_sums = top + np.log(np.exp(f - top[:, None]).sum(axis=1))
        return C * np.sum(log_sums - own) + 0.5 * np.sum(model.coef_**2)

    return objective


def accuracy(data):
    """Return what says how accurate a classifier is on the rows it was trained on."""
    return lambda fitted: f"accuracy {fitted.score(data.X, data.y):.3f}"
