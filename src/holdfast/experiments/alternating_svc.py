"""A robust support vector classifier trained in alternating rounds, as published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from holdfast._core.allowed import Choice, Number
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Array
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Report
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.inputs import labelled_rows, one_blas_thread
from holdfast.estimators.linear import LinearClassifier, Task
from holdfast.experiments.alternating import alternate
from holdfast.losses import Hinge
from holdfast.uncertainty import Ball

NAME = "AlternatingSVC"
SIDES = {"pessimistic": 1.0, "optimistic": -1.0}
"""The sign of displacements: 1 if they hurt the rows, -1 if they help."""


class AlternatingSVC(LinearClassifier):
    r"""Support vector classifier trained in alternating rounds: displace every row, fit an ordinary SVM, and repeat.

    With the weights w of the last round, each row is moved by the radius :math:`\delta` along :math:`\hat w = w / |w|`.
    If pessimistic (ASVC, algorithm 5 of the thesis below, with the label that is missing there), it is moved against
    its class, to :math:`x_i - y_i \delta \hat w`; if optimistic (TSVC), towards its class, to
    :math:`x_i + y_i \delta \hat w`. If w = 0, it is not moved. The rounds aim to minimise

    .. math:: \sum_i c_i \bigl[1 - y_i(w^\top x_i + b) \pm \delta |w|\bigr]_+ + \frac\alpha2 |w|^2,

    \+ if pessimistic, with each row at the worst point of a ball around it, and - if optimistic, with each row at the
    best point. The best round is kept, or w = 0 if that is better than all rounds.

    **Pessimistic**: prefer :class:`RobustLinearClassifier` with ``Ball(radius)``, which solves this problem exactly.
    Here each round minimises a lower bound on the objective, and may make the objective worse. Known facts:

    - w = 0 is optimal without an intercept if and only if :math:`|\sum_i c_i y_i x_i| \le \delta \sum_i c_i`;
    - if the rounds settle at a w other than 0, it is the optimum;
    - without an intercept and while all rows have a positive loss, a round turns w into
      :math:`(g - \delta \hat w \sum_i c_i) / \alpha`, :math:`g = \sum_i c_i y_i x_i`. This converges for
      :math:`\delta \sum_i c_i < |g|/2`; otherwise the deviation of w from the direction of g grows until two weights
      alternate;
    - of 24 random problems of 30 rows, without an intercept, 14 settled within 30 rounds (after 2 to 13), all at the optimum.
      For the others, the worse of the last two rounds was above the optimum by 6% (median) and 188% (largest), and the
      best round by 1% and 33%. With an intercept 15 settled (``benchmarks/alternating_svc.py``).

    **Optimistic**: each round minimises an upper bound that is exact at the last w, so the objective falls from round
    to round. The objective is not convex: the result depends on the start, nothing is proved, and ``gap_`` is inf.

    Moved rows are never formed, as the displacement is the same for all rows up to its sign. More than two classes are
    fitted one against the rest.

    Parameters
    ----------
    radius : float, default=1.0
        :math:`\delta \ge 0`, in the units of the features, which should be the same for all. 0 is the ordinary SVM.
    attitude : {"pessimistic", "optimistic"}, default="pessimistic"
    alpha : float, default=1.0
        Strength of the ridge, > 0; the 1/C of scikit-learn's linear classifiers.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes.
    tol : float, default=1e-6
        The rounds have settled if the next one could lower the objective by at most this share. If pessimistic, the
        certified gap is then at most this share too.
    max_iter : int, default=30
        The largest number of rounds.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    objective_ : float
        The objective at the fitted coefficients (of the best round); with more than two classes, the sum over all
        classes.
    objectives_ : list of ndarray of shape (n_rounds,)
        The objective after each round, one array for each row of `coef_`.
    converged_ : bool
        Whether the rounds have settled, for every class.
    lower_bound_ : float
        If pessimistic, a proved lower bound on the objective for any coefficients; otherwise -inf.
    gap_ : float
        (objective_ - lower_bound_) / max(objective_, 1e-9 * total weight), computed from the data for the original
        problem, not for that of a round; inf if optimistic.
    proof_weights_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        The dual weights :math:`c_i a_i y_i` that prove `lower_bound_`; only if pessimistic.
    norm_bound_ : float
        A bound on the l2 norm of the optimal w; inf if optimistic.
    n_iter_ : int
        The number of rounds, of the class that took most.
    solution_ : dict
        How the fit ended: status, advice, solver, n_iter, objective, lower_bound.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    I. Ginodi, "Gaussian Robust Classification" (2010), appendix A.

    Examples
    --------
    >>> from holdfast import Ball, RobustLinearClassifier
    >>> from holdfast.experiments import AlternatingSVC
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = AlternatingSVC(0.05).fit(scale(X), y)
    >>> model.converged_, model.n_iter_, bool(model.gap_ < 1e-6)
    (True, 11, True)
    >>> exact = RobustLinearClassifier(Ball(0.05)).fit(scale(X), y)
    >>> bool(abs(model.objective_ / exact.objective_ - 1) < 1e-6)
    True
    """

    parameter_table = {
        "radius": Number(),
        "attitude": Choice(*SIDES),
        "alpha": Number(strictly=True),
    }

    def __init__(
        self,
        radius: float = 1.0,
        attitude: str = "pessimistic",
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-6,
        max_iter: int = 30,
        verbose: int = 0,
    ):
        self.radius = radius
        self.attitude = attitude
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fixed_uncertainty(self) -> tuple[str, Ball]:
        """Return the name of the parameter that states the set, and the set, which is always a ball."""
        return "radius", Ball(self.radius)

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        return self.fixed_uncertainty()[1]

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
        """
        return self._fitted(X, y, sample_weight, {})

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        labelled = labelled_rows(self, X, y, sample_weight, metadata)
        rows, ball = rows_of(labelled.X), Ball(float(self.radius)).at(labelled.X, {})
        alpha, b = float(self.alpha), bool(self.fit_intercept)
        problems = [
            MarginScaleProblem(rows, signs, labelled.weights, Hinge(), ball, alpha, b) for signs in labelled.signs()
        ]
        return Task(problems, {"classes_": labelled.classes})

    def _solved(self, task: Task, report: Report) -> list[tuple[Solution, Certificate]]:
        tol, max_rounds = float(self.tol), int(self.max_iter)
        with one_blas_thread:
            found = [
                alternate(problem, SIDES[self.attitude], tol=tol, max_rounds=max_rounds, report=report)
                for problem in task.problems
            ]
        self.objectives_: list[Array] = [one.objectives for one in found]
        self.converged_ = all(one.solution.status is Status.SOLVED for one in found)
        return [(one.solution, one.proof) for one in found]

    def _warn(self, task: Task) -> None:
        if self.converged_:
            return
        if self.attitude == "pessimistic":
            cure = (
                f"The best of them is certified to a gap of {self.gap_:.2g}. More rounds need not help, for they may go in "
                f"circles: RobustLinearClassifier(Ball({self.radius!r}), alpha={self.alpha!r}) solves the same problem exactly."
            )
        else:
            cure = "Raise max_iter, or raise tol if this accuracy is enough."
        warn_caller(f"{NAME}(max_iter={self.max_iter}): the rounds have not settled. {cure}", ConvergenceWarning)
