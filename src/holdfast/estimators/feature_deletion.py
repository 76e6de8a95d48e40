"""The classifier that is trained for rows whose features may be deleted at prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from holdfast._core.allowed import Count, Number
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import CollapseWarning
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.progress import reporter
from holdfast._core.rows import Rows
from holdfast._core.solution import Solution, Status
from holdfast._core.version import __version__
from holdfast._data import rows_of
from holdfast._problems.feature_deletion import FeatureDeletionProblem
from holdfast._proofs.feature_deletion import DeletionProof
from holdfast._training.feature_deletion import generate_rows, train_deletion
from holdfast.estimators.callbacks import announced, with_callbacks
from holdfast.estimators.inputs import blas_threads_for, class_codes, row_weights
from holdfast.estimators.missing import MissingFeatures, entry_ranges, without_missing
from holdfast.solvers.deletion_interior_point import LARGEST_MATRIX, WIDEST
from holdfast.solvers.deletion_primal_dual import DeletionPrimalDual, suits
from holdfast.uncertainty.deletion_loss import DeletionLoss
from holdfast.uncertainty.deletions import deletions_survived

NAME = "FeatureDeletionClassifier"
COLLAPSED = 1e-6
"""The largest gap at which w = 0 counts as optimal."""


class FeatureDeletionClassifier(MissingFeatures):
    r"""Linear classifier for rows that may lack features at prediction: the worst choice of them, within a budget.

    Feature j has the value :math:`v_j \ge 0`; all features together have the value V. In each row, an adversary who
    knows the classifier may delete features (set them to 0) with a total value of N. The margin :math:`\gamma` that the
    row must reach is scaled by the value of the features left, which is at least :math:`P = V - N`:

    .. math:: \min_{|w_j| \le C,\,b}\ \frac1m \sum_i \Bigl[\max_{J:\,V(J) \ge P}\ \gamma \frac{V(J)}{P}
              - y_i \Bigl(b + \sum_{j \in J} w_j x_{ij}\Bigr)\Bigr]_+ .

    The loss is at least :math:`\gamma` if some deletion makes the prediction wrong. So the mean loss divided by
    :math:`\gamma` bounds the share of training rows that an adversary can have misclassified: `worst_case_error_`.
    Apart from the scale of the weights, only :math:`\gamma / C` matters. Features of value 0 are deleted for free, and
    get the weight 0. Features of value inf are never deleted, require no margin and do not count in V. A deleted
    feature becomes 0, so shift features such that 0 carries no information.

    ``adversary="relaxed"`` may also delete features in part. This is a linear program of moderate size, (4) of the
    paper. Its optimum is that of "exact" if all values are the same, v, and N/v is an integer; in general it is larger,
    by C times the largest entry at most. ``adversary="tightened"``, which is not in the paper, may not delete parts of
    features that it cannot delete as a whole, :math:`v_j > N`, nor spend fractions of the budget on integer values; its
    optimum lies between the two. ``adversary="exact"`` is the problem above, (3) of the paper. If values are small
    integers, it is solved by generating constraints, for data of moderate size.

    If the budget is too large, w = 0 is optimal and all predictions are the same; with features that tell little about
    the classes, this may be so at any budget. It is proved, never assumed, and reported by a :class:`CollapseWarning`.

    With more than two classes, each class is fitted against the rest.

    Parameters
    ----------
    budget : float, default=1.0
        N, at least 0 and less than V. With 0 the loss is an ordinary hinge loss with bounded weights.
    values : array-like of shape (n_features,), default=None
        v; None means 1 each, so that N is a number of features.
    margin : float, default=0.1
        :math:`\gamma > 0`, in units of the score.
    bound : float, default=1.0
        C > 0, the bound on the size of each weight.
    adversary : {"relaxed", "tightened", "exact"}, default="relaxed"
        "exact" requires values that are multiples of a common unit, such as integers.
    fit_intercept : bool, default=True
        Whether b is free; otherwise it is 0. It is never deleted: the more entries are missing, the more it decides.
    n_chunks : int, default=1
        If above 1, the rows are divided among this many problems, and the model is the mean of their solutions, as
        published for large data. `gap_` is that of the mean on all rows.
    solver : str or Solver, default=None
        None picks by size: "deletion_interior_point", which factorises a matrix of all features at every step, or
        "deletion_primal_dual" for wide sparse rows, such as texts, which only passes over the nonzeros. "highs" and
        "clarabel" solve the linear program as published. For the exact adversary with integer values, it is the solver
        of each round: "highs" (None) or "clarabel".
    tol : float, default=1e-6
        The largest certified gap to accept.
    max_iter : int, default=200
        Steps, or rounds of generated constraints. 50 passes of "deletion_primal_dual" count as one step.
    missing : {"raise", "delete"}, default="raise"
        What to do with NaN at prediction. "raise" refuses it. "delete" scores rows without these features, which is
        what the model was trained for, and warns if more is missing than the budget; in `fit` these entries count as
        deleted from the start.
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    objective_ : float
        The weighted mean loss at the fitted coefficients; with more than two classes, the sum over the classes.
    lower_bound_ : float
        A lower bound on the objective over all coefficients, recomputed from the data.
    gap_ : float
        (objective_ - lower_bound_) / max(objective_, margin); with more than two classes, margin times their number.
    collapsed_ : bool
        Whether w = 0 has been certified as optimal (for every class): all predictions are the same.
    worst_case_error_ : float
        objective_ / margin, at most 1: an adversary with this budget can have no larger share of the training rows, by
        weight, misclassified.
    values_ : ndarray of shape (n_features,)
    n_iter_ : int
    solution_ : dict
        How the solver ended: status, advice, solver, n_iter, objective, lower_bound.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    O. Dekel, O. Shamir, "Learning to classify with missing and corrupted features" (2008).

    Examples
    --------
    >>> import numpy as np
    >>> from holdfast import FeatureDeletionClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-1, 1], size=200)
    >>> X = np.column_stack([y, *(y + 2 * rng.normal(size=200) for _ in range(5))])  # one perfect feature, five good ones
    >>> model = FeatureDeletionClassifier(budget=1).fit(X, y)
    >>> model.gap_ < 1e-6, np.round(model.worst_case_error_, 2)
    (True, np.float64(0.26))
    >>> without = np.where(np.arange(6) == 0, np.nan, X)
    >>> round(model.set_params(missing="delete").score(without, y), 2)
    0.9
    """

    parameter_table = {"bound": Number(strictly=True), "n_chunks": Count()}

    def __init__(
        self,
        budget: float = 1.0,
        values: Any = None,
        *,
        margin: float = 0.1,
        bound: float = 1.0,
        adversary: str = "relaxed",
        fit_intercept: bool = True,
        n_chunks: int = 1,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 200,
        missing: str = "raise",
        class_weight: Any = None,
        verbose: int = 0,
    ):
        self.budget = budget
        self.values = values
        self.margin = margin
        self.bound = bound
        self.adversary = adversary
        self.fit_intercept = fit_intercept
        self.n_chunks = n_chunks
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.missing = missing
        self.class_weight = class_weight
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the mean: a weight of 2 counts a row twice.
        """
        check_columns(X, {"sample_weight": sample_weight})
        check_features(X, {"values": self.values})
        X, y = self._checked(X, y, where="fit", reset=True)
        stated, X = X, without_missing(X)
        classes, codes = class_codes(y, NAME)
        weights = row_weights(sample_weight, self.class_weight, X, codes, classes, NAME)
        loss = DeletionLoss.of(self.values, self.budget, self.margin, self.adversary, X.shape[1], NAME)
        distinct, weights = _distinct(X, codes, weights)
        if len(distinct) < X.shape[0]:
            X, y, codes = X[distinct], y[distinct], codes[distinct]
        self._check_size(X, codes, loss.knapsack.is_whole)
        report, finished = announced(self, reporter(self.verbose), X, y)
        used = np.flatnonzero(loss.values > 0)
        rows = rows_of(X if len(used) == X.shape[1] else X[:, used])
        with blas_threads_for(X.shape[0] * X.shape[1] ** 2):
            fits = [
                self._trained_one(rows, codes == k, weights, loss.take(used), report)
                for k in ([1] if len(classes) == 2 else range(len(classes)))
            ]
        self.classes_, self.values_, self.budget_ = classes, loss.values, loss.budget
        self.feature_range_ = np.array(entry_ranges(stated))
        self._set_model(fits, used)
        finished()
        return self

    def _check_size(self, X: Any, codes: NDArray[np.intp], is_whole: bool) -> None:
        """Raise if the arrays of a problem would not fit into memory, or if chunks would lack a class."""
        if self.n_chunks > 1 and self.adversary == "exact":
            raise ValueError(
                f"{NAME}(adversary='exact', n_chunks={self.n_chunks}): chunks are for adversary='relaxed'."
            )
        fewest = int(np.bincount(codes).min())
        if fewest < self.n_chunks:
            raise ValueError(
                f"{NAME}(n_chunks={self.n_chunks}).fit: a class has {fewest} distinct rows only, and every chunk needs one of "
                "each class. Use fewer chunks."
            )
        n_entries = X.nnz if sparse.issparse(X) else X.size
        is_picked = self.solver is None and suits(X.shape[0], X.shape[1], n_entries)
        is_passed_over = not is_whole and (is_picked or self.solver == DeletionPrimalDual.name)
        if X.shape[1] > WIDEST and not is_passed_over:
            raise ValueError(
                f"{NAME}(adversary={self.adversary!r}, solver={self.solver!r}).fit: X has {X.shape[1]} features, and this "
                "takes a matrix of as many rows and columns at every step. Sparse rows need none with adversary='relaxed' and "
                f"solver=None; otherwise use {WIDEST} features at most (sklearn.feature_selection)."
            )
        n_entries /= self.n_chunks
        if n_entries > LARGEST_MATRIX:
            raise ValueError(
                f"{NAME}(n_chunks={self.n_chunks}).fit: {n_entries:.2g} entries at once need some {n_entries * 136e-9:.0f} GB. "
                f"Use n_chunks={int(np.ceil(self.n_chunks * n_entries / LARGEST_MATRIX))} or more."
            )

    def _trained_one(
        self, rows: Rows, is_positive: NDArray[np.bool_], weights: Array, loss: DeletionLoss, report: Any
    ) -> tuple[Solution, DeletionProof]:
        """Return the model of one class against the rest, and the proof of its gap."""
        options = {"tol": float(self.tol), "max_iter": int(self.max_iter), "report": report}
        shares, signs = weights / weights.sum(), np.where(is_positive, 1.0, -1.0)
        problem = FeatureDeletionProblem(rows, signs, shares, loss, float(self.bound), bool(self.fit_intercept))
        if loss.knapsack.is_whole:
            return generate_rows(problem, self.solver, **options)
        return train_deletion(problem, self.solver, n_chunks=int(self.n_chunks), **options)

    def _set_model(self, fits: Sequence[tuple[Solution, DeletionProof]], used: NDArray[np.intp]) -> None:
        """Set the fitted attributes, and warn of a collapse or of a missing certificate."""
        self.coef_ = np.zeros((len(fits), len(self.values_)))
        self.coef_[:, used] = [found.parameters[:-1] for found, _ in fits]
        self.intercept_ = np.array([found.parameters[-1] for found, _ in fits])
        self.objective_ = float(sum(proof.objective for _, proof in fits))
        self.lower_bound_ = float(sum(proof.lower_bound for _, proof in fits))
        margins = len(fits) * float(self.margin)
        self.gap_ = (self.objective_ - self.lower_bound_) / max(self.objective_, margins)
        self.worst_case_error_ = min(self.objective_ / float(self.margin), 1.0)
        worst = min((found for found, _ in fits), key=lambda found: found.status is Status.SOLVED)
        self.n_iter_ = max(1, *(found.n_iter for found, _ in fits))
        self.solution_ = worst.summary() | {"objective": self.objective_, "lower_bound": self.lower_bound_}
        self.holdfast_version_ = __version__
        self.collapsed_ = not np.any(self.coef_) and self.gap_ <= COLLAPSED
        if self.collapsed_:
            warn_caller(
                f"w = 0 is the best model for this budget, certified to a gap of {self.gap_:.1g}: every prediction is the "
                "same, whatever is deleted. Use a smaller budget, larger values for features that are never missing, or "
                "class_weight='balanced'.",
                CollapseWarning,
            )
        self._warn_uncertified()

    def deletions_survived(self, X: Any) -> Array:
        """Return the value of features that may be deleted from each row before its predicted class changes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features that are missing already, with ``missing="delete"``, are not counted.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of `values`; it holds for any choice of features, and is inf if no deletion changes the class.
            If all values are the same it is exact: some deletion of one more feature brings another class level.
            Otherwise, deletions worth less than this number leave the class as it is, and some that are worth more may
            do so too.
        """
        check_is_fitted(self)
        return deletions_survived(self.coef_, self.intercept_, self._rows_to_score(X), self.values_)


def _distinct(X: Any, codes: NDArray[np.intp], weights: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the indices of distinct rows (with their classes) of positive weight, and the total weight of each.

    Otherwise, if several models are optimal, the one that an interior point finds would depend on how rows are
    repeated.
    """
    if sparse.issparse(X):
        X = X.sorted_indices()
        ends = zip(X.indptr[:-1].tolist(), X.indptr[1:].tolist(), strict=True)
        keys = [X.indices[i:j].tobytes() + X.data[i:j].tobytes() for i, j in ends]
    else:
        keys = [row.tobytes() for row in X]
    first: dict[tuple[int, bytes], int] = {}
    owners = np.array([first.setdefault(key, i) for i, key in enumerate(zip(codes.tolist(), keys, strict=True))])
    total = np.asarray(np.bincount(owners, weights, len(owners)), dtype=np.float64)
    kept = np.flatnonzero(total > 0)
    return kept, total[kept]
