"""Paths over the noise, and the noise or the ridge chosen by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d, indexable
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from holdfast._core.loss import Array, Loss
from holdfast._core.progress import reporter
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report, silent
from holdfast.counterpart import Certificate, certificate, critical_factor, train
from holdfast.estimators.callbacks import announced, with_callbacks
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier, in_deviations
from holdfast.estimators.inputs import number, one_blas_thread
from holdfast.estimators.linear import predicted_codes
from holdfast.solvers import pick
from holdfast.uncertainty import GaussianNoise

NAME = "GaussianRobustClassifierCV"
SPAN = 1e-3
"""Smallest noise of an automatic grid, as a share of the largest."""
WIDEST = 3.0
"""Largest noise of an automatic grid, in root mean square distances of the rows from their centre."""
DEFAULT_NOISES = 30


@dataclass
class NoisePath:
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


def noise_path(
    X: Any,
    y: Any,
    noises: int | Sequence[float] | Array = DEFAULT_NOISES,
    *,
    noise: float | GaussianNoise = 1.0,
    loss: str | Loss = "logistic",
    alpha: float | None = None,
    fit_intercept: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    X_std: Any = None,
    X_cov: Any = None,
    X_factor: Any = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    verbose: int = 0,
) -> NoisePath:
    """Fit :class:`GaussianRobustClassifier` for many noises, each fit starting where the last ones point.

    Parameters
    ----------
    X, y, noise, loss, alpha, fit_intercept, class_weight, sample_weight, X_std, X_cov, X_factor, tol, max_iter, verbose
        As for :class:`GaussianRobustClassifier` and its `fit`.
    noises : int or array-like of floats, default=30
        Factors of `noise` (with the default: standard deviations), in any order; or how many, from the noise at which the
        classifier collapses (or three times the spread of the rows, if that is less) down to a thousandth of it.

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
        noise,
        loss=loss,
        alpha=alpha,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        tol=tol,
        max_iter=max_iter,
    )
    problems = model._problems(X, y, sample_weight, {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor})
    tol = number(tol, "noise_path(tol", strictly=True)
    with one_blas_thread:
        factors = _grid(noises, problems, "noise_path(noises")
        steps = [(factor, problems[0].alpha) for factor in factors]
        fitted = []
        for fits in _followed(problems, steps, tol, model._max_iter(), report=reporter(verbose)):
            model._unpack(problems, fits)
            fitted.append((model.coef_, model.intercept_, model.objective_, model.lower_bound_, model.gap_))
    path = NoisePath(factors, *(np.array(column) for column in zip(*fitted, strict=True)))
    _warn_of_gaps(path.gaps, tol, stacklevel=3)
    return path


def _warn_of_gaps(gaps: Array, tol: float, stacklevel: int) -> None:
    """Say how many fits are not certified, those apart for which no bound is known."""
    bounded = gaps[np.isfinite(gaps)]
    if short := int(np.count_nonzero(bounded > tol)):
        warnings.warn(
            f"{short} of {gaps.size} fits on the path are not certified to tol={tol:g}; the largest gap is "
            f"{bounded.max():.2g}. Put the features on similar scales, raise max_iter, or raise tol.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def _followed(
    problems: Sequence[Any],
    steps: Sequence[tuple[float, float]],
    tol: float,
    max_iter: int,
    solver: Any = None,
    report: Report = silent,
) -> Iterable[list[tuple[Solution, Certificate]]]:
    """Yield the fits at every (factor of the noise, alpha), each started where the two before it point."""
    problems[0].rows.n_fits = len(steps) * len(problems)
    nowhere: tuple[Array | None, Array | None] = (None, None)
    tracks = [nowhere] * len(problems)
    for k, (factor, alpha) in enumerate(steps):
        if k and factor > steps[k - 1][0]:
            # back at the largest noise with another alpha, far from the last fit
            tracks = [nowhere] * len(problems)
        fits = []
        for i, problem in enumerate(problems):
            here = problem.having(bound=problem.bound.scaled(factor), alpha=alpha)
            start = _ahead(here, *tracks[i])
            found, proof = train(here, solver, tol=tol, max_iter=max_iter, start=start, report=report)
            tracks[i] = (tracks[i][1], found.parameters)
            fits.append((found, proof))
        report(f"noise {factor:.3g}, alpha {alpha:.3g}: certified gap {max(proof.gap for _, proof in fits):.1e}")
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


