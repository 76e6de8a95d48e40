"""The classifier for features with Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Self, Unpack

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from holdfast._core.allowed import NOTHING, Choice, Count, Having, Number, is_array
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import CollapseWarning
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.parameters import resolve
from holdfast._core.row_sets import RowSets
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report
from holdfast._core.uncertainty import UncertaintySet
from holdfast._problems.expected_risk import ExpectedRisk
from holdfast._problems.labelled_rows import LabelledRows
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate
from holdfast._training.collapse import majority
from holdfast._training.moderated_link import through_moderated_link
from holdfast._training.streaming import Stream
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.carrying import CarryingRows
from holdfast.estimators.incremental import IncrementalClassifier, is_incremental
from holdfast.estimators.inputs import blas_threads_for, labelled_rows, number
from holdfast.estimators.kernel_scores import KernelTask
from holdfast.estimators.linear import Task
from holdfast.estimators.noisy_scores import NoisyScores
from holdfast.estimators.refusals import Refusals
from holdfast.losses import ExpectedLogistic, GaussianHinge, Log2Hinge, QuadraticHinge, TwoPointHinge
from holdfast.solvers import SGD
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.gaussian import NoiseOfRows

LOSSES: dict[str, type[Loss]] = {
    "logistic": ExpectedLogistic,
    "hinge": GaussianHinge,
    "log2": Log2Hinge,
    "quadratic": QuadraticHinge,
    "two_point": TwoPointHinge,
}
NAME = "GaussianRobustClassifier"


def _takes_parts(estimator: GaussianRobustClassifier) -> bool:
    if estimator._has_kernel:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit with kernel={estimator.kernel!r:.40}: it needs all rows at once. "
            "Use kernel='linear', or call fit."
        )
    if estimator.link is not None:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit with link={estimator.link!r}: the descent starts from a fit of all "
            "rows. Use link=None, or call fit."
        )
    return is_incremental(estimator)


class GaussianRobustClassifier(Refusals, NoisyScores, CarryingRows, IncrementalClassifier):
    r"""Classifier, linear or with a kernel, trained for the expected loss under Gaussian noise on the features.

    Minimises over w and b

    .. math:: \sum_i c_i\, \ell(u_i, t_i(w)) + \tfrac{\alpha}{2} |w|^2, \qquad u_i = 1 - y_i (w^\top x_i + b),

    where :math:`c_i` is the weight of row i; the intercept is not penalised. :math:`t_i(w) = \sqrt{w^\top C_i w}` is
    the standard deviation that the noise of row i gives to its score: :math:`\sigma |w|` for ``noise=sigma``.

    ======================  =======================================================================================
    ``loss="logistic"``     expected logistic loss :math:`\mathbb E \log(1 + e^{u - 1 + tZ})`; the best practical choice
    ``loss="hinge"``        expected hinge loss :math:`\mathbb E [u + tZ]_+`: published as GURU (Ginodi & Globerson)
    ``loss="two_point"``    expected hinge under the worst noise of that variance, :math:`(u + \sqrt{u^2 + t^2})/2`
    ``loss="log2"``         :math:`t \log_2(1 + 2^{u/t})`
    ``loss="quadratic"``    the quadratically rounded hinge
    ======================  =======================================================================================

    All but the logistic are perspective losses :math:`t f(u/t)`. With a free intercept and classes of unequal weight they
    *collapse* at a finite noise: w = 0 is then exactly optimal and all predictions are the same. This is proved, never
    assumed, and reported by a :class:`CollapseWarning`; see :func:`critical_noise`. The logistic loss does not
    collapse.

    With more than two classes the perspective losses are added up over all pairs of classes and minimised jointly,

    .. math:: \sum_i c_i \sum_{k \ne y_i} \ell(u_{ik}, t_i(w_{y_i} - w_k)) + \alpha \sum_k |w_k|^2, \qquad
              u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k), \qquad \textstyle\sum_k w_k = 0,

    published as M-GURU for the hinge; with two classes that is the problem above. Here pairs of classes may collapse,
    w_k = w_l, which is reported too.

    The logistic loss of several classes is the cross-entropy of the softmax, under noise

    .. math:: \sum_i c_i \max_{a \in \Delta} \sum_{k \ne y_i} a_k\,
              \mathbb E \log\bigl(1 + e^{u_{ik} - 1 + t_{ik} Z} / a_k\bigr) + \alpha \sum_k |w_k|^2, \qquad
              \textstyle\sum_k w_k = 0,

    where the maximum is over shares a of the row's rivals that sum to 1 (the expectation over Z uses 11 points).
    Without noise that is softmax regression, and for a single rival the loss above. Otherwise it is at most the
    expected cross-entropy, and almost as accurate; ``multiclass="ovr"``, each class against the rest, was up to 2.8
    points less accurate (``benchmarks/several_classes.md``). See :class:`ExpectedCrossEntropy`.

    ``link="moderated"``: the expected logistic loss grows with the noise of every score, so a few rows that are
    measured badly keep all weights small. With this link noisy scores are shrunk instead, in training as in
    `predict_proba`. It minimises

    .. math:: \sum_i c_i\, \mathbb E \log(1 + e^{-y_i r_i (f_i + t_i Z)}) + \tfrac{\alpha}{2} |w|^2, \qquad
              f_i = w^\top x_i + b, \qquad r_i = (1 + \pi t_i^2 / 8)^{-1/2},

    the expected log loss of the probabilities sigmoid(r f) when rows are measured again. This is *not convex*. There
    are two descents, from the certified solution for this noise and from that for exact rows; the one that ends lower
    is taken, which is never above the first start. Nothing is proved: ``gap_`` is inf, ``lower_bound_`` -inf. Without
    any noise the certified fit is kept.

    This link helps if some rows are measured far worse than others: with heavy-tailed errors, trained for four times as
    much, it was up to 26 points more accurate than ``link=None``, whose weights were held near 0. With errors of
    similar size it changed accuracy by -0.6 to +3.3 points; log loss was nowhere clearly higher
    (``benchmarks/moderated_link.py``, simulated). Keep None if you need a proof.

    ``kernel="rbf"`` and other kernels minimise the same in the space of the kernel's features: published as KEN-GURU
    for the hinge. :math:`f(x) = \sum_p \beta_p k(x, x_p) + b` and :math:`t = \sigma |f - b|_k`, where the squared norm
    is :math:`\beta^\top K \beta`. The noise is then *that of the kernel's features*, not of the inputs; with an RBF
    kernel these features have length 1. So it is one number, and ``X_std`` is refused: for errors of the inputs use
    :class:`NoiseAwareClassifier`, or :class:`RobustKernelClassifier`. The fit is exact and proved with the kernel
    matrix itself, which takes n_samples^2 numbers. With `n_landmarks` rows as landmarks (Nystroem's approximation) it
    takes n_samples * n_landmarks numbers, and the proof is for that approximation. ``solver="sgd"`` takes the steps of
    the published algorithm, corrected.

    Noise that is the same in all directions (a single number) changes the classifier little more than a re-tuned ridge
    would. The gain comes from knowing which features, rows or directions are noisy.

    Noise of zero is fine for some features or some rows (exact measurements); such fits are certified too.

    Scale features and their errors together: dividing X by s means dividing X_std by s. scikit-learn's Pipeline does not
    do that, it passes ``X_std`` on as it is.

    Parameters
    ----------
    noise : float or GaussianNoise, default=None
        None: the noise of each row that ``fit`` is given as ``X_std``, ``X_cov`` or ``X_factor``. Without these there
        is no noise: the logistic loss is then plain logistic regression, the other losses raise. Otherwise the noise
        that all rows share, in the units of the features: a standard deviation, or ``GaussianNoise(std=...)``,
        ``GaussianNoise(cov=...)``, ``GaussianNoise(factor=...)``. With ``X_std``, ``X_cov`` or ``X_factor`` given to
        ``fit``, it is the number that multiplies them: 1.0 takes them as stated, as None does. If the covariance is
        only partly known, ``GaussianNoise(std, unknown="correlations")`` or ``"variances"`` trains for the worst
        covariance that agrees with it; t, and every later result about the noise, is then for the worst one.
    loss : {"logistic", "hinge", "log2", "quadratic", "two_point"} or Loss, default="logistic"
    kernel : {"linear", "rbf", "poly", "precomputed"} or callable, default="linear"
        A callable takes two rows and returns a number. "precomputed": `X` is the kernel matrix, between the rows in
        `fit`, and between new rows and those of `fit` in other methods.
    gamma : float, "scale" or "auto", default="scale"
        The parameter of the kernels "rbf", :math:`e^{-\gamma |x - z|^2}`, and "poly",
        :math:`(\gamma x^\top z + c_0)^{degree}`. "scale" is 1 / (n_features * X.var()), "auto" 1 / n_features.
    degree : int, default=3
    coef0 : float, default=1.0
        :math:`c_0` of the kernel "poly".
    n_landmarks : int, default=None
        The largest number of rows that scores are kernels with; they are chosen by `random_state` and pivoting. None:
        all rows that are linearly independent in the kernel's space, for up to 10 000 rows.
    link : {None, "moderated"}, default=None
        "moderated", with the logistic loss only, trains for moderated scores as described above. It takes three to four
        times the work, and nothing is proved. :class:`GaussianRobustClassifierCV`, whose paths are certified, does not
        have it; search alpha by GridSearchCV.
    alpha : float, default=None
        Strength of the ridge: 1/C of scikit-learn's linear classifiers, 1/(2C) where several classes are fitted at once.
        It acts in the units of the features, so scale them. None: 1 for the logistic loss, 0 for the others.
    multiclass : {None, "joint", "ovr"}, default=None
        How to fit more than two classes: all at once, or, with the logistic loss only, one against the rest. None: all
        at once, except where that is not available: the logistic loss with a `link`, ``solver="sgd"`` or `partial_fit`.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes. "balanced" makes them weigh the same, which also prevents a collapse.
    solver : {"newton", "quasi_newton", "newton_cg", "clarabel", "sgd"} or Solver, default=None
        None picks by size among the batch solvers, "newton_cg" for wide sparse data. "clarabel" needs a loss with a conic
        form (two_point, quadratic, log2). "sgd" or :class:`SGD` is the stochastic descent of the papers: rough, and never
        picked.
    tol : float, default=1e-6
        The largest certified relative gap to accept. Small problems are solved to 1e-11 or better in any case.
    max_iter : int, default=1000
        Steps over all stages.
    warm_start : bool, default=False
        Start from the previous fit's coefficients.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".
    random_state : int or None, default=None
        Seeds the order in which SGD visits the rows, and the choice of landmarks; all else is deterministic.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        With more than two classes one row each; the rows of a joint fit sum to 0. Not with a kernel.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        With a kernel other than "linear": :math:`\beta`, the weights of the rows `support_`.
    support_ : ndarray of shape (n_support,)
        With a kernel: the indices of these rows, either the landmarks or rows that span all others in the kernel's
        space.
    support_vectors_, n_support_, gamma_
        With a kernel: these rows themselves, their number in each class, and gamma as a number.
    rkhs_norm_ : ndarray of shape (1,) or (n_classes,)
        With a kernel: :math:`(\beta^\top K \beta)^{1/2}`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    objective_ : float
        The objective at the fitted coefficients.
    lower_bound_ : float
        A lower bound on the objective over all coefficients; -inf if none is known (logistic loss with alpha = 0,
        moderated link).
    gap_ : float
        (objective_ - lower_bound_) / max(objective_, 1e-9 * total weight), recomputed from the data in float64.
    collapsed_ : bool
        Whether w = 0 has been certified as optimal.
    collapsed_pairs_ : ndarray of shape (n_pairs, 2)
        Pairs of classes that the certified optimum does not tell apart: their weights are the same.
    proof_weights_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        The dual weights that prove `lower_bound_`: ``proof_weights_ @ X`` is the pull of the rows on the weights,
        :math:`\sum_i c_i a_i y_i x_i`, and without a ridge its absolute values add up to `lower_bound_` (with several classes
        to twice that). Rows with an entry near 0 do not carry the model; see `carrying_rows`. Only for the perspective losses.
    norm_bound_ : float
        A bound on the l2 norm of the optimal w (of the optimal `coef_` for several classes), known before training; inf
        where none is known.
    n_iter_ : int
    solution_ : dict
        How the solver ended: status, advice, solver, n_iter, objective, lower_bound.
    stream_ : list of dict
        The state of `partial_fit`; only after it.
    multiclass_ : {"joint", "ovr"}
        How more than two classes were fitted.
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
    >>> from sklearn.datasets import make_circles
    >>> X, y = make_circles(200, noise=0.1, factor=0.5, random_state=0)
    >>> model = GaussianRobustClassifier(0.1, loss="hinge", kernel="poly", degree=2).fit(X, y)
    >>> len(model.support_), model.gap_ < 1e-6  # six features, of which six rows make all functions
    (6, True)
    """

    _steps, _stream = SGD, Stream
    link: str | None = None
    kernel: Any = "linear"
    n_landmarks: int | None = None
    linear_kernel = "linear"

    parameter_table = {
        "alpha": Number() | NOTHING,
        "multiclass": Choice(
            None, "joint", "ovr", advice="give 'joint' (all at once), 'ovr' (one against the rest) or None"
        ),
        "link": Choice(None, "moderated"),
        "kernel": Choice("linear", "rbf", "poly", "precomputed") | Having(("__call__",), "a callable"),
        "gamma": Choice("scale", "auto") | Number(strictly=True),
        "degree": Count(),
        "coef0": Number(),
        "n_landmarks": Count() | NOTHING,
    }

    def __init__(
        self,
        noise: float | GaussianNoise | None = None,
        *,
        loss: str | Loss = "logistic",
        kernel: Any = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        n_landmarks: int | None = None,
        link: str | None = None,
        alpha: float | None = None,
        multiclass: str | None = None,
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
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.link = link
        self.alpha = alpha
        self.multiclass = multiclass
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @takes_metadata
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[NoiseByRow]) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
        **metadata
        """
        return self._fitted(X, y, sample_weight, metadata)

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        if self._has_kernel:
            return self._kernel_task(X, y, sample_weight, metadata)
        risk = self._risk()
        rows = self._labelled(X, y, sample_weight, metadata)
        problems = risk.problems(rows, self._noise_at(rows.X, metadata, risk))
        learned = {"classes_": rows.classes, "row_noise_": bool(metadata), "multiclass_": risk.multiclass}
        return Task(problems, learned, risk.noise.row_factor, risk)

    def _kernel_task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]) -> Task:
        """Return the problems in coordinates of the kernel's features."""
        risk = self._risk()
        self._refuse_errors_of_inputs(metadata, "fit")
        if self.link is not None:
            raise ValueError(f"{self._quoted('kernel', 'link')}: give link=None with a kernel.")
        rows = self._labelled(X, y, sample_weight, metadata)
        noise = risk.noise.at(rows.X, {})
        if not (noise.is_isotropic and noise.is_common):
            raise ValueError(
                f"{self._quoted('noise', 'kernel')}: noise of the kernel's features is one number. Use NoiseAwareClassifier "
                "for errors of the inputs, or kernel='linear'."
            )
        with blas_threads_for(rows.X.shape[0] ** 3):
            space = self._space_of(rows.X, rows.counts)
        featured = rows._replace(X=space.coordinates)
        problems = risk.problems(featured, self._noise_at(featured.X, {}, risk))
        learned = {"classes_": rows.classes, "row_noise_": False, "multiclass_": risk.multiclass}
        return KernelTask(problems, learned, risk=risk, space=space, labelled=rows)

    def _noise_at(self, X: Any, metadata: Mapping[str, Any], risk: ExpectedRisk) -> RowSets:
        """Return the noise of rows, after checking that the loss and the link can use it."""
        noise = risk.noise_of(X, metadata)
        if self.link is not None:
            self._check_link(risk.loss, noise)
        return noise

    def _labelled(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]) -> LabelledRows:
        self._check_kernel()
        formats = False if self._is_precomputed else "csr"
        rows = labelled_rows(self, X, y, sample_weight, metadata, by_feature=("noise",), accept_sparse=formats)
        self._check_classes(self._loss(), len(rows.classes), self._is_stochastic)
        return rows

    def _risk(self, *, takes_steps: bool = False) -> ExpectedRisk:
        """Return the risk to minimise, by the parameters of this classifier."""
        loss = self._loss()
        way = self._way_of(loss, takes_steps or self._is_stochastic)
        alpha, intercept = float(self._alpha(loss)), bool(self.fit_intercept)
        return ExpectedRisk(loss, self._noise(), alpha, intercept, way, self._quoted)

    @offered_if(_takes_parts)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, X_std: Any = None) -> Self:
        """Take one stochastic step for each of these rows, in their order, continuing where the last call ended.

        The coefficients are the average over the steps so far. With ``solver=SGD(eta0=..., bound=...)``, alpha = 0 and
        weights of 1, calls on any parts of the rows give the same as ``fit`` with ``SGD(epochs=1, shuffle=False)``.
        Settings of SGD that are left open are estimated at each call from all rows so far. Nothing is proved: ``gap_``
        is inf, ``objective_`` nan. `fit` starts afresh, and so does the first `partial_fit` after it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All classes; needed at the first call, unless there was a `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Taken as they are: a weight of 2 makes a step twice as long. The ridge's share of a step is alpha over the total
            weight so far.
        X_std : array-like of shape (n_samples, n_features), default=None
            Standard deviation of each entry's own, independent error; in all calls or in none.
        """
        risk, metadata = self._risk(takes_steps=True), {} if X_std is None else {"X_std": X_std}
        risk.noise.refuse_parts(f"{NAME}.partial_fit")
        rows = self._part(X, y, classes, sample_weight, metadata, "row_noise_", ("X_std",))
        self._check_classes(risk.loss, len(rows.classes), True)
        self._advance(risk.problems(rows, self._noise_at(rows.X, metadata, risk)), rows.classes)
        self.row_noise_, self.multiclass_ = bool(metadata), risk.multiclass
        self.collapsed_pairs_ = rows.classes[np.zeros((0, 2), dtype=np.intp)]
        return self

    def _train(self, problem: Any, start: Array | None, report: Report) -> tuple[Solution, Certificate]:
        found, proof = super()._train(problem, start, report)
        if self.link is None:
            return found, proof
        tol, max_iter = float(self.tol), int(self.max_iter)
        return through_moderated_link(problem, found, proof, tol=tol, max_iter=max_iter, report=report)

    def _unpack(self, problems: Sequence[Any], fits: Sequence[tuple[Solution, Certificate]]) -> Solution:
        worst = super()._unpack(problems, fits)
        solved = worst.status is Status.SOLVED and problems[0].loss.is_homogeneous
        W = self.coef_ if len(self.coef_) > 1 else np.concatenate([0 * self.coef_, self.coef_])
        pairs = [pair for pair in combinations(range(len(W)), 2) if solved and np.array_equal(*W[list(pair)])]
        self.collapsed_ = len(pairs) == len(W) * (len(W) - 1) // 2
        self.collapsed_pairs_ = self.classes_[np.array(pairs, dtype=np.intp).reshape(-1, 2)]
        return worst

    def _loss(self) -> Loss:
        loss = resolve(self.loss, LOSSES, f"{NAME}(loss=%s)")
        if not isinstance(loss, Loss):
            raise ValueError(f"{NAME}(loss={loss!r}): give one of {', '.join(map(repr, LOSSES))}, or a holdfast loss.")
        if loss.is_worst_case:
            raise ValueError(f"{NAME}(loss={loss!r}): a loss at worst points goes with RobustLinearClassifier.")
        loss.check_parameters()
        return loss

    def _alpha(self, loss: Loss) -> Any:
        if self.alpha is not None:
            return self.alpha
        return 0.0 if loss.is_homogeneous else 1.0

    def stated_uncertainty(self) -> tuple[str, UncertaintySet | None]:
        """Return the parameter that states the noise, and the rows' noise as a set; None with a kernel."""
        return "noise", None if self._has_kernel else self._noise()

    def _noise(self) -> UncertaintySet:
        if self.noise is None:
            return NoiseOfRows()
        if isinstance(self.noise, UncertaintySet):
            if not self.noise.is_expectation:
                raise ValueError(
                    f"{NAME}(noise={self.noise!r}): a set says what may happen, not how likely it is, so that no loss can be "
                    "averaged over it. Use RobustLinearClassifier, which takes sets, or state a GaussianNoise."
                )
            return self.noise
        if is_array(self.noise):
            raise ValueError(
                f"{NAME}(noise=<array>): noise is one number. A standard deviation per feature is "
                "noise=GaussianNoise(std=...), a covariance noise=GaussianNoise(cov=...); noise that differs by row goes "
                "to fit as X_std, X_cov or X_factor."
            )
        return GaussianNoise(std=number(self.noise, f"{NAME}(noise"))

    def _warn(self, task: Task) -> None:
        problem = task.problems[0]
        unbalanced = "Use class_weight='balanced', loss='logistic', or less noise"
        if self.collapsed_:
            weights = ", ".join(f"{weight:g}" for weight in problem.class_weights())
            cure = f"The classes weigh {weights}. {unbalanced} (critical_noise returns the limit)."
            if isinstance(problem, MarginScaleProblem) and (not self.fit_intercept or majority(problem) == 0):
                cure = "The means of the classes coincide: no linear model can tell them apart by these features."
            warn_caller(
                f"w = 0 is the best model under this noise, certified: every prediction is the same. {cure}",
                CollapseWarning,
            )
        elif len(self.collapsed_pairs_):
            pairs = ", ".join(f"{a!r} and {b!r}" for a, b in self.collapsed_pairs_.tolist())
            warn_caller(
                f"The best model under this noise does not tell apart the classes {pairs}: their weights are the same, "
                f"certified to a gap of {self.gap_:.1g}, and the heavier one is predicted. {unbalanced}.",
                CollapseWarning,
            )
        if self.link is None or self.gap_ < np.inf:
            self._warn_uncertified()
        elif self.solution_["status"] != Status.SOLVED.name.lower():
            warn_caller(
                f"{NAME}(link={self.link!r}, max_iter={self.max_iter!r}): the descent, or the fit it starts from, ended early. "
                f"{self.solution_['advice']} Where alpha is next to 0, weights may grow without end: then raise alpha.",
                ConvergenceWarning,
            )
