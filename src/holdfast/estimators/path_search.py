"""The size of an uncertainty, and other settings, chosen by cross-validation along a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import check_scoring
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.parallel import Parallel, delayed

from holdfast._core.allowed import Number
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import EndOfPathWarning
from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report
from holdfast._proofs.certificate import Certificate, certificate
from holdfast._training.training import train
from holdfast.estimators.folds import CV, chosen, splits_of, taken
from holdfast.estimators.inputs import one_blas_thread
from holdfast.estimators.linear import LinearClassifier, Task
from holdfast.estimators.paths import Step, followed, warn_of_gaps
from holdfast.features.rows import checked_weights
from holdfast.solvers.selection import pick


@dataclass(kw_only=True)
class SearchTask(Task):
    """The problems that `fit` has to solve when the step of the path has been chosen."""

    plain: Any
    """The classifier that is fitted at a single step."""
    data: tuple[Any, Any, Any]
    """X, y and sample_weight as given."""
    metadata: Mapping[str, Any]
    groups: Any
    solver: Any
    starts: list[Any] = field(default_factory=list)
    """Starts for the problems: the mean of the folds' parameters at the best step."""


class PathSearch(LinearClassifier):
    """A classifier that follows a path in every fold, chooses the best step of it, and fits all rows at this step.

    A subclass states the settings of a step (`_searched`), the steps (`_path`), the plain classifier (`_model`), the
    problem at a step (`_at`), and how models are scored (`_examiner`).
    """

    _takes_streams = False
    _searched: tuple[str, ...]
    """The names of the settings that make up a step; the first is the size of the uncertainty."""
    _beyond: Mapping[tuple[str, str], str]
    """Advice if the best value of a setting is the "smallest" or the "largest" that was tried."""
    parameter_table = {"cv": CV, "cv_tol": Number(strictly=True)}
    cv: Any
    cv_tol: float
    scoring: Any
    refit: Any
    n_jobs: Any

    def _model(self) -> Any:
        """Return the plain classifier."""
        raise NotImplementedError

    def _path(self, task: SearchTask) -> list[Step]:
        """Return the steps of the path, and set the fitted attributes that hold them."""
        raise NotImplementedError

    def _at(self, problem: Any, *step: float) -> Any:
        """Return the problem at a step of the path."""
        raise NotImplementedError

    def _examiner(
        self, model: Any, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]
    ) -> Callable[[Step], float]:
        """Return the function that scores a fitted `model` on these rows."""
        raise NotImplementedError

    def _scorer(self, model: Any) -> Any:
        """Return scikit-learn's scorer, None if `scoring` is None."""
        if self.scoring is None:
            return None
        if isinstance(self.scoring, type) or not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                f"{type(self).__name__}(scoring={self.scoring!r:.80}): give None, the name of one scikit-learn scorer, or a "
                "callable that takes (estimator, X, y)."
            )
        return check_scoring(model, self.scoring)

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        plain = self._model()
        task = plain._task(X, y, sample_weight, metadata)
        plain.__dict__ |= task.learned
        seen = {name: value for name, value in vars(plain).items() if name in ("n_features_in_", "feature_names_in_")}
        self._scorer(plain)
        solver = None if self.solver is None else pick(task.problems[0], self.solver).seeded(self.random_state)
        return SearchTask(
            task.problems,
            task.learned | seen,
            task.row_factor,
            task.risk,
            plain=plain,
            data=(X, y, sample_weight),
            metadata=metadata,
            groups=others["groups"],
            solver=solver,
        )

    def _learn(self, task: Task, report: Report) -> None:
        assert isinstance(task, SearchTask)
        with one_blas_thread:
            steps = self._path(task)
            folds = self._folds(task, steps, report)
        scores, gaps = (np.array([fold[part] for fold in folds]) for part in (0, 1))
        columns = np.array(steps).T
        best, told = chosen(dict(zip(self._searched, columns, strict=True)), scores, gaps, list(columns))
        # the fit to all rows warns by itself if no bound is known
        warn_of_gaps(gaps[np.isfinite(gaps)], float(self.cv_tol), "cv_tol")
        task.learned |= told
        task.problems = [self._at(problem, *steps[best]) for problem in task.problems]
        middle = [np.mean([fold[2][best][part] for fold in folds], axis=0) for part in (0, 1)]
        # at the best step, the folds' solutions are near the solution for all rows
        task.starts = task.plain._joined(task.problems, *middle)
        for name, tried in zip(self._searched, columns, strict=True):
            self._warn_of_end(name, np.unique(tried), tried[best], is_flat=not np.any(middle[0]))

    def _warn_of_end(self, name: str, tried: Array, best: float, *, is_flat: bool) -> None:
        """Warn if the best of three or more values is at the end of the grid.

        A best value of 0 raises no warning, nor does the largest one if all weights are 0 there, `is_flat`: they stay 0 beyond.
        """
        ends = {tried[0]: "smallest"} if is_flat else {tried[0]: "smallest", tried[-1]: "largest"}
        if best > 0 and best in ends and len(tried) > 2:
            warn_caller(
                f"{type(self).__name__}.fit: the {name} chosen, {best:.3g}, is the {ends[best]} of {len(tried)} that were "
                f"tried, so that one beyond may be better. {self._beyond[name, ends[best]]}",
                EndOfPathWarning,
            )

    def _solved(self, task: Task, report: Report) -> list[tuple[Solution, Certificate]]:
        assert isinstance(task, SearchTask)
        pairs = list(zip(task.problems, task.starts, strict=True))
        if not self.refit:
            # without a fit to all rows the mean of the folds is the model, and it gets a proof of its own
            return [_averaged(problem, start, float(self.tol)) for problem, start in pairs]
        limits: dict[str, Any] = {"tol": float(self.tol), "max_iter": int(self.max_iter), "report": report}
        with one_blas_thread:
            return [train(problem, task.solver, start=start, **limits) for problem, start in pairs]

    def _warn(self, task: Task) -> None:
        if self.refit:
            super()._warn(task)

    def _folds(self, task: SearchTask, steps: Sequence[Step], report: Report) -> list[tuple[Any, ...]]:
        """Return the result of `_fold` for each fold."""
        given, y, sample_weight = task.data
        weights = None if sample_weight is None else checked_weights(sample_weight, given, f"{type(self).__name__}.fit")
        X, y, *rest = indexable(given, column_or_1d(y), weights, *task.metadata.values())

        def one_fold(own: NDArray[np.intp], held_out: NDArray[np.intp]) -> tuple[Any, ...]:
            parts = ([taken(part, rows) for part in (X, y, *rest)] for rows in (own, held_out))
            return self._fold(task, steps, *parts, report=report)

        workers = Parallel(n_jobs=self.n_jobs, prefer="threads")
        return list(workers(delayed(one_fold)(*split) for split in splits_of(self, X, y, weights, task.groups)))

    def _fold(
        self, task: SearchTask, steps: Sequence[Step], own: Sequence[Any], held_out: Sequence[Any], *, report: Report
    ) -> tuple[list[float], list[float], list[tuple[Array, Array]]]:
        """Return the validation scores, gaps and coefficients of one fold, at every step of the path."""
        model, (X, y, sample_weight, *metadata) = self._model(), own
        problems = model._problems(X, y, sample_weight, dict(zip(task.metadata, metadata, strict=True)))
        X, y, sample_weight, *metadata = held_out
        score = self._examiner(model, X, y, sample_weight, dict(zip(task.metadata, metadata, strict=True)))
        scores, gaps, coefs = [], [], []
        tol, max_iter = float(self.cv_tol), int(self.max_iter)
        path = followed(problems, steps, self._searched, self._at, tol, max_iter, task.solver, report)
        for step, fits in zip(steps, path, strict=True):
            model._unpack(problems, fits)
            scores.append(score(step))
            if not np.isfinite(scores[-1]):
                raise ValueError(
                    f"{type(self).__name__}(scoring={self.scoring!r:.80}): gave {scores[-1]} on the validation rows of a fold. "
                    "Use fewer folds, or a score that is always a number."
                )
            gaps.append(model.gap_)
            coefs.append((model.coef_, model.intercept_))
        return scores, gaps, coefs


def _averaged(problem: Any, parameters: Array, tol: float) -> tuple[Solution, Certificate]:
    """Return the given parameters as a solution, with their proof."""
    proof = certificate(problem, *problem.split(parameters))
    status = Status.SOLVED if proof.gap <= tol else Status.AVERAGED
    return Solution(parameters, status, proof.objective, 1, "average", proof.lower_bound), proof
