"""Boosting by PAC-Bayes: a vote of weak learners whose weights have Laplace distributions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from holdfast._certificates.fitted import linear_model
from holdfast._certificates.models import Model
from holdfast._core.allowed import NOTHING, VERBOSE, Choice, Count, Having, Instance, Number, Several, Switch, short
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.parameters import resolve
from holdfast._core.progress import reporter
from holdfast._core.solution import Status
from holdfast._core.solver import Report
from holdfast._core.version import __version__
from holdfast._core.whole_fits import WholeFits
from holdfast._data.outputs import Outputs
from holdfast._problems.laplace_tail import voters_for, voters_wrong
from holdfast._problems.weak_learners import learn, per_learner
from holdfast._training.laplace_votes import Laws, Posterior, VoteTraining
from holdfast.estimators.callbacks import CallbackSupportMixin, announced, with_callbacks
from holdfast.estimators.inputs import blas_threads_for, class_codes, row_weights
from holdfast.estimators.linear import ROUTING, shares_of_classes
from holdfast.estimators.units import warn_of_units
from holdfast.features.expected_features import checked_rows
from holdfast.features.row_noise import RowNoise
from holdfast.losses.laplace_law import laplace_kl
from holdfast.losses.votes import ExpVote, LogVote, VoteLoss

NAME = "LaplaceBoostClassifier"
LOSSES: dict[str, type[VoteLoss]] = {"log": LogVote, "exp": ExpVote}
LARGEST_TABLE = 2e8
"""The most entries of the table of the learners' outputs on the training rows."""
AT_ONCE = 1 << 22
"""How many entries of the learners' outputs prediction works on at a time."""


