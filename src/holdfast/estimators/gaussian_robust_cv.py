"""Paths over the noise, and the noise or the ridge chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.utils.validation import _num_samples

from holdfast._core.allowed import LARGEST, NOTHING, Number, arguments, as_numbers, short
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.progress import reporter
from holdfast._core.uncertainty import UncertaintySet
from holdfast._training.collapse import critical_factor
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.folds import scored
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier
from holdfast.estimators.inputs import one_blas_thread, shape_of
from holdfast.estimators.linear import predicted_codes
from holdfast.estimators.path_search import PathSearch, SearchTask
from holdfast.estimators.paths import DEFAULT_SIZES, FitPath, Step, followed, grid, warn_of_gaps, wide
from holdfast.estimators.scores import in_deviations, pushes
from holdfast.estimators.units import warn_of_units
from holdfast.uncertainty import GaussianNoise

NAME = "GaussianRobustClassifierCV"
SEARCHED = ("noise", "alpha")


@dataclass
class NoisePath(FitPath):
    """Fits along a path of noises.

    Attributes
    ----------
    noises : ndarray of shape (n_noises,)
        From the largest to the smallest.
    coefs : ndarray of shape (n_noises, 1 or n_classes, n_features)
    intercepts : ndarray of shape (n_noises, 1 or n_classes)
    objectives, lower_bounds, gaps : ndarray of shape (n_noises,)
        As `objective_`, `lower_bound_` and `gap_` of :class:`GaussianRobustClassifier`.
    """

    noises: Array
    coefs: Array
    intercepts: Array
    objectives: Array
    lower_bounds: Array
    gaps: Array

    def _sizes(self) -> tuple[str, Array]:
        return "noise", self.noises


@arguments()
@takes_metadata
def noise_path(
    X: Any,
    y: Any,
    noises: int | Sequence[float] | Array = DEFAULT_SIZES,
    *,
    noise: float | GaussianNoise | None = None,
    loss: str | Loss = "logistic",
    alpha: float | None = None,
    multiclass: str | None = None,
    fit_intercept: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    verbose: int = 0,
    **metadata: Unpack[NoiseByRow],
) -> NoisePath:
    """Fit :class:`GaussianRobustClassifier` for many noises; each fit starts from an extrapolation of the last ones.

    Parameters
    ----------
    X, y, noise, loss, alpha, multiclass, fit_intercept, class_weight, sample_weight, tol, max_iter, verbose
        As for :class:`GaussianRobustClassifier` and its `fit`.
    **metadata
    noises : int or array-like of floats, default=30
        Multiples of `noise` (of 1.0 if `noise` is None, so standard deviations), in any order; or their number: then
        they go from the noise at which the classifier collapses (or three times the spread of the rows, if that is
        less) down to a thousandth of it.

    Returns
    -------
    NoisePath

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> path = noise_path(*load_iris(return_X_y=True), noises=[0.1, 1.0], loss="hinge")
    >>> path.noises
    array([1. , 0.1])
    >>> path.coefs.shape, bool(path.gaps.max() < 1e-6)
    ((2, 3, 4), True)
    """
    model = GaussianRobustClassifier(
        shape_of(noise, 1.0),
        loss=loss,
        alpha=alpha,
        multiclass=multiclass,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        tol=tol,
        max_iter=max_iter,
        verbose=verbose,
    )
    model.check_parameters("noise_path")
    _refuse_multiples(model._noise(), "noise_path")
    problems = model._problems(X, y, sample_weight, metadata)
    warn_of_units(X, metadata, "noise_path", factor=model._noise().row_factor)
    with one_blas_thread:
        factors = _grid(noises, problems, "noise_path(noises")
        steps = [(factor, problems[0].alpha) for factor in factors]
        fitted = []
        path_of = followed(problems, steps, SEARCHED, _at, tol, max_iter, report=reporter(verbose))
        for fits in path_of:
            model._unpack(problems, fits)
            fitted.append((model.coef_, model.intercept_, model.objective_, model.lower_bound_, model.gap_))
    path = NoisePath(factors, *(np.array(column) for column in zip(*fitted, strict=True)))
    warn_of_gaps(path.gaps, tol)
    return path


def _at(problem: Any, factor: float, alpha: float) -> Any:
    return problem.having(sets=problem.sets.scaled(factor), alpha=alpha)


def _grid(noises: Any, problems: Sequence[Any], call: str) -> Array:
    """Return the noises from the largest to the smallest: those given, checked, or a default grid."""
    values = grid(noises, lambda: _largest(problems), call, "noise", "noises")
    if problems[0].loss.is_homogeneous and values[-1] == 0:
        raise ValueError(
            f"{call}=...): without noise this loss is the plain hinge. Leave out 0, or use loss='logistic'."
        )
    return values


def _largest(problems: Sequence[Any]) -> float:
    """Return the multiple of the noise at which a binary fit collapses, at most `LARGEST_SIZE` spreads of the rows."""
    problem, top = problems[0], wide(problems[0])
    if len(problems) == 1 and problem.sets.is_common and np.isfinite(problem.constant_objective()):
        critical = critical_factor(problem)
        top = min(top, critical) if critical > 0 else top
    return float(top)


class GaussianRobustClassifierCV(PathSearch, GaussianRobustClassifier):
    r"""GaussianRobustClassifier with the noise, or the ridge, chosen by cross-validation.

    *Noise unknown* (`noise` is None or one number, and no ``X_std`` or the like is given): the noise is a
    hyper-parameter. The classifier is fitted for a path of noises from large to small; each fit starts from an
    extrapolation of the last ones.

    *Noise known* (``X_std``, ``X_cov`` or ``X_factor``, or ``GaussianNoise`` with a std per feature, a cov or a
    factor): the noise is not searched, because validation rows as clean as the training rows would always favour the
    smallest noise, and so no protection. The noise is taken as stated, or multiplied by `deploy_noise`. The ridge is
    chosen by the *expected* accuracy under that noise on the validation rows, :math:`\mathrm{mean}\,\Phi(y f(x) / t)`,
    which is exact, without sampling. With more than two classes it is a lower bound, 1 minus the sum of the
    probabilities that a rival wins.

    Every fit of every fold carries its certificate; the largest gap is in ``cv_results_``. Linear scores only: with a kernel
    search by :class:`sklearn.model_selection.GridSearchCV`, or here on features such as those of ``Nystroem``.

    Parameters
    ----------
    noises : int or array-like of floats, default=30
        The noises to try, in multiples of `noise` (of 1.0 if `noise` is None, so standard deviations); or their number:
        then they go from the noise at which the classifier collapses (or three times the spread of the rows, if that is
        less) down to a thousandth of it. Leave it out if the noise is known.
    alphas : array-like of floats, default=None
        The ridges to try. None: the loss's default when the noise is searched; 0.0001 to 10000 in ten steps when it is
        known (and 0 for the perspective losses).
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means that many stratified folds.
    scoring : str or callable, default=None
        None: accuracy, expected under the known noise or under `deploy_noise`. Otherwise a scikit-learn scorer, which
        sees the validation rows as they are, and their weights if its metric takes them.
    deploy_noise : float, default=None
        How noisy the rows will be at prediction. If the noise is known, it is multiplied by this number in training and
        validation. If it is unknown, validation rows are scored under this multiple of `noise` (None: as they are).
    cv_tol : float, default=1e-3
        The largest certified gap to accept in the folds. Smaller gaps hardly change validation scores
        (``benchmarks/fold_accuracy.md``). The fit on all rows is certified to `tol`.
    refit : bool, default=True
        Whether to fit on all rows with the chosen noise and ridge. False: take the mean of the folds' coefficients;
        `gap_` is then that of the mean.
    n_jobs : int, default=None
        Folds fitted at the same time, in threads.
    noise, loss, multiclass, fit_intercept, class_weight, solver, tol, max_iter, verbose, random_state
        As in :class:`GaussianRobustClassifier`.

    Attributes
    ----------
    noise_ : float
        The chosen noise, in multiples of `noise`; if the noise is known, its multiple.
    alpha_ : float
        The ridge chosen.
    noises_ : ndarray of shape (n_noises,)
        The noises tried, from the largest to the smallest.
    alphas_ : ndarray of shape (n_alphas,)
    best_score_ : float
        The mean validation score of the chosen noise and ridge. Ties go to the largest noise, then to the largest
        ridge.
    cv_results_ : dict of ndarrays
        ``param_noise``, ``param_alpha``, ``split0_test_score`` ..., ``mean_test_score``, ``std_test_score``,
        ``rank_test_score`` and ``max_gap``, the largest certified gap of the folds.
    coef_, intercept_, classes_, objective_, lower_bound_, gap_, ...
        As in :class:`GaussianRobustClassifier`.

    Examples
    --------
    >>> from holdfast import GaussianRobustClassifierCV
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> scale = data.X.std(axis=0)
    >>> model = GaussianRobustClassifierCV(deploy_noise=4).fit(data.X / scale, data.y, X_std=data.X_std / scale)
    >>> model.noise_, model.gap_ < 1e-6, bool(model.cv_results_["max_gap"].max() < 1e-3)
    (4.0, True, True)
    """

    _searched = SEARCHED
    _beyond = {
        ("noise", "smallest"): "Give smaller noises; where rows to come are noisier than these, state deploy_noise.",
        ("noise", "largest"): "Give larger noises.",
        ("alpha", "smallest"): "Give smaller alphas.",
        ("alpha", "largest"): "Give larger alphas.",
    }
    parameter_table = {"deploy_noise": Number() | NOTHING}

    def __init__(
        self,
        noises: Any = DEFAULT_SIZES,
        *,
        alphas: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        deploy_noise: float | None = None,
        cv_tol: float = 1e-3,
        refit: bool = True,
        n_jobs: int | None = None,
        noise: float | GaussianNoise | None = None,
        loss: str | Loss = "logistic",
        multiclass: str | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            noise,
            loss=loss,
            multiclass=multiclass,
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            verbose=verbose,
            random_state=random_state,
        )
        del self.alpha, self.link, self.warm_start, self.kernel, self.gamma, self.degree, self.coef0, self.n_landmarks
        self.noises = noises
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.deploy_noise = deploy_noise
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
        **metadata: Unpack[NoiseByRow],
    ) -> Self:
        """Choose noise and ridge by cross-validation, and fit.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`GaussianRobustClassifier.fit`.
        **metadata
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter, such as ``GroupKFold``.
        """
        return self._fitted(X, y, sample_weight, metadata, groups=groups)

    def _path(self, task: SearchTask) -> list[Step]:
        noise, problems = task.risk.noise, task.problems
        is_known = bool(task.metadata) or not noise.is_size
        deploy = None if self.deploy_noise is None else float(self.deploy_noise)
        if deploy is not None:
            _refuse_multiples(noise, self._quoted("deploy_noise"))
        if is_known:
            if not (isinstance(self.noises, Integral) and self.noises == DEFAULT_SIZES):
                raise ValueError(
                    f"{NAME}(noises=...) together with known noise: a noise that is stated is not searched. Leave out "
                    "noises; deploy_noise=m trains and validates for m times the stated noise."
                )
            self.noises_ = _grid([1.0 if deploy is None else deploy], problems, f"{NAME}(deploy_noise")
            self._exam: float | None = float(self.noises_[0])
        else:
            self.noises_, self._exam = _grid(self.noises, problems, f"{NAME}(noises"), deploy
        self.alphas_ = self._alphas(problems[0].loss, is_known)
        return [(factor, alpha) for alpha in self.alphas_ for factor in self.noises_]

    def _model(self, factor: float = 1.0) -> GaussianRobustClassifier:
        """Return the estimator that this one fits, with the noise multiplied by a number."""
        return GaussianRobustClassifier(
            shape_of(self.noise, 1.0) if factor == 1.0 else _times(shape_of(self.noise, 1.0), factor),
            loss=self.loss,
            alpha=0.0,
            multiclass=self.multiclass,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _alphas(self, loss: Loss, known: bool) -> Array:
        """Return the ridges from the largest to the smallest."""
        if self.alphas is None:
            default = 0.0 if loss.is_homogeneous else 1.0
            return np.append(np.logspace(4, -4, 10), [0.0] * loss.is_homogeneous) if known else np.array([default])
        try:
            values = np.sort(np.atleast_1d(as_numbers(self.alphas)))[::-1]
        except TypeError:
            values = np.zeros(0)
        if values.size == 0 or values.ndim != 1 or not np.all(values <= LARGEST) or values[-1] < 0:
            raise ValueError(f"{NAME}(alphas={short(self.alphas):.80}): give finite numbers >= 0, and at least one.")
        return values

    def _at(self, problem: Any, *step: float) -> Any:
        return _at(problem, *step)

    def _examiner(
        self, model: Any, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]
    ) -> Callable[[Step], float]:
        stated = model._noise()
        rows = X if stated.is_of_rows else np.broadcast_to(0.0, (_num_samples(X), model.n_features_in_))
        # checked once, and not at every step
        noise, middle = stated.at(rows, metadata), model._rows_to_score(stated.mean_rows(X))
        exam = None if self._exam is None else noise.scaled(self._exam)
        codes, scorer = np.searchsorted(model.classes_, y), self._scorer(model)
        model.row_noise_ = False

        def score(step: Step) -> float:
            # scorers see rows as they are, without noise of their own
            model.noise = None if metadata else _times(shape_of(self.noise, 1.0), step[0])
            if scorer is not None:
                return scored(scorer, model, X, y, sample_weight)
            right = _right(model, model._scores(middle), codes, exam)
            return float(np.average(right, weights=sample_weight))

        return score

    def stated_uncertainty(self) -> tuple[str, UncertaintySet]:
        """Return the parameter that states the noise, and the noise at factor 1, whatever was chosen before."""
        return "noise", self._model()._noise()

    def _noise(self) -> Any:
        return self._model(getattr(self, "noise_", 1.0))._noise()


def _refuse_multiples(noise: UncertaintySet, call: str) -> None:
    """Raise if twice the noise does not give scores twice the deviations."""
    if noise.is_of_rows:
        raise ValueError(
            f"{call}: {noise!r} moves the rows too, so a multiple of it has no meaning. State its share instead."
        )


def _times(noise: Any, factor: float) -> Any:
    return noise.times(factor) if isinstance(noise, UncertaintySet) else factor * noise


def _right(model: GaussianRobustClassifier, scores: Array, codes: NDArray[np.intp], noise: Any) -> Array:
    """Return the probability that each row is classified as `codes` say under the noise, or a lower bound on it."""
    right = predicted_codes(scores) == codes
    if noise is None:
        return right.astype(np.float64)
    if scores.ndim == 1:
        lead = np.where(codes == 1, scores, -scores)
        t = np.broadcast_to(noise.support(model.coef_[0]), lead.shape)
        return np.where(t > 0, ndtr(in_deviations(lead, t)), right)
    lead = np.take_along_axis(scores, codes[:, None], axis=1) - scores
    t = pushes(model.coef_, noise, codes)
    # a lead without noise is either lost or not; ties go to the first class
    lost = (lead < 0) | ((lead == 0) & (np.arange(scores.shape[1]) < codes[:, None]))
    misses = np.where(t > 0, ndtr(-in_deviations(lead, t)), lost)
    np.put_along_axis(misses, codes[:, None], 0.0, axis=1)
    return np.maximum(1.0 - misses.sum(axis=1), 0.0)
