"""The picture of two features: the regions of the classes, and the sets that rows may be in."""

from __future__ import annotations

from textwrap import fill, shorten
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from holdfast._core.allowed import NAMES, Count, arguments
from holdfast._core.labels import check_columns, check_features
from holdfast._core.rounding import Array
from holdfast._core.uncertainty import UncertaintySet
from holdfast.display.style import axes_for, looks, needs_matplotlib
from holdfast.evaluate.attacks import worst_case
from holdfast.evaluate.fitted import classes_of
from holdfast.evaluate.noise import flip_probability
from holdfast.evaluate.searches import lead_of
from holdfast.features.rows import as_given

WIDTH = 80
"""Characters in a line of the title."""
N_DIRECTIONS = 73
"""Directions in which a set's farthest point is computed: a full circle, with the first direction again at the end."""
LIKELY = 0.05
"""Noise counts as able to change a class if it does so with a probability above this one."""


class DecisionUncertaintyDisplay:
    """Decision regions of a model of two features, and the sets that rows may be in: boxes, balls, ellipsoids, clouds.

    Use `from_estimator`. A set is outlined by its farthest points in all directions. Gaussian noise is shown by its
    ellipses of one and two standard deviations. A row has a black rim if a point of its set has another predicted
    class, or if noise changes its class with a probability above 5 %. The title says by which method this was found,
    and whether a row without a rim is sure to keep its class. For models that are not linear it is not: a search for
    another class has found none, which proves nothing.

    Parameters
    ----------
    xx0, xx1 : ndarray of shape (n_1, n_0)
        A grid of the two features.
    response : ndarray of shape (n_1, n_0)
        The classes predicted at the points of the grid, as indices into `classes`.
    leads : ndarray of shape (n_classes, n_1, n_0)
        By how much each class leads the others at the points of the grid; a class has its boundary where its lead is 0.
    X : ndarray of shape (n_samples, 2)
    codes : ndarray of shape (n_samples,)
        The classes of the rows, as indices into `classes`.
    classes : ndarray of shape (n_classes,)
    outlines : ndarray of shape (n_outlines, n_samples, n_points, 2)
        The borders of the rows' sets, as polygons.
    may_change : ndarray of shape (n_samples,)
        Which rows have a rim.
    feature_names : sequence of two str
    note : str
        What the sets are, what a rim means, how rims were found, and whether the absence of a rim is a proof.

    Attributes
    ----------
    xx0, xx1, response, leads, X, codes, classes, outlines, may_change, feature_names, note
    ax_, figure_ : Axes and Figure
        After `plot`.
    surface_ : QuadContourSet
    boundaries_ : list of QuadContourSet
    sets_ : list of PolyCollection
    points_ : list of PathCollection
        One for each class.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from holdfast import Box
    >>> X, y = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, -1.0]]), np.array([0, 0, 1, 1])
    >>> display = DecisionUncertaintyDisplay.from_estimator(LogisticRegression().fit(X, y), X, y, Box(1.0))
    >>> display.may_change
    array([False,  True,  True, False])
    """

    def __init__(
        self,
        *,
        xx0: Array,
        xx1: Array,
        response: NDArray[np.intp],
        leads: Array,
        X: Array,
        codes: NDArray[np.intp],
        classes: NDArray[Any],
        outlines: Array,
        may_change: NDArray[np.bool_],
        feature_names: Any,
        note: str,
    ):
        self.xx0, self.xx1, self.response, self.leads, self.X, self.codes = xx0, xx1, response, leads, X, codes
        self.classes, self.outlines, self.may_change = classes, outlines, may_change
        self.feature_names, self.note = tuple(feature_names), note

    @classmethod
    @arguments(grid_resolution=Count(2), feature_names=NAMES)
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        uncertainty: UncertaintySet,
        *,
        ax: Any = None,
        grid_resolution: int = 200,
        feature_names: Any = None,
        **metadata: Any,
    ) -> Self:
        """Compute and plot the regions of a fitted model and the sets of rows.

        Parameters
        ----------
        estimator : classifier
        X : array-like of shape (n_samples, 2)
        y : array-like of shape (n_samples,)
        uncertainty : UncertaintySet
            A set, or `GaussianNoise`.
        ax : Axes, default=None
        grid_resolution : int, default=200
        feature_names : sequence of two str, default=None
        **metadata
            The size of each row's set, such as ``X_std``, as for :func:`worst_case`.
        """
        call = f"{cls.__name__}.from_estimator"
        needs_matplotlib(call)
        check_columns(X, metadata, estimator)
        check_features(X, {"uncertainty": uncertainty}, estimator)
        rows = check_array(X, dtype=np.float64)
        if rows.shape[1] != 2:
            raise ValueError(f"{call}: X has {rows.shape[1]} features; a picture has two. Fit a model of two of them.")
        if not isinstance(uncertainty, UncertaintySet):
            raise ValueError(
                f"{call}(..., uncertainty={uncertainty!r:.80}): give a set, such as Box(), or GaussianNoise()."
            )
        classes, labels = classes_of(estimator), np.asarray(y).ravel()
        if labels.shape != (len(rows),) or not np.all(np.isin(labels, classes)):
            raise ValueError(f"{call}: y must hold one of the classes {classes.tolist()!r:.200} for each row.")
        codes = np.searchsorted(classes, labels)
        bound = uncertainty.at(rows, {name: value for name, value in metadata.items() if value is not None})
        angles = np.linspace(0.0, 2 * np.pi, N_DIRECTIONS)
        farthest = [bound.maximizer(w) for w in np.column_stack([np.cos(angles), np.sin(angles)])]
        # the farthest points in all directions trace the border of a convex set, corners included
        moves = np.stack([np.broadcast_to(each, rows.shape) for each in farthest], axis=1)
        if uncertainty.is_expectation:
            outlines = rows[:, None] + np.stack([2 * moves, moves])
            flips = flip_probability(estimator, X, uncertainty, random_state=0, **metadata)
            may_change = flips.probability > LIKELY
            sets = f"{uncertainty!r}, 1 and 2 standard deviations"
            rim = f"changes class with probability > {LIKELY:.0%} ({flips.assumption.split('; ')[1]}: {flips.method})"
        else:
            outlines, sets = (rows[:, None] + moves)[None], repr(uncertainty)
            worst = worst_case(estimator, X, np.asarray(estimator.predict(X)), uncertainty, **metadata)
            may_change = worst.is_wrong
            found = "the set holds another class; no rim: it does not"
            sought = "another class was found in the set; no rim: none was found, which proves nothing"
            rim = f"{found if worst.is_exact else sought} ({worst.method})"
        low, high = outlines.min(axis=(0, 1, 2)), outlines.max(axis=(0, 1, 2))
        pad = 0.05 * np.where(high > low, high - low, 1.0)
        xx0, xx1 = np.meshgrid(*np.linspace(low - pad, high + pad, grid_resolution).T)
        points = np.column_stack([xx0.ravel(), xx1.ravel()])
        response = np.searchsorted(classes, np.asarray(estimator.predict(as_given(X, points)))).reshape(xx0.shape)
        ask = lead_of(estimator, X, classes)
        leads = np.array([ask(points, np.full(len(points), k)).reshape(xx0.shape) for k in range(len(classes))])
        if np.any(leads.argmax(axis=0) != response):
            # votes of pairs of classes do not follow the scores: show only where each class is predicted
            leads = np.where(response == np.arange(len(classes))[:, None, None], 1.0, -1.0)
        columns = list(X.columns) if hasattr(X, "columns") else ["feature 0", "feature 1"]
        names = columns if feature_names is None else list(feature_names)
        if len(names) != 2:
            raise ValueError(f"{call}(feature_names={names!r:.80}): name both features.")
        text = f"{shorten(sets, 70)}\n{fill(f'black rim: {rim}', WIDTH)}"
        made = cls(
            xx0=xx0,
            xx1=xx1,
            response=response,
            leads=leads,
            X=rows,
            codes=codes,
            classes=classes,
            outlines=outlines,
            may_change=may_change,
            feature_names=names,
            note=text,
        )
        return made.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw regions, sets and rows, on `ax` or on new axes."""
        ax = axes_for(self, ax)
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import ListedColormap

        styles = looks(len(self.classes))
        colours = [style["color"] for style in styles]
        edges = np.arange(len(self.classes) + 1) - 0.5
        self.surface_ = ax.contourf(
            self.xx0, self.xx1, self.response, levels=edges, cmap=ListedColormap(colours), alpha=0.12
        )
        # two classes share one boundary
        lines = self.leads[1:] if len(self.leads) == 2 else self.leads
        line = {"levels": [0.0], "colors": "0.2", "linewidths": 1}
        self.boundaries_ = [ax.contour(self.xx0, self.xx1, lead, **line) for lead in lines if np.ptp(np.sign(lead))]
        self.sets_, self.points_ = [], []
        for code, (label, style) in enumerate(zip(self.classes, styles, strict=True)):
            own = self.codes == code
            for outline in self.outlines:
                shown = PolyCollection(
                    list(outline[own]), facecolors=style["color"], edgecolors=style["color"], alpha=0.18, linewidths=0.8
                )
                self.sets_.append(ax.add_collection(shown))
            rims = np.where(self.may_change[own], "black", "none")
            self.points_.append(
                ax.scatter(
                    *self.X[own].T, c=style["color"], marker=style["marker"], s=22, edgecolors=rims, label=str(label)
                )
            )
        for handle in ax.legend(title="class", fontsize="small").legend_handles:
            handle.set_edgecolor("none")
        ax.set(
            xlabel=self.feature_names[0],
            ylabel=self.feature_names[1],
            title=self.note,
        )
        ax.title.set_fontsize("small")
        return self