def _grid(noises: Any, problems: Sequence[Any], call: str) -> Array:
    """Return the noises from the largest to the smallest, checked, or made up."""
    if isinstance(noises, Integral) and not isinstance(noises, bool):
        if noises < 1:
            raise ValueError(f"{call}={noises!r}): give at least one noise, or the noises themselves.")
        top = _largest(problems)
        return np.geomspace(top, SPAN * top, int(noises))
    try:
        values = np.sort(np.array(noises, dtype=np.float64).ravel())[::-1]
    except (TypeError, ValueError):
        raise ValueError(f"{call}={noises!r:.80}): give a number of noises, or the noises themselves.") from None
    if values.size == 0 or not np.all(np.isfinite(values)) or values[-1] < 0:
        raise ValueError(f"{call}=...): noises must be finite numbers >= 0, and at least one.")
    if problems[0].loss.is_homogeneous and values[-1] == 0:
        raise ValueError(
            f"{call}=...): without noise this loss is the plain hinge. Leave out 0, or use loss='logistic'."
        )
    return values


def _largest(problems: Sequence[Any]) -> float:
    """Return the factor of the noise at which a binary fit collapses, or that of WIDEST spreads where that is less."""
    problem = problems[0]
    rows, weights = problem.rows, problem.weights
    centre = rows.transpose_dot(weights / weights.sum())
    spread = np.sqrt(max(float(np.sum(rows.square_sums(weights / weights.sum())) - centre @ centre), 0.0))
    n = rows.n_features
    typical = float(np.mean([np.mean(problem.bound.support(unit)) for unit in np.eye(min(n, 100), n)]))
    # noise of the same size in every direction has sqrt(n) times this length
    top = WIDEST * spread / (typical * np.sqrt(n)) if typical > 0 else 1.0
    if len(problems) == 1 and problem.bound.is_common and np.isfinite(problem.constant_objective()):
        critical = critical_factor(problem)
        top = min(top, critical) if critical > 0 else top
    return float(top)


