"""The linear classifier with the best guarantee for all distributions with given means and covariances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._certificates.fitted import kernel_model
from holdfast._certificates.models import Model
from holdfast._core.allowed import Choice, Count, Having, Number
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.loss import Array
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.row_sets import RowSets
from holdfast._core.rows import Rows
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report
from holdfast._core.uncertainty import UncertaintySet
from holdfast._core.version import __version__
from holdfast._data import rows_of
from holdfast._problems.coordinates import SAME, Span, feature_span, kernel_span
from holdfast._problems.minimax_probability import MinimaxProbabilityProblem, Moments, class_law
from holdfast._proofs.minimax_probability import MinimaxProof, may_coincide
from holdfast._training.minimax_probability import BOUNDLESS, train_minimax
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.inputs import blas_threads_for, labelled_rows
from holdfast.estimators.linear import LinearClassifier, Task
from holdfast.uncertainty import Box
from holdfast.uncertainty.binding import bound_sets, refuse_of_training

NAME = "MinimaxProbabilityClassifier"
EMPTY = 0.3
"""If the ridge is a larger share of a class's squared spread than this, the guarantee depends on the ridge alone."""
KERNEL_RIDGE = 0.01
"""The `covariance_ridge` advised with a kernel."""


@dataclass(kw_only=True)
class MinimaxTask(Task):
    """The problems that `fit` has to solve, in coordinates of the rows `used`."""

    X: Any
    used: NDArray[np.intp]
    span: Span
    gamma: float | None
    ridge_share: float = 0.0
    """The largest share of the ridge in a class's squared spread; set when the problems are solved."""


