"""Paths over the size of an uncertainty, and the size chosen by cross-validation: what all such classifiers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d, indexable
from sklearn.utils.parallel import Parallel, delayed

from holdfast._core.allowed import LARGEST, NOTHING, Count, Having, as_numbers, short
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, silent
from holdfast._core.summary import Summary, counted, digits, some
from holdfast._proofs.certificate import Certificate, certificate
from holdfast._training.training import train
from holdfast.estimators.linear import LinearClassifier
from holdfast.features.rows import checked_weights

SPAN = 1e-3
"""Smallest size of an automatic grid, as a share of the largest."""
WIDEST = 3.0
"""Largest size of an automatic grid, in root mean square distances of the rows from their centre."""
DEFAULT_SIZES = 30

Step = tuple[float, ...]
"""What is tried: the size of the uncertainty, then whatever else is."""


class FitPath(Summary):
    """Fits along a path: what they have in common when they are printed."""

    coefs: Array
    objectives: Array
    gaps: Array

    def _sizes(self) -> tuple[str, Array]:
        """Return what the fits differ in, and by how much."""
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


def warn_of_gaps(gaps: Array, tol: float) -> None:
    """Say how many fits are not certified, those apart for which no bound is known."""
    bounded = gaps[np.isfinite(gaps)]
    if len(bounded) < gaps.size:
        warn_caller(
            f"{gaps.size - len(bounded)} of {gaps.size} fits on the path: {Status.NO_BOUND.value}", ConvergenceWarning
        )
    if short := int(np.count_nonzero(bounded > tol)):
        warn_caller(
            f"{short} of {gaps.size} fits on the path are not certified to tol={tol:g}; the largest gap is "
            f"{bounded.max():.2g}. Put the features on similar scales, raise max_iter, or raise tol.",
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
    """Yield the fits of the problems ``at(problem, *step)`` for every step, each started where the two before it point."""
    problems[0].rows.n_fits = len(steps) * len(problems)
    nowhere: tuple[Array | None, Array | None] = (None, None)
    tracks = [nowhere] * len(problems)
    for k, step in enumerate(steps):
        if k and step[0] > steps[k - 1][0]:
            # back at the largest size with another penalty, far from the last fit
            tracks = [nowhere] * len(problems)
        fits = []
        for i, problem in enumerate(problems):
            here = at(problem, *step)
            start = _ahead(here, *tracks[i])
            found, proof = train(here, solver, tol=tol, max_iter=max_iter, start=start, report=report)
            tracks[i] = (tracks[i][1], found.parameters)
            fits.append((found, proof))
        tried = ", ".join(f"{name} {value:.3g}" for name, value in zip(names, step, strict=True))
        report(f"{tried}: certified gap {max(proof.gap for _, proof in fits):.1e}")
        yield fits


def _ahead(problem: Any, before: Array | None, last: Array | None) -> Array | None:
    """Return where the next solution is expected: on the line through the last two, or at the last; None after a collapse."""
    if last is None or not problem.smallest_typical_scale(last) > 0:
        return None
    if before is None or not problem.smallest_typical_scale(before) > 0:
        return last
    guess = 2 * last - before
    better = problem.value_and_gradient(guess)[0] < problem.value_and_gradient(last)[0]
    return np.asarray(guess if better else last)


CV = (
    NOTHING
    | Count(2)
    | Having(("split",), "a splitter")
    | Having(("__iter__",), "pairs of training and validation rows")
)
"""What `cv` may be."""


def splits_of(search: Any, X: Any, y: Any, groups: Any) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the training and the validation rows of each fold, as numbers."""
    everyone, call = np.arange(len(y)), f"{type(search).__name__}(cv={short(search.cv):.80})"
    try:
        splitter = check_cv(search.cv, y, classifier=True)
        found = [(everyone[np.asarray(a)], everyone[np.asarray(b)]) for a, b in splitter.split(X, y, groups)]
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{call}.fit(..., groups={short(groups):.80}): {error}") from error
    if not found:
        raise ValueError(f"{call}: gives no folds. Give at least one.")
    return found


