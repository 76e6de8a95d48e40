"""Paths of fits over the size of an uncertainty: what all classifiers that follow or search them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from holdfast._core.allowed import LARGEST, Count, as_numbers, short
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, silent
from holdfast._core.summary import Summary, counted, digits, some
from holdfast._proofs.certificate import Certificate
from holdfast._training.training import train

SPAN = 1e-3
"""The smallest size of an automatic grid, as a share of its largest."""
LARGEST_SIZE = 3.0
"""The largest size of an automatic grid, in root mean square distances of the rows from their centre."""
DEFAULT_SIZES = 30

Track = tuple[Solution | None, Solution | None]
"""The last solution but one, and the last one."""
Step = tuple[float, ...]
"""The settings of one fit: the size of the uncertainty, then the other numbers."""


class FitPath(Summary):
    """Fits along a path, and how they are printed."""

    coefs: Array
    objectives: Array
    gaps: Array

    def _sizes(self) -> tuple[str, Array]:
        """Return the name of the size that varies along the path, and the sizes."""
        raise NotImplementedError

    def _title(self) -> str:
        return f"{type(self).__name__} of {counted(len(self.gaps), 'fit')}"

    def _columns(self) -> list[str]:
        return [self._sizes()[0], "features used", "objective", "certified gap"]

    def _lines(self) -> list[list[str]]:
        sizes, used = self._sizes()[1], np.any(self.coefs != 0, axis=1).sum(axis=1)
        return [
            [digits(sizes[k]), f"{used[k]} of {self.coefs.shape[2]}", digits(self.objectives[k]), f"{self.gaps[k]:.1e}"]
            for k in some(len(sizes))
        ]


def warn_of_gaps(gaps: Array, tol: float, name: str = "tol") -> None:
    """Warn of fits whose gap is above `tol`, the parameter `name`; and, separately, of fits without a known bound."""
    bounded = gaps[np.isfinite(gaps)]
    if len(bounded) < gaps.size:
        warn_caller(
            f"{gaps.size - len(bounded)} of {gaps.size} fits on the path: {Status.NO_BOUND.value}", ConvergenceWarning
        )
    if short := int(np.count_nonzero(bounded > tol)):
        warn_caller(
            f"{short} of {gaps.size} fits on the path are not certified to {name}={tol:g}; the largest gap is "
            f"{bounded.max():.2g}. Put the features on similar scales, raise max_iter, or raise {name}.",
            ConvergenceWarning,
        )


def followed(
    problems: Sequence[Any],
    steps: Sequence[Step],
    names: Sequence[str],
    at: Callable[..., Any],
    tol: float,
    max_iter: int,
    solver: Any = None,
    report: Report = silent,
) -> Iterable[list[tuple[Solution, Certificate]]]:
    """Yield the fits of the problems ``at(problem, *step)`` for every step, started on a line through the last two."""
    problems[0].rows.n_fits = len(steps) * len(problems)
    nowhere: Track = (None, None)
    tracks = [nowhere] * len(problems)
    for k, step in enumerate(steps):
        if k and step[0] > steps[k - 1][0]:
            # the path begins again at the largest size, with another penalty: the last fit is far away
            tracks = [nowhere] * len(problems)
        fits = []
        for i, problem in enumerate(problems):
            here = at(problem, *step)
            before, last = tracks[i]
            start = _ahead(here, before, last)
            found, proof = train(here, solver, tol=tol, max_iter=max_iter, start=start, near=last, report=report)
            tracks[i] = last, found
            fits.append((found, proof))
        tried = ", ".join(f"{name} {value:.3g}" for name, value in zip(names, step, strict=True))
        report(f"{tried}: certified gap {max(proof.gap for _, proof in fits):.1e}")
        yield fits


def _ahead(problem: Any, before: Solution | None, last: Solution | None) -> Array | None:
    """Return a start for the next fit: on the line through the last two, or the last one; None after a collapse."""
    if last is None or not problem.smallest_typical_scale(last.parameters) > 0:
        return None
    if before is None or not problem.smallest_typical_scale(before.parameters) > 0:
        return last.parameters
    return np.asarray(2 * last.parameters - before.parameters)


def grid(values: Any, top: Callable[[], float], call: str, one: str, many: str) -> Array:
    """Return the sizes from the largest to the smallest: those given, checked; or a grid of so many from `top()` down.

    `one` and `many` are the words for a size in messages, singular and plural.
    """
    if isinstance(values, Integral) and not isinstance(values, bool):
        if values not in Count():
            raise ValueError(f"{call}={values!r}): give at least one {one}, or the {many} themselves.")
        largest = top()
        if not largest > 0:
            raise ValueError(
                f"{call}={values!r}): there is no largest {one} to begin with, for these rows do not tell the classes apart "
                f"(all alike, or of equal means). Check X, or give the {many} themselves."
            )
        return np.geomspace(largest, SPAN * largest, int(values))
    try:
        given = np.sort(as_numbers(values).ravel())[::-1]
    except TypeError:
        raise ValueError(f"{call}={short(values):.80}): give a number of {many}, or the {many} themselves.") from None
    if given.size == 0 or not np.all(given <= LARGEST) or given[-1] < 0:
        raise ValueError(f"{call}=...): {many} must be finite numbers >= 0, at most {LARGEST:g}, and at least one.")
    return given


def wide(problem: Any) -> float:
    """Return the multiple at which the uncertainty is as large as `LARGEST_SIZE` spreads of the rows."""
    rows, weights = problem.rows, problem.weights
    centre = rows.transpose_dot(weights / weights.sum())
    spread = np.sqrt(max(float(np.sum(rows.square_sums(weights / weights.sum())) - centre @ centre), 0.0))
    n = rows.n_features
    typical = float(np.mean([np.mean(problem.sets.support(unit)) for unit in np.eye(min(n, 100), n)]))
    # errors with the same deviation in each of n directions have about sqrt(n) times this length
    return float(LARGEST_SIZE * spread / (typical * np.sqrt(n))) if typical > 0 else 1.0