class MinimaxProbabilityClassifier(LinearClassifier):
    r"""Linear classifier with the best guarantee that follows from the classes' means and covariances alone.

    Only the mean :math:`\mu_\pm` and the covariance :math:`G_\pm` of each class are used. For all distributions with
    these moments, a row is misclassified with probability at most :math:`1/(1 + \kappa_*^2)`, and no other linear
    classifier guarantees less for both classes:

    .. math:: \frac{1}{\kappa_*} = \min_w\ \sigma_+(w) + \sigma_-(w) \quad\text{subject to}\quad (\mu_+ - \mu_-)^\top w = 1,
              \qquad \sigma_\pm(w) = \sqrt{w^\top G_\pm w},

    The boundary is :math:`\kappa_*` standard deviations away from both means. If the classes were normal, each would be
    misclassified with probability :math:`\Phi(-\kappa_*)`. The guarantee is for distributions with exactly the moments
    of the training rows; it does not include how well these moments are known, for which `covariance_ridge` allows in
    part.

    If rows are only known up to sets :math:`S_i`, spreads are the largest that any admissible rows have about the fixed
    means. With the support functions :math:`h_i` of the sets, and the shares :math:`p_i` of the rows in the weight of
    their class,

    .. math:: \sigma(w) = \Bigl(\sum_i p_i u_i^2\Bigr)^{1/2} + (1 - \kappa)\,\tau(w), \qquad
              u_i = \max\bigl(a_i + \kappa h_i(w),\ -a_i + \kappa h_i(-w)\bigr), \quad a_i = w^\top (x_i - \mu) .

    With a `Box` this is ROBMPM at ``kappa=1``, where the spread is exact, and SPMPM at ``kappa=0``, where
    :math:`\tau(w) = \sum_j |w_j| \tau_j` makes some coefficients exactly 0. For kappa below 1 it is an upper bound on
    the exact spread. :class:`GaussianNoise` adds the mean covariance of the rows' noise to G, for any kappa.

    With more than two classes, each class is fitted against the rest; each guarantee is for that question only.

    Parameters
    ----------
    uncertainty : UncertaintySet or None, default=None
        The possible errors of a row, in the units of the features: `Ball`, `Box`, `IntervalBox`, `Ellipsoid`,
        `ChanceConstraint`, `GaussianNoise`, or a sum of them. Sizes that differ by row are given to `fit`.
    means : {"fixed", "uncertain"}, default="fixed"
        "fixed": the classes' means are those of the rows as they are. "uncertain": they move with the rows in their
        sets, which shifts the score of each mean by up to the mean of the support functions; this is a safe bound, not
        the exact worst case.
    kappa : float, default=1.0
        The share of the sets that is kept inside the sum of squares, from 0 to 1. (Not :math:`\kappa_*`.)
    weights : {"rms", "sum"}, default="rms"
        :math:`\tau`, for kappa < 1. "rms": :math:`\sqrt{\sum p_i h_i^2}`, and for boxes
        :math:`\tau_j = \sqrt{\sum_i p_i s_{ij}^2}`. "sum": :math:`\sum_i p_i h_i / \sqrt{\min p}`, which is up to
        :math:`1/\sqrt{\min p}` times larger. With equal weights "sum" is :math:`\sum_i h_i / \sqrt{N}`, as published;
        with weights that are counts, the smallest being 1, it is the same as for repeated rows.
    covariance_ridge : float, default=1e-6
        :math:`\rho` in :math:`G_\pm + \rho V`, where V is the diagonal of the features' variances over all rows, so
        :math:`G_\pm + \rho I` for standardised features. The guarantee then holds for all covariances :math:`G_\pm + E`
        with :math:`|V^{-1/2} E V^{-1/2}|_F \le \rho`. If a class has hardly more rows than features, its covariance is
        (almost) singular; with a small ridge the guarantee is then far too good, and a warning says so: raise the ridge
        to about n_features / n_samples. With a kernel, V is the identity times the total variance; start with 0.01.
    kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable, default=None
        For a classifier that is linear in the kernel's features, in the span of the training rows. None: linear in X. A
        kernel requires ``uncertainty=None``.
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
        Parameters of the kernel, as for :class:`sklearn.svm.SVC`.
    solver : str or Solver, default=None
        "newton", or "quasi_newton" for spreads with kinks; None picks one.
    tol : float, default=1e-6
        The largest certified relative gap to accept.
    max_iter : int, default=1000
    verbose : int, default=0
        1 logs progress to the logger "holdfast".

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Scaled so that the scores of both means differ by 1 (by at least 1 with ``means="uncertain"``). Not with a
        kernel.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    separation_ : ndarray of shape (1,) or (n_classes,)
        :math:`\kappa_*`, in standard deviations: how far the mean of either class is from the boundary.
    worst_case_error_ : float
        With two classes, :math:`1/(1 + \kappa_*^2)`, a bound on the error of each class. With more, the sum over the
        classes, at most 1: a bound on the share of misclassified rows, if classes occur in the proportions of the
        training rows.
    class_worst_case_errors_ : ndarray of shape (2,) or (n_classes, 2)
        The bound for each class by itself, at the fitted coefficients, in the order of `classes_`. With more than two
        classes each has a row of two bounds: on the probability that a row of the rest gets a positive score, and on
        the probability that a row of the class does not.
    covariance_ridge_ : ndarray of shape (n_features,), or float with a kernel
        The diagonal of :math:`\rho V`, in squared units of the features.
    objective_ : float
        :math:`1/\kappa_*` at the fitted coefficients; with more than two classes, the sum over the classes.
    lower_bound_ : float
        A lower bound on the objective over all coefficients, proved by a point of the dual problem.
    gap_ : float
        (objective_ - lower_bound_) / objective_.
    dual_coef_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        With a kernel: the score is ``kernel(X, X_fit_) @ dual_coef_.T + intercept_``. Parameters that are set after
        `fit` do not change it.
    gamma_ : float or None
        With a kernel: gamma as used.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        With a kernel other than "precomputed": a copy of the training rows.
    n_iter_ : int
    solution_ : dict
        How the solver ended: status, advice, solver, n_iter, objective, lower_bound.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    G. Lanckriet, L. El Ghaoui, C. Bhattacharyya, M. Jordan, "A robust minimax approach to classification" (2002).
    L. El Ghaoui, G. Lanckriet, G. Natsoulis, "Robust classification with interval data" (2003).

    Examples
    --------
    >>> from holdfast import Box, MinimaxProbabilityClassifier
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> model = MinimaxProbabilityClassifier().fit(data.X, data.y)
    >>> round(model.worst_case_error_, 2), round(1 - model.score(data.X, data.y), 2)
    (0.32, 0.07)
    >>> robust = MinimaxProbabilityClassifier(Box(0.5)).fit(data.X, data.y, X_std=data.X_std)
    >>> round(robust.worst_case_error_, 2), robust.gap_ < 1e-6
    (0.43, True)
    """

    parameter_table = {
        "means": Choice("fixed", "uncertain"),
        "kappa": Number(0, 1),
        "weights": Choice("rms", "sum"),
        "covariance_ridge": Number(),
        "kernel": Choice("linear", "poly", "rbf", "sigmoid", "precomputed", None) | Having(("__call__",), "a callable"),
        "gamma": Choice("scale", "auto") | Number(),
        "degree": Count(0),
        "coef0": Number(-np.inf),
    }

    def __init__(
        self,
        uncertainty: Any = None,
        *,
        means: str = "fixed",
        kappa: float = 1.0,
        weights: str = "rms",
        covariance_ridge: float = 1e-6,
        kernel: Any = None,
        gamma: Any = "scale",
        degree: Any = 3,
        coef0: Any = 0.0,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
    ):
        self.uncertainty = uncertainty
        self.means = means
        self.kappa = kappa
        self.weights = weights
        self.covariance_ridge = covariance_ridge
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    @with_callbacks
    @takes_metadata
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[SetsByRow]) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in means and covariances: a weight of 2 counts a row twice.
        **metadata
        """
        return self._fitted(X, y, sample_weight, metadata)

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        self._check_settings()
        is_square = isinstance(self.kernel, str) and self.kernel == "precomputed"
        formats = False if is_square else "csr"
        labelled = labelled_rows(
            self, X, y, sample_weight, metadata, by_feature=("uncertainty",), accept_sparse=formats
        )
        X, codes, weights, _, classes = labelled
        if is_square and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"{NAME}(kernel='precomputed').fit: X has shape {X.shape}; it is square, one row and column a sample."
            )
        worst, cloud = self._bound(X, metadata)
        used = np.flatnonzero(weights > 0)
        worst, cloud, codes, weights = _of(worst, used), _of(cloud, used), codes[used], weights[used]
        labels = classes.tolist()
        with blas_threads_for(X.shape[0] * X.shape[1] ** 2):
            gamma = self._gamma(rows_of(X[used]), weights)
            span = self._span(X, used, weights, gamma, worst is None and cloud is None)
            problems = [self._problem(span, codes == k, labels[k], weights, worst, cloud) for k in labelled.positives]
        factor = 1.0 if self.uncertainty is None else self.uncertainty.row_factor
        return MinimaxTask(problems, {"classes_": classes}, factor, X=X, used=used, span=span, gamma=gamma)

    def _solved(self, task: Task, report: Report) -> list[Any]:
        assert isinstance(task, MinimaxTask)
        limits: dict[str, Any] = {"tol": float(self.tol), "max_iter": int(self.max_iter)}
        with blas_threads_for(task.X.shape[0] * task.X.shape[1] ** 2):
            return [train_minimax(problem, self.solver, **limits, report=report) for problem in task.problems]

    def _complete(self, task: Task, fits: Sequence[tuple[Any, Any]]) -> None:
        assert isinstance(task, MinimaxTask)
        classes = [f"class {label!r}" for label in task.learned["classes_"].tolist()]
        sides = [classes] if len(classes) == 2 else [[f"all but {label}", label] for label in classes]
        self._refuse_degenerate(task.problems, fits, sides)
        self.__dict__ |= task.learned | self._model(task, fits)
        task.ridge_share = max(
            _ridge_share(problem, task.span.ridge, found.parameters)
            for problem, (found, _) in zip(task.problems, fits, strict=True)
        )

    def exact_uncertainty(self) -> tuple[str, UncertaintySet]:
        """Return the name of the parameter for the set, and the set that None stands for when steps add errors."""
        return "uncertainty", Box(0.0)

    def certificate_model(self) -> Model:
        """Return the fitted classifier as certificates see it."""
        if hasattr(self, "coef_"):
            return super().certificate_model()
        if self.kernel != "rbf":
            raise NoCertificateError(f"{self!r:.80}: of kernels only kernel='rbf' is certified.")
        return kernel_model(self.X_fit_, self.gamma_, self.dual_coef_, self.intercept_)

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        if self.uncertainty is None:
            return super()._own_set(rows, stated, call)
        return self.uncertainty.as_stated(stated) if stated else self.uncertainty

    def _check_settings(self) -> None:
        """Raise if parameters contradict each other, before rows are checked."""
        if self.kernel is not None and self.uncertainty is not None:
            raise ValueError(
                f"{NAME}(uncertainty={self.uncertainty!r:.80}, kernel={self.kernel!r}): what a set of rows becomes under a "
                "kernel is not known. Use kernel=None, or uncertainty=None and a larger covariance_ridge."
            )

    def _bound(self, X: Any, metadata: Mapping[str, Any]) -> tuple[RowSets | None, RowSets | None]:
        """Return the sets and the noise of the rows; None for a part that moves no feature."""
        refuse_of_training(self.uncertainty, NAME)
        parts = bound_sets(self.uncertainty, X, metadata, NAME)
        worst, cloud = (None if part is None or np.all(part.exact_features(X.shape[1])) else part for part in parts)
        return worst, cloud

    def _span(self, X: Any, used: NDArray[np.intp], weights: Array, gamma: float | None, is_exact: bool) -> Span:
        """Return the rows of positive weight; with a kernel or many features, in coordinates of their span."""
        share, X_used = float(self.covariance_ridge), X if len(used) == X.shape[0] else X[used]
        if self.kernel is None:
            return feature_span(X_used, weights, share, is_exact=is_exact)
        is_square = isinstance(self.kernel, str) and self.kernel == "precomputed"
        K = X_used[:, used] if is_square else self._products(gamma)(X_used, X_used)
        return kernel_span(K, weights, share, f"{NAME}(kernel={self.kernel!r})")

    def _gamma(self, rows: Rows, weights: Array) -> float | None:
        """Return gamma, None if the kernel has none; "scale" is 1 / (n_features * weighted variance of all entries)."""
        if self.kernel is None:
            return None
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        if self.kernel == "precomputed" or callable(self.kernel):
            return None
        d, shares = rows.n_features, weights / np.sum(weights)
        variance = float(np.mean(rows.square_sums(shares)) - np.mean(rows.transpose_dot(shares)) ** 2)
        return 1 / (d * (variance if variance > 0 else 1.0)) if self.gamma == "scale" else 1 / d

    def _products(self, gamma: float | None) -> Callable[[Any, Any], Array]:
        """Return the kernel as a function of two sets of rows."""
        options = {} if callable(self.kernel) else {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
        return partial(_kernel, kernel=self.kernel, options=options)

    def _problem(
        self,
        span: Span,
        is_positive: NDArray[np.bool_],
        label: Any,
        weights: Array,
        worst: RowSets | None,
        cloud: RowSets | None,
    ) -> MinimaxProbabilityProblem:
        """Return the problem of one class against the rest."""
        laws, budgets = [], np.empty(len(weights))
        for sign in (-1.0, 1.0):
            rows = np.flatnonzero(is_positive == (sign > 0))
            moments, own = Moments.of(span.rows.take(rows), weights[rows]), _of(worst, rows)
            budgets[rows] = moments.shares
            drift = None if own is None or self.means == "fixed" else own.against_labels(np.full(len(rows), sign))
            laws.append(
                class_law(
                    moments,
                    own,
                    _of(cloud, rows),
                    ridge=span.ridge,
                    kappa=float(self.kappa),
                    pooling=self.weights,
                    drift=drift,
                )
            )
        problem = MinimaxProbabilityProblem(laws[0], laws[1], worst, budgets)
        sizes = sum(np.abs(law.mean) + np.sqrt(np.maximum(np.diag(law.inner), 0.0)) for law in laws)
        if np.all(np.abs(problem.difference) <= SAME * sizes):
            raise ValueError(
                f"{NAME}.fit: class {label!r} has the same mean as all other rows, so by means and covariances no linear score "
                "tells them apart. Add features (squares, products), or use a kernel ('rbf')."
            )
        return problem

    def _refuse_degenerate(
        self,
        problems: Sequence[MinimaxProbabilityProblem],
        fits: Sequence[tuple[Solution, MinimaxProof]],
        sides: Sequence[Sequence[str]],
    ) -> None:
        """Raise if no weights keep the classes apart, or if some keep them infinitely far apart."""
        for problem, (found, proof), labels in zip(problems, fits, sides, strict=True):
            w = found.parameters
            if problem.lead(w) <= 0:
                call = f"{NAME}(uncertainty={self.uncertainty!r}, means='uncertain').fit"
                if may_coincide(problem):
                    raise ValueError(
                        f"{call}: within the sets the classes may have the same mean, so nothing can be promised. Use smaller "
                        "sets, or means='fixed'."
                    )
                more = f"raise max_iter={self.max_iter}, " if found.status is Status.ITERATION_LIMIT else ""
                raise ValueError(
                    f"{call}: no weights were found that keep the means apart wherever they are in the sets. There may be "
                    f"none: {more}use smaller sets, or means='fixed'."
                )
            if proof.objective <= 1 / BOUNDLESS:
                raise ValueError(
                    f"{NAME}(covariance_ridge={self.covariance_ridge!r}).fit: some score is the same for all rows of a class "
                    "and tells the classes apart, so the covariances are singular and promise errors of 0, which means "
                    "nothing. That is always so where there are no more rows than features. Use covariance_ridge > 0, or "
                    "state an uncertainty."
                )
            for label, law in zip(labels, (problem.negative, problem.positive), strict=True):
                if law.spread.value(w) <= SAME * proof.objective:
                    raise ValueError(
                        f"{NAME}(covariance_ridge={self.covariance_ridge!r}).fit: {label} has no spread at all, so the "
                        "boundary runs through its mean, where it promises nothing. Use covariance_ridge > 0, or state an "
                        "uncertainty."
                    )

    def _model(self, task: MinimaxTask, fits: Sequence[tuple[Solution, MinimaxProof]]) -> dict[str, Any]:
        """Return the fitted attributes."""
        parts, errors = [], []
        for problem, (found, _) in zip(task.problems, fits, strict=True):
            w = found.parameters
            b = problem.intercept(w)
            parts.append(task.span.lift(w, b))
            errors.append(1 / (1 + np.square(np.maximum(problem.deviations(w, b), 0.0))))
        vectors = np.array([w for w, _ in parts])
        model: dict[str, Any] = {"intercept_": np.array([b for _, b in parts])}
        if self.kernel is None:
            model["coef_"] = vectors
        else:
            model["gamma_"], model["dual_coef_"] = task.gamma, np.zeros((len(vectors), task.X.shape[0]))
            model["dual_coef_"][:, task.used] = vectors
            if self.kernel != "precomputed":
                model["X_fit_"], model["_kernel_products_"] = task.X.copy(), self._products(task.gamma)
        separations = np.array([1 / proof.objective for _, proof in fits])
        objective, bound = (float(sum(proof[k] for _, proof in fits)) for k in (0, 1))
        worst = min((found for found, _ in fits), key=lambda found: found.status is Status.SOLVED)
        return model | {
            "separation_": separations,
            "covariance_ridge_": task.span.stated_ridge,
            "class_worst_case_errors_": errors[0] if len(errors) == 1 else np.array(errors),
            "worst_case_error_": float(min(np.sum(1 / (1 + np.square(separations))), 1.0)),
            "objective_": objective,
            "lower_bound_": bound,
            "gap_": (objective - bound) / objective,
            "n_iter_": max(1, *(found.n_iter for found, _ in fits)),
            "solution_": worst.summary() | {"objective": objective, "lower_bound": bound},
            "holdfast_version_": __version__,
        }

    def _warn(self, task: Task) -> None:
        assert isinstance(task, MinimaxTask)
        self._warn_uncertified()
        advised = KERNEL_RIDGE if self.kernel is not None else min(task.X.shape[1] / task.X.shape[0], 1.0)
        if task.ridge_share > EMPTY and self.covariance_ridge < advised:
            warn_caller(
                f"The covariances are all but singular: the bound on errors, {self.worst_case_error_:.2g}, depends on "
                f"covariance_ridge={self.covariance_ridge:g} and little else. Raise it, to about {advised:.2g}.",
                linalg.LinAlgWarning,
            )

    def decision_function(self, X: Any) -> Array:
        """Return the scores, w'x + b or those of the kernel.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive means ``classes_[1]``. More: the class with the highest score is predicted.
        """
        check_is_fitted(self)
        if hasattr(self, "coef_"):
            return super().decision_function(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        K = self._kernel_products_(X, self.X_fit_) if hasattr(self, "X_fit_") else X
        scores = np.asarray(K @ self.dual_coef_.T + self.intercept_)
        return scores.ravel() if len(self.dual_coef_) == 1 else scores


def _kernel(X: Any, Y: Any, kernel: Any, options: Mapping[str, Any]) -> Array:
    """Return the kernel's values, computed in float64, shape (rows of X, rows of Y)."""
    X, Y = (rows.astype(np.float64, copy=False) for rows in (X, Y))
    try:
        return np.asarray(pairwise_kernels(X, Y, metric=kernel, filter_params=True, **options), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{NAME}(kernel={kernel!r:.80}): {error}") from error


def _of(sets: RowSets | None, rows: NDArray[np.intp]) -> RowSets | None:
    return None if sets is None else sets.take(rows)


def _ridge_share(problem: MinimaxProbabilityProblem, ridge: Array, w: Array) -> float:
    """Return the largest share of the ridge in a class's squared spread."""
    return max(float(np.sum(ridge * w**2)) / law.spread.value(w) ** 2 for law in (problem.negative, problem.positive))
