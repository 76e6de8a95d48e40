"""The picture of which features' uncertainty moves a score."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Self

import numpy as np
from scipy import sparse

from holdfast._certificates.pipelines import linear_in_x
from holdfast._core.allowed import NAMES, TEXT, Count, arguments
from holdfast._core.labels import check_columns, check_features, known_columns
from holdfast._core.rounding import Array
from holdfast.display.style import axes_for, looks, needs_matplotlib, those_certified
from holdfast.evaluate.curves import named
from holdfast.evaluate.fitted import classes_of
from holdfast.uncertainty.checks import nonnegative, numbers


class FeatureFragilityDisplay:
    r"""How far the uncertainty of each feature can move the score of a linear model: :math:`|w_j| s_j`, as shares of the sum.

    A box moves the score by :math:`\sum_j |w_j| s_j` at most, its reach, to which feature j adds :math:`|w_j| s_j`.
    With several classes, :math:`|w_j|` is the mean over all pairs of classes; with errors that differ by row,
    :math:`s_j` is their mean over the rows. Use `from_estimator` or `from_estimators`.

    Parameters
    ----------
    reach : ndarray of shape (n_models, n_features)
        :math:`|w_j| s_j`, in units of the scores.
    models : sequence of str
    feature_names : sequence of str

    Attributes
    ----------
    reach, models, feature_names
    shares : ndarray of shape (n_models, n_features)
        Each model's `reach` divided by its sum over the features; 0 where that sum is 0.
    ax_, figure_ : Axes and Figure
        After `plot`.
    bars_ : list of BarContainer
        One for each model.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [2.0, -1.0]]), np.array([0, 0, 1, 1])
    >>> display = FeatureFragilityDisplay.from_estimator(LogisticRegression().fit(X, y), X_std=[1.0, 0.0])
    >>> display.shares
    array([[1., 0.]])
    """

    def __init__(self, reach: Array, *, models: Any, feature_names: Any):
        self.reach, self.models, self.feature_names = reach, tuple(models), tuple(feature_names)
        total = reach.sum(axis=1, keepdims=True)
        self.shares = np.divide(reach, total, out=np.zeros_like(reach), where=total > 0)

    @classmethod
    @arguments(name=TEXT)
    def from_estimator(cls, estimator: Any, *, X_std: Any, name: str | None = None, **options: Any) -> Self:
        """Compute and plot the shares of one fitted linear model; arguments as for `from_estimators`."""
        return cls.from_estimators({name or type(estimator).__name__: estimator}, X_std=X_std, **options)

    @classmethod
    @arguments(feature_names=NAMES, n_shown=Count())
    def from_estimators(
        cls, estimators: Any, *, X_std: Any, ax: Any = None, feature_names: Any = None, n_shown: int = 15
    ) -> Self:
        """Compute and plot the shares of fitted linear models.

        Parameters
        ----------
        estimators : dict of str to classifier, or sequence of classifiers
            Linear, alone or after affine steps in a pipeline.
        X_std : {array-like, sparse matrix} of shape (n_samples, n_features), or array-like of shape (n_features,)
            Standard errors or half-widths, in the units of the features.
        ax : Axes, default=None
        feature_names : sequence of str, default=None
            By default the labels of `X_std`, if it is a frame or series; else the names that a model was fitted with;
            else numbers.
        n_shown : int, default=15
            How many features to show, those with the largest shares.
        """
        call = f"{cls.__name__}.from_estimators"
        needs_matplotlib(call)
        models = named(estimators, call)
        columns, _ = known_columns(X_std)
        columns = list(X_std.index) if columns is None and hasattr(X_std, "iloc") else columns
        found = nonnegative(numbers(X_std, f"{call}(X_std=...)", "X_std"), f"{call}(X_std=...)", "X_std")
        sizes = np.asarray(found.mean(axis=0)).ravel() if found.ndim == 2 or sparse.issparse(found) else found

        def reach_of(model: Any) -> Array:
            classes_of(model)
            (check_columns if found.ndim == 2 else check_features)(None, {"X_std": X_std}, model)
            view = linear_in_x(model, call)
            if sizes.shape != (view.n_features,):
                raise ValueError(
                    f"{call}(X_std=...): X_std has shape {found.shape}; the model has {view.n_features} features."
                )
            pairs = [view.coef[0]] if len(view.coef) == 1 else [a - b for a, b in combinations(view.coef, 2)]
            return np.asarray(np.abs(pairs).mean(axis=0) * sizes)

        shown = those_certified(models, reach_of, call)
        stated = next((getattr(m, "feature_names_in_", None) for m in models.values()), None)
        names = next((list(given) for given in (feature_names, columns, stated) if given is not None), None)
        names = names or [f"feature {j}" for j in range(len(sizes))]
        if len(names) != len(sizes):
            raise ValueError(
                f"{call}(feature_names=...): {len(names)} names for {len(sizes)} features. Name each of them."
            )
        return cls(np.array(list(shown.values())), models=shown, feature_names=names).plot(ax, n_shown=n_shown)

    @arguments(n_shown=Count())
    def plot(self, ax: Any = None, *, n_shown: int = 15) -> Self:
        """Draw bars for the features with the largest shares, on `ax` or on new axes."""
        ax = axes_for(self, ax)
        from matplotlib.ticker import PercentFormatter

        chosen = np.argsort(-self.shares.max(axis=0), kind="stable")[:n_shown]
        height, places = 0.8 / len(self.models), np.arange(len(chosen))
        self.bars_ = []
        for k, (name, look) in enumerate(zip(self.models, looks(len(self.models)), strict=True)):
            at = places + (k - (len(self.models) - 1) / 2) * height
            self.bars_.append(
                ax.barh(at, self.shares[k, chosen], height=0.92 * height, color=look["color"], label=name)
            )
        ax.set_yticks(places, [self.feature_names[j] for j in chosen])
        ax.invert_yaxis()
        ax.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=""))
        ax.set_xlabel("share of the reach of the score, $|w_j|\\,s_j$ (%)")
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
        ax.legend(fontsize="small", loc="lower right")
        return self