class GaussianRobustClassifierCV(GaussianRobustClassifier):
    r"""GaussianRobustClassifier with the noise, or the ridge, chosen by cross-validation.

    *Noise unknown* (`noise` is one number and no ``X_std`` or the like is given): it is a hyper-parameter, and the
    classifier is fitted for a path of noises from large to small, each fit starting where the last ones point.

    *Noise known* (``X_std``, ``X_cov`` or ``X_factor``, or ``GaussianNoise`` with a std per feature, a cov or a factor): it is
    not searched, because validation rows as clean as the training rows would always vote for the smallest and throw the
    protection away. The noise is taken as stated, or multiplied by `deploy_noise`, and the ridge is chosen by the accuracy
    to be *expected* under that noise on the validation rows, :math:`\mathrm{mean}\,\Phi(y f(x) / t)`, exactly and without
    sampling (more than two classes: the lower bound that `flip_probability` gives).

    Every fit of every fold carries its certificate; the largest gap is in ``cv_results_``.

    Parameters
    ----------
    noises : int or array-like of floats, default=30
        The noises to try, in multiples of `noise` (1.0: standard deviations); or how many, from the noise at which the
        classifier collapses (or three times the spread of the rows, if that is less) down to a thousandth of it.
        Not to be given when the noise is known.
    alphas : array-like of floats, default=None
        The ridges to try. None: the loss's default when the noise is searched; 0.0001 to 10000 in ten steps when it is
        known (and 0 for the perspective losses).
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means that many stratified folds.
    scoring : str or callable, default=None
        None: accuracy, expected under the known noise or under `deploy_noise`. Otherwise a scikit-learn scorer, which
        sees the validation rows as they are, and their weights if its metric takes them.
    deploy_noise : float, default=None
        How noisy the rows will be at prediction. Known noise: the factor on it, at training and validation. Unknown: a
        multiple of `noise` under which validation rows are scored (None: as they are).
    refit : bool, default=True
        Fit on all rows with what was chosen. False: the mean of the folds' coefficients, with its own honest `gap_`.
    n_jobs : int, default=None
        Folds fitted at the same time, in threads.
    noise, loss, fit_intercept, class_weight, solver, tol, max_iter, verbose, random_state
        As in :class:`GaussianRobustClassifier`.

    Attributes
    ----------
    noise_ : float
        The noise chosen, in multiples of `noise`; with known noise the factor on it.
    alpha_ : float
        The ridge chosen.
    noises_ : ndarray of shape (n_noises,)
        The noises tried, from the largest to the smallest.
    alphas_ : ndarray of shape (n_alphas,)
    best_score_ : float
        Mean validation score of what was chosen. Among equals the largest noise, then the largest ridge wins.
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
    >>> model.noise_, bool(model.cv_results_["max_gap"].max() < 1e-6)
    (4.0, True)
    """

    _takes_streams = False

    def __init__(
        self,
        noises: Any = DEFAULT_NOISES,
        *,
        alphas: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        deploy_noise: float | None = None,
        refit: bool = True,
        n_jobs: int | None = None,
        noise: float | GaussianNoise = 1.0,
        loss: str | Loss = "logistic",
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
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            verbose=verbose,
            random_state=random_state,
        )
        del self.alpha, self.warm_start
        self.noises = noises
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.deploy_noise = deploy_noise
        self.refit = refit
        self.n_jobs = n_jobs

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_std: Any = None,
        X_cov: Any = None,
        X_factor: Any = None,
        groups: Any = None,
    ) -> Self:
        """Choose noise and ridge by cross-validation, and fit.

        Parameters
        ----------
        X, y, sample_weight, X_std, X_cov, X_factor
            As in :meth:`GaussianRobustClassifier.fit`.
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter, such as ``GroupKFold``.
        """
        metadata = {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor}
        plain = self._model()
        problems = plain._problems(X, y, sample_weight, metadata)
        plain.row_noise_ = self.row_noise_ = any(value is not None for value in metadata.values())
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(plain, name):
                setattr(self, name, getattr(plain, name))
        deploy = None if self.deploy_noise is None else number(self.deploy_noise, f"{NAME}(deploy_noise")
        tol, max_iter = number(self.tol, f"{NAME}(tol", strictly=True), self._max_iter()
        scorer = self._scorer(plain)
        solver = None if self.solver is None else pick(problems[0], self.solver).seeded(self.random_state)
        report, finished = announced(self, reporter(self.verbose), X, y)
        known = self.row_noise_ or _is_known(plain._noise())
        with one_blas_thread:
            if known:
                if not (isinstance(self.noises, Integral) and self.noises == DEFAULT_NOISES):
                    raise ValueError(
                        f"{NAME}(noises=...) together with known noise: a noise that is stated is not searched. Leave out "
                        "noises; deploy_noise=m trains and validates for m times the stated noise."
                    )
                self.noises_ = _grid([1.0 if deploy is None else deploy], problems, f"{NAME}(deploy_noise")
                exam: float | None = float(self.noises_[0])
            else:
                self.noises_, exam = _grid(self.noises, problems, f"{NAME}(noises"), deploy
            self.alphas_ = self._alphas(problems[0].loss, known)
            steps = [(factor, alpha) for alpha in self.alphas_ for factor in self.noises_]
            X, y, *rest = indexable(X, column_or_1d(y), sample_weight, *metadata.values())
            splits = list(check_cv(self.cv, y, classifier=True).split(X, y, groups))
            if not splits:
                raise ValueError(f"{NAME}(cv={self.cv!r:.80}): gives no folds. Give at least one.")

            def one_fold(train_rows: NDArray[np.intp], test_rows: NDArray[np.intp]) -> tuple[Any, ...]:
                own, held_out = ([_taken(part, rows) for part in (X, y, *rest)] for rows in (train_rows, test_rows))
                return self._fold(own, held_out, steps, exam, scorer, solver, tol, max_iter, report)

            workers = Parallel(n_jobs=self.n_jobs, prefer="threads")
            folds = workers(delayed(one_fold)(*split) for split in splits)
            best = self._choose(folds, steps, tol)
            chosen = [p.having(bound=p.bound.scaled(self.noise_), alpha=self.alpha_) for p in problems]
            middle = [np.mean([fold[2][best][part] for fold in folds], axis=0) for part in (0, 1)]
            starts = plain._joined(chosen, *middle)
            if self.refit:
                fits = [
                    train(problem, solver, tol=tol, max_iter=max_iter, start=start, report=report)
                    for problem, start in zip(chosen, starts, strict=True)
                ]
            else:
                fits = [_averaged(problem, start, tol) for problem, start in zip(chosen, starts, strict=True)]
        self._unpack(chosen, fits)
        if self.refit:
            self._warn(chosen)
        finished()
        return self

    def _model(self, factor: float = 1.0) -> GaussianRobustClassifier:
        """Return the estimator that this one fits, with the noise multiplied by a number."""
        return GaussianRobustClassifier(
            self.noise if factor == 1.0 else _times(self.noise, factor),
            loss=self.loss,
            alpha=0.0,
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
            values = np.sort(np.atleast_1d(np.asarray(self.alphas, dtype=np.float64)))[::-1]
        except (TypeError, ValueError):
            values = np.zeros(0)
        if values.size == 0 or values.ndim != 1 or not np.all(np.isfinite(values)) or values[-1] < 0:
            raise ValueError(f"{NAME}(alphas={self.alphas!r:.80}): give finite numbers >= 0, and at least one.")
        return values

    def _scorer(self, model: GaussianRobustClassifier) -> Any:
        if self.scoring is None:
            return None
        if not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                f"{NAME}(scoring={self.scoring!r:.80}): give None, the name of one scikit-learn scorer, or a callable that "
                "takes (estimator, X, y)."
            )
        return check_scoring(model, self.scoring)

    def _fold(
        self,
        own: Sequence[Any],
        held_out: Sequence[Any],
        steps: Sequence[tuple[float, float]],
        exam: float | None,
        scorer: Any,
        solver: Any,
        tol: float,
        max_iter: int,
        report: Report,
    ) -> tuple[list[float], list[float], list[tuple[Array, Array]]]:
        """Return validation scores, gaps and coefficients of one fold at every step of the path."""
        names = ("X_std", "X_cov", "X_factor")
        X, y, sample_weight, *metadata = own
        model = self._model()
        if len(missing := np.setdiff1d(self.classes_, y)):
            raise ValueError(
                f"{NAME}(cv={self.cv!r:.80}): the training rows of a fold hold no row of class "
                f"{missing.tolist()[0]!r}. Use fewer folds, or a stratified splitter."
            )
        problems = model._problems(X, y, sample_weight, dict(zip(names, metadata, strict=True)))
        model.row_noise_ = self.row_noise_
        X, y, sample_weight, *metadata = held_out
        if sample_weight is not None and not np.any(sample_weight):
            raise ValueError(
                f"{NAME}(cv={self.cv!r:.80}): sample_weight is zero for all validation rows of a fold. Use fewer folds, or "
                "leave out rows of weight zero."
            )
        noise = model._noise().at(
            np.broadcast_to(0.0, (_num_samples(X), model.n_features_in_)), dict(zip(names, metadata, strict=True))
        )
        codes = np.searchsorted(model.classes_, y)
        weighting = {} if sample_weight is None or not _takes_weights(scorer) else {"sample_weight": sample_weight}
        scores, gaps, coefs = [], [], []
        followed = _followed(problems, steps, tol, max_iter, solver, report)
        for (factor, _), fits in zip(steps, followed, strict=True):
            model._unpack(problems, fits)
            model.noise = _times(self.noise, factor)
            if scorer is not None:
                scores.append(float(scorer(model, X, y, **weighting)))
            else:
                right = _right(model, model.decision_function(X), codes, None if exam is None else noise.scaled(exam))
                scores.append(float(np.average(right, weights=sample_weight)))
            if not np.isfinite(scores[-1]):
                raise ValueError(
                    f"{NAME}(scoring={self.scoring!r:.80}): gave {scores[-1]} on the validation rows of a fold. "
                    "Use fewer folds, or a score that is always a number."
                )
            gaps.append(model.gap_)
            coefs.append((model.coef_, model.intercept_))
        return scores, gaps, coefs

    def _choose(self, folds: Sequence[Any], steps: Sequence[tuple[float, float]], tol: float) -> int:
        """Set what the folds tell, and return the number of the best step."""
        scores, gaps = (np.array([fold[i] for fold in folds]) for i in (0, 1))
        mean = scores.mean(axis=0)
        noises, alphas = np.array(steps).T
        # among equals the largest noise, then the largest ridge
        best = int(np.lexsort((alphas, noises, mean))[-1])
        self.noise_, self.alpha_, self.best_score_ = float(noises[best]), float(alphas[best]), float(mean[best])
        self.cv_results_ = {
            "param_noise": noises,
            "param_alpha": alphas,
            **{f"split{i}_test_score": row for i, row in enumerate(scores)},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=0),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
            "max_gap": gaps.max(axis=0),
        }
        _warn_of_gaps(gaps, tol, stacklevel=5)
        return best

    def _noise(self) -> Any:
        return self._model(getattr(self, "noise_", 1.0))._noise()


