"""The picture of a path of fits over the size of the uncertainty."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from holdfast._core.allowed import NAMES, TEXT, Choice, arguments, short
from holdfast._core.rounding import Array
from holdfast.display.style import axes_for, looks, needs_matplotlib, percent_axis
from holdfast.estimators.linear import predicted_codes

KINDS = ("weights", "accuracy")
SHARE_SCORES = ("accuracy", "certified", "score")
"""A score is a share of rows if its name ends in one of these words."""
LABELLED = 7
"""How many features get a colour and a label, those with the largest weights; the others are grey."""


class NoisePathDisplay:
    """Weights, or accuracy, against the noise (or radius) that a model was trained for.

    Use `from_path` for what :func:`noise_path` or :func:`radius_path` returns, `from_estimator` for a fitted
    GaussianRobustClassifierCV or RobustLinearClassifierCV.

    Parameters
    ----------
    sizes : ndarray of shape (n_sizes,)
    size_name : str
        "noise" or "radius".
    weights : ndarray of shape (n_sizes, n_features), default=None
        With several classes, the root mean square over the classes.
    accuracy, error : ndarray of shape (n_sizes,), default=None
        The score and its standard error.
    feature_names : sequence of str, default=None
    chosen : float, default=None
        The size that was chosen.
    score_name : str, default="accuracy"

    Attributes
    ----------
    sizes, size_name, weights, accuracy, error, feature_names, chosen, score_name
    ax_, figure_ : Axes and Figure
        After `plot`.
    lines_ : list

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from holdfast.estimators import noise_path
    >>> X, y = load_iris(return_X_y=True)
    >>> display = NoisePathDisplay.from_path(noise_path(X, y, noises=[0.1, 0.3, 1.0]), X, y, kind="accuracy")
    >>> display.ax_.get_ylabel()
    'accuracy (%)'
    """

    def __init__(
        self,
        sizes: Array,
        *,
        size_name: str = "noise",
        weights: Array | None = None,
        accuracy: Array | None = None,
        error: Array | None = None,
        feature_names: Any = None,
        chosen: float | None = None,
        score_name: str = "accuracy",
    ):
        self.sizes, self.size_name, self.weights, self.accuracy, self.error = sizes, size_name, weights, accuracy, error
        self.feature_names, self.chosen, self.score_name = feature_names, chosen, score_name

    @classmethod
    @arguments(feature_names=NAMES, size_name=TEXT)
    def from_path(
        cls,
        path: Any,
        X: Any = None,
        y: Any = None,
        *,
        ax: Any = None,
        kind: str = "weights",
        feature_names: Any = None,
        size_name: str | None = None,
    ) -> Self:
        """Plot a path.

        Parameters
        ----------
        path : NoisePath or RadiusPath
        X, y : array-likes of shape (n_samples, n_features) and (n_samples,), default=None
            Rows to compute the accuracy on, for ``kind="accuracy"``. Every class must occur in y.
        ax : Axes, default=None
        kind : {"weights", "accuracy"}, default="weights"
        feature_names : sequence of str, default=None
            By default the columns of X, if it is a frame, or numbers.
        size_name : str, default=None
            The name of the sizes, with their unit, for the horizontal axis.
        """
        needs_matplotlib(f"{cls.__name__}.from_path")
        if not (hasattr(path, "noises") or hasattr(path, "radii")):
            raise ValueError(
                f"{cls.__name__}.from_path(path={short(path):.80}): give what noise_path or radius_path returned."
            )
        if (X is None) != (y is None):
            raise ValueError(f"{cls.__name__}.from_path(path, X, y): give X and y, or neither.")
        if feature_names is None and hasattr(X, "columns"):
            feature_names = list(X.columns)
        signed = path.coefs[:, 0] if path.coefs.shape[1] == 1 else np.sqrt(np.mean(np.square(path.coefs), axis=1))
        name = "noise" if hasattr(path, "noises") else "radius"
        sizes = path.noises if name == "noise" else path.radii
        shares = None
        if y is not None:
            classes = np.unique(y)
            rows = check_array(X, accept_sparse="csr", dtype=np.float64)
            if rows.shape != (len(np.ravel(y)), path.coefs.shape[2]):
                raise ValueError(f"{cls.__name__}.from_path(path, X, y): X has shape {rows.shape}, y {np.shape(y)}.")
            scores = [safe_sparse_dot(rows, W.T) + b for W, b in zip(path.coefs, path.intercepts, strict=True)]
            codes = [predicted_codes(score[:, 0] if score.shape[1] == 1 else score) for score in scores]
            shares = np.array([np.mean(classes[code] == np.asarray(y)) for code in codes])
        if feature_names is not None and len(feature_names) != signed.shape[1]:
            raise ValueError(
                f"{cls.__name__}.from_path(feature_names=...): name each of the {signed.shape[1]} features."
            )
        display = cls(sizes, size_name=size_name or name, weights=signed, accuracy=shares, feature_names=feature_names)
        return display.plot(ax, kind=kind)

    @classmethod
    @arguments(size_name=TEXT)
    def from_estimator(cls, estimator: Any, *, ax: Any = None, size_name: str | None = None) -> Self:
        """Plot the cross-validated scores of a fitted search, at the penalty that it chose, and mark the size that it chose."""
        needs_matplotlib(f"{cls.__name__}.from_estimator")
        if not hasattr(estimator, "_searched") or isinstance(estimator, type):
            raise ValueError(
                f"{cls.__name__}.from_estimator(estimator={short(estimator):.80}): give a fitted GaussianRobustClassifierCV or "
                "RobustLinearClassifierCV."
            )
        check_is_fitted(estimator)
        name, *others = estimator._searched
        results = estimator.cv_results_
        kept = np.all([results[f"param_{key}"] == getattr(estimator, f"{key}_") for key in others], axis=0)
        kept = np.broadcast_to(kept, results["mean_test_score"].shape)
        folds = np.array([value[kept] for key, value in results.items() if key.startswith("split")])
        error = folds.std(axis=0, ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else None
        # scoring=None is a share of correct rows too, but arguments of the search decide which one: it has no name here
        how = "" if estimator.scoring is None else f", {estimator.scoring}"
        return cls(
            results[f"param_{name}"][kept],
            size_name=size_name or name,
            accuracy=results["mean_test_score"][kept],
            error=error,
            chosen=float(getattr(estimator, f"{name}_")),
            score_name=f"cross-validated score{how}",
        ).plot(ax, kind="accuracy")

    @arguments(kind=Choice(*KINDS))
    def plot(self, ax: Any = None, *, kind: str = "weights") -> Self:
        """Draw weights or accuracy, on `ax` or on new axes."""
        call = f"{type(self).__name__}.plot(kind={kind!r})"
        if getattr(self, kind) is None:
            raise ValueError(
                f"{call}: this was not computed. " + ("Give X and y." if kind == "accuracy" else "Plot a path.")
            )
        ax = axes_for(self, ax)
        self.lines_ = self._weights(ax) if kind == "weights" else self._accuracy(ax)
        if np.all(self.sizes > 0):
            ax.set_xscale("log")
        ax.set_xlabel(f"{self.size_name} at training")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))
        ax.grid(alpha=0.3)
        return self

    def _weights(self, ax: Any) -> list[Any]:
        assert self.weights is not None
        n = self.weights.shape[1]
        names = [f"feature {j}" for j in range(n)] if self.feature_names is None else self.feature_names
        largest = np.argsort(-np.abs(self.weights).max(axis=0), kind="stable")[:LABELLED]
        lines = []
        for j in np.setdiff1d(np.arange(n), largest):
            lines += ax.plot(self.sizes, self.weights[:, j], color="0.75", linewidth=0.8)
        for j, look in zip(largest, looks(len(largest)), strict=True):
            lines += ax.plot(self.sizes, self.weights[:, j], label=str(names[j]), markersize=3, **look)
        ax.axhline(0.0, color="0.4", linewidth=0.8)
        ax.set_ylabel("weight")
        return lines

    def _accuracy(self, ax: Any) -> list[Any]:
        assert self.accuracy is not None
        [look] = looks(1)
        lines = [ax.errorbar(self.sizes, self.accuracy, self.error, capsize=2, markersize=4, **look)]
        if self.chosen is not None:
            lines.append(ax.axvline(self.chosen, color="0.3", linestyle=":", label=f"chosen: {self.chosen:.3g}"))
        if self.score_name.endswith(SHARE_SCORES):
            percent_axis(ax, self.score_name)
        else:
            ax.set_ylabel(self.score_name)
        return lines