def refuse_lacking(search: Any, y: Any, held_out_weight: Any) -> None:
    """Raise where the training rows of a fold, whose classes are y, lack a class, or its validation rows have no weight."""
    call = f"{type(search).__name__}(cv={search.cv!r:.80})"
    if len(missing := np.setdiff1d(search.classes_, y)):
        raise ValueError(
            f"{call}: the training rows of a fold hold no row of class {missing.tolist()[0]!r}. Use fewer folds, or a "
            "stratified splitter."
        )
    if held_out_weight is not None and not np.any(held_out_weight):
        raise ValueError(
            f"{call}: sample_weight is zero for all validation rows of a fold. Use fewer folds, or leave out rows of weight "
            "zero."
        )


def results_of(tried: Mapping[str, Array], scores: Array, gaps: Array) -> dict[str, Array]:
    """Return `cv_results_` of what was tried, given scores and gaps of shape (n_folds, n_tried)."""
    mean = scores.mean(axis=0)
    return {
        **{f"param_{name}": column for name, column in tried.items()},
        **{f"split{i}_test_score": row for i, row in enumerate(scores)},
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        "max_gap": gaps.max(axis=0),
    }


def grid(values: Any, top: Callable[[], float], call: str, one: str, many: str) -> Array:
    """Return the sizes from the largest to the smallest: checked, or as many as are asked for from `top` down.

    `one` and `many` are what a size is called.
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
    """Return the factor at which the uncertainty is as large as WIDEST spreads of the rows."""
    rows, weights = problem.rows, problem.weights
    centre = rows.transpose_dot(weights / weights.sum())
    spread = np.sqrt(max(float(np.sum(rows.square_sums(weights / weights.sum())) - centre @ centre), 0.0))
    n = rows.n_features
    typical = float(np.mean([np.mean(problem.sets.support(unit)) for unit in np.eye(min(n, 100), n)]))
    # noise of the same size in every direction has sqrt(n) times this length
    return float(WIDEST * spread / (typical * np.sqrt(n))) if typical > 0 else 1.0


def averaged(problem: Any, parameters: Array, tol: float) -> tuple[Solution, Certificate]:
    """Return the given parameters as a solution, with what can be proved of them."""
    proof = certificate(problem, *problem.split(parameters))
    status = Status.SOLVED if proof.gap <= tol else Status.AVERAGED
    return Solution(parameters, status, proof.objective, 1, "average", proof.lower_bound), proof


def taken(values: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows, None of None."""
    return None if values is None else _safe_indexing(values, rows)


