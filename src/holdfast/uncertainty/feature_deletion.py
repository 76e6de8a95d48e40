"""Features that may be deleted when the model is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.allowed import short
from holdfast._core.arithmetic import dense
from holdfast._core.row_forms import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import feature_costs, numbers, per_feature, stated, stated_number
from holdfast.uncertainty.deleted_rows import Deletions
from holdfast.uncertainty.ellipsoids import CommonEllipsoid

MISSING_VALUE = "missing"


class FeatureDeletion(UncertaintySet):
    r"""Features of each row may be deleted, that is, set to 0, within a budget.

    Deleting feature j costs :math:`v_j`, and the deletions of a row cost at most N in total. If parts of features may
    be deleted too, the set of row x is :math:`\{-s\,x \circ d : 0 \le d \le 1, \sum_j d_j v_j \le N\}`, and a row with
    label y loses at most

    .. math:: \max_d \sum_j d_j\, s\,y x_j w_j
              = \min_{\lambda \ge 0} N\lambda + \sum_j (s\,y x_j w_j - \lambda v_j)_+

    of its margin. With s = 1, unit values and an integer N this is the sum of the N largest positive :math:`y x_j w_j`,
    the same as for deletions of whole features. For other values it is an upper bound on the loss by whole deletions
    (which is a 0-1 knapsack, see :func:`holdfast.uncertainty.deletions.worst_deletions`). To make it tighter, give the
    value inf to features with :math:`v_j > N`, which cannot be deleted as a whole, and round the budget down if all
    values are integers.

    The set always contains the partial deletions. For linear models :func:`holdfast.evaluate.robust_accuracy` and
    :func:`holdfast.evaluate.worst_case` are exact for the set, so the accuracy may be lower than under whole deletions.
    :func:`holdfast.evaluate.robustness_curve` with ``adversary="exact"`` deletes whole features only.

    ``RobustLinearClassifier(FeatureDeletion(K), alpha=1/C)`` is FDROP of Globerson and Roweis, with at most K deletions
    instead of exactly K; K = 0 gives the plain SVM. ``exactly=True`` gives FDROP as published:
    :math:`\sum_j d_j v_j = N`, and :math:`\lambda` may be negative.

    Parameters
    ----------
    budget : float
        N >= 0, below the sum of all values.
    values : array-like of shape (n_features,), default=None
        v >= 0, 1 for every feature by default. A feature of value inf cannot be deleted; one of value 0 can at no cost.
    share : float, default=1.0
        s, the share of its value that a deleted feature loses: 1 sets it to 0, 0.5 to half, 2 to its negative.
    exactly : bool, default=False
        Whether deletions cost exactly N, even where they do no harm. This does not matter if every row has zeros worth
        N, which it can delete; otherwise it takes a dense matrix of all rows.
    filler : float, array-like of shape (n_features,) or "missing", default=0.0
        The value of a deleted feature in place of 0, such as the value 0 is mapped to when features are centred; x is
        then measured from the filler. "missing" is the value that scalers before the classifier map to 0, such as the
        mean of a column before a StandardScaler; without scalers it is 0.

    References
    ----------
    A. Globerson, S. Roweis, "Nightmare at test time: robust learning by feature deletion" (2006).
    O. Dekel, O. Shamir, "Learning to classify with missing and corrupted features" (2008).

    Examples
    --------
    >>> X = np.array([[3.0, 1.0, -2.0]])
    >>> against_labels = FeatureDeletion(1).at(X, {}).against_labels(np.array([1.0]))
    >>> against_labels.support(np.array([1.0, 2.0, -2.0])), against_labels.maximizer(np.array([1.0, 2.0, -2.0]))
    (array([4.]), array([[ 0.,  0., -2.]]))
    """

    is_of_rows = True

    def __init__(self, budget: Any, values: Any = None, *, share: Any = 1.0, exactly: bool = False, filler: Any = 0.0):
        self.budget = budget
        self.values = values
        self.share = share
        self.exactly = exactly
        self.filler = filler

    def at(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        stated(self, metadata)
        n_features = X.shape[1]
        budget, share = (stated_number(getattr(self, name), type(self).__name__, name) for name in ("budget", "share"))
        if not isinstance(self.exactly, bool | np.bool_):
            raise ValueError(f"{type(self).__name__}(exactly={self.exactly!r}): must be True or False.")
        values = feature_costs(self.values, n_features, f"{type(self).__name__}(values=...)")
        total = float(np.sum(values[np.isfinite(values)] if self.exactly else values))
        if not budget < total:
            raise ValueError(
                f"{self!r}: all {n_features} features are worth {total:g} together, so all of them may be deleted and "
                "nothing is left to learn from. Use a budget below that"
                + ("." if self.exactly else ", or the value inf for features that stay.")
            )
        # with a budget of 0 only features of value 0 can be deleted
        lost = share * (np.isfinite(values) & ((values == 0) | (budget > 0)))
        filler = self.fillers(n_features)
        rows = numbers(X, "X=...", "X")
        rows = dense(rows) - filler if np.any(filler) else rows
        # deleting an entry of 0 changes nothing but uses up budget. So `exactly` makes no difference if every row has
        # enough zeros; otherwise zeros are stored, to be deleted
        is_spent = bool(self.exactly) and not _zeros_pay(rows, np.where(lost > 0, values, 0.0), budget)
        if is_spent and budget > 0 and share > 0:
            moves = _every_entry(dense(rows), np.flatnonzero(lost), -share)
        else:
            moves = sparse.csr_array(sparse.csr_array(rows) * -lost)
            moves.eliminate_zeros()
        if moves.nnz == 0:
            return CommonEllipsoid(np.zeros(()))
        prices = np.where(lost > 0, values, np.inf)
        return Deletions(
            moves,
            prices,
            budget,
            is_dense=not sparse.issparse(X),
            is_spent=is_spent,
            is_to_zero=share == 1 and not np.any(filler),
        )

    def fillers(self, n_features: int) -> Array:
        """Return the values of deleted features: one number, or one for each feature."""
        call = f"{type(self).__name__}(filler={short(self.filler)})"
        if isinstance(self.filler, str):
            if self.filler != MISSING_VALUE:
                raise ValueError(f"{call}: give numbers, or {MISSING_VALUE!r}.")
            return np.zeros(())
        return per_feature(self.filler, n_features, call, "filler")

    def in_units_before(self, map: Any) -> FeatureDeletion:
        if not isinstance(self.filler, str) or not map.is_monomial:
            return self
        filler, scales = np.zeros(map.shape[1]), map.scales
        moves = np.flatnonzero(scales != 0)
        # the x with scale * x + offset = 0
        filler[map.sources[moves]] = -map.offset[moves] / scales[moves]
        return FeatureDeletion(**(self.get_params(deep=False) | {"filler": filler}))

    def image(self, map: Any, metadata: Mapping[str, Any]) -> tuple[UncertaintySet, dict[str, Any]]:
        n_features = map.shape[1]
        if not map.is_monomial:
            raise ValueError(
                f"{self!r}: a step that mixes features leaves none of them to be deleted. Let the deleted features reach the "
                "classifier one by one, through scalers and selectors only."
            )
        values = feature_costs(self.values, n_features, f"{type(self).__name__}(values=...)")
        filler = self.fillers(n_features)
        # an output that does not depend on its input does not change when the input is deleted
        kept = np.where(map.scales != 0, values[map.sources], np.inf)
        there = map(np.broadcast_to(filler, (1, n_features)))[0]
        is_same = self.values is None and np.array_equal(kept, values)
        prices, zero = None if is_same else kept, there if np.any(there) else 0.0
        zero = MISSING_VALUE if isinstance(self.filler, str) else zero
        made = FeatureDeletion(self.budget, prices, share=self.share, exactly=self.exactly, filler=zero)
        return made, {}

    def times(self, factor: float) -> FeatureDeletion:
        return FeatureDeletion(**(self.get_params(deep=False) | {"share": factor * self.share}))

    @classmethod
    def example_rows(cls) -> Array:
        # two equal entries in the first row: a kink, where either may be deleted
        return np.array([[-0.4, -0.4, 0.3], [0.5, -0.2, 0.6], [-0.1, 0.7, -0.3], [0.2, 0.3, 0.5], [0.6, -0.5, -0.2]])

    @classmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        return [
            (cls(1), {}),
            (cls(1.5, [1.0, 0.7, 2.0], share=0.8), {}),
            (cls(1.2, [0.0, 3.0, 1.0], filler=[0.2, 0.0, -0.1]), {}),
        ]


def _zeros_pay(rows: Any, values: Array, budget: float) -> bool:
    """Return whether the zeros of every row are worth the budget."""
    stored = sparse.csr_array(rows)
    of_others = sparse.csr_array((1.0 * (stored.data != 0), stored.indices, stored.indptr), shape=stored.shape) @ values
    return bool(np.all(values.sum() - of_others >= budget))


def _every_entry(X: Array, columns: NDArray[np.intp], factor: float) -> sparse.csr_array:
    """Return the given columns times a factor, as a sparse matrix that also stores zeros."""
    n = X.shape[0]
    entries = (factor * X[:, columns]).ravel(), np.tile(columns, n), len(columns) * np.arange(n + 1)
    return sparse.csr_array(entries, shape=X.shape)