class LaplaceBoostClassifier(WholeFits, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    r"""Vote of weak learners with random weights, trained for a PAC-Bayes bound on its errors.

    The outputs :math:`x_k` of the weak learners are columns of X, stumps or ramps. A voter :math:`w \sim Q` predicts the sign
    of :math:`\sum_k w_k x_k`. Under Q the weights are independent; :math:`w_k` has a Laplace distribution with mean
    :math:`\mu_k` and density :math:`e^{-|w_k - \mu_k| / \sigma_k} / 2 \sigma_k`. The prior P has means 0 and scales
    :math:`\tau`. The fit minimises

    .. math:: \mathrm{KL}(Q \| P) + c \sum_i s_i\, \ell_i(\mu, \sigma),

    where s are the sample weights. The loss of a row is never below the share of voters that misclassify it. With
    :math:`v_i = \ln \mathbb E_Q\, e^{-y_i w^\top x_i} = -y_i \mu^\top x_i - \sum_k \ln(1 - \sigma_k^2 x_{ik}^2)` it is

    ================  ===================================================================  =================================
    ``loss="log"``    :math:`\log_2(1 + e^{v_i})`                                          BaLaBoost
    ``loss="exp"``    :math:`e^{v_i}`                                                      Huber-Reg AdaBoost
    ``loss="tail"``   that share where it is below 1/2, its tangent at 1/2 above           RobuCoP
    ================  ===================================================================  =================================

    "log" and "exp" are jointly convex in means and scales, and a dual problem proves `gap_`. "tail" has one common scale,
    :math:`\sigma_k = \sigma \tau_k`. It is convex for each scale, and `gap_` is proved over all scales.
    "tail" measures each row in units of its length, so that outlying rows do no harm. It takes columns as they are, so
    bring them to similar scales first (``StandardScaler``, or division by a known range); otherwise the column with the
    largest numbers dominates.

    For boosting, treat each weak learner as a coordinate: ``solver=CoordinateDescent("greedy")`` adds one learner per round.

    Parameters
    ----------
    loss : {"log", "exp", "tail"} or VoteLoss, default="log"
    c : float, default=None
        Weight of the losses, > 0; a small c keeps the fit near the prior. None means 1. Tune it on rows like those you expect.
    base : {"linear", "stumps", "splines"} or list, default="linear"
        The weak learners. "linear": columns. "stumps": 1 above and -1 below each of `n_knots` thresholds of a column.
        "splines": ramps from -1 to 1 between neighbouring knots of a column. A list: functions or fitted classifiers whose
        outputs lie between -1 and 1.
    feature_range : array-like of shape (2,) or (n_features, 2), default=None
        Lowest and highest value of each feature, known before the data. Thresholds and knots divide the range evenly; columns
        ("linear") are divided by its largest absolute value. None: quantiles and largest values come from the training rows,
        and :func:`pac_bayes_bound` refuses the model. With ``loss="tail"``, None leaves columns as they are.
    n_knots : int, default=10
        Largest number of stumps or ramps for each column.
    scale : {"joint", "fixed"} or float, default="joint"
        "joint" learns the scales. A number s fixes them at s tau; "fixed" means s = 1 / sqrt(number of learners + 1). The
        losses "log" and "exp" need :math:`|x_{ik}| \sigma_k < 1`.
    prior_mean : float or array-like of shape (n_learners,), default=0.0
        Means of the weights under the prior; must be 0 with ``loss="tail"``.
    prior_scale : float or array-like of shape (n_learners,), default=1.0
        Scales of the weights under the prior, :math:`\tau > 0`.
    fit_intercept : bool, default=True
        Adds a last learner whose output is always 1, with prior mean 0.
    intercept_scale : float, default=1.0
        Prior scale of the intercept.
    class_weight : dict or "balanced", default=None
        Factors on the sample weights of each class. More than two classes are fitted one against the rest.
    solver : str or Solver, default=None
        "newton", "quasi_newton", "coordinate_descent" or a solver from :mod:`holdfast.solvers`, such as
        ``CoordinateDescent("greedy")``. None picks one.
    tol : float, default=1e-6
        Largest certified relative gap to accept.
    max_iter : int, default=1000
    warm_start : bool, default=False
        Start from the previous fit if it has as many weights.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".

    Attributes
    ----------
    mu_, sigma_ : ndarray of shape (1, n_learners) or (n_classes, n_learners)
        Means and scales of the weights, with the intercept last.
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    learners_ : object
        The weak learners; ``learners_.owners`` is the index of each one's feature.
    objective_ : float
        Divergence plus weighted losses, summed over the classes if there are more than two.
    lower_bound_ : float
        A lower bound on the objective over all means and scales.
    divergence_ : float
        KL(Q || P), summed over the classes if there are more than two.
    gap_ : float
        (objective_ - lower_bound_) / objective_, recomputed from the learners' outputs.
    n_sigma_solves_ : int
        With ``loss="tail"``: number of convex problems solved, one for each scale tried.
    objective_path_ : list of ndarray
        Falling values of the objective during the fit, for each class against the rest (one array for two classes).
    c_ : float
        The value of c that was used.
    feature_importances_ : ndarray of shape (n_features,)
        Sum of the absolute means of each feature's weights, scaled to sum to 1; one for each learner if `base` is a list.
    importance_scales_ : ndarray of shape (n_features,)
        Posterior standard deviation of the sum of each feature's weights, in the same units.
    row_noise_ : bool
        Whether `fit` got `X_std`; predictions without it then warn.
    n_iter_ : int
    solution_ : dict
        Status, advice, solver, n_iter, objective and lower_bound.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    pac_bayes_bound : Bounds the error on new rows.

    Notes
    -----
    For rows with stated noise (``X_std``), the output of a stump or a ramp is its average over the noise, in `fit` and at
    prediction. The average of a column over noise is the column itself, so ``base="linear"`` refuses `X_std`.

    References
    ----------
    A. Noy, K. Crammer, "Robust forward algorithms via PAC-Bayes and Laplace distributions" (2014), with corrected updates.

    Examples
    --------
    >>> from holdfast import LaplaceBoostClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 4))
    >>> y = np.where(X[:, 0] * (X[:, 0] > -0.5) > 0.2 * X[:, 1], "yes", "no")
    >>> model = LaplaceBoostClassifier(base="stumps", feature_range=(-1, 1)).fit(X, y)
    >>> model.gap_ < 1e-6, round(model.score(X, y), 2)
    (True, 0.98)
    >>> model.predict_proba(X[2:4]).round(2)  # shares of the voters
    array([[1., 0.],
           [0., 1.]])
    >>> model.feature_importances_.round(1)
    array([0.5, 0.2, 0.2, 0.1])
    """

    __metadata_request__fit = {"X_std": True}
    __metadata_request__predict = {"X_std": True}
    __metadata_request__predict_proba = {"X_std": True}
    __metadata_request__predict_log_proba = {"X_std": True}
    __metadata_request__decision_function = {"X_std": True}
    __metadata_request__score = {"X_std": True}

    parameter_table = {
        "loss": Choice(*LOSSES, "tail") | Instance(VoteLoss, "a VoteLoss object"),
        "c": Number(strictly=True) | NOTHING,
        "base": Choice("linear", "stumps", "splines")
        | Several(Having(("predict",), "is a fitted classifier") | Having(("__call__",), "a function")),
        "n_knots": Count(),
        "scale": Choice("joint", "fixed") | Number(strictly=True),
        "fit_intercept": Switch(),
        "intercept_scale": Number(strictly=True),
        "tol": Number(strictly=True),
        "max_iter": Count(),
        "warm_start": Switch(),
        "verbose": VERBOSE,
    }

    def __init__(
        self,
        loss: Any = "log",
        *,
        c: float | None = None,
        base: Any = "linear",
        feature_range: Any = None,
        n_knots: int = 10,
        scale: Any = "joint",
        prior_mean: Any = 0.0,
        prior_scale: Any = 1.0,
        fit_intercept: bool = True,
        intercept_scale: float = 1.0,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        verbose: int = 0,
    ):
        self.loss = loss
        self.c = c
        self.base = base
        self.feature_range = feature_range
        self.n_knots = n_knots
        self.scale = scale
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_std: Any = None) -> Self:
        """Fit the distributions of the weights.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Kept sparse with ``base="linear"``.
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight 2 counts as two equal rows.
        X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Standard deviation of the error of each entry, for stumps and splines.
        """
        check_columns(X, {"sample_weight": sample_weight, "X_std": X_std})
        check_features(X, {"feature_range": self.feature_range})
        given = X
        X, y = checked_rows(self, X, y, call=f"{NAME}.fit", accept_sparse="csr", ensure_min_samples=2)
        self.classes_, codes = class_codes(y, NAME)
        weights = row_weights(sample_weight, self.class_weight, X, codes, self.classes_, NAME)
        noise = self._noise(X, X_std, "fit")
        warn_of_units(given, {"X_std": X_std}, f"{NAME}.fit")
        self.row_noise_ = noise is not None
        self.learners_ = learn(
            self.base,
            X,
            weights,
            feature_range=self.feature_range,
            n_knots=int(self.n_knots),
            has_constant=self.fit_intercept,
            needs_limits=self.loss != "tail",
            call=NAME,
        )
        self._check_size(X)
        report, finished = announced(self, reporter(self.verbose), X, y)
        with blas_threads_for(X.shape[0] * self.learners_.n_learners**2):
            outputs = self.learners_.outputs(X, noise)
            used = np.flatnonzero(weights)
            if len(used) < len(weights):
                outputs, codes, weights = outputs.take(used), codes[used], weights[used]
            self._set_model(self._posteriors(outputs, codes, weights, report))
        finished()
        return self

    def _noise(self, X: Any, X_std: Any, method: str) -> Array | None:
        """Return the standard deviations of the entries, None if there is no noise."""
        if X_std is None:
            return None
        if np.shape(X_std) != X.shape:
            raise ValueError(f"{NAME}.{method}: X_std has shape {np.shape(X_std)}; give that of X, {X.shape}.")
        deviations = RowNoise.stated(X.toarray() if sparse.issparse(X) else X, {"X_std": X_std}).deviations
        if not (isinstance(self.base, str) and self.base != "linear"):
            if not np.any(deviations):
                return None
            raise ValueError(
                f"{NAME}(base={short(self.base):.60}).{method}(..., X_std=...): noise does not change the average of a column, "
                "and the average of a learner from a list is not known. Use base='stumps' or 'splines', or leave X_std out."
            )
        return deviations

    def _check_size(self, X: Any) -> None:
        """Raise if the table of the learners' outputs is too large."""
        d = self.learners_.n_learners
        is_small = sparse.issparse(X) if self.base == "linear" else self.base == "stumps" and not self.row_noise_
        if not (is_small and self.loss != "tail") and X.shape[0] * d > LARGEST_TABLE:
            raise ValueError(
                f"{NAME}.fit: {X.shape[0]} rows and {d} learners would take {8 * X.shape[0] * d:.2g} bytes. Use fewer rows, a "
                "smaller n_knots, or base='stumps' without X_std."
            )

    def _posteriors(self, outputs: Outputs, codes: NDArray[np.intp], weights: Array, report: Report) -> list[Posterior]:
        """Return the distributions of the weights for each class against the rest."""
        self.c_ = 1.0 if self.c is None else float(self.c)
        training = VoteTraining(self._prior(), self._fixed(), self.solver, float(self.tol), int(self.max_iter), report)
        train = training.by_tail
        if self.loss != "tail":
            self._check_scale(training, outputs)
            train = partial(training.by_loss, resolve(self.loss, LOSSES, f"{NAME}(loss=%s)"))
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        means, scales = self._before_fit("mu_"), self._before_fit("sigma_")
        is_warm = self.warm_start and np.shape(means) == (len(positives), outputs.n_learners)
        before = [Laws(*laws) for laws in zip(means, scales, strict=True)] if is_warm else [None] * len(positives)
        return [
            train(outputs, np.where(codes == k, 1.0, -1.0), self.c_ * weights, laws)
            for k, laws in zip(positives, before, strict=True)
        ]

    def _prior(self) -> Laws:
        n_given = self.learners_.n_learners - int(self.fit_intercept)
        parts = []
        for name, own in (("prior_mean", 0.0), ("prior_scale", float(self.intercept_scale))):
            parts.append(np.append(per_learner(getattr(self, name), n_given, NAME, name), [own] * self.fit_intercept))
        if np.any(parts[1] <= 0):
            raise ValueError(f"{NAME}(prior_scale={short(self.prior_scale):.60}): must be > 0.")
        if self.loss == "tail" and np.any(parts[0]):
            raise ValueError(
                f"{NAME}(loss='tail', prior_mean={short(self.prior_mean):.60}): prior_mean must be 0 with this loss."
            )
        return Laws(*parts)

    def _fixed(self) -> float | None:
        """Return the fixed scale in units of the prior's, or None if scales are learned."""
        if isinstance(self.scale, str):
            return None if self.scale == "joint" else float(1 / np.sqrt(self.learners_.n_learners + 1))
        return float(self.scale)

    def _check_scale(self, training: VoteTraining, outputs: Outputs) -> None:
        """Raise if a fixed scale is so large that E exp(-margin) is infinite."""
        scales = training.prior.scales * (training.fixed or 0.0)
        if np.any(reached := scales * outputs.largest >= 1):
            k = int(np.argmax(reached))
            raise ValueError(
                f"{NAME}(scale={self.scale!r}): learner {k} has outputs up to {outputs.largest[k]:g}, and its scale is "
                f"{scales[k]:g}; their product must be below 1. Use a smaller scale, or scale='joint'."
            )

    def _set_model(self, fits: list[Posterior]) -> None:
        """Set the fitted attributes, and warn if the fit is not certified."""
        self.mu_, self.sigma_ = (np.array(parts) for parts in zip(*(fit.laws for fit in fits), strict=True))
        prior = self._prior()
        divergences = laplace_kl(self.mu_, self.sigma_, prior_mean=prior.means, prior_scale=prior.scales)
        self.divergence_ = float(np.sum(divergences))
        self.objective_ = float(sum(fit.proof.objective for fit in fits))
        self.lower_bound_ = float(sum(fit.proof.lower_bound for fit in fits))
        floor = min(sum(fit.floor for fit in fits), 1.0)
        self.gap_ = (self.objective_ - self.lower_bound_) / max(self.objective_, floor)
        self.objective_path_ = [np.array(fit.trace) for fit in fits]
        if self.loss == "tail":
            self.n_sigma_solves_ = sum(fit.n_sigma_solves for fit in fits)
        worst = min(fits, key=lambda fit: fit.solution.status is Status.SOLVED)
        self.n_iter_ = max(1, *(fit.solution.n_iter for fit in fits))
        self.solution_ = worst.solution.summary() | {"objective": self.objective_, "lower_bound": self.lower_bound_}
        self.holdfast_version_ = __version__
        self.feature_importances_, self.importance_scales_ = self.learners_.importances(self.mu_, self.sigma_)
        if worst.advice:
            self.solution_["advice"] = worst.advice
            warn_caller(f"Certified gap {self.gap_:.2g}, tol {self.tol:g}. {worst.advice}", ConvergenceWarning)

    def _outputs(self, X: Any, X_std: Any, method: str) -> Iterable[Outputs]:
        """Check the rows and return the learners' outputs, part by part."""
        check_is_fitted(self)
        check_columns(X, {"X_std": X_std}, self)
        X = checked_rows(self, X, call=f"{NAME}.{method}", reset=False, accept_sparse="csr")
        noise = self._noise(X, X_std, method)
        if noise is None and self.row_noise_:
            warn_caller(
                f"{NAME}.{method}: this model was fitted with X_std but gets none here, so rows count as exact. Pass X_std "
                f"(zeros for exact rows). {ROUTING}",
                UserWarning,
            )
        parts = gen_batches(X.shape[0], max(1, AT_ONCE // self.learners_.n_learners))
        return (self.learners_.outputs(X[part], None if noise is None else noise[part]) for part in parts)

    def decision_function(self, X: Any, *, X_std: Any = None) -> Array:
        """Return the share of voters for a class minus the share against it, from -1 to 1.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            The noise of each entry, as in `fit`. Without it rows count as exact; a model fitted with noise then warns.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive means ``classes_[1]``. More classes: one column for each class against the rest.
        """
        leads = 2 * self._votes(self._outputs(X, X_std, "decision_function")) - 1
        return leads[:, 0] if leads.shape[1] == 1 else leads

    def predict(self, X: Any, *, X_std: Any = None) -> Any:
        """Return the class of the majority of voters, shape (n_samples,); takes noise as `decision_function` does.

        With two classes the sign of the mean score decides, as the distributions are symmetric. With more, it is the class
        with the largest share of voters against the rest.
        """
        return self._predicted(X, X_std, "predict")

    def _predicted(self, X: Any, X_std: Any, method: str) -> Any:
        parts = self._outputs(X, X_std, method)
        if len(self.mu_) == 1:
            return self.classes_[np.concatenate([part.dot(self.mu_[0]) > 0 for part in parts]).astype(np.intp)]
        return self.classes_[np.argmax(self._votes(parts), axis=1)]

    def mean_scores(self, X: Any, *, X_std: Any = None) -> Array:
        r"""Return :math:`\mu^\top x`, (n_samples, 1) or (n_samples, n_classes); takes noise as `decision_function` does."""
        parts = self._outputs(X, X_std, "mean_scores")
        return np.concatenate([np.column_stack([part.dot(mu) for mu in self.mu_]) for part in parts])

    def predict_gibbs(self, X: Any, *, X_std: Any = None, random_state: Any = None) -> Any:
        """Draw a voter for each row and return its class: the Gibbs classifier, which the bounds are about.

        Takes noise as `decision_function` does. With more than two classes, classes are drawn with the shares of
        `predict_proba`.
        """
        shares = self._shares(self._outputs(X, X_std, "predict_gibbs"))
        draws = check_random_state(random_state).uniform(size=(len(shares), 1))
        return self.classes_[np.minimum((draws >= np.cumsum(shares, axis=1)).sum(axis=1), len(self.classes_) - 1)]

    def predict_proba(self, X: Any, *, X_std: Any = None) -> Array:
        """Return the share of the voters for each class, shape (n_samples, n_classes).

        These are the exact probabilities of the Gibbs classifier. They are not calibrated: with more training rows voters agree
        more, also where classes overlap. Takes noise as `decision_function` does. With more than two classes, the shares of
        each class against the rest are scaled to sum to 1.
        """
        return self._shares(self._outputs(X, X_std, "predict_proba"))

    def predict_log_proba(self, X: Any, *, X_std: Any = None) -> Array:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self._shares(self._outputs(X, X_std, "predict_log_proba")))

    def _shares(self, parts: Iterable[Outputs]) -> Array:
        shares = self._votes(parts)
        return np.column_stack([1 - shares, shares]) if shares.shape[1] == 1 else shares_of_classes(shares)

    def _votes(self, parts: Iterable[Outputs]) -> Array:
        """Return the share of the voters for each class against the rest, (n_samples, 1 or n_classes)."""
        laws = list(zip(self.mu_, self.sigma_, strict=True))
        return np.concatenate([np.column_stack([voters_for(part, *law) for law in laws]) for part in parts])

    def gibbs_errors(self, X: Any, y: Any, *, X_std: Any = None) -> Array:
        """Return the exact share of the voters that misclassify each row, shape (n_samples,).

        A score of 0 counts as wrong. Two classes only; takes noise as `decision_function` does.
        """
        check_is_fitted(self)
        if len(self.classes_) != 2:
            raise ValueError(f"{NAME}.gibbs_errors: the model has {len(self.classes_)} classes; use it with two.")
        parts = list(self._outputs(X, X_std, "gibbs_errors"))
        y = column_or_1d(y)
        check_consistent_length(X, y)
        if len(unknown := np.setdiff1d(y, self.classes_)):
            raise ValueError(
                f"{NAME}.gibbs_errors: y contains {unknown.tolist()!r:.80}; the classes are {self.classes_.tolist()!r}."
            )
        ends = np.cumsum([part.n_samples for part in parts])
        signs = np.split(np.where(y == self.classes_[1], 1.0, -1.0), ends[:-1])
        laws = self.mu_[0], self.sigma_[0]
        return np.concatenate([voters_wrong(part, *laws, own) for part, own in zip(parts, signs, strict=True)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, X_std: Any = None) -> float:
        """Return the accuracy of `predict`; takes noise as `decision_function` does."""
        return float(accuracy_score(y, self._predicted(X, X_std, "score"), sample_weight=sample_weight))

    def certificate_model(self) -> Model:
        """Return the linear classifier that certificates work on; needs ``base="linear"`` and two classes."""
        check_is_fitted(self)
        limits = self.learners_.limits
        if limits is None or len(self.mu_) > 1:
            raise NoCertificateError(f"{self!r:.80}: only votes with base='linear' and two classes are certified.")
        mu, d = self.mu_[0], len(limits)
        return linear_model(mu[:d] / limits, mu[d:].sum())