class PathSearch(LinearClassifier):
    """A classifier that follows a path in every fold, chooses the best step of it, and fits that on all rows.

    A class says what a step is made of (`_searched`), and how the plain classifier is made, problems are sized and models
    are examined.
    """

    _searched: tuple[str, ...]
    """The names of what a step is made of; the first is the size of the uncertainty."""
    parameter_table = {"cv": CV}
    cv: Any
    scoring: Any
    refit: Any
    n_jobs: Any

    def _model(self) -> Any:
        """Return the plain classifier."""
        raise NotImplementedError

    def _at(self, problem: Any, *step: float) -> Any:
        """Return the problem at a step of the path."""
        raise NotImplementedError

    def _examiner(
        self, model: Any, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]
    ) -> Callable[[Step], float]:
        """Return the function that scores a fitted `model` on these rows."""
        raise NotImplementedError

    def _adopt(self, plain: Any) -> None:
        """Take over what the plain classifier learned of its input."""
        for name in ("classes_", "n_features_in_", "feature_names_in_", "filtered_"):
            if hasattr(plain, name):
                setattr(self, name, getattr(plain, name))

    def _scorer(self, model: Any) -> Any:
        """Return scikit-learn's scorer, None where `scoring` is."""
        if self.scoring is None:
            return None
        if isinstance(self.scoring, type) or not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                f"{type(self).__name__}(scoring={self.scoring!r:.80}): give None, the name of one scikit-learn scorer, or a "
                "callable that takes (estimator, X, y)."
            )
        return check_scoring(model, self.scoring)

    def _best_of_folds(
        self,
        plain: Any,
        problems: Sequence[Any],
        steps: Sequence[Step],
        data: tuple[Any, Any, Any],
        metadata: Mapping[str, Any],
        groups: Any,
        solver: Any,
        report: Report,
    ) -> tuple[list[Any], list[tuple[Solution, Certificate]]]:
        """Set what the folds tell, and return the problems at the best step with their fits."""
        tol, max_iter = float(self.tol), int(self.max_iter)
        weights = None if data[2] is None else checked_weights(data[2], data[0], f"{type(self).__name__}.fit")
        X, y, *rest = indexable(data[0], column_or_1d(data[1]), weights, *metadata.values())
        splits = splits_of(self, X, y, groups)

        def one_fold(train_rows: NDArray[np.intp], test_rows: NDArray[np.intp]) -> tuple[Any, ...]:
            own, held_out = ([taken(part, rows) for part in (X, y, *rest)] for rows in (train_rows, test_rows))
            return self._fold(own, held_out, tuple(metadata), steps, solver, tol, max_iter, report)

        workers = Parallel(n_jobs=self.n_jobs, prefer="threads")
        folds = workers(delayed(one_fold)(*split) for split in splits)
        best = self._choose(folds, steps, tol)
        chosen = [self._at(problem, *steps[best]) for problem in problems]
        middle = [np.mean([fold[2][best][part] for fold in folds], axis=0) for part in (0, 1)]
        starts = plain._joined(chosen, *middle)
        if self.refit:
            fits = [
                train(problem, solver, tol=tol, max_iter=max_iter, start=start, report=report)
                for problem, start in zip(chosen, starts, strict=True)
            ]
        else:
            fits = [averaged(problem, start, tol) for problem, start in zip(chosen, starts, strict=True)]
        return chosen, fits

    def _fold(
        self,
        own: Sequence[Any],
        held_out: Sequence[Any],
        names: Sequence[str],
        steps: Sequence[Step],
        solver: Any,
        tol: float,
        max_iter: int,
        report: Report,
    ) -> tuple[list[float], list[float], list[tuple[Array, Array]]]:
        """Return validation scores, gaps and coefficients of one fold at every step of the path."""
        name = type(self).__name__
        X, y, sample_weight, *metadata = own
        model = self._model()
        refuse_lacking(self, y, held_out[2])
        problems = model._problems(X, y, sample_weight, dict(zip(names, metadata, strict=True)))
        X, y, sample_weight, *metadata = held_out
        score = self._examiner(model, X, y, sample_weight, dict(zip(names, metadata, strict=True)))
        scores, gaps, coefs = [], [], []
        path = followed(problems, steps, self._searched, self._at, tol, max_iter, solver, report)
        for step, fits in zip(steps, path, strict=True):
            model._unpack(problems, fits)
            scores.append(score(step))
            if not np.isfinite(scores[-1]):
                raise ValueError(
                    f"{name}(scoring={self.scoring!r:.80}): gave {scores[-1]} on the validation rows of a fold. "
                    "Use fewer folds, or a score that is always a number."
                )
            gaps.append(model.gap_)
            coefs.append((model.coef_, model.intercept_))
        return scores, gaps, coefs

    def _choose(self, folds: Sequence[Any], steps: Sequence[Step], tol: float) -> int:
        """Set what the folds tell, and return the number of the best step."""
        scores, gaps = (np.array([fold[i] for fold in folds]) for i in (0, 1))
        mean = scores.mean(axis=0)
        columns = np.array(steps).T
        # among equals the largest size, then the largest of what comes after it
        best = int(np.lexsort((*columns[::-1], mean))[-1])
        for name, column in zip(self._searched, columns, strict=True):
            setattr(self, f"{name}_", float(column[best]))
        self.best_score_ = float(mean[best])
        self.cv_results_ = results_of(dict(zip(self._searched, columns, strict=True)), scores, gaps)
        warn_of_gaps(gaps[np.isfinite(gaps)], tol)  # the fit to all rows says itself where no bound is known
        return best


def scored(scorer: Any, model: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return what a scorer says, given the rows' weights if its metric takes them."""
    metric = getattr(scorer, "_score_func", scorer)
    takes_weights = not isinstance(metric, type) and "sample_weight" in signature(metric).parameters
    weighting = {"sample_weight": sample_weight} if takes_weights and sample_weight is not None else {}
    found = scorer(model, X, y, **weighting)
    if not isinstance(found, Real):
        raise ValueError(f"scoring={scorer!r:.80}: gave {found!r:.80} on the validation rows, no number.")
    return float(found)
