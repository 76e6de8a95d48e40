"""Paths over the size of the sets, and the size chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

import numpy as np

from holdfast._core.allowed import arguments
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.progress import reporter
from holdfast._core.uncertainty import UncertaintySet
from holdfast._training.critical import collapse_bound
from holdfast.ambiguity import LabelFlips
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.folds import scored
from holdfast.estimators.inputs import one_blas_thread, shape_of
from holdfast.estimators.linear import predicted_codes
from holdfast.estimators.path_search import PathSearch, SearchTask
from holdfast.estimators.paths import DEFAULT_SIZES, FitPath, Step, followed, grid, warn_of_gaps, wide
from holdfast.estimators.robust_linear import RobustLinearClassifier
from holdfast.estimators.units import warn_of_units
from holdfast.uncertainty import Ball

NAME = "RobustLinearClassifierCV"
SEARCHED = ("radius",)
CERTIFIED = "certified"


@dataclass
class RadiusPath(FitPath):
    """Fits along a path of sizes of the sets.

    Attributes
    ----------
    radii : ndarray of shape (n_radii,)
        From the largest to the smallest.
    coefs : ndarray of shape (n_radii, 1 or n_classes, n_features)
    intercepts : ndarray of shape (n_radii, 1 or n_classes)
    objectives, lower_bounds, gaps : ndarray of shape (n_radii,)
        As `objective_`, `lower_bound_` and `gap_` of :class:`RobustLinearClassifier`.
    """

    radii: Array
    coefs: Array
    intercepts: Array
    objectives: Array
    lower_bounds: Array
    gaps: Array

    def _sizes(self) -> tuple[str, Array]:
        return "radius", self.radii


@arguments()
@takes_metadata
def radius_path(
    X: Any,
    y: Any,
    radii: int | Sequence[float] | Array = DEFAULT_SIZES,
    *,
    uncertainty: UncertaintySet | None = None,
    loss: str | Loss = "hinge",
    penalty: str | None = "l2",
    alpha: float = 1.0,
    kappa: float = 1.0,
    multiclass: str = "ovr",
    filter_threshold: float | None = None,
    fit_intercept: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    verbose: int = 0,
    **metadata: Unpack[SetsByRow],
) -> RadiusPath:
    """Fit :class:`RobustLinearClassifier` for many sizes of the sets; each starts by extrapolation of the last fits.

    Parameters
    ----------
    X, y, loss, penalty, alpha, kappa, multiclass, filter_threshold, fit_intercept, class_weight, sample_weight, tol, max_iter,
            verbose
        As for :class:`RobustLinearClassifier` and its `fit`.
    radii : int or array-like of floats, default=30
        Multiples of the sets, in any order; or their number: then they go from a size at which w = 0 is known to be
        optimal down to a thousandth of it.
    uncertainty : UncertaintySet, default=None
        The shape of the sets. None means ``Ball(1.0)``; a set without a stated size has size 1.
    **metadata
        The sizes of sets that differ by row, as in `fit`.

    Returns
    -------
    RadiusPath

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> path = radius_path(*load_iris(return_X_y=True), radii=[0.1, 1.0], loss="logistic")
    >>> path.radii
    array([1. , 0.1])
    >>> path.coefs.shape, bool(path.gaps.max() < 1e-6)
    ((2, 3, 4), True)
    """
    model = RobustLinearClassifier(
        shape_of(uncertainty, Ball(1.0)),
        loss=loss,
        penalty=penalty,
        alpha=alpha,
        kappa=kappa,
        multiclass=multiclass,
        filter_threshold=filter_threshold,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        tol=tol,
        max_iter=max_iter,
        verbose=verbose,
    )
    model.check_parameters("radius_path")
    _refuse_of_training(model._stated_set(), "radius_path")
    problems = model._problems(X, y, sample_weight, metadata)
    warn_of_units(X, metadata, "radius_path", factor=model._stated_set().row_factor)
    with one_blas_thread:
        factors = grid(radii, lambda: _largest(problems), "radius_path(radii", "radius", "radii")
        steps = [(factor,) for factor in factors]
        fitted = []
        for fits in followed(problems, steps, SEARCHED, _at, tol, max_iter, report=reporter(verbose)):
            model._unpack(problems, fits)
            fitted.append((model.coef_, model.intercept_, model.objective_, model.lower_bound_, model.gap_))
    path = RadiusPath(factors, *(np.array(column) for column in zip(*fitted, strict=True)))
    warn_of_gaps(path.gaps, tol)
    return path


def _refuse_of_training(uncertainty: Any, call: str) -> None:
    """Raise if twice the set does not move scores twice as far."""
    if isinstance(uncertainty, UncertaintySet) and uncertainty.is_of_training:
        raise ValueError(
            f"{call}(uncertainty={uncertainty!r}): it moves the rows too, so no radius describes it. Search over its "
            "share: GridSearchCV(RobustLinearClassifier(...), {'uncertainty__share': [...]})."
        )


def _at(problem: Any, factor: float) -> Any:
    return problem.sized(factor)


def _largest(problems: Sequence[Any]) -> float:
    """Return the multiple at which all problems are known to collapse; if none is, that of `LARGEST_SIZE` spreads."""
    known = max(collapse_bound(problem) if problem.may_be_bounded else np.inf for problem in problems)
    return known if 0 < known < np.inf else wide(problems[0])


class RobustLinearClassifierCV(PathSearch, RobustLinearClassifier):
    """RobustLinearClassifier with the size of the sets chosen by cross-validation.

    The classifier is fitted for a path of multiples of the stated sets, from large to small; each fit starts from an
    extrapolation of the last ones. Every fit of every fold carries its certificate; the largest gap is in
    ``cv_results_``.

    If you know how large the errors are, do not search: use :class:`RobustLinearClassifier` with the sets as they are.
    Validation rows are as clean as the training rows, so plain accuracy favours the smallest radius, and so no
    protection. ``scoring="certified"`` measures the protection itself: the share of validation rows that are classified
    correctly wherever they are in their stated sets.

    Parameters
    ----------
    radii : int or array-like of floats, default=30
        The multiples of the sets to try; or their number: then they go from a size at which w = 0 is known to be
        optimal (or, if none is known, three times the spread of the rows) down to a thousandth of it.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means that many stratified folds.
    scoring : str or callable, default=None
        "certified": the share of validation rows that are right for every admissible input, with the sets as stated, at
        multiple 1. None: the same if sets are stated with their size, here or in `fit` (and not noise, which has no
        bounds); else accuracy. Otherwise a scikit-learn scorer, which is given the validation rows as they are, and
        their weights if its metric takes them.
    cv_tol : float, default=1e-3
        The largest certified gap to accept in the folds. Smaller gaps hardly change validation scores
        (``benchmarks/fold_accuracy.md``). The fit on all rows is certified to `tol`.
    refit : bool, default=True
        Whether to fit on all rows with the chosen radius. False: take the mean of the folds' coefficients; `gap_` is
        then that of the mean.
    n_jobs : int, default=None
        Folds fitted at the same time, in threads.
    uncertainty : UncertaintySet, default=None
        The sets at multiple 1, which are also those of `certify`. None means ``Ball(1.0)``; a set without a stated size
        has size 1.
    loss, ambiguity, penalty, alpha, kappa, multiclass, filter_threshold, fit_intercept, class_weight, solver, tol, max_iter,
            verbose, random_state
        As in :class:`RobustLinearClassifier`. State label flips as a share, as folds have fewer rows.

    Attributes
    ----------
    radius_ : float
        The chosen multiple of the sets.
    radii_ : ndarray of shape (n_radii,)
        The multiples tried, from the largest to the smallest.
    best_score_ : float
        The mean validation score of the chosen radius. Ties go to the largest radius.
    cv_results_ : dict of ndarrays
        ``param_radius``, ``split0_test_score`` ..., ``mean_test_score``, ``std_test_score``, ``rank_test_score`` and
        ``max_gap``, the largest certified gap of the folds.
    coef_, intercept_, classes_, objective_, lower_bound_, gap_, ...
        As in :class:`RobustLinearClassifier`.

    Examples
    --------
    >>> from holdfast import Box, RobustLinearClassifierCV
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> scale = data.X.std(axis=0)
    >>> model = RobustLinearClassifierCV([0.3, 1.0, 3.0], uncertainty=Box(), cv=3)
    >>> model = model.fit(data.X / scale, data.y, X_std=data.X_std / scale)
    >>> model.radius_, model.gap_ < 1e-6, bool(model.cv_results_["max_gap"].max() < 1e-3)
    (1.0, True, True)
    """

    _searched = SEARCHED
    _beyond = {
        (
            "radius",
            "smallest",
        ): 'Give smaller radii; where rows to come are less exact than these, use scoring="certified".',
        ("radius", "largest"): "Give larger radii.",
    }

    def __init__(
        self,
        radii: Any = DEFAULT_SIZES,
        *,
        cv: Any = 5,
        scoring: Any = None,
        cv_tol: float = 1e-3,
        refit: bool = True,
        n_jobs: int | None = None,
        uncertainty: UncertaintySet | None = None,
        loss: str | Loss = "hinge",
        ambiguity: LabelFlips | None = None,
        penalty: str | None = "l2",
        alpha: float = 1.0,
        kappa: float = 1.0,
        multiclass: str = "ovr",
        filter_threshold: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            uncertainty,
            loss=loss,
            ambiguity=ambiguity,
            penalty=penalty,
            alpha=alpha,
            kappa=kappa,
            multiclass=multiclass,
            filter_threshold=filter_threshold,
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            verbose=verbose,
            random_state=random_state,
        )
        del self.weight_error, self.warm_start
        self.radii = radii
        self.cv = cv
        self.scoring = scoring
        self.cv_tol = cv_tol
        self.refit = refit
        self.n_jobs = n_jobs

    @with_callbacks
    @takes_metadata
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **metadata: Unpack[SetsByRow],
    ) -> Self:
        """Choose the size of the sets by cross-validation, and fit.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`RobustLinearClassifier.fit`.
        **metadata
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter, such as ``GroupKFold``.
        """
        return self._fitted(X, y, sample_weight, metadata, groups=groups)

    def _path(self, task: SearchTask) -> list[Step]:
        self.radii_ = grid(self.radii, lambda: _largest(task.problems), f"{NAME}(radii", "radius", "radii")
        return [(factor,) for factor in self.radii_]

    def _model(self) -> RobustLinearClassifier:
        _refuse_of_training(self._stated_set(), f"{NAME}.fit")
        return RobustLinearClassifier(
            self._stated_set(),
            loss=self.loss,
            ambiguity=self.ambiguity,
            penalty=self.penalty,
            alpha=self.alpha,
            kappa=self.kappa,
            multiclass=self.multiclass,
            filter_threshold=self.filter_threshold,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _at(self, problem: Any, *step: float) -> Any:
        return _at(problem, *step)

    def _scorer(self, model: Any) -> Any:
        is_certified = self.scoring == CERTIFIED if isinstance(self.scoring, str) else self.scoring is None
        return None if is_certified else super()._scorer(model)

    def _examiner(
        self, model: Any, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]
    ) -> Callable[[Step], float]:
        scorer = self._scorer(model)
        is_certified = self.scoring == CERTIFIED or self._is_bounded(X, metadata)
        # checked once, and not at every step
        rows = model._rows_to_score(X)

        def score(step: Step) -> float:
            if scorer is not None:
                return scored(scorer, model, X, y, sample_weight)
            right = model.classes_[predicted_codes(model._scores(rows))] == y
            if is_certified:
                right &= model.certify(X, **metadata)
            return float(np.average(right, weights=sample_weight))

        return score

    def _is_bounded(self, X: Any, metadata: Mapping[str, Any]) -> bool:
        """Return whether the stated errors of rows have bounds, so that predictions can be certified."""
        has_size = bool(metadata) or (self.uncertainty is not None and self.uncertainty.has_size)
        return has_size and self._stated_set().split(X if hasattr(X, "shape") else np.asarray(X), metadata)[1] is None

    def _stated_set(self) -> UncertaintySet:
        return shape_of(self.uncertainty, Ball(1.0))

    def stated_uncertainty(self) -> tuple[str, UncertaintySet]:
        """Return the parameter that states the set, and the set."""
        return "uncertainty", self._stated_set()
