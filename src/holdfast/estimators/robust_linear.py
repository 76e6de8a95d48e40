"""The linear classifier for rows that are only known up to a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from holdfast._core.allowed import NOTHING, Choice, Instance, Number
from holdfast._core.arithmetic import dense
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import METADATA, SetsByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.solution import Solution
from holdfast._core.uncertainty import UncertaintySet
from holdfast._problems.robust_risk import RobustRisk
from holdfast._proofs.certificate import Certificate
from holdfast._training.streaming import ProximalStream
from holdfast.ambiguity import LabelFlips
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.incremental import IncrementalClassifier, is_incremental
from holdfast.estimators.inputs import labelled_rows
from holdfast.estimators.linear import Task
from holdfast.estimators.worst_case import WorstCaseClassifier
from holdfast.solvers import StochasticProximal
from holdfast.uncertainty import WeightError

NAME = "RobustLinearClassifier"
MANY_FLIPS = 0.4
"""If at least this share of the labels may be wrong, little can be learnt, and there is a warning."""


def _is_streamed(estimator: RobustLinearClassifier) -> bool:
    if estimator.multiclass == "joint":
        raise AttributeError(
            f"{NAME} has no partial_fit with multiclass='joint': stochastic steps take one class against the rest. Use "
            "multiclass='ovr'."
        )
    if estimator.ambiguity is not None:
        raise AttributeError(
            f"{NAME} has no partial_fit with ambiguity={estimator.ambiguity!r}: which labels hurt the most depends on all "
            "rows, so none can be visited on its own. Use fit, or ambiguity=None."
        )
    return is_incremental(estimator)


class RobustLinearClassifier(WorstCaseClassifier, IncrementalClassifier):
    r"""Linear classifier trained for the worst rows that the uncertainty of the data admits.

    Each row i is known up to a set: it is x_i + d for some d in :math:`S_i`. With the support function
    :math:`h_i(v) = \max_{d \in S_i} v^\top d`, the worst loss of a row is the plain loss at an enlarged deficit. So

    .. math:: \sum_i c_i\, \psi\bigl(1 - y_i(w^\top x_i + b) + \kappa\,h_i(-y_i w)\bigr)
              + (1 - \kappa) \sum_i c_i\, h_i(-y_i w) + \alpha\,\text{penalty}(w),

    is minimised over w and b, with the weights :math:`c_i` of the rows; b is not penalised. Rows are perturbed
    independently, so with :math:`\kappa = 1` and no penalty this is exactly the largest loss over all admissible data.
    A smaller kappa moves part of the uncertainty out of the loss; for losses of slope at most 1 this is an upper bound
    on the largest loss.

    ===========================  ====================================================================================
    ``loss="hinge"``             :math:`x_+`: the robust SVM; with a `Box` ROBLP, at ``kappa=0`` SPLP
    ``loss="squared_hinge"``     :math:`x_+^2`
    ``loss="logistic"``          :math:`\log(1 + e^{x-1})`; with a `Box` ROBLR, at ``kappa=0`` SPLR
    ``loss="huberized_hinge"``   a parabola between 0 and :math:`x - 1`: the QP approximation of ROBLR, with its scale
    ===========================  ====================================================================================

    With :class:`GaussianNoise` the loss is averaged over the noise instead; with a sum such as ``GaussianNoise(s) +
    Ball(r)`` it is averaged over the noise and maximised over the set. The standard deviation of the score is then
    split like a support function: the share kappa inside the loss, the rest outside. Without a penalty no lower bound
    is known for such sums, nor for noise alone with a loss other than the hinge (except for kappa < 1 and noise in
    every feature): ``gap_`` is then inf, and the fit warns.

    A ball, box or ellipsoid common to all rows changes the family of decision boundaries little or not at all: a common
    ball gives an ordinary SVM with another strength of the penalty. The gain comes from knowing *which* features or
    rows are uncertain.

    If the sets are larger than some finite size, w = 0 is optimal and all predictions are the same. This is proved,
    never assumed, and reported by a :class:`CollapseWarning`; see :func:`critical_radius`.

    With more than two classes, each is fitted against the rest; or with ``multiclass="joint"``, all at once, where the
    loss of a row is decided by its most dangerous rival class:

    .. math:: \sum_i c_i \max_k \bigl[1\{k \ne y_i\} - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k) + h_i(w_k - w_{y_i})\bigr]
              + \alpha \sum_k |w_k|^2, \qquad \textstyle\sum_k w_k = 0,

    Without the penalty this is again the largest loss over all admissible data: the multiclass SVM of Crammer and
    Singer for rows known up to a set, or multiclass ASVC (Ginodi) with a `Ball`. With ``loss="logistic"`` the maximum
    is replaced by :math:`\log \sum_k \exp[\dots]`, without the 1: the cross-entropy of the softmax with every lead at
    its worst, an upper bound on the largest loss. With two classes both are the problem above.

    Parameters
    ----------
    uncertainty : UncertaintySet or None, default=None
        The possible errors of a row, in the units of the features: `Ball`, `Box`, `IntervalBox`, `Ellipsoid`,
        `ChanceConstraint`, `FeatureDeletion`, `GaussianNoise`, or a sum of them. Sizes that differ by row are given to
        `fit`; ``Box()`` takes them as stated. A set whose size is stated neither here nor in `fit` raises. None: no
        errors, the plain classifier.
    loss : {"hinge", "squared_hinge", "logistic", "huberized_hinge"} or Loss, default="hinge"
    ambiguity : LabelFlips or None, default=None
        Labels that may be wrong: with :class:`LabelFlips` the objective is the largest over all ways to flip them, and
        over all admissible rows.
    weight_error : WeightError or None, default=None
        Errors of the weights at prediction, such as rounding or pruning. `certify` and `worst_case_data` are about
        errors of rows only.
    penalty : {"l2", "l1", "box"} or None, default="l2"
        :math:`\frac12 |w|_2^2`, :math:`|w|_1`, or the constraint :math:`|w_j| \le 1/\alpha`.
    alpha : float, default=1.0
        Strength of the penalty, >= 0: 1/C of scikit-learn's linear classifiers, 1/(2C) with ``multiclass="joint"``. It acts in
        the units of the features, so scale them. It has no effect with ``penalty=None``.
    kappa : float, default=1.0
        The share of the uncertainty that is kept inside the loss, from 0 to 1. If an interval is not symmetric about
        the row, x and h above are those of its midpoint. So it makes no difference which point of the interval is
        stated as the row. (Sets of deleted features have no midpoint: x and h are those of the row.)
    multiclass : {"ovr", "joint"}, default="ovr"
        How to fit more than two classes: each against the rest, or all at once. "joint" requires the hinge or the
        logistic loss, a set (no noise that is averaged over), ``penalty="l2"`` with alpha > 0, and ``kappa=1``; a step
        costs O(n_samples (n_classes n_features)^2).
    filter_threshold : float, default=None
        :math:`\epsilon`: set entries with :math:`|x_{ij}| \le \epsilon s_{ij}` to 0 before training, so that X becomes
        sparse. :math:`s_{ij}` is the entry's half-width at radius 1 (for an interval not centred at the entry, the
        distance of its nearer end; for a sum of boxes, the half-width of the sum as stated). Only for boxes. It saves
        memory, but seldom time. The guarantee is kept: with radius r, an entry that is set to 0 gets the half-width
        :math:`r s_{ij} + |x_{ij}|` instead of :math:`r s_{ij}`, so that its new interval contains the old one. If nine
        in ten entries are set to 0, and nine in ten half-widths equal those of one row, it gets
        :math:`(r + \epsilon) s_{ij}`, to the same effect. `objective_`, `lower_bound_` and `gap_` are those of the
        enlarged problem. Its objective is never below that of the stated problem, and for losses of slope at most 1
        above it by no more than :math:`2 \epsilon \sum_{ij} c_i s_{ij} |w_j|`. With :math:`\epsilon \le r` the rows
        that are trained on are admissible.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes.
    solver : str or Solver, default=None
        "interior_point", "deletion_interior_point", "deletion_primal_dual", "semismooth", "newton", "quasi_newton",
        "newton_cg", "clarabel" or "highs"; None picks one.
        "stochastic_proximal" or :class:`StochasticProximal` is the stochastic descent of Couellan & Jan; it is rough,
        and never picked by None.
    tol : float, default=1e-6
        The largest certified relative gap to accept.
    max_iter : int, default=1000
        Steps over all stages.
    warm_start : bool, default=False
        Start from the previous fit's coefficients.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".
    random_state : int or None, default=None
        Seeds stochastic solvers; all others are deterministic.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        With more than two classes one row each; the rows of a joint fit sum to 0.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    objective_ : float
        The objective at the fitted coefficients; with more than two classes, the sum over the classes.
    lower_bound_ : float
        A lower bound on the objective over all coefficients; -inf if none is known.
    gap_ : float
        (objective_ - lower_bound_) / max(objective_, 1e-9 * total weight), recomputed from the data in float64.
    collapsed_ : bool
        Whether w = 0 has been certified as optimal (for every class).
    proof_weights_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        The dual weights :math:`c_i a_i y_i` that prove `lower_bound_`; the model does not depend on rows with an entry
        of 0. In a joint fit they are the pull of each row on each class's weights, and the columns sum to 0.
    norm_bound_ : float
        A bound on the l2 norm of the optimal w; inf if none is known.
    n_iter_ : int
    solution_ : dict
        How the solver ended: status, advice, solver, n_iter, objective, lower_bound.
    stream_ : list of dict
        The state of `partial_fit`; only after it.
    filtered_ : float
        The share of the nonzero entries of X that `filter_threshold` set to 0 (after `partial_fit`, in the last part).
    row_uncertainty_ : bool
        Whether the sets were stated row by row in `fit`; `certify` then needs them too.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    L. El Ghaoui, G. Lanckriet, G. Natsoulis, "Robust classification with interval data" (2003).
    I. Ginodi, "Gaussian Robust Classification" (2010), appendix A.
    N. Couellan, S. Jan, "Feature uncertainty bounds for explicit feature maps and large robust nonlinear SVM classifiers"
    (2020).

    Examples
    --------
    >>> from holdfast import Box, RobustLinearClassifier
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> scale = data.X.std(axis=0)
    >>> X, S = data.X / scale, data.X_std / scale
    >>> model = RobustLinearClassifier(Box(0.5)).fit(X, data.y, X_std=S)
    >>> model.gap_ < 1e-6
    True
    >>> bool(model.certify(X, X_std=0.5 * S).mean() > 0.8)
    True
    """

    _steps, _stream = StochasticProximal, ProximalStream

    parameter_table = {
        "ambiguity": Instance(LabelFlips, "give LabelFlips(k), with a count or a share of labels that may be wrong")
        | NOTHING,
        "weight_error": Instance(WeightError, "give WeightError(delta)") | NOTHING,
        "penalty": Choice("l2", "l1", "box", None),
        "alpha": Number(),
        "kappa": Number(0, 1),
        "multiclass": Choice("ovr", "joint", advice="give 'ovr' (one class against the rest) or 'joint' (all at once)"),
        "filter_threshold": Number() | NOTHING,
    }

    def __init__(
        self,
        uncertainty: UncertaintySet | None = None,
        *,
        loss: str | Loss = "hinge",
        ambiguity: LabelFlips | None = None,
        weight_error: WeightError | None = None,
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
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.uncertainty = uncertainty
        self.loss = loss
        self.ambiguity = ambiguity
        self.weight_error = weight_error
        self.penalty = penalty
        self.alpha = alpha
        self.kappa = kappa
        self.multiclass = multiclass
        self.filter_threshold = filter_threshold
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
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[SetsByRow]) -> Self:
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

    @offered_if(_is_streamed)
    @takes_metadata
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        **metadata: Unpack[SetsByRow],
    ) -> Self:
        """Take one pass of stochastic proximal steps over these rows, in their order, from where the last call ended.

        The coefficients are the average over the steps so far; see :class:`StochasticProximal`. A batch never spans two
        calls. So with ``solver=StochasticProximal(eta0=...)``, parts with multiples of ``batch_size`` rows of positive
        weight (the last part may be shorter) give the same as one call with all rows; without a penalty and with equal
        weights this equals ``fit`` with ``epochs=1, shuffle=False``. If the step size is not stated, it is estimated at
        each call from all rows so far. Nothing is proved: ``gap_`` is inf, ``objective_`` nan. `fit` starts afresh, and
        so does the first `partial_fit` after it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All classes; needed at the first call, unless there was a `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights relative to the mean weight so far: a row of twice the weight has twice the share in a step. The
            penalty's share of a step is alpha over the total weight so far.
        **metadata
            The sizes of these rows' sets, as in `fit`; in all calls or in none.
        """
        risk = self._risk()
        rows = self._part(X, y, classes, sample_weight, metadata, "row_uncertainty_", METADATA)
        problems, self.filtered_ = risk.problems(rows, metadata)
        self._advance(problems, rows.classes)
        self.row_uncertainty_ = bool(metadata)
        return self

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        risk = self._risk()
        rows = labelled_rows(self, X, y, sample_weight, metadata, by_feature=("uncertainty",))
        problems, share = risk.problems(rows, metadata)
        learned = {"classes_": rows.classes, "filtered_": share, "row_uncertainty_": bool(metadata)}
        return Task(problems, learned, self._stated_set().row_factor, risk)

    def _complete(self, task: Task, fits: Sequence[tuple[Solution, Certificate]]) -> None:
        task.risk.refuse_unattained(task.problems, [found.parameters for found, _ in fits])
        super()._complete(task, fits)

    def _risk(self) -> RobustRisk:
        """Return the risk to minimise, by the parameters of this classifier."""
        return RobustRisk(
            self._loss(),
            self.uncertainty,
            self.ambiguity,
            self.weight_error,
            self.penalty,
            float(self.alpha),
            float(self.kappa),
            self.multiclass,
            float(self.filter_threshold or 0.0),
            bool(self.fit_intercept),
            self._quoted,
        )

    def _warn(self, task: Task) -> None:
        """Warn of a collapse, of many wrong labels and of a gap above `tol`, with the cure."""
        self._warn_of_collapse(
            "smaller sets (critical_radius returns the limit), class_weight='balanced', or less penalty"
            + (", or fewer label flips" if self.ambiguity is not None else "")
        )
        share = task.problems[0].flipped_share
        if share >= MANY_FLIPS:
            warn_caller(
                f"{NAME}(ambiguity={self.ambiguity!r}): {share:.0%} of the labels may be wrong. From half of them on nothing "
                "can be learnt (w = 0 is optimal), and near it little. Allow for fewer flips; counts are in units of "
                "sample_weight.",
                UserWarning,
            )
        self._warn_uncertified()

    def _probabilities(self, scores: Array) -> Array:
        joint = self.multiclass == "joint"
        return np.asarray(softmax(scores, axis=1)) if joint else super()._probabilities(scores)

    @takes_metadata
    def worst_case_data(self, X: Any, y: Any, **metadata: Unpack[SetsByRow]) -> Array:
        r"""Return the admissible rows at which this model does worst, given their labels.

        With two classes they are :math:`x_i + \arg\max_{d \in S_i} (-y_i w)^\top d`, so
        :math:`x - y\,\rho\,s\,\mathrm{sign}(w)` for a `Box`. With more, they are the rows at which the lead of the
        label's class over the most dangerous other class is smallest. The model's loss at these rows is the worst case
        that it was trained for (at kappa = 1). Sets are stated as for `certify`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        view, sets = self._view_and_sets(X, None, metadata, "worst_case_data")
        codes = self._codes(y, view.rows.shape[0])
        return np.asarray(dense(view.rows).astype(np.float64) + view.worst_moves(sets, codes)[0])

    def _codes(self, y: Any, n_samples: int, call: str = f"{NAME}.worst_case_data(X, y)") -> NDArray[np.intp]:
        y = np.asarray(y).ravel()
        if y.shape != (n_samples,) or not np.all(np.isin(y, self.classes_)):
            raise ValueError(
                f"{call}: y must hold one of the classes {self.classes_.tolist()} for each of the {n_samples} rows."
            )
        return np.searchsorted(self.classes_, y)
