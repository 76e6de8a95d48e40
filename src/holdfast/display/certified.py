"""The picture of certified accuracies."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any, Self

import numpy as np

from holdfast._core.allowed import NORM, NOTHING, TEXT, Instance, Listed, arguments
from holdfast._core.rounding import Array
from holdfast.display.style import axes_for, looks, needs_matplotlib, percent_axis, those_certified
from holdfast.evaluate.certificates import certified_radius
from holdfast.evaluate.curves import named
from holdfast.evaluate.fitted import classes_of, rows_for
from holdfast.uncertainty.checks import nonnegative, numbers

WIDTH = 60
"""Characters in a line of the legend."""
SHOWN_SHARE = 0.99
"""The quantile of the finite radii at which the axis ends."""


class CertifiedAccuracyDisplay:
    r"""Certified accuracy against a radius: the share of rows that are right, and stay right when moved by up to it.

    Use `from_estimator` or `from_estimators`. The curves start at the share of rows that are correct by more than a
    rounding error. Where a certificate is not tight, they lie below the truth. The legend says how each model was
    certified; with ``method="smoothing"``, it says that the certificate is that of another, smoothed classifier, and
    with what confidence it holds.

    Parameters
    ----------
    radii : ndarray of shape (n_radii,)
    accuracy : ndarray of shape (n_models, n_radii)
    models : sequence of str
    norm : {1, 2, "inf"}
    methods : sequence of str
        How each model was certified.
    unit : str
        The unit of the radii.

    Attributes
    ----------
    radii, accuracy, models, norm, methods, unit
    ax_, figure_ : Axes and Figure
        After `plot`.
    lines_ : list of Line2D

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> CertifiedAccuracyDisplay.from_estimator(LogisticRegression().fit(X, y), X, y, radii=[0.5, 1.5]).accuracy
    array([[1. , 0.5]])
    """

    def __init__(self, radii: Array, accuracy: Array, *, models: Any, norm: Any, methods: Any, unit: str):
        self.radii, self.accuracy, self.models = radii, accuracy, tuple(models)
        self.norm, self.methods, self.unit = NORM.checked(norm, f"{type(self).__name__}(norm"), tuple(methods), unit

    @classmethod
    @arguments(name=TEXT)
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **options: Any) -> Self:
        """Certify and plot one fitted model; arguments as for `from_estimators`."""
        return cls.from_estimators({name or type(estimator).__name__: estimator}, X, y, **options)

    @classmethod
    @arguments(unit=TEXT, radii=Listed("give radii >= 0") | NOTHING)
    def from_estimators(
        cls,
        estimators: Any,
        X: Any,
        y: Any,
        *,
        ax: Any = None,
        norm: Any = 2,
        weights: Any = None,
        radii: Any = None,
        unit: str | None = None,
        **options: Any,
    ) -> Self:
        """Certify and plot fitted models.

        Parameters
        ----------
        estimators : dict of str to classifier, or sequence of classifiers
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        ax : Axes, default=None
        norm, weights, **options
            As for :func:`certified_radius`.
        radii : array-like, default=None
            Where to evaluate; by default at 200 points from 0 to the 99 % quantile of the finite radii.
        unit : str, default=None
            The name of the unit of the radii, such as "stated half-widths" or "standard errors".
        """
        call = f"{cls.__name__}.from_estimators"
        needs_matplotlib(call)
        models, labels = named(estimators, call), np.asarray(y).ravel()
        for name, model in models.items():
            classes, n = classes_of(model), rows_for(model, X).shape[0]
            if labels.shape != (n,) or not np.all(np.isin(labels, classes)):
                raise ValueError(
                    f"{call}(estimators, X, y): y must hold one of the classes {classes.tolist()!r:.200} of {name!r} for each "
                    f"of the {n} rows."
                )
        found = those_certified(
            models, lambda model: certified_radius(model, X, norm=norm, weights=weights, **options), call
        )
        # a wrong prediction never counts, however certain it is
        sizes = [np.where((each.predicted == labels) & (each.radius > 0), each.radius, -1.0) for each in found.values()]
        grid = _grid(np.concatenate(sizes)) if radii is None else np.sort(_radii(radii, f"{call}(radii=...)"))
        accuracy = np.array([(size[:, None] >= grid).mean(axis=0) for size in sizes])
        unit = unit or ("units of X" if weights is None else "units of the weights")
        methods = [each.method for each in found.values()]
        display = cls(grid, accuracy, models=found, norm=norm, methods=methods, unit=unit)
        return display.plot(ax)

    @arguments(curve_kwargs=Instance(Mapping, "give a dict of arguments of matplotlib") | NOTHING)
    def plot(self, ax: Any = None, *, curve_kwargs: Mapping[str, Any] | None = None) -> Self:
        """Draw the curves, on `ax` or on new axes; `curve_kwargs` go to matplotlib's `plot`."""
        ax = axes_for(self, ax)
        self.lines_ = []
        rows = zip(self.models, self.methods, self.accuracy, looks(len(self.models)), strict=True)
        is_one = len(set(self.methods)) == 1  # then the method stands once, in the title of the legend
        for name, method, shares, look in rows:
            label = name if is_one else fill(f"{name}: {method}", WIDTH)
            options = {"label": label, **look, "marker": "", **(curve_kwargs or {})}
            self.lines_ += ax.plot(self.radii, shares, **options)
        percent_axis(ax, "certified accuracy, a lower bound")
        kind = {1: r"$\ell_1$", 2: r"$\ell_2$", np.inf: r"$\ell_\infty$"}[self.norm]
        ax.set_xlabel(f"radius in the {kind} norm, in {self.unit}")
        ax.set_ylim(bottom=0.0)
        ax.set_xlim(left=0.0)
        title = fill(self.methods[0], WIDTH // 2) if is_one else None
        ax.legend(fontsize="small", title=title, title_fontsize="small", alignment="left", framealpha=0.5)
        return self


def _radii(radii: Any, call: str) -> Array:
    return np.asarray(nonnegative(numbers(radii, call, "radii"), call, "radii"))


def _grid(sizes: Array) -> Array:
    """Return 200 radii from 0 to the 99 % quantile of the finite positive sizes."""
    finite = sizes[np.isfinite(sizes) & (sizes > 0)]
    # a single row far from all boundaries would squeeze the curve into a corner
    return np.linspace(0.0, float(np.quantile(finite, SHOWN_SHARE)) if len(finite) else 1.0, 200)
