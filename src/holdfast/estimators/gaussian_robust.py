"""The classifier for features with Gaussian noise."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.exceptions import CollapseWarning
from holdfast._core.loss import Array, Loss
from holdfast._core.parameters import resolve
from holdfast._core.progress import reporter
from holdfast._core.solution import Status
from holdfast._core.uncertainty import BoundSet, UncertaintySet
from holdfast._core.version import __version__
from holdfast.counterpart import MarginScaleProblem, critical_factor, majority, train
from holdfast.data import rows_of
from holdfast.estimators.inputs import binary_signs, number, one_blas_thread, row_weights
from holdfast.losses import ExpectedLogistic, GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge
from holdfast.uncertainty import GaussianNoise

LOSSES: dict[str, type[Loss]] = {
    "logistic": ExpectedLogistic,
    "hinge": GaussianHinge,
    "log2": Log2Hinge,
    "quadratic": QuadraticHinge,
    "two_point": TwoPointHinge,
}
NAME = "GaussianRobustClassifier"
MANY_THREADS = 3e9
"""n_samples * n_features**2 from which BLAS may use all its threads."""


def _is_proper(estimator: GaussianRobustClassifier) -> bool:
    loss = estimator._loss()
    if not loss.is_proper:
        raise AttributeError(
            f"{NAME}(loss={estimator.loss!r}) has no predict_proba: only loss='logistic' models a probability. "
            "flip_probability says how likely the noise is to change a prediction."
        )
    return True


class GaussianRobustClassifier(ClassifierMixin, BaseEstimator):
    r"""Linear classifier trained for the loss that Gaussian noise on the features makes it expect.

    Minimises over w and b

    .. math:: \sum_i c_i\, \ell(u_i, t_i(w)) + \tfrac{\alpha}{2} |w|^2, \qquad u_i = 1 - y_i (w^\top x_i + b),

    a weighted sum, the intercept not penalised. :math:`t_i(w) = \sqrt{w^\top C_i w}` is the standard deviation that the
    noise of row i gives to its score: :math:`\sigma |w|` for ``noise=sigma``.

    ======================  =======================================================================================
    ``loss="logistic"``     expected logistic loss :math:`\mathbb E \log(1 + e^{u - 1 + tZ})`; the best practical choice
    ``loss="hinge"``        expected hinge loss :math:`\mathbb E [u + tZ]_+`: published as GURU (Ginodi & Globerson)
    ``loss="two_point"``    expected hinge under the worst noise of that variance, :math:`(u + \sqrt{u^2 + t^2})/2`
    ``loss="log2"``         :math:`t \log_2(1 + 2^{u/t})`
    ``loss="quadratic"``    the quadratically rounded hinge
    ======================  =======================================================================================

    All but the logistic are perspective losses :math:`t f(u/t)`. With a free intercept and classes of unequal weight they
    *collapse* at a finite noise: w = 0 is then exactly optimal and all predictions are alike. That is never assumed but
    proved, and said in a :class:`CollapseWarning`; see :func:`critical_noise`. The logistic loss does not collapse.

    Noise that is the same in all directions (a single number) changes the classifier little beyond what a re-tuned ridge
    does; what pays is knowing which features, rows or directions are noisy.

    Noise of zero is fine for some features or some rows (exact measurements); such fits are certified too.

    Scale features and their errors together: dividing X by s means dividing X_std by s. scikit-learn's Pipeline does not
    do that, it passes ``X_std`` on as it is.

    Parameters
    ----------
    noise : float or GaussianNoise, default=1.0
        What is common to all rows, in the units of the features: a standard deviation, or ``GaussianNoise(std=...)``,
        ``GaussianNoise(cov=...)``, ``GaussianNoise(factor=...)``. With ``X_std``, ``X_cov`` or ``X_factor`` given
        to ``fit`` it is the number that multiplies them: 1.0 takes them as stated.
    loss : {"logistic", "hinge", "log2", "quadratic", "two_point"} or Loss, default="logistic"
    alpha : float, default=None
        Strength of the ridge, what scikit-learn's linear classifiers call 1/C. It acts in the units of the features, so scale
        them. None: 1 for the logistic loss, 0 for the others.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes. "balanced" makes them weigh the same, which also prevents a collapse.
    solver : {"newton", "quasi_newton", "newton_cg", "clarabel"} or Solver, default=None
        None picks by size, "newton_cg" for wide sparse data. "clarabel" needs a loss with a conic form (two_point,
        quadratic, log2).
    tol : float, default=1e-6
        Largest certified relative gap to accept. Small problems are solved to rounding whatever it is.
    max_iter : int, default=1000
        Steps over all stages.
    warm_start : bool, default=False
        Start from the previous fit's coefficients.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".
    random_state : int or None, default=None
        Not used: all solvers here are deterministic. Present for stochastic ones.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
        Sorted; a positive score means ``classes_[1]``.
    objective_ : float
        The objective at the fitted coefficients.
    lower_bound_ : float
        A number that no coefficients can go below; -inf where none is known (logistic loss with alpha = 0).
    gap_ : float
        (objective_ - lower_bound_) / max(objective_, 1e-9 * total weight), recomputed from the data in float64.
    collapsed_ : bool
        Whether w = 0 has been certified as optimal.
    norm_bound_ : float
        A bound on the l2 norm of the optimal w, known before training; inf where none is known.
    n_iter_ : int
    solution_ : dict
        How the solver ended: status, advice, solver, n_iter, objective, lower_bound.
    row_noise_ : bool
        Whether the noise was stated row by row in fit; flip_probability then asks for it too.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    I. Ginodi, A. Globerson, "Gaussian Robust Classification" (2010).

    Examples
    --------
    >>> from holdfast import GaussianRobustClassifier
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> scale = data.X.std(axis=0)
    >>> X, S = data.X / scale, data.X_std / scale
    >>> model = GaussianRobustClassifier().fit(X, data.y, X_std=S)
    >>> model.gap_ < 1e-6
    True
    >>> model.flip_probability(X[:4], X_std=4 * S[:4]).round(2)
    array([0.05, 0.02, 0.01, 0.24])
    """

    def __init__(
        self,
        noise: float | GaussianNoise = 1.0,
        *,
        loss: str | Loss = "logistic",
        alpha: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.noise = noise
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_std: Any = None, X_cov: Any = None, X_factor: Any = None
    ) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes.
        sample_weight : array-like of shape (n_samples,), default=None
        X_std : array-like of shape (n_samples, n_features), default=None
            Standard deviation of each entry's own, independent error.
        X_cov : array-like of shape (n_samples, n_features, n_features), default=None
            Covariance of each row's errors.
        X_factor : array-like of shape (n_samples, n_features, r), default=None
            A factor F of each row's covariance F F'.
        """
        problem = self._problem(X, y, sample_weight, {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor})
        n, d = problem.rows.n_samples, problem.rows.n_features
        with nullcontext() if n * d * d >= MANY_THREADS else one_blas_thread:
            found, proof = train(
                problem,
                self.solver,
                tol=number(self.tol, f"{NAME}(tol", strictly=True),
                max_iter=self._max_iter(),
                start=self._start(problem),
                report=reporter(self.verbose),
            )
        w, b = problem.split(found.parameters)
        self.coef_, self.intercept_ = w.reshape(1, -1), np.array([b])
        self.objective_, self.lower_bound_, self.gap_, self.norm_bound_ = proof
        self.collapsed_ = bool(found.status is Status.SOLVED and problem.loss.is_homogeneous and not np.any(w))
        self.n_iter_ = max(1, found.n_iter)
        self.solution_ = found.summary()
        self.row_noise_ = any(value is not None for value in (X_std, X_cov, X_factor))
        self.holdfast_version_ = __version__
        self._warn(problem, found.status)
        return self

    def _problem(self, X: Any, y: Any, sample_weight: Any, metadata: dict[str, Any]) -> MarginScaleProblem:
        """Return the problem that `fit` has to solve, all input having been checked."""
        loss = self._loss()
        alpha = number(self._alpha(loss), f"{NAME}(alpha")
        _check_columns(X, metadata)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.classes_, signs = binary_signs(y, NAME)
        weights = row_weights(sample_weight, self.class_weight, X, signs, self.classes_, NAME)
        noise = self._noise()
        for name in metadata:
            if metadata[name] is not None and name not in noise.metadata:
                raise ValueError(f"{NAME}(noise={noise!r}).fit(..., {name}=...): this noise does not take {name}.")
        bound = noise.at(X.shape[0], X.shape[1], metadata)
        if loss.is_homogeneous and np.all(bound.exact_features(X.shape[1])):
            raise ValueError(
                f"{NAME}(noise={self.noise!r}, loss={self.loss!r}): without noise this loss is the plain hinge. "
                "Give noise > 0 (it multiplies X_std and the like), or use sklearn.svm.LinearSVC. "
                "(loss='logistic' takes noise=0: logistic regression.)"
            )
        return MarginScaleProblem(rows_of(X), signs, weights, loss, bound, alpha, bool(self.fit_intercept))

    def _loss(self) -> Loss:
        loss = resolve(self.loss, LOSSES, f"{NAME}(loss=%s)")
        if not isinstance(loss, Loss):
            raise ValueError(f"{NAME}(loss={loss!r}): give one of {', '.join(map(repr, LOSSES))}, or a holdfast loss.")
        return loss

    def _alpha(self, loss: Loss) -> Any:
        if self.alpha is not None:
            return self.alpha
        return 0.0 if loss.is_homogeneous else 1.0

    def _noise(self) -> UncertaintySet:
        if isinstance(self.noise, UncertaintySet):
            return self.noise
        if np.ndim(self.noise) > 0:
            raise ValueError(
                f"{NAME}(noise=<array>): noise is one number. A standard deviation per feature is "
                "noise=GaussianNoise(std=...), a covariance noise=GaussianNoise(cov=...); noise that differs by row goes "
                "to fit as X_std, X_cov or X_factor."
            )
        return GaussianNoise(std=number(self.noise, f"{NAME}(noise"))

    def _max_iter(self) -> int:
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"{NAME}(max_iter={self.max_iter!r}): must be an integer >= 1.")
        return int(self.max_iter)

    def _start(self, problem: MarginScaleProblem) -> Array | None:
        if not self.warm_start or not hasattr(self, "coef_") or self.coef_.shape[1] != problem.rows.n_features:
            return None
        return problem.join(self.coef_[0], float(self.intercept_[0]))

    def _warn(self, problem: MarginScaleProblem, status: Status) -> None:
        if self.collapsed_:
            negative, positive = problem.class_weights()
            cure = (
                f"The classes weigh {negative:g} and {positive:g}. Use class_weight='balanced', loss='logistic', or less "
                "noise (critical_noise says from where on)."
            )
            if not self.fit_intercept or majority(problem) == 0:
                cure = "The means of the classes coincide: no linear model can tell them apart by these features."
            warnings.warn(
                f"w = 0 is the best model under this noise, certified: every prediction is the same. {cure}",
                CollapseWarning,
                stacklevel=3,
            )
        if status is not Status.SOLVED:
            warnings.warn(
                f"Certified gap {self.gap_:.2g}, tol {self.tol:g}. {status.value}", ConvergenceWarning, stacklevel=3
            )

    def decision_function(self, X: Any) -> Array:
        """Return the score w'x + b of each row, shape (n_samples,); positive means ``classes_[1]``."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_[0], dense_output=True) + self.intercept_[0])

    def predict(self, X: Any) -> Any:
        """Return the predicted class of each row, shape (n_samples,)."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def flip_probability(self, X: Any, X_std: Any = None, X_cov: Any = None, X_factor: Any = None) -> Array:
        r"""Return the exact probability that the noise changes each prediction, :math:`\Phi(-|w^\top x + b| / t)`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        X_std, X_cov, X_factor : array-like, default=None
            The noise of each row as in `fit`, taken as stated, never multiplied by `noise`: a model trained with ``noise=4``
            and ``X_std=S`` is asked about that noise by ``X_std=4 * S``. Without them the noise of the constructor is
            meant; a model fitted with them asks for them.

        Returns
        -------
        ndarray of shape (n_samples,)
            Between 0 and 0.5; 0 where there is no noise.
        """
        scores = self.decision_function(X)
        t = self._known_score_noise(len(scores), {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor})
        z = np.divide(np.abs(scores), t, out=np.full(scores.shape, np.inf), where=t > 0)
        return ndtr(-z)

    def score_std(self, X: Any, X_std: Any = None, X_cov: Any = None, X_factor: Any = None) -> Array:
        r"""Return the standard deviation :math:`t = \sqrt{w^\top C w}` that the noise gives to each row's score.

        Takes noise as `flip_probability` does. A prediction with |score| > 2 * score_std is certain at two sigma.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return self._known_score_noise(X.shape[0], {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor})

    @available_if(_is_proper)
    def predict_proba(self, X: Any, X_std: Any = None, X_cov: Any = None, X_factor: Any = None) -> Array:
        r"""Return class probabilities :math:`\mathbb E\,\mathrm{sigmoid}(w^\top x + b + tZ)`, moderated by each row's noise.

        Only with ``loss="logistic"``. Takes noise as `flip_probability` does; a model fitted with the noise of each row and
        given none here returns plain, unmoderated probabilities.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        scores = self.decision_function(X)
        t = self._score_noise(len(scores), {"X_std": X_std, "X_cov": X_cov, "X_factor": X_factor})
        positive = self._loss().evaluate(1.0 + scores, np.array(0.0) if t is None else t)[1]
        return np.column_stack([1.0 - positive, positive])

    @available_if(_is_proper)
    def predict_log_proba(self, X: Any, X_std: Any = None, X_cov: Any = None, X_factor: Any = None) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X, X_std=X_std, X_cov=X_cov, X_factor=X_factor))

    def _known_score_noise(self, n_samples: int, metadata: dict[str, Any]) -> Array:
        """Return the standard deviation of each score, shape (n_samples,)."""
        t = self._score_noise(n_samples, metadata)
        if t is None:
            raise ValueError(
                f"{NAME}: this model was fitted with the noise of each row, so it needs theirs here too. "
                "Pass X_std, X_cov or X_factor (zeros for exact rows)."
            )
        return np.array(np.broadcast_to(t, n_samples))

    def _score_noise(self, n_samples: int, metadata: dict[str, Any]) -> Array | None:
        """Return the standard deviation of each score, or None where the rows' noise is known to differ and is not given."""
        w = self.coef_[0]
        if any(value is not None for value in metadata.values()):
            return _bind(GaussianNoise(), n_samples, metadata, w)
        return None if self.row_noise_ else _bind(self._noise(), n_samples, {}, w)