def _is_known(noise: Any) -> bool:
    """Return whether the noise says more than its size."""
    return not (isinstance(noise, GaussianNoise) and noise.std is not None and np.ndim(noise.std) == 0)


def _times(noise: Any, factor: float) -> Any:
    return noise.times(factor) if isinstance(noise, GaussianNoise) else factor * noise


def _takes_weights(scorer: Any) -> bool:
    """Return whether a scorer's metric takes the rows' weights."""
    return scorer is not None and "sample_weight" in signature(getattr(scorer, "_score_func", scorer)).parameters


def _taken(values: Any, rows: NDArray[np.intp]) -> Any:
    return None if values is None else _safe_indexing(values, rows)


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
    t = model._lead_std(noise, codes)
    # a lead that no noise changes is lost or not; ties go to the first class
    lost = (lead < 0) | ((lead == 0) & (np.arange(scores.shape[1]) < codes[:, None]))
    misses = np.where(t > 0, ndtr(-in_deviations(lead, t)), lost)
    np.put_along_axis(misses, codes[:, None], 0.0, axis=1)
    return np.maximum(1.0 - misses.sum(axis=1), 0.0)


def _averaged(problem: Any, parameters: Array, tol: float) -> tuple[Solution, Certificate]:
    """Return the given parameters as a solution, with what can be proved of them."""
    proof = certificate(problem, *problem.split(parameters))
    status = Status.SOLVED if proof.gap <= tol else Status.AVERAGED
    return Solution(parameters, status, proof.objective, 1, "average", proof.lower_bound), proof
