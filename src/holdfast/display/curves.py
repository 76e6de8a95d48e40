"""The picture of a robustness curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from holdfast._core.allowed import NOTHING, TEXT, Instance, Switch, arguments
from holdfast.display.style import axes_for, looks, needs_matplotlib, percent_axis
from holdfast.evaluate.curves import RobustnessCurve, robustness_curve

CERTIFIED_LABEL = "certified: a proved lower bound, in the same colour"


class RobustnessCurveDisplay:
    """Accuracy against the level of a perturbation, with standard errors and certified lower bounds.

    Use `from_estimator`, `from_estimators` or `from_curve`.

    Parameters
    ----------
    curve : RobustnessCurve

    Attributes
    ----------
    curve : RobustnessCurve
    ax_, figure_ : Axes and Figure
        After `plot`.
    lines_ : list of ErrorbarContainer
        One for each model.
    certified_lines_ : list of Line2D
        One for each model that has a certified lower bound.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Box
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> display = RobustnessCurveDisplay.from_estimator(LogisticRegression().fit(X, y), X, y, Box(1.0), [0, 2, 4])
    >>> display.ax_.get_xlabel()
    'multiple of the stated half-widths'
    """

    def __init__(self, curve: RobustnessCurve):
        self.curve = curve

    @classmethod
    @arguments(curve=Instance(RobustnessCurve, "give what robustness_curve returned"))
    def from_curve(cls, curve: RobustnessCurve, *, ax: Any = None, **plot: Any) -> Self:
        """Plot a curve that has been computed already; further arguments go to `plot`."""
        return cls(curve).plot(ax, **plot)

    @classmethod
    @arguments(name=TEXT)
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        uncertainty: Any,
        levels: Any,
        *,
        ax: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Compute and plot the curve of one fitted model; further arguments go to :func:`robustness_curve`."""
        models = {name or type(estimator).__name__: estimator}
        return cls.from_estimators(models, X, y, uncertainty, levels, ax=ax, **options)

    @classmethod
    def from_estimators(
        cls, estimators: Any, X: Any, y: Any, uncertainty: Any, levels: Any, *, ax: Any = None, **options: Any
    ) -> Self:
        """Compute and plot the curves of fitted models, a dict or a list; further arguments go to `robustness_curve`."""
        needs_matplotlib(f"{cls.__name__}.from_estimators")
        return cls(robustness_curve(estimators, X, y, uncertainty, levels, **options)).plot(ax)

    @arguments(
        show_certified=Switch(), curve_kwargs=Instance(Mapping, "give a dict of arguments of matplotlib") | NOTHING
    )
    def plot(
        self, ax: Any = None, *, show_certified: bool = True, curve_kwargs: Mapping[str, Any] | None = None
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : Axes, default=None
            By default new axes.
        show_certified : bool, default=True
            Whether to draw, dashed, the certified accuracy: no perturbation of that level brings the accuracy below it.
        curve_kwargs : dict, default=None
            Arguments of matplotlib's `errorbar` for all curves.

        Returns
        -------
        self
        """
        curve, ax = self.curve, axes_for(self, ax)
        from matplotlib.lines import Line2D

        self.lines_, self.certified_lines_ = [], []
        rows = zip(
            curve.models, curve.mean, curve.standard_error, curve.certified, looks(len(curve.models)), strict=True
        )
        order = np.argsort(curve.levels, kind="stable")
        levels = curve.levels[order]
        for name, *found, look in rows:
            mean, error, certified = (each[order] for each in found)
            known = None if np.any(np.isnan(error)) else error
            options = {"label": name, "capsize": 2, "markersize": 4, **look, **(curve_kwargs or {})}
            self.lines_.append(ax.errorbar(levels, mean, known, **options))
            if show_certified and not np.all(np.isnan(certified)):
                dashes = {"color": options["color"], "linestyle": "--", "linewidth": 1.2}
                self.certified_lines_ += ax.plot(levels, certified, label=f"_{name}, certified", **dashes)
        percent_axis(ax, "accuracy")
        ax.set_xlabel(curve.unit)
        key = Line2D([], [], color="0.4", linestyle="--", linewidth=1.2, label=CERTIFIED_LABEL)
        ax.legend(handles=[*self.lines_, *([key] if self.certified_lines_ else [])], fontsize="small")
        return self