def _check_columns(X: Any, metadata: dict[str, Any]) -> None:
    """Raise if frames of values and of errors name their columns differently: they would be matched by position."""
    for name, value in metadata.items():
        if hasattr(X, "columns") and hasattr(value, "columns") and list(X.columns) != list(value.columns):
            raise ValueError(
                f"{name} has the columns {list(value.columns)}, X has {list(X.columns)}. Give both the same."
            )


def _bind(noise: UncertaintySet, n_samples: int, metadata: dict[str, Any], w: Array) -> Array:
    bound: BoundSet = noise.at(n_samples, len(w), metadata)
    return bound.support(w)


def critical_noise(
    X: Any,
    y: Any,
    *,
    noise: float | GaussianNoise = 1.0,
    loss: str | Loss = "hinge",
    sample_weight: Any = None,
    class_weight: Any = None,
) -> float:
    """Return the noise from which on the classifier with a free intercept collapses to w = 0.

    Parameters
    ----------
    X, y, sample_weight, class_weight
        As for :class:`GaussianRobustClassifier`.
    noise : float or GaussianNoise, default=1.0
        The shape of the noise, common to all rows.
    loss : str or Loss, default="hinge"

    Returns
    -------
    float
        The smallest factor of `noise` (with the default: the smallest standard deviation) at which w = 0 is optimal.
        inf if that never happens (the logistic loss, classes of equal weight), 0 if it always does.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> round(critical_noise(X, y))
    1531
    """
    model = GaussianRobustClassifier(noise, loss=loss, class_weight=class_weight, alpha=0.0)
    with one_blas_thread:
        return critical_factor(model._problem(X, y, sample_weight, {}))
