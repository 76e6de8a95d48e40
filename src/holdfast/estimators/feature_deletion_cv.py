"""The budget of deletions to train for, chosen by cross-validation under deletion."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_random_state

from holdfast._core.allowed import SEED, Choice, Count, Number, Several
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.progress import reporter
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.feature_deletion import FeatureDeletionClassifier
from holdfast.estimators.folds import chosen, splits_of, taken
from holdfast.estimators.inputs import class_codes
from holdfast.estimators.linear import predicted_codes
from holdfast.estimators.missing import without_missing
from holdfast.features.rows import checked_weights
from holdfast.uncertainty.deletion_loss import deletable
from holdfast.uncertainty.deletions import deletions_survived, random_deletions

NAME = "FeatureDeletionClassifierCV"
ENOUGH = 1e-9
"""A row that survives `deleted`, less this share of it, counts as right: the difference may be rounding."""


class FeatureDeletionClassifierCV(FeatureDeletionClassifier):
    """FeatureDeletionClassifier with the budget chosen by cross-validation, on validation rows whose features are deleted.

    State what to expect at prediction: features worth `deleted` will be missing, the worst ones or random ones
    (`deletion`). Every budget is scored on validation rows with such deletions. Complete rows would favour small
    budgets.

    Parameters
    ----------
    budgets : array-like of floats, default=None
        The budgets to try, each below the total value of all features. None: 0, 1/4, 1/2, 1 and 2 times `deleted`, as
        far as they are below it.
    deleted : float, default=1.0
        The total value of the features deleted from each validation row.
    deletion : {"worst", "random"}, default="worst"
        "worst": a validation row counts as right if no deletion worth `deleted` makes it wrong. This is exact if all
        features have the same value; otherwise some rows may count as wrong that no deletion of whole features turns.
        "random": features are drawn at random while they fit `deleted`.
    n_draws : int, default=10
        The number of random deletions of each validation row.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means that many stratified folds.
    values, margin, bound, adversary, fit_intercept, n_chunks, solver, tol, max_iter, missing, class_weight, verbose
        As in :class:`FeatureDeletionClassifier`.
    random_state : int, RandomState instance or None, default=0
        Seeds the random deletions, which are the same for all budgets.

    Attributes
    ----------
    budget_ : float
        The chosen budget; among equal scores the smallest.
    budgets_ : ndarray of shape (n_budgets,)
        The budgets tried, from the smallest to the largest.
    best_score_ : float
        Mean accuracy under deletion on the validation rows.
    cv_results_ : dict of ndarrays
        ``param_budget``, ``split0_test_score`` ..., ``mean_test_score``, ``std_test_score``, ``rank_test_score``, ``max_gap``,
        and ``collapsed``, the share of folds in which the model was constant.
    coef_, intercept_, classes_, objective_, lower_bound_, gap_, collapsed_, ...
        As in :class:`FeatureDeletionClassifier`, fitted on all rows. If the model is constant there is a
        CollapseWarning.

    Examples
    --------
    >>> import numpy as np
    >>> from holdfast import FeatureDeletionClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-1, 1], size=200)
    >>> X = np.column_stack([y, *(y + 2 * rng.normal(size=200) for _ in range(5))])  # one perfect feature, five good ones
    >>> model = FeatureDeletionClassifierCV([0, 1, 2], deleted=1).fit(X, y)
    >>> model.budget_, round(model.best_score_, 2)
    (2.0, 0.87)
    """

    parameter_table = {
        "budgets": Several(Number()) | Choice(None),
        "deleted": Number(),
        "deletion": Choice("worst", "random"),
        "n_draws": Count(),
        "random_state": SEED,
    }

    def __init__(
        self,
        budgets: Any = None,
        *,
        deleted: float = 1.0,
        deletion: str = "worst",
        n_draws: int = 10,
        cv: Any = 5,
        values: Any = None,
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
        random_state: Any = 0,
    ):
        self.budgets = budgets
        self.deleted = deleted
        self.deletion = deletion
        self.n_draws = n_draws
        self.cv = cv
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
        self.random_state = random_state

    @property
    def budget(self) -> float:
        """The chosen budget; 0 before `fit`."""
        return float(getattr(self, "budget_", 0.0))

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Choose the budget by cross-validation under deletion, and fit.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`FeatureDeletionClassifier.fit`.
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter, such as ``GroupKFold``.
        """
        check_columns(X, {"sample_weight": sample_weight})
        check_features(X, {"values": self.values})
        rows, y = self._checked(X, y, where="fit", reset=True)
        self.classes_, _ = class_codes(y, NAME)
        weights = None if sample_weight is None else checked_weights(sample_weight, rows, f"{NAME}.fit")
        costs, _ = deletable(self.values, 0.0, rows.shape[1], NAME)
        budgets = self._budgets(float(costs.sum()))
        report, folds = reporter(self.verbose), []
        for number, (own, held_out) in enumerate(splits_of(self, rows, y, weights, groups)):
            report(f"fold {number}: budgets {', '.join(f'{budget:g}' for budget in budgets)}")
            folds.append([self._examined(rows, y, weights, own, held_out, budget, costs) for budget in budgets])
        scores, gaps, collapsed = np.moveaxis(np.array(folds), 2, 0)
        best, told = chosen({"budget": budgets}, scores, gaps, [-budgets])
        told["cv_results_"] |= {"collapsed": collapsed.mean(axis=0)}
        found = self._model(budgets[best]).fit(X, y, sample_weight)
        self.__dict__ |= {name: value for name, value in vars(found).items() if name.endswith("_")}
        self.__dict__ |= told | {"budgets_": budgets}
        return self

    def _budgets(self, total: float) -> Array:
        if self.budgets is None:
            found = np.unique(float(self.deleted) * np.array([0.0, 0.25, 0.5, 1.0, 2.0]))
            return found[found < total]
        found = np.unique(np.asarray(self.budgets, dtype=np.float64))
        if not np.all(found < total):
            raise ValueError(
                f"{NAME}(budgets={self.budgets!r:.80}): all features are worth {total:g} together, so with {found[-1]:g} "
                "nothing is left to learn from. Use smaller budgets."
            )
        return found

    def _model(self, budget: float) -> FeatureDeletionClassifier:
        own = set(FeatureDeletionClassifier().get_params(deep=False)) - {"budget"}
        params = {name: value for name, value in self.get_params(deep=False).items() if name in own}
        return FeatureDeletionClassifier(float(budget), **params)

    def _examined(
        self,
        X: Any,
        y: NDArray[Any],
        weights: Array | None,
        own: NDArray[np.intp],
        held_out: NDArray[np.intp],
        budget: float,
        costs: Array,
    ) -> tuple[float, float, float]:
        """Return the accuracy under deletion, the gap, and whether the model is constant, of one fold and budget."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cv_results_ reports collapses and gaps
            model = self._model(budget).fit(_safe_indexing(X, own), y[own], taken(weights, own))
        rows = without_missing(_safe_indexing(X, held_out))
        right = self._right(model, rows, np.searchsorted(self.classes_, y[held_out]), costs)
        return float(np.average(right, weights=taken(weights, held_out))), model.gap_, float(model.collapsed_)

    def _right(self, model: FeatureDeletionClassifier, X: Any, codes: NDArray[np.intp], costs: Array) -> Array:
        """Return whether each row is right under the worst deletion, or how often it is under random deletions."""
        if self.deletion == "worst":
            survived = deletions_survived(model.coef_, model.intercept_, X, costs)
            stays = survived >= float(self.deleted) * (1 - ENOUGH)
            return 1.0 * (stays & (predicted_codes(model._scores(X)) == codes))
        rng, total = check_random_state(self.random_state), np.zeros(len(codes))
        for _ in range(int(self.n_draws)):
            gone = random_deletions(X, float(self.deleted), costs, random_state=int(rng.randint(1 << 31)))
            left = X - X.multiply(gone) if hasattr(X, "multiply") else np.where(gone, 0.0, X)
            total += predicted_codes(model._scores(left)) == codes
        return total / int(self.n_draws)
