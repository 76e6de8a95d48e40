"""The base of all linear classifiers: training problem by problem, coefficients, scores, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.allowed import JOBS, SEED, VERBOSE, Count, Number, Switch, short
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.progress import reporter
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report
from holdfast._core.version import __version__
from holdfast._core.whole_fits import WholeFits
from holdfast._proofs.certificate import Certificate
from holdfast._training.training import train
from holdfast.estimators.callbacks import CallbackSupportMixin, announced
from holdfast.estimators.certified import CertifiedPredictions
from holdfast.estimators.inputs import blas_threads_for
from holdfast.estimators.units import warn_of_units

ROUTING = (
    "Under cross-validation scikit-learn hands X_std and the like to scorers only after "
    "sklearn.set_config(enable_metadata_routing=True); scorers given by name predict without them even then."
)
"""Advice in errors and warnings about missing metadata: scorers, for example, are not given them by default."""


ELSEWHERE = {
    "carrying_rows": "GaussianRobustClassifier has it, with loss='hinge' say",
    "certified_margin": "RobustLinearClassifier and other linear classifiers of holdfast have it",
    "certify": "RobustLinearClassifier and other linear classifiers of holdfast have it; certified_radius asks any",
    "distrust": "SafeClassifier has it",
    "flip_probability": "GaussianRobustClassifier has it, holdfast.flip_probability(model, X, noise) asks any classifier",
    "is_certain": "FeatureDeletionClassifier(missing='delete') has it",
    "missing_report": "FeatureDeletionClassifier(missing='delete') has it",
    "online_bound": "FeatureDeletionPerceptron has it",
    "partial_fit": "GaussianRobustClassifier, RobustLinearClassifier and FeatureDeletionPerceptron have it",
    "predict_log_proba": "RobustLinearClassifier and GaussianRobustClassifier have it with loss='logistic'",
    "predict_proba": "RobustLinearClassifier and GaussianRobustClassifier have it with loss='logistic'",
    "proof_weights_": "RobustLinearClassifier has it after fit, GaussianRobustClassifier with loss='hinge' and its kin",
    "score_interval": "FeatureDeletionClassifier(missing='delete') has it",
    "score_std": "GaussianRobustClassifier has it",
    "worst_case_data": "RobustLinearClassifier(uncertainty) has it, holdfast.evaluate.worst_case asks any classifier",
}
"""Attributes that some classifiers lack, and where each can be found."""


@dataclass
class Task:
    """The problems that `fit` has to solve, and the fitted attributes that are known before."""

    problems: Sequence[Any]
    learned: dict[str, Any]
    """Fitted attributes that are known before the problems are solved."""
    row_factor: float = 1.0
    """The number that multiplies the errors stated for each row."""
    risk: Any = None
    """The object that made the problems."""


class LinearClassifier(CertifiedPredictions, WholeFits, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """A classifier with linear scores, trained by one problem, or by one for each class."""

    parameter_table = {
        "fit_intercept": Switch(),
        "max_iter": Count(),
        "n_jobs": JOBS,
        "random_state": SEED,
        "refit": Switch(),
        "tol": Number(strictly=True),
        "verbose": VERBOSE,
        "warm_start": Switch(),
    }
    """Parameters that mean the same in all classes; each class adds its own."""
    classes_: NDArray[Any]
    coef_: Array
    # defaults for classes whose constructor does not take these
    tol: Any = 1e-6
    solver: Any = None
    verbose: Any = 0
    random_state: Any = None
    warm_start: Any = False
    max_iter: Any

    if not TYPE_CHECKING:  # a type checker would accept any name as an attribute

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            for cls in type(self).__mro__:
                if hasattr(vars(cls).get(name), "__get__"):
                    return vars(cls)[name].__get__(self, type(self))  # raises the reason again
            if name in ELSEWHERE:
                raise AttributeError(f"{kind} has no {name}. {ELSEWHERE[name]}.")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fitted(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Self:
        """Check the arguments, make problems of them, solve and prove these, and set the fitted attributes last."""
        task = self._task(X, y, sample_weight, metadata, **others)
        warn_of_units(X, metadata, f"{type(self).__name__}.fit", factor=task.row_factor)
        report, finished = announced(self, reporter(self.verbose), X, y)
        self._learn(task, report)
        self._complete(task, self._solved(task, report))
        self._warn(task)
        finished()
        return self

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        """Return the problems that `fit` has to solve, after checking all arguments."""
        raise NotImplementedError

    def _learn(self, task: Task, report: Report) -> None:
        """Complete the problems by parameters that have to be learned first, such as the size of the sets."""

    def _problems(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]) -> list[Any]:
        """Return the problems that `fit` has to solve, and set the fitted attributes that are known before."""
        task = self._task(X, y, sample_weight, metadata)
        self.__dict__ |= task.learned
        return list(task.problems)

    def _complete(self, task: Task, fits: Sequence[tuple[Solution, Certificate]]) -> None:
        """Set the fitted attributes."""
        self.__dict__ |= task.learned
        self._unpack(task.problems, fits)

    def _warn(self, task: Task) -> None:
        """Warn of a collapse and of a gap above `tol`, with the cure."""
        self._warn_uncertified()

    def _quoted(self, *names: str) -> str:
        """Return the call that made this estimator, with some of its parameters, for errors to quote."""
        given = ", ".join(f"{name}={short(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({given})"

    def _solved(self, task: Task, report: Report) -> list[tuple[Solution, Certificate]]:
        """Return each problem's solution with its proof."""
        problems, rows = task.problems, task.problems[0].rows
        # the largest product of a step is that of a Hessian
        with blas_threads_for(rows.n_samples * rows.n_features**2):
            starts = self._starts(problems)
            return [self._train(problem, start, report) for problem, start in zip(problems, starts, strict=True)]

    def _train(self, problem: Any, start: Array | None, report: Report) -> tuple[Solution, Certificate]:
        """Return a problem's solution with its proof."""
        return train(
            problem,
            self.solver,
            tol=float(self.tol),
            # by a class attribute max_iter scikit-learn would take every fit for one that counts iterations
            max_iter=int(getattr(self, "max_iter", 1000)),
            start=start,
            random_state=self.random_state,
            report=report,
        )

    def _set_coefficients(self, coef: Array, intercept: Array, *, joint: bool) -> None:
        """Set the coefficients; those of a joint fit are shifted to sum to 0 over the classes, which changes no prediction."""
        if joint:
            # so equal rows become exactly 0; less their mean alone they might not, as it is rounded
            coef, intercept = coef - coef[0], intercept - intercept[0]
            coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
        self.coef_, self.intercept_ = coef, intercept

    def _unpack(self, problems: Sequence[Any], fits: Sequence[tuple[Solution, Certificate]]) -> Solution:
        """Set the fitted attributes, and return a solution that is not solved, if there is one."""
        parts = [problem.split(found.parameters) for problem, (found, _) in zip(problems, fits, strict=True)]
        coef = np.concatenate([np.atleast_2d(w) for w, _ in parts])
        intercept = np.concatenate([np.atleast_1d(b) for _, b in parts])
        self._set_coefficients(coef, intercept, joint=len(problems) < len(coef))
        self.objective_ = float(sum(proof.objective for _, proof in fits))
        self.lower_bound_ = float(sum(proof.lower_bound for _, proof in fits))
        # gaps are relative to the objective; the floor keeps them finite where that is 0
        floor = sum(problem.floor for problem in problems)
        self.gap_ = float((self.objective_ - self.lower_bound_) / max(self.objective_, floor))
        self.norm_bound_ = float(max(proof.norm_bound for _, proof in fits))
        # status and advice are those of a problem that is not solved, if there is one
        worst = min((found for found, _ in fits), key=lambda found: found.status is Status.SOLVED)
        self.n_iter_ = max(1, *(found.n_iter for found, _ in fits))
        self.solution_ = worst.summary() | {"objective": self.objective_, "lower_bound": self.lower_bound_}
        self.__dict__.pop("proof_weights_", None)
        if all(proof.dual is not None for _, proof in fits):
            self.proof_weights_ = np.concatenate(
                [
                    np.atleast_2d(problem.signed(proof.dual).T)
                    for problem, (_, proof) in zip(problems, fits, strict=True)
                ]
            )
        self.holdfast_version_ = __version__
        return worst

    def _starts(self, problems: Sequence[Any]) -> list[Array | None]:
        """Return starts for the problems: the last fit, with `warm_start` and if it has the same shape; else None."""
        rows = sum(problem.n_vectors for problem in problems)
        coef, intercept = self._before_fit("coef_"), self._before_fit("intercept_")
        if not self.warm_start or np.shape(coef) != (rows, problems[0].rows.n_features):
            return [None] * len(problems)
        return self._joined(problems, coef, intercept)

    def _joined(self, problems: Sequence[Any], coef: Array, intercept: Array) -> list[Any]:
        """Return coefficients and intercepts as the parameters of each problem."""
        if len(problems) == len(coef):
            return [p.join(w, float(b)) for p, w, b in zip(problems, coef, intercept, strict=True)]
        return [problems[0].join(coef, intercept)]

    def _warn_uncertified(self) -> None:
        """Warn if the gap is above `tol`, with the cure."""
        status = Status[str(self.solution_["status"]).upper()]
        if status is not Status.SOLVED:
            warn_caller(f"Certified gap {self.gap_:.2g}, tol {self.tol:g}. {status.value}", ConvergenceWarning)

    def decision_function(self, X: Any) -> Array:
        """Return the scores w'x + b.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive means ``classes_[1]``. More: the class with the highest score is predicted.
        """
        check_is_fitted(self)
        return self._scores(self._rows_to_score(X))

    def _rows_to_score(self, X: Any) -> Any:
        """Return checked rows."""
        try:
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        except OverflowError as error:
            raise ValueError(f"{type(self).__name__}: some numbers of X are too large ({error}).") from error

    def _scores(self, X: Any) -> Array:
        scores = np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)
        return scores.ravel() if len(self.coef_) == 1 else scores

    def predict(self, X: Any) -> Any:
        """Return the predicted class of each row, shape (n_samples,)."""
        codes = predicted_codes(self.decision_function(X))
        return self.classes_[codes]


def shares_of_classes(positive: Array) -> Array:
    """Return the probabilities of each class against the rest, scaled to sum to 1; equal ones if all are 0."""
    # far from every class all of them may underflow
    total = positive.sum(axis=1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1.0 / positive.shape[1])


def predicted_codes(scores: Array) -> NDArray[np.intp]:
    """Return the index of the predicted class."""
    return (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)
